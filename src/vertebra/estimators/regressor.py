"""Regressors: mean, spread, quantiles, draws and densities of y, in its units."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import ArrayLike, Float
from sklearn.base import RegressorMixin

from vertebra.estimators import partitioned
from vertebra.estimators.estimator import Estimator, Part
from vertebra.machine.checks import seed_of
from vertebra.models.evaluation import Evaluation
from vertebra.models.model import Shaped
from vertebra.models.target import as_numbers
from vertebra.tables.named import taken_apart
from vertebra.tables.partitions import DaskFrame, is_dask
from vertebra.tables.schema import TableLike, ValuesLike


class Regressor(RegressorMixin, Estimator):
    """The ways to predict numbers."""

    likelihood: str
    conformal: bool

    likelihood_: str = Part(lambda model: model.noise)  # type: ignore[assignment]

    @overload
    def predict(self, X: DaskFrame, return_std: bool = False) -> Any: ...
    @overload
    def predict(self, X: TableLike, return_std: Literal[False] = False) -> Shaped: ...
    @overload
    def predict(self, X: TableLike, return_std: Literal[True]) -> tuple[Shaped, Shaped]: ...
    @overload
    def predict(self, X: TableLike, return_std: bool) -> Shaped | tuple[Shaped, Shaped]: ...
    def predict(self, X: TableLike, return_std: bool = False) -> Any:
        """The mean of y; with `return_std` also its sd, the noise and the uncertainty of f together.

        Of a `dask.dataframe` series of Dask's, which nobody has worked out yet.

        >>> mean, sd = model.predict(data.x, return_std=True)
        >>> vb.metrics.rmse(data.y, mean) < 1.5, sd.shape
        (True, (400,))
        """
        model = self._fitted()
        if is_dask(X):
            return partitioned.numbers(model, X, with_sd=return_std)
        return model.mean_and_sd(X) if return_std else model.mean(X)

    def predict_f(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """Mean and sd of f itself on the link scale, without the noise.

        >>> mean, sd = model.predict_f(data.x)
        >>> bool((sd < model.predict(data.x, return_std=True)[1]).all())
        True
        """
        return self._fitted().f(X)

    def predict_uncertainty(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """Two parts of the sd of y: `aleatoric`, the noise, and `epistemic`, what more data would take away.

        Each (n,), or (n, targets); their squares sum to the square of the sd that `predict` gives.

        >>> aleatoric, epistemic = model.predict_uncertainty(data.x)
        >>> bool(epistemic.mean() < aleatoric.mean())  # more data would be of little use
        True
        """
        return self._fitted().uncertainty(X)

    def predict_interval(self, X: TableLike, level: float = 0.95) -> Any:
        """Lower and upper limits for y, (n, 2); (n, 2, targets) for several targets.

        Of a `dask.dataframe` a frame of Dask's with the columns lower and upper.

        With `conformal=True` at fit, they hold with at least this probability whatever the distribution of y, as long
        as new rows come from where the old ones came from; and with these very rows set aside, nine times in ten.

        >>> lower, upper = model.predict_interval(data.x, level=0.9).T
        >>> 0.8 < vb.metrics.coverage(data.y, lower, upper) < 1.0
        True
        """
        return partitioned.limits(self._fitted(), X, level) if is_dask(X) else self._fitted().interval(X, level)

    def predict_quantiles(self, X: TableLike, q: ArrayLike | Sequence[float]) -> Shaped:
        """Quantiles of y, (n, len(q)); (n, len(q), targets) for several targets.

        >>> model.predict_quantiles(data.x, [0.1, 0.5, 0.9]).shape
        (400, 3)
        """
        return self._fitted().quantiles(X, q)

    def sample_y(self, X: TableLike, n_samples: int = 1, random_state: int | None = None) -> Shaped:
        """Draws of y, (n, n_samples): each a function of the posterior plus noise.

        >>> draws = model.sample_y(data.x, n_samples=20, random_state=0)
        >>> draws.shape
        (400, 20)
        >>> largest = draws.max(axis=0)  # of all rows, with its uncertainty
        """
        return self._fitted().draws(X, n_samples, seed_of(random_state))

    def log_prob(self, X: TableLike, y: ValuesLike) -> Float[np.ndarray, " n"]:
        """log p(y | X) of each row, in the units of y; summed over targets.

        >>> model.log_prob(data.x, data.y).shape
        (400,)
        """
        return self._fitted().log_prob(X, y)

    def evaluate(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> Evaluation:
        """Scores and calibration on rows that were not fitted, beside a linear model and the mean.

        >>> new = vb.datasets.synthetic("f1", n=400, seed=1)
        >>> scores = model.evaluate(new.x, new.y).scores
        >>> scores["model"]["rmse"] < scores["linear"]["rmse"] < scores["mean"]["rmse"]
        True
        """
        return self._fitted().evaluate(X, y, sample_weight, self.weights)

    def score(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike = None) -> float:
        """R² of the predictions; `y` may name a column, and text of numbers is numbers, as in `fit`.

        >>> bool(model.score(data.x, data.y) > 0.8)
        True
        """
        X, y, sample_weight = taken_apart(X, y, sample_weight, is_class=False)[:3]
        return super().score(X, as_numbers(y, type(self).__name__), sample_weight)  # type: ignore[arg-type]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
