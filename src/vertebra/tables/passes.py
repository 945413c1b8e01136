"""Passes over files: one for what the columns hold (`survey`) and for a sample of rows, others for sums over all."""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.machine import claims, cluster
from vertebra.machine.checkpoint import Checkpoint, Entry
from vertebra.machine.threads import CHUNK, Sums, added, cores
from vertebra.tables.column import Column, Level, codes_of, levels_of, read
from vertebra.tables.encoding import N_FOLDS, CrossFitted, Tally, cross_fit, tally
from vertebra.tables.parquet import CALIBRATED, FOLDED, SAMPLED, Batch, Parquet, ahead, uniform
from vertebra.tables.schema import Schema, opened
from vertebra.tables.survey import Facts, begin, schema_of, with_rows
from vertebra.tables.weighting import Weighting, Weights, weighting

# The share of the memory for the functions of every input at the rows searched, about so many each; and how few and
# many rows these may be.
SHARE, N_FUNCTIONS, FEWEST, MOST_SEARCHED = 0.5, 56, 20_000, 100_000
# Chunks after which progress is told.
PROGRESS = 200
# Rows that conformal intervals are calibrated on.
CALIBRATION_ROWS = 20_000


class Known(NamedTuple):
    """What the first pass has found: what the columns hold, and some rows."""

    facts: list[Facts]
    targets: list[Facts]
    n_rows: int  # with a target and a weight above 0
    weight: float  # as numbers of rows
    weighting: Weighting
    sample: "Taken"
    held: "Taken"  # rows set aside for conformal intervals

    def schema(self) -> Schema:
        return schema_of(self.facts, self.sample.rows.select([each.source for each in self.facts]))


class Taken(NamedTuple):
    """Rows taken into memory, by their numbers."""

    numbers: Int[np.ndarray, " n"]
    rows: Any  # a pyarrow.Table of all columns in use

    def batch(self) -> Batch:
        return Batch(0, self.rows.combine_chunks().to_batches()[0])

    def joined(self, others: "Sequence[Taken]") -> "Taken":
        import pyarrow as pa

        tables = pa.concat_tables([self.rows, *(each.rows for each in others)])
        return Taken(np.concatenate([self.numbers, *(each.numbers for each in others)]), tables)

    def where(self, chosen: Bool[np.ndarray, " n"]) -> "Taken":
        import pyarrow as pa

        return Taken(self.numbers[chosen], self.rows.filter(pa.array(chosen)).combine_chunks())

    def in_order(self) -> "Taken":
        import pyarrow as pa

        order = np.argsort(self.numbers, kind="stable")
        return Taken(self.numbers[order], self.rows.take(pa.array(order)).combine_chunks())


