"""Classes that the inputs tell apart, or nearly: is `AdditiveClassifier` ever behind a linear model, or empty?

    python experiments/separable.py            # 4 kinds × 4 sizes × 5 noises × 10 seeds; resumes where it stopped
    python experiments/separable.py --quick    # one seed, the smallest and a middle size: results/separable-quick.csv

Near separation the weights of rows vanish at the fit, and with them the power of tests of its terms (Hauck & Donner).
"""

import argparse
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.special import xlogy
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import vertebra as vb

KINDS = ("numbers", "categories", "both", "ordered")
SIZES, NOISES, SEEDS = (100, 300, 1000, 3000), (0.0, 0.1, 0.2, 0.3, 0.5), range(200, 210)
N_TEST = 10_000
# A model is behind from so much log loss on.
BEHIND = 0.02
LEVELS = np.array(["a", "b", "c", "d", "e"])
COLUMNS = ("log_loss", "linear", "stated", "accuracy", "n_inputs", "least_probability")


class Task(NamedTuple):
    kind: str
    n: int
    noise: float
    seed: int


def sample(task: Task, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Two inputs that act, one that does not, and the class: whether a sum of the two is above its middle."""
    rng = np.random.default_rng(seed)
    u, v, idle = rng.standard_normal((3, n))
    one, other = rng.integers(0, len(LEVELS), (2, n))
    match task.kind:
        case "numbers":
            x, f = {"u": u, "v": v}, u + v
        case "categories":
            x, f = {"u": LEVELS[one], "v": LEVELS[other]}, one + other - 3.5
        case "both":
            x, f = {"u": u, "v": LEVELS[one]}, u + one - 2.0
        case _:
            x, f = {"u": u, "v": pd.Categorical(LEVELS[one], categories=LEVELS, ordered=True)}, u + one - 2.0
    return pd.DataFrame(x).assign(idle=idle), (f + task.noise * rng.standard_normal(n) > 0.0).astype(int)


def linear(x: pd.DataFrame):
    text = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    numbers = [name for name in x if name not in text]
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), text), (StandardScaler(), numbers))
    return make_pipeline(columns, LogisticRegression(max_iter=2000))


def log_loss(y: np.ndarray, p: np.ndarray) -> float:
    return float(-np.mean(xlogy(y, np.maximum(p, 1e-300)) + xlogy(1 - y, np.maximum(1.0 - p, 1e-300))))


def one(task: Task) -> dict:
    x, y = sample(task, task.n, task.seed)
    new, target = sample(task, N_TEST, 10_000 + task.seed)
    model = vb.AdditiveClassifier(random_state=0).fit(x, y)
    p = model.predict_proba(new)[:, 1]
    effects = model.effects(order=1).set_index("term")["probability"]
    real = [float(effects.get((name,), 0.0)) for name in ("u", "v")]
    return {
        "log_loss": log_loss(target, p),
        "linear": log_loss(target, linear(x).fit(x, y).predict_proba(new)[:, 1]),
        "stated": model.evaluation_.scores["model"]["log_loss"],
        "accuracy": float(np.mean((p > 0.5) == target)),
        "n_inputs": len({name for cluster in model.clusters_ for name in cluster}),
        "least_probability": min(real),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    sizes, seeds = (SIZES[:2], SEEDS[:1]) if given.quick else (SIZES, SEEDS)
    if given.seeds:
        seeds = range(*map(int, given.seeds.split(":")))
    name = "separable-quick.csv" if given.quick or given.seeds else "separable.csv"
    tasks = [Task(k, n, s, seed) for k in KINDS for n in sizes for s in NOISES for seed in seeds]
    run(RESULTS / name, tasks, one, columns=COLUMNS)
    rows = pd.DataFrame(read(RESULTS / name)).astype(dict.fromkeys(COLUMNS, float))
    behind = rows["log_loss"] - rows["linear"]
    print(f"{len(rows)} fits: at most {behind.max():.4f} behind the linear model, on average {behind.mean():.4f};")
    print(f"more than {BEHIND} behind: {(behind > BEHIND).sum()}; without a term: {(rows['n_inputs'] == 0).sum()}")


if __name__ == "__main__":
    main()
