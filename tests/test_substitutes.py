"""What stands for what: near copies by evidence, exact copies and one-to-one levels by what they are."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.models.levels import together
from vertebra.models.near_copies import equal_inputs, not_compared, open_choices
from vertebra.tables.profile import copies_of
from vertebra.terms.structure import Score, Structure, Substitute
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
    (words,) = [words for words in model.diagnostics_.warnings if "data hardly say" in words]
    row = model.substitutes().set_index("input").loc["c"]
    shares = f"each by itself {row['both']:.2f}, as a product {row['product']:.2f}. They go together (0.96): keep both."
    assert words == f"c and d both act (> 0.999), and data hardly say whether together, too: {shares}"


NAMES = ["month", "mnth", "hour"]
OPEN = Substitute(0, 1, 0.99, 0.9999, 0.55, 0.43, 0.01, 0.01)


def said_of(*pairs, terms=((0,), (1,)), tests=None, copies=None, names=NAMES, **more):
    """The words of what is found of pairs, beside terms of which those that have a p-value were tested."""
    scores = {t: Score(p, 0.0) for t, p in (tests or {}).items()}
    return [str(each) for each in open_choices(Structure(terms, scores, {}, pairs, **more), names, copies or {})]


def test_words_say_what_is_not_clear_and_nothing_else():
    (words,) = said_of(OPEN)
    assert "month or mnth acts (> 0.999), and data hardly say which: month alone 0.55, mnth alone 0.43" in words
    assert words.endswith("read them as one.")
    assert said_of(OPEN._replace(input_alone=0.99)) == said_of(OPEN._replace(both=0.99)) == []
    assert said_of(OPEN._replace(product=0.99), terms=((0,), (1,), (0, 1)), tests={(0, 1): 1e-6}) == []
    assert said_of(OPEN._replace(together=0.1)) == []
    assert said_of(OPEN, copies={1: 0}) == []  # exact copies are said elsewhere
    (words,) = said_of(OPEN._replace(input_alone=0.00, other_alone=0.98))
    assert "mnth alone 0.98" in words


def test_what_to_do_follows_the_likeliest_story():
    (words,) = said_of(OPEN._replace(input_alone=0.01, other_alone=0.01, both=0.83, product=0.15))
    assert "month and mnth both act (> 0.999)" in words
    assert words.endswith("each by itself 0.83, as a product 0.15. They go together (0.99): keep both.")
    (words,) = said_of(OPEN._replace(input_alone=0.3, other_alone=0.05, both=0.35, product=0.3))
    assert "month alone 0.30, mnth alone 0.05, both 0.35, as a product too 0.30" in words
    assert words.endswith("keep all of them: more than one may act.")


def test_what_is_clear_is_said_where_the_model_says_less():
    product = OPEN._replace(input_alone=0.0, other_alone=0.0, both=0.004, product=0.996)
    # neither not in the model, nor in it without being listed
    for terms, tests in ((((0,), (1,)), {(0, 1): 0.02}), (((0,), (1,), (0, 1)), {(0, 1): 0.4})):
        (words,) = said_of(product, terms=terms, tests=tests)
        assert words.startswith("month and mnth act together (0.996), which tests of terms do not show.")
        assert '["month", "mnth"] in one' in words
    both = OPEN._replace(input_alone=0.0, other_alone=0.0, both=0.97, product=0.03)
    (words,) = said_of(both, terms=((0,),))
    assert "month and mnth both act (0.970), and only month is among the terms" in words
    assert said_of(both) == []


def test_pairs_that_were_not_compared_are_counted():
    assert not_compared(0) == []
    assert [str(each) for each in not_compared(14)] == [
        "14 more pairs of inputs that go closely together, less so than those that were compared, were not looked at."
    ]
    x = np.random.default_rng(0).standard_normal((300, 1)) + 0.1 * np.random.default_rng(1).standard_normal((300, 5))
    y = x[:, 0] + x[:, 1] - x[:, 2] + 0.1 * np.random.default_rng(2).standard_normal(300)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    assert len(model.substitutes()) == 6
    # of an input that acts with every other one
    (found,) = {s.n_uncompared for s in model.model_.sought.structures}
    acting = len({i for term in model.clusters_ for i in term})
    assert found == acting * (acting - 1) // 2 + acting * (5 - acting) - 6 > 0
    assert any(f"{found} more pair" in words for words in model.diagnostics_.notes)
    # of two targets, each with its own count, once
    model.fit(x, np.column_stack([y, x[:, 3] + 0.1 * y]))
    counts = {s.n_uncompared for s in model.model_.sought.structures}
    (words,) = [words for words in model.diagnostics_.notes if "more pair" in words]
    assert words.startswith(f"{max(counts)} more pair")


def test_a_product_of_near_copies_that_is_clear_is_said():
    """The pair itself adds too little to curves of its inputs for the tests, though these are the wrong story."""
    rng = np.random.default_rng(400)
    x = rng.standard_normal((500, 10))
    for one, other in ((0, 1), (2, 3)):
        x[:, other] = 0.9 * x[:, one] + np.sqrt(1.0 - 0.9**2) * x[:, other]
    y = 0.5 * np.sin(1.5 * x[:, 0]) + x[:, 2] * x[:, 3] + rng.standard_normal(500)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    row = model.substitutes().set_index(["input", "substitute"]).loc[("x2", "x3")]
    assert row["product"] > 0.95
    assert model.interactions().empty
    (words,) = [words for words in model.diagnostics_.warnings if "x2" in words]
    assert words.startswith("x2 and x3 act together (0.99")


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


def test_a_number_of_many_values_is_no_copy_of_its_levels():
    """Fifty groups of rows with an input of their own: curves of the input are not all that groups may differ by."""
    group = np.repeat(np.arange(50.0), 10)
    age = np.random.default_rng(0).random(50)[group.astype(int)]
    assert copies_of(np.stack([age, group], axis=1), [0, 50]) == {}
    assert copies_of(np.stack([age, group], axis=1)[:320], [0, 32]) == {1: 0}


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
    # one input with two names, wherever terms are shown
    assert "kind (= code)" in str(model.summary())
    assert "kind (= code)" in model._repr_html_()
    labels = vb.plot.strengths(model).get_yticklabels()
    assert "kind (= code)" in {label.get_text() for label in labels}
    assert ("kind",) in set(model.effects()["term"])


def test_inputs_that_differ_in_few_rows_are_no_copies(monkeypatch):
    """Where terms are sought in a sample, all rows are asked whether what says the same in it does so everywhere."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.standard_normal(3000), "idle": rng.standard_normal(3000)})
    x["b"] = x["a"]
    monkeypatch.setattr("vertebra.models.additive.MOST_SEARCHED", 500)
    sample = np.sort(np.random.default_rng(0).choice(3000, 500, replace=False))
    outside = np.setdiff1d(np.arange(3000), sample)
    x.loc[outside[:800], "b"] = rng.standard_normal(800)
    y = x["b"] + 0.3 * rng.standard_normal(3000)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    assert "is a copy" not in str(model.diagnostics_)
    x["b"] = x["a"]
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    assert "b is a copy of a, which alone is read" in str(model.diagnostics_)


def test_copies_of_a_sample_are_said_to_be_of_it():
    (words,) = map(str, equal_inputs({1: 0}, ["a", "b"], 100_000))
    assert words.startswith("b is a copy of a in the 100,000 rows that were compared, which alone is read")


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
    (words, _) = said_of(*pairs, names=list("abcdefgh"))
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
