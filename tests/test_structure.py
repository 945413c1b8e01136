import itertools
import math

import numpy as np
import pytest
from scipy import stats

from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.terms import score_test, sums
from vertebra.terms import search as room
from vertebra.terms.chi_squares import chi_square_tail
from vertebra.terms.columns import columns
from vertebra.terms.evidence import Block, Evidence, basis_of
from vertebra.terms.families import Family
from vertebra.terms.functions import NEVER_SEEN, SEEN, system_of
from vertebra.terms.model import ROWS_PER_COLUMN, fit_basis, grown, model_of, most_columns
from vertebra.terms.score_test import (
    TEST_DEGREE,
    _scores,
    _tested,
    block_tested,
    given_the_rest,
    joint_p_value,
    largest_scores,
    own_score_tests,
    score_tests,
)
from vertebra.terms.search import FALSE_MAIN, Asked, _add_together, search, strongest
from vertebra.terms.structure import Score, Structure, discoveries, probabilities
from vertebra.terms.sums import RowSums

OF_NUMBERS = [Family.SMOOTH, Family.MATERN, Family.MATERN32, Family.BROWNIAN]


def rows_of(x, y, weight=None, n_levels=None, *, family=Family.SMOOTH, noise_variance=None):
    """Rows whose numbers have functions of one family."""
    weight = np.ones(len(x)) if weight is None else weight
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    systems = [system_of(column, weight, n) for column, n in zip(x.T, levels, strict=True)]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    chosen = {(i,): (family,) for i, system in enumerate(systems) if family in system.families}
    return RowSums.held(systems, values, y, weight, noise_variance, chosen)


def rows(name, n=1500, seed=0, noise=1.0, n_inputs=10, weight=None):
    data = synthetic(name, n, noise=noise, seed=seed, n_inputs=n_inputs)
    return rows_of(data.x, data.y, weight)


