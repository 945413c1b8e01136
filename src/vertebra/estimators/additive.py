"""Additive estimators: a sum of terms, and which of them are real.

Effects are components under the product of the inputs' marginals, also where inputs are correlated.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vertebra.estimators.classifier import Classifier
from vertebra.estimators.explanations import Explanations
from vertebra.estimators.regressor import Regressor
from vertebra.machine.checks import check_count
from vertebra.models.additive_fits import fit_classes, fit_numbers
from vertebra.models.networks import SCHEMES_OF_TERMS
from vertebra.models.settings import ClassWeightLike, InputLike, Settings
from vertebra.tables.schema import MissingLike, TableLike, ValuesLike


class _Additive(Explanations):
    """What the additive regressor and classifier share."""

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Iterable[InputLike]] | None = None,
        monotone: Mapping[InputLike, str | int] | None = None,
        feature_types: Mapping | Sequence | None = None,
        missing_values: MissingLike = None,
        weights: str = "auto",
        n_steps: int = 4000,
        early_stopping: bool = False,
        evaluation: str = "auto",
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
        self.monotone = monotone
        self.feature_types = feature_types
        self.missing_values = missing_values
        self.weights = weights
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.evaluation = evaluation
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _additive_settings(self) -> Settings:
        if self.structure not in ("tests", "group_lasso"):
            raise ValueError(f'`structure` must be "tests" or "group_lasso", got {self.structure!r}.')
        check_count(n_subnetworks=self.n_subnetworks)
        is_warm = self.warm_start and self.__sklearn_is_fitted__()
        return self._settings(SCHEMES_OF_TERMS, start=self.model_.sought.clusters if is_warm else None)


class AdditiveRegressor(Regressor, _Additive):
    """Bayesian additive regression: f = Σ of functions of few inputs each, with known uncertainty.

    X is an array or a pandas, polars or Arrow frame with columns of any kind: numbers, booleans, text, categories,
    dates, with gaps. y is (n,) or (n, targets). Or X is a Parquet file, a folder of them, a pyarrow dataset, a
    `stream.Parquet` or a `dask.dataframe`, which need not fit in memory, and y (as `sample_weight`) the name of a
    column.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> model = vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)
    >>> model.clusters_
    [('x2',), ('x3',), ('x4',), ('x0', 'x1')]

    Parameters
    ----------
    scheme : str
        "auto": a basis of functions for every term, smooth or local by evidence, all in closed form. Or the name of
        a scheme of the paper ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features",
        "mean_field", "inducing_points"), built on the clusters found and trained by the ELBO.
    structure : {"tests", "group_lasso"}
        How the clusters are found: by tests of every term, or by the paper's group lasso on the first layer of
        `n_subnetworks` sub-networks, whose reading sets the tests then split.
    n_subnetworks : int
        For the group lasso.
    clusters : groups of inputs, optional
        What each sub-network reads, by name or position; found by tests unless given.
    monotone : mapping, optional
        Numbers or ordered levels that f may only rise or only fall with, whatever the other inputs are:
        {"income": "+", "age": "-"}. Predictions, effects, draws and bands keep to it. For numbers, counts and two
        classes, with `scheme="auto"`; networks of a remainder, which could not, are then left out. Beyond the range of
        the fit f levels off.
    remainder : bool
        Whether networks over all inputs may add what terms of up to three inputs leave out, whatever the likelihood.
        They are trained only where something is seen to be left (with `scheme="auto"` and without `clusters`,
        `monotone` and `groups`), kept only where rows left out are predicted better, and shown as one more term, of
        all inputs. Without it `diagnostics_` says what they would be worth, by a quick trial.
    likelihood : {"auto", "gaussian", "heteroscedastic", "student_t", "poisson", "negative_binomial", "counts"}
        The noise; `likelihood_` says which was fitted. "auto" is "gaussian", unless rows left out plainly speak for
        "heteroscedastic" or "student_t" noise (of 200 to 15,000 rows), or rows with gaps are noisier than others. Whole
        numbers from 0 on, of a median up to 20, are "counts" where rows left out plainly speak for these.
        Whole numbers of events: "poisson"; "negative_binomial", whose variance is μ + αμ² with a learned dispersion α;
        "counts", the first of them unless the rows speak for the second. Effects are those of f: in the units of y, and
        for these three of the logarithm of the rate.
    target_transform : {"none", "log", "box_cox", "auto"}
        The scale on which a positive target is fitted: its logarithm, or (y^λ − 1)/λ of the likeliest λ. Effects and
        `predict_f` are then on that scale (`attrs["scale"]` of tables says which); means, sds, intervals, quantiles,
        draws and densities are of y: the mean is the lognormal's, or by quadrature. "auto" fits both where a quick look
        is for it, and takes the one that predicts rows left out better, by their density and by their mean.
    conformal : bool
        Sets a fifth of the rows aside, by which `predict_interval` is made to hold whatever the noise is.
    feature_types : mapping or sequence, optional
        Kinds of columns that the rule would get wrong: {"zip": "category"}. "number", "ordered", "category", "boolean"
        or "datetime".
    missing_values : number, text, list or mapping, optional
        Values that stand for gaps, at fit and in predictions: -999 or [-1, 99] where numbers are, "?" where text is; or
        by column, {"z": 0, "capital_gain": 99999, "sex": ["?", "unknown"]}.
    weights : {"auto", "frequency", "importance"}
        What `sample_weight` means. "frequency": a weight of 10 is ten equal rows, and as sure as ten. "importance": how
        much a row is to count beside others, whatever the scale; n rows are then as sure as (Σw)²/Σw² of equal weight.
        "auto": whole numbers that differ are frequencies, others, and equal ones, importances: so scikit-learn's
        estimators, weights of 1/n and surveys' weights are understood.
    n_steps : int
        Training steps of a scheme other than "auto".
    early_stopping : bool
        For such a scheme: sets rows aside and stops once they are predicted no better.
    evaluation : {"auto", "folds", "left_out"}
        How rows are left out for `evaluation_`. "folds": a fifth at a time (of 1,000 rows and more two fifths in all),
        with terms sought and fitted without them, which takes two to three times as long; "left_out": one at a time,
        with the terms kept, which costs nothing and is a little too good where rows are few. "auto" is "folds" below
        2,000 rows where terms are sought.
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

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Iterable[InputLike]] | None = None,
        monotone: Mapping[InputLike, str | int] | None = None,
        remainder: bool = True,
        likelihood: str = "auto",
        target_transform: str = "none",
        conformal: bool = False,
        feature_types: Mapping | Sequence | None = None,
        missing_values: MissingLike = None,
        weights: str = "auto",
        n_steps: int = 4000,
        early_stopping: bool = False,
        evaluation: str = "auto",
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
            monotone=monotone,
            feature_types=feature_types,
            missing_values=missing_values,
            weights=weights,
            n_steps=n_steps,
            early_stopping=early_stopping,
            evaluation=evaluation,
            time_budget=time_budget,
            warm_start=warm_start,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.remainder = remainder
        self.likelihood = likelihood
        self.target_transform = target_transform
        self.conformal = conformal

    def fit(
        self,
        X: TableLike,
        y: ValuesLike,
        sample_weight: ValuesLike = None,
        *,
        groups: ValuesLike = None,
        time: ValuesLike = None,
    ) -> "AdditiveRegressor":
        """Finds the structure, fits the network on it, and keeps its posterior.

        `groups` says which rows belong together (patients, shops, days): a column of X, which is then no input, or one
        value for every row. They stay together wherever rows are left out. `time` says when rows were, likewise:
        accuracy is then that of the last fifth of the rows, by a fit of those before.

        >>> flats = pd.DataFrame({"size": data.x[:, 0], "city": np.where(data.x[:, 1] < 0.5, "Bonn", "Kiel")})
        >>> rent = 10 * flats["size"] + 2.0 * (flats["city"] == "Bonn") + (data.y - data.f)
        >>> vb.AdditiveRegressor(random_state=0).fit(flats, rent).clusters_
        [('size',), ('city',)]
        """
        self.model_ = fit_numbers(self._additive_settings(), X, y, sample_weight, groups, time)
        return self


