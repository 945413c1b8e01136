import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

import vertebra as vb
from vertebra.likelihoods.predictive import Predictive
from vertebra.networks.parameters import in_double_precision

N, K = 5, 2
F = np.random.default_rng(0).normal(size=(N, K)) * 0.7
CONTINUOUS = {
    "gaussian": (vb.Gaussian(np.array([0.5, 1.5])), 1, lambda f: stats.norm(f, [0.5, 1.5])),
    "heteroscedastic": (
        vb.HeteroscedasticGaussian(np.array([0.5, 1.5])),
        2,
        lambda f: stats.norm(f[..., ::2], np.array([0.5, 1.5]) * np.exp(2 * np.tanh(f[..., 1::2] / 4))),
    ),
    "student": (vb.StudentT(np.array([0.5, 1.5]), 4.0), 1, lambda f: stats.t(4.0, f, [0.5, 1.5])),
}
DISCRETE = {
    "bernoulli": (vb.Bernoulli(), 1, lambda f: stats.bernoulli(1 / (1 + np.exp(-f)))),
    "poisson": (vb.Poisson(), 1, lambda f: stats.poisson(np.exp(f))),
    "negative binomial": (
        vb.NegativeBinomial(dispersion=0.5),
        1,
        lambda f: stats.nbinom(2.0, 1.0 / (1.0 + 0.5 * np.exp(f))),
    ),
}
ALL = CONTINUOUS | DISCRETE


def latent(per_target, seed=1, draws=()):
    return np.random.default_rng(seed).normal(size=(*draws, N, K * per_target)) * 0.7


