"""What the charts of a report draw, as JSON can hold it."""

import math
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from vertebra.effects.words import lines
from vertebra.machine.file import Record
from vertebra.models.explanation import MeasureLike, effect, effects, grid_of
from vertebra.models.model import Model
from vertebra.tables.column import Column
from vertebra.tables.profile import Marginal, shares_at
from vertebra.tables.schema import date
from vertebra.tables.values import Level

# Terms with a chart each.
MOST_CHARTS = 40
MOST_LEVELS, MOST_SLICES = 40, 8
# Lines of a pair that can be told apart by colour.
MOST_LINES = 6
# Values shown of an input with far tails; and, of positive ones, the largest over the smallest from which an axis of
# powers shows more.
N_FINE, LONG_TAIL = 200, 300.0
SHOWN = ["strength", "lower", "upper", "share", "probability"]


def charts(model: Model, k: int, measure: MeasureLike = None) -> Record:
    """Strengths and effects of one output: its strongest terms."""
    table = effects(model, output=k, measure=measure)
    strengths = [
        {"label": line.label, "order": len(line.term), **{name: _known(getattr(line, name)) for name in SHOWN}}
        for line in lines(table)[:MOST_CHARTS]
    ]
    shown = table.head(MOST_CHARTS)
    drawn = [
        None if group else _effect(model, term, k, measure)
        for term, group in zip(shown["term"], shown["group"], strict=True)
    ]
    return {"strengths": strengths, "effects": drawn}


def _known(value: float) -> float | None:
    """A figure as JSON has it: what is not known, such as the probability of a term that has no test, is nothing."""
    return None if math.isnan(value) else float(value)


def kinds(found: Record) -> list[str | None]:
    """How each effect of `charts` is drawn; None of those that are not."""
    drawn = cast(list[Record | None], found["effects"])
    return [None if each is None else str(each["kind"]) for each in drawn]


class Axis(NamedTuple):
    """One input of a chart: its values as they are written, and of a number where most rows lie."""

    name: str
    kind: str  # "number", "date" or "levels"
    values: list[float] | list[str]
    span: list[float] | list[str] | None  # from the 1st to the 99th percentile; None of levels and of few values
    is_few: bool  # whether it has so few values that each can have a line


class Grid(NamedTuple):
    """An effect of two or three inputs at all combinations of their values, an axis of the arrays for each."""

    axes: list[Axis]
    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    empty: np.ndarray  # whether no rows are near


def _effect(model: Model, term: tuple[str, ...], k: int, measure: MeasureLike) -> Record | None:
    if len(term) > 3:
        return None
    if len(term) == 1:
        return _of_one(model, term, k, measure)
    grid = _grid_of(model, term, k, measure)
    if len(term) == 3:
        return _slices(grid)
    return _lines(grid) if _has_lines(grid.axes) else _map(grid)


def _of_one(model: Model, term: tuple[str, ...], k: int, measure: MeasureLike) -> Record:
    position = model.position(term[0])
    column, marginal = model.schema.columns[position], model.profile.inputs[position]
    points = N_FINE if column.tail > 0.0 else None
    table = effect(model, term, output=k, points=points, measure=measure)
    outer = effect(model, term, simultaneous=True, output=k, points=points, measure=measure)
    names = ("mean", "sd", "lower", "upper")
    bands = {name: table.iloc[:, place - 4].to_numpy(float) for place, name in enumerate(names) if name != "sd"}
    bands |= {f"outer_{name}": outer.iloc[:, place].to_numpy(float) for name, place in (("lower", -2), ("upper", -1))}
    if column.levels:
        shares = dict(zip(column.levels, marginal.shares, strict=True))
        return _of_levels(table.iloc[:, 0], shares, marginal, bands) | {"names": [column.name]}
    is_discrete = "discrete" in table.attrs
    record = _of_number(
        table.iloc[:, 0].to_numpy(float), marginal, bands, is_time=column.part == "time", is_discrete=is_discrete
    )
    low, high = float(marginal.edges[0]), float(marginal.edges[-1])
    record |= {"log": points is not None and low > 0.0 and high > LONG_TAIL * low}
    return record | {"names": [column.name], "span": None if is_discrete else _span(column, marginal)}


