import json

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.files.parts import diagnostics_from, diagnostics_state
from vertebra.likelihoods import Bernoulli, Gaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.diagnostics import (
    Beside,
    behind_flexible,
    coefficients,
    coverage,
    far_rows,
    few_rows,
    much_freedom,
    odd_noise,
    runaway,
    too_good,
    uneven_noise,
    worse_than_linear,
)
from vertebra.models.findings import IN_SHORT, Diagnostics, Finding, Kind, Severity


def kinds(model, *severities):
    return [each.kind for each in model.diagnostics_.findings if each.severity in severities]


NOTE, WARNING, SEVERE = Severity


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ([], "Sound: nothing to worry about."),
        ([NOTE], "Sound: nothing to worry about."),
        ([NOTE, WARNING], "Usable, with 1 thing to look at."),
        ([WARNING, NOTE, WARNING], "Usable, with 2 things to look at."),
        ([WARNING, SEVERE], "Not to be relied on: too few rows."),
    ],
)
def test_the_verdict_follows_from_the_findings(severities, verdict):
    found = [Finding(Kind.FEW_ROWS, each, f"seen {k}.", 1.0, "Do it.") for k, each in enumerate(severities)]
    diagnostics = Diagnostics(tuple(found))
    assert diagnostics.verdict == verdict
    assert len(diagnostics.notes) == severities.count(NOTE)
    # what is severe comes first, and every line has its remedy
    assert diagnostics.warnings == tuple(
        f"{f.words} Do it." for s in (SEVERE, WARNING) for f in found if f.severity is s
    )
    assert str(diagnostics).split("\n")[0] == verdict


def test_every_kind_that_can_be_severe_has_words_for_the_verdict():
    assert set(IN_SHORT) == {Kind.LINEAR, Kind.FLEXIBLE, Kind.LEAK, Kind.FEW_ROWS, Kind.MARKED_GAPS, Kind.RUNAWAY}


@pytest.mark.parametrize(("noise", "warned"), [("even", False), ("uneven", True), ("heavy", False)])
def test_uneven_noise_is_seen_and_named(noise, warned):
    rng = np.random.default_rng(0)
    x = rng.random((1500, 3))
    spread = {"even": 0.5, "uneven": 0.05 + x[:, 1], "heavy": 0.5}[noise]
    draws = rng.standard_t(3, 1500) if noise == "heavy" else rng.standard_normal(1500)
    model = vb.AdditiveRegressor(likelihood="gaussian", random_state=0).fit(x, 2.0 * x[:, 0] + spread * draws)
    words = [w for w in model.diagnostics_.warnings if "uneven" in w]
    assert bool(words) == warned
    assert all("along x1" in w for w in words)
    assert (Kind.TAILS in kinds(model, WARNING)) == (noise != "even")


def test_false_alarms_of_uneven_and_of_odd_noise_are_rare():
    uneven = odd = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        away, x = rng.standard_normal((400, 1)), rng.random((400, 10))
        uneven += bool(uneven_noise(away, x, list("abcdefghij"), ["y"]))
        odd += bool(odd_noise(away[: 100 + seed], ["y"]))
    # levels of 1e-4 and of about 1e-3
    assert uneven == 0
    assert odd <= 2


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda rng: rng.standard_t(2, 400), "heavy tails"),
        (lambda rng: np.exp(rng.standard_normal(400)), "3 times as far upwards|skewed"),
        (lambda rng: -rng.exponential(size=400), "downwards"),
        (lambda rng: rng.random(400), None),
    ],
)
def test_heavy_and_skewed_noise_is_named(draw, words):
    for seed in range(5):
        away = draw(np.random.default_rng(seed))[:, None]
        found = odd_noise((away - away.mean()) / away.std(), ["y"])
        assert bool(found) == (words is not None)
        assert not found or any(each in found[0].words for each in words.split("|"))


