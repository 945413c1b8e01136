"""Categories of many levels are tested by their levels: what does nothing is not found, no product is called real."""

import importlib
import itertools
import pathlib
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import vertebra as vb
from vertebra.likelihoods.working_responses import Plain
from vertebra.terms import level_scores
from vertebra.terms.chi_squares import centred_tail
from vertebra.terms.latents import data_of
from vertebra.terms.level_scores import level_score
from vertebra.terms.model import model_of
from vertebra.terms.score_test import can_be_tested, own_score_tests, score_tests, with_sizes
from vertebra.terms.structure import SIZES, Score

ROOT = pathlib.Path(__file__).parents[1]


def rows_of(x, y, codes, weight=None, groups=None):
    """Rows whose last input is a category that is read as a number."""
    weight = np.ones(len(y)) if weight is None else weight
    levels = {x.shape[1] - 1: codes}
    data = data_of(x, weight, [0] * x.shape[1], Plain(y[:, None], weight), levels=levels, groups=groups)
    return data.rows(data.working.start, data.working.start)[0]


def with_codes(model, codes):
    """The same model, beside another category."""
    values = model.rows.source.values
    values[-1] = values[-1]._replace(level=codes)
    return level_score(model, len(values) - 1)


@pytest.fixture
def model(rng):
    x = rng.standard_normal((300, 3))
    y = np.sin(x[:, 0]) + rng.standard_normal(300)
    return model_of(rows_of(x, y, rng.integers(0, 80, 300)), [(0,), (1,)])


def test_cumulants_are_those_of_signs_drawn_by_lot():
    score, level, gain = np.array([0.5, -1.2, 0.8, 2.0, 0.3, -0.7]), np.array([0, 0, 0, 0, 1, 1]), np.array([0.2, 0.5])
    square, tail = level_scores._of_rows(level, score, np.ones(6), gain)
    drawn = []
    for signs in itertools.product([-1.0, 1.0], repeat=6):
        sums = np.bincount(level, score * signs)
        drawn.append(gain * (sums**2 - square))
    drawn = np.array(drawn)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=1e-12)
    # 2a²d and 8a³d; of two rows there is no skewness, and a is the least there is, a thousandth of the sd
    np.testing.assert_allclose(2.0 * tail.a**2 * tail.d, np.mean(drawn**2, axis=0))
    np.testing.assert_allclose(8.0 * tail.a[0] ** 3 * tail.d[0], np.mean(drawn[:, 0] ** 3))
    assert np.mean(drawn[:, 1] ** 3) == pytest.approx(0.0, abs=1e-12)


def test_rows_that_count_for_several_are_several_rows(rng):
    score, level, k = rng.standard_normal(30), rng.integers(0, 8, 30), rng.integers(1, 4, 30).astype(float)
    level[:8], gain = np.arange(8), rng.uniform(0.1, 1.0, 8)
    square, tail = level_scores._of_rows(level, score, k, gain)
    each = np.repeat(np.arange(30), k.astype(int))
    squares, tails = level_scores._of_rows(level[each], (score / k)[each], np.ones(len(each)), gain)
    np.testing.assert_allclose(square, squares)
    np.testing.assert_allclose(tail.a, tails.a)
    np.testing.assert_allclose(tail.d, tails.d)


def test_a_group_for_each_row_is_none(rng):
    score, level, gain = rng.standard_normal(60), rng.integers(0, 9, 60), rng.uniform(0.1, 1.0, 9)
    square, tail = level_scores._of_rows(level, score, np.ones(60), gain)
    squares, tails = level_scores._of_groups(level, np.arange(60), score, gain)
    np.testing.assert_allclose(square, squares)
    np.testing.assert_allclose(np.sum(2.0 * tail.a**2 * tail.d), 2.0 * tails.a**2 @ tails.d)


def test_the_tail_is_that_of_signs_drawn_by_lot(rng):
    score, level = rng.standard_normal(200), rng.integers(0, 60, 200)
    gain = 1.0 / (np.bincount(level, minlength=60) + 10.0)
    square, tail = level_scores._of_rows(level, score, np.ones(200), gain)
    drawn = []
    for _ in range(4000):
        sums = np.bincount(level, score * rng.choice([-1.0, 1.0], 200), 60)
        drawn.append(gain @ (sums**2 - square))
    for share in (0.2, 0.05, 0.01):
        # 4,000 draws: 0.01 is within 0.0016 of its mean, and a saddlepoint within a tenth of itself
        found = centred_tail(*tail, float(np.quantile(drawn, 1.0 - share)))
        assert found == pytest.approx(share, rel=0.1 + 2.5 * np.sqrt(1.0 / (4000 * share)))


