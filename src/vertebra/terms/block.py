"""The default model's functions as a feature block, and a sum of terms as the network that Algorithm 1 builds of it.

One block holds the products of a cluster's functions, one node adds them up, and the Gaussian posterior of the last
layer is that of the coefficients: the same f, mean, variance and effects, by the road of the paper's networks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from vertebra.networks.build import build
from vertebra.networks.covariances import Full
from vertebra.networks.features import product
from vertebra.networks.kernels import PRECISE
from vertebra.networks.layer import Layer
from vertebra.networks.network import Network
from vertebra.networks.parameters import Fixed, in_working_precision
from vertebra.networks.posteriors import Gaussian
from vertebra.networks.priors import Normal
from vertebra.networks.skeleton import additive
from vertebra.networks.stack import pile
from vertebra.terms.functions import FARTHEST, System, rank_curve
from vertebra.terms.sum_of_terms import SumOfTerms, triangular
from vertebra.terms.term import Term, maximal

# The diagonal of a root of a covariance is written by its logarithm: 0, of what is certain, becomes this, whose square
# is nothing beside any variance, and which single precision can still hold.
CERTAIN = 1e-30


class Tables(NamedTuple):
    """What `System` holds, as arrays of one shape for all inputs: in NumPy, on the device, or each marked `Fixed`."""

    low: Any
    width: Any
    is_level: Any  # 1 or 0
    breaks: Any  # (b,), of the rank's cubic pieces
    cubic: Any  # (4, b)
    last_piece: Any
    smooth: Any  # (d, k): Legendre polynomials of the coordinate times this
    knots: Any  # (g,)
    last_knot: Any
    table: Any  # (g, k) at the knots; lines between them
    missing: Any  # (k,)
    unseen: Any  # (k,)
    least: Any  # the range of a number, and how wide it is
    spread: Any
    between: Any  # of a discrete number, 1 over the steps from the least to the largest; else 0
    growing: Any  # (k,): 1 for the function of what no row has


class BasisBlock(eqx.Module):
    """φ_j(x) = scale_j Π_i φ_{k_ji}(x_i): products of each input's own functions, nothing trained.

    `systems` are the functions of each input that the block reads (families, levels, gaps), `index` (r, inputs) the
    place of each product's functions in them, 0 the constant; `scale` is 1 unless given.
    A finite-rank kernel K̂ = φᵀφ whose ANOVA components are known in advance: a product belongs to the term of the
    inputs whose function is not the constant. NaN is a missing value, −1 of a category a level never seen.

    >>> from vertebra.terms.functions import system_of
    >>> x = np.random.default_rng(0).random((100, 2))
    >>> systems = [system_of(column, np.ones(100)) for column in x.T]
    >>> block = vb.BasisBlock(systems, index=np.array([[1, 0], [1, 2]]))
    >>> round(float(jnp.mean(block(jnp.asarray(x.T))[0] ** 2)), 2)
    1.0
    """

    r: int = eqx.field(static=True)
    tables: Any  # Tables, each Fixed, with an axis of the inputs
    index: Fixed
    scale: Fixed

    residual = None

    def __init__(
        self,
        systems: Sequence[System],
        index: Int[np.ndarray, "r inputs"],
        scale: Float[np.ndarray, " r"] | None = None,
        *,
        like: Sequence[System] = (),
    ):
        """`like` are systems of other nodes of the layer, whose arrays must have one shape."""
        shapes = [_tables(system) for system in (*systems, *like)]
        self.r = len(index)
        self.tables = Tables(*(Fixed(each) for each in _stacked(shapes[: len(systems)], shapes)))
        self.index = Fixed(jnp.asarray(index, jnp.int32))
        self.scale = Fixed(in_working_precision(np.ones(len(index)) if scale is None else scale))

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "BasisBlock":
        """The block itself; its arrays came with it."""
        if n_inputs != self.index.value.shape[-1]:
            raise ValueError(f"`systems` must be those of {n_inputs} inputs, got {self.index.value.shape[-1]}.")
        return self

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        tables = Tables(*(each.value for each in self.tables))
        values = jax.vmap(_values)(tables, x.reshape(len(x), -1))
        phi = jnp.broadcast_to(self.scale.value[:, None], (self.r, values.shape[2]))
        for i in range(len(x)):
            phi = phi * values[i][self.index.value[:, i]]
        return phi.reshape(self.r, *x.shape[1:])


def network_of(terms: SumOfTerms) -> Network:
    """The sum of terms as a network on its skeleton: a node per cluster, their weights jointly Gaussian.

    The prior of its weights is not that of the fit, which is not kept: only the posterior means anything.
    """
    if any(terms.are_draws):
        raise ValueError("as_network needs a Gaussian posterior: that of a model with `monotone` is not.")
    systems, n_outputs = terms.basis.systems, terms.n_outputs
    clusters = maximal(terms.basis.terms) or ((0,),)
    index, homes = _by_cluster(terms, clusters)
    r, order = max(map(len, index)), max(map(len, clusters))
    blocks = []
    for cluster, own in zip(clusters, index, strict=True):
        # a node with fewer inputs or products than others has constants of any input, and products times 0
        padded = np.zeros((r, order), dtype=int)
        padded[: len(own), : len(cluster)] = own
        inputs = [systems[i] for i in (*cluster, *cluster[:1] * (order - len(cluster)))]
        blocks.append(BasisBlock(inputs, padded, (np.arange(r) < len(own)).astype(float), like=systems))
    layer = Layer(n_outputs, blocks[:1], Gaussian("full"), Normal(), joint=True)
    skeleton = additive(len(systems), clusters=clusters, depth=1, activation="identity")
    # Algorithm 1 gives all nodes the first one's functions: each gets its own
    network = build(skeleton, [layer], key=jr.key(0))
    network = eqx.tree_at(lambda n: n.stacks[-1].features, network, (pile(blocks),))
    mean = np.zeros((1, n_outputs, r * len(clusters)))
    mean[0][:, homes] = terms.means
    factors = np.stack([_factor(root, homes, mean.shape[2]) for root in terms.roots])[None]
    posterior = jax.vmap(lambda m, f: Gaussian(Full.of(f), mean=m))(
        in_working_precision(mean), in_working_precision(factors)
    )
    return network.with_joint_top(posterior, Normal())


def _by_cluster(
    terms: SumOfTerms, clusters: Sequence[Term]
) -> tuple[list[Int[np.ndarray, "m order"]], Int[np.ndarray, " m1"]]:
    """The products of each cluster, the constant among those of the first, and every coefficient's place among all."""
    index = [[np.zeros((int(k == 0), len(cluster)), dtype=int)] for k, cluster in enumerate(clusters)]
    homes = [(0, np.zeros(1, dtype=int))]
    for block in terms.basis.blocks:
        k = next(k for k, cluster in enumerate(clusters) if set(block.term) <= set(cluster))
        own = np.zeros((len(block.index), len(clusters[k])), dtype=int)
        own[:, [clusters[k].index(i) for i in block.term]] = block.index
        homes.append((k, sum(map(len, index[k])) + np.arange(len(own))))
        index[k].append(own)
    joined = [np.concatenate(own) for own in index]
    r = max(map(len, joined))
    return joined, np.concatenate([k * r + places for k, places in homes])


