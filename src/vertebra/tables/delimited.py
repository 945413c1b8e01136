"""Tables of text with a mark between fields: encoding, mark, decimal mark and header as they are, guessed and said."""

import codecs
import csv
import io
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd

from vertebra.tables.endings import BadTable
from vertebra.tables.values import MISSING_WORDS
from vertebra.tables.written import NAME, POINTS, number_and_unit

Begin = Callable[[], Any]  # opens the bytes of a file from their start
SEPARATORS = (",", ";", "\t", "|", " ")
SHOWN = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
# Bytes by which an encoding is told, and rows by which marks and header are. Round numbers.
BYTES_LOOKED_AT, ROWS_LOOKED_AT = 2**16, 200
# The header may have so many lines of other text above it.
MOST_ABOVE = 20
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Format(NamedTuple):
    """How a file is to be read, where this is not to be guessed."""

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    sheet: str | int | None = None


class Layout(NamedTuple):
    """How a file of text is laid out: where the header stands, None where there is none."""

    encoding: str
    sep: str
    decimal: str
    header: int | None  # the line of the names, blank ones left out, from 0


def read_text(begin: Begin, shown: str, asked: Format, *, usual: str = ",") -> pd.DataFrame:
    """A frame from text with a mark between fields, `usual` unless another is found; what was guessed is a warning."""
    try:
        encoding = codecs.lookup(asked.encoding).name if asked.encoding else encoding_of(begin, shown)
    except LookupError:
        raise BadTable(
            f"{asked.encoding!r} is not the name of an encoding: utf-8, utf-16 and cp1252 are some."
        ) from None
    layout = _layout(begin, shown, encoding, asked, usual)
    frame = _parsed(begin, shown, layout)
    if layout.header is None:
        warnings.warn(
            f"{shown}: the first line has no names, only numbers: columns are called x0, x1, ….", stacklevel=5
        )
        return frame.set_axis([f"x{i}" for i in range(frame.shape[1])], axis=1)
    names = next(itertools.islice(_rows_of(begin, layout), layout.header, None))[1]
    if layout.header:
        line = next(itertools.islice(_rows_of(begin, layout), layout.header, None))[0]
        warnings.warn(f"{shown}: names are taken from line {line}; what stands above it is passed over.", stacklevel=5)
    frame.attrs["repeated"] = _repeated(names, [str(each) for each in frame.columns], shown)
    # a short row lacks the last field at least
    if frame.shape[1] > 1 and frame.iloc[:, -1].isna().any():
        _tell_short_rows(itertools.islice(_rows_of(begin, layout), layout.header, None), shown)
    return frame


# --- encoding ---------------------------------------------------------------------------------------------------------


