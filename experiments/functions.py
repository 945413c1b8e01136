"""Functions that never run away, in one table: everyday tables beside EBM, f1 to f4, steps, UCI sets, flights.

    python experiments/functions.py FOLDER                 # FOLDER has suite, uci and tabular; resumes
    python experiments/functions.py FOLDER --parts suite   # some of them: suite, uci, synthetic, steps, flights
    python experiments/functions.py FOLDER --methods ebm   # the peer alone, or `terms`
    python experiments/functions.py FOLDER --report        # the table of what is there
    python experiments/functions.py --quick                # f1 and steps, one seed: results/functions-quick.csv

All without networks (`remainder=False`), on splits and seeds that nothing was chosen on. `error` is the RMSE, of
classes the log loss, where f is known the RMSE of f; `worst` the farthest row; `second` the log density of new y (of f1
to f4 less that of the truth), of classes the accuracy; `covered` how often 95 % intervals hold y, where f is known f;
`near` f within a tenth of the range of a jump; `found` the share of real interactions listed, but for those too weak
for any method. `experiments/runaway.py` and `experiments/monotone.py` are the other two.
"""

import argparse
import json
import pathlib
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.stats import norm
from sklearn.metrics import accuracy_score, log_loss

import vertebra as vb
from vertebra.datasets import FUNCTIONS, benchmark, synthetic
from vertebra.metrics import coverage, rmse

PARTS = ("suite", "uci", "synthetic", "steps", "flights")
SPLITS, SEEDS, STEP_SEEDS = (3, 4), range(200, 210), range(200, 220)
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
COLUMNS = ("error", "worst", "second", "covered", "near", "found")
MADE = ("f1", "f2", "f3", "f4")
PLACES, N_STEPS, N_TEST, NEAR = (0.3, 0.5, 0.7), 2000, 5000, 0.1
# What a figure is to be at most, or at least.
TARGETS = {"diamonds": 570.0, "energy": 0.40, "wine_red": 0.62, "power": 3.5, "50000": 31.0, "all": 30.3}


class Task(NamedTuple):
    part: str
    table: str
    split: int  # or seed
    method: str


def ours(is_regression: bool = True, **settings):
    estimators = vb.AdditiveRegressor if is_regression else vb.AdditiveClassifier
    return estimators(remainder=False, random_state=0, evaluation="left_out", **settings)


def of_table(task: Task, folder: pathlib.Path) -> dict:
    """One method on one split of a table."""
    data = benchmark(
        folder / ("tabular/flights" if task.part == "flights" else f"{task.part}/{task.table}"), task.split
    )
    kind = json.loads((folder / "suite/index.json").read_text())[task.table]["kind"] if task.part == "suite" else ""
    x, y = data.x_train, data.y_train
    if task.table.isdigit():
        some = np.random.default_rng(0).permutation(len(x))[: int(task.table)]
        x, y = x.iloc[some], y.iloc[some]
    is_regression = kind in ("", "regression")
    if task.method == "ebm":
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

        model = (ExplainableBoostingRegressor if is_regression else ExplainableBoostingClassifier)(n_jobs=1)
    else:
        model = ours(is_regression)
    model.fit(x, y)
    if not is_regression:
        p = model.predict_proba(data.x_test)
        right = accuracy_score(data.y_test, np.asarray(model.classes_)[p.argmax(axis=1)])
        return {"error": float(log_loss(data.y_test, p, labels=model.classes_)), "second": float(right)}
    y = np.asarray(data.y_test, dtype=float)
    mean = model.predict(data.x_test)
    found = {"error": rmse(y, mean), "worst": float(np.abs(mean - y).max())}
    if task.method == "ebm":
        return found
    density = float(np.mean(model.log_prob(data.x_test, y)))
    return found | {"second": density, "covered": coverage(y, *model.predict_interval(data.x_test).T)}


def of_synthetic(task: Task) -> dict:
    """f1 to f4, 5,000 rows of ten inputs; `method` is the variance of the noise."""
    sd, function = float(task.method) ** 0.5, FUNCTIONS[task.table]
    data = synthetic(task.table, n=5000, noise=sd, seed=task.split)
    model = ours().fit(data.x, data.y)
    rng = np.random.default_rng([task.split, 1])
    x = 1.0 - rng.random((N_TEST, np.asarray(data.x).shape[1]))
    f = function(x)
    y = f + sd * rng.standard_normal(N_TEST)
    mean, spread = model.predict_f(x)
    short = float(np.mean(norm.logpdf(y, f, sd) - model.log_prob(x, y)))
    real = set(function.identifiable)
    listed = {tuple(int(name[1:]) for name in names) for names in model.interactions(0.05)["term"]}
    inside = coverage(f, mean - 1.96 * spread, mean + 1.96 * spread)
    share = len(real & listed) / len(real)
    return {"error": rmse(f, mean), "second": -short, "covered": inside, "found": share}


