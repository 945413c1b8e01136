"""Many latent functions at once, as the logits of many classes: one search and one basis for all of them.

A term enters every latent function where the tests of all of them, combined, see it: what acts on one class acts on
what it is told from. Sizes, smoothness and coefficients stay each latent's own, so that a term which says nothing about
a class is shrunk away there. Most rows say next to nothing about most classes: rows of little weight are thinned
(`Data.rows_of`).
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from vertebra.terms.choice import choose
from vertebra.terms.evidence import basis_of
from vertebra.terms.latents import Data, Fit, most_together, reweighted
from vertebra.terms.model import Model, model_of
from vertebra.terms.score_test import can_be_tested, own_score_tests, score_tests
from vertebra.terms.search import FALSE_MAIN, FALSE_PAIR, MAX_PAIRS, Asked
from vertebra.terms.structure import Score, Structure
from vertebra.terms.term import Term, by_order, subsets

# The highest total degree of a term by its order: lower than that of one latent function, as each column is fitted as
# often as there are latents.
DEGREE = {1: 9, 2: 4, 3: 4}
# The columns of a term of rough functions, by order: few for the same reason.
ROUGH_COLUMNS = {1: 20, 2: 12}
# Families are chosen by the evidence of about so many latent functions. A round number.
N_ASKED = 8
# Rounds of reweighting between two looks at terms, and at the end; looks at pairs. Round numbers.
BETWEEN, AT_LAST, N_LOOKS = 2, 3, 3
# So many terms enter at once, or this share of those that would. Round numbers.
BATCH, BATCH_SHARE = 10, 0.6


def fit_together(data: Data, asked: Asked, stay: Sequence[Term]) -> tuple[tuple[Structure, ...], Fit]:
    """What was found for all latent functions, and the fit of all their terms."""
    f = data.working.start
    tests: list[dict[Term, Score]] = [{} for _ in range(f.shape[1])]
    if asked.terms is not None:
        fit = _refitted(data, _nothing(data, f), asked.terms, AT_LAST)
        return _structures(data, fit, tests), fit
    fit = _with_mains(data, _nothing(data, f), asked, stay, tests)
    inputs = [i for (i,) in data.mains]
    if math.comb(len(inputs), 2) > MAX_PAIRS:  # of a wide table, those of inputs that act
        inputs = [i for (i,) in fit.basis.terms]
    pairs = [t for t in itertools.combinations(inputs, 2) if _is_asked(t, asked.within)]
    for _ in range(N_LOOKS if asked.max_order > 1 else 0):
        there = set(fit.basis.terms)
        new = _seen(fit.models, [t for t in pairs if t not in there], asked.level(FALSE_PAIR, len(pairs)), tests)
        if not new or asked.enough():
            break
        new = new[: max(BATCH, int(BATCH_SHARE * len(new)))]
        fit = _refitted(data, fit, {*fit.basis.terms, *subsets(new)}, BETWEEN)
    some = fit.models[:: max(len(fit.models) // N_ASKED, 1)]
    data.chosen.update(choose(some, fit.basis.terms))
    fit = _refitted(data, fit, fit.basis.terms, AT_LAST)
    return _structures(data, fit, tests), fit


def _nothing(data: Data, f) -> Fit:
    return Fit(basis_of(data.systems, ()), f, np.zeros_like(f), [None] * f.shape[1])


def _is_asked(term: Term, within: Sequence[Term] | None) -> bool:
    return within is None or any(set(term) <= set(group) for group in within)


def _with_mains(data: Data, fit: Fit, asked: Asked, stay: Sequence[Term], tests) -> Fit:
    """The fit of main effects that the tests of all latent functions together see."""
    rows = data.rows(fit.f, fit.variance)
    constants = [None if each.is_constant else model_of(each, ()) for each in rows]
    found = _seen(constants, data.mains, asked.level(FALSE_MAIN, len(data.mains)), tests)
    mains = [t for t in data.mains if t in found or t in stay]
    return _refitted(data, fit, mains, BETWEEN)


def _seen(models: Sequence[Model | None], terms: Sequence[Term], level: float, tests) -> list[Term]:
    """Terms that the tests of all latent functions together see, the clearest first."""
    if not terms:
        return []
    each = []
    for model, own in zip(models, tests, strict=True):
        found = {} if model is None else score_tests(model, terms)
        own.update({t: test for t, test in found.items() if can_be_tested(model.rows, t)} if model else {})
        each.append([found[t].p_value if t in found else 1.0 for t in terms])
    p = combined(np.array(each))
    order = np.argsort(p, kind="stable")
    return [terms[k] for k in order if p[k] < level]


def combined(p: np.ndarray) -> np.ndarray:
    """One p-value of several, along the first axis, whatever their dependence: the mean of Cauchy variables.

    Liu & Xie (2020): the tail of a mean of cot(πp) is that of one of them, however they depend on each other.
    """
    p = np.clip(p, 1e-15, 1.0 - 1e-6)
    mean = np.mean(1.0 / np.tan(np.pi * p), axis=0)
    return np.where(mean > 1e3, 1.0 / (np.pi * np.maximum(mean, 1.0)), 0.5 - np.arctan(mean) / np.pi)


def _refitted(data: Data, near: Fit, terms: Iterable[Term], n_rounds: int) -> Fit:
    """A fit of some terms, from where another fit is."""
    n, n_latent = near.f.shape
    terms = by_order(set(terms))
    sizes = {t: ROUGH_COLUMNS.get(len(t), ROUGH_COLUMNS[2]) for t in terms}
    most = most_together(n, n_latent)
    basis = basis_of(data.systems, terms, data.chosen, DEGREE, sizes, max_columns=most)
    return reweighted(data, near._replace(basis=basis), n_rounds)


def _structures(data: Data, fit: Fit, tests: Sequence[dict[Term, Score]]) -> tuple[Structure, ...]:
    """What is known of every latent function: each of its terms tested against the rest, and those seen there."""
    n = {order: math.comb(len(data.systems), order) for order in (1, 2, 3)}
    result = []
    for model, own in zip(fit.models, tests, strict=True):
        all_of_them = own if model is None else own | own_score_tests(model)
        level = {order: FALSE_PAIR / max(n.get(order, 1), 1) for order in map(len, fit.basis.terms)}
        seen = [t for t in fit.basis.terms if t in all_of_them and all_of_them[t].p_value < level[len(t)]]
        result.append(Structure(tuple(seen), all_of_them, n))
    return tuple(result)
