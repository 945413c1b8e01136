"""Networks that their users built, as files: the same function again, and nothing odd let in."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import vertebra as vb
from vertebra.files.built import KIND, check_network
from vertebra.machine import file as storage

X = np.random.default_rng(0).standard_normal((30, 3))
SKIP = vb.Skeleton.from_text("""inputs x0 x1 x2
layer h = tanh(x0 x1); c = copy(x0); k = sin(x2)
layer a = tanh(h c); b = identity(k)
output f = a + b""")
UNEVEN = vb.additive(3, clusters=[(0, 1), (2,)], depth=2)
NETWORKS = {
    "mean field": lambda: vb.build(UNEVEN, vb.mean_field([3, 1]), key=jr.key(0)),
    "skip": lambda: vb.build(SKIP, vb.mean_field([3, 1]), key=jr.key(0)),
    "dropout": lambda: vb.build(vb.chain(3, 2), vb.mc_dropout([3, 1]), key=jr.key(0)),
    "random features": lambda: vb.build(UNEVEN, vb.random_features([2, 1], r=6, kernel=vb.RBF()), key=jr.key(0)),
    "inducing points": lambda: vb.build(vb.chain(3, 2), vb.inducing_points([2, 1], r=4), key=jr.key(0), x=X),
    "low rank": lambda: vb.build(
        vb.chain(3, 1),
        [vb.Layer(1, [vb.RandomFeatureBlock(6)], vb.distributions.Gaussian("low_rank"), noise=0.1)],
        key=jr.key(0),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_comes_back_to_the_bit(name, tmp_path, key):
    network, path = NETWORKS[name](), tmp_path / "network.vertebra"
    vb.save(network, vb.StudentT(0.3), path)
    again, likelihood = vb.load(path)
    assert jax.tree.structure(again) == jax.tree.structure(network)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(network), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert type(likelihood) is vb.StudentT
    np.testing.assert_array_equal(vb.sample(again, X, key=key, n_draws=3), vb.sample(network, X, key=key, n_draws=3))


def test_a_fitted_network_comes_back_after_its_closed_form(tmp_path, key):
    layers = [vb.Layer(1, [vb.RandomFeatureBlock(6)], vb.distributions.Gaussian("full"))]
    network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), layers, key=key)
    fitted = vb.fit(network, vb.Gaussian(), X, X[:, :1], key=key, n_steps=5)
    assert fitted.network.stacks[-1].joint
    vb.save(fitted.network, fitted.likelihood, tmp_path / "network.vertebra")
    again, likelihood = vb.load(tmp_path / "network.vertebra")
    for ours, theirs in zip(vb.moments(again, X, key=key), vb.moments(fitted.network, X, key=key), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(likelihood.log_scale, fitted.likelihood.log_scale)


class OwnPrior(vb.distributions.Prior):
    log_scale: jax.Array
    power: int = eqx.field(static=True)

    def log_prob(self, v):
        return -jnp.sum(jnp.abs(v * jnp.exp(-self.log_scale)) ** self.power)

    def sample(self, key, d, r):
        return jr.normal(key, (d, r))


def test_classes_of_ones_own_are_handed_over(tmp_path, key):
    path = tmp_path / "network.vertebra"
    network = vb.build(vb.chain(3, 1), [vb.Layer(1, prior=OwnPrior(jnp.zeros(()), 4))], key=key)
    vb.save(network, vb.Gaussian(0.3), path)
    with pytest.raises(vb.BadFile, match=r"the class 'OwnPrior' is not known: hand your own to `vb.load`, classes="):
        vb.load(path)
    again, _ = vb.load(path, classes=[OwnPrior])
    assert again.stacks[0].function.prior.power == 4
    np.testing.assert_array_equal(again.kl(key=key), network.kl(key=key))
    other = vb.build(vb.chain(3, 1), [vb.Layer(1, [vb.RandomFeatureBlock(3, jnp.tanh)])], key=key)
    with pytest.raises(TypeError, match="give functions by their names"):
        vb.save(other, vb.Gaussian(), path)


def changed(header, *place, to):
    """The header with another value at a place."""
    header = json.loads(json.dumps(header))
    at = header
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = to
    return header


POSTERIOR = ("layers", 0, "posterior")
HOSTILE = {
    "another class": ((*POSTERIOR, "class"), "os.system", "the class 'os.system' is not known"),
    "a class of another role": ((*POSTERIOR, "class"), "vb.distributions.Normal", "the fields of vb.distributions"),
    "a prior as posterior": (
        POSTERIOR,
        {"class": "vb.Fixed", "fields": {"value": {"array": "0"}}},
        "under a posterior",
    ),
    "another field": ((*POSTERIOR, "fields", "__class__"), 1, "holds the unknown __class__"),
    "text for an array": ((*POSTERIOR, "fields", "mean"), "text", ""),
    "no likelihood": (("likelihood",), None, "the likelihood must be a likelihood"),
    "a likelihood of text": (("likelihood",), "vb.Gaussian", "the likelihood must be a likelihood"),
    "another skeleton": (("skeleton",), "inputs x0\nlayer h = tanh(x0)\nlayer f = tanh(h)", ""),
    "a huge skeleton": (("skeleton",), "inputs x0\n" + "layer a = tanh(x0)\n", "the layers must be a list of 1"),
    "an activation": (("skeleton",), str(UNEVEN).replace("tanh", "system"), ""),
    "joint below": (("layers", 0, "joint"), True, "joint of layer 1 must be that of the top alone"),
    "features of text": (("layers", 0, "features"), "text", "the features of layer 1 must be blocks"),
    "a bias": (("layers", 0, "bias"), 1, ""),
    "a mean": (("layers", 0, "mean"), "text", ""),
    "an array twice": ((*POSTERIOR, "fields", "mean"), {"array": "0"}, ""),
    "an array that is not there": ((*POSTERIOR, "fields", "mean"), {"array": "99"}, "there is no array '99'"),
    "an odd number": ((*POSTERIOR, "fields", "sd"), {"float": "1e400"}, "a number must be one of inf, -inf, nan"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "network.vertebra"
    vb.save(NETWORKS["mean field"](), vb.Gaussian(0.3), path)
    return storage.read(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_nobody_saved_is_refused(name, saved, tmp_path):
    kind, header, arrays = saved
    assert kind == KIND
    place, to, words = HOSTILE[name]
    path = tmp_path / "network.vertebra"
    storage.write(path, kind, changed(header, *place, to=to), arrays)
    with pytest.raises(vb.BadFile, match=words or "network.vertebra") as caught:
        vb.load(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_numbers_that_are_none_are_refused(number, saved, tmp_path):
    kind, header, arrays = saved
    arrays = {name: np.full_like(a, number) if a.dtype.kind == "f" else a for name, a in arrays.items()}
    storage.write(tmp_path / "network.vertebra", kind, header, arrays)
    with pytest.raises(vb.BadFile, match="must hold finite numbers"):
        vb.load(tmp_path / "network.vertebra")


def test_arrays_of_another_size_are_refused(saved, tmp_path):
    kind, header, arrays = saved
    for name, array in arrays.items():
        storage.write(tmp_path / "n.vertebra", kind, header, arrays | {name: np.zeros((*array.shape, 2), array.dtype)})
        with pytest.raises(vb.BadFile):
            vb.load(tmp_path / "n.vertebra")
    storage.write(tmp_path / "n.vertebra", kind, header, arrays | {"more": np.zeros(3)})
    with pytest.raises(vb.BadFile, match="the array 'more' belongs to nothing"):
        vb.load(tmp_path / "n.vertebra")


def test_an_ensemble_is_refused_with_what_to_do():
    network = vb.build(vb.chain(2, 1), vb.mean_field([1]), key=jr.key(0))
    with pytest.raises(TypeError, match=r"`network` must be one network, .* got tuple: save the networks of an"):
        check_network((network, network))
