"""Networks as sums of terms where their rows are: each sub-network regressed on functions of its own inputs.

Components under the joint distribution of the rows are linear algebra in a basis (`terms/joint`), and a network has
none. So Φ_T, all products up to a degree of functions of a cluster's inputs, is fitted by least squares to what its
sub-network says, draw by draw or, where it is linear in its weights, feature by feature. What that misses is reported.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.effects.pieces import DrawnTerms, NetworkSource
from vertebra.networks.network import Network
from vertebra.terms.components import Components
from vertebra.terms.copula import Copula
from vertebra.terms.evidence import Basis, basis_of
from vertebra.terms.functions import system_of
from vertebra.terms.joint import gram_of, shrunk
from vertebra.terms.linear import LinearTerms, Weights
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import subsets

# Inputs of a sub-network that is regressed: of more there are too many products.
MOST_INPUTS = 3
# Points that each input takes from other rows, for each row: where no row is, functions are to stay near the network.
N_SHUFFLED = 1
# Directions of the columns that are smaller, beside the largest, are rounding of single precision.
ROUNDING = 1e-6


class Regressed(NamedTuple):
    """A network as a sum of terms, with how far it is off over the rows, output by output: a root mean square."""

    terms: SumOfTerms
    error: Float[np.ndarray, " outputs"]


class RowsTogether:
    """Rows as they go together, and what was regressed on them, which is worked out once."""

    def __init__(self, x: Float[np.ndarray, "m p"]):
        self.x = x
        self._found: dict[int, Regressed] = {}

    def regressed(self, network: Network, seed: int, n_draws: int) -> Regressed:
        """The network as a sum of terms."""
        if n_draws not in self._found:
            self._found[n_draws] = _regressed(network, self.x, seed, n_draws)
        return self._found[n_draws]


def can_be_regressed(network: Network) -> bool:
    """Whether every sub-network reads few enough inputs."""
    return max(map(len, network.skeleton.clusters)) <= MOST_INPUTS


def _regressed(network: Network, x: Float[np.ndarray, "m p"], seed: int, n_draws: int) -> Regressed:
    source, weight = NetworkSource(network, seed), np.ones(len(x))
    clusters = sorted({tuple(sorted(own)) for own in network.skeleton.clusters})
    basis = basis_of([system_of(column, weight) for column in x.T], subsets(clusters))
    rng = np.random.default_rng(seed)
    found = [_of_output(basis, source, k, x, n_draws, rng) for k in range(source.n_outputs)]
    means, roots = (tuple(getattr(w, name) for w in found) for name in ("mean", "root"))
    f = SumOfTerms(basis, means, roots, tuple(w.are_draws for w in found))
    copula = Copula(x, weight, [0] * x.shape[1], float(len(x)))
    joint = shrunk(basis, gram_of(basis, x, weight), float(len(x)), copula, np.stack(means, axis=1))
    f = f._replace(joint=joint._replace(scatter=Components(f, joint).scatter(x, weight, float(len(x)))))
    said = np.stack([_mean(source, k, x, n_draws) for k in range(source.n_outputs)], axis=1)
    return Regressed(f, np.sqrt(np.mean((f.mean(x) - said) ** 2, axis=0)))


def _of_output(basis: Basis, source: NetworkSource, output: int, x, n_draws: int, rng: np.random.Generator) -> Weights:
    """The coefficients of one output, the constant first."""
    f = source.pieces(output, None, n_draws)
    everywhere = np.concatenate([x, *(rng.permuted(x, axis=0) for _ in range(N_SHUFFLED))])
    phi, lifts = _features(basis, everywhere), []
    for piece in f.pieces:
        cluster = tuple(f.clusters[piece])
        own = np.concatenate([[0], *(_columns(basis, k) for k, t in enumerate(basis.terms) if set(t) <= set(cluster))])
        values = f.values(piece, everywhere[:, list(cluster)])
        lift = np.zeros((basis.n_columns + 1, len(values)))
        lift[own] = np.linalg.lstsq(phi[:, own], values.T, rcond=ROUNDING)[0]
        lifts.append(lift)
    if isinstance(f, LinearTerms):
        weights = f.weights(f.pieces).through(np.concatenate([lift[:, :-1] for lift in lifts], axis=1))
        return weights._replace(mean=weights.mean + sum(lift[:, -1] for lift in lifts))
    draws = np.sum(lifts, axis=0)
    mean = draws.mean(axis=1)
    return Weights(mean, (draws - mean[:, None]) / math.sqrt(draws.shape[1]), True)


def _mean(source: NetworkSource, output: int, x: Float[np.ndarray, "m p"], n_draws: int) -> Float[np.ndarray, " m"]:
    """The mean of f at rows, over the same draws."""
    f: LinearTerms | DrawnTerms = source.pieces(output, None, n_draws)
    return sum((f.mean(j, f.values(j, x[:, list(f.clusters[j])])) for j in f.pieces), start=np.zeros(len(x)))


def _columns(basis: Basis, k: int) -> Int[np.ndarray, " m"]:
    place = basis.slices[k]
    return np.arange(place.start, place.stop) + 1


def _features(basis: Basis, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n m1"]:
    return SumOfTerms(basis, (np.zeros(basis.n_columns + 1),), (np.zeros((basis.n_columns + 1, 0)),)).features(x)
