import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb
from vertebra.distributions import GroupLasso, Laplace, Members, kl
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.networks.priors import Normal

K, R, D = 5, 6, 3


def trained(rank=1, k=K, spread="signs", seed=0):
    """Members away from where they start."""
    q = Members(k, rank, spread=spread).init(R, D, prior=Normal(), rng=np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    return jax.tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape).astype(leaf.dtype), q)


def network_of(k=K, skeleton=None, widths=(4, 1), seed=0, **options):
    layers = [vb.Layer(d, posterior=Members(k, **options), prior=vb.Normal(fan_in=True), bias=True) for d in widths]
    return vb.build(vb.chain(2, len(widths)) if skeleton is None else skeleton, layers, key=jr.key(seed))


@pytest.mark.parametrize("rank", [1, 3])
def test_a_member_is_the_formula_in_loops(rank):
    q = trained(rank)
    for m in range(K):
        for j in range(D):
            for i in range(R):
                factor = sum(float(q.left[m, a, j]) * float(q.right[m, a, i]) for a in range(rank))
                assert float(q.member(m)[j, i]) == pytest.approx(float(q.matrix[j, i]) * factor, abs=1e-5)
    np.testing.assert_allclose(q.mean, np.mean([q.member(m) for m in range(K)], axis=0), atol=1e-6)


@pytest.mark.parametrize("rank", [1, 3])
def test_every_column_is_projected_by_its_own_member(rank):
    q = trained(rank)
    phi, which = jr.normal(jr.key(0), (R, 20)), np.arange(20) % K
    expected = np.stack([np.asarray(q.member(int(m)) @ phi[:, c]) for c, m in enumerate(which)], axis=1)
    np.testing.assert_allclose(q.project(phi, jnp.asarray(which)), expected, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_members_start_with_the_law_of_separate_networks(rank):
    """Moments of V_m, and of products over pairs of members, over 4,000 starts, beside those of N(0, scale²/r)."""
    prior, draws = vb.Normal(2.0, fan_in=True), []
    for seed in range(4000):
        q = Members(2, rank).init(R, D, prior=prior, rng=np.random.default_rng(seed))
        draws.append(np.stack([q.member(0), q.member(1)]))
    v, sd = np.stack(draws), 2.0 / np.sqrt(R)
    np.testing.assert_allclose(v.std(axis=0), sd, rtol=0.06)  # 4 standard errors of an sd: 4/√8000
    np.testing.assert_allclose((v**4).mean(axis=0) / sd**4, 3.0, rtol=0.25)  # 4 standard errors: 4·√(96/4000)/3
    flat = v.reshape(len(v), 2, -1)
    np.testing.assert_allclose(np.corrcoef(flat[:, 0].T, flat[:, 1].T)[:18, 18:], 0.0, atol=0.07)  # 4/√4000


def test_functions_of_members_start_with_the_law_of_separate_networks():
    """Variance of f at a row over 600 builds; biases start at 0 in both."""
    x = jnp.array([[0.7], [-1.2]])
    separate = [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Normal(fan_in=True), bias=True) for d in (4, 1)]
    ours = [float(network_of(2, seed=seed).member(1).mean(x)[0, 0]) for seed in range(600)]
    theirs = [float(vb.build(vb.chain(2, 2), separate, key=jr.key(seed + 10_000)).mean(x)[0, 0]) for seed in range(600)]
    assert np.std(ours) == pytest.approx(np.std(theirs), rel=0.17)  # 4 standard errors of a ratio: 4/√600
    assert abs(np.mean(ours)) < 4.0 * np.std(ours) / np.sqrt(600)


def test_without_spread_all_members_are_one_point_mass_with_its_kl():
    q = Members(K, spread=0.0).init(R, D, prior=Normal(), rng=np.random.default_rng(0))
    alone = vb.PointMass().init(R, D, prior=Normal(), rng=np.random.default_rng(0))
    for m in range(K):
        np.testing.assert_allclose(q.member(m), alone.mean, rtol=1e-6)
    for prior in (Normal(0.7), Laplace(0.5), GroupLasso(2.0)):
        np.testing.assert_allclose(kl(q, prior), kl(alone, prior), rtol=1e-5)


@pytest.mark.parametrize("prior", [Normal(0.7), Normal(1.5, fan_in=True), Laplace(0.5), GroupLasso(2.0)], ids=repr)
@pytest.mark.parametrize("rank", [1, 3])
def test_kl_is_the_mean_of_draws(prior, rank):
    q = trained(rank)
    draws = jax.vmap(q.sample)(jr.split(jr.key(0), 4000))
    costs = np.asarray(jax.vmap(prior.cost)(draws), dtype=float)
    exact = float(kl(q, prior))
    assert abs(costs.mean() - exact) < 4.0 * costs.std() / np.sqrt(len(costs))
    np.testing.assert_allclose(exact, np.mean([float(prior.cost(q.member(m))) for m in range(K)]), rtol=1e-5)
    assert vb.distributions.kl_is_exact(q, prior)


def test_padding_has_no_cost_and_no_weight():
    live = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    q = Members(K).init(R, D, prior=Normal(), live=live, rng=np.random.default_rng(0))
    assert not np.asarray(q.member(2))[:, 4:].any()
    full, cut = (kl(q, Normal(fan_in=True), live=None if each is None else jnp.asarray(each)) for each in (None, live))
    np.testing.assert_allclose(full / cut, 6 / 4, rtol=1e-5)


