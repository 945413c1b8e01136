"""Two classes: what follows from a threshold, in Python, in files and on the page."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, precision_score, roc_auc_score

import vertebra as vb
from vertebra.models.evaluation import decisions

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.uniform(20, 80, 500), "smokes": rng.choice(["no", "yes"], 500)})
    p = 1.0 / (1.0 + np.exp(4.0 - 0.05 * x["age"] - 1.2 * (x["smokes"] == "yes")))
    y = np.where(rng.random(500) < p, "ill", "well")
    return vb.AdditiveClassifier(clusters=[("age",), ("smokes",)]).fit(x, y), x, y


def test_decisions_are_those_of_confusion_matrices(rng):
    p, codes = rng.random(300).round(2), rng.integers(0, 2, 300)
    weight = rng.integers(1, 4, 300).astype(float)
    found = pd.DataFrame(decisions(p, codes, weight))
    for row in found.itertuples():
        tn, fp, fn, tp = confusion_matrix(codes, p >= row.threshold, sample_weight=weight, labels=[0, 1]).ravel()
        assert (row.true_second, row.false_second, row.false_first, row.true_first) == (tp, fp, fn, tn)
    assert 0.5 in found["threshold"].tolist()
    assert found["true_second"].iloc[-1] == 0.0  # nobody is said


def test_rates_are_those_of_scikit_learn(fitted):
    model, x, y = fitted
    seen = model.evaluate(x, y)
    table = seen.thresholds()
    said = model.predict_proba(x)[:, 1]
    second = y == model.classes_[1]
    row = table[table["threshold"] == 0.5].iloc[0]
    assert row["precision"] == pytest.approx(precision_score(second, said >= 0.5))
    assert row["lift"] == pytest.approx(row["precision"] / second.mean())
    for own in table.itertuples():
        assert own.recall == pytest.approx(np.mean(np.round(said[second], 12) >= own.threshold))
        assert own.false_alarms == pytest.approx(np.mean(np.round(said[~second], 12) >= own.threshold))
    # 200 thresholds of 500: between two the curve is a chord
    area = np.trapezoid(table["recall"][::-1], table["false_alarms"][::-1])
    assert area == pytest.approx(roc_auc_score(second, said), abs=0.005)


def test_decisions_are_kept_in_files_and_are_for_two_classes(fitted, tmp_path):
    model, x, y = fitted
    model.save(tmp_path / "m.vertebra")
    kept = vb.load(tmp_path / "m.vertebra").evaluation_
    assert kept.decisions == model.evaluation_.decisions
    assert kept.thresholds()["recall"].is_monotonic_decreasing
    number = vb.AdditiveRegressor(clusters=[("age",)]).fit(x, x["age"] + (y == "ill"))
    with pytest.raises(ValueError, match="thresholds are for two classes"):
        number.evaluation_.thresholds()
    assert "decisions" not in str(number.evaluation_)


def test_the_page_holds_what_the_slider_needs(fitted, tmp_path):
    model, _, _ = fitted
    model.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "y: from which probability on is it well?" in page
    assert '"decisions":{"threshold":' in page
    assert "beforeprint" in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_slider_the_panel_and_print_do_what_python_does(fitted, tmp_path):
    sync = pytest.importorskip("playwright.sync_api")
    model, _, _ = fitted
    model.report(tmp_path / "r.html")
    with sync.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        wrong = []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto((tmp_path / "r.html").as_uri())
        tab.wait_for_selector("html[data-ready]")
        table = model.evaluation_.thresholds()
        half = table["threshold"].tolist().index(0.5)
        assert tab.locator("#threshold").input_value() == str(half)
        for place in (half, half + 20, len(table) - 1):  # every place of the slider is another threshold
            tab.locator("#threshold").fill(str(place))
            row = table.iloc[place]
            assert tab.locator("#threshold-says").inner_text() == f"{row['threshold']:.3f}"
            for name in ("true_second", "false_second", "false_first", "true_first"):
                assert int(tab.locator(f"[data-cell={name}]").inner_text().replace(",", "")) == round(row[name])
        row = {"age": 50.0, "smokes": "yes"}
        tab.evaluate("row => vertebra.set(row)", row)
        limits = json.loads(tab.locator("#range").get_attribute("data-limits"))
        # the page's functions are drawn between 33 points, and its root is short
        np.testing.assert_allclose(limits, model.predict_proba_interval(pd.DataFrame([row]))[0, :, 1], atol=0.01)
        assert tab.locator("#says").inner_text().startswith("well: ")
        tab.select_option("#level", label="50 %")
        tab.wait_for_timeout(100)
        half = json.loads(tab.locator("#range").get_attribute("data-limits"))
        wanted = model.predict_proba_interval(pd.DataFrame([row]), level=0.5)[0, :, 1]
        np.testing.assert_allclose(half, wanted, atol=0.01)
        assert "with 50 %" in tab.locator("#range").inner_text()
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        drawn = tab.evaluate(
            "[...document.querySelectorAll('[data-chart]')].map((e) => !!e.querySelector('.main-svg'))"
        )
        assert all(drawn)
        assert len(drawn) >= 6
        assert wrong == []
        browser.close()
