import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from reference import anova

import vertebra as vb
from vertebra.effects import decomposition, pieces
from vertebra.effects.grid import product
from vertebra.networks.keys import fast

X = np.random.default_rng(0).random((5, 4))
CLUSTERS = ((0, 1), (1, 2, 3))
SCHEMES = {
    "mc_dropout": lambda: vb.mc_dropout([3, 1], rate=0.2),
    "mean_field": lambda: vb.mean_field([3, 1]),
    "random_features": lambda: vb.random_features([2, 1], r=4),
    "deep_random_features": lambda: vb.deep_random_features([2, 1], r=4),
    "deep_kernel_learning": lambda: vb.deep_kernel_learning([3, 1]),
    "inducing_points": lambda: vb.inducing_points([2, 1], r=4),
}


def built(scheme, **options):
    skeleton = vb.additive(4, clusters=CLUSTERS, depth=2, **options)
    return vb.build(skeleton, SCHEMES[scheme](), key=jr.key(0), x=X)


def mean_function(network, key, n_draws):
    """E f as `decompose` sees it: exact where linear, else the mean over the same draws."""
    if network.is_linear_in_v:
        return lambda x: np.asarray(network.mean(jnp.asarray(x).T))[0]
    draws = jax.vmap(network.weights)(jr.split(fast(key), n_draws))

    def of(x):
        drawn = [network.at(jax.tree.map(lambda w, d=d: w[d], draws)) for d in range(n_draws)]
        each = [own.mean(jnp.asarray(x).T)[0] for own in drawn]
        return np.mean(np.asarray(each), axis=0)

    return of


@pytest.mark.everyday("mc_dropout", "mean_field", "random_features", "deep_kernel_learning")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_theorem_4_components_equal_brute_force_with_few_evaluations_and_none_outside_the_clusters(
    scheme, x64, monkeypatch
):
    network, key, n = built(scheme), jr.key(1), len(X)
    counted = []
    for name, place in (("_features", 1), ("_at_draws", 2)):
        original = getattr(pieces, name)
        monkeypatch.setattr(
            pieces,
            name,
            lambda *args, original=original, place=place: (counted.append(args[place].shape[1]), original(*args))[1],
        )
    effects = vb.decompose(network, X, key=key, n_draws=3)
    # each sub-network on its own grid of all n values, once: Σ_m n^{|T_m|}, not n^p
    assert sum(counted) <= sum(n ** len(cluster) for cluster in CLUSTERS)
    # eq. (5) as it stands: means over all n^p combinations of the values, for every subset of the inputs
    wanted = anova(mean_function(network, key, 3), X)
    scale = np.abs(wanted[()]).max() + np.abs(wanted[(1,)]).max()
    inside = {s for c in CLUSTERS for k in range(len(c) + 1) for s in itertools.combinations(c, k)}
    assert set(effects) == inside
    for term, component in wanted.items():
        if term in inside:
            # rounding of sums over 625 terms
            np.testing.assert_allclose(effects[term].mean, component, atol=1e-12 * scale)
        else:
            np.testing.assert_allclose(component, 0.0, atol=1e-12 * scale)


@pytest.mark.parametrize("scheme", ["mean_field", "deep_kernel_learning"])
def test_effects_and_local_attributions_agree_and_sum_to_the_function(scheme, x64):
    network, key = built(scheme), jr.key(1)
    effects = vb.decompose(network, X, key=key, n_draws=4)
    local = vb.attribute(network, X, X, key=key, n_draws=4)
    assert set(local) == set(effects)
    total = sum(part.mean for part in local.values())
    np.testing.assert_allclose(total, mean_function(network, key, 4)(X), rtol=1e-10)
    for term, effect in effects.items():
        at = tuple(np.searchsorted(axis.points, X[:, i]) for i, axis in zip(term, effect.axes, strict=True))
        np.testing.assert_allclose(np.broadcast_to(effect.mean[at], len(X)), local[term].mean, atol=1e-12)
        np.testing.assert_allclose(np.broadcast_to(effect.sd[at], len(X)), local[term].sd, atol=1e-10)


