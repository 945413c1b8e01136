"""Classifiers: probabilities of classes."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin

from vertebra.estimators import partitioned
from vertebra.estimators.estimator import Estimator, Part
from vertebra.models.evaluation import Evaluation
from vertebra.models.model import Shaped
from vertebra.tables.named import taken_apart
from vertebra.tables.partitions import is_dask
from vertebra.tables.schema import TableLike, ValuesLike


class Classifier(ClassifierMixin, Estimator):
    """The ways to predict classes."""

    classes_: np.ndarray = Part(lambda model: model.target.classes)  # type: ignore[assignment]

    def predict_proba(self, X: TableLike) -> Any:
        """P(class | X), (n, classes): the uncertainty of f is averaged over.

        Of a `dask.dataframe` a frame of Dask's, with a column for each class.

        >>> probability = model.predict_proba(data.x)
        >>> probability.shape, np.allclose(probability.sum(axis=1), 1.0)
        ((400, 2), True)
        """
        return partitioned.probabilities(self._fitted(), X) if is_dask(X) else self._fitted().probabilities(X)

    def predict_proba_interval(self, X: TableLike, level: float = 0.95) -> Float[np.ndarray, "n 2 classes"]:
        """Lower and upper limits of P(class | X), (n, 2, classes): how sure the model is of its probabilities.

        They are of the probability itself, which more rows would narrow, and not of y.

        >>> limits = model.predict_proba_interval(data.x, level=0.9)
        >>> probability = model.predict_proba(data.x)
        >>> limits.shape, bool(np.mean((limits[:, 0] < probability) & (probability < limits[:, 1])) > 0.99)
        ((400, 2, 2), True)
        """
        return self._fitted().probability_interval(X, level)

    def predict_f(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """Mean and sd of f on the logit scale, (n,) or (n, classes); the terms of `eval_terms` sum to the mean.

        >>> mean, sd = model.predict_f(data.x)
        >>> mean.shape, sd.shape
        ((400,), (400,))
        """
        return self._fitted().f(X)

    def predict(self, X: TableLike) -> Any:
        """The most probable class; of a `dask.dataframe` a series of Dask's.

        >>> bool(np.mean(model.predict(data.x) == (data.y > 14)) > 0.85)
        True
        """
        if is_dask(X):
            return partitioned.classes(self._fitted(), X)
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def log_prob(self, X: TableLike, y: ValuesLike) -> Float[np.ndarray, " n"]:
        """log P(y | X) of each row.

        >>> bool(np.exp(model.log_prob(data.x, data.y > 14)).mean() > 0.75)
        True
        """
        return self._fitted().log_prob(X, y)

    def evaluate(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> Evaluation:
        """Scores and calibration on rows that were not fitted, beside a linear model and the shares of the classes.

        >>> new = vb.datasets.synthetic("f1", n=400, seed=1)
        >>> scores = model.evaluate(new.x, new.y > 14).scores
        >>> scores["model"]["log_loss"] < scores["linear"]["log_loss"] < scores["shares"]["log_loss"]
        True
        """
        return self._fitted().evaluate(X, y, sample_weight, self.weights)

    def score(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> float:
        """The share of the rows that get the right class; `y` may name a column, as in `fit`.

        >>> bool(model.score(data.x, data.y > 14) > 0.8)
        True
        """
        X, y, sample_weight = taken_apart(X, y, sample_weight, is_class=True)[:3]
        return super().score(X, y, sample_weight)  # type: ignore[arg-type]

    def decision_function(self, X: TableLike) -> Shaped:
        """The logit of the second class's probability, (n,); of more classes their log probabilities, (n, classes).

        >>> bool(np.all((model.decision_function(data.x) > 0) == model.predict(data.x)))
        True
        """
        p = np.maximum(self.predict_proba(X), 1e-300)
        return np.log(p[:, 1]) - np.log(p[:, 0]) if p.shape[1] == 2 else np.log(p)
