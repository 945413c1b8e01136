"""What a likelihood p(y | f) is asked for, and what follows from it: means over q(f), predictions from draws of f."""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.likelihoods.in_jax import IN_JAX
from vertebra.likelihoods.quadrature import N_NODES, product_rule
from vertebra.likelihoods.quantiles import checked_levels, quantile
from vertebra.networks.parameters import in_double_precision


class Likelihood(eqx.Module):
    """p(y | f). Subclasses give `log_prob`, all that training asks for; predictions ask for what is named beside it.

    From draws of f, `mean` and `variance` take `conditional_mean` and `conditional_variance`, `quantiles` also `cdf`,
    and draws of y `sample`. `expected_log_prob` is quadrature unless a class brings its own along with its `log_prob`.

    `latent_per_target` values of f stand behind each target, side by side, and nothing else of f does: expectations are
    taken over them alone. A likelihood whose targets share latents says how many there are in `n_latent`.

    >>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
    >>> print(vb.Gaussian(scale=1.0).quantiles(f, [0.5]).round(2))
    [[[1.]]]
    """

    latent_per_target: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = False
    is_location: ClassVar[bool] = False  # E[y | f] is the first latent of each target
    has_classes: ClassVar[bool] = False  # y is the code of a class

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
        return real_targets(y)

    def n_latent(self, n_targets: int) -> int:
        return self.latent_per_target * n_targets

    @abc.abstractmethod
    def log_prob(self, f: Float[Array, "*rows latent"], y: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """log p(y | f), target by target."""

    def conditional_mean(self, f: Float[Array, "*rows latent"]) -> Float[Array, "*rows k"]:
        """E[y | f]."""
        raise self._lacks("conditional_mean")

    def conditional_variance(self, f: Float[Array, "*rows latent"]) -> Float[Array, "*rows k"]:
        """Var[y | f]: the part no amount of data takes away."""
        raise self._lacks("conditional_variance")

    def cdf(self, f: Float[Array, "*rows latent"], y: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """P(Y ≤ y | f)."""
        raise self._lacks("cdf")

    def sample(self, f: Float[Array, "*rows latent"], key: PRNGKeyArray) -> Float[Array, "*rows k"]:
        """One y for each f."""
        raise self._lacks("sample")

    def _lacks(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no `{method}`, which is asked for here: give it one.")

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
        # Where an `n_latent` of its own says otherwise, all latents are behind every target.
        n_targets, n_latent = y.shape[-1], mean.shape[-1]
        own = self.latent_per_target if self.latent_per_target * n_targets == n_latent else n_latent
        if own not in N_NODES:
            return self.log_prob_of_a_draw(mean, variance, y, noise)
        nodes, shares = product_rule(own)
        # The latents of a target are side by side, and targets are apart: one rule serves them all.
        nodes = jnp.asarray(np.tile(nodes, n_latent // own), mean.dtype).reshape(-1, *(1,) * (mean.ndim - 1), n_latent)
        sd = positive_sd(variance)
        values = jax.vmap(lambda node: self.log_prob(mean + sd * node, y))(nodes)
        return jnp.tensordot(jnp.asarray(shares, mean.dtype), values, axes=1)

    def log_prob_of_a_draw(self, mean: Array, variance: Array, y: Array, noise: Array) -> Array:
        """E log p(y | f) without bias, from standard normal noise: what many latents have in place of quadrature."""
        return self.log_prob(mean + positive_sd(variance) * noise, y)

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
    ) -> Float[Array, "*rows levels k"]:
        """Quantiles of y over draws of f: where the mean of their distribution functions crosses each level."""
        levels = checked_levels(q, f.dtype)
        moments = self.mean(f), jnp.sqrt(self.variance(f))
        rank = lambda y: jnp.mean(self.cdf(f, jnp.broadcast_to(y, (f.shape[0], *y.shape))), axis=0)  # noqa: E731
        of = lambda level: quantile(rank, level, *moments, IN_JAX, is_discrete=self.is_discrete)  # noqa: E731
        return jnp.moveaxis(jax.lax.map(of, levels), 0, -2)

    # What predictions ask for, of NumPy arrays in double precision. For a likelihood of one's own JAX answers; those
    # that are shipped compile nothing, whatever the number of rows.

    def numpy_log_prob(
        self, f: Float[np.ndarray, "points n latent"], y: Float[np.ndarray, "n k"]
    ) -> Float[np.ndarray, "points n k"]:
        """log p(y | f) in double precision."""
        with jax.enable_x64(True):
            y = np.broadcast_to(y, (len(f), *y.shape))
            return np.asarray(in_double_precision(self).log_prob(jnp.asarray(f), jnp.asarray(y)))

    def numpy_cdf(
        self, f: Float[np.ndarray, "points n latent"], y: Float[np.ndarray, "n k"]
    ) -> Float[np.ndarray, "points n k"]:
        """P(Y ≤ y | f) in double precision."""
        with jax.enable_x64(True):
            y = np.broadcast_to(y, (len(f), *y.shape))
            return np.asarray(in_double_precision(self).cdf(jnp.asarray(f), jnp.asarray(y)))

    def numpy_mean(self, f: Float[np.ndarray, "points n latent"]) -> Float[np.ndarray, "points n k"]:
        """E[y | f] in double precision."""
        with jax.enable_x64(True):
            return np.asarray(in_double_precision(self).conditional_mean(jnp.asarray(f)))

    def numpy_variance(self, f: Float[np.ndarray, "points n latent"]) -> Float[np.ndarray, "points n k"]:
        """Var[y | f] in double precision."""
        with jax.enable_x64(True):
            return np.asarray(in_double_precision(self).conditional_variance(jnp.asarray(f)))

    def numpy_sample(self, f: Float[np.ndarray, "draws n latent"], seed: int) -> Float[np.ndarray, "draws n k"]:
        """One y for each draw of f."""
        with jax.enable_x64(True):
            return np.asarray(in_double_precision(self).sample(jnp.asarray(f), jr.key(seed)))

    @property
    def normal_variance(self) -> Float[np.ndarray, "*k"] | None:
        """Var[y | f] where y is normal about f and the variance one number: all that is predicted has formulas then."""
        return None

    def exact_mean(
        self, mean: Float[np.ndarray, "n latent"], variance: Float[np.ndarray, "n latent"]
    ) -> Float[np.ndarray, "n k"] | None:
        """E y over f ~ N(mean, variance), where there is a formula."""
        return mean[:, :: self.latent_per_target] if self.is_location else None

    def held(self, f: Float[np.ndarray, "*rows latent"]) -> Float[np.ndarray, "*rows latent"]:
        """f, held where the moments of y are numbers."""
        return f


def positive_sd(variance: Array) -> Array:
    """√v, with a slope where v is 0."""
    return jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny))


def real_targets(y: np.ndarray) -> np.ndarray:
    """y as (n, targets) of finite numbers."""
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
