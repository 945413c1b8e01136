"""Terms looked at again from the fit: where noise is not Gaussian, weights there are not those of the search."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vertebra.likelihoods.working_responses import Classes
from vertebra.terms.chosen import chosen
from vertebra.terms.columns import columns
from vertebra.terms.evidence import basis_of
from vertebra.terms.latents import Data, Fit, at_rows, reweighted, searched, settled
from vertebra.terms.model import model_of, most_columns
from vertebra.terms.score_test import may_be_wanted, own_score_tests, score_tests, with_sizes
from vertebra.terms.search import (
    COST_OF_SIZE,
    FALSE_HIGHER,
    FALSE_MAIN,
    FALSE_PAIR,
    ROWS_PER_MAIN,
    Asked,
    all_mains_if_better,
)
from vertebra.terms.structure import Score, Structure
from vertebra.terms.sum_of_terms import Chosen
from vertebra.terms.term import Term, by_order, maximal

# Rounds of reweighting to compare fits by; the last fit has twice as many. A round number: they end where f rests.
N_REWEIGHTINGS = 6
# The most terms that are taken out again one by one; and how many times the rows' weight without a term must be that
# with it, for the term to be tested so. experiments/separable.py was run with these, and with no others.
MOST_TRIED, MUCH_HEAVIER = 8, 1.5
# The p-value up to which a term is in the model that terms are looked at again from. A round number.
SEEN_AGAIN = 1e-3


def with_what_evidence_wants(data: Data, fit: Fit, earlier: Sequence[Term]) -> Fit:
    """The fit with those terms of an earlier one that it lacks, as far as its ELBO, fitted again, is higher with them.

    Where classes can be told apart for certain, rows say little near the fit, and tests of its own terms see nothing
    (Hauck & Donner): no term goes on the word of a test alone.
    """
    lost = [t for t in earlier if t not in fit.basis.terms]
    if not lost:
        return fit
    # before the others: what a likelihood learns of its noise goes with the last fit
    before = fit.elbo(data)
    best = _fitted(data, fit, {*fit.basis.terms, *lost}, fit.basis.sizes)
    elbo = best.elbo(data)
    if elbo <= before:
        return fit
    for _ in range(MOST_TRIED):
        sizes = best.energies()
        weakest = min((t for t in maximal(best.basis.terms) if t in lost), key=sizes.__getitem__, default=None)
        if weakest is None:
            break
        fewer = _fitted(data, best, set(best.basis.terms) - {weakest}, fit.basis.sizes)
        without = fewer.elbo(data)
        if without < elbo:
            break
        best, elbo = fewer, without
    return best


def with_all_mains(data: Data, first: Fit) -> tuple[Fit, tuple[Term, ...]]:
    """A first fit with more main effects, where that is worth it, and those that then stay: of classes all or none."""
    n_found, few, n = len(first.basis.blocks), ROWS_PER_MAIN[0], len(first.f)
    models = [model for model in first.models if model is not None]
    mains = [t for t in data.mains if t in first.basis.terms or may_be_wanted(models, t)]
    if not isinstance(data.working, Classes):
        if not 0 < n_found < len(mains) or n < few * len(mains):
            return first, ()
        fuller = with_what_evidence_wants(data, first, mains)
        return fuller, () if fuller is first else fuller.basis.terms

    def refitted() -> tuple[Fit, Fit]:
        whole = first._replace(
            basis=basis_of(data.systems, mains, data.chosen, max_columns=n // 2), models=[None] * len(first.models)
        )
        # all of them first: what a likelihood learns goes with the last fit
        whole = reweighted(data, whole, 2 * N_REWEIGHTINGS)
        return reweighted(data, first, 2 * N_REWEIGHTINGS), whole

    return all_mains_if_better(
        first,
        n_found,
        mains,
        n,
        rows_per_main=(few, math.inf),
        refitted=refitted,
        worth=lambda fit: fit.elbo(data),
        least=-COST_OF_SIZE * (len(mains) - n_found),
    )


def _fitted(data: Data, near: Fit, terms: Iterable[Term], sizes: Mapping[Term, int]) -> Fit:
    """A fit of some terms, rough ones of so many columns, from where another fit is."""
    basis = basis_of(data.systems, by_order(terms), data.chosen, sizes=sizes, max_columns=most_columns(len(near.f)))
    return reweighted(data, near._replace(basis=basis), N_REWEIGHTINGS)


def looked_at_again(
    data: Data, structures: tuple[Structure, ...], fit: Fit, asked: Asked
) -> tuple[tuple[Structure, ...], Fit]:
    """The structures and the fit after its terms were tested against it.

    Seen from a fit that lacks what they stood for, terms may have looked real that are not. Those of three inputs are
    not sought again: the structures keep the tests that they had, which `all_tested` makes anew.
    """
    rows = data.rows(fit.f, fit.variance)
    seen = {t for s in structures for t, test in s.tests.items() if test.p_value < SEEN_AGAIN}
    strong = tuple(t for t in fit.basis.terms if len(t) == 1 or t in seen)
    first = structures
    structures, again, found = searched(rows, asked._replace(start=strong, max_order=2))
    structures = tuple(
        new._replace(tests=new.tests | {t: test for t, test in old.tests.items() if len(t) > 2})
        for new, old in zip(structures, first, strict=True)
    )
    if set(again.terms) == set(fit.basis.terms):
        return structures, fit
    basis, models = settled(again, rows, found)
    other = reweighted(data, Fit(basis, fit.f, fit.variance, models), N_REWEIGHTINGS)
    return structures, with_what_evidence_wants(data, other, fit.basis.terms)


def all_tested(
    data: Data, structures: Sequence[Structure], fit: Fit, enough: Callable[[], bool] = lambda: False
) -> tuple[Structure, ...]:
    """The structures with a test of every term of the model in every latent function, and those it finds there too.

    A term of the model is tested by the weights of the rows near the fit. Where these would be much larger without it,
    it is taken out and tested by those of the fit that lacks it, which is what a score test is. Terms of three inputs
    that were not found are tested near the fit too, and how strong they may be: they were looked for from one of main
    effects. Once there is `enough`, nobody knows of them.
    """
    result = []
    for k, (structure, model) in enumerate(zip(structures, fit.models, strict=True)):
        if model is not None:
            tests = structure.tests
            if not data.is_gaussian:
                others = [t for t in tests if len(t) > 2 and t not in fit.basis.terms]
                tests = {t: test for t, test in tests.items() if len(t) < 3}
                tests |= {} if enough() else with_sizes(model, others)
            tests = tests | own_score_tests(model, [t for t in fit.basis.terms if t not in tests])
            if not data.is_gaussian:
                weak = [t for t in fit.basis.terms if t in tests and tests[t].p_value > SEEN_AGAIN]
                tests |= _tests_without(data, k, fit, weak)
            level = {order: FALSE_PAIR / max(n, 1) for order, n in structure.n_candidates.items()}
            seen = {t for t, test in tests.items() if test.p_value < level.get(len(t), 0.0)}
            here = [t for t in fit.basis.terms if t in structure.terms or t in seen]
            structure = structure._replace(terms=tuple(here), tests=tests)
        result.append(structure)
    return tuple(result)


def all_chosen(structures: Sequence[Structure], fit: Fit) -> tuple[Chosen, ...]:
    """How strong terms are that were chosen near the level of the choice, in every latent function."""
    result = []
    for structure, model in zip(structures, fit.models, strict=True):
        n = structure.n_candidates
        chances = {1: FALSE_MAIN, 2: FALSE_PAIR, 3: FALSE_HIGHER}
        levels = {order: chance / max(n.get(order, 0), 1) for order, chance in chances.items()}
        p_values = {t: test.p_value for t, test in structure.tests.items()}
        result.append({} if model is None else chosen(model, p_values, levels))
    return tuple(result)


def _tests_without(data: Data, latent: int, fit: Fit, terms: Sequence[Term]) -> dict[Term, Score]:
    """Tests of some terms in one latent function, each against a fit without it, where that gives rows more weight."""
    found: dict[Term, Score] = {}
    # what a likelihood learns of its noise on the way is not to stay
    data = data._replace(working=copy.copy(data.working))
    before = data.working.responses(fit.f, fit.variance)[latent].w.sum()
    for block, place in zip(fit.basis.blocks, fit.basis.slices, strict=True):
        if block.term not in terms or len(found) == MOST_TRIED:
            continue
        own = columns(data.values, block.term, block.index)
        parts = [np.zeros(len(own)) if m is None else own @ m.posterior.mean[place] for m in fit.models]
        f = fit.f - np.stack(parts, axis=1)
        if data.working.responses(f, fit.variance)[latent].w.sum() < MUCH_HEAVIER * before:
            continue
        others = [t for t in fit.basis.terms if t != block.term]
        models = _fitted(data, fit._replace(f=f), others, fit.basis.sizes).models
        model = models[latent]
        if model is None:  # no term is left: that of a constant
            model = model_of(data.rows(*at_rows(data, models))[latent], ())
        found |= score_tests(model, [block.term])
    return found
