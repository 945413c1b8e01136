"""log p(y | f), P(Y ≤ y | f) and links, each formula once, for JAX and for NumPy in double precision.

`z` is y less its location, over the scale. `maths` says what to compute with: `IN_JAX` where f is trained through,
which is in a file of its own, since predictions need no JAX; `IN_NUMPY` for predictions and for rows near f, which come
in any number and are not worth a compilation.
"""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from scipy import special

if TYPE_CHECKING:
    from jaxtyping import Array

    A = TypeVar("A", Array, np.ndarray)
else:
    A = TypeVar("A")


class Maths(NamedTuple):
    """An array module, and those functions that JAX and SciPy keep in different places."""

    xp: ModuleType
    parameter: Callable  # a likelihood's own number, in the precision that is computed in
    gammaln: Callable
    ndtr: Callable  # the distribution functions: the normal, Student's (degrees, z) and Poisson's (count, rate)
    stdtr: Callable
    pdtr: Callable
    betainc: Callable  # the regularised incomplete beta function (a, b, x)
    softplus: Callable  # log(1 + e^f)
    log_softmax: Callable


IN_NUMPY = Maths(
    xp=np,
    parameter=lambda value: np.asarray(value, np.float64),
    gammaln=special.gammaln,
    ndtr=special.ndtr,
    stdtr=special.stdtr,
    pdtr=special.pdtr,
    betainc=special.betainc,
    softplus=lambda f: -special.log_expit(-f),
    log_softmax=special.log_softmax,
)


def scale_of(log_scale: object) -> Float[np.ndarray, "*k"]:
    """A scale of noise in double precision, from its logarithm in that of the fit.

    It is rounded as the fit would round it: exponentials in single precision differ between libraries and processors.
    """
    kept = np.asarray(log_scale)
    return np.asarray(np.exp(kept.astype(np.float64)), dtype=kept.dtype).astype(np.float64)


def log_scale_link(f: A, maths: Maths) -> A:
    """2 tanh(f/4): what f₂ adds to the log scale of uneven noise.

    Close to f/2, so that f₂ is a log variance, and never past ±2: the scale stays within a factor e² either way.
    """
    return 2.0 * maths.xp.tanh(0.25 * f)


def normal_log_prob(z: A, log_scale: A | float, maths: Maths) -> A:
    return -0.5 * z**2 - log_scale - 0.5 * maths.xp.log(2.0 * np.pi)


def student_log_prob(square: A, log_scale: A | float, degrees: A | float, maths: Maths) -> A:
    """Student's density from z²: the mean of a square, in place of it, gives Jensen's bound of the mean."""
    gammaln, xp = maths.gammaln, maths.xp
    constant = gammaln(0.5 * (degrees + 1.0)) - gammaln(0.5 * degrees) - 0.5 * xp.log(degrees * np.pi)
    return constant - log_scale - 0.5 * (degrees + 1.0) * xp.log1p(square / degrees)


def poisson_log_prob(y: A, f: A, rate: A, maths: Maths) -> A:
    """log p of counts with the rate e^f; with E e^f for the rate, the mean of it over f of the mean `f`."""
    return y * f - rate - maths.gammaln(y + 1.0)


def poisson_cdf(y: A, rate: A, maths: Maths) -> A:
    xp = maths.xp
    return xp.where(y < 0.0, 0.0, maths.pdtr(xp.floor(xp.maximum(y, 0.0)), rate))


def negative_binomial_log_prob(y: A, f: A, dispersion: A | float, maths: Maths) -> A:
    """log p of counts of mean μ = e^f and variance μ + αμ², α the dispersion: with r = 1/α

    log Γ(y + r) − log Γ(r) − log y! + y (log α + f) − (y + r) log(1 + αμ).
    """
    r, log_odds = 1.0 / dispersion, maths.xp.log(dispersion) + f
    gammaln = maths.gammaln
    ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
    return ways + y * log_odds - (y + r) * maths.softplus(log_odds)


def negative_binomial_cdf(y: A, f: A, dispersion: A | float, maths: Maths) -> A:
    """P(Y ≤ y) = I_{1/(1 + αμ)}(r, y + 1)."""
    xp, r = maths.xp, 1.0 / dispersion
    stay = xp.exp(-maths.softplus(xp.log(dispersion) + f))
    return xp.where(y < 0.0, 0.0, maths.betainc(r, xp.floor(xp.maximum(y, 0.0)) + 1.0, stay))


def bernoulli_log_prob(f: A, y: A, maths: Maths) -> A:
    return -maths.softplus(maths.xp.where(y > 0.5, -f, f))


def categorical_log_prob(f: A, codes: A, maths: Maths) -> A:
    return maths.xp.take_along_axis(maths.log_softmax(f, axis=-1), codes, axis=-1)


def softmax_in_place(f: np.ndarray) -> np.ndarray:
    """e^f / Σ e^f along the last axis, in the place of f: of many points SciPy's, which keeps f, takes three times."""
    f -= f.max(axis=-1, keepdims=True)
    np.exp(f, out=f)
    f /= f.sum(axis=-1, keepdims=True)
    return f
