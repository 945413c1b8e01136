"""The command line: fit a table, predict, look at effects, write reports.

An error is one line on standard error. The status is 0 when all is done, 1 where the work failed, 2 for wrong use, 130
after Ctrl-C, and 141 where the reader of a pipe went away. What takes long to import is imported by the commands that
need it, so that help comes at once.
"""

import importlib.util
import math
import pathlib
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import typer
from typer.core import TyperCommand, TyperGroup

import vertebra
from vertebra.cli.tablefile import (
    ENDINGS,
    Refused,
    check_file,
    check_writable,
    encoded,
    ending_of,
    is_large,
    new_files,
    read_table,
    some_rows,
)
from vertebra.cli.terminal import (
    complain,
    console,
    print_bytes,
    print_json,
    say_about,
    say_effects,
    say_files,
    say_fit,
    say_frame,
    say_lines,
    show_warning,
)

MODEL_NAME, EFFECTS_NAME, REPORT_NAME, FIGURE_NAME = "model.vertebra", "effects.csv", "report.html", "effects.png"
CHECKPOINT_NAME = "checkpoint.vertebra"
DEMO_FOLDER = pathlib.Path("demo-output")
# typer brings its own copy of click, or uses the installed one.
UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")

Weights = Literal["auto", "frequency", "importance"]
Likelihood = Literal["auto", "gaussian", "heteroscedastic", "student_t", "poisson"]
Scheme = Literal[
    "auto",
    "mc_dropout",
    "mean_field",
    "random_features",
    "deep_kernel_learning",
    "deep_random_features",
    "inducing_points",
]


