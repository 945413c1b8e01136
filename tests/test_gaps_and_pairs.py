"""Tests of interactions where a number has gaps that others tell of: no false pair, and real ones are still found."""

import numpy as np
import pytest

import vertebra as vb
from vertebra.terms.dependence import Together
from vertebra.terms.functions import SEEN, system_of
from vertebra.terms.model import model_of
from vertebra.terms.score_test import beside, with_sizes
from vertebra.terms.sums import RowSums


def table(seed, *, is_real, n=500):
    """x1 is idle, or acts with x0, which it goes with; 30 % of x0 are missing at random."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 5))
    z[:, 1] = 0.7 * z[:, 0] + np.sqrt(0.51) * z[:, 1]
    f = 1.4 * np.sin(1.5 * z[:, 0]) + 0.8 * z[:, 0] + 0.7 * z[:, 2]
    x = np.where((rng.random((n, 5)) < 0.3) & (np.arange(5) == 0), np.nan, z)
    return x, f + is_real * (z[:, 0] * z[:, 1] - 0.7) + rng.standard_normal(n)


def fitted(x, y):
    return vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)


@pytest.mark.parametrize("seed", range(4))
def test_what_gaps_drive_is_no_interaction(seed):
    """Without it 8 of 8 such tables had x0 × x1, with p-values below 1e-5."""
    model = fitted(*table(seed, is_real=False))
    assert len(model.interactions()) == 0
    tested = model.candidates(2).set_index("term")
    # of four uniform p-values all are above 0.005 in 98 of 100 cases
    assert tested.loc[[("x0", "x1")], "p_value"].iloc[0] > 0.005


def test_a_real_interaction_is_found_in_spite_of_gaps():
    assert list(fitted(*table(0, is_real=True)).interactions()["term"]) == [("x0", "x1")]


def test_scores_beside_others_are_those_of_residuals(rng):
    """By another road: columns less their regression on the others, of y with variance 1."""
    columns, y = rng.standard_normal((60, 6)), rng.standard_normal(60)
    others = np.array([False, True, False, True, False, False])
    root = beside(columns.T @ columns, others)
    left = columns[:, ~others] - columns[:, others] @ np.linalg.lstsq(columns[:, others], columns[:, ~others])[0]
    np.testing.assert_allclose(root @ (columns.T @ y), left.T @ y, atol=1e-10)
    np.testing.assert_allclose(root @ (columns.T @ columns) @ root.T, left.T @ left, atol=1e-9)


def test_limits_of_what_was_not_found_hold_nothing_that_gaps_tell():
    """What a gap adds to y leaves the limit of a pair's strength as it was, as long as noise is known."""
    rng = np.random.default_rng(0)
    x = rng.random((200, 2))
    x[rng.random(200) < 0.3, 0] = np.nan
    systems = [system_of(column, np.ones(200), 0) for column in x.T]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    told = Together(np.ones(200), vary_as_said=True)
    of_gap = values[0].of(np.array([systems[0].gap]))[:, 0]
    own = of_gap * values[1].of(systems[1].of(SEEN)[:1])[:, 0]
    noise = rng.standard_normal(200)

    def limit(y):
        model = model_of(RowSums.held(systems, values, y, np.ones(200), 1.0, None, told), [])
        return with_sizes(model, [(0, 1)])[0, 1].size

    # rounding of products, times 3
    np.testing.assert_allclose(limit(noise + 3.0 * own), limit(noise), atol=1e-6)
    assert limit(noise + 3.0 * np.nan_to_num(x[:, 0]) * x[:, 1]).upper > 1.3 * limit(noise).upper
