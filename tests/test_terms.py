import itertools

import numpy as np
import pytest

from vertebra.terms import sum_of_terms as room
from vertebra.terms.evidence import basis_of
from vertebra.terms.families import Family
from vertebra.terms.functions import system_of
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import subsets

N = 128
LEVELS = (0, 0, 4, 0)
TERMS = ((0,), (1,), (2,), (3,), (0, 1), (1, 2), (0, 3), (0, 1, 2))
# a term of local functions, and one that has others than its inputs by themselves
CHOSEN = {(3,): (Family.BROWNIAN,), (0, 1): (Family.MATERN, Family.LEVELS)}


def table(seed=0):
    """A number of few values, one with missing values, a category of which one level is never seen, and a number."""
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(0, 6, N), rng.integers(0, 4, N), rng.integers(0, 3, N), rng.integers(0, 9, N)], axis=1)
    x = x.astype(float) + np.array([0.0, 0.5, 0.0, 0.0])
    x[rng.random(N) < 0.2, 1] = np.nan
    return x, rng.permutation(np.tile([0.5, 1.5], N // 2))


def fitted(n_outputs=2, seed=0):
    x, weight = table()
    systems = [system_of(column, weight, n) for column, n in zip(x.T, LEVELS, strict=True)]
    basis = basis_of(systems, TERMS, CHOSEN, {1: 4, 2: 4, 3: 4})
    assert [basis.is_local(block) for block in basis.blocks] == [3 in term or term in CHOSEN for term in TERMS]
    rng = np.random.default_rng(seed)
    m1 = basis.n_columns + 1
    means = tuple(rng.standard_normal(m1) for _ in range(n_outputs))
    # roots of more and of fewer columns than rows
    roots = tuple(0.3 * rng.standard_normal((m1, m1 - 5 + 10 * k)) for k in range(n_outputs))
    return SumOfTerms(basis, means, roots)


def anywhere(n=9, seed=1):
    """Rows with values between and beyond those seen, missing ones and levels never seen."""
    rng = np.random.default_rng(seed)
    x = np.stack([rng.uniform(-1, 7, n), rng.uniform(0, 5, n), rng.integers(-1, 4, n), rng.uniform(-1, 10, n)], axis=1)
    x[0, 1] = np.nan
    x[1] = [np.nan, 1.0, -1.0, np.nan]
    x[2, 2] = np.nan
    return x


BASELINES = [
    None,
    np.array([2.3, 1.5, 1.0, 4.5]),
    np.array([5.0, np.nan, 0.0, -3.0]),
    np.array([np.nan, 2.0, -1.0, 1.0]),
]


def component(f, term, x, baseline, output=0):
    part = f.part(term, baseline)
    return f.at(part, [x[:, i] for i in term]) @ (part.lift @ f.means[output])


def naive(f, x, output=0):
    """c + Σ v Π φ, one row, one block and one column at a time."""
    result = []
    for row in x:
        phi = [system(np.array([value]))[0] for system, value in zip(f.basis.systems, row, strict=True)]
        total, k = f.means[output][0], 1
        for block in f.basis.blocks:
            for places in block.index:
                product = 1.0
                for i, place in zip(block.term, places, strict=True):
                    product *= phi[i][place]
                total += f.means[output][k] * product
                k += 1
        result.append(total)
    return np.array(result)


@pytest.mark.parametrize("chunk", [4, 4096])
def test_the_mean_is_the_sum_of_all_products(chunk, monkeypatch):
    monkeypatch.setattr(room, "CHUNK", chunk)
    f, x = fitted(), anywhere()
    assert f.n_outputs == 2
    for output in range(2):
        np.testing.assert_allclose(f.mean(x)[:, output], naive(f, x, output), atol=1e-10)
        np.testing.assert_allclose(f.moments(x)[0][:, output], naive(f, x, output), atol=1e-10)
    assert f.mean(x[:0]).shape == f.moments(x[:0])[1].shape == (0, 2)


def test_moments_are_those_of_the_coefficients_and_of_draws(monkeypatch):
    monkeypatch.setattr(room, "CHUNK", 4)
    f, x = fitted(), anywhere()
    mean, variance = f.moments(x)
    phi = f.features(x)
    for output, root in enumerate(f.roots):
        wanted = [row @ (root @ root.T) @ row for row in phi]
        np.testing.assert_allclose(variance[:, output], wanted, rtol=1e-10)
    n_draws = 20_000
    draws = f.sample(x, n_draws, np.random.default_rng(0))
    assert draws.shape == (n_draws, len(x), 2)
    # five standard errors, of a mean and of a variance
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / n_draws)).all()
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=5 * np.sqrt(2 / n_draws))
    # one draw is one function at all rows: covariances too, of every two rows
    covariance = phi @ f.roots[0] @ f.roots[0].T @ phi.T
    size = np.sqrt(np.outer(variance[:, 0], variance[:, 0]))
    np.testing.assert_allclose(np.cov(draws[:, :, 0].T) / size, covariance / size, atol=5 * np.sqrt(2 / n_draws))
    # outputs are independent
    for row in range(len(x)):
        assert abs(np.corrcoef(draws[:, row, 0], draws[:, row, 1])[0, 1]) < 5 / np.sqrt(n_draws)


@pytest.mark.parametrize("baseline", BASELINES)
def test_components_sum_to_f_anywhere(baseline):
    f, x = fitted(), anywhere()
    wanted = set(TERMS) if baseline is None else set(subsets(TERMS))
    assert set(f.terms(baseline)) == wanted
    assert f.terms(baseline) == sorted(f.terms(baseline), key=lambda t: (len(t), t))
    for output in range(2):
        total = sum(component(f, term, x, baseline, output) for term in f.terms(baseline))
        (constant,) = component(f, (), x, baseline, output)
        np.testing.assert_allclose(constant + total, f.mean(x)[:, output], atol=1e-9)
        level = f.means[output][0] if baseline is None else f.mean(baseline[None])[0, output]
        assert constant == pytest.approx(level)


