"""How a fit went: whether its shares hold, and how it was trained."""

from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from vertebra.inference.outcome import History
from vertebra.plot.marks import BLUE, GREY, ORANGE, SKY, axes_for, framed, span_of
from vertebra.plot.tables import check_columns


@runtime_checkable
class Evaluated(Protocol):
    """A model that was measured, or what was seen: it has the table of shares."""

    @property
    def evaluation_(self) -> Any: ...


def calibration(table: pd.DataFrame | Evaluated, ax: Axes | None = None) -> Axes:
    """Observed against expected shares, columns expected, observed, lower, upper, n: on the diagonal all is well.

    Or a model, whose `evaluation_` has them.

    >>> ax = vb.plot.calibration(model.evaluation_.curve())
    """
    if isinstance(table, Evaluated) and table.evaluation_ is not None:
        table = table.evaluation_.curve()
    names = ["expected", "observed", "lower", "upper", "n"]
    check_columns(table, "table", names, "`model.evaluation_.curve()`")
    table = cast(pd.DataFrame, table)
    ax = axes_for(ax, (3.8, 3.8))
    ax.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1)
    expected, observed, low, high = (
        np.asarray(table[c], dtype=float) for c in ("expected", "observed", "lower", "upper")
    )
    ax.vlines(expected, low, high, color=SKY, lw=2)
    ax.plot(expected, observed, color=BLUE, marker="o", ms=4.5, lw=0.8)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel="expected", ylabel="observed")
    return framed(ax)


def training(history: History, ax: Axes | None = None) -> Axes:
    """`fitted.history`: the ELBO per row and, where it is another number, the score, by which the best step is kept.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50)
    >>> vb.plot.training(fitted.history).get_ylabel()
    'per row'
    """
    if not isinstance(history, History):
        raise ValueError(f"`history` must be that of a training, `fitted.history`, got {type(history).__name__}.")
    step, elbo, score = (np.asarray(part, dtype=float) for part in (history.step, history.elbo, history.score))
    if not len(step) or not len(step) == len(elbo) == len(score):
        raise ValueError(
            f"`history` must have one value per step, and a step, got {len(step)}, {len(elbo)} and {len(score)}."
        )
    ax = axes_for(ax, (4.8, 3.2))
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
        bottom, top = span_of(late)
        ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.08 * (top - bottom))
    ax.set_xlim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set(xlabel="step", ylabel="ELBO per row" if len(lines) == 1 else "per row")
    if len(lines) > 1:
        ax.legend(frameon=False, fontsize="small", loc="lower right")
    return framed(ax)
