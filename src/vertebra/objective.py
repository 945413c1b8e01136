"""The ELBO of a minibatch: both stochastic approximations of the paper, rows and draws, are unbiased."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.likelihoods import Likelihood
from vertebra.network import Network, Noise


class StepNoise(NamedTuple):
    """All the noise of one estimate of the ELBO: for the layers below the top, for the top layer, for the KL."""

    below: tuple[Noise, ...]
    top: Float[Array, "draws batch latent"]
    kl_key: PRNGKeyArray


def step_noise(network: Network, n_rows: int, *, key: PRNGKeyArray, n_draws: int = 1) -> StepNoise:
    """Noise for `n_draws` draws of f at each of `n_rows` rows."""
    below_key, top_key, kl_key = jr.split(key, 3)
    below = jax.vmap(lambda key: network.noise(key, (n_rows,)))(jr.split(below_key, n_draws))
    return StepNoise(below, jr.normal(top_key, (n_draws, n_rows, network.n_outputs)), kl_key)


def minibatch_elbo(
    network: Network,
    likelihood: Likelihood,
    x: Float[Array, "p batch"],
    y: Float[Array, "batch k"],
    weight: Float[Array, "batch j"],
    scale: float | Float[Array, ""],
    noise: StepNoise,
) -> Float[Array, ""]:
    """scale · Σ_i weight_i E_{q(f_i)} log p(y_i | f_i) − KL(q(V) ‖ p(V)), with the rows of x as columns."""

    def one_draw(below, top):
        mean, variance = network.conditional(x, below)
        return likelihood.expected_log_prob(mean.T, None if variance is None else variance.T, y, top)

    if len(noise.top) == 1:
        expected = one_draw(jax.tree.map(lambda leaf: leaf[0], noise.below), noise.top[0])
    else:
        expected = jnp.mean(jax.vmap(one_draw)(noise.below, noise.top), axis=0)
    return scale * jnp.sum(weight * expected) - network.kl(key=noise.kl_key)
