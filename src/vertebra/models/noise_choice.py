"""Which noise rows left out speak for: even, uneven, or of heavy tails. A quick look, before another fit."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods import Bernoulli, Categorical, Likelihood
from vertebra.likelihoods.densities import IN_NUMPY, student_log_prob
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import (
    DEGREES,
    Classes,
    Counts,
    HeavyTails,
    MoreVaried,
    Plain,
    UnevenNoise,
    Working,
)
from vertebra.models.diagnostics import is_noisier
from vertebra.models.remainder import Ridge
from vertebra.models.rows import Rows
from vertebra.models.settings import noise_named
from vertebra.terms.additive import Additive, fit_additive
from vertebra.terms.latents import Known

# Rows from which noise is looked at; with more than so many another fit would take minutes, and a word is said instead.
FEWEST_ROWS, MOST_ROWS = 200, 15_000
# The log density of rows left out must be higher by so much, in all and by row: with even noise it is in one of a
# hundred tables of 300 rows. Chosen on seeds below 50 of experiments/promises.py.
LEAST_GAIN, GAIN_OF_A_ROW = 8.0, 0.01
# Noise is taken for symmetric where its centre is no further from its mean than so many standard errors.
SYMMETRIC = 3.0
# Rounds of EM for a scale: each gains a digit.
N_ROUNDS = 20
# Parts of a number along which its scale may change. A round number.
N_PARTS = 8
# Penalties of a scale's logarithm, on indicators, in rows.
PENALTIES = np.array([3.0, 10.0, 30.0, 100.0, 300.0])
# Residuals smaller than this, in sds, have no logarithm to speak of.
SMALLEST = 0.03


# What is said of a choice; by how much a row's log density is higher comes in braces.
_HIGHER = "was fitted: the log density of rows left out is higher with it, by {:.3f} a row; "
_WITHOUT = '`likelihood="gaussian"` does without.'
LIKELIER = {
    "heteroscedastic": f"noise that depends on the inputs {_HIGHER}{_WITHOUT}",
    "student_t": f"noise of heavy tails {_HIGHER}{_WITHOUT}",
}
AT_GAPS = f"rows without {{}} are noisier than the rest: noise that depends on the inputs was fitted; {_WITHOUT}"
# A mean squared error so many times that with even noise is too much for a likelier noise. With uneven noise the
# noisiest rows decide it, and say little of f; but the centre of Student's law is not the mean that is predicted where
# noise leans. Chosen on ten tables of wages, prices and weights of benchmarks/unseen.py, those to choose on.
MUCH_WORSE = {"heteroscedastic": 1.1, "student_t": 1.02}
WORKING: dict[str, Callable[..., Working]] = {
    "gaussian": Plain,
    "heteroscedastic": UnevenNoise,
    "student_t": HeavyTails,
    "poisson": Counts,
    "negative_binomial": MoreVaried,
    "counts": partial(MoreVaried, may_be_poisson=True),
}
# Rows with a gap, without one, and in all, from which on noise is compared.
FEWEST_GAPS, ROWS_FOR_GAPS = 20, 200


def is_off_centre(y: Float[np.ndarray, "n k"], mean: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> bool:
    """Whether rows left out miss their predictions to one side, in some target, beyond chance.

    Where noise leans, its farthest rows are taken for the noisiest, which count little: f is then no mean of y.
    """
    away = y - mean
    return bool(np.any(np.abs(weight @ away) > SYMMETRIC * np.sqrt(weight @ away**2)))


class Noise(NamedTuple):
    """What is fitted of the noise: rows as Gaussian ones, a likelihood for networks, and words about the choice."""

    of: Callable[[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]], Working]
    likelihood: Likelihood
    notes: list[str]


def noise_of(likelihood: str, *notes: str) -> Noise:
    return Noise(WORKING[likelihood], noise_named(likelihood)(), list(notes))


def of_classes(n_classes: int) -> Noise:
    """The codes of classes."""

    def working(y: Float[np.ndarray, "n 1"], weight: Float[np.ndarray, " n"]) -> Working:
        return Classes(y[:, 0].astype(int), n_classes, weight)

    return Noise(working, Bernoulli() if n_classes == 2 else Categorical(n_classes), [])


def likely_noises(
    found: Additive,
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
    *,
    has_mean: bool = False,
) -> list[str]:
    """The likelihoods that the distances of rows from a fit with even noise, which had not seen them, speak for.

    The likeliest first; none where they speak for even noise.
    """
    if not FEWEST_ROWS <= len(x) <= MOST_ROWS:
        return []
    gains = gains_of(found, x, y, weight, n_levels, has_mean=has_mean)
    least = max(GAIN_OF_A_ROW * float(weight.sum()), LEAST_GAIN)
    return sorted((name for name, gain in gains.items() if gain > least), key=lambda name: -gains[name])


def gains_of(
    found: Additive,
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
    *,
    has_mean: bool = False,
) -> dict[str, float]:
    """By how much the log density of rows left out would be higher with other noise, by a quick look.

    With `has_mean` only noise whose exponential has a mean: Student's has none.
    """
    mean, variance = found.left_out
    away = (y - mean) / np.sqrt(variance + np.array(found.noise))
    away = away / np.sqrt(np.maximum(weight @ away**2 / weight.sum(), 1e-300))
    if not np.all(np.isfinite(away)):
        return {}
    gains = {"heteroscedastic": _gain_of_scale(x, away, weight, n_levels)}
    return gains if has_mean else gains | {"student_t": _gain_of_tails(away, weight)}


def _log_normal(away: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    return -0.5 * away**2 - 0.5 * math.log(2.0 * math.pi)


def _gain_of_tails(away: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> float:
    """By how much Student's law of the best degrees and scale says more; nothing where a target's noise is skew."""
    gain = 0.0
    for r in away.T:
        best = -math.inf
        for degrees in DEGREES:
            centre, scale = 0.0, 1.0
            for _ in range(N_ROUNDS):
                each = weight * (degrees + 1.0) / (degrees + ((r - centre) / scale) ** 2)
                centre = float(each @ r / each.sum())
                scale = math.sqrt(max(float(each @ (r - centre) ** 2 / weight.sum()), 1e-12))
            density = student_log_prob((r / scale) ** 2, math.log(scale), degrees, IN_NUMPY)
            if (value := float(weight @ density)) > best:
                best, own = value, each / each.sum()
                error = math.sqrt(float(own**2 @ (r - centre) ** 2) + float(weight @ r**2) / weight.sum() ** 2)
                is_skew = abs(centre) > SYMMETRIC * error
        gain += 0.0 if is_skew else best - float(weight @ _log_normal(r[:, None])[:, 0])
    return gain


def _gain_of_scale(
    x: Float[np.ndarray, "n p"],
    away: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
) -> float:
    """By how much a scale that the inputs change, each by itself, says more of rows that it had not seen.

    Its logarithm is a ridge regression on parts of every input, of the penalty that is best for rows left out.
    """
    logs = np.log(np.maximum(np.abs(away), SMALLEST))
    logs = logs - weight @ logs / weight.sum()
    parts = np.concatenate([_parts_of(column, n) for column, n in zip(x.T, n_levels, strict=True)], axis=1)
    best = 0.0
    for error in Ridge(parts, weight, PENALTIES * float(weight.mean())).errors(logs):
        scale = np.exp(logs - error)
        scale *= np.sqrt(weight @ (away / scale) ** 2 / weight.sum())
        gain = float(np.sum(weight @ (_log_normal(away / scale) - np.log(scale) - _log_normal(away))))
        best = max(best, gain)
    return best


def _parts_of(column: Float[np.ndarray, " n"], n_levels: int) -> Float[np.ndarray, "n parts"]:
    """Indicators of the levels of an input, of parts of a number with as many rows each, and of gaps; centred."""
    gap = np.isnan(column)
    if n_levels:
        codes = np.where(gap, n_levels, column).astype(int)
    else:
        edges = np.unique(np.nanquantile(column, np.arange(1, N_PARTS) / N_PARTS)) if not gap.all() else []
        codes = np.where(gap, N_PARTS, np.searchsorted(edges, column))
    seen = np.unique(codes)
    hits = (codes[:, None] == seen).astype(float)
    return hits - hits.mean(axis=0)


def noisier_at_gaps(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    rows: Rows,
    n_levels: Sequence[int],
    *,
    seed: int,
    known: Known | None = None,
) -> list[int]:
    """Inputs whose gaps change the noise, by a fit of main effects: where what is missing acts, it is noise there.

    Taken for even noise, it would be explained by terms that are not.
    """
    gaps = np.isnan(rows.matrix)
    there = [i for i, n in enumerate(gaps.sum(axis=0)) if FEWEST_GAPS <= n <= len(gaps) - FEWEST_GAPS]
    if not there or len(gaps) < ROWS_FOR_GAPS:
        return []
    mains, rng = [(i,) for i in range(x.shape[1])], np.random.default_rng(seed)
    about: Any = dict(clusters=mains, n_levels=n_levels, rng=rng, known=known, describes=False)
    first = fit_additive(x, Plain(y, rows.weight), rows.weight, **about)
    away = Predictive(first.likelihood, *first.left_out).away(y)
    return [i for i in there if is_noisier(away, gaps[:, i])]
