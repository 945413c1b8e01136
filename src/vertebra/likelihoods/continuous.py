"""Likelihoods of real numbers: y is f and noise of a learned scale, normal, uneven or with heavy tails."""

from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from vertebra.likelihoods.densities import (
    IN_NUMPY,
    Maths,
    log_scale_link,
    normal_log_prob,
    scale_of,
    student_log_prob,
)
from vertebra.likelihoods.in_jax import IN_JAX
from vertebra.likelihoods.likelihood import Likelihood, positive_sd
from vertebra.likelihoods.quadrature import N_NODES, gauss_hermite
from vertebra.networks.kernels import log_positive
from vertebra.networks.parameters import UNBUILT, Built

Own = TypeVar("Own", bound="Noise")


class Noise(Likelihood):
    """y = mean + scale · noise, one learned scale per target; the noise is standard normal unless a class says more."""

    is_location: ClassVar[bool] = True
    log_scale: eqx.AbstractVar[Built[Float[Array, "*k"]]]

    def init(self: Own, y: np.ndarray) -> Own:
        log_scale = log_positive("scale", _scale_of(y, self.log_scale))
        return eqx.tree_at(lambda own: own.log_scale, self, log_scale, is_leaf=lambda leaf: leaf is None)

    def split(self, f, maths: Maths = IN_JAX):
        """Mean and log scale of y, with as many axes as f."""
        return f, self._log_scale(f, maths)

    def _log_scale(self, f, maths: Maths):
        if self.log_scale is None:
            raise ValueError("`scale` is not set yet: use `likelihood.init(y)`, or give a `scale`.")
        own = maths.parameter(self.log_scale)
        return own if own.ndim == 0 else own.reshape((1,) * (f.ndim - 1) + (-1,))

    def _density(self, z, log_scale, maths: Maths):
        """log p of y that is z scales away from its mean."""
        return normal_log_prob(z, log_scale, maths)

    def _rank(self, z, maths: Maths):
        """The share of the noise that is at most z."""
        return maths.ndtr(z)

    def log_prob(self, f, y):
        mean, log_scale = self.split(f)
        return self._density((y - mean) * jnp.exp(-log_scale), log_scale, IN_JAX)

    def cdf(self, f, y):
        mean, log_scale = self.split(f)
        return self._rank((y - mean) * jnp.exp(-log_scale), IN_JAX)

    def conditional_mean(self, f):
        return self.split(f)[0]

    def conditional_variance(self, f):
        mean, log_scale = self.split(f)
        return jnp.broadcast_to(jnp.exp(2.0 * log_scale), mean.shape)

    def sample(self, f, key):
        mean, log_scale = self.split(f)
        return mean + jnp.exp(log_scale) * jr.normal(key, mean.shape, f.dtype)

    def numpy_log_prob(self, f, y):
        mean, log_scale = self.split(f, IN_NUMPY)
        return self._density((y - mean) / np.exp(log_scale), log_scale, IN_NUMPY)

    def numpy_cdf(self, f, y):
        mean, log_scale = self.split(f, IN_NUMPY)
        return self._rank((y - mean) / np.exp(log_scale), IN_NUMPY)

    def numpy_mean(self, f):
        return self.split(f, IN_NUMPY)[0]

    def numpy_variance(self, f):
        mean, log_scale = self.split(f, IN_NUMPY)
        return np.broadcast_to(np.exp(2.0 * log_scale), mean.shape)

    def numpy_sample(self, f, seed):
        mean, log_scale = self.split(f, IN_NUMPY)
        return mean + np.exp(log_scale) * np.random.default_rng(seed).standard_normal(mean.shape)


class Gaussian(Noise):
    """y = f + ε, ε ~ N(0, scale²), one learned scale per target; it starts at half the sd of y unless given.

    >>> print(vb.Gaussian().init(np.array([[0.0], [2.0]])).scale)
    [0.5]
    """

    log_scale: Built[Float[Array, "*k"]]

    def __init__(self, scale: ArrayLike | None = None):
        self.log_scale = UNBUILT if scale is None else log_positive("scale", scale)

    @property
    def scale(self) -> Float[Array, "*k"]:
        return jnp.exp(self.log_scale)

    def expected_log_prob(self, mean, variance, y, noise):
        # E log N(y; f, s²) = log N(y; m, s²) − v/2s²
        exact = self.log_prob(mean, y)
        return exact if variance is None else exact - 0.5 * variance * jnp.exp(-2.0 * self._log_scale(mean, IN_JAX))

    def numpy_sample(self, f, seed):
        # the scale as `normal_variance` has it
        return f + scale_of(self.log_scale) * np.random.default_rng(seed).standard_normal(f.shape)

    @property
    def normal_variance(self):
        return scale_of(self.log_scale) ** 2


