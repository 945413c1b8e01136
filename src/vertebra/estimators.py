"""scikit-learn estimators: Additive… find a sum of terms and say which are real; Skeleton… fit any skeleton.

Effects are components under the product of the inputs' marginals, also where inputs are correlated.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from vertebra import schemes
from vertebra.addnn import fit_additive
from vertebra.control import Control
from vertebra.diagnostics import check_memory, concurvity, coverage_words, summary, uneven_noise, worse_than_linear
from vertebra.distributions import Gaussian as GaussianPosterior
from vertebra.evaluation import LEFT_OUT, cross_fitted, fit_linear
from vertebra.explanation import Explanations
from vertebra.inference import Fitted, Progress, fit
from vertebra.likelihoods import Likelihood
from vertebra.network import build
from vertebra.polynomials import Term
from vertebra.prediction import LIKELIHOODS, ClassifierPredictions, RegressorPredictions
from vertebra.predictive import Predictive
from vertebra.profile import profile
from vertebra.skeleton import Skeleton, additive, chain
from vertebra.sparsity import clusters_of, group_lasso_path
from vertebra.surface import NetworkSurface, TermSurface
from vertebra.tabular import (
    MOST_LEVELS,
    Rows,
    TableEstimator,
    canonical,
    check_count,
    first_direction,
    marginal_rows,
    seed_of,
    target_names,
)
from vertebra.working import Classes, Counts, HeavyTails, Plain, UnevenNoise, Working

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
}
# Fits of fewer rows have matrices so small that threads of LAPACK's own cost more than they bring.
ROWS_FOR_THREADS = 3000
# The share of rows that conformal intervals are calibrated on, and that early stopping watches.
CALIBRATION_SHARE, VALIDATION_SHARE = 0.2, 0.15
# Restarts whose scores (log density per row) differ by more do not agree.
SAME_SCORE = 0.1


class _Base(TableEstimator):
    """The steps of a fit that do not depend on what is fitted."""

    time_budget: float | int | None
    verbose: bool | int
    n_steps: int
    early_stopping: bool

    def _check_settings(self, scheme: str) -> None:
        if scheme != "auto" and scheme not in SCHEMES:
            raise ValueError(f'`scheme` must be "auto" or one of {", ".join(SCHEMES)}, got {scheme!r}.')
        check_count(n_steps=self.n_steps)

    def _control(self) -> Control:
        return Control(type(self).__name__, verbose=self.verbose, time_budget=self.time_budget)

    def _train(self, network_of: Callable[[Any], Any], n_restarts: int, likelihood: Likelihood, x, y, weight, control):
        """The best of some networks trained side by side, watched."""
        key = jr.key(seed_of(self.random_state))
        networks = [network_of(k) for k in jr.split(jr.fold_in(key, 1), n_restarts)]

        def watch(progress: Progress) -> bool:
            control.report(f"step {progress.step} of {progress.n_steps}, {progress.best_score:.3f} per row")
            return control.enough()

        validation = VALIDATION_SHARE if self.early_stopping and len(x) >= 20 else 0.0
        return fit(
            networks,
            likelihood,
            x,
            y,
            key=key,
            weight=weight,
            n_steps=self.n_steps,
            learning_rate=5e-3,
            validation=validation,
            patience=5 if validation else None,
            callback=watch,
        )


class _Additive(Explanations, _Base):
    """What the additive regressor and classifier share."""

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Any] | None = None,
        feature_types: Mapping | Sequence | None = None,
        n_steps: int = 4000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        self.scheme = scheme
        self.structure = structure
        self.n_subnetworks = n_subnetworks
        self.clusters = clusters
        self.feature_types = feature_types
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _check_additive(self) -> None:
        self._check_settings(self.scheme)
        if self.structure not in ("tests", "group_lasso"):
            raise ValueError(f'`structure` must be "tests" or "group_lasso", got {self.structure!r}.')
        check_count(n_subnetworks=self.n_subnetworks)

    def _fit_additive(
        self,
        rows: Rows,
        targets: Float[np.ndarray, "n k"],
        working_of: Callable[[Float[np.ndarray, " n"]], Working],
        likelihood: Likelihood,
        y: Float[np.ndarray, "n m"],
    ) -> "_Outcome":
        """Finds the terms in closed form, and fits the scheme's network on their clusters where one is asked for.

        `targets` (standardised) is what categories of many levels and the group lasso look at, `y` what a network fits.
        """
        n, p = rows.matrix.shape
        check_memory(8.0 * (2.0 * n * p * 55 + 6 * 3200.0**2), "This fit")
        given = self._clusters_given()
        if given is None and self.warm_start and hasattr(self, "_found"):
            given = [tuple(term) for term in self._found]
        seed = seed_of(self.random_state)
        direction = first_direction(targets, rows.weight)
        with self._control() as control, _threads(n):
            within = None
            if self.structure == "group_lasso" and given is None:
                control.report("fitting a path of group-lasso penalties")
                x, _ = self._encode(rows, direction, most_levels=0, fill=True)
                within = self._group_lasso(x, targets)
            x, n_levels = self._encode(rows, direction, most_levels=MOST_LEVELS, fill=False)
            found = fit_additive(
                x,
                working_of(rows.weight),
                rows.weight,
                n_levels=n_levels,
                rng=np.random.default_rng(seed),
                report=control.report,
                clusters=given,
                within=within,
                enough=control.enough,
            )
            self._structures, self._likelihood, self._found = found.structures, found.likelihood, found.clusters
            self._surface: Any = TermSurface(found.terms, seed)
            names = self._names()
            self.clusters_ = [tuple(names[i] for i in cluster) for cluster in found.clusters]
            self._known = {}
            notes, warnings = ["fitted in closed form: nothing was trained by steps of a gradient."], []
            predictive: Predictive | None = Predictive(self._likelihood, *found.left_out)
            if self.scheme != "auto" and found.clusters:
                control.report(f"fitting {self.scheme} on {len(found.clusters)} clusters")
                x, _ = self._encode(rows, direction, most_levels=0, fill=True)
                fitted = self._fit_scheme(found.clusters, likelihood, x, y, rows.weight, control)
                notes, warnings = _network_words(fitted)
                predictive = None
        acting = sorted({i for cluster in found.clusters for i in cluster})
        warnings += concurvity(rows.matrix, names, acting)
        if control.ended:
            warnings.append(f"{control.ended}: some terms may not have been looked for.")
        if not found.clusters:
            notes.append("no input was found to act: predictions are the mean.")
        return _Outcome(predictive, notes, warnings)

    def _fit_scheme(self, clusters, likelihood: Likelihood, x, y, weight, control: Control) -> Fitted:
        settings = SCHEMES[self.scheme]
        widths = (*settings["widths"], likelihood.n_latent(y.shape[1]))
        layers = getattr(schemes, self.scheme)(widths, **settings["options"])
        skeleton = additive(x.shape[1], clusters=clusters, depth=len(layers))
        fitted = self._train(
            lambda key: build(skeleton, layers, key=key, x=x), settings["n_restarts"], likelihood, x, y, weight, control
        )
        rows = marginal_rows(x, weight)
        self._surface = NetworkSurface(fitted.network, rows, seed_of(self.random_state), self.scheme, widths)
        self._likelihood = fitted.likelihood
        return fitted

    def _group_lasso(self, x, targets) -> list[Term]:
        """The sets of inputs that the sub-networks of a group lasso read, over all targets."""
        sets: list[Term] = []
        key = jr.key(seed_of(self.random_state))
        for k, target in enumerate(targets.T):
            path = group_lasso_path(x, target, key=jr.fold_in(key, k), n_subnetworks=self.n_subnetworks)
            sets += clusters_of(path, x)
        return sets

    def _clusters_given(self) -> list[Term] | None:
        if self.clusters is None:
            return None
        clusters = []
        for cluster in self.clusters:
            if isinstance(cluster, str) or not len(tuple(cluster)):
                raise ValueError(f"`clusters` must hold groups of inputs, got {cluster!r}.")
            clusters.append(tuple(sorted({self._position(name) for name in cluster})))
        return clusters


class AdditiveRegressor(RegressorPredictions, _Additive):
    """Bayesian additive regression: f = Σ of functions of few inputs each, with known uncertainty.

    X is an array or a pandas, polars or Arrow frame with columns of any kind: numbers, booleans, text, categories,
    dates, with gaps. y is (n,) or (n, targets). `sample_weight` counts rows: a weight of 10 is ten equal rows, and as
    sure as ten.

    Parameters
    ----------
    scheme : str
        "auto": a basis of functions for every term, smooth or rough as the data ask, all in closed form. Or the name of
        a scheme of the paper ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features",
        "mean_field", "inducing_points"), built on the clusters found and trained by the ELBO.
    structure : {"tests", "group_lasso"}
        How the clusters are found: by tests of every term, or by the paper's group lasso on the first layer of
        `n_subnetworks` sub-networks, whose reading sets the tests then split.
    n_subnetworks : int
        For the group lasso.
    clusters : groups of inputs, optional
        What each sub-network reads, by name or position; found by tests unless given.
    likelihood : {"gaussian", "heteroscedastic", "student_t", "poisson"}
        The noise. Effects are those of f: in the units of y, and for "poisson" of the logarithm of the rate.
    conformal : bool
        Sets a fifth of the rows aside, by which `predict_interval` is made to hold whatever the noise is.
    feature_types : mapping or sequence, optional
        Kinds of columns that the rule would get wrong: {"zip": "category"}. "number", "ordered", "category", "boolean"
        or "datetime".
    n_steps : int
        Training steps of a scheme other than "auto".
    early_stopping : bool
        For such a scheme: sets rows aside and stops once they are predicted no better.
    time_budget : float, optional
        Seconds after which no more terms are sought or steps taken.
    warm_start : bool
        Keeps the terms found by the last fit.
    random_state : int, optional
    verbose : bool

    Attributes
    ----------
    clusters_ : list of tuples of names
    diagnostics_ : Diagnostics
        What to think of the fit: `print(model.diagnostics_)`.
    schema_ : Schema
        How the columns were read.
    n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Any] | None = None,
        likelihood: str = "gaussian",
        conformal: bool = False,
        feature_types: Mapping | Sequence | None = None,
        n_steps: int = 4000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        super().__init__(
            scheme,
            structure=structure,
            n_subnetworks=n_subnetworks,
            clusters=clusters,
            feature_types=feature_types,
            n_steps=n_steps,
            early_stopping=early_stopping,
            time_budget=time_budget,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.conformal = conformal

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdditiveRegressor":
        """Finds the structure, fits the network on it, and keeps its posterior."""
        self._check_additive()
        _fit_regressor(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows) -> "_Outcome":
        z = self._standardise(rows.y, rows.weight)
        kind = {
            "gaussian": Plain,
            "heteroscedastic": UnevenNoise,
            "student_t": HeavyTails,
            "poisson": Counts,
        }[self.likelihood]
        targets = np.log1p(z) if self.likelihood == "poisson" else z
        return self._fit_additive(rows, targets, lambda weight: kind(z, weight), LIKELIHOODS[self.likelihood](), z)


class AdditiveClassifier(ClassifierPredictions, _Additive):
    """Bayesian additive classification: the logit of a class is a sum of functions of few inputs each.

    Two classes have one logit, of the second; more have one each, and effects are asked for by `output`, the class.
    Parameters and attributes are those of `AdditiveRegressor` (but `likelihood` and `conformal`), with `classes_`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdditiveClassifier":
        """Finds the structure, fits the network on it, and keeps its posterior."""
        self._check_additive()
        rows, codes, targets = _class_rows(self, X, y, sample_weight)
        n_classes = len(self.classes_)
        outcome = self._fit_additive(
            rows, targets, lambda weight: Classes(codes, n_classes, weight), self._likelihood_asked, rows.y
        )
        _conclude(self, rows, outcome, n_classes)
        return self


class _Skeleton(_Base):
    """What the two estimators of any skeleton share."""

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        scheme: str = "auto",
        *,
        widths: Sequence[int] | None = None,
        feature_types: Mapping | Sequence | None = None,
        n_steps: int = 2000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        self.skeleton = skeleton
        self.scheme = scheme
        self.widths = widths
        self.feature_types = feature_types
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.time_budget = time_budget
        self.random_state = random_state
        self.verbose = verbose

    def _fit_skeleton(self, rows: Rows, targets, likelihood: Likelihood, y) -> "_Outcome":
        scheme = "random_features" if self.scheme == "auto" else self.scheme
        settings = SCHEMES[scheme]
        x, _ = self._encode(rows, first_direction(targets, rows.weight), most_levels=0, fill=True)
        below, skeleton = self._shape(x.shape[1], settings["widths"])
        widths = (*below, likelihood.n_latent(y.shape[1]) // len(skeleton.outputs))
        layers = getattr(schemes, scheme)(widths, **settings["options"])
        with self._control() as control, _threads(len(x)):
            fitted = self._train(
                lambda key: build(skeleton, layers, key=key, x=x),
                settings["n_restarts"],
                likelihood,
                x,
                y,
                rows.weight,
                control,
            )
        seed = seed_of(self.random_state)
        self._surface = NetworkSurface(fitted.network, marginal_rows(x, rows.weight), seed, scheme, widths)
        self._likelihood = fitted.likelihood
        self.skeleton_ = skeleton
        notes, warnings = _network_words(fitted)
        if control.ended:
            warnings.append(f"{control.ended}: train longer for a better fit.")
        return _Outcome(None, notes, warnings)

    def _shape(self, n_inputs: int, usual: Sequence[int]) -> tuple[list[int], Skeleton]:
        """The widths below the outputs, and the skeleton: a chain over all inputs unless one is given."""
        if self.skeleton is None:
            widths = list(usual if self.widths is None else self.widths)
            return widths, chain(n_inputs, len(widths) + 1)
        if self.skeleton.n_inputs != n_inputs:
            raise ValueError(
                f"`skeleton` must have one input per column as the model reads them, {n_inputs} "
                f"({', '.join(self._names()[:10])}), got {self.skeleton.n_inputs}."
            )
        below = self.skeleton.depth - 1
        widths = list([usual[0] if usual else 8] * below if self.widths is None else self.widths)
        if len(widths) != below:
            raise ValueError(f"`widths` must have one entry per layer below the top, {below}, got {len(widths)}.")
        return widths, self.skeleton


class SkeletonRegressor(RegressorPredictions, _Skeleton):
    """Regression by a Bayesian network on any skeleton: what to build is `skeleton` and `scheme`.

    Parameters
    ----------
    skeleton : Skeleton, optional
        By default a chain over all inputs, of the depth that the scheme needs.
    scheme : str
        "auto" is "random_features": a Gaussian process by random features, in closed form but for its scales.
    widths : sequence of int, optional
        Of the layers below the top.
    likelihood, conformal, feature_types, n_steps, early_stopping, time_budget, random_state, verbose
        As for `AdditiveRegressor`.
    """

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        scheme: str = "auto",
        *,
        widths: Sequence[int] | None = None,
        likelihood: str = "gaussian",
        conformal: bool = False,
        feature_types: Mapping | Sequence | None = None,
        n_steps: int = 2000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        super().__init__(
            skeleton,
            scheme,
            widths=widths,
            feature_types=feature_types,
            n_steps=n_steps,
            early_stopping=early_stopping,
            time_budget=time_budget,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.conformal = conformal

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SkeletonRegressor":
        """Trains the network by the ELBO."""
        self._check_settings(self.scheme)
        _fit_regressor(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows) -> "_Outcome":
        z = self._standardise(rows.y, rows.weight)
        return self._fit_skeleton(rows, z, LIKELIHOODS[self.likelihood](), z)


class SkeletonClassifier(ClassifierPredictions, _Skeleton):
    """Classification by a Bayesian network on any skeleton. Parameters as for `SkeletonRegressor`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SkeletonClassifier":
        """Trains the network by the ELBO."""
        self._check_settings(self.scheme)
        rows, _, targets = _class_rows(self, X, y, sample_weight)
        _conclude(self, rows, self._fit_skeleton(rows, targets, self._likelihood_asked, rows.y), len(self.classes_))
        return self


class _Outcome(NamedTuple):
    """What a fit leaves to be looked at: predictions of its rows, each left out in turn, and words about it."""

    left_out: Predictive | None
    notes: list[str]
    warnings: list[str]


def _conclude(model: Any, rows: Rows, outcome: _Outcome, n_classes: int = 0) -> None:
    """What the rows looked like, how well they are predicted, beside a linear model, and what to think of it."""
    n_levels = [len(column.levels) for column in model.schema_.columns]
    model._profile = profile(*rows, model.schema_.columns, n_classes)
    model._linear = fit_linear(*rows, n_levels, classes=n_classes)
    notes, warnings, figures = list(outcome.notes), list(outcome.warnings), {}
    model.evaluation_ = None
    if outcome.left_out is not None:
        seed = seed_of(model.random_state)
        linear = cross_fitted(*rows, n_levels, classes=n_classes, seed=seed)
        model.evaluation_ = model._evaluation(LEFT_OUT, outcome.left_out, rows.y, rows.weight, linear)
        figures = dict(model.evaluation_.scores["model"])
        more = coverage_words(figures, float(rows.weight.sum()), model.target_names_)
        notes, warnings = notes + more[0], warnings + more[1]
        warnings += worse_than_linear(model.evaluation_.scores, model.target_names_)
        if not n_classes and model.likelihood == "gaussian":
            away = outcome.left_out.away((rows.y - model._y_mean) / model._y_scale)
            names = [column.name for column in model.schema_.columns]
            warnings += uneven_noise(away, rows.matrix, names, model.target_names_)
    model.diagnostics_ = summary(notes, warnings, figures)


def _fit_regressor(model: Any, X, y, sample_weight, fit_rows: Callable[[Rows], _Outcome]) -> None:
    """Reads the table, and fits all rows; or with `conformal` some of them, and calibrates intervals on the others."""
    matrix, weight = model._read(X, sample_weight)
    targets = model._targets(y, len(matrix))
    model.target_names_ = target_names(y)
    rows = canonical(matrix, targets, weight)
    if len(rows.y) < 2:
        raise ValueError(f"`X` must have at least 2 different rows of weight above 0, got n_samples = {len(rows.y)}.")
    model._conformal = None
    if not model.conformal:
        _conclude(model, rows, fit_rows(rows))
        return
    n_out = round(CALIBRATION_SHARE * len(rows.y))
    if n_out < 1 or len(rows.y) - n_out < 2:
        raise ValueError(f"`conformal=True` needs at least 4 rows, got {len(rows.y)}.")
    order = np.random.default_rng(seed_of(model.random_state)).permutation(len(rows.y))
    out, kept = np.sort(order[:n_out]), np.sort(order[n_out:])
    fitted = Rows(*(part[kept] for part in rows))
    outcome = fit_rows(fitted)
    held = Rows(*(part[out] for part in rows))
    predictive = model._predictive_of(model._encoding(held.matrix))
    scores = np.abs(predictive.away((held.y - model._y_mean) / model._y_scale))
    # a row that stands there twice is one row to calibrate on
    model._conformal = np.sort(scores, axis=0)
    _conclude(model, fitted, outcome)


def _class_rows(model: Any, X, y, sample_weight) -> tuple[Rows, np.ndarray, Float[np.ndarray, "n k"]]:
    """The rows of a classifier, their classes' codes, and standardised indicators of these."""
    matrix, weight = model._read(X, sample_weight)
    codes = model._classes(y, len(matrix))
    model.target_names_ = target_names(y)
    rows = canonical(matrix, codes[:, None].astype(float), weight)
    codes = rows.y[:, 0].astype(int)
    if len(np.unique(codes)) < 2:
        raise ValueError("`y` must have at least 2 classes among the rows of weight above 0, got 1 class.")
    n_classes = len(model.classes_)
    hits = (codes[:, None] == np.arange(1 if n_classes == 2 else 0, n_classes)).astype(float)
    centre = rows.weight @ hits / rows.weight.sum()
    spread = np.sqrt(np.maximum(centre * (1.0 - centre), 1e-12))
    return rows, codes, (hits - centre) / spread


def _network_words(fitted: Fitted) -> tuple[list[str], list[str]]:
    """What went well in a training, and what to look at."""
    notes, warnings = [f"trained for {int(fitted.history.step[-1]) if len(fitted.history.step) else 0} steps."], []
    if len(fitted.scores) > 1:
        apart = float(np.ptp(fitted.scores))
        words = f"{len(fitted.scores)} restarts ended within {apart:.3f} per row of each other"
        (warnings if apart > SAME_SCORE else notes).append(words + ("." if apart <= SAME_SCORE else ": train longer."))
    late = fitted.history.elbo[-5:]
    if len(late) == 5 and late[-1] - late[0] > 0.05 * max(abs(late[-1]), 1.0):
        warnings.append("the objective was still rising at the end: give `n_steps` more.")
    return notes, warnings


def _threads(n_rows: int):
    """Half the cores for LAPACK: its threads wait by spinning, and where others work beside them they thrash."""
    n_threads = max((os.cpu_count() or 2) // 2, 1) if n_rows >= ROWS_FOR_THREADS else 1
    return threadpool_limits(n_threads, user_api="blas")
