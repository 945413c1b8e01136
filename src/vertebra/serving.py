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

import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

FORMAT = 1
# Rows that are worked on together: few enough that what is looked up stays near the processor.
CHUNK = 4096
# What a file may hold: a list of its members of so many bytes (some 80 each), a header of so many, and so many values
# in it, which take a hundred bytes each once parsed.
MOST_LISTED, LONGEST_HEADER, MOST_VALUES = 4 * 2**20, 64 * 2**20, 4_000_000
MOST_ROWS = 2**21  # of a table: the levels of a category, of which a fit takes a million
# Products of so large numbers, and sums of some, are within single precision, which ends at 3e38.
LARGEST = 1e37
# The parts of a time, and how many levels each has; "time" itself is a number.
PARTS = {"time": 0, "month": 12, "weekday": 7, "hour": 24}

# What a file says, as JSON has it: each part is held to what it may be before it is used.
Json: TypeAlias = Any
# A mapping of columns by name, a data frame, or an array: these have no type in common.
Columns: TypeAlias = Any


class BadTables(ValueError):
    """The file cannot be loaded; the message says why, and what to do.

    >>> np.array([1.0, 2.0]).tofile("broken.npz")
    >>> vb.serving.load("broken.npz")
    Traceback (most recent call last):
    ...
    vertebra.serving.BadTables: broken.npz: ...
    """


def load(path: str | os.PathLike[str]) -> "Served":
    """The model in a file; nothing in the file is run, and anything odd about it is refused with `BadTables`.

    >>> vb.serving.load("model.npz").sources[:3]
    ['x0', 'x1', 'x2']
    """
    try:
        with open(path, "rb") as file:
            members = _members(file, os.fstat(file.fileno()).st_size)
        return _served(members)
    except BadTables as error:
        raise BadTables(f"{os.fspath(path)}: {error}") from None
    except (MemoryError, RecursionError) as error:
        raise BadTables(f"{os.fspath(path)}: it is too large to be loaded here ({type(error).__name__}).") from None


def _demand(holds: object, wrong: str) -> None:
    if not holds:
        raise BadTables(f"{wrong}. The file is damaged or is not one of tables: write it again with `to_tables`.")


def _members(file: BinaryIO, size: int) -> dict[str, bytes]:
    """The bytes of every member, which are stored as they are: no member is larger than the file."""
    # The list of members is at the end: 22 bytes that say how long it is. What would say so otherwise, for archives of
    # gigabytes, is not read.
    file.seek(max(size - 42, 0))
    end = file.read()[-42:]
    is_zip = len(end) == 42 and end[20:24] == b"PK\5\6" and end[:4] != b"PK\6\7"
    _demand(is_zip, "it is not an archive of NumPy's arrays, or is cut short")
    _demand(int.from_bytes(end[32:36], "little") <= MOST_LISTED, "it has too many members")
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
            for each in listed:
                is_stored = each.compress_type == zipfile.ZIP_STORED and each.file_size == each.compress_size
                _demand(is_stored and not each.flag_bits & 1, f"its member {each.filename[:100]!r} is packed or locked")
            _demand(sum(each.file_size for each in listed) <= size, "its members are larger than the file")
            for each in listed:
                _demand(each.filename not in members, f"its member {each.filename[:100]!r} stands there twice")
                members[each.filename] = archive.read(each)
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        OverflowError,
    ) as error:
        if isinstance(error, BadTables):
            raise
        _demand(False, f"it cannot be read ({error})")
    return members


