"""The target: how y was read, and its way to the model's scale and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.later import later
from vertebra.models.settings import NOISES, Settings, noise_named
from vertebra.models.transform import NAMES, Original, Transform, check_positive
from vertebra.tables.column import as_read, target_fault
from vertebra.tables.schema import ValuesLike
from vertebra.tables.survey import Facts

multiclass, validation = later("sklearn.utils.multiclass"), later("sklearn.utils.validation")

# Noise that may be normal on a transformed scale: the exponential of Student's has no mean.
NORMAL = ("auto", "gaussian", "heteroscedastic")
# A spread below this share of the mean is rounding error: such a target is constant.
FLAT = 1e-12


@dataclass(frozen=True)
class Target:
    """Names of the targets, z = (y − centre)/scale, which the model fits, or the classes, whose codes it fits."""

    names: list[str]
    centre: Float[np.ndarray, " k"]
    scale: Float[np.ndarray, " k"]
    is_single: bool = True  # y had no axis of targets
    classes: np.ndarray | None = None
    transform: Transform | None = None  # of positive targets: z is then of g(y)

    @classmethod
    def of_classes(cls, names: list[str], classes: np.ndarray) -> "Target":
        return cls(names, np.zeros(1), np.ones(1), classes=classes)

    @property
    def n_classes(self) -> int:
        return 0 if self.classes is None else len(self.classes)

    @property
    def output_names(self) -> list[str]:
        """What has effects of its own: the second of two classes, every class of more, every target."""
        classes = [] if self.classes is None else [str(each) for each in self.classes]
        return (classes[1:] if len(classes) == 2 else classes) or self.names

    def standard(self, y: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        if self.transform is not None:
            check_positive(y, f"for a model that was fitted on the scale of {self.transform.of('y')}")
            y = self.transform.there(y)
        return (y - self.centre) / self.scale

    def in_units(self, z: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        """f in the units of y, or of g(y)."""
        return self.centre + self.scale * z

    def original(self, z: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        """y itself: quantiles and draws."""
        y = self.in_units(z)
        return y if self.transform is None else self.transform.back(y)

    def seen(self, predictive: Predictive) -> Original | None:
        """What is said of y, where another scale was fitted."""
        return None if self.transform is None else Original(predictive, self.transform, self.centre, self.scale)

    def scale_of(self, output: int) -> str:
        """The scale of an output's f, if it is not that of y."""
        return "" if self.transform is None else self.transform.of(self.names[output])

    def shaped(self, values: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "..."]:
        """Without the axis of targets where y had none."""
        return values[..., 0] if self.is_single else values

    def unit(self, output: int) -> float:
        """How large 1 of an output's f is: in the units of y; of classes f is the logit itself."""
        return 1.0 if self.classes is not None else float(self.scale[output])

    def origin(self, output: int) -> float:
        return 0.0 if self.classes is not None else float(self.centre[output])

    def codes(self, y: ValuesLike) -> np.ndarray:
        """The codes of known classes."""
        classes = np.asarray(self.classes)
        codes = pd.Index(classes).get_indexer(pd.Index(np.asarray(y)))
        if (codes < 0).any():
            raise ValueError(f"`y` must hold the classes {classes.tolist()}, got others in {(codes < 0).sum()} rows.")
        return codes


def names_of(y: ValuesLike) -> list[str]:
    """What the targets are called: by the columns of a frame, the name of a series, else y, or y0, y1, …"""
    if (columns := getattr(y, "columns", None)) is not None:
        return [str(name) for name in columns]
    shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        return [f"y{k}" for k in range(shape[1])]
    name = getattr(y, "name", None)
    return [str(name) if isinstance(name, str | int) and str(name) else "y"]


def check_likelihood(settings: Settings) -> None:
    if settings.likelihood not in NOISES:
        raise ValueError(f"`likelihood` must be one of {', '.join(NOISES)}, got {settings.likelihood!r}.")


def check_transform(settings: Settings, *, is_stream: bool) -> None:
    asked, noise = settings.target_transform, settings.likelihood
    if asked not in NAMES:
        raise ValueError(f"`target_transform` must be one of {', '.join(NAMES)}, got {asked!r}.")
    if asked not in ("log", "box_cox"):
        return
    if noise not in NORMAL:
        allowed = ", ".join(NORMAL)
        raise ValueError(f'`likelihood` must be one of {allowed} with `target_transform="{asked}"`, got {noise!r}.')
    if is_stream:
        raise ValueError(
            f'`target_transform="{asked}"` is for tables in memory: of files, write {asked} of `y` as a column.'
        )
    if settings.monotone and noise == "heteroscedastic":
        raise ValueError(f'`monotone` with `target_transform="{asked}"` needs even noise, got `likelihood="{noise}"`.')


def checked_numbers(y: ValuesLike, n: int, settings: Settings) -> tuple[Float[np.ndarray, "n k"], bool]:
    """y as numbers, (n, targets), that the likelihood may have; and whether it had no axis of targets."""
    check_likelihood(settings)
    targets = as_numbers(y, settings.name)
    is_single = targets.ndim == 1
    targets = targets.reshape(len(targets), -1)
    if len(targets) != n:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n, len(targets)]}. "
            "`y` must have one entry per row of `X`."
        )
    targets = np.asarray(noise_named(settings.likelihood)().check(targets), np.float64)
    for k, own in enumerate(targets.T):
        if (fault := target_fault(own, is_count=settings.is_count)) is not None:
            place, found, advice = fault
            where = "" if place is None else f", in row {place} (counted from 0)"
            which = "`y`" if is_single else f"`y`, target {k},"
            raise ValueError(f"{which} {found}{where}{advice}")
    return targets, is_single