class AdditiveClassifier(Classifier, _Additive):
    """Bayesian additive classification: the logit of a class is a sum of functions of few inputs each.

    Two classes have one logit, of the second; more have one each, and effects are asked for by `output`, the class.
    Parameters and attributes are those of `AdditiveRegressor` (but `likelihood` and `conformal`), with
    `class_weight` and `classes_`.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> model = vb.AdditiveClassifier(random_state=0).fit(data.x, data.y > 14)
    >>> model.classes_.tolist()
    [False, True]

    Parameters
    ----------
    class_weight : {"balanced"} or mapping, optional
        What rows of a class count, times `sample_weight`: "balanced", so that all classes count the same, or a weight
        by class, {"yes": 5}, 1 for those not named. They are importances, whatever their scale (`weights`).
        Probabilities, and the accuracy stated at the fit, are then those of a population with classes of these weights;
        a threshold other than 0.5 on probabilities as they are often serves better.
    """

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Iterable[InputLike]] | None = None,
        monotone: Mapping[InputLike, str | int] | None = None,
        remainder: bool = True,
        feature_types: Mapping | Sequence | None = None,
        missing_values: MissingLike = None,
        weights: str = "auto",
        class_weight: ClassWeightLike = None,
        n_steps: int = 4000,
        early_stopping: bool = False,
        evaluation: str = "auto",
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
            monotone=monotone,
            feature_types=feature_types,
            missing_values=missing_values,
            weights=weights,
            n_steps=n_steps,
            early_stopping=early_stopping,
            evaluation=evaluation,
            time_budget=time_budget,
            warm_start=warm_start,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.remainder = remainder
        self.class_weight = class_weight

    def fit(
        self,
        X: TableLike,
        y: ValuesLike,
        sample_weight: ValuesLike = None,
        *,
        groups: ValuesLike = None,
        time: ValuesLike = None,
    ) -> "AdditiveClassifier":
        """Finds the structure, fits the network on it, and keeps its posterior; `groups` and `time` as for numbers.

        >>> clusters = [("x0", "x1"), ("x3",)]
        >>> vb.AdditiveClassifier(clusters=clusters).fit(data.x, np.where(data.y > 14, "high", "low")).classes_.tolist()
        ['high', 'low']
        """
        self.model_ = fit_classes(self._additive_settings(), X, y, sample_weight, groups, time)
        return self
