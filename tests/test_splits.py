"""Terms of which only the sum is known, since their inputs go together: told as one."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import vertebra as vb
from vertebra.cli.app import app
from vertebra.effects.words import UNDETERMINED, lines
from vertebra.terms.components import Components
from vertebra.terms.joint import Measure
from vertebra.terms.splits import sum_of_squares, undetermined


def near_copies(rho, n=200, n_copies=1, seed=0):
    """x0 and near copies of it, all of which act, and one more input."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, n_copies + 3))
    for k in range(1, n_copies + 1):
        x[:, k] = rho * x[:, 0] + np.sqrt(1.0 - rho**2) * x[:, k]
    f = np.sin(x[:, : n_copies + 1]).sum(axis=1) + x[:, n_copies + 1]
    return x, f, f + 0.5 * rng.standard_normal(n)


def fitted(rho, n_copies=1, **rest):
    x, f, y = near_copies(rho, n_copies=n_copies, **rest)
    clusters = [(i,) for i in range(n_copies + 2)]
    return vb.AdditiveRegressor(clusters=clusters, random_state=0).fit(x, y), x, f


@pytest.fixture(scope="module")
def model():
    return fitted(0.999)[0]


def test_near_copies_that_both_act_are_told_as_one(model):
    table = model.effects()
    own = table[table["group"] == "x0 + x1"]
    assert sorted(own["term"]) == [("x0",), ("x1",)]
    # one strength, that of the sum; sin(x0) + sin(x1) has it over the rows
    x, _, _ = near_copies(0.999)
    true = np.sin(x[:, :2]).sum(axis=1).std()
    assert own["strength"].nunique() == 1
    assert own["lower"].iloc[0] < true < own["upper"].iloc[0]
    assert own["sd"].iloc[0] < 0.1 * true  # the parts are not known to a third of themselves
    assert own[["share_lower", "share_upper"]].isna().all().all()
    assert table["share"].sum() == pytest.approx(1.0, abs=1e-10)
    assert (table["group"] == "").sum() == 1


def test_a_part_has_no_band_of_its_own_and_predictions_have(model):
    table = model.effect("x0")
    assert table.attrs["group"] == "x0 + x1"
    assert table[["sd", "lower", "upper"]].isna().all().all()
    assert table["mean"].notna().all()
    assert model.effect("x2")["sd"].notna().all()
    # the product measure is another question, and a baseline too
    assert model.effect("x0", measure="product")["sd"].notna().all()
    assert (model.effects(measure="product")["group"] == "").all()


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_inputs_that_can_be_told_apart_are(rho):
    assert (fitted(rho)[0].effects()["group"] == "").all()


def test_three_near_copies_are_one_set_though_no_two_of_them_are_known_together():
    model = fitted(0.999, n_copies=2)[0]
    assert set(model.effects()["group"]) == {"x0 + x1 + x2", ""}


def test_inputs_that_go_together_and_are_known_one_by_one_are_no_set():
    # each goes with the others at 0.95 and is known to a quarter of itself, and so is their sum, far better
    rng = np.random.default_rng(0)
    x = np.sqrt(0.95) * rng.standard_normal((400, 1)) + np.sqrt(0.05) * rng.standard_normal((400, 5))
    y = x.sum(axis=1) + rng.standard_normal(400)
    model = vb.AdditiveRegressor(clusters=[(i,) for i in range(5)], random_state=0).fit(x, y)
    assert (model.effects()["group"] == "").all()
    assert model.effect("x0")["sd"].notna().all()


def test_what_is_told_apart_from_a_set_is_none_of_it():
    rng = np.random.default_rng(0)
    x, _, y = near_copies(0.999, n=300)
    # goes with the copies, and what is known of the three together is more than of these two
    z = 0.95 * x[:, :1] + np.sqrt(1.0 - 0.95**2) * rng.standard_normal((300, 1))
    model = vb.AdditiveRegressor(clusters=[(0,), (1,), (2,), (4,)], random_state=0)
    table = model.fit(np.concatenate([x, z], axis=1), y + z[:, 0] + rng.standard_normal(300)).effects()
    assert set(table["group"]) == {"x0 + x1", ""}


