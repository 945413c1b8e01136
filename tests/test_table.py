import datetime as dt
import json
import re
from dataclasses import replace
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse

from vertebra.tables.column import KINDS, UNSEEN, Column
from vertebra.tables.schema import Schema, learn
from vertebra.tables.survey import Facts

NAN = float("nan")


def people():
    return pd.DataFrame(
        {
            "age": [30, 40, 50, 60],
            "income": [1.5, NAN, 2.5, 3.5],
            "city": ["Oslo", "?", "Bergen", None],
            "size": pd.Categorical(["small", "large", None, "small"], ["small", "medium", "large"], ordered=True),
            "member": [True, False, True, True],
            "when": pd.to_datetime(["2020-01-01 00:30", "2020-02-02 05:00", None, "2021-03-03 00:00"]),
        }
    )


def only(schema):
    (column,) = schema.columns
    return column


def codes(schema, values):
    return schema.matrix(np.array(values, dtype=object)[:, None])[:, 0].tolist()


def test_each_kind_of_column_is_found_by_rule():
    schema = learn(people())
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        "age": "number",
        "income": "number",
        "city": "category",
        "size": "ordered",
        "member": "boolean",
        "when (time)": "number",
        "when (month)": "ordered",
        "when (weekday)": "ordered",
        "when (hour)": "ordered",
    }
    assert schema.named
    assert schema.sources == tuple(people().columns)
    levels = {column.name: column.levels for column in schema.columns}
    assert levels["city"] == ("Bergen", "Oslo")
    assert levels["size"] == ("small", "medium", "large")
    assert levels["member"] == (False, True)
    missing = {column.source for column in schema.columns if column.has_missing}
    assert missing == {"income", "city", "size", "when"}


@pytest.mark.parametrize(
    ("freq", "parts"),
    [
        ("D", {"month", "weekday"}),
        ("7D", {"month"}),
        ("MS", {"month"}),
        ("ME", {"month"}),
        ("YS", set()),
        ("7h", {"month", "weekday", "hour"}),
    ],
)
def test_dates_that_stand_for_months_or_years_have_no_weekday(freq, parts):
    when = pd.Series(pd.date_range("2019-01-01", periods=400 if freq != "YS" else 12, freq=freq), name="when")
    wanted = {f"when ({part})" for part in parts} | {"when (time)"}
    assert {column.name for column in learn(when.to_frame()).columns} == wanted
    # in passes over rows, some at a time, likewise
    facts, weight = Facts("when", None), np.ones(len(when))
    for rows in np.array_split(np.arange(len(when)), 5):
        facts = facts.merged(Facts("when", None).add(when.iloc[rows], weight[rows]))
    facts = Facts.from_json(json.loads(json.dumps(facts.to_json())))
    assert {column.name for column in facts.columns(when)} == wanted


def test_the_matrix_holds_scaled_numbers_codes_and_nan():
    schema = learn(people())
    matrix = schema.matrix(people())
    expected = {
        "age": (np.array([30, 40, 50, 60]) - 45) / np.std([30, 40, 50, 60]),
        "city": [1, NAN, 0, NAN],
        "size": [0, 2, NAN, 0],
        "member": [1, 0, 1, 1],
        "when (month)": [0, 1, NAN, 2],
        "when (weekday)": [2, 6, NAN, 2],
        "when (hour)": [0, 5, NAN, 0],
    }
    for i, column in enumerate(schema.columns):
        if column.name in expected:
            np.testing.assert_allclose(matrix[:, i], expected[column.name], rtol=1e-14)
    assert [schema.columns[6].label(c) for c in matrix[:, 6]] == [1, 2, "missing", 3]


