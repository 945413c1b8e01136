"""What `decompose` gives for a calculus of one's own: all outputs, tables that plots draw, Laplace's approximation."""

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pytest

import vertebra as vb

X = np.random.default_rng(0).random((40, 3))


def test_all_outputs_at_once_are_each_output_by_itself():
    network = vb.build(vb.multitask(3, 2, 2), vb.mean_field([3, 2]), key=jr.key(0))
    every = vb.decompose(network, X, key=jr.key(1), n_draws=10, nodes=5, output=None)
    assert len(every) == network.n_outputs == 4
    for k, effects in enumerate(every):
        alone = vb.decompose(network, X, key=jr.key(1), n_draws=10, nodes=5, output=k)
        assert effects.keys() == alone.keys()
        for term, effect in effects.items():
            np.testing.assert_array_equal(effect.draws, alone[term].draws)


def test_the_table_of_an_effect_is_drawn():
    network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    effects = vb.decompose(network, X, key=jr.key(1))
    table = effects[2,].table(names=["a", "b", "mean"])
    assert list(table.columns) == ["mean", "mean", "sd", "lower", "upper"]
    np.testing.assert_array_equal(table.iloc[:, 0], effects[2,].axes[0].points)
    np.testing.assert_allclose(np.stack([table["lower"], table["upper"]]), effects[2,].band())
    surface = effects[0, 1].table()
    np.testing.assert_array_equal(surface["mean"].to_numpy().reshape(20, 20), effects[0, 1].mean)
    assert surface["x1"].iloc[1] == effects[0, 1].axes[1].points[1]  # the last input fastest
    assert vb.plot.effect(effects[2,]).get_xlabel() == "x2"
    vb.plot.effect(effects[0, 1])
    plt.close("all")
    with pytest.raises(ValueError, match="has no grid to be shown on"):
        effects[()].table()
    with pytest.raises(ValueError, match="`names` must have one entry per input, more than 2, got 1"):
        effects[2,].table(names=["a"])


@pytest.mark.parametrize("last_layer", [False, True])
def test_laplace_is_taken_apart_by_the_draws_of_its_functions(last_layer):
    """A constant and one effect are f at the effect's points, draw by draw."""
    layers = [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Normal(), bias=True) for d in (3, 1)]
    network = vb.build(vb.chain(1, 2), layers, key=jr.key(0))
    laplace = vb.linearised_laplace(network, vb.Gaussian(0.3), X[:, :1], X[:, :1], last_layer=last_layer)
    effects = vb.decompose(laplace, X[:, :1], key=jr.key(1), n_draws=30)
    ours = effects[()].draws[:, None] + effects[0,].draws
    points = effects[0,].axes[0].points[:, None]
    draws = vb.sample(laplace, points, key=jr.key(1), n_draws=30)[..., 0]
    np.testing.assert_allclose(ours, draws, atol=1e-4)  # float32


def test_sub_networks_of_laplace_add_up_to_its_functions():
    skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=2)
    layers = [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Normal(fan_in=True)) for d in (3, 1)]
    laplace = vb.linearised_laplace(vb.build(skeleton, layers, key=jr.key(0)), vb.Gaussian(0.3), X, X[:, :1])
    local = vb.attribute(laplace, X[:4], X, key=jr.key(1), n_draws=20)
    mean = np.mean(vb.sample(laplace, X[:4], key=jr.key(1), n_draws=20)[..., 0], axis=0)
    np.testing.assert_allclose(sum(part.mean for part in local.values()), mean, atol=1e-4)