def test_the_strongest_of_a_set_comes_first_and_gives_it_its_place_in_lists():
    firsts = set()
    for seed in range(4):
        model, _, _ = fitted(0.999, seed=seed)
        table = model.effects().query("group != ''")
        sizes = model.model_.posterior.sizes(0, None, Measure.DATA)
        alone = [float(sizes[int(name[1:]),].strength.mean()) for (name,) in table["term"]]
        assert len(alone) == 2
        assert alone == sorted(alone, reverse=True)
        assert lines(model.effects())[0].term == table["term"].iloc[0]
        firsts.add(table["term"].iloc[0])
    assert len(firsts) == 2  # not that of the first column


def test_idle_inputs_are_no_set():
    x, _, y = near_copies(0.999, n=300, seed=3)
    rng = np.random.default_rng(5)
    idle = rng.standard_normal((300, 2))
    model = vb.AdditiveRegressor(clusters=[(0,), (1,), (2,), (4,), (5,)], random_state=0)
    table = model.fit(np.concatenate([x, idle], axis=1), y).effects().set_index("term")["group"]
    assert table[[("x4",), ("x5",)]].eq("").all()


def test_the_square_of_a_sum_is_that_over_the_rows():
    model, x, _ = fitted(0.99)
    terms = model.model_.posterior.terms
    view = Components(terms, terms.joint)
    draws = terms.weights(0).draw(5, np.random.default_rng(0))
    at = model.model_.x(x)
    parts = [view.at(t, [at[:, i] for i in t]) @ view.raised(draws)[view.made_of(t)[0]] for t in ((0,), (1,))]
    wanted = np.mean((parts[0] + parts[1]) ** 2, axis=0)
    np.testing.assert_allclose(sum_of_squares(view, [(0,), (1,)], draws), wanted, rtol=1e-8)


def test_sets_are_those_whose_sum_varies_by_less_than_a_quarter_of_its_parts():
    for rho, n_sets in ((0.5, 0), (0.999, 1)):
        terms = fitted(rho)[0].model_.posterior.terms
        view = Components(terms, terms.joint)
        draws = terms.weights(0).draw(400, np.random.default_rng(1))
        found = undetermined(view, draws)
        assert len(found) == n_sets
        for group in found:
            raised = view.raised(draws)
            spread = {}
            for name, own in (("all", group), *((t, (t,)) for t in group)):
                total = np.zeros(draws.shape)
                for term in own:
                    columns, both, lift = view.made_of(term)
                    total[both] += lift @ raised[columns]
                away = total - total.mean(axis=1, keepdims=True)
                spread[name] = np.mean(np.sum(away * (terms.joint.gram @ away), axis=0))
            assert spread["all"] < 0.25 * sum(spread[t] for t in group)


def test_every_place_says_so(model, tmp_path):
    words = f"x0 + x1, {UNDETERMINED}"
    assert words in model.summary().text
    assert words in model._repr_html_()
    line = lines(model.effects())[0]
    assert line.is_set
    assert line.label == words
    assert line.share == pytest.approx(model.effects().query("group != ''")["share"].sum())
    model.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert words in page
    assert "is not determined by these rows" in page
    path = tmp_path / "model.vertebra"
    model.save(path)
    run = CliRunner().invoke(app, ["effects", str(path)])
    assert run.exit_code == 0
    assert words in run.stdout
    said = json.loads(CliRunner().invoke(app, ["effects", str(path), "--json"]).stdout)
    assert {row["group"] for row in said["effects"]} == {"x0 + x1", ""}


def test_what_has_no_band_is_drawn_without_one(model):
    ax = vb.plot.effect(model, "x0")
    assert len(ax.lines) >= 1
    vb.plot.summary(model)
