"""A few rows taken apart on a page: a typical one, the highest and the lowest prediction, and the worst ones."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float
from sklearn.utils import _safe_indexing

from vertebra.effects.posterior import PosteriorOfTerms
from vertebra.models.explanation import MeasureLike, latent_of, measure_of, parts_of
from vertebra.models.model import Model
from vertebra.models.rows import NewLevels, OutsideRange
from vertebra.pages import words
from vertebra.tables.named import taken_apart
from vertebra.tables.schema import TableLike, ValuesLike
from vertebra.terms.term import term_label

# A page has room for five rows; of each the terms that move it most.
N_WORST, MOST_PARTS = 2, 6
# Among so many rows, evenly spread, the typical one is looked for: the median of a term is known to 1 % of its sd.
N_TYPICAL = 10_000

# Rows and their targets, and where known the numbers that people know them by; False: none.
CasesLike = tuple[TableLike, ValuesLike] | tuple[TableLike, ValuesLike, Sequence[int]] | bool | None


class Part(NamedTuple):
    """What a term adds, and where its bar lies between the least and the largest part of the row, in percent."""

    label: str
    mean: float
    lower: float
    upper: float
    start: float
    width: float
    has_band: bool = True


class Case(NamedTuple):
    """A row: why it is shown, what was predicted and what was seen, and what its terms add to the average."""

    why: str
    number: int
    said: str
    seen: str
    origin: float
    parts: list[Part]
    total: float
    unit: str


def cases(model: Model, given: CasesLike, measure: MeasureLike = None) -> list[Case]:
    """The rows that a page shows; none where none are given."""
    if given is None or isinstance(given, bool):
        return []
    X, y, *numbers = given
    X, y = taken_apart(X, y, None, is_class=model.is_classifier)[:2]
    with warnings.catch_warnings():
        # of rows that are looked at to choose some
        warnings.simplefilter("ignore", OutsideRange)
        warnings.simplefilter("ignore", NewLevels)
        chosen = _chosen(model, X, y, measure)
        names = numbers[0] if numbers else np.arange(1, model.schema.matrix(X, model.kind).shape[0] + 1)
        return [_case(model, X, y, row, why, int(names[row]), measure) for row, why in chosen.items()]


def _chosen(model: Model, X: TableLike, y: ValuesLike, measure: MeasureLike) -> dict[int, str]:
    """Rows and why they are shown, each once."""
    height, coded = _heights(model, X), model.schema.matrix(X, model.kind)
    looked = np.unique(np.linspace(0, len(coded) - 1, min(len(coded), N_TYPICAL)).round().astype(int))
    chosen: dict[int, str] = {int(looked[_typical(model, coded[looked], measure)]): "A typical row"}
    what = words.short(f"probability of {model.target.output_names[0]}" if model.is_classifier else "prediction", 60)
    for row, which in ((int(np.argmax(height)), "highest"), (int(np.argmin(height)), "lowest")):
        chosen.setdefault(row, f"The {which} {what}")
    density = model.log_prob(X, y)
    for place, row in enumerate(np.argsort(density, kind="stable")[:N_WORST]):
        which = "The worst predicted row" if not place else "The next worst predicted row"
        chosen[int(row)] = f"{chosen[int(row)]}, and {which.lower()}" if int(row) in chosen else which
    return chosen


def _heights(model: Model, X: TableLike) -> Float[np.ndarray, " n"]:
    """What rows are ranked by: the probability of the first output's class, or the first target's mean."""
    if model.is_classifier:
        p = model.probabilities(X)
        return p[:, 1] if p.shape[1] == 2 else p[:, 0]
    return model.mean(X).reshape(len(model.schema.matrix(X, model.kind)), -1)[:, 0]


def _typical(model: Model, coded: Float[np.ndarray, "n p"], measure: MeasureLike) -> int:
    """The row whose terms lie nearest to their medians, in squares: arg min Σ_T (I_T(x) − median I_T)²."""
    local = cast(PosteriorOfTerms, model.posterior).local(
        model.encoding(coded), latent_of(model, 0), None, measure_of(model, measure)
    )
    away = np.zeros(len(coded))
    for term, own in local.items():
        if term:
            away += (own.mean - np.median(own.mean)) ** 2
    return int(np.argmin(away))


def _case(model: Model, X: TableLike, y: ValuesLike, row: int, why: str, number: int, measure: MeasureLike) -> Case:
    own = _safe_indexing(X, [row])
    output, said = _said(model, own)
    table = parts_of(model, model.schema.matrix(own, model.kind), output=output, measure=measure)
    origin = float(table["mean"].to_numpy()[0])
    parts = table.iloc[1:].head(MOST_PARTS)
    rest = float(np.sum(table["mean"].to_numpy()[1 + MOST_PARTS :]))
    labels = [value or term_label(term) for term, value in zip(parts["term"], parts["value"], strict=True)]
    bands = [*zip(labels, parts["mean"], parts["lower"], parts["upper"], strict=True)]
    if n_more := max(len(table) - 1 - MOST_PARTS, 0):
        bands.append((f"{n_more} weaker term{'s' * (n_more > 1)}", rest, rest, rest))
    ends = np.array([mean for _, mean, _, _ in bands] or [0.0])
    low, high = min(float(ends.min()), 0.0), max(float(ends.max()), 0.0)
    size = max(high - low, 1e-300)
    drawn = [
        Part(label, mean, lower, upper, 100.0 * (min(mean, 0.0) - low) / size, 100.0 * abs(mean) / size, lower < upper)
        for label, mean, lower, upper in bands
    ]
    return Case(
        why,
        number,
        said,
        _seen(model, y, row),
        origin,
        drawn,
        float(np.sum(table["mean"].to_numpy())),
        words.unit_of(model, output),
    )


def _said(model: Model, own: TableLike) -> tuple[int, str]:
    """The output that is taken apart, and the prediction in words: of two classes the second, of more the likeliest."""
    if (classes := model.target.classes) is not None:
        p, limits = model.probabilities(own)[0], model.probability_interval(own, 0.95)[0]
        k = 1 if len(p) == 2 else int(np.argmax(p))
        low, high = (words.percent(float(each)) for each in limits[:, k])
        said = f"probability of {words.short(str(classes[k]), 60)} {words.percent(float(p[k]))} ({low} to {high})"
        return (0 if len(p) == 2 else k), said
    mean, (low, high) = np.ravel(model.mean(own))[0], np.reshape(model.interval(own, 0.95)[0], (2, -1))[:, 0]
    whose = f"{words.short(model.target.names[0], 60)} " if len(model.target.names) > 1 else ""
    said = f"{whose}{words.number(float(mean))} ({words.number(float(low))} to {words.number(float(high))})"
    return 0, said


def _seen(model: Model, y: ValuesLike, row: int) -> str:
    value = np.asarray(y, dtype=object).reshape(-1, 1 if model.is_classifier else len(model.target.names))[row, 0]
    return words.short(str(value), 60) if model.is_classifier else words.number(float(cast(float, value)))
