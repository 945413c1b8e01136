"""A table read for a fit: how its columns and its target are meant, and the rows, in memory or in files."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import _check_sample_weight

from vertebra.machine import cluster
from vertebra.machine.checkpoint import Checkpoint
from vertebra.models.conformal import set_aside
from vertebra.models.rows import Rows, are_equal, canonical
from vertebra.models.settings import Settings, noise_named
from vertebra.models.target import (
    Target,
    check_likelihood,
    check_transform,
    checked_classes,
    checked_numbers,
    class_factors,
    names_of,
    of_facts,
    of_rows,
)
from vertebra.models.transform import check_positive
from vertebra.tables.belonging import group_codes, instants_of
from vertebra.tables.column import in_order
from vertebra.tables.encoding import Encoding, encode, levels_left
from vertebra.tables.known import Known
from vertebra.tables.named import Taken, taken_apart
from vertebra.tables.parquet import Files, Parquet, as_parquet
from vertebra.tables.partitions import DaskFrame, Partitions
from vertebra.tables.passes import Training
from vertebra.tables.schema import Schema, TableLike, ValuesLike, learn
from vertebra.tables.streamed import StreamedRows, is_stream
from vertebra.tables.weighting import Weighting, Weights, weighting

# Networks read categories of more levels as the mean of the target in each: a scheme has so many codes, and one for
# missing.
MOST_CODES = 24


class Read(NamedTuple):
    """What a fit takes of a table: the schema, the target, the rows, and those set aside for conformal intervals.

    Rows in files are read in passes by `stream`; `rows` is then a sample of them.
    """

    schema: Schema
    target: Target
    rows: Rows
    meant: Weighting
    held: Rows | None = None
    stream: StreamedRows | None = None

    @property
    def weight(self) -> float:
        """The number of rows that those fitted count for."""
        return float(self.rows.weight.sum()) if self.stream is None else self.stream.weight

    @property
    def z(self) -> Float[np.ndarray, "n k"]:
        """The targets of the rows on the model's scale."""
        return (self.target if self.stream is None else self.stream).standard(self.rows.y)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    @property
    def n_levels(self) -> list[int]:
        """The levels of every input; numbers have none."""
        return [len(column.levels) for column in self.schema.columns]

    @property
    def n_categories(self) -> list[int]:
        """The levels of every category; what has an order has none."""
        return [len(c.levels) if c.kind in ("category", "boolean") else 0 for c in self.schema.columns]

    def finish(self) -> None:
        """A fit that is done needs no checkpoint."""
        if self.stream is not None and self.stream.training.checkpoint is not None:
            self.stream.training.checkpoint.remove()


def read_numbers(
    settings: Settings,
    X: TableLike,
    y: ValuesLike,
    sample_weight: ValuesLike,
    groups: ValuesLike = None,
    time: ValuesLike = None,
) -> Read:
    """A table whose target is numbers; with `conformal` some rows are set aside."""
    is_count = settings.is_count
    check_transform(settings, is_stream=is_stream(X))
    if is_stream(X):
        _check_alone(groups, time)
        check_likelihood(settings)
        stream, known = _streamed(settings, X, y, sample_weight)
        names, is_single = list(stream.training.targets), isinstance(y, str)
        target = of_facts(known.targets, names, is_single=is_single, is_count=is_count)
        check = noise_named(settings.likelihood)().check
        stream.standard = lambda y: target.standard(np.asarray(check(y), np.float64))
        rows = Rows(*stream.taken(known.sample))
        if settings.conformal and not len(known.held.numbers):
            raise ValueError("`conformal=True` needs rows to set aside, and the files have too few.")
        held = None
        if settings.conformal:
            matrix, values, weight = stream.taken(known.held)
            held = Rows(matrix, values, np.ones(len(weight)))
        return Read(stream.schema, target, rows, known.weighting, held, stream)
    taken = taken_apart(X, y, sample_weight, is_class=False, groups=groups, time=time)
    X, y, sample_weight = taken[:3]
    schema, matrix, weight, meant = _in_memory(settings, X, sample_weight)
    numbers, is_single = checked_numbers(y, len(matrix), settings)
    if settings.target_transform in ("log", "box_cox"):
        check_positive(numbers, f'for `target_transform="{settings.target_transform}"`')
    rows, held = canonical(matrix, numbers, weight, *_belonging(taken, len(matrix))), None
    if are_equal(rows):
        raise ValueError("`X` must have at least 2 different rows of weight above 0, got n_samples = 1.")
    if settings.conformal:
        rows, held = set_aside(rows, settings.seed)
        meant = meant._replace(n_rows=meant.n_rows * float(rows.weight.sum() / weight.sum()))
    target = of_rows(rows.y, rows.weight, names_of(y), is_single=is_single, is_count=is_count)
    return Read(schema, target, rows, meant, held)


