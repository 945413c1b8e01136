"""Passes over the files of a fit: a first one for what columns hold and a sample of rows, others for sums over all."""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine import claims, cluster
from vertebra.machine.checkpoint import Checkpoint, Entry
from vertebra.machine.file import Record
from vertebra.machine.threads import CHUNK, Sums
from vertebra.tables.column import Column, codes_of, levels_of, read
from vertebra.tables.known import Known, from_entry
from vertebra.tables.parquet import CALIBRATED, FOLDED, SAMPLED, Batch, Parquet, uniform
from vertebra.tables.partitions import Partitions
from vertebra.tables.sample import Collected, Taken
from vertebra.tables.schema import MissingLike, opened
from vertebra.tables.survey import Facts, begin, with_rows
from vertebra.tables.values import Level
from vertebra.tables.weighting import Weights, weighting

# Functions of an input that a search holds at its rows: 14 smooth and 42 rough ones, of which one kind is kept.
N_FUNCTIONS = 56
# The share of the memory for these at the rows searched, and how few and many such rows may be. Round numbers.
SHARE, FEWEST, MOST_SEARCHED = 0.5, 20_000, 100_000
# Terms are sought in so many of these: what they cannot show is a share of some 10⁻³ of the noise's variance.
ROWS_SEARCHED = 15_000
# Chunks after which progress is told: 1.6 million rows.
PROGRESS = 200
# Rows that conformal intervals are calibrated on, and the largest share of a table: with 20,000 the level is met to
# √(0.05 · 0.95/20,000) = 0.2 %.
CALIBRATION_ROWS, MOST_CALIBRATED = 20_000, 0.2


