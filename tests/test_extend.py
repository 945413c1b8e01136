"""Parts of one's own, as docs/extend.md writes them: its classes, held to a second road to the same numbers."""

import ast
import pathlib
import re
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, linalg, stats

import vertebra as vb
from vertebra.distributions import Gaussian, Normal, PointMass, Posterior, Prior, check_posterior, kl, kl_is_exact

PAGE = pathlib.Path(__file__).parents[1] / "docs/extend.md"
R, D = 3, 2


@pytest.fixture(scope="module")
def page():
    """The names that the page's classes and functions leave; its fits are left to the test of documents."""
    namespace = {}
    for text in re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text()):
        if re.search(r"^(import|class) ", text, re.M) and "blackjax" not in text:
            exec(compile(text, "docs/extend.md", "exec"), namespace)
    return namespace


def test_parts_are_as_short_as_the_page_says():
    """Lines of each class or function, docstrings aside, with the rules of KL that follow it."""
    counts, name = Counter(), ""
    for text in re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text()):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                name = name if node.name == "_" else node.name
                first = min(each.lineno for each in (node, *node.decorator_list))
                lines = (line.strip() for line in text.splitlines()[first - 1 : node.end_lineno])
                counts[name] += sum(bool(line) and not line.startswith('"""') for line in lines)
    assert counts.pop("hadamard") + counts.pop("WalshHadamard") < 40
    assert set(counts) >= {
        "Horseshoe",
        "LearnedNormal",
        "Radial",
        "Members",
        "Flow",
        "Laplacian",
        "Beta",
        "Pinball",
        "AndOne",
        "nuts",
        "sgld",
    }
    assert max(counts.values()) < 20, counts


