"""The last layer in closed form: where only its weights are uncertain, f is linear in V and the best q(V) is known.

With the features φ of all the nodes that an output adds side by side, f = Vφ + offset, V ~ N(0, s²), ε ~ N(0, σ²):
    Σ = (ΦᵀΦ/σ² + I/s²)⁻¹,  μ = Σ Φᵀ(y − offset)/σ².
The algebra is done in float64, the sums over rows where the features are, the rest on the host: in float32 the small
eigenvalues of ΦᵀΦ would drown in rounding.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import OptimizeResult, minimize_scalar

from vertebra.likelihoods import Gaussian as GaussianLikelihood
from vertebra.likelihoods import Likelihood
from vertebra.machine.devices import placed
from vertebra.machine.threads import Sums, added
from vertebra.networks.covariances import Full
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision, overridden
from vertebra.networks.posteriors import Gaussian
from vertebra.networks.priors import Normal
from vertebra.networks.stack import Stack

# Rows summed up at once: a round number; their features in double precision are some 64 MB at most.
CHUNK = 4096
# Eigenvectors of so many features take some seconds; `fit` does not start longer work unasked.
MAX_FEATURES = 2000


def has_closed_form(network: Network, likelihood: Likelihood) -> bool:
    """Whether the last layer has one: nothing else random, a full Gaussian q, a normal prior, Gaussian noise."""
    top = network.stacks[-1]
    if not isinstance(top, Stack):
        return False
    function = top.function
    return (
        network.is_linear_in_v
        and isinstance(function.posterior, Gaussian)
        and isinstance(function.posterior.covariance, Full)
        and isinstance(function.prior, Normal)
        and function.live is None
        and top.log_noise is None
        and network.skeleton.adds_runs
        and isinstance(likelihood, GaussianLikelihood)
        and not overridden(likelihood, GaussianLikelihood, ("log_prob", "expected_log_prob", "scale", "split"))
    )


def n_joint_features(network: Network) -> int:
    """The size of the joint posterior: the features of all the nodes that an output adds."""
    n_blocks, _, r = network.parts[-1].shape
    return r * n_blocks // len(network.skeleton.outputs)


def closed_form(
    network: Network, likelihood: GaussianLikelihood, x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[Network, GaussianLikelihood, float]:
    """The network with the best q(V) of its last layer, joint over the nodes of each output; the noise; the evidence.

    The noise of each target is moved to the maximum of the evidence, log N(y; offset, σ²I + s²ΦΦᵀ). With inducing
    points and residual="diagonal" that is Titsias' bound on it, less what the points leave out over 2σ².
    """
    starts = range(0, len(x), CHUNK)
    parts = ([each[start : start + CHUNK] for each in (x, y, weight)] for start in starts)
    return closed_form_of(network, likelihood, lambda work: added(lambda part: work(*part), parts, 1))[:3]


def closed_form_of(
    network: Network, likelihood: GaussianLikelihood, total: Callable[[Callable], Sums]
) -> tuple[Network, GaussianLikelihood, float, float]:
    """The same of rows wherever they lie, and how many there are.

    `total` adds up over all of them what a function makes of some: of their x, y and weights.
    """
    function = network.parts[-1].function
    prior_sd = float(_prior_sds(function.prior, function.posterior.mean.shape[2])[0])
    problems, n = _problems(network, total, prior_sd)
    log_scales = np.array([_best_log_scale(p, float(s)) for p, s in zip(problems, likelihood.log_scale, strict=True)])
    means, factors = zip(*(p.posterior(s) for p, s in zip(problems, log_scales, strict=True)), strict=True)
    evidence = sum(p.evidence(s) for p, s in zip(problems, log_scales, strict=True))

    dtype = function.posterior.mean.dtype
    outputs, d = len(network.skeleton.outputs), function.posterior.mean.shape[1]
    mean, factor = (placed(np.stack(a).reshape(outputs, d, *a[0].shape), dtype) for a in (means, factors))
    likelihood = eqx.tree_at(lambda l: l.log_scale, likelihood, placed(log_scales, dtype))  # noqa: E741
    return _with_top(network, mean, factor, Normal(prior_sd)), likelihood, evidence, n


def with_blank_top(network: Network) -> Network:
    """The network with a top layer of the closed form's shape, whose numbers are yet to be filled in."""
    if not has_closed_form(network, GaussianLikelihood()):
        raise ValueError("a joint top layer on a network that has none")
    outputs, r = len(network.skeleton.outputs), n_joint_features(network)
    d = network.n_outputs // outputs
    mean, factor = jnp.zeros((outputs, d, r)), jnp.broadcast_to(jnp.eye(r), (outputs, d, r, r))
    return _with_top(network, mean, factor, Normal(1.0))


