import numpy as np

from vertebra.folds import folds_of, groups_of, runs_of
from vertebra.tabular import MOST_PARTS, canonical


def test_rows_that_are_equal_go_to_different_folds(rng):
    matrix = np.repeat(rng.integers(0, 3, (40, 2)).astype(float), 4, axis=0)
    matrix = matrix[np.lexsort(matrix.T)]
    run, part = runs_of(matrix)
    folds = folds_of(5, rng, matrix)
    for k in range(run[-1] + 1):
        own = folds[run == k]
        # as even as their number allows
        counts = np.bincount(own, minlength=5)
        assert counts.max() - counts.min() <= 1
        np.testing.assert_array_equal(part[run == k], np.arange(len(own)))


def test_folds_of_different_rows_are_as_large_as_each_other(rng):
    counts = np.bincount(folds_of(5, rng, rng.standard_normal((103, 2))))
    assert counts.tolist() == sorted(counts, reverse=True)
    assert counts.max() - counts.min() == 1


def test_gaps_are_equal_to_gaps():
    matrix = np.array([[np.nan, 1.0], [np.nan, 1.0], [np.nan, 2.0]])
    np.testing.assert_array_equal(runs_of(matrix)[0], [0, 0, 1])
    np.testing.assert_array_equal(groups_of(matrix[[0, 2, 1]]), [0, 1, 0])


def test_equal_rows_become_few_parts_that_hold_all_their_weight(rng):
    matrix, y = rng.integers(0, 3, (500, 1)).astype(float), rng.integers(0, 2, (500, 1)).astype(float)
    weight = rng.choice([0.0, 0.3, 1.0, 4.0], 500)
    rows = canonical(matrix, y, weight)
    assert len(rows.y) <= 6 * MOST_PARTS
    for a in range(3):
        for b in range(2):
            there, given = (rows.matrix == a) & (rows.y == b), (matrix == a) & (y == b)
            np.testing.assert_allclose(rows.weight[there[:, 0]].sum(), weight[given[:, 0]].sum())
    # rows of their own stay as they are
    x = rng.standard_normal((50, 2))
    alone = canonical(x, x[:, :1], np.ones(50))
    assert len(alone.y) == 50
    np.testing.assert_array_equal(alone.weight, 1.0)
