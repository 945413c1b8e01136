"""What a model says of rows, as a table with named columns: what files of predictions hold."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier


def predictions(
    model: Any, x: pd.DataFrame, level: float, levels: Sequence[float] = (), *, proba: bool = False, terms: bool = False
) -> pd.DataFrame:
    """A row for each of x, and named columns: see `vertebra predict --help`."""
    columns: dict[str, Any] = {}
    if is_classifier(model):
        if not proba:
            columns["prediction"] = model.predict(x)
        columns |= {
            f"probability_{label}": values
            for label, values in zip(model.classes_.tolist(), model.predict_proba(x).T, strict=True)
        }
    else:
        mean, sd = model.predict(x, return_std=True)
        limits = model.predict_interval(x, level)
        named = {"prediction": mean, "sd": sd, "lower": limits[:, 0], "upper": limits[:, 1]}
        if len(levels):
            values = np.moveaxis(model.predict_quantiles(x, list(levels)), 1, 0)
            named |= {f"q{q:g}": each for q, each in zip(levels, values, strict=True)}
        targets = model.target_names_
        for k, target in enumerate(targets):
            behind = f"_{target}" if len(targets) > 1 else ""
            columns |= {name + behind: values if values.ndim == 1 else values[:, k] for name, values in named.items()}
    if terms:
        outputs = model._output_names()
        for k, output in enumerate(outputs):
            behind = f"_{output}" if len(outputs) > 1 else ""
            parts = term_columns(model, x, k)
            columns |= {name + behind: parts[name].to_numpy() for name in parts.columns}
    return pd.DataFrame(columns)


def joined(term: Iterable[str]) -> str:
    """A term in files."""
    return " & ".join(term)


def term_columns(model: Any, x: pd.DataFrame, output: int) -> pd.DataFrame:
    """What each term adds to one output, and the intercept: columns are named by text."""
    parts = model.eval_terms(x, output=output)
    return parts.set_axis([term if isinstance(term, str) else f"term:{joined(term)}" for term in parts.columns], axis=1)
