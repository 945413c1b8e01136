import jax.random as jr
import numpy as np
import pytest

from vertebra.datasets import synthetic
from vertebra.terms.group_lasso import clusters_of, group_lasso_path


@pytest.fixture(scope="module")
def path():
    data = synthetic("f1", 1200, noise=0.5, seed=0)
    x = (data.x - data.x.mean(axis=0)) / data.x.std(axis=0)
    y = (data.y - data.y.mean()) / data.y.std()
    found = group_lasso_path(
        x, y, key=jr.key(0), n_subnetworks=5, penalties=(5.0, 0.02, 0.01), n_steps=900, learning_rate=2e-2
    )
    return found, x


def test_proximal_steps_end_in_exact_zeros(path):
    found, _ = path
    # the strongest penalty allows nothing, the others keep some groups and drop most
    assert (found.norms[0] == 0.0).all()
    share = (found.norms[1:] == 0.0).mean(axis=(1, 2))
    assert (share > 0.5).all()
    assert (share < 1.0).all()
    # and what is stored in the network is what was counted
    stored = np.linalg.norm(np.asarray(found.network.stacks[0].function.posterior.mean), axis=1)
    np.testing.assert_array_equal(stored == 0.0, found.norms[found.chosen] == 0.0)


def test_the_reading_sets_hold_what_interacts_and_not_what_is_irrelevant(path):
    found, x = path
    clusters = clusters_of(found, x)
    assert any({0, 1} <= set(c) for c in clusters)
    read = {i for c in clusters for i in c}
    assert {0, 1, 2, 3, 4} <= read
    assert len(read) <= 6
    # no set inside another
    assert not any(set(a) < set(b) for a in clusters for b in clusters)
