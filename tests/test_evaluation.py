import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, roc_auc_score

import vertebra as vb
from vertebra.likelihoods import Gaussian, Poisson, StudentT
from vertebra.likelihoods.gaussian_rows import Response, left_out
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.evaluation import LEVELS, cross_fitted, fit_linear, folds_for, of_classes, of_numbers
from vertebra.models.rows import Rows
from vertebra.models.scores import Method


def test_leaving_a_row_out_in_closed_form_is_leaving_it_out(rng):
    n, m, noise = 40, 12, 0.3
    phi, weight = rng.standard_normal((n, m)), rng.choice([0.4, 1.0, 2.0, 7.5], n)
    y = phi @ rng.standard_normal(m) + rng.standard_normal(n)

    def posterior(weight):
        precision = np.eye(m) + phi.T @ (weight[:, None] * phi) / noise
        covariance = np.linalg.inv(precision)
        return covariance @ phi.T @ (weight * y) / noise, covariance

    mean, covariance = posterior(weight)
    variance = np.sum((phi @ covariance) * phi, axis=1)[:, None]
    means, variances = left_out((phi @ mean)[:, None], variance, variance, [Response(y, weight, None)], [noise], weight)
    for i in range(n):
        # one of the rows that a weight stands for, or all of less than one
        own, left = posterior(np.where(np.arange(n) == i, np.maximum(weight - 1.0, 0.0), weight))
        np.testing.assert_allclose(means[i, 0], phi[i] @ own, rtol=1e-8)
        np.testing.assert_allclose(variances[i, 0], phi[i] @ left @ phi[i], rtol=1e-8)


def test_each_row_left_out_tells_how_new_rows_are_predicted():
    ahead = []
    for seed in range(4):
        train, test = vb.datasets.synthetic("f1", 500, seed=seed), vb.datasets.synthetic("f1", 4000, seed=100 + seed)
        model = vb.AdditiveRegressor(random_state=0).fit(train.x, train.y)
        inside, outside = model.evaluation_.scores, model.evaluate(test.x, test.y).scores
        ahead.append(outside["model"]["rmse"] / inside["model"]["rmse"])
        # the sd of a root mean square of 500 residuals is 3 %
        np.testing.assert_allclose(outside["linear"]["rmse"], inside["linear"]["rmse"], rtol=0.12)
        assert 0.9 < inside["model"]["coverage_95"] < 0.99
    # up to what choosing the terms with the rows flatters, and chance
    np.testing.assert_allclose(np.mean(ahead), 1.0, atol=0.06)


@pytest.mark.parametrize("kind", ["gaussian", "student_t", "poisson"])
def test_ranks_are_uniform_where_the_model_is_right(kind, rng):
    n = 4000
    mean, variance = rng.standard_normal((n, 1)), np.full((n, 1), 0.2)
    f = mean + np.sqrt(variance) * rng.standard_normal((n, 1))
    likelihood, y = {
        "gaussian": (Gaussian(np.array([0.7])), f + 0.7 * rng.standard_normal((n, 1))),
        "student_t": (StudentT(np.array([0.7]), 4.0), f + 0.7 * rng.standard_t(4, (n, 1))),
        "poisson": (Poisson(), rng.poisson(np.exp(f)).astype(float)),
    }[kind]
    predictive = Predictive(likelihood, mean, variance)
    below, upto = predictive._ranks(y)
    ranks = below + rng.random(upto.shape) * (upto - below)
    # Kolmogorov's distance of 4000 uniform values exceeds 0.031 with a probability of 0.1 %
    assert stats.kstest(ranks[:, 0], "uniform").statistic < 0.031
    evaluation = of_numbers(
        Method.HELD_OUT, predictive, y, np.ones(n), linear=mean, centre=np.zeros(1), unit=np.ones(1)
    )
    curve = evaluation.curve()
    assert list(curve["expected"]) == list(LEVELS)
    assert ((curve["lower"] <= curve["expected"]) & (curve["expected"] <= curve["upper"])).mean() > 0.7
    draws = predictive.points(slice(None))
    by_hand = {
        "gaussian": lambda: stats.norm(mean, np.sqrt(variance + 0.49)).logpdf(y),
        "student_t": lambda: np.log(stats.t(4, draws, 0.7).pdf(y).mean(axis=0)),
        "poisson": lambda: np.log(stats.poisson(np.exp(draws)).pmf(y).mean(axis=0)),
    }[kind]()
    np.testing.assert_allclose(predictive.log_prob(y), by_hand, rtol=1e-5)


