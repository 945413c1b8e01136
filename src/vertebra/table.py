"""A data frame becomes a matrix and back: names, categories, missing values, scaling.

`learn` reads a table once and writes down, column by column, what the model will see: a `Schema`. Its `matrix` gives
any later table the same reading: numbers near unit scale, levels as codes 0, 1, …, missing values as NaN.
"""

import datetime
import decimal
import math
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
from jaxtyping import ArrayLike, Float, Int
from scipy.sparse import issparse

UNSEEN = -1.0  # the code of a level not seen at fit
KINDS = ("number", "ordered", "category", "boolean")
FEATURE_TYPES = (*KINDS, "datetime")

# What a text column writes where it has no value, spaces around it aside.
MISSING_WORDS = frozenset({"?", "", "NA", "N/A", "nan", "NaN", "null", "None"})
# How text writes booleans, besides as Python does.
BOOLEAN_WORDS = {"0": False, "false": False, "FALSE": False, "1": True, "true": True, "TRUE": True}
# The parts of a datetime, and the levels of those that come round again.
_PARTS = {
    "time": (),
    "month": tuple(range(1, 13)),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": tuple(range(24)),
}
_LARGEST = float(np.finfo(np.float64).max)
_TAIL = 3.0

Level = str | int | float | bool


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

    def standard(self, values: ArrayLike | Sequence[float]) -> Float[np.ndarray, "..."]:
        """u = (x − centre)/scale, and sign(u)(tail + asinh(|u| − tail)) beyond the tail. Codes stay as they are."""
        x = np.asarray(values, dtype=np.float64)
        if self.kind != "number":
            return x
        with np.errstate(over="ignore"):
            # Halves, because the difference of two finite numbers may be infinite.
            u = np.clip((0.5 * x - 0.5 * self.centre) / (0.5 * self.scale), -_LARGEST, _LARGEST)
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
            x = np.clip(2.0 * (u * (0.5 * self.scale) + 0.5 * self.centre), -_LARGEST, _LARGEST)
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"levels": list(self.levels)}

    @classmethod
    def from_json(cls, d: Any) -> "Column":
        """The column that `to_json` wrote, or a ValueError: the file may come from anyone."""
        _demand(isinstance(d, dict) and set(d) == {f.name for f in fields(cls)}, "a column", d)
        _demand(isinstance(d["name"], str) and isinstance(d["source"], str), "names", d)
        _demand(d["kind"] in KINDS, f"a kind, one of {', '.join(KINDS)}", d["kind"])
        _demand(isinstance(d["has_missing"], bool), "true or false for has_missing", d["has_missing"])
        _demand(isinstance(d["levels"], list), "a list of levels", d["levels"])
        for level in d["levels"]:
            finite = isinstance(level, float) and math.isfinite(level)
            _demand(isinstance(level, str | int) or finite, "levels of text, finite numbers or booleans", level)
        levels = tuple(d["levels"])
        _demand(len({_key(level) for level in levels}) == len(levels), "distinct levels", levels)
        _demand(bool(levels) == (d["kind"] != "number"), "levels for every kind but a number", d)
        _demand(d["kind"] != "boolean" or levels == (False, True), "the levels false, true of a boolean", levels)
        if d["part"] is not None:
            _demand(isinstance(d["part"], str) and d["part"] in _PARTS, "a part of a datetime", d["part"])
            _demand(d["kind"] == ("ordered" if _PARTS[d["part"]] else "number"), "the kind of that part", d["kind"])
            _demand(levels == _PARTS[d["part"]], "the levels of that part", levels)
        for name in ("centre", "scale", "tail"):
            is_number = isinstance(d[name], int | float) and not isinstance(d[name], bool)
            _demand(is_number and abs(d[name]) <= _LARGEST, f"a finite number for {name}", d[name])
        scaling = {name: float(d[name]) for name in ("centre", "scale", "tail")}
        _demand(scaling["scale"] > 0.0 and scaling["tail"] >= 0.0, "a scale above 0 and a tail of at least 0", scaling)
        return cls(**(d | scaling | {"levels": levels}))


