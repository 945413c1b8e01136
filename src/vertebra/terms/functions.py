"""Functions of one input, and their products: the basis that a sum of terms is written in.

Every input has a system of functions with mean zero under its empirical marginal, and the constant 1: of a number those
of several families (`families`), of which a term takes one, and of a category contrasts of its levels. One more tells
missing values from the rest; and one, of which rows say nothing, grows where no value was: beyond the range, between
the values of a discrete number. A product of functions of the inputs of a term T has mean zero along each of them:
under the product of the marginals it lies in I_T alone.

Each function has what its prior needs: `cost`, its degree; `offset`, the log of its prior variance in its family.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.terms.curve import Curve, monotone_curve
from vertebra.terms.families import (
    DEGREE,
    FEW_BY_RANK,
    FEW_BY_VALUE,
    Family,
    Functions,
    comes_round,
    functions_of,
    knots_of,
    mass_at,
    polynomials_at,
    principal,
    scale_of,
)
from vertebra.terms.polynomials import orthonormal
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
# Rows whose products are added at once: their functions, some 130 numbers each, take 20 MB.
ROWS_AT_ONCE = 16_384

Families = tuple[Family, ...]


class At(NamedTuple):
    """One input at some rows: the values of its functions there, those in tables worked out as they are asked for."""

    system: "System"
    smooth: Float[np.ndarray, "n d"]  # polynomials, the constant first
    left: Int[np.ndarray, " n"]  # the knot, or the level
    share: Float[np.ndarray, " n"]  # of the way to the next
    beyond: Float[np.ndarray, " n"]  # what no row has
    special: Int[np.ndarray, " n"]  # 0; at a missing value 1, at a level never seen 2
    held: Float[np.ndarray, "k rows"] | None = None  # all functions, where they are kept
    kept_at: Int[np.ndarray, " n"] | None = None  # which of the rows kept these are, unless they are all
    level: Int[np.ndarray, " n"] | None = None  # of a category that is read as a number: its codes, for its test

    def of(self, places: Int[np.ndarray, " m"], dtype: type = np.float64) -> Float[np.ndarray, "n m"]:
        """Some of the functions."""
        if self.held is not None:
            here = places if self.kept_at is None else (places[:, None], self.kept_at)
            return self.held[here].astype(dtype, copy=False).T
        system, d = self.system, self.smooth.shape[1]
        table = system.whole_table[:, places].astype(dtype)
        values = table[self.left]
        if not system.n_levels and len(table) > 1:
            slope = np.append(np.diff(table, axis=0), np.zeros((1, len(places)), dtype=dtype), axis=0)
            values += self.share.astype(dtype)[:, None] * slope[self.left]
        is_smooth = places < d
        values[:, is_smooth] = self.smooth[:, places[is_smooth]]
        if system.grows:
            values[:, places == len(system.kind) - 1] = self.beyond[:, None]
        if self.special.any():
            values[self.special == 1] = system.missing[places]
            values[self.special == 2] = system.unseen[places]
        return values

    def rows(self, part: slice | Int[np.ndarray, " m"]) -> "At":
        numbers = self.smooth[part], self.left[part], self.share[part], self.beyond[part], self.special[part]
        held, kept_at = self.held, None if self.kept_at is None else self.kept_at[part]
        if held is not None and self.kept_at is None:  # no copy of all functions, as few of them will be asked for
            held, kept_at = (held[:, part], None) if isinstance(part, slice) else (held, part)
        return At(self.system, *numbers, held, kept_at, None if self.level is None else self.level[part])

    def kept(self) -> "At":
        """The same, with the values of all functions kept: for rows that are asked for many times."""
        return self._replace(held=np.ascontiguousarray(self.of(np.arange(len(self.system.kind))).T), kept_at=None)


@runtime_checkable
class Values(Protocol):
    """The functions of every input at some rows: those of input i at place i."""

    def __getitem__(self, i: int, /) -> At: ...

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
    observed: float  # of a number: the function which tells missing values apart, at any other
    missing: Float[np.ndarray, " k"]  # all functions at a missing value
    unseen: Float[np.ndarray, " k"]
    kind: Int[np.ndarray, " k"]
    cost: Int[np.ndarray, " k"]
    offset: Float[np.ndarray, " k"]
    gram: Float[np.ndarray, "k k"]  # E φ_k φ_l under the marginal
    family: Int[np.ndarray, " k"]
    cell: Int[np.ndarray, " g"]  # the quarter of the scale that a knot lies in; of levels that are not rare, their own
    is_discrete: bool = False  # whether a number has no values but its knots

    def at(self, x: Float[np.ndarray, " n"], *, grows: bool = True) -> At:
        """Rows with these values; in a fit the function of what no row has is not to grow."""
        is_missing = np.isnan(x)
        special = is_missing.astype(np.int8)
        g, zero = len(self.knots), np.zeros(len(x))
        if self.n_levels:
            special[x < 0] = 2
            left = np.where(special > 0, 0, x).astype(np.int32)
            return At(self, np.ones((len(x), 1)), left, zero, zero, special)
        value = np.where(is_missing, self.low, x)
        unit = _coordinate(value, self.low, self.width, self.quantiles)
        smooth = np.polynomial.legendre.legvander(unit, len(self.transform) - 1) @ self.transform
        left, share = np.zeros(len(x), dtype=np.int32), zero
        if g:
            place = np.interp(value, self.knots, np.arange(g))
            left = np.clip(place.astype(np.int32), 0, max(g - 2, 0))
            share = place - left
        return At(self, smooth, left, share, self._beyond(value, share) if grows else zero, special)

    def _beyond(self, value, share) -> Float[np.ndarray, " n"]:
        """The last function of a number: as the sd of Brownian motion that is known within the range, or at values."""
        low, high = self.range
        away = np.maximum(np.maximum(low - value, value - high), 0.0) / max(high - low, 1e-300)
        square = np.minimum(away, FARTHEST)
        if self.is_discrete:
            square = square + share * (1.0 - share) / max(len(self.knots) - 1, 1)
        return np.sqrt(square)

    def __call__(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        return self.at(x).of(np.arange(len(self.kind)))

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value of a number."""
        ends = self.quantiles if len(self.quantiles) else self.knots if len(self.knots) else None
        return (self.low, self.low + self.width) if ends is None else (float(ends[0]), float(ends[-1]))

    @property
    def places(self) -> Float[np.ndarray, " g"]:
        """Where the knots of a number lie on its scale, from −1 to 1."""
        return _coordinate(self.knots, self.low, self.width, self.quantiles)

    @property
    def grows(self) -> bool:
        """Whether the last function grows beyond the range: all numbers but those of files of 0.1."""
        return not self.n_levels and len(self.kind) == len(self.transform) + self.table.shape[1] + 2

    @property
    def whole_table(self) -> Float[np.ndarray, "g k"]:
        """Tabulated functions among the others, which have zeros, and 1 and what tells missing values apart."""
        g, d, r = len(self.knots), len(self.transform), self.table.shape[1]
        table = np.zeros((max(g, 1), len(self.kind)))
        table[:, 0] = 1.0
        if self.n_levels:
            table[:, 1:] = self.table
        else:
            table[:g, d : d + r] = self.table
            table[:, d + r] = self.observed
        return table

    def recentred(self, mean: Float[np.ndarray, " k"], gram: Float[np.ndarray, "k k"]) -> "System":
        """The same functions less their means, but for the constant: mean zero under another marginal.

        `mean` is E φ under it, `gram` E φφᵀ. What was never seen stays at what all levels are drawn from.
        """
        off = np.append(0.0, mean[1:])
        if self.grows:
            off[-1] = 0.0
        transform, d, r = self.transform.copy(), len(self.transform), self.table.shape[1]
        transform[0] -= off[:d] if not self.n_levels else 0.0
        first = 1 if self.n_levels else d
        return self._replace(
            transform=transform,
            table=self.table - off[first : first + r],
            observed=self.observed - off[first + r] if not self.n_levels else self.observed,
            missing=self.missing - off,
            gram=gram - np.outer(off, mean) - np.outer(mean, off) + np.outer(off, off),
        )

    def only(self, used: Int[np.ndarray, " m"]) -> tuple["System", Int[np.ndarray, " k"]]:
        """The system with the tabulated functions that are used and all others, and the new place of each."""
        first, r = (1 if self.n_levels else len(self.transform)), self.table.shape[1]
        is_table = (np.arange(len(self.kind)) >= first) & (np.arange(len(self.kind)) < first + r)
        kept = ~is_table | np.isin(np.arange(len(self.kind)), used) | (self.n_levels > 0)
        parts = {name: getattr(self, name)[kept] for name in ("missing", "unseen", "kind", "cost", "offset", "family")}
        table = self.table[:, kept[first : first + r]]
        system = self._replace(**parts, table=table, gram=self.gram[np.ix_(kept, kept)])
        if not self.n_levels and not table.shape[1] and not self.is_discrete:  # the last function tells values apart
            system = system._replace(knots=np.zeros(0), table=np.zeros((0, 0)), cell=np.zeros(0, dtype=int))
        return system, np.cumsum(kept) - 1

    @property
    def is_alive(self) -> bool:
        """Whether the input varies at all."""
        return bool((self.kind == SEEN).any())

    @property
    def families(self) -> Families:
        """Of numbers: what a term can choose from."""
        return tuple(Family(f) for f in np.unique(self.family[self.family >= 0]))

    @property
    def gap(self) -> int | None:
        """The place of the function that says whether a number is missing, if some are; categories have a level."""
        return len(self.kind) - 2 if not self.n_levels and self.kind[-2] == SEEN else None

    def of(self, kind: int, family: Family = Family.ANY) -> Int[np.ndarray, " m"]:
        """The places of the functions of a kind; of one family, and those of all of them."""
        return np.flatnonzero((self.kind == kind) & _are_of(self.family, family))


