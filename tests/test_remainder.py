"""What terms leave out: seen where it is there and only there, added as one term, carried by all that a model does."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import vertebra as vb
from vertebra.machine.file import read, write
from vertebra.metrics import coverage, rmse
from vertebra.models import beside
from vertebra.models import networks as fitting
from vertebra.models.calibration import LeftOut, left_out
from vertebra.models.remainder import Bumps, Ridge, blend, is_clear, is_something_left
from vertebra.pages.report import page

NAMES = ["a", "b", "c", "d", "kind", "gap"]


def table(n, seed, noise=0.1):
    """a main effect, a shift by category, and cos π(a + b + c + d), which no function of three of them explains."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 4)), columns=NAMES[:4])
    x["kind"] = rng.choice(["low", "high"], n)
    x["gap"] = np.where(rng.random(n) < 0.1, np.nan, rng.standard_normal(n))
    together = np.cos(0.6 * np.pi * x[NAMES[:4]].sum(axis=1))
    f = x["a"] + 0.5 * (x["kind"] == "high") + 1.5 * together
    return x, (f + noise * rng.standard_normal(n)).to_numpy()


@contextlib.contextmanager
def small_ensembles():
    """Few small networks and few steps: enough to learn something."""
    with pytest.MonkeyPatch.context() as patch:
        small = dict(fitting.SCHEMES["tabular"], widths=(4, 32), n_restarts=4, folds=2, scales=(3.0, 10.0))
        patch.setitem(fitting.SCHEMES, "tabular", small)
        patch.setattr(beside, "TRIED", small)
        patch.setattr(fitting, "MOST_STEPS", 800)
        yield


@pytest.fixture(scope="module")
def model():
    with small_ensembles():
        return vb.AdditiveRegressor(random_state=0, conformal=True).fit(*table(1250, 0))


@pytest.fixture(scope="module")
def terms_alone():
    return vb.AdditiveRegressor(remainder=False, random_state=0).fit(*table(1000, 0))


def test_errors_left_out_are_those_of_ridges_fitted_without_the_row(rng):
    features, y, weight = rng.standard_normal((12, 4)), rng.standard_normal((12, 2)), rng.uniform(0.5, 3.0, 12)
    penalties = np.array([0.1, 10.0])
    for penalty, errors in zip(penalties, Ridge(features, weight, penalties).errors(y), strict=True):
        for i in range(12):
            # one of the rows that a weight stands for, or all of less than one
            rest = np.where(np.arange(12) == i, np.maximum(weight - 1.0, 0.0), weight)
            gram = features.T @ (rest[:, None] * features) + penalty * np.eye(4)
            v = np.linalg.solve(gram, features.T @ (rest[:, None] * y))
            np.testing.assert_allclose(errors[i], y[i] - features[i] @ v, rtol=1e-9)


def test_bumps_say_of_each_target_what_they_would_say_of_it_alone(rng):
    x, y, weight = rng.standard_normal((300, 5)), rng.standard_normal((300, 2)), rng.uniform(0.5, 3.0, 300)
    bumps = Bumps(x, weight)
    first = list(bumps.errors(y[:, :1]))
    for (rows, both), (same, one), (again, other) in zip(
        bumps.errors(y), first, Bumps(x, weight).errors(y[:, 1:]), strict=True
    ):
        np.testing.assert_array_equal(rows, same)
        np.testing.assert_array_equal(rows, again)
        np.testing.assert_allclose(both, np.concatenate([one, other], axis=1), rtol=1e-8, atol=1e-10)


def test_nothing_is_seen_in_noise(rng):
    found = [
        is_something_left(rng.standard_normal((300, 6)), rng.standard_normal((300, 1)), np.ones(300)) for _ in range(40)
    ]
    assert not any(found)
    heavy = [
        is_something_left(rng.standard_normal((300, 6)), rng.standard_t(3, (300, 1)), np.ones(300)) for _ in range(40)
    ]
    assert sum(heavy) <= 1


def test_the_nearest_rows_see_what_is_too_local_for_bumps(rng):
    along, weight = rng.random(1500), np.ones(1500)
    x = np.stack([np.cos(np.pi * k * along) for k in range(1, 5)], axis=1)
    away = np.sign(np.sin(120.0 * np.pi * along))[:, None] + 0.5 * rng.standard_normal((1500, 1))
    bumps = Bumps(x, weight)
    assert not any(is_clear(away[rows] ** 2, error**2, weight[rows]).any() for rows, error in bumps.errors(away))
    assert is_something_left(x, away, weight, bumps)
    # rows that stand there twice are not their own neighbours
    assert not is_something_left(*(np.repeat(each, 2, axis=0) for each in (x, rng.standard_normal((1500, 1)), weight)))


