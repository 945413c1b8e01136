"""Numbers that may stand for gaps: zeros, −1, nines and the codes of refused answers, far from all others."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Codes of answers that were not given, as questionnaires have them: don't know, refused, does not apply. A column has
# those of one family, at one of its ends.
FAMILIES = (
    (0.0,),
    tuple(-float(k) for k in range(1, 10)),
    (9.0, 8.0, 7.0),
    *(
        tuple(sign * code for code in (10.0**k - 1.0, 10.0**k - 2.0, 10.0**k - 3.0, *repeated))
        for k, repeated in ((2, (88.0, 77.0)), (3, (888.0, 777.0)), *((k, ()) for k in range(4, 9)))
        for sign in (-1.0, 1.0)
    ),
)
# Zero, −1 and nines stand for gaps by themselves; the others beside them, or where several codes are there.
MARKS = {0.0, -1.0, *(sign * (10.0**k - 1.0) for k in range(1, 9) for sign in (-1.0, 1.0))}
# They are in so many rows and no larger a share, further from the bulk of the others than so many times their
# interquartile range. Diamonds' zeros are 2 of them away.
FEWEST_MARKED, MOST_MARKED, FAR = 3, 0.2, 1.5
# Values come from their scale and back, to rounding.
ROUNDING = 1e-9


class Marked(NamedTuple):
    """Values that may stand for gaps, in rising order, and in how many rows they are."""

    values: tuple[float, ...]
    n_rows: int

    @property
    def words(self) -> str:
        """97, 98 or 99."""
        *others, last = (f"{value:.0f}" for value in self.values)
        return f"{', '.join(others)} or {last}" if others else last


def marked(values: Float[np.ndarray, " n"]) -> list[Marked]:
    """What may stand for gaps at either end of a number's values; gaps that are known are left out."""
    values = values[~np.isnan(values)]
    if not len(values):
        return []
    near = np.round(values)
    values = np.where(
        np.isclose(values, near, rtol=ROUNDING, atol=ROUNDING * float(np.abs(values).max())), near, values
    )
    distinct, counts = np.unique(values, return_counts=True)
    found = []
    for ends in {tuple(distinct), tuple(distinct[::-1])} if len(distinct) > 1 else ():
        codes = _codes(ends)
        # the nearest to the others may be one of them: fewer codes are tried
        while codes:
            n_rows = int(counts[np.isin(distinct, codes)].sum())
            others = values[~np.isin(values, codes)]
            if FEWEST_MARKED <= n_rows <= MOST_MARKED * len(values) and _is_far(codes, others):
                found.append(Marked(tuple(sorted(codes)), n_rows))
                break
            codes = codes[:-1]
    return found


def _codes(ends: tuple[float, ...]) -> list[float]:
    """The values from an end on that are of one family of codes."""
    family = next((own for own in FAMILIES if ends[0] in own), ())
    codes: list[float] = []
    for value in ends:
        if value not in family:
            break
        codes.append(float(value))
    return codes if MARKS.intersection(codes) or len(codes) > 1 else []


def _is_far(codes: list[float], others: Float[np.ndarray, " m"]) -> bool:
    if not len(others):
        return False
    low, lower, upper, high = np.quantile(others, [0.01, 0.25, 0.75, 0.99])
    if len(codes) > 1:  # several values in a row may be the tail of the others
        low, high = others.min(), others.max()
    spread = (upper - lower) or (high - low)
    nearest = codes[-1]
    return bool(spread > 0.0 and (low - nearest if nearest < low else nearest - high) > FAR * spread)