def test_pandas_polars_and_pyarrow_agree():
    pl = pytest.importorskip("polars")
    frame = people().assign(
        when=people()["when"].dt.tz_localize("Europe/Oslo"),
        length=pd.to_timedelta([1.0, 2.5, None, 4.0], unit="D"),
        colour=pd.Categorical(["red", None, "blue", "red"]),
        agreed=pd.array([True, None, False, True], dtype="boolean"),
        count=pd.array([1, None, 2, 3], dtype="Int64"),
    )
    other = pl.DataFrame(
        {
            name: frame[name].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
            if name == "when"
            else [None if pd.isna(v) else v for v in frame[name].tolist()]
            for name in frame.columns
        }
    ).with_columns(
        pl.col("size").cast(pl.Enum(["small", "medium", "large"])),
        pl.col("colour").cast(pl.Categorical),
        pl.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone("America/Lima"),
    )
    assert learn(other) == learn(frame)
    np.testing.assert_array_equal(learn(frame).matrix(other), learn(frame).matrix(frame))
    # Arrow has no order for its dictionaries: that column alone is a category.
    arrow = other.to_arrow()
    kinds = {c.name: c.kind for c in learn(arrow).columns} | {"size": "ordered"}
    assert kinds == {c.name: c.kind for c in learn(frame).columns}
    np.testing.assert_array_equal(learn(frame).matrix(arrow), learn(frame).matrix(frame))
    backed = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    np.testing.assert_array_equal(learn(frame).matrix(backed), learn(frame).matrix(frame))


