"""Findings about a fit, each with a severity, the figure behind it and what to do; the verdict follows by rule."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from vertebra.machine.control import Ended


class Severity(enum.StrEnum):
    """How much a finding weighs: good to know; to be looked at; or a reason not to rely on the fit."""

    NOTE = enum.auto()
    WARNING = enum.auto()
    SEVERE = enum.auto()


class Kind(enum.StrEnum):
    """What a finding is about."""

    FITTING = enum.auto()  # how the model was fitted, or trained
    WEIGHTS = enum.auto()  # how the rows' weights were meant
    LINEAR = enum.auto()  # a linear model predicts rows left out better
    FLEXIBLE = enum.auto()  # a quick flexible model does
    COVERAGE = enum.auto()  # how many rows left out intervals hold
    LEAK = enum.auto()  # predictions too good to be true
    FREEDOM = enum.auto()  # few rows for every coefficient
    FEW_ROWS = enum.auto()
    UNEVEN_NOISE = enum.auto()
    TAILS = enum.auto()  # noise that is heavy-tailed or skewed
    CONCURVITY = enum.auto()  # inputs that rise and fall together
    COPIES = enum.auto()  # inputs that are equal
    SUBSTITUTES = enum.auto()  # inputs that may act in place of others
    MARKED_GAPS = enum.auto()  # values that may stand for gaps
    LEFT_OVER = enum.auto()  # products of more inputs than terms have
    FEW_EVENTS = enum.auto()  # few rows of a class
    GROUPS = enum.auto()  # rows that belong together
    TIME = enum.auto()  # rows that follow each other
    RUNAWAY = enum.auto()  # effects beyond any sense
    ENDED = enum.auto()  # the fit was cut short
    OTHER = enum.auto()  # what files of 0.1 say without a kind


# The end of "Not to be relied on: …"; kinds that are never severe have none.
IN_SHORT = {
    Kind.LINEAR: "a linear model predicts rows left out better",
    Kind.FLEXIBLE: "a quick flexible model predicts rows left out far better",
    Kind.LEAK: "an input may be made of the answer",
    Kind.FEW_ROWS: "too few rows",
    Kind.MARKED_GAPS: "a few values of the target, far from all others, decide the fit",
    Kind.RUNAWAY: "some effects are beyond any sense",
}


@dataclass(frozen=True)
class Finding:
    """`words` say what was seen, `quantity` is the number measured, if there is one, and `remedy` what to do."""

    kind: Kind
    severity: Severity
    words: str
    quantity: float | None = None
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.words} {self.remedy}" if self.remedy else self.words


def notes(kind: Kind, words: Iterable[str]) -> list[Finding]:
    """Findings that are good to know."""
    return [Finding(kind, Severity.NOTE, each) for each in words]


def warnings(kind: Kind, words: Iterable[str]) -> list[Finding]:
    """Findings to be looked at."""
    return [Finding(kind, Severity.WARNING, each) for each in words]


@dataclass(frozen=True)
class Diagnostics:
    """What to think of a fit: `findings`, and `figures` of its accuracy. `ended` says why it was cut short, if it was.

    `verdict` says it in a sentence. `severe`, `warnings` and `notes` are words: what speaks against relying on the fit,
    all that is to be looked at, the severe first, and what is good to know.
    """

    findings: tuple[Finding, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    ended: Ended | None = None

    @property
    def verdict(self) -> str:
        if severe := self._of(Severity.SEVERE):
            return f"Not to be relied on: {IN_SHORT.get(severe[0].kind, str(severe[0]).rstrip('.'))}."
        if n := len(self.warnings):
            return f"Usable, with {n} thing{'s' if n > 1 else ''} to look at."
        return "Sound: nothing to worry about."

    @property
    def severe(self) -> tuple[str, ...]:
        return tuple(map(str, self._of(Severity.SEVERE)))

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.severe, *map(str, self._of(Severity.WARNING)))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(map(str, self._of(Severity.NOTE)))

    def _of(self, severity: Severity) -> list[Finding]:
        return [each for each in self.findings if each.severity is severity]

    def __str__(self) -> str:
        """The verdict, what is severe (!!), notes (·) and what is to be looked at (!)."""
        others = (f"  ! {each}" for each in map(str, self._of(Severity.WARNING)))
        return "\n".join(
            [self.verdict, *(f" !! {each}" for each in self.severe), *(f"  · {each}" for each in self.notes), *others]
        )
