"""The options of commands: their types, and what their help says."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from vertebra.cli.tablefile import Refused
from vertebra.tables.endings import ENDINGS

if TYPE_CHECKING:
    from vertebra.tables.delimited import Format
else:
    Format = object  # it comes with pandas

Task = Literal["auto", "regression", "classification"]
Weights = Literal["auto", "frequency", "importance"]
Likelihood = Literal["auto", "gaussian", "heteroscedastic", "student_t", "poisson", "negative_binomial", "counts"]
Transform = Literal["none", "log", "box_cox", "auto"]
Scheme = Literal[
    "auto",
    "mc_dropout",
    "mean_field",
    "random_features",
    "deep_kernel_learning",
    "deep_random_features",
    "inducing_points",
]
Measure = Literal["data", "product"]
Example = Literal["diabetes", "breast_cancer", "f1"]


def format_of(sep: str | None, encoding: str | None, decimal: str | None, sheet: str | None) -> "Format":
    """How a table is to be read."""
    from vertebra.tables.delimited import Format

    return Format({"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep), encoding, decimal, sheet)


def check_share(option: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise Refused(f"{option} must be between 0 and 1, got {value:g}.")


# --- of several commands ----------------------------------------------------------------------------------------------

TablePath = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        show_default=False,
        help=f"A table: {', '.join(ENDINGS)}; a folder of Parquet files; or - for CSV from a pipe.",
    ),
]
ModelPath = Annotated[
    pathlib.Path,
    typer.Argument(metavar="MODEL", show_default=False, help="A model's file, or the folder that `fit` wrote."),
]
OtherModelPath = Annotated[
    pathlib.Path, typer.Argument(metavar="OTHER", show_default=False, help="Another model, of the same target.")
]
SepOption = Annotated[
    str | None, typer.Option("--sep", metavar="MARK", help="What separates fields: ';', tab, …; guessed without it.")
]
EncodingOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of text: utf-8, utf-16, cp1252, …; guessed without it.")
]
DecimalOption = Annotated[
    str | None, typer.Option(metavar="MARK", help="Decimal mark of numbers, . or a comma; guessed without it.")
]
SheetOption = Annotated[str | None, typer.Option(metavar="SHEET", help="Of .xlsx: its name, or its number from 1.")]
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

TargetOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="What to predict; several give one model. Without it columns are listed."),
]
FolderOption = Annotated[
    pathlib.Path | None, typer.Option(metavar="DIR", help="Folder to write (without it: one named as the table is).")
]
TaskOption = Annotated[
    Task,
    typer.Option(
        metavar="TASK",
        help="regression, classification, or auto: classification for text, booleans, categories and two values.",
    ),
]
DropOption = Annotated[list[str] | None, typer.Option(metavar="COLUMN,…", help="Leave columns out; repeatable.")]
WeightOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="Weights of the rows.")]
WeightsOption = Annotated[
    Weights,
    typer.Option(
        metavar="KIND",
        help="What they are: frequency, numbers of equal rows; importance, of any scale; auto, by their values.",
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option("--groups", metavar="COLUMN", help="Which rows belong together, in folds and tests; no input then."),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="When rows were: accuracy is that of later ones; no input then."),
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
        "--missing",
        metavar="COLUMN=VALUE,…",
        help="Read values as gaps; VALUE,… alone: in all inputs; of a target: leave its rows out; repeatable.",
    ),
]
LikelihoodOption = Annotated[
    Likelihood, typer.Option(metavar="NAME", help=f"The noise of a regression: {', '.join(get_args(Likelihood))}.")
]
TransformOption = Annotated[
    Transform,
    typer.Option(
        metavar="NAME", help=f"The scale on which a positive target is fitted: {', '.join(get_args(Transform))}."
    ),
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
NoCasesOption = Annotated[
    bool, typer.Option("--no-cases", help="Leave out of the report the few rows that it takes apart.")
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="Print what the fit would take, in seconds and memory, and fit nothing.")
]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="K", help="Cores that share the passes over all rows, for --plan.")
]
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
ProbaOption = Annotated[bool, typer.Option("--proba", help="Only the probabilities of the classes, and their limits.")]
KeepOption = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN,…", help="Copy columns of the table, such as ids; repeatable.")
]
TermsOption = Annotated[bool, typer.Option("--terms", help="Also intercept, and term:… for what each term adds.")]

# --- of `explain` -----------------------------------------------------------------------------------------------------

RowsOption = Annotated[
    list[str] | None, typer.Option(metavar="N,…", help="Which rows, from 1 (without it: the first three).")
]

# --- of `effects`, `report` and `demo` --------------------------------------------------------------------------------

OrderOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only terms of so many inputs.")]
InteractionsOption = Annotated[
    bool, typer.Option("--interactions", help="Only interactions that survive error control.")
]
TotalsOption = Annotated[
    bool, typer.Option("--totals", help="What each input has a part in: the shares of all terms with it.")
]
FdrOption = Annotated[
    float, typer.Option(metavar="SHARE", help="With --interactions: the share of false ones that may be expected.")
]
MeasureOption = Annotated[
    Measure | None,
    typer.Option(
        metavar="NAME",
        help="Effects as averages over the rows (data), or over all combinations of values (product).",
    ),
]
TermOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TERM", help="A term as a function: 'hr × day' as printed, or an input each; repeatable."),
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV, and nothing else.")]
CasesOption = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="A table with the target: the page takes five of its rows apart."),
]
PageOption = Annotated[
    pathlib.Path | None, typer.Option(metavar="FILE", help="Page to write (without it: report.html by the model).")
]
ExampleOption = Annotated[
    Example,
    typer.Option(metavar="NAME", help="diabetes; breast_cancer; or f1, Friedman's function, whose effects are known."),
]
DemoFolderOption = Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Folder to write.")]
