"""The computation skeleton S: a layered graph of inputs, nodes with activations, and outputs.

Nothing here touches an array: a skeleton can be built, checked, printed, stored and drawn without JAX.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vertebra.machine.checks import check_count

# In place of an activation: the node hands on what it reads, as it is, and carries no blocks. Skips are made of these.
COPY = "copy"


@dataclass(frozen=True)
class Node:
    """One node of a skeleton: it reads `parents`, nodes of the layer below, and passes σ of its value upwards.

    With the activation "copy" it passes on the value of its one parent, with no blocks of its own: a skip.
    With `tied`, the name of a node of its layer, it has no blocks of its own either: both share that node's weights.

    >>> print(vb.Skeleton(["a", "b"], [[vb.Node("h", ["a", "b"], "relu")]]))
    inputs a b
    layer h = relu(a b)
    output h = h
    """

    name: str
    parents: Sequence[str]
    activation: str = "tanh"
    tied: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "parents", tuple(self.parents))


@dataclass(frozen=True)
class Output:
    """One output of a skeleton: the plain sum of its `parents`, nodes of the top layer.

    >>> nodes = [vb.Node("g", ["a"]), vb.Node("h", ["b"])]
    >>> vb.Skeleton(["a", "b"], [nodes], [vb.Output("f", ["g", "h"])]).is_additive
    True
    """

    name: str
    parents: Sequence[str]

    def __post_init__(self):
        object.__setattr__(self, "parents", tuple(self.parents))


@dataclass(frozen=True)
class Skeleton:
    """S: inputs at the bottom, `layers` of nodes above them, `outputs` that add up nodes of the top layer.

    Every node reads nodes of the layer just below. Without `outputs` each top node is an output by itself;
    an additive skeleton has one output that adds all of them. Inputs that nobody reads are allowed: they are
    columns of the table that the network leaves alone.

    >>> skeleton = vb.Skeleton.from_text("inputs a b c \\n layer g = tanh(a b); h = relu(c) \\n output f = g + h")
    >>> skeleton.clusters
    ((0, 1), (2,))
    """

    inputs: Sequence[str]
    layers: Sequence[Sequence[Node]]
    outputs: Sequence[Output] = ()

    def __post_init__(self):
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "layers", tuple(tuple(layer) for layer in self.layers))
        outputs = tuple(self.outputs)
        if not outputs and self.layers:
            outputs = tuple(Output(node.name, (node.name,)) for node in self.layers[-1])
        object.__setattr__(self, "outputs", outputs)
        _check(self)

    @property
    def n_inputs(self) -> int:
        return len(self.inputs)

    @property
    def depth(self) -> int:
        """L: the number of layers that carry blocks."""
        return len(self.layers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """s⁰, s¹, …, s^L: inputs, then nodes per layer."""
        return (self.n_inputs, *(len(layer) for layer in self.layers))

    @property
    def parents(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """In(i) of Algorithm 1: for each layer and node, the positions of the node's parents in the layer below."""
        below, result = self.inputs, []
        for layer in self.layers:
            position = {name: j for j, name in enumerate(below)}
            result.append(tuple(tuple(position[name] for name in node.parents) for node in layer))
            below = tuple(node.name for node in layer)
        return tuple(result)

    @property
    def computing(self) -> tuple[tuple[int, ...], ...]:
        """For each layer the positions of the nodes that carry blocks: those that do not copy."""
        return tuple(tuple(i for i, n in enumerate(layer) if n.activation != COPY) for layer in self.layers)

    @property
    def ties(self) -> tuple[tuple[int, ...] | None, ...]:
        """For each layer the block of each node that carries one, equal where nodes are tied; None without ties."""
        result = []
        for layer, computing in zip(self.layers, self.computing, strict=True):
            owners = [layer[i].tied or layer[i].name for i in computing]
            number = {name: b for b, name in enumerate(dict.fromkeys(owners))}
            result.append(tuple(number[name] for name in owners) if len(number) < len(owners) else None)
        return tuple(result)

    @property
    def output_parents(self) -> tuple[tuple[int, ...], ...]:
        """For each output the positions, in the top layer, of the nodes it adds."""
        position = {node.name: i for i, node in enumerate(self.layers[-1])}
        return tuple(tuple(position[name] for name in output.parents) for output in self.outputs)

    @property
    def edges(self) -> Iterator[tuple[str, str]]:
        """Every edge below the outputs, as (parent, child) names, bottom up."""
        return ((parent, node.name) for layer in self.layers for node in layer for parent in node.parents)

    @property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """T_m: for each top node, the positions of the inputs it depends on. f is a sum of functions of these."""
        below = [frozenset([i]) for i in range(self.n_inputs)]
        for layer in self.parents:
            below = [frozenset().union(*(below[j] for j in parents)) for parents in layer]
        return tuple(tuple(sorted(cluster)) for cluster in below)

    def ancestors(self, node: int) -> tuple[tuple[int, ...], ...]:
        """What a top node depends on: the positions of inputs, then of nodes layer by layer, up to itself."""
        levels: list[tuple[int, ...]] = [(node,)]
        for parents in reversed(self.parents):
            levels.append(tuple(sorted({j for i in levels[-1] for j in parents[i]})))
        return tuple(reversed(levels))

    @property
    def is_additive(self) -> bool:
        """Whether some output adds more than one node."""
        return any(len(output.parents) > 1 for output in self.outputs)

    @property
    def adds_runs(self) -> bool:
        """Whether the outputs share the top nodes out in equal runs, in order, as all constructors here do."""
        share = len(self.output_parents[0])
        runs = tuple(tuple(range(i * share, (i + 1) * share)) for i in range(len(self.outputs)))
        return self.output_parents == runs and len(runs) * share == self.sizes[-1]

    def to_json(self) -> str:
        """The skeleton as JSON; `Skeleton.from_json` gives it back."""
        return json.dumps(
            {
                "inputs": self.inputs,
                "layers": [
                    [
                        {"name": n.name, "parents": n.parents, "activation": n.activation}
                        | ({} if n.tied is None else {"tied": n.tied})
                        for n in layer
                    ]
                    for layer in self.layers
                ],
                "outputs": [{"name": o.name, "parents": o.parents} for o in self.outputs],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Skeleton":
        try:
            record = json.loads(text)
            return cls(
                inputs=tuple(record["inputs"]),
                layers=tuple(tuple(Node(**node) for node in layer) for layer in record["layers"]),
                outputs=tuple(Output(**output) for output in record["outputs"]),
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"`text` is not the JSON form of a skeleton: {error}.") from error

    def __str__(self) -> str:
        """The text form, one line per layer and output; `Skeleton.from_text` gives it back.

        inputs x0 x1
        layer h = tanh(x0 x1)
        layer g = tanh(h)
        output y = g
        """
        lines = [" ".join(["inputs", *map(_quoted, self.inputs)])]
        for layer in self.layers:
            lines.append("layer " + "; ".join(map(_node_text, layer)))
        for output in self.outputs:
            lines.append(f"output {_quoted(output.name)} = {' + '.join(map(_quoted, output.parents))}")
        return "\n".join(lines)

    @classmethod
    def from_text(cls, text: str) -> "Skeleton":
        inputs: tuple[str, ...] = ()
        layers, outputs = [], []
        for line in filter(None, map(str.strip, text.splitlines())):
            match _TOKEN.findall(line):
                case ["inputs", *names]:
                    inputs = tuple(map(_unquoted, names))
                case ["layer", *tokens]:
                    layers.append(tuple(_parse_node(chunk, line) for chunk in _split(tokens, ";")))
                case ["output", name, "=", *tokens]:
                    parents = [_unquoted(parent) for chunk in _split(tokens, "+") for parent in chunk]
                    outputs.append(Output(_unquoted(name), tuple(parents)))
                case _:
                    raise ValueError(
                        f"`text` must have lines that begin with `inputs`, `layer` or `output`, got {line!r}."
                    )
        return cls(inputs, tuple(layers), tuple(outputs))


def chain(n_inputs: int, depth: int, *, activation: str = "tanh") -> Skeleton:
    """One node per layer: the skeleton of Fig. 1(a), an ordinary feed-forward network.

    >>> print(vb.chain(n_inputs=2, depth=2))
    inputs x0 x1
    layer h1 = tanh(x0 x1)
    layer h2 = tanh(h1)
    output h2 = h2
    """
    inputs = _input_names(n_inputs)
    check_count(depth=depth)
    return Skeleton(inputs, tuple(_strand("h", inputs, range(1, depth + 1), activation)))


def additive(
    n_inputs: int,
    n_subnetworks: int | None = None,
    depth: int = 3,
    *,
    clusters: Sequence[Iterable[int]] | None = None,
    activation: str = "tanh",
) -> Skeleton:
    """A sum of sub-networks, Fig. 1(h): f(x) = Σ_j g_j(x_{T_j}).

    Every sub-network reads all inputs, or, with `clusters`, sub-network j reads only the inputs in clusters[j].

    >>> print(vb.additive(3, clusters=[(0, 1), (2,)], depth=1))
    inputs x0 x1 x2
    layer g0_1 = tanh(x0 x1); g1_1 = tanh(x2)
    output f = g0_1 + g1_1
    """
    inputs = _input_names(n_inputs)
    check_count(depth=depth)
    if clusters is None:
        if n_subnetworks is None:
            raise ValueError("`additive` needs `n_subnetworks` or `clusters`, got neither.")
        check_count(n_subnetworks=n_subnetworks)
        clusters = [range(n_inputs)] * n_subnetworks
    elif not clusters:
        raise ValueError("`clusters` must hold at least one cluster of inputs, got none.")
    elif n_subnetworks is not None and n_subnetworks != len(clusters):
        raise ValueError(
            f"`n_subnetworks` must be the number of `clusters`, {len(clusters)}, or left out, got {n_subnetworks}."
        )
    strands = []
    for j, cluster in enumerate(clusters):
        cluster = tuple(cluster)
        outside = [i for i in cluster if not 0 <= i < n_inputs]
        if outside:
            raise ValueError(f"`clusters[{j}]` must hold positions from 0 to {n_inputs - 1}, got {outside[0]}.")
        strands.append(_strand(f"g{j}_", tuple(inputs[i] for i in cluster), range(1, depth + 1), activation))
    layers = tuple(tuple(node for (node,) in level) for level in zip(*strands, strict=True))
    return Skeleton(inputs, layers, (Output("f", tuple(node.name for node in layers[-1])),))


def multitask(n_inputs: int, n_tasks: int, depth: int = 2, *, shared: int = 1, activation: str = "tanh") -> Skeleton:
    """`shared` low layers of one node, then a strand of nodes for each task: Fig. 1(g).

    >>> print(vb.multitask(n_inputs=2, n_tasks=2))
    inputs x0 x1
    layer h1 = tanh(x0 x1)
    layer t0_2 = tanh(h1); t1_2 = tanh(h1)
    output t0_2 = t0_2
    output t1_2 = t1_2
    """
    inputs = _input_names(n_inputs)
    check_count(n_tasks=n_tasks, depth=depth)
    if not 0 <= shared < depth:
        raise ValueError(f"`shared` must be from 0 to depth - 1 = {depth - 1}, got {shared}.")
    trunk = _strand("h", inputs, range(1, shared + 1), activation)
    below = (trunk[-1][0].name,) if trunk else inputs
    strands = [_strand(f"t{j}_", below, range(shared + 1, depth + 1), activation) for j in range(n_tasks)]
    heads = [tuple(node for (node,) in level) for level in zip(*strands, strict=True)]
    return Skeleton(inputs, (*trunk, *heads))


def _strand(prefix: str, below: Sequence[str], levels: range, activation: str) -> list[tuple[Node, ...]]:
    nodes = []
    for level in levels:
        nodes.append((Node(f"{prefix}{level}", below, activation),))
        below = (f"{prefix}{level}",)
    return nodes


def _input_names(n_inputs: int) -> tuple[str, ...]:
    check_count(n_inputs=n_inputs)
    return tuple(f"x{i}" for i in range(n_inputs))


def _check(skeleton: Skeleton) -> None:
    if not skeleton.inputs:
        raise ValueError("`inputs` must name at least one input, got none.")
    if not skeleton.layers:
        raise ValueError("`layers` must hold at least one layer, got none.")
    where = dict.fromkeys(skeleton.inputs, 0)
    _no_repeat(skeleton.inputs, "`inputs`")
    for level, layer in enumerate(skeleton.layers, start=1):
        if not layer:
            raise ValueError(f"Layer {level} is empty: give it at least one node or leave it out.")
        for node in layer:
            if node.name in where:
                raise ValueError(f"Two nodes are called {node.name!r}: give every input and node a name of its own.")
            where[node.name] = level
    for level, layer in enumerate(skeleton.layers, start=1):
        for node in layer:
            _check_parents(f"Node {node.name!r} of layer {level}", node.parents, where, level - 1)
    _check_copies(skeleton)
    _check_ties(skeleton)
    _no_repeat(tuple(output.name for output in skeleton.outputs), "`outputs`")
    for output in skeleton.outputs:
        _check_parents(f"Output {output.name!r}", output.parents, where, skeleton.depth)
    used = {parent for parent, _ in skeleton.edges} | {p for output in skeleton.outputs for p in output.parents}
    for level, layer in enumerate(skeleton.layers, start=1):
        for node in layer:
            if node.name not in used:
                raise ValueError(f"Node {node.name!r} of layer {level} reaches no output: connect it or leave it out.")


def _check_copies(skeleton: Skeleton) -> None:
    for level, (layer, computing) in enumerate(zip(skeleton.layers, skeleton.computing, strict=True), start=1):
        for node in layer:
            if node.activation == COPY and len(node.parents) != 1:
                raise ValueError(f"Node {node.name!r} of layer {level} copies: give it one parent, got {node.parents}.")
        if level == skeleton.depth and len(computing) < len(layer):
            raise ValueError(f"Layer {level} is the top, where no node may copy: let an output add a node that reads.")


def _check_ties(skeleton: Skeleton) -> None:
    for level, layer in enumerate(skeleton.layers, start=1):
        nodes = {node.name: node for node in layer}
        for node in layer:
            if node.tied is None:
                continue
            who = f"Node {node.name!r} of layer {level} is tied to {node.tied!r}"
            if node.tied not in nodes or node.tied == node.name:
                raise ValueError(
                    f"{who}: name another node of its layer, one of {[n for n in nodes if n != node.name]}."
                )
            other = nodes[node.tied]
            if COPY in (node.activation, other.activation):
                raise ValueError(f"{who}, and a node that copies has no weights: leave the tie out.")
            if other.tied is not None:
                raise ValueError(f"{who}, which is tied itself: tie it to {other.tied!r}.")
            if len(node.parents) != len(other.parents):
                raise ValueError(
                    f"{who}, and reads {len(node.parents)} nodes where that one reads {len(other.parents)}: weights "
                    "can be shared by nodes that read equally many."
                )


def _check_parents(who: str, parents: Sequence[str], where: dict[str, int], below: int) -> None:
    if not parents:
        raise ValueError(f"{who} reads nothing: name at least one parent.")
    for parent in _repeated(parents):
        raise ValueError(f"{who} lists its parent {parent!r} twice: an edge may be drawn once.")
    for parent in parents:
        if parent not in where:
            raise ValueError(f"{who} has an unknown parent {parent!r}.")
        if where[parent] != below:
            raise ValueError(
                f"{who} has the parent {parent!r} of layer {where[parent]}: "
                f"a parent must be in the layer just below, {below}, so that no cycle can arise."
            )


def _no_repeat(names: Sequence[str], argument: str) -> None:
    for name in _repeated(names):
        raise ValueError(f"{argument} holds the name {name!r} twice.")


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


# A quoted name, a sign, or a bare word: the text form's whole grammar. A quote that never ends is a token to the end,
# so that no text is gone over more than once; it is refused as a name. `*+` keeps no places to go back to, which take
# fifty bytes a letter.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|$)|[=+();]|[^\s=+();"]+')
_BARE = re.compile(r"[^\s=+();\"]+")


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _unquoted(token: str) -> str:
    return json.loads(token) if token.startswith('"') else token


def _split(tokens: list[str], sign: str) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for token in tokens:
        if token == sign:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return chunks


def _node_text(node: Node) -> str:
    text = f"{_quoted(node.name)} = {_quoted(node.activation)}({' '.join(map(_quoted, node.parents))})"
    return text if node.tied is None else f"{text} tied {_quoted(node.tied)}"


def _parse_node(tokens: list[str], line: str) -> Node:
    match tokens:
        case [name, "=", activation, "(", *parents, ")"]:
            return Node(_unquoted(name), tuple(map(_unquoted, parents)), _unquoted(activation))
        case [name, "=", activation, "(", *parents, ")", "tied", other]:
            return Node(_unquoted(name), tuple(map(_unquoted, parents)), _unquoted(activation), _unquoted(other))
        case _:
            raise ValueError(f"`text` must write a node as `name = activation(parent parent …)`, got {line!r}.")
