"""Times that are known or known to be longer, and ordered classes: against SciPy, closed forms and loops."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import vertebra as vb
from vertebra.likelihoods import Likelihood

F = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5, 1)), jnp.float32)


def test_survival_is_scipys_weibull():
    likelihood, law = vb.Survival(2.0, 1.5), stats.weibull_min(1.5, scale=2.0 * np.exp(np.asarray(F, np.float64)))
    t = np.asarray(law.rvs(random_state=1))
    np.testing.assert_allclose(likelihood.log_prob(F, jnp.asarray(t)), law.logpdf(t), rtol=1e-3, atol=1e-4)  # float32
    np.testing.assert_allclose(likelihood.log_prob(F, jnp.asarray(-t)), law.logsf(t), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(likelihood.cdf(F, jnp.asarray(t)), law.cdf(t), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(likelihood.cdf(F, jnp.asarray(-t)), 0.0)
    np.testing.assert_allclose(likelihood.conditional_mean(F), law.mean(), rtol=1e-4)
    np.testing.assert_allclose(likelihood.conditional_variance(F), law.var(), rtol=1e-3)
    quantiles = likelihood.quantiles(F, [0.1, 0.9])
    for i, level in enumerate((0.1, 0.9)):
        np.testing.assert_allclose(law.cdf(np.asarray(quantiles)[:, i]).mean(axis=0), level, atol=1e-4)
    drawn = np.asarray(likelihood.sample(jnp.broadcast_to(F[0], (20_000, 5, 1)), jr.key(0)))
    np.testing.assert_allclose(drawn.mean(axis=0), law.mean()[0], rtol=0.03)  # √(0.46/20000) = 0.005 of the mean


def test_expected_survival_is_exact():
    """E log p has a closed form, which the rule of quadrature must agree with."""
    likelihood, rng = vb.Survival(2.0, 1.5), np.random.default_rng(1)
    mean, variance = F[0], jnp.asarray(rng.uniform(0.05, 0.6, F[0].shape), jnp.float32)
    y = jnp.asarray(rng.choice([-1, 1], F[0].shape) * rng.uniform(0.5, 3.0, F[0].shape), jnp.float32)
    exact = likelihood.expected_log_prob(mean, variance, y, jnp.zeros_like(mean))
    np.testing.assert_allclose(exact, Likelihood.expected_log_prob(likelihood, mean, variance, y, mean), rtol=1e-3)


def test_censored_exponential_times_have_the_rate_of_their_closed_form():
    """Of exponential times the likeliest rate is events over time at risk, however many are censored."""
    rng = np.random.default_rng(0)
    t, until = rng.exponential(3.0, 400), rng.uniform(0.5, 6.0, 400)
    y = np.where(t <= until, t, -until)
    rate = np.sum(y > 0) / np.sum(np.abs(y))
    density = lambda f: jnp.sum(vb.Survival(1.0, 1.0).log_prob(jnp.full((400, 1), f), jnp.asarray(y[:, None])))  # noqa: E731
    assert abs(float(jax.grad(density)(-np.log(rate)))) < 1e-2  # float32 rounding of 400 terms
    assert np.mean(y < 0) > 0.3


@pytest.mark.slow
def test_a_fitted_network_finds_how_times_depend_on_x():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.5, 1.5, (1500, 1))
    t, until = np.exp(np.sin(2 * x)) * rng.weibull(2.0, x.shape), rng.uniform(0.5, 4.0, x.shape)
    y = np.where(t <= until, t, -until)
    network = vb.build(vb.chain(1, 2), vb.mean_field([12, 1]), key=jr.key(0))
    fitted = vb.fit(network, vb.Survival(), x, y, key=jr.key(1), n_steps=3000)
    f = vb.moments(fitted.network, x, key=jr.key(2))[0] + fitted.likelihood.log_scale[None]
    error = np.asarray(f) - np.sin(2 * x)
    print(np.sqrt(np.mean(error**2)), float(jnp.exp(fitted.likelihood.log_shape)))
    assert np.sqrt(np.mean(error**2)) < 0.12  # log times have an sd of 0.64 about f: √(10 weights/1000) · 0.64 = 0.06
    assert abs(float(jnp.exp(fitted.likelihood.log_shape)) - 2.0) < 0.2


def test_ordinal_is_its_naive_reference():
    likelihood = vb.Ordinal(4).init(np.array([[0.0], [0.0], [1.0], [2.0], [2.0], [3.0]]))
    cuts, f = np.asarray(likelihood.cuts, np.float64), np.asarray(F[0, :, 0], np.float64)
    for c in range(4):
        upper = expit(cuts[c] - f) if c < 3 else 1.0
        lower = expit(cuts[c - 1] - f) if c else 0.0
        y = jnp.full((5, 1), float(c))
        np.testing.assert_allclose(likelihood.log_prob(F[0], y)[:, 0], np.log(upper - lower), rtol=1e-4)
        np.testing.assert_allclose(likelihood.probabilities(F[0])[:, c], upper - lower, rtol=1e-4)
        np.testing.assert_allclose(likelihood.cdf(F[0], y)[:, 0], upper, rtol=1e-5)
    p, codes = np.asarray(likelihood.probabilities(F[0]), np.float64), np.arange(4)
    np.testing.assert_allclose(likelihood.conditional_mean(F[0])[:, 0], p @ codes, rtol=1e-4)
    np.testing.assert_allclose(likelihood.conditional_variance(F[0])[:, 0], p @ codes**2 - (p @ codes) ** 2, rtol=1e-3)
    drawn = np.asarray(likelihood.sample(jnp.broadcast_to(F[0], (20_000, 5, 1)), jr.key(0)))[..., 0]
    for c in range(4):
        np.testing.assert_allclose((drawn == c).mean(axis=0), p[:, c], atol=0.02)  # sd at most 0.0035
    cumulative = np.cumsum(np.mean([likelihood.probabilities(f) for f in F], axis=0), axis=1)
    quantiles = np.asarray(likelihood.quantiles(F, [0.3, 0.8]))[..., 0]
    for i, level in enumerate((0.3, 0.8)):
        np.testing.assert_array_equal(quantiles[:, i], (cumulative < level).sum(axis=1))


def test_ordinal_starts_at_the_frequencies_of_the_classes():
    y = np.repeat([0.0, 1.0, 2.0], [100, 50, 150])[:, None]
    p = vb.Ordinal(3).init(y).probabilities(jnp.zeros((1, 1)))[0]
    np.testing.assert_allclose(p, [1 / 3, 1 / 6, 1 / 2], atol=0.01)  # a row of each class added


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: vb.Survival().check(np.array([1.0, 0.0])), "`y` must hold times above 0, .* got 0 in row 1"),
        (lambda: vb.Survival().log_prob(F, F), "`scale` is not set yet"),
        (lambda: vb.Ordinal(3).check(np.array([3.0])), "`y` must hold classes from 0 to 2, got 3 in row 0"),
        (lambda: vb.Ordinal(1), "`n_classes` must be at least 2"),
    ],
)
def test_values_outside_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
