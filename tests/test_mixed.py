"""Blocks per node: Algorithm 1 by loops, weights, KL, moments, effects, densities and files of layers that mix them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pytest
from reference import algorithm_1

import vertebra as vb
from vertebra.distributions import Gaussian, Members, Normal

TEXT = """inputs x0 x1 x2
layer h = tanh(x0 x1); c = copy(x0); k = sin(x2); t = tanh(x1 x2) tied h
layer g = tanh(h c t); l = relu(k t); e = copy(c)
layer a = tanh(g e); b = identity(l)
output f = a + b"""
SKELETON = vb.Skeleton.from_text(TEXT)
# h and t alike, k with features; g and l with posteriors and widths of their own; a top of two kinds
FULL = vb.Layer(3, posterior=Gaussian("full"), prior=Normal(fan_in=True), bias=True)
LAYERS = [
    {"h": FULL, "t": FULL, "k": vb.Layer(2, [vb.RandomFeatureBlock(6, kernel=vb.RBF())], Gaussian("diagonal"))},
    {
        "g": vb.Layer(4, [vb.InducingPointBlock(5, vb.RBF(), jitter=1e-4)]),
        "l": vb.Layer(1, posterior=vb.PointMass(), mean="linear"),
    },
    {"a": vb.Layer(1, posterior=Gaussian("full"), bias=True), "b": vb.Layer(1, [vb.RandomFeatureBlock(4, "tanh")])},
]


@pytest.fixture(scope="module")
def network():
    x = np.random.default_rng(1).standard_normal((20, 3))
    return vb.build(SKELETON, LAYERS, key=jr.key(0), x=x)


@pytest.fixture(scope="module")
def x():
    return jnp.asarray(np.random.default_rng(2).standard_normal((3, 6)), jnp.float32)


def test_algorithm_1_is_its_loops_where_nodes_have_blocks_of_their_own(network, x):
    ours = network(x, key=jr.key(1))
    weights = [[np.asarray(v) for v in layer] for layer in network.weights(jr.key(1))]
    naive = np.stack([algorithm_1(network, weights, row) for row in np.asarray(x.T)], axis=1)
    np.testing.assert_allclose(ours, naive, rtol=1e-4, atol=1e-5)  # float32
    shapes = [[v.shape for v in layer] for layer in weights]
    # h and t read two inputs; g reads h, c and t but has five points; l reads k (2) and t (3); a reads g (4) and c (1)
    assert shapes == [[(3, 2), (2, 6), (3, 2)], [(4, 5), (1, 5)], [(1, 5), (1, 4)]]
    np.testing.assert_array_equal(weights[0][0], weights[0][2])  # tied
    again = network.at(network.weights(jr.key(1)))
    np.testing.assert_allclose(again(x, key=jr.key(2)), ours, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"`weights\[1\]` must have one array \(d, r\) per node, of the shapes"):
        network.at([network.weights()[0], network.weights()[1][:1], network.weights()[2]])


def test_nodes_of_one_kind_in_a_mapping_are_a_layer():
    layers = vb.mean_field([3, 1])
    skeleton = vb.additive(4, clusters=[(0, 1), (2, 3)], depth=2)
    plain = vb.build(skeleton, layers, key=jr.key(0))
    mapped = vb.build(skeleton, [{"g0_1": layers[0], "g1_1": vb.mean_field([3, 1])[0]}, layers[1]], key=jr.key(0))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(mapped), strict=True):
        np.testing.assert_array_equal(a, b)
    assert jax.tree.structure(plain) == jax.tree.structure(mapped)


def test_two_sub_networks_of_two_kinds_are_two_networks(x):
    """f = g₀(x₀, x₁) + g₁(x₂): moments and KL are the sums of those of two networks with the same numbers."""
    skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=1)
    kinds = vb.Layer(1, [vb.RandomFeatureBlock(5)], prior=Normal(2.0)), vb.Layer(1, posterior=Gaussian("diagonal"))
    network = vb.build(skeleton, [dict(zip(("g0_1", "g1_1"), kinds, strict=True))], key=jr.key(0))
    first, second = (vb.Network(vb.chain(n, 1), (part,)) for n, part in zip((2, 1), network.parts, strict=True))
    # parts look their inputs up: the second one's is the third of the table
    mean, variance = vb.moments(network, x.T, key=jr.key(1))
    top = network.stacks[0]
    own = [part.conditional(x[:, None]) for part in top.parts]
    np.testing.assert_allclose(mean.T, own[0][0][0] + own[1][0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance.T, own[0][1][0] + own[1][1][0], rtol=1e-5)
    total = first.kl(key=jr.key(2)) + second.kl(key=jr.key(2))
    np.testing.assert_allclose(network.kl(key=jr.key(2)), total, rtol=1e-6)
    assert network.kl_is_exact == (True,)
    assert network.has_top_moments
    draws = vb.sample(network, x.T, key=jr.key(3), n_draws=4000)
    # a variance of 4000 draws is known to 2.2 %, four of these
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.09)


@pytest.mark.slow
def test_rows_drawn_by_themselves_have_the_law_of_functions(network, x):
    columns = jax.jit(lambda key: network.conditional(x[:, :2], network.noise(key, (2,))))
    mean, variance = jax.vmap(columns)(jr.split(jr.key(4), 3000))
    f = jax.jit(jax.vmap(lambda key: network(x[:, :2], key=key)))(jr.split(jr.key(5), 3000))
    expected = f.var(axis=0)
    # two estimates of a variance from 3000 draws each: four times √(2 · 2/3000) = 0.15
    np.testing.assert_allclose(variance.mean(axis=0) + mean.var(axis=0), expected, rtol=0.15)
    error = 4 * jnp.sqrt(2 * expected / 3000)
    assert (jnp.abs(mean.mean(axis=0) - f.mean(axis=0)) < error).all()


def test_sub_networks_add_up_and_effects_do(network, x):
    parts = [network.subnetwork(i).mean(x[jnp.asarray(SKELETON.clusters[i])]) for i in (0, 1)]
    np.testing.assert_allclose(sum(parts), network.mean(x), rtol=1e-4, atol=1e-5)
    rows = np.asarray(x.T)
    effects = vb.decompose(network, rows, key=jr.key(1), n_draws=4)
    assert set(effects) >= {(0, 1), (2,)}
    many = vb.decompose([network, network], rows, key=jr.key(1), n_draws=4)
    assert effects.keys() == many.keys()


def test_a_path_of_copies_alone_is_kept(x):
    text = """inputs x0 x1 x2
