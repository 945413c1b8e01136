"""Likelihoods of counts and classes."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra.likelihoods.densities import (
    IN_JAX,
    IN_NUMPY,
    bernoulli_log_prob,
    categorical_log_prob,
    poisson_cdf,
    poisson_log_prob,
)
from vertebra.likelihoods.likelihood import Likelihood, real_targets
from vertebra.likelihoods.quantiles import checked_levels

# Rates beyond e^LARGEST_RATE are as if they were that: their squares are still numbers, and no count is.
LARGEST_RATE = 350.0
# NumPy draws counts up to 9e18.
LARGEST_DRAWN = 1e18


class Bernoulli(Likelihood):
    """P(y = 1) = 1/(1 + e^{−f}) for y in {0, 1}.

    >>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
    >>> round(float(vb.Bernoulli().mean(f)[0, 0]), 2)
    0.69
    """

    is_discrete: ClassVar[bool] = True
    has_classes: ClassVar[bool] = True

    def check(self, y: np.ndarray) -> np.ndarray:
        y = real_targets(y)
        _refuse(y, ~np.isin(y, (0.0, 1.0)), "0 or 1")
        return y

    def log_prob(self, f, y):
        return bernoulli_log_prob(f, y, IN_JAX)

    def conditional_mean(self, f):
        return jax.nn.sigmoid(f)

    def conditional_variance(self, f):
        return jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)

    def cdf(self, f, y):
        return jnp.where(y < 0.0, 0.0, jnp.where(y < 1.0, jax.nn.sigmoid(-f), 1.0))

    def sample(self, f, key):
        return jr.bernoulli(key, jax.nn.sigmoid(f)).astype(f.dtype)


class Poisson(Likelihood):
    """y ~ Poisson(e^f) for counts.

    >>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
    >>> round(float(vb.Poisson().mean(f)[0, 0]), 2)  # (e⁰ + e²)/2
    4.19
    """

    is_discrete: ClassVar[bool] = True

    def check(self, y: np.ndarray) -> np.ndarray:
        y = real_targets(y)
        _refuse(y, (y < 0.0) | (y != np.floor(y)), "whole numbers of at least 0")
        return y

    def log_prob(self, f, y):
        return poisson_log_prob(y, f, jnp.exp(f), IN_JAX)

    def expected_log_prob(self, mean, variance, y, noise):
        # E e^f = e^{m + v/2}
        variance = 0.0 if variance is None else variance
        return poisson_log_prob(y, mean, jnp.exp(mean + 0.5 * variance), IN_JAX)

    def conditional_mean(self, f):
        return jnp.exp(f)

    def conditional_variance(self, f):
        return jnp.exp(f)

    def cdf(self, f, y):
        return poisson_cdf(y, jnp.exp(f), IN_JAX)

    def sample(self, f, key):
        # JAX's Poisson draws want a threefry key, whatever kind came in.
        key = jr.wrap_key_data(jr.bits(key, (2,), jnp.uint32), impl="threefry2x32")
        return jr.poisson(key, jnp.exp(f)).astype(f.dtype)

    def numpy_log_prob(self, f, y):
        return poisson_log_prob(y, f, np.exp(f), IN_NUMPY)

    def numpy_cdf(self, f, y):
        return poisson_cdf(y, np.exp(f), IN_NUMPY)

    def numpy_sample(self, f, seed):
        return np.random.default_rng(seed).poisson(np.minimum(np.exp(f), LARGEST_DRAWN)).astype(float)

    def exact_mean(self, mean, variance):
        # E e^f = e^{m + v/2}
        return np.exp(self.held(mean + 0.5 * variance))

    def held(self, f):
        return np.minimum(f, LARGEST_RATE)


class Categorical(Likelihood):
    """P(y = c) = e^{f_c} / Σ_k e^{f_k} for classes 0, …, n_classes − 1: the softmax likelihood.

    y holds class codes, with a last axis of 1. `mean` gives the probabilities of all classes and `variance` p(1 − p);
    `quantiles` and `cdf` are of the code, and mean something where the classes are ordered.

    >>> print(vb.Categorical(3).mean(jnp.log(jnp.array([[[1.0, 2.0, 1.0]]]))).round(2))
    [[0.25 0.5  0.25]]
    """

    is_discrete: ClassVar[bool] = True
    has_classes: ClassVar[bool] = True
    n_classes: int = eqx.field(static=True)

    def __init__(self, n_classes: int):
        if n_classes < 2:
            raise ValueError(f"`n_classes` must be at least 2, got {n_classes!r}.")
        self.n_classes = n_classes

    def n_latent(self, n_targets: int) -> int:
        return self.n_classes

    def check(self, y: np.ndarray) -> np.ndarray:
        y = real_targets(y)
        if y.shape[1] != 1:
            raise ValueError(f"`y` must hold one class per row, shape (n,) or (n, 1), got {y.shape}.")
        _refuse(y, ~np.isin(y, np.arange(self.n_classes)), f"classes from 0 to {self.n_classes - 1}")
        return y

    def log_prob(self, f, y):
        return categorical_log_prob(f, y.astype(jnp.int32), IN_JAX)

    def expected_log_prob(self, mean, variance, y, noise):
        # No closed form, and quadrature grows with the classes: one reparameterised draw, unbiased.
        return self.log_prob(mean, y) if variance is None else self.log_prob_of_a_draw(mean, variance, y, noise)

    def conditional_mean(self, f):
        return jax.nn.softmax(f, axis=-1)

    def variance(self, f):
        p = self.mean(f)
        return p * (1.0 - p)

    def conditional_variance(self, f):
        p = self.conditional_mean(f)
        return p * (1.0 - p)

    def cdf(self, f, y):
        codes = jnp.arange(self.n_classes).reshape((1,) * (f.ndim - 1) + (-1,))
        below = codes <= jnp.floor(y)
        return jnp.sum(jnp.where(below, jax.nn.softmax(f, axis=-1), 0.0), axis=-1, keepdims=True)

    def sample(self, f, key):
        return jr.categorical(key, f, axis=-1)[..., None].astype(f.dtype)

    def quantiles(self, f, q):
        levels = checked_levels(q, f.dtype)
        cumulative = jnp.cumsum(self.mean(f), axis=-1)
        return jax.vmap(lambda level: jnp.sum(cumulative < level, axis=-1, keepdims=True).astype(f.dtype))(levels)


def _refuse(y: np.ndarray, bad: np.ndarray, wanted: str) -> None:
    if bad.any():
        raise ValueError(f"`y` must hold {wanted}, got {y[bad][0]:g} in row {int(np.argwhere(bad)[0, 0])}.")