def test_a_zone_is_converted_to_utc():
    naive = pd.DataFrame({"t": pd.to_datetime(["2020-06-01 00:00", "2020-06-01 12:00"])})
    zoned = pd.DataFrame({"t": naive["t"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")})
    schema = learn(zoned)
    assert schema == learn(naive)
    assert [c.name for c in schema.columns] == ["t (time)", "t (hour)"]
    mixed = pd.DataFrame({"t": ["2020-06-01T02:00+02:00", "2020-06-01 12:00"]})
    assert learn(mixed, feature_types={"t": "datetime"}) == schema
    days = schema.columns[0].original(schema.matrix(zoned)[:, 0])
    np.testing.assert_allclose(days, [18414.0, 18414.5], rtol=1e-14)


def test_only_the_parts_of_a_datetime_that_vary_are_inputs():
    mondays = pd.DataFrame({"d": [dt.date(2020, 6, 1), None, dt.date(2020, 6, 8)]})
    assert [c.name for c in learn(mondays).columns] == ["d (time)"]
    assert [c.has_missing for c in learn(mondays).columns] == [True]
    months = pd.DataFrame({"d": [dt.date(2020, 6, 1), dt.date(2020, 7, 6)]})
    assert [c.name for c in learn(months).columns] == ["d (time)", "d (month)"]


def test_text_that_is_no_date_or_an_ambiguous_one_is_refused():
    for value in ("soon", "01/02/2020", "12:30", 20200101):
        X = pd.DataFrame({"d": ["2020-01-01", value]})
        with pytest.raises(ValueError, match=rf"The column 'd' must hold dates.*got {value!r}"):
            learn(X, feature_types={"d": "datetime"})
    assert len(learn(pd.DataFrame({"d": ["3 Mar 2020", "?"]}), feature_types=["datetime"]).columns) == 1


def test_feature_types_override_the_rule_by_name_by_position_or_in_order():
    X = pd.DataFrame({"a": [1, 2, 10], "b": ["1", "NA", "3"], "c": [0, 1, 1], "d": pd.to_datetime(["2020-01-01"] * 3)})
    schema = learn(X, feature_types={"a": "category", 1: "number", "c": "boolean", "d": "number"})
    assert schema == learn(X, feature_types=["category", "number", "boolean", "number"])
    assert [c.kind for c in schema.columns] == ["category", "number", "boolean", "number"]
    assert [c.name for c in schema.columns] == ["a", "b", "c", "d"]
    assert schema.columns[0].levels == (1, 2, 10)
    assert schema.columns[1].centre == 2.0
    assert learn(X, feature_types={"b": "ordered"}).columns[1].levels == ("1", "3")
    assert learn(X).columns[1].kind == "number"
    assert learn(X.astype({"b": "category"})).columns[1].kind == "category"


@pytest.mark.parametrize(
    ("feature_types", "words"),
    [
        ({"z": "number"}, "`feature_types` must name columns of `X`, a, b, got 'z'"),
        ({7: "number"}, "`feature_types` must name columns of `X`, a, b, got 7"),
        ({"a": "float"}, "one of number, ordered, category, boolean, datetime, got 'float' for the column 'a'"),
        (["number"], "one entry per column, 2, got ['number']"),
        ("number", "one entry per column, 2, got 'number'"),
        ({"b": "number"}, "The column 'b' must hold numbers, got 'x'"),
        ({"a": "boolean"}, "The column 'a' must hold booleans, got"),
        ({"a": "datetime"}, "The column 'a' must hold dates or times that read one way only, got 1"),
    ],
)
def test_feature_types_that_make_no_sense_are_refused(feature_types, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        learn(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), feature_types=feature_types)


GAPPED = pd.DataFrame(
    {
        "a": [1.5, -999.0, 3.5, -999.0],
        "b": np.array([0, 1, 2, -999], dtype=np.int16),
        "c": ["u", "?!", " ?! ", "v"],
        "d": pd.Categorical(["low", "high", "?!", "low"], ["?!", "low", "high"], ordered=True),
        "e": [True, False, True, True],
        "f": np.array([0.1, -999.9, 0.3, 0.1], dtype=np.float32),
        "g": pd.to_datetime(["2020-01-01", "1900-01-01", "2020-03-01", "2021-01-01"]),
        "h": [2.0, "none", 4.0, 6.0],
    }
)
CLEAN = GAPPED.assign(
    a=[1.5, NAN, 3.5, NAN],
    b=[0.0, 1.0, 2.0, NAN],
    c=["u", None, None, "v"],
    d=pd.Categorical(["low", "high", None, "low"], ["low", "high"], ordered=True),
    f=np.array([0.1, NAN, 0.3, 0.1], dtype=np.float32),
    g=pd.to_datetime(["2020-01-01", None, "2020-03-01", "2021-01-01"]),
    h=[2.0, None, 4.0, 6.0],
)


def as_clean(schema):
    """The schema without what it reads as gaps."""
    return replace(schema, columns=tuple(replace(column, missing_values=()) for column in schema.columns))


@pytest.mark.parametrize(
    "missing_values",
    [
        [-999, -999.9, "?!", "1900-01-01", "none", NAN, None],
        {"a": -999, 1: -999.0, "c": "?!", "d": ["?!"], "f": -999.9, "g": "1900-01-01", "h": "none"},
    ],
)
@pytest.mark.parametrize("is_arrow", [False, True])
def test_missing_values_are_read_as_gaps_are(missing_values, is_arrow):
    gapped, clean = GAPPED, CLEAN
    if is_arrow:  # which has one type a column
        gapped, clean = (pa.Table.from_pandas(X.assign(h=X["h"].map(str, na_action="ignore"))) for X in (GAPPED, CLEAN))
    schema = learn(gapped, missing_values=missing_values)
    assert as_clean(schema) == learn(clean)
    np.testing.assert_array_equal(schema.matrix(gapped), schema.matrix(clean))
    np.testing.assert_array_equal(schema.matrix(gapped), learn(clean).matrix(clean))
    # which rows there are does not matter
    np.testing.assert_array_equal(schema.matrix(gapped[:1]), schema.matrix(clean[:1]))


def test_missing_values_are_numbers_where_numbers_stand_and_texts_where_text_does():
    X = pd.DataFrame({"n": [0, 1, 2], "t": ["0", "one", "2"], "b": [False, True, True]})
    everywhere = learn(X, missing_values=0)
    assert np.isnan(everywhere.matrix(X)).tolist() == [[True, False, False]] + [[False] * 3] * 2
    assert np.isnan(learn(X, missing_values="0").matrix(X)).tolist() == [[False, True, False]] + [[False] * 3] * 2
    # of a column that is named, 0 and "0" are one
    for value in (0, "0", 0.0):
        named = learn(X, missing_values={"t": value, "n": value})
        assert np.isnan(named.matrix(X)).tolist() == [[True, True, False]] + [[False] * 3] * 2
    text = np.array([["-999"], ["1.5"], ["-999.0"]])
    assert np.isnan(learn(text, missing_values=-999).matrix(text)).ravel().tolist() == [True, False, True]
    codes = learn(X, feature_types={"n": "category"}, missing_values=0)
    assert codes.columns[0].levels == (1, 2)
    assert np.isnan(codes.matrix(X)[0, 0])


def test_what_stands_for_gaps_is_stored_and_files_without_it_load():
    schema = learn(GAPPED, missing_values={"a": -999, "c": "?!"})
    kept = json.loads(json.dumps(schema.to_json()))
    assert Schema.from_json(kept) == schema
    assert "missing_values" not in kept["columns"][1]
    assert Schema.from_json(json.loads(json.dumps(learn(GAPPED).to_json()))) == learn(GAPPED)
    for bad in (3, [True], [None], [float("inf")], [[1]]):
        kept["columns"][0]["missing_values"] = bad
        with pytest.raises(ValueError, match="A schema must have missing values, numbers or texts, got"):
            Schema.from_json(kept)


@pytest.mark.parametrize(
    ("missing_values", "words"),
    [
        ({"z": 0}, "`missing_values` must name columns of `X`, a, b, got 'z'"),
        ({7: 0}, "`missing_values` must name columns of `X`, a, b, got 7"),
        (True, "`missing_values` must be finite numbers or texts, got True"),
        ([1, float("inf")], "`missing_values` must be finite numbers or texts, got inf"),
        ({"a": {"b": 1}}, "`missing_values` must be finite numbers or texts, got {'b': 1}"),
        (b"x", "`missing_values` must be finite numbers or texts, got b'x'"),
    ],
)
def test_missing_values_that_make_no_sense_are_refused(missing_values, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        learn(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), missing_values=missing_values)


def test_arrays_of_text_and_objects_are_read_column_by_column():
    X = np.array([["1.5", "a"], ["?", "b"], ["3", "1"]])
    assert [c.kind for c in learn(X).columns] == ["number", "category"]
    assert learn(X) == learn(X.astype(object)) == learn(X.tolist())
    assert learn(X).sources == ("x0", "x1")
    assert not learn(X).named
    mixed = [[1, "a", True, 2**60, Decimal("1.5")], [None, 2, None, 1, NAN], [2.5, "2", False, 3, Decimal(2)]]
    columns = learn(mixed).columns
    assert [c.kind for c in columns] == ["number", "category", "boolean", "number", "number"]
    assert columns[1].levels == ("2", "a")
    assert columns[2].has_missing
    assert learn(np.array([[1, 2], [3, 4]], dtype=np.int8)).matrix([[1, 2], [3, 4]]).tolist() == [[-1, -1], [1, 1]]


def test_levels_match_by_value_whatever_their_type():
    schema = learn([[1], [2], [10]], feature_types=["category"])
    assert codes(schema, ["1", 1.0, 10, 3, None, "?", "NA"]) == pytest.approx(
        [0, 0, 2, UNSEEN, NAN, NAN, NAN], nan_ok=True
    )
    schema = learn(np.array([[True], [False]]))
    assert codes(schema, [0, 1, "True", "false", 1.0, True, "maybe"]) == [0, 1, 1, 0, 1, 1, UNSEEN]
    assert only(schema).label(UNSEEN) == "(unseen)"
    assert only(schema).label(NAN) == "missing"
    assert only(schema).label(np.float64(1.0)) is True
    with pytest.raises(ValueError, match="`code` must be one of the 2 levels of 'x0', got 2"):
        only(schema).label(2)


def test_a_declared_level_called_none_is_a_level():
    pain = pd.DataFrame({"pain": pd.Categorical(["None", "Mild", None], ["None", "Mild", "Severe"], ordered=True)})
    schema = learn(pain)
    assert only(schema).levels == ("None", "Mild", "Severe")
    np.testing.assert_array_equal(schema.matrix(pain)[:, 0], [0, 1, NAN])
    np.testing.assert_array_equal(schema.matrix(pain.astype(object))[:, 0], [0, 1, NAN])


def test_a_category_of_levels_is_equal_to_a_naive_loop(rng):
    values = rng.choice(["a", "b", "?", " NA ", "c", ""], 200).astype(object)
    values[:20] = None
    schema = learn(pd.DataFrame({"c": values[:150]}))
    order = {"a": 0, "b": 1, "c": 2}
    expected = [NAN if v is None or v.strip() in ("?", "NA", "") else order[v] for v in values]
    np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"c": values}))[:, 0], expected)


