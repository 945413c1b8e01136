"""A fitted model as one record: what was read, the posterior of f, the noise, what was found, and how it went."""

import dataclasses
import math
import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, ndtri, softmax

from vertebra.effects.effect import Sizes
from vertebra.effects.posterior import Posterior
from vertebra.likelihoods.kept import Kept
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.checks import check_count, check_level
from vertebra.machine.later import later
from vertebra.models.conformal import half_width
from vertebra.models.evaluation import Evaluation, Linear, of_classes, of_numbers
from vertebra.models.findings import Diagnostics
from vertebra.models.rows import NewLevels, OutsideRange, Rows, outside
from vertebra.models.scores import Method
from vertebra.models.settings import LIKELIHOODS, InputLike
from vertebra.models.target import Target, as_numbers
from vertebra.models.transform import check_positive
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.column import UNSEEN
from vertebra.tables.encoding import Encoding
from vertebra.tables.named import taken_apart
from vertebra.tables.nearest import nearest, one_of
from vertebra.tables.profile import Profile
from vertebra.tables.schema import Schema, TableLike, ValuesLike
from vertebra.tables.weighting import Weights, weighting
from vertebra.terms.functions import are_few
from vertebra.terms.structure import Structure
from vertebra.terms.term import Term

if TYPE_CHECKING:
    from jaxtyping import ArrayLike

    from vertebra.likelihoods import Likelihood
else:
    ArrayLike = Likelihood = object  # they come with JAX

validation = later("sklearn.utils.validation")

# Columns that a warning of odd rows names: as many as a line holds.
MOST_NAMED = 3
# Digits, beside the first, of the values of a discrete number: scaling and back moves the sixteenth. A round number.
# 10²² is the last power of ten that a double holds: rounding to more decimals would not be to a decimal number.
N_DIGITS, MOST_DIGITS = 12, 22
# Draws of the logits of more than two classes, for limits of their probabilities: a tail of 2.5 % has 50 of them.
N_PROBABILITIES = 2000
# Rows first, and no axis of targets where y had none.
Shaped = Float[np.ndarray, "..."]


class Found(NamedTuple):
    """What a search found: the clusters that sub-networks read, and of every output the terms that were tested."""

    clusters: tuple[Term, ...]
    structures: tuple[Structure, ...]


