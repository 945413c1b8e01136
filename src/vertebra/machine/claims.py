"""What a file says of a model, held to what it may be: numbers, sizes, lists, arrays.

A checksum tells damage, not intent: whoever writes a file can seal it. So nothing is taken as it comes. Each function
here gives a value back as what it should be, or raises a ValueError that names it.
"""

import math
from collections.abc import Collection, Mapping
from typing import TypeGuard

import numpy as np

from vertebra.machine.file import Record

# Numbers on a model's own scale, where targets and inputs have an sd near 1, come nowhere near this size; products of
# some of them still do not overflow.
LARGEST = 1e30
# In the units of the user any number may stand there.
FINITE = float(np.finfo(np.float64).max)
# What is divided by is at least this, the least normal number.
TINY = float(np.finfo(np.float64).tiny)


def demand(holds: object, what: str, wanted: str, got: object) -> None:
    if not holds:
        raise unfit(what, wanted, got)


def unfit(what: str, wanted: str, got: object) -> ValueError:
    """The error to raise where something is not what it must be."""
    return ValueError(f"{what} must be {wanted}, got {repr(got)[:100]}")


def record(value: object, what: str, needed: Collection[str], allowed: Collection[str] = ()) -> Record:
    """A JSON object with these keys, and of others those that are allowed."""
    if not isinstance(value, dict):
        raise unfit(what, "an object", value)
    if lacking := set(needed) - value.keys():
        raise ValueError(f"{what} lacks {', '.join(sorted(lacking))}")
    if unknown := value.keys() - set(needed) - set(allowed):
        raise ValueError(f"{what} holds the unknown {', '.join(sorted(unknown))[:100]}")
    return value


def listed(value: object, what: str, n: int | None = None) -> list[object]:
    if not isinstance(value, list):
        raise unfit(what, "a list", value)
    demand(n is None or len(value) == n, what, f"a list of {n}", value)
    return value


def text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise unfit(what, "text", value)
    return value


def texts(value: object, what: str, n: int | None = None) -> list[str]:
    return [text(each, what) for each in listed(value, what, n)]


def flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise unfit(what, "true or false", value)
    return value


def whole(value: object, what: str, low: int = 0, high: int | float = math.inf) -> int:
    within = f"a whole number of at least {low}" if high == math.inf else f"a whole number from {low} to {high}"
    if type(value) is not int or not low <= value <= high:
        raise unfit(what, within, value)
    return value


def number(value: object, what: str, low: int | float = -math.inf, high: int | float = math.inf) -> float:
    """A finite one."""
    if not is_number(value) or not abs(value) <= FINITE or not low <= value <= high:
        wanted = "a finite number" if low == -high == -math.inf else f"a number from {low} to {high}"
        raise unfit(what, wanted, value)
    return float(value)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is a number of JSON, finite or not; a boolean is none."""
    return type(value) in (int, float)


def one_of(value: object, what: str, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise unfit(what, f"one of {', '.join(known)}", value)
    return value


class Arrays:
    """The arrays of a file, each to be taken once: what nobody asks for does not belong there."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._left = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def size(self, start: str) -> int:
        """How many numbers the arrays hold whose names begin so."""
        return sum(array.size for name, array in self._left.items() if name.startswith(start))

    def take(
        self,
        name: str,
        *shape: int | None,
        kind: str = "f8",
        low: int | float = -LARGEST,
        high: int | float = LARGEST,
        gaps: bool = False,
    ) -> np.ndarray:
        """An array of this shape, None for an axis of any length, whose numbers are finite and within limits.

        With `gaps` some may be NaN. The kind "f" is any precision.
        """
        array = self._taken(name)
        wanted = f"of the shape {tuple('any' if n is None else n for n in shape)} and the type {kind}"
        is_kind = array.dtype.kind == kind if len(kind) == 1 else array.dtype == np.dtype(kind)
        is_shaped = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if not is_kind or not is_shaped:
            raise ValueError(f"{name} must be {wanted}, got {array.shape} and {array.dtype}")
        with np.errstate(invalid="ignore"):
            inside = (array >= low) & (array <= high)
        if gaps:
            inside |= np.isnan(array)
        if not inside.all():
            raise ValueError(f"{name} must hold finite numbers from {low:g} to {high:g}, got {array[~inside][0]!r}")
        return array

    def any(self, name: str, largest: float) -> np.ndarray:
        """An array of any shape and type, whose numbers are finite and no larger."""
        array = self._taken(name)
        demand(array.dtype.kind in "biuf", name, "an array of numbers", array.dtype)
        if array.dtype.kind == "f" and not (np.abs(array) <= largest).all():
            raise ValueError(f"{name} must hold finite numbers from {-largest:g} to {largest:g}")
        return array

    def _taken(self, name: str) -> np.ndarray:
        if name not in self._left:
            raise ValueError(f"there is no array {name!r}")
        return self._left.pop(name)

    def check_all_taken(self) -> None:
        if self._left:
            raise ValueError(f"the array {next(iter(self._left))[:100]!r} belongs to nothing")


def rising(array: np.ndarray, what: str, *, strictly: bool = False) -> np.ndarray:
    """Numbers along the first axis, in order."""
    steps = np.diff(array, axis=0)
    demand((steps > 0.0).all() if strictly else (steps >= 0.0).all(), what, "in order", array.ravel()[:5].tolist())
    return array