@pytest.mark.parametrize("name", ALL)
def test_densities_and_moments_agree_with_scipy(name):
    likelihood, per_target, scipy = ALL[name]
    f = latent(per_target)
    law = scipy(f)
    y = law.rvs(random_state=2)
    log_prob = law.logpdf(y) if name in CONTINUOUS else law.logpmf(y)
    f32, y32 = jnp.asarray(f, jnp.float32), jnp.asarray(y, jnp.float32)
    np.testing.assert_allclose(likelihood.log_prob(f32, y32), log_prob, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(likelihood.conditional_mean(f32), law.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(likelihood.conditional_variance(f32), law.var(), rtol=1e-4)
    np.testing.assert_allclose(likelihood.cdf(f32, y32), law.cdf(y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_samples_have_their_law(name):
    likelihood, per_target, scipy = ALL[name]
    f = latent(per_target)
    n = 20_000
    y = np.asarray(likelihood.sample(jnp.broadcast_to(f.astype(np.float32), (n, *f.shape)), jr.key(0)))
    law = scipy(f)
    se = np.sqrt(law.var() / n)
    assert np.all(np.abs(y.mean(axis=0) - law.mean()) < 4.5 * se)
    if name in CONTINUOUS:
        np.testing.assert_allclose(np.mean(y <= law.ppf(0.9), axis=0), 0.9, atol=0.01)  # sd 0.002


@pytest.mark.parametrize("name", ALL)
def test_expected_log_density_is_the_mean_over_f(name):
    likelihood, per_target, scipy = ALL[name]
    mean = jnp.asarray(latent(per_target), jnp.float32)
    variance = jnp.asarray(0.05 + np.random.default_rng(3).random(mean.shape), jnp.float32)
    y = jnp.asarray(scipy(np.asarray(mean)).rvs(random_state=4), jnp.float32)
    n = 100_000
    f = mean[None] + jnp.sqrt(variance)[None] * jr.normal(jr.key(5), (n, *mean.shape))
    terms = np.asarray(jax.vmap(lambda f: likelihood.log_prob(f, y))(f), np.float64)
    exact = likelihood.expected_log_prob(mean, variance, y, jnp.zeros_like(mean))
    se = terms.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(terms.mean(axis=0) - exact) < 4.5 * se + 1e-4)  # 10 comparisons; float32 quadrature
    no_variance = likelihood.expected_log_prob(mean, None, y, jnp.zeros_like(mean))
    np.testing.assert_allclose(no_variance, likelihood.log_prob(mean, y), rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_predictive_quantities_are_those_of_the_mixture_over_draws(name):
    likelihood, per_target, scipy = ALL[name]
    f = latent(per_target, seed=6, draws=(30,))
    laws, draws = scipy(f), jnp.asarray(f, jnp.float32)
    mean = laws.mean().mean(axis=0)
    np.testing.assert_allclose(likelihood.mean(draws), mean, rtol=1e-4)
    second = (laws.var() + laws.mean() ** 2).mean(axis=0)
    np.testing.assert_allclose(likelihood.variance(draws), second - mean**2, rtol=1e-3)
    y = laws.rvs(random_state=7)[0]
    density = (laws.pdf(y) if name in CONTINUOUS else laws.pmf(y)).mean(axis=0)
    predictive = likelihood.log_predictive(draws, jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(predictive, np.log(density), rtol=1e-4, atol=1e-5)
    levels = np.array([0.025, 0.3, 0.5, 0.9, 0.975])
    quantiles = np.moveaxis(np.asarray(likelihood.quantiles(draws, levels), np.float64), -2, 0)
    assert quantiles.shape == (5, N, K)
    assert (np.diff(quantiles, axis=0) >= 0).all()
    for level, quantile in zip(levels, quantiles, strict=True):
        below = laws.cdf(quantile).mean(axis=0)
        if name in CONTINUOUS:
            np.testing.assert_allclose(below, level, atol=1e-4)
        else:  # the smallest count that reaches the level
            assert (below >= level - 1e-6).all()
            assert (laws.cdf(quantile - 1).mean(axis=0) < level).all()


def test_categorical_is_the_softmax():
    likelihood = vb.Categorical(3)
    f = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    p = np.asarray(jax.nn.softmax(f, axis=-1))
    y = jnp.asarray([[0.0], [2.0], [1.0], [1.0]])
    expected = np.log(p[np.arange(4), [0, 2, 1, 1]])[:, None]
    np.testing.assert_allclose(likelihood.log_prob(f, y), expected, rtol=1e-5)
    draws = jnp.stack([f, -f])
    mean = likelihood.mean(draws)
    np.testing.assert_allclose(mean.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(likelihood.variance(draws), mean * (1 - mean), rtol=1e-6)
    np.testing.assert_allclose(likelihood.cdf(f, y)[0], p[0, 0], rtol=1e-5)
    assert likelihood.quantiles(draws, [0.5]).shape == (4, 1, 1)
    sampled = np.asarray(likelihood.sample(jnp.broadcast_to(f, (20_000, 4, 3)), jr.key(0)))[..., 0]
    for c in range(3):
        np.testing.assert_allclose((sampled == c).mean(axis=0), p[:, c], atol=0.02)  # sd at most 0.0035
    # One reparameterised draw is unbiased.
    variance = jnp.full((4, 3), 0.5)
    noise = jr.normal(jr.key(1), (50_000, 4, 3))
    terms = np.asarray(jax.vmap(lambda e: likelihood.expected_log_prob(f, variance, y, e))(noise))
    other = np.asarray(jax.vmap(lambda e: likelihood.log_prob(f + jnp.sqrt(0.5) * e, y))(-noise))
    assert np.all(np.abs(terms.mean(axis=0) - other.mean(axis=0)) < 5 * terms.std(axis=0) * np.sqrt(2 / 50_000))


def test_scales_start_at_half_the_sd_of_each_target():
    y = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 100.0]
    np.testing.assert_allclose(vb.Gaussian().init(y).scale, 0.5 * y.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(vb.Gaussian(0.3).init(y).scale, [0.3, 0.3], rtol=1e-5)
    np.testing.assert_allclose(vb.Gaussian().init(np.ones((5, 1))).scale, [1.0])
    assert float(vb.StudentT(degrees=7.0).init(y).degrees) == pytest.approx(7.0, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: vb.Gaussian(0.0), "`scale` must be positive"),
        (lambda: vb.StudentT(degrees=2.0), "`degrees` must be above 2"),
        (lambda: vb.Categorical(1), "`n_classes` must be at least 2, got 1"),
        (lambda: vb.Categorical(3).check(np.array([0, 1, 3])), "classes from 0 to 2, got 3 in row 2"),
        (lambda: vb.Categorical(3).check(np.zeros((4, 2))), "one class per row"),
        (lambda: vb.Bernoulli().check(np.array([0.0, 0.5])), "`y` must hold 0 or 1, got 0.5 in row 1"),
        (lambda: vb.Poisson().check(np.array([1.0, -2.0])), "whole numbers of at least 0, got -2 in row 1"),
        (lambda: vb.Gaussian().check(np.array([1.0, np.nan])), "`y` must be finite, got 1 missing or infinite"),
        (lambda: vb.Gaussian().check(np.array(["a", "b"])), "`y` must be numbers"),
        (lambda: vb.Gaussian().check(np.zeros((2, 2, 2))), r"`y` must have the shape \(n,\) or \(n, targets\)"),
        (lambda: vb.Gaussian(1.0).quantiles(jnp.zeros((2, 3, 1)), [0.5, 1.0]), "`q` must be a list of levels"),
        (lambda: vb.Categorical(2).quantiles(jnp.zeros((2, 3, 2)), [0.0]), "`q` must be a list of levels"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Polynomial(vb.likelihoods.Likelihood):
    """log p = −Π_i f_i² over the latents of a target, less their product: what one node for all of them gets wrong."""

    latent: int = eqx.field(static=True)

    @property
    def latent_per_target(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.latent

    def log_prob(self, f, y):
        own = f.reshape(*f.shape[:-1], -1, self.latent)
        return -jnp.prod(own**2, axis=-1) - jnp.prod(own, axis=-1) + 0.0 * y


@pytest.mark.parametrize("latent", [1, 2, 3])
def test_several_latents_of_a_target_are_integrated_over_as_independent(latent, x64):
    rng = np.random.default_rng(0)
    mean, variance, y = rng.normal(size=(N, K * latent)), rng.uniform(0.0, 2.0, (N, K * latent)), np.zeros((N, K))
    got = Polynomial(latent).expected_log_prob(*map(jnp.asarray, (mean, variance, y)), jnp.zeros_like(mean))
    # E f² = m² + v, and E Π = Π E where the factors are independent
    second, first = (a.reshape(N, K, latent).prod(axis=-1) for a in (mean**2 + variance, mean))
    np.testing.assert_allclose(got, -second - first, rtol=1e-10)
    standard = jnp.zeros((1, latent)), jnp.ones((1, latent)), jnp.zeros((1, 1)), jnp.zeros((1, latent))
    # −E f₁²…f_L² − E f₁…f_L = −1 − 0 for N(0, I); with one node for all of them it would be −E f^{2L} − E f^L
    np.testing.assert_allclose(Polynomial(latent).expected_log_prob(*standard), -1.0, rtol=1e-10)


class Weibull(vb.likelihoods.Likelihood):
    """Waiting times, with a scale e^{f₁} and a shape e^{f₂}: two latents that no formula takes apart."""

    latent_per_target = 2

    def log_prob(self, f, y):
        log_scale, log_shape = f[..., ::2], f[..., 1::2]
        z = jnp.exp(log_shape) * (jnp.log(y) - log_scale)
        return log_shape - jnp.log(y) + z - jnp.exp(z)


def test_two_latents_of_a_smooth_density_agree_with_a_fine_grid(x64):
    rng = np.random.default_rng(1)
    mean, sd, y = 0.5 * rng.normal(size=(N, 2 * K)), rng.uniform(0.05, 0.4, (N, 2 * K)), rng.weibull(1.5, (N, K))
    got = Weibull().expected_log_prob(*map(jnp.asarray, (mean, sd**2, y)), jnp.zeros_like(jnp.asarray(mean)))
    points = np.linspace(-8.0, 8.0, 401)
    density = stats.norm.pdf(points)[:, None] * stats.norm.pdf(points)
    for i in range(N):
        for k in range(K):
            first, second = (mean[i, 2 * k + j] + sd[i, 2 * k + j] * points for j in range(2))
            law = stats.weibull_min(np.exp(second)[None, :], scale=np.exp(first)[:, None])
            expected = np.sum(density * law.logpdf(y[i, k])) / density.sum()
            np.testing.assert_allclose(got[i, k], expected, rtol=1e-6)


def test_many_latents_are_drawn_without_bias():
    likelihood, n = Polynomial(4), 200_000
    mean, variance, y = jnp.full((1, 4), 0.5), jnp.full((1, 4), 0.1), jnp.zeros((1, 1))
    noise = jr.normal(jr.key(0), (n, 1, 4))
    each = np.asarray(jax.vmap(lambda e: likelihood.expected_log_prob(mean, variance, y, e))(noise), np.float64)
    exact = -((0.5**2 + 0.1) ** 4) - 0.5**4
    assert abs(each.mean() - exact) < 4.5 * each.std() / np.sqrt(n)


def test_latents_that_targets_share_are_integrated_over_together(x64):
    class Shared(vb.likelihoods.Likelihood):
        """Two targets that both read both latents, and one more."""

        def n_latent(self, n_targets):
            return 3

        def log_prob(self, f, y):
            return f[..., :1] * f[..., 1:2] * f[..., 2:] + 0.0 * y

    mean = jnp.array([[1.0, 2.0, 3.0]])
    got = Shared().expected_log_prob(mean, jnp.ones((1, 3)), jnp.zeros((1, 2)), jnp.zeros((1, 3)))
    np.testing.assert_allclose(got, 6.0, rtol=1e-10)  # E f₁f₂f₃ = 1 · 2 · 3


# --- subclasses of shipped likelihoods -------------------------------------------------------------------------------


class Quartic(vb.Gaussian):
    """log p ∝ −(y − f)⁴: not Gaussian, whatever it inherits."""

    def log_prob(self, f, y):
        return -((y - f) ** 4)


class Clipped(vb.Poisson):
    def log_prob(self, f, y):
        return -((y - f) ** 2)


class Labelled(vb.StudentT):
    """Honest: another name and a field more."""

    label: str = eqx.field(static=True)

    def __init__(self, label, degrees):
        super().__init__(degrees=degrees)
        self.label = label


@pytest.mark.parametrize("kind", [Quartic, Clipped])
def test_a_density_of_its_own_does_not_inherit_the_expectation_of_another(kind, x64):
    mean, variance, y = jnp.array([[0.5]]), jnp.array([[0.3]]), jnp.array([[0.2]])
    got = kind().expected_log_prob(mean, variance, y, jnp.zeros((1, 1)))
    # E (f − y)² = m² + v and E (f − y)⁴ = m⁴ + 6m²v + 3v² about m = 0.3
    expected = -(0.3**2 + 0.3) if kind is Clipped else -(0.3**4 + 6 * 0.3**2 * 0.3 + 3 * 0.3**2)
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_a_likelihood_keeps_its_class_when_it_meets_y():
    y = np.random.default_rng(0).normal(size=(20, 1))
    quartic, labelled = Quartic().init(y), Labelled("mine", 7.0).init(y)
    assert type(quartic) is Quartic
    np.testing.assert_allclose(quartic.scale, 0.5 * y.std(axis=0), rtol=1e-6)
    assert (type(labelled), labelled.label) == (Labelled, "mine")
    assert float(labelled.degrees) == pytest.approx(7.0)


def test_the_last_layer_of_a_density_of_its_own_is_not_that_of_gaussian_noise():
    x, y = np.random.default_rng(0).normal(size=(2, 40, 1))
    network = vb.build(vb.chain(1, 1), [vb.Layer(1)], key=jr.key(0))
    fitted = vb.fit(network, Quartic(), x, y, key=jr.key(1), n_steps=5, n_rounds=1)
    assert type(fitted.likelihood) is Quartic
    assert fitted.evidence is None


@pytest.mark.parametrize("name", ALL)
def test_draws_of_y_from_draws_of_f_have_their_law(name):
    likelihood, per_target, scipy = ALL[name]
    f, n = latent(per_target), 20_000
    y = likelihood.numpy_sample(np.broadcast_to(f, (n, *f.shape)), seed=3)
    law = scipy(f)
    assert y.shape == (n, N, K)
    assert np.all(np.abs(y.mean(axis=0) - law.mean()) < 4.5 * np.sqrt(law.var() / n))
    # the share at or below the 90 % point, which of counts is more than 90 %: sd 0.002
    np.testing.assert_allclose(np.mean(y <= law.ppf(0.9), axis=0), law.cdf(law.ppf(0.9)), atol=0.01)
    np.testing.assert_array_equal(y, likelihood.numpy_sample(np.broadcast_to(f, (n, *f.shape)), seed=3))


@pytest.mark.parametrize("name", ALL)
def test_numpy_and_jax_compute_the_same(name, x64):
    likelihood, per_target, scipy = ALL[name]
    likelihood = in_double_precision(likelihood)
    f = latent(per_target, seed=8, draws=(7,))
    y = np.asarray(scipy(f).rvs(random_state=9)[0], float)
    each = jnp.broadcast_to(y, (7, *y.shape))
    # two roads to a distribution function: SciPy's own, and an incomplete beta or gamma function of JAX
    np.testing.assert_allclose(likelihood.numpy_log_prob(f, y), likelihood.log_prob(jnp.asarray(f), each), rtol=1e-12)
    np.testing.assert_allclose(likelihood.numpy_cdf(f, y), likelihood.cdf(jnp.asarray(f), each), rtol=1e-9)
    np.testing.assert_allclose(likelihood.numpy_mean(f), likelihood.conditional_mean(jnp.asarray(f)), rtol=1e-12)
    variance = likelihood.conditional_variance(jnp.asarray(f))
    np.testing.assert_allclose(likelihood.numpy_variance(f), variance, rtol=1e-12)


class Delegating(vb.likelihoods.Likelihood):
    """Student's noise as a user would write it: the five methods that predictions ask for, and nothing else."""

    noise: vb.StudentT

    def log_prob(self, f, y):
        return self.noise.log_prob(f, y)

    def conditional_mean(self, f):
        return self.noise.conditional_mean(f)

    def conditional_variance(self, f):
        return self.noise.conditional_variance(f)

    def cdf(self, f, y):
        return self.noise.cdf(f, y)

    def sample(self, f, key):
        return self.noise.sample(f, key)


def test_predictions_of_a_likelihood_of_ones_own_are_those_of_the_same_one_shipped():
    shipped = vb.StudentT(np.array([0.5, 1.5]), 4.0)
    rng = np.random.default_rng(0)
    y, *moments = rng.normal(size=(N, K)), rng.normal(size=(N, K)), rng.uniform(0.1, 1.0, (N, K))
    own, known = (Predictive(likelihood, *moments) for likelihood in (Delegating(shipped), shipped))
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(own.log_prob(y), known.log_prob(y), rtol=1e-9)
    np.testing.assert_allclose(own.quantiles(levels), known.quantiles(levels), atol=1e-9)
    np.testing.assert_allclose(own.inside(y, [0.5, 0.9]), known.inside(y, [0.5, 0.9]))
    # over 128 points of f, whose variance is 2 % below 1, in place of formulas
    np.testing.assert_allclose(own.mean(), known.mean(), atol=1e-3)
    np.testing.assert_allclose(own.epistemic(), known.epistemic(), rtol=0.03)
    draws = own.likelihood.numpy_sample(np.zeros((20_000, 1, K)), seed=0)
    np.testing.assert_allclose(
        draws.var(axis=0), known.aleatoric()[:1], rtol=0.2
    )  # of a fourth moment that is infinite


def test_a_likelihood_is_abstract_and_says_what_it_lacks():
    with pytest.raises(TypeError, match="abstract"):
        vb.likelihoods.Likelihood()  # pyright: ignore[reportAbstractUsage]
    with pytest.raises(NotImplementedError, match="Weibull has no `conditional_mean`, which is asked for here"):
        Weibull().quantiles(jnp.zeros((2, 3, 2)), [0.5])


@pytest.mark.parametrize("n_classes", [3, 5, 10])
def test_predictions_over_several_latents_take_them_as_independent(n_classes):
    rng = np.random.default_rng(0)
    mean = 1.5 * rng.normal(size=(30, n_classes))
    e = rng.normal(size=(50_000, n_classes))
    exact = np.array([softmax(m + 1.5 * np.concatenate([e, -e]), axis=1).mean(axis=0) for m in mean])
    said = Predictive(vb.Categorical(n_classes), mean, np.full(mean.shape, 1.5**2)).probabilities()
    # Paired at random, 100 points were 0.004 to 0.007 off at the root of the mean square; the Monte Carlo error of what
    # is taken for exact is below 0.001.
    assert np.sqrt(np.mean((said - exact) ** 2)) < 0.003


def test_probabilities_of_many_classes_are_the_mean_of_softmax_whatever_rows_are_worked_on_at_once():
    rng, n_classes = np.random.default_rng(0), 9
    f, variance = rng.standard_normal((1500, n_classes)), rng.uniform(0.0, 2.0, (1500, n_classes))
    predictive = Predictive(vb.Categorical(n_classes), f, variance)
    naive = softmax(predictive.points(), axis=2).mean(axis=0)
    # rounding of sums over nine classes and 128 points
    np.testing.assert_allclose(predictive.probabilities(), naive, rtol=1e-12)
    assert predictive._replace(f_mean=f[:0], f_variance=variance[:0]).probabilities().shape == (0, n_classes)
