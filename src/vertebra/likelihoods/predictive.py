"""The predictive distribution of y at rows, from the Gaussian posterior of f there and the likelihood.

Exact where the noise is Gaussian; else over equally likely values of the latent functions: 100 of one, 128 of several.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float
from scipy.special import expit, gammaln, logsumexp, ndtr, ndtri, pdtr, softmax, stdtr

from vertebra.likelihoods.densities import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
    normal_points,
)
from vertebra.machine.devices import padded
from vertebra.networks.parameters import in_double_precision

# Of one latent function, and of several together: a power of two, for Sobol' points.
N_POINTS, N_JOINT = 100, 128
# Rates of counts beyond e^LARGEST_RATE are as if they were that: their squares are still numbers, and no count is.
LARGEST_RATE = 350.0
# Rows worked on at once.
CHUNK = 2048


class Predictive(NamedTuple):
    """p(y | data) of each row, on the model's scale."""

    likelihood: Likelihood
    f_mean: Float[np.ndarray, "n latent"]
    f_variance: Float[np.ndarray, "n latent"]

    @property
    def _scale(self):
        return np.asarray(self.likelihood.scale, np.float64)  # type: ignore[attr-defined]

    def mean(self) -> Float[np.ndarray, "n k"]:
        """E y."""
        match self.likelihood:
            case Poisson():
                # E e^f = e^{m + v/2}
                return np.exp(np.minimum(self.f_mean + 0.5 * self.f_variance, LARGEST_RATE))
            case Bernoulli() | Categorical():
                return self.probabilities()
        return self.f_mean[:, :: self.likelihood.latent_per_target]

    def epistemic(self) -> Float[np.ndarray, "n k"]:
        """Var E[y | f]: what more data would take away."""
        if isinstance(self.likelihood, Gaussian | StudentT | HeteroscedasticGaussian):
            return self.f_variance[:, :: self.likelihood.latent_per_target]
        return self._over_f(lambda likelihood, f: jnp.var(likelihood.conditional_mean(f), axis=0))

    def aleatoric(self) -> Float[np.ndarray, "n k"]:
        """E Var[y | f]: the noise."""
        if isinstance(self.likelihood, Gaussian):
            return np.broadcast_to(self._scale**2, self.f_mean.shape)
        return self._over_f(lambda likelihood, f: jnp.mean(likelihood.conditional_variance(f), axis=0))

    def away(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """How far y is from its mean, in its own sds."""
        return (y - self.mean()) / np.sqrt(self.epistemic() + self.aleatoric())

    def quantiles(self, q: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "n levels k"]:
        if isinstance(self.likelihood, Gaussian):
            sd = np.sqrt(self.f_variance + self._scale**2)
            return self.f_mean[:, None] + sd[:, None] * ndtri(q)[None, :, None]
        rows = [slice(start, start + CHUNK) for start in range(0, max(len(self.f_mean), 1), CHUNK)]
        parts = [Predictive(self.likelihood, self.f_mean[r], self.f_variance[r])._inverted(q) for r in rows]
        return np.concatenate(parts)

    def _inverted(self, q):
        """Where the mean over f of the distribution functions crosses each level, by halving."""
        f, discrete = self.points(slice(None)), self.likelihood.is_discrete
        centre, sd = self.mean(), np.sqrt(self.epistemic() + self.aleatoric())
        result = np.empty((len(centre), len(q), centre.shape[1]))
        for k, level in enumerate(q):
            # Cantelli: at most a share 1/(1 + t²) of any distribution lies beyond t standard deviations on one side.
            reach = 1.01 * np.sqrt(1.0 / min(level, 1.0 - level)) * sd + 1.0
            lower, upper = centre - reach, centre + reach
            if discrete:
                lower, upper = np.maximum(np.floor(lower), 0.0) - 1.0, np.ceil(upper)
            for _ in range(45):
                if discrete and np.all(upper - lower <= 1.0):
                    break
                middle = np.floor(0.5 * (lower + upper)) if discrete else 0.5 * (lower + upper)
                below = _distribution(self.likelihood, f, middle).mean(axis=0) < level
                lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
            result[:, k] = upper
        return result

    def log_prob(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """log p(y) of each row and target."""
        if isinstance(self.likelihood, Gaussian):
            variance = self.f_variance + self._scale**2
            return -0.5 * np.log(2.0 * np.pi * variance) - 0.5 * (y - self.f_mean) ** 2 / variance
        rows = [slice(start, start + CHUNK) for start in range(0, max(len(y), 1), CHUNK)]
        each = [logsumexp(_log_density(self.likelihood, self.points(r), y[r]), axis=0) for r in rows]
        return np.concatenate(each) - np.log(len(self.points(slice(0))))

    def inside(self, y: Float[np.ndarray, "n k"], levels: Sequence[float]) -> Float[np.ndarray, "levels n k"]:
        """Whether y lies in the central interval of each level; of a count, the share of its step that does.

        Means over rows are the levels where the model is right.
        """
        below, upto = self._ranks(y)
        half = 0.5 * np.asarray(levels)[:, None, None]
        covered = np.minimum(upto, 0.5 + half) - np.maximum(below, 0.5 - half)
        return np.where(upto > below, np.clip(covered / np.maximum(upto - below, 1e-300), 0.0, 1.0), covered >= 0.0)

    def _ranks(self, y):
        """P(Y < y) and P(Y ≤ y) of each row and target."""
        if isinstance(self.likelihood, Gaussian):
            rank = ndtr((y - self.f_mean) / np.sqrt(self.f_variance + self._scale**2))
            return rank, rank
        below, upto = [], []
        for start in range(0, max(len(y), 1), CHUNK):
            rows = slice(start, start + CHUNK)
            f = self.points(rows)
            upto.append(_distribution(self.likelihood, f, y[rows]).mean(axis=0))
            if self.likelihood.is_discrete:
                below.append(_distribution(self.likelihood, f, y[rows] - 1.0).mean(axis=0))
        return np.concatenate(below or upto), np.concatenate(upto)

    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        """P(class) of each row, the uncertainty of f averaged over."""
        f = self.points(slice(None))
        p = expit(f).mean(axis=0) if self.f_mean.shape[1] == 1 else softmax(f, axis=2).mean(axis=0)
        p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
        return p / p.sum(axis=1, keepdims=True)

    def points(self, rows) -> Float[np.ndarray, "points n latent"]:
        """Equally likely values of f, latent functions independent."""
        n_latent = self.f_mean.shape[1]
        standard = normal_points(N_POINTS if n_latent == 1 else N_JOINT, n_latent)
        f = self.f_mean[rows][None] + np.sqrt(self.f_variance[rows])[None] * standard[:, None, :]
        return np.minimum(f, LARGEST_RATE) if isinstance(self.likelihood, Poisson) else f

    def _over_f(self, ask):
        """What a likelihood says over the values of f, some rows at a time, in double precision."""
        with jax.enable_x64(True):
            likelihood, parts = in_double_precision(self.likelihood), []
            for start in range(0, max(len(self.f_mean), 1), CHUNK):
                rows = slice(start, start + CHUNK)
                f, n = padded(np.moveaxis(self.points(rows), 1, 0))
                parts.append(np.asarray(ask(likelihood, jnp.moveaxis(f, 0, 1)))[:n])
            return np.concatenate(parts)


def _log_density(likelihood: Likelihood, f, y):
    """log p(y | f)."""
    match likelihood:
        case StudentT():
            scale, nu = np.exp(np.asarray(likelihood.log_scale, np.float64)), float(likelihood.degrees)
            constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * np.pi) - np.log(scale)
            return constant - 0.5 * (nu + 1.0) * np.log1p(((y - f) / scale) ** 2 / nu)
        case HeteroscedasticGaussian():
            scale = np.exp(np.asarray(likelihood.log_scale, np.float64)) * np.exp(2.0 * np.tanh(0.25 * f[..., 1::2]))
            return -0.5 * np.log(2.0 * np.pi) - np.log(scale) - 0.5 * ((y - f[..., ::2]) / scale) ** 2
        case Poisson():
            return y * f - np.exp(f) - gammaln(y + 1.0)
    raise NotImplementedError(f"No density of {type(likelihood).__name__}.")


def _distribution(likelihood: Likelihood, f, y):
    """P(Y ≤ y | f), without JAX: in double precision, and nothing to compile."""
    match likelihood:
        case StudentT():
            scale, degrees = np.exp(np.asarray(likelihood.log_scale, np.float64)), float(likelihood.degrees)
            return stdtr(degrees, (y - f) / scale)
        case HeteroscedasticGaussian():
            scale = np.exp(np.asarray(likelihood.log_scale, np.float64))
            return ndtr((y - f[..., ::2]) / (scale * np.exp(2.0 * np.tanh(0.25 * f[..., 1::2]))))
        case Poisson():
            return np.where(y < 0.0, 0.0, pdtr(np.maximum(np.floor(y), 0.0), np.exp(f)))
    raise NotImplementedError(f"No quantiles of {type(likelihood).__name__}.")


def sample_of(
    likelihood: Likelihood, f: Float[np.ndarray, "draws n latent"], seed: int
) -> Float[np.ndarray, "draws n k"]:
    """One y for each draw of f."""
    rng = np.random.default_rng(seed)
    # in NumPy, as the distribution functions are: nothing to compile for every number of rows
    match likelihood:
        case Gaussian():
            return f + np.asarray(likelihood.scale, np.float64) * rng.standard_normal(f.shape)
        case StudentT():
            scale = np.exp(np.asarray(likelihood.log_scale, np.float64))
            return f + scale * rng.standard_t(float(likelihood.degrees), f.shape)
        case HeteroscedasticGaussian():
            scale = np.exp(np.asarray(likelihood.log_scale, np.float64)) * np.exp(2.0 * np.tanh(0.25 * f[..., 1::2]))
            return f[..., ::2] + scale * rng.standard_normal(scale.shape)
        case Poisson():
            # NumPy draws up to 9e18
            return rng.poisson(np.minimum(np.exp(f), 1e18)).astype(float)
    with jax.enable_x64(True):
        return np.asarray(in_double_precision(likelihood).sample(jnp.asarray(f), jr.key(seed)))
