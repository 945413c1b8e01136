"""Scores of predictions."""

import numpy as np
from jaxtyping import ArrayLike


def rmse(y: ArrayLike, prediction: ArrayLike) -> float:
    """√ mean (y − prediction)²."""
    return float(np.sqrt(np.mean((np.asarray(y) - np.asarray(prediction)) ** 2)))


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """The share of y inside [lower, upper]."""
    y = np.asarray(y)
    return float(np.mean((np.asarray(lower) <= y) & (y <= np.asarray(upper))))
