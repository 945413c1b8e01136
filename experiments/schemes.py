"""The schemes table: log density of test rows, and the strengths of f1's effects with their sds, beside the exact ones.

    python experiments/schemes.py [--seeds N] [--processes N]
    python experiments/schemes.py --quick        # one seed of two schemes, to results/schemes-quick.csv

writes results/schemes.csv, a row per scheme and seed. f1, 5000 rows, noise variance 1.
"""

import argparse
import pathlib
import sys
from typing import NamedTuple

import numpy as np
from runner import RESULTS, run

import vertebra as vb
from vertebra.datasets import FUNCTIONS, synthetic

SCHEMES = ("auto", "mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features")
TERMS = ((0,), (1,), (2,), (3,), (4,), (0, 1))
NAMES = {"".join(f"x{i + 1}" for i in term): term for term in TERMS}
COLUMNS = ["log_density", *(f"{kind} {name}" for name in NAMES for kind in ("strength", "sd"))]


class Task(NamedTuple):
    """One fit."""

    scheme: str
    seed: int


def one(task: Task) -> dict[str, float]:
    train = synthetic("f1", 5000, noise=1.0, seed=task.seed)
    test = synthetic("f1", 5000, noise=1.0, seed=1000 + task.seed)
    model = vb.AdditiveRegressor(task.scheme, random_state=task.seed).fit(train.x, train.y)
    table = model.effects()
    terms = [tuple(int(name[1:]) for name in term) for term in table["term"]]
    found = dict(zip(terms, zip(table["strength"], table["sd"], strict=True), strict=True))
    result = {"log_density": float(np.mean(model.log_prob(test.x, test.y)))}
    for name, term in NAMES.items():
        result[f"strength {name}"], result[f"sd {name}"] = found.get(term, (0.0, 0.0))
    return result


def exact() -> dict[str, float]:
    """The true strengths, under uniform inputs."""
    strengths = FUNCTIONS["f1"].strengths()
    return {name: strengths[term] for name, term in NAMES.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "schemes.csv")
    asked = parser.parse_args()
    schemes = SCHEMES
    if asked.quick:
        schemes, asked.seeds, asked.out = ("auto", "random_features"), 1, RESULTS / "schemes-quick.csv"
    tasks = [Task(scheme, seed) for seed in range(asked.seeds) for scheme in schemes]
    return run(asked.out, tasks, one, columns=COLUMNS, n_processes=asked.processes)


if __name__ == "__main__":
    sys.exit(main())
