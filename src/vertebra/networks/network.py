"""Algorithm 1: `build` turns a skeleton and a list of layers into the network N(S).

The nodes of a layer are stacked: their arrays have a leading axis s, and the layer runs as one batched product.
Inside, values are columns: h has the shape (s, d, *batch), node by node, and one row of data has no batch axis.
"""

import numbers
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from vertebra.networks.activations import as_activation
from vertebra.networks.blocks import FeatureBlock, FunctionBlock, InducingPointBlock, spread_points
from vertebra.networks.distributions import (
    Dropout,
    Full,
    Gaussian,
    Normal,
    PointMass,
    Posterior,
    Prior,
    check_posterior,
    check_prior,
    product,
)
from vertebra.networks.parameters import Fixed, working
from vertebra.networks.skeleton import Node, Skeleton

# Weights of one layer: (nodes, d, r), or node by node where r differs.
LayerWeights = Float[Array, "_ _ _"] | Sequence[Float[Array, "_ _"]]


class Layer(eqx.Module):
    """What Algorithm 1 puts in place of the edges into each node of one layer: (RB or IPB)* then FB.

    The paper's three changes are three fields: `features` (none, one or several blocks in a row), `posterior`, `prior`.

    - `width`: d, how often the function block replicates the node.
    - `bias`: a trained bias b in the function block.
    - `mean="linear"`: a fixed linear skip m(x) added to f: the identity where the sizes agree, else the leading
      principal directions of the data (`build(..., x=x)`) or padding with zeros, as in Salimbeni & Deisenroth.
    - `noise`: the initial sd of Gaussian noise added to f inside the layer, trained; None for none.
    - `joint`: in the top layer, one function block per output over the features of all the nodes it adds, instead of
      one per node, so that a full covariance spans the sub-networks.

    >>> layer = vb.Layer(8, [vb.RandomFeatureBlock(100)], vb.distributions.Gaussian("full"), vb.Normal())
    >>> network = vb.build(vb.chain(3, 1), [layer], key=jr.key(0))
    >>> network.n_outputs
    8
    """

    width: int = eqx.field(static=True)
    features: tuple[FeatureBlock, ...]
    posterior: Posterior
    prior: Prior
    bias: bool = eqx.field(static=True)
    mean: str | None = eqx.field(static=True)
    noise: float | None = eqx.field(static=True)
    joint: bool = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        features: Sequence[FeatureBlock] = (),
        posterior: Posterior | None = None,
        prior: Prior | None = None,
        *,
        bias: bool = False,
        mean: str | None = None,
        noise: float | None = None,
        joint: bool = False,
    ):
        if not isinstance(width, numbers.Integral) or width < 1:
            raise ValueError(f"`width` must be a whole number of at least 1, got {width!r}.")
        if mean not in (None, "linear"):
            raise ValueError(f'`mean` must be None or "linear", got {mean!r}.')
        if noise is not None and not 0.0 < noise < np.inf:
            raise ValueError(f"`noise` must be positive and finite, or None for no noise, got {noise!r}.")
        self.width = width
        self.features = tuple(features)
        self.posterior = Gaussian() if posterior is None else posterior
        self.prior = Normal() if prior is None else prior
        check_posterior(self.posterior)
        check_prior(self.prior)
        self.bias = bias
        self.mean = mean
        self.noise = noise
        self.joint = joint


class Noise(NamedTuple):
    """The base noise of one layer for draws that are independent from column to column."""

    normal: Float[Array, "s d *batch"] | None
    coins: Bool[Array, "s r *batch"] | None


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
                self.live = Fixed(working(np.arange(self.n_parents) < counts))

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


