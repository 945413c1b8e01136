"""How strong a term may be, and how much its scores speak for it: coefficients β of which u ~ N(λβ, λ) is seen."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from vertebra.terms.chi_squares import TINY
from vertebra.terms.structure import Size

# Sizes τ² that a Bayes factor averages over, in units of what one can just see, 1/λ, and how many of them.
SMALLEST, LARGEST, N_SIZES = 1.0, 1e4, 13
# Sizes of a term that are compared for its limits, and draws of its functions. Round numbers.
N_STRENGTHS, N_SIZE_DRAWS = 40, 400


def log_bayes_factors(values: Float[np.ndarray, "n k"], rotated: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """log p(u | T is there)/p(u | not), its size τ² averaged over sizes from what one can just see upwards."""
    _, each = evidences_of(values, rotated)
    highest = each.max(axis=1)
    return highest + np.log(np.mean(np.exp(each - highest[:, None]), axis=1))


def evidences_of(
    values: Float[np.ndarray, "n k"], rotated: Float[np.ndarray, "n k"]
) -> tuple[Float[np.ndarray, "n sizes"], Float[np.ndarray, "n sizes"]]:
    """Sizes τ², and log p(u | T is there, of this size)/p(u | not): u ~ N(0, λ) or N(0, λ + τ²λ²)."""
    sizes = np.geomspace(SMALLEST, LARGEST, N_SIZES) / np.maximum(values.max(axis=1, initial=0.0), TINY)[:, None]
    gains = sizes[:, :, None] * values[:, None]
    # r²/λ · τ²λ/(1 + τ²λ)
    gained = (rotated**2)[:, None] * sizes[:, :, None] / (1.0 + gains) - np.log1p(gains)
    return sizes, 0.5 * np.sum(gained, axis=2)


def size_of(
    values: Float[np.ndarray, " m"],
    rotated: Float[np.ndarray, " m"],
    furthest: float,
    strengths: Callable[[Float[np.ndarray, "draws m"]], Float[np.ndarray, " draws"]],
) -> Size:
    """The sd of f that coefficients make, given u ~ N(λβ, λ) and β ~ N(0, τ²), every τ up to the furthest as likely.

    `strengths` has the sds of f that draws of the coefficients make.
    """
    sizes = (np.arange(N_STRENGTHS) + 0.5) / N_STRENGTHS * furthest
    shrunk = 1.0 / (values + 1.0 / sizes[:, None] ** 2)
    log_weight = 0.5 * np.sum(rotated**2 * shrunk - np.log1p(sizes[:, None] ** 2 * values), axis=1)
    draws = np.random.default_rng(0).standard_normal((N_SIZE_DRAWS, len(values)))
    share = np.cumsum(softmax(log_weight))
    chosen = np.searchsorted(share, (np.arange(N_SIZE_DRAWS) + 0.5) / N_SIZE_DRAWS * share[-1])
    variance = shrunk[chosen]
    strength = strengths(variance * rotated + np.sqrt(variance) * draws)
    lower, upper = np.quantile(strength, [0.025, 0.95])
    return Size(float(strength.mean()), float(strength.std()), float(lower), float(upper))
