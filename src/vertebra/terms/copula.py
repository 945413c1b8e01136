"""A simple picture of how some inputs go together: a Gaussian copula with the rows' own marginals.

It has one number for each pair of inputs, which few rows suffice for, and is what the joint distribution of the rows is
shrunk to where they cannot say more (`joint`). Inputs whose dependence is not significant are independent in it, and so
are levels, which have no order, and gaps.
"""

import copy
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri

from vertebra.machine.later import later
from vertebra.terms.term import Term

linalg, qmc = later("scipy.linalg"), later("scipy.stats.qmc")

# Points of a picture, a power of two as Sobol's sequence wants them: means of smooth functions are off by some 1e-3.
N_POINTS = 4096
# Correlations of so many standard errors are significant: at 2, one in twenty of nothing.
SIGNIFICANT = 2.0
# Correlations are of so many rows at most: their error of 0.3 % is far below what it is used for.
MOST_ROWS = 100_000
# Of inputs that are all but equal: their picture is to have as many directions as inputs.
MOST_CORRELATED = 0.9999


class Ranked(NamedTuple):
    """The values of an input in order, gaps left out, and which rows they are of."""

    rows: Int[np.ndarray, " m"]
    values: Float[np.ndarray, " m"]
    place: Int[np.ndarray, " m"]  # among the distinct values


class Copula:
    """The marginals of some rows, and the correlations of their normal scores, worked out as they are asked for."""

    def __init__(
        self, x: Float[np.ndarray, "n p"], weight: Float[np.ndarray, " n"], n_levels: Sequence[int], n_rows: float
    ):
        step = -(-len(x) // MOST_ROWS)
        self.x, self.weight, self.n_levels, self.n_rows = x[::step], weight[::step], n_levels, n_rows
        self._ranked: dict[int, Ranked] = {}
        self._scores: dict[int, Float[np.ndarray, " n"]] = {}
        self._found: dict[Term, float] = {}

    def resampled(self, rng: np.random.Generator) -> "Copula":
        """That of other rows from where these came: the Bayesian bootstrap, for as many rows as these count for."""
        # Gamma weights of mean 1 whose variance is that of so many rows, not of those that are kept of them
        shape = max(self.n_rows, 1.0) / len(self.x)
        other = copy.copy(self)
        other.weight, other._scores, other._found = self.weight * rng.gamma(shape, 1.0 / shape, len(self.x)), {}, {}
        return other

    def ranked(self, i: int) -> Ranked:
        if i not in self._ranked:
            values = self.x[:, i]
            rows = np.flatnonzero(~np.isnan(values))
            rows = rows[np.argsort(values[rows], kind="stable")]
            place = np.cumsum(np.append(0, np.diff(values[rows]) > 0.0)) if len(rows) else rows
            self._ranked[i] = Ranked(rows, values[rows], place)
        return self._ranked[i]

    def correlation(self, i: int, j: int) -> float:
        """The correlation of the normal scores of two numbers where both are there; 0 where it is not significant."""
        if self.n_levels[i] or self.n_levels[j]:
            return 0.0
        pair = (min(i, j), max(i, j))
        if pair not in self._found:
            self._found[pair] = self._correlation(self.scores(i), self.scores(j))
        return self._found[pair]

    def is_dependent(self, term: Term) -> bool:
        """Whether some of the inputs go together."""
        return any(self.correlation(i, j) != 0.0 for i, j in itertools.combinations(term, 2))

    def scores(self, i: int) -> Float[np.ndarray, " n"]:
        """Φ⁻¹ of the middle of each value's ranks, equal values alike; gaps stay gaps."""
        if i not in self._scores:
            rows, _, place = self.ranked(i)
            self._scores[i] = np.full(len(self.x), np.nan)
            if len(rows):
                mass = np.bincount(place, self.weight[rows])
                self._scores[i][rows] = ndtri((np.cumsum(mass) - 0.5 * mass) / mass.sum())[place]
        return self._scores[i]

    def _correlation(self, one: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"]) -> float:
        both = ~np.isnan(one) & ~np.isnan(other)
        weight, total = self.weight[both], self.weight[both].sum()
        if not total:
            return 0.0
        one, other = (each[both] - weight @ each[both] / total for each in (one, other))
        square = (weight @ one**2) * (weight @ other**2)
        if not square > 0.0:
            return 0.0
        found = float(np.clip(weight @ (one * other) / np.sqrt(square), -MOST_CORRELATED, MOST_CORRELATED))
        n = self.n_rows * total / self.weight.sum()
        is_significant = n > 3.0 and abs(np.arctanh(found)) * np.sqrt(n - 3.0) > SIGNIFICANT
        return found if is_significant else 0.0

    def points(self, term: Term, together: "Copula | None" = None) -> Float[np.ndarray, "points order"]:
        """Equally likely points of the inputs of a term, which go together as here or as in another picture."""
        k = len(term)
        uniform = _uniform(2 * k)
        r = np.eye(k)
        for a, b in itertools.combinations(range(k), 2):
            r[a, b] = r[b, a] = (together or self).correlation(term[a], term[b])
        rank = ndtr(ndtri(uniform[:, :k]) @ _root(r))
        return np.stack([self._quantiles(i, rank[:, a], uniform[:, k + a]) for a, i in enumerate(term)], axis=1)

    def _quantiles(self, i: int, rank: Float[np.ndarray, " points"], other: Float[np.ndarray, " points"]):
        """Values of an input at ranks; gaps where `other`, which is uniform, falls into their share."""
        rows, values, _ = self.ranked(i)
        if not len(rows):
            return np.full(len(rank), np.nan)
        upto, total = np.cumsum(self.weight[rows]), self.weight.sum()
        found = values[np.minimum(np.searchsorted(upto, rank * upto[-1]), len(rows) - 1)]
        return found if len(rows) == len(self.x) else np.where(other * total < total - upto[-1], np.nan, found)


@functools.cache
def _uniform(n_axes: int) -> Float[np.ndarray, "points axes"]:
    """Points that fill a cube evenly, the same each time."""
    points = qmc.Sobol(n_axes, scramble=True, rng=np.random.default_rng(0)).random(N_POINTS)
    return np.clip(points, 1e-9, 1.0 - 1e-9)


def _root(r: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """The symmetric root of the correlation matrix nearest to one that pairs of inputs were put together to."""
    values, vectors = np.linalg.eigh(r)
    near = (vectors * np.maximum(values, 1.0 - MOST_CORRELATED)) @ vectors.T
    sd = np.sqrt(np.diag(near))
    return np.real(linalg.sqrtm(near / np.outer(sd, sd)))