class Training:
    """A table as a fit reads it: which columns are inputs, targets and weights, and what is kept for a restart.

    >>> training = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False)
    >>> training.inputs
    ['size', 'age']
    >>> (n,) = training.total(lambda batch, weight: [weight.sum()])  # over all rows
    >>> int(n)
    100
    """

    def __init__(
        self,
        table: Parquet,
        targets: Sequence[str],
        weight: str | None,
        *,
        is_class: bool,
        feature_types: Any = None,
        weights: str = "auto",
        conformal: bool = False,
        seed: int = 0,
        checkpoint: Checkpoint | None = None,
    ):
        self.table, self.targets, self.weight = table, list(targets), weight
        self.is_class, self.seed, self.conformal, self.checkpoint = is_class, seed, conformal, checkpoint
        for name, what in [*((t, "the target") for t in targets), *([(weight, "the weights")] if weight else [])]:
            if name not in table.columns:
                shown = ", ".join(table.columns[:20])
                raise ValueError(f"The table has no column {name!r} for {what}: its columns are {shown}.")
        self.inputs = [name for name in table.columns if name not in {*targets, weight}]
        if not self.inputs:
            raise ValueError("The table must have a column beside the target.")
        if (count := cluster.place()[1]) > len(table.pieces):
            raise ValueError(
                f"The table must have a row group for every process, {count}, got {len(table.pieces)}: write it in "
                "smaller row groups."
            )
        self.feature_types, self.meant = feature_types, weights
        self.scale = 1.0  # of the weights, once they have all been seen
        self.report: Callable[[str], None] = lambda words: None
        self._classes: Column | None = None
        self._n_passes = 0

    @property
    def used(self) -> list[str]:
        return [*self.inputs, *self.targets, *([self.weight] if self.weight else [])]

    def survey(self) -> Known:
        """The first pass."""
        if (known := self._surveyed()) is not None:
            return known
        kinds = dict.fromkeys(self.targets, "category" if self.is_class else "number")
        facts, targets = begin(self.inputs, self.feature_types), begin(self.targets, kinds)
        sample, held = _Collected(self, SAMPLED, self._n_sampled()), _Collected(self, CALIBRATED, self.table.n_rows)
        tallied, n_told = Weights(), 0
        for batch in ahead(self.table.batches(self.used)):
            if batch.first // (PROGRESS * CHUNK) > n_told:
                n_told = batch.first // (PROGRESS * CHUNK)
                self.report(f"pass 1: {batch.first:,} of {self.table.n_rows:,} rows")
            own = self.fitted_weights(batch)
            facts = with_rows(facts, batch.frame(self.inputs), own, batch.numbers)
            targets = with_rows(targets, batch.frame(self.targets), own, batch.numbers)
            tallied = tallied.merged(Weights.of(own))
            sample.add(batch, own > 0)
            if self.conformal:
                held.add(batch, (self.weights(batch) > 0) & (own == 0))
        found = cluster.gathered_json([[each.to_json() for each in part] for part in (facts, targets)])
        facts, targets = ([_merged(each) for each in zip(*parts, strict=True)] for parts in zip(*found, strict=True))
        tallied = functools.reduce(Weights.merged, (Weights(*each) for each in cluster.gathered_json(list(tallied))))
        if tallied.n < 2:
            raise ValueError(
                f"The table must have at least 2 rows with a target and a weight above 0, got {tallied.n}."
            )
        return self._weighed(facts, targets, tallied, sample.everywhere(), held.everywhere())

    def _weighed(self, facts: list[Facts], targets: list[Facts], tallied: Weights, sample: "Taken", held: "Taken"):
        """What was found, kept for a restart; from here on weights count rows."""
        meant = weighting(tallied, self.meant, self.weight or "sample_weight")
        known = Known(facts, targets, tallied.n, meant.total, meant, sample, held)
        self._keep(known, tallied)
        self.scale = meant.scale
        return known

    def _n_sampled(self) -> int:
        functions = 8.0 * N_FUNCTIONS * len(self.inputs)
        return int(np.clip(SHARE * self.table.memory * 2**30 / functions, FEWEST, MOST_SEARCHED))

    def fitted_weights(self, batch: Batch) -> Float[np.ndarray, " n"]:
        """The weight of each row; 0 for those that are set aside for conformal intervals."""
        weight = self.weights(batch)
        if not self.conformal:
            return weight
        share = min(CALIBRATION_ROWS / self.table.n_rows, 0.2)
        return np.where(uniform(batch.numbers, CALIBRATED, self.seed) < share, 0.0, weight)

    def begin(self, basis: str) -> None:
        """Forgets sums that a run before this one took for another basis, as where a search was cut short."""
        digest = hashlib.sha256(basis.encode()).hexdigest()
        cluster.agree(digest, "the terms")
        if self.checkpoint is None:
            return
        before = self.checkpoint.get("basis")
        if before is not None and before.facts.get("digest") != digest:
            for k in itertools.count(self._n_passes):
                if self.checkpoint.get(f"pass {k}") is None:
                    break
                self.checkpoint.drop(f"pass {k}")
        self.checkpoint.put("basis", {"digest": digest}, {}, now=False)

    def _surveyed(self) -> "Known | None":
        """What a run before this one had found."""
        entry = None if self.checkpoint is None else self.checkpoint.get("survey")
        # a process that died before it kept them needs the others to find them again
        if not all(cluster.gathered_json(entry is not None)) or entry is None:
            return None
        try:
            return self._known(entry)
        except (ValueError, OSError, MemoryError) as error:  # pyarrow's own are of these
            raise self.checkpoint.bad(f"its survey is not one of these files ({error})") from error

    def _known(self, entry: Entry) -> "Known":
        """A survey from a checkpoint, if one of these files could have found it."""
        kept = claims.record(entry.facts, "the survey", ("facts", "targets", "weights"))
        asked = dict.fromkeys(self.targets, "category" if self.is_class else "number")
        found = []
        for name, blank in ("facts", begin(self.inputs, self.feature_types)), ("targets", begin(self.targets, asked)):
            own = [Facts.from_json(each) for each in claims.listed(kept[name], name, len(blank))]
            is_same = [(a.source, a.wanted) for a in own] == [(b.source, b.wanted) for b in blank]
            claims.demand(is_same, name, "of the table's columns", [each.source for each in own])
            found.append(own)
        arrays, taken = claims.Arrays(entry.arrays), []
        for name in ("sample", "held"):
            numbers = arrays.take(f"{name} numbers", None, kind="i8", low=0, high=self.table.n_rows - 1)
            content = arrays.take(f"{name} rows", None, kind="u1", low=0, high=255)
            rows = _from_bytes(content.tobytes())
            rows.validate(full=True)
            schema = self._schema()
            claims.demand(rows.schema.equals(schema), f"{name} rows", "of the table's columns", rows.schema.names)
            claims.demand(rows.num_rows == len(numbers), f"{name} rows", f"{len(numbers)} rows", rows.num_rows)
            taken.append(Taken(claims.rising(numbers, f"{name} numbers", strictly=True), rows))
        arrays.check_all_taken()
        claims.demand(len(taken[0].numbers) > 0, "the sample", "of some rows", 0)
        return self._weighed(found[0], found[1], self._weights(kept["weights"]), taken[0], taken[1])

    def _weights(self, kept: Any) -> Weights:
        """What is known of the weights, from a checkpoint."""
        n, *numbers, are_whole = claims.listed(kept, "the weights", len(Weights._fields))
        n = claims.whole(n, "the number of rows", 2, self.table.n_rows)
        largest, smallest, total, square = (claims.number(each, "a sum of weights", 0) for each in numbers)
        # Σ w² ≤ Σ w ≤ n of weights over the largest, and (Σ w)² ≤ n Σ w²
        fits = 0 < smallest <= largest and 1 <= total <= n * (1 + 1e-9) and total**2 <= n * square * (1 + 1e-9)
        claims.demand(fits and square <= total * (1 + 1e-9), "the weights", "those of rows", kept)
        return Weights(n, largest, smallest, total, square, claims.flag(are_whole, "whether weights are whole"))

    def _schema(self) -> Any:
        """Of the columns in use, as pyarrow has them."""
        schema = self.table.dataset.schema
        return type(schema).empty_table(schema).select(self.used).schema

    def _keep(self, known: "Known", tallied: Weights) -> None:
        if self.checkpoint is None:
            return
        facts = {name: [each.to_json() for each in getattr(known, name)] for name in ("facts", "targets")}
        arrays = {}
        for name in ("sample", "held"):
            taken: Taken = getattr(known, name)
            arrays[f"{name} numbers"] = taken.numbers
            arrays[f"{name} rows"] = np.frombuffer(_to_bytes(taken.rows), dtype=np.uint8)
        self.checkpoint.put("survey", facts | {"weights": list(tallied)}, arrays)

    def weights(self, batch: Batch) -> Float[np.ndarray, " n"]:
        """The weight of each row; 0 where it has no target."""
        weight = np.ones(len(batch.rows))
        if self.weight:
            column = Column(self.weight, self.weight, "number")
            weight = read(opened(batch.frame([self.weight])).columns[0], [column])[0]
            if np.isnan(weight).any() or (weight < 0).any():
                raise ValueError(f"The weights in {self.weight!r} must be finite and not negative.")
        return np.where(np.isnan(self.y(batch)).any(axis=1), 0.0, self.scale * weight)

    def y(self, batch: Batch) -> Float[np.ndarray, "n k"]:
        """The targets as numbers, or the codes of classes; NaN where there is none."""
        series = opened(batch.frame(self.targets)).columns
        columns = []
        for name, own in zip(self.targets, series, strict=True):
            if not self.is_class:
                columns.append(read(own, [Column(name, name, "number")])[0])
                continue
            levels = levels_of(own, name, "category") if self._classes is None else self._classes.levels
            columns.append(codes_of(own, Column(name, name, "category", levels=levels)))
        return np.stack(columns, axis=1)

    def classes(self, levels: Sequence[Level]) -> None:
        """Fixes the classes, once they are known."""
        self._classes = Column(self.targets[0], self.targets[0], "category", levels=tuple(levels))

    def folds(self, numbers: Int[np.ndarray, " n"], n_folds: int) -> Int[np.ndarray, " n"]:
        """Of rows, by their numbers."""
        return (uniform(numbers, FOLDED, self.seed) * n_folds).astype(int)

    def total(self, work: Callable[[Batch, Float[np.ndarray, " n"]], Sums]) -> Sums:
        """Sums over all rows but those set aside, of all processes; `work` has some rows and their weights."""
        name, self._n_passes = f"pass {self._n_passes}", self._n_passes + 1
        entry = None if self.checkpoint is None else self.checkpoint.get(name)
        sums = lambda batch: work(batch, self.fitted_weights(batch))  # noqa: E731
        before, skipped = [], 0
        if self.checkpoint is not None and entry is not None:
            # what some rows give tells the shapes
            first = next(_small(self.table.batches(self.used)))
            try:
                before, skipped, is_done = _kept_sums(entry, [np.shape(each) for each in sums(first)])
            except ValueError as error:
                raise self.checkpoint.bad(f"the sums of {name} are not those of this fit ({error})") from error
            if is_done:
                return cluster.summed(before)

        def keep(total: Sums, n_done: int, *, is_done: bool = False) -> None:
            if not is_done and n_done % PROGRESS == 0:
                self.report(f"pass {self._n_passes + 1}: {(skipped + n_done) * CHUNK:,} rows read")
            if self.checkpoint is not None and (is_done or self.checkpoint.is_due):
                facts = {"position": skipped + n_done, "is_done": is_done}
                self.checkpoint.put(name, facts, {str(k): each for k, each in enumerate(total)})

        parts = itertools.islice(_small(ahead(self.table.batches(self.used))), skipped, None)
        total = added(sums, parts, cores(), before=before, after=keep)
        keep(total, 0, is_done=True)
        return cluster.summed(total)


