"""Priors p(V) of the weights V of a function block; users find them in `vertebra.distributions`."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.machine.checks import check_positive
from vertebra.networks.features import n_live
from vertebra.networks.parameters import Fixed, overridden


class Normal(eqx.Module):
    """p(V) = Π N(v_ji; 0, scale²), the prior of Definition 1; with `fan_in`, scale²/r, for layers without features.

    >>> print(vb.Normal(2.0, fan_in=True).sd(100))
    0.2
    """

    scale: Fixed
    fan_in: bool = eqx.field(static=True)

    def __init__(self, scale: float = 1.0, *, fan_in: bool = False):
        check_positive(scale=scale)
        self.scale = Fixed(float(scale))
        self.fan_in = fan_in

    def sd(self, r: int | Float[Array, ""]) -> Float[Array, ""]:
        return self.scale.value / jnp.sqrt(r) if self.fan_in else self.scale.value

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        v = jr.normal(key, (d, r))
        return self.sd(n_live(v, live)) * (v if live is None else v * live[None])


class Laplace(eqx.Module):
    """p(V) = Π exp(−|v_ji|/scale) / (2 scale): ℓ1 sparsity of single weights.

    >>> print(vb.kl(vb.PointMass(jnp.array([[1.0, -2.0]])), vb.Laplace(0.5)))  # Σ |v|/scale
    6.0
    """

    scale: Fixed

    def __init__(self, scale: float = 1.0):
        check_positive(scale=scale)
        self.scale = Fixed(float(scale))

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        v = self.scale.value * jr.laplace(key, (d, r))
        return v if live is None else v * live[None]


class GroupLasso(eqx.Module):
    """p(V) ∝ exp(−penalty Σ_i ‖V[:, i]‖₂): one group per input, the weights that leave it. AddNN's first layer.

    >>> v = jnp.array([[3.0, 0.0], [4.0, 0.0]])
    >>> print(vb.kl(vb.PointMass(v), vb.GroupLasso(2.0)))  # 2 (5 + 0)
    10.0
    """

    penalty: Fixed

    def __init__(self, penalty: float = 1.0):
        check_positive(penalty=penalty)
        self.penalty = Fixed(float(penalty))

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        # A group's length has the density ∝ t^{d−1} exp(−penalty t), its direction is uniform.
        direction_key, length_key = jr.split(key)
        v = jr.normal(direction_key, (d, r))
        lengths = jr.gamma(length_key, float(d), (r,)) / self.penalty.value
        v = v * (lengths / jnp.linalg.norm(v, axis=0))[None]
        return v if live is None else v * live[None]


Prior = Normal | Laplace | GroupLasso


def initial_scale(prior: Prior, r: int, live: np.ndarray | None) -> float:
    """The sd that weights start with: the prior's, and 1/√r where it has none."""
    n_features = r if live is None else float(live.sum())
    if isinstance(prior, Normal):
        return float(prior.scale.value) / (math.sqrt(n_features) if prior.fan_in else 1.0)
    return 1.0 / math.sqrt(n_features)


def check_prior(p: object) -> None:
    """Refuses a prior that training would not read as it is written.

    >>> vb.distributions.check_prior(vb.Normal())
    >>> vb.distributions.check_prior("normal")
    Traceback (most recent call last):
        ...
    TypeError: `prior` must be one of Normal, Laplace, GroupLasso, got str: ...
    """
    check_kind("prior", p, (Normal, Laplace, GroupLasso))


def check_kind(name: str, thing: object, kinds: tuple[type, ...], may: tuple[str, ...] = ()) -> None:
    """One of the kinds, whose moments and KL are known by class; a subclass may differ in how it is made."""
    known = ", ".join(kind.__name__ for kind in kinds)
    base = next((kind for kind in kinds if isinstance(thing, kind)), None)
    own = type(thing).__name__
    if base is None:
        raise TypeError(
            f"`{name}` must be one of {known}, got {own}: moments and KL(q ‖ p) are known for these. A {name} of your "
            "own is not possible yet."
        )
    ignored = sorted(set(overridden(thing, base)) - set(may))
    if ignored:
        raise TypeError(
            f"`{name}` {own} has {', '.join(f'`{each}`' for each in ignored)} of its own, which would be ignored: "
            f"moments and KL(q ‖ p) are those of {base.__name__}, by its class. Use {base.__name__} or another of "
            f"{known}; a subclass may change "
            f"{'`__init__` and `init`' if may else '`__init__`'} alone, and a {name} of your own is not possible yet."
        )
