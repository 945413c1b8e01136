import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb
from vertebra.distributions import PointMass
from vertebra.networks.stack import pile

X = np.random.default_rng(0).normal(size=(5, 3))
WIDE = 100

# Every scheme where the wide network has a kernel, on three skeletons.
SCHEMES = {
    "mc_dropout": lambda widths: vb.mc_dropout(widths),
    "mean_field": lambda widths: vb.mean_field(widths),
    "random_features": lambda widths: vb.random_features(widths, r=WIDE),
    "random_features of RBF": lambda widths: vb.random_features(widths, r=WIDE, kernel=vb.Matern(1.5)),
    "deep_random_features": lambda widths: vb.deep_random_features(widths, r=WIDE),
    "deep_kernel_learning": lambda widths: vb.deep_kernel_learning(widths),
}


def inducing_points(widths):
    # one layer of points on the data itself is K exactly there
    return [vb.Layer(d, [vb.InducingPointBlock(len(X), vb.RBF(), z=jnp.asarray(X))]) for d in widths]


@pytest.mark.everyday(
    "mc_dropout-chain",
    "mean_field-additive",
    "random_features-one layer",
    "random_features of RBF-one layer",
    "deep_random_features-chain",
    "deep_kernel_learning-additive",
)
@pytest.mark.parametrize(
    ("skeleton", "widths"),
    [
        (vb.chain(3, 1), [1]),
        (vb.chain(3, 2, activation="tanh"), [WIDE, 1]),
        (vb.additive(3, 2, 2, clusters=[(0, 1), (2,)], activation="relu"), [WIDE, 1]),
    ],
    ids=["one layer", "chain", "additive"],
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_prior_draws_have_the_covariance_of_the_dual_kernel(scheme, skeleton, widths):
    layers = SCHEMES[scheme](widths)
    kernel = np.asarray(vb.dual_kernel(skeleton, layers, X))[0]
    # Many networks, so that W is drawn anew as well.
    networks = [vb.build(skeleton, layers, key=jr.key(seed)) for seed in range(40)]
    draws = [vb.sample_prior(network, X, key=jr.key(seed), n_draws=50) for seed, network in enumerate(networks)]
    draws = np.concatenate(draws)[..., 0]
    covariance = draws.T @ draws / len(draws)
    # Monte Carlo over 2000 draws: a relative sd of √(2/2000) = 3 %; W of 40 networks with r = 100: √(5/4000) = 4 % per
    # block. 16 % is three of these together.
    np.testing.assert_allclose(covariance, kernel, atol=0.16 * np.max(kernel))


def test_inducing_points_on_the_rows_have_their_kernel_exactly(x64):
    skeleton = vb.chain(3, 1)
    layers = inducing_points([1])
    network = vb.build(skeleton, layers, key=jr.key(0))
    block = jax.tree.map(lambda leaf: leaf[0], network.stacks[0].features[0])
    # jitter of 1e-9 relative in K(Z, Z)
    np.testing.assert_allclose(
        vb.empirical_kernel(block, X), np.asarray(vb.dual_kernel(skeleton, layers, X))[0], rtol=1e-6
    )


def test_two_sets_of_rows_give_a_block_of_the_whole_matrix():
    skeleton = vb.chain(3, 2, activation="erf")
    layers = vb.random_features([4, 1], r=8, activation="tanh")
    whole = vb.dual_kernel(skeleton, layers, X)
    np.testing.assert_allclose(vb.dual_kernel(skeleton, layers, X[:2], X[2:]), whole[:, :2, 2:], rtol=1e-4)
    # symmetric, positive
    np.testing.assert_allclose(whole[0], whole[0].T, rtol=1e-4)
    assert np.linalg.eigvalsh(np.asarray(whole[0], np.float64)).min() > -1e-4


def test_several_outputs_have_a_kernel_each_and_share_what_lies_below():
    skeleton = vb.multitask(3, 2, 2)
    whole = vb.dual_kernel(skeleton, vb.mean_field([4, 1]), X)
    assert whole.shape == (2, 5, 5)
    np.testing.assert_allclose(whole[0], whole[1], rtol=1e-6)


def test_priors_draw_what_they_say(key):
    # Moments of 20,000 draws: relative Monte Carlo error below 3 % (4 s.e.).
    v = np.asarray(vb.Normal(2.0, fan_in=True).sample(key, 5000, 4))
    assert v.std() == pytest.approx(1.0, rel=0.03)
    v = np.asarray(vb.Laplace(0.5).sample(key, 5000, 4))
    assert np.abs(v).mean() == pytest.approx(0.5, rel=0.03)
    lengths = np.linalg.norm(np.asarray(vb.GroupLasso(3.0).sample(key, 4, 20_000)), axis=0)
    # Γ(4, 1/3)
    assert lengths.mean() == pytest.approx(4 / 3, rel=0.03)
    assert lengths.var() == pytest.approx(4 / 9, rel=0.06)
    live = jnp.asarray([1.0, 0.0, 1.0])
    for prior in (vb.Normal(), vb.Laplace(), vb.GroupLasso()):
        v = np.asarray(prior.sample(key, 2, 3, live=live))
        assert (v[:, 1] == 0).all()
        assert (v[:, 0] != 0).all()


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (vb.mean_field([3]), "`layers` must have one entry per layer of the skeleton, 2, got 1"),
        (vb.select_inputs(vb.mean_field([3, 1])), "Layer 1 has the prior GroupLasso"),
        (vb.inducing_points([3, 1]), "Layer 1 has `mean='linear'`"),
        ([vb.Layer(2, noise=0.1), vb.Layer(1)], r"Layer 1 has `noise=0.1`"),
    ],
)
def test_networks_without_a_kernel_are_refused_with_the_reason(layers, words):
    with pytest.raises(ValueError, match=words):
        vb.dual_kernel(vb.chain(3, 2), layers, X)
    with pytest.raises(ValueError, match=r"`x` must have the shape \(n, 3\)"):
        vb.dual_kernel(vb.chain(3, 2), vb.mean_field([2, 1]), X[:, :2])


