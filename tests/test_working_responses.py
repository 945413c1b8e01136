import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, softmax

from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Poisson, StudentT
from vertebra.likelihoods.gaussian_rows import STEP, Response, between
from vertebra.likelihoods.working_responses import DEGREES, Classes, Counts, HeavyTails, Plain, UnevenNoise
from vertebra.terms.additive import fit_additive

N = 40
WEIGHT = np.random.default_rng(9).random(N) + 0.5


def slopes(likelihood, f, y):
    """∂/∂f of log p(y | f) of every row, by autodiff."""
    gradient = jax.vmap(jax.grad(lambda each, target: likelihood.log_prob(each, target).sum()))
    return np.asarray(gradient(jnp.asarray(f), jnp.asarray(y)))


def curvatures(likelihood, f, y):
    """−∂²/∂f_k² of log p(y | f), the diagonal alone."""
    hessian = jax.vmap(jax.hessian(lambda each, target: likelihood.log_prob(each, target).sum()))
    return -np.diagonal(np.asarray(hessian(jnp.asarray(f), jnp.asarray(y))), axis1=1, axis2=2)


def assert_is_a_scoring_step(working, likelihood, f, y, information):
    """w (z − f) = weight · slope, and w = weight · information where that asks for no step beyond the furthest."""
    found = working.responses(f, np.zeros_like(f))
    assert len(found) == f.shape[1]
    score = slopes(likelihood, f, y)
    for k, (z, w, noise_variance) in enumerate(found):
        wanted = np.maximum(information[:, k], np.abs(score[:, k]) / STEP)
        assert (wanted == information[:, k]).mean() > 0.8  # most steps are as they come
        assert noise_variance == 1.0
        np.testing.assert_allclose(w, WEIGHT * wanted, rtol=1e-8)
        np.testing.assert_allclose(w * (z - f[:, k]), WEIGHT * score[:, k], rtol=1e-8, atol=1e-9)
        assert (np.abs(z - f[:, k])[wanted > information[:, k]] <= STEP * (1.0 + 1e-9)).all()


