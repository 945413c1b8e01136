"""Systems other than Linux, pretended: what they lack is missing, and everything still works."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import vertebra as vb
from vertebra.machine import file as storage
from vertebra.machine import memory, threads

ROOT = pathlib.Path(__file__).parents[1]

# As on Windows: modules that cannot be imported, and what `os` and `signal` do not have.
WITHOUT = """
import os, pathlib, signal, sys, tempfile
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "sched_setaffinity", "sysconf", "fork", "getuid", "getloadavg", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
    if hasattr(signal, name):
        delattr(signal, name)
before = os.open
def no_folders(path, *flags, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return before(path, *flags, **options)
os.open = no_folders
"""
MODULES = """
import importlib, vertebra
root = pathlib.Path(vertebra.__file__).parent
for path in sorted(root.rglob("*.py")):
    if path.name != "__main__.py":
        parts = path.relative_to(root.parent).with_suffix("").parts
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
"""
FITS = """
import numpy as np
import vertebra as vb
x = np.random.default_rng(0).random((80, 2))
folder = pathlib.Path(tempfile.mkdtemp())
model = vb.AdditiveRegressor(random_state=0).fit(x, 3.0 * x[:, 0] + 0.1 * x[:, 1])
model.save(folder / "m.vertebra")
model.save(folder / "m.vertebra")  # in the place of the first
assert [path.name for path in folder.iterdir()] == ["m.vertebra"]
assert np.allclose(vb.load(folder / "m.vertebra").predict(x), model.predict(x))
key = __import__("jax").random.key(0)
network = vb.build(vb.chain(2, 1), vb.mean_field([1]), key=key)
vb.fit(network, vb.Gaussian(), x, x[:, :1], key=key, n_steps=20)
"""


def there(code):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_asks_the_system_imports_where_there_is_no_posix():
    there("from vertebra.machine import control, file, meeting, memory, threads\nassert file.fcntl is None")


@pytest.mark.slow
def test_every_module_imports_and_models_are_fitted_saved_and_loaded_where_there_is_no_posix():
    there(MODULES + FITS)


def test_cores_are_counted_where_processes_cannot_be_held_to_some(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert threads.cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.cores() == 1


def test_no_work_is_refused_where_memory_cannot_be_asked(monkeypatch):
    with pytest.raises(MemoryError, match="would take about"):
        memory.check_memory(1e18, "this")
    monkeypatch.delattr(os, "sysconf")
    memory.check_memory(1e18, "this")
    monkeypatch.setattr(os, "sysconf", lambda name: -1, raising=False)  # a name that the system knows, and cannot tell
    memory.check_memory(1e18, "this")


def test_files_are_written_whole_where_there_are_no_locks(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "fcntl", None)
    path = tmp_path / "a.vertebra"
    left_over = tmp_path / f".{path.name}.999999999.0123456789abcdef.part"
    left_over.touch()
    storage.write(path, "Thing", {"a": 1}, {})
    assert storage.read(path)[1] == {"a": 1}
    assert left_over.exists()  # nobody can tell whether its process lives


def test_text_files_are_utf_8_whatever_the_system_prefers():
    """`open` without an encoding is Windows-1252 on half of all desktops."""
    for path in pathlib.Path(vb.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            is_text = (name == "open" and not any("b" in str(m) for m in modes)) or name == "write_text"
            is_text |= name == "read_text" and isinstance(node.func, ast.Attribute)
            is_own = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") in (
                "os",
                "pa",
                "tarfile",
            )
            has_encoding = any(k.arg == "encoding" for k in node.keywords)
            assert has_encoding or is_own or not is_text, f"{path.name}:{node.lineno}"


def test_a_study_is_measured_where_memory_cannot_be(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    import runner

    in_kilobytes = runner._peak()
    assert 10.0 < in_kilobytes < 100_000.0
    monkeypatch.setattr(sys, "platform", "darwin")  # which counts bytes
    assert runner._peak() == pytest.approx(in_kilobytes / 1024.0, rel=0.1)
    monkeypatch.setattr(runner, "resource", None)
    assert runner._peak() != runner._peak()
