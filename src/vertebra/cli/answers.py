"""What a model answers: predictions, effects and facts, as tables and plain data."""

import dataclasses
import json
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from vertebra.cli.tablefile import Refused
from vertebra.cli.terminal import Estimator, Explanations, Gain
from vertebra.files.outputs import predictions, with_unread
from vertebra.models.evaluation import Evaluation
from vertebra.models.explanation import inputs_named, measure_of
from vertebra.models.findings import Diagnostics
from vertebra.models.rows import NewLevels
from vertebra.tables.named import Taken, taken_apart
from vertebra.tables.nearest import nearest
from vertebra.tables.schema import ValuesLike, date
from vertebra.tables.values import key_of, label_of
from vertebra.terms.term import term_in_files, term_label


def as_additive(model: Estimator) -> Explanations:
    """The model, if it has terms."""
    if model.model_.found is None:
        raise Refused(f"a {model.model_.kind} has no terms: fit an additive model.")
    return cast(Any, model)


def output_number(model: Explanations, name: str | None) -> int:
    """The place of an output, the first unless it is named."""
    if name is None:
        return 0
    names = model.model_.target.output_names
    if name not in names:
        raise Refused(f"--output {name!r} is not known: there is {', '.join(names[:20])}.")
    return names.index(name)


def check_measure(model: Explanations, measure: str | None) -> None:
    """Refuses a measure that the model does not have."""
    try:
        measure_of(model.model_, measure)
    except ValueError as error:
        raise Refused(str(error).replace("`measure`", "--measure")) from None


def function_of(
    model: Explanations,
    given: Sequence[str],
    level: float,
    output: int,
    *,
    gap: str | None = "missing",
    measure: str | None = None,
) -> pd.DataFrame:
    """The term of these inputs as a function, if the model has it. Inputs called as a result is have `input` before.

    Dates are dates, and a gap is `gap`.
    """
    inputs = [column.name for column in model.schema_.columns]
    names = inputs_named(given, inputs)
    for name in names:
        if name not in inputs:
            raise Refused(f"--term {name!r} is not an input of the model{nearest(name, inputs)}")
    if set(names) not in map(set, model.effects(output=output)["term"]):
        raise Refused(
            f"the model has no term {term_label(names)}: its effect is 0. `vertebra effects` lists the terms."
        )
    found = model.effect(tuple(dict.fromkeys(names)), level=level, output=output, measure=measure)
    *own, mean, sd, lower, upper = found.columns
    results = [mean, sd, lower, upper]
    for k, name in enumerate(own):
        is_date = model.schema_.columns[inputs.index(str(name))].part == "time"
        values = found.iloc[:, k]
        if is_date or values.isna().any():
            shown = values.map(date, na_action="ignore") if is_date else values
            found.isetitem(k, shown.astype(object).where(values.notna(), gap))
    return found.set_axis([*(f"input {name}" if name in results else name for name in own), *results], axis=1)


