"""Tails of weighted sums of χ² variables, those of many tests at once: the saddlepoint of Lugannani & Rice (1980)."""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr

# Steps towards a saddlepoint: about five, and halves where these leave what is known.
MOST_STEPS = 200
# A saddlepoint is found where a step moves it by less than this share of itself, and nearly where by less than this:
# then the step is taken, even if by rounding it leads a little beyond what is known.
FOUND, NEARLY_FOUND = 1e-12, 1e-8
# How near to 0 a saddlepoint is 0, where the formula is 0/0: a slope beside the spread of the sum.
NEAR_ZERO = 1e-6
# No number is 0 that is divided by.
TINY = 1e-300


def chi_square_tail(weights: Float[np.ndarray, " k"], q: float, freedom: float = math.inf) -> float:
    """P(Σ_k weights_k χ²_1 > q · χ²_freedom/freedom)."""
    return float(chi_square_tails(weights[None], np.array([q]), freedom)[0])


def chi_square_tails(
    weights: Float[np.ndarray, "n k"], q: Float[np.ndarray, " n"], freedom: float = math.inf
) -> Float[np.ndarray, " n"]:
    """The same of n sums; a weight of 0 is of no variable."""
    result = np.ones(len(q))
    some = (q > 0.0) & (weights.max(axis=1, initial=0.0) > 0.0)
    if some.any():
        a, d, x = weights[some] / q[some, None], np.ones(weights.shape[1]), 1.0
        if math.isfinite(freedom):
            a, d, x = np.append(a, np.full((len(a), 1), -1.0 / freedom), axis=1), np.append(d, freedom), 0.0
        result[some] = _tails(a, d, x)
    return result


def centred_tail(a: Float[np.ndarray, " k"], d: Float[np.ndarray, " k"], x: float) -> float:
    """P(Σ_k a_k (χ²_{d_k} − d_k) > x), the a_k above 0; of no variable at all 1."""
    return float(_tails(a[None], d, x + float(a @ d))[0]) if len(a) else 1.0


def _tails(a: Float[np.ndarray, "n k"], d: Float[np.ndarray, " k"], x: float) -> Float[np.ndarray, " n"]:
    """P(Σ a_k χ²_{d_k} > x) from K(z) = −½ Σ d log(1 − 2az) and its saddlepoint, K′(z) = x."""
    top = 0.5 / a.max(axis=1)
    least = a.min(axis=1)
    bottom = np.where(least < 0.0, 0.5 / np.minimum(least, -TINY), -1e8 * top)
    at_zero = a @ d - x
    spread = np.sqrt(a**2 @ d)
    is_right = at_zero < 0.0
    low = np.where(is_right, 0.0, bottom * (1.0 - 1e-12))
    high = np.where(is_right, top * (1.0 - 1e-12), 0.0)
    z = _saddlepoints(a, d, x, low, high)
    rest = 1.0 - 2.0 * a * z[:, None]
    k = -0.5 * np.log(rest) @ d
    w = np.copysign(np.sqrt(np.maximum(2.0 * (z * x - k), TINY)), z)
    v = z * np.sqrt(2.0 * (a / rest) ** 2 @ d)
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = np.exp(log_ndtr(-(w + np.log(v / w) / w)))
    # a sum that cannot reach so far on one side of zero
    ends = np.where(is_right, high, low)
    is_short = _slopes(a, d, x, ends)[0] * np.where(is_right, 1.0, -1.0) < 0.0
    tails = np.where(is_short, np.where(is_right, 0.0, 1.0), tails)
    return np.where(np.abs(at_zero) < NEAR_ZERO * spread, 0.5, tails)


def _slopes(a, d, x: float, z) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """K′(z) − x and K″(z)."""
    each = a / (1.0 - 2.0 * a * z[:, None])
    return each @ d - x, 2.0 * each**2 @ d


def _saddlepoints(a, d, x: float, low, high) -> Float[np.ndarray, " n"]:
    """Roots of K′(z) = x, which rises, between two limits of which one is 0.

    K′ = P − N, P of the a_k above 0 and N of those below. Newton's steps for P = x + N crawl near their poles; 1/P and
    1/(x + N) are nearly straight there. Where a step would leave what is known, half of that is taken.
    """
    some, others = np.where(a > 0.0, d, 0.0), np.where(a < 0.0, d, 0.0)
    z = np.zeros(len(a))
    for _ in range(MOST_STEPS):
        each = a / (1.0 - 2.0 * a * z[:, None])
        squares = 2.0 * each**2
        p, n = np.sum(each * some, axis=1), x - np.sum(each * others, axis=1)
        p_slope, n_slope = np.sum(squares * some, axis=1), -np.sum(squares * others, axis=1)
        low, high = np.where(p < n, z, low), np.where(p < n, high, z)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = z + (n - p) * p * n / (p_slope * n**2 - n_slope * p**2)
        # a root that is found is a limit, which a step may miss by rounding to either side
        unit, own = FOUND * p / np.maximum(p_slope, TINY), np.abs(z)
        stays = ((step >= low) & (step <= high)) | (np.abs(step - z) <= NEARLY_FOUND * own + unit)
        new = np.where(stays, np.clip(step, low, high), 0.5 * (low + high))
        moved, z = np.abs(new - z), new
        if np.all(moved <= FOUND * own + 1e-3 * unit):
            break
    return z
