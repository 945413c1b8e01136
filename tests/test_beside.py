"""Networks beside terms, whatever the likelihood: the share, the noise that is left, and what they are made of."""

import contextlib

import numpy as np
import pytest
from scipy.special import expit

import vertebra as vb
from vertebra.effects.made_of import made_of
from vertebra.likelihoods.predictive import Predictive
from vertebra.models import beside
from vertebra.models import networks as fitting
from vertebra.models.calibration import LeftOut
from vertebra.models.shares import shared

N = 3000


def truth(seed=0):
    """What terms say, what they miss, and networks that miss a little of it."""
    rng = np.random.default_rng(seed)
    terms, missed = 0.5 * rng.standard_normal((N, 1)), 0.8 * rng.standard_normal((N, 1))
    said = LeftOut(terms + missed + 0.3 * rng.standard_normal((N, 1)), np.full((N, 1), 0.02), np.full((N, 1), 0.01))
    return rng, terms, missed, said


def of(name):
    """Rows of a likelihood, with the one that terms alone were fitted with."""
    rng, terms, missed, said = truth()
    f = terms + missed
    if name == "bernoulli":
        return (rng.random((N, 1)) < expit(f)).astype(float), vb.Bernoulli(), terms, said
    if name == "poisson":
        return rng.poisson(np.exp(f)).astype(float), vb.Poisson(), terms, said
    if name == "negative_binomial":
        y = rng.poisson(np.exp(f) * rng.gamma(4.0, 0.25, (N, 1))).astype(float)
        return y, vb.NegativeBinomial(dispersion=np.array([1.2])), terms, said
    if name == "student_t":
        return f + 0.4 * rng.standard_t(4.0, (N, 1)), vb.StudentT(scale=np.array([0.9]), degrees=5.0), terms, said
    # log s(x)/scale = g/2, g = 1 or −1
    second = np.where(np.arange(N)[:, None] % 2 == 0, 1.0, -1.0)
    y = f + 0.4 * np.exp(0.5 * second) * rng.standard_normal((N, 1))
    return y, vb.HeteroscedasticGaussian(scale=np.array([0.9])), np.concatenate([terms, second], axis=1), said


NAMES = ["bernoulli", "poisson", "negative_binomial", "student_t", "heteroscedastic"]


@pytest.mark.parametrize("name", NAMES)
def test_networks_that_know_more_are_added_and_make_rows_left_out_likelier(name):
    y, likelihood, terms, said = of(name)
    alone = terms, np.full(terms.shape, 0.02)
    found = shared(alone, said, likelihood, y, np.ones(N), n_draws=500)
    assert found is not None
    before = Predictive(likelihood, *alone).log_prob(y).mean()
    assert found.left_out.log_prob(y).mean() > before + 0.02
    # 0.8² beside an error of 0.3²: α = 0.64/0.73
    assert found.blend.share[0] == pytest.approx(0.88, abs=0.13)
    size = np.sqrt(np.mean(found.blend.sizes[:, 0] ** 2))
    assert size == pytest.approx(0.75, abs=0.2)
    assert found.blend.probability[0] > 0.99
    # the scale is a latent function of which networks say nothing
    assert np.all(found.blend.share[1:] == 0.0)
    assert np.array_equal(found.blend.said.mean[:, 1:], terms[:, 1:])


@pytest.mark.parametrize("name", NAMES)
def test_networks_that_know_nothing_are_left_out(name):
    y, likelihood, terms, said = of(name)
    noise = said._replace(mean=terms[:, :1] + np.random.default_rng(1).standard_normal((N, 1)))
    alone = terms, np.full(terms.shape, 0.02)
    assert shared(alone, noise, likelihood, y, np.ones(N), n_draws=10) is None


def test_noise_shrinks_to_what_is_left():
    for name, read, wanted in [
        ("heteroscedastic", lambda own: np.exp(own.log_scale), 0.48),  # √(0.4² + the networks' own error)
        ("negative_binomial", lambda own: own.dispersion, 0.3),
    ]:
        y, likelihood, terms, said = of(name)
        found = shared((terms, np.full(terms.shape, 0.02)), said, likelihood, y, np.ones(N), n_draws=10)
        assert float(np.asarray(read(found.likelihood))[0]) == pytest.approx(wanted, rel=0.25)


