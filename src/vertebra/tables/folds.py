"""Rows cut into folds, at random; rows that are equal go to different ones, copies of a row stay together.

No splitter of scikit-learn does both: KFold knows nothing of equal rows, GroupKFold would keep all of them together.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

# Where rows of equal inputs are more than this on average, the table has few cells, and none of them is a copy: a table
# that was put together twice has two of each. A round number.
OFTEN = 3.0


def runs_of(*columns: np.ndarray) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The run of equal rows that each row lies in, and its place there."""
    n = len(columns[0])
    is_new = np.arange(n) == 0
    for each in columns:
        before, after = each[:-1], each[1:]
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        is_new[1:] |= ~np.all(same, axis=1)
    run = np.cumsum(is_new) - 1
    return run, np.arange(n) - np.flatnonzero(is_new)[run]


def are_copies(inputs: Float[np.ndarray, "n p"], targets: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Whether all rows with a row's inputs have its targets too: if it stands there twice, it looks like a copy.

    Unless inputs have so few values that rows must be equal. Rows of equal inputs must lie together.
    """
    (run, _), (group, _) = runs_of(inputs, targets), runs_of(inputs)
    n_runs = np.bincount(group[np.flatnonzero(np.diff(run, prepend=-1))])
    return (n_runs[group] == 1) & (len(group) <= OFTEN * len(n_runs))


def folds_of(
    n_folds: int,
    rng: np.random.Generator,
    inputs: Float[np.ndarray, "n p"],
    targets: Float[np.ndarray, "n k"],
    groups: Int[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, " n"]:
    """The fold of each row. Equal rows go to different ones, unless they look like copies: those stay together.

    Rows of one of the `groups`, numbered from 0, stay together whatever they are. Where a table has few different rows,
    a fold at random could take all of a kind, and the others would say of it what is not so. Of a copy of a row the
    others would say what they know from it. Equal rows must lie together.
    """
    if groups is not None:
        present, codes = np.unique(groups, return_inverse=True)
        return rng.permutation(np.arange(len(present)) % n_folds)[codes]
    run, part = runs_of(inputs, targets)
    n_runs = int(run[-1]) + 1 if len(run) else 0
    apart = np.where(are_copies(inputs, targets), 0, part)
    return (rng.permutation(np.arange(n_runs) % n_folds)[run] + apart) % n_folds


def groups_of(matrix: Float[np.ndarray, "n p"]) -> Int[np.ndarray, " n"]:
    """The number of the group of equal rows that each row belongs to, wherever they lie."""
    order = np.lexsort(matrix.T)
    group = np.empty(len(matrix), dtype=int)
    group[order] = runs_of(matrix[order])[0]
    return group
