"""Networks as JSON and arrays, and back: built again, for the numbers of a file to take the place of their own."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra.effects.ensemble import EnsemblePosterior
from vertebra.effects.network_posterior import NetworkPosterior
from vertebra.effects.posterior import Posterior
from vertebra.effects.scale_law import N_SLOPES, ScaleLaw
from vertebra.inference.conjugate import n_joint_features, with_blank_top
from vertebra.machine import claims
from vertebra.machine.claims import Arrays
from vertebra.machine.file import Record
from vertebra.models.networks import SCHEMES
from vertebra.networks import schemes
from vertebra.networks.build import build, least_size
from vertebra.networks.network import Network
from vertebra.networks.posteriors import Gaussian as GaussianPosterior
from vertebra.networks.skeleton import Skeleton

# Layers of a network: more would take minutes to compile.
MOST_LAYERS = 200
# Weights of a network, which reads numbers of sd 1 and says such: products of a few of these do not overflow.
LARGEST_WEIGHT = 1e15
# Options of a scheme: features of a block, of which a file has far fewer; and how far apart weights may begin.
MOST_FEATURES, LARGEST_SPREAD = 1e6, 1e6
# What the schemes of 0.1 were built with.
OPTIONS_OF_0_1: dict[str, Record] = {
    "mc_dropout": dict(rate=0.002),
    "random_features": dict(r=100, activation="erf", posterior=GaussianPosterior(spread=0.0)),
    "deep_random_features": dict(r=150, n_blocks=2, activation="erf"),
    "inducing_points": dict(r=40),
}


def networks_state(posterior: Posterior, arrays: dict[str, np.ndarray]) -> Record:
    networks = posterior.networks
    for m, network in enumerate(networks):
        leaves = jax.tree.leaves(eqx.filter(network, eqx.is_array))
        arrays |= {f"network/{m}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= posterior.arrays
    return {
        "kind": posterior.kind,
        "n_networks": len(networks),
        "seed": posterior.seed,
        "scheme": posterior.scheme,
        "skeleton": str(networks[0].skeleton),
        "widths": list(posterior.widths),
        "joint": bool(networks[0].stacks[-1].joint),
        "options": {name: _option_state(option) for name, option in posterior.options.items()},
        "built": _built(networks[0]),
    }


def _option_state(option: object) -> object:
    return {"spread": option.spread} if isinstance(option, GaussianPosterior) else option


def _option_from(option: object, name: str) -> object:
    if name == "posterior":
        spread = claims.record(option, "the option posterior", ("spread",))["spread"]
        return GaussianPosterior(spread=claims.number(spread, "the option posterior", 0, LARGEST_SPREAD))
    # blocks are made one by one, before anything is held to the size of the file
    most = MOST_LAYERS if name == "n_blocks" else MOST_FEATURES
    is_plain = isinstance(option, str) or (isinstance(option, bool | int | float) and 0 <= option <= most)
    claims.demand(is_plain, f"the option {name}", "text, or a number that a scheme may have", option)
    return option


def _built(network: Network) -> str:
    """All that the numbers of a network do not tell: kinds of blocks, activations, what is fixed."""
    return repr(eqx.filter(network.stacks, eqx.is_array, inverse=True))


def networks_from(value: object, arrays: Arrays, n_inputs: int, n_outputs: int) -> NetworkPosterior | EnsemblePosterior:
    """One network or several alike, built again for the file's numbers to take the place of their own."""
    names = ("kind", "n_networks", "seed", "scheme", "skeleton", "widths", "joint")
    value = claims.record(value, "the networks", names, ("options", "built"))
    kind = claims.one_of(value["kind"], "the kind of the networks", ("network", "ensemble"))
    n_networks = claims.whole(value["n_networks"], "n_networks", 1 if kind == "network" else 2)
    claims.demand(kind == "ensemble" or n_networks == 1, "n_networks", "1 of a network", n_networks)
    claims.demand(f"network/{n_networks - 1}/0" in arrays, "n_networks", "as many as there are arrays of", n_networks)
    widths = [claims.whole(width, "a width", 1) for width in claims.listed(value["widths"], "the widths")]
    joint = claims.flag(value["joint"], "joint")
    like = _network_in(value, widths, joint, n_inputs, arrays.size("network/0/"))
    # of averaged networks a law of their scale says the second of two outputs
    has_law = kind == "ensemble" and "scale/slopes" in arrays
    n_said = like.n_outputs * (2 if has_law else 1)
    claims.demand(n_said == n_outputs, "the outputs of the networks", f"{n_outputs}", n_said)
    networks = tuple(_filled(like, arrays, f"network/{m}") for m in range(n_networks))
    if "built" in value and value["built"] != _built(networks[0]):
        raise ValueError(
            f"networks of the scheme {value['scheme']!r} as another version built them; predict with that one"
        )
    seed, scheme = claims.whole(value["seed"], "the seed"), claims.text(value["scheme"], "the scheme")
    about = seed, scheme, tuple(widths), _options(value)
    if kind == "network":
        return NetworkPosterior(networks[0], arrays.take("rows", None, n_inputs), *about)
    k = like.n_outputs
    law = None
    if has_law:
        centre, variance = arrays.take("scale/centre", k), arrays.take("scale/variance", k, low=0.0)
        law = ScaleLaw(centre, arrays.take("scale/slopes", k, N_SLOPES), variance)
    return EnsemblePosterior(networks, arrays.take("factor", k, low=0.0), *about, scale=law)


