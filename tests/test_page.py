"""The page as people read it: lines, folds, on a phone, on paper, and by whoever cannot see."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.pages import chartdata, report, whatif
from vertebra.pages.words import score

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
PAIRS = [("hour", "works"), ("city", "works"), ("temp", "sold (time)"), ("temp", "income"), ("hour", "temp")]
OTHERS = [(f"a_rather_long_name_{i}",) for i in range(4)]
# The page has two tables of effects, of terms and of inputs: each is counted by itself.
STRENGTHS, SHARES = (
    f"#effects [aria-label='{of}'] tbody tr:visible" for of in ("Terms and their strengths", "Inputs and their shares")
)


def needs_browser(test):
    return pytest.mark.slow(pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")(test))


def rides(n=700):
    """Hours, a flag, levels, dates, a long tail and whole numbers; and f."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"hour": rng.integers(0, 24, n), "works": rng.integers(0, 2, n), "temp": rng.normal(15.0, 8.0, n)})
    x["income"] = 30.0 * np.exp(1.2 * rng.standard_normal(n))
    x["visits"] = rng.poisson(200.0, n)
    x["city"] = rng.choice(["Kiel", "Oslo", "Tromsø"], n)
    x["sold"] = pd.Timestamp("2011-01-01") + pd.to_timedelta(rng.integers(0, 730, n), unit="D")
    f = np.sin(x["hour"] / 4.0) * (2.0 * x["works"] - 1.0) + 0.1 * x["temp"] + np.log(x["income"]) + 0.02 * x["visits"]
    for (name,) in OTHERS:
        x[name] = rng.random(n)
        f += x[name]
    return x, f.to_numpy(), rng


@pytest.fixture(scope="module")
def model():
    x, f, rng = rides()
    y = pd.Series(f + 0.3 * rng.standard_normal(len(x)), name="rides")
    clusters = [*PAIRS, ("works", "temp", "visits"), *OTHERS]
    return vb.AdditiveRegressor(clusters=clusters, remainder=False, random_state=0).fit(x, y)


@pytest.fixture(scope="module")
def classifier():
    x, f, rng = rides()
    labels = np.array(["few", "more", "most"])[np.digitize(f + rng.logistic(size=len(f)), np.quantile(f, [0.3, 0.7]))]
    return vb.AdditiveClassifier(clusters=[("hour", "works"), ("temp",)], random_state=0).fit(x, labels), x


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, model, folder, script="", **settings):
    """The page of a model in a tab of its own, once its charts can be drawn."""
    model.report(folder / "page.html")
    tab = browser.new_context(**settings).new_page()
    if script:
        tab.add_init_script(script)
    tab.goto((folder / "page.html").as_uri())
    if not script:
        tab.wait_for_selector("html[data-ready=true]", state="attached")
    return tab


def charts_of(model):
    return {tuple(sorted(each["names"])): each for each in chartdata.charts(model.model_, 0)["effects"]}


def test_pairs_with_an_input_of_few_values_are_lines_and_others_maps(model):
    charts = charts_of(model)
    kinds = {pair: charts[tuple(sorted(pair))]["kind"] for pair in PAIRS}
    assert kinds == dict(zip(PAIRS, ["lines", "lines", "map", "map", "map"], strict=True))
    lines = charts["hour", "works"]
    assert (lines["names"], lines["x"], lines["is_discrete"]) == (["hour", "works"], list(range(24)), True)
    table = model.effect(("hour", "works"))
    for line, value in zip(lines["lines"], (0.0, 1.0), strict=True):
        own = table[table["works"] == value]
        assert line["at"] == f"{value:g}"
        for name in ("mean", "lower", "upper"):
            np.testing.assert_allclose(line[name], own[name], rtol=1e-5)
    assert charts["city", "works"]["kinds"] == ["levels"]
    # of three inputs the one of fewest values is sliced
    assert [each["at"] for each in charts["temp", "visits", "works"]["slices"]] == [0.0, 1.0]


def test_axes_of_numbers_have_the_middle_of_the_rows_and_dates_are_dates(model):
    x, _, _ = rides()
    charts = charts_of(model)
    low, high = charts["income",]["span"]
    # a bin holds up to a tenth of the rows: percentiles are known to a bin
    assert np.mean(x["income"] < low) == pytest.approx(0.01, abs=0.02)
    assert np.mean(x["income"] > high) == pytest.approx(0.01, abs=0.01)
    assert high < 0.6 * x["income"].max()
    pair = charts["sold (time)", "temp"]
    assert pair["kinds"] == ["number", "date"]
    assert pair["y"][0].startswith("2011-01-0")
    assert pair["spans"][1][0] > pair["y"][0]
    assert charts["hour",]["span"] is None


def test_whole_numbers_of_many_values_go_by_one(model):
    inputs = {each["name"]: each for each in whatif.tables(model.model_)["inputs"]}
    assert inputs["visits"]["is_whole"]
    assert not inputs["temp"]["is_whole"]