class _Collected:
    """The rows of smallest hash, so many of those that may be chosen: a uniform sample, whoever reads which."""

    def __init__(self, training: Training, purpose: int, n_most: int):
        self.schema = training._schema()
        self.purpose, self.seed, self.n_most = purpose, training.seed, n_most
        self.limit = 1.0
        self.rows: Any = None

    def add(self, batch: Batch, may: Bool[np.ndarray, " n"]) -> None:
        import pyarrow as pa

        chosen = may & (uniform(batch.numbers, self.purpose, self.seed) < self.limit)
        table = pa.Table.from_batches([batch.rows.filter(pa.array(chosen))], schema=self.schema)
        new = Taken(batch.numbers[chosen], table)
        self.rows = new if self.rows is None else self.rows.joined([new])
        if len(self.rows.numbers) > 2 * self.n_most:
            self.rows, self.limit = self._smallest(self.rows)

    def _smallest(self, taken: "Taken") -> tuple["Taken", float]:
        u = uniform(taken.numbers, self.purpose, self.seed)
        if len(u) <= self.n_most:
            return taken, 1.0
        limit = float(np.partition(u, self.n_most)[self.n_most])
        return taken.where(u < limit), limit

    def everywhere(self) -> "Taken":
        """Those of all processes, in the order of their numbers."""
        own = Taken(np.zeros(0, dtype=np.int64), self.schema.empty_table()) if self.rows is None else self.rows
        tables = [_from_bytes(each) for each in cluster.gathered(_to_bytes(own.rows))]
        numbers = [np.frombuffer(each, dtype=np.int64) for each in cluster.gathered(own.numbers.tobytes())]
        first, *others = [Taken(*each) for each in zip(numbers, tables, strict=True)]
        return self._smallest(first.joined(others))[0].in_order()


