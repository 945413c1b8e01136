"""Predictions of an additive model from plain tables, with NumPy alone: this file may be copied to where it serves.

f = c + Σ of products of functions of one input each. A function is a column of its input's table: a row for each level
of a category, or for even steps of a number, between which lines are drawn; then one for missing values and one for
levels never seen.

>>> data = vb.datasets.synthetic("f1", n=100)
>>> model = vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y)
>>> model.to_tables("model.npz")
>>> served = vb.serving.load("model.npz")
>>> vb.metrics.rmse(served.predict(data.x), model.predict(data.x)) < 0.1
True
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1
# Rows that are worked on together: few enough that what is looked up stays near the processor.
CHUNK = 4096


def load(path: str | os.PathLike[str]) -> "Served":
    """The model in a file; nothing in the file is run.

    >>> vb.serving.load("model.npz").sources[:3]
    ['x0', 'x1', 'x2']
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(bytes(arrays.pop("header")).decode())
    if header["format"] != FORMAT:
        raise ValueError(
            f"{os.fspath(path)} has the format {header['format']}, wanted {FORMAT}: write the tables again."
        )
    missing = frozenset(header["missing"])
    inputs = [_Input(record, arrays[f"table/{i}"], missing) for i, record in enumerate(header["inputs"])]
    terms = [_Term(int(t["output"]), tuple(t["inputs"]), tuple(t["at"]), int(t["n"])) for t in header["terms"]]
    return Served(header["sources"], inputs, terms, np.array(header["constants"]), bool(header["is_mean"]))


class _Term(NamedTuple):
    """Σ_r Π_i of column at_i + r of the inputs' tables, for n values of r."""

    output: int
    inputs: tuple[int, ...]
    at: tuple[int, ...]
    n: int


class _Input:
    """How the values of a column become rows of its table, and what stands there."""

    def __init__(self, record: dict[str, Any], table: np.ndarray, missing: frozenset[str]):
        self.name, self.source, self.part = record["name"], record["source"], record["part"]
        self.centre, self.scale, self.tail = record["centre"], record["scale"], record["tail"]
        self.low, self.step = record["low"], record["step"]
        self.levels = record["words"] | {_key(level): code for code, level in enumerate(record["levels"])}
        self.missing = missing  # what text writes where there is no value, spaces around it aside
        self.is_category = bool(record["levels"])
        self.table = np.ascontiguousarray(table)
        self.n = len(table) - 2
        if not self.is_category:
            # beside each value the way to the next one; none from the last, nor from missing
            rise = np.diff(table, axis=0, append=0.0)
            rise[self.n - 1 :] = 0.0
            self.table = np.ascontiguousarray(np.concatenate([table, rise], axis=1))

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Rows of a category's table, or numbers on the scale of the steps, for any values of the column."""
        if self.part is not None:
            values = _part(values, self.part)
        if not self.is_category:
            return np.asarray(values, dtype=np.float64)
        if self.part is not None:
            return np.where(np.isnan(values), self.n, values).astype(np.int32)
        distinct: dict[str, Any] = dict(zip(map(str, values), values, strict=True))
        found = {text: self._level(value) for text, value in distinct.items()}
        return np.fromiter((found[text] for text in map(str, values)), dtype=np.int32, count=len(values))

    def _level(self, value: Any) -> int:
        text = str(value)
        if value is None or text in ("<NA>", "NaT", "nan"):
            return self.n
        known = self.levels.get(_key(value))
        if known is not None:
            return known
        return self.n if text.strip() in self.missing else self.n + 1

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """The functions of some rows, (n, columns)."""
        if self.is_category:
            return self.table.take(codes, axis=0)
        u = (codes - self.centre) / self.scale
        if self.tail > 0.0:
            size = np.abs(u)
            beyond = np.maximum(size - self.tail, 0.0)
            u = np.sign(u) * (np.minimum(size, self.tail) + np.arcsinh(beyond))
        place = np.clip((u - self.low) / self.step, 0.0, self.n - 1.0)
        missing = np.isnan(place)
        place[missing] = self.n
        row = place.astype(np.int32)
        found = self.table.take(row, axis=0)
        half = found.shape[1] // 2
        return found[:, :half] + (place - row).astype(np.float32)[:, None] * found[:, half:]


