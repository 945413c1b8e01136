"""One way to keep a benchmark's figures: print them, and write results/<name>.csv with the versions they belong to."""

import csv
import importlib.metadata
import os
import pathlib
import platform

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
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *common])
        writer.writeheader()
        writer.writerows(row | common for row in rows)
