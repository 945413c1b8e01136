"""Weights and features: the product V φ, and sums over the features that exist."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def product(
    v: Float[Array, "d r"], phi: Float[Array, "r *batch"], precision: jax.lax.Precision | None = None
) -> Float[Array, "d *batch"]:
    """V φ. Where training takes gradients, these multiply by a stored Vᵀ: XLA is slower with the transpose folded in.

    Elsewhere it has derivatives of both modes and of any order.

    >>> print(vb.distributions.product(jnp.ones((2, 3)), jnp.arange(3.0)))
    [3. 3.]
    """
    return _reverse_product(v, phi, precision) if _IN_REVERSE.get() else jnp.matmul(v, phi, precision=precision)


# Training takes gradients by reverse mode alone, for which `_reverse_product` has the faster rule. One rule for both
# modes was tried, and made steps slower: the gradient of φ came as a product that is transposed once more.
_IN_REVERSE: ContextVar[bool] = ContextVar("in_reverse", default=False)


@contextmanager
def in_reverse() -> Iterator[None]:
    """Products that are traced within have derivatives of reverse mode alone, and these are faster."""
    token = _IN_REVERSE.set(True)
    try:
        yield
    finally:
        _IN_REVERSE.reset(token)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _reverse_product(v, phi, precision):
    return jnp.matmul(v, phi, precision=precision)


def _forward(v, phi, precision):
    return _reverse_product(v, phi, precision), (v, phi)


def _backward(precision, saved, cotangent):
    v, phi = saved
    multiply = partial(jnp.matmul, precision=precision)
    if phi.ndim == 1:
        return jnp.outer(cotangent, phi), multiply(v.T, cotangent)
    return multiply(cotangent, phi.T), multiply(jax.lax.optimization_barrier(v.T), cotangent)


_reverse_product.defvjp(_forward, _backward)


def over_features(values: Float[Array, "*d r"], live: Float[Array, " r"] | None) -> Float[Array, "*d"]:
    """The sum over the features that exist.

    >>> print(vb.distributions.over_features(jnp.array([[1.0, 2.0, 3.0]]), jnp.array([1.0, 1.0, 0.0])))
    [3.]
    """
    return jnp.sum(values, axis=-1) if live is None else values @ live


def n_live(values: Float[Array, "d r"], live: Float[Array, " r"] | None) -> int | Float[Array, ""]:
    """How many features exist."""
    return values.shape[1] if live is None else jnp.sum(live)