def _grid_of(model: Model, term: tuple[str, ...], k: int, measure: MeasureLike) -> Grid:
    positions = [model.position(name) for name in term]
    table = effect(model, term, output=k, measure=measure)
    # the last input runs fastest; values that look alike may be different ones
    shape = tuple(map(len, grid_of(model, tuple(positions))))
    axes = []
    for place, position in enumerate(positions):
        values = np.moveaxis(table.iloc[:, place].to_numpy().reshape(shape), place, 0).reshape(shape[place], -1)[:, 0]
        is_discrete = term[place] in table.attrs.get("discrete", [])
        axes.append(_axis(model.schema.columns[position], model.profile.inputs[position], values, is_discrete))
    near = list(table.attrs.get("rows", {}).values())
    empty = np.array(near).reshape(shape) == 0.0 if len(near) == len(table) else np.zeros(shape, dtype=bool)
    mean, sd, lower, upper = (table.iloc[:, place].to_numpy(float).reshape(shape) for place in range(-4, 0))
    return Grid(axes, mean, sd, lower, upper, empty & ~empty.all())


def _axis(column: Column, marginal: Marginal, values: np.ndarray, is_discrete: bool) -> Axis:
    is_few = (is_discrete or bool(column.levels)) and len(values) <= MOST_LINES
    if column.levels:
        return Axis(column.name, "levels", [str(v) for v in values], None, is_few)
    is_time, span = column.part == "time", None if is_discrete else _span(column, marginal)
    said = [date(v) for v in values] if is_time else _rounded(values, 10 if is_discrete else 6)
    return Axis(column.name, "date" if is_time else "number", said, span, is_few)


def _span(column: Column, marginal: Marginal) -> list[float] | list[str] | None:
    """From the 1st to the 99th percentile of a number; inside a bin rows are taken to lie evenly, on the model's
    scale.
    """
    upto = np.append(0.0, np.cumsum(marginal.shares))
    if upto[-1] <= 0.0:
        return None
    ends = column.original(np.interp([0.01 * upto[-1], 0.99 * upto[-1]], upto, column.standard(marginal.edges)))
    if ends[1] <= ends[0]:
        return None
    return [date(v) for v in ends] if column.part == "time" else _rounded(ends)


def _has_lines(axes: list[Axis]) -> bool:
    """Whether a pair is drawn as lines: one input has few values, and levels of the other can stand side by side."""
    return any(
        one.is_few and (other.kind != "levels" or len(other.values) <= MOST_LEVELS) for one, other in _both(axes)
    )


def _both(axes: list[Axis]) -> list[tuple[Axis, Axis]]:
    return [(axes[0], axes[1]), (axes[1], axes[0])]


def _lines(grid: Grid) -> Record:
    """A line for each value of the input of fewer values, over the other."""
    few = min((1, 0), key=lambda place: (not grid.axes[place].is_few, len(grid.axes[place].values)))
    along, by = grid.axes[1 - few], grid.axes[few]
    lines = []
    for place, at in enumerate(by.values):
        own = [np.take(each, place, axis=few) for each in (grid.mean, grid.lower, grid.upper, grid.empty)]
        bands = {name: _rounded(values) for name, values in zip(("mean", "lower", "upper"), own, strict=False)}
        lines.append({"at": at if isinstance(at, str) else f"{at:.10g}", **bands, "empty": _flags(own[3])})
    record = {"kind": "lines", "names": [along.name, by.name], "x": along.values, "kinds": [along.kind]}
    return record | {
        "spans": [along.span],
        "is_discrete": along.kind != "levels" and along.span is None,
        "lines": lines,
    }