def test_a_product_is_made_of_its_inputs_and_of_no_others():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (500, 4))

    def f(z):
        return np.stack([z[:, 0] * z[:, 1] * z[:, 2], 2.0 * z[:, 3]], axis=1)

    parts = made_of(f, x, 0)
    # 1000 points: a few per cent
    np.testing.assert_allclose(parts.total[0], [1.0, 1.0, 1.0, 0.0], atol=0.2)
    np.testing.assert_allclose(parts.main[0], 0.0, atol=0.12)
    np.testing.assert_allclose(parts.main[1], [0.0, 0.0, 0.0, 1.0], atol=0.12)
    assert parts.together[0] == pytest.approx(3.0, abs=0.4)
    assert made_of(lambda z: 0.0 * z[:, :1], x, 0).together.tolist() == [0.0]


@contextlib.contextmanager
def small():
    """Few small networks and few steps: enough to learn something."""
    with pytest.MonkeyPatch.context() as patch:
        few = dict(fitting.SCHEMES["tabular"], widths=(8, 32, 32), n_restarts=4, folds=2, scales=(3.0, 10.0))
        patch.setitem(fitting.SCHEMES, "tabular", few)
        patch.setattr(beside, "TRIED", few)
        patch.setattr(fitting, "MOST_STEPS", 600)
        yield


def product(n, seed):
    """Two classes that four inputs decide together."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 4))
    return x, np.where(rng.random(n) < expit(4.0 * np.cos(0.6 * np.pi * x.sum(axis=1)) + x[:, 0]), "yes", "no")


def test_classes_have_a_remainder_that_files_and_pages_carry_and_graphs_refuse(tmp_path):
    x, y = product(1000, 0)
    with small():
        model = vb.AdditiveClassifier(random_state=0, evaluation="left_out").fit(x, y)
        alone = vb.AdditiveClassifier(random_state=0, evaluation="left_out", remainder=False).fit(x, y)
    new, seen = product(1000, 1)
    assert model.log_prob(new, seen).mean() > alone.log_prob(new, seen).mean() + 0.02
    assert any("take the log loss from" in note for note in model.diagnostics_.notes)
    assert any("would take the log loss from" in each for each in alone.diagnostics_.warnings)
    parts = model.remainder_inputs()
    assert set(parts["input"]) == set(model.model_.names)
    assert parts.attrs["together"] > 1.5
    assert alone.remainder_inputs().empty
    terms = model.eval_terms(new[:20])
    np.testing.assert_allclose(terms.sum(axis=1), model.predict_f(new[:20])[0], atol=1e-10)
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    assert again.remainder_inputs().equals(parts)
    model.report(tmp_path / "page.html")
    assert "on the logit scale away from this" in (tmp_path / "page.html").read_text()
    for write in (model.to_onnx, model.to_tables):
        with pytest.raises(ValueError, match="remainder=False"):
            write(tmp_path / "m.out")


@pytest.mark.slow
def test_uneven_noise_has_a_remainder_of_its_mean(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (500, 4))
    y = 2.0 * np.cos(0.6 * np.pi * x.sum(axis=1)) + 0.2 * np.exp(x[:, 3]) * rng.standard_normal(500)
    with small():
        model = vb.AdditiveRegressor(likelihood="heteroscedastic", evaluation="left_out", random_state=0).fit(x, y)
    remainder = model.model_.posterior.remainder
    assert remainder is not None
    assert remainder.share[0] > 0.5
    assert remainder.share[1] == 0.0
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    np.testing.assert_array_equal(again.log_prob(x, y), model.log_prob(x, y))
    draws = model.sample_y(x[:50], 2000, random_state=0)
    mean, sd = model.predict(x[:50], return_std=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=6 * sd.max() / np.sqrt(2000))
