"""Networks that their users built, with a likelihood, as a file and back: numbers, names of classes, and no code.

What a skeleton tells, wiring and padding, is not read but worked out again. Classes are those that are shipped and
those that the caller names; their fields are set, and nothing of theirs is run before shapes are known to fit.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra import likelihoods
from vertebra.files.networks import LARGEST_WEIGHT, MOST_LAYERS
from vertebra.likelihoods import Likelihood
from vertebra.machine import claims, file
from vertebra.machine.claims import Arrays
from vertebra.machine.file import BadFile, Record
from vertebra.networks import covariances, embeddings, kernels, posteriors, priors
from vertebra.networks.blocks import FeatureBlock, FunctionBlock, InducingPointBlock, RandomFeatureBlock
from vertebra.networks.divergence import check_pair
from vertebra.networks.layout import carriers, handed_on, layout, ties_among
from vertebra.networks.mixed import Mixed
from vertebra.networks.network import Network
from vertebra.networks.parameters import Fixed, in_working_precision
from vertebra.networks.posteriors import Posterior
from vertebra.networks.priors import Prior
from vertebra.networks.skeleton import Skeleton
from vertebra.networks.stack import Stack

KIND = "Network"
_PARTS = ("features", "posterior", "prior", "bias", "mean", "log_noise", "joint")


def _named(home: str, module: object, names: Sequence[str]) -> dict[str, type]:
    return {f"{home}.{name}": getattr(module, name) for name in names}


# What a file may name without being told, by the public names.
SHIPPED: dict[str, type] = {
    "vb.Fixed": Fixed,
    "vb.RandomFeatureBlock": RandomFeatureBlock,
    "vb.InducingPointBlock": InducingPointBlock,
    **_named("vb", embeddings, ("ByKind", "LevelsBlock", "PeriodicBlock", "PiecewiseLinearBlock", "RobustScaling")),
    **_named("vb.distributions", posteriors, ("Gaussian", "PointMass", "Dropout", "Members")),
    **_named("vb.distributions", covariances, ("Full", "Diagonal", "LowRank")),
    **_named("vb.distributions", priors, ("Normal", "Laplace", "GroupLasso")),
    **_named("vb.kernels", kernels, ("RBF", "Matern", "Periodic", "Linear", "Polynomial", "Dual", "Sum", "Product")),
    **_named("vb.likelihoods", likelihoods, [n for n in likelihoods.__all__ if n[0].isupper() and n != "Likelihood"]),
}
_NAMES = {kind: name for name, kind in SHIPPED.items()}


def save(network: Network, likelihood: Likelihood, path: str | os.PathLike[str]) -> None:
    """Writes a network and its likelihood into one file, which `vb.load` gives back; also after a closed form.

    Parts of your own are kept by the names of their classes: hand these to `vb.load`.

    >>> network = vb.build(vb.chain(2, 2), vb.mean_field([4, 1]), key=jr.key(0))
    >>> vb.save(network, vb.Gaussian(0.1), "network.vertebra")
    >>> again, likelihood = vb.load("network.vertebra")
    >>> np.array_equal(again.mean(jnp.ones((2, 3))), network.mean(jnp.ones((2, 3))))
    True
    """
    check_network(network)
    writer = _Writer()
    layers = []
    for level, stack in zip(network.skeleton.layers, network.stacks, strict=True):
        if isinstance(stack, Stack):
            layers.append(_record(stack, writer))
        else:
            names = [[level[i].name for i in nodes] for nodes in stack.places]
            parts = [_record(part, writer) for part in stack.parts]
            layers.append({"mixed": [{"nodes": own, **part} for own, part in zip(names, parts, strict=True)]})
    header: Record = {"skeleton": str(network.skeleton), "layers": layers, "likelihood": writer.state(likelihood)}
    file.write(path, KIND, header, writer.arrays)


def check_network(network: object) -> None:
    """Refuses what is not one network."""
    if not isinstance(network, Network):
        raise TypeError(
            f"`network` must be one network, as vb.build or vb.fit gives it, got {type(network).__name__}: save the "
            "networks of an ensemble one by one, and estimators by `model.save(path)`."
        )


def _record(stack: Stack, writer: "_Writer") -> Record:
    block = stack.function
    values = stack.features, block.posterior, block.prior, block.bias, stack.mean, stack.log_noise, stack.joint
    return {name: writer.state(value) for name, value in zip(_PARTS, values, strict=True)}


class _Writer:
    """Modules as JSON, their arrays apart."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self._own: dict[str, type] = {}

    def state(self, value: object) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple | list):
            return {type(value).__name__: [self.state(each) for each in value]}
        if isinstance(value, jax.Array | np.ndarray) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            name = str(len(self.arrays))
            self.arrays[name] = np.asarray(value)
            return {"array": name}
        if not isinstance(value, eqx.Module):
            raise TypeError(
                f"A file holds modules, arrays, numbers, text, lists and tuples, got {type(value).__name__}, "
                f"{repr(value)[:100]}: give functions by their names, activations such as 'tanh'."
            )
        fields = dataclasses.fields(value)
        return {
            "class": self._name(type(value)),
            "fields": {field.name: self.state(getattr(value, field.name)) for field in fields},
        }

    def _name(self, kind: type) -> str:
        if kind in _NAMES:
            return _NAMES[kind]
        if self._own.setdefault(kind.__name__, kind) is not kind:
            raise ValueError(f"Two classes of your own are called {kind.__name__!r}: rename one of them.")
        return kind.__name__


