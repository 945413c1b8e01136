"""The figures."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Polygon
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from vertebra.inference.fitting import History
from vertebra.networks.blocks import InducingPointBlock, RandomFeatureBlock
from vertebra.networks.layer import Layer
from vertebra.networks.skeleton import Skeleton
from vertebra.terms.block import BasisBlock
from vertebra.terms.term import term_label

# Okabe & Ito's colours, told apart also by the colour-blind; what must be told apart in grey differs in form too.
BLUE, SKY, ORANGE, AMBER, GREY = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "0.45"
MEAN, SPREAD = "RdBu_r", "viridis"
HATCH = "////"

MOST_LEVELS = 20
MOST_PANELS = 8
MOST_BOXES = 25
MOST_TICKS = 25

_VALUES = ["mean", "sd", "lower", "upper"]
_ORDERS = {1: ("main effect", "o"), 2: ("pair", "s"), 3: ("triple", "^")}
_HIGHER = ("higher order", "D")


class _Found(NamedTuple):
    """What is drawn of one row of `model.effects()`."""

    term: tuple[Any, ...]
    strength: float
    lower: float
    upper: float
    probability: float


def effect(
    table: pd.DataFrame,
    ax: Any = None,
    *,
    simultaneous: pd.DataFrame | None = None,
    marginal: pd.DataFrame | None = None,
    unit: str | None = None,
) -> Any:
    """One term, `model.effect(term)`: a `curve`, `levels`, a `surface` or `slices`, by its number and kind of inputs.

    Columns of floats are numbers; text, booleans and integers are levels, as in what `model.effect` returns.
    `simultaneous` and `marginal` are for terms of one input; `ax` is one Axes, or for two and three inputs several.

    >>> ax = vb.plot.effect(model.effect("x3"))
    >>> ax.get_xlabel()
    'x3'
    """
    n_inputs = _n_inputs(table)
    if n_inputs == 1:
        draw = curve if _is_number(table.iloc[:, 0]) else levels
        return draw(table, ax, simultaneous=simultaneous, marginal=marginal, unit=unit)
    return surface(table, ax, unit=unit) if n_inputs == 2 else slices(table, ax, unit=unit)


def curve(
    table: pd.DataFrame,
    ax: Axes | None = None,
    *,
    simultaneous: pd.DataFrame | None = None,
    marginal: pd.DataFrame | None = None,
    unit: str | None = None,
) -> Axes:
    """The effect of one number: mean, pointwise band, and the missing values apart at the right.

    `simultaneous`: `model.effect(term, simultaneous=True)`, an outer band. `marginal`: the data as a histogram beneath,
    columns lower, upper, share; the area of a bar is its share.

    >>> outer = model.effect("x3", simultaneous=True)
    >>> ax = vb.plot.curve(model.effect("x3"), simultaneous=outer, marginal=model.marginal("x3"), unit="kg")
    """
    _check_inputs(table, 1)
    _check_simultaneous(simultaneous, table)
    ax = _axes(ax, (4.8, 3.4))
    x = np.asarray(table.iloc[:, 0], dtype=float)
    mean, _, low, high = _columns(table)
    outer = (low, high) if simultaneous is None else _columns(simultaneous)[2:]
    there = ~np.isnan(x)
    order = np.flatnonzero(there)[np.argsort(x[there], kind="stable")]

    ax.axhline(0.0, color=GREY, ls=":", lw=1)
    if simultaneous is not None:
        ax.fill_between(x[order], outer[0][order], outer[1][order], color=SKY, alpha=0.25, lw=0, label="simultaneous")
        for limit in outer:
            ax.plot(x[order], limit[order], color=SKY, lw=0.8, ls="--")
    ax.fill_between(x[order], low[order], high[order], color=SKY, alpha=0.55, lw=0, label="pointwise")
    ax.plot(x[order], mean[order], color=BLUE, lw=1.8)

    first, last = _range(x[there])
    if marginal is not None:
        _check_columns(marginal, "marginal", ["lower", "upper", "share"])
        start, end, share = (np.asarray(marginal[c], dtype=float) for c in ("lower", "upper", "share"))
        if not np.all(end > start):
            raise ValueError("`marginal` must have bars with `lower` below `upper`.")
        density = share / (end - start)
        ax.bar(
            start,
            0.12 * density / max(density.max(initial=0.0), 1e-300),
            end - start,
            align="edge",
            color="0.8",
            edgecolor="white",
            linewidth=0.4,
            transform=ax.get_xaxis_transform(),
            zorder=0,
        )
        first, last = min(first, start.min(initial=first)), max(last, end.max(initial=last))
    margin = 0.02 * (last - first)
    ax.set_xlim(first - margin, last + margin)
    if not there.all():
        _missing_point(ax, first, last, *(values[~there][0] for values in (mean, low, high, *outer)))
    else:
        ax.xaxis.set_major_locator(_locator())

    bottom, top = _range(np.concatenate([mean, low, high, *outer, [0.0]]))
    room = 0.05 * (top - bottom)
    # The histogram has the lowest 12 % of the axes to itself.
    ax.set_ylim(bottom - (room if marginal is None else 0.16 / 0.84 * (top + room - bottom)), top + room)
    ax.set(xlabel=_text(table.columns[0]), ylabel=_with_unit("effect", unit))
    if simultaneous is not None:
        ax.legend(frameon=False, fontsize="small")
    return _plain(ax)


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
    _check_inputs(table, 1)
    _check_simultaneous(simultaneous, table)
    names = list(table.iloc[:, 0])
    mean, _, low, high = _columns(table)
    shown, label = np.arange(len(names)), _text(table.columns[0])
    places = shown.astype(float)
    if len(names) > MOST_LEVELS:
        half = MOST_LEVELS // 2
        shown = np.argsort(-mean, kind="stable")
        shown = np.concatenate([shown[:half], shown[-half:]])
        # An empty row stands for those left out.
        places = np.concatenate([np.arange(half), half + 1.0 + np.arange(half)])
        label = f"{_text(table.columns[0])}: {half} highest and {half} lowest of {len(names)}"
    ax = _axes(ax, (4.8, 1.3 + 0.26 * max(len(shown), 3)))

    ax.axvline(0.0, color=GREY, ls=":", lw=1)
    _bars(ax, mean[shown], low[shown], high[shown], places, color=BLUE)
    limits = [mean[shown], low[shown], high[shown], [0.0]]
    if simultaneous is not None:
        *_, outer_low, outer_high = _columns(simultaneous)
        limits += [outer_low[shown], outer_high[shown]]
        ax.hlines(places, outer_low[shown], outer_high[shown], color=BLUE, lw=0.8, zorder=1.5)
    left, right = _range(np.concatenate(limits))
    room = 0.05 * (right - left)
    if marginal is not None:
        _check_columns(marginal, "marginal", ["level", "share"])
        share = dict(zip(marginal["level"], np.asarray(marginal["share"], dtype=float), strict=True))
        shares = np.array([share.get(names[i], 0.0) for i in shown])
        length = 0.15 * shares / max(shares.max(initial=0.0), 1e-300)
        where = ax.get_yaxis_transform()
        ax.barh(places, -length, 0.7, left=1.0, color="0.85", lw=0, transform=where, zorder=0)
        ax.set_title("share of rows", loc="right", fontsize="x-small", color=GREY)
    ax.set_xlim(left - room, right + (room if marginal is None else 0.2 / 0.8 * (right + room - left)))
    if len(shown) < len(names):
        ax.text(0.0, len(shown) / 2, "⋮ ", transform=ax.get_yaxis_transform(), ha="right", va="center")
    ax.set_yticks(places, [_text(names[i], 28) for i in shown])
    ax.set_ylim(places.max(initial=0.0) + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(_locator())
    ax.set(xlabel=_with_unit("effect", unit), ylabel=label)
    if simultaneous is not None:
        ax.set_title("thin: simultaneous", loc="left", fontsize="x-small", color=GREY)
    return _plain(ax)


def surface(table: pd.DataFrame, axes: Any = None, *, unit: str | None = None) -> Any:
    """The effect of two inputs: mean and standard deviation side by side, as in the paper's figures of interactions.

    `axes`: two Axes, or one for the mean alone. Cells are hatched where the band holds 0. So that signs can be told
    apart in grey, contours of the mean are dashed below 0, and few cells of levels have their mean written in them.

    >>> mean, spread = vb.plot.surface(model.effect(("x0", "x1")))
    >>> mean.get_xlabel(), mean.get_ylabel()
    ('x0', 'x1')
    """
    _check_inputs(table, 2)
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")[1]
    given = np.ravel(np.asarray(axes, dtype=object))
    if len(given) not in (1, 2):
        raise ValueError(f"`axes` must be two Axes, or one for the mean alone, got {len(given)}.")
    values, (mean, sd, low, high) = _grids(table)
    limit = np.abs(mean).max() or 1.0
    mesh = _cells(given[0], table.columns, values, mean, cmap=MEAN, norm=Normalize(-limit, limit))
    _contours(given[0], values, mean, limit)
    given[0].figure.colorbar(mesh, ax=given[0], label=_with_unit("mean effect", unit))
    if _hatched(given[0], values, (low <= 0) & (high >= 0)):
        given[0].set_title("hatched: the band holds 0", loc="right", fontsize="x-small", color=GREY)
    if len(given) == 2:
        mesh = _cells(given[1], table.columns, values, sd, cmap=SPREAD, norm=Normalize(0.0, sd.max() or 1.0))
        given[1].figure.colorbar(mesh, ax=given[1], label=_with_unit("standard deviation", unit))
        given[0].set_title("mean", loc="left", fontsize="medium")
        given[1].set_title("standard deviation", loc="left", fontsize="medium")
    return axes


def slices(table: pd.DataFrame, figure_axes: Any = None, *, unit: str | None = None) -> Any:
    """The mean effect of three inputs: over the first two, one panel per value of the third, at most 8 of them.

    `figure_axes`: the Axes of the panels; with fewer than there are values, evenly spaced ones are shown. Cells are
    hatched where the band holds 0.

    >>> grid = pd.MultiIndex.from_product([[0.0, 1.0]] * 3, names=["a", "b", "c"]).to_frame(index=False)
    >>> axes = vb.plot.slices(grid.assign(mean=grid.prod(axis=1), sd=0.1, lower=-0.2, upper=0.8))
    >>> len(axes)  # a panel for each value of c
    2
    """
    if _n_inputs(table) != 3:
        raise ValueError(
            "`table` must be of a term of three inputs, and only terms of up to three inputs can be drawn, "
            f"got {_n_inputs(table)}."
        )
    values, (mean, _, low, high) = _grids(table)
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
        mesh = _cells(ax, table.columns, values[:2], mean[:, :, k], cmap=MEAN, norm=Normalize(-limit, limit))
        _contours(ax, values[:2], mean[:, :, k], limit)
        is_hatched |= _hatched(ax, values[:2], (low[:, :, k] <= 0) & (high[:, :, k] >= 0))
        value = values[2][k]
        shown_value = f"{value:.3g}" if _are_numbers(values[2]) else _text(value, 16)
        ax.set_title(f"{_text(table.columns[2], 16)} = {shown_value}", fontsize="small")
        ax.label_outer()
    note = "; hatched: the band holds 0" if is_hatched else ""
    given[0].figure.colorbar(mesh, ax=list(given[: len(shown)]), label=_with_unit("mean effect", unit) + note)
    return figure_axes


def strengths(effects: pd.DataFrame, ax: Axes | None = None, *, most: int = 20, unit: str | None = None) -> Axes:
    """`model.effects()`: every term's strength with its interval, strongest first, and the probability that it is real.

    Terms that are more likely not real (probability below 0.5) are faded.

    >>> ax = vb.plot.strengths(model.effects(), most=3)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x3', 'x0', 'x1', '… and 1 more']
    """
    found = _found(effects)
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    shown, left_out = found[:most], len(found[most:])
    ax = _axes(ax, (5.2, 1.2 + 0.26 * max(len(shown) + (left_out > 0), 3)))
    if not found:
        return _message(ax, "no terms")
    beside = ax.get_yaxis_transform()
    for place, (term, strength, low, high, p) in enumerate(shown):
        alpha = 0.4 if p < 0.5 else 1.0
        _bars(ax, [strength], [low], [high], [place], color=BLUE, marker=_kind(term)[1], alpha=alpha)
        ax.text(1.02, place, _probability(p), transform=beside, va="center", alpha=alpha, fontsize="small")
    ax.text(1.02, -0.75, "P(real)", transform=beside, va="bottom", fontsize="x-small", color=GREY)
    labels = [_term(row.term) for row in shown] + ([f"… and {left_out} more"] if left_out else [])
    ax.set_yticks(range(len(labels)), labels)
    for i, label in enumerate(ax.get_yticklabels()):
        label.set_alpha(0.5 if i == len(shown) or shown[i].probability < 0.5 else 1.0)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlim(0.0, 1.06 * max(max(row.strength, row.upper) for row in shown) or 1.0)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(_with_unit("strength", unit))
    kinds = sorted({_kind(row.term) for row in shown}, key=[*_ORDERS.values(), _HIGHER].index)
    if len(kinds) > 1:
        handles = [Line2D([], [], color=BLUE, marker=marker, ls="", ms=4.5, label=name) for name, marker in kinds]
        ax.legend(handles=handles, frameon=False, fontsize="small", loc="lower right")
    return _plain(ax)


def interactions(effects: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """`model.effects()` as a network: a disc for each input, a line for each pair, a filled triangle for each triple.

    Discs are sized by the strength of the main effect, lines by that of the pair, triangles shaded by that of the
    triple; what is more likely not real (probability below 0.5) is dashed. Inputs stand beside those they act with.

    >>> ax = vb.plot.interactions(model.effects())
    """
    found = [row for row in _found(effects) if row.strength > 0]
    mains = {row.term[0]: row.strength for row in found if len(row.term) == 1}
    pairs = [row for row in found if len(row.term) == 2]
    groups = [row for row in found if len(row.term) > 2]
    if not pairs and not groups:
        return _message(_axes(ax, (5.4, 5.0)), "no interactions")
    inputs = _round_the_circle([row.term for row in found if len(row.term) > 1], list(mains))
    is_crowded = len(inputs) > 12
    ax = _axes(ax, (6.4, 6.2) if is_crowded else (5.4, 5.0))
    ax.set_axis_off()
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(inputs)) / len(inputs)
    spots = dict(zip(inputs, np.column_stack([np.cos(angles), np.sin(angles)]), strict=True))
    handles: list[Any] = []
    if mains:
        most = f"main effect, up to {max(mains.values()):.3g}"
        handles.append(Line2D([], [], marker="o", ls="", ms=9, mfc=SKY, mec=BLUE, label=most))
    for row in pairs:
        width = 0.8 + 5.2 * row.strength / pairs[0].strength
        line = np.column_stack([spots[name] for name in row.term])
        ax.plot(*line, color=BLUE, lw=width, ls=_dashed(row), alpha=0.75, zorder=2)
    if pairs:
        handles.append(Line2D([], [], color=BLUE, lw=4, alpha=0.75, label=f"pair, up to {pairs[0].strength:.3g}"))
    for row in groups:
        corners = [spots[name] for name in sorted(row.term, key=inputs.index)]
        shade = 0.12 + 0.28 * row.strength / groups[0].strength
        face, edge = to_rgba(ORANGE, shade), to_rgba(ORANGE, 0.7)
        ax.add_patch(Polygon(corners, facecolor=face, edgecolor=edge, lw=0.8, ls=_dashed(row), zorder=1))
    if groups:
        name = "triple" if all(len(row.term) == 3 for row in groups) else "triple or more"
        face, edge = to_rgba(ORANGE, 0.4), to_rgba(ORANGE, 0.7)
        handles.append(Patch(facecolor=face, edgecolor=edge, label=f"{name}, up to {groups[0].strength:.3g}"))
    least, biggest = 20.0, (0.06 * min(_points(ax))) ** 2 * (0.5 if is_crowded else 1.0)
    scale = (biggest - least) / max(mains.values(), default=1.0)
    sizes = [least + scale * mains.get(name, 0.0) for name in inputs]
    faces = [SKY if name in mains else "white" for name in inputs]
    ax.scatter(
        *np.column_stack(list(spots.values())), s=sizes, c=faces, edgecolors=BLUE, linewidths=1, zorder=3, clip_on=False
    )
    labels = [_text(name, 14 if is_crowded else 20) for name in inputs]
    for label, angle, size in zip(labels, angles, sizes, strict=True):
        # s of `scatter` is the square of the diameter in points.
        _round_label(ax, label, angle, 0.5 * size**0.5 + 5.0, turned=is_crowded)
    # A letter is about 1/40 of the half width of the axes: turned labels fit inside them.
    reach = 1.1 / (1.0 - max(map(len, labels)) / 40.0) if is_crowded else 1.15
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.legend(
        handles=handles,
        frameon=False,
        fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        # Side by side only where they are no wider than the axes.
        ncols=3 if _points(ax)[0] > 280 else 1,
    )
    return ax


def sparsity(norms: ArrayLike, ax: Axes | None = None, *, names: Sequence[str] | None = None) -> Axes:
    """The norms of the first layer's groups, (sub-networks, inputs), blank where one is exactly 0: not read.

    `names`: of the inputs, by default their positions.

    >>> ax = vb.plot.sparsity([[1.0, 0.0], [0.0, 0.5]], names=["size", "rent"])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('input', 'sub-network')
    """
    matrix = np.asarray(norms, dtype=float)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"`norms` must have the shape (sub-networks, inputs), as `path.norms[path.chosen]`, got {matrix.shape}."
        )
    n_rows, n_columns = matrix.shape
    if names is not None and len(names) != n_columns:
        raise ValueError(f"`names` must have one entry per input, {n_columns}, got {len(names)}.")
    ax = _axes(ax, (min(10.0, 2.2 + 0.3 * n_columns), min(8.0, 1.4 + 0.26 * n_rows)))
    # The palest colour is still far from the blank of a zero.
    colours = ListedColormap(plt.get_cmap("Blues")(np.linspace(0.3, 1.0, 256)), name="vertebra.norms")
    mesh = ax.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        np.ma.masked_equal(matrix, 0.0),
        cmap=colours,
        norm=Normalize(0.0, matrix.max() or 1.0),
        edgecolors="white",
        linewidth=0.5,
    )
    ax.figure.colorbar(mesh, ax=ax, label="group norm (blank: exactly 0)")
    _ticks(ax, "x", list(range(n_columns)) if names is None else list(names))
    _ticks(ax, "y", list(range(n_rows)))
    ax.invert_yaxis()
    ax.set(xlabel="input", ylabel="sub-network")
    return ax


def skeleton(
    skeleton: Skeleton,
    ax: Axes | None = None,
    *,
    layers: Sequence[Layer] | None = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """A skeleton S from its inputs at the left to its outputs at the right; ⊕ adds the nodes of one output.

    `layers`: their blocks stand at the head of each column, such as "RB 100 + FB 3". `names`: of the inputs.
    More than 25 inputs are folded by the nodes they go to; a column that is still too long has its middle in one box.

    >>> ax = vb.plot.skeleton(vb.additive(3, clusters=[(0, 1), (2,)], depth=2), layers=vb.random_features([3, 1]))
    """
    if layers is not None and len(layers) != skeleton.depth:
        raise ValueError(
            f"`layers` must have one entry per layer of the skeleton, {skeleton.depth}, got {len(layers)}."
        )
    if names is not None and len(names) != skeleton.n_inputs:
        raise ValueError(f"`names` must have one entry per input, {skeleton.n_inputs}, got {len(names)}.")
    columns, heads = _boxes(skeleton, names), ["inputs"]
    for level, layer in enumerate(skeleton.layers):
        activations = {node.activation for node in layer}
        below = _blocks(layers[level]) if layers is not None else ""
        shared = activations.pop() if len(activations) == 1 else ""
        heads.append("\n".join(filter(None, [f"layer {level + 1}", _text(shared, 16), below])))
    heads.append("outputs" if len(skeleton.outputs) > 1 else "output")
    tallest = max(len(column) for column in columns)
    texts = [line for head in heads for line in head.split("\n")] + [label for column in columns for label, _ in column]
    apart = max(1.1, 0.4 + 0.085 * max(map(len, texts)))
    ax = _axes(ax, (0.6 + len(columns) * apart, 1.2 + 0.34 * max(tallest, 3)))
    ax.set_axis_off()

    spots = _spots(columns)
    reads = [{node.name: node.parents for node in layer} for layer in skeleton.layers]
    reads.append({output.name: output.parents for output in skeleton.outputs})
    thin = dict(color=GREY, lw=0.9 if tallest < 10 else 0.5, zorder=1)
    for i, parents in enumerate(reads, start=1):
        for members, spot in spots[i].items():
            below = {parent for name in members for parent in parents[name]}
            end = spot
            if i == len(reads) and len(members) == 1 and len(below) > 1:
                end = (spot[0] - 0.45, spot[1])
                ax.plot(*zip(end, spot, strict=True), **thin)
                disc = dict(boxstyle="circle,pad=0", fc="white", ec="none")
                ax.text(*end, "⊕", ha="center", va="center", fontsize="x-large", bbox=disc)
            for lower, start in spots[i - 1].items():
                if below.intersection(lower):
                    ax.plot(*zip(start, end, strict=True), **thin)
    read = {parent for parents in reads[0].values() for parent in parents}
    for i, column in enumerate(columns):
        face = "white" if i in (0, len(columns) - 1) else "#D6ECF8"
        for label, members in column:
            line, ink = ("0.8", "0.65") if i == 0 and not read.intersection(members) else (BLUE, "black")
            box = dict(boxstyle="round,pad=0.3", fc=face, ec=line, lw=1)
            where = spots[i][members]
            ax.text(*where, label, ha="center", va="center", fontsize="small", color=ink, bbox=box, zorder=3)
        ax.text(i, tallest / 2 + 0.3, heads[i], ha="center", va="bottom", fontsize="small", color=GREY, linespacing=1.3)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-tallest / 2 - 0.1, tallest / 2 + 0.3))
    return ax


def waterfall(explanation: pd.DataFrame, ax: Axes | None = None, *, most: int = 12, unit: str | None = None) -> Axes:
    """One prediction from the intercept to the total: what each term adds, the largest first, with its band.

    `explanation`: columns term (() is the intercept, the first row), value, mean, lower, upper. What lowers the
    prediction is hatched; terms beyond the `most` largest are added up in one row.

    >>> ax = vb.plot.waterfall(model.explain(data.x[0]))
    >>> ax.get_yticklabels()[-1].get_text()
    'total'
    """
    _check_columns(explanation, "explanation", ["term", "value", "mean", "lower", "upper"])
    if not len(explanation) or tuple(explanation["term"].iloc[0]) != ():
        raise ValueError("`explanation` must have the intercept, the term (), as its first row.")
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    values = np.asarray(explanation[["mean", "lower", "upper"]], dtype=float)
    ranked = 1 + np.argsort(-np.abs(values[1:, 0]), kind="stable")
    shown, others = ranked[:most], ranked[most:]
    labels = ["intercept"]
    for term, value in explanation[["term", "value"]].iloc[shown].itertuples(index=False):
        labels.append(_text(value, 44) or _term(term))
    steps = values[shown, 0]
    if len(others):
        labels.append(f"{len(others)} other terms" if len(others) > 1 else "1 other term")
        steps = np.append(steps, values[others, 0].sum())
    ends = values[0, 0] + np.concatenate([[0.0], np.cumsum(steps)])
    ax = _axes(ax, (6.0, 1.1 + 0.3 * (len(labels) + 1)))

    # The band of each term, moved to where its bar begins.
    bands = np.concatenate([values[:1, 1:], ends[: len(shown), None] + values[shown, 1:]])
    for place, (step, start) in enumerate(zip(steps, ends, strict=False), start=1):
        colour, hatch = (SKY, "") if step >= 0 else (AMBER, HATCH)
        with plt.rc_context({"hatch.linewidth": 0.6}):
            ax.barh(place, step, 0.62, left=start, facecolor=colour, edgecolor="white", hatch=hatch, lw=0)
    ax.hlines(range(len(bands)), bands[:, 0], bands[:, 1], color="0.15", lw=1.2)
    for place, end in enumerate(ends):
        ax.plot([end, end], [place, place + 1], color=GREY, lw=0.7, zorder=0)
    ax.plot(ends[[0, -1]], [0, len(labels)], color="0.15", marker="D", ls="", ms=5)
    digits = _decimals(np.abs(steps).max(initial=0.0), 3)
    numbers = [f"{ends[0]:.{digits}f}", *(f"{step:+.{digits}f}" for step in steps), f"{ends[-1]:.{digits}f}"]
    beside = ax.get_yaxis_transform()
    for place, number in enumerate(numbers):
        ax.text(1.02, place, number.replace("-", "−"), transform=beside, va="center", fontsize="small")
    left, right = _range(np.concatenate([ends, bands.ravel()]))
    ax.set_xlim(left - 0.05 * (right - left), right + 0.05 * (right - left))
    ax.set_yticks(range(len(labels) + 1), [*labels, "total"])
    ax.set_ylim(len(labels) + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(_with_unit("prediction", unit))
    return _plain(ax)


def calibration(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Observed against expected shares, columns expected, observed, lower, upper, n: on the diagonal all is well.

    >>> ax = vb.plot.calibration(model.evaluation_.curve())
    """
    _check_columns(table, "table", ["expected", "observed", "lower", "upper", "n"])
    ax = _axes(ax, (3.8, 3.8))
    ax.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1)
    expected, observed, low, high = (
        np.asarray(table[c], dtype=float) for c in ("expected", "observed", "lower", "upper")
    )
    ax.vlines(expected, low, high, color=SKY, lw=2)
    ax.plot(expected, observed, color=BLUE, marker="o", ms=4.5, lw=0.8)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel="expected", ylabel="observed")
    return _plain(ax)


