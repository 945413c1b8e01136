"""log p(V) p(y | V) of a flat vector, its derivatives, samplers on it, and Laplace's approximation about its mode."""

import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from reference import algorithm_1
from scipy import stats
from test_mixed import LAYERS as MIXED_LAYERS
from test_mixed import SKELETON as MIXED
from test_ties import LAYERS as TIED_LAYERS
from test_ties import SKELETON as TIED

import vertebra as vb
from vertebra import inference
from vertebra.distributions import Normal, PointMass
from vertebra.networks.features import product

UNEVEN = vb.additive(4, clusters=[(0, 1, 2), (3,)], depth=2)


def points(widths, scale=1.0):
    """Point masses under N(0, scale²/r): networks that are trained to a mode."""
    return [vb.Layer(d, posterior=PointMass(), prior=Normal(scale, fan_in=True), bias=True) for d in widths]


def small(skeleton=UNEVEN, widths=(3, 1), n=30):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, skeleton.n_inputs))
    y = np.sin(x[:, :1]) + 0.1 * rng.standard_normal((n, 1))
    return vb.build(skeleton, points(widths), key=jr.key(0)), x, y


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (5,)], ids=["shared", "own", "one row"])
def test_the_product_has_derivatives_of_both_modes_and_of_any_order(shape, key):
    v, phi = jr.normal(key, (3, 4, 5)), jr.normal(jr.key(1), shape)
    axis = 0 if len(shape) == 3 else None

    def total(of):
        return lambda v, phi: jnp.sum(jnp.sin(jax.vmap(of, in_axes=(0, axis))(v, phi)))

    for modes in ([jax.jacrev], [jax.jacfwd], [jax.jacfwd, jax.jacrev], [jax.jacrev, jax.jacrev]):
        ours, plain = total(product), total(jnp.matmul)
        for mode in modes:
            ours, plain = mode(ours, (0, 1)), mode(plain, (0, 1))
        for a, b in zip(*(jax.tree.leaves(jax.jit(f)(v, phi)) for f in (ours, plain)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)  # float32


def test_the_density_is_that_of_loops_and_has_no_padding():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.5), x, y, weight=np.arange(30.0))
    assert density.start.shape == (3 * 3 + 3 * 1 + 3 + 3,)  # d·r of two nodes, then one output each
    v = density.start + 0.3 * jr.normal(jr.key(1), density.start.shape)
    own = density.unflatten(v)
    np.testing.assert_allclose(np.concatenate([np.ravel(a) for layer in own.weights() for a in layer]), v, rtol=1e-6)
    expected = 0.0
    for i, row in enumerate(x):
        f = algorithm_1(own, [[np.asarray(w) for w in layer] for layer in own.stack_weights()], row)
        expected += i * stats.norm.logpdf(y[i, 0], np.ravel(f)[0], 0.5)
    for layer in own.weights():
        for weights in layer:
            expected += np.sum(stats.norm.logpdf(weights, scale=weights.shape[1] ** -0.5))
    np.testing.assert_allclose(density(v), expected, rtol=1e-4)  # float32 sums of 30 terms of up to 29 · 10
    assert (jnp.abs(jax.grad(density)(v)) > 0.0).all()


def test_the_start_is_the_mean_and_the_way_back_is_the_network():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.5), x, y)
    columns = jnp.asarray(x.T, jnp.float32)
    np.testing.assert_allclose(density.unflatten(density.start).mean(columns), network.mean(columns), rtol=1e-6)
    joint = vb.fit(vb.build(vb.chain(4, 2), vb.deep_kernel_learning([3, 1]), key=jr.key(0)), vb.Gaussian(), x, y,
                   key=jr.key(1), n_steps=50)  # fmt: skip
    after = vb.log_density(joint.network, joint.likelihood, x, y)
    np.testing.assert_allclose(after.unflatten(after.start).mean(columns), joint.network.mean(columns), atol=1e-5)


def test_layers_with_a_variance_of_their_own_are_refused():
    x = np.zeros((5, 1))
    for layer in (vb.Layer(1, noise=0.1), vb.inducing_points([1], r=3)[0]):
        network = vb.build(vb.chain(1, 1), [layer], key=jr.key(0))
        with pytest.raises(ValueError, match="Layer 1 has noise, or residual="):
            vb.log_density(network, vb.Gaussian(1.0), x, x)


