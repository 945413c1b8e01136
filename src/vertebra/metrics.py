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

    `quantiles` is (n, levels), or with y of several targets (n, levels, targets), as `predict_quantiles` and
    likelihoods give them; (levels, n, targets) is told from that.

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


def nll(log_prob: Values) -> float:
    """The mean of −log p(y) over rows, of what `model.log_prob` or `likelihood.log_predictive` gives.

    >>> vb.metrics.nll([-1.0, -2.0])
    1.5
    """
    return float(-np.mean(np.asarray(log_prob, dtype=float)))


def crps(y: Values, draws: Values) -> float:
    """The continuous ranked probability score, ∫ (F(t) − 1[y ≤ t])² dt, of draws of y; the mean over rows and targets.

    `draws` is (n, draws), or of several targets (n, draws, targets). It is that of the draws' own distribution F; with
    few of them it is larger than that of the law they come from.

    >>> vb.metrics.crps([0.0, 3.0], draws=[[0.0, 2.0], [3.0, 3.0]])  # (½ · 2 − ⅛ · 4 + 0)/2
    0.25
    """
    y, drawn = _rows_first(y, draws, "draws")
    n_draws, ordered = drawn.shape[1], np.sort(drawn, axis=1)
    # E|X − y| − ½ E|X − X'|, the second of sorted draws: Σ_i (2i − m − 1) x_i / m²
    share = (2.0 * np.arange(1, n_draws + 1) - n_draws - 1.0) / n_draws**2
    return float(np.mean(np.abs(drawn - y[:, None]).mean(axis=1) - np.einsum("i,nik->nk", share, ordered)))


def interval_score(y: Values, lower: Values, upper: Values, *, level: float = 0.95) -> float:
    """Gneiting & Raftery's score of intervals: their width, and 2/(1 − level) times what y lies outside; the mean.

    >>> vb.metrics.interval_score([0.0, 3.0], [-1.0, -1.0], [1.0, 1.0], level=0.5)  # (2 + 2 + 4 · 2)/2
    6.0
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must lie between 0 and 1, got {level!r}.")
    y, lower, upper = (np.asarray(values, dtype=float) for values in (y, lower, upper))
    if not y.shape == lower.shape == upper.shape:
        raise ValueError(f"`lower` and `upper` must have the shape of `y`, {y.shape}, got {lower.shape} {upper.shape}.")
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 2.0 / (1.0 - level) * outside))


def pit(y: Values, draws: Values) -> np.ndarray:
    """The share of the draws below each y, ties counted by half: uniform on [0, 1] where the draws have the law of y.

    `draws` as in `crps`; the answer has the shape of y.

    >>> vb.metrics.pit([1.0, 5.0], draws=[[0.0, 2.0], [3.0, 5.0]]).tolist()
    [0.5, 0.75]
    """
    shape = np.shape(y)
    y, drawn = _rows_first(y, draws, "draws")
    below = np.mean(drawn < y[:, None], axis=1) + 0.5 * np.mean(drawn == y[:, None], axis=1)
    return below.reshape(shape)


def ece(probabilities: Values, y: Values, n_bins: int = 10) -> float:
    """Expected calibration error: the mean gap between how sure the likeliest class is and how often it is right.

    `probabilities` is (n, classes), as `predict_proba` gives them, y the places of true classes; bins of equal size.

    >>> vb.metrics.ece([[0.75, 0.25]] * 4, [0, 0, 0, 1], n_bins=1)
    0.0
    """
    p, y = np.asarray(probabilities, dtype=float), np.asarray(y)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ValueError(f"`probabilities` must be (n, classes) and `y` (n,), got the shapes {p.shape} and {y.shape}.")
    return calibration_error(p.max(axis=1), p.argmax(axis=1) == y, n_bins)


def _rows_first(y: Values, values: Values, name: str) -> tuple[np.ndarray, np.ndarray]:
    """y as (n, targets) and draws as (n, draws, targets), or an error that says which axis is which."""
    y, values = np.asarray(y, dtype=float), np.asarray(values, dtype=float)
    targets = y[:, None] if y.ndim == 1 else y
    said = values[..., None] if values.ndim == 2 and y.ndim == 1 else values
    if targets.ndim != 2 or said.ndim != 3 or (said.shape[0], said.shape[2]) != targets.shape:
        wanted = (len(targets), "draws") if y.ndim == 1 else (len(targets), "draws", targets.shape[1])
        raise ValueError(
            f"`{name}` must have rows first, the shape {wanted} for `y` of {y.shape}, got {values.shape}: of "
            "vb.sample, which has draws first, np.moveaxis(draws, 0, 1)."
        )
    return targets, said
