"""The steps of a fit that do not depend on what is fitted: rows in, networks trained, and what to think of it all."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float
from sklearn.base import is_classifier
from threadpoolctl import threadpool_limits

from vertebra.effects.posterior import EnsembleSurface
from vertebra.estimators.calibration import LeftOut, doubt, left_out
from vertebra.estimators.diagnostics import coverage_words, summary, uneven_noise, worse_than_linear
from vertebra.estimators.evaluation import LEFT_OUT, cross_fitted, fit_linear
from vertebra.estimators.reading import Rows, TableEstimator, Targets, are_equal, canonical, target_names
from vertebra.inference.fitting import Fitted, Progress, fit, fit_stream
from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine import cluster
from vertebra.machine.checkpoint import Checkpoint
from vertebra.machine.checks import check_count, seed_of
from vertebra.machine.control import Control
from vertebra.machine.threads import cores
from vertebra.networks import schemes
from vertebra.networks.distributions import Gaussian as GaussianPosterior
from vertebra.networks.network import build
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.column import in_order
from vertebra.tables.folds import are_copies, runs_of
from vertebra.tables.parquet import as_parquet, is_stream
from vertebra.tables.passes import Known, StreamedRows, Training
from vertebra.tables.profile import profile
from vertebra.tables.weighting import Weighting
from vertebra.tables.windows import Windows

# What each scheme is built with. Widths d¹, …, d^{L−1} below the outputs.
SCHEMES: dict[str, dict[str, Any]] = {
    "mc_dropout": dict(widths=(24, 24), options=dict(rate=0.002), n_restarts=2),
    "mean_field": dict(widths=(16,), options={}, n_restarts=2),
    "random_features": dict(
        widths=(), options=dict(r=100, activation="erf", posterior=GaussianPosterior(spread=0.0)), n_restarts=1
    ),
    "deep_kernel_learning": dict(widths=(16, 24), options={}, n_restarts=4),
    "deep_random_features": dict(widths=(), options=dict(r=150, n_blocks=2, activation="erf"), n_restarts=1),
    "inducing_points": dict(widths=(), options=dict(r=40), n_restarts=1),
    "deep_ensemble": dict(widths=(64, 64, 64), options={}, n_restarts=16, folds=8, rate=1e-2, activation="erf"),
}
# Of the priors of an ensemble's members: which one suits is not known before.
SCALES = (3.0, 10.0, 30.0)
# Steps where no number is given: of an ensemble for so many passes over the rows, within limits.
N_STEPS, N_PASSES, FEWEST_STEPS, MOST_STEPS = 2000, 60, 5000, 20000
# Fits of fewer rows have matrices so small that threads of LAPACK's own cost more than they bring.
ROWS_FOR_THREADS = 3000
# Scores that conformal intervals are read off: a hundred above the level 0.999, and more would say no more.
MOST_CALIBRATED = 1e5
# Rows from which NumPy draws no more how many of equal ones chance chooses: there it is their share.
MOST_DRAWN = 1e9
# The share of rows that conformal intervals are calibrated on, and that early stopping watches.
CALIBRATION_SHARE, VALIDATION_SHARE = 0.2, 0.15
BATCH_SIZE = 128
# Restarts whose scores (log density per row) differ by more do not agree.
SAME_SCORE = 0.1


class TrainedEstimator(TableEstimator):
    """The steps of a fit that do not depend on what is fitted."""

    time_budget: float | int | None
    verbose: bool | int
    n_steps: int | None
    early_stopping: bool
    checkpoint: str | os.PathLike[str] | None

    def _check_settings(self, scheme: str, known: Sequence[str]) -> None:
        if scheme != "auto" and scheme not in known:
            raise ValueError(f'`scheme` must be "auto" or one of {", ".join(known)}, got {scheme!r}.')
        if self.n_steps is not None:
            check_count(n_steps=self.n_steps)

    def _control(self) -> Control:
        return Control(type(self).__name__, verbose=self.verbose, time_budget=self.time_budget)

    def _train(
        self,
        skeleton: Skeleton,
        scheme: str,
        widths: Sequence[int],
        likelihood: Likelihood,
        x,
        y,
        weight,
        control: Control,
        *,
        n_steps: int | None,
        stream: StreamedRows | None = None,
    ) -> Fitted:
        """Networks trained side by side, watched; with folds, where the scheme has some, as far as there are rows."""
        settings = SCHEMES[scheme]
        key = jr.key(seed_of(self.random_state))
        folds = min(settings.get("folds", 0), len(x))

        def network_of(key, member: int):
            # 8 folds, 3 scales: the two members that leave a part out differ in scale
            options = settings["options"] | ({"scale": SCALES[member % len(SCALES)]} if folds else {})
            return build(skeleton, getattr(schemes, scheme)(widths, **options), key=key, x=x)

        def watch(progress: Progress) -> bool:
            control.report(f"step {progress.step} of {progress.n_steps}, {progress.best_score:.3f} per row")
            return control.enough()

        if n_steps is None:
            passes = N_PASSES * (len(x) if stream is None else stream.n_rows) // BATCH_SIZE
            n_steps = min(max(passes, FEWEST_STEPS), MOST_STEPS) if folds else N_STEPS
        networks = [network_of(k, i) for i, k in enumerate(jr.split(jr.fold_in(key, 1), settings["n_restarts"]))]
        shared: Any = dict(
            key=key, n_steps=n_steps, learning_rate=settings.get("rate", 5e-3), folds=folds, callback=watch
        )
        if stream is not None:
            windows = Windows(stream, x, y, weight)
            kept = stream.training.checkpoint
            return fit_stream(networks, likelihood, windows, batch_size=BATCH_SIZE, checkpoint=kept, **shared)
        validation = VALIDATION_SHARE if self.early_stopping and not folds and len(x) >= 20 else 0.0
        return fit(
            networks,
            likelihood,
            x,
            y,
            weight=weight,
            batch_size=BATCH_SIZE,
            validation=validation,
            patience=5 if validation else None,
            checkpoint=None if self.checkpoint is None else f"{os.fspath(self.checkpoint)}.networks",
            **shared,
        )


class Outcome(NamedTuple):
    """What a fit leaves to be looked at: predictions of its rows, each left out in turn, and words about it."""

    left_out: Predictive | None
    notes: list[str]
    warnings: list[str]
    method: str = LEFT_OUT  # how they were left out
    rows: Any = None  # those that it looked at: all, or a sample of them
    linear: Any = None  # what linear models say of them, fold by fold; worked out where it is not known


def conclude(model: Any, meant: Weighting, weight: float, outcome: Outcome, n_classes: int = 0) -> None:
    """What the rows looked like, how well they are predicted, beside a linear model, and what to think of it.

    `weight` is that of all rows fitted; those that were looked at may be some of them.
    """
    n_levels = [len(column.levels) for column in model.schema_.columns]
    rows: Rows = outcome.rows
    n_rows = round(meant.n_rows)
    model._profile = profile(*rows, model.schema_.columns, n_classes)._replace(n_rows=n_rows, weight=weight)
    model._linear = fit_linear(*rows, n_levels, classes=n_classes)
    notes, warnings, figures = [*outcome.notes, *meant.notes], [*outcome.warnings, *meant.warnings], {}
    model.evaluation_ = None
    if outcome.left_out is not None:
        seed = seed_of(model.random_state)
        linear = outcome.linear
        if linear is None:
            linear = cross_fitted(*rows, n_levels, classes=n_classes, seed=seed)
        model.evaluation_ = model._evaluation(outcome.method, outcome.left_out, rows, linear)
        figures = dict(model.evaluation_.scores["model"])
        more = coverage_words(figures, float(rows.weight.sum()), model.target_names_)
        # with `conformal` these are not the intervals that it gives
        notes, warnings = notes + more[0], warnings + ([] if getattr(model, "conformal", False) else more[1])
        warnings += worse_than_linear(model.evaluation_.scores, model.target_names_)
        if not n_classes and model.likelihood_ == "gaussian":
            away = outcome.left_out.away((rows.y - model._y_mean) / model._y_scale)
            names = [column.name for column in model.schema_.columns]
            warnings += uneven_noise(away, rows.matrix, names, model.target_names_)
    model.diagnostics_ = summary(notes, warnings, figures)


def fit_regressor(model: Any, X, y, sample_weight, fit_rows: Callable[[Rows, StreamedRows | None], Outcome]) -> None:
    """Reads the table, and fits all rows; or with `conformal` some of them, and calibrates intervals on the others."""
    model._conformal = None
    if is_stream(X):
        if model.likelihood not in model._noises:
            raise ValueError(f"`likelihood` must be one of {', '.join(model._noises)}, got {model.likelihood!r}.")
        stream, known = _streamed(model, X, y, sample_weight)
        meant = known.weighting
        model._single = isinstance(y, str)
        stream.standard = model._standardise_streamed(known.targets)
        rows = Rows(*stream.taken(known.sample))
        if model.conformal and not len(known.held.numbers):
            raise ValueError("`conformal=True` needs rows to set aside, and the files have too few.")
        held = Rows(*stream.taken(known.held)) if model.conformal else None
    else:
        matrix, weight, meant = model._read(X, sample_weight)
        targets = model._targets(y, len(matrix))
        model.target_names_ = target_names(y)
        rows, held, stream = canonical(matrix, targets, weight), None, None
        if are_equal(rows):
            raise ValueError("`X` must have at least 2 different rows of weight above 0, got n_samples = 1.")
        if model.conformal:
            rows, held = _set_aside(rows, seed_of(model.random_state))
            meant = meant._replace(n_rows=meant.n_rows * float(rows.weight.sum() / weight.sum()))
    outcome = fit_rows(rows, stream)
    if model.conformal:
        predictive = model._predictive_of(model._encoding(held.matrix))
        scores = np.abs(predictive.away((held.y - model._y_mean) / model._y_scale))
        model._conformal = _in_order(scores, np.ones(len(scores)) if stream is not None else held.weight)
    conclude(model, meant, float(rows.weight.sum()) if stream is None else stream.weight, outcome)
    _finish(stream)


def _set_aside(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """The rows to fit, and those that intervals are calibrated on, by chance; the weight of these counts them.

    Of equal rows some may go to either side, unless they look like copies: a copy of a row that was fitted says nothing
    about new ones, so that all copies are one row.
    """
    run, _ = runs_of(rows.matrix, rows.y)
    first, weight = np.flatnonzero(np.diff(run, prepend=-1)), np.bincount(run, rows.weight)
    matrix, y = rows.matrix[first], rows.y[first]
    units = np.where(are_copies(matrix, y), 1.0, np.maximum(weight, 1.0)).astype(np.int64)
    n, n_out = int(units.sum()), round(CALIBRATION_SHARE * int(units.sum()))
    if n_out < 1 or n - n_out < 2:
        raise ValueError(f"`conformal=True` needs at least 4 rows, got {n}.")
    rng, out = np.random.default_rng(seed), np.zeros(len(units))
    if n == len(units):
        out[rng.permutation(n)[:n_out]] = 1.0
    elif n < MOST_DRAWN:
        out = rng.multivariate_hypergeometric(units, n_out, method="marginals").astype(float)
    else:
        out = np.round(CALIBRATION_SHARE * units)
    held = out > 0.0
    return canonical(matrix, y, weight * (1.0 - out / units)), Rows(matrix[held], y[held], out[held])


def _in_order(scores: Float[np.ndarray, "n k"], times: Float[np.ndarray, " n"]) -> Float[np.ndarray, "m k"]:
    """Scores in order, each as many times as rows of it were set aside; of very many, as many as decide."""
    m = int(min(times.sum(), MOST_CALIBRATED))
    columns = []
    for own in scores.T:
        order = np.argsort(own, kind="stable")
        upto = np.cumsum(times[order])
        places = np.searchsorted(upto, (np.arange(m) + 0.5) * (upto[-1] / m))
        columns.append(own[order][places])
    return np.stack(columns, axis=1)


def _streamed(model: Any, X, y, sample_weight) -> tuple[StreamedRows, Known]:
    """A table in files, after the first pass over it: its schema is the model's from here on."""
    targets = [y] if isinstance(y, str) else y
    if not isinstance(targets, list | tuple) or not all(isinstance(each, str) for each in targets):
        raise ValueError(f"`y` must name the target, a column of the files, got {type(y).__name__}.")
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise ValueError(f"`sample_weight` must name a column of the files, got {type(sample_weight).__name__}.")
    is_class = is_classifier(model)
    if is_class and len(targets) > 1:
        raise ValueError(f"`y` must name one target for classes, got {len(targets)}.")
    table = as_parquet(X)
    settings = {k: v for k, v in model.get_params(deep=False).items() if k not in ("verbose", "checkpoint")}
    about = {"model": type(model).__name__, "settings": settings, "table": table.about(), "y": y, "w": sample_weight}
    about["processes"] = cluster.place()[1]
    if model.time_budget is not None and cluster.place()[1] > 1:
        raise ValueError("`time_budget` is for one process: several would not end together.")
    path = model.checkpoint
    training = Training(
        table,
        targets,
        sample_weight,
        is_class=is_class,
        feature_types=model.feature_types,
        weights=model.weights,
        conformal=getattr(model, "conformal", False),
        seed=seed_of(model.random_state),
        checkpoint=None if path is None else Checkpoint(cluster.own_path(path), about),
    )
    with model._control() as control:
        training.report = control.report
        known = training.survey()
    model._learned(known.schema())
    model.target_names_ = list(targets)
    return StreamedRows(training, known, model.schema_, lambda y: y), known


