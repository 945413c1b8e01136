import gc
import itertools
import os
import pathlib

# Most of a test's time is compilation: leave the costly optimisations of generated code out.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

# And none twice: a worker, and the interpreters that its tests start, share what was compiled. Each worker has a folder
# of its own: JAX writes its files in place, and who reads one that is half written is told so by a warning.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(
    pathlib.Path(__file__).parents[1] / ".pytest_cache" / f"jax-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import jax.random as jr
import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# No time limit per example on a shared machine; the same examples each time where a red run blocks others.
settings.register_profile("vertebra", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("vertebra")

# Looking at them takes longer the more there are: every tenth time is soon enough, as a test adds few thousands.
MAPS, MOST_MAPS, EVERY = pathlib.Path("/proc/self/maps"), 30_000, 10

# Implicit broadcasting between ranks hides mistakes: every such place is written out.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True, scope="session")
def one_thread_each():
    """Tests run side by side: threads of LAPACK's own would fight for the cores."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of a test marked `everyday`, the parameters that it does not name belong to the slow tier."""
    found, named = set(), set()
    for item in items:
        for mark in item.iter_markers("everyday"):
            found.add((item.function, item.callspec.id))
            named |= {(item.function, name) for name in mark.args}
            if item.callspec.id not in mark.args:
                item.add_marker(pytest.mark.slow)
    unknown = [f"{function.__name__}[{name}]" for function, name in named - found]
    if unknown and not any("::" in argument for argument in config.args):  # with which not all parameters are there
        raise pytest.UsageError(f"`everyday` names parameters that are not there: {', '.join(unknown)}")


finished = itertools.count(1)


@pytest.fixture(autouse=True)
def room_for_compiled_programs():
    """Each compiled program holds maps of memory, of which Linux gives a process 65,530; one more is the end of it."""
    yield
    if next(finished) % EVERY == 0 and MAPS.is_file() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def key():
    return jr.key(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield
