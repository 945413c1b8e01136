"""Categories of many levels that do nothing, and one that acts: are they, and pairs with them, taken for real?

    python experiments/levels.py            # 200 tables of each kind; resumes where it stopped
    python experiments/levels.py --quick    # 3 tables of each kind: results/levels-quick.csv

A table of noise has two numbers that act and categories of 65, 100, 500 and 5,000 levels that do not, the levels'
shares by Zipf's law. In a table of the other kind the numbers act and a category of 200 levels, whose effects are
N(0, 0.5²) beside a noise of N(0, 1). p-values and the terms found are those of `candidates`; `pairs` with a
category are what `interactions` lists, of which none is real, `shown` those that `effects` has, as they may predict.
"""

import argparse
from typing import NamedTuple

import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.stats import binomtest

import vertebra as vb

# Of 100 to 299 it was seen that evidence let idle categories in, which `may_be_wanted` was then made for.
SEEDS = range(300, 500)
MANY = (65, 100, 500, 5000)
KINDS = (("noise", 300), ("noise", 3000), ("effects", 3000))
ACTING, SD = 200, 0.5
LEVELS = (0.05, 0.005, 0.001)
COLUMNS = (*(f"p {m}" for m in MANY), *(f"found {m}" for m in MANY), f"p {ACTING}", f"found {ACTING}", "pairs", "shown")
# Tables are noise alike: the category of so few levels must have them all to be of the kind that is asked about.
FEWEST = 65


class Task(NamedTuple):
    kind: str
    n: int
    seed: int


def zipf(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Levels of n rows, the k-th as often as 1/k, and each of the first few at least once."""
    share = 1.0 / np.arange(1, m + 1)
    code = rng.choice(m, n, p=share / share.sum())
    code[rng.choice(n, FEWEST, replace=False)] = np.arange(FEWEST)
    return code


def table(task: Task) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(task.seed)
    x0, x1 = rng.standard_normal((2, task.n))
    y = np.sin(x0) + 0.5 * x1 + rng.standard_normal(task.n)
    frame = {"x0": x0, "x1": x1}
    if task.kind == "noise":
        frame |= {f"of {m}": np.char.add("v", zipf(m, task.n, rng).astype(str)) for m in MANY}
    else:
        code = rng.integers(0, ACTING, task.n)
        y = y + SD * rng.standard_normal(ACTING)[code]
        frame |= {f"of {ACTING}": np.char.add("v", code.astype(str))}
    return pd.DataFrame(frame), y


def one(task: Task) -> dict:
    x, y = table(task)
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    tested = model.candidates(order=1)
    tested.index = [term[0] for term in tested["term"]]
    found = dict.fromkeys(COLUMNS, "")
    for m in MANY if task.kind == "noise" else (ACTING,):
        found |= {f"p {m}": tested["p_value"][f"of {m}"], f"found {m}": int(tested["found"][f"of {m}"])}
    pairs, shown = (
        sum(any(name.startswith("of ") for name in term) for term in each["term"] if len(term) > 1)
        for each in (model.interactions(), model.effects())
    )
    return found | {"pairs": pairs, "shown": shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    seeds = range(*map(int, given.seeds.split(":"))) if given.seeds else SEEDS[:3] if given.quick else SEEDS
    path = RESULTS / ("levels-quick.csv" if given.quick or given.seeds else "levels.csv")
    run(path, [Task(*kind, seed) for seed in seeds for kind in KINDS], one, columns=COLUMNS)
    rows = pd.DataFrame(read(path))
    for kind, n in KINDS:
        own = rows.loc[(rows["kind"] == kind) & (rows["n"].astype(int) == n)]
        for m in MANY if kind == "noise" else (ACTING,):
            p = own[f"p {m}"].astype(float)
            shares = ", ".join(f"p < {level}: {np.mean(p < level):.3f}" for level in LEVELS)
            print(f"{kind}, {n} rows, {m} levels: {shares}, found {own[f'found {m}'].astype(int).mean():.3f}")
        false = int((own["pairs"].astype(int) > 0).sum())
        limit = binomtest(false, len(own)).proportion_ci().high
        shown = int((own["shown"].astype(int) > 0).sum())
        print(f"{kind}, {n} rows: false pairs in {false} of {len(own)} tables, at most {limit:.3f}; shown in {shown}")


if __name__ == "__main__":
    main()
