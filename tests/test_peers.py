"""The methods that experiments/peers.py compares with, at tiny settings; those whose library is missing are skipped."""

import pathlib

import jax
import numpy as np
import pytest

from vertebra.metrics import rmse

# Warnings of other libraries are theirs to mend.
pytestmark = pytest.mark.filterwarnings("default")

LIBRARIES = {
    "ebm": ("interpret",),
    "lightgbm": ("lightgbm",),
    "lightgbm_default": ("lightgbm",),
    "stochtree": ("stochtree",),
    "bartz": ("bartz",),
    "sparse_gp": ("torch", "gpytorch"),
    "deep_gp": ("torch", "gpytorch"),
    "mean_field_bnn": (),
    "nid": (),
}
N = 400  # of every table: the second is not compiled for again
TINY = {
    "EBM": dict(outer_bags=2, max_rounds=200, interactions=1),
    "LIGHTGBM_SEARCHES": 2,
    "LIGHTGBM_ROUNDS": 100,
    "BART_CHAINS": 2,
    "BART_BURN_IN": 50,
    "BART_DRAWS": 20,
    "GP_POINTS": 20,
    "GP_STEPS": 100,
    "SPARSE_GP_LEARNING_RATE": 0.1,
    "DEEP_GP_LEARNING_RATE": 0.05,
    "DEEP_GP_WIDTH": 2,
    "DEEP_GP_DRAWS": 5,
    "BNN_WIDTHS": (10, 10, 1),
    "BNN_STEPS": 500,
    "BNN_DRAWS": 20,
}


@pytest.fixture(scope="module")
def peers():
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            patch.setenv(variable, "1")
        patch.syspath_prepend(pathlib.Path(__file__).parents[1] / "experiments")
        import nid
        import peers

        for name, value in TINY.items():
            patch.setattr(peers, name, value)
        patch.setattr(nid, "HIDDEN", (40, 20))
        # 2000 steps: the pair below is first for 8 seeds of 8; with half of them for 7, with a quarter for 2
        patch.setattr(nid, "N_ROUNDS", 20)
        patch.setattr(nid, "STRENGTHS", (1e-4, 1e-3))
        yield peers


def table(n, seed):
    """Two inputs that matter, two that do not, and one that is constant."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 5))
    x[:, 4] = 0.3
    return x, 50.0 + 20.0 * x[:, 0] + 5.0 * np.sin(6.0 * x[:, 1]) + rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_method_beats_the_constant_and_repeats_itself(peers, name):
    for library in LIBRARIES[name]:
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'vertebra[peers]'")
    (x, y), (x_test, y_test) = table(N, seed=0), table(50, seed=1)
    with jax.numpy_rank_promotion("allow" if name == "bartz" else "raise"):  # bartz broadcasts between ranks
        first, second = (peers.METHODS[name](x, y, x_test, 3) for _ in range(2))
    log_density = first.log_density(y_test)
    constant = peers._normal(y.mean(), y.std())(y_test)
    assert first.mean.shape == log_density.shape == (50,)
    # The signal's sd is 7 times that of the noise: half the constant's error is far from what any of them could fail.
    assert rmse(y_test, first.mean) < 0.5 * rmse(y_test, y.mean())
    assert np.all(np.isfinite(log_density))
    assert np.mean(log_density) > np.mean(constant)
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(log_density, second.log_density(y_test))
    assert first.interactions == second.interactions


def test_every_method_is_tested(peers):
    assert set(LIBRARIES) == set(peers.METHODS)


def test_the_density_of_draws_is_that_of_the_mixture(peers, rng):
    f, sd, y = rng.normal(size=(3, 2)), np.array([[0.5], [1.0], [2.0]]), np.array([0.3, -4.0])
    naive = [
        np.log(sum(np.exp(-0.5 * ((y[i] - f[s, i]) / sd[s, 0]) ** 2) / sd[s, 0] for s in range(3)) / 3)
        - 0.5 * np.log(2 * np.pi)
        for i in range(2)
    ]
    np.testing.assert_allclose(peers._from_draws(f, sd).log_density(y), naive, rtol=1e-12)  # rounding


def test_nid_ranks_the_pair_that_interacts_first(peers):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(N, 5))
    y = 4.0 * x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * rng.normal(size=N)
    assert peers.nid(x, y, x[:10], 0).interactions[0] == (0, 1)


def test_nid_reads_strengths_off_the_weights(peers):
    import nid

    # |w| of three inputs (rows) into two units
    first, z = np.array([[3.0, 0.1], [2.0, 4.0], [0.5, 5.0]]), np.array([1.0, 10.0])
    # Unit 1 gives {0,1} 2 and {0,1,2} ½, unit 2 {1,2} 40 and {0,1,2} 1. {0,1} is stronger than the set that holds it.
    assert nid.interactions(first, z) == {(1, 2): 40.0, (0, 1): 2.0, (0, 1, 2): 1.5}
    assert list(nid.interactions(first, z)) == [(1, 2), (0, 1), (0, 1, 2)]
    # Both units now give {0,1,2}, 1.9 and 4; {0,1} has 2 of the first and {0,2} 5 of the second: they lie inside it.
    first, z = np.array([[3.0, 5.0], [2.0, 4.0], [1.9, 6.0]]), np.array([1.0, 1.0])
    assert nid.interactions(first, z) == {(0, 1, 2): 5.9}


def test_nid_bounds_the_influence_of_a_unit_by_the_paths_above_it(peers, rng):
    import nid

    layers = [(rng.normal(size=shape), None) for shape in ((5, 4), (4, 3), (3, 2), (2, 1))]
    naive = [
        sum(abs(layers[1][0][i, j] * layers[2][0][j, k] * layers[3][0][k, 0]) for j in range(3) for k in range(2))
        for i in range(4)
    ]
    np.testing.assert_allclose(nid.influence(layers), naive, rtol=1e-12)  # rounding
