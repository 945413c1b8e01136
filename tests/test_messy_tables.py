"""Tables as people have them: gaps, text, dates, constants, extremes; and what a fit promises about them."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from pathlib import Path

import jaxtyping
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from scipy import stats

import vertebra as vb
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.file import BadFile
from vertebra.metrics import coverage
from vertebra.models.conformal import half_width, in_order, set_aside
from vertebra.models.rows import canonical
from vertebra.tables.encoding import Encoding

CITIES = {"Bergen": 0.0, "Oslo": 3.0, "Tromsø": -1.0, "Trondheim": -3.0}
GRADES = {"poor": -2.0, "fair": 0.0, "good": 2.0}
GAPS = ["size", "income", "rooms", "garden", "city", "grade", "colour", "sold", "huge"]


def messy(n, seed):
    """Nine columns with a fifth of their values missing, one with nothing in it and one that never changes; and y."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 2 * 365 * 24, n)
    x = pd.DataFrame(
        {
            "size": rng.normal(50.0, 10.0, n),
            "income": np.exp(2.5 * rng.standard_normal(n)),
            "rooms": pd.array(rng.integers(1, 8, n), dtype="Int64"),
            "garden": pd.array(rng.random(n) < 0.4, dtype="boolean"),
            "city": rng.choice(list(CITIES), n),
            "grade": pd.Categorical(rng.choice(list(GRADES), n), list(GRADES), ordered=True),
            "colour": pd.Categorical(rng.choice(["blue", "green", "red"], n)),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(hours, unit="h"),
            "huge": 1e30 * rng.standard_normal(n),
            "empty": np.full(n, np.nan),
            "flat": np.full(n, 7.0),
        }
    )
    y = 0.2 * (x["size"] - 50.0) + x["city"].map(CITIES) + x["grade"].astype(str).map(GRADES) + np.log(x["income"])
    y = y.to_numpy() + 3.0 * np.sin(hours / 2000.0) + 0.5 * rng.standard_normal(n)
    for name in GAPS:
        x.loc[rng.random(n) < 0.2, name] = None
    return x, y


@pytest.fixture(scope="module")
def data():
    return messy(300, 0)


@pytest.fixture(scope="module")
def regressor(data):
    return vb.AdditiveRegressor(random_state=0, evaluation="left_out").fit(*data)


@pytest.fixture(scope="module")
def classifier(data):
    x, y = data
    return vb.AdditiveClassifier(random_state=0, evaluation="left_out").fit(x, classes(y))


def classes(y):
    return np.where(y > 0, "high", "low")


def f_of(model, x):
    """Mean and sd of f of every row, side by side."""
    return np.stack(model.predict_f(x), axis=1)


