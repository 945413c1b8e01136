"""Tables as files: CSV, TSV and Parquet, read and written; and paths, checked before any work.

The command line imports this for its help, so pandas is imported where a table is read.
"""

import contextlib
import csv
import difflib
import gzip
import io
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame as Frame
else:
    Frame = object  # a pandas.DataFrame: it takes long to import, and help needs none of it
Bytes = io.BytesIO | gzip.GzipFile | io.BufferedReader

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
# How a cell begins that spreadsheets run; a number may begin so too.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
# Bytes from which a Parquet file is read some rows at a time; row groups, and rows of each, by which columns are known.
LARGE, N_LOOKED_AT, ROWS_LOOKED_AT = 2**29, 20, 1000


class Refused(Exception):
    """Wrong use: a line for the user, and status 2."""


def read_table(name: str) -> Frame:
    """A table as a frame whose columns have names of text, and whose rows are numbered from 0.

    What is odd in a file of text is a warning: rows of fewer fields than columns, and names that are there twice. The
    names of the latter stand in `attrs["repeated"]`, with what the other columns are read as.
    """
    ending, shown = ".csv", "standard input"
    if name != "-":
        ending, shown = ending_of(name), name
        check_file(pathlib.Path(name))
    elif sys.stdin.isatty():
        raise Refused("standard input is a terminal: pipe a table in, or name a file.")
    import pandas as pd

    try:
        if ending in (".parquet", ".pq"):
            frame = pd.read_parquet(name)
            frame = frame.reset_index(drop=all(each is None for each in frame.index.names))
        else:
            frame = _read_text(name, ending, shown)
    except ImportError:
        raise Refused(f"{shown}: reading Parquet needs pyarrow. Install it: pip install pyarrow.") from None
    except UnicodeDecodeError:
        raise Refused(f"{shown} is not text in UTF-8: save it as UTF-8.") from None
    except pd.errors.EmptyDataError:
        raise Refused(f"{shown} is empty.") from None
    except (OSError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused(f"{shown} cannot be read as {'Parquet' if ending[1] == 'p' else 'CSV'}: {reason}") from None
    frame.columns = pd.Index([str(each) for each in frame.columns])
    if not frame.columns.is_unique:
        raise Refused(f"{shown} has more than one column {frame.columns[frame.columns.duplicated()][0]!r}.")
    if not len(frame):
        raise Refused(f"{shown} has no rows.")
    if frame.shape[1] == 1 and (found := [each for each in ";\t|" if each in frame.columns[0]]):
        raise Refused(f"{shown} has one column only, {frame.columns[0]!r}: is it separated by {found[0]!r}, not ','?")
    return frame


def _read_text(name: str, ending: str, shown: str) -> Frame:
    """A frame from CSV or TSV."""
    import pandas as pd

    from vertebra.tables.values import MISSING_WORDS

    held = sys.stdin.buffer.read() if name == "-" else b""  # a pipe is read once, and may be looked at again

    def begin() -> Bytes:
        if name == "-":
            return io.BytesIO(held)
        return gzip.open(name, "rb") if ending == ".csv.gz" else open(name, "rb")

    separator = "\t" if ending == ".tsv" else ","
    try:
        with warnings.catch_warnings(), begin() as file, _Text(file, shown) as text:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows of more fields than names
            frame = pd.read_csv(
                text,
                sep=separator,
                index_col=False,
                low_memory=False,
                na_values=sorted(MISSING_WORDS),
                skipinitialspace=True,
            )
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        rows = _rows_of(begin, separator)
        n_columns = len(next(rows)[1])
        for line, fields in rows:
            if len(fields) > n_columns:
                raise Refused(
                    f"{shown} cannot be read as CSV: line {line} has {len(fields)} fields, more than the {n_columns} "
                    f"columns of the first line: quote text that holds a {separator!r}."
                ) from None
        raise Refused(f"{shown} cannot be read as CSV: {error}") from None
    _, names = next(_rows_of(begin, separator))
    frame.attrs["repeated"] = _repeated(names, [str(each) for each in frame.columns], shown)
    # a short row lacks the last field at least
    if frame.shape[1] > 1 and frame.iloc[:, -1].isna().any():
        _tell_short_rows(_rows_of(begin, separator), shown)
    return frame


class _Text(io.RawIOBase):
    """The bytes of a file, refused where they cannot be text: pandas takes a NUL for a part of a value."""

    def __init__(self, file: io.BufferedIOBase, shown: str):
        self._file, self._shown, self._n_lines = file, shown, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        before, nul, _ = data.partition(b"\0")
        self._n_lines += before.count(b"\n")
        if nul:
            raise Refused(
                f"{self._shown}: line {self._n_lines + 1} holds a NUL byte: it is damaged, or no text in UTF-8 (save "
                "it as UTF-8)."
            )
        buffer[: len(data)] = data
        return len(data)


def _rows_of(begin: Callable[[], Bytes], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The line that each row begins in, counted from 1, and its fields; the header first, blank lines left out."""
    limit = csv.field_size_limit(sys.maxsize)  # pandas has none
    try:
        with begin() as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=separator, skipinitialspace=True)
            line = 1
            for fields in reader:
                if len(fields) > 1 or (fields and fields[0].strip()):
                    yield line, fields
                line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _repeated(names: list[str], read: list[str], shown: str) -> dict[str, list[str]]:
    """The names that several columns have, and what those after the first are read as; it says so."""
    others: dict[str, list[str]] = {}
    for own, now in zip(names, read, strict=False):
        if own != now and own:
            others.setdefault(own, []).append(now)
    for own, now in others.items():
        which = "the other is" if len(now) == 1 else "the others are"
        listed = ", ".join(map(repr, now))
        warnings.warn(f"{shown} has more than one column {own!r}: {which} read as {listed}.", stacklevel=4)
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
        raise Refused(words + "is the first line the header of these rows? Correct it, or fill the rows up.")
    warnings.warn(words + "what they lack is read as gaps.", stacklevel=4)


def is_large(name: str) -> bool:
    """Whether a table is read some rows at a time: a folder of Parquet files, or a big one."""
    path = pathlib.Path(name)
    if path.is_dir():
        return True
    return name.lower().endswith((".parquet", ".pq")) and path.is_file() and path.stat().st_size > LARGE


def some_rows(name: str) -> Frame:
    """Rows from all over a table in Parquet files: enough to see what its columns are for."""
    import numpy as np
    import pandas as pd

    from vertebra.tables.parquet import Parquet

    try:
        table = Parquet(name)
    except (ValueError, OSError, ImportError) as error:
        raise Refused(str(error)) from None
    chosen = np.unique(np.linspace(0, len(table.pieces) - 1, N_LOOKED_AT).astype(int))
    parts = [next(table.batches(table.columns, [int(k)])).part(0, ROWS_LOOKED_AT) for k in chosen]
    return pd.concat([each.frame(table.columns).to_pandas() for each in parts], ignore_index=True)


def ending_of(name: str) -> str:
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return ending
    raise Refused(f"{name}: a table must end in {', '.join(ENDINGS)}.")


def encoded(frame: Frame, ending: str, *, is_raw: bool = False) -> bytes:
    """A frame as a file of this ending.

    Spreadsheets take text that begins with = + - @, a tab or a new line for a formula, and run it: in CSV and TSV such
    cells and headers get an apostrophe before them, which makes them text again, unless they are wanted as they are.
    """
    if ending in (".parquet", ".pq"):
        buffer = io.BytesIO()
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise Refused("writing Parquet needs pyarrow. Install it: pip install pyarrow.") from None
        return buffer.getvalue()
    if not is_raw:
        frame = frame.rename(columns=_as_text)
        for k, dtype in enumerate(frame.dtypes):
            if getattr(dtype, "kind", "O") == "O":  # text, categories, and values of several types
                frame.isetitem(k, frame.iloc[:, k].astype(object).map(_as_text, na_action="ignore"))
    data = frame.to_csv(index=False, sep="\t" if ending == ".tsv" else ",", lineterminator="\n").encode()
    return gzip.compress(data, mtime=0) if ending == ".csv.gz" else data


def _as_text(value: object) -> object:
    """A cell that no spreadsheet runs; numbers are numbers, as text too."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA_STARTS) and not re.fullmatch(NUMBER, value)
    return f"'{value}" if is_formula else value


def check_file(path: pathlib.Path) -> None:
    if not path.exists():
        folder = path.parent
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1)
        raise Refused(f"{path}: there is no such file{f'; did you mean {near[0]!r}?' if near else '.'}")
    if path.is_dir():
        raise Refused(f"{path}: this is a folder, not a file.")


def check_writable(path: pathlib.Path, *, force: bool) -> None:
    """Refuses before any work what could not be written after it."""
    if path.is_dir():
        raise Refused(f"{path}: this is a folder, not a file.")
    if path.exists() and not force:
        raise Refused(f"{path} is there already: give --force to overwrite it.")
    if not path.parent.is_dir():
        raise Refused(f"{path}: there is no folder {str(path.parent)!r}.")
    if not os.access(path.parent, os.W_OK):
        raise Refused(f"{path.parent}: this folder cannot be written.")


@contextlib.contextmanager
def new_files(
    folder: pathlib.Path, names: Iterable[str], *, force: bool, is_shared: bool = False
) -> Iterator[list[pathlib.Path]]:
    """The paths of files to write in a folder, which is made; and taken away if it stays empty.

    A folder that is shared with other processes stays: another one may be about to write.
    """
    existed = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Refused(f"{folder}: this is a file, not a folder.") from None
    except OSError as error:
        raise Refused(f"{folder}: the folder cannot be made ({error.strerror}).") from None
    try:
        files = [folder / name for name in names]
        for path in files:
            check_writable(path, force=force)
        yield files
    finally:
        if not existed and not is_shared:
            with contextlib.suppress(OSError):
                folder.rmdir()


def nearest(name: str, names: Sequence[str]) -> str:
    """The end of a sentence: the name that was meant, or those there are."""
    by_lower = {each.lower(): each for each in names}
    if near := difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5):
        return f"; did you mean {by_lower[near[0]]!r}?"
    if not names:
        return "."
    return f": there {'is' if len(names) == 1 else 'are'} {', '.join(names[:10])}{', …' if len(names) > 10 else ''}."
