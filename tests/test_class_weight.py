"""Weights of classes: those of their rows, as in scikit-learn."""

import json

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.files.params import params_from, params_state


@pytest.fixture(scope="module")
def churn():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.random(600), "plan": rng.choice(["a", "b"], 600)})
    return x, np.where(rng.random(600) < 0.05 + 0.2 * x["age"] * (x["plan"] == "a"), "yes", "no")


def fitted(x, y, class_weight=None, weight=None, **asked):
    asked = {"clusters": [("age",), ("plan",)], "evaluation": "left_out", "random_state": 0} | asked
    return vb.AdditiveClassifier(class_weight=class_weight, **asked).fit(x, y, weight)


def test_weights_of_classes_are_those_of_their_rows_times_their_own(churn, rng):
    x, y = churn
    share = np.mean(y == "yes")
    own = rng.uniform(0.5, 2.0, len(y))
    balanced = np.where(y == "yes", 0.5 / share, 0.5 / (1.0 - share))
    for class_weight, factor in (("balanced", balanced), ({"yes": 5}, np.where(y == "yes", 5.0, 1.0))):
        ours = fitted(x, y, class_weight, own).predict_proba(x)
        theirs = fitted(x, y, None, own * factor, weights="importance").predict_proba(x)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_balanced_classes_are_even_and_no_surer(churn):
    x, y = churn
    plain, balanced = fitted(x, y), fitted(x, y, "balanced")
    assert abs(balanced.predict_proba(x)[:, 1].mean() - 0.5) < 0.1
    assert abs(plain.predict_proba(x)[:, 1].mean() - np.mean(y == "yes")) < 0.02
    np.testing.assert_allclose(balanced.model_.profile.targets[0].shares, 0.5)
    # 600 rows of uneven weight count for fewer, never for more
    assert balanced.model_.profile.weight < 600


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 5, "no": 1.5}])
def test_weights_of_classes_are_kept_in_files(churn, tmp_path, class_weight):
    model = fitted(*churn, class_weight)
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    assert again.class_weight == class_weight
    np.testing.assert_array_equal(again.predict_proba(churn[0]), model.predict_proba(churn[0]))
    names = list(model.get_params())
    state = json.loads(json.dumps(params_state(model.get_params())))
    with pytest.raises(ValueError, match=r"params\.class_weight must be"):
        params_from(names, state | {"class_weight": {"pairs": [["yes", "many"]]}})


@pytest.mark.parametrize(
    ("class_weight", "words"),
    [
        ("even", "`class_weight` must be \"balanced\" or a dict of weights by class, got 'even'"),
        ({"maybe": 2}, r"`class_weight` must name classes of `y`, got 'maybe': there are \['no', 'yes'\]"),
        ({"yes": -1}, "`class_weight` must hold finite numbers of at least 0, got -1 for 'yes'"),
    ],
)
def test_what_is_no_weight_of_a_class_is_refused(churn, class_weight, words):
    with pytest.raises(ValueError, match=words):
        fitted(*churn, class_weight)


def test_files_have_a_column_of_weights_instead(churn, tmp_path):
    x, y = churn
    x.assign(y=y).to_parquet(tmp_path / "churn.parquet")
    with pytest.raises(ValueError, match="`class_weight` is for tables in memory"):
        vb.AdditiveClassifier(class_weight="balanced").fit(str(tmp_path / "churn.parquet"), "y")
