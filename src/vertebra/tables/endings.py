"""Files of tables by the ends of their names. Imports nothing that takes time: the help of commands lists them."""

import os
from typing import TypeGuard

# What a file of text has between its fields unless another mark is found; of .txt and .dat nobody knows.
TEXT = {".csv": ",", ".tsv": "\t", ".txt": " ", ".dat": " "}
PARQUET = (".parquet", ".pq")
ENDINGS = (
    *(".csv", ".tsv", ".txt", ".dat", ".csv.gz", ".tsv.gz", ".txt.gz", ".zip"),
    *(".xlsx", ".jsonl", ".ndjson", ".json", *PARQUET, ".feather", ".arrow"),
)
WRITTEN = (".csv", ".csv.gz", ".tsv", ".xlsx", *PARQUET)
# Spreadsheets that nothing here reads.
OTHER_SHEETS = (".xls", ".ods", ".xlsb", ".numbers")


class BadTable(ValueError):
    """A table that cannot be read: a line that says why, and what to do."""


def ending_of(name: str, known: tuple[str, ...] = ENDINGS) -> str:
    """The ending by which a file is read or written."""
    for ending in sorted(known, key=len, reverse=True):
        if name.lower().endswith(ending):
            return ending
    hint = " Save it as .xlsx, or as CSV." if name.lower().endswith(OTHER_SHEETS) else ""
    raise BadTable(f"{name}: a table must end in {', '.join(known)}.{hint}")


def is_table(name: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether this names a file that is read whole: a path with the ending of a table, but not of Parquet."""
    path = os.fspath(name) if isinstance(name, str | os.PathLike) else None
    return isinstance(path, str) and path.lower().endswith(tuple(each for each in ENDINGS if each not in PARQUET))
