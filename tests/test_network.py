"""Algorithm 1, against loops over nodes and edges, and against the figures of the paper by hand-counted shapes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from reference import algorithm_1, kl_normal
from test_skeleton import skeletons

import vertebra as vb
from vertebra import Fixed, InducingPointBlock, Layer, RandomFeatureBlock
from vertebra.distributions import Full, Gaussian, LowRank, Normal

FEATURES = {
    "none": [],
    "one": [RandomFeatureBlock(3, "relu", bias=True)],
    "two": [RandomFeatureBlock(3, "sin"), RandomFeatureBlock(4, "tanh")],
    "spectral": [RandomFeatureBlock(4, kernel=vb.RBF())],
    "points": [InducingPointBlock(3, vb.RBF(), jitter=1e-4)],
}


def shake(network, key):
    """The network with every trainable array moved at random, so that nothing is at a special value."""
    arrays, rest = eqx.partition(network, vb.trainable(network))
    leaves, tree = jax.tree.flatten(arrays)
    keys = jr.split(key, len(leaves))
    leaves = [leaf + 0.1 * jr.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


ALGORITHM_1 = dict(
    skeleton=skeletons(),
    names=st.lists(st.sampled_from(sorted(FEATURES)), min_size=3, max_size=3),
    covariances=st.lists(st.sampled_from(["full", "diagonal", "low_rank"]), min_size=3, max_size=3),
    widths=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    bias=st.booleans(),
    mean=st.sampled_from([None, "linear"]),
    seed=st.integers(0, 2**16),
)


@settings(max_examples=4)
@given(**ALGORITHM_1)
def test_algorithm_1_equals_loops_over_nodes_and_edges(**drawn):
    equals_loops(**drawn)


@pytest.mark.slow
@settings(max_examples=20)
@given(**ALGORITHM_1)
def test_algorithm_1_of_many_skeletons_equals_loops_over_nodes_and_edges(**drawn):
    equals_loops(**drawn)


def equals_loops(skeleton, names, covariances, widths, bias, mean, seed):
    with jax.enable_x64(True):
        key = jr.key(seed)
        layers = [
            Layer(d, FEATURES[name], Gaussian(c), Normal(fan_in=not FEATURES[name]), bias=bias, mean=mean)
            for d, name, c in zip(widths, names, covariances, strict=True)
        ][: skeleton.depth]
        network = vb.build(skeleton, layers, key=key)
        stacks = network.stacks
        # Biases away from zero, so that they are seen; the rest is random as built.
        if bias:
            network = eqx.tree_at(
                lambda n: [s.function.bias for s in n.stacks],
                network,
                [jr.normal(key, s.function.bias.shape) for s in stacks],
            )
        x = np.random.default_rng(seed).normal(size=(skeleton.n_inputs, 3))
        keys = jr.split(key, skeleton.depth)
        weights = [np.asarray(s.weights(jr.split(k)[0])) for s, k in zip(stacks, keys, strict=True)]
        together, alone, kl = eqx.filter_jit(
            lambda network, x: (network(x, key=key), network(x[:, 0], key=key), network.kl(key=key))
        )(network, jnp.asarray(x))
        # 1e-6 as asked, in double precision, where rounding is far below.
        for i in range(3):
            expected = algorithm_1(network, weights, x[:, i])
            np.testing.assert_allclose(together[:, i], expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(alone, together[:, 0], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(kl, kl_normal(network), rtol=1e-6, atol=1e-8)


def shapes(network):
    """(nodes, outputs of a node, features) of V in each layer."""
    return [stack.function.posterior.mean.shape for stack in network.stacks]


def test_figure_1d_from_1a(key):
    # S of (a): 4 inputs, a node, an output node. RB with r = 3 (d = 4, then 2); FB with r = 3 and d = 2, then 1.
    network = vb.build(vb.chain(4, 2), vb.random_features([2, 1], r=3), key=key)
    assert [stack.features[0].base.value.shape for stack in network.stacks] == [(1, 3, 4), (1, 3, 2)]
    assert shapes(network) == [(1, 2, 3), (1, 1, 3)]
    # Edges of figure (d): 4·3 + 3·2 + 2·3 + 3·1 = 27, of which the 9 into function blocks are Bayesian.
    assert sum(np.prod(s) for s in shapes(network)) == 9
    assert network(jnp.ones(4), key=key).shape == (1,)


def test_figure_1e_mc_dropout(key):
    # 4 inputs, 2 hidden and 2 output units, FB alone: 4·2 + 2·2 weights.
    network = vb.build(vb.chain(4, 2), vb.mc_dropout([2, 2]), key=key)
    assert all(not stack.features for stack in network.stacks)
    assert shapes(network) == [(1, 2, 4), (1, 2, 2)]
    assert all(isinstance(stack.function.posterior, vb.Dropout) for stack in network.stacks)


def test_figure_1f_deep_random_features(key):
    # One edge of the skeleton becomes RB, RB, FB: 4 inputs, r = 5 twice, one output.
    network = vb.build(vb.chain(4, 1), vb.deep_random_features([1], r=5), key=key)
    (stack,) = network.stacks
    assert [block.base.value.shape for block in stack.features] == [(1, 5, 4), (1, 5, 5)]
    assert shapes(network) == [(1, 1, 5)]
    assert network.is_linear_in_v


def test_figure_1g_deep_kernel_learning_and_multi_task(key):
    # 4 inputs, one shared node of width 2, three task nodes; the last layer FB alone, or FB + IPB with r = 6.
    skeleton = vb.multitask(4, 3)
    network = vb.build(skeleton, vb.deep_kernel_learning([2, 1]), key=key)
    assert shapes(network) == [(1, 2, 4), (3, 1, 2)]
    assert isinstance(network.stacks[0].function.posterior, vb.PointMass)
    drawn = vb.build(skeleton, vb.deep_kernel_learning([2, 1], r=6), key=key)
    assert shapes(drawn) == [(1, 2, 4), (3, 1, 6)]
    assert drawn.stacks[1].features[0].z.shape == (3, 6, 2)
    assert drawn(jnp.ones(4), key=key).shape == (3,)
    assert network.is_linear_in_v
    assert drawn.is_linear_in_v


def test_figure_1h_additive(key):
    # Two sub-networks, each 4 inputs to a node to a node, added: RB with r = 3, widths 2 and 1.
    network = vb.build(vb.additive(4, 2, 2), vb.random_features([2, 1], r=3), key=key)
    assert [stack.features[0].base.value.shape for stack in network.stacks] == [(2, 3, 4), (2, 3, 2)]
    assert shapes(network) == [(2, 2, 3), (2, 1, 3)]
    x = jr.normal(key, (4, 5))
    np.testing.assert_allclose(network(x, key=key)[0], network.terms(x, key=key).sum(axis=0)[0], rtol=1e-6)


def test_a_key_is_a_function(key):
    network = vb.build(vb.additive(3, 2, 2), vb.inducing_points([2, 1], r=4), key=key)
    x = jr.normal(key, (3, 6))
    draw = jax.jit(lambda x, key: network(x, key=key))
    together = draw(x, jr.key(1))
    apart = jax.jit(jax.vmap(lambda x: network(x, key=jr.key(1)), in_axes=-1, out_axes=-1))(x)
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-5)  # float32, other order of sums
    assert not np.allclose(together, draw(x, jr.key(2)))


@pytest.mark.everyday("mean_field", "dropout", "low_rank")
@pytest.mark.parametrize(
    "layers",
    [
        vb.mean_field([3, 1]),
        vb.mc_dropout([3, 1], rate=0.3),
        vb.random_features([3, 1], r=6),
        [Layer(3, FEATURES["one"], Gaussian(LowRank(2))), Layer(1, FEATURES["one"], Gaussian(LowRank(2)))],
        vb.inducing_points([3, 1], r=5),
        [Layer(3, FEATURES["one"], noise=0.3), Layer(1, FEATURES["points"], noise=0.2, joint=True)],
        [Layer(3, FEATURES["points"], vb.Dropout(0.3), noise=0.3), Layer(1, posterior=vb.Dropout(0.2))],
    ],
    ids=["mean_field", "dropout", "features", "low_rank", "points", "noise", "dropout_noise"],
)
def test_row_draws_have_the_law_of_function_draws(layers, key):
    """The local reparameterisation changes how rows go together, not the law of any one of them."""
    network = shake(vb.build(vb.additive(2, 2, 2), layers, key=key), key)
    x = jnp.asarray([[0.5, -1.0], [1.0, 0.3]])
    n = 20_000

    def row_draw(key):
        noise_key, top_key = jr.split(key)
        mean, variance = network.conditional(x, network.noise(noise_key, (2,)))
        return mean if variance is None else mean + jnp.sqrt(variance) * jr.normal(top_key, mean.shape)

    keys = jr.split(jr.key(3), n)
    functions = np.asarray(jax.jit(jax.vmap(lambda key: network(x, key=key)))(keys), np.float64)
    rows = np.asarray(jax.jit(jax.vmap(row_draw))(keys), np.float64)
    sd = functions.std(axis=0)
    # Means of n draws differ by √2 sd/√n = sd/100; quantiles by some 2 to 3 times that.
    np.testing.assert_array_less(np.abs(functions.mean(axis=0) - rows.mean(axis=0)), 0.05 * sd)
    np.testing.assert_allclose(functions.std(axis=0), rows.std(axis=0), rtol=0.05)
    for level in (0.1, 0.5, 0.9):
        gap = np.quantile(functions, level, axis=0) - np.quantile(rows, level, axis=0)
        np.testing.assert_array_less(np.abs(gap), 0.08 * sd)


def test_conditional_moments_are_exact_where_f_is_linear_in_v(key):
    network = shake(vb.build(vb.additive(3, 2, 2), vb.deep_kernel_learning([3, 1]), key=key), key)
    x = jr.normal(key, (3, 4))
    mean, variance = network.conditional(x, network.noise(key, (4,)))
    draws = np.asarray(jax.vmap(lambda key: network(x, key=key))(jr.split(key, 40_000)), np.float64)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 4 * draws.std(axis=0) / 200)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.05)  # relative sd of a variance: √(2/40000) = 0.7 %


def test_a_joint_top_block_spans_the_sub_networks(key):
    separate = vb.build(vb.additive(3, 4, 2), vb.deep_kernel_learning([3, 1]), key=key)
    layers = vb.deep_kernel_learning([3, 1])
    layers[-1] = Layer(1, posterior=Gaussian(), prior=Normal(), bias=True, joint=True)
    joint = vb.build(vb.additive(3, 4, 2), layers, key=key)
    assert shapes(separate)[1] == (4, 1, 3)
    assert shapes(joint)[1] == (1, 1, 12)
    x = jr.normal(key, (3, 5))
    mean, variance = joint.conditional(x, joint.noise(key, (5,)))
    assert mean.shape == variance.shape == (1, 5)
    np.testing.assert_allclose(joint(x, key=key)[0], joint.terms(x, key=key).sum(axis=0)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(joint.mean(x), mean, rtol=1e-6)


def test_inducing_points_and_mean_functions_start_from_the_data(key):
    x = np.random.default_rng(0).normal(size=(300, 4)) @ np.diag([3.0, 1.0, 0.3, 0.1]) + 5.0
    skeleton = vb.additive(4, 2, 2, activation="identity")
    network = vb.build(skeleton, vb.inducing_points([2, 1], r=10), key=key, x=x)
    z = np.asarray(network.stacks[0].features[0].z)
    assert z.shape == (2, 10, 4)
    assert np.all((z > x.min(axis=0)) & (z < x.max(axis=0)))
    # The skip is the two leading principal directions, which here are nearly the first two axes.
    skip = np.abs(network.stacks[0].mean.value[0])
    np.testing.assert_allclose(skip, np.eye(2, 4), atol=0.15)
    # The second layer's points lie where the first layer sends the data.
    sent = np.asarray(network.stacks[0].conditional(jnp.asarray(x.T)[:, None])[0])
    above = np.asarray(network.stacks[1].features[0].z)
    assert np.all((above[0] > sent[0].min(axis=1)) & (above[0] < sent[0].max(axis=1)))
    assert all(isinstance(stack.mean, Fixed | None) for stack in network.stacks)


def test_ten_sub_networks_or_a_hundred_are_one_stack(key):
    for s in (10, 100):
        network = vb.build(vb.additive(5, s, 3), vb.mc_dropout([3, 4, 1]), key=key)
        assert shapes(network) == [(s, 3, 5), (s, 4, 3), (s, 1, 4)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: vb.build(vb.chain(2, 2), vb.mean_field([1]), key=jr.key(0)),
            "one entry per layer of the skeleton, 2, got 1",
        ),
        (
            lambda: vb.build(vb.chain(2, 1, activation="wavy"), vb.mean_field([1]), key=jr.key(0)),
            "Node 'h1': Activation 'wavy' is not known",
        ),
        (
            lambda: vb.build(vb.chain(2, 1), vb.mean_field([1]), key=jr.key(0), x=np.ones((5, 3))),
            r"`x` must have the shape \(n, 2\), got \(5, 3\)",
        ),
        (
            lambda: vb.build(vb.chain(2, 1), vb.mean_field([1]), key=jr.key(0), x=np.full((5, 2), np.nan)),
            "no missing or infinite values",
        ),
        (
            lambda: vb.build(vb.chain(2, 2), [Layer(1, joint=True), Layer(1)], key=jr.key(0)),
            "`joint` is for the top layer",
        ),
        (lambda: Layer(0), "`width` must be a whole number of at least 1, got 0"),
        (lambda: Layer(1, mean="square"), '`mean` must be None or "linear"'),
        (lambda: Layer(1, noise=-1.0), "`noise` must be positive and finite, or None"),
        (lambda: vb.mean_field([]), "`widths` must hold one whole width of at least 1 per layer"),
        (lambda: vb.mc_dropout([3, 0]), r"`widths` must hold one whole width of at least 1 per layer, got \[3, 0\]"),
        (lambda: vb.mc_dropout([3, 1], rate=-0.5), "`rate` must be at least 0 and below 1"),
        (lambda: vb.deep_random_features([1], n_blocks=0), "`n_blocks` must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# --- weights of nodes with different numbers of parents --------------------------------------------------------------


UNEVEN = vb.Skeleton(
    ("x0", "x1", "x2"),
    (
        (vb.Node("a", ("x0", "x1", "x2")), vb.Node("b", ("x1",)), vb.Node("c", ("x0", "x2"))),
        (vb.Node("top", ("a", "b", "c")), vb.Node("side", ("b",))),
    ),
)


@pytest.mark.everyday("diagonal", "low rank")
@pytest.mark.parametrize(
    "posterior",
    [Gaussian("full"), Gaussian("diagonal"), Gaussian(LowRank(2)), vb.Dropout(0.2)],
    ids=["full", "diagonal", "low rank", "dropout"],
)
def test_every_weight_acts_on_f_where_nodes_have_different_numbers_of_parents(posterior, key, x64):
    layers = [Layer(d, posterior=posterior, prior=Normal(fan_in=True), bias=True) for d in (2, 1)]
    network = shake(vb.build(UNEVEN, layers, key=key), key)
    x = jr.normal(key, (3, 20))
    flat, unravel = ravel_pytree(network.weights())
    # 3 + 1 + 2 parents of width 1 into nodes of width 2, then 3 and 1 parents of width 2 into nodes of width 1
    assert flat.shape == (6 * 2 + 4 * 2,)
    jacobian = jax.jit(jax.jacrev(lambda v: network.at(unravel(v)).mean(x).ravel()))(flat)
    assert (np.abs(np.asarray(jacobian)).max(axis=0) > 1e-6).all()
    # −log p(V) + log p(0): a direction that the prior does not see would be one to drift along
    slope = jax.jit(jax.grad(lambda v: network.at(unravel(v)).kl(key=key)))(flat)
    assert (np.abs(np.asarray(slope)) > 0.0).all()
    drawn = network.weights(jr.key(3))
    for a, b in zip(jax.tree.leaves(network.at(drawn).weights()), jax.tree.leaves(drawn), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(network.at(drawn).mean(x), network(x, key=jr.key(3)), rtol=1e-10)
    np.testing.assert_allclose(network.at(network.weights()).mean(x), network.mean(x), rtol=1e-10)


@pytest.mark.everyday("normal-full", "fan in-diagonal", "laplace-low rank", "laplace-point")
@pytest.mark.parametrize(
    "posterior",
    [Gaussian("full"), Gaussian("diagonal"), Gaussian(LowRank(2)), vb.PointMass()],
    ids=["full", "diagonal", "low rank", "point"],
)
@pytest.mark.parametrize(
    "prior", [Normal(0.7), Normal(fan_in=True), vb.Laplace(0.5)], ids=["normal", "fan in", "laplace"]
)
def test_the_kl_counts_the_weights_that_are_there_and_no_others(posterior, prior, key, x64):
    network = shake(vb.build(UNEVEN, [Layer(d, posterior=posterior, prior=prior) for d in (2, 1)], key=key), key)
    total = 0.0
    for level, sizes in enumerate([(3, 1, 2), (6, 2)]):
        for node, r in enumerate(sizes):
            q = jax.tree.map(lambda leaf, node=node: leaf[node], network.stacks[level].function.posterior)
            # R of Σ = RᵀR is upper triangular: what comes after the features that exist does not touch them
            square = isinstance(q, Gaussian) and isinstance(q.covariance, Full)
            cut = lambda leaf, r=r, square=square: leaf[:, :r, :r] if square and leaf.ndim == 3 else leaf[:, :r]  # noqa: E731
            total += float(eqx.filter_jit(vb.kl)(jax.tree.map(cut, q), prior))
    np.testing.assert_allclose(eqx.filter_jit(network.kl)(key=key), total, rtol=1e-10)


def test_a_subnetwork_has_the_weights_of_its_own_nodes(key):
    network = vb.build(UNEVEN, vb.mean_field([2, 1]), key=key)
    sub = network.subnetwork(1)  # x1, b, side
    assert [[v.shape for v in layer] for layer in sub.weights()] == [[(2, 1)], [(1, 2)]]
    x = jr.normal(key, (1, 4))
    np.testing.assert_array_equal(sub.at(sub.weights()).mean(x), sub.mean(x))


@pytest.mark.parametrize(
    ("skeleton", "change", "words"),
    [
        (UNEVEN, lambda w: w[:1], "`weights` must have one entry per layer, 2, got 1"),
        (UNEVEN, lambda w: [jnp.zeros((3, 2, 3)), w[1]], r"`weights\[0\]` must have one array .* \(2, 1\), .* got"),
        (vb.chain(3, 2), lambda w: [w[0][:, :, :2], w[1]], r"`weights\[0\]` must have the shape \(1, 2, 3\)"),
    ],
)
def test_weights_of_another_shape_are_refused(skeleton, change, words, key):
    network = vb.build(skeleton, vb.mean_field([2, 1]), key=key)
    with pytest.raises(ValueError, match=words):
        network.at(change(network.weights()))
