"""What q says of f: the ELBO, draws, moments."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.inference.arguments import as_inputs, as_networks, as_rows
from vertebra.inference.laplace import LinearisedLaplace
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.likelihoods import Likelihood
from vertebra.machine.checks import check_count
from vertebra.machine.devices import cut, padded
from vertebra.networks.keys import fast, fast_split
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision
from vertebra.networks.stack import pile


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
    over the top layer the expectation is exact, by quadrature, or from a draw, as the likelihood allows. It is compiled
    once for a shape of rows and a kind of network; other values, keys and `n` compile nothing.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> round(float(vb.elbo(network, vb.Gaussian(1.0), x, x, key=jr.key(1))))
    -54
    """
    rows, targets, each = as_rows(network, likelihood, x, y, weight)
    check_count(n_draws=n_draws, **({} if n is None else {"n": n}))
    scale = in_working_precision(1.0 if n is None else n / len(rows))
    columns, targets, each = (in_working_precision(array) for array in (rows.T, targets, each))
    return _elbo(network, likelihood, columns, targets, each, scale, key, n_draws)


@eqx.filter_jit
def _elbo(network, likelihood, x, y, weight, scale, key, n_draws):
    noise = step_noise(network, x.shape[1], key=fast(key), n_draws=n_draws)
    return minibatch_elbo(network, likelihood, x, y, weight, scale, noise)


def sample(
    network: Network | Sequence[Network] | LinearisedLaplace, x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> Float[Array, "draws n outputs"]:
    """Draws of f(x): each is one function of the posterior, at all rows. An ensemble shares the draws out evenly.

    Networks at draws of a sampler (`LogDensity.networks`) are an ensemble too.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> vb.sample(network, x, key=jr.key(1), n_draws=10).shape
    (10, 50, 1)
    """
    if isinstance(network, LinearisedLaplace):
        return network.sample(x, key=key, n_draws=n_draws)
    networks = as_networks(network)
    check_count(n_draws=n_draws)
    rows, n = padded(as_inputs(networks[0], x))
    keys = fast_split(key, n_draws)
    if len(networks) == 1:
        return cut(_sample(networks[0], rows, keys), n, axis=1)
    if len(networks) > n_draws:  # evenly among the draws of a chain, not its beginning
        networks = [networks[i] for i in np.linspace(0, len(networks) - 1, n_draws).round().astype(int)]
    which = np.sort(np.arange(n_draws) % len(networks))
    order = np.argsort(np.arange(n_draws) % len(networks), kind="stable")
    return cut(_sample_of(pile(networks), rows, keys[order], jnp.asarray(which)), n, axis=1)


@eqx.filter_jit
def _sample(network, x, keys):
    return jax.lax.map(lambda key: network(x.T, key=key).T, keys)


@eqx.filter_jit
def _sample_of(members, x, keys, which):
    """Draws of the members that `which` names, one at a time."""
    one = lambda key, i: jax.tree.map(lambda leaf: leaf[i], members)(x.T, key=key).T  # noqa: E731
    return jax.lax.map(lambda given: one(*given), (keys, which))


def moments(
    network: Network | Sequence[Network] | LinearisedLaplace, x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> tuple[Float[Array, "n outputs"], Float[Array, "n outputs"]]:
    """Mean and variance of f(x) under q: exact where only the top layer is random, else from draws of those below.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> mean, variance = vb.moments(network, x, key=jr.key(1))
    >>> mean.shape, variance.shape
    ((50, 1), (50, 1))
    """
    if isinstance(network, LinearisedLaplace):
        return network.moments(x)
    networks = as_networks(network)
    check_count(n_draws=n_draws)
    rows, n = padded(as_inputs(networks[0], x))
    is_exact = not any(stack.is_random for stack in networks[0].stacks[:-1]) and networks[0].has_top_moments
    keys = fast_split(key, 1 if is_exact else n_draws)
    is_one = len(networks) == 1
    mean, variance = (_moments if is_one else _moments_of)(networks[0] if is_one else pile(networks), rows, keys)
    return cut(mean, n), cut(variance, n)


@eqx.filter_jit
def _moments(network, x, keys):
    return _together(*_draws_of(network, x, keys))


def _together(means, variances):
    # Var f = E Var[f | below] + Var E[f | below]
    return jnp.mean(means, axis=0), jnp.mean(variances, axis=0) + jnp.var(means, axis=0)


def _draws_of(network, x, keys):
    def one_draw(key):
        mean, variance = network.conditional(x.T, network.noise(key, x.shape[:1]))
        return mean.T, jnp.zeros_like(mean.T) if variance is None else variance.T

    return jax.lax.map(one_draw, keys)


@eqx.filter_jit
def _moments_of(members, x, keys):
    each = jax.lax.map(lambda member: _draws_of(member, x, keys), members)
    return _together(*(part.reshape(-1, *part.shape[2:]) for part in each))
