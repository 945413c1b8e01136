import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import vertebra as vb
from vertebra import RBF, Dual, Linear, Matern, Periodic, Polynomial
from vertebra.kernels import Kernel

LENGTHS = np.array([0.5, 1.0, 2.0])
ALL = {
    "rbf": RBF(0.8, 1.3),
    "matern12": Matern(0.5, 0.8, 1.3),
    "matern32": Matern(1.5, 0.8, 1.3),
    "matern52": Matern(2.5, 0.8, 1.3),
    "periodic": Periodic(0.7, 0.8, 1.3),
    "linear": Linear(1.3, 0.2),
    "polynomial": Polynomial(3, 0.5, 0.2),
    "step": Dual("step", 0.8, 1.3, bias=0.2),
    "relu": Dual("relu", 0.8, 1.3, bias=0.2),
    "tanh": Dual("tanh", 0.8, 1.3),
    "sum": RBF(0.8) + Linear(),
    "product": Matern(1.5, 0.8) * Periodic(0.7, 0.8),
}


def gram(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    return np.asarray(kernel.init(x.shape[1]).columns(jnp.asarray(x), jnp.asarray(x.T)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(LENGTHS, 1.3), 1.3 * sk.RBF(LENGTHS)),
        (Matern(0.5, LENGTHS, 1.3), 1.3 * sk.Matern(LENGTHS, nu=0.5)),
        (Matern(1.5, LENGTHS, 1.3), 1.3 * sk.Matern(LENGTHS, nu=1.5)),
        (Matern(2.5, LENGTHS, 1.3), 1.3 * sk.Matern(LENGTHS, nu=2.5)),
        (Linear(1.0, 0.49), sk.DotProduct(0.7)),
        (Polynomial(3, 1.0, 0.49), sk.DotProduct(0.7) ** 3),
        (RBF(0.5) + Matern(1.5, 2.0), sk.RBF(0.5) + sk.Matern(2.0, nu=1.5)),
        (RBF(0.5) * Linear(1.0, 1.0), sk.RBF(0.5) * sk.DotProduct(1.0)),
    ],
)
def test_kernels_agree_with_scikit_learn(ours, theirs, x64):
    x = np.random.default_rng(0).normal(size=(7, 3))
    # Both in double precision.
    np.testing.assert_allclose(gram(jax.tree.map(lambda a: a.astype(float), ours), x), theirs(x), rtol=1e-6)


def test_periodic_agrees_with_scikit_learn_in_one_dimension():
    x = np.random.default_rng(0).normal(size=(7, 1)).astype(np.float32)
    theirs = 1.3 * sk.ExpSineSquared(0.8, 0.7)(x)
    np.testing.assert_allclose(gram(Periodic(0.7, 0.8, 1.3), x), theirs, rtol=1e-4)


def test_dual_kernel_of_relu_is_the_arc_cosine_kernel(x64):
    x, z = np.array([0.3, -1.0, 0.5]), np.array([1.0, 0.2, -0.4])
    theta = np.arccos(x @ z / np.linalg.norm(x) / np.linalg.norm(z))
    # the constant 1/2π, not the 2/π of the paper's proof (erratum 4)
    wanted = np.linalg.norm(x) * np.linalg.norm(z) * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
    assert float(Dual("relu", 1.0).init(3)(jnp.asarray(x), jnp.asarray(z))) == pytest.approx(wanted, rel=1e-12)
    assert float(Dual("relu", 1.0).init(2)(jnp.ones(2), jnp.ones(2))) == pytest.approx(1.0, rel=1e-12)  # ‖x‖²/2


@pytest.mark.parametrize("name", ALL)
def test_kernels_are_positive_definite_with_finite_gradients_at_coincident_points(name):
    x = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    x[3] = x[2]
    kernel = ALL[name].init(3)
    matrix = gram(kernel, x)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-6)
    assert np.linalg.eigvalsh(matrix.astype(np.float64)).min() > -1e-4 * np.trace(matrix)  # float32 entries
    np.testing.assert_allclose(np.diag(matrix), kernel.diagonal(jnp.asarray(x.T)), rtol=1e-5)
    slope = jax.grad(lambda k, x: jnp.sum(k.columns(x, x.T)), argnums=(0, 1))(kernel, jnp.asarray(x))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slope))


def test_columns_take_one_row_or_many():
    x = jr.normal(jr.key(1), (4, 3))
    kernel = RBF().init(3)
    many = kernel.columns(x, x.T)
    np.testing.assert_allclose(many[:, 1], kernel.columns(x, x[1]), rtol=1e-6)
    assert kernel.diagonal(x[0]).shape == ()


def test_length_scales_fill_in_one_per_input():
    assert RBF().init(4).lengthscale.shape == (4,)
    np.testing.assert_allclose(RBF().init(4).lengthscale, 2.0)
    assert RBF(ard=False).init(4).lengthscale.shape == ()
    assert (RBF() + Matern()).init(5).second.lengthscale.shape == (5,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RBF(-1.0), "`lengthscale` must be positive and finite"),
        (lambda: RBF(1.0, 0.0), "`variance` must be positive and finite"),
        (lambda: RBF(np.ones(3)).init(2), "`lengthscale` must have one entry per input, 2, got 3"),
        (lambda: Matern(2.0), "`nu` must be 0.5, 1.5 or 2.5, got 2.0"),
        (lambda: Polynomial(0), "`degree` must be at least 1, got 0"),
        (lambda: Dual("swish2"), "Activation 'swish2' is not known: use one of"),
        (lambda: Dual("relu", bias=-1.0), "`bias` must be positive and finite"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Cut(vb.RBF):
    """RBF within reach 1, nothing beyond."""

    def correlation(self, difference):
        return jnp.maximum(1.0 - jnp.sum(difference**2), 0.0)


class Sloped(vb.Matern):
    def __call__(self, x, z):
        return jnp.dot(x, z)


class Slanted(vb.Dual):
    def __call__(self, x, z):
        return jnp.dot(x, z)


@pytest.mark.parametrize("kernel", [Cut(1.0), Sloped(), Slanted("relu")])
def test_a_kernel_of_its_own_does_not_inherit_the_shortcuts_of_another(kernel):
    rows = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    own = kernel.init(2)
    each = np.array([[float(own(a, b)) for b in rows] for a in rows])
    np.testing.assert_allclose(own.columns(jnp.asarray(rows), jnp.asarray(rows.T)), each, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own.diagonal(jnp.asarray(rows.T)), np.diag(each), rtol=1e-5)
    with pytest.raises(NotImplementedError, match="is not a function of inner products"):
        own.of_products(lambda weights: (jnp.ones(()),) * 3, 2)
    block = vb.InducingPointBlock(3, kernel).init(2, rng=np.random.default_rng(0))
    assert type(block.kernel) is type(kernel)


def test_spectral_draws_of_a_kernel_with_a_correlation_of_its_own_are_refused():
    with pytest.raises(
        ValueError,
        match=r"`kernel` Cut has a `correlation` of its own, .* be those of RBF: give it `spectral_draws`, or",
    ):
        vb.RandomFeatureBlock(10, kernel=Cut(1.0))