def inputs_of(model: Estimator, frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The columns that the model reads; a model of an array takes them by name or by place.

    A column that no term reads need not be there.
    """
    wanted, columns = list(model.schema_.sources), list(frame.columns)
    absent = [name for name in wanted if name not in columns]
    if absent and not model.schema_.named and len(columns) == len(wanted):
        return frame
    missing = [name for name in model.model_.sources if name not in columns]
    if missing:
        spare = [name for name in columns if name not in wanted]
        near = nearest(missing[0], spare)
        # where most are missing, it is another table and not another name
        is_other = len(missing) > max(1, len(model.model_.sources) // 2)
        meant = ": is it the right table?" if is_other else near if near.startswith("; did you") else "."
        others = f", nor {', '.join(map(repr, missing[1:6]))}{', …' if len(missing) > 6 else ''}" if missing[1:] else ""
        raise Refused(f"{table} has no column {missing[0]!r}{others}, which the model reads{meant}")
    return with_unread(model.model_, frame)


class Answer:
    """What a model says of the rows of a table, part by part; levels that the fit never saw are counted."""

    def __init__(self, model: Estimator, table: str, **asked: Any):
        self.model, self.table, self.asked = model, table, asked
        self.counts: dict[str, int] = {}
        self.first: dict[str, object] = {}

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predictions of some rows."""
        rows = inputs_of(self.model, frame, self.table)
        self._count(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NewLevels)  # they are counted here
            return predictions(self.model.model_, rows, **self.asked)

    def _count(self, rows: pd.DataFrame) -> None:
        model = self.model.model_
        new = model.new_levels(model.schema.matrix(rows, model.kind))
        for column, is_new in zip(model.schema.columns, new.T, strict=True):
            if n := int(is_new.sum()):
                values = rows.iloc[:, model.schema.sources.index(column.source)]
                self.first.setdefault(column.name, values.iloc[int(is_new.argmax())])
                self.counts[column.name] = self.counts.get(column.name, 0) + n

    def new_levels(self) -> list[str]:
        """A line for every column that had some."""
        return [
            f"{n:,} row{'s' if n > 1 else ''} with a new level of {name}, {self.first[name]!r} the first"
            for name, n in self.counts.items()
        ]


def named_target(model: Estimator, frame: pd.DataFrame, table: str, weight: str | None) -> Taken:
    """Inputs, target and weights of a table, for a fitted model."""
    names = model.target_names_
    own = frame if weight is None else frame.drop(columns=weight)
    inputs = inputs_of(model, own.drop(columns=[name for name in names if name not in model.schema_.sources]), table)
    columns = frame[[*names, *([weight] if weight else [])]]
    whole = pd.concat([inputs.drop(columns=[n for n in columns if n in inputs]), columns], axis=1)
    y = names if len(names) > 1 or not model.model_.target.is_single else names[0]
    return taken_apart(whole, y, weight, is_class=model.model_.is_classifier)


def with_target(model: Estimator, frame: pd.DataFrame, table: str, weight: str | None) -> Taken:
    """`named_target` of a table that must have these columns, with classes as the model has them."""
    for name in [*model.target_names_, *([weight] if weight else [])]:
        if name not in frame.columns:
            raise Refused(f"{table} has no column {name!r}{nearest(name, list(frame.columns))}")
    taken = named_target(model, frame, table, weight)
    return taken._replace(y=_known(model, taken.y))


def evaluation(model: Estimator, taken: Taken) -> Evaluation:
    """Scores of a model on the rows of a table."""
    return model.model_.evaluate(taken.x, taken.y, taken.weight, model.weights)


def gain(one: Estimator, other: Estimator, frame: pd.DataFrame, table: str, weight: str | None) -> Gain:
    """By how much the other model predicts the rows of a table better."""
    each, weights = [], np.ones(0)
    for model in (one, other):
        taken = with_target(model, frame, table, weight)
        each.append(model.model_.log_prob(taken.x, taken.y))
        weights = np.ones(len(each[-1])) if taken.weight is None else np.asarray(taken.weight, dtype=float)
    apart = each[1] - each[0]
    mean = float(np.average(apart, weights=weights))
    share = weights / weights.sum()
    return Gain(mean, float(np.sqrt(np.sum((share * (apart - mean)) ** 2))))


def _known(model: Estimator, y: ValuesLike) -> ValuesLike:
    """A target in the type of the model's classes: 1 and "1" are one class."""
    classes = model.model_.target.classes
    if classes is None:
        return y
    by_text = {key_of(label_of(each)): each for each in classes.tolist()}
    return np.array([by_text.get(key_of(label_of(each)), each) for each in pd.Series(y).tolist()], dtype=object)


def predicted(model: Explanations, rows: pd.DataFrame, level: float) -> list[str]:
    """The prediction of every row in words."""
    found = predictions(model.model_, rows, level)
    if (classes := model.model_.target.classes) is not None:
        return [_of_classes(row, classes.tolist()) for _, row in found.iterrows()]
    names = model.target_names_
    each = [("", names[0])] if len(names) == 1 else [(f"_{name}", name) for name in names]
    shown = f"{100 * level:g} %"
    return [
        "; ".join(
            f"{name} {row['prediction' + b]:.4g} ({shown}: {row['lower' + b]:.4g} to {row['upper' + b]:.4g})"
            for b, name in each
        )
        for _, row in found.iterrows()
    ]


def _of_classes(row: pd.Series, classes: list) -> str:
    """Of two classes the second, which parts speak for and against; of more the likeliest."""
    likely = row["prediction"]
    named = classes[1] if len(classes) == 2 else next(each for each in classes if each == likely)
    p, low, high = (row[f"{part}_{named}"] for part in ("probability", "lower", "upper"))
    return f"probability of {named} {p:.3f} ({low:.3f} to {high:.3f})"


def stacked(parts: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Predictions taken apart as one table, with the number of each row."""
    each = [own.assign(term=[term_in_files(t) or "intercept" for t in own["term"]]) for own in parts.values()]
    for row, own in zip(parts, each, strict=True):
        own.insert(0, "row", row)
    return pd.concat(each, ignore_index=True)


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
    if model.model_.found is None:
        return []
    told = as_additive(model)
    found = [
        tuple(term) for k in range(len(told.model_.target.output_names)) for term in told.effects(output=k)["term"]
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
        "diagnostics": _diagnostics(fitted.diagnostics),
        "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
    }


def _diagnostics(found: Diagnostics) -> dict[str, object]:
    """Findings for JSON, the verdict first; words alone besides, as before there were findings."""
    words = {"verdict": found.verdict, "notes": list(found.notes), "warnings": list(found.warnings)}
    return words | dataclasses.asdict(found)


def written(path: pathlib.Path) -> dict[str, object]:
    """What the file says about its making; it was checked when it was loaded."""
    with path.open("rb") as file:
        metadata = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    versions = json.loads(metadata["libraries"])
    known = {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}
    return {"format": int(metadata["vertebra_format"]), "versions": known}
