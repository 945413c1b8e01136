"""The three blocks of the paper: function block FB, random-feature block RB, inducing-point block IPB.

A block is a recipe until `init` gives it its arrays, drawn with NumPy so that nothing need be compiled for it. It takes
columns: x of shape (n_inputs,) for one row of data, or (n_inputs, batch) for many, and gives (r,) or (r, batch). Row j
of a weight matrix is the paper's w_j or v_j.
"""

import math
from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from sklearn.cluster import KMeans

from vertebra.networks.activations import Activation, as_activation
from vertebra.networks.divergence import check_pair, kl
from vertebra.networks.features import product
from vertebra.networks.kernels import PRECISE, RBF, Dual, Kernel, Matern, Stationary, log_positive
from vertebra.networks.parameters import UNBUILT, Built, Fixed, in_working_precision, is_traced, overridden
from vertebra.networks.posteriors import Posterior
from vertebra.networks.priors import Prior, check_live, only


class FunctionBlock(eqx.Module):
    """FB(P_v, r, d): f_j = φᵀv_j (+ b_j), j = 1..d, with Bayesian weights v_j and an optional bias parameter b.

    The bias is a plain parameter with a flat prior. `live` marks the features that exist where a layer's nodes have
    different numbers of parents and the shorter ones are padded with zeros.

    >>> block = vb.FunctionBlock(vb.PointMass(), vb.Normal(), r=3, d=2, rng=np.random.default_rng(0))
    >>> block(jnp.ones(3), key=jr.key(0)).shape
    (2,)
    """

    posterior: Posterior
    prior: Prior
    bias: Float[Array, " d"] | None
    live: Fixed | None

    def __init__(
        self,
        posterior: Posterior,
        prior: Prior,
        r: int,
        d: int,
        *,
        bias: bool = False,
        live: np.ndarray | None = None,
        rng: np.random.Generator,
    ):
        check_pair(posterior, prior)
        if live is not None:
            has_density = bool(overridden(posterior, Posterior, ("log_prob",)))
            check_live("posterior", posterior, ("init", "log_prob") if has_density else ("init",))
            check_live("prior", prior, ("sample", "log_prob"))
        self.posterior = posterior.init(r, d, prior=prior, rng=rng, **only(live))
        self.prior = prior
        self.bias = in_working_precision(np.zeros(d)) if bias else None
        self.live = None if live is None else Fixed(in_working_precision(live))

    def __call__(self, phi: Float[Array, "r *batch"], *, key: PRNGKeyArray) -> Float[Array, "d *batch"]:
        """f for one draw of V, the same for every column."""
        return self.shift(product(self.posterior.sample(key), phi))

    def shift(self, f: Float[Array, "d *batch"]) -> Float[Array, "d *batch"]:
        """f + b."""
        return f if self.bias is None else f + self.bias.reshape(-1, *(1,) * (f.ndim - 1))

    def kl(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """KL(q(V) ‖ p(V))."""
        return kl(self.posterior, self.prior, live=None if self.live is None else self.live.value, key=key)


@runtime_checkable
class FeatureBlock(Protocol):
    """What a layer asks of a feature block: RB, IPB, or one of your own."""

    @property
    def r(self) -> int:
        """How many features it gives; `init` may set it, where it hangs on the inputs."""
        ...

    @property
    def residual(self) -> str | None:
        """With "diagonal" there is also `left_out(x, phi)`, a variance that the layer adds."""

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "FeatureBlock":
        """The block for that many inputs, with its arrays."""
        ...

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        """φ from columns x."""
        ...


@runtime_checkable
class BlockWithDual(FeatureBlock, Protocol):
    """A feature block that knows the kernel its features approach."""

    def dual(self, n_inputs: int) -> Kernel:
        """K(x, z) = E φ(x)ᵀφ(z)."""
        ...


class RandomFeatureBlock(eqx.Module):
    """RB(P_w, d, r, σ_K): φ_j = amplitude · σ_K(xᵀw_j + b_j)/√r, with the draw of w never trained.

    With an activation, w_j = ε_j/lengthscale, ε_j ~ N(0, I): the paper's ρN(0, I) with ρ = 1/lengthscale, which is
    1/√n_inputs unless given; `bias=True` adds b_j ~ N(0, 1). With a stationary `kernel` instead, w_j comes from its
    spectral density (Gaussian for RBF, Student-t for Matérn, `spectral_draws` for one of your own), and φ holds r/2
    cosines and r/2 sines, so that E φ(x)ᵀφ(x') = K(x, x'). Length scales and amplitude are trained unless
    `learn=False`; the base draw ε stays.
    Behind another block in a row give `lengthscale=1`: those features are scaled by 1/√r already.
    `orthogonal=True` draws the ε_j orthogonal in sets of n_inputs, each still N(0, I) by itself: a smaller error of K̂.

    >>> block = vb.RandomFeatureBlock(2000, kernel=vb.RBF(1.0)).init(1, rng=np.random.default_rng(0))
    >>> phi = block(jnp.array([[0.0, 1.0]]))
    >>> print((phi.T @ phi).round(1))  # exp(−½) is 0.61
    [[1.  0.6]
     [0.6 1. ]]
    """

    r: int = eqx.field(static=True)
    activation: str | Activation = eqx.field(static=True)
    # Degrees of freedom of the spectral density, 2ν for Matérn and ∞ for RBF; None for features of an activation.
    degrees: float | None = eqx.field(static=True)
    bias: bool = eqx.field(static=True)
    orthogonal: bool = eqx.field(static=True)
    learn: bool = eqx.field(static=True)
    ard: bool = eqx.field(static=True)
    log_lengthscale: Built[Float[Array, "*n_inputs"] | Fixed]
    log_amplitude: Float[Array, ""] | Fixed
    base: Built[Fixed]
    offset: Fixed | None
    # A kernel that has spectral draws of its own, its parameters held; `degrees` then says nothing.
    own: Kernel | None = eqx.field(repr=False)

    residual = None

    def __init__(
        self,
        r: int,
        activation: str | Activation = "relu",
        *,
        kernel: Kernel | None = None,
        lengthscale: ArrayLike | None = None,
        amplitude: ArrayLike = 1.0,
        bias: bool = False,
        orthogonal: bool = False,
        learn: bool = True,
    ):
        if r < 1:
            raise ValueError(f"`r` must be at least 1, got {r!r}.")
        as_activation(activation)
        self.r, self.activation, self.degrees = r, activation, None
        self.log_lengthscale = UNBUILT if lengthscale is None else log_positive("lengthscale", lengthscale)
        self.log_amplitude = log_positive("amplitude", amplitude)
        if kernel is not None:
            if lengthscale is not None or is_traced(amplitude) or amplitude != 1.0 or bias:
                raise ValueError(
                    "`lengthscale`, `amplitude` and `bias` are for activations: a `kernel` brings its own."
                )
            kernel = _stationary(kernel, orthogonal)
            if r % 2:
                raise ValueError(f"`r` must be even with a `kernel`, half cosines and half sines, got {r}.")
            self.degrees = 2.0 * kernel.nu if isinstance(kernel, Matern) else math.inf
            self.log_lengthscale, self.log_amplitude = kernel.log_lengthscale, 0.5 * kernel.log_variance
        self.bias, self.orthogonal, self.learn = bias, orthogonal, learn
        self.ard = kernel is None or kernel.ard  # pyright: ignore[reportAttributeAccessIssue]
        self.base, self.offset = UNBUILT, None
        self.own = kernel if kernel is not None and kernel.has_spectral_draws else None

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "RandomFeatureBlock":
        """The block for that many inputs, with w (and b) drawn."""
        n_draws = self.r if self.degrees is None else self.r // 2
        base = self._draws(n_draws, n_inputs, rng)
        is_left_out = self.log_lengthscale is None
        # NumPy compiles nothing; what is traced, as where `build` is differentiated, has no numbers for it
        xp = jnp if is_traced(self.log_lengthscale, self.log_amplitude) else np
        log_lengthscale = xp.asarray(0.5 * math.log(n_inputs) if is_left_out else self.log_lengthscale)
        if log_lengthscale.ndim == 1 and len(log_lengthscale) != n_inputs:
            raise ValueError(f"`lengthscale` must have one entry per input, {n_inputs}, got {len(log_lengthscale)}.")
        hold = (lambda array: array) if self.learn else Fixed
        return eqx.tree_at(
            lambda block: (block.own, block.base, block.offset, block.log_lengthscale, block.log_amplitude),
            self,
            (
                None if self.own is None else jax.tree.map(Fixed, self.own),
                Fixed(in_working_precision(base)),
                Fixed(in_working_precision(rng.standard_normal(n_draws))) if self.bias else None,
                hold(in_working_precision(xp.broadcast_to(log_lengthscale, (n_inputs,) if self.ard else ()))),
                hold(in_working_precision(xp.asarray(self.log_amplitude))),
            ),
            is_leaf=lambda leaf: leaf is None,
        )

    def _draws(self, n_draws: int, n_inputs: int, rng: np.random.Generator) -> Float[np.ndarray, "n_draws n_inputs"]:
        """ε_j: normal, Student-t, or what a kernel of one's own draws."""
        if self.own is not None:
            base = np.asarray(self.own.spectral_draws(rng, n_draws, n_inputs))
            if base.shape != (n_draws, n_inputs):
                raise ValueError(
                    f"`spectral_draws` of {type(self.own).__name__} must have the shape {(n_draws, n_inputs)}: draws, "
                    f"inputs; got {base.shape}."
                )
            return base
        base = (_orthogonal if self.orthogonal else np.random.Generator.standard_normal)(rng, (n_draws, n_inputs))
        if self.degrees is not None and math.isfinite(self.degrees):
            # Student-t: a normal over √(χ²_k/k)
            base = base / np.sqrt(rng.chisquare(self.degrees, (n_draws, 1)) / self.degrees)
        return base

    def dual(self, n_inputs: int) -> Kernel:
        """K(x, z) = E_w φ(x)ᵀφ(z), which K̂ approaches as r grows (Theorems 0 and 1)."""
        lengthscale = None if self.log_lengthscale is None else jnp.exp(_value(self.log_lengthscale))
        variance = jnp.exp(2.0 * _value(self.log_amplitude))
        if self.own is not None:
            plain = jax.tree.map(_value, self.own, is_leaf=lambda leaf: isinstance(leaf, Fixed))
            kernel = eqx.tree_at(
                lambda kernel: (kernel.log_lengthscale, kernel.log_variance),
                plain,
                (None if lengthscale is None else jnp.log(lengthscale), jnp.log(variance)),
                is_leaf=lambda leaf: leaf is None,
            )
        elif self.degrees is None:
            kernel = Dual(self.activation, lengthscale, variance, bias=float(self.bias), ard=self.ard)
        elif math.isinf(self.degrees):
            kernel = RBF(lengthscale, variance, ard=self.ard)
        else:
            kernel = Matern(0.5 * self.degrees, lengthscale, variance, ard=self.ard)
        return kernel.init(n_inputs)

    @property
    def w(self) -> Float[Array, "draws n_inputs"]:
        """w_j = ε_j/lengthscale."""
        return self.base.value / jnp.exp(_value(self.log_lengthscale)).reshape(1, -1)

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        # xᵀw_j (+ b_j)
        angle = product(self.w, x)
        if self.offset is not None:
            angle = angle + self.offset.value.reshape(-1, *(1,) * (angle.ndim - 1))
        if self.degrees is None:
            features = as_activation(self.activation)(angle)
        else:
            features = math.sqrt(2.0) * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])
        return jnp.exp(_value(self.log_amplitude)) / math.sqrt(self.r) * features