def _kept_sums(entry: Entry, shapes: Sequence[tuple[int, ...]]) -> tuple[Sums, int, bool]:
    """The sums of a pass from a checkpoint, of how many chunks they are, and whether of all."""
    facts, arrays = claims.record(entry.facts, "the pass", ("position", "is_done")), claims.Arrays(entry.arrays)
    position, is_done = claims.whole(facts["position"], "its position"), claims.flag(facts["is_done"], "is_done")
    limits: Any = dict(low=-claims.FINITE, high=claims.FINITE)
    sums = [arrays.take(str(k), *shape, **limits) for k, shape in enumerate(shapes)]
    arrays.check_all_taken()
    return sums, position, is_done


def _to_bytes(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _from_bytes(data: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


def _merged(parts: Sequence[Any]) -> Facts:
    first, *others = [Facts.from_json(each) for each in parts]
    for each in others:
        first = first.merged(each)
    return first


def _small(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Batches of the size that is worked on at once."""
    for batch in batches:
        for start in range(0, len(batch.rows), CHUNK):
            yield batch.part(start, min(start + CHUNK, len(batch.rows)))


class StreamedRows:
    """All rows of a fit, of which a sample is in memory: read as the model reads them, on the scale it works on.

    >>> training = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False)
    >>> known = training.survey()
    >>> rows = vb.stream.StreamedRows(training, known, known.schema(), standard=lambda y: y)
    >>> matrix, y, weight = rows.taken(known.sample)
    >>> matrix.shape, y.shape
    ((100, 2), (100, 1))
    """

    def __init__(self, training: Training, known: Known, schema: Schema, standard: Callable[[Any], Any]):
        self.training, self.schema, self.standard = training, schema, standard
        self.n_rows, self.weight, self.numbers = known.n_rows, known.weight, known.sample.numbers
        self._encode: Any = None  # a CrossFitted, once there is one

    def taken(self, rows: Taken) -> tuple[Any, Any, Any]:
        """Rows in memory: the coded matrix, the targets as they are, and the weights."""
        batch = rows.batch()
        matrix = self.schema.matrix(batch.frame(self.training.inputs))
        return matrix, self.training.y(batch), self.training.weights(batch)

    def cross_fit(
        self,
        matrix: Float[np.ndarray, "n p"],
        direction: Callable[[Float[np.ndarray, "n k"]], Float[np.ndarray, " n"]],
        n_levels: Sequence[int],
        is_ordered: Sequence[bool],
        *,
        most_levels: int,
        fill: bool,
    ) -> CrossFitted:
        """An encoding whose means of levels are over all rows; `matrix` is the sample's.

        `direction` is what stands for the target, from y on the model's scale.
        """
        encoded = [i for i, levels in enumerate(n_levels) if levels > most_levels]

        def work(batch: Batch, weight) -> Sums:
            x = self.schema.matrix(batch.frame(self.training.inputs))
            target = direction(self.standard(np.nan_to_num(self.training.y(batch))))
            folds = self.training.folds(batch.numbers, N_FOLDS)
            return [each for i in encoded for each in tally(x[:, i], target, weight, folds, n_levels[i])]

        sums = self.training.total(work) if encoded else []
        tallies = {i: Tally(*sums[3 * k : 3 * k + 3]) for k, i in enumerate(encoded)}
        seen = [column[~np.isnan(column)] for column in matrix.T]
        lows = np.array([np.nan if not fill else own.min() if len(own) else 1.0 for own in seen])
        self._encode = cross_fit(tallies, lows, n_levels, is_ordered)
        return self._encode

    def sample(self, matrix: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """The sample as the model reads it."""
        return self._encode(matrix, self.training.folds(self.numbers, N_FOLDS))

    def read(self, batch: Batch) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n k"]]:
        """Rows as the model reads them, and targets on its scale; where there is none, a number that does not count."""
        matrix = self.schema.matrix(batch.frame(self.training.inputs))
        x = self._encode(matrix, self.training.folds(batch.numbers, N_FOLDS))
        return x, self.standard(np.nan_to_num(self.training.y(batch)))

    def begin(self, basis: str) -> None:
        self.training.begin(basis)

    def total(self, work: Callable[[Any, Any, Any], Sums]) -> Sums:
        return self.training.total(lambda batch, weight: work(*self.read(batch), weight))