@dataclass(frozen=True)
class Schema:
    """How a table is read: the inputs of the model, and the user's columns they come from."""

    columns: tuple[Column, ...]
    sources: tuple[str, ...]  # in the order at fit
    named: bool  # whether the names are the user's; else x0, x1, …

    def matrix(self, X: Any, estimator: str = "the model") -> Float[np.ndarray, "n p"]:
        """A row per row of X and a column per input: numbers scaled, levels as codes, missing NaN, new levels UNSEEN.

        A frame is matched by name, in any order and with columns to spare, where the names at fit were the user's;
        anything else by position.
        """
        table = _open(X)
        if self.named and table.names is not None:
            position = {name: i for i, name in enumerate(table.names)}
            if missing := [name for name in self.sources if name not in position]:
                unseen = [name for name in table.names if name not in self.sources]
                parts = {"seen at fit time, yet now missing": missing, "unseen at fit time": unseen}
                lists = (f"Feature names {what}:\n" + _bullets(names) for what, names in parts.items() if names)
                first = "The feature names should match those that were passed during fit.\n"
                raise ValueError(first + "".join(lists))
        else:
            position = {name: i for i, name in enumerate(self.sources)}
            if (k := len(table.columns)) != (m := len(self.sources)):
                raise ValueError(f"X has {k} features, but {estimator} is expecting {m} features as input.")
        matrix = np.empty((len(table.columns[0]), len(self.columns)))
        places: dict[str, list[int]] = {}
        for i, column in enumerate(self.columns):
            places.setdefault(column.source, []).append(i)
        for source, inputs in places.items():
            values = _read(table.columns[position[source]], [self.columns[i] for i in inputs])
            for i, raw in zip(inputs, values, strict=True):
                matrix[:, i] = self.columns[i].standard(raw)
        return matrix

    def to_json(self) -> dict[str, Any]:
        return dict(columns=[c.to_json() for c in self.columns], sources=list(self.sources), named=self.named)

    @classmethod
    def from_json(cls, d: Any) -> "Schema":
        """The schema that `to_json` wrote, or a ValueError: the file may come from anyone."""
        _demand(isinstance(d, dict) and set(d) == {f.name for f in fields(cls)}, "a schema", d)
        _demand(isinstance(d["named"], bool), "true or false for named", d["named"])
        _demand(isinstance(d["columns"], list) and d["columns"] != [], "a list of columns", d["columns"])
        _demand(isinstance(d["sources"], list), "a list of sources", d["sources"])
        _demand(all(isinstance(s, str) for s in d["sources"]), "sources that are text", d["sources"])
        columns, sources = tuple(Column.from_json(c) for c in d["columns"]), tuple(d["sources"])
        _demand(len(set(sources)) == len(sources), "distinct sources", sources)
        _demand({c.source for c in columns} == set(sources), "columns of every source and no other", sources)
        _demand(len({c.name for c in columns}) == len(columns), "distinct names of columns", [c.name for c in columns])
        shared = Counter(c.source for c in columns)
        _demand(all(c.part or shared[c.source] == 1 for c in columns), "several columns of a datetime only", sources)
        return cls(columns, sources, d["named"])


