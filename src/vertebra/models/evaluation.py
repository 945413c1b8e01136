"""How well a model predicts rows it was not fitted to, beside a linear model and beside knowing nothing."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import expit, softmax

from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.later import later
from vertebra.models.rows import Rows
from vertebra.models.scores import Method, ScoreName
from vertebra.models.transform import Original
from vertebra.tables.encoding import MOST_LEVELS
from vertebra.tables.folds import folds_of, groups_of

# a model is looked at, and predicts, without them
stats, exceptions = later("scipy.stats"), later("sklearn.exceptions")
linear_model, metrics = later("sklearn.linear_model"), later("sklearn.metrics")

# Levels at which coverage is looked at, and bins of probabilities.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
N_BINS = 10
N_FOLDS = 5
# Thresholds of a probability that are looked at: quantiles of what was said, so that rare classes have some too.
N_THRESHOLDS = 200
DECISIONS = ("true_second", "false_second", "false_first", "true_first")


@dataclass(frozen=True)
class Evaluation:
    """`scores` of the model and of baselines on `n` rows by weight, and `calibration`: what was said and what was seen.

    Of numbers: rmse, r2, coverage_95, log_density; the baselines are a linear model and the mean. Of classes: log_loss,
    accuracy, and of two classes auc; the baselines are a linear logistic model and the shares of the classes.
    `calibration` has expected (a level, or the mean of stated probabilities), observed (coverage, or how often), and
    95 % limits of what was observed. With several targets every score bears its target's number. `method` says how rows
    were left out, `method.words` in words. `decisions`, of two classes: see `thresholds`.
    """

    method: Method
    n: int | float
    scores: dict[str, dict[str, float]]
    calibration: dict[str, list[float]] = field(default_factory=dict)
    decisions: dict[str, list[float]] = field(default_factory=dict)

    def thresholds(self) -> pd.DataFrame:
        """Of two classes: what follows if the second is said from a probability on, threshold by threshold.

        `decisions` are the weights of rows that are truly and falsely said to be of the second class, and of the first;
        besides these: recall (of the second class, how much is found), false_alarms (of the first, how much is said to
        be the second), precision (of what is said, how much is true), said (the share that is), and lift (precision
        over the share of the second class).
        """
        if not self.decisions:
            raise ValueError("thresholds are for two classes, with rows of both.")
        table = pd.DataFrame(self.decisions)
        tp, fp, fn, tn = (table[name] for name in DECISIONS)
        total, said = tp + fp + fn + tn, tp + fp
        precision = (tp / said).fillna(1.0)
        return table.assign(
            recall=tp / (tp + fn),
            false_alarms=fp / (fp + tn),
            precision=precision,
            said=said / total,
            lift=precision / ((tp + fn) / total),
        )

    def table(self) -> pd.DataFrame:
        """A row for the model and for each baseline, a column per score."""
        return pd.DataFrame.from_dict(self.scores, orient="index")

    def curve(self) -> pd.DataFrame:
        """`calibration` as a table."""
        return pd.DataFrame(self.calibration)

    def __str__(self) -> str:
        return f"On {self.n} rows ({self.method.words}):\n{self.table().round(4).to_string(na_rep='')}"


def of_numbers(
    method: Method,
    predictive: Predictive | Original,
    z: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    linear: Float[np.ndarray, "n k"],
    centre: Float[np.ndarray, " k"],
    unit: Float[np.ndarray, " k"],
    factor: Callable[[float], Float[np.ndarray, " k"]] | None = None,
) -> Evaluation:
    """Of predictions of z, the targets on the scale of `predictive`; `factor` gives conformal half-widths in sds."""
    mean, density = predictive.mean(), predictive.log_prob(z)
    if factor is None:
        inside = predictive.inside(z, LEVELS)
    else:
        away = np.abs(predictive.away(z))
        inside = np.stack([away <= factor(level) for level in LEVELS])
    scores: dict[str, dict[str, float]] = {"model": {}, "linear": {}, "mean": {}}
    for k, (target, size) in enumerate(zip(z.T, unit, strict=True)):
        own = k if len(unit) > 1 else None
        spread = float(np.average((target - np.average(target, weights=weight)) ** 2, weights=weight))
        for name, said in (("model", mean[:, k]), ("linear", linear[:, k]), ("mean", centre[k])):
            square = float(np.average((target - said) ** 2, weights=weight))
            scores[name] |= {
                ScoreName("rmse", own).key: float(size * np.sqrt(square)),
                ScoreName("r2", own).key: 1.0 - square / spread if spread > 0.0 else math.nan,
            }
        scores["model"] |= {
            ScoreName("coverage_95", own).key: float(np.average(inside[LEVELS.index(0.95)][:, k], weights=weight)),
            ScoreName("log_density", own).key: float(np.average(density[:, k], weights=weight) - np.log(size)),
        }
    seen = [np.average(hits.mean(axis=1), weights=weight) for hits in inside]
    return Evaluation(
        method, round(float(weight.sum())), scores, _with_limits(LEVELS, seen, np.full(len(LEVELS), weight.sum()))
    )


def of_classes(
    method: Method,
    probabilities: Float[np.ndarray, "n classes"],
    codes: np.ndarray,
    weight: Float[np.ndarray, " n"],
    *,
    linear: Float[np.ndarray, "n k"],
    shares: Float[np.ndarray, " classes"],
    matrix: Float[np.ndarray, "n p"],
) -> Evaluation:
    """Of probabilities of classes; `linear` are the logits of a linear model, `shares` those of the classes at fit.

    `matrix` are the inputs. Rows with equal ones have one place in the order that AUC looks at: left out one at a time,
    each makes itself a little less likely than its equals of the other class.
    """
    said = {"model": probabilities, "linear": from_logits(linear), "shares": np.tile(shares, (len(codes), 1))}
    scores: dict[str, dict[str, float]] = {}
    for name, p in said.items():
        scores[name] = {
            "log_loss": _log_loss(p, codes, weight),
            "accuracy": float(np.average(np.argmax(p, axis=1) == codes, weights=weight)),
        }
        if p.shape[1] == 2 and len(np.unique(codes)) == 2:
            group = groups_of(matrix)
            second = np.bincount(group, weight * p[:, 1])[group] / np.bincount(group, weight)[group]
            # what differs by rounding alone is equal
            scores[name]["auc"] = float(metrics.roc_auc_score(codes, np.round(second, 12), sample_weight=weight))
    # of two classes the second; of more every one
    first = 1 if probabilities.shape[1] == 2 else 0
    p = probabilities[:, first:].ravel()
    hits = (codes[:, None] == np.arange(first, probabilities.shape[1])).ravel()
    mass = np.repeat(weight, probabilities.shape[1] - first)
    bins = np.array_split(np.argsort(p, kind="stable"), min(N_BINS, len(p)))
    expected, observed = ([np.average(v[b], weights=mass[b]) for b in bins] for v in (p, hits))
    curve = _with_limits(expected, observed, [mass[b].sum() for b in bins])
    is_pair = first == 1 and len(np.unique(codes)) == 2
    decided = decisions(probabilities[:, 1], codes, weight) if is_pair else {}
    return Evaluation(method, round(float(weight.sum())), scores, curve, decided)


def decisions(p: Float[np.ndarray, " n"], codes: np.ndarray, weight: Float[np.ndarray, " n"]) -> dict[str, list[float]]:
    """The weights of rows by what they are and what is said of them, if p from a threshold on says the second class."""
    # what differs by rounding alone is equal
    p = np.round(p, 12)
    chosen = np.unique(np.quantile(p, np.linspace(0.0, 1.0, N_THRESHOLDS - 1), method="nearest"))
    thresholds = np.unique([*chosen, 0.5, np.nextafter(p.max(), 2.0)])
    order = np.argsort(p, kind="stable")
    below = np.searchsorted(p[order], thresholds, side="left")
    second, first = (
        np.append(0.0, np.cumsum(weight[order] * (codes[order] == code)))[[*below, len(p)]] for code in (1, 0)
    )
    parts = (second[-1] - second[:-1], first[-1] - first[:-1], second[:-1], first[:-1])
    return {"threshold": thresholds.tolist()} | {
        name: part.tolist() for name, part in zip(DECISIONS, parts, strict=True)
    }


def losses(
    predictive: Predictive, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " k"]:
    """The mean squared error of every target, or of classes the log loss."""
    if predictive.likelihood.has_classes:
        return np.array([_log_loss(predictive.probabilities(), y[:, 0].astype(int), weight)])
    return weight @ (y - predictive.mean()) ** 2 / weight.sum()


def losses_of_logits(
    logits: Float[np.ndarray, "n k"], codes: Float[np.ndarray, "n 1"], weight: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " 1"]:
    """The log loss of a linear model of classes."""
    return np.array([_log_loss(from_logits(logits), codes[:, 0].astype(int), weight)])


def losses_of_rows(
    said: Float[np.ndarray, "n k"], y: Float[np.ndarray, "n m"], *, has_classes: bool
) -> Float[np.ndarray, "n m"]:
    """The squared error of every row and target; or of probabilities of classes, y their codes, minus the log."""
    if not has_classes:
        return (y - said) ** 2
    own = said[np.arange(len(y)), y[:, 0].astype(int)]
    return -np.log(np.maximum(own, 1e-300))[:, None]


def _log_loss(probabilities, codes, weight) -> float:
    own = losses_of_rows(probabilities, codes[:, None].astype(float), has_classes=True)
    return float(np.average(own[:, 0], weights=weight))


def from_logits(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n classes"]:
    """Probabilities of all classes; of two there is one logit, of the second."""
    if logits.shape[1] > 1:
        return softmax(logits, axis=1)
    return np.concatenate([expit(-logits), expit(logits)], axis=1)


def _with_limits(expected, observed, n) -> dict[str, list[float]]:
    """Clopper and Pearson's 95 % limits of shares observed in n rows each."""
    observed, n = np.asarray(observed, dtype=float), np.asarray(n, dtype=float)
    hits = observed * n
    lower = np.where(hits < 0.5, 0.0, stats.beta.ppf(0.025, np.maximum(hits, 1e-9), n - hits + 1.0))
    upper = np.where(n - hits < 0.5, 1.0, stats.beta.ppf(0.975, hits + 1.0, np.maximum(n - hits, 1e-9)))
    columns = {"expected": expected, "observed": observed, "lower": lower, "upper": upper, "n": n}
    return {name: [float(v) for v in values] for name, values in columns.items()}


