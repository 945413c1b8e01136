"""The command line: fit a table, predict, look at effects, write reports.

An error is one line on standard error. The status is 0 when all is done, 1 where the work failed, 2 for wrong use and
130 after Ctrl-C. What takes long to import is imported by the commands that need it, so that help comes at once.
"""

import contextlib
import dataclasses
import difflib
import gzip
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

Frame = Any  # a pandas.DataFrame

MODEL_NAME, EFFECTS_NAME, REPORT_NAME, FIGURE_NAME = "model.vertebra", "effects.csv", "report.html", "effects.png"
ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
DEMO_FOLDER = pathlib.Path("demo-output")
# Tables of fewer rows are not split: accuracy is then of each row left out in turn.
ROWS_TO_HOLD_OUT = 50
# Whole numbers of at most so many values, on so many rows, may stand for classes.
FEW_VALUES, ROWS_FOR_HINT = 10, 100
# Text of more values is hardly a class.
MOST_CLASSES = 50
N_SHOWN = 15
# Of a budget, what is left for the model of all rows at least.
LEAST_SECONDS = 0.5
# Columns of a file: nothing is cut where nobody looks.
WIDTH = 200
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
# typer brings its own copy of click, or uses the installed one.
UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")

SCORES = {
    "rmse": "RMSE",
    "r2": "R²",
    "coverage_95": "95 % coverage",
    "log_density": "log density",
    "log_loss": "log loss",
    "auc": "AUC",
}

Likelihood = Literal["gaussian", "heteroscedastic", "student_t", "poisson"]
Scheme = Literal[
    "auto",
    "mc_dropout",
    "mean_field",
    "random_features",
    "deep_kernel_learning",
    "deep_random_features",
    "inducing_points",
]


class Refused(Exception):
    """Wrong use: a line for the user, and status 2."""


class Commands(TyperGroup):
    """Ends every command with a status, and every error with one line."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in args  # anywhere
        status = 0
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                left = [each for each in args if each != "--debug"] or ["--help"]
                # a number where a command ended early: 130 after Ctrl-C
                status = super().main(left, "vertebra", **(extra | {"standalone_mode": False})) or 0
        except typer.Abort:
            status = 130
        except Exception as error:
            if debug:
                traceback.print_exc()
            status, words = _words(error)
            _complain(words)
        sys.exit(status)


class Command(TyperCommand):
    """Shows its arguments first, as examples have them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        options, *arguments = super().collect_usage_pieces(ctx)
        return [*(each.strip("{}") for each in arguments), options]


def _words(error: Any) -> tuple[int, str]:
    """The status and the line of an error."""
    if isinstance(error, UsageError):
        command = "" if error.ctx is None else error.ctx.command_path.removeprefix("vertebra").strip()
        return 2, f"{error.format_message()} See vertebra {command + ' ' if command else ''}--help."
    if isinstance(error, Refused):
        return 2, str(error)
    if isinstance(error, MemoryError) and not str(error):
        return 1, "there is not enough memory."
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{error.filename or 'a file'}: {error.strerror}."
    if isinstance(error, ValueError | TypeError | RuntimeError | OSError | ImportError | MemoryError):
        return 1, str(error) or type(error).__name__
    return 1, f"{type(error).__name__}: {error} (this should not happen: --debug shows where)"


def _complain(words: str) -> None:
    typer.echo("vertebra: " + _printable(" ".join(words.split())), err=True)


