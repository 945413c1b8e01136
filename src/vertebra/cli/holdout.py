"""A model of all rows, with the accuracy of one that did not see some of them."""

import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import typer
from jaxtyping import Float, Int
from rich.console import Console

from vertebra.cli.roles import Target
from vertebra.estimators import AdditiveClassifier, AdditiveRegressor
from vertebra.machine import cluster
from vertebra.machine.control import Ended
from vertebra.models.scores import Method
from vertebra.tables.parquet import Parquet
from vertebra.tables.schema import TableLike, ValuesLike

Additive = AdditiveRegressor | AdditiveClassifier
Rows = Int[np.ndarray, " rows"] | slice
# Tables of fewer rows are not split: accuracy is then of each row left out in turn.
ROWS_TO_HOLD_OUT = 50
# Of a budget, what is left for the model of all rows at least.
LEAST_SECONDS = 0.5


def fit_and_evaluate(
    say: Console,
    x: pd.DataFrame,
    y: Target,
    weight: Float[np.ndarray, " n"] | None,
    settings: dict[str, Any],
    *,
    share: float,
    budget: float | None = None,
) -> Additive:
    """The model of all rows; `evaluation_` is that of a first fit without a share of them. A quiet `say` is obeyed."""
    started = time.monotonic()
    kind = AdditiveClassifier if y.is_class else AdditiveRegressor
    targets = pd.DataFrame(y.values).set_axis(y.names, axis=1)
    target = targets if len(y.names) > 1 else targets.iloc[:, 0]

    def rows_of(rows: Rows) -> tuple[TableLike, ValuesLike, ValuesLike]:
        return x.iloc[rows], target.iloc[rows], None if weight is None else weight[rows]

    def fitted(rows: Rows, seconds: float | None) -> Additive:
        return kind(**settings, time_budget=seconds, verbose=not say.quiet).fit(*rows_of(rows))

    def progress(words: str) -> None:
        if not say.quiet:
            typer.echo(words, err=True)

    train, test = split(y, share if len(x) >= ROWS_TO_HOLD_OUT else 0.0, settings["random_state"])
    model = evaluation = None
    if len(test):
        progress(f"First fit: {len(train)} rows, to measure accuracy on the other {len(test)}.")
        model = fitted(train, None if budget is None else 0.5 * budget)
        evaluation = model.evaluate(*rows_of(test))
        if model.diagnostics_.ended is Ended.BUDGET:
            evaluation = None  # of a model with fewer terms than the one that is kept
            say.print("The first fit ran out of time: accuracy is of each row left out in turn.")
    if model is not None and model.diagnostics_.ended is Ended.INTERRUPTED:
        say.print(f"Interrupted: this is the first model, of {len(train)} rows and not of all {len(x)}.")
    else:
        progress(f"{'Second fit' if len(test) else 'Fit'}: all {len(x)} rows.")
        left = None if budget is None else max(budget - (time.monotonic() - started), LEAST_SECONDS)
        model = fitted(slice(None), left)
    if evaluation is not None:
        seen = dataclasses.replace(evaluation, method=Method.HELD_OUT_FIRST)
        model.model_ = model.model_.replace(evaluation=seen)
    return model.set_params(verbose=False, time_budget=budget)


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


def split(y: Target, share: float, seed: int) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]:
    """Rows to fit and rows to hold out, class by class, so that every class is fitted."""
    order = np.random.default_rng(seed).permutation(len(y.values))
    groups = [order]
    if y.is_class:
        labels = y.values[order]
        groups = [order[labels == label] for label in np.unique(y.values)]
    held = [group[: min(round(share * len(group)), len(group) - 1)] for group in groups]
    test = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(order)), test), test
