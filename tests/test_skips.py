"""Nodes that copy: Algorithm 1 by loops, text, weights, sub-networks and effects of skeletons with skips."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pytest
from reference import algorithm_1, kl_normal

import vertebra as vb
from vertebra.distributions import Gaussian, Normal

TEXT = """inputs x0 x1 x2
layer h = tanh(x0 x1); c = copy(x0); k = sin(x2)
layer g = tanh(h c); e = copy(c); l = relu(k); m = copy(h)
layer a = tanh(g e); b = identity(l m)
output f = a + b"""
SKELETON = vb.Skeleton.from_text(TEXT)
LAYERS = {
    "weights alone": [vb.Layer(d, posterior=Gaussian("full"), prior=Normal(fan_in=True), bias=True) for d in (3, 2, 1)],
    "random features": vb.random_features([3, 2, 1], r=8, kernel=vb.RBF()),
    "linear means": [vb.Layer(d, [vb.RandomFeatureBlock(6)], mean="linear") for d in (2, 4, 1)],
}


def drawn(network, key):
    return [[np.asarray(v) for v in layer] for layer in network.stack_weights(key)]


@pytest.mark.parametrize("name", LAYERS)
def test_algorithm_1_is_its_loops_where_nodes_copy(name, rng):
    network = vb.build(SKELETON, LAYERS[name], key=jr.key(0), x=rng.standard_normal((20, 3)))
    x = rng.standard_normal((4, 3)).astype(np.float32)
    ours = network(jnp.asarray(x.T), key=jr.key(1))
    # the naive node has its own inputs alone, and its weights without padding
    weights = [
        [v[:, : len(own[0])] if name == "weights alone" else v for v, own in zip(layer, given, strict=True)]
        for layer, given in zip(drawn(network, jr.key(1)), network.weights(jr.key(1)), strict=True)
    ]
    naive = np.stack([algorithm_1(network, weights, row) for row in x], axis=1)
    np.testing.assert_allclose(ours, naive, rtol=1e-4, atol=1e-5)  # float32


def test_the_text_and_json_of_a_skip_come_back():
    assert str(SKELETON) == TEXT
    assert vb.Skeleton.from_json(SKELETON.to_json()) == SKELETON
    assert SKELETON.clusters == ((0, 1), (0, 1, 2))
    assert SKELETON.computing == ((0, 2), (0, 2), (0, 1))


def test_a_copy_is_drawn_as_a_skip():
    ax = vb.plot.skeleton(SKELETON, layers=LAYERS["weights alone"])
    texts = {text.get_text() for text in ax.texts}
    assert {"x0", "h: tanh", "k: sin", "g: tanh", "a: tanh", "f"} <= texts
    assert not texts & {"c", "e", "m", "c: copy", "e: copy", "m: copy"}
    rings = [line for line in ax.lines if line.get_marker() == "o"]
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert (len(rings), len(dashed)) == (3, 3)  # c reads x0, e reads c, m reads h
    plt.close("all")


def test_weights_of_a_skip_are_those_that_act(rng):
    network = vb.build(SKELETON, LAYERS["weights alone"], key=jr.key(0))
    shapes = [[v.shape for v in layer] for layer in network.weights()]
    # h reads two inputs, k one; g reads h (3) and c (1), l k (3); a reads g (2) and e (1), b l (2) and m (3)
    assert shapes == [[(3, 2), (3, 1)], [(2, 4), (2, 3)], [(1, 3), (1, 5)]]
    x = jnp.asarray(rng.standard_normal((3, 5)), jnp.float32)
    np.testing.assert_allclose(network.at(network.weights(jr.key(1)))(x, key=jr.key(2)), network(x, key=jr.key(1)),
                               rtol=1e-5)  # fmt: skip
    density = vb.log_density(network, vb.Gaussian(1.0), np.asarray(x.T), np.zeros((5, 1)))
    assert density.start.shape == (sum(a * b for layer in shapes for a, b in layer),)
    assert (jnp.abs(jax.grad(density)(density.start)) > 0).all()


def test_kl_of_a_skip_counts_no_padding():
    network = vb.build(SKELETON, LAYERS["weights alone"], key=jr.key(0))
    total = 0.0
    for layer, given in zip(LAYERS["weights alone"], network.weights(), strict=True):
        for v in given:
            chain = vb.build(vb.chain(v.shape[1], 1), [layer], key=jr.key(0))
            total += kl_normal(eqx.tree_at(lambda n: n.stacks[0].function.posterior.mean, chain, v[None]))
    np.testing.assert_allclose(network.kl(key=jr.key(0)), total, rtol=1e-4)  # float32


@pytest.mark.parametrize("name", ["weights alone", "random features", "linear means"])
def test_sub_networks_of_a_skip_add_up_to_it(name, rng):
    """Also where a sub-network has left a copy out that was wider than its own nodes: l reads k alone."""
    network = vb.build(SKELETON, LAYERS[name], key=jr.key(0))
    x = jnp.asarray(rng.standard_normal((3, 6)), jnp.float32)
    parts = [network.subnetwork(i).mean(x[jnp.asarray(SKELETON.clusters[i])]) for i in (0, 1)]
    np.testing.assert_allclose(sum(parts), network.mean(x), rtol=1e-4, atol=1e-5)


def test_effects_of_a_skip_add_up_and_a_path_of_copies_alone_is_kept(rng):
    text = """inputs x0 x1