def trained(posterior, key):
    """A posterior of D times R weights, away from where it starts."""
    q = posterior.init(R, D, prior=Normal(), rng=np.random.default_rng(0))
    arrays, rest = eqx.partition(q, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jr.split(key, len(leaves))
    leaves = [leaf + 0.3 * jr.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


def estimates(q, p, n=4000):
    """KL(q ‖ p) from n keys: its mean, and the standard error of that."""
    each = np.asarray(jax.jit(jax.vmap(lambda k: kl(q, p, key=k)))(jr.split(jr.key(2), n)), np.float64)
    return each.mean(), each.std() / np.sqrt(n)


def test_the_horseshoe_is_the_mixture_that_it_says(page):
    p = page["Horseshoe"](0.5)
    for v in (0.01, 0.3, 1.0, 2.0, 10.0):
        mixed, _ = integrate.quad(lambda s, v=v: stats.norm.pdf(v, scale=0.5 * s) * 2 / (np.pi * (1 + s**2)), 0, np.inf)
        # steps of 1 in log t are right to some e^{−π²}
        assert abs(float(p.log_prob(jnp.array([[v]]))) - np.log(mixed)) < 5e-4


def test_kl_against_the_horseshoe_is_that_of_quadrature(page, key):
    q, p = trained(Gaussian("diagonal"), key), page["Horseshoe"](0.5)
    assert not kl_is_exact(q, p)
    log_p = jax.jit(jax.vmap(lambda v: p.log_prob(v[None, None])))
    grid, total = np.linspace(-8.0, 8.0, 4000), 0.0
    for mean, sd in zip(np.ravel(q.mean), np.ravel(jnp.sqrt(q.covariance.variances())), strict=True):
        v = mean + sd * grid
        total += integrate.trapezoid(stats.norm.pdf(grid) * (stats.norm.logpdf(v, mean, sd) - log_p(v)), grid)
    ours, error = estimates(q, p)
    assert abs(ours - total) < 4 * error + 1e-3  # 1e-3: the grid beside the pole of p at 0, and float32


def test_kl_of_the_learned_normal_is_that_of_a_normal_of_its_scale(page, key):
    q = trained(Gaussian("full"), key)
    assert kl_is_exact(q, page["LearnedNormal"](0.7))
    np.testing.assert_allclose(kl(q, page["LearnedNormal"](0.7)), kl(q, Normal(0.7)), rtol=1e-5)  # float32


@pytest.mark.slow
def test_a_learned_scale_ends_where_its_formula_has_it(page):
    """The best s² against q is the mean of E v²: what training must find, with all else held."""
    q = trained(Gaussian("diagonal"), jr.key(3))
    second = jnp.mean(q.covariance.variances() + q.mean**2)
    slope = jax.grad(lambda s: kl(q, eqx.tree_at(lambda p: p.log_scale, page["LearnedNormal"](), s)))
    np.testing.assert_allclose(slope(0.5 * jnp.log(second)), 0.0, atol=1e-5)  # float32 rounding of sums of about 6
    x = np.random.default_rng(0).standard_normal((200, 4))
    network = vb.build(
        vb.chain(4, 1), [vb.Layer(1, posterior=Gaussian(), prior=page["LearnedNormal"]())], key=jr.key(0)
    )
    fitted = vb.fit(network, vb.Gaussian(0.1), x, 3.0 * x @ np.ones((4, 1)), key=jr.key(1), n_steps=3000)
    block = jax.tree.map(lambda leaf: leaf[0], fitted.network.stacks[0].function)
    best = jnp.sqrt(jnp.mean(block.posterior.covariance.variances() + block.posterior.mean**2))
    # the schedule ends at a rate of 0: within some per cent of the maximum
    np.testing.assert_allclose(jnp.exp(block.prior.log_scale), best, rtol=0.05)


def test_the_radial_posterior_has_a_density_and_the_kl_of_its_formula(page, key):
    q = page["Radial"](jnp.zeros((1, 2)), jnp.log(jnp.array([[0.5, 2.0]])))
    a, b = np.meshgrid(np.linspace(-3, 3, 400), np.linspace(-12, 12, 400), indexing="ij")  # none at 0, a pole
    density = np.exp(jax.vmap(q.log_prob)(jnp.asarray(np.stack([a.ravel(), b.ravel()], 1))[:, None]))
    # cells beside the pole, where the density is ρ⁻¹, miss some thousandths
    assert abs(density.sum() * (6 / 399) * (24 / 399) - 1.0) < 0.02
    q, n = trained(page["Radial"](), key), R * D
    v = np.asarray(jax.vmap(q.sample)(jr.split(jr.key(1), 40_000)), np.float64)
    np.testing.assert_allclose(v.var(axis=0), np.exp(2 * q.log_sd) / n, rtol=0.05)  # E ρ² = 1, over n directions
    # KL against N(0, s²): E log q is that of u, less Σ log σ; E log p has E ‖V‖² = ‖μ‖² + Σσ²/n
    ball = np.log(2) + 0.5 * n * np.log(np.pi) - float(jax.scipy.special.gammaln(0.5 * n))
    log_radius = 0.5 * (np.log(2.0) + float(jax.scipy.special.digamma(0.5)))  # E log ρ of |N(0, 1)|
    log_q = np.log(2) - 0.5 * np.log(2 * np.pi) - 0.5 - ball - (n - 1) * log_radius - float(jnp.sum(q.log_sd))
    second = float(jnp.sum(q.mean**2) + jnp.sum(jnp.exp(2 * q.log_sd)) / n)
    exact = log_q + 0.5 * second / 0.49 + n * (np.log(0.7) + 0.5 * np.log(2 * np.pi))
    ours, error = estimates(q, Normal(0.7))
    assert abs(ours - exact) < 4 * error


def test_members_are_point_masses_and_pay_their_mean_penalty(page, key):
    q = trained(page["Members"](), key)
    each = [np.outer(a, b) * np.asarray(q.v) for a, b in zip(np.asarray(q.a), np.asarray(q.b), strict=True)]
    np.testing.assert_allclose(kl(q, Normal(0.7)), np.mean([0.5 * np.sum(v**2) / 0.49 for v in each]), rtol=1e-5)
    np.testing.assert_allclose(q.mean, np.mean(each, axis=0), atol=1e-6)
    drawn = np.asarray(jax.vmap(q.sample)(jr.split(key, 400)))
    which = [int(np.argmin([np.abs(v - m).max() for m in each])) for v in drawn]
    np.testing.assert_allclose(drawn, np.stack(each)[which], atol=1e-6)
    # √(400 · ¼ · ¾) = 8.7 about 100
    assert all(abs(which.count(m) - 100) < 4 * 8.7 for m in range(4))


def test_the_flow_has_the_density_of_its_change_of_variables(page, key):
    q = trained(page["Flow"](), key)
    u = jr.normal(jr.key(4), (R * D,))
    stretch = jnp.linalg.slogdet(jax.jacfwd(lambda u: q.draw(u)[0].ravel())(u))[1]
    expected = jnp.sum(jax.scipy.stats.norm.logpdf(u)) - stretch
    np.testing.assert_allclose(q.draw(u)[1], expected, rtol=1e-4)  # float32
    plain = eqx.tree_at(lambda q: q.nets, q, 0.0 * q.nets)
    gaussian = Gaussian(vb.distributions.Diagonal(q.log_sd), mean=q.mean)
    ours, error = estimates(plain, Normal(0.7))
    assert abs(ours - float(kl(gaussian, Normal(0.7)))) < 4 * error  # without nets it is a Gaussian


def test_kl_of_the_flow_is_that_of_its_loops(page, key):
    q, rng, n = trained(page["Flow"](), key), np.random.default_rng(0), 20_000
    inner, shifts, scales = np.asarray(q.nets, np.float64)
    u, hidden, moved = rng.standard_normal((n, R * D)), np.zeros((n, R * D)), np.zeros((n, R * D))
    log_q = stats.norm.logpdf(u).sum(axis=1) - float(jnp.sum(q.log_sd))
    for i in range(R * D):
        log_scale = sum((scales[i, k] * hidden[:, k] for k in range(i)), np.zeros(n))
        moved[:, i] = u[:, i] * np.exp(log_scale) + sum((shifts[i, k] * hidden[:, k] for k in range(i)), np.zeros(n))
        hidden[:, i] = np.tanh(sum(inner[i, k] * u[:, k] for k in range(i + 1)))
        log_q -= log_scale
    v = np.ravel(q.mean) + np.exp(np.ravel(q.log_sd)) * moved
    each = log_q - stats.norm.logpdf(v, scale=0.7).sum(axis=1)
    ours, error = estimates(q, Normal(0.7))
    assert not kl_is_exact(q, Normal(0.7))
    assert abs(ours - each.mean()) < 4 * np.hypot(error, each.std() / np.sqrt(n))


def test_the_walsh_hadamard_transform_is_its_matrix(page):
    x = np.random.default_rng(0).standard_normal((8, 3))
    np.testing.assert_allclose(page["hadamard"](jnp.asarray(x)), linalg.hadamard(8) @ x / 8**0.5, atol=1e-6)


def test_walsh_hadamard_has_the_law_of_its_formula(page, key):
    q = trained(page["WalshHadamard"](), key)
    h, n = linalg.hadamard(4) / 2.0, 4
    s, mu, variance = (np.asarray(a, np.float64) for a in (q.s, q.mu, jnp.exp(2 * q.log_sd)))
    mean = (np.diag(s[0]) @ h @ np.diag(mu) @ h @ np.diag(s[1]))[:D, :R]
    np.testing.assert_allclose(q.mean, mean, atol=1e-5)
    # V is linear in g: Cov V = Σ_k σ²_k A_k A_kᵀ with A_k = ∂V/∂g_k
    slopes = np.stack([(np.outer(s[0] * h[:, k], h[k] * s[1]))[:D, :R].ravel() for k in range(n)])
    covariance = slopes.T @ (variance[:, None] * slopes)
    draws = np.asarray(jax.vmap(q.sample)(jr.split(key, 20_000))).reshape(20_000, -1)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.04 * covariance.max())  # 4 √(2/20000)
    phi = jnp.asarray(np.random.default_rng(1).standard_normal(R), jnp.float32)
    rows = np.asarray(q.project(jnp.tile(phi[:, None], (1, 20_000)), q.row_noise(key, (20_000,))))
    spread = np.kron(np.eye(D), np.asarray(phi)[None])
    expected = spread @ covariance @ spread.T
    np.testing.assert_allclose(np.cov(rows), expected, atol=0.05 * expected.max())
    # KL of g against N(0, n s²), under which V has the sd of its prior
    sd = 0.7 * n**0.5
    g = mu + np.sqrt(variance) * np.random.default_rng(2).standard_normal((40_000, n))
    each = np.sum(stats.norm.logpdf(g, mu, np.sqrt(variance)) - stats.norm.logpdf(g, scale=sd), axis=1)
    assert kl_is_exact(q, Normal(0.7))
    assert abs(float(kl(q, Normal(0.7))) - each.mean()) < 4 * each.std() / 200
    signs = np.sign(s)
    prior = np.einsum("ia,ak,kb->ikb", np.diag(signs[0]) @ h, np.eye(n), h @ np.diag(signs[1]))
    np.testing.assert_allclose(np.sum(prior**2, axis=1) * sd**2, 0.49, rtol=1e-6)


def test_a_network_of_walsh_and_hadamard_learns(page):
    layers = [vb.Layer(d, posterior=page["WalshHadamard"](), prior=Normal(fan_in=True), bias=True) for d in (8, 1)]
    network = vb.build(vb.chain(2, 2), layers, key=jr.key(0))
    fitted = vb.fit(network, vb.Gaussian(), page["x"], page["y"], key=jr.key(1), n_steps=1500)
    mean, _ = vb.moments(fitted.network, page["x"], key=jr.key(2))
    assert np.sqrt(np.mean((page["y"] - mean) ** 2)) < 0.25  # y has an sd of 0.7


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("n_live", [None, 2])
def test_a_gaussian_has_the_density_of_a_multivariate_normal(kind, n_live, key):
    q = trained(Gaussian(kind), key)
    v, size = jr.normal(jr.key(1), (D, R)), n_live or R
    live = None if n_live is None else (jnp.arange(R) < n_live).astype(float)
    expected = 0.0
    for j in range(D):
        root = np.asarray(q.covariance.square_root()[j], np.float64)[:size]
        expected += stats.multivariate_normal.logpdf(v[j, :size], q.mean[j, :size], root @ root.T)
    np.testing.assert_allclose(q.log_prob(v, live=live), expected, rtol=2e-4)  # float32 solves
    draws = jax.vmap(lambda k: q.log_prob(q.sample(k), live=live))(jr.split(key, 4000))
    assert abs(float(q.entropy(live) + draws.mean())) < 4 * float(draws.std()) / 4000**0.5


class OwnDiagonal(Posterior):
    """Gaussian("diagonal") written again: its rows must be drawn as those are."""

    is_gaussian = True
    mean: jax.Array | None = None
    log_sd: jax.Array | None = None

    def init(self, r, d, *, prior, live=None, rng):
        q = Gaussian("diagonal").init(r, d, prior=prior, live=live, rng=rng)
        return OwnDiagonal(q.mean, q.covariance.log_sd)

    def sample(self, key):
        return self.mean + jnp.exp(self.log_sd) * jr.normal(key, self.mean.shape)

    def entropy(self, live=None):
        each = self.log_sd + 0.5 * (1.0 + np.log(2.0 * np.pi))
        return jnp.sum(vb.distributions.over_features(each, live))

    def moments(self, phi):
        return self.mean @ phi, jnp.exp(2.0 * self.log_sd) @ phi**2


@pytest.mark.parametrize("skeleton", [vb.chain(3, 2), vb.additive(3, clusters=[(0, 1), (2,)], depth=2)])
def test_a_gaussian_of_ones_own_is_trained_as_the_shipped_one(skeleton, rng, key):
    x, y = rng.standard_normal((40, 3)), rng.standard_normal((40, 1))
    own, shipped = (
        vb.build(skeleton, [vb.Layer(d, posterior=q, prior=Normal(fan_in=True)) for d in (4, 1)], key=key)
        for q in (OwnDiagonal(), Gaussian("diagonal"))
    )
    assert own.kl_is_exact == (False, False)
    assert shipped.kl_is_exact == (True, True)
    columns = jnp.asarray(x.T, jnp.float32)
    rows = [n.conditional(columns, n.noise(key, (40,))) for n in (own, shipped)]
    np.testing.assert_allclose(*rows, rtol=1e-4, atol=1e-6)  # the same noise, float32
    mean_kl = eqx.filter_jit(lambda n: jnp.mean(jax.vmap(lambda k: n.kl(key=k))(jr.split(key, 400))))
    np.testing.assert_allclose(mean_kl(own), shipped.kl(key=key), rtol=0.05)  # 400 draws of some 20 weights
    np.testing.assert_allclose(own(columns, key=key), shipped(columns, key=key), rtol=1e-5)
    vb.elbo(own, vb.Gaussian(1.0), x, y, key=key)


def test_what_is_not_known_is_refused_with_what_to_do(page):
    class Bare(Prior):
        def sample(self, key, d, r):
            return jnp.zeros((d, r))

    class Twice(page["Radial"]):
        def sample(self, key):
            return 2.0 * super().sample(key)

    with pytest.raises(
        TypeError, match=r"give Bare a `log_prob`, or register a rule with vb.distributions.register_kl"
    ):
        vb.Layer(1, posterior=Gaussian(), prior=Bare())
    with pytest.raises(TypeError, match=r"`posterior` Twice has `sample` of its own, .* derive Twice from"):
        vb.Layer(1, posterior=Twice())
    with pytest.raises(
        TypeError, match=r"got the likelihood Gaussian: .* the posterior of that name is vb.distributions"
    ):
        check_posterior(vb.Gaussian())
    for q in (PointMass(), vb.Dropout(0.1)):
        with pytest.raises(TypeError, match=r"pays the `cost` of its prior, and Bare has none: give it a `log_prob`"):
            vb.Layer(1, posterior=q, prior=Bare())
    uneven = vb.additive(3, clusters=[(0, 1), (2,)], depth=1)
    with pytest.raises(TypeError, match="`posterior` Radial must have `live=None` among the arguments of `init`"):
        vb.build(uneven, [vb.Layer(1, posterior=page["Radial"]())], key=jr.key(0))
    with pytest.raises(ValueError, match="`key` is needed: KL of a Radial against a Normal is estimated"):
        kl(trained(page["Radial"](), jr.key(0)), Normal())


class Shaken:
    """A plain mixin that draws."""

    def sample(self, key):
        return self.mean + 0.1 * jr.normal(key, self.mean.shape)


class Mixed(Shaken, Posterior):
    mean: jax.Array | None = None

    def init(self, r, d, *, prior, rng):
        return Mixed(jnp.asarray(rng.standard_normal((d, r))))

    def log_prob(self, v):
        return jnp.sum(jax.scipy.stats.norm.logpdf(v, self.mean, 0.1))


def test_a_mixin_may_bring_the_draw(key):
    layer = vb.Layer(1, posterior=Mixed(), prior=Normal())
    network = vb.build(vb.chain(2, 1), [layer], key=key)
    assert vb.sample(network, np.zeros((5, 2)), key=key, n_draws=3).shape == (3, 5, 1)

    class Twice(Shaken, PointMass):
        pass

    with pytest.raises(TypeError, match="`posterior` Twice has `sample` of its own"):
        vb.Layer(1, posterior=Twice())


def test_beta_is_scipys_and_its_two_latents_are_integrated_over(page):
    likelihood, rng = page["Beta"](), np.random.default_rng(0)
    mean, variance = jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), jnp.full((3, 2), 0.3)
    y = jnp.asarray(rng.uniform(0.2, 0.8, (3, 1)), jnp.float32)
    centre, precision = 1 / (1 + np.exp(-np.asarray(mean[:, :1]))), np.exp(np.asarray(mean[:, 1:]))
    law = stats.beta(precision * centre, precision * (1 - centre))
    np.testing.assert_allclose(likelihood.log_prob(mean, y), law.logpdf(y), rtol=1e-3, atol=1e-4)
    f = mean[None] + jnp.sqrt(0.3) * jr.normal(jr.key(1), (40_000, 3, 2))
    each = np.asarray(likelihood.log_prob(f, jnp.broadcast_to(y, (40_000, 3, 1))))
    rule = likelihood.expected_log_prob(mean, variance, y, mean)
    assert (np.abs(rule - each.mean(axis=0)) < 4 * each.std(axis=0) / 200 + 1e-3).all()