def test_noise_whose_tails_were_fitted_is_odd_only_if_it_leans():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        assert odd_noise(rng.standard_t(2.0, (300, 1)), ["y"], knows_tails=True) == []
        (found,) = odd_noise(rng.lognormal(size=(300, 1)) - np.exp(0.5), ["y"], knows_tails=True)
        assert "is skewed" in found.words


def test_few_rows_that_make_most_of_the_error_are_named_with_their_values(rng):
    y, said, weight = rng.normal(100.0, 9.0, (400, 2)), np.full((400, 2), 100.0), np.ones(400)
    assert far_rows(y, said, weight, ["rate", "cost"], has_thin_tails=True) == []
    y[7, 0] = 9999.0
    (found,) = far_rows(y, said, weight, ["rate", "cost"], has_thin_tails=True)
    squares = (y[:, 0] - 100.0) ** 2
    assert found.quantity == pytest.approx(squares[7] / squares.sum())
    assert str(found) == (
        "one row makes all but all of the squared error: rate = 9,999 where 100 was predicted. RMSE and R² are about "
        'it alone. If it is a mistake, mend the table; else try `likelihood="student_t"`, which few rows hardly move.'
    )
    y[8, 0] = -8000.0
    (found,) = far_rows(y, said, weight, ["rate", "cost"], has_thin_tails=False)
    assert "one row makes 60% of" in found.words  # the other is less than half
    y[[7, 8], 0] = 600.0, -400.0
    (found,) = far_rows(y, said, weight, ["rate", "cost"], has_thin_tails=False)
    assert "2 rows make 9" in found.words
    assert "600 where 100 was predicted and -400 where 100 was predicted" in found.words
    assert found.remedy == "If they are mistakes, mend the table."
    # a row of weight 0 is none
    assert far_rows(y, said, np.where(np.isin(np.arange(400), [7, 8]), 0.0, 1.0), ["a", "b"], has_thin_tails=True) == []
    # in one of a hundred tables of 100 rows of heavy tails, and in none of 1,000
    t = [rng.standard_t(4.0, (n, 1)) for n in [100] * 50 + [1000] * 10]
    alarms = [bool(far_rows(e, 0.0 * e, np.ones(len(e)), ["y"], has_thin_tails=True)) for e in t]
    assert sum(alarms[:50]) <= 3
    assert sum(alarms[50:]) == 0


def test_a_mistake_in_the_target_is_said_before_all_else(rng):
    x = pd.DataFrame({"a": rng.random(300), "b": rng.random(300)})
    y = pd.Series(10.0 * x["a"] + rng.normal(0.0, 0.3, 300), name="price")
    assert "squared error" not in str(vb.AdditiveRegressor(clusters=[("a",)]).fit(x, y).diagnostics_)
    y[5] = 9_999.0
    model = vb.AdditiveRegressor(clusters=[("a",)]).fit(x, y)
    assert model.diagnostics_.warnings[0].startswith("one row makes all but all of the squared error: price = 9,999")
    tails = vb.AdditiveRegressor(clusters=[("a",)], likelihood="student_t").fit(x, y)
    assert tails.diagnostics_.warnings[0].endswith("If it is a mistake, mend the table.")


def test_too_few_rows_and_constants_say_nothing():
    away = np.ones((30, 1))
    assert uneven_noise(away, np.zeros((30, 2)), ["a", "b"], ["y"]) == []
    assert uneven_noise(np.linspace(0, 9, 130)[:, None], np.zeros((130, 1)), ["a"], ["y"]) == []
    assert odd_noise(away, ["y"]) == []
    assert odd_noise(np.ones((130, 1)), ["y"]) == []


def test_coverage_far_from_its_level_is_a_warning_and_names_its_target():
    first, second = coverage({"rmse 0": 1.0, "coverage_95 0": 0.95, "coverage_95 1": 0.8}, 500.0, ["a", "b"])
    assert (first.severity, second.severity) == (NOTE, WARNING)
    assert "of a cover 95.0%" in first.words
    assert "of b cover 80.0%" in second.words
    assert second.quantity == 0.8
    # of 200 rows chance takes 91.5 % now and then
    assert coverage({"coverage_95": 0.915}, 200.0, ["y"])[0].severity is NOTE


