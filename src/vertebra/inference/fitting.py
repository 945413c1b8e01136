"""Doubly stochastic variational inference: `elbo`, `fit`, `sample`, `moments`."""

import hashlib
import math
import numbers
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray
from threadpoolctl import ThreadpoolController

from vertebra.inference.conjugate import MAX_FEATURES, closed_form, closed_form_of, has_closed_form, n_joint_features
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.inference.training import (
    ADAM,
    MAX_RETRIES,
    RETRY_FACTOR,
    Data,
    Plan,
    Settings,
    Window,
    advance,
    arrange,
    score_of,
    stand_in,
    start,
    streamed,
)
from vertebra.likelihoods.densities import Likelihood
from vertebra.machine import cluster
from vertebra.machine.checkpoint import Checkpoint, Entry
from vertebra.machine.devices import apart, cut, everywhere, home, is_key, mesh_for, padded
from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.parameters import trainable, working
from vertebra.networks.stack import pile
from vertebra.tables.parquet import ahead
from vertebra.tables.windows import Windows


class Progress(NamedTuple):
    """What a callback is told after each round.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> settings = dict(n_steps=50, callback=lambda progress: progress.step >= 20)
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), **settings)
    >>> int(fitted.history.step[-1])
    20
    """

    step: int
    n_steps: int
    elbo: float  # per row
    score: float
    best_score: float


class History(NamedTuple):
    """One entry per round, of the restart that was kept: steps done, mean minibatch ELBO per row, score."""

    step: Int[np.ndarray, " rounds"]
    elbo: Float[np.ndarray, " rounds"]
    score: Float[np.ndarray, " rounds"]


class Fitted(NamedTuple):
    """What `fit` returns: the best restart, and all of them as an ensemble.

    `score` is the mean log predictive density of the validation rows, or without these the ELBO per row.
    `evidence` is log p(y | features, noise), per row, where the last layer is in closed form.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50)
    >>> len(fitted.networks), fitted.history.step[-1].item()
    (1, 50)
    """

    network: Network
    likelihood: Any
    score: float
    history: History
    evidence: float | None
    networks: tuple[Network, ...]
    likelihoods: tuple[Any, ...]
    scores: tuple[float, ...]
    unseen: tuple[Bool[np.ndarray, " n"], ...]  # of each restart, the rows that it held out


class Diverged(RuntimeError):
    """Training ended in NaN or infinity, at lower rates too.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50, learning_rate=1e30)
    Traceback (most recent call last):
    ...
    vertebra.inference.fitting.Diverged: Training ended in NaN or infinity in every restart. ...
    """


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
    rows, targets = _arrays(network, likelihood, x, y)
    _check_counts(n_draws=n_draws, **({} if n is None else {"n": n}))
    each = _weights(weight, targets.shape)
    if not any(isinstance(array, Tracer) for array in (rows, targets, each)):
        rows, targets = stand_in(rows, targets, each)
    scale = 1.0 if n is None else n / len(rows)
    noise = step_noise(network, len(rows), key=fast(key), n_draws=n_draws)
    return minibatch_elbo(network, likelihood, working(rows).T, working(targets), working(each), scale, noise)