def _show_warning(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
    _complain(f"warning: {message}")


def _printable(text: Any) -> str:
    """Text that a terminal shows and does not obey: control characters are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def _examples(*lines: str) -> str:
    return "Examples:\n\n\b\n" + "\n".join(f"  {line}" for line in lines)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_examples(
        "vertebra demo",
        "vertebra fit flats.csv --target rent --out flats",
        "vertebra predict flats new.csv --out rents.csv",
    ),
)


def command(*examples: str) -> Any:
    """A command with examples under its help."""
    return app.command(cls=Command, epilog=_examples(*examples))


TablePath = Annotated[
    str,
    typer.Argument(metavar="TABLE", show_default=False, help=f"A table: {', '.join(ENDINGS)}; - is CSV from a pipe."),
]
ModelPath = Annotated[
    pathlib.Path,
    typer.Argument(metavar="MODEL", show_default=False, help="A model's file, or the folder that `fit` wrote."),
]
Output = Annotated[
    str | None,
    typer.Option("--output", metavar="NAME", help="Which target, or which class of more than two (the first)."),
]
Level = Annotated[float, typer.Option("--level", metavar="SHARE", help="Probability of intervals.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]


def main() -> None:
    """The console script."""
    app()


def _version(asked: bool) -> bool:
    if asked:
        import vertebra as package

        typer.echo(f"vertebra {package.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def vertebra(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from; may stand anywhere.")] = False,
) -> None:
    """What acts in a table, what interacts, and how sure: Bayesian additive networks."""


# --- fit --------------------------------------------------------------------------------------------------------------


@command(
    "vertebra fit flats.csv --target rent --out flats",
    "vertebra fit visits.parquet --target visits --likelihood poisson --drop id --out visits",
    "zcat big.csv.gz | vertebra fit - --target y --time-budget 60 --out big --json > big.json",
)
def fit(
    table: TablePath,
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="What to predict; several give one model.")],
    out: Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Folder to write; it is made if need be.")],
    task: Annotated[
        Literal["auto", "regression", "classification"],
        typer.Option(
            metavar="TASK",
            help="regression, classification, or auto: classification for text, booleans, categories and two values.",
        ),
    ] = "auto",
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column out; repeatable.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Weights of the rows.")] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=KIND", help="number, ordered, category, boolean or datetime; repeatable."
        ),
    ] = None,
    likelihood: Annotated[
        Likelihood,
        typer.Option(metavar="NAME", help=f"The noise of a regression: {', '.join(get_args(Likelihood))}."),
    ] = "gaussian",
    scheme: Annotated[
        Scheme,
        typer.Option(
            metavar="NAME", help=f"auto: closed form; else a network on the terms: {', '.join(get_args(Scheme)[1:])}."
        ),
    ] = "auto",
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Intervals that hold whatever the noise; costs a fifth of the rows.")
    ] = False,
    time_budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop looking for more terms by then.")
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Rows for accuracy, by a first fit without them; 0: each row in turn."),
    ] = 0.2,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the random split, and of the fit.")] = 0,
    force: Force = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave the report out.")] = False,
) -> None:
    """Fit a table; write the model, its effects and a report.

    Writes DIR/model.vertebra, DIR/effects.csv and DIR/report.html. Text, categories, dates and gaps need no
    preparation. Rows without a target are left out. Ctrl-C ends the search, and keeps what was found.
    """
    if not 0.0 <= holdout <= 0.9:
        raise Refused(f"--holdout must be a share from 0 to 0.9, got {holdout:g}.")
    if time_budget is not None and not time_budget > 0.0:
        raise Refused(f"--time-budget must be a number of seconds above 0, got {time_budget:g}.")
    if not 0 <= seed < 2**32:
        raise Refused(f"--seed must be a whole number from 0 to {2**32 - 1}, got {seed}.")
    names = [MODEL_NAME, EFFECTS_NAME, *([] if no_report else [REPORT_NAME])]
    if not no_report:
        _check_report(", or leave the report out: --no-report")
    with _folder(out, names, force=force) as files:
        frame = _read(table)
        x, y, row_weight = _choose(frame, table, target, drop or [], weight, kinds or [], task)
        settings: dict[str, Any] = dict(scheme=scheme, feature_types=x.kinds or None, random_state=seed)
        if y.is_class and (likelihood != "gaussian" or conformal):
            option = "--conformal" if conformal else f"--likelihood {likelihood}"
            raise Refused(f"{option} is for regression, and this is classification: {y.reason}.")
        if not y.is_class:
            settings |= dict(likelihood=likelihood, conformal=conformal)
        say = _console(quiet or as_json)
        _say_table(say, table, len(frame), x, y)
        model = _fitted(
            x.frame, y, row_weight, settings, holdout=holdout, budget=time_budget, silent=quiet or as_json, say=say
        )
        found = _all_effects(model)
        _write(model, files, found)
        if as_json:
            _print_json(
                {
                    "table": table,
                    "rows": len(y.values),
                    "rows_left_out": y.n_left_out,
                    "task": "classification" if y.is_class else "regression",
                    "reason": y.reason,
                    **_about(model),
                    "effects": found,
                    "files": {path.name: str(path) for path in files},
                }
            )
        else:
            say.print()
            _say_effects(say, model, found)
            _say_fit(say, model)
            _say_files(say, files)


class Inputs(NamedTuple):
    """The columns to learn from, and the kinds that were asked for, or seen in text."""

    frame: Frame
    kinds: dict[str, str]


class Target(NamedTuple):
    """What to predict, of the rows that have it."""

    names: list[str]
    values: Any  # (n,) or (n, targets)
    is_class: bool
    reason: str
    hint: str
    n_left_out: int


def _choose(
    frame: Frame, table: str, targets: list[str], drop: list[str], weight: str | None, kinds: list[str], task: str
) -> tuple[Inputs, Target, Any]:
    """Inputs, target and weights, of the rows that have a target."""
    columns = list(frame.columns)
    asked: dict[str, str] = {}
    for each in kinds:
        column, equals, kind = each.rpartition("=")
        if not equals:
            raise Refused(f"--type must be COLUMN=KIND, got {each!r}.")
        asked[column] = kind
    weights = [] if weight is None else [weight]
    for option, names in (("--target", targets), ("--drop", drop), ("--weight", weights), ("--type", list(asked))):
        for name in names:
            if name not in columns:
                raise Refused(f"{option} {name!r} is not a column of {table}{_nearest(name, columns)}")
    _check_kinds(asked)
    roles = Counter([*dict.fromkeys(targets), *weights, *dict.fromkeys(drop)])
    if clash := [name for name, count in roles.items() if count > 1]:
        raise Refused(f"{clash[0]!r} is asked for twice: a column is a target, a weight, dropped, or an input.")
    if weight is not None:
        frame = frame.loc[_weights(frame[weight], weight) > 0.0].reset_index(drop=True)
    y, kept = _target(frame, list(dict.fromkeys(targets)), task)
    x = frame.loc[kept, [name for name in columns if name not in roles]].reset_index(drop=True)
    if not x.shape[1]:
        raise Refused(f"{table} has no column left to learn from.")
    dates = {name: "datetime" for name in x.columns if name not in asked and _is_date(x[name])}
    wanted = {name: kind for name, kind in (dates | asked).items() if name in x.columns}
    return Inputs(x, wanted), y, None if weight is None else frame.loc[kept, weight].to_numpy(dtype=float)


def _check_kinds(asked: dict[str, str]) -> None:
    from vertebra.table import FEATURE_TYPES

    for column, kind in asked.items():
        if kind not in FEATURE_TYPES:
            near = _nearest(kind, FEATURE_TYPES)
            raise Refused(f"--type {column}={kind}: {kind!r} is not a kind{near}")


def _is_date(values: Any) -> bool:
    """Whether text is dates of ISO 8601 throughout."""
    import pandas as pd

    text = values.dropna()
    if pd.api.types.is_numeric_dtype(text) or not len(text) or not isinstance(text.iloc[0], str):
        return False
    if not re.fullmatch(ISO_DATE, text.iloc[0]):
        return False
    return all(isinstance(each, str) and re.fullmatch(ISO_DATE, each) for each in text.unique())


def _weights(values: Any, name: str) -> Any:
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(values) or values.isna().any() or not (values >= 0).all():
        raise Refused(f"--weight {name!r} must hold numbers of at least 0, without gaps.")
    if not (values > 0).any():
        raise Refused(f"--weight {name!r} is 0 in every row.")
    return values.to_numpy(dtype=float)


def _target(frame: Frame, names: list[str], task: str) -> tuple[Target, Any]:
    """The target, and which rows have it."""
    from vertebra.table import MISSING_WORDS, learn

    columns = frame[names]
    kept = (columns.notna() & ~columns.isin(MISSING_WORDS)).all(axis=1).to_numpy()
    if not kept.any():
        raise Refused(f"the target {' and '.join(map(repr, names))} has no value in any row.")
    columns = columns.loc[kept]
    kinds = {name: learn(columns[[name]]).columns[0] for name in names}
    for name, column in kinds.items():
        if column.part is not None or _is_date(columns[name]):
            raise Refused(f"the target {name!r} holds dates: make it a number first, such as days since a date.")
        if columns[name].nunique() < 2:
            raise Refused(f"the target {name!r} has one value only, {_sample(columns[name])}: nothing can be learned.")
    is_class, reason = _task(columns, [column.kind for column in kinds.values()], task)
    if is_class:
        return Target(names, _labels(columns.iloc[:, 0]), True, reason, "", int((~kept).sum())), kept
    for name, column in kinds.items():
        if column.kind not in ("number", "boolean"):
            raise Refused(f"the target {name!r} must hold numbers for regression, got {_sample(columns[name])}.")
    values, hint = columns.to_numpy(dtype=float), ""
    for name, own in zip(names, values.T, strict=True):
        n_values = columns[name].nunique()
        if task == "auto" and n_values <= FEW_VALUES and len(own) >= ROWS_FOR_HINT and (own == own.round()).all():
            hint = f"{name} has {n_values} whole values only: if they are classes, ask for --task classification."
    values = values if len(names) > 1 else values[:, 0]
    return Target(names, values, False, reason, hint, int((~kept).sum())), kept


def _task(columns: Frame, kinds: list[str], task: str) -> tuple[bool, str]:
    """Whether this is classification, and why."""
    first = columns.iloc[:, 0]
    n_values = first.nunique()
    if task == "classification" and len(kinds) > 1:
        raise Refused("--task classification takes one --target: fit a model for each.")
    if task != "auto":
        return task == "classification", "asked for"
    if len(kinds) > 1:
        return False, "several targets"
    if kinds[0] == "number":
        return (True, "two values") if n_values == 2 else (False, "numbers")
    if n_values > MOST_CLASSES:
        raise Refused(
            f"the target {first.name!r} is text of {n_values} values, {_sample(first)} among them: make it numbers, or "
            "ask for --task classification."
        )
    return True, {"boolean": "booleans", "category": "text"}.get(kinds[0], "categories")


def _labels(column: Any) -> Any:
    """Classes as text, or as the numbers or booleans they are."""
    import numpy as np

    values = column.tolist()
    if all(isinstance(each, bool) for each in values):
        return np.array(values, dtype=bool)
    if any(isinstance(each, str | bool) or not isinstance(each, int | float) for each in values):
        return np.array([str(each) for each in values])
    numbers = np.array(values, dtype=float)
    # a gap elsewhere in the column makes floats of whole numbers
    return numbers.astype(int) if (numbers == numbers.round()).all() and np.abs(numbers).max() < 2**53 else numbers


def _sample(column: Any) -> str:
    text = [each for each in column if isinstance(each, str)]
    return repr((text or column.tolist())[0])[:60]


def _fitted(
    x: Frame,
    y: Target,
    weight: Any,
    settings: dict[str, Any],
    *,
    holdout: float,
    budget: float | None,
    silent: bool,
    say: Console,
) -> Any:
    """The model of all rows, with the accuracy of one that did not see some of them."""
    from vertebra.estimators import AdditiveClassifier, AdditiveRegressor

    started = time.monotonic()
    kind: Any = AdditiveClassifier if y.is_class else AdditiveRegressor

    def fitted(rows: Any, seconds: float | None) -> Any:
        own = None if weight is None else weight[rows]
        model = kind(**settings, time_budget=seconds, verbose=not silent)
        return model.fit(x.iloc[rows], y.values[rows], sample_weight=own)

    train, test = _split(y, holdout if len(x) >= ROWS_TO_HOLD_OUT else 0.0, settings["random_state"])
    model = evaluation = None
    if len(test):
        _progress(silent, f"First fit: {len(train)} rows, to measure accuracy on the other {len(test)}.")
        model = fitted(train, None if budget is None else 0.5 * budget)
        own = None if weight is None else weight[test]
        evaluation = model.evaluate(x.iloc[test], y.values[test], sample_weight=own)
        if _ended(model, "the time budget"):
            evaluation = None  # of a model with fewer terms than the one that is kept
            say.print("The first fit ran out of time: accuracy is of each row left out in turn.")
    if len(test) and _ended(model, "interrupted"):
        say.print(f"Interrupted: this is the first model, of {len(train)} rows and not of all {len(x)}.")
    else:
        _progress(silent, f"{'Second fit' if len(test) else 'Fit'}: all {len(x)} rows.")
        left = None if budget is None else max(budget - (time.monotonic() - started), LEAST_SECONDS)
        model = fitted(slice(None), left)
    if evaluation is not None:
        model.evaluation_ = evaluation
    model.target_names_ = y.names
    return model.set_params(verbose=False, time_budget=budget)


def _ended(model: Any, why: str) -> bool:
    """Whether a fit was cut short, by what its diagnostics say."""
    return any(each.startswith(why) for each in model.diagnostics_.warnings)


def _split(y: Target, share: float, seed: int) -> tuple[Any, Any]:
    """Rows to fit and rows to hold out, class by class, so that every class is fitted."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(y.values))
    groups = [order]
    if y.is_class:
        labels = y.values[order]
        groups = [order[labels == label] for label in np.unique(y.values)]
    held = [group[: min(round(share * len(group)), len(group) - 1)] for group in groups]
    test = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(order)), test), test


