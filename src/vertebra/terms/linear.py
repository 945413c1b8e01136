"""Functions that are linear in Gaussian weights: f(x) = o(x) + ψ(x)ᵀv, v ~ N(μ, R Rᵀ), each with its whole posterior.

A sum of basis terms is one, and so is a network of which only the last weights are uncertain: both are pieces ψ_j, o_j
that read few inputs each, and weights that may depend on each other across the pieces.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.terms.term import Term


class Values(NamedTuple):
    """ψᵀv + o at points: its mean, and a root of its covariance."""

    mean: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, "n k"]
    are_draws: bool = False

    @property
    def sd(self) -> Float[np.ndarray, " n"]:
        return np.sqrt(np.sum(self.spread**2, axis=1))

    def draws(self, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draws n"]:
        """Whole functions."""
        return (self.mean[:, None] + self.spread @ _noise(self.spread.shape[1], n_draws, rng, self.are_draws)).T


class Weights(NamedTuple):
    """v ~ N(μ, R Rᵀ); or k equally likely draws, of which √k R are what they differ from μ by."""

    mean: Float[np.ndarray, " m"]
    root: Float[np.ndarray, "m k"]
    are_draws: bool = False

    def through(self, lift: Float[np.ndarray, "u m"]) -> "Weights":
        """Bv."""
        return Weights(lift @ self.mean, lift @ self.root, self.are_draws)

    def at(self, psi: Float[np.ndarray, "n m"], offset: Float[np.ndarray, " n"] | float = 0.0) -> Values:
        """ψᵀv + o."""
        return Values(psi @ self.mean + offset, psi @ self.root, self.are_draws)

    def draw(self, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "m draws"]:
        return self.mean[:, None] + self.root @ _noise(self.root.shape[1], n_draws, rng, self.are_draws)


def _noise(k: int, n_draws: int, rng: np.random.Generator, are_draws: bool) -> Float[np.ndarray, "k draws"]:
    """What a root of k columns is multiplied with: standard normal noise, or the columns of draws in a random order."""
    if not are_draws:
        return rng.standard_normal((k, n_draws))
    order = np.concatenate([rng.permutation(k) for _ in range(-(-n_draws // k))])[:n_draws]
    noise = np.zeros((k, n_draws))
    noise[order, np.arange(n_draws)] = np.sqrt(k)
    return noise


class LinearTerms(NamedTuple):
    """f as pieces ψ_j(x_{T_j})ᵀv_j + o_j(x_{T_j}), taken apart by what is made of their features along the axes."""

    clusters: tuple[Term, ...]  # T_j
    pieces: tuple[int, ...]  # those that f adds
    features: Callable[
        [int, np.ndarray, bool], np.ndarray
    ]  # of piece j at points (n, |T_j|): ψ_j, o_j last, (m + 1, n)
    weights: Callable[[Sequence[int]], Weights]  # of some pieces, jointly
    n_draws: int
    seed: Sequence[int]
    is_pure: bool = False  # whether each piece is the component of its own inputs, under marginals that are its own

    def values(self, piece: int, points: np.ndarray, *, pad: bool = False) -> Float[np.ndarray, "m1 n"]:
        """A piece at points of its own inputs: its features, the offset last."""
        return self.features(piece, points, pad)

    def mean(self, piece: int, values: Float[np.ndarray, "m1 *grid"]) -> Float[np.ndarray, "*grid"]:
        """The posterior mean of what a piece's features were made into."""
        return np.tensordot(self.weights((piece,)).mean, values[:-1], axes=1) + values[-1]

    def posterior(self, parts: Sequence[tuple[int, np.ndarray]], *, with_draws: bool):
        """Mean, sd, draws of a component: a sum over pieces of what their features were made into, (m + 1, *grid)."""
        shape = parts[0][1].shape[1:]
        psi = np.concatenate([values[:-1].reshape(len(values) - 1, -1) for _, values in parts])
        offset = sum(values[-1].reshape(-1) for _, values in parts)
        found = self.weights(tuple(piece for piece, _ in parts)).at(psi.T, offset)
        draws = None
        if with_draws:
            draws = found.draws(self.n_draws, np.random.default_rng(self.seed)).reshape(self.n_draws, *shape)
        return found.mean.reshape(shape), found.sd.reshape(shape), draws
