"""One column of a table: what its values mean, how they become numbers, and how these are scaled."""

import contextlib
import datetime
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.machine.file import Record
from vertebra.tables.values import (
    LARGEST,
    Level,
    factor,
    instants,
    is_missing_word,
    is_number_or_text,
    key_of,
    label_of,
    number_in,
    types_of,
    with_gaps,
)
from vertebra.tables.written import TRUTH, number_written, say_of_text, text_of

if TYPE_CHECKING:
    from jaxtyping import ArrayLike
else:
    ArrayLike = object  # it comes with JAX

# The code of a level not seen at fit: codes of levels are 0 and more.
UNSEEN = -1.0
KINDS = ("number", "ordered", "category", "boolean")
FEATURE_TYPES = (*KINDS, "datetime")

# How text writes booleans, besides as Python does.
BOOLEAN_WORDS = {"0": False, "false": False, "FALSE": False, "1": True, "true": True, "TRUE": True}
# The parts of a datetime, and the levels of those that come round again.
PARTS = {
    "time": (),
    "month": tuple(range(1, 13)),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": tuple(range(24)),
}
# Where in its month a date lies, by days from either end: a month or a year that is written as a date has one of them
# the same throughout, and its weekday means nothing.
WITHIN_MONTH = ("day", "days left")
_TINY = float(np.finfo(np.float64).tiny)  # below are the denormal numbers, which lose digits
# Numbers have far tails where one lies further from the mean than so many sds, as one in 5·10⁸ of Gaussian ones does;
# they are then drawn in from so many robust sds on, beyond which 0.3 % of Gaussian ones lie.
FAR, TAIL = 6.0, 3.0
# A target may be as large as this: sums over a hundred million rows, and intervals of many sds, stay below 1.8e308.
LARGEST_TARGET = 1e300
# A target must vary by this: an sd of a millionth of it, and that of rounding, are no denormal numbers.
SMALLEST_RANGE = 1e-290


