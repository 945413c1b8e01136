"""Tables in files of every kind that people have: text, spreadsheets, archives, JSON, Parquet and Arrow."""

import gzip
import io
import json
import os
import pathlib
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pandas as pd

from vertebra.tables.delimited import Begin, Format, read_text
from vertebra.tables.endings import ENDINGS, PARQUET, TEXT, BadTable, ending_of


def read_table(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    sheet: str | int | None = None,
) -> pd.DataFrame:
    """A table from a file, as the command line reads it: CSV and its kin, Excel, JSON lines, Parquet, Arrow, zipped.

    What is guessed, the mark between fields, the encoding, decimal commas, the line of the names, is a warning where it
    is not the usual; the arguments say it. `sheet` is the name of a sheet, or its number from 1. Rows are numbered from
    0, and columns have names of text.

    >>> with open("flats.csv", "w") as file:
    ...     _ = file.write("size,rent\\n50,700\\n80,1100\\n")
    >>> vb.read_table("flats.csv")["rent"].tolist()
    [700, 1100]
    """
    path = pathlib.Path(path)
    ending = ending_of(path.name)
    if not path.is_file():
        raise BadTable(f"{path}: there is no such file.")
    return read_bytes(lambda: open(path, "rb"), ending, str(path), Format(sep, encoding, decimal, sheet))


def read_bytes(begin: Begin, ending: str, shown: str, asked: Format) -> pd.DataFrame:
    """A table from bytes that `begin` opens, of a file of this ending; `shown` is what errors call it."""
    if asked.decimal not in (None, ".", ","):
        raise BadTable(f"the decimal mark must be '.' or ',', got {asked.decimal!r}.")
    if ending == ".zip":
        return _from_zip(begin, shown, asked)
    kind, read = _reader(ending)
    try:
        frame = read(begin, shown, asked)
    except ImportError as error:
        library = "openpyxl" if ending == ".xlsx" else "pyarrow"
        raise BadTable(f"{shown}: reading {kind} needs {library}. Install it: pip install {library}.") from error
    except pd.errors.EmptyDataError:
        raise BadTable(f"{shown} is empty.") from None
    except BadTable:
        raise
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadTable(f"{shown} cannot be read as {kind}: {reason}") from None
    repeated = frame.attrs.get("repeated", {})
    frame = frame.set_axis([str(each) for each in frame.columns], axis=1)
    frame.attrs["repeated"] = repeated
    if not frame.columns.is_unique:
        raise BadTable(f"{shown} has more than one column {frame.columns[frame.columns.duplicated()][0]!r}.")
    if not len(frame):
        raise BadTable(f"{shown} has no rows.")
    return frame


def _reader(ending: str) -> tuple[str, Callable[[Begin, str, Format], pd.DataFrame]]:
    """What a file of an ending is called, and what reads it."""
    if ending in PARQUET:
        return "Parquet", _from_parquet
    if ending in (".feather", ".arrow"):
        return "Arrow", _from_arrow
    if ending == ".xlsx":
        return "Excel", _from_excel
    if ending in (".json", ".jsonl", ".ndjson"):
        return "JSON", _from_json
    usual = TEXT[ending.removesuffix(".gz")]

    def text(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
        return read_text((lambda: _unzipped(begin)) if ending.endswith(".gz") else begin, shown, asked, usual=usual)

    return "CSV", text


def _unzipped(begin: Begin) -> gzip.GzipFile:
    file = begin()
    unzipped = gzip.GzipFile(fileobj=file, mode="rb")
    unzipped.myfileobj = file  # is closed with it
    return unzipped


def _from_parquet(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
    with begin() as file:
        frame = pd.read_parquet(file)
    return frame.reset_index(drop=all(each is None for each in frame.index.names))


def _from_arrow(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
    from pyarrow import ipc

    with begin() as file:
        data = file.read()
    opened = ipc.open_file if data.startswith(b"ARROW1") else ipc.open_stream
    return opened(io.BytesIO(data)).read_all().to_pandas()


def _from_excel(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
    with begin() as file, warnings.catch_warnings(), pd.ExcelFile(file, engine="openpyxl") as book:
        warnings.simplefilter("ignore", UserWarning)  # openpyxl's, of styles
        names = [str(each) for each in book.sheet_names]
        sheet = _sheet(names, asked.sheet, shown)
        cells = pd.read_excel(book, sheet_name=sheet, header=None, na_values=[], keep_default_na=False)
    if len(names) > 1 and asked.sheet is None:
        warnings.warn(f"{shown}: the sheet {sheet!r} is read, of {', '.join(map(repr, names))}.", stacklevel=4)
    cells = cells.mask(cells.astype(object).map(lambda each: isinstance(each, str) and not each.strip()))
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if not len(cells):
        raise BadTable(f"{shown}: the sheet {sheet!r} is empty.")
    # names stand in the first row that is as full as most
    full = cells.notna().sum(axis=1)
    first = int((full >= full.median()).to_numpy().argmax())
    head = cells.iloc[first]
    names = [f"Unnamed: {k}" if pd.isna(each) else str(each).strip() for k, each in enumerate(head)]
    rows = cells.iloc[first + 1 :].reset_index(drop=True).infer_objects()
    return rows.set_axis(names, axis=1)


def _sheet(names: list[str], asked: str | int | None, shown: str) -> str:
    if asked is None:
        return names[0]
    if str(asked) in names:
        return str(asked)
    if str(asked).isdigit() and 1 <= int(asked) <= len(names):
        return names[int(asked) - 1]
    raise BadTable(f"{shown} has no sheet {asked!r}: there are {', '.join(map(repr, names))}.")


def _from_json(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
    """Records, one in a line, or a list of them."""
    with begin() as file:
        text = file.read().decode(asked.encoding or "utf-8-sig")
    if text.lstrip().startswith("["):
        records = json.loads(text)
    else:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not records or not all(isinstance(each, dict) for each in records):
        raise BadTable(f'{shown}: JSON must hold records, one in a line or in a list: {{"size": 50, …}}.')
    return pd.DataFrame.from_records(records)


def _from_zip(begin: Begin, shown: str, asked: Format) -> pd.DataFrame:
    """The one table in an archive."""
    with begin() as file:
        data = file.read()
    try:
        archive: Any = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        raise BadTable(f"{shown} is no zip archive.") from None
    inside = [each for each in archive.namelist() if not each.endswith("/") and "__MACOSX" not in each]
    tables = [each for each in inside if each.lower().endswith(ENDINGS) and not each.lower().endswith(".zip")]
    if len(tables) != 1:
        listed = ", ".join(inside[:5]) or "nothing"
        raise BadTable(f"{shown} must hold one table, and holds {listed}: unpack it, and name the one.")
    held = archive.read(tables[0])
    return read_bytes(lambda: io.BytesIO(held), ending_of(tables[0]), f"{shown} ({tables[0]})", asked)
