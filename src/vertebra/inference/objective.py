"""The ELBO of a minibatch: both stochastic approximations of the paper, rows and draws, are unbiased."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vertebra.likelihoods import Likelihood
from vertebra.networks.network import Network
from vertebra.networks.stack import Noise


class StepNoise(NamedTuple):
    """All the noise of one estimate of the ELBO: for the layers below the top, for the top layer, for the KL."""

    below: tuple[Noise, ...]
    top: Float[Array, "draws batch latent"]
    kl_key: PRNGKeyArray


def step_noise(network: Network, n_rows: int, *, key: PRNGKeyArray, n_draws: int = 1) -> StepNoise:
    """Noise for `n_draws` draws of f at each of `n_rows` rows."""
    below_key, top_key, kl_key = jr.split(key, 3)
    keys, k = jr.split(below_key, n_draws), network.n_members
    if k == 1:
        below = jax.vmap(lambda key: network.noise(key, (n_rows,)))(keys)
    else:
        # draw by draw a row meets one member after the other, from a random one on: unbiased, and exact over k draws
        first = jr.randint(jr.fold_in(below_key, n_draws), (n_rows,), 0, k)
        member = (first[None] + jnp.arange(n_draws)[:, None]) % k
        below = jax.vmap(lambda key, member: network.noise(key, (n_rows,), member=member))(keys, member)
    return StepNoise(below, jr.normal(top_key, (n_draws, n_rows, network.n_outputs)), kl_key)


def minibatch_elbo(
    network: Network,
    likelihood: Likelihood,
    x: Float[Array, "p batch"],
    y: Float[Array, "batch k"],
    weight: Float[Array, "batch j"],
    scale: float | Float[Array, ""],
    noise: StepNoise,
    kl_weight: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """scale · Σ_i weight_i E_{q(f_i)} log p(y_i | f_i) − kl_weight · KL(q(V) ‖ p(V)), with the rows of x as columns.

    A weight of None is 1.
    """
    counted = Counted(weight)
    y = counted.targets(y)

    def one_draw(below, top):
        mean, variance = network.conditional(x, below)
        variance = None if variance is None else counted.latents(variance.T)
        return likelihood.expected_log_prob(counted.latents(mean.T), variance, y, top)

    if len(noise.top) == 1:
        expected = one_draw(jax.tree.map(lambda leaf: leaf[0], noise.below), noise.top[0])
    else:
        expected = jnp.mean(jax.vmap(one_draw)(noise.below, noise.top), axis=0)
    kl = network.kl(key=noise.kl_key)
    return scale * counted.total(expected) - (kl if kl_weight is None else kl_weight * kl)


class Counted(NamedTuple):
    """What counts among rows: where a weight is 0, log p(y | f) is neither taken nor differentiated.

    0 · (−∞) is NaN, so it is not enough to weight padding, or a y outside the support, with 0. What does not count is
    put in the place of something that does before log p is taken, and left out after it: this keeps NaN out of the
    gradient, where `jnp.where` afterwards alone would not.
    """

    weight: Float[Array, "batch j"]

    def targets(self, y: Float[Array, "batch k"]) -> Float[Array, "batch k"]:
        """y; where a target does not count, that of the first row where it does."""
        first = jnp.argmax(self._live, axis=0)[None]
        stand_in = jnp.take_along_axis(y, jnp.broadcast_to(first, (1, y.shape[1])), axis=0)
        return jnp.where(self._live, y, stand_in)

    def latents(self, f: Float[Array, "*draws batch latent"]) -> Float[Array, "*draws batch latent"]:
        """f; where nothing of a row counts, that of the first row where something does."""
        rows = jnp.any(self._live, axis=1)
        stand_in = jax.lax.stop_gradient(f[..., jnp.argmax(rows), None, :])
        return jnp.where(rows.reshape((1,) * (f.ndim - 2) + (-1, 1)), f, stand_in)

    def total(self, each: Float[Array, "batch k"]) -> Float[Array, ""]:
        """Σ weight · each, of what counts."""
        return jnp.sum(jnp.where(self._live, self.weight * each, 0.0))

    @property
    def _live(self) -> Bool[Array, "batch j"]:
        return self.weight != 0.0