@dataclass(frozen=True)
class Column:
    """One input of the model: where it comes from, what its values mean, and how they are scaled."""

    name: str
    source: str  # the user's column; several inputs may come from one datetime
    kind: str  # one of KINDS
    part: str | None = None  # of a datetime: time (days since 1970 in UTC), month, weekday or hour
    levels: tuple[Level, ...] = ()  # the label of each code
    centre: float = 0.0
    scale: float = 1.0
    tail: float = 0.0  # above 0: values further than this many scales from the centre are drawn in
    has_missing: bool = False  # seen at fit
    missing_values: tuple[Level, ...] = ()  # numbers and texts of the source that are read as gaps
    decimal: str = "."  # the decimal mark of numbers that were text
    order: str = ""  # of dates with slashes that were text: "day" or "month" first

    def standard(self, values: ArrayLike | Sequence[float]) -> Float[np.ndarray, "..."]:
        """u = (x − centre)/scale, and sign(u)(tail + asinh(|u| − tail)) beyond the tail. Codes stay as they are."""
        x = np.asarray(values, dtype=np.float64)
        if self.kind != "number":
            return x
        with np.errstate(over="ignore"):
            # Halves, because the difference of two finite numbers may be infinite.
            u = np.clip((0.5 * x - 0.5 * self.centre) / (0.5 * self.scale), -LARGEST, LARGEST)
        if self.tail == 0.0:
            return np.asarray(u)
        return np.where(np.abs(u) > self.tail, np.sign(u) * (self.tail + np.arcsinh(np.abs(u) - self.tail)), u)

    def original(self, values: ArrayLike | Sequence[float]) -> Float[np.ndarray, "..."]:
        """x = centre + scale · u: the inverse of `standard`, to rounding error."""
        u = np.asarray(values, dtype=np.float64)
        if self.kind != "number":
            return u
        with np.errstate(over="ignore"):
            if self.tail > 0.0:
                u = np.where(np.abs(u) > self.tail, np.sign(u) * (self.tail + np.sinh(np.abs(u) - self.tail)), u)
            x = np.clip(2.0 * (u * (0.5 * self.scale) + 0.5 * self.centre), -LARGEST, LARGEST)
        return np.asarray(x)

    def label(self, code: float | int | np.number) -> Level:
        """The user's label of a level; "missing" for NaN, "(unseen)" for UNSEEN."""
        if np.isnan(code):
            return "missing"
        if code == UNSEEN:
            return "(unseen)"
        if not (0 <= code < len(self.levels) and code == int(code)):
            raise ValueError(f"`code` must be one of the {len(self.levels)} levels of {self.name!r}, got {code!r}.")
        return self.levels[int(code)]

    def to_json(self) -> Record:
        record: Record = asdict(self)
        del record["missing_values"], record["decimal"], record["order"]
        # files without any are as they were before there were any
        gaps: Record = {"missing_values": list(self.missing_values)} if self.missing_values else {}
        mark: Record = {"decimal": self.decimal} if self.decimal != "." else {}
        order: Record = {"order": self.order} if self.order else {}
        return record | {"levels": list(self.levels)} | gaps | mark | order

    @classmethod
    def from_json(cls, d: object) -> "Column":
        """The column that `to_json` wrote, or a ValueError: the file may come from anyone."""
        if not isinstance(d, dict) or {*d, "missing_values", "decimal", "order"} != {f.name for f in fields(cls)}:
            raise unfit("a column", d)
        mark = d.get("decimal", ".")
        demand(mark in (".", ","), "a decimal mark, . or ,", mark)
        order = d.get("order", "")
        demand(order in ("", "day", "month"), "what comes first in a date, day or month", order)
        gaps = d.get("missing_values", [])
        demand(isinstance(gaps, list) and all(map(is_number_or_text, gaps)), "missing values, numbers or texts", gaps)
        demand(isinstance(d["name"], str) and isinstance(d["source"], str), "names", d)
        demand(d["kind"] in KINDS, f"a kind, one of {', '.join(KINDS)}", d["kind"])
        demand(isinstance(d["has_missing"], bool), "true or false for has_missing", d["has_missing"])
        demand(isinstance(d["levels"], list), "a list of levels", d["levels"])
        for level in d["levels"]:
            finite = isinstance(level, float) and math.isfinite(level)
            demand(isinstance(level, str | int) or finite, "levels of text, finite numbers or booleans", level)
        levels = tuple(d["levels"])
        demand(len({key_of(level) for level in levels}) == len(levels), "distinct levels", levels)
        demand(bool(levels) == (d["kind"] != "number"), "levels for every kind but a number", d)
        demand(d["kind"] != "boolean" or levels == (False, True), "the levels false, true of a boolean", levels)
        if d["part"] is not None:
            demand(isinstance(d["part"], str) and d["part"] in PARTS, "a part of a datetime", d["part"])
            demand(d["kind"] == ("ordered" if PARTS[d["part"]] else "number"), "the kind of that part", d["kind"])
            demand(levels == PARTS[d["part"]], "the levels of that part", levels)
        for name in ("centre", "scale", "tail"):
            is_number = isinstance(d[name], int | float) and not isinstance(d[name], bool)
            demand(is_number and abs(d[name]) <= LARGEST, f"a finite number for {name}", d[name])
        scaling = {name: float(d[name]) for name in ("centre", "scale", "tail")}
        # half of less may be 0
        demand(
            scaling["scale"] >= _TINY and scaling["tail"] >= 0.0, "a scale above 0 and a tail of at least 0", scaling
        )
        about = d["name"], d["source"], d["kind"], d["part"], levels
        texts = dict(missing_values=tuple(gaps), decimal=mark, order=order)
        return cls(*about, *scaling.values(), has_missing=d["has_missing"], **texts)


def describe(
    series: pd.Series,
    source: str,
    wanted: str | None,
    weight: Float[np.ndarray, " n"],
    is_array: bool,
    missing_values: tuple[Level, ...] = (),
) -> list[Column]:
    """The inputs that one source becomes."""
    return [
        replace(c, missing_values=missing_values)
        for c in _inputs(series, source, wanted, weight, is_array, missing_values)
    ]


