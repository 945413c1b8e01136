"""Functions of one input, and their products: the basis that a sum of terms is written in.

Every input has a system of functions with mean zero under its empirical marginal, and the constant 1: of a number those
of several families (`families`), of which a term takes one, and of a category contrasts of its levels. One more function
tells missing values from the rest, and one, of which rows say nothing, grows where no value was: beyond the range, and
between the values of a discrete number. A product of functions of the inputs of a term T has mean zero along each of
them: under the product of the marginals it lies in I_T alone.

Each function carries what its prior needs: `cost`, its degree; `offset`, the log of its prior variance beside the
others of its family.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from vertebra.terms.families import DEGREE, Family, functions_of, knots_of, mass_at, principal, scale_of
from vertebra.terms.term import Term

# The kinds of functions: 1 itself, those that the rows decide, and that of what no row has, which stays at its prior.
CONSTANT, SEEN, NEVER_SEEN = range(3)
# A number with so few distinct values, each of some rows on average, is discrete: hours of a day, and no measurement.
MOST_VALUES, ROWS_PER_VALUE = 32, 5
# Parts of a scale that rows are counted in, and the share of rows below which a level is not counted.
N_CELLS, RARE = 4, 0.02
# So many widths of the range away, the sd grows no more.
FARTHEST = 100.0
# By what a degree more lowers the prior variance of a product, where the largest are to be taken.
USUAL_DECAY = 1.5

Families = tuple[Family, ...]


class At(NamedTuple):
    """Rows among the knots of one input: the values of its functions there, worked out as they are asked for."""

    table: Float[np.ndarray, "rows k"]  # at the knots, at a missing value, at an unseen one
    slope: Float[np.ndarray, "rows k"]  # to the next knot
    left: Int[np.ndarray, " n"]
    share: Float[np.ndarray, " n"]
    beyond: Float[np.ndarray, " n"]  # of the last function, which the table does not have

    def of(self, places: Int[np.ndarray, " m"], dtype: type = np.float64) -> Float[np.ndarray, "n m"]:
        """Some of the functions."""
        table, slope = self.table[:, places].astype(dtype), self.slope[:, places].astype(dtype)
        values = table[self.left]
        if slope.any():
            values += self.share.astype(dtype)[:, None] * slope[self.left]
        if self.beyond.any():
            values[:, places == self.table.shape[1] - 1] += self.beyond.astype(dtype)[:, None]
        return values

    def rows(self, part: slice) -> "At":
        return At(self.table, self.slope, self.left[part], self.share[part], self.beyond[part])


@runtime_checkable
class Values(Protocol):
    """The functions of every input at some rows: those of input i at place i."""

    def __getitem__(self, i: int, /) -> At: ...

    def __len__(self) -> int: ...


class System(NamedTuple):
    """The functions φ_0 = 1, φ_1, … of one input, at any of its values; NaN is a missing value, −1 an unseen level."""

    n_levels: int  # 0 for a number
    is_discrete: bool  # whether a number has no values but its knots
    knots: Float[np.ndarray, " g"]  # values of a number, codes of levels
    cell: Int[np.ndarray, " g"]  # the quarter of the scale that a knot lies in; of levels that are not rare, their own
    table: Float[np.ndarray, "g k"]  # at the knots: lines between those of a number
    missing: Float[np.ndarray, " k"]  # at a missing value
    unseen: Float[np.ndarray, " k"]  # at a level never seen
    kind: Int[np.ndarray, " k"]
    family: Int[np.ndarray, " k"]
    cost: Int[np.ndarray, " k"]
    offset: Float[np.ndarray, " k"]
    gram: Float[np.ndarray, "k k"]  # E φ_k φ_l under the marginal

    def at(self, x: Float[np.ndarray, " n"]) -> At:
        """Where values lie."""
        is_missing = np.isnan(x)
        g = len(self.knots)
        table = np.concatenate([self.table, self.missing[None], self.unseen[None]])
        slope = np.zeros_like(table)
        beyond = share = np.zeros(len(x))
        if self.n_levels:
            left = np.where(is_missing, g, np.where(x < 0, g + 1, x)).astype(np.int32)
        else:
            value = np.where(is_missing, self.knots[0], x)
            place = np.interp(value, self.knots, np.arange(g))
            left = np.clip(place.astype(np.int32), 0, max(g - 2, 0))
            share = place - left
            slope[: g - 1] = np.diff(self.table, axis=0)
            beyond = np.where(is_missing, 0.0, self.beyond(value, share))
            left, share = np.where(is_missing, g, left), np.where(is_missing, 0.0, share)
        return At(table, slope, left, share, beyond)

    def beyond(self, value: Float[np.ndarray, " n"], share: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The last function of a number: as the sd of Brownian motion that is known within the range, or at values."""
        width = max(self.width, 1e-300)
        away = np.maximum(np.maximum(self.low - value, value - self.low - self.width), 0.0) / width
        square = np.minimum(away, FARTHEST)
        if self.is_discrete:
            square = square + share * (1.0 - share) / max(len(self.knots) - 1, 1)
        return np.sqrt(square)

    def __call__(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        return self.at(x).of(np.arange(len(self.kind)))

    @property
    def low(self) -> float:
        return float(self.knots[0]) if len(self.knots) and not self.n_levels else 0.0

    @property
    def width(self) -> float:
        return float(self.knots[-1] - self.knots[0]) or 1.0 if len(self.knots) and not self.n_levels else 1.0

    def recentred(self, mean: Float[np.ndarray, " k"], gram: Float[np.ndarray, "k k"]) -> "System":
        """The same functions less their means, but for the constant: mean zero under another marginal.

        `mean` is E φ under it, `gram` E φφᵀ. What was never seen stays at what all levels are drawn from.
        """
        off = np.where(self.kind == SEEN, mean, 0.0)
        return self._replace(
            table=self.table - off,
            missing=self.missing - off,
            gram=gram - np.outer(off, mean) - np.outer(mean, off) + np.outer(off, off),
        )

    def only(self, places: Int[np.ndarray, " m"]) -> "System":
        """The system with some of its functions, the constant first."""
        parts = {name: getattr(self, name)[..., places] for name in ("table", "missing", "unseen", *PER_FUNCTION)}
        return self._replace(**parts, gram=self.gram[np.ix_(places, places)])

    @property
    def is_alive(self) -> bool:
        """Whether the input varies at all."""
        return bool((self.kind == SEEN).any())

    @property
    def families(self) -> Families:
        """Of numbers: what a term can choose from."""
        return tuple(Family(f) for f in np.unique(self.family[self.family >= 0]))

    def of(self, kind: int, family: Family = Family.ANY) -> Int[np.ndarray, " m"]:
        """The places of the functions of a kind; of one family, and those of all of them."""
        theirs = (self.family == family) | (self.family == Family.ANY) | (family == Family.ANY)
        return np.flatnonzero((self.kind == kind) & theirs)


PER_FUNCTION = ("kind", "family", "cost", "offset")


def system_of(
    x: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    n_levels: int = 0,
    *,
    degree: int = DEGREE,
) -> System:
    """The system of a number, or of the levels of a category, under its weighted marginal."""
    x, weight = x[weight > 0], weight[weight > 0] / weight.sum()
    return _levels(x, weight, n_levels) if n_levels else _number(x, weight, degree)


def _number(x, weight, degree: int) -> System:
    """Functions of a number, and one that tells its missing values apart; without any value it is a constant."""
    if np.isnan(x).all():
        x, weight = np.zeros(1), np.ones(1)
    seen = ~np.isnan(x)
    has_missing = not seen.all()
    share = float(weight[seen].sum()) if has_missing else 1.0
    value, mass = x[seen], weight[seen] / weight[seen].sum()
    distinct = np.unique(value)
    is_discrete = len(distinct) <= min(MOST_VALUES, len(value) / ROWS_PER_VALUE)
    knots = knots_of(value, mass, distinct)
    groups, u = [], np.zeros(len(knots))
    if len(distinct) > 1:
        m, u = mass_at(knots, value, mass), scale_of(knots, value, mass)
        groups = functions_of(u, m, len(value), degree, is_discrete=is_discrete)
    table, cost, offset, family = (np.concatenate(part, axis=-1) for part in zip(*groups, strict=True)) if groups else (
        np.zeros((len(knots), 0)), np.zeros(0, dtype=int), np.zeros(0), np.zeros(0, dtype=int)
    )
    k, ones = 3 + table.shape[1], np.ones((len(knots), 1))
    observed = -np.sqrt((1.0 - share) / share) if has_missing else 0.0
    missing = np.zeros(k)
    missing[0] = 1.0
    missing[-2] = np.sqrt(share / (1.0 - share)) if has_missing else 1.0
    system = System(
        n_levels=0,
        is_discrete=is_discrete,
        knots=knots,
        cell=_cells(u),
        table=np.concatenate([ones, table / np.sqrt(share), observed * ones, 0.0 * ones], axis=1),
        missing=missing,
        unseen=np.append(1.0, np.zeros(k - 1)),
        kind=np.array([CONSTANT, *[SEEN] * (k - 3), SEEN if has_missing else NEVER_SEEN, NEVER_SEEN]),
        family=np.concatenate([[-1], family, [-1, -1]]).astype(int),
        cost=np.concatenate([[0], cost, [1, 1]]).astype(int),
        offset=np.concatenate([[0.0], offset, [0.0, 0.0]]),
        gram=np.zeros((k, k)),
    )
    return system._replace(gram=_gram(system, x, weight))


def _cells(u) -> Int[np.ndarray, " g"]:
    """Quarters of the scale, none of them empty: of few values there may be fewer."""
    return np.unique(np.minimum((0.5 * N_CELLS * (u + 1.0)).astype(int), N_CELLS - 1), return_inverse=True)[1]


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
        functions, variance = principal(np.eye(len(seen)), m[seen] / m[seen].sum(), len(seen) - 1)
    k = 2 + functions.shape[1]
    # a level never seen is one more draw of what all levels are drawn from
    unseen = np.concatenate([[1.0], np.zeros(k - 2), [1.0]])
    table = np.tile(unseen, (n, 1))
    table[seen, 1:] = np.append(functions, np.zeros((len(seen), 1)), axis=1)
    log_variance = np.log(variance / variance[0])[: k - 2]
    system = System(
        n_levels=n_levels,
        is_discrete=False,
        knots=np.arange(n_levels, dtype=float),
        cell=np.where(m[:n_levels] > RARE, np.arange(n_levels), -1),
        table=table[:n_levels],
        missing=table[n_levels] if has_missing else unseen,
        unseen=unseen,
        kind=np.array([CONSTANT, *[SEEN] * (k - 2), NEVER_SEEN]),
        family=np.array([-1, *[Family.LEVELS] * (k - 2), -1]),
        cost=np.minimum(np.arange(k), 1),
        offset=np.concatenate([[0.0], log_variance, [-np.log(variance[0])]]),
        gram=np.zeros((k, k)),
    )
    return system._replace(gram=_gram(system, x, weight))


def _gram(system: System, x, weight) -> Float[np.ndarray, "k k"]:
    """E φφᵀ, by sums of shares of every knot and its neighbour."""
    at, n = system.at(x), len(system.knots) + 2
    s = at.share
    own = np.bincount(at.left, weight * (1.0 - s) ** 2, n) + np.bincount(at.left + 1, weight * s**2, n + 1)[:n]
    next_to = np.bincount(at.left, weight * s * (1.0 - s), n)[: n - 1]
    gram = at.table.T @ (own[:, None] * at.table)
    cross = at.table[:-1].T @ (next_to[:, None] * at.table[1:])
    return gram + cross + cross.T


def products(
    systems: Sequence[System], term: Term, families: Families, total: int, limit: int
) -> Int[np.ndarray, "m order"]:
    """The products of a term's basis: for each the place of its function in every input's system.

    Up to a total degree of smooth functions, those of largest prior variance first; no more than `limit`. A main effect
    has the functions of what was never seen besides, whose coefficients the data leave at their prior.
    """
    places = [systems[i].of(SEEN, family) for i, family in zip(term, families, strict=True)]
    places = [own[systems[i].cost[own] <= total] for i, own in zip(term, places, strict=True)]
    index = np.stack([grid.ravel() for grid in np.meshgrid(*places, indexing="ij")], axis=1)
    cost = np.sum([systems[i].cost[index[:, axis]] for axis, i in enumerate(term)], axis=0)
    offset = np.sum([systems[i].offset[index[:, axis]] for axis, i in enumerate(term)], axis=0)
    order = np.lexsort((np.arange(len(index)), -np.round(offset - USUAL_DECAY * cost, 9)))
    index = index[order[cost[order] <= total][:limit]]
    return np.concatenate([index, systems[term[0]].of(NEVER_SEEN)[:, None]]) if len(term) == 1 else index


def usual_families(systems: Sequence[System], term: Term, chosen: Mapping[Term, Families]) -> Families:
    """What was chosen for a term; else for its main effects; else the smoothest."""
    if term in chosen:
        return chosen[term]
    return tuple(
        chosen[(i,)][0] if (i,) in chosen else (systems[i].families or (Family.ANY,))[0] for i in term
    )


def columns(
    values: Mapping[int, At] | Values, term: Term, index: Int[np.ndarray, "m order"], dtype: type = np.float64
) -> Float[np.ndarray, "n m"]:
    """Π_{i∈T} φ_{k_i}(x_i), one column per row of `index`."""
    product = values[term[0]].of(index[:, 0], dtype)
    for axis, i in enumerate(term[1:], start=1):
        product *= values[i].of(index[:, axis], dtype)
    return product


def rank_curve(q): raise NotImplementedError
