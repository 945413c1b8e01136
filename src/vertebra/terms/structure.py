"""What a search has found: the terms, the test of every candidate, and how sure each term is."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import false_discovery_control

from vertebra.terms.term import Term, maximal

# The Beta(1, 9) prior of the share of real terms of an order: one in ten, and no surer of it than ten candidates make.
REAL, NOT_REAL = 1.0, 9.0
# The share of a rate of false discoveries at which terms beyond the model are listed: it has those that are clear, and
# none of these should bring more errors into a list than there were. A round number.
BEYOND = 0.5
# Rounds of EM for that share: it moves by a constant factor a round, and is at rest long before.
N_ROUNDS = 100


class Size(NamedTuple):
    """How strong a term that is not in the model may be, as an sd of f on the model's scale, and its 95 % limits."""

    mean: float
    sd: float
    lower: float
    upper: float


class Score(NamedTuple):
    """The test of one term against the rest of the model; of one that is not in it, how strong it may be."""

    p_value: float
    log_bayes_factor: float
    size: Size | None = None


class Substitute(NamedTuple):
    """An input that nearly copies one that acts, and the probabilities of what they do."""

    input: int
    other: int
    correlation: float  # of their nearest functions
    together: float  # that one of them acts, or both
    input_alone: float
    other_alone: float
    both: float  # each by itself
    product: float  # and together

    @property
    def is_copy(self) -> bool:
        """Whether they say the same, so that nothing tells them apart."""
        return self.input_alone == self.other_alone and self.both == self.product == 0.0


class Structure(NamedTuple):
    """The terms found, each with its subsets, the test of every candidate looked at, and how many there were."""

    terms: tuple[Term, ...]
    tests: dict[Term, Score]
    n_candidates: dict[int, int]
    substitutes: tuple[Substitute, ...] = ()
    n_uncompared: int = 0  # pairs that go closely together, but less so than those

    @property
    def clusters(self) -> tuple[Term, ...]:
        """The terms that lie in no other: what each sub-network reads."""
        return maximal(self.terms)


def probabilities(structure: Structure) -> dict[Term, float]:
    """P(T is real) of every term tested: its Bayes factor against the share of real ones, learned order by order."""
    result = {}
    for order in {len(term) for term in structure.tests}:
        factors = {t: test.log_bayes_factor for t, test in structure.tests.items() if len(t) == order}
        share, n = REAL / (REAL + NOT_REAL), structure.n_candidates.get(order, len(factors))
        for _ in range(N_ROUNDS):
            odds = {t: math.log(share / (1.0 - share)) + b for t, b in factors.items()}
            real = {t: float(expit(o)) for t, o in odds.items()}
            # candidates not looked at closely count as not real
            share = (REAL + sum(real.values())) / (REAL + NOT_REAL + n)
        result.update(real)
    return result


def q_values(structure: Structure) -> dict[Term, float]:
    """The smallest rate of false discoveries at which Benjamini & Hochberg list each interaction tested."""
    tested = {t: test.p_value for t, test in structure.tests.items() if len(t) > 1}
    if not tested:
        return {}
    n = sum(max(structure.n_candidates.get(order, 0), sum(len(t) == order for t in tested)) for order in (2, 3))
    # The other candidates, which may be billions, have p-values near 1: n in all is p·n/m of the m tested.
    each = np.minimum(np.array(list(tested.values())) * (n / len(tested)), 1.0)
    return dict(zip(tested, false_discovery_control(each).tolist(), strict=True))


def discoveries(structure: Structure, fdr: float) -> list[Term]:
    """The interactions that pass Benjamini & Hochberg at level `fdr`, below 1, among all candidates.

    Those of the model, and beyond it, at half the level, those of which it is known how strong they may be.
    """
    tests, there = structure.tests, set(structure.terms)
    level = {t: fdr if t in there else BEYOND * fdr if tests[t].size is not None else 0.0 for t in tests}
    return sorted((t for t, q in q_values(structure).items() if q <= level[t]), key=lambda t: tests[t].p_value)
