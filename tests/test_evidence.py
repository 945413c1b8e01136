import itertools

import numpy as np
import pytest
from scipy import stats

from vertebra.datasets import synthetic
from vertebra.terms.evidence import MAX_COLUMNS, Evidence, averaged, basis_of, root_of, with_constant
from vertebra.terms.families import Family
from vertebra.terms.functions import SEEN, system_of
from vertebra.terms.sums import RowSums

N = 128
DATA = synthetic("f1", N, seed=3)
# Numbers, a category of which one level is never seen, a number with missing values, one of local functions.
X = DATA.x[:, :5].copy()
X[:, 2] = np.random.default_rng(0).integers(0, 4, N)
X[::7, 3] = np.nan
Y = DATA.y + 2.0 * (X[:, 2] == 1) + 3.0 * (DATA.x[:, 4] > 0.5)
LEVELS = (0, 0, 5, 0, 0)
TERMS = ((0,), (1,), (2,), (3,), (4,), (0, 1), (2, 3), (0, 4))
CHOSEN = {(4,): (Family.BROWNIAN,), (2, 3): (Family.LEVELS, Family.MATERN)}


def problem(weight=None, noise_variance=None):
    weight = np.ones(N) if weight is None else weight
    systems = [system_of(X[:, i], weight, LEVELS[i]) for i in range(5)]
    values = [system.at(column) for system, column in zip(systems, X.T, strict=True)]
    basis = basis_of(systems, TERMS, CHOSEN, {1: 5, 2: 4})
    assert [basis.is_local(block) for block in basis.blocks] == [4 in term or term == (2, 3) for term in TERMS]
    rows = RowSums.held(systems, values, Y, weight, noise_variance)
    return basis, basis(values), rows.products(basis)


def somewhere(evidence, seed, size=0.3):
    return evidence.start() + size * np.random.default_rng(seed).standard_normal(len(evidence.start()))


def prior_sd(basis, theta):
    """The prior sd of every coefficient, one at a time: τ_T² Π_i exp(offset_i) d(α_i, cost_i − 1)."""
    inputs = sorted({i for term in basis.terms for i in term})
    sizes, alphas = theta[: len(basis.blocks)], dict(zip(inputs, theta[len(basis.blocks) : -1], strict=True))
    variances = []
    for block, log_size in zip(basis.blocks, sizes, strict=True):
        for places in block.index:
            variance = np.exp(log_size)
            for i, k in zip(block.term, places, strict=True):
                step = basis.systems[i].cost[k] - 1
                decay = 0.95 * np.exp(-alphas[i] * step) + 0.05 * np.exp(-0.4 * alphas[i] * step)
                variance *= np.exp(basis.systems[i].offset[k]) * decay
            variances.append(variance)
    return np.sqrt(variances)


def test_prior_variances_are_those_of_every_function_by_itself():
    basis, _, products = problem()
    evidence = Evidence(basis, products)
    theta = somewhere(evidence, 0)
    np.testing.assert_allclose(evidence.parts(theta)[0], prior_sd(basis, theta), rtol=1e-10)
    np.testing.assert_allclose(evidence.posterior(theta).prior_sd, prior_sd(basis, theta), rtol=1e-10)


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_evidence_is_the_density_of_y_with_a_flat_constant(noise_variance):
    basis, phi, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    theta = somewhere(evidence, 0)
    variance = np.exp(theta[-1])
    # The density of the n − 1 contrasts: y projected off the constant.
    contrasts = np.linalg.svd(np.eye(N) - 1.0 / N)[0][:, : N - 1].T
    covariance = contrasts @ (variance * np.eye(N) + (phi * prior_sd(basis, theta) ** 2) @ phi.T) @ contrasts.T
    wanted = stats.multivariate_normal(np.zeros(N - 1), covariance).logpdf(contrasts @ Y)
    away = (theta - evidence.prior_mean) / evidence.prior_sd
    away = away if noise_variance is None else away[:-1]
    assert evidence(theta)[0] + 0.5 * away @ away == pytest.approx(wanted, rel=1e-9)
    assert evidence.posterior(theta).log_evidence == pytest.approx(evidence(theta)[0], rel=1e-12)


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_the_gradient_of_the_evidence_is_its_slope(noise_variance):
    basis, _, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    theta = somewhere(evidence, 1, 0.2)
    step = 1e-5 * np.eye(len(theta))
    slopes = np.array([(evidence(theta + e)[0] - evidence(theta - e)[0]) / 2e-5 for e in step])
    gradient = evidence(theta)[1]
    if noise_variance is not None:
        assert gradient[-1] == 0.0  # known, not learned
        gradient, slopes = gradient[:-1], slopes[:-1]
    # central differences: 1e-10 of curvature and rounding
    np.testing.assert_allclose(gradient, slopes, atol=1e-5 * np.abs(gradient).max())


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_the_curvature_of_the_evidence_is_the_slope_of_its_gradient(noise_variance):
    basis, _, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    theta = somewhere(evidence, 2, 0.2)
    found = evidence(theta).curvature
    free = slice(None) if noise_variance is None else slice(0, -1)
    wanted = curvature(evidence, theta)
    # central differences of steps of 1e-4: 1e-8 of third derivatives and 1e-12 of rounding over the step
    np.testing.assert_allclose(found[free, free], wanted, atol=1e-5 * np.abs(wanted).max())


