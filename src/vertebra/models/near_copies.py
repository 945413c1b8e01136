"""What there is to find about inputs that say the same, or nearly: equal ones, close ones, and what they may do."""

import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from vertebra.effects.words import probability_words
from vertebra.models.findings import Finding, Kind, Severity
from vertebra.terms.structure import Structure, Substitute, discoveries
from vertebra.terms.substitutes import Choice, choices

# Rank correlations of two inputs from which their effects can hardly be told apart.
CONCURVE = 0.95
# Copies of an input that are named.
MOST_COPIES = 3
# One of two inputs acts from this probability on; from the other on it is clear what they do.
REAL, CLEAR = 0.5, 0.95
# The rate of false discoveries at which interactions are listed unless another is asked for.
FDR = 0.05


def concurvity(
    x: Float[np.ndarray, "n p"], names: Sequence[str], inputs: Sequence[int], known: Collection[tuple[int, int]] = ()
) -> list[Finding]:
    """Pairs of inputs that act whose values go so closely together that their effects can hardly be told apart.

    But those that are `known`, of which more is said.
    """
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
        if abs(correlation[a, b]) > CONCURVE and not {(inputs[a], inputs[b]), (inputs[b], inputs[a])} & set(known)
    ]
    return [
        Finding(
            Kind.CONCURVITY,
            Severity.WARNING,
            f"{one} and {other} rise and fall together (rank correlation {r:.2f}): their effects can hardly be told "
            "apart.",
            float(r),
            "Read them as one, or leave one out.",
        )
        for r, one, other in sorted(found, reverse=True)[:5]
    ]


def equal_inputs(copies: Mapping[int, int], names: Sequence[str], n_compared: int = 0) -> list[Finding]:
    """Inputs that say the same in all rows: the model reads the first, and cannot know which of them acts.

    Where there are more rows, so many of them were compared.
    """
    groups: dict[int, list[str]] = {}
    for i, first in copies.items():
        groups.setdefault(first, []).append(names[i])
    found = []
    where = f" in the {n_compared:,} rows that were compared" if n_compared else ""
    for first, others in groups.items():
        shown = ", ".join(others[:MOST_COPIES]) + (f" and {n} more" if (n := len(others) - MOST_COPIES) > 0 else "")
        are = "are copies" if len(others) > 1 else "is a copy"
        words = f"{shown} {are} of {names[first]}{where}, which alone is read: what acts may be any of them."
        found.append(Finding(Kind.COPIES, Severity.WARNING, words, float(len(others)), "Keep the one that is meant."))
    return found


def open_choices(structure: Structure, names: Sequence[str], copies: Mapping[int, int]) -> list[Finding]:
    """Inputs that may act in place of others, all of which the search looked at, the model's own and the rest.

    And pairs of which it is clear what they do, where the model says something else. Of `copies`, which say the same as
    another, nothing is said here.
    """
    said = [s for s in structure.substitutes if copies.get(s.other) != s.input and s.together >= REAL]
    is_clear = [max(s.both, s.product) > CLEAR for s in said]
    findings = [
        finding
        for s, clear in zip(said, is_clear, strict=True)
        if clear
        for finding in _acts_otherwise(s, names, structure)
    ]
    # where the other one alone is clear, it is not the one that the model reads
    open_ones = [s for s, clear in zip(said, is_clear, strict=True) if not clear and s.input_alone <= CLEAR]
    findings += [_open_choice(choice, names) for choice in choices(open_ones)]
    return findings


def not_compared(n: int) -> list[Finding]:
    """So many pairs that go closely together, and were not among those that were compared."""
    more = f"{n:,} more pair{'s' if n > 1 else ''} of inputs that go closely together, less so than those that were"
    return [Finding(Kind.SUBSTITUTES, Severity.NOTE, f"{more} compared, were not looked at.", float(n))] if n else []


def _acts_otherwise(pair: Substitute, names: Sequence[str], structure: Structure) -> list[Finding]:
    """Two inputs of which it is clear that both act, or together, and of which the model says less."""
    one, other = names[pair.input], names[pair.other]
    together = (min(pair.input, pair.other), max(pair.input, pair.other))
    near = f"They go together ({pair.correlation:.2f}), so that"
    if pair.product > CLEAR and together not in discoveries(structure, FDR):
        words = (
            f"{one} and {other} act together ({probability_words(pair.product)}), which tests of terms do not show. "
            f"{near} curves of them say nearly the same where rows are:"
        )
        remedy = f"`clusters` with {json.dumps([one, other], ensure_ascii=False)} in one fits what they do together."
        return [Finding(Kind.SUBSTITUTES, Severity.WARNING, words, pair.product, remedy)]
    if pair.both > CLEAR and (pair.other,) not in structure.terms:
        words = (
            f"{one} and {other} both act ({probability_words(pair.both)}), and only {one} is among the terms. {near} "
            f"{one} says nearly the same where rows are:"
        )
        return [Finding(Kind.SUBSTITUTES, Severity.WARNING, words, pair.both, "keep both.")]
    return []


def _open_choice(choice: Choice, names: Sequence[str]) -> Finding:
    named = [names[i] for i in choice.inputs]
    both, beyond = ("both", f"{' and '.join(named)} both act") if len(named) == 2 else ("two of them", "")
    another = "the other" if len(named) == 2 else "another"
    which = f"the model reads {another}" if max(choice.alone[1:]) > CLEAR else "data hardly say which"
    sure, more = probability_words(choice.together), choice.both + choice.product
    if more > CLEAR and len(named) == 2:
        beyond = f"{beyond} ({sure}), and data hardly say whether together, too: each by itself {choice.both:.2f}, "
        said, remedy = f"{beyond}as a product {choice.product:.2f}", "keep both."
    else:
        shares = ", ".join(f"{name} alone {share:.2f}" for name, share in zip(named, choice.alone, strict=True))
        said = f"{', '.join(named[:-1])} or {named[-1]} acts ({sure}), and {which}: {shares}, "
        said += f"{both} {choice.both:.2f}, as a product too {choice.product:.2f}"
        # where the likeliest is that one acts alone, or that more than one does
        remedy = "read them as one." if max(choice.alone) >= more else "keep all of them: more than one may act."
    words = f"{said}. They go together ({choice.correlation:.2f}):"
    return Finding(Kind.SUBSTITUTES, Severity.WARNING, words, choice.alone[0], remedy)