def test_the_linear_model_is_scikit_learn_s_on_the_same_columns(rng):
    n = 300
    matrix = np.stack([rng.standard_normal(n), rng.integers(0, 3, n).astype(float)], axis=1)
    y, weight = rng.standard_normal((n, 2)) + matrix[:, :1], rng.random(n) + 0.5
    centre = np.average(matrix[:, 0], weights=weight)
    z = (matrix[:, 0] - centre) / np.sqrt(np.average((matrix[:, 0] - centre) ** 2, weights=weight))
    zeros = np.zeros((n, 1))
    design = np.concatenate([z[:, None], zeros, matrix[:, 1:] == np.arange(3), zeros], axis=1)
    ours = fit_linear(matrix, y, weight, [0, 3])
    theirs = Ridge().fit(design, y, weight)
    np.testing.assert_allclose(ours(matrix), theirs.predict(design), rtol=1e-9)
    codes = rng.integers(0, 3, n)
    ours = fit_linear(matrix, codes[:, None].astype(float), weight, [0, 3], classes=3)
    theirs = LogisticRegression(max_iter=300).fit(design, codes, weight)
    np.testing.assert_allclose(ours(matrix), theirs.decision_function(design), atol=1e-6)
    # gaps, and levels never seen, have a reading too
    assert np.isfinite(ours(np.array([[np.nan, np.nan], [0.0, -1.0]]))).all()
    rows = Rows(matrix, y, weight)
    said = cross_fitted(rows, folds_for(rows, 0), [0, 3])
    assert said.shape == y.shape
    assert np.abs(said - fit_linear(matrix, y, weight, [0, 3])(matrix)).max() > 1e-4


def test_scores_of_classes_are_scikit_learn_s(rng):
    n = 500
    logits = rng.standard_normal((n, 1))
    p = 1.0 / (1.0 + np.exp(-logits))
    codes = (rng.random(n) < p[:, 0]).astype(int)
    weight = rng.random(n) + 0.1
    both = np.concatenate([1.0 - p, p], axis=1)
    found = of_classes(Method.HELD_OUT, both, codes, weight, linear=logits, shares=np.array([0.5, 0.5]), matrix=logits)
    for who in ("model", "linear"):
        np.testing.assert_allclose(found.scores[who]["log_loss"], log_loss(codes, both, sample_weight=weight))
        np.testing.assert_allclose(found.scores[who]["auc"], roc_auc_score(codes, p[:, 0], sample_weight=weight))
    np.testing.assert_allclose(found.scores["shares"]["log_loss"], np.log(2.0))
    curve = found.curve()
    assert ((curve["lower"] <= curve["expected"]) & (curve["expected"] <= curve["upper"])).sum() >= 8
    np.testing.assert_allclose(curve["n"].sum(), weight.sum())


def test_several_targets_have_scores_each(rng):
    x = rng.random((200, 2))
    y = pd.DataFrame({"a": x[:, 0] + 0.1 * rng.standard_normal(200), "b": 100.0 * rng.standard_normal(200)})
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    assert model.target_names_ == ["a", "b"]
    own = model.evaluation_.scores["model"]
    assert own["rmse 0"] < 0.15
    assert own["rmse 1"] > 50.0
    assert "rmse 0" in str(model.evaluation_)
    with pytest.raises(ValueError, match="`y` must have 2 column"):
        model.evaluate(x, y["a"])


def test_rows_that_were_not_fitted_are_scored_in_the_units_of_the_target(rng):
    x = rng.random((300, 3))
    y = 1e4 + 1e3 * x[:, 0] + 100.0 * rng.standard_normal(300)
    model = vb.AdditiveRegressor(random_state=0).fit(x[:200], y[:200])
    found = model.evaluate(x[200:], y[200:]).scores
    mean, sd = model.predict(x[200:], return_std=True)
    np.testing.assert_allclose(found["model"]["rmse"], np.sqrt(np.mean((y[200:] - mean) ** 2)))
    np.testing.assert_allclose(found["model"]["log_density"], model.log_prob(x[200:], y[200:]).mean())
    np.testing.assert_allclose(
        found["model"]["coverage_95"], np.mean(np.abs(y[200:] - mean) < stats.norm.ppf(0.975) * sd)
    )
    np.testing.assert_allclose(found["mean"]["rmse"], np.sqrt(np.mean((y[200:] - y[:200].mean()) ** 2)))


def test_a_conformal_model_is_scored_with_its_own_intervals(rng):
    x = rng.random((400, 2))
    y = x[:, 0] + 0.3 * rng.standard_t(2, 400)
    model = vb.AdditiveRegressor(random_state=0, conformal=True).fit(x[:300], y[:300])
    low, high = model.predict_interval(x[300:]).T
    found = model.evaluate(x[300:], y[300:]).scores["model"]
    np.testing.assert_allclose(found["coverage_95"], vb.metrics.coverage(y[300:], low, high))