def checked_classes(y: ValuesLike, n: int, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """The classes of y, and the code of each row."""
    if y is None:
        raise ValueError(f"{settings.name} requires y to be passed, but the target y is None.")
    missing = int(pd.isna(np.asarray(y, dtype=object)).sum()) if not np.isscalar(y) else 0
    if missing:
        raise ValueError(f"Input y contains NaN: {missing} value(s) are missing. Leave these rows out.")
    labels = validation.column_or_1d(np.asarray(y), warn=True)
    multiclass.check_classification_targets(labels)
    validation.check_consistent_length(np.zeros(n), labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"`y` must have at least 2 classes, got 1 class: {classes[0]!r}.")
    return classes, codes


def class_factors(y: ValuesLike, n: int, settings: Settings) -> Float[np.ndarray, " n"]:
    """What the weight of each row is multiplied by for its class: balanced, n/(classes · rows of the class)."""
    classes, codes = checked_classes(y, n, settings)
    given = settings.class_weight
    if isinstance(given, str) and given == "balanced":
        return (n / (len(classes) * np.bincount(codes)))[codes]
    if not isinstance(given, Mapping):
        raise ValueError(f'`class_weight` must be "balanced" or a dict of weights by class, got {given!r}.')
    known = classes.tolist()
    for label, weight in given.items():
        if label not in known:
            raise ValueError(f"`class_weight` must name classes of `y`, got {label!r}: there are {known[:20]}.")
        if not isinstance(weight, int | float | np.number) or not 0.0 <= float(weight) < math.inf:
            raise ValueError(f"`class_weight` must hold finite numbers of at least 0, got {weight!r} for {label!r}.")
    return np.array([float(given.get(label, 1.0)) for label in known])[codes]


def of_rows(
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    names: list[str],
    *,
    is_single: bool,
    is_count: bool,
    transform: Transform | None = None,
) -> Target:
    """The scale on which y, or g(y), has mean 0 and sd 1; counts stay as they are."""
    y = y if transform is None else transform.there(y)
    if is_count:
        return Target(names, np.zeros(y.shape[1]), np.ones(y.shape[1]), is_single)
    centre = np.average(y, axis=0, weights=weight)
    largest = np.maximum(np.abs(y - centre).max(axis=0), 1e-300)
    spread = largest * np.sqrt(np.average(((y - centre) / largest) ** 2, axis=0, weights=weight))
    scale = np.where(_is_flat(spread, centre), 1.0, spread)
    return Target(names, centre, scale, is_single, transform=transform)


def of_facts(targets: Sequence[Facts], names: list[str], *, is_single: bool, is_count: bool) -> Target:
    """The same by what a first pass over files found of all rows."""
    for each in targets:
        _check_sums(each, is_count)
    centre = np.array([0.0 if is_count else each.moments.mean for each in targets])
    spread = np.array([each.moments.sd for each in targets])
    return Target(names, centre, np.where(_is_flat(spread, centre) | is_count, 1.0, spread), is_single)


def _is_flat(spread: Float[np.ndarray, " k"], centre: Float[np.ndarray, " k"]) -> np.ndarray:
    return spread <= FLAT * np.maximum(np.abs(centre), 1e-290)


def _check_sums(target: Facts, is_count: bool) -> None:
    """Refuses a target of files whose size, or whose squares, double precision cannot sum."""
    own = target.moments
    fault = target_fault(np.array([own.low, own.high]), is_count=is_count)
    if fault is None and (not math.isfinite(own.sd) or (own.sd == 0.0 and own.low < own.high)):
        large = not math.isfinite(own.sd)
        fault = (
            None,
            f"lies from {own.low:.3g} to {own.high:.3g}, whose squares cannot be summed",
            f": {'divide' if large else 'multiply'} it by a constant first.",
        )
    if fault is not None:
        raise ValueError(f"The target {target.source!r} {fault[1]}{fault[2]}")


def as_numbers(y: ValuesLike, estimator: str) -> np.ndarray:
    """y as finite numbers, or an error that says what is wrong and where."""
    if y is None:
        raise ValueError(f"{estimator} requires y to be passed, but the target y is None.")
    if isinstance(y, pd.Series) and pd.api.types.is_float_dtype(own := as_read(y, str(y.name))):
        y = own  # a column of text that is numbers is numbers, as in a table
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported, got the dtype {array.dtype} in `y`.")
    if array.ndim not in (1, 2):
        raise ValueError(f"y should be a 1d array, got an array of shape {array.shape} instead.")
    try:
        numbers = array.astype(np.float64)
    except OverflowError:  # whole numbers of hundreds of digits
        numbers = np.array([_finite_or_not(value) for value in array.ravel()]).reshape(array.shape)
    except (TypeError, ValueError):
        sample = next(value for value in array.ravel() if not isinstance(value, int | float | np.number))
        raise ValueError(
            f"`y` must be numbers for {estimator}, got {sample!r} among others: use AdditiveClassifier for classes."
        ) from None
    if array.dtype.kind in "US":
        raise ValueError(f"`y` must be numbers for {estimator}, got text: use AdditiveClassifier for classes.")
    rows = numbers.reshape(len(numbers), -1)
    if missing := int(np.isnan(numbers).sum()):
        first = int(np.isnan(rows).any(axis=1).argmax())
        raise ValueError(
            f"Input y contains NaN: {missing} value(s) are missing, the first in row {first} (counted from 0). Leave "
            "these rows out."
        )
    if infinite := int(np.isinf(numbers).sum()):
        first = int(np.isinf(rows).any(axis=1).argmax())
        raise ValueError(
            f"Input y contains infinity or a value too large: {infinite} value(s), the first in row {first} (counted "
            "from 0). Correct them, or leave these rows out."
        )
    return numbers


def _finite_or_not(value: str | SupportsFloat | SupportsIndex) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
