"""Posteriors q(V) of the weights V of a function block; users find them in `vertebra.distributions`."""

import abc
import math
from functools import reduce
from typing import ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from vertebra.machine.checks import check_count, check_positive
from vertebra.networks.covariances import Covariance, Diagonal, Full, LowRank
from vertebra.networks.features import n_live, product
from vertebra.networks.parameters import UNBUILT, Built, Fixed, in_working_precision, is_traced, overridden
from vertebra.networks.priors import Prior, check_kind, initial_scale


class Posterior(eqx.Module):
    """q(V) of the weights V, (d, r), of a function block. One of your own gives `init`, `sample` and `mean`.

    - `init(r, d, prior=, rng=)` gives it with its arrays; where nodes read different numbers of parents it is handed
      `live` too, which marks with 1 the features that exist.
    - `mean`, a field or a property: E V, or another V in the middle of q.
    - `log_prob(v)`, or a rule of `vb.distributions.register_kl`, for KL(q ‖ p). With `entropy` it is less noisy.
    - Each draw of f is one V for all rows, unless more is said: `is_gaussian = True` and `moments(phi)` where Vφ is
      normal given φ, and then every row has a draw of its own; or `row_noise(key, batch)` and `project(phi, noise)`.

    >>> class Uniform(vb.distributions.Posterior):
    ...     mean: jnp.ndarray | None = None
    ...     def init(self, r, d, *, prior, rng):
    ...         return Uniform(jnp.asarray(rng.standard_normal((d, r)) * prior.initial_sd(r)))
    ...     def sample(self, key):
    ...         return self.mean + jr.uniform(key, self.mean.shape, minval=-0.1, maxval=0.1)
    ...     def log_prob(self, v):
    ...         return -v.size * jnp.log(0.2)  # V is one of its own draws
    >>> layers = [vb.Layer(3, posterior=Uniform()), vb.Layer(1, posterior=Uniform())]
    >>> network = vb.build(vb.chain(2, 2), layers, key=jr.key(0))
    >>> vb.sample(network, np.zeros((5, 2)), key=jr.key(1), n_draws=10).shape
    (10, 5, 1)
    """

    is_random: ClassVar[bool] = True  # whether draws differ
    is_gaussian: ClassVar[bool] = False  # whether Vφ is normal given φ, with `moments`
    mean: eqx.AbstractVar[Built[Float[Array, "d r"]]]

    @abc.abstractmethod
    def init(self, r: int, d: int, *, prior: Prior, rng: np.random.Generator) -> "Posterior":
        """The posterior of d times r weights, with its arrays."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        """A draw of V, with a gradient."""

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        """log q(V)."""
        raise NotImplementedError(f"{type(self).__name__} has no `log_prob`, which is asked for here: give it one.")

    def entropy(self, live: Float[Array, " r"] | None = None) -> Float[Array, ""] | None:
        """−E log q(V), where there is a formula."""
        return None

    def moments(
        self, phi: Float[Array, "r *batch"]
    ) -> tuple[Float[Array, "d *batch"], Float[Array, "d *batch"] | None]:
        """Mean and variance of Vφ."""
        raise NotImplementedError(f"{type(self).__name__} has no `moments`, which are asked for here: give it some.")

    def row_noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> PyTree:
        """What `project` draws with: by default a key, of one V for all columns."""
        return key

    def project(self, phi: Float[Array, "r *batch"], noise: PyTree) -> Float[Array, "d *batch"]:
        """A draw of Vφ."""
        return product(self.sample(noise), phi)

    def conditional(
        self, phi: Float[Array, "r *batch"], noise: PyTree
    ) -> tuple[Float[Array, "d *batch"], Float[Array, "d *batch"] | None]:
        """Mean and variance of Vφ given the noise of `row_noise`; without noise, V at its mean. None is zero."""
        if self.is_gaussian:
            return self.moments(phi)
        return product(self.mean, phi) if noise is None else self.project(phi, noise), None


class Gaussian(Posterior):
    """q(V) = Π_j N(v_j; μ_j, Σ_j), with a full, diagonal or low-rank Σ_j.

    `sd` is the initial standard deviation of a weight and `spread` that of the initial means, as shares of the prior's.

    >>> q = vb.distributions.Gaussian("full").init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
    >>> mean, variance = q.moments(jnp.ones(3))
    >>> print(variance.round(2))  # 3 · 0.1²
    [0.03 0.03]
    """

    is_gaussian: ClassVar[bool] = True
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
        covariance = self.covariance.init(self.sd * scale * np.ones((d, r)), rng=rng)
        if isinstance(covariance, LowRank):
            directions = covariance.directions
            directions = directions if is_traced(directions) else np.asarray(directions)
            directions = in_working_precision(directions * exists[None, :, None])
            covariance = LowRank(covariance.rank, covariance.log_sd, directions)
        mean = self.spread * scale * exists[None] * rng.standard_normal((d, r))
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

    def log_prob(self, v: Float[Array, "d r"], *, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        n_weights = v.shape[0] * n_live(v, live)
        distance = jnp.sum(self.covariance.distance(v - self.mean, live) + self.covariance.log_det(live))
        return -0.5 * (distance + n_weights * math.log(2.0 * math.pi))

    def entropy(self, live: Float[Array, " r"] | None = None) -> Float[Array, ""]:
        n_weights = self.mean.shape[0] * n_live(self.mean, live)
        return 0.5 * (n_weights * (1.0 + math.log(2.0 * math.pi)) + jnp.sum(self.covariance.log_det(live)))

    def row_noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> None:
        """None: rows are drawn from their moments."""


class PointMass(Posterior):
    """q(V) = δ(V − mean): a trained weight. `spread`: the initial sd of weights, as a share of the prior's.

    >>> mean, variance = vb.PointMass(jnp.array([[1.0, 2.0]])).moments(jnp.ones(2))
    >>> print(mean, variance)
    [3.] None
    """

    is_random: ClassVar[bool] = False
    mean: Built[Float[Array, "d r"]] = UNBUILT
    spread: float = eqx.field(static=True, default=1.0)

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "PointMass":
        mean = self.spread * initial_scale(prior, r, live) * rng.standard_normal((d, r))
        return PointMass(in_working_precision(mean if live is None else mean * live[None]))

    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        return jnp.asarray(self.mean)

    def moments(self, phi: Float[Array, "r *batch"]) -> tuple[Float[Array, "d *batch"], None]:
        return product(self.mean, phi), None

    def row_noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> None:
        """None: there is nothing to draw."""


class Dropout(Posterior):
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

    def row_noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> Bool[Array, "r *batch"]:
        return self.coins(key, (self.mean.shape[1], *batch))

    def moments(self, phi: Float[Array, "r *batch"]) -> tuple[Float[Array, "d *batch"], Float[Array, "d *batch"]]:
        """Mean and variance of V φ over the coins. f is not Gaussian here: draw it with `project`."""
        rate = self.rate.value
        return product(self.mean, phi), rate / (1.0 - rate) * product(self.mean**2, phi**2)

    def project(self, phi: Float[Array, "r *batch"], noise: Bool[Array, "r *batch"]) -> Float[Array, "d *batch"]:
        """A draw of V φ with coins of its own for every column."""
        return product(self.mean, jnp.where(noise, phi / (1.0 - self.rate.value), 0.0))


class Members(Posterior):
    """q(V) = (1/k) Σ_m δ(V − W ∘ F_m), F_m = Σ_i s_mi r_miᵀ: k point masses that share W, with factors of low rank.

    The paper's mixture of two point masses, of k: BatchEnsemble (Wen et al. 2020), TabM (Gorishniy et al. 2025). A
    member is one in all layers of a network: a draw of the network is one of k networks (`Network.members`).
    `rank` is the number of pairs (s, r) of a member; the first starts as the `spread` says, others at 0.

    - `spread="signs"`: entries ±1 at random. Each V_m then has the law of a separate network's start, and any two are
      uncorrelated.
    - a number: entries N(1, spread²), members that start beside each other; at 0 they are one.

    `scale` is the initial sd of the entries of W, as a share of the prior's.

    In training every row of a step meets as many members as there are draws (`n_draws`), each another one.

    >>> q = vb.distributions.Members(4).init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
    >>> q.member(0).shape, bool(jnp.allclose(abs(q.member(0)), abs(q.member(1))))
    ((2, 3), True)
    """

    k: int = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    spread: float | str = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    matrix: Built[Float[Array, "d r"]]
    left: Built[Float[Array, "k rank d"]]
    right: Built[Float[Array, "k rank r"]]

    def __init__(self, k: int = 8, rank: int = 1, *, spread: float | str = "signs", scale: float = 1.0):
        check_count(k=k, rank=rank)
        check_positive(scale=scale)
        if spread != "signs" and not (isinstance(spread, int | float) and 0.0 <= spread < math.inf):
            raise ValueError(f'`spread` must be "signs" or a finite number of at least 0, got {spread!r}.')
        self.k, self.rank, self.spread, self.scale = k, rank, spread, float(scale)
        self.matrix = self.left = self.right = UNBUILT

    def init(
        self, r: int, d: int, *, prior: Prior, live: np.ndarray | None = None, rng: np.random.Generator
    ) -> "Members":
        matrix = PointMass(spread=self.scale).init(r, d, prior=prior, live=live, rng=rng).mean
        left, right = (np.zeros((self.k, self.rank, size)) for size in (d, r))
        for each in (left, right):
            shape = self.k, each.shape[-1]
            signs = rng.choice([-1.0, 1.0], size=shape)
            each[:, 0] = signs if isinstance(self.spread, str) else 1.0 + self.spread * rng.standard_normal(shape)
        # with both at 0 no gradient would ever move them
        right[:, 1:] = rng.choice([-1.0, 1.0], size=right[:, 1:].shape)
        built = in_working_precision(left), in_working_precision(right)
        return eqx.tree_at(
            lambda q: (q.matrix, q.left, q.right), self, (matrix, *built), is_leaf=lambda leaf: leaf is None
        )

    @property
    def mean(self) -> Float[Array, "d r"]:
        return self.matrix * jnp.einsum("kid,kir->dr", self.left, self.right) / self.k

    def member(self, m: int | Int[Array, ""]) -> Float[Array, "d r"]:
        """V_m = W ∘ Σ_i s_mi r_miᵀ."""
        return self.matrix * jnp.einsum("id,ir->dr", self.left[m], self.right[m])

    def sample(self, key: PRNGKeyArray) -> Float[Array, "d r"]:
        return self.member(jr.randint(key, (), 0, self.k))

    def row_noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> Int[Array, "*batch"]:
        """Which member each column meets; a network gives all its layers the same."""
        return jr.randint(key, batch, 0, self.k)

    def project(self, phi: Float[Array, "r *batch"], noise: Int[Array, "*batch"]) -> Float[Array, "d *batch"]:
        """V_m φ = Σ_i s_mi ∘ (W (r_mi ∘ φ)), m of every column: W is read once for all of them."""
        left, right = (jnp.moveaxis(each[noise], (-2, -1), (0, 1)) for each in (self.left, self.right))
        return reduce(jnp.add, [s * product(self.matrix, r * phi) for s, r in zip(left, right, strict=True)])


@runtime_checkable
class LikelihoodLike(Protocol):
    """What tells a likelihood, which has no place among weights."""

    latent_per_target: int


def check_posterior(q: object) -> None:
    """Refuses a posterior that training would not read as it is written.

    >>> vb.distributions.check_posterior(vb.distributions.PointMass())
    >>> vb.distributions.check_posterior(None)
    Traceback (most recent call last):
        ...
    TypeError: `posterior` must be one of Gaussian, PointMass, Dropout, Members, or derived from ...
    """
    if isinstance(q, LikelihoodLike):
        raise TypeError(
            f"`posterior` must be a posterior of weights, got the likelihood {type(q).__name__}: vb.Gaussian is noise "
            "of y; the posterior of that name is vb.distributions.Gaussian."
        )
    check_kind("posterior", q, Posterior, "Gaussian, PointMass, Dropout, Members", may=("init",))
    if isinstance(q, Gaussian):
        base = next(kind for kind in (Full, Diagonal, LowRank) if isinstance(q.covariance, kind))
        if ignored := sorted(set(overridden(q.covariance, base)) - {"init"}):
            raise TypeError(
                f"`covariance` {type(q.covariance).__name__} has {', '.join(f'`{each}`' for each in ignored)} of its "
                f"own, which {base.__name__} has formulas with: a subclass may change `__init__` and `init` alone."
            )
