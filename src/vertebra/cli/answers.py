"""What a model answers: predictions, effects and facts, as tables and plain data."""

import dataclasses
import json
import pathlib

import pandas as pd
from safetensors import safe_open

from vertebra.cli.tablefile import Refused, nearest
from vertebra.estimators.estimator import Estimator
from vertebra.estimators.explanations import Explanations
from vertebra.terms.term import term_in_files, term_label


def as_additive(model: Estimator) -> Explanations:
    """The model, if it has terms."""
    if not isinstance(model, Explanations):
        raise Refused(f"a {type(model).__name__} has no terms: fit an additive model.")
    return model


def output_number(model: Explanations, name: str | None) -> int:
    """The place of an output, the first unless it is named."""
    if name is None:
        return 0
    names = model.model_.target.output_names
    if name not in names:
        raise Refused(f"--output {name!r} is not known: there is {', '.join(names[:20])}.")
    return names.index(name)


def function_of(model: Explanations, names: list[str], level: float, k: int) -> pd.DataFrame:
    """The term of these inputs as a function, if the model has it. Inputs called as a result is have `input` before."""
    inputs = [column.name for column in model.schema_.columns]
    for name in names:
        if name not in inputs:
            raise Refused(f"--term {name!r} is not an input of the model{nearest(name, inputs)}")
    if set(names) not in map(set, model.effects(output=k)["term"]):
        raise Refused(
            f"the model has no term {term_label(names)}: its effect is 0. `vertebra effects` lists the terms."
        )
    found = model.effect(tuple(dict.fromkeys(names)), level=level, output=k)
    *own, mean, sd, lower, upper = found.columns
    results = [mean, sd, lower, upper]
    return found.set_axis([*(f"input {name}" if name in results else name for name in own), *results], axis=1)


def inputs_of(model: Estimator, frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The columns that the model reads; a model of an array takes them by name or by place."""
    wanted, columns = list(model.schema_.sources), list(frame.columns)
    missing = [name for name in wanted if name not in columns]
    if missing and (model.schema_.named or len(columns) != len(wanted)):
        others = f" (nor {len(missing) - 1} more that the model reads)" if len(missing) > 1 else ""
        spare = [name for name in columns if name not in wanted]
        raise Refused(f"{table} has no column {missing[0]!r}{others}{nearest(missing[0], spare)}")
    return frame if missing else frame.loc[:, wanted]


def all_effects(model: Explanations) -> pd.DataFrame:
    """The effects of every output, with its name where there are several."""
    outputs = model.model_.target.output_names
    if len(outputs) == 1:
        return model.effects()
    each = [model.effects(output=k) for k in range(len(outputs))]
    for name, table in zip(outputs, each, strict=True):
        table.insert(0, "output", name)
    return pd.concat(each, ignore_index=True)


def terms_of(model: Estimator) -> list[list[str]]:
    """Every term, of any output, strongest first in its own."""
    if not isinstance(model, Explanations):
        return []
    found = [
        tuple(term) for k in range(len(model.model_.target.output_names)) for term in model.effects(output=k)["term"]
    ]
    return [list(term) for term in dict.fromkeys(found)]


def with_joined_terms(found: pd.DataFrame) -> pd.DataFrame:
    """Effects as files have them."""
    return found.assign(term=[term_in_files(term) for term in found["term"]])


def about(model: Estimator) -> dict[str, object]:
    """What a model is, for people and for JSON."""
    fitted, evaluation = model.model_, model.evaluation_
    classes = fitted.target.classes
    settings = {
        name: value for name, value in model._asked().items() if isinstance(value, bool | int | float | str | dict)
    }
    return {
        "kind": fitted.kind,
        "task": "regression" if classes is None else "classification",
        "targets": fitted.target.names,
        "classes": [] if classes is None else classes.tolist(),
        "rows_fitted": fitted.profile.n_rows,
        "settings": settings,
        "inputs": [
            {
                "name": column.name,
                "column": column.source,
                "kind": column.kind,
                "n_levels": len(column.levels),
                "has_missing": column.has_missing,
            }
            for column in fitted.schema.columns
        ],
        "terms": terms_of(model),
        "diagnostics": dataclasses.asdict(fitted.diagnostics),
        "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
    }


def written(path: pathlib.Path) -> dict[str, object]:
    """What the file says about its making; it was checked when it was loaded."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    versions = json.loads(metadata["libraries"])
    known = {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}
    return {"format": int(metadata["vertebra_format"]), "versions": known}
