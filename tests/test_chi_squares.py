import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr

from vertebra.terms import chi_squares
from vertebra.terms.chi_squares import centred_tail, chi_square_tail, chi_square_tails


@pytest.mark.parametrize("freedom", [np.inf, 20.0])
def test_the_saddlepoint_tail_agrees_with_exact_laws(freedom):
    for k, q in ((1, 3.0), (1, 15.0), (4, 6.0), (4, 30.0), (10, 2.0)):
        exact = stats.chi2(k).sf(q) if np.isinf(freedom) else stats.f(k, freedom).sf(q / k)
        # Lugannani–Rice: a few per cent, also far out; 1 degree of freedom is its worst case
        assert chi_square_tail(np.ones(k), q, freedom) == pytest.approx(exact, rel=0.12 if k == 1 else 0.03)
    weights = np.array([3.0, 1.0, 0.3, 0.1])
    draws = np.random.default_rng(0).chisquare(1, (200_000, 4)) @ weights
    for q in (2.0, 8.0, 20.0):
        # Monte Carlo error below 3 % at the smallest of these probabilities
        assert chi_square_tail(weights, q) == pytest.approx((draws > q).mean(), rel=0.06)
    assert chi_square_tail(weights, 0.0) == 1.0


def one_by_one(weights, q, freedom):
    """The same formula for one sum, its saddlepoint by Brent's method."""
    a, d, x = weights / q, np.ones(len(weights)), 1.0
    if np.isfinite(freedom):
        a, d, x = np.append(a, -1.0 / freedom), np.append(d, freedom), 0.0
    slope = lambda z: np.sum(d * a / (1.0 - 2.0 * a * z)) - x  # noqa: E731
    top = 0.5 / a.max()
    bottom = 0.5 / a.min() if a.min() < 0 else -1e8 * top
    inside = (0.0, top * (1.0 - 1e-12)) if slope(0.0) < 0 else (bottom * (1.0 - 1e-12), 0.0)
    z = brentq(slope, *inside, xtol=1e-16 * top, rtol=1e-14)
    w = np.copysign(np.sqrt(2.0 * (z * x + 0.5 * np.sum(d * np.log1p(-2.0 * a * z)))), z)
    v = z * np.sqrt(np.sum(2.0 * d * a**2 / (1.0 - 2.0 * a * z) ** 2))
    return np.exp(log_ndtr(-(w + np.log(v / w) / w)))


@pytest.mark.parametrize("freedom", [np.inf, 3.0, 500.0])
def test_many_tails_at_once_are_those_one_by_one(freedom, rng):
    weights = rng.gamma(0.5, 1.0, (200, 6)) * 10.0 ** rng.uniform(-3, 3, (200, 1))
    weights[rng.random((200, 6)) < 0.3] = 0.0
    weights[:, 0] += 1e-3
    q = weights.sum(axis=1) * 10.0 ** rng.uniform(-1.5, 1.5, 200)
    wanted = [one_by_one(row[row > 0.0], each, freedom) for row, each in zip(weights, q, strict=True)]
    # near a sum's mean the formula loses digits: w and v are small there
    np.testing.assert_allclose(chi_square_tails(weights, q, freedom), wanted, rtol=1e-5)


def test_sums_of_nothing_and_nothing_to_reach_have_tails_of_one():
    np.testing.assert_array_equal(chi_square_tails(np.zeros((2, 3)), np.array([0.0, 1.0])), 1.0)
    assert chi_square_tails(np.zeros((0, 3)), np.zeros(0)).shape == (0,)
    assert 0.0 <= chi_square_tail(np.array([1.0]), 1e6) < 1e-300


@pytest.mark.parametrize("freedom", [np.inf, 3.0, 500.0])
def test_saddlepoints_are_there_after_ten_steps(freedom, rng, monkeypatch):
    """Newton's steps for K′ = x crawl near its poles; a root that is found is a limit, and must not be lost again."""
    weights = np.exp(3.0 * rng.standard_normal((1000, 8)))
    q = weights.sum(axis=1) * np.exp(rng.standard_normal(1000))
    tails = chi_square_tails(weights, q, freedom)
    monkeypatch.setattr(chi_squares, "MOST_STEPS", 10)
    # near a pole a root is known to ten digits
    np.testing.assert_allclose(chi_square_tails(weights, q, freedom), tails, rtol=1e-9)


def test_a_sum_reaches_what_all_its_values_do(rng):
    a = rng.random(5)
    assert centred_tail(a, np.ones(5), -1.01 * a.sum()) == 1.0  # all are larger
