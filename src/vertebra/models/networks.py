"""Networks of a fit: what each scheme is built with, how long it is trained, and what to think of the training."""

import os
from functools import partial
from typing import NamedTuple, NotRequired, TypedDict

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from vertebra.effects.ensemble import EnsemblePosterior
from vertebra.inference.fitting import fit, fit_stream
from vertebra.inference.outcome import Fitted, Progress
from vertebra.inference.run import Callback
from vertebra.likelihoods import Likelihood
from vertebra.machine.control import Control
from vertebra.machine.programs import keep_programs
from vertebra.models.calibration import LeftOut, chosen, doubt, doubt_by_density, left_out, log_disagreement
from vertebra.models.findings import Finding, Kind, Severity, notes
from vertebra.models.settings import Settings
from vertebra.networks import schemes
from vertebra.networks.build import build
from vertebra.networks.posteriors import Gaussian as GaussianPosterior
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.streamed import StreamedRows
from vertebra.tables.windows import Windows


class Usual(TypedDict):
    """What a scheme is built and trained with."""

    widths: tuple[int, ...]  # d¹, …, d^{L−1} below the outputs
    options: dict[str, object]  # of the scheme
    n_restarts: int
    activation: str  # of the skeleton
    folds: NotRequired[int]
    rate: NotRequired[float]
    fewest: NotRequired[tuple[int, int]]  # steps: of numbers, and of classes, which are learned by heart sooner
    scales: NotRequired[tuple[float, ...]]  # of priors, one for each run through the folds; of them some are kept


SCHEMES = {
    "mc_dropout": Usual(widths=(24, 24), options=dict(rate=0.002), n_restarts=2, activation="tanh"),
    "mean_field": Usual(widths=(16,), options={}, n_restarts=2, activation="tanh"),
    "random_features": Usual(
        widths=(),
        options=dict(r=100, activation="erf", posterior=GaussianPosterior(spread=0.0)),
        n_restarts=1,
        activation="tanh",
    ),
    "deep_kernel_learning": Usual(widths=(16, 24), options={}, n_restarts=4, activation="tanh"),
    "deep_random_features": Usual(
        widths=(), options=dict(r=150, n_blocks=2, activation="erf"), n_restarts=1, activation="tanh"
    ),
    "inducing_points": Usual(widths=(), options=dict(r=40), n_restarts=1, activation="tanh"),
    "deep_ensemble": Usual(widths=(64, 64, 64), options={}, n_restarts=16, folds=8, rate=1e-2, activation="erf"),
    # 8 folds under each of three priors
    "tabular": Usual(
        widths=(8, 64, 64),
        options={},
        n_restarts=24,
        folds=8,
        rate=1e-2,
        activation="silu",
        fewest=(2000, 600),
        scales=(1.0, 3.0, 10.0),
    ),
}
# What is tried to say what networks would be worth: a third of the networks, half of the steps.
TRIED: Usual = SCHEMES["tabular"] | Usual(
    widths=(8, 64, 64), options={}, n_restarts=8, activation="silu", folds=4, fewest=(1000, 300), scales=(3.0, 10.0)
)
# Those of which many are averaged, each without some of the rows, and those on a node for every input.
ENSEMBLES, EMBEDDED = ("deep_ensemble", "tabular"), ("tabular",)
# What can be built on clusters and taken apart into terms.
SCHEMES_OF_TERMS = [name for name in SCHEMES if name not in ENSEMBLES]
SCHEMES_OF_CLASSES = [name for name in SCHEMES if name != "deep_ensemble"]
# Of the priors of an ensemble's members: which one suits is not known before.
SCALES = (3.0, 10.0, 30.0)
# Adam's rate where a scheme has none of its own.
RATE = 5e-3
# Steps where no number is given: of an ensemble for so many passes over the rows, within limits.
N_STEPS, N_PASSES, FEWEST_STEPS, MOST_STEPS = 2000, 60, 5000, 20000
# The share of rows that early stopping watches, the fewest rows of which some can be spared for it, and the rounds
# without a better score after which it stops: round numbers.
VALIDATION_SHARE, ROWS_TO_VALIDATE, PATIENCE = 0.15, 20, 5
# Rows of a step: smaller batches are too noisy for the rates above, larger ones cost more than they bring.
BATCH_SIZE = 128
# Restarts whose scores (log density per row) differ by more do not agree.
SAME_SCORE = 0.1
# The objective still rises if its last five rounds gained more than this share of it.
STILL_RISING = 0.05


class Shape(NamedTuple):
    """The network of a fit: a scheme on a skeleton, and the widths of its layers."""

    scheme: str
    skeleton: Skeleton
    widths: tuple[int, ...]


class _Shared(TypedDict):
    """What training takes of rows in memory and in files alike."""

    key: PRNGKeyArray
    n_steps: int
    learning_rate: float
    folds: int
    callback: Callback
    batch_size: int


