"""What people see, and programs read, of the command line: lines, tables and JSON."""

import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from vertebra.cli.tablefile import Frame, in_flags
from vertebra.effects.words import lines, probability_words
from vertebra.terms.term import term_label

if TYPE_CHECKING:
    from vertebra.estimators.estimator import Estimator
    from vertebra.estimators.explanations import Explanations as Explanations
    from vertebra.models.evaluation import Evaluation
else:
    Estimator = Explanations = Evaluation = object  # they take seconds to import

N_SHOWN = 15
# An error larger than stated by this share, and by so many standard errors, is worth a word; between two models so many
# standard errors are a clear difference. Round numbers.
FALLEN, PLAINLY, CLEARLY = 0.2, 4.0, 2.0
# Columns of a file: nothing is cut where nobody looks.
WIDTH = 200


class Gain(NamedTuple):
    """By how much one model predicts rows better than another: the mean difference of log densities, and its error."""

    mean: float
    sd: float


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
    typer.echo("vertebra: " + printable(" ".join(in_flags(words).split())), err=True)


def complain_of(lines: Sequence[str]) -> None:
    """Several complaints."""
    for line in lines:
        complain(line)


def warner() -> Callable[..., None]:
    """What stands in the place of `warnings.showwarning`: each warning once, however often rows are looked at."""
    said: set[str] = set()

    def show(message: object, *where: object) -> None:
        if (words := str(message)) not in said:
            said.add(words)
            complain(f"warning: {words}")

    return show


def say_effects(
    say: Console,
    found: Frame,
    *,
    level: float = 0.95,
    most: int = N_SHOWN,
    exact: Callable[[Sequence[str]], float] | None = None,
    kind: str = "effect",
) -> None:
    """Effects, strongest first; a table for each output."""
    if not len(found):
        say.print(f"No {kind} was found.")
        return
    groups = list(found.groupby("output", sort=False)) if "output" in found else [("", found)]
    for i, (name, own) in enumerate(groups):
        headers = ["term", "strength", f"{100 * level:g} % interval", "share", "probability"]
        table = plain_table(*headers, *(["exact"] if exact else []))
        shown = lines(own)
        for line in shown[:most]:
            cells = [
                printable(line.label),
                f"{line.strength:.4g}",
                f"{line.lower:.4g} – {line.upper:.4g}",
                f"{round(line.share, 3) + 0.0:.1%}",  # what rounds to nothing has no sign
                probability_words(line.probability),
            ]
            table.add_row(*cells, *([f"{exact(line.term):.4g}"] if exact else []))
        if i:
            say.print()
        say.print(f"Effects on {printable(name)}:" if name else "Effects:", style="bold", soft_wrap=True)
        say.print(table)
        if len(shown) > most:
            say.print(f"and {len(shown) - most} more")


def say_totals(say: Console, found: Frame, level: float) -> None:
    """Shares of what varies that inputs have a part in, largest first."""
    if not len(found):
        say.print("No effect was found.")
        return
    table = plain_table("input", "by itself", "in all", f"{100 * level:g} % interval")
    for name, main, total, lower, upper in zip(
        *(found[column] for column in ("input", "main", "total", "lower", "upper")), strict=True
    ):
        table.add_row(printable(name), f"{main:.1%}", f"{total:.1%}", f"{lower:.1%} – {upper:.1%}")
    say.print("What inputs have a part in, as shares of what varies:", style="bold", soft_wrap=True)
    say.print(table)


def say_explanation(say: Console, head: str, parts: Frame, level: float, unit: str) -> None:
    """One prediction taken apart."""
    say.print(printable(head), style="bold", soft_wrap=True)
    table = plain_table("term", "value", "adds", f"{100 * level:g} % interval", n_texts=2)
    columns = (parts[name] for name in ("term", "value", "mean", "lower", "upper"))
    for term, value, mean, lower, upper in zip(*columns, strict=True):
        named = shown_term(term) if len(term) else "(intercept)"
        sign = f"{mean:.4g}" if not len(term) else f"{mean:+.4g}"
        table.add_row(named, printable(value), sign, f"{lower:.4g} – {upper:.4g}")
    say.print(table)
    say.print(f"sum {sum(parts['mean']):.4g}, {printable(unit)}", soft_wrap=True)
    say.print()


