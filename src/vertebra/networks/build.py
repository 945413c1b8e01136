"""Algorithm 1: `build` turns a skeleton and a list of layers into the network N(S)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.networks.blocks import (
    FeatureBlock,
    FunctionBlock,
    InducingPointBlock,
    RandomFeatureBlock,
    spread_points,
)
from vertebra.networks.covariances import Full
from vertebra.networks.embeddings import BlockOfRows
from vertebra.networks.layer import Layer, LayerOrLayers, by_kind, layers_of, starts_from_rows
from vertebra.networks.layout import (
    carriers,
    check_activations,
    check_kinds,
    check_members,
    check_tied,
    handed_on,
    layout,
    ties_among,
)
from vertebra.networks.mixed import Mixed
from vertebra.networks.network import Network
from vertebra.networks.parameters import Fixed, in_working_precision, is_traced
from vertebra.networks.posteriors import Gaussian
from vertebra.networks.skeleton import Skeleton
from vertebra.networks.stack import Noise, Stack, features_of_nodes, pile
from vertebra.networks.wiring import Wiring, activate

# Rows that inducing points and mean functions start from: a round number, of which k-means and SVD take no time.
MOST_ROWS = 2000


def build(
    skeleton: Skeleton, layers: Sequence[LayerOrLayers], *, key: PRNGKeyArray, x: ArrayLike | None = None
) -> Network:
    """Algorithm 1: N(S) from a skeleton S and one `Layer` per layer of S, bottom up.

    In place of a `Layer` a mapping from the names of its nodes gives each node blocks, posterior, prior and width of
    its own; in the top layer widths agree.

    With data `x` (n, n_inputs), inducing points start at k-means centres of what each node reads, layer by layer, and
    linear mean functions at principal directions; without it they start at random and at the identity.

    Inside `jax.jit`, `jax.grad` and `jax.vmap` the hyper-parameters of layers may be traced: length scales, amplitudes
    and variances of blocks and kernels, scales of priors. Starting values are drawn with NumPy, so that `key` and `x`
    may not, nor may what sets a shape.

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
    check_activations(skeleton)
    check_members(skeleton, layers)
    if is_traced(key, x):
        raise ValueError(
            "`key` and `x` must have values when `build` runs, as NumPy draws with them, got traced ones: build "
            "outside of jit and vmap, or make both outside and trace hyper-parameters alone."
        )
    with jax.ensure_compile_time_eval():  # its words, while something else is traced
        words = np.asarray(jr.key_data(key)).ravel().tolist()
    rng = np.random.default_rng(words)
    h = None if x is None else in_working_precision(_rows(x, skeleton.n_inputs, rng).T)[:, None]
    stacks, widths = [], [1] * skeleton.n_inputs
    for level, layer in enumerate(layers):
        kinds = by_kind(layer, carriers(skeleton, level))
        if not kinds or not kinds[0][1]:
            raise ValueError(
                f"Layer {level + 1} has nodes that copy alone: leave it out, or give it one that computes."
            )
        check_kinds(skeleton, level, kinds)
        copies, above = handed_on(skeleton, level, widths, {i: kind.width for kind, nodes in kinds for i in nodes})
        parts = [_part(kind, skeleton, level, nodes, widths, h, rng) for kind, nodes in kinds]
        if len(parts) == 1:
            (stack,) = parts if copies is None else [replace(parts[0], copies=copies)]
        else:
            stack = Mixed(tuple(parts), tuple(nodes for _, nodes in kinds), max(above), copies)
        widths = above
        stacks.append(stack)
        if h is not None:
            later = [each for other in layers[level + 1 :] for each in layers_of(other)]
            h = _mean_of(stack, h) if any(each.starts_from_data for each in later) else None
    return Network(skeleton, tuple(stacks))


def _part(
    layer: Layer,
    skeleton: Skeleton,
    level: int,
    nodes: tuple[int, ...],
    widths: Sequence[int],
    h: Float[Array, "below d batch"] | None,
    rng: np.random.Generator,
) -> Stack:
    """The stack of the nodes of a layer that have the same blocks, over nodes with `widths` values."""
    n_blocks = len(nodes)
    if layer.joint:
        if level + 1 != skeleton.depth or not skeleton.adds_runs:
            raise ValueError(
                "`joint` is for the top layer, and needs outputs that add equally many top nodes each, in order; "
                f"got it in layer {level + 1} of {skeleton.depth}, with outputs that add {skeleton.output_parents}."
            )
        n_blocks = len(skeleton.outputs)
    ties = ties_among(skeleton, level, nodes)
    if ties is not None:
        check_tied(skeleton, level, widths, layer)
        n_blocks = max(ties) + 1
    wiring, activations = layout(skeleton, level, widths, nodes)
    if layer.joint and not layer.features and wiring.live is not None:
        raise ValueError("`joint` without feature blocks needs top nodes with equally many parents.")
    return _stacked(layer, wiring, activations, len(nodes), n_blocks, max(widths), h, rng, ties)


