"""Positive targets on another scale: moments by naive sums, densities that integrate to 1, and what carries them."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.likelihoods import Gaussian, HeteroscedasticGaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.transform import POWERS, Original, Transform


@pytest.fixture(scope="module")
def rents():
    """log y is a sum of two functions, and normal noise."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.random((260, 3)), columns=["size", "age", "idle"])
    f = 2.0 * np.sin(3.0 * x["size"]) + x["age"]
    return x, f.to_numpy(), np.exp(f + 0.5 * rng.standard_normal(len(f))).to_numpy()


@pytest.fixture(scope="module")
def model(rents):
    x, _, y = rents
    return vb.AdditiveRegressor(target_transform="log", remainder=False, evaluation="left_out", random_state=0).fit(
        x, y
    )


@pytest.mark.parametrize("power", POWERS)
def test_a_scale_goes_there_and_back_and_its_slope_is_the_derivative(power):
    scale, y = Transform(power), np.geomspace(0.01, 50.0, 40)
    np.testing.assert_allclose(scale.back(scale.there(y)), y, rtol=1e-12)
    step = 1e-6 * y
    slope = (scale.there(y + step) - scale.there(y - step)) / (2.0 * step)
    np.testing.assert_allclose(np.exp(scale.log_slope(y)), slope, rtol=1e-8)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_moments_and_quantiles_are_those_of_draws_and_densities_integrate_to_one(power, kind):
    likelihood = Gaussian(0.3) if kind == "even" else HeteroscedasticGaussian(0.3)
    mean = np.array([[1.2, 0.4]] if kind == "uneven" else [[1.2]])
    said = Predictive(likelihood, mean, np.full_like(mean, 0.1))
    seen = Original(said, Transform(power), np.array([1.5]), np.array([0.8]))
    f = mean + np.sqrt(0.1) * np.random.default_rng(1).standard_normal((400_000, 1, mean.shape[1]))
    draws = Transform(power).back(1.5 + 0.8 * likelihood.numpy_sample(f, 2))[:, 0, 0]
    # five standard errors of a mean; of a variance, by its own fourth moment
    assert seen.mean()[0, 0] == pytest.approx(draws.mean(), abs=5.0 * draws.std() / np.sqrt(len(draws)))
    both = (seen.epistemic() + seen.aleatoric())[0, 0]
    error = ((draws - draws.mean()) ** 2).std() / np.sqrt(len(draws))
    # 128 paired points stand for two latent functions: to 2 %
    assert both == pytest.approx(draws.var(), abs=5.0 * error + (0.02 * both if kind == "uneven" else 0.0))
    y = np.geomspace(1e-6, 400.0, 20_000)
    many = Predictive(likelihood, np.repeat(mean, len(y), axis=0), np.full((len(y), mean.shape[1]), 0.1))
    density = np.exp(seen._replace(predictive=many).log_prob(y[:, None]))[:, 0]
    # what normal noise puts below the least of a power stands at 0: 1 in 10⁴ here
    assert np.trapezoid(density, y) == pytest.approx(1.0, abs=2e-4)


def test_predictions_are_of_y_and_effects_of_its_logarithm(model, rents):
    x, f, _ = rents
    mean, sd = model.predict(x, return_std=True)
    centre, spread = model.predict_f(x)
    noise = float(model.model_.target.scale[0] ** 2 * model.model_.likelihood.normal_variance[0])
    variance = spread**2 + noise
    np.testing.assert_allclose(mean, np.exp(centre + 0.5 * variance), rtol=1e-10)  # the lognormal's, by another road
    np.testing.assert_allclose(sd, mean * np.sqrt(np.expm1(variance)), rtol=1e-8)
    aleatoric, epistemic = model.predict_uncertainty(x)
    np.testing.assert_allclose(aleatoric**2 + epistemic**2, sd**2, rtol=1e-10)
    # the median of y goes with f, and intervals have no negative end
    np.testing.assert_allclose(model.predict_quantiles(x, [0.5])[:, 0], np.exp(centre), rtol=1e-10)
    assert (model.predict_interval(x) > 0.0).all()
    assert np.sqrt(np.mean((centre - f) ** 2)) < 0.2  # a third of the noise's sd is an error of 0.17
    draws = model.sample_y(x.head(2), 4000, random_state=0)
    np.testing.assert_allclose(np.log(draws).mean(axis=1), centre[:2], atol=0.05)  # five standard errors
    assert model.effects().attrs["scale"] == model.effect("size").attrs["scale"] == "log(y)"
    assert "on the scale of log(y)" in str(model.summary())
    np.testing.assert_allclose(model.eval_terms(x).sum(axis=1), centre, rtol=1e-9)


def test_accuracy_is_that_of_y(model, rents):
    x, _, y = rents
    seen = model.evaluate(x, y)
    mean = model.predict(x)
    assert seen.scores["model"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert seen.scores["model"]["log_density"] == pytest.approx(model.log_prob(x, y).mean())
    with pytest.raises(ValueError, match="`y` must be positive for a model that was fitted on the scale of log"):
        model.log_prob(x.head(1), [0.0])


def test_files_tables_and_queries_know_the_scale(model, rents, tmp_path):
    x, _, y = rents
    model.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.log_prob(x, y), model.log_prob(x, y))
    model.to_tables(tmp_path / "tables.npz")
    served = vb.serving.load(tmp_path / "tables.npz")
    np.testing.assert_allclose(served.predict_f(x), model.predict_f(x)[0], atol=1e-4)
    with pytest.raises(ValueError, match="The mean of y is not f"):
        served.predict(x)
    with pytest.raises(ValueError, match=r"must be fitted on the scale of y .* got log\(y\)"):
        model.to_onnx(tmp_path / "model.onnx")
    assert "vertebra_functions" in model.to_sql("rents")


def test_rows_decide_whether_a_scale_is_taken(rents):
    x, f, y = rents
    asked = dict(target_transform="auto", remainder=False, evaluation="left_out", random_state=0)
    taken = vb.AdditiveRegressor(**asked).fit(x, y)
    assert taken.model_.target.transform == Transform(0.0)
    assert "log(y) was fitted, and not y" in taken.diagnostics_.notes[0]
    plain = f + 4.0 + 0.5 * np.random.default_rng(1).standard_normal(len(f))
    assert vb.AdditiveRegressor(**asked).fit(x, plain).model_.target.transform is None


def test_conformal_limits_go_back_too(rents):
    x, _, y = rents
    model = vb.AdditiveRegressor(target_transform="log", conformal=True, remainder=False, random_state=0).fit(x, y)
    low, high = model.predict_interval(x, 0.8).T
    assert (low > 0.0).all()
    assert vb.metrics.coverage(y, low, high) > 0.75


@pytest.mark.parametrize(
    ("asked", "y", "words"),
    [
        (dict(target_transform="sqrt"), 1.0, "`target_transform` must be one of none, log, box_cox, auto, got 'sqrt'"),
        (dict(target_transform="log"), 0.0, '`y` must be positive for `target_transform="log"`, got 0 in row 3'),
        (dict(target_transform="log", likelihood="student_t"), 1.0, "`likelihood` must be one of auto, gaussian"),
    ],
)
def test_what_cannot_be_is_said(asked, y, words):
    target = np.arange(1.0, 31.0)
    target[3] = y
    with pytest.raises(ValueError, match=words):
        vb.AdditiveRegressor(**asked).fit(np.arange(30.0)[:, None], target)