@pytest.fixture
def as_users_run_it():
    """Without the checks of types that the tests' import hook puts before those of the library."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# The messy table


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_messy_table_is_fitted_and_the_columns_that_act_are_found_by_name(name, request):
    model = request.getfixturevalue(name)
    table = model.effects()
    # a classifier keeps every main effect where that predicts better, and says of each how likely it is to be real
    acting = {i for term in table.loc[table["probability"] > 0.5, "term"] for i in term}
    # sds of 2.5, 2, 2.2 and 1.6 beside 0.5 of noise and the gaps; the sign of y says less than y
    assert acting >= {"income", "size", "city", "grade"}
    assert len(acting - {"income", "size", "city", "grade", "sold (time)"}) <= 1
    assert {i for term in table["term"] for i in term}.isdisjoint({"empty", "flat"})
    assert set(table["term"]) >= set(model.clusters_)


def test_predictions_of_a_messy_table_are_finite_and_near_the_truth(regressor, classifier):
    x, y = messy(1000, 1)
    mean, sd = regressor.predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert (np.isfinite(sd) & (sd > 0)).all()
    # a fifth of every column is missing, so that about a fifth of the variance cannot be known
    assert np.corrcoef(mean, y)[0, 1] > 0.8
    # 1000 rows: a standard error of 1 %, and noise that the gaps make uneven
    assert coverage(y, *regressor.predict_interval(x, 0.9).T) == pytest.approx(0.9, abs=0.04)
    p = classifier.predict_proba(x)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (classifier.predict(x) == classes(y)).mean() > 0.75


def test_effects_speak_in_levels_and_units(regressor):
    city = regressor.effect("city").set_index("city")
    assert city.index.tolist() == [*sorted(CITIES), "missing"]
    assert city["mean"].idxmax() == "Oslo"
    assert city["mean"].idxmin() == "Trondheim"
    grade = regressor.effect("grade")
    assert grade["grade"].tolist() == [*GRADES, "missing"]
    assert grade["mean"].iloc[:3].is_monotonic_increasing
    size = regressor.effect("size", points=20)
    assert 10.0 < size["size"].min() < 30.0 < 70.0 < size["size"].max() < 90.0
    # 0.2 per unit, to the error of 300 rows
    slope = np.polyfit(size["size"][:20], size["mean"][:20], 1)[0]
    assert slope == pytest.approx(0.2, abs=0.05)
    sold = regressor.effect("sold (time)", points=30)["sold (time)"].iloc[:30]
    # days since 1970 of 2020 and 2021
    assert 18262 <= sold.min() < 18290
    assert 18960 < sold.max() <= 18993


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_the_effect_of_a_column_with_gaps_ends_with_that_of_a_missing_value(name, request):
    model = request.getfixturevalue(name)
    for column, gap in (("city", "missing"), ("grade", "missing"), ("size", np.nan), ("income", np.nan)):
        curve = model.effect(column)
        last = curve[column].iloc[-1]
        assert last == gap or (np.isnan(last) and np.isnan(gap))
        assert curve.drop(columns=column).notna().all(axis=None)
        assert curve[column].iloc[:-1].notna().all()


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_an_unseen_level_is_taken_and_known_less_well_than_any_seen_one(name, request, data):
    model = request.getfixturevalue(name)
    rows = data[0].iloc[:5]
    seen = np.stack([f_of(model, rows.assign(city=city))[:, 1] for city in [*CITIES, None]])
    unseen = f_of(model, rows.assign(city="Bodø"))
    assert np.isfinite(unseen).all()
    assert (unseen[:, 1] > seen.max(axis=0)).all()


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_columns_may_come_in_any_order_and_with_others(name, request):
    model = request.getfixturevalue(name)
    x, _ = messy(50, 2)
    expected = f_of(model, x)
    np.testing.assert_array_equal(f_of(model, x[x.columns[::-1]]), expected)
    np.testing.assert_array_equal(f_of(model, x.assign(price="unknown")), expected)
    with pytest.raises(ValueError, match=r"seen at fit time, yet now missing:\n- size\n- city\n"):
        model.predict(x.drop(columns=["city", "size"]))


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_saved_model_of_a_messy_table_is_the_same_model(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    x, _ = messy(50, 3)
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.schema_ == model.schema_
    assert again.clusters_ == model.clusters_
    assert again.diagnostics_ == model.diagnostics_
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(f_of(again, x), f_of(model, x))
    pd.testing.assert_frame_equal(again.effects(), model.effects())
    pd.testing.assert_frame_equal(again.eval_terms(x), model.eval_terms(x))
    pd.testing.assert_frame_equal(again.effect("city", simultaneous=True), model.effect("city", simultaneous=True))


def test_a_spoiled_file_is_refused(regressor, tmp_path):
    path = tmp_path / "model.vertebra"
    regressor.save(path)
    whole = path.read_bytes()
    for spoiled in (whole[: len(whole) // 2], whole[:-8] + b"\x00\x01\x02\x03\x04\x05\x06\x07", b"", b"not a model"):
        path.write_bytes(spoiled)
        with pytest.raises(BadFile, match=r"model\.vertebra"):
            vb.load(path)


def with_infinity(x):
    return x.assign(size=x["size"].where(x.index != 3, np.inf))


REFUSED = {
    "an infinite value": (lambda x, y: (with_infinity(x), y), {}, "column 'size' has 1 infinite value"),
    "a name twice": (
        lambda x, y: (x.rename(columns={"income": "size"}), y),
        {},
        "`X` must have distinct column names, got more than one of: size",
    ),
    "no rows": (lambda x, y: (x.iloc[:0], y[:0]), {}, r"Found array with 0 sample\(s\)"),
    "no columns": (lambda x, y: (x.iloc[:, :0], y), {}, r"Found array with 0 feature\(s\)"),
    "one row": (lambda x, y: (x.iloc[:1], y[:1]), {}, "at least 2"),
    "y too short": (lambda x, y: (x, y[:-1]), {}, r"inconsistent numbers of samples: \[300, 299\]"),
    "a negative weight": (lambda x, y: (x, y, np.where(np.arange(300) == 5, -1.0, 1.0)), {}, "[Nn]egative"),
    "no weight": (lambda x, y: (x, y, np.zeros(300)), {}, "non-zero|above 0"),
    "a weight too few": (lambda x, y: (x, y, np.ones(299)), {}, r"\(299,\), expected \(300,\)"),
    "a weight missing": (lambda x, y: (x, y, np.full(300, np.nan)), {}, "sample_weight contains NaN"),
    "a kind that is none": (
        lambda x, y: (x, y),
        {"feature_types": {"size": "nonsense"}},
        "`feature_types` must be one of number, .*, got 'nonsense' for the column 'size'",
    ),
    "the kind of no column": (
        lambda x, y: (x, y),
        {"feature_types": {"price": "number"}},
        "`feature_types` must name columns of `X`, size, .*, got 'price'",
    ),
    "kinds of too few columns": (
        lambda x, y: (x, y),
        {"feature_types": ["number"]},
        "`feature_types` must be a mapping or have one entry per column, 11",
    ),
    "kinds that are a number": (lambda x, y: (x, y), {"feature_types": 3}, "`feature_types` must be"),
    "a gap in no column": (
        lambda x, y: (x, y),
        {"missing_values": {"price": 0}},
        "`missing_values` must name columns of `X`, size, .*, got 'price'",
    ),
    "a gap that is a boolean": (
        lambda x, y: (x, y),
        {"missing_values": [0, True]},
        "`missing_values` must be finite numbers or texts, got True",
    ),
    "text as a number": (
        lambda x, y: (x, y),
        {"feature_types": {"city": "number"}},
        "The column 'city' must hold numbers, got",
    ),
    "a number as a boolean": (
        lambda x, y: (x, y),
        {"feature_types": {"size": "boolean"}},
        "The column 'size' must hold booleans",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("estimator", [vb.AdditiveRegressor, vb.AdditiveClassifier])
def test_what_cannot_be_fitted_is_refused_in_words(estimator, what, data, as_users_run_it):
    change, options, words = REFUSED[what]
    x, y = data
    with pytest.raises((ValueError, TypeError), match=words):
        estimator(**options).fit(*change(x, y if estimator is vb.AdditiveRegressor else classes(y)))


def test_targets_that_a_regressor_cannot_take_are_refused_in_words(data):
    x, y = data
    model = vb.AdditiveRegressor()
    with pytest.raises(ValueError, match=r"y contains NaN: 3 value\(s\) are missing"):
        model.fit(x, np.where(np.arange(300) < 3, np.nan, y))
    with pytest.raises(ValueError, match=r"y contains infinity .*: 2 value\(s\)"):
        model.fit(x, np.where(np.arange(300) < 2, np.inf, y))
    for text in (classes(y), classes(y).tolist(), pd.Series(classes(y), dtype=object), [str(value) for value in y]):
        with pytest.raises(ValueError, match=r"`y` must be numbers for AdditiveRegressor, got .*AdditiveClassifier"):
            model.fit(x, text)
    with pytest.raises(ValueError, match="`likelihood` must be one of auto, gaussian"):
        vb.AdditiveRegressor(likelihood="normal").fit(x, y)


@pytest.mark.parametrize("estimator", [vb.AdditiveRegressor, vb.SkeletonRegressor])
@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (1.7e308, r"`y` reaches -1.7e\+308, in row 3 \(counted from 0\); beyond ±1e\+300 .*: divide it by a constant"),
        (1e302, r"`y` reaches -1e\+302, in row 3"),
        (1e-305, "`y` differs by .* only, too little for double precision: multiply it by a constant first"),
        (1e-310, "`y` differs by"),
        (1e-320, "`y` differs by"),
    ],
)
def test_targets_too_large_or_small_for_double_precision_are_refused_in_words(estimator, unit, words):
    y = np.linspace(0.0, 1.0, 20)
    y[3] = -1.0
    with pytest.raises(ValueError, match=words):
        estimator().fit(np.arange(20.0)[:, None], unit * y)
    with pytest.raises(ValueError, match=words.replace("`y`", "`y`, target 1,")):
        estimator().fit(np.arange(20.0)[:, None], np.stack([y, unit * y], axis=1))


def test_counts_beyond_whole_numbers_are_refused_in_words():
    y = np.where(np.arange(20) == 4, 1e300, 1.0)
    with pytest.raises(
        ValueError, match=r"`y` reaches 1e\+300, in row 4 \(counted from 0\); counts beyond 9.*e\+15 are"
    ):
        vb.AdditiveRegressor(likelihood="poisson").fit(np.arange(20.0)[:, None], y)
    with pytest.raises(
        ValueError, match=r"Input y contains infinity or a value too large: 1 value\(s\), the first in row 2"
    ):
        vb.AdditiveRegressor().fit(np.arange(4.0)[:, None], [1, 2, 10**400, 3])


@pytest.mark.parametrize("unit", [1e-280, 1e-150, 1e150, 1e299])
def test_the_unit_of_a_target_does_not_matter(unit):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=60)
    y /= np.abs(y).max()
    plain, other = vb.AdditiveRegressor().fit(x, y), vb.AdditiveRegressor().fit(x, unit * y)
    assert plain.clusters_ == other.clusters_ == [("x0",)]
    # rounding of a mean and a scale in another unit, through an optimiser
    np.testing.assert_allclose(other.predict_interval(x) / unit, plain.predict_interval(x), atol=1e-6)


def test_targets_that_a_classifier_cannot_take_are_refused_in_words(data):
    x, y = data
    model = vb.AdditiveClassifier()
    with pytest.raises(ValueError, match=r"y contains NaN: 3 value\(s\) are missing"):
        model.fit(x, np.where(np.arange(300) < 3, None, classes(y)))
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        model.fit(x, ["yes"] * 300)
    with pytest.raises(ValueError, match="at least 2 classes among the rows of weight above 0"):
        model.fit(x, classes(y), sample_weight=(y > 0).astype(float))


def test_what_cannot_be_predicted_is_refused_in_words(regressor):
    x, _ = messy(10, 4)
    with pytest.raises(ValueError, match="column 'size' has 1 infinite value"):
        regressor.predict(with_infinity(x))
    with pytest.raises(ValueError, match="The column 'size' must hold numbers, got 'large'"):
        regressor.predict(x.assign(size="large"))
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        regressor.predict(x.iloc[:0])
    with pytest.raises(ValueError, match="X has 3 features, but AdditiveRegressor is expecting 11 features"):
        regressor.predict(x.iloc[:, :3].to_numpy())


# Any table

COLUMNS = [
    "number",
    "scaled",
    "heavy",
    "integer",
    "constant",
    "boolean",
    "text",
    "ordered",
    "datetime",
    "empty",
    "same",
]
TARGETS = ["constant", "noise", "heavy", "integer", "line", "large", "small"]


def column(kind, n, rng, others):
    """One column; `scaled` is up to 10¹² from zero and up to 10¹² wide."""
    match kind:
        case "number":
            return rng.standard_normal(n)
        case "scaled":
            return 10.0 ** rng.uniform(-12, 12) * (rng.standard_normal(n) + rng.choice([0.0, 1e3, -1e6]))
        case "heavy":
            return rng.standard_cauchy(n) * 10.0 ** rng.uniform(-6, 6)
        case "integer":
            return rng.integers(-5, 5, n)
        case "constant":
            return np.full(n, rng.choice([0.0, 1.0, -1e12, 1e-12]))
        case "boolean":
            return rng.random(n) < 0.5
        case "text":
            return rng.choice(["a", "b", "c", "d", "e", "ä", "long name"], n)
        case "ordered":
            return pd.Categorical(rng.choice(["low", "high"], n), ["low", "middle", "high"], ordered=True)
        case "datetime":
            return pd.Timestamp("1999-12-31") + pd.to_timedelta(rng.integers(0, 10**8, n), unit="s")
        case "empty":
            return np.full(n, np.nan)
    return others[-1].copy() if others else np.zeros(n)


def target(kind, n, rng, first):
    match kind:
        case "constant":
            return np.full(n, rng.choice([0.0, 2.5, -1e12]))
        case "noise":
            return rng.standard_normal(n)
        case "heavy":
            return rng.standard_cauchy(n) ** 3
        case "integer":
            return rng.integers(0, 4, n)
        case "large":
            return 1e12 * (1.0 + rng.standard_normal(n))
        case "small":
            return 1e-12 * rng.standard_normal(n)
    codes = pd.factorize(pd.Series(first))[0].astype(float)
    return codes + 0.1 * rng.standard_normal(n)


@st.composite
def tables(draw):
    """A frame of 8 to 40 rows and 1 to 4 columns of any kinds, some of its rows twice, and a target."""
    n = draw(st.integers(8, 40))
    kinds = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    what = draw(st.sampled_from(TARGETS))
    gaps = draw(st.sampled_from([0.0, 0.2, 0.7]))
    twice = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = []
    for kind in kinds:
        values = pd.Series(column(kind, n, rng, columns))
        columns.append(values.where(rng.random(n) >= gaps) if gaps and kind != "same" else values)
    x = pd.DataFrame({f"{kind} {i}": values for i, (kind, values) in enumerate(zip(kinds, columns, strict=True))})
    y = np.asarray(target(what, n, rng, columns[0]))
    rows = np.sort(rng.integers(0, n, n)) if twice else np.arange(n)
    event(f"target: {what}")
    return x.iloc[rows].reset_index(drop=True), y[rows]


@settings(max_examples=25)
@given(tables())
def test_any_table_can_be_fitted_predicted_explained_saved_and_loaded(drawn):
    goes_the_whole_way(*drawn)


@pytest.mark.slow
@settings(max_examples=200)
@given(tables())
def test_any_of_two_hundred_tables_can_be_fitted_predicted_explained_saved_and_loaded(drawn):
    goes_the_whole_way(*drawn)


def goes_the_whole_way(x, y):
    assume(x.assign(y=y).astype(str).duplicated().sum() < len(x) - 1)  # rows that are all the same are refused
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert (np.isfinite(sd) & (sd >= 0)).all()
    # a mean is no further out than y is, but for rounding
    size = max(float(np.abs(y).max()), 1e-300)
    assert (np.abs(mean) <= 10.0 * size).all()
    lower, upper = model.predict_interval(x, 0.9).T
    assert (np.isfinite(lower) & (lower <= mean) & (mean <= upper) & np.isfinite(upper)).all()
    table = model.effects()
    assert table.drop(columns="term").notna().all(axis=None)
    for cluster in model.clusters_[:2]:
        assert model.effect(cluster)[["mean", "sd", "lower", "upper"]].notna().all(axis=None)
    # sums in double precision: 10⁻⁸ of the largest y is far above their rounding
    np.testing.assert_allclose(model.eval_terms(x).sum(axis=1), mean, rtol=0, atol=1e-8 * size)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        again = vb.load(Path(folder) / "model")
    np.testing.assert_array_equal(again.predict(x, return_std=True), (mean, sd))
    np.testing.assert_array_equal(again.predict_interval(x, 0.9), np.stack([lower, upper], axis=1))
    pd.testing.assert_frame_equal(again.effects(), table)


# Weights and the order of rows


@pytest.fixture(scope="module")
def weighted():
    """A messy table with a category of so many levels that it is read as a number, and weights of 0 to 3."""
    x, y = messy(240, 5)
    rng = np.random.default_rng(105)
    x = x.assign(street=[f"street {i}" for i in rng.integers(0, 80, len(x))])
    # few of them above 1: rows that stand there often share their noise, which makes anything look real
    return x, y, rng.choice(4, len(x), p=[0.1, 0.8, 0.07, 0.03])


@pytest.fixture(
    scope="module", params=[vb.AdditiveRegressor, pytest.param(vb.AdditiveClassifier, marks=pytest.mark.slow)]
)
def weighed(request, weighted):
    """An estimator, its table, and its fit."""
    x, y, weight = weighted
    y = y if request.param is vb.AdditiveRegressor else classes(y)
    return request.param, (x, y, weight), request.param(random_state=0).fit(x, y, sample_weight=weight)


def test_a_row_of_weight_3_is_a_row_that_stands_there_three_times(weighed):
    estimator, (x, y, weight), one = weighed
    places = np.repeat(np.arange(len(x)), weight)
    two = estimator(random_state=0).fit(x.iloc[places].reset_index(drop=True), y[places])
    assert one.clusters_ == two.clusters_ != []
    # sums over other rows: rounding alone
    np.testing.assert_allclose(f_of(one, x), f_of(two, x), rtol=1e-8, atol=1e-8)
    numbers = ["strength", "sd", "lower", "upper", "sobol", "probability"]
    np.testing.assert_allclose(one.effects()[numbers], two.effects()[numbers], rtol=1e-8, atol=1e-8)
    assert one.effects()["term"].tolist() == two.effects()["term"].tolist()


def test_the_order_of_the_rows_does_not_matter_at_all(weighed):
    estimator, (x, y, weight), one = weighed
    order = np.random.default_rng(6).permutation(len(x))
    two = estimator(random_state=0).fit(x.iloc[order], y[order], sample_weight=weight[order])
    assert one.clusters_ == two.clusters_ != []
    np.testing.assert_array_equal(f_of(one, x), f_of(two, x))
    pd.testing.assert_frame_equal(one.effects(), two.effects(), check_exact=True)


# Conformal intervals


def uneven(n, rng):
    """Noise of Student's t with 2 degrees of freedom, ten times as large on one side as on the other."""
    x = rng.random((n, 2))
    return x, np.sin(6.0 * x[:, 0]) + (0.05 + 0.45 * x[:, 1]) * rng.standard_t(2, n)


