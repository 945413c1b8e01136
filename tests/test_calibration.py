"""The noise of an ensemble from rows left out: what was put in comes back, and densities are those of predictions."""

import numpy as np
import pytest
from scipy.stats import norm

from vertebra.calibration import LeftOut, _Problem, _smoothed, calibrate, left_out
from vertebra.likelihoods import Gaussian, StudentT
from vertebra.predictive import Predictive


def rows(degrees=None, factor=1.0, n=4000, seed=0):
    """Members that disagree by a known variance about f, noise of sd 0.5."""
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.0, 2.0, (n, 2))
    noise = rng.standard_normal((n, 2)) if degrees is None else rng.standard_t(degrees, (n, 2))
    y = np.sqrt(factor * variance) * rng.standard_normal((n, 2)) + 0.5 * noise
    return LeftOut(np.zeros((n, 2)), variance, np.zeros((n, 2))), y, np.ones(n)


@pytest.mark.parametrize("factor", [0.3, 2.0])
def test_normal_noise_and_the_factor_come_back(factor):
    found = calibrate(*rows(factor=factor))
    assert isinstance(found.likelihood, Gaussian)
    # three standard errors of 2000 rows
    np.testing.assert_allclose(found.likelihood.scale, 0.5, rtol=0.2)
    np.testing.assert_allclose(found.factor, factor, rtol=0.3)


def test_heavy_tails_are_seen_unless_another_kind_is_asked_for():
    problem = rows(degrees=3.0)
    found = calibrate(*problem)
    assert isinstance(found.likelihood, StudentT)
    assert float(found.likelihood.degrees) < 6.0
    np.testing.assert_allclose(np.exp(np.asarray(found.likelihood.log_scale)), 0.5, rtol=0.15)
    assert isinstance(calibrate(*problem, kinds=("gaussian",)).likelihood, Gaussian)
    with pytest.raises(ValueError, match="`kinds` must hold"):
        calibrate(*problem, kinds=("poisson",))


def test_a_weight_of_two_is_a_row_that_stands_there_twice():
    said, y, _ = rows(n=200)
    again = LeftOut(*(np.concatenate([part, part[:50]]) for part in said))
    twice = calibrate(again, np.concatenate([y, y[:50]]), np.ones(250))
    weighted = calibrate(said, y, np.where(np.arange(200) < 50, 2.0, 1.0))
    np.testing.assert_allclose(weighted.factor, twice.factor, rtol=1e-2)
    np.testing.assert_allclose(weighted.likelihood.log_scale, twice.likelihood.log_scale, atol=1e-2)


@pytest.mark.parametrize("degrees", [None, 4.0])
def test_the_density_maximised_is_that_of_predictions(degrees):
    said, y, weight = rows(n=300)
    problem = _Problem(y[:, 0], said.variance[:, 0], said.fewer[:, 0], weight)
    scale, factor = problem.scales(np.log(0.4), np.log(1.5), 1.0)
    likelihood = Gaussian(np.array([scale])) if degrees is None else StudentT(np.array([scale]), degrees)
    exact = Predictive(likelihood, said.mean[:, :1], factor * said.variance[:, :1]).log_prob(y[:, :1]).sum()
    assert problem.density(np.log(0.4), np.log(1.5), 1.0, degrees) == pytest.approx(exact, rel=5e-3)


def test_what_members_say_of_rows_they_left_out():
    rng = np.random.default_rng(0)
    means, variances = rng.standard_normal((6, 9, 1)), rng.random((6, 9, 1))
    unseen = np.arange(6)[:, None] % 3 == np.arange(9) % 3
    said = left_out(means, variances, unseen)
    apart = said.fewer / (1 / 2 - 1 / 6)
    for i in range(9):
        assert said.mean[i, 0] == pytest.approx(means[unseen[:, i], i, 0].mean())
        assert said.variance[i, 0] == pytest.approx(variances[unseen[:, i], i, 0].mean() + apart[i, 0])
    with pytest.raises(ValueError, match="`unseen` must hold at least 2 members for every row, got 1"):
        left_out(means[:3], variances[:3], unseen[:3])


@pytest.mark.parametrize("varies", [0.0, 2.0])
def test_the_disagreement_of_few_members_is_smoothed_to_what_it_means(varies):
    """E[s² | what two members show], against the mean of s² among rows that show about as much."""
    rng = np.random.default_rng(0)
    s = np.exp(varies * rng.standard_normal(200_000))
    shown = s * rng.standard_normal(200_000) ** 2
    smooth = _smoothed(shown[:, None], np.full(200_000, 2))[:, 0]
    for low, high in ((0.3, 0.4), (0.6, 0.7)):
        rows = (shown > np.quantile(shown, low)) & (shown < np.quantile(shown, high))
        assert smooth[rows].mean() == pytest.approx(s[rows].mean(), rel=0.5)


def test_too_few_members_speak_of_a_row_and_that_is_allowed_for():
    """Members f + e: the ensemble of M is off by Var e / M, what two of them say of a row by Var e / 2."""
    rng = np.random.default_rng(1)
    n, n_members, spread = 3000, 16, 0.8
    truth = rng.standard_normal((n, 1))
    means = truth + spread * rng.standard_normal((n_members, n, 1))
    unseen = np.arange(n_members)[:, None] % 8 == np.arange(n) % 8
    y = truth + 0.3 * rng.standard_normal((n, 1))
    said = left_out(means, np.zeros_like(means), unseen)
    found = calibrate(said, y, np.ones(n), kinds=("gaussian",))
    noise = np.asarray(found.likelihood.scale) ** 2
    sd = np.sqrt(found.factor * means.var(axis=0, ddof=1) + noise)
    inside = np.mean(np.abs(y - means.mean(axis=0)) <= norm.ppf(0.975) * sd)
    assert 0.93 < inside < 0.97


def test_doubt_that_differs_from_row_to_row_is_stated_about_right():
    """From two members a row the factor comes out low: on the whole intervals hold, where doubt is large less so."""
    rng = np.random.default_rng(2)
    n, n_members = 2000, 16
    s = np.exp(0.5 * rng.standard_normal((n, 1)))
    truth, shared = rng.standard_normal((n, 1)), s * rng.standard_normal((n, 1))
    means = truth + shared + s * rng.standard_normal((n_members, n, 1))
    y = truth + 0.2 * rng.standard_normal((n, 1))
    unseen = np.arange(n_members)[:, None] % 8 == np.arange(n) % 8
    found = calibrate(left_out(means, np.zeros_like(means), unseen), y, np.ones(n), kinds=("gaussian",))
    variance = found.factor * means.var(axis=0, ddof=1) + np.asarray(found.likelihood.scale) ** 2
    square = (y - means.mean(axis=0)) ** 2 / variance
    assert 0.8 < square.mean() < 1.2
    assert square[s > np.quantile(s, 0.9)].mean() < 2.0
