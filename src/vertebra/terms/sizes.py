"""How strong a term may be, and how much its scores speak for it: coefficients β of which u ~ N(λβ, λ) is seen."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from vertebra.terms.chi_squares import TINY
from vertebra.terms.structure import SIZES, Size

# Sizes of a term that are compared for its limits, and draws of its functions. Round numbers.
N_STRENGTHS, N_SIZE_DRAWS = 40, 400


def evidences_of(
    values: Float[np.ndarray, "n k"], rotated: Float[np.ndarray, "n k"]
) -> tuple[Float[np.ndarray, "n sizes"], Float[np.ndarray, "n sizes"]]:
    """Sizes τ², in units of what one can just see, 1/λ, and log p(u | T is there, of this size)/p(u | not).

    u is N(0, λ + τ²λ²), or N(0, λ).
    """
    sizes = SIZES / np.maximum(values.max(axis=1, initial=0.0), TINY)[:, None]
    gains = sizes[:, :, None] * values[:, None]
    # r²/λ · τ²λ/(1 + τ²λ)
    gained = (rotated**2)[:, None] * sizes[:, :, None] / (1.0 + gains) - np.log1p(gains)
    return sizes, 0.5 * np.sum(gained, axis=2)


def log_bayes_factors(by_size: Float[np.ndarray, "n sizes"]) -> Float[np.ndarray, " n"]:
    """log p(u | T is there)/p(u | not), every size as likely."""
    return np.logaddexp.reduce(by_size, axis=1) - math.log(by_size.shape[1])


def draws_of(
    values: Float[np.ndarray, " m"],
    rotated: Float[np.ndarray, " m"],
    furthest: float,
    chance: Callable[[np.ndarray], np.ndarray] = np.ones_like,
) -> Float[np.ndarray, "draws m"]:
    """Draws of β given u ~ N(λβ, λ) and β ~ N(0, τ²), every size τ up to the furthest as likely as another beforehand.

    A prior that is flat in a strength makes its upper limit hold where nothing was seen. `chance` is that of being
    looked at, by size: the likelihood of a term that was chosen is over that.
    """
    sizes = (np.arange(N_STRENGTHS) + 0.5) / N_STRENGTHS * furthest
    shrunk = 1.0 / (values + 1.0 / sizes[:, None] ** 2)
    log_weight = 0.5 * np.sum(rotated**2 * shrunk - np.log1p(sizes[:, None] ** 2 * values), axis=1)
    draws = np.random.default_rng(0).standard_normal((N_SIZE_DRAWS, len(values)))
    share = np.cumsum(softmax(log_weight - np.log(chance(sizes))))
    chosen = np.searchsorted(share, (np.arange(N_SIZE_DRAWS) + 0.5) / N_SIZE_DRAWS * share[-1])
    variance = shrunk[chosen]
    return variance * rotated + np.sqrt(variance) * draws


def size_of(strengths: Float[np.ndarray, " draws"]) -> Size:
    """What draws of a term's strength say of it."""
    lower, upper = np.quantile(strengths, [0.025, 0.95])
    return Size(float(strengths.mean()), float(strengths.std()), float(lower), float(upper))
