"""A component of f with its posterior: on a grid or at points, at rows; and the shares of the inputs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.effects import notebook
from vertebra.effects.grid import Axis, outer
from vertebra.terms.term import Term, term_label

# Draws of the weights: where they cost nothing, else where each is an evaluation of the network.
N_DRAWS, N_NETWORK_DRAWS = 1000, 200

Matrix = Float[np.ndarray, "n p"]
Outputs = Float[np.ndarray, "n outputs"]


class Effect(NamedTuple):
    """I_T with its posterior: exact mean and sd where f is linear in the uncertain weights, and draws.

    On the grid of its axes, or at points one after the other, which have none. `error` is the Monte
    Carlo standard error of the mean where the cluster was too large for a grid, else 0.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> effect = vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1))[0, 1]
    >>> effect.mean.shape, effect.draws.shape
    ((20, 20), (1000, 20, 20))
    >>> lower, upper = effect.band(simultaneous=True)
    """

    term: Term
    axes: tuple[Axis, ...]
    mean: Float[np.ndarray, "*grid"]
    sd: Float[np.ndarray, "*grid"]
    draws: Float[np.ndarray, "draws *grid"]
    error: float = 0.0

    @property
    def weight(self) -> Float[np.ndarray, "*grid"]:
        """The product of the marginals on the grid; at points that are on none, as much for each."""
        if self.term and not self.axes:
            return np.full(self.mean.shape, 1.0 / self.mean.size)
        return outer([axis.norm for axis in self.axes])

    @property
    def strengths(self) -> Float[np.ndarray, " draws"]:
        """‖I_T‖₂ of each draw."""
        flat = self.draws.reshape(len(self.draws), -1)
        return np.sqrt(np.maximum(flat**2 @ self.weight.ravel(), 0.0))

    @property
    def strength(self) -> float:
        """The posterior mean of ‖I_T‖₂."""
        return float(self.strengths.mean())

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """An equal-tailed interval of the strength."""
        tail = 50.0 * (1.0 - level)
        low, high = np.percentile(self.strengths, [tail, 100.0 - tail])
        return float(low), float(high)

    def _repr_html_(self) -> str:
        label = term_label([f"x{i}" for i in self.term]) or "the constant"
        return notebook.effect(
            label,
            self.strength,
            self.interval(),
            [axis.points for axis in self.axes],
            np.asarray(self.mean),
            np.asarray(self.sd),
        )

    def band(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[Float[np.ndarray, "*grid"], Float[np.ndarray, "*grid"]]:
        """mean ± c·sd: c for each point alone, or so that the whole function lies inside with that probability."""
        away = np.abs(self.draws - self.mean) / np.maximum(self.sd, 1e-300)
        worst = away.reshape(len(away), -1).max(axis=1) if simultaneous else away.reshape(-1)
        factor = float(np.quantile(worst, level))
        return self.mean - factor * self.sd, self.mean + factor * self.sd

    def table(
        self, level: float = 0.95, *, names: Sequence[str] | None = None, simultaneous: bool = False
    ) -> pd.DataFrame:
        """The columns of `model.effect`: inputs by their `names` (x0, x1, … unless given), mean, sd and a band of f.

        `vb.plot.effect` draws it.

        >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
        >>> effects = vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1))
        >>> list(effects[0, 1].table().columns)
        ['x0', 'x1', 'mean', 'sd', 'lower', 'upper']
        """
        if not self.axes:
            raise ValueError(f"The effect of {self.term} has no grid to be shown on: ask for a term of some inputs.")
        if names is not None and len(names) <= max(self.term):
            raise ValueError(f"`names` must have one entry per input, more than {max(self.term)}, got {len(names)}.")
        low, high = self.band(level, simultaneous=simultaneous)
        grids = np.meshgrid(*(axis.points for axis in self.axes), indexing="ij")
        labels = [f"x{i}" if names is None else names[i] for i in self.term]
        columns = [pd.Series(grid.ravel(), name=label) for grid, label in zip(grids, labels, strict=True)]
        for name, values in (("mean", self.mean), ("sd", self.sd), ("lower", low), ("upper", high)):
            columns.append(pd.Series(np.ravel(values), name=name))
        return pd.concat(columns, axis=1)  # side by side and not by name: an input may be called "mean"


class Local(NamedTuple):
    """I_T at the given rows: what the term adds to each prediction."""

    term: Term
    mean: Float[np.ndarray, " n"]
    sd: Float[np.ndarray, " n"]


class Sizes(NamedTuple):
    """How large a component is, draw by draw: its strength, its share of the variance of f, and what of it is its own.

    The share Cov(f_T, f)/Var f is its own part Var f_T/Var f and one through others that it goes together with, which
    may be negative; shares of all components sum to 1.
    """

    strength: Float[np.ndarray, " draws"]
    share: Float[np.ndarray, " draws"]
    own: Float[np.ndarray, " draws"]


def sizes_apart(strengths: Mapping[Term, Float[np.ndarray, " draws"]]) -> dict[Term, Sizes]:
    """Of components that do not go together: the variance of f is the sum of their squares, draw by draw."""
    variance = np.maximum(sum((s**2 for s in strengths.values()), start=np.zeros(())), 1e-300)
    return {term: Sizes(s, s**2 / variance, s**2 / variance) for term, s in strengths.items()}


class Sobol(NamedTuple):
    """Shares of the variance of f, posterior means: of an input's main effect, and of all terms with it."""

    first: float
    total: float


def sobol(effects: dict[Term, Effect]) -> dict[int, Sobol]:
    """First-order and total shares of every input, from effects of all orders under the product of the marginals.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> shares = vb.sobol(vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1)))
    >>> [i for i, share in shares.items() if share.total > share.first]  # x2 acts by itself
    [0, 1]
    """
    squares = {term: effect.strengths**2 for term, effect in effects.items() if term}
    if not squares:
        return {}
    variance = np.maximum(sum(squares.values(), start=np.zeros(())), 1e-300)
    shares = {}
    for i in sorted({i for term in squares for i in term}):
        first = squares.get((i,), np.zeros(()))
        total = sum((s for term, s in squares.items() if i in term), start=np.zeros(()))
        shares[i] = Sobol(float(np.mean(first / variance)), float(np.mean(total / variance)))
    return shares
