"""What a first pass over files has found: what the columns hold, what the weights mean, and some rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vertebra.machine import claims
from vertebra.machine.checkpoint import Entry
from vertebra.machine.file import Record
from vertebra.tables.parquet import ArrowSchema
from vertebra.tables.sample import Taken, from_bytes, to_bytes
from vertebra.tables.schema import Schema
from vertebra.tables.survey import Facts, schema_of
from vertebra.tables.weighting import Weighting, Weights

# By how much sums of weights may break what holds of them exactly: rounding in sums over many rows.
ROUNDING = 1e-9


class Known(NamedTuple):
    """The findings of the first pass, of all processes."""

    facts: list[Facts]
    targets: list[Facts]
    weights: Weights
    sample: Taken
    held: Taken  # rows set aside for conformal intervals
    weighting: Weighting

    @property
    def n_rows(self) -> int:
        """The rows with a target and a weight above 0."""
        return self.weights.n

    @property
    def weight(self) -> float:
        """The number of rows that they count for."""
        return self.weighting.total

    def schema(self) -> Schema:
        return schema_of(self.facts, self.sample.rows.select([each.source for each in self.facts]))

    def entry(self) -> Entry:
        """What a checkpoint keeps of it."""
        facts: Record = {name: [each.to_json() for each in getattr(self, name)] for name in ("facts", "targets")}
        arrays = {}
        for name, taken in ("sample", self.sample), ("held", self.held):
            arrays[f"{name} numbers"] = taken.numbers
            arrays[f"{name} rows"] = np.frombuffer(to_bytes(taken.rows), dtype=np.uint8)
        return Entry(facts | {"weights": list(self.weights)}, arrays)


def from_entry(
    entry: Entry, facts: Sequence[Facts], targets: Sequence[Facts], schema: ArrowSchema, n_rows: int
) -> tuple[list[Facts], list[Facts], Weights, Taken, Taken]:
    """What a checkpoint keeps of `Known`, all but the weighting, or a ValueError if it cannot be of the table.

    Of this are given the facts and targets before any row, its columns, and how many rows it has.
    """
    kept = claims.record(entry.facts, "the survey", ("facts", "targets", "weights"))
    found = [_facts(kept[name], name, blank) for name, blank in (("facts", facts), ("targets", targets))]
    arrays, taken = claims.Arrays(entry.arrays), []
    for name in ("sample", "held"):
        numbers = arrays.take(f"{name} numbers", None, kind="i8", low=0, high=n_rows - 1)
        rows = from_bytes(arrays.take(f"{name} rows", None, kind="u1", low=0, high=255).tobytes())
        rows.validate(full=True)
        claims.demand(rows.schema.equals(schema), f"{name} rows", "of the table's columns", rows.schema.names)
        claims.demand(rows.num_rows == len(numbers), f"{name} rows", f"{len(numbers)} rows", rows.num_rows)
        taken.append(Taken(claims.rising(numbers, f"{name} numbers", strictly=True), rows))
    arrays.check_all_taken()
    claims.demand(len(taken[0].numbers) > 0, "the sample", "of some rows", 0)
    return found[0], found[1], _weights(kept["weights"], n_rows), taken[0], taken[1]


def _facts(kept: object, name: str, blank: Sequence[Facts]) -> list[Facts]:
    own = [Facts.from_json(each) for each in claims.listed(kept, name, len(blank))]
    is_same = all(
        (a.source, a.wanted, a.missing_values) == (b.source, b.wanted, b.missing_values)
        for a, b in zip(own, blank, strict=True)
    )
    claims.demand(is_same, name, "of the table's columns", [each.source for each in own])
    return own


def _weights(kept: object, n_rows: int) -> Weights:
    n, *numbers, are_whole = claims.listed(kept, "the weights", len(Weights._fields))
    n = claims.whole(n, "the number of rows", 2, n_rows)
    largest, smallest, total, square = (claims.number(each, "a sum of weights", 0) for each in numbers)
    # Σ w² ≤ Σ w ≤ n of weights over the largest, and (Σ w)² ≤ n Σ w²
    more = 1 + ROUNDING
    fits = 0 < smallest <= largest and 1 <= total <= n * more and total**2 <= n * square * more
    claims.demand(fits and square <= total * more, "the weights", "those of rows", kept)
    return Weights(n, largest, smallest, total, square, claims.flag(are_whole, "whether weights are whole"))
