import numpy as np
import pytest

from vertebra.terms.columns import columns, columns_of_each
from vertebra.terms.functions import SEEN, System, system_of

N = 400


def three_inputs() -> tuple[list[System], np.ndarray]:
    """A number with gaps, one of few values and the levels of a category."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.standard_normal(N), rng.integers(0, 7, N), rng.integers(0, 4, N)], axis=1).astype(float)
    x[::9, 0] = np.nan
    return [system_of(x[:, i], np.ones(N), n_levels) for i, n_levels in enumerate((0, 0, 4))], x


@pytest.mark.parametrize("kind", ["tables", "kept", "some rows of what is kept"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_several_terms_are_those_of_each_by_itself(kind, dtype):
    systems, x = three_inputs()
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    if kind != "tables":
        values = [each.kept() for each in values]
    if kind.startswith("some"):
        values = [each.rows(np.arange(0, N, 3)) for each in values]
    few = [np.flatnonzero(system.kind == SEEN)[:3] for system in systems]
    rng = np.random.default_rng(1)
    # functions more than once, and in no order
    terms = [(t, np.stack([rng.choice(few[i], 8) for i in t], axis=1)) for t in ((0,), (1, 2), (0, 1), (0, 1, 2))]
    for found, (term, index) in zip(columns_of_each(values, terms, dtype), terms, strict=True):
        naive = np.ones((len(found), len(index)), dtype)
        for axis, i in enumerate(term):
            for column, place in enumerate(index[:, axis]):
                naive[:, column] *= values[i].of(np.array([place]), dtype)[:, 0]
        assert found.dtype == dtype
        np.testing.assert_allclose(found, columns(values, term, index, dtype), rtol=0.0)
        # in another order of factors, rounding alone differs
        np.testing.assert_allclose(found, naive, rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_columns_of_no_terms_are_none():
    assert columns_of_each([], []) == []
