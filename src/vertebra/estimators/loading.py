"""Estimators from files."""

import os
from collections.abc import Collection
from typing import Any, cast, overload

from vertebra.estimators.additive import AdditiveClassifier, AdditiveRegressor
from vertebra.estimators.estimator import Estimator
from vertebra.estimators.skeleton import SkeletonClassifier, SkeletonRegressor
from vertebra.files import archive, built
from vertebra.files.params import ARGUMENTS
from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.kept import Kept
from vertebra.machine import file
from vertebra.machine.file import BadFile
from vertebra.networks.network import Network
from vertebra.tables.endings import is_table

KINDS: dict[str, type[Estimator]] = {
    kind.__name__: kind for kind in (AdditiveRegressor, AdditiveClassifier, SkeletonRegressor, SkeletonClassifier)
}


@overload
def load(path: str | os.PathLike[str]) -> Any: ...
@overload
def load(path: str | os.PathLike[str], *, classes: Collection[type]) -> tuple[Network, Likelihood]: ...
def load(path: str | os.PathLike[str], *, classes: Collection[type] = ()) -> Estimator | tuple[Network, Likelihood]:
    """The estimator that `save` wrote; also from the folder that `vertebra fit` wrote.

    Or the network and the likelihood that `vb.save` wrote; `classes` are those of your own that the file may name.

    Runs no code of the file's: anything odd about it is refused with `BadFile`.

    >>> data = vb.datasets.synthetic("f1", n=100)
    >>> vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y).save("model.vertebra")
    >>> vb.load("model.vertebra").clusters_
    [('x3',), ('x0', 'x1')]
    """
    if is_table(path):
        raise BadFile(
            f"{os.fspath(path)} is a table, and `load` reads models: `vb.AdditiveRegressor().fit(path, target)`."
        )
    if file.kind_of(path) == built.KIND:
        return built.load(path, classes)
    if classes:
        raise ValueError(f"`classes` go with the file of a network, got one of an estimator, {os.fspath(path)!r}.")
    model, params = archive.load(path, ARGUMENTS)
    try:
        estimator = KINDS[model.kind](**params)
    except Exception as error:
        raise BadFile(f"{os.fspath(path)}: its settings are not those of {model.kind} ({str(error)[:200]}).") from error
    estimator.model_ = model.replace(likelihood=cast(Kept, model.likelihood).made)
    return estimator