def system_of(
    x: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    n_levels: int = 0,
    *,
    degree: int = DEGREE,
    is_tabulated: bool = False,
    rate: Float[np.ndarray, " h"] | None = None,
    many: Collection[Family] = (),
) -> System:
    """The system of a number, or of the levels of a category, under its weighted marginal.

    `is_tabulated`, all functions of a number are lines from knot to knot, few of them, smooth ones too. With a `rate`
    from knot to knot it has functions with jumps besides. Some local families have `many` functions.
    """
    x, weight = x[weight > 0], weight[weight > 0] / weight.sum()
    return _levels(x, weight, n_levels) if n_levels else _number(x, weight, degree, is_tabulated, rate, many)


def _number(
    x, weight, degree: int, is_tabulated: bool, rate: Float[np.ndarray, " h"] | None, many: Collection[Family]
) -> System:
    """Functions of a number, and one that tells its missing values apart; without any value it is a constant."""
    if np.isnan(x).all():
        x, weight = np.zeros(1), np.ones(1)
    seen = ~np.isnan(x)
    has_missing = not seen.all()
    share = float(weight[seen].sum()) if has_missing else 1.0
    value, mass = x[seen], weight[seen] / weight[seen].sum()
    distinct = np.unique(value)
    is_discrete = are_few(len(distinct), len(value))
    low, width, quantiles = scale_of(value, mass, distinct)
    transform, tables = np.ones((1, 1)), []
    knots, cell = np.zeros(0), np.zeros(0, dtype=int)
    if len(distinct) > 1:
        knots = knots_of(value, mass, distinct, *((FEW_BY_RANK, FEW_BY_VALUE) if is_tabulated else ()))
        m, u = mass_at(knots, value, mass), _coordinate(knots, low, width, quantiles)
        cell = _cells(u)
        is_cycle = is_discrete and not is_tabulated and comes_round(distinct)
        tables = functions_of(u, m, len(value), is_discrete=is_discrete, is_cycle=is_cycle, rate=rate, many=many)
        if is_discrete or is_tabulated:
            tables = [polynomials_at(u, m, degree), *tables]
        else:
            transform = _polynomials(_coordinate(value, low, width, quantiles), mass, degree)
            transform[:, 1:] /= np.sqrt(share)
    d = len(transform)
    none = Functions(np.zeros((len(knots), 0)), np.zeros(0, dtype=int), np.zeros(0), np.zeros(0, dtype=int))
    table, cost, offset, family = (np.concatenate(part, axis=-1) for part in zip(none, *tables, strict=True))
    k = d + table.shape[1] + 2
    missing = np.zeros(k)
    missing[0] = 1.0
    missing[-2] = np.sqrt(share / (1.0 - share)) if has_missing else 1.0
    system = System(
        n_levels=0,
        low=low,
        width=width,
        quantiles=quantiles,
        transform=transform,
        knots=knots,
        table=table / np.sqrt(share),
        observed=-np.sqrt((1.0 - share) / share) if has_missing else 0.0,
        missing=missing,
        unseen=np.append(1.0, np.zeros(k - 1)),
        kind=np.array([CONSTANT, *[SEEN] * (k - 3), SEEN if has_missing else NEVER_SEEN, NEVER_SEEN]),
        cost=np.array([*range(d), *cost, 1, 1]),
        offset=np.concatenate([np.zeros(d), offset, [0.0, 0.0]]),
        gram=np.zeros((k, k)),
        family=np.array([Family.ANY, *[Family.SMOOTH] * (d - 1), *family, Family.ANY, Family.ANY]).astype(int),
        cell=cell,
        is_discrete=is_discrete,
    )
    return system._replace(gram=_gram(system, x, weight))


