"""log p(y | f), its expectation under q(f), and draws, of each likelihood."""

import math
from collections.abc import Sequence
from functools import cache
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import betainc, gammaincc, gammaln, logsumexp, ndtr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy.special import ndtri
from scipy.stats import qmc

from vertebra.networks.kernels import log_positive
from vertebra.networks.parameters import UNBUILT, Built

# Nodes per latent for E g(f), f ~ N(m, v), where no closed form exists: exact for polynomials up to degree 39 in one or
# two latents, and 19 in three: at most a thousand evaluations of log p for each row.
_N_NODES = {1: 20, 2: 20, 3: 10}


def _rule(n_latent: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (m, latent) and weights for means over N(0, I): the tensor product of Gauss–Hermite rules."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NODES[n_latent])
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * n_latent, indexing="ij")], axis=1)
    products = math.prod(np.meshgrid(*[weights / weights.sum()] * n_latent, indexing="ij"), start=np.ones(()))
    return grid, np.ravel(products)


_NODES, _WEIGHTS = (each.ravel() for each in _rule(1))


@cache
def normal_points(n: int, n_latent: int) -> Float[np.ndarray, "n latent"]:
    """n equally likely points of N(0, I), n a power of two: the same n levels of every latent, paired by Sobol' points.

    Paired at random, 100 points of three latents have correlations of up to 0.15.

    >>> points = vb.likelihoods.normal_points(128, 3)
    >>> bool(abs(np.corrcoef(points.T) - np.eye(3)).max() < 0.02)
    True
    """
    levels = ndtri((np.arange(n) + 0.5) / n)
    if n_latent == 1:
        return levels[:, None]
    # `seed` is called `rng` from SciPy 1.15 on, which takes the old name too
    sobol = qmc.Sobol(n_latent, scramble=True, seed=0)  # pyright: ignore[reportCallIssue]
    return levels[sobol.random(n).argsort(axis=0).argsort(axis=0)]


