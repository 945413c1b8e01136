"""p(V), q(V) and KL(q ‖ p); users find it as `vertebra.distributions`."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vertebra.networks.parameters import Fixed, overridden, working

# --- priors -----------------------------------------------------------------------------------------------------------


class Normal(eqx.Module):
    """p(V) = Π N(v_ji; 0, scale²), the prior of Definition 1; with `fan_in`, scale²/r, for layers without features.

    >>> print(vb.Normal(2.0, fan_in=True).sd(100))
    0.2
    """

    scale: Fixed
    fan_in: bool = eqx.field(static=True)

    def __init__(self, scale: float = 1.0, *, fan_in: bool = False):
        self.scale = Fixed(_positive("scale", scale))
        self.fan_in = fan_in

    def sd(self, r: int | Float[Array, ""]) -> Float[Array, ""]:
        return self.scale.value / jnp.sqrt(r) if self.fan_in else self.scale.value

    def sample(
        self, key: PRNGKeyArray, d: int, r: int, *, live: Float[Array, " r"] | None = None
    ) -> Float[Array, "d r"]:
        v = jr.normal(key, (d, r))
        return self.sd(_count(v, live)) * (v if live is None else v * live[None])


class Laplace(eqx.Module):
    """p(V) = Π exp(−|v_ji|/scale) / (2 scale): ℓ1 sparsity of single weights.

    >>> print(vb.kl(vb.PointMass(jnp.array([[1.0, -2.0]])), vb.Laplace(0.5)))  # Σ |v|/scale
    6.0
    """

    scale: Fixed

    def __init__(self, scale: float = 1.0):
        self.scale = Fixed(_positive("scale", scale))

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
        self.penalty = Fixed(_positive("penalty", penalty))

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


# --- posteriors -------------------------------------------------------------------------------------------------------


class Full(eqx.Module):
    """Σ_j = R_jᵀ R_j with R_j upper triangular; `raw` holds R above its diagonal and log R on it.

    >>> covariance = vb.distributions.Full.of(jnp.array([[[1.0, 2.0], [0.0, 3.0]]]))
    >>> print(covariance.variances().round())
    [[ 1. 13.]]
    """

    raw: Float[Array, "d r r"] | None = None

    def init(self, sd: np.ndarray, *, rng: np.random.Generator) -> "Full":
        return Full(working(np.log(sd)[:, :, None] * np.eye(sd.shape[1])))

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

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        """φᵀ Σ_j φ = ‖R_j φ‖², all j in one product."""
        d, r, _ = self.raw.shape
        rotated = product(self.factor.reshape(d * r, r), phi)
        return jnp.sum(rotated.reshape(d, r, *phi.shape[1:]) ** 2, axis=1)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.sum(self.factor**2, axis=1)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        return 2.0 * _over_features(jnp.diagonal(self.raw, axis1=1, axis2=2), live)


class Diagonal(eqx.Module):
    """Σ_j = diag(exp(2 log_sd_j)): mean-field.

    >>> print(vb.distributions.Diagonal(jnp.zeros((1, 3))).variances())
    [[1. 1. 1.]]
    """

    log_sd: Float[Array, "d r"] | None = None

    def init(self, sd: np.ndarray, *, rng: np.random.Generator) -> "Diagonal":
        return Diagonal(working(np.log(sd)))

    def root(self, noise: Float[Array, "d r"]) -> Float[Array, "d r"]:
        return jnp.exp(self.log_sd) * noise

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        return product(self.variances(), phi**2)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.exp(2.0 * self.log_sd)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        return 2.0 * _over_features(self.log_sd, live)


class LowRank(eqx.Module):
    """Σ_j = diag(exp(2 log_sd_j)) + U_j U_jᵀ with U_j of `rank` columns.

    >>> covariance = vb.distributions.LowRank(2).init(np.full((1, 50), 0.1), rng=np.random.default_rng(0))
    >>> covariance.directions.shape
    (1, 50, 2)
    """

    rank: int = eqx.field(static=True, default=4)
    log_sd: Float[Array, "d r"] | None = None
    directions: Float[Array, "d r k"] | None = None

    def __check_init__(self):
        if self.rank < 1:
            raise ValueError(f"`rank` must be at least 1, got {self.rank}.")

    def init(self, sd: np.ndarray, *, rng: np.random.Generator) -> "LowRank":
        # Half of the variance in each part.
        directions = rng.standard_normal((*sd.shape, self.rank)) * sd[..., None] / math.sqrt(2.0 * self.rank)
        return LowRank(self.rank, working(np.log(sd / math.sqrt(2.0))), working(directions))

    def root(self, noise: Float[Array, "d r_and_k"]) -> Float[Array, "d r"]:
        r = self.log_sd.shape[1]
        return jnp.exp(self.log_sd) * noise[:, :r] + jnp.einsum("drk,dk->dr", self.directions, noise[:, r:])

    def quadratic(self, phi: Float[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        spread = jnp.tensordot(jnp.swapaxes(self.directions, 1, 2), phi, axes=1)
        return product(jnp.exp(2.0 * self.log_sd), phi**2) + jnp.sum(spread**2, axis=1)

    def variances(self) -> Float[Array, "d r"]:
        return jnp.exp(2.0 * self.log_sd) + jnp.sum(self.directions**2, axis=-1)

    def log_det(self, live: Float[Array, " r"] | None = None) -> Float[Array, " d"]:
        # log|D + U Uᵀ| = log|D| + log|I + Uᵀ D⁻¹ U|
        scaled = self.directions * jnp.exp(-self.log_sd)[..., None]
        scaled = scaled if live is None else scaled * live[None, :, None]
        inner = jnp.eye(self.rank)[None] + jnp.einsum("drk,drm->dkm", scaled, scaled)
        return 2.0 * _over_features(self.log_sd, live) + jnp.linalg.slogdet(inner)[1]


Covariance = Full | Diagonal | LowRank


class Gaussian(eqx.Module):
    """q(V) = Π_j N(v_j; μ_j, Σ_j), with a full, diagonal or low-rank Σ_j.

    `sd` is the initial standard deviation of a weight and `spread` that of the initial means, as shares of the prior's.

    >>> q = vb.distributions.Gaussian("full").init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
    >>> mean, variance = q.moments(jnp.ones(3))
    >>> print(variance.round(2))  # 3 · 0.1²
    [0.03 0.03]
    """

    covariance: Covariance
    sd: float = eqx.field(static=True)
    spread: float = eqx.field(static=True)
    mean: Float[Array, "d r"] | None

    def __init__(
        self,
        covariance: Covariance | str = "full",
        *,
        sd: float = 0.1,
        spread: float = 1.0,
        mean: Float[Array, "d r"] | None = None,
    ):
        if isinstance(covariance, str):
            kinds = {"full": Full, "diagonal": Diagonal, "low_rank": LowRank}
            if covariance not in kinds:
                raise ValueError(f"`covariance` must be one of {', '.join(kinds)}, got {covariance!r}.")
            self.covariance = kinds[covariance]()
        else:
            self.covariance = covariance
        self.sd = _positive("sd", sd)
        if not spread >= 0.0:
            raise ValueError(f"`spread` must not be negative, got {spread!r}.")
        self.spread = float(spread)
        self.mean = mean

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "Gaussian":
        scale = _initial_scale(prior, r, live)
        exists = np.ones(r) if live is None else live
        covariance = self.covariance.init(np.full((d, r), self.sd * scale), rng=rng)
        if isinstance(covariance, LowRank):
            covariance = LowRank(
                covariance.rank, covariance.log_sd, working(np.asarray(covariance.directions) * exists[:, None])
            )
        mean = self.spread * scale * exists * rng.standard_normal((d, r))
        return Gaussian(covariance, mean=working(mean))  # what it started from is no longer a part of it

    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        d, r = self.mean.shape
        extra = self.covariance.rank if isinstance(self.covariance, LowRank) else 0
        return self.mean + self.covariance.root(jr.normal(key, (d, r + extra), self.mean.dtype))

    def moments(self, phi: Float[Array, "r *batch"]) -> tuple[Float[Array, "d *batch"], Float[Array, "d *batch"]]:
        """Mean and variance of f_j = v_jᵀφ: all that one row's draw needs (the local reparameterisation)."""
        if not isinstance(self.covariance, Full):
            return product(self.mean, phi), self.covariance.quadratic(phi)
        # R_j φ and μ_jᵀφ of all j in one product, which reads φ once: on a GPU memory is what a step waits for.
        d, r = self.mean.shape
        rotated = product(jnp.concatenate([self.covariance.factor.reshape(d * r, r), self.mean]), phi)
        return rotated[d * r :], jnp.sum(rotated[: d * r].reshape(d, r, *phi.shape[1:]) ** 2, axis=1)


