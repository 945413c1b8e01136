"""Values as users write them: which are numbers, dates, levels, and which stand for gaps."""

import datetime
import decimal
import math
import numbers
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int

# What a text column writes where it has no value, spaces around it aside: what pandas takes for it in a file, too.
MISSING_WORDS = frozenset(
    {"?", "", "NA", "N/A", "n/a", "N.A.", "n.a.", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "<NA>"}
    | {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"}
)
LARGEST = float(np.finfo(np.float64).max)
# A time behind a date: 14:30, 14:30:05, 2:30 PM; for regular expressions, and perhaps not there.
CLOCK = r"(?:,? \d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?)?"
# 31.5.2024: with points the day comes first wherever dates are written so.
DOTTED_DATE = rf"\d{{1,2}}\.\d{{1,2}}\.\d{{4}}{CLOCK}"
# 12/31/2024, 31/12/2024 or 12/31/24: which comes first, the other rows of the column tell.
SLASHED_DATE = rf"(\d{{1,2}})[/-](\d{{1,2}})(?:[/-]\d{{4}}|/(\d{{2}})){CLOCK}"

Level = str | int | float | bool


def types_of(series: pd.Series) -> set[type]:
    """The types of a column's values, missing ones left out."""
    return set(map(type, series.loc[series.notna()].to_numpy(dtype=object)))


def with_gaps(series: pd.Series, source: str, missing_values: Sequence[Level], *, is_number: bool = False) -> pd.Series:
    """The column with gaps in place of these values: numbers where numbers stand, texts where texts or dates do.

    Of a column that is read as a number, text that writes one of the numbers is a gap too.
    """
    if not missing_values or pd.api.types.is_bool_dtype(series.dtype):
        return series
    asked = [value for value in missing_values if not isinstance(value, str)]
    words = {value.strip() for value in missing_values if isinstance(value, str)}

    def is_gap(value: object) -> bool:
        if isinstance(value, str):
            return value.strip() in words or (is_number and number_in(value) in asked)
        if isinstance(value, datetime.date | np.datetime64):
            return str(value).removesuffix(" 00:00:00") in words
        is_other = isinstance(value, bool | np.bool_ | datetime.timedelta | np.timedelta64)
        return not is_other and isinstance(value, numbers.Real | decimal.Decimal) and value in asked

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return series.cat.remove_categories([level for level in dtype.categories if is_gap(level)])
    if pd.api.types.is_datetime64_any_dtype(dtype):
        texts = pd.Series(sorted(words), dtype=object)
        moments = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601").dt.tz_localize(None)
        return series.mask(instants(series, source).isin(moments.dropna()))
    if not pd.api.types.is_numeric_dtype(dtype):
        rows, distinct = factor(series, source)
        return series.mask(np.array([*map(is_gap, distinct), False])[rows])
    if pd.api.types.is_float_dtype(dtype) and isinstance(dtype, np.dtype):
        # what single precision makes of −999.9
        largest = np.finfo(dtype).max
        return series.mask(series.isin(np.array([value for value in asked if abs(value) <= largest], dtype=dtype)))
    found = series.isin(asked)
    if isinstance(dtype, np.dtype):  # whole numbers, which have no gaps
        series = series.astype("UInt64" if dtype.kind == "u" else "Int64")
    return series.mask(found)


def order_of(texts: Sequence[str]) -> str:
    """What comes first in 12/31/2024 and its like: "day" or "month", "" where texts leave it open or contradict.

    Years of two digits leave 24/12/31 open, which some write with the year first; 12/31/24 is read one way.
    """
    found = [match for match in map(re.compile(SLASHED_DATE).fullmatch, texts) if match]
    days = any(int(match[1]) > 12 for match in found)
    months = any(int(match[2]) > 12 for match in found)
    is_open = days == months or (days and any(match[3] for match in found))
    return "" if is_open else "day" if days else "month"


def instants(series: pd.Series, source: str, order: str = "") -> pd.Series:
    """Instants in UTC, without a zone; text is parsed, with the `order` of day and month or the one that it shows."""
    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return series.dt.tz_convert("UTC").dt.tz_localize(None)
    if pd.api.types.is_datetime64_dtype(dtype):
        return series
    codes, distinct = factor(series, source)
    present = [value for value in distinct if not is_missing_word(value)]
    bad = [value for value in present if not isinstance(value, (str, datetime.date, np.datetime64))]
    values = pd.Series([*(None if is_missing_word(value) else value for value in distinct), None], dtype=object)
    if not bad:
        when = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
        rest = values.loc[when.isna()]
        dotted = rest.loc[rest.str.strip().str.fullmatch(DOTTED_DATE, na=False)]
        when = when.fillna(pd.to_datetime(dotted, utc=True, errors="coerce", format="mixed", dayfirst=True))
        rest = values.loc[when.isna()]
        slashed = rest.loc[rest.str.strip().str.fullmatch(SLASHED_DATE, na=False)].str.strip()
        if order := order or order_of(slashed.tolist()):
            first = order == "day"
            read = pd.to_datetime(slashed, utc=True, errors="coerce", format="mixed", dayfirst=first)
            # where there is no such month, it is read the other way round
            is_other = [int(re.split("[/-]", text)[0 if order == "month" else 1]) > 12 for text in slashed]
            when = when.fillna(read.mask(np.array(is_other, dtype=bool)))
            rest = rest.drop(slashed.index)
        # 01/02/2020 is January to some and February to others, and 12:30 is read as today: text that is not ISO 8601
        # must name its year and read the same both ways.
        rest = rest.loc[rest.str.contains(r"\d{4}", na=False)]
        readings = [pd.to_datetime(rest, utc=True, errors="coerce", format="mixed", dayfirst=d) for d in (False, True)]
        when = when.fillna(readings[0].where(readings[0] == readings[1]))
        bad = [value for value, moment in zip(values, when, strict=True) if value is not None and moment is pd.NaT]
    if bad:
        raise ValueError(
            f"The column {source!r} must hold dates or times that read one way only, got {bad[0]!r}: write them as "
            "YYYY-MM-DD, or convert them with pandas.to_datetime."
        )
    return when.dt.tz_localize(None).take(codes % len(when))


def factor(series: pd.Series, source: str) -> tuple[Int[np.ndarray, " n"], list]:
    """The distinct values, and the place of each row's among them: −1 where it is missing."""
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:
        kinds = ", ".join(sorted(t.__name__ for t in types_of(series) if t.__hash__ is None))
        raise TypeError(f"The column {source!r} holds {kinds}: each argument must be a string or a number.") from None
    return codes, distinct.tolist()


def label_of(value: object) -> Level:
    """A value as a level that JSON can hold: 1.0 is 1, and what is neither text, number nor boolean is its text."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, np.timedelta64):
        return int(value)
    if isinstance(value, (numbers.Real, decimal.Decimal)) and math.isfinite(value):
        whole = int(value)  # pyright: ignore[reportArgumentType]
        return whole if value == whole else float(value)
    return str(value)


def key_of(level: Level) -> str:
    """What two levels share that are one: 1, 1.0 and "1"."""
    return str(level)


def gap_of(value: object) -> Level | None:
    """A value to be read as a gap, a finite number or a text; None for one that is missing as it is."""
    if value is None or value is pd.NA or (isinstance(value, numbers.Real) and math.isnan(value)):
        return None
    label = label_of(value)
    if not is_number_or_text(label) or (isinstance(label, str) and not isinstance(value, str)):
        raise ValueError(f"`missing_values` must be finite numbers or texts, got {value!r}.")
    return label


def both_forms(gap: Level) -> tuple[Level, ...]:
    """A number and how text writes it, which are one where a column is named."""
    number = number_in(gap)
    if number is None or not math.isfinite(number):
        return (gap,)
    other = label_of(number) if isinstance(gap, str) else key_of(gap)
    return (gap, other)


def is_number_or_text(value: object) -> bool:
    """Whether this is text, or a finite number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, str)
    return abs(value) <= LARGEST


def is_missing_word(value: object) -> bool:
    return isinstance(value, str) and value.strip() in MISSING_WORDS


def number_in(value: object) -> float | None:
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError):
        return None
    except OverflowError:
        return math.inf
