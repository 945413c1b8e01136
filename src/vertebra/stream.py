"""Rows that do not fit in memory: Parquet files, read some rows at a time by a thread of their own.

A fit makes one pass for what the columns hold (`survey`) and for a sample of rows, finds the terms in the sample, and
takes the sums that the closed form needs over all rows; networks are trained on shuffled minibatches (`windows`). Which
rows are in the sample, in a fold or in a shard goes by their numbers in the files, and so depends neither on how many
processes read them nor on which of them does.

>>> rows = pd.DataFrame(np.random.default_rng(0).random((100, 2)), columns=["size", "age"])
>>> rows.assign(rent=3 * rows["size"] + np.sin(6 * rows["age"])).to_parquet("flats.parquet")
>>> model = vb.AdditiveRegressor().fit("flats.parquet", "rent")
>>> model.clusters_
[('size',), ('age',)]
"""

import hashlib
import itertools
import os
import pathlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from vertebra import cluster
from vertebra.checkpoint import Checkpoint
from vertebra.column import Column, Level, codes_of, levels_of, read
from vertebra.devices import from_parts
from vertebra.encoding import N_FOLDS, CrossFitted, Tally, cross_fit, tally
from vertebra.outputs import predictions, term_columns
from vertebra.sums import CHUNK, Sums, added
from vertebra.survey import Facts, begin, schema_of, with_rows
from vertebra.table import Schema, opened
from vertebra.threads import cores

# Rows of a batch as they are read, and batches read ahead of the work.
BATCH_ROWS, AHEAD = 65_536, 2
# GiB that a fit may take beside the libraries; the share of them for the functions of every input at the rows searched,
# about so many each; and how few and many rows these may be.
MEMORY, SHARE, N_FUNCTIONS, FEWEST, MOST_SEARCHED = 1.5, 0.5, 56, 20_000, 100_000
# Chunks after which progress is told.
PROGRESS = 200
# Rows that conformal intervals are calibrated on.
CALIBRATION_ROWS = 20_000
# Shards of minibatches, and bytes of a window of them.
N_SHARDS, WINDOW_BYTES = 8, 2.0**26
# What the numbers of rows are hashed with, for choices that must not go together.
SAMPLED, FOLDED, CALIBRATED, ORDERED = range(4)


class Parquet:
    """A table in Parquet files: a file, a folder of them, or a `pyarrow.dataset.Dataset`.

    `columns` are those to read, all unless given; `memory` is what a fit of it may take, in GiB, beside the libraries.
    With several processes (`cluster.connect`) each reads its own row groups.

    >>> table = vb.stream.Parquet("flats.parquet", columns=["size", "rent"])
    >>> table.n_rows, len(table.pieces)
    (100, 1)
    """

    def __init__(self, source: Any, *, columns: Sequence[str] | None = None, memory: float = MEMORY):
        if not memory > 0.0:
            raise ValueError(f"`memory` must be a number of GiB above 0, got {memory!r}.")
        self.dataset, self.memory = _dataset(source), memory
        names = list(self.dataset.schema.names)
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"`source` must have distinct column names, got more than one of: {', '.join(repeated)}.")
        self.columns = names if columns is None else list(columns)
        if unknown := [name for name in self.columns if name not in names]:
            raise ValueError(f"`columns` must be of the table, {', '.join(names)}, got {unknown[0]!r}.")
        files = list(self.dataset.get_fragments())
        if any(not hasattr(file, "split_by_row_group") for file in files):
            raise ValueError("`source` must be a dataset of Parquet files, got one of another format.")
        pieces = [(piece, sum(g.num_rows for g in piece.row_groups)) for f in files for piece in f.split_by_row_group()]
        self.pieces, counts = [piece for piece, n in pieces if n], [n for _, n in pieces if n]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if not self.n_rows:
            raise ValueError("`source` has no rows.")

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    def batches(self, columns: Sequence[str], pieces: Iterable[int] | None = None) -> Iterator["Batch"]:
        """Some rows at a time, with the number of the first; of some row groups, or of those of this process."""
        index, count = cluster.place()
        for k in range(index, len(self.pieces), count) if pieces is None else pieces:
            first = int(self.starts[k])
            read = self.pieces[k].to_batches(
                schema=self.dataset.schema,
                columns=list(columns),
                batch_size=BATCH_ROWS,
                batch_readahead=1,
                fragment_readahead=1,
            )
            for rows in read:
                yield Batch(first, rows)
                first += len(rows)

    def about(self) -> dict[str, Any]:
        """What tells this table from another one."""
        files = getattr(self.dataset, "files", [])
        sizes = {os.path.basename(name): os.path.getsize(name) for name in files if os.path.isfile(name)}
        return {"rows": self.n_rows, "columns": self.columns, "files": sizes}


