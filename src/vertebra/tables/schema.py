"""A data frame becomes a matrix and back: names, categories, missing values, scaling.

`learn` reads a table once and writes down, column by column, what the model will see: a `Schema`. Its `matrix` gives
any later table the same reading: numbers near unit scale, levels as codes 0, 1, …, missing values as NaN.
"""

import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.machine.file import Record
from vertebra.machine.later import later
from vertebra.tables.column import FEATURE_TYPES, Column, demand, describe, read, unfit
from vertebra.tables.endings import is_table
from vertebra.tables.tablefile import read_table
from vertebra.tables.values import Level, both_forms, gap_of

if TYPE_CHECKING:
    import narwhals as nw
    from jaxtyping import ArrayLike
    from narwhals import Series
else:
    ArrayLike = Series = object  # the one comes with JAX
    nw = later("narwhals")

sparse = later("scipy.sparse")

# A table as users pass it: a frame of pandas or of another kind that narwhals knows, an array, lists. These have no
# type in common; `opened` takes them, and says of all else what is wrong with it.
TableLike: TypeAlias = object
# A target or weights as users pass them: a list, an array, a column or a frame; of a table in files, names of columns.
ValuesLike: TypeAlias = object
# Values that stand for gaps: one or several for all columns, or by column.
MissingLike: TypeAlias = float | int | str | Sequence | Mapping | None


@dataclass(frozen=True)
class Schema:
    """How a table is read: the inputs of the model, and the user's columns they come from."""

    columns: tuple[Column, ...]
    sources: tuple[str, ...]  # in the order at fit
    named: bool  # whether the names are the user's; else x0, x1, …

    def __post_init__(self) -> None:
        if clash := _repeated([column.name for column in self.columns]):
            raise ValueError(
                f"`X` has columns named like a part of one of its datetimes, rename them: {', '.join(clash)}."
            )

    def matrix(self, X: TableLike, estimator: str = "the model") -> Float[np.ndarray, "n p"]:
        """A row per row of X and a column per input: numbers scaled, levels as codes, missing NaN, new levels UNSEEN.

        A frame is matched by name, in any order and with columns to spare, where the names at fit were the user's;
        anything else by position.
        """
        table = opened(X)
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
            values = read(table.columns[position[source]], [self.columns[i] for i in inputs])
            for i, raw in zip(inputs, values, strict=True):
                matrix[:, i] = self.columns[i].standard(raw)
        return matrix

    def to_json(self) -> Record:
        return dict(columns=[c.to_json() for c in self.columns], sources=list(self.sources), named=self.named)

    @classmethod
    def from_json(cls, d: object) -> "Schema":
        """The schema that `to_json` wrote, or a ValueError: the file may come from anyone."""
        if not isinstance(d, dict) or set(d) != {f.name for f in fields(cls)}:
            raise unfit("a schema", d)
        demand(isinstance(d["named"], bool), "true or false for named", d["named"])
        demand(isinstance(d["columns"], list) and d["columns"] != [], "a list of columns", d["columns"])
        demand(isinstance(d["sources"], list), "a list of sources", d["sources"])
        demand(all(isinstance(s, str) for s in d["sources"]), "sources that are text", d["sources"])
        columns, sources = tuple(Column.from_json(c) for c in d["columns"]), tuple(d["sources"])
        demand(len(set(sources)) == len(sources), "distinct sources", sources)
        demand({c.source for c in columns} == set(sources), "columns of every source and no other", sources)
        demand(len({c.name for c in columns}) == len(columns), "distinct names of columns", [c.name for c in columns])
        shared = Counter(c.source for c in columns)
        demand(all(c.part or shared[c.source] == 1 for c in columns), "several columns of a datetime only", sources)
        return cls(columns, sources, d["named"])


def learn(
    X: TableLike,
    weight: ArrayLike | Sequence[float] | None = None,
    feature_types: Mapping | Sequence | None = None,
    missing_values: MissingLike = None,
) -> Schema:
    """The schema of a table, by rule, from the rows whose weight is above 0.

    `feature_types` overrides the rule, by name, by position, or as one entry (or None) per column of X;
    `missing_values` are read as gaps, in all columns or by name or position.
    """
    table = opened(X)
    n = len(table.columns[0])
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"`weight` must have one entry per row of `X`, {n}, got the shape {weight.shape}.")
    if not (np.isfinite(weight).all() and (weight > 0).any()):
        raise ValueError(f"`weight` must be finite, and above 0 in some row, got at most {weight.max()}.")
    sources = tuple(f"x{i}" for i in range(len(table.columns))) if table.names is None else table.names
    wanted, gaps = wanted_kinds(feature_types, sources), wanted_gaps(missing_values, sources)
    columns: list[Column] = []
    for source, series, kind, own in zip(sources, table.columns, wanted, gaps, strict=True):
        columns += describe(series.loc[weight > 0], source, kind, weight[weight > 0], table.is_array, own)
    return Schema(tuple(columns), sources, table.names is not None)