def read_classes(
    settings: Settings,
    X: TableLike,
    y: ValuesLike,
    sample_weight: ValuesLike,
    groups: ValuesLike = None,
    time: ValuesLike = None,
) -> Read:
    """A table whose target is classes: rows hold their codes."""
    if is_stream(X):
        _check_alone(groups, time)
        if settings.class_weight is not None:
            raise ValueError("`class_weight` is for tables in memory: of files give `sample_weight`, a column of them.")
        stream, known = _streamed(settings, X, y, sample_weight)
        classes = np.array(in_order(known.targets[0].levels))
        stream.training.classes(classes.tolist())
        target = Target.of_classes(list(stream.training.targets), classes)
        read = Read(stream.schema, target, Rows(*stream.taken(known.sample)), known.weighting, stream=stream)
    else:
        taken = taken_apart(X, y, sample_weight, is_class=True, groups=groups, time=time)
        X, y, sample_weight = taken[:3]
        schema, matrix, weight, meant = _in_memory(settings, X, sample_weight, y)
        classes, codes = checked_classes(y, len(matrix), settings)
        target = Target.of_classes(names_of(y), classes)
        rows = canonical(matrix, codes[:, None].astype(float), weight, *_belonging(taken, len(matrix)))
        read = Read(schema, target, rows, meant)
    if len(classes) < 2 or (read.stream is None and len(np.unique(read.rows.y)) < 2):
        raise ValueError("`y` must have at least 2 classes among the rows of weight above 0, got 1 class.")
    return read


def _check_alone(groups: ValuesLike, time: ValuesLike) -> None:
    """Refuses what a table in files cannot have: its rows are read as they lie."""
    for name, given in (("groups", groups), ("time", time)):
        if given is not None:
            raise ValueError(f"`{name}` is for tables in memory: read the files first, vb.read_table(path).")


def _belonging(taken: Taken, n: int) -> tuple[Int[np.ndarray, " n"] | None, Float[np.ndarray, " n"] | None]:
    """The numbers of groups and the times of rows, where they are given."""
    return (
        None if taken.groups is None else group_codes(taken.groups, n),
        None if taken.time is None else instants_of(taken.time, n),
    )


def _in_memory(
    settings: Settings, X: TableLike, sample_weight: ValuesLike, y: ValuesLike = None
) -> tuple[Schema, Float[np.ndarray, "n p"], Float[np.ndarray, " n"], Weighting]:
    """A table's schema, its coded matrix, its weights as numbers of rows, and how these are meant.

    Where classes have weights, y is theirs; these are no counts of rows.
    """
    schema = learn(X, None, settings.feature_types, settings.missing_values)
    matrix = schema.matrix(X, settings.name)
    weight = _check_sample_weight(sample_weight, matrix[:, :1], dtype=np.float64, ensure_non_negative=True)
    kind, has_weights = settings.weights, sample_weight is not None
    if settings.class_weight is not None:
        weight = weight * class_factors(y, len(matrix), settings)
        kind, has_weights = ("importance" if kind == "auto" else kind), True
    meant = weighting(Weights.of(weight), kind)
    weight = meant.scale * weight
    if has_weights:
        schema = learn(X, weight, settings.feature_types, settings.missing_values)
        matrix = schema.matrix(X, settings.name)
    return schema, matrix, weight, meant


