"""What the charts of a report draw, as JSON can hold it."""

import numpy as np
import pandas as pd

from vertebra.machine.file import Record
from vertebra.models.explanation import effect, effects, grid_of
from vertebra.models.model import Model
from vertebra.tables.profile import Marginal, shares_at
from vertebra.tables.schema import date
from vertebra.tables.values import Level
from vertebra.terms.term import term_label

# Terms with a chart each.
MOST_CHARTS = 40
MOST_LEVELS, MOST_SLICES = 40, 8
# Values shown of an input with far tails; and, of positive ones, the largest over the smallest from which an axis of
# powers shows more.
N_FINE, LONG_TAIL = 200, 300.0
SHOWN = ["strength", "lower", "upper", "sobol", "probability"]


def charts(model: Model, k: int) -> Record:
    """Strengths and effects of one output: its strongest terms."""
    table = effects(model, output=k)
    strengths = [
        {"label": term_label(term), "order": len(term), **dict(zip(SHOWN, map(float, values), strict=True))}
        for term, *values in table[["term", *SHOWN]].head(MOST_CHARTS).itertuples(index=False)
    ]
    drawn = [_effect(model, term, k) for term in table["term"].head(MOST_CHARTS)]
    return {"strengths": strengths, "effects": drawn}


def _effect(model: Model, term: tuple[str, ...], k: int) -> Record | None:
    if len(term) > 3:
        return None
    positions = [model.position(name) for name in term]
    columns = [model.schema.columns[i] for i in positions]
    points = N_FINE if len(term) == 1 and columns[0].tail > 0.0 else None
    table = effect(model, term, output=k, points=points)
    mean, sd, lower, upper = (table.iloc[:, place].to_numpy(float) for place in range(-4, 0))
    names = [column.name for column in columns]
    if len(term) == 1:
        outer = effect(model, term, simultaneous=True, output=k, points=points)
        marginal = model.profile.inputs[positions[0]]
        bands = {"mean": mean, "lower": lower, "upper": upper}
        bands |= {"outer_lower": outer.iloc[:, -2].to_numpy(float), "outer_upper": outer.iloc[:, -1].to_numpy(float)}
        if columns[0].levels:
            return _of_levels(
                table.iloc[:, 0], dict(zip(columns[0].levels, marginal.shares, strict=True)), marginal, bands
            ) | {"names": names}
        x, is_time = table.iloc[:, 0].to_numpy(float), columns[0].part == "time"
        record = _of_number(x, marginal, bands, is_time=is_time, is_discrete="discrete" in table.attrs)
        low, high = float(marginal.edges[0]), float(marginal.edges[-1])
        return record | {"names": names, "log": points is not None and low > 0.0 and high > LONG_TAIL * low}
    # the last input runs fastest; values that look alike may be different ones
    shape = tuple(map(len, grid_of(model, tuple(positions))))
    grids = [table.iloc[:, axis].to_numpy().reshape(shape) for axis in range(len(term))]
    values = [np.moveaxis(grid, axis, 0).reshape(shape[axis], -1)[:, 0] for axis, grid in enumerate(grids)]
    discrete = table.attrs.get("discrete", [])
    values = [
        np.array([date(v) if column.part == "time" else f"{v:.10g}" for v in own]) if column.name in discrete else own
        for own, column in zip(values, columns, strict=True)
    ]
    mean, sd, zero = (v.reshape(shape) for v in (mean, sd, (lower <= 0.0) & (upper >= 0.0)))
    x, y = (_axis(values[axis]) for axis in (0, 1))
    if len(term) == 2:
        maps = {"mean": _grid(mean.T), "sd": _grid(sd.T), "zero": zero.T.tolist()}
        return {"kind": "map", "names": names, "x": x, "y": y, **maps}
    shown = range(min(shape[2], MOST_SLICES))
    parts = [
        {"at": _axis(values[2][[j]])[0], "mean": _grid(mean[:, :, j].T), "zero": zero[:, :, j].T.tolist()}
        for j in shown
    ]
    return {"kind": "slices", "names": names, "x": x, "y": y, "slices": parts}


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


def _axis(values: np.ndarray) -> list[float] | list[str]:
    array = np.asarray(values)
    return _rounded(array) if array.dtype.kind == "f" else [str(v) for v in array]


def _grid(values: np.ndarray) -> list[list[float]]:
    return [_rounded(row) for row in values]


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{v:.6g}") for v in values]
