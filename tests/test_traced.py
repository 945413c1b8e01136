"""What jit, grad and vmap go through: draws, moments, dual kernels, and `build` in its hyper-parameters."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb

X = np.random.default_rng(0).standard_normal((20, 2))


@pytest.fixture(scope="module")
def networks():
    return [vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=key) for key in jr.split(jr.key(0), 2)]


@pytest.mark.parametrize("many", [False, True], ids=["one", "ensemble"])
def test_draws_and_moments_go_through_jit(networks, many, key):
    given = networks if many else networks[0]
    for of in (vb.sample, lambda *a, **k: jnp.stack(vb.moments(*a, **k)), vb.sample_prior):
        if many and of is vb.sample_prior:
            continue
        traced = jax.jit(lambda given, x, key, of=of: of(given, x, key=key, n_draws=7))(given, X, key)
        np.testing.assert_allclose(traced, of(given, X, key=key, n_draws=7), rtol=1e-4, atol=1e-5)  # float32


def test_draws_have_slopes_in_x_and_in_weights_and_map_over_keys(networks, key):
    network, x = networks[0], jnp.asarray(X[:3], jnp.float32)
    slope = jax.grad(lambda x: vb.sample(network, x, key=key, n_draws=4)[:, 0].sum())(x)
    assert (jnp.abs(slope[0]) > 0).all()
    assert (slope[1:] == 0).all()
    mean = lambda x: vb.moments(network, x, key=key, n_draws=4)[0][0, 0]  # noqa: E731
    step = jnp.zeros_like(x).at[0, 0].set(1e-2)
    difference = (mean(x + step) - mean(x - step)) / 2e-2
    np.testing.assert_allclose(jax.grad(mean)(x)[0, 0], difference, rtol=1e-2)  # float32, steps of 0.01
    each = jax.vmap(lambda key: vb.sample(network, X, key=key, n_draws=2))(jr.split(key, 3))
    np.testing.assert_allclose(each[1], vb.sample(network, X, key=jr.split(key, 3)[1], n_draws=2), rtol=1e-4, atol=1e-5)


def rbf(lengthscale, variance=1.0):
    layer = vb.Layer(1, [vb.RandomFeatureBlock(100, kernel=vb.RBF(lengthscale, variance))], prior=vb.Normal())
    return vb.dual_kernel(vb.chain(2, 1), [layer], X)[0]


def test_a_dual_kernel_has_the_slopes_of_its_formula():
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    exact = np.exp(-0.5 * squares / 1.5**2)
    np.testing.assert_allclose(jax.jit(rbf)(1.5), exact, rtol=1e-4)  # float32
    np.testing.assert_allclose(jax.jacfwd(rbf)(1.5), exact * squares / 1.5**3, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(jax.jacrev(rbf, 1)(1.5, 2.0), exact, rtol=1e-4)
    many = jax.vmap(rbf)(jnp.array([0.5, 1.5]))
    np.testing.assert_allclose(many[1], exact, rtol=1e-4)
    with pytest.raises(Exception, match="`lengthscale` must be positive and finite"):
        jax.block_until_ready(jax.jit(rbf)(-1.0))


@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_a_deep_dual_kernel_is_traced_in_the_scale_of_a_prior(activation):
    def kernel(scale):
        layers = [vb.Layer(50, [vb.RandomFeatureBlock(50, activation)]), vb.Layer(1, prior=vb.Normal(scale))]
        return vb.dual_kernel(vb.chain(2, 2), layers, X)[0]

    np.testing.assert_allclose(jax.jit(kernel)(2.0), kernel(2.0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(kernel)(2.0), kernel(2.0), rtol=1e-4, atol=1e-5)  # s²K at s = 2: 2sK = s²K


LAYERS = {
    "prior": lambda s: [
        vb.Layer(d, posterior=vb.distributions.Gaussian("diagonal"), prior=vb.Normal(s)) for d in (3, 1)
    ],
    "low rank": lambda s: [vb.Layer(1, posterior=vb.distributions.Gaussian("low_rank"), prior=vb.Normal(s))],
    "features": lambda s: [vb.Layer(1, [vb.RandomFeatureBlock(8, "tanh", lengthscale=s, amplitude=s)])],
    "kernel": lambda s: [vb.Layer(1, [vb.RandomFeatureBlock(8, kernel=vb.Matern(1.5, s))])],
    "inducing points": lambda s: [vb.Layer(1, [vb.InducingPointBlock(5, vb.RBF(s, s))], vb.PointMass())],
}


@pytest.mark.parametrize("name", LAYERS)
def test_build_is_traced_in_hyper_parameters(name, key):
    def total(scale):
        layers = LAYERS[name](scale)
        network = vb.build(vb.chain(2, len(layers)), layers, key=key)
        return vb.elbo(network, vb.Gaussian(1.0), X, X[:, :1], key=key)

    value, slope = jax.jit(jax.value_and_grad(total))(1.5)
    np.testing.assert_allclose(value, total(1.5), rtol=1e-5)
    difference = (total(1.5 + 0.01) - total(1.5 - 0.01)) / 0.02
    np.testing.assert_allclose(slope, difference, rtol=2e-2, atol=2e-2)  # float32 totals of some 30, over 0.02
    np.testing.assert_allclose(jax.vmap(total)(jnp.array([1.0, 1.5]))[1], value, rtol=1e-5)


def test_a_traced_key_of_build_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"`key` and `x` must have values when `build` runs.*make both outside"):
        jax.jit(lambda key: vb.build(vb.chain(2, 1), vb.mean_field([1]), key=key).weights()[0])(jr.key(0))