def load(path: str | os.PathLike[str], classes: Collection[type] = ()) -> tuple[Network, Likelihood]:
    """The network and the likelihood that `save` wrote; `classes` are those of your own that it may name."""
    _, header, arrays = file.read(path, [KIND])
    known = SHIPPED | {kind.__name__: kind for kind in classes}
    try:
        return _restored(header, Arrays(arrays), known)
    except Exception as error:  # whatever a file makes shipped code stumble over, it is the file that is odd
        raise BadFile(f"{os.fspath(path)}: {str(error)[:500]}") from error


def _restored(header: Record, arrays: Arrays, known: Mapping[str, type]) -> tuple[Network, Likelihood]:
    header = claims.record(header, "the network", ("skeleton", "layers", "likelihood"))
    skeleton = Skeleton.from_text(claims.text(header["skeleton"], "the skeleton"))
    claims.demand(skeleton.depth <= MOST_LAYERS, "the skeleton", f"of at most {MOST_LAYERS} layers", skeleton.depth)
    records = claims.listed(header["layers"], "the layers", skeleton.depth)
    stacks, widths = [], [1] * skeleton.n_inputs
    for level, record in enumerate(records):
        stack, widths = _layer(skeleton, level, widths, record, lambda part: _value(part, arrays, known))
        stacks.append(stack)
    likelihood = _value(header["likelihood"], arrays, known)
    claims.demand(isinstance(likelihood, Likelihood), "the likelihood", "a likelihood", type(likelihood).__name__)
    arrays.check_all_taken()
    network = Network(skeleton, tuple(stacks))
    _check(network)
    _check_likelihood(likelihood, network.n_outputs)
    return network, likelihood


