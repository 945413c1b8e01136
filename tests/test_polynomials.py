import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertebra.terms.polynomials import gauss_rule, orthonormal
from vertebra.terms.term import maximal, subsets


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


@given(st.integers(0, 50))
def test_the_interval_they_are_written_on_does_not_matter(seed):
    x, weight = sample(seed)
    own = orthonormal(x, weight, 5)
    given_one = orthonormal(x, weight, 5, low=-1.0, width=20.0)
    assert (given_one.low == -1.0).all()
    assert (given_one.width == 20.0).all()
    shown = x[weight > 0]  # others may lie outside the range, and are clipped to it
    for i in (0, 1, 2):
        # on a part of the interval Legendre polynomials are less apart, and a degree may be left out sooner
        k = given_one.degree[i] + 1
        assert k <= own.degree[i] + 1
        # R of a condition of up to 1e6
        np.testing.assert_allclose(given_one(shown)[i, :, :k], own(shown)[i, :, :k], atol=1e-6)


@given(st.integers(0, 50))
def test_some_inputs_keep_their_polynomials(seed):
    x, weight = sample(seed)
    whole = orthonormal(x, weight, 5)
    part = whole.only([2, 0])
    assert part.n_inputs == 2
    np.testing.assert_array_equal(part(x[:, [2, 0]]), whole(x)[[2, 0]])


@given(st.sets(st.sets(st.integers(0, 4), min_size=1).map(lambda t: tuple(sorted(t))), max_size=6))
def test_subsets_and_maximal_terms_are_those_of_their_definition(terms):
    every = [t for k in range(1, 6) for t in itertools.combinations(range(5), k)]
    assert subsets(terms) == [s for s in every if any(set(s) <= set(t) for t in terms)]
    assert maximal(terms) == tuple(t for t in every if t in terms and not any(set(t) < set(o) for o in terms))
    assert maximal(subsets(terms)) == maximal(terms)


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
