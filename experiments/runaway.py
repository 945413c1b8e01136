"""A hostile sweep: does any prediction leave the range of what was seen, whatever the table?

    python experiments/runaway.py            # 300 tables; resumes where it stopped
    python experiments/runaway.py --quick    # 5 tables: results/runaway-quick.csv
    python experiments/runaway.py --seeds 2000:2300

Tables have outliers of up to a thousand sds, heaps of zeros, integer codes, heavy tails, empty corners and near copies.
`worst` is how far the farthest prediction lies from the middle of y, in ranges of y: at its own rows, in all corners of
the inputs' range, where values of different rows meet, and far beyond. It should be below 1: within twice the range.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run

import vertebra as vb

SEEDS = range(3000, 3300)
COLUMNS = ("worst", "where", "finite")
N_CORNERS, N_STRANGERS, N_BEYOND, FAR = 200, 300, 50, 5.0


class Task(NamedTuple):
    seed: int


def hostile(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """x, y, and the random numbers that go on from there."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([60, 200, 500])), int(rng.integers(2, 5))
    z = rng.standard_normal((n, p))
    if rng.random() < 0.5:
        z[:, 1] = z[:, 0] + rng.standard_normal(n) * 10.0 ** rng.uniform(-3.0, -0.5)
    x = z.copy()
    for column, kind in zip(x.T, rng.integers(0, 6, p), strict=True):
        if kind == 0:
            column[rng.choice(n, max(1, n // 200))] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(1.0, 3.0)
        elif kind == 1:
            column[:] = np.where(rng.random(n) < 0.6, 0.0, np.exp(column))
        elif kind == 2:
            column[:] = np.clip(np.round(2.0 * column), -2.0, 8.0)
        elif kind == 3:
            column[:] = np.exp(2.0 * column)
    f = np.sin(z[:, 0]) + z[:, 0] * z[:, 1] * (rng.random() < 0.7) + np.sign(z[:, -1]) * (rng.random() < 0.5)
    return x, f + rng.standard_normal(n) * 10.0 ** rng.uniform(-1.0, 0.5), rng


def places(x: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rows themselves, corners of their range, values of different rows together, and what lies far beyond."""
    low, high = x.min(axis=0), x.max(axis=0)
    corners = np.where(rng.random((N_CORNERS, x.shape[1])) < 0.5, low, high)
    strangers = np.stack([rng.choice(column, N_STRANGERS) for column in x.T], axis=1)
    away = FAR * (high - low)
    beyond = np.where(rng.random((N_BEYOND, x.shape[1])) < 0.5, low - away, high + away)
    return {"rows": x, "corners": corners, "strangers": strangers, "beyond": beyond}


def one(task: Task) -> dict:
    warnings.simplefilter("ignore", vb.OutsideRange)
    x, y, rng = hostile(task.seed)
    model = vb.AdditiveRegressor(remainder=False, random_state=0, evaluation="left_out").fit(x, y)
    middle, width = 0.5 * (y.min() + y.max()), y.max() - y.min()
    said = {name: model.predict(rows) for name, rows in places(x, rng).items()}
    far = {name: float(np.abs(each - middle).max() / width) for name, each in said.items()}
    where = max(far, key=far.__getitem__)
    return {"worst": far[where], "where": where, "finite": all(np.isfinite(each).all() for each in said.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    seeds = SEEDS[:5] if given.quick else range(*map(int, given.seeds.split(":"))) if given.seeds else SEEDS
    path = RESULTS / ("runaway-quick.csv" if given.quick or given.seeds else "runaway.csv")
    run(path, [Task(seed) for seed in seeds], one, columns=COLUMNS)
    rows = pd.DataFrame(read(path)).astype({"worst": float})
    off = rows[rows["worst"] > 1.0].sort_values("worst", ascending=False)
    print(f"{len(rows)} tables, {len(off)} beyond twice the range, {sum(rows['finite'] != 'True')} not finite.")
    print(
        off[["seed", "worst", "where"]].to_string(index=False)
        if len(off)
        else f"The farthest: {rows['worst'].max():.2f}."
    )


if __name__ == "__main__":
    main()
