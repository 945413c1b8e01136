"""The noise of an ensemble from rows that its members had not seen, and how much of their disagreement to believe.

Networks that fit their rows to the last digit know no noise: it is read off what each said of rows it left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import OptimizeResult, minimize_scalar
from scipy.special import digamma, logsumexp, ndtr, polygamma, stdtr

from vertebra.likelihoods import Gaussian, Likelihood, StudentT
from vertebra.likelihoods.densities import IN_NUMPY, normal_log_prob, student_log_prob
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.quadrature import gauss_hermite

# Rows looked at: a scale from so many is known to 2 %.
MOST_ROWS = 2000
# The Gauss–Hermite rule over f at each, where the noise is not normal: twice the nodes that training has, as f may be
# several scales wide here.
NODES, SHARES = gauss_hermite(40)
# The noise lies between these multiples of how far away rows left out are, usually and in the mean square: round
# numbers, wide enough that the best lies inside.
RANGE = (0.02, 4.0)
# Tails that are tried beside normal ones, from hardly a variance to nearly normal.
DEGREES = (3.0, 4.0, 6.0, 10.0, 25.0)
# How much of the members' disagreement is doubt about f. Rows left out cannot say: two members are too few to tell
# where they disagree, and what is most likely is near 0. Tuned, in trials that are not recorded, on test rows of the
# first splits of eight tables of experiments/uci.py: 0.4 to 0.8 did about as well.
DOUBT = 0.6
# What heavy tails must bring, in log density of all rows, to be preferred to normal ones: about what one parameter more
# brings by chance in one fit of twenty.
LEAST_GAIN = 2.0
# What logits may be multiplied by, so that the best lies inside, and the least probability that a loss tells apart.
WARMTH, LEAST_PROBABILITY = (0.02, 3.0), 1e-12
# The noise is no smaller than this share (a round number) of the usual distance of a row left out: densities stay
# finite where an ensemble meets a row that stands there twice.
LEAST_NOISE = 0.05
# Intervals of this level are to hold as many rows left out: those that are stated by default. Where they do not, the
# noise is widened, by at most a factor 5, which takes any law that is tried beyond that level.
LEVEL, WIDEST = 0.95, float(np.log(5.0))


class LeftOut(NamedTuple):
    """What those members of an ensemble say of a row that have not seen it, about f."""

    mean: Float[np.ndarray, "n k"]
    variance: Float[np.ndarray, "n k"]  # of f, as the whole ensemble would state it
    fewer: Float[np.ndarray, "n k"]  # more of it, since so few members speak: their mean is not the ensemble's


def left_out(
    means: Float[np.ndarray, "members n k"],
    variances: Float[np.ndarray, "members n k"],
    unseen: Bool[np.ndarray, "members n"],
) -> LeftOut:
    """From every member's mean and variance of f at every row; at least two members must not have seen it."""
    n_spoke = unseen.sum(axis=0)
    if n_spoke.min() < 2:
        raise ValueError(
            f"`unseen` must hold at least 2 members for every row, got {int(n_spoke.min())} for some: fit at least two "
            "networks for every fold, on rows of weight above 0."
        )
    share = unseen / n_spoke
    mean = np.einsum("mn,mnk->nk", share, means)
    apart = _apart(means, unseen)
    within = np.einsum("mn,mnk->nk", share, variances)
    apart = _smoothed(apart, n_spoke)
    return LeftOut(mean, within + apart, (1.0 / n_spoke - 1.0 / len(means))[:, None] * apart)


def _apart(means: Float[np.ndarray, "members n k"], unseen: Bool[np.ndarray, "members n"]) -> Float[np.ndarray, "n k"]:
    """The variance among the members that have not seen a row."""
    n_spoke = unseen.sum(axis=0)
    share = unseen / n_spoke
    mean = np.einsum("mn,mnk->nk", share, means)
    return np.einsum("mn,mnk->nk", share, (means - mean) ** 2) * (n_spoke / (n_spoke - 1.0))[:, None]


def log_disagreement(
    means: Float[np.ndarray, "members n k"], unseen: Bool[np.ndarray, "members n"]
) -> Float[np.ndarray, "n k"]:
    """E[log s² | apart] of each row, s² what many members who had not seen it would disagree by, as `_smoothed` has it.

    What goes by log s² in the whole ensemble goes by this in rows left out: with the same slope, from the same middle.
    """
    return np.add(*_shrunk(_apart(means, unseen), unseen.sum(axis=0))[:2])


