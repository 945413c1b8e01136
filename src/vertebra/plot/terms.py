"""All terms of a model: their strengths in order, and who acts with whom."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon

from vertebra.effects.words import probability_words, with_copies
from vertebra.plot.marks import (
    BLUE,
    DOUBTFUL,
    GREY,
    ORANGE,
    SKY,
    axes_for,
    bars,
    framed,
    message,
    plain_text,
    size_in_points,
    term_text,
    with_unit,
)
from vertebra.plot.tables import Explained, Found, found_in

# The name of a term's order, and its mark.
ORDERS = {1: ("main effect", "o"), 2: ("pair", "s"), 3: ("triple", "^")}
HIGHER = ("higher order", "D")
# Inputs round the circle from which their labels are turned, so as not to touch.
CROWDED = 12


def strengths(
    effects: pd.DataFrame | Explained, ax: Axes | None = None, *, most: int = 20, unit: str | None = None
) -> Axes:
    """`model.effects()`, or a model: every term's strength with its interval, and the probability that it is real.

    Terms that are more likely not real (probability below 0.5) are faded.

    >>> ax = vb.plot.strengths(model.effects(), most=3)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x3', 'x0', 'x1', '… and 1 more']
    """
    effects = effects.effects() if isinstance(effects, Explained) else effects
    found = found_in(effects)
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    shown, left_out = found[:most], len(found[most:])
    ax = axes_for(ax, (5.2, 1.2 + 0.26 * max(len(shown) + (left_out > 0), 3)))
    if not found:
        return message(ax, "no terms")
    beside = ax.get_yaxis_transform()
    for place, (term, strength, low, high, p) in enumerate(shown):
        alpha = 0.4 if p < DOUBTFUL else 1.0
        said = probability_words(p, 2).replace(" ", "")  # a margin is narrow
        bars(ax, [strength], [low], [high], [place], marker=_kind(term)[1], alpha=alpha)
        ax.text(1.02, place, said, transform=beside, va="center", alpha=alpha, fontsize="small")
    ax.text(1.02, -0.75, "P(real)", transform=beside, va="bottom", fontsize="x-small", color=GREY)
    copies = effects.attrs.get("copies", {})
    labels = [term_text(with_copies(row.term, copies)) for row in shown] + (
        [f"… and {left_out} more"] if left_out else []
    )
    ax.set_yticks(range(len(labels)), labels)
    for i, label in enumerate(ax.get_yticklabels()):
        label.set_alpha(0.5 if i == len(shown) or shown[i].probability < DOUBTFUL else 1.0)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlim(0.0, 1.06 * max(max(row.strength, row.upper) for row in shown) or 1.0)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(with_unit("strength", unit))
    kinds = sorted({_kind(row.term) for row in shown}, key=[*ORDERS.values(), HIGHER].index)
    if len(kinds) > 1:
        handles = [Line2D([], [], color=BLUE, marker=marker, ls="", ms=4.5, label=name) for name, marker in kinds]
        ax.legend(handles=handles, frameon=False, fontsize="small", loc="lower right")
    return framed(ax)


def interactions(effects: pd.DataFrame | Explained, ax: Axes | None = None, *, most: int = 15) -> Axes:
    """`model.effects()`, or a model, as a network: inputs are discs, pairs lines, triples filled triangles.

    Discs are sized by the strength of the main effect, lines by that of the pair, triangles shaded by that of the
    triple; what is more likely not real (probability below 0.5) is dashed. Inputs stand beside those they act with.
    Of many interactions the `most` strongest are drawn, with the inputs that they join, and the others counted.

    >>> ax = vb.plot.interactions(model.effects())
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    found, left_out = _strongest([row for row in found_in(effects) if row.strength > 0], most)
    mains = {row.term[0]: row.strength for row in found if len(row.term) == 1}
    pairs = [row for row in found if len(row.term) == 2]
    groups = [row for row in found if len(row.term) > 2]
    if not pairs and not groups:
        return message(axes_for(ax, (5.4, 5.0)), "no interactions")
    inputs = _round_the_circle([row.term for row in found if len(row.term) > 1], list(mains))
    is_crowded = len(inputs) > CROWDED
    ax = axes_for(ax, (6.4, 6.2) if is_crowded else (5.4, 5.0))
    ax.set_axis_off()
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(inputs)) / len(inputs)
    spots = dict(zip(inputs, np.column_stack([np.cos(angles), np.sin(angles)]), strict=True))
    for row in pairs:
        width = 0.8 + 5.2 * row.strength / pairs[0].strength
        line = np.column_stack([spots[name] for name in row.term])
        ax.plot(*line, color=BLUE, lw=width, ls=_dashed(row), alpha=0.75, zorder=2)
    for row in groups:
        corners = [spots[name] for name in sorted(row.term, key=inputs.index)]
        shade = 0.12 + 0.28 * row.strength / groups[0].strength
        face, edge = to_rgba(ORANGE, shade), to_rgba(ORANGE, 0.7)
        ax.add_patch(Polygon(corners, facecolor=face, edgecolor=edge, lw=0.8, ls=_dashed(row), zorder=1))
    least, biggest = 20.0, (0.06 * min(size_in_points(ax))) ** 2 * (0.5 if is_crowded else 1.0)
    scale = (biggest - least) / max(mains.values(), default=1.0)
    sizes = [least + scale * mains.get(name, 0.0) for name in inputs]
    faces = [SKY if name in mains else "white" for name in inputs]
    ax.scatter(
        *np.column_stack(list(spots.values())), s=sizes, c=faces, edgecolors=BLUE, linewidths=1, zorder=3, clip_on=False
    )
    labels = [plain_text(name, 14 if is_crowded else 20) for name in inputs]
    for label, angle, size in zip(labels, angles, sizes, strict=True):
        # s of `scatter` is the square of the diameter in points.
        _round_label(ax, label, angle, 0.5 * size**0.5 + 5.0, turned=is_crowded)
    # A letter is about 1/40 of the half width of the axes: turned labels fit inside them.
    reach = 1.1 / (1.0 - max(map(len, labels)) / 40.0) if is_crowded else 1.15
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    if left_out:
        words = f"and {left_out} weaker interaction{'s' * (left_out > 1)}"
        ax.text(1.0, 1.0, words, transform=ax.transAxes, ha="right", va="bottom", fontsize="small", color=GREY)
    ax.legend(
        handles=_key(mains, pairs, groups),
        frameon=False,
        fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        # Side by side only where they are no wider than the axes.
        ncols=3 if size_in_points(ax)[0] > 280 else 1,
    )
    return ax


