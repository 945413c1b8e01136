import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb
from vertebra import RBF, InducingPointBlock, Linear, Matern, RandomFeatureBlock
from vertebra.distributions import Normal, PointMass
from vertebra.inference.arguments import check_likelihood
from vertebra.networks.blocks import FunctionBlock, spread_points

P = 3
X = jr.normal(jr.key(10), (P, 8))


def test_random_features_are_the_formula(rng):
    block = RandomFeatureBlock(5, "tanh", lengthscale=2.0, amplitude=1.5, bias=True).init(P, rng=rng)
    w, b = block.base.value / 2.0, block.offset.value
    np.testing.assert_allclose(block(X), 1.5 * np.tanh(w @ X + b[:, None]) / np.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(block(X[:, 0]), block(X)[:, 0], rtol=1e-6)


def test_random_features_take_any_function(rng):
    block = RandomFeatureBlock(5, lambda a: a**3, lengthscale=1.0).init(P, rng=rng)
    np.testing.assert_allclose(block(X), (np.asarray(block.w) @ X) ** 3 / np.sqrt(5), rtol=1e-5)


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("kernel", [RBF(0.7, 1.3), Matern(0.5, 0.7, 1.3), Matern(1.5, 0.7), Matern(2.5, 0.7)])
def test_spectral_features_approach_their_kernel(kernel, orthogonal, rng):
    r = 20_000
    block = RandomFeatureBlock(r, kernel=kernel, orthogonal=orthogonal).init(P, rng=rng)
    phi = block(X)
    exact = kernel.init(P).columns(X.T, X)
    # Each entry of φᵀφ is a mean of r/2 cosines: sd at most variance/√r = 0.01; 64 entries.
    np.testing.assert_allclose(phi.T @ phi, exact, atol=0.05)


def test_orthogonal_features_are_orthogonal_and_lower_the_error(rng):
    block = RandomFeatureBlock(4, "tanh", orthogonal=True, lengthscale=1.0).init(4, rng=np.random.default_rng(1))
    gram = np.asarray(block.w @ block.w.T)
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-5)
    x = 0.5 * jr.normal(jr.key(2), (8, 6))
    exact = RBF(1.0).init(8).columns(x.T, x)

    def error(orthogonal):
        errors = []
        for _ in range(60):
            phi = RandomFeatureBlock(16, kernel=RBF(1.0), orthogonal=orthogonal).init(8, rng=rng)(x)
            errors.append(np.mean((phi.T @ phi - exact) ** 2))
        return np.mean(errors)

    assert error(True) < 0.8 * error(False)


def test_orthogonal_rows_keep_the_normal_law(rng):
    # Var w_ji = 1: 18000 draws, sd of the estimate √(2/18000) = 0.011.
    w = np.asarray(RandomFeatureBlock(6000, orthogonal=True, lengthscale=1.0).init(3, rng=rng).w)
    assert abs(w.var() - 1.0) < 0.04
    assert abs(w.mean()) < 0.03
    assert abs(np.mean(w[:, 0] ** 4) - 3.0) < 0.6


def test_inducing_point_features_reproduce_the_kernel_at_the_points(x64):
    z = jnp.asarray(np.random.default_rng(1).normal(size=(6, P)))
    block = InducingPointBlock(6, RBF(0.7, 1.3)).init(P, rng=np.random.default_rng(0), z=z)
    phi = block(z.T)
    # φ(Z)ᵀφ(Z) = K(Z, Z) up to the jitter of 1e-9.
    np.testing.assert_allclose(phi.T @ phi, block.kernel.columns(z, z.T), atol=1e-7)
    np.testing.assert_allclose(block.left_out(z.T, phi), 0.0, atol=1e-7)
    far = jnp.full((P, 1), 50.0)
    np.testing.assert_allclose(block.left_out(far, block(far)), 1.3, rtol=1e-6)


def test_the_root_is_a_rotation_of_the_symmetric_one(x64):
    z = jnp.asarray(np.random.default_rng(1).normal(size=(6, P)))
    block = InducingPointBlock(6, RBF(0.7)).init(P, rng=np.random.default_rng(0), z=z)
    x = jnp.asarray(X, dtype=float)
    values, vectors = np.linalg.eigh(block.kernel.columns(z, z.T))
    symmetric = vectors @ np.diag(values**-0.5) @ vectors.T @ np.asarray(block.kernel.columns(z, x))
    np.testing.assert_allclose(block(x).T @ block(x), symmetric.T @ symmetric, rtol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(1.0), RBF(1e3), RBF(1e-3), Matern(0.5), Linear()])
