"""The points that components are worked out at, with the measures of averages and strengths; means along axes."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.terms.polynomials import gauss_rule
from vertebra.terms.term import Term

# Nodes per input, by the size of the largest cluster that reads it, so that a grid has some thousand points; means of
# polynomials to twice the number are exact.
NODES = {1: 40, 2: 20, 3: 12, 4: 8}


class Axis(NamedTuple):
    """Points of one input: `average` is the measure of E_i, `norm` that of the strength; points to look at: none."""

    points: Float[np.ndarray, " m"]
    average: Float[np.ndarray, " m"]
    norm: Float[np.ndarray, " m"]


def axes_of(
    clusters: Sequence[Term],
    rows: Float[np.ndarray, "n p"],
    weights: Float[np.ndarray, " n"],
    anchor: Float[np.ndarray, " p"] | None,
    nodes: int | None,
    points: int | Mapping[int, np.ndarray] | None,
    categories: Collection[int] = (),
) -> list[Axis]:
    """An axis for every input: nodes that carry the marginal of the rows, the baseline, points to look at.

    Of categories every level is a node; missing values, NaN, are one more.
    """
    axes = []
    for i in range(rows.shape[1]):
        size = max((len(c) for c in clusters if i in c), default=1)
        n_nodes = NODES.get(size, 8) if nodes is None else nodes
        values, measure = _marginal(rows[:, i], weights, len(rows) if i in categories else n_nodes)
        average = measure
        if anchor is not None:
            values = np.append(values, anchor[i])
            average, measure = np.append(np.zeros(len(measure)), 1.0), np.append(measure, 0.0)
        if points:
            if isinstance(points, Mapping):
                shown = np.asarray(points.get(i, np.zeros(0)), dtype=float)
            else:
                shown = np.linspace(*_range(rows[weights > 0, i]), points)
            values = np.concatenate([values, shown])
            average, measure = (np.concatenate([m, np.zeros(len(shown))]) for m in (average, measure))
        places = np.argsort(values, kind="stable")
        axes.append(Axis(values[places], average[places], measure[places]))
    return axes


def _marginal(
    column: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"], n_nodes: int
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    gap = np.isnan(column) & (weights > 0)
    if not gap.any():
        return gauss_rule(column, weights, n_nodes)
    missing, seen = weights[gap].sum() / weights.sum(), ~gap & (weights > 0)
    values, measure = gauss_rule(column[seen], weights[seen], n_nodes) if seen.any() else (np.zeros(0), np.zeros(0))
    return np.append(values, np.nan), np.append((1.0 - missing) * measure, missing)


def _range(column: Float[np.ndarray, " n"]) -> tuple[float, float]:
    seen = column[~np.isnan(column)]
    return (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 0.0)


def components(
    values: Float[np.ndarray, "leading *grid"],
    grid: Sequence[Axis],
    order: int | None,
    inside: Collection[Term] | None,
    cluster: Term,
) -> dict[Term, Float[np.ndarray, "leading ..."]]:
    """Every I_T of the cluster's function by means along axes: values (leading, m_1, …, m_k) to arrays over T."""
    parts: dict[Term, np.ndarray] = {(): values}
    for i, axis in zip(cluster, grid, strict=True):
        split = {}
        for term, array in parts.items():
            # the axis of input i is the first after those kept
            place = 1 + len(term)
            average = np.tensordot(array, axis.average, axes=(place, 0))
            split[term] = average
            if (order is None or len(term) < order) and (inside is None or any({*term, i} <= set(t) for t in inside)):
                split[(*term, i)] = array - np.expand_dims(average, place)
        parts = split
    return parts if inside is None else {t: parts[t] for t in inside}


def subsets(term: Sequence[int], most: int | None = None) -> list[Term]:
    """Every subset of a term, up to an order; the empty one first."""
    top = len(term) if most is None else min(most, len(term))
    return [s for k in range(top + 1) for s in itertools.combinations(term, k)]


def product(points: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, "n k"]:
    """All combinations, one row each, the last axis fastest."""
    if not points:
        return np.zeros((1, 0))
    return np.stack([grid.ravel() for grid in np.meshgrid(*points, indexing="ij")], axis=1)


def outer(weights: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, "*grid"]:
    """Weights of all combinations."""
    total = np.ones(())
    for weight in weights:
        total = total[..., None] * weight
    return total
