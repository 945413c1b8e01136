import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import anova

import vertebra as vb
from vertebra.datasets import FUNCTIONS, TABLES, Part, SumOfParts, synthetic, table
from vertebra.metrics import calibration_error, coverage, interval_calibration, rmse, top_rank_recall

# Exact strengths worked out by hand or by other means; the paper's own are 10 to 13 % too large.
KNOWN = {
    "f1": {(0, 1): 1.3361, (0,): 2.1682, (2,): 1.4907, (3,): 10 / np.sqrt(12), (4,): 5 / np.sqrt(12)},
    "f2": {(0, 1): 1.4110, (8, 9): 0.7135, (2, 3, 4): 0.4455, (2, 3): 0.2988, (0,): 2.0635, (2,): 5.1642, (8,): 1.1201},
    "f3": {(4, 5): 0.8465, (2, 3): 0.6579, (0, 1): 0.3836, (7, 8, 9): 0.1390, (7, 8): 0.2704, (7,): 1.5798},
    "f4": {(3, 4): 0.1746, (7, 8, 9): 0.1443, (7, 8): 0.25, (0, 1, 2): 0.0090, (0, 1): 0.0228, (5,): 10 / np.sqrt(12)},
}


@pytest.mark.parametrize("name", KNOWN)
def test_strengths_by_quadrature_are_the_known_ones(name):
    strengths = FUNCTIONS[name].strengths()
    for term, wanted in KNOWN[name].items():
        assert strengths[term] == pytest.approx(wanted, abs=6e-5)


def test_the_absolute_value_of_f4_does_not_interact():
    assert (5, 6) not in FUNCTIONS["f4"].strengths()
    assert (5, 6) in FUNCTIONS["f4"].interactions
    assert FUNCTIONS["f4"].identifiable == ((3, 4), (7, 8, 9))