def test_coincident_points_give_finite_features_and_gradients_in_float32(kernel):
    z = jnp.zeros((40, P)).at[:20].set(jr.normal(jr.key(0), (20, P)))
    block = InducingPointBlock(40, kernel, residual="diagonal").init(P, rng=np.random.default_rng(0), z=z)
    value, slope = jax.jit(jax.value_and_grad(lambda b: jnp.sum(b(X) ** 2)))(block)
    assert bool(jnp.isfinite(value))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slope))
    assert bool((block.left_out(X, block(X)) >= 0).all())


def test_the_gradient_through_the_whitening_is_right(x64):
    z = jnp.asarray(np.random.default_rng(1).normal(size=(5, P)))
    block = InducingPointBlock(5, RBF(0.9)).init(P, rng=np.random.default_rng(0), z=z)
    value = lambda z: jnp.sum(jnp.sin(InducingPointBlock(5, block.kernel, z=z)(jnp.asarray(X, dtype=float))))  # noqa: E731
    step, direction = 1e-6, jnp.asarray(np.random.default_rng(2).normal(size=z.shape))
    numeric = (value(z + step * direction) - value(z - step * direction)) / (2 * step)
    assert float(jnp.sum(jax.grad(value)(z) * direction)) == pytest.approx(float(numeric), rel=1e-6)


def test_points_spread_by_k_means_and_fill_up_when_rows_are_few():
    rows = np.random.default_rng(0).normal(size=(100, 2))
    points = spread_points(rows, 10, rng=np.random.default_rng(0))
    assert points.shape == (10, 2)
    assert (points == spread_points(rows, 10, rng=np.random.default_rng(0))).all()
    few = np.repeat([[0.0, 1.0], [2.0, 3.0]], 5, axis=0)
    filled = spread_points(few, 6, rng=np.random.default_rng(0))
    assert filled.shape == (6, 2)
    assert len(np.unique(filled, axis=0)) == 6