class Commands(TyperGroup):
    """Ends every command with a status, and every error with one line."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in args  # anywhere
        status = 0
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                left = [each for each in args if each != "--debug"] or ["--help"]
                # a number where a command ended early: 130 after Ctrl-C
                status = super().main(left, "vertebra", **(extra | {"standalone_mode": False})) or 0
        except typer.Abort:
            status = 130
        except SystemExit:
            status = 141  # typer and rich leave so, and quietly, where nobody reads standard output any more
        except Exception as error:
            if debug:
                traceback.print_exc()
            status, words = _words(error)
            complain(words)
            if "vertebra.machine.cluster" in sys.modules:
                sys.modules["vertebra.machine.cluster"].failed()
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
    typer.Argument(
        metavar="TABLE",
        show_default=False,
        help=f"A table: {', '.join(ENDINGS)}, or a folder of Parquet files; - is CSV from a pipe.",
    ),
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
RawText = Annotated[
    bool, typer.Option("--raw-text", help="Leave text in CSV as it is, even what spreadsheets would run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]


def main() -> None:
    """The console script."""
    app()


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"vertebra {vertebra.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from; may stand anywhere.")] = False,
) -> None:
    """What acts in a table, what interacts, and how sure: Bayesian additive networks."""


# --- fit --------------------------------------------------------------------------------------------------------------


@command(
    "vertebra fit flats.csv --target rent --out flats",
    "zcat big.csv.gz | vertebra fit - --target y --time-budget 60 --out big --json > big.json",
    "vertebra fit measurements/ --target yield --memory 2 --out yield",
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
    weights: Annotated[
        Weights,
        typer.Option(
            metavar="KIND",
            help="What they are: frequency, numbers of equal rows; importance, of any scale; auto, by their values.",
        ),
    ] = "auto",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=KIND", help="number, ordered, category, boolean or datetime; repeatable."
        ),
    ] = None,
    likelihood: Annotated[
        Likelihood,
        typer.Option(metavar="NAME", help=f"The noise of a regression: {', '.join(get_args(Likelihood))}."),
    ] = "auto",
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and warnings.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave the report out.")] = False,
    raw_text: RawText = False,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Read Parquet some rows at a time, within this; so are folders, big files."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Of several processes: where the first is; or 'cluster'."),
    ] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="How many they are.")] = None,
    process: Annotated[int | None, typer.Option(metavar="K", help="Which this is, from 0.")] = None,
) -> None:
    """Fit a table; write the model, its effects and a report.

    Writes DIR/model.vertebra, DIR/effects.csv and DIR/report.html. Text, categories, dates and gaps need no
    preparation. Rows without a target are left out. Ctrl-C ends the search, and keeps what was found. A folder of
    Parquet files, or a big one, is read some rows at a time: its accuracy is of each row left out in turn, and after a
    kill the same command goes on where it was (DIR/checkpoint.vertebra).
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
    is_streamed = memory is not None or is_large(table)
    if coordinator is None and (processes is not None or process is not None):
        raise Refused("--processes and --process need --coordinator HOST:PORT.")
    if coordinator is not None:
        if not is_streamed:
            raise Refused("--coordinator is for tables that are read some rows at a time: give --memory too.")
        if time_budget is not None:
            raise Refused("--time-budget is for one process: several would not end together.")
        force = not _join(coordinator, processes, process) or force
    with new_files(out, names, force=force, is_shared=coordinator is not None) as files:
        frame = some_rows(table) if is_streamed else read_table(table)
        from vertebra.cli import answers, roles
        from vertebra.cli.holdout import fit_and_evaluate, fit_files

        x, y, row_weight = roles.choose(
            frame, table, target, drop or [], weight, kinds or [], task, is_sample=is_streamed
        )
        settings: dict[str, Any] = dict(
            scheme=scheme, feature_types=x.kinds or None, weights=weights, random_state=seed
        )
        if y.is_class and (likelihood != "auto" or conformal):
            option = "--conformal" if conformal else f"--likelihood {likelihood}"
            raise Refused(f"{option} is for regression, and this is classification: {y.reason}.")
        if not y.is_class:
            settings |= dict(likelihood=likelihood, conformal=conformal)
        say = console(quiet or as_json)
        if is_streamed:
            columns = [*x.frame.columns, *y.names, *([weight] if weight else [])]
            settings |= dict(checkpoint=out / CHECKPOINT_NAME, time_budget=time_budget)
            model, n_rows = fit_files(say, table, columns, y, weight, settings, memory)
            if model is None:
                return
            say_lines(say, roles.described(table, n_rows, x, y))
        else:
            n_rows = len(frame)
            say_lines(say, roles.described(table, n_rows, x, y))
            model = fit_and_evaluate(say, x.frame, y, row_weight, settings, share=holdout, budget=time_budget)
        found = answers.all_effects(model)
        _write(model, files, found, is_raw=raw_text)
        if as_json:
            print_json(
                {
                    "table": table,
                    "rows": model.model_.profile.n_rows if is_streamed else len(y.values),
                    "rows_left_out": n_rows - model.model_.profile.n_rows if is_streamed else y.n_left_out,
                    "task": "classification" if y.is_class else "regression",
                    "reason": y.reason,
                    **answers.about(model),
                    "effects": found,
                    "files": {path.name: str(path) for path in files},
                }
            )
        else:
            say.print()
            say_effects(say, found)
            say_fit(say, model)
            say_files(say, files)


def _join(coordinator: str, processes: int | None, process: int | None) -> bool:
    """Joins the processes of a fit; whether this is the one that writes."""
    from vertebra.machine import cluster

    try:
        if coordinator == "cluster":
            cluster.connect()
        else:
            cluster.connect(coordinator, processes, process)
    except ValueError as error:
        raise Refused(str(error)) from None
    return cluster.is_first()


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
    raw_text: RawText = False,
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
        ending_of(str(out))
        check_writable(out, force=force)
    file = _model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers
    from vertebra.files.outputs import predictions
    from vertebra.machine import file as storage

    loaded = estimators.load(file)
    is_class = answers.is_classifier(loaded)
    if is_class and levels:
        raise Refused("--quantiles is for regression, and the model is of classes.")
    if proba and not is_class:
        raise Refused("--proba is for classes, and the model is of numbers.")
    if terms:
        answers.check_additive(loaded)

    def answer(frame: Any) -> Any:
        return predictions(
            loaded.model_, answers.inputs_of(loaded, frame, table), level, levels, proba=proba, terms=terms
        )

    if is_large(table):
        if out is None or ending_of(str(out)) not in (".parquet", ".pq"):
            raise Refused(f"{table} is read some rows at a time, to Parquet: give --out FILE.parquet.")
        from vertebra import stream

        stream.write(table, out, list(loaded.schema_.sources), answer)
        return
    result = answer(read_table(table))
    if out is None:
        print_bytes(encoded(result, ".csv", is_raw=raw_text))
    else:
        storage.put(out, encoded(result, ending_of(str(out)), is_raw=raw_text))


