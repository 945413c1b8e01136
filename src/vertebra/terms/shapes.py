"""Shapes that are asked for: the posterior of a sum of terms whose f rises or falls with some of its inputs.

Along a tabulated input f is a line from knot to knot, and at the knots linear in its coefficients: it rises where every
such step is up, whatever the other inputs are. That is a cone of coefficients. A draw of the posterior is one of the
Gaussian without the shape, taken to the nearest point of the cone in the metric of that Gaussian's precision, as
drawing and fitting under the constraint would: a posterior whose prior has mass on functions that are flat somewhere
(Lin & Dunson 2014). The Gaussian cut to the cone has none there: it makes flat parts rise, and misses what is flat.
Prediction is by the likeliest function, the nearest point to the Gaussian's mean.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_solve
from scipy.optimize import nnls

from vertebra.terms.evidence import Basis
from vertebra.terms.functions import System
from vertebra.terms.term import Term

# Draws of the posterior: sds are off by 4 %. A round number.
N_DRAWS = 300
# The most looks for steps that still go down. A round number: a few do.
N_LOOKS = 50
# A step must be up by this share of its sd, so that rounding cannot turn it.
LEAST_STEP = 1e-7
# Of the largest variance, what rounding may take from the others.
ROUNDING = 1e-12

# +1 where f rises with an input, −1 where it falls.
Shapes = Mapping[int, int]


class Shaped(NamedTuple):
    """Coefficients given the shape: the likeliest, and a root whose columns are draws less it, over √draws."""

    mean: Float[np.ndarray, " m1"]
    root: Float[np.ndarray, "m1 draws"]


class _Steps(NamedTuple):
    """How f steps from knot to knot of one input: its own part, and what groups of other inputs add at their places."""

    sign: int
    own: Float[np.ndarray, "k m"]  # of the main effect
    groups: list["_Group"]


class _Group(NamedTuple):
    """Inputs that share terms with the one that steps, and with each other."""

    columns: Int[np.ndarray, " c"]
    steps: Float[np.ndarray, "k c"]  # of the stepping input's function in each column
    places: Float[np.ndarray, "q c"]  # the product of the others' functions, at all their places together


class Cone:
    """The coefficients of sums of terms that have the shapes."""

    def __init__(self, basis: Basis, shapes: Shapes):
        self.m = basis.n_columns
        self.steps = [_steps(basis, i, sign) for i, sign in sorted(shapes.items()) if basis.systems[i].is_alive]
        self.steps = [each for each in self.steps if each.own.any() or each.groups]
        touched = [np.flatnonzero(s.own.any(axis=0)) for s in self.steps]
        touched += [g.columns for s in self.steps for g in s.groups]
        self.columns = np.unique(np.concatenate([np.zeros(0, dtype=int), *touched]))
        # what grows beyond the range would turn there: f levels off
        self.level = np.array([k for i in shapes for k in _growing(basis, i)], dtype=int)

    def broken(self, v: Float[np.ndarray, " m"]) -> Float[np.ndarray, "w m"]:
        """Walls that these coefficients lie beyond: of every step that is down somewhere, where it is lowest."""
        walls = [np.zeros((0, self.m))]
        for each in self.steps:
            total, lowest = each.sign * (each.own @ v), []
            for group in each.groups:
                values = each.sign * ((group.steps * v[group.columns]) @ group.places.T)
                lowest.append(np.argmin(values, axis=1))
                total = total + np.min(values, axis=1)
            down = np.flatnonzero(total < 0.0)
            wall = each.own[down]
            for group, places in zip(each.groups, lowest, strict=True):
                wall[:, group.columns] += group.steps[down] * group.places[places[down]]
            walls.append(each.sign * wall)
        return np.concatenate(walls)


def shaped(
    basis: Basis,
    mean: Float[np.ndarray, " m1"],
    root: Float[np.ndarray, "m1 k"],
    shapes: Shapes,
    rng: np.random.Generator,
) -> Shaped:
    """The posterior of (c, v) given the shapes, from that without them."""
    given = _Given(Cone(basis, shapes), mean, root)
    mode = given.mode()
    every = given.draws(rng)
    return Shaped(mode, (every - mode[:, None]) / math.sqrt(N_DRAWS))


def shaped_mode(
    basis: Basis, mean: Float[np.ndarray, " m1"], root: Float[np.ndarray, "m1 k"], shapes: Shapes
) -> Float[np.ndarray, " m1"]:
    """The likeliest (c, v) that has the shapes."""
    return _Given(Cone(basis, shapes), mean, root).mode()


class _Given:
    """(c, v) ~ N(μ, R Rᵀ), taken to a cone, of which walls are found as they are run into."""

    def __init__(self, cone: Cone, mean: Float[np.ndarray, " m1"], root: Float[np.ndarray, "m1 k"]):
        self.cone, self.mean, self.root = cone, mean, root
        self.own = cone.columns + 1
        self.rest = np.setdiff1d(np.arange(len(mean)), self.own)
        covariance = root[self.own] @ root[self.own].T
        covariance[np.diag_indices_from(covariance)] += ROUNDING * float(np.diag(covariance).max(initial=1e-300))
        self.lower = np.linalg.cholesky(covariance)
        # the others, given these: a regression on them
        self.slope = cho_solve((self.lower, True), root[self.own] @ root[self.rest].T).T

    def mode(self) -> Float[np.ndarray, " m1"]:
        return self._nearest(self.mean[:, None])[:, 0]

    def draws(self, rng: np.random.Generator) -> Float[np.ndarray, "m1 draws"]:
        """Draws of the Gaussian, each taken to the nearest point of the cone."""
        noise = rng.standard_normal((self.root.shape[1], N_DRAWS))
        return self._nearest(self.mean[:, None] + self.root @ noise)

    def _nearest(self, v: Float[np.ndarray, "m1 draws"]) -> Float[np.ndarray, "m1 draws"]:
        """The points of the cone nearest to these, in the metric of the posterior's precision."""
        cone, own, v = self.cone, self.own, v.copy()
        v[cone.level + 1] = 0.0
        start = v[own]
        for k in range(v.shape[1]):
            walls = [cone.broken(v[1:, k])]
            for _ in range(N_LOOKS):
                if not len(walls[-1]):
                    break
                met = np.concatenate(walls)[:, cone.columns]
                v[own, k] = start[:, k] + self.lower @ _least(met @ self.lower, met @ start[:, k])
                walls.append(cone.broken(v[1:, k]))
        v[self.rest] += self.slope @ (v[own] - start)
        v[cone.level + 1] = 0.0
        return v


