"""What a term is called, wherever people read it."""

from collections.abc import Sequence

# Inputs of a term that are named.
MOST_NAMED = 4


def term_label(term: Sequence[str]) -> str:
    """A term for people; of many inputs the first two, and how many more."""
    shown = list(term) if len(term) <= MOST_NAMED else [*term[:2], f"{len(term) - 2} more"]
    return " × ".join(shown)
