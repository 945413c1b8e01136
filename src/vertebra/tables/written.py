"""Text as people write it: numbers with marks, signs and units, dates, truth values, and words for gaps.

The command line and Python read text by this rule alone.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from vertebra.tables.values import DOTTED_DATE, is_missing_word, number_in

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
# Text of more values than this, nine in ten of which are numbers, is worth a word.
MANY, MOSTLY = 20, 0.9


class Told(NamedTuple):
    """What a column of text is: its kind, its decimal mark, words that stand for gaps, what kept it from numbers."""

    kind: str  # "number", "datetime", "boolean" or "category"
    decimal: str = "."
    gaps: tuple[str, ...] = ()
    odd: str | None = None


def number_written(text: str, decimal: str = ".") -> float | None:
    """The number that a text writes with this decimal mark; NaN for a word that stands for a gap, None for another."""
    found = number_and_unit(text, decimal)
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


def told(values: Iterable[object], decimal: str | None = None) -> Told:
    """What distinct values, text and perhaps numbers, are; `decimal` says what the mark is where it is known."""
    texts = [value.strip() for value in values if isinstance(value, str) and not is_missing_word(value)]
    if not texts:
        return Told("category")
    if all(map(ISO_DATE.fullmatch, texts)):
        return Told("datetime" if _are_dates(texts) else "category")
    if all(map(POINTS.fullmatch, texts)):
        return Told("datetime" if _are_dates(texts, format="mixed", dayfirst=True) else "category")
    if set(texts) <= TRUTH:
        return Told("boolean")
    if any(map(NAME.fullmatch, texts)):
        return Told("category")
    gaps = tuple(text for text in texts if is_gap_among_numbers(text))
    written = [text for text in texts if not is_gap_among_numbers(text)]
    best: list[str] = written
    for mark in (".", ",") if decimal is None else (decimal,):
        read = [number_and_unit(text, mark) for text in written]
        if written and None not in read and _is_one_unit([unit for _, unit in filter(None, read)]):
            return Told("number", mark, gaps)
        left = [text for text, number in zip(written, read, strict=True) if number is None]
        best = left if len(left) < len(best) else best
    is_odd = len(written) > MANY and 0 < len(best) <= (1.0 - MOSTLY) * len(written)
    return Told("category", odd=best[0] if is_odd else None)


def _is_one_unit(units: Sequence[str]) -> bool:
    """Whether these are amounts of one thing: all per cent, or none; of one currency, here and there left out."""
    return len(set(units) - {""}) <= 1 and ("%" not in units or "" not in units)


def _are_dates(texts: Sequence[str], **how: Any) -> bool:
    how = {"format": "ISO8601"} | how
    return bool(pd.to_datetime(pd.Series(texts), utc=True, errors="coerce", **how).notna().all())