def least_size(skeleton: Skeleton, layers: Sequence[Layer]) -> int:
    """How many numbers the largest arrays of `build(skeleton, layers)` have, without building them."""
    total, widths = 0, [1] * skeleton.n_inputs
    for layer, parents, computing, ties in zip(
        layers, skeleton.parents, skeleton.computing, skeleton.ties, strict=True
    ):
        n_nodes, n = len(computing), max(sum(widths[j] for j in parents[i]) for i in computing)
        n_nodes = n_nodes if ties is None else max(ties) + 1
        for block in layer.features:
            # w or z; with a kernel one draw is a cosine and a sine
            total += n_nodes * (block.r // 2) * n
            n = block.r
        q = layer.posterior
        is_full = isinstance(q, Gaussian) and isinstance(q.covariance, Full)
        total += n_nodes * layer.width * n * (1 + n if is_full else 1)
        widths = [layer.width if i in computing else widths[read[0]] for i, read in enumerate(parents)]
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
    ties: tuple[int, ...] | None,
) -> Stack:
    """The inner loop of Algorithm 1, for all nodes i of a layer; tied nodes get one block together."""
    n_inputs = wiring.n_values(width_below)
    x = None if h is None or not layer.starts_from_data else np.asarray(_inputs_of(wiring, activations, h))
    shared = wiring.axis is None
    mean = None
    n_own = n_nodes if ties is None else n_blocks
    each = partial(_per_node, n_nodes=n_nodes, shared=shared, ties=ties)
    if layer.mean == "linear":
        skip = partial(_linear_mean, layer.width, n_inputs)
        mean = Fixed(in_working_precision(np.stack([skip(None)] * n_own if x is None else each(x, of=skip))))
    features, n_features = [], n_inputs
    for position, block in enumerate(layer.features):
        places: Sequence[np.ndarray | None] = [None] * n_own
        if isinstance(block, InducingPointBlock) and block.z is None and x is not None:
            places = each(x, of=lambda rows, block=block: spread_points(rows, block.r, rng=rng))
        options = [{} if z is None else {"z": z} for z in places]
        if isinstance(block, BlockOfRows) and x is not None:
            options = [{"rows": rows} for rows in each(x, of=lambda rows: rows)]
        own = [block.init(n_features, rng=rng, **option) for option in options]
        _check_features(own[0], n_features)
        built = pile(own)
        features.append(built)
        if x is not None and any(starts_from_rows(later) for later in layer.features[position + 1 :]):
            per_node = built if ties is None else jax.tree.map(lambda leaf: leaf[np.asarray(ties)], built)
            x = np.asarray(_features_of(per_node, x, shared, n_nodes))
            shared = False
            each = partial(_per_node, n_nodes=n_nodes, shared=False, ties=ties)
        n_features = own[0].r  # a block may say its size when it knows its inputs
    live = None if features else wiring.live_values(width_below)
    n_features *= n_nodes // n_blocks if layer.joint else 1
    block = partial(FunctionBlock, layer.posterior, layer.prior, n_features, layer.width, bias=layer.bias, rng=rng)
    first = range(n_blocks) if ties is None else [ties.index(b) for b in range(n_blocks)]
    function = pile([block(live=None if live is None else live[i]) for i in first])
    log_noise = (
        None if layer.noise is None else in_working_precision(np.full((n_own, layer.width), np.log(layer.noise)))
    )
    return Stack(wiring, activations, tuple(features), function, mean, log_noise, n_nodes, layer.joint, ties=ties)


def _check_features(block: FeatureBlock, n_inputs: int) -> None:
    """Refuses a block of one's own whose φ has not the size that it says."""
    if type(block) in (RandomFeatureBlock, InducingPointBlock):
        return
    name = type(block).__name__
    try:
        phi = eqx.filter_eval_shape(block, jax.ShapeDtypeStruct((n_inputs, 2), jnp.result_type(float)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The block {name} does not take columns x of the shape ({n_inputs}, batch): {error}"
        ) from error
    if getattr(phi, "shape", None) != (block.r, 2):
        raise ValueError(
            f"The block {name} must give φ of the shape (r, batch) = ({block.r}, 2) from columns x of the shape "
            f"({n_inputs}, 2), got {getattr(phi, 'shape', type(phi).__name__)}: mend its `r` or its `__call__`."
        )


@eqx.filter_jit
def _mean_of(stack, h):
    return stack.columns(h, Noise(None, None))


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
    x: np.ndarray, n_nodes: int, shared: bool, of: Callable[[np.ndarray], np.ndarray], ties: tuple[int, ...] | None
) -> Sequence[np.ndarray]:
    """of(rows) for what each block's nodes read; once for all where the nodes read the same."""
    if shared:
        return [of(x.T)] * (n_nodes if ties is None else max(ties) + 1)
    if ties is None:
        return [of(node.T) for node in x]
    pooled = [np.concatenate([x[i].T for i in range(n_nodes) if ties[i] == b]) for b in range(max(ties) + 1)]
    return [of(rows) for rows in pooled]


def _linear_mean(d: int, n_inputs: int, rows: np.ndarray | None) -> np.ndarray:
    """The fixed skip: identity, padding, or the leading principal directions of the rows."""
    if rows is None or n_inputs <= d:
        return np.eye(d, n_inputs)
    directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:d]
    return np.concatenate([directions, np.eye(d - len(directions), n_inputs)])