def _factor(root: Float[np.ndarray, "m k"], homes: Int[np.ndarray, " m"], size: int) -> Float[np.ndarray, "size size"]:
    """Upper-triangular F with FᵀF = RRᵀ, and zeros where there is no coefficient."""
    spread = np.zeros((size, root.shape[1]))
    spread[homes] = root
    lower = triangular(spread)
    factor = np.zeros((size, size))
    factor[: lower.shape[1]] = (lower * np.where(np.diagonal(lower) < 0.0, -1.0, 1.0)).T
    np.fill_diagonal(factor, np.maximum(np.diagonal(factor), CERTAIN))
    return factor


def _tables(system: System) -> Tables:
    """The arrays of one input."""
    d, k = len(system.transform), len(system.kind)
    smooth = np.zeros((d, k))
    smooth[:, :d] = system.transform
    knots, table = system.knots, np.zeros((len(system.knots), k))
    if system.n_levels:
        table[:, 1:] = system.table
    else:
        r = system.table.shape[1]
        smooth[0, d + r] = system.observed
        table[:, d : d + r] = system.table
    if len(knots) < 2:
        # no function, or one level: the same at two knots
        knots, table = np.array([0.0, 1.0]), np.repeat(table if len(table) else np.zeros((1, k)), 2, axis=0)
    # the rank of a value, or where it lies in the range
    breaks = np.array([system.low, system.low + system.width])
    cubic = np.array([[0.0], [0.0], [1.0 / system.width], [0.0]])
    if len(system.quantiles):
        curve = rank_curve(system.quantiles)
        breaks, cubic = curve.x, curve.c
    return Tables(
        np.array(system.low),
        np.array(system.width),
        np.array(float(system.n_levels > 0)),
        breaks,
        np.append(cubic, np.zeros((4, 1)), axis=1),
        np.array(len(breaks) - 2),
        smooth,
        knots,
        np.array(len(knots) - 2),
        table,
        system.missing,
        system.unseen,
        np.array(system.range[0]),
        np.array(max(system.range[1] - system.range[0], 1e-30)),
        np.array(1.0 / max(len(system.knots) - 1, 1) if system.is_discrete else 0.0),
        np.eye(k)[-1] * system.grows,
    )