def expected(function, f, variance, n_nodes=60):
    """E of a function over f ~ N(m, v), rows of one latent, by more nodes than the one under test has."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(n_nodes)
    return sum(
        share * function(f + np.sqrt(variance) * node) for node, share in zip(nodes, shares / shares.sum(), strict=True)
    )


@pytest.mark.parametrize("kind", [Classes, Counts])
def test_under_a_spread_of_f_score_and_information_are_their_means(kind, x64):
    rng = np.random.default_rng(0)
    f = rng.uniform(-1.5, 1.5, (N, 1))
    variance = rng.uniform(0.1, 2.0, (N, 1))
    y = rng.integers(0, 2, (N, 1)).astype(float)
    working, likelihood = (
        (Classes(y[:, 0], 2, WEIGHT), Bernoulli()) if kind is Classes else (Counts(y, WEIGHT), Poisson())
    )
    ((z, w, _),) = working.responses(f, variance)
    score = expected(lambda at: slopes(likelihood, at, y), f, variance)[:, 0]
    information = expected(lambda at: curvatures(likelihood, at, y), f, variance)[:, 0]
    # 20 nodes of quadrature where the sd is at most 1.4
    np.testing.assert_allclose(w * (z - f[:, 0]), WEIGHT * score, atol=1e-5)
    np.testing.assert_allclose(w, WEIGHT * np.maximum(information, np.abs(score) / STEP), atol=1e-5)


def test_under_a_spread_of_more_logits_the_score_is_near_its_mean(x64):
    rng = np.random.default_rng(0)
    f = rng.uniform(-1.5, 1.5, (N, 3))
    variance = rng.uniform(0.1, 1.0, (N, 3))
    y = rng.integers(0, 3, (N, 1)).astype(float)
    found = Classes(y[:, 0], 3, WEIGHT).responses(f, variance)
    draws = f + np.sqrt(variance) * rng.standard_normal((20_000, N, 3))
    score = (y == np.arange(3)) - softmax(draws, axis=2).mean(axis=0)
    for k, (z, w, _) in enumerate(found):
        # 20 points for three logits: an error of at most 0.1 of a probability's sd of some 0.2
        np.testing.assert_allclose(w * (z - f[:, k]), WEIGHT * score[:, k], atol=0.04)


def test_two_classes_have_the_scoring_step_of_their_logit(x64):
    rng = np.random.default_rng(0)
    f = rng.uniform(-2.0, 2.0, (N, 1))
    y = rng.integers(0, 2, (N, 1)).astype(float)
    working = Classes(y[:, 0], 2, WEIGHT)
    # canonical: the curvature does not depend on y, so that it is its own mean
    assert_is_a_scoring_step(working, Bernoulli(), f, y, curvatures(Bernoulli(), f, y))
    assert isinstance(working.likelihood([1.0]), Bernoulli)


def test_more_classes_have_the_scoring_step_of_each_logit(x64):
    rng = np.random.default_rng(0)
    f = rng.uniform(-1.5, 1.5, (N, 4))
    y = rng.integers(0, 4, (N, 1)).astype(float)
    working = Classes(y[:, 0], 4, WEIGHT)
    assert_is_a_scoring_step(working, Categorical(4), f, y, curvatures(Categorical(4), f, y))
    likelihood = working.likelihood([1.0] * 4)
    assert isinstance(likelihood, Categorical)
    assert likelihood.n_classes == 4


def test_counts_have_the_scoring_step_of_their_log_rate(x64):
    rng = np.random.default_rng(0)
    f = rng.uniform(1.0, 3.0, (N, 2))
    y = rng.poisson(np.exp(f)).astype(float)
    working = Counts(y, WEIGHT)
    assert_is_a_scoring_step(working, Poisson(), f, y, curvatures(Poisson(), f, y))
    assert isinstance(working.likelihood([1.0]), Poisson)


def test_uneven_noise_has_the_scoring_step_of_mean_and_log_variance(x64):
    rng = np.random.default_rng(0)
    f = np.stack(
        [rng.standard_normal(N), rng.uniform(-3.0, 3.0, N), rng.standard_normal(N), rng.uniform(-1, 1, N)], axis=1
    )
    start = rng.standard_normal((N, 2))
    working = UnevenNoise(start, WEIGHT)
    likelihood = working.likelihood([])
    assert isinstance(likelihood, HeteroscedasticGaussian)
    # residuals of less than twice the noise: for further ones the step is bounded
    sd = np.exp(np.asarray(likelihood.split(jnp.asarray(f))[1]))
    y = f[:, ::2] + sd * rng.uniform(-1.9, 1.9, (N, 2))
    working.y = y
    # E −∂² over y: two points a sd either side have the mean and the variance of the law
    information = 0.5 * sum(curvatures(likelihood, f, f[:, ::2] + side * sd) for side in (-1.0, 1.0))
    assert_is_a_scoring_step(working, likelihood, f, y, information)


def test_heavy_tails_have_the_weights_of_the_slope(x64):
    rng = np.random.default_rng(0)
    f = rng.standard_normal((N, 2))
    y = f + rng.standard_t(4, (N, 2))
    working = HeavyTails(y, WEIGHT)
    found = working.responses(f, np.zeros_like(f))
    likelihood = working.likelihood([])
    assert isinstance(likelihood, StudentT)
    # w (z − f)/s² is the slope of the log density: where it is zero EM and the likelihood agree
    pull = np.stack([w / WEIGHT * (z - f[:, k]) / s for k, (z, w, s) in enumerate(found)], axis=1)
    np.testing.assert_allclose(pull, slopes(likelihood, f, y), rtol=1e-8)


def test_rounds_of_em_raise_the_likelihood_of_heavy_tails():
    rng = np.random.default_rng(0)
    y = np.stack([2.0 + 3.0 * rng.standard_t(3, 300), rng.standard_t(3, 300)], axis=1)
    weight = rng.random(300) + 0.5
    working = HeavyTails(y, weight)

    def log_likelihood():
        each = stats.t(working.degrees).logpdf((y - f) / working.scale) - np.log(working.scale)
        return float(np.sum(weight @ each))

    f = working.start
    np.testing.assert_array_equal(f[0], np.median(y, axis=0))
    values = [log_likelihood()]
    for _ in range(60):
        responses = working.responses(f, np.zeros_like(f))
        values.append(log_likelihood())
        f = np.stack([np.full(300, (w @ z) / w.sum()) for z, w, _ in responses], axis=1)
        values.append(log_likelihood())
    assert (np.diff(values) > -1e-9).all()
    assert working.degrees in DEGREES
    # the maximum, by a search of its own over (f, s) of each target at these degrees of freedom
    for k in range(2):
        grid = [
            weight @ stats.t(working.degrees, f[0, k] + a, working.scale[k] * b).logpdf(y[:, k])
            for a in (-0.05, 0.0, 0.05)
            for b in (0.97, 1.0, 1.03)
        ]
        assert np.argmax(grid) == 4
    np.testing.assert_allclose(working.scale, [3.0, 1.0], rtol=0.2)  # 300 rows: 7 % is one sd
    assert working.degrees <= 5.0


def test_the_variance_of_f_counts_as_residual():
    y = np.random.default_rng(0).standard_normal((N, 1))
    wider, plain = HeavyTails(y, WEIGHT), HeavyTails(y, WEIGHT)
    wider.responses(np.zeros((N, 1)), np.full((N, 1), 4.0))
    plain.responses(np.zeros((N, 1)), np.zeros((N, 1)))
    assert wider.scale[0] > plain.scale[0]
    uneven = UnevenNoise(y, WEIGHT)
    f = np.zeros((N, 2))
    more, less = (uneven.responses(f, np.full((N, 2), v)) for v in (1.0, 0.0))
    assert (more[1].z >= less[1].z).all()
    assert (more[1].z > less[1].z).any()


def test_starts_are_the_best_constants():
    rng = np.random.default_rng(0)
    codes = rng.choice(3, N, p=[0.6, 0.3, 0.1])
    share = np.array([WEIGHT[codes == k].sum() for k in range(3)]) / WEIGHT.sum()
    np.testing.assert_allclose(softmax(Classes(codes, 3, WEIGHT).start, axis=1), np.tile(share, (N, 1)))
    two = (codes > 0).astype(int)
    np.testing.assert_allclose(expit(Classes(two, 2, WEIGHT).start)[:, 0], 1.0 - share[0])
    y = rng.poisson(3.0, (N, 2)).astype(float)
    np.testing.assert_allclose(np.exp(Counts(y, WEIGHT).start[0]), WEIGHT @ y / WEIGHT.sum())
    assert np.isfinite(Counts(np.zeros((N, 1)), WEIGHT).start).all()
    uneven = UnevenNoise(y, WEIGHT)
    np.testing.assert_allclose(uneven.start[0, ::2], WEIGHT @ y / WEIGHT.sum())
    np.testing.assert_array_equal(uneven.start[:, 1::2], 0.0)
    np.testing.assert_allclose(uneven.scale**2, WEIGHT @ (y - WEIGHT @ y / WEIGHT.sum()) ** 2 / WEIGHT.sum())


def test_plain_noise_is_the_target_itself():
    y = np.random.default_rng(0).standard_normal((N, 2))
    working = Plain(y, WEIGHT)
    for k, (z, w, noise_variance) in enumerate(working.responses(working.start, working.start)):
        np.testing.assert_array_equal(z, y[:, k])
        np.testing.assert_array_equal(w, WEIGHT)
        assert noise_variance is None
    likelihood = working.likelihood([4.0, 9.0])
    assert isinstance(likelihood, Gaussian)
    np.testing.assert_allclose(likelihood.scale, [2.0, 3.0], rtol=1e-6)


def test_rows_that_tell_nothing_keep_a_weight_and_the_slope_of_their_class(x64):
    f = np.append(np.linspace(-1.0, 1.0, N - 1), 25.0)[:, None]
    y = np.zeros((N, 1))
    ((z, w, _),) = Classes(y[:, 0], 2, WEIGHT).responses(f, np.zeros_like(f))
    assert np.isfinite(z).all()
    assert (np.abs(z - f[:, 0]) <= STEP * (1.0 + 1e-9)).all()
    np.testing.assert_allclose(w / WEIGHT * (z - f[:, 0]), slopes(Bernoulli(), f, y)[:, 0], rtol=1e-6)


def test_counts_of_very_low_rate_keep_the_slope_of_their_law(x64):
    f = np.append(np.linspace(2.0, 3.0, N - 1), -8.0)[:, None]
    y = np.append(np.full(N - 1, 12.0), 0.0)[:, None]
    ((z, w, _),) = Counts(y, WEIGHT).responses(f, np.zeros_like(f))
    np.testing.assert_allclose(w / WEIGHT * (z - f[:, 0]), slopes(Poisson(), f, y)[:, 0], rtol=1e-6, atol=1e-9)


def test_a_constant_of_rare_counts_is_at_rest_at_its_mean():
    y = np.random.default_rng(0).poisson(0.1, (400, 1)).astype(float)
    working = Counts(y, np.ones(400))
    ((z, w, _),) = working.responses(working.start, np.zeros((400, 1)))
    assert w @ z / w.sum() == pytest.approx(np.log(y.mean()))


def test_a_constant_log_variance_is_at_rest_at_the_variance():
    y = np.random.default_rng(0).standard_normal((4000, 1))
    working = UnevenNoise(y, np.ones(4000))
    _, (z, w, _) = working.responses(working.start, np.zeros((4000, 2)))
    assert w @ z / w.sum() == pytest.approx(0.0, abs=0.01)


def log_variance(fitted, x):
    likelihood = fitted.likelihood
    assert isinstance(likelihood, HeteroscedasticGaussian)
    return 2.0 * np.asarray(likelihood.split(jnp.asarray(fitted.terms.mean(x)))[1])[:, 0]


def test_a_log_variance_is_recovered():
    rng = np.random.default_rng(0)
    x = rng.random((1500, 3))
    truth = 3.0 * (x[:, 1] - 0.5)
    mean = np.sin(4.0 * x[:, 0])
    y = mean + np.exp(0.5 * truth) * rng.standard_normal(1500)
    fitted = fit_additive(x, UnevenNoise(y[:, None], np.ones(1500)), np.ones(1500), rng=rng)
    found = log_variance(fitted, x)
    assert set(fitted.clusters) == {(0,), (1,)}
    # 1500 rows: √(2/1500) = 0.04 for its level and as much for its slope
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.12
    assert np.corrcoef(found, truth)[0, 1] > 0.98
    assert np.sqrt(np.mean((fitted.terms.mean(x)[:, 0] - mean) ** 2)) < 0.1


def test_a_log_rate_is_recovered():
    rng = np.random.default_rng(0)
    x = rng.random((1000, 3))
    truth = 1.0 + np.sin(4.0 * x[:, 0]) + x[:, 1]
    y = rng.poisson(np.exp(truth)).astype(float)
    fitted = fit_additive(x, Counts(y[:, None], np.ones(1000)), np.ones(1000), rng=rng)
    found = fitted.terms.mean(x)[:, 0]
    assert set(fitted.clusters) == {(0,), (1,)}
    # a dozen coefficients of sd 1/√(1000 · 5)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.08
    # the mode: with a constant of flat prior the fitted counts add up to those seen
    assert np.exp(found).sum() == pytest.approx(y.sum(), rel=0.01)


def test_heavy_tails_do_not_pull_the_fit():
    rng = np.random.default_rng(0)
    x = rng.random((600, 2))
    truth = np.sin(4.0 * x[:, 0])
    y = truth + 0.2 * rng.standard_t(2.5, 600)
    ones = np.ones(600)
    plain = fit_additive(x, Plain(y[:, None], ones), ones, rng=np.random.default_rng(0))
    robust = fit_additive(x, HeavyTails(y[:, None], ones), ones, rng=np.random.default_rng(0))
    rmse = [float(np.sqrt(np.mean((each.terms.mean(x)[:, 0] - truth) ** 2))) for each in (robust, plain)]
    assert rmse[0] < 0.06
    assert rmse[0] < rmse[1]
    assert isinstance(robust.likelihood, StudentT)
    assert float(robust.likelihood.degrees) <= 5.0


def test_between_two_responses_lie_their_natural_parameters(rng):
    old, new = (Response(rng.standard_normal(5), rng.random(5), 1.0) for _ in range(2))
    middle = between(old, new, 0.25)
    np.testing.assert_allclose(middle.w, 0.75 * old.w + 0.25 * new.w)
    np.testing.assert_allclose(middle.w * middle.z, 0.75 * old.w * old.z + 0.25 * new.w * new.z)
    np.testing.assert_allclose(between(old, new, 1.0).z, new.z)


@pytest.mark.parametrize("kind", ["classes", "three classes", "counts", "heavy tails", "uneven noise"])
def test_the_expected_log_density_is_its_mean_over_draws_of_f(kind, x64):
    rng = np.random.default_rng(0)
    n_latent = {"three classes": 3, "uneven noise": 2}.get(kind, 1)
    f, variance = rng.uniform(-1.0, 1.0, (N, n_latent)), rng.uniform(0.02, 0.3, (N, n_latent))
    y = rng.integers(0, 3 if kind == "three classes" else 2, (N, 1)).astype(float)
    working, likelihood = {
        "classes": lambda: (Classes(y[:, 0], 2, WEIGHT), Bernoulli()),
        "three classes": lambda: (Classes(y[:, 0], 3, WEIGHT), Categorical(3)),
        "counts": lambda: (Counts(y, WEIGHT), Poisson()),
        "heavy tails": lambda: ((own := HeavyTails(y, WEIGHT)), StudentT(own.scale, own.degrees)),
        "uneven noise": lambda: ((own := UnevenNoise(y, WEIGHT)), HeteroscedasticGaussian(own.scale)),
    }[kind]()
    draws = f + np.sqrt(variance) * rng.standard_normal((4000, N, n_latent))
    each = np.asarray(jax.vmap(lambda at: likelihood.log_prob(at, jnp.asarray(y)))(jnp.asarray(draws)))
    wanted = float(np.mean(each.reshape(4000, N, -1).sum(axis=2) @ WEIGHT))
    # that of uneven noise up to a constant, and Student's is Jensen's bound; 4000 draws have a standard error of 0.2 %
    constant = -0.5 * np.log(2.0 * np.pi) if kind == "uneven noise" else 0.0
    loose = 0.05 if kind == "heavy tails" else 0.01
    assert working.expected_log_prob(f, variance) + constant * WEIGHT.sum() == pytest.approx(wanted, rel=loose)
