"""Rows that are not independent: looked for in residuals of rows left out, where nobody said so."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import f as fisher
from scipy.stats import rankdata

from vertebra.models.findings import Finding, Kind, Severity
from vertebra.models.rows import Rows
from vertebra.tables.folds import are_copies, runs_of
from vertebra.tables.schema import Schema

# Neighbours go together by so many standard errors: in 6 of 100,000 orders by chance. And so many rows are needed.
SURELY, ROWS_FOR_ORDER = 4.0, 50
# Rows in the order of their target are neighbours by it, and so are their residuals: from this rank correlation on, or
# where classes change no oftener than so many times for each, the order says nothing about noise.
IN_ORDER, MOST_CHANGES = 0.8, 3
# Groups have so many rows, half of all rows or more are in one, and residuals in them go together at this level.
FEWEST, MOST, IN_GROUPS, LEVEL = 3, 100, 0.5, 1e-3
# At less than this correlation ten rows of a group still say as much as five alone. What is not known of f at the
# values that they share makes some.
LEAST_CORRELATION = 0.1
# Of two inputs that rows of a group share, rows equal in one are equal in the other in this share, and so many times as
# often as any two rows are. Inputs of fewer values are shared by many rows anyway. Round numbers.
TOGETHER, OFTENER, FEWEST_VALUES = 0.3, 5.0, 5
# So large a share of all rows must be copies of others before it is said. A round number.
COPIED = 0.05
# Inputs that are looked at, and named.
MOST_LOOKED_AT, MOST_NAMED = 30, 4


class Groups(NamedTuple):
    """The group of each row, and the inputs whose values all its rows share."""

    code: Int[np.ndarray, " n"]
    inputs: tuple[int, ...]


def said_of_rows(rows: Rows) -> list[Finding]:
    """What users said of rows that belong together, or follow each other, and what was made of it."""
    found = []
    if rows.group is not None:
        n = len(np.unique(rows.group))
        words = f"rows come in {n:,} groups, as was said: a group stays together wherever rows are left out."
        found.append(Finding(Kind.GROUPS, Severity.NOTE, words, float(n)))
    if rows.time is not None:
        words = "rows follow each other in time, as was said: accuracy is that of later rows."
        found.append(Finding(Kind.TIME, Severity.NOTE, words))
    return found


def copied_rows(rows: Rows) -> list[Finding]:
    """Whether many rows are equal to others in all inputs and targets, where nobody said that they belong together."""
    if rows.group is not None:
        return []
    _, place = runs_of(rows.matrix, rows.y)
    n = int(np.sum((place > 0) & are_copies(rows.matrix, rows.y)))
    if n < COPIED * len(place):
        return []
    words = (
        f"{n:,} of {len(place):,} rows are equal to others, in all inputs and in the target: if they are copies, noise "
        "looks smaller than it is, intervals are too narrow, and terms may be false."
    )
    return [
        Finding(Kind.GROUPS, Severity.WARNING, words, n / len(place), "Leave copies out, or name them by `groups`.")
    ]


def dependence(away: Float[np.ndarray, "n k"], rows: Rows, schema: Schema) -> list[Finding]:
    """What residuals of rows left out, in their sds, say of rows that follow each other.

    Where it was said when rows were, their order is that; else that of the table, and of every date in it.
    """
    found: list[Finding] = []
    if rows.time is not None:
        found += _serial(
            away, rows.time, "in time", "Neighbours in time are no independent rows: intervals are too narrow."
        )
    elif rows.group is None:
        advice = "If they follow each other in time, give `time`; if they belong together, `groups`."
        if rows.place is not None and not _is_by_target(rows):
            found += _serial(away, rows.place.astype(float), "in the table", advice)
        for i, column in enumerate(schema.columns):
            if column.part == "time" and not found and not np.isnan(rows.matrix[:, i]).any():
                found += _serial(away, rows.matrix[:, i], f"along {column.source}", f'Give `time="{column.source}"`.')
    return found


def _is_by_target(rows: Rows) -> bool:
    """Whether the table is in the order of its target."""
    y = rows.y[np.argsort(np.asarray(rows.place), kind="stable"), 0]
    n_values = len(np.unique(y))
    if n_values <= 20 and np.count_nonzero(np.diff(y)) <= MOST_CHANGES * n_values:
        return True
    if n_values < 2:
        return True
    return abs(float(np.corrcoef(rankdata(y), np.arange(len(y)))[0, 1])) > IN_ORDER


def serial_correlation(away: Float[np.ndarray, "n k"], order: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The correlation of residuals with those of the next row, where it is surest, and by how many standard errors."""
    own = away[np.argsort(order, kind="stable")]
    own = own - own.mean(axis=0)
    square = np.sum(own**2, axis=0)
    r = np.sum(own[1:] * own[:-1], axis=0) / np.where(square > 0.0, square, 1.0)
    k = int(np.argmax(np.abs(r)))
    return float(r[k]), float(r[k]) * math.sqrt(len(own))


