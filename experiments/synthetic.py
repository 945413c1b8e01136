"""The synthetic table: f1–f4 at noise variances 1, 3 and 5, ours beside networks, NID, BART, EBM, GPs and trees.

    python experiments/synthetic.py [--methods METHOD …] [--seeds N] [--noise V …] [--processes N]
    python experiments/synthetic.py --quick      # f1 and f3, one seed, to results/synthetic-quick.csv

writes results/synthetic.csv, a row per function, noise variance, seed and method; what is recorded is not run again.
5000 rows of 10 inputs to fit, 5000 to test. Every task has a process of its own, so that its memory is its own.
"""

import argparse
import pathlib
import sys
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from peers import METHODS, Prediction
from runner import RESULTS, run

import vertebra as vb
from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.metrics import coverage, rmse, top_rank_recall

N_ROWS, N_TEST = 5000, 5000
SCHEMES = ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features")
OURS = ("additive", *(f"additive {scheme}" for scheme in SCHEMES))
COLUMNS = ["rmse_y", "rmse_f", "coverage_f", "log_density", "recall", "recall_paper", "n_parameters"]


class Task(NamedTuple):
    """One method on one table."""

    function: str
    noise_variance: float
    seed: int
    method: str


def ours(x, y, x_test, seed: int, scheme: str) -> Prediction:
    model = vb.AdditiveRegressor(scheme, random_state=seed).fit(x, y)
    terms = [tuple(int(name[1:]) for name in term) for term in model.effects()["term"]]
    surface = model._posterior
    if scheme == "auto":
        n_parameters = surface.terms.basis.n_columns + 1
    else:
        leaves = jax.tree.leaves(eqx.filter(surface.network, vb.trainable(surface.network)))
        n_parameters = sum(leaf.size for leaf in leaves)
    pairs = [term for term in terms if len(term) > 1]
    mean, sd = model.predict_f(x_test)
    return Prediction(mean, lambda y_test: model.log_prob(x_test, y_test), pairs, n_parameters, sd)


def one(task: Task) -> dict[str, float]:
    function, noise = FUNCTIONS[task.function], float(np.sqrt(task.noise_variance))
    train = synthetic(task.function, N_ROWS, noise=noise, seed=task.seed)
    test = synthetic(task.function, N_TEST, noise=noise, seed=1000 + task.seed)
    if task.method.startswith("additive"):
        scheme = task.method.removeprefix("additive").strip() or "auto"
        said = ours(train.x, train.y, test.x, task.seed, scheme)
    else:
        said = METHODS[task.method](train.x, train.y, test.x, task.seed)
    density = said.log_density(test.y).mean() if said.log_density else float("nan")
    recall = recall_paper = covered = float("nan")
    if said.sd_f is not None:
        covered = coverage(test.f, said.mean - 1.96 * said.sd_f, said.mean + 1.96 * said.sd_f)
    if said.interactions is not None:
        recall = top_rank_recall(said.interactions, function.identifiable, passed_over=function.undecidable)
        recall_paper = top_rank_recall(said.interactions, function.interactions)
    return {
        "rmse_y": rmse(test.y, said.mean),
        "rmse_f": rmse(test.f, said.mean),
        "coverage_f": covered,
        "log_density": float(density),
        "recall": float(recall),
        "recall_paper": float(recall_paper),
        "n_parameters": float("nan") if said.n_parameters is None else said.n_parameters,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--methods", nargs="*", default=[*OURS, *METHODS])
    parser.add_argument("--functions", nargs="*", default=["f1", "f2", "f3", "f4"])
    parser.add_argument("--noise", nargs="*", type=float, default=[1.0, 3.0, 5.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "synthetic.csv")
    asked = parser.parse_args()
    if asked.quick:
        asked.methods, asked.functions, asked.noise = ["additive", "lightgbm", "nid"], ["f1", "f3"], [1.0]
        asked.seeds, asked.out = 1, RESULTS / "synthetic-quick.csv"
    tasks = [
        Task(function, noise_variance, seed, method)
        for method in asked.methods
        for noise_variance in asked.noise
        for seed in range(asked.seeds)
        for function in asked.functions
    ]
    return run(asked.out, tasks, one, columns=COLUMNS, n_processes=asked.processes, fresh=True)


if __name__ == "__main__":
    sys.exit(main())
