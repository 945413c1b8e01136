"""Rates along the scale of an input: against dense algebra, and on functions that jump and that do not."""

import numpy as np
import pytest

import vertebra as vb
from vertebra.terms.families import Family
from vertebra.terms.functions import system_of
from vertebra.terms.jumps import LEVEL, Cells, _squares, cells_of, rates_of
from vertebra.terms.model import model_of
from vertebra.terms.sums import RowSums


def cells(seed, n_knots=12):
    rng = np.random.default_rng(seed)
    precision = rng.gamma(2.0, size=n_knots)
    precision[[3, 7]] = 0.0  # knots without a row
    return Cells(precision, rng.standard_normal(n_knots)), rng.gamma(1.0, size=n_knots - 1)


@pytest.mark.parametrize("seed", range(5))
def test_squares_of_increments_are_those_of_the_dense_posterior(seed):
    (precision, mean), rate = cells(seed)
    steps = np.diff(np.eye(len(mean)), axis=0)
    covariance = np.linalg.inv(np.diag(precision + LEVEL * precision.mean()) + steps.T @ np.diag(1.0 / rate) @ steps)
    f = covariance @ (precision * mean)
    wanted = (steps @ f) ** 2 + np.diag(steps @ covariance @ steps.T)
    # a system of twelve knots, whose level alone is near singular
    np.testing.assert_allclose(_squares(Cells(precision, mean), rate), wanted, rtol=1e-6)


def held(x, y):
    weight = np.ones(len(x))
    systems = [system_of(column, weight) for column in x.T]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    return RowSums.held(systems, values, y, weight)


def test_cells_are_what_the_other_terms_leave():
    rng = np.random.default_rng(0)
    x = rng.random((400, 2))
    y = np.where(x[:, 0] > 0.4, 1.0, 0.0) + x[:, 1] + 0.1 * rng.standard_normal(400)
    model = model_of(held(x, y), [(0,), (1,)])
    found, system = cells_of(model, 0), model.rows.systems[0]
    place = model.basis.slices[model.basis.terms.index((1,))]
    other = model.basis(model.rows.source.values)[:, place] @ model.posterior.mean[place]
    centre = model.rows.mean_y - model.evidence.products.mean_phi @ model.posterior.mean
    near = np.argmin(np.abs(x[:, :1] - system.knots), axis=1)
    for knot in np.unique(near)[::20]:
        own = near == knot
        assert found.precision[knot] == pytest.approx(own.sum() / model.posterior.noise_variance)
        # sums of a hundred columns in another order
        assert found.mean[knot] == pytest.approx(np.mean((y - other - centre)[own]), abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_rate_is_high_where_a_function_jumps_and_level_where_it_does_not(seed):
    rng = np.random.default_rng(seed)
    x = rng.random((2000, 1))
    jump = held(x, np.where(x[:, 0] > 0.3, 2.0, 0.0) + rng.standard_normal(2000))
    rates = rates_of(jump.systems[0], [cells_of(model_of(jump, [(0,)]), 0)])
    at = np.argmax(rates.rate)
    # the place of a jump of two sds is known to a few rows
    assert abs(jump.systems[0].knots[at] - 0.3) < 0.01
    assert rates.rate[at] > 0.3 * rates.rate.sum()
    assert rates.rate.sum() == pytest.approx(2.0)
    assert rates.cost > 5.0
    wave = held(x, np.sin(6.0 * x[:, 0]) + rng.standard_normal(2000))
    level = rates_of(wave.systems[0], [cells_of(model_of(wave, [(0,)]), 0)])
    # noise alone makes some increments larger than others, and none that stands out
    assert level.rate.max() < 0.15 * level.rate.sum()


def test_functions_of_a_rate_are_those_of_brownian_motion_in_its_own_time():
    rng = np.random.default_rng(0)
    x = rng.random(300)
    knots = system_of(x, np.ones(300)).knots
    rate = rng.gamma(0.3, size=len(knots) - 1)
    system = system_of(x, np.ones(300), rate=rate)
    own = np.flatnonzero(system.family == Family.JUMPS)
    time = np.append(0.0, np.cumsum(rate))
    values = system(x)[:, own]
    order = np.searchsorted(knots, x)
    covariance = np.minimum.outer(time, time)[np.ix_(order, order)]
    centred = covariance - covariance.mean(axis=0) - covariance.mean(axis=1)[:, None] + covariance.mean()
    # φ is an eigenfunction of the centred process at the rows: Kφ = λφ; eigenvalues of 300 knots to rounding
    variance = np.exp(system.offset[own])
    largest = np.linalg.eigvalsh(centred / len(x))[-1]
    np.testing.assert_allclose(centred @ values / len(x), largest * variance * values, atol=1e-8 * largest)


def test_bands_hold_at_jumps_and_beside_them():
    inside, near = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.random((2000, 4))

        def f(x):
            return sum(np.where(x[:, i] > place, 2.0, 0.0) for i, place in enumerate((0.3, 0.5, 0.7))) + 3.0 * x[:, 3]

        model = vb.AdditiveRegressor(remainder=False, random_state=0).fit(x, f(x) + rng.standard_normal(2000))
        new = rng.random((2000, 4))
        mean, sd = model.predict_f(new)
        held = np.abs(f(new) - mean) < 1.96 * sd
        inside.append(held.mean())
        near.append(held[np.min(np.abs(new[:, :3] - [0.3, 0.5, 0.7]), axis=1) < 0.05].mean())
    # of Brownian motion with one rate 0.91 and 0.70 are inside; four tables tell these means to 0.01 and 0.03
    assert np.mean(inside) > 0.95
    assert np.mean(near) > 0.85


def test_an_input_whose_rows_tell_all_its_functions_apart_has_more_of_them():
    # a walk of 120 steps: with 40 functions f is missed by 0.110, with more by 0.075
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.normal(size=120))
    walk /= walk.std()
    x, new = rng.random((1500, 2)), rng.random((2000, 2))
    y = walk[(120.0 * x[:, 0]).astype(int)] + 0.1 * rng.standard_normal(1500)
    model = vb.AdditiveRegressor(random_state=0, evaluation="left_out", likelihood="gaussian", remainder=False).fit(
        x, y
    )
    away = model.predict(new) - walk[(120.0 * new[:, 0]).astype(int)]
    assert np.sqrt(np.mean(away**2)) < 0.09
