"""Families of functions of one number, tabulated at its knots: bounded, and none wider than what its values support.

A number is read on a scale that outliers cannot stretch (`scale_of`). On it a family is a process: the functions are
its principal ones under the marginal, centred and orthonormal, their prior variances its eigenvalues. `SMOOTH` is the
flat limit of the Gaussian kernel, polynomials, whose variances decay as fast as evidence says; `MATERN` and `BROWNIAN`
are ever rougher, and local: away from rows they go back to zero; `JUMPS` is Brownian motion whose rate was learned
along the scale (`jumps`). `LEVELS` tells values of a discrete number apart as if they had no order. `CYCLIC` are sines
and cosines, smooth as polynomials are, where the last of such values comes before the first: hours, weekdays, months.
Between two knots functions are lines.
"""

import enum
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine.later import later
from vertebra.tables.profile import at_equal_ranks

linalg = later("scipy.linalg")

# The highest degree of polynomials, unless very many rows ask for more (`all_rows`); a round number.
DEGREE = 12
# Knots of a number at equal steps of rank, and between its outer quantiles at equal steps of its value: lines between
# so many are off by 10⁻⁵ of a curve's second derivative.
KNOTS_BY_RANK, KNOTS_BY_VALUE = 193, 129
# The same where all functions of a number are tabulated, for a shape that is asked for: each knot is a wall (`shapes`).
FEW_BY_RANK, FEW_BY_VALUE = 33, 17
# Values further beyond these quantiles than this share of what lies between them are one place on the half of the scale
# that goes by value: for a Gaussian input those beyond 3 sds. Without a margin ends of lines are cut off, and strengths
# too small by 2 %; with 0.25, or all of a tail, polynomials of 1500 rows miss some by up to four times the range of y.
OUTER, MARGIN = 0.005, 0.1
# The scale is the value itself where none lies further from the mean than so many sds, as for a uniform input (1.7) and
# not for a Gaussian one, and no gap between two values is wider than this share of the range; else half goes by rank.
SHORT_TAILS, WIDE_GAP = 2.2, 0.2
# Quantiles that the half by rank goes through: every sixteenth.
N_QUANTILES = 17
# Local functions of an input, those of a family that has `many` as its rows tell all of these apart (`roughness`), and
# the rows there must be for each. Round numbers; with 300 power is missed by 1 % less (split 0), and waits for it.
N_LOCAL, MOST_LOCAL, ROWS_PER_LOCAL = 40, 150, 8
# Eigenvalues smaller beside the first are rounding.
ROUNDING = 1e-10


class Family(enum.IntEnum):
    """Of what process a function is; `ANY`: of all."""

    ANY = -1
    SMOOTH = 0
    MATERN = 1
    MATERN32 = 2
    BROWNIAN = 3
    LEVELS = 4
    CYCLIC = 5
    JUMPS = 6

    @property
    def is_local(self) -> bool:
        return self in (Family.MATERN, Family.MATERN32, Family.BROWNIAN, Family.JUMPS)


# Lengths of kernels on a scale of width 2.
LENGTHS = {Family.MATERN: 0.5, Family.MATERN32: 0.5}
# Discrete numbers of so many values, all one step apart, may come round: days of the week, months, hours. Evidence
# decides.
CYCLES = (7, 12, 24)


class Functions(NamedTuple):
    """Functions at the knots, with their degrees and the logarithms of their prior variances beside the first's."""

    table: Float[np.ndarray, "g r"]
    cost: Int[np.ndarray, " r"]
    offset: Float[np.ndarray, " r"]
    family: Int[np.ndarray, " r"]


def knots_of(
    value: Float[np.ndarray, " n"],
    mass: Float[np.ndarray, " n"],
    distinct: Float[np.ndarray, " d"],
    n_by_rank: int = KNOTS_BY_RANK,
    n_by_value: int = KNOTS_BY_VALUE,
) -> Float[np.ndarray, " g"]:
    """All values where they are few, else quantiles, and between the outer ones steps of equal width."""
    if len(distinct) <= n_by_rank + n_by_value:
        return distinct
    by_rank = np.unique(at_equal_ranks(value, mass, n_by_rank))
    low, high = _inner(value, mass)
    # a heap of equal values must not hide the others: its share of the knots goes to distinct values
    spare = max(n_by_rank - len(by_rank), 2)
    others = np.quantile(distinct, np.linspace(0.0, 1.0, spare), method="nearest")
    return np.unique(np.concatenate([by_rank, np.linspace(low, high, n_by_value), others]))


