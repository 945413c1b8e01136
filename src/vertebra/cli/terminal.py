"""What people see, and programs read, of the command line: lines, tables and JSON."""

import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from vertebra.cli.tablefile import Frame
from vertebra.effects.words import probability_words
from vertebra.terms.term import term_label

if TYPE_CHECKING:
    from vertebra.estimators.estimator import Estimator
    from vertebra.estimators.explanations import Explanations as Explanations
else:
    Estimator = Explanations = object  # they take seconds to import

N_SHOWN = 15
# Columns of a file: nothing is cut where nobody looks.
WIDTH = 200


def console(quiet: bool = False) -> Console:
    """Standard output for people. Nothing in their names is markup."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False, quiet=quiet)


def plain_table(*headers: str, n_texts: int = 1) -> Table:
    """A table whose first columns are text, and the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i < n_texts else "right", overflow="fold")
    return table


def printable(text: object) -> str:
    """Text that a terminal shows and does not obey: control characters are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def complain(words: str) -> None:
    """One line on standard error."""
    typer.echo("vertebra: " + printable(" ".join(words.split())), err=True)


def show_warning(message: object, *where: object) -> None:
    """In the place of `warnings.showwarning`."""
    complain(f"warning: {message}")


def say_effects(
    say: Console,
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
        table = plain_table(*headers, *(["exact"] if exact else []))
        shown = (own[column].head(most) for column in ("term", "strength", "lower", "upper", "sobol", "probability"))
        for term, strength, lower, upper, sobol, probability in zip(*shown, strict=True):
            cells = [
                shown_term(term),
                f"{strength:.4g}",
                f"{lower:.4g} – {upper:.4g}",
                f"{sobol:.1%}",
                probability_words(probability),
            ]
            table.add_row(*cells, *([f"{exact(term):.4g}"] if exact else []))
        if i:
            say.print()
        say.print(f"Effects on {printable(name)}:" if name else "Effects:", style="bold", soft_wrap=True)
        say.print(table)
        if len(own) > most:
            say.print(f"and {len(own) - most} more")


def say_fit(say: Console, model: Estimator) -> None:
    """Accuracy, and what to think of the fit."""
    from vertebra.models.scores import ScoreName

    if model.evaluation_ is not None:
        evaluation = model.evaluation_
        scores = list(dict.fromkeys(name for own in evaluation.scores.values() for name in own))
        table = plain_table("", *(printable(ScoreName.read(key).words(model.target_names_)) for key in scores))
        for who, own in evaluation.scores.items():
            values = [own.get(name, math.nan) for name in scores]
            shown = [
                f"{round(v, 4) + 0.0:.4f}" if ScoreName.read(n).score == "r2" else f"{v:.4g}"
                for n, v in zip(scores, values, strict=True)
            ]
            table.add_row(who, *("" if text == "nan" else text for text in shown))
        words = f"\nAccuracy on {evaluation.n:,} rows ({evaluation.method.words}):"
        say.print(words, style="bold", soft_wrap=True)
        say.print(table)
    say.print()
    say_lines(say, str(model.diagnostics_).split("\n"))


def say_lines(say: Console, lines: Iterable[str]) -> None:
    """Each on a line of its own, whatever its length."""
    for line in lines:
        say.print(printable(line), soft_wrap=True)


def shown_term(term: Sequence[str]) -> str:
    """A term for people, as figures have it."""
    return printable(term_label(term))


def say_about(say: Console, about: dict[str, Any]) -> None:
    """What a model is, and what its file says of its making."""
    facts = {
        "file": f"{printable(about['file'])} ({about['bytes']:,} bytes, format {about['format']})",
        "kind": f"{about['kind']} ({about['task']})",
        "target": ", ".join(map(printable, about["targets"])),
        "classes": ", ".join(map(printable, about["classes"])),
        "rows": f"{about['rows_fitted']:,} (equal ones counted once)",
        "versions": printable(", ".join(f"{name} {version}" for name, version in about["versions"].items())),
        "settings": ", ".join(f"{name} {printable(value)}" for name, value in about["settings"].items()),
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        if fact:
            say.print(f"{name.ljust(width)}  {fact}", soft_wrap=True)
    inputs = plain_table("input", "kind", "gaps", "levels", n_texts=3)
    for each in about["inputs"]:
        gaps, levels = "yes" if each["has_missing"] else "", str(each["n_levels"] or "")
        inputs.add_row(printable(each["name"]), each["kind"], gaps, levels)
    say.print("\nInputs:", style="bold")
    say.print(inputs)
    if about["terms"]:
        say.print(f"\nTerms: {', '.join(map(shown_term, about['terms']))}", soft_wrap=True)


def say_files(say: Console, files: Iterable[pathlib.Path]) -> None:
    say.print()
    say_lines(say, (f"Wrote {path}" for path in files))


def say_frame(say: Console, frame: Frame) -> None:
    """A table of numbers and levels, whole."""
    table = plain_table(*(printable(name) for name in frame.columns))
    # the values of a discrete number may be codes: they are written in full
    digits = [10 if name in frame.attrs.get("discrete", []) else 4 for name in frame.columns]
    for row in frame.itertuples(index=False, name=None):
        cells = zip(row, digits, strict=True)
        table.add_row(*(f"{each:.{n}g}" if isinstance(each, float) else printable(each) for each, n in cells))
    say.print(table)


def print_bytes(data: bytes) -> None:
    """To standard output at once, so that a pipe that is closed shows here."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED a part may be written
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def print_json(document: object) -> None:
    print_bytes(json.dumps(_plain(document), indent=2, allow_nan=False).encode() + b"\n")


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