class Stack(eqx.Module):
    """All nodes of one layer of N(S): feature blocks and function blocks with a leading axis of nodes."""

    wiring: Wiring
    activations: tuple[str, ...] = eqx.field(static=True)  # σ of the nodes below
    features: tuple[FeatureBlock, ...]
    function: FunctionBlock  # per node; if joint, per output, over the features of the nodes it adds
    mean: Fixed | None
    log_noise: Float[Array, "s d"] | None
    n_nodes: int = eqx.field(static=True)
    joint: bool = eqx.field(static=True)

    def inputs(self, h: Float[Array, "below d_below *batch"]) -> Array:
        """{σ(f_j)}_{j ∈ In(i)}: what each node reads."""
        return self.wiring(_activate(h, self.activations))

    def phi(self, x: Array) -> tuple[Array, int | None, Float[Array, "s *batch"] | None]:
        """φ of every node, the axis of its nodes, and the variance left out by the last block."""
        phi, axis, left_out = x, self.wiring.axis, None
        for block in self.features:
            below, phi = phi, _features(block, phi, axis, self.n_nodes)
            if block is self.features[-1] and block.residual == "diagonal":
                left_out = jax.vmap(lambda block, x, phi: block.left_out(x, phi), in_axes=(0, axis, 0))(
                    block, below, phi
                )
            axis = 0
        return phi, axis, left_out

    def weights(self, key: PRNGKeyArray) -> Float[Array, "s d r"]:
        """A draw of V for every node."""
        n_blocks = jax.tree.leaves(self.function.posterior)[0].shape[0]
        v = jax.vmap(lambda q, key: q.sample(key))(self.function.posterior, jr.split(key, n_blocks))
        return self._by_node(v)

    def at(self, v: Float[Array, "s d r"]) -> "Stack":
        """The layer with given weights, node by node, as point masses."""
        bias, prior = self.function.bias, self.function.prior
        if self.joint:
            share = self.n_nodes // self.function.posterior.mean.shape[0]
            bias = None if bias is None else jnp.repeat(bias / share, share, axis=0)
            prior = jax.tree.map(lambda leaf: jnp.repeat(leaf, share, axis=0), prior)
        function = eqx.tree_at(
            lambda block: (block.posterior, block.bias, block.prior),
            self.function,
            (jax.vmap(PointMass)(v), bias, prior),
            is_leaf=lambda leaf: leaf is None,
        )
        return Stack(
            self.wiring, self.activations, self.features, function, self.mean, self.log_noise, self.n_nodes, False
        )

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Stack":
        """The layer with some of its nodes, which read nothing but the nodes `below`; not for joint layers."""
        chosen = np.asarray(nodes)
        features, function, mean, log_noise = jax.tree.map(
            lambda leaf: leaf[chosen], (self.features, self.function, self.mean, self.log_noise)
        )
        activations = tuple(self.activations[j] for j in below)
        return Stack(
            self.wiring.kept(nodes, below), activations, features, function, mean, log_noise, len(nodes), False
        )

    def _by_node(self, v: Float[Array, "blocks d mr"]) -> Float[Array, "s d r"]:
        """The weights of each node, from those of one block per output where the layer is joint."""
        if not self.joint:
            return v
        n_blocks, d, _ = v.shape
        return v.reshape(n_blocks, d, self.n_nodes // n_blocks, -1).swapaxes(1, 2).reshape(self.n_nodes, d, -1)

    def mean_weights(self) -> Float[Array, "s d r"]:
        """E V for every node."""
        return self._by_node(self.function.posterior.mean)

    def draw(self, h: Float[Array, "below d_below *batch"], key: PRNGKeyArray) -> Float[Array, "s d *batch"]:
        """f of every node for one draw of V, the same for every column."""
        weights_key, noise_key = jr.split(key)
        x = self.inputs(h)
        phi, axis, left_out = self.phi(x)
        f = jax.vmap(product, in_axes=(0, axis))(self.weights(weights_key), phi)
        variance = self._inner_variance(left_out, f)
        if variance is not None:
            # One ε per node and output: each column alone has the law of the layer, as a random bias would give it.
            f = f + root(variance) * jr.normal(noise_key, (*f.shape[:2], *(1,) * (f.ndim - 2)), f.dtype)
        return f + self.offset(x, f)

    def conditional(
        self, h: Float[Array, "below d_below *batch"], coins: Bool[Array, "s r *batch"] | None = None
    ) -> tuple[Float[Array, "blocks d *batch"], Float[Array, "blocks d *batch"] | None]:
        """Mean and variance of each f given the layer below; for dropout, given its coins as well.

        A variance of None is zero. With `coins=None` a dropout layer gives the mean over its coins.
        """
        x = self.inputs(h)
        phi, axis, left_out = self.phi(x)
        if self.joint:
            n_blocks = self.function.posterior.mean.shape[0]
            phi = phi if axis == 0 else jnp.broadcast_to(phi, (self.n_nodes, *phi.shape))
            phi, axis = phi.reshape(n_blocks, -1, *phi.shape[2:]), 0
        q = self.function.posterior
        if isinstance(q, Dropout):
            if coins is None:
                mean = jax.vmap(product, in_axes=(0, axis))(q.mean, phi)
            else:
                mean = jax.vmap(lambda q, phi, coins: q.project(phi, coins), in_axes=(0, axis, 0))(q, phi, coins)
            variance = None
        else:
            mean, variance = jax.vmap(lambda q, phi: q.moments(phi), in_axes=(0, axis))(q, phi)
        inner = self._inner_variance(left_out, mean)
        offset = self.offset(x, mean)
        if self.joint:
            offset = _add_up(offset, mean.shape[0])
            inner = None if inner is None else _add_up(inner, mean.shape[0])
        if inner is not None:
            variance = inner if variance is None else variance + inner
        return mean + offset, variance

    def noise(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> Noise:
        """Base noise for `batch` columns, of the kinds this layer needs."""
        normal_key, coins_key = jr.split(key)
        q = self.function.posterior
        n_blocks, d, r = q.mean.shape
        random = isinstance(q, Gaussian) or self.log_noise is not None or self._residual
        return Noise(
            jr.normal(normal_key, (n_blocks, d, *batch)) if random else None,
            jax.vmap(lambda q, key: q.coins(key, (r, *batch)))(q, jr.split(coins_key, n_blocks))
            if isinstance(q, Dropout)
            else None,
        )

    def kl(self, key: PRNGKeyArray) -> Float[Array, ""]:
        n_blocks = self.function.posterior.mean.shape[0]
        return jnp.sum(jax.vmap(lambda block, key: block.kl(key=key))(self.function, jr.split(key, n_blocks)))

    @property
    def is_random(self) -> bool:
        """Whether f varies given the layer below."""
        return not isinstance(self.function.posterior, PointMass) or self.log_noise is not None or self._residual

    @property
    def _residual(self) -> bool:
        return bool(self.features) and self.features[-1].residual == "diagonal"

    def _inner_variance(self, left_out: Array | None, like: Array) -> Array | None:
        """The variance that the layer adds by itself: what the inducing points leave out, and its noise."""
        shape = (self.n_nodes, like.shape[1], *like.shape[2:])
        variance = None if left_out is None else jnp.broadcast_to(left_out[:, None], shape)
        if self.log_noise is not None:
            noise = jnp.exp(2.0 * self.log_noise).reshape(*self.log_noise.shape, *(1,) * (like.ndim - 2))
            variance = jnp.broadcast_to(noise, shape) if variance is None else variance + noise
        return variance

    def offset(self, x: Array, like: Array) -> Array:
        """Bias and mean function of every node, in the shape of `like`."""
        offset = jnp.zeros((self.n_nodes, *like.shape[1:]), like.dtype)
        if self.mean is not None:
            offset = offset + jax.vmap(product, in_axes=(0, self.wiring.axis))(self.mean.value, x)
        if self.function.bias is not None:
            bias = self.function.bias
            if self.joint:
                share = self.n_nodes // bias.shape[0]
                bias = jnp.repeat(bias / share, share, axis=0)
            offset = offset + bias.reshape(*bias.shape, *(1,) * (like.ndim - 2))
        return offset


class Network(eqx.Module):
    """N(S): the Bayesian network that Algorithm 1 builds. A key is a draw: `network(x, key=k)` draws every V from q.

    The same key over many x is one sampled function; many keys are the posterior.

    >>> network = vb.build(vb.chain(2, 2), vb.mean_field([4, 1]), key=jr.key(0))
    >>> x = jnp.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])  # a column for each row of data
    >>> network(x, key=jr.key(1)).shape
    (1, 3)
    """

    skeleton: Skeleton = eqx.field(static=True)
    stacks: tuple[Stack, ...]

    def __call__(self, x: Float[Array, "p *batch"], *, key: PRNGKeyArray) -> Float[Array, "outputs *batch"]:
        """f(x) for one draw of all weights; x is one row, or the columns of many."""
        return self._total(self.terms(x, key=key))

    def terms(self, x: Float[Array, "p *batch"], *, key: PRNGKeyArray) -> Float[Array, "s d *batch"]:
        """The value of each top node for one draw of all weights; the outputs add these up."""
        h = x[:, None]
        for stack, stack_key in zip(self.stacks, jr.split(key, len(self.stacks)), strict=True):
            h = stack.draw(h, stack_key)
        return h

    def noise(self, key: PRNGKeyArray, batch: tuple[int, ...] = ()) -> tuple[Noise, ...]:
        """Base noise for draws that are independent from column to column."""
        keys = jr.split(key, len(self.stacks))
        *below, top = (stack.noise(key, batch) for stack, key in zip(self.stacks, keys, strict=True))
        return (*below, top._replace(normal=None))  # the top layer's moments are handed on, not drawn from

    def conditional(
        self, x: Float[Array, "p *batch"], noise: Sequence[Noise]
    ) -> tuple[Float[Array, "outputs *batch"], Float[Array, "outputs *batch"] | None]:
        """Mean and variance of f(x) over the top layer, given `noise` in the layers below: the doubly stochastic draw.

        Below the top each column has its own f = E f + √Var f · ε, so that only ε, not V, is drawn (the local
        reparameterisation). Where nothing below the top is random these are the exact moments of q(f).
        """
        h = x[:, None]
        for stack, (normal, coins) in zip(self.stacks[:-1], noise, strict=False):
            h, variance = stack.conditional(h, coins)
            if variance is not None:
                h = h + root(variance) * normal
        mean, variance = self.stacks[-1].conditional(h, noise[-1].coins)
        return self._total(mean), None if variance is None else self._total(variance)

    def mean(self, x: Float[Array, "p *batch"]) -> Float[Array, "outputs *batch"]:
        """f(x) with every V, and every noise inside, at its mean."""
        return self.conditional(x, tuple(Noise(jnp.zeros(()), None) for _ in self.stacks))[0]

    def at(self, weights: Sequence[LayerWeights]) -> "Network":
        """The network with given weights, `weights[layer][node]`, as point masses: the inverse of `weights`."""
        if len(weights) != len(self.stacks):
            raise ValueError(f"`weights` must have one entry per layer, {len(self.stacks)}, got {len(weights)}.")
        padded = (self._padded(level, given) for level, given in enumerate(weights))
        return Network(self.skeleton, tuple(stack.at(v) for stack, v in zip(self.stacks, padded, strict=True)))

    def weights(self, key: PRNGKeyArray | None = None) -> list[LayerWeights]:
        """The V of `network(x, key=key)`, `weights[layer][node]`, or without a key their means.

        Of a layer one array (nodes, d, r); where its nodes read different numbers of parents without feature blocks,
        so that r differs from node to node, one array (d, r) for each. Every number in them acts on f.

        >>> wide, narrow = vb.Node("h0", ("x0", "x1")), vb.Node("h1", ("x1",))
        >>> skeleton = vb.Skeleton(("x0", "x1"), ((wide, narrow),))
        >>> first, second = vb.build(skeleton, vb.mean_field([3]), key=jr.key(0)).weights()[0]
        >>> first.shape, second.shape
        ((3, 2), (3, 1))
        """
        drawn = self.stack_weights(key)
        return [v if (r := self._sizes(k)) is None else tuple(_cut(v, r)) for k, v in enumerate(drawn)]

    def stack_weights(self, key: PRNGKeyArray | None = None) -> list[Float[Array, "_ _ _"]]:
        """The same as one array per layer, with what stands in it for parents that a node does not have."""
        if key is None:
            return [stack.mean_weights() for stack in self.stacks]
        # the keys that `terms` draws V with
        keys = [jr.split(k)[0] for k in jr.split(key, len(self.stacks))]
        return [stack.weights(k) for stack, k in zip(self.stacks, keys, strict=True)]

    def _sizes(self, level: int) -> tuple[int, ...] | None:
        """r of each node of a layer, where it differs from node to node."""
        if self.stacks[level].function.live is None:
            return None
        width = self.stacks[level - 1].function.posterior.mean.shape[1] if level else 1
        return tuple(width * len(parents) for parents in self.skeleton.parents[level])

    def _padded(self, level: int, given: LayerWeights) -> Float[Array, "s d r"]:
        """Weights of one layer as its stack has them, with zeros for parents that a node does not have."""
        stack, sizes = self.stacks[level], self._sizes(level)
        n_blocks, d, r = stack.function.posterior.mean.shape
        if sizes is None:
            shape = stack.n_nodes, d, r * n_blocks // stack.n_nodes
            if jnp.shape(given) != shape:
                raise ValueError(
                    f"`weights[{level}]` must have the shape {shape}: nodes, d, r; got {jnp.shape(given)}."
                )
            return jnp.asarray(given)
        wanted, shapes = [(d, size) for size in sizes], [jnp.shape(v) for v in given]
        if shapes != wanted:
            raise ValueError(
                f"`weights[{level}]` must have one array (d, r) per node, of the shapes {wanted}, got {shapes}: nodes "
                "with fewer parents have fewer weights."
            )
        return jnp.stack([jnp.pad(v, ((0, 0), (0, r - size))) for v, size in zip(given, sizes, strict=True)])

    def subnetwork(self, node: int) -> "Network":
        """g_j: one top node and what it depends on, a function of its cluster's inputs alone; weights at their means.

        Names are by position, so that sub-networks of one shape share what is compiled for them.
        """
        levels = self.skeleton.ancestors(node)
        stacks = tuple(
            stack.at(stack.mean_weights()).kept(nodes, below)
            for stack, nodes, below in zip(self.stacks, levels[1:], levels[:-1], strict=True)
        )
        return Network(_renamed(self.skeleton, levels), stacks)

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
            h = stack.conditional(h)[0]
        top, n_outputs = self.stacks[-1], len(self.skeleton.outputs)
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

    def with_joint_top(self, posterior: Gaussian, prior: Normal) -> "Network":
        """The same network with one function block per output, over the features of all the nodes it adds."""
        top, n_outputs = self.stacks[-1], len(self.skeleton.outputs)
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
        stack = Stack(
            top.wiring, top.activations, top.features, function, top.mean, top.log_noise, top.n_nodes, joint=True
        )
        return Network(self.skeleton, (*self.stacks[:-1], stack))

    @property
    def n_outputs(self) -> int:
        return len(self.skeleton.outputs) * self.stacks[-1].function.posterior.mean.shape[1]

    @property
    def is_linear_in_v(self) -> bool:
        """Whether f is linear in everything uncertain: only the top layer is random, and Gaussian."""
        top = self.stacks[-1].function.posterior
        return isinstance(top, Gaussian) and not any(stack.is_random for stack in self.stacks[:-1])

    def _total(self, f: Float[Array, "nodes d *batch"]) -> Float[Array, "outputs *batch"]:
        groups = self.skeleton.output_parents
        if len(f) == len(groups) and (len(groups) < len(self.skeleton.layers[-1]) or _in_order(groups)):
            total = f
        elif len(groups) == 1:
            total = jnp.sum(f, axis=0, keepdims=True)
        else:
            total = jnp.stack([jnp.sum(f[jnp.asarray(group)], axis=0) for group in groups])
        return total.reshape(-1, *f.shape[2:])


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
    h = None if x is None else working(_rows(x, skeleton.n_inputs, rng).T)[:, None]
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
        stack = _stack(layer, wiring, activations, sizes[level + 1], n_blocks, width, h, rng)
        stacks.append(stack)
        activations = tuple(node.activation for node in skeleton.layers[level])
        width = layer.width
        if h is not None:
            h = _mean_of(stack, h) if any(map(_starts_from_data, layers[level + 1 :])) else None
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


def _stack(
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
    x = None if h is None or not _starts_from_data(layer) else np.asarray(_inputs_of(wiring, activations, h))
    shared = wiring.axis is None
    mean = None
    if layer.mean == "linear":
        mean = Fixed(working(np.stack(_per_node(x, n_nodes, shared, partial(_linear_mean, layer.width, n_inputs)))))
    features, n_features = [], n_inputs
    for position, block in enumerate(layer.features):
        places = [None] * n_nodes
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
    function = pile(
        [
            FunctionBlock(
                layer.posterior,
                layer.prior,
                n_features,
                layer.width,
                bias=layer.bias,
                live=None if live is None else live[i],
                rng=rng,
            )
            for i in range(n_blocks)
        ]
    )
    log_noise = None
    if layer.noise is not None:
        log_noise = working(np.full((n_nodes, layer.width), np.log(layer.noise)))
    return Stack(wiring, activations, tuple(features), function, mean, log_noise, n_nodes, layer.joint)


def pile(trees: Sequence[Any]) -> Any:
    """One tree with a leading axis from several of the same shape."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves])), *trees)


def _starts_from_data(layer: Layer) -> bool:
    return layer.mean is not None or any(isinstance(block, InducingPointBlock) for block in layer.features)


@eqx.filter_jit
def _mean_of(stack, h):
    return stack.conditional(h)[0]


@eqx.filter_jit
def _inputs_of(wiring, activations, h):
    return wiring(_activate(h, activations))


@eqx.filter_jit
def _features_of(block, x, shared, n_nodes):
    return _features(block, x, None if shared else 0, n_nodes)


def _features(block, x, axis, n_nodes):
    """φ of every node, (s, r, *batch). The size is said: a block of one's own may have no arrays to tell it."""
    return jax.vmap(lambda block, x: block(x), in_axes=(0, axis), axis_size=n_nodes)(block, x)


def root(variance: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√variance, with slope 0 instead of ∞ where the variance is 0."""
    positive = variance > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1.0)), 0.0)


def _activate(h: Float[Array, "s d *batch"], names: tuple[str, ...]) -> Float[Array, "s d *batch"]:
    """σ of each node, applied once per distinct activation."""
    if len(set(names)) == 1:
        return as_activation(names[0])(h)
    groups = {name: [i for i, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
    parts = [as_activation(name)(h[jnp.asarray(nodes)]) for name, nodes in groups.items()]
    order = np.argsort([i for nodes in groups.values() for i in nodes])
    return jnp.concatenate(parts)[jnp.asarray(order)]


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


def _cut(v: Float[Array, "s d r"], sizes: Sequence[int]) -> list[Float[Array, "d _"]]:
    """The weights that each node has."""
    return [own[:, :size] for own, size in zip(v, sizes, strict=True)]


def _in_order(groups: tuple[tuple[int, ...], ...]) -> bool:
    return groups == tuple((i,) for i in range(len(groups)))


def _add_up(f: Float[Array, "s d *batch"], n_blocks: int) -> Float[Array, "blocks d *batch"]:
    return jnp.sum(f.reshape(n_blocks, -1, *f.shape[1:]), axis=1)


def _rows(x: ArrayLike, n_inputs: int, rng: np.random.Generator) -> np.ndarray:
    rows = np.asarray(x)
    if rows.ndim != 2 or rows.shape[1] != n_inputs:
        raise ValueError(f"`x` must have the shape (n, {n_inputs}), got {rows.shape}.")
    if not len(rows) or not np.issubdtype(rows.dtype, np.number) or not np.isfinite(rows).all():
        raise ValueError("`x` must have rows of numbers, and no missing or infinite values.")
    return rows if len(rows) <= 2000 else rows[rng.choice(len(rows), 2000, replace=False)]


def _per_node(
    x: np.ndarray | None, n_nodes: int, shared: bool, of: Callable[[np.ndarray | None], np.ndarray]
) -> list[np.ndarray]:
    """of(rows) for what each node reads; once for all where the nodes read the same."""
    if x is None or shared:
        return [of(None if x is None else x.T)] * n_nodes
    return [of(node.T) for node in x]


def _linear_mean(d: int, n_inputs: int, rows: np.ndarray | None) -> np.ndarray:
    """The fixed skip: identity, padding, or the leading principal directions of the rows."""
    if rows is None or n_inputs <= d:
        return np.eye(d, n_inputs)
    directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:d]
    return np.concatenate([directions, np.eye(d - len(directions), n_inputs)])
