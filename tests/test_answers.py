"""What a model answers."""

import numpy as np
import pytest

import vertebra as vb
from vertebra.cli.answers import as_additive, terms_of
from vertebra.cli.tablefile import Refused


def test_a_model_without_terms_is_told_apart():
    x = np.random.default_rng(0).standard_normal((20, 2))
    model = vb.SkeletonRegressor(scheme="random_features", widths=(4,), n_steps=2).fit(x, x[:, 0])
    with pytest.raises(Refused, match="a SkeletonRegressor has no terms"):
        as_additive(model)
    assert terms_of(model) == []