def test_the_pinball_is_a_density_whose_quantile_is_f(page):
    t, likelihood = jnp.linspace(-40.0, 60.0, 100_001), page["Pinball"](0.8)
    density = np.exp(likelihood.log_prob(jnp.full((100_001, 1), 1.0), t[:, None]))[:, 0]
    assert abs(integrate.trapezoid(density, t) - 1.0) < 1e-3
    assert abs(integrate.trapezoid(density[t <= 1.0], t[t <= 1.0]) - 0.8) < 1e-3  # a grid of 0.001


def test_a_network_under_the_pinball_is_the_quantile(page):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.5, 1.5, (1000, 1))
    y = np.sin(2 * x) + 0.3 * rng.standard_normal(x.shape)
    network = vb.build(vb.chain(1, 2), vb.mean_field([12, 1]), key=jr.key(0))
    fitted = vb.fit(network, page["Pinball"](0.8), x, y, key=jr.key(1), n_steps=2000)
    quantile, _ = vb.moments(fitted.network, x, key=jr.key(2))
    assert abs(np.mean(y <= quantile) - 0.8) < 0.05  # √(0.8 · 0.2/1000) is 0.013
    away = quantile - np.sin(2 * x) - 0.3 * stats.norm.ppf(0.8)
    assert np.sqrt(np.mean(away**2)) < 0.15  # the mean of y is 0.25 away


