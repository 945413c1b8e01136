"""Work shared out among devices: rows of a minibatch, or restarts, folds and penalties side by side.

What is computed does not depend on how many devices there are, but for the order of floating-point sums: arrays keep
their meaning, and only say where their parts lie (`jax.sharding`). Rows come to a device in one of few sizes, so that
few programs are compiled.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, PyTree

# Fewer rows of a minibatch on a device are not worth the exchange of gradients.
ROWS_PER_DEVICE = 256


def mesh_for(n_members: int, batch_size: int) -> tuple[Mesh | None, str]:
    """The devices that a training run uses, and what they share out: "members" or "rows"; none where one is enough.

    Restarts go to devices of their own where their number allows it, which needs no exchange; else rows do. Without
    a batch size there are no rows to share.
    """
    count = jax.device_count()
    if count == 1 or (jax.process_count() > 1 and not batch_size):
        return None, ""
    if n_members > 1 and jax.process_count() == 1:
        used = max(d for d in range(1, count + 1) if n_members % d == 0)
        return (Mesh(np.array(jax.devices()[:used]), ("members",)), "members") if used > 1 else (None, "")
    if jax.process_count() == 1:
        fitting = [d for d in range(1, count + 1) if batch_size % d == 0 and batch_size // d >= ROWS_PER_DEVICE]
        count = max(fitting, default=1)
        return (Mesh(np.array(jax.devices()[:count]), ("rows",)), "rows") if count > 1 else (None, "")
    if batch_size % count:
        raise ValueError(f"`batch_size` must be a multiple of the number of devices, {count}, got {batch_size}.")
    return Mesh(np.array(jax.devices()), ("rows",)), "rows"


def everywhere(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays whole on every device."""
    return tree if mesh is None else _put(tree, NamedSharding(mesh, PartitionSpec()))


def apart(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays with their first axis shared out."""
    return tree if mesh is None else _put(tree, NamedSharding(mesh, PartitionSpec(mesh.axis_names[0])))


def home(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays as if there had been one device; keys stay where they are."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, lambda leaf: eqx.is_array(leaf) and not is_key(leaf))
    return eqx.combine(jax.tree.map(lambda leaf: placed(np.asarray(leaf)), arrays), rest)


def is_key(leaf: Array) -> bool:
    """Whether an array holds keys of random numbers."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _put(tree, sharding):
    arrays, rest = eqx.partition(tree, eqx.is_array)
    if jax.process_count() == 1:
        return eqx.combine(jax.device_put(arrays, sharding), rest)
    return eqx.combine(jax.tree.map(lambda leaf: _whole(leaf, sharding), arrays), rest)


def _whole(leaf, sharding):
    """An array that every process has, as one over all of them."""
    if is_key(leaf):
        words, kind = _whole(jr.key_data(leaf), sharding), jr.key_impl(leaf)
        return jax.jit(lambda words: jr.wrap_key_data(words, impl=kind), out_shardings=sharding)(words)
    return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))


def by_rows(array: Array, mesh: Mesh | None) -> Array:
    """An array inside a compiled program, its rows shared out; without devices to share as it is."""
    if mesh is None or "rows" not in mesh.axis_names:
        return array
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec("rows")))


def from_parts(part: np.ndarray, mesh: Mesh | None, axis: int) -> np.ndarray | Array:
    """One array over all processes, of which each has a part along an axis; whole where members are shared out."""
    if mesh is None:
        return part
    if "rows" not in mesh.axis_names:
        return everywhere(jnp.asarray(part), mesh)
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, "rows"))
    return jax.make_array_from_process_local_data(sharding, part)


def placed(array: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """The array on the device, by default of the type that JAX has for its own: a copy, which compiles nothing.

    `jnp.asarray` is a program for every shape: tens of them in a fit, each of which takes a GPU longer than a step.
    """
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(array)):
        return jnp.asarray(array, dtype)
    kind = None if dtype is None else np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    return jax.device_put(np.array(array, dtype=kind))


def padded_size(n: int) -> int:
    """n rounded up to three leading binary digits, and to at least 64: few sizes, so few compilations."""
    unit = max(1 << max(n.bit_length() - 3, 0), 16)
    return max(-(-n // unit) * unit, 64)


def pad(array: np.ndarray, size: int, dtype: DTypeLike = float, *, repeat: bool = False) -> Array:
    """The rows on the device, by default in the working precision, then zeros, or the first row again and again.

    One copy, which JAX takes over. Zeros may be where a network or a likelihood is not defined; a row that is there is
    not.
    """
    kind = jnp.result_type(dtype)
    shape = (size, *array.shape[1:])
    n_bytes = math.prod(shape) * np.dtype(kind).itemsize
    # JAX adopts a NumPy buffer without a copy where it starts at a multiple of 64 bytes.
    buffer = np.empty(n_bytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    rows = buffer[start : start + n_bytes].view(kind).reshape(shape)
    rows[: len(array)] = array
    rows[len(array) :] = array[0] if repeat and len(array) else 0
    return jax.device_put(rows)


def padded(x: np.ndarray | Array) -> tuple[Array, int]:
    """The rows padded to a common size, and how many there are."""
    if isinstance(x, Tracer):  # as many as outside of a program, so that noise drawn for each is the same
        rows = x.astype(jnp.result_type(float))
        return jnp.concatenate([rows, jnp.repeat(rows[:1], padded_size(len(x)) - len(x), axis=0)]), len(x)
    return pad(np.asarray(x), padded_size(len(x)), repeat=True), len(x)


def cut(array: Array, n: int, axis: int = 0) -> Array:
    """The first n rows, without the padding. On the host: a slice on the device is a program for every n."""
    if array.shape[axis] == n:
        return array
    if isinstance(array, Tracer):
        return jax.lax.slice_in_dim(array, 0, n, axis=axis)
    return jax.device_put(np.asarray(array)[(slice(None),) * axis + (slice(n),)])