def _inputs(series, source: str, wanted: str | None, weight, is_array: bool, missing_values) -> list[Column]:
    series = with_gaps(series, source, missing_values)
    natural = kind_of(series, source, is_array)
    kind = wanted or natural
    if not is_array and wanted is None:
        say_of_text(text_of(series, source), source)
    if kind == "datetime":
        order = text_of(series, source).order
        when = instants(series, source, order)
        plain = Column(f"{source} (time)", source, "number", "time", order=order)
        time = scaled(plain, part_of(when, "time"), weight)
        return [time] + [
            Column(
                f"{source} ({part})", source, "ordered", part, PARTS[part], has_missing=time.has_missing, order=order
            )
            for part in parts_that_vary(ranges_of_parts(when))
        ]
    if kind == "number":
        part = "time" if natural == "datetime" else None
        mark = text_of(series, source).decimal
        column = Column(source, source, "number", part, missing_values=missing_values, decimal=mark)
        return [scaled(column, read(series, [column])[0], weight)]
    column = Column(source, source, kind, levels=levels_of(series, source, kind))
    codes = codes_of(series, column)
    if kind == "boolean" and (codes == UNSEEN).any():
        value = series.loc[codes == UNSEEN].iloc[0]
        raise ValueError(f"The column {source!r} must hold booleans, got {value!r}: make it a 'category' instead.")
    missing = np.isnan(codes)
    if missing.all():
        return [Column(source, source, "number", has_missing=True)]
    return [replace(column, has_missing=bool(missing.any()))]


# The types of the values in an object column, and what it is then. A timedelta64 is an Integral, a bool a Real.
_RULE = (
    ("boolean", (bool, np.bool_)),
    ("datetime", (datetime.date, np.datetime64)),
    ("number", (datetime.timedelta, np.timedelta64)),
    ("number", (numbers.Real, Decimal)),
)