@pytest.mark.slow
def test_conformal_intervals_cover_whatever_the_noise_is_and_whichever_rows_were_set_aside():
    covered = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = vb.AdditiveRegressor(conformal=True, random_state=seed, evaluation="left_out").fit(*uneven(200, rng))
        assert "`conformal=True`" not in str(model.diagnostics_), "it is asked for already"
        x, y = uneven(2000, rng)
        limits = model.predict_interval(x, 0.8)
        assert np.isfinite(limits).all()
        covered.append(coverage(y, *limits.T))
    # at least 0.8 in nine data sets of ten, up to three standard errors of 40 of them (and so in the mean)
    assert np.mean(np.array(covered) >= 0.8) >= 0.9 - 3.0 * np.sqrt(0.9 * 0.1 / 40)
    # with 40 rows to calibrate on that takes the 36th smallest score, which covers 36/41 = 0.878 in the mean, no more
    assert abs(np.mean(covered) - 36 / 41) < 3.0 * np.std(covered, ddof=1) / np.sqrt(40)


@pytest.mark.parametrize("m", [10, 40, 61, 500, 5000])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_the_conformal_score_is_the_first_that_keeps_its_promise(m, level):
    place = half_width(np.arange(1.0, m + 1)[:, None], level)[0]
    # the share that the k-th of m scores covers is Beta(k, m + 1 − k), of the mean k/(m + 1)
    k = np.arange(1, m + 1)
    enough = k / (m + 1) >= level - 1e-12
    keeps = enough & (stats.beta.sf(level, k, m + 1 - k) >= 0.9)
    if not enough.any():
        assert place == np.inf
    else:
        assert place == (np.argmax(keeps) + 1 if keeps.any() else m)


