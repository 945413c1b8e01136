"""The effect of one input: a curve of a number, or a bar for each level; and any effect by its kind."""

import functools
from collections.abc import Callable
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from vertebra.effects.effect import Effect
from vertebra.plot.lines import has_lines, lines
from vertebra.plot.maps import slices, surface
from vertebra.plot.marks import (
    BLUE,
    GREY,
    SKY,
    Panels,
    axes_for,
    bars,
    date_ticks,
    framed,
    plain_text,
    round_ticks,
    size_in_points,
    span_of,
    with_unit,
)
from vertebra.plot.tables import (
    Explained,
    check_columns,
    check_inputs,
    columns_of,
    is_date,
    is_discrete,
    is_numeric,
    n_inputs_of,
    value_text,
)
from vertebra.tables.profile import shares_at

# Levels that a figure of usual height has room for.
MOST_LEVELS = 20
# Shares of the axes: of the tallest bar beneath a curve and what stays clear for it; of the longest beside levels.
TALLEST, BENEATH = 0.12, 0.16
LONGEST, AT_RIGHT = 0.15, 0.2
# Half of a bar at a value, as a share of the range; values that have ticks of their own, and how wide a digit of these
# is, in points.
NARROWEST, WIDEST = 0.006, 0.06
MOST_MARKED, LETTER = 8, 6.2

Values = Float[np.ndarray, " m"]
Band = tuple[Values, Values]


Named = str | int | tuple[str | int, ...]


def effect(
    table: pd.DataFrame | Effect | Explained,
    ax: Panels | Named | None = None,
    *,
    term: Named | None = None,
    simultaneous: pd.DataFrame | None = None,
    marginal: pd.DataFrame | None = None,
    unit: str | None = None,
) -> Panels:
    """One term, `model.effect(term)`: a `curve`, `levels`, `lines`, a `surface` or `slices`, by its inputs.

    Columns of floats are numbers; text, booleans and integers are levels, as in what `model.effect` returns. A discrete
    number is shown at its values alone. A pair with an input of few values is `lines`, unless two Axes are given.
    `simultaneous` and `marginal` are for terms of one input; `ax` is one Axes, or for two and three inputs several.
    Or of a model: `effect(model, "x3")`, and on an Axes `effect(model, ax, term="x3")`, with its data beneath. Or what
    `vb.decompose` gives of a term.

    >>> ax = vb.plot.effect(model.effect("x3"))
    >>> ax.get_xlabel()
    'x3'
    >>> ax = vb.plot.effect(model, "x3")
    """
    if isinstance(table, Effect):
        table = table.table()
    if not isinstance(table, pd.DataFrame):
        own, ax = (ax, None) if term is None else (term, ax)
        if not isinstance(table, Explained) or not _is_named(own):
            got = repr(own) if isinstance(table, Explained) else type(table).__name__
            raise ValueError(f"`table` must be what `model.effect` returns, or a model with a term, got {got}.")
        # text may name several inputs, as effects print them
        model, table = table, table.effect(own)
        if n_inputs_of(table) == 1 and marginal is None:
            marginal = model.marginal(own[0] if isinstance(own, tuple) else own)
    elif term is not None or _is_named(ax):
        raise ValueError("`term` goes with a model: the table of a term needs none.")
    n_inputs = n_inputs_of(table)
    if n_inputs == 1:
        draw = curve if is_numeric(table.iloc[:, 0]) else levels
        return draw(table, cast(Axes | None, ax), simultaneous=simultaneous, marginal=marginal, unit=unit)
    panels = cast(Panels | None, ax)
    if n_inputs == 2 and (panels is None or isinstance(panels, Axes)) and has_lines(table):
        return lines(table, panels, unit=unit)
    return surface(table, panels, unit=unit) if n_inputs == 2 else slices(table, panels, unit=unit)


def _is_named(term: object) -> bool:
    """Whether this names inputs, by text or by place."""
    return isinstance(term, str | int) or (isinstance(term, tuple) and all(isinstance(e, str | int) for e in term))


