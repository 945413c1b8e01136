"""Rows from Parquet files beside rows in memory: rows per second, and memory above an idle import.

A generated table of 20 inputs, of which ten act, alone, in pairs and as three; 10 million rows are about 2 GB on disk.
Each fit runs in a process of its own: 1 million rows in memory, the same from files, 10 million from files. Memory is
the resident set, looked at every 20 ms, less that of a process that has imported the library and made JAX find its
devices. In the end the functions that were fitted are held against the true ones: error of f, and how often its 95 %
bands hold it. Three of the inputs act together only: all triples of 20 inputs are looked at.

    python benchmarks/stream.py FOLDER   # for the table: 2.2 GB
"""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from record import record

P, FILE_ROWS, GROUP_ROWS, TEST_ROWS = 20, 500_000, 125_000, 50_000
RUNS = [("memory", 1_000_000), ("files", 1_000_000), ("files", 10_000_000)]


def truth(x: np.ndarray) -> np.ndarray:
    alone = np.sin(3.0 * x[:, 0]) + x[:, 1] ** 2 + np.exp(-3.0 * x[:, 2] ** 2)
    pairs = 2.0 * x[:, 3] * x[:, 4] + np.sin(3.0 * x[:, 5] * x[:, 6])
    return alone + pairs + 0.5 * x[:, 7] * x[:, 8] * x[:, 9]


def write(folder: pathlib.Path, n: int) -> pathlib.Path:
    path = folder / f"rows{n}"
    if (path / "done").exists():
        return path
    path.mkdir(parents=True, exist_ok=True)
    for k in range(n // FILE_ROWS):
        rng = np.random.default_rng([7, k])
        x = rng.uniform(-1.0, 1.0, (FILE_ROWS, P))
        y = truth(x) + rng.normal(size=FILE_ROWS)
        columns = {f"x{i}": x[:, i] for i in range(P)} | {"y": y}
        pq.write_table(pa.table(columns), path / f"part{k:03d}.parquet", row_group_size=GROUP_ROWS)
    (path / "done").touch()
    (path / "done").rename(folder / f"rows{n}.done")
    return path


def resident() -> float:
    """In GiB."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**30


def fit(kind: str, path: str) -> dict:
    import jax

    import vertebra as vb
    from vertebra.stream import Parquet

    jax.devices()
    idle, peak, over = resident(), [0.0], threading.Event()

    def watch():
        while not over.wait(0.02):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    model, n = vb.AdditiveRegressor(random_state=0), Parquet(path).n_rows
    if kind == "memory":
        frame = pd.read_parquet(path)
        y = frame.pop("y")
        begun = time.perf_counter()
        model.fit(frame, y)
    else:
        begun = time.perf_counter()
        model.fit(path, "y")
    seconds = time.perf_counter() - begun
    over.set()
    watcher.join()
    x = np.random.default_rng(99).uniform(-1.0, 1.0, (TEST_ROWS, P))
    mean, sd = model.predict_f(pd.DataFrame(x, columns=[f"x{i}" for i in range(P)]))
    away = mean - truth(x)
    return {
        "rows_from": kind,
        "rows": n,
        "seconds": seconds,
        "rows_per_s": n / seconds,
        "gib_above_idle": peak[0] - idle,
        "gib_idle": idle,
        "rmse_f": float(np.sqrt(np.mean(away**2))),
        "mean_sd_f": float(sd.mean()),
        "coverage_f": float(np.mean(np.abs(away) < 1.96 * sd)),
        "columns": model.model_.posterior.terms.basis.n_columns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(fit(*options.one)))
        return
    rows = []
    for kind, n in RUNS:
        path = write(options.folder, n)
        command = [sys.executable, __file__, str(options.folder), "--one", kind, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    first, small, _ = rows
    for row in rows:
        row["speed_to_memory"] = row["rows_per_s"] / first["rows_per_s"]
        row["memory_to_small"] = row["gib_above_idle"] / small["gib_above_idle"]
    record("stream", rows)


if __name__ == "__main__":
    main()
