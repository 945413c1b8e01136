"""What is drawn from: the tables of `model.effect` and `model.effects`, checked and taken apart."""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.plot.marks import number_text
from vertebra.tables.schema import date

VALUES = ["mean", "sd", "lower", "upper"]


class Found(NamedTuple):
    """What is drawn of one row of `model.effects()`."""

    term: tuple[str, ...]
    strength: float
    lower: float
    upper: float
    probability: float


class ValueText(str):
    """A value of a discrete number as text, which has a cell or a line as a level has; `value` is the number."""

    value: float

    @classmethod
    def of(cls, value: float, table: pd.DataFrame, axis: int) -> "ValueText":
        text = cls(value_text(table, axis, value))
        text.value = float(value)
        return text


@runtime_checkable
class Explained(Protocol):
    """A model that tells its terms: an additive estimator that was fitted."""

    def effects(
        self, order: int | None = None, level: float = 0.95, *, baseline: object = None, output: int = 0
    ) -> pd.DataFrame: ...

    def effect(
        self, term: Any, level: float = 0.95, simultaneous: bool = False, *, output: int = 0
    ) -> pd.DataFrame: ...

    def marginal(self, name: Any) -> pd.DataFrame: ...


def n_inputs_of(table: pd.DataFrame) -> int:
    """The number of inputs of the term whose table this is."""
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"`table` must be what `model.effect(term)` returns, got {type(table).__name__}.")
    if len(table.columns) < 5 or list(table.columns[-4:]) != VALUES or not len(table):
        raise ValueError(
            f"`table` must be what `model.effect` returns, inputs and then mean, sd, lower, upper, "
            f"got columns {list(table.columns)} and {len(table)} rows."
        )
    return len(table.columns) - 4


def check_inputs(table: pd.DataFrame, n: int) -> None:
    if n_inputs_of(table) != n:
        raise ValueError(f"`table` must be of a term of {n} input{'s' if n > 1 else ''}, got {n_inputs_of(table)}.")


def check_columns(table: object, argument: str, columns: list[str], source: str) -> None:
    """Refuses what is no table, or not the one that `source` gives."""
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"`{argument}` must be a table, what {source} gives, got {type(table).__name__}.")
    if [name for name in columns if list(table.columns).count(name) != 1]:
        raise ValueError(f"`{argument}` must have the columns {', '.join(columns)}, got {list(table.columns)}.")


def columns_of(table: pd.DataFrame) -> list[Float[np.ndarray, " rows"]]:
    """Mean, sd, lower and upper, taken by position: an input may have one of these names."""
    return [np.asarray(table.iloc[:, i], dtype=float) for i in range(-4, 0)]


def found_in(effects: pd.DataFrame | Explained) -> list[Found]:
    """The rows of `model.effects()`, strongest first; of a model its own."""
    names = list(Found._fields)
    effects = effects.effects() if isinstance(effects, Explained) else effects
    check_columns(effects, "effects", names, "`model.effects()`")
    rows = [Found(tuple(term), *map(float, rest)) for term, *rest in effects[names].itertuples(index=False)]
    return sorted(rows, key=lambda row: -row.strength)


def is_numeric(column: pd.Series) -> bool:
    """Whether an input is a number; text, booleans and integers are levels."""
    return pd.api.types.is_float_dtype(column)


def is_discrete(table: pd.DataFrame, axis: int) -> bool:
    """Whether an input is a number that has no values but those of the table, as `model.effect` notes it."""
    return table.columns[axis] in table.attrs.get("discrete", [])


def is_date(table: pd.DataFrame, axis: int) -> bool:
    """Whether an input is a date, in days since 1970, as `model.effect` notes it."""
    return table.columns[axis] in table.attrs.get("dates", [])


def value_text(table: pd.DataFrame, axis: int, value: float) -> str:
    """A value of a number in full, or the day that it is."""
    return date(value) if is_date(table, axis) else number_text(value)


def are_numbers(values: list[object]) -> bool:
    return all(isinstance(value, float) for value in values)


def without_rows(table: pd.DataFrame, shape: tuple[int, ...]) -> np.ndarray:
    """Which cells of two inputs have no rows near them, where the table says so; never all."""
    rows = table.attrs.get("rows", {})
    empty = [rows.get(pair, 1.0) == 0.0 for pair in zip(table.iloc[:, 0], table.iloc[:, 1], strict=True)]
    codes = [pd.factorize(table.iloc[:, i], sort=is_numeric(table.iloc[:, i]))[0] for i in (0, 1)]
    grid = np.zeros(shape, dtype=bool)
    grid[tuple(codes)] = empty
    return grid & ~grid.all()


def grids_of(table: pd.DataFrame) -> tuple[list[list[object]], list[np.ndarray]]:
    """The values of each input, and mean, sd, lower, upper as arrays over all their combinations."""
    codes, values = [], []
    for i in range(len(table.columns) - 4):
        code, distinct = pd.factorize(table.iloc[:, i], sort=is_numeric(table.iloc[:, i]))
        codes.append(code)
        # a discrete number has a cell for each value, as levels have
        values.append([ValueText.of(v, table, i) for v in distinct] if is_discrete(table, i) else distinct.tolist())
    shape = tuple(len(v) for v in values)
    if len(table) != math.prod(shape) or any((code < 0).any() for code in codes):
        raise ValueError(
            f"`table` must have one row per combination of its inputs, {math.prod(shape)}, got {len(table)}."
        )
    grids = []
    for column in columns_of(table):
        grid = np.full(shape, np.nan)
        grid[tuple(codes)] = column
        grids.append(grid)
    return values, grids
