import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gamma, kv

from vertebra.terms import families, functions
from vertebra.terms.columns import columns
from vertebra.terms.families import Family
from vertebra.terms.functions import (
    CONSTANT,
    NEVER_SEEN,
    SEEN,
    USUAL_DECAY,
    _coordinate,
    products,
    system_of,
    usual_families,
)

N = 256  # a power of two: shares of 1/N add up to 1 exactly


def column(name, seed=0, n=N):
    """A column of each sort, and the number of its levels."""
    rng = np.random.default_rng(seed)
    values = {
        "uniform": rng.random(n),
        "normal": rng.standard_normal(n),
        "cauchy": rng.standard_cauchy(n),
        "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        "few": rng.integers(0, 5, n).astype(float),
        "hours": rng.permutation(np.arange(n) % 24).astype(float),
        "two": rng.integers(0, 2, n).astype(float),
        "two with gaps": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 2, n)),
        "heap": np.where(rng.random(n) < 0.7, 0.0, rng.exponential(size=n)),
        "constant": np.full(n, 7.0),
        "constant with gaps": np.where(rng.random(n) < 0.2, np.nan, 7.0),
        "nothing": np.full(n, np.nan),
        "levels": rng.choice(5, n, p=[0.5, 0.3, 0.15, 0.05, 0.0]).astype(float),
        "levels with gaps": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 4, n)),
        "one level": np.full(n, 2.0),
    }
    return values[name], {"levels": 5, "levels with gaps": 4, "one level": 3}.get(name, 0)


NUMBERS = ["uniform", "normal", "cauchy", "gaps", "few", "hours", "two", "two with gaps", "heap", "constant", "nothing"]
NUMBERS.append("constant with gaps")
CATEGORIES = ["levels", "levels with gaps", "one level"]
LOCAL = [Family.MATERN, Family.MATERN32, Family.BROWNIAN]
OF_NUMBERS = [Family.SMOOTH, *LOCAL]


def naive_gram(system, x, weight):
    """E φ_k φ_l, row by row."""
    total = np.zeros((len(system.kind), len(system.kind)))
    for value, w in zip(x, weight, strict=True):
        phi = system(np.array([value]))[0]
        total += w * np.outer(phi, phi)
    return total / weight.sum()


def assert_same(one, other, at, atol=1e-7):
    np.testing.assert_array_equal(one.kind, other.kind)
    np.testing.assert_array_equal(one.cost, other.cost)
    np.testing.assert_array_equal(one.family, other.family)
    np.testing.assert_array_equal(one.cell, other.cell)
    assert one.is_discrete == other.is_discrete
    np.testing.assert_allclose(one.offset, other.offset, atol=atol)
    np.testing.assert_allclose(one.gram, other.gram, atol=atol)
    np.testing.assert_allclose(one(at), other(at), atol=atol)


