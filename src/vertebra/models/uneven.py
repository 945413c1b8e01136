"""Uneven noise of an ensemble from rows left out: a scale that goes by f, and by how far the members disagree.

y = f₁ + ε, ε ~ N(0, s²) with log s as in `HeteroscedasticGaussian`, and f₂ normal: a law with as heavy tails as rows
that are alike in all that it goes by are unlike in their noise.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr

from vertebra.effects.scale_law import N_SLOPES, ScaleLaw
from vertebra.likelihoods import HeteroscedasticGaussian
from vertebra.likelihoods.densities import IN_NUMPY, log_scale_link
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.quadrature import gauss_hermite
from vertebra.models.calibration import LEVEL, MOST_ROWS, LeftOut, likeliest, widened

# The Gauss–Hermite rule over f₂.
NODES, SHARES = gauss_hermite(20)
# The scale lies between these multiples of the usual distance of a row left out, the variance of f₂ below 9 (there the
# scale lies at either end of its range, a factor e² from the middle, as often as not), and it rises with the members'
# variance no faster than the square of their disagreement: where rows left out hardly show how that varies, its slope
# would be anything.
RANGE, VARIANCES, MOST_SLOPE = (0.05, 4.0), (1e-4, 9.0), 1.5
# The prior sd of slopes, so that few rows do not make noise uneven. Chosen of 0.25 and 0.5 by log density on other rows
# of the training rows of abalone, boston, concrete, energy, life_expectancy, mpg, wage, wine_red and yacht.
SLOPE = 0.25
# What uneven noise must bring in log density of all rows, a target: its law has four numbers more.
LEAST_GAIN = 4.0


class Uneven(NamedTuple):
    """The scale of uneven noise in its middle, how it goes, and the log density of the rows looked at."""

    scale: Float[np.ndarray, " k"]
    law: ScaleLaw
    density: float


def noise_of(
    said: LeftOut,
    log_apart: Float[np.ndarray, "n k"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    likelihood: str,
) -> tuple[Predictive, ScaleLaw | None]:
    """Rows left out under the noise that makes them likeliest, and of uneven noise how it goes: "auto" is any."""
    kinds = ("gaussian", "student_t") if likelihood == "auto" else (likelihood,)
    even, density = likeliest(said, y, weight, kinds=kinds)
    variance = said.variance + said.fewer
    if likelihood == "auto":
        found = uneven(said, log_apart, y, weight)
        if found.density > density + LEAST_GAIN * y.shape[1]:
            moments = found.law.latents(said.mean, variance, log_apart)
            return Predictive(HeteroscedasticGaussian(found.scale), *moments), found.law
    return Predictive(even, said.mean, variance), None


def uneven(
    said: LeftOut,
    log_apart: Float[np.ndarray, "n k"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
) -> Uneven:
    """The uneven noise that makes rows left out likeliest, widened where its intervals hold too few of them.

    `log_apart` is the log disagreement of the members at each row, as the whole ensemble would show it.
    """
    rows, k = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS], y.shape[1]
    centre = np.average(log_apart, axis=0, weights=weight)
    law = ScaleLaw(centre, np.zeros((k, N_SLOPES)), np.zeros(k))
    seen = law.seen(said.mean, log_apart)[rows]
    away, variance = (y - said.mean)[rows], (said.variance + said.fewer)[rows]
    each = [_Rows(away[:, i], variance[:, i], seen[:, i], weight[rows]).best() for i in range(k)]
    scales, slopes, variances, densities = (np.array(part) for part in zip(*each, strict=True))
    return Uneven(scales, ScaleLaw(centre, slopes, variances), float(densities.sum()))


class _Rows(NamedTuple):
    """Rows of one target left out: how far away they were, the variance of f there, and what the noise goes by."""

    away: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    seen: Float[np.ndarray, "n slopes"]
    weight: Float[np.ndarray, " n"]

    def best(self) -> tuple[float, Float[np.ndarray, " slopes"], float, float]:
        """Scale, slopes and the variance of f₂, and the log density that they reach."""
        usual = max(1.5 * float(np.median(np.abs(self.away))), 1e-9)
        low, high = np.log(usual * np.array(RANGE))
        limits = [(low, high), tuple(np.log(VARIANCES)), (0.0, MOST_SLOPE), *[(None, None)] * (N_SLOPES - 1)]

        def loss(at: np.ndarray) -> float:
            return (0.5 * np.sum((at[2:] / SLOPE) ** 2) - self._density(at)) / self.weight.sum()

        start = np.concatenate([[np.clip(np.log(0.6 * usual), low, high), 0.0], np.zeros(N_SLOPES)])
        at = np.asarray(minimize(loss, start, method="L-BFGS-B", bounds=limits).x)

        def inside(log_scale: float) -> float:
            total = self._total(np.concatenate([[log_scale], at[1:]]))
            rank = SHARES @ ndtr(np.abs(self.away) / np.sqrt(total))
            return float(np.average(rank <= 0.5 * (1.0 + LEVEL), weights=self.weight))

        at[0] = widened(inside, at[0])
        return float(np.exp(at[0])), at[2:], float(np.exp(at[1])), self._density(at)

    def _total(self, at: np.ndarray) -> Float[np.ndarray, "nodes n"]:
        """Var y at each node of f₂."""
        f = self.seen @ at[2:] + np.exp(0.5 * at[1]) * NODES.reshape(-1, 1)
        return self.variance + np.exp(2.0 * (at[0] + log_scale_link(f, IN_NUMPY)))

    def _density(self, at: np.ndarray) -> float:
        total = self._total(at)
        each = -0.5 * (self.away**2 / total + np.log(2.0 * np.pi * total))
        return float(self.weight @ logsumexp(each, b=SHARES.reshape(-1, 1), axis=0))
