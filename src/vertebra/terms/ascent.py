"""Newton's method for a maximum of a few numbers below limits, where second derivatives cost little more than values.

A gradient's way to a maximum takes some twenty values, this one five; each is a Cholesky factor.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.machine.later import later

optimize = later("scipy.optimize")

# No number moves further at once: of logs of sizes, a factor of 12. Evidence far away is no parabola. A round number.
FARTHEST = 2.5
# A step that loses more than rounding of the value is made shorter, so many times. Round numbers.
ROUNDING, SHORTER, MOST_TRIED = 1e-13, 0.3, 12
# Curvatures below this are rounding, or a ridge.
LEAST_CURVATURE = 1e-3


class Near(NamedTuple):
    """A function near a point: its value, its gradient, and minus its second derivatives."""

    value: float
    gradient: Float[np.ndarray, " h"]
    curvature: Float[np.ndarray, "h h"]


def highest(
    near: Callable[[Float[np.ndarray, " h"]], Near],
    start: Float[np.ndarray, " h"],
    most: Float[np.ndarray, " h"],
    *,
    tolerance: float,
    n_most: int,
) -> Float[np.ndarray, " h"]:
    """Where a function is highest, up to a gain of `tolerance`, relative to its size above 1, by so many steps."""
    at = np.minimum(start, most)
    here = near(at)
    for _ in range(n_most):
        step = _step(here, np.full(len(at), -FARTHEST), np.minimum(most - at, FARTHEST))
        promised = float(here.gradient @ step - 0.5 * step @ here.curvature @ step)
        if max(promised, 0.5 * float(here.gradient @ step)) <= tolerance * max(abs(here.value), 1.0):
            # as good as there: nothing that another value would tell
            return np.minimum(at + step, most) if promised > 0.0 else at
        for _ in range(MOST_TRIED):
            there = near(np.minimum(at + step, most))
            if there.value >= here.value - ROUNDING * abs(here.value):
                break
            step = SHORTER * step
        else:
            return at
        at, here = np.minimum(at + step, most), there
    return at


def _step(here: Near, low: np.ndarray, high: np.ndarray) -> Float[np.ndarray, " h"]:
    """H⁻¹g, and |H|⁻¹g where the function curves upwards; the highest place of that parabola between two limits.

    Cut number by number H⁻¹g would lead elsewhere, perhaps down: numbers that are no longer free move the others.
    """
    values, vectors = np.linalg.eigh(here.curvature)
    root = np.sqrt(np.maximum(np.abs(values), LEAST_CURVATURE))
    along = vectors.T @ here.gradient / root
    step = vectors @ (along / root)
    if np.all((low <= step) & (step <= high)):
        return step
    # gᵀd − ½ dᵀ|H|d = ½ ‖a‖² − ½ ‖a − |H|^{1/2}d‖², a = |H|^{−1/2}g
    return np.clip(optimize.lsq_linear(root[:, None] * vectors.T, along, (low, high), method="bvls").x, low, high)
