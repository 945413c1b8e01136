"""Functions of one input, and their products: the basis that a sum of terms is written in.

Every input has a system of functions with mean zero under its empirical marginal, and the constant 1. Of a number these
are orthonormal polynomials, where what is to be found is smooth, or the eigenfunctions of Brownian motion along its
ranks, where it is rough; and one function that tells missing values from the rest. Of a category: contrasts of its
levels. A product of functions of the inputs of a term T has mean zero along each of them: under the product of the
marginals it lies in I_T alone.

Each function carries what its prior needs: `cost`, its degree; `offset`, the log of its prior variance beside the
others of its kind (exchangeable levels, Brownian motion).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import PchipInterpolator

from vertebra.tables.profile import at_equal_ranks
from vertebra.terms.polynomials import orthonormal
from vertebra.terms.term import Term

# The kinds of functions: 1 itself, those that the rows decide, and that of what no row has, which stays at its prior.
CONSTANT, SEEN, NEVER_SEEN = range(3)
# The highest degree of an input's polynomials, unless very many rows ask for more (`additive`); a round number.
DEGREE = 12
# Polynomials are in the value itself where none lies further from the mean than so many sds, as for a uniform input
# (1.7) and not for a Gaussian one; else the coordinate bends at so many quantiles, every sixteenth.
SHORT_TAILS, N_QUANTILES = 2.2, 17
# Rough functions of an input, the knots they are tabulated at, and the rows there must be for each. Round numbers.
N_ROUGH, N_KNOTS, ROWS_PER_ROUGH = 40, 128, 8
# Rows whose products are added at once: their functions, some 40 numbers each, take 20 MB.
ROWS_AT_ONCE = 65_536


@runtime_checkable
class Values(Protocol):
    """The functions of every input at some rows: those of input i at place i."""

    def __getitem__(self, i: int, /) -> Float[np.ndarray, "n _"]: ...

    def __len__(self) -> int: ...


class System(NamedTuple):
    """The functions φ_0 = 1, φ_1, … of one input, at any of its values; NaN is a missing value, −1 an unseen level."""

    n_levels: int  # 0 for a number
    low: float
    width: float
    quantiles: Float[np.ndarray, " q"]  # of a number with tails: values at equal steps of rank, for its coordinate
    transform: Float[np.ndarray, "d d"]  # Legendre values of the coordinate times this are P_0, …, P_{d−1}
    knots: Float[np.ndarray, " g"]  # where the other functions are tabulated: values of a number, codes of levels
    table: Float[np.ndarray, "g r"]
    observed: float  # of a number: the last function, which tells missing values apart, at any other
    missing: Float[np.ndarray, " k"]  # all functions at a missing value
    unseen: Float[np.ndarray, " k"]
    kind: Int[np.ndarray, " k"]
    cost: Int[np.ndarray, " k"]
    offset: Float[np.ndarray, " k"]
    gram: Float[np.ndarray, "k k"]  # E φ_k φ_l under the marginal

    def __call__(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        is_missing = np.isnan(x)
        is_unseen = (x < 0) & (self.n_levels > 0)
        values = np.zeros((len(x), len(self.kind)))
        values[:, 0] = 1.0
        if self.n_levels:
            codes = np.where(is_missing | is_unseen, 0.0, x).astype(int)
            values[:, 1:] = self.table[codes]
        else:
            at = np.where(is_missing, self.low, x)
            d, r = len(self.transform), self.table.shape[1]
            unit = _coordinate(at, self.low, self.width, self.quantiles)
            values[:, :d] = np.polynomial.legendre.legvander(unit, d - 1) @ self.transform
            if r:
                place = np.interp(at, self.knots, np.arange(len(self.knots)))
                left = np.minimum(place.astype(int), len(self.knots) - 2)
                share = (place - left)[:, None]
                values[:, d : d + r] = (1.0 - share) * self.table[left] + share * self.table[left + 1]
            values[:, -1] = self.observed
        values[is_missing] = self.missing
        values[is_unseen] = self.unseen
        return values

    def recentred(self, mean: Float[np.ndarray, " k"], gram: Float[np.ndarray, "k k"]) -> "System":
        """The same functions less their means, but for the constant: mean zero under another marginal.

        `mean` is E φ under it, `gram` E φφᵀ. What was never seen stays at what all levels are drawn from.
        """
        off = np.append(0.0, mean[1:])
        transform, d = self.transform.copy(), len(self.transform)
        transform[0] -= off[:d] if not self.n_levels else 0.0
        first = 1 if self.n_levels else d
        return self._replace(
            transform=transform,
            table=self.table - off[first : first + self.table.shape[1]],
            observed=self.observed - off[-1],
            missing=self.missing - off,
            gram=gram - np.outer(off, mean) - np.outer(mean, off) + np.outer(off, off),
        )

    @property
    def is_alive(self) -> bool:
        """Whether the input varies at all."""
        return bool((self.kind == SEEN).any())

    @property
    def is_rough(self) -> bool:
        """Whether its functions are those of Brownian motion."""
        return not self.n_levels and self.table.shape[1] > 0

    def of(self, kind: int) -> Int[np.ndarray, " m"]:
        """The places of the functions of a kind."""
        return np.flatnonzero(self.kind == kind)


def system_of(
    x: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    n_levels: int = 0,
    *,
    rough: bool = False,
    degree: int = DEGREE,
) -> System:
    """The system of a number, smooth or rough, or of the levels of a category, under its weighted marginal."""
    x, weight = x[weight > 0], weight[weight > 0] / weight.sum()
    return _levels(x, weight, n_levels) if n_levels else _number(x, weight, rough, degree)


def _number(x, weight, rough: bool, degree: int) -> System:
    """Functions of a number, and one that tells its missing values apart; without any value it is a constant."""
    if np.isnan(x).all():
        x, weight = np.zeros(1), np.ones(1)
    seen = ~np.isnan(x)
    has_missing = not seen.all()
    share = float(weight[seen].sum()) if has_missing else 1.0
    value, mass = x[seen], weight[seen] / weight[seen].sum()
    low, width = float(value.min()), float(np.ptp(value)) or 1.0
    quantiles, transform = np.zeros(0), np.ones((1, 1))
    knots, table, log_share = _brownian(value, mass, len(value)) if rough else _NO_FUNCTIONS
    if not table.shape[1]:
        quantiles = _quantiles(value, mass)
        unit = _coordinate(value, low, width, quantiles)
        smooth = orthonormal(unit[:, None], mass, degree, low=-1.0, width=2.0)
        degree = int(smooth.degree[0])
        transform = smooth.transform[0, : degree + 1, : degree + 1].copy()
        transform[:, 1:] /= np.sqrt(share)
    degree = len(transform) - 1
    table = table / np.sqrt(share)
    kinds = [CONSTANT] + [SEEN] * (degree + table.shape[1]) + [SEEN if has_missing else NEVER_SEEN]
    k = len(kinds)
    missing = np.zeros(k)
    missing[0] = 1.0
    missing[-1] = np.sqrt(share / (1.0 - share)) if has_missing else 1.0
    cost = np.array([0, *range(1, degree + 1), *[1] * table.shape[1], 1])
    offset = np.concatenate([np.zeros(degree + 1), log_share, [0.0]])
    system = System(
        n_levels=0,
        low=low,
        width=width,
        quantiles=quantiles,
        transform=transform,
        knots=knots,
        table=table,
        observed=-np.sqrt((1.0 - share) / share) if has_missing else 0.0,
        missing=missing,
        unseen=np.append(1.0, np.zeros(k - 1)),
        kind=np.array(kinds),
        cost=cost,
        offset=offset,
        gram=np.zeros((k, k)),
    )
    return _with_gram(system, x, weight)


def _quantiles(value, mass):
    """Values at equal steps of rank where there are tails that polynomials in the value would swing in, else none."""
    mean = mass @ value
    sd = np.sqrt(mass @ (value - mean) ** 2)
    distinct = np.unique(value)
    if len(distinct) < 2 * N_QUANTILES or np.abs(value - mean).max() <= SHORT_TAILS * sd:
        return np.zeros(0)
    return at_equal_ranks(value, mass, N_QUANTILES)


def rank_curve(quantiles: Float[np.ndarray, " q"]) -> PchipInterpolator:
    """The rank of a value, a smooth curve through the quantiles; of values that stand there twice, the middle one."""
    knots, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
    return PchipInterpolator(knots, (first + 0.5 * (counts - 1.0)) / (len(quantiles) - 1.0))


def _coordinate(value, low, width, quantiles):
    """Where a number lies in [−1, 1]: by its value, or half by value and half by rank where it has tails."""
    unit = np.clip(2.0 * (value - low) / width - 1.0, -1.0, 1.0)
    if not len(quantiles):
        return unit
    rank = rank_curve(quantiles)(np.clip(value, quantiles[0], quantiles[-1]))
    return np.clip(0.5 * unit + 0.5 * (2.0 * rank - 1.0), -1.0, 1.0)


_NO_FUNCTIONS = np.zeros(0), np.zeros((0, 0)), np.zeros(0)


def _brownian(value, mass, n_rows):
    """Eigenfunctions of Brownian motion along the knots, centred, under the marginal: (knots, table, log variances)."""
    distinct = np.unique(value)
    n_rough = min(N_ROUGH, len(distinct) - 1, n_rows // ROWS_PER_ROUGH)
    if n_rough < 2 or len(distinct) < 3:
        return _NO_FUNCTIONS
    knots = distinct
    if len(distinct) > 2 * N_KNOTS:
        by_rows = np.unique(at_equal_ranks(value, mass, N_KNOTS))
        # a heap of equal values must not hide the others: its share of the knots goes to distinct values
        spare = max(N_KNOTS - len(by_rows), 2)
        others = np.quantile(distinct, np.linspace(0.0, 1.0, spare), method="nearest")
        knots = np.unique(np.concatenate([by_rows, others]))
    place = np.interp(value, knots, np.arange(len(knots)))
    left = np.minimum(place.astype(int), len(knots) - 2)
    share = place - left
    m = np.bincount(left, mass * (1.0 - share), len(knots)) + np.bincount(left + 1, mass * share, len(knots))
    u = np.arange(len(knots)) / (len(knots) - 1)
    table, variance = _eigenfunctions(np.minimum.outer(u, u), m, n_rough)
    # between knots the functions are lines, so that they are a little off mean zero: made exact
    at = table[left] * (1.0 - share)[:, None] + table[left + 1] * share[:, None]
    return knots, table - mass @ at, np.log(variance / variance[0])


def _eigenfunctions(covariance, m, n_most):
    """Functions f_k = Σ_g … of largest variance λ_k of a centred process with this covariance, orthonormal under m."""
    centre = np.eye(len(m)) - m[None, :]
    root = np.sqrt(np.maximum(m, 1e-12))
    values, vectors = np.linalg.eigh(root[:, None] * (centre @ covariance @ centre.T) * root[None, :])
    kept = np.argsort(-values)[:n_most]
    kept = kept[values[kept] > 1e-10 * values[kept[0]]]
    vectors = vectors[:, kept] * np.where(vectors[-1, kept] < 0, -1.0, 1.0)
    return vectors / root[:, None], values[kept]


def _levels(x, weight, n_levels: int) -> System:
    """Contrasts of exchangeable levels; missing values are one more level where there are any."""
    gap = np.isnan(x)
    has_missing = bool(gap.any())
    codes = np.where(gap, n_levels, np.where(gap, 0, x)).astype(int)
    n = n_levels + has_missing
    m = np.bincount(codes, weight, n)
    seen = np.flatnonzero(m > 0)
    functions, variance = np.zeros((len(seen), 0)), np.ones(1)
    if len(seen) > 1:
        functions, variance = _eigenfunctions(np.eye(len(seen)), m[seen] / m[seen].sum(), len(seen) - 1)
    k = 2 + functions.shape[1]
    # a level never seen is one more draw of what all levels are drawn from
    unseen = np.concatenate([[1.0], np.zeros(k - 2), [1.0]])
    table = np.tile(unseen[1:], (n, 1))
    table[seen] = np.append(functions, np.zeros((len(seen), 1)), axis=1)
    log_variance = np.log(variance / variance[0])[: k - 2]
    system = System(
        n_levels=n_levels,
        low=0.0,
        width=1.0,
        quantiles=np.zeros(0),
        transform=np.ones((1, 1)),
        knots=np.arange(n_levels, dtype=float),
        table=table[:n_levels],
        observed=0.0,
        missing=np.append(1.0, table[n_levels]) if has_missing else unseen,
        unseen=unseen,
        kind=np.array([CONSTANT, *[SEEN] * (k - 2), NEVER_SEEN]),
        cost=np.minimum(np.arange(k), 1),
        offset=np.concatenate([[0.0], log_variance, [-np.log(variance[0])]]),
        gram=np.zeros((k, k)),
    )
    return _with_gram(system, x, weight)


def _with_gram(system: System, x, weight) -> System:
    values = system(x)
    gram = np.zeros((values.shape[1], values.shape[1]))
    for start in range(0, len(values), ROWS_AT_ONCE):
        part = values[start : start + ROWS_AT_ONCE]
        gram += part.T @ (weight[start : start + ROWS_AT_ONCE, None] * part)
    return system._replace(gram=gram)


def products(systems: Sequence[System], term: Term, total: int, limit: int) -> Int[np.ndarray, "m order"]:
    """The products of a term's basis: for each the place of its function in every input's system.

    Up to a total degree, lowest first and of one degree those of largest prior variance; no more than `limit`. A main
    effect has the function of what was never seen besides, whose coefficient the data leave at its prior.
    """
    places = [systems[i].of(SEEN) for i in term]
    places = [own[systems[i].cost[own] <= total] for i, own in zip(term, places, strict=True)]
    index = np.stack([grid.ravel() for grid in np.meshgrid(*places, indexing="ij")], axis=1)
    cost = np.sum([systems[i].cost[index[:, axis]] for axis, i in enumerate(term)], axis=0)
    offset = np.sum([systems[i].offset[index[:, axis]] for axis, i in enumerate(term)], axis=0)
    order = np.lexsort((np.arange(len(index)), -np.round(offset, 9), cost))
    index = index[order[cost[order] <= total][:limit]]
    return np.concatenate([index, systems[term[0]].of(NEVER_SEEN)[:, None]]) if len(term) == 1 else index


def columns(values: Values, term: Term, index: Int[np.ndarray, "m order"]) -> Float[np.ndarray, "n m"]:
    """Π_{i∈T} φ_{k_i}(x_i), one column per row of `index`."""
    product = values[term[0]][:, index[:, 0]]
    for axis, i in enumerate(term[1:], start=1):
        product = product * values[i][:, index[:, axis]]
    return product