def are_few(n_values: int, n_rows: int) -> bool:
    """Whether a number of so many distinct values is discrete."""
    return 1 < n_values <= min(MOST_VALUES, n_rows / ROWS_PER_VALUE)


def rank_curve(quantiles: Float[np.ndarray, " q"]) -> Curve:
    """The rank of a value, a smooth curve through the quantiles; of values that stand there twice, the middle one."""
    knots, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
    return monotone_curve(knots, (first + 0.5 * (counts - 1.0)) / (len(quantiles) - 1.0))


def _coordinate(value, low, width, quantiles):
    """Where a number lies in [−1, 1]: by its value, or half by value and half by rank where it has tails."""
    unit = np.clip(2.0 * (value - low) / width - 1.0, -1.0, 1.0)
    if not len(quantiles):
        return unit
    rank = rank_curve(quantiles)(np.clip(value, quantiles[0], quantiles[-1]))
    return np.clip(0.5 * unit + 0.5 * (2.0 * rank - 1.0), -1.0, 1.0)


def _polynomials(unit, mass, degree: int) -> Float[np.ndarray, "d d"]:
    """What makes Legendre polynomials orthonormal."""
    found = orthonormal(unit[:, None], mass, degree, low=-1.0, width=2.0)
    d = int(found.degree[0]) + 1
    return found.transform[0, :d, :d].copy()


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
        family=np.array([Family.ANY, *[Family.LEVELS] * (k - 2), Family.ANY]).astype(int),
        cell=np.where(m[:n_levels] > RARE, np.arange(n_levels), -1),
    )
    return system._replace(gram=_gram(system, x, weight))


