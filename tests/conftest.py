import jax
import jax.random as jr
import pytest

# Implicit broadcasting between ranks hides mistakes: every such place is written out.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key():
    return jr.key(0)


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield
