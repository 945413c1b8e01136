import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import vertebra as vb
from vertebra.activations import ACTIVATIONS, DUALS, as_activation, dual, hermite, monomial

# Var u, Cov(u, v), Var v
COVARIANCES = [(1.0, 0.4, 0.7), (0.5, -0.6, 1.3), (2.0, 0.0, 0.3)]


# The midpoints of a fine grid, 0 at an edge of its cells.
U = np.linspace(-11.995, 11.995, 2400)


@pytest.fixture(scope="module")
def densities():
    """N(u, v) on the grid, for each of the covariances."""
    grid = np.stack(np.meshgrid(U, U), axis=-1)
    return [stats.multivariate_normal([0, 0], [[uu, uv], [uv, vv]]).pdf(grid) for uu, uv, vv in COVARIANCES]


def naive(sigma, density):
    """∫∫ σ(u) σ(v) N(u, v) du dv as a sum over the grid."""
    return sigma(U) @ density @ sigma(U) * 0.01**2


NAIVE = {
    "identity": lambda t: t,
    "relu": lambda t: np.maximum(t, 0.0),
    "step": lambda t: (t > 0).astype(float),
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "tanh": np.tanh,
    "softsign": lambda t: t / np.sqrt(1 + t * t),
}


@pytest.mark.parametrize("name", NAIVE)
def test_duals_equal_sums_over_a_fine_grid(name, densities, x64):
    # The midpoint sum is exact to rounding for smooth σ, and to the cell's area for a kink or a jump;
    # the 64-node quadrature of tanh and softsign, with poles near the real line, to 1e-5.
    tolerance = 1e-4 if name in ("relu", "step") else 1e-9 if name in DUALS else 1e-5
    for (uu, uv, vv), density in zip(COVARIANCES, densities, strict=True):
        got = float(dual(name)(jnp.asarray(uu), jnp.asarray(uv), jnp.asarray(vv)))
        assert got == pytest.approx(naive(NAIVE[name], density), abs=tolerance)


@pytest.mark.parametrize("name", ["erf", "sin", "exp", "identity"])
def test_quadrature_agrees_with_the_closed_forms(name, x64):
    # A wrapper hides the name, so that the general road is taken.
    hidden = lambda t: ACTIVATIONS[name](t)  # noqa: E731
    for uu, uv, vv in COVARIANCES:
        triple = (jnp.asarray(uu), jnp.asarray(uv), jnp.asarray(vv))
        # 64 Gauss–Hermite nodes: erf, with its poles nowhere but steep, is the worst
        assert float(dual(hidden)(*triple)) == pytest.approx(float(dual(name)(*triple)), abs=1e-7)


def test_polynomial_duals_are_isserlis_moments(x64):
    # E u²v² = Var u Var v + 2 Cov²; E u³v³ = 9 Var u Var v Cov + 6 Cov³
    uu, uv, vv = 1.5, 0.4, 0.7
    triple = (jnp.asarray(uu), jnp.asarray(uv), jnp.asarray(vv))
    assert float(dual(monomial(2))(*triple)) == pytest.approx(uu * vv + 2 * uv**2, rel=1e-12)
    assert float(dual(monomial(3))(*triple)) == pytest.approx(9 * uu * vv * uv + 6 * uv**3, rel=1e-12)
    one = jnp.ones(())
    for degree in range(6):
        # the normalised Hermite polynomial of Daniely et al.: ρ^degree at unit variance
        assert float(dual(hermite(degree))(one, jnp.asarray(0.6), one)) == pytest.approx(0.6**degree, rel=1e-10)
        # and, off unit variance, the same as quadrature, which is exact for polynomials
        wanted = dual(lambda t, degree=degree: hermite(degree)(t))(*triple)
        assert float(dual(hermite(degree))(*triple)) == pytest.approx(float(wanted), rel=1e-10)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_duals_have_finite_slopes_where_the_two_inputs_coincide(name):
    slopes = jax.grad(lambda t: dual(name)(t[0], t[1], t[2]))(jnp.ones(3))
    assert bool(jnp.isfinite(slopes).all())
    # also at zero, where a padded or constant input may sit
    assert np.isfinite(float(dual(name)(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))))


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="Activation 'swish2' is not known: use one of"):
        as_activation("swish2")
    with pytest.raises(ValueError, match="`degree` must not be negative, got -1"):
        hermite(-1)


def test_an_activation_of_its_own_does_not_inherit_the_dual_of_another(monkeypatch, x64):
    class Rounded(vb.activations.PolynomialActivation):
        def __call__(self, u):
            return jnp.tanh(u)

    at = jnp.array([1.0, 0.5, 1.0])
    expected = vb.activations.dual("tanh")(*at)
    np.testing.assert_allclose(vb.activations.dual(Rounded((0.0, 0.0, 1.0)))(*at), expected, rtol=1e-10)
    # a name that comes to stand for another function
    monkeypatch.setitem(vb.activations.ACTIVATIONS, "relu", jnp.tanh)
    np.testing.assert_allclose(vb.activations.dual("relu")(*at), expected, rtol=1e-10)
