"""Feature blocks for one input of a table: periodic, piecewise-linear, of levels, and the scaling before them.

Siblings of the paper's random-feature block, for which W is drawn and kept: here W is trained, or stands where the rows
are. They go into the first layer of a skeleton that has a node for each input (`embedded`), where the function block
behind them is the small dense layer of each input. φᵀφ is about r, so that weights N(0, 1/r) give values of size 1.
"""

import math
from dataclasses import replace
from typing import ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from vertebra.machine.checks import check_count, check_positive
from vertebra.networks.blocks import FeatureBlock
from vertebra.networks.features import product
from vertebra.networks.parameters import UNBUILT, Built, Fixed, in_working_precision
from vertebra.networks.skeleton import Node, Skeleton

# Where smooth clipping bends, in robust sds: ±3, beyond which a normal input has 0.3 % of its rows (Holzmüller et al.).
BEND = 3.0
# Quartiles of a normal law are so many sds apart.
QUARTILES_APART = 2.0 * float(ndtri(0.75))


@runtime_checkable
class BlockOfRows(Protocol):
    """A feature block that is built from the rows it will read, where `build` has some."""

    reads_rows: ClassVar[bool]


class RobustScaling(eqx.Module):
    """φ = z/√(1 + (z/3)²), z = (x − median)/(quartiles' sd): values in units of most rows, none beyond ±3.

    Nothing is trained. Where the quartiles are one value, z is in units of half the range; without rows it is x. Inputs
    that are codes of levels, whole numbers from −1 to `levels`, stay as they are.

    >>> rows = np.array([[0.0], [1.0], [2.0], [1000.0]])
    >>> block = vb.RobustScaling().init(1, rng=np.random.default_rng(0), rows=rows)
    >>> bool(jnp.abs(block(jnp.asarray(rows.T))).max() < 3.0)
    True
    """

    r: int = eqx.field(static=True)
    levels: int | None = eqx.field(static=True)
    centre: Built[Fixed]
    size: Built[Fixed]
    bend: Built[Fixed]

    residual = None
    reads_rows: ClassVar[bool] = True

    def __init__(self, r: int = 1, *, levels: int | None = None):
        check_count(r=r)
        self.r, self.levels, self.centre, self.size, self.bend = r, levels, UNBUILT, UNBUILT, UNBUILT

    def init(self, n_inputs: int, *, rng: np.random.Generator, rows: np.ndarray | None = None) -> "RobustScaling":
        if n_inputs != self.r:
            raise ValueError(f"`r` must be the number of values that a node reads, {n_inputs}, got {self.r}.")
        centre, size, bend = np.zeros(n_inputs), np.ones(n_inputs), np.full(n_inputs, 1.0 / BEND)
        if rows is not None:
            low, centre, high = np.quantile(rows, (0.25, 0.5, 0.75), axis=0)
            size = (high - low) / QUARTILES_APART
            size = np.where(size > 0.0, size, 0.5 * np.ptp(rows, axis=0))
            size = np.where(size > 0.0, size, 1.0)
            if self.levels is not None and is_coded(rows, self.levels):
                centre, size, bend = np.zeros(n_inputs), np.ones(n_inputs), np.zeros(n_inputs)
        arrays = (Fixed(in_working_precision(each)) for each in (centre, size, bend))
        return replace_arrays(self, **dict(zip(("centre", "size", "bend"), arrays, strict=True)))

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        rest = (-1, *(1,) * (x.ndim - 1))
        centre, size, bend = (each.value.reshape(rest) for each in (self.centre, self.size, self.bend))
        z = (x - centre) / size
        return z / jnp.sqrt(1.0 + (bend * z) ** 2)


