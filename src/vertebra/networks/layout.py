"""What a skeleton says of one layer of Algorithm 1, and the layers that it cannot have."""

from collections.abc import Mapping, Sequence

import jax

from vertebra.networks.activations import as_activation
from vertebra.networks.layer import Layer, LayerOrLayers, layers_of
from vertebra.networks.posteriors import Members
from vertebra.networks.skeleton import COPY, Node, Skeleton
from vertebra.networks.wiring import Copies, Wiring


def carriers(skeleton: Skeleton, level: int) -> dict[str, int]:
    """The nodes of a layer that carry blocks, and their positions."""
    return {skeleton.layers[level][i].name: i for i in skeleton.computing[level]}


def layout(
    skeleton: Skeleton, level: int, below: Sequence[int], nodes: Sequence[int]
) -> tuple[Wiring, tuple[str, ...]]:
    """What some nodes of a layer read of nodes that have `below` values each, and σ of these."""
    parents = skeleton.parents[level]
    # Who reads all, or one each in order, needs no lookup; but a sub-network may keep other nodes below than those
    # that some of a layer's nodes read.
    looks_up = len(nodes) < len(parents)
    with jax.ensure_compile_time_eval():  # numbers, while something else is traced
        wiring = Wiring(tuple(parents[i] for i in nodes), skeleton.sizes[level], below, looks_up=looks_up)
    names = map(sigma, skeleton.layers[level - 1]) if level else ("identity",) * skeleton.n_inputs
    return wiring, tuple(names)


def handed_on(
    skeleton: Skeleton, level: int, below: Sequence[int], own: Mapping[int, int]
) -> tuple[Copies | None, list[int]]:
    """The copies of a layer, and how many values each node has: `own` of those with blocks, `below` of what is read."""
    parents = skeleton.parents[level]
    widths = [own[i] if i in own else below[read[0]] for i, read in enumerate(parents)]
    copying = tuple(i for i in range(len(parents)) if i not in own)
    if not copying:
        return None, widths
    return Copies(copying, tuple(parents[i][0] for i in copying), len(parents), max(widths)), widths


def ties_among(skeleton: Skeleton, level: int, nodes: Sequence[int]) -> tuple[int, ...] | None:
    """The block of each of some nodes of a layer, equal where they are tied; None without ties."""
    ties = skeleton.ties[level]
    if ties is None:
        return None
    chosen = [ties[skeleton.computing[level].index(i)] for i in nodes]
    number = {block: b for b, block in enumerate(dict.fromkeys(chosen))}
    return tuple(number[block] for block in chosen) if len(number) < len(chosen) else None


def check_activations(skeleton: Skeleton) -> None:
    for level in skeleton.layers:
        for node in level:
            try:
                sigma(node)
            except ValueError as error:
                raise ValueError(f"Node {node.name!r}: {error}") from None


def check_kinds(skeleton: Skeleton, level: int, kinds: Sequence[tuple[Layer, tuple[int, ...]]]) -> None:
    """Refuses nodes with blocks of their own that the layer cannot have."""
    if len(kinds) == 1:
        return
    if any(kind.joint for kind, _ in kinds):
        raise ValueError(f"Layer {level + 1}: `joint` is for all nodes of a layer alike: give a Layer, and no mapping.")
    if level + 1 == skeleton.depth and len(widths := {kind.width for kind, _ in kinds}) > 1:
        raise ValueError(
            f"Layer {level + 1} is the top, whose nodes are outputs: give them one width, got {sorted(widths)}."
        )
    home = {skeleton.layers[level][i].name: k for k, (_, nodes) in enumerate(kinds) for i in nodes}
    for node in skeleton.layers[level]:
        if node.tied is not None and home[node.name] != home[node.tied]:
            raise ValueError(f"Node {node.name!r} is tied to {node.tied!r}: give both the same Layer.")


def check_members(skeleton: Skeleton, layers: Sequence[LayerOrLayers]) -> None:
    """Refuses members of different numbers, and of tied nodes: a member is one in all layers."""
    members = [[isinstance(each.posterior, Members) for each in layers_of(layer)] for layer in layers]
    counts = {each.posterior.k for layer in layers for each in layers_of(layer) if isinstance(each.posterior, Members)}
    if len(counts) > 1:
        raise ValueError(f"`k` of Members must be the same in all layers, got {', '.join(map(str, sorted(counts)))}.")
    for level, (is_members, ties) in enumerate(zip(members, skeleton.ties, strict=True), start=1):
        if ties is not None and any(is_members):
            raise ValueError(f"Layer {level} has tied nodes, which draw one V for all rows: leave out Members there.")


def check_tied(skeleton: Skeleton, level: int, widths: Sequence[int], layer: Layer) -> None:
    """Refuses ties that a layer's blocks cannot have."""
    if layer.joint:
        raise ValueError(f"Layer {level + 1} has tied nodes: leave out `joint`, which has one block for all of them.")
    if layer.features and layer.features[-1].residual == "diagonal":
        raise ValueError(
            f'Layer {level + 1} has tied nodes: leave out residual="diagonal", which they would not vary in together.'
        )
    reads = {
        node.name: [widths[j] for j in parents]
        for node, parents in zip(skeleton.layers[level], skeleton.parents[level], strict=True)
    }
    for node in skeleton.layers[level]:
        if node.tied is not None and reads[node.name] != reads[node.tied]:
            raise ValueError(
                f"Node {node.name!r} reads parents of {reads[node.name]} values and {node.tied!r}, which it is tied "
                f"to, of {reads[node.tied]}: weights can be shared by nodes that read values of the same sizes."
            )


def sigma(node: Node) -> str:
    """σ of a node, by a name that is known; that of a copy is the identity."""
    if node.activation == COPY:
        return "identity"
    as_activation(node.activation)
    return node.activation
