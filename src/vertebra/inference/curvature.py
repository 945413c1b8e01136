"""Second derivatives in the weights by way of the values of units, without a pass for every weight."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vertebra.networks.network import Network
from vertebra.networks.stack import Stack

Total = Callable[[Float[Array, "outputs n"]], Float[Array, ""]]


def hessian(network: Network, x: Float[Array, "p n"], total: Total) -> Float[Array, "all all"]:
    """∂²/∂V² of total(f(x; V)), a sum over rows, V the numbers of all parts, one after the other.

    V acts through u = Vφ alone. With g = ∂total/∂u and A = ∂²total/∂u², row by row, k, l the features of units a, b,

        ∂²/∂V_ak ∂V_bl = Σ_rows A_ab φ_ak φ_bl + g_b ∂φ_bl/∂u_a φ_ak + g_a ∂φ_ak/∂u_b φ_bl.

    A and ∂φ/∂u are one pass for each unit, and units are few beside weights; all else are products of matrices.
    """
    parts = network.parts
    sizes = [int(np.prod(part.unit_shape)) for part in parts]
    ends = np.cumsum(sizes)[:-1]

    def by_part(units):
        return [each.reshape(*part.unit_shape, -1) for each, part in zip(jnp.split(units, ends), parts, strict=True)]

    def of(u):
        f, phi = network.shifted(x, by_part(u))
        return total(f), phi

    slope = jax.grad(of, has_aux=True)
    here = jnp.zeros((sum(sizes), x.shape[1]), x.dtype)
    g, phi = slope(here)

    def along(unit):
        # rows do not meet: one direction for all of them
        return jax.jvp(slope, (here,), (jnp.broadcast_to(unit[:, None], here.shape),))[1]

    bend, phi_along = jax.vmap(along)(jnp.eye(len(here), dtype=x.dtype))
    g_of = by_part(g)
    blocks: dict[tuple[int, int], Array] = {}
    for i, own in enumerate(jnp.split(bend, ends)):
        moved = [jnp.split(each, ends)[i] for each in phi_along]
        for j, a in enumerate(jnp.split(own, ends, axis=1)):
            if j >= i:
                block = _block(parts[i], parts[j], a, phi[i], phi[j], g_of[j], moved[j] if j > i else None)
                blocks[i, j], blocks[j, i] = block, block.T
    return jnp.block([[blocks[i, j] for j in range(len(parts))] for i in range(len(parts))])


def _block(below: Stack, above: Stack, a: Array, phi: Array, phi_above: Array, g: Array, moved: Array | None) -> Array:
    """The derivatives in the weights of two parts, of which the first is not above the second.

    s, t are nodes, j, e their units, k, q their features, n rows: A is a[sj, te, n], ∂φ_tq/∂u_sj is moved[sj, t, q, n].
    """
    a = a.reshape(*below.unit_shape, *above.unit_shape, -1)
    both = phi[:, :, None, None] * phi_above[None, None]
    block = jnp.einsum("sjten,sktqn->sjkteq", a, both)
    if moved is not None:
        # Σ (∂φ_tq/∂u_sj) (φ_sk g_te): φ of the part below does not move with what is above it
        moved = moved.reshape(*below.unit_shape, *moved.shape[1:])
        block = block + jnp.einsum("sjtqn,skten->sjkteq", moved, phi[:, :, None, None] * g[None, None])
    block = above.by_block(below.by_block(block, 0), 3)
    return block.reshape(int(np.prod(below.shape)), int(np.prod(above.shape)))
