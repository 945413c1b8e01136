"""What terms of up to three inputs leave over, by scores of products of four and five: against loops, and by chance."""

import itertools

import numpy as np
import pytest

from vertebra.models.diagnostics import few_events
from vertebra.models.left_over import BY_CHANCE, _line, _scores, left_over

NAMES = [f"x{i}" for i in range(8)]


def test_scores_are_those_of_a_loop(rng):
    lines, away = rng.standard_normal((40, 6)), rng.standard_normal((40, 2))
    sets, scores = _scores(lines, away)
    every = [s for order in (4, 5) for s in itertools.combinations(range(6), order)]
    assert sorted(sets) == sorted(every)
    for chosen, score in zip(sets, scores, strict=True):
        each = away * lines[:, chosen].prod(axis=1)[:, None]
        assert score == pytest.approx(np.max(np.abs(each.sum(axis=0)) / np.sqrt(np.sum(each**2, axis=0))))


@pytest.mark.parametrize("order", [4, 5])
def test_a_product_that_no_term_holds_is_found_and_named(order, rng):
    x = rng.random((300, 8))
    product = np.prod([_line(x[:, i]) for i in range(1, 1 + order)], axis=0)
    (found,) = left_over((product + rng.standard_normal(300))[:, None], x, [0] * 8, NAMES, ["x7"])
    assert " × ".join(NAMES[1 : 1 + order]) in found.words


def test_noise_of_any_kind_is_seldom_taken_for_one():
    n_found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = rng.random((300, 8))
        away = (rng.standard_t(2.0, 300) * np.exp(2.0 * x[:, 0]))[:, None]
        x[rng.random(x.shape) < 0.1] = np.nan
        n_found += bool(left_over(away, x, [0] * 8, NAMES, []))
    # of 100 clean tables 0.2 are expected; two or more have a chance of 2 %
    assert n_found <= max(1, round(100 * BY_CHANCE))


def test_categories_and_few_inputs_are_passed_over(rng):
    x = rng.integers(0, 4, (200, 8)).astype(float)
    assert left_over(rng.standard_normal((200, 1)), x, [4] * 5 + [0] * 3, NAMES, []) == []


def test_few_rows_of_a_class_are_a_warning():
    assert few_events(np.array([150.0, 150.0]), 2, NAMES) == []
    (found,) = few_events(np.array([290.0, 10.0]), 2, NAMES)
    assert found.words.startswith("the rarest class has 10 rows, 1.2 for each input")
    assert few_events(np.array([3.0]), 0, NAMES) == []
