"""AddNN's own way to its structure: a group lasso on the first layer, by proximal steps that end in exact zeros.

Group (j, i) is what leaves input i into sub-network j. Adam with one second moment per group makes the step of a group
a number, and the proximal map of the penalty under that preconditioner is then the soft threshold of the group's norm
by step · penalty. A threshold that does not know the step, after a plain Adam step, leaves the layer dense.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.machine.devices import apart, everywhere, home, mesh_for
from vertebra.networks.build import build
from vertebra.networks.keys import fast
from vertebra.networks.layer import Layer
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision, trainable
from vertebra.networks.posteriors import PointMass
from vertebra.networks.priors import GroupLasso
from vertebra.networks.skeleton import additive
from vertebra.terms.term import Term, maximal

PENALTIES = tuple(float(p) for p in np.geomspace(0.05, 5e-4, 8))
HELD_OUT = 0.2
# A sub-network that moves the prediction by less than this share of its sd is pruned.
NEGLIGIBLE = 0.01
# Minibatches keep kicking groups off zero: the last part of the steps uses all rows.
FULL_SHARE, BATCH_SIZE = 0.2, 512


class Path(NamedTuple):
    """Networks along the penalties, strongest first, and the choice among them."""

    penalties: Float[np.ndarray, " k"]
    norms: Float[np.ndarray, "k s p"]  # of the groups: exactly 0 where a sub-network does not read an input
    networks: tuple[Network, ...]
    chosen: int

    @property
    def network(self) -> Network:
        return self.networks[self.chosen]


def group_lasso_path(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, " n"],
    *,
    key: PRNGKeyArray,
    n_subnetworks: int = 10,
    width: int = 8,
    penalties: Sequence[float] = PENALTIES,
    n_steps: int = 2000,
    learning_rate: float = 1e-2,
) -> Path:
    """Fits standardised x and y along a path of penalties, all in one program, and again with adaptive weights.

    The first pass tells which groups matter; in the second a group's penalty is divided by its norm in the first, so
    that what is real is hardly shrunk and what is not goes to zero. The choice is the strongest penalty whose held-out
    loss lies within one standard error of the best.
    """
    build_key, order_key, run_key = jr.split(key, 3)
    first = Layer(width, posterior=PointMass(), prior=GroupLasso(), bias=True)
    top = Layer(1, posterior=PointMass(), bias=True)
    network = build(additive(x.shape[1], n_subnetworks, depth=2), [first, top], key=build_key)
    order = np.random.default_rng(np.asarray(jr.key_data(order_key)).ravel().tolist()).permutation(len(x))
    n_held = max(1, int(HELD_OUT * len(x)))
    held, train = order[:n_held], order[n_held:]
    data = (in_working_precision(x[train].T), in_working_precision(y[train]))
    strengths = in_working_precision(np.asarray(sorted(penalties, reverse=True)))
    shape = (len(strengths), n_subnetworks, x.shape[1])
    networks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(strengths), *jnp.shape(leaf))), network)
    settings = (n_steps, min(BATCH_SIZE, len(train)))
    rates = in_working_precision(learning_rate)
    mesh, _ = mesh_for(len(strengths), 0)
    data, spread = everywhere(data, mesh), lambda tree: apart(tree, mesh)
    given: Any = spread(strengths), spread(jnp.ones(shape)), data, rates, fast(run_key)
    networks = home(_run(settings, spread(networks), *given), mesh)
    norms = _norms(networks)
    # Adaptive weights about 1: the mean norm over a group's own.
    scale = jnp.mean(norms, axis=(1, 2), keepdims=True)
    adaptive = jnp.where(norms > 0, scale / jnp.maximum(norms, 1e-6), 1e6)
    given = spread(strengths), spread(jnp.minimum(adaptive, 1e6)), data, rates, fast(run_key)
    networks = home(_run(settings, spread(networks), *given), mesh)
    squares = np.asarray(
        _squared_errors(networks, in_working_precision(x[held].T), in_working_precision(y[held])), np.float64
    )
    loss, error = squares.mean(axis=1), squares.std(axis=1) / np.sqrt(len(held))
    best = int(np.argmin(loss))
    chosen = int(np.argmax(loss <= loss[best] + error[best]))
    members = tuple(jax.tree.map(lambda leaf, i=i: leaf[i], networks) for i in range(len(strengths)))
    return Path(np.asarray(strengths), np.asarray(_norms(networks)), members, chosen)


def clusters_of(path: Path, x: Float[np.ndarray, "n p"]) -> tuple[Term, ...]:
    """What the sub-networks of the chosen network read, without those of no effect, repeated or inside others."""
    network = path.network
    terms = np.asarray(eqx.filter_jit(_top_values)(network, in_working_precision(x.T)))
    moves = terms.std(axis=-1) > NEGLIGIBLE * terms.sum(axis=0).std()
    reads = {
        tuple(np.flatnonzero(norms).tolist()) for norms, on in zip(path.norms[path.chosen], moves, strict=True) if on
    }
    return maximal(reads - {()})


def _top_values(network: Network, x: Array) -> Array:
    return network.at(network.weights()).terms(x, key=jr.key(0))[:, 0]


def _norms(networks: Any) -> Float[Array, "k s p"]:
    return jnp.linalg.norm(networks.parts[0].function.posterior.mean, axis=2)


@eqx.filter_jit
def _squared_errors(networks, x, y):
    return jax.vmap(lambda network: (network.mean(x)[0] - y) ** 2)(networks)


@eqx.filter_jit
def _run(settings, networks, penalties, adaptive, data, learning_rate, key):
    return jax.vmap(lambda n, p, a: _run_one(settings, n, p, a, data, learning_rate, key))(
        networks, penalties, adaptive
    )


def _run_one(settings, network, penalty, adaptive, data, learning_rate, key):
    """Proximal Adam: minibatches first, then all rows."""
    n_steps, batch_size = settings
    x, y = data
    n = y.shape[0]
    params, rest = eqx.partition(network, trainable(network))
    first = lambda tree: tree.stacks[0].function.posterior.mean  # noqa: E731
    adam = optax.scale_by_adam()
    n_full = int(FULL_SHARE * n_steps)

    def loss(params, x, y):
        model = eqx.combine(params, rest)
        # ½ mean squared error and the priors of the layers above, which hold the scale that the first would lose
        above = sum((stack.kl(key) for stack in model.stacks[1:]), start=jnp.zeros(()))
        return 0.5 * jnp.mean((model.mean(x)[0] - y) ** 2) + above / n

    def step(carry, t, x, y):
        params, state, momentum, second = carry
        gradient = jax.grad(loss)(params, x, y)
        rate = learning_rate * 0.5 * (1.0 + jnp.cos(jnp.pi * t / n_steps)) + 1e-2 * learning_rate
        updates, state = adam.update(gradient, state, params)
        v, g = first(params), first(gradient)
        momentum = 0.9 * momentum + 0.1 * g
        second = 0.999 * second + 0.001 * jnp.mean(g**2, axis=1)
        size = rate / (jnp.sqrt(second / (1.0 - 0.999 ** (t + 1.0))) + 1e-8)  # one per group
        moved = v - size[:, None] * momentum / (1.0 - 0.9 ** (t + 1.0))
        norm = jnp.linalg.norm(moved, axis=1)
        shrink = jnp.maximum(0.0, 1.0 - size * penalty * adaptive / jnp.maximum(norm, 1e-12))
        params = jax.tree.map(lambda p, u: p - rate * u, params, updates)
        params = eqx.tree_at(first, params, moved * shrink[:, None])
        return params, state, momentum, second

    def small(carry, t):
        rows = jr.randint(jr.fold_in(key, t), (batch_size,), 0, n)
        return step(carry, t, x[:, rows], y[rows]), None

    def full(carry, t):
        return step(carry, t, x, y), None

    v = first(params)
    carry = (params, adam.init(params), jnp.zeros_like(v), jnp.zeros((v.shape[0], v.shape[2])))
    carry, _ = jax.lax.scan(small, carry, jnp.arange(n_steps - n_full))
    (params, *_), _ = jax.lax.scan(full, carry, jnp.arange(n_steps - n_full, n_steps))
    return eqx.combine(params, rest)
