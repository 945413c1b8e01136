"""The page, opened in a real browser: what it says, what it predicts, and that it keeps to itself."""

import base64
import gzip
import html
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.pages import chartdata, whatif
from vertebra.pages.report import N_OPEN, page
from vertebra.pages.words import percent

HOSTILE = "<script>alert(1)</script>"
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
has_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


def needs_browser(test):
    """All but one of these are slow."""
    return pytest.mark.slow(has_browser(test))


def messy(n, seed):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "size": rng.normal(50.0, 10.0, n),
            HOSTILE: rng.random(n),
            "income $&<b>": np.exp(2.0 * rng.standard_normal(n)),
            "city": rng.choice(["Oslo", "</option><b>", "Tromsø"], n),
            "mean": rng.choice(["low", "middle", "high"], n),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700 * 24, n), unit="h"),
            "idle": rng.random(n),
        }
    )
    f = 0.1 * (x["size"] - 50.0) + 6.0 * (x[HOSTILE] - 0.5) * (x["city"] == "Oslo") + np.sin(np.log(x["income $&<b>"]))
    f += (x["mean"] == "high") + 0.5 * (x["sold"].dt.hour >= 12)
    for name in ("size", "city", "sold"):
        x.loc[rng.random(n) < 0.1, name] = None
    return x, f.to_numpy(), rng


def fitted(kind):
    """A model and rows that it has not seen."""
    x, f, rng = messy(900, 0)
    new = messy(50, 1)[0]
    name = pd.Series(dtype=float, name="price").name
    if kind == "gaussian":
        y = pd.Series(f + 0.5 * rng.standard_normal(900), name=name)
        return vb.AdditiveRegressor(random_state=0).fit(x, y), new
    if kind == "conformal":
        model = vb.AdditiveRegressor(likelihood="gaussian", random_state=0, conformal=True)
        return model.fit(x, f + 0.3 * rng.standard_t(2, 900)), new
    if kind in ("student_t", "heteroscedastic"):
        return vb.AdditiveRegressor(random_state=0, likelihood=kind).fit(x, f + 0.3 * rng.standard_t(3, 900)), new
    if kind == "negative_binomial":
        y = rng.negative_binomial(2.0, 1.0 / (1.0 + 0.5 * np.exp(0.7 * f + 0.5)))
        return vb.AdditiveRegressor(random_state=0, likelihood=kind).fit(x, y), new
    if kind == "poisson":
        return vb.AdditiveRegressor(random_state=0, likelihood=kind).fit(x, rng.poisson(np.exp(0.7 * f + 0.5))), new
    if kind == "two targets":
        y = pd.DataFrame({"a": f + rng.standard_normal(900), "b": 10.0 * x["idle"] + rng.standard_normal(900)})
        return vb.AdditiveRegressor(random_state=0).fit(x, y), new
    if kind == "network":
        data = vb.datasets.synthetic("f1", 1000, seed=0)
        model = vb.AdditiveRegressor("random_features", random_state=0, n_steps=300).fit(data.x, data.y)
        return model, pd.DataFrame(vb.datasets.synthetic("f1", 50, seed=1).x, columns=[f"x{i}" for i in range(10)])
    edges = [0.0] if kind == "two classes" else [-1.0, 1.0]
    labels = np.array(["<i>no</i>", "perhaps", "yes"])[np.digitize(f + rng.logistic(size=900), edges)]
    return vb.AdditiveClassifier(random_state=0).fit(x, labels), new


KINDS = [
    "gaussian",
    "conformal",
    "student_t",
    "heteroscedastic",
    "poisson",
    "negative_binomial",
    "two targets",
    "network",
]
KINDS += ["two classes", "three classes"]


