"""The ways to predict: of regressors and of classifiers, on any posterior of f."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import binom
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d

from vertebra.estimators.evaluation import HELD_OUT, Evaluation, of_classes, of_numbers
from vertebra.estimators.reading import Rows, TableEstimator
from vertebra.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.checks import check_count, check_level, seed_of
from vertebra.tables.column import target_fault
from vertebra.tables.passes import StreamedRows
from vertebra.tables.survey import Facts
from vertebra.tables.weighting import Weights, weighting

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "student_t": StudentT,
    "poisson": Poisson,
}
# How often, over the rows set aside, conformal intervals are to cover at least what they say.
CONFORMAL_CONFIDENCE = 0.9


class RegressorPredictions(RegressorMixin, TableEstimator):
    """Mean, spread, quantiles, draws and densities of y, in its units."""

    likelihood: str
    conformal: bool
    _likelihood: Likelihood
    _noises: ClassVar[Mapping[str, type[Likelihood]]] = LIKELIHOODS

    @property
    def likelihood_(self) -> str:
        """The noise that was fitted."""
        return next(name for name, kind in LIKELIHOODS.items() if type(self._likelihood) is kind)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y; with `return_std` also its sd, the noise and the uncertainty of f together.

        >>> mean, sd = model.predict(data.x, return_std=True)
        >>> vb.metrics.rmse(data.y, mean) < 1.5, sd.shape
        (True, (400,))
        """
        predictive = self._predictive(X, with_variance=return_std or self.likelihood == "poisson")
        mean = self._in_units(predictive.mean())
        if not return_std:
            return self._shaped(mean)
        variance = predictive.epistemic() + predictive.aleatoric()
        return self._shaped(mean), self._shaped(self._y_scale * np.sqrt(variance))

    def predict_f(self, X: Any) -> Any:
        """Mean and sd of f itself on the link scale, without the noise.

        >>> mean, sd = model.predict_f(data.x)
        >>> bool((sd < model.predict(data.x, return_std=True)[1]).all())
        True
        """
        predictive = self._predictive(X)
        each = self._likelihood.latent_per_target
        mean = self._y_mean + self._y_scale * predictive.f_mean[:, ::each]
        return self._shaped(mean), self._shaped(self._y_scale * np.sqrt(predictive.f_variance[:, ::each]))

    def predict_uncertainty(self, X: Any) -> Any:
        """Two parts of the sd of y: `aleatoric`, the noise, and `epistemic`, what more data would take away.

        Each (n,), or (n, targets); their squares sum to the square of the sd that `predict` gives.

        >>> aleatoric, epistemic = model.predict_uncertainty(data.x)
        >>> bool(epistemic.mean() < aleatoric.mean())  # more data would be of little use
        True
        """
        predictive = self._predictive(X)
        parts = (np.sqrt(predictive.aleatoric()), np.sqrt(predictive.epistemic()))
        return tuple(self._shaped(self._y_scale * part) for part in parts)

    def predict_interval(self, X: Any, level: float = 0.95) -> Any:
        """Lower and upper limits for y, (n, 2); (n, 2, targets) for several targets.

        With `conformal=True` at fit, they hold with at least this probability whatever the distribution of y, as long
        as new rows come from where the old ones came from; and with these very rows set aside, nine times in ten.

        >>> lower, upper = model.predict_interval(data.x, level=0.9).T
        >>> 0.8 < vb.metrics.coverage(data.y, lower, upper) < 1.0
        True
        """
        check_level(level)
        scores = getattr(self, "_conformal", None)
        if scores is None:
            return self.predict_quantiles(X, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
        mean, sd = self.predict(X, return_std=True)
        mean, sd = (part.reshape(len(part), -1) for part in (mean, sd))
        factor = conformal_factor(scores, level)
        limits = np.stack([mean - factor * sd, mean + factor * sd], axis=1)
        if self._likelihood.is_discrete:
            limits = np.stack([np.maximum(np.ceil(limits[:, 0]), 0.0), np.floor(limits[:, 1])], axis=1)
        return limits[..., 0] if self._single else limits

    def predict_quantiles(self, X: Any, q: Any) -> Any:
        """Quantiles of y, (n, len(q)); (n, len(q), targets) for several targets.

        >>> model.predict_quantiles(data.x, [0.1, 0.5, 0.9]).shape
        (400, 3)
        """
        levels = np.asarray(q, dtype=float)
        if levels.ndim != 1 or not len(levels) or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"`q` must be a list of levels between 0 and 1, got {q!r}.")
        quantiles = self._y_mean + self._y_scale * self._predictive(X).quantiles(levels)
        return quantiles[..., 0] if self._single else quantiles

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Draws of y, (n, n_samples): each a function of the posterior plus noise.

        >>> draws = model.sample_y(data.x, n_samples=20, random_state=0)
        >>> draws.shape
        (400, 20)
        >>> largest = draws.max(axis=0)  # of all rows, with its uncertainty
        """
        x = self._x(X)
        check_count(n_samples=n_samples)
        seed = seed_of(random_state)
        f = self._surface.sample(x, n_samples, seed)
        draws = np.moveaxis(self._y_mean + self._y_scale * self._likelihood.numpy_sample(f, seed), 0, 1)
        return draws[..., 0] if self._single else draws

    def log_prob(self, X: Any, y: Any) -> Any:
        """log p(y | X) of each row, in the units of y; summed over targets.

        >>> model.log_prob(data.x, data.y).shape
        (400,)
        """
        predictive = self._predictive(X)
        targets = np.asarray(y, dtype=float).reshape(len(predictive.f_mean), -1)
        if targets.shape[1] != len(self._y_scale):
            raise ValueError(f"`y` must have {len(self._y_scale)} column(s), got {targets.shape[1]}.")
        density = predictive.log_prob((targets - self._y_mean) / self._y_scale)
        return np.sum(density - np.log(self._y_scale), axis=1)

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Scores and calibration on rows that were not fitted, beside a linear model and the mean.

        >>> new = vb.datasets.synthetic("f1", n=400, seed=1)
        >>> scores = model.evaluate(new.x, new.y).scores
        >>> scores["model"]["rmse"] < scores["linear"]["rmse"] < scores["mean"]["rmse"]
        True
        """
        self._check_fitted()
        matrix = self.schema_.matrix(X, type(self).__name__)
        targets = _numbers(y, type(self).__name__)
        check_consistent_length(matrix, targets)
        targets = targets.reshape(len(matrix), -1)
        if targets.shape[1] != len(self._y_scale):
            raise ValueError(f"`y` must have {len(self._y_scale)} column(s), got {targets.shape[1]}.")
        targets = np.asarray(self._noises[self.likelihood]().check(targets), np.float64)
        kept, weight = _weighted(sample_weight, matrix, self.weights)
        predictive = self._predictive_of(self._encoding(matrix[kept]))
        rows = Rows(matrix[kept], targets[kept], weight)
        return self._evaluation(HELD_OUT, predictive, rows, self._linear(rows.matrix))

    def _evaluation(self, method: str, predictive: Predictive, rows: Rows, linear) -> Evaluation:
        """y and `linear` in the units of the target."""
        scores = getattr(self, "_conformal", None)
        return of_numbers(
            method,
            predictive,
            (rows.y - self._y_mean) / self._y_scale,
            rows.weight,
            linear=(linear - self._y_mean) / self._y_scale,
            centre=(self._profile.means - self._y_mean) / self._y_scale,
            unit=self._y_scale,
            factor=None if scores is None else lambda level: conformal_factor(scores, level),
        )

    def _predictive(self, X: Any, *, with_variance: bool = True) -> Predictive:
        return self._predictive_of(self._x(X), with_variance=with_variance)

    def _predictive_of(self, x, *, with_variance: bool = True) -> Predictive:
        if with_variance:
            return Predictive(self._likelihood, *self._surface.moments(x))
        mean = self._surface.mean(x)
        return Predictive(self._likelihood, mean, np.zeros_like(mean))

    def _in_units(self, values):
        return self._y_mean + self._y_scale * values

    def _shaped(self, values):
        return values[:, 0] if self._single else values

    def _unit(self, output: int) -> float:
        return float(self._y_scale[output])

    def _origin(self, output: int) -> float:
        return float(self._y_mean[output])

    def _targets(self, y: Any, n: int) -> Float[np.ndarray, "n k"]:
        """y as numbers, (n, targets), checked."""
        if self.likelihood not in self._noises:
            raise ValueError(f"`likelihood` must be one of {', '.join(self._noises)}, got {self.likelihood!r}.")
        targets = _numbers(y, type(self).__name__)
        self._single = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        if len(targets) != n:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {[n, len(targets)]}. "
                "`y` must have one entry per row of `X`."
            )
        targets = np.asarray(self._noises[self.likelihood]().check(targets), np.float64)
        for k, own in enumerate(targets.T):
            if (fault := target_fault(own, is_count=self.likelihood == "poisson")) is not None:
                place, found, advice = fault
                where = "" if place is None else f", in row {place} (counted from 0)"
                which = "`y`" if self._single else f"`y`, target {k},"
                raise ValueError(f"{which} {found}{where}{advice}")
        return targets

    def _standardise(self, rows: Rows, stream: StreamedRows | None) -> Float[np.ndarray, "n k"]:
        """y of mean 0 and sd 1, undone outside; counts stay as they are."""
        y, weight = rows.y, rows.weight
        if stream is not None:
            return stream.standard(y)
        if self.likelihood == "poisson":
            self._y_mean, self._y_scale = np.zeros(y.shape[1]), np.ones(y.shape[1])
            return y
        self._y_mean = np.average(y, axis=0, weights=weight)
        largest = np.maximum(np.abs(y - self._y_mean).max(axis=0), 1e-300)
        spread = largest * np.sqrt(np.average(((y - self._y_mean) / largest) ** 2, axis=0, weights=weight))
        flat = spread <= 1e-12 * np.maximum(np.abs(self._y_mean), 1e-290)
        self._y_scale = np.where(flat, 1.0, spread)
        return (y - self._y_mean) / self._y_scale

    def _standardise_streamed(self, targets: Sequence[Facts]) -> Callable[[Any], Any]:
        """The same by what a first pass found of all rows."""
        is_count = self.likelihood == "poisson"
        for each in targets:
            _check_sums(each, is_count)
        self._y_mean = np.array([0.0 if is_count else each.moments.mean for each in targets])
        spread = np.array([each.moments.sd for each in targets])
        is_flat = spread <= 1e-12 * np.maximum(np.abs(self._y_mean), 1e-290)
        self._y_scale = np.where(is_flat | is_count, 1.0, spread)
        check, mean, scale = self._noises[self.likelihood]().check, self._y_mean, self._y_scale
        return lambda y: (np.asarray(check(y), np.float64) - mean) / scale

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ClassifierPredictions(ClassifierMixin, TableEstimator):
    """Probabilities of classes."""

    classes_: np.ndarray
    _likelihood: Likelihood

    def predict_proba(self, X: Any) -> Any:
        """P(class | X), (n, classes): the uncertainty of f is averaged over.

        >>> probability = model.predict_proba(data.x)
        >>> probability.shape, np.allclose(probability.sum(axis=1), 1.0)
        ((400, 2), True)
        """
        x = self._x(X)
        return Predictive(self._likelihood, *self._surface.moments(x)).probabilities()

    def predict_f(self, X: Any) -> Any:
        """Mean and sd of f on the logit scale, (n,) or (n, classes); the terms of `eval_terms` sum to the mean.

        >>> mean, sd = model.predict_f(data.x)
        >>> mean.shape, sd.shape
        ((400,), (400,))
        """
        x = self._x(X)
        mean, variance = self._surface.moments(x)
        return tuple(part[:, 0] if part.shape[1] == 1 else part for part in (mean, np.sqrt(variance)))

    def predict(self, X: Any) -> Any:
        """The most probable class.

        >>> bool(np.mean(model.predict(data.x) == (data.y > 14)) > 0.85)
        True
        """
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def log_prob(self, X: Any, y: Any) -> Any:
        """log P(y | X) of each row.

        >>> bool(np.exp(model.log_prob(data.x, data.y > 14)).mean() > 0.75)
        True
        """
        probabilities = self.predict_proba(X)
        codes = self._codes(y)
        return np.log(np.maximum(probabilities[np.arange(len(codes)), codes], 1e-300))

    def evaluate(self, X: Any, y: Any, sample_weight: Any = None) -> Evaluation:
        """Scores and calibration on rows that were not fitted, beside a linear model and the shares of the classes.

        >>> new = vb.datasets.synthetic("f1", n=400, seed=1)
        >>> scores = model.evaluate(new.x, new.y > 14).scores
        >>> scores["model"]["log_loss"] < scores["linear"]["log_loss"] < scores["shares"]["log_loss"]
        True
        """
        self._check_fitted()
        matrix = self.schema_.matrix(X, type(self).__name__)
        y = column_or_1d(np.asarray(y))
        check_consistent_length(matrix, y)
        kept, weight = _weighted(sample_weight, matrix, self.weights)
        predictive = Predictive(self._likelihood, *self._surface.moments(self._encoding(matrix[kept])))
        rows = Rows(matrix[kept], self._codes(y[kept])[:, None], weight)
        return self._evaluation(HELD_OUT, predictive, rows, self._linear(rows.matrix))

    def _evaluation(self, method: str, predictive: Predictive, rows: Rows, linear) -> Evaluation:
        """y holds the codes of the classes."""
        known = dict(linear=linear, shares=self._profile.targets[0].shares, matrix=rows.matrix)
        return of_classes(method, predictive.probabilities(), rows.y[:, 0].astype(int), rows.weight, **known)

    def decision_function(self, X: Any) -> Any:
        """The logit of the second class's probability, (n,); of more classes their log probabilities, (n, classes).

        >>> bool(np.all((model.decision_function(data.x) > 0) == model.predict(data.x)))
        True
        """
        p = np.maximum(self.predict_proba(X), 1e-300)
        return np.log(p[:, 1]) - np.log(p[:, 0]) if p.shape[1] == 2 else np.log(p)

    def _codes(self, y: Any) -> np.ndarray:
        codes = pd.Index(self.classes_).get_indexer(pd.Index(np.asarray(y)))
        if (codes < 0).any():
            raise ValueError(
                f"`y` must hold the classes {self.classes_.tolist()}, got others in {(codes < 0).sum()} rows."
            )
        return codes

    def _classes(self, y: Any, n: int) -> np.ndarray:
        """The codes of the classes, which are learned here."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        missing = int(pd.isna(np.asarray(y, dtype=object)).sum()) if not np.isscalar(y) else 0
        if missing:
            raise ValueError(f"Input y contains NaN: {missing} value(s) are missing. Leave these rows out.")
        y = column_or_1d(np.asarray(y), warn=True)
        check_classification_targets(y)
        check_consistent_length(np.zeros(n), y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must have at least 2 classes, got 1 class: {self.classes_[0]!r}.")
        return codes

    @property
    def _likelihood_asked(self) -> Likelihood:
        return Bernoulli() if len(self.classes_) == 2 else Categorical(len(self.classes_))


def _weighted(sample_weight: Any, matrix, kind: str) -> tuple[np.ndarray, Float[np.ndarray, " m"]]:
    """The rows of weight above 0, and their weights as numbers of rows."""
    weight = _check_sample_weight(sample_weight, matrix[:, :1], dtype=np.float64, ensure_non_negative=True)
    kept = weight > 0.0
    return kept, weighting(Weights.of(weight), kind).scale * weight[kept]


def conformal_factor(scores: Float[np.ndarray, "m k"], level: float) -> Float[np.ndarray, " k"]:
    """The score, of m sorted ones, below which a new one lies with probability `level`, whichever m rows were drawn.

    The k-th smallest covers a share Beta(k, m + 1 − k) of new rows, whose mean is at least `level` from
    k = ⌈(m + 1) level⌉ on. Taken is the first k with a share below `level` in at most one draw of the m rows in ten
    (Vovk, 2012), or the last where there are too few rows for that; where the mean falls short too, infinity.
    """
    m = len(scores)
    least = int(np.ceil((m + 1) * level))
    if least > m:
        return np.full(scores.shape[1], np.inf)
    # P(Beta(k, m + 1 − k) ≥ level) = P(Binomial(m, level) ≤ k − 1)
    sure = int(binom.ppf(CONFORMAL_CONFIDENCE, m, level)) + 1
    return scores[min(max(least, sure), m) - 1]


def _check_sums(target: Facts, is_count: bool) -> None:
    """Refuses a target of files whose size, or whose squares, double precision cannot sum."""
    own = target.moments
    fault = target_fault(np.array([own.low, own.high]), is_count=is_count)
    if fault is None and (not math.isfinite(own.sd) or (own.sd == 0.0 and own.low < own.high)):
        large = not math.isfinite(own.sd)
        fault = (
            None,
            f"lies from {own.low:.3g} to {own.high:.3g}, whose squares cannot be summed",
            (f": {'divide' if large else 'multiply'} it by a constant first."),
        )
    if fault is not None:
        raise ValueError(f"The target {target.source!r} {fault[1]}{fault[2]}")


def _numbers(y: Any, estimator: str) -> np.ndarray:
    """y as finite numbers, or an error that says what is wrong and where."""
    if y is None:
        raise ValueError(f"{estimator} requires y to be passed, but the target y is None.")
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported, got the dtype {array.dtype} in `y`.")
    if array.ndim not in (1, 2):
        raise ValueError(f"y should be a 1d array, got an array of shape {array.shape} instead.")
    try:
        numbers = array.astype(np.float64)
    except OverflowError:  # whole numbers of hundreds of digits
        numbers = np.array([_finite_or_not(value) for value in array.ravel()]).reshape(array.shape)
    except (TypeError, ValueError):
        sample = next(value for value in array.ravel() if not isinstance(value, int | float | np.number))
        raise ValueError(
            f"`y` must be numbers for {estimator}, got {sample!r} among others: use AdditiveClassifier for classes."
        ) from None
    if array.dtype.kind in "US":
        raise ValueError(f"`y` must be numbers for {estimator}, got text: use AdditiveClassifier for classes.")
    rows = numbers.reshape(len(numbers), -1)
    if missing := int(np.isnan(numbers).sum()):
        first = int(np.isnan(rows).any(axis=1).argmax())
        raise ValueError(
            f"Input y contains NaN: {missing} value(s) are missing, the first in row {first} (counted from 0). Leave "
            "these rows out."
        )
    if infinite := int(np.isinf(numbers).sum()):
        first = int(np.isinf(rows).any(axis=1).argmax())
        raise ValueError(
            f"Input y contains infinity or a value too large: {infinite} value(s), the first in row {first} (counted "
            "from 0). Correct them, or leave these rows out."
        )
    return numbers


def _finite_or_not(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
