"""SIGKILL at random moments: a checkpointed fit is killed ten times, gone on with each time, and must end the same.

Two fits of a generated table of Parquet files: the additive model in closed form, whose passes over the rows are kept,
and a network on its clusters, whose training is. Before each restart the checkpoint must be readable, if there is one;
at the end the model file must be that of a fit that nobody killed, array by array and bit by bit.

    python benchmarks/kills.py [--kills 10] [--rows 600000]
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
from record import record

from vertebra.machine import file as storage

FIT = """
import sys
import vertebra as vb
from vertebra.machine import checkpoint
checkpoint.EVERY = 0.2
table, out, kept, scheme = sys.argv[1:5]
settings = dict(random_state=0, clusters=[["a"], ["b", "c"]], checkpoint=None if kept == "-" else kept)
settings |= {} if scheme == "auto" else dict(scheme=scheme, n_steps=40_000)
model = vb.AdditiveRegressor(**settings)
model.fit(table, "y").set_params(checkpoint=None).save(out)
"""


def table(folder: pathlib.Path, n: int) -> pathlib.Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(n), 4)):
        x = rng.uniform(-1.0, 1.0, (len(rows), 4))
        frame = pd.DataFrame(x, columns=list("abcd"))
        frame["y"] = np.sin(3.0 * frame["a"]) + frame["b"] * frame["c"] + rng.normal(size=len(rows))
        frame.to_parquet(folder / f"part{k}.parquet", row_group_size=20_000)
    return folder


def start(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", FIT, *map(str, arguments)])


def run(scheme: str, source: pathlib.Path, folder: pathlib.Path, n_kills: int) -> dict:
    whole, killed, kept = (folder / f"{scheme}-{name}.vertebra" for name in ("whole", "killed", "state"))
    begun = time.perf_counter()
    if start(source, whole, "-", scheme).wait():
        raise SystemExit("the fit itself failed")
    seconds = time.perf_counter() - begun
    rng, n_done, with_state = random.Random(0), 0, 0
    while n_done < n_kills:
        process = start(source, killed, kept, scheme)
        time.sleep(rng.uniform(0.1, 1.0) * seconds)
        if process.poll() is not None:  # it came to its end before it was killed: once more from the start
            killed.unlink(missing_ok=True)
            continue
        process.kill()
        process.wait()
        n_done += 1
        if kept.exists():
            storage.read(kept, ["checkpoint"])  # raises if it cannot be read
            with_state += 1
    if start(source, killed, kept, scheme).wait():
        raise SystemExit("the fit that was killed could not be ended")
    (_, one, arrays), (_, other, others) = storage.read(whole), storage.read(killed)
    same = arrays.keys() == others.keys() and all(np.array_equal(arrays[k], others[k], equal_nan=True) for k in arrays)
    return {
        "scheme": scheme,
        "kills": n_kills,
        "checkpoints_read": with_state,
        "is_identical": same and one == other,
        "is_removed": not kept.exists(),
        "seconds_unkilled": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=600_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = table(folder / "table", options.rows)
        record("kills", [run(scheme, source, folder, options.kills) for scheme in ("auto", "deep_kernel_learning")])


if __name__ == "__main__":
    main()
