"""The ELBO of a minibatch: both stochastic approximations of the paper, rows and draws, are unbiased."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.likelihoods import Likelihood
from vertebra.network import Network


def minibatch_elbo(
    network: Network,
    likelihood: Likelihood,
    x: Float[Array, "p batch"],
    y: Float[Array, "batch k"],
    weight: Float[Array, "batch j"],
    scale: float | Float[Array, ""],
    *,
    key: PRNGKeyArray,
    n_draws: int = 1,
) -> Float[Array, ""]:
    """scale · Σ_i weight_i E_{q(f_i)} log p(y_i | f_i) − KL(q(V) ‖ p(V)), with the rows of x as columns."""
    noise_key, kl_key = jr.split(key)
    expected = expected_log_prob(network, likelihood, x, y, key=noise_key, n_draws=n_draws)
    return scale * jnp.sum(weight * expected) - network.kl(key=kl_key)


def expected_log_prob(
    network: Network,
    likelihood: Likelihood,
    x: Float[Array, "p batch"],
    y: Float[Array, "batch k"],
    *,
    key: PRNGKeyArray,
    n_draws: int = 1,
) -> Float[Array, "batch k"]:
    """E_{q(f_i)} log p(y_i | f_i) of every row, averaged over draws of the layers below the top."""

    def one_draw(key):
        below_key, top_key = jr.split(key)
        # Without the barrier XLA makes the noise anew wherever it is used, in the backward pass as well.
        noise = jax.lax.optimization_barrier(network.noise(below_key, x.shape[1:]))
        mean, variance = network.conditional(x, noise)
        top = jr.normal(top_key, mean.shape, mean.dtype).T
        return likelihood.expected_log_prob(mean.T, None if variance is None else variance.T, y, top)

    if n_draws == 1:
        return one_draw(key)
    return jnp.mean(jax.vmap(one_draw)(jr.split(key, n_draws)), axis=0)
