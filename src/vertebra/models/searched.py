"""The rows that terms are sought in."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.models.reading import Targets
from vertebra.models.rows import Rows
from vertebra.tables.encoding import Encoding, encode
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

    def for_networks(self, seed: int) -> tuple[Encoding, Float[np.ndarray, "n p"]]:
        """The rows as networks read them, and by which encoding: categories as numbers, without gaps."""
        direction = Targets(self.y, self.weight).direction(self.y)
        settings: Any = dict(most_levels=0, fill=True, rng=np.random.default_rng(seed))
        kinds = self.n_levels, [False] * len(self.n_levels)
        encoding, inputs, _ = encode(self.x, direction, self.weight, *kinds, **settings)
        return encoding, inputs
