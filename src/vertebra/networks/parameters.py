"""The arrays of a model: which are trained, in which precision, and which a recipe does not have yet."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, PyTree

from vertebra.machine.devices import placed

T = TypeVar("T")
if TYPE_CHECKING:
    # Blocks, kernels and posteriors are recipes until `init` gives them their arrays, and what computes asks built ones
    # alone: a type checker sees the array, with its shape, and only when it runs may None stand there.
    Built = Annotated[T, "None before `init`"]
else:
    Built = Optional
UNBUILT: Any = None


class Fixed(eqx.Module):
    """An array that no optimiser moves: the random weights W, a prior's scale, a dropout rate.

    The mark is a filter, not `stop_gradient`: weight decay moves what merely has no gradient.

    >>> vb.trainable([vb.Fixed(1.0), jnp.array(1.0)])
    [False, True]
    """

    value: Array

    def __init__(self, value: ArrayLike):
        if is_traced(*jax.tree.leaves(value)):
            self.value = jnp.asarray(value)
        else:
            with jax.ensure_compile_time_eval():  # a number stays one while something else is traced
                self.value = jnp.asarray(value)


def overridden(thing: object, base: type, names: Collection[str] | None = None) -> list[str]:
    """Public names of `base`, or those among `names`, that a subclass of it defines anew.

    >>> class Spiky(vb.Normal):
    ...     def sample(self, key, d, r, *, live=None):
    ...         return jnp.zeros((d, r))
    >>> vb.parameters.overridden(Spiky(), vb.Normal)
    ['sample']
    """
    mro = type(thing).__mro__
    own = {name for kind in mro[: mro.index(base)] for name in vars(kind)}
    # a mixin that brings a method alone has no fields
    fields = dataclasses.fields(base) if dataclasses.is_dataclass(base) else ()
    public = {name for name in (*dir(base), *(field.name for field in fields)) if not name.startswith("_")}
    return sorted(own & (public if names is None else set(names)))


def is_traced(*values: object) -> bool:
    """Whether a program is being traced that takes one of these: it has no numbers yet that NumPy could work with."""
    return any(isinstance(value, Tracer) for value in values)


def in_working_precision(array: ArrayLike) -> Array:
    """The array on the device, in the working precision: float32, or float64 where JAX has it switched on."""
    return placed(array, jnp.result_type(float))


def in_double_precision(tree: PyTree) -> PyTree:
    """The same with its real arrays in double precision; to be called where JAX has it switched on."""

    def doubled(leaf: Array) -> Array:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return leaf.astype(jnp.float64) if is_traced(leaf) else placed(np.asarray(leaf), jnp.float64)

    return jax.tree.map(doubled, tree)


def trainable(tree: PyTree) -> PyTree:
    """True for each leaf an optimiser may move, False elsewhere: a filter for `equinox.partition`.

    >>> import equinox as eqx
    >>> block = vb.RandomFeatureBlock(4).init(2, rng=np.random.default_rng(0))
    >>> moved, held = eqx.partition(block, vb.trainable(block))
    >>> moved.base.value is None, held.base.value.shape  # the draw of w stays
    (True, (4, 2))
    """
    return jax.tree.map(
        lambda leaf: not isinstance(leaf, Fixed) and eqx.is_inexact_array(leaf),
        tree,
        is_leaf=lambda leaf: isinstance(leaf, Fixed),
    )