def _progress(silent: bool, words: str) -> None:
    if not silent:
        typer.echo(words, err=True)


# --- predict ----------------------------------------------------------------------------------------------------------


@command(
    "vertebra predict flats new.csv",
    "vertebra predict flats new.parquet --out rents.parquet --level 0.8 --quantiles 0.1,0.5,0.9",
    "cat new.csv | vertebra predict flats/model.vertebra - --terms > rents.csv",
)
def predict(
    model: ModelPath,
    table: TablePath,
    out: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Table to write (without it: CSV to standard output).")
    ] = None,
    level: Level = 0.95,
    quantiles: Annotated[
        str | None, typer.Option(metavar="Q,Q,…", help="Also quantiles, as columns q0.1, …; for regression.")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Only the probabilities of the classes.")] = False,
    terms: Annotated[bool, typer.Option("--terms", help="Also intercept, and term:… for what each term adds.")] = False,
    force: Force = False,
) -> None:
    """Predict the rows of a table.

    Regression gives the columns prediction, sd, lower and upper (each with _TARGET behind it if there are several);
    classification gives prediction and probability_CLASS for every class. Rows keep their order. Columns are matched
    by name, and those to spare, as the target, do not matter.
    """
    _check_share("--level", level)
    levels = _quantiles(quantiles)
    if out is not None:
        _ending(str(out))
        _check_writable(out, force=force)
    loaded = _load(model)[1]
    is_class = _is_class(loaded)
    if is_class and levels:
        raise Refused("--quantiles is for regression, and the model is of classes.")
    if proba and not is_class:
        raise Refused("--proba is for classes, and the model is of numbers.")
    if terms:
        _check_additive(loaded)
    x = _inputs(loaded, _read(table), table)
    result = _predictions(loaded, x, level, levels, proba=proba, terms=terms)
    if out is None:
        _print_bytes(_encoded(result, ".csv"))
    else:
        _put(out, _encoded(result, _ending(str(out))))


