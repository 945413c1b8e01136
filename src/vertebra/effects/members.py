"""An ensemble, or Laplace's approximation, as a sum of pieces: what is drawn there is taken apart together."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from vertebra.effects.pieces import DrawnTerms, by_chunks
from vertebra.inference.laplace import LinearisedLaplace
from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.stack import pile


class EnsembleSource(NamedTuple):
    """Networks of one shape, each as likely as the others: a draw is a member, and a draw of its weights."""

    networks: tuple[Network, ...]

    categories, reads_gaps, is_linear = (), False, False

    @property
    def n_inputs(self) -> int:
        return self.networks[0].skeleton.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.networks[0].n_outputs

    def pieces(self, output: int, key: PRNGKeyArray | None, n_draws: int) -> DrawnTerms:
        """One output; the draws are shared out evenly among the members."""
        if key is None:
            raise ValueError("`key` must be given with networks, for draws of their weights: jr.key(0), for instance.")
        skeleton = self.networks[0].skeleton
        block, column = divmod(output, self.n_outputs // len(skeleton.outputs))
        which = jnp.asarray(np.arange(n_draws) * len(self.networks) // n_draws)
        drawn = _weights(pile(self.networks), which, jr.split(fast(key), n_draws))

        def at_draws(node: int, points: np.ndarray, pad: bool) -> np.ndarray:
            subs = pile([member.subnetwork(node) for member in self.networks])
            own = jax.vmap(lambda weights: self.networks[0].ancestor_weights(node, weights))(drawn)
            return by_chunks(lambda columns: _at_draws(subs, which, own, columns, column), points, pad)

        return DrawnTerms(skeleton.clusters, skeleton.output_parents[block], at_draws)


class LaplaceSource(NamedTuple):
    """f linearised in its weights: a draw of them moves every piece along its own slopes."""

    posterior: LinearisedLaplace

    categories, reads_gaps, is_linear = (), False, False

    @property
    def n_inputs(self) -> int:
        return self.posterior.density.network.skeleton.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.posterior.density.network.n_outputs

    def pieces(self, output: int, key: PRNGKeyArray | None, n_draws: int) -> DrawnTerms:
        """One output, at the draws of `vb.sample` with the same key."""
        if key is None:
            raise ValueError("`key` must be given with a posterior of weights, for draws of them: jr.key(0), say.")
        density = self.posterior.density
        skeleton = density.network.skeleton
        block, column = divmod(output, self.n_outputs // len(skeleton.outputs))
        moved = (
            jnp.zeros((n_draws, len(density.start))).at[:, self.posterior.free].set(self.posterior.moves(key, n_draws))
        )

        def at_draws(node: int, points: np.ndarray, pad: bool) -> np.ndarray:
            def at_columns(x):
                piece = lambda vector: density.unflatten(vector).subnetwork(node).mean(x)[column]  # noqa: E731
                value, slope = jax.linearize(piece, density.start)
                return value[None] + jax.lax.map(slope, moved)

            return by_chunks(at_columns, points, pad)

        return DrawnTerms(skeleton.clusters, skeleton.output_parents[block], at_draws)


@eqx.filter_jit
def _weights(members, which, keys):
    draw = lambda given: jax.tree.map(lambda leaf: leaf[given[0]], members).stack_weights(given[1])  # noqa: E731
    return jax.lax.map(draw, (which, keys))


@eqx.filter_jit
def _at_draws(subs, which, drawn, x, column):
    def at(given):
        i, weights = given
        sub = jax.tree.map(lambda leaf: leaf[i], subs)
        stacks = tuple(stack.at(v) for stack, v in zip(sub.stacks, weights, strict=True))
        return Network(sub.skeleton, stacks).mean(x)[column]

    return jax.lax.map(at, (which, drawn))