def curve(
    table: pd.DataFrame,
    ax: Axes | None = None,
    *,
    simultaneous: pd.DataFrame | None = None,
    marginal: pd.DataFrame | None = None,
    unit: str | None = None,
) -> Axes:
    """The effect of one number: mean, pointwise band, and the missing values apart at the right.

    A discrete number (named in `table.attrs["discrete"]`) has a point with a bar at each of its values.
    `simultaneous`: `model.effect(term, simultaneous=True)`, an outer band. `marginal`: the data as a histogram beneath,
    columns lower, upper, share; the area of a bar is its share.

    >>> outer = model.effect("x3", simultaneous=True)
    >>> ax = vb.plot.curve(model.effect("x3"), simultaneous=outer, marginal=model.marginal("x3"), unit="kg")
    """
    check_inputs(table, 1)
    _check_simultaneous(simultaneous, table)
    ax = axes_for(ax, (4.8, 3.4))
    x = np.asarray(table.iloc[:, 0], dtype=float)
    mean, _, low, high = columns_of(table)
    outer = (low, high) if simultaneous is None else columns_of(simultaneous)[2:]
    there = ~np.isnan(x)
    order = np.flatnonzero(there)[np.argsort(x[there], kind="stable")]

    ax.axhline(0.0, color=GREY, ls=":", lw=1)
    at_values = is_discrete(table, 0)
    draw = _points if at_values else _lines
    draw(
        ax,
        x[order],
        mean[order],
        (low[order], high[order]),
        None if simultaneous is None else (outer[0][order], outer[1][order]),
    )

    first, last = span_of(x[there])
    if marginal is not None:
        start, end = _histogram(ax, marginal, x[order] if at_values else None)
        first, last = min(first, start.min(initial=first)), max(last, end.max(initial=last))
    margin = 0.02 * (last - first)
    ax.set_xlim(first - margin, last + margin)
    marks = x[order] if at_values and there.sum() <= MOST_MARKED else None
    missing = None if there.all() else [float(values[~there][0]) for values in (mean, low, high, *outer)]
    _ticks(ax, table, x[order], marks, missing, (first, last))

    # a part whose split is not determined has no band
    shown = np.concatenate([mean, low, high, *outer, [0.0]])
    bottom, top = span_of(shown[~np.isnan(shown)])
    room = 0.05 * (top - bottom)
    ax.set_ylim(bottom - (room if marginal is None else _beside(BENEATH, top + room - bottom)), top + room)
    ax.set(xlabel=plain_text(table.columns[0]), ylabel=with_unit("effect", unit))
    if simultaneous is not None:
        ax.legend(frameon=False, fontsize="small")
    return framed(ax)