def test_the_best_hyper_parameters_have_no_slope():
    basis, _, products = problem()
    evidence = Evidence(basis, products)
    theta = evidence.maximise()
    value, gradient, _ = evidence(theta)
    assert value > evidence(evidence.start())[0]
    # where Newton's method stops: a gain of 1e-9 of an evidence of hundreds, with curvatures of order one
    assert np.abs(gradient).max() < 2e-3


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_rounds_of_mackays_updates_lead_to_the_highest_evidence_in_sizes_and_noise(noise_variance):
    basis, _, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    # without the hyper-prior, which these updates leave out
    evidence.prior_sd = np.full_like(evidence.prior_sd, 1e6)
    # nor the limits, which sizes on a link scale are beyond here
    evidence.most = np.full_like(evidence.most, np.inf)
    start = evidence.start()
    few = evidence.fixed_point(start, 3)
    assert evidence(few)[0] > evidence(start)[0]
    many = evidence.fixed_point(start, 200, tolerance=1e-4)
    assert evidence(many)[0] > evidence(few)[0]
    n_blocks = len(basis.blocks)
    np.testing.assert_array_equal(many[n_blocks:-1], start[n_blocks:-1])
    if noise_variance is not None:
        assert many[-1] == start[-1] == np.log(noise_variance)
    # no slope is left in sizes and noise: 1e-4 in log τ² times curvatures of order one to ten; what the data say
    # nothing about may still be on its way to zero
    gradient = np.append(evidence(many)[1][:n_blocks], evidence(many)[1][-1])
    posterior = evidence.posterior(many)
    known = 1.0 - np.sum(posterior.root**2, axis=1) / posterior.prior_sd**2
    used = np.append([known[place].sum() > 0.5 for place in basis.slices], True)
    assert used.sum() > 5
    assert np.abs(gradient[used]).max() < 5e-3
    # Newton's method over sizes and noise alone, by holding α with a narrow prior where it is
    held = Evidence(basis, products)
    held.prior_sd, held.most = evidence.prior_sd.copy(), evidence.most
    held.prior_sd[n_blocks:-1] = 1e-4
    other = held.maximise(1e-12, many, n_most=500)
    assert evidence(other)[0] - evidence(many)[0] < 0.5  # terms that are not there, on their way to zero
    strong = np.append(used[:-1], np.zeros(len(many) - n_blocks, dtype=bool))
    strong[-1] = True
    # the updates' own tolerance, where convergence is by a factor of a half a round or so
    np.testing.assert_allclose(other[strong], many[strong], atol=0.05)


def test_the_posterior_is_that_of_linear_regression_with_the_constant():
    basis, phi, products = problem()
    evidence = Evidence(basis, products)
    posterior = evidence.posterior(evidence.maximise())
    mean, root = with_constant(posterior, products, float(N))
    s, variance, *_ = evidence.parts(posterior.theta)
    # a constant of nearly flat prior beside the others
    design = np.concatenate([np.ones((N, 1)), phi], axis=1)
    precision = design.T @ design / variance + np.diag(np.append(1e-12, s**-2.0))
    # s² from 1e-8 to 10 in one matrix: a condition of 1e9
    np.testing.assert_allclose(mean, np.linalg.solve(precision, design.T @ Y / variance), atol=1e-6)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), atol=1e-6)
    np.testing.assert_allclose(posterior.root @ posterior.root.T, posterior.covariance)