class PeriodicBlock(eqx.Module):
    """φ = (√2 cos(2πwᵀx + b), x): cosines of trained frequencies, and the inputs themselves (Holzmüller et al. 2024).

    RB(P_w, d, r, cos) with w trained instead of drawn: w starts at `frequency` · N(0, I), b uniform. `r` counts the
    inputs, which come last. A small `frequency` begins with smooth functions.

    >>> block = vb.PeriodicBlock(8, frequency=0.5).init(1, rng=np.random.default_rng(0))
    >>> block(jnp.zeros((1, 5))).shape, vb.trainable(block).w
    ((8, 5), True)
    """

    r: int = eqx.field(static=True)
    frequency: float = eqx.field(static=True)
    w: Built[Float[Array, "cosines n_inputs"]]
    b: Built[Float[Array, " cosines"]]

    residual = None

    def __init__(self, r: int, *, frequency: float = 0.1):
        if r < 2:
            raise ValueError(f"`r` must be at least 2, a cosine and an input, got {r!r}.")
        check_positive(frequency=frequency)
        self.r, self.frequency, self.w, self.b = r, float(frequency), UNBUILT, UNBUILT

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "PeriodicBlock":
        if n_inputs >= self.r:
            raise ValueError(f"`r` must be above the number of values that a node reads, {n_inputs}, got {self.r}.")
        n = self.r - n_inputs
        w = in_working_precision(self.frequency * rng.standard_normal((n, n_inputs)))
        return replace_arrays(self, w=w, b=in_working_precision(rng.uniform(-np.pi, np.pi, n)))

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        angle = 2.0 * math.pi * product(self.w, x) + self.b.reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.concatenate([math.sqrt(2.0) * jnp.cos(angle), x])


class PiecewiseLinearBlock(eqx.Module):
    """φ_j = (x − t_{j−1})/(t_j − t_{j−1}), cut to [0, 1], of r bins between quantiles t of one input.

    As RB(P_w, d, r, σ) with hinges for σ, whose places are quantiles of the rows instead of draws (Gorishniy et al.
    2022): any function that is linear in each bin. The first and the last bin are not cut outwards. Without rows t are
    quantiles of N(0, 1). Where an input has fewer values than there are bins, these are the edges, and the rest is 0.

    >>> rows = np.arange(5.0)[:, None]
    >>> block = vb.PiecewiseLinearBlock(4).init(1, rng=np.random.default_rng(0), rows=rows)
    >>> print(block(jnp.array([2.5])))
    [1.  1.  0.5 0. ]
    """

    r: int = eqx.field(static=True)
    start: Built[Fixed]
    slope: Built[Fixed]  # 1/(t_j − t_{j−1}), 0 of a bin that is not there
    is_open: Built[Fixed]  # below, and above

    residual = None
    reads_rows: ClassVar[bool] = True

    def __init__(self, r: int):
        check_count(r=r)
        self.r, self.start, self.slope, self.is_open = r, UNBUILT, UNBUILT, UNBUILT

    def init(
        self, n_inputs: int, *, rng: np.random.Generator, rows: np.ndarray | None = None
    ) -> "PiecewiseLinearBlock":
        if n_inputs != 1:
            raise ValueError(f"A PiecewiseLinearBlock must be of a node that reads one value, got {n_inputs}.")
        shares = np.linspace(0.0, 1.0, self.r + 1)
        if rows is None:
            edges = ndtri(np.clip(shares, 0.5 / self.r, 1.0 - 0.5 / self.r))
        else:
            values = np.unique(rows)
            edges = values if len(values) <= self.r + 1 else np.unique(np.quantile(rows, shares))
        n = max(len(edges) - 1, 0)
        start, slope, is_open = np.zeros(self.r), np.zeros(self.r), np.zeros((2, self.r))
        start[:n], slope[:n] = edges[:n], 1.0 / np.diff(edges)
        is_open[0, 0], is_open[1, max(n - 1, 0)] = 1.0, 1.0
        arrays = (Fixed(in_working_precision(each)) for each in (start, slope, is_open))
        return replace_arrays(self, **dict(zip(("start", "slope", "is_open"), arrays, strict=True)))

    def __call__(self, x: Float[Array, "one *batch"]) -> Float[Array, "r *batch"]:
        rest = (self.r, *(1,) * (x.ndim - 1))
        start, slope = (each.value.reshape(rest) for each in (self.start, self.slope))
        below, above = (each.reshape(rest) > 0.0 for each in self.is_open.value)
        share = (x - start) * slope
        share = jnp.where(below, share, jnp.maximum(share, 0.0))
        return jnp.where(above, share, jnp.minimum(share, 1.0))