def levels(
    table: pd.DataFrame,
    ax: Axes | None = None,
    *,
    simultaneous: pd.DataFrame | None = None,
    marginal: pd.DataFrame | None = None,
    unit: str | None = None,
) -> Axes:
    """The effect of each level of a category, in the order of the table; of more than 20, the highest and lowest 10.

    `marginal`: columns level, share; light bars at the right, the longest for the commonest level.

    >>> means = np.array([-1.0, 0.2, 0.8])
    >>> table = pd.DataFrame({"city": ["Bonn", "Kiel", "Ulm"], "mean": means, "sd": 0.1})
    >>> ax = vb.plot.levels(table.assign(lower=means - 0.2, upper=means + 0.2))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['Bonn', 'Kiel', 'Ulm']
    """
    check_inputs(table, 1)
    _check_simultaneous(simultaneous, table)
    names = list(table.iloc[:, 0])
    mean, _, low, high = columns_of(table)
    shown, places = _shown_levels(mean)
    ax = axes_for(ax, (4.8, 1.3 + 0.26 * max(len(shown), 3)))

    ax.axvline(0.0, color=GREY, ls=":", lw=1)
    bars(ax, mean[shown], low[shown], high[shown], places)
    limits = [mean[shown], low[shown], high[shown], [0.0]]
    if simultaneous is not None:
        *_, outer_low, outer_high = columns_of(simultaneous)
        limits += [outer_low[shown], outer_high[shown]]
        ax.hlines(places, outer_low[shown], outer_high[shown], color=BLUE, lw=0.8, zorder=1.5)
    left, right = span_of(np.concatenate(limits))
    room = 0.05 * (right - left)
    if marginal is not None:
        _shares(ax, marginal, [names[i] for i in shown], places)
    ax.set_xlim(left - room, right + (room if marginal is None else _beside(AT_RIGHT, right + room - left)))
    label = plain_text(table.columns[0])
    if len(shown) < len(names):
        label += f": {MOST_LEVELS // 2} highest and {MOST_LEVELS // 2} lowest of {len(names)}"
        ax.text(0.0, len(shown) / 2, "⋮ ", transform=ax.get_yaxis_transform(), ha="right", va="center")
    ax.set_yticks(places, [plain_text(names[i], 28) for i in shown])
    ax.set_ylim(places.max(initial=0.0) + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(round_ticks())
    ax.set(xlabel=with_unit("effect", unit), ylabel=label)
    if simultaneous is not None:
        ax.set_title("thin: simultaneous", loc="left", fontsize="x-small", color=GREY)
    return framed(ax)


def _check_simultaneous(simultaneous: pd.DataFrame | None, table: pd.DataFrame) -> None:
    if simultaneous is not None and not (
        simultaneous.shape == table.shape and simultaneous.iloc[:, 0].equals(table.iloc[:, 0])
    ):
        raise ValueError(
            "`simultaneous` must have the rows of `table`: `model.effect(term, simultaneous=True)` of the same term, "
            f"got {simultaneous.shape} beside {table.shape}."
        )


def _beside(share: float, span: float) -> float:
    """What to add to a span of values so that this share of the axes is beside them."""
    return share / (1.0 - share) * span


def _lines(ax: Axes, x: Values, mean: Values, band: Band, outer: Band | None) -> None:
    """A number's mean as a curve, with bands."""
    if outer is not None:
        ax.fill_between(x, outer[0], outer[1], color=SKY, alpha=0.25, lw=0, label="simultaneous")
        for limit in outer:
            ax.plot(x, limit, color=SKY, lw=0.8, ls="--")
    ax.fill_between(x, band[0], band[1], color=SKY, alpha=0.55, lw=0, label="pointwise")
    ax.plot(x, mean, color=BLUE, lw=1.8)


def _points(ax: Axes, x: Values, mean: Values, band: Band, outer: Band | None) -> None:
    """A discrete number's mean as points, with bars; the faint line joins them for the eye alone."""
    if outer is not None:
        ax.vlines(x, outer[0], outer[1], color=SKY, lw=1, ls="--", label="simultaneous")
    ax.vlines(x, band[0], band[1], color=SKY, lw=3, label="pointwise")
    ax.plot(x, mean, color=BLUE, lw=0.7, alpha=0.35)
    ax.plot(x, mean, color=BLUE, marker="o", ms=4.5, ls="")


def _histogram(
    ax: Axes, marginal: pd.DataFrame, values: Values | None = None
) -> tuple[Float[np.ndarray, " bars"], Float[np.ndarray, " bars"]]:
    """Where the data are, beneath a curve, or a bar at each of these values; returns where the bars start and end."""
    check_columns(marginal, "marginal", ["lower", "upper", "share"], "`model.marginal(name)`")
    start, end, share = (np.asarray(marginal[c], dtype=float) for c in ("lower", "upper", "share"))
    if not np.all(end > start):
        raise ValueError("`marginal` must have bars with `lower` below `upper`.")
    density = share / (end - start)
    if values is not None and (own := shares_at(values, start, share)) is not None:
        half = np.clip(0.3 * np.diff(values).min(), NARROWEST * np.ptp(values), WIDEST * np.ptp(values))
        start, end, density = values - half, values + half, own
    ax.bar(
        start,
        TALLEST * density / max(density.max(initial=0.0), 1e-300),
        end - start,
        align="edge",
        color="0.8",
        edgecolor="white",
        linewidth=0.4,
        transform=ax.get_xaxis_transform(),
        zorder=0,
    )
    return start, end


def _shown_levels(mean: Float[np.ndarray, " levels"]) -> tuple[np.ndarray, Float[np.ndarray, " shown"]]:
    """Which levels are shown, and where: all, or with an empty row for those left out the highest and the lowest."""
    n, half = len(mean), MOST_LEVELS // 2
    if n <= MOST_LEVELS:
        return np.arange(n), np.arange(float(n))
    order = np.argsort(-mean, kind="stable")
    places = np.concatenate([np.arange(half), half + 1.0 + np.arange(half)])
    return np.concatenate([order[:half], order[-half:]]), places


def _shares(ax: Axes, marginal: pd.DataFrame, names: list[object], places: Float[np.ndarray, " shown"]) -> None:
    """How common each level is, at the right."""
    check_columns(marginal, "marginal", ["level", "share"], "`model.marginal(name)`")
    share = dict(zip(marginal["level"], np.asarray(marginal["share"], dtype=float), strict=True))
    shares = np.array([share.get(name, 0.0) for name in names])
    length = LONGEST * shares / max(shares.max(initial=0.0), 1e-300)
    ax.barh(places, -length, 0.7, left=1.0, color="0.85", lw=0, transform=ax.get_yaxis_transform(), zorder=0)
    ax.set_title("share of rows", loc="right", fontsize="x-small", color=GREY)


def _ticks(
    ax: Axes,
    table: pd.DataFrame,
    x: Values,
    marks: Values | None,
    missing: list[float] | None,
    span: tuple[float, float],
) -> None:
    """Ticks of a number: at few values, at round dates or numbers; and the missing values, where there are some."""
    said = functools.partial(value_text, table, 0)
    if missing is not None:
        _missing_point(ax, span, marks, missing, said, are_dates=is_date(table, 0))
    elif marks is not None:
        ticks = _apart(ax, marks, said)
        ax.set_xticks(ticks, [said(t) for t in ticks])
    elif is_date(table, 0):
        date_ticks(ax.xaxis)
    else:
        is_whole = is_discrete(table, 0) and bool((x == x.round()).all())
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True) if is_whole else round_ticks())


