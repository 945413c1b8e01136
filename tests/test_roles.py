"""The task follows from the target, and rows without a target do not change it."""

import numpy as np
import pandas as pd
import pytest

from vertebra.cli.hints import described
from vertebra.cli.roles import About, choose, target_of
from vertebra.cli.tablefile import Refused


@pytest.mark.parametrize(
    ("values", "is_class", "reason"),
    [
        (["a", "b", "c"], True, "text"),
        ([True, False, True], True, "booleans"),
        (pd.Categorical(["s", "m", "l"], ordered=True), True, "categories"),
        ([1, 2, 1], True, "two values"),
        ([0.5, 1.5, 0.5], True, "two values"),
        ([1, 2, 3], False, "numbers"),
        ([1.5, 2.5, 3.5], False, "numbers"),
    ],
)
def test_the_task_follows_the_target(values, is_class, reason):
    target, kept = target_of(pd.DataFrame({"y": values}), ["y"], "auto")
    assert (target.is_class, target.reason, target.hint, kept.all()) == (is_class, reason, "", True)
    # two values that are not whole are classes by name
    wanted = np.asarray(values).astype(str) if 0.5 in values else np.asarray(values)
    np.testing.assert_array_equal(target.values, wanted)


def test_few_whole_numbers_are_regression_with_a_hint():
    table = pd.DataFrame({"y": np.arange(120) % 5})
    target, _ = target_of(table, ["y"], "auto")
    assert not target.is_class
    assert "y has 5 whole values only" in target.hint
    assert target_of(table.head(60), ["y"], "auto")[0].hint == ""
    asked = target_of(table, ["y"], "regression")[0].hint  # then they may count something
    assert asked == "y are whole numbers from 0 on. If they count something: --likelihood counts"
    assert target_of(table, ["y"], "classification")[0].values.dtype.kind == "i"


def test_gaps_in_the_target_do_not_change_its_classes():
    target, kept = target_of(pd.DataFrame({"y": [1.0, np.nan, 0.0, 1.0]}), ["y"], "auto")
    assert target.values.tolist() == [1, 0, 1]
    assert target.values.dtype.kind == "i"
    assert (target.n_left_out, kept.tolist()) == (1, [True, False, True, True])
    target, kept = target_of(pd.DataFrame({"y": ["a", "?", "b", None]}), ["y"], "auto")
    assert (target.values.tolist(), target.n_left_out) == (["a", "b"], 2)


def test_values_that_stand_for_gaps_are_for_all_columns_or_for_one():
    frame = pd.DataFrame(
        {"z": ["1.5", "none", "2.5"], "day": ["2020-01-31", "none", "2021-02-01"], "k": ["a", "b", "c"]}
    )
    frame["y"] = [1.0, 2.0, 4.0]
    given = frame, "a.csv", ["y"], [], None, [], "auto"
    x, y, _ = choose(*given, missing=["-999", "none"])
    assert x.missing == [-999.0, "none"]
    assert x.kinds == {}  # the schema sees them, here as in Python
    assert choose(*given, missing=["-999", "none"], is_sample=True)[0].kinds == {"z": "number", "day": "datetime"}
    assert described("a.csv", 3, x, y)[0] == "Read a.csv: 3 rows, 3 inputs (1 number, 1 date, 1 category)."
    x, _, _ = choose(*given, missing=["-999", "z=none", "z=0"])
    assert x.missing == {"z": [-999.0, "none", 0.0], "day": [-999.0], "k": [-999.0]}
    assert choose(*given, missing=["-999", "z=none", "z=0"], is_sample=True)[0].kinds == {"z": "number"}
    assert choose(*given)[0].missing == []
    with pytest.raises(Refused, match=r"^--missing 'zz' is not a column of a.csv"):
        choose(*given, missing=["zz=0"])
    with pytest.raises(Refused, match=r"^--missing y=0: 'y' is no input and no target"):
        choose(frame, "a.csv", ["z"], ["y"], None, [], "auto", missing=["y=0"])


