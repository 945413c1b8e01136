"""f as a sum of pieces, each a function of few inputs: terms, or a network's sub-networks (Theorem 4)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision
from vertebra.networks.posteriors import Gaussian
from vertebra.tables.schema import TableLike
from vertebra.terms.linear import LinearTerms, Weights
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# Points evaluated at once: a round number that keeps the features of a wide network within some hundred megabytes.
CHUNK = 16384

# Mean, sd and draws on a grid; no draws where these were not asked for.
Moments = tuple[Float[np.ndarray, "*grid"], Float[np.ndarray, "*grid"], Float[np.ndarray, "draws *grid"] | None]


@runtime_checkable
class Pieces(Protocol):
    """A sum of functions of few inputs each. Their values have a leading axis, of features or of draws."""

    @property
    def clusters(self) -> tuple[Term, ...]:
        """What each piece reads."""
        ...

    @property
    def pieces(self) -> tuple[int, ...]:
        """Those that the output adds."""
        ...

    @property
    def is_pure(self) -> bool:
        """Whether each piece is the component of its own inputs, under marginals that are its own."""
        ...

    def values(self, piece: int, points: np.ndarray, *, pad: bool = False) -> Float[np.ndarray, "leading n"]:
        """A piece at points (n, |T|) of its own inputs.

        `pad` evaluates a whole chunk each time, so that another number of points needs no other program.
        """
        ...

    def mean(self, piece: int, values: Float[np.ndarray, "leading *grid"]) -> Float[np.ndarray, "*grid"]:
        """The posterior mean of a piece's values, or of what was made of them along the axes."""
        ...

    def posterior(self, parts: Sequence[tuple[int, np.ndarray]], *, with_draws: bool) -> Moments:
        """Mean, sd and draws of a sum of such values over pieces."""
        ...


class DrawnTerms(NamedTuple):
    """f that is not linear in its uncertain weights: pieces at draws of them."""

    clusters: tuple[Term, ...]
    pieces: tuple[int, ...]
    drawn: Callable[[int, np.ndarray, bool], np.ndarray]  # of piece j at points (n, |T_j|): (draws, n)

    is_pure = False

    def values(self, piece: int, points: np.ndarray, *, pad: bool = False) -> Float[np.ndarray, "draws n"]:
        return self.drawn(piece, points, pad)

    def mean(self, piece: int, values: Float[np.ndarray, "draws *grid"]) -> Float[np.ndarray, "*grid"]:
        return values.mean(axis=0)

    def posterior(self, parts: Sequence[tuple[int, np.ndarray]], *, with_draws: bool):
        total = np.sum([values for _, values in parts], axis=0)
        return total.mean(axis=0), total.std(axis=0), total