class LevelsBlock(eqx.Module):
    """φ_j = √r·1{x = j}, j = 0 … r − 1: behind it V is a table of embeddings, a column for every level.

    RB with σ an indicator and W = I: nothing is drawn. Of other values, such as −1 for a level never seen, φ is 0.

    >>> block = vb.LevelsBlock(3).init(1, rng=np.random.default_rng(0))
    >>> print((block(jnp.array([[0.0, 2.0, -1.0]])) > 0).astype(int))
    [[1 0 0]
     [0 0 0]
     [0 1 0]]
    """

    r: int = eqx.field(static=True)

    residual = None

    def __init__(self, r: int):
        check_count(r=r)
        self.r = r

    def init(self, n_inputs: int, *, rng: np.random.Generator) -> "LevelsBlock":
        if n_inputs != 1:
            raise ValueError(f"A LevelsBlock must be of a node that reads one value, got {n_inputs}.")
        return self

    def __call__(self, x: Float[Array, "one *batch"]) -> Float[Array, "r *batch"]:
        levels = jnp.arange(self.r, dtype=x.dtype).reshape(self.r, *(1,) * (x.ndim - 1))
        return math.sqrt(self.r) * (x == levels)


class ByKind(eqx.Module):
    """φ of `numbers` where a node's input is a number, and of a LevelsBlock where it is a code of levels 0, 1, ….

    The blocks of a layer are stacked, and have one shape: this is how one layer embeds the inputs of a mixed table. An
    input is coded if all its rows are whole numbers from −1 to `levels`; without rows none is.

    >>> rows = np.array([[0.0], [2.0], [1.0]])
    >>> block = vb.ByKind(vb.PeriodicBlock(8), levels=4).init(1, rng=np.random.default_rng(0), rows=rows)
    >>> print(block(jnp.array([2.0])).round(1))
    [0.  0.  2.8 0.  0.  0.  0.  0. ]
    """

    numbers: FeatureBlock
    levels: int = eqx.field(static=True)
    coded: Built[Fixed]

    residual = None
    reads_rows: ClassVar[bool] = True

    def __init__(self, numbers: FeatureBlock, levels: int):
        check_count(levels=levels)
        self.numbers, self.levels, self.coded = numbers, levels, UNBUILT

    @property
    def r(self) -> int:
        return max(self.numbers.r, self.levels)

    def init(self, n_inputs: int, *, rng: np.random.Generator, rows: np.ndarray | None = None) -> "ByKind":
        given = {"rows": rows} if isinstance(self.numbers, BlockOfRows) else {}
        coded = rows is not None and is_coded(rows, self.levels)
        numbers = self.numbers.init(n_inputs, rng=rng, **given)
        return replace_arrays(self, numbers=numbers, coded=Fixed(in_working_precision(float(coded))))

    def __call__(self, x: Float[Array, "n_inputs *batch"]) -> Float[Array, "r *batch"]:
        coded = self.coded.value > 0.0
        rest = ((0, 0),) * (x.ndim - 1)
        # a code has no value as a number
        phi = self.numbers(jnp.where(coded, 0.0, x))
        phi = jnp.pad(phi, ((0, self.r - self.numbers.r), *rest))
        return jnp.where(coded, LevelsBlock(self.r)(x[:1]), phi)


def is_coded(rows: np.ndarray, levels: int) -> bool:
    """Whether values are codes of levels: whole numbers from −1, a level never seen, to `levels`.

    >>> is_coded(np.array([[0.0], [1.0]]), 2), is_coded(np.array([[0.5], [1.0]]), 2)
    (True, False)
    """
    return bool(np.all((rows == np.round(rows)) & (rows >= -1.0) & (rows <= levels)))


def replace_arrays(block, **arrays):
    """The block with some of its fields, where `__init__` does not take them."""
    return eqx.tree_at(
        lambda block: [getattr(block, name) for name in arrays],
        block,
        list(arrays.values()),
        is_leaf=lambda leaf: leaf is None,
    )


def embedded(skeleton: Skeleton, *, activation: str = "identity") -> Skeleton:
    """The skeleton on a first layer that has a node for each of its inputs.

    >>> print(vb.embedded(vb.chain(2, 1)))
    inputs x0 x1
    layer of_x0 = identity(x0); of_x1 = identity(x1)
    layer h1 = tanh(of_x0 of_x1)
    output h1 = h1
    """
    own = {name: f"of_{name}" for name in skeleton.inputs}
    first, *above = skeleton.layers
    nodes = tuple(Node(own[name], (name,), activation) for name in skeleton.inputs)
    lifted = tuple(replace(node, parents=tuple(own[parent] for parent in node.parents)) for node in first)
    return Skeleton(skeleton.inputs, (nodes, lifted, *above), skeleton.outputs)
