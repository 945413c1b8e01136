"""The rows that terms are sought in."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.models.reading import MOST_CODES, Encoded, Targets
from vertebra.models.rows import Rows
from vertebra.tables.encoding import encode, places
from vertebra.tables.passes import MOST_SEARCHED
from vertebra.terms.sums import Everything


class Searched(NamedTuple):
    """The rows that are searched: all, or of very many a sample; `everything` is then all of them."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    rows: Rows
    n_levels: Sequence[int]
    everything: Everything | None

    @property
    def weight(self) -> Float[np.ndarray, " n"]:
        return self.rows.weight

    def codes(self, n_levels: Sequence[int]) -> dict[int, Int[np.ndarray, " n"]]:
        """The levels of categories that are read as numbers, missing last; `n_levels` are those of all categories."""
        read = zip(n_levels, self.n_levels, strict=True)
        return {i: places(self.rows.matrix[:, i], n) for i, (n, left) in enumerate(read) if n and not left}

    def for_networks(self, targets: Targets, seed: int) -> Encoded:
        """The rows as networks read them: categories of few levels as codes, others as numbers, and no gaps."""
        settings: Any = dict(most_levels=MOST_CODES, fill=True, rng=np.random.default_rng(seed), groups=self.rows.group)
        kinds = self.n_levels, [False] * len(self.n_levels)
        coded = encode(self.x, targets.direction(self.y), self.weight, *kinds, **settings)
        return Encoded(*coded).with_codes(self.n_levels)


def some_of(seed: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """The same rows of all arrays, no more than are searched."""
    n = len(arrays[0])
    if n <= MOST_SEARCHED:
        return list(arrays)
    chosen = np.sort(np.random.default_rng(seed).choice(n, MOST_SEARCHED, replace=False))
    return [each[chosen] for each in arrays]
