"""Priors p(V) of the weights V of a function block; users find them in `vertebra.distributions`."""

import abc
import inspect
import math
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.machine.checks import check_positive
from vertebra.networks.features import n_live, over_features
from vertebra.networks.parameters import Fixed, is_traced, overridden

Thing = TypeVar("Thing")


class Prior(eqx.Module):
    """p(V) of the weights V, (d, r), of a function block. One of your own gives `sample`, and `log_prob` of V.

    `live` marks with 1 the features that exist where nodes read different numbers of parents, and is handed over there
    alone: `log_prob` counts these, `sample` puts zeros elsewhere. Arrays of a prior are trained with everything else,
    unless they are `vb.Fixed`.

    >>> class Cauchy(vb.distributions.Prior):
    ...     def log_prob(self, v, *, live=None):
    ...         return jnp.sum(vb.distributions.over_features(-jnp.log(jnp.pi * (1.0 + v**2)), live))
    ...     def sample(self, key, d, r, *, live=None):
    ...         return jr.cauchy(key, (d, r)) * (1.0 if live is None else live[None])
    >>> network = vb.build(vb.chain(2, 1), [vb.Layer(1, prior=Cauchy())], key=jr.key(0))
    >>> network.kl_is_exact  # of each layer
    (False,)
    """

    @abc.abstractmethod
    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        """A draw of V."""

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        """log p(V)."""
        raise NotImplementedError(f"{type(self).__name__} has no `log_prob`, which is asked for here: give it one.")

    def cost(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        """−log p(V) up to a constant: what a point mass pays. It is 0 at V = 0 where p has a density there."""
        return -self.log_prob(v, **only(live))

    def initial_sd(self, r: int | float) -> float | Float[Array, ""]:
        """The sd that weights on r features start with."""
        return 1.0 / math.sqrt(r)


class Normal(Prior):
    """p(V) = Π N(v_ji; 0, scale²), the prior of Definition 1; with `fan_in`, scale²/r, for layers without features.

    >>> print(vb.Normal(2.0, fan_in=True).sd(100))
    0.2
    """

    scale: Fixed
    fan_in: bool = eqx.field(static=True)

    def __init__(self, scale: ArrayLike = 1.0, *, fan_in: bool = False):
        self.scale = _positive("scale", scale)
        self.fan_in = fan_in

    def sd(self, r: int | Float[Array, ""]) -> Float[Array, ""]:
        return self.scale.value / jnp.sqrt(r) if self.fan_in else self.scale.value

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        v = jr.normal(key, (d, r))
        return self.sd(n_live(v, live)) * (v if live is None else v * live[None])

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        n_weights, sd = v.shape[0] * n_live(v, live), self.sd(n_live(v, live))
        return -self.cost(v, live=live) - n_weights * (jnp.log(sd) + 0.5 * math.log(2.0 * math.pi))

    def cost(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        return 0.5 * jnp.sum(over_features(v**2, live)) / self.sd(n_live(v, live)) ** 2

    def initial_sd(self, r: int | float) -> float | Float[Array, ""]:
        scale = self.scale.value if is_traced(self.scale.value) else float(self.scale.value)
        return scale / (math.sqrt(r) if self.fan_in else 1.0)


class Laplace(Prior):
    """p(V) = Π exp(−|v_ji|/scale) / (2 scale): ℓ1 sparsity of single weights.

    >>> print(vb.kl(vb.PointMass(jnp.array([[1.0, -2.0]])), vb.Laplace(0.5)))  # Σ |v|/scale
    6.0
    """

    scale: Fixed

    def __init__(self, scale: ArrayLike = 1.0):
        self.scale = _positive("scale", scale)

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        v = self.scale.value * jr.laplace(key, (d, r))
        return v if live is None else v * live[None]

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        return -self.cost(v, live=live) - v.shape[0] * n_live(v, live) * jnp.log(2.0 * self.scale.value)

    def cost(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        return jnp.sum(over_features(jnp.abs(v), live)) / self.scale.value


class GroupLasso(Prior):
    """p(V) ∝ exp(−penalty Σ_i ‖V[:, i]‖₂): one group per input, the weights that leave it. AddNN's first layer.

    >>> v = jnp.array([[3.0, 0.0], [4.0, 0.0]])
    >>> print(vb.kl(vb.PointMass(v), vb.GroupLasso(2.0)))  # 2 (5 + 0)
    10.0
    """

    penalty: Fixed

    def __init__(self, penalty: ArrayLike = 1.0):
        self.penalty = _positive("penalty", penalty)

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        # A group's length has the density ∝ t^{d−1} exp(−penalty t), its direction is uniform.
        direction_key, length_key = jr.split(key)
        v = jr.normal(direction_key, (d, r))
        lengths = jr.gamma(length_key, float(d), (r,)) / self.penalty.value
        v = v * (lengths / jnp.linalg.norm(v, axis=0))[None]
        return v if live is None else v * live[None]

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        # ∫ exp(−λ‖v‖) dv over R^d = 2 π^{d/2} Γ(d) / (Γ(d/2) λ^d)
        d = v.shape[0]
        log_volume = math.log(2.0) + 0.5 * d * math.log(math.pi) + gammaln(float(d)) - gammaln(0.5 * d)
        return -self.cost(v, live=live) - n_live(v, live) * (log_volume - d * jnp.log(self.penalty.value))

    def cost(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        squares = jnp.sum(v**2, axis=0)
        # ‖0‖ has no gradient: a group at zero stays there, which is the subgradient of least norm.
        norms = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
        return self.penalty.value * over_features(norms, live)


def _positive(name: str, value: ArrayLike) -> Fixed:
    """A parameter that must be positive and finite, held; one that is traced is checked when it runs."""
    if isinstance(value, Tracer):
        sound = (value > 0.0) & jnp.isfinite(value)
        return Fixed(eqx.error_if(value, ~sound, f"`{name}` must be positive and finite."))
    number = float(np.asarray(value))
    check_positive(**{name: number})
    return Fixed(number)


def only(live: Thing | None) -> dict[str, Thing]:
    """`live` as an argument where there is padding, and none where there is not: simple classes need not know of it."""
    return {} if live is None else {"live": live}


def initial_scale(prior: Prior, r: int, live: np.ndarray | None) -> float | Float[Array, ""]:
    """The sd that weights start with: the prior's, and 1/√r where it has none.

    >>> vb.distributions.initial_scale(vb.Normal(2.0, fan_in=True), 4, None)
    1.0
    """
    return prior.initial_sd(r if live is None else float(live.sum()))


def check_prior(p: object) -> None:
    """Refuses a prior that training would not read as it is written.

    >>> vb.distributions.check_prior(vb.Normal())
    >>> vb.distributions.check_prior("normal")
    Traceback (most recent call last):
        ...
    TypeError: `prior` must be one of Normal, Laplace, GroupLasso, or derived from vb.distributions.Prior, got str.
    """
    check_kind("prior", p, Prior, "Normal, Laplace, GroupLasso")


def check_kind(name: str, thing: object, kind: type, known: str, may: tuple[str, ...] = ()) -> None:
    """One of a kind whose parts belong together: who derives from a class that draws may change how it is made, alone.

    Draws, densities, moments and rules of KL are of one law. A subclass with another draw would be trained with the
    density, or the rule, of its parent.
    """
    own = type(thing).__name__
    if not isinstance(thing, kind):
        raise TypeError(
            f"`{name}` must be one of {known}, or derived from vb.distributions.{kind.__name__}, got {own}."
        )
    base = [each for each in type(thing).__mro__ if "sample" in vars(each) and each is not kind][-1]
    ignored = sorted(set(overridden(thing, base)) - set(may))
    if ignored:
        raise TypeError(
            f"`{name}` {own} has {', '.join(f'`{each}`' for each in ignored)} of its own, which would be ignored: "
            f"moments and KL(q ‖ p) are those of {base.__name__}, by its class. A subclass of {base.__name__} may "
            f"change {'`__init__` and `init`' if may else '`__init__`'} alone: derive {own} from "
            f"vb.distributions.{kind.__name__} and give it methods of its own."
        )


def check_live(name: str, thing: Prior | eqx.Module, methods: tuple[str, ...]) -> None:
    """Refuses a class whose methods do not know of padding, where there is some."""
    for method in methods:
        if "live" not in inspect.signature(getattr(thing, method)).parameters:
            raise TypeError(
                f"`{name}` {type(thing).__name__} must have `live=None` among the arguments of `{method}`: nodes of "
                "this layer read different numbers of parents, and `live` marks the features that exist."
            )
