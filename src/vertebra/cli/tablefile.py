"""Tables as files: CSV, TSV and Parquet, read and written; and paths, checked before any work.

The command line imports this for its help, so pandas is imported where a table is read.
"""

import ast
import contextlib
import difflib
import gzip
import io
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vertebra.tables import endings

if TYPE_CHECKING:
    from pandas import DataFrame as Frame

    from vertebra.tables.delimited import Format
else:
    Frame = Format = object  # they come with pandas, which takes long to import, and help needs none of it

# How a cell begins that spreadsheets run; a number may begin so too.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
# Bytes from which a Parquet file is read some rows at a time; row groups, and rows of each, by which columns are known.
LARGE, N_LOOKED_AT, ROWS_LOOKED_AT = 2**29, 20, 1000


class Refused(Exception):
    """Wrong use: a line for the user, and status 2."""


def read_table(name: str, asked: "Format | None" = None) -> Frame:
    """A table as a frame whose columns have names of text, and whose rows are numbered from 0.

    What is odd in a file, and what was guessed, is a warning. Names that are there twice stand in `attrs["repeated"]`,
    with what the other columns are read as.
    """
    shown = "standard input" if name == "-" else name
    if name != "-":
        ending_of(name)
        check_file(pathlib.Path(name))
    elif sys.stdin.isatty():
        raise Refused("standard input is a terminal: pipe a table in, or name a file.")
    from vertebra.tables.delimited import Format
    from vertebra.tables.tablefile import read_bytes

    ending = ".csv" if name == "-" else ending_of(name)
    # a pipe is read once, and may be looked at again
    held = sys.stdin.buffer.read() if name == "-" else b""
    begin = (lambda: io.BytesIO(held)) if name == "-" else (lambda: open(name, "rb"))  # noqa: SIM115 (its reader closes it)
    try:
        return read_bytes(begin, ending, shown, asked or Format())
    except endings.BadTable as error:
        raise Refused(in_flags(str(error))) from None


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


def ending_of(name: str, known: tuple[str, ...] = endings.ENDINGS) -> str:
    """The ending by which a file is read or written, or a refusal."""
    try:
        return endings.ending_of(name, known)
    except endings.BadTable as error:
        raise Refused(str(error)) from None


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
    if ending == ".xlsx":
        try:
            frame.to_excel(buffer := io.BytesIO(), index=False, engine="openpyxl")
        except ImportError:
            raise Refused("writing Excel needs openpyxl. Install it: pip install openpyxl.") from None
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


def quoted(text: str) -> str:
    """Text as one word of a shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _missing(found: re.Match[str]) -> str:
    """--missing, of a column as JSON writes its name, and a value as Python writes it."""
    value = ast.literal_eval(found[2])
    words = ",".join(map(str, value)) if isinstance(value, list) else value
    return f"--missing {quoted(f'{json.loads(found[1])}={words}')}"


# What Python calls it, and what the command line does.
FLAGS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"`?likelihood=\"(\w+)\"`?", r"--likelihood \1"),
    (r"`?target_transform=\"(\w+)\"`?", r"--transform \1"),
    (r"`?weights=\"(\w+)\"`?", r"--weights \1"),
    (r"`?conformal=True`?", "--conformal"),
    (r"`?feature_types=\{'([^']*)': '(\w+)'\}`?", r"--type '\1=\2'"),
    (r"`?missing_values=\{(\"(?:[^\"\\]|\\.)*\"): ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^}]*)\}`?", _missing),
    (r"fit with (--type)", r"give \1"),
    (r"another `likelihood`", "another --likelihood"),
    (r"give `time`", "give --time COLUMN"),
    (r"belong together, `groups`", "belong together, --groups COLUMN"),
    (r"Give `groups`, a column", "Give --groups, a column"),
    (r"give another encoding", "give another --encoding"),
    (r"say what separates fields", "give --sep"),
    (r"convert them with pandas\.to_datetime", "leave the column out: --drop"),
    (r"; `remainder=False` does without", ""),
    (r"; --likelihood gaussian does without", "; --likelihood gaussian does without"),
)


def in_flags(words: str) -> str:
    """Words of the library, with its arguments as the flags of the command line."""
    for found, flag in FLAGS:
        words = re.sub(found, flag, words)
    return words


def listed(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names as they were given, or with commas between them; a name may hold commas itself."""
    return [part for each in given for part in ([each] if each in names else map(str.strip, each.split(",")))]
