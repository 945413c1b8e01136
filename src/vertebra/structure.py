"""Which terms are real: score tests of main effects, pairs and higher orders against the model found so far.

A term T is tested by its products of low degree, weighted towards smooth ones. Given the terms already in, with
y ~ N(0, V), V = σ²I + ΦSΦᵀ, their score u = Cᵀ V⁻¹ y is N(0, Λ) if T is not there, Λ = CᵀV⁻¹C, and Q = uᵀWu a sum of
χ² variables whose tail is the p-value. All candidates are tested, so that no data need be set aside for it.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp

from vertebra.evidence import Basis, Posterior, Products, basis_of, best, products_of
from vertebra.polynomials import Polynomials, Term, columns, maximal, subsets, term_degrees

# The highest total degree of the products that a test looks at, by order, and of the terms in the model it is against.
TEST_DEGREE = {1: 6, 2: 4, 3: 5}
MODEL_DEGREE = {1: 9, 2: 7, 3: 6}
# The chance of any false term, by order: main effects, pairs, and higher terms without their lower ones.
FALSE_MAIN, FALSE_PAIR, FALSE_HIGHER = 0.005, 0.01, 0.0025
# Of the pairs' share, what goes to pairs of two active inputs, of one, of none.
HEREDITY = (0.9, 0.08, 0.02)
# So many pairs are tested exactly; of more, those with the largest scores. More single triples are not looked for.
MAX_TESTS = 300
# So many terms enter the model at once.
BATCH = 4
# More three-way candidates than this are looked at only where their pairs are there.
MAX_TRIPLES = 300
# Triangles of pairs whose three-way term is let in unasked, to be shrunk by its own evidence.
FREE_TRIANGLES = 10


class Score(NamedTuple):
    """The test of one term against the rest of the model."""

    p_value: float
    log_bayes_factor: float


class Structure(NamedTuple):
    """The terms found, each with its subsets, the test of every candidate looked at, and how many there were."""

    terms: tuple[Term, ...]
    tests: dict[Term, Score]
    n_candidates: dict[int, int]

    @property
    def clusters(self) -> tuple[Term, ...]:
        """The terms that lie in no other: what each sub-network reads."""
        return maximal(self.terms)


def probabilities(structure: Structure) -> dict[Term, float]:
    """P(T is real) of every term tested: its Bayes factor against the share of real ones, learned order by order."""
    result = {}
    for order in {len(term) for term in structure.tests}:
        factors = {t: test.log_bayes_factor for t, test in structure.tests.items() if len(t) == order}
        share, n = 0.1, structure.n_candidates.get(order, len(factors))
        for _ in range(100):
            odds = {t: math.log(share / (1.0 - share)) + b for t, b in factors.items()}
            real = {t: float(expit(o)) for t, o in odds.items()}
            # A Beta(1, 9) prior on the share; candidates not looked at closely count as not real.
            share = (1.0 + sum(real.values())) / (10.0 + n)
        result.update(real)
    return result


def discoveries(structure: Structure, fdr: float) -> list[Term]:
    """The interactions found whose p-values pass Benjamini & Hochberg at level `fdr` among all candidates."""
    tested = {t: test.p_value for t, test in structure.tests.items() if len(t) > 1}
    n = sum(max(structure.n_candidates.get(order, 0), sum(len(t) == order for t in tested)) for order in (2, 3))
    ranked = sorted(tested, key=tested.__getitem__)
    passed = [k for k, t in enumerate(ranked, start=1) if tested[t] <= fdr * k / n]
    return [t for t in ranked[: max(passed, default=0)] if t in structure.terms]


class Rows(NamedTuple):
    """Centred on nothing yet: polynomials at the rows, the target, the precision weights, the noise if it is known."""

    polynomials: Polynomials
    values: Float[np.ndarray, "p n k"]
    y: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    noise_variance: float | None = None


class Model(NamedTuple):
    """The terms in the model, fitted."""

    rows: Rows
    basis: Basis
    phi: Float[np.ndarray, "n m"]
    products: Products
    posterior: Posterior

    @property
    def residual(self) -> Float[np.ndarray, " n"]:
        fitted = self.products.mean_y + (self.phi - self.products.mean_phi) @ self.posterior.mean
        return self.rows.y - fitted

    @property
    def freedom(self) -> float:
        """Rows less what the fit used: the degrees of freedom of the noise."""
        used = np.sum((self.products.gram @ self.posterior.root) * self.posterior.root) / self.posterior.noise_variance
        return max(self.products.n - 1.0 - float(used), 1.0)


def model_of(rows: Rows, terms: Iterable[Term]) -> Model:
    """The model of some terms, by evidence, of a little lower degree than the final one: that is many times faster."""
    basis = basis_of(rows.polynomials, sorted(terms, key=lambda t: (len(t), t)), MODEL_DEGREE)
    phi = basis(rows.values)
    products = products_of(phi, rows.y, rows.weight, rows.noise_variance)
    return Model(rows, basis, phi, products, best(basis, products, tolerance=1e-6)[0])


def search(
    rows: Rows,
    *,
    terms: Sequence[Term] | None = None,
    within: Sequence[Term] | None = None,
    n_families: int = 1,
) -> Structure:
    """The terms that the data support, lower orders first, each tested beside all those found before it.

    With `terms` given, only their tests; with `within`, only terms that lie inside one of these sets of inputs are
    looked for. `n_families` such searches share the chance of a false term.
    """
    p = rows.polynomials.n_inputs
    alive = [i for i in range(p) if rows.polynomials.degree[i] > 0]
    tests: dict[Term, Score] = {}
    if _is_constant(rows):
        return Structure((), {}, _counts(p))
    if terms is not None:
        model = model_of(rows, [t for t in terms if set(t) <= set(alive)])
    else:
        model = model_of(rows, [])
        mains = _candidates(alive, 1, within)
        model = _add_while(model, mains, tests, lambda _: FALSE_MAIN / p / n_families)
        pairs = _candidates(alive, 2, within)
        active = {i for term in model.basis.terms for i in term}
        kinds = [2 - len(active & set(pair)) for pair in pairs]
        counts = [max(kinds.count(kind), 1) for kind in range(3)]
        level = {
            pair: FALSE_PAIR * HEREDITY[kind] / counts[kind] / n_families
            for pair, kind in zip(pairs, kinds, strict=True)
        }
        model = _add_while(model, pairs, tests, level.__getitem__)
        # A term that stood for one that came after it goes again.
        model = _drop_explained(model, lambda t: level.get(t, FALSE_MAIN / p / n_families))
        model = _add_triples(model, _candidates(alive, 3, within), tests, n_families)
    tests.update({term: _without(model, term) for term in model.basis.terms})
    return Structure(model.basis.terms, tests, _counts(p))


def _counts(p: int) -> dict[int, int]:
    return {order: math.comb(p, order) for order in (1, 2, 3)}


def _is_constant(rows: Rows) -> bool:
    shown = rows.y[rows.weight > 0]
    return bool(np.ptp(shown) <= 1e-10 * max(np.abs(shown).max(), 1e-300))


def _candidates(alive: Sequence[int], order: int, within: Sequence[Term] | None) -> list[Term]:
    if order == 3 and within is None and math.comb(len(alive), 3) > MAX_TRIPLES:
        return []
    terms = itertools.combinations(alive, order)
    return [t for t in terms if within is None or any(set(t) <= set(group) for group in within)]


def _add_triples(model: Model, triples: Sequence[Term], tests: dict[Term, Score], n_families: int) -> Model:
    """Three-way terms: those of triangles of pairs, and, where they can all be looked at, any other."""
    pairs = {term for term in model.basis.terms if len(term) == 2}
    triangles = _triangles(pairs)
    found = _test(model, triangles)
    tests.update(found)
    by_p = sorted(triangles, key=lambda t: found[t].p_value)
    chosen = [t for t in by_p if found[t].p_value < FALSE_PAIR / len(triangles) / n_families]
    chosen = list(dict.fromkeys(chosen + by_p[:FREE_TRIANGLES]))
    if chosen:
        model = model_of(model.rows, {*model.basis.terms, *chosen})
    others = [t for t in triples if t not in triangles]
    if len(others) <= MAX_TESTS:
        model = _add_while(model, others, tests, lambda _: FALSE_HIGHER / max(len(others), 1) / n_families)
    return model


def _triangles(pairs: set[Term]) -> list[Term]:
    """Three inputs of which every two are a pair."""
    inputs = sorted({i for pair in pairs for i in pair})
    near = {i: {j for pair in pairs if i in pair for j in pair if j > i} for i in inputs}
    return sorted({(i, j, k) for i in inputs for j in near[i] for k in near[i] & near[j] if j < k})


def _add_while(model: Model, candidates: Sequence[Term], tests: dict[Term, Score], level) -> Model:
    """Adds candidates whose p-value is below their level, the strongest few at a time, and tests again, until none is.

    Few at a time, because where inputs are correlated a real term makes others look real until it is in the model.
    """
    while True:
        found = _test(model, [term for term in candidates if term not in model.basis.terms])
        tests.update(found)
        new = [term for term in found if found[term].p_value < level(term)]
        if not new:
            return model
        new = sorted(new, key=lambda t: found[t].p_value)[:BATCH]
        model = model_of(model.rows, {*model.basis.terms, *subsets(new)})


def _drop_explained(model: Model, level) -> Model:
    """Takes out, the weakest first, terms that lie in no other and that the rest of the model explains."""
    while True:
        terms = model.basis.terms
        beside = {t: _without(model, t).p_value for t in maximal(terms)}
        weakest = max(beside, key=lambda t: beside[t] / level(t), default=None)
        if weakest is None or beside[weakest] <= level(weakest):
            return model
        model = model_of(model.rows, [t for t in terms if t != weakest])


def _test(model: Model, terms: Sequence[Term]) -> dict[Term, Score]:
    """The test of each term that is not in the model; of very many pairs, of those with the largest scores."""
    if len(terms) > MAX_TESTS and len(terms[0]) == 2:
        terms = _largest_scores(model, terms)
    residual, freedom = model.residual, model.freedom
    return {term: _score_test(model, residual, freedom, term) for term in terms}


def _without(model: Model, term: Term) -> Score:
    """The test of a term of the model, against the others with their hyper-parameters."""
    keep = np.ones(len(model.posterior.mean), dtype=bool)
    keep[model.basis.slices[model.basis.terms.index(term)]] = False
    s, variance = model.posterior.prior_sd[keep], model.posterior.noise_variance
    gram, cross = model.products.gram[np.ix_(keep, keep)], model.products.cross[keep]
    precision = gram * (s[:, None] * s[None, :] / variance) + np.eye(len(s))
    inverse = np.linalg.inv(np.linalg.cholesky(precision)) if len(s) else np.zeros((0, 0))
    root = s[:, None] * inverse.T
    reduced = Model(
        model.rows,
        model.basis,
        model.phi[:, keep],
        model.products._replace(gram=gram, cross=cross, mean_phi=model.products.mean_phi[keep]),
        model.posterior._replace(mean=root @ (root.T @ cross) / variance, root=root, prior_sd=s),
    )
    return _score_test(reduced, reduced.residual, reduced.freedom, term)


def _score_test(model: Model, residual, freedom, term: Term) -> Score:
    rows, variance = model.rows, model.posterior.noise_variance
    degrees = term_degrees(term, rows.polynomials.degree, TEST_DEGREE.get(len(term), len(term) + 1))
    smooth = np.exp(-0.5 * np.sum(degrees - 1.0, axis=1))  # W^{1/2}
    c = columns(rows.values, term, degrees) * smooth
    c = c - rows.weight @ c / rows.weight.sum()
    weighted = rows.weight[:, None] * c
    u = weighted.T @ residual / variance
    explained = weighted.T @ (model.phi - model.products.mean_phi) @ model.posterior.root / variance
    information = weighted.T @ c / variance - explained @ explained.T
    values, vectors = np.linalg.eigh(information)
    real = values > 1e-9 * max(values.max(), 1e-300)
    values, rotated = values[real], (vectors.T @ u)[real]
    if not len(values):
        return Score(1.0, 0.0)
    known = rows.noise_variance is not None
    p_value = chi_square_tail(values, float(rotated @ rotated), math.inf if known else freedom)
    return Score(p_value, _log_bayes_factor(values, rotated))


def _log_bayes_factor(values, rotated) -> float:
    """log p(u | T is there)/p(u | not), its size τ² averaged over sizes from what one can just see upwards."""
    # u ~ N(0, λ) or N(0, λ + τ²λ²)
    sizes = np.geomspace(1.0, 1e4, 13) / values.max()
    gains = sizes[:, None] * values
    each = 0.5 * np.sum(rotated**2 / values * gains / (1.0 + gains) - np.log1p(gains), axis=1)
    return float(logsumexp(each) - math.log(len(sizes)))


def _largest_scores(model: Model, terms: Sequence[Term]) -> list[Term]:
    """The pairs with the largest scores, all scores at once: Σ_rows residual P_k(x_i) P_l(x_j) is one product."""
    n_degrees = TEST_DEGREE[2] - 1
    values = model.rows.values[:, :, 1 : n_degrees + 1]
    p, n, k = values.shape
    flat = values.transpose(1, 0, 2).reshape(n, p * k)
    weighted = (model.rows.weight * model.residual)[:, None] * flat
    scores = (weighted.T @ flat).reshape(p, k, p, k)
    decay = np.exp(-np.arange(k))
    low = np.add.outer(np.arange(k), np.arange(k)) < n_degrees
    energy = np.einsum("iajb,ab->ij", scores**2, decay[:, None] * decay[None, :] * low)
    return sorted(terms, key=lambda t: -energy[t[0], t[1]])[:MAX_TESTS]


def chi_square_tail(weights: Float[np.ndarray, " k"], q: float, freedom: float = math.inf) -> float:
    """P(Σ_k weights_k χ²_1 > q · χ²_freedom/freedom) by the saddlepoint of Lugannani & Rice."""
    if q <= 0.0:
        return 1.0
    a, d, x = weights / q, np.ones(len(weights)), 1.0
    if math.isfinite(freedom):
        a, d, x = np.append(a, -1.0 / freedom), np.append(d, freedom), 0.0

    def slope(z):
        return np.sum(d * a / (1.0 - 2.0 * a * z)) - x

    top = 0.5 / a.max()
    bottom = 0.5 / a.min() if a.min() < 0 else -1e8 * top
    if abs(slope(0.0)) < 1e-6 * np.sqrt(np.sum(d * a**2)):
        return 0.5
    inside = (0.0, top * (1.0 - 1e-12)) if slope(0.0) < 0 else (bottom * (1.0 - 1e-12), 0.0)
    if slope(inside[0]) * slope(inside[1]) > 0:
        return 1.0 if slope(0.0) > 0 else 0.0
    z = brentq(slope, *inside, xtol=1e-14 * top, rtol=1e-12)
    k = -0.5 * np.sum(d * np.log1p(-2.0 * a * z))
    w = math.copysign(math.sqrt(max(2.0 * (z * x - k), 1e-300)), z)
    v = z * math.sqrt(np.sum(2.0 * d * a**2 / (1.0 - 2.0 * a * z) ** 2))
    return float(np.exp(log_ndtr(-(w + math.log(v / w) / w))))
