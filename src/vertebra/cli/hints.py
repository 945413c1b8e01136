"""What a table was read as, in sentences, and what its columns may be meant as instead."""

import re
from collections import Counter

import numpy as np
import pandas as pd

from vertebra.cli.roles import FEW_VALUES, ROWS_FOR_HINT, Inputs, Target, is_text
from vertebra.cli.tablefile import quoted
from vertebra.tables.belonging import instants_of
from vertebra.tables.schema import learn
from vertebra.tables.written import text_of

OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
# Numbers with letters behind them, 64.1 °C; names and codes begin otherwise.
NUMBER_AND_UNIT = r"^([-+−]?\d+(?:[.,]\d+)*)\s*([^\W\d_]{0,5}|[°µ%/²³\w]{1,6})$"
# What a time is away from UTC.
OFFSET = r":\d{2}(?:\.\d+)?\s*([+-]\d{2}(?::?\d{2})?)$"
# What weights of rows are called.
WEIGHT = r"(?:^|[^a-z])(?:weights?|wgt|wts?)(?:$|[^a-z])"
# So many words in half of the values, and so many values for the rows: text that people wrote, and no names of levels.
WORDS_OF_TEXT, SHARE_OF_TEXT = 3, 0.3


def described(table: str, n_rows: int, x: Inputs, y: Target, *, is_timed: bool = False) -> list[str]:
    """What was read, in sentences; whether it is known when rows were."""
    kinds: dict[str, str] = {}
    for column in learn(x.frame, None, x.kinds or None, x.missing or None).columns:
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
    lines.append(f"Target {', '.join(y.names)}: {task} ({y.reason}){_shares(y)}.")
    if y.hint:
        lines.append(f"Hint: {y.hint}")
    written = {name: text_of(pd.Series(x.frame[name]), name) for name, kind in kinds.items() if kind == "number"}
    if text := [name for name in written if is_text(pd.Series(x.frame[name]))]:
        commas = [name for name in text if written[name].decimal == ","]
        marks = f"; decimal commas in {', '.join(commas)}" if commas else ""
        lines.append(f"Text read as numbers: {', '.join(text)}{marks}.")
    for name in x.frame.columns:
        values = pd.Series(x.frame[name].dropna())
        if re.fullmatch(r"Unnamed: \d+", name):
            lines.append(f"Hint: a column has no name. If it numbers the rows, leave it out: --drop {quoted(name)}")
        elif values.nunique() < 2:
            said = f"has one value only, {values.iloc[0]!r}" if len(values) else "is empty"
            lines.append(f"Hint: {name} {said}, and says nothing.")
        elif kinds[name] == "category":
            lines += _hint_of_text(name, values.astype(str))
        elif _numbers_rows(values):
            lines.append(f"Hint: {name} numbers the rows, it seems. Then leave it out: --drop {quoted(name)}")
        elif kinds[name] == "date":
            lines += _hint_of_dates(name, values, is_timed=is_timed)
        elif _may_weigh(name, values):
            lines.append(f"Hint: {name} is an input. If it is how much each row counts: --weight {quoted(name)}")
    return lines


def _shares(y: Target) -> str:
    """How many rows have the class that effects speak for, of two; of more, how many classes there are."""
    if not y.is_class:
        return ""
    classes, counts = np.unique(y.values, return_counts=True)
    if len(classes) > 2:
        return f", {len(classes)} classes"
    return f", {classes[-1]} in {counts[-1] / counts.sum():.1%} of the rows; effects are log odds of {classes[-1]}"


def _hint_of_dates(name: str, values: pd.Series, *, is_timed: bool) -> list[str]:
    lines = []
    found = values.astype(str).str.extract(OFFSET)[0].dropna().tolist() if is_text(values) else []
    if offsets := [each for each in found if each.strip("+-:0")]:
        lines.append(
            f"Hint: {name} has offsets from UTC, {offsets[0]} among them, and is read as UTC: its hours and "
            "weekdays are those of UTC. Without the offsets they are those of the clock."
        )
    if not is_timed and _is_in_order(values):
        lines.append(
            f"Hint: rows stand in the order of {name}, and some are held out at random. --time {quoted(name)} "
            "holds out the last ones instead; it is no input then."
        )
    return lines


def _may_weigh(name: str, values: pd.Series) -> bool:
    """Whether a column that is called a weight is one of rows: above 0, not whole, and 1 or so on average."""
    if not re.search(WEIGHT, name, re.IGNORECASE) or not pd.api.types.is_float_dtype(values):
        return False
    return bool((values > 0.0).all() and (values != values.round()).any() and 0.5 < values.mean() < 2.0)


def _is_in_order(values: pd.Series) -> bool:
    """Whether dates never fall, so that rows follow each other in time."""
    return len(values) >= ROWS_FOR_HINT and bool((np.diff(instants_of(values, len(values))) >= 0.0).all())


def _numbers_rows(values: pd.Series) -> bool:
    """Whether whole numbers count the rows up, one by one."""
    if len(values) < ROWS_FOR_HINT or not pd.api.types.is_integer_dtype(values):
        return False
    return bool((values.diff().dropna() == 1).all())


def _hint_of_text(name: str, values: pd.Series) -> list[str]:
    """What text may be that was read as levels."""
    if len(values) < ROWS_FOR_HINT:
        return []
    if values.str.fullmatch(OTHER_DATE).mean() > 0.9:
        return [
            f"Hint: {name} looks like dates, {values.iloc[0]!r}: write them as 2024-05-31, and they are read as such."
        ]
    parts = values.str.strip().str.extract(NUMBER_AND_UNIT)
    unit = parts[1].mode()
    if len(unit) and unit[0] and values.nunique() > FEW_VALUES and (parts[1] == unit[0]).mean() > 0.9:
        sample = values.to_numpy()[(parts[1] == unit[0]).to_numpy()][0]
        others = values.to_numpy()[parts[1].isna().to_numpy()].tolist()
        gap = f"; {others[0]!r} is a gap by --missing {quoted(f'{name}={others[0]}')}" if others else ""
        without = f"leave {unit[0]!r} out, and they are numbers"
        return [f"Hint: {name} looks like numbers, {sample!r}, and is read as levels: {without}{gap}."]
    words = values.str.count(r"\S+")
    if values.nunique() > SHARE_OF_TEXT * len(values) and words.median() >= WORDS_OF_TEXT:
        many = f"{values.nunique():,} texts in {len(values):,} rows"
        return [
            f"Hint: {name} seems to be free text, {many}, each of which is a level. Leave it out, or make columns of "
            f"what it says: --drop {quoted(name)}"
        ]
    if values.nunique() > 0.9 * len(values):
        return [f"Hint: {name} differs in nearly every row. If it names the rows, leave it out: --drop {quoted(name)}"]
    return []
