"""Whether numbers may count something: events, things, people."""

import numpy as np
from jaxtyping import Float

# Of fewer rows nobody can say.
FEWEST_COUNTED = 100
# Of the median: at most so large is the twentieth part of counts that are worth a word.
NEAR_ZERO = 0.5


def is_count_like(y: Float[np.ndarray, " n"]) -> bool:
    """Whether numbers may count something: whole, and some of them near 0 beside the others."""
    is_whole = len(y) >= FEWEST_COUNTED and float(y.min()) >= 0.0 and bool((y == y.round()).all())
    return is_whole and float(np.quantile(y, 0.05)) <= NEAR_ZERO * float(np.median(y))