def test_the_posterior_with_known_noise_and_weights_is_that_of_weighted_regression():
    weight = np.random.default_rng(5).random(N) + 0.1
    basis, phi, products = problem(weight, 0.7)
    evidence = Evidence(basis, products)
    theta = somewhere(evidence, 2)
    mean, root = with_constant(evidence.posterior(theta), products, float(weight.sum()))
    design = np.concatenate([np.ones((N, 1)), phi], axis=1)
    variance = np.exp(theta[-1])
    precision = (design.T * weight) @ design / variance + np.diag(np.append(0.0, prior_sd(basis, theta) ** -2.0))
    np.testing.assert_allclose(mean, np.linalg.solve(precision, design.T @ (weight * Y) / variance), atol=1e-6)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), atol=1e-6)


def test_what_was_never_seen_keeps_its_prior():
    basis, _, products = problem()
    evidence = Evidence(basis, products)
    posterior = evidence.posterior(evidence.maximise())
    start = 0
    n_unseen = 0
    for block in basis.blocks:
        for k, places in enumerate(block.index, start=start):
            if any(basis.systems[i].kind[place] != SEEN for i, place in zip(block.term, places, strict=True)):
                n_unseen += 1
                assert posterior.mean[k] == pytest.approx(0.0, abs=1e-9)
                assert np.sum(posterior.root[k] ** 2) == pytest.approx(posterior.prior_sd[k] ** 2, rel=1e-9)
        start += len(block.index)
    # the category, three numbers without missing values, and beyond the ranges of all four
    assert n_unseen == 8


