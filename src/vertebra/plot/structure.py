"""Which inputs reach which sub-network: the norms of the first layer, and the skeleton."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from numpy.typing import ArrayLike

from vertebra.networks.blocks import InducingPointBlock, RandomFeatureBlock
from vertebra.networks.layer import Layer, LayerOrLayers
from vertebra.networks.skeleton import COPY, Skeleton
from vertebra.plot.marks import BLUE, GREY, axes_for, named_ticks, plain_text
from vertebra.terms.block import BasisBlock

# Boxes of a column: a figure of them is about as tall as a page.
MOST_BOXES = 25

# A label, and the names of what the box holds.
Box = tuple[str, tuple[str, ...]]
# Where each box of a column stands.
Spots = dict[tuple[str, ...], tuple[float, float]]


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
    ax = axes_for(ax, (min(10.0, 2.2 + 0.3 * n_columns), min(8.0, 1.4 + 0.26 * n_rows)))
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
    named_ticks(ax, "x", list(range(n_columns)) if names is None else list(names))
    named_ticks(ax, "y", list(range(n_rows)))
    ax.invert_yaxis()
    ax.set(xlabel="input", ylabel="sub-network")
    return ax


def skeleton(
    skeleton: Skeleton,
    ax: Axes | None = None,
    *,
    layers: Sequence[LayerOrLayers] | None = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """A skeleton S from its inputs at the left to its outputs at the right; ⊕ adds the nodes of one output.

    `layers`: their blocks stand at the head of each column, such as "RB 100 + FB 3", or at each node that has blocks
    of its own. `names`: of the inputs.
    Nodes that copy are small rings on dashed lines: a skip across layers. Tied nodes say whose weights they share.
    More than 25 inputs are folded by the nodes they go to; a column that is still too long has its middle in one box.

    >>> ax = vb.plot.skeleton(vb.additive(3, clusters=[(0, 1), (2,)], depth=2), layers=vb.random_features([3, 1]))
    """
    if not isinstance(skeleton, Skeleton):
        raise ValueError(
            f"`skeleton` must be a skeleton, such as `vb.as_network(model).skeleton`, got {type(skeleton).__name__}."
        )
    if layers is not None and len(layers) != skeleton.depth:
        raise ValueError(
            f"`layers` must have one entry per layer of the skeleton, {skeleton.depth}, got {len(layers)}."
        )
    if names is not None and len(names) != skeleton.n_inputs:
        raise ValueError(f"`names` must have one entry per input, {skeleton.n_inputs}, got {len(names)}.")
    columns, heads = _boxes(skeleton, names, layers), ["inputs"]
    for level, layer in enumerate(skeleton.layers):
        activations = {node.activation for node in layer if node.activation != COPY}
        above = None if layers is None else layers[level]
        below = _blocks(above) if isinstance(above, Layer) else ""
        shared = activations.pop() if len(activations) == 1 else ""
        heads.append("\n".join(filter(None, [f"layer {level + 1}", plain_text(shared, 16), below])))
    heads.append("outputs" if len(skeleton.outputs) > 1 else "output")
    tallest = max(len(column) for column in columns)
    texts = [line for head in heads for line in head.split("\n")] + [label for column in columns for label, _ in column]
    apart = max(1.1, 0.4 + 0.085 * max(map(len, texts)))
    ax = axes_for(ax, (0.6 + len(columns) * apart, 1.2 + 0.34 * max(tallest, 3)))
    ax.set_axis_off()

    spots = _spots(columns)
    reads = [{node.name: node.parents for node in layer} for layer in skeleton.layers]
    reads.append({output.name: output.parents for output in skeleton.outputs})
    copies = {node.name for layer in skeleton.layers for node in layer if node.activation == COPY}
    _draw_edges(ax, spots, reads, copies, dict(color=GREY, lw=0.9 if tallest < 10 else 0.5, zorder=1))
    read = {parent for parents in reads[0].values() for parent in parents}
    for i, column in enumerate(columns):
        face = "white" if i in (0, len(columns) - 1) else "#D6ECF8"
        _draw_boxes(ax, column, spots[i], copies, face, None if i else read)
        ax.text(i, tallest / 2 + 0.3, heads[i], ha="center", va="bottom", fontsize="small", color=GREY, linespacing=1.3)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-tallest / 2 - 0.1, tallest / 2 + 0.3))
    return ax


def _draw_edges(
    ax: Axes, spots: list[Spots], reads: Sequence[Mapping[str, Sequence[str]]], copies: set[str], thin: dict[str, Any]
) -> None:
    """Lines from what is read to what reads it; those to a node that copies are dashed, as they go through it."""
    for i, parents in enumerate(reads, start=1):
        for members, spot in spots[i].items():
            below = {parent for name in members for parent in parents[name]}
            end = spot
            if i == len(reads) and len(members) == 1 and len(below) > 1:
                end = (spot[0] - 0.45, spot[1])
                ax.plot(*zip(end, spot, strict=True), **thin)
                disc = dict(boxstyle="circle,pad=0", fc="white", ec="none")
                ax.text(*end, "⊕", ha="center", va="center", fontsize="x-large", bbox=disc)
            style = "--" if copies.issuperset(members) else "-"
            for lower, start in spots[i - 1].items():
                if below.intersection(lower):
                    ax.plot(*zip(start, end, strict=True), ls=style, **thin)


def _draw_boxes(ax: Axes, column: list[Box], spots: Spots, copies: set[str], face: str, read: set[str] | None) -> None:
    """The boxes of a column, pale where nobody reads them; a ring for each node that copies."""
    for label, members in column:
        if copies.issuperset(members):
            ax.plot(*spots[members], marker="o", ms=4, mfc="white", mec=GREY, zorder=3)
            continue
        line, ink = ("0.8", "0.65") if read is not None and not read.intersection(members) else (BLUE, "black")
        box = dict(boxstyle="round,pad=0.3", fc=face, ec=line, lw=1)
        ax.text(*spots[members], label, ha="center", va="center", fontsize="small", color=ink, bbox=box, zorder=3)


def _blocks(layer: Layer) -> str:
    """The blocks of a layer, such as "RB 100 + FB 3"."""
    short = {RandomFeatureBlock: "RB", InducingPointBlock: "IPB", BasisBlock: "BB"}
    names = [f"{short.get(type(block), type(block).__name__)} {block.r}" for block in layer.features]
    return " + ".join([*names, f"FB {layer.width}"])


def _boxes(skeleton: Skeleton, names: Sequence[str] | None, layers: Sequence[LayerOrLayers] | None) -> list[list[Box]]:
    """For the inputs, each layer and the outputs: boxes, each a label and the names of what it holds."""
    label = dict(zip(skeleton.inputs, skeleton.inputs if names is None else names, strict=True))
    inputs = [(plain_text(label[name], 16), (name,)) for name in skeleton.inputs]
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
    for level, layer in enumerate(skeleton.layers):
        given = None if layers is None else layers[level]
        own = given if isinstance(given, Mapping) else {}
        mixed = len({node.activation for node in layer if node.activation != COPY}) > 1
        columns.append(
            [
                (
                    plain_text(n.name, 16)
                    + (f": {plain_text(n.activation, 10)}" if mixed else "")
                    + ("" if n.tied is None else f", tied to {plain_text(n.tied, 16)}")
                    + (f"\n{_blocks(own[n.name])}" if n.name in own else ""),
                    (n.name,),
                )
                for n in layer
            ]
        )
    columns.append([(plain_text(output.name, 16), (output.name,)) for output in skeleton.outputs])
    return [_shortened(column) for column in columns]


def _spots(columns: list[list[Box]]) -> list[Spots]:
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
        return ", ".join(plain_text(name, 10) for name in group)
    return f"{plain_text(group[0], 10)} … {plain_text(group[-1], 10)}"


def _shortened(column: list[Box]) -> list[Box]:
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
