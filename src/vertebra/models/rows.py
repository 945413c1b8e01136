"""The rows of a fit, in an order of their own."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.machine.later import later
from vertebra.tables.folds import runs_of
from vertebra.tables.profile import at_equal_ranks

if TYPE_CHECKING:
    from vertebra.effects import regression
    from vertebra.effects.regression import RowsTogether
else:
    # they come with JAX
    regression, RowsTogether = later("vertebra.effects.regression"), object

# Equal rows are at most so many parts, so that each of five folds can have one.
MOST_PARTS = 5
# Rows that stand for the marginals of the inputs, where a network is taken apart: quantiles 0.4 % apart.
N_MARGINAL_ROWS = 256
# Rows as they go together that networks are regressed on: means over them are off by 2 %.
MOST_TOGETHER = 2000
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
    group: Int[np.ndarray, " n"] | None = None  # the number of the group that rows belong to
    time: Float[np.ndarray, " n"] | None = None  # when they were
    place: Int[np.ndarray, " n"] | None = None  # where they stood in the table; of equal ones, the first

    def at(self, places: Bool[np.ndarray, " n"] | Int[np.ndarray, " m"] | slice) -> "Rows":
        """Some of them."""
        parts: Any = [None if part is None else part[places] for part in self]
        return Rows(*parts)

    @property
    def learnt(self) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
        """What is learnt from: inputs, targets and weights."""
        return self.matrix, self.y, self.weight


def canonical(matrix, y, weight, group=None, time=None) -> Rows:
    """Rows put in order, equal ones as few parts, each of at least one row; of two groups or times none are equal.

    Parts, because what is left out of a fold, of a network or of a fit is rows and not all that are equal: without a
    whole cell of a small table the rest of it says the opposite.
    """
    kept = np.flatnonzero(weight > 0)
    beside = [each[kept, None].astype(float) for each in (group, time) if each is not None]
    everything = np.concatenate([matrix[kept], y[kept], *beside], axis=1)
    # the sort is stable: the first of equal rows is the one that stood first
    order = np.lexsort(everything.T[::-1])
    run, place = runs_of(everything[order])
    parts = _parts(np.bincount(run, weight[kept][order]))
    rows = np.repeat(kept[order][place == 0], np.count_nonzero(parts, axis=1))
    group, time = (None if each is None else each[rows] for each in (group, time))
    return Rows(matrix[rows], y[rows], parts[parts > 0.0], group, time, rows)


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


class NewLevels(UserWarning):
    """Rows to predict have levels that the fit never saw: they get the average effect, and the doubt of any level.

    >>> import warnings
    >>> warnings.simplefilter("ignore", vb.NewLevels)  # where that is known
    """


def outside(matrix: Float[np.ndarray, "n p"], ranges: Float[np.ndarray, "p 2"]) -> Bool[np.ndarray, "n p"]:
    """Where coded values lie further beyond the range of the fit than a share of its width."""
    low, high = ranges.T
    allowed = OUTSIDE * (high - low)
    with np.errstate(invalid="ignore"):
        return (matrix < low - allowed) | (matrix > high + allowed)


def rows_together(x, weight, seed: int) -> RowsTogether:
    """Some rows as they are, drawn by their weights where these differ or where they are many."""
    if len(x) <= MOST_TOGETHER and np.ptp(weight) == 0.0:
        return regression.RowsTogether(x)
    chosen = np.random.default_rng(seed).choice(len(x), MOST_TOGETHER, p=weight / weight.sum())
    return regression.RowsTogether(x[np.sort(chosen)])


def marginal_rows(x, weight) -> Float[np.ndarray, "m p"]:
    """Rows whose columns are quantiles of the inputs, each by itself, in the middle of equal steps of rank."""
    return np.stack([at_equal_ranks(column, weight, 2 * N_MARGINAL_ROWS + 1)[1::2] for column in x.T], axis=1)
