"""The ANOVA under the joint distribution of the rows: components that are hierarchically orthogonal where the data are.

f = Σ_T f_T with E[f_T g_S] = 0 for every S ⊊ T and every g_S in the columns of S (Hooker 2007; Chastaing, Gamboa &
Prieur 2012). In a basis it is linear: with P_T the regression of the columns of T on those of all S ⊊ T and the
constant, B_T = Φ_T − Φ_{<T} P_T is what T alone adds, and the coefficients of f in the B_T are a = Ac: from high orders
down a_T = c_T, then c_{<T} += P_T a_T. So Σ_T B_T a_T = Φc, to rounding, whatever P is.

Regressed on few rows the columns of an interaction overfit: at independence main effects come out of a pure one, of
size √(columns/n). `shrunk` therefore begins at what a Gaussian copula says of P_T (`copula`), and goes from there to
the rows as far as the evidence is for it: with D = P_T − P⁰_T ~ N(0, τ²S) the score u = Φᵀe/n, e the interaction by
itself, is N(GD, Ω/n), Ω = E[φφᵀe²], which is not σ²G: an interaction is largest where its main effects are.
"""

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax

from vertebra.machine.later import later
from vertebra.machine.threads import CHUNK
from vertebra.terms.columns import columns_of_each
from vertebra.terms.copula import Copula
from vertebra.terms.evidence import Basis, root_of
from vertebra.terms.functions import USUAL_DECAY
from vertebra.terms.sums import LazyValues
from vertebra.terms.term import Term

linalg = later("scipy.linalg")

# Eigenvalues of columns of unit variance below this share of the largest are rounding.
ROUNDING = 1e-8
# By how much of itself an interaction may be larger over few rows for what a picture of them takes off it, before the
# rows alone are asked, and what is then added to the variances of the columns. Round numbers.
MOST_GROWN, RIDGE = 0.1, 1e-3
# The least of what rows vary by in a direction that points of a picture are to vary by there: of less, least squares
# over these points would say anything, in places that hardly any of them is at.
LEAST_SEEN = 1e-3
# Samples of rows that could have been, by which the picture itself is uncertain: sds of 8 are off by a quarter.
N_RESAMPLED = 8
# log τ² that evidence chooses from: from next to nothing to as large as the interaction itself, in steps far finer than
# it can tell apart. Round numbers.
LOG_SIZES = np.arange(-16.0, 4.1, 0.5)
# Of an effect that the marginals of few rows could make: the probability that it is nothing more, as for all terms
# before they are seen (`structure`), and its variances else, in those of its error, from below it to far beyond it.
NOTHING, LEANS = 0.9, 10.0 ** np.arange(-1.0, 6.1, 0.5)


class Measure(enum.Enum):
    """What components are averages over: the rows, as they go together; or all combinations of their values."""

    DATA = "data"
    PRODUCT = "product"


class Joint(NamedTuple):
    """E φφᵀ over the rows, the constant first, and P_T of every block.

    `scatter` is, output by output, a root of the covariance of what other rows from where these came would make of
    ‖f_T‖², relative to it, for all T, and of Cov(f_T, f), for all T (`components`). `doubt` is, block by block and
    output by output, a root of the covariance of P_T a_T, without the constant's.
    """

    gram: Float[np.ndarray, "m1 m1"]
    lower: tuple[Float[np.ndarray, "_ _"], ...]
    scatter: tuple[Float[np.ndarray, "t2 t2"], ...] = ()
    doubt: tuple[Float[np.ndarray, "k _ _"], ...] = ()
    n_rows: float = math.inf


def gram_of(basis: Basis, x: Float[np.ndarray, "n p"], weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, "m1 m1"]:
    """E φφᵀ over rows in memory, the constant first."""
    gram = np.zeros((basis.n_columns + 1, basis.n_columns + 1))
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        phi = basis(LazyValues(basis.systems, x[part]))
        phi = np.concatenate([np.ones((len(phi), 1)), phi], axis=1)
        gram += phi.T @ (weight[part, None] * phi)
    return gram / weight.sum()


def below(basis: Basis, k: int) -> Int[np.ndarray, " l"]:
    """The columns, the constant first among all, of the terms inside that of block k."""
    term = set(basis.blocks[k].term)
    inside = [np.zeros(1, dtype=int)]
    for block, place in zip(basis.blocks, basis.slices, strict=True):
        if set(block.term) < term:
            inside.append(np.arange(place.start, place.stop) + 1)
    return np.concatenate(inside)