def learn(
    X: Any, weight: ArrayLike | Sequence[float] | None = None, feature_types: Mapping | Sequence | None = None
) -> Schema:
    """The schema of a table, by rule, from the rows whose weight is above 0.

    `feature_types` overrides the rule, by name, by position, or as one entry (or None) per column of X.
    """
    table = _open(X)
    n = len(table.columns[0])
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"`weight` must have one entry per row of `X`, {n}, got the shape {weight.shape}.")
    if not (np.isfinite(weight).all() and (weight > 0).any()):
        raise ValueError(f"`weight` must be finite, and above 0 in some row, got at most {weight.max()}.")
    sources = tuple(f"x{i}" for i in range(len(table.columns))) if table.names is None else table.names
    wanted = _wanted(feature_types, sources)
    columns: list[Column] = []
    for source, series, kind in zip(sources, table.columns, wanted, strict=True):
        columns += _describe(series.loc[weight > 0], source, kind, weight[weight > 0], table.is_array)
    if clash := _repeated([column.name for column in columns]):
        raise ValueError(f"`X` has columns named like a part of one of its datetimes, rename them: {', '.join(clash)}.")
    return Schema(tuple(columns), sources, table.names is not None)


def date(days: float) -> str:
    """Days since 1970 in UTC as a date, with the time of day where there is one."""
    try:
        when = pd.Timestamp(0) + pd.Timedelta(days=days)
    except (OverflowError, ValueError):
        return f"{days:.4g} days"
    return when.strftime("%Y-%m-%d" if abs(days - round(days)) < 1e-6 else "%Y-%m-%d %H:%M")


class _Table(NamedTuple):
    """The user's columns, each a pandas Series of its own; names only where all of them are text."""

    columns: list[pd.Series]
    names: tuple[str, ...] | None
    is_array: bool


def _open(X: Any) -> _Table:
    """Any table that we take, opened; refused here are those of the wrong shape or make."""
    if issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. "
            "Use '.toarray()' to convert to a dense numpy array."
        )
    frame = X if isinstance(X, pd.DataFrame) else nw.from_native(X, pass_through=True)
    names: list = []
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"`X` must hold its rows, got a lazy frame, {type(X).__name__}: pass `X.collect()`.")
    if isinstance(frame, pd.DataFrame):
        shape, names = frame.shape, list(frame.columns)
        columns = [_from_pandas(frame.iloc[:, i]) for i in range(shape[1])]
    elif isinstance(frame, nw.DataFrame):
        shape, names = frame.shape, list(frame.columns)
        columns = [_from_narwhals(frame[name]) for name in names]
    else:
        array = _array(X)
        shape, columns = array.shape, [pd.Series(array[:, i]) for i in range(array.shape[1])]
    for size, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if size == 0:
            raise ValueError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required.")
    for dtype in {column.dtype for column in columns}:
        if pd.api.types.is_complex_dtype(dtype):
            raise ValueError(f"Complex data not supported, got the dtype {dtype} in `X`: pass real numbers.")
    if repeated := _repeated(names):
        raise ValueError(f"`X` must have distinct column names, got more than one of: {', '.join(repeated)}.")
    is_text = {isinstance(name, str) for name in names}
    if len(is_text) == 2:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{sorted({type(name).__name__ for name in names})} as feature name / column name types. Convert them all "
            "to strings, by X.columns = X.columns.astype(str) for example."
        )
    return _Table(columns, tuple(str(name) for name in names) if True in is_text else None, not names)


def _array(X: Any) -> np.ndarray:
    array = np.asarray(X)
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        array = np.asarray(X, dtype=object)  # lists of numbers and text: each value keeps its type
    if array.dtype.kind == "S":
        array = array.astype(str)
    if array.ndim < 2:
        got = "1D array" if array.ndim == 1 else "scalar array"
        raise ValueError(
            f"Expected 2D array, got {got} instead:\narray={array}.\nReshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it contains a single "
            "sample."
        )
    if array.ndim > 2:
        raise ValueError(f"Found array with dim {array.ndim}, while dim <= 2 is required for `X`.")
    return array if array.dtype.kind in "biufcmM" else array.astype(object)


def _from_pandas(series: pd.Series) -> pd.Series:
    if isinstance(series.dtype, pd.SparseDtype):
        return series.sparse.to_dense()
    is_arrow = isinstance(series.dtype, pd.ArrowDtype)
    return _from_narwhals(nw.from_native(series, series_only=True)) if is_arrow else series


