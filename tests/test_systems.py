import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertebra.terms import functions as systems
from vertebra.terms.functions import CONSTANT, NEVER_SEEN, SEEN, columns, products, system_of

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


NUMBERS = ["uniform", "normal", "cauchy", "gaps", "few", "two", "two with gaps", "heap", "constant", "nothing"]
NUMBERS.append("constant with gaps")
CATEGORIES = ["levels", "levels with gaps", "one level"]


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
    np.testing.assert_allclose(one.offset, other.offset, atol=atol)
    np.testing.assert_allclose(one.gram, other.gram, atol=atol)
    np.testing.assert_allclose(one(at), other(at), atol=atol)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_functions_have_mean_zero_and_the_gram_is_the_empirical_one(name, rough, seed):
    x, n_levels = column(name, seed)
    # shares that add up to 1 exactly
    weight = np.random.default_rng(seed).permutation(np.tile([0.0, 0.5, 0.5, 1.0], N // 4))
    system = system_of(x, weight, n_levels, rough=rough)
    gram = naive_gram(system, x, weight)
    if name != "nothing":  # where all is missing there is no marginal: what stands in its place is a constant
        np.testing.assert_allclose(gram[0, 1:], 0.0, atol=1e-8)
        np.testing.assert_allclose(system.gram, gram, atol=1e-9)
    seen = system.of(SEEN)
    own = gram[np.ix_(seen, seen)]
    # polynomials: QR, where those are left out that rounding cannot tell apart, as in the test of `orthonormal`; lines
    # between the knots of the Brownian functions: none at the knots themselves, and with fewer than 2·128 values all
    # are knots
    np.testing.assert_allclose(own, np.eye(len(seen)), atol=1e-7)
    assert system.kind[0] == CONSTANT
    assert (np.delete(system.kind, 0) != CONSTANT).all()
    np.testing.assert_allclose(system(x)[:, 0], 1.0, rtol=1e-12)
    # the data say nothing about what is unseen
    if name != "nothing":
        np.testing.assert_array_equal(gram[system.of(NEVER_SEEN)], 0.0)


@pytest.mark.parametrize("name", ["cauchy", "gaps", "heap"])
def test_brownian_functions_between_knots_are_nearly_orthonormal(name):
    n = 4096
    x, _ = column(name, n=n)
    system = system_of(x, np.ones(n), rough=True)
    assert system.is_rough
    assert len(system.knots) < len(np.unique(x[~np.isnan(x)]))
    values = system(x)
    np.testing.assert_allclose(system.gram, values.T @ values / n, atol=1e-9)
    np.testing.assert_allclose(system.gram[0, 1:], 0.0, atol=1e-9)
    seen = system.of(SEEN)
    # lines between knots cut the corners of cos(kπu): it loses (kπ/127)²/6 of its square, of which half is allowed for
    # knots that do not lie evenly; the function of missing values loses nothing
    lost = 1.5 * (np.pi * np.arange(1, 41) / (systems.N_KNOTS - 1)) ** 2 / 6.0
    gram = system.gram[np.ix_(seen, seen)][:40, :40]
    assert (np.abs(1.0 - np.diag(gram)) < lost + 1e-3).all()
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 0.05


@pytest.mark.parametrize("name", ["few", "uniform"])
def test_brownian_functions_and_variances_are_those_of_brownian_motion_along_ranks(name):
    """Σ_k variance_k φ_k φ_kᵀ is the covariance of a random walk over the distinct values, centred."""
    x, _ = column(name, n=128)
    weight = np.random.default_rng(1).integers(1, 3, 128).astype(float)
    knots, index = np.unique(x, return_inverse=True)
    n_rough = min(systems.N_ROUGH, len(knots) - 1, len(x) // systems.ROWS_PER_ROUGH)
    system = system_of(x, weight, rough=True)
    assert len(system.of(SEEN)) == n_rough
    m = np.bincount(index, weight) / weight.sum()
    walk = np.array([[min(a, b) for b in range(len(knots))] for a in range(len(knots))]) / (len(knots) - 1)
    # Cov(B_a − Σ m B, B_b − Σ m B)
    centred = np.array(
        [[walk[a, b] - m @ walk[:, b] - m @ walk[:, a] + m @ walk @ m for b in range(len(m))] for a in range(len(m))]
    )
    phi = system(knots)[:, system.of(SEEN)]
    variance = np.exp(system.offset[system.of(SEEN)])
    # covariance times mass maps each function to its variance's multiple, the same multiple for all
    ratio = (centred * m) @ phi / (phi * variance)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    if name == "few":  # all functions there are
        np.testing.assert_allclose(ratio[0, 0] * (phi * variance) @ phi.T, centred, atol=1e-9)


@pytest.mark.parametrize("rough", [False, True])
def test_missing_values_have_a_function_of_their_own(rough):
    x, _ = column("gaps")
    system = system_of(x, np.ones(N), rough=rough)
    assert system.is_rough == rough
    share = np.isnan(x).mean()
    (at,) = system(np.array([np.nan]))
    np.testing.assert_array_equal(at[1:-1], 0.0)
    own = system(x)[:, -1]
    # one value at all missing rows, one at all others: mean 0 and variance 1 leave no choice but the sign
    np.testing.assert_allclose(own[np.isnan(x)], np.sqrt((1 - share) / share))
    np.testing.assert_allclose(own[~np.isnan(x)], -np.sqrt(share / (1 - share)))
    assert system.kind[-1] == SEEN
    assert system.cost[-1] == 1
    assert system.offset[-1] == 0.0


@pytest.mark.parametrize("rough", [False, True])
def test_a_value_missing_for_the_first_time_is_unseen(rough):
    system = system_of(column("uniform")[0], np.ones(N), rough=rough)
    (at,) = system(np.array([np.nan]))
    assert system.kind[-1] == NEVER_SEEN
    np.testing.assert_array_equal(at, np.append(np.append(1.0, np.zeros(len(at) - 2)), 1.0))
    np.testing.assert_array_equal(system(column("uniform")[0])[:, -1], 0.0)


def test_where_nothing_is_missing_no_number_of_rows_makes_a_missing_value():
    for n in range(3, 60):
        system = system_of(np.arange(n) / n, np.ones(n))
        assert system.kind[-1] == NEVER_SEEN, n
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
    system = system_of(x, np.ones(n), rough=True)
    # 127 steps of rank, 4 of 5 of them in the heap: its share goes to the distinct values
    assert len(system.knots) > 100
    assert np.count_nonzero(system.knots > 0) > 100
    assert (np.diff(system.knots) > 0).all()
    assert np.isin(system.knots, x).all()
    assert system.knots[0] == x.min()
    assert system.knots[-1] == x.max()
    # values beside each other are told apart
    at = system(np.array([1.2, 1.3]))
    assert np.abs(at[0] - at[1]).max() > 0.1


@pytest.mark.parametrize("rough", [False, True])
def test_columns_that_do_not_vary_are_dead_and_two_values_have_one_function(rough):
    for name in ("constant", "nothing", "one level"):
        x, n_levels = column(name)
        assert not system_of(x, np.ones(N), n_levels, rough=rough).is_alive
    for name, functions in (("two", 1), ("constant with gaps", 1), ("two with gaps", 2), ("few", 4), ("levels", 3)):
        x, n_levels = column(name)
        system = system_of(x, np.ones(N), n_levels, rough=rough)
        assert system.is_alive
        assert len(system.of(SEEN)) == functions
        assert np.isfinite(system(np.append(x, [np.nan, 0.0, 1.0]))).all()


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
def test_rows_of_weight_zero_are_not_there(name, rough):
    x, n_levels = column(name)
    weight = np.ones(N)
    weight[N // 2 :] = 0.0
    spoiled = x.copy()
    spoiled[N // 2 :] = n_levels - 1 if n_levels else 1e6
    with_them = system_of(spoiled, weight, n_levels, rough=rough)
    without = system_of(x[: N // 2], np.ones(N // 2), n_levels, rough=rough)
    assert_same(with_them, without, x, atol=1e-12)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", NUMBERS + CATEGORIES)
def test_a_weight_is_a_number_of_equal_rows(name, rough):
    # rows enough for all the rough functions either way: there may be one for every 8 rows
    n = 512
    x, n_levels = column(name, n=n)
    # few enough values for all to be knots: of knots at steps of rank, the last bit of a share may choose the neighbour
    x = np.round(x, 1)
    weight = np.tile([1.0, 3.0], n // 2)
    repeated = np.repeat(x, weight.astype(int))
    once = system_of(x, weight, n_levels, rough=rough)
    again = system_of(repeated, np.ones(len(repeated)), n_levels, rough=rough)
    # eigenvectors and QR of the same matrix to rounding, whose worst condition is 1e6
    assert_same(once, again, x, atol=1e-6)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", ["uniform", "cauchy", "gaps", "few", "heap"])
def test_outside_their_range_values_count_as_its_end(name, rough):
    x, _ = column(name)
    system = system_of(x, np.ones(N), rough=rough)
    ends = np.array([np.nanmin(x), np.nanmax(x)])
    np.testing.assert_allclose(system(ends + np.array([-1e3, 1e3])), system(ends), atol=1e-12)


def test_polynomials_of_a_heavy_tail_do_not_swing_in_it():
    x, _ = column("cauchy", n=1024)
    system = system_of(x, np.ones(1024))
    assert len(system.quantiles) == systems.N_QUANTILES
    linear = system(np.sort(x))[:, 1]
    assert (np.diff(linear) > -1e-9).all()  # the coordinate rises with the value
    # of 1024 rows the far ones must not own the first polynomial: in the value itself one row alone has Σφ² > 500
    assert (linear**2).max() < 50
    short = system_of(column("uniform")[0], np.ones(N))
    assert len(short.quantiles) == 0


def test_few_rows_or_values_leave_a_rough_system_smooth():
    few = system_of(np.arange(12) / 12, np.ones(12), rough=True)
    assert not few.is_rough
    assert_same(few, system_of(np.arange(12) / 12, np.ones(12)), np.linspace(0, 1, 7))
    assert not system_of(column("two")[0], np.ones(N), rough=True).is_rough


@given(st.integers(0, 30), st.integers(2, 9), st.integers(1, 60))
def test_products_are_those_up_to_a_degree_lowest_first(seed, total, limit):
    weight = np.ones(N)
    names = ["few", "gaps", "levels"]
    own = [system_of(column(name, seed)[0], weight, column(name, seed)[1]) for name in names]
    for term in ((0,), (2,), (0, 1), (1, 2), (0, 1, 2)):
        index = products(own, term, total, limit)
        every = [
            k
            for k in itertools.product(*(range(1, len(own[i].kind)) for i in term))
            if all(own[i].kind[place] == SEEN for i, place in zip(term, k, strict=True))
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

        def rank(k, term=term):
            parts = list(zip(term, k, strict=True))
            return sum(own[i].cost[place] for i, place in parts), -sum(own[i].offset[place] for i, place in parts)

        ranks = [rank(k) for k in seen]
        left_out = [rank(k) for k in set(every) - {tuple(k) for k in seen}]
        for a, b in itertools.chain(itertools.pairwise(ranks), ((ranks[-1], r) for r in left_out) if ranks else ()):
            assert a[0] < b[0] or (a[0] == b[0] and a[1] <= b[1] + 1e-8)  # offsets equal to rounding are equal


def test_columns_are_products_of_functions():
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((20, k)) for k in (3, 5, 4)]
    index = rng.integers(0, 3, (6, 2))
    found = columns(values, (0, 2), index)
    for row in range(20):
        for m, (a, b) in enumerate(index):
            assert found[row, m] == values[0][row, a] * values[2][row, b]