@pytest.fixture(scope="module")
def models():
    known = {}

    def get(kind):
        if kind not in known:
            known[kind] = fitted(kind)
        return known[kind]

    return get


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page, with everything it complained about and asked for."""

    def __init__(self, browser, path, **settings):
        self.context = browser.new_context(**settings)
        self.tab = self.context.new_page()
        self.complaints, self.requests = [], []
        self.tab.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.complaints.append("a dialog"), dialog.dismiss()))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-ready=true]", state="attached")


@pytest.fixture
def opened(browser, models, tmp_path):
    pages = []

    def get(kind="gaussian", **settings):
        path = tmp_path / "page.html"
        models(kind)[0].report(path)
        pages.append(Opened(browser, path, **settings))
        return pages[-1]

    yield get
    for each in pages:
        each.context.close()


def as_page_row(row):
    """A row as the panel's controls take it: numbers, levels as text, gaps as null, dates without their zone."""
    return {
        name: None if pd.isna(v) else v.strftime("%Y-%m-%dT%H:%M") if isinstance(v, pd.Timestamp) else v
        for name, v in row.items()
    }


@has_browser
@pytest.mark.everyday("gaussian")
@pytest.mark.parametrize("kind", KINDS)
def test_the_panel_predicts_what_python_predicts(kind, models, opened):
    model, new = models(kind)
    tab = opened(kind).tab
    rows = [as_page_row(row) for _, row in new.iterrows()]
    is_classifier = hasattr(model, "classes_")
    for target in range(len(model.target_names_)):
        if target:
            tab.select_option("#what-if-output", str(target))
        said = [tab.evaluate("row => { vertebra.set(row); return vertebra.says(); }", row) for row in rows]
        if is_classifier:
            np.testing.assert_allclose(np.array(said), model.predict_proba(new), atol=0.005)
            continue
        mean, sd = (np.reshape(v, (50, -1))[:, target] for v in model.predict(new, return_std=True))
        limits = np.reshape(model.predict_interval(new), (50, 2, -1))[:, :, target]
        # half a per cent of the target's sd; counts are whole numbers, of which a limit may fall on the next one
        close = 0.005 * float(np.atleast_1d(model.model_.target.scale)[target] if kind != "poisson" else mean.std())
        np.testing.assert_allclose([s["mean"] for s in said], mean, atol=close)
        np.testing.assert_allclose([s["sd"] for s in said], sd, atol=close)
        there = np.array([[s["lower"], s["upper"]] for s in said])
        if kind == "poisson":
            assert np.abs(there - limits).max() <= 1.0
            assert np.mean(there != limits) < 0.03
        else:
            np.testing.assert_allclose(there, limits, atol=close)


@needs_browser
def test_the_parts_in_the_panel_are_those_of_explain(models, opened):
    model, new = models("gaussian")
    tab = opened().tab
    for _, row in new.head(10).iterrows():
        parts = tab.evaluate("row => { vertebra.set(row); return vertebra.terms(); }", as_page_row(row))
        table = model.explain(row.to_frame().T.infer_objects()).set_index("term")
        for part in parts:
            own = table.loc[[tuple(model.model_.names[i] for i in part["inputs"])]].iloc[0]
            np.testing.assert_allclose(part["mean"], own["mean"], atol=0.005 * model.model_.target.scale[0])
            np.testing.assert_allclose(part["sd"], own["sd"], atol=0.005 * model.model_.target.scale[0])


@needs_browser
@pytest.mark.parametrize("kind", ["gaussian", "three classes", "network"])
def test_the_page_asks_for_nothing_and_complains_of_nothing(kind, opened):
    each = opened(kind)
    height = each.tab.evaluate("document.documentElement.scrollHeight")
    for place in range(0, height, 600):  # charts are drawn when they come near
        each.tab.evaluate(f"window.scrollTo(0, {place})")
        each.tab.wait_for_timeout(30)
    each.tab.wait_for_timeout(200)
    assert each.tab.locator("[data-chart] svg.main-svg").count() > 3
    assert each.complaints == []
    assert len(each.requests) == 1  # the file itself
    assert each.tab.locator("section").count() == 9


