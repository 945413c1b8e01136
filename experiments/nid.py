"""Neural Interaction Detection (Tsang, Cheng & Liu, 2017): interactions read off the weights of a sparse ReLU network.

    f(x) = MLP(x) + Σ_k g_k(x_k)

The univariate networks g_k take up the main effects, so that the L1 penalty on the MLP leaves there what interacts.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

HIDDEN, MAIN_HIDDEN = (140, 100, 60, 20), (10, 10, 10)
# λ of the L1 penalty, beside the mean squared error of a standardised y
STRENGTHS = (2e-5, 1e-4, 5e-4, 2e-3)
N_ROUNDS, STEPS_PER_ROUND, BATCH_SIZE, LEARNING_RATE = 50, 100, 100, 5e-3
VALIDATION = 0.2

Layers = list[tuple[Float[Array, "... r d"], Float[Array, "... d"]]]


class Network(NamedTuple):
    """Weights and biases: of the MLP, and of the networks of single inputs, whose arrays lead with the input."""

    mlp: Layers
    mains: Layers


class Detected(NamedTuple):
    """The network fitted, what it ranks, and √ MSE of the validation rows before they were trained on too."""

    predict: Callable[[Float[np.ndarray, "m p"]], Float[np.ndarray, " m"]]
    interactions: list[tuple[int, ...]]
    strengths: list[float]
    validation_rmse: float
    n_parameters: int


def detect(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, " n"], seed: int) -> Detected:
    """Fits the network and ranks interactions.

    λ and the number of rounds are those with the least error on an inner part of the rows; the network is then fitted
    anew, to all rows.
    """
    x_mean, x_scale = x.mean(axis=0), np.where(np.ptp(x, axis=0) > 0.0, x.std(axis=0), 1.0)
    y_mean, y_scale = y.mean(), y.std()
    rows, targets = jnp.asarray((x - x_mean) / x_scale), jnp.asarray((y - y_mean) / y_scale)
    split_key, init_key, train_key = jr.split(jr.key(seed), 3)
    order = jr.permutation(split_key, len(x))
    held, kept = jnp.split(order, [round(VALIDATION * len(x))])
    start = init(init_key, x.shape[1])

    each = jax.vmap(train, in_axes=(None, None, None, None, None, 0, None, None))
    search = (start, rows[kept], targets[kept], rows[held], targets[held])
    _, errors = each(*search, jnp.asarray(STRENGTHS), N_ROUNDS, train_key)
    # A diverged run has no error to compare.
    best, last = np.unravel_index(np.nanargmin(errors), errors.shape)
    everything = (start, rows, targets, rows[held], targets[held])
    network, _ = train(*everything, jnp.asarray(STRENGTHS[best]), int(last) + 1, train_key)

    ranking = interactions(np.abs(network.mlp[0][0]), influence(network.mlp))
    return Detected(
        predict=lambda x: y_mean + y_scale * np.asarray(evaluate(network, jnp.asarray((x - x_mean) / x_scale)), float),
        interactions=list(ranking),
        strengths=list(ranking.values()),
        validation_rmse=float(y_scale * np.sqrt(errors[best, last])),
        n_parameters=sum(leaf.size for leaf in jax.tree.leaves(network)),
    )


def init(key: PRNGKeyArray, p: int) -> Network:
    """w ~ N(0, 2/r) below a ReLU and N(0, 1/r) at the top; no bias."""

    def layers(key, widths, *leading):
        made = []
        for i, (r, d) in enumerate(itertools.pairwise(widths)):
            gain = 1.0 if i == len(widths) - 2 else 2.0
            weight = jnp.sqrt(gain / r) * jr.normal(jr.fold_in(key, i), (*leading, r, d))
            made.append((weight, jnp.zeros((*leading, d))))
        return made

    mlp_key, main_key = jr.split(key)
    return Network(layers(mlp_key, (p, *HIDDEN, 1)), layers(main_key, (1, *MAIN_HIDDEN, 1), p))


@jax.jit
def evaluate(network: Network, x: Float[Array, "n p"]) -> Float[Array, " n"]:
    """f(x) = MLP(x) + Σ_k g_k(x_k)."""
    mains = jax.vmap(_perceptron)(network.mains, x.T[:, :, None])
    return _perceptron(network.mlp, x)[:, 0] + jnp.sum(mains[:, :, 0], axis=0)


def _perceptron(layers, h):
    for i, (weight, bias) in enumerate(layers):
        h = (jax.nn.relu(h) if i else h) @ weight + bias[None]
    return h


@jax.jit
def train(
    network: Network,
    x: Float[Array, "n p"],
    y: Float[Array, " n"],
    x_held: Float[Array, "k p"],
    y_held: Float[Array, " k"],
    strength: Float[Array, ""],
    n_rounds: Any,
    key: PRNGKeyArray,
) -> tuple[Network, Float[Array, " rounds"]]:
    """Adam on mean (y − f)² + λ Σ |w|, w the weights of the MLP; with the error on held-out rows after each round.

    The rate falls along a cosine that would reach 0 after `N_ROUNDS`; batches are drawn with replacement.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, N_ROUNDS * STEPS_PER_ROUND))

    def loss(network, rows):
        penalty = sum(jnp.sum(jnp.abs(weight)) for weight, _ in network.mlp)
        return jnp.mean((y[rows] - evaluate(network, x[rows])) ** 2) + strength * penalty

    def step(i, carry):
        network, state = carry
        rows = jr.randint(jr.fold_in(key, i), (BATCH_SIZE,), 0, len(x))
        updates, state = optimiser.update(jax.grad(loss)(network, rows), state)
        return optax.apply_updates(network, updates), state

    def one_round(i, carry):
        network, state, errors = carry
        first = i * STEPS_PER_ROUND
        network, state = jax.lax.fori_loop(first, first + STEPS_PER_ROUND, step, (network, state))
        error = jnp.mean((y_held - evaluate(network, x_held)) ** 2)
        return network, state, errors.at[i].set(error)

    blank = jnp.full(N_ROUNDS, jnp.nan)
    network, _, errors = jax.lax.fori_loop(0, n_rounds, one_round, (network, optimiser.init(network), blank))
    return network, errors


