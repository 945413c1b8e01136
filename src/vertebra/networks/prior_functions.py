"""The prior view: functions before data, and the Gaussian processes that wide networks become.

Given the features, the prior of a layer is a Gaussian process with the empirical kernel K̂ = φᵀφ (Proposition 1). With
features and widths growing, the whole network becomes one with the kernel `dual_kernel`, composed layer by layer.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from vertebra.machine.checks import check_count
from vertebra.machine.devices import cut, padded
from vertebra.networks.activations import dual
from vertebra.networks.blocks import BlockWithDual, FeatureBlock, InducingPointBlock, RandomFeatureBlock
from vertebra.networks.kernels import Kernel
from vertebra.networks.keys import fast
from vertebra.networks.layer import Layer, LayerOrLayers, by_kind
from vertebra.networks.layout import carriers, check_kinds
from vertebra.networks.mixed import Mixed
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision, is_traced, overridden
from vertebra.networks.posteriors import PointMass
from vertebra.networks.priors import Normal, only
from vertebra.networks.skeleton import Skeleton
from vertebra.networks.stack import Stack


def empirical_kernel(block: FeatureBlock, x: ArrayLike, x2: ArrayLike | None = None) -> Float[Array, "n n2"]:
    """K̂(x, x') = φ(x)ᵀφ(x') of a feature block with its arrays, for rows x and x2 (x again unless given).

    >>> block = vb.RandomFeatureBlock(2000, kernel=vb.RBF(1.0)).init(1, rng=np.random.default_rng(0))
    >>> print(vb.empirical_kernel(block, np.array([[0.0], [1.0]])).round(1))
    [[1.  0.6]
     [0.6 1. ]]
    """
    rows = in_working_precision(_as_array(x))
    others = rows if x2 is None else in_working_precision(_as_array(x2))
    return block(rows.T).T @ block(others.T)


def _as_array(x: ArrayLike) -> np.ndarray | Array:
    return jnp.asarray(x) if is_traced(x) else np.asarray(x)


def draw_prior(network: Network, *, key: PRNGKeyArray) -> Network:
    """The network with every V drawn from its prior, as point masses. Trained biases stay as they are.

    >>> network = vb.build(vb.chain(2, 2), vb.mean_field([4, 1]), key=jr.key(0))
    >>> f = vb.draw_prior(network, key=jr.key(1))
    >>> f.mean(jnp.ones((2, 3))).shape
    (1, 3)
    """
    keys = jr.split(key, len(network.stacks))
    stacks = []
    for stack, stack_key in zip(network.stacks, keys, strict=True):
        if isinstance(stack, Mixed):
            stacks.append(stack.changed(_draw_stack, list(jr.split(stack_key, len(stack.parts)))))
        else:
            stacks.append(_draw_stack(stack, stack_key))
    return Network(network.skeleton, tuple(stacks))


def _draw_stack(stack: Stack, key: PRNGKeyArray) -> Stack:
    n_blocks, d, r = stack.shape

    def draw(block, key):
        return PointMass(block.prior.sample(key, d, r, **only(None if block.live is None else block.live.value)))

    drawn = jax.vmap(draw)(stack.function, jr.split(key, n_blocks))
    return eqx.tree_at(lambda s: s.function.posterior, stack, drawn)


def sample_prior(
    network: Network, x: ArrayLike, *, key: PRNGKeyArray, n_draws: int = 100
) -> Float[Array, "draws n outputs"]:
    """Draws of f(x) before data, each one function at all rows: what the network expects of the world.

    >>> network = vb.build(vb.chain(2, 2), vb.mean_field([4, 1]), key=jr.key(0))
    >>> vb.sample_prior(network, np.zeros((3, 2)), key=jr.key(1), n_draws=50).shape
    (50, 3, 1)
    """
    rows = _as_array(x)
    if rows.ndim != 2 or rows.shape[1] != network.skeleton.n_inputs:
        raise ValueError(f"`x` must have the shape (n, {network.skeleton.n_inputs}), got {rows.shape}.")
    check_count(n_draws=n_draws)
    rows, n = padded(rows)
    return cut(_sample_prior(network, rows, jr.split(fast(key), n_draws)), n, axis=1)


@eqx.filter_jit
def _sample_prior(network, x, keys):
    def one_function(key):
        weights_key, noise_key = jr.split(key)
        return draw_prior(network, key=weights_key)(x.T, key=noise_key).T

    return jax.lax.map(one_function, keys)


class _Covariance(NamedTuple):
    """Covariances of a quantity at rows x and z: with itself at x, across, with itself at z."""

    xx: Float[Array, "n 1"]
    xz: Float[Array, "n n2"]
    zz: Float[Array, "1 n2"]


def dual_kernel(
    skeleton: Skeleton, layers: Sequence[LayerOrLayers], x: ArrayLike, x2: ArrayLike | None = None
) -> Float[Array, "outputs n n2"]:
    """Cov(f(x), f(x')) of the infinitely wide network: the compositional kernel of a skeleton with its layers.

    Layer by layer, what a node reads has inner products S, its blocks turn S into K, and its prior K into the
    covariance C = s²K of f; σ between the layers turns C into E σ(f)σ(f'), of which each width adds one term to the
    next S. Exact for one layer with r → ∞, and beyond it in the limit of wide layers, where S tends to its mean. The
    widths given set the scale (default length scales and fan-in priors divide by them). Trained biases have a flat
    prior and are left out; there is no such kernel with sparse priors, layer noise or linear mean functions. It may be
    differentiated, compiled and mapped over x and over the hyper-parameters that its layers are made with.

    >>> layers = vb.random_features([1], kernel=vb.RBF(1.0))
    >>> print(vb.dual_kernel(vb.chain(1, 1), layers, np.array([[0.0], [1.0]]))[0].round(1))
    [[1.  0.6]
     [0.6 1. ]]
    """
    if len(layers) != skeleton.depth:
        raise ValueError(
            f"`layers` must have one entry per layer of the skeleton, {skeleton.depth}, got {len(layers)}."
        )
    if any(len(c) < len(layer) for c, layer in zip(skeleton.computing, skeleton.layers, strict=True)):
        raise ValueError("`skeleton` must have no nodes that copy: what they hand on is not Gaussian with the rest.")
    if any(ties is not None for ties in skeleton.ties):
        raise ValueError("`skeleton` must have no tied nodes: their values are correlated, which is not followed here.")
    kinds = [by_kind(layer, carriers(skeleton, level)) for level, layer in enumerate(layers)]
    for level, own in enumerate(kinds):
        check_kinds(skeleton, level, own)
        for kind, _ in own:
            _check_dual(kind, level + 1)
    rows = _as_array(x)
    others = rows if x2 is None else _as_array(x2)
    for name, values in (("x", rows), ("x2", others)):
        if values.ndim != 2 or values.shape[1] != skeleton.n_inputs:
            raise ValueError(f"`{name}` must have the shape (n, {skeleton.n_inputs}), got {values.shape}.")
    nodes, widths = [], (1,) * skeleton.n_inputs
    for own, parents in zip(kinds, skeleton.parents, strict=True):
        found = {}
        for kind, places in own:
            n_inputs = max(sum(widths[j] for j in parents[i]) for i in places)
            sizes = [n_inputs, *(block.r for block in kind.features)]
            blocks = cast(tuple[BlockWithDual, ...], kind.features)  # as `_check_dual` found
            kernels = tuple(block.dual(size) for block, size in zip(blocks, sizes, strict=False))
            found |= {i: _WideNode(kind, kernels, n_inputs, tuple(widths[j] for j in parents[i])) for i in places}
        nodes.append(tuple(found[i] for i in range(len(parents))))
        widths = tuple(node.layer.width for node in nodes[-1])
    return _dual_kernel(skeleton, tuple(nodes), in_working_precision(rows), in_working_precision(others))


class _WideNode(NamedTuple):
    """A node in the limit: its layer, the kernels of its blocks, how many values these read, and who brings them."""

    layer: Layer
    kernels: tuple[Kernel, ...]
    n_inputs: int  # with padding up to the node of its kind that reads most
    widths: tuple[int, ...]  # values of each parent


def _check_dual(layer: Layer, level: int) -> None:
    """Refuses layers without a dual kernel."""
    if not isinstance(layer.prior, Normal):
        raise ValueError(
            f"Layer {level} has the prior {type(layer.prior).__name__}: only a Normal prior makes a Gaussian process."
        )
    for field in ("mean", "noise"):
        if getattr(layer, field) is not None:
            raise ValueError(f"Layer {level} has `{field}={getattr(layer, field)!r}`: leave it out for a dual kernel.")
    for block in layer.features:
        if not isinstance(block, BlockWithDual):
            raise ValueError(f"Layer {level}: {type(block).__name__} has no method `dual(n_inputs)` giving its kernel.")
        for base in (RandomFeatureBlock, InducingPointBlock):
            changed = isinstance(block, base) and overridden(block, base, ("__call__", "w", "whitener", "init"))
            if changed and not overridden(block, base, ("dual",)):
                raise ValueError(
                    f"Layer {level}: {type(block).__name__} has a `{changed[0]}` of its own and the `dual` of "
                    f"{base.__name__}: give it the method `dual(n_inputs)` of its own features."
                )


@eqx.filter_jit
def _dual_kernel(skeleton, nodes, x, z):
    below = [
        _Covariance(x[:, i, None] ** 2, x[:, i, None] * z[None, :, i], z[None, :, i] ** 2) for i in range(x.shape[1])
    ]
    activations = ["identity"] * len(below)
    for level, own in enumerate(nodes):
        active = [_activate(dual(name), c) for name, c in zip(activations, below, strict=True)]
        parents = skeleton.parents[level]
        below = [_node(node, [active[j] for j in read]) for node, read in zip(own, parents, strict=True)]
        activations = [node.activation for node in skeleton.layers[level]]
    return jnp.stack([sum(below[j].xz for j in group) for group in skeleton.output_parents])


def _activate(of, c):
    """E σ(f) σ(f') from the covariance of f."""
    return _Covariance(of(c.xx, c.xx, c.xx), of(c.xx, c.xz, c.zz), of(c.zz, c.zz, c.zz))


def _node(node, reads):
    """C = s²K of one node, from the second moments of what it reads."""
    layer, kernels, n_inputs, widths = node
    ends = np.cumsum(widths)

    def products(weights):
        shares = [weights[end - width : end].sum() for width, end in zip(widths, ends, strict=True)]
        return _add([_times(share, read) for share, read in zip(shares, reads, strict=True)])

    n_features = sum(widths)  # without the padding of nodes with fewer parents
    for block, kernel in zip(layer.features, kernels, strict=True):
        moments = _of_kernel(kernel, products, n_inputs)
        # r exchangeable features have the inner product K, and a weighted one of K times the mean weight.
        products = lambda weights, moments=moments: _times(weights.mean(), moments)  # noqa: E731
        n_inputs = n_features = block.r
    return _times(layer.prior.sd(n_features) ** 2, products(jnp.ones(n_inputs)))


def _of_kernel(kernel, products, n_inputs):
    def at(*fields):
        return kernel.of_products(lambda weights: tuple(getattr(products(weights), f) for f in fields), n_inputs)

    return _Covariance(at("xx", "xx", "xx"), at("xx", "xz", "zz"), at("zz", "zz", "zz"))


def _times(scale, c):
    return _Covariance(*(scale * part for part in c))


def _add(covariances: list[_Covariance]) -> _Covariance:
    return reduce(lambda a, b: _Covariance(a.xx + b.xx, a.xz + b.xz, a.zz + b.zz), covariances)
