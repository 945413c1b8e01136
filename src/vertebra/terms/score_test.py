"""Score tests: is a term there that the model lacks, main effects, pairs and higher orders alike?

A term T is tested by its products of low degree, weighted towards smooth ones. Given the terms already in, with
y ~ N(0, V), V = σ²I + ΦSΦᵀ, their score u = Cᵀ V⁻¹ y is N(0, Λ) if T is not there, Λ = CᵀV⁻¹C, and Q = uᵀWu a sum of
χ² variables whose tail is the p-value. All candidates are tested, so that no data need be set aside for it.

That Λ is the variance of u is a belief about noise. Where it makes a term look real, the variance is taken from the
rows themselves as well (`sandwich`), and the larger p-value stands: noise that is uneven, heavy, or dependent in
groups, and products that the model lacks, are then not taken for terms.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from vertebra.terms.chi_squares import TINY, chi_square_tail, chi_square_tails
from vertebra.terms.evidence import Block, places_of
from vertebra.terms.functions import SEEN, System, products, usual_families
from vertebra.terms.level_scores import has_levels, level_score
from vertebra.terms.model import Model
from vertebra.terms.sandwich import Against, sandwiches
from vertebra.terms.sizes import draws_of, evidences_of, log_bayes_factors, size_of
from vertebra.terms.structure import Score
from vertebra.terms.sums import Held, RowSums
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
# Tests of at most so many products are worked out together: matrices filled up to these sizes.
WIDTHS = (4, 8, 16, TEST_COLUMNS)
# Eigenvalues of the information that are smaller beside the largest are rounding.
ROUNDING = 1e-9
# Up to this p-value a test is made again with the variance that the rows themselves show. Above it nobody takes a term
# for real.
LOOKS_REAL = 0.05
# Without a test of its own that says so, a category that is read as a number made of y is wanted up to this p-value of
# its levels: evidence sees y in y, and let one of ten in that do nothing.
LEVELS_WANTED = 0.05


def score_tests(model: Model, terms: Sequence[Term], *, trusts_noise: bool = False) -> dict[Term, Score]:
    """The test of each term that is not in the model; of very many inputs or pairs, of those of largest score.

    With `trusts_noise` rows are taken to vary as they are assumed to, whatever they show.
    """
    if len(terms) > MAX_TESTS and len(terms[0]) == 1:
        energy = _energies(model, sorted(i for (i,) in terms))
        terms = sorted(terms, key=lambda t: -energy[t[0]])[:MAX_TESTS]
    elif len(terms) > MAX_TESTS and len(terms[0]) == 2:
        inputs = sorted({i for term in terms for i in term})
        terms = largest_scores(model, inputs, MAX_TESTS, wanted=terms)
    by_level, rest = _by_level(model, terms)
    blocks = [block_tested(model.rows, term) for term in rest]
    found = dict(zip(rest, _scores(model, blocks, trusts_noise=trusts_noise), strict=True))
    found |= {term: level_score(model, term[0]) for term in by_level}
    return {term: found[term] for term in terms}


def can_be_tested(rows: RowSums, term: Term) -> bool:
    """Whether a term has a test that holds: an interaction with a category of many levels, read as a number, has none.

    That number is made of y, and so are its products.
    """
    return len(term) == 1 or not any(has_levels(rows, i) for i in term)


def may_be_wanted(models: Sequence[Model], main: Term) -> bool:
    """Whether a main effect that tests have not found may be there because evidence wants it."""
    (i,) = main
    by_level = [model for model in models if has_levels(model.rows, i)]
    return not by_level or any(level_score(model, i).p_value < LEVELS_WANTED for model in by_level)


def _by_level(model: Model, terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The main effects of categories that are read as numbers, whose levels are tested, and all other terms."""
    by_level = [t for t in terms if len(t) == 1 and has_levels(model.rows, t[0])]
    return by_level, [t for t in terms if t not in set(by_level)]


