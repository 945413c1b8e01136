"""Is `evaluation_`, what a model says of rows left out, what new rows give? Random tables of all kinds.

    python experiments/stated.py            # 60 tables; resumes where it stopped
    python experiments/stated.py --quick    # 6 tables: results/stated-quick.csv

A table has two to six inputs (numbers, rounded numbers, categories), a target (numbers, rounded numbers, two or three
classes, counts), and no weights, counts of rows or survey weights; many of its rows repeat. `away` is how far the
stated score is from that of 20,000 new rows, in standard errors of a score of as many rows as there were.
"""

import argparse
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.special import expit, softmax

import vertebra as vb

SEEDS = range(200, 260)
SIZES = (200, 500, 1000, 3000)
INPUTS = ("numbers", "rounded", "categories", "mixed")
TARGETS = ("numbers", "rounded", "classes", "three classes", "counts")
WEIGHTS = ("none", "counts", "survey")
N_TEST = 20_000
COLUMNS = ("n", "inputs", "target", "weights", "repeated", "score", "stated", "new", "error", "away")


class Task(NamedTuple):
    seed: int


class Table:
    """A population: inputs, and a target whose f is a sum of functions of one input, with a pair now and then."""

    def __init__(self, rng: np.random.Generator):
        self.inputs, self.target = str(rng.choice(INPUTS)), str(rng.choice(TARGETS))
        self.weights, self.n = str(rng.choice(WEIGHTS)), int(rng.choice(SIZES))
        p = int(rng.integers(2, 7))
        self.kinds = [str(rng.choice(INPUTS[:3])) if self.inputs == "mixed" else self.inputs for _ in range(p)]
        self.n_levels = rng.integers(2, 6, p)
        self.slopes = rng.standard_normal((p, 3)) * (rng.random(p) < 0.7)[:, None]
        self.pair = float(rng.standard_normal()) if rng.random() < 0.3 else 0.0
        self.other = rng.standard_normal(p)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
        columns, z = {}, []
        for k, kind in enumerate(self.kinds):
            value = rng.standard_normal(n)
            if kind == "rounded":
                value = np.clip(np.round(value), -2, 2)
            if kind == "categories":
                code = rng.integers(0, self.n_levels[k], n)
                columns[f"v{k}"] = np.array(list("abcdef"))[code]
                value = np.sin(2.0 * code + k)
            else:
                columns[f"v{k}"] = value
            z.append(value)
        f = sum(s[0] * v + 0.5 * s[1] * np.sin(2.0 * v) for s, v in zip(self.slopes, z, strict=True))
        f = f + self.pair * z[0] * z[1]
        return pd.DataFrame(columns), self._target(f, np.stack(z, axis=1) @ self.other, rng)

    def _target(self, f, other, rng):
        n = len(f)
        match self.target:
            case "numbers":
                return f + rng.standard_normal(n)
            case "rounded":
                return np.round(f + rng.standard_normal(n))
            case "classes":
                return (rng.random(n) < expit(f)).astype(int)
            case "three classes":
                p = softmax(np.stack([f, other, np.zeros(n)], axis=1), axis=1)
                return (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1).clip(0, 2)
        return rng.poisson(np.exp(np.clip(0.4 * f, -3, 3)))

    def weight(self, rng: np.random.Generator):
        match self.weights:
            case "counts":
                return rng.integers(1, 6, self.n)
            case "survey":
                return rng.lognormal(0.0, 0.6, self.n) / self.n
        return None


def one(task: Task) -> dict:
    rng = np.random.default_rng(task.seed)
    table = Table(rng)
    x, y = table.sample(table.n, rng)
    weight = table.weight(rng)
    if table.weights == "counts":  # rows of a weight are as many rows, drawn one by one
        x, y = table.sample(int(weight.sum()), rng)
        frame = x.assign(y=y).groupby([*x, "y"], as_index=False).size()
        x, y, weight = frame[list(x)], frame["y"].to_numpy(), frame["size"].to_numpy()
    is_class = "classes" in table.target
    settings = {"likelihood": "poisson"} if table.target == "counts" else {}
    kind = vb.AdditiveClassifier if is_class else vb.AdditiveRegressor
    model = kind(random_state=0, **settings).fit(x, y, weight)
    new, target = table.sample(N_TEST, rng)
    if is_class:
        score, losses = "log_loss", -model.log_prob(new, target)
        found, error = float(losses.mean()), float(losses.std())
    else:
        score, losses = "rmse", (target - model.predict(new)) ** 2
        found = float(np.sqrt(losses.mean()))
        error = float(losses.std() / (2.0 * found))  # the delta method
    stated, error = model.evaluation_.scores["model"][score], error / np.sqrt(model.evaluation_.n)
    n = len(y) if weight is None else float(np.sum(weight) if table.weights == "counts" else len(y))
    repeated = 1.0 - len(x.assign(y=y).drop_duplicates()) / n
    about = {"n": model.evaluation_.n, "inputs": table.inputs, "target": table.target, "weights": table.weights}
    figures = {"stated": stated, "new": found, "error": error, "away": (stated - found) / error}
    return about | {"repeated": repeated, "score": score} | figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    seeds = range(*map(int, given.seeds.split(":"))) if given.seeds else SEEDS[:6] if given.quick else SEEDS
    path = RESULTS / ("stated-quick.csv" if given.quick or given.seeds else "stated.csv")
    run(path, [Task(seed) for seed in seeds], one, columns=COLUMNS)
    away = pd.DataFrame(read(path))["away"].astype(float)
    near = np.mean(away.abs() <= 2.0)
    print(f"{len(away)} tables: within two standard errors {near:.3f}, on average {away.mean():+.2f}")


if __name__ == "__main__":
    main()
