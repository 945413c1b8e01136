"""The compiled training run: rounds of minibatch steps, each closed by a score.

The best state so far is kept, and a diverged one is put back and tried again at a lower rate. One call of `advance` is
one program: `until` says how many rounds it runs, so that a run may also be taken round by round with the same program.
A turn is one go at a round.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from vertebra.inference.objective import Counted, minibatch_elbo, step_noise
from vertebra.machine.devices import by_rows, pad, padded_size
from vertebra.networks.stack import root

MAX_SCORE_ROWS = 1024
MAX_RETRIES = 4
RETRY_FACTOR = 0.3

# One flat vector: Adam as a single pass over all parameters, whatever their number.
ADAM = optax.flatten(optax.adam(1.0))


class Table(NamedTuple):
    """All rows on the device, padded to one of a few sizes with weight zero, and the order of visiting them."""

    x: Float[Array, "rows p"]
    y: Float[Array, "rows k"]
    weight: Float[Array, "rows j"]
    fold: Int[Array, " rows"]  # a restart neither trains on the fold that it holds out nor is scored on another
    order: Int[Array, " rows"]  # the rows to train on, shuffled, then padding
    strides: Int[Array, " epochs"]  # prime to n_train: each turns the order into another one …
    shifts: Int[Array, " epochs"]  # … that starts elsewhere


class Window(NamedTuple):
    """The minibatches of one round, made elsewhere: of rows that do not fit on the device."""

    x: Float[Array, "steps batch p"]
    y: Float[Array, "steps batch k"]
    weight: Float[Array, "steps batch j"]
    fold: Int[Array, "steps batch"]


class Data(NamedTuple):
    """What a round trains on, how many rows that stands for, and the rows that scores are of, fold by fold."""

    rows: Table | Window
    n_train: Int[Array, ""]
    total: Float[Array, ""]  # of all weights
    score_x: Float[Array, "folds score p"]
    score_y: Float[Array, "folds score k"]
    score_weight: Float[Array, "folds score j"]


class Minibatch(NamedTuple):
    """Rows, and what one of them stands for."""

    x: Float[Array, "batch p"]
    y: Float[Array, "batch k"]
    weight: Float[Array, "batch j"]
    fold: Int[Array, " batch"]
    scale: Float[Array, ""]


class Plan(NamedTuple):
    """Settings that are values to the compiled program: changing them compiles nothing."""

    n_steps: Int[Array, ""]
    n_rounds: Int[Array, ""]
    steps_per_round: Int[Array, ""]
    learning_rate: Float[Array, ""]
    patience: Int[Array, ""]


class Settings(NamedTuple):
    """Settings that shape the compiled program."""

    batch_size: int
    n_draws: int
    n_rounds: int
    validates: bool
    keeps_last: bool  # not the round with the best score
    stacked: bool
    optimiser: optax.GradientTransformation
    mesh: Mesh | None = None  # the devices that share the work


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


@eqx.filter_jit
def start(settings, params, key, held):
    """The state before the first round; with a leading axis of restarts where the parameters have one."""
    return (jax.vmap(_start, in_axes=(None, 0, 0, 0)) if settings.stacked else _start)(settings, params, key, held)


def _start(settings, params, key, held):
    # Every type is spelled out: a weak one would come back strong, and compile the program a second time.
    real, zero = jnp.result_type(float), jnp.zeros((), jnp.int32)
    blank = jnp.full(settings.n_rounds, jnp.nan, real)
    return State(
        params=jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), params),
        optimiser=settings.optimiser.init(params),
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
    )


@eqx.filter_jit
def advance(settings, state, rest, data, plan, until):
    """Turns of training until that many are done or every restart has stopped."""
    one_turn = lambda state, rest, turn: _turn(settings, state, rest, data, plan, turn)  # noqa: E731
    if settings.stacked:
        one_turn = jax.vmap(one_turn, in_axes=(0, 0, None))

    def body(carry):
        turn, state = carry
        return turn + 1, one_turn(state, rest, turn)

    def unfinished(carry):
        turn, state = carry
        return (turn < until) & jnp.any(state.active)

    return jax.lax.while_loop(unfinished, body, (jnp.max(state.turn), state))[1]


def _turn(settings, state, rest, data, plan, turn):
    """One round of steps and its score. A round that diverges does not count: it is put back and run again."""
    noise_key, score_key = jr.split(state.key)
    # Rows and noise go by the turn, which all restarts share; the schedule by the rounds that this one has done.
    first, done = turn * plan.steps_per_round, state.round * plan.steps_per_round

    def loss(params, batch, weight, noise):
        network, likelihood = eqx.combine(params, rest)
        value = minibatch_elbo(network, likelihood, batch.x.T, batch.y, weight, batch.scale, noise)
        return -value / data.n_train

    def noise_of(i):
        network, _ = eqx.combine(state.params, rest)
        key = jr.fold_in(noise_key, first + i)
        return step_noise(network, settings.batch_size, key=key, n_draws=settings.n_draws)

    def step(i, carry):
        params, optimiser, total, noise = carry
        batch = _minibatch(data, settings, first + i, i)
        weight = batch.weight * (batch.fold != state.held)[:, None]
        value, gradient = jax.value_and_grad(loss)(params, batch, weight, noise)
        updates, optimiser = settings.optimiser.update(gradient, optimiser, params)
        rate = state.rate_factor * plan.learning_rate * _schedule(done + i, plan.n_steps)
        updates = jax.tree.map(lambda update: rate * update, updates)
        # The next step's noise is carried over: drawn inside the step that uses it, XLA would draw it again for the
        # backward pass.
        return optax.apply_updates(params, updates), optimiser, total - value, noise_of(i + 1)

    begin = (state.params, state.optimiser, jnp.zeros((), state.best_score.dtype), noise_of(0))
    params, optimiser, total, _ = jax.lax.fori_loop(0, plan.steps_per_round, step, begin)
    mean_elbo = total / plan.steps_per_round
    score = score_of(settings, eqx.combine(params, rest), data, score_key, state.held)

    # NaN or infinity anywhere in the round ends up in one of these: go back to the best state, at a lower rate.
    sound = jnp.isfinite(score) & jnp.isfinite(mean_elbo)
    counts = sound & state.active
    better = counts & (settings.keeps_last | (score > state.best_score))
    pick = lambda condition, a, b: jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)  # noqa: E731
    best = pick(better, params, state.best)
    best_round = jnp.where(better, state.round, state.best_round)
    n_retries = state.n_retries + (state.active & ~sound)
    rounds = state.round + counts
    note = lambda values, value: jnp.where(counts, values.at[state.round].set(value), values)  # noqa: E731
    return State(
        params=pick(sound, params, best),
        optimiser=pick(sound, optimiser, settings.optimiser.init(best)),
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
    )


def _minibatch(data, settings, t, i) -> Minibatch:
    """The rows of step t, which is step i of its round.

    Epoch e visits order[(stride_e · position + shift_e) mod n]: every row once, in a new order each time, without a
    sort. With no more rows than fit into a batch, all of them.
    """
    rows, n, batch_size = data.rows, data.n_train, settings.batch_size
    if isinstance(rows, Window):
        return Minibatch(rows.x[i], rows.y[i], rows.weight[i], rows.fold[i], n / batch_size)
    is_whole = n <= batch_size
    steps_per_epoch = -(-n // batch_size)
    epoch, position = t // steps_per_epoch, (t % steps_per_epoch) * batch_size + jnp.arange(batch_size)
    e = epoch % len(rows.strides)
    elsewhere = ((position % n) * rows.strides[e] % n + rows.shifts[e]) % n
    chosen = by_rows(rows.order[jnp.where(is_whole, jnp.minimum(position, n - 1), elsewhere)], settings.mesh)
    live = jnp.where(is_whole, position < n, True)
    weight = rows.weight[chosen] * live[:, None]
    return Minibatch(rows.x[chosen], rows.y[chosen], weight, rows.fold[chosen], n / jnp.minimum(n, batch_size))


def _schedule(t, n_steps):
    share = jnp.minimum(t / n_steps, 1.0)
    return jnp.minimum(1.0, (t + 1.0) / jnp.maximum(0.02 * n_steps, 1.0)) * 0.5 * (1.0 + jnp.cos(jnp.pi * share))


def score_of(settings, model, data, key, held):
    """The same rows and the same noise each round, so that rounds compare."""
    network, likelihood = model
    n_draws = 4 if any(stack.is_random for stack in network.stacks[:-1]) else 1
    x, y, weight = data.score_x[held].T, data.score_y[held], data.score_weight[held]
    total = jnp.sum(weight)
    if not settings.validates:
        noise = step_noise(network, len(y), key=key, n_draws=n_draws)
        scale = data.total / total
        return minibatch_elbo(network, likelihood, x, y, weight, scale, noise) / data.n_train

    def one_draw(key):
        below_key, top_key = jr.split(key)
        mean, variance = network.conditional(x, network.noise(below_key, x.shape[1:]))
        return mean.T if variance is None else (mean + root(variance) * jr.normal(top_key, mean.shape)).T

    n_draws = 16 if any(stack.is_random for stack in network.stacks) else 1
    f = jax.vmap(one_draw)(jr.split(key, n_draws))
    counted = Counted(weight)
    return counted.total(likelihood.log_predictive(counted.latents(f), counted.targets(y))) / total


def arrange(x, y, weight, validation, folds, batch_size, key):
    """Rows on the device, with the split, the order and the strides fixed by the key, on the host.

    Fold 0 is the share held out for `validation`; or there are `folds`, each held out by restarts of its own, which
    pass over its rows with weight zero.
    """
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel().tolist())
    size = padded_size(len(x))
    usable = rng.permutation(np.flatnonzero(weight.any(axis=1)).astype(np.int32))
    n_held = round(validation * len(usable))
    parts = [usable[:n_held]] if not folds else np.array_split(usable, folds)
    train = usable if folds else usable[n_held:]
    if len(train) < 1 or (validation > 0.0 and n_held < 1):
        raise ValueError(
            f"`validation` of {validation} leaves {n_held} rows to score and {len(train)} to train on, of the "
            f"{len(usable)} with weight: give more rows, or another share."
        )
    fold = np.full(size, -1)
    for k, part in enumerate(parts):
        fold[part] = k
    scored = [part[:MAX_SCORE_ROWS] for part in (parts if folds or n_held else [rng.permutation(train)])]
    limit = min(len(train), (2**31 - 1) // (len(train) + batch_size))
    candidates = rng.integers(1, limit + 1, size=512)
    strides = np.resize(candidates[np.gcd(candidates, len(train)) == 1][:64].tolist() or [1], 64)
    rows = Table(
        x=pad(x, size, repeat=True),
        y=pad(y, size, repeat=True),
        weight=pad(weight, size),
        fold=jnp.asarray(fold, dtype=jnp.int32),
        order=pad(train, size, jnp.int32),
        strides=jnp.asarray(strides, dtype=jnp.int32),
        shifts=jnp.asarray(rng.integers(len(train), size=64), dtype=jnp.int32),
    )
    return _with_scores(rows, len(train), float(weight.sum(dtype=np.float64)), x, y, weight, scored, size)


def streamed(x, y, weight, folds, *, n_train: int, total: float) -> Data:
    """Data without rows to train on, to be given window by window; scored on rows in memory, some of each fold."""
    parts = [np.flatnonzero(folds == k)[:MAX_SCORE_ROWS] for k in range(int(folds.max()) + 1)]
    return _with_scores(None, n_train, total, x, y, weight, parts, MAX_SCORE_ROWS)


def _with_scores(rows, n_train, total, x, y, weight, scored, size: int) -> Data:
    n_scored = min(size, MAX_SCORE_ROWS)
    take = lambda array, repeat: jnp.stack([pad(array[part], n_scored, repeat=repeat) for part in scored])  # noqa: E731
    return Data(
        rows=rows,
        n_train=jnp.asarray(n_train, dtype=jnp.int32),
        total=jnp.asarray(total, dtype=jnp.result_type(float)),
        score_x=take(x, repeat=True),
        score_y=take(y, repeat=True),
        score_weight=take(weight, repeat=False),
    )


def stand_in(
    x: Shaped[np.ndarray, "n p"], y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, "n j"]
) -> tuple[Shaped[np.ndarray, "n p"], Float[np.ndarray, "n k"]]:
    """x and y, those of no weight put in the place of others that have some: a network and p(y | f) are defined there.

    Rows of no weight are not visited, but a minibatch may hold them: of files, or of a fold that is left out.
    """
    live = weight > 0.0
    if live.all():
        return x, y
    rows = np.any(live, axis=1, keepdims=True)
    y = np.where(live, y, y[live.argmax(axis=0), np.arange(y.shape[1])])
    return np.where(rows, x, x[rows.argmax()]), y