def test_a_score_that_is_rounding_alone_is_written_as_nothing():
    assert (score(-2.278e-05), score(0.0123), score(0.0)) == ("0.000", "0.01230", "0")


@needs_browser
def test_ten_terms_stand_open_and_the_weaker_are_drawn_when_they_are_unfolded(model, browser, tmp_path):
    tab = opened(browser, model, tmp_path, viewport={"width": 1280, "height": 800})
    assert len(model.effects()) > 15
    assert tab.locator(STRENGTHS).count() == 10
    assert tab.locator(SHARES).count() == 10
    assert tab.locator("#effects details tbody tr").count() > 10
    assert tab.locator("#effects details tbody tr:visible").count() == 0
    assert tab.locator("#effects .card:visible").count() == 10
    assert tab.evaluate("document.documentElement.scrollHeight") < 12_000
    assert (tmp_path / "page.html").stat().st_size < 3e6
    # paper has what stands open
    drawn = """[...document.querySelectorAll('[data-chart]')].filter(
        (e) => e.checkVisibility() && !e.querySelector('.main-svg')).map((e) => e.outerHTML.slice(0, 200))"""
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(drawn) == []
    assert tab.locator("details .main-svg").count() == 0
    tab.click("details.more:has([data-chart]) summary")
    tab.locator("details [data-chart=effect]").first.scroll_into_view_if_needed()
    tab.wait_for_selector("details [data-chart=effect] .main-svg")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(drawn) == []
    widths = tab.evaluate("[...document.querySelectorAll('[data-chart] .main-svg')].map((e) => e.clientWidth)")
    assert min(widths) > 100
    tab.context.close()


@needs_browser
def test_titles_beside_low_charts_are_whole(browser, tmp_path):
    x, f, _ = rides()
    named = pd.Series(f, name="a_target_of_a_long_name")
    model = vb.AdditiveRegressor(clusters=[("temp",)], remainder=False).fit(x, named)
    tab = opened(browser, model, tmp_path)
    tab.locator("[data-chart=effect]").first.scroll_into_view_if_needed()
    tab.wait_for_selector("[data-chart=effect] .ytitle")
    inside = """(() => {
        const chart = document.querySelector('[data-chart=effect]').getBoundingClientRect();
        const title = document.querySelector('[data-chart=effect] .ytitle').getBoundingClientRect();
        return [title.top - chart.top, chart.bottom - title.bottom, title.left - chart.left];
    })()"""
    assert min(tab.evaluate(inside)) >= 0.0
    tab.context.close()


@needs_browser
def test_many_levels_of_short_names_stand_side_by_side(browser, tmp_path):
    rng = np.random.default_rng(0)
    at = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 24 * 200, 900)), unit="h")
    x = pd.DataFrame({"at": at, "place": rng.choice([f"place number {k}" for k in range(15)], 900)})
    y = np.sin(x["at"].dt.hour / 4.0) + 0.2 * rng.normal(size=900)
    clusters = [("at (hour)",), ("place",)]
    model = vb.AdditiveRegressor(clusters=clusters, remainder=False).fit(x, y)
    tab = opened(browser, model, tmp_path)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    places = {term[0]: place for place, term in enumerate(model.effects()["term"])}
    chart = "document.querySelector('[data-chart=effect][data-term=\"{}\"]')"
    hours, names = (chart.format(places[each]) for each in ("at (hour)", "place"))
    table = model.effect("at (hour)")
    # hours along, their effects upwards; long names beneath each other
    assert tab.evaluate(f"{hours}.data.at(-1).y") == pytest.approx(table["mean"].tolist(), rel=1e-3, abs=1e-4)
    assert tab.evaluate(f"{hours}._fullLayout.xaxis.type") == "category"
    assert tab.evaluate(f"{names}._fullLayout.yaxis.type") == "category"
    assert tab.evaluate(f"{hours}.clientHeight") < tab.evaluate(f"{names}.clientHeight")
    tab.context.close()


@needs_browser
def test_all_values_are_shown_when_asked_for(model, browser, tmp_path):
    tab = opened(browser, model, tmp_path)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    place = list(model.effects()["term"]).index(("temp",))
    ends = f"document.querySelector('[data-chart=effect][data-term=\"{place}\"]')._fullLayout.xaxis.range"
    inner = tab.evaluate(ends)
    tab.check("[data-toggle=all]")
    outer = tab.evaluate(ends)
    assert outer[0] < inner[0] < inner[1] < outer[1]
    tab.context.close()