@pytest.mark.parametrize("baseline", BASELINES[1:])
def test_from_a_baseline_components_are_differences_of_f_and_vanish_there(baseline):
    f, x = fitted(), anywhere()
    for term in f.terms(baseline):
        # Möbius: I_T(x) = Σ_{S⊆T} (−1)^{|T|−|S|} f(x_S, x⁰)
        wanted = np.zeros(len(x))
        for size in range(len(term) + 1):
            for kept in itertools.combinations(term, size):
                mixed = np.tile(baseline, (len(x), 1))
                mixed[:, kept] = x[:, kept]
                wanted += (-1.0) ** (len(term) - size) * f.mean(mixed)[:, 0]
        np.testing.assert_allclose(component(f, term, x, baseline), wanted, atol=1e-9)
        for i in term:
            at_baseline = x.copy()
            at_baseline[:, i] = baseline[i]
            np.testing.assert_allclose(component(f, term, at_baseline, baseline), 0.0, atol=1e-10)


def marginal(i):
    """The distinct values of an input, and their shares."""
    x, weight = table()
    values = np.unique(x[:, i])  # the missing ones are one of them, the last
    shares = [weight[np.isnan(x[:, i]) if np.isnan(v) else x[:, i] == v].sum() for v in values]
    return values, np.array(shares) / weight.sum()


def grid(term):
    values, shares = zip(*(marginal(i) for i in term), strict=True)
    points = np.stack([each.ravel() for each in np.meshgrid(*values, indexing="ij")], axis=1)
    mass = np.prod([each.ravel() for each in np.meshgrid(*shares, indexing="ij")], axis=0)
    return points, mass


@pytest.mark.parametrize("baseline", BASELINES)
def test_strengths_are_averages_over_the_product_of_the_marginals(baseline):
    f = fitted()
    draws = f.weights(1).draw(3, np.random.default_rng(0))
    for term in f.terms(baseline):
        part = f.part(term, baseline)
        points, mass = grid(term)
        found = f.strengths(part, draws)
        for k in range(3):
            values = f.at(part, list(points.T)) @ (part.lift @ draws[:, k])
            assert found[k] == pytest.approx(np.sqrt(mass @ values**2), rel=1e-6)


def test_components_have_mean_zero_along_each_of_their_inputs():
    f = fitted()
    for term in f.terms():
        points, mass = grid(term)
        part = f.part(term)
        values = f.at(part, list(points.T)) @ (part.lift @ f.means[0])
        for axis in range(len(term)):
            rest = np.delete(np.nan_to_num(points, nan=-99.0), axis, axis=1)  # missing values are one value
            _, home = np.unique(rest, axis=0, return_inverse=True)
            # sums of products of order ten; functions have mean zero to rounding
            np.testing.assert_allclose(np.bincount(home.ravel(), mass * values), 0.0, atol=1e-8)


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    f = fitted()
    draws = f.weights(0).draw(40_000, np.random.default_rng(0))
    covariance = f.roots[0] @ f.roots[0].T
    sd = np.sqrt(np.diag(covariance))
    # five standard errors
    assert (np.abs(draws.mean(axis=1) - f.means[0]) < 5 * sd / 200).all()
    np.testing.assert_allclose(np.cov(draws) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=5 * 2**0.5 / 200)


@pytest.mark.parametrize(
    "baseline",
    [None, BASELINES[1]],
)
def test_a_term_that_is_not_there_is_zero(baseline):
    f, x = fitted(), anywhere()
    np.testing.assert_array_equal(component(f, (2, 3), x, baseline), 0.0)
    assert f.strengths(f.part((2, 3), baseline), f.weights(0).draw(2, np.random.default_rng(0))).tolist() == [0.0, 0.0]


def test_a_sum_of_no_terms_is_its_constant():
    x, weight = table()
    systems = [system_of(column, weight, n) for column, n in zip(x.T, LEVELS, strict=True)]
    f = SumOfTerms(basis_of(systems, []), (np.array([2.0]),), (np.array([[0.5]]),))
    mean, variance = f.moments(x)
    assert (mean == 2.0).all()
    assert (variance == 0.25).all()
    assert f.terms() == f.terms(x[0]) == []
    assert component(f, (), x, None).tolist() == component(f, (), x, x[0]).tolist() == [2.0]


def test_without_the_functions_that_no_term_is_made_of_f_is_the_same():
    f, x = fitted(), anywhere(40)
    pruned = f.basis.pruned()
    part = f._replace(basis=pruned)
    assert pruned.terms == f.basis.terms
    assert sum(len(s.kind) for s in pruned.systems) < sum(len(s.kind) for s in f.basis.systems)
    np.testing.assert_array_equal(part.features(x), f.features(x))
    np.testing.assert_array_equal(part.mean(x), f.mean(x))
    for baseline in BASELINES:
        for term in f.terms(baseline):
            np.testing.assert_allclose(component(part, term, x, baseline), component(f, term, x, baseline), atol=1e-12)
    draws = f.weights(0).draw(3, np.random.default_rng(0))
    for term in TERMS:
        np.testing.assert_allclose(part.strengths(part.part(term), draws), f.strengths(f.part(term), draws), rtol=1e-12)
    # and no more can be left out
    again = pruned.pruned()
    for one, other in zip(again.systems, pruned.systems, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
    for one, other in zip(again.blocks, pruned.blocks, strict=True):
        np.testing.assert_array_equal(one.index, other.index)
