"""A layer whose nodes have blocks of several kinds: a stack for each kind, side by side over the same layer below."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from vertebra.networks.stack import Noise, Stack
from vertebra.networks.wiring import Copies, activate, side_by_side

T = TypeVar("T")


class Mixed(eqx.Module):
    """All nodes of one layer of N(S), of which some have other blocks, posteriors, priors or widths than the rest.

    What a `Stack` has of its nodes, this has of each of its `parts`, one after the other.
    """

    parts: tuple[Stack, ...]
    places: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of the nodes of each part in the layer
    width: int = eqx.field(static=True)  # of the layer's widest node
    copies: Copies | None = eqx.field(static=True, default=None, repr=False)

    joint = False

    def _each(self, of: Callable[..., T], *given: Sequence) -> tuple[T, ...]:
        return tuple(of(part, *own) for part, *own in zip(self.parts, *given, strict=True))

    def _keys(self, key: PRNGKeyArray) -> list[PRNGKeyArray]:
        return list(jr.split(key, len(self.parts)))

    def carried(
        self, f: Sequence[Float[Array, "_ _ *batch"]], h: Float[Array, "below d_below *batch"]
    ) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer, from f of each part: nodes that copy have what they read."""
        if self.copies is None:
            return side_by_side(f, self.places, self.width)
        read = self.copies.read(activate(h, self.parts[0].activations))
        return side_by_side([*f, read], [*self.places, self.copies.nodes], self.width)

    def drawn(self, h: Float[Array, "below d_below *batch"], key: PRNGKeyArray) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer for one draw of V, the same for every column."""
        return self.carried(self._each(lambda part, key: part.draw(h, key), self._keys(key)), h)

    def drawn_weights(self, key: PRNGKeyArray) -> tuple[Float[Array, "_ _ _"], ...]:
        """The V of `drawn(h, key)`, part by part."""
        return self._each(lambda part, key: part.drawn_weights(key), self._keys(key))

    def mean_weights(self) -> tuple[Float[Array, "_ _ _"], ...]:
        """E V for every node, part by part."""
        return self._each(lambda part: part.mean_weights())

    def noise(self, key: PRNGKeyArray, batch: tuple[int, ...], member: Int[Array, "*batch"] | None = None) -> Noise:
        """Base noise for `batch` columns, part by part."""
        each = self._each(lambda part, key: part.noise(key, batch, member), self._keys(key))
        return Noise(tuple(noise.normal for noise in each), tuple(noise.rows for noise in each))

    def columns(self, h: Float[Array, "below d_below *batch"], noise: Noise) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer, every column by itself; without noise E f."""
        each = self._each(
            lambda part, *own: part.columns(h, Noise(*own)), self._given(noise.normal), self._given(noise.rows)
        )
        return self.carried(each, h)

    def conditional(
        self, h: Float[Array, "below d_below *batch"], noise: PyTree = None
    ) -> tuple[Float[Array, "nodes d *batch"], Float[Array, "nodes d *batch"] | None]:
        """Mean and variance of each f given the layer below, of nodes of one width. A variance of None is zero."""
        mean, variance = zip(*self._each(lambda part, rows: part.conditional(h, rows), self._given(noise)), strict=True)
        together = side_by_side(mean, self.places, self.width)
        if all(part is None for part in variance):
            return together, None
        known = [jnp.zeros_like(m) if v is None else v for m, v in zip(mean, variance, strict=True)]
        return together, side_by_side(known, self.places, self.width)

    def _given(self, noise: PyTree) -> Sequence[PyTree]:
        return (None,) * len(self.parts) if noise is None else noise

    def at(self, v: Sequence[Float[Array, "_ _ _"]]) -> "Mixed":
        """The layer with given weights, part by part, as point masses."""
        return self.changed(lambda part, v: part.at(v), v)

    def at_mean(self) -> "Mixed":
        """The layer with its weights at their means, as point masses."""
        return self.changed(lambda part: part.at_mean())

    def changed(self, by: Callable[..., Stack], *given: Sequence) -> "Mixed":
        """The layer with its parts changed."""
        return replace(self, parts=self._each(by, *given))

    def member(self, m: int | Int[Array, ""]) -> "Mixed":
        """The layer with the weights of one of its `Members`, as point masses; other parts stay as they are."""
        return self.changed(lambda part: part.member(m))

    def times(self, c: float) -> "Mixed":
        """c · f, c > 0."""
        return self.changed(lambda part: part.times(c))

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Mixed":
        """The layer with some of its nodes, which read nothing but the nodes `below`."""
        chosen = self._among(nodes)
        parts = tuple(self.parts[k].kept(own, below) for k, own in chosen)
        position = {node: i for i, node in enumerate(nodes)}
        places = tuple(tuple(position.get(self.places[k][i], len(nodes)) for i in own) for k, own in chosen)
        copies = None if self.copies is None else self.copies.kept(nodes, below)
        return Mixed(parts, places, self.width, copies)

    def weights_of(self, v: Sequence[Float[Array, "_ _ _"]], nodes: Sequence[int]) -> tuple[Float[Array, "_ _ _"], ...]:
        """The weights of `kept(nodes, …)` among those of all nodes."""
        return tuple(self.parts[k].weights_of(v[k], own) for k, own in self._among(nodes))

    def _among(self, nodes: Sequence[int]) -> list[tuple[int, list[int]]]:
        """The parts that have some of these nodes, and which of theirs; where all of them copy, the first node."""
        inside = [[i for i, node in enumerate(own) if node in nodes] for own in self.places]
        return [(k, own) for k, own in enumerate(inside) if own] or [(0, [0])]

    def kl(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """KL(q(V) ‖ p(V)) of all its nodes."""
        return sum(self._each(lambda part, key: part.kl(key), self._keys(key)), start=jnp.zeros(()))

    @property
    def kl_is_exact(self) -> bool:
        """Whether KL(q ‖ p) is known by a rule in all parts."""
        return all(part.kl_is_exact for part in self.parts)

    @property
    def n_members(self) -> int:
        """k of `Members`, else 1."""
        return max(part.n_members for part in self.parts)

    @property
    def is_random(self) -> bool:
        """Whether f varies given the layer below."""
        return any(part.is_random for part in self.parts)

    @property
    def has_moments(self) -> bool:
        """Whether mean and variance of f given the layer below are known without draws."""
        return all(part.has_moments for part in self.parts)

    @property
    def adds_variance(self) -> bool:
        """Whether f varies beside its weights."""
        return any(part.adds_variance for part in self.parts)
