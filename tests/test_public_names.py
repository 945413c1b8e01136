"""The public names: found when they are asked for, and the same for people, editors and type checkers."""

import ast
import inspect
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.files.params import ARGUMENTS

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


# What takes long to import, and what commands that look at a model must do without.
HEAVY = ["equinox", "jax", "narwhals", "optax", "scipy.interpolate", "scipy.linalg", "scipy.optimize", "scipy.sparse"]
HEAVY += ["scipy.stats", "sklearn"]
# (of these NumPy and pandas are what a model's file and its tables are read with)
NOT_AT_ALL = {"--help": [*HEAVY, "numpy", "pandas"], "fit --help": [*HEAVY, "numpy", "pandas"]}
LOOKS = [
    "info {model}",
    "info {model} --json",
    "effects {model}",
    "effects {model} --term x3",
    "predict {model} {table}",
]
LOOKS += ["effects {model} --totals", "effects {model} --json"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A model of terms, and a table of its inputs, as files."""
    folder = tmp_path_factory.mktemp("kept")
    data = vb.datasets.synthetic("f1", 100)
    x = pd.DataFrame(data.x, columns=[f"x{i}" for i in range(data.x.shape[1])])
    model = vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)], likelihood="gaussian", remainder=False)
    model.fit(x, data.y).save(folder / "numbers.vertebra")
    classes = vb.AdditiveClassifier(clusters=[("x0", "x1"), ("x3",)], remainder=False)
    classes.fit(x, data.y > np.median(data.y)).save(folder / "classes.vertebra")
    x.head(5).to_csv(folder / "table.csv", index=False)
    return folder


@pytest.mark.parametrize("kind", ["numbers", "classes"])
@pytest.mark.parametrize("command", [*NOT_AT_ALL, *LOOKS])
@pytest.mark.everyday("--help-numbers", *(f"{command}-numbers" for command in LOOKS[:4]))
def test_commands_that_look_at_a_model_import_little(kept, command, kind):
    line = command.format(model=kept / f"{kind}.vertebra", table=kept / "table.csv").split()
    code = f"""
import contextlib, io, sys
from vertebra.cli.app import app
sys.stdout = io.TextIOWrapper(io.BytesIO())
try:
    app({line!r})
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stdout = sys.__stdout__
print(*[name for name in {NOT_AT_ALL.get(command, HEAVY)!r} if name in sys.modules])
"""
    assert fresh(code).strip() == ""


def test_models_are_looked_at_by_the_arguments_of_their_estimators():
    for name, usual in ARGUMENTS.items():
        parts = inspect.signature(getattr(vb, name)).parameters
        assert usual == {part: each.default for part, each in parts.items()}, name


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