def mixed(n=300, seed=0, *, family=Family.SMOOTH, noise_variance=None):
    """Numbers, one with missing values, and a category, with weights."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 4))
    x[:, 2] = rng.integers(0, 4, n)
    x[rng.random(n) < 0.2, 3] = np.nan
    y = 3.0 * np.sin(5.0 * x[:, 0]) + (x[:, 2] == 1) * x[:, 1] * 4.0 + np.isnan(x[:, 3]) + rng.standard_normal(n)
    weight = rng.random(n) + 0.5
    weight[::10] = 0.0
    return rows_of(x, y, weight, (0, 0, 4, 0), family=family, noise_variance=noise_variance)


@pytest.mark.parametrize(("chunk", "family"), [(17, Family.SMOOTH), (8192, Family.SMOOTH), (17, Family.MATERN)])
def test_products_learned_block_by_block_are_those_of_all_columns(chunk, family, monkeypatch):
    monkeypatch.setattr(sums, "CHUNK", chunk)
    data = mixed(family=family)
    first = basis_of(data.systems, [(0,), (2,), (3,)], data.chosen, {1: 4})
    terms = [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (0, 1, 2)]
    whole = basis_of(data.systems, terms, data.chosen, {1: 4, 2: 3, 3: 4})
    data.learn_squares([*first.blocks[:2], whole.blocks[5]])
    data.learn_products(whole.blocks[4:6], whole.blocks[1:3])
    # in an order that finds some there already, others not
    for basis in (first, whole):
        found = data.products(basis)
        phi = basis(data.source.values)
        centred = phi - data.source.weight @ phi / data.source.weight.sum()
        mean_y = data.source.weight @ data.source.y / data.source.weight.sum()
        np.testing.assert_allclose(found.gram, (centred.T * data.source.weight) @ centred, atol=1e-9)
        np.testing.assert_allclose(found.cross, centred.T @ (data.source.weight * (data.source.y - mean_y)), atol=1e-9)
        np.testing.assert_allclose(found.mean_phi, data.source.weight @ phi / data.source.weight.sum(), atol=1e-12)
        assert found.mean_y == pytest.approx(mean_y)
        assert found.square == pytest.approx(data.source.weight @ (data.source.y - mean_y) ** 2)
        assert found.n == pytest.approx(data.source.weight.sum())
        assert found.noise_variance is None
    assert data.gram(whole.blocks[:2], whole.blocks[2:5]).shape == (
        sum(len(b.index) for b in whole.blocks[:2]),
        sum(len(b.index) for b in whole.blocks[2:5]),
    )
    assert data.gram(whole.blocks[:2], []).shape[1] == 0
    assert data.gram([], whole.blocks[:2]).shape[0] == 0


def test_products_in_single_precision_are_those_in_double(monkeypatch):
    double = mixed()
    basis = basis_of(double.systems, [(0,), (1,), (2,), (0, 1)])
    wanted = double.products(basis).gram
    monkeypatch.setattr(sums, "MUCH_WORK", 0.0)
    monkeypatch.setattr(sums, "CHUNK", 64)
    # 24 bits, on sums of hundreds of products of order one to ten
    np.testing.assert_allclose(mixed().products(basis).gram, wanted, atol=2e-2, rtol=1e-4)


def test_blocks_of_as_many_other_columns_are_told_apart():
    data = mixed()
    places = data.systems[0].of(SEEN)
    for index in (places[:6], np.append(places[:5], data.systems[0].of(NEVER_SEEN)[:1])):
        data.learn([Block((0,), index[:, None])])
        phi = data.source.values[0].of(index)
        np.testing.assert_allclose(
            data.mean([Block((0,), index[:, None])]), data.source.weight @ phi / data.total, atol=1e-9
        )
        centred = data.source.weight * (data.source.y - data.mean_y)
        np.testing.assert_allclose(data.cross([Block((0,), index[:, None])]), centred @ phi, atol=1e-6)


def test_the_fit_at_rows_and_its_variance_are_those_of_the_joint_posterior():
    data = mixed()
    model = model_of(data, [(0,), (1,), (2,), (3,), (1, 2)])
    design = np.concatenate([np.ones((len(data.source.y), 1)), model.basis(data.source.values)], axis=1)
    variance = model.posterior.noise_variance
    prior = np.append(0.0, model.posterior.prior_sd**-2.0)
    covariance = np.linalg.inv((design.T * data.source.weight) @ design / variance + np.diag(prior))
    mean = covariance @ design.T @ (data.source.weight * data.source.y) / variance
    np.testing.assert_allclose(model.at(data.source.values), design @ mean, atol=1e-6)
    wanted = np.einsum("nk,kl,nl->n", design, covariance, design)
    np.testing.assert_allclose(model.variance_at(data.source.values), wanted, atol=1e-6)
    # the trace of the hat matrix less the constant
    hat = np.trace(covariance @ (design.T * data.source.weight) @ design / variance)
    assert model.known.sum() == pytest.approx(hat - 1.0, abs=1e-6)
    assert model.freedom == pytest.approx(data.total - hat, abs=1e-6)


def test_p_values_are_uniform_where_there_is_no_interaction():
    # 40 tables of a purely additive function, all 45 pairs, tested against its own main effects
    p_values = []
    for seed in range(40):
        data = rows("smooth", 400, seed)
        model = model_of(data, [(i,) for i in range(5)])
        pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
        p_values += [score.p_value for score in score_tests(model, pairs).values()]
    # Kolmogorov–Smirnov at 1800 values, slightly dependent: the 0.1 % point is 0.046
    assert stats.kstest(p_values, "uniform").statistic < 0.046
    assert np.mean(np.array(p_values) < 0.01) < 0.02


def test_a_score_test_of_one_column_is_the_t_test():
    # One input of two values: one polynomial, and the test of it a t-test.
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 1)).astype(float)
    y = rng.standard_normal(60) + 0.5 * x[:, 0]
    model = model_of(rows_of(x, y), [])
    found = score_tests(model, [(0,)])[(0,)].p_value
    # the noise is that of the model without the term, as in a score test: F = t²(n − 1)/(n − 2 + t²) on (1, n − 1)
    t = stats.ttest_ind(y[x[:, 0] == 1], y[x[:, 0] == 0]).statistic
    score = t**2 * 59 / (58 + t**2)
    # the saddlepoint at one degree of freedom, its worst case
    assert found == pytest.approx(stats.f(1, 59).sf(score), rel=0.12)


@pytest.mark.everyday("SMOOTH", "BROWNIAN")
@pytest.mark.parametrize("family", OF_NUMBERS, ids=lambda family: family.name)
def test_p_values_of_levels_missing_values_and_local_functions_are_uniform_too(family):
    # 60 tables of noise with a category, a number with missing values and plain ones, of known and unknown noise
    p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = rng.random((200, 4))
        x[:, 2] = rng.integers(0, 6, 200)
        x[rng.random(200) < 0.2, 3] = np.nan
        y = rng.standard_normal(200)
        noise_variance = 1.0 if seed % 2 else None
        model = model_of(rows_of(x, y, None, (0, 0, 6, 0), family=family, noise_variance=noise_variance), [])
        terms = [(i,) for i in range(4)] + [(0, 1), (0, 2), (2, 3)]
        p_values += [score.p_value for score in score_tests(model, terms).values()]
    # Kolmogorov–Smirnov at 420 values, slightly dependent, and a saddlepoint good to a few per cent: the 0.1 % point is
    # 0.095
    assert stats.kstest(p_values, "uniform").statistic < 0.095
    assert np.mean(np.array(p_values) < 0.01) < 0.03


@pytest.mark.parametrize("noise_variance", [None, 1.0])
@pytest.mark.parametrize("family", OF_NUMBERS)
def test_the_score_and_its_variance_are_those_of_the_marginal_law_of_y(noise_variance, family, monkeypatch):
    """Q = uᵀWu, u = CᵀV⁻¹y, with V built row by row; a constant, and what gaps of an interaction's numbers tell, have
    a flat prior and are projected off.
    """
    monkeypatch.setattr(score_test, "LOOKS_REAL", 0.0)
    data = mixed(200, family=family, noise_variance=noise_variance)
    model = model_of(data, [(0,), (2,), (3,)])
    shown = data.source.weight > 0
    n = int(shown.sum())
    phi = model.basis(data.source.values)[shown]
    v = (
        np.diag(model.posterior.noise_variance / data.source.weight[shown])
        + (phi * model.posterior.prior_sd**2) @ phi.T
    )
    for term in ((1,), (0, 1), (1, 2), (2, 3)):
        block = block_tested(data, term)
        c = model.basis._replace(blocks=(block,))(data.source.values)[shown]
        is_gap = (block.index == [data.systems[i].gap for i in term]).any(axis=1) & (len(term) > 1)
        assert is_gap.any() == (term == (2, 3))
        flat = np.column_stack([np.ones(n), c[:, is_gap]])
        inverse = np.linalg.inv(v)
        inverse = inverse - inverse @ flat @ np.linalg.pinv(flat.T @ inverse @ flat) @ flat.T @ inverse
        c, index = c[:, ~is_gap], block.index[~is_gap]
        root = np.ones(len(index))
        for axis, i in enumerate(term):
            own = index[:, axis]
            root *= np.exp(0.5 * (data.systems[i].offset[own] - (data.systems[i].cost[own] - 1)))
        u = root * (c.T @ inverse @ data.source.y[shown])
        information = root[:, None] * (c.T @ inverse @ c) * root
        freedom = model.freedom if noise_variance is None else math.inf
        wanted = chi_square_tail(np.linalg.eigvalsh(information), float(u @ u), freedom)
        (found,) = _scores(model, [block])
        # the products' centring and the inverse of a 200 × 200 matrix: 1e-9 in Q
        assert found.p_value == pytest.approx(wanted, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("family", OF_NUMBERS)
def test_a_term_of_the_model_is_tested_as_if_it_had_never_been_in(family):
    data = mixed(300, family=family)
    model = model_of(data, [(0,), (1,), (2,), (3,), (1, 2), (0, 1)])
    n_blocks = len(model.basis.blocks)
    for k, block in enumerate(model.basis.blocks):
        # the others at the same hyper-parameters
        others = model.basis._replace(blocks=tuple(b for b in model.basis.blocks if b is not block))
        evidence = Evidence(others, data.products(others))
        theta = model.posterior.theta
        alphas = [theta[n_blocks + model.evidence.inputs.index(i)] for i in evidence.inputs]
        theta = np.concatenate([np.delete(theta[:n_blocks], k), alphas, theta[-1:]])
        without = model._replace(basis=others, evidence=evidence, posterior=evidence.posterior(theta))
        test = block_tested(data, block.term)
        data.learn_squares([test])
        data.learn_products([test], model.basis.blocks)
        own, alone = given_the_rest(model, test, without_own=True), given_the_rest(without, test, without_own=False)
        found, wanted = (_tested(model, [test], [each.u], [each.information], 200.0)[0] for each in (own, alone))
        # Σ_oo of prior and posterior variances in one matrix, solved
        assert found.p_value == pytest.approx(wanted.p_value, rel=1e-5, abs=1e-300)
        assert found.log_bayes_factor == pytest.approx(wanted.log_bayes_factor, rel=1e-6, abs=1e-6)
    assert set(own_score_tests(model)) == set(model.basis.terms)
    assert set(own_score_tests(model, [(1, 2)])) == {(1, 2)}


def test_terms_of_levels_and_missing_values_are_found():
    found, model = search(mixed(1500))
    assert set(found.terms) == {(0,), (1,), (2,), (3,), (1, 2)}
    assert model is not None
    assert model.basis.terms == found.terms
    assert found.n_candidates == {1: 4, 2: 6, 3: 4}


def test_only_what_is_asked_for_is_looked_for():
    data = rows("f1", 600)
    given, model = search(data, Asked(terms=[(0,), (1,), (0, 1)]))
    assert given.terms == ((0,), (1,), (0, 1))
    assert set(given.tests) == set(given.terms)
    assert model is not None
    inside, _ = search(data, Asked(within=[(0, 1), (3,)]))
    assert set(inside.terms) == {(0,), (1,), (3,), (0, 1)}
    assert set(inside.tests) <= {(0,), (1,), (3,), (0, 1)}
    mains, _ = search(data, Asked(max_order=1))
    assert all(len(term) == 1 for term in mains.terms)
    # without time main effects are looked at once, and nothing else
    stopped, _ = search(data, Asked(enough=lambda: True))
    assert {(0,), (1,), (3,)} <= set(stopped.terms)
    assert all(len(term) == 1 for term in stopped.tests)


def test_more_families_share_the_chance_of_a_false_term():
    rng = np.random.default_rng(0)
    x = rng.random((200, 1))
    data = rows_of(x, x[:, 0] + 0.5 * rng.standard_normal(200))
    p_value = score_tests(model_of(data, []), [(0,)])[(0,)].p_value
    enough = int(FALSE_MAIN / p_value)
    assert search(data, Asked(n_families=enough))[0].terms == ((0,),)
    assert search(data, Asked(n_families=enough + 1))[0].terms == ()


def test_the_strongest_pairs_are_those_of_the_smallest_p_values():
    data = rows("f1", 600)
    found = strongest(data, 3)
    assert found[:10] == [(i,) for i in range(10)]
    assert found[10] == (0, 1)
    assert len(found) == 13
    assert strongest(rows_of(np.random.default_rng(0).random((50, 1)), np.random.default_rng(1).random(50)), 3) == [
        (0,)
    ]


def test_a_term_of_local_functions_that_uses_its_columns_up_gets_more():
    rng = np.random.default_rng(0)
    x = rng.random((1500, 3))
    # a chessboard: no end of products of functions
    y = 3.0 * np.where((np.floor(5 * x[:, 0]) + np.floor(5 * x[:, 1])) % 2, 1.0, -1.0) + 0.3 * rng.standard_normal(1500)
    data = rows_of(x, y, family=Family.BROWNIAN)
    model = model_of(data, [(0,), (1,), (2,), (0, 1), (1, 2)])
    sizes = grown([model, None], is_last=True)
    assert sizes[(0, 1)] > model.basis.sizes[(0, 1)]
    assert sizes[(1, 2)] == model.basis.sizes[(1, 2)]  # nothing there
    assert sizes[(0,)] == model.basis.sizes[(0,)]
    assert sum(sizes.values()) <= 1500 / ROWS_PER_COLUMN
    # with them the evidence is higher
    wider = model_of(data, model.basis.terms, before=model, sizes=sizes)
    assert wider.basis.sizes[(0, 1)] == sizes[(0, 1)]
    assert wider.posterior.log_evidence > model.posterior.log_evidence
    smooth = model_of(rows_of(x, y), [(0,), (1,), (0, 1)])
    assert grown([smooth], is_last=True) == smooth.basis.sizes
    assert grown([None], is_last=True) == {}


def test_a_model_begun_where_another_ended_ends_where_one_from_the_start_does():
    data = mixed(400)
    before = model_of(data, [(0,), (2,)])
    terms = [(0,), (1,), (2,), (1, 2)]
    once, again = model_of(data, terms), model_of(data, terms, before=before)
    # both stop at a relative gain of 1e-6 of an evidence of hundreds
    assert again.posterior.log_evidence == pytest.approx(once.posterior.log_evidence, abs=0.02)
    np.testing.assert_allclose(again.at(data.source.values), once.at(data.source.values), atol=0.05)
    # the rounds that serve for many columns come close
    quick = fit_basis(data, once.basis, before=before, many=0, n_rounds=10)
    np.testing.assert_allclose(quick.at(data.source.values), once.at(data.source.values), atol=0.3)


@pytest.mark.parametrize("name", ["f1", "f2", "f3"])
def test_the_clusters_of_the_papers_functions_are_found(name):
    real = FUNCTIONS[name].strengths()
    wanted = {t for t in real if not any(set(t) < set(other) for other in real)}
    assert set(search(rows(name, 2500))[0].clusters) == wanted


def test_a_three_way_term_without_its_pairs_is_found():
    assert (0, 1, 2) in search(rows("parity", 3000))[0].terms


def test_noise_has_no_terms_and_a_constant_none_either():
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = rng.random((200, 5)), rng.standard_normal(200)
        found += bool(search(rows_of(x, y))[0].terms)
        constant, model = search(rows_of(x, np.full(200, 3.0)))
        assert constant.terms == ()
        assert model is None
    # 3.5 % each: two or more of ten in one run of twenty
    assert found <= 2


def test_rows_of_weight_zero_are_not_there():
    weight = np.ones(1600)
    weight[1500:] = 0.0
    data = synthetic("f1", 1600, seed=1)
    spoiled = data.y.copy()
    spoiled[1500:] = 1e6
    whole, _ = search(rows_of(data.x, spoiled, weight))
    part, _ = search(rows_of(data.x[:1500], data.y[:1500]))
    assert whole.terms == part.terms
    for term in part.terms:
        assert whole.tests[term].log_bayes_factor == pytest.approx(part.tests[term].log_bayes_factor, rel=1e-3)


def test_discoveries_are_those_of_benjamini_and_hochberg_inside_the_structure():
    tests = {(0, 1): Score(1e-6, 9.0), (0, 2): Score(0.02, 1.0), (1, 2): Score(0.04, 0.5), (0,): Score(1e-9, 20.0)}
    structure = Structure(((0,), (1,), (2,), (0, 1), (0, 2)), tests, {1: 3, 2: 3, 3: 0})
    # thresholds 0.05·(1, 2, 3)/3: all three pass, (1, 2) is not in the structure
    assert discoveries(structure, 0.05) == [(0, 1), (0, 2)]
    assert discoveries(structure, 0.01) == [(0, 1)]
    assert discoveries(structure, 1e-9) == []


def test_probabilities_grow_with_the_evidence_and_with_the_company():
    few = Structure((), {(0, 1): Score(0.1, 1.0), (0, 2): Score(0.5, -1.0)}, {2: 45})
    real = probabilities(few)
    assert real[(0, 2)] < real[(0, 1)] < 0.5
    company = {(i, i + 1): Score(1e-9, 30.0) for i in range(3, 40)}
    assert probabilities(Structure((), {**few.tests, **company}, {2: 45}))[(0, 1)] > real[(0, 1)]


def test_no_input_is_left_out_of_more_than_three_hundred():
    rng = np.random.default_rng(0)
    x = rng.random((400, 320))
    y = 3.0 * x[:, 319] + 0.3 * rng.standard_normal(400)
    assert search(rows_of(x, y))[0].terms == ((319,),)


def many_inputs(n, p, seed):
    rng = np.random.default_rng(seed)
    x = rng.random((n, p))
    systems = [system_of(column, np.ones(n)) for column in x.T]
    return x, lambda y: RowSums.held(systems, [s.at(c) for s, c in zip(systems, x.T, strict=True)], y, np.ones(n)), rng


def test_the_joint_test_of_all_pairs_keeps_its_level_where_there_are_none():
    p_values = []
    for seed in range(60):
        x, rows, rng = many_inputs(150, 5, seed)
        model = model_of(rows(2.0 * x[:, 0] + rng.standard_normal(150)), [(0,)])
        p_values.append(joint_p_value(model, list(itertools.combinations(range(5), 2))))
    # Kolmogorov's distance of 60 uniform values exceeds 0.21 with a probability of 1 %
    assert stats.kstest(p_values, "uniform").statistic < 0.21


def test_pairs_too_weak_to_be_seen_alone_are_seen_together_and_enter():
    x, rows, rng = many_inputs(600, 6, 0)
    pairs = list(itertools.combinations(range(6), 2))
    f = sum(1.6 * (x[:, i] - 0.5) * (x[:, j] - 0.5) for i, j in pairs)
    model = model_of(rows(f + 0.4 * rng.standard_normal(600)), [(i,) for i in range(6)])
    alone = score_tests(model, pairs)
    assert joint_p_value(model, pairs) < 0.1 * min(score.p_value for score in alone.values())
    added = _add_together(model, pairs, {}, Asked())
    assert len(added.basis.terms) > 12
    assert _add_together(model, pairs, {}, Asked(n_families=10**297)) is model
    assert _add_together(model, pairs, {}, Asked(enough=lambda: True)) is model


def test_where_noise_is_faint_products_of_local_functions_keep_all_digits(monkeypatch):
    monkeypatch.setattr("vertebra.terms.sums.MUCH_WORK", 0)
    rng = np.random.default_rng(0)
    x = rng.random((400, 2))
    systems = [system_of(column, np.ones(400)) for column in x.T]
    values = [s.at(c) for s, c in zip(systems, x.T, strict=True)]
    blocks = basis_of(systems, [(0,), (1,)], {(0,): (Family.BROWNIAN,), (1,): (Family.BROWNIAN,)}).blocks
    phi = np.concatenate([columns(values, b.term, b.index) for b in blocks], axis=1)
    exact = (phi - phi.mean(axis=0)).T @ (phi - phi.mean(axis=0))
    errors = []
    for faint in (False, True):
        rows = RowSums.held(systems, values, x[:, 0], np.ones(400))
        rows.faint = faint
        rows.learn_products(blocks, blocks)
        errors.append(np.abs(rows.gram(blocks, blocks) - exact).max())
    # single precision of sums of 400, and double
    assert errors[0] > 1e-6
    assert errors[1] < 1e-10


def test_all_main_effects_stay_where_many_poor_readings_of_one_thing_are_likelier_than_one():
    rng = np.random.default_rng(0)
    cause = rng.standard_normal(200)
    x = cause[:, None] + 1.5 * rng.standard_normal((200, 8))
    y = cause + 0.5 * rng.standard_normal(200)
    assert {(i,) for i in range(8)} <= set(search(rows_of(x, y))[0].terms)
    # and what has nothing to do with it is left out
    found = search(rows_of(rng.random((200, 8)), y))[0].terms
    assert len(found) < 8


def test_more_rows_allow_more_columns_within_limits():
    assert [most_columns(n) for n in (10, 400, 5000, 13_000)] == [8, 200, 900, 900]
    assert [most_columns(n) for n in (30_000, 48_000, 10**7)] == [2000, 3200, 3200]


def test_of_many_pairs_those_with_the_largest_scores_are_listed(rng, monkeypatch):
    x = rng.standard_normal((400, 12))
    y = x[:, 2] * x[:, 7] + x[:, 4] + 0.5 * rng.standard_normal(400)
    rows = rows_of(x, y)
    model = model_of(rows, [(4,)])
    everything = largest_scores(model, range(12), 66)
    assert everything[0] == (2, 7)
    assert len(set(everything)) == 66
    # some inputs at a time, in another order of sums, and the best of some
    monkeypatch.setattr(score_test, "INPUTS_AT_ONCE", 5)
    assert largest_scores(model, range(12), 10) == everything[:10]
    # a naive loop
    k = TEST_DEGREE[2] - 1
    residual = rows.source.y - model.at(rows.source.values)

    def energy(pair):
        one, other = (rows.source.values[i].of(np.arange(1, k + 1)) for i in pair)
        sums = (one * residual[:, None]).T @ other
        return sum(np.exp(-(a + b)) * sums[a, b] ** 2 for a in range(k) for b in range(k) if a + b < k)

    assert sorted(everything, key=energy, reverse=True) == everything


def test_a_wide_table_finds_the_same_terms_with_its_pairs_screened(rng, monkeypatch):
    x = rng.standard_normal((500, 16))
    y = 1.5 * x[:, 2] * x[:, 7] + x[:, 4] + np.sin(2.0 * x[:, 9]) + 0.5 * rng.standard_normal(500)
    whole, _ = search(rows_of(x, y))
    for home, name, value in (
        (room, "MAX_PAIRS", 20),
        (room, "MOST_SCREENED", 15),
        (room, "MAX_TESTS", 10),
        (score_test, "MAX_TESTS", 10),
        (score_test, "INPUTS_AT_ONCE", 4),
    ):
        monkeypatch.setattr(home, name, value)
    screened, _ = search(rows_of(x, y))
    assert set(screened.terms) == set(whole.terms)
    assert screened.n_candidates == whole.n_candidates


def test_of_many_inputs_a_category_that_acts_at_one_level_is_tested(rng, monkeypatch):
    x = rng.standard_normal((600, 40))
    x[:, 7] = rng.integers(0, 20, 600)
    y = 3.0 * (x[:, 7] == 13) + rng.standard_normal(600)
    model = model_of(rows_of(x, y, n_levels=[20 if i == 7 else 0 for i in range(40)]), [])
    monkeypatch.setattr(score_test, "MAX_TESTS", 8)
    found = score_tests(model, [(i,) for i in range(40)])
    assert len(found) == 8
    assert found[(7,)].p_value < 1e-8


def test_of_pairs_that_are_asked_for_as_many_are_tested_as_may_be(rng, monkeypatch):
    x = rng.standard_normal((300, 12))
    model = model_of(rows_of(x, x[:, 2] * x[:, 7] + rng.standard_normal(300)), [])
    monkeypatch.setattr(score_test, "MAX_TESTS", 10)
    monkeypatch.setattr(score_test, "INPUTS_AT_ONCE", 5)
    asked = [pair for pair in itertools.combinations(range(12), 2) if sum(pair) % 3 == 0]
    found = score_tests(model, asked)
    assert len(found) == 10
    assert set(found) <= set(asked)
    assert min(found, key=lambda t: found[t].p_value) == (2, 7)


def test_many_terms_that_others_explain_go_at_once_and_copies_not_together(rng, monkeypatch):
    x = np.sqrt(0.5) * rng.standard_normal((2000, 1)) + np.sqrt(0.5) * rng.standard_normal((2000, 8))
    x[:, 7] = 0.98 * x[:, 1] + 0.2 * x[:, 7]
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + rng.standard_normal(2000)
    every = [*((i,) for i in range(8)), *itertools.combinations(range(8), 2)]
    tested, found = [], {}
    monkeypatch.setattr(room, "own_score_tests", lambda *given: tested.append(given) or own_score_tests(*given))
    for share in (0.25, 0.0):
        tested.clear()
        monkeypatch.setattr(room, "DROPPED_SHARE", share)
        kept = room._drop_explained(model_of(rows_of(x, y), every), lambda t: 1e-4, set())
        found[share] = set(kept.basis.terms), len(tested)
    (several, few_rounds), (singly, many_rounds) = found[0.25], found[0.0]
    assert several == singly
    # one of the two copies is in the product that is there
    assert several & {(0, 1), (0, 7)}
    assert few_rounds < 0.6 * many_rounds
