"""Sums over rows that models are made of: products of columns with each other and with y, each worked out once.

A closed form needs nothing else of the rows, so that these may lie anywhere: in memory, or in files that are read some
rows at a time (`Source`). Sums of parts of the rows are worked out by several threads, and added in the order of the
rows, so that they do not depend on which thread was first.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from vertebra.machine.threads import CHUNK, Sums, added, cores
from vertebra.terms.columns import columns_of_each
from vertebra.terms.dependence import Together
from vertebra.terms.evidence import Basis, Block, Products, columns_of, places_of
from vertebra.terms.functions import At, Families, System, Values
from vertebra.terms.term import Term

# Multiplications from which products of columns are in single precision: so many take hundredths of a second, and a fit
# has hundreds of them. And rows up to which: its error grows with them, and must stay below the precision of the prior.
MUCH_WORK, ROWS_FOR_SINGLE = 5e7, 100_000
# Rows from which threads share the work: with fewer, BLAS's own threads do. A round number.
ROWS_FOR_THREADS = 10_000
# A response whose sd is so small beside its mean is constant: rounding alone makes 1e-16 of it.
ROUNDING = 1e-10

Vector = Float[np.ndarray, " n"]
# Sums over some rows, from the functions of every input there, y and the weights.
Work = Callable[[Values, Vector, Vector], Sums]
# The same from inputs, targets and weights.
TableWork = Callable[[Float[np.ndarray, "n p"], Float[np.ndarray, "n k"], Vector], Sums]


@runtime_checkable
class Source(Protocol):
    """Rows of one response, wherever they lie. `near` is near the mean of y, so that squares about it keep digits."""

    near: float
    n_rows: int

    def total(self, work: Work) -> Sums:
        """What `work` makes of some rows at a time, added up over all of them."""
        ...


class Held:
    """Rows in memory; each stands for as many as its weight unless `together` says otherwise."""

    def __init__(self, values: Sequence[At], y: Vector, weight: Vector, together: Together | None = None):
        self.values, self.y, self.weight, self.n_rows = values, y, weight, len(y)
        self.near = float(weight @ y / weight.sum())
        self.counts, self.groups, self.mixing, self.vary_as_said = Together(weight) if together is None else together

    def chunks(self) -> Iterator[tuple[Values, Vector, Vector]]:
        """The values of the functions, y and the weights, some rows at a time."""
        for part in self.parts():
            yield [v.rows(part) for v in self.values], self.y[part], self.weight[part]

    def parts(self) -> list[slice]:
        """Rows that are worked on at once: all of them, where they are to be mixed."""
        size = CHUNK if self.mixing is None else max(self.n_rows, 1)
        return [slice(start, start + size) for start in range(0, self.n_rows, size)]

    @property
    def n_threads(self) -> int:
        """Those that work on parts of the rows: one where there are few parts, or rows are to be mixed."""
        return 1 if self.n_rows < ROWS_FOR_THREADS or self.mixing is not None else cores()

    def total(self, work: Work) -> Sums:
        return added(lambda chunk: work(*chunk), self.chunks(), self.n_threads)


@runtime_checkable
class Everything(Protocol):
    """All rows of a fit, of which some are searched: sums over them from inputs, targets and weights."""

    n_rows: int

    def begin(self, basis: str) -> None:
        """Says which basis the passes from here on are of, so that sums of another one are not taken for them."""
        ...

    def total(self, work: TableWork) -> Sums: ...


class Elsewhere:
    """Rows that sums were taken of and that are not here: what these say travels without them."""

    def __init__(self, source: Source):
        self.near, self.n_rows = source.near, source.n_rows

    def total(self, work: Work) -> Sums:
        raise RuntimeError("The rows of these sums are not here.")


class HeldTable:
    """All rows, in memory."""

    def __init__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.x, self.y, self.weight = x, y, weight
        self.n_rows = len(x)

    def begin(self, basis: str) -> None: ...

    def total(self, work: TableWork) -> Sums:
        starts = range(0, self.n_rows, CHUNK)
        parts = (tuple(each[start : start + CHUNK] for each in (self.x, self.y, self.weight)) for start in starts)
        return added(lambda part: work(*part), parts, cores())


class Streamed:
    """One response of all rows: `respond` makes it, y and weight, of the functions, the targets and the weights."""

    near = 0.0

    def __init__(
        self,
        systems: Sequence[System],
        everything: Everything,
        respond: Callable[[Values, Float[np.ndarray, "n k"], Vector], tuple[Vector, Vector]],
    ):
        self.systems, self.everything, self.respond = systems, everything, respond
        self.n_rows = everything.n_rows

    def total(self, work: Work) -> Sums:
        def on(x, targets, weight):
            values = LazyValues(self.systems, x)
            return work(values, *self.respond(values, targets, weight))

        return self.everything.total(on)


def centred_on(everything: Everything, systems: Sequence[System], inputs: Iterable[int]) -> tuple[System, ...]:
    """Systems learned from some rows, those of some inputs with mean zero over all rows."""
    chosen = list(inputs)

    def work(x, _, weight):
        values = [systems[i].at(x[:, i], grows=False).of(np.arange(len(systems[i].kind))) for i in chosen]
        return [sums for v in values for sums in (weight @ v, (weight[:, None] * v).T @ v)]

    sums, result = everything.total(work), list(systems)
    for k, i in enumerate(chosen):
        first, second = sums[2 * k : 2 * k + 2]
        result[i] = systems[i].recentred(first / first[0], second / first[0])  # φ₀ = 1: its sum is the weight
    return tuple(result)


class LazyValues:
    """The functions of every input at some rows, an input's worked out when they are first asked for."""

    def __init__(self, systems: Sequence[System], x: Float[np.ndarray, "n p"]):
        self.systems, self.x = systems, x
        self._known: dict[int, At] = {}

    def __getitem__(self, i: int) -> At:
        if i not in self._known:
            self._known[i] = self.systems[i].at(self.x[:, i], grows=False)
        return self._known[i]

    def __len__(self) -> int:
        return len(self.systems)


