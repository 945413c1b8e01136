"""Text as people write it: numbers with marks, signs and units, dates, truth values, and words for gaps.

The command line and Python read text by this rule alone.
"""

import json
import math
import numbers
import re
import warnings
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd

from vertebra.tables.values import (
    CLOCK,
    DOTTED_DATE,
    SLASHED_DATE,
    factor,
    is_missing_word,
    number_in,
    order_of,
    types_of,
)

# Words that stand for a gap where all else in a column is numbers; among levels they are levels.
WORDS_AMONG_NUMBERS = frozenset(
    {
        "-",
        "--",
        ".",
        "...",
        "n.d.",
        "na",
        "none",
        "nil",
        "unknown",
        "missing",
        "not available",
        "tbd",
        "#ref!",
        "#value!",
    }
)
# Currencies by sign or by code; others are words.
UNITS = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF", "JPY", "US$")
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
# Spaces and apostrophes between groups of three digits are read whatever the decimal mark is.
_GAPS = "\u00a0\u202f '’"
_MARKED = {
    mark: re.compile(
        rf"(?:\d+|\d{{1,3}}(?:[{_GAPS}]\d{{3}})+|\d{{1,3}}(?:{re.escape(other)}\d{{3}})+)?"
        rf"(?:{re.escape(mark)}\d*)?(?:[eE][+-]?\d+)?"
    )
    for mark, other in ((".", ","), (",", "."))
}
# A number that begins with a zero names something: a postcode, an account.
NAME = re.compile(r"0\d+")
TRUTH = frozenset({"True", "False", "true", "false", "TRUE", "FALSE"})
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
POINTS = re.compile(DOTTED_DATE)
SLASHES = re.compile(SLASHED_DATE)
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
# 31 Dec 2024, Dec 31, 2024, 2024/12/31 and 2024-5-31 14:30 read one way.
WORDED = re.compile(
    rf"(?:(?:\d{{1,2}}[ -]{_MONTH}|{_MONTH} \d{{1,2}},?)[ -]\d{{4}}|\d{{4}}([/-])\d{{1,2}}\1\d{{1,2}}){CLOCK}"
)
# 2024-05, 2024/05, May 2024: a month, which is its first day.
MONTHS = re.compile(rf"(\d{{4}})[-/](0[1-9]|1[0-2])|{_MONTH}[ -]\d{{4}}")
# <0.5, ≥ 200: what a laboratory writes beyond what it can measure.
LIMIT = re.compile(r"[<>≤≥]=?\s*(?=[\d.,])")
# Text of more values than this, nine in ten of which are numbers, is worth a word.
MANY, MOSTLY = 20, 0.9


class Told(NamedTuple):
    """What a column of text is: its kind, its decimal mark, words that stand for gaps, what kept it from numbers,
    limits among numbers, and whether day or month comes first in dates with slashes.
    """

    kind: str  # "number", "datetime", "boolean" or "category"
    decimal: str = "."
    gaps: tuple[str, ...] = ()
    odd: str | None = None
    limits: tuple[str, ...] = ()
    order: str = ""
    is_open: bool = False  # dates, of which nothing says whether day or month comes first


def number_written(text: str, decimal: str = ".") -> float | None:
    """The number that a text writes with this decimal mark; NaN for a word that stands for a gap, None for another."""
    found = number_and_unit(LIMIT.sub("", text.strip(), count=1), decimal)
    if found is not None:
        return found[0]
    return math.nan if is_missing_word(text) or is_gap_among_numbers(text) else None


def is_gap_among_numbers(value: object) -> bool:
    """Whether a word stands for a gap where all else is numbers."""
    return isinstance(value, str) and value.strip().lower() in WORDS_AMONG_NUMBERS


def number_and_unit(text: str, decimal: str) -> tuple[float, str] | None:
    """A number and its unit: (1.234,50 €), 12 %, $1,000, (250), −3."""
    rest = text.strip().replace("−", "-")
    is_negative = rest.startswith("(") and rest.endswith(")")
    rest = rest[1:-1].strip() if is_negative else rest
    unit, sign = "", ""
    for _ in range(2):  # -$5 and $-5
        if rest[:1] in ("+", "-") and not sign:
            sign, rest = rest[0], rest[1:].strip()
        if not unit and (found := re.match(_UNIT, rest)):
            unit, rest = found.group(), rest[found.end() :].strip()
    if not unit and (found := re.search(rf"({_UNIT}|%)$", rest)):
        unit, rest = found.group(), rest[: found.start()].strip()
    if not any(map(str.isdigit, rest)) or _MARKED[decimal].fullmatch(rest) is None:
        return None
    other = "," if decimal == "." else "."
    plain = re.sub(f"[{_GAPS}{re.escape(other)}]", "", rest).replace(decimal, ".")
    number = number_in(plain)
    if number is None:
        return None
    return (-number if is_negative or sign == "-" else number), unit