def test_values_are_listed_with_commas_and_may_be_of_a_target():
    frame = pd.DataFrame({"x": np.arange(6.0), "c": ["1,5", "2,5", "-9,9", "0,5", "7,5", "98,99"]})
    frame["y"] = [1, 2, 97, 3, 99, 4]
    given = frame, "a.csv", ["y"], [], None, [], "auto"
    x, y, _ = choose(*given, missing=["x=98, 99", "c=-9,9", "y=97,98,99"])
    assert x.missing == {"x": [98.0, 99.0], "c": [-9.9]}  # a column with decimal commas has no lists of two
    assert (y.values.tolist(), y.n_left_out, x.rows.tolist()) == ([1.0, 2.0, 3.0, 4.0], 2, [1, 2, 4, 6])
    x, y, _ = choose(*given, missing=["97,98,99"])
    assert (x.missing, y.n_left_out) == ([97.0, 98.0, 99.0], 0)  # of a target by its name alone: 0 may be its value
    assert choose(*given, missing=["not yet, maybe"])[0].missing == ["not yet, maybe"]
    with pytest.raises(Refused, match=r"^--missing of a target is for tables that are read at once"):
        choose(*given, missing=["y=97"], is_sample=True)


def test_codes_of_no_answer_in_the_target_are_hinted_at():
    answers = np.tile(np.arange(11), 30)
    answers[:9] = [97, 98, 99] * 3
    hint = target_of(pd.DataFrame({"y": answers}), ["y"], "auto")[0].hint
    assert hint == (
        "y is 97, 98 or 99 in 9 rows, far from all others. If that is no answer, leave these rows out: "
        "--missing 'y=97,98,99'"
    )


def test_weights_free_text_and_times_away_from_utc_are_hinted_at():
    rng = np.random.default_rng(0)
    n = 150
    times = [f"2025-03-{1 + k // 5:02d} {k % 24:02d}:00:00+0{1 + (k > 140)}:00" for k in range(n)]
    frame = pd.DataFrame(
        {"at": times, "day": [each[:10] for each in times], "utc": [each[:19] + "Z" for each in times]}
    )
    frame["weight"] = rng.uniform(0.5, 1.7, n)
    frame["body_weight"] = rng.normal(75.0, 9.0, n).round(1)  # of people, and not of rows
    frame["comment"] = [f"it took {k} days to come" if k % 2 else "all is well" for k in range(n)]
    frame["place"] = rng.choice(["New York City", "Rio de Janeiro", "Isle of Man"], n)
    frame["y"] = rng.choice(["no", "yes"], n, p=[0.75, 0.25])
    x, y, _ = choose(frame, "a.csv", ["y"], [], None, [], "auto")
    _, target, *hints = described("a.csv", n, x, y, is_timed=True)
    assert target == (
        f"Target y: classification (text), yes in {np.mean(frame['y'] == 'yes'):.1%} of the rows; effects are log odds "
        "of yes."
    )
    assert hints == [
        "Hint: at has offsets from UTC, +01:00 among them, and is read as UTC: its hours and weekdays are those of "
        "UTC. Without the offsets they are those of the clock.",
        "Hint: weight is an input. If it is how much each row counts: --weight 'weight'",
        "Hint: comment seems to be free text, 76 texts in 150 rows, each of which is a level. Leave it out, or make "
        "columns of what it says: --drop 'comment'",
    ]


def test_text_of_dates_is_taken_for_dates_unless_another_kind_is_asked_for():
    frame = pd.DataFrame({"day": ["2020-01-31", None, "2021-02-01 12:30"], "note": ["2020-01-31", "soon", "x"]})
    frame["y"] = [1.0, 2.0, 4.0]
    x, y, about = choose(frame, "a.csv", ["y"], [], None, [], "auto")
    assert x.kinds == {}
    assert about == About()
    assert described("a.csv", 3, x, y) == [
        "Read a.csv: 3 rows, 2 inputs (1 date, 1 category).",
        "Target y: regression (numbers).",
    ]
    assert choose(frame, "a.csv", ["y"], [], None, ["day=category"], "auto")[0].kinds == {"day": "category"}


