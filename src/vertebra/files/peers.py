"""What a model tells, as other libraries' own things: SHAP's explanations, ArviZ's draws, interpret's explanations."""

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.effects.posterior import PosteriorOfTerms
from vertebra.machine.checks import check_count
from vertebra.models.explanation import (
    MeasureLike,
    effect,
    effects,
    eval_terms,
    grid_of,
    latent_of,
    measure_of,
    term_of,
)
from vertebra.models.model import Model
from vertebra.tables.schema import TableLike, ValuesLike

# Terms of more inputs are not shown as functions.
MOST_SHOWN = 2


def to_shap(model: Model, X: TableLike, *, output: int = 0, measure: MeasureLike = None) -> Any:
    """A `shap.Explanation` of rows: see `AdditiveRegressor.to_shap`."""
    shap = _imported("shap", "to_shap")
    parts = eval_terms(model, X, output=output, measure=measure)
    values = np.zeros((len(parts), len(model.names)))
    for term in parts.columns[1:]:
        for name in term:
            values[:, model.names.index(name)] += parts[term].to_numpy() / len(term)
    coded = model.schema.matrix(X, model.kind)
    columns = model.schema.columns
    own = [codes if c.levels else c.original(codes) for c, codes in zip(columns, coded.T, strict=True)]
    data = np.stack(own, axis=1)
    shown = np.array(data, dtype=object)
    for i, column in enumerate(columns):
        if column.levels:
            shown[:, i] = [str(column.label(code)) for code in coded[:, i]]
    return shap.Explanation(
        values=values,
        base_values=parts["intercept"].to_numpy(),
        data=data,
        display_data=shown,
        feature_names=list(model.names),
        output_names=model.target.output_names[output],
    )


def to_arviz(
    model: Model,
    X: TableLike = None,
    y: ValuesLike = None,
    *,
    n_draws: int = 1000,
    output: int = 0,
    measure: MeasureLike = None,
    seed: int = 0,
) -> Any:
    """Draws of effects and of f as `arviz.InferenceData`: see `AdditiveRegressor.to_arviz`."""
    arviz = _imported("arviz", "to_arviz")
    check_count(n_draws=n_draws)
    if X is None and y is not None:
        raise ValueError("`y` must come with `X`, the rows that it was seen at.")
    draws, dims, coords = _effect_draws(model, output, measure)
    groups: dict[str, dict] = {"posterior": draws}
    if X is not None:
        unit, origin = model.target.unit(output), model.target.origin(output)
        f = model.posterior.sample(model.x(X), n_draws, seed)[:, :, latent_of(model, output)]
        groups["predictions"] = {"f": (origin + unit * f)[None]}
        coords["row"], dims["f"], dims["y"] = np.arange(f.shape[1]), ["row"], ["row"]
    if y is not None:
        seen = np.asarray(y).reshape(len(coords["row"]), -1)
        groups["observed_data"] = {"y": seen[:, 0 if model.is_classifier else output]}
    if y is not None and not model.is_classifier:
        drawn = model.draws(X, n_draws, seed)
        groups["posterior_predictive"] = {"y": (drawn if drawn.ndim == 2 else drawn[:, :, output]).T[None]}
    return arviz.InferenceData(**{name: _dataset(arviz, name, own, coords, dims) for name, own in groups.items()})


def _dataset(arviz: ModuleType, group: str, own: dict, coords: dict, dims: dict) -> Any:
    """A group of draws with its axes; what was observed has no draws."""
    used = {name: dims[name] for name in own}
    known = {axis: coords[axis] for axes in used.values() for axis in axes}
    drawn = {"default_dims": []} if group == "observed_data" else {}
    return arviz.dict_to_dataset(own, coords=known, dims=used, **drawn)


def _effect_draws(model: Model, output: int, measure: MeasureLike) -> tuple[dict, dict[str, list[str]], dict]:
    """Of every term of one or two inputs draws at its points, the names of their axes, and the values along these."""
    posterior, under = model.posterior, measure_of(model, measure)
    if not isinstance(posterior, PosteriorOfTerms):
        raise ValueError(f"`model` must be an AdditiveRegressor or an AdditiveClassifier, got {model.kind}.")
    draws, dims, coords = {}, {}, {}
    for named in effects(model, output=output, measure=measure)["term"]:
        if len(named) > MOST_SHOWN:
            continue
        term, label = term_of(model, named), f"f({', '.join(named)})"
        grid = grid_of(model, term)
        points = [axis.ravel() for axis in np.meshgrid(*grid, indexing="ij")]
        coded = np.full((len(points[0]), len(model.names)), np.nan)
        for i, values in zip(term, points, strict=True):
            coded[:, i] = values
        x = model.encoding(coded)
        curve = posterior.curve(term, [x[:, i] for i in term], latent_of(model, output), None, under)
        shape = [len(axis) for axis in grid]
        draws[label] = model.target.unit(output) * curve.draws.reshape(1, len(curve.draws), *shape)
        dims[label] = [name if len(named) == 1 else f"{name} in {label}" for name in named]
        coords |= {axis: _shown(model, i, v) for axis, i, v in zip(dims[label], term, grid, strict=True)}
    return draws, dims, coords


def _shown(model: Model, i: int, values: Float[np.ndarray, " m"]) -> list:
    """Coded values as the user wrote them."""
    column = model.schema.columns[i]
    return [str(column.label(v)) for v in values] if column.levels else model.in_units(i, values).tolist()


def to_interpret(model: Model, *, name: str | None = None, output: int = 0, measure: MeasureLike = None) -> Any:
    """Effects as an explanation of interpret's: see `AdditiveRegressor.to_interpret`."""
    templates = _imported("interpret.api.templates", "to_interpret")
    found = effects(model, output=output, measure=measure)
    found = found.loc[found["order"] <= MOST_SHOWN]
    terms = found["term"].tolist()
    labels = [" & ".join(term) for term in terms]
    specific = [_term_data(model, term, effect(model, term, output=output, measure=measure)) for term in terms]
    overall = {"type": "univariate", "names": labels, "scores": found["strength"].tolist()}
    kinds = [each["feature_type"] for each in specific]
    return templates.FeatureValueExplanation(
        "global",
        {"overall": overall, "specific": specific},
        feature_names=labels,
        feature_types=kinds,
        name=name or model.kind,
        selector=pd.DataFrame({"Name": labels, "Type": kinds, "Strength": found["strength"].tolist()}),
    )


def _term_data(model: Model, term: tuple[str, ...], shown: pd.DataFrame) -> dict[str, Any]:
    """One term as interpret's charts take it: a curve with its band, bars of levels, or a map."""
    mean, _, lower, upper = shown.iloc[:, -4:].to_numpy().T
    if len(term) > 1:
        left, right = (shown.iloc[:, k].drop_duplicates().tolist() for k in (0, 1))
        names = {"left_names": left, "right_names": right}
        kind, scores = "interaction", mean.reshape(len(left), len(right))
        return {"type": kind, "feature_type": kind, **names, "scores": scores}
    column = model.schema.columns[term_of(model, term)[0]]
    values = shown.iloc[:, 0]
    kept = values.notna().to_numpy()
    names = values[kept].astype(str if column.levels else float).tolist()
    return {
        "type": "univariate",
        "feature_type": "nominal" if column.levels else "continuous",
        "names": names,
        "scores": mean[kept],
        "lower_bounds": lower[kept],
        "upper_bounds": upper[kept],
    }


def _imported(name: str, method: str) -> ModuleType:
    package = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"`{method}` needs the package {package}, which is not there: pip install 'vertebra[interop]'."
        ) from None
