"""`vertebra fit`: from a table to a model, its effects and a report."""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console

from vertebra.cli.folder import (
    CHECKPOINT_NAME,
    EFFECTS_NAME,
    MODEL_NAME,
    REPORT_NAME,
    check_report,
    folder_of,
    write_model,
)
from vertebra.cli.options import (
    BudgetOption,
    ConformalOption,
    CoordinatorOption,
    DecimalOption,
    DropOption,
    EncodingOption,
    FolderOption,
    ForceOption,
    GroupsOption,
    HoldoutOption,
    JsonOption,
    KindsOption,
    Likelihood,
    LikelihoodOption,
    MemoryOption,
    MissingOption,
    MonotoneOption,
    NoCasesOption,
    NoReportOption,
    PlanOption,
    ProcessesOption,
    ProcessOption,
    QuietOption,
    RawTextOption,
    Scheme,
    SchemeOption,
    SeedOption,
    SepOption,
    SheetOption,
    TablePath,
    TargetOption,
    Task,
    TaskOption,
    TimeOption,
    Transform,
    TransformOption,
    WeightOption,
    Weights,
    WeightsOption,
    WorkersOption,
    format_of,
)
from vertebra.cli.plan import say_plan
from vertebra.cli.tablefile import Frame, Refused, is_large, new_files, read_table, some_rows
from vertebra.cli.terminal import (
    Explanations,
    console,
    print_json,
    say_effects,
    say_files,
    say_fit,
    say_lines,
    say_severe,
)
from vertebra.tables.nearest import one_of

if TYPE_CHECKING:
    from vertebra.cli.roles import Inputs, Target
    from vertebra.pages.cases import CasesLike
else:
    Inputs = Target = CasesLike = object  # they come with pandas, which takes long to import

MOST_HELD_OUT = 0.9  # a first fit needs rows too
LARGEST_SEED = 2**32 - 1  # NumPy's


def fit(
    table: TablePath,
    target: TargetOption = None,
    out: FolderOption = None,
    task: TaskOption = "auto",
    drop: DropOption = None,
    weight: WeightOption = None,
    weights: WeightsOption = "auto",
    groups: GroupsOption = None,
    time: TimeOption = None,
    kinds: KindsOption = None,
    missing: MissingOption = None,
    monotone: MonotoneOption = None,
    likelihood: LikelihoodOption = "auto",
    transform: TransformOption = "none",
    scheme: SchemeOption = "auto",
    conformal: ConformalOption = False,
    time_budget: BudgetOption = None,
    holdout: HoldoutOption = 0.2,
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_report: NoReportOption = False,
    no_cases: NoCasesOption = False,
    raw_text: RawTextOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
    memory: MemoryOption = None,
    coordinator: CoordinatorOption = None,
    processes: ProcessesOption = None,
    process: ProcessOption = None,
    plan: PlanOption = False,
    workers: WorkersOption = None,
) -> None:
    """Fit a table; write the model, its effects and a report.

    Writes DIR/model.vertebra, DIR/effects.csv and DIR/report.html. Text, categories, dates and gaps need no
    preparation. Rows without a target are left out. Ctrl-C ends the search, and keeps what was found. A folder of
    Parquet files, or a big one, is read some rows at a time: its accuracy is of each row left out in turn, and after a
    kill the same command goes on where it was (DIR/checkpoint.vertebra).
    """
    out = folder_of(table) if out is None else out
    _run(Asked(**locals()))


def _run(asked: "Asked") -> None:
    """Fits and writes, or only says what it would take."""
    if asked.plan:
        form, n_beside = format_of(asked.sep, asked.encoding, asked.decimal, asked.sheet), _n_beside(asked)
        say_plan(asked.table, form, n_beside, asked.memory, asked.workers, as_json=asked.as_json)
        return
    if asked.workers is not None:
        raise Refused("--workers goes with --plan.")
    _check(asked)
    names = [MODEL_NAME, EFFECTS_NAME, *([] if asked.no_report else [REPORT_NAME])]
    is_shared = asked.coordinator is not None
    writes = asked.coordinator is None or _join(asked.coordinator, asked.processes, asked.process)
    with new_files(asked.out, names, force=asked.force or not writes, is_shared=is_shared) as files:
        say = console(asked.quiet or asked.as_json)
        fitted = _fitted(asked, say)
        if fitted is None:
            return
        _write(asked, fitted, files, say)
    if fitted.model.diagnostics_.ended == "interrupted":
        raise typer.Exit(130)


@dataclass(frozen=True)
class Asked:
    """What a fit was asked for: the arguments of `fit`."""

    table: str
    target: list[str] | None
    out: pathlib.Path
    task: Task
    drop: list[str] | None
    weight: str | None
    weights: Weights
    groups: str | None
    time: str | None
    kinds: list[str] | None
    missing: list[str] | None
    monotone: list[str] | None
    likelihood: Likelihood
    transform: Transform
    scheme: Scheme
    conformal: bool
    time_budget: float | None
    holdout: float
    seed: int
    force: bool
    as_json: bool
    quiet: bool
    no_report: bool
    no_cases: bool
    raw_text: bool
    sep: str | None
    encoding: str | None
    decimal: str | None
    sheet: str | None
    memory: float | None
    coordinator: str | None
    processes: int | None
    process: int | None
    plan: bool
    workers: int | None

    @property
    def is_streamed(self) -> bool:
        """Whether the table is read some rows at a time."""
        return self.memory is not None or is_large(self.table)


class Fitted(NamedTuple):
    """A model, what it predicts, how many rows the table has, and those of which a page shows a few."""

    model: Explanations
    target: Target
    n_rows: int
    cases: CasesLike = None