def _array(members: dict[str, bytes], name: str, dtype: str, n_axes: int) -> np.ndarray:
    """An array of this type, whose shape is that of its bytes."""
    _demand(f"{name}.npy" in members, f"it lacks {name!r}")
    content = io.BytesIO(members.pop(f"{name}.npy"))
    try:
        version = np.lib.format.read_magic(content)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, found = header(content)
    except Exception as error:  # the text of a header is parsed as Python's, which fails in many ways
        shape, is_fortran, found = (), False, f"no array ({type(error).__name__})"
    _demand(found == np.dtype(dtype) and len(shape) == n_axes, f"{name!r} must be {dtype} of {n_axes} axes, is {found}")
    data = content.read()
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    # a table that no term reads has rows and no columns: no bytes that could say how many
    is_whole = all(0 <= n <= max(len(data), MOST_ROWS) for n in shape) and needed == len(data)
    _demand(is_whole, f"{name!r} has the shape {shape}, which {len(data)} bytes are not")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def _header(text: bytes) -> dict[str, Json]:
    """The header as JSON has it, no key twice, and no NaN."""

    def unique(pairs: list) -> dict:
        found = dict(pairs)
        _demand(len(found) == len(pairs), "a key of its header stands there twice")
        return found

    def no_number(name: str) -> None:
        _demand(False, f"its header holds {name}")

    is_short = len(text) <= LONGEST_HEADER and text.count(b",") + text.count(b":") <= MOST_VALUES
    _demand(is_short, "its header is too long")
    try:
        header = json.loads(text.decode(), object_pairs_hook=unique, parse_constant=no_number)
    except BadTables:
        raise
    except ValueError as error:
        _demand(False, f"its header is not valid JSON ({error})")
    _demand(isinstance(header, dict), "its header is not a JSON object")
    return header


def _served(members: dict[str, bytes]) -> "Served":
    """The model, if each part is what it should be and they fit together."""
    header = _header(_array(members, "header", "|u1", 1).tobytes())
    _demand("format" in header, "its header has no format")
    form = header["format"]
    _demand(_is_whole(form, 1), f"it has the format {str(form)[:100]}, wanted {FORMAT}")
    if form != FORMAT:
        raise BadTables(f"it has the format {form}, wanted {FORMAT}: write the tables again.")
    _hold(header, {"format", "sources", "inputs", "terms", "constants", "is_mean", "missing"}, "its header")
    sources, missing, constants = header["sources"], header["missing"], header["constants"]
    _demand(_are_texts(sources) and sources, "its sources are not a list of names")
    _demand(len(set(sources)) == len(sources), "its sources are not distinct")
    _demand(_are_texts(missing), "its words for missing values are not a list of text")
    _demand(
        isinstance(constants, list) and constants and all(map(_is_number, constants)), "its constants are no numbers"
    )
    _demand(isinstance(header["is_mean"], bool), "its is_mean is neither true nor false")
    _demand(isinstance(header["inputs"], list) and isinstance(header["terms"], list), "its inputs or terms are no list")
    inputs = []
    for i, record in enumerate(header["inputs"]):
        table = _array(members, f"table/{i}", "<f4", 2)
        _check_input(record, table, f"its input {i}", sources)
        inputs.append(_Input(record, table, frozenset(missing)))
    _demand(not members, f"it has the unknown member {next(iter(members), '')[:100]!r}")
    terms = [_term(record, inputs, len(constants), f"its term {k}") for k, record in enumerate(header["terms"])]
    for output, constant in enumerate(constants):
        sizes = [_largest(term, inputs) for term in terms if term.output == output]
        _demand(all(size <= LARGEST for size in sizes), f"its output {output} has terms larger than {LARGEST:g}")
        _demand(math.isfinite(abs(constant) + sum(sizes)), f"its output {output} is not finite")
    return Served(sources, inputs, terms, np.array(constants, dtype=np.float64), header["is_mean"])


def _check_input(record: Json, table: np.ndarray, what: str, sources: list[str]) -> None:
    names = {"name", "source", "part", "levels", "words", "centre", "scale", "tail", "low", "step"}
    gaps = record.get("gaps") if isinstance(record, dict) else None
    _hold(record, names | ({"gaps"} if gaps is not None else set()), what)
    are_gaps = gaps is None or (isinstance(gaps, list) and all(isinstance(v, str) or _is_number(v) for v in gaps))
    _demand(are_gaps, f"{what} has gaps that are neither text nor numbers")
    _demand(isinstance(record["name"], str), f"{what} has no name")
    _demand(record["source"] in sources, f"{what} is of no source")
    levels, words, part = record["levels"], record["words"], record["part"]
    are_levels = isinstance(levels, list) and all(isinstance(v, str | bool) or _is_number(v) for v in levels)
    _demand(are_levels, f"{what} has levels that are neither text nor numbers")
    _demand(
        part is None or (isinstance(part, str) and part in PARTS), f"{what} is the unknown part {str(part)[:100]!r}"
    )
    _demand(part is None or len(levels) == PARTS[part], f"{what} has other levels than its part of a time")
    are_words = isinstance(words, dict) and all(_is_whole(code, 0, len(levels) - 1) for code in words.values())
    _demand(are_words, f"{what} has words for other levels than its own")
    numbers = {name: record[name] for name in ("centre", "scale", "tail", "low", "step")}
    _demand(all(map(_is_number, numbers.values())), f"{what} must have finite numbers, has {numbers}")
    is_scaled = numbers["scale"] > 0.0 and numbers["step"] > 0.0 and numbers["tail"] >= 0.0
    _demand(is_scaled, f"{what} must have a scale and a step above 0, and a tail of at least 0, has {numbers}")
    # a number: the ends of one step at least; then for both missing and never seen
    wanted = len(table) == len(levels) + 2 if levels else len(table) >= 4
    _demand(wanted, f"{what} has a table of {len(table)} rows, for {len(levels)} levels")
    is_tame = not table.size or (np.isfinite(table).all() and float(np.abs(table).max()) <= LARGEST)
    _demand(is_tame, f"{what} has a table with numbers that are not finite, or larger than {LARGEST:g}")


