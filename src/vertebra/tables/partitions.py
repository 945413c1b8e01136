"""A table in the partitions of a Dask frame: what is worked out on each is a task of Dask's, run where it will.

Sums, facts and samples of partitions are joined by tasks too, in the order of the partitions: the result is the same
whichever worker had which, and whether one of them was lost on the way.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import pandas as pd

from vertebra.machine.threads import CHUNK, Sums, added
from vertebra.tables.parquet import BATCH_ROWS, MEMORY, ArrowSchema, Batch

# Results joined by one task: a round number, that of Dask's own reductions.
JOINED = 8

Found = TypeVar("Found")


# What is asked of Dask, which has no types, and need not be installed.
@runtime_checkable
class DaskFrame(Protocol):
    @property
    def columns(self) -> pd.Index: ...
    @property
    def npartitions(self) -> int: ...
    @property
    def _meta(self) -> pd.DataFrame: ...
    @property
    def _meta_nonempty(self) -> pd.DataFrame: ...
    def __getitem__(self, columns: list[str]) -> "DaskFrame": ...
    def to_delayed(self) -> list: ...
    def map_partitions(self, work: Callable, *given: object, meta: object) -> "DaskFrame": ...


class Partitions:
    """A table as a `dask.dataframe`, whatever it was made of and wherever its workers are.

    `columns` are those to read, all unless given; `memory` is what this process may take, in GiB, beside the libraries:
    it holds the sample that is searched. Each pass asks Dask for the partitions again: `frame.persist()` keeps them.

    >>> import dask.dataframe as dd
    >>> table = vb.stream.Partitions(dd.from_pandas(pd.DataFrame({"size": np.arange(100.0)}), npartitions=4))
    >>> table.n_rows, table.counts
    (100, [25, 25, 25, 25])
    """

    def __init__(self, frame: DaskFrame, *, columns: Sequence[str] | None = None, memory: float = MEMORY):
        import pyarrow as pa
        from dask.base import compute
        from dask.delayed import delayed

        if not memory > 0.0:
            raise ValueError(f"`memory` must be a number of GiB above 0, got {memory!r}.")
        names = list(frame.columns)
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError(f"`X` must have columns with distinct names, which are text, got {names[:20]}.")
        self.columns = names if columns is None else list(columns)
        if unknown := [name for name in self.columns if name not in names]:
            raise ValueError(f"`columns` must be of the table, {', '.join(names)}, got {unknown[0]!r}.")
        self.frame, self.memory = frame[self.columns], memory
        # rows that stand for the types of the columns, which those of no rows do not tell of text
        self._schema = pa.Schema.from_pandas(self.frame._meta_nonempty, preserve_index=False).remove_metadata()
        counts = compute(*(delayed(len)(part) for part in self.frame.to_delayed()))
        self.counts = [int(n) for n in counts]
        self.starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        if not self.n_rows:
            raise ValueError("`X` has no rows.")

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    @property
    def n_parts(self) -> int:
        return len(self.counts)

    def schema(self, columns: Sequence[str]) -> ArrowSchema:
        """The types of columns, as pyarrow has them."""
        return self._schema.empty_table().select(list(columns)).schema

    def found(
        self, columns: Sequence[str], survey: Callable[[Iterator[Batch]], Found], join: Callable[[Found, Found], Found]
    ) -> Found:
        """What `survey` finds in the rows of each partition, joined."""
        return self._joined(columns, survey, join)

    def total(
        self,
        columns: Sequence[str],
        work: Callable[[Batch], Sums],
        *,
        skipped: int = 0,
        before: Sums | None = None,
        after: Callable[[Sums, int], None] = lambda total, n_done: None,
    ) -> Sums:
        """Σ work(rows) over all rows. A pass is kept when it is done: until then its parts are Dask's."""
        return self._joined(columns, functools.partial(_summed, work), _plus)

    def some(self, columns: Sequence[str]) -> Batch:
        """A few of the rows, for what sums of them look like."""
        first = next(k for k, n in enumerate(self.counts) if n)
        return self._joined(columns, _first_row, lambda one, _: one, [first])

    def about(self) -> dict[str, object]:
        """What tells this table from another one."""
        from dask.base import tokenize

        return {"rows": self.n_rows, "columns": self.columns, "partitions": self.counts, "frame": tokenize(self.frame)}

    def _joined(
        self,
        columns: Sequence[str],
        work: Callable[[Iterator[Batch]], Found],
        join: Callable[[Found, Found], Found],
        which: Sequence[int] | None = None,
    ) -> Found:
        """work(rows) of each partition, joined in order by a tree of tasks; one result comes back."""
        from dask.base import compute
        from dask.delayed import delayed

        parts = self.frame[list(columns)].to_delayed()
        # one task each for what all of them need: it goes to a worker once
        shared, joining = delayed(_Task(work, self.schema(columns)), pure=False), functools.partial(_join, join)
        kept = [k for k, n in enumerate(self.counts) if n] if which is None else which
        level = [delayed(_done)(shared, parts[k], int(self.starts[k]), self.counts[k]) for k in kept]
        while len(level) > 1:
            level = [delayed(joining)(level[k : k + JOINED]) for k in range(0, len(level), JOINED)]
        (result,) = compute(level[0])
        return result