def test_components_are_those_of_brute_force():
    f = SumOfParts(3, (Part((0, 2), lambda a, c: np.sin(a + c**2)), Part((1,), np.exp), Part((2,), np.sqrt)))
    x = np.random.default_rng(0).random((4, 3))
    points = {i: np.sort(x[:, i]) for i in range(3)}
    ours = f.components(points, dict.fromkeys(range(3), np.full(4, 0.25)))
    for term, component in anova(f, x).items():
        if term in ours:
            np.testing.assert_allclose(ours[term], component, atol=1e-12)
        else:
            np.testing.assert_allclose(component, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples_have_the_variance_of_their_components(name):
    data = synthetic(name, 20_000, noise=0.0)
    assert (data.y == data.f).all()
    total = np.sqrt(sum(s**2 for s in FUNCTIONS[name].strengths().values()))
    # 20,000 rows: a relative error of 1 % in an sd
    assert data.f.std() == pytest.approx(total, rel=0.03)


def test_correlated_inputs_keep_their_marginals():
    x = synthetic("f1", 20_000, correlation=0.7).x
    assert np.corrcoef(x.T)[0, 1] == pytest.approx(6 / np.pi * np.arcsin(0.35), abs=0.02)
    assert x.mean() == pytest.approx(0.5, abs=0.02)
    assert x.std() == pytest.approx(np.sqrt(1 / 12), abs=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "f9"}, "`name` must be one of f1, f2"),
        ({"n": 0}, "`n` must be at least 1"),
        ({"n_inputs": 5}, "`n_inputs` must be at least 10, got 5"),
        ({"correlation": 1.0}, "`correlation` must be at least 0 and below 1"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        synthetic(**{"name": "f1", **options})


# A row of adult as it is written here, and as OpenML has it.
HERE = {"education": ["HS-grad"], "occupation": ["?"], "hours_per_week": [40], "income_gt_50k": [1]}
THERE = {
    "education": pd.Categorical(["HS-grad"]),
    "occupation": pd.Categorical([None], categories=["Sales"]),
    "hours-per-week": [40],
    "class": pd.Categorical([">50K"], categories=["<=50K", ">50K"]),
}


def test_a_table_from_a_folder_is_the_one_that_is_fetched(tmp_path, monkeypatch):
    (tmp_path / "tabular/adult").mkdir(parents=True)
    pd.DataFrame(HERE).to_csv(tmp_path / "tabular/adult/data.csv.gz", index=False)
    monkeypatch.setitem(TABLES, "adult", ("tabular", lambda: pd.DataFrame(THERE)))
    monkeypatch.setenv("VERTEBRA_DATA", str(tmp_path))
    here = table("adult")
    monkeypatch.delenv("VERTEBRA_DATA")
    there = table("adult")
    pd.testing.assert_frame_equal(here.x, there.x, check_dtype=False)
    pd.testing.assert_series_equal(here.y, there.y)
    assert here.x["occupation"].isna().all()
    assert here.y.tolist() == [True]


def test_a_table_that_is_not_there_is_said_to_be_missing(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="`name` must be one of adult, california_housing, kin8nm, got 'iris'"):
        table("iris")
    monkeypatch.setenv("VERTEBRA_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"a folder with uci/kin8nm/data.csv.gz, got "):
        table("kin8nm")


def test_top_rank_recall_walks_until_the_first_false_interaction():
    truths = [(1, 2), (3, 4, 5), (8, 9)]
    assert top_rank_recall([(1,), (1, 2), (3, 4), (3, 4, 5), (8, 9)], truths) == 1.0
    assert top_rank_recall([(2, 1), (1, 3), (3, 4, 5)], truths) == pytest.approx(1 / 3)  # stops at (1, 3)
    assert top_rank_recall([(3, 4), (4, 5), (1, 2, 3)], truths) == 0.0  # a superset is false
    assert top_rank_recall([(1, 2), (1, 2), (8, 9)], truths) == pytest.approx(2 / 3)  # counted once
    assert top_rank_recall([(6, 7), (1, 2)], truths, passed_over=[(5, 6, 7)]) == pytest.approx(1 / 3)
    assert top_rank_recall([], []) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_calibration_error_is_zero_for_certain_truths_and_at_most_one(p):
    happened = np.round(p)
    assert calibration_error(happened, happened) == 0.0
    assert 0.0 <= calibration_error(p, happened) <= 1.0


def test_scores():
    assert rmse([1.0, 3.0], [1.0, 1.0]) == pytest.approx(np.sqrt(2))
    assert coverage([1.0, 3.0], [0.0, 0.0], [2.0, 2.0]) == 0.5
    y = np.linspace(0, 1, 101)
    quantiles = np.tile([0.25, 0.5], (101, 1))
    assert interval_calibration(y, quantiles, [0.25, 0.5]) == pytest.approx(0.0, abs=0.01)


def test_interval_calibration_takes_quantiles_as_models_and_likelihoods_give_them():
    rng = np.random.default_rng(0)
    levels, f = np.array([0.9, 0.1, 0.5]), rng.normal(size=(1, 500, 2))
    y = f[0] + rng.normal(size=(500, 2))
    said = np.asarray(vb.Gaussian(1.0).quantiles(jnp.asarray(f), levels))
    levels_first = np.swapaxes(said, 0, 1)  # (levels, n, targets)
    rows_first = np.moveaxis(levels_first, 0, 1)
    expected = np.mean([abs(np.mean(y[:, k] <= rows_first[:, j, k]) - levels[j]) for j in range(3) for k in range(2)])
    assert interval_calibration(y, rows_first, levels) == pytest.approx(expected)
    assert interval_calibration(y, levels_first, levels) == pytest.approx(expected)
    # as many rows as levels: the axis along which they rise
    same = interval_calibration(y[:3], rows_first[:3], levels)
    assert interval_calibration(y[:3], levels_first[:, :3], levels) == pytest.approx(same)
    single = interval_calibration(y[:, 0], rows_first[:, :, 0], levels)
    assert interval_calibration(y[:, :1], rows_first[:, :, :1], levels) == pytest.approx(single)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (2, 4, 2), (4, 2, 3), (1, 2, 4, 1)])
def test_interval_calibration_refuses_quantiles_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"`quantiles` must be .* here \(4, 2, 1\), .* got the shape \("):
        interval_calibration(np.zeros(4), np.zeros(shape), [0.1, 0.9])


def test_interval_calibration_refuses_quantiles_that_fall():
    with pytest.raises(ValueError, match="and rise with the levels"):
        interval_calibration(np.zeros(4), np.tile([1.0, 0.0], (4, 1)), [0.1, 0.9])