class Batch(NamedTuple):
    """Rows as they were read, and the number of the first among all.

    >>> (batch,) = vb.stream.Parquet("flats.parquet").batches(["size"])
    >>> batch.part(10, 30).numbers[:3]
    array([10, 11, 12])
    """

    first: int
    rows: Any  # a pyarrow.RecordBatch

    @property
    def numbers(self) -> Int[np.ndarray, " n"]:
        return np.arange(self.first, self.first + len(self.rows))

    def part(self, start: int, stop: int) -> "Batch":
        return Batch(self.first + start, self.rows.slice(start, stop - start))

    def frame(self, columns: Sequence[str]) -> Any:
        """Some columns, as a table."""
        import pyarrow as pa

        return pa.Table.from_batches([self.rows.select(list(columns))])


def is_stream(X: Any) -> bool:
    """Whether a table is to be read from files: a `Parquet`, a path, or a pyarrow dataset.

    >>> vb.stream.is_stream("flats.parquet"), vb.stream.is_stream(rows)
    (True, False)
    """
    return isinstance(X, Parquet | str | os.PathLike) or type(X).__module__.startswith("pyarrow._dataset")


def as_parquet(X: Any) -> Parquet:
    """A table in files as a `Parquet`; one that is such already is handed through.

    >>> vb.stream.as_parquet("flats.parquet").columns
    ['size', 'age', 'rent']
    """
    return X if isinstance(X, Parquet) else Parquet(X)


def _dataset(source: Any) -> Any:
    try:
        import pyarrow.dataset as ds
    except ImportError:
        raise ImportError("Reading Parquet needs pyarrow. Install it: pip install pyarrow.") from None

    if isinstance(source, ds.Dataset):
        return source
    path = pathlib.Path(source)
    if not path.exists():
        raise FileNotFoundError(f"`source` must be a Parquet file or a folder of them, and {str(path)!r} is not there.")
    try:
        found = ds.dataset(path, format="parquet", partitioning="hive")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: this cannot be read as Parquet: {error}") from None
    if not list(found.get_fragments()):
        raise ValueError(f"{path}: there are no Parquet files in this folder.")
    return found


def ahead(items: Iterable[Any], n: int = AHEAD) -> Generator[Any, None, None]:
    """The same items, made by a thread of their own, up to n before they are asked for.

    >>> sum(vb.stream.ahead(range(10)))
    45
    """
    made: queue.Queue = queue.Queue(n)
    stopped = threading.Event()

    def put(entry) -> bool:
        while not stopped.is_set():
            try:
                made.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:  # handed over to where the items are used
            put((None, error))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        stopped.set()
        thread.join()


def uniform(numbers: Int[np.ndarray, " n"], purpose: int, seed: int) -> Float[np.ndarray, " n"]:
    """A number in [0, 1) for each row, by its number alone (SplitMix64's finaliser).

    >>> u = vb.stream.uniform(np.arange(1000), purpose=0, seed=0)
    >>> float(u[7]) == float(vb.stream.uniform(np.array([7]), purpose=0, seed=0)[0]), round(float(u.mean()), 1)
    (True, 0.5)
    """
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64(1 + purpose + 16 * (seed % 2**32)) * np.uint64(0x9E3779B97F4A7C15)
        for _ in range(2):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Known(NamedTuple):
    """What the first pass has found: what the columns hold, and some rows.

    >>> known = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False).survey()
    >>> known.n_rows, [column.name for column in known.schema().columns]
    (100, ['size', 'age'])
    """

    facts: list[Facts]
    targets: list[Facts]
    n_rows: int  # with a target and a weight above 0
    weight: float
    sample: "Taken"
    held: "Taken"  # rows set aside for conformal intervals

    def schema(self) -> Schema:
        return schema_of(self.facts, self.sample.rows.select([each.source for each in self.facts]))


