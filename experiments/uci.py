"""The UCI table: RMSE and log density of test rows on the standard splits, ours beside today's peers.

    python experiments/uci.py FOLDER [--only SET …] [--methods METHOD …] [--first N] [--splits N] [--processes N]
    python experiments/uci.py FOLDER --quick      # one split of the three smallest sets, to results/uci-quick.csv

writes results/uci.csv, a row per set, split and method; what is recorded is not run again. FOLDER holds a folder per
set with data.csv.gz and splits.npz; without it, VERTEBRA_DATA names its parent. One recipe for all sets: every choice
is made inside the training rows of a split.
"""

import argparse
import os
import pathlib
import sys
from typing import NamedTuple

import numpy as np
from peers import METHODS
from runner import RESULTS, run

import vertebra as vb
from vertebra.datasets import benchmark
from vertebra.metrics import coverage, rmse

SETS = ["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht"]
SMALL = ["yacht", "boston", "energy"]
OURS = {
    "additive": lambda seed: vb.AdditiveRegressor(random_state=seed),
    "skeleton": lambda seed: vb.SkeletonRegressor(random_state=seed),
}
COLUMNS = ["n_train", "rmse", "log_density", "coverage"]


class Task(NamedTuple):
    """One method on one split."""

    set: str
    split: int
    method: str


class InFolder:
    """Runs tasks on the tables of a folder; a process of its own can be handed one."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def __call__(self, task: Task) -> dict[str, float]:
        data = benchmark(self.folder / task.set, task.split)
        y = data.y_test.to_numpy(float)
        if task.method in OURS:
            model = OURS[task.method](0).fit(data.x_train, data.y_train)
            mean, density = model.predict(data.x_test), model.log_prob(data.x_test, y)
            covered = coverage(y, *model.predict_interval(data.x_test).T)
        else:
            x, x_test = (part.to_numpy(float) for part in (data.x_train, data.x_test))
            said = METHODS[task.method](x, data.y_train.to_numpy(float), x_test, 0)
            mean, covered = said.mean, float("nan")
            density = np.full(len(y), np.nan) if said.log_density is None else said.log_density(y)
        return {
            "n_train": len(data.y_train),
            "rmse": rmse(y, mean),
            "log_density": float(np.mean(density)),
            "coverage": covered,
        }


def n_splits(folder: pathlib.Path, name: str) -> int:
    return len(np.load(folder / name / "splits.npz")["train"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=SETS)
    parser.add_argument("--methods", nargs="*", default=[*OURS, "lightgbm", "ebm", "stochtree"])
    parser.add_argument("--first", type=int, default=0, help="split to begin with")
    parser.add_argument("--splits", type=int, default=20, help="split to end before")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "uci.csv")
    asked = parser.parse_args()
    folder = asked.folder or pathlib.Path(os.environ.get("VERTEBRA_DATA", "data")) / "uci"
    if not folder.is_dir():
        parser.error(f"{folder} is not a folder: name the one that holds the sets, or set VERTEBRA_DATA.")
    if asked.quick:
        asked.only, asked.methods, asked.splits = SMALL, [*OURS, "lightgbm"], 1
        asked.out = RESULTS / "uci-quick.csv"
    tasks = [
        Task(name, split, method)
        for method in asked.methods
        for name in asked.only
        for split in range(asked.first, min(asked.splits, n_splits(folder, name)))
    ]
    return run(asked.out, tasks, InFolder(folder), columns=COLUMNS, n_processes=asked.processes)


if __name__ == "__main__":
    sys.exit(main())
