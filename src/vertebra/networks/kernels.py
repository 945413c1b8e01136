"""Kernels K(x, x'), and the dual kernels of activations; users find it as `vertebra.kernels`."""

import math
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from vertebra.networks.activations import Activation, as_activation, dual
from vertebra.networks.parameters import UNBUILT, Built, is_traced

# A GPU multiplies float32 with the 10 bits of TF32 unless told otherwise: enough for a layer's weights, too few for a
# matrix that is to be factorised.
PRECISE = jax.lax.Precision.HIGHEST

# Σ_i weight_i x_i x_i, Σ_i weight_i x_i z_i and Σ_i weight_i z_i z_i of two vectors of which only these are known
Products = Callable[[Float[Array, " p"]], tuple[Array, Array, Array]]


class Kernel(eqx.Module):
    """A positive-definite function of two vectors. Subclasses give `__call__`; `+` and `*` combine.

    >>> class Brownian(vb.kernels.Kernel):
    ...     def __call__(self, x, z):
    ...         return jnp.minimum(x[0], z[0])
    >>> print(Brownian().columns(jnp.array([[1.0], [3.0]]), jnp.array([[2.0]])))
    [[1.]
     [2.]]
    """

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        # Shortcuts belong to the K(x, z) they were worked out for: one of its own has the general way.
        own = vars(cls).keys()
        shortcuts = {"columns", "of_products", "spectral_draws"} if {"__call__", "correlation"} & own else set()
        shortcuts |= {"diagonal"} if "__call__" in own else set()
        for name in shortcuts - own:
            setattr(cls, name, getattr(Kernel, name))

    def __call__(self, x: Float[Array, " p"], z: Float[Array, " p"]) -> Float[Array, ""]:
        raise NotImplementedError

    def init(self, n_inputs: int) -> "Kernel":
        """The kernel for that many inputs: length scales left out are filled in, one per input."""
        return self

    def diagonal(self, x: Float[Array, "p *batch"]) -> Float[Array, "*batch"]:
        """K(x, x) for each column of x."""
        value = lambda column: self(column, column)  # noqa: E731
        return value(x) if x.ndim == 1 else jax.vmap(value, in_axes=-1)(x)

    def columns(self, z: Float[Array, "r p"], x: Float[Array, "p *batch"]) -> Float[Array, "r *batch"]:
        """K(z_i, x) for each row of z and each column of x."""
        over_z = jax.vmap(self, in_axes=(0, None))
        return over_z(z, x) if x.ndim == 1 else jax.vmap(over_z, in_axes=(None, -1), out_axes=-1)(z, x)

    def of_products(self, products: Products, n_inputs: int) -> Array:
        """K from inner products alone: what a network of infinite width hands on from layer to layer."""
        raise NotImplementedError(f"{type(self).__name__} is not a function of inner products.")

    def spectral_draws(
        self, rng: np.random.Generator, n_draws: int, n_inputs: int
    ) -> Float[np.ndarray, "n_draws n_inputs"]:
        """ω_j with K(x, z) = variance · E cos(ωᵀ(x − z)/lengthscale): the spectral density at a length scale of 1.

        A stationary kernel that has them has random features, `vb.RandomFeatureBlock(r, kernel=...)`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `spectral_draws`, which are asked for here.")

    @property
    def has_spectral_draws(self) -> bool:
        return type(self).spectral_draws is not Kernel.spectral_draws

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other)


class Sum(Kernel):
    """K = K₁ + K₂.

    >>> kernel = vb.RBF(1.0) + vb.Linear()
    >>> round(float(kernel(jnp.array([1.0]), jnp.array([2.0]))), 2)
    3.61
    """

    first: Kernel
    second: Kernel

    def init(self, n_inputs: int) -> "Sum":
        return Sum(self.first.init(n_inputs), self.second.init(n_inputs))

    def __call__(self, x, z):
        return self.first(x, z) + self.second(x, z)

    def of_products(self, products, n_inputs):
        return self.first.of_products(products, n_inputs) + self.second.of_products(products, n_inputs)


class Product(Kernel):
    """K = K₁ K₂.

    >>> kernel = vb.RBF(1.0) * vb.Linear()
    >>> round(float(kernel(jnp.array([1.0]), jnp.array([2.0]))), 2)
    1.82
    """

    first: Kernel
    second: Kernel

    def init(self, n_inputs: int) -> "Product":
        return Product(self.first.init(n_inputs), self.second.init(n_inputs))

    def __call__(self, x, z):
        return self.first(x, z) * self.second(x, z)

    def of_products(self, products, n_inputs):
        return self.first.of_products(products, n_inputs) * self.second.of_products(products, n_inputs)


class Stationary(Kernel):
    """K(x, z) = variance · correlation(x − z), with one length scale per input (ARD) or one for all.

    One of your own gives `correlation`, and `spectral_draws` to have random features.

    >>> print(vb.Matern().init(n_inputs=4).lengthscale.round(2))
    [2. 2. 2. 2.]
    """

    log_lengthscale: Built[Float[Array, "*p"]]
    log_variance: Float[Array, ""]
    ard: bool = eqx.field(static=True)

    def __init__(self, lengthscale: ArrayLike | None = None, variance: ArrayLike = 1.0, *, ard: bool = True):
        self.log_lengthscale = UNBUILT if lengthscale is None else log_positive("lengthscale", lengthscale)
        self.log_variance = log_positive("variance", variance)
        self.ard = ard

    @property
    def lengthscale(self) -> Float[Array, "*p"]:
        return jnp.exp(self.log_lengthscale)

    @property
    def variance(self) -> Float[Array, ""]:
        return jnp.exp(self.log_variance)

    def init(self, n_inputs: int) -> "Stationary":
        return _with_lengthscale(self, n_inputs)

    def correlation(self, difference: Float[Array, " p"]) -> Float[Array, ""]:
        raise NotImplementedError

    def __call__(self, x, z):
        return self.variance * self.correlation(x - z)

    def diagonal(self, x):
        return jnp.broadcast_to(self.variance, x.shape[1:])

    def _squared_distance(self, products, n_inputs):
        """‖(x − z)/lengthscale‖² from inner products, never below 0."""
        xx, xz, zz = products(_inverse_squares(self.log_lengthscale, n_inputs))
        return jnp.maximum(xx + zz - 2.0 * xz, 0.0)


class RBF(Stationary):
    """K(x, z) = variance · exp(−½ ‖(x − z)/lengthscale‖²).

    >>> round(float(vb.RBF(lengthscale=1.0)(jnp.array([1.0]), jnp.array([2.0]))), 2)
    0.61
    """

    def __init__(self, lengthscale: ArrayLike | None = None, variance: ArrayLike = 1.0, *, ard: bool = True):
        super().__init__(lengthscale, variance, ard=ard)

    def correlation(self, difference):
        return jnp.exp(-0.5 * jnp.sum((difference / self.lengthscale) ** 2))

    def columns(self, z, x):
        # ‖a − b‖² = ‖a‖² + ‖b‖² − 2aᵀb about the mean of z: one product. The rounding error is that of ‖a‖² + ‖b‖²,
        # large only where the length scale is short and K(Z, Z) well conditioned.
        scale = jnp.broadcast_to(self.lengthscale, z.shape[1:])
        centre = jax.lax.stop_gradient(jnp.mean(z, axis=0))
        a = (z - centre[None]) / scale[None]
        b = (x - _beside(centre, x)) / _beside(scale, x)
        squares = _beside(jnp.sum(a**2, axis=1), x) + jnp.sum(b**2, axis=0)[None]
        squares = squares - 2.0 * jnp.matmul(a, b, precision=PRECISE)
        return self.variance * jnp.exp(-0.5 * jnp.maximum(squares, 0.0))

    def of_products(self, products, n_inputs):
        return self.variance * jnp.exp(-0.5 * self._squared_distance(products, n_inputs))


class Matern(Stationary):
    """The Matérn kernel of smoothness ν = 1/2, 3/2 or 5/2.

    >>> round(float(vb.Matern(nu=0.5, lengthscale=1.0)(jnp.array([1.0]), jnp.array([2.0]))), 2)  # exp(−1)
    0.37
    """

    nu: float = eqx.field(static=True)

    def __init__(
        self,
        nu: float = 2.5,
        lengthscale: ArrayLike | None = None,
        variance: ArrayLike = 1.0,
        *,
        ard: bool = True,
    ):
        if nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"`nu` must be 0.5, 1.5 or 2.5, got {nu!r}.")
        super().__init__(lengthscale, variance, ard=ard)
        self.nu = nu

    def correlation(self, difference):
        return self._profile(jnp.sum((difference / self.lengthscale) ** 2))

    def of_products(self, products, n_inputs):
        return self.variance * self._profile(self._squared_distance(products, n_inputs))

    def _profile(self, squared):
        # √ has no derivative at 0, where the kernel is flat or has its cusp: hold the argument just above.
        distance = jnp.sqrt(2.0 * self.nu * jnp.maximum(squared, jnp.finfo(squared.dtype).tiny))
        polynomial = {0.5: 1.0, 1.5: 1.0 + distance, 2.5: 1.0 + distance + distance**2 / 3.0}[self.nu]
        return polynomial * jnp.exp(-distance)


class Periodic(Stationary):
    """K(x, z) = variance · exp(−2 Σ_i sin²(π (x_i − z_i)/period) / lengthscale_i²).

    >>> round(float(vb.Periodic(period=1.0, lengthscale=1.0)(jnp.array([1.0]), jnp.array([2.0]))), 2)  # a period apart
    1.0
    """

    log_period: Float[Array, ""]

    def __init__(
        self,
        period: ArrayLike = 1.0,
        lengthscale: ArrayLike | None = None,
        variance: ArrayLike = 1.0,
        *,
        ard: bool = True,
    ):
        super().__init__(lengthscale, variance, ard=ard)
        self.log_period = log_positive("period", period)

    def correlation(self, difference):
        wave = jnp.sin(jnp.pi * difference / jnp.exp(self.log_period)) / self.lengthscale
        return jnp.exp(-2.0 * jnp.sum(wave**2))


class Linear(Kernel):
    """K(x, z) = variance · xᵀz + bias.

    >>> print(vb.Linear(variance=1.0, bias=1.0)(jnp.array([1.0]), jnp.array([2.0])))
    3.0
    """

    log_variance: Float[Array, ""]
    log_bias: Float[Array, ""]

    def __init__(self, variance: ArrayLike = 1.0, bias: ArrayLike = 1.0):
        self.log_variance = log_positive("variance", variance)
        self.log_bias = log_positive("bias", bias)

    def __call__(self, x, z):
        return jnp.exp(self.log_variance) * jnp.dot(x, z, precision=PRECISE) + jnp.exp(self.log_bias)

    def of_products(self, products, n_inputs):
        return jnp.exp(self.log_variance) * products(jnp.ones(n_inputs))[1] + jnp.exp(self.log_bias)


class Polynomial(Kernel):
    """K(x, z) = (variance · xᵀz + bias)^degree.

    >>> print(vb.Polynomial(degree=2)(jnp.array([1.0]), jnp.array([2.0])))
    9.0
    """

    base: Linear
    degree: int = eqx.field(static=True)

    def __init__(self, degree: int = 2, variance: ArrayLike = 1.0, bias: ArrayLike = 1.0):
        if degree < 1:
            raise ValueError(f"`degree` must be at least 1, got {degree!r}.")
        self.base = Linear(variance, bias)
        self.degree = degree

    def __call__(self, x, z):
        return self.base(x, z) ** self.degree

    def of_products(self, products, n_inputs):
        return self.base.of_products(products, n_inputs) ** self.degree


class Dual(Kernel):
    """K(x, z) = variance · E σ(wᵀx + b) σ(wᵀz + b), w ~ N(0, 1/lengthscale²), b ~ N(0, bias): eq. (2) of the paper.

    The kernel that r random features of an activation approach as r grows: `RandomFeatureBlock(r, σ).dual`.
    Dual("relu") is the arc-cosine kernel ‖x‖‖z‖ (sin θ + (π − θ) cos θ)/2π of Cho & Saul without their 2.

    >>> x = jnp.array([1.0, 0.0])
    >>> print(vb.Dual("relu", lengthscale=1.0)(x, x))  # ½ ‖x‖²
    0.5
    """

    activation: str | Activation = eqx.field(static=True)
    log_lengthscale: Built[Float[Array, "*p"]]
    log_variance: Float[Array, ""]
    log_bias: Float[Array, ""] | None
    ard: bool = eqx.field(static=True)

    def __init__(
        self,
        activation: str | Activation = "relu",
        lengthscale: ArrayLike | None = None,
        variance: ArrayLike = 1.0,
        *,
        bias: ArrayLike = 0.0,
        ard: bool = True,
    ):
        as_activation(activation)
        self.activation = activation
        self.log_lengthscale = UNBUILT if lengthscale is None else log_positive("lengthscale", lengthscale)
        self.log_variance = log_positive("variance", variance)
        self.log_bias = None if not is_traced(bias) and bias == 0.0 else log_positive("bias", bias)
        self.ard = ard

    def init(self, n_inputs: int) -> "Dual":
        return _with_lengthscale(self, n_inputs)

    def __call__(self, x, z):
        a, b = x / jnp.exp(self.log_lengthscale), z / jnp.exp(self.log_lengthscale)
        return self._of(jnp.dot(a, a), jnp.dot(a, b), jnp.dot(b, b))

    def columns(self, z, x):
        scale = jnp.broadcast_to(jnp.exp(self.log_lengthscale), z.shape[1:])
        a, b = z / scale[None], x / _beside(scale, x)
        inner = jnp.matmul(a, b, precision=PRECISE)
        return self._of(_beside(jnp.sum(a**2, axis=1), x), inner, jnp.sum(b**2, axis=0)[None])

    def of_products(self, products, n_inputs):
        return self._of(*products(_inverse_squares(self.log_lengthscale, n_inputs)))

    def _of(self, xx, xz, zz):
        bias = 0.0 if self.log_bias is None else jnp.exp(self.log_bias)
        return jnp.exp(self.log_variance) * dual(self.activation)(xx + bias, xz + bias, zz + bias)


Scaled = TypeVar("Scaled", Stationary, Dual)


def _with_lengthscale(kernel: Scaled, n_inputs: int) -> Scaled:
    """The kernel with length scales for that many inputs, √n_inputs where none were given."""
    log_lengthscale = kernel.log_lengthscale
    xp = jnp if is_traced(log_lengthscale) else np
    if log_lengthscale is None:
        log_lengthscale = np.asarray(0.5 * math.log(n_inputs))
    if log_lengthscale.ndim == 1 and log_lengthscale.shape != (n_inputs,):
        raise ValueError(f"`lengthscale` must have one entry per input, {n_inputs}, got {log_lengthscale.shape[0]}.")
    if kernel.ard:
        log_lengthscale = xp.broadcast_to(xp.asarray(log_lengthscale), (n_inputs,))
    log_lengthscale = jnp.asarray(log_lengthscale, dtype=float)
    return eqx.tree_at(lambda k: k.log_lengthscale, kernel, log_lengthscale, is_leaf=lambda leaf: leaf is None)


def _inverse_squares(log_lengthscale: Float[Array, "*p"], n_inputs: int) -> Float[Array, " p"]:
    return jnp.broadcast_to(jnp.exp(-2.0 * log_lengthscale), (n_inputs,))


def _beside(values: Float[Array, " r"], x: Float[Array, "p *batch"]) -> Float[Array, "r ..."]:
    """One value per row, with as many axes as x."""
    return values.reshape(-1, *(1,) * (x.ndim - 1))


def log_positive(name: str, value: ArrayLike) -> Array:
    """log of a parameter that must be positive and finite; the error bears its name.

    >>> print(vb.kernels.log_positive("lengthscale", 1.0))
    0.0
    """
    if is_traced(value):
        value = jnp.asarray(value, dtype=float)
        sound = jnp.all((value > 0.0) & jnp.isfinite(value))
        return jnp.log(eqx.error_if(value, ~sound, f"`{name}` must be positive and finite."))
    value = np.asarray(value, dtype=float)
    if not np.all((value > 0) & np.isfinite(value)):
        raise ValueError(f"`{name}` must be positive and finite, got {value}.")
    return jnp.asarray(np.log(value), dtype=float)
