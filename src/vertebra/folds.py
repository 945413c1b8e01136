"""Rows cut into folds, at random; rows that are equal go to different ones."""

import numpy as np
from jaxtyping import Float, Int


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


def folds_of(n_folds: int, rng: np.random.Generator, *columns: np.ndarray) -> Int[np.ndarray, " n"]:
    """The fold of each row. Equal rows must lie together; `columns` are all that tells rows apart, (n, _) each.

    Where a table has few different rows, a fold at random could take all of a kind, and the others would say of it
    what is not so.
    """
    run, part = runs_of(*columns)
    n_runs = int(run[-1]) + 1 if len(run) else 0
    return (rng.permutation(np.arange(n_runs) % n_folds)[run] + part) % n_folds


def groups_of(matrix: Float[np.ndarray, "n p"]) -> Int[np.ndarray, " n"]:
    """The number of the group of equal rows that each row belongs to, wherever they lie."""
    order = np.lexsort(matrix.T)
    group = np.empty(len(matrix), dtype=int)
    group[order] = runs_of(matrix[order])[0]
    return group
