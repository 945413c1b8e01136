"""Values that may stand for gaps are those of questionnaires and machines, far from all others."""

import numpy as np
import pytest

from vertebra.tables.marked import marked


def with_codes(codes, values=tuple(range(1, 6)), n=300):
    own = np.resize(np.array(values, dtype=float), n)
    own[: 3 * len(codes)] = np.repeat(codes, 3)
    return own


@pytest.mark.parametrize(
    "codes", [[99], [97, 98, 99], [98, 99], [88, 99], [77, 88, 99], [997, 998, 999], [-9, -8], [-99], [-999], [999999]]
)
def test_codes_far_from_all_others_are_found_together(codes):
    assert marked(with_codes(codes)) == [(tuple(map(float, codes)), 3 * len(codes))]
    # on whatever scale they were, to rounding
    assert marked((with_codes(codes) / 3.7 + 0.1 - 0.1) * 3.7)[0].values == tuple(map(float, codes))


def test_codes_at_both_ends_are_two_findings():
    found = marked(np.r_[with_codes([99], values=range(40, 61)), [-1.0] * 4, np.nan])
    assert sorted(found) == [((-1.0,), 4), ((99.0,), 3)]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100.0),  # 97 to 99 are its own
        np.tile(np.arange(1.0, 10.0), 20),
        np.r_[np.tile(np.arange(1.0, 6.0), 60), 99.0],  # one row is no code
        np.r_[np.ones(100), 99.0 * np.ones(50)],  # nor is a third of them
        with_codes([98]),  # a mark of its own is 99
        with_codes([9], values=range(6)),  # near the others
        np.r_[np.round(np.random.default_rng(0).exponential(20.0, 3000)), 97.0, 98.0, 99.0],  # a tail
        np.full(50, 99.0),
        np.zeros(0),
        np.full(5, np.nan),
    ],
)
def test_values_of_their_own_are_none(values):
    assert marked(values) == []


def test_what_is_near_the_others_is_one_of_them():
    assert marked(with_codes([-9, -8, -1], values=range(5))) == [((-9.0, -8.0), 6)]
