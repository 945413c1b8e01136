"""What q says of f: the ELBO, draws, moments."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.inference.arguments import as_inputs, as_networks, as_rows
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.likelihoods import Likelihood
from vertebra.machine.checks import check_count
from vertebra.machine.devices import cut, padded
from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision


def elbo(
    network: Network,
    likelihood: Likelihood,
    x: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
    n: int | None = None,
    weight: ArrayLike | None = None,
    n_draws: int = 1,
) -> Float[Array, ""]:
    """ELBO = Σ_i E_{q(f_i)} log p(y_i | f_i) − KL(q(V) ‖ p(V)), estimated without bias from a minibatch.

    The rows given stand for `n` rows (all there are, unless said). Below the top layer every row has draws of its own;
    over the top layer the expectation is exact, by quadrature, or from a draw, as the likelihood allows.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> round(float(vb.elbo(network, vb.Gaussian(1.0), x, x, key=jr.key(1))))
    -54
    """
    rows, targets, each = as_rows(network, likelihood, x, y, weight)
    check_count(n_draws=n_draws, **({} if n is None else {"n": n}))
    scale = 1.0 if n is None else n / len(rows)
    noise = step_noise(network, len(rows), key=fast(key), n_draws=n_draws)
    return minibatch_elbo(
        network,
        likelihood,
        in_working_precision(rows).T,
        in_working_precision(targets),
        in_working_precision(each),
        scale,
        noise,
    )


def sample(
    network: Network | Sequence[Network], x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> Float[Array, "draws n outputs"]:
    """Draws of f(x): each is one function of the posterior, at all rows. An ensemble shares the draws out evenly.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> vb.sample(network, x, key=jr.key(1), n_draws=10).shape
    (10, 50, 1)
    """
    networks = as_networks(network)
    check_count(n_draws=n_draws)
    rows, n = padded(np.asarray(as_inputs(networks[0], x)))
    keys = jr.split(fast(key), n_draws)
    draws = [_sample(member, rows, keys[i :: len(networks)]) for i, member in enumerate(networks[:n_draws])]
    return cut(jnp.concatenate(draws), n, axis=1)


@eqx.filter_jit
def _sample(network, x, keys):
    return jax.lax.map(lambda key: network(x.T, key=key).T, keys)


def moments(
    network: Network | Sequence[Network], x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> tuple[Float[Array, "n outputs"], Float[Array, "n outputs"]]:
    """Mean and variance of f(x) under q: exact where only the top layer is random, else from draws of those below.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> mean, variance = vb.moments(network, x, key=jr.key(1))
    >>> mean.shape, variance.shape
    ((50, 1), (50, 1))
    """
    networks = as_networks(network)
    check_count(n_draws=n_draws)
    rows, n = padded(np.asarray(as_inputs(networks[0], x)))
    key = fast(key)
    parts = [_moments(member, rows, jr.split(key, 1 if member.is_linear_in_v else n_draws)) for member in networks]
    means, variances = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    # Var f = E Var[f | below] + Var E[f | below]
    return cut(jnp.mean(means, axis=0), n), cut(jnp.mean(variances, axis=0) + jnp.var(means, axis=0), n)


@eqx.filter_jit
def _moments(network, x, keys):
    def one_draw(key):
        mean, variance = network.conditional(x.T, network.noise(key, x.shape[:1]))
        return mean.T, jnp.zeros_like(mean.T) if variance is None else variance.T

    return jax.lax.map(one_draw, keys)
