"""Tied nodes: Algorithm 1 by loops, text, weights, KL, moments and effects of skeletons whose nodes share weights."""

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pytest
from reference import algorithm_1

import vertebra as vb
from vertebra.distributions import Gaussian, Normal

TEXT = """inputs x0 x1 x2 x3 x4
layer a = tanh(x0 x1); b = tanh(x2 x3) tied a; c = sin(x4)
layer g = tanh(a c); h = tanh(b c) tied g
output f = g + h"""
SKELETON = vb.Skeleton.from_text(TEXT)
LAYERS = {
    "weights alone": [vb.Layer(d, posterior=Gaussian("full"), prior=Normal(fan_in=True), bias=True) for d in (3, 1)],
    "random features": vb.random_features([3, 1], r=8, kernel=vb.RBF()),
    "linear means": [vb.Layer(d, [vb.RandomFeatureBlock(6)], mean="linear") for d in (2, 1)],
    "dropout": vb.mc_dropout([3, 1]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_algorithm_1_is_its_loops_where_nodes_are_tied(name, rng):
    network = vb.build(SKELETON, LAYERS[name], key=jr.key(0), x=rng.standard_normal((20, 5)))
    x = rng.standard_normal((4, 5)).astype(np.float32)
    ours = network(jnp.asarray(x.T), key=jr.key(1))
    weights = [[np.asarray(v) for v in layer] for layer in network.weights(jr.key(1))]
    for layer in weights:
        np.testing.assert_array_equal(layer[0], layer[1])
    naive = np.stack([algorithm_1(network, weights, row) for row in x], axis=1)
    np.testing.assert_allclose(ours, naive, rtol=1e-4, atol=1e-5)  # float32


def test_the_text_and_json_of_ties_come_back():
    assert str(SKELETON) == TEXT
    assert vb.Skeleton.from_json(SKELETON.to_json()) == SKELETON
    assert SKELETON.ties == ((0, 0, 1), (0, 0))


def test_ties_are_drawn():
    ax = vb.plot.skeleton(SKELETON)
    assert {"b: tanh, tied to a", "h, tied to g"} <= {text.get_text() for text in ax.texts}
    plt.close("all")


def test_tied_weights_are_counted_once_and_come_back(rng):
    network = vb.build(SKELETON, LAYERS["weights alone"], key=jr.key(0))
    x = jnp.asarray(rng.standard_normal((5, 7)), jnp.float32)
    density = vb.log_density(network, vb.Gaussian(1.0), np.asarray(x.T), np.zeros((7, 1)))
    # a and b (3, 2), c (3, 1), g and h (1, 6)
    assert density.start.shape == (6 + 3 + 6,)
    assert (jnp.abs(jax.grad(density)(density.start)) > 0).all()
    given = network.at(network.weights(jr.key(1)))
    np.testing.assert_allclose(given(x, key=jr.key(2)), network(x, key=jr.key(1)), rtol=1e-5, atol=1e-6)
    assert [stack.n_blocks for stack in network.stacks] == [2, 1]


def test_the_variance_of_tied_nodes_that_are_added_is_that_of_one_v(rng):
    """Var(Vφ₁ + Vφ₂) = (φ₁ + φ₂)ᵀΣ(φ₁ + φ₂), and not the sum of two variances."""
    skeleton = vb.Skeleton.from_text("inputs a b\nlayer g = tanh(a); h = tanh(b) tied g\noutput f = g + h")
    network = vb.build(skeleton, [vb.Layer(1, posterior=Gaussian("full"))], key=jr.key(0))
    x = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 0.5]])
    mean, variance = vb.moments(network, x, key=jr.key(1), n_draws=4000)
    v = network.stacks[0].function.posterior
    sd = float(jnp.exp(v.covariance.raw).ravel()[0])
    total = x.sum(axis=1)
    # Monte Carlo of 4000 draws: a variance is known to √(2/4000) = 2.2 %, four of these
    np.testing.assert_allclose(variance[:, 0], (sd * total) ** 2, rtol=0.09, atol=1e-8)
    np.testing.assert_allclose(mean[:, 0], float(v.mean.ravel()[0]) * total, atol=4 * sd * 2.5 / np.sqrt(4000))