class Linear(NamedTuple):
    """A linear model of coded rows: numbers with the mean for gaps, and a column per level."""

    n_levels: tuple[int, ...]
    gaps: Float[np.ndarray, " p"]
    scale: Float[np.ndarray, " p"]
    coefficients: Float[np.ndarray, "m k"]  # the constant first

    def __call__(self, matrix: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n k"]:
        """Means, or logits."""
        return _design(matrix, self.n_levels, self.gaps, self.scale) @ self.coefficients


def fit_linear(
    matrix: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
    *,
    classes: int = 0,
) -> Linear:
    """Ridge regression of y, or logistic regression of the codes of classes."""
    n_levels = tuple(n if n <= MOST_LEVELS else -1 for n in n_levels)
    seen = ~np.isnan(matrix)
    mass = np.maximum(weight @ seen, 1e-300)
    gaps = weight @ np.where(seen, matrix, 0.0) / mass
    scale = np.sqrt(weight @ np.where(seen, matrix - gaps, 0.0) ** 2 / mass)
    scale = np.where(scale > 0.0, scale, 1.0)
    design = _design(matrix, n_levels, gaps, scale)[:, 1:]
    if not design.shape[1]:  # nothing but categories of too many levels: a constant
        fitted = fit_linear(np.zeros((len(matrix), 1)), y, weight, [0], classes=classes)
        return Linear(n_levels, gaps, scale, fitted.coefficients[:1])
    if classes:
        codes = y[:, 0].astype(int)
        model = linear_model.LogisticRegression(max_iter=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
            model.fit(design, codes, weight)
        slopes = np.concatenate([np.asarray(model.intercept_)[None], model.coef_.T])
        if classes > 2:
            # classes that are not there get a logit that leaves them nothing; of two that are, the first has logit 0
            coefficients = np.zeros((len(slopes), classes))
            coefficients[0] = -30.0
            coefficients[:, model.classes_] = slopes if len(model.classes_) > 2 else slopes * np.array([0.0, 1.0])
            slopes = coefficients
        return Linear(n_levels, gaps, scale, slopes)
    model = linear_model.Ridge().fit(design, y, weight)
    slopes = model.coef_.reshape(y.shape[1], -1).T
    return Linear(n_levels, gaps, scale, np.concatenate([np.reshape(model.intercept_, (1, -1)), slopes]))


def _design(matrix, n_levels, gaps, scale):
    columns = [np.ones((len(matrix), 1))]
    for values, n, gap, unit in zip(matrix.T, n_levels, gaps, scale, strict=True):
        if n > 0:
            codes = np.where(np.isnan(values) | (values < 0), n, values).astype(int)
            columns.append((codes[:, None] == np.arange(n + 1)).astype(float))
        elif n == 0:
            u = np.clip(np.where(np.isnan(values), 0.0, (values - gap) / unit), -10.0, 10.0)
            columns.append(np.stack([u, np.isnan(values).astype(float)], axis=1))
    return np.concatenate(columns, axis=1)


def folds_for(rows: Rows, seed: int) -> Int[np.ndarray, " n"]:
    """The fold of each row in which linear models, and others beside them, leave it out."""
    return folds_of(N_FOLDS, np.random.default_rng(seed), rows.matrix, rows.y, rows.group)


def cross_fitted(
    rows: Rows, folds: Int[np.ndarray, " n"], n_levels: Sequence[int], *, classes: int = 0
) -> Float[np.ndarray, "n k"]:
    """What linear models say of rows they were not fitted to, fold by fold; 0 of rows in no fold, which is −1."""
    matrix, y, weight = rows.learnt
    result: np.ndarray | None = None
    for fold in range(N_FOLDS):
        out = folds == fold
        if not out.any() or (classes and len(np.unique(y[~out])) < 2) or (~out).sum() < 2:
            continue
        said = fit_linear(matrix[~out], y[~out], weight[~out], n_levels, classes=classes)(matrix[out])
        result = np.zeros((len(matrix), said.shape[1])) if result is None else result
        result[out] = said
    return np.zeros((len(matrix), y.shape[1])) if result is None else result
