"""Coverage of 95 % prediction intervals on the UCI sets' first five splits, with and without conformal calibration.

    python experiments/intervals.py FOLDER [--quick] [--only SET …]

writes results/intervals.csv, a row per set, split and kind of interval, with RMSE and mean log density in the units of
the target; sets already recorded are kept. `--quick` takes one split of each.
"""

import argparse
import csv
import pathlib
import platform
import time

import jax
import numpy as np
from stamps import recording

import vertebra as vb
from vertebra.datasets import benchmark
from vertebra.metrics import coverage, rmse

RESULTS = pathlib.Path(__file__).parent / "results"
SETS = ["yacht", "boston", "energy", "concrete", "wine_red", "power", "kin8nm", "naval", "protein"]
N_SPLITS = 5
FIELDS = ["set", "split", "conformal", "n_train", "coverage", "rmse", "log_prob", "seconds", "python", "jax"]


def one(folder: pathlib.Path, name: str, split: int, conformal: bool) -> dict:
    data = benchmark(folder / name, split)
    start = time.perf_counter()
    model = vb.AdditiveRegressor(conformal=conformal, random_state=0).fit(data.x_train, data.y_train)
    low, high = model.predict_interval(data.x_test).T
    y = data.y_test.to_numpy()
    return {
        "set": name,
        "split": split,
        "conformal": conformal,
        "n_train": len(data.y_train),
        "coverage": round(coverage(y, low, high), 4),
        "rmse": float(f"{rmse(y, model.predict(data.x_test)):.5g}"),
        "log_prob": float(f"{np.mean(model.log_prob(data.x_test, y)):.4g}"),
        "seconds": round(time.perf_counter() - start, 1),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=SETS)
    options = parser.parse_args()
    path, rows = RESULTS / "intervals.csv", []
    if path.is_file():
        with path.open() as file:
            rows = [row for row in csv.DictReader(file) if row["set"] not in options.only]
    for name in options.only:
        for conformal in (False, True):
            for split in range(1 if options.quick else N_SPLITS):
                rows.append(one(options.folder, name, split, conformal))
                print(rows[-1], flush=True)
            done = [float(r["coverage"]) for r in rows if r["set"] == name and str(r["conformal"]) == str(conformal)]
            print(f"{name}, conformal {conformal}: mean coverage {np.mean(done):.4f}", flush=True)
        if not options.quick:
            is_new = name == options.only[0] and {row["set"] for row in rows} == {name}
            with recording(path, __file__, is_new=is_new), path.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