def test_text_that_may_be_something_else_is_hinted_at():
    days = pd.date_range("2024-01-01", periods=150)
    table = pd.DataFrame(
        {
            "y": np.arange(150.0) + 0.25,
            "id": [f"C{i}" for i in range(150)],
            "sold": days.strftime("%y-%m-%d"),
            "listed": days.strftime("%Y-%m-%d"),
            "brand": ["a", "b", "c"] * 50,
        }
    )
    lines = described("t.csv", 150, *choose(table, "t.csv", ["y"], [], None, [], "auto")[:2])
    hints = [line for line in lines if line.startswith("Hint")]
    assert hints == [
        "Hint: id differs in nearly every row. If it names the rows, leave it out: --drop 'id'",
        "Hint: sold looks like dates, '24-01-01': write them as 2024-05-31, and they are read as such.",
        "Hint: rows stand in the order of listed, and some are held out at random. --time 'listed' holds out the last "
        "ones instead; it is no input then.",
    ]
    # units that are not of money
    table = pd.DataFrame({"y": np.arange(150.0) + 0.25, "oil": [f"{60 + i / 10} °C" for i in range(150)]})
    table.loc[[3, 70], "oil"] = "ERR"
    table["part"] = [f"{i}{'ABC'[i % 3]}" for i in range(50)] * 3  # no unit: it differs
    hints = described("t.csv", 150, *choose(table, "t.csv", ["y"], [], None, [], "auto")[:2])[2:]
    assert hints == [
        "Hint: oil looks like numbers, '60.0 °C', and is read as levels: leave '°C' out, and they are numbers; 'ERR' "
        "is a gap by --missing 'oil=ERR'.",
    ]
    # where it is said when rows were, and where dates go up and down, nothing is to be said
    chosen = choose(table, "t.csv", ["y"], [], None, [], "auto")[:2]
    assert not any("order of" in line for line in described("t.csv", 150, *chosen, is_timed=True))
    mixed = choose(table.sample(frac=1.0, random_state=0, ignore_index=True), "t.csv", ["y"], [], None, [], "auto")[:2]
    assert not any("order of" in line for line in described("t.csv", 150, *mixed))
    assert len(described("t.csv", 60, *choose(table.head(60), "t.csv", ["y"], [], None, [], "auto")[:2])) == 2


def rows(**columns):
    x = np.arange(10.0)
    return pd.DataFrame({"x": x, "w": 1.0 + x % 2, "y": x**2} | columns)


def with_value(value, at=3):
    return np.where(np.arange(10) == at, value, np.arange(10.0) ** 2)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        (
            "y",
            with_value(np.inf),
            "the target 'y' has 1 infinite value, the first in row 4 of t.csv: correct, or leave",
        ),
        ("y", with_value(-1.7e308), r"the target 'y' reaches -1.7e\+308, in row 4 of t.csv; beyond ±1e\+300 sums and"),
        ("y", 1e-310 * np.arange(10), "the target 'y' differs by 9e-310 only, too little for double precision"),
        (
            "x",
            with_value(-np.inf, 7),
            "the column 'x' has 1 infinite value, the first in row 8 of t.csv: correct, or leave empty",
        ),
        ("x", 1e-320 * np.arange(10), "the column 'x' differs by 9e-320 only, too little for double precision: mult"),
        ("w", with_value(np.inf), "--weight 'w' must hold finite numbers of at least 0, without gaps; row 4 of t.csv"),
        ("w", with_value(np.nan), "--weight 'w' must hold finite numbers of at least 0, without gaps; row 4 of t.csv"),
        ("w", with_value(-1.0, 5), "--weight 'w' must hold finite numbers of at least 0, .* row 6 of t.csv has -1.0"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused_with_their_column_and_row(column, values, words):
    with pytest.raises(Refused, match=words):
        choose(rows(**{column: values}), "t.csv", ["y"], [], "w", [], "auto")


def test_rows_are_counted_as_they_stand_in_the_file_whatever_is_left_out():
    table = rows(y=with_value(np.inf, 8))
    table.loc[:2, "w"] = 0.0
    table.loc[4, "y"] = np.nan
    with pytest.raises(Refused, match=r"the first in row 9 of t\.csv"):
        choose(table, "t.csv", ["y"], [], "w", [], "auto")
    # of rows from all over a table nobody knows the number
    with pytest.raises(Refused, match="the target 'y' has infinite values: correct"):
        choose(table, "t", ["y"], [], None, [], "auto", is_sample=True)


def test_infinite_values_of_columns_that_are_dropped_or_levels_do_not_matter():
    table = rows(x=with_value(np.inf))
    choose(table.assign(z=table["y"]), "t.csv", ["y"], ["x"], None, [], "auto")
    choose(table, "t.csv", ["y"], [], None, ["x=category"], "auto")


@pytest.mark.parametrize("name", ["y", "w"])
def test_a_target_or_weight_that_is_there_twice_is_refused_unless_the_other_is_dropped(name):
    table = rows()
    table[f"{name}.1"] = table[name]
    table.attrs["repeated"] = {name: [f"{name}.1"]}
    option = {"y": "--target", "w": "--weight"}[name]
    with pytest.raises(
        Refused, match=f"{option} '{name}' names 2 columns of t.csv, read as '{name}', '{name}.1': drop"
    ):
        choose(table, "t.csv", ["y"], [], "w", [], "auto")
    x, _, _ = choose(table, "t.csv", ["y"], [f"{name}.1"], "w", [], "auto")
    assert x.frame.columns.tolist() == ["x"]
