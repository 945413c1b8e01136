"""Scores of predictions against formulas and integrals."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import vertebra as vb
from vertebra import metrics


def test_crps_of_draws_is_the_integral_it_is_named_for(rng):
    draws, y = rng.standard_normal((3, 15)), rng.standard_normal(3)
    integrals = []
    for row, value in zip(draws, y, strict=True):
        square = lambda t, row=row, value=value: (np.mean(row <= t) - (value <= t)) ** 2  # noqa: E731
        corners = np.sort([*row, value])
        integrals.append(sum(integrate.quad(square, a, b)[0] for a, b in itertools.pairwise(corners)))
    assert metrics.crps(y, draws) == pytest.approx(np.mean(integrals), rel=1e-6)


def test_crps_of_many_draws_of_a_normal_is_its_formula(rng):
    z = 0.7
    exact = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5
    # 20,000 draws, a standard error of 0.6/√20000 = 0.004
    assert metrics.crps([z], rng.standard_normal((1, 20_000))) == pytest.approx(exact, abs=0.02)


def test_the_interval_score_is_least_at_the_quantiles(rng):
    y = rng.standard_normal(20_000)
    score = lambda z: metrics.interval_score(y, np.full_like(y, -z), np.full_like(y, z), level=0.9)  # noqa: E731
    exact = 2 * stats.norm.pdf(1.645) / 0.05  # 2 φ(z)/(½(1 − level)): its mean at the right quantiles
    assert score(1.645) == pytest.approx(exact, rel=0.02)  # 20,000 rows
    assert score(1.645) < min(score(1.4), score(1.9))


def test_pit_is_uniform_where_draws_have_the_law_of_y(rng):
    y, draws = rng.standard_normal((2000, 2)), rng.standard_normal((2000, 200, 2))
    values = metrics.pit(y, draws)
    assert values.shape == y.shape
    assert stats.kstest(values.ravel(), "uniform").pvalue > 0.01
    assert stats.kstest(metrics.pit(y, 2.0 * draws).ravel(), "uniform").pvalue < 1e-6


def test_ece_is_zero_of_true_probabilities_and_not_of_others(rng):
    p = rng.dirichlet(np.ones(3), 20_000)
    y = (rng.random((20_000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    assert metrics.ece(p, y) < 0.02  # √(¼/2000) = 0.011 in each of ten bins
    assert metrics.ece(p**3 / (p**3).sum(axis=1, keepdims=True), y) > 0.1


def test_scores_take_what_models_and_likelihoods_give(rng):
    """The same shapes all the way: (n, levels, targets), and draws with rows first."""
    f, levels = jnp.asarray(rng.standard_normal((50, 40, 2)), jnp.float32), [0.05, 0.5, 0.95]
    y = rng.standard_normal((40, 2))
    quantiles = np.asarray(vb.Gaussian(1.0).quantiles(f, levels))
    assert quantiles.shape == (40, 3, 2)
    by_hand = np.mean([abs(np.mean(y[:, k] <= quantiles[:, i, k]) - q) for i, q in enumerate(levels) for k in (0, 1)])
    assert metrics.interval_calibration(y, quantiles, levels) == pytest.approx(by_hand)
    score = metrics.interval_score(y, quantiles[:, 0], quantiles[:, 2], level=0.9)
    assert score == pytest.approx(np.mean([metrics.interval_score(y[:, k], quantiles[:, 0, k], quantiles[:, 2, k],
                                                                  level=0.9) for k in (0, 1)]))  # fmt: skip
    with pytest.raises(ValueError, match=r"`draws` must have rows first, .* np.moveaxis\(draws, 0, 1\)"):
        metrics.crps(y, np.asarray(f))
    assert metrics.crps(y, np.moveaxis(np.asarray(f), 0, 1)) > 0.0
    density = vb.Gaussian(1.0).log_predictive(f, jnp.asarray(y, jnp.float32))
    assert metrics.nll(density) == pytest.approx(-float(density.mean()), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.interval_score([0.0], [0.0, 1.0], [1.0]), "`lower` and `upper` must have the shape of `y`"),
        (lambda: metrics.interval_score([0.0], [0.0], [1.0], level=95.0), "`level` must lie between 0 and 1, got 95"),
        (lambda: metrics.ece([0.5, 0.5], [0, 1]), "`probabilities` must be \\(n, classes\\)"),
        (lambda: metrics.pit([0.0, 1.0], np.zeros((3, 5))), "`draws` must have rows first"),
    ],
)
def test_shapes_that_do_not_agree_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
