"""Monotone fits: is the shape ever broken, do bands hold, and what does it cost?

    python experiments/monotone.py            # 5 truths × 2 sizes × 20 seeds; resumes where it stopped
    python experiments/monotone.py --quick    # one seed of the smaller size: results/monotone-quick.csv

Every truth rises with u and v, whatever the other inputs are; each is fitted with that shape and without.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.special import expit

import vertebra as vb

TRUTHS = ("smooth", "flat", "product", "classes", "counts")
SIZES, SEEDS = (500, 2000), range(200, 220)
N_TEST, N_ROWS, N_GRID, N_DRAWS = 4000, 20, 400, 50
COLUMNS = ("worst_step", "worst_draw", "rmse", "rmse_free", "covered", "covered_free")


class Task(NamedTuple):
    truth: str
    n: int
    seed: int


def sample(task: Task, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Inputs, f and y; u, v and w are uniform, and the last input does nothing."""
    rng = np.random.default_rng(seed)
    u, v, w, idle = rng.random((4, n))
    match task.truth:
        case "smooth":
            f = 2.0 * u**3 + np.sqrt(v) + 0.5 * np.sin(6.0 * w)
        case "product":
            f = 2.0 * u * w + np.exp(v) * w
        case _:
            f = 3.0 * np.maximum(u - 0.5, 0.0) + v + 0.5 * np.sin(6.0 * w)
    match task.truth:
        case "classes":
            f = 2.0 * (f - 1.3)
            y = rng.random(n) < expit(f)
        case "counts":
            y = rng.poisson(np.exp(f))
        case _:
            y = f + 0.5 * rng.standard_normal(n)
    return pd.DataFrame({"u": u, "v": v, "w": w, "idle": idle}), f, y


def said(model, x: pd.DataFrame) -> np.ndarray:
    """What is predicted: of classes the probability of the second."""
    return model.predict_proba(x)[:, 1] if hasattr(model, "predict_proba") else model.predict(x)


def fitted(task: Task, x: pd.DataFrame, y: np.ndarray, monotone):
    if task.truth == "classes":
        return vb.AdditiveClassifier(monotone=monotone, random_state=0).fit(x, y)
    likelihood = "poisson" if task.truth == "counts" else "gaussian"
    return vb.AdditiveRegressor(likelihood=likelihood, remainder=False, monotone=monotone, random_state=0).fit(x, y)


def one(task: Task) -> dict:
    warnings.simplefilter("ignore", vb.OutsideRange)  # the grid goes beyond the range
    x, _, y = sample(task, task.n, task.seed)
    new, f, _ = sample(task, N_TEST, 10_000 + task.seed)
    found = {}
    for name, monotone in (("", {"u": "+", "v": "+"}), ("_free", None)):
        model = fitted(task, x, y, monotone)
        mean, sd = model.model_.f(new)
        found[f"rmse{name}"] = float(np.sqrt(np.mean((mean - f) ** 2)))
        found[f"covered{name}"] = float(np.mean(np.abs(mean - f) < 1.96 * sd))
        if monotone:
            found |= dict(zip(("worst_step", "worst_draw"), steps(model, new), strict=True))
    return found


def steps(model, rows: pd.DataFrame) -> tuple[float, float]:
    """The lowest step of predictions, and of draws of f, along the inputs that they rise with, beside any others."""
    lowest, drawn, grid = np.inf, np.inf, np.linspace(-0.2, 1.2, N_GRID)
    for k in range(N_ROWS):
        row = pd.concat([rows.iloc[[k]]] * N_GRID, ignore_index=True)
        for name in ("u", "v"):
            along = row.assign(**{name: grid})
            lowest = min(lowest, float(np.diff(said(model, along)).min()))
            draws = model.model_.posterior.sample(model.model_.x(along), N_DRAWS, seed=k)[:, :, 0]
            drawn = min(drawn, float(np.diff(draws, axis=1).min()))
    return lowest, drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    sizes, seeds = (SIZES[:1], SEEDS[:1]) if given.quick else (SIZES, SEEDS)
    if given.seeds:
        seeds = range(*map(int, given.seeds.split(":")))
    name = "monotone-quick.csv" if given.quick or given.seeds else "monotone.csv"
    run(RESULTS / name, [Task(t, n, s) for t in TRUTHS for n in sizes for s in seeds], one, columns=COLUMNS)
    rows = pd.DataFrame(read(RESULTS / name)).astype(dict.fromkeys(COLUMNS, float))
    print(f"{len(rows)} fits: the lowest step of a prediction is {rows['worst_step'].min():.2e}, of a draw ", end="")
    print(f"{rows['worst_draw'].min():.2e}.")
    print(rows.groupby(["truth", "n"])[list(COLUMNS[2:])].mean().round(3))
    print(rows[list(COLUMNS[2:])].mean().round(3).to_string())


if __name__ == "__main__":
    main()