def with_sizes(model: Model, terms: Sequence[Term]) -> dict[Term, Score]:
    """The tests of terms that are not in the model, with how strong each may be."""
    found = score_tests(model, terms) if terms else {}
    by_level, rest = _by_level(model, list(found))
    found |= {term: level_score(model, term[0], has_size=True) for term in by_level}
    blocks = [block_tested(model.rows, t) for t in rest]
    # a term of gaps alone says nothing of how its inputs go together
    blocks = [block for block in blocks if not np.all(of_gaps(model.rows.systems, block))]
    seen = _all_given_the_rest(model, blocks)
    variances = [each.information for each in seen]
    if in_doubt(model) is not None:
        variances, _ = sandwiches(model, [[block] for block in blocks], seen)
    for block, each, variance in zip(blocks, seen, variances, strict=True):
        own = turned(model, block, each, variance)
        if is_seen(model, own):
            found[block.term] = found[block.term]._replace(size=size_of(strengths_of(own)))
    return found


class Turned(NamedTuple):
    """The score of a term along the eigenvectors of W^½ΛW^½: rotated_k ~ N(λ_k b_k, λ_k), β = back b, E f_T² = βᵀGβ."""

    values: Float[np.ndarray, " m"]  # λ
    rotated: Float[np.ndarray, " m"]
    back: Float[np.ndarray, "m m"]
    gram: Float[np.ndarray, "m m"]  # G
    inflation: float  # Λ is of rows that count for as many fewer


def turned(model: Model, block: Block, seen: Against, variance: Float[np.ndarray, "m m"]) -> Turned:
    """Where rows show u to have a larger `variance` than Λ, they count for as many fewer.

    What gaps tell is left out, as tests leave it.
    """
    gram = model.rows.gram([block], [block]) / model.rows.count
    if (gaps := of_gaps(model.rows.systems, block)).any():
        root = beside(seen.information, gaps)
        seen = seen._replace(u=root @ seen.u, information=root @ seen.information @ root.T)
        block, variance = Block(block.term, block.index[~gaps]), root @ variance @ root.T
        gram = gram[np.ix_(~gaps, ~gaps)]
    smooth = _smoothness(model, block)
    inflation = max(float(smooth**2 @ np.diag(variance)) / max(float(smooth**2 @ np.diag(seen.information)), TINY), 1.0)
    information, u = seen.information / inflation, seen.u / inflation
    values, vectors = np.linalg.eigh(smooth[:, None] * information * smooth)
    return Turned(np.maximum(values, 0.0), vectors.T @ (smooth * u), smooth[:, None] * vectors, gram, inflation)


def is_seen(model: Model, own: Turned) -> bool:
    """Whether the rest of the model leaves more than rounding of a term; else rows do not say how strong it may be."""
    alone = model.rows.count * float(np.sum(own.back * (own.gram @ own.back))) / model.posterior.noise_variance
    return float(own.values.sum()) > ROUNDING * alone


def strengths_of(
    seen: Turned, chance: Callable[[np.ndarray], np.ndarray] = np.ones_like
) -> Float[np.ndarray, " draws"]:
    """Draws of the sd of f_T = Cβ given its score; `chance` is that of being looked at, by size."""
    values, rotated = seen.values, seen.rotated
    largest = max(float(values.max()), TINY)
    # where the likelihood of a size has long fallen: beyond what is seen by many standard errors
    furthest = 2.0 * math.sqrt(float(np.sum((rotated / (values + 0.1 * largest)) ** 2))) + 8.0 / math.sqrt(largest)
    beta = draws_of(values, rotated, furthest, chance) @ seen.back.T
    return np.sqrt(np.maximum(np.sum(beta @ seen.gram * beta, axis=1), 0.0))


