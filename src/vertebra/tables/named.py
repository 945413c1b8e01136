"""A table whose target, and weights, are columns of its own, by name: in a frame, or in a file that is read."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from vertebra.machine.later import later
from vertebra.tables.column import as_read
from vertebra.tables.endings import is_table
from vertebra.tables.nearest import nearest
from vertebra.tables.schema import TableLike, ValuesLike, opened
from vertebra.tables.tablefile import read_table
from vertebra.tables.values import is_missing_word

nw = later("narwhals")


class Taken(NamedTuple):
    """Inputs, target and weights, each by itself."""

    x: TableLike
    y: ValuesLike
    weight: ValuesLike
    groups: ValuesLike = None
    time: ValuesLike = None


def taken_apart(
    X: TableLike,
    y: ValuesLike,
    weight: ValuesLike,
    *,
    is_class: bool,
    groups: ValuesLike = None,
    time: ValuesLike = None,
) -> Taken:
    """Inputs and the rest, where that is named columns of the table; rows without a target are left out.

    What is given apart stays as it is.
    """
    X = read_table(X) if is_table(X) else X
    names = _names(X, y)
    beside: dict[str, ValuesLike] = {"sample_weight": weight, "groups": groups, "time": time}
    named = {role: name for role, name in beside.items() if isinstance(name, str)}
    if not names and not named:
        return Taken(X, y, weight, groups, time)
    frame = _frame(X, names, named)
    beside |= {role: pd.Series(frame[name]) for role, name in named.items()}
    if "sample_weight" in named:
        weights = pd.Series(frame[named["sample_weight"]])
        beside["sample_weight"] = as_read(weights, named["sample_weight"]).to_numpy(dtype=float)
    rest = frame.drop(columns=list({*names, *named.values()}))
    if not rest.shape[1]:
        raise ValueError("`X` has no column left to learn from beside the target.")
    if not names:
        return Taken(rest, y, *beside.values())
    targets = pd.DataFrame({name: as_read(pd.Series(frame[name]), name) for name in names})
    gaps = targets.isna() | targets.map(is_missing_word)
    kept = ~gaps.any(axis=1).to_numpy()
    if not kept.any():
        raise ValueError(f"The target {' and '.join(map(repr, names))} has no value in any row.")
    if not kept.all():
        n = int((~kept).sum())
        warnings.warn(f"{n:,} row{'s' if n > 1 else ''} without a target left out.", stacklevel=5)
        rest, targets = rest.loc[kept], targets.loc[kept]
        beside = {role: None if each is None else _at(each, kept) for role, each in beside.items()}
    values = targets if not isinstance(y, str) else targets.iloc[:, 0]
    values = _as_classes(values) if is_class and isinstance(values, pd.Series) else values
    return Taken(rest, values, *beside.values())


def _at(values: ValuesLike, kept: Bool[np.ndarray, " n"]) -> ValuesLike:
    return values[kept] if isinstance(values, pd.Series) else np.asarray(values)[kept]


def _names(X: TableLike, y: ValuesLike) -> list[str]:
    """The columns that y names: text, or several of a list that is no list of rows."""
    if isinstance(y, str):
        return [y]
    columns = getattr(X, "columns", None)
    if isinstance(y, list | tuple) and y and columns is not None and all(isinstance(each, str) for each in y):
        return list(y) if set(y) <= {str(each) for each in columns} and len(y) != len(X) else []  # type: ignore[arg-type]
    return []


def _frame(X: TableLike, names: list[str], named: Mapping[str, str]) -> pd.DataFrame:
    """The table as a frame of pandas, which has the columns of the target, and those that are named for a role."""
    asked = [*(("y", name) for name in names), *named.items()]
    frame = X if isinstance(X, pd.DataFrame) else nw.from_native(X, pass_through=True)
    if not (isinstance(frame, pd.DataFrame) or isinstance(frame, nw.DataFrame)):  # noqa: SIM101 (the one needs no narwhals)
        raise ValueError(f"`{asked[0][0]}` names the column {asked[0][1]!r}, and `X` has no names: pass a frame.")
    if not isinstance(frame, pd.DataFrame):
        table = opened(X)
        frame = pd.DataFrame(dict(zip(table.names or (), table.columns, strict=True)))
    for argument, name in asked:
        if name not in frame.columns:
            near = nearest(str(name), list(map(str, frame.columns)))
            raise ValueError(f"`{argument}` must name a column of the table, got {name!r}{near}")
    return frame


def _as_classes(values: pd.Series) -> pd.Series:
    """Classes as what they are: whole numbers that a gap made floats of are whole again; text and truth values stay."""
    if pd.api.types.is_float_dtype(values) and (values == values.round()).all():
        return values.astype(int)
    kinds = set(map(type, values))
    return values.astype(bool) if kinds <= {bool, np.bool_} else values
