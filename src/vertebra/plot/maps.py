"""The effect of two inputs as a map, and of three as slices of one."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from vertebra.plot.marks import (
    GREY,
    HATCH,
    Panels,
    date_ticks,
    decimals,
    named_ticks,
    plain_text,
    round_ticks,
    with_unit,
)
from vertebra.plot.tables import ValueText, are_numbers, check_inputs, grids_of, is_date, n_inputs_of, without_rows
from vertebra.tables.schema import date

# Means are below or above 0: colours that part there; sds are not.
MEAN, SPREAD = "RdBu_r", "viridis"
# Panels that fit in two rows and can still be read.
MOST_PANELS = 8


def surface(
    table: pd.DataFrame, axes: Panels | None = None, *, unit: str | None = None, everywhere: bool = False
) -> Panels:
    """The effect of two inputs: mean and standard deviation side by side, as in the paper's figures of interactions.

    `axes`: two Axes, or one for the mean alone. Cells are hatched where the band holds 0. So that signs can be told
    apart in grey, contours of the mean are dashed below 0, and few cells of levels have their mean written in them.
    Where no rows are near (`table.attrs["rows"]`, as `model.effect` notes it) cells stay blank, unless `everywhere`.

    >>> mean, spread = vb.plot.surface(model.effect(("x0", "x1")))
    >>> mean.get_xlabel(), mean.get_ylabel()
    ('x0', 'x1')
    """
    check_inputs(table, 2)
    if axes is None:
        axes = np.asarray(plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")[1])
    given = np.ravel(np.asarray(axes, dtype=object))
    if len(given) not in (1, 2):
        raise ValueError(f"`axes` must be two Axes, or one for the mean alone, got {len(given)}.")
    values, (mean, sd, low, high) = grids_of(table)
    empty = np.zeros(mean.shape, dtype=bool) if everywhere else without_rows(table, mean.shape)
    mean, sd = np.where(empty, np.nan, mean), np.where(empty, np.nan, sd)
    limit = np.nanmax(np.abs(mean), initial=0.0) or 1.0
    mesh = _cells(given[0], table, values, mean, cmap=MEAN, norm=Normalize(-limit, limit))
    _contours(given[0], values, mean, limit)
    given[0].figure.colorbar(mesh, ax=given[0], label=with_unit("mean effect", unit))
    notes = ["hatched: the band holds 0"] if _hatched(given[0], values, (low <= 0) & (high >= 0) & ~empty) else []
    notes += ["blank: no rows"] if empty.any() else []
    if notes:
        given[0].set_title("; ".join(notes), loc="right", fontsize="x-small", color=GREY)
    if len(given) == 2:
        most = np.nanmax(sd, initial=0.0) or 1.0
        mesh = _cells(given[1], table, values, sd, cmap=SPREAD, norm=Normalize(0.0, most))
        given[1].figure.colorbar(mesh, ax=given[1], label=with_unit("standard deviation", unit))
        given[0].set_title("mean", loc="left", fontsize="medium")
        given[1].set_title("standard deviation", loc="left", fontsize="medium")
    return axes


def slices(table: pd.DataFrame, figure_axes: Panels | None = None, *, unit: str | None = None) -> Panels:
    """The mean effect of three inputs: over the first two, one panel per value of the third, at most 8 of them.

    `figure_axes`: the Axes of the panels; with fewer than there are values, evenly spaced ones are shown. Cells are
    hatched where the band holds 0.

    >>> grid = pd.MultiIndex.from_product([[0.0, 1.0]] * 3, names=["a", "b", "c"]).to_frame(index=False)
    >>> axes = vb.plot.slices(grid.assign(mean=grid.prod(axis=1), sd=0.1, lower=-0.2, upper=0.8))
    >>> len(axes)  # a panel for each value of c
    2
    """
    if n_inputs_of(table) != 3:
        raise ValueError(
            "`table` must be of a term of three inputs, and only terms of up to three inputs can be drawn, "
            f"got {n_inputs_of(table)}."
        )
    values, (mean, _, low, high) = grids_of(table)
    n_values = len(values[2])
    if figure_axes is None:
        n = min(n_values, MOST_PANELS)
        n_rows = 1 if n <= 4 else 2
        n_columns = math.ceil(n / n_rows)
        size = (1.2 + 2.1 * n_columns, 0.6 + 2.1 * n_rows)
        figure_axes = plt.figure(figsize=size, layout="constrained").subplots(
            n_rows, n_columns, sharex=True, sharey=True, squeeze=False
        )
        for spare in figure_axes.ravel()[n:]:
            spare.remove()
        figure_axes = figure_axes.ravel()[:n]
    given = np.ravel(np.asarray(figure_axes, dtype=object))
    shown = np.unique(np.linspace(0, n_values - 1, min(n_values, len(given), MOST_PANELS)).round().astype(int))
    limit = np.abs(mean[:, :, shown]).max() or 1.0
    is_hatched, mesh = False, None
    for ax, k in zip(given, shown, strict=False):
        mesh = _cells(ax, table, values[:2], mean[:, :, k], cmap=MEAN, norm=Normalize(-limit, limit))
        _contours(ax, values[:2], mean[:, :, k], limit)
        is_hatched |= _hatched(ax, values[:2], (low[:, :, k] <= 0) & (high[:, :, k] >= 0))
        value = values[2][k]
        shown_value = f"{value:.3g}" if are_numbers(values[2]) else plain_text(value, 16)
        if isinstance(value, float) and is_date(table, 2):
            shown_value = date(float(round(value)))
        ax.set_title(f"{plain_text(table.columns[2], 16)} = {shown_value}", fontsize="small")
        ax.label_outer()
    note = "; hatched: the band holds 0" if is_hatched else ""
    given[0].figure.colorbar(mesh, ax=list(given[: len(shown)]), label=with_unit("mean effect", unit) + note)
    return figure_axes


def _edges(values: list[object]) -> np.ndarray:
    """Where the cell of each value begins and ends: halfway between numbers, and unit steps for levels."""
    if not are_numbers(values):
        return np.arange(len(values) + 1) - 0.5
    x = np.array(values)
    if len(x) == 1:
        return x[0] + 0.5 * (abs(x[0]) or 1.0) * np.array([-1.0, 1.0])
    between = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - between[0]], between, [2 * x[-1] - between[-1]]])


def _cells(
    ax: Axes, table: pd.DataFrame, values: list[list[object]], grid: np.ndarray, *, cmap: str, norm: Normalize
) -> QuadMesh:
    """A grid as cells: the first input along the axes' x, the second along y."""
    mesh = ax.pcolormesh(_edges(values[0]), _edges(values[1]), grid.T, cmap=cmap, norm=norm, rasterized=True)
    for place, (axis, value) in enumerate(zip("xy", values, strict=True)):
        if are_numbers(value) and is_date(table, place):
            date_ticks(getattr(ax, f"{axis}axis"))
        elif are_numbers(value):
            getattr(ax, f"{axis}axis").set_major_locator(round_ticks())
        else:
            named_ticks(ax, axis, value, are_values=all(isinstance(each, ValueText) for each in value))
    ax.set(xlabel=plain_text(table.columns[0], 28), ylabel=plain_text(table.columns[1], 28))
    return mesh