def test_a_linear_model_that_saw_two_of_three_classes_tells_these_apart(rng):
    x = rng.standard_normal((100, 1))
    codes = 2.0 * (x[:, 0] > 0)  # the classes 0 and 2
    logits = fit_linear(x, codes[:, None], np.ones(100), [0], classes=3)(x)
    assert (np.argmax(logits, axis=1) == codes).mean() > 0.95
    assert (logits[:, 1] < -20.0).all()


def test_rows_of_no_weight_do_not_count_and_odd_targets_are_refused(rng):
    x = rng.random((80, 2))
    y = (x[:, 0] + 0.1 * rng.standard_normal(80) > 0.5).astype(int)
    model = vb.AdditiveClassifier(random_state=0).fit(x, y)
    weight = (x[:, 1] > 0.5).astype(float)
    kept = weight > 0
    assert model.evaluate(x, y, weight) == model.evaluate(x[kept], y[kept])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.evaluate(x, y[:40])
    with pytest.raises(ValueError, match="at least one non-zero number"):
        model.evaluate(x, y, np.zeros(80))
    counts = vb.AdditiveRegressor(random_state=0, likelihood="poisson").fit(x, rng.poisson(2.0, 80))
    with pytest.raises(ValueError, match="`y`"):
        counts.evaluate(x, np.full(80, -1.0))
    assert np.isnan(counts.evaluate(x[:3], [2.0, 2.0, 2.0]).scores["model"]["r2"])


def small_table(kind, n, rng):
    """Rows of two categories, ten kinds of them, with a target that repeats too."""
    a, b = rng.integers(0, 5, n), rng.integers(0, 2, n)
    f = 0.8 * (a - 2) + 1.2 * b - 0.5
    y = {
        "classes": lambda: (rng.random(n) < expit(f)).astype(int),
        "counts": lambda: rng.poisson(np.exp(0.5 * f)),
        "rounded": lambda: np.round(f + rng.standard_normal(n)),
    }[kind]()
    return pd.DataFrame({"a": np.array(list("uvwxy"))[a], "b": np.array(list("pq"))[b]}), y


@pytest.mark.parametrize("kind", ["classes", "counts", "rounded"])
def test_what_is_said_of_rows_left_out_holds_where_rows_repeat(kind):
    rng = np.random.default_rng(3)
    settings = {"counts": dict(likelihood="poisson")}.get(kind, {})
    estimator = vb.AdditiveClassifier if kind == "classes" else vb.AdditiveRegressor
    model = estimator(random_state=0, **settings).fit(*small_table(kind, 2000, rng))
    assert model.evaluation_.n == 2000
    stated, new = model.evaluation_.scores, model.evaluate(*small_table(kind, 20_000, rng)).scores
    for who in ("model", "linear"):
        for name in {"rmse", "accuracy", "log_loss", "auc"} & set(stated[who]):
            # a standard error is about 1 % of accuracy, AUC and log loss, 2 % of an RMSE of counts
            assert stated[who][name] == pytest.approx(new[who][name], rel=0.06), (who, name)


def test_weights_state_the_accuracy_that_repeated_rows_state():
    rng = np.random.default_rng(0)
    x, y = small_table("classes", 300, rng)
    weight = rng.integers(1, 12, 300)
    one = vb.AdditiveClassifier(random_state=0).fit(x, y, weight)
    often = np.repeat(np.arange(300), weight)
    other = vb.AdditiveClassifier(random_state=0).fit(x.iloc[often], y[often])
    assert one.evaluation_.n == other.evaluation_.n == weight.sum()
    for who, scores in one.evaluation_.scores.items():
        assert scores == pytest.approx(other.evaluation_.scores[who], rel=1e-9)


@pytest.mark.parametrize("levels", [(0.5, 0.9), (0.05, 0.95)])
def test_the_share_of_a_count_inside_an_interval_is_what_random_ranks_give_in_the_mean(levels, rng):
    predictive = Predictive(Poisson(), rng.standard_normal((30, 1)), np.full((30, 1), 0.3))
    y = rng.poisson(1.5, (30, 1)).astype(float)
    below, upto = predictive._ranks(y)
    ranks = below + rng.random((20_000, 30, 1)) * (upto - below)
    drawn = [np.mean(np.abs(2.0 * ranks - 1.0) <= level, axis=0) for level in levels]
    # 20,000 draws: a standard error of at most 0.0036
    np.testing.assert_allclose(predictive.inside(y, levels), drawn, atol=0.015)
