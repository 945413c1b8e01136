"""Counts that vary more than Poisson's: their dispersion, the choice of it, and what is said of it."""

import numpy as np
import pytest
from scipy import stats

import vertebra as vb
from vertebra.likelihoods import NegativeBinomial, Poisson
from vertebra.likelihoods.densities import IN_NUMPY, negative_binomial_cdf, negative_binomial_log_prob
from vertebra.likelihoods.working_responses import Counts, MoreVaried


def counts(seed: int, n: int, dispersion: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 4))
    f = 1.0 + 0.8 * np.sin(2.0 * x[:, 0]) + 0.8 * x[:, 1] ** 2
    rate = np.exp(f) * (rng.gamma(1.0 / dispersion, dispersion, n) if dispersion else 1.0)
    return x, rng.poisson(rate).astype(float), f


@pytest.mark.parametrize("dispersion", [1e-4, 0.02, 0.5, 30.0])
def test_density_and_ranks_of_negative_binomial_counts_are_those_of_scipy(dispersion):
    y = np.array([0.0, 1.0, 2.0, 7.0, 40.0, 900.0])
    for f in (-4.0, 0.0, 2.0, 5.0):
        law = stats.nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * np.exp(f)))
        at = np.full(len(y), f)
        # log Γ of 10⁴ cancels in scipy's own to 1e-9
        own = negative_binomial_log_prob(y, at, dispersion, IN_NUMPY)
        np.testing.assert_allclose(own, law.logpmf(y), rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(negative_binomial_cdf(y, at, dispersion, IN_NUMPY), law.cdf(y), atol=1e-10)
    assert negative_binomial_cdf(np.array([-1.0]), np.zeros(1), dispersion, IN_NUMPY) == 0.0


def test_responses_are_the_mean_score_and_fishers_information():
    _, y, f = counts(0, 50, 0.5)
    working = MoreVaried(y[:, None], np.ones(50)).of(y[:, None], np.ones(50))
    alpha, v = float(working.dispersion[0]), 0.3
    (response,) = working.responses(f[:, None], np.full((50, 1), v))
    # by a fine sum over f: 20 nodes of Gauss and Hermite are right to seven digits here
    z = np.linspace(-8.0, 8.0, 4001)
    share = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    rate = np.exp(f[:, None] + np.sqrt(v) * z)
    np.testing.assert_allclose(response.w, (rate / (1.0 + alpha * rate)) @ share, rtol=1e-6)
    score = ((y[:, None] - rate) / (1.0 + alpha * rate)) @ share
    np.testing.assert_allclose(response.w * (response.z - f), score, rtol=1e-6, atol=1e-6)


def test_little_dispersion_is_poissons_law():
    _, y, f = counts(1, 60, 0.0)
    working = MoreVaried(y[:, None], np.ones(60))
    working.dispersion, working.is_settled = np.array([1e-4]), True
    for variance in (np.zeros((60, 1)), np.full((60, 1), 0.1)):
        (own,), (poisson,) = (
            each.responses(f[:, None], variance) for each in (working, Counts(y[:, None], np.ones(60)))
        )
        # 1 + αμ is at most 1.003 for the rates here
        np.testing.assert_allclose(own.w, poisson.w, rtol=4e-3)


def test_the_dispersion_is_found_and_that_of_each_target():
    _, y, f = counts(2, 4000, 0.5)
    _, other, g = counts(3, 4000, 2.0)
    working = MoreVaried(np.stack([y, other], axis=1), np.ones(4000))
    working.responses(np.stack([f, g], axis=1), np.zeros((4000, 2)))
    # four standard errors: 0.025 and 0.07 by the curvature of such tables
    assert (np.abs(working.dispersion - [0.5, 2.0]) < [0.1, 0.28]).all()


@pytest.mark.parametrize(("dispersion", "kind"), [(0.0, "poisson"), (0.5, "negative_binomial")])
def test_counts_are_poissons_unless_rows_speak_against_it(dispersion, kind):
    x, y, _ = counts(4, 800, dispersion)
    model = vb.AdditiveRegressor(likelihood="counts", random_state=0).fit(x, y)
    assert model.likelihood_ == kind
    assert "the log of the rate" in str(model.summary())
    if kind == "negative_binomial":
        assert "dispersion 0." in str(model.summary())


def test_a_model_of_counts_is_kept_and_covers(tmp_path):
    x, y, _ = counts(5, 1500, 0.5)
    model = vb.AdditiveRegressor(likelihood="negative_binomial", random_state=0).fit(x[:1000], y[:1000])
    assert not len(model.interactions())
    lower, upper = model.predict_interval(x[1000:], level=0.9).T
    # limits are whole numbers, so that at least 90 % lie within; four standard errors of 500 rows are 5 %
    assert 0.85 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.98
    model.save(tmp_path / "counts.vertebra")
    again = vb.load(tmp_path / "counts.vertebra")
    np.testing.assert_array_equal(again.predict_interval(x[:20]), model.predict_interval(x[:20]))
    np.testing.assert_array_equal(again.log_prob(x[:20], y[:20]), model.log_prob(x[:20], y[:20]))


def test_a_network_of_counts_learns_their_dispersion():
    x, y, _ = counts(6, 600, 0.5)
    model = vb.SkeletonRegressor(scheme="random_features", likelihood="counts", n_steps=500, random_state=0).fit(x, y)
    assert model.likelihood_ == "negative_binomial"
    assert np.isfinite(model.log_prob(x, y)).all()


def test_what_is_no_count_is_refused():
    assert isinstance(MoreVaried(np.ones((3, 1)), np.ones(3)).likelihood([1.0]), NegativeBinomial)
    assert not isinstance(NegativeBinomial(1.0), Poisson)
    with pytest.raises(ValueError, match=r"whole numbers of at least 0, got 0\.5 in row 0"):
        vb.AdditiveRegressor(likelihood="counts").fit(np.arange(20.0)[:, None], np.full(20, 0.5))
    with pytest.raises(ValueError, match="`dispersion` is not set yet"):
        NegativeBinomial().numpy_log_prob(np.zeros((1, 1, 1)), np.ones((1, 1)))