def test_rows_of_weight_zero_teach_nothing():
    X = people()
    weight = np.array([1.0, 0.0, 2.0, 1.0])
    spoiled = X.astype(object)
    spoiled.loc[1] = [1e9, 7.0, "Paris", "medium", None, pd.Timestamp("1950-05-05 23:00")]
    spoiled = spoiled.astype({"size": X["size"].dtype, "age": float, "income": float, "member": "boolean"})
    spoiled["when"] = pd.to_datetime(spoiled["when"])
    assert learn(spoiled, weight) == learn(X.drop(index=1), weight[weight > 0])
    assert learn(X, weight) == learn(X.iloc[[0, 2, 3]], weight[weight > 0])


def test_a_weight_is_a_number_of_copies(rng):
    for x in (rng.normal(size=(60, 1)), rng.standard_cauchy(size=(400, 1))):
        weight = rng.integers(0, 4, len(x))
        weighted, copied = only(learn(x, weight)), only(learn(np.repeat(x, weight, axis=0)))
        assert weighted.tail == copied.tail
        # sums in another order
        assert weighted.centre == pytest.approx(copied.centre, rel=1e-10)
        assert weighted.scale == pytest.approx(copied.scale, rel=1e-10)


@pytest.mark.parametrize("weight", [[1.0], [0.0, 0.0], [1.0, NAN]])
def test_weights_that_make_no_sense_are_refused(weight):
    with pytest.raises(ValueError, match="`weight` must"):
        learn([[1.0], [2.0]], weight)