def test_closed_form_posteriors_agree_with_draws_of_the_weights(x64):
    x = np.random.default_rng(1).random((60, 4))
    y = x[:, 0] * x[:, 1] + x[:, 2]
    network = vb.fit(
        vb.build(vb.additive(4, clusters=CLUSTERS, depth=2), vb.deep_kernel_learning([3, 1]), key=jr.key(0), x=x),
        vb.Gaussian(),
        x,
        y,
        key=jr.key(0),
        n_steps=25,
    ).network
    assert network.is_linear_in_v
    effects = vb.decompose(network, x, key=jr.key(1), n_draws=2000, nodes=6)
    drawn = jax.vmap(network.weights)(jr.split(jr.key(2), 300))
    term = (0, 1)
    points = product([axis.points for axis in effects[term].axes])
    sub = network.subnetwork(0)
    values = jax.jit(jax.vmap(lambda *w: sub.at([v[:1] for v in w]).mean(jnp.asarray(points.T))[0]))(*drawn)
    values = np.asarray(values).reshape(300, 6, 6)
    weight = [axis.average for axis in effects[term].axes]
    rows = np.einsum("dab,b->da", values, weight[1])[:, :, None]
    columns = np.einsum("dab,a->db", values, weight[0])[:, None, :]
    pure = values - rows - columns + np.einsum("dab,a,b->d", values, *weight)[:, None, None]
    # 300 draws: a relative error of 4 % in an sd; five of these
    np.testing.assert_allclose(effects[term].sd, pure.std(axis=0), rtol=0.2)
    np.testing.assert_allclose(effects[term].mean, pure.mean(axis=0), atol=5 * effects[term].sd.max() / np.sqrt(300))
    strengths = np.sqrt(np.einsum("dab,a,b->d", pure**2, *weight))
    assert effects[term].strength == pytest.approx(strengths.mean(), rel=0.1)


def test_a_baseline_row_gives_differences_from_it(x64):
    network, anchor = built("deep_kernel_learning"), np.array([0.2, 0.4, 0.6, 0.8])
    f = mean_function(network, jr.key(1), 2)
    local = vb.attribute(network, X, X, key=jr.key(1), baseline=anchor, n_draws=2)
    moved = np.tile(anchor, (len(X), 1))
    np.testing.assert_allclose(local[()].mean, f(moved), rtol=1e-10)
    moved[:, 1] = X[:, 1]
    np.testing.assert_allclose(local[(1,)].mean, f(moved) - f(anchor[None]), atol=1e-12)
    effects = vb.decompose(network, X, key=jr.key(1), baseline=anchor, n_draws=2)
    zero = effects[(1,)].mean[np.searchsorted(effects[(1,)].axes[0].points, anchor[1])]
    assert zero == pytest.approx(0.0, abs=1e-12)


def test_row_weights_are_repeated_rows(x64):
    network = built("deep_kernel_learning")
    weight = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    weighted = vb.decompose(network, X, key=jr.key(1), weight=weight, n_draws=2)
    repeated = vb.decompose(network, np.repeat(X, weight.astype(int), axis=0), key=jr.key(1), n_draws=2)
    for term in weighted:
        np.testing.assert_allclose(weighted[term].mean, repeated[term].mean, atol=1e-12)
        assert weighted[term].strength == pytest.approx(repeated[term].strength, rel=1e-10)


