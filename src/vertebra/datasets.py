"""The four synthetic functions of the paper's experiments, on (0, 1]^10."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Synthetic(NamedTuple):
    """Rows of one synthetic function: inputs, noisy targets, and the function itself."""

    x: Float[np.ndarray, "n 10"]
    y: Float[np.ndarray, " n"]
    f: Float[np.ndarray, " n"]


def f1(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """10 sin(π x1 x2) + 20 (x3 − ½)² + 10 x4 + 5 x5: Friedman's function."""
    return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def f2(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """10 exp(x1 x2) − 20 cos(x3 + x4 + x5) + 7 arcsin(x9 x10)."""
    return 10 * np.exp(x[:, 0] * x[:, 1]) - 20 * np.cos(x[:, 2:5].sum(axis=1)) + 7 * np.arcsin(x[:, 8] * x[:, 9])


def f3(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """exp(|x1 x2| + 1) + exp(|x3 + x4| + 1) − 19 cos(x5 + x6) − 10 √(x8² + x9² + x10²)."""
    return (
        np.exp(np.abs(x[:, 0] * x[:, 1]) + 1)
        + np.exp(np.abs(x[:, 2] + x[:, 3]) + 1)
        - 19 * np.cos(x[:, 4] + x[:, 5])
        - 10 * np.sqrt((x[:, 7:10] ** 2).sum(axis=1))
    )


def f4(x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """1/(1 + x1² + x2² + x3²) − 5 √exp(x4 + x5) + 10 |x6 + x7| + 6 x8 x9 x10."""
    return (
        1 / (1 + (x[:, :3] ** 2).sum(axis=1))
        - 5 * np.sqrt(np.exp(x[:, 3] + x[:, 4]))
        + 10 * np.abs(x[:, 5] + x[:, 6])
        + 6 * x[:, 7] * x[:, 8] * x[:, 9]
    )


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"f1": f1, "f2": f2, "f3": f3, "f4": f4}


def synthetic(name: str, n: int = 5000, *, noise: float = 1.0, seed: int = 0) -> Synthetic:
    """n rows of f1, f2, f3 or f4: x uniform on (0, 1]^10, y = f(x) + N(0, noise²)."""
    if name not in FUNCTIONS:
        raise ValueError(f"`name` must be one of {', '.join(FUNCTIONS)}, got {name!r}.")
    if n < 1 or noise < 0.0:
        raise ValueError(f"`n` must be at least 1 and `noise` not negative, got {n!r} and {noise!r}.")
    rng = np.random.default_rng(seed)
    x = 1.0 - rng.random((n, 10))
    f = FUNCTIONS[name](x)
    return Synthetic(x, f + noise * rng.standard_normal(n), f)
