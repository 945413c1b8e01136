"""What a model says of rows, as a table with named columns: what files of predictions hold."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from vertebra.models.explanation import eval_terms
from vertebra.models.model import Model
from vertebra.terms.term import term_in_files


def predictions(
    model: Model,
    x: pd.DataFrame,
    level: float,
    levels: Sequence[float] = (),
    *,
    proba: bool = False,
    terms: bool = False,
) -> pd.DataFrame:
    """A row for each of x, and named columns: see `vertebra predict --help`."""
    columns: dict[str, np.ndarray] = {}
    if (classes := model.target.classes) is not None:
        probabilities = model.probabilities(x)
        if not proba:
            columns["prediction"] = classes[np.argmax(probabilities, axis=1)]
        limits = np.moveaxis(model.probability_interval(x, level), 0, 2)
        columns |= {f"probability_{label}": values for label, values in zip(classes, probabilities.T, strict=True)}
        for name, values in zip(("lower", "upper"), limits, strict=True):
            columns |= {f"{name}_{label}": own for label, own in zip(classes, values, strict=True)}
    else:
        mean, sd = model.mean_and_sd(x)
        limits = model.interval(x, level)
        named = {"prediction": mean, "sd": sd, "lower": limits[:, 0], "upper": limits[:, 1]}
        if len(levels):
            values = np.moveaxis(model.quantiles(x, list(levels)), 1, 0)
            named |= {f"q{q:g}": each for q, each in zip(levels, values, strict=True)}
        targets = model.target.names
        for k, target in enumerate(targets):
            behind = f"_{target}" if len(targets) > 1 else ""
            columns |= {name + behind: values if values.ndim == 1 else values[:, k] for name, values in named.items()}
    if terms:
        outputs = model.target.output_names
        for k, output in enumerate(outputs):
            behind = f"_{output}" if len(outputs) > 1 else ""
            parts = term_columns(model, x, k)
            columns |= {name + behind: parts[name].to_numpy() for name in parts.columns}
    return pd.DataFrame(columns)


def with_unread(model: Model, x: pd.DataFrame) -> pd.DataFrame:
    """The columns of the fit in its order; one that no term reads, and that is not there, is empty."""
    absent = [name for name in model.schema.sources if name not in x.columns]
    return x.assign(**dict.fromkeys(absent, np.nan)).loc[:, list(model.schema.sources)]


def term_columns(model: Model, x: pd.DataFrame, output: int) -> pd.DataFrame:
    """What each term adds to one output, and the intercept: columns are named by text."""
    parts = eval_terms(model, x, output=output)
    return parts.set_axis(
        [term if isinstance(term, str) else f"term:{term_in_files(term)}" for term in parts.columns], axis=1
    )