def _finish(stream: StreamedRows | None) -> None:
    """A fit that is done needs no checkpoint."""
    if stream is not None and stream.training.checkpoint is not None:
        stream.training.checkpoint.remove()


def fit_classifier(
    model: Any, X, y, sample_weight, fit_rows: Callable[[Rows, StreamedRows | None, Targets], Outcome]
) -> None:
    """Reads the table and fits its classes."""
    if is_stream(X):
        stream, known = _streamed(model, X, y, sample_weight)
        meant = known.weighting
        model.classes_ = np.array(in_order(known.targets[0].levels))
        stream.training.classes(model.classes_.tolist())
        rows = Rows(*stream.taken(known.sample))
    else:
        matrix, weight, meant = model._read(X, sample_weight)
        codes = model._classes(y, len(matrix))
        model.target_names_ = target_names(y)
        rows, stream = canonical(matrix, codes[:, None].astype(float), weight), None
    if len(model.classes_) < 2 or (stream is None and len(np.unique(rows.y)) < 2):
        raise ValueError("`y` must have at least 2 classes among the rows of weight above 0, got 1 class.")
    n_classes = len(model.classes_)
    shown = np.arange(1 if n_classes == 2 else 0, n_classes)
    centre = rows.weight @ (rows.y == shown) / rows.weight.sum()
    spread = np.sqrt(np.maximum(centre * (1.0 - centre), 1e-12))
    # standardised indicators of the classes
    targets = Targets(rows.y, rows.weight, lambda codes: ((codes == shown) - centre) / spread)
    outcome = fit_rows(rows, stream, targets)
    conclude(model, meant, float(rows.weight.sum()) if stream is None else stream.weight, outcome, n_classes)
    _finish(stream)


