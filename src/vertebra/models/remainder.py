"""What a sum of terms of few inputs leaves out: whether there is anything, and how much of it networks can add.

f = A + α(G − A), with A the terms, G an ensemble over all inputs and α the share of their difference that makes rows
nearest which neither had seen. It is sought only where a quick look at what A leaves finds something.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from vertebra.models.calibration import LeftOut

# Terms have up to three inputs: with no more of them there is nothing that they could not say.
LEAST_INPUTS, LEAST_ROWS = 4, 200
# The quick look: so many rows at most and centres of the kernel, for a second of work; its lengthscales beside √p, a
# factor 2 apart about those of smooth functions of standardised inputs; penalties by decades. All are round numbers.
MOST_ROWS, N_CENTRES = 8000, 500
LENGTHSCALES, PENALTIES = (0.35, 0.7, 1.4), 10.0 ** np.arange(-3.0, 4.0)
# Rows nearest to one, by which what is too local for so few bumps is seen. On split 0 of phoneme, where networks take
# the log loss from 0.275 to 0.21, bumps and trees see nothing, and three neighbours 8 % (by 5.5 standard errors).
# The last of them counts for this share of one that is equal. Round numbers.
N_NEAREST, LEAST_COUNT = (3, 5, 10), 1e-3
# The share of what the terms miss that must be found, by the quick look and by the networks, and by how many standard
# errors: three lengthscales and seven penalties are tried, and 4 are passed by chance in one test of 30,000.
LEAST_SHARE, LEAST_Z = 0.02, 4.0


def is_something_left(
    x: Float[np.ndarray, "n p"],
    away: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    bumps: "Bumps | None" = None,
) -> bool:
    """Whether a ridge regression on bumps over all inputs, or the nearest rows, say what rows are away from the terms.

    `away` of each row from terms that had not seen it; each row is left out of the ridge in turn, in closed form, and
    is none of its own neighbours.
    """
    if not may_be_looked_at(x):
        return False
    bumps = Bumps(x, weight) if bumps is None else bumps
    if any(is_clear(away[rows] ** 2, error**2, weight[rows]).any() for rows, error in bumps.errors(away)):
        return True
    rows, nothing = bumps.order, np.zeros_like(away[bumps.order])
    return any(is_better_with(nothing, said, away[rows], weight[rows]) for said in bumps.nearest(away))


def may_be_looked_at(x: Float[np.ndarray, "n p"]) -> bool:
    """Whether there are rows enough, and more inputs than terms have."""
    return len(x) >= LEAST_ROWS and int(np.sum(np.ptp(np.nan_to_num(x), axis=0) > 0.0)) >= LEAST_INPUTS


class Bumps:
    """Ridge regressions on bumps over all inputs of some rows; what is the same for all targets is worked out once."""

    def __init__(self, x: Float[np.ndarray, "n p"], weight: Float[np.ndarray, " n"]):
        self.x = x
        n, self._p = x.shape
        self.order = np.random.default_rng(0).permutation(n)[:MOST_ROWS]
        x, self._weight = x[self.order], weight[self.order]
        spread = x.std(axis=0)
        self._x = x / np.where(spread > 0.0, spread, 1.0)
        self._ridges: dict[float, Ridge] = {}

    def errors(self, y: Float[np.ndarray, "n k"]) -> Iterator[tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m k"]]]:
        """By what regressions of y miss rows that they were fitted without, and which rows these are."""
        for lengthscale in LENGTHSCALES:
            if lengthscale not in self._ridges:
                self._ridges[lengthscale] = self._ridge(lengthscale)
            for error in self._ridges[lengthscale].errors(y[self.order]):
                yield self.order, error

    def nearest(self, y: Float[np.ndarray, "n k"]) -> Iterator[Float[np.ndarray, "m k"]]:
        """Means of y at the nearest other rows, nearer ones counting for more; equal rows are one."""
        distinct, place = np.unique(self._x, axis=0, return_inverse=True)
        total = np.bincount(place, self._weight)
        y = y[self.order] * self._weight[:, None]
        mean = np.stack([np.bincount(place, each) for each in y.T], axis=1) / total[:, None]
        n_most = min(N_NEAREST[-1], len(distinct) - 1)
        with threadpool_limits(1, user_api="openmp"):
            far, near = NearestNeighbors(n_neighbors=n_most).fit(distinct).kneighbors()
        for n in N_NEAREST:
            own = far[:, :n]
            counts = total[near[:, :n]] * np.maximum(1.0 - (own / np.maximum(own[:, -1:], 1e-300)) ** 2, LEAST_COUNT)
            said = np.einsum("rn,rnk->rk", counts, mean[near[:, :n]]) / counts.sum(axis=1)[:, None]
            yield said[place]

    @cached_property
    def _far(self) -> tuple[Float[np.ndarray, "m c"], Float[np.ndarray, "c c"]]:
        """Squared distances of rows from centres, and of these from each other."""
        centres = self._x[:N_CENTRES]
        return tuple(cdist(each, centres, "sqeuclidean") / self._p for each in (self._x, centres))

    def _ridge(self, lengthscale: float) -> "Ridge":
        far, between = self._far
        # the kernel exp(−‖x − x′‖²/2pℓ²) by its values at the centres
        values, vectors = np.linalg.eigh(np.exp(-0.5 * between / lengthscale**2))
        kept = values > 1e-8 * values[-1]
        features = np.exp(-0.5 * far / lengthscale**2) @ (vectors[:, kept] / np.sqrt(values[kept]))
        return Ridge(features, self._weight, PENALTIES * float(self._weight.mean()))


def is_better_with(
    ours: Float[np.ndarray, "m k"], other: Float[np.ndarray, "m k"], y: Float[np.ndarray, "m k"], weight
) -> bool:
    """Whether a share of what another model says otherwise makes rows clearly nearer that neither had seen."""
    away, apart = y - ours, other - ours
    along = np.average(away * apart, axis=0, weights=weight)
    share = np.clip(along / np.maximum(np.average(apart**2, axis=0, weights=weight), 1e-300), 0.0, 1.0)
    return bool(is_clear(away**2, (away - share * apart) ** 2, weight).any())


class Ridge:
    """Ridge regressions of rows, one for each penalty."""

    def __init__(
        self, features: Float[np.ndarray, "n r"], weight: Float[np.ndarray, " n"], penalties: Float[np.ndarray, " l"]
    ):
        self._root = np.sqrt(weight)[:, None]
        scaled = self._root * features
        squares, vectors = np.linalg.eigh(scaled.T @ scaled)
        self._directions = scaled @ vectors
        self._shrunk = 1.0 / (np.maximum(squares, 0.0)[:, None] + penalties)
        # of a row that stands there several times, one is left out
        self._leverage = self._directions**2 @ self._shrunk / np.maximum(weight, 1.0)[:, None]

    def errors(self, y: Float[np.ndarray, "n k"]) -> Iterator[Float[np.ndarray, "n k"]]:
        """By what they miss each row when they are fitted without it, for one penalty after the other."""
        along = self._directions.T @ (self._root * y)
        for shrunk, leverage in zip(self._shrunk.T, self._leverage.T, strict=True):
            yield (y - self._directions @ (shrunk[:, None] * along) / self._root) / (1.0 - leverage)[:, None]


class Blend(NamedTuple):
    """What is made of the terms and the networks, target by target."""

    share: Float[np.ndarray, " k"]  # α
    said: LeftOut  # of f
    sizes: Float[np.ndarray, "draws k"]  # draws of the size of the remainder: the root of what it takes off the error
    probability: Float[np.ndarray, " k"]  # that it is there


def blend(
    terms: tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n k"]],
    networks: LeftOut,
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    n_draws: int,
) -> Blend | None:
    """From what each says of every row without it, mean and variance; nothing if the terms do as well by themselves."""
    mean, variance = terms
    away, apart = y - mean, networks.mean - mean
    # few networks speak of a row left out: the mean of all of them is nearer to it by `fewer`
    along = np.average(away * apart, axis=0, weights=weight)
    across = np.average(apart**2 - networks.fewer, axis=0, weights=weight)
    share = np.where(across > 0.0, np.clip(along / np.maximum(across, 1e-300), 0.0, 1.0), 0.0)
    before, left = away**2, (away - share * apart) ** 2
    # whether it is worth it is decided by what few networks do, which is no estimate
    clear = is_clear(before, left, weight)
    if not clear.any():
        return None
    share, after = np.where(clear, share, 0.0), left - share**2 * networks.fewer
    mean = mean + share * apart
    variance = (1.0 - share) ** 2 * variance + share**2 * networks.variance
    gain, error = _gain(before, after, weight)
    draws = gain + error * np.random.default_rng(0).standard_normal((n_draws, len(gain)))
    # the gain in log density, with the noise that each leaves
    first, second = (np.maximum(np.average(each, axis=0, weights=weight), 1e-300) for each in (before, left))
    odds = 0.5 * weight.sum() * np.log(np.maximum(first / second, 1.0))
    sizes = np.where(clear, np.sqrt(np.maximum(draws, 0.0)), 0.0)
    return Blend(share, LeftOut(mean, variance, share**2 * networks.fewer), sizes, np.where(clear, expit(odds), 0.0))


def _gain(before, after, weight) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """What squared errors have become smaller by, and its standard error."""
    gain = np.average(before - after, axis=0, weights=weight)
    spread = np.average((before - after - gain) ** 2, axis=0, weights=weight)
    return gain, np.sqrt(spread / weight.sum())


def is_clear(
    before: Float[np.ndarray, "n k"], after: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]
) -> Bool[np.ndarray, " k"]:
    """Whether squared errors have become smaller, by enough and surely."""
    gain, error = _gain(before, after, weight)
    return (gain > LEAST_SHARE * np.average(before, axis=0, weights=weight)) & (gain > LEAST_Z * error)
