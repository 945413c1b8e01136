"""A model as commands look at it: the record of its fit, without its estimator and what that brings."""

import pathlib
from dataclasses import dataclass

import pandas as pd

from vertebra.files import archive
from vertebra.files.params import ARGUMENTS, unusual
from vertebra.machine.file import Record
from vertebra.models import explanation
from vertebra.models.evaluation import Evaluation
from vertebra.models.explanation import MeasureLike
from vertebra.models.findings import Diagnostics
from vertebra.models.model import Model
from vertebra.models.settings import TermLike
from vertebra.tables.schema import Schema


@dataclass(frozen=True)
class Loaded:
    """What `info`, `effects` and `predict` ask of a model, by the names that estimators have for it."""

    model_: Model
    asked: Record

    @property
    def schema_(self) -> Schema:
        return self.model_.schema

    @property
    def target_names_(self) -> list[str]:
        return self.model_.target.names

    @property
    def evaluation_(self) -> Evaluation | None:
        return self.model_.evaluation

    @property
    def diagnostics_(self) -> Diagnostics:
        return self.model_.diagnostics

    def effects(self, *, level: float = 0.95, output: int = 0, measure: MeasureLike = None) -> pd.DataFrame:
        return explanation.effects(self.model_, None, level, output=output, measure=measure)

    def totals(self, level: float, *, output: int = 0, measure: MeasureLike = None) -> pd.DataFrame:
        return explanation.totals(self.model_, level, output=output, measure=measure)

    def interactions(self, fdr: float, *, level: float, output: int, measure: MeasureLike = None) -> pd.DataFrame:
        return explanation.interactions(self.model_, fdr, level=level, output=output, measure=measure)

    def effect(self, term: TermLike, *, level: float, output: int, measure: MeasureLike = None) -> pd.DataFrame:
        return explanation.effect(self.model_, term, level=level, output=output, measure=measure)

    def _asked(self) -> Record:
        """The arguments that are not the defaults."""
        return unusual(self.asked, ARGUMENTS[self.model_.kind])


def load(path: pathlib.Path) -> Loaded:
    """The model in a file; anything odd about it is refused with `BadFile`."""
    return Loaded(*archive.load(path, ARGUMENTS))
