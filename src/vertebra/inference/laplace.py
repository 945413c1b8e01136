"""Laplace's approximation with f linearised in its weights: q(V) = N(V*, Λ⁻¹), f(x) ≈ f(x; V*) + J(x)(V − V*).

Λ = Σ_i J_iᵀ H_i J_i − ∇² log p(V*), the generalised Gauss–Newton matrix and the prior's curvature, with J_i = ∂f_i/∂V
and H_i = −∂² log p(y_i | f_i)/∂f². The algebra is done in float64 on the host: Λ has small eigenvalues beside large.
"""

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from vertebra.inference.arguments import as_inputs
from vertebra.inference.density import LogDensity, log_density
from vertebra.likelihoods import Likelihood
from vertebra.machine.checks import check_count
from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision

# Rows whose slopes are held at once: a round number; of 2000 weights and one output they are 4 MB.
CHUNK = 512


class LinearisedLaplace(eqx.Module):
    """q(V) = N(V*, root rootᵀ) of some or all weights, f linearised about V*; `vb.sample` and `vb.moments` take it.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> posterior = vb.linearised_laplace(network, vb.Gaussian(0.1), x, x)
    >>> mean, variance = vb.moments(posterior, x, key=jr.key(1))
    >>> mean.shape, variance.shape
    ((50, 1), (50, 1))
    """

    density: LogDensity
    free: Int[Array, " free"]  # the entries of the vector that are uncertain
    root: Float[Array, "free free"]
    log_evidence: float = eqx.field(static=True)  # log p(y), by Laplace's method

    def moments(self, x: ArrayLike) -> tuple[Float[Array, "n outputs"], Float[Array, "n outputs"]]:
        """Mean and variance of f(x)."""
        parts = [(f, jnp.sum((slope @ self.root) ** 2, axis=-1)) for f, slope in self._linear(x)]
        mean, variance = zip(*parts, strict=True)
        return jnp.concatenate(mean), jnp.concatenate(variance)

    def sample(self, x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100) -> Float[Array, "draws n outputs"]:
        """Draws of f(x), linear in V."""
        check_count(n_draws=n_draws)
        moved = self.moves(key, n_draws)
        return jnp.concatenate([f[None] + jnp.einsum("now,sw->sno", slope, moved) for f, slope in self._linear(x)], 1)

    def moves(self, key: PRNGKeyArray, n_draws: int) -> Float[Array, "draws free"]:
        """V − V* of draws, of the weights that are free."""
        return jr.normal(fast(key), (n_draws, len(self.free))) @ self.root.T

    def networks(self, *, key: PRNGKeyArray, n_draws: int = 100) -> tuple[Network, ...]:
        """Networks with draws of V, not linearised: an ensemble."""
        moved = self.moves(key, n_draws)
        start = jnp.broadcast_to(self.density.start, (n_draws, len(self.density.start)))
        return self.density.networks(start.at[:, self.free].add(moved))

    def _linear(self, x: ArrayLike) -> Iterator[tuple[Array, Array]]:
        """f and its slopes, some rows at a time."""
        rows = in_working_precision(as_inputs(self.density.network, x))
        for start in range(0, len(rows), CHUNK):
            yield _slopes(self.density, self.free, rows[start : start + CHUNK])


def linearised_laplace(
    network: Network,
    likelihood: Likelihood,
    x: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    last_layer: bool = False,
) -> LinearisedLaplace:
    """Laplace's approximation about a trained network, f linearised: over all weights, or over the last layer's alone.

    V* are the weights' means: train them to the mode, as point masses. What stays fixed is as in `vb.log_density`.
    `log_evidence` compares priors, noises and skeletons. Exact where f is linear in V and the noise Gaussian.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 2), vb.mean_field([3, 1]), key=jr.key(0))
    >>> posterior = vb.linearised_laplace(network, vb.Gaussian(0.1), x, x, last_layer=True)
    >>> posterior.root.shape
    (3, 3)
    """
    density = log_density(network, likelihood, x, y, weight=weight)
    n_top = len(network.stacks[-1].parts)
    first = sum(math.prod(part.shape) for part in network.parts[:-n_top]) if last_layer else 0
    free = jnp.asarray(np.flatnonzero(np.asarray(density.places) >= first))
    precision = -np.asarray(_prior_curvature(density, free), np.float64)
    for start in range(0, density.y.shape[0], CHUNK):
        chunk = slice(start, start + CHUNK)
        _, slope = _slopes(density, free, density.x[:, chunk].T)
        bend = _bends(density, chunk)
        precision += np.einsum(
            "now,nop,npv->wv", *(np.asarray(a, np.float64) for a in (slope, bend, slope)), optimize=True
        )
    try:
        lower = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        raise ValueError(
            "log p(V) p(y | V) does not bend down in every direction at the weights' means: train them to a mode, and "
            "use a prior that bends, such as vb.Normal."
        ) from None
    # Λ = L Lᵀ, so that Λ⁻¹ = L⁻ᵀ L⁻¹
    root = np.linalg.inv(lower).T
    volume = 0.5 * len(free) * math.log(2.0 * math.pi) - float(np.sum(np.log(np.diagonal(lower))))
    # p(y) = ∫ p(y | V) p(V) dV over the weights that are free: the others are part of the model, and have no prior
    priors = density.log_priors(density.start)
    log_joint = density.log_likelihood(density.start) + sum(priors[-n_top:] if last_layer else priors)
    return LinearisedLaplace(density, free, in_working_precision(root), float(log_joint) + volume)


@eqx.filter_jit
def _slopes(density, free, rows):
    """f and J = ∂f/∂V of the weights that are free, row by row."""

    def at(moved, row):
        return density.unflatten(density.start.at[free].set(moved)).mean(row)

    here = density.start[free]
    return jax.vmap(lambda row: (at(here, row), jax.jacrev(at)(here, row)))(rows)


@eqx.filter_jit
def _prior_curvature(density, free):
    return jax.hessian(lambda moved: density.log_prior(density.start.at[free].set(moved)))(density.start[free])


def _bends(density: LogDensity, chunk: slice) -> Float[Array, "n latent latent"]:
    """H = −∂² log p(y | f)/∂f² of some rows, by their weights."""
    return _curvatures(density, density.x[:, chunk], density.y[chunk], density.weight[chunk])


@eqx.filter_jit
def _curvatures(density, x, y, weight):
    f = density.unflatten(density.start).mean(x).T
    each = lambda f, y, weight: -jnp.sum(weight * density.likelihood.log_prob(f, y))  # noqa: E731
    return jax.vmap(jax.hessian(each))(f, y, weight)
