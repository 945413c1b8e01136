"""The network N(S): draws, moments, weights and sub-networks of what Algorithm 1 built."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from vertebra.networks.mixed import Mixed
from vertebra.networks.posteriors import Gaussian
from vertebra.networks.priors import Normal
from vertebra.networks.skeleton import Node, Skeleton
from vertebra.networks.stack import Noise, Stack

# Weights of one layer: (nodes, d, r), or node by node where r differs.
LayerWeights = Float[Array, "_ _ _"] | Sequence[Float[Array, "_ _"]]
# The same with padding: (nodes, d, r), of each part of a layer whose nodes have blocks of several kinds.
StackWeights = PyTree[Float[Array, "_ _ _"]]


class Network(eqx.Module):
    """N(S): the Bayesian network that Algorithm 1 builds. A key is a draw: `network(x, key=k)` draws every V from q.

    The same key over many x is one sampled function; many keys are the posterior.

    >>> network = vb.build(vb.chain(2, 2), vb.mean_field([4, 1]), key=jr.key(0))
    >>> x = jnp.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])  # a column for each row of data
    >>> network(x, key=jr.key(1)).shape
    (1, 3)
    """

    skeleton: Skeleton = eqx.field(static=True)
    stacks: tuple[Stack | Mixed, ...]  # a layer each, bottom up

    def __call__(self, x: Float[Array, "p *batch"], *, key: PRNGKeyArray) -> Float[Array, "outputs *batch"]:
        """f(x) for one draw of all weights; x is one row, or the columns of many."""
        return self._total(self.terms(x, key=key))

    def terms(self, x: Float[Array, "p *batch"], *, key: PRNGKeyArray) -> Float[Array, "s d *batch"]:
        """The value of each top node for one draw of all weights; the outputs add these up."""
        h = x[:, None]
        for stack, stack_key in zip(self._drawn(key).stacks, jr.split(key, len(self.stacks)), strict=True):
            h = stack.drawn(h, stack_key)
        return h

    def noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...] = (), *, member: Int[Array, "*batch"] | None = None
    ) -> tuple[Noise, ...]:
        """Base noise for draws that are independent from column to column; of `Members` that of each column."""
        keys = jr.split(key, len(self.stacks))
        if self.n_members > 1 and member is None:
            member = jr.randint(jr.fold_in(key, len(self.stacks)), batch, 0, self.n_members)
        *below, top = (stack.noise(key, batch, member) for stack, key in zip(self.stacks, keys, strict=True))
        return (*below, top._replace(normal=None))  # the top layer's moments are handed on, not drawn from

    def conditional(
        self, x: Float[Array, "p *batch"], noise: Sequence[Noise]
    ) -> tuple[Float[Array, "outputs *batch"], Float[Array, "outputs *batch"] | None]:
        """Mean and variance of f(x) over the top layer, given `noise` in the layers below: the doubly stochastic draw.

        Below the top each column has its own f = E f + √Var f · ε, so that only ε, not V, is drawn (the local
        reparameterisation). Where nothing below the top is random these are the exact moments of q(f).
        """
        h = x[:, None]
        for stack, own in zip(self.stacks[:-1], noise, strict=False):
            h = stack.columns(h, own)
        mean, variance = self.stacks[-1].conditional(h, noise[-1].rows)
        return self._total(mean), None if variance is None else self._total(variance)

    def mean(self, x: Float[Array, "p *batch"]) -> Float[Array, "outputs *batch"]:
        """f(x) with every V, and every noise inside, at its mean."""
        return self.conditional(x, tuple(Noise(None, None) for _ in self.stacks))[0]

    def shifted(
        self, x: Float[Array, "p *batch"], shifts: Sequence[Float[Array, "_ _ *batch"]]
    ) -> tuple[Float[Array, "outputs *batch"], list[Float[Array, "_ _ *batch"]]]:
        """f(x) with every V at its mean and the values of each part shifted, and the φ of each part."""
        h, met, given = x[:, None], [], iter(shifts)
        for stack in self.stacks:
            each = [part.shifted(h, next(given)) for part in stack.parts]
            f = [f for f, _ in each]
            h = stack.carried(f, h) if isinstance(stack, Mixed) else stack.carried(f[0], h)
            met.extend(phi for _, phi in each)
        return self._total(h), met

    def at(self, weights: Sequence[LayerWeights]) -> "Network":
        """The network with given weights, `weights[layer][node]`, as point masses: the inverse of `weights`."""
        if len(weights) != len(self.stacks):
            raise ValueError(f"`weights` must have one entry per layer, {len(self.stacks)}, got {len(weights)}.")
        padded = (self._padded(level, given) for level, given in enumerate(weights))
        return Network(self.skeleton, tuple(stack.at(v) for stack, v in zip(self.stacks, padded, strict=True)))

    @property
    def parts(self) -> tuple[Stack, ...]:
        """All stacks, layer by layer: of a layer one, or as many as there are kinds of blocks on its nodes."""
        return tuple(part for stack in self.stacks for part in stack.parts)

    @property
    def n_members(self) -> int:
        """How many networks `Members` of its layers make; 1 without such layers."""
        return max(stack.n_members for stack in self.stacks)

    def member(self, m: int | Int[Array, ""]) -> "Network":
        """The network of one member of its `Members`, as point masses; the layers without such stay as they are."""
        return Network(self.skeleton, tuple(stack.member(m) for stack in self.stacks))

    def members(self) -> tuple["Network", ...]:
        """The networks that it is a mixture of: an ensemble for `vb.sample`, `vb.moments`, `vb.decompose`.

        >>> layers = [vb.Layer(4, posterior=vb.distributions.Members(3)), vb.Layer(1)]
        >>> len(vb.build(vb.chain(2, 2), layers, key=jr.key(0)).members())
        3
        """
        return tuple(self.member(m) for m in range(self.n_members))

    def _drawn(self, key: PRNGKeyArray) -> "Network":
        """A member that the key draws for all layers."""
        if self.n_members == 1:
            return self
        return self.member(jr.randint(jr.fold_in(key, len(self.stacks)), (), 0, self.n_members))

    def weights(self, key: PRNGKeyArray | None = None) -> list[LayerWeights]:
        """The V of `network(x, key=key)`, `weights[layer][node]`, or without a key their means.

        Of a layer one array (nodes, d, r); where its nodes read different numbers of parents without feature blocks,
        so that r differs from node to node, or have blocks of their own, one array (d, r) for each. Every number in
        them acts on f.

        >>> wide, narrow = vb.Node("h0", ("x0", "x1")), vb.Node("h1", ("x1",))
        >>> skeleton = vb.Skeleton(("x0", "x1"), ((wide, narrow),))
        >>> first, second = vb.build(skeleton, vb.mean_field([3]), key=jr.key(0)).weights()[0]
        >>> first.shape, second.shape
        ((3, 2), (3, 1))
        """
        return [self._cut(level, v) for level, v in enumerate(self.stack_weights(key))]

    def stack_weights(self, key: PRNGKeyArray | None = None) -> list[StackWeights]:
        """The same as one array per layer, or part of one, with what stands in it for parents that a node lacks."""
        if key is None:
            return [stack.mean_weights() for stack in self.stacks]
        # the keys that `terms` draws V with
        keys = jr.split(key, len(self.stacks))
        return [stack.drawn_weights(k) for stack, k in zip(self._drawn(key).stacks, keys, strict=True)]

    def _cut(self, level: int, v: StackWeights) -> LayerWeights:
        """Weights of one layer without padding."""
        shapes = self._shapes(level)
        if shapes is None and not isinstance(v, tuple):
            return v
        parts = v if isinstance(v, tuple) else (v,)
        own = {
            i: w
            for (_, nodes), part in zip(self._placed(level), parts, strict=True)
            for i, w in zip(nodes, part, strict=True)
        }
        return tuple(own[i][:, :r] for i, (_, r) in (shapes or {}).items())

    def _placed(self, level: int) -> list[tuple[Stack, tuple[int, ...]]]:
        """The stacks of a layer, and the positions of their nodes in it."""
        stack = self.stacks[level]
        places = stack.places if isinstance(stack, Mixed) else (self.skeleton.computing[level],)
        return list(zip(stack.parts, places, strict=True))

    def _shapes(self, level: int) -> dict[int, tuple[int, int]] | None:
        """d and r of the weights of each node that has some, where they may differ from node to node."""
        stack = self.stacks[level]
        if not isinstance(stack, Mixed) and stack.function.live is None:
            return None
        widths, parents = self._widths(level), self.skeleton.parents[level]
        own = {i: part for part, nodes in self._placed(level) for i in nodes}
        return {
            i: (
                own[i].width,
                sum(widths[j] for j in parents[i]) if own[i].function.live is not None else own[i].shape[2],
            )
            for i in self.skeleton.computing[level]
        }

    def _widths(self, level: int) -> list[int]:
        """How many values each node has that a layer reads: inputs one, nodes d, copies what they copy."""
        widths = [1] * self.skeleton.n_inputs
        for k in range(level):
            own = {i: part.width for part, nodes in self._placed(k) for i in nodes}
            widths = [own[i] if i in own else widths[read[0]] for i, read in enumerate(self.skeleton.parents[k])]
        return widths

    def _padded(self, level: int, given: LayerWeights) -> StackWeights:
        """Weights of one layer as its stack has them, with zeros for parents that a node does not have."""
        stack, shapes = self.stacks[level], self._shapes(level)
        if shapes is None:
            (stack,) = stack.parts
            n_blocks, d, r = stack.shape
            shape = stack.n_nodes, d, r * n_blocks // stack.n_nodes if stack.joint else r
            v = jnp.asarray(given)
            if v.shape != shape:
                raise ValueError(f"`weights[{level}]` must have the shape {shape}: nodes, d, r; got {v.shape}.")
            return v
        wanted, got = list(shapes.values()), [jnp.shape(v) for v in given]
        if got != wanted:
            raise ValueError(
                f"`weights[{level}]` must have one array (d, r) per node, of the shapes {wanted}, got {got}: nodes "
                "with fewer parents have fewer weights."
            )
        own = dict(zip(shapes, given, strict=True))
        parts = tuple(
            jnp.stack([jnp.pad(own[i], ((0, 0), (0, part.shape[2] - own[i].shape[1]))) for i in nodes])
            for part, nodes in self._placed(level)
        )
        return parts if isinstance(stack, Mixed) else parts[0]

    def subnetwork(self, node: int) -> "Network":
        """g_j: one top node and what it depends on, a function of its cluster's inputs alone; weights at their means.

        Names are by position, so that sub-networks of one shape share what is compiled for them.
        """
        levels = self.skeleton.ancestors(node)
        stacks = tuple(
            stack.at_mean().kept(nodes, below)
            for stack, nodes, below in zip(self.stacks, levels[1:], levels[:-1], strict=True)
        )
        return Network(_renamed(self.skeleton, levels), stacks)

    def ancestor_weights(self, node: int, weights: Sequence[StackWeights]) -> list[StackWeights]:
        """The weights of `subnetwork(node)` among those of the network, as `stack_weights` gives them."""
        levels = self.skeleton.ancestors(node)[1:]
        return [stack.weights_of(v, nodes) for stack, v, nodes in zip(self.stacks, weights, levels, strict=True)]

    def kl(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """KL(q(V) ‖ p(V)) of all layers."""
        keys = jr.split(key, len(self.stacks))
        return sum((stack.kl(key) for stack, key in zip(self.stacks, keys, strict=True)), start=jnp.zeros(()))

    def top_features(
        self, x: Float[Array, "p *batch"]
    ) -> tuple[Float[Array, "outputs m_r *batch"], Float[Array, "targets *batch"], Float[Array, "outputs *batch"]]:
        """Where f is linear in V: the features of all the nodes an output adds, side by side; what is added to Vφ;
        and the variance that inducing points leave out."""
        h = x[:, None]
        for stack in self.stacks[:-1]:
            h = stack.columns(h, Noise(None, None))
        top, n_outputs = self._top, len(self.skeleton.outputs)
        inputs = top.inputs(h)
        phi, axis, left_out = top.phi(inputs)
        phi = phi if axis == 0 else jnp.broadcast_to(phi, (top.n_nodes, *phi.shape))
        left_out = jnp.zeros((top.n_nodes, *x.shape[1:])) if left_out is None else left_out
        offset = top.offset(inputs, jnp.zeros((top.n_nodes, self.n_outputs // n_outputs, *x.shape[1:])))
        return (
            phi.reshape(n_outputs, -1, *x.shape[1:]),
            self._total(offset),
            jnp.sum(left_out.reshape(n_outputs, -1, *x.shape[1:]), axis=1),
        )

    @property
    def _top(self) -> Stack:
        """The top layer, where f is linear in V: then it has one stack."""
        return cast(Stack, self.stacks[-1])

    def with_joint_top(self, posterior: Gaussian, prior: Normal) -> "Network":
        """The same network with one function block per output, over the features of all the nodes it adds."""
        top, n_outputs = self._top, len(self.skeleton.outputs)
        bias = top.function.bias
        function = eqx.tree_at(
            lambda block: (block.posterior, block.prior, block.bias),
            top.function,
            (
                posterior,
                jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n_outputs, *leaf.shape)), prior),
                None if bias is None else jnp.sum(bias.reshape(n_outputs, -1, bias.shape[1]), axis=1),
            ),
            is_leaf=lambda leaf: leaf is None,
        )
        return Network(self.skeleton, (*self.stacks[:-1], replace(top, function=function, joint=True)))

    def times(self, c: float) -> "Network":
        """c · f, c > 0: the weights and biases of the top layer, Gaussian or point masses, times c."""
        return Network(self.skeleton, (*self.stacks[:-1], self.stacks[-1].times(c)))

    @property
    def kl_is_exact(self) -> tuple[bool, ...]:
        """Of each layer, whether its KL(q ‖ p) is known by a rule; else it is estimated from a draw."""
        return tuple(stack.kl_is_exact for stack in self.stacks)

    @property
    def n_outputs(self) -> int:
        return len(self.skeleton.outputs) * self.stacks[-1].width

    @property
    def has_top_moments(self) -> bool:
        """Whether mean and variance of f given the layers below are known without draws."""
        return self.stacks[-1].has_moments

    @property
    def is_linear_in_v(self) -> bool:
        """Whether f is linear in all that is uncertain: the top layer alone is random, Gaussian, and has no ties."""
        top = self.stacks[-1]
        return (
            isinstance(top, Stack)
            and isinstance(top.function.posterior, Gaussian)
            and top.has_moments
            and not any(stack.is_random for stack in self.stacks[:-1])
        )

    def _total(self, f: Float[Array, "nodes d *batch"]) -> Float[Array, "outputs *batch"]:
        groups = self.skeleton.output_parents
        if len(f) == len(groups) and (len(groups) < len(self.skeleton.layers[-1]) or _in_order(groups)):
            total = f
        elif len(groups) == 1:
            total = jnp.sum(f, axis=0, keepdims=True)
        else:
            total = jnp.stack([jnp.sum(f[jnp.asarray(group)], axis=0) for group in groups])
        return total.reshape(-1, *f.shape[2:])


def _renamed(skeleton: Skeleton, levels: Sequence[Sequence[int]]) -> Skeleton:
    """The skeleton of one top node, `levels` of which are kept, with names by position."""
    layers = []
    for level, (nodes, below) in enumerate(zip(levels[1:], levels[:-1], strict=True)):
        names = [f"h{level}_{position}" if level else f"x{position}" for position in range(len(below))]
        position = dict(zip(below, names, strict=True))
        layers.append(
            tuple(
                Node(
                    f"h{level + 1}_{k}",
                    tuple(position[j] for j in skeleton.parents[level][i]),
                    skeleton.layers[level][i].activation,
                )
                for k, i in enumerate(nodes)
            )
        )
    return Skeleton(tuple(f"x{k}" for k in range(len(levels[0]))), tuple(layers))


def _in_order(groups: tuple[tuple[int, ...], ...]) -> bool:
    return groups == tuple((i,) for i in range(len(groups)))