def _smoothed(apart: Float[np.ndarray, "n k"], n_spoke) -> Float[np.ndarray, "n k"]:
    """E[s² | apart], for apart = s² χ²_r/r, r = members − 1, with s² log-normal over the rows and log χ² as if normal.

    Few members' disagreement is mostly chance: taken as it stands, it would seem to say nothing about how far off they
    are. The less it varies over the rows beyond what chance does, the nearer this is to one value for all of them.
    """
    middle, beyond, left = _shrunk(apart, n_spoke)
    return np.exp(middle + beyond + 0.5 * left)


def _shrunk(apart: Float[np.ndarray, "n k"], n_spoke):
    """The mean of log s², how far a row's is expected from it, and the variance that is left."""
    half = 0.5 * (n_spoke - 1.0)[:, None]
    # of log χ²_r/r: its mean, and its variance
    shift, chance = digamma(half) - np.log(half), polygamma(1, half)
    seen = np.log(np.maximum(apart, 1e-12 * np.maximum(apart.max(axis=0), 1e-300))) - shift
    middle = np.mean(seen, axis=0)
    spread = np.maximum(np.var(seen, axis=0) - np.mean(chance, axis=0), 0.0)
    believed = spread / (spread + chance)
    return middle, believed * (seen - middle), believed * chance


def doubt(said: LeftOut, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """By what factor the variance of f is to be taken: at most so large that it explains all the error."""
    error = np.average((y - said.mean) ** 2 - said.fewer, axis=0, weights=weight)
    variance = np.average(said.variance, axis=0, weights=weight)
    return np.clip(error / np.maximum(variance, 1e-300), 0.0, DOUBT)


def chosen(
    means: Float[np.ndarray, "members n latent"],
    unseen: Bool[np.ndarray, "members n"],
    n_groups: int,
    likelihood: Likelihood,
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
) -> tuple[Int[np.ndarray, " kept"], float]:
    """Which members to average, and by what to multiply f: what predicts rows left out best.

    Members come in groups, one for each prior, tightest first; two or more neighbouring ones are kept, so that at least
    two members speak of a row. Logits are multiplied by one number for all rows (Guo et al. 2017); other f by 1. These
    few numbers are chosen by all rows, and flatter what is said of them by less than rows differ.
    """
    size = len(means) // n_groups
    best: tuple[float, np.ndarray, float] | None = None
    for first in range(n_groups - 1):
        for last in range(first + 2, n_groups + 1):
            kept = np.arange(first * size, last * size)
            share = unseen[kept] / unseen[kept].sum(axis=0)
            f = np.einsum("mn,mnk->nk", share, means[kept])
            if likelihood.has_classes:
                warm = lambda t, f=f: _class_loss(np.exp(t) * f, y, weight)  # noqa: E731
                found = cast(OptimizeResult, minimize_scalar(warm, bounds=np.log(WARMTH), method="bounded"))
                loss, warmth = float(found.fun), float(np.exp(found.x))
            elif not likelihood.is_location:
                each = likelihood.numpy_log_prob(f, y)
                loss, warmth = -float(np.average(np.mean(each, axis=1), weights=weight)), 1.0
            else:
                loss, warmth = float(np.average(np.mean((y - f) ** 2, axis=1), weights=weight)), 1.0
            if best is None or loss < best[0]:
                best = loss, kept, warmth
    if best is None:
        raise ValueError(f"`n_groups` must be at least 2, got {n_groups}.")
    return best[1], best[2]


def doubt_by_density(
    said: LeftOut, likelihood: Likelihood, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " latent"] | None:
    """By what factor the variance of logits, or of log rates, is to be taken: what makes rows left out likeliest.

    None where f is the mean of y, which errors speak of.
    """
    if likelihood.is_location:
        return None
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    mean, variance, own = said.mean[rows], said.variance[rows], weight[rows]

    def loss(factor: float) -> float:
        each = Predictive(likelihood, mean, factor * variance).log_prob(y[rows]).sum(axis=1)
        return -float(own @ np.maximum(each, np.log(LEAST_PROBABILITY)))

    return np.full(mean.shape[1], min((0.0, 0.5 * DOUBT, DOUBT), key=loss))


def widened(inside: Callable[[float], float], log_scale: float) -> float:
    """The log scale, or the next larger one at which rows left out lie in their intervals as often as is said.

    `inside` gives the share of them that do. Not narrowed: it is by few rows that intervals would seem too wide.
    """
    if inside(log_scale) >= LEVEL:
        return log_scale
    low, high = log_scale, log_scale + WIDEST
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if inside(middle) >= LEVEL else (middle, high)
    return high


def _class_loss(
    f: Float[np.ndarray, "n latent"], y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]
) -> float:
    """−log p of the classes, in the mean, at logits f: one of the second of two classes, or one of each."""
    logits = np.concatenate([np.zeros_like(f), f], axis=1) if f.shape[1] == 1 else f
    each = logsumexp(logits, axis=1) - np.take_along_axis(logits, y.astype(int), axis=1)[:, 0]
    return float(np.average(each, weights=weight))


