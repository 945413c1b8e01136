"""Algorithm 1: `build` turns a skeleton and a list of layers into the network N(S)."""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.networks.activations import as_activation
from vertebra.networks.blocks import FunctionBlock, InducingPointBlock, spread_points
from vertebra.networks.covariances import Full
from vertebra.networks.layer import Layer
from vertebra.networks.network import Network
from vertebra.networks.parameters import Fixed, in_working_precision
from vertebra.networks.posteriors import Gaussian
from vertebra.networks.skeleton import Skeleton
from vertebra.networks.stack import Stack, features_of_nodes, pile
from vertebra.networks.wiring import Wiring, activate

# Rows that inducing points and mean functions start from: a round number, of which k-means and SVD take no time.
MOST_ROWS = 2000


def build(skeleton: Skeleton, layers: Sequence[Layer], *, key: PRNGKeyArray, x: ArrayLike | None = None) -> Network:
    """Algorithm 1: N(S) from a skeleton S and one `Layer` per layer of S, bottom up.

    With data `x` (n, n_inputs), inducing points start at k-means centres of what each node reads, layer by layer, and
    linear mean functions at principal directions; without it they start at random and at the identity.

    >>> skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=2)
    >>> network = vb.build(skeleton, vb.mean_field([4, 1]), key=jr.key(0))
    >>> first, second = network.weights()
    >>> [v.shape for v in first], second.shape  # (d, r) of two nodes that read two inputs and one; nodes, d, r
    ([(4, 2), (4, 1)], (2, 1, 4))
    """
    if len(layers) != skeleton.depth:
        raise ValueError(
            f"`layers` must have one entry per layer of the skeleton, {skeleton.depth}, got {len(layers)}."
        )
    for level in skeleton.layers:
        for node in level:
            try:
                as_activation(node.activation)
            except ValueError as error:
                raise ValueError(f"Node {node.name!r}: {error}") from None
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel().tolist())
    h = None if x is None else in_working_precision(_rows(x, skeleton.n_inputs, rng).T)[:, None]
    sizes, parents, width, stacks = skeleton.sizes, skeleton.parents, 1, []
    activations: tuple[str, ...] = ("identity",) * skeleton.n_inputs
    for level, layer in enumerate(layers):
        n_blocks = sizes[level + 1]
        if layer.joint:
            if level + 1 != skeleton.depth or not skeleton.adds_runs:
                raise ValueError(
                    "`joint` is for the top layer, and needs outputs that add equally many top nodes each, in order; "
                    f"got it in layer {level + 1} of {skeleton.depth}, with outputs that add {skeleton.output_parents}."
                )
            n_blocks = len(skeleton.outputs)
        wiring = Wiring(parents[level], sizes[level])
        if layer.joint and not layer.features and wiring.live is not None:
            raise ValueError("`joint` without feature blocks needs top nodes with equally many parents.")
        stack = _stacked(layer, wiring, activations, sizes[level + 1], n_blocks, width, h, rng)
        stacks.append(stack)
        activations = tuple(node.activation for node in skeleton.layers[level])
        width = layer.width
        if h is not None:
            h = _mean_of(stack, h) if any(later.starts_from_data for later in layers[level + 1 :]) else None
    return Network(skeleton, tuple(stacks))