def own_score_tests(model: Model, terms: Sequence[Term] | None = None) -> dict[Term, Score]:
    """The tests of those terms of the model that have one, each against the others with their hyper-parameters."""
    terms = [t for t in (model.basis.terms if terms is None else terms) if can_be_tested(model.rows, t)]
    by_level, rest = _by_level(model, terms)
    blocks = [block_tested(model.rows, term) for term in rest]
    found = dict(zip(rest, _scores(model, blocks, without_own=True), strict=True))
    found |= {term: level_score(model, term[0]) for term in by_level}
    return {term: found[term] for term in terms}


def _scores(
    model: Model, blocks: Sequence[Block], *, without_own: bool = False, trusts_noise: bool = False
) -> list[Score]:
    """The tests of some blocks; `without_own` against the model without the term that a block is of."""
    model.rows.learn_squares(blocks)
    model.rows.learn_products(blocks, model.basis.blocks)
    if without_own:
        seen = [given_the_rest(model, block, without_own=True) for block in blocks]
    else:
        seen = _all_given_the_rest(model, blocks)
    # where a number is missing, others that go with it tell of it: they act there, which is no interaction
    gaps = [of_gaps(model.rows.systems, b) & (not trusts_noise) for b in blocks]
    roots = [beside(s.information, g) if g.any() else None for s, g in zip(seen, gaps, strict=True)]
    tested = [Block(b.term, b.index[~g]) if g.any() else b for b, g in zip(blocks, gaps, strict=True)]
    us = [s.u if root is None else root @ s.u for s, root in zip(seen, roots, strict=True)]

    def within(variances: Sequence[np.ndarray], places: Sequence[int]) -> list[np.ndarray]:
        own = [roots[k] for k in places]
        return [v if root is None else root @ v @ root.T for v, root in zip(variances, own, strict=True)]

    every = range(len(blocks))
    found = _tested(model, tested, us, within([each.information for each in seen], every), freedom_of_noise(model))
    held, real = in_doubt(model), [k for k, s in enumerate(found) if s.p_value < LOOKS_REAL]
    if held is None or not real or trusts_noise:
        return found
    some, theirs = [blocks[k] for k in real], [seen[k] for k in real]
    if not without_own:
        theirs = [each._replace(shrunk=_shrunk(model, b, each)) for b, each in zip(some, theirs, strict=True)]
    variances, n_parts = sandwiches(model, [[block] for block in some], theirs)
    freedom = _freedom_of(held, n_parts)
    again = _tested(model, [tested[k] for k in real], [us[k] for k in real], within(variances, real), freedom)
    for k, other in zip(real, again, strict=True):
        found[k] = max(found[k], other, key=lambda s: s.p_value)
    return found


def of_gaps(systems: Sequence[System], block: Block) -> Bool[np.ndarray, " m"]:
    """Which columns of an interaction are of a gap of one of its numbers."""
    found = np.zeros(len(block.index), dtype=bool)
    for axis, i in enumerate(block.term if len(block.term) > 1 else ()):
        found |= block.index[:, axis] == systems[i].gap
    return found


def beside(information: Float[np.ndarray, "m m"], others: Bool[np.ndarray, " m"]) -> Float[np.ndarray, "kept m"]:
    """The matrix that takes scores to those of the columns that are kept, given the `others`: u_c − Λ_co Λ_oo⁻¹ u_o."""
    root = np.eye(len(others))[~others]
    if others.any():
        inverse = np.linalg.pinv(information[np.ix_(others, others)], rcond=ROUNDING, hermitian=True)
        root[:, others] = -information[np.ix_(~others, others)] @ inverse
    return root


def in_doubt(model: Model) -> Held | None:
    """The rows, if they are in memory and may vary by more, or less, than they are assumed to."""
    source = model.rows.source
    return source if isinstance(source, Held) and not source.vary_as_said else None


def freedom_of_noise(model: Model) -> float:
    """The degrees of freedom of the noise: no end of them where it is known."""
    return math.inf if model.rows.noise_variance is not None else model.freedom


def _freedom_of(held: Held, n_parts: int) -> float:
    """The degrees of freedom of a variance taken from the rows: of few groups it is itself uncertain."""
    return math.inf if held.groups is None else max(n_parts - 1.0, 1.0)


