"""Empirical Bayes for a sum of terms: f = c + Σ_T Σ_k v_{T,k} Π_{i∈T} P_{k_i}(x_i), all in closed form.

The prior of a coefficient is N(0, τ_T² Π_{i∈T} d(α_i, k_i − 1)): one size τ per term, one smoothness α per input. The
decay d(α, k) = (1 − ε) exp(−αk) + ε exp(−αk/2) is that of a smooth function, with a share ε of a rougher one: without
it the bands of what evidence takes for smooth are too narrow. As the basis is fixed, ΦᵀΦ is computed once, and the
evidence log N(y; 0, σ²I + ΦSΦᵀ) with its gradient in τ, α and σ is algebra of the size of the basis: no rows, no
minibatches. What the data leave open about τ, α, σ is averaged over.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from vertebra.polynomials import Polynomials, Term, columns, term_degrees

# The highest total degree of a term by its order, and the most columns before these are lowered.
TOTAL_DEGREE = {1: 12, 2: 9, 3: 7}
HIGHER_TOTAL = 6
MAX_COLUMNS = 900
# Hyper-priors on the scale of y of unit variance: log τ² ~ N(log 0.1, 4²), α ~ N(2, 2²). Wide: evidence decides.
LOG_VARIANCE = (math.log(0.1), 4.0)
SMOOTHNESS = (2.0, 2.0)
# ε and the rougher share's decay
ROUGH_SHARE, ROUGH_DECAY = 0.05, 0.4


class Basis(NamedTuple):
    """The columns of a model: which terms, and the degrees of each one's products."""

    polynomials: Polynomials
    terms: tuple[Term, ...]
    degrees: tuple[Int[np.ndarray, "m order"], ...]

    def __call__(self, values: Float[np.ndarray, "p n k"]) -> Float[np.ndarray, "n columns"]:
        """Φ without the constant, from the polynomials' values."""
        parts = [columns(values, term, degrees) for term, degrees in zip(self.terms, self.degrees, strict=True)]
        return np.concatenate([np.zeros((values.shape[1], 0)), *parts], axis=1)

    @property
    def slices(self) -> list[slice]:
        """Where each term's columns lie."""
        ends = np.cumsum([0, *map(len, self.degrees)])
        return [slice(a, b) for a, b in itertools.pairwise(ends)]


def basis_of(polynomials: Polynomials, terms: Sequence[Term], total_degree: Mapping[int, int] = TOTAL_DEGREE) -> Basis:
    """The basis of some terms up to a total degree by order, lower where there would be very many columns."""
    terms = tuple(terms)
    for lower in range(8):
        totals = {t: max(total_degree.get(len(t), HIGHER_TOTAL) - lower, len(t) + 1) for t in terms}
        degrees = tuple(term_degrees(term, polynomials.degree, totals[term]) for term in terms)
        if sum(map(len, degrees)) <= MAX_COLUMNS:
            break
    return Basis(polynomials, terms, degrees)


class Products(NamedTuple):
    """ΦᵀΦ, Φᵀy and yᵀy about the means (a constant of flat prior is integrated out): all the evidence needs of rows."""

    gram: Float[np.ndarray, "m m"]
    cross: Float[np.ndarray, " m"]
    square: float
    n: float
    mean_phi: Float[np.ndarray, " m"]
    mean_y: float
    noise_variance: float | None  # known, or to be learned


class Posterior(NamedTuple):
    """q of the coefficients, given σ² at its best: mean, a root R with Σ = R Rᵀ, and the prior sds."""

    mean: Float[np.ndarray, " m"]
    root: Float[np.ndarray, "m k"]
    prior_sd: Float[np.ndarray, " m"]
    noise_variance: float
    theta: Float[np.ndarray, " h"]
    log_evidence: float

    @property
    def covariance(self) -> Float[np.ndarray, "m m"]:
        return self.root @ self.root.T


