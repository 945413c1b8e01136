import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb

NUMBERS = np.random.default_rng(0).normal(3.0, 2.0, (200, 1))
CODES = np.random.default_rng(0).integers(0, 4, (200, 1)).astype(float)


def init(block, rows=None):
    rng = np.random.default_rng(0)
    return block.init(1, rng=rng) if rows is None else block.init(1, rng=rng, rows=rows)


def test_periodic_features_are_the_formula_and_w_is_trained():
    block = init(vb.PeriodicBlock(6, frequency=0.5))
    x = np.linspace(-2.0, 2.0, 7)
    waves = zip(block.w, block.b, strict=True)
    expected = [[np.sqrt(2) * np.cos(2 * np.pi * float(w[0]) * t + float(b)) for t in x] for w, b in waves]
    # float32 beside float64
    np.testing.assert_allclose(block(jnp.asarray(x)[None]), [*expected, x], atol=1e-5)
    moved = eqx.filter(block, vb.trainable(block))
    assert moved.w is not None
    assert moved.b is not None
    gradient = eqx.filter_grad(lambda block: jnp.sum(block(jnp.ones((1, 3)))))(block)
    assert np.abs(gradient.w).min() > 0.0


def test_phi_of_every_block_has_a_size_near_r():
    """Weights N(0, 1/r) then give values of variance about 1."""
    rows = NUMBERS / NUMBERS.std()
    for block in (init(vb.PeriodicBlock(200, frequency=2.0)), init(vb.LevelsBlock(4))):
        x = CODES if isinstance(block, vb.LevelsBlock) else rows - rows.mean()
        size = np.mean(np.sum(np.asarray(block(jnp.asarray(x.T, jnp.float32))) ** 2, axis=0))
        assert 0.9 * block.r < size < 1.1 * block.r  # of 200 draws of cosines, 5 %


def test_piecewise_linear_features_are_a_naive_loop():
    block = init(vb.PiecewiseLinearBlock(5), NUMBERS)
    t = np.quantile(NUMBERS, np.linspace(0, 1, 6))
    for value in (-5.0, 0.1, 2.9, 3.3, 6.0, 20.0):
        naive = []
        for j in range(5):
            share = (value - t[j]) / (t[j + 1] - t[j])
            share = share if j == 0 else max(share, 0.0)
            naive.append(share if j == 4 else min(share, 1.0))
        np.testing.assert_allclose(block(jnp.array([value])), naive, atol=1e-4)  # float32


def test_piecewise_linear_features_give_back_any_function_of_few_values():
    block = init(vb.PiecewiseLinearBlock(8), CODES)
    phi = np.asarray(block(jnp.arange(4.0)[None]))
    assert np.linalg.matrix_rank(np.vstack([phi, np.ones(4)])) == 4
    assert not phi[3:].any()


@pytest.mark.parametrize("rows", [np.zeros((5, 1)), np.array([[0.0], [1.0]]), np.ones((1, 1)), np.full((9, 1), 1e9)])
def test_blocks_of_rows_are_finite_for_inputs_that_hardly_vary(rows):
    for recipe in (vb.PiecewiseLinearBlock(4), vb.RobustScaling(), vb.ByKind(vb.PiecewiseLinearBlock(4), levels=3)):
        phi = init(recipe, rows)(jnp.asarray(np.concatenate([rows, rows + 1.0]).T, jnp.float32))
        assert np.isfinite(phi).all(), recipe


def test_robust_scaling_is_the_formula_and_bounded():
    block = init(vb.RobustScaling(), NUMBERS)
    low, middle, high = np.quantile(NUMBERS, (0.25, 0.5, 0.75))
    z = (NUMBERS[:, 0] - middle) / ((high - low) / 1.3489795)
    np.testing.assert_allclose(block(jnp.asarray(NUMBERS.T))[0], z / np.sqrt(1 + (z / 3) ** 2), atol=1e-5)
    far = block(jnp.array([[-1e9, 1e9]]))
    np.testing.assert_allclose(far, [[-3.0, 3.0]], atol=1e-5)
    moved = eqx.filter(block, vb.trainable(block))
    assert not jax.tree.leaves(moved)


def test_scaling_leaves_codes_as_they_are_and_numbers_not():
    codes = init(vb.RobustScaling(levels=4), CODES)
    np.testing.assert_array_equal(codes(jnp.asarray(CODES.T)), CODES.T)
    assert not np.array_equal(init(vb.RobustScaling(levels=4), NUMBERS)(jnp.asarray(NUMBERS.T)), NUMBERS.T)


def test_levels_are_told_apart_and_unknown_ones_say_nothing():
    block = init(vb.ByKind(vb.PeriodicBlock(8), levels=5), CODES)
    phi = np.asarray(block(jnp.array([[0.0, 3.0, -1.0, 9.0]])))
    assert phi[0, 0] > 0
    assert phi[3, 1] > 0
    assert np.count_nonzero(phi[:, :2]) == 2
    assert not phi[:, 3].any()
    assert not phi[:, 2].any()


