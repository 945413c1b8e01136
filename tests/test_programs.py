"""Compiled programs are kept for the next process, in a folder of the user's own, and only where that is wanted."""

import json
import os
import subprocess
import sys

import jax
import pytest

from vertebra.machine import programs

# The default fit, small; and how many programs were compiled and read back for it.
FIT = """
import json, sys
import jax
import numpy as np
counts = {}
count = lambda name, *_, **__: counts.update({name: counts.get(name, 0) + 1})
jax.monitoring.register_event_listener(count)
jax.monitoring.register_event_duration_secs_listener(count)
import vertebra as vb
x = np.random.default_rng(0).normal(size=(60, 2))
model = vb.SkeletonRegressor(widths=(2, 4), n_steps=50, random_state=0).fit(x, x[:, 0])
print(json.dumps(counts | {"said": float(model.predict(x)[0])}))
"""
COMPILED, READ = "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_hits"


def counted(folder):
    # without what these tests share among themselves
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"VERTEBRA_PROGRAMS": str(folder)}
    done = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_reads_back_what_the_first_compiled(tmp_path):
    first, second = counted(tmp_path), counted(tmp_path)
    assert second["said"] == first["said"]
    # those that take longest are kept: training, moments, sums of the closed form
    assert second.get(READ, 0) >= 4
    assert first.get(READ, 0) == 0
    # 181 before arrays were brought to the device without a program for each shape; a few for each kind of array remain
    assert first[COMPILED] <= 45


@pytest.fixture
def unset(monkeypatch):
    """JAX as it is without a folder, and again afterwards."""
    monkeypatch.delenv(programs.VARIABLE, raising=False)
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", None)
    programs.keep_programs.cache_clear()
    yield monkeypatch
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    programs.reset_cache()
    programs.keep_programs.cache_clear()


def test_the_folder_is_the_users_cache_and_nobody_elses(unset, tmp_path):
    unset.setenv("XDG_CACHE_HOME", str(tmp_path))
    unset.setattr(sys, "platform", "linux")
    folder = programs.keep_programs()
    assert folder is not None
    assert folder.parent == tmp_path / "vertebra"
    assert not folder.stat().st_mode & 0o077


def test_nothing_is_kept_where_it_is_not_wanted(unset):
    unset.setenv(programs.VARIABLE, programs.OFF)
    assert programs.keep_programs() is None


def test_a_folder_that_the_user_gave_jax_stays(unset, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert programs.keep_programs() is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes of files are POSIX's")
def test_a_folder_that_others_may_write_to_is_not_read(unset, tmp_path):
    unset.setenv(programs.VARIABLE, str(tmp_path))
    folder = programs.keep_programs()
    assert folder is not None
    folder.chmod(0o777)
    jax.config.update("jax_compilation_cache_dir", None)
    programs.keep_programs.cache_clear()
    assert programs.keep_programs() is None


def test_without_a_place_to_write_fits_go_on(unset, tmp_path):
    (tmp_path / "file").touch()
    unset.setenv(programs.VARIABLE, str(tmp_path / "file"))
    assert programs.keep_programs() is None


def test_programs_used_longest_ago_make_room(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "MOST_BYTES", 250)
    for age, name in enumerate(("new", "used", "old", "oldest")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    os.utime(tmp_path / "used", (2000, 1))
    programs._make_room(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"new", "used"}
