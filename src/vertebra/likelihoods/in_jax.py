"""What densities are computed with where f is trained through: JAX."""

import jax
import jax.numpy as jnp
import jax.scipy.special as jax_special
from jaxtyping import Array

from vertebra.likelihoods.densities import Maths


def _stdtr(degrees: Array, z: Array) -> Array:
    # P(T ≤ z) = 1 − ½ I_{ν/(ν+z²)}(ν/2, ½) for z ≥ 0, and its mirror image below
    tail = 0.5 * jax_special.betainc(0.5 * degrees, 0.5, degrees / (degrees + z**2))
    return jnp.where(z >= 0.0, 1.0 - tail, tail)


IN_JAX = Maths(
    xp=jnp,
    parameter=lambda value: value,
    gammaln=jax_special.gammaln,
    ndtr=jax_special.ndtr,
    stdtr=_stdtr,
    pdtr=lambda count, rate: jax_special.gammaincc(count + 1.0, rate),
    betainc=jax_special.betainc,
    softplus=jax.nn.softplus,
    log_softmax=jax.nn.log_softmax,
)
