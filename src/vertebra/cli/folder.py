"""The folder that a fit writes: its files, and the model in it."""

import importlib.util
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vertebra.cli.tablefile import Frame, Refused, check_file, encoded
from vertebra.cli.terminal import Explanations
from vertebra.tables.endings import ENDINGS

if TYPE_CHECKING:
    from vertebra.pages.cases import CasesLike
else:
    CasesLike = object  # it takes seconds to import

MODEL_NAME, EFFECTS_NAME, REPORT_NAME, FIGURE_NAME = "model.vertebra", "effects.csv", "report.html", "effects.png"
CHECKPOINT_NAME = "checkpoint.vertebra"


def folder_of(table: str) -> pathlib.Path:
    """Where a fit writes unless it is said: a folder here, named as the table is; of a pipe, `model`."""
    if table == "-":
        return pathlib.Path("model")
    path = pathlib.Path(table)
    name = path.name.lower()
    ending = next((each for each in sorted(ENDINGS, key=len, reverse=True) if name.endswith(each)), "")
    stem = path.name.removesuffix(path.name[len(name) - len(ending) :]) if ending else path.name
    # a table that is a folder stays what it is
    return pathlib.Path(f"{stem}-model" if path.is_dir() or not stem else stem)


def model_file(model: pathlib.Path, usage: str) -> pathlib.Path:
    """The file of a model, which may be named by its folder; `usage` is the command at hand with its arguments."""
    if model.is_dir():
        if not (model / MODEL_NAME).is_file():
            raise Refused(f"{model} holds no {MODEL_NAME}: give the model's file, or the folder that `fit` wrote.")
        return model / MODEL_NAME
    check_file(model)
    if str(model).lower().endswith(ENDINGS):
        raise Refused(f"{model} is a table, and MODEL comes first: vertebra {usage}.")
    return model


def write_model(
    model: Explanations, files: Sequence[pathlib.Path], found: Frame, *, is_raw: bool = False, cases: CasesLike = None
) -> None:
    """The model, its effects, and where asked for its report, which takes some of `cases` apart."""
    from vertebra.cli import answers
    from vertebra.machine import file as storage

    own, effects, *report = files
    model.save(own)
    storage.put(effects, encoded(answers.with_joined_terms(found), ".csv", is_raw=is_raw))
    for path in report:
        model.report(path, cases=cases)


def check_report(otherwise: str = "") -> None:
    """Refuses before any work a report that could not be written after it."""
    if importlib.util.find_spec("plotly") is None:
        raise Refused(f"a report needs plotly. Install it: pip install 'vertebra[report]'{otherwise}.")
