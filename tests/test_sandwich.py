"""The variance of a score from the rows themselves: equal to loops, and right where noise is not what is assumed."""

import itertools

import numpy as np
import pytest

import vertebra as vb
from vertebra.terms import sums
from vertebra.terms.dependence import Together
from vertebra.terms.evidence import columns_of
from vertebra.terms.functions import system_of
from vertebra.terms.model import model_of
from vertebra.terms.sandwich import Against, doubt_of_groups, sandwiches
from vertebra.terms.score_test import block_tested, given_the_rest, own_score_tests, score_tests
from vertebra.terms.sums import RowSums


def rows_of(x, y, weight=None, together=None, noise_variance=None):
    weight = np.ones(len(x)) if weight is None else weight
    systems = [system_of(column, weight, 0) for column in x.T]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    return RowSums.held(systems, values, y, weight, noise_variance, None, together)


def table(n, seed, p=4):
    rng = np.random.default_rng(seed)
    x = rng.random((n, p))
    return rng, x, np.sin(5.0 * x[:, 0]) + x[:, 1] ** 2


def seen_of(rows, model, term):
    block = block_tested(rows, term)
    rows.learn_squares([block])
    rows.learn_products([block], model.basis.blocks)
    return block, given_the_rest(model, block, without_own=False)


@pytest.mark.parametrize("is_shrunk", [False, True])
@pytest.mark.parametrize("noise_variance", [None, 0.7])
@pytest.mark.parametrize("chunk", [13, 8192])
def test_it_is_the_sum_of_squares_of_every_rows_score(chunk, noise_variance, is_shrunk, monkeypatch):
    """By V⁻¹ = (I − H)/σ² of all rows at once, with a constant, row by row."""
    monkeypatch.setattr(sums, "CHUNK", chunk)
    rng, x, f = table(60, 0)
    weight, counts = rng.integers(1, 4, 60) * rng.uniform(0.5, 1.0, 60), rng.integers(1, 4, 60).astype(float)
    rows = rows_of(x, f + rng.standard_normal(60), weight, Together(counts), noise_variance)
    model = model_of(rows, [(0,), (1,)])
    block, seen = seen_of(rows, model, (0, 2))
    shrunk = np.linalg.inv(seen.information + np.eye(len(seen.u)))
    seen = seen._replace(shrunk=shrunk if is_shrunk else None)
    (found,), n = sandwiches(model, [[block]], [seen])
    assert n == 60

    values, variance = rows.source.values, model.posterior.noise_variance
    phi = np.column_stack([np.ones(60), model.basis(values)])
    prior = np.concatenate([[0.0], 1.0 / model.posterior.prior_sd**2])
    precision = phi.T @ (weight[:, None] * phi) / variance + np.diag(prior)
    hat = phi @ np.linalg.solve(precision, phi.T) * weight / variance
    c = columns_of([block], values)
    rest, away = c - hat @ c, rows.source.y - hat @ rows.source.y
    leverage = np.diag(hat) / counts
    if is_shrunk:
        own = rest @ shrunk @ rest.T * weight / variance
        away = away - own @ rows.source.y
        leverage = leverage + np.diag(own) / counts
    wanted = seen.information - rest.T @ (weight[:, None] * rest) / variance
    for i in range(60):
        score = rest[i] * weight[i] * away[i] / (1.0 - min(leverage[i], 0.9)) / variance
        wanted = wanted + np.outer(score, score) / counts[i]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())


def test_rows_of_a_group_are_added_before_they_are_squared():
    rng, x, f = table(80, 1)
    groups = np.repeat(np.arange(8), 10)[rng.permutation(80)]
    y = f + rng.standard_normal(80)
    alone, grouped = rows_of(x, y), rows_of(x, y, None, Together(np.ones(80), groups))
    model, other = model_of(alone, [(0,), (1,)]), model_of(grouped, [(0,), (1,)])
    block, seen = seen_of(alone, model, (0, 2))
    seen_of(grouped, other, (0, 2))
    (found,), n = sandwiches(other, [[block]], [seen])
    assert n == 8
    phi = model.basis(alone.source.values) - model.evidence.products.mean_phi
    rest = columns_of([block], alone.source.values) - alone.mean([block]) - phi @ seen.slopes
    variance = model.posterior.noise_variance
    leverage = np.sum((phi @ model.posterior.root) ** 2, axis=1) / variance + 1.0 / 80
    away = (y - y.mean() - phi @ model.posterior.mean) / (1.0 - leverage)
    scores = np.stack([(rest * away[:, None])[groups == g].sum(axis=0) for g in range(8)]) / variance
    wanted = seen.information - rest.T @ rest / variance + scores.T @ scores * 8 / 7
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())


def test_a_row_that_counts_three_times_is_three_equal_rows():
    rng, x, f = table(100, 2)
    y, counts = f + x[:, 2] * x[:, 3] * 6.0 + rng.standard_normal(100), rng.integers(1, 4, 100)
    model = model_of(rows_of(x, y, counts.astype(float)), [(0,), (1,)])
    often = model_of(rows_of(np.repeat(x, counts, axis=0), np.repeat(y, counts)), [(0,), (1,)])
    terms = [(2,), (3,), (2, 3)]
    found, wanted = score_tests(model, terms), score_tests(often, terms)
    for term in terms:
        # hyper-parameters by evidence, the same to a few digits
        assert found[term].p_value == pytest.approx(wanted[term].p_value, rel=0.02)