def _term(record: Json, inputs: "list[_Input]", n_outputs: int, what: str) -> "_Term":
    _hold(record, {"output", "inputs", "at", "n"}, what)
    _demand(_is_whole(record["output"], 0, n_outputs - 1), f"{what} is of the output {str(record['output'])[:100]}")
    places, at, n = record["inputs"], record["at"], record["n"]
    are_inputs = isinstance(places, list) and places and all(_is_whole(i, 0, len(inputs) - 1) for i in places)
    _demand(are_inputs and len(set(places)) == len(places), f"{what} is not of some of the inputs")
    _demand(_is_whole(n, 1) and (n == 1 or len(places) > 1), f"{what} has {str(n)[:100]} products")
    are_columns = isinstance(at, list) and len(at) == len(places) and all(_is_whole(k, 0) for k in at)
    is_inside = are_columns and all(k + n <= inputs[i].n_columns for i, k in zip(places, at, strict=True))
    _demand(is_inside, f"{what} reads columns that its inputs' tables do not have")
    return _Term(record["output"], tuple(places), tuple(at), n)


def _largest(term: "_Term", inputs: "list[_Input]") -> float:
    """How large a term can be: its products, each at its largest, added up."""
    product = np.ones(term.n)
    for i, place in zip(term.inputs, term.at, strict=True):
        own = inputs[i].table[:, place : place + term.n]
        with np.errstate(over="ignore"):
            product = product * np.abs(own).max(axis=0, initial=0.0).astype(np.float64)
    return float(product.sum())


def _hold(record: object, names: set[str], what: str) -> None:
    _demand(isinstance(record, dict) and record.keys() == names, f"{what} must have {', '.join(sorted(names))}")


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_whole(value: object, low: int, high: int | float = math.inf) -> bool:
    return type(value) is int and low <= value <= high


def _is_number(value: Json) -> bool:
    """A finite one; not every whole number is a floating-point number."""
    return type(value) in (int, float) and abs(value) <= 1.7e308


class _Term(NamedTuple):
    """Σ_r Π_i of column at_i + r of the inputs' tables, for n values of r."""

    output: int
    inputs: tuple[int, ...]
    at: tuple[int, ...]
    n: int


class _Input:
    """How the values of a column become rows of its table, and what stands there."""

    def __init__(self, record: dict[str, Json], table: np.ndarray, missing: frozenset[str]):
        self.name, self.source, self.part = record["name"], record["source"], record["part"]
        self.centre, self.scale, self.tail = record["centre"], record["scale"], record["tail"]
        self.low, self.step = record["low"], record["step"]
        self.levels = record["words"] | {_key(level): code for code, level in enumerate(record["levels"])}
        gaps = record.get("gaps", [])  # values that stand for none: numbers where numbers are, texts where text is
        self.gaps = [value for value in gaps if not isinstance(value, str)]
        # what text writes where there is no value, spaces around it aside
        self.missing = missing | {value.strip() for value in gaps if isinstance(value, str)}
        self.is_category = bool(record["levels"])
        self.table = np.ascontiguousarray(table)
        self.n, self.n_columns = len(table) - 2, table.shape[1]
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
            numbers = np.asarray(values, dtype=np.float64)
            return np.where(np.isin(numbers, self.gaps), np.nan, numbers) if self.gaps and not self.part else numbers
        if self.part is not None:
            return np.where(np.isnan(values), self.n, values).astype(np.int32)
        distinct: dict[str, object] = dict(zip(map(str, values), values, strict=True))
        found = {text: self._level(value) for text, value in distinct.items()}
        return np.fromiter((found[text] for text in map(str, values)), dtype=np.int32, count=len(values))

    def _level(self, value: object) -> int:
        text = str(value)
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is None or text in ("<NA>", "NaT", "nan") or (is_number and value in self.gaps):
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