def test_columns_that_are_all_missing_or_constant_are_fine():
    X = pd.DataFrame({"a": [NAN, NAN], "b": [None, "?"], "c": [7.0, 7.0], "d": pd.to_datetime([None, None])})
    a, b, c, d = learn(X).columns
    assert a == Column("a", "a", "number", has_missing=True)
    assert b == Column("b", "b", "number", has_missing=True)
    assert c == Column("c", "c", "number", centre=7.0)
    assert d == Column("d (time)", "d", "number", "time", has_missing=True)
    np.testing.assert_array_equal(learn(X).matrix(X), [[NAN, NAN, 0, NAN]] * 2)


def test_light_tails_are_standardised_and_heavy_ones_drawn_in(rng):
    x = rng.normal(5.0, 2.0, 1000)
    column = only(learn(x[:, None]))
    assert (column.centre, column.scale, column.tail) == pytest.approx((x.mean(), x.std(), 0.0), rel=1e-12)
    x = rng.standard_cauchy(1000)
    column = only(learn(x[:, None]))
    assert column.tail == 3.0
    assert column.centre == pytest.approx(np.median(x), abs=0.02)  # a quantile of the sample, not between two
    assert column.scale == pytest.approx(2.0 / 1.349, rel=0.2)  # the IQR of a Cauchy is 2, its estimate is noisy
    assert np.abs(column.standard(x)).max() < 15.0
    u = np.array([-4.0, -3.0, 0.0, 3.0, 4.0])
    expected = [-3 - np.arcsinh(1), -3, 0, 3, 3 + np.arcsinh(1)]
    np.testing.assert_allclose(column.standard(column.centre + column.scale * u), expected, atol=1e-12)