def _quantiles(text: str | None) -> list[float]:
    try:
        levels = [float(each) for each in text.split(",")] if text is not None else []
    except ValueError:
        levels = [math.nan]
    if not all(0.0 < each < 1.0 for each in levels):
        raise Refused(f"--quantiles must be numbers between 0 and 1 with commas between them, got {text!r}.")
    return levels


def _inputs(model: Any, frame: Frame, table: str) -> Frame:
    """The columns that the model reads; a model of an array takes them by name or by place."""
    wanted, columns = list(model.schema_.sources), list(frame.columns)
    missing = [name for name in wanted if name not in columns]
    if missing and (model.schema_.named or len(columns) != len(wanted)):
        others = f" (nor {len(missing) - 1} more that the model reads)" if len(missing) > 1 else ""
        spare = [name for name in columns if name not in wanted]
        raise Refused(f"{table} has no column {missing[0]!r}{others}{_nearest(missing[0], spare)}")
    return frame if missing else frame[wanted]


def _predictions(model: Any, x: Frame, level: float, levels: list[float], *, proba: bool, terms: bool) -> Frame:
    import numpy as np
    import pandas as pd

    columns: dict[str, Any] = {}
    if _is_class(model):
        if not proba:
            columns["prediction"] = model.predict(x)
        columns |= {
            f"probability_{label}": values
            for label, values in zip(model.classes_.tolist(), model.predict_proba(x).T, strict=True)
        }
    else:
        mean, sd = model.predict(x, return_std=True)
        limits = model.predict_interval(x, level)
        named = {"prediction": mean, "sd": sd, "lower": limits[:, 0], "upper": limits[:, 1]}
        if levels:
            values = np.moveaxis(model.predict_quantiles(x, levels), 1, 0)
            named |= {f"q{q:g}": each for q, each in zip(levels, values, strict=True)}
        targets = model.target_names_
        for k, target in enumerate(targets):
            behind = f"_{target}" if len(targets) > 1 else ""
            columns |= {name + behind: values if values.ndim == 1 else values[:, k] for name, values in named.items()}
    if terms:
        outputs = _outputs(model)
        for k, output in enumerate(outputs):
            behind = f"_{output}" if len(outputs) > 1 else ""
            parts = model.eval_terms(x, output=k)
            for i, term in enumerate(parts.columns):
                name = term if isinstance(term, str) else f"term:{_joined(term)}"
                columns[name + behind] = parts.iloc[:, i].to_numpy()
    return pd.DataFrame(columns)


# --- effects, report, info --------------------------------------------------------------------------------------------


