"""What a model answers: predictions, effects and facts, as tables and plain data."""

import dataclasses
import json
import pathlib
from typing import Any

import pandas as pd
from safetensors import safe_open
from sklearn.base import is_classifier

from vertebra.cli.tablefile import Refused, nearest
from vertebra.estimators.explanations import Explanations
from vertebra.files.outputs import joined


def is_additive(model: Any) -> bool:
    return isinstance(model, Explanations)


def check_additive(model: Any) -> None:
    if not is_additive(model):
        raise Refused(f"a {type(model).__name__} has no terms: fit an additive model.")


def output_number(model: Any, name: str | None) -> int:
    """The place of an output, the first unless it is named."""
    if name is None:
        return 0
    names = model.model_.target.output_names
    if name not in names:
        raise Refused(f"--output {name!r} is not known: there is {', '.join(names[:20])}.")
    return names.index(name)


def function_of(model: Any, names: list[str], level: float, k: int) -> pd.DataFrame:
    """The term of these inputs as a function, if the model has it. Inputs called as a result is have `input` before."""
    inputs = [column.name for column in model.schema_.columns]
    for name in names:
        if name not in inputs:
            raise Refused(f"--term {name!r} is not an input of the model{nearest(name, inputs)}")
    if set(names) not in map(set, model.effects(output=k)["term"]):
        term = " × ".join(names)
        raise Refused(f"the model has no term {term}: its effect is 0. `vertebra effects` lists the terms.")
    found = model.effect(tuple(dict.fromkeys(names)), level=level, output=k)
    *own, mean, sd, lower, upper = found.columns
    results = [mean, sd, lower, upper]
    return found.set_axis([*(f"input {name}" if name in results else name for name in own), *results], axis=1)


def inputs_of(model: Any, frame: Any, table: str) -> pd.DataFrame:
    """The columns that the model reads; a model of an array takes them by name or by place."""
    wanted, columns = list(model.schema_.sources), list(frame.columns)
    missing = [name for name in wanted if name not in columns]
    if missing and (model.schema_.named or len(columns) != len(wanted)):
        others = f" (nor {len(missing) - 1} more that the model reads)" if len(missing) > 1 else ""
        spare = [name for name in columns if name not in wanted]
        raise Refused(f"{table} has no column {missing[0]!r}{others}{nearest(missing[0], spare)}")
    return frame if missing else frame[wanted]


def all_effects(model: Any) -> pd.DataFrame:
    """The effects of every output, with its name where there are several."""
    outputs = model.model_.target.output_names
    if len(outputs) == 1:
        return model.effects()
    each = [model.effects(output=k) for k in range(len(outputs))]
    for name, table in zip(outputs, each, strict=True):
        table.insert(0, "output", name)
    return pd.concat(each, ignore_index=True)


def terms_of(model: Any) -> list[list[str]]:
    """Every term, of any output, strongest first in its own."""
    if not is_additive(model):
        return []
    found = [
        tuple(term) for k in range(len(model.model_.target.output_names)) for term in model.effects(output=k)["term"]
    ]
    return [list(term) for term in dict.fromkeys(found)]


def with_joined_terms(found: pd.DataFrame) -> pd.DataFrame:
    """Effects as files have them."""
    return found.assign(term=[joined(term) for term in found["term"]])


def about(model: Any) -> dict[str, Any]:
    """What a model is, for people and for JSON."""
    is_class = is_classifier(model)
    settings = {
        name: value for name, value in model._asked().items() if isinstance(value, bool | int | float | str | dict)
    }
    evaluation = model.evaluation_
    return {
        "kind": type(model).__name__,
        "task": "classification" if is_class else "regression",
        "targets": model.target_names_,
        "classes": model.classes_.tolist() if is_class else [],
        "rows_fitted": model.model_.profile.n_rows,
        "settings": settings,
        "inputs": [
            {
                "name": column.name,
                "column": column.source,
                "kind": column.kind,
                "n_levels": len(column.levels),
                "has_missing": column.has_missing,
            }
            for column in model.schema_.columns
        ],
        "terms": terms_of(model),
        "diagnostics": dataclasses.asdict(model.diagnostics_),
        "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
    }


def written(path: pathlib.Path) -> dict[str, Any]:
    """What the file says about its making; it was checked when it was loaded."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    versions = json.loads(metadata["libraries"])
    known = {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}
    return {"format": int(metadata["vertebra_format"]), "versions": known}