def _serial(away: Float[np.ndarray, "n k"], order: Float[np.ndarray, " n"], where: str, advice: str) -> list[Finding]:
    if len(away) < ROWS_FOR_ORDER:
        return []
    # a few rows far away must not decide
    r, surely = serial_correlation(np.clip(away, -3.0, 3.0), order)
    if abs(surely) < SURELY:
        return []
    side = "to the same side" if r > 0.0 else "to opposite sides"
    words = (
        f"rows that follow each other {where} are missed {side} (correlation {r:.2f}): they are not independent, terms "
        "may be false, and accuracy on rows left out is that of neighbours."
    )
    return [Finding(Kind.TIME, Severity.WARNING, words, r, advice)]


def groups_seen(matrix: Float[np.ndarray, "n p"]) -> Groups | None:
    """Sets of rows that share the values of several inputs exactly, more often than chance would have it."""
    n = len(matrix)
    codes: dict[int, Int[np.ndarray, " n"]] = {}
    for i, column in enumerate(matrix.T):
        values, code = np.unique(column, return_inverse=True)
        if FEWEST_VALUES <= len(values) <= n / FEWEST and len(codes) < MOST_LOOKED_AT:
            codes[i] = code
    equal = {i: _pairs(code) for i, code in codes.items()}
    linked: dict[int, set[int]] = {}
    for i in codes:
        for j in codes:
            if i < j:
                both = _pairs(codes[i] * n + codes[j])
                share, usual = both / max(max(equal[i], equal[j]), 1), equal[j] * equal[i] / (0.5 * n * (n - 1.0))
                if share > TOGETHER and both > OFTENER * usual:
                    linked.setdefault(i, {i}).add(j)
                    linked.setdefault(j, {j}).add(i)
    for inputs in sorted(linked.values(), key=len, reverse=True):
        together = np.unique(np.stack([codes[i] for i in sorted(inputs)]), axis=1, return_inverse=True)[1].ravel()
        size = np.bincount(together)[together]
        if np.mean((size >= FEWEST) & (size <= MOST)) >= IN_GROUPS:
            return Groups(together, tuple(sorted(inputs)))
    return None


def _pairs(code: Int[np.ndarray, " n"]) -> float:
    """How many pairs of rows have one code."""
    counts = np.unique(code, return_counts=True)[1].astype(float)
    return float(np.sum(counts * (counts - 1.0))) / 2.0


def within_groups(away: Float[np.ndarray, "n k"], code: Int[np.ndarray, " n"]) -> tuple[float, float]:
    """The intraclass correlation of residuals, where it is surest, and the probability that chance made it."""
    code = np.unique(code, return_inverse=True)[1]
    size = np.bincount(code).astype(float)
    n, m = float(len(code)), float(len(size))
    if m < 2.0 or n <= m:
        return 0.0, 1.0
    # the mean number of rows in a group, as far as groups are alike: n₀ of the analysis of variance
    usual = (n - float(np.sum(size**2)) / n) / (m - 1.0)
    found = (0.0, 1.0)
    for own in np.clip(away, -3.0, 3.0).T:
        means = np.bincount(code, own) / size
        between = float(size @ (means - own.mean()) ** 2) / (m - 1.0)
        within = max(float(np.sum((own - means[code]) ** 2)) / (n - m), 1e-300)
        level = float(fisher.sf(between / within, m - 1.0, n - m))
        if level < found[1]:
            found = ((between - within) / (between + (usual - 1.0) * within), level)
    return found


def in_groups(
    away: Float[np.ndarray, "m k"], rows: Rows, places: Int[np.ndarray, " m"], names: Sequence[str]
) -> list[Finding]:
    """Whether rows that share values of inputs are missed to the same side, where all of a group were left out.

    A model that has seen some rows of a group may know the others by it: their residuals would not show that.
    """
    seen = groups_seen(rows.matrix)
    if seen is None:
        return []
    correlation, level = within_groups(away, seen.code[places])
    if level > LEVEL or correlation < LEAST_CORRELATION:
        return []
    shared = [names[i] for i in seen.inputs]
    shown = ", ".join(shared[:MOST_NAMED]) + (" and others" if len(shared) > MOST_NAMED else "")
    words = (
        f"rows come in groups: {len(np.unique(seen.code)):,} sets of rows have equal values of {shown}, and are missed "
        f"to the same side (correlation {correlation:.2f}): intervals are too narrow, and terms may be false."
    )
    return [Finding(Kind.GROUPS, Severity.WARNING, words, correlation, "Give `groups`, a column that names them.")]