def test_a_row_that_stands_there_twenty_times_is_one_row_to_calibrate_on():
    rng = np.random.default_rng(0)
    x, y = uneven(60, rng)
    once = vb.AdditiveRegressor(conformal=True, random_state=0).fit(x, y)
    often = vb.AdditiveRegressor(conformal=True, random_state=0).fit(np.repeat(x, 20, axis=0), np.repeat(y, 20))
    assert len(once.model_.conformal) == len(often.model_.conformal) == 12


def test_with_too_few_rows_to_calibrate_on_a_conformal_interval_promises_nothing():
    rng = np.random.default_rng(0)
    x, y = uneven(20, rng)
    model = vb.AdditiveRegressor(conformal=True, random_state=0).fit(x, y)
    # 4 rows are set aside: the largest of 4 scores is passed with probability 1/5
    np.testing.assert_array_equal(model.predict_interval(x, 0.9), np.tile([-np.inf, np.inf], (20, 1)))
    assert np.isfinite(model.predict_interval(x, 0.8)).all()
    with pytest.raises(ValueError, match="`conformal=True` needs at least 4 rows, got 2"):
        vb.AdditiveRegressor(conformal=True).fit(x[:2], y[:2])


def with_gaps(seed, n=400, *, gap_in):
    """y = 2a + b + ε, and an input of a and three others has gaps."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    y = 2.0 * x["a"] + x["b"] + 0.5 * rng.normal(size=n)
    return x.mask(pd.DataFrame({name: (name == gap_in) & (rng.random(n) < 0.12) for name in x})), y


def test_noise_of_rows_whose_gap_hides_what_acts_is_not_taken_for_interactions():
    false, covered, known = [], [], []
    for seed in range(4):
        x, y = with_gaps(seed, gap_in="a")
        model = vb.AdditiveRegressor(random_state=0).fit(x, y)
        assert model.likelihood_ == "heteroscedastic"
        assert "rows without a are noisier than the rest" in str(model.diagnostics_)
        false += model.interactions()["term"].tolist()
        new, target = with_gaps(seed + 100, 2000, gap_in="a")
        lower, upper = model.predict_interval(new).T
        inside = (target > lower) & (target < upper)
        covered.append(inside[new["a"].isna()].mean())
        known.append(inside[new["a"].notna()].mean())
    assert false == []
    # by even noise 0.3 of rows with a gap, and nearly all others; the sd of each mean is below 0.02
    assert 0.9 < np.mean(covered) < 0.985
    assert 0.93 < np.mean(known) < 0.97


def test_gaps_that_hide_nothing_leave_noise_even():
    for seed in range(6):
        x, y = with_gaps(seed, gap_in="d")
        assert vb.AdditiveRegressor(clusters=[["a"], ["b"]], random_state=0).fit(x, y).likelihood_ == "gaussian"
    x, y = with_gaps(0, gap_in="a")
    assert vb.AdditiveRegressor(clusters=[["a"], ["b"]], likelihood="gaussian").fit(x, y).likelihood_ == "gaussian"


# One interface over all likelihoods

LIKELIHOODS = ["gaussian", "student_t", "heteroscedastic", "poisson"]


def simulated(likelihood, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    f = np.sin(5.0 * x[:, 0]) + x[:, 1]
    match likelihood:
        case "gaussian":
            return x, f + 0.3 * rng.standard_normal(n)
        case "student_t":
            return x, f + 0.2 * rng.standard_t(5, n)
        case "heteroscedastic":
            return x, f + np.exp(-2.0 + 1.5 * x[:, 1]) * rng.standard_normal(n)
    return x, rng.poisson(np.exp(0.5 + f))


@pytest.fixture(scope="module", params=LIKELIHOODS)
def fitted(request):
    model = vb.AdditiveRegressor(likelihood=request.param, random_state=0)
    return model.fit(*simulated(request.param, 1000, 0))


def test_quantiles_rise_and_an_interval_is_two_of_them(fitted):
    x, _ = simulated(fitted.likelihood, 8, 1)
    quantiles = fitted.predict_quantiles(x, [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    steps = np.diff(quantiles, axis=1)
    assert (steps >= 0).all() if fitted.likelihood == "poisson" else (steps > 0).all()
    # levels of 0.05 and 0.5 − 0.45 differ by rounding
    np.testing.assert_allclose(fitted.predict_interval(x, 0.9), fitted.predict_quantiles(x, [0.05, 0.95]), rtol=1e-9)


def test_the_variance_of_y_is_that_of_the_noise_and_that_of_f(fitted):
    x, _ = simulated(fitted.likelihood, 40, 1)
    mean, sd = fitted.predict(x, return_std=True)
    aleatoric, epistemic = fitted.predict_uncertainty(x)
    np.testing.assert_allclose(sd**2, aleatoric**2 + epistemic**2, rtol=1e-9)
    assert (aleatoric > epistemic).all()
    np.testing.assert_array_equal(fitted.predict(x), mean)


def test_probabilities_of_y_sum_to_one(fitted):
    x, _ = simulated(fitted.likelihood, 3, 1)
    for row in x:
        if fitted.likelihood == "poisson":
            counts = np.arange(200.0)
            total = np.exp(fitted.log_prob(np.tile(row, (200, 1)), counts)).sum()
        else:
            # y = m + s·tan t takes the line to an interval; the midpoint rule on 4000 points there
            mean, sd = fitted.predict(row[None], return_std=True)
            t = np.pi * ((np.arange(4000) + 0.5) / 4000 - 0.5)
            density = np.exp(fitted.log_prob(np.tile(row, (4000, 1)), mean + sd * np.tan(t)))
            total = np.sum(density * sd / np.cos(t) ** 2) * np.pi / 4000
        # smooth integrands: the rule is good to far more digits than these
        assert total == pytest.approx(1.0, abs=1e-5)


def test_draws_of_y_have_its_mean_and_sd(fitted):
    x, _ = simulated(fitted.likelihood, 8, 1)
    mean, sd = fitted.predict(x, return_std=True)
    draws = fitted.sample_y(x, 20000, random_state=1)
    assert draws.shape == (8, 20000)
    # 20000 draws: standard errors of 0.7 % of the sd for the mean, and for the sd with tails of t₅ 1 %
    assert (np.abs(draws.mean(axis=1) - mean) < 0.04 * sd).all()
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.06)
    np.testing.assert_array_equal(fitted.sample_y(x, 3, random_state=1), fitted.sample_y(x, 3, random_state=1))


def test_intervals_hold_on_fresh_rows(fitted):
    x, y = simulated(fitted.likelihood, 2000, 2)
    limits = fitted.predict_interval(x, 0.9)
    promised = 0.9
    if fitted.likelihood == "poisson":
        # whole numbers cannot hit 0.9: what the model itself gives the interval is what is promised
        counts = np.arange(60.0)
        inside = (counts >= limits[:200, :1]) & (counts <= limits[:200, 1:])
        log_prob = fitted.log_prob(np.repeat(x[:200], 60, axis=0), np.tile(counts, 200)).reshape(200, 60)
        promised = float(np.mean(np.sum(np.exp(log_prob) * inside, axis=1)))
        assert promised >= 0.9
    # 2000 rows: a standard error of 0.7 %; and 1000 rows leave the noise known to 2 %, which is 0.4 % of coverage
    assert coverage(y, *limits.T) == pytest.approx(promised, abs=3.0 * np.hypot(0.0067, 0.004))


# Time, interruption, warm starts and words


def wide(n=3000, p=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((n, p))
    return x, np.sin(6.0 * x[:, 0]) + 2.0 * x[:, 1] * x[:, 2] + 0.2 * rng.standard_normal(n)


def test_a_small_time_budget_ends_the_search_with_a_usable_model():
    x, y = wide()
    with pytest.warns(UserWarning, match=r"AdditiveRegressor: the time budget of 0\.001 s was spent; .* is kept"):
        model = vb.AdditiveRegressor(time_budget=0.001, random_state=0).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert (np.isfinite(mean) & np.isfinite(sd) & (sd > 0)).all()
    assert np.isfinite(model.effects().drop(columns=["term", "group"]).to_numpy(float)).all()
    assert any("the time budget of 0.001 s was spent" in words for words in model.diagnostics_.warnings)
    assert "Usable" in model.diagnostics_.verdict


def test_a_time_budget_ends_training_early():
    x, y = wide(300, 3)
    model = vb.AdditiveRegressor("mc_dropout", n_steps=20_000, clusters=[(0,), (1, 2)], time_budget=1.0, random_state=0)
    started = time.monotonic()
    with pytest.warns(UserWarning, match=r"the time budget of 1 s was spent"):
        model.fit(x, y)
    # compiling is not interrupted, nor is a round of steps: some seconds on a slow machine, where all steps are minutes
    assert time.monotonic() - started < 60.0
    assert np.isfinite(model.predict(x)).all()
    with pytest.raises(ValueError, match="`time_budget` must be a number of seconds above 0, got 0"):
        vb.AdditiveRegressor(time_budget=0.0).fit(x, y)


def test_a_budget_that_is_not_spent_changes_nothing():
    x, y = wide(200, 3)
    plain = vb.AdditiveRegressor(random_state=0).fit(x, y)
    budgeted = vb.AdditiveRegressor(random_state=0, time_budget=1e4).fit(x, y)
    np.testing.assert_array_equal(plain.predict(x), budgeted.predict(x))


INTERRUPTED = """
import warnings
import numpy as np
import vertebra as vb
x = np.random.default_rng(0).random((200, 2))
model = vb.AdditiveRegressor("mc_dropout", n_steps=20_000, clusters=[(0,), (1,)], verbose=True, random_state=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(x, np.sin(6 * x[:, 0]))
print("warned:", *(str(w.message) for w in caught))
print("finite:", np.isfinite(model.predict(x)).all())
print(model.diagnostics_)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no Ctrl-C to one process")
def test_ctrl_c_ends_a_fit_with_the_model_found_by_then():
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    watchdog = threading.Timer(120.0, process.kill)
    watchdog.start()
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "step " in line:
                process.send_signal(signal.SIGINT)
                break
        lines += process.stdout.readlines()
        assert process.wait() == 0, "".join(lines)
    finally:
        watchdog.cancel()
        process.kill()
        process.stdout.close()
    said = "".join(lines)
    assert "interrupted: coming to an end" in said
    assert "warned: AdditiveRegressor: interrupted; what had been found by then is kept." in said
    assert "finite: True" in said
    assert "! interrupted" in said


def test_the_handler_of_ctrl_c_is_what_it_was_before():
    x, y = wide(50, 3)
    before = signal.getsignal(signal.SIGINT)
    vb.AdditiveRegressor().fit(x, y)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError, match="`clusters` must hold groups"):
        vb.AdditiveRegressor(clusters=["x0"]).fit(x, y)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_warm_start_keeps_the_clusters_and_a_cold_one_finds_them_again():
    x, y = wide(500, 4)
    noise = np.random.default_rng(1).standard_normal(500)
    model = vb.AdditiveRegressor(warm_start=True, random_state=0).fit(x, y)
    found = list(model.clusters_)
    assert ("x1", "x2") in found
    assert model.fit(x, noise).clusters_ == found
    assert model.set_params(warm_start=False).fit(x, noise).clusters_ == []