def test_weights_are_repeated_rows_of_higher_precision():
    # With the noise known, a weight of 2 is the same row twice.
    weight = np.random.default_rng(2).integers(0, 3, N).astype(float)
    basis, phi, once = problem(weight, 1.0)
    repeat = np.repeat(np.arange(N), weight.astype(int))
    values = [system.at(column) for system, column in zip(basis.systems, X[repeat].T, strict=True)]
    twice = RowSums.held(basis.systems, values, Y[repeat], np.ones(len(repeat)), 1.0).products(basis)
    for a, b in zip(once, twice, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    # the products by hand
    centred = phi - weight @ phi / weight.sum()
    np.testing.assert_allclose(once.gram, (centred.T * weight) @ centred, atol=1e-9)
    np.testing.assert_allclose(once.cross, centred.T @ (weight * (Y - once.mean_y)), atol=1e-9)


def test_averaging_over_the_hyper_parameters_widens_the_posterior():
    basis, _, products = problem()
    evidence = Evidence(basis, products)
    at_best = evidence.posterior(evidence.maximise())
    wider = averaged(evidence, at_best, rng=np.random.default_rng(0))
    assert np.trace(wider.covariance) > np.trace(at_best.covariance)
    assert np.linalg.eigvalsh(wider.covariance).min() > -1e-10
    # law of total covariance over the same draws, one at a time
    draws = evidence.around(at_best.theta, 24, np.random.default_rng(0))
    assert draws.shape == (24, len(at_best.theta))
    np.testing.assert_allclose(draws.mean(axis=0), at_best.theta, atol=1e-9)  # in pairs about the best
    members = [evidence.posterior(theta) for theta in draws]
    mean = sum(m.mean for m in members) / 24
    second = sum(m.covariance + np.outer(m.mean, m.mean) for m in members) / 24
    np.testing.assert_allclose(wider.mean, mean, atol=1e-9)
    np.testing.assert_allclose(wider.covariance, second - np.outer(mean, mean), atol=1e-8)
    np.testing.assert_allclose(wider.prior_sd**2, sum(m.prior_sd**2 for m in members) / 24)
    assert wider.noise_variance == at_best.noise_variance
    # and no narrower in any direction than the mean of the members
    inside = sum(m.covariance for m in members) / 24
    assert np.linalg.eigvalsh(wider.covariance - inside).min() > -1e-9
    same = averaged(evidence, at_best._replace(mean=np.zeros(0)), rng=np.random.default_rng(0))
    assert len(same.mean) == 0  # nothing to average


def curvature(evidence, theta):
    """−∂²/∂θ² by central differences of the gradient, in the hyper-parameters that are learned."""
    free = slice(None) if evidence.products.noise_variance is None else slice(0, -1)
    steps = 1e-4 * np.eye(len(theta))[free]
    hessian = np.array([(evidence(theta - e)[1] - evidence(theta + e)[1])[free] / 2e-4 for e in steps])
    return 0.5 * (hessian + hessian.T)


@pytest.mark.parametrize(
    "noise_variance",
    [
        None,
        1.0,
    ],
)
def test_draws_about_the_best_have_the_covariance_of_the_curvature(noise_variance):
    basis, _, products = problem(noise_variance=noise_variance)
    evidence = Evidence(basis, products)
    theta = evidence.maximise()
    values, vectors = np.linalg.eigh(curvature(evidence, theta))
    # flat directions are cut at the prior's: compared where the data speak
    free = slice(None) if noise_variance is None else slice(0, -1)
    draws = (evidence.around(theta, 20_000, np.random.default_rng(0)) - theta)[:, free] @ vectors
    sharp = values > 0.1
    assert sharp.sum() > 3
    # 10 000 independent pairs: 1.4 % of a variance is two sds; differences of one side against two in the curvature
    np.testing.assert_allclose((draws**2).mean(axis=0)[sharp] * values[sharp], 1.0, rtol=0.1)
    if noise_variance is not None:
        assert (evidence.around(theta, 10, np.random.default_rng(0))[:, -1] == theta[-1]).all()


def test_a_root_of_a_singular_covariance():
    half = np.random.default_rng(0).standard_normal((6, 3))
    np.testing.assert_allclose(root_of(half @ half.T) @ root_of(half @ half.T).T, half @ half.T, atol=1e-12)


def test_very_many_terms_get_lower_degrees():
    x = np.random.default_rng(0).random((200, 40))
    systems = [system_of(column, np.ones(200)) for column in x.T]
    many = [(i,) for i in range(40)] + [(i, i + 1) for i in range(39)]
    basis = basis_of(systems, many)
    assert basis.terms == tuple(many)
    assert basis.n_columns <= MAX_COLUMNS
    assert all(len(block.index) >= 1 for block in basis.blocks)
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    assert basis(values).shape == (200, basis.n_columns)
    few = basis_of(systems, many[:3])
    assert all(len(a.index) >= len(b.index) for a, b in itertools.zip_longest(few.blocks, basis.blocks[:3]))


@pytest.mark.parametrize("family", [Family.MATERN, Family.MATERN32, Family.BROWNIAN])
def test_terms_of_local_functions_have_the_columns_asked_for(family):
    systems = [system_of(column, np.ones(N)) for column in DATA.x[:, :3].T]
    chosen = {(0,): (family,)}
    plain = basis_of(systems, [(0,), (1,), (0, 1), (1, 2)], chosen)
    asked = basis_of(systems, [(0,), (1,), (0, 1), (1, 2)], chosen, sizes={(0, 1): 50, (1, 2): 50})
    assert plain.sizes[(0, 1)] == 30
    assert asked.sizes == {**plain.sizes, (0, 1): 50}  # smooth terms go by degree
    # more columns are more of the same: those there were come first
    for few, more in zip(plain.blocks, asked.blocks, strict=True):
        np.testing.assert_array_equal(few.index, more.index[: len(few.index)])


def test_a_term_is_made_of_the_families_that_were_chosen():
    systems = [system_of(column, np.ones(N)) for column in DATA.x[:, :3].T]
    chosen = {(0,): (Family.BROWNIAN,), (1, 2): (Family.MATERN, Family.SMOOTH)}
    basis = basis_of(systems, [(0,), (1,), (2,), (0, 1), (1, 2)], chosen)
    wanted = {
        (0,): (Family.BROWNIAN,),
        (1,): (Family.SMOOTH,),
        (2,): (Family.SMOOTH,),
        (0, 1): (Family.BROWNIAN, Family.SMOOTH),
        (1, 2): (Family.MATERN, Family.SMOOTH),
    }
    for block in basis.blocks:
        for axis, (i, family) in enumerate(zip(block.term, wanted[block.term], strict=True)):
            own = block.index[systems[i].kind[block.index[:, axis]] == SEEN, axis]
            assert set(systems[i].family[own]) == {family}
        assert basis.is_local(block) == any(family.is_local for family in wanted[block.term])


def test_a_basis_without_the_functions_it_does_not_use_has_the_same_columns():
    basis, phi, _ = problem()
    pruned = basis.pruned()
    assert pruned.sizes == basis.sizes
    assert [len(s.kind) < len(t.kind) for s, t in zip(pruned.systems, basis.systems, strict=True)] == [
        *(True, True, False, True, True)
    ]
    np.testing.assert_array_equal(pruned([s.at(column) for s, column in zip(pruned.systems, X.T, strict=True)]), phi)