class InducingPointBlock(eqx.Module):
    """IPB(K, Z, r): φ(x) = K(Z, Z)^{-1/2} K(Z, x), for any kernel K and r trainable points Z.

    The root is a Cholesky factor. The symmetric root of the paper is a rotation of it, which changes neither K̂ = φᵀφ
    nor anything else where v ~ N(0, I) and Σ is full. `residual="diagonal"` lets the layer above add the variance
    K(x, x) − φᵀφ that r points leave out (Theorem 3); None drops it. `jitter` is added to the diagonal of K(Z, Z)
    relative to its mean, 1e-5 in float32 and 1e-9 in float64 unless given, and raised tenfold while the factor fails.

    >>> z = np.array([[0.0], [1.0]])
    >>> block = vb.InducingPointBlock(2, vb.RBF(1.0)).init(1, rng=np.random.default_rng(0), z=z)
    >>> phi = block(jnp.asarray(z.T))
    >>> print((phi.T @ phi).round(1))  # at the points K itself
    [[1.  0.6]
     [0.6 1. ]]
    """

    r: int = eqx.field(static=True)
    kernel: Kernel
    residual: str | None = eqx.field(static=True)
    jitter: float | None = eqx.field(static=True)
    z: Built[Float[Array, "r n_inputs"]]

    def __init__(
        self,
        r: int,
        kernel: Kernel | None = None,
        *,
        residual: str | None = None,
        jitter: float | None = None,
        z: Float[Array, "r n_inputs"] | None = None,
    ):
        if r < 1:
            raise ValueError(f"`r` must be at least 1, got {r!r}.")
        if residual not in (None, "diagonal"):
            raise ValueError(f'`residual` must be None or "diagonal", got {residual!r}.')
        if jitter is not None and not jitter > 0.0:
            raise ValueError(f"`jitter` must be positive, got {jitter!r}.")
        self.r = r
        self.kernel = RBF() if kernel is None else kernel
        self.residual = residual
        self.jitter = jitter
        self.z = UNBUILT if z is None else z

    def init(self, n_inputs: int, *, rng: np.random.Generator, z: ArrayLike | None = None) -> "InducingPointBlock":
        """The block for that many inputs, with its points at `z`, or else drawn from N(0, I)."""
        z = self.z if z is None else z
        z = rng.standard_normal((self.r, n_inputs)) if z is None else np.asarray(z)
        if z.shape != (self.r, n_inputs):
            raise ValueError(f"`z` must have the shape {(self.r, n_inputs)}, got {z.shape}.")
        if not np.isfinite(z).all():
            raise ValueError("`z` must be finite, got missing or infinite values.")
        own = lambda leaf: in_working_precision(leaf if is_traced(leaf) else np.asarray(leaf))  # noqa: E731
        kernel = jax.tree.map(own, self.kernel.init(n_inputs))
        return eqx.tree_at(
            lambda block: (block.kernel, block.z),
            self,
            (kernel, in_working_precision(z)),
            is_leaf=lambda leaf: leaf is None,
        )

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        return product(self.whitener(), self.kernel.columns(self.z, x), PRECISE)

    def dual(self, n_inputs: int) -> Kernel:
        """K itself, which φᵀφ approaches as the points fill the space."""
        return self.kernel.init(n_inputs)

    def whitener(self) -> Float[Array, "r r"]:
        """L⁻¹ with L Lᵀ = K(Z, Z) + jitter."""
        gram = self.kernel.columns(self.z, self.z.T)
        jitter = self.jitter
        if jitter is None:
            jitter = 1e-9 if gram.dtype == jnp.float64 else 1e-5
        return _inverse_cholesky(gram, jax.lax.stop_gradient(jitter * jnp.mean(jnp.diagonal(gram))))

    def left_out(self, x: Float[Array, "n_inputs *batch"], phi: Float[Array, "r *batch"]) -> Float[Array, "*batch"]:
        """K(x, x) − φᵀφ, never below 0: the prior variance that r points cannot express."""
        return jnp.maximum(self.kernel.diagonal(x) - jnp.sum(phi**2, axis=0), 0.0)


