"""Networks as JSON and arrays, and back: built again, for the numbers of a file to take the place of their own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra.effects.posterior import EnsemblePosterior, NetworkPosterior, Posterior
from vertebra.inference.conjugate import closed_form, has_closed_form, n_joint_features
from vertebra.likelihoods import (
    Gaussian,
)
from vertebra.machine import claims
from vertebra.machine.claims import Arrays
from vertebra.models.networks import SCHEMES
from vertebra.networks import schemes
from vertebra.networks.build import build, least_size
from vertebra.networks.network import Network
from vertebra.networks.skeleton import Skeleton

# Layers of a network: more would take minutes to compile.
MOST_LAYERS = 200
# Weights of a network, which reads numbers of sd 1 and says such: products of a few of these do not overflow.
LARGEST_WEIGHT = 1e15


def networks_state(posterior: Posterior, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
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
    }


def networks_from(value: Any, arrays: Arrays, n_inputs: int, n_outputs: int) -> NetworkPosterior | EnsemblePosterior:
    """One network or several alike, built again for the file's numbers to take the place of their own."""
    names = ("kind", "n_networks", "seed", "scheme", "skeleton", "widths", "joint")
    claims.record(value, "the networks", names)
    kind = claims.one_of(value["kind"], "the kind of the networks", ("network", "ensemble"))
    n_networks = claims.whole(value["n_networks"], "n_networks", 1 if kind == "network" else 2)
    claims.demand(kind == "ensemble" or n_networks == 1, "n_networks", "1 of a network", n_networks)
    claims.demand(f"network/{n_networks - 1}/0" in arrays, "n_networks", "as many as there are arrays of", n_networks)
    widths = [claims.whole(width, "a width", 1) for width in claims.listed(value["widths"], "the widths")]
    joint = claims.flag(value["joint"], "joint")
    like = _network_in(value, widths, joint, n_inputs, arrays.size("network/0/"))
    claims.demand(like.n_outputs == n_outputs, "the outputs of the networks", f"{n_outputs}", like.n_outputs)
    networks = tuple(_filled(like, arrays, f"network/{m}") for m in range(n_networks))
    about = claims.whole(value["seed"], "the seed"), value["scheme"], tuple(widths)
    if kind == "network":
        return NetworkPosterior(networks[0], arrays.take("rows", None, n_inputs), *about)
    return EnsemblePosterior(networks, arrays.take("factor", n_outputs, low=0.0), *about)


def _network_in(value: dict, widths: list[int], joint: bool, n_inputs: int, n_numbers: int) -> Network:
    """The network built again, if it has no more numbers than the file has of it."""
    scheme = claims.one_of(value["scheme"], "the scheme", SCHEMES)
    claims.demand(len(widths) <= MOST_LAYERS, "the widths", f"of at most {MOST_LAYERS} layers", len(widths))
    skeleton = Skeleton.from_text(claims.text(value["skeleton"], "the skeleton"))
    claims.demand(skeleton.n_inputs == n_inputs, "the inputs of the skeleton", f"{n_inputs}", skeleton.n_inputs)
    claims.demand(skeleton.depth == len(widths), "the widths", f"one for each of {skeleton.depth} layers", widths)
    layers = getattr(schemes, scheme)(widths, **SCHEMES[scheme]["options"])
    least = least_size(skeleton, layers)
    claims.demand(least <= n_numbers, "the widths", f"those of a network of {n_numbers} numbers", widths)
    like = build(skeleton, layers, key=jr.key(0), x=np.zeros((2, skeleton.n_inputs)))
    if not joint:
        return like
    least = like.n_outputs * n_joint_features(like) ** 2
    claims.demand(least <= n_numbers, "the joint top", f"one of {n_numbers} numbers", least)
    return _with_joint_top(like)


def _with_joint_top(network: Network) -> Network:
    """The same with a top layer of the closed form's shape, by way of it: the numbers do not matter."""
    x = np.random.default_rng(0).standard_normal((4, network.skeleton.n_inputs))
    y = np.zeros((4, network.n_outputs)) + np.arange(4.0)[:, None]
    likelihood = Gaussian().init(y)
    if not has_closed_form(network, likelihood):
        raise ValueError("a joint top layer on a network that has none")
    return closed_form(network, likelihood, x, y, np.ones((4, 1)))[0]


def _filled(like: Network, arrays: Arrays, prefix: str) -> Network:
    """The network with the file's numbers, but for its wiring, which the skeleton tells."""
    own, rest = eqx.partition(like, eqx.is_array)
    leaves, tree = jax.tree.flatten(own)
    found = []
    for i, leaf in enumerate(leaves):
        limits: Any = dict(low=-LARGEST_WEIGHT, high=LARGEST_WEIGHT)
        found.append(jnp.asarray(arrays.take(f"{prefix}/{i}", *leaf.shape, kind=np.dtype(leaf.dtype).kind, **limits)))
    filled = eqx.combine(jax.tree.unflatten(tree, found), rest)
    pairs = zip(*(jax.tree.leaves([s.wiring for s in each.stacks]) for each in (like, filled)), strict=True)
    claims.demand(all(np.array_equal(a, b) for a, b in pairs), prefix, "wired as its skeleton", "another wiring")
    return filled