@needs_browser
def test_names_are_only_names(opened):
    each = opened("two classes")
    text = each.tab.inner_text("body")
    assert HOSTILE in text
    assert "income $&<b>" in text
    assert "<i>no</i>" in each.tab.inner_text("#range")
    assert each.tab.locator("main script, main i").count() == 0
    assert "</option><b>" in each.tab.locator("option").all_text_contents()
    assert each.complaints == []


@needs_browser
def test_the_panel_works_by_keyboard_alone(models, opened):
    tab = opened().tab
    tab.evaluate("document.querySelector('#controls input[type=range]').focus()")
    before = tab.evaluate("vertebra.says()")
    for _ in range(40):
        tab.keyboard.press("ArrowRight")
    tab.wait_for_timeout(100)
    after = tab.evaluate("vertebra.says()")
    assert after["mean"] > before["mean"]  # size raises the price
    assert tab.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    # every control can be reached, and has a name
    seen = set()
    tab.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    for _ in range(60):
        tab.keyboard.press("Tab")
        seen.add(tab.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"level", "reset", "theme"} | {f"control-{k}" for k in range(6)} <= seen
    nameless = """[...document.querySelectorAll('input, select, button')].filter(
        e => !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).length"""
    assert tab.evaluate(nameless) == 0
    tab.click("#reset")
    tab.wait_for_timeout(100)
    np.testing.assert_allclose(tab.evaluate("vertebra.says().mean"), before["mean"], rtol=1e-9)


@needs_browser
def test_a_narrow_screen_needs_no_sideways_scrolling(opened):
    tab = opened(viewport={"width": 360, "height": 740}).tab
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.locator("#says").is_visible()


@needs_browser
def test_a_dark_screen_gets_a_dark_page_and_the_button_turns_it(opened):
    tab = opened(color_scheme="dark").tab
    shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    assert max(tab.evaluate(shade)) < 60
    tab.click("#theme")
    assert min(tab.evaluate(shade)) > 200


@needs_browser
def test_bands_can_be_switched_off(opened):
    tab = opened().tab
    tab.locator("[data-chart=effect]").first.scroll_into_view_if_needed()
    tab.wait_for_selector("[data-chart=effect] svg.main-svg")
    count = "document.querySelector('[data-chart=effect]').data.length"
    before = tab.evaluate(count)
    tab.uncheck("[data-toggle=simultaneous]")
    assert tab.evaluate(count) < before