def date(days: float) -> str:
    """Days since 1970 in UTC as a date, with the time of day where there is one."""
    try:
        when = pd.Timestamp(0) + pd.Timedelta(days=days)
    except (OverflowError, ValueError):
        return f"{days:.4g} days"
    return when.strftime("%Y-%m-%d" if abs(days - round(days)) < 1e-6 else "%Y-%m-%d %H:%M")


class Opened(NamedTuple):
    """The user's columns, each a pandas Series of its own; names only where all of them are text."""

    columns: list[pd.Series]
    names: tuple[str, ...] | None
    is_array: bool


def opened(X: TableLike) -> Opened:
    """Any table that we take, opened; refused here are those of the wrong shape or make. A file is read."""
    if is_table(X):
        X = read_table(X)
    if not isinstance(X, pd.DataFrame) and sparse.issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. "
            "Use '.toarray()' to convert to a dense numpy array."
        )
    frame = X if isinstance(X, pd.DataFrame) else nw.from_native(X, pass_through=True)
    names: list = []
    if isinstance(frame, pd.DataFrame):
        shape, names = frame.shape, list(frame.columns)
        columns = [_from_pandas(frame.iloc[:, i]) for i in range(shape[1])]
    elif isinstance(frame, nw.LazyFrame):
        raise TypeError(f"`X` must hold its rows, got a lazy frame, {type(X).__name__}: pass `X.collect()`.")
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
    return Opened(columns, tuple(str(name) for name in names) if True in is_text else None, not names)


def _array(X: TableLike) -> np.ndarray:
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


def _from_narwhals(series: Series) -> pd.Series:
    dtype = series.dtype
    if isinstance(dtype, nw.Enum):
        values = series.cast(nw.String).to_list()
        return pd.Series(pd.Categorical(values, categories=list(dtype.categories), ordered=True))
    if isinstance(dtype, nw.Categorical):
        native = series.to_native()
        if getattr(getattr(native, "type", None), "ordered", False):  # Arrow's dictionaries may be
            return pd.Series(native.to_pandas())
        series = series.cast(nw.String)
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return pd.Series(series.to_numpy())


def wanted_kinds(feature_types: Mapping | Sequence | None, sources: tuple[str, ...]) -> list[str | None]:
    """What `feature_types` asks of each source; None leaves it to the rule."""
    wanted: list[str | None] = [None] * len(sources)
    if feature_types is None:
        return wanted
    if isinstance(feature_types, Mapping):
        for name, kind in feature_types.items():
            wanted[_place(name, sources, "feature_types")] = kind
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


def wanted_gaps(missing_values: MissingLike, sources: tuple[str, ...]) -> list[tuple[Level, ...]]:
    """The numbers and texts of each source that `missing_values` reads as gaps."""
    if not isinstance(missing_values, Mapping):
        everywhere = _gaps(missing_values)
        return [everywhere] * len(sources)
    gaps: list[tuple[Level, ...]] = [()] * len(sources)
    for name, values in missing_values.items():
        own = (form for gap in _gaps(values) for form in both_forms(gap))
        gaps[_place(name, sources, "missing_values")] = tuple(dict.fromkeys(own))
    return gaps


def _gaps(values: object) -> tuple[Level, ...]:
    """One value, or several, as finite numbers and texts."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        values = [values]
    found = [gap_of(value) for value in values]
    return tuple(dict.fromkeys(gap for gap in found if gap is not None))


def _place(name: object, sources: tuple[str, ...], argument: str) -> int:
    """The place of a column that an argument names, or tells by its place."""
    if isinstance(name, numbers.Integral) and 0 <= int(name) < len(sources):
        return int(name)
    if not isinstance(name, str) or name not in sources:
        raise ValueError(f"`{argument}` must name columns of `X`, {', '.join(sources)}, got {name!r}.")
    return sources.index(name)


def _repeated(names: Sequence) -> list[str]:
    return sorted(str(name) for name, count in Counter(names).items() if count > 1)


def _bullets(names: Sequence[str]) -> str:
    return "".join(f"- {name}\n" for name in names)