def _tested(
    model: Model,
    blocks: Sequence[Block],
    us: Sequence[np.ndarray],
    variances: Sequence[np.ndarray],
    freedom: float,
) -> list[Score]:
    """The tests of some blocks by their scores and the variances of these, products weighted towards smooth ones.

    Those of about as many products are worked out together.
    """
    found = [Score(1.0, 0.0)] * len(blocks)
    sizes = np.array([len(u) for u in us], dtype=int)
    for width, less in zip(WIDTHS, (0, *WIDTHS[:-1]), strict=True):
        places = np.flatnonzero((sizes <= width) & (sizes > less))
        if not len(places):
            continue
        u, variance = np.zeros((len(places), width)), np.zeros((len(places), width, width))
        for row, k in enumerate(places.tolist()):
            smooth, m = _smoothness(model, blocks[k]), sizes[k]
            u[row, :m] = smooth * us[k]
            variance[row, :m, :m] = smooth[:, None] * (0.5 * (variances[k] + variances[k].T)) * smooth
        values, vectors = np.linalg.eigh(variance)
        real = values > ROUNDING * np.maximum(values.max(axis=1), TINY)[:, None]
        values = np.where(real, values, 0.0)
        rotated = np.where(real, np.einsum("kij,ki->kj", vectors, u), 0.0)
        p_values = chi_square_tails(values, np.sum(rotated**2, axis=1), freedom)
        _, by_size = evidences_of(values, rotated)
        factors = log_bayes_factors(by_size).tolist()
        for k, p, factor, own in zip(places.tolist(), p_values.tolist(), factors, by_size.tolist(), strict=True):
            found[k] = Score(p, factor, by_size=tuple(own))
    return found


