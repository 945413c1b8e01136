"""Rows that depend on each other: mixed by a root of R⁻¹, and told apart by evidence."""

import numpy as np
import pytest
from scipy.special import ndtr

from vertebra.likelihoods.working_responses import Plain
from vertebra.terms.additive import fit_additive
from vertebra.terms.dependence import Chain, Intercepts, Together, stretches
from vertebra.terms.functions import system_of
from vertebra.terms.model import model_of
from vertebra.terms.sums import RowSums


def mixings(rng, n=30):
    groups = rng.integers(0, 6, n)
    root = np.sqrt(rng.uniform(0.5, 2.0, n))
    order = rng.permutation(n)
    same = groups[:, None] == groups
    yield Intercepts(groups, root, 0.7), np.eye(n) + 0.7 * same * np.outer(root, root)
    place = np.argsort(order)
    yield Chain(order, 0.6), 0.6 ** np.abs(place[:, None] - place)


def test_mixing_is_by_an_inverse_root_and_its_determinant_is_known(rng):
    for mixing, r in mixings(rng):
        root = mixing(np.eye(len(r)))
        np.testing.assert_allclose(root.T @ root, np.linalg.inv(r), atol=1e-10)
        assert mixing.log_determinant == pytest.approx(np.linalg.slogdet(r)[1])


def test_the_evidence_of_mixed_rows_is_that_of_their_joint_density(rng):
    """log N(y; 0, σ²R + ΦSΦᵀ), a constant of flat prior projected off, up to −½ log |R| and what no R changes."""
    x, y = rng.random((30, 2)), rng.standard_normal(30)
    systems = [system_of(column, np.ones(30), 0) for column in x.T]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    for mixing, r in mixings(rng):
        if isinstance(mixing, Intercepts):
            mixing, r = mixing._replace(root=np.ones(30)), np.eye(30) + 0.7 * (mixing.groups[:, None] == mixing.groups)
        rows = RowSums.held(systems, values, y, np.ones(30), 0.5, None, Together(np.ones(30), None, mixing))
        model = model_of(rows, [(0,), (1,)])
        phi, posterior = model.basis(values), model.posterior
        inverse = np.linalg.inv(0.5 * r)
        ones = np.ones((30, 1))
        precision = ones.T @ inverse @ ones
        # the posterior of (c, v) by the dense R
        columns = np.column_stack([ones, phi])
        prior = np.diag(np.concatenate([[0.0], 1.0 / posterior.prior_sd**2]))
        covariance = np.linalg.inv(columns.T @ inverse @ columns + prior)
        np.testing.assert_allclose(posterior.mean, (covariance @ columns.T @ inverse @ y)[1:], atol=1e-7)
        np.testing.assert_allclose(posterior.root @ posterior.root.T, covariance[1:, 1:], atol=1e-8)
        assert rows.total == pytest.approx(0.5 * precision.item())
        assert rows.count == 30.0


def test_stretches_are_of_rows_that_follow_each_other():
    order = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0, 8.0, 7.0, 6.0])
    assert stretches(order).tolist() == [1, 0, 0, 0, 1, 1, 2, 2, 2]


def test_what_rows_of_a_group_share_is_not_taken_for_functions_of_their_inputs():
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), 10)
        x = np.column_stack([rng.random((400, 2)), rng.random((40, 2))[groups]])
        y = 2.0 * np.sin(3.0 * x[:, 0]) + 2.0 * x[:, 2] + 0.8 * rng.standard_normal(40)[groups]
        y = (y + 0.6 * rng.standard_normal(400))[:, None]
        one, new = np.ones(400), rng.random((200, 4))
        fit = fit_additive(x, Plain(y, one), one, rng=np.random.default_rng(0), groups=groups + 5)
        assert all(len(term) == 1 for term in fit.structures[0].terms)
        assert fit.structures[0].tests[(3,)].p_value > 1e-3
        # 0.64 + 0.36, of a new group
        assert 0.5 < fit.noise[0] < 1.7
        mean, variance = fit.terms.moments(new)
        f = 2.0 * np.sin(3.0 * new[:, 0]) + 2.0 * new[:, 2]
        inside.append(np.mean(np.abs(mean[:, 0] - f) < 1.96 * np.sqrt(variance[:, 0])))
    assert np.mean(inside) > 0.85


def test_intervals_of_f_hold_where_rows_follow_each_other_and_their_time_is_known():
    inside = {True: [], False: []}
    for seed in range(30, 45):
        rng = np.random.default_rng(seed)
        walk = np.zeros((400, 3))
        for t, step in enumerate(rng.standard_normal((399, 3)), 1):
            walk[t] = 0.8 * walk[t - 1] + 0.6 * step
        x, order = ndtr(walk[:, :2]), np.arange(400.0)
        f = lambda x: 2.0 * x[:, 0] + np.sin(4.0 * x[:, 1])  # noqa: E731
        y, new = (f(x) + walk[:, 2])[:, None], rng.random((200, 2))
        for is_told, found in inside.items():
            told = {"order": order} if is_told else {}
            one = np.ones(400)
            fit = fit_additive(
                x, Plain(y, one), one, rng=np.random.default_rng(0), clusters=[(0,), (1,)], calibrate=False, **told
            )
            mean, variance = fit.terms.moments(new)
            found.append(np.mean(np.abs(mean[:, 0] - f(new)) < 1.96 * np.sqrt(variance[:, 0])))
    # a table is inside or outside as a whole, as its constant is: of 40 others .92 were
    assert np.mean(inside[False]) < 0.8
    assert np.mean(inside[True]) > 0.85