def _map(grid: Grid) -> Record:
    zero = (grid.lower <= 0.0) & (grid.upper >= 0.0)
    maps = {"mean": _numbers(grid.mean.T), "sd": _numbers(grid.sd.T)}
    maps |= {"zero": [*map(_flags, zero.T)], "empty": [*map(_flags, grid.empty.T)]}
    return {"kind": "map", **_flat(grid.axes), **maps}


def _slices(grid: Grid) -> Record:
    """Maps of two inputs, one for each value of that which has the fewest, or of the last."""
    third = min(range(3), key=lambda place: (not grid.axes[place].is_few, len(grid.axes[place].values), -place))
    grid = Grid(
        [*(axis for place, axis in enumerate(grid.axes) if place != third), grid.axes[third]],
        *(np.moveaxis(values, third, 2) for values in grid[1:]),
    )
    zero = (grid.lower <= 0.0) & (grid.upper >= 0.0)
    parts = [
        {"at": at, "mean": _numbers(grid.mean[:, :, j].T), "zero": [*map(_flags, zero[:, :, j].T)]}
        for j, at in enumerate(grid.axes[2].values[:MOST_SLICES])
    ]
    return {"kind": "slices", **_flat(grid.axes), "slices": parts}


def _flat(axes: list[Axis]) -> Record:
    """The inputs of a map; values of a discrete number have cells as levels have."""
    shown = [
        axis._replace(kind="levels", values=[v if isinstance(v, str) else f"{v:.10g}" for v in axis.values])
        if axis.span is None
        else axis
        for axis in axes
    ]
    record = {"names": [axis.name for axis in axes], "x": shown[0].values, "y": shown[1].values}
    return record | {"kinds": [axis.kind for axis in shown], "spans": [axis.span for axis in shown]}


def _of_number(
    x: np.ndarray, marginal: Marginal, bands: dict[str, np.ndarray], *, is_time: bool, is_discrete: bool
) -> Record:
    seen, said = ~np.isnan(x), date if is_time else float
    record: Record = {"kind": "curve", "x": [said(v) for v in _rounded(x[seen])]}
    if is_discrete:
        shares = shares_at(x[seen], marginal.edges[:-1], marginal.shares)
        record |= {"kind": "points", "shares": None if shares is None else shares.tolist()}
    record |= {name: _rounded(values[seen]) for name, values in bands.items()}
    record["bins"] = [
        [said(float(low)), said(float(high)), float(share)]
        for low, high, share in zip(marginal.edges[:-1], marginal.edges[1:], marginal.shares, strict=True)
    ]
    gap = {name: float(bands[name][~seen][0]) for name in ("mean", "lower", "upper")} if not seen.all() else None
    return record | {"missing": gap}


def _of_levels(
    labels: pd.Series, shares: dict[Level, float], marginal: Marginal, bands: dict[str, np.ndarray]
) -> Record:
    """All levels, or of very many those with the largest and the smallest effects."""
    kept = np.arange(len(labels))
    if len(labels) > MOST_LEVELS:
        order = np.argsort(bands["mean"], kind="stable")
        kept = np.concatenate([order[: MOST_LEVELS // 2], order[-MOST_LEVELS // 2 :]])
    return {
        "kind": "levels",
        "labels": [str(labels.iloc[i]) for i in kept],
        "shares": [float(shares.get(labels.iloc[i], marginal.missing)) for i in kept],
        **{name: _rounded(values[kept]) for name, values in bands.items()},
    }


def _flags(values: np.ndarray) -> str:
    """Yes and no as a text of 1 and 0, of which a page has many."""
    return "".join("1" if value else "0" for value in values)


def _numbers(values: np.ndarray) -> list[list[float]]:
    # a colour tells no more than four digits
    return [_rounded(row, 4) for row in values]


def _rounded(values: np.ndarray, n_digits: int = 6) -> list[float]:
    return [float(f"{v:.{n_digits}g}") for v in values]
