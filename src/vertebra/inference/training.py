"""The compiled training run: rounds of minibatch steps, each closed by a score.

The best state so far is kept, and a diverged one is put back and tried again at a lower rate. One call of `advance` is
one program: `until` says how many rounds it runs, so that a run may also be taken round by round with the same program.
A turn is one go at a round.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from vertebra.inference.objective import Counted, StepNoise, minibatch_elbo, step_noise
from vertebra.inference.rows import Data, Minibatch, Scored, minibatch_of
from vertebra.likelihoods import Likelihood
from vertebra.networks.features import in_reverse
from vertebra.networks.network import Network
from vertebra.networks.stack import root

# A run that diverges is tried so often again, each time at this share of the rate: at last at 1 % of what was asked.
MAX_RETRIES = 4
RETRY_FACTOR = 0.3
# The share of the steps over which the rate rises to its peak: a round number.
WARM_UP = 0.02
# Draws of f for a score: more where it is a mean of densities than where it is an ELBO; round numbers, and the noise
# is the same in every round, so that rounds compare.
ELBO_DRAWS, PREDICTIVE_DRAWS = 4, 16

# One flat vector: Adam as a single pass over all parameters, whatever their number.
ADAM = optax.flatten(optax.adam(1.0))

# A number that goes by the step.
Schedule = Callable[[Int[Array, ""]], float | Float[Array, ""]]


class Plan(NamedTuple):
    """What the compiled program is told: its arrays are values, changing them compiles nothing; the rest shapes it."""

    n_steps: Int[Array, ""]
    n_rounds: Int[Array, ""]  # those that have steps
    steps_per_round: Int[Array, ""]
    learning_rate: Float[Array, ""] | Schedule
    kl_weight: Float[Array, ""] | Schedule | None  # None is 1
    patience: Int[Array, ""]
    batch_size: int
    n_draws: int
    room: int  # for the history, in rounds
    steps_room: int | None  # for that of every step, where it is asked for
    validates: bool
    keeps_last: bool  # not the round with the best score
    stacked: bool  # several restarts, side by side
    optimiser: optax.GradientTransformation
    mesh: Mesh | None  # the devices that share the work


class State(eqx.Module):
    """Everything a run carries from round to round."""

    params: PyTree
    optimiser: PyTree
    key: PRNGKeyArray
    held: Int[Array, ""]  # the fold that is left out
    turn: Int[Array, ""]  # rounds run, the diverged ones included
    round: Int[Array, ""]  # rounds that counted
    rate_factor: Float[Array, ""]
    n_retries: Int[Array, ""]
    active: Bool[Array, ""]
    best: PyTree
    best_score: Float[Array, ""]
    best_round: Int[Array, ""]
    elbos: Float[Array, " rounds"]
    scores: Float[Array, " rounds"]
    steps: Float[Array, " steps"] | None  # the ELBO of every step


@eqx.filter_jit
def start(plan: Plan, params: PyTree, key: Key[Array, "*members"], held: Int[Array, "*members"]) -> State:
    """The state before the first round; with a leading axis of restarts where the parameters have one."""
    return (jax.vmap(_start, in_axes=(None, 0, 0, 0)) if plan.stacked else _start)(plan, params, key, held)


def _start(plan: Plan, params: PyTree, key: PRNGKeyArray, held: Int[Array, ""]) -> State:
    # Every type is spelled out: a weak one would come back strong, and compile the program a second time.
    real, zero = jnp.result_type(float), jnp.zeros((), jnp.int32)
    blank = jnp.full(plan.room, jnp.nan, real)
    return State(
        params=jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), params),
        optimiser=plan.optimiser.init(params),
        key=key,
        held=held,
        turn=zero,
        round=zero,
        rate_factor=jnp.ones((), real),
        n_retries=zero,
        active=jnp.ones((), bool),
        best=params,
        best_score=jnp.full((), -jnp.inf, real),
        best_round=zero,
        elbos=blank,
        scores=blank,
        steps=None if plan.steps_room is None else jnp.full(plan.steps_room, jnp.nan, real),
    )


@eqx.filter_jit
def advance(plan: Plan, state: State, rest: PyTree, data: Data, until: Int[Array, ""]) -> State:
    """Turns of training until that many are done or every restart has stopped."""
    one_turn = lambda state, rest, turn: _turn(plan, state, rest, data, turn)  # noqa: E731
    if plan.stacked:
        one_turn = jax.vmap(one_turn, in_axes=(0, 0, None))

    def body(carry):
        turn, state = carry
        return turn + 1, one_turn(state, rest, turn)

    def unfinished(carry):
        turn, state = carry
        return (turn < until) & jnp.any(state.active)

    return jax.lax.while_loop(unfinished, body, (jnp.max(state.turn), state))[1]


def _turn(plan: Plan, state: State, rest: PyTree, data: Data, turn: Int[Array, ""]) -> State:
    """One round of steps and its score. A round that diverges does not count: it is put back and run again."""
    noise_key, score_key = jr.split(state.key)
    params, optimiser, mean_elbo, steps = _round(plan, state, rest, data, turn, noise_key)
    score = score_of(plan, eqx.combine(params, rest), data.scored, score_key, state.held)

    # NaN or infinity anywhere in the round ends up in one of these: go back to the best state, at a lower rate.
    sound = jnp.isfinite(score) & jnp.isfinite(mean_elbo)
    counts = sound & state.active
    better = counts & (plan.keeps_last | (score > state.best_score))
    pick = lambda condition, a, b: jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)  # noqa: E731
    best = pick(better, params, state.best)
    best_round = jnp.where(better, state.round, state.best_round)
    n_retries = state.n_retries + (state.active & ~sound)
    rounds = state.round + counts
    note = lambda values, value: jnp.where(counts, values.at[state.round].set(value), values)  # noqa: E731
    return State(
        params=pick(sound, params, best),
        optimiser=pick(sound, optimiser, plan.optimiser.init(best)),
        key=state.key,
        held=state.held,
        turn=(turn + 1).astype(jnp.int32),
        round=rounds,
        rate_factor=jnp.where(sound, 1.0, RETRY_FACTOR).astype(state.rate_factor.dtype) * state.rate_factor,
        n_retries=n_retries,
        active=state.active
        & (n_retries <= MAX_RETRIES)
        & (rounds < plan.n_rounds)
        & (state.round - best_round < plan.patience),
        best=best,
        best_score=jnp.where(better, score, state.best_score),
        best_round=best_round,
        elbos=note(state.elbos, mean_elbo),
        scores=note(state.scores, score),
        steps=steps,  # those of a round that does not count are written over
    )


def _round(
    plan: Plan, state: State, rest: PyTree, data: Data, turn: Int[Array, ""], noise_key: PRNGKeyArray
) -> tuple[PyTree, PyTree, Float[Array, ""], Float[Array, " steps"] | None]:
    """Parameters and optimiser after a round of steps, their mean minibatch ELBO per row, and that of every step."""
    # Rows and noise go by the turn, which all restarts share; the schedule by the rounds that this one has done.
    first, done = turn * plan.steps_per_round, state.round * plan.steps_per_round

    def loss(
        params: PyTree,
        batch: Minibatch,
        weight: Float[Array, "batch j"],
        noise: StepNoise,
        kl_weight: Float[Array, ""] | None,
    ):
        network, likelihood = eqx.combine(params, rest)
        with in_reverse():
            value = minibatch_elbo(network, likelihood, batch.x.T, batch.y, weight, batch.scale, noise, kl_weight)
        return -value / data.scored.n_train

    def noise_of(i):
        network, _ = eqx.combine(state.params, rest)
        return step_noise(network, plan.batch_size, key=jr.fold_in(noise_key, first + i), n_draws=plan.n_draws)

    def step(i, carry):
        params, optimiser, total, noise, steps = carry
        batch = minibatch_of(data, plan.batch_size, first + i, i, plan.mesh)
        weight = batch.weight * (batch.fold != state.held)[:, None]
        given = batch, weight, noise, _kl_weight(plan, done + i)
        value, gradient = jax.value_and_grad(loss)(params, *given)
        # a search along a line asks for the loss elsewhere; other optimisers do not look at what is said beside
        beside = dict(value=value, grad=gradient, value_fn=lambda params: loss(params, *given))
        update = optax.with_extra_args_support(plan.optimiser).update
        updates, optimiser = update(gradient, optimiser, params, **beside)
        rate = _rate(plan, state.rate_factor, done + i)
        updates = jax.tree.map(lambda update: rate * update, updates)
        # The next step's noise is carried over: drawn inside the step that uses it, XLA would draw it again for the
        # backward pass.
        steps = None if steps is None else steps.at[done + i].set(-value)
        return optax.apply_updates(params, updates), optimiser, total - value, noise_of(i + 1), steps

    begin = (state.params, state.optimiser, jnp.zeros((), state.best_score.dtype), noise_of(0), state.steps)
    params, optimiser, total, _, steps = jax.lax.fori_loop(0, plan.steps_per_round, step, begin)
    return params, optimiser, total / plan.steps_per_round, steps


def _rate(plan: Plan, factor: Float[Array, ""], t: Int[Array, ""]) -> Float[Array, ""]:
    """What the updates of step t are scaled by."""
    if callable(plan.learning_rate):
        return factor * plan.learning_rate(t)
    return factor * plan.learning_rate * _schedule(t, plan.n_steps)


def _kl_weight(plan: Plan, t: Int[Array, ""]) -> Float[Array, ""] | None:
    """What the KL counts at step t."""
    weight = plan.kl_weight
    return jnp.asarray(weight(t), jnp.result_type(float)) if callable(weight) else weight


def _schedule(t: Array, n_steps: Int[Array, ""]) -> Float[Array, ""]:
    """The share of the peak rate at step t: up a line, down a cosine."""
    share = jnp.minimum(t / n_steps, 1.0)
    return jnp.minimum(1.0, (t + 1.0) / jnp.maximum(WARM_UP * n_steps, 1.0)) * 0.5 * (1.0 + jnp.cos(jnp.pi * share))


def score_of(
    plan: Plan, model: tuple[Network, Likelihood], scored: Scored, key: PRNGKeyArray, held: Int[Array, ""]
) -> Float[Array, ""]:
    """The mean log predictive density of the fold held out, or the ELBO per row.

    The same rows and the same noise each round, so that rounds compare.
    """
    network, likelihood = model
    x, y, weight = scored.x[held].T, scored.y[held], scored.weight[held]
    total = jnp.sum(weight)
    if not plan.validates:
        # one is as good as many where the expectation over the top is taken from its moments
        is_drawn = any(stack.is_random for stack in network.stacks[:-1]) or not network.has_top_moments
        n_draws = ELBO_DRAWS if is_drawn else 1
        noise = step_noise(network, len(y), key=key, n_draws=n_draws)
        kl_weight = _kl_weight(plan, plan.n_steps)
        value = minibatch_elbo(network, likelihood, x, y, weight, scored.total / total, noise, kl_weight)
        return value / scored.n_train

    def one_draw(key):
        below_key, top_key = jr.split(key)
        mean, variance = network.conditional(x, network.noise(below_key, x.shape[1:]))
        return mean.T if variance is None else (mean + root(variance) * jr.normal(top_key, mean.shape)).T

    n_draws = PREDICTIVE_DRAWS if any(stack.is_random for stack in network.stacks) else 1
    f = jax.vmap(one_draw)(jr.split(key, n_draws))
    counted = Counted(weight)
    return counted.total(likelihood.log_predictive(counted.latents(f), counted.targets(y))) / total
