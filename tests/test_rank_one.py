"""A family from a paper, as a user's script of public names: Bayesian networks of rank one (Dusenberry et al. 2020)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats

import vertebra as vb


class RankOne(vb.distributions.Posterior):
    """V = W ∘ (a bᵀ): W trained, a ~ N(m_a, s_a²) and b ~ N(m_b, s_b²), d + r random numbers in place of d · r."""

    sd: float = eqx.field(static=True, default=0.1)
    w: jax.Array | None = None
    m: tuple | None = None  # of a and of b
    log_s: tuple | None = None

    def init(self, r, d, *, prior, rng, live=None):
        w = vb.PointMass().init(r, d, prior=prior, live=live, rng=rng).mean
        m = tuple(jnp.asarray(rng.choice([-1.0, 1.0], n)) for n in (d, r))
        return RankOne(self.sd, w, m, tuple(jnp.full(n, jnp.log(self.sd)) for n in (d, r)))

    @property
    def mean(self):
        return self.w * jnp.outer(*self.m)

    def row_noise(self, key, batch):
        return [jr.normal(k, (len(m), *batch)) for k, m in zip(jr.split(key), self.m, strict=True)]

    def factors(self, noise):
        along = lambda a, e: a.reshape(-1, *(1,) * (e.ndim - 1))  # noqa: E731
        return [along(m, e) + along(jnp.exp(s), e) * e for m, s, e in zip(self.m, self.log_s, noise, strict=True)]

    def sample(self, key):
        return self.w * jnp.outer(*self.factors(self.row_noise(key, ())))

    def project(self, phi, noise):
        a, b = self.factors(noise)
        return a * vb.distributions.product(self.w, b * phi)


@vb.distributions.register_kl(RankOne, vb.Normal)
def _(q, p, live, key):
    """The penalty of W, and KL of the factors against N(1, sd²) or N(−1, sd²), the nearer: the paper's two modes."""
    weights = (1.0, 1.0 if live is None else live)
    each = [
        w * (0.5 * (jnp.exp(2.0 * s) + (jnp.abs(m) - 1.0) ** 2) / q.sd**2 - 0.5 - s + jnp.log(q.sd))
        for m, s, w in zip(q.m, q.log_s, weights, strict=True)
    ]
    return sum(map(jnp.sum, each)) + p.cost(q.w, live=live)


def test_a_row_has_the_law_of_a_draw():
    q = RankOne(0.3).init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
    phi = jnp.array([0.5, -1.0, 2.0])
    keys = jr.split(jr.key(0), 40_000)
    draws = np.asarray(jax.vmap(lambda key: q.sample(key) @ phi)(keys))
    rows = np.asarray(q.project(jnp.tile(phi[:, None], (1, 40_000)), q.row_noise(jr.key(1), (40_000,)))).T
    # E and Cov of a_j Σ_i W_ji b_i φ_i, from the moments of a and b
    product, spread = np.asarray(q.w) * np.asarray(phi), 0.09
    (m_a, m_b) = (np.asarray(m) for m in q.m)
    inner, between = product @ m_b, spread * product @ product.T
    mean, covariance = m_a * inner, np.outer(m_a, m_a) * between
    covariance[np.diag_indices(2)] += spread * (inner**2 + np.diag(between))
    for each in (draws, rows):
        np.testing.assert_allclose(each.mean(axis=0), mean, atol=4 * np.sqrt(covariance.max() / 40_000))
        np.testing.assert_allclose(np.cov(each.T), covariance, atol=0.05 * covariance.max())  # 4 · √(2/40000), tails


def test_its_kl_is_that_of_draws_of_its_factors():
    q = RankOne(0.3).init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
    q = eqx.tree_at(lambda q: (q.m, q.log_s), q, jax.tree.map(lambda a: a + 0.2, (q.m, q.log_s)))
    rng, total, error = np.random.default_rng(1), 0.0, 0.0
    for m, log_s in zip(q.m, q.log_s, strict=True):
        m, s = np.asarray(m, np.float64), np.exp(np.asarray(log_s, np.float64))
        v = m + s * rng.standard_normal((40_000, len(m)))
        each = np.sum(stats.norm.logpdf(v, m, s) - stats.norm.logpdf(v, np.sign(m), 0.3), axis=1)
        total, error = total + each.mean(), error + each.std() / 200
    ours = float(vb.kl(q, vb.Normal(0.7)))
    assert abs(ours - total - 0.5 * np.sum(np.asarray(q.w) ** 2) / 0.49) < 4 * error
    assert vb.distributions.kl_is_exact(q, vb.Normal())


def test_it_trains_beside_others_and_is_taken_apart():
    """On nodes of different numbers of parents, next to a point mass on another node, saved and loaded."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    y = np.tanh(x[:, :1] + x[:, 1:2]) + 0.5 * x[:, 2:] + 0.1 * rng.standard_normal((150, 1))
    skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=2)
    layers = [
        {"g0_1": vb.Layer(8, posterior=RankOne(), bias=True), "g1_1": vb.Layer(2, posterior=RankOne(0.05))},
        vb.Layer(1, posterior=RankOne(), prior=vb.Normal(fan_in=True)),
    ]
    network = vb.build(skeleton, layers, key=jr.key(0))
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=1500)
    mean, variance = vb.moments(fitted.network, x, key=jr.key(2))
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.3  # y has an sd of 0.8
    assert (np.asarray(variance) > 0).all()
    assert set(vb.decompose(fitted.network, x[:20], key=jr.key(3), n_draws=4)) >= {(0, 1), (2,)}
