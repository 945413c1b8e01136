"""Uneven noise of an ensemble: what was put in comes back, intervals hold, and it is kept where noise is uneven."""

import numpy as np
import pytest
from scipy.stats import norm

import vertebra as vb
from vertebra.effects.scale_law import ScaleLaw, logged
from vertebra.likelihoods import HeteroscedasticGaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.calibration import LEVEL, LeftOut, _Problem, left_out, log_disagreement, widened
from vertebra.models.uneven import noise_of, uneven


def rows(n=3000, seed=0, *, rise=0.0, tails=0.0):
    """f known, noise whose log sd rises with f, and varies beyond that."""
    rng = np.random.default_rng(seed)
    f, nothing = rng.standard_normal((n, 1)), np.zeros((n, 1))
    sd = 0.3 * np.exp(rise * f + tails * rng.standard_normal((n, 1)))
    said = LeftOut(f, 1e-4 * np.ones((n, 1)), nothing)
    return said, nothing, f + sd * rng.standard_normal((n, 1)), np.ones(n)


def inside(predictive, y):
    return predictive.inside(y, [LEVEL])[0, :, 0]


def test_noise_that_rises_with_f_is_found_and_holds_at_either_end():
    said, log_apart, y, weight = rows(rise=0.8)
    predictive, law = noise_of(said, log_apart, y, weight, likelihood="auto")
    assert law is not None
    # log sd is 2 tanh(f₂/4), about f₂/2: a slope of 1.6 in f, which the prior pulls towards 0
    assert 1.3 < law.slopes[0, 1] < 2.0
    held = inside(predictive, y)
    for end in (said.mean[:, 0] < -1.0, said.mean[:, 0] > 1.0):
        # some 470 rows: three standard errors
        assert held[end].mean() == pytest.approx(LEVEL, abs=0.03)
    even, _ = noise_of(said, log_apart, y, weight, likelihood="gaussian")
    assert inside(even, y)[said.mean[:, 0] > 1.0].mean() < 0.9


def test_even_noise_stays_even():
    predictive, law = noise_of(*rows(), likelihood="auto")
    assert law is None
    assert predictive.likelihood.normal_variance is not None


def test_a_scale_that_varies_without_reason_is_heavy_tails():
    """Fitted on some rows, intervals hold as many others, and the density is what mixtures of normals have."""
    said, log_apart, y, weight = rows(n=4000, tails=0.7)
    first, rest = slice(2000), slice(2000, None)
    found = uneven(LeftOut(*(part[first] for part in said)), log_apart[first], y[first], weight[first])
    new = found.law.latents(said.mean[rest], said.variance[rest], log_apart[rest])
    predictive = Predictive(HeteroscedasticGaussian(found.scale), *new)
    # 2000 rows and 2000: three standard errors of the difference
    assert inside(predictive, y[rest]).mean() == pytest.approx(LEVEL, abs=0.02)
    scales = 0.3 * np.exp(0.7 * np.random.default_rng(1).standard_normal(2000))
    exact = np.log(np.mean(norm.pdf((y - said.mean)[rest, 0], scale=scales[:, None]), axis=0))
    assert predictive.log_prob(y[rest]).mean() == pytest.approx(exact.mean(), abs=0.02)


def test_the_density_maximised_is_that_of_predictions_of_uneven_noise():
    said, log_apart, y, weight = rows(n=300, rise=0.5, tails=0.5)
    found = uneven(said, log_apart, y, weight)
    moments = found.law.latents(said.mean, said.variance, log_apart)
    exact = Predictive(HeteroscedasticGaussian(found.scale), *moments).log_prob(y).sum()
    # 128 points of f₁ and f₂ for an integral over both
    assert found.density == pytest.approx(exact, abs=3.0)