layer h = tanh(x1); c = copy(x0); k = sin(x2)
layer a = tanh(h k); b = tanh(c)
output f = a + b"""
    layers = [{"h": vb.Layer(3), "k": vb.Layer(2, posterior=vb.PointMass())}, vb.Layer(1)]
    network = vb.build(vb.Skeleton.from_text(text), layers, key=jr.key(0))
    alone = network.subnetwork(1).mean(x[:1])
    np.testing.assert_allclose(alone[0], float(network.weights()[1][1][0, 0]) * x[0], rtol=1e-5)


def test_a_density_has_the_weights_of_all_parts(network, x):
    y = np.zeros((6, 1))
    density = vb.log_density(network, vb.Gaussian(1.0), np.asarray(x.T), y)
    # of h and t one: 3 · 2, k 2 · 6; g 4 · 5, l 1 · 5; a 5, b 4
    assert density.start.shape == (6 + 12 + 20 + 5 + 5 + 4,)
    assert (jnp.abs(jax.grad(density)(density.start)) > 0).all()
    np.testing.assert_allclose(density.unflatten(density.start).mean(x), network.mean(x), rtol=1e-5, atol=1e-6)
    top = vb.linearised_laplace(network, vb.Gaussian(1.0), np.asarray(x.T), y, last_layer=True)
    assert top.root.shape == (9, 9)
    for own, v in zip(density.networks(density.start[None] + jnp.ones((2, 1))), (1.0, 1.0), strict=True):
        np.testing.assert_allclose(own.weights()[2][1], network.weights()[2][1] + v, rtol=1e-5)
    prior = vb.sample_prior(network, np.asarray(x.T), key=jr.key(1), n_draws=3)
    assert prior.shape == (3, 6, 1)


def test_it_learns_and_a_file_brings_it_back(tmp_path):
    """A smooth part by a kernel and a line beside it: each node has what its inputs need."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (200, 2))
    y = np.sin(3 * x[:, :1]) + 0.5 * x[:, 1:] + 0.1 * rng.standard_normal((200, 1))
    smooth = vb.Layer(1, [vb.RandomFeatureBlock(30, kernel=vb.RBF(0.5))])
    layers = [{"g0_1": smooth, "g1_1": vb.Layer(1)}]
    network = vb.build(vb.additive(2, clusters=[(0,), (1,)], depth=1), layers, key=jr.key(0), x=x)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=1500)
    mean, _ = vb.moments(fitted.network, x, key=jr.key(2))
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.15  # noise of 0.1
    vb.save(fitted.network, fitted.likelihood, tmp_path / "mixed.vertebra")
    again, _ = vb.load(tmp_path / "mixed.vertebra")
    assert jax.tree.structure(again) == jax.tree.structure(fitted.network)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(fitted.network), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_of_copies_ties_and_all_kinds_come_back(network, x, tmp_path):
    vb.save(network, vb.Gaussian(0.1), tmp_path / "all.vertebra")
    again, _ = vb.load(tmp_path / "all.vertebra")
    np.testing.assert_array_equal(again(x, key=jr.key(3)), network(x, key=jr.key(3)))


