import numpy as np
import pytest
from scipy.special import expit, softmax

from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.likelihoods import Categorical
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import Classes, Counts, HeavyTails, Plain, UnevenNoise
from vertebra.terms import families
from vertebra.terms.additive import fit_additive


def fit(x, y, weight=None, working=None, **settings):
    weight = np.ones(len(x)) if weight is None else weight
    working = Plain(y[:, None] if y.ndim == 1 else y, weight) if working is None else working
    return fit_additive(x, working, weight, rng=np.random.default_rng(0), **settings)


def rmse(fitted, x, f):
    return float(np.sqrt(np.mean((fitted.terms.mean(x)[:, 0] - f) ** 2)))


def test_a_weight_is_a_number_of_equal_rows():
    # three main effects have fewer columns than half the rows, either way; and so few rows no rough functions
    data = synthetic("smooth", 140, seed=0)
    weight = np.ones(140)
    weight[::3] = 2.0
    repeat = np.repeat(np.arange(140), weight.astype(int))
    x, clusters = data.x[:, :3], [(0,), (1,), (2,)]
    once = fit(x, data.y, weight, clusters=clusters)
    again = fit(x[repeat], data.y[repeat], clusters=clusters)
    at = synthetic("smooth", 50, seed=1).x[:, :3]
    # L-BFGS ends at a relative gain of 1e-9, up to which the last bit decides
    for a, b in zip(once.terms.moments(at), again.terms.moments(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.02, atol=2e-3)
    np.testing.assert_allclose(once.likelihood.scale, again.likelihood.scale, rtol=1e-3)


def test_few_rows_that_come_twice_are_no_proof_of_no_noise():
    # as many columns as distinct rows, and equal targets wherever rows are equal: the evidence of no noise is infinite
    data = synthetic("f1", 90, seed=0)
    fitted = fit(data.x[:, :5], data.y, np.tile([1.0, 2.0, 3.0], 30))
    assert np.isfinite(fitted.terms.moments(data.x[:, :5])[1]).all()


@pytest.mark.parametrize("kind", [Plain, Classes, Counts, HeavyTails, UnevenNoise])
def test_rows_of_weight_zero_are_not_there(kind):
    rng = np.random.default_rng(0)
    x = rng.random((250, 2))
    y = rng.poisson(np.exp(2.0 * x[:, 0])).astype(float)
    weight = np.ones(250)
    weight[150:] = 0.0
    spoiled = x.copy()
    spoiled[150:] = 50.0

    def working(y, weight):
        return Classes((y > 2).astype(int), 2, weight) if kind is Classes else kind(y[:, None], weight)

    whole = fit(spoiled, y, weight, working(np.where(weight > 0, y, 3.0), weight))
    part = fit(x[:150], y[:150], None, working(y[:150], np.ones(150)))
    assert whole.terms.basis.terms == part.terms.basis.terms
    # iterated reweighting starts and stops a little apart: at 2e-3 of the spread of f; the median of heavy tails is
    # where it starts only
    np.testing.assert_allclose(whole.terms.mean(x), part.terms.mean(x), atol=0.02 if kind is not Plain else 1e-3)


@pytest.mark.parametrize("name", ["f1", "smooth"])
def test_a_smooth_function_stays_smooth_and_its_bands_hold(name):
    data, new = synthetic(name, 800, seed=0), synthetic(name, 1000, seed=1)
    fitted = fit(data.x, data.y)
    assert not any(map(fitted.terms.basis.is_local, fitted.terms.basis.blocks))
    real = FUNCTIONS[name].strengths()
    assert set(fitted.clusters) == {t for t in real if not any(set(t) < set(other) for other in real)}
    # of 800 rows of noise 1 and some forty coefficients: √(40/800) = 0.22
    assert rmse(fitted, new.x, new.f) < 0.3
    np.testing.assert_allclose(fitted.likelihood.scale, [1.0], rtol=0.1)
    mean, variance = fitted.terms.moments(new.x)
    inside = np.abs(mean[:, 0] - new.f) < 1.96 * np.sqrt(variance[:, 0])
    # over rows of one table, not over tables: errors of one function are alike
    assert inside.mean() > 0.85


def test_steps_are_taken_for_rough_and_fitted_better(monkeypatch):
    rng = np.random.default_rng(0)
    x, new = rng.random((1000, 3)), rng.random((1000, 3))

    def steps(x):
        return np.floor(7 * x[:, 0]) % 3 + 2.0 * (x[:, 1] > 0.37) * (x[:, 0] > 0.5)

    y = steps(x) + 0.2 * rng.standard_normal(1000)
    rough = fit(x, y)
    assert rough.terms.basis.is_local(rough.terms.basis.blocks[0])
    monkeypatch.setattr(families, "N_LOCAL", 0)
    smooth = fit(x, y)
    assert not any(map(smooth.terms.basis.is_local, smooth.terms.basis.blocks))
    assert rmse(rough, new, steps(new)) < 0.9 * rmse(smooth, new, steps(new))


def test_two_classes_have_a_logit_near_the_known_one():
    rng = np.random.default_rng(0)
    x = rng.random((2000, 3))
    logit = 3.0 * np.sin(4.0 * x[:, 0]) + 2.0 * x[:, 1] - 1.5
    y = (rng.random(2000) < expit(logit)).astype(int)
    fitted = fit(x, y, working=Classes(y, 2, np.ones(2000)))
    found = fitted.terms.mean(x)[:, 0]
    assert set(fitted.clusters) == {(0,), (1,)}
    # weights of at most a quarter: a dozen coefficients of sd 2/√2000
    assert np.sqrt(np.mean((expit(found) - expit(logit)) ** 2)) < 0.04
    assert np.sqrt(np.mean((found - logit) ** 2)) < 0.35
    # at the mode, with a constant of flat prior, the probabilities add up to the classes seen
    assert expit(found).mean() == pytest.approx(y.mean(), abs=2e-3)
    mean, variance = fitted.terms.moments(x)
    assert (np.abs(mean[:, 0] - logit) < 1.96 * np.sqrt(variance[:, 0])).mean() > 0.85


def test_three_classes_have_probabilities_near_the_known_ones():
    rng = np.random.default_rng(0)
    x = rng.random((2000, 2))
    p = softmax(np.stack([4.0 * x[:, 0], 2.0 + 0.0 * x[:, 0], 4.0 * x[:, 1]], axis=1), axis=1)
    y = (rng.random((2000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    fitted = fit(x, y, working=Classes(y, 3, np.ones(2000)))
    found = softmax(fitted.terms.mean(x), axis=1)
    assert len(fitted.structures) == fitted.terms.n_outputs == 3
    assert np.sqrt(np.mean((found - p) ** 2)) < 0.04
    np.testing.assert_allclose(found.mean(axis=0), [np.mean(y == k) for k in range(3)], atol=0.01)


def test_levels_never_seen_and_values_missing_for_the_first_time_have_wider_bands():
    rng = np.random.default_rng(0)
    effects = 2.0 * rng.standard_normal(8)
    effects[7] = 5.0
    codes = rng.integers(0, 7, 400)  # of 8 levels, the last is not in the table
    number = rng.random(400)
    y = effects[codes] + 2.0 * number + 0.3 * rng.standard_normal(400)
    gaps = rng.random(400) < 0.15
    x = np.stack([np.where(gaps, np.nan, codes), number], axis=1)
    y[gaps] = 2.0 * number[gaps] + 3.0
    fitted = fit(x, y, n_levels=(8, 0))
    rows = np.array([[0.0, 0.5], [3.0, 0.5], [np.nan, 0.5], [7.0, 0.5], [-1.0, 0.5], [0.0, np.nan]])
    mean, variance = (part[:, 0] for part in fitted.terms.moments(rows))
    # levels and missing values that were seen: 0.3/√50
    np.testing.assert_allclose(mean[:3], [effects[0] + 1.0, effects[3] + 1.0, 4.0], atol=0.25)
    assert np.sqrt(variance[:3]).max() < 0.15
    # the sd of the levels' effects, learned from eight of them
    spread = np.std(np.append(effects[:7], 3.0), ddof=1)
    for k in (3, 4):
        assert spread / 2 < np.sqrt(variance[k]) < 2.5 * spread
    assert variance[3] == pytest.approx(variance[4])
    assert mean[3] == pytest.approx(mean[4])
    # the number was never missing: its effect is open, that of the level is not
    assert variance[5] > 10 * variance[0]


def test_a_value_missing_for_the_first_time_is_no_catastrophe_at_any_number_of_rows():
    for n in range(100, 110):
        data = synthetic("smooth", n, seed=0)
        fitted = fit(data.x[:, :3], data.y, clusters=[(0,), (1,), (2,)])
        row = np.array([[np.nan, 0.5, 0.5]])
        assert fitted.terms.moments(row)[1][0, 0] < 100.0 * np.var(data.y)


def test_a_constant_target_has_no_terms():
    x = np.random.default_rng(0).random((60, 2))
    fitted = fit(x, np.full(60, 3.0))
    assert fitted.clusters == ()
    mean, variance = fitted.terms.moments(x)
    np.testing.assert_allclose(mean, 3.0)
    assert variance.max() < 1e-9
    # and with terms given, these are zero
    given = fit(x, np.full(60, 3.0), clusters=[(0, 1)])
    assert set(given.terms.basis.terms) == {(0,), (1,), (0, 1)}
    np.testing.assert_allclose(given.terms.mean(x), 3.0)


def test_inputs_that_do_not_vary_are_left_out():
    rng = np.random.default_rng(0)
    x = np.stack([np.full(128, 2.0), rng.random(128), np.full(128, np.nan), np.zeros(128)], axis=1)
    y = 3.0 * x[:, 1] + 0.1 * rng.standard_normal(128)
    fitted = fit(x, y, n_levels=(0, 0, 0, 3))
    assert fitted.clusters == ((1,),)
    given = fit(x, y, n_levels=(0, 0, 0, 3), clusters=[(0, 1), (2,)])
    assert given.terms.basis.terms == ((1,),)
    assert np.isfinite(given.terms.moments(x)[1]).all()


def test_targets_have_their_own_noise_and_tests_and_share_terms():
    rng = np.random.default_rng(0)
    x = rng.random((500, 3))
    f = np.stack([4.0 * x[:, 0], 100.0 * np.sin(5.0 * x[:, 1])], axis=1)
    y = f + rng.standard_normal((500, 2)) * [0.5, 20.0]
    fitted = fit(x, y)
    assert fitted.structures[0].terms == ((0,),)
    assert fitted.structures[1].terms == ((1,),)
    assert fitted.terms.basis.terms == fitted.clusters == ((0,), (1,))
    np.testing.assert_allclose(fitted.likelihood.scale, [0.5, 20.0], rtol=0.1)
    # a dozen coefficients of sd σ/√500
    assert (np.sqrt(np.mean((fitted.terms.mean(x) - f) ** 2, axis=0)) < [0.1, 5.0]).all()


def test_clusters_given_are_those_fitted_and_within_bounds_the_search():
    data = synthetic("f1", 300, seed=0)
    given = fit(data.x, data.y, clusters=[(0, 1), (2,)])
    assert given.clusters == ((2,), (0, 1))
    assert set(given.terms.basis.terms) == {(0,), (1,), (2,), (0, 1)}
    assert set(given.structures[0].tests) == {(0,), (1,), (2,), (0, 1)}
    within = fit(data.x, data.y, within=[(0, 1), (2,)])
    assert set(within.clusters) == {(0, 1), (2,)}
    # a search without time looks at main effects once, and no further
    stopped = fit(data.x, data.y, enough=lambda: True)
    assert {(0,), (1,), (3,)} <= set(stopped.clusters)
    assert all(len(cluster) == 1 for cluster in stopped.clusters)
    # the constant alone: the mean of y and its standard error
    mean, variance = fit(data.x, data.y, clusters=[]).terms.moments(data.x[:1])
    assert mean[0, 0] == pytest.approx(data.y.mean())
    assert variance[0, 0] == pytest.approx(data.y.var(ddof=1) / 300)


def test_what_is_done_is_reported():
    said = []
    data = synthetic("smooth", 250, seed=0)
    fit(data.x, data.y, report=said.append)
    assert said[:2] == ["choosing the functions of every input", "testing 10 inputs and their 45 pairs"]
    assert said[2].startswith("fitting ")


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_units_of_the_target_do_not_matter(shift):
    data = synthetic("f1", 150, seed=0)
    plain = fit(data.x[:, :5], data.y)
    other = fit(data.x[:, :5], 1e3 * data.y + shift)
    assert plain.terms.basis.terms == other.terms.basis.terms
    mean, variance = plain.terms.moments(data.x[:, :5])
    there = other.terms.moments(data.x[:, :5])
    # the two end within a relative gain of 1e-9 of the highest evidence
    np.testing.assert_allclose((there[0] - shift) / 1e3, mean, atol=0.01)
    np.testing.assert_allclose(there[1] / 1e6, variance, rtol=0.05)


def test_inputs_that_stand_for_each_other_share_the_say_where_the_elbo_is_higher():
    rng = np.random.default_rng(0)
    cause = rng.standard_normal(300)
    # eight readings of one thing, each poor: its ELBO with all of them is higher by 9
    x = cause[:, None] + 2.0 * rng.standard_normal((300, 8))
    y = (2.0 * cause + rng.standard_normal(300) > 0).astype(int)
    fitted = fit(x, y.astype(float), working=Classes(y, 2, np.ones(300)))
    assert fitted.clusters == tuple((i,) for i in range(8))
    # and beside one that acts, inputs that have nothing to do with it are left out
    x = rng.random((400, 8))
    y = (3.0 * (x[:, 0] - 0.5) + 0.7 * rng.standard_normal(400) > 0).astype(int)
    assert fit(x, y.astype(float), working=Classes(y, 2, np.ones(400))).clusters == ((0,),)


def test_a_fit_with_much_freedom_is_widened_by_what_it_misses_new_rows_by():
    covered, plain = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, new = rng.random((150, 6)), rng.random((2000, 6))
        f = lambda x: np.sin(9.0 * x[:, 0] * x[:, 1]) + np.cos(8.0 * x[:, 2] * x[:, 3]) + x[:, 4]  # noqa: E731
        y, outcome = f(x) + 0.3 * rng.standard_normal(150), f(new) + 0.3 * rng.standard_normal(2000)
        for results, more in ((covered, {}), (plain, {"calibrate": False})):
            fitted = fit(x, y, **more)
            mean, variance = (part[:, 0] for part in fitted.terms.moments(new))
            results.append(np.mean(np.abs(outcome - mean) < 1.96 * np.sqrt(variance + fitted.noise[0])))
    assert np.mean(covered) > np.mean(plain) + 0.005
    assert 0.92 < np.mean(covered) < 0.99


def test_a_fit_of_many_rows_is_not_fitted_again(monkeypatch):
    monkeypatch.setattr("vertebra.terms.additive.overconfidence", lambda *_: pytest.fail("checked"))
    data = synthetic("f1", 1000, seed=0)
    fit(data.x, data.y)


@pytest.mark.parametrize("seed", [0, 1])
def test_three_classes_that_can_be_told_apart_come_to_rest(seed):
    rng = np.random.default_rng(seed)
    x, new = rng.uniform(-1.5, 1.5, (150, 2)), rng.uniform(-1.5, 1.5, (2000, 2))
    classes, outcome = (np.digitize(2.0 * v[:, 0] + 0.3 * rng.standard_normal(len(v)), [-1.0, 1.0]) for v in (x, new))
    fitted = fit(x, classes.astype(float), working=Classes(classes, 3, np.ones(150)))
    p = softmax(fitted.terms.mean(new), axis=1)
    # steps of all logits at once by their own curvatures swing for ever: a log loss of 0.6 to 2.4
    assert -np.mean(np.log(p[np.arange(2000), outcome])) < 0.3
    assert np.mean(np.argmax(p, axis=1) == outcome) > 0.9
    left = Predictive(Categorical(3), *fitted.left_out).probabilities()
    assert -np.mean(np.log(left[np.arange(150), classes])) < 0.4
