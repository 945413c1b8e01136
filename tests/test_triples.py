import itertools

import numpy as np

from vertebra.terms.columns import columns
from vertebra.terms.functions import SEEN, system_of
from vertebra.terms.model import model_of
from vertebra.terms.score_test import TEST_DEGREE
from vertebra.terms.search import FALSE_HIGHER, search
from vertebra.terms.sums import RowSums
from vertebra.terms.triples import N_EACH, PAIRS, largest_triples


def rows_of(x, y, n_levels=None):
    weight = np.ones(len(x))
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    systems = [system_of(column, weight, n) for column, n in zip(x.T, levels, strict=True)]
    return RowSums.held(systems, [s.at(column) for s, column in zip(systems, x.T, strict=True)], y, weight)


def by_hand(model, term):
    """Σ exp(−cost) u²/Var u over the products of the first functions, one by one."""
    source, systems = model.rows.source, model.rows.systems
    away = source.weight * (source.y - model.at(source.values))
    total = 0.0
    for first, second, third in itertools.product(*(enumerate(systems[i].of(SEEN)[:N_EACH]) for i in term)):
        places = [k for _, k in (first, second, third)]
        cost = sum(systems[i].cost[k] for i, k in zip(term, places, strict=True))
        if cost <= TEST_DEGREE[3] and (first[0], second[0]) in PAIRS:
            each = away * columns(source.values, term, np.array([places]))[:, 0]
            total += np.exp(-cost) * each.sum() ** 2 / np.sum(each**2)
    return total


def test_triples_are_in_the_order_of_their_scores_worked_out_one_by_one(rng):
    x = rng.standard_normal((400, 8))
    x[:, 3] = rng.integers(0, 3, 400)
    x[rng.random(400) < 0.1, 5] = np.nan
    y = x[:, 0] + x[:, 1] * x[:, 2] * (x[:, 3] == 1) + rng.standard_normal(400)
    rows = rows_of(x, y, [0, 0, 0, 3, 0, 0, 0, 0])
    model = model_of(rows, [(0,), (1,), (1, 2)])
    triples = list(itertools.combinations(range(8), 3))
    found = largest_triples(model, triples, 20)
    wanted = sorted(triples, key=lambda t: -by_hand(model, t))[:20]
    assert found == wanted
    # some of the triples alone
    few = [t for t in triples if 7 not in t]
    assert largest_triples(model, few, 5) == sorted(few, key=lambda t: -by_hand(model, t))[:5]


def test_three_inputs_that_act_only_together_are_found_among_twenty():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2500, 20))
    # 0.3 sds of the noise, which 2,500 rows tell from nothing by 15 standard errors
    y = 0.3 * x[:, 4] * x[:, 9] * x[:, 15] + rng.standard_normal(2500)
    structure, model = search(rows_of(x, y))
    assert (4, 9, 15) in model.basis.terms
    assert structure.tests[4, 9, 15].p_value < FALSE_HIGHER / structure.n_candidates[3]


def test_noise_has_no_three_way_terms_among_forty_inputs():
    # 9,880 triples; the chance of any is 0.25 %
    rng = np.random.default_rng(0)
    structure, _ = search(rows_of(rng.standard_normal((400, 40)), rng.standard_t(4, 400)))
    assert not [t for t in structure.terms if len(t) == 3]