def test_kinds_are_drawn_at_their_nodes():
    ax = vb.plot.skeleton(SKELETON, layers=LAYERS)
    texts = {text.get_text() for text in ax.texts}
    assert {"g: tanh\nIPB 5 + FB 4", "l: relu\nFB 1", "t: tanh, tied to h\nFB 3", "layer 1"} <= texts
    plt.close("all")


def test_the_dual_kernel_of_two_kinds_is_the_sum_of_theirs():
    rows = np.random.default_rng(0).standard_normal((4, 3))
    kinds = vb.Layer(1, [vb.RandomFeatureBlock(8, kernel=vb.RBF())]), vb.Layer(1, prior=Normal(2.0))
    skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=1)
    both = vb.dual_kernel(skeleton, [dict(zip(("g0_1", "g1_1"), kinds, strict=True))], rows)
    alone = [
        vb.dual_kernel(vb.chain(n, 1), [own], rows[:, inputs])
        for n, own, inputs in zip((2, 1), kinds, ([0, 1], [2]), strict=True)
    ]
    np.testing.assert_allclose(both, sum(alone), rtol=1e-5)


@pytest.mark.slow
def test_the_dual_kernel_of_nodes_of_two_widths_is_that_of_draws_of_wide_networks():
    rows = np.random.default_rng(0).standard_normal((4, 3))
    skeleton = vb.Skeleton.from_text("inputs x0 x1 x2\nlayer g = tanh(x0 x1); h = relu(x2)\nlayer f = tanh(g h)")
    wide = {"g": vb.Layer(300, [vb.RandomFeatureBlock(300, kernel=vb.RBF(1.0))]), "h": vb.Layer(200)}
    layers = [wide, vb.Layer(1, prior=Normal(fan_in=True))]
    networks = [vb.build(skeleton, layers, key=jr.key(i)) for i in range(6)]
    draws = np.concatenate([vb.sample_prior(n, rows, key=jr.key(9), n_draws=500)[..., 0] for n in networks])
    exact = vb.dual_kernel(skeleton, layers, rows)[0]
    # 3000 draws: √(2/3000) = 0.026 of a variance; widths and features of 300 add as much
    np.testing.assert_allclose(draws.T @ draws / len(draws), exact, atol=0.12 * float(exact.max()))


def test_hyper_parameters_of_a_mapping_are_traced(key):
    def total(scale):
        names, scales = ("g0_1", "g1_1", "g2_1", "g3_1"), (scale, scale, 2.0, 2.0)
        layers = [{name: vb.Layer(1, prior=Normal(each)) for name, each in zip(names, scales, strict=True)}]
        network = vb.build(vb.additive(4, clusters=[(0,), (1,), (2,), (3,)], depth=1), layers, key=key)
        assert len(network.parts) == (3 if isinstance(scale, jax.core.Tracer) else 2)
        return jnp.sum(vb.moments(network, jnp.ones((3, 4)), key=key)[1])

    np.testing.assert_allclose(jax.jit(total)(1.5), total(1.5), rtol=1e-5)
    # posteriors begin at a share of their prior's scale s: their part of the variance is c s²
    part = total(1.5) - total(1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(1.5), 2.0 * part / 1.5, rtol=1e-4)


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        ({"a": vb.Layer(1)}, ValueError, "must name the nodes that carry blocks, a, b, got a"),
        ({"a": vb.Layer(1), "b": vb.Layer(2)}, ValueError, r"Layer 1 is the top, .* give them one width, got \[1, 2\]"),
        ({"a": vb.Layer(1), "b": vb.Layer(1, joint=True)}, ValueError, "`joint` is for all nodes of a layer alike"),
        (
            {"a": vb.Layer(1), "b": vb.PointMass()},
            TypeError,
            "must have a vb.Layer for each node, got PointMass for 'b'",
        ),
        (
            {"a": vb.Layer(1), "b": vb.Layer(1, bias=True)},
            ValueError,
            "Node 'b' is tied to 'a': give both the same Layer",
        ),
        (
            {"a": vb.Layer(1, posterior=Members(2)), "b": vb.Layer(1, posterior=Members(3))},
            ValueError,
            "`k` of Members must be the same",
        ),
    ],
)
def test_mappings_that_cannot_be_are_refused(layer, error, words):
    tie = " tied a" if "tied" in words else ""
    skeleton = vb.Skeleton.from_text(f"inputs x\nlayer a = tanh(x); b = tanh(x){tie}\noutput f = a + b")
    with pytest.raises(error, match=words):
        vb.build(skeleton, [layer], key=jr.key(0))
