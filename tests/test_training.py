"""Training under one's own hand: what is compiled, scored and weighted, own schedules and optimisers, every step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import vertebra as vb
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.inference.rows import Scored
from vertebra.inference.training import ELBO_DRAWS, Plan, score_of

X = np.random.default_rng(0).standard_normal((60, 2))
Y = np.tanh(X[:, :1]) + 0.1 * np.random.default_rng(1).standard_normal((60, 1))


@pytest.fixture
def compiled():
    """What is compiled during a test, event by event."""
    events = []
    listen = lambda event, *_, **__: events.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_the_elbo_is_compiled_once(compiled):
    network, other = (vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=jr.key(seed)) for seed in (0, 1))
    keys, rows = [jr.key(seed) for seed in (1, 2)], X + 1.0
    vb.elbo(network, vb.Gaussian(1.0), X, Y, key=jr.key(0))
    del compiled[:]
    first = float(vb.elbo(network, vb.Gaussian(1.0), X, Y, key=keys[0]))
    assert float(vb.elbo(network, vb.Gaussian(1.0), X, Y, key=keys[1])) != first
    assert float(vb.elbo(other, vb.Gaussian(0.5), rows, Y, key=keys[0], n=10**4)) != first
    assert compiled == []
    vb.elbo(network, vb.Gaussian(1.0), X[:7], Y[:7], key=keys[0])  # another shape: the listener hears compilations
    assert compiled


def test_a_top_without_moments_is_scored_from_several_draws(key):
    """One draw of the coins is a noisy score: a top that is drawn has as many as layers below it."""
    network = vb.build(vb.chain(2, 1), [vb.Layer(1, posterior=vb.Dropout(0.5), prior=vb.Normal())], key=key)
    rows, likelihood = jnp.asarray(X, jnp.float32), vb.Gaussian(0.1)
    ones, n = jnp.ones((1, 60, 1)), jnp.asarray(60)
    scored = Scored(rows[None], jnp.asarray(Y, jnp.float32)[None], ones, n, n.astype(float))
    plan = Plan(*[None] * len(Plan._fields))._replace(validates=False, n_steps=jnp.asarray(1))
    ours = score_of(plan, (network, likelihood), scored, key, jnp.asarray(0))
    noise = step_noise(network, 60, key=key, n_draws=ELBO_DRAWS)
    expected = minibatch_elbo(network, likelihood, rows.T, scored.y[0], ones[0], 1.0, noise)
    np.testing.assert_allclose(ours, expected / 60, rtol=1e-5)  # float32


class FixedNoise(vb.likelihoods.Likelihood):
    """N(f, sd²) of an sd that nobody trains."""

    sd: float = eqx.field(static=True)

    def log_prob(self, f, y):
        return jax.scipy.stats.norm.logpdf(y, f, self.sd)


def line(posterior):
    """f = v x under N(0, 4): all about its posterior is known."""
    return vb.build(vb.chain(2, 1), [vb.Layer(1, posterior=posterior, prior=vb.Normal(2.0))], key=jr.key(0))


@pytest.mark.parametrize("kl_weight", [4.0, lambda t: jnp.minimum(t / 500, 1.0) * 4.0], ids=["number", "function"])
def test_a_weighted_kl_has_the_posterior_of_a_tempered_likelihood(kl_weight):
    """E log p(y | V) − λ KL is at its best at q ∝ p(y | V)^{1/λ} p(V)."""
    options = dict(key=jr.key(1), n_steps=2000, batch_size=60, learning_rate=0.03)
    fitted = vb.fit(line(vb.distributions.Gaussian("full")), FixedNoise(0.5), X, Y, kl_weight=kl_weight, **options)
    precision = X.T @ X / 0.25 / 4.0 + np.eye(2) / 4.0
    q = jax.tree.map(lambda leaf: leaf[0], fitted.network.stacks[0].function.posterior)
    np.testing.assert_allclose(q.mean[0], np.linalg.solve(precision, X.T @ Y / 0.25 / 4.0)[:, 0], atol=0.01)
    root = np.asarray(q.covariance.square_root()[0])
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=0.1, atol=0.002)  # where Adam ends


def test_a_weighted_kl_has_no_closed_form():
    network = line(vb.distributions.Gaussian("full"))
    with pytest.raises(ValueError, match=r"`last_layer=True` needs .* and no `kl_weight`"):
        vb.fit(network, vb.Gaussian(), X, Y, key=jr.key(0), kl_weight=0.5, last_layer=True)
    with pytest.raises(ValueError, match="`kl_weight` must be a finite number of at least 0, or a function"):
        vb.fit(network, vb.Gaussian(), X, Y, key=jr.key(0), kl_weight=-1.0)
    assert vb.fit(network, vb.Gaussian(), X, Y, key=jr.key(0), kl_weight=0.5, n_steps=3).evidence is None


def test_a_step_under_ones_own_schedule_is_that_of_gradient_descent():
    """SGD at rates 0.1 and 0.05: V − rate · ∇ of the loss per row, twice."""
    network, likelihood = line(vb.PointMass()), FixedNoise(0.5)
    schedule = optax.piecewise_constant_schedule(0.1, {1: 0.5})
    options = dict(batch_size=60, n_steps=2, n_rounds=1, optimiser=optax.sgd(1.0), learning_rate=schedule)
    fitted = vb.fit(network, likelihood, X, Y, key=jr.key(1), **options)
    v = np.asarray(network.weights()[0][0], np.float64)
    for rate in (0.1, 0.05):
        gradient = ((v @ X.T - Y.T) @ X / 0.25 + v / 4.0) / 60
        v = v - rate * gradient
    np.testing.assert_allclose(fitted.network.weights()[0][0], v, rtol=1e-5)  # float32


@pytest.mark.parametrize("optimiser", [optax.lbfgs(), optax.chain(optax.sgd(1.0), optax.scale_by_zoom_linesearch(15))])
def test_an_optimiser_that_searches_along_a_line_ends_at_the_mode(optimiser):
    network = line(vb.PointMass())
    options = dict(batch_size=60, n_steps=25, n_rounds=5, learning_rate=optax.constant_schedule(1.0))
    fitted = vb.fit(network, FixedNoise(0.5), X, Y, key=jr.key(1), optimiser=optimiser, **options)
    ridge = np.linalg.solve(X.T @ X / 0.25 + np.eye(2) / 4.0, X.T @ Y / 0.25)
    np.testing.assert_allclose(fitted.network.weights()[0][0], ridge.T, atol=2e-4)  # steepest descent ends within


def test_restarts_search_along_lines_of_their_own():
    networks = [
        vb.build(vb.chain(2, 2), [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Normal()) for d in (3, 1)], key=key)
        for key in jr.split(jr.key(0), 2)
    ]
    options = dict(batch_size=60, n_steps=100, n_rounds=2, learning_rate=optax.constant_schedule(1.0))
    fitted = vb.fit(networks, FixedNoise(0.5), X, Y, key=jr.key(1), optimiser=optax.lbfgs(), **options)
    for network in fitted.networks:
        slope = jax.grad(density := vb.log_density(network, FixedNoise(0.5), X, Y))(density.start)
        assert float(jnp.linalg.norm(slope)) < 0.5  # it starts at some 100


def test_the_history_of_every_step_has_the_means_of_its_rounds():
    options = dict(key=jr.key(1), n_steps=50, n_rounds=5)
    network = line(vb.PointMass())
    plain, told = (vb.fit(network, vb.Gaussian(), X, Y, **options, every_step=each) for each in (False, True))
    assert plain.history.steps is None
    assert told.history.steps.shape == (50,)
    np.testing.assert_allclose(told.history.steps.reshape(5, 10).mean(axis=1), told.history.elbo, rtol=1e-5)
    np.testing.assert_array_equal(told.history.elbo, plain.history.elbo)
