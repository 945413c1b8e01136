"""One training run: restarts from their first state to what is made of their last."""

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key
from threadpoolctl import ThreadpoolController

from vertebra.inference.conjugate import MAX_FEATURES, has_closed_form, n_joint_features
from vertebra.inference.outcome import Diverged, Fitted, History, Progress
from vertebra.inference.rows import Data, Scored
from vertebra.inference.settings import Settings
from vertebra.inference.training import (
    ADAM,
    MAX_RETRIES,
    RETRY_FACTOR,
    Plan,
    Schedule,
    State,
    advance,
    score_of,
    start,
)
from vertebra.likelihoods import Likelihood
from vertebra.machine import cluster
from vertebra.machine.checkpoint import Checkpoint, Entry
from vertebra.machine.devices import apart, everywhere, home, is_key, mesh_for, placed
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision, trainable
from vertebra.networks.stack import pile

Tree = TypeVar("Tree")
Callback = Callable[[Progress], bool | None]
# The closed form of the last layer, of a network, its noise, and the fold to leave out; and the evidence per row.
ClosedForm = Callable[[Network, Likelihood, int], tuple[Network, Likelihood, float]]


class Run:
    """Restarts that are trained side by side."""

    def __init__(
        self,
        networks: list[Network],
        likelihood: Likelihood,
        keys: Key[Array, " keys"],
        settings: Settings,
        *,
        batch_size: int,
    ):
        self.networks, self.likelihood, self.keys, self.settings = networks, likelihood, keys, settings
        # it is the best q of the plain ELBO
        exact = has_closed_form(networks[0], likelihood) and _kl_weight_of(settings) is None
        self.last_layer = settings.last_layer
        if self.last_layer is None:
            self.last_layer = exact and n_joint_features(networks[0]) <= MAX_FEATURES
        if self.last_layer and not exact:
            raise ValueError(
                "`last_layer=True` needs a top layer with a full Gaussian posterior and a Normal prior, nothing random "
                "below it, the Gaussian likelihood and no `kl_weight`: use None to have the closed form where there is "
                "one."
            )
        self.held = placed(np.arange(len(networks)) % max(settings.folds, 1), jnp.int32)
        mesh, self.shared = mesh_for(len(networks), batch_size)
        whole = lambda number: placed(number, jnp.int32)  # noqa: E731
        self.plan = Plan(
            n_steps=whole(settings.n_steps),
            n_rounds=whole(-(-settings.n_steps // settings.steps_per_round)),
            steps_per_round=whole(settings.steps_per_round),
            learning_rate=_rate_of(settings),
            kl_weight=_kl_weight_of(settings),
            patience=whole(settings.n_rounds if settings.patience is None else settings.patience),
            batch_size=batch_size,
            n_draws=settings.n_draws,
            room=settings.n_rounds,
            steps_room=settings.n_rounds * settings.steps_per_round if settings.every_step else None,
            validates=settings.validates,
            keeps_last=settings.folds > 0,
            stacked=len(networks) > 1,
            optimiser=ADAM if settings.optimiser is None else settings.optimiser,
            mesh=mesh,
        )
        models = [(member, likelihood) for member in networks]
        model = pile(models) if self.plan.stacked else models[0]
        params, self.rest = eqx.partition(model, trainable(model))
        mine = (keys[1:], self.held) if self.plan.stacked else (keys[1], self.held[0])
        self.state: State = start(self.plan, params, *mine)
        self._is_resumed = False
        self._kept: Checkpoint | None = None  # what the run goes on from

    def about(self, *arrays: np.ndarray) -> dict[str, object]:
        """What tells this run from another: data, settings, seeds."""
        leaves = [*arrays, jr.key_data(self.keys), *(a for a in jax.tree.leaves(self.networks) if eqx.is_array(a))]
        digest = hashlib.sha256()
        for leaf in leaves:
            array = np.ascontiguousarray(jr.key_data(leaf) if isinstance(leaf, jax.Array) and is_key(leaf) else leaf)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        about = {"arrays": digest.hexdigest(), "settings": self.settings.record}
        return {**about, "likelihood": type(self.likelihood).__name__}

    def resumed(self, kept: Checkpoint | None) -> int:
        """Goes on where a run before this one was; returns how many rounds are done, the diverged ones included."""
        self._is_resumed = True
        entry = None if kept is None else kept.get("training")
        # one process keeps the state, which all share
        leaves, shape = jax.tree.flatten(self.state)
        blank = [_plain(leaf) for leaf in leaves]
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
        state: State = jax.tree.unflatten(jax.tree.structure(self.state), found)
        most = self.settings.n_rounds
        counts = [
            ("turn", state.turn, most + MAX_RETRIES),
            ("round", state.round, most),
            ("best_round", state.best_round, most),
            ("n_retries", state.n_retries, MAX_RETRIES + 1),
        ]
        is_sound = {name: np.min(count) >= 0 and np.max(count) <= limit for name, count, limit in counts}
        is_sound["held"] = np.array_equal(np.ravel(state.held), np.ravel(self.held))
        is_sound["rate_factor"] = np.all((state.rate_factor > 0.0) & (state.rate_factor <= 1.0))
        is_sound["best_score"] = not np.any(np.isnan(state.best_score) | (state.best_score == np.inf))
        for name, tree in (("params", state.params), ("best", state.best)):
            is_sound[name] = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))
        is_sound["optimiser"] = not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(state.optimiser))
        if wrong := [name for name, holds in is_sound.items() if not holds]:
            raise kept.bad(f"the state's {', '.join(wrong)} cannot be those of a run of {most} rounds")
        self._kept = kept
        return found

    def keep(self, kept: Checkpoint) -> None:
        """Writes the whole state down: parameters, optimiser, keys, and where in the data it is."""
        kept.put("training", {}, {str(k): _plain(leaf) for k, leaf in enumerate(jax.tree.leaves(self.state))})

    def to_the_end(
        self, data_of: Callable[[int], Data], callback: Callback | None, kept: Checkpoint | None = None
    ) -> State:
        """Round after round, or all at once where nobody looks at them."""
        if kept is not None and not self._is_resumed:
            self.resumed(kept)
        mesh = self.plan.mesh
        spread = apart if self.shared == "members" else everywhere
        state, rest, plan = spread(self.state, mesh), spread(self.rest, mesh), everywhere(self.plan, mesh)
        most, done = self.settings.n_rounds + MAX_RETRIES, int(np.max(np.asarray(self.state.turn)))
        stepwise = callback is not None or kept is not None or self._is_resumed
        blas = ThreadpoolController()  # found once: looking for the libraries takes longer than a short round
        for until in range(done + 1, most + 1) if stepwise else [most]:
            if not np.any(np.asarray(state.active)):
                break
            data = data_of(until - 1)
            # XLA shares the work out among the cores: threads of LAPACK's own would fight it for them.
            with blas.limit(limits=1, user_api="blas"), cluster.together(f"training, round {until}"):
                state = advance(plan, state, rest, data, placed(until, jnp.int32))
                jax.block_until_ready(state)
            self.state = state
            if kept is not None and cluster.is_first() and kept.is_due:
                self.keep(kept)
            if callback and callback(self._progress(state)):
                break
        return home(state, mesh)

    def _progress(self, state: State) -> Progress:
        """How far the restart with the best score has come."""
        scores, rounds = np.atleast_1d(state.best_score), np.atleast_1d(state.round)
        best = int(np.argmax(scores))
        last = max(int(rounds[best]) - 1, 0)
        elbos, all_scores = (np.asarray(a).reshape(-1, self.plan.room)[best] for a in (state.elbos, state.scores))
        n_steps = self.settings.n_steps
        done = min(int(rounds[best]) * self.settings.steps_per_round, n_steps)
        return Progress(done, n_steps, float(elbos[last]), float(all_scores[last]), float(scores[best]))

    def outcome(self, state: State, scored: Scored, fold: Int[np.ndarray, " n"], exactly: ClosedForm) -> Fitted:
        """The best state of every restart, its last layer in closed form where there is one, and the best of all."""
        settings, held, n = self.settings, np.asarray(self.held), len(self.networks)
        outcomes, rests = (_members(state, n), _members(self.rest, n)) if self.plan.stacked else ([state], [self.rest])
        scores = [float(outcome.best_score) for outcome in outcomes]
        _check_outcome(scores, outcomes, settings)
        fitted = [eqx.combine(outcome.best, part) for outcome, part in zip(outcomes, rests, strict=True)]
        alone = self.plan._replace(mesh=None)
        if self._kept is not None:
            # the best state may be one that a file gave: it must be one that says something of rows
            keys = [jr.split(outcome.key)[1] for outcome in outcomes]
            again = [_rescore(alone, f, scored, key, k) for f, key, k in zip(fitted, keys, held, strict=True)]
            if not all(np.isfinite(score) for score, said in zip(again, scores, strict=True) if math.isfinite(said)):
                raise self._kept.bad("the state's best network says nothing finite")
        evidences: Sequence[float | None] = [None] * n
        if self.last_layer:
            finished = [exactly(f, noise, int(k)) for (f, noise), k in zip(fitted, held, strict=True)]
            fitted = [(f, noise) for f, noise, _ in finished]
            evidences = [e for *_, e in finished]
            scores = [float(_rescore(alone, f, scored, self.keys[0], k)) for f, k in zip(fitted, held, strict=True)]
        best = int(np.argmax(scores))
        rounds = int(outcomes[best].round)
        history = History(
            np.minimum(np.arange(1, rounds + 1) * settings.steps_per_round, settings.n_steps),
            np.asarray(outcomes[best].elbos)[:rounds],
            np.asarray(outcomes[best].scores)[:rounds],
            self._steps(outcomes[best]),
        )
        networks, likelihoods = (tuple(part) for part in zip(*fitted, strict=True))
        return Fitted(
            network=networks[best],
            likelihood=likelihoods[best],
            score=scores[best],
            history=history,
            evidence=evidences[best],
            networks=networks,
            likelihoods=likelihoods,
            scores=tuple(scores),
            unseen=tuple(fold == int(k) for k in held),
        )

    def _steps(self, state: State) -> Float[np.ndarray, " steps"] | None:
        """The ELBO of every step that was asked for, where each is kept."""
        done = min(int(state.round) * self.settings.steps_per_round, self.settings.n_steps)
        return None if state.steps is None else np.asarray(state.steps)[:done]


