import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from reference import covariance

import vertebra as vb
from vertebra.distributions import (
    Diagonal,
    Dropout,
    Full,
    Gaussian,
    GroupLasso,
    Laplace,
    LowRank,
    Normal,
    PointMass,
    check_posterior,
    check_prior,
    kl,
)

R, D = 6, 3
POSTERIORS = {
    "full": Gaussian("full"),
    "diagonal": Gaussian("diagonal"),
    "low_rank": Gaussian(LowRank(2)),
    "point": PointMass(),
    "dropout": Dropout(0.3),
}
PRIORS = {"normal": Normal(0.7), "fan_in": Normal(1.5, fan_in=True), "laplace": Laplace(0.5), "group": GroupLasso(2.0)}


def trained(posterior, key):
    """A posterior away from where it starts, with correlations where it can have them."""
    q = posterior.init(R, D, prior=Normal(), rng=np.random.default_rng(0))
    arrays, rest = eqx.partition(q, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jr.split(key, len(leaves))
    leaves = [
        leaf + 0.3 * jr.normal(k, leaf.shape) if leaf.ndim else leaf for leaf, k in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


def log_density(p, v):
    """log p(V) for draws of V, (draws, D, R), with its constant."""
    d = v.shape[1]
    match p:
        case Normal():
            sd = float(p.sd(R))
            return np.sum(-0.5 * (v / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi), axis=(1, 2))
        case Laplace():
            b = float(p.scale.value)
            return np.sum(-np.abs(v) / b - np.log(2 * b), axis=(1, 2))
        case GroupLasso():
            rate = float(p.penalty.value)
            sphere = 2 * np.pi ** (d / 2) / np.exp(np.sum(np.log(np.arange(1, d / 2)))) if d % 2 == 0 else 4 * np.pi
            # ∫ exp(−λ‖v‖) dv over R^3 = 4π Γ(3)/λ³
            return np.sum(-rate * np.linalg.norm(v, axis=1), axis=1) - R * np.log(sphere * 2 / rate**d)


@pytest.mark.parametrize("p", PRIORS)
@pytest.mark.parametrize("q", POSTERIORS)
def test_kl_agrees_with_monte_carlo(q, p, key):
    q, p = trained(POSTERIORS[q], key), PRIORS[p]
    n = 40_000
    v = np.asarray(jax.vmap(q.sample)(jr.split(jr.key(1), n)), np.float64)
    if isinstance(q, Gaussian):
        sigma = [covariance(jax.tree.map(lambda a: a[None], q.covariance), 0, j) for j in range(D)]
        centred = v - np.asarray(q.mean, np.float64)
        log_q = -0.5 * sum(
            np.einsum("ni,ij,nj->n", centred[:, j], np.linalg.inv(sigma[j]), centred[:, j])
            + np.linalg.slogdet(2 * np.pi * sigma[j])[1]
            for j in range(D)
        )
        terms = log_q - log_density(p, v)
    else:
        terms = log_density(p, np.zeros((1, D, R))) - log_density(p, v)
    if isinstance(p, GroupLasso) and isinstance(q, Gaussian):
        estimates = np.asarray(jax.vmap(lambda k: kl(q, p, key=k))(jr.split(jr.key(2), 4000)), np.float64)
        ours, ours_se = estimates.mean(), estimates.std() / np.sqrt(4000)
    else:
        ours, ours_se = float(kl(q, p)), 0.0
    # Three standard errors; a point mass has none, and float32 rounding of sums of about 10 is left.
    assert abs(ours - terms.mean()) < 3 * np.hypot(terms.std() / np.sqrt(n), ours_se) + 1e-4
    assert ours >= 0.0


@pytest.mark.parametrize("q", ["full", "diagonal", "low_rank"])
def test_kl_is_zero_where_posterior_and_prior_agree(q, rng):
    q = Gaussian(POSTERIORS[q].covariance, sd=1.0, spread=0.0).init(R, D, prior=Normal(0.7), rng=rng)
    if isinstance(q.covariance, LowRank):
        q = eqx.tree_at(lambda q: q.covariance.directions, q, 0 * q.covariance.directions)
        q = eqx.tree_at(lambda q: q.covariance.log_sd, q, jnp.full((D, R), jnp.log(0.7)))
    assert abs(float(kl(q, Normal(0.7)))) < 1e-5  # float32 rounding of a sum of 18 terms


@pytest.mark.parametrize("q", POSTERIORS)
def test_draws_have_the_moments_that_are_claimed(q, key):
    q = trained(POSTERIORS[q], key)
    phi = jr.normal(jr.key(4), (R, 5))
    n = 40_000
    v = jax.vmap(q.sample)(jr.split(jr.key(5), n))
    f = np.asarray(jnp.einsum("ndr,rb->ndb", v, phi), np.float64)
    mean, variance = q.moments(phi)
    variance = jnp.zeros_like(mean) if variance is None else variance
    se = np.sqrt(np.asarray(variance) / n)
    assert np.all(np.abs(f.mean(axis=0) - mean) < 4.5 * se + 1e-5)  # 15 comparisons: 4.5 standard errors
    # A variance estimate has relative error √(2/n) = 0.007 for normal draws, less than 0.02 for coins at 0.3.
    np.testing.assert_allclose(f.var(axis=0), variance, rtol=0.06, atol=1e-9)


@pytest.mark.parametrize("q", ["full", "diagonal", "low_rank"])
def test_quadratic_forms_equal_the_dense_covariance(q, key):
    q = trained(POSTERIORS[q], key)
    phi = jr.normal(jr.key(4), (R, 4))
    stacked = jax.tree.map(lambda a: a[None], q.covariance)
    for j in range(D):
        sigma = covariance(stacked, 0, j)
        np.testing.assert_allclose(q.covariance.quadratic(phi)[j], np.sum(phi * (sigma @ phi), axis=0), rtol=1e-5)
        np.testing.assert_allclose(q.covariance.variances()[j], np.diag(sigma), rtol=1e-5)
        np.testing.assert_allclose(q.covariance.log_det()[j], np.linalg.slogdet(sigma)[1], rtol=1e-4, atol=1e-5)


def test_dropout_turns_off_whole_features_at_its_rate(key, rng):
    q = Dropout(0.3).init(R, D, prior=Normal(), rng=rng)
    v = np.asarray(jax.vmap(q.sample)(jr.split(key, 20_000)))
    off = (v == 0.0).all(axis=1)
    assert (off == (v == 0.0).any(axis=1)).all()
    # √(0.3·0.7/120000) = 0.0013
    assert abs(off.mean() - 0.3) < 0.004
    np.testing.assert_allclose(v[~np.repeat(off[:, None], D, 1)].mean() * 0.7, float(q.mean.mean()), atol=0.01)


def test_a_full_covariance_comes_back_from_its_factor(key):
    factor = jnp.triu(jr.normal(key, (D, R, R)))
    factor = factor.at[:, jnp.arange(R), jnp.arange(R)].set(0.5)
    np.testing.assert_allclose(Full.of(factor).factor, factor, atol=1e-7)


@pytest.mark.parametrize("prior", [Normal(), Laplace(), GroupLasso()])
@pytest.mark.parametrize("q", POSTERIORS)
def test_kl_has_a_finite_gradient_at_zero_weights(q, prior):
    q = POSTERIORS[q].init(R, D, prior=Normal(), rng=np.random.default_rng(0))
    q = eqx.tree_at(lambda q: q.mean, q, jnp.zeros((D, R)))
    arrays, rest = eqx.partition(q, eqx.is_inexact_array)
    gradient = jax.grad(lambda a: kl(eqx.combine(a, rest), prior, key=jr.key(1)))(arrays)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Normal(0.0), "`scale` must be positive and finite, got 0.0"),
        (lambda: Laplace(-1.0), "`scale` must be positive and finite, got -1.0"),
        (lambda: GroupLasso(float("inf")), "`penalty` must be positive and finite, got inf"),
        (lambda: Dropout(-0.1), "`rate` must be at least 0 and below 1, got -0.1"),
        (lambda: Dropout(1.0), "`rate` must be at least 0 and below 1, got 1.0"),
        (lambda: Gaussian("round"), "`covariance` must be one of full, diagonal, low_rank, got 'round'"),
        (lambda: Gaussian(sd=0.0), "`sd` must be positive and finite, got 0.0"),
        (lambda: Gaussian(spread=-1.0), "`spread` must not be negative, got -1.0"),
        (lambda: LowRank(0), "`rank` must be at least 1, got 0"),
        (
            lambda: kl(Gaussian(Diagonal()).init(2, 2, prior=Normal(), rng=np.random.default_rng(0)), GroupLasso()),
            "`key` is needed",
        ),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Spiky(Gaussian):
    def sample(self, key):
        return jnp.zeros_like(self.mean)


class Blunt(Gaussian):
    """A Gaussian that starts elsewhere: honest, since all that is asked of it is Gaussian's."""

    def __init__(self):
        super().__init__("diagonal", sd=0.5)

    def init(self, r, d, *, prior, live=None, rng):
        return super().init(r, d, prior=prior, live=live, rng=rng)


class Heavy(Normal):
    def sample(self, key, d, r, *, live=None):
        return jr.cauchy(key, (d, r))


class Wide(Normal):
    def sd(self, r):
        return 100.0


class Loose(Normal):
    def __init__(self):
        super().__init__(3.0)


class Odd(Diagonal):
    def variances(self):
        return jnp.ones_like(self.log_sd)


class Coin(Dropout):
    def coins(self, key, shape):
        return jnp.ones(shape, bool)


@pytest.mark.parametrize(
    ("posterior", "prior", "words"),
    [
        (lambda: Spiky("diagonal"), Normal, "`posterior` Spiky has `sample` of its own, which would be ignored"),
        (lambda: Coin(0.1), Normal, "`posterior` Coin has `coins` of its own, .* those of Dropout"),
        (lambda: Gaussian(Odd()), Normal, "`covariance` Odd has `variances` of its own"),
        (Gaussian, Heavy, "`prior` Heavy has `sample` of its own, .* derive Heavy from vb.distributions.Prior"),
        (Gaussian, Wide, "`prior` Wide has `sd` of its own"),
    ],
)
def test_what_a_subclass_overrides_is_refused_where_it_would_be_ignored(posterior, prior, words):
    with pytest.raises(TypeError, match=words):
        vb.Layer(1, posterior=posterior(), prior=prior())
    with pytest.raises(TypeError, match=words):
        vb.FunctionBlock(posterior(), prior(), r=3, d=2, rng=np.random.default_rng(0))


def test_a_kl_of_a_subclass_with_methods_of_its_own_is_refused(key):
    q = trained(Gaussian("diagonal"), key)
    with pytest.raises(TypeError, match="`posterior` Spiky"):
        kl(Spiky(q.covariance, mean=q.mean), Normal())
    with pytest.raises(TypeError, match="`prior` Heavy"):
        kl(q, Heavy())


def test_a_class_of_another_kind_is_refused_at_the_door():
    with pytest.raises(TypeError, match=r"`prior` must be one of Normal, Laplace, GroupLasso, or .* got PointMass"):
        check_prior(PointMass())
    with pytest.raises(
        TypeError, match=r"`posterior` must be one of Gaussian, PointMass, Dropout, Members, or .* got Normal"
    ):
        check_posterior(Normal())


def test_subclasses_that_are_only_made_otherwise_are_as_good_as_their_class(key):
    layers = [vb.Layer(2, posterior=Blunt(), prior=Loose()), vb.Layer(1, posterior=Blunt(), prior=Loose())]
    plain = [vb.Layer(d, posterior=Gaussian("diagonal", sd=0.5), prior=Normal(3.0)) for d in (2, 1)]
    own, same = (vb.build(vb.chain(3, 2), each, key=key) for each in (layers, plain))
    assert float(own.kl(key=key)) == float(same.kl(key=key))
