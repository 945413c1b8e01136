"""Minibatches of rows in files: shuffled, a window of them at a time, for networks in training."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from vertebra.machine import cluster
from vertebra.machine.devices import from_parts
from vertebra.machine.threads import Sums
from vertebra.tables.parquet import ORDERED, Batch, Parquet
from vertebra.tables.streamed import Matrix, StreamedRows, Targets, Vector

# Shards of minibatches: as many processes can share them evenly. Bytes of a window of them: 64 MiB, a small part of a
# device's memory.
N_SHARDS, WINDOW_BYTES = 8, 2.0**26


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
        table = stream.training.table
        if not isinstance(table, Parquet):
            raise ValueError(
                "Networks are trained on minibatches of rows in Parquet files: X.to_parquet(folder) first."
            )
        self.table = table
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
        """The folds of the rows in memory."""
        return self.stream.training.folds(self.stream.numbers, n_folds)

    def fewest_rounds(self, n_steps: int, batch_size: int) -> int:
        """As many as keep a window small."""
        row = 4.0 * (self.x.shape[1] + self.y.shape[1] + 2)
        return -(-n_steps // max(int(WINDOW_BYTES / (row * batch_size)), 1))

    def sums(self, work: Callable[[Matrix, Targets, Vector], Sums], folds: int, held: int) -> Sums:
        """Sums over all rows but those of a fold."""
        training = self.stream.training

        def on(batch: Batch, weight) -> Sums:
            if folds:
                weight = np.where(training.folds(batch.numbers, folds) == held, 0.0, weight)
            return work(*self.stream.read(batch), weight)

        return training.total(on)

    def rounds(
        self, n_steps: int, batch_size: int, folds: int, first: int, mesh: Mesh | None
    ) -> Iterator[tuple[np.ndarray | Array, ...]]:
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
        # A row of no weight may have no target: that of one in memory takes its place, where p(y | f) is defined.
        known = int(np.argmax(self.weight > 0.0))
        for batch in batches:
            x, y = self.stream.read(batch)
            weight = training.fitted_weights(batch)
            if not weight.all():
                y = np.where(training.weights(batch)[:, None] > 0.0, y, self.y[known])
            fold = training.folds(batch.numbers, folds) if folds else np.full(len(x), -1)
            parts.append((x, y, share * weight[:, None], fold))
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