class Seen(NamedTuple):
    """What a first pass finds in some rows; what is found in others adds up with it."""

    facts: list[Facts]
    targets: list[Facts]
    weights: Weights
    sample: Collected
    held: Collected  # rows set aside for conformal intervals

    def merged(self, other: "Seen") -> "Seen":
        both = (zip(self.facts, other.facts, strict=True), zip(self.targets, other.targets, strict=True))
        facts, targets = ([one.merged(two) for one, two in pairs] for pairs in both)
        sample, held = self.sample.merged(other.sample), self.held.merged(other.held)
        return Seen(facts, targets, self.weights.merged(other.weights), sample, held)


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
        table: Parquet | Partitions,
        targets: Sequence[str],
        weight: str | None,
        *,
        is_class: bool,
        feature_types: Mapping | Sequence | None = None,
        missing_values: MissingLike = None,
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
        count = cluster.place()[1]
        if count > 1 and isinstance(table, Partitions):
            raise ValueError(
                f"A Dask frame is fitted by one process, which Dask's workers serve, got {count} processes."
            )
        if count > table.n_parts:
            raise ValueError(
                f"The table must have a row group for every process, {count}, got {table.n_parts}: write it in "
                "smaller row groups."
            )
        # what reading rows needs of the table, which stays here when they are read elsewhere
        self.schema, self.n_rows, self.n_sampled = table.schema(self.used), table.n_rows, self._n_sampled()
        self.feature_types, self.missing_values, self.meant = feature_types, missing_values, weights
        self.scale = 1.0  # of the weights, once they have all been seen
        self.report: Callable[[str], None] = _unheard
        self._classes: Column | None = None
        self._n_passes = 0

    @property
    def used(self) -> list[str]:
        return [*self.inputs, *self.targets, *([self.weight] if self.weight else [])]

    def survey(self) -> Known:
        """What the first pass finds, or what a run before this one had found."""
        if (known := self._surveyed()) is not None:
            return known
        facts, targets, tallied, sample, held = self.table.found(self.used, self.seen, Seen.merged)
        found = cluster.gathered_json([[each.to_json() for each in part] for part in (facts, targets)])
        facts, targets = ([_merged(each) for each in zip(*parts, strict=True)] for parts in zip(*found, strict=True))
        tallied = functools.reduce(Weights.merged, (Weights(*each) for each in cluster.gathered_json(tallied)))
        if tallied.n < 2:
            raise ValueError(
                f"The table must have at least 2 rows with a target and a weight above 0, got {tallied.n}."
            )
        return self._weighed(facts, targets, tallied, sample.everywhere(), held.everywhere())

    def seen(self, batches: Iterable[Batch]) -> Seen:
        """What the first pass finds in some rows."""
        (facts, targets), n_told = self._blank(), 0
        sample = Collected(self.schema, SAMPLED, self.seed, self.n_sampled)
        held = Collected(self.schema, CALIBRATED, self.seed, self.n_rows)
        tallied = Weights()
        for batch in batches:
            if batch.first // (PROGRESS * CHUNK) > n_told:
                n_told = batch.first // (PROGRESS * CHUNK)
                self.report(f"pass 1: {batch.first:,} of {self.n_rows:,} rows")
            own = self.fitted_weights(batch)
            facts = with_rows(facts, batch.frame(self.inputs), own, batch.numbers)
            targets = with_rows(targets, batch.frame(self.targets), own, batch.numbers)
            tallied = tallied.merged(Weights.of(own))
            sample.add(batch, own > 0)
            if self.conformal:
                held.add(batch, (self.weights(batch) > 0) & (own == 0))
        return Seen(facts, targets, tallied, sample, held)

    def _weighed(self, facts: list[Facts], targets: list[Facts], tallied: Weights, sample: Taken, held: Taken) -> Known:
        """What was found, kept for a restart; from here on weights count rows."""
        meant = weighting(tallied, self.meant, self.weight or "sample_weight")
        known = Known(facts, targets, tallied, sample, held, meant)
        if self.checkpoint is not None:
            self.checkpoint.put("survey", *known.entry())
        self.scale = meant.scale
        return known

    def _blank(self) -> tuple[list[Facts], list[Facts]]:
        """What is known of inputs and targets before any row."""
        kinds = dict.fromkeys(self.targets, "category" if self.is_class else "number")
        return begin(self.inputs, self.feature_types, self.missing_values), begin(self.targets, kinds)

    def _n_sampled(self) -> int:
        """How many rows are searched."""
        functions = 8.0 * N_FUNCTIONS * len(self.inputs)
        return int(np.clip(SHARE * self.table.memory * 2**30 / functions, FEWEST, MOST_SEARCHED))

    def fitted_weights(self, batch: Batch) -> Float[np.ndarray, " n"]:
        """The weight of each row; 0 for those that are set aside for conformal intervals."""
        weight = self.weights(batch)
        if not self.conformal:
            return weight
        share = min(CALIBRATION_ROWS / self.n_rows, MOST_CALIBRATED)
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

    def _surveyed(self) -> Known | None:
        """What a run before this one had found, if one of these files could have."""
        kept = self.checkpoint
        entry = None if kept is None else kept.get("survey")
        # a process that died before it kept them needs the others to find them again
        if not all(cluster.gathered_json(entry is not None)) or kept is None or entry is None:
            return None
        try:
            return self._weighed(*from_entry(entry, *self._blank(), self.schema, self.n_rows))
        except (ValueError, OSError, MemoryError) as error:  # pyarrow's own are of these
            raise kept.bad(f"its survey is not one of these files ({error})") from error

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
        """The folds of rows, chosen by a hash of their numbers."""
        return (uniform(numbers, FOLDED, self.seed) * n_folds).astype(int)

    def __getstate__(self) -> dict[str, object]:
        """What goes to a worker that reads some of the rows: not the table, and not what is kept or told here."""
        return vars(self) | {"table": None, "checkpoint": None, "report": _unheard}

    def _on(self, work: Callable[[Batch, Float[np.ndarray, " n"]], Sums], batch: Batch) -> Sums:
        # a sum over one column is a number
        return [np.asarray(each) for each in work(batch, self.fitted_weights(batch))]

    def total(self, work: Callable[[Batch, Float[np.ndarray, " n"]], Sums]) -> Sums:
        """Sums over all rows but those set aside, of all processes; `work` has some rows and their weights."""
        name, self._n_passes = f"pass {self._n_passes}", self._n_passes + 1
        entry = None if self.checkpoint is None else self.checkpoint.get(name)
        sums = functools.partial(self._on, work)
        before, skipped = [], 0
        if self.checkpoint is not None and entry is not None:
            # what some rows give tells the shapes
            first = self.table.some(self.used)
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

        total = self.table.total(self.used, sums, skipped=skipped, before=before, after=keep)
        keep(total, 0, is_done=True)
        return cluster.summed(total)


def _unheard(words: str) -> None:
    """Where progress is not asked for."""


def _kept_sums(entry: Entry, shapes: Sequence[tuple[int, ...]]) -> tuple[Sums, int, bool]:
    """The sums of a pass from a checkpoint, of how many chunks they are, and whether of all."""
    facts, arrays = claims.record(entry.facts, "the pass", ("position", "is_done")), claims.Arrays(entry.arrays)
    position, is_done = claims.whole(facts["position"], "its position"), claims.flag(facts["is_done"], "is_done")
    sums = [arrays.take(str(k), *shape, low=-claims.FINITE, high=claims.FINITE) for k, shape in enumerate(shapes)]
    arrays.check_all_taken()
    return sums, position, is_done


def _merged(parts: Iterable[Record]) -> Facts:
    """The facts of one column from those of every process."""
    return functools.reduce(Facts.merged, map(Facts.from_json, parts))