def _streamed(
    settings: Settings, X: Parquet | Partitions | DaskFrame | Files, y: ValuesLike, sample_weight: ValuesLike
) -> tuple[StreamedRows, Known]:
    """A table in files, or in partitions, after the first pass over it."""
    targets = [y] if isinstance(y, str) else y
    if not isinstance(targets, list | tuple) or not all(isinstance(each, str) for each in targets):
        raise ValueError(f"`y` must name the target, a column of the files, got {type(y).__name__}.")
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise ValueError(f"`sample_weight` must name a column of the files, got {type(sample_weight).__name__}.")
    if settings.is_classifier and len(targets) > 1:
        raise ValueError(f"`y` must name one target for classes, got {len(targets)}.")
    table = Partitions(X) if isinstance(X, DaskFrame) else X if isinstance(X, Partitions) else as_parquet(X)
    if isinstance(table, Partitions) and (settings.scheme != "auto" or settings.name.startswith("Skeleton")):
        raise ValueError(
            "A Dask frame is fitted in closed form, and networks are trained on minibatches of rows in files: "
            "X.to_parquet(folder), then fit(folder, target)."
        )
    n_processes = cluster.place()[1]
    if settings.time_budget is not None and n_processes > 1:
        raise ValueError("`time_budget` is for one process: several would not end together.")
    asked = {name: value for name, value in vars(settings).items() if name not in ("verbose", "checkpoint")}
    about = {"settings": asked, "table": table.about(), "y": y, "w": sample_weight, "processes": n_processes}
    path = settings.checkpoint
    training = Training(
        table,
        targets,
        sample_weight,
        is_class=settings.is_classifier,
        feature_types=settings.feature_types,
        missing_values=settings.missing_values,
        weights=settings.weights,
        conformal=settings.conformal,
        seed=settings.seed,
        checkpoint=None if path is None else Checkpoint(cluster.own_path(path), about),
    )
    with settings.control() as control:
        training.report = control.report
        known = training.survey()
    return StreamedRows(training, known, known.schema(), lambda y: y), known


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

    @classmethod
    def of_classes(cls, read: Read) -> "Targets":
        """Codes, seen as standardised indicators: of the second of two classes, of every class of more."""
        rows, n_classes = read.rows, read.target.n_classes
        shown = np.arange(1 if n_classes == 2 else 0, n_classes)
        centre = rows.weight @ (rows.y == shown) / rows.weight.sum()
        spread = np.sqrt(np.maximum(centre * (1.0 - centre), 1e-12))
        return cls(rows.y, rows.weight, lambda codes: ((codes == shown) - centre) / spread)

    def direction(self, y: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " n"]:
        """One target, or the direction in which several vary most."""
        targets = self.seen(y)
        return targets[:, 0] if targets.shape[1] == 1 else (targets - self._centre) @ self._vector


class Encoded(NamedTuple):
    """The rows as a model reads them, by which encoding, and how many levels the categories left have."""

    encoding: Encoding
    x: Float[np.ndarray, "n p"]
    n_levels: list[int]

    def with_codes(self, n_levels: Sequence[int]) -> "Encoded":
        """Categories that were left as they are as codes 0, 1, …, missing after the last level, −1 for one never seen.

        `n_levels` are those of the columns before they were encoded.
        """
        tables, x = list(self.encoding.tables), self.x.copy()
        for i, (table, levels) in enumerate(zip(tables, n_levels, strict=True)):
            if levels and table is None:
                tables[i] = np.append(np.arange(levels + 1.0), -1.0)
                x[np.isnan(x[:, i]), i] = levels
        return self._replace(encoding=self.encoding._replace(tables=tuple(tables)), x=x)


def encoded(read: Read, targets: Targets, seed: int, *, most_levels: int, fill: bool) -> Encoded:
    """The rows with categories of more levels as numbers, and with `fill` gaps as well."""
    columns = read.schema.columns
    n_levels = read.n_categories
    is_ordered = [c.kind == "ordered" for c in columns]
    rows, stream = read.rows, read.stream
    if stream is None:
        rng = np.random.default_rng(seed)
        given = rows.matrix, targets.direction(targets.y), rows.weight, n_levels, is_ordered
        return Encoded(*encode(*given, most_levels=most_levels, fill=fill, rng=rng, groups=rows.group))
    fitted = stream.cross_fit(rows.matrix, targets.direction, n_levels, is_ordered, most_levels=most_levels, fill=fill)
    return Encoded(fitted.encoding, stream.sample(rows.matrix), levels_left(n_levels, most_levels))
