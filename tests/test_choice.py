"""Which functions a term is made of: evidence against a dense Gaussian, and where rows fill the plane of two inputs."""

import itertools

import numpy as np
import pytest
from scipy import stats

from vertebra.terms.choice import SIZES, SMOOTHER, SMOOTHNESSES, _block, _candidates, _gain, choose, is_filled
from vertebra.terms.evidence import LINK_LOG_VARIANCE, LINK_SMOOTHNESS, LOG_VARIANCE, SMOOTHNESS
from vertebra.terms.families import Family
from vertebra.terms.functions import system_of
from vertebra.terms.model import model_of
from vertebra.terms.sums import RowSums

LOCAL = (Family.MATERN, Family.MATERN32, Family.BROWNIAN)


def rows_of(x, y, n_levels=None, *, weight=None, noise_variance=None, chosen=None):
    weight = np.ones(len(x)) if weight is None else weight
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    systems = [system_of(column, weight, n) for column, n in zip(x.T, levels, strict=True)]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    return RowSums.held(systems, values, y, weight, noise_variance, chosen)


def dense(rows, blocks, variances, noise):
    """log N(y; 0, V) of the n − 1 contrasts of y, V = σ²I + Σ ΦSΦᵀ, row by row."""
    y, values, n = rows.source.y, rows.source.values, len(rows.source.y)
    v = noise * np.eye(n)
    for block, variance in zip(blocks, variances, strict=True):
        phi = np.ones((n, len(block.index)))
        for axis, i in enumerate(block.term):
            phi *= values[i].of(np.arange(len(rows.systems[i].kind)))[:, block.index[:, axis]]
        v += (phi * variance) @ phi.T
    contrasts = np.linalg.svd(np.eye(n) - 1.0 / n)[0][:, : n - 1].T
    return stats.multivariate_normal(np.zeros(n - 1), contrasts @ v @ contrasts.T).logpdf(contrasts @ y)


def naive_gain(model, block):
    """The best size and smoothness on the same grid, by dense densities with the rest of the model as it is."""
    rows, posterior, systems = model.rows, model.posterior, model.rows.systems
    others = [(b, posterior.prior_sd[s] ** 2) for b, s in zip(model.basis.blocks, model.basis.slices, strict=True)]
    others = [(b, s) for b, s in others if b.term != block.term]
    rest, known = [b for b, _ in others], [s for _, s in others]
    without = dense(rows, rest, known, posterior.noise_variance)
    is_link = rows.noise_variance is not None
    centre, spread = LINK_LOG_VARIANCE[min(len(block.term), 2)] if is_link else LOG_VARIANCE
    mean, sd = LINK_SMOOTHNESS if is_link else SMOOTHNESS
    is_smooth = any((systems[i].cost[block.index[:, axis]] > 1).any() for axis, i in enumerate(block.term))
    found = []
    for alpha, size in itertools.product(SMOOTHNESSES if is_smooth else (mean,), SIZES):
        variance = np.full(len(block.index), size * model.evidence.scale)
        for axis, i in enumerate(block.term):
            step = systems[i].cost[block.index[:, axis]] - 1.0
            decay = 0.95 * np.exp(-alpha * step) + 0.05 * np.exp(-0.4 * alpha * step)
            variance *= np.exp(systems[i].offset[block.index[:, axis]]) * decay
        prior = ((np.log(size) - centre) / spread) ** 2 + ((alpha - mean) / sd) ** 2
        found.append(dense(rows, [*rest, block], [*known, variance], posterior.noise_variance) - without - 0.5 * prior)
    return max(found)


@pytest.mark.parametrize("noise_variance", [None, 0.3])
def test_what_a_family_gains_is_the_difference_of_dense_log_evidences(noise_variance):
    rng = np.random.default_rng(0)
    x = rng.random((50, 3))
    x[:, 2] = rng.integers(0, 3, 50)
    x[rng.random(50) < 0.2, 1] = np.nan
    y = np.sin(5.0 * x[:, 0]) + (x[:, 2] == 1) + 0.5 * rng.standard_normal(50)
    rows = rows_of(x, y, (0, 0, 3), noise_variance=noise_variance)
    model = model_of(rows, [(0,), (2,)])
    for term in ((0,), (1,), (0, 2)):  # in the model and not
        for families in itertools.islice(_candidates(model, term), 2 if len(term) > 1 else None):
            block = _block(rows.systems, term, families)
            rows.learn_squares([block])
            rows.learn_products([block], model.basis.blocks)
            # the term is seen against the others at their hyper-parameters: 1e-9 of solves with 50 × 50 matrices
            assert _gain(model, block) == pytest.approx(naive_gain(model, block), rel=1e-6, abs=1e-6)


def test_the_family_of_highest_evidence_is_chosen_smooth_ones_with_a_lead():
    rng = np.random.default_rng(1)
    x = rng.random((60, 2))
    y = np.where(x[:, 0] > 0.4, 1.0, -1.0) + x[:, 1] + 0.3 * rng.standard_normal(60)
    model = model_of(rows_of(x, y), [(0,), (1,)])
    for term in ((0,), (1,)):
        worth = {
            families: naive_gain(model, _block(model.rows.systems, term, families))
            + SMOOTHER * (Family.SMOOTH in families)
            for families in _candidates(model, term)
        }
        assert set(worth) == {(family,) for family in model.rows.systems[term[0]].families}
        assert choose([model], [term]) == {term: max(worth, key=lambda families: worth[families])}