class Likelihood(eqx.Module):
    """p(y | f). Subclasses give `log_prob`, `conditional_mean`, `conditional_variance`, `cdf` and `sample`.

    Training asks for `log_prob` alone; `expected_log_prob` is quadrature unless a class brings its own along with it.

    `latent_per_target` values of f stand behind each target, side by side, and nothing else of f does: expectations are
    taken over them alone. A likelihood whose targets share latents says how many there are in `n_latent`.

    >>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
    >>> print(vb.Gaussian(scale=1.0).quantiles(f, [0.5]).round(2))
    [[[1.]]]
    """

    latent_per_target: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        # A closed form of E log p belongs to the density it was worked out for: one of its own has quadrature.
        if {"log_prob", "split"} & vars(cls).keys() and "expected_log_prob" not in vars(cls):
            cls.expected_log_prob = Likelihood.expected_log_prob

    def init(self, y: np.ndarray) -> "Likelihood":
        """The likelihood with its parameters at the scale of y, (n, targets)."""
        return self

    def check(self, y: np.ndarray) -> np.ndarray:
        """y as (n, targets), or an error that says what is wrong with it."""
        return _real_targets(y)

    def n_latent(self, n_targets: int) -> int:
        return self.latent_per_target * n_targets

    def log_prob(self, f: Float[Array, "*rows latent"], y: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """log p(y | f), target by target."""
        raise NotImplementedError

    def conditional_mean(self, f: Float[Array, "*rows latent"]) -> Float[Array, "*rows k"]:
        """E[y | f]."""
        raise NotImplementedError

    def conditional_variance(self, f: Float[Array, "*rows latent"]) -> Float[Array, "*rows k"]:
        """Var[y | f]: the part no amount of data takes away."""
        raise NotImplementedError

    def cdf(self, f: Float[Array, "*rows latent"], y: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """P(Y ≤ y | f)."""
        raise NotImplementedError

    def sample(self, f: Float[Array, "*rows latent"], key: PRNGKeyArray) -> Float[Array, "*rows k"]:
        """One y for each f."""
        raise NotImplementedError

    def expected_log_prob(
        self,
        mean: Float[Array, "*rows latent"],
        variance: Float[Array, "*rows latent"] | None,
        y: Float[Array, "*rows k"],
        noise: Float[Array, "*rows latent"],
    ) -> Float[Array, "*rows k"]:
        """E log p(y | f) over f ~ N(mean, variance), latents independent, by Gauss–Hermite quadrature.

        Over the latents of each target: 20 nodes for one, 20² for two, 10³ for three. With more of them it is the value
        at one draw, without bias, for which `noise` is standard normal. None for the variance is zero.
        """
        if variance is None:
            return self.log_prob(mean, y)
        sd = jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny))
        # Where an `n_latent` of its own says otherwise, all latents are behind every target.
        n_targets, n_latent = y.shape[-1], mean.shape[-1]
        own = self.latent_per_target if self.latent_per_target * n_targets == n_latent else n_latent
        if own not in _N_NODES:
            return self.log_prob(mean + sd * noise, y)
        nodes, weights = _rule(own)
        # The latents of a target are side by side, and targets are apart: one rule serves them all.
        nodes = jnp.asarray(np.tile(nodes, n_latent // own), mean.dtype).reshape(-1, *(1,) * (mean.ndim - 1), n_latent)
        values = jax.vmap(lambda node: self.log_prob(mean + sd * node, y))(nodes)
        return jnp.tensordot(jnp.asarray(weights, mean.dtype), values, axes=1)

    def mean(self, f: Float[Array, "draws *rows latent"]) -> Float[Array, "*rows k"]:
        """E y over draws of f."""
        return jnp.mean(self.conditional_mean(f), axis=0)

    def variance(self, f: Float[Array, "draws *rows latent"]) -> Float[Array, "*rows k"]:
        """Var y over draws of f: E Var[y | f] + Var E[y | f]."""
        return jnp.mean(self.conditional_variance(f), axis=0) + jnp.var(self.conditional_mean(f), axis=0)

    def log_predictive(
        self, f: Float[Array, "draws *rows latent"], y: Float[Array, "*rows k"]
    ) -> Float[Array, "*rows k"]:
        """log of the mean over draws of p(y | f)."""
        y = jnp.broadcast_to(y, (f.shape[0], *y.shape))
        return logsumexp(self.log_prob(f, y), axis=0) - jnp.log(f.shape[0])

    def quantiles(
        self, f: Float[Array, "draws *rows latent"], q: ArrayLike | Sequence[float]
    ) -> Float[Array, "levels *rows k"]:
        """Quantiles of y over draws of f: where the mean of their distribution functions crosses each level."""
        levels = _levels(q, f.dtype)
        centre, sd = self.mean(f), jnp.sqrt(self.variance(f))

        def invert(level):
            below = lambda y: jnp.mean(self.cdf(f, jnp.broadcast_to(y, (f.shape[0], *y.shape))), axis=0) < level  # noqa: E731
            # Cantelli: at most a share 1/(1 + t²) of any distribution lies beyond t standard deviations on one side.
            reach = 1.01 * jnp.sqrt(1.0 / jnp.minimum(level, 1.0 - level)) * sd + 1.0
            lower, upper = self._support(centre - reach, centre + reach)

            def halve(_, bounds):
                lower, upper = bounds
                middle = self._middle(lower, upper)
                rises = below(middle)
                return jnp.where(rises, middle, lower), jnp.where(rises, upper, middle)

            return jax.lax.fori_loop(0, 64, halve, (lower, upper))[1]

        return jax.lax.map(invert, levels)

    def _support(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        return (jnp.maximum(jnp.floor(lower), 0.0) - 1.0, jnp.ceil(upper)) if self.is_discrete else (lower, upper)

    def _middle(self, lower: Array, upper: Array) -> Array:
        return jnp.floor(0.5 * (lower + upper)) if self.is_discrete else 0.5 * (lower + upper)


class Gaussian(Likelihood):
    """y = f + ε, ε ~ N(0, scale²), one learned scale per target; it starts at half the sd of y unless given.

    >>> print(vb.Gaussian().init(np.array([[0.0], [2.0]])).scale)
    [0.5]
    """

    log_scale: Built[Float[Array, "*k"]]

    def __init__(self, scale: ArrayLike | None = None):
        self.log_scale = UNBUILT if scale is None else log_positive("scale", scale)

    def init(self, y: np.ndarray) -> "Gaussian":
        return _with_scale(self, y)

    @property
    def scale(self) -> Float[Array, "*k"]:
        return jnp.exp(self.log_scale)

    def log_prob(self, f, y):
        return _normal_log_prob(y, f, _like(self.log_scale, f))

    def expected_log_prob(self, mean, variance, y, noise):
        # E log N(y; f, s²) = log N(y; m, s²) − v/2s²
        exact = self.log_prob(mean, y)
        return exact if variance is None else exact - 0.5 * variance * jnp.exp(-2.0 * _like(self.log_scale, mean))

    def conditional_mean(self, f):
        return f

    def conditional_variance(self, f):
        return jnp.broadcast_to(jnp.exp(2.0 * _like(self.log_scale, f)), f.shape)

    def cdf(self, f, y):
        return ndtr((y - f) * jnp.exp(-_like(self.log_scale, f)))

    def sample(self, f, key):
        return f + jnp.exp(_like(self.log_scale, f)) * jr.normal(key, f.shape, f.dtype)


class HeteroscedasticGaussian(Likelihood):
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

    def init(self, y: np.ndarray) -> "HeteroscedasticGaussian":
        return _with_scale(self, y)

    @staticmethod
    def _pairs(f):
        """f₁ and f₂ of every target."""
        pairs = f.reshape(*f.shape[:-1], -1, 2)
        return pairs[..., 0], pairs[..., 1]

    def _log_scale(self, second):
        return _like(self.log_scale, second) + 2.0 * jnp.tanh(0.25 * second)

    def split(self, f: Float[Array, "*rows latent"]) -> tuple[Float[Array, "*rows k"], Float[Array, "*rows k"]]:
        """Mean and log scale of y."""
        mean, second = self._pairs(f)
        return mean, self._log_scale(second)

    def log_prob(self, f, y):
        mean, log_scale = self.split(f)
        return _normal_log_prob(y, mean, log_scale)

    def expected_log_prob(self, mean, variance, y, noise):
        if variance is None:
            return self.log_prob(mean, y)
        # Exact over f₁ given f₂; quadrature over f₂, which shapes log s and s⁻².
        centre, second = self._pairs(mean)
        spread, second_variance = self._pairs(variance)
        sd = jnp.sqrt(jnp.maximum(second_variance, jnp.finfo(mean.dtype).tiny))

        def given(node):
            log_scale = self._log_scale(second + sd * node)
            return _normal_log_prob(y, centre, log_scale) - 0.5 * spread * jnp.exp(-2.0 * log_scale)

        values = jax.vmap(given)(jnp.asarray(_NODES, mean.dtype))
        return jnp.tensordot(jnp.asarray(_WEIGHTS, mean.dtype), values, axes=1)

    def conditional_mean(self, f):
        return self.split(f)[0]

    def conditional_variance(self, f):
        return jnp.exp(2.0 * self.split(f)[1])

    def cdf(self, f, y):
        mean, log_scale = self.split(f)
        return ndtr((y - mean) * jnp.exp(-log_scale))

    def sample(self, f, key):
        mean, log_scale = self.split(f)
        return mean + jnp.exp(log_scale) * jr.normal(key, mean.shape, f.dtype)


class StudentT(Likelihood):
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
        return eqx.tree_at(lambda likelihood: likelihood.log_excess, _with_scale(self, y), excess)

    @property
    def degrees(self) -> Float[Array, ""]:
        return 2.0 + jnp.exp(self.log_excess)

    def log_prob(self, f, y):
        nu, log_scale = self.degrees, _like(self.log_scale, f)
        z = (y - f) * jnp.exp(-log_scale)
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * jnp.log(nu * jnp.pi)
        return constant - log_scale - 0.5 * (nu + 1.0) * jnp.log1p(z**2 / nu)

    def conditional_mean(self, f):
        return f

    def conditional_variance(self, f):
        variance = jnp.exp(2.0 * _like(self.log_scale, f)) * self.degrees / (self.degrees - 2.0)
        return jnp.broadcast_to(variance, f.shape)

    def cdf(self, f, y):
        # P(T ≤ z) = 1 − ½ I_{ν/(ν+z²)}(ν/2, ½) for z ≥ 0, and its mirror image below
        nu = self.degrees
        z = (y - f) * jnp.exp(-_like(self.log_scale, f))
        tail = 0.5 * betainc(0.5 * nu, 0.5, nu / (nu + z**2))
        return jnp.where(z >= 0.0, 1.0 - tail, tail)

    def sample(self, f, key):
        return f + jnp.exp(_like(self.log_scale, f)) * jr.t(key, self.degrees, f.shape, f.dtype)


class Bernoulli(Likelihood):
    """P(y = 1) = 1/(1 + e^{−f}) for y in {0, 1}.

    >>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
    >>> round(float(vb.Bernoulli().mean(f)[0, 0]), 2)
    0.69
    """

    is_discrete: ClassVar[bool] = True

    def check(self, y: np.ndarray) -> np.ndarray:
        y = _real_targets(y)
        _refuse(y, ~np.isin(y, (0.0, 1.0)), "0 or 1")
        return y

    def log_prob(self, f, y):
        return -jax.nn.softplus(jnp.where(y > 0.5, -f, f))

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
        y = _real_targets(y)
        _refuse(y, (y < 0.0) | (y != np.floor(y)), "whole numbers of at least 0")
        return y

    def log_prob(self, f, y):
        return y * f - jnp.exp(f) - gammaln(y + 1.0)

    def expected_log_prob(self, mean, variance, y, noise):
        # E e^f = e^{m + v/2}
        variance = 0.0 if variance is None else variance
        return y * mean - jnp.exp(mean + 0.5 * variance) - gammaln(y + 1.0)

    def conditional_mean(self, f):
        return jnp.exp(f)

    def conditional_variance(self, f):
        return jnp.exp(f)

    def cdf(self, f, y):
        return jnp.where(y < 0.0, 0.0, gammaincc(jnp.floor(jnp.maximum(y, 0.0)) + 1.0, jnp.exp(f)))

    def sample(self, f, key):
        # JAX's Poisson draws want a threefry key, whatever kind came in.
        key = jr.wrap_key_data(jr.bits(key, (2,), jnp.uint32), impl="threefry2x32")
        return jr.poisson(key, jnp.exp(f)).astype(f.dtype)


class Categorical(Likelihood):
    """P(y = c) = e^{f_c} / Σ_k e^{f_k} for classes 0, …, n_classes − 1: the softmax likelihood.

    y holds class codes, with a last axis of 1. `mean` gives the probabilities of all classes and `variance` p(1 − p);
    `quantiles` and `cdf` are of the code, and mean something where the classes are ordered.

    >>> print(vb.Categorical(3).mean(jnp.log(jnp.array([[[1.0, 2.0, 1.0]]]))).round(2))
    [[0.25 0.5  0.25]]
    """

    is_discrete: ClassVar[bool] = True
    n_classes: int = eqx.field(static=True)

    def __init__(self, n_classes: int):
        if n_classes < 2:
            raise ValueError(f"`n_classes` must be at least 2, got {n_classes!r}.")
        self.n_classes = n_classes

    def n_latent(self, n_targets: int) -> int:
        return self.n_classes

    def check(self, y: np.ndarray) -> np.ndarray:
        y = _real_targets(y)
        if y.shape[1] != 1:
            raise ValueError(f"`y` must hold one class per row, shape (n,) or (n, 1), got {y.shape}.")
        _refuse(y, ~np.isin(y, np.arange(self.n_classes)), f"classes from 0 to {self.n_classes - 1}")
        return y

    def log_prob(self, f, y):
        return jnp.take_along_axis(jax.nn.log_softmax(f, axis=-1), y.astype(jnp.int32), axis=-1)

    def expected_log_prob(self, mean, variance, y, noise):
        # No closed form, and quadrature grows with the classes: one reparameterised draw, unbiased.
        if variance is None:
            return self.log_prob(mean, y)
        sd = jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny))
        return self.log_prob(mean + sd * noise, y)

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
        levels = _levels(q, f.dtype)
        cumulative = jnp.cumsum(self.mean(f), axis=-1)
        return jax.vmap(lambda level: jnp.sum(cumulative < level, axis=-1, keepdims=True).astype(f.dtype))(levels)


_Scaled = TypeVar("_Scaled", Gaussian, HeteroscedasticGaussian, StudentT)


def _normal_log_prob(y: Array, mean: Array, log_scale: Array) -> Array:
    return -0.5 * ((y - mean) * jnp.exp(-log_scale)) ** 2 - log_scale - 0.5 * jnp.log(2.0 * jnp.pi)


def _levels(q: ArrayLike | Sequence[float], dtype: np.dtype) -> Float[Array, " levels"]:
    levels = np.asarray(q)
    if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"`q` must be a list of levels between 0 and 1, got {q!r}.")
    return jnp.asarray(levels, dtype)


