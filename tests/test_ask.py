"""Models asked about the rows of a table: explain, evaluate, compare; and a fit in print."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import vertebra as vb
from vertebra.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def succeed(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.uniform(20, 120, n).round(1), "city": rng.choice(["Bonn", "Kiel"], n)})
    frame["idle"] = rng.random(n)
    frame["rent"] = (200 + 8 * frame["size"] + 150 * (frame["city"] == "Bonn") + rng.normal(0, 30, n)).round(2)
    frame["dear"] = np.where(frame["rent"] + rng.normal(0, 100, n) > 800, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("ask")
    table().to_csv(place / "flats.csv", index=False)
    table(200, seed=1).to_csv(place / "new.csv", index=False)
    common = ("--no-report", "--quiet", "--holdout", 0)
    succeed("fit", place / "flats.csv", "--target", "rent", "--drop", "dear", "--out", place / "rent", *common)
    only = ("--drop", "dear,city,idle")
    succeed("fit", place / "flats.csv", "--target", "rent", *only, "--out", place / "size", *common)
    succeed("fit", place / "flats.csv", "--target", "dear", "--drop", "rent", "--out", place / "dear", *common)
    return place


def test_predictions_are_taken_apart_row_by_row(folder):
    model, new = vb.load(folder / "rent"), pd.read_csv(folder / "new.csv")
    found = pd.read_csv(io.StringIO(succeed("explain", folder / "rent", folder / "new.csv", "--rows", "2,5", "--csv")))
    assert found["row"].unique().tolist() == [2, 5]
    for row, own in found.groupby("row"):
        np.testing.assert_allclose(own["mean"].sum(), model.predict_f(new.iloc[[row - 1]])[0][0], rtol=1e-10)
        np.testing.assert_allclose(own["mean"], model.explain(new.iloc[row - 1])["mean"], rtol=1e-10)
    text = succeed("explain", folder / "rent", folder / "new.csv")
    low, high = model.predict_interval(new.iloc[[0]])[0]
    first = model.predict(new.iloc[[0]])[0]
    assert f"Row 1: rent {first:.4g} (95 %: {low:.4g} to {high:.4g})" in text
    assert text.count("(intercept)") == 3
    assert f"size = {new['size'][0]:g}" in text
    rows = json.loads(succeed("explain", folder / "rent", folder / "new.csv", "--rows", 1, "--json"))["rows"]
    assert [tuple(part["term"]) for part in rows[0]["parts"]] == model.explain(new.iloc[0])["term"].tolist()
    for measure in ("data", "product"):
        asked = ("--rows", 1, "--measure", measure, "--json")
        rows = json.loads(succeed("explain", folder / "rent", folder / "new.csv", *asked))["rows"]
        ours = model.explain(new.iloc[0], measure=measure)["mean"]
        np.testing.assert_allclose([part["mean"] for part in rows[0]["parts"]], ours)
    done = run("explain", folder / "rent", folder / "new.csv", "--rows", "0")
    assert (done.exit_code, done.stderr) == (2, "vertebra: --rows must be numbers of rows from 1 to 200, got '0'.\n")


def test_a_model_is_measured_on_rows_it_has_not_seen(folder, tmp_path):
    model, new = vb.load(folder / "rent"), pd.read_csv(folder / "new.csv")
    found = json.loads(succeed("evaluate", folder / "rent", folder / "new.csv", "--json"))
    ours = model.evaluate(new[["size", "city", "idle"]], new["rent"])
    assert found["scores"] == ours.scores
    assert found["at_fit"] == model.evaluation_.scores["model"]
    text = succeed("evaluate", folder / "rent", folder / "new.csv")
    assert re.search(r"^at fit +\d", text, flags=re.MULTILINE)
    assert "worse" not in text
    new.assign(rent=new["rent"] + 200.0).to_csv(tmp_path / "later.csv", index=False)
    assert "worse than was stated at the fit: do they come from another time" in succeed(
        "evaluate", folder / "rent", tmp_path / "later.csv"
    )
    classes = json.loads(succeed("evaluate", folder / "dear", folder / "new.csv", "--json"))
    assert (
        classes["scores"] == vb.load(folder / "dear").evaluate(new.drop(columns=["rent", "dear"]), new["dear"]).scores
    )
    new.drop(columns="rent").to_csv(tmp_path / "none.csv", index=False)
    done = run("evaluate", folder / "rent", tmp_path / "none.csv")
    assert done.exit_code == 2
    assert "has no column 'rent'" in done.stderr


def test_two_models_are_compared_row_by_row(folder):
    new = pd.read_csv(folder / "new.csv")
    found = json.loads(succeed("compare", folder / "rent", folder / "size", folder / "new.csv", "--json"))
    one, other = (vb.load(folder / name).log_prob(new, new["rent"]) for name in ("rent", "size"))
    assert found["gain"] == pytest.approx((other - one).mean(), rel=1e-10)
    assert found["sd"] == pytest.approx((other - one).std() / np.sqrt(len(new)), rel=1e-10)
    text = succeed("compare", folder / "rent", folder / "size", folder / "new.csv")
    assert f"{folder / 'rent'} is better: the log density of a row changes by -" in text
    same = succeed("compare", folder / "rent", folder / "rent", folder / "new.csv")
    assert "no clear difference" in same
    done = run("compare", folder / "rent", folder / "dear", folder / "new.csv")
    assert (done.exit_code, "they cannot be compared" in done.stderr) == (2, True)


def test_a_fit_is_printed_with_its_terms_noise_and_verdict(folder):
    model = vb.load(folder / "rent")
    text = str(model.summary())
    assert repr(model.summary()) == text
    effects = model.effects()
    for term, strength in zip(effects["term"], effects["strength"], strict=True):
        assert re.search(rf"^{re.escape(' × '.join(term))} .*{re.escape(f'{strength:.4g}')}", text, flags=re.MULTILINE)
    assert f"Accuracy on {model.evaluation_.n} rows" in text
    assert str(model.diagnostics_) in text
    sd = float(re.search(r"noise: +gaussian, sd (\S+)", text)[1])
    assert sd == pytest.approx(30.0, rel=0.15)  # of 300 rows: 1/√600 = 4 %
    assert "rows:    300" in text
    assert "2.5 %" in text
    assert "5 %" in str(model.summary(level=0.9))
    classes = str(vb.load(folder / "dear").summary())
    assert "target:  dear (no, yes)" in classes
    assert "Terms of yes, on the scale of the logit" in classes


def test_limits_of_probabilities_are_those_of_f(folder):
    model, new = vb.load(folder / "dear"), pd.read_csv(folder / "new.csv")
    mean, sd = model.predict_f(new)
    limits = model.predict_proba_interval(new, level=0.9)
    np.testing.assert_allclose(limits[:, 0, 1], expit(mean - 1.6448536 * sd), rtol=1e-6)
    np.testing.assert_allclose(limits[:, 1, 0], expit(-mean + 1.6448536 * sd), rtol=1e-6)
    wider = model.predict_proba_interval(new, level=0.99)
    assert (wider[:, 0] < limits[:, 0]).all()
    out = pd.read_csv(io.StringIO(succeed("predict", folder / "dear", folder / "new.csv", "--level", 0.9)))
    names = ["probability_no", "probability_yes", "lower_no", "lower_yes", "upper_no", "upper_yes"]
    assert out.columns.tolist() == ["prediction", *names]
    np.testing.assert_array_equal(out[["upper_no", "upper_yes"]], limits[:, 1])
    with pytest.raises(ValueError, match="level"):
        model.predict_proba_interval(new, level=1.5)


def test_limits_of_three_classes_hold_what_draws_of_the_posterior_do():
    data = vb.datasets.synthetic("f1", n=300)
    kind = np.digitize(data.y, [11.0, 17.0])
    model = vb.AdditiveClassifier(clusters=[("x3",), ("x2",)]).fit(data.x, kind)
    x = data.x[:20]
    limits, said = model.predict_proba_interval(x), model.predict_proba(x)
    assert limits.shape == (20, 2, 3)
    assert ((limits[:, 0] < said) & (said < limits[:, 1])).all()
    draws = model.model_.posterior.sample(model.model_.x(x), 4000, 0)
    drawn = np.exp(draws) / np.exp(draws).sum(axis=2, keepdims=True)
    # 2.5 % quantiles of 2000 and of 4000 draws, and logits taken for independent: a few hundredths
    np.testing.assert_allclose(limits, np.moveaxis(np.quantile(drawn, [0.025, 0.975], axis=0), 0, 1), atol=0.05)
