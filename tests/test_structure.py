import numpy as np
import pytest
from scipy import stats

from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.polynomials import orthonormal
from vertebra.structure import (
    Rows,
    Score,
    Structure,
    _score_test,
    chi_square_tail,
    discoveries,
    model_of,
    probabilities,
    search,
)


def rows(name, n=1500, seed=0, noise=1.0, n_inputs=10, weight=None):
    data = synthetic(name, n, noise=noise, seed=seed, n_inputs=n_inputs)
    weight = np.ones(n) if weight is None else weight
    polynomials = orthonormal(data.x, weight)
    return Rows(polynomials, polynomials(data.x), data.y, weight)


@pytest.mark.parametrize("freedom", [np.inf, 20.0])
def test_the_saddlepoint_tail_agrees_with_exact_laws(freedom):
    for k, q in ((1, 3.0), (1, 15.0), (4, 6.0), (4, 30.0), (10, 2.0)):
        exact = stats.chi2(k).sf(q) if np.isinf(freedom) else stats.f(k, freedom).sf(q / k)
        # Lugannani–Rice: a few per cent, also far out; 1 degree of freedom is its worst case
        assert chi_square_tail(np.ones(k), q, freedom) == pytest.approx(exact, rel=0.12 if k == 1 else 0.03)
    weights = np.array([3.0, 1.0, 0.3, 0.1])
    draws = np.random.default_rng(0).chisquare(1, (200_000, 4)) @ weights
    for q in (2.0, 8.0, 20.0):
        # Monte Carlo error below 3 % at the smallest of these probabilities
        assert chi_square_tail(weights, q) == pytest.approx((draws > q).mean(), rel=0.06)
    assert chi_square_tail(weights, 0.0) == 1.0


def test_p_values_are_uniform_where_there_is_no_interaction():
    # 40 tables of a purely additive function, all 45 pairs, tested against its own main effects
    p_values = []
    for seed in range(40):
        data = rows("smooth", 400, seed)
        model = model_of(data, [(i,) for i in range(5)])
        residual, freedom = model.residual, model.freedom
        pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
        p_values += [_score_test(model, residual, freedom, pair).p_value for pair in pairs]
    # Kolmogorov–Smirnov at 1800 values, slightly dependent: the 0.1 % point is 0.046
    assert stats.kstest(p_values, "uniform").statistic < 0.046
    assert np.mean(np.array(p_values) < 0.01) < 0.02


def test_a_score_test_of_one_column_is_the_t_test():
    # One input of two values: one polynomial, and the test of it a t-test.
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 1)).astype(float)
    y = rng.standard_normal(60) + 0.5 * x[:, 0]
    polynomials = orthonormal(x, np.ones(60))
    model = model_of(Rows(polynomials, polynomials(x), y, np.ones(60)), [])
    found = _score_test(model, model.residual, model.freedom, (0,)).p_value
    # the noise is that of the model without the term, as in a score test: F = t²(n − 1)/(n − 2 + t²) on (1, n − 1)
    t = stats.ttest_ind(y[x[:, 0] == 1], y[x[:, 0] == 0]).statistic
    score = t**2 * 59 / (58 + t**2)
    # the saddlepoint at one degree of freedom, its worst case
    assert found == pytest.approx(stats.f(1, 59).sf(score), rel=0.12)


@pytest.mark.parametrize("name", ["f1", "f2", "f3"])
def test_the_clusters_of_the_papers_functions_are_found(name):
    real = FUNCTIONS[name].strengths()
    wanted = {t for t in real if not any(set(t) < set(other) for other in real)}
    assert set(search(rows(name, 2500)).clusters) == wanted


def test_a_three_way_term_without_its_pairs_is_found():
    assert (0, 1, 2) in search(rows("parity", 3000)).terms


def test_noise_has_no_terms_and_a_constant_none_either():
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = rng.random((200, 5)), rng.standard_normal(200)
        polynomials = orthonormal(x, np.ones(200))
        found += bool(search(Rows(polynomials, polynomials(x), y, np.ones(200))).terms)
        assert search(Rows(polynomials, polynomials(x), np.full(200, 3.0), np.ones(200))).terms == ()
    # 3.5 % each: two or more of ten in one run of twenty
    assert found <= 2


def test_rows_of_weight_zero_are_not_there():
    weight = np.ones(1600)
    weight[1500:] = 0.0
    data = synthetic("f1", 1600, seed=1)
    spoiled = data.y.copy()
    spoiled[1500:] = 1e6
    polynomials = orthonormal(data.x, weight)
    kept = orthonormal(data.x[:1500], np.ones(1500))
    whole = search(Rows(polynomials, polynomials(data.x), spoiled, weight))
    part = search(Rows(kept, kept(data.x[:1500]), data.y[:1500], np.ones(1500)))
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
    polynomials = orthonormal(x, np.ones(400))
    assert search(Rows(polynomials, polynomials(x), y, np.ones(400))).terms == ((319,),)