def _n_beside(asked: Asked) -> int:
    """The columns that are no inputs."""
    listed = [name for each in (asked.target or [], asked.drop or []) for text in each for name in text.split(",")]
    return len({*listed, *filter(None, (asked.weight, asked.groups, asked.time))})


def _check(asked: Asked) -> None:
    """Refuses before any work what could not be done."""
    if not 0.0 <= asked.holdout <= MOST_HELD_OUT:
        raise Refused(f"--holdout must be a share from 0 to {MOST_HELD_OUT:g}, got {asked.holdout:g}.")
    if asked.time_budget is not None and not asked.time_budget > 0.0:
        raise Refused(f"--time-budget must be a number of seconds above 0, got {asked.time_budget:g}.")
    if not 0 <= asked.seed <= LARGEST_SEED:
        raise Refused(f"--seed must be a whole number from 0 to {LARGEST_SEED}, got {asked.seed}.")
    if asked.is_streamed and (asked.groups or asked.time):
        option = "--groups" if asked.groups else "--time"
        raise Refused(f"{option} is for tables that fit in memory: this one is read some rows at a time.")
    if not asked.target:
        raise Refused(f"--target COLUMN says what to predict{one_of(list(_read(asked).columns))}")
    if not asked.no_report:
        check_report(", or leave the report out: --no-report")
    if asked.coordinator is None:
        if asked.processes is not None or asked.process is not None:
            raise Refused("--processes and --process need --coordinator HOST:PORT.")
    elif not asked.is_streamed:
        raise Refused("--coordinator is for tables that are read some rows at a time: give --memory too.")
    elif asked.time_budget is not None:
        raise Refused("--time-budget is for one process: several would not end together.")


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


def _read(asked: Asked) -> Frame:
    """The table, or some of its rows."""
    if asked.is_streamed:
        return some_rows(asked.table)
    return read_table(asked.table, format_of(asked.sep, asked.encoding, asked.decimal, asked.sheet))


def _fitted(asked: Asked, say: Console) -> Fitted | None:
    """Reads and fits; nothing for processes but the first."""
    frame = _read(asked)
    from vertebra.cli import hints, roles
    from vertebra.cli.holdout import fit_and_evaluate, fit_files

    given = asked.target or [], asked.drop or [], asked.weight, asked.kinds or [], asked.task
    beside = {"groups": asked.groups, "time": asked.time}
    x, y, about = roles.choose(
        frame, asked.table, *given, missing=asked.missing or [], is_sample=asked.is_streamed, **beside
    )
    settings = _settings(asked, y, x)
    if not asked.is_streamed:
        say_lines(
            say,
            hints.described(asked.table, len(frame), x, y, is_timed=asked.time is not None or asked.groups is not None),
        )
        model = fit_and_evaluate(say, x.frame, y, about, settings, share=asked.holdout, budget=asked.time_budget)
        cases = False if asked.no_cases else (x.frame, y.values, x.rows.tolist())
        return Fitted(model, y, len(frame), cases)
    columns = [*x.frame.columns, *y.names, *([asked.weight] if asked.weight else [])]
    settings |= dict(checkpoint=asked.out / CHECKPOINT_NAME, time_budget=asked.time_budget)
    model, n_rows = fit_files(say, asked.table, columns, y, asked.weight, settings, asked.memory)
    if model is None:
        return None
    say_lines(say, hints.described(asked.table, n_rows, x, y))
    return Fitted(model, y, n_rows)


def _settings(asked: Asked, y: Target, x: Inputs) -> dict[str, Any]:
    """The arguments of the estimator."""
    settings: dict[str, Any] = dict(
        scheme=asked.scheme,
        feature_types=x.kinds or None,
        missing_values=x.missing or None,
        weights=asked.weights,
        random_state=asked.seed,
    )
    if asked.monotone:
        settings["monotone"] = _signs(asked.monotone)
    if not y.is_class:
        return settings | dict(likelihood=asked.likelihood, conformal=asked.conformal, target_transform=asked.transform)
    is_numeric = dict(zip(("likelihood", "target_transform"), (asked.likelihood, asked.transform), strict=True))
    given = [f"--{name} {value}" for name, value in is_numeric.items() if value not in ("auto", "none")]
    if given or asked.conformal:
        option = "--conformal" if asked.conformal else given[0]
        raise Refused(f"{option} is for regression, and this is classification: {y.reason}.")
    return settings


def _signs(given: list[str]) -> dict[str, str]:
    """Which columns predictions rise or fall with."""
    signs = {}
    for each in given:
        name, _, sign = each.rpartition("=")
        if not name or sign not in ("+", "-"):
            raise Refused(f"--monotone must be COLUMN=+ or COLUMN=-, got {each!r}.")
        signs[name] = sign
    return signs


def _write(asked: Asked, fitted: Fitted, files: Sequence[pathlib.Path], say: Console) -> None:
    """The files, and what is said of them."""
    from vertebra.cli import answers

    model, y, n_rows, cases = fitted
    found = answers.all_effects(model)
    write_model(model, files, found, is_raw=asked.raw_text, cases=cases)
    if not asked.as_json:
        say.print()
        say_severe(say, model)
        say_effects(say, found)
        say_fit(say, model, is_severe_said=True)
        say_files(say, files)
        return
    n_fitted = model.model_.profile.n_rows
    print_json(
        {
            "table": asked.table,
            "rows": n_fitted if asked.is_streamed else len(y.values),
            "rows_left_out": n_rows - n_fitted if asked.is_streamed else y.n_left_out,
            "task": "classification" if y.is_class else "regression",
            "reason": y.reason,
            **answers.about(model),
            "effects": found,
            "files": {path.name: str(path) for path in files},
        }
    )
