"""A term: a set of inputs that act together, and what it is called."""

import itertools
from collections.abc import Iterable, Sequence

# Inputs of a term that are named.
MOST_NAMED = 4

Term = tuple[int, ...]


def by_order(terms: Iterable[Term]) -> list[Term]:
    """Terms, lower orders first, and within an order by their inputs."""
    return sorted(terms, key=lambda t: (len(t), t))


def subsets(terms: Iterable[Term]) -> list[Term]:
    """Every term that lies in one of these, without the empty one, lower orders first."""
    inside = {s for term in terms for k in range(1, len(term) + 1) for s in itertools.combinations(sorted(term), k)}
    return by_order(inside)


def maximal(terms: Iterable[Term]) -> tuple[Term, ...]:
    """The terms that lie in no other, lower orders first."""
    distinct = by_order(set(terms))
    return tuple(t for t in distinct if not any(set(t) < set(other) for other in distinct))


def term_label(term: Sequence[str], most: int = MOST_NAMED) -> str:
    """A term for people; of more than `most` inputs the first two, and how many more."""
    shown = list(term) if len(term) <= most else [*term[:2], f"{len(term) - 2} more"]
    return " × ".join(shown)


def term_in_files(term: Iterable[str]) -> str:
    """A term in the tables that are written, all its inputs named, in letters that every program reads."""
    return " & ".join(term)