@pytest.mark.slow
def test_a_network_under_beta_finds_mean_and_precision(page):
    class Drawn(page["Beta"]):
        expected_log_prob = vb.likelihoods.Likelihood.log_prob_of_a_draw  # a hundredth of the time of 400 points

    rng = np.random.default_rng(0)
    x = rng.uniform(-1.5, 1.5, (1000, 1))
    mean, precision = 1 / (1 + np.exp(-np.sin(2 * x))), np.exp(3.0 + x)
    y = rng.beta(precision * mean, precision * (1 - mean))
    network = vb.build(vb.chain(1, 2), vb.mean_field([12, 2]), key=jr.key(0))
    fitted = vb.fit(network, Drawn(), x, y, key=jr.key(1), n_steps=2000)
    f, _ = vb.moments(fitted.network, x, key=jr.key(2))
    assert np.sqrt(np.mean((1 / (1 + np.exp(-f[:, :1])) - mean) ** 2)) < 0.03  # shares have an sd of 0.05 to 0.2
    assert np.sqrt(np.mean((f[:, 1:] - 3.0 - x) ** 2)) < 0.3


def test_a_point_mass_pays_minus_log_p_of_a_prior_of_ones_own(page):
    v = jnp.array([[0.5, -2.0, 0.1]])
    np.testing.assert_allclose(kl(PointMass(v), page["Horseshoe"]()), -page["Horseshoe"]().log_prob(v), rtol=1e-6)