def _rate_of(settings: Settings) -> Float[Array, ""] | Schedule:
    if callable(settings.learning_rate):
        return settings.learning_rate
    return in_working_precision(settings.learning_rate if settings.optimiser is None else 1.0)


def _kl_weight_of(settings: Settings) -> Float[Array, ""] | Schedule | None:
    """None where it is 1: the program without it."""
    weight = settings.kl_weight
    return weight if callable(weight) else None if weight == 1.0 else in_working_precision(weight)


@eqx.filter_jit
def _rescore(plan, model, scored, key, held):
    return score_of(plan, model, scored, key, held)


def _plain(leaf: Array) -> np.ndarray:
    """An array as files hold it: keys as the numbers they are."""
    return np.asarray(jr.key_data(leaf)).view(np.int32) if is_key(leaf) else np.asarray(leaf)


def _like(leaf: Array, array: np.ndarray) -> Array:
    """An array from a file as the program has it."""
    if is_key(leaf):
        return jr.wrap_key_data(jnp.asarray(array.view(np.uint32)), impl=jr.key_impl(leaf))
    return jnp.asarray(array, dtype=leaf.dtype)


def _members(tree: Tree, n: int) -> list[Tree]:
    """The trees that were piled up into one."""
    # on the host: each of them would be a program
    leaves, shape = jax.tree.flatten(tree)
    hosted = [np.asarray(jr.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]

    def part(leaf: Array, whole: np.ndarray, i: int) -> Array:
        return jr.wrap_key_data(placed(whole[i]), impl=jr.key_impl(leaf)) if is_key(leaf) else placed(whole[i])

    each = [[part(leaf, whole, i) for leaf, whole in zip(leaves, hosted, strict=True)] for i in range(n)]
    return [jax.tree.unflatten(shape, own) for own in each]


def _check_outcome(scores: list[float], outcomes: list[State], settings: Settings) -> None:
    lost = [i for i, score in enumerate(scores) if not math.isfinite(score)]
    gave_up = [i for i, outcome in enumerate(outcomes) if int(outcome.n_retries) > MAX_RETRIES]
    cut = f"the rate was cut to {RETRY_FACTOR**MAX_RETRIES:.0e} of what was asked"
    own = settings.learning_rate
    rate = "schedule as the `learning_rate`" if callable(own) else f"`learning_rate` than {own:g}"
    if settings.optimiser is not None:
        rate = "step size in the `optimiser`"
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
