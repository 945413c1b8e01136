"""Intervals checked on rows left out: by how much a fit that had much freedom is too sure of itself.

Evidence takes the terms as given, but they were chosen, among many, because they fit these rows.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from vertebra.tables.folds import folds_of
from vertebra.terms.evidence import Basis
from vertebra.terms.sum_of_terms import SumOfTerms

# A fit is checked where the mean leverage of its rows is larger, unless there are too few to leave some out. Round
# numbers.
MUCH_LEVERAGE, ROWS_TO_CHECK = 0.1, 60
# Folds that are left out in turn; of many rows one is enough, which tells the factor to 3.5 %: √(2/400)/2.
N_FOLDS, ROWS_FOR_ONE_FOLD = 3, 1200
# By what share variances are usually too small, the sd of a prior, and at most.
USUAL_EXCESS, MOST_EXCESS = 0.2, 3.0


def has_much_freedom(
    basis: Basis,
    variance: Float[np.ndarray, "n latent"],
    weight: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, " latent"],
) -> bool:
    """Whether the rows decide little more than a few times as many coefficients: their mean leverage, Var f w/σ²."""
    leverage = float(np.mean(weight[:, None] * variance / noise))
    return bool(basis.blocks) and len(variance) >= ROWS_TO_CHECK and leverage > MUCH_LEVERAGE


def overconfidence(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    fitted: Callable[[Bool[np.ndarray, " n"]], tuple[SumOfTerms, Sequence[float]]],
) -> Float[np.ndarray, " k"]:
    """By what factor intervals were too narrow on rows that neither the search nor the fit had seen; at least 1.

    `fitted` searches and fits some of the rows, and gives the terms and the noise variance of every target.
    """
    folds = folds_of(N_FOLDS, rng, x, y)
    squares, mass = np.zeros(y.shape[1]), 0.0
    for fold in range(N_FOLDS if len(x) < ROWS_FOR_ONE_FOLD else 1):
        out = folds == fold
        terms, noise = fitted(~out)
        mean, variance = terms.moments(x[out])
        squares += weight[out] @ ((y[out] - mean) ** 2 / (variance + np.array(noise)))
        mass += weight[out].sum()
    # the mean of m squares has the sd √(2/m): as far as that is large beside what is usual, it is not believed
    excess = np.clip(squares / mass - 1.0, 0.0, MOST_EXCESS)
    return np.sqrt(1.0 + excess * USUAL_EXCESS**2 / (USUAL_EXCESS**2 + 2.0 / mass))