def _from_narwhals(series: nw.Series) -> pd.Series:
    dtype = series.dtype
    if isinstance(dtype, nw.Enum):
        values = series.cast(nw.String).to_list()
        return pd.Series(pd.Categorical(values, categories=list(dtype.categories), ordered=True))
    if isinstance(dtype, nw.Categorical):
        series = series.cast(nw.String)
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return pd.Series(series.to_numpy())


def _wanted(feature_types: Mapping | Sequence | None, sources: tuple[str, ...]) -> list[str | None]:
    """What `feature_types` asks of each source; None leaves it to the rule."""
    wanted: list[Any] = [None] * len(sources)
    if feature_types is None:
        return wanted
    if isinstance(feature_types, Mapping):
        for name, kind in feature_types.items():
            is_position = isinstance(name, numbers.Integral) and 0 <= name < len(sources)
            if not is_position and name not in sources:
                raise ValueError(f"`feature_types` must name columns of `X`, {', '.join(sources)}, got {name!r}.")
            wanted[int(name) if is_position else sources.index(name)] = kind
    elif isinstance(feature_types, str) or not hasattr(feature_types, "__len__") or len(feature_types) != len(sources):
        raise ValueError(
            f"`feature_types` must be a mapping or have one entry per column, {len(sources)}, got {feature_types!r}."
        )
    else:
        wanted = list(feature_types)
    for source, kind in zip(sources, wanted, strict=True):
        if kind is not None and kind not in FEATURE_TYPES:
            allowed = ", ".join(FEATURE_TYPES)
            raise ValueError(f"`feature_types` must be one of {allowed}, got {kind!r} for the column {source!r}.")
    return wanted


def _describe(
    series: pd.Series, source: str, wanted: str | None, weight: Float[np.ndarray, " n"], is_array: bool
) -> list[Column]:
    """The inputs that one source becomes."""
    natural = _kind(series, source, is_array)
    kind = wanted or natural
    if kind == "datetime":
        when = _instants(series, source)
        time = _scaled(Column(f"{source} (time)", source, "number", "time"), _part(when, "time"), weight)
        varying = [part for part in _PARTS if part != "time" and len(pd.unique(_part(when, part)[when.notna()])) > 1]
        return [time] + [
            Column(f"{source} ({part})", source, "ordered", part, _PARTS[part], has_missing=time.has_missing)
            for part in varying
        ]
    if kind == "number":
        column = Column(source, source, "number", "time" if natural == "datetime" else None)
        return [_scaled(column, _read(series, [column])[0], weight)]
    column = Column(source, source, kind, levels=_levels(series, source, kind))
    codes = _codes(series, column)
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
    ("number", (numbers.Real, decimal.Decimal)),
)


def _kind(series: pd.Series, source: str, is_array: bool) -> str:
    """What the rule makes of a column."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "ordered" if dtype.ordered else "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "datetime"
    if pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        return "number"
    types = _types(series)
    if any(issubclass(t, (complex, np.complexfloating)) for t in types):
        raise ValueError(f"Complex data not supported, got some in the column {source!r} of dtype {dtype}.")
    for kind, members in _RULE:
        if types and all(issubclass(t, members) for t in types):
            return kind
    # scikit-learn reads an array of text as numbers where it can.
    values = _factor(series, source)[1] if is_array else ["text"]
    return "number" if all(_is_missing(value) or _number(value) is not None for value in values) else "category"


def _types(series: pd.Series) -> set[type]:
    """The types of a column's values, missing ones left out."""
    return set(map(type, series.loc[series.notna()].to_numpy(dtype=object)))


def _read(series: pd.Series, columns: Sequence[Column]) -> list[Float[np.ndarray, " n"]]:
    """The raw values of the inputs that come from one source, before they are scaled."""
    first = columns[0]
    if first.part is not None:
        when = _instants(series, first.source)
        return [_part(when, column.part) for column in columns]
    return [_numbers(series, first.source) if first.kind == "number" else _codes(series, first)]