def _contours(ax: Axes, values: list[list[object]], grid: np.ndarray, limit: float) -> None:
    """The sign without colour: contours, dashed below 0, between numbers; of few levels, the means written out."""
    is_number = [are_numbers(value) for value in values]
    if all(is_number) and min(grid.shape) > 1:
        low, high = np.nanmin(grid), np.nanmax(grid)
        heights = [h for h in MaxNLocator(14).tick_values(-limit, limit) if h != 0 and low < h < high]
        if heights:
            styles = ["dashed" if h < 0 else "solid" for h in heights]
            ax.contour(*values, grid.T, heights, colors="0.25", linewidths=0.6, linestyles=styles, alpha=0.7)
    elif not any(is_number) and grid.shape[0] <= 8 and grid.shape[1] <= 10:
        for (i, j), mean in np.ndenumerate(grid):
            if np.isnan(mean):
                continue
            ink = "white" if abs(mean) > 0.7 * limit else "black"
            label = f"{mean:+.{decimals(limit, 2)}f}".replace("-", "−")
            text = ax.text(i, j, label, ha="center", va="center", fontsize="x-small", color=ink, clip_on=True)
            text.set_path_effects([withStroke(linewidth=2, foreground="black" if ink == "white" else "white")])


def _hatched(ax: Axes, values: list[list[object]], where: np.ndarray) -> bool:
    """Hatches the cells `where`, as one patch; says whether there were any."""
    x, y = _edges(values[0]), _edges(values[1])
    cells = [
        Path([(x[i], y[j]), (x[i + 1], y[j]), (x[i + 1], y[j + 1]), (x[i], y[j + 1]), (x[i], y[j])], closed=True)
        for i, j in np.argwhere(where)
    ]
    if cells:
        with plt.rc_context({"hatch.linewidth": 0.5}):
            ax.add_patch(PathPatch(Path.make_compound_path(*cells), fill=False, edgecolor="0.35", hatch=HATCH, lw=0))
    return bool(cells)
