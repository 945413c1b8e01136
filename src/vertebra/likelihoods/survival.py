"""The likelihood of times that are known, or known to be longer: censored ones."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float

from vertebra.likelihoods.likelihood import Likelihood, real_targets
from vertebra.networks.kernels import log_positive
from vertebra.networks.parameters import UNBUILT, Built


class Survival(Likelihood):
    """T ~ Weibull: P(T > t) = exp(−(t/τ)^κ), τ = scale · e^f, for times y, those known to be longer as −y.

    A row that was still alive at time t has y = −t. `shape` κ and `scale` are learned; the scale starts at the mean
    time unless given. What is predicted, means, quantiles and draws, is of T itself.

    >>> likelihood = vb.Survival(scale=2.0, shape=1.0)  # exponential
    >>> np.exp(likelihood.log_prob(jnp.zeros((2, 1)), jnp.array([[2.0], [-2.0]]))).round(2).tolist()  # ½e⁻¹ and e⁻¹
    [[0.18...], [0.37...]]
    """

    log_scale: Built[Float[Array, "*k"]]
    log_shape: Float[Array, ""]

    def __init__(self, scale: ArrayLike | None = None, shape: float = 1.0):
        self.log_scale = UNBUILT if scale is None else log_positive("scale", scale)
        self.log_shape = log_positive("shape", shape)

    def init(self, y: np.ndarray) -> "Survival":
        start = np.abs(y).mean(axis=0) if self.log_scale is None else np.exp(np.asarray(self.log_scale))
        log_scale = log_positive("scale", np.broadcast_to(start, y.shape[1:]))
        return eqx.tree_at(lambda own: own.log_scale, self, log_scale, is_leaf=lambda leaf: leaf is None)

    def check(self, y: np.ndarray) -> np.ndarray:
        y = real_targets(y)
        if (y == 0.0).any():
            raise ValueError(f"`y` must hold times above 0, or −t where T > t is all that is known, got "
                             f"0 in row {int(np.argwhere(y == 0.0)[0, 0])}.")  # fmt: skip
        return y

    def log_prob(self, f, y):
        return self._log_prob(y, *self._hazard(f, y))

    def expected_log_prob(self, mean, variance, y, noise):
        z, hazard = self._hazard(mean, y)
        # f enters z by a line, and e^z has E e^{−κf} = e^{−κm + κ²v/2}
        spread = 0.0 if variance is None else 0.5 * jnp.exp(2.0 * self.log_shape) * variance
        return self._log_prob(y, z, hazard * jnp.exp(spread))

    def _log_prob(self, y, z, hazard):
        known = self.log_shape - jnp.log(jnp.abs(y)) + z
        return jnp.where(y > 0.0, known, 0.0) - hazard

    def _hazard(self, f, t):
        """z = κ log(t/τ) and the cumulative hazard e^z."""
        z = jnp.exp(self.log_shape) * (jnp.log(jnp.abs(t)) - self._log_tau(f))
        return z, jnp.exp(z)

    def _log_tau(self, f):
        if self.log_scale is None:
            raise ValueError("`scale` is not set yet: use `likelihood.init(y)`, or give a `scale`.")
        return f + (self.log_scale if self.log_scale.ndim == 0 else self.log_scale.reshape((1,) * (f.ndim - 1) + (-1,)))

    def cdf(self, f, y):
        # P(T ≤ t), 0 up to t = 0
        _, hazard = self._hazard(f, jnp.where(y > 0.0, y, 1.0))
        return jnp.where(y > 0.0, -jnp.expm1(-hazard), 0.0)

    def conditional_mean(self, f):
        return jnp.exp(self._log_tau(f) + gammaln(1.0 + jnp.exp(-self.log_shape)))

    def conditional_variance(self, f):
        first, second = (jnp.exp(gammaln(1.0 + k * jnp.exp(-self.log_shape))) for k in (1.0, 2.0))
        return jnp.exp(2.0 * self._log_tau(f)) * (second - first**2)

    def sample(self, f, key):
        hazard = jr.exponential(key, f.shape, f.dtype)
        return jnp.exp(self._log_tau(f) + jnp.exp(-self.log_shape) * jnp.log(hazard))