def test_the_hessian_is_that_of_reverse_mode_twice():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.5), x, y)
    hessian = jax.jit(jax.hessian(density))(density.start)
    twice = jax.jit(jax.jacrev(jax.jacrev(density)))(density.start)
    np.testing.assert_allclose(hessian, twice, rtol=1e-3, atol=1e-3 * float(jnp.abs(twice).max()))  # float32
    direction = jr.normal(jr.key(1), density.start.shape)
    _, along = jax.jvp(jax.grad(density), (density.start,), (direction,))
    np.testing.assert_allclose(along, hessian @ direction, rtol=1e-3, atol=1e-3 * float(jnp.abs(along).max()))


def curved(name):
    """Densities for second derivatives: padded, of several kinds of blocks with copies and ties, tied, joint, …"""
    rng = np.random.default_rng(0)
    if name == "several":
        x = rng.standard_normal((20, 3))
        network = vb.build(MIXED, MIXED_LAYERS, key=jr.key(0), x=x)
    elif name == "tied":
        x = rng.standard_normal((20, 5))
        network = vb.build(TIED, TIED_LAYERS["linear means"], key=jr.key(0), x=x)
    elif name == "classes":
        x = rng.standard_normal((20, 4))
        network = vb.build(vb.chain(4, 2), points((3, 3)), key=jr.key(0))
        return vb.log_density(network, vb.Categorical(3), x, np.arange(20) % 3)
    elif name == "two_latents":
        x = rng.standard_normal((20, 4))
        layers = [vb.Layer(d, posterior=PointMass(), prior=vb.Laplace(), bias=True) for d in (3, 4)]
        network = vb.build(vb.chain(4, 2), layers, key=jr.key(0))
        weight = rng.integers(0, 3, (20, 2)).astype(float)
        y = rng.standard_normal((20, 2))
        return vb.log_density(network, vb.HeteroscedasticGaussian().init(y), x, y, weight=weight)
    else:
        network, x, _ = small(n=20)
        if name == "joint":
            y = np.sin(x[:, :1])
            layers = vb.deep_kernel_learning([3, 1])
            fitted = vb.fit(vb.build(UNEVEN, layers, key=jr.key(0)), vb.Gaussian(), x, y, key=jr.key(1), n_steps=20)
            network = fitted.network
            assert network.stacks[-1].joint
    return vb.log_density(network, vb.Gaussian(0.5), x, np.sin(x[:, :1]), weight=np.arange(20.0))


@pytest.mark.everyday("512-padded", "7-several", "512-two_latents")
@pytest.mark.parametrize("name", ["padded", "several", "tied", "classes", "two_latents", "joint"])
@pytest.mark.parametrize("chunk", [512, 7])
def test_the_hessian_by_units_is_that_of_all_weights(name, chunk, monkeypatch, x64):
    monkeypatch.setattr(inference.density, "CHUNK", chunk)
    density = curved(name)
    v = density.start + 0.3 * jr.normal(jr.key(1), density.start.shape)
    expected = jax.jit(jax.hessian(density))(v)
    scale = float(jnp.abs(expected).max())
    assert scale > 1.0
    np.testing.assert_allclose(density.hessian(v), expected, rtol=1e-8, atol=1e-10 * scale)  # float64


def seconds(functions, v, n=3):
    """The least time of a call, by processor time, of functions taken in turn."""
    for f in functions:
        jax.block_until_ready(f(v))
    least = [np.inf] * len(functions)
    for _ in range(5):
        for i, f in enumerate(functions):
            start = time.process_time()
            for _ in range(n):
                jax.block_until_ready(f(v))
            least[i] = min(least[i], time.process_time() - start)
    return least


@pytest.mark.slow
def test_a_hessian_by_units_takes_a_fifth_of_reverse_mode_twice():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 8))
    network = vb.build(vb.chain(8, 3), points((32, 32, 1)), key=jr.key(0))
    density = vb.log_density(network, vb.Gaussian(0.5), x, np.sin(x[:, :1]))
    ours, twice = seconds([density.hessian, jax.jit(jax.jacrev(jax.jacrev(density)))], density.start)
    print(ours / twice)
    assert ours <= 0.2 * twice


