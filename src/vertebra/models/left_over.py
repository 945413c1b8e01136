"""Whether what terms of up to three inputs leave over goes with products of four or five of them.

A product of lines of more inputs than terms have leaves no trace in terms of fewer: it looks like noise, and intervals
of f would be those of its nearest sum of small terms. One score for each set of inputs sees it, as a product of two
tables of products.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import norm, rankdata

from vertebra.models.findings import Finding, Kind, Severity
from vertebra.terms.term import term_label

# Of more inputs the first so many, those that act before others: 1,820 sets of four and 4,368 of five. A round number.
MOST_INPUTS = 16
# Fewer rows say nothing of so many sets; of more, so many are enough.
FEWEST_ROWS, MOST_ROWS = 100, 5000
# In a share of so many clean fits a set is taken for real: Bonferroni's over all sets and targets.
BY_CHANCE = 0.002


def left_over(
    away: Float[np.ndarray, "n k"],
    x: Float[np.ndarray, "n p"],
    n_levels: Sequence[int],
    names: Sequence[str],
    acting: Sequence[str],
) -> list[Finding]:
    """The set of four or five numbers whose product goes most surely with `away`, what rows left out are missed by."""
    if len(x) < FEWEST_ROWS:
        return []
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_ROWS)).astype(int)
    numbers = [i for i, n in enumerate(n_levels) if n == 0 and np.ptp(np.nan_to_num(x[some, i])) > 0.0]
    numbers = sorted(numbers, key=lambda i: names[i] not in acting)[:MOST_INPUTS]
    if len(numbers) < 4:
        return []
    lines = np.stack([_line(x[some, i]) for i in numbers], axis=1)
    sets, scores = _scores(lines, away[some])
    best = int(np.argmax(scores))
    if scores[best] < norm.isf(BY_CHANCE / (2.0 * len(sets) * away.shape[1])):
        return []
    label = term_label([names[i] for i in sorted(numbers[k] for k in sets[best])], most=5)
    words = (
        f"what terms of up to three inputs leave over goes with {label} (by {scores[best]:.1f} standard errors): f is "
        "more than their sum, and intervals and effects are those of the sum that is nearest to it."
    )
    advice = "Predict by another model, or let networks add what is left (`remainder=True`)."
    return [Finding(Kind.LEFT_OVER, Severity.WARNING, words, float(scores[best]), advice)]


def _line(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Ranks from −√3 to √3, of variance 1; 0 where there is a gap."""
    seen, line = ~np.isnan(values), np.zeros(len(values))
    line[seen] = np.sqrt(3.0) * (2.0 * (rankdata(values[seen]) - 0.5) / max(seen.sum(), 1) - 1.0)
    return line


def _scores(
    lines: Float[np.ndarray, "n m"], away: Float[np.ndarray, "n k"]
) -> tuple[list[tuple[int, ...]], Float[np.ndarray, " sets"]]:
    """All sets of four and five lines, and how many standard errors Σ away Π line is from 0, of the worst target.

    Σ e²Π² is the variance of Σ eΠ whatever the noise is.
    """
    pairs = list(itertools.combinations(range(lines.shape[1]), 2))
    sets: list[tuple[int, ...]] = []
    scores: list[Float[np.ndarray, " sets"]] = []
    for order in (2, 3):
        firsts = list(itertools.combinations(range(lines.shape[1]), order))
        first, second = (np.stack([lines[:, s].prod(axis=1) for s in each], axis=1) for each in (firsts, pairs))
        # each set once: its lowest inputs stand in the first factor
        once = [(a, b) for a, s in enumerate(firsts) for b, t in enumerate(pairs) if s[-1] < t[0]]
        if not once:
            continue
        rows, columns = np.array(once).T
        own = np.zeros(len(once))
        for error in away.T:
            sums = (first * error[:, None]).T @ second
            squares = ((first * error[:, None]) ** 2).T @ second**2
            own = np.maximum(own, (np.abs(sums) / np.sqrt(np.maximum(squares, 1e-300)))[rows, columns])
        sets += [firsts[a] + pairs[b] for a, b in once]
        scores.append(own)
    return sets, np.concatenate(scores)
