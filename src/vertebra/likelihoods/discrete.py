"""Likelihoods of counts and classes."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from vertebra.likelihoods.densities import (
    IN_NUMPY,
    Maths,
    bernoulli_log_prob,
    categorical_log_prob,
    negative_binomial_cdf,
    negative_binomial_log_prob,
    poisson_cdf,
    poisson_log_prob,
)
from vertebra.likelihoods.in_jax import IN_JAX
from vertebra.likelihoods.likelihood import Likelihood, real_targets
from vertebra.likelihoods.quantiles import checked_levels
from vertebra.networks.kernels import log_positive
from vertebra.networks.parameters import UNBUILT, Built, in_working_precision

# Rates beyond e^LARGEST_RATE are as if they were that: their squares are still numbers, and no count is.
LARGEST_RATE = 350.0
# NumPy draws counts up to 9e18.
LARGEST_DRAWN = 1e18
# Dispersions at the start are within these: hardly more than Poisson's variance, and noise that hides most of f.
FIRST_DISPERSIONS = (0.01, 10.0)


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
        return _counts(y)

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

    def numpy_mean(self, f):
        return np.exp(f)

    def numpy_variance(self, f):
        return np.exp(f)

    def numpy_sample(self, f, seed):
        return np.random.default_rng(seed).poisson(np.minimum(np.exp(f), LARGEST_DRAWN)).astype(float)

    def exact_mean(self, mean, variance):
        # E e^f = e^{m + v/2}
        return np.exp(self.held(mean + 0.5 * variance))

    def held(self, f):
        return np.minimum(f, LARGEST_RATE)


class NegativeBinomial(Likelihood):
    """Counts of mean e^f that vary more than Poisson's: Var[y | f] = e^f + dispersion · e^{2f}.

    A Poisson count whose rate is e^f times a gamma variable of mean 1 and variance `dispersion`, one of each target. It
    is learned, and starts at half of what is seen beyond Poisson's variance unless given.

    >>> print(vb.NegativeBinomial(dispersion=0.5).conditional_variance(jnp.log(jnp.array([[2.0]]))).round(2))
    [[4.]]
    """

    is_discrete: ClassVar[bool] = True
    log_dispersion: Built[Float[Array, "*k"]]

    def __init__(self, dispersion: ArrayLike | None = None):
        self.log_dispersion = UNBUILT if dispersion is None else log_positive("dispersion", dispersion)

    def init(self, y: np.ndarray) -> "NegativeBinomial":
        if self.log_dispersion is None:
            mean = np.maximum(y.mean(axis=0), 1e-3)
            start = np.clip(0.5 * (y.var(axis=0) - mean) / mean**2, *FIRST_DISPERSIONS)
        else:
            start = np.broadcast_to(np.exp(np.asarray(self.log_dispersion)), y.shape[1:])
        value = log_positive("dispersion", start)
        return eqx.tree_at(lambda own: own.log_dispersion, self, value, is_leaf=lambda leaf: leaf is None)

    @property
    def dispersion(self) -> Float[Array, "*k"]:
        return jnp.exp(self.log_dispersion)

    def _dispersion(self, f, maths: Maths = IN_JAX):
        if self.log_dispersion is None:
            raise ValueError("`dispersion` is not set yet: use `likelihood.init(y)`, or give a `dispersion`.")
        own = maths.xp.exp(maths.parameter(self.log_dispersion))
        return own if own.ndim == 0 else own.reshape((1,) * (f.ndim - 1) + (-1,))

    def check(self, y: np.ndarray) -> np.ndarray:
        return _counts(y)

    def log_prob(self, f, y):
        return negative_binomial_log_prob(y, f, self._dispersion(f), IN_JAX)

    def conditional_mean(self, f):
        return jnp.exp(f)

    def conditional_variance(self, f):
        return jnp.exp(f) + self._dispersion(f) * jnp.exp(2.0 * f)

    def cdf(self, f, y):
        return negative_binomial_cdf(y, f, self._dispersion(f), IN_JAX)

    def sample(self, f, key):
        own, other = jr.split(key)
        r = jnp.broadcast_to(1.0 / self._dispersion(f), f.shape)
        # JAX's Poisson draws want a threefry key, whatever kind came in.
        other = jr.wrap_key_data(jr.bits(other, (2,), jnp.uint32), impl="threefry2x32")
        return jr.poisson(other, jnp.exp(f) * jr.gamma(own, r, dtype=f.dtype) / r).astype(f.dtype)

    def numpy_log_prob(self, f, y):
        return negative_binomial_log_prob(y, f, self._dispersion(f, IN_NUMPY), IN_NUMPY)

    def numpy_cdf(self, f, y):
        return negative_binomial_cdf(y, f, self._dispersion(f, IN_NUMPY), IN_NUMPY)

    def numpy_mean(self, f):
        return np.exp(f)

    def numpy_variance(self, f):
        return np.exp(f) + self._dispersion(f, IN_NUMPY) * np.exp(2.0 * f)

    def numpy_sample(self, f, seed):
        rng, dispersion = np.random.default_rng(seed), self._dispersion(f, IN_NUMPY)
        rate = np.exp(f) * dispersion * rng.gamma(1.0 / dispersion, size=f.shape)
        return rng.poisson(np.minimum(rate, LARGEST_DRAWN)).astype(float)

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
        of = lambda level: jnp.sum(cumulative < level, axis=-1, keepdims=True).astype(f.dtype)  # noqa: E731
        return jnp.moveaxis(jax.vmap(of)(levels), 0, -2)


class Ordinal(Likelihood):
    """P(y ≤ c) = 1/(1 + e^{f − b_c}) for ordered classes 0, …, n_classes − 1, with learned cuts b₀ < b₁ < …

    The larger f, the higher the class. `mean` is that of the class's number; `probabilities` of all classes.

    >>> likelihood = vb.Ordinal(3).init(np.array([[0.0], [1.0], [2.0]]))  # cuts where all are equally frequent
    >>> np.asarray(likelihood.probabilities(jnp.zeros((1, 1)))).round(2).tolist()
    [[0.33..., 0.33..., 0.33...]]
    """

    is_discrete: ClassVar[bool] = True
    n_classes: int = eqx.field(static=True)
    first: Float[Array, ""]
    log_steps: Float[Array, " steps"]

    def __init__(self, n_classes: int):
        if n_classes < 2:
            raise ValueError(f"`n_classes` must be at least 2, got {n_classes!r}.")
        self.n_classes = n_classes
        self.first, self.log_steps = jnp.zeros(()), jnp.zeros(n_classes - 2)

    def init(self, y: np.ndarray) -> "Ordinal":
        """Cuts at the logits of how many lie below, a row of each class added to them."""
        counts = 1.0 + np.bincount(y.astype(int).ravel(), minlength=self.n_classes)
        below = np.cumsum(counts)[:-1] / counts.sum()
        cuts = np.log(below / (1.0 - below))
        values = in_working_precision(cuts[0]), in_working_precision(np.log(np.diff(cuts)))
        return eqx.tree_at(lambda own: (own.first, own.log_steps), self, values)

    def check(self, y: np.ndarray) -> np.ndarray:
        y = real_targets(y)
        _refuse(y, ~np.isin(y, np.arange(self.n_classes)), f"classes from 0 to {self.n_classes - 1}")
        return y

    @property
    def cuts(self) -> Float[Array, " cuts"]:
        """b₀ < b₁ < …"""
        return jnp.cumsum(jnp.concatenate([self.first[None], jnp.exp(self.log_steps)]))

    def probabilities(self, f: Float[Array, "*rows k"]) -> Float[Array, "*rows classes"]:
        """P(y = c | f) of all classes, of one target."""
        return jnp.exp(self._log_probs(f[..., 0]))

    def _log_probs(self, f):
        """log P(y = c | f), with a last axis of classes."""
        logits = self.cuts.reshape((1,) * f.ndim + (-1,)) - f[..., None]
        at_most, above = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        # σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a − b})
        steps = jnp.log(-jnp.expm1(-jnp.exp(self.log_steps))).reshape((1,) * f.ndim + (-1,))
        between = at_most[..., 1:] + above[..., :-1] + steps
        return jnp.concatenate([at_most[..., :1], between, above[..., -1:]], axis=-1)

    def log_prob(self, f, y):
        return jnp.take_along_axis(self._log_probs(f), y.astype(jnp.int32)[..., None], axis=-1)[..., 0]

    def cdf(self, f, y):
        cuts = jnp.concatenate([self.cuts, jnp.full(1, jnp.inf)])
        reached = jnp.clip(jnp.floor(y), 0, self.n_classes - 1).astype(jnp.int32)
        return jnp.where(y < 0.0, 0.0, jax.nn.sigmoid(cuts[reached] - f))

    def conditional_mean(self, f):
        # E y = Σ_c P(y > c)
        cuts = self.cuts.reshape((1,) * f.ndim + (-1,))
        return jnp.sum(jax.nn.sigmoid(f[..., None] - cuts), axis=-1)

    def conditional_variance(self, f):
        codes = jnp.arange(float(self.n_classes)).reshape((1,) * f.ndim + (-1,))
        second = jnp.sum(codes**2 * jnp.exp(self._log_probs(f)), axis=-1)
        return second - self.conditional_mean(f) ** 2

    def sample(self, f, key):
        return jr.categorical(key, self._log_probs(f), axis=-1).astype(f.dtype)


def _counts(y: np.ndarray) -> np.ndarray:
    y = real_targets(y)
    _refuse(y, (y < 0.0) | (y != np.floor(y)), "whole numbers of at least 0")
    return y


def _refuse(y: np.ndarray, bad: np.ndarray, wanted: str) -> None:
    if bad.any():
        raise ValueError(f"`y` must hold {wanted}, got {y[bad][0]:g} in row {int(np.argwhere(bad)[0, 0])}.")
