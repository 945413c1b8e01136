"""All three-way terms of some inputs at a glance: which of thousands have scores worth a test.

A product of three inputs that act only together shows in none of its pairs, so that every triple is looked at. The
scores of all are products of matrices: for each input, the residuals times its functions times those of every other on
one side, the functions of every other on the other side. Each is set beside what it varies by in these rows.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vertebra.terms.functions import SEEN, Values
from vertebra.terms.model import Model
from vertebra.terms.score_test import TEST_DEGREE
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term

# Functions of each input, and the pairs of them that leave room for a third one in what a test looks at.
N_EACH = TEST_DEGREE[3] - 2
PAIRS = tuple((a, b) for a, b in itertools.product(range(N_EACH), repeat=2) if a + b + 3 <= TEST_DEGREE[3])
# A score's variance that is smaller beside the largest is that of no row. In single precision rounding is 1e-7.
ROUNDING = 1e-9


def largest_triples(model: Model, triples: Sequence[Term], n: int) -> list[Term]:
    """The n triples whose scores are largest for what they vary by, smoother products counting for more."""
    if len(triples) <= n:
        return list(triples)
    inputs = sorted({i for term in triples for i in term})
    energy = _energies(model, inputs)
    place = {i: k for k, i in enumerate(inputs)}
    own = np.array([energy[tuple(place[i] for i in term)] for term in triples])
    return [triples[k] for k in np.argsort(-own, kind="stable")[:n]]


def _energies(model: Model, inputs: Sequence[int]) -> Float[np.ndarray, "p p p"]:
    """Σ exp(−cost) u²/Var u of the products of three inputs, at their places in increasing order."""
    rows, p = model.rows, len(inputs)
    first, second = (list(each) for each in zip(*PAIRS, strict=True))
    scale = np.sqrt(model.posterior.noise_variance)

    def scores(values: Values, y, weight):
        phi = _smoothest(rows, values, inputs)
        left_over = (weight * (y - model.at(values)) / scale).astype(np.float32)
        sums = []
        for k in range(p - 2):
            rest = phi[:, k + 1 :]
            left = (left_over[:, None] * phi[:, k, first])[:, None] * rest[:, :, second]
            left, right = left.reshape(len(phi), -1), rest.reshape(len(phi), -1)
            sums += [left.T @ right, (left * left).T @ (right * right)]
        return sums

    sums = rows.source.total(scores)
    cost = _costs(rows, inputs)
    energy = np.zeros((p, p, p))
    for k in range(p - 2):
        q = p - k - 1
        u, variance = (each.reshape(q, len(PAIRS), q, N_EACH) for each in sums[2 * k : 2 * k + 2])
        both = cost[k, first][None] + cost[k + 1 :][:, second]
        total = both[:, :, None, None] + cost[None, None, k + 1 :]
        there = (total <= TEST_DEGREE[3]) & (variance > ROUNDING * variance.max(initial=0.0))
        each = np.where(there, np.exp(-np.where(there, total, 0.0)) * u**2 / np.where(there, variance, 1.0), 0.0)
        energy[k, k + 1 :, k + 1 :] = each.sum(axis=(1, 3))
    return energy


def _smoothest(rows: RowSums, values: Values, inputs: Sequence[int]) -> Float[np.ndarray, "n p k"]:
    """The smoothest functions of some inputs; zeros where one has fewer."""
    found = np.zeros((len(values[inputs[0]].left), len(inputs), N_EACH), dtype=np.float32)
    for k, i in enumerate(inputs):
        own = rows.systems[i].of(SEEN)[:N_EACH]
        found[:, k, : len(own)] = values[i].of(own, np.float32)
    return found


def _costs(rows: RowSums, inputs: Sequence[int]) -> Float[np.ndarray, "p k"]:
    """Their degrees; of functions that are not there more than any test looks at."""
    cost = np.full((len(inputs), N_EACH), TEST_DEGREE[3] + 1.0)
    for k, i in enumerate(inputs):
        own = rows.systems[i].of(SEEN)[:N_EACH]
        cost[k, : len(own)] = rows.systems[i].cost[own]
    return cost