class Taken(NamedTuple):
    """Rows taken into memory, by their numbers.

    >>> known = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False).survey()
    >>> len(known.sample.where(known.sample.numbers < 30).rows)
    30
    """

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
        self.feature_types = feature_types
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
        n_rows, weight, n_told = 0, 0.0, 0
        for batch in ahead(self.table.batches(self.used)):
            if batch.first // (PROGRESS * CHUNK) > n_told:
                n_told = batch.first // (PROGRESS * CHUNK)
                self.report(f"pass 1: {batch.first:,} of {self.table.n_rows:,} rows")
            own = self.fitted_weights(batch)
            facts = with_rows(facts, batch.frame(self.inputs), own)
            targets = with_rows(targets, batch.frame(self.targets), own)
            n_rows, weight = n_rows + int(np.count_nonzero(own)), weight + float(own.sum())
            sample.add(batch, own > 0)
            if self.conformal:
                held.add(batch, (self.weights(batch) > 0) & (own == 0))
        found = cluster.gathered_json([[each.to_json() for each in part] for part in (facts, targets)])
        facts, targets = ([_merged(each) for each in zip(*parts, strict=True)] for parts in zip(*found, strict=True))
        counts = cluster.summed([np.array([n_rows, weight], dtype=np.float64)])[0]
        if counts[0] < 2:
            raise ValueError(f"The table must have at least 2 rows with a target and a weight above 0, got {n_rows}.")
        known = Known(facts, targets, int(counts[0]), float(counts[1]), sample.everywhere(), held.everywhere())
        self._keep(known)
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
        if before is not None and before.facts["digest"] != digest:
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
        facts, targets = ([Facts.from_json(each) for each in entry.facts[name]] for name in ("facts", "targets"))
        sample, held = (
            Taken(entry.arrays[f"{name} numbers"], _from_bytes(entry.arrays[f"{name} rows"].tobytes()))
            for name in ("sample", "held")
        )
        return Known(facts, targets, entry.facts["n_rows"], entry.facts["weight"], sample, held)

    def _keep(self, known: "Known") -> None:
        if self.checkpoint is None:
            return
        facts = {name: [each.to_json() for each in getattr(known, name)] for name in ("facts", "targets")}
        arrays = {}
        for name in ("sample", "held"):
            taken: Taken = getattr(known, name)
            arrays[f"{name} numbers"] = taken.numbers
            arrays[f"{name} rows"] = np.frombuffer(_to_bytes(taken.rows), dtype=np.uint8)
        self.checkpoint.put("survey", facts | {"n_rows": known.n_rows, "weight": known.weight}, arrays)

    def weights(self, batch: Batch) -> Float[np.ndarray, " n"]:
        """The weight of each row; 0 where it has no target."""
        weight = np.ones(len(batch.rows))
        if self.weight:
            column = Column(self.weight, self.weight, "number")
            weight = read(opened(batch.frame([self.weight])).columns[0], [column])[0]
            if np.isnan(weight).any() or (weight < 0).any():
                raise ValueError(f"The weights in {self.weight!r} must be finite and not negative.")
        return np.where(np.isnan(self.y(batch)).any(axis=1), 0.0, weight)

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
        before = [] if entry is None else [entry.arrays[str(k)] for k in range(len(entry.arrays))]
        if entry is not None and entry.facts["is_done"]:
            return cluster.summed(before)
        skipped = 0 if entry is None else entry.facts["position"]

        def keep(total: Sums, n_done: int, *, is_done: bool = False) -> None:
            if not is_done and n_done % PROGRESS == 0:
                self.report(f"pass {self._n_passes + 1}: {(skipped + n_done) * CHUNK:,} rows read")
            if self.checkpoint is not None and (is_done or self.checkpoint.is_due):
                facts = {"position": skipped + n_done, "is_done": is_done}
                self.checkpoint.put(name, facts, {str(k): each for k, each in enumerate(total)})

        parts = itertools.islice(_small(ahead(self.table.batches(self.used))), skipped, None)
        sums = lambda batch: work(batch, self.fitted_weights(batch))  # noqa: E731
        total = added(sums, parts, cores(), before=before, after=keep)
        keep(total, 0, is_done=True)
        return cluster.summed(total)