@command(
    "vertebra effects flats",
    "vertebra effects flats --interactions --fdr 0.1 --json",
    "vertebra effects flats --term size --term district --csv > size-district.csv",
)
def effects(
    model: ModelPath,
    order: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only terms of so many inputs.")] = None,
    interactions: Annotated[
        bool, typer.Option("--interactions", help="Only interactions that survive error control.")
    ] = False,
    fdr: Annotated[
        float, typer.Option(metavar="SHARE", help="With --interactions: the share of false ones that may be expected.")
    ] = 0.05,
    level: Level = 0.95,
    term: Annotated[
        list[str] | None, typer.Option(metavar="INPUT", help="The term of these inputs, as a function; repeatable.")
    ] = None,
    output: Output = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, and nothing else.")] = False,
) -> None:
    """Print effects, strongest first, or one as a function.

    Strength is in the units of the target (of the logit for classes, of the log of the rate for counts), share is of
    the variance of f, probability is that the term is real.
    """
    _check_share("--level", level)
    _check_share("--fdr", fdr)
    if as_json and as_csv:
        raise Refused("--json and --csv do not go together.")
    loaded = _load(model)[1]
    _check_additive(loaded)
    k = _output(loaded, output)
    if term:
        found = loaded.effect(_known_term(loaded, term, k), level=level, output=k)
        n_inputs = found.shape[1] - 4
        inputs = [f"input {name}" if name in found.columns[n_inputs:] else name for name in found.columns[:n_inputs]]
        found.columns = [*inputs, *found.columns[n_inputs:]]
    elif interactions:
        found = loaded.interactions(fdr, level=level, output=k)
    else:
        found = loaded.effects(level=level, output=k)
    if order is not None and not term:
        found = found.loc[found["order"] == order].reset_index(drop=True)
    if as_json:
        _print_json({"term": term, "points": found} if term else {"level": level, "effects": found})
    elif as_csv:
        _print_bytes(_encoded(found if term else _with_joined_terms(found), ".csv"))
    elif term:
        _say_frame(_console(), found)
    else:
        say = _console()
        _say_effects(say, loaded, found, level=level, most=len(found))


def _known_term(model: Any, names: list[str], k: int) -> tuple[str, ...]:
    """The inputs of a term that the model has."""
    inputs = [column.name for column in model.schema_.columns]
    for name in names:
        if name not in inputs:
            raise Refused(f"--term {name!r} is not an input of the model{_nearest(name, inputs)}")
    if set(names) not in map(set, model.effects(output=k)["term"]):
        raise Refused(
            f"the model has no term {_shown_term(names)}: its effect is 0. `vertebra effects` lists the terms."
        )
    return tuple(dict.fromkeys(names))


@command(
    "vertebra report flats",
    "vertebra report flats/model.vertebra --out rent.html --force",
)
def report(
    model: ModelPath,
    out: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Page to write (without it: report.html by the model).")
    ] = None,
    force: Force = False,
) -> None:
    """Write the report of a model, one HTML page."""
    path = _model_file(model).with_name(REPORT_NAME) if out is None else out
    _check_writable(path, force=force)
    _check_report()
    loaded = _load(model)[1]
    _check_additive(loaded)
    loaded.report(path)
    _say_files(_console(), [path])


@command("vertebra info flats", "vertebra info flats --json | jq .evaluation.scores")
def info(model: ModelPath, as_json: Json = False) -> None:
    """Say what a model is, how well it did, and what wrote it."""
    path, loaded = _load(model)
    about = {"file": str(path), "bytes": path.stat().st_size, **_written(path), **_about(loaded)}
    if as_json:
        _print_json(about)
        return
    say = _console()
    facts = {
        "file": f"{_printable(path)} ({about['bytes']:,} bytes, format {about['format']})",
        "kind": f"{about['kind']} ({about['task']})",
        "target": ", ".join(map(_printable, about["targets"])),
        "classes": ", ".join(map(_printable, about["classes"])),
        "rows": f"{about['rows_fitted']:,} (equal ones counted once)",
        "versions": ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        "settings": ", ".join(f"{name} {_printable(value)}" for name, value in about["settings"].items()),
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        if fact:
            say.print(f"{name.ljust(width)}  {fact}", soft_wrap=True)
    inputs = _table("input", "kind", "gaps", "levels", n_texts=3)
    for each in about["inputs"]:
        gaps, levels = "yes" if each["has_missing"] else "", str(each["n_levels"] or "")
        inputs.add_row(_printable(each["name"]), each["kind"], gaps, levels)
    say.print("\nInputs:", style="bold")
    say.print(inputs)
    if about["terms"]:
        say.print(f"\nTerms: {', '.join(map(_shown_term, about['terms']))}", soft_wrap=True)
    _say_fit(say, loaded)


def _written(path: pathlib.Path) -> dict[str, Any]:
    """What the file says about its making; it was checked when it was loaded."""
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        metadata = file.metadata()
    return {"format": int(metadata["vertebra_format"]), "versions": json.loads(metadata["libraries"])}


def _about(model: Any) -> dict[str, Any]:
    """What a model is, for people and for JSON."""
    is_class = _is_class(model)
    default = type(model)().get_params(deep=False)
    settings = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if value != default[name] and isinstance(value, bool | int | float | str | dict)
    }
    evaluation = model.evaluation_
    return {
        "kind": type(model).__name__,
        "task": "classification" if is_class else "regression",
        "targets": model.target_names_,
        "classes": model.classes_.tolist() if is_class else [],
        "rows_fitted": model._profile.n_rows,
        "settings": settings,
        "inputs": [
            {
                "name": column.name,
                "column": column.source,
                "kind": column.kind,
                "n_levels": len(column.levels),
                "has_missing": column.has_missing,
            }
            for column in model.schema_.columns
        ],
        "terms": _terms(model),
        "diagnostics": dataclasses.asdict(model.diagnostics_),
        "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
    }


def _terms(model: Any) -> list[list[str]]:
    """Every term, of any output, strongest first in its own."""
    if not _is_additive(model):
        return []
    found = [tuple(term) for k in range(len(_outputs(model))) for term in model.effects(output=k)["term"]]
    return [list(term) for term in dict.fromkeys(found)]