def _least(walls: Float[np.ndarray, "w c"], offset: Float[np.ndarray, " w"]) -> Float[np.ndarray, " c"]:
    """The point nearest to 0 with walls · x + offset ≥ a little, by least squares with weights that are not negative.

    Lawson & Hanson's least distance: x = −r/r₀, r the residual of (wallsᵀ; h) u ≈ (0; 1), u ≥ 0.
    """
    size = np.linalg.norm(walls, axis=1)
    seen = size > 1e-12 * size.max(initial=1e-300)
    walls, h = walls[seen] / size[seen, None], LEAST_STEP - offset[seen] / size[seen]
    if not len(h) or np.all(h <= 0.0):
        return np.zeros(walls.shape[1])
    system = np.concatenate([walls.T, h[None]])
    target = np.append(np.zeros(walls.shape[1]), 1.0)
    u, _ = nnls(system, target, maxiter=30 * system.shape[1])
    r = system @ u - target
    return -r[:-1] / r[-1]


def _steps(basis: Basis, i: int, sign: int) -> _Steps:
    """The steps of f along an input."""
    table = basis.systems[i].whole_table
    own = np.zeros((len(table) - 1, basis.n_columns))
    shared = []
    for block, place in zip(basis.blocks, basis.slices, strict=True):
        if i not in block.term:
            continue
        step = np.diff(table[:, block.index[:, block.term.index(i)]], axis=0)
        if len(block.term) == 1:
            own[:, place] = step
        else:
            shared.append((block, np.arange(place.start, place.stop), step))
    groups = [_group(basis.systems, i, shared, others) for others in _connected([b.term for b, *_ in shared], i)]
    return _Steps(sign, own, groups)


def _connected(terms: Sequence[Term], i: int) -> list[set[int]]:
    """Groups of the other inputs that terms join."""
    groups: list[set[int]] = []
    for term in terms:
        new = set(term) - {i}
        for group in [g for g in groups if g & new]:
            new |= group
            groups.remove(group)
        groups.append(new)
    return groups


def _group(systems: Sequence[System], i: int, shared, others: set[int]) -> _Group:
    places = {j: np.append(systems[j].whole_table, systems[j].missing[None], axis=0) for j in others}
    grid = np.array(list(itertools.product(*(range(len(places[j])) for j in sorted(others)))))
    at = {j: grid[:, axis] for axis, j in enumerate(sorted(others))}
    columns, steps, values = [], [], []
    for block, place, step in shared:
        if not set(block.term) - {i} <= others:
            continue
        value = np.ones((len(grid), len(place)))
        for axis, j in enumerate(block.term):
            if j != i:
                value *= places[j][np.ix_(at[j], block.index[:, axis])]
        columns.append(place)
        steps.append(step)
        values.append(value)
    return _Group(np.concatenate(columns), np.concatenate(steps, axis=1), np.concatenate(values, axis=1))


def _growing(basis: Basis, i: int) -> list[int]:
    """The column of an input's function of what no row has."""
    last = len(basis.systems[i].kind) - 1
    return [
        int(place.start + k)
        for block, place in zip(basis.blocks, basis.slices, strict=True)
        if block.term == (i,) and basis.systems[i].grows
        for k in np.flatnonzero(block.index[:, 0] == last)
    ]