def least_size(skeleton: Skeleton, layers: Sequence[Layer]) -> int:
    """How many numbers the largest arrays of `build(skeleton, layers)` have, without building them."""
    total, width, sizes, parents = 0, 1, skeleton.sizes, skeleton.parents
    for level, layer in enumerate(layers):
        n_nodes, n = sizes[level + 1], max(map(len, parents[level])) * width
        for block in layer.features:
            # w or z; with a kernel one draw is a cosine and a sine
            total += n_nodes * (block.r // 2) * n
            n = block.r
        q = layer.posterior
        is_full = isinstance(q, Gaussian) and isinstance(q.covariance, Full)
        total += n_nodes * layer.width * n * (1 + n if is_full else 1)
        width = layer.width
    return total


def _stacked(
    layer: Layer,
    wiring: Wiring,
    activations: tuple[str, ...],
    n_nodes: int,
    n_blocks: int,
    width_below: int,
    h: Float[Array, "below d batch"] | None,
    rng: np.random.Generator,
) -> Stack:
    """The inner loop of Algorithm 1, for all nodes i of a layer."""
    n_inputs = wiring.n_parents * width_below
    x = None if h is None or not layer.starts_from_data else np.asarray(_inputs_of(wiring, activations, h))
    shared = wiring.axis is None
    mean = None
    if layer.mean == "linear":
        skip = partial(_linear_mean, layer.width, n_inputs)
        mean = Fixed(
            in_working_precision(np.stack([skip(None)] * n_nodes if x is None else _per_node(x, n_nodes, shared, skip)))
        )
    features, n_features = [], n_inputs
    for position, block in enumerate(layer.features):
        places: Sequence[np.ndarray | None] = [None] * n_nodes
        if isinstance(block, InducingPointBlock) and block.z is None and x is not None:
            places = _per_node(x, n_nodes, shared, lambda rows, block=block: spread_points(rows, block.r, rng=rng))
        options = [{} if z is None else {"z": z} for z in places]
        built = pile([block.init(n_features, rng=rng, **option) for option in options])
        features.append(built)
        if x is not None and any(isinstance(b, InducingPointBlock) for b in layer.features[position + 1 :]):
            x = np.asarray(_features_of(built, x, shared, n_nodes))
            shared = False
        n_features = block.r
    live = None
    if not features and wiring.live is not None:
        live = np.repeat(np.asarray(wiring.live.value), width_below, axis=1)
    n_features *= n_nodes // n_blocks
    block = partial(FunctionBlock, layer.posterior, layer.prior, n_features, layer.width, bias=layer.bias, rng=rng)
    function = pile([block(live=None if live is None else live[i]) for i in range(n_blocks)])
    log_noise = (
        None if layer.noise is None else in_working_precision(np.full((n_nodes, layer.width), np.log(layer.noise)))
    )
    return Stack(wiring, activations, tuple(features), function, mean, log_noise, n_nodes, layer.joint)


@eqx.filter_jit
def _mean_of(stack, h):
    return stack.conditional(h)[0]


@eqx.filter_jit
def _inputs_of(wiring, activations, h):
    return wiring(activate(h, activations))


@eqx.filter_jit
def _features_of(block, x, shared, n_nodes):
    return features_of_nodes(block, x, None if shared else 0, n_nodes)


def _rows(x: ArrayLike, n_inputs: int, rng: np.random.Generator) -> np.ndarray:
    """The rows that starting places are taken from, checked."""
    rows = np.asarray(x)
    if rows.ndim != 2 or rows.shape[1] != n_inputs:
        raise ValueError(f"`x` must have the shape (n, {n_inputs}), got {rows.shape}.")
    if not len(rows) or not np.issubdtype(rows.dtype, np.number) or not np.isfinite(rows).all():
        raise ValueError("`x` must have rows of numbers, and no missing or infinite values.")
    return rows if len(rows) <= MOST_ROWS else rows[rng.choice(len(rows), MOST_ROWS, replace=False)]


def _per_node(
    x: np.ndarray, n_nodes: int, shared: bool, of: Callable[[np.ndarray], np.ndarray]
) -> Sequence[np.ndarray]:
    """of(rows) for what each node reads; once for all where the nodes read the same."""
    return [of(x.T)] * n_nodes if shared else [of(node.T) for node in x]


def _linear_mean(d: int, n_inputs: int, rows: np.ndarray | None) -> np.ndarray:
    """The fixed skip: identity, padding, or the leading principal directions of the rows."""
    if rows is None or n_inputs <= d:
        return np.eye(d, n_inputs)
    directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:d]
    return np.concatenate([directions, np.eye(d - len(directions), n_inputs)])