def test_where_most_values_are_equal_the_others_set_the_scale(rng):
    x = np.zeros(1000)
    x[:10] = rng.normal(size=10)
    assert only(learn(x[:, None])).scale == pytest.approx(x[:10].std(), rel=1e-12)
    x[:10] = 1e-6
    column = only(learn(x[:, None]))
    assert column.standard([0.0, 1e-6]).tolist() == [0.0, 1.0]


SIZES = st.floats(-1e300, 1e300, allow_subnormal=False)


@given(st.lists(SIZES, min_size=1, max_size=30), st.lists(SIZES, max_size=5), st.integers(0, 60))
def test_original_undoes_standard_which_is_monotone_and_finite(seen, later, n_equal):
    assume(not 0.0 < max(seen) - min(seen) < 1e-306)  # refused
    column = only(learn(np.array(seen + seen[:1] * n_equal)[:, None]))
    x = np.sort(np.array(seen + [column.centre + column.scale * u for u in (-1e3, -3.0, 3.0, 1e3)]))
    x = x[np.isfinite(x)]
    z = column.standard(x)
    assert np.isfinite(z).all()
    assert (np.diff(z) >= 0).all()
    # Rounding is relative to what is added: a value far below the centre or the scale keeps no digits of its own.
    size = np.maximum(np.abs(x), max(abs(column.centre), column.scale))
    assert (np.abs(column.original(z) - x) <= 1e-9 * size).all()
    assert np.isfinite(column.standard(np.array(later))).all()


def test_a_value_beyond_all_bounds_of_the_others_is_given_back():
    x = np.array([2.5e-142] * 21 + [0.0] * 16 + [3.5e166])
    column = only(learn(x[:, None]))
    np.testing.assert_allclose(column.original(column.standard(x)), x, rtol=1e-12, atol=1e-12 * column.scale)


@pytest.mark.parametrize("unit", [1e-308, 1e-310, 1e-320])
def test_a_column_that_varies_among_denormal_numbers_is_refused_by_name(unit):
    x = np.array([[3.0, 0.0], [1.0, unit], [2.0, 2.0 * unit]])
    with pytest.raises(ValueError, match=r"column 'x1' differs by .* only, too little for double .*: multiply it by"):
        learn(x)
    learn(np.array([[unit], [unit]]))  # constant
    learn(np.array([[unit], [1.0]]))


@pytest.mark.parametrize("value", [1e16, 1e100, -1.7e308])
def test_rounding_of_a_large_constant_stays_of_the_size_of_one(value):
    x = np.array([value, np.nextafter(value, 0.0), value, value])
    assert np.abs(only(learn(x[:, None])).standard(x)).max() <= 1.0


@pytest.mark.parametrize("unit", [1e30, 1e-30, 1e300])
def test_scaling_does_not_depend_on_the_unit(rng, unit):
    for x in (rng.normal(size=50), rng.standard_cauchy(500)):
        x = x / np.abs(x).max()
        plain, scaled = only(learn(x[:, None])), only(learn(unit * x[:, None]))
        np.testing.assert_allclose(scaled.standard(unit * x), plain.standard(x), rtol=1e-9, atol=1e-12)


def test_missing_stays_missing_and_codes_are_not_scaled():
    column = Column("a", "a", "number", centre=1.0, scale=2.0, tail=3.0)
    assert np.isnan(column.standard(NAN))
    assert np.isnan(column.original(NAN))
    level = Column("a", "a", "category", levels=("u", "v"))
    assert level.standard([0.0, 1.0]).tolist() == level.original([0.0, 1.0]).tolist() == [0.0, 1.0]


LEVELS = st.lists(st.text(max_size=5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False), max_size=6)


# what differs in denormal numbers alone is refused, see above
VALUES = st.floats(-1e9, 1e9).map(lambda value: round(value, 6))