class _Collected:
    """The rows of smallest hash, so many of those that may be chosen: a uniform sample, whoever reads which."""

    def __init__(self, training: Training, purpose: int, n_most: int):
        schema = training.table.dataset.schema
        self.schema = type(schema).empty_table(schema).select(training.used).schema
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


def predict(
    model: Any, source: Any, out: str | os.PathLike[str], *, level: float = 0.95, quantiles: Sequence[float] = ()
) -> int:
    """Writes what a model says of the rows of Parquet files to a Parquet file, row by row; returns how many.

    Of numbers prediction, sd, lower and upper, and quantiles that are asked for; of classes prediction and
    probability_CLASS.

    >>> vb.stream.predict(model, "flats.parquet", "predictions.parquet")
    100
    >>> list(pd.read_parquet("predictions.parquet"))
    ['prediction', 'sd', 'lower', 'upper']
    """
    return write(source, out, model.schema_.sources, lambda x: predictions(model, x, level, quantiles))


def eval_terms(model: Any, source: Any, out: str | os.PathLike[str], *, output: int = 0) -> int:
    """Writes what every term adds at the rows of Parquet files, and `intercept`, to a Parquet file.

    >>> vb.stream.eval_terms(model, "flats.parquet", "terms.parquet")
    100
    >>> list(pd.read_parquet("terms.parquet"))
    ['intercept', 'term:size', 'term:age']
    """
    return write(source, out, model.schema_.sources, lambda x: term_columns(model, x, output))