class PointMass(eqx.Module):
    """q(V) = δ(V − mean): a trained weight. `spread`: the initial sd of weights, as a share of the prior's.

    >>> mean, variance = vb.PointMass(jnp.array([[1.0, 2.0]])).moments(jnp.ones(2))
    >>> print(mean, variance)
    [3.] None
    """

    mean: Float[Array, "d r"] | None = None
    spread: float = eqx.field(static=True, default=1.0)

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "PointMass":
        mean = self.spread * _initial_scale(prior, r, live) * rng.standard_normal((d, r))
        return PointMass(working(mean if live is None else mean * live))

    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        return jnp.asarray(self.mean)

    def moments(self, phi: Float[Array, "r *batch"]) -> tuple[Float[Array, "d *batch"], None]:
        return product(self.mean, phi), None


class Dropout(eqx.Module):
    """q(V) = Π_i [rate δ(V[:, i]) + (1 − rate) δ(V[:, i] − m_i/(1 − rate))]: MC dropout, one coin per feature.

    The surviving weights are scaled so that E V = m, stored as `mean`.

    >>> mean, variance = vb.Dropout(0.5, mean=jnp.array([[1.0, 2.0]])).moments(jnp.ones(2))
    >>> print(mean, variance)
    [3.] [5.]
    """

    rate: Fixed
    mean: Float[Array, "d r"] | None

    def __init__(self, rate: float | Fixed = 0.05, *, mean: Float[Array, "d r"] | None = None):
        if not isinstance(rate, Fixed):
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"`rate` must be at least 0 and below 1, got {rate!r}.")
            rate = Fixed(float(rate))
        self.rate = rate
        self.mean = mean

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "Dropout":
        return Dropout(self.rate, mean=PointMass().init(r, d, prior=prior, live=live, rng=rng).mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        return jnp.where(self.coins(key, self.mean.shape[1:])[None], self.mean / (1.0 - self.rate.value), 0.0)

    def coins(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Bool[Array, "*shape"]:
        """True with probability 1 − rate: which features stay."""
        return jr.uniform(key, shape) >= self.rate.value

    def moments(self, phi: Float[Array, "r *batch"]) -> tuple[Float[Array, "d *batch"], Float[Array, "d *batch"]]:
        """Mean and variance of V φ over the coins. f is not Gaussian here: draw it with `project`."""
        rate = self.rate.value
        return product(self.mean, phi), rate / (1.0 - rate) * product(self.mean**2, phi**2)

    def project(self, phi: Float[Array, "r *batch"], coins: Bool[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        """A draw of V φ with coins of its own for every column."""
        return product(self.mean, jnp.where(coins, phi / (1.0 - self.rate.value), 0.0))


Posterior = Gaussian | PointMass | Dropout


def check_posterior(q: Any) -> None:
    """Refuses a posterior that training would not read as it is written.

    >>> vb.distributions.check_posterior(vb.distributions.PointMass())
    >>> vb.distributions.check_posterior(None)
    Traceback (most recent call last):
        ...
    TypeError: `posterior` must be one of Gaussian, PointMass, Dropout, got NoneType: ...
    """
    _check_kind("posterior", q, (Gaussian, PointMass, Dropout), may=("init",))
    if isinstance(q, Gaussian) and isinstance(q.covariance, Full | Diagonal | LowRank):
        _check_kind("covariance", q.covariance, (Full, Diagonal, LowRank), may=("init",))


def check_prior(p: Any) -> None:
    """Refuses a prior that training would not read as it is written.

    >>> vb.distributions.check_prior(vb.Normal())
    >>> vb.distributions.check_prior("normal")
    Traceback (most recent call last):
        ...
    TypeError: `prior` must be one of Normal, Laplace, GroupLasso, got str: ...
    """
    _check_kind("prior", p, (Normal, Laplace, GroupLasso))


def _check_kind(name: str, thing: Any, kinds: tuple[type, ...], may: tuple[str, ...] = ()) -> None:
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


def kl(
    q: Posterior, p: Prior, *, live: Float[Array, " r"] | None = None, key: PRNGKeyArray | None = None
) -> Float[Array, ""]:
    """KL(q ‖ p), summed over V.

    Exact for a Gaussian against a normal or a Laplace prior. Unbiased, from one draw, against a group lasso, which
    needs `key`. A point mass has no density: there it is −log p(V) + log p(0), the penalty that the prior stands for,
    and for dropout the mean of that over the coins (their entropy depends on the rate alone, and is left out).

    `live` marks with 1 the features that exist; the others, padding, do not count.

    >>> q = vb.distributions.Gaussian(vb.distributions.Diagonal(jnp.zeros((1, 2))), mean=jnp.array([[1.0, 2.0]]))
    >>> print(vb.kl(q, vb.Normal()))  # ½ ‖μ‖², as the variances are the prior's
    2.5
    """
    check_posterior(q)
    check_prior(p)
    d, r = q.mean.shape[0], _count(q.mean, live)
    match q, p:
        case Gaussian(), Normal():
            # ½ Σ_j [ tr Σ_j/s² + ‖μ_j‖²/s² − r + r log s² − log|Σ_j| ]
            sd = p.sd(r)
            second = _over_features(q.covariance.variances() + q.mean**2, live) / sd**2
            return 0.5 * jnp.sum(second - r + 2.0 * r * jnp.log(sd) - q.covariance.log_det(live))
        case Gaussian(), Laplace():
            # E|v|/b + log 2b − entropy, with the folded normal's mean E|v| = σ√(2/π) e^{−μ²/2σ²} + μ(1 − 2Φ(−μ/σ))
            scale, sd = p.scale.value, jnp.sqrt(q.covariance.variances())
            z = q.mean / sd
            absolute = sd * math.sqrt(2.0 / math.pi) * jnp.exp(-0.5 * z**2) + q.mean * (1.0 - 2.0 * ndtr(-z))
            return jnp.sum(_over_features(absolute, live)) / scale + d * r * jnp.log(2.0 * scale) - _entropy(q, live)
        case Gaussian(), GroupLasso():
            if key is None:
                raise ValueError("`key` is needed: KL of a Gaussian against a group lasso is estimated from a draw.")
            # ∫ exp(−λ‖v‖) dv over R^d = 2 π^{d/2} Γ(d) / (Γ(d/2) λ^d)
            log_volume = math.log(2.0) + 0.5 * d * math.log(math.pi) + gammaln(float(d)) - gammaln(0.5 * d)
            normaliser = r * (log_volume - d * jnp.log(p.penalty.value))
            return _penalty(p, q.sample(key), live) + normaliser - _entropy(q, live)
        case PointMass(), Normal() | Laplace() | GroupLasso():
            return _penalty(p, q.mean, live)
        case Dropout(), Normal() | Laplace() | GroupLasso():
            keep = 1.0 - q.rate.value
            return keep * _penalty(p, q.mean / keep, live)


def _penalty(p: Prior, v: Float[Array, "d r"], live: Float[Array, " r"] | None) -> Float[Array, ""]:
    """−log p(V) + log p(0)."""
    match p:
        case Normal():
            return 0.5 * jnp.sum(_over_features(v**2, live)) / p.sd(_count(v, live)) ** 2
        case Laplace():
            return jnp.sum(_over_features(jnp.abs(v), live)) / p.scale.value
        case GroupLasso():
            squares = jnp.sum(v**2, axis=0)
            # ‖0‖ has no gradient: a group at zero stays there, which is the subgradient of least norm.
            norms = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
            return p.penalty.value * _over_features(norms, live)


def _over_features(values: Float[Array, "*d r"], live: Float[Array, " r"] | None) -> Float[Array, "*d"]:
    """The sum over the features that exist."""
    return jnp.sum(values, axis=-1) if live is None else values @ live


def _entropy(q: Gaussian, live: Float[Array, " r"] | None) -> Float[Array, ""]:
    d, r = q.mean.shape[0], _count(q.mean, live)
    return 0.5 * (d * r * (1.0 + math.log(2.0 * math.pi)) + jnp.sum(q.covariance.log_det(live)))


def _count(values: Float[Array, "d r"], live: Float[Array, " r"] | None) -> int | Float[Array, ""]:
    return values.shape[1] if live is None else jnp.sum(live)


def _initial_scale(prior: Prior, r: int, live: np.ndarray | None) -> float:
    n_features = r if live is None else float(live.sum())
    if isinstance(prior, Normal):
        return float(prior.scale.value) / (math.sqrt(n_features) if prior.fan_in else 1.0)
    return 1.0 / math.sqrt(n_features)


def _positive(name: str, value: float) -> float:
    if not value > 0.0 or math.isinf(value):
        raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")
    return float(value)


def product(
    v: Float[Array, "d r"], phi: Float[Array, "r *batch"], precision: jax.lax.Precision | None = None
) -> Float[Array, "d *batch"]:
    """V φ, with a gradient that multiplies by a stored Vᵀ: XLA is slower on a CPU with the transpose folded in.

    >>> print(vb.distributions.product(jnp.ones((2, 3)), jnp.arange(3.0)))
    [3. 3.]
    """
    result: Any = _product(v, phi, precision)
    return result


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