@needs_browser
def test_on_a_phone_the_prediction_stays_in_sight_and_words_are_whole(model, browser, tmp_path):
    tab = opened(browser, model, tmp_path, viewport={"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.locator("#controls .control").last.scroll_into_view_if_needed()
    tab.wait_for_timeout(100)
    place = tab.evaluate("document.getElementById('says').getBoundingClientRect().toJSON()")
    assert 0 <= place["top"] < place["bottom"] < 300
    right = """[...document.querySelectorAll('#effects table.terms tbody td:nth-child(2)')].map(
        (e) => e.getBoundingClientRect().right)"""
    assert max(tab.evaluate(right)) < 390
    # a name of one word has one line, of the 1.55 × 15 pixels that a line has
    height = """[...document.querySelectorAll('#effects table.terms td:first-child')].find(
        (e) => e.textContent === 'income').clientHeight"""
    assert tab.evaluate(height) < 40
    assert tab.evaluate("getComputedStyle(document.querySelector('table.terms td')).overflowWrap") == "break-word"
    # all of a row is seen without pushing the table
    spare = """[...document.querySelectorAll('#effects table.terms')].filter((e) => e.clientWidth > 0).map(
        (e) => e.parentElement.clientWidth - e.parentElement.scrollWidth)"""
    assert min(tab.evaluate(spare)) == 0
    tab.context.close()


@needs_browser
def test_on_a_phone_parts_of_a_row_have_their_intervals_in_sight(classifier, browser, tmp_path):
    model, x = classifier
    model.report(tmp_path / "page.html", cases=(x, model.predict(x)))
    tab = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    ends = (
        "[...document.querySelectorAll('table.parts tr > :nth-child(3)')].map((e) => e.getBoundingClientRect().right)"
    )
    assert 300 < max(tab.evaluate(ends)) < 390
    tab.context.close()


def test_values_of_columns_are_written_as_in_the_table(rng):
    n = 60
    x = pd.DataFrame({"adults": rng.integers(1, 5, n), "nights": [280, *rng.integers(1, 9, n - 1)], "hotel": "Alpen"})
    x["price"], x["fax"] = rng.uniform(40.0, 90.0, n).round(1), np.nan
    x.loc[0, "price"], x.loc[1, "price"] = 12_345.5, -40.3
    y = pd.Series(x["adults"] + rng.normal(0.0, 0.1, n), name="y")
    found = {
        each.name: each.values
        for each in report._columns(vb.AdditiveRegressor(clusters=[("adults",)]).fit(x, y).model_)
    }
    own = {"adults": "1 to 4", "nights": "1 to 280", "hotel": "1 level", "price": "−40.3 to 12,345.5", "fax": "none"}
    assert own.items() <= found.items()


@needs_browser
def test_a_cleared_box_keeps_its_value_and_says_so_and_whole_numbers_step_by_one(model, browser, tmp_path):
    tab = opened(browser, model, tmp_path)
    control = tab.locator("#controls .control:has(label:text-is('visits'))")
    slider, box = control.locator("input[type=range]"), control.locator("input[type=number]")
    before = box.input_value()
    slider.focus()
    tab.keyboard.press("ArrowRight")
    assert float(box.input_value()) == float(before) + 1.0
    said = tab.evaluate("vertebra.says()")
    box.fill("")
    assert control.locator("[role=status]").inner_text() == f"Empty: {float(before) + 1.0:g} stays."
    assert tab.evaluate("vertebra.says()") == said
    box.blur()
    assert float(box.input_value()) == float(before) + 1.0
    assert control.locator("[role=status]").inner_text() == ""
    tab.context.close()


@needs_browser
def test_three_classes_have_limits_at_every_level(classifier, browser, tmp_path):
    model, x = classifier
    tab = opened(browser, model, tmp_path)
    row = {"hour": 12, "works": 1, "temp": 20.0}
    tab.evaluate("row => vertebra.set(row)", row)
    rows = x.head(1).assign(**row)
    for level in (0.95, 0.5):
        tab.select_option("#level", label=f"{100 * level:.0f} %")
        tab.wait_for_timeout(100)
        limits = json.loads(tab.locator("#range").get_attribute("data-all"))
        # a thousand draws there, two thousand here: the tails are known to a few per cent
        np.testing.assert_allclose(limits, model.predict_proba_interval(rows, level=level)[0], atol=0.03)
        assert f"with {100 * level:.0f} %" in tab.locator("#range").inner_text()
    # charts of a class that was hidden are drawn when it is chosen
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.select_option("select.output", "2")
    tab.wait_for_timeout(500)
    tab.locator(".output-part[data-output='2'] [data-chart=effect]").first.scroll_into_view_if_needed()
    tab.wait_for_selector(".output-part[data-output='2'] [data-chart=effect] .main-svg")
    assert tab.evaluate("document.querySelector(\".output-part[data-output='2'] .main-svg\").clientWidth") > 100
    tab.context.close()


@needs_browser
def test_a_browser_that_cannot_unpack_says_so_and_keeps_the_text(model, browser, tmp_path):
    tab = opened(browser, model, tmp_path, script="delete window.DecompressionStream")
    assert tab.locator("#too-old").is_visible()
    assert tab.locator(STRENGTHS).count() == 10
    assert tab.locator("#effects details tbody tr:visible").count() == 0
    tab.context.close()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_the_way_of_whoever_cannot_see(scheme, model, browser, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tab = opened(browser, model, tmp_path, color_scheme=scheme)
    found = axe.Axe().run(tab).response["violations"]
    serious = [
        (each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    tab.context.close()