def test_a_constant_feature_is_a_bias_that_laplace_knows_of(page):
    """Linear in V: the posterior of slope and intercept, and the evidence, are known."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    y = 3.0 + x @ np.array([[1.0], [-2.0]]) + 0.3 * rng.standard_normal((40, 1))
    design = np.column_stack([x, np.ones(40)])
    gram = design.T @ design / 0.09 + np.eye(3) / 4.0
    layer = vb.Layer(1, [page["AndOne"]()], posterior=PointMass(), prior=Normal(2.0))
    network = vb.build(vb.chain(2, 1), [layer], key=jr.key(0))
    mode = np.linalg.solve(gram, design.T @ y / 0.09)
    posterior = vb.linearised_laplace(network.at([jnp.asarray(mode.T[None], jnp.float32)]), vb.Gaussian(0.3), x, y)
    np.testing.assert_allclose(posterior.root @ posterior.root.T, np.linalg.inv(gram), rtol=1e-4, atol=1e-7)
    evidence = stats.multivariate_normal.logpdf(y[:, 0], np.zeros(40), 0.09 * np.eye(40) + 4.0 * design @ design.T)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-4)  # float32 sums


@pytest.fixture(scope="module")
def samplers(page):
    """The page's names, with its samplers."""
    page["blackjax"] = pytest.importorskip(
        "blackjax", reason="samplers are BlackJAX's: pip install 'vertebra[oracles]'"
    )
    for text in re.findall(r"(?m)^def (?:nuts|sgld)(?:.*\n(?:    .*\n|\n)*)", PAGE.read_text()):
        exec(compile(text, "docs/extend.md", "exec"), page)
    return page


