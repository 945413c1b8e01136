"""The task follows from the target, and rows without a target do not change it."""

import numpy as np
import pandas as pd
import pytest

from vertebra.roles import choose, described, target_of


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
    np.testing.assert_array_equal(target.values, np.asarray(values))


def test_few_whole_numbers_are_regression_with_a_hint():
    table = pd.DataFrame({"y": np.arange(120) % 5})
    target, _ = target_of(table, ["y"], "auto")
    assert not target.is_class
    assert "y has 5 whole values only" in target.hint
    assert target_of(table.head(60), ["y"], "auto")[0].hint == ""
    assert target_of(table, ["y"], "regression")[0].hint == ""
    assert target_of(table, ["y"], "classification")[0].values.dtype.kind == "i"


def test_gaps_in_the_target_do_not_change_its_classes():
    target, kept = target_of(pd.DataFrame({"y": [1.0, np.nan, 0.0, 1.0]}), ["y"], "auto")
    assert target.values.tolist() == [1, 0, 1]
    assert target.values.dtype.kind == "i"
    assert (target.n_left_out, kept.tolist()) == (1, [True, False, True, True])
    target, kept = target_of(pd.DataFrame({"y": ["a", "?", "b", None]}), ["y"], "auto")
    assert (target.values.tolist(), target.n_left_out) == (["a", "b"], 2)


def test_text_of_dates_is_taken_for_dates_unless_another_kind_is_asked_for():
    frame = pd.DataFrame({"day": ["2020-01-31", None, "2021-02-01 12:30"], "note": ["2020-01-31", "soon", "x"]})
    frame["y"] = [1.0, 2.0, 4.0]
    x, y, weight = choose(frame, "a.csv", ["y"], [], None, [], "auto")
    assert x.kinds == {"day": "datetime"}
    assert weight is None
    assert described("a.csv", 3, x, y) == [
        "Read a.csv: 3 rows, 2 inputs (1 date, 1 category).",
        "Target y: regression (numbers).",
    ]
    assert choose(frame, "a.csv", ["y"], [], None, ["day=category"], "auto")[0].kinds == {"day": "category"}


def test_text_that_may_be_something_else_is_hinted_at():
    days = pd.date_range("2024-01-01", periods=150)
    table = pd.DataFrame(
        {
            "y": np.arange(150.0),
            "id": [f"C{i}" for i in range(150)],
            "sold": days.strftime("%d.%m.%Y"),
            "listed": days.strftime("%Y-%m-%d"),
            "brand": ["a", "b", "c"] * 50,
        }
    )
    lines = described("t.csv", 150, *choose(table, "t.csv", ["y"], [], None, [], "auto")[:2])
    hints = [line for line in lines if line.startswith("Hint")]
    assert hints == [
        "Hint: id differs in nearly every row. If it names the rows, leave it out: --drop 'id'",
        "Hint: sold looks like dates, '01.01.2024': write them as 2024-05-31, and they are read as such.",
    ]
    assert len(described("t.csv", 60, *choose(table.head(60), "t.csv", ["y"], [], None, [], "auto")[:2])) == 2
