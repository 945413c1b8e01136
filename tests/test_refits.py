import warnings

import numpy as np
import pytest

import vertebra as vb
from vertebra.likelihoods import Gaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Control
from vertebra.models.refits import MOST_REFITTED, ROWS_FOR_ALL_FOLDS, Plan, Refit, Refits, plan
from vertebra.models.rows import Rows, canonical
from vertebra.models.scores import Method


def rows_of(n, **about):
    rng = np.random.default_rng(0)
    return canonical(rng.standard_normal((n, 2)), rng.standard_normal((n, 1)), np.ones(n), **about)


def test_rows_are_left_out_by_folds_by_groups_or_by_time():
    few, more, many = rows_of(300), rows_of(ROWS_FOR_ALL_FOLDS), rows_of(MOST_REFITTED)
    asked = dict(seed=0, is_sought=True)
    assert plan(rows_of(10), evaluation="auto", **asked) is None
    assert plan(few, evaluation="left_out", **asked) is plan(few, 0, "auto", is_sought=False) is None
    assert plan(many, evaluation="auto", **asked) is None
    method, folds = plan(few, evaluation="auto", **asked)
    assert method is Method.FOLDS
    assert np.bincount(folds).tolist() == [60] * 5
    # of more rows two folds say enough
    for rows in (more, many):
        assert np.mean(plan(rows, evaluation="folds", **asked).folds >= 0) == 0.4
    grouped = rows_of(300, group=np.arange(300) // 10)
    method, folds = plan(grouped, evaluation="left_out", **asked)
    assert method is Method.GROUPS
    assert all(len(np.unique(folds[grouped.group == g])) == 1 for g in range(30))
    later = rows_of(300, time=np.arange(300.0))
    method, folds = plan(later, evaluation="auto", **asked)
    assert method is Method.LATER
    np.testing.assert_array_equal(folds >= 0, later.time > 239)


def refits(f, *, left_out, loss, y, seconds=0.0, budget=None):
    """Refits that say f of all rows."""
    n = len(y)
    rows = Rows(np.arange(n, dtype=float)[:, None], y, np.ones(n))
    predictive = Predictive(Gaussian(np.ones(1)), left_out, np.zeros((n, 1)))
    control = Control("test", time_budget=budget)
    refit = lambda kept: Refit(f[~kept], np.array([loss]))  # noqa: E731
    return Refits(rows, [0], 0, predictive, left_out, 1.0, refit, y, control, seconds)


def test_what_is_stated_is_the_loss_with_terms_kept_and_what_refits_miss_more():
    n = 500
    rng = np.random.default_rng(1)
    y, signs = rng.standard_normal((n, 1)), rng.choice([-1.0, 1.0], (n, 1))
    kept, refitted = y + signs, y + 3.0 * signs  # mean squares 1 and 9
    folds = Plan(Method.FOLDS, np.arange(n) % 5)
    for inside, stated in ((9.0, 1.0), (5.0, 5.0), (1.0, 9.0), (0.0, 9.0)):
        tested = refits(refitted, left_out=kept, loss=inside, y=y).tested(folds)
        # shares of the way are 1/20 apart
        assert abs(np.mean((y - tested.predictive.f_mean) ** 2) - stated) < 0.35, inside
    # groups and later rows are what they are
    tested = refits(refitted, left_out=kept, loss=9.0, y=y).tested(Plan(Method.GROUPS, np.arange(n) % 5))
    np.testing.assert_allclose(tested.predictive.f_mean, refitted)


def test_folds_that_a_budget_has_no_room_for_are_not_begun():
    y = np.zeros((100, 1))
    given = dict(left_out=y, loss=0.0, y=y)
    folds = Plan(Method.FOLDS, np.arange(100) % 5)
    assert refits(y, **given, seconds=10.0, budget=1.0).tested(folds) is None
    assert refits(y, **given, seconds=10.0, budget=1000.0).tested(folds) is not None


@pytest.mark.parametrize("kind", [vb.AdditiveRegressor, vb.AdditiveClassifier])
def test_stated_accuracy_is_that_of_new_rows_where_many_terms_are_chosen_by_few_rows(kind):
    apart = {"folds": [], "left_out": []}
    score = "r2" if kind is vb.AdditiveRegressor else "log_loss"
    for seed in range(3):
        rng = np.random.default_rng(seed)
        common, x = rng.standard_normal((2100, 1)), rng.standard_normal((2100, 12))
        x = 0.8 * common + 0.6 * x
        y = x[:, :5].sum(axis=1)
        y = y + 0.5 * y.std() * rng.standard_normal(2100)
        y = y if kind is vb.AdditiveRegressor else y > 0.0
        for evaluation, found in apart.items():
            options = dict(remainder=False) if kind is vb.AdditiveRegressor else {}
            model = kind(random_state=0, evaluation=evaluation, **options).fit(x[:100], y[:100])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", vb.OutsideRange)
                new = model.evaluate(x[100:], y[100:]).scores["model"][score]
            found.append(model.evaluation_.scores["model"][score] - new)
            assert model.evaluation_.method is (Method.FOLDS if evaluation == "folds" else Method.LEFT_OUT)
    sign = 1.0 if score == "r2" else -1.0
    better = {name: sign * np.mean(found) for name, found in apart.items()}
    assert better["left_out"] > better["folds"]
    assert abs(better["folds"]) < 0.1  # of three tables; the error of one is 0.05


def test_other_words_for_an_evaluation_are_refused():
    with pytest.raises(ValueError, match="`evaluation` must be one of auto, folds, left_out, got 'all'"):
        vb.AdditiveRegressor(evaluation="all").fit(np.eye(4), np.arange(4.0))