def write(
    source: Any,
    out: str | os.PathLike[str],
    columns: Sequence[str],
    answer: Callable[[pd.DataFrame], pd.DataFrame],
) -> int:
    """A Parquet file with a row for each of the source's, some at a time; whole or not at all.

    >>> vb.stream.write("flats.parquet", "double.parquet", ["size"], lambda flats: 2 * flats)
    100
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, target = as_parquet(source), pathlib.Path(out)
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(f"The table has no column {missing[0]!r}, which the model reads.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`out` must lie in a folder that exists, got {str(out)!r}.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    n, writer = 0, None
    try:
        for batch in ahead(table.batches(columns, range(len(table.pieces)))):
            if not len(batch.rows):
                continue
            found = pa.Table.from_pandas(answer(batch.frame(columns).to_pandas()), preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(part, found.schema)
            writer.write_table(found)
            n += len(found)
        if writer is not None:
            writer.close()
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return n


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


class Windows:
    """Shuffled minibatches of all rows, for `inference.fit_stream`; and some rows in memory, `x`, `y`, `weight`.

    The row groups are dealt out to shards, whatever the number of processes; every minibatch has as many rows of each,
    and a process reads its own shards. Row groups come in a random order, two at a time, and the rows of a window are
    shuffled.

    >>> training = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False)
    >>> known = training.survey()
    >>> rows = vb.stream.StreamedRows(training, known, known.schema(), standard=lambda y: y)
    >>> matrix, y, weight = rows.taken(known.sample)
    >>> encoding = rows.cross_fit(matrix, lambda y: y[:, 0], [0, 0], [False, False], most_levels=0, fill=True)
    >>> windows = vb.stream.Windows(rows, rows.sample(matrix), y, weight)
    >>> x, y, weight, fold = next(windows.rounds(n_steps=5, batch_size=16, folds=0, first=0, mesh=None))
    >>> x.shape  # steps, batch, inputs
    (5, 16, 2)
    """

    def __init__(
        self,
        stream: StreamedRows,
        x: Float[np.ndarray, "n p"],
        y: Float[np.ndarray, "n k"],
        weight: Float[np.ndarray, " n"],
    ):
        self.stream, self.x, self.y, self.weight = stream, x, y, weight
        self.table = stream.training.table
        self.n_rows, self.total = self.table.n_rows, stream.weight
        self.n_shards = min(N_SHARDS, 1 << (len(self.table.pieces).bit_length() - 1))
        if self.n_shards % (count := cluster.place()[1]):
            raise ValueError(
                f"The {len(self.table.pieces)} row groups make {self.n_shards} shards, which {count} processes cannot "
                "share evenly: use a power of two of processes, or smaller row groups."
            )
        self.shards = self._dealt()

    def _dealt(self) -> list[list[int]]:
        """Row groups, the largest first, each to the shard that has the fewest rows so far."""
        counts = np.diff(self.table.starts)
        shards, rows = [[] for _ in range(self.n_shards)], [0] * self.n_shards
        for k in sorted(range(len(counts)), key=lambda k: (-counts[k], k)):
            least = rows.index(min(rows))
            shards[least].append(k)
            rows[least] += int(counts[k])
        return shards

    def folds(self, n_folds: int) -> Int[np.ndarray, " n"]:
        """Of the rows in memory."""
        return self.stream.training.folds(self.stream.numbers, n_folds)

    def fewest_rounds(self, n_steps: int, batch_size: int) -> int:
        """As many as keep a window small."""
        row = 4.0 * (self.x.shape[1] + self.y.shape[1] + 2)
        return -(-n_steps // max(int(WINDOW_BYTES / (row * batch_size)), 1))

    def sums(self, work: Callable[[Any, Any, Any], Sums], folds: int, held: int) -> Sums:
        """Over all rows but those of a fold."""
        training = self.stream.training

        def on(batch: Batch, weight) -> Sums:
            if folds:
                weight = np.where(training.folds(batch.numbers, folds) == held, 0.0, weight)
            return work(*self.stream.read(batch), weight)

        return training.total(on)

    def rounds(self, n_steps: int, batch_size: int, folds: int, first: int, mesh: Any) -> Iterator[tuple[Any, ...]]:
        """x, y, weights and folds of one round after the other, (steps, batch, …), from round `first` on."""
        index, count = cluster.place()
        if batch_size % self.n_shards:
            raise ValueError(f"`batch_size` must be a multiple of the {self.n_shards} shards, got {batch_size}.")
        own = range(index * self.n_shards // count, (index + 1) * self.n_shards // count)
        each = n_steps * (batch_size // self.n_shards)
        streams = [self._shard(shard, each, folds, first) for shard in own]
        while True:
            parts = [next(shard) for shard in streams]
            window = []
            for arrays in zip(*parts, strict=True):
                cut = [array.reshape(n_steps, -1, *array.shape[1:]) for array in arrays]
                window.append(from_parts(np.concatenate(cut, axis=1), mesh, axis=1))
            yield tuple(window)

    def _shard(self, shard: int, n: int, folds: int, first: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Windows of n rows of one shard, from window `first` on: rows that come before are passed over as read."""
        training, counts = self.stream.training, np.diff(self.table.starts)
        # a minibatch has as many rows of a small shard as of a large one
        share = float(counts[self.shards[shard]].sum()) * self.n_shards / self.n_rows
        waiting: deque[Batch] = deque()
        there, k = 0, 0
        batches = self._batches(shard)
        while True:
            while there < n:
                waiting.append(next(batches))
                there += len(waiting[-1].rows)
            taken, missing = [], n
            while missing:
                batch = waiting.popleft()
                size = min(missing, len(batch.rows))
                taken.append(batch.part(0, size))
                if size < len(batch.rows):
                    waiting.appendleft(batch.part(size, len(batch.rows)))
                missing -= size
            there -= n
            if k >= first:
                yield self._shuffled(taken, folds, share, np.random.default_rng([training.seed, shard, k]))
            k += 1

    def _shuffled(
        self, batches: Sequence[Batch], folds: int, share: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, ...]:
        training, parts = self.stream.training, []
        for batch in batches:
            x, y = self.stream.read(batch)
            fold = training.folds(batch.numbers, folds) if folds else np.full(len(x), -1)
            parts.append((x, y, share * training.fitted_weights(batch)[:, None], fold))
        order = rng.permutation(sum(len(x) for x, *_ in parts))
        kinds = np.float32, np.float32, np.float32, np.int32
        return tuple(
            np.concatenate(arrays)[order].astype(kind)
            for arrays, kind in zip(zip(*parts, strict=True), kinds, strict=True)
        )

    def _batches(self, shard: int) -> Iterator[Batch]:
        """Rows of the shard's row groups, for ever, two of them at a time, each time round in another order."""
        pieces = np.array(self.shards[shard])
        for epoch in itertools.count():
            order = np.random.default_rng([self.stream.training.seed, shard, epoch, ORDERED]).permutation(pieces)
            for pair in range(0, len(order), 2):
                read = [self.table.batches(self.stream.training.used, [int(k)]) for k in order[pair : pair + 2]]
                for batches in itertools.zip_longest(*read):
                    yield from (batch for batch in batches if batch is not None)
