import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.models.conformal import set_aside
from vertebra.models.dependence import copied_rows, groups_seen, serial_correlation, within_groups
from vertebra.models.findings import Kind
from vertebra.models.rows import canonical
from vertebra.models.scores import Method
from vertebra.tables.belonging import group_codes, instants_of
from vertebra.tables.folds import folds_of


def in_groups(seed, n_groups=60, size=10):
    """Two inputs that a group shares, one that it does not, and what its rows have in common beyond them."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), size)
    shared, own = rng.standard_normal((n_groups, 2)), rng.standard_normal(n_groups * size)
    x = np.column_stack([shared[group], own])
    y = x @ [1.0, 0.5, 1.0] + rng.standard_normal(n_groups)[group] + rng.standard_normal(len(group))
    order = rng.permutation(len(group))
    return x[order], y[order], group[order]


def in_time(seed, n=400, rho=0.7):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(n)
    for t in range(1, n):
        noise[t] += rho * noise[t - 1]
    x = rng.standard_normal((n, 3))
    return x, x[:, 0] + noise


def kinds(model):
    return {each.kind for each in model.diagnostics_.findings}


# --- what users say ---------------------------------------------------------------------------------------------------


def test_groups_are_numbered_and_rows_without_one_stand_alone():
    np.testing.assert_array_equal(group_codes(["b", "a", None, "b", None], 5), [0, 1, 2, 0, 3])
    with pytest.raises(ValueError, match="at least 2 groups"):
        group_codes(["a"] * 4, 4)
    with pytest.raises(ValueError, match="one entry per row, 4, got 3"):
        group_codes([1, 2, 3], 4)


def test_time_is_dates_their_text_or_numbers():
    dates = pd.date_range("2024-01-01", periods=5)
    for given in (dates, dates.astype(str).tolist(), [1, 2, 3, 4, 5], dates.to_numpy()):
        assert (np.diff(instants_of(given, 5)) > 0.0).all()
    with pytest.raises(ValueError, match=r"row 1 .counted from 0. has none"):
        instants_of([1.0, None, 3.0], 3)
    with pytest.raises(ValueError, match="dates, or numbers that grow"):
        instants_of(["early", "late", "later"], 3)
    with pytest.raises(ValueError, match="must differ"):
        instants_of([1.0, 1.0], 2)


# --- rows that stay together ------------------------------------------------------------------------------------------


def test_rows_of_a_group_are_in_one_fold_and_folds_have_as_many_groups(rng):
    group, x = rng.integers(0, 23, 200), rng.standard_normal((200, 2))
    folds = folds_of(5, rng, x, x[:, :1], group)
    of_groups = [np.unique(folds[group == g]) for g in np.unique(group)]
    assert all(len(each) == 1 for each in of_groups)
    counts = np.bincount(np.concatenate(of_groups))
    assert counts.max() - counts.min() <= 1


def test_rows_keep_their_group_time_and_place_in_their_own_order(rng):
    matrix, y = rng.integers(0, 2, (60, 2)).astype(float), rng.integers(0, 2, (60, 1)).astype(float)
    group, time = rng.integers(0, 4, 60), rng.integers(0, 3, 60).astype(float)
    rows = canonical(matrix, y, np.ones(60), group, time)
    assert rows.weight.sum() == 60.0
    np.testing.assert_array_equal(rows.matrix, matrix[rows.place])
    np.testing.assert_array_equal(rows.group, group[rows.place])
    np.testing.assert_array_equal(rows.time, time[rows.place])
    # no part of a row stands for rows of two groups
    for g in range(4):
        assert rows.weight[rows.group == g].sum() == (group == g).sum()


@pytest.mark.parametrize("by", ["group", "time"])
def test_rows_set_aside_are_whole_groups_or_the_last(by, rng):
    x, time = rng.standard_normal((300, 2)), rng.random(300)
    group = np.repeat(np.arange(30), 10)
    rows = canonical(x, x[:, :1], np.ones(300), group if by == "group" else None, time if by == "time" else None)
    fitted, held = set_aside(rows, 0)
    assert len(fitted.y) + len(held.y) == 300
    assert 0.1 <= len(held.y) / 300 <= 0.3
    if by == "group":
        assert not set(fitted.group) & set(held.group)
    else:
        assert fitted.time.max() <= held.time.min()


# --- what is seen without being told ----------------------------------------------------------------------------------


def test_groups_are_seen_by_the_inputs_that_they_share():
    x, _, group = in_groups(0)
    seen = groups_seen(x)
    assert seen.inputs == (0, 1)
    assert len(np.unique(np.stack([seen.code, group]), axis=1).T) == 60
    rng = np.random.default_rng(0)
    assert groups_seen(rng.standard_normal((500, 5))) is None
    assert groups_seen(rng.integers(0, 30, (500, 5)).astype(float)) is None


def test_the_intraclass_correlation_is_that_of_its_model():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(400), 5)
    both = np.sqrt(0.3) * rng.standard_normal(400)[group] + np.sqrt(0.7) * rng.standard_normal(2000)
    correlation, level = within_groups(both[:, None], group)
    assert abs(correlation - 0.3) < 0.06  # its error is about 0.03
    assert level < 1e-6
    levels = [within_groups(rng.standard_normal((200, 1)), np.repeat(np.arange(40), 5))[1] for _ in range(200)]
    assert min(levels) > 1e-4


def test_serial_correlation_is_that_of_neighbours():
    _, noise = in_time(0, 4000, 0.5)
    order = np.random.default_rng(1).permutation(4000)
    r, surely = serial_correlation((noise - noise.mean())[order, None], order.astype(float))
    assert surely > 4.0
    shuffled = serial_correlation(noise[:, None], order.astype(float))
    assert abs(shuffled[1]) < 4.0
    assert r > 0.2


def test_rows_in_groups_and_rows_in_time_are_warned_of_and_clean_ones_are_not():
    x, y, _ = in_groups(1)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    (found,) = (each for each in model.diagnostics_.findings if each.kind is Kind.GROUPS)
    assert "equal values of x0, x1" in found.words
    assert found.quantity > 0.1
    x, y = in_time(1)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    (found,) = (each for each in model.diagnostics_.findings if each.kind is Kind.TIME)
    assert "follow each other in the table" in found.words
    order = np.argsort(y)  # in the order of the target, neighbours say nothing about the noise
    shuffled = np.random.default_rng(0).permutation(len(y))
    for rows in (order, shuffled):
        model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x[rows], y[rows])
        assert not kinds(model) & {Kind.GROUPS, Kind.TIME}


def test_rows_that_are_there_twice_are_named_unless_the_table_has_few_cells(rng):
    x, y = rng.random((60, 2)), rng.standard_normal((60, 1))
    twice = canonical(np.tile(x, (2, 1)), np.tile(y, (2, 1)), np.ones(120))
    (found,) = copied_rows(twice)
    assert found.words.startswith("60 of 120 rows are equal to others")
    assert found.quantity == 0.5
    assert copied_rows(canonical(x, y, np.ones(60))) == []
    # four cells, and rows that are said to belong together
    assert copied_rows(canonical(x.round(), y.round(), np.ones(60))) == []
    assert copied_rows(twice._replace(group=np.arange(120))) == []


def test_weights_that_count_rows_are_no_copies(rng):
    x, y = rng.random((60, 2)), rng.standard_normal(60)
    model = vb.AdditiveRegressor(clusters=[(0,)], random_state=0, evaluation="left_out")
    words = "rows are equal to others"
    assert not any(words in each for each in model.fit(x, y, 2 + np.arange(60) % 2).diagnostics_.warnings)
    assert any(words in each for each in model.fit(np.tile(x, (2, 1)), np.tile(y, 2)).diagnostics_.warnings)


def test_serial_rows_are_seen_along_a_date_in_any_order():
    x, y = in_time(2)
    table = pd.DataFrame(x, columns=list("abc")).assign(day=pd.date_range("2024-01-01", periods=400))
    rows = np.random.default_rng(0).permutation(400)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(table.iloc[rows], y[rows])
    assert any("along day are missed to the same side" in words for words in model.diagnostics_.warnings)


# --- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [vb.AdditiveRegressor, vb.AdditiveClassifier])
def test_groups_by_name_or_by_value_are_left_out_as_a_whole(kind):
    x, y, group = in_groups(3, n_groups=40, size=6)
    y = y if kind is vb.AdditiveRegressor else y > np.median(y)
    table = pd.DataFrame(x, columns=list("abc")).assign(patient=[f"p{g}" for g in group])
    named = kind(random_state=0).fit(table, y, groups="patient")
    assert named.evaluation_.method is Method.GROUPS
    assert list(named.feature_names_in_) == list("abc")
    given = kind(random_state=0).fit(table[list("abc")], y, groups=group)
    assert given.evaluation_.scores == named.evaluation_.scores
    assert named.predict(table).shape == (240,)
    assert "rows come in 40 groups, as was said" in str(named.diagnostics_)
    assert not any("rows come in groups" in words for words in named.diagnostics_.warnings)


def test_with_time_accuracy_is_that_of_later_rows(rng):
    x = rng.standard_normal((300, 2))
    y = x[:, 0] + 0.3 * rng.standard_normal(300)
    late = np.arange(300) >= 240
    y[late] += 2.0  # what no earlier row says
    table = pd.DataFrame(x, columns=["a", "b"]).assign(day=pd.date_range("2024-01-01", periods=300), y=y)
    model = vb.AdditiveRegressor(random_state=0).fit(table, "y", time="day")
    assert model.evaluation_.method is Method.LATER
    assert model.evaluation_.n == 60
    assert model.evaluation_.scores["model"]["rmse"] > 1.5
    assert list(model.feature_names_in_) == ["a", "b"]


def test_groups_and_time_are_checked_and_no_part_of_a_table_in_files(tmp_path, rng):
    x = rng.standard_normal((30, 2))
    with pytest.raises(ValueError, match=r"`groups` must have one entry|`groups` must name a column"):
        vb.AdditiveRegressor().fit(x, x[:, 0], groups=[1, 2])
    with pytest.raises(ValueError, match="`time` names the column 'day', and `X` has no names"):
        vb.AdditiveRegressor().fit(x, x[:, 0], time="day")
    table = pd.DataFrame(x, columns=["a", "b"]).assign(y=x[:, 0])
    with pytest.raises(ValueError, match="`groups` must name a column of the table, got 'c'"):
        vb.AdditiveRegressor().fit(table, "y", groups="c")
    table.to_parquet(tmp_path / "t.parquet")
    for given in ({"groups": "b"}, {"time": "b"}):
        with pytest.raises(ValueError, match="is for tables in memory"):
            vb.AdditiveRegressor().fit(vb.stream.Parquet(tmp_path / "t.parquet"), "y", **given)