def test_a_model_is_behind_another_by_as_much_as_its_error_is_larger_and_only_beyond_chance():
    rng = np.random.default_rng(0)
    other, weight = rng.chisquare(1, (400, 1)), np.ones(400)
    for factor, severity in ((1.02, None), (1.1, WARNING), (1.5, SEVERE)):
        seen = Beside(factor**2 * other, other, weight, 0.5)
        found = behind_flexible(seen, ["y"])
        assert [each.severity for each in found] == ([] if severity is None else [severity])
        assert all(np.isclose(each.quantity, factor - 1.0) for each in found)
    seen = Beside(1.5**2 * other, other, weight, 0.5)
    (linear,) = worse_than_linear(seen, ["y"], np.array([10.0]))
    assert linear.severity is SEVERE
    assert f"rmse {10.0 * np.sqrt(other.mean()):.4g} against" in linear.words
    # other rows, other errors: the same excess by chance
    by_chance = Beside(np.r_[100.0, np.zeros(399)][:, None], np.full((400, 1), 0.1), weight, 0.5)
    assert behind_flexible(by_chance, ["y"]) == worse_than_linear(by_chance, ["y"], np.ones(1)) == []


def test_the_coefficients_that_rows_decide_are_the_trace_of_the_smoother(rng):
    # a ridge of m columns: h_i = φ_iᵀ (ΦᵀΦ + I)⁻¹ φ_i, and without a row its variance is σ² h/(1 − h)
    phi, noise = rng.standard_normal((60, 5)), 0.3
    h = np.einsum("ij,jk,ik->i", phi, np.linalg.inv(phi.T @ phi + np.eye(5)), phi)
    left_out = Predictive(Gaussian(np.array([np.sqrt(noise)])), np.zeros((60, 1)), (noise * h / (1.0 - h))[:, None])
    assert np.isclose(coefficients(left_out, np.ones(60)), h.sum(), rtol=1e-5)
    # of classes at even odds the information of a row is 1/4
    classes = Predictive(Bernoulli(), np.zeros((60, 1)), np.full((60, 1), 4.0))
    assert np.isclose(coefficients(classes, np.ones(60)), 30.0, rtol=1e-5)
    assert [f.severity for n in (400.0, 210.0, 60.0) for f in much_freedom(n, 30.0)] == [NOTE, WARNING]


def test_a_target_that_its_inputs_sum_to_and_too_few_rows_are_not_to_be_relied_on(rng):
    x = pd.DataFrame(
        {"casual": rng.integers(0, 50, 300), "registered": rng.integers(0, 300, 300), "z": rng.random(300)}
    )
    model = vb.AdditiveRegressor(random_state=0).fit(x, (x["casual"] + x["registered"]).astype(float))
    found = model.diagnostics_
    assert "are predicted all but exactly" in found.severe[0]
    assert "is registered or casual a part of the answer" in found.severe[0]
    assert found.verdict == "Not to be relied on: an input may be made of the answer."
    # in the first lines, wherever a fit is shown
    assert str(found).split("\n")[1].startswith(" !! rows left out are predicted all but exactly")
    assert found.verdict in model._repr_html_inner()
    assert found.verdict in str(model.summary()).split("\n")[1]
    few = vb.AdditiveRegressor(random_state=0).fit([[0.0], [1.0], [2.5]], [1.0, 2.0, 2.5])
    assert any("3 rows are too few for any of these figures to be trusted." in each for each in few.diagnostics_.severe)
    assert "Not to be relied on" in few.diagnostics_.verdict