class HeteroscedasticGaussian(Noise):
    """y = f₁ + ε, ε ~ N(0, s(x)²), s = scale · exp(g/2) with g = 4 tanh(f₂/4): noise that depends on the input.

    g is close to f₂ where f₂ is small and never past ±4, so that s stays within a factor e² of `scale` either way and
    no draw can claim certainty.

    >>> likelihood = vb.HeteroscedasticGaussian(scale=1.0)
    >>> print(likelihood.conditional_variance(jnp.array([[3.0, 0.0]])))  # f₁ = 3 and f₂ = 0
    [[1.]]
    """

    latent_per_target: ClassVar[int] = 2
    log_scale: Built[Float[Array, "*k"]]

    def __init__(self, scale: ArrayLike | None = None):
        self.log_scale = UNBUILT if scale is None else log_positive("scale", scale)

    def split(self, f, maths: Maths = IN_JAX):
        """Mean and log scale of y, (*rows, k) each."""
        mean, second = _pairs(f)
        return mean, self._log_scale(second, maths) + log_scale_link(second, maths)

    def expected_log_prob(self, mean, variance, y, noise):
        if variance is None:
            return self.log_prob(mean, y)
        # Exact over f₁ given f₂; quadrature over f₂, which shapes log s and s⁻².
        centre, second = _pairs(mean)
        spread, second_variance = _pairs(variance)
        sd = positive_sd(second_variance)

        def given(node):
            log_scale = self._log_scale(second, IN_JAX) + log_scale_link(second + sd * node, IN_JAX)
            exact = normal_log_prob((y - centre) * jnp.exp(-log_scale), log_scale, IN_JAX)
            return exact - 0.5 * spread * jnp.exp(-2.0 * log_scale)

        nodes, shares = gauss_hermite(N_NODES[1])
        values = jax.vmap(given)(jnp.asarray(nodes, mean.dtype))
        return jnp.tensordot(jnp.asarray(shares, mean.dtype), values, axes=1)


class StudentT(Noise):
    """y = f + scale · t, t Student's with learned degrees of freedom above 2: noise with heavy tails.

    >>> print(vb.StudentT(scale=1.0, degrees=4.0).conditional_variance(jnp.zeros((1, 1))).round(2))  # 4/(4 − 2)
    [[2.]]
    """

    log_scale: Built[Float[Array, "*k"]]
    log_excess: Float[Array, ""]  # degrees of freedom − 2

    def __init__(self, scale: ArrayLike | None = None, degrees: float = 5.0):
        if not degrees > 2.0:
            raise ValueError(f"`degrees` must be above 2, so that y has a variance, got {degrees!r}.")
        self.log_scale = UNBUILT if scale is None else log_positive("scale", scale)
        self.log_excess = log_positive("degrees", degrees - 2.0)

    def init(self, y: np.ndarray) -> "StudentT":
        excess = log_positive("degrees", float(self.degrees) - 2.0)
        return eqx.tree_at(lambda likelihood: likelihood.log_excess, super().init(y), excess)

    @property
    def degrees(self) -> Float[Array, ""]:
        return 2.0 + jnp.exp(self.log_excess)

    def _density(self, z, log_scale, maths):
        return student_log_prob(z**2, log_scale, maths.parameter(self.degrees), maths)

    def _rank(self, z, maths):
        return maths.stdtr(maths.parameter(self.degrees), z)

    def conditional_variance(self, f):
        variance = jnp.exp(2.0 * self._log_scale(f, IN_JAX)) * self.degrees / (self.degrees - 2.0)
        return jnp.broadcast_to(variance, f.shape)

    def sample(self, f, key):
        return f + jnp.exp(self._log_scale(f, IN_JAX)) * jr.t(key, self.degrees, f.shape, f.dtype)

    def numpy_variance(self, f):
        degrees = float(self.degrees)
        return np.broadcast_to(np.exp(2.0 * self._log_scale(f, IN_NUMPY)) * degrees / (degrees - 2.0), f.shape)

    def numpy_sample(self, f, seed):
        t = np.random.default_rng(seed).standard_t(float(self.degrees), f.shape)
        return f + np.exp(self._log_scale(f, IN_NUMPY)) * t


def _pairs(f):
    """f₁ and f₂ of every target."""
    pairs = f.reshape(*f.shape[:-1], f.shape[-1] // 2, 2)
    return pairs[..., 0], pairs[..., 1]


def _scale_of(y: np.ndarray, log_scale: Float[Array, "*k"] | None) -> Float[Array, " k"]:
    if log_scale is not None:
        if log_scale.ndim == 1 and log_scale.shape[0] not in (1, y.shape[1]):
            raise ValueError(f"`scale` must have one entry per target, {y.shape[1]}, got {log_scale.shape[0]}.")
        return jnp.broadcast_to(jnp.exp(log_scale), (y.shape[1],))
    # half the sd of y: as if f explained three quarters of its variance
    sd = y.std(axis=0)
    return jnp.asarray(np.where(sd > 0, 0.5 * sd, 1.0), dtype=float)
