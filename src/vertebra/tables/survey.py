"""What one pass over a table finds out about its columns: moments, extremes, levels, gaps.

Facts of parts of a table add up to those of the whole, wherever the parts were read. A schema needs no more, but for
the quartiles of numbers with far tails, which a sample of rows gives.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from vertebra.machine import claims
from vertebra.machine.file import Record
from vertebra.tables.column import (
    FAR,
    FEATURE_TYPES,
    PARTS,
    UNSEEN,
    WITHIN_MONTH,
    Column,
    check_range,
    codes_of,
    in_order,
    kind_of,
    levels_of,
    part_of,
    parts_that_vary,
    ranges_of_parts,
    read,
    scaling,
    unified,
)
from vertebra.tables.schema import MissingLike, Schema, TableLike, opened, wanted_gaps, wanted_kinds
from vertebra.tables.values import Level, instants, with_gaps

# A column of text with more levels than this names its rows. A round number: its levels take 100 MB.
MOST_LEVELS_KEPT = 1_000_000
# Squares of larger numbers, so many of them, need not be finite: those of 10²⁷ are.
LARGE = 1e140


@dataclass
class Moments:
    """Numbers in sum: their weight, extremes, mean, and the sum of squares about it."""

    weight: float = 0.0  # 0: there are none
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    @classmethod
    def of(cls, x: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> "Moments":
        if not len(x):
            return cls()
        total = float(weight.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(weight @ x / total)
            return cls(total, float(x.min()), float(x.max()), mean, float(weight @ (x - mean) ** 2))

    def __add__(self, other: "Moments") -> "Moments":
        """Chan, Golub & LeVeque's sum: no digits are lost where the mean is large."""
        if not self.weight or not other.weight:
            return other if not self.weight else self
        total, apart = self.weight + other.weight, other.mean - self.mean
        share = other.weight / total
        return Moments(
            total,
            min(self.low, other.low),
            max(self.high, other.high),
            self.mean + share * apart,
            self.square + other.square + apart * apart * self.weight * share,
        )

    @property
    def is_sound(self) -> bool:
        """Whether numbers can have these; sums of very large ones overflow."""
        are_finite = all(map(math.isfinite, (self.weight, self.low, self.high)))
        if not are_finite or self.weight < 0.0 or self.low > self.high:
            return False
        if max(abs(self.low), abs(self.high)) > LARGE:
            return True
        return math.isfinite(self.mean) and math.isfinite(self.square) and self.square >= 0.0

    @property
    def sd(self) -> float:
        return math.sqrt(self.square / self.weight) if self.weight else 0.0