def test_few_rows_for_each_input_are_said():
    assert few_rows(200.0, 10) == []
    (found,) = few_rows(100.0, 10)
    assert (found.severity, found.quantity) == (WARNING, 10.0)
    assert found.words.startswith("100 rows for 10 inputs, 10 for each: terms may be missed")
    assert [each.severity for each in few_rows(19.0, 1)] == [SEVERE]
    assert few_rows(30.0, 0) == []  # a network's


def test_classes_that_an_input_tells_are_a_leak_and_it_is_named(rng):
    x = pd.DataFrame(rng.random((300, 3)), columns=["age", "income", "balance"])
    y = rng.random(300) < 0.2 + 0.4 * x["age"]
    x["closed"] = np.where(y, rng.choice(["a", "c"], 300), rng.choice(["b", "d"], 300))  # written after the answer
    found = vb.AdditiveClassifier(random_state=0).fit(x, y).diagnostics_
    assert found.verdict == "Not to be relied on: an input may be made of the answer."
    assert "the classes of rows left out are predicted all but exactly (AUC 1.0" in found.severe[0]
    assert "is closed" in found.severe[0]
    # so few rows are parted by chance
    few = vb.AdditiveClassifier(random_state=0).fit(x[:40], y[:40]).diagnostics_
    assert not any(each.kind is Kind.LEAK for each in few.findings)


def test_what_is_too_good_of_classes():
    def found(n=1000.0, **scores):
        return too_good(scores, ["y"], ["z"], shares=0.7, n=n)

    assert found(auc=0.999, log_loss=0.1) == found(auc=0.9999, log_loss=0.1, n=49.0) == []
    assert "(AUC 0.999900): is z a part of the answer" in found(auc=0.9999, log_loss=0.1)[0].words
    # of three classes and more there is no AUC
    assert found(log_loss=0.008) == []
    assert "(log loss 0.006, by their shares 0.7)" in found(log_loss=0.006)[0].words


def test_trees_that_predict_far_better_are_named_with_by_how_much(rng):
    # a product of four signs: no term of three inputs holds any of it
    x = rng.random((1500, 4))
    y = np.prod(np.sign(x - 0.5), axis=1) + 0.3 * rng.standard_normal(1500)
    y += np.where(x[:, 0] > 0.5, 1.0, 0.0) * np.where(x[:, 1] > 0.5, 1.0, -1.0)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    (found,) = (each for each in model.diagnostics_.findings if each.kind is Kind.FLEXIBLE)
    assert found.severity is SEVERE
    assert found.quantity > 0.2
    assert "Not to be relied on: a quick flexible model" in model.diagnostics_.verdict


def test_effects_of_log_odds_beyond_sense_are_severe():
    assert runaway(19.0, "x") == []
    (found,) = runaway(5000.0, "size × age")
    assert found.severity is SEVERE
    assert "size × age goes to ±5,000" in found.words


def test_clean_tables_are_sound():
    for seed in range(3):
        data = vb.datasets.synthetic("f1", n=300, noise=1.0, seed=seed)
        model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(data.x, data.y)
        assert model.diagnostics_.verdict == "Sound: nothing to worry about.", str(model.diagnostics_)


def test_findings_go_through_a_file_and_are_held_to_what_they_may_be(tmp_path):
    model = vb.AdditiveRegressor(random_state=0).fit([[0.0], [1.0], [2.5]], [1.0, 2.0, 2.5])
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra").diagnostics_
    assert again == model.diagnostics_
    assert [each.severity for each in again.findings] == [each.severity for each in model.diagnostics_.findings]
    state = diagnostics_state(again)
    assert diagnostics_from(json.loads(json.dumps(state))) == again
    for place, wrong, words in ((0, "luck", "the kind of"), (1, "mild", "the severity"), (3, "much", "the quantity")):
        bad = json.loads(json.dumps(state))
        bad["findings"][0][place] = wrong
        with pytest.raises(ValueError, match=f"{words}.* a finding must be"):
            diagnostics_from(bad)
