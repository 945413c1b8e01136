"""Levels that always come together: "No internet service" in six columns, or gaps of several columns in the same rows.

What such a level does in one column nobody can tell from what it does in another. The columns differ in other rows, so
that none is a copy.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vertebra.models.findings import Finding, Kind, Severity
from vertebra.tables.column import Column

# Rows that a level has at least, for its effect to matter; and columns that are named. Round numbers.
FEWEST_ROWS, MOST_NAMED = 5, 4

# A column by its place, and a level of it as people read it.
Level = tuple[int, str]


def together(
    matrix: Float[np.ndarray, "n p"], columns: Sequence[Column], inputs: Sequence[int], copies: Mapping[int, int]
) -> list[tuple[int, tuple[Level, ...]]]:
    """Sets of levels of some inputs that the same rows have, with the number of these rows, most columns first.

    Of columns that are copies of others nothing is said, and no more than one level of a column is in a set.
    """
    found: dict[bytes, tuple[int, dict[int, str]]] = {}
    for i in inputs:
        if i in copies:
            continue
        column, values = columns[i], matrix[:, i]
        codes = [*range(len(column.levels)), np.nan] if column.levels else [np.nan]
        for code in codes:
            rows = np.isnan(values) if np.isnan(code) else values == code
            n = int(rows.sum())
            if FEWEST_ROWS <= n <= len(matrix) - FEWEST_ROWS:
                _, own = found.setdefault(np.packbits(rows).tobytes(), (n, {}))
                own.setdefault(i, "missing" if np.isnan(code) else str(column.label(float(code))))
    sets = [(n, tuple(own.items())) for n, own in found.values() if len(own) > 1]
    return sorted(sets, key=lambda each: (-len(each[1]), each[1]))


def levels_together(
    matrix: Float[np.ndarray, "n p"], columns: Sequence[Column], inputs: Sequence[int], copies: Mapping[int, int]
) -> list[Finding]:
    """What is said of such levels of inputs that act."""
    result = []
    for n, own in together(matrix, columns, inputs, copies):
        named = [f"{columns[i].name} = {level}" for i, level in own]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        words = (
            f"{', '.join(named[:MOST_NAMED])}{more} always come together, in {n:,} rows: how what they do is split "
            "among them is not determined."
        )
        remedy = "Give them a column of their own."
        result.append(Finding(Kind.SUBSTITUTES, Severity.NOTE, words, float(n), remedy))
    return result
