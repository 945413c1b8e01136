"""Are the probabilities that a term is real calibrated, and is noise left alone? Small tables, where much is undecided.

python experiments/probabilities.py    # two to three minutes; writes results/probabilities.csv
"""

import csv
import itertools
import os
import pathlib
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from stamps import recording

from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.metrics import calibration_error
from vertebra.terms.functions import system_of
from vertebra.terms.search import search
from vertebra.terms.structure import probabilities
from vertebra.terms.sums import RowSums

N_ROWS, SEEDS, NOISE_SEEDS = (300, 1000), range(12), range(50)
RESULTS = pathlib.Path(__file__).parent / "results" / "probabilities.csv"


def rows_of(x, y):
    weight = np.ones(len(x))
    systems = [system_of(column, weight) for column in x.T]
    return RowSums.held(systems, [system.at(column) for system, column in zip(systems, x.T, strict=True)], y, weight)


def main() -> None:
    stated, real, record = [], [], []
    for name in ("f1", "f2", "f3", "f4", "smooth", "many", "ishigami"):
        truth = FUNCTIONS[name].strengths()
        for n in N_ROWS:
            for seed in SEEDS:
                data = synthetic(name, n, noise=np.sqrt(3.0), seed=seed)
                found = probabilities(search(rows_of(data.x, data.y))[0])
                pairs = {t: p for t, p in found.items() if len(t) == 2}
                stated += pairs.values()
                real += [t in truth for t in pairs]
    stated, real = np.array(stated), np.array(real, dtype=float)
    edges = [0.0, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 1.0]
    for low, high in itertools.pairwise(edges):
        inside = (stated >= low) & ((stated < high) | (high == 1.0))
        if inside.any():
            record.append([f"{low:g} to {high:g}", int(inside.sum()), stated[inside].mean(), real[inside].mean()])
    empty = 0
    for seed in NOISE_SEEDS:
        rng = np.random.default_rng(seed)
        empty += not search(rows_of(rng.random((1000, 10)), rng.standard_normal(1000)))[0].terms
    record.append(["calibration error", len(stated), calibration_error(stated, real, 20), ""])
    record.append(["noise without terms", len(NOISE_SEEDS), empty / len(NOISE_SEEDS), ""])
    with recording(RESULTS, __file__, is_new=True), RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["stated", "n", "mean_stated", "share_real"])
        writer.writerows([[f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in record])
    csv.writer(sys.stdout).writerows(record)


if __name__ == "__main__":
    main()