def told(values: Iterable[object], decimal: str | None = None, *, limits: bool = True) -> Told:
    """What distinct values, text and perhaps numbers, are; `decimal` says what the mark is where it is known, `limits`
    whether <0.5 among numbers is 0.5.
    """
    texts = [value.strip() for value in values if isinstance(value, str) and not is_missing_word(value)]
    if not texts:
        return Told("category")
    if all(map(ISO_DATE.fullmatch, texts)):
        return Told("datetime" if _are_dates(texts) else "category")
    if all(map(POINTS.fullmatch, texts)):
        return Told("datetime" if _are_dates(texts, format="mixed", dayfirst=True) else "category")
    if all(map(SLASHES.fullmatch, texts)):
        order = order_of(texts)
        is_date = bool(order) and _are_dates(texts, format="mixed", dayfirst=order == "day")
        return Told("datetime", order=order) if is_date else Told("category", is_open=not order)
    if all(map(WORDED.fullmatch, texts)) or _are_months(texts):
        return Told("datetime" if _are_dates(texts, format="mixed") else "category")
    if set(texts) <= TRUTH:
        return Told("boolean")
    if any(map(NAME.fullmatch, texts)):
        return Told("category")
    gaps = tuple(text for text in texts if is_gap_among_numbers(text))
    written = [text for text in texts if not is_gap_among_numbers(text)]
    beyond = [text for text in written if limits and LIMIT.match(text)]
    # a few limits among numbers; bands such as <5 and ≥5 are levels
    beyond = beyond if 4 * len(beyond) <= len(written) else []
    written = [text for text in written if text not in set(beyond)]
    bare = [LIMIT.sub("", text, count=1) for text in beyond]
    best: list[str] = written
    for mark in (".", ",") if decimal is None else (decimal,):
        read = [number_and_unit(text, mark) for text in [*written, *bare]]
        if written and None not in read and _is_one_unit([unit for _, unit in filter(None, read)]):
            return Told("number", mark, gaps, limits=tuple(beyond))
        left = [text for text, number in zip([*written, *beyond], read, strict=True) if number is None]
        best = left if len(left) < len(best) else best
    is_odd = len(written) > MANY and 0 < len(best) <= (1.0 - MOSTLY) * len(written)
    return Told("category", odd=best[0] if is_odd else None)


def _is_one_unit(units: Sequence[str]) -> bool:
    """Whether these are amounts of one thing: all per cent, or none; of one currency, here and there left out."""
    return len(set(units) - {""}) <= 1 and ("%" not in units or "" not in units)


def _are_months(texts: Sequence[str]) -> bool:
    """Whether all are months; 2010-11 and its like alone are seasons, from one year to the next."""
    found = [match for match in map(MONTHS.fullmatch, texts) if match]
    seasons = [int(match[2]) == (int(match[1]) + 1) % 100 for match in found if match[1]]
    return len(found) == len(texts) and not (seasons and all(seasons))


def _are_dates(texts: Sequence[str], **how: Any) -> bool:
    how = {"format": "ISO8601"} | how
    return bool(pd.to_datetime(pd.Series(texts), utc=True, errors="coerce", **how).notna().all())


def text_of(series: pd.Series, source: str, decimal: str | None = None, *, limits: bool = True) -> Told:
    """What a column of text is, or one of text and numbers; of any other, a category. `limits` as in `told`."""
    if isinstance(series.dtype, pd.CategoricalDtype) or str not in (types := types_of(series)):
        return Told("category")
    found = told(factor(series, source)[1], decimal, limits=limits)
    if all(issubclass(t, str) for t in types):
        return found
    are_numbers = all(issubclass(t, (str, numbers.Real, Decimal)) and not issubclass(t, bool) for t in types)
    return found if found.kind == "number" and are_numbers else Told("category")


def say_of_text(found: Told, source: str) -> None:
    """A word where text was read as what it may not be."""
    if found.gaps:
        listed = ", ".join(map(repr, found.gaps[:3]))
        warnings.warn(f"The column {source!r} holds numbers, and {listed}: read as gaps.", stacklevel=5)
    if found.limits:
        listed, gap = ", ".join(map(repr, found.limits[:3])), _as_gap(source, found.limits[0])
        words = f"The column {source!r} holds numbers, and {listed}: read as the limit itself. {gap} makes it a gap."
        warnings.warn(words, stacklevel=5)
    if found.is_open:
        warnings.warn(
            f"The column {source!r} holds dates that read two ways, with the day first or the month, and is read as "
            "levels: write them as YYYY-MM-DD, or convert them with pandas.to_datetime.",
            stacklevel=5,
        )
    if found.odd is not None:
        warnings.warn(
            f"The column {source!r} is text, read as levels: most of it is numbers, but not {found.odd!r}. Correct it, "
            f"or make it a gap: {_as_gap(source, found.odd)}.",
            stacklevel=5,
        )


def _as_gap(source: str, value: str) -> str:
    return f"`missing_values={{{json.dumps(source, ensure_ascii=False)}: {value!r}}}`"