def sample(
    network: Network | Sequence[Network], x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> Float[Array, "draws n outputs"]:
    """Draws of f(x): each is one function of the posterior, at all rows. An ensemble shares the draws out evenly.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> vb.sample(network, x, key=jr.key(1), n_draws=10).shape
    (10, 50, 1)
    """
    networks = _checked_networks(network)
    _check_counts(n_draws=n_draws)
    rows, n = padded(_inputs(networks[0], x))
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
    networks = _checked_networks(network)
    _check_counts(n_draws=n_draws)
    rows, n = padded(_inputs(networks[0], x))
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


def fit(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    x: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
    weight: ArrayLike | None = None,
    n_steps: int = 5000,
    batch_size: int = 128,
    learning_rate: float = 1e-2,
    optimiser: optax.GradientTransformation | None = None,
    n_draws: int = 1,
    validation: float = 0.0,
    folds: int = 0,
    patience: int | None = None,
    n_rounds: int = 25,
    last_layer: bool | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Fitted:
    """Maximises the ELBO over q, the blocks' hyper-parameters and the likelihood's.

    - `network`: one, or a list of the same shape from different keys: restarts, trained side by side. The best by
      score is `Fitted.network`; all of them, `Fitted.networks`, are an ensemble.
    - `weight`: (n,), or (n, k) to leave single targets out; a weight of 2 is a row that stands there twice.
    - `learning_rate`: the peak of a schedule that warms up over 2 % of the steps and falls to 0 along a cosine. With
      an `optimiser` of your own, its updates are scaled by that schedule instead, and `learning_rate` is not used.
    - `validation`: the share of rows held out; their log predictive density is then the score that picks the best
      round, and that stops the fit after `patience` rounds without a better one.
    - `folds`: cuts the rows into so many parts; restart i does not see part i mod `folds`, which is its validation.
      What the ensemble says of a row without it is then known from the restarts that held it out (`Fitted.unseen`); so
      that it is not flattered, the last round is kept, not the one that these rows like best.
    - `last_layer`: whether to end with the exact posterior of the last layer, joint over all sub-networks, with the
      noise at its evidence maximum. None: where that exists (only the top layer random, all Gaussian) and has no more
      than 2000 features.
    - `callback`: called with a `Progress` after each of the `n_rounds` rounds; True ends the fit with the best so far
      (with `folds` the last).
    - `checkpoint`: a file that the whole state is written to every half minute; if it is there, of the same run, that
      is gone on with, and ends with the same result to the last bit. It is removed at the end.

    Several devices share the work: restarts where their number allows it, else the rows of large minibatches.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=500)
    >>> print(fitted.network.weights()[0].round(1))
    [[[1.]]]
    """
    networks = _checked_networks(network)
    _check_counts(n_steps=n_steps, batch_size=batch_size, n_draws=n_draws, n_rounds=n_rounds)
    _check_settings(learning_rate, validation, folds, patience, len(networks))
    rows, targets = _arrays(networks[0], likelihood, x, y)
    weights = _weights(weight, targets.shape)
    rows, targets = stand_in(rows, targets, weights)
    likelihood = likelihood.init(targets[weights.any(axis=1)])
    keys = jr.split(fast(key), 1 + len(networks))
    data = arrange(rows, targets, weights, validation, folds, batch_size, keys[0])
    run = _Run(
        networks,
        likelihood,
        keys,
        _Asked(n_steps, n_rounds, patience, learning_rate, optimiser, n_draws, folds, last_layer),
        batch_size=min(batch_size, len(data.rows.x)),
        validates=validation > 0.0 or folds > 0,
    )
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, run.about(rows, targets, weights, batch_size, validation))
    everything = everywhere(data, run.settings.mesh)
    state = run.to_the_end(lambda turn: everything, callback, kept)
    fold = np.asarray(data.rows.fold)[: len(rows)]

    def exactly(network, noise, held):
        seen = fold != held
        own, noise, evidence = closed_form(network, noise, rows[seen], targets[seen], weights[seen])
        return own, noise, evidence / np.count_nonzero(weights[seen].any(axis=1))

    fitted = run.outcome(state, data, fold, exactly)
    if kept is not None:
        kept.remove()
    return fitted


def fit_stream(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    windows: Windows,
    *,
    key: PRNGKeyArray,
    n_steps: int = 5000,
    batch_size: int = 1024,
    learning_rate: float = 1e-2,
    optimiser: optax.GradientTransformation | None = None,
    n_draws: int = 1,
    folds: int = 0,
    n_rounds: int = 25,
    last_layer: bool | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """As `fit`, of rows that are read from files, shuffled, while the device computes: see `vertebra.stream`.

    A round is trained on a window of rows; with several processes each reads its own part of it, and the result does
    not depend on how many there are. `Fitted.unseen` is of the rows in memory, `windows.x`.

    >>> x = np.linspace(-1.0, 1.0, 1000)
    >>> pd.DataFrame({"x": x, "y": x}).to_parquet("line.parquet")
    >>> training = vb.stream.Training(vb.stream.Parquet("line.parquet"), ["y"], None, is_class=False)
    >>> known = training.survey()
    >>> rows = vb.stream.StreamedRows(training, known, known.schema(), standard=lambda y: y)
    >>> matrix, y, weight = rows.taken(known.sample)
    >>> encoding = rows.cross_fit(matrix, lambda y: y[:, 0], [0], [False], most_levels=0, fill=True)
    >>> windows = vb.stream.Windows(rows, rows.sample(matrix), y, weight)
    >>> network = vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit_stream(network, vb.Gaussian(), windows, key=jr.key(1), n_steps=500, batch_size=128)
    >>> print(fitted.network.weights()[0].round(1))  # of x in units of its sd
    [[[0.6]]]
    """
    networks = _checked_networks(network)
    _check_counts(n_steps=n_steps, batch_size=batch_size, n_draws=n_draws, n_rounds=n_rounds)
    _check_settings(learning_rate, 0.0, folds, None, len(networks))
    rows, targets = _arrays(networks[0], likelihood, windows.x, windows.y)
    weights = _weights(windows.weight, targets.shape)
    rows, targets = stand_in(rows, targets, weights)
    likelihood = likelihood.init(targets[weights.any(axis=1)])
    keys = jr.split(fast(key), 1 + len(networks))
    fold = windows.folds(folds) if folds else np.zeros(len(rows), dtype=int)
    data = streamed(rows, targets, weights, fold, n_train=windows.n_rows, total=windows.total)
    asked = _Asked(
        n_steps,
        max(n_rounds, windows.fewest_rounds(n_steps, batch_size)),
        None,
        learning_rate,
        optimiser,
        n_draws,
        folds,
        last_layer,
    )
    run = _Run(networks, likelihood, keys, asked, batch_size=batch_size, validates=folds > 0)
    mesh, held = run.settings.mesh, everywhere(data, run.settings.mesh)
    first = run.resumed(checkpoint)
    read = ahead(windows.rounds(run.steps_per_round, batch_size, folds, first, mesh))

    def data_of(turn: int) -> Data:
        return held._replace(rows=Window(*next(read)))

    try:
        state = run.to_the_end(data_of, callback, checkpoint)
    finally:
        read.close()
    fold = fold if folds else np.full(len(rows), -1)

    def exactly(network, noise, held):
        own, noise, evidence, n = closed_form_of(network, noise, lambda work: windows.sums(work, folds, held))
        return own, noise, evidence / n

    return run.outcome(state, data, fold, exactly)


class _Asked(NamedTuple):
    """What a training run is asked for."""

    n_steps: int
    n_rounds: int
    patience: int | None
    learning_rate: float
    optimiser: optax.GradientTransformation | None
    n_draws: int
    folds: int
    last_layer: bool | None


class _Run:
    """One training run: restarts from their first state to what is made of their last."""

    def __init__(self, networks, likelihood, keys, asked: _Asked, *, batch_size: int, validates: bool):
        self.networks, self.likelihood, self.keys, self.asked = networks, likelihood, keys, asked
        exact = has_closed_form(networks[0], likelihood)
        self.last_layer = asked.last_layer
        if self.last_layer is None:
            self.last_layer = exact and n_joint_features(networks[0]) <= MAX_FEATURES
        if self.last_layer and not exact:
            raise ValueError(
                "`last_layer=True` needs a top layer with a full Gaussian posterior and a Normal prior, nothing random "
                "below it and the Gaussian likelihood: use None to have the closed form where it exists."
            )
        self.held = jnp.arange(len(networks), dtype=jnp.int32) % max(asked.folds, 1)
        self.steps_per_round = -(-asked.n_steps // asked.n_rounds)
        mesh, self.shared = mesh_for(len(networks), batch_size)
        self.settings = Settings(
            batch_size,
            asked.n_draws,
            asked.n_rounds,
            validates=validates,
            keeps_last=asked.folds > 0,
            stacked=len(networks) > 1,
            optimiser=ADAM if asked.optimiser is None else asked.optimiser,
            mesh=mesh,
        )
        models = [(member, likelihood) for member in networks]
        model = pile(models) if self.settings.stacked else models[0]
        params, self.rest = eqx.partition(model, trainable(model))
        mine = (keys[1:], self.held) if self.settings.stacked else (keys[1], self.held[0])
        self.state = start(self.settings, params, *mine)
        self._is_resumed = False
        self._kept: Checkpoint | None = None  # what the run goes on from

    def about(self, *facts: Any) -> dict[str, Any]:
        """What tells this run from another: data, settings, seeds."""
        leaves = [*facts, jr.key_data(self.keys), *(a for a in jax.tree.leaves(self.networks) if eqx.is_array(a))]
        digest = hashlib.sha256()
        for leaf in leaves:
            array = np.ascontiguousarray(jr.key_data(leaf) if isinstance(leaf, jax.Array) and is_key(leaf) else leaf)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        asked = self.asked._replace(optimiser=None)
        return {"arrays": digest.hexdigest(), "asked": list(asked), "likelihood": type(self.likelihood).__name__}

    def resumed(self, kept: Checkpoint | None) -> int:
        """Goes on where a run before this one was; returns how many rounds are done, the diverged ones included."""
        self._is_resumed = True
        entry = None if kept is None else kept.get("training")
        # one process keeps the state, which all share
        leaves, shape = jax.tree.flatten(self.state)
        blank = [np.asarray(_plain(leaf)) for leaf in leaves]
        own = [] if kept is None or entry is None else self._checked(kept, entry, blank)
        given = cluster.from_first(own, blank) if cluster.place()[1] > 1 else own
        if given:
            placed = [_like(leaf, array) for leaf, array in zip(leaves, given, strict=True)]
            self.state = jax.tree.unflatten(shape, placed)
        return int(np.max(np.asarray(self.state.turn)))

    def _checked(self, kept: Checkpoint, entry: Entry, blank: list[np.ndarray]) -> list[np.ndarray]:
        """The arrays of a state, if a run like this one could have kept them."""
        names = [str(k) for k in range(len(blank))]
        found = [entry.arrays[name] for name in names if name in entry.arrays]
        if len(found) != len(blank) or entry.arrays.keys() != set(names):
            raise kept.bad(f"the state must have {len(blank)} arrays, got {len(entry.arrays)}")
        for name, array, like in zip(names, found, blank, strict=True):
            if array.shape != like.shape or array.dtype != like.dtype:
                got = f"{array.shape} and {array.dtype}"
                raise kept.bad(f"the state's array {name} must be of {like.shape} and {like.dtype}, got {got}")
        state = jax.tree.unflatten(jax.tree.structure(self.state), found)
        most = self.asked.n_rounds
        whole = {"turn": most + MAX_RETRIES, "round": most, "best_round": most, "n_retries": MAX_RETRIES + 1}
        is_sound = {
            name: np.min(getattr(state, name)) >= 0 and np.max(getattr(state, name)) <= n for name, n in whole.items()
        }
        is_sound["held"] = np.array_equal(np.ravel(state.held), np.ravel(self.held))
        is_sound["rate_factor"] = np.all((state.rate_factor > 0.0) & (state.rate_factor <= 1.0))
        is_sound["best_score"] = not np.any(np.isnan(state.best_score) | (state.best_score == np.inf))
        for name in ("params", "best"):
            is_sound[name] = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(getattr(state, name)))
        is_sound["optimiser"] = not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(state.optimiser))
        if wrong := [name for name, holds in is_sound.items() if not holds]:
            raise kept.bad(f"the state's {', '.join(wrong)} cannot be those of a run of {most} rounds")
        self._kept = kept
        return found

    def keep(self, kept: Checkpoint) -> None:
        """Writes the whole state down: parameters, optimiser, keys, and where in the data it is."""
        leaves = [np.asarray(_plain(leaf)) for leaf in jax.tree.leaves(self.state)]
        kept.put("training", {}, {str(k): leaf for k, leaf in enumerate(leaves)})

    def to_the_end(self, data_of: Callable[[int], Data], callback, kept: Checkpoint | None):
        """Round after round, or all at once where nobody looks at them."""
        asked, settings, mesh = self.asked, self.settings, self.settings.mesh
        if kept is not None and not self._is_resumed:
            self.resumed(kept)
        plan = Plan(
            n_steps=jnp.asarray(asked.n_steps, jnp.int32),
            n_rounds=jnp.asarray(-(-asked.n_steps // self.steps_per_round), jnp.int32),
            steps_per_round=jnp.asarray(self.steps_per_round, jnp.int32),
            learning_rate=working(asked.learning_rate if asked.optimiser is None else 1.0),
            patience=jnp.asarray(asked.n_rounds if asked.patience is None else asked.patience, jnp.int32),
        )
        spread = apart if self.shared == "members" else everywhere
        state, rest, plan = spread(self.state, mesh), spread(self.rest, mesh), everywhere(plan, mesh)
        most, done = asked.n_rounds + MAX_RETRIES, int(np.max(np.asarray(self.state.turn)))
        stepwise = callback is not None or kept is not None or self._is_resumed
        blas = ThreadpoolController()  # found once: looking for the libraries takes longer than a short round
        for until in range(done + 1, most + 1) if stepwise else [most]:
            if not np.any(np.asarray(state.active)):
                break
            data = data_of(until - 1)
            # XLA shares the work out among the cores: threads of LAPACK's own would fight it for them.
            with blas.limit(limits=1, user_api="blas"), cluster.together(f"training, round {until}"):
                state = advance(settings, state, rest, data, plan, jnp.asarray(until, jnp.int32))
                jax.block_until_ready(state)
            self.state = state
            if kept is not None and cluster.is_first() and kept.is_due:
                self.keep(kept)
            if callback and _report(callback, state, asked.n_steps, settings):
                break
        return home(state, mesh)

    def outcome(self, state, data: Data, fold: Int[np.ndarray, " n"], exactly: Callable) -> Fitted:
        """The best state of every restart, its last layer in closed form where there is one, and the best of all.

        `exactly` is the closed form, of a network, its noise, and the fold to leave out.
        """
        networks, asked, settings, held = self.networks, self.asked, self.settings, self.held
        outcomes, rests = (_members(tree, len(networks)) if settings.stacked else [tree] for tree in (state, self.rest))
        scores = [float(outcome.best_score) for outcome in outcomes]
        _check_outcome(scores, outcomes, None if asked.optimiser is not None else asked.learning_rate)
        fitted = [eqx.combine(outcome.best, part) for outcome, part in zip(outcomes, rests, strict=True)]
        if self._kept is not None:
            # the best state may be one that a file gave: it must be one that says something of rows
            alone, keys = settings._replace(mesh=None), [jr.split(outcome.key)[1] for outcome in outcomes]
            again = [_rescore(alone, f, data, key, k) for f, key, k in zip(fitted, keys, held, strict=True)]
            if not all(np.isfinite(score) for score, said in zip(again, scores, strict=True) if math.isfinite(said)):
                raise self._kept.bad("the state's best network says nothing finite")
        evidences: Sequence[float | None] = [None] * len(fitted)
        unseen = tuple(fold == int(k) for k in held)
        if self.last_layer:
            finished = [exactly(*own, int(k)) for own, k in zip(fitted, held, strict=True)]
            fitted = [(f, noise) for f, noise, _ in finished]
            evidences = [e for *_, e in finished]
            alone = settings._replace(mesh=None)
            scores = [float(_rescore(alone, f, data, self.keys[0], k)) for f, k in zip(fitted, held, strict=True)]
        best = int(np.argmax(scores))
        rounds = int(outcomes[best].round)
        history = History(
            np.minimum(np.arange(1, rounds + 1) * self.steps_per_round, asked.n_steps),
            np.asarray(outcomes[best].elbos)[:rounds],
            np.asarray(outcomes[best].scores)[:rounds],
        )
        members, likelihoods = (tuple(part) for part in zip(*fitted, strict=True))
        return Fitted(
            members[best],
            likelihoods[best],
            scores[best],
            history,
            evidences[best],
            members,
            likelihoods,
            tuple(scores),
            unseen,
        )


@eqx.filter_jit
def _rescore(settings, model, data, key, held):
    return score_of(settings, model, data, key, held)


def _plain(leaf):
    """An array as files hold it: keys as the numbers they are."""
    return np.asarray(jr.key_data(leaf)).view(np.int32) if is_key(leaf) else leaf


def _like(leaf, array: np.ndarray):
    """An array from a file as the program has it."""
    if is_key(leaf):
        return jr.wrap_key_data(jnp.asarray(array.view(np.uint32)), impl=jr.key_impl(leaf))
    return jnp.asarray(array, dtype=leaf.dtype)


def _members(tree, n):
    """The trees that were piled up into one."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(n)]


def _report(callback, state, n_steps, settings):
    scores, rounds = np.atleast_1d(state.best_score), np.atleast_1d(state.round)
    best = int(np.argmax(scores))
    last = max(int(rounds[best]) - 1, 0)
    elbos, all_scores = (np.asarray(a).reshape(-1, settings.n_rounds)[best] for a in (state.elbos, state.scores))
    done = min(int(rounds[best]) * -(-n_steps // settings.n_rounds), n_steps)
    return callback(Progress(done, n_steps, float(elbos[last]), float(all_scores[last]), float(scores[best])))


def _check_outcome(scores, outcomes, learning_rate):
    lost = [i for i, score in enumerate(scores) if not math.isfinite(score)]
    gave_up = [i for i, outcome in enumerate(outcomes) if int(outcome.n_retries) > MAX_RETRIES]
    cut = f"the rate was cut to {RETRY_FACTOR**MAX_RETRIES:.0e} of what was asked"
    rate = "step size in the `optimiser`" if learning_rate is None else f"`learning_rate` than {learning_rate:g}"
    advice = (
        f"Try a lower {rate} ({cut}), standardised x and y, a smaller initial `sd` of the posterior, or more `jitter`."
    )
    if len(lost) == len(scores):
        raise Diverged(f"Training ended in NaN or infinity in every restart. {advice}")
    if lost or gave_up:
        warnings.warn(
            f"Training diverged in {len(set(lost + gave_up))} of {len(scores)} restarts; "
            f"the best sound state is kept. {advice}",
            RuntimeWarning,
            stacklevel=3,
        )


def _checked_networks(network):
    networks = [network] if isinstance(network, Network) else list(network)
    if not networks:
        raise ValueError("`network` must be a network or a list of at least one, got an empty list.")
    kinds = [(jax.tree.structure(n), [leaf.shape for leaf in jax.tree.leaves(n)]) for n in networks]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError("`network` must be a list of networks built from one skeleton and one list of layers.")
    return networks


def _check_counts(**counts):
    for name, value in counts.items():
        if not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")


def _check_settings(learning_rate, validation, folds, patience, n_networks):
    if patience is not None:
        _check_counts(patience=patience)
    if not (learning_rate > 0.0 and math.isfinite(learning_rate)):
        raise ValueError(f"`learning_rate` must be positive and finite, got {learning_rate!r}.")
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"`validation` must be at least 0 and below 1, got {validation!r}.")
    if folds and not (isinstance(folds, numbers.Integral) and 2 <= folds <= n_networks and validation == 0.0):
        raise ValueError(
            f"`folds` must be a whole number from 2 to the number of networks, {n_networks}, without `validation`, "
            f"got {folds!r}: each fold needs a restart that leaves it out."
        )
    if patience is not None and validation == 0.0:
        raise ValueError("`patience` needs `validation`: the ELBO of the training rows does not tell when to stop.")


def _inputs(network, x):
    """x as (n, p), checked; of a traced array only the shape can be."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    p = network.skeleton.n_inputs
    if x.ndim != 2 or x.shape[1] != p:
        raise ValueError(f"`x` must have the shape (n, {p}), got {x.shape}.")
    if not len(x):
        raise ValueError("`x` must have at least one row, got none.")
    if isinstance(x, Tracer):
        return x
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool):
        raise ValueError(f"`x` must be numbers, got values of type {x.dtype}.")
    if not np.isfinite(x).all():
        raise ValueError(f"`x` must be finite, got {int((~np.isfinite(x)).sum())} missing or infinite values.")
    return x


def _arrays(network, likelihood, x, y) -> tuple[Any, Any]:
    """x as (n, p) and y as (n, k), checked; of traced arrays only the shapes can be."""
    x = _inputs(network, x)
    if len(x) < 2:
        raise ValueError(f"`x` must have at least 2 rows, got {len(x)}.")
    y = (y[:, None] if y.ndim == 1 else y) if isinstance(y, Tracer) else likelihood.check(np.asarray(y))
    if len(y) != len(x):
        raise ValueError(f"`y` must have one row per row of `x`, {len(x)}, got {len(y)}.")
    wanted = likelihood.n_latent(y.shape[1])
    if network.n_outputs != wanted:
        raise ValueError(
            f"The network must have {wanted} outputs for {type(likelihood).__name__} and {y.shape[1]} column(s) of "
            f"`y`, got {network.n_outputs}: change the last width or the skeleton's outputs."
        )
    return x, y


def _weights(weight, shape):
    """Weights as (n, 1), or (n, k) where targets are weighted apart."""
    if weight is None:
        return np.ones((shape[0], 1), jnp.result_type(float))
    weight = weight if isinstance(weight, Tracer) else np.asarray(weight, dtype=jnp.result_type(float))
    weight = weight[:, None] if weight.ndim == 1 else weight
    if weight.shape not in ((shape[0], 1), shape):
        raise ValueError(f"`weight` must have the shape ({shape[0]},) or {shape}, got {weight.shape}.")
    if isinstance(weight, Tracer):
        return weight
    if not np.isfinite(weight).all() or (weight < 0.0).any() or not weight.any():
        raise ValueError("`weight` must be finite and not negative, with at least one weight above 0.")
    return weight
