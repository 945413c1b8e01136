"""What a search has found: the terms, the test of every candidate, and how sure each term is."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp, softmax

from vertebra.machine.later import later
from vertebra.terms.term import Term, maximal

stats = later("scipy.stats")

# How large a term may be, τ² in units of what one can just see: from where it is hardly seen to beyond all doubt.
SIZES = 10.0 ** np.linspace(-0.5, 4.0, 7)
# What an order's terms are like is learned from its tests: the share of real ones, beforehand Beta(1/2, 1), and the law
# of their sizes, whose log10 is normal about one of these means with one of these sds, each as likely. Smaller sizes
# than the least nobody could tell from none. Chosen on seeds below 100 of experiments/weak.py, by log loss.
LOG_SIZES, SPREADS = np.arange(0.5, 3.6, 0.5), (0.5, 1.0)
REAL, NOT_REAL = 0.5, 1.0
# Shares that are compared: from one in ten thousand to nearly all, in steps of a third of a log odds.
SHARES = expit(np.linspace(-9.0, 4.0, 40))
# Laws less likely than this, after the tests, are not averaged over.
UNLIKELY = 1e-7
# The share of a rate of false discoveries at which terms beyond the model are listed: it has those that are clear, and
# none of these should bring more errors into a list than there were. A round number.
BEYOND = 0.5


class Size(NamedTuple):
    """How strong a term that is not in the model may be, as an sd of f on the model's scale, and its 95 % limits."""

    mean: float
    sd: float
    lower: float
    upper: float


class Score(NamedTuple):
    """The test of one term against the rest of the model; of one that is not in it, how strong it may be."""

    p_value: float
    log_bayes_factor: float  # with every size as likely
    size: Size | None = None
    by_size: tuple[float, ...] = ()  # log Bayes factors, one for each of SIZES; files of old have none


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


class Learned(NamedTuple):
    """What the terms of an order are, given all their tests: P(T is real), and how likely each size is if it is."""

    real: Float[np.ndarray, " n"]
    sizes: Float[np.ndarray, "n k"]


def learned(factors: Float[np.ndarray, "n k"], n_candidates: int) -> Learned:
    """An order's terms by their log Bayes factors, size by size, averaged over shares of real ones and laws of sizes.

    u_T is from (1 − π) p₀ + π Σ_k w_k p_k: so many strong terms make another likely, and so many weak ones a weak one.
    """
    centres, spreads = (each.ravel() for each in np.meshgrid(LOG_SIZES, SPREADS))
    laws = -0.5 * ((np.log10(SIZES) - centres[:, None]) / spreads[:, None]) ** 2
    laws = laws - np.asarray(logsumexp(laws, axis=1, keepdims=True))
    # log Σ_k w_k p_k/p₀ of each term under each law
    under = np.stack([np.asarray(logsumexp(factors + law, axis=1)) for law in laws], axis=1)
    highest = np.maximum(under, 0.0)
    none, some = np.exp(-highest), np.exp(under - highest)
    # candidates not looked at closely count as not real
    unseen = max(n_candidates - len(factors), 0)
    log_shares, log_others = np.log(SHARES), np.log1p(-SHARES)
    # the steps are equal in log odds: Beta(a, b) has πᵃ(1 − π)ᵇ there
    log_posterior = (REAL * log_shares + (NOT_REAL + unseen) * log_others)[:, None] + highest.sum(axis=0)
    log_posterior += np.array([np.log((1.0 - share) * none + share * some).sum(axis=0) for share in SHARES])
    posterior = softmax(log_posterior)
    real = np.zeros_like(under)
    for share, likely in zip(SHARES, posterior, strict=True):
        if likely.max() > UNLIKELY:
            real += likely * (share * some / ((1.0 - share) * none + share * some))
    sizes = np.zeros_like(factors)
    for k, law in enumerate(laws):
        sizes += real[:, [k]] * np.exp(factors + law - under[:, [k]])
    return Learned(np.minimum(real.sum(axis=1), 1.0), sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1e-300))


def probabilities(structure: Structure) -> dict[Term, float]:
    """P(T is real) of every term tested, by what is learned from all tests of its order."""
    result = {}
    for order in {len(term) for term in structure.tests}:
        tests = {t: test for t, test in structure.tests.items() if len(t) == order}
        factors = [test.by_size or (test.log_bayes_factor,) * len(SIZES) for test in tests.values()]
        found = learned(np.array(factors), structure.n_candidates.get(order, len(tests)))
        result.update(zip(tests, found.real.tolist(), strict=True))
    return result


def q_values(structure: Structure) -> dict[Term, float]:
    """The smallest rate of false discoveries at which Benjamini & Hochberg list each interaction tested."""
    tested = {t: test.p_value for t, test in structure.tests.items() if len(t) > 1}
    if not tested:
        return {}
    n = sum(max(structure.n_candidates.get(order, 0), sum(len(t) == order for t in tested)) for order in (2, 3))
    # The other candidates, which may be billions, have p-values near 1: n in all is p·n/m of the m tested.
    each = np.minimum(np.array(list(tested.values())) * (n / len(tested)), 1.0)
    return dict(zip(tested, stats.false_discovery_control(each).tolist(), strict=True))


def discoveries(structure: Structure, fdr: float) -> list[Term]:
    """The interactions that pass Benjamini & Hochberg at level `fdr`, below 1, among all candidates.

    Those of the model, and beyond it, at half the level, those of which it is known how strong they may be.
    """
    tests, there = structure.tests, set(structure.terms)
    level = {t: fdr if t in there else BEYOND * fdr if tests[t].size is not None else 0.0 for t in tests}
    return sorted((t for t, q in q_values(structure).items() if q <= level[t]), key=lambda t: tests[t].p_value)