def test_proposition_1_a_layer_given_the_one_below_is_a_gaussian_process_with_the_empirical_kernel(x64):
    skeleton = vb.chain(3, 2, activation="tanh")
    network = vb.build(skeleton, vb.random_features([2, 1], r=6), key=jr.key(0))
    below = jnp.asarray(X.T)[:, None]
    for stack in network.stacks:
        block = jax.tree.map(lambda leaf: leaf[0], stack.features[0])
        reads = stack.inputs(below)
        k_hat = np.asarray(vb.empirical_kernel(block, np.asarray(reads).T))
        phi = np.asarray(stack.phi(reads)[0])[0]
        # Exactly: f = Vφ is linear in V ~ N(0, I), so Cov(f, f') = Σ_k f_{e_k} f'_{e_k} over the unit vectors e_k.
        _, d, r = stack.function.posterior.mean.shape
        at = jax.jit(jax.vmap(lambda v, stack=stack, below=below: _at(stack, v)(below)[0, 0]))
        units = np.zeros((r, 1, d, r))
        units[np.arange(r), 0, 0, np.arange(r)] = 1.0
        by_units = np.asarray(at(jnp.asarray(units)))
        np.testing.assert_allclose(by_units.T @ by_units, k_hat, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(phi.T @ phi, k_hat, rtol=1e-12, atol=1e-15)
        # By Monte Carlo: within 4 standard errors of a product of two normals, √((K_ii K_jj + K_ij²)/N).
        prior = jax.tree.map(lambda leaf: leaf[0], stack.function.prior)
        v = jax.jit(jax.vmap(lambda key, prior=prior, d=d, r=r: prior.sample(key, d, r)))(jr.split(jr.key(1), 40_000))
        f = np.asarray(at(v[:, None]))
        error = np.sqrt((np.outer(np.diag(k_hat), np.diag(k_hat)) + k_hat**2) / len(f))
        assert np.abs((f.T @ f / len(f) - k_hat) / error).max() < 4.0
        below = stack.draw(below, jr.key(2))


def _at(stack, v):
    """The layer at given weights."""
    fixed = eqx.tree_at(lambda s: s.function.posterior, stack, jax.vmap(PointMass)(v))
    return lambda h: fixed.conditional(h)[0]


# A compact set: a grid on the disc of radius 2.
DISC = np.array([[a, b] for a in np.linspace(-2, 2, 7) for b in np.linspace(-2, 2, 7) if a * a + b * b <= 4.0])
SIZES = [2**power for power in range(4, 15)]


def slope_of_the_kernel_error(activation, n_networks=40):
    """The slope of log mean sup |K̂ − K| over the disc against log r."""
    kernel = np.asarray(vb.dual_kernel(vb.chain(2, 1), [vb.Layer(1, [vb.RandomFeatureBlock(2, activation)])], DISC))[0]
    rng = np.random.default_rng(0)
    errors = []
    for r in SIZES:
        blocks = pile([vb.RandomFeatureBlock(r, activation).init(2, rng=rng) for _ in range(n_networks)])
        errors.append(np.mean(_sup_error(blocks, jnp.asarray(DISC), jnp.asarray(kernel))))
    return np.polyfit(np.log(SIZES), np.log(errors), 1)[0]


@eqx.filter_jit
def _sup_error(blocks, x, kernel):
    def one_block(block):
        phi = block(x.T)
        return jnp.abs(phi.T @ phi - kernel).max()

    arrays, rest = eqx.partition(blocks, eqx.is_array)
    return jax.lax.map(lambda part: one_block(eqx.combine(part, rest)), arrays)


@pytest.mark.everyday("erf")
@pytest.mark.parametrize("activation", ["sigmoid", "erf", "softsign", "tanh", "arctan"])
def test_theorem_0_features_of_bounded_activations_approach_their_dual_kernel_as_r_to_the_minus_half(activation, x64):
    # 40 networks of each size: the slope's own standard error is about 0.01.
    assert slope_of_the_kernel_error(activation) == pytest.approx(-0.5, abs=0.05)


def test_theorem_1_relu_features_approach_the_arc_cosine_kernel_as_r_to_the_minus_half(x64):
    assert slope_of_the_kernel_error("relu") == pytest.approx(-0.5, abs=0.05)
