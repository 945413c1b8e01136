"""docs/limits.md says what results/limits.csv holds, number by number; the study counts right, resumes, and draws."""

import importlib
import pathlib
import re
import sys
import types

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from vertebra.models.near_copies import CONCURVE

ROOT = pathlib.Path(__file__).parents[1]
# Of a fit that takes tenths of a second: with 60 rows it would be done again without some of them.
N_ROWS = 40


@pytest.fixture(scope="module")
def limits():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield importlib.import_module("limits")
    sys.path.remove(str(ROOT / "experiments"))


@pytest.mark.slow
def test_a_tiny_run_of_every_case_is_recorded_once_and_drawn(limits, tmp_path, monkeypatch):
    path = tmp_path / "limits.csv"
    # of each case the last fit, at its worst: what is done about it, or the default
    todo = [limits.Task(name, *list(case.fits.items())[-1], 0) for name, case in limits.CASES.items()]
    todo = [task._replace(severity=task.severity[-1]) for task in todo]
    monkeypatch.setattr(limits, "N_TEST", 200)
    limits.record(path, todo[:3], N_ROWS)
    # cut off after three tasks, and begun again
    n_lines = len(path.read_text().splitlines())
    limits.record(path, todo, N_ROWS)
    rows = pd.read_csv(path)
    assert rows.groupby(list(limits.Task._fields)).ngroups == len(todo)
    assert not rows.duplicated(["case", "fit", "severity", "seed", "quantity"]).any()
    assert len(rows) > n_lines
    values = rows.set_index("quantity")["value"]
    assert np.isfinite(values).all()
    assert values.filter(like="coverage").between(0.0, 1.0).all()
    assert (values.filter(regex="^rmse").groupby(level=0).min() > 0.0).all()
    # a model that ends at its range: a whole range further out, its intervals miss what they hold inside
    far = rows[(rows["case"] == "outside") & (rows["quantity"] == "coverage f")]["value"]
    assert far.item() < 0.5
    monkeypatch.setattr(limits, "run", lambda *_: pytest.fail("a task that is in the file was run again"))
    limits.record(path, todo, N_ROWS)
    limits.draw(limits.load(path), tmp_path)
    for name in limits.FIGURES:
        assert matplotlib.image.imread(tmp_path / f"limits-{name}.png").shape[1] == 900


class Model:
    """Says that x0 and x9 act, and x0 with x1, and with x2; is right about f to 0.5, and sure to 0.1."""

    n_features_in_ = 10
    diagnostics_ = types.SimpleNamespace(warnings=("x0 and x1 rise and fall together (…)",))
    evaluation_ = types.SimpleNamespace(scores={"model": {"rmse": 1.25}})

    def __init__(self, function):
        self.function = function

    def predict_f(self, x):
        return self.function(x) + np.where(np.arange(len(x)) % 2, 0.5, 0.05), np.full(len(x), 0.1)

    def predict(self, x):
        return self.predict_f(x)[0]

    def predict_interval(self, x):
        return np.stack([self.function(x) - 1.0, self.function(x) + 1.0], axis=1)

    def effects(self, measure="product"):
        assert measure == "product"  # whose truths the study knows
        terms = [("x0",), ("x9",), ("x3",), ("x0", "x1"), ("x0", "x2")]
        return pd.DataFrame({"term": terms, "probability": [1.0, 0.96, 0.9, 1.0, 0.5]})

    def interactions(self, fdr):
        assert fdr == 0.05
        return self.effects().iloc[3:]


