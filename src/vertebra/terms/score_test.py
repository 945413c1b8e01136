"""Score tests: is a term there that the model lacks, main effects, pairs and higher orders alike?

A term T is tested by its products of low degree, weighted towards smooth ones. Given the terms already in, with
y ~ N(0, V), V = σ²I + ΦSΦᵀ, their score u = Cᵀ V⁻¹ y is N(0, Λ) if T is not there, Λ = CᵀV⁻¹C, and Q = uᵀWu a sum of
χ² variables whose tail is the p-value. All candidates are tested, so that no data need be set aside for it.
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp

from vertebra.terms.evidence import Block, places_of
from vertebra.terms.functions import SEEN, products, usual_families
from vertebra.terms.model import Model
from vertebra.terms.structure import Score
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term

# The highest total degree of the products that a test looks at, by order: low, so that its power is not spread thin.
TEST_DEGREE = {1: 6, 2: 4, 3: 5}
# The most products that a test looks at: categories of many levels have more. A round number.
TEST_COLUMNS = 40
# So many inputs or pairs are tested exactly; of more, those with the largest scores. A round number.
MAX_TESTS = 300
# Pairs are screened for so many inputs at a time: 300 × 3 sums with 5,000 × 3 others are 100 MB.
INPUTS_AT_ONCE = 300
# Products of each term that the joint test of many looks at.
N_JOINT = 4
# Eigenvalues of the information that are smaller beside the largest are rounding.
ROUNDING = 1e-9
# Sizes τ² that a Bayes factor averages over, in units of what one can just see, 1/λ, and how many of them.
SMALLEST, LARGEST, N_SIZES = 1.0, 1e4, 13
# No number is 0 that is divided by.
TINY = 1e-300


def score_tests(model: Model, terms: Sequence[Term]) -> dict[Term, Score]:
    """The test of each term that is not in the model; of very many inputs or pairs, of those of largest score."""
    if len(terms) > MAX_TESTS and len(terms[0]) == 1:
        energy = _energies(model, sorted(i for (i,) in terms))
        terms = sorted(terms, key=lambda t: -energy[t[0]])[:MAX_TESTS]
    elif len(terms) > MAX_TESTS and len(terms[0]) == 2:
        inputs = sorted({i for term in terms for i in term})
        terms = largest_scores(model, inputs, MAX_TESTS, wanted=terms)
    blocks = [block_tested(model.rows, term) for term in terms]
    return dict(zip(terms, _scores(model, blocks), strict=True))


def own_score_tests(model: Model, terms: Sequence[Term] | None = None) -> dict[Term, Score]:
    """The tests of terms of the model, each against the others with their hyper-parameters."""
    terms = model.basis.terms if terms is None else terms
    blocks = [block_tested(model.rows, term) for term in terms]
    return dict(zip(terms, _scores(model, blocks, without_own=True), strict=True))


def _scores(model: Model, blocks: Sequence[Block], *, without_own: bool = False) -> list[Score]:
    """The tests of some blocks; `without_own` against the model without the term that a block is of."""
    model.rows.learn_squares(blocks)
    model.rows.learn_products(blocks, model.basis.blocks)
    freedom = _freedom(model)
    return [_score_test(model, block, freedom, without_own) for block in blocks]


def _freedom(model: Model) -> float:
    """The degrees of freedom of the noise: no end of them where it is known."""
    return math.inf if model.rows.noise_variance is not None else model.freedom


def _score_test(model: Model, block: Block, freedom: float, without_own: bool) -> Score:
    """The test of one block, its products weighted towards smooth ones."""
    systems = model.rows.systems
    cost = np.sum([systems[i].cost[block.index[:, axis]] - 1.0 for axis, i in enumerate(block.term)], axis=0)
    offset = np.sum([systems[i].offset[block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0)
    smooth = np.exp(0.5 * (offset - cost))  # W^{1/2}
    u, information = given_the_rest(model, block, without_own=without_own)
    u, information = smooth * u, smooth[:, None] * information * smooth
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    real = values > ROUNDING * max(values.max(initial=0.0), TINY)
    values, rotated = values[real], (vectors.T @ u)[real]
    if not len(values):
        return Score(1.0, 0.0)
    p_value = chi_square_tail(values, float(rotated @ rotated), freedom)
    return Score(p_value, _log_bayes_factor(values, rotated))


def given_the_rest(
    model: Model, block: Block, *, without_own: bool
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
    """u = Cᵀ V⁻¹ y and its variance Λ, from products: V⁻¹ = (I − ΦΣΦᵀ/σ²)/σ².

    `without_own`, a term of the model is seen against the others: their posterior is that given v_T = 0.
    """
    rows, posterior = model.rows, model.posterior
    variance = posterior.noise_variance
    beside = rows.gram([block], model.basis.blocks) / variance
    own = rows.gram([block], [block]) / variance
    out = np.zeros(model.basis.n_columns, dtype=bool)
    if without_own:
        for part, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            out[place] = part.term == block.term
        beside[:, out] = 0.0
    explained = beside @ posterior.root
    u = rows.cross([block]) / variance - beside @ posterior.mean
    information = own - explained @ explained.T
    if out.any():
        root = posterior.root[out] / posterior.prior_sd[out, None]
        shared = np.linalg.solve(root @ root.T, root @ explained.T)
        information = information + (explained @ root.T) @ shared
        u = u + shared.T @ (posterior.mean[out] / posterior.prior_sd[out])
    return u, information


def _log_bayes_factor(values: Float[np.ndarray, " k"], rotated: Float[np.ndarray, " k"]) -> float:
    """log p(u | T is there)/p(u | not), its size τ² averaged over sizes from what one can just see upwards."""
    # u ~ N(0, λ) or N(0, λ + τ²λ²)
    sizes = np.geomspace(SMALLEST, LARGEST, N_SIZES) / values.max()
    gains = sizes[:, None] * values
    each = 0.5 * np.sum(rotated**2 / values * gains / (1.0 + gains) - np.log1p(gains), axis=1)
    return float(cast(float, logsumexp(each)) - math.log(len(sizes)))


def joint_p_value(model: Model, terms: Sequence[Term]) -> float:
    """The test that none of some terms is there, by their few smoothest products, every term with the same say."""
    rows, posterior = model.rows, model.posterior
    blocks = [Block(t, block_tested(rows, t).index[:N_JOINT]) for t in terms]
    rows.learn_products(blocks, blocks)
    rows.learn_products(blocks, model.basis.blocks)
    beside = rows.gram(blocks, model.basis.blocks)
    explained = beside @ posterior.root / posterior.noise_variance
    information = rows.gram(blocks, blocks) / posterior.noise_variance - explained @ explained.T
    u = (rows.cross(blocks) - beside @ posterior.mean) / posterior.noise_variance
    scale = np.ones(len(u))
    for own in places_of(blocks):
        scale[own] = 1.0 / math.sqrt(max(float(np.trace(information[own, own])), TINY))
    values = np.linalg.eigvalsh(scale[:, None] * information * scale)
    values = values[values > ROUNDING * values.max(initial=0.0)]
    if not len(values):
        return 1.0
    return chi_square_tail(values, float(np.sum((scale * u) ** 2)), _freedom(model))


def block_tested(rows: RowSums, term: Term) -> Block:
    """The products of a term that its test looks at."""
    systems = rows.systems
    families = usual_families(systems, term, rows.chosen)
    index = products(systems, term, families, TEST_DEGREE.get(len(term), len(term) + 1), TEST_COLUMNS)
    seen = np.all([systems[i].kind[index[:, axis]] == SEEN for axis, i in enumerate(term)], axis=0)
    return Block(term, index[seen])


def largest_scores(model: Model, inputs: Sequence[int], n: int, wanted: Sequence[Term] | None = None) -> list[Term]:
    """The n pairs of some inputs with the largest scores, largest first; of all, or of those that are wanted.

    Some of the inputs at a time: there may be thousands.
    """
    k, found, energies = TEST_DEGREE[2] - 1, [], []
    place = {i: at for at, i in enumerate(inputs)}
    asked = None if wanted is None else np.array([[place[i], place[j]] for i, j in wanted])
    for start in range(0, len(inputs), INPUTS_AT_ONCE):
        left, right = inputs[start : start + INPUTS_AT_ONCE], inputs[start:]
        cost = _costs(model, left)[:, :, None, None] + _costs(model, right)[None, None]
        sums = _residual_sums(model, left, right)
        energy = np.einsum("iajb,iajb->ij", sums**2, np.exp(-cost) * (cost < k))
        if asked is None:
            one, other = np.nonzero(np.arange(len(left))[:, None] < np.arange(len(right)))
        else:
            one, other = asked[(asked[:, 0] >= start) & (asked[:, 0] < start + len(left))].T - start
        largest = np.argsort(-energy[one, other], kind="stable")[:n]
        one, other = one[largest], other[largest]
        found.append(np.stack([np.asarray(left)[one], np.asarray(right)[other]], axis=1))
        energies.append(energy[one, other])
    order = np.argsort(-np.concatenate(energies), kind="stable")[:n]
    return [(int(i), int(j)) for i, j in np.concatenate(found)[order]]


def _residual_sums(model: Model, left: Sequence[int], right: Sequence[int]) -> Float[np.ndarray, "l k r k"]:
    """Σ_rows residual φ_a(x_i) φ_b(x_j) of the smoothest functions of two sets of inputs, in one product."""
    rows, k = model.rows, TEST_DEGREE[2] - 1

    def smoothest(values, inputs):
        flat = np.zeros((len(values[inputs[0]].left), len(inputs), k))
        for place, i in enumerate(inputs):
            own = rows.systems[i].of(SEEN)[:k]
            flat[:, place, : len(own)] = values[i].of(own)
        return flat.reshape(len(flat), -1)

    def products_of(values, y, weight):
        scaled = (weight * (y - model.at(values)))[:, None] * smoothest(values, left)
        return [scaled.T @ smoothest(values, right)]

    (sums,) = rows.source.total(products_of)
    return sums.reshape(len(left), k, len(right), k)


def _costs(model: Model, inputs: Sequence[int]) -> Float[np.ndarray, "l k"]:
    """By how much each of the smoothest functions of some inputs is less smooth than the first."""
    cost = np.zeros((len(inputs), TEST_DEGREE[2] - 1))
    for place, i in enumerate(inputs):
        own = model.rows.systems[i].of(SEEN)[: cost.shape[1]]
        cost[place, : len(own)] = model.rows.systems[i].cost[own] - 1.0
    return cost


def _energies(model: Model, inputs: Sequence[int]) -> dict[int, float]:
    """The scores of some inputs by themselves, all at once: Σ W u² of the functions that a test looks at, over Σ W."""
    rows = model.rows
    places = [block_tested(rows, (i,)).index[:, 0] for i in inputs]

    def products_of(values, y, weight):
        residual = weight * (y - model.at(values))
        return [np.concatenate([residual @ values[i].of(own) for i, own in zip(inputs, places, strict=True)])]

    (sums,) = rows.source.total(products_of)
    ends = np.cumsum([0, *(len(own) for own in places)])
    found = {}
    for i, own, a, b in zip(inputs, places, ends[:-1], ends[1:], strict=True):
        smooth = np.exp(rows.systems[i].offset[own] - rows.systems[i].cost[own])
        found[i] = float(smooth @ sums[a:b] ** 2 / smooth.sum())
    return found


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
    z = cast(float, brentq(slope, *inside, xtol=1e-14 * top, rtol=np.float64(1e-12)))
    k = -0.5 * np.sum(d * np.log1p(-2.0 * a * z))
    w = math.copysign(math.sqrt(max(2.0 * (z * x - k), TINY)), z)
    v = z * math.sqrt(np.sum(2.0 * d * a**2 / (1.0 - 2.0 * a * z) ** 2))
    return float(np.exp(log_ndtr(-(w + math.log(v / w) / w))))