# --- demo -------------------------------------------------------------------------------------------------------------


@command("vertebra demo", "vertebra demo --data breast_cancer --out cancer")
def demo(
    data: Annotated[
        Literal["f1", "diabetes", "breast_cancer"],
        typer.Option(
            metavar="NAME", help="f1: Friedman's function, whose effects are known; diabetes; or breast_cancer."
        ),
    ] = "f1",
    out: Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Folder to write.")] = DEMO_FOLDER,
    force: Force = False,
) -> None:
    """Fit embedded data; print, draw and report its effects.

    Writes the model, its effects as a table and as a figure, and the report. Takes less than a minute. The default
    folder belongs to the demo: what it wrote there before is replaced.
    """
    names = [MODEL_NAME, EFFECTS_NAME, FIGURE_NAME, REPORT_NAME]
    _check_report()
    with _folder(out, names, force=force or out == DEMO_FOLDER) as files:
        x, y, words, exact = _demo_data(data)
        say = _console()
        say.print(words, soft_wrap=True)
        settings: dict[str, Any] = dict(random_state=0)
        model = _fitted(x, y, None, settings, holdout=0.2, budget=None, silent=False, say=say)
        found = _all_effects(model)
        model_file, effects_file, figure_file, report_file = files
        _write(model, [model_file, effects_file], found)
        _put(figure_file, _figure(model, found))
        model.report(report_file)
        say.print()
        _say_effects(say, model, found, exact=exact)
        _say_fit(say, model)
        _say_files(say, files)


def _demo_data(name: str) -> tuple[Frame, Target, str, Callable[[Sequence[str]], float] | None]:
    """Inputs, target, what they are, and the exact strength of a term where it is known."""
    import numpy as np
    import pandas as pd

    from vertebra import datasets

    if name == "f1":
        rows = datasets.synthetic("f1", 3000, seed=0)
        x = pd.DataFrame(rows.x, columns=pd.Index([f"x{i}" for i in range(rows.x.shape[1])]))
        strengths = datasets.f1.strengths()
        words = "f(x) = 10 sin(π x0 x1) + 20 (x2 − ½)² + 10 x3 + 5 x4: 3000 rows of 10 inputs, noise of sd 1."
        y = Target(["y"], rows.y, False, "numbers", "", 0)
        return x, y, words, lambda term: strengths.get(tuple(int(each[1:]) for each in term), 0.0)
    from sklearn.datasets import load_breast_cancer, load_diabetes

    bunch: Any = load_diabetes(as_frame=True, scaled=False) if name == "diabetes" else load_breast_cancer(as_frame=True)
    x = bunch.data
    if name == "diabetes":
        words = f"Progress of diabetes after a year: {len(x)} patients, {x.shape[1]} measurements."
        return x, Target(["progress"], bunch.target.to_numpy(float), False, "numbers", "", 0), words, None
    words = f"Breast cancer, malignant or benign: {len(x)} tumours, {x.shape[1]} measurements."
    labels = np.array([str(each) for each in bunch.target_names])[bunch.target]
    return x, Target(["diagnosis"], labels, True, "two values", "", 0), words, None


