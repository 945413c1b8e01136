"""Which noise `likelihood="auto"` fits: what rows left out speak for, and no other."""

import numpy as np
import pytest

import vertebra as vb
from vertebra.models.noise_choice import is_off_centre


def table(noise, seed, n=500):
    rng = np.random.default_rng(seed)
    x = rng.random((n, 4))
    f = 2.0 * np.sin(4.0 * x[:, 0]) + 2.0 * x[:, 1]
    e = {
        "even": lambda: rng.standard_normal(n),
        "uneven": lambda: rng.standard_normal(n) * np.exp(3.0 * (x[:, 2] - 0.5)),
        "heavy": lambda: rng.standard_t(2, n),
        "skew": lambda: np.exp(1.2 * rng.standard_normal(n)) - np.exp(0.72),
    }[noise]()
    return x, f, f + e


@pytest.mark.parametrize(
    ("noise", "fitted"), [("even", "gaussian"), ("uneven", "heteroscedastic"), ("heavy", "student_t")]
)
def test_the_noise_is_the_one_that_rows_left_out_speak_for(noise, fitted):
    for seed in range(3):
        x, f, y = table(noise, seed)
        auto, even = (
            vb.AdditiveRegressor(likelihood=each, remainder=False, random_state=0, evaluation="left_out").fit(x, y)
            for each in ("auto", "gaussian")
        )
        assert auto.model_.noise == fitted
        if fitted == "gaussian":
            np.testing.assert_array_equal(auto.predict(x), even.predict(x))
        else:
            # f is learned from the rows that say most about it
            assert vb.metrics.rmse(f, auto.predict(x)) < 0.9 * vb.metrics.rmse(f, even.predict(x))
            assert "was fitted: the log density of rows left out is higher" in str(auto.diagnostics_)


def test_skew_noise_is_not_taken_for_symmetric_heavy_tails():
    for seed in range(3):
        x, _, y = table("skew", seed)
        model = vb.AdditiveRegressor(remainder=False, random_state=0, evaluation="left_out").fit(x, y)
        assert model.model_.noise != "student_t"


def test_predictions_that_miss_rows_to_one_side_are_off_centre(rng):
    """By three standard errors of the mean, which are 3/√400 of the sd: 0.15."""
    y, weight = rng.standard_normal((400, 2)), np.ones(400)
    y -= y.mean(axis=0)
    assert not is_off_centre(y, np.array([0.1, -0.1]) + np.zeros_like(y), weight)
    assert is_off_centre(y, np.array([0.0, -0.2]) + np.zeros_like(y), weight)
    # a row that counts for nothing says nothing
    y[0], weight[0] = 1e6, 0.0
    assert not is_off_centre(y, np.zeros_like(y), weight)


def test_intervals_of_f_hold_with_heavy_tails():
    inside = []
    for seed in range(6):
        x, f, y = table("heavy", seed, 300)
        model = vb.AdditiveRegressor(likelihood="student_t", clusters=[(0,), (1,)], random_state=0).fit(x, y)
        said, target = model.model_.predictive(x), model.model_.target
        mean = said.f_mean[:, 0] * target.scale[0] + target.centre[0]
        inside.append(np.abs(mean - f) < 1.96 * target.scale[0] * np.sqrt(said.f_variance[:, 0]))
    # EM's weights, that say too much, gave .80
    assert np.mean(inside) > 0.88
