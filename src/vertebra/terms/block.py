"""A feature block of fixed functions: products of each input's orthonormal polynomials."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vertebra.networks.parameters import Fixed, in_working_precision
from vertebra.terms.polynomials import Polynomials


class PolynomialBlock(eqx.Module):
    """φ_j(x) = scale_j Π_i P_{k_ji}(x_i): products of each input's orthonormal polynomials, nothing trained.

    A finite-rank kernel K̂ = φᵀφ whose ANOVA components are known in advance: the product with degrees k belongs to the
    term {i: k_i ≥ 1}. `scale` is the prior sd of each product's weight.

    >>> from vertebra.terms.polynomials import orthonormal
    >>> x = np.random.default_rng(0).random((100, 2))
    >>> block = vb.PolynomialBlock(orthonormal(x, np.ones(100)), degrees=np.array([[1, 0], [1, 2]]), scale=np.ones(2))
    >>> round(float(jnp.mean(block(jnp.asarray(x.T))[0] ** 2)), 2)
    1.0
    """

    r: int = eqx.field(static=True)
    low: Fixed
    width: Fixed
    transform: Fixed
    degrees: Fixed
    scale: Fixed

    residual = None

    def __init__(self, polynomials: Polynomials, degrees: np.ndarray, scale: np.ndarray):
        self.r = len(degrees)
        self.low, self.width = (
            Fixed(in_working_precision(polynomials.low)),
            Fixed(in_working_precision(polynomials.width)),
        )
        self.transform = Fixed(in_working_precision(polynomials.transform))
        self.degrees = Fixed(jnp.asarray(degrees, jnp.int32))
        self.scale = Fixed(in_working_precision(scale))

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "PolynomialBlock":
        """The block itself; its arrays came with it."""
        return self

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        beside = (-1, *(1,) * (x.ndim - 1))
        t = 2.0 * (x - self.low.value.reshape(beside)) / self.width.value.reshape(beside) - 1.0
        t = jnp.clip(t, -1.0, 1.0)
        # (k + 1) L_{k+1} = (2k + 1) t L_k − k L_{k−1}
        legendre = [jnp.ones_like(t), t]
        for k in range(1, self.transform.value.shape[1] - 1):
            legendre.append(((2 * k + 1) * t * legendre[-1] - k * legendre[-2]) / (k + 1))
        stacked = jnp.stack(legendre[: self.transform.value.shape[1]], axis=1)  # (n_inputs, K + 1, *batch)
        values = jax.vmap(lambda transform, column: jnp.tensordot(transform.T, column, axes=1))(
            self.transform.value, stacked
        )
        phi = jnp.broadcast_to(self.scale.value.reshape(beside), (self.r, *x.shape[1:]))
        for i in range(x.shape[0]):
            phi = phi * values[i][self.degrees.value[:, i]]
        return phi