def train(
    settings: Settings,
    shape: Shape,
    likelihood: Likelihood,
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    control: Control,
    *,
    n_steps: int | None,
    stream: StreamedRows | None = None,
    usual: Usual | None = None,
) -> Fitted:
    """Networks trained side by side, watched; with folds, where the scheme has some, as far as there are rows."""
    keep_programs()
    usual, key = usual or SCHEMES[shape.scheme], jr.key(settings.seed)
    folds = min(usual.get("folds", 0), len(x))

    def network_of(key, member: int):
        # 8 folds, 3 scales: the members that leave a part out differ in scale
        scales = usual.get("scales")
        scale = SCALES[member % len(SCALES)] if scales is None else scales[member * len(scales) // usual["n_restarts"]]
        options = usual["options"] | ({"scale": scale} if folds else {})
        return build(shape.skeleton, getattr(schemes, shape.scheme)(shape.widths, **options), key=key, x=x)

    def watch(progress: Progress) -> bool:
        control.report(f"step {progress.step} of {progress.n_steps}, {progress.best_score:.3f} per row")
        return control.enough()

    if n_steps is None:
        passes = N_PASSES * (len(x) if stream is None else stream.n_rows) // BATCH_SIZE
        fewest = usual.get("fewest", (FEWEST_STEPS, FEWEST_STEPS))[int(likelihood.has_classes)]
        n_steps = min(max(passes, fewest), MOST_STEPS) if folds else N_STEPS
    networks = [network_of(k, i) for i, k in enumerate(_keys(key, usual["n_restarts"]))]
    shared = _Shared(
        key=key,
        n_steps=n_steps,
        learning_rate=usual.get("rate", RATE),
        folds=folds,
        callback=watch,
        batch_size=BATCH_SIZE,
    )
    if stream is not None:
        windows = Windows(stream, x, y, weight)
        return fit_stream(networks, likelihood, windows, checkpoint=stream.training.checkpoint, **shared)
    is_watched = settings.early_stopping and not folds and len(x) >= ROWS_TO_VALIDATE
    return fit(
        networks,
        likelihood,
        x,
        y,
        weight=weight,
        validation=VALIDATION_SHARE if is_watched else 0.0,
        patience=PATIENCE if is_watched else None,
        checkpoint=None if settings.checkpoint is None else f"{os.fspath(settings.checkpoint)}.networks",
        **shared,
    )


@partial(jax.jit, static_argnums=1)
def _keys(key: PRNGKeyArray, n: int) -> tuple[PRNGKeyArray, ...]:
    """One for each member, by one program."""
    return tuple(jr.split(jr.fold_in(key, 1), n))


def ensemble_of(
    fitted: Fitted, shape: Shape, seed: int, x, y, weight, *, usual: Usual | None = None
) -> tuple[EnsemblePosterior, LeftOut, Float[np.ndarray, "n k"]]:
    """The networks as an ensemble, what those say of every row that had not seen it, and their log disagreement."""
    usual, unseen = usual or SCHEMES[shape.scheme], np.stack(fitted.unseen)
    everyone = EnsemblePosterior(
        fitted.networks, np.ones(fitted.networks[0].n_outputs), seed, shape.scheme, shape.widths, usual["options"]
    )
    means, variances = everyone.members(x)
    kept, warmth = np.arange(len(means)), 1.0
    if "scales" in usual:
        kept, warmth = chosen(means, unseen, len(usual["scales"]), fitted.likelihood, y, weight)
    networks = tuple(fitted.networks[i] for i in kept)
    if warmth != 1.0:
        networks = tuple(network.times(warmth) for network in networks)
    said = left_out(warmth * means[kept], warmth**2 * variances[kept], unseen[kept])
    factor = doubt_by_density(said, fitted.likelihood, y, weight)
    if factor is None:
        factor = doubt(said, y, weight)
    ensemble = everyone._replace(networks=networks, factor=factor)
    log_apart = log_disagreement(warmth * means[kept], unseen[kept])
    return ensemble, said._replace(variance=factor * said.variance), log_apart


def training(fitted: Fitted) -> list[Finding]:
    """What went well in a training, and what to look at."""
    n_steps = int(fitted.history.step[-1]) if len(fitted.history.step) else 0
    found = notes(Kind.FITTING, [f"trained for {n_steps} steps."])
    share_rows = all(np.array_equal(out, fitted.unseen[0]) for out in fitted.unseen)
    if len(fitted.scores) > 1 and share_rows:
        apart = float(np.ptp(fitted.scores))
        words = f"{len(fitted.scores)} restarts ended within {apart:.3f} per row of each other"
        found += [
            Finding(Kind.FITTING, Severity.WARNING, f"{words}:", apart, "train longer.")
            if apart > SAME_SCORE
            else Finding(Kind.FITTING, Severity.NOTE, f"{words}.", apart)
        ]
    late = fitted.history.elbo[-5:]
    if len(late) == 5 and late[-1] - late[0] > STILL_RISING * max(abs(late[-1]), 1.0):
        words = "the objective was still rising at the end:"
        found.append(Finding(Kind.FITTING, Severity.WARNING, words, float(late[-1] - late[0]), "give `n_steps` more."))
    return found