def test_function_block_draws_one_function_for_all_columns(key, rng):
    block = FunctionBlock(PointMass(), Normal(), 4, 2, bias=True, rng=rng)
    phi = jr.normal(key, (4, 3))
    np.testing.assert_allclose(block(phi, key=key), block.posterior.mean @ phi, rtol=1e-5)
    np.testing.assert_allclose(block(phi[:, 0], key=key), block(phi, key=key)[:, 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomFeatureBlock(0), "`r` must be at least 1, got 0"),
        (lambda: RandomFeatureBlock(3, kernel=RBF()), "`r` must be even with a `kernel`"),
        (lambda: RandomFeatureBlock(4, kernel=Linear()), "`kernel` must be RBF or Matern"),
        (lambda: RandomFeatureBlock(4, "wavy"), "Activation 'wavy' is not known"),
        (lambda: RandomFeatureBlock(4, amplitude=0.0), "`amplitude` must be positive"),
        (lambda: InducingPointBlock(0), "`r` must be at least 1, got 0"),
        (lambda: InducingPointBlock(3, residual="full"), "`residual` must be None or \"diagonal\", got 'full'"),
        (lambda: InducingPointBlock(3, jitter=0.0), "`jitter` must be positive, got 0.0"),
        (lambda: RandomFeatureBlock(4, kernel=RBF(), bias=True), "a `kernel` brings its own"),
        (
            lambda: InducingPointBlock(3).init(2, rng=np.random.default_rng(0), z=jnp.zeros((4, 2))),
            r"`z` must have the shape \(3, 2\), got \(4, 2\)",
        ),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_blocks_keep_their_class_when_they_meet_their_inputs(rng):
    class Doubled(vb.InducingPointBlock):
        def __call__(self, x):
            return 2.0 * super().__call__(x)

    plain, doubled = (
        kind(3, vb.RBF(1.0)).init(2, rng=np.random.default_rng(0)) for kind in (vb.InducingPointBlock, Doubled)
    )
    x = jnp.asarray(rng.normal(size=(2, 5)), jnp.float32)
    np.testing.assert_allclose(doubled(x), 2.0 * plain(x), rtol=1e-6)
    layers = [vb.Layer(1, [Doubled(3, vb.RBF(1.0))])]
    with pytest.raises(
        ValueError, match="Layer 1: Doubled has a `__call__` of its own and the `dual` of InducingPoint"
    ):
        vb.dual_kernel(vb.chain(2, 1), layers, np.zeros((1, 2)))


class Laplacian(vb.kernels.Stationary):
    """exp(−Σ|x_i − z_i|/lengthscale_i), whose spectral density is a Cauchy law for each input."""

    def correlation(self, difference):
        return jnp.exp(-jnp.sum(jnp.abs(difference) / self.lengthscale))

    def spectral_draws(self, rng, n_draws, n_inputs):
        return rng.standard_cauchy((n_draws, n_inputs))


def test_a_stationary_kernel_of_ones_own_has_random_features(rng):
    x = rng.normal(size=(6, 2))
    recipe = RandomFeatureBlock(40_000, kernel=Laplacian(np.array([0.5, 2.0]), 1.3))
    block = recipe.init(2, rng=rng)
    kernel = Laplacian(np.array([0.5, 2.0]), 1.3)
    exact = kernel.columns(jnp.asarray(x, jnp.float32), jnp.asarray(x.T, jnp.float32))
    # 20,000 draws of cosines: 1.3/√20000 is 0.01
    np.testing.assert_allclose(vb.empirical_kernel(block, x), exact, atol=0.04)
    for each in (recipe, block):
        np.testing.assert_allclose(each.dual(2)(jnp.asarray(x[0]), jnp.asarray(x[1])), exact[0, 1], rtol=1e-5)
    network = vb.build(vb.chain(2, 1), [vb.Layer(1, [RandomFeatureBlock(20, kernel=Laplacian())])], key=jr.key(0))
    moved = vb.trainable(network).stacks[0].features[0]
    assert moved.log_lengthscale
    assert not any(jax.tree.leaves(moved.own))  # the kernel's own copies are held
    vb.fit(network, vb.Gaussian(), x, x[:, :1], key=jr.key(1), n_steps=5)


def test_spectral_draws_belong_to_the_correlation_they_were_written_for(rng):
    class Narrower(Laplacian):
        def correlation(self, difference):
            return super().correlation(2.0 * difference)

    class Flat(Laplacian):
        def spectral_draws(self, rng, n_draws, n_inputs):
            return rng.standard_cauchy(n_draws)

    with pytest.raises(ValueError, match=r"or a vb.kernels.Stationary of your own with `spectral_draws`, got Narrower"):
        RandomFeatureBlock(4, kernel=Narrower(1.0))
    with pytest.raises(ValueError, match=r"`spectral_draws` of Flat must have the shape \(2, 3\): draws, inputs"):
        RandomFeatureBlock(4, kernel=Flat(1.0)).init(3, rng=rng)
    with pytest.raises(ValueError, match="`orthogonal` is for draws that are normal: leave it out"):
        RandomFeatureBlock(4, kernel=Laplacian(), orthogonal=True)


class Squares(eqx.Module):
    """x_i², with the number of features that it is told."""

    r: int
    residual = None

    def init(self, n_inputs, *, rng):
        return self

    def __call__(self, x):
        return x**2


def test_a_block_that_gives_another_size_than_it_says_is_refused_at_build():
    vb.build(vb.chain(3, 1), [vb.Layer(1, [Squares(3)])], key=jr.key(0))
    with pytest.raises(ValueError, match=r"The block Squares must give φ of the shape \(r, batch\) = \(4, 2\)"):
        vb.build(vb.chain(3, 1), [vb.Layer(1, [Squares(4)])], key=jr.key(0))


def test_a_posterior_is_no_likelihood():
    with pytest.raises(TypeError, match=r"got the posterior of weights Gaussian: .* the likelihood of that name is vb"):
        check_likelihood(vb.distributions.Gaussian())
    with pytest.raises(TypeError, match=r"`likelihood` must be one of vb.likelihoods, vb.Gaussian\(\) for instance"):
        check_likelihood("gaussian")
