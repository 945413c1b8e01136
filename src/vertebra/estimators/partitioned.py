"""What a model says of the rows of a Dask frame: a frame of Dask's, with the same partitions and labels.

The model travels as one object of its own, once to each worker.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from vertebra.files.outputs import term_columns, with_unread
from vertebra.models.model import Model
from vertebra.tables.partitions import DaskFrame, mapped

Answer = Callable[[Model, pd.DataFrame], pd.DataFrame]


def numbers(model: Model, X: DaskFrame, *, with_sd: bool) -> Any:
    """The mean of y, a series, of several targets a frame; with `with_sd` its sd too, another one."""
    names = ["prediction"] if model.target.is_single else [str(name) for name in model.target.names]
    columns = [*names, *(["sd"] if model.target.is_single else [f"sd_{name}" for name in names])]
    found = _of(model, X, functools.partial(_numbers, columns), dict.fromkeys(columns, float))
    n = len(names)
    if model.target.is_single:
        return (found[columns[0]], found[columns[1]]) if with_sd else found[columns[0]]
    return (found[columns[:n]], found[columns[n:]]) if with_sd else found[columns[:n]]


def limits(model: Model, X: DaskFrame, level: float) -> Any:
    """Lower and upper limits for y."""
    if not model.target.is_single:
        raise ValueError("`predict_interval` of a Dask frame is for one target: use X.map_partitions for several.")
    return _of(model, X, functools.partial(_limits, level), {"lower": float, "upper": float})


def probabilities(model: Model, X: DaskFrame) -> Any:
    """P(class | X), a column for each class, named by it."""
    return _of(model, X, _probabilities, dict.fromkeys(_labels(model), float))


def classes(model: Model, X: DaskFrame) -> Any:
    """The most probable class, a series."""
    found = model.target.classes
    kind = object if found is None or found.dtype.kind in "OUS" else found.dtype
    return _of(model, X, _classes, {"prediction": kind})["prediction"]


def terms(model: Model, X: DaskFrame, output: int) -> Any:
    """What each term adds at every row, and the intercept: columns are named as in files."""
    blank = term_columns(model, with_unread(model, X._meta_nonempty), output)
    return _of(model, X, functools.partial(_terms, output), dict.fromkeys(blank.columns, float))


def _of(model: Model, X: DaskFrame, answer: Answer, types: Mapping[str, Any]) -> Any:
    known = [name for name in model.schema.sources if name in set(X.columns)]
    return mapped(X[known], _asked, types, answer, model)


def _asked(answer: Answer, model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return answer(model, with_unread(model, frame))


def _numbers(columns: list[str], model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    mean, sd = (np.reshape(each, (len(frame), -1)) for each in model.mean_and_sd(frame))
    return pd.DataFrame(np.concatenate([mean, sd], axis=1), columns=columns)


def _limits(level: float, model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.interval(frame, level), columns=["lower", "upper"])


def _labels(model: Model) -> list[str]:
    return [] if model.target.classes is None else [str(each) for each in model.target.classes]


def _probabilities(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.probabilities(frame), columns=_labels(model))


def _classes(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    found = model.target.classes
    chosen = np.argmax(model.probabilities(frame), axis=1)
    return pd.DataFrame({"prediction": chosen if found is None else found[chosen]})


def _terms(output: int, model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return term_columns(model, frame, output)
