"""Additive models of numbers, on the scale that they are on or on another, of counts, and of classes."""

from typing import Any

import numpy as np

from vertebra.models import count_choice
from vertebra.models.additive import AdditiveFit
from vertebra.models.model import Model
from vertebra.models.reading import Read, Targets, read_classes, read_numbers
from vertebra.models.scale_choice import ASKED, asked_for, better, on_scale, said, worth_a_fit
from vertebra.models.settings import Settings
from vertebra.models.transform import Transform


def fit_numbers(settings: Settings, X: Any, y: Any, sample_weight: Any, groups: Any = None, time: Any = None) -> Model:
    """A sum of terms for a target of numbers."""
    read = read_numbers(settings, X, y, sample_weight, groups, time)
    if (asked := asked_for(settings, read)) is not None:
        return said(_on(settings, read, asked), ASKED)
    if (gain := count_choice.gain_of_counts(settings, read)) is not None:
        settings, read = count_choice.as_counts(settings, read)
        return count_choice.said(_as_it_is(settings, read), gain)
    found = _as_it_is(settings, read)
    transform = worth_a_fit(settings, read)
    if transform is None or found.diagnostics.ended is not None:
        return found
    return better(found, _on(settings, read, transform), read)


def _as_it_is(settings: Settings, read: Read) -> Model:
    """The fit with the target on its own scale; the rate of counts is sought in their logarithms."""
    seen = np.log1p if settings.is_count else lambda z: z
    return AdditiveFit(settings, read, Targets(read.z, read.rows.weight, seen)).fit()


def _on(settings: Settings, read: Read, transform: Transform) -> Model:
    """The fit with the target on another scale."""
    read = on_scale(read, transform)
    return AdditiveFit(settings, read, Targets(read.z, read.rows.weight)).fit()


def fit_classes(settings: Settings, X: Any, y: Any, sample_weight: Any, groups: Any = None, time: Any = None) -> Model:
    """A sum of terms for the logits of classes."""
    read = read_classes(settings, X, y, sample_weight, groups, time)
    return AdditiveFit(settings, read, Targets.of_classes(read)).fit()
