"""Tables in Parquet files, read some rows at a time by a thread of their own.

What is chosen among rows goes by their numbers in the files, and so depends neither on how many processes read them nor
on which of them does.
"""

import itertools
import os
import pathlib
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from vertebra.machine import cluster
from vertebra.machine.threads import CHUNK, Sums, added, cores
from vertebra.tables.endings import is_table

# Rows of a batch as they are read, eight chunks of work; and batches read ahead of it: one while another is worked on.
BATCH_ROWS, AHEAD = 65_536, 2
# GiB that a fit may take beside the libraries. A round number.
MEMORY = 1.5
# What the numbers of rows are hashed with, for choices that must not go together.
SAMPLED, FOLDED, CALIBRATED, ORDERED = range(4)

T = TypeVar("T")


# What is asked of pyarrow's Schema, RecordBatch, Table, ParquetFileFragment and Dataset: it has no types, is imported
# where files are read, and need not be installed.
@runtime_checkable
class ArrowSchema(Protocol):
    @property
    def names(self) -> list[str]: ...
    def empty_table(self) -> "ArrowTable": ...
    def equals(self, other: object) -> bool: ...


@runtime_checkable
class ArrowBatch(Protocol):
    def __len__(self) -> int: ...
    def slice(self, offset: int, length: int) -> "ArrowBatch": ...
    def select(self, columns: list[str]) -> "ArrowBatch": ...
    def filter(self, mask: object) -> "ArrowBatch": ...


@runtime_checkable
class ArrowTable(Protocol):
    @property
    def schema(self) -> ArrowSchema: ...
    @property
    def num_rows(self) -> int: ...
    def select(self, columns: list[str]) -> "ArrowTable": ...
    def filter(self, mask: object) -> "ArrowTable": ...
    def take(self, indices: object) -> "ArrowTable": ...
    def combine_chunks(self) -> "ArrowTable": ...
    def to_batches(self) -> list[ArrowBatch]: ...
    def validate(self, *, full: bool) -> None: ...
    def to_pandas(self) -> pd.DataFrame: ...


@runtime_checkable
class ArrowRowGroup(Protocol):
    @property
    def num_rows(self) -> int: ...


@runtime_checkable
class ArrowFragment(Protocol):
    @property
    def row_groups(self) -> list[ArrowRowGroup]: ...
    def split_by_row_group(self) -> "list[ArrowFragment]": ...
    def to_batches(
        self,
        *,
        schema: ArrowSchema,
        columns: list[str],
        batch_size: int,
        batch_readahead: int,
        fragment_readahead: int,
    ) -> Iterator[ArrowBatch]: ...


@runtime_checkable
class ArrowDataset(Protocol):
    @property
    def schema(self) -> ArrowSchema: ...
    def get_fragments(self) -> Iterator[ArrowFragment]: ...


# Where a table in files is: a file or a folder, or a dataset of pyarrow.
Files = str | os.PathLike[str] | ArrowDataset


class Parquet:
    """A table in Parquet files: a file, a folder of them, or a `pyarrow.dataset.Dataset`.

    `columns` are those to read, all unless given; `memory` is what a fit of it may take, in GiB, beside the libraries.
    With several processes (`cluster.connect`) each reads its own row groups.

    >>> table = vb.stream.Parquet("flats.parquet", columns=["size", "rent"])
    >>> table.n_rows, len(table.pieces)
    (100, 1)
    """

    def __init__(self, source: Files, *, columns: Sequence[str] | None = None, memory: float = MEMORY):
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

    @property
    def n_parts(self) -> int:
        """What processes can share: the row groups."""
        return len(self.pieces)

    def schema(self, columns: Sequence[str]) -> ArrowSchema:
        """The types of columns, as pyarrow has them."""
        return self.dataset.schema.empty_table().select(list(columns)).schema

    def found(self, columns: Sequence[str], survey: Callable[[Iterator["Batch"]], T], join: Callable[[T, T], T]) -> T:
        """What `survey` finds in the rows of this process, which are one part: nothing is to be joined."""
        return survey(ahead(self.batches(columns)))

    def total(
        self,
        columns: Sequence[str],
        work: Callable[["Batch"], Sums],
        *,
        skipped: int = 0,
        before: Sums | None = None,
        after: Callable[[Sums, int], None] = lambda total, n_done: None,
    ) -> Sums:
        """Σ work(rows) over the rows of this process, but for chunks that are skipped: see `threads.added`."""
        chunks = (part for batch in ahead(self.batches(columns)) for part in batch.parts(CHUNK))
        return added(work, itertools.islice(chunks, skipped, None), cores(), before=before, after=after)

    def some(self, columns: Sequence[str]) -> "Batch":
        """A few of the rows, for what sums of them look like."""
        return next(self.batches(columns)).part(0, 1)

    def about(self) -> dict[str, object]:
        """What tells this table from another one."""
        files = getattr(self.dataset, "files", [])
        sizes = {os.path.basename(name): os.path.getsize(name) for name in files if os.path.isfile(name)}
        return {"rows": self.n_rows, "columns": self.columns, "files": sizes}


class Batch(NamedTuple):
    """Rows as they were read, and the number of the first among all."""

    first: int
    rows: ArrowBatch

    @property
    def numbers(self) -> Int[np.ndarray, " n"]:
        return np.arange(self.first, self.first + len(self.rows))

    def part(self, start: int, stop: int) -> "Batch":
        return Batch(self.first + start, self.rows.slice(start, stop - start))

    def parts(self, size: int) -> Iterator["Batch"]:
        """The rows, so many at a time."""
        for start in range(0, len(self.rows), size):
            yield self.part(start, min(start + size, len(self.rows)))

    def frame(self, columns: Sequence[str]) -> ArrowTable:
        """Some columns, as a table."""
        import pyarrow as pa

        return pa.Table.from_batches([self.rows.select(list(columns))])


def is_files(X: object) -> TypeGuard[Parquet | Files]:
    """Whether a table lies in files of Parquet: a `Parquet`, a path of such files, or a pyarrow dataset."""
    is_path = isinstance(X, str | os.PathLike) and not is_table(X)
    return is_path or isinstance(X, Parquet) or type(X).__module__.startswith("pyarrow._dataset")


def as_parquet(X: Parquet | Files) -> Parquet:
    """A table in files as a `Parquet`; one that is such already is handed through."""
    return X if isinstance(X, Parquet) else Parquet(X)


def _dataset(source: Files) -> ArrowDataset:
    try:
        import pyarrow.dataset as ds
    except ImportError:
        raise ImportError("Reading Parquet needs pyarrow. Install it: pip install pyarrow.") from None

    if isinstance(source, ArrowDataset):
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


def ahead(items: Iterable[T], n: int = AHEAD) -> Generator[T, None, None]:
    """The same items, made by a thread of their own, up to n before they are asked for."""
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
    """A number in [0, 1) for each row, by its number alone (SplitMix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64(1 + purpose + 16 * (seed % 2**32)) * np.uint64(0x9E3779B97F4A7C15)
        for _ in range(2):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