class RowSums:
    """Rows of one response as the search sees them: sums of products of columns, each worked out once for all models.

    A weight multiplies the precision of its row; the noise may be known. Where it is `faint` beside y, products need
    all digits.
    """

    def __init__(
        self,
        systems: Sequence[System],
        source: Source,
        noise_variance: float | None = None,
        chosen: dict[Term, Families] | None = None,
        *,
        blocks: Sequence[Block] = (),
        faint: bool = False,
        tested: dict[tuple[Term, Families], Block] | None = None,
    ):
        self.systems, self.source = tuple(systems), source
        self.chosen: dict[Term, Families] = {} if chosen is None else chosen
        self.noise_variance, self.faint = noise_variance, faint
        self.tested = {} if tested is None else tested  # what tests of terms look at
        self._means: dict[tuple, np.ndarray] = {}
        self._crosses: dict[tuple, np.ndarray] = {}
        self._grams: dict[tuple, np.ndarray] = {}
        self._summarise(blocks)

    @classmethod
    def held(
        cls,
        systems: Sequence[System],
        values: Sequence[At],
        y: Vector,
        weight: Vector,
        noise_variance: float | None = None,
        chosen: dict[Term, Families] | None = None,
        together: Together | None = None,
        tested: dict[tuple[Term, Families], Block] | None = None,
    ) -> "RowSums":
        """The sums over rows in memory."""
        return cls(systems, Held(values, y, weight, together), noise_variance, chosen, tested=tested)

    def _summarise(self, blocks: Sequence[Block]) -> None:
        """How many rows there are, y's mean and spread; and in the same pass all products of some blocks."""
        near = self.source.near

        def work(values, y, weight):
            one, away = self.scaled(np.column_stack([np.ones(len(y)), y - near]), weight).T
            facts = [np.count_nonzero(weight > 0), weight.sum(), one @ one, one @ away, away @ away]
            return [np.array(facts, dtype=np.float64), *self._sums(blocks, blocks, values, y, weight, dtype)]

        n_columns = sum(len(b.index) for b in blocks)
        dtype = self.precision(n_columns * n_columns * self.source.n_rows, self.source.n_rows)
        self._take(blocks, self.source.total(work))

    def _take(self, blocks: Sequence[Block], sums: Sums) -> None:
        self._raw, near = sums, self.source.near
        facts, *sums = sums
        # of rows that depend on each other `total` is how many the constant has of them, which is less
        self.n, self.count, self.total = int(facts[0]), float(facts[1]), float(facts[2])
        self.mean_y = near + float(facts[3]) / self.total
        self.square = max(float(facts[4] - facts[3] ** 2 / self.total), 0.0)
        self._keep(blocks, blocks, *sums)

    def between(self, other: "RowSums", share: float, blocks: Sequence[Block]) -> "RowSums":
        """A share of the way from other rows' sums to these, which were taken of the same blocks.

        Sums are linear in w and wz, the natural parameters of working responses.
        """
        rows = copy.copy(self)
        rows._means, rows._crosses, rows._grams = {}, {}, {}
        rows._take(blocks, [one + share * (two - one) for one, two in zip(other._raw, self._raw, strict=True)])
        return rows

    def alone(self) -> "RowSums":
        """The sums that there are, without the rows."""
        rows = copy.copy(self)
        rows.source, rows.tested = Elsewhere(self.source), {}
        return rows

    @property
    def is_constant(self) -> bool:
        return math.sqrt(self.square / self.total) <= ROUNDING * max(abs(self.mean_y), 1e-300)

    def _sums(
        self, left: Sequence[Block], right: Sequence[Block], values: Values, y, weight, dtype: type = np.float64
    ) -> Sums:
        """Sums over some rows: Σwφ and Σw(y − near)φ of the left blocks, and Σwφφᵀ with the right ones."""
        if not left:
            return []
        constant = self.scaled(np.column_stack([np.ones(len(y)), y - self.source.near]).astype(dtype), weight)
        one = self.scaled(columns_of(left, values, dtype), weight)
        sums = list(constant.T @ one)
        if not right:
            return sums
        # a product with itself is half the work
        other = one if left is right else self.scaled(columns_of(right, values, dtype), weight)
        return [*sums, one.T @ other]

    def scaled(self, columns: np.ndarray, weight: Vector) -> np.ndarray:
        """Rows times the roots of their weights, mixed where they depend on each other."""
        columns *= np.sqrt(weight).astype(columns.dtype)[:, None]
        mixing = self.source.mixing if isinstance(self.source, Held) else None
        return columns if mixing is None else mixing(columns)

    def _keep(self, left: Sequence[Block], right: Sequence[Block], *sums: np.ndarray) -> None:
        """Remembers sums about the means."""
        if not left:
            return
        means, crosses = sums[0] / self.total, sums[1] - (self.mean_y - self.source.near) * sums[0]
        names = [b.name for b in left]
        for name, place in zip(names, places_of(left), strict=True):
            self._means[name], self._crosses[name] = means[place], crosses[place]
        if not right:
            return
        others = names if left is right else [c.name for c in right]
        gram = sums[2] - self.total * np.outer(means, means if left is right else self.mean(right))
        for name, rows in zip(names, places_of(left), strict=True):
            for other, own in zip(others, places_of(right), strict=True):
                if (name, other) not in self._grams:
                    self._grams[name, other], self._grams[other, name] = gram[rows, own], gram[rows, own].T

    def learn(self, blocks: Sequence[Block]) -> None:
        """Works out the means of columns and their products with y, where they are not known."""
        new = [b for b in blocks if b.name not in self._means]
        if new:
            self._keep(new, (), *self.source.total(lambda *rows: self._sums(new, (), *rows)))

    def learn_products(self, left: Sequence[Block], right: Sequence[Block]) -> None:
        """Works out products of left and right blocks about their means, where they are not known."""
        names = [c.name for c in right]
        news = [b for b in left if any((name, other) not in self._grams for name in (b.name,) for other in names)]
        wanted = [b.name for b in news]
        others = [
            c for c, other in zip(right, names, strict=True) if any((n, other) not in self._grams for n in wanted)
        ]
        if wanted == [c.name for c in others]:
            others = news
        if not news:
            return
        if others is not news:
            self.learn(others)
        work = math.prod(sum(len(b.index) for b in side) for side in (news, others)) * self.n
        dtype = self.precision(work, self.n)
        self._keep(news, others, *self.source.total(lambda *rows: self._sums(news, others, *rows, dtype=dtype)))

    def precision(self, work: int, n_rows: int) -> type:
        """Single where there is much to do: its error, over a noise that is not faint, is far below the prior's 1."""
        return np.float32 if work > MUCH_WORK and n_rows <= ROWS_FOR_SINGLE and not self.faint else np.float64

    def learn_squares(self, blocks: Sequence[Block]) -> None:
        """Works out products of each block with itself alone, where they are not known."""
        self.learn(blocks)
        new = [b for b in blocks if (b.name, b.name) not in self._grams]
        if not new:
            return

        def work(values, _, weight):
            scaled = [self.scaled(each, weight) for each in columns_of_each(values, new)]
            return [phi.T @ phi for phi in scaled]

        for b, total in zip(new, self.source.total(work), strict=True):
            mean = self._means[b.name]
            self._grams[b.name, b.name] = total - self.total * np.outer(mean, mean)

    def mean(self, blocks: Sequence[Block]) -> Float[np.ndarray, " m"]:
        return np.concatenate([np.zeros(0), *(self._means[b.name] for b in blocks)])

    def cross(self, blocks: Sequence[Block]) -> Float[np.ndarray, " m"]:
        return np.concatenate([np.zeros(0), *(self._crosses[b.name] for b in blocks)])

    def gram(self, left: Sequence[Block], right: Sequence[Block]) -> Float[np.ndarray, "l r"]:
        width, others = sum(len(c.index) for c in right), [c.name for c in right]
        names = [b.name for b in left if right]
        rows = [np.concatenate([self._grams[name, other] for other in others], axis=1) for name in names]
        return (
            np.concatenate([np.zeros((0, width)), *rows]) if right else np.zeros((sum(len(b.index) for b in left), 0))
        )

    def products(self, basis: Basis) -> Products:
        """What the evidence of a basis needs."""
        self.learn_products(basis.blocks, basis.blocks)
        return Products(
            self.gram(basis.blocks, basis.blocks),
            self.cross(basis.blocks),
            self.square,
            self.count,
            self.mean(basis.blocks),
            self.mean_y,
            self.noise_variance,
        )