@dataclass
class Facts:
    """What one column holds, as far as it was read; its kind is None where nothing was seen yet."""

    source: str
    wanted: str | None
    missing_values: tuple[Level, ...] = ()  # read as gaps
    kind: str | None = None
    is_time: bool = False  # dates asked for as numbers
    has_missing: bool = False
    moments: Moments = field(default_factory=Moments)  # of a datetime: of its days
    levels: list[Level] = field(default_factory=list)
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)  # of a datetime: `ranges_of_parts`

    def add(self, series: pd.Series, weight: Float[np.ndarray, " n"]) -> "Facts":
        """The facts with some more rows."""
        series = with_gaps(series, self.source, self.missing_values)
        kind = self.wanted or self.kind
        if self.kind is None and series.notna().any():
            natural = kind_of(series, self.source, False, reads_text=False)
            kind, self.is_time = self.wanted or natural, self.wanted == "number" and natural == "datetime"
        if kind is None or not series.notna().any():
            return replace(self, has_missing=self.has_missing or bool(len(series)))
        return self.merged(self._of(series, weight, kind))

    def _of(self, series, weight, kind: str) -> "Facts":
        own = Facts(self.source, self.wanted, self.missing_values, kind, self.is_time)
        if kind in ("number", "datetime"):
            time = kind == "datetime" or self.is_time
            when = instants(series, self.source) if time else None
            column = Column(self.source, self.source, "number", missing_values=self.missing_values)
            values = read(series, [column])[0] if when is None else part_of(when, "time")
            seen = ~np.isnan(values)
            own.moments, own.has_missing = Moments.of(values[seen], weight[seen]), not seen.all()
            if kind == "datetime" and when is not None:
                own.parts = ranges_of_parts(when)
            return own
        own.levels = list(levels_of(series, self.source, kind))
        codes = codes_of(series, Column(self.source, self.source, kind, levels=tuple(own.levels)))
        if kind == "boolean" and (codes == UNSEEN).any():
            value = series.loc[codes == UNSEEN].iloc[0]
            raise ValueError(
                f"The column {self.source!r} must hold booleans, got {value!r}: make it a 'category' instead."
            )
        own.has_missing = bool(np.isnan(codes).any())
        return own

    def merged(self, other: "Facts") -> "Facts":
        """The facts with those of other rows."""
        levels = list(unified([*self.levels, *other.levels]))
        if len(levels) > MOST_LEVELS_KEPT:
            raise ValueError(
                f"The column {self.source!r} has more than {MOST_LEVELS_KEPT} levels: if it names the rows, leave "
                "it out."
            )
        parts = dict(self.parts)
        for part, (low, high) in other.parts.items():
            before = parts.get(part, (low, high))
            parts[part] = min(low, before[0]), max(high, before[1])
        return replace(
            self,
            kind=self.kind or other.kind,
            is_time=self.is_time or other.is_time,
            has_missing=self.has_missing or other.has_missing,
            moments=self.moments + other.moments,
            levels=levels,
            parts=parts,
        )

    def columns(self, sample: pd.Series) -> list[Column]:
        """The inputs that the column becomes."""
        known = dict(has_missing=self.has_missing, missing_values=self.missing_values)
        column = functools.partial(Column, source=self.source, **known)
        if self.kind == "datetime":
            time = column(f"{self.source} (time)", kind="number", part="time")
            return [self._scaled(time, sample)] + [
                column(f"{self.source} ({part})", kind="ordered", part=part, levels=PARTS[part])
                for part in parts_that_vary(self.parts)
            ]
        if self.kind in (None, "number") or not self.levels:
            part = "time" if self.is_time else None
            return [self._scaled(column(self.source, kind="number", part=part), sample)]
        # the order of levels that are declared is that of the files
        is_declared = self.kind == "ordered" and self.wanted is None
        levels = (False, True) if self.kind == "boolean" else self.levels if is_declared else in_order(self.levels)
        return [column(self.source, kind=self.kind, levels=tuple(levels))]

    def _scaled(self, column: Column, sample: pd.Series) -> Column:
        """The column, scaled as `learn` does: by mean and sd, or where tails reach far by quartiles."""
        own = self.moments
        if not own.weight:
            return column
        check_range(self.source, own.low, own.high)
        away = max(own.high - own.mean, own.mean - own.low)
        if math.isfinite(own.sd) and own.sd > 0.0 and away <= FAR * own.sd:
            return replace(column, centre=own.mean, scale=own.sd)
        values = read(sample, [column])[0]
        values = np.append(values[~np.isnan(values)], [own.low, own.high])
        centre, scale, tail = scaling(values, np.ones(len(values)))
        return replace(column, centre=centre, scale=scale, tail=tail)

    def to_json(self) -> Record:
        return asdict(self)

    @classmethod
    def from_json(cls, d: object) -> "Facts":
        """The facts that `to_json` wrote, or a ValueError: a checkpoint may come from anyone."""
        d = claims.record(d, "the facts of a column", [each.name for each in fields(cls)])
        own = claims.record(d["moments"], "the moments", [each.name for each in fields(Moments)])
        numbers = {name: value for name, value in own.items() if claims.is_number(value)}
        are_sound = len(numbers) == len(own) and Moments(**numbers).is_sound
        claims.demand(are_sound, "the moments", "those of numbers", own)
        moments = Moments(**numbers)
        if not isinstance(d["parts"], dict):
            raise claims.unfit("the parts of a datetime", "an object", d["parts"])
        parts = {}
        for name, pair in d["parts"].items():
            low, high = claims.listed(pair, "a part's codes", 2)
            parts[claims.one_of(name, "a part", (*PARTS, *WITHIN_MONTH))] = (
                claims.number(low, name),
                claims.number(high, name),
            )
        levels = [_level(each) for each in claims.listed(d["levels"], "the levels")]
        return cls(
            claims.text(d["source"], "the source"),
            _kind(d["wanted"], "the wanted of a column"),
            tuple(_level(each) for each in claims.listed(d["missing_values"], "the missing values")),
            _kind(d["kind"], "the kind of a column"),
            claims.flag(d["is_time"], "is_time"),
            claims.flag(d["has_missing"], "has_missing"),
            moments,
            levels,
            parts,
        )


def _kind(value: object, what: str) -> str | None:
    if value is None or (isinstance(value, str) and value in FEATURE_TYPES):
        return value
    raise claims.unfit(what, "known", value)


def _level(value: object) -> Level:
    if isinstance(value, str | int | float):
        return value
    raise claims.unfit("a level", "text or a number", value)


def begin(
    sources: Sequence[str], feature_types: Mapping | Sequence | None, missing_values: MissingLike = None
) -> list[Facts]:
    """What is known of columns before any row."""
    wanted = wanted_kinds(feature_types, tuple(sources)), wanted_gaps(missing_values, tuple(sources))
    return [Facts(*each) for each in zip(sources, *wanted, strict=True)]


def with_rows(
    facts: Sequence[Facts],
    frame: TableLike,
    weight: Float[np.ndarray, " n"],
    numbers: Int[np.ndarray, " n"] | None = None,
) -> list[Facts]:
    """What is known with the rows of a frame, which has these columns in this order; errors name rows by `numbers`."""
    shown = weight > 0
    series = opened(frame).columns
    if numbers is not None:
        series = [each.set_axis(numbers) for each in series]
    return [each.add(own.loc[shown], weight[shown]) for each, own in zip(facts, series, strict=True)]


def schema_of(facts: Sequence[Facts], sample: TableLike) -> Schema:
    """How the table is read; `sample` is a frame of some of its rows."""
    columns: list[Column] = []
    for each, series in zip(facts, opened(sample).columns, strict=True):
        columns += each.columns(series)
    return Schema(tuple(columns), tuple(each.source for each in facts), True)