def test_a_fit_is_silent_unless_asked_and_then_writes_lines(capfd):
    x, y = wide(200, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vb.AdditiveRegressor().fit(x, y).effects()
    assert capfd.readouterr() == ("", "")
    vb.AdditiveRegressor(verbose=True).fit(x, y)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("[AdditiveRegressor] ") and " s  " in line for line in lines)
    assert "testing 3 inputs and their 3 pairs" in err
    assert "\x1b" not in err
    assert out == ""  # which is for results


# Categories of many levels


def test_ten_thousand_levels_need_no_ten_thousand_columns():
    rng = np.random.default_rng(0)
    own = rng.standard_normal(10_000)
    codes = rng.integers(0, 10_000, 21_000)
    x = pd.DataFrame({"customer": [f"customer {i}" for i in codes], "other": rng.random(21_000)})
    y = own[codes] + 0.5 * rng.standard_normal(21_000)
    model = vb.AdditiveRegressor(random_state=0).fit(x[:20_000], y[:20_000])
    assert ("customer",) in model.clusters_
    assert model.model_.posterior.terms.basis.n_columns < 2000
    mean = model.predict(x[20_000:])
    # two rows a level of noise 0.5 beside effects of sd 1: 1.25 is the variance, some 0.4 can be had of it at best
    assert np.mean((y[20_000:] - mean) ** 2) < 0.6 * np.var(y[20_000:])
    unseen = model.predict(pd.DataFrame({"customer": ["nobody"], "other": [0.5]}))
    assert unseen == pytest.approx(y.mean(), abs=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_five_hundred_levels_that_say_nothing_are_not_found_to_act(seed):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"street": [f"street {i}" for i in rng.integers(0, 500, 1500)], "size": rng.random(1500)})
    y = np.sin(6.0 * x["size"]) + 0.5 * rng.standard_normal(1500)
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    assert model.clusters_ == [("size",)]


