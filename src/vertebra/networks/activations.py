"""σ by name, and E σ(u)σ(v); users find it as `vertebra.activations`."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

Activation = Callable[[Array], Array]
# E σ(u) σ(v) from Var u, Cov(u, v), Var v
DualActivation = Callable[[Array, Array, Array], Array]

# σ in a skeleton and σ_K in a random-feature block, by name. Add to it to use a new one by name.
ACTIVATIONS: dict[str, Activation] = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
    "erf": erf,
    "step": lambda x: (x > 0).astype(x.dtype),
    "sin": jnp.sin,
    "cos": jnp.cos,
    "arctan": jnp.arctan,
    "softsign": lambda x: x / jnp.sqrt(1.0 + x**2),
    "exp": jnp.exp,
}

# The functions that `DUALS` are of: a name may come to stand for another one.
_SHIPPED = dict(ACTIVATIONS)

# Nodes per axis of the Gauss–Hermite rule: tanh at unit variance to 1e-9, at variance 10 to 1e-4.
N_NODES = 64


def as_activation(name: str | Activation) -> Activation:
    """The function of that name in `ACTIVATIONS`; a function is handed through.

    >>> print(vb.activations.as_activation("relu")(jnp.array([-1.0, 2.0])))
    [0. 2.]
    """
    if callable(name):
        return name
    if name not in ACTIVATIONS:
        raise ValueError(
            f"Activation {name!r} is not known: use one of {', '.join(sorted(ACTIVATIONS))}, or a function."
        )
    return ACTIVATIONS[name]


class PolynomialActivation(eqx.Module):
    """σ(u) = Σ_m c_m u^m, whose dual is a polynomial in the covariance.

    >>> square = vb.activations.PolynomialActivation((0.0, 0.0, 1.0))
    >>> print(square.dual(*jnp.array([1.0, 0.5, 1.0])))  # E u²v² = 1 + 2 Cov²
    1.5
    """

    coefficients: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        value = jnp.zeros_like(u)
        for c in reversed(self.coefficients):
            value = value * u + c
        return value

    def dual(self, uu: Array, uv: Array, vv: Array) -> Array:
        # Isserlis: E u^a v^b = Σ_j a! b! / (j! α! β! 2^{α+β}) Cov^j Var(u)^α Var(v)^β, α = (a−j)/2, β = (b−j)/2
        total = jnp.zeros_like(uv)
        for a, c_a in enumerate(self.coefficients):
            for b, c_b in enumerate(self.coefficients):
                if not c_a or not c_b or (a - b) % 2:
                    continue
                for j in range(a % 2, min(a, b) + 1, 2):
                    alpha, beta = (a - j) // 2, (b - j) // 2
                    ways = math.factorial(a) * math.factorial(b)
                    ways /= math.factorial(j) * math.factorial(alpha) * math.factorial(beta) * 2 ** (alpha + beta)
                    total = total + c_a * c_b * ways * uv**j * uu**alpha * vv**beta
        return total


def monomial(degree: int) -> PolynomialActivation:
    """σ(u) = u^degree. For inputs on the unit sphere its kernel is a polynomial of the cosine.

    >>> print(vb.activations.monomial(3)(jnp.array(2.0)))
    8.0
    """
    if degree < 0:
        raise ValueError(f"`degree` must not be negative, got {degree!r}.")
    return PolynomialActivation((0.0,) * degree + (1.0,))


def hermite(degree: int) -> PolynomialActivation:
    """σ(u) = He_degree(u)/√degree!: at unit variance its dual is the covariance to that power (Daniely et al.).

    >>> round(float(vb.activations.hermite(2).dual(*jnp.array([1.0, 0.5, 1.0]))), 3)
    0.25
    """
    if degree < 0:
        raise ValueError(f"`degree` must not be negative, got {degree!r}.")
    coefficients = np.polynomial.hermite_e.herme2poly([0.0] * degree + [1.0]) / math.sqrt(math.factorial(degree))
    return PolynomialActivation(tuple(map(float, coefficients)))


def dual(activation: str | Activation) -> DualActivation:
    """(Var u, Cov(u, v), Var v) ↦ E σ(u) σ(v), elementwise; closed form where known, Gauss–Hermite otherwise.

    Quadrature converges fast for smooth activations; for one of your own with a kink expect errors of 1e-3, with a jump
    of 0.05.

    >>> round(float(vb.activations.dual("step")(*jnp.array([1.0, 0.5, 1.0]))), 3)  # how often u and v are both above 0
    0.333
    """
    if isinstance(activation, PolynomialActivation):
        # of a subclass with another σ, unless it has a dual to go with it, the polynomial's is not the dual
        kind = type(activation)
        if kind.__call__ is PolynomialActivation.__call__ or kind.dual is not PolynomialActivation.dual:
            return activation.dual
    function = as_activation(activation)
    for name, closed_form in DUALS.items():
        if function is _SHIPPED[name]:
            return closed_form
    return lambda uu, uv, vv: _quadrature(function, uu, uv, vv)


def _relu(uu, uv, vv):
    norms = jnp.sqrt(jnp.maximum(uu * vv, jnp.finfo(uv.dtype).tiny))
    return norms * arc_cosine_1(uv / norms)


def _step(uu, uv, vv):
    return arc_cosine_0(uv / jnp.sqrt(jnp.maximum(uu * vv, jnp.finfo(uv.dtype).tiny)))


def _erf(uu, uv, vv):
    # (2/π) arcsin(2 Cov/√((1 + 2 Var u)(1 + 2 Var v))): Williams' kernel. The sine stays below 1.
    return 2.0 / jnp.pi * jnp.arcsin(2.0 * uv / jnp.sqrt((1.0 + 2.0 * uu) * (1.0 + 2.0 * vv)))


def _sin(uu, uv, vv):
    # ½ E cos(u − v) − ½ E cos(u + v)
    return 0.5 * (jnp.exp(-0.5 * (uu + vv - 2.0 * uv)) - jnp.exp(-0.5 * (uu + vv + 2.0 * uv)))


def _cos(uu, uv, vv):
    return 0.5 * (jnp.exp(-0.5 * (uu + vv - 2.0 * uv)) + jnp.exp(-0.5 * (uu + vv + 2.0 * uv)))


DUALS: dict[str, DualActivation] = {
    "identity": lambda uu, uv, vv: uv,
    "relu": _relu,
    "step": _step,
    "erf": _erf,
    "sin": _sin,
    "cos": _cos,
    "exp": lambda uu, uv, vv: jnp.exp(0.5 * (uu + vv) + uv),
}


def _quadrature(function: Activation, uu: Array, uv: Array, vv: Array) -> Array:
    """Σ_ij ω_i ω_j σ(u_ij) σ(v_ij) along the axes u/√Var u ± v/√Var v, so that the result is symmetric in u and v."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
    nodes, weights = jnp.asarray(nodes, uv.dtype), jnp.asarray(weights / math.sqrt(2.0 * math.pi), uv.dtype)
    finfo = jnp.finfo(uv.dtype)
    sd_u, sd_v = (jnp.sqrt(jnp.maximum(jnp.broadcast_to(v, uv.shape), finfo.tiny**0.5)) for v in (uu, vv))
    correlation = uv / (sd_u * sd_v)
    # √ has no slope at 0, where u = ±v: hold its argument just above what rounding leaves.
    together, apart = (jnp.sqrt(jnp.maximum(0.5 * (1.0 + sign * correlation), finfo.eps)) for sign in (1.0, -1.0))

    def inner(total, node):
        s, weight = node
        t = apart[..., None] * nodes.reshape((1,) * uv.ndim + (-1,))
        u = sd_u[..., None] * ((together * s)[..., None] + t)
        v = sd_v[..., None] * ((together * s)[..., None] - t)
        return total + weight * ((function(u) * function(v)) @ weights), None

    return jax.lax.scan(inner, jnp.zeros_like(uv), (nodes, weights))[0]


