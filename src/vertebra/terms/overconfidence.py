"""Intervals checked on rows left out: by how much a fit that had much freedom is too sure of itself.

Evidence takes the terms as given, but they were chosen, among many, because they fit these rows.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.tables.folds import folds_of
from vertebra.terms.evidence import Basis
from vertebra.terms.sum_of_terms import SumOfTerms

# A fit is checked where the mean leverage of its rows is larger, unless there are too few to leave some out. Round
# numbers.
MUCH_LEVERAGE, ROWS_TO_CHECK = 0.1, 60
# Where the noise is not even fits are checked from less on: what rows weigh was learned from them too.
LESS_LEVERAGE = 0.05
# Folds that are left out in turn; of many rows one is enough, which tells the factor to 3.5 %: √(2/400)/2.
N_FOLDS, ROWS_FOR_ONE_FOLD = 3, 1200
# By what share variances are usually too small, the sd of a prior, and at most.
USUAL_EXCESS, MOST_EXCESS = 0.2, 3.0

# The search and the fit of the rows that are kept: terms and the noise of every target.
Refit = Callable[[Bool[np.ndarray, " n"]], tuple[SumOfTerms, Sequence[float]]]


def has_much_freedom(
    basis: Basis,
    variance: Float[np.ndarray, "n latent"],
    weight: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, " latent"],
) -> bool:
    """Whether the rows decide little more than a few times as many coefficients: their mean leverage, Var f w/σ²."""
    leverage = float(np.mean(weight[:, None] * variance / noise))
    return bool(basis.blocks) and len(variance) >= ROWS_TO_CHECK and leverage > MUCH_LEVERAGE


def has_some_freedom(basis: Basis, leverage: Float[np.ndarray, "n latent"]) -> bool:
    """The same where the noise is not even, by the leverage of rows in every latent function."""
    is_much = float(np.max(np.mean(leverage, axis=0), initial=0.0)) > LESS_LEVERAGE
    return bool(basis.blocks) and len(leverage) >= ROWS_TO_CHECK and is_much


def overconfidence(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    fitted: Refit,
    groups: Int[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " k"]:
    """By what factor intervals were too narrow on rows that neither the search nor the fit had seen; at least 1.

    `fitted` searches and fits some of the rows, and gives the terms and the noise variance of every target. Rows of one
    of the `groups` are left out together: the others would know what they share.
    """
    folds = folds_of(N_FOLDS, rng, x, y, groups)
    seen, squares = np.zeros(len(x), dtype=bool), np.zeros_like(y)
    for fold in range(N_FOLDS if len(x) < ROWS_FOR_ONE_FOLD else 1):
        out = folds == fold
        if out.any():  # there may be fewer groups than folds
            terms, noise = fitted(~out)
            mean, variance = terms.moments(x[out])
            squares[out], seen[out] = (y[out] - mean) ** 2 / (variance + np.array(noise)), True
    own = weight * seen
    mass = own.sum()
    mean = own @ squares / mass
    # the mean of m squares has the sd √(2/m), of groups that of their sums: as far as that is large beside what is
    # usual, it is not believed
    doubt = np.full(y.shape[1], 2.0 / mass)
    if groups is not None:
        sums = np.zeros((int(groups.max()) + 1, y.shape[1]))
        np.add.at(sums, groups, own[:, None] * (squares - mean))
        doubt = np.maximum(doubt, np.sum(sums**2, axis=0) / mass**2)
    excess = np.clip(mean - 1.0, 0.0, MOST_EXCESS)
    return np.sqrt(1.0 + excess * USUAL_EXCESS**2 / (USUAL_EXCESS**2 + doubt))


def unsettled(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    moments: tuple[Float[np.ndarray, "n latent"], Float[np.ndarray, "n latent"]],
    fitted: Refit,
    groups: Int[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " latent"]:
    """By what factor sds of f, whose `moments` at the rows are given, are too small, whatever the noise; at least 1.

    Where the noise is not even, squares of y say little of f. But f moves where rows that were left out come back: of
    the posterior mean of the others by Var(f | others) − Var(f | all) in the mean of squares, if all is as it says.
    What is more comes of terms and weights of rows that were chosen by the rows.
    """
    folds = folds_of(N_FOLDS, rng, x, y, groups)
    moved, known = np.zeros(moments[0].shape[1]), np.zeros(moments[0].shape[1])
    for fold in range(N_FOLDS if len(x) < ROWS_FOR_ONE_FOLD else 1):
        out = folds == fold
        if not out.any():
            continue
        terms, _ = fitted(~out)
        mean, variance = terms.moments(x[out])
        # every row in its own sds
        each = weight[out, None] / np.maximum(variance, 1e-300)
        moved += np.sum(each * (moments[0][out] - mean) ** 2, axis=0)
        known += np.sum(each * np.maximum(variance - moments[1][out], 0.0), axis=0)
    # at most so much more, and none where nothing moved; rows that are known for certain say nothing of it
    known = np.maximum(known, np.finfo(float).tiny)
    return np.sqrt(1.0 + np.maximum(np.minimum(moved, (1.0 + MOST_EXCESS) * known) / known - 1.0, 0.0))
