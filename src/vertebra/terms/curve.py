"""A smooth curve through points that rises where they do: cubics, as Fritsch and Carlson (1980) join them.

scipy's `PchipInterpolator` is the same to the last bit, and brings its optimisers, which take longer than most of what
a command line is asked for.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Curve(NamedTuple):
    """Between knots x_i and x_{i+1} the cubic Σ_k c_ki (x − x_i)^{3−k}, the last one beyond the ends."""

    x: Float[np.ndarray, " m"]
    c: Float[np.ndarray, "4 _"]

    def __call__(self, at: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        place = np.clip(np.searchsorted(self.x, at, side="right") - 1, 0, len(self.x) - 2)
        s = at - self.x[place]
        square = s * s
        c0, c1, c2, c3 = (own[place] for own in self.c)
        return ((c3 + c2 * s) + c1 * square) + c0 * (square * s)


def monotone_curve(x: Float[np.ndarray, " m"], y: Float[np.ndarray, " m"]) -> Curve:
    """The curve through (x, y), x rising."""
    h, rise = np.diff(x), np.diff(y)
    slope = rise / h
    at = _slopes(h, slope) if len(x) > 2 else np.repeat(slope, 2)
    bend = (at[:-1] + at[1:] - 2.0 * slope) / h
    return Curve(x, np.stack([bend / h, (slope - at[:-1]) / h - bend, at[:-1], y[:-1]]))


def _slopes(h: Float[np.ndarray, " k"], slope: Float[np.ndarray, " k"]) -> Float[np.ndarray, " m"]:
    """Slopes at the points: weighted harmonic means of those beside them, 0 where these differ in sign."""
    is_flat = (np.sign(slope[1:]) != np.sign(slope[:-1])) | (slope[1:] == 0.0) | (slope[:-1] == 0.0)
    w1, w2 = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(is_flat, 0.0, 1.0 / ((w1 / slope[:-1] + w2 / slope[1:]) / (w1 + w2)))
    ends = _end(h[0], h[1], slope[0], slope[1]), _end(h[-1], h[-2], slope[-1], slope[-2])
    return np.concatenate([[ends[0]], inner, [ends[1]]])


def _end(h0: float, h1: float, m0: float, m1: float) -> float:
    """The slope at an end, by three points, as far as the curve stays between them."""
    slope = ((2.0 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    if np.sign(slope) != np.sign(m0):
        return 0.0
    return 3.0 * m0 if np.sign(m0) != np.sign(m1) and abs(slope) > 3.0 * abs(m0) else slope
