"""Estimators that read tables: rows in, f out, and files. What all four share."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight

from vertebra.effects.notebook import answer
from vertebra.effects.posterior import EnsembleSurface, HybridSurface, NetworkSurface, TermSurface
from vertebra.estimators.diagnostics import Diagnostics
from vertebra.estimators.evaluation import Evaluation, Linear
from vertebra.machine.checks import seed_of
from vertebra.tables.encoding import Encoding, encode, levels_left
from vertebra.tables.folds import runs_of
from vertebra.tables.passes import StreamedRows
from vertebra.tables.profile import Profile
from vertebra.tables.schema import Schema, learn
from vertebra.tables.weighting import Weighting, Weights, weighting

# Categories of more levels are read as numbers.
MOST_LEVELS = 64
# Equal rows are at most so many parts, so that each of five folds can have one.
MOST_PARTS = 5
# Rows that stand for the marginals of the inputs, where a network is taken apart.
N_MARGINAL_ROWS = 256


class Rows(NamedTuple):
    """The rows of a fit: those of weight above 0, equal ones in few parts, in an order that does not depend on theirs.

    So a weight of 2 is a row that stands there twice, to the last digit, and the order of the rows does not matter.
    """

    matrix: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    weight: Float[np.ndarray, " n"]


def canonical(matrix, y, weight) -> Rows:
    """Rows put in order, equal ones as few parts, each of at least one row.

    Parts, because what is left out of a fold, of a network or of a fit is rows and not all that are equal: without a
    whole cell of a small table the rest of it says the opposite.
    """
    kept = weight > 0
    matrix, y, weight = matrix[kept], y[kept], weight[kept]
    everything = np.concatenate([matrix, y], axis=1)
    order = np.lexsort(everything.T[::-1])
    everything, weight = everything[order], weight[order]
    run, place = runs_of(everything)
    everything, parts = everything[place == 0], _parts(np.bincount(run, weight))
    everything, p = np.repeat(everything, np.count_nonzero(parts, axis=1), axis=0), matrix.shape[1]
    return Rows(everything[:, :p], everything[:, p:], parts[parts > 0.0])


def _parts(weight: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m parts"]:
    """Weights of the parts of rows: one row each, or, of more rows than parts, as many as chance puts into each."""
    units = np.maximum(weight, 1.0).astype(np.int64)
    parts = (np.arange(MOST_PARTS) < units[:, None]).astype(float)
    many = units > MOST_PARTS
    # always the same chance: parts must not depend on a seed, nor on how rows came
    parts[many] = np.random.default_rng(0).multinomial(units[many], np.full(MOST_PARTS, 1.0 / MOST_PARTS))
    return parts * (weight / units)[:, None]


def are_equal(rows: Rows) -> bool:
    """Whether all rows are one and the same."""
    return not runs_of(rows.matrix, rows.y)[0].any()


class TableEstimator(BaseEstimator):
    """Reads tables at fit and at predict; knows nothing of what is fitted."""

    schema_: Schema
    n_features_in_: int
    _encoding: Encoding
    _ranges: Float[np.ndarray, "p 2"]  # of the coded inputs
    _surface: TermSurface | NetworkSurface | EnsembleSurface | HybridSurface
    _profile: Profile
    _linear: Linear
    target_names_: list[str]
    evaluation_: Evaluation | None
    diagnostics_: Diagnostics
    feature_types: Mapping | Sequence | None
    weights: str
    random_state: Any

    def _read(self, X: Any, sample_weight: Any) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, " n"], Weighting]:
        """A table seen for the first time: the coded matrix, its weights as numbers of rows, and how they are meant."""
        schema = learn(X, None, self.feature_types)
        matrix = schema.matrix(X, type(self).__name__)
        weight = _check_sample_weight(sample_weight, matrix[:, :1], dtype=np.float64, ensure_non_negative=True)
        meant = weighting(Weights.of(weight), self.weights)
        weight = meant.scale * weight
        if sample_weight is not None:
            schema = learn(X, weight, self.feature_types)
            matrix = schema.matrix(X, type(self).__name__)
        self._learned(schema)
        return matrix, weight, meant

    def _learned(self, schema: Schema) -> None:
        self.schema_ = schema
        self.n_features_in_ = len(schema.sources)
        if schema.named:
            self.feature_names_in_ = np.array(schema.sources, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _encode(self, rows: Rows, stream: StreamedRows | None, targets: "Targets", *, most_levels: int, fill: bool):
        """The rows as the model reads them, and how many levels the categories left have."""
        columns = self.schema_.columns
        n_levels = [len(c.levels) if c.kind in ("category", "boolean") else 0 for c in columns]
        is_ordered = [c.kind == "ordered" for c in columns]
        settings: Any = dict(most_levels=most_levels, fill=fill)
        if stream is None:
            rng = np.random.default_rng(seed_of(self.random_state))
            direction = targets.direction(targets.y)
            self._encoding, x, left = encode(
                rows.matrix, direction, rows.weight, n_levels, is_ordered, rng=rng, **settings
            )
        else:
            fitted = stream.cross_fit(rows.matrix, targets.direction, n_levels, is_ordered, **settings)
            self._encoding, x, left = fitted.encoding, stream.sample(rows.matrix), levels_left(n_levels, most_levels)
        seen = [column[~np.isnan(column)] for column in rows.matrix.T]
        self._ranges = np.array([[s.min(), s.max()] if len(s) else [0.0, 0.0] for s in seen])
        return x, left

    def _x(self, X: Any) -> Float[np.ndarray, "n p"]:
        """A table as the fitted model reads it."""
        self._check_fitted()
        return self._encoding(self.schema_.matrix(X, type(self).__name__))

    def marginal(self, name: Any) -> pd.DataFrame:
        """How the values of an input were spread at fit: lower, upper, share of bins, or level, share.

        >>> marginal = model.marginal("x3")
        >>> list(marginal), round(float(marginal["share"].sum()), 6)
        (['lower', 'upper', 'share'], 1.0)
        """
        self._check_fitted()
        i = self._position(name)
        return self._profile.inputs[i].table(self.schema_.columns[i])

    def _position(self, name: Any) -> int:
        """The place of an input, by name or by place."""
        names = self._names()
        if isinstance(name, numbers.Integral) and 0 <= name < len(names):
            return int(name)
        if name not in names:
            raise ValueError(f"Input {name!r} is not known: the inputs are {', '.join(names[:20])}.")
        return names.index(name)

    def _check_fitted(self) -> None:
        if not hasattr(self, "_surface"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
                "using this estimator."
            )

    def _names(self) -> list[str]:
        return [column.name for column in self.schema_.columns]

    def _output_names(self) -> list[str]:
        """What has effects of its own: the second of two classes, every class of more, every target."""
        classes = [str(c) for c in getattr(self, "classes_", [])]
        return (classes[1:] if len(classes) == 2 else classes) or self.target_names_

    def save(self, path: Any) -> None:
        """Writes the fitted model to one file, which `vertebra.load` reads; an older file there is replaced at once.

        >>> model.save("model.vertebra")
        >>> np.allclose(vb.load("model.vertebra").predict(data.x), model.predict(data.x))
        True
        """
        from vertebra.files.archive import save

        save(self, path)

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._answer()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": bundle["text/html"] + self._answer()} if "text/html" in bundle else bundle

    def _answer(self) -> str:
        """What a notebook shows under the settings of a fitted model."""
        if not self.__sklearn_is_fitted__():
            return ""
        found, seen = self.diagnostics_, self.evaluation_
        terms = getattr(self, "effects", None)
        effects = None if terms is None else terms()
        accuracy, method = (None, "") if seen is None else (seen.table(), f"{seen.method.words}, {seen.n} rows")
        return answer(type(self).__name__, found.verdict, accuracy, method, effects, found.warnings)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_surface")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


def marginal_rows(x, weight) -> Float[np.ndarray, "m p"]:
    """Rows whose columns are quantiles of the inputs, each by itself."""
    steps = (np.arange(N_MARGINAL_ROWS) + 0.5) / N_MARGINAL_ROWS
    columns = []
    for column in x.T:
        order = np.argsort(column, kind="stable")
        upto = np.cumsum(weight[order])
        columns.append(column[order][np.minimum(np.searchsorted(upto, steps * upto[-1]), len(order) - 1)])
    return np.stack(columns, axis=1)


def target_names(y: Any) -> list[str]:
    """What the targets are called: by the columns of a frame, the name of a series, else y, or y0, y1, …"""
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        return [f"y{k}" for k in range(shape[1])]
    name = getattr(y, "name", None)
    return [str(name) if isinstance(name, str | int) and str(name) else "y"]


class Targets:
    """The targets of a fit on its own scale, y, and what is looked at for structure: `seen(y)`."""

    def __init__(
        self,
        y: Float[np.ndarray, "n m"],
        weight: Float[np.ndarray, " n"],
        seen: Callable[[Float[np.ndarray, "_ m"]], Float[np.ndarray, "_ k"]] = lambda y: y,
    ):
        self.y, self.seen = y, seen
        targets = seen(y)
        self._centre, self._vector = np.zeros(targets.shape[1]), np.ones(targets.shape[1])
        if targets.shape[1] > 1:
            self._centre = weight @ targets / weight.sum()
            centred = targets - self._centre
            direction = np.linalg.eigh(centred.T @ (weight[:, None] * centred))[1][:, -1]
            self._vector = direction * (1.0 if direction[np.argmax(np.abs(direction))] > 0 else -1.0)

    def direction(self, y: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " n"]:
        """One target, or the direction in which several vary most."""
        targets = self.seen(y)
        return targets[:, 0] if targets.shape[1] == 1 else (targets - self._centre) @ self._vector
