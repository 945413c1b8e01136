"""How much work and memory a fit will take, before it begins: a formula of rows, inputs, terms and workers.

The search is a power law of the rows searched and the inputs, fitted to measurements; passes over all rows are counted
operation by operation. `benchmarks/plan.py` fits the numbers and checks them at sizes that were not fitted.
"""

import math
from typing import NamedTuple

from vertebra.tables.passes import FEWEST, MOST_SEARCHED, N_FUNCTIONS, ROWS_SEARCHED, SHARE
from vertebra.terms.model import MOST_OF_ALL, most_columns
from vertebra.terms.search import MAX_TRIPLES

# Processor seconds of a fit of 1,000 rows × 10 inputs, and the powers of rows and inputs: benchmarks/plan.py, as are
# those below. Seconds of a pass for each value read, and for each multiplication of a sum of products.
SEARCH, BY_ROWS, BY_INPUTS = 4.0, 0.6, 0.8
READING, MULTIPLYING = 1.2e-6, 1.0e-10
# Columns of a term's functions with 1,000 rows, and as many more for each decade of rows beyond. Passes over all rows:
# for what columns hold, means, and sums.
COLUMNS, COLUMNS_A_DECADE = 14, 6
# Bytes of a table beside itself while it is read and encoded; what is kept of functions at the rows searched.
COPIES, KEPT = 3.0, 14.0
# What a plan may be off by: the largest ratio at sizes that were not fitted, rounded up.
FACTOR = 2.0
# Bytes that a library takes before any row: a round number.
LIBRARIES = 0.4 * 2**30


class Plan(NamedTuple):
    """What a fit will take. Seconds are of work, of one core; bytes are peaks."""

    rows: int
    inputs: int
    terms: int
    workers: int
    searched: int  # rows
    pairs: int  # looked at
    triples: int
    search: float  # seconds, in this process
    passes: float  # seconds over all rows, shared by the workers
    memory: float  # bytes in this process
    memory_of_worker: float

    @property
    def work(self) -> float:
        return self.search + self.passes

    def seconds(self, cores: int) -> float:
        """From begin to end, where the search has so many cores and each worker one."""
        return self.search / min(cores, 2) + self.passes / max(self.workers, 1)


def plan(rows: int, inputs: int, *, terms: int = 5, workers: int = 1, memory: float | None = None) -> Plan:
    """The plan of a fit of so many rows and inputs, of which so many terms are found.

    With `memory`, in GiB, rows are read some at a time, from files or by workers.
    """
    most = MOST_SEARCHED
    if memory is not None:
        most = int(min(max(SHARE * memory * 2**30 / (8.0 * N_FUNCTIONS * inputs), FEWEST), MOST_SEARCHED))
    sampled = min(rows, most)
    searched = min(sampled, ROWS_SEARCHED)
    columns = min(terms * (COLUMNS + COLUMNS_A_DECADE * math.log10(max(rows, 1000) / 1000.0)), most_columns(rows))
    search = SEARCH * (searched / 1000.0) ** BY_ROWS * (inputs / 10.0) ** BY_INPUTS
    # a sample is passed over too, and so is every table that is not searched whole
    is_taken_on = memory is not None or rows > searched
    passes = rows * (READING * inputs + MULTIPLYING * columns**2) if is_taken_on else 0.0
    sums = 6.0 * 8.0 * min(columns * 4.0, MOST_OF_ALL) ** 2
    functions = 8.0 * KEPT * searched * inputs
    held = 8.0 * COPIES * (rows if memory is None else sampled) * inputs
    # chunks of 65,536 rows as they are read, two ahead, and what two threads make of them
    part = 3.0 * 65_536 * 8.0 * (inputs + columns)
    triples = math.comb(inputs, 3)
    return Plan(
        rows=rows,
        inputs=inputs,
        terms=terms,
        workers=workers,
        searched=searched,
        pairs=math.comb(inputs, 2),
        triples=triples if triples <= MAX_TRIPLES else 0,
        search=search,
        passes=passes,
        memory=LIBRARIES + held + functions + sums + (part if is_taken_on else 0.0),
        memory_of_worker=LIBRARIES + part + 8.0 * columns**2,
    )


def described(plan: Plan, cores: int) -> list[str]:
    """The plan in words."""
    triples = f"{plan.triples:,} triples" if plan.triples else "triples of pairs that are found"
    looked = f"{plan.inputs:,} main effects, {plan.pairs:,} pairs, {triples}"
    here, there = (f"{size / 2**30:.1f} GiB" for size in (plan.memory, plan.memory_of_worker))
    search = f"{_time(plan.search)} of one core's work, in {plan.searched:,} rows"
    passes = f"{_time(plan.passes)} of one core's work, which {plan.workers} share" if plan.passes else "none beside it"
    return [
        f"{plan.rows:,} rows × {plan.inputs:,} inputs; to be looked at: {looked}.",
        f"search            {search}.",
        f"passes over rows  {passes}.",
        f"begin to end      {_time(plan.seconds(cores))} with {plan.terms} terms, give or take a factor of {FACTOR:g}.",
        f"memory            {here}; {there} for each worker of Dask's.",
    ]


def _time(seconds: float) -> str:
    if seconds < 100.0:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"
