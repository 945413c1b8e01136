"""Which terms are real: score tests of main effects, pairs and higher orders against the model found so far.

A term T is tested by its products of low degree, weighted towards smooth ones. Given the terms already in, with
y ~ N(0, V), V = σ²I + ΦSΦᵀ, their score u = Cᵀ V⁻¹ y is N(0, Λ) if T is not there, Λ = CᵀV⁻¹C, and Q = uᵀWu a sum of
χ² variables whose tail is the p-value. All candidates are tested, so that no data need be set aside for it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp

from vertebra.terms.evidence import MAX_COLUMNS, Basis, Block, Evidence, Posterior, basis_of
from vertebra.terms.functions import SEEN, System, products
from vertebra.terms.sums import Rows
from vertebra.terms.term import Term, maximal, subsets

# The highest total degree of the products that a test looks at, by order, and of the terms in the model it is against.
TEST_DEGREE = {1: 6, 2: 4, 3: 5}
MODEL_DEGREE = {1: 9, 2: 7, 3: 6}
# The most products that a test looks at: categories of many levels have more.
TEST_COLUMNS = 40
# And of a term while terms are sought.
MODEL_COLUMNS = 60
# The chance of any false term, by order: main effects, pairs, and higher terms without their lower ones.
FALSE_MAIN, FALSE_PAIR, FALSE_HIGHER = 0.005, 0.01, 0.0025
# Of the pairs' share, what goes to pairs of two active inputs, of one, of none.
HEREDITY = (0.9, 0.08, 0.02)
# So many inputs or pairs are tested exactly; of more, those with the largest scores. More single triples are not looked
# for.
MAX_TESTS = 300
# So many pairs, those of 300 inputs, are listed; of more, so many with the largest scores, worked out for some of the
# inputs at a time: 300 × 3 sums with 5,000 × 3 others are 100 MB.
MAX_PAIRS, MOST_SCREENED, INPUTS_AT_ONCE = 44_850, 3000, 300
# All main effects are tried with so many rows for each, and kept where the log evidence is higher by so much.
ROWS_PER_MAIN, LEAST_GAIN = (8, 300), 3.0
# Of the pairs not seen one by one, the likeliest few enter together where a test of all of them by so many products
# each, at this chance of an error, sees them. Those with fewer degrees of freedom than this go again.
MOST_TOGETHER, FALSE_TOGETHER, N_JOINT, LEAST_KNOWN = 20, 0.0025, 4, 0.5
# So many terms enter the model at once, or this share of those that would.
BATCH, BATCH_SHARE = 4, 0.6
# More three-way candidates than this are looked at only where their pairs are there.
MAX_TRIPLES = 300
# Triangles of pairs whose three-way term is let in unasked, to be shrunk by its own evidence.
FREE_TRIANGLES = 10
# Models of more columns are fitted by a few rounds of MacKay's updates while terms are still sought.
MANY_COLUMNS = 300
# A term of rough functions that uses nearly all its columns gets as many as one may have while terms are sought, if its
# share of the variance is large; at the end one that uses half of them gets four times as many, if it is worth it. So
# many there may be in all, and for each so many rows.
NEARLY_ALL, LARGE_ENERGY, HALF, SMALL_ENERGY = 0.8, 0.03, 0.5, 0.002
MOST_OF_ONE, MOST_OF_ALL, ROWS_PER_COLUMN = 1000, 3200, 5
# Of smooth functions there may be one for so many rows, if that is more than `MAX_COLUMNS`.
ROWS_PER_SMOOTH_COLUMN = 15


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


class Model(NamedTuple):
    """Some terms, fitted to the rows."""

    rows: Rows
    basis: Basis
    evidence: Evidence
    posterior: Posterior

    @property
    def known(self) -> Float[np.ndarray, " m"]:
        """Of each coefficient, the share that the data determine: γ_k = 1 − Σ_kk/s_k."""
        return 1.0 - np.sum(self.posterior.root**2, axis=1) / self.posterior.prior_sd**2

    @property
    def freedom(self) -> float:
        """Rows less what the fit used: the degrees of freedom of the noise."""
        return max(self.rows.total - 1.0 - float(self.known.sum()), 1.0)

    def at(self, values) -> Float[np.ndarray, " n"]:
        """The fit at rows given by the values of their functions."""
        centre = self.rows.mean_y - self.evidence.products.mean_phi @ self.posterior.mean
        return centre + self.basis(values) @ self.posterior.mean

    def variance_at(self, values) -> Float[np.ndarray, " n"]:
        """The variance of the fit there."""
        phi = self.basis(values) - self.evidence.products.mean_phi
        return np.sum((phi @ self.posterior.root) ** 2, axis=1) + self.posterior.noise_variance / self.rows.total


def model_of(
    rows: Rows, terms: Iterable[Term], *, before: Model | None = None, sizes: Mapping[Term, int] | None = None
) -> Model:
    """The model of some terms by evidence, begun where another one ended.

    While terms are sought, of a little lower degree than the final one: that is many times faster.
    """
    if sizes is None and before is not None:
        sizes = before.basis.sizes
    basis = basis_of(
        rows.systems,
        sorted(set(terms), key=lambda t: (len(t), t)),
        MODEL_DEGREE,
        sizes,
        MODEL_COLUMNS,
        most_columns(rows.n),
    )
    return fit_basis(rows, basis, before=before, many=MANY_COLUMNS, n_rounds=2, tolerance=1e-6)


def most_columns(n_rows: int) -> int:
    """Of smooth functions: more with many rows, and no more than half the rows, so that none can reproduce them."""
    many = min(max(MAX_COLUMNS, n_rows // ROWS_PER_SMOOTH_COLUMN), MOST_OF_ALL)
    return min(many, max(n_rows // 2, 8))


def fit_basis(
    rows: Rows, basis: Basis, *, before: "Model | None", many: int, n_rounds: int, tolerance: float = 1e-9
) -> Model:
    """Hyper-parameters of the highest evidence; with more than `many` columns, a few rounds towards them."""
    evidence = Evidence(basis, rows.products(basis))
    start = _start(evidence, basis, before)
    if basis.n_columns > many and before is not None:
        theta = evidence.fixed_point(start, n_rounds)
    else:
        theta = evidence.maximise(tolerance, start)
    return Model(rows, basis, evidence, evidence.posterior(theta))


def _start(evidence: Evidence, basis: Basis, before: Model | None):
    """Hyper-parameters of an earlier model where it has them; what is new starts small where the rest is known."""
    theta = evidence.start()
    if before is None or not before.basis.blocks:
        return theta
    old, known = before.posterior.theta, {term: k for k, term in enumerate(before.basis.terms)}
    n_blocks = len(basis.blocks)
    for k, block in enumerate(basis.blocks):
        place = known.get(block.term)
        theta[k] = theta[k] - 2.0 if place is None else max(old[place], theta[k] - 8.0)
    places = {i: k for k, i in enumerate(before.evidence.inputs)}
    for k, i in enumerate(evidence.inputs):
        if i in places:
            theta[n_blocks + k] = old[len(before.basis.blocks) + places[i]]
    theta[-1] = old[-1] if evidence.products.noise_variance is None else theta[-1]
    return theta


def search(
    rows: Rows,
    *,
    terms: Sequence[Term] | None = None,
    within: Sequence[Term] | None = None,
    base: Sequence[Term] = (),
    start: Sequence[Term] = (),
    n_families: int = 1,
    max_order: int = 3,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[Structure, "Model | None"]:
    """The terms that the data support, lower orders first, each tested beside all those found before it.

    With `terms` given, only their tests; with `within`, only terms that lie inside one of these sets of inputs are
    looked for. Terms in `base` are there from the start and stay, those in `start` stay if their tests say so.
    `n_families` such searches share the chance of a false term. Once `enough` says so, it ends. With the model it ended
    with: none where the target is constant.
    """
    p = len(rows.systems)
    alive = [i for i in range(p) if rows.systems[i].is_alive]
    tests: dict[Term, Score] = {}
    if rows.is_constant:
        return Structure((), {}, _counts(p)), None
    if terms is not None:
        model = _with_room(model_of(rows, [t for t in terms if set(t) <= set(alive)]))
    else:
        model = model_of(rows, [t for t in {*base, *start} if set(t) <= set(alive)])
        mains = _candidates(alive, 1, within)
        model = _add_while(model, mains, tests, lambda _: FALSE_MAIN / p / n_families, enough)
        if max_order > 1:
            model, stay = _all_mains_if_likelier(model, mains, set(base))
            active = {i for term in model.basis.terms for i in term}
            pairs, counts = _pairs(model, alive, active, within)
            level = {
                pair: FALSE_PAIR * HEREDITY[kind] / max(counts[kind], 1) / n_families
                for pair, kind in ((pair, 2 - len(active & set(pair))) for pair in pairs)
            }
            model = _add_while(model, pairs, tests, level.__getitem__, enough)
            # A term that stood for one that came after it goes again.
            model = _drop_explained(model, lambda t: level.get(t, FALSE_MAIN / p / n_families), stay)
            model = _add_together(model, pairs, tests, FALSE_TOGETHER / n_families, enough)
        if max_order > 2 and not enough():
            model = _add_triples(model, _candidates(alive, 3, within), tests, n_families, enough)
    tests.update(own_score_tests(model))
    return Structure(model.basis.terms, tests, _counts(p)), model


def strongest(rows: Rows, n_pairs: int) -> list[Term]:
    """All main effects, and the pairs of smallest p-value beside them: enough to compare bases with."""
    alive = [i for i, system in enumerate(rows.systems) if system.is_alive]
    mains = [(i,) for i in alive][:MAX_TESTS]
    model = model_of(rows, mains)
    found = score_tests(model, _pairs(model, alive, set(), None)[0])
    return mains + sorted(found, key=lambda t: found[t].p_value)[:n_pairs]


def _counts(p: int) -> dict[int, int]:
    return {order: math.comb(p, order) for order in (1, 2, 3)}


def _candidates(alive: Sequence[int], order: int, within: Sequence[Term] | None) -> list[Term]:
    if order == 3 and within is None and math.comb(len(alive), 3) > MAX_TRIPLES:
        return []
    terms = itertools.combinations(alive, order)
    return [t for t in terms if within is None or any(set(t) <= set(group) for group in within)]


def _pairs(
    model: Model, alive: Sequence[int], active: set[int], within: Sequence[Term] | None
) -> tuple[list[Term], list[int]]:
    """Pairs to look at, and how many there are with both inputs active, with one, with none.

    Of the millions of pairs of a wide table, those with the largest scores: the others are counted, and not listed.
    """
    if within is not None or math.comb(len(alive), 2) <= MAX_PAIRS:
        pairs = _candidates(alive, 2, within)
        kinds = [2 - len(active & set(pair)) for pair in pairs]
        return pairs, [kinds.count(kind) for kind in range(3)]
    n, rest = len(active & set(alive)), len(alive) - len(active & set(alive))
    return _largest_scores(model, alive, MOST_SCREENED), [math.comb(n, 2), n * rest, math.comb(rest, 2)]


def _add_triples(model: Model, triples: Sequence[Term], tests: dict[Term, Score], n_families: int, enough) -> Model:
    """Three-way terms: those of triangles of pairs, and, where they can all be looked at, any other."""
    pairs = {term for term in model.basis.terms if len(term) == 2}
    triangles = _triangles(pairs)[:MAX_TRIPLES]
    found = score_tests(model, triangles)
    tests.update(found)
    by_p = sorted(triangles, key=lambda t: found[t].p_value)
    chosen = [t for t in by_p if found[t].p_value < FALSE_PAIR / len(triangles) / n_families]
    few = model.basis.n_columns < MAX_COLUMNS
    chosen = list(dict.fromkeys(chosen[:FREE_TRIANGLES] + (by_p[:FREE_TRIANGLES] if few else [])))
    if chosen:
        model = model_of(model.rows, {*model.basis.terms, *chosen}, before=model)
    others = [t for t in triples if t not in triangles]
    if len(others) <= MAX_TESTS:
        level = FALSE_HIGHER / max(len(others), 1) / n_families
        model = _add_while(model, others, tests, lambda _: level, enough)
    return model


def _triangles(pairs: set[Term]) -> list[Term]:
    """Three inputs of which every two are a pair."""
    inputs = sorted({i for pair in pairs for i in pair})
    near = {i: {j for pair in pairs if i in pair for j in pair if j > i} for i in inputs}
    return sorted({(i, j, k) for i in inputs for j in near[i] for k in near[i] & near[j] if j < k})


def _add_while(model: Model, candidates: Sequence[Term], tests: dict[Term, Score], level, enough) -> Model:
    """Adds candidates whose p-value is below their level, the strongest few at a time, and tests again, until none is.

    Few at a time, because where inputs are correlated a real term makes others look real until it is in the model.
    """
    while not enough():
        there = set(model.basis.terms)
        found = score_tests(model, [term for term in candidates if term not in there])
        tests.update(found)
        new = [term for term in found if found[term].p_value < level(term)]
        if not new:
            break
        new = sorted(new, key=lambda t: found[t].p_value)[: max(BATCH, int(BATCH_SHARE * len(new)))]
        model = _with_room(model_of(model.rows, {*model.basis.terms, *subsets(new)}, before=model))
    return model


def _all_mains_if_likelier(model: Model, mains: Sequence[Term], stay: set[Term]) -> tuple[Model, set[Term]]:
    """The model with every main effect, where some were found and its evidence is higher; and the terms that stay.

    Inputs that go together can stand for each other. With few rows, to let one speak for all of them predicts worse
    than to let each have a say of the size that its own evidence gives it.
    """
    rows, found = model.rows, len(model.basis.blocks)
    few, many = (share * len(mains) for share in ROWS_PER_MAIN)
    if rows.noise_variance is not None or not 0 < found < len(mains) or not few <= rows.n <= many:
        return model, stay
    whole = model_of(rows, {*model.basis.terms, *mains}, before=model)
    if whole.posterior.log_evidence < model.posterior.log_evidence + LEAST_GAIN:
        return model, stay
    return whole, stay | set(mains)


def _add_together(model: Model, candidates: Sequence[Term], tests: dict[Term, Score], level: float, enough) -> Model:
    """Adds pairs too weak to be seen one by one, where a test of all of them says that some are there."""
    there = set(model.basis.terms)
    rest = [t for t in candidates if t not in there]
    if enough() or not 2 <= len(rest) <= MAX_TESTS // 2 or _joint_p_value(model, rest) > level:
        return model
    found = score_tests(model, rest)
    tests.update(found)
    new = sorted(rest, key=lambda t: found[t].p_value)[:MOST_TOGETHER]
    more = model_of(model.rows, {*model.basis.terms, *subsets(new)}, before=model)
    known = {b.term: float(more.known[s].sum()) for b, s in zip(more.basis.blocks, more.basis.slices, strict=True)}
    kept = [t for t in more.basis.terms if t not in new or known[t] >= LEAST_KNOWN]
    return model_of(model.rows, kept, before=more)


def _joint_p_value(model: Model, terms: Sequence[Term]) -> float:
    """The test that none of some terms is there, by their few smoothest products, every term with the same say."""
    rows, posterior = model.rows, model.posterior
    blocks = [Block(t, _test_block(rows.systems, t).index[:N_JOINT]) for t in terms]
    rows.learn_products(blocks, blocks)
    rows.learn_products(blocks, model.basis.blocks)
    own, beside = rows.gram(blocks, blocks), rows.gram(blocks, model.basis.blocks)
    explained = beside @ posterior.root / posterior.noise_variance
    information = own / posterior.noise_variance - explained @ explained.T
    u = (rows.cross(blocks) - beside @ posterior.mean) / posterior.noise_variance
    ends = np.cumsum([0, *(len(b.index) for b in blocks)])
    scale = np.ones(len(u))
    for a, b in itertools.pairwise(ends):
        scale[a:b] = 1.0 / math.sqrt(max(float(np.trace(information[a:b, a:b])), 1e-300))
    values = np.linalg.eigvalsh(scale[:, None] * information * scale)
    values = values[values > 1e-9 * values.max(initial=0.0)]
    if not len(values):
        return 1.0
    freedom = math.inf if rows.noise_variance is not None else model.freedom
    return chi_square_tail(values, float(np.sum((scale * u) ** 2)), freedom)


def _drop_explained(model: Model, level, spared: set[Term]) -> Model:
    """Takes out, the weakest first, terms that lie in no other and that the rest of the model explains."""
    while True:
        terms = model.basis.terms
        beside = {t: s.p_value for t, s in own_score_tests(model, maximal(terms)).items() if t not in spared}
        weakest = max(beside, key=lambda t: beside[t] / level(t), default=None)
        if weakest is None or beside[weakest] <= level(weakest):
            return model
        model = model_of(model.rows, [t for t in terms if t != weakest], before=model)


def _with_room(model: Model) -> Model:
    """The model with more columns for the rough terms that need them most: what they cannot say looks like others."""
    sizes = grown([model], is_last=False)
    return model if sizes == model.basis.sizes else model_of(model.rows, model.basis.terms, before=model, sizes=sizes)


def grown(models: Sequence[Model | None], *, is_last: bool) -> dict[Term, int]:
    """The number of columns of every term: more of rough functions where they are used up, the largest terms first."""
    used: dict[Term, float] = {}
    energy: dict[Term, float] = {}
    sizes: dict[Term, int] = {}
    room = 0.0
    for model in models:
        if model is None:
            continue
        sizes, known, systems = model.basis.sizes, model.known, model.rows.systems
        room = min(MOST_OF_ALL, model.rows.n / ROWS_PER_COLUMN) - model.basis.n_columns
        for block, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            if len(block.term) > 1 and any(systems[i].is_rough for i in block.term):
                own = float(np.sum(model.posterior.mean[place] ** 2)) / model.evidence.scale
                used[block.term] = max(used.get(block.term, 0.0), float(known[place].mean()))
                energy[block.term] = max(energy.get(block.term, 0.0), own)
    for term in sorted(used, key=lambda t: -energy[t]):
        wanted = sizes[term]
        if used[term] > NEARLY_ALL and energy[term] > LARGE_ENERGY:
            wanted = MOST_OF_ONE
        elif is_last and used[term] > HALF and energy[term] > SMALL_ENERGY:
            wanted = 4 * wanted
        more = int(min(wanted - sizes[term], MOST_OF_ONE - sizes[term], room))
        if more > 0:
            sizes[term] += more
            room -= more
    return sizes


def _test_block(systems: Sequence[System], term: Term) -> Block:
    index = products(systems, term, TEST_DEGREE.get(len(term), len(term) + 1), TEST_COLUMNS)
    seen = np.all([systems[i].kind[index[:, axis]] == SEEN for axis, i in enumerate(term)], axis=0)
    return Block(term, index[seen])


def score_tests(model: Model, terms: Sequence[Term]) -> dict[Term, Score]:
    """The test of each term that is not in the model; of very many inputs or pairs, of those of largest score."""
    if len(terms) > MAX_TESTS and len(terms[0]) == 1:
        energy = _energies(model, sorted(i for (i,) in terms))
        terms = sorted(terms, key=lambda t: -energy[t[0]])[:MAX_TESTS]
    elif len(terms) > MAX_TESTS and len(terms[0]) == 2:
        inputs = sorted({i for term in terms for i in term})
        terms = _largest_scores(model, inputs, MAX_TESTS, wanted=terms)
    blocks = [_test_block(model.rows.systems, term) for term in terms]
    return dict(zip(terms, _scores(model, blocks), strict=True))


def own_score_tests(model: Model, terms: Sequence[Term] | None = None) -> dict[Term, Score]:
    """The tests of terms of the model, each against the others with their hyper-parameters."""
    terms = model.basis.terms if terms is None else terms
    blocks = [_test_block(model.rows.systems, term) for term in terms]
    return dict(zip(terms, _scores(model, blocks, without_own=True), strict=True))


def _scores(model: Model, blocks: Sequence[Block], *, without_own: bool = False) -> list[Score]:
    model.rows.learn_squares(blocks)
    model.rows.learn_products(blocks, model.basis.blocks)
    freedom = math.inf if model.rows.noise_variance is not None else model.freedom
    return [_score_test(model, block, freedom, without_own) for block in blocks]


def _score_test(model: Model, block: Block, freedom: float, without_own: bool) -> Score:
    """u = Cᵀ V⁻¹ y and its variance Λ, from products: V⁻¹ = (I − ΦΣΦᵀ/σ²)/σ².

    A term of the model is tested against the others: their posterior is that given v_T = 0.
    """
    rows, posterior, systems = model.rows, model.posterior, model.rows.systems
    variance = posterior.noise_variance
    cost = np.sum([systems[i].cost[block.index[:, axis]] - 1.0 for axis, i in enumerate(block.term)], axis=0)
    offset = np.sum([systems[i].offset[block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0)
    smooth = np.exp(0.5 * (offset - cost))  # W^{1/2}
    beside = smooth[:, None] * rows.gram([block], model.basis.blocks) / variance
    own = smooth[:, None] * rows.gram([block], [block]) * smooth / variance
    out = np.zeros(model.basis.n_columns, dtype=bool)
    if without_own:
        for part, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            out[place] = part.term == block.term
        beside[:, out] = 0.0
    explained = beside @ posterior.root
    u = smooth * rows.cross([block]) / variance - beside @ posterior.mean
    information = own - explained @ explained.T
    if out.any():
        root = posterior.root[out] / posterior.prior_sd[out, None]
        shared = np.linalg.solve(root @ root.T, root @ explained.T)
        information = information + (explained @ root.T) @ shared
        u = u + shared.T @ (posterior.mean[out] / posterior.prior_sd[out])
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    real = values > 1e-9 * max(values.max(initial=0.0), 1e-300)
    values, rotated = values[real], (vectors.T @ u)[real]
    if not len(values):
        return Score(1.0, 0.0)
    p_value = chi_square_tail(values, float(rotated @ rotated), freedom)
    return Score(p_value, _log_bayes_factor(values, rotated))


def _log_bayes_factor(values, rotated) -> float:
    """log p(u | T is there)/p(u | not), its size τ² averaged over sizes from what one can just see upwards."""
    # u ~ N(0, λ) or N(0, λ + τ²λ²)
    sizes = np.geomspace(1.0, 1e4, 13) / values.max()
    gains = sizes[:, None] * values
    each = 0.5 * np.sum(rotated**2 / values * gains / (1.0 + gains) - np.log1p(gains), axis=1)
    return float(logsumexp(each) - math.log(len(sizes)))


def _residual_sums(model: Model, left: Sequence[int], right: Sequence[int]) -> Float[np.ndarray, "l k r k"]:
    """Σ_rows residual φ_a(x_i) φ_b(x_j) of the smoothest functions of two sets of inputs, in one product."""
    rows, k = model.rows, TEST_DEGREE[2] - 1

    def smoothest(values, inputs):
        flat = np.zeros((len(values[inputs[0]]), len(inputs), k))
        for place, i in enumerate(inputs):
            own = rows.systems[i].of(SEEN)[:k]
            flat[:, place, : len(own)] = values[i][:, own]
        return flat.reshape(len(flat), -1)

    def products_of(values, y, weight):
        scaled = (weight * (y - model.at(values)))[:, None] * smoothest(values, left)
        return [scaled.T @ smoothest(values, right)]

    (sums,) = rows.source.total(products_of)
    return sums.reshape(len(left), k, len(right), k)


def _costs(model: Model, inputs: Sequence[int]) -> Float[np.ndarray, "l k"]:
    """Of the smoothest functions of some inputs, by how much each is less smooth than the first."""
    cost = np.zeros((len(inputs), TEST_DEGREE[2] - 1))
    for place, i in enumerate(inputs):
        own = model.rows.systems[i].of(SEEN)[: cost.shape[1]]
        cost[place, : len(own)] = model.rows.systems[i].cost[own] - 1.0
    return cost


def _largest_scores(model: Model, inputs: Sequence[int], n: int, wanted: Sequence[Term] | None = None) -> list[Term]:
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


def _energies(model: Model, inputs: Sequence[int]) -> dict[int, float]:
    """The scores of some inputs by themselves, all at once: Σ W u² of the functions that a test looks at, over Σ W."""
    rows = model.rows
    places = [_test_block(rows.systems, (i,)).index[:, 0] for i in inputs]

    def products_of(values, y, weight):
        residual = weight * (y - model.at(values))
        return [np.concatenate([residual @ values[i][:, own] for i, own in zip(inputs, places, strict=True)])]

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
    z = brentq(slope, *inside, xtol=1e-14 * top, rtol=1e-12)
    k = -0.5 * np.sum(d * np.log1p(-2.0 * a * z))
    w = math.copysign(math.sqrt(max(2.0 * (z * x - k), 1e-300)), z)
    v = z * math.sqrt(np.sum(2.0 * d * a**2 / (1.0 - 2.0 * a * z) ** 2))
    return float(np.exp(log_ndtr(-(w + math.log(v / w) / w))))
