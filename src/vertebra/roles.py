"""What the columns of a table are for: inputs, target and weights; numbers or classes."""

import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vertebra.column import FEATURE_TYPES, MISSING_WORDS
from vertebra.table import learn
from vertebra.tablefile import Refused, nearest

# Whole numbers of at most so many values, on so many rows, may stand for classes.
FEW_VALUES, ROWS_FOR_HINT = 10, 100
# Text of more values is hardly a class.
MOST_CLASSES = 50
OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"


class Inputs(NamedTuple):
    """The columns to learn from, and the kinds that were asked for, or seen in text."""

    frame: pd.DataFrame
    kinds: dict[str, str]


class Target(NamedTuple):
    """What to predict, of the rows that have it."""

    names: list[str]
    values: Any  # (n,) or (n, targets)
    is_class: bool
    reason: str
    hint: str
    n_left_out: int


def choose(
    frame: pd.DataFrame,
    table: str,
    targets: list[str],
    drop: list[str],
    weight: str | None,
    kinds: list[str],
    task: str,
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
                raise Refused(f"{option} {name!r} is not a column of {table}{nearest(name, columns)}")
    for column, kind in asked.items():
        if kind not in FEATURE_TYPES:
            raise Refused(f"--type {column}={kind}: {kind!r} is not a kind{nearest(kind, FEATURE_TYPES)}")
    roles = Counter([*dict.fromkeys(targets), *weights, *dict.fromkeys(drop)])
    if clash := [name for name, count in roles.items() if count > 1]:
        raise Refused(f"{clash[0]!r} is asked for twice: a column is a target, a weight, dropped, or an input.")
    if weight is not None:
        frame = frame.loc[_weights(frame[weight], weight) > 0.0].reset_index(drop=True)
    y, kept = target_of(frame, list(dict.fromkeys(targets)), task)
    x = frame.loc[kept, [name for name in columns if name not in roles]].reset_index(drop=True)
    if not x.shape[1]:
        raise Refused(f"{table} has no column left to learn from.")
    dates = {name: "datetime" for name in x.columns if name not in asked and _is_date(x[name])}
    wanted = {name: kind for name, kind in (dates | asked).items() if name in x.columns}
    return Inputs(x, wanted), y, None if weight is None else frame.loc[kept, weight].to_numpy(dtype=float)


def _is_date(values: Any) -> bool:
    """Whether text is dates of ISO 8601 throughout."""
    text = values.dropna()
    if not len(text) or not isinstance(text.iloc[0], str):
        return False
    return all(isinstance(each, str) and re.fullmatch(ISO_DATE, each) for each in text.unique())


def _weights(values: Any, name: str) -> Any:
    if not pd.api.types.is_numeric_dtype(values) or values.isna().any() or not (values >= 0).all():
        raise Refused(f"--weight {name!r} must hold numbers of at least 0, without gaps.")
    if not (values > 0).any():
        raise Refused(f"--weight {name!r} is 0 in every row.")
    return values.to_numpy(dtype=float)


def target_of(frame: pd.DataFrame, names: list[str], task: str) -> tuple[Target, Any]:
    """The target, and which rows have it."""
    columns: Any = frame[names]
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
        return (True, "two values") if n_values == 2 else (False, "numbers")
    if n_values > MOST_CLASSES:
        raise Refused(
            f"the target {first.name!r} is text of {n_values} values, {_sample(first)} among them: make it numbers, or "
            "ask for --task classification."
        )
    return True, {"boolean": "booleans", "category": "text"}.get(kinds[0], "categories")


def _labels(column: Any) -> Any:
    """Classes as text, or as the numbers or booleans they are."""
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


def described(table: str, n_rows: int, x: Inputs, y: Target) -> list[str]:
    """What was read, in sentences."""
    kinds: dict[str, str] = {}
    for column in learn(x.frame, None, x.kinds or None).columns:
        kinds[column.source] = "date" if column.part is not None else column.kind
    plural = {"category": "categories", "ordered": "ordered categories"}
    counted = [
        f"{count} {kind if count == 1 else plural.get(kind, kind + 's')}"
        for kind, count in Counter(kinds.values()).most_common()
    ]
    source = "standard input" if table == "-" else table
    inputs = f"{len(kinds)} input{'s' if len(kinds) > 1 else ''}"
    lines = [f"Read {source}: {n_rows:,} rows, {inputs} ({', '.join(counted)})."]
    if y.n_left_out:
        lines.append(f"Left out {y.n_left_out:,} rows without a target.")
    task = "classification" if y.is_class else "regression"
    lines.append(f"Target {', '.join(y.names)}: {task} ({y.reason}).")
    if y.hint:
        lines.append(f"Hint: {y.hint}")
    for name in x.frame.columns:
        if re.fullmatch(r"Unnamed: \d+", name):
            lines.append(f"Hint: a column has no name. If it numbers the rows, leave it out: --drop '{name}'")
        elif kinds[name] == "category":
            lines += _hint_of_text(name, x.frame[name].dropna().astype(str))
    return lines


def _hint_of_text(name: str, values: pd.Series) -> list[str]:
    """What text may be that was read as levels."""
    if len(values) < ROWS_FOR_HINT:
        return []
    if values.str.fullmatch(OTHER_DATE).mean() > 0.9:
        return [
            f"Hint: {name} looks like dates, {values.iloc[0]!r}: write them as 2024-05-31, and they are read as such."
        ]
    if values.nunique() > 0.9 * len(values):
        return [f"Hint: {name} differs in nearly every row. If it names the rows, leave it out: --drop '{name}'"]
    return []
