"""The fast generator, by the simple tests that a bad one fails."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from vertebra.networks.keys import fast

KEY = fast(jr.key(0))
N = 1 << 20


def test_words_are_uniform_in_every_byte_and_every_bit():
    words = np.asarray(jr.bits(KEY, (N,)))
    for shift in (0, 8, 16, 24):
        counts = np.bincount((words >> shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(N)
    assert np.abs(z).max() < 4.5  # 32 bits


def test_neighbouring_words_keys_and_steps_do_not_correlate():
    u = np.asarray(jr.uniform(KEY, (N,)), np.float64)
    for lag in (1, 2, 3, 10, 100, 1000, 1024):
        assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) * np.sqrt(N) < 4.5
    for other in (jr.split(KEY)[0], jr.split(KEY)[1], jr.fold_in(KEY, 0), jr.fold_in(KEY, 1), fast(jr.key(1))):
        v = np.asarray(jr.uniform(other, (N,)), np.float64)
        for lag in (0, 1):
            assert abs(np.corrcoef(u[: N - lag], v[lag:])[0, 1]) * np.sqrt(N) < 4.5
    # The same word of many keys, as the steps of a fit and the rows of a split use them.
    steps = np.asarray(jax.vmap(lambda t: jr.uniform(jr.fold_in(KEY, t), (4,)))(jnp.arange(1 << 16)), np.float64)
    assert np.abs(np.corrcoef(steps.T) - np.eye(4)).max() * 256 < 4.5
    assert abs(np.corrcoef(steps[:-1, 0], steps[1:, 0])[0, 1]) * 256 < 4.5
    assert stats.kstest(steps[:, 0], "uniform").pvalue > 1e-4


def test_pairs_fill_the_square():
    u = np.asarray(jr.uniform(KEY, (N,)))
    for shift in (1, 100):
        counts = np.histogram2d(u[:-shift], u[shift:], bins=64, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(counts.ravel()).pvalue > 1e-4


def test_one_changed_key_bit_changes_half_of_all_bits():
    data = np.asarray(jr.key_data(KEY))
    words = np.asarray(jr.bits(KEY, (4096,)))
    for word in range(2):
        for bit in range(0, 32, 5):
            changed = data.copy()
            changed[word] ^= np.uint32(1 << bit)
            other = np.asarray(jr.bits(jr.wrap_key_data(changed, impl=jr.key_impl(KEY)), (4096,)))
            share = np.unpackbits((words ^ other).view(np.uint8)).mean()
            assert abs(share - 0.5) < 0.02  # 131072 bits: sd 0.0014, were they independent


def test_normals_have_normal_moments_and_tails():
    z = np.asarray(jr.normal(KEY, (N,)), np.float64)
    # Standard errors 0.001, 0.0014, 0.0024·… of the first four moments at 2²⁰ draws.
    assert abs(z.mean()) < 0.005
    assert abs(z.var() - 1.0) < 0.007
    assert abs(np.mean(z**3)) < 0.02
    assert abs(np.mean(z**4) - 3.0) < 0.05
    assert stats.kstest(z, "norm").pvalue > 1e-4


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_every_kind_of_key_is_taken_and_keeps_its_identity(impl):
    first, second = fast(jr.key(3, impl=impl)), fast(jr.key(4, impl=impl))
    assert not np.array_equal(jr.key_data(first), jr.key_data(second))
    assert fast(first) is first
    assert np.array_equal(jr.uniform(first, (3,)), jr.uniform(fast(jr.key(3, impl=impl)), (3,)))


def test_other_widths_and_double_precision_work(x64):
    assert jr.bits(KEY, (3,), jnp.uint8).dtype == jnp.uint8
    u = np.asarray(jr.uniform(KEY, (1 << 16,), jnp.float64))
    assert len(np.unique(u)) == 1 << 16
    assert abs(u.mean() - 0.5) < 0.006