def kind_of(series: pd.Series, source: str, is_array: bool, *, reads_text: bool = True) -> str:
    """What the rule makes of a column; text that is not read is levels."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "ordered" if dtype.ordered else "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "datetime"
    if pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        return "number"
    types = types_of(series)
    if any(issubclass(t, (complex, np.complexfloating)) for t in types):
        raise ValueError(f"Complex data not supported, got some in the column {source!r} of dtype {dtype}.")
    for kind, members in _RULE:
        if types and all(issubclass(t, members) for t in types):
            return kind
    if is_array:  # scikit-learn reads an array of text as numbers where it can
        values = factor(series, source)[1]
        are_numbers = all(is_missing_word(value) or number_in(value) is not None for value in values)
        return "number" if are_numbers else "category"
    return text_of(series, source).kind if reads_text else "category"


def as_read(series: pd.Series, source: str, decimal: str | None = None) -> pd.Series:
    """A column of text as what it is: numbers, dates or truth values; any other column as it is."""
    found = text_of(series, source, decimal, limits=False)
    if found.kind == "number":
        return pd.Series(numbers_of(series, source, found.decimal), series.index, name=series.name)
    if found.kind == "datetime":
        return instants(series, source, found.order).set_axis(series.index).rename(series.name)
    if found.kind == "boolean":
        truth = {word: word.lower() == "true" for word in TRUTH}
        return series.map(lambda value: truth.get(str(value).strip()), na_action="ignore").astype(object)
    return series


def read(series: pd.Series, columns: Sequence[Column]) -> list[Float[np.ndarray, " n"]]:
    """The raw values of the inputs that come from one source, before they are scaled."""
    first = columns[0]
    is_number = first.kind == "number" and first.part is None
    series = with_gaps(series, first.source, first.missing_values, is_number=is_number)
    if first.part is not None:
        when = instants(series, first.source, first.order)
        return [part_of(when, column.part) for column in columns]
    return [numbers_of(series, first.source, first.decimal) if first.kind == "number" else codes_of(series, first)]


def numbers_of(series: pd.Series, source: str, decimal: str = ".") -> Float[np.ndarray, " n"]:
    """Raw numbers, a length of time in days; text is parsed, with this decimal mark."""
    dtype = series.dtype
    if pd.api.types.is_datetime64_any_dtype(dtype):
        raise ValueError(f"The column {source!r} must hold numbers, as it did at fit, got the dtype {dtype}.")
    if pd.api.types.is_timedelta64_dtype(dtype):
        values = series.to_numpy() / np.timedelta64(1, "D")
    elif pd.api.types.is_numeric_dtype(dtype):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    elif (types := types_of(series)) and all(issubclass(t, (datetime.timedelta, np.timedelta64)) for t in types):
        values = pd.to_timedelta(series).to_numpy() / np.timedelta64(1, "D")
    else:
        values = _numbers_in(series, source, decimal)
    infinite = np.isinf(values)
    if k := int(infinite.sum()):
        raise ValueError(
            "Input X contains infinity or a value too large for dtype('float64'): "
            f"column {source!r} has {k} infinite value(s), the first at index {series.index[int(infinite.argmax())]}: "
            "correct them, or make them gaps."
        )
    return values


def _numbers_in(series: pd.Series, source: str, decimal: str) -> Float[np.ndarray, " n"]:
    """The numbers of a column of objects."""
    present = series.notna().to_numpy()
    if decimal == ".":  # with a comma, 1.234 is not what Python takes it for
        values = np.full(len(series), np.nan)
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            values[present] = series.loc[present].to_numpy(dtype=object).astype(np.float64)
            return values
    codes, distinct = factor(series, source)
    parsed = [_parsed(value, decimal) for value in distinct]
    if None in parsed:
        raise ValueError(
            f"The column {source!r} must hold numbers, got {distinct[parsed.index(None)]!r}: correct it, or "
            f"fit with `feature_types={{{source!r}: 'category'}}`."
        )
    return np.array([*parsed, math.nan], dtype=np.float64)[codes]


def _parsed(value: object, decimal: str) -> float | None:
    if not isinstance(value, str):
        return number_in(value)
    if decimal == "." and (number := number_in(value)) is not None:
        return number
    return number_written(value, decimal)


def part_of(when: pd.Series, part: str | None) -> Float[np.ndarray, " n"]:
    if part == "time":
        return (when.to_numpy() - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    codes = when.dt.month - 1 if part == "month" else when.dt.hour if part == "hour" else when.dt.day_of_week
    return codes.to_numpy(dtype=np.float64, na_value=np.nan)


def ranges_of_parts(when: pd.Series) -> dict[str, tuple[float, float]]:
    """The lowest and the highest code of each part of some dates, and of where in its month each lies."""
    when = when.dropna()
    codes = {part: part_of(when, part) for part in PARTS if part != "time"}
    codes |= dict(zip(WITHIN_MONTH, (when.dt.day, when.dt.days_in_month - when.dt.day), strict=True))
    return {name: (float(each.min()), float(each.max())) for name, each in codes.items() if len(each)}


def parts_that_vary(ranges: Mapping[str, tuple[float, float]]) -> list[str]:
    """The parts of dates that are inputs, besides the time: those that vary, without weekdays of months and years."""
    is_constant = {name: low == high for name, (low, high) in ranges.items()}
    stands_for_a_month = any(is_constant.get(name, False) for name in WITHIN_MONTH)
    return [p for p in PARTS if not is_constant.get(p, True) and not (p == "weekday" and stands_for_a_month)]


def codes_of(series: pd.Series, column: Column) -> Float[np.ndarray, " n"]:
    """The code of each row's level."""
    code = {key_of(level): float(i) for i, level in enumerate(column.levels)}
    if column.kind == "boolean":
        code |= {word: float(value) for word, value in BOOLEAN_WORDS.items()}
    rows, distinct = factor(series, column.source)
    codes = [code.get(key_of(label_of(v)), math.nan if is_missing_word(v) else UNSEEN) for v in distinct]
    return np.array([*codes, math.nan])[rows]


def levels_of(series: pd.Series, source: str, kind: str) -> tuple[Level, ...]:
    """The levels of a column in order: the declared one where there is one, else by value, else by text."""
    if kind == "boolean":
        return (False, True)
    is_declared = kind == "ordered" and isinstance(series.dtype, pd.CategoricalDtype)
    values = series.cat.categories.tolist() if is_declared else factor(series, source)[1]
    labels = [label_of(value) for value in values if is_declared or not is_missing_word(value)]
    return unified(labels) if is_declared else in_order(unified(labels))


def unified(labels: Iterable[Level]) -> tuple[Level, ...]:
    """Each level once; where text, booleans and numbers stand side by side, all as text."""
    labels = list(labels)
    if len({str if isinstance(v, str) else bool if isinstance(v, bool) else float for v in labels}) > 1:
        labels = [key_of(label) for label in labels]
    return tuple({key_of(label): label for label in labels}.values())


