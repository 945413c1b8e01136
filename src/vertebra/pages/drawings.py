"""The small drawings of a report, which need no script: who reads what, and how values are spread."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.pages.words import short

# Bars of a histogram, which is a few centimetres wide.
MOST_BARS = 40
# Pixels: a box of text and the gap to the next, and the width of an input's, which holds some 24 letters.
STEP, WIDTH, MOST_LETTERS = 34, 190, 24


class Line(NamedTuple):
    """From a place, bent, by so much."""

    x: float
    y: float
    across: float
    down: float


class Box(NamedTuple):
    """Text in a frame; `y` is its middle."""

    x: float
    y: float
    width: float
    text: str


class Bar(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class Drawing(NamedTuple):
    width: int
    height: int
    label: str
    lines: list[Line]
    boxes: list[Box]


def skeleton(clusters: Sequence[tuple[str, ...]]) -> Drawing:
    """Inputs, the sub-networks that read them, and their sum."""
    names = list(dict.fromkeys(name for cluster in clusters for name in cluster))
    height = STEP * max(len(names), len(clusters)) + 20
    left = {name: height * (i + 0.5) / len(names) for i, name in enumerate(names)}
    middle = [height * (j + 0.5) / len(clusters) for j in range(len(clusters))]
    lines = []
    for y, cluster in zip(middle, clusters, strict=True):
        lines += [Line(WIDTH + 10, left[name], 150, y - left[name]) for name in cluster]
        lines.append(Line(WIDTH + 250, y, 115, height / 2 - y))
    boxes = [Box(10, y, WIDTH, short(name, MOST_LETTERS)) for name, y in left.items()]
    boxes += [Box(WIDTH + 160, y, 90, f"f{j + 1}") for j, y in enumerate(middle)]
    boxes.append(Box(WIDTH + 365, height / 2, 60, "⊕ f"))
    label = f"{len(names)} inputs, {len(clusters)} sub-networks, one sum"
    return Drawing(WIDTH + 440, height, label, lines, boxes)


def spark(shares: Float[np.ndarray, " bars"]) -> list[Bar]:
    """A histogram in a box of 100 by 20."""
    shown = shares[:MOST_BARS]
    top = max(float(shown.max(initial=0.0)), 1e-12)
    step = 100.0 / max(len(shown), 1)
    return [Bar(i * step, 20 - 20 * s / top, step * 0.9, 20 * s / top) for i, s in enumerate(shown)]
