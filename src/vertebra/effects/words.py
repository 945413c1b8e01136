"""Numbers of effects in the words of every place that shows them: terminal, notebook, report, figures."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vertebra.terms.term import term_label

if TYPE_CHECKING:
    import pandas as pd

# What is said of a set of terms of which only the sum is known.
UNDETERMINED = "split not determined"


def probability_words(p: float, digits: int = 3) -> str:
    """The probability that a term is real: never 0 or 1, which no finite table can show; empty where it is unknown."""
    if math.isnan(p):
        return ""
    least = 10.0**-digits
    most = 1.0 - least
    return f"> {most:.{digits}f}" if p > most else f"< {least:.{digits}f}" if p < least else f"{p:.{digits}f}"


class Line(NamedTuple):
    """A line of effects as people read it: a term, or a set of terms of which only the sum is known."""

    label: str
    term: tuple[str, ...]  # the strongest of a set
    strength: float
    sd: float
    lower: float
    upper: float
    share: float
    probability: float
    is_set: bool  # whether its split is not determined


def with_copies(term: Sequence[str], copies: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The inputs of a term with their other names: an input, and what says the same, are one."""
    return tuple(f"{name} (= {' = '.join(copies[name])})" if name in copies else name for name in term)


def lines(effects: "pd.DataFrame") -> list[Line]:
    """The rows of `model.effects()`, those of a set in one; inputs with all their names."""
    copies = effects.attrs.get("copies", {})
    found: list[Line] = []
    places: dict[str, int] = {}
    names = ["term", *Line._fields[2:6], "sobol", "probability"]
    groups = effects["group"] if "group" in effects else [""] * len(effects)
    for (term, *numbers), group in zip(effects[names].itertuples(index=False), groups, strict=True):
        if group in places:
            first = found[places[group]]
            # one of them is real as surely as the surest
            own = first._replace(share=first.share + numbers[4], probability=max(first.probability, numbers[5]))
            found[places[group]] = own
            continue
        if group:
            places[group] = len(found)
        label = f"{group}, {UNDETERMINED}" if group else term_label(with_copies(term, copies))
        found.append(Line(label, tuple(term), *numbers, is_set=bool(group)))
    return found
