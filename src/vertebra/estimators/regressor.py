"""Regressors: mean, spread, quantiles, draws and densities of y, in its units."""

from typing import Any

from sklearn.base import RegressorMixin

from vertebra.estimators.estimator import Estimator, Part
from vertebra.machine.checks import seed_of
from vertebra.models.evaluation import Evaluation


class Regressor(RegressorMixin, Estimator):
    """The ways to predict numbers."""

    likelihood: str
    conformal: bool

    likelihood_: str = Part(lambda model: model.noise)  # type: ignore[assignment]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y; with `return_std` also its sd, the noise and the uncertainty of f together.

        >>> mean, sd = model.predict(data.x, return_std=True)
        >>> vb.metrics.rmse(data.y, mean) < 1.5, sd.shape
        (True, (400,))
        """
        model = self._fitted()
        return model.mean_and_sd(X) if return_std else model.mean(X)

    def predict_f(self, X: Any) -> Any:
        """Mean and sd of f itself on the link scale, without the noise.

        >>> mean, sd = model.predict_f(data.x)
        >>> bool((sd < model.predict(data.x, return_std=True)[1]).all())
        True
        """
        return self._fitted().f(X)

    def predict_uncertainty(self, X: Any) -> Any:
        """Two parts of the sd of y: `aleatoric`, the noise, and `epistemic`, what more data would take away.

        Each (n,), or (n, targets); their squares sum to the square of the sd that `predict` gives.

        >>> aleatoric, epistemic = model.predict_uncertainty(data.x)
        >>> bool(epistemic.mean() < aleatoric.mean())  # more data would be of little use
        True
        """
        return self._fitted().uncertainty(X)

    def predict_interval(self, X: Any, level: float = 0.95) -> Any:
        """Lower and upper limits for y, (n, 2); (n, 2, targets) for several targets.

        With `conformal=True` at fit, they hold with at least this probability whatever the distribution of y, as long
        as new rows come from where the old ones came from; and with these very rows set aside, nine times in ten.

        >>> lower, upper = model.predict_interval(data.x, level=0.9).T
        >>> 0.8 < vb.metrics.coverage(data.y, lower, upper) < 1.0
        True
        """
        return self._fitted().interval(X, level)

    def predict_quantiles(self, X: Any, q: Any) -> Any:
        """Quantiles of y, (n, len(q)); (n, len(q), targets) for several targets.

        >>> model.predict_quantiles(data.x, [0.1, 0.5, 0.9]).shape
        (400, 3)
        """
        return self._fitted().quantiles(X, q)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Draws of y, (n, n_samples): each a function of the posterior plus noise.

        >>> draws = model.sample_y(data.x, n_samples=20, random_state=0)
        >>> draws.shape
        (400, 20)
        >>> largest = draws.max(axis=0)  # of all rows, with its uncertainty
        """
        return self._fitted().draws(X, n_samples, seed_of(random_state))

    def log_prob(self, X: Any, y: Any) -> Any:
        """log p(y | X) of each row, in the units of y; summed over targets.

        >>> model.log_prob(data.x, data.y).shape
        (400,)
        """
        return self._fitted().log_prob(X, y)

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Scores and calibration on rows that were not fitted, beside a linear model and the mean.

        >>> new = vb.datasets.synthetic("f1", n=400, seed=1)
        >>> scores = model.evaluate(new.x, new.y).scores
        >>> scores["model"]["rmse"] < scores["linear"]["rmse"] < scores["mean"]["rmse"]
        True
        """
        return self._fitted().evaluate(X, y, sample_weight, self.weights)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
