"""Conformal intervals: rows set aside, their scores, and how far from the mean an interval reaches."""

import numpy as np
from jaxtyping import Float

from vertebra.machine.later import later
from vertebra.models.rows import Rows, canonical
from vertebra.tables.folds import are_copies, runs_of

stats = later("scipy.stats")

# The share of rows that intervals are calibrated on: a round number, as split conformal is often run.
CALIBRATION_SHARE = 0.2
# Rows from which NumPy draws no more how many of equal ones chance chooses: there it is their share.
MOST_DRAWN = 1e9
# Scores that intervals are read off: a hundred above the level 0.999, and more would say no more.
MOST_CALIBRATED = 1e5
# How often, over the rows set aside, intervals are to cover at least what they say.
CONFIDENCE = 0.9


def set_aside(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """The rows to fit, and those that intervals are calibrated on, by chance; the weight of these counts them.

    Of equal rows some may go to either side, unless they look like copies: a copy of a row that was fitted says nothing
    about new ones, so that all copies are one row. Groups go to one side as a whole; where it is known when rows were,
    the last are set aside.
    """
    if rows.group is not None or rows.time is not None:
        return _belonging_aside(rows, seed)
    run, _ = runs_of(rows.matrix, rows.y)
    first, weight = np.flatnonzero(np.diff(run, prepend=-1)), np.bincount(run, rows.weight)
    matrix, y = rows.matrix[first], rows.y[first]
    units = np.where(are_copies(matrix, y), 1.0, np.maximum(weight, 1.0)).astype(np.int64)
    n, n_out = int(units.sum()), round(CALIBRATION_SHARE * int(units.sum()))
    if n_out < 1 or n - n_out < 2:
        raise ValueError(f"`conformal=True` needs at least 4 rows, got {n}.")
    rng, out = np.random.default_rng(seed), np.zeros(len(units))
    if n == len(units):
        out[rng.permutation(n)[:n_out]] = 1.0
    elif n < MOST_DRAWN:
        out = rng.multivariate_hypergeometric(units, n_out, method="marginals").astype(float)
    else:
        out = np.round(CALIBRATION_SHARE * units)
    held = out > 0.0
    fitted = canonical(matrix, y, weight * (1.0 - out / units))
    if rows.place is not None and fitted.place is not None:
        fitted = fitted._replace(place=rows.place[first][fitted.place])
    return fitted, Rows(matrix[held], y[held], out[held])


def _belonging_aside(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """The same of rows that follow each other, or belong together."""
    if rows.time is not None:
        out = rows.time > np.quantile(rows.time, 1.0 - CALIBRATION_SHARE)
    else:
        codes = np.unique(np.asarray(rows.group), return_inverse=True)[1]
        order = np.random.default_rng(seed).permutation(codes.max() + 1)
        upto = np.cumsum(np.bincount(codes)[order])
        # at least one group, and as many as do not go beyond the share
        n_out = max(int(np.searchsorted(upto, CALIBRATION_SHARE * len(codes), side="right")), 1)
        out = np.isin(codes, order[:n_out])
    if not out.any() or (~out).sum() < 2:
        raise ValueError(f"`conformal=True` needs rows to set aside, and rows to fit, got {len(out)} in all.")
    held = rows.at(out)
    return rows.at(~out), held._replace(weight=np.maximum(held.weight, 1.0))


def in_order(scores: Float[np.ndarray, "n k"], times: Float[np.ndarray, " n"]) -> Float[np.ndarray, "m k"]:
    """Scores in order, each as many times as rows of it were set aside; of very many, as many as decide."""
    m = int(min(times.sum(), MOST_CALIBRATED))
    columns = []
    for own in scores.T:
        order = np.argsort(own, kind="stable")
        upto = np.cumsum(times[order])
        places = np.searchsorted(upto, (np.arange(m) + 0.5) * (upto[-1] / m))
        columns.append(own[order][places])
    return np.stack(columns, axis=1)


def half_width(scores: Float[np.ndarray, "m k"], level: float) -> Float[np.ndarray, " k"]:
    """The score, of m sorted ones, below which a new one lies with probability `level`, whichever m rows were drawn.

    The k-th smallest covers a share Beta(k, m + 1 − k) of new rows, whose mean is at least `level` from
    k = ⌈(m + 1) level⌉ on. Taken is the first k with a share below `level` in at most one draw of the m rows in ten
    (Vovk, 2012), or the last where there are too few rows for that; where the mean falls short too, infinity.
    """
    m = len(scores)
    least = int(np.ceil((m + 1) * level))
    if least > m:
        return np.full(scores.shape[1], np.inf)
    # P(Beta(k, m + 1 − k) ≥ level) = P(Binomial(m, level) ≤ k − 1)
    sure = int(stats.binom.ppf(CONFIDENCE, m, level)) + 1
    return scores[min(max(least, sure), m) - 1]
