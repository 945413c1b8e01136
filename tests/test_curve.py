"""Curves that rise where their points do."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from vertebra.terms.curve import monotone_curve


@pytest.mark.parametrize("m", [2, 3, 4, 9, 40])
@pytest.mark.parametrize("kind", ["rising", "rounded", "any"])
def test_curves_are_scipys_to_the_last_bit(m, kind):
    rng = np.random.default_rng(m)
    x = np.sort(rng.normal(size=m))
    y = rng.normal(size=m) if kind == "any" else np.sort(rng.random(m))
    y = np.round(2.0 * y) if kind == "rounded" else y
    ours, theirs = monotone_curve(x, y), PchipInterpolator(x, y)
    at = np.concatenate([rng.uniform(x[0], x[-1], 200), x, [x[0] - 1.0, x[-1] + 1.0, np.nan]])
    np.testing.assert_array_equal(ours.c, theirs.c)
    np.testing.assert_array_equal(ours(at), theirs(at))