def influence(mlp: Layers) -> Float[np.ndarray, " h"]:
    """z = |w_last|ᵀ |W_L| … |W_2|: a bound on what each unit of the first layer can do to the output (their eq. 5)."""
    z = np.ones(1)
    for weight, _ in reversed(mlp[1:]):
        z = np.abs(np.asarray(weight, float)) @ z
    return z


def interactions(first: Float[np.ndarray, "p h"], z: Float[np.ndarray, " h"]) -> dict[tuple[int, ...], float]:
    """Interactions and their strengths, strongest first; `first` are the |w| of the first layer.

    A unit i proposes p − 1 candidates: its two inputs of largest |w|, its three, and so on to all. It gives each
    z_i · min |w_ik| over the inputs k of the candidate; a candidate's strength is the sum over the units that propose
    it. Going down the ranking, a candidate that lies inside a stronger one is dropped; a weaker one that holds a
    stronger one within it stays. Nothing is cut off at the bottom, except what has strength 0.
    """
    strengths: dict[tuple[int, ...], float] = {}
    for weights, influence in zip(np.asarray(first, float).T, z, strict=True):
        order = np.argsort(-weights, kind="stable")
        for size in range(2, len(weights) + 1):
            candidate = tuple(sorted(order[:size].tolist()))
            strengths[candidate] = strengths.get(candidate, 0.0) + float(influence * weights[order[size - 1]])
    kept: dict[tuple[int, ...], float] = {}
    for candidate, strength in sorted(strengths.items(), key=lambda item: -item[1]):
        if strength > 0.0 and not any(set(candidate) < set(stronger) for stronger in kept):
            kept[candidate] = strength
    return kept