@runtime_checkable
class Source(Protocol):
    """An f with several outputs that can be taken apart."""

    @property
    def n_inputs(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def is_linear(self) -> bool:
        """Whether f is linear in its uncertain weights."""
        ...

    @property
    def categories(self) -> tuple[int, ...]:
        """Inputs that are places of levels."""
        ...

    @property
    def reads_gaps(self) -> bool: ...

    def pieces(self, output: int, key: PRNGKeyArray | None, n_draws: int) -> LinearTerms | DrawnTerms:
        """One output as a sum of pieces; the key is for draws of the weights."""
        ...


class TermsSource(NamedTuple):
    """A sum of terms: each is a piece by itself."""

    terms: SumOfTerms
    seed: int

    is_linear, reads_gaps = True, True

    @property
    def n_inputs(self) -> int:
        return len(self.terms.basis.systems)

    @property
    def n_outputs(self) -> int:
        return self.terms.n_outputs

    @property
    def categories(self) -> tuple[int, ...]:
        return tuple(i for i, system in enumerate(self.terms.basis.systems) if system.n_levels)

    def pieces(self, output: int, key: PRNGKeyArray | None, n_draws: int) -> LinearTerms:
        return self.terms.pieces(output, n_draws, [self.seed, output] if key is None else _seed(key))


class NetworkSource(NamedTuple):
    """A network: each sub-network is a piece."""

    network: Network
    seed: int | None = None

    categories, reads_gaps = (), False

    @property
    def n_inputs(self) -> int:
        return self.network.skeleton.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.network.n_outputs

    @property
    def is_linear(self) -> bool:
        return self.network.is_linear_in_v

    def pieces(self, output: int, key: PRNGKeyArray | None, n_draws: int) -> LinearTerms | DrawnTerms:
        if key is None and self.seed is None:
            raise ValueError("`key` must be given with a network, for draws of its weights: jr.key(0), for instance.")
        return _subnetworks(self.network, output, jr.key(self.seed or 0) if key is None else key, n_draws)


@runtime_checkable
class _Posterior(Protocol):
    @property
    def source(self) -> Source | None: ...


@runtime_checkable
class _Model(Protocol):
    @property
    def posterior(self) -> _Posterior: ...
    def x(self, X: TableLike) -> Float[np.ndarray, "n p"]: ...


@runtime_checkable
class FittedEstimator(Protocol):
    """An estimator by the record of its fit: the posterior of f, and tables as it reads them."""

    @property
    def model_(self) -> _Model: ...


def _seed(key: PRNGKeyArray) -> list[int]:
    return np.asarray(jr.key_data(key)).ravel().tolist()


def _subnetworks(network: Network, output: int, key: PRNGKeyArray, n_draws: int) -> LinearTerms | DrawnTerms:
    """The sub-networks that an output adds."""
    skeleton = network.skeleton
    width = network.n_outputs // len(skeleton.outputs)
    block, column = divmod(output, width)
    about = skeleton.clusters, skeleton.output_parents[block]
    if network.is_linear_in_v:

        def features(node: int, points: np.ndarray, pad: bool) -> np.ndarray:
            sub = network.subnetwork(node)
            values = by_chunks(lambda columns: _features(sub, columns), points, pad)
            n_features = len(values) - width
            return np.concatenate([values[:n_features], values[n_features + column :][:1]])

        weights = lambda nodes: _top_weights(network, nodes, block, column)  # noqa: E731
        return LinearTerms(*about, features, weights, n_draws, _seed(key))
    drawn = _weights(network, jr.split(fast(key), n_draws))

    def at_draws(node: int, points: np.ndarray, pad: bool) -> np.ndarray:
        sub, own = network.subnetwork(node), jax.vmap(lambda weights: network.ancestor_weights(node, weights))(drawn)
        return by_chunks(lambda columns: _at_draws(sub, own, columns, column), points, pad)

    return DrawnTerms(*about, at_draws)


def by_chunks(
    of: Callable[[Float[Array, "k n"]], Float[Array, "leading n"]], points: Float[np.ndarray, "n k"], pad: bool
) -> Float[np.ndarray, "leading n"]:
    chunks = []
    for start in range(0, len(points), CHUNK):
        chunk = points[start : start + CHUNK]
        size = CHUNK if pad or len(points) > CHUNK else len(chunk)
        columns = in_working_precision(np.concatenate([chunk, np.repeat(chunk[-1:], size - len(chunk), axis=0)]).T)
        chunks.append(np.asarray(of(columns), dtype=np.float64)[:, : len(chunk)])
    return np.concatenate(chunks, axis=1)


@eqx.filter_jit
def _features(sub, x):
    phi, offset, _ = sub.top_features(x)
    return jnp.concatenate([phi[0], offset])


@eqx.filter_jit
def _weights(network, keys):
    return jax.vmap(network.stack_weights)(keys)


@eqx.filter_jit
def _at_draws(sub, drawn, x, column):
    def at(weights):
        stacks = tuple(stack.at(v) for stack, v in zip(sub.stacks, weights, strict=True))
        return Network(sub.skeleton, stacks).mean(x)[column]

    return jax.lax.map(at, drawn)


def _top_weights(network: Network, nodes: Sequence[int], block: int, column: int) -> Weights:
    """The top weights of some nodes: one after the other, or jointly where the layer is."""
    top = network.parts[-1]
    q = cast(Gaussian, top.function.posterior)  # what is linear in V has no other
    mean = np.concatenate([np.asarray(top.mean_weights(), np.float64)[node, column] for node in nodes])
    if top.joint:
        share = top.n_nodes // q.mean.shape[0]
        r = q.mean.shape[2] // share
        factor = np.asarray(jax.vmap(lambda c: c.factor)(q.covariance)[block, column], np.float64)
        first = block * share
        chosen = np.concatenate([np.arange((node - first) * r, (node - first + 1) * r) for node in nodes])
        return Weights(mean, factor.T[chosen])
    own = [jax.tree.map(lambda leaf, node=node: leaf[node, column][None], q.covariance) for node in nodes]
    roots = [np.asarray(c.square_root()[0], np.float64) for c in own]
    joined, row, place = np.zeros((len(mean), sum(root.shape[1] for root in roots))), 0, 0
    for root in roots:
        joined[row : row + root.shape[0], place : place + root.shape[1]] = root
        row, place = row + root.shape[0], place + root.shape[1]
    return Weights(mean, joined)