@pytest.mark.parametrize("seed", range(3))
def test_steps_have_local_functions_and_waves_smooth_ones(seed):
    rng = np.random.default_rng(seed)
    x = rng.random((500, 3))
    step, wave = np.where(np.floor(4 * x[:, 0]) % 2 > 0, 1.0, -1.0), np.sin(5.0 * x[:, 1])
    y = step + wave + 0.3 * rng.standard_normal(500)
    found = choose([model_of(rows_of(x, y), [(0,), (1,), (2,)])], [(0,), (1,), (2,)])
    # the roughest for jumps; where there is nothing, smooth ones by their lead
    assert found == {(0,): (Family.BROWNIAN,), (1,): (Family.SMOOTH,), (2,): (Family.SMOOTH,)}
    # several latent functions: the sum of what they gain
    models = [model_of(rows_of(x, each), [(0,), (1,)]) for each in (y, rng.standard_normal(500))]
    assert choose([*models, None], [(0,)])[(0,)] == (Family.BROWNIAN,)
    assert choose([None], [(0,)]) == {}


def test_values_of_a_discrete_number_without_order_are_told_apart_as_levels():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 12, 600), rng.integers(0, 12, 600)], axis=1).astype(float)
    y = rng.permutation(12)[x[:, 0].astype(int)] - 5.5 + x[:, 1] + 0.3 * rng.standard_normal(600)
    found = choose([model_of(rows_of(x, y), [(0,), (1,)])], [(0,), (1,)])
    assert found == {(0,): (Family.LEVELS,), (1,): (Family.SMOOTH,)}


def test_what_comes_round_has_cyclic_functions_and_what_does_not_has_none():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(1, 13, 600), rng.integers(0, 24, 600)], axis=1).astype(float)
    y = np.sin(2.0 * np.pi * (x[:, 0] + 2.0) / 12.0) + 0.1 * x[:, 1] + 0.3 * rng.standard_normal(600)
    found = choose([model_of(rows_of(x, y), [(0,), (1,)])], [(0,), (1,)])
    assert found == {(0,): (Family.CYCLIC,), (1,): (Family.SMOOTH,)}


def pair(kind, n=1000, seed=0):
    """Two inputs, and the levels of each."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n)
    x, levels = {
        "independent": ((a, b), (0, 0)),
        "normal": ((rng.standard_normal(n), rng.standard_normal(n)), (0, 0)),
        "on a line": ((a, a + 0.05 * b), (0, 0)),
        "in a triangle": ((a, a * b), (0, 0)),
        "two values": ((a, (b > 0.5) * 1.0), (0, 0)),
        "two values of halves": ((a, (a > 0.5) * 1.0), (0, 0)),
        "levels": ((a, np.floor(3 * b)), (0, 3)),
        "levels of parts": ((a, np.floor(3 * a)), (0, 3)),
        "with gaps": ((np.where(b < 0.3, np.nan, a), rng.random(n)), (0, 0)),
        # what is missing is no value: low values of the one and high ones of the other never meet
        "filled by gaps alone": ((np.where((b > 0.4) & (a < 0.5), np.nan, a), b), (0, 0)),
    }[kind]
    return np.stack(x, axis=1), levels


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("independent", True),
        ("normal", True),
        ("on a line", False),
        ("in a triangle", False),
        ("two values", True),
        ("two values of halves", False),
        ("levels", True),
        ("levels of parts", False),
        ("with gaps", True),
        ("filled by gaps alone", False),
    ],
)
def test_rows_fill_the_plane_of_inputs_that_are_independent(kind, wanted):
    x, levels = pair(kind)
    y = np.random.default_rng(1).standard_normal(len(x))
    assert is_filled(rows_of(x, y, levels), (0, 1)) == wanted
    assert is_filled(rows_of(x[:, ::-1], y, levels[::-1]), (0, 1)) == wanted
    # a line is filled
    assert is_filled(rows_of(x, y, levels), (0,))


@pytest.mark.parametrize(("kind", "wanted"), [("independent", True), ("on a line", False)])
def test_rows_of_weight_zero_fill_nothing(kind, wanted):
    x, _ = pair(kind)
    more, _ = pair("independent", seed=5)
    both, weight = np.concatenate([x, more]), np.repeat([1.0, 0.0], 1000)
    y = np.random.default_rng(1).standard_normal(2000)
    assert is_filled(rows_of(both, y, weight=weight), (0, 1)) == wanted


def test_where_rows_do_not_fill_the_plane_functions_of_pairs_are_local():
    for kind in ("independent", "on a line", "in a triangle"):
        x, _ = pair(kind)
        y = np.sin(4.0 * x[:, 0] * x[:, 1]) + 0.3 * np.random.default_rng(1).standard_normal(len(x))
        model = model_of(rows_of(x, y), [(0,), (1,)])
        assert any(Family.SMOOTH in families for families in _candidates(model, (0, 1))) == (kind == "independent")
        (found,) = choose([model], [(0, 1)]).values()
        assert kind == "independent" or all(family in LOCAL for family in found)