class Served:
    """An additive model as tables.

    >>> served.predict({name: data.x[:4, i] for i, name in enumerate(served.sources)}).shape
    (4,)
    """

    def __init__(
        self, sources: list[str], inputs: list[_Input], terms: list[_Term], constants: np.ndarray, is_mean: bool
    ):
        self.sources, self.inputs, self.terms = sources, inputs, terms
        self.constants, self.is_mean = constants, is_mean
        self._read = sorted({i for term in terms for i in term.inputs})

    def predict(self, X: Any, *, n_threads: int | None = None) -> np.ndarray:
        """The mean of y, (n,) or (n, targets)."""
        if not self.is_mean:
            raise ValueError("The mean of y is not f for this model's likelihood: `predict_f` has f on the link scale.")
        return self.predict_f(X, n_threads=n_threads)

    def predict_f(self, X: Any, *, n_threads: int | None = None) -> np.ndarray:
        """The mean of f on the link scale, (n,) or (n, outputs).

        X is a mapping of columns by name, a data frame, or an array with the columns in the order of `sources`.
        """
        get, n = self._columns(X)
        codes = {i: self.inputs[i].codes(get(self.inputs[i].source)) for i in self._read}
        result = np.empty((n, len(self.constants)))

        def work(start: int) -> None:
            rows = slice(start, start + CHUNK)
            values = {i: self.inputs[i](codes[i][rows]) for i in self._read}
            part = result[rows]
            part[:] = self.constants
            for output, inputs, at, width in self.terms:
                product = values[inputs[0]][:, at[0] : at[0] + width]
                for i, place in zip(inputs[1:-1], at[1:-1], strict=True):
                    product = product * values[i][:, place : place + width]
                if len(inputs) > 1:
                    part[:, output] += np.einsum("nr,nr->n", product, values[inputs[-1]][:, at[-1] : at[-1] + width])
                else:
                    part[:, output] += product[:, 0]

        starts = range(0, n, CHUNK)
        n_threads = n_threads or os.cpu_count() or 1
        if n_threads == 1 or len(starts) < 4:
            for start in starts:
                work(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(work, starts))
        return result[:, 0] if result.shape[1] == 1 else result

    def _columns(self, X: Any) -> tuple[Callable[[str], np.ndarray], int]:
        if hasattr(X, "keys") or hasattr(X, "columns"):
            lacking = [name for name in self.sources if name not in (X.columns if hasattr(X, "columns") else X)]
            if lacking:
                raise ValueError(f"`X` must have the column {lacking[0]!r}, which is not there.")
            return (lambda name: np.asarray(X[name])), len(X[self.sources[0]])
        array = np.asarray(X)
        if array.ndim != 2 or array.shape[1] != len(self.sources):
            raise ValueError(f"`X` must have {len(self.sources)} columns, got the shape {array.shape}.")
        places = {name: i for i, name in enumerate(self.sources)}
        return (lambda name: array[:, places[name]]), len(array)


def _key(level: Any) -> str:
    """What a level is known by: 1 and 1.0 are one."""
    if isinstance(level, bool | np.bool_):
        return str(bool(level))
    if isinstance(level, int | float | np.number) and np.isfinite(level) and level == int(level):
        return str(int(level))
    return str(level)


def _part(values: np.ndarray, part: str) -> np.ndarray:
    """A part of times in UTC: days since 1970, or the number of the month, the weekday (Monday is 0) or the hour."""
    when = np.asarray(values).astype("datetime64[us]")
    microseconds = when.astype(np.int64).astype(np.float64)
    days = microseconds / 86_400e6
    number = {
        "time": days,
        "month": when.astype("datetime64[M]").astype(np.int64) % 12,
        "weekday": (np.floor(days) + 3.0) % 7.0,
        "hour": np.floor(days % 1.0 * 24.0 + 1e-9),
    }[part]
    return np.where(np.isnat(when), np.nan, number)