def test_sub_networks_and_effects_of_tied_nodes_add_up(rng):
    network = vb.build(SKELETON, LAYERS["random features"], key=jr.key(0))
    x = jnp.asarray(rng.standard_normal((5, 6)), jnp.float32)
    parts = [network.subnetwork(i).mean(x[jnp.asarray(SKELETON.clusters[i])]) for i in (0, 1)]
    np.testing.assert_allclose(sum(parts), network.mean(x), rtol=1e-4, atol=1e-5)


def test_training_keeps_ties_and_a_file_brings_them_back(tmp_path, rng):
    text = "inputs a b\nlayer g = tanh(a); h = tanh(b) tied g\nlayer p = tanh(g); q = tanh(h) tied p\noutput f = p + q"
    skeleton = vb.Skeleton.from_text(text)
    x = rng.standard_normal((200, 2))
    y = np.tanh(2.0 * x).sum(axis=1, keepdims=True)
    network = vb.build(skeleton, vb.mean_field([6, 1]), key=jr.key(0))
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=1500)
    mean, _ = vb.moments(fitted.network, x, key=jr.key(2))
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.3  # y has sd 1.1
    swapped = fitted.network.mean(jnp.asarray(x[:, ::-1].T))
    np.testing.assert_allclose(swapped, fitted.network.mean(jnp.asarray(x.T)), rtol=1e-4, atol=1e-5)
    vb.save(fitted.network, fitted.likelihood, tmp_path / "tied.vertebra")
    again, _ = vb.load(tmp_path / "tied.vertebra")
    np.testing.assert_array_equal(again.mean(jnp.asarray(x.T)), fitted.network.mean(jnp.asarray(x.T)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("inputs a b\nlayer g = tanh(a); h = tanh(b) tied q", "Node 'h' of layer 1 is tied to 'q': name another node"),
        ("inputs a\nlayer g = tanh(a) tied g", "name another node of its layer"),
        ("inputs a b\nlayer g = tanh(a b); h = tanh(b) tied g", "reads 1 nodes where that one reads 2"),
        ("inputs a\nlayer g = tanh(a); c = copy(a) tied g\nlayer f = tanh(g c)", "a node that copies has no weights"),
        ("inputs a\nlayer g = tanh(a); h = tanh(a) tied g; k = tanh(a) tied h", "tied itself: tie it to 'g'"),
    ],
)
def test_ties_that_cannot_be_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        vb.Skeleton.from_text(text)


def test_shapes_and_layers_that_cannot_be_tied_are_refused():
    text = "inputs a\nlayer g = tanh(a); c = copy(a)\nlayer p = tanh(g); q = tanh(c) tied p\noutput f = p + q"
    with pytest.raises(ValueError, match=r"'q' reads parents of \[1\] values and 'p', which it is tied to, of \[3\]"):
        vb.build(vb.Skeleton.from_text(text), vb.mean_field([3, 1]), key=jr.key(0))
    top = vb.Skeleton.from_text("inputs a b\nlayer g = tanh(a); h = tanh(b) tied g\noutput f = g + h")
    with pytest.raises(ValueError, match="Layer 1 has tied nodes: leave out `joint`"):
        vb.build(top, [vb.Layer(1, joint=True)], key=jr.key(0))
    points = vb.InducingPointBlock(4, residual="diagonal")
    with pytest.raises(ValueError, match="Layer 1 has tied nodes: leave out residual"):
        vb.build(top, [vb.Layer(1, [points])], key=jr.key(0))
    with pytest.raises(ValueError, match="`skeleton` must have no tied nodes"):
        vb.dual_kernel(top, vb.random_features([1]), np.zeros((2, 2)))
