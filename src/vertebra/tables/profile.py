"""What the rows of a fit looked like: how the values of every input and of the target were spread."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from vertebra.tables.column import Column

# Bins of a number's values: as many as a small chart can show. A round number.
N_BINS = 30
# Cells of a number where rows are counted for two inputs: as many as a map shows. A round number.
N_CELLS = 20
# Values that tell how many distinct ones there are, and so whether fewer bins will do.
ROWS_FOR_BINS = 10_000
# Two numbers are on a line if none is further from it than this share of its range: rounding makes 1e-16 to 1e-13.
SAME_LINE = 1e-9
# So many rows to a value, on average, and the values are few.
ROWS_PER_VALUE = 5
# Two numbers of fewer distinct values may rise together by chance: of so many they do in one of two million tables.
FEWEST_TO_RISE = 10
# A number of so many values or fewer has a function of any shape, as levels have (terms/functions).
FREE_VALUES = 32


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
    pairs: Mapping[tuple[int, int], "Plane"] = MappingProxyType({})  # of inputs that act together


class Plane(NamedTuple):
    """Rows by the cells of two inputs: numbers in bins of equal width on the model's scale, levels by their codes."""

    ranges: Float[np.ndarray, "2 2"]  # of the coded values
    has_levels: tuple[bool, bool]
    counts: Float[np.ndarray, "a b"]

    def near(self, one: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """How many rows there are near some coded values: in their cell, or of numbers in those beside it."""
        counts = np.pad(self.counts, 1)
        for axis, is_level in enumerate(self.has_levels):
            if not is_level:
                counts = counts + np.roll(counts, 1, axis) + np.roll(counts, -1, axis)
        cells = [
            _cells(values, self.ranges[axis], self.counts.shape[axis], is_level=self.has_levels[axis])
            for axis, values in enumerate((one, other))
        ]
        known = (cells[0] >= 0) & (cells[1] >= 0)
        return np.where(known, counts[cells[0] + 1, cells[1] + 1], 0.0)


def plane(
    one: Float[np.ndarray, " n"],
    other: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    n_levels: tuple[int, int],
    ranges: Float[np.ndarray, "2 2"],
) -> Plane:
    """Where the rows of two coded inputs lie; gaps have no cell."""
    shape = tuple(n or N_CELLS for n in n_levels)
    has_levels = (bool(n_levels[0]), bool(n_levels[1]))
    cells = [_cells(v, ranges[k], shape[k], is_level=has_levels[k]) for k, v in enumerate((one, other))]
    known = (cells[0] >= 0) & (cells[1] >= 0)
    counts = np.bincount(cells[0][known] * shape[1] + cells[1][known], weight[known], shape[0] * shape[1])
    return Plane(np.array(ranges), has_levels, counts.reshape(shape))


def _cells(values, ends: Float[np.ndarray, " 2"], n: int, *, is_level: bool) -> Int[np.ndarray, " n"]:
    """The cell of each value, −1 of a gap, of a level never seen and of what lies outside."""
    low, high = ends
    unit = values if is_level else (values - low) / max(high - low, 1e-300) * n
    # the end of the range belongs to the last cell; values come through units and back, to rounding
    unit = np.where(np.isclose(unit, n) & ~np.isnan(unit) & (not is_level), n - 0.5, unit)
    unit = np.where(np.isclose(unit, 0.0), 0.0, unit)
    return np.where(np.isnan(unit) | (unit < 0) | (unit >= n), -1, np.nan_to_num(unit, nan=-1.0)).astype(int)


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


def copies_of(
    matrix: Float[np.ndarray, "n p"], n_levels: Sequence[int] | None = None, *, on_lines: bool = False
) -> dict[int, int]:
    """The columns that say the same as one before them, gap for gap, and which that is.

    Numbers do if one is a line of the other, as degrees Celsius and Fahrenheit, or, unless they are to be `on_lines`,
    rises or falls with it throughout, as an income and its logarithm: a curve of one is a curve of the other. Levels
    do if they are one-to-one, whatever they are called; and levels and a number of few values, if these are one-to-one.
    Of more values a number has a curve, and levels any function: the numbers of patients are no copy of their ages.
    """

    def is_same(i: int, j: int) -> bool:
        return _are_on_a_line(matrix, i, j) or (not on_lines and _rise_together(matrix, i, j))

    has_levels = [bool(n_levels is not None and n_levels[i]) for i in range(matrix.shape[1])]
    by_ends: dict[tuple[int, int, int], list[int]] = {}
    by_codes: dict[bytes, int] = {}
    result: dict[int, int] = {}
    for i, column in enumerate(matrix.T):
        same = None
        if not has_levels[i]:
            alike = by_ends.setdefault(_ends(column), [])
            same = next((j for j in alike if is_same(i, j)), None)
            if same is None:
                alike.append(i)
        if same is None and any(has_levels):
            codes = _in_order_of_rows(column)
            if has_levels[i] or codes.max(initial=0.0) + 1.0 <= min(FREE_VALUES, len(codes) / ROWS_PER_VALUE):
                same = by_codes.setdefault(codes.tobytes(), i)
                # numbers that are one-to-one and do not rise together have curves of their own
                same = same if has_levels[i] or has_levels[same] else None
        if same is not None and same != i:
            result[i] = same
    return result


def copies_among(
    seen: Mapping[int, int], matrix: Float[np.ndarray, "n p"], n_levels: Sequence[int], *, on_lines: bool = False
) -> dict[int, int]:
    """Which of the copies that were seen in some of the rows are copies in all of them."""
    if not seen:
        return {}
    inputs = sorted({*seen, *seen.values()})
    found = copies_of(matrix[:, inputs], [n_levels[i] for i in inputs], on_lines=on_lines)
    return {inputs[i]: inputs[first] for i, first in found.items()}


def _ends(column: Float[np.ndarray, " n"]) -> tuple[int, int, int]:
    """Where a number's least and largest values are, the place in the table that comes first, and how many gaps."""
    gaps = np.isnan(column)
    if gaps.all():
        return 0, 0, len(column)
    ends = int(np.nanargmin(column)), int(np.nanargmax(column))
    return min(ends), max(ends), int(gaps.sum())


def _are_on_a_line(matrix: Float[np.ndarray, "n p"], i: int, j: int) -> bool:
    """Whether one number is a + b times the other, but for rounding."""
    gap = np.isnan(matrix[:, i])
    if not np.array_equal(gap, np.isnan(matrix[:, j])):
        return False
    one, other = matrix[~gap, i], matrix[~gap, j]
    if len(one) < 2 or one.min() == one.max():
        return np.array_equal(one, other)
    low, high = np.argmin(one), np.argmax(one)
    # halves, so that a range of the largest numbers there are is finite
    share = (0.5 * one - 0.5 * one[low]) / (0.5 * one[high] - 0.5 * one[low])
    away = np.abs(other[low] * (1.0 - share) + other[high] * share - other)
    return bool(away.max() <= SAME_LINE * np.abs(0.5 * other[high] - 0.5 * other[low]))


def _rise_together(matrix: Float[np.ndarray, "n p"], i: int, j: int) -> bool:
    """Whether one number rises with the other wherever that does and nowhere else; or falls."""
    gap = np.isnan(matrix[:, i])
    if not np.array_equal(gap, np.isnan(matrix[:, j])):
        return False
    one, other = matrix[~gap, i], matrix[~gap, j]
    order = np.argsort(one, kind="stable")
    rises, signs = np.diff(one[order]) > 0.0, np.sign(np.diff(other[order]))
    if np.count_nonzero(rises) + 1 < FEWEST_TO_RISE:
        return False
    return np.array_equal(signs, rises.astype(float)) or np.array_equal(-signs, rises.astype(float))


def _in_order_of_rows(codes: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Levels numbered as they first come; gaps are one more."""
    _, first, place = np.unique(codes, return_index=True, return_inverse=True, equal_nan=True)
    return np.argsort(np.argsort(first)).astype(float)[place.ravel()]


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
