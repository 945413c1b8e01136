"""Covariances Σ_j of a Gaussian q(V), one for each output j: full, diagonal or of low rank."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from vertebra.networks.features import over_features, product
from vertebra.networks.parameters import UNBUILT, Built, in_working_precision, is_traced


def _log(sd: np.ndarray | Array) -> np.ndarray | Array:
    """By NumPy, which compiles nothing, where there are numbers."""
    return jnp.log(sd) if is_traced(sd) else np.log(sd)


class Full(eqx.Module):
    """Σ_j = R_jᵀ R_j with R_j upper triangular; `raw` holds R above its diagonal and log R on it.

    >>> covariance = vb.distributions.Full.of(jnp.array([[[1.0, 2.0], [0.0, 3.0]]]))
    >>> print(covariance.variances().round())
    [[ 1. 13.]]
    """

    raw: Built[Float[Array, "d r r"]] = UNBUILT

    def init(self, sd: np.ndarray | Array, *, rng: np.random.Generator) -> "Full":
        return Full(in_working_precision(_log(sd)[:, :, None] * np.eye(sd.shape[1])[None]))

    @classmethod
    def of(cls, factor: Float[Array, "d r r"]) -> "Full":
        """Σ_j = factor_jᵀ factor_j for upper-triangular factors with a positive diagonal."""
        diagonal = jnp.eye(factor.shape[-1], dtype=bool)[None]
        return cls(jnp.where(diagonal, jnp.log(jnp.where(diagonal, factor, 1.0)), jnp.triu(factor)))

    @property
    def factor(self) -> Float[Array, "d r r"]:
        diagonal = jnp.eye(self.raw.shape[-1], dtype=bool)[None]
        return jnp.where(diagonal, jnp.exp(jnp.where(diagonal, self.raw, 0.0)), jnp.triu(self.raw, 1))

    def root(self, noise: Float[Array, "d r"]) -> Float[Array, "d r"]:
        """Σ^{1/2} ε = Rᵀ ε: a draw about zero from standard noise."""
        return jnp.einsum("dji,dj->di", self.factor, noise)

    def times(self, c: float) -> "Full":
        """c² Σ."""
        eye = jnp.eye(self.raw.shape[-1], dtype=bool)
        return Full(jnp.where(eye, self.raw + math.log(c), c * self.raw))

    def square_root(self) -> Float[Array, "d r r"]:
        """S_j with Σ_j = S_j S_jᵀ."""
        return jnp.swapaxes(self.factor, 1, 2)

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        """φᵀ Σ_j φ = ‖R_j φ‖², all j in one product."""
        d, r, _ = self.raw.shape
        rotated = product(self.factor.reshape(d * r, r), phi)
        return jnp.sum(rotated.reshape(d, r, *phi.shape[1:]) ** 2, axis=1)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.sum(self.factor**2, axis=1)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        return 2.0 * over_features(jnp.diagonal(self.raw, axis1=1, axis2=2), live)

    def distance(self, v: Float[Array, "d r"], live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        """v_jᵀ Σ_j⁻¹ v_j, of the features that exist: they come first, and Σ of them is of the first rows of R."""
        whitened = jax.vmap(lambda factor, v: solve_triangular(factor, v, trans=1))(self.factor, v)
        return over_features(whitened**2, live)


class Diagonal(eqx.Module):
    """Σ_j = diag(exp(2 log_sd_j)): mean-field.

    >>> print(vb.distributions.Diagonal(jnp.zeros((1, 3))).variances())
    [[1. 1. 1.]]
    """

    log_sd: Built[Float[Array, "d r"]] = UNBUILT

    def init(self, sd: np.ndarray | Array, *, rng: np.random.Generator) -> "Diagonal":
        return Diagonal(in_working_precision(_log(sd)))

    def root(self, noise: Float[Array, "d r"]) -> Float[Array, "d r"]:
        return jnp.exp(self.log_sd) * noise

    def times(self, c: float) -> "Diagonal":
        return Diagonal(self.log_sd + math.log(c))

    def square_root(self) -> Float[Array, "d r r"]:
        return jnp.exp(self.log_sd)[..., None] * jnp.eye(self.log_sd.shape[1])[None]

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        return product(self.variances(), phi**2)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.exp(2.0 * self.log_sd)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        return 2.0 * over_features(self.log_sd, live)

    def distance(self, v: Float[Array, "d r"], live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        return over_features((v * jnp.exp(-self.log_sd)) ** 2, live)


class LowRank(eqx.Module):
    """Σ_j = diag(exp(2 log_sd_j)) + U_j U_jᵀ with U_j of `rank` columns.

    >>> covariance = vb.distributions.LowRank(2).init(np.full((1, 50), 0.1), rng=np.random.default_rng(0))
    >>> covariance.directions.shape
    (1, 50, 2)
    """

    rank: int = eqx.field(static=True, default=4)
    log_sd: Built[Float[Array, "d r"]] = UNBUILT
    directions: Built[Float[Array, "d r k"]] = UNBUILT

    def __check_init__(self):
        if self.rank < 1:
            raise ValueError(f"`rank` must be at least 1, got {self.rank}.")

    def init(self, sd: np.ndarray | Array, *, rng: np.random.Generator) -> "LowRank":
        # Half of the variance in each part.
        directions = rng.standard_normal((*sd.shape, self.rank)) * sd[..., None] / math.sqrt(2.0 * self.rank)
        return LowRank(self.rank, in_working_precision(_log(sd / math.sqrt(2.0))), in_working_precision(directions))

    def root(self, noise: Float[Array, "d r_and_k"]) -> Float[Array, "d r"]:
        r = self.log_sd.shape[1]
        return jnp.exp(self.log_sd) * noise[:, :r] + jnp.einsum("drk,dk->dr", self.directions, noise[:, r:])

    def times(self, c: float) -> "LowRank":
        return LowRank(self.rank, self.log_sd + math.log(c), c * self.directions)

    def square_root(self) -> Float[Array, "d r r_and_k"]:
        diagonal = jnp.exp(self.log_sd)[..., None] * jnp.eye(self.log_sd.shape[1])[None]
        return jnp.concatenate([diagonal, self.directions], axis=-1)

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        spread = jnp.tensordot(jnp.swapaxes(self.directions, 1, 2), phi, axes=1)
        return product(jnp.exp(2.0 * self.log_sd), phi**2) + jnp.sum(spread**2, axis=1)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.exp(2.0 * self.log_sd) + jnp.sum(self.directions**2, axis=-1)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        # log|D + U Uᵀ| = log|D| + log|I + Uᵀ D⁻¹ U|
        return 2.0 * over_features(self.log_sd, live) + jnp.linalg.slogdet(self._inner(live)[1])[1]

    def distance(self, v: Float[Array, "d r"], live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        # (D + U Uᵀ)⁻¹ = D⁻¹ − D⁻¹U (I + Uᵀ D⁻¹ U)⁻¹ UᵀD⁻¹
        scaled, inner = self._inner(live)
        whitened = v * jnp.exp(-self.log_sd)
        along = jnp.einsum("drk,dr->dk", scaled, whitened)
        return over_features(whitened**2, live) - jnp.sum(along * jnp.linalg.solve(inner, along[..., None])[..., 0], 1)

    def _inner(self, live: Float[Array, " r"] | None) -> tuple[Float[Array, "d r k"], Float[Array, "d k k"]]:
        """D^{−1/2}U, of the features that exist, and I + Uᵀ D⁻¹ U."""
        scaled = self.directions * jnp.exp(-self.log_sd)[..., None]
        scaled = scaled if live is None else scaled * live[None, :, None]
        return scaled, jnp.eye(self.rank)[None] + jnp.einsum("drk,drm->dkm", scaled, scaled)


Covariance = Full | Diagonal | LowRank