def in_order(labels: Sequence[Level]) -> tuple[Level, ...]:
    """Levels by value where all are numbers, else by text."""
    order = [number_in(label) for label in labels]
    if any(value is None or math.isnan(value) for value in order):
        return tuple(sorted(labels, key=str))
    return tuple(label for _, _, label in sorted(zip(order, map(str, labels), labels, strict=True)))


def scaled(column: Column, values: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> Column:
    """A number's column with its scaling, learned from the values that are there."""
    present = ~np.isnan(values)
    column = replace(column, has_missing=not present.all())
    if not present.any():
        return column
    check_range(column.source, float(values[present].min()), float(values[present].max()))
    centre, scale, tail = scaling(values[present], weight[present])
    return replace(column, centre=centre, scale=scale, tail=tail)


def check_range(source: str, low: float, high: float) -> None:
    """Refuses a column that varies, but only among denormal numbers: neither it nor slopes along it can be computed."""
    if 0.0 < high - low <= 2.0 * _TINY:
        raise ValueError(
            f"The column {source!r} differs by {high - low:.3g} only, too little for double precision: multiply it by "
            "a constant, or leave it out."
        )


def target_fault(y: Float[np.ndarray, " n"], *, is_count: bool = False) -> tuple[int | None, str, str] | None:
    """What is wrong with the size of a target's finite numbers: the place, what was found, and what to do; or None."""
    # doubles of 2⁵³ and more are no longer all the whole numbers there are
    limit, why = (2.0**53, "counts beyond") if is_count else (LARGEST_TARGET, "beyond")
    place = int(np.abs(y).argmax())
    if abs(y[place]) > limit:
        what = "are not exact" if is_count else "sums and intervals overflow"
        shown = f"{limit:.3g}" if is_count else f"±{limit:.3g}"
        return place, f"reaches {y[place]:.3g}", f"; {why} {shown} {what}: divide it by a constant first."
    if not is_count and 0.0 < (apart := float(np.ptp(y))) < SMALLEST_RANGE:
        words = f"differs by {apart:.3g} only, too little for double precision"
        return None, words, ": multiply it by a constant first."
    return None


def scaling(x: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """Mean, sd and no tail where values lie within `FAR` sds; else median, robust sd and where the tails begin."""
    # sums over sorted distinct values: neither the order of rows nor how often one is written changes a digit
    x, place = np.unique(x, return_inverse=True)
    weight = np.bincount(place.ravel(), weight)
    low, high = float(x.min()), float(x.max())
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    rounding = 8.0 * float(np.finfo(np.float64).eps) * abs(middle)
    if half <= max(rounding, _TINY):  # constant, up to rounding, whose squares are not to overflow
        return middle, max(1.0, rounding), 0.0
    z = (x - middle) / half  # in [−1, 1]: squares do not overflow
    share = weight / weight.max()
    share = share / share.sum()
    mean, sd = _mean_and_sd(z, share)
    if np.abs(z - mean).max() <= FAR * sd:
        return middle + half * mean, max(half * sd, _TINY), 0.0
    lower, median, upper = np.quantile(x, [0.25, 0.5, 0.75], weights=share, method="inverted_cdf").tolist()
    spread = (upper - lower) / 1.349  # the IQR of N(0, 1)
    if spread == 0.0:  # most rows share one value, the median: the others set the scale
        rare = x != median
        shares = share[rare] / share[rare].sum()
        spread = half * _mean_and_sd(z[rare], shares)[1] if np.ptp(z[rare]) > 0 else abs(float(x[rare][0]) - median)
    # the furthest value is finite in this scale, so that `original` gives it back
    return median, max(spread, half * 1e-300, _TINY), TAIL


def _mean_and_sd(z: Float[np.ndarray, " n"], share: Float[np.ndarray, " n"]) -> tuple[float, float]:
    mean = float(share @ z)
    return mean, math.sqrt(share @ (z - mean) ** 2)


def demand(holds: bool, wanted: str, got: object) -> None:
    if not holds:
        raise unfit(wanted, got)


def unfit(wanted: str, got: object) -> ValueError:
    """The error to raise where a file's schema is not what it must be."""
    return ValueError(f"A schema must have {wanted}, got {repr(got)[:200]}. The file is damaged, or is not ours.")
