"""Networks over their rows: regressed on functions of their inputs, with what that misses said."""

import numpy as np
import pytest

import vertebra as vb


def table(rho, n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    x[:, 1] = rho * x[:, 0] + np.sqrt(1.0 - rho**2) * x[:, 1]
    return x, x[:, 0] * x[:, 1] + x[:, 2] + 0.2 * rng.standard_normal(n)


def fitted(scheme, rho=0.8, **rest):
    x, y = table(rho)
    model = vb.AdditiveRegressor(scheme=scheme, clusters=[(0, 1), (2,)], random_state=0, **rest)
    return model.fit(x, y), x


@pytest.fixture(scope="module")
def model():
    return fitted("random_features")


def test_a_network_has_components_over_its_rows_beside_those_of_the_paper(model):
    network, _ = model
    table = network.effects(measure="data").set_index("term")
    rho = 0.8
    # x0 x1 over Gaussian rows: √2 ρ/(1 + ρ²) and (1 − ρ²)/√(1 + ρ²); of 400 rows, to a tenth of f's sd
    room = 0.1 * np.sqrt(1.0 + rho**2 + 1.0)
    for term in (("x0",), ("x1",)):
        assert table["strength"][[term]].item() == pytest.approx(np.sqrt(2.0) * rho / (1.0 + rho**2), abs=room)
    assert table["strength"][[("x0", "x1")]].item() == pytest.approx((1.0 - rho**2) / np.sqrt(1.0 + rho**2), abs=room)
    assert table["share"].sum() == pytest.approx(1.0, abs=1e-10)
    # the paper's stays what is usual, and has no error
    usual = network.effects()
    assert "error" not in usual.attrs
    np.testing.assert_allclose(usual["strength"], network.effects(measure="product")["strength"])
    assert usual.set_index("term")["strength"][[("x0", "x1")]].item() > 0.8


def test_what_the_regression_misses_is_said_and_is_what_it_misses(model):
    network, x = model
    error = network.effects(measure="data").attrs["error"]
    assert 0.0 < error < 0.05 * np.std(network.predict(x))
    posterior = network.model_.posterior
    at = network.model_.x(x)
    own = posterior.together.x
    whole = posterior.together.regressed(posterior.network, posterior.seed, 1000)
    missed = whole.terms.mean(own)[:, 0] - posterior.mean(own)[:, 0]
    unit = network.model_.target.unit(0)
    # the network in single precision beside it in double: 1e-4
    assert unit * np.sqrt(np.mean(missed**2)) == pytest.approx(error, rel=1e-2)
    assert len(own) == len(at)


def test_parts_of_a_network_over_its_rows_sum_to_the_prediction(model):
    network, x = model
    parts = network.eval_terms(x[:20], measure="data")
    np.testing.assert_allclose(parts.sum(axis=1), network.predict(x[:20]), rtol=1e-10, atol=1e-10)
    table = network.explain(x[3], measure="data")
    assert table["mean"].sum() == pytest.approx(float(network.predict(x[3:4])[0]), abs=1e-9)


def test_bands_of_a_linear_network_are_those_of_its_weights_and_of_others_of_draws(model):
    network, _ = model
    curve = network.effect("x2", measure="data")
    assert (curve["lower"] < curve["upper"]).all()
    inside = np.abs(curve["x2"]) < 1.5
    # nothing but x2 is in its own sub-network: both measures differ by a constant, the mean over the rows
    other = network.effect("x2", measure="product")
    away = (curve["mean"] - other["mean"])[inside]
    assert away.std() < 0.02
    # and of 400 rows that mean is known to a share of 1/√400
    strength = network.effects(measure="data").set_index("term")["strength"][[("x2",)]].item()
    wanted = np.sqrt(other["sd"] ** 2 + strength**2 / 400.0)
    np.testing.assert_allclose(curve["sd"][inside], wanted[inside], rtol=0.1)


@pytest.mark.slow
def test_draws_of_a_network_with_uncertain_weights_everywhere_are_regressed_one_by_one():
    network, x = fitted("mc_dropout", n_steps=300)
    table = network.effects(measure="data")
    assert table["share"].sum() == pytest.approx(1.0, abs=1e-10)
    parts = network.eval_terms(x[:5], measure="data")
    np.testing.assert_allclose(parts.sum(axis=1), network.predict(x[:5]), rtol=1e-9, atol=1e-9)


def test_a_file_holds_no_rows_and_so_the_product_alone(model, tmp_path):
    network, _ = model
    network.save(tmp_path / "model.vertebra")
    loaded = vb.load(tmp_path / "model.vertebra")
    np.testing.assert_allclose(loaded.effects()["strength"], network.effects()["strength"], rtol=1e-12)
    with pytest.raises(ValueError, match=r'`measure` must be "product" for this model.*holds no rows'):
        loaded.effects(measure="data")
