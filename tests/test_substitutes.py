"""What stands for what: near copies by evidence, exact copies and one-to-one levels by what they are."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.models.diagnostics import open_choices
from vertebra.models.levels import together
from vertebra.tables.profile import copies_of
from vertebra.terms.structure import Substitute
from vertebra.terms.substitutes import choices


def near_copies(rho, n=300, seed=0):
    """b nearly copies a, which acts by a curve; d nearly copies c, and they act as a product; one more is idle."""
    z = np.random.default_rng(seed).standard_normal((n, 6))
    x = pd.DataFrame({"a": z[:, 0], "c": z[:, 2], "idle": z[:, 4]})
    x.insert(1, "b", rho * z[:, 0] + np.sqrt(1.0 - rho**2) * z[:, 1])
    x.insert(3, "d", rho * z[:, 2] + np.sqrt(1.0 - rho**2) * z[:, 3])
    return x, 2.0 * np.sin(1.5 * x["a"]) + 1.5 * x["c"] * x["d"] + 0.7 * z[:, 5]


@pytest.fixture(scope="module")
def model():
    x, y = near_copies(0.95)
    return vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)


def test_near_copies_are_told_apart_as_far_as_evidence_goes(model):
    table = model.substitutes()
    pairs = {frozenset((row.input, row.substitute)): row for row in table.itertuples()}
    assert set(pairs) == {frozenset("ab"), frozenset("cd")}
    curve, product = pairs[frozenset("ab")], pairs[frozenset("cd")]
    a_alone = curve.input_alone if curve.input == "a" else curve.substitute_alone
    assert a_alone > 0.5
    assert min(curve.together, product.together) > 0.99
    # neither acts alone: both do, as a product or too close to it to be told
    assert product.both + product.product > 0.95
    for row in pairs.values():
        assert row.input_alone + row.substitute_alone + row.both + row.product == pytest.approx(1.0)
        assert row.correlation == pytest.approx(0.95, abs=0.02)


def test_a_saved_model_keeps_its_substitutes_and_warns_of_them(model, tmp_path):
    model.save(tmp_path / "model.vertebra")
    pd.testing.assert_frame_equal(vb.load(tmp_path / "model.vertebra").substitutes(), model.substitutes())
    said = [words for words in model.diagnostics_.warnings if "data hardly say which" in words]
    assert any("c" in words and "d" in words for words in said)


def test_words_say_what_is_not_clear_and_nothing_else():
    names = ["month", "mnth", "hour"]
    open_case = Substitute(0, 1, 0.99, 0.9999, 0.55, 0.43, 0.01, 0.01)
    (words,) = map(str, open_choices([open_case], names, {}))
    assert "month or mnth acts (> 0.999), and data hardly say which: month alone 0.55, mnth alone 0.43" in words
    for clear in ("input_alone", "both", "product"):
        assert open_choices([open_case._replace(**{clear: 0.99})], names, {}) == []
    assert open_choices([open_case._replace(together=0.1)], names, {}) == []
    assert open_choices([open_case], names, {1: 0}) == []  # exact copies are said elsewhere
    (words,) = map(str, open_choices([open_case._replace(input_alone=0.00, other_alone=0.98)], names, {}))
    assert "mnth alone 0.98" in words


def test_levels_that_are_one_to_one_are_copies_whatever_they_are_called():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 60).astype(float)
    renamed = np.array([2.0, 0.0, 3.0, 1.0])[codes.astype(int)]
    coarser = np.minimum(codes, 2.0)
    gaps = np.where(codes == 3.0, np.nan, codes)
    matrix = np.stack([codes, renamed, coarser, gaps, codes, codes], axis=1)
    # the fifth is a number of as many values
    assert copies_of(matrix, [4, 4, 3, 4, 0, 4]) == {1: 0, 3: 0, 4: 0, 5: 0}
    assert copies_of(matrix) == {4: 0, 5: 0}


def test_numbers_on_a_line_are_copies_and_others_are_not():
    rng = np.random.default_rng(0)
    celsius = rng.normal(20.0, 5.0, 300)
    gaps = np.where(rng.random(300) < 0.1, np.nan, celsius)
    nearly = celsius + 1e-6 * rng.standard_normal(300)
    matrix = np.stack([celsius, 1.8 * celsius + 32.0, -celsius, celsius**3, gaps, 2.0 * gaps, nearly], axis=1)
    assert copies_of(matrix, on_lines=True) == {1: 0, 2: 0, 5: 4}
    nothing = np.full((10, 3), np.nan)
    assert copies_of(nothing) == {1: 0, 2: 0}
    assert copies_of(np.tile([1.0, 1.0, 2.0], (10, 1))) == {1: 0}


def test_numbers_that_rise_or_fall_together_are_copies():
    rng = np.random.default_rng(0)
    income = np.round(rng.lognormal(3.0, 0.5, 300), 1)  # with ties
    gaps = np.where(rng.random(300) < 0.1, np.nan, income)
    centred = income - income.mean()
    matrix = np.stack([income, np.log(income), 1.0 / income, centred**2, np.round(income), gaps, gaps**2], axis=1)
    assert copies_of(matrix) == {1: 0, 2: 0, 6: 5}
    # of few values chance may order two numbers alike
    few = rng.integers(0, 5, 300).astype(float)
    assert copies_of(np.stack([few, few**2], axis=1)) == {}


def test_a_number_and_its_square_are_one_input():
    rng = np.random.default_rng(2)
    age = rng.uniform(20.0, 60.0, 300)
    x = pd.DataFrame({"age": age, "agesq": age**2, "idle": rng.random(300)})
    y = -0.01 * (age - 40.0) ** 2 + rng.standard_normal(300)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    assert model.clusters_ == [("age",)]
    assert "agesq is a copy of age, which alone is read" in str(model.diagnostics_)


def test_exact_copies_are_one_input_with_two_names():
    rng = np.random.default_rng(1)
    x = pd.DataFrame({"kind": rng.choice(["u", "v", "w"], 200), "size": rng.random(200)})
    x["code"] = x["kind"].map({"u": "third", "v": "first", "w": "second"})
    y = x["kind"].map({"u": 0.0, "v": 2.0, "w": 3.0}) + x["size"] + 0.2 * rng.standard_normal(200)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    assert ("code",) not in set(model.effects()["term"])
    row = model.substitutes().iloc[0]
    assert (row["input"], row["substitute"], row["correlation"]) == ("kind", "code", 1.0)
    assert row["together"] > 0.99
    assert row["input_alone"] == row["substitute_alone"] == 0.5
    assert any("code is a copy of kind" in words for words in model.diagnostics_.warnings)


def test_three_that_may_act_are_one_choice_and_its_stories_are_those_of_its_pairs():
    pairs = [
        Substitute(4, 7, 0.99, 0.9999, 0.5, 0.4, 0.06, 0.04),
        Substitute(4, 2, 0.97, 0.999, 0.8, 0.1, 0.08, 0.02),
        Substitute(1, 3, 0.9, 0.99, 0.6, 0.2, 0.1, 0.1),
    ]
    three, two = choices(pairs)
    assert three.inputs == (4, 7, 2)
    assert (three.correlation, three.together) == (0.97, 0.9999)
    assert sum(three.alone) + three.both + three.product == pytest.approx(1.0, abs=1e-12)
    # each pair as it was, beside the input alone
    assert three.alone[1] / three.alone[0] == pytest.approx(0.4 / 0.5)
    assert three.alone[2] / three.alone[0] == pytest.approx(0.1 / 0.8)
    assert three.both / three.alone[0] == pytest.approx(0.06 / 0.5 + 0.08 / 0.8)
    assert two.alone == pytest.approx((0.6, 0.2))
    assert (two.both, two.product) == pytest.approx((0.1, 0.1))
    (words, _) = map(str, open_choices(pairs, list("abcdefgh"), {}))
    assert "e, h or c acts (> 0.999), and data hardly say which: e alone 0.44, h alone 0.36, c alone 0.06" in words


def test_three_near_copies_are_said_in_one_warning():
    rng = np.random.default_rng(3)
    common, n = rng.standard_normal(400), 400
    x = pd.DataFrame({name: common + 0.1 * rng.standard_normal(n) for name in "abc"})
    x["idle"] = rng.standard_normal(n)
    y = np.sin(1.5 * common) + 0.5 * rng.standard_normal(n)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    table = model.substitutes()
    assert set(table["group"].map(lambda named: frozenset(named.split(" or ")))) == {frozenset("abc")}
    (words,) = [words for words in model.diagnostics_.warnings if "data hardly say which" in words]
    assert all(f"{name} alone" in words for name in "abc")


def test_levels_that_always_come_together_are_named():
    rng = np.random.default_rng(0)
    has = rng.random(300) < 0.7
    columns = {name: np.where(has, rng.choice(["yes", "no"], 300), "no internet") for name in ("backup", "films", "tv")}
    x = pd.DataFrame(columns | {"internet": np.where(has, rng.choice(["dsl", "fibre"], 300), "none")})
    x["other"] = rng.choice(["no internet", "yes"], 300)  # the same word, in other rows
    y = 2.0 * has + sum(x[name] == "yes" for name in columns) + 0.3 * rng.standard_normal(300)
    model = vb.AdditiveRegressor(clusters=[(name,) for name in x], random_state=0).fit(x, y)
    (words,) = [each for each in model.diagnostics_.notes if "always come together" in each]
    assert f"in {int((~has).sum())} rows" in words
    for named in ("backup = no internet", "films = no internet", "tv = no internet", "internet = none"):
        assert named in words
    assert "other" not in words


def test_gaps_in_the_same_rows_come_together_and_copies_are_said_elsewhere():
    rng = np.random.default_rng(1)
    gone = rng.random(200) < 0.2
    matrix = rng.standard_normal((200, 4))
    matrix[gone, :2] = np.nan
    matrix[:, 3] = matrix[:, 0]
    frame = pd.DataFrame(matrix, columns=list("abcd"))
    y = np.nan_to_num(matrix[:, 0]) + matrix[:, 2] + gone
    schema = vb.AdditiveRegressor(clusters=[(0,), (1,), (2,)], random_state=0).fit(frame, y).model_.schema
    assert together(matrix, schema.columns, [0, 1, 2, 3], {3: 0}) == [
        (int(gone.sum()), ((0, "missing"), (1, "missing")))
    ]
    assert together(matrix, schema.columns, [0, 2], {}) == []


def test_gaps_in_the_same_rows_and_a_shared_level_make_no_copies():
    """Nearest functions would be those of the gaps, or of the level, whatever the values say."""
    rng = np.random.default_rng(3)
    n = 800
    is_off = rng.random(n) < 0.3
    x = pd.DataFrame({"height": rng.normal(170.0, 8.0, n), "weight": rng.normal(70.0, 9.0, n)})
    x.loc[rng.random(n) < 0.05, ["height", "weight"]] = np.nan
    for name in ("backup", "security"):
        x[name] = np.where(is_off, "no service", rng.choice(["yes", "no"], n))
    f = 0.1 * (x["height"].fillna(170.0) - 170.0) + 0.1 * (x["weight"].fillna(70.0) - 70.0)
    f += x["backup"].map({"yes": 1.0, "no": -1.0, "no service": 0.0}) + (x["security"] == "yes")
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, f + rng.standard_normal(n))
    assert len(model.clusters_) == 4
    assert model.substitutes().empty
    assert "read them as one" not in str(model.diagnostics_)