def _quantiles(text: str | None) -> list[float]:
    try:
        levels = [float(each) for each in text.split(",")] if text is not None else []
    except ValueError:
        levels = [math.nan]
    if not all(0.0 < each < 1.0 for each in levels):
        raise Refused(f"--quantiles must be numbers between 0 and 1 with commas between them, got {text!r}.")
    return levels


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
    raw_text: RawText = False,
) -> None:
    """Print effects, strongest first, or one as a function.

    Strength is in the units of the target (of the logit for classes, of the log of the rate for counts), share is of
    the variance of f, probability is that the term is real.
    """
    _check_share("--level", level)
    _check_share("--fdr", fdr)
    if as_json and as_csv:
        raise Refused("--json and --csv do not go together.")
    file = _model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = estimators.load(file)
    answers.check_additive(loaded)
    k = answers.output_number(loaded, output)
    if term:
        found = answers.function_of(loaded, term, level, k)
    elif interactions:
        found = loaded.interactions(fdr, level=level, output=k)
    else:
        found = loaded.effects(level=level, output=k)
    if order is not None and not term:
        found = found.loc[found["order"] == order].reset_index(drop=True)
    if as_json:
        print_json({"term": term, "points": found} if term else {"level": level, "effects": found})
    elif as_csv:
        print_bytes(encoded(found if term else answers.with_joined_terms(found), ".csv", is_raw=raw_text))
    elif term:
        say_frame(console(), found)
    else:
        say_effects(console(), found, level=level, most=len(found))


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
    file = _model_file(model)
    path = file.with_name(REPORT_NAME) if out is None else out
    check_writable(path, force=force)
    _check_report()
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = estimators.load(file)
    answers.check_additive(loaded)
    loaded.report(path)
    say_files(console(), [path])


@command("vertebra info flats", "vertebra info flats --json | jq .evaluation.scores")
def info(model: ModelPath, as_json: Json = False) -> None:
    """Say what a model is, how well it did, and what wrote it."""
    file = _model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = estimators.load(file)
    about = {"file": str(file), "bytes": file.stat().st_size, **answers.written(file), **answers.about(loaded)}
    if as_json:
        print_json(about)
        return
    say = console()
    say_about(say, about)
    say_fit(say, loaded)


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
    with new_files(out, names, force=force or out == DEMO_FOLDER) as files:
        from vertebra.cli import answers
        from vertebra.cli.demo import example, figure_of
        from vertebra.cli.holdout import fit_and_evaluate
        from vertebra.machine import file as storage

        x, y, words, exact = example(data)
        say = console()
        say.print(words, soft_wrap=True)
        model = fit_and_evaluate(say, x, y, None, dict(random_state=0), share=0.2)
        found = answers.all_effects(model)
        model_file, effects_file, figure_file, report_file = files
        _write(model, [model_file, effects_file], found)
        storage.put(figure_file, figure_of(model, found))
        model.report(report_file)
        say.print()
        say_effects(say, found, exact=exact)
        say_fit(say, model)
        say_files(say, files)


# --- what commands share ----------------------------------------------------------------------------------------------


def _model_file(model: pathlib.Path) -> pathlib.Path:
    if model.is_dir():
        if not (model / MODEL_NAME).is_file():
            raise Refused(f"{model} holds no {MODEL_NAME}: give the model's file, or the folder that `fit` wrote.")
        return model / MODEL_NAME
    check_file(model)
    return model


def _write(model: Any, files: Sequence[pathlib.Path], found: Any, *, is_raw: bool = False) -> None:
    """The model, its effects, and where asked for its report."""
    from vertebra.cli import answers
    from vertebra.machine import file as storage

    model_file, effects_file, *report_file = files
    model.save(model_file)
    storage.put(effects_file, encoded(answers.with_joined_terms(found), ".csv", is_raw=is_raw))
    for path in report_file:
        model.report(path)


def _check_report(otherwise: str = "") -> None:
    if importlib.util.find_spec("plotly") is None:
        raise Refused(f"a report needs plotly. Install it: pip install 'vertebra[report]'{otherwise}.")


def _check_share(option: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise Refused(f"{option} must be between 0 and 1, got {value:g}.")


if __name__ == "__main__":
    main()
