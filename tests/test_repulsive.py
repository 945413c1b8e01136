"""A family from a paper, as a user's script of public names: repulsive ensembles (D'Angelo and Fortuin 2021)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import vertebra as vb


class AndOne(eqx.Module):
    """φ = (x, 1): the weight on the last is a bias with the prior of all others."""

    r: int = eqx.field(static=True, default=0)
    residual = None

    def init(self, n_inputs, *, rng):
        return AndOne(n_inputs + 1)

    def __call__(self, x):
        return jnp.concatenate([x, jnp.ones((1, *x.shape[1:]))])


def repulsive(density, key, x, k=10, n_steps=3000, rate=1e-2, spread=1.0, apart=1.0):
    """k networks that follow ∇ log p(v_m | y) − ∇ log Σ_j k(f_m, f_j), f at rows x: functions that keep apart.

    Where functions are Gaussian this flow ends at the posterior; the width of the kernel is the paper's median rule.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, n_steps))
    columns = jnp.asarray(x.T, density.start.dtype)
    of = jax.vmap(lambda v: density.unflatten(v).mean(columns).ravel())

    def step(carry, _):
        v, state = carry
        others = jax.lax.stop_gradient(of(v))
        width = jnp.median(jnp.sum((others[:, None] - others[None]) ** 2, axis=-1)) / jnp.log(k)

        def gain(v):
            squares = jnp.sum((of(v)[:, None] - others[None]) ** 2, axis=-1)
            crowd = jax.nn.logsumexp(-squares / width, axis=1)
            return jnp.sum(jax.vmap(density)(v) - apart * crowd)

        moves, state = optimiser.update(-jax.grad(gain)(v), state)
        return (v + moves, state), None

    v = density.start[None] + spread * jr.normal(key, (k, len(density.start)))
    (v, _), _ = jax.lax.scan(step, (v, optimiser.init(v)), length=n_steps)
    return density.networks(v)


@pytest.fixture(scope="module")
def problem():
    """Rows on both sides of a gap."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2.0, -0.7, (30, 1)), rng.uniform(0.7, 2.0, (30, 1))])
    y = 1.0 + np.sin(2.0 * x) + 0.1 * rng.standard_normal(x.shape)
    layers = [vb.Layer(d, [AndOne()], posterior=vb.PointMass(), prior=vb.Normal()) for d in (20, 1)]
    network = vb.build(vb.chain(1, 2), layers, key=jr.key(0))
    return vb.log_density(network, vb.Gaussian(0.1), x, y), x, y


def test_functions_keep_apart_where_there_are_no_rows(problem):
    density, x, y = problem
    gap = np.linspace(-0.4, 0.4, 9)[:, None]
    at = np.concatenate([x, gap, [[-3.0], [3.0]]])
    sds = []
    for apart in (0.0, 1.0):
        networks = repulsive(density, jr.key(1), at, apart=apart)
        mean, variance = vb.moments(networks, x, key=jr.key(2))
        assert np.sqrt(np.mean((mean - y) ** 2)) < 0.13  # noise of 0.1
        sds.append(np.sqrt(np.mean(vb.moments(networks, gap, key=jr.key(2))[1])))
        assert np.sqrt(np.mean(variance)) < 0.1
        print(apart, sds[-1], np.sqrt(np.mean(variance)))
    assert sds[1] > 1.1 * sds[0]


def test_its_networks_are_taken_apart_and_scored(problem):
    density, x, y = problem
    networks = repulsive(density, jr.key(1), x, k=4, n_steps=300)
    assert set(vb.decompose(networks, x[:20], key=jr.key(3), n_draws=4)) == {(), (0,)}
    draws = np.moveaxis(np.asarray(vb.sample(networks, x, key=jr.key(4))), 0, 1)
    assert vb.metrics.crps(y, draws) < 0.2  # y has an sd of 0.8
