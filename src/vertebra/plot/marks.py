"""What every figure is drawn with: colours, words that fit, ticks, bars."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from vertebra.terms.term import term_label

# One Axes, or those of several panels, as `plt.subplots` gives them or in a list.
Panels = Axes | Sequence[Axes] | np.ndarray

# Okabe & Ito's colours, told apart also by the colour-blind; what must be told apart in grey differs in form too.
BLUE, SKY, ORANGE, AMBER, GREY = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "0.45"
HATCH = "////"
# A term of a lower probability is more likely not real: it is faded, or dashed.
DOUBTFUL = 0.5
# Names along an axis: more of them, in a figure of usual size, touch each other.
MOST_TICKS = 25
# Letters of numbers side by side along x, spaces among them.
MOST_LETTERS = 32


class Look(NamedTuple):
    """How one of several lines is told from the others: in colour, and in grey by its dashes or its marker."""

    colour: str
    dashes: str
    marker: str


LINES = (
    Look(BLUE, "-", "o"),
    Look(ORANGE, "--", "s"),
    Look("#009E73", ":", "D"),
    Look("#CC79A7", "-.", "^"),
    Look(AMBER, "-", "P"),
    Look(SKY, "--", "X"),
)


def axes_for(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes that were given, or new ones in a figure of this size, in inches."""
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def framed(ax: Axes) -> Axes:
    """The axes with a line at the left and one beneath, and no others."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def round_ticks() -> MaxNLocator:
    """Ticks at round numbers, as many as there is room for."""
    return MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10])


def date_ticks(axis: Axis) -> None:
    """Ticks at round dates; days since 1970 are the numbers that matplotlib has for dates."""
    locator = AutoDateLocator(minticks=3, maxticks=6)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


def named_ticks(ax: Axes, axis: str, names: list[object], *, are_values: bool = False) -> None:
    """Ticks, one per name, or where they are many, at even steps; of values along x, as many as stand side by side."""
    step = math.ceil(len(names) / MOST_TICKS)
    if are_values and axis == "x":
        step = math.ceil(sum(len(str(name)) + 1 for name in names) / MOST_LETTERS)
    labels = [plain_text(name, 18) for name in names[::step]]
    places = range(0, len(names), step)
    if axis == "y":
        ax.set_yticks(places, labels)
    elif not are_values and sum(map(len, labels)) > 24 and max(map(len, labels)) > 2:
        # side by side there is room for some 24 letters
        ax.set_xticks(places, labels, rotation=40, ha="right", rotation_mode="anchor")
    else:
        ax.set_xticks(places, labels)
    getattr(ax, f"{axis}axis").set_tick_params(length=0)


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, before any layout moves them."""
    box = ax.get_window_extent()
    return 72.0 * box.width / ax.figure.dpi, 72.0 * box.height / ax.figure.dpi


def message(ax: Axes, text: str) -> Axes:
    """Axes that say why they are empty."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)
    return ax


def plain_text(name: object, most: int = 40) -> str:
    """The name as it is written, never as mathematics: on one line, its middle left out where it is long."""
    name = " ".join(str(name).split())
    if len(name) > most:
        name = f"{name[: (most - 1) - (most - 1) // 3]}…{name[len(name) - (most - 1) // 3 :]}"
    return name.replace("$", r"\$")


def number_text(value: float) -> str:
    """A value in full, with a minus sign as ticks have it."""
    return f"{value:.10g}".replace("-", "−")


def term_text(term: Sequence[object]) -> str:
    """A term, its names the shorter the more there are."""
    return term_label([plain_text(name, max(12, 36 // len(term))) for name in term])


def with_unit(label: str, unit: str | None) -> str:
    return label if unit is None else f"{label} ({plain_text(unit)})"


def decimals(largest: float, digits: int) -> int:
    """Decimals that show `digits` digits of the largest of some numbers, at most 6."""
    return min(max(digits - 1 - math.floor(math.log10(max(largest, 1e-6))), 0), 6)


def span_of(values: np.ndarray) -> tuple[float, float]:
    """The least and the greatest, apart from each other."""
    low, high = (float(np.min(values)), float(np.max(values))) if len(values) else (0.0, 1.0)
    if high > low:
        return low, high
    away = 0.5 * (abs(low) or 1.0)
    return low - away, high + away


def bars(
    ax: Axes,
    middle: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    places: ArrayLike,
    *,
    marker: str = "o",
    alpha: float = 1.0,
) -> None:
    """Intervals along x, each with its middle marked."""
    ax.hlines(places, low, high, color=BLUE, lw=2.0, alpha=alpha)
    ax.plot(middle, places, color=BLUE, marker=marker, ls="", ms=4.5, alpha=alpha)