def test_terms_are_counted_and_intervals_measured_against_the_truth(limits, rng):
    x = limits.uniform(rng, 100)
    sample = limits.Sample(limits.f1, x, limits.f1(x), {"": x}, lambda rng, n: np.zeros(n), shows_bands=False)
    row = limits.measure(Model(limits.f1), sample, rng)
    # of x0, …, x4 only x0 is reported: x3 is not sure enough
    assert (row["missed inputs"], row["false inputs"], row["false share inputs"]) == (4.0, 1.0, 0.5)
    assert (row["missed interactions"], row["false interactions"], row["false share interactions"]) == (0.0, 1.0, 0.5)
    # five terms of which three are real
    assert row["overstated"] == pytest.approx((1.0 + 0.96 + 0.9 + 1.0 + 0.5 - 3.0) / 5.0)
    assert row["rmse"] == row["rmse y"] == pytest.approx(np.sqrt((0.5**2 + 0.05**2) / 2.0))
    assert (row["coverage f"], row["coverage y"], row["rmse y stated"]) == (0.5, 1.0, 1.25)
    assert (row["warned"], row["warned concurvity"], row["warned uneven"]) == (1.0, 1.0, 0.0)


def test_the_product_has_the_strength_it_says_and_no_lower_order(limits):
    for order in (2, 3):
        real = limits.product_of(order, 0.3).strengths()
        assert real[tuple(range(order))] == pytest.approx(0.3, rel=1e-6)
        assert {len(term) for term in real} == {1, order}


def test_copies_and_groups_are_as_alike_as_they_say(limits):
    rng = np.random.default_rng(0)
    sample = limits.copies(limits.Task("copies", "default", 0.9, 0), rng, 20_000)
    scores = np.corrcoef(ndtri(sample.x[:, :4]), rowvar=False)
    # four standard errors of a correlation of 20,000 rows: 4 (1 − 0.9²)/√n and 4/√n
    assert abs(scores[0, 1] - 0.9) < 0.006
    assert abs(scores[2, 3] - 0.9) < 0.006
    assert abs(scores[1, 2]) < 0.03
    sample = limits.groups(limits.Task("groups", "default", 0.6, 0), rng, 20_000)
    x, away = sample.x.reshape(2000, 10, -1), (sample.y - limits.f1(sample.x)).reshape(2000, 10)
    assert (np.ptp(x[:, :, list(limits.OF_GROUPS)], axis=1) == 0.0).all()
    within = away.var(axis=1, ddof=1).mean()
    between = away.mean(axis=1).var(ddof=1) - within / 10
    assert between / (between + within) == pytest.approx(0.6, abs=0.05)


@pytest.fixture(scope="module")
def recorded():
    return pd.read_csv(ROOT / "experiments/results/limits.csv")