def mass_at(
    knots: Float[np.ndarray, " g"], value: Float[np.ndarray, " n"], mass: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " g"]:
    """The mass of the rows, that of a row between two knots shared by them: means of functions are exact by it."""
    place = np.interp(value, knots, np.arange(len(knots)))
    left = np.clip(place.astype(int), 0, max(len(knots) - 2, 0))
    share = place - left
    right = np.minimum(left + 1, len(knots) - 1)
    return np.bincount(left, mass * (1.0 - share), len(knots)) + np.bincount(right, mass * share, len(knots))


def scale_of(
    value: Float[np.ndarray, " n"], mass: Float[np.ndarray, " n"], distinct: Float[np.ndarray, " d"]
) -> tuple[float, float, Float[np.ndarray, " q"]]:
    """The scale of a number: where it begins, how wide it is, and quantiles where half of it goes by rank.

    By value alone where there are no tails and no gaps. Else that half ends a little beyond the outer quantiles.
    """
    low, width = float(distinct[0]), float(distinct[-1] - distinct[0]) or 1.0
    mean = mass @ value
    sd = np.sqrt(mass @ (value - mean) ** 2)
    has_tails = np.abs(value - mean).max() > SHORT_TAILS * sd or np.diff(distinct).max(initial=0.0) > WIDE_GAP * width
    if len(distinct) < 2 * N_QUANTILES or not has_tails:
        return low, width, np.zeros(0)
    inner = _inner(value, mass)
    if inner[0] < inner[1]:
        low, width = inner[0], inner[1] - inner[0]
    return low, width, at_equal_ranks(value, mass, N_QUANTILES)


def _inner(value, mass) -> tuple[float, float]:
    """Where the scale goes by value: between the outer quantiles and a little beyond."""
    low, high = np.quantile(value, [OUTER, 1.0 - OUTER], weights=mass, method="inverted_cdf")
    margin = MARGIN * (high - low)
    return max(float(value.min()), float(low - margin)), min(float(value.max()), float(high + margin))


def comes_round(values: Float[np.ndarray, " d"]) -> bool:
    """Whether the values of a discrete number, in order, may be those of something that comes round."""
    steps = np.diff(values)
    return len(values) in CYCLES and bool(np.all(np.abs(steps - steps[0]) < 1e-6 * steps[0]))


