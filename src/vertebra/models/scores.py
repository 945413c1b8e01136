"""How rows were left out for an evaluation, and what its scores are called."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

# Scores whose key is not what people call them.
SCORE_WORDS = {
    "rmse": "RMSE",
    "r2": "R²",
    "coverage_95": "95 % coverage",
    "log_density": "log density",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "auc": "AUC",
}


class Method(enum.StrEnum):
    """How rows came to be predicted that had not been fitted; `words` say it to people."""

    LEFT_OUT = enum.auto()  # the linear model: a fifth of the rows left out in turn
    FOLD_LEFT_OUT = enum.auto()
    BOTH_LEFT_OUT = enum.auto()
    FOLDS = enum.auto()
    GROUPS = enum.auto()
    LATER = enum.auto()
    HELD_OUT = enum.auto()
    SEEN = enum.auto()
    HELD_OUT_FIRST = enum.auto()

    @property
    def words(self) -> str:
        return METHOD_WORDS[self]


# Files of 0.1 hold these words in the place of the value.
METHOD_WORDS = {
    Method.LEFT_OUT: "each row left out in turn, with the terms kept",
    Method.FOLD_LEFT_OUT: "each row by the networks that had not seen it",
    Method.BOTH_LEFT_OUT: "each row by terms without it and networks that had not seen it",
    Method.FOLDS: "a fifth of the rows left out in turn, terms sought without them",
    Method.GROUPS: "a fifth of the groups left out in turn, terms sought without them",
    Method.LATER: "the last fifth of the rows in time, by a fit of those before",
    Method.HELD_OUT: "rows that were not fitted",
    Method.SEEN: "as many as those of the fit, with the same target",
    Method.HELD_OUT_FIRST: "held out from a first fit; this model has them too",
}


class ScoreName(NamedTuple):
    """A score, and where there are several targets the place of its own: the keys "rmse" and "rmse 1"."""

    score: str
    target: int | None = None

    @classmethod
    def read(cls, key: str) -> "ScoreName":
        score, _, target = key.partition(" ")
        return cls(score, int(target) if target else None)

    @property
    def key(self) -> str:
        return self.score if self.target is None else f"{self.score} {self.target}"

    def whose(self, targets: Sequence[str]) -> str:
        """The end of a name: nothing, or of several targets which."""
        return "" if self.target is None else f" of {targets[self.target]}"

    def words(self, targets: Sequence[str]) -> str:
        """A score for people."""
        return SCORE_WORDS[self.score] + self.whose(targets)