def descending(basis: Basis) -> list[int]:
    """The blocks, higher orders first."""
    return sorted(range(len(basis.blocks)), key=lambda k: -len(basis.blocks[k].term))


def raised(
    basis: Basis, lower: Sequence[Float[np.ndarray, "_ _"]], c: Float[np.ndarray, "m1 k"], *, above: Term = ()
) -> Float[np.ndarray, "m1 k"]:
    """a = Ac, of several c side by side: the coefficients of f in what each term alone adds.

    Only of a term and those that hold it, if one is given: what its own coefficients need.
    """
    a, slices = np.array(c), basis.slices
    for k in descending(basis):
        if set(above) <= set(basis.terms[k]):
            a[below(basis, k)] += lower[k] @ a[slices[k].start + 1 : slices[k].stop + 1]
    return a


def projected(basis: Basis, gram: Float[np.ndarray, "m1 m1"]) -> Joint:
    """Components that are orthogonal over the rows themselves, whatever the rows are too few for."""
    lower = []
    for k, place in enumerate(basis.slices):
        inside, own = below(basis, k), np.arange(place.start, place.stop) + 1
        lower.append(_regression(_centred(gram, inside[1:], inside[1:]), _centred(gram, inside[1:], own)))
    return _with_constants(basis, gram, lower)


def shrunk(
    basis: Basis, gram: Float[np.ndarray, "m1 m1"], n_rows: float, copula: Copula, means: Float[np.ndarray, "m1 k"]
) -> Joint:
    """The same as far as so many rows can tell it from a Gaussian copula; `means` are c of every output."""
    lower: list[Float[np.ndarray, "_ _"]] = [np.zeros((0, len(block.index))) for block in basis.blocks]
    doubt: list[Float[np.ndarray, "k _ _"]] = [np.zeros((means.shape[1], 0, 0)) for _ in basis.blocks]
    chance = list(doubt)
    a, rng = np.array(means), np.random.default_rng(0)
    others = [copula.resampled(rng) for _ in range(N_RESAMPLED)]
    for k in descending(basis):
        place = basis.slices[k]
        inside, own = below(basis, k), np.arange(place.start, place.stop) + 1
        _lean(basis, gram, k, lower, chance, a)
        if len(inside) > 1:
            inner, across = _centred(gram, inside[1:], inside[1:]), _centred(gram, inside[1:], own)
            whole = _centred(gram, own, own)
            lower[k], doubt[k], chance[k] = _shrunk(basis, k, inner, across, n_rows, copula, others, a[own])
            if _grows(whole, inner, across, lower[k], a[own]):
                # rows know nothing of this picture: where most values are one, points of it miss the others
                ridge = inner + np.diag(RIDGE * np.maximum(np.diag(inner), 1e-300))
                lower[k], doubt[k] = np.linalg.solve(ridge, across), np.zeros((a.shape[1], len(inner), 0))
                chance[k] = doubt[k]
            a[inside[1:]] += lower[k] @ a[own]
    return _with_constants(basis, gram, lower)._replace(doubt=tuple(doubt), n_rows=n_rows)


def _lean(
    basis: Basis,
    gram: Float[np.ndarray, "m1 m1"],
    k: int,
    lower: list,
    chance: list,
    a: Float[np.ndarray, "m1 outputs"],
) -> None:
    """Takes from a block what terms that hold it may have left there by chance alone: moves their P_T, and a_S.

    a_S = b + Σ_T d_T with d_T = R_T z, z ~ N(0, I), the error of P_T a_T that `chance` has: that of the marginals. Its
    mean given a_S is taken off. Of few rows the mean of x0 is not that of all there could be, and makes a main effect
    of x1 out of x0 x1, of the size of just this error.
    """
    own, place = np.arange(basis.slices[k].start, basis.slices[k].stop) + 1, {}
    for t, term in enumerate(basis.terms):
        if set(basis.terms[k]) < set(term) and chance[t].size:
            place[t] = np.flatnonzero(np.isin(below(basis, t)[1:], own))
    if not place:
        return
    for j in range(a.shape[1]):
        # samples of rows are the same for all of them
        roots = {t: chance[t][j][rows] for t, rows in place.items()}
        noise = _leant(np.sum(list(roots.values()), axis=0), a[own, j])
        for t, root in roots.items():
            away = root @ noise
            # the smallest change of P_T that makes it so, in functions over the rows: along Ca_T, and not along a_T,
            # of whose coefficients draws may have many times as much in directions that rows hardly tell
            above = np.arange(basis.slices[t].start, basis.slices[t].stop) + 1
            direction = _centred(gram, above, above) @ a[above, j]
            direction /= max(float(direction @ a[above, j]), 1e-300)
            lower[t][place[t]] -= np.outer(away, direction)
            a[own, :] -= np.outer(away, direction @ a[above, :])