def test_densities_of_minibatches_are_unbiased():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.5), x, y, weight=np.arange(30.0))
    v = density.start + 0.3 * jr.normal(jr.key(1), density.start.shape)
    rows = jr.permutation(jr.key(2), 30).reshape(5, 6)
    each = jax.jit(jax.vmap(lambda rows: jax.grad(density.of_rows(rows))(v)))(rows)
    np.testing.assert_allclose(each.mean(axis=0), jax.grad(density)(v), rtol=1e-4, atol=1e-3)  # float32 sums of 30


def naive_laplace(density, last_layer):
    """Λ⁻¹ and V*, with loops over rows, outputs and weights, in the order of the vector."""
    likelihood, start = density.likelihood, density.start
    n_top = np.prod(density.network.stacks[-1].shape)
    free = np.arange(len(start))[len(start) - n_top if last_layer else 0 :]
    f = jax.jit(lambda v, i: density.unflatten(v).mean(density.x[:, i]))
    slope_of = jax.jit(jax.grad(lambda v, i, o: f(v, i)[o]))
    bend_of = jax.jit(jax.hessian(lambda value, i: -jnp.sum(likelihood.log_prob(value, density.y[i]))))
    precision = -np.asarray(jax.hessian(density.log_prior)(start), np.float64)[np.ix_(free, free)]
    slopes = []
    for i in range(density.x.shape[1]):
        n_outputs = len(f(start, i))
        slope = np.stack([slope_of(start, i, o)[free] for o in range(n_outputs)])
        bend = bend_of(f(start, i), i)
        for a in range(n_outputs):
            for b in range(n_outputs):
                precision += float(bend[a, b]) * np.outer(slope[a], slope[b])
        slopes.append(slope)
    return np.linalg.inv(precision), np.stack(slopes)


@pytest.mark.parametrize("last_layer", [False, True])
@pytest.mark.parametrize("classes", [False, True])
def test_laplace_is_its_naive_reference(last_layer, classes):
    network, x, y = small(vb.chain(4, 2) if classes else UNEVEN, (3, 3 if classes else 1), n=8)
    likelihood = vb.Categorical(3) if classes else vb.Gaussian(0.5)
    y = np.arange(8) % 3 if classes else y
    posterior = vb.linearised_laplace(network, likelihood, x, y, last_layer=last_layer)
    covariance, slopes = naive_laplace(posterior.density, last_layer)
    np.testing.assert_allclose(posterior.root @ posterior.root.T, covariance, rtol=1e-3, atol=1e-5)  # float32 slopes
    mean, variance = vb.moments(posterior, x, key=jr.key(0))
    expected = np.einsum("now,wv,nov->no", slopes, covariance, slopes)
    np.testing.assert_allclose(variance, expected, rtol=1e-3)
    np.testing.assert_allclose(mean, network.mean(jnp.asarray(x.T, jnp.float32)).T, atol=1e-6)
    f = np.asarray(vb.sample(posterior, x, key=jr.key(1), n_draws=4000))
    np.testing.assert_allclose(f.var(axis=0), expected, rtol=0.15)  # √(2/4000) = 0.02, 24 of them
    weights = posterior.networks(key=jr.key(2), n_draws=3)
    assert len(weights) == 3
    assert vb.sample(weights, x, key=jr.key(3), n_draws=6).shape == (6, *mean.shape)