def of_steps(task: Task) -> dict:
    """Three inputs act by a jump of height two each, a fourth by a line; noise of sd one."""

    def f_of(x):
        return 2.0 * sum(x[:, i] > place for i, place in enumerate(PLACES)) + 3.0 * x[:, 3]

    rng = np.random.default_rng([task.split, 2])
    x, new = rng.random((N_STEPS, 10)), rng.random((N_TEST, 10))
    f = f_of(new)
    model = ours().fit(x, f_of(x) + rng.standard_normal(N_STEPS))
    mean, sd = model.predict_f(new)
    near = np.any(np.abs(new[:, : len(PLACES)] - PLACES) < NEAR, axis=1)
    held = np.abs(mean - f) < 1.96 * sd
    return {"error": rmse(f, mean), "covered": float(held.mean()), "near": float(held[near].mean())}


def one(task: Task, folder: pathlib.Path | None) -> dict:
    warnings.simplefilter("ignore")
    made = {"synthetic": of_synthetic, "steps": of_steps}
    found = made[task.part](task) if task.part in made else of_table(task, folder)
    return dict.fromkeys(COLUMNS, "") | found


class InFolder:
    """The tasks on the tables of a folder, for processes of their own."""

    def __init__(self, folder: pathlib.Path | None):
        self.folder = folder

    def __call__(self, task: Task) -> dict:
        return one(task, self.folder)


def tasks(parts: list[str], folder: pathlib.Path | None, quick: bool) -> list[Task]:
    found = []
    if "suite" in parts:
        names = json.loads((folder / "suite/index.json").read_text())
        found += [
            Task("suite", name, split, method) for name in names for split in SPLITS for method in ("terms", "ebm")
        ]
    if "uci" in parts:
        found += [Task("uci", name, split, "terms") for name in UCI for split in SPLITS]
    if "synthetic" in parts:
        noises = ("1",) if quick else ("1", "5")
        found += [
            Task("synthetic", f, s, v)
            for f in (MADE[:1] if quick else MADE)
            for v in noises
            for s in (SEEDS[:1] if quick else SEEDS)
        ]
    if "steps" in parts:
        found += [Task("steps", "jumps", seed, "terms") for seed in (STEP_SEEDS[:1] if quick else STEP_SEEDS)]
    if "flights" in parts:
        found += [Task("flights", n, 0, "terms") for n in ("50000", "all")]
    return found


def report(rows: list[dict]) -> str:
    """Means over splits and seeds; of the suite errors over EBM's, too."""
    table = pd.DataFrame(rows)
    numbers = [*COLUMNS, "seconds", "cpu_seconds"]
    table[numbers] = table[numbers].apply(pd.to_numeric)
    means = table.groupby(["part", "table", "method"])[numbers].mean().reset_index()
    means["target"] = means["table"].map(TARGETS)
    lines = [means.round(4).to_string(index=False, na_rep="")]
    suite = table[table["part"] == "suite"].pivot_table(index=["table", "split"], columns="method", values="error")
    if {"terms", "ebm"} <= set(suite):
        ratio = (suite["terms"] / suite["ebm"]).groupby("table").mean().dropna()
        lines += ["", "errors over EBM's, in the mean over splits:", ratio.round(3).to_string()]
        lines.append(f"better on {sum(ratio < 1.0)}, within 1 % on {sum(ratio <= 1.01)} of {len(ratio)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--parts", nargs="*", choices=PARTS)
    parser.add_argument("--methods", nargs="*", choices=["terms", "ebm"], help="of the suite")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    path = RESULTS / f"functions{'-quick' if asked.quick else ''}.csv"
    parts = asked.parts or (["synthetic", "steps"] if asked.quick or asked.folder is None else list(PARTS))
    if asked.folder is None and {"suite", "uci", "flights"} & set(parts):
        parser.error("name the folder that has suite, uci and tabular.")
    if not asked.report:
        found = tasks(parts, asked.folder, asked.quick)
        todo = [t for t in found if asked.methods is None or t.part != "suite" or t.method in asked.methods]
        run(path, todo, InFolder(asked.folder), columns=COLUMNS, n_processes=asked.processes)
    print(report(read(path)))


if __name__ == "__main__":
    main()
