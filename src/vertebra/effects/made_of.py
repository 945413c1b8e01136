"""What a function of many inputs is made of, by sampling: for what networks over all inputs add to a sum of terms.

The inputs are drawn independently of each other, each as rows have it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Points for each input, and in all: a share is known to 5 %, in a few seconds of networks' work. Round numbers.
MOST_POINTS, MOST_OF_ALL = 1000, 20_000


class MadeOf(NamedTuple):
    """Shares of the variance by output and input: of its main effect, and of all components that it has a part in."""

    main: Float[np.ndarray, "outputs p"]
    total: Float[np.ndarray, "outputs p"]

    @property
    def together(self) -> Float[np.ndarray, " outputs"]:
        """How many inputs act together, in the mean over components: Σ_T |T| σ²_T/σ² = Σ_i total_i."""
        return self.total.sum(axis=1)


def made_of(
    f: Callable[[Float[np.ndarray, "m p"]], Float[np.ndarray, "m outputs"]], x: Float[np.ndarray, "n p"], seed: int
) -> MadeOf:
    """Main effects by Saltelli's estimator, total ones by Jansen's: f where one input alone comes from other rows."""
    rng, p = np.random.default_rng(seed), x.shape[1]
    n = max(min(MOST_POINTS, MOST_OF_ALL // (p + 2)), 2)
    first, second = (np.stack([rng.choice(column, n) for column in x.T], axis=1) for _ in range(2))
    mixed = np.repeat(first[None], p, axis=0)
    mixed[np.arange(p), :, np.arange(p)] = second.T
    said = f(np.concatenate([first, second, mixed.reshape(-1, p)]))
    at_first, at_second, at_mixed = said[:n], said[n : 2 * n], said[2 * n :].reshape(p, n, -1)
    # 0 of 0 is 0
    variance = np.maximum(np.concatenate([at_first, at_second]).var(axis=0), 1e-300)
    # V_i = E f(B) (f(A with B's i) − f(A)), with less chance where f is centred; V_Ti = ½ E (f(A) − f(A with B's i))²
    main = np.mean((at_second - at_second.mean(axis=0)) * (at_mixed - at_first), axis=1) / variance
    total = 0.5 * np.mean((at_first - at_mixed) ** 2, axis=1) / variance
    return MadeOf(np.clip(main, 0.0, 1.0).T, total.T)
