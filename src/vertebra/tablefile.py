"""Tables as files: CSV, TSV and Parquet, read and written; and paths, checked before any work.

The command line imports this for its help, so pandas is imported where a table is read.
"""

import contextlib
import difflib
import gzip
import io
import os
import pathlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Frame = Any  # a pandas.DataFrame

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
# Bytes from which a Parquet file is read some rows at a time; row groups, and rows of each, by which columns are known.
LARGE, N_LOOKED_AT, ROWS_LOOKED_AT = 2**29, 20, 1000


class Refused(Exception):
    """Wrong use: a line for the user, and status 2."""


def read_table(name: str) -> Frame:
    """A table as a frame whose columns have names of text."""
    source: Any = name
    ending, shown = ".csv", "standard input"
    if name != "-":
        ending, shown = ending_of(name), name
        check_file(pathlib.Path(name))
    elif sys.stdin.isatty():
        raise Refused("standard input is a terminal: pipe a table in, or name a file.")
    else:
        source = sys.stdin.buffer
    import pandas as pd

    from vertebra.column import MISSING_WORDS

    try:
        if ending in (".parquet", ".pq"):
            frame = pd.read_parquet(source)
            if any(each is not None for each in frame.index.names):
                frame = frame.reset_index()
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # rows of more fields than names
                frame = pd.read_csv(
                    source,
                    sep="\t" if ending == ".tsv" else ",",
                    index_col=False,
                    low_memory=False,
                    na_values=sorted(MISSING_WORDS),
                    skipinitialspace=True,
                )
    except ImportError:
        raise Refused(f"{shown}: reading Parquet needs pyarrow. Install it: pip install pyarrow.") from None
    except UnicodeDecodeError:
        raise Refused(f"{shown} is not text in UTF-8: save it as UTF-8.") from None
    except pd.errors.EmptyDataError:
        raise Refused(f"{shown} is empty.") from None
    except pd.errors.ParserWarning:
        raise Refused(f"{shown} cannot be read as CSV: its rows have more fields than its first line names.") from None
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

    from vertebra.parquet import Parquet

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


def encoded(frame: Frame, ending: str) -> bytes:
    """A frame as a file of this ending."""
    if ending in (".parquet", ".pq"):
        buffer = io.BytesIO()
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise Refused("writing Parquet needs pyarrow. Install it: pip install pyarrow.") from None
        return buffer.getvalue()
    data = frame.to_csv(index=False, sep="\t" if ending == ".tsv" else ",", lineterminator="\n").encode()
    return gzip.compress(data, mtime=0) if ending == ".csv.gz" else data


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