def test_a_draw_is_one_member_in_all_layers():
    network, x = network_of(), jr.normal(jr.key(1), (2, 7))
    outputs = np.stack([np.asarray(m.mean(x)) for m in network.members()])
    seen = set()
    for seed in range(40):
        drawn = np.asarray(network(x, key=jr.key(seed)))
        nearest = int(np.argmin(np.abs(outputs - drawn).max(axis=(1, 2))))
        np.testing.assert_allclose(drawn, outputs[nearest], atol=1e-5)
        again = network.at(network.weights(jr.key(seed)))
        np.testing.assert_allclose(again.mean(x), drawn, atol=1e-5)
        seen.add(nearest)
    assert seen == set(range(K))


def test_a_column_meets_one_member_in_all_layers():
    network, x = network_of(), jr.normal(jr.key(1), (2, 50))
    mean, _ = network.conditional(x, network.noise(jr.key(2), (50,)))
    outputs = np.stack([np.asarray(m.mean(x))[0] for m in network.members()])
    assert np.abs(outputs - np.asarray(mean)).min(axis=0).max() < 1e-5


def test_the_elbo_over_k_draws_is_the_mean_of_those_of_separate_networks():
    network, x, y = network_of(), jr.normal(jr.key(1), (2, 9)), jr.normal(jr.key(2), (9, 1))
    rest = x, y, jnp.ones((9, 1)), 1.0
    together = minibatch_elbo(network, vb.Gaussian(0.5), *rest, step_noise(network, 9, key=jr.key(3), n_draws=K))
    apart = [minibatch_elbo(m, vb.Gaussian(0.5), *rest, step_noise(m, 9, key=jr.key(3))) for m in network.members()]
    np.testing.assert_allclose(together, np.mean(apart), rtol=1e-5)


def test_with_factors_frozen_at_one_training_is_that_of_one_network():
    """Equal predictions: k members without spread, whose factors are held, and a point mass of the same start."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    rows, y, weight = jnp.asarray(x.T), jnp.asarray(x[:, :1] * x[:, 1:]), jnp.ones((60, 1))
    shared = dict(prior=vb.Normal(fan_in=True), bias=True)
    layers = [vb.Layer(d, posterior=Members(3, spread=0.0), **shared) for d in (6, 1)]
    ours = vb.build(vb.chain(2, 2), layers, key=jr.key(0))
    theirs = ours.member(0)

    def factors(network):
        return [f for s in network.stacks for f in (s.function.posterior.left, s.function.posterior.right)]

    def moved(network, n_draws):
        noise = step_noise(network, 60, key=jr.key(1), n_draws=n_draws)
        loss = lambda n: -minibatch_elbo(n, vb.Gaussian(0.3), rows, y, weight, 1.0, noise) / 60  # noqa: E731
        return jax.tree.map(lambda p, g: p - 0.02 * g, network, eqx.filter_grad(loss)(network))

    start = np.asarray(theirs.mean(rows))
    for _ in range(20):
        ours, theirs = eqx.tree_at(factors, moved(ours, 3), factors(ours)), moved(theirs, 1)
    assert np.abs(np.asarray(theirs.mean(rows)) - start).max() > 0.01
    np.testing.assert_allclose(ours(rows, key=jr.key(5)), theirs(rows, key=jr.key(5)), atol=1e-4)  # float32


@pytest.mark.parametrize(
    "skeleton",
    [vb.chain(2, 2), vb.additive(2, clusters=[(0, 1), (1,)], depth=2), vb.multitask(2, 2)],
    ids=["chain", "additive", "multitask"],
)
def test_members_are_trained_on_any_skeleton_beside_other_posteriors(skeleton):
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = np.repeat(x[:, :1], len(skeleton.outputs), axis=1)
    layers = [vb.Layer(4, posterior=Members(3, 2), prior=vb.Normal(fan_in=True)), vb.Layer(1)]
    networks = [vb.build(skeleton, layers, key=jr.key(seed)) for seed in range(2)]
    fitted = vb.fit(networks, vb.Gaussian(), x, y, key=jr.key(1), n_steps=400, folds=2, n_draws=3, n_rounds=2)
    everyone = [member for network in fitted.networks for member in network.members()]
    assert len(everyone) == 6
    for unseen, network in zip(fitted.unseen, fitted.networks, strict=True):
        mean, _ = vb.moments(network.members(), x[unseen], key=jr.key(2))
        assert np.sqrt(np.mean((np.asarray(mean) - y[unseen]) ** 2)) < 0.3  # the sd of y is 1
    mean, variance = vb.moments(fitted.network, x, key=jr.key(2), n_draws=300)
    apart, within = vb.moments(fitted.network.members(), x, key=jr.key(2))
    # 300 draws of three members
    np.testing.assert_allclose(mean, apart, atol=5.0 * float(np.sqrt(np.max(variance) / 300)) + 1e-4)
    assert variance.shape == within.shape


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Members(0), "`k` must be"),
        (lambda: Members(2, 0), "`rank` must be"),
        (lambda: Members(2, spread=-1.0), '`spread` must be "signs" or a finite number'),
        (lambda: network_of(widths=(2,), skeleton=_tied()), "has tied nodes"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_members_of_two_numbers_are_refused():
    layers = [vb.Layer(2, posterior=Members(2)), vb.Layer(1, posterior=Members(3))]
    with pytest.raises(ValueError, match="must be the same in all layers, got 2, 3"):
        vb.build(vb.chain(2, 2), layers, key=jr.key(0))


def _tied():
    nodes = (vb.Node("g", ("x0",)), vb.Node("h", ("x1",), tied="g"))
    return vb.Skeleton(("x0", "x1"), (nodes,), (vb.Output("f", ("g", "h")),))