def _stationary(kernel: Kernel, orthogonal: bool) -> Stationary:
    """The kernel, if its spectral density is known."""
    name = type(kernel).__name__
    if isinstance(kernel, Stationary) and kernel.has_spectral_draws:
        if orthogonal:
            raise ValueError(f"`orthogonal` is for draws that are normal: leave it out with the `kernel` {name}.")
        return kernel
    if not isinstance(kernel, RBF | Matern):
        raise ValueError(
            "`kernel` must be RBF or Matern, which have spectral draws, or a vb.kernels.Stationary of your own with "
            f"`spectral_draws`, got {name}."
        )
    base = RBF if isinstance(kernel, RBF) else Matern
    if changed := overridden(kernel, base, ("__call__", "correlation")):
        raise ValueError(
            f"`kernel` {name} has a `{changed[0]}` of its own, and its spectral draws would be those of "
            f"{base.__name__}: give it `spectral_draws`, or use an InducingPointBlock, which takes any kernel."
        )
    return kernel


def spread_points(rows: np.ndarray, r: int, *, rng: np.random.Generator) -> np.ndarray:
    """r points spread over the rows by k-means; where there are fewer distinct rows, repeats with a little noise."""
    distinct = np.unique(rows, axis=0)
    if len(distinct) > r:
        seed = int(rng.integers(2**31))
        # one start and few steps: training moves the points on
        places = KMeans(r, n_init=1, max_iter=20, random_state=seed)  # pyright: ignore[reportArgumentType]
        return places.fit(rows).cluster_centers_
    repeats = distinct[rng.integers(len(distinct), size=r - len(distinct))]
    spread = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    # a tenth of an input's sd, a round number: K(Z, Z) of equal points has no factor
    return np.concatenate([distinct, repeats + 0.1 * spread * rng.standard_normal(repeats.shape)])