def test_what_the_nearest_rows_say_is_their_mean_worked_out_one_by_one(rng):
    x, y, weight = rng.standard_normal((60, 3)), rng.standard_normal((60, 2)), rng.uniform(0.5, 2.0, 60)
    x[5] = x[6]
    bumps, scaled = Bumps(x, weight), x / x.std(axis=0)
    said = next(bumps.nearest(y))
    for row, i in enumerate(bumps.order):
        others = np.unique(scaled[np.any(scaled != scaled[i], axis=1)], axis=0)
        far = np.linalg.norm(others - scaled[i], axis=1)
        near = np.argsort(far)[:3]
        own = [np.flatnonzero(np.all(scaled == others[k], axis=1)) for k in near]
        counts = np.array([weight[k].sum() for k in own]) * np.maximum(1.0 - (far[near] / far[near[-1]]) ** 2, 1e-3)
        mean = [np.average(y[k], axis=0, weights=weight[k]) for k in own]
        np.testing.assert_allclose(said[row], counts @ mean / counts.sum(), rtol=1e-9)


def test_a_function_of_four_inputs_is_seen_and_too_little_is_not_looked_at(rng):
    x = rng.uniform(-1.0, 1.0, (1500, 4))
    away = np.cos(0.6 * np.pi * x.sum(axis=1))[:, None]
    assert is_something_left(x, away + rng.standard_normal((1500, 1)), np.ones(1500))
    assert not is_something_left(x[:100], away[:100], np.ones(100))
    x[:, 3] = 0.0
    assert not is_something_left(x, away, np.ones(1500))


def said_by(rng, error, n=4000):
    """Terms that miss a remainder of size 1, two networks of sixteen that miss it by `error` each; noise of sd 0.5."""
    remainder = rng.standard_normal((n, 1))
    y = remainder + 0.5 * rng.standard_normal((n, 1))
    alone = error**2 * np.ones((n, 1))
    mean = remainder + error * rng.standard_normal((n, 2)).mean(axis=1, keepdims=True)
    return (np.zeros((n, 1)), 0.01 * np.ones((n, 1))), LeftOut(mean, alone, (1 / 2 - 1 / 16) * alone), y


def test_the_share_is_the_one_that_all_networks_together_would_be_best_with(rng):
    terms, networks, y = said_by(rng, 0.8)
    found = blend(terms, networks, y, np.ones(len(y)), n_draws=1000)
    assert found is not None
    # remainder and error are independent: α = 1/(1 + 0.64/16), and the error falls by that much
    assert found.share[0] == pytest.approx(1 / (1 + 0.64 / 16), abs=0.03)
    assert np.mean(found.sizes**2) == pytest.approx(found.share[0], abs=0.1)
    assert found.probability[0] > 0.999
    np.testing.assert_allclose(found.said.mean, found.share * networks.mean)
    spread = (1 - found.share) ** 2 * 0.01 + found.share**2 * 0.64
    np.testing.assert_allclose(found.said.variance, np.broadcast_to(spread, y.shape))


def test_networks_that_know_nothing_are_left_out(rng):
    terms, networks, y = said_by(rng, 0.8)
    assert blend(terms, networks, rng.standard_normal(y.shape), np.ones(len(y)), n_draws=1000) is None


def test_networks_that_disagree_by_chance_are_not_believed():
    """They know nothing, and disagree on some rows: what is taken off for their fewness must not let them in."""
    kept = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spread = np.where(rng.random((1, 600, 1)) < 0.5, 1.0, 0.001)
        unseen = np.arange(16)[:, None] % 8 == np.arange(600) % 8
        said = left_out(spread * rng.standard_normal((16, 600, 1)), np.zeros((16, 600, 1)), unseen)
        y, terms = rng.standard_normal((600, 1)), (np.zeros((600, 1)), np.full((600, 1), 0.01))
        kept += blend(terms, said, y, np.ones(600), n_draws=10) is not None
    assert kept == 0


def test_of_two_targets_only_the_one_that_needs_it_has_a_remainder(rng):
    (mean, variance), networks, y = said_by(rng, 0.5)
    both = LeftOut(*(np.concatenate([part, part], axis=1) for part in networks))
    twice = np.concatenate([y, rng.standard_normal(y.shape)], axis=1)
    found = blend((np.tile(mean, 2), np.tile(variance, 2)), both, twice, np.ones(len(y)), n_draws=1000)
    assert found is not None
    assert found.share[0] > 0.9
    assert found.share[1] == 0.0
    assert found.probability[1] == 0.0
    assert not found.sizes[:, 1].any()


def test_weights_count_rows(rng):
    terms, networks, y = said_by(rng, 0.8, n=500)
    weight = np.where(np.arange(500) < 200, 2.0, 1.0)
    doubled = np.append(np.arange(500), np.arange(200))
    again = [LeftOut(*(part[doubled] for part in networks)), y[doubled], np.ones(700)]
    one = blend(terms, networks, y, weight, n_draws=10)
    other = blend(tuple(t[doubled] for t in terms), *again, n_draws=10)
    np.testing.assert_allclose(one.share, other.share)
    np.testing.assert_allclose(one.sizes, other.sizes)