def _leant(root: Float[np.ndarray, "m k"], seen: Float[np.ndarray, " m"]) -> Float[np.ndarray, " k"]:
    """E[z | a] where a = b + Rz: in each direction of R by itself, as far as evidence is not for more than error."""
    left, sizes, right = np.linalg.svd(root, full_matrices=False)
    kept = sizes > ROUNDING * max(float(sizes.max(initial=0.0)), 1e-300)
    # in errors: N(0, 1 + s²), s² = 0 or one of LEANS
    found, variance = (left.T @ seen)[kept] / sizes[kept], 1.0 + np.append(0.0, LEANS)
    prior = np.append(NOTHING, np.full(len(LEANS), (1.0 - NOTHING) / len(LEANS)))
    log_odds = np.log(prior / np.sqrt(variance)) - 0.5 * np.outer(found**2, 1.0 / variance)
    believed = softmax(log_odds, axis=1) @ (1.0 / variance)
    # what is farther beyond its error than any of these is none of it: of sums that are next to nothing, whose parts
    # take each other away, z would have parts of any size
    believed = np.where(found**2 > LEANS[-1], 1.0 / np.maximum(found**2, 1.0), believed)
    return right.T[:, kept] @ (found * believed)


def _grows(whole, inner, across, lower, a) -> bool:
    """Whether what an interaction alone adds is clearly larger over the rows than all of it, as no regression is."""
    moved = lower @ a
    # ‖(C − ΦP)a‖² − ‖Ca‖², and ‖Ca‖²
    more = np.sum(moved * (inner @ moved - 2.0 * (across @ a)), axis=0)
    return bool(np.any(more > MOST_GROWN * np.sum(a * (whole @ a), axis=0)))


def _shrunk(basis: Basis, k: int, inner, across, n_rows: float, copula: Copula, others: Sequence[Copula], a):
    """P_T less the constant's: that of the picture, and as much of what rows say otherwise as evidence is for.

    And, output by output, a root of the covariance of P_T a_T about it, and one of what the marginals alone make of it.
    """
    term = basis.blocks[k].term
    if _is_design(inner, across):
        none = np.zeros((a.shape[1], len(inner), 0))
        return np.zeros(across.shape), none, none
    phi, own = _columns_at(basis, k, copula.points(term))
    scale = _inverse_root(inner)
    picture = _regressed(phi, own, scale)
    start = picture if copula.is_dependent(term) else np.zeros(across.shape)
    here = picture @ a

    def away(points):
        """What others would make of P_T a_T: of f alone, not of all its columns."""
        theirs, its = _columns_at(basis, k, points)
        found = _regressed(theirs, its @ a, scale) - here
        # no more over the rows than there is of f_T: functions that a picture has next to no points of could be any
        size, most = np.sqrt(np.maximum(np.sum(found * (inner @ found), axis=0), 1e-300)), np.std(its @ a, axis=0)
        return found * np.minimum(most / size, 1.0) / math.sqrt(len(others))

    # other rows would have other marginals, whether or not they would go together otherwise
    chance = [away(o.points(term, copula)) for o in others]
    moved = [away(o.points(term)) for o in others] if copula.is_dependent(term) else chance
    pure = (own - phi @ start) @ a
    sizes = np.mean(pure**2, axis=0)
    seen = sizes > 1e-12 * max(float(sizes.max(initial=0.0)), 1e-300)
    by_chance = np.stack(chance, axis=2).transpose(1, 0, 2)
    if not seen.any():
        return start, np.zeros((a.shape[1], len(start), 0)), by_chance
    pure = pure[:, seen] / np.sqrt(sizes[seen])
    score = ((across - inner @ start) @ a[:, seen]) / np.sqrt(sizes[seen])
    # Ω, of the outputs' mean: the same shrinkage is for all of them
    noise = (phi.T * np.mean(pure**2, axis=1)) @ phi / (len(phi) * n_rows)
    # of a pair what goes to either input has a size of its own: one may have all, as in x0 · x0²
    n_first = len(basis.blocks[basis.terms.index(term[:1])].index) if len(term) == 2 else 0
    variances = np.where(np.diag(inner) > 0.0, _prior_variances(basis, k), 0.0)
    shrinkage = _Shrinkage.of(inner, noise, variances, score, n_first)
    common = shrinkage.doubt()
    roots = [
        root_of(size * common + sum((np.outer(m[:, j], m[:, j]) for m in moved), start=np.zeros(inner.shape)))
        for j, size in enumerate(sizes)
    ]
    return start + shrinkage(across - inner @ start), np.array(roots), by_chance