def _smoothness(model: Model, block: Block) -> Float[np.ndarray, " m"]:
    """W^{1/2}, the weights of a test's products."""
    systems = model.rows.systems
    cost = np.sum([systems[i].cost[block.index[:, axis]] - 1.0 for axis, i in enumerate(block.term)], axis=0)
    offset = np.sum([systems[i].offset[block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0)
    return np.exp(0.5 * (offset - cost))


def _shrunk(model: Model, block: Block, seen: Against) -> Float[np.ndarray, "m m"]:
    """(Λ + (τ²W)⁻¹)⁻¹, the variance of the block's coefficients, the mean over sizes τ² by their evidence."""
    smooth = _smoothness(model, block)
    values, vectors = np.linalg.eigh(smooth[:, None] * seen.information * smooth)
    values, rotated = np.maximum(values, 0.0), vectors.T @ (smooth * seen.u)
    (sizes,), (each,) = evidences_of(values[None], rotated[None])
    variance = np.exp(each - np.logaddexp.reduce(each)) @ (sizes[:, None] / (1.0 + sizes[:, None] * values))
    scaled = smooth[:, None] * vectors
    return (scaled * variance) @ scaled.T


def given_the_rest(model: Model, block: Block, *, without_own: bool) -> Against:
    """u = Cᵀ V⁻¹ y and its variance Λ, from products: V⁻¹ = (I − ΦΣΦᵀ/σ²)/σ².

    `without_own`, a term of the model is seen against the others: their posterior is that given v_T = 0.
    """
    rows, posterior = model.rows, model.posterior
    variance = posterior.noise_variance
    along = rows.gram([block], model.basis.blocks) / variance
    own = rows.gram([block], [block]) / variance
    out = np.zeros(model.basis.n_columns, dtype=bool)
    if without_own:
        for part, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            out[place] = part.term == block.term
        along[:, out] = 0.0
    explained = along @ posterior.root
    u = rows.cross([block]) / variance - along @ posterior.mean
    information, by_root = own - explained @ explained.T, explained
    if out.any():
        root = posterior.root[out] / posterior.prior_sd[out, None]
        shared = np.linalg.solve(root @ root.T, root @ explained.T)
        information = information + (explained @ root.T) @ shared
        u = u + shared.T @ (posterior.mean[out] / posterior.prior_sd[out])
        by_root = explained - shared.T @ root
    # B = ΣΦᵀC/σ²
    return Against(u, information, posterior.root @ by_root.T)


def _all_given_the_rest(model: Model, blocks: Sequence[Block]) -> list[Against]:
    """The same of many blocks, none of them taken out of the model: one product for all."""
    rows, posterior = model.rows, model.posterior
    variance = posterior.noise_variance
    beside = rows.gram(blocks, model.basis.blocks) / variance
    explained = beside @ posterior.root
    u = rows.cross(blocks) / variance - beside @ posterior.mean
    slopes, found = posterior.root @ explained.T, []
    for block, place in zip(blocks, places_of(blocks), strict=True):
        information = rows.gram([block], [block]) / variance - explained[place] @ explained[place].T
        found.append(Against(u[place], information, slopes[:, place]))
    return found


def joint_p_value(model: Model, terms: Sequence[Term]) -> float:
    """The test that none of some terms is there, by their few smoothest products, every term with the same say."""
    rows, posterior = model.rows, model.posterior
    blocks, others = _looked_at_together(rows, terms)
    rows.learn_products(blocks, blocks)
    rows.learn_products(blocks, model.basis.blocks)
    along = rows.gram(blocks, model.basis.blocks)
    explained = along @ posterior.root / posterior.noise_variance
    information = rows.gram(blocks, blocks) / posterior.noise_variance - explained @ explained.T
    score = (rows.cross(blocks) - along @ posterior.mean) / posterior.noise_variance
    root = beside(information, others)
    u, own_information = root @ score, root @ information @ root.T
    scale, sizes = np.ones(len(u)), [int((~others[own]).sum()) for own in places_of(blocks)]
    for end, n in zip(np.cumsum(sizes), sizes, strict=True):
        own = slice(end - n, end)
        scale[own] = 1.0 / math.sqrt(max(float(np.trace(own_information[own, own])), TINY))

    def p_value_with(variance: Float[np.ndarray, "m m"], freedom: float) -> float:
        values = np.linalg.eigvalsh(scale[:, None] * variance * scale)
        values = values[values > ROUNDING * values.max(initial=0.0)]
        return chi_square_tail(values, float(np.sum((scale * u) ** 2)), freedom) if len(values) else 1.0

    p_value = p_value_with(own_information, freedom_of_noise(model))
    if p_value < LOOKS_REAL and (held := in_doubt(model)) is not None:
        seen = Against(score, information, posterior.root @ explained.T)
        (variance,), n_parts = sandwiches(model, [blocks], [seen])
        p_value = max(p_value, p_value_with(root @ variance @ root.T, _freedom_of(held, n_parts)))
    return p_value


def _looked_at_together(rows: RowSums, terms: Sequence[Term]) -> tuple[list[Block], Bool[np.ndarray, " m"]]:
    """The few smoothest products of each term, with those of gaps beside them, and which these are."""
    blocks, others = [], []
    for term in terms:
        block = block_tested(rows, term)
        gaps = of_gaps(rows.systems, block)
        kept = np.concatenate([np.flatnonzero(~gaps)[:N_JOINT], np.flatnonzero(gaps)])
        blocks.append(Block(term, block.index[kept]))
        others.append(gaps[kept])
    return blocks, np.concatenate(others)


def block_tested(rows: RowSums, term: Term) -> Block:
    """The products of a term that its test looks at."""
    systems = rows.systems
    families = usual_families(systems, term, rows.chosen)
    if (term, families) not in rows.tested:
        index = products(systems, term, families, TEST_DEGREE.get(len(term), len(term) + 1), TEST_COLUMNS)
        seen = np.all([systems[i].kind[index[:, axis]] == SEEN for axis, i in enumerate(term)], axis=0)
        rows.tested[term, families] = Block(term, index[seen])
    return rows.tested[term, families]


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