CASES = {
    "uneven": lambda rng, x: rng.standard_normal(len(x)) * np.exp(3.0 * (x[:, 0] + x[:, 3] - 1.0)),
    "four inputs": lambda rng, x: 60.0 * np.prod(x - 0.5, axis=1) + 0.3 * rng.standard_normal(len(x)),
    "heavy": lambda rng, x: rng.standard_t(2, len(x)),
}


@pytest.mark.parametrize("case", CASES)
def test_p_values_are_not_too_small_where_the_noise_is_not_as_assumed(case):
    p_values = []
    for seed in range(40):
        rng, x, f = table(400, seed)
        model = model_of(rows_of(x, f + CASES[case](rng, x)), [(i,) for i in range(4)])
        pairs = list(itertools.combinations(range(4), 2)) + list(itertools.combinations(range(4), 3))
        p_values += [score.p_value for score in score_tests(model, pairs).values()]
    # of 400 p-values, slightly dependent: 4 are expected below 0.01, 12 or more come once in a thousand tables
    assert np.mean(np.array(p_values) < 0.01) < 0.03
    assert np.mean(np.array(p_values) < 0.001) < 0.0125


def test_what_groups_share_is_not_taken_for_a_term_of_what_they_have_in_common():
    alone, grouped = [], []
    for seed in range(20):
        rng, x, f = table(400, seed)
        groups = np.repeat(np.arange(40), 10)
        x[:, 2:] = x[:40, 2:][groups]
        y = f + rng.standard_normal(40)[groups] + rng.standard_normal(400)
        for found, together in ((alone, None), (grouped, Together(np.ones(400), groups))):
            model = model_of(rows_of(x, y, None, together), [(0,), (1,)])
            found += [score.p_value for score in score_tests(model, [(2,), (3,), (2, 3)]).values()]
    assert np.mean(np.array(alone) < 0.01) > 0.3
    assert np.mean(np.array(grouped) < 0.01) < 0.04


def test_a_strong_effect_of_few_rows_is_not_its_own_noise():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 40, 400), rng.random(400)]).astype(float)
    few = x[:, 0] == 7
    y = 20.0 * few + rng.standard_normal(400)
    systems = [system_of(x[:, 0], np.ones(400), 40), system_of(x[:, 1], np.ones(400), 0)]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    model = model_of(RowSums.held(systems, values, y, np.ones(400)), [])
    # by its residuals without the term Q/Λ would be no more than the number of those rows
    assert few.sum() < 15
    assert score_tests(model, [(0,)])[(0,)].p_value < 1e-8


def test_a_term_of_the_model_has_the_models_own_residuals():
    rng, x, f = table(300, 3)
    model = model_of(rows_of(x, 5.0 * f + rng.standard_normal(300)), [(0,), (1,)])
    assert max(score.p_value for score in own_score_tests(model).values()) < 1e-12


def test_rows_in_files_have_no_variance_of_their_own():
    rng, x, f = table(60, 0)
    rows = rows_of(x, f + rng.standard_normal(60))
    model = model_of(rows, [(0,)])
    block, seen = seen_of(rows, model, (1,))
    rows.source = None
    with pytest.raises(TypeError, match="rows must be in memory"):
        sandwiches(model, [[block]], [seen])
    assert isinstance(seen, Against)


@pytest.mark.parametrize("noise", ["uneven in two inputs", "overdispersed counts"])
def test_a_fit_reports_no_interaction_that_its_noise_makes(noise):
    for seed in range(4):
        rng, x, f = table(600, seed, p=6)
        if noise == "overdispersed counts":
            y, likelihood = rng.negative_binomial(1.0, 1.0 / (1.0 + np.exp(1.5 * f))).astype(float), "poisson"
        else:
            y, likelihood = f + rng.standard_normal(600) * np.exp(3.0 * (x[:, 0] + x[:, 3] - 1.0)), "gaussian"
        asked = dict(likelihood=likelihood, remainder=False, random_state=0, evaluation="left_out")
        model = vb.AdditiveRegressor(**asked).fit(x, y)
        assert not len(model.interactions(fdr=0.05))


def test_what_groups_add_to_the_covariance_is_that_of_their_scores():
    rng, x, f = table(120, 4)
    groups = np.repeat(np.arange(12), 10)
    y = f + 2.0 * rng.standard_normal(12)[groups] + 0.3 * rng.standard_normal(120)
    model = model_of(rows_of(x, y, None, Together(np.ones(120), groups)), [(0,), (1,)])
    more = doubt_of_groups(model)
    variance, posterior = model.posterior.noise_variance, model.posterior
    phi = np.column_stack([np.ones(120), model.basis(model.rows.source.values)])
    prior = np.diag(np.concatenate([[0.0], 1.0 / posterior.prior_sd**2]))
    covariance = np.linalg.inv(phi.T @ phi / variance + prior)
    away = y - phi @ covariance @ phi.T @ y / variance
    scores = np.stack([(phi * away[:, None])[groups == g].sum(axis=0) for g in range(12)]) / variance
    noise, assumed = scores.T @ scores * 12 / 11, phi.T @ phi / variance
    root = np.linalg.cholesky(covariance)
    values, vectors = np.linalg.eigh(root.T @ (noise - assumed) @ root)
    wanted = root @ (vectors * np.maximum(values, 0.0)) @ vectors.T @ root.T
    np.testing.assert_allclose(more @ more.T, wanted, rtol=1e-5, atol=1e-8 * np.abs(wanted).max())
    with pytest.raises(TypeError, match="in groups"):
        doubt_of_groups(model_of(rows_of(x, y), [(0,)]))
