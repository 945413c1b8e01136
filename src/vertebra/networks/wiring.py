"""In(i) of Algorithm 1: what the nodes of a layer read of the layer below."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vertebra.networks.activations import as_activation
from vertebra.networks.parameters import Fixed, in_working_precision


class Wiring(eqx.Module):
    """In(i) of Algorithm 1 for a whole layer: which nodes below each node reads.

    `reads` is "all" where every node reads the whole layer below, "own" where node i reads node i alone, and "some"
    for the rest, which look their parents up in `index`; shorter lists are padded, and `live` zeroes the padding.
    It is "values" where nodes below have values of different `widths`, as copies of other layers do: `index` then
    counts single values, of `width` places for each node below.
    """

    reads: str = eqx.field(static=True)
    n_parents: int = eqx.field(static=True)
    index: Int[Array, "s k"] | None
    live: Fixed | None
    width: int | None = eqx.field(static=True, repr=False)

    def __init__(
        self,
        parents: tuple[tuple[int, ...], ...],
        n_below: int,
        widths: Sequence[int] | None = None,
        *,
        looks_up: bool = False,
    ):
        self.index = self.live = self.width = None
        is_even = widths is None or len(set(widths)) == 1
        if widths is not None and not is_even:
            width = self.width = max(widths)
            parents = tuple(tuple(j * width + t for j in read for t in range(widths[j])) for read in parents)
        self.n_parents = max(map(len, parents))
        if looks_up or not is_even:
            self._look_up(parents, "some" if is_even else "values")
        elif all(read == tuple(range(n_below)) for read in parents):
            self.reads = "all"
        elif parents == tuple((i,) for i in range(n_below)):
            self.reads = "own"
        else:
            self._look_up(parents, "some")

    def _look_up(self, parents: tuple[tuple[int, ...], ...], reads: str) -> None:
        """The table that parents, or values, are looked up in."""
        self.reads = reads
        self.index = jnp.asarray(np.array([read + (0,) * (self.n_parents - len(read)) for read in parents]))
        if any(len(read) < self.n_parents for read in parents):
            counts = np.array([[len(read)] for read in parents])
            self.live = Fixed(in_working_precision(np.arange(self.n_parents) < counts))

    def n_values(self, width: int) -> int:
        """How many values a node reads at most, where nodes below have that many each."""
        return self.n_parents * (width if self.width is None else 1)

    def live_values(self, width: int) -> Float[np.ndarray, "s values"] | None:
        """1 for each value that a node reads, 0 for padding; None without any."""
        if self.live is None:
            return None
        live = np.asarray(self.live.value)
        return np.repeat(live, width, axis=1) if self.width is None else live

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Wiring":
        """The wiring of some nodes, which read nothing but the nodes `below`."""
        if self.index is None:
            return self
        width, index = self.width or 1, np.asarray(self.index)
        position = np.zeros(1 + max(index.max() // width, *below), dtype=int)
        position[list(below)] = np.arange(len(below))
        chosen = np.asarray(nodes)
        return eqx.tree_at(
            lambda w: (w.index, w.live),
            self,
            (
                jnp.asarray((position[index // width] * width + index % width)[chosen]),
                None if self.live is None else Fixed(self.live.value[chosen]),
            ),
            is_leaf=lambda leaf: leaf is None,
        )

    @property
    def axis(self) -> int | None:
        """Where a layer's inputs carry the axis of its nodes: nowhere if all nodes read the same."""
        return None if self.reads == "all" else 0

    def __call__(self, h: Float[Array, "below d *batch"]) -> Array:
        """The parents' values of each node, one after the other: (s, k·d, *batch), or (k·d, *batch) if shared."""
        if self.reads == "all":
            return h.reshape(-1, *h.shape[2:])
        if self.reads == "own":
            return h
        parents = h[self.index] if self.width is None else h.reshape(-1, *h.shape[2:])[self.index][:, :, None]
        if self.live is not None:
            parents = parents * self.live.value.reshape(*self.live.value.shape, *(1,) * (h.ndim - 1))
        return parents.reshape(parents.shape[0], -1, *h.shape[2:])


@dataclass(frozen=True)
class Copies:
    """The nodes of a layer that hand on what they read: their places in it, and those of what they read below."""

    nodes: tuple[int, ...]
    parents: tuple[int, ...]
    n_nodes: int  # of the layer, with those that compute
    width: int  # of the layer's widest node

    @property
    def computing(self) -> tuple[int, ...]:
        return tuple(i for i in range(self.n_nodes) if i not in self.nodes)

    def read(self, values: Float[Array, "below d_below *batch"]) -> Float[Array, "copies width *batch"]:
        """What they hand on, of the values below after σ."""
        return values[np.asarray(self.parents, int)][:, : self.width]

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Copies":
        """Those among some nodes of the layer, which read nothing but the nodes `below`."""
        pairs = [(nodes.index(i), below.index(j)) for i, j in zip(self.nodes, self.parents, strict=True) if i in nodes]
        own, parents = tuple(i for i, _ in pairs), tuple(j for _, j in pairs)
        # With none left the width stays, which the layer above counts with; copies alone keep one block behind them,
        # whose value nobody reads.
        return Copies(own, parents, max(len(nodes), len(own) + 1), self.width)


def side_by_side(
    parts: Sequence[Array], places: Sequence[Sequence[int]], width: int
) -> Float[Array, "nodes width *batch"]:
    """The values of all nodes of a layer, from those of parts of it at their places; zeros where a node is narrower."""
    rest = ((0, 0),) * (parts[0].ndim - 2)
    padded = [jnp.pad(part, ((0, 0), (0, width - part.shape[1]), *rest)) for part in parts]
    return jnp.concatenate(padded)[jnp.asarray(np.argsort(np.concatenate(places)))]


def activate(h: Float[Array, "s d *batch"], names: tuple[str, ...]) -> Float[Array, "s d *batch"]:
    """σ of each node, applied once per distinct activation."""
    if len(set(names)) == 1:
        return as_activation(names[0])(h)
    groups = {name: [i for i, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
    parts = [as_activation(name)(h[jnp.asarray(nodes)]) for name, nodes in groups.items()]
    order = np.argsort([i for nodes in groups.values() for i in nodes])
    return jnp.concatenate(parts)[jnp.asarray(order)]
