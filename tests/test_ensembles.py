"""Ensembles and draws of a sampler taken apart: their effects are those of the members."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb

SKELETON = vb.additive(3, clusters=[(0, 1), (2,)], depth=2)


def members(n, posterior):
    layers = [vb.Layer(d, posterior=posterior, prior=vb.Normal(fan_in=True), bias=True) for d in (3, 1)]
    return [vb.build(SKELETON, layers, key=jr.key(i)) for i in range(n)]


def test_the_mean_effect_of_an_ensemble_is_the_mean_of_its_members_effects(rng):
    x, networks = rng.standard_normal((30, 3)), members(4, vb.PointMass())
    together = vb.decompose(networks, x, key=jr.key(0), n_draws=8)
    alone = [vb.decompose(network, x, key=jr.key(0), n_draws=2) for network in networks]
    assert sorted(together) == [(), (0,), (0, 1), (1,), (2,)]
    for term, effect in together.items():
        each = np.stack([one[term].mean for one in alone])
        np.testing.assert_allclose(effect.mean, each.mean(axis=0), atol=1e-5)  # float32
        np.testing.assert_allclose(effect.sd, each.std(axis=0, ddof=0) * (8 / 7) ** 0.5, rtol=0.08, atol=1e-5)


def test_effects_of_an_ensemble_add_up_to_its_mean_function(rng):
    x, networks = rng.standard_normal((20, 3)), members(3, vb.distributions.Gaussian("diagonal"))
    local = vb.attribute(networks, x[:5], x, key=jr.key(1), n_draws=600)
    total = sum(part.mean for part in local.values())
    # V of two layers are drawn, so that E f has Monte Carlo error on both sides: 0.2/√600 each, and 3 members
    expected, _ = vb.moments(networks, x[:5], key=jr.key(2), n_draws=600)
    np.testing.assert_allclose(total, expected[:, 0], atol=0.06)


def test_draws_of_a_sampler_are_taken_apart(rng):
    x = rng.standard_normal((20, 3))
    (network,) = members(1, vb.PointMass())
    density = vb.log_density(network, vb.Gaussian(0.5), x, x[:, :1])
    draws = density.networks(density.start[None] + 0.1 * jr.normal(jr.key(1), (10, len(density.start))))
    effects = vb.decompose(draws, x, key=jr.key(2), n_draws=10)
    alone = [vb.decompose(draw, x, key=jr.key(2), n_draws=2, terms=[(0, 1)])[0, 1].mean for draw in draws]
    np.testing.assert_allclose(effects[0, 1].mean, np.mean(alone, axis=0), atol=1e-5)
    assert effects[0, 1].sd.max() > 0.0


def test_what_cannot_be_taken_apart_is_refused():
    with pytest.raises(ValueError, match="`key` must be given with networks"):
        vb.decompose(members(2, vb.PointMass()), np.zeros((5, 3)))
    other = vb.build(vb.chain(3, 1), vb.mean_field([1]), key=jr.key(0))
    with pytest.raises(ValueError, match="built from one skeleton and one list of layers"):
        vb.decompose([*members(1, vb.PointMass()), other], jnp.zeros((5, 3)), key=jr.key(0))
