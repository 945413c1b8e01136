"""What the rows of a fit looked like: how the values of every input and of the target were spread."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.tables.column import Column

# Bins of a number's values: as many as a small chart can show. A round number.
N_BINS = 30
# Values that tell how many distinct ones there are, and so whether fewer bins will do.
ROWS_FOR_BINS = 10_000
# So many rows to a value, on average, and the values are few.
ROWS_PER_VALUE = 5


class Marginal(NamedTuple):
    """Shares of the rows by bin of a number or by level, and of those with no value; its middle: median or mode."""

    edges: Float[np.ndarray, " m1"]  # of the bins, in the user's units; none for levels
    shares: Float[np.ndarray, " m"]  # of all rows
    missing: float
    middle: float  # a value in the user's units, or the code of a level

    def table(self, column: Column | None = None) -> pd.DataFrame:
        """lower, upper, share of every bin; level, share of every level."""
        if len(self.edges):
            return pd.DataFrame({"lower": self.edges[:-1], "upper": self.edges[1:], "share": self.shares})
        levels = range(len(self.shares)) if column is None else column.levels
        return pd.DataFrame({"level": list(levels), "share": self.shares})


class Profile(NamedTuple):
    """The rows of a fit, input by input and target by target."""

    n_rows: int  # of weight above 0
    weight: float  # the number of rows that they count for
    inputs: tuple[Marginal, ...]
    targets: tuple[Marginal, ...]
    means: Float[np.ndarray, " k"]  # of the targets


def profile(
    matrix: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    columns: Sequence[Column],
    n_classes: int = 0,
) -> Profile:
    """The profile of coded rows; of a classifier y holds the codes of classes."""
    inputs = tuple(
        _of_levels(values, weight, len(c.levels)) if c.levels else _of_number(values, weight, c)
        for values, c in zip(matrix.T, columns, strict=True)
    )
    targets = tuple(_of_levels(v, weight, n_classes) if n_classes else _of_number(v, weight) for v in y.T)
    return Profile(len(matrix), float(weight.sum()), inputs, targets, weight @ y / weight.sum())


def shares_at(
    values: Float[np.ndarray, " m"], lower: Float[np.ndarray, " bins"], shares: Float[np.ndarray, " bins"]
) -> Float[np.ndarray, " m"] | None:
    """The share of each value of a discrete number, from bins that begin at `lower`; None if some bin holds two."""
    bins = np.maximum(np.searchsorted(lower, values, side="right") - 1, 0)
    own = shares[bins]
    is_each = len(np.unique(bins)) == len(bins) and np.isclose(own.sum(), shares.sum())
    return own if is_each else None


def at_equal_ranks(
    values: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"], n_steps: int
) -> Float[np.ndarray, " steps"]:
    """The values at equal steps of rank, from the least to the largest: quantiles at 0, …, 1.

    Not np.quantile, though by definition it is the same: it divides the ranks by their last, which rounds, so that of
    rows of equal weight, where a step ends with a row, it may take another row.
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    return values[order][np.minimum(np.searchsorted(upto, np.linspace(0.0, upto[-1], n_steps)), len(order) - 1)]


def copies_of(matrix: Float[np.ndarray, "n p"]) -> dict[int, int]:
    """The columns that are equal to one before them, gap for gap, and which that is."""
    first: dict[bytes, int] = {}
    same = [first.setdefault((column + 0.0).tobytes(), i) for i, column in enumerate(matrix.T)]
    return {i: j for i, j in enumerate(same) if i != j}


def _of_levels(codes, weight, n_levels: int) -> Marginal:
    known = codes >= 0  # neither missing nor unseen
    counts = np.bincount(codes[known].astype(int), weight[known], n_levels)
    missing = float(weight[np.isnan(codes)].sum() / weight.sum())
    return Marginal(np.zeros(0), counts / weight.sum(), missing, float(np.argmax(counts)))


def _of_number(values, weight, column: Column | None = None) -> Marginal:
    """Bins of equal width on the model's scale, which draws far tails in."""
    seen = ~np.isnan(values)
    total, missing = weight.sum(), float(weight[~seen].sum() / weight.sum())
    value, mass = values[seen], weight[seen]
    units = (lambda v: v) if column is None else column.original
    if not len(value):
        return Marginal(np.asarray(units(np.zeros(2))), np.zeros(1), missing, float(units(np.zeros(1))[0]))
    low, high = float(value.min()), float(value.max())
    step = np.linspace(0.0, 1.0, min(N_BINS, max(len(np.unique(value[:ROWS_FOR_BINS])), 1)) + 1)
    edges = low * (1.0 - step) + high * step
    distinct = np.unique(value[:ROWS_FOR_BINS])
    is_discrete = len(distinct) <= min(N_BINS, len(value) / ROWS_PER_VALUE)
    if is_discrete and len(np.unique(np.searchsorted(edges[1:-1], distinct, side="right"))) < len(distinct):
        # of few values that lie unevenly each has a bin
        edges = np.concatenate([[low], 0.5 * distinct[1:] + 0.5 * distinct[:-1], [high]])
    counts = np.bincount(
        np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2), mass, len(edges) - 1
    )
    middle = np.quantile(value, [0.5], weights=mass, method="inverted_cdf")
    return Marginal(np.asarray(units(edges)), counts / total, missing, float(units(middle)[0]))