def _stacked(tables: Sequence[Tables], like: Sequence[Tables]) -> list[Array]:
    """One array per field, an axis of the inputs first, as large as the largest there is."""
    stacked = []
    for name in Tables._fields:
        arrays, sizes = ([getattr(each, name) for each in group] for group in (tables, like))
        shape = np.max([each.shape for each in sizes], axis=0).astype(int)
        full = np.full((len(arrays), *shape), np.inf if name in ("breaks", "knots") else 0, arrays[0].dtype)
        for k, each in enumerate(arrays):
            full[(k, *(slice(n) for n in each.shape))] = each
        stacked.append(jnp.asarray(full, jnp.int32) if full.dtype.kind == "i" else in_working_precision(full))
    return stacked


def _values(of: Tables, x: Float[Array, " n"]) -> Float[Array, "k n"]:
    """`System.__call__` of one input."""
    is_missing, is_level = jnp.isnan(x), of.is_level > 0
    is_unseen = is_level & (x < 0)
    at = jnp.where(is_missing, of.low, x)
    at = jnp.where(is_level, jnp.floor(jnp.maximum(at, 0.0)), at)
    # the coordinate: half by value and half by rank
    unit = jnp.clip(2.0 * (at - of.low) / of.width - 1.0, -1.0, 1.0)
    inside = jnp.clip(at, of.breaks[0], of.breaks[of.last_piece + 1])
    piece = jnp.clip(jnp.searchsorted(of.breaks, inside, side="right") - 1, 0, of.last_piece)
    t, c = inside - of.breaks[piece], of.cubic[:, piece]
    rank = ((c[0] * t + c[1]) * t + c[2]) * t + c[3]
    unit = jnp.clip(0.5 * unit + 0.5 * (2.0 * rank - 1.0), -1.0, 1.0)
    # (k + 1) L_{k+1} = (2k + 1) t L_k − k L_{k−1}
    legendre = [jnp.ones_like(unit), unit]
    for k in range(1, len(of.smooth) - 1):
        legendre.append(((2 * k + 1) * unit * legendre[-1] - k * legendre[-2]) / (k + 1))
    values = product(of.smooth.T, jnp.stack(legendre[: len(of.smooth)]), PRECISE)
    left = jnp.clip(jnp.searchsorted(of.knots, at, side="right") - 1, 0, of.last_knot)
    share = jnp.clip((at - of.knots[left]) / (of.knots[left + 1] - of.knots[left]), 0.0, 1.0)[None]
    values = values + (1.0 - share) * of.table[left].T + share * of.table[left + 1].T
    # what no row has: beyond the range, or between two values
    away = jnp.maximum(jnp.maximum(of.least - at, at - of.least - of.spread), 0.0) / of.spread
    square = jnp.minimum(away, FARTHEST) + of.between * share[0] * (1.0 - share[0])
    # √0 apart: its slope is not finite
    beyond = jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)
    values = values + of.growing[:, None] * beyond[None]
    values = jnp.where(is_unseen[None], of.unseen[:, None], values)
    return jnp.where(is_missing[None], of.missing[:, None], values)
