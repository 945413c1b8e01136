import numpy as np
import pytest
from scipy import stats

from vertebra.datasets import synthetic
from vertebra.evidence import Evidence, averaged, basis_of, best, products_of, with_constant
from vertebra.polynomials import orthonormal

N = 120
DATA = synthetic("f1", N, seed=3)
TERMS = ((0,), (1,), (2,), (0, 1))


def problem(weight=None, noise_variance=None):
    weight = np.ones(N) if weight is None else weight
    polynomials = orthonormal(DATA.x, weight, 5)
    basis = basis_of(polynomials, TERMS)
    phi = basis(polynomials(DATA.x))
    return basis, phi, products_of(phi, DATA.y, weight, noise_variance)


def test_evidence_is_the_density_of_y_with_a_flat_constant():
    basis, phi, products = problem()
    evidence = Evidence(basis, products)
    theta = evidence.start() + 0.3 * np.random.default_rng(0).standard_normal(len(evidence.start()))
    s, variance, *_ = evidence.parts(theta)
    # The density of the n − 1 contrasts: y projected off the constant.
    contrasts = np.linalg.svd(np.eye(N) - 1.0 / N)[0][:, : N - 1].T
    covariance = contrasts @ (variance * np.eye(N) + (phi * s**2) @ phi.T) @ contrasts.T
    wanted = stats.multivariate_normal(np.zeros(N - 1), covariance).logpdf(contrasts @ DATA.y)
    away = (theta - evidence.prior_mean) / evidence.prior_sd
    assert evidence(theta)[0] + 0.5 * away @ away == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_the_gradient_of_the_evidence_is_its_slope(noise_variance):
    basis, _, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    theta = evidence.start() + 0.2 * np.random.default_rng(1).standard_normal(len(evidence.start()))
    step = 1e-5 * np.eye(len(theta))
    slopes = np.array([(evidence(theta + e)[0] - evidence(theta - e)[0]) / 2e-5 for e in step])
    gradient = evidence(theta)[1]
    if noise_variance is not None:
        assert gradient[-1] == 0.0  # known, not learned
        gradient, slopes = gradient[:-1], slopes[:-1]
    # central differences: 1e-10 of curvature and rounding
    np.testing.assert_allclose(gradient, slopes, atol=1e-5 * np.abs(gradient).max())


def test_the_posterior_is_that_of_linear_regression_with_the_constant():
    basis, phi, products = problem()
    posterior, evidence = best(basis, products)
    mean, covariance = with_constant(posterior, products, float(N))
    s, variance, *_ = evidence.parts(posterior.theta)
    # a constant of nearly flat prior beside the others
    design = np.concatenate([np.ones((N, 1)), phi], axis=1)
    precision = design.T @ design / variance + np.diag(np.append(1e-12, s**-2.0))
    np.testing.assert_allclose(mean, np.linalg.solve(precision, design.T @ DATA.y / variance), atol=1e-6)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-6)


def test_weights_are_repeated_rows_of_higher_precision():
    # With the noise known, a weight of 2 is the same row twice.
    weight = np.random.default_rng(2).integers(0, 3, N).astype(float)
    polynomials = orthonormal(DATA.x, weight, 5)
    basis = basis_of(polynomials, TERMS)
    phi = basis(polynomials(DATA.x))
    repeat = np.repeat(np.arange(N), weight.astype(int))
    once = products_of(phi, DATA.y, weight, 1.0)
    twice = products_of(phi[repeat], DATA.y[repeat], np.ones(len(repeat)), 1.0)
    for a, b in zip(once[:3], twice[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_averaging_over_the_hyper_parameters_widens_the_posterior():
    basis, _, products = problem()
    at_best = best(basis, products)[0]
    wider = averaged(basis, products, rng=np.random.default_rng(0))
    assert np.trace(wider.covariance) > np.trace(at_best.covariance)
    assert np.linalg.eigvalsh(wider.covariance).min() > -1e-10
    same = averaged(basis, products, rng=np.random.default_rng(0), n_draws=0)
    np.testing.assert_array_equal(same.mean, at_best.mean)


def test_very_many_terms_get_lower_degrees():
    polynomials = orthonormal(np.random.default_rng(0).random((200, 40)), np.ones(200))
    many = [(i,) for i in range(40)] + [(i, i + 1) for i in range(39)]
    basis = basis_of(polynomials, many)
    assert sum(map(len, basis.degrees)) <= 900
    assert all(len(d) >= 1 for d in basis.degrees)