@given(LEVELS, st.lists(VALUES, min_size=1), st.booleans())
def test_json_gives_the_schema_back(levels, values, is_ordered):
    n = max(len(levels), len(values))
    frame = pd.DataFrame(
        {
            "level": pd.Series(levels + [None] * (n - len(levels)), dtype=object),
            "value": values + [NAN] * (n - len(values)),
            "when": pd.date_range("2020-01-31 23:00", periods=n, freq="5h"),
        }
    )
    schema = learn(frame, feature_types={"level": "ordered" if is_ordered else "category"})
    again = Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert again == schema
    np.testing.assert_array_equal(again.matrix(frame), schema.matrix(frame))
    for column in schema.columns:
        assert Column.from_json(json.loads(json.dumps(column.to_json()))) == column


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, "names"),
        ({"kind": "float"}, "a kind, one of number, ordered, category, boolean"),
        ({"kind": ["number"]}, "a kind"),
        ({"levels": "ab"}, "a list of levels"),
        ({"levels": [None]}, "levels of text, finite numbers or booleans"),
        ({"levels": [float("inf")]}, "levels of text"),
        ({"levels": ["1", 1]}, "distinct levels"),
        ({"levels": []}, "levels for every kind but a number"),
        ({"kind": "number"}, "levels for every kind but a number"),
        ({"kind": "boolean"}, "the levels false, true"),
        ({"part": "century"}, "a part of a datetime"),
        ({"part": {}}, "a part of a datetime"),
        ({"part": "time"}, "the kind of that part"),
        ({"part": "month", "kind": "ordered"}, "the levels of that part"),
        ({"centre": NAN}, "a finite number for centre"),
        ({"centre": 10**400}, "a finite number for centre"),
        ({"scale": 0}, "a scale above 0"),
        ({"scale": True}, "a finite number for scale"),
        ({"tail": -1.0}, "a scale above 0 and a tail of at least 0"),
        ({"has_missing": 1}, "true or false"),
        ({"code": "import os"}, "a column"),
    ],
)
def test_a_damaged_column_is_refused(change, words):
    good = Column("a", "a", "category", levels=("x", "y")).to_json()
    assert Column.from_json(good)
    with pytest.raises(ValueError, match=f"A schema must have {re.escape(words)}"):
        Column.from_json(good | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"named": None}, "true or false for named"),
        ({"columns": []}, "a list of columns"),
        ({"columns": [3]}, "a column"),
        ({"sources": "ab"}, "a list of sources"),
        ({"sources": ["a", 1]}, "sources that are text"),
        ({"sources": ["a", "a"]}, "distinct sources"),
        ({"sources": ["a"]}, "columns of every source"),
        ({"more": 1}, "a schema"),
    ],
)
def test_a_damaged_schema_is_refused(change, words):
    good = learn(pd.DataFrame({"a": [1.0], "b": [2.0]})).to_json()
    assert Schema.from_json(good)
    with pytest.raises(ValueError, match=f"A schema must have {re.escape(words)}"):
        Schema.from_json(good | change)
    first = good["columns"][0]
    for second, what in ((first, "distinct names"), (first | {"name": "c"}, "several columns of a datetime only")):
        with pytest.raises(ValueError, match=what):
            Schema.from_json({"columns": [first, second], "sources": ["a"], "named": True})


def test_a_frame_is_matched_by_name_and_an_array_by_position():
    X = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "w"]})
    schema = learn(X)
    matrix = schema.matrix(X)
    np.testing.assert_array_equal(schema.matrix(X.assign(extra=1)[["extra", "b", "a"]]), matrix)
    np.testing.assert_array_equal(schema.matrix(X.to_numpy()), matrix)
    np.testing.assert_array_equal(schema.matrix(X.set_axis([0, 1], axis=1)), matrix)
    np.testing.assert_array_equal(learn(X.to_numpy()).matrix(X.rename(columns={"a": "z"})), matrix)
    words = (
        "The feature names should match those that were passed during fit.\n"
        "Feature names seen at fit time, yet now missing:\n- b\nFeature names unseen at fit time:\n- B\n"
    )
    with pytest.raises(ValueError, match=re.escape(words)):
        schema.matrix(X.rename(columns={"b": "B"}))
    with pytest.raises(ValueError, match="X has 1 features, but Additive is expecting 2 features as input"):
        schema.matrix(np.ones((3, 1)), estimator="Additive")


