"""The public names: found when they are asked for, and the same for people, editors and type checkers."""

import ast
import pathlib
import pickle
import subprocess
import sys

import pytest

import vertebra as vb

STUB = pathlib.Path(vb.__file__).with_name("__init__.pyi")


def stubbed():
    """Home and name of every import of the stub, each of which is a re-export."""
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "pyright takes `name as name` for public"
                yield node.module, alias.name


def fresh(code):
    """In a process where nothing was imported yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_stub_and_the_package_say_the_same():
    modules = [("vertebra", name) for name in vb._MODULES]
    assert list(stubbed()) == [*modules, *((f"vertebra.{home}", n) for home, own in vb._NAMES.items() for n in own)]
    assert sorted(vb.__all__) == sorted(name for _, name in stubbed())
    assert set(vb.__all__) <= set(dir(vb))


def test_every_public_name_is_that_of_its_home():
    for home, name in stubbed():
        expected = sys.modules.get(f"vertebra.{name}") if home == "vertebra" else None
        found = getattr(vb, name)
        assert found is (getattr(sys.modules[home], name) if expected is None else expected)
        assert name in vars(vb), "a second time it is not looked for"


def test_an_unknown_name_is_the_usual_error():
    with pytest.raises(AttributeError, match="module 'vertebra' has no attribute 'AdditiveRegresor'"):
        _ = vb.AdditiveRegresor
    with pytest.raises(ImportError, match="cannot import name 'AdditiveRegresor' from 'vertebra'"):
        exec("from vertebra import AdditiveRegresor")
    assert not hasattr(vb, "__wrapped__")


def test_public_things_travel_by_pickle():
    for thing in (vb.AdditiveRegressor, vb.additive, vb.Normal, vb.BadFile):
        assert pickle.loads(pickle.dumps(thing)) is thing


def test_the_command_line_starts_without_jax_and_pandas():
    code = (
        "import sys, vertebra, vertebra.cli; print(*sorted({'jax', 'numpy', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    assert fresh(code).strip() == ""


def test_no_room_has_the_name_of_something_public():
    """Importing the room would hide it."""
    assert not {path.stem for path in STUB.parent.glob("*.py")} & set(vb._HOMES)


def test_a_star_brings_them_all():
    code = "from vertebra import *; import vertebra; print(all(n in globals() for n in vertebra.__all__), plot.effect)"
    assert fresh(code).startswith("True <function effect")


def test_names_may_be_asked_for_first_while_jax_traces():
    """Nothing of a trace stays in a room that is imported within it."""
    code = """
import jax, jax.numpy as jnp, vertebra as vb
def f(x):
    for name in vb.__all__:
        getattr(vb, name)
    return x + 1.0
with jax.checking_leaks():
    jax.jit(f)(jnp.ones(2))
print("done")
"""
    assert fresh(code).strip() == "done"
