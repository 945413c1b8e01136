"""What is made of a fit when it is done: the rows it saw, how well they are predicted, and what to think of it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.effects.posterior import Posterior
from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Ended
from vertebra.models.conformal import in_order
from vertebra.models.diagnostics import coverage_words, summary, uneven_noise, worse_than_linear
from vertebra.models.evaluation import cross_fitted, fit_linear
from vertebra.models.model import Found, Model
from vertebra.models.reading import Read
from vertebra.models.rows import Rows, ranges_of
from vertebra.models.scores import Method
from vertebra.models.settings import Settings
from vertebra.tables.encoding import Encoding
from vertebra.tables.profile import profile


class Outcome(NamedTuple):
    """What the search and the fit leave to be judged."""

    posterior: Posterior
    likelihood: Likelihood
    encoding: Encoding
    rows: Rows  # those that were looked at: all, or a sample of them
    notes: list[str]
    warnings: list[str]
    left_out: Predictive | None = None  # predictions of these rows, each left out in turn
    method: Method = Method.LEFT_OUT  # how they were left out
    linear: Float[np.ndarray, "n k"] | None = None  # what linear models say of them, fold by fold
    found: Found | None = None
    ended: Ended | None = None  # why it was cut short


def conclude(settings: Settings, read: Read, outcome: Outcome) -> Model:
    """The record of the fit: with intervals calibrated on rows set aside, an evaluation, and a verdict."""
    rows, n_classes = outcome.rows, read.target.n_classes
    profiled = profile(*rows, read.schema.columns, n_classes)
    model = Model(
        kind=settings.name,
        schema=read.schema,
        encoding=outcome.encoding,
        ranges=ranges_of(read.rows.matrix),
        target=read.target,
        posterior=outcome.posterior,
        likelihood=outcome.likelihood,
        profile=profiled._replace(n_rows=round(read.meant.n_rows), weight=read.weight),
        linear=fit_linear(*rows, read.n_levels, classes=n_classes),
        diagnostics=summary([], [], {}),
        found=outcome.found,
    )
    if read.held is not None:
        predictive = model.predictive_of(outcome.encoding(read.held.matrix))
        away = np.abs(predictive.away(read.target.standard(read.held.y)))
        model = model.replace(conformal=in_order(away, read.held.weight))
    notes, warnings = [*outcome.notes, *read.meant.notes], [*outcome.warnings, *read.meant.warnings]
    figures: dict[str, float] = {}
    if outcome.left_out is not None:
        linear = outcome.linear
        if linear is None:
            linear = cross_fitted(*rows, read.n_levels, classes=n_classes, seed=settings.seed)
        evaluation = model.evaluation_of(outcome.method, outcome.left_out, rows, linear)
        model, figures = model.replace(evaluation=evaluation), dict(evaluation.scores["model"])
        more = coverage_words(figures, float(rows.weight.sum()), read.target.names)
        # with `conformal` these are not the intervals that it gives
        notes, warnings = notes + more[0], warnings + ([] if settings.conformal else more[1])
        warnings += worse_than_linear(evaluation.scores, read.target.names)
        if model.noise == "gaussian":
            away = outcome.left_out.away(read.target.standard(rows.y))
            warnings += uneven_noise(away, rows.matrix, read.names, read.target.names)
    read.finish()
    return model.replace(diagnostics=summary(notes, warnings, figures, outcome.ended))