def test_p_values_of_categories_that_do_nothing_are_uniform(model, rng):
    p = np.array([with_codes(model, rng.integers(0, 80, 300)).p_value for _ in range(400)])
    assert 0.45 < p.mean() < 0.55  # its error is 0.014
    assert binomtest(int((p < 0.05).sum()), 400, 0.05).pvalue > 1e-3


def test_uneven_noise_makes_no_level_act(rng):
    x, code = np.zeros((300, 1)), rng.integers(0, 70, 300)
    sd = np.where(code % 5 == 0, 4.0, 1.0)
    p = np.array([level_score(model_of(rows_of(x, y, code), ()), 0).p_value for y in rng.normal(0.0, sd, (300, 300))])
    assert binomtest(int((p < 0.05).sum()), 300, 0.05, alternative="greater").pvalue > 1e-3


def test_a_category_nested_in_one_of_the_model_is_as_likely_as_another(rng):
    # residuals of a model of the outer one sum to nothing in it: without V⁻¹ the inner one would seem to do less than
    # nothing
    outer, noise = rng.integers(0, 40, 1200), rng.standard_normal(1200)
    x = np.column_stack([outer, rng.standard_normal(1200)]).astype(float)
    weight, y = np.ones(1200), rng.standard_normal(40)[outer] + noise
    data = data_of(x, weight, [40, 0], Plain(y[:, None], weight), levels={1: outer})
    model = model_of(data.rows(data.working.start, data.working.start)[0], [(0,)])
    p = np.array([with_codes(model, 4 * outer + rng.integers(0, 4, 1200)).p_value for _ in range(200)])
    assert 0.4 < p.mean() < 0.6  # its error is 0.02, and one table's noise is part of it


def test_effects_of_levels_are_found_and_their_size_is_known(rng):
    code = rng.integers(0, 80, 600)
    effect = 0.5 * rng.standard_normal(80)
    x = rng.standard_normal((600, 2))
    y = x[:, 0] + effect[code] + rng.standard_normal(600)
    model = model_of(rows_of(x, y, code), [(0,)])
    found = with_sizes(model, [(1,)])[1,]
    assert found.p_value < 1e-6
    assert found.log_bayes_factor > 5.0
    assert found.size is not None
    assert found.size.lower < effect[code].std() < found.size.upper


def test_terms_of_a_category_do_not_explain_it_away(rng):
    """Beside the number that stands for it, a category has the test that it has without."""
    code = rng.integers(0, 80, 600)
    x = np.column_stack([rng.standard_normal(600), np.zeros(600)])
    effect = 0.5 * rng.standard_normal(80)
    x[:, 1] = effect[code]
    y = x[:, 0] + effect[code] + rng.standard_normal(600)
    rows = rows_of(x, y, code)
    alone, both = model_of(rows, [(0,)]), model_of(rows, [(0,), (1,), (0, 1)])
    without, own = score_tests(alone, [(1,)])[1,], own_score_tests(both)
    assert set(own) == {(0,), (1,)}  # the pair has no test
    # sizes and noise are those of two models, by which effects of the other are shrunk a little differently
    assert np.log(own[1,].p_value) == pytest.approx(np.log(without.p_value), rel=0.1)


def test_interactions_with_such_a_category_have_no_test(model):
    rows = model.rows
    assert can_be_tested(rows, (2,))
    assert can_be_tested(rows, (0, 1))
    assert not can_be_tested(rows, (0, 2))
    assert not can_be_tested(rows, (0, 1, 2))


def test_levels_of_one_row_say_nothing(model):
    assert with_codes(model, np.arange(300)) == Score(1.0, 0.0, by_size=(0.0,) * len(SIZES))


def test_a_group_is_no_level_that_acts(rng):
    """Rows of a group depend on each other, whatever category is the same in all of them."""
    groups = np.repeat(np.arange(60), 10)
    x = rng.standard_normal((600, 2))
    y = x[:, 0] + rng.standard_normal(60)[groups] + rng.standard_normal(600)
    model = model_of(rows_of(x, y, groups, groups=groups), [(0,)])
    assert with_codes(model, groups).p_value == 1.0
    p = np.array([with_codes(model, rng.integers(0, 12, 60)[groups]).p_value for _ in range(200)])
    assert binomtest(int((p < 0.05).sum()), 200, 0.05, alternative="greater").pvalue > 1e-3