def _is_design(inner: Float[np.ndarray, "l l"], across: Float[np.ndarray, "l m"]) -> bool:
    """Whether a term has nothing in common with those inside it, as in a full grid: its values were set, not drawn."""
    return bool(np.abs(across).max(initial=0.0) < ROUNDING * np.diag(inner).max(initial=0.0))


def _regressed(
    phi: Float[np.ndarray, "points l"], own: Float[np.ndarray, "points m"], scale: Float[np.ndarray, "l r"]
) -> Float[np.ndarray, "l m"]:
    """The columns of a term on those inside it, by least squares over equally likely points.

    In directions of these that are 1 over the rows, as by `scale`, and nothing of those that points hardly have.
    """
    # Rᵀ(ΦᵀΦ)R: a third of the products of (ΦR)ᵀ(ΦR), as ΦᵀΦ is symmetric, and R has as many rows as Φ columns
    square, across = scale.T @ (phi.T @ phi) @ scale / len(phi), scale.T @ (phi.T @ own) / len(phi)
    # where all directions are seen, as a factor of what they are seen by beyond the least says, none has to be found
    _, info = linalg.lapack.dpotrf(square - LEAST_SEEN * np.eye(len(square)))
    if info == 0:
        return scale @ linalg.cho_solve(linalg.cho_factor(square), across)
    values, vectors = np.linalg.eigh(square)
    kept = vectors[:, values > LEAST_SEEN]
    return scale @ (kept @ (kept.T @ across / values[values > LEAST_SEEN, None]))


class _Family(NamedTuple):
    """(I + aM₀ + bM₁)⁻¹ = Q(I + bV)⁻¹Qᵀ for one a, and its evidence for every b, but for a share of the prior."""

    size: float  # a
    towards: Float[np.ndarray, "l r"]  # GRQ
    from_score: Float[np.ndarray, "r l"]  # QᵀRᵀ
    values: Float[np.ndarray, " r"]  # V
    log_evidence: Float[np.ndarray, " sizes"]


class _Shrinkage(NamedTuple):
    """D ~ N(0, aS₀ + bS₁) from a score N(GD, N), where the first columns have S₀ and the others S₁.

    With RRᵀ = N⁻¹ and M = RᵀGSGR, in bases where the noise is I, and one of the signals diagonal.
    """

    variances: Float[np.ndarray, " l"]  # S
    n_first: int
    families: tuple[_Family, ...]

    @classmethod
    def of(cls, inner, noise, variances, score, n_first: int) -> "_Shrinkage":
        root = _inverse_root(noise)
        across, z = inner @ root, root.T @ score
        parts = (slice(0, n_first), slice(n_first, None))
        first, second = (across[own].T @ (variances[own, None] * across[own]) for own in parts)
        sizes, families = np.append(0.0, np.exp(LOG_SIZES)), []
        for size in np.append(0.0, np.exp(LOG_SIZES[::2])) if n_first else [0.0]:
            lower = np.linalg.cholesky(np.eye(len(first)) + size * first)
            back = linalg.solve_triangular(lower, np.eye(len(first)), lower=True)
            values, vectors = np.linalg.eigh(back @ second @ back.T)
            values, q = np.maximum(values, 0.0), back.T @ vectors
            rotated, constant = q.T @ z, z.shape[1] * float(np.sum(np.log(np.diag(lower))))
            log_evidence = np.array([_evidence(b * values, rotated) for b in sizes]) - constant
            families.append(_Family(float(size), across @ q, q.T @ root.T, values, log_evidence))
        return cls(variances, n_first, tuple(families))

    def __call__(self, score: Float[np.ndarray, "l m"]) -> Float[np.ndarray, "l m"]:
        """E[D | score] = SGR(I + aM₀ + bM₁)⁻¹Rᵀ score, at the best a and b."""
        best = max(self.families, key=lambda family: float(family.log_evidence.max()))
        at = int(np.argmax(best.log_evidence))
        second = 0.0 if at == 0 else math.exp(LOG_SIZES[at - 1])
        sizes = np.where(np.arange(len(self.variances)) < self.n_first, best.size, second)
        found = best.towards @ ((best.from_score @ score) / (1.0 + second * best.values)[:, None])
        return (sizes * self.variances)[:, None] * found

    def doubt(self) -> Float[np.ndarray, "l l"]:
        """Cov[D | score] = S − SGR(I + aM₀ + bM₁)⁻¹RᵀGS, averaged over a and b by evidence."""
        sizes, n = np.append(0.0, np.exp(LOG_SIZES)), self.n_first
        whole = logsumexp([logsumexp(family.log_evidence) for family in self.families])
        found = np.zeros((len(self.variances), len(self.variances)))
        for a, towards, _, values, log_evidence in self.families:
            share = np.exp(log_evidence - whole)
            known = 1.0 / (1.0 + np.outer(sizes, values))
            none, once, twice = ((share * sizes**k) @ known for k in range(3))
            one, other = (self.variances[own, None] * towards[own] for own in (slice(0, n), slice(n, None)))
            across = a * (one * once) @ other.T
            found -= np.block([[a**2 * (one * none) @ one.T, across], [across.T, (other * twice) @ other.T]])
            first = np.arange(len(found)) < n
            found += np.diag(np.where(first, a * share.sum(), share @ sizes) * self.variances)
        return found