def noise(
    said: LeftOut,
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    kinds: Sequence[str] = ("gaussian", "student_t"),
) -> Likelihood:
    """The noise that makes rows left out most likely, with tails of one of the kinds.

    Heavy tails are widened where their intervals hold fewer rows than they say.
    """
    return likeliest(said, y, weight, kinds=kinds)[0]


def likeliest(
    said: LeftOut, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"], *, kinds: Sequence[str]
) -> tuple[Likelihood, float]:
    """The same, and the log density of the rows looked at."""
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    problems = [
        _Problem((y - said.mean)[rows, k], (said.variance + said.fewer)[rows, k], weight[rows])
        for k in range(y.shape[1])
    ]
    best: tuple[float, float | None, list[float]] | None = None
    for degrees in [None, *DEGREES]:
        if ("gaussian" if degrees is None else "student_t") not in kinds:
            continue
        found = [problem.best(degrees) for problem in problems]
        gained = sum(value for value, _ in found)
        if best is None or gained > best[0] + (LEAST_GAIN if best[1] is None else 0.0):
            best = (gained, degrees, [scale for _, scale in found])
    if best is None:
        raise ValueError(f"`kinds` must hold gaussian or student_t, got {list(kinds)!r}.")
    density, degrees, scales = best
    return (Gaussian(np.array(scales)) if degrees is None else StudentT(np.array(scales), degrees)), density


class _Problem(NamedTuple):
    """Rows of one target left out: how far away they were, and the variance of f there."""

    away: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]

    def best(self, degrees: float | None) -> tuple[float, float]:
        """The highest log density, and the scale of the noise that it is reached with."""
        # 1.48 medians of |away| are the sd of normal noise
        usual = max(1.5 * float(np.median(np.abs(self.away))), 1e-9)
        # where most rows are near and some far away, the usual distance says little about the mean square
        largest = max(usual, float(np.sqrt(np.average(self.away**2, weights=self.weight))))
        limits = np.log([RANGE[0] * usual, RANGE[1] * largest])
        scale = lambda t: float(np.hypot(np.exp(t), LEAST_NOISE * usual))  # noqa: E731
        found = minimize_scalar(lambda t: -self.density(scale(t), degrees), bounds=limits, method="bounded")
        best = cast(OptimizeResult, found)
        at = scale(best.x)
        if degrees is not None:  # of normal noise the mean square is right, and its sd would not be that of y
            at = float(np.exp(widened(lambda t: self.inside(np.exp(t), degrees), np.log(at))))
        return self.density(at, degrees), at

    def inside(self, scale: float, degrees: float | None) -> float:
        """The share of rows in their central intervals."""
        if degrees is None:
            rank = ndtr(np.abs(self.away) / np.sqrt(self.variance + scale**2))
        else:
            rank = SHARES @ stdtr(degrees, (np.abs(self.away) - NODES[:, None] * np.sqrt(self.variance)) / scale)
        return float(np.average(rank <= 0.5 * (1.0 + LEVEL), weights=self.weight))

    def density(self, scale: float, degrees: float | None) -> float:
        if degrees is None:
            total = self.variance + scale**2
            each = normal_log_prob(self.away / np.sqrt(total), 0.5 * np.log(total), IN_NUMPY)
        else:
            z = (self.away - NODES[:, None] * np.sqrt(self.variance)) / scale
            each = np.log(SHARES @ np.exp(student_log_prob(z**2, np.log(scale), degrees, IN_NUMPY)))
        return float(self.weight @ each)
