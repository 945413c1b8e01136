"""Categories as numbers: what stands for a level is the shrunken mean of the target in it.

A network reads numbers, and a basis of functions has no room for a column per level of a category with thousands. The
mean that stands for a row's level is worked out from other rows (cross-fitting), so that no row is predicted by itself.
That makes it no column to test: what stands for row i has y_j in it, and what stands for row j has y_i. So tests ask
the levels themselves (`terms.level_scores`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.tables.folds import folds_of

# Folds of the rows, of which the others tell what stands for a row's level: means of four fifths of the rows are nearly
# those of all. A round number.
N_FOLDS = 5
# Categories of more levels than this are read as the mean of the target in each, and have no place in a linear model: a
# column per level would be more columns than tables of a few hundred rows can tell apart. A round number.
MOST_LEVELS = 64
# Inputs are scaled to an sd near 1, and at fit none lies a thousand away. From here on a row is as if it lay here: what
# a model says of it is a guess either way, and products do not overflow.
FARTHEST = 1e9


class Encoding(NamedTuple):
    """How the coded matrix of a table becomes the numbers that a model reads."""

    tables: tuple[Float[np.ndarray, " levels_and_2"] | None, ...]  # of a category: its levels, missing, unseen
    gaps: Float[np.ndarray, " p"]  # what stands for a missing number; NaN: it stays missing
    is_ordered: tuple[bool, ...]

    def __call__(self, matrix: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        x = matrix.copy()
        for i, (table, gap, ordered) in enumerate(zip(self.tables, self.gaps, self.is_ordered, strict=True)):
            column = x[:, i]
            if table is not None:
                codes = np.where(np.isnan(column), -2, column).astype(int)
                x[:, i] = table[codes]  # −2 is the place of missing, −1 of unseen
                continue
            if ordered:
                column[column < 0] = np.nan
            if not np.isnan(gap):
                column[np.isnan(column)] = gap
            np.clip(column, -FARTHEST, FARTHEST, out=column)
        return x


class Tally(NamedTuple):
    """A category by fold: the weight and the sum of the target in every level, missing last, and its squares."""

    counts: Float[np.ndarray, "folds levels_and_1"]
    sums: Float[np.ndarray, "folds levels_and_1"]
    squares: Float[np.ndarray, " folds"]


class CrossFitted(NamedTuple):
    """An encoding, and what stands for the levels in the rows it was learned from: means over the other folds."""

    encoding: Encoding
    tables: Mapping[int, Float[np.ndarray, "folds levels_and_1"]]

    def __call__(self, matrix: Float[np.ndarray, "n p"], folds: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n p"]:
        x = self.encoding(matrix)
        for i, table in self.tables.items():
            x[:, i] = table[folds, places(matrix[:, i], table.shape[1] - 1)]
        return x


def encode(
    matrix: Float[np.ndarray, "n p"],
    target: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
    is_ordered: Sequence[bool],
    *,
    most_levels: int,
    fill: bool,
    rng: np.random.Generator,
    groups: Int[np.ndarray, " n"] | None = None,
) -> tuple[Encoding, Float[np.ndarray, "n p"], list[int]]:
    """An encoding of categories of more than `most_levels`, the training rows in it, and the levels that are left.

    With `fill`, missing numbers have a place of their own, below all others.
    """
    folds = folds_of(N_FOLDS, rng, matrix, target[:, None], groups)
    tallies = {
        i: tally(matrix[:, i], target, weight, folds, levels)
        for i, levels in enumerate(n_levels)
        if levels > most_levels
    }
    lows = np.full(matrix.shape[1], np.nan)
    for i, column in enumerate(matrix.T if fill else ()):
        seen = column[~np.isnan(column)]
        lows[i] = seen.min() if len(seen) else 1.0
    fitted = cross_fit(tallies, lows, n_levels, is_ordered)
    return fitted.encoding, fitted(matrix, folds), levels_left(n_levels, most_levels)


def levels_left(n_levels: Sequence[int], most_levels: int) -> list[int]:
    """How many levels of each input are read as such."""
    return [levels if levels <= most_levels else 0 for levels in n_levels]


def tally(column, target, weight, folds, n_levels: int) -> Tally:
    """The tally of some rows; tallies of others are added to it part by part."""
    shape = N_FOLDS, n_levels + 1
    home = folds * shape[1] + places(column, n_levels)
    counts, sums = (np.bincount(home, each, shape[0] * shape[1]).reshape(shape) for each in (weight, weight * target))
    return Tally(counts, sums, np.bincount(folds, weight * target**2, N_FOLDS))


def cross_fit(
    tallies: Mapping[int, Tally],
    lows: Float[np.ndarray, " p"],
    n_levels: Sequence[int],
    is_ordered: Sequence[bool],
) -> CrossFitted:
    """The encoding from tallies of the categories, and the lowest values of numbers with gaps to be filled, or NaN."""
    tables: list[Float[np.ndarray, " levels_and_2"] | None] = [None] * len(n_levels)
    folded = {}
    for i, own in tallies.items():
        tables[i] = np.append(_shrunken_means(own.counts.sum(axis=0), own.sums.sum(axis=0), own.squares.sum()), 0.0)
        rest = [np.arange(N_FOLDS) != fold for fold in range(N_FOLDS)]
        folded[i] = np.stack(
            [_shrunken_means(own.counts[r].sum(axis=0), own.sums[r].sum(axis=0), own.squares[r].sum()) for r in rest]
        )
    gaps = np.where(np.array(n_levels) > 0, np.nan, lows - 1.0)
    return CrossFitted(Encoding(tuple(tables), gaps, tuple(bool(o) for o in is_ordered)), folded)


def places(column, n_levels: int):
    """The place of each row's level; that of missing, and of levels that no row with a target has, is the last."""
    return np.where(np.isnan(column) | (column < 0), n_levels, column).astype(int)


def _shrunken_means(count, sums, square) -> Float[np.ndarray, " places"]:
    """Means by level about the whole one, each drawn to it as its rows leave open: N(0, τ²) effects, noise σ²."""
    total = count.sum()
    if total == 0.0:
        return np.zeros(len(count))
    centre = sums.sum() / total
    sums, square = sums - centre * count, square - centre**2 * total
    means = sums / np.maximum(count, 1e-300)
    used = count > 0
    freedom = max(total - used.sum(), 1.0)
    noise = max(float(square - sums @ means) / freedom, 1e-12)
    # E Σ count·mean² = τ² Σ count + σ² (levels − 1), nearly
    between = (float(count @ means**2) - noise * (used.sum() - 1.0)) / total
    between = max(between, 1e-3 * noise)
    return sums / (count + noise / between)
