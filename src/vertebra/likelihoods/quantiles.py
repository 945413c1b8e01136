"""Quantiles of y where only P(Y ≤ y) is known: by halving a bracket that is sure to hold them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vertebra.likelihoods.densities import A, Maths
from vertebra.machine.later import later

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike
else:
    Array = ArrayLike = object  # they come with JAX

jax = later("jax")

# Of a bracket in single or double precision 64 halvings leave nothing but rounding. In NumPy each is a pass over all
# points of f at all rows: 45 leave 3e-14 of the bracket.
N_HALVINGS, N_IN_NUMPY = 64, 45


def checked_levels(q: ArrayLike | Sequence[float], dtype: np.dtype) -> Array:
    """Levels that are between 0 and 1, as an array of JAX."""
    levels = np.asarray(q)
    if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"`q` must be a list of levels between 0 and 1, got {q!r}.")
    return jax.numpy.asarray(levels, dtype)


def quantile(rank: Callable[[A], A], level: float | Array, centre: A, sd: A, maths: Maths, *, is_discrete: bool) -> A:
    """The y at which its rank P(Y ≤ y) reaches a level, from the mean and sd of y; of counts the smallest such."""
    xp = maths.xp
    # Cantelli: at most a share 1/(1 + t²) of any distribution lies beyond t standard deviations on one side.
    reach = 1.01 * xp.sqrt(1.0 / xp.minimum(level, 1.0 - level)) * sd + 1.0
    bounds = centre - reach, centre + reach
    if is_discrete:
        bounds = xp.maximum(xp.floor(bounds[0]), 0.0) - 1.0, xp.ceil(bounds[1])

    def halve(bounds):
        lower, upper = bounds
        middle = 0.5 * (lower + upper)
        middle = xp.floor(middle) if is_discrete else middle
        below = rank(middle) < level
        return xp.where(below, middle, lower), xp.where(below, upper, middle)

    if xp is not np:
        return jax.lax.fori_loop(0, N_HALVINGS, lambda _, bounds: halve(bounds), bounds)[1]
    for _ in range(N_IN_NUMPY):
        if is_discrete and np.all(bounds[1] - bounds[0] <= 1.0):
            break
        bounds = halve(bounds)
    return bounds[1]
