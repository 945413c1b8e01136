"""scikit-learn estimators: Additive… find a sum of terms and say which are real; Skeleton… fit any skeleton.

Effects are components under the product of the inputs' marginals, also where inputs are correlated.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float

from vertebra.effects.posterior import N_DRAWS, HybridSurface, NetworkSurface, TermSurface
from vertebra.estimators.calibration import noise
from vertebra.estimators.diagnostics import check_memory, concurvity, copy_words, is_noisier
from vertebra.estimators.evaluation import (
    BOTH_LEFT_OUT,
    FOLD_LEFT_OUT,
    LEFT_OUT,
    cross_fitted,
    losses,
    losses_of_logits,
)
from vertebra.estimators.explanation import Explanations
from vertebra.estimators.prediction import LIKELIHOODS, ClassifierPredictions, RegressorPredictions
from vertebra.estimators.reading import MOST_LEVELS, Rows, Targets, marginal_rows
from vertebra.estimators.remainder import blend, is_something_left
from vertebra.estimators.steps import (
    SCHEMES,
    Outcome,
    TrainedEstimator,
    ensemble_of,
    fit_classifier,
    fit_regressor,
    network_words,
    threads,
)
from vertebra.inference.fitting import Fitted
from vertebra.likelihoods import Gaussian, Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import Classes, Counts, HeavyTails, Plain, UnevenNoise, Working
from vertebra.machine.checks import check_count, seed_of
from vertebra.machine.control import Control
from vertebra.networks import schemes
from vertebra.networks.skeleton import Skeleton, additive, chain
from vertebra.tables.encoding import encode
from vertebra.tables.passes import MOST_SEARCHED, StreamedRows
from vertebra.tables.profile import copies_of
from vertebra.terms.additive import Additive, Mains, fit_additive
from vertebra.terms.group_lasso import clusters_of, group_lasso_path
from vertebra.terms.sums import HeldTable
from vertebra.terms.term import Term

# What can be built on clusters and taken apart into terms.
SCHEMES_OF_TERMS = [name for name in SCHEMES if name != "deep_ensemble"]
# A loss this many times that of a linear model, on rows left out, is worth another fit: where the truth is linear, most
# fits should not take twice the time. experiments/separable.py was run with this value, and with no other.
BEHIND = 1.02
# Rows with a gap, without one, and in all, from which on noise is compared.
FEWEST_GAPS, ROWS_FOR_NOISE = 20, 200


class Noise(NamedTuple):
    """What is fitted of the noise: as Gaussian rows, as a likelihood for networks, and words about the choice."""

    working: Working
    likelihood: Likelihood
    notes: list[str]


class _Additive(Explanations, TrainedEstimator):
    """What the additive regressor and classifier share."""

    remainder: bool = False

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Any] | None = None,
        feature_types: Mapping | Sequence | None = None,
        weights: str = "auto",
        n_steps: int = 4000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        self.scheme = scheme
        self.structure = structure
        self.n_subnetworks = n_subnetworks
        self.clusters = clusters
        self.feature_types = feature_types
        self.weights = weights
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _check_additive(self) -> None:
        self._check_settings(self.scheme, SCHEMES_OF_TERMS)
        if self.structure not in ("tests", "group_lasso"):
            raise ValueError(f'`structure` must be "tests" or "group_lasso", got {self.structure!r}.')
        check_count(n_subnetworks=self.n_subnetworks)

    def _fit_additive(
        self,
        rows: Rows,
        stream: StreamedRows | None,
        targets: Targets,
        noise_of: Callable[[Any, Any, Rows, Sequence[int]], Noise],
    ) -> "Outcome":
        """Finds the terms in closed form, and fits the scheme's network on their clusters where one is asked for.

        Of very many rows the terms are sought in a sample, and fitted to all of them.
        """
        given = self._clusters_given()
        if given is None and self.warm_start and hasattr(self, "_found"):
            given = [tuple(term) for term in self._found]
        seed = seed_of(self.random_state)
        with self._control() as control, threads(len(rows.y)):
            if stream is not None:
                stream.training.report = control.report
            within = None
            if self.structure == "group_lasso" and given is None:
                control.report("fitting a path of group-lasso penalties")
                x, _ = self._encode(rows, stream, targets, most_levels=0, fill=True)
                within = self._group_lasso(*_some(seed, x, targets.seen(targets.y)))
            x, n_levels = self._encode(rows, stream, targets, most_levels=MOST_LEVELS, fill=False)
            everything, all_rows, y = stream, rows, targets.y
            if stream is None and len(x) > MOST_SEARCHED:
                everything = HeldTable(x, y, rows.weight)
                x, y, *parts = _some(seed, x, y, *rows)
                rows = Rows(*parts)
            check_memory(8.0 * (2.0 * x.size * 55 + 6 * 3200.0**2), "This fit")
            working, likelihood, notes = noise_of(x, y, rows, n_levels)

            def terms_of(mains: Mains) -> Additive:
                return fit_additive(
                    x,
                    working,
                    rows.weight,
                    n_levels=n_levels,
                    rng=np.random.default_rng(seed),
                    report=control.report,
                    clusters=given,
                    within=within,
                    mains=mains,
                    enough=control.enough,
                    everything=everything,
                )

            found, linear = terms_of(Mains.FOUND), self._by_linear(rows)
            if given is None and within is None and len(x) >= 2 * x.shape[1] and not control.enough():
                limit = BEHIND * self._linear_losses(linear, y, rows)
                found = self._not_behind(limit, found, terms_of, y, rows, control)
            self._structures, self._likelihood, self._found = found.structures, found.likelihood, found.clusters
            self._surface: Any = TermSurface(found.terms, seed)
            names = self._names()
            self.clusters_ = [tuple(names[i] for i in cluster) for cluster in found.clusters]
            self._known = {}
            notes = ["fitted in closed form: nothing was trained by steps of a gradient.", *notes]
            warnings: list[str] = []
            predictive: Predictive | None = Predictive(self._likelihood, *found.left_out)
            method = LEFT_OUT
            if everything is not None:
                notes.append(f"terms were sought in {len(x):,} of the rows, and fitted to all {everything.n_rows:,}.")
            if self.scheme != "auto" and found.clusters:
                control.report(f"fitting {self.scheme} on {len(found.clusters)} clusters")
                x, _ = self._encode(all_rows, stream, targets, most_levels=0, fill=True)
                fitted = self._fit_scheme(found.clusters, likelihood, x, targets.y, all_rows.weight, control, stream)
                notes, warnings = network_words(fitted)
                predictive = None
            elif self.clusters is None and self.remainder and not control.enough():
                more = self._fit_remainder(found, x, n_levels, rows, y, control)
                if more is not None:
                    predictive, method, warnings = more
                    notes = [
                        "the terms are fitted in closed form. They leave something out that networks over all inputs "
                        "add, as one more term; `remainder=False` does without."
                    ]
        acting = sorted({i for cluster in found.clusters for i in cluster})
        warnings += concurvity(rows.matrix, names, acting)
        if given is None:
            same = {i: first for i, first in copies_of(rows.matrix).items() if first in acting}
            warnings += copy_words(same, names)
        if control.ended:
            warnings.append(f"{control.ended}: some terms, or a remainder, may not have been looked for.")
        if not found.clusters and isinstance(self._surface, TermSurface):
            notes.append("no input was found to act: predictions are the mean.")
        return Outcome(predictive, notes, warnings, method, rows, linear)

    def _by_linear(self, rows: Rows) -> Float[np.ndarray, "n k"]:
        """What linear models say of the rows that each was fitted without: in the units of y, or logits."""
        n_levels = [len(column.levels) for column in self.schema_.columns]
        return cross_fitted(*rows, n_levels, classes=self._n_classes, seed=seed_of(self.random_state))

    def _not_behind(
        self, limit, found: Additive, terms_of: Callable[[Mains], Additive], y, rows: Rows, control: Control
    ) -> Additive:
        """The terms found, or lines or curves of all inputs where losses are beyond a limit and theirs are less.

        So few rows may show nothing but lines; or terms were missed that lines stand for.
        """
        for mains in (Mains.LINES, Mains.ALL):
            if np.all(self._losses(found, y, rows) <= limit):
                break
            control.report(f"a linear model does better: trying {mains.value} of all inputs")
            other = terms_of(mains)
            found = other if self._is_better(other, found, limit, y, rows) else found
        return found

    def _is_better(self, one: Additive, other: Additive, limit, y, rows: Rows) -> bool:
        """Whether one model predicts rows left out better than another, by its density too, which outliers decide less.

        No target may fall behind a linear model for the sake of another.
        """
        after, before = self._losses(one, y, rows), self._losses(other, y, rows)
        varies = limit > 1e-12
        if not varies.any() or np.any((after > np.maximum(before, limit))[varies]):
            return False
        is_nearer = bool(np.mean(after[varies] / before[varies]) < 1.0)
        if self._n_classes:
            return is_nearer
        new, old = (
            float(rows.weight @ Predictive(each.likelihood, *each.left_out).log_prob(y)[:, varies].sum(axis=1))
            for each in (one, other)
        )
        return is_nearer and new > old

    def _losses(self, found: Additive, y, rows: Rows) -> Float[np.ndarray, " k"]:
        return losses(Predictive(found.likelihood, *found.left_out), y, rows.weight)

    def _linear_losses(self, linear, y, rows: Rows) -> Float[np.ndarray, " k"]:
        if self._n_classes:
            return losses_of_logits(linear, y, rows.weight)
        away = rows.y - linear
        return rows.weight @ (away / self._y_scale) ** 2 / rows.weight.sum()  # type: ignore[attr-defined]

    @property
    def _n_classes(self) -> int:
        return len(getattr(self, "classes_", ()))

    def _fit_remainder(self, found: Additive, x, n_levels, rows: Rows, y, control: Control):
        """Adds what the terms leave out, if anything; returns what is then said of rows left out, how, and warnings."""
        if self.likelihood_ != "gaussian":  # type: ignore[attr-defined]
            return None
        control.report("looking at what the terms leave")
        terms: TermSurface = self._surface
        direction = Targets(y, rows.weight).direction(y)
        settings: Any = dict(most_levels=0, fill=True, rng=np.random.default_rng(terms.seed))
        encoding, inputs, _ = encode(x, direction, rows.weight, n_levels, [False] * len(n_levels), **settings)
        if not is_something_left(inputs, y - found.left_out[0], rows.weight):
            return None
        scheme, widths = "deep_ensemble", (*SCHEMES["deep_ensemble"]["widths"], y.shape[1])
        skeleton = chain(inputs.shape[1], len(widths), activation=SCHEMES[scheme]["activation"])
        given: Any = Gaussian(), inputs, y, rows.weight, control
        fitted = self._train(skeleton, scheme, widths, *given, n_steps=None)
        networks, said = ensemble_of(fitted, inputs, y, rows.weight, about=(terms.seed, scheme, widths))
        both = blend(found.left_out, said, y, rows.weight, n_draws=N_DRAWS)
        if both is None:
            return None
        new: Any = noise(both.said, y, rows.weight, kinds=("gaussian",))
        # targets without a remainder keep what they had
        self._likelihood = Gaussian(np.where(both.share > 0.0, new.scale, np.sqrt(found.noise)))
        had_gaps = np.isnan(x).any(axis=0)
        about = both.share, both.sizes, both.probability
        self._surface = HybridSurface(terms, networks, encoding, *about, had_gaps)
        predictive = Predictive(self._likelihood, both.said.mean, both.said.variance + both.said.fewer)
        return predictive, BOTH_LEFT_OUT, network_words(fitted)[1]

    def _fit_scheme(self, clusters, likelihood: Likelihood, x, y, weight, control: Control, stream) -> Fitted:
        settings = SCHEMES[self.scheme]
        widths = (*settings["widths"], likelihood.n_latent(y.shape[1]))
        depth = len(getattr(schemes, self.scheme)(widths, **settings["options"]))
        skeleton = additive(x.shape[1], clusters=clusters, depth=depth)
        given: Any = likelihood, x, y, weight, control
        fitted = self._train(skeleton, self.scheme, widths, *given, n_steps=self.n_steps, stream=stream)
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


def _some(seed: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """The same rows of all arrays, no more than are searched."""
    n = len(arrays[0])
    if n <= MOST_SEARCHED:
        return list(arrays)
    chosen = np.sort(np.random.default_rng(seed).choice(n, MOST_SEARCHED, replace=False))
    return [each[chosen] for each in arrays]


class AdditiveRegressor(RegressorPredictions, _Additive):
    """Bayesian additive regression: f = Σ of functions of few inputs each, with known uncertainty.

    X is an array or a pandas, polars or Arrow frame with columns of any kind: numbers, booleans, text, categories,
    dates, with gaps. y is (n,) or (n, targets). Or X is a Parquet file, a folder of them, a pyarrow dataset or a
    `stream.Parquet`, which need not fit in memory, and y (as `sample_weight`) the name of a column.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> model = vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)
    >>> model.clusters_
    [('x2',), ('x3',), ('x4',), ('x0', 'x1')]

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
    remainder : bool
        Whether networks over all inputs may add what terms of up to three inputs leave out. They are trained only where
        something is seen to be left (of Gaussian noise, with `scheme="auto"` and without `clusters`), kept only where
        rows left out are predicted better, and shown as one more term, of all inputs.
    likelihood : {"auto", "gaussian", "heteroscedastic", "student_t", "poisson"}
        The noise; `likelihood_` says which was fitted. "auto" is "gaussian", or "heteroscedastic" where rows with gaps
        are plainly noisier than others, as they are where what is missing acts. Effects are those of f: in the units of
        y, and for "poisson" of the logarithm of the rate.
    conformal : bool
        Sets a fifth of the rows aside, by which `predict_interval` is made to hold whatever the noise is.
    feature_types : mapping or sequence, optional
        Kinds of columns that the rule would get wrong: {"zip": "category"}. "number", "ordered", "category", "boolean"
        or "datetime".
    weights : {"auto", "frequency", "importance"}
        What `sample_weight` means. "frequency": a weight of 10 is ten equal rows, and as sure as ten. "importance": how
        much a row is to count beside others, whatever the scale; n rows are then as sure as (Σw)²/Σw² of equal weight.
        "auto": whole numbers that differ are frequencies, others, and equal ones, importances: so scikit-learn's
        estimators, weights of 1/n and surveys' weights are understood.
    n_steps : int
        Training steps of a scheme other than "auto".
    early_stopping : bool
        For such a scheme: sets rows aside and stops once they are predicted no better.
    time_budget : float, optional
        Seconds after which no more terms are sought or steps taken.
    warm_start : bool
        Keeps the terms found by the last fit.
    checkpoint : path, optional
        A file to which the state of long work is written: passes over files, networks in training. After a kill the
        same call goes on where it was, and ends with the same model. Removed when the fit is done.
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

    _noises: ClassVar[Mapping[str, type[Likelihood]]] = {"auto": Gaussian, **LIKELIHOODS}

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Any] | None = None,
        remainder: bool = True,
        likelihood: str = "auto",
        conformal: bool = False,
        feature_types: Mapping | Sequence | None = None,
        weights: str = "auto",
        n_steps: int = 4000,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        super().__init__(
            scheme,
            structure=structure,
            n_subnetworks=n_subnetworks,
            clusters=clusters,
            feature_types=feature_types,
            weights=weights,
            n_steps=n_steps,
            early_stopping=early_stopping,
            time_budget=time_budget,
            warm_start=warm_start,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.remainder = remainder
        self.likelihood = likelihood
        self.conformal = conformal

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdditiveRegressor":
        """Finds the structure, fits the network on it, and keeps its posterior.

        >>> flats = pd.DataFrame({"size": data.x[:, 0], "city": np.where(data.x[:, 1] < 0.5, "Bonn", "Kiel")})
        >>> rent = 10 * flats["size"] + 2.0 * (flats["city"] == "Bonn") + (data.y - data.f)
        >>> vb.AdditiveRegressor(random_state=0).fit(flats, rent).clusters_
        [('size',), ('city',)]
        """
        self._check_additive()
        fit_regressor(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows, stream: StreamedRows | None) -> "Outcome":
        z = self._standardise(rows, stream)
        targets = Targets(z, rows.weight, np.log1p if self.likelihood == "poisson" else lambda z: z)
        return self._fit_additive(rows, stream, targets, self._noise)

    def _noise(self, x, y, rows: Rows, n_levels: Sequence[int]) -> Noise:
        kinds = {"gaussian": Plain, "heteroscedastic": UnevenNoise, "student_t": HeavyTails, "poisson": Counts}
        likelihood, notes = self.likelihood, []
        if likelihood == "auto":
            noisier = self._noisier_at_gaps(x, y, rows, n_levels)
            likelihood = "heteroscedastic" if noisier else "gaussian"
            notes = [
                f"rows without {name} are noisier than the rest: noise that depends on the inputs was fitted; "
                '`likelihood="gaussian"` does without.'
                for name in noisier[:1]
            ]
        return Noise(kinds[likelihood](y, rows.weight), LIKELIHOODS[likelihood](), notes)

    def _noisier_at_gaps(self, x, y, rows: Rows, n_levels: Sequence[int]) -> list[str]:
        """Inputs whose gaps change the noise, by a fit of main effects: where what is missing acts, it is noise there.

        Taken for even noise, it would be explained by terms that are not.
        """
        gaps = np.isnan(rows.matrix)
        there = [i for i, n in enumerate(gaps.sum(axis=0)) if FEWEST_GAPS <= n <= len(gaps) - FEWEST_GAPS]
        if not there or len(gaps) < ROWS_FOR_NOISE:
            return []
        settings: Any = dict(n_levels=n_levels, rng=np.random.default_rng(seed_of(self.random_state)))
        mains = [(i,) for i in range(x.shape[1])]
        first = fit_additive(x, Plain(y, rows.weight), rows.weight, clusters=mains, **settings)
        away = Predictive(first.likelihood, *first.left_out).away(y)
        return [self._names()[i] for i in there if is_noisier(away, gaps[:, i])]


class AdditiveClassifier(ClassifierPredictions, _Additive):
    """Bayesian additive classification: the logit of a class is a sum of functions of few inputs each.

    Two classes have one logit, of the second; more have one each, and effects are asked for by `output`, the class.
    Parameters and attributes are those of `AdditiveRegressor` (but `likelihood`, `conformal` and `remainder`), with
    `classes_`.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> model = vb.AdditiveClassifier(random_state=0).fit(data.x, data.y > 14)
    >>> model.classes_.tolist()
    [False, True]
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdditiveClassifier":
        """Finds the structure, fits the network on it, and keeps its posterior.

        >>> clusters = [("x0", "x1"), ("x3",)]
        >>> vb.AdditiveClassifier(clusters=clusters).fit(data.x, np.where(data.y > 14, "high", "low")).classes_.tolist()
        ['high', 'low']
        """
        self._check_additive()
        fit_classifier(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows, stream: StreamedRows | None, targets: Targets) -> "Outcome":
        def noise_of(_x, codes, rows, _n_levels):
            working = Classes(codes[:, 0].astype(int), len(self.classes_), rows.weight)
            return Noise(working, self._likelihood_asked, [])

        return self._fit_additive(rows, stream, targets, noise_of)


# Which noise can be taken from rows left out.
NOISES_OF_ENSEMBLES = ("auto", "gaussian", "student_t")


class _Skeleton(TrainedEstimator):
    """What the two estimators of any skeleton share."""

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        scheme: str = "auto",
        *,
        widths: Sequence[int] | None = None,
        feature_types: Mapping | Sequence | None = None,
        weights: str = "auto",
        n_steps: int | None = None,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        self.skeleton = skeleton
        self.scheme = scheme
        self.widths = widths
        self.feature_types = feature_types
        self.weights = weights
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _fit_skeleton(
        self, rows: Rows, stream: StreamedRows | None, targets: Targets, likelihood: Likelihood, scheme: str
    ) -> "Outcome":
        settings, seed, y = SCHEMES[scheme], seed_of(self.random_state), targets.y
        x, _ = self._encode(rows, stream, targets, most_levels=0, fill=True)
        below, skeleton = self._shape(x.shape[1], settings["widths"], settings.get("activation", "tanh"))
        widths = (*below, likelihood.n_latent(y.shape[1]) // len(skeleton.outputs))

        with self._control() as control, threads(len(x)):
            given: Any = likelihood, x, y, rows.weight, control
            fitted = self._train(skeleton, scheme, widths, *given, n_steps=self.n_steps, stream=stream)
        self.skeleton_ = skeleton
        notes, warnings = network_words(fitted)
        if control.ended:
            warnings.append(f"{control.ended}: train longer for a better fit.")
        if scheme != "deep_ensemble":
            self._surface = NetworkSurface(fitted.network, marginal_rows(x, rows.weight), seed, scheme, widths)
            self._likelihood = fitted.likelihood
            return Outcome(None, notes, warnings, rows=rows)
        self._surface, said = ensemble_of(fitted, x, y, rows.weight, about=(seed, scheme, widths))
        asked = self.likelihood  # type: ignore[attr-defined]
        self._likelihood = noise(said, y, rows.weight, kinds=("gaussian", "student_t") if asked == "auto" else (asked,))
        notes.append(f"{len(fitted.networks)} networks are averaged; the noise is from rows they had not seen.")
        predictive = Predictive(self._likelihood, said.mean, said.variance + said.fewer)
        return Outcome(predictive, notes, warnings, FOLD_LEFT_OUT, rows)

    def _shape(self, n_inputs: int, usual: Sequence[int], activation: str) -> tuple[list[int], Skeleton]:
        """The widths below the outputs, and the skeleton: a chain over all inputs unless one is given."""
        if self.skeleton is None:
            widths = list(usual if self.widths is None else self.widths)
            return widths, chain(n_inputs, len(widths) + 1, activation=activation)
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

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> skeleton = vb.additive(10, clusters=[(0, 1), (2,), (3, 4)], depth=1)
    >>> model = vb.SkeletonRegressor(skeleton, "random_features", n_steps=200, random_state=0).fit(data.x, data.y)
    >>> model.score(data.x, data.y) > 0.9
    True

    Parameters
    ----------
    skeleton : Skeleton, optional
        By default a chain over all inputs, of the depth that the scheme needs.
    scheme : str
        "auto" is "deep_ensemble", sixteen networks that each leave an eighth of the rows out and are averaged, with the
        noise taken from rows they had not seen; for fewer than 16 rows and for other noise than below
        "random_features", a Gaussian process by random features. Or the name of a scheme, as for `AdditiveRegressor`.
    widths : sequence of int, optional
        Of the layers below the top.
    likelihood : {"auto", "gaussian", "student_t", "heteroscedastic", "poisson"}
        "auto": of the ensemble normal or heavy tails, as rows left out ask for; else "gaussian".
    n_steps : int, optional
        Of training; by default 2000, and of the ensemble 60 passes over the rows, but at least 5000 and at most 20000.
    conformal, feature_types, weights, early_stopping, time_budget, checkpoint, random_state, verbose
        As for `AdditiveRegressor`; the ensemble is not stopped early.
    """

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        scheme: str = "auto",
        *,
        widths: Sequence[int] | None = None,
        likelihood: str = "auto",
        conformal: bool = False,
        feature_types: Mapping | Sequence | None = None,
        weights: str = "auto",
        n_steps: int | None = None,
        early_stopping: bool = False,
        time_budget: float | int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ):
        super().__init__(
            skeleton,
            scheme,
            widths=widths,
            feature_types=feature_types,
            weights=weights,
            n_steps=n_steps,
            early_stopping=early_stopping,
            time_budget=time_budget,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.conformal = conformal

    _noises = {"auto": Gaussian, **LIKELIHOODS}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SkeletonRegressor":
        """Trains the network by the ELBO.

        >>> weighted = vb.SkeletonRegressor(skeleton, "random_features", n_steps=200)
        >>> weighted.fit(data.x, data.y, sample_weight=data.x[:, 0]).skeleton_ == skeleton
        True
        """
        self._check_settings(self.scheme, list(SCHEMES))
        if self.scheme == "deep_ensemble" and self.likelihood not in NOISES_OF_ENSEMBLES:
            raise ValueError(
                f'`likelihood` must be one of {", ".join(NOISES_OF_ENSEMBLES)} with scheme="deep_ensemble", got '
                f"{self.likelihood!r}: use another scheme."
            )
        fit_regressor(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows, stream: StreamedRows | None) -> "Outcome":
        z = self._standardise(rows, stream)
        scheme, likelihood = self.scheme, self._noises[self.likelihood]()
        if scheme == "auto":
            is_enough = len(rows.y) >= SCHEMES["deep_ensemble"]["n_restarts"]
            scheme = "deep_ensemble" if is_enough and self.likelihood in NOISES_OF_ENSEMBLES else "random_features"
        if scheme == "deep_ensemble":
            likelihood = Gaussian()  # while members train
        return self._fit_skeleton(rows, stream, Targets(z, rows.weight), likelihood, scheme)


class SkeletonClassifier(ClassifierPredictions, _Skeleton):
    """Classification by a Bayesian network on any skeleton. Parameters as for `SkeletonRegressor`.

    `scheme="auto"` is "random_features", and there are no ensembles.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> skeleton = vb.additive(10, clusters=[(0, 1), (2,), (3, 4)], depth=1)
    >>> model = vb.SkeletonClassifier(skeleton, n_steps=200, random_state=0).fit(data.x, data.y > 14)
    >>> model.score(data.x, data.y > 14) > 0.85
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SkeletonClassifier":
        """Trains the network by the ELBO.

        >>> words = vb.SkeletonClassifier(skeleton, n_steps=200).fit(data.x, np.where(data.y > 14, "high", "low"))
        >>> words.classes_.tolist()
        ['high', 'low']
        """
        self._check_settings(self.scheme, SCHEMES_OF_TERMS)
        fit_classifier(self, X, y, sample_weight, self._fit_rows)
        return self

    def _fit_rows(self, rows: Rows, stream: StreamedRows | None, targets: Targets) -> "Outcome":
        scheme = "random_features" if self.scheme == "auto" else self.scheme
        return self._fit_skeleton(rows, stream, targets, self._likelihood_asked, scheme)