def test_the_remainder_predicts_what_terms_cannot(model, terms_alone):
    assert model.model_.posterior.remainder is not None
    assert terms_alone.model_.posterior.remainder is None
    x, y = table(1000, 1)
    assert rmse(y, model.predict(x)) < 0.6 * rmse(y, terms_alone.predict(x))
    # 1000 rows: a standard error of 0.7 %; conformal intervals cover at least what they say
    assert 0.92 < coverage(y, *model.predict_interval(x).T) < 0.995
    assert 0.9 < coverage(y, *model.predict_quantiles(x, [0.025, 0.975]).T) < 0.995
    assert any("networks over all inputs" in note for note in model.diagnostics_.notes)


def test_the_ways_to_predict_agree(model):
    x, _ = table(60, 2)
    mean, sd = model.predict(x, return_std=True)
    np.testing.assert_allclose(model.predict(x), mean)
    draws = model.sample_y(x, 4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=6 * sd.max() / np.sqrt(4000))
    assert np.mean(draws.std(axis=1) / sd) == pytest.approx(1.0, abs=0.03)


def test_it_is_one_term_of_all_inputs(model):
    found = model.effects()
    everything = tuple(NAMES)
    row = found[[term == everything for term in found["term"]]].iloc[0]
    assert row["order"] == 6
    assert row["probability"] > 0.95
    assert 0.0 < row["lower"] < row["strength"] < row["upper"]
    # 1.5 cos has the size 1.06; the networks learn most of it
    assert 0.6 < row["strength"] < 1.1
    assert found["sobol"].sum() == pytest.approx(1.0)
    assert everything not in model.interactions()["term"].tolist()
    with pytest.raises(ValueError, match="of all inputs"):
        model.effect(everything)


def test_parts_sum_to_the_prediction(model):
    x, _ = table(40, 3)
    parts = model.eval_terms(x)
    assert parts.columns[-1] == tuple(NAMES)
    np.testing.assert_allclose(parts.sum(axis=1), model.predict(x), atol=1e-10)
    one = model.explain(x.iloc[:1])
    assert one["mean"].sum() == pytest.approx(model.predict(x.iloc[:1])[0])
    anchored = model.eval_terms(x, baseline=x.iloc[:1])
    np.testing.assert_allclose(anchored.sum(axis=1), model.predict(x), atol=1e-10)
    # differences from the baseline vanish there
    np.testing.assert_allclose(anchored.iloc[0, 1:].to_numpy(float), 0.0, atol=1e-10)


@pytest.mark.parametrize("change", [{"a": np.nan}, {"kind": "never seen"}])
def test_what_was_never_seen_is_left_to_the_terms(model, change):
    x, _ = table(50, 5)
    strange = x.assign(**change)
    coded = model.model_.x(strange)
    ours = model.model_.posterior.terms.moments(coded)
    for one, other in zip(model.model_.posterior.moments(coded), ours, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.mean(model.predict(strange, return_std=True)[1]) > np.mean(model.predict(x, return_std=True)[1])


def test_a_warm_start_keeps_it(model):
    x, y = table(1250, 0)
    again = clone(model).set_params(warm_start=True)
    again.model_ = model.model_
    with small_ensembles():
        assert again.fit(x, y).model_.posterior.remainder is not None


def test_only_networks_may_act():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (1500, 4))
    y = np.stack([np.prod(np.sign(x), axis=1), rng.standard_normal(1500)], axis=1)
    with small_ensembles():
        model = vb.AdditiveRegressor(random_state=0).fit(x, y + 0.1 * rng.standard_normal((1500, 2)))
    assert model.model_.posterior.remainder is not None
    assert model.model_.posterior.remainder.share[0] > 0.5
    # the other target is noise, and keeps the noise it was fitted with
    assert model.model_.posterior.remainder.share[1] == 0.0
    assert len(model.effects(output=1)) == len(model.model_.posterior.terms.terms())
    assert float(np.asarray(model.model_.likelihood.scale)[1]) == pytest.approx(1.0, abs=0.06)
    assert "networks that read all inputs" in page(model.model_, None, {})


@pytest.mark.parametrize("name", ["remainder/sizes", "remainder/encoding/4", "remainder/had_gaps", "remainder/share"])
def test_a_damaged_file_is_refused(model, name, tmp_path):
    model.save(tmp_path / "m.vertebra")
    kind, header, arrays = read(tmp_path / "m.vertebra")
    write(tmp_path / "m.vertebra", kind, header, arrays | {name: arrays[name][:-1]})
    with pytest.raises(vb.BadFile):
        vb.load(tmp_path / "m.vertebra")


def test_it_is_saved_and_loaded(model, tmp_path):
    x, y = table(40, 4)
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.log_prob(x, y), model.log_prob(x, y))
    pd.testing.assert_frame_equal(again.effects(), model.effects())


def test_what_cannot_carry_it_says_so(model, tmp_path):
    with pytest.raises(ValueError, match="remainder=False"):
        model.to_onnx(tmp_path / "m.onnx")
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "The term of all inputs stays out" in page
    assert "Networks over all inputs add" in page


def test_clusters_of_the_users_own_have_no_remainder():
    x, y = table(400, 0)
    found = vb.AdditiveRegressor(clusters=[("a",), ("b",)], random_state=0).fit(x, y)
    assert found.model_.posterior.remainder is None
