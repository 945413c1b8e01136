"""What the weights of rows mean: how many equal rows each stands for, or how much each is to count."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

KINDS = ("auto", "frequency", "importance")
# The largest weight over the smallest above 0: survey weights differ by 10³, inverse variances by 10⁶. Beyond this the
# rows of the least weight are less than rounding, and what is said there follows from nothing.
MOST_APART = 1e8
# Smaller weights have no inverse.
LEAST = 1e-305
# No row stands in a table so many times: larger whole numbers are no counts.
MOST_EQUAL = 1e9
# Weights whose mean is larger, or smaller than its inverse, are worth a word.
FAR_FROM_ONE = 2.0


class Weights(NamedTuple):
    """What is to be known of weights before they are used; what is known of parts of the rows adds up."""

    n: int = 0  # those above 0
    largest: float = 0.0
    smallest: float = math.inf  # above 0
    total: float = 0.0  # Σ w and Σ w² of weights over the largest: nothing overflows
    square: float = 0.0
    are_whole: bool = True

    @classmethod
    def of(cls, weight: Float[np.ndarray, " n"]) -> "Weights":
        used = weight[weight > 0.0]
        if not len(used):
            return cls()
        largest = float(used.max())
        share = used / largest
        is_whole = bool(largest <= MOST_EQUAL and np.all(used == np.round(used)))
        return cls(len(used), largest, float(used.min()), float(share.sum()), float(share @ share), is_whole)

    def merged(self, other: "Weights") -> "Weights":
        largest = max(self.largest, other.largest)
        if not largest:
            return self
        total = sum(each.total * (each.largest / largest) for each in (self, other))
        square = sum(each.square * (each.largest / largest) ** 2 for each in (self, other))
        smallest, are_whole = min(self.smallest, other.smallest), self.are_whole and other.are_whole
        return Weights(self.n + other.n, largest, smallest, total, square, are_whole)


class Weighting(NamedTuple):
    """How weights are taken: times `scale` they count rows. How many have one, what they count for, words about it."""

    scale: float
    n_rows: float
    total: float
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def weighting(seen: Weights, kind: str, name: str = "sample_weight") -> Weighting:
    """What weights of a kind count for.

    "frequency": a weight of 10 is ten equal rows, and as sure as ten. "importance": weights say how much a row is to
    count beside others, whatever their scale; n of them are as sure as Kish's (Σw)²/Σw² rows of equal weight. "auto":
    whole numbers that differ are frequencies, others importances. A weight of 3 for every row is no reason to believe
    in three times the rows.
    """
    if kind not in KINDS:
        raise ValueError(f"`weights` must be one of {', '.join(KINDS)}, got {kind!r}.")
    if not seen.n:
        raise ValueError(f"`{name}` must have at least one weight above 0.")
    if seen.largest > MOST_APART * seen.smallest:
        raise ValueError(
            f"`{name}` must not differ by more than a factor of {MOST_APART:.0e}, got {seen.smallest:.3g} and "
            f"{seen.largest:.3g}: rows of so little weight say nothing. Give them the weight 0, or a larger one."
        )
    differ = seen.largest > seen.smallest
    if seen.largest < LEAST:
        raise ValueError(f"`{name}` must be larger than {LEAST:.0e} somewhere, got at most {seen.largest:.3g}.")
    is_count = kind == "frequency" or (kind == "auto" and seen.are_whole and differ)
    if is_count and seen.largest > MOST_EQUAL:
        raise ValueError(
            f"`{name}` must be at most {MOST_EQUAL:.0e} where weights count equal rows, got {seen.largest:.3g}: give "
            '`weights="importance"`, which takes any scale.'
        )
    if is_count:
        return Weighting(1.0, float(seen.n), seen.largest * seen.total, *_words_of_counts(seen, kind))
    # Kish: Σ_i (w_i Σw/Σw²) = (Σw)²/Σw²
    effective = seen.total**2 / seen.square
    notes = ()
    if (kind == "auto" and seen.largest != 1.0) or differ:
        notes = (
            f"the weights were taken for how much rows are to count, whatever their scale: {seen.n:,} rows count as "
            f'{effective:,.0f} of equal weight. `weights="frequency"` takes them for numbers of equal rows.',
        )
    return Weighting(seen.total / seen.square / seen.largest, float(seen.n), effective, notes)


def _words_of_counts(seen: Weights, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    total = seen.largest * seen.total
    mean = total / seen.n
    if 1.0 / FAR_FROM_ONE <= mean <= FAR_FROM_ONE:
        return (), ()
    words = (
        f"the weights of {seen.n:,} rows sum to {total:,.4g}, and so many rows they count for: if they are no "
        'numbers of equal rows, give `weights="importance"`.'
    )
    # who says what the weights are has been asked already
    return ((words,), ()) if kind == "frequency" and mean > 1.0 else ((), (words,))