@pytest.mark.parametrize("degrees", [None, 3.0])
def test_noise_is_widened_until_as_many_rows_are_inside_as_is_said(degrees):
    """Most rows near, a tenth far away: what is likeliest holds too few."""
    rng = np.random.default_rng(0)
    away = np.where(rng.random(2000) < 0.1, 1.0, 0.02) * rng.standard_normal(2000)
    problem = _Problem(away, np.zeros(2000), np.ones(2000))
    assert problem.inside(0.1, degrees) < 0.94
    scale = np.exp(widened(lambda t: problem.inside(np.exp(t), degrees), np.log(0.1)))
    assert LEVEL <= problem.inside(scale, degrees) < LEVEL + 0.002
    assert widened(lambda t: problem.inside(np.exp(t), degrees), np.log(5.0)) == np.log(5.0)


def test_a_weight_of_two_is_a_row_that_stands_there_twice_in_uneven_noise():
    said, log_apart, y, _ = rows(n=200, rise=0.8)
    twice = [np.concatenate([part, part[:50]]) for part in (*said, log_apart, y)]
    weight = np.where(np.arange(200) < 50, 2.0, 1.0)
    one, other = uneven(said, log_apart, y, weight), uneven(LeftOut(*twice[:3]), *twice[3:], np.ones(250))
    np.testing.assert_allclose(one.law.slopes, other.law.slopes, atol=0.05)
    np.testing.assert_allclose(one.scale, other.scale, rtol=0.05)


def test_the_disagreement_of_few_is_on_the_scale_of_that_of_many():
    """log s² of two or three members that left a row out, against that of 24 new ones: one mean, and one slope."""
    rng = np.random.default_rng(0)
    n, s = 20_000, np.exp(rng.standard_normal((20_000, 1)))
    means = s * rng.standard_normal((24, n, 1))
    unseen = np.arange(24)[:, None] % 8 == np.arange(n) % 8
    few, many = log_disagreement(means, unseen), logged((s * rng.standard_normal((24, n, 1))).var(axis=0, ddof=1))
    assert few.mean() == pytest.approx(many.mean(), abs=0.08)
    slope = np.cov(few[:, 0], many[:, 0])[0, 1] / few.var()
    assert slope == pytest.approx(1.0, abs=0.1)
    assert left_out(means, np.zeros_like(means), unseen).mean.shape == few.shape


def test_members_that_agree_to_the_last_digit_have_noise():
    law = ScaleLaw(np.zeros(1), np.array([[1.0, 0.0, 0.0]]), np.ones(1))
    f = np.zeros((3, 1))
    mean, variance = law.latents(f, f, logged(f))
    assert np.isfinite(mean).all()
    np.testing.assert_array_equal(variance, [[0.0, 1.0]] * 3)


@pytest.fixture(scope="module")
def uneven_model():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (400, 2))
    y = 3.0 * x[:, 0] + np.exp(1.5 * x[:, 0]) * 0.5 * rng.standard_normal(400)
    return vb.SkeletonRegressor(widths=(4, 8), n_steps=400, random_state=0).fit(x, y), x, y


def test_the_default_states_uneven_noise_where_there_is_some(uneven_model):
    model, x, y = uneven_model
    assert model.likelihood_ == "heteroscedastic"
    noise = model.predict_uncertainty(x)[0]
    # sds of 0.5 e^±1.2 where x₀ is ±0.8: 11-fold
    assert noise[x[:, 0] > 0.8].mean() > 4.0 * noise[x[:, 0] < -0.8].mean()
    low, high = model.predict_interval(x).T
    assert 0.92 < np.mean((low <= y) & (y <= high)) < 0.99
    # 4000 draws of y have the mean and the sd that are stated, within three standard errors of heavy tails
    draws = model.sample_y(x[:20], 4000, random_state=0)
    mean, sd = model.predict(x[:20], return_std=True)
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.2)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.1 * sd.max())


def test_uneven_noise_comes_back_from_a_file(uneven_model, tmp_path):
    model, x, y = uneven_model
    model.save(tmp_path / "uneven.vertebra")
    again = vb.load(tmp_path / "uneven.vertebra")
    np.testing.assert_array_equal(again.predict_interval(x), model.predict_interval(x))
    np.testing.assert_array_equal(again.log_prob(x, y), model.log_prob(x, y))
