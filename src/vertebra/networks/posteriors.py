"""Posteriors q(V) of the weights V of a function block; users find them in `vertebra.distributions`."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vertebra.machine.checks import check_positive
from vertebra.networks.covariances import Covariance, Diagonal, Full, LowRank
from vertebra.networks.features import product
from vertebra.networks.parameters import UNBUILT, Built, Fixed, in_working_precision
from vertebra.networks.priors import Prior, check_kind, initial_scale


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
    mean: Built[Float[Array, "d r"]]

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
        check_positive(sd=sd)
        self.sd = float(sd)
        if not spread >= 0.0:
            raise ValueError(f"`spread` must not be negative, got {spread!r}.")
        self.spread = float(spread)
        self.mean = UNBUILT if mean is None else mean

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "Gaussian":
        scale = initial_scale(prior, r, live)
        exists = np.ones(r) if live is None else live
        covariance = self.covariance.init(np.full((d, r), self.sd * scale), rng=rng)
        if isinstance(covariance, LowRank):
            directions = in_working_precision(np.asarray(covariance.directions) * exists[:, None])
            covariance = LowRank(covariance.rank, covariance.log_sd, directions)
        mean = self.spread * scale * exists * rng.standard_normal((d, r))
        return Gaussian(covariance, mean=in_working_precision(mean))  # what it started from is no longer a part of it

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

    mean: Built[Float[Array, "d r"]] = UNBUILT
    spread: float = eqx.field(static=True, default=1.0)

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "PointMass":
        mean = self.spread * initial_scale(prior, r, live) * rng.standard_normal((d, r))
        return PointMass(in_working_precision(mean if live is None else mean * live))

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
    mean: Built[Float[Array, "d r"]]

    def __init__(self, rate: float | Fixed = 0.05, *, mean: Float[Array, "d r"] | None = None):
        if not isinstance(rate, Fixed):
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"`rate` must be at least 0 and below 1, got {rate!r}.")
            rate = Fixed(float(rate))
        self.rate = rate
        self.mean = UNBUILT if mean is None else mean

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


def check_posterior(q: object) -> None:
    """Refuses a posterior that training would not read as it is written.

    >>> vb.distributions.check_posterior(vb.distributions.PointMass())
    >>> vb.distributions.check_posterior(None)
    Traceback (most recent call last):
        ...
    TypeError: `posterior` must be one of Gaussian, PointMass, Dropout, got NoneType: ...
    """
    check_kind("posterior", q, (Gaussian, PointMass, Dropout), may=("init",))
    if isinstance(q, Gaussian) and isinstance(q.covariance, Full | Diagonal | LowRank):
        check_kind("covariance", q.covariance, (Full, Diagonal, LowRank), may=("init",))
