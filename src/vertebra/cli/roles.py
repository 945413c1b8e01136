"""What the columns of a table are for: inputs, target and weights; numbers or classes."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from vertebra.cli.tablefile import Refused, listed, quoted
from vertebra.tables.column import FEATURE_TYPES, as_read, check_range, kind_of, target_fault
from vertebra.tables.counting import is_count_like
from vertebra.tables.marked import marked
from vertebra.tables.nearest import nearest
from vertebra.tables.schema import opened, wanted_gaps
from vertebra.tables.values import MISSING_WORDS, Level, with_gaps
from vertebra.tables.written import text_of

# Whole numbers of at most so many values, on so many rows, may stand for classes.
FEW_VALUES, ROWS_FOR_HINT = 10, 100
# Text of more values is hardly a class.
MOST_CLASSES = 50


Gaps = list[str | float]  # values that stand for them


class Inputs(NamedTuple):
    """The columns to learn from, the kinds that were asked for, or seen in text, what stands for gaps, and the numbers
    of the rows as they stand in the table, from 1.
    """

    frame: pd.DataFrame
    kinds: dict[str, str]
    missing: Gaps | dict[str, Gaps]
    rows: Int[np.ndarray, " n"]


class Target(NamedTuple):
    """What to predict, of the rows that have it."""

    names: list[str]
    values: np.ndarray  # (n,) or (n, targets)
    is_class: bool
    reason: str
    hint: str
    n_left_out: int


class About(NamedTuple):
    """What is known of each row beside its values: its weight, its group, and when it was."""

    weight: Float[np.ndarray, " n"] | None = None
    groups: pd.Series | None = None
    time: pd.Series | None = None

    def at(self, rows: Int[np.ndarray, " rows"] | slice) -> "About":
        """That of some rows."""
        weight, *others = self
        own = (None if each is None else each.iloc[rows] for each in others)
        return About(None if weight is None else weight[rows], *own)


def choose(
    frame: pd.DataFrame,
    table: str,
    targets: list[str],
    drop: list[str],
    weight: str | None,
    kinds: list[str],
    task: str,
    *,
    missing: Sequence[str] = (),
    is_sample: bool = False,
    groups: str | None = None,
    time: str | None = None,
) -> tuple[Inputs, Target, About]:
    """Inputs, target and what else is known, of the rows that have a target.

    The frame's rows are numbered from 0, and an error names the row, unless the frame is a sample of the table.
    """
    columns = list(frame.columns)
    asked = _kinds(kinds)
    drop = listed(drop, columns)
    targets = listed(targets, columns)
    weights = [] if weight is None else [weight]
    beside = {"--groups": groups, "--time": time}
    belonging = [(option, [name]) for option, name in beside.items() if name is not None]
    named = (("--target", targets), ("--drop", drop), ("--weight", weights), ("--type", list(asked)), *belonging)
    for option, names in named:
        for name in names:
            if name not in columns:
                raise Refused(f"{option} {name!r} is not a column of {table}{nearest(name, columns)}")
    roles = Counter([*dict.fromkeys(targets), *weights, *dict.fromkeys(drop), *(each for _, (each,) in belonging)])
    if clash := [name for name, count in roles.items() if count > 1]:
        raise Refused(
            f"{clash[0]!r} is asked for twice: a column is a target, a weight, groups, time, dropped, or an input."
        )
    for option, names in (("--target", targets), ("--weight", weights)):
        for name in names:
            _check_single(frame.attrs.get("repeated", {}).get(name, []), roles, option, name, table)
    where = "" if is_sample else f" of {'standard input' if table == '-' else table}"
    own = [name for name in columns if name not in roles]
    gaps, no_answers = _gaps(missing, table, frame, own, targets, is_sample=is_sample)
    frame = frame.assign(**{name: as_read(cast(pd.Series, frame[name]), name) for name in [*targets, *weights]})
    frame = frame.assign(
        **{name: with_gaps(cast(pd.Series, frame[name]), name, own, is_number=True) for name, own in no_answers.items()}
    )
    if weight is not None:
        frame = frame.loc[_weights(cast(pd.Series, frame[weight]), weight, where) > 0.0]
    y, kept = target_of(frame, list(dict.fromkeys(targets)), task, where)
    for name in columns:
        if name not in roles and asked.get(name, "number") == "number":
            _check_input(cast(pd.Series, frame[name]), name, where)
    x = frame.loc[kept, [name for name in columns if name not in roles]].reset_index(drop=True)
    if not x.shape[1]:
        raise Refused(f"{table} has no column left to learn from.")
    own = wanted_gaps(gaps, tuple(x.columns)) if is_sample else []
    seen = {name: _seen(x[name], each) for name, each in zip(x.columns, own, strict=False)}
    wanted = {name: kind for name, kind in (seen | asked).items() if name in x.columns and kind is not None}
    known = (None if name is None else frame.loc[kept, name].reset_index(drop=True) for name in (groups, time))
    about = About(None if weight is None else frame.loc[kept, weight].to_numpy(dtype=float), *known)
    return Inputs(x, wanted, gaps, 1 + frame.index[kept].to_numpy(dtype=int)), y, about


def _kinds(given: list[str]) -> dict[str, str]:
    """What --type asks for."""
    asked: dict[str, str] = {}
    for each in given:
        column, equals, kind = each.rpartition("=")
        if not equals:
            raise Refused(f"--type must be COLUMN=KIND, got {each!r}.")
        if kind not in FEATURE_TYPES:
            raise Refused(f"--type {column}={kind}: {kind!r} is not a kind{nearest(kind, FEATURE_TYPES)}")
        asked[column] = kind
    return asked


def _gaps(
    missing: Sequence[str], table: str, frame: pd.DataFrame, inputs: list[str], targets: list[str], *, is_sample: bool
) -> tuple[Gaps | dict[str, Gaps], dict[str, Gaps]]:
    """What --missing asks for: values for all inputs, or where some are for one alone, for each; and of targets."""
    everywhere: Gaps = []
    named: dict[str, Gaps] = {}
    for each in missing:
        column, equals, value = each.rpartition("=")
        if equals and column not in frame.columns:
            raise Refused(f"--missing {column!r} is not a column of {table}{nearest(column, list(frame.columns))}")
        if equals and column not in (*inputs, *targets):
            raise Refused(f"--missing {each}: {column!r} is no input and no target, whose values may stand for gaps.")
        asked = _values(value, frame.loc[:, [column] if equals else inputs])
        (named.setdefault(column, []) if equals else everywhere).extend(asked)
    no_answers = {name: own for name, own in named.items() if name in targets}
    if is_sample and no_answers:
        raise Refused("--missing of a target is for tables that are read at once: leave its rows out before.")
    if len(no_answers) == len(named):
        return everywhere, no_answers
    return {name: [*everywhere, *named.get(name, [])] for name in inputs}, no_answers


def _values(given: str, frame: pd.DataFrame) -> Gaps:
    """A value, or numbers with commas between them, unless a column has decimal commas."""
    found = [_number_or_text(each.strip()) for each in given.split(",")]
    if len(found) == 1 or any(isinstance(each, str) for each in found):
        return [_number_or_text(given)]
    has_decimal_commas = any(
        is_text(values) and text_of(values, str(name)).decimal == "," for name, values in frame.items()
    )
    return [float(given.replace(",", "."))] if has_decimal_commas and len(found) == 2 else found


def _number_or_text(value: str) -> str | float:
    try:
        number = float(value)
    except ValueError:
        return value
    return number if np.isfinite(number) else value


def _seen(values: pd.Series, gaps: tuple[Level, ...]) -> str | None:
    """The kind of a column of text in files read some rows at a time, where text is levels unless it is said."""
    text = with_gaps(values, str(values.name), gaps).dropna()
    if not len(text) or not isinstance(text.iloc[0], str):
        return None
    found = text_of(text, str(values.name))
    if found.decimal != "." or found.order:  # what a sample shows other rows may not
        return None
    kind = kind_of(text, str(values.name), False)
    return kind if kind in ("number", "datetime") else None


def _check_single(others: list[str], roles: Counter, option: str, name: str, table: str) -> None:
    """Which of two columns of a name is the target nobody knows; the other one as an input would tell its values."""
    if any(other not in roles for other in others):
        listed = ", ".join(map(repr, [name, *others]))
        raise Refused(
            f"{option} {name!r} names {1 + len(others)} columns of {table}, read as {listed}: drop all but one "
            f"(--drop {quoted(others[0])}), or rename them."
        )


def _row(place: int | np.integer, where: str) -> str:
    """A row as people count them; `where` is " of TABLE", or nothing where the number says nothing."""
    return f"row {place + 1}{where}"


def _check_finite(values: pd.Series, what: str, where: str) -> None:
    """Refuses infinite numbers, by the row of the first."""
    if pd.api.types.is_object_dtype(values):  # whole numbers of hundreds of digits among others
        infinite = np.array([isinstance(each, int) and abs(each) > sys.float_info.max for each in values])
    elif pd.api.types.is_float_dtype(values):
        infinite = np.isinf(values.to_numpy(dtype=float, na_value=np.nan))
    else:
        return
    if n := int(infinite.sum()):
        first = _row(values.index[int(infinite.argmax())], where)
        many = f"{n} infinite value{'s' if n > 1 else ''}, the first in {first}" if where else "infinite values"
        raise Refused(f"{what} has {many}: correct, or leave empty, what is beyond 1.8e308.")


def _check_input(values: pd.Series, name: str, where: str) -> None:
    _check_finite(values, f"the column {name!r}", where)
    if where and pd.api.types.is_float_dtype(values) and values.notna().any():
        try:
            check_range(name, float(values.min()), float(values.max()))
        except ValueError as error:
            words = str(error)
            raise Refused(words[0].lower() + words[1:]) from None


def _weights(values: pd.Series, name: str, where: str) -> Float[np.ndarray, " n"]:
    wanted = f"--weight {name!r} must hold finite numbers of at least 0, without gaps"
    if not pd.api.types.is_numeric_dtype(values):
        raise Refused(f"{wanted}, got {_sample(values)}.")
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    bad = ~(np.isfinite(numbers) & (numbers >= 0.0))
    if bad.any():
        place = int(bad.argmax())
        got = "none" if np.isnan(numbers[place]) else str(numbers[place])
        raise Refused(f"{wanted}; {_row(values.index[place], where)} has {got}." if where else f"{wanted}, got {got}.")
    if not (values > 0).any():
        raise Refused(f"--weight {name!r} is 0 in every row.")
    return values.to_numpy(dtype=float)


def target_of(
    frame: pd.DataFrame, names: list[str], task: str, where: str = ""
) -> tuple[Target, Bool[np.ndarray, " n"]]:
    """The target, and which rows have it; `where` is " of TABLE" if the frame's index numbers the table's rows."""
    columns = frame.loc[:, names]
    kept = (columns.notna() & ~columns.isin(MISSING_WORDS)).all(axis=1).to_numpy()
    if not kept.any():
        raise Refused(f"the target {' and '.join(map(repr, names))} has no value in any row.")
    columns = columns.loc[kept]
    for name in names:
        _check_finite(columns[name], f"the target {name!r}", where)
    # text that is numbers, dates or truth values has been read as such: what is left is levels
    kinds = {name: kind_of(opened(columns[[name]]).columns[0], name, False, reads_text=False) for name in names}
    for name, kind in kinds.items():
        if kind == "datetime":
            raise Refused(f"the target {name!r} holds dates: make it a number first, such as days since a date.")
        if columns[name].nunique() < 2:
            raise Refused(f"the target {name!r} has one value only, {_sample(columns[name])}: nothing can be learned.")
    is_class, reason = _task(columns, list(kinds.values()), task)
    if is_class:
        return Target(names, _labels(columns.iloc[:, 0]), True, reason, "", int((~kept).sum())), kept
    for name, kind in kinds.items():
        if kind not in ("number", "boolean"):
            raise Refused(f"the target {name!r} must hold numbers for regression, got {_sample(columns[name])}.")
    values, hint = columns.to_numpy(dtype=float), ""
    for name, own in zip(names, values.T, strict=True):
        if (fault := target_fault(own)) is not None:
            place, found, advice = fault
            at = "" if place is None or not where else f", in {_row(columns.index[place], where)}"
            raise Refused(f"the target {name!r} {found}{at}{advice}")
    for name, own in zip(names, values.T, strict=True):
        n_values, codes = columns[name].nunique(), marked(own)
        if codes:
            shown = ",".join(f"{code:.0f}" for code in codes[0].values)
            hint = (
                f"{name} is {codes[0].words} in {codes[0].n_rows:,} rows, far from all others. If that is no answer, "
                f"leave these rows out: --missing {quoted(f'{name}={shown}')}"
            )
        elif task == "auto" and n_values <= FEW_VALUES and len(own) >= ROWS_FOR_HINT and (own == own.round()).all():
            hint = f"{name} has {n_values} whole values only: if they are classes, ask for --task classification."
        elif is_count_like(own):
            hint = f"{name} are whole numbers from {own.min():.0f} on. If they count something: --likelihood counts"
    values = values if len(names) > 1 else values[:, 0]
    return Target(names, values, False, reason, hint, int((~kept).sum())), kept


def _task(columns: pd.DataFrame, kinds: list[str], task: str) -> tuple[bool, str]:
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
        return (True, "two values") if n_values == 2 < len(first) else (False, "numbers")
    if n_values > MOST_CLASSES:
        odd = text_of(first, str(first.name), limits=False).odd
        found = f"numbers, but for {odd!r}" if odd else f"text of {n_values} values, {_sample(first)} among them"
        raise Refused(f"the target {first.name!r} is {found}: make it numbers, or ask for --task classification.")
    return True, {"boolean": "booleans", "category": "text"}.get(kinds[0], "categories")


def _labels(column: pd.Series) -> np.ndarray:
    """Classes as text, or as the numbers or booleans they are."""
    values = column.tolist()
    if all(isinstance(each, bool) for each in values):
        return np.array(values, dtype=bool)
    if any(isinstance(each, str | bool) or not isinstance(each, int | float) for each in values):
        return np.array([str(each) for each in values])
    numbers = np.array(values, dtype=float)
    if (numbers != numbers.round()).any():  # of which scikit-learn makes no classes
        return np.array([str(each) for each in numbers.tolist()])
    # a gap elsewhere in the column makes floats of whole numbers
    return numbers.astype(int) if np.abs(numbers).max() < 2**53 else numbers


def _sample(column: pd.Series) -> str:
    text = [each for each in column if isinstance(each, str)]
    return repr((text or column.tolist())[0])[:60]


def is_text(values: pd.Series) -> bool:
    """Whether there is text among the values."""
    return bool(values.map(lambda each: isinstance(each, str)).any())
