"""One way to keep a benchmark's figures: print them, and write results/<name>.csv with the versions they belong to.

A stamp beside it (`experiments/stamps.py`) says by which code it was recorded.
"""

import csv
import importlib.metadata
import os
import pathlib
import platform
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "experiments"))

import stamps

BEGAN = time.monotonic()
RESULTS = pathlib.Path(__file__).parent / "results"


def record(name: str, rows: list[dict]) -> None:
    common = {"python": platform.python_version(), "cores": os.cpu_count()}
    for package in ("jax", "equinox", "optax", "torch", "gpytorch"):
        try:
            common[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    rows = [{key: f"{v:.4g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    for row in rows:
        print(name, "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    path, study = RESULTS / f"{name}.csv", str(sys.modules["__main__"].__file__)
    code, before = _code(path, study, rows)
    RESULTS.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *common])
        writer.writeheader()
        writer.writerows(row | common for row in rows)
    stamps.write(path, stamps.of_now(path, study, code, before + time.monotonic() - BEGAN))


# Of each file, as the first writing of this process found it: its code, and the seconds spent on rows that stay.
_found: dict[str, tuple[str, float]] = {}


def _code(path: pathlib.Path, study: str, rows: list[dict]) -> tuple[str, float]:
    """The code that all rows are of, "" if it is not one, and the seconds that earlier runs of it took."""
    if path.name not in _found:
        now, before, kept = stamps.digest_of(pathlib.Path(study)), stamps.read(path), False
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                there = [{key: row.get(key) for key in rows[0]} for row in csv.DictReader(file)]
            kept = any({key: str(value) for key, value in row.items()} in there for row in rows)
        is_one = not kept or (before is not None and before.code == now)
        _found[path.name] = now if is_one else "", before.seconds if before and kept else 0.0
    return _found[path.name]
