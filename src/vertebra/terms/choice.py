"""Which family of functions a term is made of, chosen by evidence given the rest of the model.

With the noise and the other terms as they are, the evidence of a term's coefficients under a prior needs no more than
the score u and its variance Λ of that term's columns (`score_test`): ½ Σ (t r²/(1 + t λ) − log(1 + t λ)), λ and r those
of S^{1/2}ΛS^{1/2} and S^{1/2}u, at the best size t and smoothness.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from vertebra.terms.evidence import (
    LINK_LOG_VARIANCE,
    LINK_SMOOTHNESS,
    LOG_VARIANCE,
    SMOOTHNESS,
    TOTAL_DEGREE,
    Block,
    decay,
)
from vertebra.terms.families import MOST_LOCAL, Family
from vertebra.terms.functions import SEEN, Families, System, products, usual_families
from vertebra.terms.model import Model
from vertebra.terms.score_test import given_the_rest
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term

# Rows that a part of the plane of two inputs must have, where as many are to be expected, and the least share of these.
FEWEST, FILLED = 3.0, 0.1
# Columns that families are compared by, by order: of one input all there are. Round numbers.
N_COLUMNS = {1: MOST_LOCAL, 2: 30, 3: 30}
# Sizes t and smoothnesses α that are tried.
SIZES = np.geomspace(1e-5, 1e3, 25)
# What a family must gain in log evidence to be preferred to smooth functions: a factor of 20. With 0, mpg and pima are
# worse for it; with 6, abalone (splits 0 and 1).
SMOOTHER = 3.0
SMOOTHNESSES = (0.5, 1.0, 2.0, 3.0, 5.0)
NO_COSTS: Mapping[Term, Mapping[Families, float]] = MappingProxyType({})


def choose(
    models: Sequence[Model | None], terms: Iterable[Term], costs: Mapping[Term, Mapping[Families, float]] = NO_COSTS
) -> dict[Term, Families]:
    """The families of highest evidence, less their costs, of some terms, in the model or not, over all latents."""
    models = [model for model in models if model is not None]
    wanted = {term: _candidates(models[0], term) for term in terms} if models else {}
    single = {term: each[0] for term, each in wanted.items() if len(each) == 1 and len(term) > 1}
    wanted = {term: each for term, each in wanted.items() if len(each) > 1}
    blocks = {
        (term, families): _block(models[0].rows.systems, term, families)
        for term, each in wanted.items()
        for families in each
    }
    gains = dict.fromkeys(blocks, 0.0)
    for model in models:
        model.rows.learn_squares(list(blocks.values()))
        model.rows.learn_products(list(blocks.values()), model.basis.blocks)
        for name, block in blocks.items():
            gains[name] += _gain(model, block)

    def worth(term: Term, families: Families) -> float:
        lead = SMOOTHER * sum(family is Family.SMOOTH for family in families) / len(families)
        return gains[term, families] + lead - costs.get(term, {}).get(families, 0.0)

    return single | {term: max(each, key=lambda families: worth(term, families)) for term, each in wanted.items()}


def _candidates(model: Model, term: Term) -> list[Families]:
    systems, chosen = model.rows.systems, model.rows.chosen
    own = [systems[i].families or (Family.ANY,) for i in term]
    if len(term) == 1:
        return [(family,) for family in own[0]]
    usual = usual_families(systems, term, {(i,): chosen[(i,)] for i in term if (i,) in chosen})
    found = [usual_families(systems, term, chosen), usual]
    for family in (f for f in Family if f is not Family.JUMPS):  # jumps are those of main effects
        found.append(
            tuple(
                family if family in each else Family.LEVELS if Family.LEVELS in each else u
                for each, u in zip(own, usual, strict=True)
            )
        )
    found = list(dict.fromkeys(f for f in found if all(a in b for a, b in zip(f, own, strict=True))))
    if is_filled(model.rows, term):
        return found
    local = {i: [f for f in systems[i].families if f.is_local] for i in term}
    bounded = [
        tuple(local[i][0] if f is Family.SMOOTH and local[i] else f for i, f in zip(term, each, strict=True))
        for each in found
    ]
    return list(dict.fromkeys(bounded))


def is_filled(rows: RowSums, term: Term) -> bool:
    """Whether there are rows wherever values of a term's inputs may meet: else smooth functions run away there.

    Rows count by their weights: those of a class that is nearly certain hold no function.
    """
    systems, usual = rows.systems, rows.total / max(rows.n, 1)
    sizes = [int(systems[i].cell.max(initial=-1)) + 1 for i in term]

    def work(values, _, weight):
        flat, counted = np.zeros(len(weight), dtype=int), weight > 0
        for i, size in zip(term, sizes, strict=True):
            # the nearer knot's, and that of a missing value none
            near = values[i].left + (values[i].share > 0.5)
            cell = np.where(values[i].special > 0, -1, np.append(systems[i].cell, [-1, -1])[near])
            flat, counted = flat * size + np.maximum(cell, 0), counted & (cell >= 0)
        return [np.bincount(flat[counted], weight[counted] / usual, minlength=math.prod(sizes))]

    (count,) = rows.source.total(work)
    count = count.reshape(sizes)
    expected = count.sum()
    for axis in range(len(term)):
        others = tuple(a for a in range(len(term)) if a != axis)
        expected = np.multiply.outer(expected, count.sum(axis=others) / max(count.sum(), 1.0))
    there = expected > 0.0
    return bool(np.all((count >= np.maximum(np.minimum(FEWEST, 0.5 * expected), FILLED * expected))[there]))


def _block(systems: Sequence[System], term: Term, families: Families) -> Block:
    index = products(systems, term, families, TOTAL_DEGREE.get(len(term), len(term) + 1), N_COLUMNS.get(len(term), 60))
    seen = np.all([systems[i].kind[index[:, axis]] == SEEN for axis, i in enumerate(term)], axis=0)
    return Block(term, index[seen])


def _gain(model: Model, block: Block) -> float:
    """The log evidence of the block's term over that of the model without it."""
    systems, scale = model.rows.systems, model.evidence.scale
    seen = given_the_rest(model, block, without_own=True)
    steps = np.stack([systems[i].cost[block.index[:, axis]] - 1.0 for axis, i in enumerate(block.term)], axis=1)
    offset = np.sum([systems[i].offset[block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0)
    is_link = model.rows.noise_variance is not None
    centre, spread = LINK_LOG_VARIANCE[min(len(block.term), 2)] if is_link else LOG_VARIANCE
    mean, sd = LINK_SMOOTHNESS if is_link else SMOOTHNESS
    t = scale * SIZES
    beside = -0.5 * ((np.log(SIZES) - centre) / spread) ** 2
    best = -math.inf
    for alpha in SMOOTHNESSES if steps.any() else (mean,):
        root = np.exp(0.5 * (offset + decay(alpha, steps).sum(axis=1)))
        values, vectors = np.linalg.eigh(root[:, None] * seen.information * root)
        values, rotated = np.maximum(values, 0.0), vectors.T @ (root * seen.u)
        each = 0.5 * np.sum(
            t[:, None] * rotated**2 / (1.0 + t[:, None] * values) - np.log1p(t[:, None] * values), axis=1
        )
        best = max(best, float(np.max(each + beside)) - 0.5 * ((alpha - mean) / sd) ** 2)
    return best
