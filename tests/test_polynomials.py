import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertebra.polynomials import columns, gauss_rule, orthonormal, term_degrees


def sample(seed, n=80):
    rng = np.random.default_rng(seed)
    x = np.stack([rng.random(n), rng.exponential(size=n), rng.integers(0, 4, n), np.full(n, 7.0)], axis=1)
    return x, rng.integers(0, 3, n).astype(float) + (np.arange(n) == 0)


@given(st.integers(0, 50))
def test_polynomials_are_orthonormal_under_the_weighted_marginals(seed):
    x, weight = sample(seed)
    polynomials = orthonormal(x, weight, 6)
    values = polynomials(x)
    for i in range(4):
        k = polynomials.degree[i] + 1
        gram = (values[i, :, :k].T * weight) @ values[i, :, :k] / weight.sum()
        # QR of polynomials on [-1, 1], those left out that rounding cannot tell apart
        np.testing.assert_allclose(gram, np.eye(k), atol=1e-8)
        np.testing.assert_allclose(values[i, :, 0], 1.0)
        assert (values[i, :, k:] == 0).all()


def test_few_distinct_values_carry_few_degrees_and_a_constant_none():
    x, weight = sample(0)
    weight = np.ones_like(weight)
    assert orthonormal(x, weight, 6).degree.tolist() == [6, 6, 3, 0]


def test_outside_the_range_a_polynomial_stays_at_its_end():
    x, weight = sample(1)
    polynomials = orthonormal(x, weight, 5)
    shown = x[weight > 0]
    np.testing.assert_allclose(polynomials(shown.max(axis=0)[None] + 5.0), polynomials(shown.max(axis=0)[None]))


def test_products_have_all_degrees_up_to_the_total():
    degrees = term_degrees((0, 2), np.array([6, 6, 3]), 5)
    assert sorted(map(tuple, degrees)) == sorted((a, b) for a in range(1, 5) for b in range(1, 4) if a + b <= 5)
    x, weight = sample(2)
    values = orthonormal(x, weight, 6)(x)
    product = columns(values, (0, 2), degrees)
    for column, (a, b) in zip(product.T, degrees, strict=True):
        np.testing.assert_array_equal(column, values[0][:, a] * values[2][:, b])


@given(st.integers(0, 50), st.integers(2, 8))
def test_gauss_nodes_integrate_polynomials_exactly_under_the_sample(seed, n_nodes):
    x, weight = sample(seed)
    for column in x.T:
        nodes, measure = gauss_rule(column, weight, n_nodes)
        assert len(nodes) <= n_nodes
        assert (measure > 0).all()
        t, s = (nodes - column.mean()) / 4.0, (column - column.mean()) / 4.0
        for degree in range(2 * n_nodes):
            wanted = weight @ s**degree / weight.sum()
            # relative to the size of the terms that are added up
            assert measure @ t**degree == pytest.approx(wanted, abs=1e-9 * max(weight @ np.abs(s) ** degree, 1.0))
