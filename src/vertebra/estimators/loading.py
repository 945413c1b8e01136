"""Estimators from files."""

import os

from vertebra.estimators.additive import AdditiveClassifier, AdditiveRegressor
from vertebra.estimators.estimator import Estimator
from vertebra.estimators.skeleton import SkeletonClassifier, SkeletonRegressor
from vertebra.files import archive
from vertebra.machine.file import BadFile

KINDS: dict[str, type[Estimator]] = {
    kind.__name__: kind for kind in (AdditiveRegressor, AdditiveClassifier, SkeletonRegressor, SkeletonClassifier)
}


def load(path: str | os.PathLike[str]) -> Estimator:
    """The estimator that `save` wrote; also from the folder that `vertebra fit` wrote.

    Runs no code of the file's: anything odd about it is refused with `BadFile`.

    >>> data = vb.datasets.synthetic("f1", n=100)
    >>> vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y).save("model.vertebra")
    >>> vb.load("model.vertebra").clusters_
    [('x3',), ('x0', 'x1')]
    """
    model, params = archive.load(path, {name: kind._get_param_names() for name, kind in KINDS.items()})
    try:
        estimator = KINDS[model.kind](**params)
    except Exception as error:
        raise BadFile(f"{os.fspath(path)}: its settings are not those of {model.kind} ({str(error)[:200]}).") from error
    estimator.model_ = model
    return estimator