class _Problem(NamedTuple):
    """Bayesian linear regression of one target, in the eigenbasis of ΦᵀΦ = Q diag(values) Qᵀ."""

    values: np.ndarray
    vectors: np.ndarray
    rotated: np.ndarray  # QᵀΦᵀ(y − offset)
    square: float  # ‖y − offset‖²
    left_out: float  # Σ K(x, x) − φᵀφ
    n: float
    prior_sd: float

    def evidence(self, log_scale: float) -> float:
        variance = math.exp(2.0 * log_scale)
        ridge = variance / self.prior_sd**2
        # log|σ²I + s²ΦΦᵀ| and (y − offset)ᵀ(σ²I + s²ΦΦᵀ)⁻¹(y − offset)
        log_det = self.n * math.log(variance) + np.sum(np.log1p(self.values / ridge))
        quadratic = (self.square - np.sum(self.rotated**2 / (self.values + ridge))) / variance
        return -0.5 * (self.n * math.log(2.0 * math.pi) + log_det + quadratic + self.left_out / variance)

    def posterior(self, log_scale: float) -> tuple[np.ndarray, np.ndarray]:
        """μ and an upper-triangular R with Rᵀ R = Σ."""
        variance = math.exp(2.0 * log_scale)
        precision = self.values / variance + self.prior_sd**-2
        mean = self.vectors @ (self.rotated / variance / precision)
        # Σ = S Sᵀ with S = Q P^{-1/2}; QR of Sᵀ gives R without squaring S.
        upper = np.asarray(np.linalg.qr((self.vectors * precision**-0.5).T, mode="r"))
        return mean, upper * np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]


def _problems(network: Network, total: Callable[[Callable], Sums], prior_sd: float) -> tuple[list[_Problem], float]:
    """One regression for each target, and how many rows there are."""
    outputs, d = len(network.skeleton.outputs), network.n_outputs // len(network.skeleton.outputs)

    def work(x, y, weight) -> Sums:
        features = _features(network, in_working_precision(x.T))
        with jax.enable_x64(True):
            sums = _sums(*features, y, weight.reshape(len(y), -1))
        return [np.asarray(each) for each in sums]

    gram, cross, square, left, mass, n = total(work)
    n_weights = len(mass)
    problems = []
    for target in range(outputs * d):
        block, column = target // d, min(target, n_weights - 1)
        values, vectors = np.linalg.eigh(gram[block if n_weights == 1 else target])
        rotated = vectors.T @ cross[block, target % d]
        problems.append(
            _Problem(
                np.maximum(values, 0.0),
                vectors,
                rotated,
                float(square[target]),
                float(left[block, column]),
                float(mass[column]),
                prior_sd,
            )
        )
    return problems, float(n[0])


@eqx.filter_jit
def _prior_sds(prior, r):
    return jax.vmap(lambda prior: prior.sd(r))(prior)


@eqx.filter_jit
def _features(network, x):
    return network.top_features(x)


@jax.jit
def _sums(phi, offset, left_out, y, weight):
    """Weighted sums over some rows: φφᵀ, φ(y − offset), (y − offset)², K(x, x) − φᵀφ, 1; and how many there are."""
    phi, offset, left_out, y, weight = (jnp.asarray(a, jnp.float64) for a in (phi, offset, left_out, y, weight))
    outputs, d, w = len(phi), y.shape[1] // len(phi), weight.T  # (1 or k, rows)
    residual = y.T - offset
    # One Gram matrix per output, or per target where targets are weighted apart.
    pairs = [(o, w[0]) for o in range(outputs)] if len(w) == 1 else [(i // d, w[i]) for i in range(outputs * d)]
    gram = jnp.stack([(phi[o] * each[None]) @ phi[o].T for o, each in pairs])
    cross = jnp.einsum("odb,orb->odr", (w * residual).reshape(outputs, d, -1), phi)
    n = jnp.count_nonzero(w.any(axis=0))[None].astype(jnp.float64)
    return gram, cross, jnp.sum(w * residual**2, axis=1), left_out @ w.T, w.sum(axis=1), n


def _best_log_scale(problem: _Problem, start: float) -> float:
    """log σ at the maximum of the evidence, sought a thousandfold (e⁷) either way of where it was."""
    limits = start - 7.0, start + 7.0
    result: OptimizeResult = minimize_scalar(lambda s: -problem.evidence(s), bounds=limits, method="bounded")
    return float(result.x)


@eqx.filter_jit
def _with_top(network, mean, factor, prior) -> Network:
    return network.with_joint_top(jax.vmap(_gaussian)(mean, factor), prior)


def _gaussian(mean, factor) -> Gaussian:
    return Gaussian(Full.of(factor), mean=mean)