def test_gauss_nodes_stand_for_all_values_and_points_to_look_at_change_nothing(x64):
    x = np.random.default_rng(2).random((400, 4))
    network = built("deep_kernel_learning")
    every = vb.decompose(network, x, key=jr.key(1), terms=[(0, 1), (0,)], nodes=400, n_draws=2)
    few = vb.decompose(network, x, key=jr.key(1), terms=[(0, 1), (0,)], n_draws=2, points=7)
    assert set(few) == {(0, 1), (0,)}
    assert every[(0, 1)].mean.shape == (400, 400)
    # x1 is read by a cluster of three as well: 12 nodes instead of 20
    assert few[(0, 1)].mean.shape == (27, 19)
    for term in few:
        # 12 Gauss nodes are exact to degree 23: a tanh network of small weights is smoother than that
        size = np.sqrt(np.sum(every[term].weight * every[term].mean ** 2))
        assert np.sqrt(np.sum(few[term].weight * few[term].mean ** 2)) == pytest.approx(size, rel=1e-8)


def test_clusters_too_large_for_a_grid_are_sampled_with_their_error(x64, monkeypatch):
    network = vb.build(vb.chain(4, 2), vb.mean_field([3, 1]), key=jr.key(0))
    x = np.random.default_rng(3).random((50, 4))
    exact = vb.decompose(network, x, key=jr.key(1), n_draws=2, nodes=8)
    monkeypatch.setattr(decomposition, "MAX_GRID", 100)
    sampled = vb.decompose(network, x, key=jr.key(1), n_draws=2, nodes=8)
    assert max(map(len, sampled)) == 2
    assert all(effect.error == 0.0 for effect in exact.values())
    for term, effect in sampled.items():
        assert effect.error > 0.0
        # within 4 of the standard errors it reports, in the mean square over the grid
        away = np.sqrt(np.sum(effect.weight * (effect.mean - exact[term].mean) ** 2))
        assert away < 4 * effect.error


def test_bands_hold_the_whole_function_where_they_say_so(x64):
    effect = vb.decompose(built("deep_kernel_learning"), X, key=jr.key(1), n_draws=2000)[(1, 2)]
    for simultaneous in (False, True):
        low, high = effect.band(0.9, simultaneous=simultaneous)
        inside = (effect.draws >= low) & (effect.draws <= high)
        share = inside.reshape(2000, -1).all(axis=1).mean() if simultaneous else inside.mean()
        assert share == pytest.approx(0.9, abs=1e-3)


def test_sobol_shares_are_those_of_the_variance(x64):
    network = built("deep_kernel_learning")
    effects = vb.decompose(network, X, key=jr.key(1), n_draws=50)
    shares = vb.sobol(effects)
    squares = {t: e.strengths**2 for t, e in effects.items() if t}
    whole = sum(squares.values())
    assert shares[1].first == pytest.approx(np.mean(squares[(1,)] / whole))
    with_1 = [(1,), (0, 1), (1, 2), (1, 3), (1, 2, 3)]
    assert shares[1].total == pytest.approx(np.mean(sum(squares[t] for t in with_1) / whole))
    assert all(share.first <= share.total + 1e-12 for share in shares.values())
    # interactions are counted once for each of their inputs
    assert sum(share.first for share in shares.values()) <= 1.0 <= sum(share.total for share in shares.values()) + 1e-12
    assert vb.sobol({(): effects[()]}) == {}


def test_several_outputs_have_effects_each(x64):
    skeleton = vb.additive(4, clusters=CLUSTERS, depth=2)
    network = vb.build(skeleton, vb.deep_kernel_learning([3, 2]), key=jr.key(0))
    values = np.asarray(network.mean(jnp.asarray(X.T)))
    for output in range(2):
        local = vb.attribute(network, X, X, key=jr.key(1), output=output, n_draws=2)
        np.testing.assert_allclose(sum(part.mean for part in local.values()), values[output], rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": X[:, :2]}, r"`x` must have the shape \(n, 4\)"),
        ({"weight": np.ones(3)}, "`weight` must have one weight per row, 5"),
        ({"baseline": np.ones(3)}, "`baseline` must be one row of 4 values"),
        ({"output": 1}, "`output` must be from 0 to 0, got 1"),
        ({"n_draws": 1}, "`n_draws` must be at least 2, got 1"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        vb.decompose(built("deep_kernel_learning"), **{"x": X, "key": jr.key(0), **options})