def encoding_of(begin: Begin, shown: str) -> str:
    """UTF-8 where all of it is, UTF-16 or UTF-32 by their marks or their NUL bytes, else Windows-1252, with a word."""
    with begin() as file:
        start = file.read(BYTES_LOOKED_AT)
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    # of UTF-16 without a mark, every other byte of plain text is NUL
    even, odd = start[::2].count(0), start[1::2].count(0)
    if len(start) > 3 and max(even, odd) > 0.8 * (len(start) // 2) and min(even, odd) == 0:
        return "utf-16-be" if even else "utf-16-le"
    decoder = codecs.getincrementaldecoder("utf-8")()
    with begin() as file:
        try:
            while data := file.read(BYTES_LOOKED_AT):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            warnings.warn(f"{shown} is not UTF-8: read as Windows-1252.", stacklevel=6)
            return "cp1252"
    return "utf-8"


class _Text(io.RawIOBase):
    """The text of a file as UTF-8, refused where it holds a NUL, which pandas takes for a part of a value."""

    def __init__(self, file: Any, encoding: str, shown: str):
        self._file, self._shown, self._n_lines, self._rest = file, shown, 0, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace" if encoding == "cp1252" else "strict")
        self._encoding = encoding

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            data = self._file.read(BYTES_LOOKED_AT)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError:
                raise BadTable(
                    f"{self._shown} is not text in {self._encoding.upper()}: give another encoding."
                ) from None
            before, nul, _ = text.partition("\0")
            self._n_lines += before.count("\n")
            if nul:
                raise BadTable(
                    f"{self._shown}: line {self._n_lines + 1} holds a NUL byte: it is damaged, or no text in UTF-8."
                )
            self._rest = text.encode()
            if not data:
                break
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


# --- layout -----------------------------------------------------------------------------------------------------------


def _layout(begin: Begin, shown: str, encoding: str, asked: Format, usual: str) -> Layout:
    # spaces separate fields only where nothing else is usual: text is full of them
    marks = [asked.sep] if asked.sep else [each for each in SEPARATORS if each != " " or usual == " "]
    lines = {sep: _first_rows(begin, shown, encoding, sep) for sep in marks}
    if not any(lines.values()):
        raise BadTable(f"{shown} is empty.")
    if asked.sep:
        sep = asked.sep
    else:
        sep = max(lines, key=lambda each: (_fit(lines[each], each), each == usual, -SEPARATORS.index(each)))
        if sep != usual and usual != " ":
            warnings.warn(f"{shown}: fields are taken to be separated by {SHOWN[sep]}.", stacklevel=6)
    rows = lines[sep]
    header = _header(rows)
    decimal = asked.decimal or _decimal(rows[0 if header is None else header + 1 :], sep)
    if decimal == "," and asked.decimal is None:
        warnings.warn(f"{shown}: numbers are taken to have decimal commas.", stacklevel=6)
    return Layout(encoding, sep, decimal, header)


def _first_rows(begin: Begin, shown: str, encoding: str, sep: str) -> list[list[str]]:
    rows = _rows_of(begin, Layout(encoding, sep, ".", 0), shown)
    try:
        return [fields for _, fields in itertools.islice(rows, ROWS_LOOKED_AT)]
    except csv.Error:
        return []


def _fit(rows: list[list[str]], sep: str) -> float:
    """How well a mark explains the lines: the share of them with as many fields as most; 0 where that is one."""
    if not rows:
        return 0.0
    count, n = Counter(map(len, rows)).most_common(1)[0]
    if count < 2 or (sep == " " and len(rows[0]) != count):
        return 0.0
    # a first line with as many names is worth as much as half of the lines
    return n / len(rows) + 0.5 * (len(rows[0]) == count) - 0.6 * (sep == " ")


def _header(rows: list[list[str]]) -> int | None:
    """Which line has the names: the first, or one below lines of fewer fields; None where the first is data."""
    most = Counter(map(len, rows)).most_common(1)[0][0]
    first = rows[0]
    if len(first) >= most or most < 2:
        are_numbers = len(first) > 1 and all(number_and_unit(f, ".") or number_and_unit(f, ",") for f in first)
        are_years = all(re.fullmatch(r"(19|20)\d\d", f.strip()) for f in first)
        return None if are_numbers and not are_years and len(rows) > 1 else 0
    for k, fields in enumerate(rows[1 : MOST_ABOVE + 1], 1):
        if len(fields) < most:
            continue
        are_names = all(f.strip() for f in fields) and len({*fields}) == len(fields)
        return k if are_names and not any(number_and_unit(f, ".") for f in fields) and len(rows) > k + 1 else 0
    return 0


def _decimal(rows: list[list[str]], sep: str) -> str:
    """A comma where no comma separates fields, and numbers have one and no point that is none of thousands."""
    if sep == ",":
        return "."
    fields = [field.strip() for row in rows for field in row]
    is_comma = any(re.fullmatch(r"[+-]?\d{1,3}(\.?\d{3})*,\d+", field) for field in fields)
    is_point = any(re.fullmatch(r"[+-]?\d*\.\d+", field) and not _is_group(field) for field in fields)
    return "," if is_comma and not is_point else "."


def _is_group(field: str) -> bool:
    return re.fullmatch(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", field) is not None


# --- rows -------------------------------------------------------------------------------------------------------------


def _parsed(begin: Begin, shown: str, layout: Layout) -> pd.DataFrame:
    """The frame, of text, numbers and truth values as pandas tells them; what only looks like numbers stays text."""
    thousands = "." if layout.decimal == "," else None

    def read(**more: Any) -> pd.DataFrame:
        with warnings.catch_warnings(), begin() as file, _Text(file, layout.encoding, shown) as text:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows of more fields than names
            return pd.read_csv(
                io.BufferedReader(text),
                sep=r"\s+" if layout.sep == " " else layout.sep,
                index_col=False,
                low_memory=False,
                na_values=sorted(MISSING_WORDS),
                skipinitialspace=True,
                header=layout.header,
                decimal=layout.decimal,
                thousands=thousands,
                **more,
            )

    try:
        frame = read()
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        _tell_long_row(begin, shown, layout)
        raise BadTable(f"{shown} cannot be read as CSV: {error}") from None
    names = _no_numbers(begin, layout, frame)
    return read(dtype=dict.fromkeys(names, str)) if names else frame


def _no_numbers(begin: Begin, layout: Layout, frame: pd.DataFrame) -> list[Any]:
    """Columns of numbers some of which are names, with a zero before them, or dates: 31.12.2024 is no 31,122,024."""
    read = [k for k, dtype in enumerate(frame.dtypes) if getattr(dtype, "kind", "O") in "iuf"]
    found: set[int] = set()
    start = 0 if layout.header is None else layout.header + 1
    # points between digits are read over where the decimal mark is a comma
    if not read or (layout.decimal == "." and not _has_zeros(begin, layout)):
        return []
    for _, fields in itertools.islice(_rows_of(begin, layout), start, None):
        found |= {k for k in read if k < len(fields) and _is_no_number(fields[k].strip())}
        if len(found) == len(read):
            break
    return [frame.columns[k] for k in sorted(found)]


def _is_no_number(field: str) -> bool:
    return (field[:1] == "0" and NAME.fullmatch(field) is not None) or POINTS.fullmatch(field) is not None


def _has_zeros(begin: Begin, layout: Layout) -> bool:
    """Whether any field seems to begin with a zero and a digit: a quick look, before rows are taken apart."""
    mark = re.compile(rb"(?:^|[\s\"'" + re.escape(layout.sep).encode() + rb"])0\d")
    with begin() as file, _Text(file, layout.encoding, "the file") as raw:
        text, before = io.BufferedReader(raw), b""
        while data := text.read(BYTES_LOOKED_AT):
            if mark.search(before + data):
                return True
            before = data[-2:]
    return False


def _rows_of(begin: Begin, layout: Layout, shown: str = "the file") -> Iterator[tuple[int, list[str]]]:
    """The line at which every row begins, from 1, and its fields; the header too, blank lines left out."""
    limit = csv.field_size_limit(sys.maxsize)  # pandas has none
    try:
        with begin() as file, _Text(file, layout.encoding, shown) as raw:
            text = io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8-sig", newline="")
            reader = csv.reader(text, delimiter=layout.sep, skipinitialspace=True)
            line = 1
            for fields in reader:
                if layout.sep == " " and fields and not fields[-1]:
                    fields = fields[:-1]
                if len(fields) > 1 or (fields and fields[0].strip()):
                    yield line, fields
                line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _tell_long_row(begin: Begin, shown: str, layout: Layout) -> None:
    """Names the first row of more fields than names."""
    rows = itertools.islice(_rows_of(begin, layout), layout.header or 0, None)
    n_columns = len(next(rows)[1])
    for line, fields in rows:
        if len(fields) > n_columns:
            raise BadTable(
                f"{shown} cannot be read as CSV: line {line} has {len(fields)} fields, more than the {n_columns} "
                f"columns of the first line: quote text that holds a {layout.sep!r}, or say what separates fields."
            ) from None


def _repeated(names: list[str], read: list[str], shown: str) -> dict[str, list[str]]:
    """The names that several columns have, and what those after the first are read as; it says so."""
    others: dict[str, list[str]] = {}
    for own, now in zip(names, read, strict=False):
        if own != now and own:
            others.setdefault(own, []).append(now)
    for own, now in others.items():
        which = "the other is" if len(now) == 1 else "the others are"
        listed = ", ".join(map(repr, now))
        warnings.warn(f"{shown} has more than one column {own!r}: {which} read as {listed}.", stacklevel=5)
    return others


def _tell_short_rows(rows: Iterator[tuple[int, list[str]]], shown: str) -> None:
    """A warning where rows have fewer fields than columns; a table most of whose rows do is refused."""
    n_columns = len(next(rows)[1])
    n_rows, n_short, first = 0, 0, 0
    for line, fields in rows:
        n_rows += 1
        if len(fields) < n_columns:
            n_short, first = n_short + 1, first or line
    if not n_short:
        return
    words = (
        f"{shown}: {n_short:,} of {n_rows:,} rows {'has' if n_short == 1 else 'have'} fewer fields than the "
        f"{n_columns} columns, the first in line {first}: "
    )
    if 2 * n_short > n_rows:
        raise BadTable(words + "is the first line the header of these rows? Correct it, or fill the rows up.")
    warnings.warn(words + "what they lack is read as gaps.", stacklevel=5)