def _figure(model: Any, found: Frame) -> bytes:
    """Main effects, the strongest interaction and all strengths, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from vertebra import plot

    terms = [tuple(term) for term in found["term"]]
    pairs = [term for term in terms if len(term) == 2][:1]
    mains = [term for term in terms if len(term) == 1][: 5 if pairs else 7]
    figure, axes = plt.subplots(2, 4, figsize=(15, 7), layout="constrained")
    left = list(axes.flat)
    for term in mains:
        outer = model.effect(term, simultaneous=True)
        plot.effect(model.effect(term), left.pop(0), simultaneous=outer, marginal=model.marginal(term[0]))
    for term in pairs:
        plot.surface(model.effect(term), [left.pop(0), left.pop(0)])
    plot.strengths(found, left.pop(0), most=N_SHOWN)
    for axis in left:
        axis.remove()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=130)
    plt.close(figure)
    return picture.getvalue()


# --- tables and models, in and out ------------------------------------------------------------------------------------


def _read(name: str) -> Frame:
    """A table as a frame whose columns have names of text."""
    import pandas as pd

    from vertebra.table import MISSING_WORDS

    ending = ".csv" if name == "-" else _ending(name)
    if name == "-" and sys.stdin.isatty():
        raise Refused("standard input is a terminal: pipe a table in, or name a file.")
    if name != "-":
        _check_file(pathlib.Path(name))
    shown = "standard input" if name == "-" else name
    try:
        if ending in (".parquet", ".pq"):
            frame = pd.read_parquet(name)
            if any(each is not None for each in frame.index.names):
                frame = frame.reset_index()
        else:
            source = sys.stdin.buffer if name == "-" else name
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # rows of more fields than names
                frame = pd.read_csv(
                    source,
                    sep="\t" if ending == ".tsv" else ",",
                    index_col=False,
                    low_memory=False,
                    na_values=sorted(MISSING_WORDS),
                    skipinitialspace=True,
                )
    except ImportError:
        raise Refused(f"{shown}: reading Parquet needs pyarrow. Install it: pip install pyarrow.") from None
    except UnicodeDecodeError:
        raise Refused(f"{shown} is not text in UTF-8: save it as UTF-8.") from None
    except pd.errors.EmptyDataError:
        raise Refused(f"{shown} is empty.") from None
    except pd.errors.ParserWarning:
        raise Refused(f"{shown} cannot be read as CSV: its rows have more fields than its first line names.") from None
    except (OSError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused(f"{shown} cannot be read as {'Parquet' if ending[1] == 'p' else 'CSV'}: {reason}") from None
    frame.columns = pd.Index([str(each) for each in frame.columns])
    if not frame.columns.is_unique:
        raise Refused(f"{shown} has more than one column {frame.columns[frame.columns.duplicated()][0]!r}.")
    if not len(frame):
        raise Refused(f"{shown} has no rows.")
    if frame.shape[1] == 1 and (found := [each for each in ";\t|" if each in frame.columns[0]]):
        raise Refused(f"{shown} has one column only, {frame.columns[0]!r}: is it separated by {found[0]!r}, not ','?")
    return frame


def _ending(name: str) -> str:
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return ending
    raise Refused(f"{name}: a table must end in {', '.join(ENDINGS)}.")


def _encoded(frame: Frame, ending: str) -> bytes:
    """A frame as a file of this ending."""
    if ending in (".parquet", ".pq"):
        buffer = io.BytesIO()
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise Refused("writing Parquet needs pyarrow. Install it: pip install pyarrow.") from None
        return buffer.getvalue()
    data = frame.to_csv(index=False, sep="\t" if ending == ".tsv" else ",", lineterminator="\n").encode()
    return gzip.compress(data, mtime=0) if ending == ".csv.gz" else data


def _model_file(model: pathlib.Path) -> pathlib.Path:
    if model.is_dir():
        if not (model / MODEL_NAME).is_file():
            raise Refused(f"{model} holds no {MODEL_NAME}: give the model's file, or the folder that `fit` wrote.")
        return model / MODEL_NAME
    _check_file(model)
    return model


def _load(model: pathlib.Path) -> tuple[pathlib.Path, Any]:
    """The model, and its file."""
    path = _model_file(model)
    from vertebra.archive import load

    return path, load(path)


def _check_file(path: pathlib.Path) -> None:
    if not path.exists():
        folder = path.parent
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1)
        raise Refused(f"{path}: there is no such file{f'; did you mean {near[0]!r}?' if near else '.'}")
    if path.is_dir():
        raise Refused(f"{path}: this is a folder, not a file.")
    if not os.access(path, os.R_OK):
        raise Refused(f"{path}: this file may not be read.")


def _check_writable(path: pathlib.Path, *, force: bool) -> None:
    """Refuses before any work what could not be written after it."""
    if path.is_dir():
        raise Refused(f"{path}: this is a folder, not a file.")
    if path.exists() and not force:
        raise Refused(f"{path} is there already: give --force to overwrite it.")
    if not path.parent.is_dir():
        raise Refused(f"{path}: there is no folder {str(path.parent)!r}.")
    if not os.access(path.parent, os.W_OK):
        raise Refused(f"{path.parent}: this folder cannot be written.")


def _check_report(otherwise: str = "") -> None:
    if importlib.util.find_spec("plotly") is None:
        raise Refused(f"a report needs plotly. Install it: pip install 'vertebra[report]'{otherwise}.")


@contextlib.contextmanager
def _folder(folder: pathlib.Path, names: Iterable[str], *, force: bool) -> Any:
    """The paths of files to write in a folder, which is made; and taken away if it stays empty."""
    existed = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Refused(f"{folder}: this is a file, not a folder.") from None
    except OSError as error:
        raise Refused(f"{folder}: the folder cannot be made ({error.strerror}).") from None
    try:
        files = [folder / name for name in names]
        for path in files:
            _check_writable(path, force=force)
        yield files
    finally:
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _put(path: pathlib.Path, data: bytes) -> None:
    from vertebra.storage import put

    put(path, data)


def _write(model: Any, files: Sequence[pathlib.Path], found: Frame) -> None:
    """The model, its effects, and where asked for its report."""
    model_file, effects_file, *report_file = files
    model.save(model_file)
    _put(effects_file, _encoded(_with_joined_terms(found), ".csv"))
    for path in report_file:
        model.report(path)


# --- what a model's parts are called ----------------------------------------------------------------------------------


def _is_class(model: Any) -> bool:
    from sklearn.base import is_classifier

    return is_classifier(model)


def _is_additive(model: Any) -> bool:
    from vertebra.explanation import Explanations

    return isinstance(model, Explanations)


def _outputs(model: Any) -> list[str]:
    """What has effects of its own: targets, or classes where there are more than two."""
    if not _is_class(model):
        return model.target_names_
    labels = [str(each) for each in model.classes_.tolist()]
    return labels if len(labels) > 2 else labels[1:]


def _output(model: Any, name: str | None) -> int:
    names = _outputs(model)
    if name is None:
        return 0
    if name not in names:
        raise Refused(f"--output {name!r} is not known: there is {', '.join(names[:20])}.")
    return names.index(name)


def _check_additive(model: Any) -> None:
    if not _is_additive(model):
        raise Refused(f"a {type(model).__name__} has no terms: fit an additive model.")


def _all_effects(model: Any) -> Frame:
    """The effects of every output, with its name where there are several."""
    import pandas as pd

    outputs = _outputs(model)
    if len(outputs) == 1:
        return model.effects()
    each = [model.effects(output=k) for k in range(len(outputs))]
    for name, table in zip(outputs, each, strict=True):
        table.insert(0, "output", name)
    return pd.concat(each, ignore_index=True)


def _joined(term: Iterable[str]) -> str:
    """A term in files."""
    return " & ".join(term)


def _shown_term(term: Iterable[str]) -> str:
    """A term for people, as figures have it."""
    return _printable(" × ".join(term))


def _with_joined_terms(found: Frame) -> Frame:
    return found.assign(term=[_joined(term) for term in found["term"]])


def _nearest(name: str, names: Sequence[str]) -> str:
    """The end of a sentence: the name that was meant, or those there are."""
    by_lower = {each.lower(): each for each in names}
    if near := difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5):
        return f"; did you mean {by_lower[near[0]]!r}?"
    if not names:
        return "."
    return f": there {'is' if len(names) == 1 else 'are'} {', '.join(names[:10])}{', …' if len(names) > 10 else ''}."


def _check_share(option: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise Refused(f"{option} must be between 0 and 1, got {value:g}.")


# --- what people see --------------------------------------------------------------------------------------------------


def _console(quiet: bool = False) -> Console:
    """Standard output for people. Nothing in their names is markup."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False, quiet=quiet)


