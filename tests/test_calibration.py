"""The noise of an ensemble from rows left out: what was put in comes back, and densities are those of predictions."""

import numpy as np
import pytest
from scipy.stats import norm

from vertebra.likelihoods import Gaussian, StudentT
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.calibration import DOUBT, LeftOut, _Problem, _smoothed, doubt, left_out, noise


def rows(degrees=None, n=4000, seed=0):
    """Members that disagree by a known variance about f, noise of sd 0.5."""
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.0, 2.0, (n, 2))
    noise = rng.standard_normal((n, 2)) if degrees is None else rng.standard_t(degrees, (n, 2))
    y = np.sqrt(variance) * rng.standard_normal((n, 2)) + 0.5 * noise
    return LeftOut(np.zeros((n, 2)), variance, np.zeros((n, 2))), y, np.ones(n)


def test_normal_noise_comes_back():
    found = noise(*rows())
    assert isinstance(found, Gaussian)
    # three standard errors of 2000 rows
    np.testing.assert_allclose(found.scale, 0.5, rtol=0.2)


def test_noise_of_few_rows_far_away_is_not_cut_short():
    """Most rows near, some far: the sd of normal noise is their mean square, far from the usual distance."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random((2000, 1)) < 0.05, 1.0, 0.01) * rng.standard_normal((2000, 1))
    said = LeftOut(np.zeros_like(y), np.zeros_like(y), np.zeros_like(y))
    found = noise(said, y, np.ones(2000), kinds=("gaussian",))
    np.testing.assert_allclose(found.scale, np.sqrt(np.mean(y**2)), rtol=0.02)


def test_heavy_tails_are_seen_unless_another_kind_is_asked_for():
    problem = rows(degrees=3.0)
    found = noise(*problem)
    assert isinstance(found, StudentT)
    assert float(found.degrees) < 6.0
    np.testing.assert_allclose(np.exp(np.asarray(found.log_scale)), 0.5, rtol=0.15)
    assert isinstance(noise(*problem, kinds=("gaussian",)), Gaussian)
    with pytest.raises(ValueError, match="`kinds` must hold"):
        noise(*problem, kinds=("poisson",))


def test_a_weight_of_two_is_a_row_that_stands_there_twice():
    said, y, _ = rows(n=200)
    again = LeftOut(*(np.concatenate([part, part[:50]]) for part in said))
    twice, ones = np.concatenate([y, y[:50]]), np.ones(250)
    weight = np.where(np.arange(200) < 50, 2.0, 1.0)
    np.testing.assert_allclose(noise(said, y, weight).log_scale, noise(again, twice, ones).log_scale, atol=1e-2)
    np.testing.assert_allclose(doubt(said, y, weight), doubt(again, twice, ones))


def test_doubt_is_a_share_of_the_disagreement_and_no_more_than_the_error():
    said, y, weight = rows()
    np.testing.assert_array_equal(doubt(said, y, weight), DOUBT)
    # away by 0.1 √variance in the mean square, less what few members add
    near = said._replace(fewer=0.004 * np.ones_like(y))
    away = 0.1 * np.sqrt(said.variance)
    exact = (0.01 * said.variance.mean(axis=0) - 0.004) / said.variance.mean(axis=0)
    np.testing.assert_allclose(doubt(near, away, weight), exact)
    np.testing.assert_array_equal(doubt(near, 0.0 * y, weight), 0.0)


@pytest.mark.parametrize("degrees", [None, 4.0])
def test_the_density_maximised_is_that_of_predictions(degrees):
    said, y, weight = rows(n=300)
    problem = _Problem(y[:, 0], said.variance[:, 0], weight)
    likelihood = Gaussian(np.array([0.4])) if degrees is None else StudentT(np.array([0.4]), degrees)
    exact = Predictive(likelihood, said.mean[:, :1], said.variance[:, :1]).log_prob(y[:, :1]).sum()
    assert problem.density(0.4, degrees) == pytest.approx(exact, rel=5e-3)


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


def stated(means, y, unseen):
    """The squares of what y is away from the ensemble, over the variance stated, rows fitted and looked at alike."""
    said, weight = left_out(means, np.zeros_like(means), unseen), np.ones(len(y))
    factor = doubt(said, y, weight)
    found = noise(said._replace(variance=factor * said.variance), y, weight, kinds=("gaussian",))
    return (y - means.mean(axis=0)) ** 2 / (factor * means.var(axis=0, ddof=1) + np.asarray(found.scale) ** 2)


def test_too_few_members_speak_of_a_row_and_that_is_allowed_for():
    """Members f + e: the ensemble of M is off by Var e / M, what two of them say of a row by Var e / 2."""
    rng = np.random.default_rng(1)
    n, n_members, spread = 3000, 16, 0.8
    truth = rng.standard_normal((n, 1))
    means = truth + spread * rng.standard_normal((n_members, n, 1))
    unseen = np.arange(n_members)[:, None] % 8 == np.arange(n) % 8
    y = truth + 0.3 * rng.standard_normal((n, 1))
    inside = np.mean(stated(means, y, unseen) <= norm.ppf(0.975) ** 2)
    assert 0.93 < inside < 0.98


def test_doubt_that_differs_from_row_to_row_is_stated_about_right():
    rng = np.random.default_rng(2)
    n, n_members = 2000, 16
    s = np.exp(0.5 * rng.standard_normal((n, 1)))
    truth, shared = rng.standard_normal((n, 1)), s * rng.standard_normal((n, 1))
    means = truth + shared + s * rng.standard_normal((n_members, n, 1))
    y = truth + 0.2 * rng.standard_normal((n, 1))
    unseen = np.arange(n_members)[:, None] % 8 == np.arange(n) % 8
    square = stated(means, y, unseen)
    assert 0.8 < square.mean() < 1.2
    assert square[s > np.quantile(s, 0.9)].mean() < 1.7
    assert square[s < np.quantile(s, 0.1)].mean() > 0.2