def test_rates_of_counts_and_inputs_beyond_all_bounds_are_numbers():
    """e^800 is none, nor is the product of two inputs of 1e200 sds."""
    predictive = Predictive(vb.Poisson(), np.array([[0.0], [800.0]]), np.array([[0.0], [1e9]]))
    for answer in (
        predictive.mean(),
        predictive.epistemic(),
        predictive.aleatoric(),
        predictive.quantiles(np.array([0.1, 0.9])),
    ):
        assert np.isfinite(answer).all()
    assert predictive.mean()[0] == 1.0
    encoding = Encoding((None, np.array([5.0, 6.0, 7.0])), np.array([-4.0, np.nan]), (False, False))
    rows = np.array([[1e200, 0.0], [-1e200, -1.0], [np.nan, np.nan], [3.0, 0.0]])
    np.testing.assert_array_equal(encoding(rows), [[1e9, 5.0], [-1e9, 7.0], [-4.0, 6.0], [3.0, 5.0]])


def test_rows_set_aside_are_as_many_and_as_common_as_the_rows_are():
    rng = np.random.default_rng(0)
    tails = []
    for seed in range(40):
        x, y = rng.integers(0, 30, (400, 1)).astype(float), np.round(2.0 * rng.standard_normal((400, 1))) / 2.0
        fitted, held = set_aside(canonical(x, y, np.ones(400)), seed)
        assert held.weight.sum() == 80
        assert fitted.weight.sum() == pytest.approx(320)
        tails.append(held.weight[np.abs(held.y[:, 0]) >= 1.5].sum() / 80)
        scores = in_order(np.abs(held.y), held.weight)
        np.testing.assert_array_equal(
            scores, np.sort(np.repeat(np.abs(held.y), held.weight.astype(int), axis=0), axis=0)
        )
    # P(|y| ≥ 1.5) is 0.21; 3,200 rows have a standard error of 0.007
    assert np.mean(tails) == pytest.approx(0.211, abs=0.025)


def test_conformal_intervals_hold_where_rows_repeat():
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(6):
        x, y = rng.integers(0, 40, (3000, 1)).astype(float), np.round(2.0 * rng.standard_t(3, 3000)) / 2.0
        model = vb.AdditiveRegressor(conformal=True, random_state=seed, remainder=False).fit(x[:600], y[:600])
        lower, upper = model.predict_interval(x[600:], 0.9).T
        covered.append(coverage(y[600:], lower, upper))
    assert 0.89 < np.mean(covered) < 0.97