def _numbers(series: pd.Series, source: str) -> Float[np.ndarray, " n"]:
    """Raw numbers, a length of time in days; text is parsed."""
    dtype = series.dtype
    if pd.api.types.is_datetime64_any_dtype(dtype):
        raise ValueError(f"The column {source!r} must hold numbers, as it did at fit, got the dtype {dtype}.")
    if pd.api.types.is_timedelta64_dtype(dtype):
        values = series.to_numpy() / np.timedelta64(1, "D")
    elif pd.api.types.is_numeric_dtype(dtype):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    elif (types := _types(series)) and all(issubclass(t, (datetime.timedelta, np.timedelta64)) for t in types):
        values = pd.to_timedelta(series).to_numpy() / np.timedelta64(1, "D")
    else:
        values = np.full(len(series), np.nan)
        present = series.notna().to_numpy()
        try:
            values[present] = series.loc[present].to_numpy(dtype=object).astype(np.float64)
        except (ValueError, TypeError, OverflowError):
            codes, distinct = _factor(series, source)
            parsed = [math.nan if _is_missing(value) else _number(value) for value in distinct]
            if None in parsed:
                raise ValueError(
                    f"The column {source!r} must hold numbers, got {distinct[parsed.index(None)]!r}: correct it, or "
                    f"fit with `feature_types={{{source!r}: 'category'}}`."
                ) from None
            values = np.array([*parsed, math.nan], dtype=np.float64)[codes]
    if k := int(np.isinf(values).sum()):
        raise ValueError(
            "Input X contains infinity or a value too large for dtype('float64'): "
            f"column {source!r} has {k} infinite value(s)."
        )
    return values


def _instants(series: pd.Series, source: str) -> pd.Series:
    """Instants in UTC, without a zone; text is parsed."""
    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return series.dt.tz_convert("UTC").dt.tz_localize(None)
    if pd.api.types.is_datetime64_dtype(dtype):
        return series
    codes, distinct = _factor(series, source)
    present = [value for value in distinct if not _is_missing(value)]
    bad = [value for value in present if not isinstance(value, (str, datetime.date, np.datetime64))]
    values = pd.Series([*(None if _is_missing(value) else value for value in distinct), None], dtype=object)
    if not bad:
        when = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
        rest = values.loc[when.isna()]
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