class _OneRow:
    """The same for a single row: all inputs' tables end to end, so that few of NumPy's calls do for all of them."""

    def __init__(self, inputs: list[_Input], terms: list[_Term], n_outputs: int):
        widths = np.array([each.n_columns for each in inputs], dtype=int)
        scales = [(0, 1, 0, 0, 1) if e.is_category else (e.centre, e.scale, e.tail, e.low, e.step) for e in inputs]
        self.centre, self.scale, tail, self.low, self.step = np.array(scales, dtype=np.float64).reshape(-1, 5).T
        self.tail, self.n_outputs = np.where(tail > 0.0, tail, np.inf), n_outputs
        ends = [(e.n, e.n + (1.0 if e.is_category else -1.0)) for e in inputs]  # the row of gaps, the last of others
        self.gap, self.last = np.array(ends, dtype=np.float64).reshape(-1, 2).T
        values = [e.table[:, : e.n_columns] for e in inputs]
        rises = [0.0 * e.table if e.is_category else e.table[:, e.n_columns :] for e in inputs]
        self.table, self.rise = (np.concatenate([*map(np.ravel, p), np.zeros(0, np.float32)]) for p in (values, rises))
        self.of, first = np.repeat(np.arange(len(inputs)), widths), np.cumsum(widths) - widths
        start = np.cumsum([0, *(each.size for each in values)])[:-1]
        self.base, self.width = (start - first)[self.of] + np.arange(len(self.of)), widths[self.of]
        # the columns of each product, and behind the last of them a 1
        most = max((len(term.inputs) for term in terms), default=1)
        columns = [[first[i] + at + r for i, at in zip(t.inputs, t.at, strict=True)] for t in terms for r in range(t.n)]
        ones = most * [len(self.of)]
        self.columns = np.array([(each + ones)[:most] for each in columns], dtype=int).reshape(-1, most).T
        self.output = np.array([t.output for t in terms for _ in range(t.n)], dtype=int)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        u = (codes - self.centre) / self.scale
        if (is_far := np.abs(u) > self.tail).any():
            far, tail = u[is_far], self.tail[is_far]
            u[is_far] = np.sign(far) * (tail + np.arcsinh(np.abs(far) - tail))
        place = np.minimum(np.maximum((u - self.low) / self.step, 0.0), self.last)
        row = (place := np.where(np.isnan(place), self.gap, place)).astype(int)
        at = self.base + row[self.of] * self.width
        values = np.append(self.table[at] + (place - row)[self.of] * self.rise[at], 1.0)
        return np.bincount(self.output, values[self.columns].prod(axis=0), self.n_outputs)


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
        own = [term._replace(inputs=tuple(map(self._read.index, term.inputs))) for term in terms]
        self._one = _OneRow([inputs[i] for i in self._read], own, len(constants))

    def predict(self, X: Columns, *, n_threads: int | None = None) -> np.ndarray:
        """The mean of y, (n,) or (n, targets)."""
        if not self.is_mean:
            raise ValueError("The mean of y is not f for this model's likelihood: `predict_f` has f on the link scale.")
        return self.predict_f(X, n_threads=n_threads)

    def predict_f(self, X: Columns, *, n_threads: int | None = None) -> np.ndarray:
        """The mean of f on the link scale, (n,) or (n, outputs).

        X is a mapping of columns by name, a data frame, or an array with the columns in the order of `sources`.
        """
        get, n = self._columns(X)
        codes = {i: self.inputs[i].codes(get(self.inputs[i].source)) for i in self._read}
        if n == 1:
            said = self.constants + self._one(np.array([codes[i][0] for i in self._read], dtype=np.float64))
            return said if len(said) == 1 else said[None]
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

    def _columns(self, X: Columns) -> tuple[Callable[[str], np.ndarray], int]:
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


def _key(level: object) -> str:
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