layer h = tanh(x1); c = copy(x0)
layer a = tanh(h); b = tanh(c)
output f = a + b"""
    skeleton, x = vb.Skeleton.from_text(text), rng.standard_normal((15, 2))
    network = vb.build(skeleton, vb.mean_field([3, 1]), key=jr.key(0))
    assert skeleton.clusters == ((1,), (0,))
    local = vb.attribute(network, x, x, key=jr.key(1), n_draws=400)
    total = sum(part.mean for part in local.values())
    expected, _ = vb.moments(network, x, key=jr.key(2), n_draws=4000)
    np.testing.assert_allclose(total, expected[:, 0], atol=0.06)  # Monte Carlo over the weights: 0.3/√400
    alone = network.subnetwork(1).mean(jnp.asarray(x[:, :1].T, jnp.float32))
    v = network.weights()[1][1]  # b is linear in c, which is x0
    np.testing.assert_allclose(alone[0], float(v[0, 0]) * x[:, 0], rtol=1e-5)


def test_a_residual_network_starts_as_a_line_and_learns(rng):
    x = rng.standard_normal((200, 1))
    text = """inputs x
layer h = tanh(x); s = copy(x)
layer f = identity(h s)"""
    network = vb.build(vb.Skeleton.from_text(text), vb.mean_field([4, 1]), key=jr.key(0))
    y = 2.0 * x + np.tanh(3 * x)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=1500)
    far = np.array([[20.0], [30.0]])
    mean, _ = vb.moments(fitted.network, far, key=jr.key(2))
    # far out tanh is flat, and the copy alone goes on: most of the slope of 2
    assert 1.2 < float(mean[1, 0] - mean[0, 0]) / 10.0 < 2.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "inputs a b\nlayer c = copy(a b); h = tanh(a)\nlayer f = tanh(c h)",
            "Node 'c' of layer 1 copies: give it one",
        ),
        ("inputs a\nlayer c = copy(a)", "Layer 1 is the top, where no node may copy"),
    ],
)
def test_copies_that_cannot_be_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        vb.Skeleton.from_text(text)


def test_layers_of_copies_alone_and_dual_kernels_are_refused():
    alone = vb.Skeleton.from_text("inputs a\nlayer c = copy(a)\nlayer f = tanh(c)")
    with pytest.raises(ValueError, match="Layer 1 has nodes that copy alone: leave it out"):
        vb.build(alone, vb.mean_field([1, 1]), key=jr.key(0))
    with pytest.raises(ValueError, match="`skeleton` must have no nodes that copy"):
        vb.dual_kernel(SKELETON, LAYERS["random features"], np.zeros((2, 3)))
