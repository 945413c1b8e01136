"""The scheme `tabular` through the estimators: mixed tables, classes, files."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import vertebra as vb
from vertebra.models import networks as fitting
from vertebra.models.calibration import LeftOut, chosen, doubt_by_density
from vertebra.models.reading import MOST_CODES


@pytest.fixture
def small(monkeypatch):
    """The same recipe with narrow networks: 2 folds under each of three priors."""
    usual = dict(fitting.SCHEMES["tabular"], widths=(4, 8), n_restarts=6, folds=2)
    monkeypatch.setitem(fitting.SCHEMES, "tabular", usual)


def mixed(n=240, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.normal(50.0, 20.0, n),
            "town": rng.choice(["A", "B", "C", None], n),
            "street": rng.choice([f"s{k}" for k in range(MOST_CODES + 6)], n),
            "new": rng.choice([True, False], n),
        }
    )
    table.loc[::17, "size"] = np.nan
    f = table["size"].fillna(0.0) / 20.0 + table["town"].map({"A": -2.0, "B": 1.0, "C": 2.0}).fillna(0.0)
    return table, f.to_numpy()


@pytest.fixture
def strange():
    """A level never seen, gaps, and a number far away."""
    return pd.DataFrame({"size": [1e9, np.nan], "town": ["Z", None], "street": ["s0", "new"], "new": [True, False]})


def test_a_classifier_learns_levels_gaps_and_numbers(small, strange):
    x, f = mixed()
    y = np.where(np.random.default_rng(1).random(len(f)) < expit(3.0 * (f - f.mean())), "yes", "no")
    model = vb.SkeletonClassifier(random_state=0, n_steps=300).fit(x, y)
    assert model.model_.posterior.scheme == "tabular"
    assert model.score(x, y) > 0.8
    p = model.predict_proba(strange)
    assert np.isfinite(p).all()
    assert p.shape == (2, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.evaluation_.scores["model"]["log_loss"] < 0.6  # of rows left out; 0.69 knows nothing


def test_three_classes_come_back_from_a_file(small, tmp_path, strange):
    x, f = mixed()
    y = np.digitize(f, np.quantile(f, (0.33, 0.66)))
    model = vb.SkeletonClassifier(random_state=0, n_steps=200).fit(x, y)
    model.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    for rows in (x, strange):
        np.testing.assert_allclose(again.predict_proba(rows), model.predict_proba(rows), atol=1e-12)


@pytest.mark.parametrize(
    "skeleton", [None, vb.additive(4, clusters=[(0, 1), (2, 3)], depth=2)], ids=["chain", "additive"]
)
def test_a_regression_on_embedded_inputs(small, tmp_path, skeleton, strange):
    x, f = mixed()
    y = f + 0.1 * np.random.default_rng(1).standard_normal(len(f))
    model = vb.SkeletonRegressor(skeleton, scheme="tabular", random_state=0, n_steps=600).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.skeleton_.sizes[1] == 4
    assert model.skeleton_.parents[0] == ((0,), (1,), (2,), (3,))
    assert np.isfinite(model.predict(strange, return_std=True)).all()
    model.save(tmp_path / "model.vertebra")
    np.testing.assert_allclose(vb.load(tmp_path / "model.vertebra").predict(x), model.predict(x), atol=1e-12)


def test_a_classifier_with_few_rows_of_a_class_or_a_skeleton_of_its_own_is_random_features():
    x = np.random.default_rng(0).normal(size=(30, 2))
    for given, y in ((None, np.arange(30) < 3), (vb.chain(2, 1), x[:, 0] > 0.0)):
        model = vb.SkeletonClassifier(given, n_steps=5).fit(x, y)
        assert model.model_.posterior.scheme == "random_features"


def test_equal_seeds_give_equal_ensembles(small):
    x, f = mixed(100)
    first, second = (
        vb.SkeletonClassifier(random_state=3, n_steps=20).fit(x, f > f.mean()).predict_proba(x) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_the_groups_and_the_temperature_are_those_that_rows_left_out_like_best():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(400, 1))
    y = (rng.random((400, 1)) < expit(f)).astype(float)
    noise = [3.0, 0.1, 0.1]  # the tightest group is the worst
    means = np.concatenate([4.0 * (f + s * rng.normal(size=(2, 400, 1))) for s in noise])
    unseen = np.stack([np.arange(400) % 2 == m % 2 for m in range(6)])
    kept, warmth = chosen(means, unseen, 3, vb.Bernoulli(), y, np.ones(400))
    assert kept.tolist() == [2, 3, 4, 5]
    assert 0.15 < warmth < 0.4  # a quarter, known to the error of 400 rows
    kept, warmth = chosen(means / 4.0, unseen, 3, vb.Gaussian(), f, np.ones(400))
    assert kept.tolist() == [2, 3, 4, 5]
    assert warmth == 1.0


def test_doubt_by_density_grows_where_logits_are_too_sure():
    rng = np.random.default_rng(0)
    f, wrong = rng.normal(size=(2000, 1)), 2.0 * rng.normal(size=(2000, 1))
    y = (rng.random((2000, 1)) < expit(f)).astype(float)
    ones, nothing = np.ones(2000), np.zeros((2000, 1))
    sure = LeftOut(f, np.full((2000, 1), 4.0), nothing)
    assert doubt_by_density(sure, vb.Bernoulli(), y, ones).tolist() == [0.0]
    unsure = LeftOut(f + wrong, np.full((2000, 1), 4.0), nothing)
    assert doubt_by_density(unsure, vb.Bernoulli(), y, ones)[0] > 0.0
    assert doubt_by_density(unsure, vb.Gaussian(), y, ones) is None


@pytest.mark.parametrize(
    "posterior",
    [vb.distributions.Gaussian("full"), vb.distributions.Gaussian("diagonal"), vb.PointMass()],
    ids=["full", "diagonal", "point"],
)
def test_times_multiplies_f_and_its_sd(posterior):
    layers = [vb.Layer(3, posterior=vb.PointMass(), bias=True), vb.Layer(1, posterior=posterior, bias=True)]
    network = vb.build(vb.chain(2, 2), layers, key=jr.key(0))
    x = jnp.ones((2, 4))
    noise = network.noise(jr.key(1), (4,))
    (mean, variance), (more, wider) = (n.conditional(x, noise) for n in (network, network.times(3.0)))
    np.testing.assert_allclose(more, 3.0 * mean, rtol=1e-5)
    if variance is not None:
        np.testing.assert_allclose(wider, 9.0 * variance, rtol=1e-4)
    with pytest.raises(ValueError, match="`times` needs a top layer with a Gaussian or a PointMass"):
        vb.build(vb.chain(2, 1), [vb.Layer(1, posterior=vb.Dropout())], key=jr.key(0)).times(2.0)
