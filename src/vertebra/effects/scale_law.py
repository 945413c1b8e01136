"""How the noise of averaged networks goes by what they say of a row themselves."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# f is in sds of y: so far and no farther does the noise go by it.
FARTHEST = 3.0
# Members that agree to the last digit disagree by this share of y's sd at least.
LEAST_APART = 1e-9
# What the noise goes by: log disagreement, f, f².
N_SLOPES = 3


class ScaleLaw(NamedTuple):
    """f₂ ~ N(bᵀ(log s² − centre, f, f²), variance): f₂ of uneven noise at a row, s² the disagreement of the members.

    The variance is that of what the three do not tell: noise whose scale varies so has heavy tails.
    """

    centre: Float[np.ndarray, " k"]
    slopes: Float[np.ndarray, "k 3"]  # b
    variance: Float[np.ndarray, " k"]

    def seen(self, f: Float[np.ndarray, "n k"], log_apart: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k slopes"]:
        """What the noise goes by."""
        f = np.clip(f, -FARTHEST, FARTHEST)
        return np.stack([log_apart - self.centre, f, f**2], axis=2)

    def latents(
        self, f: Float[np.ndarray, "n k"], doubt: Float[np.ndarray, "n k"], log_apart: Float[np.ndarray, "n k"]
    ) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, "n outputs"]]:
        """Mean and variance of f₁ and f₂, from those of f and how far the members are apart."""
        second = np.einsum("nks,ks->nk", self.seen(f, log_apart), self.slopes)
        return side_by_side(f, second), side_by_side(doubt, np.broadcast_to(self.variance, f.shape))


def side_by_side(
    first: Float[np.ndarray, "*rows k"], second: Float[np.ndarray, "*rows k"]
) -> Float[np.ndarray, "*rows outputs"]:
    """f₁ and f₂ of every target, as likelihoods read them."""
    return np.stack([first, second], axis=-1).reshape(*first.shape[:-1], -1)


def logged(apart: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """log s², of members that may agree to the last digit."""
    return np.log(np.maximum(apart, LEAST_APART**2))