@pytest.fixture(scope="module")
def nuts(samplers):
    return samplers["nuts"]


@pytest.mark.slow
def test_stochastic_gradients_draw_from_the_posterior_of_a_linear_model(samplers):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3))
    y = x @ np.array([[1.0], [-2.0], [0.5]]) + 0.5 * rng.standard_normal((200, 1))
    precision = x.T @ x / 0.25 + np.eye(3)
    mean, sd = np.linalg.solve(precision, x.T @ y / 0.25)[:, 0], np.sqrt(np.diag(np.linalg.inv(precision)))
    network = vb.build(vb.chain(3, 1), [vb.Layer(1, posterior=PointMass(), prior=Normal())], key=jr.key(0))
    density = vb.log_density(network, vb.Gaussian(0.5), x, y)
    draws = np.asarray(samplers["sgld"](density, jr.key(1), jnp.full(60_000, 2e-5)))[2000:]
    # draws forget in 1/(800 · 2e-5) = 60 steps, so that 480 are independent: 4/√480 = 0.18 sd, and 4/√960 of the sd;
    # noise of the gradients adds a few per cent
    assert (np.abs(draws.mean(axis=0) - mean) < 0.18 * sd).all()
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gap"), [("Radial", 0.5), ("Flow", 0.5)])
def test_functions_of_a_family_are_those_of_nuts(family, gap, page, nuts):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 1))
    y = np.tanh(2 * x) + 0.3 * rng.standard_normal(x.shape)
    layers = [vb.Layer(d, posterior=page[family](), prior=Normal()) for d in (3, 1)]
    network = vb.build(vb.chain(1, 2), layers, key=jr.key(0))
    likelihood = FixedNoise(0.3)
    fitted = vb.fit(network, likelihood, x, y, key=jr.key(1), n_steps=6000, n_draws=8)
    density = vb.log_density(network, likelihood, x, y)
    mean, variance = vb.moments(fitted.network, x, key=jr.key(2), n_draws=2000)
    true_mean, true_variance = vb.moments(density.networks(nuts(density, jr.key(3), 1000)), x, key=jr.key(4))
    gaps = np.asarray((mean - true_mean) / jnp.sqrt(true_variance))
    ratio = np.sqrt(np.asarray(variance / true_variance))
    print(family, np.sqrt(np.mean(gaps**2)), np.median(ratio))
    # Each layer has a q of its own, and weights of two layers that make up for each other are not seen together: half
    # a standard deviation of the mean, and an sd that is up to half as large again.
    assert np.sqrt(np.mean(gaps**2)) < gap
    assert 0.5 < np.median(ratio) < 1.6


