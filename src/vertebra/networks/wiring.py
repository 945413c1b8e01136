"""In(i) of Algorithm 1: what the nodes of a layer read of the layer below."""

from collections.abc import Sequence

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
    """

    reads: str = eqx.field(static=True)
    n_parents: int = eqx.field(static=True)
    index: Int[Array, "s k"] | None
    live: Fixed | None

    def __init__(self, parents: tuple[tuple[int, ...], ...], n_below: int):
        self.n_parents = max(map(len, parents))
        self.index = self.live = None
        if all(read == tuple(range(n_below)) for read in parents):
            self.reads = "all"
        elif parents == tuple((i,) for i in range(n_below)):
            self.reads = "own"
        else:
            self.reads = "some"
            self.index = jnp.asarray(np.array([read + (0,) * (self.n_parents - len(read)) for read in parents]))
            if any(len(read) < self.n_parents for read in parents):
                counts = np.array([[len(read)] for read in parents])
                self.live = Fixed(in_working_precision(np.arange(self.n_parents) < counts))

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Wiring":
        """The wiring of some nodes, which read nothing but the nodes `below`."""
        if self.reads != "some":
            return self
        position = np.zeros(1 + max(np.asarray(self.index).max(), *below), dtype=int)
        position[list(below)] = np.arange(len(below))
        chosen = np.asarray(nodes)
        return eqx.tree_at(
            lambda w: (w.index, w.live),
            self,
            (
                jnp.asarray(position[np.asarray(self.index)[chosen]]),
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
        parents = h[self.index]
        if self.live is not None:
            parents = parents * self.live.value.reshape(*self.live.value.shape, *(1,) * (h.ndim - 1))
        return parents.reshape(parents.shape[0], -1, *h.shape[2:])


def activate(h: Float[Array, "s d *batch"], names: tuple[str, ...]) -> Float[Array, "s d *batch"]:
    """σ of each node, applied once per distinct activation."""
    if len(set(names)) == 1:
        return as_activation(names[0])(h)
    groups = {name: [i for i, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
    parts = [as_activation(name)(h[jnp.asarray(nodes)]) for name, nodes in groups.items()]
    order = np.argsort([i for nodes in groups.values() for i in nodes])
    return jnp.concatenate(parts)[jnp.asarray(order)]
