"""The predictive distribution of y at rows, from the Gaussian posterior of f there and the likelihood.

Exact where the noise is Gaussian; else over 100 equally likely values of every latent function.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float
from scipy.special import expit, ndtri, softmax

from vertebra.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)

N_POINTS = 100
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
                return np.exp(self.f_mean + 0.5 * self.f_variance)
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

    def quantiles(self, q: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "n levels k"]:
        if isinstance(self.likelihood, Gaussian):
            sd = np.sqrt(self.f_variance + self._scale**2)
            return self.f_mean[:, None] + sd[:, None] * ndtri(q)[None, :, None]
        return self._over_f(lambda likelihood, f: jnp.moveaxis(likelihood.quantiles(f, jnp.asarray(q)), 0, 1))

    def log_prob(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """log p(y) of each row and target."""
        if isinstance(self.likelihood, Gaussian):
            variance = self.f_variance + self._scale**2
            return -0.5 * np.log(2.0 * np.pi * variance) - 0.5 * (y - self.f_mean) ** 2 / variance
        return self._over_f(lambda likelihood, f, y: likelihood.log_predictive(f, y), y)

    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        """P(class) of each row, the uncertainty of f averaged over."""
        f = self._points(slice(None))
        p = expit(f).mean(axis=0) if self.f_mean.shape[1] == 1 else softmax(f, axis=2).mean(axis=0)
        p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
        return p / p.sum(axis=1, keepdims=True)

    def _points(self, rows) -> Float[np.ndarray, "points n latent"]:
        """Equally likely values of f, latent functions independent."""
        levels = ndtri((np.arange(N_POINTS) + 0.5) / N_POINTS)
        shuffled = np.random.default_rng(0).permuted(np.tile(levels, (self.f_mean.shape[1], 1)), axis=1).T
        return self.f_mean[rows][None] + np.sqrt(self.f_variance[rows])[None] * shuffled[:, None, :]

    def _over_f(self, ask, *more):
        """What a likelihood says over the values of f, some rows at a time, in double precision."""
        with jax.enable_x64(True):
            likelihood, parts = _double(self.likelihood), []
            for start in range(0, max(len(self.f_mean), 1), CHUNK):
                rows = slice(start, start + CHUNK)
                f = jnp.asarray(self._points(rows))
                parts.append(np.asarray(ask(likelihood, f, *(jnp.asarray(part[rows]) for part in more))))
            return np.concatenate(parts)


def sample_of(
    likelihood: Likelihood, f: Float[np.ndarray, "draws n latent"], seed: int
) -> Float[np.ndarray, "draws n k"]:
    """One y for each draw of f."""
    if isinstance(likelihood, Gaussian):
        scale = np.asarray(likelihood.scale, np.float64)
        return f + scale * np.random.default_rng(seed).standard_normal(f.shape)
    with jax.enable_x64(True):
        return np.asarray(_double(likelihood).sample(jnp.asarray(f), jr.key(seed)))


def _double(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tree)
