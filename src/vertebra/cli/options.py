"""The options of commands: their types, and what their help says."""

import pathlib
from typing import Annotated, Literal, get_args

import typer

from vertebra.cli.tablefile import ENDINGS, Refused

Task = Literal["auto", "regression", "classification"]
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
Example = Literal["f1", "diabetes", "breast_cancer"]


def check_share(option: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise Refused(f"{option} must be between 0 and 1, got {value:g}.")


# --- of several commands ----------------------------------------------------------------------------------------------

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
OutputOption = Annotated[
    str | None,
    typer.Option("--output", metavar="NAME", help="Which target, or which class of more than two (the first)."),
]
LevelOption = Annotated[float, typer.Option("--level", metavar="SHARE", help="Probability of intervals.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files.")]
RawTextOption = Annotated[
    bool, typer.Option("--raw-text", help="Leave text in CSV as it is, even what spreadsheets would run.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]

# --- of `fit` ---------------------------------------------------------------------------------------------------------

TargetOption = Annotated[list[str], typer.Option(metavar="COLUMN", help="What to predict; several give one model.")]
FolderOption = Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Folder to write; it is made if need be.")]
TaskOption = Annotated[
    Task,
    typer.Option(
        metavar="TASK",
        help="regression, classification, or auto: classification for text, booleans, categories and two values.",
    ),
]
DropOption = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column out; repeatable.")]
WeightOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="Weights of the rows.")]
WeightsOption = Annotated[
    Weights,
    typer.Option(
        metavar="KIND",
        help="What they are: frequency, numbers of equal rows; importance, of any scale; auto, by their values.",
    ),
]
KindsOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="COLUMN=KIND", help="number, ordered, category, boolean or datetime; repeatable."),
]
MonotoneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--monotone", metavar="COLUMN=SIGN", help="What predictions may only rise (+) or fall (-) with; repeatable."
    ),
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--missing", metavar="COLUMN=VALUE", help="Read a value as a gap; VALUE alone: in all columns; repeatable."
    ),
]
LikelihoodOption = Annotated[
    Likelihood, typer.Option(metavar="NAME", help=f"The noise of a regression: {', '.join(get_args(Likelihood))}.")
]
SchemeOption = Annotated[
    Scheme,
    typer.Option(
        metavar="NAME", help=f"auto: closed form; else a network on the terms: {', '.join(get_args(Scheme)[1:])}."
    ),
]
ConformalOption = Annotated[
    bool, typer.Option("--conformal", help="Intervals that hold whatever the noise; costs a fifth of the rows.")
]
BudgetOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop looking for more terms by then.")]
HoldoutOption = Annotated[
    float, typer.Option(metavar="SHARE", help="Rows for accuracy, by a first fit without them; 0: each row in turn.")
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Of the random split, and of the fit.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and warnings.")]
NoReportOption = Annotated[bool, typer.Option("--no-report", help="Leave the report out.")]
MemoryOption = Annotated[
    float | None,
    typer.Option(metavar="GIB", help="Read Parquet some rows at a time, within this; so are folders, big files."),
]
CoordinatorOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Of several processes: where the first is; or 'cluster'.")
]
ProcessesOption = Annotated[int | None, typer.Option(metavar="N", help="How many they are.")]
ProcessOption = Annotated[int | None, typer.Option(metavar="K", help="Which this is, from 0.")]

# --- of `predict` -----------------------------------------------------------------------------------------------------

FileOption = Annotated[
    pathlib.Path | None, typer.Option(metavar="FILE", help="Table to write (without it: CSV to standard output).")
]
QuantilesOption = Annotated[
    str | None, typer.Option(metavar="Q,Q,…", help="Also quantiles, as columns q0.1, …; for regression.")
]
ProbaOption = Annotated[bool, typer.Option("--proba", help="Only the probabilities of the classes.")]
TermsOption = Annotated[bool, typer.Option("--terms", help="Also intercept, and term:… for what each term adds.")]

# --- of `effects`, `report` and `demo` --------------------------------------------------------------------------------

OrderOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only terms of so many inputs.")]
InteractionsOption = Annotated[
    bool, typer.Option("--interactions", help="Only interactions that survive error control.")
]
FdrOption = Annotated[
    float, typer.Option(metavar="SHARE", help="With --interactions: the share of false ones that may be expected.")
]
TermOption = Annotated[
    list[str] | None, typer.Option(metavar="INPUT", help="The term of these inputs, as a function; repeatable.")
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV, and nothing else.")]
PageOption = Annotated[
    pathlib.Path | None, typer.Option(metavar="FILE", help="Page to write (without it: report.html by the model).")
]
ExampleOption = Annotated[
    Example,
    typer.Option(metavar="NAME", help="f1: Friedman's function, whose effects are known; diabetes; or breast_cancer."),
]
DemoFolderOption = Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Folder to write.")]
