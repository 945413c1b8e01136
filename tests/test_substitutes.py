"""What stands for what: near copies by evidence, exact copies and one-to-one levels by what they are."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.models.diagnostics import open_choices
from vertebra.tables.profile import copies_of
from vertebra.terms.structure import Substitute


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
    (words,) = map(str, open_choices([open_case._replace(input_alone=0.01, other_alone=0.98)], names, {}))
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
    assert copies_of(matrix) == {1: 0, 2: 0, 5: 4}
    nothing = np.full((10, 3), np.nan)
    assert copies_of(nothing) == {1: 0, 2: 0}
    assert copies_of(np.tile([1.0, 1.0, 2.0], (10, 1))) == {1: 0}


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