# What the page says with results in it: words, and where each number is. "terms" are inputs and interactions together.
QUOTES = (
    ("RMSE of f is {:.2f} without correlation and {:.2f} at 0.99", "correlated@0 rmse", "correlated@0.99 rmse"),
    (
        "95 % intervals of new y cover {:.2f}, those of f {:.2f} at 0.95 and {:.2f} at 0.99",
        "correlated@0.99 coverage y",
        "correlated@0.95 coverage f",
        "correlated@0.99 coverage f",
    ),
    ("warns in {:.0%} of fits at 0.8 and {:.0%} at 0.9", "correlated@0.8 warned", "correlated@0.9 warned"),
    (
        "At 0.95, {:.2f} of the five inputs and {:.2f} of the one interaction are missed, at 0.99 {:.2f} and {:.2f}",
        "correlated@0.95 missed inputs",
        "correlated@0.95 missed interactions",
        "correlated@0.99 missed inputs",
        "correlated@0.99 missed interactions",
    ),
    ("false terms are {:.2f} per fit", "correlated@0.99 false terms"),
    (
        "bands of effects cover {:.2f} and {:.2f}",
        "correlated@0.95 coverage bands",
        "correlated@0.99 coverage bands",
    ),
    (
        "There RMSE is {:.2f} and {:.2f}, and intervals of f cover {:.2f} and {:.2f}",
        "correlated@0.95 rmse product",
        "correlated@0.99 rmse product",
        "correlated@0.95 coverage f product",
        "correlated@0.99 coverage f product",
    ),
    (
        "{:.0%} of fits at 0.9, {:.0%} at 0.95, {:.0%} at 0.99",
        "correlated@0.9 warned concurvity",
        "correlated@0.95 warned concurvity",
        "correlated@0.99 warned concurvity",
    ),
    (
        "missed in {:.0%} of fits at 0.8, in {:.0%} at 0.9, in {:.0%} at 0.99",
        "copies@0.8 missed interactions",
        "copies@0.9 missed interactions",
        "copies@0.99 missed interactions",
    ),
    (
        "{:.2f} false inputs per fit at 0.9, {:.2f} at 0.99",
        "copies@0.9 false inputs",
        "copies@0.99 false inputs",
    ),
    ("probabilities are too high by {:.2f} and {:.2f}", "copies@0.9 overstated", "copies@0.99 overstated"),
    (
        "Where rows are, f is right (at 0.99 RMSE {:.2f}, coverage {:.2f})",
        "copies@0.99 rmse",
        "copies@0.99 coverage f",
    ),
    (
        "where the copies differ it is not (RMSE {:.2f}, coverage {:.2f})",
        "copies@0.99 rmse product",
        "copies@0.99 coverage f product",
    ),
    ("{:.0%} of fits warn at 0.9, {:.0%} at 0.99", "copies@0.9 warned", "copies@0.99 warned"),
    (
        "RMSE of f is {:.2f} with 1000 rows, {:.2f} with 200, {:.2f} with 100, {:.2f} with 50",
        "rows@1000 rmse",
        "rows@200 rmse",
        "rows@100 rmse",
        "rows@50 rmse",
    ),
    (
        "Of five inputs {:.2f} are missed with 100 rows, {:.2f} with 50",
        "rows@100 missed inputs",
        "rows@50 missed inputs",
    ),
    (
        "the interaction in {:.0%} of fits with 200 rows and {:.0%} with 100",
        "rows@200 missed interactions",
        "rows@100 missed interactions",
    ),
    (
        "intervals of f, which take the terms as given, cover {:.2f} with 100 rows and {:.2f} with 50",
        "rows@100 coverage f",
        "rows@50 coverage f",
    ),
    ("those of new y still cover {:.2f} and {:.2f}", "rows@100 coverage y", "rows@50 coverage y"),
    (
        "{:.0%} of fits warn with 50 rows and {:.0%} with 100",
        "rows@50 warned",
        "rows@100 warned",
    ),
    (
        "RMSE becomes {:.2f} with 50 rows and {:.2f} with 100, coverage of f {:.2f} and {:.2f}",
        "rows@50 rmse/inputs alone",
        "rows@100 rmse/inputs alone",
        "rows@50 coverage f/inputs alone",
        "rows@100 coverage f/inputs alone",
    ),
    ("With 200 it does harm: RMSE {:.2f}", "rows@200 rmse/inputs alone"),
    (
        "RMSE of f grows from {:.2f} to {:.2f} with three degrees of freedom and {:.2f} with two",
        "tails@inf rmse",
        "tails@3 rmse",
        "tails@2 rmse",
    ),
    (
        "where {:.2f} of six terms are missed and {:.2f} false ones reported per fit",
        "tails@2 missed terms",
        "tails@2 false terms",
    ),
    (
        "Intervals of f cover {:.2f}, those of new y {:.2f}",
        "tails@2 coverage f",
        "tails@2 coverage y",
    ),
    (
        "{:.0%} of fits warn with three degrees, {:.0%} with two",
        "tails@3 warned",
        "tails@2 warned",
    ),
    (
        "RMSE {:.2f} with two degrees, {:.2f} missed, coverage of f {:.2f}, of bands {:.2f}",
        "tails@2 rmse/student_t",
        "tails@2 missed terms/student_t",
        "tails@2 coverage f/student_t",
        "tails@2 coverage bands/student_t",
    ),
    ("RMSE is {:.2f} where the noise is Gaussian after all", "tails@inf rmse/student_t"),
    (
        "With 1 % of the cells wrong RMSE of f is {:.2f} instead of {:.2f}, with 3 % {:.2f}, with 10 % {:.2f}",
        "outliers@0.01 rmse",
        "outliers@0 rmse",
        "outliers@0.03 rmse",
        "outliers@0.1 rmse",
    ),
    (
        "intervals of f cover {:.2f}, {:.2f} and {:.2f}",
        "outliers@0.01 coverage f",
        "outliers@0.03 coverage f",
        "outliers@0.1 coverage f",
    ),
    (
        "the interaction is missed in {:.0%} of fits with 3 % and {:.0%} with 10 %",
        "outliers@0.03 missed interactions",
        "outliers@0.1 missed interactions",
    ),
    ("{:.0%} of fits warn with 10 %", "outliers@0.1 warned"),
    (
        "RMSE is {:.2f} with 3 % and {:.2f} with 10 %, coverage {:.2f} and {:.2f}",
        "outliers@0.03 rmse/blanked",
        "outliers@0.1 rmse/blanked",
        "outliers@0.03 coverage f/blanked",
        "outliers@0.1 coverage f/blanked",
    ),
    (
        "{:.2f} false interactions per fit with 3 % and {:.2f} with 10 %",
        "outliers@0.03 false interactions/blanked",
        "outliers@0.1 false interactions/blanked",
    ),
    (
        "missed in {:.0%} of fits at 0.3, in {:.0%} at 0.2, in {:.0%} at 0.15",
        "threefold@0.3 missed interactions",
        "threefold@0.2 missed interactions",
        "threefold@0.15 missed interactions",
    ),
    ("where intervals of f cover {:.2f}", "threefold@0.15 coverage f"),
    ("{:.0%} of fits do at 0.2", "threefold@0.2 warned"),
    ("were added in {:.0%} of fits at a strength of 2", "fourfold@2 remainder"),
    (
        "RMSE of f is {:.2f} at 0.5 and {:.2f} at 2, coverage {:.2f} and {:.2f}",
        "fourfold@0.5 rmse",
        "fourfold@2 rmse",
        "fourfold@0.5 coverage f",
        "fourfold@2 coverage f",
    ),
    (
        "{:.2f} false interactions per fit at 1, {:.2f} at 2",
        "fourfold@1 false interactions",
        "fourfold@2 false interactions",
    ),
    (
        "Diagnostics warn in {:.0%} of fits at 0.2, {:.0%} at 0.5, {:.0%} at 1",
        "fourfold@0.2 warned",
        "fourfold@0.5 warned",
        "fourfold@1 warned",
    ),
    (
        "RMSE of f is {:.2f} where a step takes half the range and {:.2f} where it is a jump",
        "steps@0.5 rmse",
        "steps@0 rmse",
    ),
    (
        "Intervals of f cover {:.2f} and {:.2f}, close to a jump {:.2f}",
        "steps@0.5 coverage f",
        "steps@0 coverage f",
        "steps@0 coverage f near",
    ),
    (
        "bands of effects {:.2f} at jumps, intervals of new y {:.2f}",
        "steps@0 coverage bands",
        "steps@0 coverage y",
    ),
    ("{:.0%} of fits warn at jumps", "steps@0 warned"),
    (
        "with 2000 rows intervals of f cover {:.2f} at jumps, close to one {:.2f}",
        "steps@0 coverage f/more rows",
        "steps@0 coverage f near/more rows",
    ),
    (
        "With 30 % of the noise's variance in groups there are {:.2f} false terms per fit, with 60 % {:.2f}",
        "groups@0.3 false terms",
        "groups@0.6 false terms",
    ),
    (
        "Probabilities are too high by {:.2f} and {:.2f}",
        "groups@0.3 overstated",
        "groups@0.6 overstated",
    ),
    (
        "intervals of f cover {:.2f} and {:.2f}, bands of shared inputs {:.2f} and {:.2f}",
        "groups@0.3 coverage f",
        "groups@0.6 coverage f",
        "groups@0.3 coverage bands shared",
        "groups@0.6 coverage bands shared",
    ),
    (
        "states an RMSE of y of {:.2f} with 60 %; in new groups it is {:.2f}",
        "groups@0.6 rmse y stated",
        "groups@0.6 rmse y",
    ),
    (
        "{:.0%} of fits warn with 10 %, {:.0%} with 30 %, {:.0%} with 60 %",
        "groups@0.1 warned",
        "groups@0.3 warned",
        "groups@0.6 warned",
    ),
    (
        "{:.2f} false terms, bands {:.2f}, RMSE of y in new groups {:.2f}",
        "groups@0.6 false terms/group",
        "groups@0.6 coverage bands shared/group",
        "groups@0.6 rmse y/group",
    ),
    (
        "A tenth of the range outside, RMSE of f is {:.2f} instead of {:.2f}, and half the range outside {:.2f}",
        "outside@0.1 rmse",
        "outside@0 rmse",
        "outside@0.5 rmse",
    ),
    (
        "intervals of f cover {:.2f} and {:.2f}, of new y {:.2f} and {:.2f}",
        "outside@0.1 coverage f",
        "outside@0.5 coverage f",
        "outside@0.1 coverage y",
        "outside@0.5 coverage y",
    ),
    ("{:.2f} of new y at half the range", "outside@0.5 coverage y/conformal"),
)