def _value(parameter: Array | Fixed) -> Array:
    return parameter.value if isinstance(parameter, Fixed) else parameter


def _orthogonal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Rows orthogonal within sets of n_inputs, each of a χ-distributed length: every row is N(0, I) by itself."""
    n_draws, n_inputs = shape
    n_sets = -(-n_draws // n_inputs)
    frames = np.linalg.qr(rng.standard_normal((n_sets, n_inputs, n_inputs)))[0]
    lengths = np.linalg.norm(rng.standard_normal(shape), axis=1, keepdims=True)
    # QR fixes the signs of R's diagonal: a random sign makes each row's direction uniform.
    signs = rng.choice([-1.0, 1.0], size=(n_draws, 1))
    return signs * lengths * frames.reshape(n_sets * n_inputs, n_inputs)[:n_draws]


@jax.custom_jvp
def _inverse_cholesky(matrix: Float[Array, "r r"], jitter: Float[Array, ""]) -> Float[Array, "r r"]:
    """W = L⁻¹ for the Cholesky factor of matrix + jitter I, the jitter raised tenfold until it exists."""
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def attempt(state):
        power, _ = state
        return power + 1, jnp.linalg.cholesky(matrix + 10.0**power * jitter * eye)

    def failed(state):
        power, factor = state
        return jnp.isnan(factor[-1, -1]) & (power < 7)  # at most 10⁶ times the jitter

    return solve_triangular(jax.lax.while_loop(failed, attempt, attempt((0, matrix)))[1], eye, lower=True)


@_inverse_cholesky.defjvp
def _(primals, tangents):
    # dL = L Φ(W dA Wᵀ), where Φ takes the lower triangle and halves the diagonal; so dW = −W dL W = −Φ(W dA Wᵀ) W.
    # Products only: no more triangular systems to solve.
    w = _inverse_cholesky(*primals)
    eye = jnp.eye(w.shape[0], dtype=w.dtype)
    multiply = partial(jnp.matmul, precision=PRECISE)
    inner = multiply(multiply(w, tangents[0]), w.T)
    return w, -multiply(jnp.tril(inner) * (1.0 - 0.5 * eye), w)