def _apart(ax: Axes, values: Values, said: Callable[[float], str]) -> list[float]:
    """The values whose labels do not touch, from the left."""
    low, high = ax.get_xlim()
    each = LETTER * (high - low) / size_in_points(ax)[0]
    kept: list[float] = []
    end = -np.inf
    for value in values:
        half = 0.5 * each * (len(said(value)) + 1)
        if value - half >= end:
            kept.append(float(value))
            end = value + half
    return kept


def _missing_point(
    ax: Axes,
    span: tuple[float, float],
    marks: Values | None,
    point: list[float],
    said: Callable[[float], str],
    *,
    are_dates: bool,
) -> None:
    """The effect of a missing value (mean, lower, upper, and an outer band) right of the numbers, with a tick."""
    (first, last), (mean, low, high, outer_low, outer_high) = span, point
    # the axis is some 1.3 times as long as the range; the word is 45 points wide
    in_points = 1.3 * (last - first) / size_in_points(ax)[0]
    away = 0.12 * (last - first)
    if marks is not None:  # the last value has its label too
        away = max(away, (28.0 + 0.5 * LETTER * len(said(last))) * in_points)
    place = last + away
    ax.axvline(last + 0.04 * (last - first), color="0.8", lw=0.8)
    if (outer_low, outer_high) != (low, high):
        ax.vlines(place, outer_low, outer_high, color=SKY, lw=1, ls="--")
    ax.vlines(place, low, high, color=SKY, lw=3)
    ax.plot([place], [mean], color=BLUE, marker="o", ms=4.5, ls="")
    clear = last if marks is not None else place - 45.0 * in_points
    n_ticks = min(max(ax.xaxis.get_tick_space() - 1, 2), 6)
    ax.set_xlim(ax.get_xlim()[0], place + 0.08 * (last - first))
    if are_dates:
        found = _apart(ax, np.round(np.linspace(first, clear, 3)), said)
    elif marks is not None:
        found = _apart(ax, marks, said)
    else:
        found = MaxNLocator(n_ticks, steps=[1, 2, 5, 10]).tick_values(first, last)
    ticks = [t for t in found if first <= t <= clear]
    ax.set_xticks([*ticks, place], [*map(said, ticks), "missing"])
