"""The rows of a fit, in an order of their own."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from vertebra.tables.folds import runs_of
from vertebra.tables.profile import at_equal_ranks

# Equal rows are at most so many parts, so that each of five folds can have one.
MOST_PARTS = 5
# Rows that stand for the marginals of the inputs, where a network is taken apart: quantiles 0.4 % apart.
N_MARGINAL_ROWS = 256
# Values are outside the range of the fit from this share of its width on: of new rows from where the old ones came some
# are always a little outside. A round number.
OUTSIDE = 0.1


class Rows(NamedTuple):
    """The rows of a fit: those of weight above 0, equal ones in few parts, in an order that does not depend on theirs.

    So a weight of 2 is a row that stands there twice, to the last digit, and the order of the rows does not matter.
    """

    matrix: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    weight: Float[np.ndarray, " n"]


def canonical(matrix, y, weight) -> Rows:
    """Rows put in order, equal ones as few parts, each of at least one row.

    Parts, because what is left out of a fold, of a network or of a fit is rows and not all that are equal: without a
    whole cell of a small table the rest of it says the opposite.
    """
    kept = weight > 0
    matrix, y, weight = matrix[kept], y[kept], weight[kept]
    everything = np.concatenate([matrix, y], axis=1)
    order = np.lexsort(everything.T[::-1])
    everything, weight = everything[order], weight[order]
    run, place = runs_of(everything)
    everything, parts = everything[place == 0], _parts(np.bincount(run, weight))
    everything, p = np.repeat(everything, np.count_nonzero(parts, axis=1), axis=0), matrix.shape[1]
    return Rows(everything[:, :p], everything[:, p:], parts[parts > 0.0])


def _parts(weight: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m parts"]:
    """Weights of the parts of rows: one row each, or, of more rows than parts, as many as chance puts into each."""
    units = np.maximum(weight, 1.0).astype(np.int64)
    parts = (np.arange(MOST_PARTS) < units[:, None]).astype(float)
    many = units > MOST_PARTS
    # always the same chance: parts must not depend on a seed, nor on how rows came
    parts[many] = np.random.default_rng(0).multinomial(units[many], np.full(MOST_PARTS, 1.0 / MOST_PARTS))
    return parts * (weight / units)[:, None]


def are_equal(rows: Rows) -> bool:
    """Whether all rows are one and the same."""
    return not runs_of(rows.matrix, rows.y)[0].any()


def ranges_of(matrix: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "p 2"]:
    """The least and the largest value of every input."""
    seen = [column[~np.isnan(column)] for column in matrix.T]
    return np.array([[s.min(), s.max()] if len(s) else [0.0, 0.0] for s in seen])


class OutsideRange(UserWarning):
    """Rows to predict lie clearly outside the values of the fit: their predictions level off, and their sds grow.

    >>> import warnings
    >>> warnings.simplefilter("ignore", vb.OutsideRange)  # where that is known
    """


def outside(matrix: Float[np.ndarray, "n p"], ranges: Float[np.ndarray, "p 2"]) -> Bool[np.ndarray, "n p"]:
    """Where coded values lie further beyond the range of the fit than a share of its width."""
    low, high = ranges.T
    allowed = OUTSIDE * (high - low)
    with np.errstate(invalid="ignore"):
        return (matrix < low - allowed) | (matrix > high + allowed)


def marginal_rows(x, weight) -> Float[np.ndarray, "m p"]:
    """Rows whose columns are quantiles of the inputs, each by itself, in the middle of equal steps of rank."""
    return np.stack([at_equal_ranks(column, weight, 2 * N_MARGINAL_ROWS + 1)[1::2] for column in x.T], axis=1)