def functions_of(
    u: Float[np.ndarray, " g"],
    m: Float[np.ndarray, " g"],
    n_rows: int,
    *,
    is_discrete: bool,
    is_cycle: bool = False,
    rate: Float[np.ndarray, " h"] | None = None,
    many: Collection[Family] = (),
) -> list[Functions]:
    """The functions of every family but the smooth one at knots that lie at u and have the mass m.

    `rate`: by how much the variance of Brownian motion with jumps grows from each knot to the next.
    """
    limit = min(int(np.count_nonzero(m)) - 1, n_rows // ROWS_PER_LOCAL)
    found: list[Functions] = []

    def local(covariance: Float[np.ndarray, "g g"], family: Family) -> Functions:
        return _principal(covariance, m, min(MOST_LOCAL if family in many else N_LOCAL, limit), family)

    if min(N_LOCAL, limit) >= 2:
        found += [local(_covariance(u, family), family) for family in (*LENGTHS, Family.BROWNIAN)]
        if is_discrete:
            found.append(_principal(np.eye(len(u)), m, len(u) - 1, Family.LEVELS))
        if is_cycle:
            found.append(_waves(m))
        if rate is not None:
            time = np.append(0.0, np.cumsum(rate))
            found.append(local(np.minimum.outer(time, time), Family.JUMPS))
    return found


def polynomials_at(u: Float[np.ndarray, " g"], m: Float[np.ndarray, " g"], degree: int) -> Functions:
    """Smooth functions at the values of a discrete number, no more than those with rows can tell apart."""
    degree = min(degree, int(np.count_nonzero(m)) - 1)
    table = _orthonormal(np.polynomial.legendre.legvander(u, degree), m)
    r = table.shape[1]
    return Functions(table, np.arange(1, r + 1), np.zeros(r), np.full(r, Family.SMOOTH))


def _waves(m: Float[np.ndarray, " g"]) -> Functions:
    """cos and sin of 2πjk/g at place k of g that lie evenly on a circle; their degree is j."""
    angle = 2.0 * np.pi * np.arange(len(m)) / len(m)
    waves = [wave(j * angle) for j in range(1, len(m) // 2 + 1) for wave in (np.cos, np.sin)]
    table = _orthonormal(np.stack([np.ones(len(m)), *waves], axis=1), m)
    r = table.shape[1]
    return Functions(table, 1 + np.arange(r) // 2, np.zeros(r), np.full(r, Family.CYCLIC))


def _orthonormal(functions: Float[np.ndarray, "g k"], m: Float[np.ndarray, " g"]) -> Float[np.ndarray, "g r"]:
    """Functions made orthonormal under m one after the other, without the first, which is 1."""
    upper = np.asarray(np.linalg.qr(np.sqrt(m)[:, None] * functions, mode="r"))
    # one that rounding cannot tell from those before it is left out, and those after it
    kept = int(np.argmin(np.append(np.abs(np.diag(upper)) > 1e-6, False)))
    upper = upper[:kept, :kept]
    return (functions[:, :kept] @ (np.linalg.inv(upper) * np.sign(np.diag(upper))))[:, 1:]


def _covariance(u, family: Family) -> Float[np.ndarray, "g g"]:
    away = np.abs(u[:, None] - u[None, :])
    match family:
        case Family.MATERN:
            t = np.sqrt(5.0) * away / LENGTHS[family]
            return (1.0 + t + t**2 / 3.0) * np.exp(-t)
        case Family.MATERN32:
            t = np.sqrt(3.0) * away / LENGTHS[family]
            return (1.0 + t) * np.exp(-t)
        case _:
            return np.minimum.outer(u + 1.0, u + 1.0)


def _principal(covariance, m, n_most: int, family: Family) -> Functions:
    """The functions of largest variance of a centred process with this covariance, orthonormal under m."""
    table, variance = principal(covariance, m, n_most)
    r = len(variance)
    return Functions(table, np.ones(r, dtype=int), np.log(variance / variance[:1]), np.full(r, family))


def principal(
    covariance: Float[np.ndarray, "g g"], m: Float[np.ndarray, " g"], n_most: int
) -> tuple[Float[np.ndarray, "g r"], Float[np.ndarray, " r"]]:
    """Functions of largest variance of a centred process, orthonormal under m, and these variances."""
    mean = covariance @ m
    centred = covariance - mean[:, None] - mean[None, :] + m @ mean
    root = np.sqrt(np.maximum(m, 1e-12))
    values, vectors = _largest(root[:, None] * centred * root[None, :], n_most)
    kept = np.argsort(-values)[:n_most]
    kept = kept[values[kept] > ROUNDING * values[kept[0]]] if len(kept) else kept
    vectors = vectors[:, kept] * np.where(vectors[-1, kept] < 0, -1.0, 1.0)
    table = vectors / root[:, None]
    # of functions of very small variance rounding leaves a mean
    return table - m @ table, values[kept]


def _largest(a: Float[np.ndarray, "g g"], n: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "g k"]]:
    """At least the n largest eigenvalues, ascending, and their vectors: of many knots no others are worked out."""
    if len(a) > 2 * n:
        try:
            return linalg.eigh(a, subset_by_index=(len(a) - n, len(a) - 1))
        except np.linalg.LinAlgError:  # values too close for that algorithm
            pass
    return linalg.eigh(a, driver="evd")