def training(history: History, ax: Axes | None = None) -> Axes:
    """`fitted.history`: the ELBO per row and, where it is another number, the score, by which the best step is kept.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50)
    >>> vb.plot.training(fitted.history).get_ylabel()
    'per row'
    """
    step, elbo, score = (np.asarray(part, dtype=float) for part in (history.step, history.elbo, history.score))
    if not len(step) or not len(step) == len(elbo) == len(score):
        raise ValueError(
            f"`history` must have one value per step, and a step, got {len(step)}, {len(elbo)} and {len(score)}."
        )
    ax = _axes(ax, (4.8, 3.2))
    lines = [("ELBO", elbo, BLUE, "-")]
    if not np.array_equal(score, elbo, equal_nan=True):
        lines.append(("score", score, ORANGE, "--"))
    marker = "o" if len(step) == 1 else ""
    for label, values, colour, style in lines:
        ax.plot(step, values, color=colour, ls=style, lw=1.5, marker=marker, label=label)
    if np.isfinite(score).any():
        best = int(np.nanargmax(np.where(np.isfinite(score), score, np.nan)))
        ax.plot(step[best], score[best], marker="o", ms=6, mfc="none", mec=lines[-1][2], ls="", label="best")
    # The first quarter may lie far below the rest: it may leave the picture.
    late = np.concatenate([values[len(values) // 4 :] for _, values, *_ in lines])
    late = late[np.isfinite(late)]
    if len(late):
        bottom, top = _range(late)
        ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.08 * (top - bottom))
    ax.set_xlim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set(xlabel="step", ylabel="ELBO per row" if len(lines) == 1 else "per row")
    if len(lines) > 1:
        ax.legend(frameon=False, fontsize="small", loc="lower right")
    return _plain(ax)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def _plain(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _locator() -> MaxNLocator:
    """Round numbers, as many as there is room for."""
    return MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10])


def _points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, before any layout moves them."""
    box = ax.get_window_extent()
    return 72.0 * box.width / ax.figure.dpi, 72.0 * box.height / ax.figure.dpi


def _message(ax: Axes, text: str) -> Axes:
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)
    return ax


def _text(name: Any, most: int = 40) -> str:
    """The name as it is written, never as mathematics: on one line, its middle left out where it is long."""
    name = " ".join(str(name).split())
    if len(name) > most:
        name = f"{name[: (most - 1) - (most - 1) // 3]}…{name[len(name) - (most - 1) // 3 :]}"
    return name.replace("$", r"\$")


def _term(term: Sequence[Any]) -> str:
    return term_label([_text(name, max(12, 36 // len(term))) for name in term])


def _kind(term: Sequence[Any]) -> tuple[str, str]:
    return _ORDERS.get(len(term), _HIGHER)


def _dashed(row: _Found) -> str:
    return "--" if row.probability < 0.5 else "-"


def _with_unit(label: str, unit: str | None) -> str:
    return label if unit is None else f"{label} ({_text(unit)})"


def _decimals(largest: float, digits: int) -> int:
    """Decimals that show `digits` digits of the largest of some numbers, at most 6."""
    return min(max(digits - 1 - math.floor(math.log10(max(largest, 1e-6))), 0), 6)


def _probability(p: float) -> str:
    if np.isnan(p):
        return ""
    return ">0.99" if p > 0.99 else "<0.01" if p < 0.01 else f"{p:.2f}"


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_float_dtype(column)


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, float) for value in values)


def _range(values: np.ndarray) -> tuple[float, float]:
    """The least and the greatest, apart from each other."""
    low, high = (float(np.min(values)), float(np.max(values))) if len(values) else (0.0, 1.0)
    if high > low:
        return low, high
    away = 0.5 * (abs(low) or 1.0)
    return low - away, high + away


def _n_inputs(table: pd.DataFrame) -> int:
    if len(table.columns) < 5 or list(table.columns[-4:]) != _VALUES or not len(table):
        raise ValueError(
            f"`table` must be what `model.effect` returns, inputs and then mean, sd, lower, upper, "
            f"got columns {list(table.columns)} and {len(table)} rows."
        )
    return len(table.columns) - 4


def _check_inputs(table: pd.DataFrame, n: int) -> None:
    if _n_inputs(table) != n:
        raise ValueError(f"`table` must be of a term of {n} input{'s' if n > 1 else ''}, got {_n_inputs(table)}.")


def _check_simultaneous(simultaneous: pd.DataFrame | None, table: pd.DataFrame) -> None:
    if simultaneous is not None and not (
        simultaneous.shape == table.shape and simultaneous.iloc[:, 0].equals(table.iloc[:, 0])
    ):
        raise ValueError(
            "`simultaneous` must have the rows of `table`: `model.effect(term, simultaneous=True)` of the same term, "
            f"got {simultaneous.shape} beside {table.shape}."
        )


def _check_columns(table: pd.DataFrame, argument: str, columns: list[str]) -> None:
    if [name for name in columns if list(table.columns).count(name) != 1]:
        raise ValueError(f"`{argument}` must have the columns {', '.join(columns)}, got {list(table.columns)}.")


def _found(effects: pd.DataFrame) -> list[_Found]:
    """The rows of `model.effects()`, strongest first."""
    names = list(_Found._fields)
    _check_columns(effects, "effects", names)
    rows = [_Found(tuple(term), *map(float, rest)) for term, *rest in effects[names].itertuples(index=False)]
    return sorted(rows, key=lambda row: -row.strength)


def _columns(table: pd.DataFrame) -> list[np.ndarray]:
    """Mean, sd, lower, upper, by position: an input may have one of these names."""
    return [np.asarray(table.iloc[:, i], dtype=float) for i in range(-4, 0)]


def _bars(ax: Axes, middle, low, high, places, *, color, marker="o", alpha=1.0) -> None:
    ax.hlines(places, low, high, color=color, lw=2.0, alpha=alpha)
    ax.plot(middle, places, color=color, marker=marker, ls="", ms=4.5, alpha=alpha)


def _missing_point(ax: Axes, first: float, last: float, mean, low, high, outer_low, outer_high) -> None:
    """The effect of a missing value, right of the numbers, with a tick of its own."""
    span = last - first
    place = last + 0.12 * span
    ax.axvline(last + 0.04 * span, color="0.8", lw=0.8)
    if (outer_low, outer_high) != (low, high):
        ax.vlines(place, outer_low, outer_high, color=SKY, lw=1, ls="--")
    ax.vlines(place, low, high, color=SKY, lw=3)
    ax.plot([place], [mean], color=BLUE, marker="o", ms=4.5, ls="")
    # The word is some 45 points wide.
    clear = place - 1.3 * span * 45.0 / _points(ax)[0]
    n_ticks = min(max(ax.xaxis.get_tick_space() - 1, 2), 6)
    ticks = [t for t in MaxNLocator(n_ticks, steps=[1, 2, 5, 10]).tick_values(first, last) if first <= t <= clear]
    ax.set_xticks([*ticks, place], [*(f"{t:.10g}".replace("-", "−") for t in ticks), "missing"])
    ax.set_xlim(ax.get_xlim()[0], place + 0.08 * span)


def _grids(table: pd.DataFrame) -> tuple[list[list[Any]], list[np.ndarray]]:
    """The values of each input, and mean, sd, lower, upper as arrays over all their combinations."""
    codes, values = [], []
    for i in range(len(table.columns) - 4):
        code, distinct = pd.factorize(table.iloc[:, i], sort=_is_number(table.iloc[:, i]))
        codes.append(code)
        values.append(distinct.tolist())
    shape = tuple(len(v) for v in values)
    if len(table) != math.prod(shape) or any((code < 0).any() for code in codes):
        raise ValueError(
            f"`table` must have one row per combination of its inputs, {math.prod(shape)}, got {len(table)}."
        )
    grids = []
    for column in _columns(table):
        grid = np.full(shape, np.nan)
        grid[tuple(codes)] = column
        grids.append(grid)
    return values, grids


def _edges(values: list[Any]) -> np.ndarray:
    """Where the cell of each value begins and ends: halfway between numbers, and unit steps for levels."""
    if not _are_numbers(values):
        return np.arange(len(values) + 1) - 0.5
    x = np.array(values)
    if len(x) == 1:
        return x[0] + 0.5 * (abs(x[0]) or 1.0) * np.array([-1.0, 1.0])
    between = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - between[0]], between, [2 * x[-1] - between[-1]]])


def _cells(ax: Axes, names: Any, values: list[list[Any]], grid: np.ndarray, *, cmap: str, norm: Normalize) -> Any:
    """The first input along the axes' x, the second along y."""
    mesh = ax.pcolormesh(_edges(values[0]), _edges(values[1]), grid.T, cmap=cmap, norm=norm, rasterized=True)
    for axis, value in zip("xy", values, strict=True):
        if _are_numbers(value):
            getattr(ax, f"{axis}axis").set_major_locator(_locator())
        else:
            _ticks(ax, axis, value)
    ax.set(xlabel=_text(names[0], 28), ylabel=_text(names[1], 28))
    return mesh


def _ticks(ax: Axes, axis: str, names: list[Any]) -> None:
    """One tick per name, or where they are many, at even steps."""
    step = math.ceil(len(names) / MOST_TICKS)
    labels = [_text(name, 18) for name in names[::step]]
    places = range(0, len(names), step)
    if axis == "y":
        ax.set_yticks(places, labels)
    elif sum(map(len, labels)) > 24 and max(map(len, labels)) > 2:
        ax.set_xticks(places, labels, rotation=40, ha="right", rotation_mode="anchor")
    else:
        ax.set_xticks(places, labels)
    getattr(ax, f"{axis}axis").set_tick_params(length=0)


def _contours(ax: Axes, values: list[list[Any]], grid: np.ndarray, limit: float) -> None:
    """The sign without colour: contours, dashed below 0, between numbers; of few levels, the means written out."""
    is_number = [_are_numbers(value) for value in values]
    if all(is_number) and min(grid.shape) > 1:
        heights = [h for h in MaxNLocator(14).tick_values(-limit, limit) if h != 0 and grid.min() < h < grid.max()]
        if heights:
            styles = ["dashed" if h < 0 else "solid" for h in heights]
            ax.contour(*values, grid.T, heights, colors="0.25", linewidths=0.6, linestyles=styles, alpha=0.7)
    elif not any(is_number) and grid.shape[0] <= 8 and grid.shape[1] <= 10:
        for (i, j), mean in np.ndenumerate(grid):
            ink = "white" if abs(mean) > 0.7 * limit else "black"
            label = f"{mean:+.{_decimals(limit, 2)}f}".replace("-", "−")
            text = ax.text(i, j, label, ha="center", va="center", fontsize="x-small", color=ink, clip_on=True)
            text.set_path_effects([withStroke(linewidth=2, foreground="black" if ink == "white" else "white")])


def _hatched(ax: Axes, values: list[list[Any]], where: np.ndarray) -> bool:
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


def _round_the_circle(terms: list[tuple], others: list[Any]) -> list[Any]:
    """Inputs in an order in which those that act together stand near each other, the strongest terms first."""
    order: list[Any] = []
    left = list(terms)
    while left:
        # The strongest term that touches the last inputs placed, else the strongest of all.
        near = next((t for name in reversed(order) for t in left if name in t), left[0])
        left.remove(near)
        order += [name for name in near if name not in order]
    return order + [name for name in others if name not in order]


def _round_label(ax: Axes, label: str, angle: float, away: float, *, turned: bool) -> None:
    """A label outside the circle, `away` points from the place at `angle`; where `turned`, along the ray."""
    x, y = math.cos(angle), math.sin(angle)
    style = dict(xytext=(away * x, away * y), textcoords="offset points", annotation_clip=False)
    if turned:
        side, turn = ("right", 180.0) if x < -1e-9 else ("left", 0.0)
        style |= dict(rotation=math.degrees(angle) + turn, rotation_mode="anchor", fontsize="small")
        ax.annotate(label, (x, y), ha=side, va="center", **style)
    elif abs(x) < 0.2:
        ax.annotate(label, (x, y), ha="center", va="bottom" if y > 0 else "top", **style)
    else:
        ax.annotate(label, (x, y), ha="left" if x > 0 else "right", va="center", **style)


def _blocks(layer: Layer) -> str:
    """Such as "RB 100 + FB 3"."""
    short = {RandomFeatureBlock: "RB", InducingPointBlock: "IPB", BasisBlock: "BB"}
    names = [f"{short.get(type(block), type(block).__name__)} {block.r}" for block in layer.features]
    return " + ".join([*names, f"FB {layer.width}"])


def _boxes(skeleton: Skeleton, names: Sequence[str] | None) -> list[list[tuple[str, tuple[str, ...]]]]:
    """For the inputs, each layer and the outputs: boxes, each a label and the names of what it holds."""
    label = dict(zip(skeleton.inputs, skeleton.inputs if names is None else names, strict=True))
    inputs = [(_text(label[name], 16), (name,)) for name in skeleton.inputs]
    if len(inputs) > MOST_BOXES:
        children: dict[str, list[str]] = {name: [] for name in skeleton.inputs}
        for node in skeleton.layers[0]:
            for parent in node.parents:
                children[parent].append(node.name)
        alike: dict[tuple[str, ...], list[str]] = {}
        for name in skeleton.inputs:
            alike.setdefault(tuple(children[name]), []).append(name)
        inputs = [(_span([label[name] for name in group]), tuple(group)) for group in alike.values()]
    columns = [inputs]
    for layer in skeleton.layers:
        mixed = len({node.activation for node in layer}) > 1
        columns.append(
            [(_text(n.name, 16) + (f": {_text(n.activation, 10)}" if mixed else ""), (n.name,)) for n in layer]
        )
    columns.append([(_text(output.name, 16), (output.name,)) for output in skeleton.outputs])
    return [_shortened(column) for column in columns]


def _spots(columns: list[list[tuple[str, tuple[str, ...]]]]) -> list[dict[tuple[str, ...], tuple[float, float]]]:
    """Where each box stands: its column, and its height about the middle, short columns spread a little."""
    tallest = max(len(column) for column in columns)
    spots = []
    for i, column in enumerate(columns):
        n = len(column)
        step = min(max(1.0, 0.75 * tallest / n), (tallest - 1) / max(n - 1, 1))
        spots.append({members: (float(i), step * ((n - 1) / 2 - j)) for j, (_, members) in enumerate(column)})
    return spots


def _span(group: list[str]) -> str:
    if len(group) <= 2:
        return ", ".join(_text(name, 10) for name in group)
    return f"{_text(group[0], 10)} … {_text(group[-1], 10)}"


def _shortened(column: list[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """A column with its middle in one box where it is too long."""
    if len(column) <= MOST_BOXES:
        return column
    ends = MOST_BOXES // 4
    middle = column[ends:-ends]
    return [
        *column[:ends],
        (f"… {len(middle)} more …", tuple(n for _, members in middle for n in members)),
        *column[-ends:],
    ]
