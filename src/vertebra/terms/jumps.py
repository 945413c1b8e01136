"""Where a function of one input jumps: Brownian motion whose rate is learned along its scale.

Brownian motion with one rate takes a jump for a steep rise: it is bent there, and sure of it. With increments of
Student's t in place of Gaussian ones, most of them are small and few are large, wherever the data want it. By EM the
rate of increment k is q_k = c Δu_k λ_k with λ_k = (ν + E Δf_k²/(c Δu_k))/(ν + 1), and c what is left of them in the
mean. Given the rates the process is Gaussian again, one more family (`families`) with a posterior in closed form.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.terms.columns import columns
from vertebra.terms.functions import System
from vertebra.terms.model import Model

# The degrees of freedom of increments: Cauchy's. In trials of one jump with 0.1 bands of a smooth function covered 0.84
# and with 3 flat parts were less so; with 1 bands of both held.
FREEDOM = 1.0
# Rounds of EM, and the change of the largest log rate at which they end. Round numbers.
N_ROUNDS, AT_REST = 60, 0.01
# An increment whose rate is so many times the usual one is a jump: its place costs the logarithm of how many there are.
MANY_TIMES = 10.0
# Beside what the data say of a knot, what keeps the level of f, which they say everything about, from being improper.
LEVEL = 1e-9


class Cells(NamedTuple):
    """What the rest of a model leaves for one input, by knot: its precision, and the mean."""

    precision: Float[np.ndarray, " g"]
    mean: Float[np.ndarray, " g"]


class Rates(NamedTuple):
    """The rate of each increment, and the log of the number of ways to place as many jumps."""

    rate: Float[np.ndarray, " h"]
    cost: float


def cells_of(model: Model, i: int) -> Cells:
    """What the terms of a model but the main effect of input i leave of y, by the nearest knot of that input."""
    term, n_knots = (i,), len(model.rows.systems[i].knots)
    own = [
        (block, model.posterior.mean[place])
        for block, place in zip(model.basis.blocks, model.basis.slices, strict=True)
        if block.term == term
    ]

    def work(values, y, weight):
        left = y - model.at(values)
        for block, mean in own:
            left = left + columns(values, term, block.index) @ mean
        weight = np.where(values[i].special > 0, 0.0, weight)
        near = values[i].left + (values[i].share > 0.5)
        return [np.bincount(near, each, n_knots) for each in (weight, weight * left)]

    weight, total = model.rows.source.total(work)
    return Cells(weight / model.posterior.noise_variance, total / np.maximum(weight, 1e-300))


def rates_of(system: System, cells: Sequence[Cells]) -> Rates:
    """The rates of highest posterior of one input's functions, shared by all latent functions."""
    steps = np.maximum(np.diff(system.places), 1e-12)
    # of each latent function: a share of the spread of its means as a start
    sizes = [0.05 * _spread(each) for each in cells]
    scale = np.ones(len(steps))
    for _ in range(N_ROUNDS):
        squares = [_squares(each, size * steps * scale) for each, size in zip(cells, sizes, strict=True)]
        before, above = scale, sum(square / (size * steps) for square, size in zip(squares, sizes, strict=True))
        scale = (FREEDOM + above) / (FREEDOM + len(cells))
        sizes = [float(np.mean(square / (scale * steps))) for square in squares]
        if np.max(np.abs(np.log(scale / before))) < AT_REST:
            break
    rate = steps * scale
    n_jumps = int(np.count_nonzero(scale > MANY_TIMES * np.median(scale)))
    # the binomial coefficient, by Stirling
    cost = n_jumps * (1.0 + math.log(len(steps) / n_jumps)) if n_jumps else 0.0
    return Rates(rate * (2.0 / rate.sum()), cost)


def _spread(cells: Cells) -> float:
    mean = np.average(cells.mean, weights=cells.precision)
    return max(float(np.average((cells.mean - mean) ** 2, weights=cells.precision)), 1e-12)


def _squares(cells: Cells, rate: Float[np.ndarray, " h"]) -> Float[np.ndarray, " h"]:
    """E (f_{k+1} − f_k)² given the data, of Brownian motion with these rates: P = diag(w) + Dᵀ diag(1/q) D = LΔLᵀ.

    P has three diagonals: one sweep down for its factors, one up for means, variances and covariances of neighbours.
    """
    w, beside = cells.precision, 1.0 / rate
    diagonal = w + LEVEL * w.mean()
    diagonal[:-1] += beside
    diagonal[1:] += beside
    right, off = (w * cells.mean).tolist(), (-beside).tolist()
    pivot = diagonal.tolist()
    lower = [0.0] * len(pivot)
    for k in range(1, len(pivot)):
        lower[k] = off[k - 1] / pivot[k - 1]
        pivot[k] -= lower[k] * off[k - 1]
        right[k] -= lower[k] * right[k - 1]
    mean, variance = right[-1] / pivot[-1], 1.0 / pivot[-1]
    squares = [0.0] * len(off)
    for k in range(len(pivot) - 2, -1, -1):
        along = -lower[k + 1]  # E[f_k | f_{k+1}] rises by so much with f_{k+1}
        own = right[k] / pivot[k] + along * mean
        covariance = along * variance
        own_variance = 1.0 / pivot[k] + along * covariance
        squares[k] = (mean - own) ** 2 + variance + own_variance - 2.0 * covariance
        mean, variance = own, own_variance
    return np.array(squares)
