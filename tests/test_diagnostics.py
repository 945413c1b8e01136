import numpy as np
import pytest

import vertebra as vb
from vertebra.models.diagnostics import coverage_words, uneven_noise


@pytest.mark.parametrize(("noise", "warned"), [("even", False), ("uneven", True), ("heavy", False)])
def test_uneven_noise_is_seen_and_named(noise, warned):
    rng = np.random.default_rng(0)
    x = rng.random((1500, 3))
    spread = {"even": 0.5, "uneven": 0.05 + x[:, 1], "heavy": 0.5}[noise]
    draws = rng.standard_t(3, 1500) if noise == "heavy" else rng.standard_normal(1500)
    model = vb.AdditiveRegressor(random_state=0).fit(x, 2.0 * x[:, 0] + spread * draws)
    words = [w for w in model.diagnostics_.warnings if "uneven" in w]
    assert bool(words) == warned
    assert all("along x1" in w for w in words)


def test_false_alarms_of_uneven_noise_are_rare():
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        alarms += bool(uneven_noise(rng.standard_normal((400, 1)), rng.random((400, 10)), list("abcdefghij"), ["y"]))
    # of parts of 50 rows, mean squares eight times as large as others
    assert alarms == 0


def test_too_few_rows_and_constants_say_nothing():
    away = np.ones((30, 1))
    assert uneven_noise(away, np.zeros((30, 2)), ["a", "b"], ["y"]) == []
    assert uneven_noise(np.linspace(0, 9, 30)[:, None], np.arange(30.0)[:, None], ["a"], ["y"]) == []


def test_coverage_far_from_its_level_is_a_warning_and_names_its_target():
    notes, warnings = coverage_words({"rmse 0": 1.0, "coverage_95 0": 0.95, "coverage_95 1": 0.8}, 500.0, ["a", "b"])
    assert "of a cover 95.0%" in notes[0]
    assert "of b cover 80.0%" in warnings[0]