def test_a_heavy_row_is_not_a_pair_of_its_own(rng):
    """Weights that are no counts: the parts of one row are one row."""
    x, code = rng.standard_normal((200, 2)), np.arange(200)
    y = x[:, 0] + rng.standard_normal(200)
    parts = np.repeat(np.arange(200), 3)
    rows = rows_of(x[parts], y[parts], code[parts], weight=np.full(600, 1.3))
    assert level_score(model_of(rows, [(0,)]), 1).p_value == 1.0


@pytest.mark.parametrize("kind", ["numbers", "classes", "two targets"])
def test_a_fit_finds_the_category_that_acts_and_not_the_other(kind, rng):
    n, m = 1500, 100
    code, other = rng.integers(0, m, (2, n))
    effect, x0 = rng.standard_normal(m), rng.standard_normal(n)
    y = x0 + effect[code] + rng.standard_normal(n)
    x = pd.DataFrame(
        {"x0": x0, "acts": np.char.add("v", code.astype(str)), "idle": np.char.add("v", other.astype(str))}
    )
    settings = {"random_state": 0, "remainder": False, "evaluation": "left_out"}
    if kind == "classes":
        fitted = vb.AdditiveClassifier(**settings).fit(x, (y > 0.0).astype(int))
    elif kind == "two targets":
        fitted = vb.AdditiveRegressor(**settings).fit(x, np.column_stack([y, rng.standard_normal(n)]))
    else:
        fitted = vb.AdditiveRegressor(**settings).fit(x, y)
    tested = fitted.candidates()
    p = dict(zip(tested["term"], tested["p_value"], strict=True))
    assert p["acts",] < 1e-6
    assert p["idle",] > 1e-3
    assert not any(len(term) > 1 and {"acts", "idle"} & set(term) for term in tested["term"])
    assert not any({"acts", "idle"} & set(term) for term in fitted.interactions()["term"])


def test_a_pair_that_only_predicts_has_no_probability(rng, tmp_path):
    n, m = 1500, 100
    code, x0 = rng.integers(0, m, n), rng.standard_normal(n)
    effect = rng.standard_normal(m)
    y = effect[code] * (1.0 + 1.5 * x0) + 0.5 * rng.standard_normal(n)
    x = pd.DataFrame({"x0": x0, "acts": np.char.add("v", code.astype(str))})
    fitted = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    effects = fitted.effects().set_index("term")
    assert ("x0", "acts") in effects.index
    assert np.isnan(effects["probability"]["x0", "acts"])
    assert not len(fitted.interactions())
    assert fitted.summary()
    fitted.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra").effects()
    pd.testing.assert_frame_equal(again, fitted.effects())
    fitted.report(tmp_path / "report.html")


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield importlib.import_module("levels")
    sys.path.remove(str(ROOT / "experiments"))


def test_the_study_of_levels_in_a_small_form(study):
    for kind, n in study.KINDS[::2]:
        found = study.one(study.Task(kind, n, 7))
        assert set(found) == set(study.COLUMNS)
        if kind == "noise":
            assert min(found[f"p {m}"] for m in study.MANY) > 1e-3
        else:
            assert found[f"p {study.ACTING}"] < 1e-6
            assert found[f"found {study.ACTING}"] == 1
        assert found["pairs"] == 0


def test_the_recorded_study_holds_what_docs_say(study):
    """Idle categories: false at the level asked, within what so many tables can tell; no pair; effects are found."""
    rows = pd.read_csv(ROOT / "experiments/results/levels.csv")
    assert (rows["pairs"] == 0).all()
    for kind, n in study.KINDS:
        own = rows.loc[(rows["kind"] == kind) & (rows["n"] == n)]
        assert len(own) == len(study.SEEDS)
        if kind == "effects":
            assert own[f"found {study.ACTING}"].mean() >= 0.95
            continue
        for m in study.MANY:
            for level in study.LEVELS:
                false = int((own[f"p {m}"] < level).sum())
                assert binomtest(false, len(own), level, alternative="greater").pvalue > 1e-3, (n, m, level)
            assert own[f"found {m}"].mean() <= 0.03
