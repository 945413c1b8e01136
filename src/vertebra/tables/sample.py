"""Rows of files taken into memory, chosen by a hash of their numbers: a uniform sample, whoever reads which."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from vertebra.machine import cluster
from vertebra.tables.parquet import ArrowSchema, ArrowTable, Batch, uniform


class Taken(NamedTuple):
    """Rows taken into memory, with their numbers."""

    numbers: Int[np.ndarray, " n"]
    rows: ArrowTable  # of all columns in use

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


class Collected:
    """The rows of smallest hash, at most so many of those that may be chosen, gathered batch by batch."""

    def __init__(self, schema: ArrowSchema, purpose: int, seed: int, n_most: int):
        self.schema, self.purpose, self.seed, self.n_most = schema, purpose, seed, n_most
        self.limit = 1.0
        self.taken = Taken(np.zeros(0, dtype=np.int64), schema.empty_table())

    def add(self, batch: Batch, may: Bool[np.ndarray, " n"]) -> None:
        import pyarrow as pa

        chosen = may & (uniform(batch.numbers, self.purpose, self.seed) < self.limit)
        table = pa.Table.from_batches([batch.rows.filter(pa.array(chosen))], schema=self.schema)
        self.taken = self.taken.joined([Taken(batch.numbers[chosen], table)])
        if len(self.taken.numbers) > 2 * self.n_most:
            self.taken, self.limit = self._smallest(self.taken)

    def merged(self, other: "Collected") -> "Collected":
        """The rows of smallest hash of both."""
        both = Collected(self.schema, self.purpose, self.seed, self.n_most)
        both.taken, both.limit = self._smallest(self.taken.joined([other.taken]))
        both.limit = min(both.limit, self.limit, other.limit)
        return both

    def _smallest(self, taken: Taken) -> tuple[Taken, float]:
        """The rows of smallest hash, and the hash from which on rows are left out."""
        u = uniform(taken.numbers, self.purpose, self.seed)
        if len(u) <= self.n_most:
            return taken, 1.0
        limit = float(np.partition(u, self.n_most)[self.n_most])
        return taken.where(u < limit), limit

    def everywhere(self) -> Taken:
        """The rows that all processes have gathered, in the order of their numbers."""
        tables = [from_bytes(each) for each in cluster.gathered(to_bytes(self.taken.rows))]
        numbers = [np.frombuffer(each, dtype=np.int64) for each in cluster.gathered(self.taken.numbers.tobytes())]
        first, *others = [Taken(*each) for each in zip(numbers, tables, strict=True)]
        return self._smallest(first.joined(others))[0].in_order()


def to_bytes(table: ArrowTable) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes) -> ArrowTable:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()
