"""What is drawn from: the tables of `model.effect` and `model.effects`, checked and taken apart."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

VALUES = ["mean", "sd", "lower", "upper"]


class Found(NamedTuple):
    """What is drawn of one row of `model.effects()`."""

    term: tuple[str, ...]
    strength: float
    lower: float
    upper: float
    probability: float


def n_inputs_of(table: pd.DataFrame) -> int:
    """The number of inputs of the term whose table this is."""
    if len(table.columns) < 5 or list(table.columns[-4:]) != VALUES or not len(table):
        raise ValueError(
            f"`table` must be what `model.effect` returns, inputs and then mean, sd, lower, upper, "
            f"got columns {list(table.columns)} and {len(table)} rows."
        )
    return len(table.columns) - 4


def check_inputs(table: pd.DataFrame, n: int) -> None:
    if n_inputs_of(table) != n:
        raise ValueError(f"`table` must be of a term of {n} input{'s' if n > 1 else ''}, got {n_inputs_of(table)}.")


def check_columns(table: pd.DataFrame, argument: str, columns: list[str]) -> None:
    if [name for name in columns if list(table.columns).count(name) != 1]:
        raise ValueError(f"`{argument}` must have the columns {', '.join(columns)}, got {list(table.columns)}.")


def columns_of(table: pd.DataFrame) -> list[Float[np.ndarray, " rows"]]:
    """Mean, sd, lower and upper, taken by position: an input may have one of these names."""
    return [np.asarray(table.iloc[:, i], dtype=float) for i in range(-4, 0)]


def found_in(effects: pd.DataFrame) -> list[Found]:
    """The rows of `model.effects()`, strongest first."""
    names = list(Found._fields)
    check_columns(effects, "effects", names)
    rows = [Found(tuple(term), *map(float, rest)) for term, *rest in effects[names].itertuples(index=False)]
    return sorted(rows, key=lambda row: -row.strength)


def is_numeric(column: pd.Series) -> bool:
    """Whether an input is a number; text, booleans and integers are levels."""
    return pd.api.types.is_float_dtype(column)


def is_discrete(table: pd.DataFrame, axis: int) -> bool:
    """Whether an input is a number that has no values but those of the table, as `model.effect` notes it."""
    return table.columns[axis] in table.attrs.get("discrete", [])


def are_numbers(values: list[object]) -> bool:
    return all(isinstance(value, float) for value in values)
