import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vertebra as vb
from vertebra.tables.weighting import MOST_APART, MOST_EQUAL, Weights, weighting


def table(n, seed):
    """y = sin 2x0 + x1 + noise of sd 0.5, with two idle inputs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1], rng


def fitted(weight, **settings):
    x, f, rng = table(600, 0)
    return vb.AdditiveRegressor(remainder=False, random_state=0, **settings).fit(
        x, f + 0.5 * rng.standard_normal(600), weight
    )


@pytest.mark.parametrize("scale", [1.0 / 600.0, 1e-4, 3.0, 1e300, 1e-300])
def test_the_scale_of_weights_changes_nothing(scale):
    plain, scaled = fitted(None), fitted(np.full(600, scale))
    assert scaled.clusters_ == [("x0",), ("x1",)]
    x, _, _ = table(50, 1)
    for one, other in zip(plain.predict(x, return_std=True), scaled.predict(x, return_std=True), strict=True):
        # weights that are 1 but for rounding
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    assert scaled.evaluation_.n == 600
    assert not scaled.diagnostics_.warnings


@pytest.mark.parametrize("weight", ["survey", "wild within bounds"])
def test_uneven_weights_find_no_false_interaction_and_their_intervals_hold(weight):
    rng = np.random.default_rng(5)
    # coefficients of variation of about 1.4 and of 10
    weights = rng.lognormal(0.0, 1.0, 600) if weight == "survey" else 10.0 ** rng.uniform(-3.9, 3.9, 600)
    model = fitted(weights)
    assert all(len(cluster) == 1 for cluster in model.clusters_)
    x, f, rng = table(4000, 7)
    lower, upper = model.predict_interval(x).T
    assert 0.9 < vb.metrics.coverage(f + 0.5 * rng.standard_normal(4000), lower, upper) < 0.99
    effective = weights.sum() ** 2 / np.sum(weights**2)
    assert model.evaluation_.n == round(effective)
    assert f"600 rows count as {effective:,.0f} of equal weight" in str(model.diagnostics_)


def test_absurd_weights_are_refused_with_what_to_do():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"must not differ by more than a factor of 1e.08.* Give them the weight 0"):
        fitted(10.0 ** rng.uniform(-8, 8, 600))
    with pytest.raises(ValueError, match=r"must be at most 1e.09 where weights count equal rows.*importance"):
        fitted(rng.choice([1e300, 2e300], 600), weights="frequency")
    with pytest.raises(ValueError, match="`weights` must be one of auto, frequency, importance, got 'precision'"):
        fitted(None, weights="precision")


def test_a_sum_of_weights_far_from_the_number_of_rows_is_said():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 10, 600)
    assert "sum to" in " ".join(fitted(counts).diagnostics_.warnings)
    # who says that they are counts is not asked again
    told = fitted(counts, weights="frequency").diagnostics_
    assert not any("sum to" in words for words in told.warnings)
    assert any("sum to" in words for words in told.notes)
    assert any("sum to" in words for words in fitted(np.full(600, 1e-2), weights="frequency").diagnostics_.warnings)


def test_whole_numbers_that_differ_are_counts_and_others_are_not():
    def scale(weight, kind="auto"):
        return weighting(Weights.of(np.asarray(weight, dtype=float)), kind).scale

    assert scale([1, 2, 0, 5]) == 1.0
    assert scale([1, 1, 1]) == 1.0
    assert scale([3, 3, 3]) == pytest.approx(1.0 / 3.0)
    assert scale([3, 3, 3], "frequency") == 1.0
    # Kish: Σw/Σw²
    assert scale([0.5, 1.5]) == pytest.approx(2.0 / 2.5)
    assert scale([1, 2], "importance") == pytest.approx(3.0 / 5.0)


@given(st.lists(st.floats(0.0, 1e300), min_size=1, max_size=30), st.integers(0, 30))
def test_what_is_known_of_weights_adds_up_over_parts_of_the_rows(values, cut):
    weight = np.array(values)
    whole, parts = Weights.of(weight), Weights.of(weight[:cut]).merged(Weights.of(weight[cut:]))
    assert whole.n == parts.n
    assert (whole.largest, whole.smallest, whole.are_whole) == (parts.largest, parts.smallest, parts.are_whole)
    np.testing.assert_allclose([whole.total, whole.square], [parts.total, parts.square], rtol=1e-12)


@given(st.lists(st.floats(1.0, 1e3), min_size=2, max_size=50), st.floats(1e-290, 1e290))
def test_importances_count_for_kishs_number_of_rows_whatever_their_scale(values, scale):
    weight = np.array(values)
    found = weighting(Weights.of(scale * weight), "importance")
    np.testing.assert_allclose(np.sum(found.scale * (scale * weight)), weight.sum() ** 2 / np.sum(weight**2), rtol=1e-9)
    assert found.n_rows == len(values)


def test_bounds_are_where_they_say():
    assert weighting(Weights.of(np.array([1.0, MOST_APART])), "importance").n_rows == 2
    with pytest.raises(ValueError, match="must not differ"):
        weighting(Weights.of(np.array([1.0, 1.01 * MOST_APART])), "importance")
    assert weighting(Weights.of(np.array([MOST_EQUAL, MOST_EQUAL / 2])), "auto").scale == 1.0


def test_evaluate_takes_weights_as_the_fit_did():
    x, f, rng = table(400, 3)
    y = f + 0.5 * rng.standard_normal(400)
    model = fitted(None)
    one, other = model.evaluate(x, y), model.evaluate(x, y, np.full(400, 1.0 / 400.0))
    assert one.n == other.n == 400
    assert one.scores["model"] == pytest.approx(other.scores["model"])


def test_rows_in_files_have_their_weights_understood_likewise(tmp_path):
    pytest.importorskip("pyarrow")
    x, f, rng = table(600, 0)
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2", "x3"]).assign(y=f + 0.5 * rng.standard_normal(600))
    weight = np.random.default_rng(5).lognormal(0.0, 1.0, 600) / 600.0
    frame.assign(w=weight).to_parquet(tmp_path / "rows.parquet")
    streamed = vb.AdditiveRegressor(remainder=False, random_state=0).fit(tmp_path / "rows.parquet", "y", "w")
    held = fitted(weight)
    assert streamed.clusters_ == held.clusters_
    assert streamed.model_.profile.weight == pytest.approx(held.model_.profile.weight)
    assert streamed.model_.profile.n_rows == held.model_.profile.n_rows == 600
    # components are centred on all rows by another road
    np.testing.assert_allclose(streamed.predict(frame[["x0", "x1", "x2", "x3"]]), held.predict(x), atol=0.02)
