"""Estimators of any skeleton: what to build is a skeleton and a scheme."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from vertebra.estimators.classifier import Classifier
from vertebra.estimators.estimator import Estimator, Part
from vertebra.estimators.regressor import Regressor
from vertebra.models.networks import ENSEMBLES, SCHEMES, SCHEMES_OF_CLASSES
from vertebra.models.skeleton import NOISES_OF_ENSEMBLES, fit_classes, fit_numbers
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.schema import MissingLike, TableLike, ValuesLike


class _Skeleton(Estimator):
    """What the two estimators of any skeleton share."""

    skeleton_: Skeleton = Part(lambda model: model.skeleton)  # type: ignore[assignment]

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        scheme: str = "auto",
        *,
        widths: Sequence[int] | None = None,
        feature_types: Mapping | Sequence | None = None,
        missing_values: MissingLike = None,
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
        self.missing_values = missing_values
        self.weights = weights
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose


class SkeletonRegressor(Regressor, _Skeleton):
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
        With the scheme "tabular" it stands on a layer with a node per input (`vb.embedded`), which `widths` begin with.
    scheme : str
        "auto" is "tabular": twenty-four networks on embedded inputs, which each leave an eighth of the rows out, under
        three priors, of which rows left out choose, averaged, with the noise taken from rows they had not seen. On a
        skeleton of your own it is "deep_ensemble", sixteen networks without embeddings; for fewer rows than networks
        and for other noise than below "random_features", a Gaussian process by random features. Or the name of a
        scheme, as for `AdditiveRegressor`.
    widths : sequence of int, optional
        Of the layers below the top.
    likelihood : {"auto", "gaussian", "student_t", "heteroscedastic", "poisson", "negative_binomial", "counts"}
        "auto": of an ensemble even noise, normal or with heavy tails, or "heteroscedastic", by f and by how far members
        disagree, as rows left out ask for; else "gaussian". "counts" is "negative_binomial".
    n_steps : int, optional
        Of training; by default 2000, and of an ensemble 60 passes over the rows, but at
        least 2000 ("deep_ensemble": 5000; classes: 600) and at most 20000.
    conformal, feature_types, missing_values, weights, early_stopping, time_budget, checkpoint, random_state, verbose
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
        missing_values: MissingLike = None,
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
            missing_values=missing_values,
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

    def fit(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> "SkeletonRegressor":
        """Trains the network by the ELBO.

        >>> weighted = vb.SkeletonRegressor(skeleton, "random_features", n_steps=200)
        >>> weighted.fit(data.x, data.y, sample_weight=data.x[:, 0]).skeleton_ == skeleton
        True
        """
        settings = self._settings(list(SCHEMES))
        if self.scheme in ENSEMBLES and self.likelihood not in NOISES_OF_ENSEMBLES:
            raise ValueError(
                f'`likelihood` must be one of {", ".join(NOISES_OF_ENSEMBLES)} with scheme="{self.scheme}", got '
                f"{self.likelihood!r}: use another scheme."
            )
        self.model_ = fit_numbers(settings, X, y, sample_weight)
        return self


class SkeletonClassifier(Classifier, _Skeleton):
    """Classification by a Bayesian network on any skeleton. Parameters as for `SkeletonRegressor`.

    `scheme="auto"` is "tabular": twenty-four networks on embedded inputs, which each leave an eighth of the rows out,
    under three priors, of which rows left out choose; their mean logits are scaled so that these rows are likeliest.
    With fewer than eight rows of a class, and on a skeleton of your own, it is "random_features". "deep_ensemble" is
    for numbers alone.

    >>> data = vb.datasets.synthetic("f1", n=400)
    >>> skeleton = vb.additive(10, clusters=[(0, 1), (2,), (3, 4)], depth=1)
    >>> model = vb.SkeletonClassifier(skeleton, n_steps=200, random_state=0).fit(data.x, data.y > 14)
    >>> model.score(data.x, data.y > 14) > 0.85
    True
    """

    def fit(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> "SkeletonClassifier":
        """Trains the network by the ELBO.

        >>> words = vb.SkeletonClassifier(skeleton, n_steps=200).fit(data.x, np.where(data.y > 14, "high", "low"))
        >>> words.classes_.tolist()
        ['high', 'low']
        """
        self.model_ = fit_classes(self._settings(SCHEMES_OF_CLASSES), X, y, sample_weight)
        return self