def test_numbers_given_as_text_are_parsed_or_refused_by_name():
    schema = learn(pd.DataFrame({"a": [1.0, 3.0]}))
    np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"a": ["1", " ? ", "3.0"]}))[:, 0], [-1, NAN, 1])
    np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"a": pd.Categorical([True, False])}))[:, 0], [-1, -2])
    with pytest.raises(ValueError, match=r"The column 'a' must hold numbers, got 'three'.*'category'"):
        schema.matrix(pd.DataFrame({"a": ["1", "three"]}))
    with pytest.raises(ValueError, match="The column 'a' must hold numbers, as it did at fit, got the dtype datetime"):
        schema.matrix(pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}))


@pytest.mark.parametrize("values", [[1.0, np.inf, -np.inf], ["1", "inf", "-Infinity"], [1, 10**400, -(10**400)]])
def test_infinite_numbers_are_refused_with_their_column(values):
    words = "Input X contains infinity or a value too large.*: column 'a' has 2 infinite"
    with pytest.raises(ValueError, match=words):
        learn(pd.DataFrame({"a": values}), feature_types={"a": "number"})


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (sparse.csr_array(np.eye(2)), TypeError, "Sparse data was passed for X, but dense data is required. Use '.toa"),
        (np.ones(3), ValueError, "Expected 2D array, got 1D array instead:\narray=[1. 1. 1.].\nReshape your data"),
        (pd.Series([1.0]), ValueError, "Expected 2D array, got 1D array instead"),
        (3.0, ValueError, "Expected 2D array, got scalar array instead"),
        (np.ones((2, 2, 2)), ValueError, "Found array with dim 3, while dim <= 2 is required"),
        (np.ones((0, 2)), ValueError, "Found array with 0 sample(s) (shape=(0, 2)) while a minimum of 1 is required."),
        (np.ones((3, 0)), ValueError, "Found array with 0 feature(s) (shape=(3, 0)) while a minimum of 1 is required."),
        (pd.DataFrame(index=range(2)), ValueError, "0 feature(s) (shape=(2, 0))"),
        (np.ones((2, 2)) * 1j, ValueError, "Complex data not supported, got the dtype complex128"),
        (pd.DataFrame({"a": [1j]}), ValueError, "Complex data not supported, got the dtype complex128"),
        (np.array([[1j], [2]], dtype=object), ValueError, "Complex data not supported, got some in the column 'x0' of"),
        (np.array([[{"a": 1}], [2]], dtype=object), TypeError, "'x0' holds dict: each argument must be a string or a"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "distinct column names, got more than one of: a."),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), TypeError, "Feature names are only supported if all input features"),
    ],
)
def test_tables_of_the_wrong_make_are_refused(X, error, words):
    with pytest.raises(error, match=re.escape(words)):
        learn(X)


def test_a_lazy_frame_and_a_clash_of_names_are_refused():
    pl = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=re.escape("got a lazy frame, LazyFrame: pass `X.collect()`")):
        learn(pl.DataFrame({"a": [1]}).lazy())
    with pytest.raises(ValueError, match=re.escape("rename them: when (time).")):
        learn(people().assign(**{"when (time)": 1}))


def test_names_that_are_no_text_are_no_names():
    schema = learn(pd.DataFrame([[1.0, "a"], [2.0, "b"]]))
    assert schema.sources == ("x0", "x1")
    assert not schema.named
    assert all(column.kind in KINDS for column in schema.columns)


def test_a_frame_opened_by_narwhals_and_sparse_columns_are_read():
    X = pd.DataFrame({"a": [0.0, 0.0, 3.0]})
    assert learn(nw.from_native(X)) == learn(X) == learn(X.astype(pd.SparseDtype(float, 0.0)))