@jax.custom_jvp
def arc_cosine_1(cosine: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """(sin θ + (π − θ) cos θ)/2π; its derivative (π − θ)/2π is finite at θ = 0, where that of θ is not.

    >>> round(float(vb.activations.arc_cosine_1(jnp.array(0.5))), 3)  # the dual of relu at unit variance
    0.304
    """
    cosine = jnp.clip(cosine, -1.0, 1.0)
    return (jnp.sqrt(1.0 - cosine**2) + (jnp.pi - jnp.arccos(cosine)) * cosine) / (2.0 * jnp.pi)


@arc_cosine_1.defjvp
def _(primals, tangents):
    (cosine,), (tangent,) = primals, tangents
    return arc_cosine_1(cosine), arc_cosine_0(cosine) * tangent


@jax.custom_jvp
def arc_cosine_0(cosine: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """(π − θ)/2π; its slope 1/(2π sin θ), infinite at θ = 0 and π, is held to what rounding can tell apart.

    >>> round(float(vb.activations.arc_cosine_0(jnp.array(0.5))), 3)  # the dual of step
    0.333
    """
    return (jnp.pi - jnp.arccos(jnp.clip(cosine, -1.0, 1.0))) / (2.0 * jnp.pi)


@arc_cosine_0.defjvp
def _(primals, tangents):
    (cosine,), (tangent,) = primals, tangents
    sine = jnp.sqrt(jnp.maximum(1.0 - cosine**2, 8.0 * jnp.finfo(cosine.dtype).eps))
    return arc_cosine_0(cosine), tangent / (2.0 * jnp.pi * sine)
