import numpy as np

from vertebra.models.rows import MOST_PARTS, canonical
from vertebra.tables.folds import are_copies, folds_of, groups_of, runs_of


def test_equal_rows_go_to_different_folds_and_copies_stay_together(rng):
    # 8 inputs of many rows each, and 200 of one
    inputs = np.concatenate([np.sort(rng.integers(0, 8, 300)), np.arange(8, 208)]).astype(float)[:, None]
    targets = rng.integers(0, 2, (500, 1)).astype(float)
    targets[inputs[:, 0] < 3] = 1.0  # of these every row has the same target
    order = np.lexsort((targets[:, 0], inputs[:, 0]))
    inputs, targets = inputs[order], targets[order]
    run, part = runs_of(inputs, targets)
    folds = folds_of(5, rng, inputs, targets)
    np.testing.assert_array_equal(are_copies(inputs, targets), (inputs[:, 0] < 3) | (inputs[:, 0] >= 8))
    for k in range(run[-1] + 1):
        own = folds[run == k]
        counts = np.bincount(own, minlength=5)
        if inputs[run == k][0, 0] < 3:
            assert (counts > 0).sum() == 1
        else:
            assert counts.max() - counts.min() <= 1  # as even as their number allows
        np.testing.assert_array_equal(part[run == k], np.arange(len(own)))


def test_a_table_of_few_cells_has_no_copies(rng):
    inputs = np.sort(rng.integers(0, 8, 300)).astype(float)[:, None]
    folds = folds_of(5, rng, inputs, inputs)
    assert not are_copies(inputs, inputs).any()
    for cell in range(8):
        counts = np.bincount(folds[inputs[:, 0] == cell], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_folds_of_different_rows_are_as_large_as_each_other(rng):
    x = rng.standard_normal((103, 2))
    counts = np.bincount(folds_of(5, rng, x, x[:, :1]))
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