def _part(when: pd.Series, part: str | None) -> Float[np.ndarray, " n"]:
    if part == "time":
        return (when.to_numpy() - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    codes = when.dt.month - 1 if part == "month" else when.dt.hour if part == "hour" else when.dt.day_of_week
    return codes.to_numpy(dtype=np.float64, na_value=np.nan)


def _factor(series: pd.Series, source: str) -> tuple[Int[np.ndarray, " n"], list]:
    """The distinct values, and the place of each row's among them: −1 where it is missing."""
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:
        kinds = ", ".join(sorted(t.__name__ for t in _types(series) if t.__hash__ is None))
        raise TypeError(f"The column {source!r} holds {kinds}: each argument must be a string or a number.") from None
    return codes, distinct.tolist()


def _codes(series: pd.Series, column: Column) -> Float[np.ndarray, " n"]:
    """The code of each row's level."""
    code = {_key(level): float(i) for i, level in enumerate(column.levels)}
    if column.kind == "boolean":
        code |= {word: float(value) for word, value in BOOLEAN_WORDS.items()}
    rows, distinct = _factor(series, column.source)
    codes = [code.get(_key(_label(v)), math.nan if _is_missing(v) else UNSEEN) for v in distinct]
    return np.array([*codes, math.nan])[rows]


def _levels(series: pd.Series, source: str, kind: str) -> tuple[Level, ...]:
    """The levels of a column in order: the declared one where there is one, else by value, else by text."""
    if kind == "boolean":
        return (False, True)
    is_declared = kind == "ordered" and isinstance(series.dtype, pd.CategoricalDtype)
    values = series.cat.categories.tolist() if is_declared else _factor(series, source)[1]
    labels = [_label(value) for value in values if is_declared or not _is_missing(value)]
    if len({str if isinstance(v, str) else bool if isinstance(v, bool) else float for v in labels}) > 1:
        labels = [_key(label) for label in labels]
    labels = list({_key(label): label for label in labels}.values())
    if is_declared:
        return tuple(labels)
    order = [_number(label) for label in labels]
    if any(value is None or math.isnan(value) for value in order):
        return tuple(sorted(labels, key=str))
    return tuple(label for _, _, label in sorted(zip(order, map(str, labels), labels, strict=True)))


def _label(value: Any) -> Level:
    """A value as a level that JSON can hold: 1.0 is 1, and what is neither text, number nor boolean is its text."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, np.timedelta64):
        return int(value)
    if isinstance(value, (numbers.Real, decimal.Decimal)) and math.isfinite(value):
        return int(value) if value == int(value) else float(value)
    return str(value)


def _key(level: Level) -> str:
    """What two levels share that are one: 1, 1.0 and "1"."""
    return str(level)


def _is_missing(value: Any) -> bool:
    return isinstance(value, str) and value.strip() in MISSING_WORDS


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, TypeError):
        return None
    except OverflowError:
        return math.inf


def _scaled(column: Column, values: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> Column:
    """A number's column with its scaling, learned from the values that are there."""
    present = ~np.isnan(values)
    column = replace(column, has_missing=not present.all())
    if not present.any():
        return column
    centre, scale, tail = _scaling(values[present], weight[present])
    return replace(column, centre=centre, scale=scale, tail=tail)


def _scaling(x: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """Mean, sd and no tail where every value lies within 6 sd; else median, robust sd and where the tails begin."""
    # sums over sorted distinct values: neither the order of rows nor how often one is written changes a digit
    x, place = np.unique(x, return_inverse=True)
    weight = np.bincount(place.ravel(), weight)
    low, high = float(x.min()), float(x.max())
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    tiny = float(np.finfo(np.float64).tiny)
    if half <= max(8.0 * np.finfo(np.float64).eps * abs(middle), tiny):  # constant, up to rounding
        return middle, 1.0, 0.0
    z = (x - middle) / half  # in [−1, 1]: squares do not overflow
    share = weight / weight.max()
    share = share / share.sum()
    mean, sd = _mean_and_sd(z, share)
    if np.abs(z - mean).max() <= 6.0 * sd:
        return middle + half * mean, max(half * sd, tiny), 0.0
    lower, median, upper = np.quantile(x, [0.25, 0.5, 0.75], weights=share, method="inverted_cdf").tolist()
    spread = (upper - lower) / 1.349  # the IQR of N(0, 1)
    if spread == 0.0:  # most rows share one value, the median: the others set the scale
        rare = x != median
        shares = share[rare] / share[rare].sum()
        spread = half * _mean_and_sd(z[rare], shares)[1] if np.ptp(z[rare]) > 0 else abs(float(x[rare][0]) - median)
    return median, max(spread, tiny), _TAIL


def _mean_and_sd(z: Float[np.ndarray, " n"], share: Float[np.ndarray, " n"]) -> tuple[float, float]:
    mean = float(share @ z)
    return mean, math.sqrt(share @ (z - mean) ** 2)


def _repeated(names: Sequence) -> list[str]:
    return sorted(str(name) for name, count in Counter(names).items() if count > 1)


def _bullets(names: Sequence[str]) -> str:
    return "".join(f"- {name}\n" for name in names)


def _demand(holds: bool, wanted: str, got: Any) -> None:
    if not holds:
        raise ValueError(f"A schema must have {wanted}, got {repr(got)[:200]}. The file is damaged, or is not ours.")
