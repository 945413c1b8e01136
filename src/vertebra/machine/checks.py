"""What users hand over, held to what it may be."""

import math
import numbers

import numpy as np


def seed_of(random_state) -> int:
    """The seed itself, or one drawn from a generator; without either 0, so that a fit repeats."""
    if random_state is None or isinstance(random_state, numbers.Integral):
        return int(random_state or 0)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is not np.random and not isinstance(random_state, np.random.RandomState):
        raise ValueError(f"`random_state` must be a whole number, a NumPy generator or None, got {random_state!r}.")
    return int(random_state.randint(2**31))


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be between 0 and 1, got {level!r}.")


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0.0 or math.isinf(value):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")


def check_count(**counts: object) -> None:
    for name, value in counts.items():
        if not isinstance(value, numbers.Integral) or int(value) < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")