def _evidence(signal: Float[np.ndarray, " l"], towards: Float[np.ndarray, "l k"]) -> float:
    variance = 1.0 + signal
    return -0.5 * float(towards.shape[1] * np.sum(np.log(variance)) + np.sum(towards**2 / variance[:, None]))


def _prior_variances(basis: Basis, k: int) -> Float[np.ndarray, " l"]:
    """Of the columns inside T, the largest 1 in every term: smaller for higher degrees, as everywhere."""
    found = []
    for block in basis.blocks:
        if set(block.term) < set(basis.blocks[k].term):
            log_variance = np.zeros(len(block.index))
            for axis, i in enumerate(block.term):
                system, own = basis.systems[i], block.index[:, axis]
                log_variance += system.offset[own] - USUAL_DECAY * np.maximum(system.cost[own] - 1, 0)
            found.append(np.exp(log_variance - log_variance.max(initial=0.0)))
    return np.concatenate(found)


def _columns_at(basis: Basis, k: int, points: Float[np.ndarray, "points order"]):
    """The columns inside T, and those of T, at points of its inputs, less their means there."""
    term = basis.blocks[k].term
    values = {i: basis.systems[i].at(points[:, axis], grows=False) for axis, i in enumerate(term)}
    inside = [b for b in basis.blocks if set(b.term) < set(term)]
    *those, own = columns_of_each(values, [*inside, basis.blocks[k]])
    phi = np.concatenate(those, axis=1)
    return phi - phi.mean(axis=0), own - own.mean(axis=0)


def _centred(gram, left, right) -> Float[np.ndarray, "l r"]:
    """Covariances of some columns over the rows."""
    return gram[np.ix_(left, right)] - np.outer(gram[0, left], gram[0, right])


def _regression(inner: Float[np.ndarray, "l l"], across: Float[np.ndarray, "l m"]) -> Float[np.ndarray, "l m"]:
    """G⁺ C: least squares by the covariances, of columns on the scale of their own sds; none of what rows lack."""
    if not len(inner):
        return np.zeros((0, across.shape[1]))
    root = _inverse_root(inner)
    return root @ (root.T @ across)


def _inverse_root(square: Float[np.ndarray, "l l"]) -> Float[np.ndarray, "l r"]:
    """R with RRᵀ = G⁺, where eigenvalues of unit columns that are rounding count as none."""
    sd = np.sqrt(np.maximum(np.diag(square), 0.0))
    there = sd > ROUNDING * sd.max(initial=0.0)
    scale = np.where(there, 1.0 / np.where(there, sd, 1.0), 0.0)
    values, vectors = np.linalg.eigh(square * scale[:, None] * scale[None, :])
    kept = values > ROUNDING * values.max(initial=1.0)
    return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])


def _with_constants(basis: Basis, gram, lower: Sequence[Float[np.ndarray, "_ _"]]) -> Joint:
    """With the row of the constant: what every B_T adds has mean zero over the rows, exactly."""
    whole = []
    for k, (place, own) in enumerate(zip(basis.slices, lower, strict=True)):
        inside = below(basis, k)[1:]
        mean = gram[0, place.start + 1 : place.stop + 1] - gram[0, inside] @ own
        whole.append(np.concatenate([mean[None], own]))
    return Joint(gram, tuple(whole))
