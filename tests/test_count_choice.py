"""Which whole numbers `likelihood="auto"` fits as counts: those that rows left out speak for, and no ratings."""

import numpy as np
import pytest
from scipy.stats import norm

import vertebra as vb
from vertebra.likelihoods import Gaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.count_choice import log_mass
from vertebra.tables.counting import is_count_like


def table(kind, n=300):
    rng = np.random.default_rng(0)
    x = rng.random((n, 4))
    f = 0.9 + 0.5 * np.sin(6.0 * x[:, 0]) + 0.9 * (x[:, 1] - 0.5)
    mean = np.exp(f)
    y = {
        "poisson": lambda: rng.poisson(mean),
        "overdispersed": lambda: rng.poisson(mean * rng.gamma(2.0, 0.5, n)),
        "grades": lambda: np.clip(np.round(1.0 + 1.5 * f + rng.standard_normal(n)), 0, 5),
        "thousands": lambda: 1000 * rng.poisson(mean),
    }[kind]()
    return x, y.astype(float)


def fitted(x, y, likelihood="auto"):
    return vb.AdditiveRegressor(likelihood=likelihood, remainder=False, random_state=0, evaluation="left_out").fit(x, y)


def test_counts_are_fitted_as_counts_and_it_is_said_on_which_scale(tmp_path):
    x, y = table("poisson")
    auto, asked = fitted(x, y), fitted(x, y, "counts")
    assert auto.model_.noise == "poisson"
    np.testing.assert_array_equal(auto.predict(x), asked.predict(x))
    assert "Effects are on the log of the rate" in str(auto.diagnostics_)
    assert "was fitted as counts" not in str(asked.diagnostics_)
    auto.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    assert again.likelihood == "auto"
    np.testing.assert_array_equal(again.predict(x), auto.predict(x))


def test_counts_that_vary_more_have_the_law_that_does():
    assert fitted(*table("overdispersed")).model_.noise == "negative_binomial"


@pytest.mark.parametrize("kind", ["grades", "thousands"])
def test_whole_numbers_that_are_no_counts_stay_numbers(kind):
    """Grades vary less than counts of their size; of thousands a step of 1 says nothing."""
    assert fitted(*table(kind)).model_.noise in ("gaussian", "heteroscedastic", "student_t")


def test_the_mass_of_a_step_is_that_between_its_ends(rng):
    mean, sd = rng.standard_normal((50, 1)), 0.7
    said = Predictive(Gaussian(np.array([np.sqrt(0.4)])), mean, np.full((50, 1), sd**2 - 0.4))
    low = mean + rng.uniform(-4.0, 4.0, (50, 1))
    exact = norm.cdf(low + 0.5, mean, sd) - norm.cdf(low, mean, sd)
    np.testing.assert_allclose(np.exp(log_mass(said, low, low + 0.5)), exact[:, 0], rtol=1e-6)
    # far above the mean, where 1 − 1 has no digits left
    far = mean + 9.0
    other = log_mass(said, mean - 9.5, mean - 9.0)
    np.testing.assert_allclose(log_mass(said, far, far + 0.5), other, rtol=1e-9)


def test_what_may_be_counts_is_advised_to_be_fitted_so():
    """Asked for even noise, with counts; of numbers that are none the advice stays."""
    x, y = table("overdispersed")
    assert 'If it counts something, try `likelihood="counts"`.' in str(fitted(x, y, "gaussian").diagnostics_)
    assert "counts something" not in str(fitted(x, 0.5 + y, "gaussian").diagnostics_)


def test_counts_have_small_numbers_among_them():
    assert is_count_like(np.arange(200.0))
    assert not is_count_like(np.arange(200.0) + 0.5)
    assert not is_count_like(np.arange(200.0) - 1.0)
    assert not is_count_like(np.arange(200.0) + 400.0)