def _value(value: object, arrays: Arrays, known: Mapping[str, type]) -> Any:
    """What `_Writer.state` wrote, its classes among those that are known."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict):
        raise claims.unfit("a value", "an object", value)
    if value.keys() == {"float"}:
        return float(claims.one_of(value["float"], "a number", ("inf", "-inf", "nan")))
    if value.keys() == {"array"}:
        array = arrays.any(claims.text(value["array"], "an array"), LARGEST_WEIGHT)
        return jnp.asarray(array)
    for kind in (tuple, list):
        if value.keys() == {kind.__name__}:
            return kind(_value(each, arrays, known) for each in claims.listed(value[kind.__name__], "a list"))
    value = claims.record(value, "a module", ("class", "fields"))
    name = claims.text(value["class"], "the name of a class")
    if name not in known:
        own = "" if name.startswith("vb.") else f": hand your own to `vb.load`, classes=[{name[:100]}]"
        raise ValueError(f"the class {name[:100]!r} is not known{own}")
    kind = known[name]
    fields = claims.record(value["fields"], f"the fields of {name}", [field.name for field in dataclasses.fields(kind)])
    module = object.__new__(kind)
    for field, state in fields.items():
        object.__setattr__(module, field, _value(state, arrays, known))
    return module


def _layer(
    skeleton: Skeleton, level: int, below: list[int], record: object, value: Callable[[object], Any]
) -> tuple[Stack | Mixed, list[int]]:
    """One layer, its wiring and its padding worked out from the skeleton; and the widths of its nodes."""
    what, own = f"layer {level + 1}", carriers(skeleton, level)
    claims.demand(own, what, "one with nodes that carry blocks", "none")
    is_mixed = isinstance(record, dict) and record.keys() == {"mixed"}
    if isinstance(record, dict) and is_mixed:
        records = [claims.record(part, what, ("nodes", *_PARTS)) for part in claims.listed(record["mixed"], what)]
        places = [
            tuple(own[claims.one_of(name, what, own)] for name in claims.listed(each["nodes"], what))
            for each in records
        ]
        is_shared_out = all(places) and sorted(i for nodes in places for i in nodes) == list(own.values())
        claims.demand(is_shared_out, f"the nodes of {what}", "each in one part", places)
        claims.demand(len(places) > 1, f"the parts of {what}", "two or more", len(places))
    else:
        records, places = [claims.record(record, what, _PARTS)], [tuple(own.values())]
    parts = [
        _stack(skeleton, level, below, nodes, {name: value(each[name]) for name in _PARTS})
        for nodes, each in zip(places, records, strict=True)
    ]
    homes = {i: part for part, nodes in zip(parts, places, strict=True) for i in nodes}
    copies, widths = handed_on(skeleton, level, below, {i: part.width for i, part in homes.items()})
    if not is_mixed:
        return dataclasses.replace(parts[0], copies=copies), widths
    claims.demand(not any(part.joint for part in parts), f"joint of {what}", "false in parts", True)
    blocks = skeleton.ties[level] or range(len(own))
    kinds = [{blocks[list(own.values()).index(i)] for i in nodes} for nodes in places]
    claims.demand(sum(map(len, kinds)) == len(set(blocks)), f"the ties of {what}", "within its parts", places)
    is_top = level + 1 == skeleton.depth
    claims.demand(not is_top or len(set(widths)) == 1, f"the widths of {what}", "one", widths)
    return Mixed(tuple(parts), tuple(places), max(widths), copies), widths


def _stack(
    skeleton: Skeleton, level: int, below: list[int], nodes: tuple[int, ...], values: Mapping[str, Any]
) -> Stack:
    """Some nodes of a layer, their wiring and padding worked out from the skeleton."""
    features, q, p, joint = values["features"], values["posterior"], values["prior"], values["joint"]
    what = f"layer {level + 1}"
    claims.demand(isinstance(joint, bool), f"joint of {what}", "true or false", joint)
    claims.demand(isinstance(features, tuple), f"the features of {what}", "blocks", features)
    claims.demand(all(isinstance(b, FeatureBlock) for b in features), f"the features of {what}", "blocks", features)
    if not isinstance(q, Posterior) or not isinstance(p, Prior):
        raise claims.unfit(f"the weights of {what}", "under a posterior and a prior", (type(q), type(p)))
    check_pair(q, p)
    n_blocks, d, r = jax.eval_shape(jax.vmap(lambda q: q.mean), q).shape
    n_nodes, ties = len(nodes), ties_among(skeleton, level, nodes)
    claims.demand(ties is None or not joint, f"joint of {what}", "false with tied nodes", joint)
    n_own = n_nodes if ties is None else max(ties) + 1
    wanted = len(skeleton.outputs) if joint else n_own
    is_top = level + 1 == skeleton.depth and skeleton.adds_runs
    claims.demand(is_top or not joint, f"joint of {what}", "that of the top alone", joint)
    claims.demand(n_blocks == wanted, f"the blocks of {what}", f"{wanted}", n_blocks)
    wiring, activations = layout(skeleton, level, below, nodes)
    live = None if features else wiring.live_values(max(below))
    if live is not None and ties is not None:
        live = live[[ties.index(b) for b in range(n_own)]]
    claims.demand(live is None or live.shape == (n_blocks, r), f"the weights of {what}", "on what its nodes read", r)
    function = object.__new__(FunctionBlock)
    fixed = None if live is None else Fixed(in_working_precision(live))
    for name, value in dict(posterior=q, prior=p, bias=values["bias"], live=fixed).items():
        object.__setattr__(function, name, value)
    for name, shape in (("bias", (n_blocks, d)), ("log_noise", (n_own, d))):
        claims.demand(values[name] is None or values[name].shape == shape, f"{name} of {what}", f"{shape}", name)
    mean, log_noise = values["mean"], values["log_noise"]
    return Stack(wiring, activations, features, function, mean, log_noise, n_nodes, joint, ties=ties)


def _check(network: Network) -> None:
    """Shapes first, by a trace that makes no array; then f at one row, which must be finite."""
    p, n_outputs = network.skeleton.n_inputs, network.n_outputs
    x, key = jax.ShapeDtypeStruct((p, 2), jnp.result_type(float)), jr.key(0)

    def everything(x):
        mean, _ = network.conditional(x, network.noise(key, (2,)))
        return network(x, key=key), mean, network.kl(key=key)

    f, mean, kl = (each.shape for each in jax.eval_shape(everything, x))
    claims.demand(f == mean == (n_outputs, 2) and kl == (), "f of two rows", f"of the shape {(n_outputs, 2)}", f)
    value = np.asarray(eqx.filter_jit(lambda network, x: network.mean(x))(network, jnp.zeros(p)))
    claims.demand(np.isfinite(value).all(), "f at 0", "finite", value)


def _check_likelihood(likelihood: Likelihood, n_latent: int) -> None:
    """log p(y | f) has the shape of y; of a likelihood that `fit` is yet to start, nothing is known."""
    if any(getattr(likelihood, field.name) is None for field in dataclasses.fields(likelihood)):
        return
    fitting = [k for k in range(1, n_latent + 1) if likelihood.n_latent(k) == n_latent]
    claims.demand(fitting, "the likelihood", f"one of {n_latent} latent functions", type(likelihood).__name__)
    f, y = (jax.ShapeDtypeStruct((2, n), jnp.result_type(float)) for n in (n_latent, fitting[0]))
    shape = jax.eval_shape(likelihood.log_prob, f, y).shape
    claims.demand(shape == y.shape, "log p(y | f) of two rows", f"of the shape {y.shape}", shape)