@dataclass(frozen=True)
class Model:
    """A fit. `kind` is the estimator that made it; `found` is there where terms were sought."""

    kind: str
    schema: Schema
    encoding: Encoding
    ranges: Float[np.ndarray, "p 2"]  # of the coded inputs
    target: Target
    posterior: Posterior
    likelihood: Likelihood
    profile: Profile
    linear: Linear
    diagnostics: Diagnostics
    evaluation: Evaluation | None = None
    found: Found | None = None
    conformal: Float[np.ndarray, "m k"] | None = None  # sorted scores of rows set aside
    # draws of strengths and shares, by output and measure or baseline: worked out once
    sizes: dict[tuple, dict[Term, Sizes]] = field(default_factory=dict, repr=False, compare=False)
    # likewise of the sets of terms whose split is not determined
    splits: dict[tuple, dict[tuple[Term, ...], Sizes]] = field(default_factory=dict, repr=False, compare=False)

    def replace(self, **parts: object) -> "Model":
        return dataclasses.replace(self, **parts)

    # --- names --------------------------------------------------------------------------------------------------------

    @property
    def is_classifier(self) -> bool:
        return self.target.classes is not None

    @property
    def noise(self) -> str | None:
        """The likelihood of numbers by the name that users ask for it."""
        kind = type(self.likelihood).__name__ if not isinstance(self.likelihood, Kept) else self.likelihood.name
        return next((name for name, each in LIKELIHOODS.items() if each == kind), None)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    @property
    def clusters(self) -> list[tuple[str, ...]]:
        """The inputs of every cluster found."""
        return [self.named(cluster) for cluster in self.sought.clusters]

    @property
    def sought(self) -> Found:
        """What the search found, of a model whose terms were sought."""
        if self.found is None:
            raise AttributeError(f"{self.kind} seeks no terms.")
        return self.found

    @property
    def skeleton(self) -> Skeleton:
        """That of the network, or of the networks that are averaged."""
        return self.posterior.networks[0].skeleton

    def named(self, term: Term) -> tuple[str, ...]:
        names = self.names
        return tuple(names[i] for i in term)

    def position(self, name: InputLike) -> int:
        """The place of an input, by name or by place."""
        return position_in(self.names, name)

    @property
    def sources(self) -> list[str]:
        """The user's columns that predictions depend on: those in a term; all, where networks read all inputs."""
        if self.found is None or self.posterior.remainder is not None:
            return list(self.schema.sources)
        read = {self.schema.columns[i].source for cluster in self.found.clusters for i in cluster}
        return [source for source in self.schema.sources if source in read]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def x(self, X: TableLike) -> Float[np.ndarray, "n p"]:
        """A table as the model reads it; rows far from those of the fit, and with levels it never saw, are said."""
        coded = self.schema.matrix(X, self.kind)
        if (away := self.outside(coded)).any():
            words = f"{self._counted(away)}. There predictions level off, and their sds grow with the distance."
            warnings.warn(f"{_rows(away)} lie outside the range of the fit: {words}", OutsideRange, stacklevel=4)
        if (new := self.new_levels(coded)).any():
            words = f"{self._counted(new)}. They get the average effect, and the uncertainty of any level."
            warnings.warn(f"{_rows(new)} have levels that were never seen: {words}", NewLevels, stacklevel=4)
        return self.encoding(coded)

    def _counted(self, odd: Bool[np.ndarray, "n p"]) -> str:
        """The columns with most odd values, and how many each has."""
        counts = odd.sum(axis=0)
        worst = np.argsort(-counts, kind="stable")[:MOST_NAMED]
        return ", ".join(f"{self.names[i]} ({counts[i]:,})" for i in worst if counts[i])

    def new_levels(self, coded: Float[np.ndarray, "n p"]) -> Bool[np.ndarray, "n p"]:
        """Which levels of coded rows the fit never saw, of the columns that predictions depend on."""
        read = set(self.sources)
        is_level = np.array([bool(column.levels) and column.source in read for column in self.schema.columns])
        return (coded == UNSEEN) & is_level

    def outside(self, coded: Float[np.ndarray, "n p"]) -> Bool[np.ndarray, "n p"]:
        """Which numbers of coded rows lie outside the range of the fit; levels never do."""
        is_number = np.array([not column.levels for column in self.schema.columns])
        return outside(coded, self.ranges) & is_number

    def values(self, i: int) -> Float[np.ndarray, " m"] | None:
        """The coded values of a discrete number, which has no others: codes, counts, hours. None of any other input."""
        if self.schema.columns[i].levels:
            return None
        if (terms := self.posterior.terms) is not None:
            system = terms.basis.systems[i]
            return system.knots if system.is_discrete else None
        # of a network: the values in the rows that it keeps, without what stands for gaps
        rows = self.posterior.arrays.get("rows", np.zeros((0, len(self.ranges))))[:, i]
        seen = rows[(rows >= self.ranges[i, 0]) & (rows <= self.ranges[i, 1])]
        distinct = np.unique(seen)
        return distinct if are_few(len(distinct), len(seen)) else None

    def in_units(self, i: int, coded: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Coded values of a number as the user wrote them; those of a discrete one without rounding error."""
        found = self.schema.columns[i].original(coded)
        values = self.values(i)
        if values is None or np.isnan(coded).all():
            return found
        # 2.9999999999999996 is 3
        digits = N_DIGITS - math.floor(math.log10(np.abs(self.schema.columns[i].original(values)).max()))
        return np.round(found, digits) if digits <= MOST_DIGITS else found

    def predictive(self, X: TableLike, *, with_variance: bool = True) -> Predictive:
        return self.predictive_of(self.x(X), with_variance=with_variance)

    def predictive_of(self, x: Float[np.ndarray, "n p"], *, with_variance: bool = True) -> Predictive:
        if with_variance:
            return Predictive(self.likelihood, *self.posterior.moments(x))
        mean = self.posterior.mean(x)
        return Predictive(self.likelihood, mean, np.zeros_like(mean))

    @property
    def doubt(self) -> float:
        """1; 0 where mean counts and probabilities are those of the likeliest f.

        Over values of f that vary more at one row than at another they need not rise with f, as was asked for.
        """
        terms = self.posterior.terms
        is_bent = self.likelihood.is_discrete or self.target.transform is not None
        return float(terms is None or not any(terms.are_draws) or not is_bent)

    def _central(self, predictive: Predictive) -> Predictive:
        """What means and probabilities are of."""
        return predictive._replace(f_variance=self.doubt * predictive.f_variance)

    # --- predictions --------------------------------------------------------------------------------------------------

    def mean(self, X: TableLike) -> Shaped:
        """The mean of y."""
        is_bent = self.likelihood.is_discrete or self.target.transform is not None
        predictive = self.predictive(X, with_variance=is_bent)
        if (seen := self.target.seen(self._central(predictive))) is not None:
            return self.target.shaped(seen.mean())
        return self.target.shaped(self.target.in_units(self._central(predictive).mean()))

    def mean_and_sd(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """The mean of y, and its sd: the noise and the uncertainty of f together."""
        predictive = self.predictive(X)
        if (seen := self.target.seen(predictive)) is not None:
            sd, central = (
                np.sqrt(seen.epistemic() + seen.aleatoric()),
                seen._replace(predictive=self._central(predictive)),
            )
            return self.target.shaped(central.mean()), self.target.shaped(sd)
        variance = predictive.epistemic() + predictive.aleatoric()
        mean, sd = self.target.in_units(self._central(predictive).mean()), self.target.scale * np.sqrt(variance)
        return self.target.shaped(mean), self.target.shaped(sd)

    def f(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """Mean and sd of f on the link scale."""
        mean, variance = self.posterior.moments(self.x(X))
        if self.is_classifier:
            sd = np.sqrt(variance)
            return (mean[:, 0], sd[:, 0]) if mean.shape[1] == 1 else (mean, sd)
        each = self.likelihood.latent_per_target
        mean, sd = self.target.in_units(mean[:, ::each]), self.target.scale * np.sqrt(variance[:, ::each])
        return self.target.shaped(mean), self.target.shaped(sd)

    def uncertainty(self, X: TableLike) -> tuple[Shaped, Shaped]:
        """The two parts of the sd of y: the noise, and the uncertainty of f."""
        predictive, scale, shaped = self.predictive(X), self.target.scale, self.target.shaped
        if (seen := self.target.seen(predictive)) is not None:
            return shaped(np.sqrt(seen.aleatoric())), shaped(np.sqrt(seen.epistemic()))
        noise, doubt = np.sqrt(predictive.aleatoric()), np.sqrt(predictive.epistemic())
        return shaped(scale * noise), shaped(scale * doubt)

    def interval(self, X: TableLike, level: float) -> Shaped:
        """Lower and upper limits for y, (n, 2) or (n, 2, targets)."""
        check_level(level)
        if self.conformal is None:
            return self.quantiles(X, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
        predictive, factor = self.predictive(X), half_width(self.conformal, level)
        sd = np.sqrt(predictive.epistemic() + predictive.aleatoric())
        mean = self._central(predictive).mean()
        limits = self.target.original(np.stack([mean - factor * sd, mean + factor * sd], axis=1))
        if self.likelihood.is_discrete:
            limits = np.stack([np.maximum(np.ceil(limits[:, 0]), 0.0), np.floor(limits[:, 1])], axis=1)
        return self.target.shaped(limits)

    def quantiles(self, X: TableLike, q: ArrayLike | Sequence[float]) -> Shaped:
        """Quantiles of y, (n, len(q)) or (n, len(q), targets)."""
        levels = np.asarray(q, dtype=float)
        if levels.ndim != 1 or not len(levels) or ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"`q` must be a list of levels between 0 and 1, got {q!r}.")
        return self.target.shaped(self.target.original(self.predictive(X).quantiles(levels)))

    def draws(self, X: TableLike, n_samples: int, seed: int) -> Shaped:
        """Draws of y, (n, n_samples) or (n, n_samples, targets)."""
        x = self.x(X)
        check_count(n_samples=n_samples)
        f = self.posterior.sample(x, n_samples, seed)
        draws = np.moveaxis(self.target.original(self.likelihood.numpy_sample(f, seed)), 0, 1)
        return self.target.shaped(draws)

    def probabilities(self, X: TableLike) -> Float[np.ndarray, "n classes"]:
        """P(class | X), the uncertainty of f averaged over."""
        return self._central(self.predictive(X)).probabilities()

    def probability_interval(self, X: TableLike, level: float) -> Float[np.ndarray, "n 2 classes"]:
        """Lower and upper limits of P(class | X): what f may be, given the rows of the fit."""
        check_level(level)
        mean, variance = self.posterior.moments(self.x(X))
        sd, tail = np.sqrt(variance), 0.5 - 0.5 * level
        if mean.shape[1] == 1:
            # two classes: the probability rises with f, and its quantiles are those of f
            low, high = (expit(mean[:, 0] + sd[:, 0] * float(ndtri(q))) for q in (tail, 1.0 - tail))
            return np.stack([np.stack([1.0 - high, low], axis=1), np.stack([1.0 - low, high], axis=1)], axis=1)
        draws = np.random.default_rng(0).standard_normal((N_PROBABILITIES, mean.shape[1]))
        limits = np.empty((len(mean), 2, mean.shape[1]))
        for k, (centre, spread) in enumerate(zip(mean, sd, strict=True)):
            drawn = softmax(centre + spread * draws, axis=1)
            limits[k] = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
        return limits

    def log_prob(self, X: TableLike, y: ValuesLike) -> Float[np.ndarray, " n"]:
        """log p(y | X) of each row, in the units of y; summed over targets."""
        predictive = self.predictive(X)
        if self.is_classifier:
            probabilities, codes = predictive.probabilities(), self.target.codes(y)
            return np.log(np.maximum(probabilities[np.arange(len(codes)), codes], 1e-300))
        targets = np.asarray(y, dtype=float).reshape(len(predictive.f_mean), -1)
        self._check_targets(targets)
        z = self.target.standard(targets)
        if (seen := self.target.seen(predictive)) is not None:
            return np.sum(seen.log_prob(targets), axis=1)
        density = predictive.log_prob(z)
        return np.sum(density - np.log(self.target.scale), axis=1)

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def evaluate(self, X: TableLike, y: ValuesLike, sample_weight: ValuesLike, weights: str) -> Evaluation:
        """Scores and calibration on rows that were not fitted; `weights` is what weights mean."""
        X, y, sample_weight = taken_apart(X, y, sample_weight, is_class=self.is_classifier)[:3]
        matrix = self.schema.matrix(X, self.kind)
        values = validation.column_or_1d(np.asarray(y)) if self.is_classifier else as_numbers(y, self.kind)
        validation.check_consistent_length(matrix, values)
        if not self.is_classifier:
            values = values.reshape(len(matrix), -1)
            self._check_targets(values)
            values = np.asarray(self.likelihood.check(values), np.float64)
        weight = validation._check_sample_weight(
            sample_weight, matrix[:, :1], dtype=np.float64, ensure_non_negative=True
        )
        kept = weight > 0.0
        weight = weighting(Weights.of(weight), weights).scale * weight[kept]
        values = self.target.codes(values[kept])[:, None] if self.is_classifier else values[kept]
        rows = Rows(matrix[kept], values, weight)
        method = Method.SEEN if self._may_have_fitted(rows) else Method.HELD_OUT
        return self.evaluation_of(
            method, self.predictive_of(self.encoding(rows.matrix)), rows, self.linear(rows.matrix)
        )

    def _may_have_fitted(self, rows: Rows) -> bool:
        """Whether rows may be those of the fit: as many, and with the same shares of classes or means of targets."""
        n, profile = len(rows.y), self.profile
        if n != profile.n_rows or not np.isclose(profile.weight, n) or not np.allclose(rows.weight, 1.0):
            return False
        if self.is_classifier:
            shares = np.bincount(rows.y[:, 0].astype(int), minlength=len(profile.targets[0].shares)) / n
            return bool(np.allclose(shares, profile.targets[0].shares, rtol=0.0, atol=1e-9))
        return bool(np.allclose(rows.y.mean(axis=0), profile.means, rtol=1e-9, atol=0.0))

    def evaluation_of(
        self, method: Method, predictive: Predictive, rows: Rows, linear: Float[np.ndarray, "n k"]
    ) -> Evaluation:
        """Scores of predictions of rows, whose y and `linear` are in the units of the target, or codes and logits."""
        if self.is_classifier:
            known = dict(linear=linear, shares=self.profile.targets[0].shares, matrix=rows.matrix)
            return of_classes(method, predictive.probabilities(), rows.y[:, 0].astype(int), rows.weight, **known)
        scores, target = self.conformal, self.target
        factor = None if scores is None else lambda level: half_width(scores, level)
        if (seen := target.seen(predictive)) is not None:
            check_positive(rows.y, f"for a model that was fitted on the scale of {seen.transform.of('y')}")
            own = dict(linear=linear, centre=self.profile.means, unit=np.ones_like(target.scale))
            return of_numbers(method, seen, rows.y, rows.weight, factor=factor, **own)
        return of_numbers(
            method,
            predictive,
            target.standard(rows.y),
            rows.weight,
            linear=target.standard(linear),
            centre=target.standard(self.profile.means),
            unit=target.scale,
            factor=factor,
        )

    def _check_targets(self, y: Float[np.ndarray, "n k"]) -> None:
        if y.shape[1] != len(self.target.scale):
            raise ValueError(f"`y` must have {len(self.target.scale)} column(s), got {y.shape[1]}.")


def _rows(odd: Bool[np.ndarray, "n p"]) -> str:
    """How many rows have anything odd."""
    return f"{odd.any(axis=1).sum():,} rows"


def position_in(names: list[str], name: InputLike) -> int:
    """The place of a name, or of a place."""
    if isinstance(name, str) and name in names:
        return names.index(name)
    if not isinstance(name, numbers.Integral) or not 0 <= int(name) < len(names):
        meant = nearest(name, names) if isinstance(name, str) else one_of(names)
        raise ValueError(f"{name!r} is not an input of the model{meant}")
    return int(name)
