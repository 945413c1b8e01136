"""Every public name has a docstring with an example, and the examples run."""

import doctest
import functools
import inspect

import jax.numpy as jnp
import jax.random as jr
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import vertebra as vb

ESTIMATORS = ("AdditiveRegressor", "AdditiveClassifier", "SkeletonRegressor", "SkeletonClassifier")
# What every example may use without saying so.
IMPORTED = {"vb": vb, "np": np, "pd": pd, "jnp": jnp, "jr": jr}
# Not run: one needs other processes, the other fetches files over the network.
SKIPPED = {"cluster.connect", "datasets.table"}
# What an example needs beside the library and its `dev`: the others of `vertebra[interop]` are in no example.
NEEDED = {"to_shap": "shap", "to_arviz": "arviz", "to_interpret": "interpret"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def own_names(module):
    """The functions and classes that a module defines, or says are its own; not its records, such as `datasets.f1`."""
    said = getattr(module, "__all__", None)
    for name, thing in vars(module).items():
        is_own = name in said if said else getattr(thing, "__module__", None) == module.__name__
        if not name.startswith("_") and callable(thing) and is_own and getattr(thing, "__name__", None) == name:
            yield name, thing


def own_methods(estimator):
    """Those of our own rooms, not of scikit-learn's."""
    for name, method in inspect.getmembers(estimator, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("vertebra."):
            yield name, method


def public_names():
    """Every public thing by its dotted name, and where its example begins: with that of its module or estimator."""
    found = {name: (getattr(vb, name), name) for name in (*vb._MODULES, *ESTIMATORS)}
    for room in vb._MODULES:
        found |= {f"{room}.{name}": (thing, room) for name, thing in own_names(getattr(vb, room))}
    for name in vb.__all__:
        if not any(thing is getattr(vb, name) for thing, _ in found.values()):
            found[name] = (getattr(vb, name), None)
    for estimator in ESTIMATORS:
        methods = own_methods(getattr(vb, estimator))
        found |= {f"{estimator}.{name}": (method, estimator) for name, method in methods}
    return found


PUBLIC = public_names()


def parsed(name, namespace):
    return doctest.DocTestParser().get_doctest(PUBLIC[name][0].__doc__ or "", namespace, name, None, None)


def run(name, namespace):
    """Runs the example of a name; returns the namespace with what it leaves there."""
    example = parsed(name, namespace)
    assert example.examples, f"{name} has no example in its docstring"
    words = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=words.append, clear_globs=False)
    assert not runner.failures, "".join(words)
    return example.globs


@pytest.fixture(scope="module")
def beginning(tmp_path_factory):
    """What the example of a module or an estimator leaves: names, and the folder that it ran in."""
    matplotlib.use("Agg")

    @functools.cache
    def of(home):
        namespace, folder = IMPORTED, tmp_path_factory.mktemp("example")
        if home is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                namespace = run(home, namespace)
        return namespace, folder

    return of


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_runs(name, beginning, monkeypatch):
    home = PUBLIC[name][1]
    if (package := NEEDED.get(name.split(".")[-1])) is not None:
        pytest.importorskip(package, reason=f"{name} hands models to {package}: pip install 'vertebra[interop]'")
    namespace, folder = beginning(home)
    monkeypatch.chdir(folder)
    if name != home:
        run(name, namespace)
    plt.close("all")


def test_the_public_names_are_all_there():
    """So that the test above cannot pass on an empty list."""
    things = [thing for thing, _ in PUBLIC.values()]
    assert all(any(getattr(vb, name) is thing for thing in things) for name in vb.__all__)
    assert {"kernels.Sum", "activations.arc_cosine_0", "stream.write", "AdditiveClassifier.effects"} <= set(PUBLIC)
    assert "SkeletonRegressor.set_fit_request" not in PUBLIC


def test_nothing_else_is_left_out():
    skips = {name for name in PUBLIC for line in parsed(name, {}).examples if doctest.SKIP in line.options}
    assert skips == SKIPPED