def ensemble_of(
    fitted: Fitted, x, y, weight, *, about: tuple[int, str, Sequence[int]]
) -> tuple[EnsembleSurface, LeftOut]:
    """The networks as an ensemble, and what is said of every row by those that had not seen it; `about` is the rest."""
    seed, scheme, widths = about
    ensemble = EnsembleSurface(fitted.networks, np.ones(y.shape[1]), seed, scheme, tuple(widths))
    said = left_out(*ensemble.members(x), np.stack(fitted.unseen))
    factor = doubt(said, y, weight)
    return ensemble._replace(factor=factor), said._replace(variance=factor * said.variance)


def network_words(fitted: Fitted) -> tuple[list[str], list[str]]:
    """What went well in a training, and what to look at."""
    notes, warnings = [f"trained for {int(fitted.history.step[-1]) if len(fitted.history.step) else 0} steps."], []
    share_rows = all(np.array_equal(out, fitted.unseen[0]) for out in fitted.unseen)
    if len(fitted.scores) > 1 and share_rows:
        apart = float(np.ptp(fitted.scores))
        words = f"{len(fitted.scores)} restarts ended within {apart:.3f} per row of each other"
        (warnings if apart > SAME_SCORE else notes).append(words + ("." if apart <= SAME_SCORE else ": train longer."))
    late = fitted.history.elbo[-5:]
    if len(late) == 5 and late[-1] - late[0] > 0.05 * max(abs(late[-1]), 1.0):
        warnings.append("the objective was still rising at the end: give `n_steps` more.")
    return notes, warnings


def threads(n_rows: int):
    """Half the cores for LAPACK: its threads wait by spinning, and where others work beside them they thrash.

    Of the cores that the process may use: one that is held to a core of sixteen must not start eight threads on it.
    """
    n_threads = max(cores() // 2, 1) if n_rows >= ROWS_FOR_THREADS else 1
    return threadpool_limits(n_threads, user_api="blas")
