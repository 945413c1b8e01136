"""One figure of a model: how strong its terms are, and the strongest as functions."""

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from vertebra.plot.effects import effect
from vertebra.plot.marks import Panels
from vertebra.plot.tables import Explained
from vertebra.plot.terms import strengths

# Panels beside each other, and inches of each: a page of a paper is 10 inches wide at the most.
N_ACROSS, WIDTH, HEIGHT = 3, 3.9, 3.1


def summary(
    model: Explained, axes: Panels | None = None, *, most: int = 5, output: int = 0, unit: str | None = None
) -> np.ndarray:
    """A fitted model in one figure: strengths, then its strongest main effects and its strongest interaction.

    `most` terms are drawn as functions; `axes` are as many Axes and one more, for the strengths. One legend says what
    the bands are.

    >>> axes = vb.plot.summary(model, most=3)
    >>> [ax.get_xlabel() for ax in axes]
    ['strength', 'x3', 'x0', 'x0']
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    found = model.effects(output=output)
    pairs = [term for term in found["term"] if len(term) == 2][:1]
    mains = [term for term in found["term"] if len(term) == 1][: most - len(pairs)]
    terms = [*mains, *pairs]
    given = _axes(axes, 1 + len(terms), ends_in_pair=bool(pairs))
    strengths(found, given[0], most=15, unit=unit)
    for term, ax in zip(mains, given[1:], strict=False):
        options: Any = dict(simultaneous=model.effect(term, simultaneous=True, output=output))
        effect(model.effect(term, output=output), ax, marginal=model.marginal(term[0]), unit=unit, **options)
        legend = ax.get_legend()
        if legend is not None and ax is not given[1]:
            legend.remove()
    for term in pairs:
        effect(model.effect(term, output=output), given[1 + len(mains)], unit=unit)
    return given


def _axes(axes: Panels | None, n: int, *, ends_in_pair: bool) -> np.ndarray:
    if axes is not None:
        given = np.ravel(np.asarray(axes, dtype=object))
        if len(given) < n:
            raise ValueError(f"`axes` must be at least {n} Axes, got {len(given)}.")
        return given[:n]
    # four are a square; of more than six, four beside each other leave fewer panels empty than three
    across = 2 if n == 4 else min(N_ACROSS + (n > 2 * N_ACROSS), n)
    down = math.ceil(n / across)
    figure, grid = plt.subplots(
        down, across, figsize=(WIDTH * across, HEIGHT * down), layout="constrained", squeeze=False
    )
    # a pair may have a colour bar: at the right end it moves no other panel
    kept = [*range(n - 1), grid.size - 1 if ends_in_pair else n - 1]
    for k in set(range(grid.size)) - set(kept):
        figure.delaxes(grid.ravel()[k])
    return grid.ravel()[kept]