class Evidence:
    """log p(y | θ) + log p(θ) and its gradient, θ = (log τ_T², α_i, log σ²)."""

    def __init__(self, basis: Basis, products: Products):
        self.products = products
        inputs = sorted({i for term in basis.terms for i in term})
        # log s = sizes log τ² + Σ_i log d(α_i, steps_i)
        self.sizes = np.zeros((len(products.cross), len(basis.terms)))
        self.steps = np.zeros((len(products.cross), len(inputs)))
        for t, (term, degrees, rows) in enumerate(zip(basis.terms, basis.degrees, basis.slices, strict=True)):
            self.sizes[rows, t] = 1.0
            self.steps[rows, [inputs.index(i) for i in term]] = degrees - 1.0
        self.scale = max(products.square / max(products.n, 1.0), 1e-300)
        centres = [LOG_VARIANCE[0] + math.log(self.scale)] * len(basis.terms) + [SMOOTHNESS[0]] * len(inputs)
        spreads = [LOG_VARIANCE[1]] * len(basis.terms) + [SMOOTHNESS[1]] * len(inputs)
        self.prior_mean = np.array([*centres, math.log(self.scale)])
        self.prior_sd = np.array([*spreads, 10.0])

    def start(self) -> Float[np.ndarray, " h"]:
        theta = self.prior_mean.copy()
        known = self.products.noise_variance
        theta[-1] = theta[-1] + math.log(0.3) if known is None else math.log(known)
        return theta

    def _log_prior_variances(self, theta):
        """log s of every coefficient, and its derivatives in α."""
        n_terms = self.sizes.shape[1]
        smooth = math.log(1.0 - ROUGH_SHARE) - self.steps * theta[n_terms:-1]
        rough = math.log(ROUGH_SHARE) - ROUGH_DECAY * self.steps * theta[n_terms:-1]
        decay = np.logaddexp(smooth, rough)
        slopes = -self.steps * (ROUGH_DECAY + (1.0 - ROUGH_DECAY) * np.exp(smooth - decay))
        return self.sizes @ theta[:n_terms] + decay.sum(axis=1), slopes

    def parts(self, theta):
        """s^{1/2}, σ², L and L⁻¹ of A = S^{1/2}ΦᵀΦS^{1/2}/σ² + I, L⁻¹S^{1/2}Φᵀy/σ², and the posterior mean."""
        log_s, _ = self._log_prior_variances(theta)
        s = np.exp(0.5 * np.clip(log_s, -40.0 + math.log(self.scale), 20.0 + math.log(self.scale)))
        variance = math.exp(theta[-1])
        a = self.products.gram * (s[:, None] * s[None, :] / variance)
        a[np.diag_indices_from(a)] += 1.0
        lower = np.linalg.cholesky(a)
        inverse = solve_triangular(lower, np.eye(len(s)), lower=True)
        b = inverse @ (s * self.products.cross) / variance
        return s, variance, lower, inverse, b, s * (inverse.T @ b)

    def __call__(self, theta):
        s, variance, lower, inverse, b, mean = self.parts(theta)
        gram, cross, square, n = self.products[:4]
        n = n - 1.0  # one for the constant
        value = -0.5 * (
            n * math.log(2.0 * math.pi * variance) + 2.0 * np.sum(np.log(np.diag(lower))) + square / variance - b @ b
        )
        # ∂/∂log s_k = ½ (m_k²/s_k + Σ_kk/s_k − 1); ∂/∂log σ² = ½ (−n + ‖y − Φm‖²/σ² + tr(I − A⁻¹))
        left = np.sum(inverse**2, axis=0)
        slopes = 0.5 * ((mean / s) ** 2 + left - 1.0)
        residual = square - 2.0 * mean @ cross + mean @ gram @ mean
        slope = 0.5 * (-n + residual / variance + len(s) - left.sum())
        away = (theta - self.prior_mean) / self.prior_sd
        if self.products.noise_variance is not None:
            slope, away[-1] = 0.0, 0.0
        in_alpha = self._log_prior_variances(theta)[1].T @ slopes
        gradient = np.concatenate([self.sizes.T @ slopes, in_alpha, [slope]]) - away / self.prior_sd
        return value - 0.5 * away @ away, gradient

    def maximise(self, tolerance: float = 1e-9) -> Float[np.ndarray, " h"]:
        """θ of the highest evidence; `tolerance` is the relative gain at which to stop."""

        def loss(theta):
            value, gradient = self(theta)
            return -value, -gradient

        options = {"maxiter": 200, "ftol": tolerance}
        return minimize(loss, self.start(), jac=True, method="L-BFGS-B", options=options).x

    def around(self, theta, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draws h"]:
        """Draws of θ from N(θ̂, H⁻¹), H the curvature of the evidence at its maximum, in pairs about it."""
        step = 1e-3
        units = step * np.eye(len(theta))
        slope = self(theta)[1]
        hessian = np.array([(slope - self(theta + e)[1]) / step for e in units])
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        # Curvature below the hyper-prior's is rounding or a ridge: the prior's is used.
        values = np.maximum(values, 1.0 / self.prior_sd.max() ** 2)
        noise = rng.standard_normal((n_draws // 2, len(theta))) / np.sqrt(values)
        away = np.concatenate([noise, -noise]) @ vectors.T
        if self.products.noise_variance is not None:
            away[:, -1] = 0.0
        return theta + away


def best(basis: Basis, products: Products, *, tolerance: float = 1e-9) -> tuple[Posterior, Evidence]:
    """The posterior at the hyper-parameters of the highest evidence."""
    evidence = Evidence(basis, products)
    return _posterior(evidence, evidence.maximise(tolerance)), evidence


def averaged(basis: Basis, products: Products, *, rng: np.random.Generator, n_draws: int = 24) -> Posterior:
    """The posterior averaged over the hyper-parameters: a Gaussian with the mixture's mean and covariance.

    Without draws, that at their best values.
    """
    posterior, evidence = best(basis, products)
    if not n_draws or not len(posterior.mean):
        return posterior
    members = [_posterior(evidence, theta) for theta in evidence.around(posterior.theta, n_draws, rng)]
    means = np.array([m.mean for m in members])
    mean = means.mean(axis=0)
    # Σ = E Σ_θ + Cov m_θ
    covariance = np.mean([m.covariance for m in members], axis=0) + (means - mean).T @ (means - mean) / len(means)
    prior_sd = np.sqrt(np.mean([m.prior_sd**2 for m in members], axis=0))
    return posterior._replace(mean=mean, root=root_of(covariance), prior_sd=prior_sd)


def root_of(covariance: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """R with R Rᵀ = Σ, for Σ that may be singular to rounding."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _posterior(evidence: Evidence, theta) -> Posterior:
    s, variance, _, inverse, _, mean = evidence.parts(theta)
    return Posterior(mean, s[:, None] * inverse.T, s, variance, theta, evidence(theta)[0])


def products_of(
    phi: Float[np.ndarray, "n m"],
    y: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    noise_variance: float | None = None,
) -> Products:
    """The products of weighted rows; a weight multiplies the precision of its row."""
    total = weight.sum()
    mean_phi, mean_y = weight @ phi / total, float(weight @ y / total)
    weighted = weight[:, None] * phi
    return Products(
        phi.T @ weighted - total * np.outer(mean_phi, mean_phi),
        weighted.T @ y - total * mean_phi * mean_y,
        float(weight @ (y - mean_y) ** 2),
        float(np.count_nonzero(weight)),
        mean_phi,
        mean_y,
        noise_variance,
    )


def with_constant(
    posterior: Posterior, products: Products, total: float
) -> tuple[Float[np.ndarray, " m1"], Float[np.ndarray, "m1 m1"]]:
    """Mean and covariance of (c, v): c = ȳ − φ̄ᵀv + N(0, σ²/Σ weights)."""
    lift = np.concatenate([-products.mean_phi[None], np.eye(len(posterior.mean))])
    mean = lift @ posterior.mean
    mean[0] += products.mean_y
    covariance = lift @ posterior.covariance @ lift.T
    covariance[0, 0] += posterior.noise_variance / total
    return mean, covariance
