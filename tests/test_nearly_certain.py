"""Two classes where an input that is mostly zero tells some rows apart for certain, as gains of capital do incomes."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.terms import additive


def table(n, seed):
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(n) < 0.08, np.round(rng.lognormal(8.5, 1.0, n)), 0.0)
    gain[rng.random(n) < 0.004] = 99_999.0
    age, hours = rng.integers(17, 90, n), np.clip(np.round(rng.normal(40.0, 12.0, n)), 1.0, 99.0)
    kind = rng.choice(["a", "b", "c", "d"], n, p=[0.5, 0.3, 0.15, 0.05])
    f = -3.0 + 0.06 * np.minimum(age - 17, 30) + 0.03 * (hours - 40.0) + 1.2 * (kind == "b")
    p = np.where(gain > 7000.0, 0.999, np.where(gain > 0.0, 0.1, 1.0 / (1.0 + np.exp(-f))))
    return pd.DataFrame({"gain": gain, "age": age, "hours": hours, "kind": kind}), (rng.random(n) < p).astype(int), p


@pytest.fixture(scope="module", params=[15_000, 1500], ids=["all rows searched", "a sample searched"])
def fitted(request):
    kept, additive.ROWS_SEARCHED = additive.ROWS_SEARCHED, request.param
    try:
        return vb.AdditiveClassifier(random_state=0, evaluation="left_out").fit(*table(3000, 0)[:2])
    finally:
        additive.ROWS_SEARCHED = kept


def test_rows_left_out_say_what_new_rows_do(fitted):
    # weights of rows that are nearly certain went up and down from pass to pass, and lines took the place of curves
    x, y, p = table(5000, 1)
    new, least = fitted.evaluate(x, y).scores, -np.mean(np.log(np.where(y == 1, p, 1.0 - p)))
    stated = fitted.evaluation_.scores["model"]["log_loss"]
    # linear models are 0.03 above the truth
    assert new["model"]["log_loss"] < least + 0.5 * (new["linear"]["log_loss"] - least)
    # the standard error of a mean of 3000 log losses is 0.01
    assert stated == pytest.approx(new["model"]["log_loss"], abs=0.03)


def test_effects_are_no_larger_than_f(fitted):
    f = fitted.predict_f(table(3000, 0)[0])[0]
    assert fitted.effects()["strength"].max() < 1.2 * f.std()
    assert np.abs(f).max() < 40.0