def quoted(recorded):
    """The quotes, filled in from the csv."""
    means = recorded.groupby(["case", "fit", "severity", "quantity"])["value"].mean()

    def at(place):
        address, _, fit = place.partition("/")
        where, quantity = address.split(" ", 1)
        case, severity = where.split("@")
        own = means[case, fit or "default", float(severity)]
        if quantity.endswith(" terms"):
            return own[quantity.replace("terms", "inputs")] + own[quantity.replace("terms", "interactions")]
        return own[quantity]

    return [re.sub(r"(?<=\d)%", " %", words.format(*map(at, places))) for words, *places in QUOTES]


# Numbers that are no results: code, names, levels, laws of what was simulated.
SETTINGS = (
    r"`[^`]*`",
    r"!\[[^\]]*\]\([^)]*\)",
    r"\bx\d+\b",
    r"\bf1\b",
    r"95 %",
    r"\(0, 1\]",
    r"N\(0, 10²\)",
    r"from 0\.9 on",
    r"Recorded with version .* -->",
)


def test_every_number_on_the_page_is_the_recorded_one(recorded, limits):
    text = " ".join((ROOT / "docs/limits.md").read_text().split())
    seeds = recorded.groupby(["case", "fit", "severity"])["seed"].nunique()
    spread = np.sqrt(sum(s**2 for s in limits.f1.strengths().values()))
    setting = [
        f"{limits.N_ROWS} rows, {limits.N_INPUTS} inputs",
        f"noise of sd {limits.NOISE:g} (that of f is {spread:.1f})",
        f"{limits.N_TEST} new rows, {seeds.min()} seeds",
        f"rank correlation is above {CONCURVE}",
    ]
    assert seeds.nunique() == 1
    said = [*setting, *quoted(recorded)]
    assert [quote for quote in said if quote not in text] == []
    for quote in sorted(said, key=len, reverse=True):  # some lie inside others
        text = text.replace(quote, "")
    for pattern in SETTINGS:
        text = re.sub(pattern, "", text)
    assert re.findall(r"\S*\d\S*", text) == []


def test_the_page_shows_every_figure_with_words_for_it(limits):
    shown = dict(re.findall(r"!\[([^\]]+)\]\(images/limits-(\w+)\.png\)", (ROOT / "docs/limits.md").read_text()))
    assert sorted(shown.values()) == sorted(limits.FIGURES)
    for name in limits.FIGURES:
        assert matplotlib.image.imread(ROOT / f"docs/images/limits-{name}.png").shape[1] == 900
