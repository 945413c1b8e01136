"""The end of a sentence about a name that is not there: the one that was meant, or those there are."""

import difflib
from collections.abc import Sequence

# Names that an error lists. A round number: three lines of a terminal.
MOST_LISTED = 30
# What a date is read as.
PARTS = ("time", "month", "weekday", "hour")


def nearest(name: str, names: Sequence[str]) -> str:
    """The names that were meant, or those there are; of a date the parts that stand for it."""
    if parts := [each for each in names if each in {f"{name} ({part})" for part in PARTS}]:
        return f"; its parts are {', '.join(map(repr, parts))}."
    by_lower = {each.lower(): each for each in names}
    if near := difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5):
        return f"; did you mean {by_lower[near[0]]!r}?"
    if len(name) > 2 and (holding := [each for each in names if name.lower() in each.lower()]):
        return f"; did you mean {' or '.join(map(repr, holding[:3]))}?"
    return one_of(names)


def one_of(names: Sequence[str]) -> str:
    """The names there are; of many the first and the last, where targets stand."""
    if not names:
        return "."
    shown = list(names) if len(names) <= MOST_LISTED else [*names[: MOST_LISTED - 5], "…", *names[-5:]]
    return f": there {'is' if len(names) == 1 else 'are'} {', '.join(shown)}."