def _table(*headers: str, n_texts: int = 1) -> Table:
    """A table whose first columns are text, and the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i < n_texts else "right", overflow="fold")
    return table


def _say_table(say: Console, table: str, n_rows: int, x: Inputs, y: Target) -> None:
    """What was read."""
    from vertebra.table import learn

    kinds: dict[str, str] = {}
    for column in learn(x.frame, None, x.kinds or None).columns:
        kinds[column.source] = "date" if column.part is not None else column.kind
    plural = {"category": "categories", "ordered": "ordered categories"}
    counted = [
        f"{count} {kind if count == 1 else plural.get(kind, kind + 's')}"
        for kind, count in Counter(kinds.values()).most_common()
    ]
    source = "standard input" if table == "-" else _printable(table)
    inputs = f"{len(kinds)} input{'s' if len(kinds) > 1 else ''}"
    say.print(f"Read {source}: {n_rows:,} rows, {inputs} ({', '.join(counted)}).", soft_wrap=True)
    if y.n_left_out:
        say.print(f"Left out {y.n_left_out:,} rows without a target.", soft_wrap=True)
    task = "classification" if y.is_class else "regression"
    say.print(f"Target {', '.join(map(_printable, y.names))}: {task} ({y.reason}).", soft_wrap=True)
    if y.hint:
        say.print(f"Hint: {_printable(y.hint)}", soft_wrap=True)
    for name in x.frame.columns:
        if re.fullmatch(r"Unnamed: \d+", name):
            say.print(f"Hint: a column has no name. If it numbers the rows, leave it out: --drop '{name}'")


def _say_effects(
    say: Console,
    model: Any,
    found: Frame,
    *,
    level: float = 0.95,
    most: int = N_SHOWN,
    exact: Callable[[Sequence[str]], float] | None = None,
) -> None:
    """Effects, strongest first; a table for each output."""
    if not len(found):
        say.print("No effect was found.")
        return
    groups = list(found.groupby("output", sort=False)) if "output" in found else [("", found)]
    for i, (name, own) in enumerate(groups):
        headers = ["term", "strength", f"{100 * level:g} % interval", "share", "probability"]
        table = _table(*headers, *(["exact"] if exact else []))
        for _, row in own.head(most).iterrows():
            cells = [
                _shown_term(row["term"]),
                f"{row['strength']:.4g}",
                f"{row['lower']:.4g} – {row['upper']:.4g}",
                f"{row['sobol']:.1%}",
                "> 0.999" if row["probability"] > 0.999 else f"{row['probability']:.3f}",
            ]
            table.add_row(*cells, *([f"{exact(row['term']):.4g}"] if exact else []))
        if i:
            say.print()
        say.print(f"Effects on {_printable(name)}:" if name else "Effects:", style="bold", soft_wrap=True)
        say.print(table)
        if len(own) > most:
            say.print(f"and {len(own) - most} more")


def _say_fit(say: Console, model: Any) -> None:
    """Accuracy, and what to think of the fit."""
    if model.evaluation_ is not None:
        evaluation = model.evaluation_
        scores = list(dict.fromkeys(name for own in evaluation.scores.values() for name in own))
        table = _table("", *(_score_name(model, name) for name in scores))
        for who, own in evaluation.scores.items():
            values = [own.get(name, math.nan) for name in scores]
            table.add_row(who, *("" if math.isnan(value) else f"{value:.4g}" for value in values))
        words = f"\nAccuracy on {evaluation.n:,} rows ({_printable(evaluation.method)}):"
        say.print(words, style="bold", soft_wrap=True)
        say.print(table)
    say.print()
    say.print(_lines(str(model.diagnostics_)), soft_wrap=True)


def _score_name(model: Any, name: str) -> str:
    """A score in words; of several targets it bears the number of its own."""
    score, _, k = name.partition(" ")
    words = SCORES.get(score, _printable(score))
    return f"{words} {_printable(model.target_names_[int(k)])}" if k else words


def _lines(text: str) -> str:
    return "\n".join(map(_printable, text.split("\n")))


def _say_files(say: Console, files: Iterable[pathlib.Path]) -> None:
    say.print()
    for path in files:
        say.print(f"Wrote {_printable(path)}", soft_wrap=True)


def _say_frame(say: Console, frame: Frame) -> None:
    """A table of numbers and levels, whole."""
    table = _table(*(_printable(name) for name in frame.columns))
    for row in frame.itertuples(index=False, name=None):
        table.add_row(*(f"{each:.4g}" if isinstance(each, float) else _printable(each) for each in row))
    say.print(table)


def _print_bytes(data: bytes) -> None:
    """To standard output at once, so that a pipe that is closed shows here."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _print_json(document: Any) -> None:
    _print_bytes(json.dumps(_plain(document), indent=2, allow_nan=False).encode() + b"\n")


def _plain(value: Any) -> Any:
    """What JSON can hold: full precision, null for NaN and infinity."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "to_dict"):  # a frame
        return [dict(zip(map(str, value.columns), map(_plain, row), strict=True)) for row in value.to_numpy(object)]
    if hasattr(value, "item"):  # of NumPy
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


if __name__ == "__main__":
    main()
