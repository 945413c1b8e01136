"""What to think of a fit, in plain words."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from vertebra.machine.control import Ended
from vertebra.models.scores import ScoreName

# Rank correlations of two inputs from which their effects can hardly be told apart.
CONCURVE = 0.95
# Copies of an input that are named.
MOST_COPIES = 3
# Coverage of 95 % intervals outside these limits is worth a warning, with so many rows.
COVERAGE_LIMITS, ROWS_FOR_COVERAGE = (0.92, 0.98), 200
# Noise is uneven where its variance in one of so many parts of an input is so many times that in another.
UNEVEN, N_PARTS, ROWS_PER_PART = 8.0, 8, 40
# Rows are noisier if their variance is larger by this factor, and their sd by so many standard errors.
NOISIER, CLEARLY = 1.5, 3.0
# A value that stands for a gap: one of these at an end of a column, in so many rows and no larger a share, further from
# the bulk of the others than so many times their interquartile range. Diamonds' zeros are 2 of them away.
MARKS = (0.0, -1.0, *(sign * (10.0**k - 1.0) for k in range(1, 9) for sign in (-1, 1)))
FEWEST_MARKED, MOST_MARKED, FAR = 3, 0.2, 1.5
# An error this many times that of a linear model is clearly worse.
WORSE = 1.1


@dataclass(frozen=True)
class Diagnostics:
    """`verdict` in a sentence, what went well in `notes`, what to look at in `warnings`, the figures behind them.

    `ended` says why the fit was cut short, if it was.
    """

    verdict: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    ended: Ended | None = None

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"  · {note}" for note in self.notes), *(f"  ! {w}" for w in self.warnings)])


def summary(
    notes: Sequence[str], warnings: Sequence[str], figures: dict[str, float], ended: Ended | None = None
) -> Diagnostics:
    verdict = "Sound: nothing to worry about." if not warnings else f"Usable, with {len(warnings)} thing(s) to look at."
    return Diagnostics(verdict, tuple(notes), tuple(warnings), figures, ended)


def concurvity(x: Float[np.ndarray, "n p"], names: Sequence[str], inputs: Sequence[int]) -> list[str]:
    """Pairs of inputs that act whose values go so closely together that their effects can hardly be told apart."""
    if len(inputs) < 2 or len(x) < 10:
        return []
    rows = np.linspace(0, len(x) - 1, min(len(x), 5000)).astype(int)
    ranks = np.stack([rankdata(np.nan_to_num(x[rows, i], nan=-1e300)) for i in inputs])
    spread = ranks.std(axis=1)
    alive = spread > 0
    inputs = [i for i, a in zip(inputs, alive, strict=True) if a]
    if len(inputs) < 2:
        return []
    correlation = np.corrcoef(ranks[alive])
    found = [
        (abs(correlation[a, b]), names[inputs[a]], names[inputs[b]])
        for a in range(len(inputs))
        for b in range(a + 1, len(inputs))
        if abs(correlation[a, b]) > CONCURVE
    ]
    return [
        f"{one} and {other} rise and fall together (rank correlation {r:.2f}): their effects can hardly be told apart."
        for r, one, other in sorted(found, reverse=True)[:5]
    ]


def marked_gaps(values: Float[np.ndarray, " n"], name: str) -> list[str]:
    """Rows of a number whose value may stand for a gap: zeros, −1 or nines, far from all others."""
    values = values[~np.isnan(values)]
    found = []
    for end in {float(values.min()), float(values.max())} if len(values) else ():
        # values come from their codes, to rounding
        near = [
            mark for mark in MARKS if math.isclose(end, mark, rel_tol=1e-9, abs_tol=1e-9 * float(np.abs(values).max()))
        ]
        if not near:
            continue
        mark, others = near[0], values[values != end]
        n = len(values) - len(others)
        if n < FEWEST_MARKED or n > MOST_MARKED * len(values):
            continue
        low, lower, upper, high = np.quantile(others, [0.01, 0.25, 0.75, 0.99])
        spread = (upper - lower) or (high - low)
        away = low - mark if mark < low else mark - high
        if spread > 0.0 and away > FAR * spread:
            found.append(
                f"{n} rows have {name} = {mark:.0f}, far from all others: a gap? "
                f"`missing_values={{{json.dumps(name, ensure_ascii=False)}: {mark:.0f}}}` reads it as one."
            )
    return found


def copy_words(copies: Mapping[int, int], names: Sequence[str]) -> list[str]:
    """Inputs that are equal in all rows: the model reads the first, and cannot know which of them acts."""
    groups: dict[int, list[str]] = {}
    for i, first in copies.items():
        groups.setdefault(first, []).append(names[i])
    found = []
    for first, others in groups.items():
        shown = ", ".join(others[:MOST_COPIES]) + (f" and {n} more" if (n := len(others) - MOST_COPIES) > 0 else "")
        are = "are copies" if len(others) > 1 else "is a copy"
        found.append(f"{shown} {are} of {names[first]}, which alone is read: what acts may be any of them.")
    return found


def coverage_words(scores: Mapping[str, float], n: float, targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """A note, or a warning, on the coverage of 95 % intervals of rows left out one at a time, target by target."""
    notes, warnings = [], []
    low, high = COVERAGE_LIMITS
    for key, coverage in scores.items():
        name = ScoreName.read(key)
        if name.score == "coverage_95":
            whose = name.whose(targets)
            words = f"95 % prediction intervals{whose} cover {coverage:.1%} of the rows, each left out in turn"
            if n >= ROWS_FOR_COVERAGE and not low <= coverage <= high:
                advice = "the noise is not as assumed. Try another `likelihood`, or `conformal=True`."
                warnings.append(f"{words}: {advice}")
            else:
                notes.append(f"{words}.")
    return notes, warnings


def worse_than_linear(scores: Mapping[str, Mapping[str, float]], targets: Sequence[str]) -> list[str]:
    """Where a linear model predicts rows it did not see clearly better."""
    found = []
    for key, own in scores["model"].items():
        name = ScoreName.read(key)
        if name.score in ("rmse", "log_loss") and own > WORSE * (linear := scores["linear"][key]):
            found.append(
                f"a linear model predicts rows{name.whose(targets)} left out better ({name.score} {linear:.4g} against "
                f"{own:.4g}): the model does not hold all that the inputs say, or there are too few rows for it."
            )
    return found


def uneven_noise(
    away: Float[np.ndarray, "n k"], x: Float[np.ndarray, "n p"], names: Sequence[str], targets: Sequence[str]
) -> list[str]:
    """Where rows miss their predictions by much more at some values of an input than at others.

    `away`: how far each is off, in its own sds, without having been fitted.
    """
    found = []
    for k, target in enumerate(targets):
        worst = (UNEVEN, "")
        for name, values in zip(names, x.T, strict=True):
            if len(x) < N_PARTS * ROWS_PER_PART or len(np.unique(values[~np.isnan(values)])) < 3:
                continue
            parts = np.array_split(np.abs(away[np.argsort(values, kind="stable"), k]), N_PARTS)
            # squares of mean distances, not means of squares, which tails would decide
            means = np.array([part.mean() ** 2 for part in parts])
            if (ratio := float(means.max() / max(means.min(), 1e-12))) > worst[0]:
                worst = (ratio, name)
        if worst[1]:
            whose = f" of {target}" if len(targets) > 1 else ""
            found.append(
                f"the noise{whose} is uneven: along {worst[1]} its variance changes {worst[0]:.0f}-fold, so that "
                "intervals are too wide in some places and too narrow in others. Try "
                '`likelihood="heteroscedastic"`.'
            )
    return found


def is_noisier(away: Float[np.ndarray, "n k"], part: Bool[np.ndarray, " n"]) -> bool:
    """Whether the rows of a part are plainly farther off than the others, by their mean distances."""
    distance = np.abs(away)
    inside, outside = distance[part], distance[~part]
    error = np.sqrt(inside.var(axis=0) / len(inside) + outside.var(axis=0) / len(outside))
    apart = inside.mean(axis=0) - outside.mean(axis=0) > CLEARLY * error
    return bool(np.any(apart & (inside.mean(axis=0) ** 2 > NOISIER * outside.mean(axis=0) ** 2)))


def check_memory(needed: float, what: str) -> None:
    """Refuses work that this machine has no memory for, before it starts."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if needed > 0.9 * there:
        raise MemoryError(
            f"{what} would take about {needed / 2**30:.1f} GiB, and this machine has {there / 2**30:.1f} GiB: "
            "fit on fewer rows or columns."
        )