def _strongest(found: list[Found], most: int) -> tuple[list[Found], int]:
    """The strongest interactions with the main effects of their inputs, or all terms; and how many are left out."""
    joint = [row for row in found if len(row.term) > 1]
    if len(joint) <= most:
        return found, 0
    kept = joint[:most]
    inputs = {name for row in kept for name in row.term}
    mains = [row for row in found if len(row.term) == 1 and row.term[0] in inputs]
    return [*mains, *kept], len(joint) - most


def _kind(term: Sequence[str]) -> tuple[str, str]:
    """The name of a term's order, and its mark."""
    return ORDERS.get(len(term), HIGHER)


def _dashed(row: Found) -> str:
    return "--" if row.probability < DOUBTFUL else "-"


def _key(mains: dict[str, float], pairs: list[Found], groups: list[Found]) -> list[Artist]:
    """What the marks of `interactions` mean, with the largest strength of each kind."""
    handles: list[Artist] = []
    if mains:
        most = f"main effect, up to {max(mains.values()):.3g}"
        handles.append(Line2D([], [], marker="o", ls="", ms=9, mfc=SKY, mec=BLUE, label=most))
    if pairs:
        handles.append(Line2D([], [], color=BLUE, lw=4, alpha=0.75, label=f"pair, up to {pairs[0].strength:.3g}"))
    if groups:
        name = "triple" if all(len(row.term) == 3 for row in groups) else "triple or more"
        face, edge = to_rgba(ORANGE, 0.4), to_rgba(ORANGE, 0.7)
        handles.append(Patch(facecolor=face, edgecolor=edge, label=f"{name}, up to {groups[0].strength:.3g}"))
    return handles


def _round_the_circle(terms: list[tuple[str, ...]], others: list[str]) -> list[str]:
    """Inputs in an order in which those that act together stand near each other, the strongest terms first."""
    order: list[str] = []
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
    style: dict[str, Any] = dict(xytext=(away * x, away * y), textcoords="offset points", annotation_clip=False)
    if turned:
        side, turn = ("right", 180.0) if x < -1e-9 else ("left", 0.0)
        style |= dict(rotation=math.degrees(angle) + turn, rotation_mode="anchor", fontsize="small")
        ax.annotate(label, (x, y), ha=side, va="center", **style)
    elif abs(x) < 0.2:
        ax.annotate(label, (x, y), ha="center", va="bottom" if y > 0 else "top", **style)
    else:
        ax.annotate(label, (x, y), ha="left" if x > 0 else "right", va="center", **style)