class _Task:
    """What is to be done with the rows of a partition, and the types that these must have."""

    def __init__(self, work: Callable[[Iterator[Batch]], object], schema: ArrowSchema):
        self.work, self.schema = work, schema


def _done(task: _Task, frame: pd.DataFrame, first: int, n_rows: int) -> object:
    """What a task makes of a partition."""
    return task.work(_batches(frame, task.schema, first, n_rows))


def _batches(frame: pd.DataFrame, schema: ArrowSchema, first: int, n_rows: int) -> Iterator[Batch]:
    """The rows of a partition, some at a time, as those of files come."""
    import pyarrow as pa

    if len(frame) != n_rows:
        raise RuntimeError(
            f"A partition of `X` had {n_rows:,} rows, and now has {len(frame):,}: what Dask works out again must be "
            "the same. Write it to Parquet first, or persist it."
        )
    try:
        table = pa.Table.from_pandas(frame.loc[:, schema.names], schema=schema, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"A partition of `X` has other values than its types say: {error}.") from None
    # the names of pandas' types would come with every batch
    for rows in table.replace_schema_metadata(None).combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
        yield Batch(first, rows)
        first += len(rows)


def _summed(work: Callable[[Batch], Sums], batches: Iterator[Batch]) -> Sums:
    """Σ work(rows) over a partition, by this thread alone: how many a worker has is Dask's business."""
    return added(work, (part for batch in batches for part in batch.parts(CHUNK)), 1)


def _first_row(batches: Iterator[Batch]) -> Batch:
    return next(batches).part(0, 1)


def _plus(one: Sums, other: Sums) -> Sums:
    return [a + b for a, b in zip(one, other, strict=True)]


def _join(join: Callable[[Found, Found], Found], parts: Sequence[Found]) -> Found:
    return functools.reduce(join, parts)


def is_dask(X: object) -> TypeGuard[DaskFrame]:
    """Whether a table is a frame of Dask's, which is not imported to find out."""
    return type(X).__module__.startswith(("dask.dataframe", "dask_expr")) and hasattr(X, "npartitions")


def mapped(X: DaskFrame, answer: Callable[..., pd.DataFrame], types: Mapping[str, Any], *given: object) -> DaskFrame:
    """A frame of Dask's with the columns of answer(*given, rows) for each partition's rows, whose labels stay.

    What is given travels as one object of its own, and not with each of the tasks.
    """
    from dask.delayed import delayed

    meta = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()}, index=X._meta.index[:0])
    shared = delayed(_Answer(answer, meta, given), pure=False)
    return X.map_partitions(_answered, shared, meta=meta)


class _Answer:
    """What is asked of the rows of a partition, and the types of the columns that come back."""

    def __init__(self, answer: Callable[..., pd.DataFrame], meta: pd.DataFrame, given: Sequence[object]):
        self.answer, self.meta, self.given = answer, meta, given


def _answered(frame: pd.DataFrame, asked: _Answer) -> pd.DataFrame:
    if not len(frame):
        return asked.meta
    return asked.answer(*asked.given, frame).set_axis(frame.index, axis=0).astype(asked.meta.dtypes.to_dict())
