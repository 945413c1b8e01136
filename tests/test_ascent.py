"""Newton's method below limits: it ends at the maximum, also where limits turn its steps."""

import numpy as np
import pytest
from scipy.optimize import minimize

from vertebra.terms.ascent import Near, highest


def parabola(curvature: np.ndarray, centre: np.ndarray):
    """−½ (x − c)ᵀH(x − c)."""

    def near(x: np.ndarray) -> Near:
        along = curvature @ (x - centre)
        return Near(-0.5 * float((x - centre) @ along), -along, curvature)

    return near


@pytest.mark.parametrize("seed", range(30))
def test_a_parabola_is_climbed_to_its_highest_place_below_the_limits(seed):
    # steps cut off number by number ended elsewhere in a quarter of such parabolas, by up to 250
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 8))
    root = rng.normal(size=(k, k))
    near = parabola(root @ root.T + 0.05 * np.eye(k), 4.0 * rng.normal(size=k))
    most = rng.normal(size=k)
    found = highest(near, most - 4.0 * rng.random(k), most, tolerance=1e-9, n_most=60)
    bounds = [(None, m) for m in most]
    known = minimize(
        lambda x: -near(x).value,
        most - 1.0,
        jac=lambda x: -near(x).gradient,
        bounds=bounds,
        options={"ftol": 1e-14, "gtol": 1e-10, "maxiter": 5000},
    )
    assert np.all(found <= most)
    assert near(found).value >= -known.fun - 1e-6  # the other road ends within that of the maximum


def test_what_a_limit_stops_moves_the_others():
    # H⁻¹g = (4, −1.3): cut off at the limit 0.1, (0.1, −1.3) leads down, and (0.1, 0.63) is the highest place
    curvature = np.array([[1.0, 2.0], [2.0, 7.0]])
    near = parabola(curvature, np.array([4.0, -0.5]))
    found = highest(near, np.zeros(2), np.array([0.1, np.inf]), tolerance=1e-12, n_most=10)
    expected = -0.5 + 2.0 / 7.0 * (4.0 - 0.1)
    np.testing.assert_allclose(found, [0.1, expected], atol=1e-8)


def test_where_a_function_curves_upwards_it_is_climbed_as_well():
    # cos has a minimum at π, a maximum at 2π
    near = lambda x: Near(float(np.cos(x[0])), -np.sin(x), np.array([[np.cos(x[0])]]))  # noqa: E731
    found = highest(near, np.array([3.3]), np.array([np.inf]), tolerance=1e-12, n_most=60)
    np.testing.assert_allclose(np.cos(found), 1.0, atol=1e-9)