def _like(log_scale: Float[Array, "*k"] | None, f: Float[Array, "*rows k"]) -> Float[Array, "..."]:
    """One value per target, with as many axes as f."""
    if log_scale is None:
        raise ValueError("`scale` is not set yet: use `likelihood.init(y)`, or give a `scale`.")
    return log_scale if log_scale.ndim == 0 else log_scale.reshape((1,) * (f.ndim - 1) + (-1,))


def _scale_of(y: np.ndarray, log_scale: Float[Array, "*k"] | None) -> Float[Array, " k"]:
    if log_scale is not None:
        if log_scale.ndim == 1 and log_scale.shape[0] not in (1, y.shape[1]):
            raise ValueError(f"`scale` must have one entry per target, {y.shape[1]}, got {log_scale.shape[0]}.")
        return jnp.broadcast_to(jnp.exp(log_scale), (y.shape[1],))
    sd = y.std(axis=0)
    return jnp.asarray(np.where(sd > 0, 0.5 * sd, 1.0), dtype=float)


def _with_scale(likelihood: _Scaled, y: np.ndarray) -> _Scaled:
    """The likelihood with a scale for every target; what else a subclass has stays."""
    log_scale = log_positive("scale", _scale_of(y, likelihood.log_scale))
    return eqx.tree_at(lambda own: own.log_scale, likelihood, log_scale, is_leaf=lambda leaf: leaf is None)


def _real_targets(y: np.ndarray) -> np.ndarray:
    if y.ndim == 1:
        y = y[:, None]
    if y.ndim != 2:
        raise ValueError(f"`y` must have the shape (n,) or (n, targets), got {y.shape}.")
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == bool):
        raise ValueError(f"`y` must be numbers, got values of type {y.dtype}.")
    bad = ~np.isfinite(y)
    if bad.any():
        raise ValueError(f"`y` must be finite, got {int(bad.sum())} missing or infinite values.")
    return y.astype(float, copy=False)


def _refuse(y: np.ndarray, bad: np.ndarray, wanted: str) -> None:
    if bad.any():
        raise ValueError(f"`y` must hold {wanted}, got {y[bad][0]:g} in row {int(np.argwhere(bad)[0, 0])}.")