def test_laplace_of_a_linear_model_is_its_closed_form():
    """f linear in V, Gaussian noise: the posterior, and the evidence, are known."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    y = x @ np.array([[1.0], [-2.0], [0.5]]) + 0.3 * rng.standard_normal((40, 1))
    gram = x.T @ x / 0.09 + np.eye(3) / 4.0
    mean = np.linalg.solve(gram, x.T @ y / 0.09)
    network = vb.build(vb.chain(3, 1), [vb.Layer(1, posterior=PointMass(), prior=Normal(2.0))], key=jr.key(0))
    at_mode = network.at([jnp.asarray(mean.T[None], jnp.float32)])
    posterior = vb.linearised_laplace(at_mode, vb.Gaussian(0.3), x, y)
    np.testing.assert_allclose(posterior.root @ posterior.root.T, np.linalg.inv(gram), rtol=1e-4, atol=1e-7)
    evidence = stats.multivariate_normal.logpdf(y[:, 0], np.zeros(40), 0.09 * np.eye(40) + 4.0 * x @ x.T)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-4)  # float32 sums


def test_the_evidence_of_a_last_layer_is_that_of_its_features():
    """The layers below are held, and pay no prior: Bayesian linear regression on tanh features."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 2))
    y = np.sin(x[:, :1]) + 0.3 * rng.standard_normal((20, 1))
    network = vb.build(vb.chain(2, 2), [vb.Layer(d, posterior=PointMass(), prior=Normal(2.0)) for d in (3, 1)],
                       key=jr.key(0))  # fmt: skip
    first, _ = network.weights()
    phi = np.tanh(x @ np.asarray(first[0], np.float64).T)
    mode = np.linalg.solve(phi.T @ phi / 0.09 + np.eye(3) / 4.0, phi.T @ y / 0.09)
    network = network.at([first, jnp.asarray(mode.T[None], jnp.float32)])
    posterior = vb.linearised_laplace(network, vb.Gaussian(0.3), x, y, last_layer=True)
    evidence = stats.multivariate_normal.logpdf(y[:, 0], np.zeros(20), 0.09 * np.eye(20) + 4.0 * phi @ phi.T)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-4)  # float32 sums


def test_draws_of_any_origin_are_an_ensemble():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.5), x, y)
    vectors = density.start[None] + 0.1 * jr.normal(jr.key(1), (40, len(density.start)))
    networks = density.networks(vectors)
    for ours, plain in zip(jax.tree.leaves(networks[7]), jax.tree.leaves(density.unflatten(vectors[7])), strict=True):
        np.testing.assert_array_equal(ours, plain)
    each = np.stack([density.unflatten(v).mean(density.x).T for v in vectors])
    np.testing.assert_allclose(vb.sample(networks, x, key=jr.key(2), n_draws=40), each, atol=1e-6)
    # fewer than there are: evenly among them
    np.testing.assert_allclose(vb.sample(networks, x, key=jr.key(2), n_draws=2), each[[0, 39]], atol=1e-6)
    mean, variance = vb.moments(networks, x, key=jr.key(3))
    np.testing.assert_allclose(mean, each.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(variance, each.var(axis=0), rtol=1e-4, atol=1e-8)


def leapfrogs(density, start, key, n=200):
    """The mean number of leapfrog steps a draw, and the draws, after a warm-up."""
    blackjax = pytest.importorskip("blackjax", reason="NUTS is BlackJAX's: pip install 'vertebra[experiments]'")
    warm_key, key = jr.split(key)
    warm = blackjax.window_adaptation(blackjax.nuts, density)
    (state, parameters), _ = warm.run(warm_key, start, 400)
    step = blackjax.nuts(density, **parameters).step
    _, (draws, steps) = jax.lax.scan(
        lambda state, key: (lambda s, info: (s, (s.position, info.num_integration_steps)))(*step(key, state)),
        state,
        jr.split(key, n),
    )
    return float(jnp.mean(steps)), np.asarray(draws)


@pytest.mark.slow
def test_nuts_takes_as_many_steps_as_without_padding():
    network, x, y = small()
    density = vb.log_density(network, vb.Gaussian(0.3), x, y)
    first, second = network.weights()
    shapes = [a.shape for a in (*first, *second)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    read = jnp.asarray(x.T, jnp.float32)

    def plain(v):
        """The same network, written out: two sub-networks that read three inputs and one."""
        a, b, c, d = (p.reshape(s) for p, s in zip(jnp.split(v, ends[:-1]), shapes, strict=True))
        f = c @ jnp.tanh(a @ read[:3]) + d @ jnp.tanh(b @ read[3:])
        prior = sum(jnp.sum(jax.scipy.stats.norm.logpdf(p, scale=p.shape[1] ** -0.5)) for p in (a, b, c, d))
        return prior + jnp.sum(jax.scipy.stats.norm.logpdf(y.T, f, 0.3))

    np.testing.assert_allclose(density(density.start), plain(density.start), rtol=1e-5)
    ours, plainly = (leapfrogs(target, density.start, jr.key(1))[0] for target in (density, plain))
    print(ours, plainly)
    assert ours <= 1.3 * plainly
