"""What stands for what: inputs that nearly copy one that acts, and what evidence says of which of them it is.

Two inputs i and j that go closely together make four stories: i acts alone, in all terms of either; j does; both act,
each by itself; both act, and together. Each is a model of the rows, and their evidences, with a prior against every
term more, are their probabilities. The model without either says how sure it is that one of them acts.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from vertebra.terms.evidence import Block, basis_of
from vertebra.terms.model import MANY_COLUMNS, MODEL_COLUMNS, MODEL_DEGREE, ON_THE_WAY, Model, fit_basis, most_columns
from vertebra.terms.score_test import block_tested
from vertebra.terms.structure import Substitute
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term, by_order, subsets

# The correlation of their nearest functions from which an input may stand for another; and how many pairs are looked
# at, the closest first: each takes five models. Round numbers.
CLOSE, MOST_PAIRS = 0.85, 6
# Rounds that evidences of many columns rise by, so that they can be compared. A round number.
N_ROUNDS = 8
# Inputs that are compared with each that acts: of more, the first. A round number.
MOST_INPUTS = 300
# The log odds of a term before the rows are seen: one in ten is real.
ODDS = -math.log(9.0)
# Covariances of functions that are smaller beside the largest are rounding.
ROUNDING = 1e-9


class Choice(NamedTuple):
    """An input that acts and those that may act in its place, and the probabilities of what they do."""

    inputs: tuple[int, ...]  # the one that the model reads first
    correlation: float  # of the nearest functions, the least
    together: float  # that one of them acts, or more
    alone: tuple[float, ...]  # that each does, and no other
    both: float  # two of them, each by itself
    product: float  # and together


def choices(found: Sequence[Substitute]) -> list[Choice]:
    """Pairs put together to all that may act in place of an input.

    Each pair compares its stories with that of the input alone, so that those of all pairs are on one scale: the
    stories of a choice are the input alone, another alone, and the input with one other, by itself or together.
    """
    pairs: dict[int, list[Substitute]] = {}
    for pair in found:
        pairs.setdefault(pair.input, []).append(pair)
    result = []
    for i, own in pairs.items():
        # in odds to the input alone, which has some even where a double says 0
        odds = [[each / max(pair.input_alone, 1e-300) for each in pair[5:]] for pair in own]
        total = 1.0 + sum(sum(each) for each in odds)
        alone = (1.0 / total, *(each[0] / total for each in odds))
        both, product = (sum(each[k] for each in odds) / total for k in (1, 2))
        together = max(pair.together for pair in own)
        inputs = (i, *(pair.other for pair in own))
        result.append(Choice(inputs, min(pair.correlation for pair in own), together, alone, both, product))
    return result


def substitutes(
    model: Model | None, copies: dict[int, int], enough: Callable[[], bool] = lambda: False
) -> tuple[tuple[Substitute, ...], int]:
    """The inputs that could stand for those of a model, and how many pairs as near as that were not compared.

    `copies` are equal to another, and alike without a model.
    """
    if model is None:
        return (), 0
    acting = sorted({i for term in model.basis.terms for i in term})
    sure = {i: _together(model, (i,)) for i in {copies[j] for j in copies} if i in acting}
    found = [Substitute(i, j, 1.0, sure[i], 0.5, 0.5, 0.0, 0.0) for j, i in sorted(copies.items()) if i in sure]
    close, n_compared = close_pairs(model.rows, acting), 0
    for correlation, i, j in close[:MOST_PAIRS]:
        if enough():
            break
        found.append(_compared(model, i, j, correlation))
        n_compared += 1
    return tuple(found), len(close) - n_compared


def close_pairs(rows: RowSums, acting: Sequence[int]) -> list[tuple[float, int, int]]:
    """Inputs that act with any that nearly copy them, by the correlation of their nearest functions, closest first.

    That both are missing in the same rows, or share one of their levels, makes no copy: functions of gaps are left out,
    and two categories are as close as Cramér's V says, of all their levels.
    """
    alive = [i for i, system in enumerate(rows.systems) if system.is_alive][:MOST_INPUTS]
    if not acting or len(alive) < 2:
        return []
    own, others = ([_of_values(rows, i) for i in each] for each in (acting, alive))
    rows.learn_squares([*own, *others])
    rows.learn_products(own, others)
    roots = {b.term[0]: _inverse_root(rows.gram([b], [b])) for b in (*own, *others)}
    found = {}
    for one in own:
        for other in others:
            i, j = one.term[0], other.term[0]
            if i != j and (j, i) not in found:
                across = roots[i].T @ rows.gram([one], [other]) @ roots[j]
                have_levels = rows.systems[i].n_levels > 0 and rows.systems[j].n_levels > 0
                closeness = _closeness(across, of_all=have_levels)
                if closeness >= CLOSE:
                    found[i, j] = min(closeness, 1.0)
    return sorted(((r, i, j) for (i, j), r in found.items()), reverse=True)


def _of_values(rows: RowSums, i: int) -> Block:
    """The functions of an input but for that of its gap."""
    block = block_tested(rows, (i,))
    return Block(block.term, block.index[block.index[:, 0] != rows.systems[i].gap])


def _closeness(correlations: Float[np.ndarray, "a b"], *, of_all: bool) -> float:
    """The largest canonical correlation of whitened functions; or the root of the mean square of all."""
    if not correlations.size:
        return 0.0
    if of_all:  # ‖R‖_F / √min(a, b)
        return float(np.linalg.norm(correlations)) / math.sqrt(min(correlations.shape))
    return float(np.linalg.norm(correlations, 2))


def _compared(model: Model, i: int, j: int, correlation: float) -> Substitute:
    """The stories of two inputs, the first of which acts."""
    terms = set(model.basis.terms)
    mine, theirs = (_by_one(terms, i, j, by) for by in (i, j))
    both = {*mine, (j,)}
    stories = [mine, theirs, both, {*both, (min(i, j), max(i, j))}]
    log_odds = [_log_evidence(model, story) + ODDS * (len(story) - len(mine)) for story in stories]
    nothing = _log_evidence(model, {t for t in mine if i not in t})
    shares = np.exp(np.array(log_odds) - np.logaddexp.reduce(log_odds))
    sure = float(expit(ODDS + float(np.logaddexp.reduce(log_odds)) - nothing))
    return Substitute(i, j, correlation, sure, *(float(share) for share in shares))


def _by_one(terms: set[Term], i: int, j: int, by: int) -> set[Term]:
    """The terms with one of two inputs in place of either."""
    return {tuple(sorted({by if k in (i, j) else k for k in term})) for term in terms}


def _together(model: Model, inputs: Sequence[int]) -> float:
    """How sure it is that one of some inputs, which are equal, acts."""
    without = {t for t in model.basis.terms if not set(inputs) & set(t)}
    gain = _log_evidence(model, set(model.basis.terms)) - _log_evidence(model, without)
    return float(expit(ODDS + gain))


def _log_evidence(model: Model, terms: set[Term]) -> float:
    rows = model.rows
    given = rows.systems, by_order(subsets(terms)), rows.chosen, MODEL_DEGREE, {}, MODEL_COLUMNS, most_columns(rows.n)
    rest = {"many": MANY_COLUMNS, "n_rounds": N_ROUNDS, "tolerance": ON_THE_WAY}
    return fit_basis(rows, basis_of(*given), before=model, **rest).posterior.log_evidence


def _inverse_root(square: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m r"]:
    """R with RRᵀ = G⁺."""
    values, vectors = np.linalg.eigh(square)
    kept = values > ROUNDING * values.max(initial=1e-300)
    return vectors[:, kept] / np.sqrt(values[kept])