def test_by_kind_is_its_block_where_the_input_is_a_number():
    recipe = vb.PeriodicBlock(8)
    rng = np.random.default_rng(0)
    both = vb.ByKind(recipe, levels=12).init(1, rng=rng, rows=NUMBERS)
    alone = init(recipe)
    x = jnp.linspace(-1.0, 1.0, 5)[None]
    np.testing.assert_array_equal(both(x)[:8], alone(x))
    assert not np.asarray(both(x)[8:]).any()


def test_embedded_puts_a_node_under_each_input_and_keeps_the_clusters():
    for skeleton in (vb.chain(3, 2), vb.additive(3, clusters=[(0, 1), (2,)], depth=2), vb.multitask(3, 2)):
        above = vb.embedded(skeleton)
        assert above.depth == skeleton.depth + 1
        assert above.sizes[1] == 3
        assert above.parents[0] == ((0,), (1,), (2,))
        assert above.clusters == skeleton.clusters
        assert above.outputs == skeleton.outputs


def test_a_network_on_embeddings_is_each_node_by_itself():
    x = np.concatenate([NUMBERS, CODES], axis=1)
    recipe = vb.ByKind(vb.PeriodicBlock(6), levels=4)
    layers = [
        vb.Layer(3, [vb.RobustScaling(levels=4), recipe], vb.PointMass(), vb.Normal(fan_in=True)),
        vb.Layer(1, posterior=vb.PointMass(), prior=vb.Normal(fan_in=True)),
    ]
    network = vb.build(vb.embedded(vb.chain(2, 1)), layers, key=jr.key(0), x=x)
    first, second = network.weights()
    inner = []
    for node in range(2):
        scaling, block = (jax.tree.map(lambda leaf, node=node: leaf[node], b) for b in network.stacks[0].features)
        inner.append(first[node] @ block(scaling(jnp.asarray(x[:, [node]].T, jnp.float32))))
    # sums in another order
    np.testing.assert_allclose(network.mean(jnp.asarray(x.T)), second[0] @ jnp.concatenate(inner), atol=1e-5)


def test_the_rows_that_a_block_is_built_from_are_those_it_reads():
    x = np.concatenate([NUMBERS, 100.0 * NUMBERS], axis=1)
    layer = vb.Layer(1, [vb.RobustScaling()], vb.PointMass())
    skeleton = vb.embedded(vb.chain(2, 1))
    network = vb.build(skeleton, [layer, vb.Layer(1, posterior=vb.PointMass())], key=jr.key(0), x=x)
    centre = network.stacks[0].features[0].centre.value
    np.testing.assert_allclose(centre[:, 0], np.median(x, axis=0), rtol=1e-5)


def test_frequencies_are_learned():
    """A wave that the first frequencies are too slow for."""
    x = np.linspace(-1.0, 1.0, 300)[:, None]
    y = np.sin(9.0 * x[:, 0])
    layers = [
        vb.Layer(8, [vb.PeriodicBlock(12, frequency=0.5)], vb.PointMass(), vb.Normal(fan_in=True), bias=True),
        vb.Layer(1),
    ]
    network = vb.build(vb.embedded(vb.chain(1, 1)), layers, key=jr.key(0), x=x)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=1500)
    mean, _ = vb.moments(fitted.network, x, key=jr.key(2))
    assert np.sqrt(np.mean((np.asarray(mean)[:, 0] - y) ** 2)) < 0.1  # the sd of y is 0.7
    before, after = (n.stacks[0].features[0].w for n in (network, fitted.network))
    assert np.abs(np.asarray(after - before)).max() > 0.1


def test_a_network_of_embeddings_goes_through_a_file(tmp_path):
    x = np.concatenate([NUMBERS, CODES], axis=1)
    layers = [
        vb.Layer(3, [vb.RobustScaling(levels=4), vb.ByKind(vb.PiecewiseLinearBlock(6), levels=4)], vb.PointMass()),
        vb.Layer(1, posterior=vb.distributions.Members(3)),
    ]
    network = vb.build(vb.embedded(vb.chain(2, 1)), layers, key=jr.key(0), x=x)
    vb.save(network, vb.Gaussian(0.1), tmp_path / "network.vertebra")
    again, _ = vb.load(tmp_path / "network.vertebra")
    rows = jnp.asarray(x.T)
    np.testing.assert_array_equal(network(rows, key=jr.key(1)), again(rows, key=jr.key(1)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: vb.PeriodicBlock(1), "`r` must be at least 2"),
        (lambda: vb.PeriodicBlock(4, frequency=0.0), "`frequency` must be positive"),
        (lambda: vb.PeriodicBlock(2).init(2, rng=np.random.default_rng(0)), "`r` must be above the number of values"),
        (
            lambda: vb.PiecewiseLinearBlock(4).init(2, rng=np.random.default_rng(0)),
            "must be of a node that reads one value, got 2",
        ),
        (
            lambda: vb.LevelsBlock(4).init(2, rng=np.random.default_rng(0)),
            "must be of a node that reads one value, got 2",
        ),
        (
            lambda: vb.RobustScaling().init(3, rng=np.random.default_rng(0)),
            "`r` must be the number of values that a node reads, 3, got 1",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
