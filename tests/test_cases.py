"""Rows taken apart on the page: which are chosen, what is said of them, and where their numbers come from."""

import html
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.pages.cases import MOST_PARTS, cases
from vertebra.pages.report import page
from vertebra.pages.words import number, percent

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


def flats(n=300):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.gamma(6.0, 13.0, n), "floor": rng.integers(0, 9, n).astype(float)})
    x["lift"] = rng.choice(["yes", "no"], n)
    x["listed"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D")
    rent = 300.0 + 9.5 * x["size"] - 40.0 * x["floor"] * (x["lift"] == "no") + rng.normal(0.0, 60.0, n)
    return x, rent.rename("rent")


CLUSTERS = [("floor", "lift"), ("size",)]


@pytest.fixture(scope="module")
def rents():
    x, y = flats()
    return vb.AdditiveRegressor(clusters=CLUSTERS, remainder=False, random_state=0).fit(x, y), x, y


@pytest.fixture(scope="module")
def classes():
    x, y = flats()
    labels = np.array(["cheap", "fair", "dear"])[np.digitize(y, np.quantile(y, [0.3, 0.8]))]
    return {
        n: (vb.AdditiveClassifier(clusters=CLUSTERS, random_state=0).fit(x, own), x, own)
        for n, own in ((2, np.where(labels == "dear", "dear", "other")), (3, labels))
    }


def test_rows_are_the_typical_the_highest_the_lowest_and_the_worst_predicted(rents):
    model, x, y = rents
    found = cases(model.model_, (x, y))
    terms = model.eval_terms(x).drop(columns="intercept")
    away = [sum((terms.iloc[i, k] - np.median(terms.iloc[:, k])) ** 2 for k in range(3)) for i in range(len(x))]
    mean, density = model.predict(x), model.log_prob(x, y)
    worst = np.argsort(density)[:2]
    assert [each.number - 1 for each in found] == [int(np.argmin(away)), mean.argmax(), mean.argmin(), *worst]
    assert [each.why.split(" ")[1] for each in found] == ["typical", "highest", "lowest", "worst", "next"]


def test_what_is_said_of_a_row_is_what_the_model_says(rents):
    model, x, y = rents
    for each in cases(model.model_, (x, y)):
        row = x.iloc[[each.number - 1]]
        low, high = model.predict_interval(row)[0]
        assert each.said == f"{number(model.predict(row)[0])} ({number(low)} to {number(high)})"
        assert each.seen == number(y.iloc[each.number - 1])
        parts = model.explain(row)
        assert [part.label for part in each.parts] == parts["value"].tolist()[1:]
        np.testing.assert_array_equal([part.mean for part in each.parts], parts["mean"][1:])
        # sums in another order
        np.testing.assert_allclose(each.origin + sum(part.mean for part in each.parts), each.total, rtol=1e-12)
        np.testing.assert_allclose(each.total, model.predict(row)[0], rtol=1e-9)
        # bars begin at 0 or end there, and none leaves its track
        assert all(part.start >= 0.0 and part.start + part.width <= 100.0 + 1e-9 for part in each.parts)


@pytest.mark.parametrize("n", [2, 3])
def test_of_two_classes_the_second_is_taken_apart_and_of_more_the_likeliest(classes, n):
    model, x, y = classes[n]
    p = model.predict_proba(x)
    for each in cases(model.model_, (x, y)):
        row = each.number - 1
        k = 1 if n == 2 else int(p[row].argmax())
        low, high = map(percent, model.predict_proba_interval(x.iloc[[row]])[0, :, k])
        assert each.said == f"probability of {model.classes_[k]} {percent(p[row, k])} ({low} to {high})"
        assert (each.seen, each.unit.endswith(str(model.classes_[k]))) == (y[row], True)
        expected = model.explain(x.iloc[[row]], output=0 if n == 2 else k)["mean"]
        np.testing.assert_allclose(each.total, expected.sum(), rtol=1e-9)
    worst = int(np.argmin(p[np.arange(len(x)), np.searchsorted(model.classes_, y)]))
    assert any(each.number - 1 == worst and "worst" in each.why for each in cases(model.model_, (x, y)))


def test_a_row_that_is_two_things_is_shown_once_and_weak_terms_are_summed():
    rng = np.random.default_rng(1)
    x = pd.DataFrame(rng.random((200, MOST_PARTS + 3)), columns=[f"a{i}" for i in range(MOST_PARTS + 3)])
    y = x.to_numpy() @ np.arange(1.0, MOST_PARTS + 4.0) + 0.1 * rng.standard_normal(200)
    # the largest of all, and wrong, by a hundred sds of the noise
    x.iloc[0] = 1.0
    y[0] = np.arange(1.0, MOST_PARTS + 4.0).sum() - 10.0
    model = vb.AdditiveRegressor(clusters=[(name,) for name in x], remainder=False, likelihood="gaussian").fit(x, y)
    found = cases(model.model_, (x, y))
    first = next(each for each in found if each.number == 1)
    assert ("highest" in first.why, "worst" in first.why) == (True, True)
    assert len({each.number for each in found}) == len(found)
    assert (len(first.parts), first.parts[-1].label, first.parts[-1].has_band) == (
        MOST_PARTS + 1,
        "3 weaker terms",
        False,
    )
    np.testing.assert_allclose(first.origin + sum(part.mean for part in first.parts), first.total, rtol=1e-12)


def test_rows_may_be_arrays_polars_and_files_and_bear_their_own_numbers(rents, tmp_path):
    polars = pytest.importorskip("polars")
    model, x, y = rents
    expected = cases(model.model_, (x, y))
    assert cases(model.model_, (polars.from_pandas(x), y.to_numpy())) == expected
    x.assign(rent=y).to_csv(tmp_path / "flats.csv", index=False)
    assert [each.number for each in cases(model.model_, (tmp_path / "flats.csv", "rent"))] == [
        each.number for each in expected
    ]
    moved = cases(model.model_, (x, y, list(range(1000, 1000 + len(x)))))
    assert [each.number - 999 for each in moved] == [each.number for each in expected]


def test_the_page_shows_rows_where_some_are_given_and_none_otherwise(rents):
    model, x, y = rents
    without = page(model.model_, None, {})
    assert "Row by row" not in without
    shown = page(model.model_, None, {}, None, (x, y))
    text = html.unescape(re.sub(r"<[^>]+>", "", shown[shown.index('<section id="cases"') :]))
    for each in cases(model.model_, (x, y)):
        assert f"{each.why}: row {each.number:,}" in text
        assert f"Predicted: {each.said}. Seen: {each.seen}." in text


def test_names_and_levels_of_rows_are_text_on_the_page():
    x, y = flats()
    x["lift"] = x["lift"].replace("yes", "<img src=x onerror=alert(1)>")
    model = vb.AdditiveRegressor(clusters=[("lift",), ("size",)], remainder=False, random_state=0).fit(x, y)
    assert "<img" not in page(model.model_, None, {}, None, (x, y))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("kind", ["rents", "classes"])
def test_on_paper_a_report_is_light_has_all_charts_and_four_to_six_pages(kind, request, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    x, y = flats(900)
    rng = np.random.default_rng(2)
    for k in range(8):
        x[f"extra {k}"] = rng.random(len(x))
        y = y + 60.0 * x[f"extra {k}"]
    clusters = [*CLUSTERS, *((f"extra {k}",) for k in range(8))]
    kinds = {"rents": (vb.AdditiveRegressor, y), "classes": (vb.AdditiveClassifier, np.where(y > 1200, "dear", "not"))}
    estimator, target = kinds[kind]
    model = estimator(clusters=clusters, random_state=0).fit(x, target)
    model.report(tmp_path / "r.html", cases=(x, target))
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_context(color_scheme="dark").new_page()
        tab.goto((tmp_path / "r.html").as_uri())
        tab.wait_for_selector("html[data-ready=true]", state="attached")
        tab.evaluate(
            "window.addEventListener('beforeprint', () => { window.onPaper = document.documentElement.dataset.theme; })"
        )
        paper = tab.pdf(format="A4")
        letter = tab.pdf(format="Letter")
        assert tab.evaluate("window.onPaper") == "light"
        # on the screen it is what it was
        tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        assert not tab.evaluate("document.documentElement.classList.contains('paper')")
        tab.emulate_media(media="print")
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        charts = "Array.from(document.querySelectorAll('[data-chart]')).filter(n => n.clientWidth)"
        assert tab.evaluate(f"{charts}.every(n => n.querySelector('.main-svg'))")
        # and tables are those of a screen, not of a phone, though paper is as narrow
        tab.set_viewport_size({"width": 703, "height": 900})
        assert tab.evaluate("getComputedStyle(document.querySelector('table.terms')).display") == "table"
        tab.set_viewport_size({"width": 1280, "height": 900})
        # nothing is cut off at the right
        right = "getBoundingClientRect().right"
        assert tab.evaluate(f"{charts}.every(n => n.querySelector('.main-svg').{right} <= n.{right} + 1)")
        browser.close()
    for each in (paper, letter):
        assert 4 <= len(re.findall(rb"/Type\s*/Page\b", each)) <= 6
