"""Scores of predictions and of rankings.

>>> vb.metrics.rmse([1.0, 2.0], [1.0, 4.0])
1.4142135623730951
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import ArrayLike

Values = ArrayLike | Sequence


def rmse(y: Values, prediction: Values) -> float:
    """√ mean (y − prediction)².

    >>> vb.metrics.rmse([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    1.0
    """
    return float(np.sqrt(np.mean((np.asarray(y) - np.asarray(prediction)) ** 2)))


def coverage(y: Values, lower: Values, upper: Values) -> float:
    """The share of y inside [lower, upper].

    >>> vb.metrics.coverage([1.0, 2.0, 3.0, 9.0], lower=[0.0, 0.0, 0.0, 0.0], upper=[4.0, 4.0, 4.0, 4.0])
    0.75
    """
    y = np.asarray(y)
    return float(np.mean((np.asarray(lower) <= y) & (y <= np.asarray(upper))))


def calibration_error(probability: Values, happened: Values, n_bins: int = 10) -> float:
    """The mean gap, over bins of equal size, between stated probabilities and how often it happened.

    >>> vb.metrics.calibration_error([0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1], n_bins=1)
    0.0
    """
    p, y = np.asarray(probability, dtype=float), np.asarray(happened, dtype=float)
    if p.shape != y.shape or p.ndim != 1:
        raise ValueError(f"`probability` and `happened` must be of one length, got {p.shape} and {y.shape}.")
    bins = np.array_split(np.argsort(p, kind="stable"), min(n_bins, len(p)))
    return float(sum(len(b) * abs(p[b].mean() - y[b].mean()) for b in bins) / len(p))


def interval_calibration(y: Values, quantiles: Values, levels: Values) -> float:
    """The mean gap between each level and the share of y below its quantile.

    `quantiles` is (n, levels), or with y of several targets (n, levels, targets), as `predict_quantiles` gives them; or
    (levels, n, targets), as those of a likelihood are.

    >>> vb.metrics.interval_calibration([1.0, 2.0, 3.0, 4.0], quantiles=[[2.0, 3.0]] * 4, levels=[0.5, 0.75])
    0.0
    """
    y, quantiles, levels = (np.asarray(values, dtype=float) for values in (y, quantiles, levels))
    targets = y[:, None] if y.ndim == 1 else y
    said = quantiles[..., None] if quantiles.ndim == 2 else quantiles
    if targets.ndim != 2 or levels.ndim != 1:
        raise ValueError(
            f"`y` must be (n,) or (n, targets) and `levels` a list, got the shapes {y.shape} and {levels.shape}."
        )
    (n, k), order = targets.shape, np.argsort(levels)
    rounding = 1e-6 * np.abs(said).max(initial=0.0)
    for rows_first in (said, np.swapaxes(said, 0, 1) if said.ndim == 3 else said):
        if rows_first.shape == (n, len(levels), k) and (np.diff(rows_first[:, order], axis=1) >= -rounding).all():
            below = np.mean(targets[:, None] <= rows_first, axis=0)
            return float(np.mean(np.abs(below - levels[:, None])))
    raise ValueError(
        f"`quantiles` must be (n, levels) or (n, levels, targets), here {(n, len(levels), k)}, and rise with the "
        f"levels, got the shape {quantiles.shape}."
    )


def top_rank_recall(
    ranking: Sequence[Iterable], truths: Sequence[Iterable], *, passed_over: Sequence[Iterable] = ()
) -> float:
    """The share of true interactions met on the way down a ranking before the first false one (Tsang et al. 2017).

    A proper subset of a true interaction is passed over, and so is anything inside `passed_over`; an interaction counts
    once; anything else ends the walk. Main effects are not looked at.

    >>> vb.metrics.top_rank_recall([("a", "b"), ("a", "c"), ("b", "c")], truths=[("a", "b"), ("b", "c")])
    0.5
    """
    wanted, ignored = [frozenset(t) for t in truths], [frozenset(t) for t in passed_over]
    found: set[frozenset] = set()
    for term in map(frozenset, ranking):
        if len(term) < 2 or any(term < truth for truth in wanted) or any(term <= group for group in ignored):
            continue
        if term not in wanted:
            break
        found.add(term)
    return len(found) / len(wanted) if wanted else 1.0
