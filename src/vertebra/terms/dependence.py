"""Rows that depend on each other: in groups that share an intercept, or one after the other in time.

The noise of all rows is N(0, σ²R). Rows mixed by a root of R⁻¹ have independent noise, and sums over them are those of
generalised least squares: nothing else of a fit need know. Rows come scaled by the roots of their weights.
"""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

# Shares of the noise's variance that groups may have, and correlations of neighbours in time, which are compared.
SHARES = (0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)
CORRELATIONS = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.96)


@runtime_checkable
class Mixing(Protocol):
    """R, as its inverse root. `log_determinant` is log |R|; a new row's noise has `marginal` times the variance σ²."""

    @property
    def log_determinant(self) -> float: ...

    @property
    def marginal(self) -> float: ...

    def __call__(self, rows: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        """R^{−1/2} times the columns."""
        ...


class Intercepts(NamedTuple):
    """R = I + γssᵀ group by group, s the roots of the rows' weights: every group has an intercept N(0, γσ²)."""

    groups: Int[np.ndarray, " n"]
    root: Float[np.ndarray, " n"]
    ratio: float  # γ

    @property
    def _masses(self) -> Float[np.ndarray, " g"]:
        """|s|² of every group."""
        return np.bincount(self.groups, self.root**2)

    @property
    def log_determinant(self) -> float:
        return float(np.sum(np.log1p(self.ratio * self._masses)))

    @property
    def marginal(self) -> float:
        return 1.0 + self.ratio

    def __call__(self, rows):
        # R^{−1/2} = I − (1 − (1 + γ|s|²)^{−1/2}) ssᵀ/|s|²
        masses = self._masses
        share = (1.0 - 1.0 / np.sqrt(1.0 + self.ratio * masses)) / np.maximum(masses, 1e-300)
        sums = np.zeros((len(masses), rows.shape[1]))
        np.add.at(sums, self.groups, self.root[:, None] * rows)
        return rows - (self.root * share[self.groups])[:, None] * sums[self.groups]


class Chain(NamedTuple):
    """R_st = ρ^|s−t|: what is left of a row goes on to the next in time."""

    order: Int[np.ndarray, " n"]  # the rows, first to last
    correlation: float  # ρ

    @property
    def log_determinant(self) -> float:
        return (len(self.order) - 1) * math.log1p(-(self.correlation**2))

    @property
    def marginal(self) -> float:
        return 1.0

    def __call__(self, rows):
        along = rows[self.order]
        mixed = along.copy()
        mixed[1:] = (along[1:] - self.correlation * along[:-1]) / math.sqrt(1.0 - self.correlation**2)
        result = np.empty_like(mixed)
        result[self.order] = mixed
        return result


class Together(NamedTuple):
    """Which rows stand for several, and which belong together: a row stands for `counts` rows; rows of one of the
    `groups`, numbered from 0, may depend on each other; `mixing` is what is known of how. Of rows that `vary_as_said`
    the noise can have no other variance than their weights say: a class has p(1 − p)."""

    counts: Float[np.ndarray, " n"]
    groups: Int[np.ndarray, " n"] | None = None
    mixing: Mixing | None = None
    vary_as_said: bool = False

    def of(self, rows: Int[np.ndarray, " m"], counts: Float[np.ndarray, " m"]) -> "Together":
        """The same of some rows, which stand for other numbers of them, and of which no more is known."""
        return Together(counts, None if self.groups is None else self.groups[rows])


def stretches(order: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Groups of rows that follow each other, √n of them: long beside what one row may know of the next."""
    rank = np.empty(len(order), dtype=int)
    rank[np.argsort(order, kind="stable")] = np.arange(len(order))
    return rank // max(math.isqrt(len(order)), 1)


def numbered(groups: Int[np.ndarray, " n"] | None) -> Int[np.ndarray, " n"] | None:
    """The same groups, numbered from 0 without gaps."""
    return None if groups is None else np.unique(groups, return_inverse=True)[1].ravel()


def mixings(
    groups: Int[np.ndarray, " n"], order: Float[np.ndarray, " n"] | None, weight: Float[np.ndarray, " n"]
) -> list[Mixing | None]:
    """What is compared by evidence, rows that do not depend on each other first: intercepts, or in time a chain."""
    if order is not None:
        along = np.argsort(order, kind="stable")
        return [Chain(along, rho) if rho else None for rho in CORRELATIONS]
    return [Intercepts(groups, np.sqrt(weight), share / (1.0 - share)) if share else None for share in SHARES]
