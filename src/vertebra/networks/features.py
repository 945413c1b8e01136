"""Weights and features: the product V φ, and sums over the features that exist."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def product(
    v: Float[Array, "d r"], phi: Float[Array, "r *batch"], precision: jax.lax.Precision | None = None
) -> Float[Array, "d *batch"]:
    """V φ, with a gradient that multiplies by a stored Vᵀ: XLA is slower on a CPU with the transpose folded in.

    >>> print(vb.distributions.product(jnp.ones((2, 3)), jnp.arange(3.0)))
    [3. 3.]
    """
    return _product(v, phi, precision)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(v, phi, precision):
    return jnp.matmul(v, phi, precision=precision)


def _product_forward(v, phi, precision):
    return _product(v, phi, precision), (v, phi)


def _product_backward(precision, saved, cotangent):
    v, phi = saved
    multiply = partial(jnp.matmul, precision=precision)
    if phi.ndim == 1:
        return jnp.outer(cotangent, phi), multiply(v.T, cotangent)
    return multiply(cotangent, phi.T), multiply(jax.lax.optimization_barrier(v.T), cotangent)


_product.defvjp(_product_forward, _product_backward)


def over_features(values: Float[Array, "*d r"], live: Float[Array, " r"] | None) -> Float[Array, "*d"]:
    """The sum over the features that exist."""
    return jnp.sum(values, axis=-1) if live is None else values @ live


def n_live(values: Float[Array, "d r"], live: Float[Array, " r"] | None) -> int | Float[Array, ""]:
    """How many features exist."""
    return values.shape[1] if live is None else jnp.sum(live)
