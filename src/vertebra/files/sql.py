"""A fitted sum of terms as one query, for a warehouse: the link-scale prediction of every row of a table.

f is a sum of products of functions of one input each, as in `tabulated`. A function of levels is a CASE. One of a
number is a polynomial of its coordinate, and where it is local, lines from knot to knot: arithmetics and a CASE again,
and to rounding the model's own numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.files.onnx import codes_of_words
from vertebra.files.tabulated import of_terms, products_of
from vertebra.models.model import Model
from vertebra.tables.column import Column
from vertebra.tables.values import MISSING_WORDS
from vertebra.terms.functions import System, rank_curve
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# What a double and text are called.
DIALECTS = {"duckdb": ("DOUBLE", "VARCHAR"), "postgres": ("DOUBLE PRECISION", "TEXT")}
# Products of a term that are left out, and bends of a line, as shares of what there is: rounding, in double precision.
LEAST_PRODUCT, LEAST_BEND = 1e-12, 1e-13
# Parts of a time, numbered as the model's levels are.
PARTS = {
    "time": "EXTRACT(EPOCH FROM {0}) / 86400e0",
    "month": "EXTRACT(MONTH FROM {0}) - 1",
    "weekday": "EXTRACT(ISODOW FROM {0}) - 1",
    "hour": "EXTRACT(HOUR FROM {0})",
}


def to_sql(model: Model, table: str, *, keep: Sequence[str] = (), dialect: str = "duckdb") -> str:
    """The query: see `AdditiveRegressor.to_sql`."""
    if dialect not in DIALECTS:
        raise ValueError(f"`dialect` must be one of {', '.join(DIALECTS)}, got {dialect!r}.")
    if not isinstance(table, str) or not table.strip():
        raise ValueError(f"`table` must name a table, as the query is to write it, got {table!r}.")
    sums = [_Sum.of(model, _checked(model), output) for output in range(len(model.target.output_names))]
    query = _Query(model, DIALECTS[dialect])
    results = [query.result(each) for each in sums]
    names = ["f"] if len(sums) == 1 else [f"f_{name}" for name in model.target.output_names]
    kept = [f"{_named(name)} AS k{k}" for k, name in enumerate(keep)]
    steps = [
        ("vertebra_read", [*kept, *query.read] or ["1 AS k"], f"FROM {table}"),
        ("vertebra_scaled", ["*", *query.scaled], "FROM vertebra_read"),
        ("vertebra_placed", ["*", *query.placed], "FROM vertebra_scaled"),
        ("vertebra_functions", ["*", *query.functions], "FROM vertebra_placed"),
    ]
    written = ",\n".join(f"{name} AS (\n  SELECT\n    {_lines(what)}\n  {of}\n)" for name, what, of in steps)
    last = [f"k{k} AS {_named(name)}" for k, name in enumerate(keep)]
    last += [f"{result} AS {_named(name)}" for name, result in zip(names, results, strict=True)]
    return f"WITH {written}\nSELECT\n  {_lines(last, 2)}\nFROM vertebra_functions"


def _checked(model: Model) -> SumOfTerms:
    """The terms of a model; refuses what is no arithmetics of few inputs."""
    if model.found is None:
        raise ValueError(f"`model` must be an AdditiveRegressor or an AdditiveClassifier, got {model.kind}.")
    if model.posterior.remainder is not None or model.posterior.terms is None:
        raise ValueError(
            "`model` must be a sum of terms in closed form to be written as SQL, got one with networks: fit with "
            '`scheme="auto", remainder=False`.'
        )
    return model.posterior.terms


class _Sum(NamedTuple):
    """f of one output: a constant, and products of functions, each known by its input and its coefficients."""

    constant: float
    products: list[list[tuple[int, Float[np.ndarray, " k"]]]]

    @classmethod
    def of(cls, model: Model, terms: SumOfTerms, output: int) -> "_Sum":
        known, latent = of_terms(terms), output * model.likelihood.latent_per_target
        unit, tensors = model.target.unit(output), known.tensors[latent]
        by_term: dict[Term, np.ndarray] = {}
        for term, tensor in tensors:
            by_term[term] = by_term.get(term, 0.0) + unit * tensor
        least = LEAST_PRODUCT * float(np.sqrt(sum(np.sum(tensor**2) for tensor in by_term.values())))
        products = [
            list(zip(term, vectors, strict=True))
            for term, tensor in by_term.items()
            for vectors in products_of(tensor, least)
        ]
        return cls(model.target.origin(output) + unit * known.constants[latent], products)


class _Query:
    """The columns of every step, each written when it is first needed."""

    def __init__(self, model: Model, types: tuple[str, str]):
        self.model = model
        self.number, self.text = types
        self.terms = _checked(model)
        self.read: list[str] = []
        self.scaled: list[str] = []
        self.placed: list[str] = []
        self.functions: list[str] = []
        self._known: set[int] = set()

    def result(self, own: _Sum) -> str:
        """The sum of all products."""
        products = [" * ".join(self._function(i, vector) for i, vector in product) for product in own.products]
        return "\n    + ".join([_number(own.constant), *products])

    def _function(self, i: int, vector: Float[np.ndarray, " k"]) -> str:
        """The name of a column that holds a function of an input."""
        column = self.model.schema.columns[i]
        if i not in self._known:
            self._known.add(i)
            self._input(i, column)
        name = f"g{len(self.functions)}"
        written = self._of_levels(i, column, vector) if column.levels else self._of_number(i, vector)
        self.functions.append(f"{written} AS {name}")
        return name

    def _input(self, i: int, column: Column) -> None:
        """The steps from a column of the table to where its functions are known."""
        name = _named(column.source)
        if column.part is not None:
            self.read.append(f"CAST({PARTS[column.part].format(name)} AS {self.number}) AS r{i}")
        elif column.levels:
            self.read.append(f"CAST({name} AS {self.text}) AS r{i}")
        else:
            gaps = [_number(float(gap)) for gap in column.missing_values if not isinstance(gap, str)]
            number = f"CAST({name} AS {self.number})"
            gaps.append(f"CAST('NaN' AS {self.number})")
            self.read.append(f"CASE WHEN {number} IN ({', '.join(gaps)}) THEN NULL ELSE {number} END AS r{i}")
        if column.levels:
            return
        self.scaled.append(f"{_scaled(column, f'r{i}')} AS u{i}")
        self.placed.append(f"{_coordinate(self.terms.basis.systems[i], f'u{i}')} AS t{i}")

    def _at(self, i: int, codes: Sequence[int | float]) -> Float[np.ndarray, "m k"]:
        """All functions of an input at coded values, as the model encodes them."""
        coded = np.full((len(codes), len(self.model.schema.columns)), np.nan)
        coded[:, i] = codes
        return self.terms.basis.systems[i](self.model.encoding(coded)[:, i])

    def _of_levels(self, i: int, column: Column, vector: Float[np.ndarray, " k"]) -> str:
        n = len(column.levels)
        *levels, missing, unseen = self._at(i, [*range(n), np.nan, -1.0]) @ vector
        if column.part is not None:
            cases = [f"WHEN r{i} = {code} THEN {_number(value)}" for code, value in enumerate(levels)]
            return f"CASE {' '.join(cases)} ELSE {_number(missing)} END"
        words: dict[int, list[str]] = {}
        for word, code in _words(column).items():
            words.setdefault(code, []).append(_text(word))
        cases = [f"WHEN r{i} IS NULL THEN {_number(missing)}"]
        for code, own in words.items():
            cases.append(f"WHEN r{i} IN ({', '.join(own)}) THEN {_number([*levels, missing][code])}")
        blank = ", ".join(map(_text, sorted(MISSING_WORDS)))
        cases.append(f"WHEN TRIM(r{i}) IN ({blank}) THEN {_number(missing)}")
        return f"CASE {' '.join(cases)} ELSE {_number(unseen)} END"

    def _of_number(self, i: int, vector: Float[np.ndarray, " k"]) -> str:
        """A polynomial of the coordinate, and lines between knots."""
        system = self.terms.basis.systems[i]
        d, r = len(system.transform), system.table.shape[1]
        powers = np.polynomial.legendre.leg2poly(system.transform @ vector[:d])
        powers[0] += system.observed * vector[d + r]
        value = _number(powers[-1])
        for power in powers[-2::-1]:
            value = f"({value} * t{i} + {_number(power)})"
        if r and np.any(vector[d : d + r]):
            value = f"{value} + {_lines_between(system.knots, system.table @ vector[d : d + r], f'u{i}')}"
        (missing,) = self._at(i, [np.nan]) @ vector
        return f"CASE WHEN u{i} IS NULL THEN {_number(missing)} ELSE {value} END"


def _words(column: Column) -> dict[str, int]:
    """The code of every word for a level, or a gap; whole numbers also as SQL writes doubles."""
    words = codes_of_words(column)
    for level in column.levels:
        if isinstance(level, int | float) and not isinstance(level, bool) and float(level).is_integer():
            for word in (str(int(level)), f"{float(level):.1f}"):
                words.setdefault(word, column.levels.index(level))
    return words


def _scaled(column: Column, name: str) -> str:
    """`Column.standard`: codes of an ordered category stay as they are."""
    if column.kind != "number":
        return name
    u = f"(({name} - {_number(column.centre)}) / {_number(column.scale)})"
    if not column.tail:
        return u
    # sign(u)(min(|u|, tail) + asinh max(|u| − tail, 0))
    beyond = f"GREATEST(ABS({u}) - {_number(column.tail)}, 0e0)"
    grown = f"LN({beyond} + SQRT({beyond} * {beyond} + 1e0))"
    return f"SIGN({u}) * (LEAST(ABS({u}), {_number(column.tail)}) + {grown})"


def _coordinate(system: System, name: str) -> str:
    """Where a number lies in [−1, 1]: by its value, or half by value and half by rank where it has tails."""
    unit = _clipped(f"2e0 * ({name} - {_number(system.low)}) / {_number(system.width)} - 1e0")
    if not len(system.quantiles):
        return unit
    curve = rank_curve(system.quantiles)
    pieces = []
    for k, left in enumerate(curve.x[:-1]):
        way = f"({name} - {_number(left)})"
        c3, c2, c1, c0 = map(_number, curve.c[:, k])
        value = f"(({c3} * {way} + {c2}) * {way} + {c1}) * {way} + {c0}"
        pieces.append(f"WHEN {name} < {_number(curve.x[k + 1])} THEN {value}")
    first, last = map(_number, curve(curve.x[[0, -1]]).tolist())
    rank = f"CASE WHEN {name} <= {_number(curve.x[0])} THEN {first} {' '.join(pieces)} ELSE {last} END"
    return f"CASE WHEN {name} IS NULL THEN NULL ELSE {_clipped(f'0.5e0 * {unit} + {rank} - 0.5e0')} END"


def _lines_between(knots: Float[np.ndarray, " g"], values: Float[np.ndarray, " g"], name: str) -> str:
    """Lines from knot to knot, constant outside; knots at which nothing bends are left out."""
    slopes = np.diff(values) / np.diff(knots)
    bends = np.abs(np.diff(slopes)) > LEAST_BEND * np.abs(slopes).max(initial=1e-300)
    kept = np.flatnonzero(np.concatenate([[True], bends, [True]]))
    knots, values = knots[kept], values[kept]
    cases = [f"WHEN {name} <= {_number(knots[0])} THEN {_number(values[0])}"]
    for left, right, low, high in zip(knots[:-1], knots[1:], values[:-1], values[1:], strict=True):
        rise = _number((high - low) / (right - left))
        cases.append(f"WHEN {name} < {_number(right)} THEN {_number(low)} + {rise} * ({name} - {_number(left)})")
    return f"(CASE {' '.join(cases)} ELSE {_number(values[-1])} END)"


def _clipped(value: str) -> str:
    return f"LEAST(GREATEST({value}, -1e0), 1e0)"


def _number(value: float) -> str:
    """A double, to its last digit; with an exponent, since other numbers are decimals of few places."""
    written = f"{float(value):.16e}"
    return f"({written})" if written.startswith("-") else written


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def _lines(columns: Sequence[str], indent: int = 4) -> str:
    return f",\n{' ' * indent}".join(columns)
