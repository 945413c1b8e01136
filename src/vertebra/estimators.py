"""scikit-learn estimators: `AdditiveRegressor` and `AdditiveClassifier`.

Fit a Bayesian additive network, say which terms are real, and give every effect with its uncertainty. Effects are
components under the product of the inputs' marginals, also where inputs are correlated.
"""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from vertebra import schemes
from vertebra.additive import Additive, fit_classes, fit_gaussian
from vertebra.anova import Effect, attribute, decompose
from vertebra.distributions import Gaussian as GaussianPosterior
from vertebra.inference import fit, moments, sample
from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from vertebra.network import build
from vertebra.polynomials import Term
from vertebra.skeleton import additive
from vertebra.sparsity import clusters_of, group_lasso_path
from vertebra.structure import discoveries, probabilities

# What each scheme is built with on the found clusters. Widths d¹, …, d^L; the last is the number of outputs.
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


# Of the weights, where f is not linear in them: the same draws for predictions and for what terms add to them.
N_DRAWS = 200


class _Additive(BaseEstimator):
    """What the regressor and the classifier share."""

    _network: Any
    _likelihood: Any
    _structures: tuple
    _known: dict[tuple, dict[Term, Effect]]
    n_features_in_: int

    def __init__(
        self,
        scheme: str = "auto",
        *,
        structure: str = "tests",
        n_subnetworks: int = 10,
        clusters: Sequence[Any] | None = None,
        n_steps: int = 4000,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.scheme = scheme
        self.structure = structure
        self.n_subnetworks = n_subnetworks
        self.clusters = clusters
        self.n_steps = n_steps
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting ------------------------------------------------------------------------------------------------------

    def _start(self, X, weight):
        """Checks what was set, and standardises X."""
        if self.scheme != "auto" and self.scheme not in SCHEMES:
            raise ValueError(f'`scheme` must be "auto" or one of {", ".join(SCHEMES)}, got {self.scheme!r}.')
        if self.structure not in ("tests", "group_lasso"):
            raise ValueError(f'`structure` must be "tests" or "group_lasso", got {self.structure!r}.')
        for name in ("n_steps", "n_subnetworks"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")
        if not weight.any():
            raise ValueError("`sample_weight` must have at least one weight above 0.")
        self._x_mean = np.average(X, axis=0, weights=weight)
        spread = np.sqrt(np.average((X - self._x_mean) ** 2, axis=0, weights=weight))
        self._x_scale = np.where(spread > 0, spread, 1.0)
        self._rows = self._standard(X)
        self._weight = weight
        self._key = jr.key(_seed(self.random_state))
        return self._rows, np.random.default_rng(_seed(self.random_state)), self._clusters_given()

    def _clusters_given(self) -> list[Term] | None:
        if self.clusters is None:
            return None
        names = self._names()
        clusters = []
        for cluster in self.clusters:
            if isinstance(cluster, str) or not len(tuple(cluster)):
                raise ValueError(f"`clusters` must hold groups of inputs, got {cluster!r}.")
            clusters.append(tuple(sorted({self._position(name, names) for name in cluster})))
        return clusters

    def _within(self, x, targets, report) -> list[Term] | None:
        """The sets of inputs that the sub-networks of a group lasso read, over all targets; None for tests alone."""
        if self.structure == "tests" or self.clusters is not None:
            return None
        report("fitting a path of group-lasso penalties")
        sets = []
        for k, target in enumerate(targets.T):
            path = group_lasso_path(x, target, key=jr.fold_in(self._key, k), n_subnetworks=self.n_subnetworks)
            sets += clusters_of(path, x)
        return sets

    def _finish(self, found: Additive, likelihood: Likelihood, x, y, weight, report) -> None:
        """Keeps the closed form, or fits the scheme's network on the clusters that were found."""
        self._structures = found.structures
        self._network, self._likelihood = found.network, found.likelihood
        names = self._names()
        self.clusters_ = [tuple(str(names[i]) for i in cluster) for cluster in found.clusters]
        if self.scheme != "auto" and found.clusters:
            report(f"fitting {self.scheme} on {len(found.clusters)} clusters")
            settings = SCHEMES[self.scheme]
            layers = getattr(schemes, self.scheme)(
                [*settings["widths"], found.network.n_outputs], **settings["options"]
            )
            skeleton = additive(x.shape[1], clusters=found.clusters, depth=len(layers))
            keys = jr.split(jr.fold_in(self._key, 1), settings["n_restarts"])
            networks = [build(skeleton, layers, key=key, x=x) for key in keys]
            fitted = fit(
                networks, likelihood, x, y, key=self._key, weight=weight, n_steps=self.n_steps, learning_rate=5e-3
            )
            self._network, self._likelihood = fitted.network, fitted.likelihood

    def _report(self) -> Callable[[str], None]:
        return (lambda words: print(f"[{type(self).__name__}] {words}")) if self.verbose else (lambda _: None)

    # --- what is known ------------------------------------------------------------------------------------------------

    def effects(
        self,
        order: int | None = None,
        level: float = 0.95,
        *,
        baseline: Any = None,
        output: int = 0,
    ) -> pd.DataFrame:
        """Every term found, strongest first.

        Parameters
        ----------
        order : int, optional
            Only terms of this order.
        level : float
            Of the intervals `lower`, `upper` of the strength.
        baseline : row, optional
            The paper's δ(x⁰): effects as differences from this row.
        output : int
            Which target, or which class.

        Returns
        -------
        DataFrame
            Columns term (tuple of names), order, strength (‖I_T‖ in units of y, or of the logit), sd, lower, upper,
            sobol (share of the variance of f), probability (that the term is real).
        """
        check_is_fitted(self, "_network")
        _check_level(level)
        effects = self._decomposed(baseline, output)
        unit = self._unit(output)
        # Var f under the product measure is the sum of the squared strengths, draw by draw.
        variance = sum((e.strengths**2 for term, e in effects.items() if term), start=np.zeros(()))
        real = probabilities(self._structures[output])
        rows = []
        for term, effect in effects.items():
            if not term or (order is not None and len(term) != order):
                continue
            strengths = effect.strengths
            low, high = effect.interval(level)
            rows.append(
                {
                    "term": self._named(term),
                    "order": len(term),
                    "strength": unit * effect.strength,
                    "sd": unit * float(strengths.std()),
                    "lower": unit * low,
                    "upper": unit * high,
                    "sobol": float(np.mean(strengths**2 / np.maximum(variance, 1e-300))),
                    "probability": real.get(term, 0.0),
                }
            )
        columns = ["term", "order", "strength", "sd", "lower", "upper", "sobol", "probability"]
        return pd.DataFrame(rows, columns=columns).sort_values("strength", ascending=False, ignore_index=True)

    def interactions(
        self, fdr: float = 0.05, *, level: float = 0.95, baseline: Any = None, output: int = 0
    ) -> pd.DataFrame:
        """The rows of `effects` of order 2 and more whose expected share of false ones is at most `fdr`."""
        check_is_fitted(self, "_network")
        if not 0.0 < fdr < 1.0:
            raise ValueError(f"`fdr` must be between 0 and 1, got {fdr!r}.")
        kept = {self._named(term) for term in discoveries(self._structures[output], fdr)}
        table = self.effects(level=level, baseline=baseline, output=output)
        return table.loc[np.array([term in kept for term in table["term"]], dtype=bool)].reset_index(drop=True)

    def effect(
        self,
        term: Any,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        baseline: Any = None,
        output: int = 0,
        points: int | None = None,
    ) -> pd.DataFrame:
        """One term as a function of its inputs, in their units: mean, sd and a band of f, not of y.

        Parameters
        ----------
        term : name or tuple of names (or positions)
        level, simultaneous
            Of the band: for each point, or for the whole function at once.
        points : int, optional
            Values per input; by default 50, 20 or 8 for 1, 2 or 3 inputs.
        """
        check_is_fitted(self, "_network")
        _check_level(level)
        wanted = self._term(term)
        if wanted not in self._decomposed(baseline, output):
            raise ValueError(
                f"`term` {self._named(wanted)} is not in the model: its effect is 0. The terms are in `effects()`."
            )
        shown = {1: 50, 2: 20, 3: 8}.get(len(wanted), 5) if points is None else points
        effect = decompose(
            self._network,
            self._rows,
            key=self._key,
            terms=[wanted],
            weight=self._weight,
            baseline=self._baseline(baseline),
            points=shown,
            output=output,
        )[wanted]
        low, high = effect.band(level, simultaneous=simultaneous)
        # the points to look at are those that carry no measure
        kept = np.ix_(*[(axis.norm == 0) & (axis.average == 0) for axis in effect.axes])
        grids = np.meshgrid(*[axis.points for axis in effect.axes], indexing="ij")
        table = {}
        for i, grid in zip(wanted, grids, strict=True):
            table[str(self._names()[i])] = (grid[kept] * self._x_scale[i] + self._x_mean[i]).ravel()
        for name, values in (("mean", effect.mean), ("sd", effect.sd), ("lower", low), ("upper", high)):
            table[name] = self._unit(output) * values[kept].ravel()
        return pd.DataFrame(table)

    def eval_terms(self, X, *, baseline: Any = None, output: int = 0) -> pd.DataFrame:
        """What each term adds to each prediction on the link scale; the columns, with `intercept`, sum to it."""
        check_is_fitted(self, "_network")
        x = self._standard(validate_data(self, X, reset=False, dtype=np.float64))
        local = attribute(
            self._network,
            x,
            self._rows,
            key=self._key,
            weight=self._weight,
            baseline=self._baseline(baseline),
            output=output,
            n_draws=N_DRAWS,
        )
        unit = self._unit(output)
        table = {"intercept": self._origin(output) + unit * local.pop(()).mean}
        for term in sorted(local, key=lambda t: (len(t), t)):
            table[self._named(term)] = unit * local[term].mean
        # A frame whose columns are tuples would take them for levels.
        return pd.DataFrame(list(table.values()), index=pd.Index(list(table), tupleize_cols=False)).T

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _decomposed(self, baseline, output: int) -> dict[Term, Effect]:
        """All effects, worked out once."""
        if not isinstance(output, numbers.Integral) or not 0 <= output < len(self._structures):
            raise ValueError(f"`output` must be from 0 to {len(self._structures) - 1}, got {output!r}.")
        anchor = self._baseline(baseline)
        place = (output, None if anchor is None else tuple(anchor))
        if place not in self._known:
            self._known[place] = decompose(
                self._network, self._rows, key=self._key, weight=self._weight, baseline=anchor, output=output
            )
            if not self.clusters_:
                self._known[place] = {(): self._known[place][()]}
        return self._known[place]

    def _baseline(self, baseline):
        if baseline is None:
            return None
        row = np.asarray(baseline, dtype=float)
        if row.shape != (self.n_features_in_,) or not np.isfinite(row).all():
            raise ValueError(f"`baseline` must be one row of {self.n_features_in_} numbers, got {baseline!r}.")
        return (row - self._x_mean) / self._x_scale

    def _standard(self, X):
        return (X - self._x_mean) / self._x_scale

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _named(self, term: Term) -> tuple[str, ...]:
        names = self._names()
        return tuple(names[i] for i in term)

    def _term(self, term) -> Term:
        parts = (term,) if isinstance(term, str | numbers.Integral) else tuple(term)
        names = self._names()
        return tuple(sorted({self._position(part, names) for part in parts}))

    @staticmethod
    def _position(name, names) -> int:
        if isinstance(name, numbers.Integral) and 0 <= name < len(names):
            return int(name)
        if name not in names:
            raise ValueError(f"Input {name!r} is not known: the inputs are {', '.join(names[:20])}.")
        return names.index(name)

    def _unit(self, output: int) -> float:
        return 1.0

    def _origin(self, output: int) -> float:
        return 0.0

    def _latent(self, x):
        """Mean and sd of f on the network's scale, (n, outputs) each: exact, or of the draws that `eval_terms` uses."""
        if self._network.is_linear_in_v:
            mean, variance = moments(self._network, x, key=self._key)
            return np.asarray(mean, np.float64), np.sqrt(np.asarray(variance, np.float64))
        draws = np.asarray(sample(self._network, x, key=self._key, n_draws=N_DRAWS), np.float64)
        return draws.mean(axis=0), draws.std(axis=0)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")


class AdditiveRegressor(RegressorMixin, _Additive):
    """Bayesian additive regression: f = Σ of functions of few inputs each, with known uncertainty.

    Parameters
    ----------
    scheme : str
        "auto": polynomial features on the clusters, all in closed form. Or the name of a scheme of the paper
        ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features", "mean_field",
        "inducing_points"), built on the clusters found and trained by the ELBO.
    structure : {"tests", "group_lasso"}
        How the clusters are found: by tests of every term, or by the paper's group lasso on the first layer of
        `n_subnetworks` sub-networks, whose reading sets the tests then split.
    n_subnetworks : int
        For the group lasso.
    clusters : groups of inputs, optional
        What each sub-network reads, by name or position; found by tests unless given.
    n_steps : int
        Training steps of a scheme other than "auto".
    random_state : int, optional
    verbose : bool

    Attributes
    ----------
    clusters_ : list of tuples of names
    n_features_in_, feature_names_in_
    """

    def fit(self, X, y, sample_weight=None) -> "AdditiveRegressor":
        """Finds the structure, fits the network on it, and keeps its posterior."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        with threadpool_limits(1, user_api="blas"):
            x, rng, clusters = self._start(X, weight)
            self._known = {}
            targets = np.asarray(y, np.float64)
            self._single = targets.ndim == 1
            targets = targets.reshape(len(targets), -1)
            self._y_mean = np.average(targets, axis=0, weights=weight)
            spread = np.sqrt(np.average((targets - self._y_mean) ** 2, axis=0, weights=weight))
            self._y_scale = np.where(spread > 0, spread, 1.0)
            z = (targets - self._y_mean) / self._y_scale
            report = self._report()
            within = self._within(x[weight > 0], z[weight > 0], report)
            found = fit_gaussian(x, z, weight, rng=rng, report=report, clusters=clusters, within=within)
            self._finish(found, Gaussian(), x, z, weight, report)
        return self

    def predict(self, X, return_std: bool = False):
        """The mean of y; with `return_std` also its sd, the noise and the uncertainty of f together."""
        mean, f_sd, noise = self._moments(X)
        if not return_std:
            return self._shaped(mean)
        return self._shaped(mean), self._shaped(np.sqrt(f_sd**2 + noise**2))

    def predict_f(self, X):
        """Mean and sd of f itself, without the noise."""
        mean, f_sd, _ = self._moments(X)
        return self._shaped(mean), self._shaped(f_sd)

    def predict_interval(self, X, level: float = 0.95):
        """Lower and upper limits for y, (n, 2); (n, 2, targets) for several targets."""
        _check_level(level)
        return self.predict_quantiles(X, [0.5 - 0.5 * level, 0.5 + 0.5 * level])

    def predict_quantiles(self, X, q):
        """Quantiles of y, (n, len(q)); (n, len(q), targets) for several targets."""
        levels = np.asarray(q, dtype=float)
        if levels.ndim != 1 or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"`q` must be a list of levels between 0 and 1, got {q!r}.")
        mean, f_sd, noise = self._moments(X)
        quantiles = mean[:, None] + np.sqrt(f_sd**2 + noise**2)[:, None] * ndtri(levels)[None, :, None]
        return quantiles[..., 0] if self._single else quantiles

    def sample_y(self, X, n_samples: int = 1, random_state: int | None = None):
        """Draws of y, (n, n_samples): each a function of the posterior plus noise."""
        check_is_fitted(self, "_network")
        x = self._standard(validate_data(self, X, reset=False, dtype=np.float64))
        seed = _seed(random_state)
        f = np.asarray(sample(self._network, x, key=jr.key(seed), n_draws=n_samples), np.float64)
        noise = np.random.default_rng(seed).standard_normal(f.shape) * np.asarray(self._likelihood.scale)
        draws = np.moveaxis(self._y_mean + self._y_scale * (f + noise), 0, 1)
        return draws[..., 0] if self._single else draws

    def log_prob(self, X, y):
        """log p(y | X) of each row, in the units of y; summed over targets."""
        mean, f_sd, noise = self._moments(X)
        targets = np.asarray(y, dtype=float).reshape(len(mean), -1)
        variance = f_sd**2 + noise**2
        return np.sum(-0.5 * np.log(2.0 * math.pi * variance) - 0.5 * (targets - mean) ** 2 / variance, axis=1)

    def _moments(self, X):
        check_is_fitted(self, "_network")
        mean, sd = self._latent(self._standard(validate_data(self, X, reset=False, dtype=np.float64)))
        noise = self._y_scale * np.asarray(self._likelihood.scale, np.float64)
        return self._y_mean + self._y_scale * mean, self._y_scale * sd, noise

    def _shaped(self, values):
        return values[:, 0] if self._single else values

    def _unit(self, output):
        return float(self._y_scale[output])

    def _origin(self, output):
        return float(self._y_mean[output])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class AdditiveClassifier(ClassifierMixin, _Additive):
    """Bayesian additive classification: the logit of a class is a sum of functions of few inputs each.

    Two classes have one logit, of the second; more have one each, and effects are asked for by `output`, the class.
    Parameters and attributes are those of `AdditiveRegressor`, with `classes_`.
    """

    def fit(self, X, y, sample_weight=None) -> "AdditiveClassifier":
        """Finds the structure, fits the network on it, and keeps its posterior."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must have at least 2 classes, got 1 class: {self.classes_[0]!r}.")
        with threadpool_limits(1, user_api="blas"):
            x, rng, clusters = self._start(X, weight)
            self._known = {}
            report = self._report()
            n_classes = len(self.classes_)
            # a least-squares fit of the classes' indicators tells which inputs go together
            hits = (codes[:, None] == np.arange(1 if n_classes == 2 else 0, n_classes)).astype(float)
            hits = (hits - hits.mean(axis=0)) / np.maximum(hits.std(axis=0), 1e-12)
            within = self._within(x[weight > 0], hits[weight > 0], report)
            found = fit_classes(x, codes, n_classes, weight, rng=rng, report=report, clusters=clusters, within=within)
            likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
            self._finish(found, likelihood, x, codes.astype(float), weight, report)
        return self

    def predict_proba(self, X):
        """P(class | X), (n, classes): the uncertainty of f is averaged over."""
        check_is_fitted(self, "_network")
        mean, sd = self._latent(self._standard(validate_data(self, X, reset=False, dtype=np.float64)))
        # 100 equally likely points of each normal; the same for all classes, whose errors are taken as independent
        n_points = 100
        levels = ndtri((np.arange(n_points) + 0.5) / n_points)
        shuffles = np.random.default_rng(0).permuted(np.tile(levels, (mean.shape[1], 1)), axis=1).T
        f = mean[None] + sd[None] * shuffles[:, None, :]
        probabilities = np.asarray(self._likelihood.mean(jnp.asarray(f)), np.float64)
        if len(self.classes_) == 2:
            probabilities = np.concatenate([1.0 - probabilities, probabilities], axis=1)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X):
        """The most probable class."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def log_prob(self, X, y):
        """log P(y | X) of each row."""
        probabilities = self.predict_proba(X)
        codes = np.searchsorted(self.classes_, y)
        return np.log(np.maximum(probabilities[np.arange(len(codes)), codes], 1e-300))

    def decision_function(self, X):
        """The mean of f on the logit scale, (n,) for two classes, else (n, classes)."""
        check_is_fitted(self, "_network")
        mean, _ = self._latent(self._standard(validate_data(self, X, reset=False, dtype=np.float64)))
        return mean[:, 0] if mean.shape[1] == 1 else mean


def _seed(random_state) -> int:
    """The seed itself, or one drawn from a generator; without either 0, so that a fit repeats."""
    if random_state is None or isinstance(random_state, numbers.Integral):
        return int(random_state or 0)
    return int(random_state.randint(2**31))


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be between 0 and 1, got {level!r}.")
