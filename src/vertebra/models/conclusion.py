"""What is made of a fit when it is done: the rows it saw, how well they are predicted, and what to think of it."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.effects.posterior import Posterior, PosteriorOfTerms
from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Ended
from vertebra.models.conformal import in_order
from vertebra.models.dependence import copied_rows, dependence, in_groups, said_of_rows
from vertebra.models.diagnostics import (
    Beside,
    behind_flexible,
    coefficients,
    coverage,
    far_rows,
    few_events,
    few_rows,
    much_freedom,
    no_answers,
    odd_noise,
    runaway,
    too_good,
    uneven_noise,
    worse_than_linear,
)
from vertebra.models.evaluation import Evaluation, cross_fitted, fit_linear, folds_for, from_logits, losses_of_rows
from vertebra.models.findings import Diagnostics, Finding, Kind, Severity, notes, warnings
from vertebra.models.flexible import flexible
from vertebra.models.left_over import left_over
from vertebra.models.model import Found, Model
from vertebra.models.reading import Read
from vertebra.models.refits import Tested
from vertebra.models.rows import Rows, ranges_of
from vertebra.models.scores import Method
from vertebra.models.settings import Settings
from vertebra.models.target import Target
from vertebra.tables.counting import is_count_like
from vertebra.tables.encoding import Encoding
from vertebra.tables.profile import Plane, plane, profile
from vertebra.terms.term import subsets, term_label

# Rows at which components are looked at for log odds beyond any sense: their ends are among them.
N_LOOKED_AT = 500
# What helps where the target may count something.
AS_COUNTS = 'If it counts something, try `likelihood="counts"`.'


class Outcome(NamedTuple):
    """What the search and the fit leave to be judged."""

    posterior: Posterior
    likelihood: Likelihood
    encoding: Encoding
    rows: Rows  # those that were looked at: all, or a sample of them
    findings: list[Finding]
    left_out: Predictive | None = None  # predictions of these rows, each left out in turn
    method: Method = Method.LEFT_OUT  # how they were left out
    linear: Float[np.ndarray, "n k"] | None = None  # what linear models say of them, fold by fold
    tested: Tested | None = None  # predictions of rows by fits without them, where there were such
    grouped: Tested | None = None  # of rows that share values of inputs, by fits without all of them
    found: Found | None = None
    ended: Ended | None = None  # why it was cut short


def _planes(read: Read, rows: Rows, found: Found | None) -> dict[tuple[int, int], Plane]:
    """Where rows lie for every two inputs that act together."""
    if found is None:
        return {}
    ranges, columns, planes = ranges_of(read.rows.matrix), read.schema.columns, {}
    for i, j in (term for term in subsets(found.clusters) if len(term) == 2):
        n_levels = len(columns[i].levels), len(columns[j].levels)
        planes[i, j] = plane(rows.matrix[:, i], rows.matrix[:, j], rows.weight, n_levels, ranges[[i, j]])
    return planes


def conclude(settings: Settings, read: Read, outcome: Outcome) -> Model:
    """The record of the fit: with intervals calibrated on rows set aside, an evaluation, and a verdict."""
    rows, n_classes = outcome.rows, read.target.n_classes
    profiled = profile(*rows.learnt, read.schema.columns, n_classes)
    model = Model(
        kind=settings.name,
        schema=read.schema,
        encoding=outcome.encoding,
        ranges=ranges_of(read.rows.matrix),
        target=read.target,
        posterior=outcome.posterior,
        likelihood=outcome.likelihood,
        profile=profiled._replace(
            n_rows=round(read.meant.n_rows), weight=read.weight, pairs=_planes(read, rows, outcome.found)
        ),
        linear=fit_linear(*rows.learnt, read.n_levels, classes=n_classes),
        diagnostics=Diagnostics(),
        found=outcome.found,
    )
    if read.held is not None:
        predictive = model.predictive_of(outcome.encoding(read.held.matrix))
        away = np.abs(predictive.away(read.target.standard(read.held.y)))
        model = model.replace(conformal=in_order(away, read.held.weight))
    findings = [
        *outcome.findings,
        *(*notes(Kind.WEIGHTS, read.meant.notes), *warnings(Kind.WEIGHTS, read.meant.warnings)),
    ]
    figures: dict[str, float] = {}
    if outcome.left_out is not None:
        tested = outcome.tested or _one_by_one(settings, read, outcome, outcome.left_out)
        seen = rows.at(tested.places)
        evaluation = model.evaluation_of(tested.method, tested.predictive, seen, tested.linear)
        model, figures = model.replace(evaluation=evaluation), dict(evaluation.scores["model"])
        # what few rows did stands first: what else is found may be their doing
        findings[:0] = _of_far_rows(read.target, rows, outcome.left_out, model.noise)
        findings += _on_accuracy(settings, read, outcome, tested, evaluation)
        away, targets = _residuals(outcome.left_out, rows, read.target), read.target.names
        counts = not n_classes and read.target.transform is None and all(map(is_count_like, rows.y.T))
        noise: list[Finding] = []
        if model.noise == "gaussian":
            noise = uneven_noise(away, rows.matrix, read.names, targets) + odd_noise(away, targets)
        elif model.noise in ("student_t", "heteroscedastic"):
            # both are even to either side: of skewed noise their middle is not the mean
            noise = odd_noise(away, targets, knows_tails=True)
        findings += [_of_counts(each) for each in noise] if counts else noise
        findings += dependence(away, rows, read.schema)
        if outcome.found is not None:
            findings += left_over(away, rows.matrix, read.n_levels, read.names, _acting(read, outcome))
        if (grouped := outcome.grouped) is not None:
            some = rows.at(grouped.places)
            findings += in_groups(_residuals(grouped.predictive, some, read.target), rows, grouped.places, read.names)
        if outcome.posterior.terms is not None:
            findings += much_freedom(float(rows.weight.sum()), coefficients(outcome.left_out, rows.weight))
    if read.weight <= read.meant.n_rows * (1.0 + 1e-9):  # no weights that count equal rows
        findings += copied_rows(rows)
    findings += said_of_rows(rows) + _out_of_sense(outcome, read.names)
    findings += few_rows(read.weight, 0 if outcome.found is None else len(read.names))
    findings += few_events(profiled.targets[0].shares * read.weight, n_classes, read.names)
    read.finish()
    return model.replace(diagnostics=Diagnostics(tuple(findings), figures, outcome.ended))


def _one_by_one(settings: Settings, read: Read, outcome: Outcome, left_out: Predictive) -> Tested:
    """Each row left out in turn; linear models leave out a fifth of the rows."""
    rows, linear = outcome.rows, outcome.linear
    folds = folds_for(rows, settings.seed)
    if linear is None:
        linear = cross_fitted(rows, folds, read.n_levels, classes=read.target.n_classes)
    return Tested(outcome.method, folds, left_out, linear)


def _on_accuracy(
    settings: Settings, read: Read, outcome: Outcome, tested: Tested, evaluation: Evaluation
) -> list[Finding]:
    """What there is to say of predictions of rows left out: beside linear models, beside trees, and of intervals."""
    rows, target, n_classes = outcome.rows, read.target, read.target.n_classes
    seen = target.seen(tested.predictive)
    # of y itself, whatever scale was fitted
    unit = target.scale if seen is None else np.sqrt(np.maximum(np.var(rows.y, axis=0), 1e-300))
    y = rows.y if n_classes else (rows.y / unit if seen is not None else target.standard(rows.y))
    linear = tested.linear / unit if seen is not None else target.standard(tested.linear) if not n_classes else None
    mean = np.zeros((len(y), max(n_classes, y.shape[1])))
    mean[tested.places] = tested.predictive.mean() if seen is None else seen.mean() / unit

    def beside(said: Float[np.ndarray, "m k"], places: Int[np.ndarray, " m"]) -> Beside:
        own, other = (losses_of_rows(each, y[places], has_classes=n_classes > 0) for each in (mean[places], said))
        return Beside(own, other, rows.weight[places], 1.0 if n_classes else 0.5)

    figures, n = evaluation.scores["model"], float(rows.weight[tested.places].sum())
    found = coverage(figures, n, target.names, tested.method)
    if settings.conformal:
        # these are not the intervals that it gives
        found = [each for each in found if each.severity is Severity.NOTE]
    found += worse_than_linear(
        beside(from_logits(tested.linear) if linear is None else linear, tested.places),
        target.names,
        np.ones(1) if n_classes else unit,
    )
    shares = evaluation.scores.get("shares", {}).get("log_loss", math.nan)
    found += too_good(figures, target.names, _acting(read, outcome), shares=shares, n=n)
    if outcome.ended is None:
        trees = flexible(rows._replace(y=y), tested.folds, read.n_levels, classes=n_classes, seed=settings.seed)
        found += [] if trees is None else behind_flexible(beside(trees.said, trees.rows), target.names)
    return found


def _of_far_rows(target: Target, rows: Rows, left_out: Predictive, noise: str | None) -> list[Finding]:
    """Few rows that decide the fit, or that have no answer; none of classes."""
    if target.n_classes:
        return []
    odd = no_answers(rows.y, target.names)
    if target.transform is not None:  # another scale than y's was fitted
        return odd
    has_thin_tails = noise in ("gaussian", "heteroscedastic")
    said = target.in_units(left_out.mean())
    return far_rows(rows.y, said, rows.weight, target.names, has_thin_tails=has_thin_tails) + odd


def _of_counts(found: Finding) -> Finding:
    """What was seen of the noise, with other advice: that of counts grows with their mean, and leans upwards."""
    is_theirs = found.quantity is not None and found.quantity > 0.0
    return dataclasses.replace(found, remedy=AS_COUNTS) if is_theirs else found


def _residuals(left_out: Predictive, rows: Rows, target: Target) -> Float[np.ndarray, "n k"]:
    """How far rows are from what was said of them without them, in sds; of classes, one column for each."""
    if not target.n_classes:
        return left_out.away(target.standard(rows.y))
    p = left_out.probabilities()
    return ((rows.y == np.arange(target.n_classes)) - p) / np.sqrt(np.maximum(p * (1.0 - p), 1e-6))


def _out_of_sense(outcome: Outcome, names: list[str]) -> list[Finding]:
    """Whether a component of log odds, or of the log of a rate, goes where no table can take it."""
    posterior = outcome.posterior
    if not isinstance(posterior, PosteriorOfTerms) or posterior.terms is None or not outcome.likelihood.is_discrete:
        return []
    matrix = outcome.rows.matrix
    x = outcome.encoding(matrix[np.linspace(0, len(matrix) - 1, min(len(matrix), N_LOOKED_AT)).astype(int)])
    worst = (0.0, "")
    for k in range(posterior.n_outputs):
        for term, local in posterior.local(x, k, None, posterior.measures[0]).items():
            largest = float(np.abs(local.mean).max()) if term else 0.0
            worst = max(worst, (largest, term_label([names[i] for i in term])))
    return runaway(*worst)


def _acting(read: Read, outcome: Outcome) -> list[str]:
    """The inputs that act, those that go most with the target first; all, where none were sought."""
    places = range(len(read.names)) if outcome.found is None else {i for own in outcome.found.clusters for i in own}
    rows = outcome.rows
    # in its own unit: squares of large numbers overflow
    y = read.target.standard(rows.y)[:, 0]
    y = y - y.mean()

    def goes_with(x: Float[np.ndarray, " n"]) -> float:
        spread = float(np.std(x) * np.std(y))
        return float(np.mean((x - x.mean()) * y)) / spread if spread > 0.0 else 0.0

    def together(i: int) -> float:
        x, gaps = rows.matrix[:, i], np.isnan(rows.matrix[:, i])
        if n_levels := read.n_levels[i]:
            # levels have no order: the mean of y in each of them
            codes = np.clip(np.nan_to_num(x, nan=-1.0), -1, n_levels - 1).astype(int) + 1
            return abs(goes_with((np.bincount(codes, y) / np.maximum(np.bincount(codes), 1))[codes]))
        # where a number is missing may tell as much as the number: at their mean, gaps are a feature of their own
        x = np.where(gaps, x[~gaps].mean() if not gaps.all() else 0.0, x)
        return float(np.hypot(goes_with(x), goes_with(gaps.astype(float))))

    return [read.names[i] for i in sorted(places, key=together, reverse=True)]