def say_evaluation(say: Console, model: Estimator, seen: Evaluation) -> None:
    """Scores of a model on rows that should be new, and what was stated at its fit."""
    from vertebra.models.scores import Method

    rows = dict(seen.scores)
    if model.evaluation_ is not None:
        rows["at fit"] = model.evaluation_.scores["model"]
    say.print(f"Accuracy on {seen.n:,} rows ({seen.method.words}):", style="bold", soft_wrap=True)
    _say_scores(say, rows, model.target_names_)
    if model.evaluation_ is not None:
        say_lines(say, _fallen(seen, model.evaluation_))
    if seen.method is Method.SEEN:
        say_lines(say, ["These seem to be the rows that were fitted: new ones will be predicted less well."])


def _fallen(seen: Evaluation, before: Evaluation) -> list[str]:
    """A word where new rows are predicted clearly worse than was stated."""
    now, stated = seen.scores["model"], before.scores["model"]
    error = math.sqrt(0.5 / max(seen.n, 1) + 0.5 / max(before.n, 1))  # of the ratio of two roots of mean squares
    for key in now:
        limit = (1.0 + max(FALLEN, PLAINLY * error)) * stated.get(key, math.inf)
        if key.split(" ")[0] in ("rmse", "log_loss") and now[key] > limit:
            return [
                f"These rows are predicted {now[key] / stated[key] - 1.0:.0%} worse than was stated at the fit: do "
                "they come from another time or place? Rows held out at random do not show that."
            ]
    return []


def say_comparison(
    say: Console,
    names: Sequence[str],
    seen: Sequence[Evaluation],
    gain: Gain,
    targets: Sequence[str],
    may_know: Sequence[str],
) -> None:
    """Two models beside each other, with a word where one may have been fitted to the rows."""
    say.print(f"Accuracy on {seen[0].n:,} rows:", style="bold")
    rows = {name: each.scores["model"] for name, each in zip(names, seen, strict=True)}
    _say_scores(say, rows, targets)
    better = "no clear difference" if abs(gain.mean) <= CLEARLY * gain.sd else f"{names[gain.mean > 0.0]} is better"
    say.print(
        f"{printable(better)}: the log density of a row changes by {gain.mean:+.4g} on average, with standard error "
        f"{gain.sd:.2g}.",
        soft_wrap=True,
    )
    if may_know:
        who = " and ".join(map(printable, may_know))
        say_lines(say, [f"{who} may have been fitted to these very rows: no fair comparison then."])


def _say_scores(say: Console, rows: dict[str, dict[str, float]], targets: Sequence[str]) -> None:
    from vertebra.models.scores import ScoreName

    keys = list(dict.fromkeys(name for own in rows.values() for name in own))
    table = plain_table("", *(printable(ScoreName.read(key).words(targets)) for key in keys))
    for who, own in rows.items():
        values = [own.get(name, math.nan) for name in keys]
        shown = [
            f"{round(v, 4) + 0.0:.4f}" if ScoreName.read(n).score == "r2" else f"{v:.4g}"
            for n, v in zip(keys, values, strict=True)
        ]
        table.add_row(printable(who), *("" if text == "nan" else text for text in shown))
    say.print(table)


def say_severe(say: Console, model: Estimator) -> None:
    """What speaks against relying on a fit, before anything else of it."""
    if severe := model.diagnostics_.severe:
        say_lines(say, map(in_flags, [model.diagnostics_.verdict, *(f" !! {each}" for each in severe), ""]))


def say_fit(say: Console, model: Estimator, *, is_severe_said: bool = False) -> None:
    """Accuracy, and what to think of the fit; of what is severe the verdict alone, where the rest was said before."""
    if model.evaluation_ is not None:
        evaluation = model.evaluation_
        words = f"\nAccuracy on {evaluation.n:,} rows ({evaluation.method.words}):"
        say.print(words, style="bold", soft_wrap=True)
        _say_scores(say, evaluation.scores, model.target_names_)
    say.print()
    lines = str(model.diagnostics_).split("\n")
    say_lines(say, (in_flags(line) for line in lines if not (is_severe_said and line.startswith(" !!"))))


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


def say_frame(say: Console, frame: Frame, head: str) -> None:
    """A table of numbers and levels, whole."""
    say.print(printable(head), style="bold", soft_wrap=True)
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
