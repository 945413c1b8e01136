"""What a model answers."""

import pytest

import vertebra as vb
from vertebra.cli.answers import as_additive, terms_of
from vertebra.cli.tablefile import Refused


def test_a_model_without_terms_is_told_apart():
    with pytest.raises(Refused, match="a SkeletonRegressor has no terms"):
        as_additive(vb.SkeletonRegressor())
    assert terms_of(vb.SkeletonRegressor()) == []