def _options(value: Record) -> Record:
    """The options that the scheme was built with; files of 0.1 do not tell them."""
    scheme = claims.one_of(value["scheme"], "the scheme", SCHEMES)
    if "options" not in value:
        return OPTIONS_OF_0_1.get(scheme, {})
    known = inspect.signature(getattr(schemes, scheme)).parameters
    options = claims.record(value["options"], "the options of the scheme", (), known)
    return {name: _option_from(option, name) for name, option in options.items() if name != "widths"}


def _network_in(value: Record, widths: list[int], joint: bool, n_inputs: int, n_numbers: int) -> Network:
    """The network built again, if it has no more numbers than the file has of it."""
    scheme = claims.one_of(value["scheme"], "the scheme", SCHEMES)
    claims.demand(len(widths) <= MOST_LAYERS, "the widths", f"of at most {MOST_LAYERS} layers", len(widths))
    skeleton = Skeleton.from_text(claims.text(value["skeleton"], "the skeleton"))
    claims.demand(skeleton.n_inputs == n_inputs, "the inputs of the skeleton", f"{n_inputs}", skeleton.n_inputs)
    claims.demand(skeleton.depth == len(widths), "the widths", f"one for each of {skeleton.depth} layers", widths)
    layers = getattr(schemes, scheme)(widths, **_options(value))
    least = least_size(skeleton, layers)
    claims.demand(least <= n_numbers, "the widths", f"those of a network of {n_numbers} numbers", widths)
    like = build(skeleton, layers, key=jr.key(0), x=np.zeros((2, skeleton.n_inputs)))
    if not joint:
        return like
    least = like.n_outputs * n_joint_features(like) ** 2
    claims.demand(least <= n_numbers, "the joint top", f"one of {n_numbers} numbers", least)
    return with_blank_top(like)


def _filled(like: Network, arrays: Arrays, prefix: str) -> Network:
    """The network with the file's numbers, but for its wiring, which the skeleton tells."""
    own, rest = eqx.partition(like, eqx.is_array)
    leaves, tree = jax.tree.flatten(own)
    found = []
    for i, leaf in enumerate(leaves):
        kind = np.dtype(leaf.dtype).kind
        numbers = arrays.take(f"{prefix}/{i}", *leaf.shape, kind=kind, low=-LARGEST_WEIGHT, high=LARGEST_WEIGHT)
        found.append(jnp.asarray(numbers))
    filled = eqx.combine(jax.tree.unflatten(tree, found), rest)
    pairs = zip(*(jax.tree.leaves([part.wiring for part in each.parts]) for each in (like, filled)), strict=True)
    claims.demand(all(np.array_equal(a, b) for a, b in pairs), prefix, "wired as its skeleton", "another wiring")
    return filled