@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_functions_have_mean_zero_and_the_gram_is_the_empirical_one(name, seed):
    x, n_levels = column(name, seed)
    # shares that add up to 1 exactly
    weight = np.random.default_rng(seed).permutation(np.tile([0.0, 0.5, 0.5, 1.0], N // 4))
    system = system_of(x, weight, n_levels)
    gram = naive_gram(system, x, weight)
    if name != "nothing":  # where all is missing there is no marginal: what stands in its place is a constant
        np.testing.assert_allclose(gram[0, 1:], 0.0, atol=1e-8)
        np.testing.assert_allclose(system.gram, gram, atol=1e-9)
    for family in system.families or (Family.ANY,):
        seen = system.of(SEEN, family)
        own = gram[np.ix_(seen, seen)]
        # polynomials: QR, where those are left out that rounding cannot tell apart, as in the test of `orthonormal`;
        # lines between the knots of tabulated functions: none at the knots themselves, and with fewer than 258 values
        # all are knots
        np.testing.assert_allclose(own, np.eye(len(seen)), atol=1e-7)
    assert system.kind[0] == CONSTANT
    assert (np.delete(system.kind, 0) != CONSTANT).all()
    np.testing.assert_allclose(system(x)[:, 0], 1.0, rtol=1e-12)
    # the data say nothing about what is unseen
    if name != "nothing":
        np.testing.assert_array_equal(gram[system.of(NEVER_SEEN)], 0.0)


def test_what_families_there_are_depends_on_the_input():
    for name in ("uniform", "normal", "cauchy", "gaps", "heap"):
        system = system_of(column(name)[0], np.ones(N))
        assert system.families == tuple(OF_NUMBERS)
        assert not system.is_discrete
    few = system_of(column("few")[0], np.ones(N))
    assert few.is_discrete
    assert few.families == (*OF_NUMBERS, Family.LEVELS)
    assert system_of(column("hours")[0], np.ones(N)).families == (*OF_NUMBERS, Family.LEVELS, Family.CYCLIC)
    for name in ("levels", "levels with gaps"):
        assert system_of(*column(name)[:1], np.ones(N), column(name)[1]).families == (Family.LEVELS,)
    for name in ("constant", "nothing", "constant with gaps"):
        assert system_of(column(name)[0], np.ones(N)).families == ()
    # what belongs to no family belongs to all of them
    system = system_of(column("gaps")[0], np.ones(N))
    for family in system.families:
        own = system.of(SEEN, family)
        assert own[-1] == len(system.kind) - 2
        assert (system.family[own[:-1]] == family).all()
        np.testing.assert_array_equal(system.of(NEVER_SEEN, family), [len(system.kind) - 1])
    assert len(system.of(SEEN)) == sum(len(system.of(SEEN, family)) - 1 for family in system.families) + 1


@pytest.mark.parametrize("family", LOCAL)
@pytest.mark.parametrize("name", ["cauchy", "gaps", "heap"])
def test_local_functions_between_knots_are_nearly_orthonormal(name, family):
    n = 4096
    x, _ = column(name, n=n)
    system = system_of(x, np.ones(n))
    assert family in system.families
    assert len(system.knots) < len(np.unique(x[~np.isnan(x)]))
    values = system(x)
    np.testing.assert_allclose(system.gram, values.T @ values / n, atol=1e-9)
    np.testing.assert_allclose(system.gram[0, 1:], 0.0, atol=1e-9)
    seen = system.of(SEEN, family)
    gram = system.gram[np.ix_(seen, seen)]
    # A line at the share s of its way from a to b cuts a corner: (1 − s)a² + sb² less its square is s(1 − s)(b − a)².
    # With what is cut functions are orthonormal, the one of missing values too, which loses nothing.
    shown = x[~np.isnan(x)]
    right = np.clip(np.searchsorted(system.knots, shown), 1, len(system.knots) - 1)
    share = (shown - system.knots[right - 1]) / (system.knots[right] - system.knots[right - 1])
    step = (system(system.knots[right]) - system(system.knots[right - 1]))[:, seen]
    cut = (step * (share * (1.0 - share))[:, None]).T @ step / n
    np.testing.assert_allclose(gram + cut, np.eye(len(seen)), atol=1e-9)
    # that is little: where the scale goes by rank and its knots lie evenly, as for a uniform number, cos(kπu) loses
    # (kπ/192)²/6 of its square, of which half is allowed for knots that do not; else the last functions swing faster
    # where rows are rare
    lost = 1.5 * (np.pi * np.arange(1, 41) / (families.KNOTS_BY_RANK - 1)) ** 2 / 6.0 if name == "gaps" else 0.15
    assert (np.diag(cut)[:40] < (lost + 1e-3 * np.ones(40))[: len(cut[:40])]).all()
    assert np.abs(cut - np.diag(np.diag(cut))).max() < (0.05 if name == "gaps" else 0.1)


def covariance(family, a, b):
    """Of the process of a family at two places of the scale, by its definition."""
    if family is Family.BROWNIAN:
        return min(a, b) + 1.0  # begins at −1
    nu = {Family.MATERN: 2.5, Family.MATERN32: 1.5}[family]
    t = np.sqrt(2.0 * nu) * abs(a - b) / families.LENGTHS[family]
    # Matérn: 2^{1−ν}/Γ(ν) tᵛ K_ν(t)
    return 2.0 ** (1.0 - nu) / gamma(nu) * t**nu * kv(nu, t) if t else 1.0


def centred_process(family, system, x, weight):
    """Cov(B_a − Σ m B, B_b − Σ m B) over the distinct values, and their shares m."""
    knots, index = np.unique(x, return_inverse=True)
    m = np.bincount(index, weight) / weight.sum()
    u = _coordinate(knots, system.low, system.width, system.quantiles)
    walk = np.array([[covariance(family, a, b) for b in u] for a in u])
    every = range(len(m))
    centred = [[walk[a, b] - m @ walk[:, b] - m @ walk[:, a] + m @ walk @ m for b in every] for a in every]
    return knots, m, np.array(centred)


@pytest.mark.parametrize("name", ["few", "uniform", "cauchy"])
def test_brownian_functions_and_variances_are_those_of_brownian_motion_along_the_scale(name):
    """Σ_k variance_k φ_k φ_kᵀ is the covariance of Brownian motion at the distinct values, centred."""
    x, _ = column(name, n=128)
    weight = np.random.default_rng(1).integers(1, 3, 128).astype(float)
    system = system_of(x, weight)
    seen = system.of(SEEN, Family.BROWNIAN)
    knots, m, centred = centred_process(Family.BROWNIAN, system, x, weight)
    assert len(seen) == min(families.N_LOCAL, len(knots) - 1, len(x) // families.ROWS_PER_LOCAL)
    phi, variance = system(knots)[:, seen], np.exp(system.offset[seen])
    # covariance times mass maps each function to its variance's multiple, the same multiple for all
    ratio = (centred * m) @ phi / (phi * variance)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    if name == "few":  # all functions there are
        np.testing.assert_allclose(ratio[0, 0] * (phi * variance) @ phi.T, centred, atol=1e-9)


@pytest.mark.parametrize("family", LOCAL)
@pytest.mark.parametrize("name", ["few", "uniform", "cauchy", "heap"])
def test_local_functions_are_the_eigenfunctions_of_their_process(name, family):
    x, _ = column(name)
    weight = np.random.default_rng(1).integers(1, 3, N).astype(float)
    system = system_of(x, weight)
    knots, m, centred = centred_process(family, system, x, weight)
    # by the matrix that is not symmetric: centred covariance times mass
    values, vectors = np.linalg.eig(centred * m)
    order = np.argsort(-values.real)
    values, vectors = values.real[order], vectors.real[:, order]
    seen = system.of(SEEN, family)
    phi, variance = system(knots)[:, seen], np.exp(system.offset[seen])
    assert variance[0] == 1.0
    assert (np.diff(variance) < 0).all()
    # rounding is 1e-16 of the first
    np.testing.assert_allclose(values[0] * variance, values[: len(seen)], atol=1e-13 * values[0])
    np.testing.assert_allclose((centred * m) @ phi, values[0] * phi * variance, atol=1e-11 * values[0])
    # and over the gap to the next in the function itself
    for k in np.flatnonzero(variance > 1e-5):
        wanted = vectors[:, k] / np.sqrt(m @ vectors[:, k] ** 2)
        np.testing.assert_allclose(phi[:, k], wanted * np.sign(wanted @ (m * phi[:, k])), atol=1e-7)
    # none is left out that is there
    most = min(families.N_LOCAL, len(knots) - 1, N // families.ROWS_PER_LOCAL)
    assert len(seen) == min(most, np.count_nonzero(values > families.ROUNDING * values[0]))


def test_levels_of_a_discrete_number_are_exchangeable():
    x, _ = column("few")
    weight = np.random.default_rng(2).random(N)
    system = system_of(x, weight)
    m = np.bincount(x.astype(int), weight) / weight.sum()
    seen = system.of(SEEN, Family.LEVELS)
    phi, variance = system(np.arange(5.0))[:, seen], np.exp(system.offset[seen])
    # Σ variance φφᵀ is up to one size that of effects e ~ N(0, I) less their mean
    centre = np.eye(5) - m[None, :]
    implied, wanted = (phi * variance) @ phi.T, centre @ centre.T
    np.testing.assert_allclose(implied * (wanted[0, 0] / implied[0, 0]), wanted, atol=1e-9)


@pytest.mark.parametrize("family", [*OF_NUMBERS, Family.LEVELS])
def test_between_the_values_of_a_discrete_number_functions_are_lines(family):
    x, _ = column("few")
    x = np.array([0.0, 1.0, 4.0, 4.5, 9.0])[x.astype(int)]
    system = system_of(x, np.ones(N))
    assert system.is_discrete
    assert len(system.transform) == 1
    np.testing.assert_array_equal(system.knots, np.unique(x))
    own = system.of(SEEN, family)
    assert len(own) == 4
    for a, b in itertools.pairwise(system.knots):
        at_ends, share = system(np.array([a, b])), np.array([0.1, 0.5, 0.75])
        between = system(a + share * (b - a))
        for row, s in zip(between, share, strict=True):
            np.testing.assert_allclose(row[own], (1.0 - s) * at_ends[0, own] + s * at_ends[1, own], atol=1e-12)
            # √(s(1 − s)) of a step, of which the range has four: the sd of Brownian motion between two that are known
            assert row[-1] == pytest.approx(np.sqrt(s * (1.0 - s) / 4.0))
        np.testing.assert_array_equal(at_ends[:, -1], 0.0)


def test_a_number_is_discrete_where_its_values_are_few_and_each_has_rows():
    for n_values, n in ((2, 64), (32, 160), (32, 159), (33, 1000), (6, 29), (6, 30)):
        system = system_of(np.arange(n) % n_values * 1.0, np.ones(n))
        wanted = n_values <= functions.MOST_VALUES and n >= functions.ROWS_PER_VALUE * n_values
        assert system.is_discrete == wanted, (n_values, n)
        # either way its values are told apart, by smooth functions too
        at = system(np.arange(n_values) * 1.0)[:, system.of(SEEN)]
        assert np.abs(at[1:] - at[:-1]).max(axis=1).min() > 0.01


@pytest.mark.parametrize("name", ["uniform", "cauchy", "gaps", "few", "heap", "two"])
def test_one_function_grows_with_the_distance_from_the_range(name):
    x, _ = column(name)
    system = system_of(x, np.ones(N))
    assert system.grows
    assert system.kind[-1] == NEVER_SEEN
    low, high = np.nanmin(x), np.nanmax(x)
    assert system.range == (low, high)
    np.testing.assert_array_equal(system(x)[:, -1], 0.0)
    width = high - low
    for widths in (0.01, 1.0, 30.0, functions.FARTHEST):
        found = system(np.array([low - widths * width, high + widths * width]))[:, -1]
        # the sd of Brownian motion that is 1 a width away
        np.testing.assert_allclose(found, np.sqrt(widths), rtol=1e-9)
    np.testing.assert_allclose(system(np.array([low - 1e9 * width]))[:, -1], np.sqrt(functions.FARTHEST))
    assert system(np.array([np.nan]))[0, -1] == 0.0
    inside = system(np.linspace(low, high, 101))[:, -1]
    assert (inside == 0.0).all() != system.is_discrete


@pytest.mark.parametrize("family", OF_NUMBERS)
def test_missing_values_have_a_function_of_their_own(family):
    x, _ = column("gaps")
    system = system_of(x, np.ones(N))
    assert system.of(SEEN, family)[-1] == len(system.kind) - 2
    share = np.isnan(x).mean()
    (at,) = system(np.array([np.nan]))
    np.testing.assert_array_equal(at[1:-2], 0.0)
    assert at[-1] == 0.0
    own = system(x)[:, -2]
    # one value at all missing rows, one at all others: mean 0 and variance 1 leave no choice but the sign
    np.testing.assert_allclose(own[np.isnan(x)], np.sqrt((1 - share) / share))
    np.testing.assert_allclose(own[~np.isnan(x)], -np.sqrt(share / (1 - share)))
    assert system.kind[-2] == SEEN
    assert system.cost[-2] == 1
    assert system.offset[-2] == 0.0


@pytest.mark.parametrize("name", ["uniform", "few"])
def test_a_value_missing_for_the_first_time_is_unseen(name):
    system = system_of(column(name)[0], np.ones(N))
    (at,) = system(np.array([np.nan]))
    assert system.kind[-2] == NEVER_SEEN
    np.testing.assert_array_equal(at, np.concatenate([[1.0], np.zeros(len(at) - 3), [1.0, 0.0]]))
    np.testing.assert_array_equal(system(column(name)[0])[:, -2:], 0.0)


def test_where_nothing_is_missing_no_number_of_rows_makes_a_missing_value():
    for n in range(3, 60):
        system = system_of(np.arange(n) / n, np.ones(n))
        assert system.kind[-2] == NEVER_SEEN, n
        assert np.abs(system(np.array([np.nan]))).max() <= 1.0
        assert not system_of(np.ones(n), np.ones(n)).is_alive


@pytest.mark.parametrize("name", ["levels", "levels with gaps"])
def test_levels_are_exchangeable(name):
    x, n_levels = column(name)
    weight = np.random.default_rng(2).random(N)
    system = system_of(x, weight, n_levels)
    places = [float(k) for k in range(n_levels) if (x == k).any()] + ([np.nan] if np.isnan(x).any() else [])
    m = np.array([weight[np.isnan(x) if np.isnan(v) else x == v].sum() for v in places]) / weight.sum()
    phi = system(np.array(places))
    unseen = system.of(NEVER_SEEN)
    np.testing.assert_array_equal(phi[:, unseen], 0.0)
    # Level effects e ~ N(0, ω²I), less their mean under the marginal: Cov = ω² (I − 1mᵀ)(I − 1mᵀ)ᵀ. Up to one size τ²
    # the prior of the coefficients, N(0, τ² exp(offset)), must imply the same, and N(0, ω²) for a level never seen.
    (one_more,) = np.exp(system.offset[unseen])
    seen = system.of(SEEN)
    implied = (phi[:, seen] * np.exp(system.offset[seen])) @ phi[:, seen].T / one_more
    centre = np.eye(len(m)) - m[None, :]
    np.testing.assert_allclose(implied, centre @ centre.T, atol=1e-9)
    assert (system.cost[1:] == 1).all()  # no level is smoother than another


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_level_never_seen_is_told_by_its_own_function_alone(name):
    x, n_levels = column(name)
    system = system_of(x, np.ones(N), n_levels)
    never = [-1.0, *(float(k) for k in range(n_levels) if not (x == k).any())]
    never += [] if np.isnan(x).any() else [np.nan]
    for value in never:
        (at,) = system(np.array([value]))
        np.testing.assert_array_equal(at[system.of(SEEN)], 0.0)
        np.testing.assert_array_equal(at[system.of(NEVER_SEEN)], 1.0)
        assert at[0] == 1.0


def test_a_heap_of_equal_values_keeps_the_others_apart():
    rng = np.random.default_rng(0)
    n = 2048
    x = np.where(rng.random(n) < 0.8, 0.0, 1.0 + rng.random(n))
    system = system_of(x, np.ones(n))
    # 192 steps of rank, 4 of 5 of them in the heap: its share goes to the distinct values
    assert len(system.knots) > 100
    assert np.count_nonzero(system.knots > 0) > 100
    assert (np.diff(system.knots) > 0).all()
    # all but those at equal steps are values
    assert np.count_nonzero(~np.isin(system.knots, x)) <= families.KNOTS_BY_VALUE
    assert np.count_nonzero(np.isin(system.knots, x)) > 100
    assert system.knots[0] == x.min()
    assert system.knots[-1] == x.max()
    # values beside each other are told apart
    for family in OF_NUMBERS:
        at = system(np.array([1.2, 1.3]))[:, system.of(SEEN, family)]
        assert np.abs(at[0] - at[1]).max() > 0.1


def test_columns_that_do_not_vary_are_dead_and_two_values_have_one_function():
    for name in ("constant", "nothing", "one level"):
        x, n_levels = column(name)
        assert not system_of(x, np.ones(N), n_levels).is_alive
    for name, n_functions in (("two", 1), ("constant with gaps", 1), ("two with gaps", 2), ("few", 4), ("levels", 3)):
        x, n_levels = column(name)
        system = system_of(x, np.ones(N), n_levels)
        assert system.is_alive
        for family in system.families or (Family.ANY,):
            assert len(system.of(SEEN, family)) == n_functions
        assert np.isfinite(system(np.append(x, [np.nan, 0.0, 1.0]))).all()


@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
def test_rows_of_weight_zero_are_not_there(name):
    x, n_levels = column(name)
    weight = np.ones(N)
    weight[N // 2 :] = 0.0
    spoiled = x.copy()
    spoiled[N // 2 :] = n_levels - 1 if n_levels else 1e6
    with_them = system_of(spoiled, weight, n_levels)
    without = system_of(x[: N // 2], np.ones(N // 2), n_levels)
    assert_same(with_them, without, x, atol=1e-12)


@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
def test_a_weight_is_a_number_of_equal_rows(name):
    # rows enough for all the local functions either way: there may be one for every 8 rows
    n = 512
    x, n_levels = column(name, n=n)
    # few enough values for all to be knots: of knots at steps of rank, the last bit of a share may choose the neighbour
    x = np.round(x, 1)
    weight = np.tile([1.0, 3.0], n // 2)
    repeated = np.repeat(x, weight.astype(int))
    once = system_of(x, weight, n_levels)
    again = system_of(repeated, np.ones(len(repeated)), n_levels)
    # eigenvectors and QR of the same matrix to rounding, whose worst condition is 1e6
    assert_same(once, again, x, atol=1e-6)


@pytest.mark.parametrize("name", ["uniform", "cauchy", "gaps", "few", "heap"])
def test_outside_their_range_values_count_as_its_end(name):
    x, _ = column(name)
    system = system_of(x, np.ones(N))
    ends = np.array([np.nanmin(x), np.nanmax(x)])
    outside = system(ends + np.array([-1e3, 1e3]))
    np.testing.assert_allclose(outside[:, :-1], system(ends)[:, :-1], atol=1e-12)
    # all but that of what was never seen
    assert (outside[:, -1] > 0.1).all()


def test_polynomials_of_a_heavy_tail_do_not_swing_in_it():
    x, _ = column("cauchy", n=1024)
    system = system_of(x, np.ones(1024))
    assert len(system.quantiles) == families.N_QUANTILES
    linear = system(np.sort(x))[:, 1]
    assert (np.diff(linear) > -1e-9).all()  # the coordinate rises with the value
    # of 1024 rows the far ones must not own the first polynomial: in the value itself one row alone has Σφ² > 500
    assert (linear**2).max() < 50
    short = system_of(column("uniform")[0], np.ones(N))
    assert len(short.quantiles) == 0


def test_few_rows_or_values_leave_smooth_functions_alone():
    assert system_of(np.arange(12) / 12, np.ones(12)).families == (Family.SMOOTH,)
    assert system_of(column("two")[0], np.ones(N)).families == (Family.SMOOTH,)


@given(st.integers(0, 30), st.integers(2, 9), st.integers(1, 60), st.integers(0, 10**6))
def test_products_are_those_up_to_a_degree_of_largest_variance_first(seed, total, limit, draw):
    weight = np.ones(N)
    names = ["few", "gaps", "levels"]
    own = [system_of(column(name, seed)[0], weight, column(name, seed)[1]) for name in names]
    rng = np.random.default_rng(draw)
    for term in ((0,), (2,), (0, 1), (1, 2), (0, 1, 2)):
        chosen = tuple(Family(rng.choice(own[i].families)) for i in term)
        index = products(own, term, chosen, total, limit)
        every = [
            k
            for k in itertools.product(*(range(1, len(own[i].kind)) for i in term))
            if all(own[i].kind[place] == SEEN for i, place in zip(term, k, strict=True))
            and all(own[i].family[place] in (f, -1) for i, f, place in zip(term, chosen, k, strict=True))
            and sum(own[i].cost[place] for i, place in zip(term, k, strict=True)) <= total
        ]
        seen = index
        if len(term) == 1:
            unseen = own[term[0]].of(NEVER_SEEN)
            assert index[len(index) - len(unseen) :, 0].tolist() == unseen.tolist()
            seen = index[: len(index) - len(unseen)]
        assert len(seen) == min(len(every), limit)
        assert {tuple(k) for k in seen} <= set(every)
        assert len({tuple(k) for k in seen}) == len(seen)

        def log_variance(k, term=term):
            parts = list(zip(term, k, strict=True))
            return sum(own[i].offset[place] - USUAL_DECAY * own[i].cost[place] for i, place in parts)

        ranks = [log_variance(k) for k in seen]
        left_out = [log_variance(k) for k in set(every) - {tuple(k) for k in seen}]
        for a, b in itertools.chain(itertools.pairwise(ranks), ((ranks[-1], r) for r in left_out) if ranks else ()):
            assert a >= b - 1e-8  # those equal to rounding are equal


def test_a_term_has_what_was_chosen_for_it_or_for_its_inputs_or_smooth_functions():
    own = [system_of(column(name)[0], np.ones(N), column(name)[1]) for name in ("few", "gaps", "levels", "constant")]
    rough, matern, smooth, levels = Family.BROWNIAN, Family.MATERN, Family.SMOOTH, Family.LEVELS
    assert usual_families(own, (0, 1, 2), {}) == (smooth, smooth, levels)
    assert usual_families(own, (3,), {}) == (Family.ANY,)
    chosen = {(1,): (rough,), (0, 2): (matern, levels)}
    assert usual_families(own, (0, 1), chosen) == (smooth, rough)
    assert usual_families(own, (0, 2), chosen) == (matern, levels)
    assert usual_families(own, (0,), chosen) == (smooth,)


def anywhere(x, n_levels):
    """Values between those there are and beyond them, missing ones and levels never seen."""
    if n_levels:
        return np.append(x, [-1.0, np.nan])
    ends = np.nanmin(x), np.nanmax(x)
    return np.concatenate([x, np.linspace(ends[0] - 2.0, ends[1] + 2.0, 31), [np.nan, -1e6, 1e6]])


@pytest.mark.parametrize("n_values", [7, 12, 24])
def test_cyclic_functions_are_the_waves_of_values_that_come_round(n_values):
    x = np.repeat(np.arange(n_values), 10) + 1.0
    system = system_of(x, np.ones(len(x)))
    own = np.flatnonzero(system.family == Family.CYCLIC)
    values, k = system(np.arange(n_values) + 1.0)[:, own], np.arange(n_values)
    assert len(own) == n_values - 1
    for column, cost in zip(values.T, system.cost[own], strict=True):
        # of one frequency, its degree, whatever the phase; rounding of a QR of 24 columns
        power = np.abs(np.fft.rfft(column)) ** 2
        assert power[cost] == pytest.approx(power.sum(), rel=1e-12)
    # equally far on from the last value as from any other
    prior = values @ np.diag(np.exp(-2.0 * system.cost[own])) @ values.T
    np.testing.assert_allclose(prior, prior[0][(k[:, None] - k[None, :]) % n_values], atol=1e-12)


@pytest.mark.parametrize(
    "values", [np.arange(11.0), np.arange(25.0), np.delete(np.arange(13.0), 5), np.geomspace(1.0, 9.0, 12)]
)
def test_values_that_are_not_one_step_apart_or_as_many_as_hours_do_not_come_round(values):
    x = np.repeat(values, 10)
    assert Family.CYCLIC not in system_of(x, np.ones(len(x))).families


@pytest.mark.parametrize("name", sorted({*NUMBERS, *CATEGORIES} - {"nothing"}))
def test_functions_at_rows_can_be_asked_for_some_at_a_time(name):
    x, n_levels = column(name)
    system, x = system_of(x, np.ones(N), n_levels), anywhere(x, n_levels)
    whole, at = system(x), system.at(x)
    places = np.random.default_rng(0).integers(0, len(system.kind), 7)
    np.testing.assert_array_equal(at.of(places), whole[:, places])
    np.testing.assert_array_equal(at.rows(slice(5, 300)).of(places), whole[5:300, places])
    np.testing.assert_array_equal(at.kept().of(places), whole[:, places])
    np.testing.assert_array_equal(at.kept().rows(slice(5, 300)).of(places), whole[5:300, places])
    single = at.of(places, np.float32)
    assert single.dtype == np.float32
    # 24 bits of functions that are of order ten
    np.testing.assert_allclose(single, whole[:, places], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted({*NUMBERS, *CATEGORIES} - {"nothing"}))
@pytest.mark.parametrize("n_used", [0, 1, 5])
def test_a_system_of_some_functions_has_them_unchanged(name, n_used):
    x, n_levels = column(name)
    system, x = system_of(x, np.ones(N), n_levels), anywhere(x, n_levels)
    used = np.random.default_rng(n_used).choice(len(system.kind), min(n_used, len(system.kind)), replace=False)
    part, place = system.only(used)
    # these, and those that are always there: 1, polynomials, of what is missing and of what was never seen
    always = np.flatnonzero((system.family == Family.ANY) | (np.arange(len(place)) < len(system.transform)))
    kept = np.union1d(used, always)
    np.testing.assert_array_equal(part(x)[:, place[kept]], system(x)[:, kept])
    for field in ("kind", "cost", "offset", "family"):
        np.testing.assert_array_equal(getattr(part, field)[place[kept]], getattr(system, field)[kept])
    np.testing.assert_array_equal(part.gram[np.ix_(place[kept], place[kept])], system.gram[np.ix_(kept, kept)])
    assert part.range == system.range
    assert part.grows == system.grows
    if not n_levels:
        assert len(part.kind) == len(kept)


@pytest.mark.parametrize("name", ["uniform", "cauchy", "gaps", "few"])
def test_recentred_functions_have_mean_zero_under_another_marginal(name):
    x, n_levels = column(name)
    system = system_of(x, np.ones(N), n_levels)
    other = column(name, seed=1)[0] + 0.1 * (name != "few")
    phi = system(other)
    again = system.recentred(phi.mean(axis=0), phi.T @ phi / N)
    found = again(other)
    # but for the last, of what was never seen, which stays
    np.testing.assert_allclose(found[:, 1:-1].mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_array_equal(found[:, -1], phi[:, -1])
    np.testing.assert_allclose(again.gram, found.T @ found / N, atol=1e-8)


def test_columns_are_products_of_functions():
    rng = np.random.default_rng(0)
    own = [system_of(column(name)[0], np.ones(N)) for name in ("few", "gaps", "uniform")]
    x = rng.random((20, 3))
    values = [system.at(each) for system, each in zip(own, x.T, strict=True)]
    index = np.stack([rng.integers(0, len(own[i].kind), 6) for i in (0, 2)], axis=1)
    found = columns(values, (0, 2), index)
    for row in range(20):
        one, other = own[0](x[[row], 0])[0], own[2](x[[row], 2])[0]
        for m, (a, b) in enumerate(index):
            assert found[row, m] == pytest.approx(one[a] * other[b], rel=1e-12, abs=1e-12)


def test_rows_that_are_chosen_share_the_values_of_all(rng):
    """Of many latent functions each has rows of its own: copies of all functions for each would fill the memory."""
    x = rng.standard_normal(N)
    system = system_of(x, np.ones(N))
    every, some = system.at(x).kept(), np.sort(rng.choice(N, 100, replace=False))
    chosen, places = every.rows(some), np.arange(1, len(system.kind))
    assert chosen.held is every.held
    np.testing.assert_array_equal(chosen.of(places), every.of(places)[some])
    np.testing.assert_array_equal(chosen.rows(slice(10, 30)).of(places), every.of(places)[some[10:30]])
    np.testing.assert_array_equal(chosen.rows(np.arange(5)).of(places), every.of(places)[some[:5]])
    np.testing.assert_array_equal(chosen.kept().of(places), every.of(places)[some])
