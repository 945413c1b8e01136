"""Categories as numbers: what stands for a level is the shrunken mean of the target in it.

A network reads numbers, and a basis of functions has no room for a column per level of a category with thousands. The
mean that stands for a row's level is worked out from other rows (cross-fitting), so that a category that says nothing
about the target does not seem to.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

N_FOLDS = 5


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
) -> tuple[Encoding, Float[np.ndarray, "n p"], list[int]]:
    """An encoding of categories of more than `most_levels`, the training rows in it, and the levels that are left.

    With `fill`, missing numbers have a place of their own, below all others.
    """
    tables, gaps, left = [], np.full(matrix.shape[1], np.nan), []
    folds = rng.permutation(np.arange(len(matrix)) % N_FOLDS)
    cross_fitted = {}
    for i, levels in enumerate(n_levels):
        column = matrix[:, i]
        encoded = levels > most_levels
        left.append(0 if encoded else levels)
        tables.append(None)
        if encoded:
            places = np.where(np.isnan(column), levels, column).astype(int)
            means = _shrunken_means(places, target, weight, levels + 1)
            tables[-1] = np.append(means, 0.0)
            values = np.empty(len(matrix))
            for fold in range(N_FOLDS):
                out = folds == fold
                values[out] = _shrunken_means(places[~out], target[~out], weight[~out], levels + 1)[places[out]]
            cross_fitted[i] = values
        elif fill and not levels:
            seen = column[~np.isnan(column)]
            gaps[i] = seen.min() - 1.0 if len(seen) else 0.0
    encoding = Encoding(tuple(tables), gaps, tuple(bool(o) for o in is_ordered))
    x = encoding(matrix)
    for i, values in cross_fitted.items():
        x[:, i] = values
    return encoding, x, left


def _shrunken_means(places, target, weight, n_places: int) -> Float[np.ndarray, " places"]:
    """Means by level about the whole one, each drawn to it as its rows leave open: N(0, τ²) effects, noise σ²."""
    count = np.bincount(places, weight, n_places)
    total = count.sum()
    if total == 0.0:
        return np.zeros(n_places)
    centred = target - weight @ target / total
    sums = np.bincount(places, weight * centred, n_places)
    means = sums / np.maximum(count, 1e-300)
    used = count > 0
    freedom = max(total - used.sum(), 1.0)
    noise = max(float(weight @ (centred - means[places]) ** 2) / freedom, 1e-12)
    # E Σ count·mean² = τ² Σ count + σ² (levels − 1), nearly
    between = (float(count @ means**2) - noise * (used.sum() - 1.0)) / total
    between = max(between, 1e-3 * noise)
    return sums / (count + noise / between)
