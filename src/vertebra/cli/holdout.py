"""A model of all rows, with the accuracy of one that did not see some of them."""

import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import typer
from jaxtyping import Bool, Int
from rich.console import Console

from vertebra.cli.roles import About, Target
from vertebra.estimators import AdditiveClassifier, AdditiveRegressor
from vertebra.machine import cluster
from vertebra.machine.control import Ended, Share
from vertebra.models.evaluation import Evaluation
from vertebra.models.scores import Method, ScoreName
from vertebra.tables.belonging import group_codes, instants_of
from vertebra.tables.parquet import Parquet
from vertebra.tables.schema import TableLike, ValuesLike

Additive = AdditiveRegressor | AdditiveClassifier
Rows = Int[np.ndarray, " rows"] | slice
# Tables of fewer rows are not split: accuracy is then of each row left out in turn.
ROWS_TO_HOLD_OUT = 50
# Of a budget, what is left for the model of all rows at least; and how many times as long as the first fit, which has
# four fifths of them, it may take: the work grows with the rows, and a little more.
LEAST_SECONDS, LONGER = 0.5, 1.4


def fit_and_evaluate(
    say: Console,
    x: pd.DataFrame,
    y: Target,
    about: About,
    settings: dict[str, Any],
    *,
    share: float,
    budget: float | None = None,
) -> Additive:
    """The model of all rows; `evaluation_` is that of a first fit without a share of them. A quiet `say` is obeyed.

    The first model is kept where the second has no time, or was cut short and predicts worse.
    """
    started = time.monotonic()
    kind = AdditiveClassifier if y.is_class else AdditiveRegressor
    targets = pd.DataFrame(y.values).set_axis(y.names, axis=1)
    target = targets if len(y.names) > 1 else targets.iloc[:, 0]

    def rows_of(rows: Rows) -> tuple[TableLike, ValuesLike, ValuesLike]:
        return x.iloc[rows], target.iloc[rows], about.at(rows).weight

    def fitted(rows: Rows, seconds: float | None, evaluation: str = "auto") -> Additive:
        part = None if seconds is None or budget is None else Share(seconds, budget)
        _, groups, when = about.at(rows)
        model = kind(**settings, evaluation=evaluation, time_budget=part, verbose=not say.quiet)
        return model.fit(*rows_of(rows), groups=groups, time=when)

    def left() -> float | None:
        return None if budget is None else budget - (time.monotonic() - started)

    def progress(words: str) -> None:
        if not say.quiet:
            typer.echo(words, err=True)

    train, test = split(y, share if len(x) >= ROWS_TO_HOLD_OUT else 0.0, settings["random_state"], about)
    first = evaluation = None
    if len(test):
        progress(f"First fit: {len(train)} rows, to measure accuracy on the other {len(test)}.")
        # its accuracy is that on the other rows; what takes more than half of the budget is the model that is kept
        first = fitted(train, budget, "left_out")
        evaluation = first.evaluate(*rows_of(test))
    needed = LONGER * (time.monotonic() - started)
    if first is not None and (why := _why_first(first, left(), needed)):
        say.print(f"{why}: this is the first model, of {len(train):,} rows and not of all {len(x):,}.")
        return _of_first(first, evaluation, budget)
    progress(f"{'Second fit' if len(test) else 'Fit'}: all {len(x)} rows.")
    seconds = left()
    model = fitted(slice(None), None if seconds is None else max(seconds, LEAST_SECONDS))
    if first is not None and model.diagnostics_.ended and _worth(model) < _worth(first):
        why = "Interrupted" if model.diagnostics_.ended is Ended.INTERRUPTED else f"The {budget:g} s were spent"
        say.print(f"{why}: the first model is kept, of {len(train):,} rows and not of all {len(x):,}.")
        return _of_first(first, evaluation, budget)
    if evaluation is not None:
        seen = dataclasses.replace(evaluation, method=Method.HELD_OUT_FIRST)
        model.model_ = model.model_.replace(evaluation=seen)
    return model.set_params(verbose=False, time_budget=budget)


def _why_first(first: Additive, left: float | None, needed: float) -> str:
    """Why the first model is the one to keep; nothing where all rows are to be fitted."""
    if first.diagnostics_.ended is Ended.INTERRUPTED:
        return "Interrupted"
    return "No time is left for a fit of all rows" if left is not None and left < needed else ""


def _worth(model: Additive) -> float:
    """How well a fit predicts rows left out in turn: their log density, over all targets; 0 where none were."""
    if model.evaluation_ is None:
        return 0.0
    scores = [(ScoreName.read(key).score, score) for key, score in model.evaluation_.scores["model"].items()]
    return sum(score if name == "log_density" else -score if name == "log_loss" else 0.0 for name, score in scores)


def _of_first(first: Additive, evaluation: Evaluation | None, budget: float | None) -> Additive:
    """The first model with its accuracy on the rows that it did not see."""
    first.model_ = first.model_.replace(evaluation=evaluation)
    return first.set_params(verbose=False, evaluation="auto", time_budget=budget)


def fit_files(
    say: Console,
    table: str,
    columns: list[str],
    y: Target,
    weight: str | None,
    settings: dict[str, Any],
    memory: float | None,
) -> tuple[Additive | None, int]:
    """The model of a table in Parquet files, and how many rows they have; nothing for processes but the first."""
    source = Parquet(table, columns=columns, **({} if memory is None else {"memory": memory}))
    kind = AdditiveClassifier if y.is_class else AdditiveRegressor
    if not say.quiet:
        typer.echo(f"Fit: all {source.n_rows} rows, read some at a time.", err=True)
    target = y.names if len(y.names) > 1 else y.names[0]
    model = kind(**settings, verbose=not say.quiet).fit(source, target, weight)
    if not cluster.is_first():
        return None, source.n_rows
    return model.set_params(verbose=False, checkpoint=None), source.n_rows


def split(
    y: Target, share: float, seed: int, about: About | None = None
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]:
    """Rows to fit and rows to hold out, class by class, so that every class is fitted.

    Where it is known when rows were, the last are held out; where rows belong together, whole groups.
    """
    if about is not None and share > 0.0 and (about.time is not None or about.groups is not None):
        held = _held_together(about, share, seed)
        return np.flatnonzero(~held), np.flatnonzero(held)
    order = np.random.default_rng(seed).permutation(len(y.values))
    groups = [order]
    if y.is_class:
        labels = y.values[order]
        groups = [order[labels == label] for label in np.unique(y.values)]
    held = [group[: min(round(share * len(group)), len(group) - 1)] for group in groups]
    test = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(order)), test), test


def _held_together(about: About, share: float, seed: int) -> Bool[np.ndarray, " n"]:
    """The last rows, or whole groups at random, as many as do not go beyond the share, and one at least."""
    if about.time is not None:
        when = instants_of(about.time, len(about.time))
        return when > np.quantile(when, 1.0 - share)
    groups = np.asarray(about.groups, dtype=object)
    codes = group_codes(groups, len(groups))
    order = np.random.default_rng(seed).permutation(codes.max() + 1)
    upto = np.cumsum(np.bincount(codes)[order])
    return np.isin(codes, order[: max(int(np.searchsorted(upto, share * len(codes), side="right")), 1)])
