"""The search for terms: which are real, lower orders first, each tested beside those found before it."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from vertebra.terms.choice import choose
from vertebra.terms.evidence import MAX_COLUMNS
from vertebra.terms.model import Model, model_of, with_room
from vertebra.terms.sandwich import MOST_LEVERAGE
from vertebra.terms.score_test import (
    MAX_TESTS,
    can_be_tested,
    joint_p_value,
    largest_scores,
    may_be_wanted,
    own_score_tests,
    score_tests,
    with_sizes,
)
from vertebra.terms.structure import Score, Structure
from vertebra.terms.sums import Held, RowSums
from vertebra.terms.term import Term, maximal, subsets
from vertebra.terms.triples import largest_triples

# The chance of any false term, by order: main effects, pairs, and higher terms without their lower ones. Round numbers;
# with them all of 50 tables of noise stay without a term (experiments/results/probabilities.csv).
FALSE_MAIN, FALSE_PAIR, FALSE_HIGHER = 0.005, 0.01, 0.0025
# What of the pairs' share goes to pairs of two active inputs, of one, of none: a pair of inputs that act is likelier.
HEREDITY = (0.9, 0.08, 0.02)
# So many pairs, those of 300 inputs, are listed; of more, so many with the largest scores. Round numbers.
MAX_PAIRS, MOST_SCREENED = 44_850, 3000
# All main effects are tried with so many rows for each, and kept where the log evidence is higher by so much. With
# fewer rows nothing tells inputs apart, with more a test sees what is there. Inputs that do nothing lower it by 1 to 3.
# Where 3 was asked for, rows of life_expectancy and mpg were missed by up to 9 % more, on splits 0 to 2.
ROWS_PER_MAIN, LEAST_GAIN = (8.0, 300.0), 1.0
# Of classes an ELBO with more terms is lower by what the best size of each costs, which its mean over sizes does not:
# so much a term is allowed for. Chosen on splits 0 to 2 of four tables of classes.
COST_OF_SIZE = 0.5
# Of all main effects so many are looked at for whether evidence is higher without. A round number: each is a model.
MOST_IDLE = 30
# Of the pairs not seen one by one, the likeliest few enter together where a test of all of them, at this chance of an
# error, sees them. Those with fewer degrees of freedom than this go again. Round numbers.
MOST_TOGETHER, FALSE_TOGETHER, LEAST_KNOWN = 20, 0.0025, 0.5
# So many terms enter the model at once, or this share of those that would. Round numbers.
BATCH, BATCH_SHARE = 4, 0.6
# Terms that predict better are added in so many rounds, while the error of rows left out falls by this share a round.
# Round numbers, tried once, on splits 0 to 2 of mpg and wage: no others were compared.
MOST_ROUNDS, LEAST_LESS = 4, 0.002
# Of the terms that the rest explains so large a share goes at once. Of 50,000 rows of 30 inputs that go together 120
# pairs did, one by one in a minute. A round number.
DROPPED_SHARE = 0.25
# A p-value this many times smaller than its level stays below it when a weaker term goes. A round number.
FAR_BELOW = 1e-6
# More three-way candidates than these, all of 60 inputs, are looked at only where their pairs are there; of fewer, so
# many with the largest scores are tested, against the number of all. Round numbers.
MAX_TRIPLES, TRIPLES_TESTED = 34_220, 60
# So many triangles of pairs are looked at. A round number.
MAX_TRIANGLES = 300
# Triangles of pairs whose three-way term is let in unasked, to be shrunk by its own evidence. A round number.
FREE_TRIANGLES = 10

Tests = dict[Term, Score]
Level = Callable[[Term], float]
M = TypeVar("M")


class Asked(NamedTuple):
    """What a search looks for, where it begins and when it ends."""

    terms: Sequence[Term] | None = None  # tests of these, and no search
    within: Sequence[Term] | None = None  # only terms that lie inside one of these sets of inputs
    base: Sequence[Term] = ()  # there from the start, and stay
    start: Sequence[Term] = ()  # there from the start, and stay if their tests say so
    n_families: int = 1  # searches that share the chance of a false term
    max_order: int = 3
    enough: Callable[[], bool] = lambda: False  # once it says so, the search ends
    sizes: bool = False  # how strong those may be that were not found

    def level(self, chance: float, n: int) -> float:
        """The p-value below which one of n candidates is taken for real, at this chance of any false one."""
        return chance / max(n, 1) / self.n_families


ANYTHING = Asked()


def search(rows: RowSums, asked: Asked = ANYTHING) -> tuple[Structure, Model | None]:
    """The terms that the data support, lower orders first, each tested beside all those found before it.

    With them comes the model that the search ended with: none where the target is constant.
    """
    n_candidates = {order: math.comb(len(rows.systems), order) for order in (1, 2, 3)}
    if rows.is_constant:
        return Structure((), {}, n_candidates), None
    alive, tests = _alive(rows), {}
    there = {*asked.base, *asked.start} if asked.terms is None else asked.terms
    model = model_of(rows, [term for term in there if set(term) <= set(alive)])
    if asked.terms is not None:
        model = with_room(model)
    else:
        model = _with_mains_and_pairs(model, alive, tests, asked)
        if asked.max_order > 2 and not asked.enough():
            model = _with_triples(model, _candidates(alive, 3, asked.within), tests, asked)
    tests.update(own_score_tests(model))
    if asked.sizes and asked.terms is None and not asked.enough():
        # beside all that was found, the last of which came after most tests
        for order in (1, 2, 3):
            rest = [t for t in tests if len(t) == order and t not in model.basis.terms]
            tests.update(with_sizes(model, rest))
    return Structure(model.basis.terms, tests, n_candidates), model


def strongest(rows: RowSums, n_pairs: int) -> list[Term]:
    """All main effects, and the pairs of smallest p-value beside them: enough to compare bases with."""
    alive = _alive(rows)
    mains = [(i,) for i in alive][:MAX_TESTS]
    model = model_of(rows, mains)
    found = score_tests(model, _pairs(model, alive, set(), None)[0])
    return mains + sorted(found, key=lambda t: found[t].p_value)[:n_pairs]


def all_mains_if_better(
    found: M,
    n_found: int,
    mains: Sequence[Term],
    n_rows: int,
    *,
    rows_per_main: tuple[float, float],
    refitted: Callable[[], tuple[M, M]],
    worth: Callable[[M], float],
    least: float = LEAST_GAIN,
) -> tuple[M, tuple[Term, ...]]:
    """A fit with every main effect, where some were found and it is worth more; and the main effects that then stay.

    Inputs that go together can stand for each other. With few rows, to let one speak for all of them predicts worse
    than to let each have a say of the size that its own evidence gives it. `refitted` gives the fit found, to compare
    with, and the one with all of them; `worth` its log evidence or ELBO, which must be higher by `least`.
    """
    fewest, most = (share * len(mains) for share in rows_per_main)
    if not 0 < n_found < len(mains) or not fewest <= n_rows <= most:
        return found, ()
    found, whole = refitted()
    return (whole, tuple(mains)) if worth(whole) > worth(found) + least else (found, ())


def _without_idle(model: Model, stay: tuple[Term, ...], tests: Tests, level: float) -> tuple[Model, tuple[Term, ...]]:
    """The model without those of all main effects that evidence is higher without, weakest first, and those that stay.

    What tests have found is not asked again.
    """
    places = zip(model.basis.terms, model.basis.slices, strict=True)
    energy = {term: float(np.sum(model.posterior.mean[place] ** 2)) for term, place in places}
    weak = [t for t in stay if t not in tests or tests[t].p_value >= level]
    for term in sorted(weak, key=energy.__getitem__)[:MOST_IDLE]:
        less = model_of(model.rows, [t for t in model.basis.terms if t != term], before=model)
        if less.posterior.log_evidence >= model.posterior.log_evidence:
            model, stay = less, tuple(t for t in stay if t != term)
    return model, stay


def _alive(rows: RowSums) -> list[int]:
    return [i for i, system in enumerate(rows.systems) if system.is_alive]


def _candidates(alive: Sequence[int], order: int, within: Sequence[Term] | None) -> list[Term]:
    if order == 3 and within is None and math.comb(len(alive), 3) > MAX_TRIPLES:
        return []
    terms = itertools.combinations(alive, order)
    return [t for t in terms if within is None or any(set(t) <= set(group) for group in within)]


def _pairs(
    model: Model, alive: Sequence[int], active: set[int], within: Sequence[Term] | None
) -> tuple[list[Term], list[int]]:
    """Pairs to look at, and how many there are with both inputs active, with one, with none.

    Of the millions of pairs of a wide table, those with the largest scores: the others are counted, and not listed.
    """
    if within is not None or math.comb(len(alive), 2) <= MAX_PAIRS:
        pairs = _candidates(alive, 2, within)
        kinds = [2 - len(active & set(pair)) for pair in pairs]
        return pairs, [kinds.count(kind) for kind in range(3)]
    n, rest = len(active & set(alive)), len(alive) - len(active & set(alive))
    return largest_scores(model, alive, MOST_SCREENED), [math.comb(n, 2), n * rest, math.comb(rest, 2)]


def _with_mains_and_pairs(model: Model, alive: Sequence[int], tests: Tests, asked: Asked) -> Model:
    """The model with main effects, one by one or all of them, then with pairs, one by one or several together."""
    rows, mains = model.rows, _candidates(alive, 1, asked.within)
    of_main = asked.level(FALSE_MAIN, len(rows.systems))
    # a search that has no time left looks at main effects once: a model without any would say that nothing acts
    model = _add_while(model, mains, tests, lambda _: of_main, asked, rounds=1)
    if asked.max_order == 1:
        return model
    if asked.start and len(model.basis.blocks) == len(mains):
        # begun with all of them, of which some may not be real
        own = own_score_tests(model, mains)
        tests.update(own)
        model = model_of(rows, [t for t in mains if t in asked.base or own[t].p_value < of_main], before=model)
    stay: tuple[Term, ...] = ()
    if rows.noise_variance is None:
        there = set(model.basis.terms)
        wanted = [t for t in mains if t in there or may_be_wanted([model], t)]
        model, stay = all_mains_if_better(
            model,
            len(there),
            wanted,
            rows.n,
            rows_per_main=ROWS_PER_MAIN,
            refitted=lambda: (model, model_of(rows, there | set(wanted), before=model)),
            worth=lambda each: each.posterior.log_evidence,
        )
        model, stay = _without_idle(model, stay, tests, of_main)
    active = {i for term in model.basis.terms for i in term}
    pairs, counts = _pairs(model, alive, active, asked.within)
    shares = [asked.level(FALSE_PAIR * share, n) for share, n in zip(HEREDITY, counts, strict=True)]
    of_pair = {pair: shares[2 - len(active & set(pair))] for pair in pairs}
    # those whose tests do not hold are for what predicts
    tested = [pair for pair in pairs if can_be_tested(rows, pair)]
    model = _add_while(model, tested, tests, of_pair.__getitem__, asked)
    # A term that stood for one that came after it goes again.
    model = _drop_explained(model, lambda t: of_pair.get(t, of_main), {*asked.base, *stay})
    model = _add_together(model, tested, tests, asked)
    return _add_what_predicts(model, pairs, of_pair.__getitem__, asked)


def _with_triples(model: Model, triples: Sequence[Term], tests: Tests, asked: Asked) -> Model:
    """The model with three-way terms: those of triangles of pairs, and, where all can be looked at, any other."""
    pairs = {term for term in model.basis.terms if len(term) == 2 and can_be_tested(model.rows, term)}
    triangles, triples = _triangles(pairs)[:MAX_TRIANGLES], [t for t in triples if can_be_tested(model.rows, t)]
    found = score_tests(model, triangles)
    tests.update(found)
    by_p = sorted(triangles, key=lambda t: found[t].p_value)
    chosen = [t for t in by_p if found[t].p_value < asked.level(FALSE_PAIR, len(triangles))]
    few = model.basis.n_columns < MAX_COLUMNS
    chosen = list(dict.fromkeys(chosen[:FREE_TRIANGLES] + (by_p[:FREE_TRIANGLES] if few else [])))
    if chosen:
        _choose(model, chosen)
        model = model_of(model.rows, {*model.basis.terms, *chosen}, before=model)
    near = set(triangles)
    others = [t for t in triples if t not in near]
    level = asked.level(FALSE_HIGHER, len(others))
    if len(others) > MAX_TESTS:
        others = [] if asked.enough() else largest_triples(model, others, TRIPLES_TESTED)
    return _add_while(model, others, tests, lambda _: level, asked)


def _triangles(pairs: Iterable[Term]) -> list[Term]:
    """Three inputs of which every two are a pair."""
    inputs = sorted({i for pair in pairs for i in pair})
    near = {i: {j for pair in pairs if i in pair for j in pair if j > i} for i in inputs}
    return sorted({(i, j, k) for i in inputs for j in near[i] for k in near[i] & near[j] if j < k})


def _add_while(
    model: Model, candidates: Sequence[Term], tests: Tests, level: Level, asked: Asked, *, rounds: int = 0
) -> Model:
    """Adds candidates whose p-value is below their level, the strongest few at a time, and tests again, until none is.

    Few at a time, because where inputs are correlated a real term makes others look real until it is in the model.
    Nobody ends the search before so many `rounds`.
    """
    for k in itertools.count():
        if k >= rounds and asked.enough():
            break
        there = set(model.basis.terms)
        found = score_tests(model, [term for term in candidates if term not in there])
        tests.update(found)
        new = [term for term in found if found[term].p_value < level(term)]
        if not new:
            break
        new = sorted(new, key=lambda t: found[t].p_value)[: max(BATCH, int(BATCH_SHARE * len(new)))]
        _choose(model, new)
        model = with_room(model_of(model.rows, {*model.basis.terms, *subsets(new)}, before=model))
    return model


def _choose(model: Model, terms: Iterable[Term]) -> None:
    """Decides what functions new terms are made of, and those that they hold."""
    rows = model.rows
    rows.chosen.update(choose([model], [t for t in subsets(terms) if len(t) > 1 and t not in rows.chosen]))


def _add_together(model: Model, candidates: Sequence[Term], tests: Tests, asked: Asked) -> Model:
    """Adds pairs too weak to be seen one by one, where a test of all of them says that some are there."""
    there = set(model.basis.terms)
    rest = [t for t in candidates if t not in there]
    if asked.enough() or not 2 <= len(rest) <= MAX_TESTS // 2:
        return model
    if joint_p_value(model, rest) > asked.level(FALSE_TOGETHER, 1):
        return model
    found = score_tests(model, rest)
    tests.update(found)
    new = sorted(rest, key=lambda t: found[t].p_value)[:MOST_TOGETHER]
    _choose(model, new)
    more = model_of(model.rows, {*model.basis.terms, *subsets(new)}, before=model)
    known = {b.term: float(more.known[s].sum()) for b, s in zip(more.basis.blocks, more.basis.slices, strict=True)}
    kept = [t for t in more.basis.terms if t not in new or known[t] >= LEAST_KNOWN]
    return model_of(model.rows, kept, before=more)


def _add_what_predicts(model: Model, candidates: Sequence[Term], level: Level, asked: Asked) -> Model:
    """Adds pairs that would be real if rows varied as assumed, where rows that are left out are predicted better.

    Nobody calls them real: their own tests, by the variance that rows show, did not. But where noise is uneven these
    see little, and the best prediction has more terms than those that are beyond doubt.
    """
    if not isinstance(model.rows.source, Held) or model.rows.source.groups is not None:
        return model
    error = None
    for _ in range(MOST_ROUNDS):
        there = set(model.basis.terms)
        rest = [term for term in candidates if term not in there]
        if asked.enough() or not rest:
            break
        found = score_tests(model, rest, trusts_noise=True)
        new = sorted((t for t in found if found[t].p_value < level(t)), key=lambda t: found[t].p_value)[:BATCH]
        if not new:
            break
        # only where there is something to compare: it takes the variance of f at all rows
        error = left_out_error(model) if error is None else error
        _choose(model, new)
        more = with_room(model_of(model.rows, {*there, *subsets(new)}, before=model))
        after = left_out_error(more)
        if after > (1.0 - LEAST_LESS) * error:
            break
        model, error = more, after
    return model


def left_out_error(model: Model) -> float:
    """The mean squared error of rows, each left out of the model with its hyper-parameters kept: e/(1 − h)."""
    variance = model.posterior.noise_variance

    def work(values, y, weight):
        leverage = np.minimum(weight * model.variance_at(values) / variance, MOST_LEVERAGE)
        return [np.array([weight @ ((y - model.at(values)) / (1.0 - leverage)) ** 2, weight.sum()])]

    (sums,) = model.rows.source.total(work)
    return float(sums[0] / sums[1])


def _drop_explained(model: Model, level: Level, spared: set[Term]) -> Model:
    """Takes out, the weakest first, terms that lie in no other and that the rest of the model explains.

    Several at once where these are many, and none of them is missed then. Those far from their level are not tested
    again when others go: what they said they say, if anything, more.
    """
    far: dict[Term, float] = {}
    while True:
        asked = [t for t in maximal(model.basis.terms) if t not in spared]
        tests = own_score_tests(model, [t for t in asked if t not in far])
        beside = {t: tests[t].p_value if t in tests else far[t] for t in asked}
        away = {t: p / level(t) for t, p in beside.items() if p > level(t)}
        if not away:
            return model
        far |= {t: p for t, p in beside.items() if p < FAR_BELOW * level(t)}
        weakest = sorted(away, key=away.__getitem__, reverse=True)[: max(int(DROPPED_SHARE * len(away)), 1)]
        less = _without(model, weakest)
        if len(weakest) > 1 and any(s.p_value <= level(t) for t, s in score_tests(less, weakest).items()):
            # some stood for each other
            less = _without(model, weakest[:1])
        model = less


def _without(model: Model, terms: Collection[Term]) -> Model:
    return model_of(model.rows, [t for t in model.basis.terms if t not in terms], before=model)
