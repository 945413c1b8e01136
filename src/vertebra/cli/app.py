"""The command line: fit a table, predict, look at effects, write reports.

An error is one line on standard error. The status is 0 when all is done, 1 where the work failed, 2 for wrong use, 130
after Ctrl-C, and 141 where the reader of a pipe went away. What takes long to import is imported by the commands that
need it, so that help comes at once.
"""

import gc
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import vertebra
from vertebra.cli.ask import compare, evaluate, explain
from vertebra.cli.demo import demo
from vertebra.cli.fit import fit
from vertebra.cli.look import effects, info, report
from vertebra.cli.predict import predict
from vertebra.cli.tablefile import Refused
from vertebra.cli.terminal import complain, warner

# typer brings its own copy of click, or uses the installed one.
UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")

# The commands as the help lists them, with examples of each.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    fit: (
        "vertebra fit flats.csv --target rent --out flats",
        "zcat big.csv.gz | vertebra fit - --target y --time-budget 60 --out big --json > big.json",
        "vertebra fit measurements/ --target yield --memory 2 --out yield",
    ),
    predict: (
        "vertebra predict flats new.csv",
        "vertebra predict flats new.parquet --out rents.parquet --level 0.8 --quantiles 0.1,0.5,0.9",
        "cat new.csv | vertebra predict flats/model.vertebra - --terms > rents.csv",
    ),
    explain: (
        "vertebra explain flats new.csv --rows 1,7",
        "vertebra explain flats new.csv --rows 1 --json",
    ),
    evaluate: (
        "vertebra evaluate flats later.csv",
        "vertebra evaluate flats later.csv --json | jq .scores.model",
    ),
    compare: (
        "vertebra compare flats flats-poisson later.csv",
        "vertebra compare flats flats-poisson later.csv --json | jq .gain",
    ),
    effects: (
        "vertebra effects flats",
        "vertebra effects flats --interactions --fdr 0.1 --json",
        "vertebra effects flats --term size --term district --csv > size-district.csv",
    ),
    report: ("vertebra report flats", "vertebra report flats/model.vertebra --out rent.html --force"),
    info: ("vertebra info flats", "vertebra info flats --json | jq .evaluation.scores"),
    demo: ("vertebra demo", "vertebra demo --data breast_cancer --out cancer"),
}


class Commands(TyperGroup):
    """Ends every command with a status, and every error with one line."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in args  # anywhere
        status = 0
        try:
            with warnings.catch_warnings():
                warnings.showwarning = warner()
                left = [each for each in args if each != "--debug"] or ["--help"]
                # a number where a command ended early: 130 after Ctrl-C
                extra["standalone_mode"] = False
                status = super().main(left, "vertebra", **extra) or 0
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
        words = error.format_message().replace("Value error, ", "")
        if "'--weights'" in words:
            words += " A column of weights is given by --weight."
        return 2, f"{words} See vertebra {command + ' ' if command else ''}--help."
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


for run, examples in COMMANDS.items():
    app.command(cls=Command, epilog=_examples(*examples))(run)


def main() -> None:
    """The console script."""
    # what modules bring stays: to look for garbage among it takes a tenth of their time
    gc.set_threshold(100_000, 20, 100)
    app()
