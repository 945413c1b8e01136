"""The effect of two inputs of which one has few values: a line with its band for each of these."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from vertebra.plot.marks import (
    GREY,
    LINES,
    Look,
    axes_for,
    date_ticks,
    framed,
    named_ticks,
    plain_text,
    round_ticks,
    with_unit,
)
from vertebra.plot.tables import ValueText, are_numbers, check_inputs, grids_of, is_date, without_rows

# Levels of the other input that can stand side by side.
MOST_LEVELS = 40
# How far the points of one level stand from each other, in steps between levels.
APART = 0.14


def lines(table: pd.DataFrame, ax: Axes | None = None, *, unit: str | None = None, everywhere: bool = False) -> Axes:
    """The effect of two inputs as lines with bands, one for each value of the input that has the fewest, at most 6.

    Beside levels there are points with bars instead. Where no rows are near (`table.attrs["rows"]`) nothing is drawn,
    unless `everywhere`.

    >>> grid = pd.MultiIndex.from_product([[0.0, 0.5, 1.0], ["no", "yes"]], names=["hour", "open"])
    >>> grid = grid.to_frame(index=False)
    >>> mean = grid["hour"] * (grid["open"] == "yes")
    >>> ax = vb.plot.lines(grid.assign(mean=mean, sd=0.1, lower=mean - 0.2, upper=mean + 0.2))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['open = no', 'open = yes']
    """
    check_inputs(table, 2)
    values, grids = grids_of(table)
    few = _few(values)
    if few is None:
        raise ValueError(
            f"`table` must have an input of at most {len(LINES)} values, and at most {MOST_LEVELS} levels of the "
            f"other, got {len(values[0])} and {len(values[1])} values: `surface` draws a map of them."
        )
    ax = axes_for(ax, (5.4, 3.6))
    empty = np.zeros(grids[0].shape, dtype=bool) if everywhere else without_rows(table, grids[0].shape)
    mean, _, low, high = (np.moveaxis(np.where(empty, np.nan, grid), few, 0) for grid in grids)
    ax.axhline(0.0, color=GREY, ls=":", lw=1)
    along, name = values[1 - few], plain_text(table.columns[few], 20)
    x = _places(along)
    for k, (value, look) in enumerate(zip(values[few], LINES, strict=False)):
        label = f"{name} = {plain_text(value, 20)}"
        if x is None:
            at = np.arange(len(along)) + APART * (k - 0.5 * (len(values[few]) - 1))
            ax.vlines(at, low[k], high[k], color=look.colour, lw=2)
            ax.plot(at, mean[k], color=look.colour, marker=look.marker, ls="", ms=5, label=label)
        else:
            _banded(ax, x, (mean[k], low[k], high[k]), look, label, are_values=not are_numbers(along))
    _along(ax, table, 1 - few, along)
    ax.set(xlabel=plain_text(table.columns[1 - few], 28), ylabel=with_unit("effect", unit))
    # above the axes, where no line runs
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    return framed(ax)


def has_lines(table: pd.DataFrame) -> bool:
    """Whether a pair is better drawn as lines than as a map: one of its inputs has few values."""
    return _few(grids_of(table)[0]) is not None


def _few(values: list[list[object]]) -> int | None:
    """Which of two inputs has a line for each value: that of the fewest, the second of equals."""
    able = [
        place
        for place in (1, 0)
        if not are_numbers(values[place])
        and len(values[place]) <= len(LINES)
        and (_places(values[1 - place]) is not None or len(values[1 - place]) <= MOST_LEVELS)
    ]
    return min(able, key=lambda place: len(values[place]), default=None)


def _places(values: list[object]) -> np.ndarray | None:
    """Numbers as they are, those of a discrete one too; levels have none."""
    if are_numbers(values):
        return np.array(values, dtype=float)
    numbers = [each.value for each in values if isinstance(each, ValueText)]
    return np.array(numbers) if len(numbers) == len(values) else None


def _banded(ax: Axes, x: np.ndarray, band: tuple[np.ndarray, ...], look: Look, label: str, *, are_values: bool) -> None:
    """One line with its band; of a discrete number its values are marked."""
    mean, low, high = band
    ax.fill_between(x, low, high, color=look.colour, alpha=0.2, lw=0)
    marker = look.marker if are_values else ""
    ax.plot(x, mean, color=look.colour, ls=look.dashes, lw=1.8, marker=marker, ms=4, label=label)


def _along(ax: Axes, table: pd.DataFrame, place: int, values: list[object]) -> None:
    """Ticks of the input along x."""
    if _places(values) is None:
        named_ticks(ax, "x", values)
        ax.set_xlim(-0.6, len(values) - 0.4)
    elif is_date(table, place):
        date_ticks(ax.xaxis)
    else:
        ax.xaxis.set_major_locator(round_ticks())
