"""All nodes of one layer of N(S), stacked: their arrays have a leading axis s, and the layer runs as one product.

Inside, values are columns: h has the shape (s, d, *batch), node by node, and one row of data has no batch axis.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from vertebra.machine.devices import placed
from vertebra.networks.blocks import FeatureBlock, FunctionBlock
from vertebra.networks.divergence import kl_is_exact
from vertebra.networks.features import product
from vertebra.networks.parameters import Fixed, is_traced
from vertebra.networks.posteriors import Gaussian, Members, PointMass
from vertebra.networks.wiring import Copies, Wiring, activate, side_by_side

Tree = TypeVar("Tree")


class Noise(NamedTuple):
    """The base noise of one layer for draws that are independent from column to column."""

    normal: PyTree[Float[Array, "s d *batch"]]  # None where nothing is normal; of each part of a layer that has some
    rows: PyTree  # what each posterior's `project` draws with: the coins of dropout, or a key


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
    copies: Copies | None = eqx.field(static=True, default=None, repr=False)
    # The block of each node, where some share one: features, function, mean and log_noise are then per block.
    ties: tuple[int, ...] | None = eqx.field(static=True, default=None, repr=False)

    def inputs(self, h: Float[Array, "below d_below *batch"]) -> Array:
        """{σ(f_j)}_{j ∈ In(i)}: what each node reads."""
        return self.wiring(activate(h, self.activations))

    def carried(
        self, f: Float[Array, "s d *batch"], h: Float[Array, "below d_below *batch"]
    ) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer, from f of those that compute: the others have what they read."""
        if self.copies is None:
            return f
        copies = self.copies
        read = copies.read(activate(h, self.activations))
        return side_by_side([f, read], [copies.computing, copies.nodes], copies.width)

    def drawn(self, h: Float[Array, "below d_below *batch"], key: PRNGKeyArray) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer for one draw of V, the same for every column."""
        return self.carried(self.draw(h, key), h)

    def columns(self, h: Float[Array, "below d_below *batch"], noise: Noise) -> Float[Array, "nodes width *batch"]:
        """The values of all nodes of the layer, every column by itself: f = E f + √Var f · ε; without noise E f."""
        f, variance = self.conditional(h, noise.rows)
        if variance is not None and noise.normal is not None:
            f = f + root(variance) * noise.normal
        return self.carried(f, h)

    @property
    def parts(self) -> tuple["Stack"]:
        """The stacks that the layer is made of: itself."""
        return (self,)

    def times(self, c: float) -> "Stack":
        """c · f, c > 0: its weights and biases, Gaussian or point masses, times c."""
        q, bias = self.function.posterior, self.function.bias
        if not isinstance(q, Gaussian | PointMass) or self.mean is not None or self.adds_variance:
            raise ValueError(
                "`times` needs a top layer with a Gaussian or a PointMass, without a mean function and noise, got "
                f"{type(q).__name__}."
            )
        posterior = eqx.tree_at(lambda q: q.mean, q, c * q.mean)
        if isinstance(q, Gaussian):
            posterior = eqx.tree_at(
                lambda q: q.covariance, posterior, jax.vmap(lambda each: each.times(c))(q.covariance)
            )
        function = eqx.tree_at(
            lambda block: (block.posterior, block.bias),
            self.function,
            (posterior, None if bias is None else c * bias),
            is_leaf=lambda leaf: leaf is None,
        )
        return replace(self, function=function)

    def blocks_of(self, nodes: Sequence[int]) -> list[int]:
        """The function blocks of some nodes of the layer, node by node; where all of them copy, the first one's."""
        if self.copies is None:
            return list(nodes)
        return [self.copies.computing.index(i) for i in nodes if i not in self.copies.nodes] or [0]

    def _each(self, tree: Tree) -> Tree:
        """What each node has, from what each block has: tied nodes have the same."""
        if self.ties is None:
            return tree
        return jax.tree.map(lambda leaf: leaf[np.asarray(self.ties)], tree)

    def phi(self, x: Array) -> tuple[Array, int | None, Float[Array, "s *batch"] | None]:
        """φ of every node, the axis of its nodes, and the variance left out by the last block."""
        phi, axis, left_out = x, self.wiring.axis, None
        for position, own in enumerate(self.features, start=1):
            block = self._each(own)
            below, phi = phi, features_of_nodes(block, phi, axis, self.n_nodes)
            if position == len(self.features) and block.residual == "diagonal":
                left_out = jax.vmap(lambda block, x, phi: block.left_out(x, phi), in_axes=(0, axis, 0))(
                    block, below, phi
                )
            axis = 0
        return phi, axis, left_out

    def weights(self, key: PRNGKeyArray) -> Float[Array, "s d r"]:
        """A draw of V for every node."""
        v = jax.vmap(lambda q, key: q.sample(key))(self.function.posterior, jr.split(key, self.n_blocks))
        return self._each(self._by_node(v))

    def drawn_weights(self, key: PRNGKeyArray) -> Float[Array, "s d r"]:
        """The V of `drawn(h, key)`."""
        return self.weights(jr.split(key)[0])

    def at(self, v: Float[Array, "s d r"]) -> "Stack":
        """The layer with given weights, node by node, as point masses; of tied nodes those of the first."""
        prior = self.function.prior
        if self.ties is not None:
            v = v[np.asarray([self.ties.index(b) for b in range(self.n_blocks)])]
        if self.joint:
            prior = jax.tree.map(lambda leaf: jnp.repeat(leaf, self.n_nodes // self.n_blocks, axis=0), prior)
        function = eqx.tree_at(
            lambda block: (block.posterior, block.bias, block.prior),
            self.function,
            (jax.vmap(PointMass)(v), self._node_bias() if self.joint else self.function.bias, prior),
            is_leaf=lambda leaf: leaf is None,
        )
        return replace(self, function=function, joint=False)

    def at_mean(self) -> "Stack":
        """The layer with its weights at their means, as point masses."""
        return self.at(self.mean_weights())

    def kept(self, nodes: Sequence[int], below: Sequence[int]) -> "Stack":
        """The layer with some of its nodes, which read nothing but the nodes `below`; not for joint layers."""
        blocks = self.blocks_of(nodes)
        # tied nodes get a block each, with the same weights
        chosen = np.asarray(blocks if self.ties is None else [self.ties[b] for b in blocks])
        features, function, mean, log_noise = jax.tree.map(
            lambda leaf: leaf[chosen], (self.features, self.function, self.mean, self.log_noise)
        )
        activations = tuple(self.activations[j] for j in below)
        wiring = self.wiring.kept(blocks, below)
        copies = None if self.copies is None else self.copies.kept(nodes, below)
        return Stack(wiring, activations, features, function, mean, log_noise, len(blocks), joint=False, copies=copies)

    def weights_of(self, v: Float[Array, "s d r"], nodes: Sequence[int]) -> Float[Array, "kept d r"]:
        """The weights of `kept(nodes, …)` among those of all nodes."""
        return v[np.asarray(self.blocks_of(nodes))]

    def _by_node(self, v: Float[Array, "blocks d mr"]) -> Float[Array, "s d r"]:
        """The weights of each node, from those of one block per output where the layer is joint."""
        if not self.joint:
            return v
        n_blocks, d, _ = v.shape
        return v.reshape(n_blocks, d, self.n_nodes // n_blocks, -1).swapaxes(1, 2).reshape(self.n_nodes, d, -1)

    def mean_weights(self) -> Float[Array, "s d r"]:
        """E V for every node."""
        return self._each(self._by_node(jax.vmap(lambda q: q.mean)(self.function.posterior)))

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
        self, h: Float[Array, "below d_below *batch"], noise: PyTree = None
    ) -> tuple[Float[Array, "blocks d *batch"], Float[Array, "blocks d *batch"] | None]:
        """Mean and variance of each f given the layer below; given the noise of its rows, where q draws with some.

        A variance of None is zero. Without noise a layer that is not Gaussian has V at its mean.
        """
        x = self.inputs(h)
        phi, axis, left_out = self._met(x)
        if self.ties is None:
            mean, variance = jax.vmap(lambda q, phi, noise: q.conditional(phi, noise), in_axes=(0, axis, 0))(
                self.function.posterior, phi, noise
            )
        else:
            # Tied nodes vary together, which moments node by node would not say: one V for all of them, and all rows.
            v = (
                self.mean_weights()
                if noise is None
                else self._each(jax.vmap(lambda q, k: q.sample(k))(self.function.posterior, noise))
            )
            mean, variance = jax.vmap(product, in_axes=(0, axis))(v, phi), None
        inner = self._inner_variance(left_out, mean)
        if inner is not None:
            inner = _add_up(inner, mean.shape[0]) if self.joint else inner
            variance = inner if variance is None else variance + inner
        return mean + self._block_offset(x, mean), variance

    def shifted(
        self, h: Float[Array, "below d_below *batch"], shift: Float[Array, "blocks d *batch"]
    ) -> tuple[Float[Array, "blocks d *batch"], Float[Array, "blocks r *batch"]]:
        """f = Vφ + shift (+ b) with V at its mean, and φ: of every node, or of outputs where the layer is joint."""
        x = self.inputs(h)
        phi, axis, _ = self._met(x)
        phi = phi if axis == 0 else jnp.broadcast_to(phi, (self.n_nodes, *phi.shape))
        f = jax.vmap(product)(self._each(jax.vmap(lambda q: q.mean)(self.function.posterior)), phi) + shift
        return f + self._block_offset(x, f), phi

    @property
    def unit_shape(self) -> tuple[int, int]:
        """How many values of f there are: nodes, or outputs where the layer is joint, and d."""
        return (self.n_blocks if self.ties is None else self.n_nodes), self.width

    def by_block(self, of_nodes: Array, axis: int) -> Array:
        """What each function block has, along an axis, from what each node has: the sum over those that are tied."""
        if self.ties is None:
            return of_nodes
        together = jax.ops.segment_sum(jnp.moveaxis(of_nodes, axis, 0), jnp.asarray(self.ties), self.n_blocks)
        return jnp.moveaxis(together, 0, axis)

    def _met(self, x: Array) -> tuple[Array, int | None, Array | None]:
        """φ that function blocks meet, as `phi`: where the layer is joint, those of all nodes of an output."""
        phi, axis, left_out = self.phi(x)
        if self.joint:
            phi = phi if axis == 0 else jnp.broadcast_to(phi, (self.n_nodes, *phi.shape))
            phi, axis = phi.reshape(self.n_blocks, -1, *phi.shape[2:]), 0
        return phi, axis, left_out

    def _block_offset(self, x: Array, like: Array) -> Array:
        """What is added to Vφ of every function block, in the shape of `like`."""
        offset = self.offset(x, like)
        return _add_up(offset, like.shape[0]) if self.joint else offset

    def noise(self, key: PRNGKeyArray, batch: tuple[int, ...], member: Int[Array, "*batch"] | None = None) -> Noise:
        """Base noise for `batch` columns, of the kinds this layer needs; of `Members` which one each column meets."""
        normal_key, rows_key = jr.split(key)
        q = self.function.posterior
        n_blocks, d, _ = self.shape
        if self.ties is not None:
            shape = (self.n_nodes, d, *batch)
            normal = jr.normal(normal_key, shape) if self.adds_variance else None
            return Noise(normal, jr.split(rows_key, n_blocks) if q.is_random else None)
        if isinstance(q, Members) and member is not None:
            rows = jnp.broadcast_to(member, (n_blocks, *member.shape))
        else:
            rows = jax.vmap(lambda q, key: q.row_noise(key, batch))(q, jr.split(rows_key, n_blocks))
        is_normal = q.is_gaussian or self.adds_variance
        return Noise(jr.normal(normal_key, (n_blocks, d, *batch)) if is_normal else None, rows)

    def kl(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """KL(q(V) ‖ p(V)) of all its nodes."""
        return jnp.sum(jax.vmap(lambda block, key: block.kl(key=key))(self.function, jr.split(key, self.n_blocks)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many function blocks there are, and the d and r of each V: one per node, or for all that are tied, or if
        joint per output."""
        q = self.function.posterior
        field = vars(q).get("mean")  # piled up with the rest; of a property a trace has to tell
        return jax.eval_shape(jax.vmap(lambda q: q.mean), q).shape if field is None else field.shape

    @property
    def n_blocks(self) -> int:
        return self.shape[0]

    @property
    def width(self) -> int:
        """d."""
        return self.shape[1]

    @property
    def kl_is_exact(self) -> bool:
        """Whether KL(q ‖ p) is known by a rule; else it is estimated from a draw."""
        return kl_is_exact(self.function.posterior, self.function.prior)

    @property
    def n_members(self) -> int:
        """k of `Members`, else 1."""
        q = self.function.posterior
        return q.k if isinstance(q, Members) else 1

    def member(self, m: int | Int[Array, ""]) -> "Stack":
        """The layer with the weights of one of its `Members`, as point masses."""
        q = self.function.posterior
        if not isinstance(q, Members):
            return self
        alone = jax.vmap(lambda q: PointMass(q.member(m)))(q)
        return replace(self, function=eqx.tree_at(lambda block: block.posterior, self.function, alone))

    @property
    def is_random(self) -> bool:
        """Whether f varies given the layer below."""
        return self.function.posterior.is_random or self.adds_variance

    @property
    def has_moments(self) -> bool:
        """Whether mean and variance of f given the layer below are known without draws."""
        q = self.function.posterior
        return not q.is_random or (q.is_gaussian and self.ties is None)

    @property
    def adds_variance(self) -> bool:
        """Whether f varies beside its weights: by noise inside the layer, or what inducing points leave out."""
        return self.log_noise is not None or self._residual

    @property
    def _residual(self) -> bool:
        return bool(self.features) and self.features[-1].residual == "diagonal"

    def _inner_variance(self, left_out: Array | None, like: Array) -> Array | None:
        """The variance that the layer adds by itself: what the inducing points leave out, and its noise."""
        shape = (self.n_nodes, like.shape[1], *like.shape[2:])
        variance = None if left_out is None else jnp.broadcast_to(left_out[:, None], shape)
        if self.log_noise is not None:
            noise = jnp.exp(2.0 * self._each(self.log_noise))
            noise = noise.reshape(*noise.shape, *(1,) * (like.ndim - 2))
            variance = jnp.broadcast_to(noise, shape) if variance is None else variance + noise
        return variance

    def offset(self, x: Array, like: Array) -> Array:
        """Bias and mean function of every node, in the shape of `like`."""
        offset = jnp.zeros((self.n_nodes, *like.shape[1:]), like.dtype)
        if self.mean is not None:
            offset = offset + jax.vmap(product, in_axes=(0, self.wiring.axis))(self._each(self.mean.value), x)
        bias = self._node_bias()
        if bias is not None:
            offset = offset + bias.reshape(*bias.shape, *(1,) * (like.ndim - 2))
        return offset

    def _node_bias(self) -> Float[Array, "s d"] | None:
        """The bias of each node: an equal share of its block's."""
        bias, share = self.function.bias, self.n_nodes // self.n_blocks
        return jnp.repeat(bias / share, share, axis=0) if self.joint and bias is not None else self._each(bias)


def features_of_nodes(block, x, axis, n_nodes):
    """φ of every node, (s, r, *batch). The size is said: a block of one's own may have no arrays to tell it."""
    return jax.vmap(lambda block, x: block(x), in_axes=(0, axis), axis_size=n_nodes)(block, x)


def _add_up(f: Float[Array, "s d *batch"], n_blocks: int) -> Float[Array, "blocks d *batch"]:
    return jnp.sum(f.reshape(n_blocks, -1, *f.shape[1:]), axis=1)


def root(variance: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√variance, with slope 0 instead of ∞ where the variance is 0."""
    positive = variance > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1.0)), 0.0)


def pile(trees: Sequence[Tree]) -> Tree:
    """One tree with a leading axis from several of the same shape."""

    def together(*leaves):
        if is_traced(*leaves):
            return jnp.stack(leaves)
        return placed(np.stack([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(together, *trees)