@needs_browser
def test_a_page_of_ten_inputs_and_twenty_terms_is_small(browser, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.random((1500, 10))
    pairs = [(i, i + 1) for i in range(9)] + [(0, 5)]
    y = x @ np.arange(1.0, 11.0) + sum(8.0 * (x[:, i] - 0.5) * (x[:, j] - 0.5) for i, j in pairs)
    model = vb.AdditiveRegressor(random_state=0).fit(x, y + 0.3 * rng.standard_normal(1500))
    assert len(model.effects()) >= 20
    path = tmp_path / "page.html"
    model.report(path)
    assert path.stat().st_size < 3e6
    each = Opened(browser, path)
    each.context.close()


# Without a browser


def page_of(estimator, *, is_evaluated=True):
    """The page of a fitted estimator as text."""
    model = estimator.model_
    return page(model, model.evaluation if is_evaluated else None, estimator._asked())


def data_of(text):
    """What the scripts of a page read, with its charts unpacked as they unpack them."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    return data | {"outputs": json.loads(gzip.decompress(base64.b64decode(data["charts"])))}


def numbers_in(text, kind="<f4"):
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), kind)


def test_the_page_holds_nothing_of_the_user_s_that_a_browser_would_read_as_html(models):
    text = page_of(models("gaussian")[0], is_evaluated=False)
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)" in text
    assert any(HOSTILE in i["name"] for i in data_of(text)["model"]["inputs"])


@pytest.mark.everyday("conformal", "student_t", "poisson", "two targets", "network", "two classes")
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_holds_the_terms_the_noise_and_every_output_of_its_model(kind, models):
    model, _ = models(kind)
    data = data_of(page_of(model))
    names, n_outputs = model.model_.names, len(data["outputs"])
    assert n_outputs == (3 if kind == "three classes" else 2 if kind == "two targets" else 1)
    held = {tuple(names[i] for i in term["inputs"]) for term in data["model"]["terms"]}
    assert held >= {term for k in range(n_outputs) for term in model.effects(output=k)["term"]} != set()
    assert [i["name"] for i in data["model"]["inputs"]] == list(names)
    assert data["model"]["likelihood"]["name"] == type(model.model_.likelihood).__name__
    assert (data["model"]["conformal"] is not None) == (kind == "conformal")


def test_the_page_has_what_each_input_has_a_part_in(models):
    model, _ = models("two targets")
    text = page_of(model)
    for k in (0, 1):
        for row in model.totals(output=k).head(N_OPEN).itertuples():
            cells = (
                html.escape(row.input),
                *map(percent, (row.main, row.total)),
                f"{percent(row.lower)} to {percent(row.upper)}",
            )
            assert "".join(f"<td>{cell}</td>" for cell in cells) in text


def test_the_page_opens_with_how_good_what_is_real_and_what_is_uncertain(models):
    model, _ = models("gaussian")
    text = page_of(model)
    places = [text.index(f"<h3>{title}</h3>") for title in ("How good?", "What is real?", "What is uncertain?")]
    assert places == sorted(places) < [text.index('id="h-what-if"')]
    assert f"{model.evaluation_.scores['linear']['rmse']:#.4g}" in text


def test_a_page_with_rows_of_its_own_says_how_good_the_model_is_on_those(models, tmp_path):
    model, _ = models("gaussian")
    x, f, rng = messy(300, 2)
    model.report(tmp_path / "page.html", x, f + 0.5 * rng.standard_normal(300))
    assert "rows that were not fitted" in (tmp_path / "page.html").read_text()
    with pytest.raises(ValueError, match="`X` and `y` must be given together"):
        model.report(tmp_path / "page.html", x)


def test_a_model_read_from_a_file_gives_the_same_page(models, tmp_path):
    model, _ = models("gaussian")
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    assert page_of(again) == page_of(model)


def test_a_model_in_which_nothing_acts_has_a_page_too():
    rng = np.random.default_rng(0)
    model = vb.AdditiveRegressor(random_state=0).fit(rng.random((60, 2)), rng.standard_normal(60))
    assert "No input was found to act" in page_of(model)


def discrete(rng, n=600, **settings):
    """Hours, codes far apart, and a temperature that acts with the hour."""
    x = pd.DataFrame({"hour": rng.integers(0, 24, n), "code": rng.choice([10115, 20095, 80331], n)})
    x["temp"] = rng.normal(12.0, 6.0, n)
    y = np.sin(x["hour"] / 4.0) + (x["code"] == 20095) + 0.1 * x["temp"] * (x["hour"] > 12) + 0.2 * rng.normal(size=n)
    clusters = [("hour", "temp"), ("code",)]
    return vb.AdditiveRegressor(clusters=clusters, remainder=False, random_state=0, **settings).fit(x, y), x


def test_charts_and_controls_have_the_values_of_discrete_numbers_and_no_others(rng):
    model, x = discrete(rng)
    charts = {tuple(each["names"]): each for each in chartdata.charts(model.model_, 0)["effects"]}
    hour, code, pair = charts["hour",], charts["code",], charts["hour", "temp"]
    assert hour["kind"] == code["kind"] == "points"
    assert hour["x"] == list(range(24))
    assert code["x"] == [10115, 20095, 80331]
    np.testing.assert_allclose(hour["shares"], np.bincount(x["hour"]) / len(x))
    np.testing.assert_allclose(code["shares"], x["code"].value_counts(normalize=True).sort_index())
    assert pair["x"] == [str(h) for h in range(24)]
    assert len(pair["y"]) == 20
    assert charts["temp",]["kind"] == "curve"
    inputs = whatif.tables(model.model_)["inputs"]
    assert inputs[0]["values"] == list(range(24))
    assert inputs[1]["values"] == [10115, 20095, 80331]
    assert [len(numbers_in(each["nodes"])) for each in inputs[:2]] == [24, 3]
    assert "values" not in inputs[2]


@needs_browser
def test_a_slider_goes_from_value_to_value(rng, browser, tmp_path):
    model, x = discrete(rng)
    model.report(tmp_path / "page.html")
    each = Opened(browser, tmp_path / "page.html")
    slider, box = (
        each.tab.locator(f"#controls .control:has(label:text-is('code')) input[type={kind}]")
        for kind in ("range", "number")
    )
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("0", "2")
    for place, value in enumerate(["10115", "20095", "80331"]):
        slider.fill(str(place))
        assert box.input_value() == value
    box.fill("30000")
    box.blur()
    assert (box.input_value(), slider.input_value()) == ("20095", "1")
    for _, row in x.head(10).iterrows():
        said = each.tab.evaluate("row => { vertebra.set(row); return vertebra.says(); }", as_page_row(row))
        mean, sd = model.predict(row.to_frame().T, return_std=True)
        # single precision, and what the page leaves out of the variance
        assert (said["mean"], said["sd"]) == pytest.approx((float(mean[0]), float(sd[0])), rel=0.005)
    assert each.complaints == []
    each.context.close()


def test_controls_of_networks_have_the_values_of_discrete_numbers_too(rng):
    model, _ = discrete(rng, scheme="random_features", n_steps=20)
    inputs = whatif.tables(model.model_)["inputs"]
    assert inputs[0]["values"] == list(range(24))
    assert inputs[1]["values"] == [10115, 20095, 80331]
    assert model.effect("code")["code"].tolist() == [10115.0, 20095.0, 80331.0]


def test_values_of_columns_that_the_model_does_not_read_stay_out_of_the_page(rng):
    x = pd.DataFrame({"size": rng.random(200), "email": [f"person{i}@example.org" for i in range(200)]})
    model = vb.AdditiveRegressor(random_state=0, clusters=[("size",)]).fit(x, x["size"] + 0.1 * rng.random(200))
    text = page_of(model)
    assert "person17" not in text
    assert "email" in text


def test_what_is_real_speaks_of_every_target(rng):
    x = pd.DataFrame(rng.random((500, 3)), columns=["a", "b", "c"])
    noise = 0.1 * rng.standard_normal((500, 2))
    y = pd.DataFrame({"u": x["a"] + noise[:, 0], "v": x["b"] + 2.0 * x["b"] * x["c"] + noise[:, 1]})
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    text = page_of(model)
    assert "3 of 3 inputs act, and 1 interaction, " in text
    assert "<b>u</b>: Predictions are off by" in text
    assert "<b>v</b>: Predictions are off by" in text


def test_shares_are_of_the_level_they_stand_beside(rng):
    city = pd.Categorical(rng.choice(["b", "c", "d"], 300, p=[0.6, 0.3, 0.1]), categories=["a", "b", "c", "d"])
    x = pd.DataFrame({"city": city})
    model = vb.AdditiveRegressor(random_state=0).fit(x, (city == "b") + 0.1 * rng.standard_normal(300))
    effect = data_of(page_of(model, is_evaluated=False))["outputs"][0]["effects"][0]
    shown = dict(zip(effect["labels"], effect["shares"], strict=True))
    np.testing.assert_allclose([shown[c] for c in "bcd"], [np.mean(city == c) for c in "bcd"])


def test_a_pair_of_inputs_whose_values_look_alike_is_drawn(rng):
    x = pd.DataFrame({"far": 1e17 + 20.0 * rng.integers(0, 3, 400), "near": rng.random(400)})
    y = (x["far"] > 1e17 + 10.0) * x["near"] + 0.05 * rng.standard_normal(400)
    page_of(vb.AdditiveRegressor(random_state=0, clusters=[("far", "near")]).fit(x, y))
