"""The default model is a network on its skeleton: block by block, row by row, effect by effect."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from test_terms import anywhere, fitted, table

import vertebra as vb
from vertebra.inference.draws import moments
from vertebra.terms.block import BasisBlock, network_of
from vertebra.terms.evidence import Basis
from vertebra.terms.functions import SEEN, system_of
from vertebra.terms.joint import Measure
from vertebra.terms.sum_of_terms import SumOfTerms

RNG = np.random.default_rng(0)
WEIGHT = np.ones(300)
# name: values at fit, levels
INPUTS = {
    "smooth": (RNG.random(300), 0),
    "with tails": (RNG.standard_t(2, 300), 0),
    "with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.random(300)), 0),
    "with a heap": (np.where(RNG.random(300) < 0.6, 0.0, RNG.random(300)), 0),
    "discrete": (np.array([-3.0, 0.0, 0.5, 4.0, 7.0])[RNG.integers(0, 5, 300)], 0),
    "discrete with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.integers(0, 5, 300)), 0),
    "two values": (RNG.integers(0, 2, 300).astype(float), 0),
    "levels": (RNG.integers(0, 5, 300).astype(float), 6),
    "levels with gaps": (np.where(RNG.random(300) < 0.2, np.nan, RNG.integers(0, 5, 300)), 6),
    "one level": (np.zeros(300), 1),
    "a constant": (np.ones(300), 0),
    "a constant with gaps": (np.where(RNG.random(300) < 0.2, np.nan, 1.0), 0),
}


@pytest.mark.parametrize("name", INPUTS)
def test_functions_in_jax_are_those_in_numpy(name, x64):
    values, n_levels = INPUTS[name]
    system = system_of(values, WEIGHT, n_levels)
    others = [system_of(v, WEIGHT, n) for v, n in INPUTS.values()]
    # what no row has: a level never seen; values beyond the range and, of a discrete number, between two
    beyond = [-1.0, 0.0, np.nan] if n_levels else [-9.0, 9.0, np.nan, -1e6, 1e6, *np.linspace(-1.0, 8.0, 37)]
    x = np.concatenate([values, beyond])
    if system.is_discrete:
        assert ((system(x)[:, -1] > 0) & (x > np.nanmin(values)) & (x < np.nanmax(values))).any()
    index = np.arange(len(system.kind))[:, None]
    wanted = system(x).T
    for like in ((), others):
        block = BasisBlock([system], index, like=like)
        # sums of 13 polynomials, whose coefficients are within some thousands, and lines between 40 functions' knots
        np.testing.assert_allclose(block(jnp.asarray(x[None])), wanted, atol=1e-11 * np.abs(wanted).max())
        np.testing.assert_array_equal(block(jnp.asarray(x[:1])), block(jnp.asarray(x[None, :1]))[:, 0])


@pytest.mark.parametrize("name", ["smooth", "with tails", "discrete with gaps", "levels with gaps"])
def test_functions_of_a_pruned_system_in_jax_are_those_in_numpy(name, x64):
    values, n_levels = INPUTS[name]
    system = system_of(values, WEIGHT, n_levels)
    x = np.concatenate([values, [-1.0, np.nan] if n_levels else [-9.0, 9.0, 0.3, np.nan]])
    wanted = system(x)
    for family in system.families:
        used = system.of(SEEN, family)[:5]
        part, place = system.only(used)
        found = BasisBlock([part], place[used][:, None])(jnp.asarray(x[None]))
        np.testing.assert_allclose(found, wanted[:, used].T, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["smooth", "with tails", "discrete"])
def test_functions_have_slopes_at_all_values(name, x64):
    values, _ = INPUTS[name]
    system = system_of(values, WEIGHT)
    block = BasisBlock([system], np.arange(len(system.kind))[:, None])
    ends = values.min(), values.max()
    # within lines, and beyond the range
    x = np.array([np.interp(0.4, [0.0, 1.0], system.knots[k : k + 2]) for k in (0, 2)] + [ends[0] - 0.7, ends[1] + 0.7])
    found = jax.jacrev(lambda x: block(x[None]))(jnp.asarray(x))
    slopes = np.stack([np.diag(each) for each in np.asarray(found)])
    step = 1e-6 * min(1.0, np.diff(system.knots)[[0, 2]].min())
    wanted = ((system(x + step) - system(x - step)) / (2.0 * step)).T
    # central differences of values of order ten, over steps of 1e-6 of a line
    np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    # at the values themselves, where √0 has none, they are finite
    assert np.isfinite(jax.grad(lambda x: block(x[None]).sum())(jnp.asarray(values))).all()


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


def messy(kind="smooth"):
    """Two numbers with curves, or with steps, and a category that one of them interacts with."""
    n = {"smooth": 90, "rough": 300}[kind]
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.random(n), "b": rng.random(n), "kind": rng.choice(["u", "v", "w"], n)})
    curve = {"smooth": lambda z: np.sin(4 * z), "rough": lambda z: np.floor(7 * z) % 2}[kind]
    y = curve(x["a"]) + curve(x["b"]) + (x["kind"] == "u") * x["a"] + 0.02 * rng.standard_normal(n)
    return x, y.to_numpy()


@pytest.fixture(scope="module")
def models():
    def of(kind):
        return vb.AdditiveRegressor(clusters=[("a", "kind"), ("b",)], random_state=0).fit(*messy(kind))

    return {kind: of(kind) for kind in ("smooth", "rough")}


@pytest.fixture
def model(models):
    return models["smooth"]


@pytest.mark.parametrize("kind", ["smooth", "rough"])
def test_the_default_model_and_its_network_have_the_same_predictions_and_effects(kind, models, x64):
    model, (x, _) = models[kind], messy(kind)
    network, coded = vb.as_network(model), model.model_.x(x)
    systems = model.model_.posterior.terms.basis.systems
    assert [any(family.is_local for family in system.families) for system in systems] == [kind == "rough"] * 2 + [False]
    assert systems[2].n_levels == 3
    assert network.skeleton.clusters == ((1,), (0, 2))
    mean, variance = model.model_.posterior.moments(coded)
    found = vb.moments(network, coded, key=jr.key(0))
    # the same sums of some hundred products in another order
    np.testing.assert_allclose(found[0], mean, atol=1e-11)
    np.testing.assert_allclose(found[1], variance, rtol=1e-8)
    # all values are nodes, so that means along axes are those of the fit
    ours = vb.decompose(model, x, nodes=len(x))
    theirs = vb.decompose(network, coded, key=jr.key(0), nodes=len(x))
    assert set(ours) == set(theirs) == {(), (0,), (1,), (2,), (0, 2)}
    for term, effect in ours.items():
        assert [len(axis.points) for axis in effect.axes] == [[len(x), len(x), 3][i] for i in term]
        np.testing.assert_allclose(effect.mean, theirs[term].mean, atol=1e-10)
        np.testing.assert_allclose(effect.sd, theirs[term].sd, rtol=1e-6, atol=1e-10)
        # 1000 draws of each: within five standard errors of the difference
        error = np.sqrt(2.0 / 1000) * effect.strengths.std()
        assert effect.strength == pytest.approx(theirs[term].strength, abs=5 * error)


def test_the_default_model_is_taken_apart_as_it_says_itself(model):
    x, _ = messy()
    unit = model.model_.target.unit(0)
    effects = vb.decompose(model, x, nodes=len(x))
    said = model.effects(measure="product").set_index("term")["strength"]
    names = {(0,): ("a",), (1,): ("b",), (2,): ("kind",), (0, 2): ("a", "kind")}
    for term, name in names.items():
        # the same draws, under the same marginals
        assert unit * effects[term].strength == pytest.approx(said[name], rel=1e-6)
    assert set(vb.sobol(effects)) == {0, 1, 2}
    assert set(vb.decompose(model, x, order=1)) == {(), (0,), (1,), (2,)}
    assert set(vb.decompose(model, x, terms=[(2, 0)], points=3)) == {(0, 2)}
    local = vb.attribute(model, x[:7], x)
    parts = model.eval_terms(x[:7], measure="product")
    for term, name in names.items():
        np.testing.assert_allclose(unit * local[term].mean, parts[name], atol=1e-12)
    sd = model.model_.posterior.local(model.model_.x(x[:7]), 0, None, Measure.PRODUCT, with_sd=True)
    np.testing.assert_allclose(local[0, 2].sd, sd[0, 2].sd, rtol=1e-9)


def test_from_a_baseline_the_default_model_is_taken_apart_as_its_network(model, x64):
    x, _ = messy()
    row, coded = x.iloc[:1], model.model_.x(x)
    ours = vb.attribute(model, x[:5], x, baseline=row.to_numpy()[0])
    theirs = vb.attribute(vb.as_network(model), coded[:5], coded, baseline=coded[0], key=jr.key(0))
    parts = model.eval_terms(x[:5], baseline=row)
    for term in ours:
        np.testing.assert_allclose(ours[term].mean, theirs[term].mean, atol=1e-10)
        np.testing.assert_allclose(ours[term].sd, theirs[term].sd, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.model_.target.unit(0) * ours[0, 2].mean, parts["a", "kind"], atol=1e-10)


def test_gaps_and_levels_are_nodes_of_their_own():
    x, y = messy()
    x.loc[:20, "a"] = np.nan
    model = vb.AdditiveRegressor(clusters=[("a",), ("kind",)], random_state=0).fit(x, y)
    effects = vb.decompose(model, x, nodes=2)
    assert np.isnan(effects[0,].axes[0].points).tolist() == [False, False, True]
    assert effects[0,].axes[0].norm[-1] == pytest.approx(21 / 90)
    assert effects[2,].axes[0].points.tolist() == [0.0, 1.0, 2.0]
    # a Gauss rule of 90 nodes is all values
    whole = vb.decompose(model, x, nodes=90)[0,]
    assert whole.weight @ whole.mean == pytest.approx(0.0, abs=1e-10)


def test_what_cannot_be_taken_apart_is_refused():
    x, y = messy()
    network = vb.build(vb.additive(2, clusters=[(0, 1)], depth=1), vb.random_features([1]), key=jr.key(0))
    with pytest.raises(ValueError, match="`key` must be given with a network"):
        vb.decompose(network, np.zeros((3, 2)))
    ensemble = vb.SkeletonRegressor(scheme="deep_ensemble", n_steps=2, widths=[2]).fit(x, y)
    with pytest.raises(ValueError, match="`network` must be a network, several of one shape, or a fitted estimator"):
        vb.decompose(ensemble, x)
    with pytest.raises(ValueError, match="networks that are averaged"):
        vb.as_network(ensemble)