def _gram(system: System, x, weight) -> Float[np.ndarray, "k k"]:
    """E φφᵀ."""
    at, every = system.at(x), np.arange(len(system.kind))
    gram = np.zeros((len(every), len(every)))
    for start in range(0, len(x), ROWS_AT_ONCE):
        part = at.rows(slice(start, start + ROWS_AT_ONCE)).of(every)
        gram += part.T @ (weight[start : start + ROWS_AT_ONCE, None] * part)
    return gram


def products(
    systems: Sequence[System], term: Term, families: Families, total: int, limit: int
) -> Int[np.ndarray, "m order"]:
    """The products of a term's basis: for each the place of its function in every input's system.

    Up to a total degree of smooth functions, those of largest prior variance first; no more than `limit`. A main effect
    has the functions of what was never seen besides, whose coefficients the data leave at their prior.
    """
    about = tuple(
        tuple(part.tobytes() for part in (system.kind, system.cost, system.family, system.offset))
        for system in (systems[i] for i in term)
    )
    return _products(about, families, total, limit)


# A search asks for the same terms again and again: so many of them are a few MB.
@functools.lru_cache(maxsize=4096)
def _products(about: tuple[tuple[bytes, ...], ...], families: Families, total: int, limit: int) -> np.ndarray:
    """The same from kinds, degrees, families and prior variances of the functions of each of the inputs."""
    parts = [[np.frombuffer(part, int) for part in own[:3]] + [np.frombuffer(own[3])] for own in about]
    places = [
        np.flatnonzero((kind == SEEN) & _are_of(family, wanted) & (cost <= total))
        for (kind, cost, family, _), wanted in zip(parts, families, strict=True)
    ]
    index = np.stack([grid.ravel() for grid in np.meshgrid(*places, indexing="ij")], axis=1)
    cost, offset = (np.sum([own[k][index[:, axis]] for axis, own in enumerate(parts)], axis=0) for k in (1, 3))
    order = np.lexsort((np.arange(len(index)), -np.round(offset - USUAL_DECAY * cost, 9)))
    index = index[order[cost[order] <= total][:limit]]
    if len(about) == 1:
        index = np.concatenate([index, np.flatnonzero(parts[0][0] == NEVER_SEEN)[:, None]])
    index.setflags(write=False)
    return index


def _are_of(own: Int[np.ndarray, " k"], family: Family) -> Bool[np.ndarray, " k"]:
    """Which functions are of a family, or of all of them."""
    return (own == family) | (own == Family.ANY) | (family == Family.ANY)


def usual_families(systems: Sequence[System], term: Term, chosen: Mapping[Term, Families]) -> Families:
    """What was chosen for a term; else for its main effects; else the smoothest.

    Jumps are those of main effects: interactions have Brownian motion there.
    """
    if term in chosen:
        return chosen[term]
    own = (chosen[(i,)][0] if (i,) in chosen else (systems[i].families or (Family.ANY,))[0] for i in term)
    return tuple(Family.BROWNIAN if family is Family.JUMPS else family for family in own)
