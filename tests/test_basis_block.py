"""The default model is a network on its skeleton: block by block, row by row, effect by effect."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_terms import anywhere, fitted, table

import vertebra as vb
from vertebra.inference.draws import moments
from vertebra.terms.block import BasisBlock, network_of
from vertebra.terms.evidence import Basis
from vertebra.terms.functions import system_of
from vertebra.terms.sum_of_terms import SumOfTerms

RNG = np.random.default_rng(0)
WEIGHT = np.ones(300)
# name: values at fit, levels, whether rough
INPUTS = {
    "smooth": (RNG.random(300), 0, False),
    "with tails": (RNG.standard_t(2, 300), 0, False),
    "with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.random(300)), 0, False),
    "rough": (RNG.random(300), 0, True),
    "rough with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.random(300)), 0, True),
    "levels": (RNG.integers(0, 5, 300).astype(float), 6, False),
    "levels with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.integers(0, 5, 300)), 6, False),
    "one level": (np.zeros(300), 1, False),
    "a constant": (np.ones(300), 0, False),
}


@pytest.mark.parametrize("name", INPUTS)
def test_functions_in_jax_are_those_in_numpy(name, x64):
    values, n_levels, rough = INPUTS[name]
    system = system_of(values, WEIGHT, n_levels, rough=rough)
    others = [system_of(v, WEIGHT, n, rough=r) for v, n, r in INPUTS.values()]
    beyond = [-1.0, 0.0, np.nan] if n_levels else [-9.0, 9.0, np.nan]
    x = np.concatenate([values, beyond])
    index = np.arange(len(system.kind))[:, None]
    wanted = system(x).T
    for like in ((), others):
        block = BasisBlock([system], index, like=like)
        # sums of 13 polynomials, whose coefficients are within some thousands
        np.testing.assert_allclose(block(jnp.asarray(x[None])), wanted, atol=1e-11 * np.abs(wanted).max())
        np.testing.assert_array_equal(block(jnp.asarray(x[:1])), block(jnp.asarray(x[None, :1]))[:, 0])


def test_products_belong_to_terms_and_scales_are_prior_sds(x64):
    x, weight = table()
    systems = [system_of(column, weight, n) for column, n in zip(x.T, (0, 0, 4), strict=False)]
    index = np.array([[0, 0, 0], [1, 0, 0], [2, 3, 1]])
    phi = np.asarray(BasisBlock(systems, index, np.array([1.0, 2.0, 0.5]))(jnp.asarray(x[:, :3].T)))
    each = [system(column) for system, column in zip(systems, x.T, strict=False)]
    np.testing.assert_allclose(phi[0], 1.0, rtol=1e-14)
    np.testing.assert_allclose(phi[1], 2.0 * each[0][:, 1], rtol=1e-12)
    np.testing.assert_allclose(phi[2], 0.5 * each[0][:, 2] * each[1][:, 3] * each[2][:, 1], atol=1e-12)


def test_a_block_of_other_inputs_is_refused():
    block = BasisBlock([system_of(table()[0][:, 0], table()[1])], np.array([[1]]))
    with pytest.raises(ValueError, match="`systems` must be those of 2 inputs, got 1"):
        vb.build(vb.chain(2, 1), [vb.Layer(1, [block])], key=jr.key(0))


def test_a_block_can_be_trained_on(x64):
    x, _ = table()
    block = BasisBlock([system_of(x[:, 0], np.ones(len(x)))], np.arange(1, 4)[:, None])
    network = vb.build(vb.chain(1, 1), [vb.Layer(1, [block], bias=True)], key=jr.key(0))
    y = block(jnp.asarray(x[:, :1].T))[1]
    found = vb.fit(network, vb.Gaussian(), x[:, :1], np.asarray(y), key=jr.key(0), n_steps=10).network
    # the last layer is fitted in closed form: y is one of the functions, and the prior of its weight is N(0, 1)
    np.testing.assert_allclose(moments(found, x[:, :1], key=jr.key(0))[0][:, 0], y, atol=1e-2)


def test_a_sum_of_terms_and_its_network_predict_the_same(x64):
    f, x = fitted(), anywhere(40)
    network = network_of(f)
    assert network.is_linear_in_v
    assert network.skeleton.clusters == ((0, 3), (0, 1, 2))
    mean, variance = f.moments(x)
    columns = jnp.asarray(x.T)
    # two orders of the same sums over some hundred products
    scale = np.abs(mean).max()
    np.testing.assert_allclose(network.mean(columns).T, mean, atol=1e-11 * scale)
    own = jax.jit(lambda columns: network.stacks[-1].conditional(columns[:, None]))(columns)
    np.testing.assert_allclose(own[1][0].T, variance, rtol=1e-9)
    # where nothing is missing, by the public road too
    finite = np.isfinite(x).all(axis=1)
    again = vb.moments(network, x[finite], key=jr.key(0))
    np.testing.assert_allclose(again[0], mean[finite], atol=1e-11 * scale)
    np.testing.assert_allclose(again[1], variance[finite], rtol=1e-9)


def test_a_sum_of_no_terms_is_a_network_of_a_constant(x64):
    f = fitted()
    constant = SumOfTerms(Basis(f.basis.systems, ()), (np.array([2.0]),), (np.array([[3.0, 4.0]]),))
    mean, variance = vb.moments(network_of(constant), np.zeros((2, 4)), key=jr.key(0))
    np.testing.assert_allclose(mean, 2.0)
    np.testing.assert_allclose(variance, 25.0)
