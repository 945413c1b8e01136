"""One prediction, taken apart."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from vertebra.plot.marks import (
    AMBER,
    GREY,
    HATCH,
    SKY,
    axes_for,
    decimals,
    framed,
    plain_text,
    span_of,
    term_text,
    with_unit,
)
from vertebra.plot.tables import check_columns


def waterfall(explanation: pd.DataFrame, ax: Axes | None = None, *, most: int = 12, unit: str | None = None) -> Axes:
    """One prediction from the intercept to the total: what each term adds, the largest first, with its band.

    `explanation`: columns term (() is the intercept, the first row), value, mean, lower, upper. What lowers the
    prediction is hatched; terms beyond the `most` largest are added up in one row.

    >>> ax = vb.plot.waterfall(model.explain(data.x[0]))
    >>> ax.get_yticklabels()[-1].get_text()
    'total'
    """
    check_columns(explanation, "explanation", ["term", "value", "mean", "lower", "upper"], "`model.explain(row)`")
    if not len(explanation) or tuple(explanation["term"].iloc[0]) != ():
        raise ValueError("`explanation` must have the intercept, the term (), as its first row.")
    if most < 1:
        raise ValueError(f"`most` must be at least 1, got {most}.")
    values = np.asarray(explanation[["mean", "lower", "upper"]], dtype=float)
    ranked = 1 + np.argsort(-np.abs(values[1:, 0]), kind="stable")
    shown, others = ranked[:most], ranked[most:]
    labels = ["intercept"]
    for term, value in explanation[["term", "value"]].iloc[shown].itertuples(index=False):
        labels.append(plain_text(value, 44) or term_text(term))
    steps = values[shown, 0]
    if len(others):
        labels.append(f"{len(others)} other terms" if len(others) > 1 else "1 other term")
        steps = np.append(steps, values[others, 0].sum())
    ends = values[0, 0] + np.concatenate([[0.0], np.cumsum(steps)])
    ax = axes_for(ax, (6.0, 1.1 + 0.3 * (len(labels) + 1)))

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
    digits = decimals(np.abs(steps).max(initial=0.0), 3)
    numbers = [f"{ends[0]:.{digits}f}", *(_signed(step, digits) for step in steps), f"{ends[-1]:.{digits}f}"]
    beside = ax.get_yaxis_transform()
    for place, number in enumerate(numbers):
        ax.text(1.02, place, number.replace("-", "−"), transform=beside, va="center", fontsize="small")
    left, right = span_of(np.concatenate([ends, bands.ravel()]))
    ax.set_xlim(left - 0.05 * (right - left), right + 0.05 * (right - left))
    ax.set_yticks(range(len(labels) + 1), [*labels, "total"])
    ax.set_ylim(len(labels) + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(with_unit("prediction", unit))
    return framed(ax)


def _signed(step: float, digits: int) -> str:
    """A step with its sign; what rounds to nothing has none."""
    text = f"{step:+.{digits}f}"
    return text if float(text) else text[1:]