class FixedNoise(vb.likelihoods.Likelihood):
    """N(f, sd²) of an sd that nobody trains."""

    sd: float = eqx.field(static=True)

    def log_prob(self, f, y):
        return jax.scipy.stats.norm.logpdf(y, f, self.sd)


@pytest.mark.slow
def test_the_horseshoe_gives_numpyros_answer_on_a_linear_model(page, nuts):
    numpyro = pytest.importorskip("numpyro", reason="the same model in NumPyro: pip install 'vertebra[oracles]'")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 4))
    y = x @ np.array([[2.0], [0.0], [0.0], [-0.5]]) + 0.5 * rng.standard_normal((40, 1))

    def model():
        scale = numpyro.sample("scale", numpyro.distributions.HalfCauchy(jnp.ones(4)))
        noise = numpyro.sample("noise", numpyro.distributions.Normal(jnp.zeros(4)))
        v = numpyro.deterministic("v", 0.3 * scale * noise)
        numpyro.sample("y", numpyro.distributions.Normal(jnp.asarray(x) @ v, 0.5), obs=jnp.asarray(y[:, 0]))

    run = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model, target_accept_prob=0.95), num_warmup=1000, num_samples=4000, progress_bar=False
    )
    run.run(jr.key(0))
    theirs = np.asarray(run.get_samples()["v"])
    layer = vb.Layer(1, posterior=PointMass(), prior=page["Horseshoe"](0.3))
    network = vb.build(vb.chain(4, 1), [layer], key=jr.key(0))
    ours = np.asarray(nuts(vb.log_density(network, FixedNoise(0.5), x, y), jr.key(1), 1500, 500))
    sd = theirs.std(axis=0)
    print(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / sd, ours.std(axis=0) / sd)
    # at least 400 independent draws of each: 4 · √(2/400) = 0.28 sd; an sd to a fifth, as tails are heavy
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 0.28 * sd).all()
    np.testing.assert_allclose(ours.std(axis=0), sd, rtol=0.2)
