"""What users know of f before the fit: which inputs act together, and what f rises or falls with."""

from collections.abc import Sequence
from typing import Any

from vertebra.models.model import position_in
from vertebra.models.reading import Read
from vertebra.models.settings import Settings
from vertebra.terms.term import Term

# What users write of an input that f rises or falls with.
SIGNS: dict[str | int, int] = {"+": 1, "-": -1, 1: 1, -1: -1}


def clusters_given(clusters: Sequence[Any], names: list[str]) -> list[Term]:
    """Groups of inputs, by name or by place, as places."""
    found = []
    for cluster in clusters:
        if isinstance(cluster, str) or not len(tuple(cluster)):
            raise ValueError(f"`clusters` must hold groups of inputs, got {cluster!r}.")
        found.append(tuple(sorted({position_in(names, name) for name in cluster})))
    return found


def shapes_given(settings: Settings, read: Read) -> dict[int, int]:
    """Inputs that f rises (1) or falls (−1) with, by their places."""
    if not settings.monotone:
        return {}
    if settings.scheme != "auto":
        raise ValueError(f'`monotone` needs scheme="auto", got {settings.scheme!r}.')
    if read.target.n_classes > 2:
        raise ValueError(f"`monotone` is for numbers, counts and two classes, got {read.target.n_classes} classes.")
    shapes = {}
    for name, sign in settings.monotone.items():
        i = position_in(read.names, name)
        if (column := read.schema.columns[i]).kind not in ("number", "ordered"):
            raise ValueError(f"`monotone` is for numbers and ordered levels: {column.name} is a {column.kind}.")
        if sign not in SIGNS:
            raise ValueError(f'`monotone` must say "+" or "-" of {column.name}, got {sign!r}.')
        shapes[i] = SIGNS[sign]
    return shapes
