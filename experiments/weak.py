"""Weak terms of small tables: are probabilities calibrated, and are those that are found as strong as it is said?

    python experiments/weak.py            # seeds 100–119: some minutes; goes on where it stopped
    python experiments/weak.py --quick    # six tables: results/weak-quick.csv
    python experiments/weak.py --seeds 0:20    # seeds to choose on: results/weak-dev.csv, not kept

Main effects of one to six standard errors, σ/√n, of which some may be seen and others not; noise; and pairs, those of
f1–f4. A term is weak if it was chosen near the level of the choice: noise may have helped it. `before` is what the
posterior says that knows nothing of the choice.
"""

import argparse
import itertools
import os
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from runner import RESULTS, read, run

from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.effects.posterior import TermsPosterior
from vertebra.likelihoods.working_responses import Plain
from vertebra.terms.additive import fit_additive
from vertebra.terms.structure import probabilities

# Whatever is chosen is chosen on other seeds than those reported.
SEEDS = range(100, 120)
ROWS, INPUTS, SHARES, IDLE = (100, 200, 300), (20, 50), (0.02, 0.3), (10, 50)
STANDARD_ERRORS = (1.0, 6.0)
PAPER, PAPER_ROWS, PAPER_NOISE = ("f1", "f2", "f3", "f4"), 300, np.sqrt(3.0)
BINS = (0.0, 0.05, 0.2, 0.5, 0.95, 1.0)
LEVEL = 0.95
POINTS = np.linspace(0.02, 0.98, 49)
NAMES = [f"{low:g}-{high:g}" for low, high in itertools.pairwise(BINS)]
COLUMNS = tuple(f"{part} {name}" for part in ("terms", "stated", "real") for name in NAMES)
COLUMNS += ("chosen", "true", "strength", "covered", "before", "covered before", "band", "band before")


class Task(NamedTuple):
    """A table; `share` of its inputs act."""

    family: str
    n: int
    p: int
    share: float
    seed: int


def line(a):
    return np.sqrt(3.0) * (2.0 * a - 1.0)


def bend(a):
    return (line(a) ** 2 - 1.0) / np.sqrt(0.8)


def wave(a):
    return np.sqrt(2.0) * np.sin(2.0 * np.pi * a)


# Of mean 0 and sd 1; half of them are lines.
SHAPES = (line, line, bend, wave)


def table(task: Task):
    """Inputs, the target, how strong each term is, and the curves of main effects."""
    if task.family in FUNCTIONS:
        data = synthetic(task.family, task.n, noise=PAPER_NOISE, seed=task.seed)
        return data.x, data.y, dict(FUNCTIONS[task.family].strengths()), {}
    rng = np.random.default_rng([task.seed, task.n, task.p, int(100 * task.share)])
    x, strengths, curves = rng.random((task.n, task.p)), {}, {}
    y = rng.standard_normal(task.n)
    for i in rng.choice(task.p, max(1, round(task.share * task.p)) if task.share else 0, replace=False).tolist():
        strengths[(i,)] = rng.uniform(*STANDARD_ERRORS) / np.sqrt(task.n)
        curves[(i,)] = SHAPES[rng.integers(len(SHAPES))]
        y = y + strengths[(i,)] * curves[(i,)](x[:, i])
    return x, y, strengths, curves


def one(task: Task) -> dict:
    x, y, strengths, curves = table(task)
    weight = np.ones(len(y))
    found = fit_additive(x, Plain(y[:, None], weight), weight, rng=np.random.default_rng(0))
    stated = probabilities(found.structures[0])
    p, real = np.array(list(stated.values())), np.array([t in strengths for t in stated])
    row: dict[str, float] = {}
    for name, (low, high) in zip(NAMES, itertools.pairwise(BINS), strict=True):
        inside = (p >= low) & ((p < high) | (high == 1.0))
        row |= {f"terms {name}": float(inside.sum()), f"stated {name}": float(p[inside].sum())}
        row[f"real {name}"] = float(real[inside].sum())
    now = TermsPosterior(found.terms, 0)
    before = TermsPosterior(found.terms._replace(chosen=()), 0)
    chosen = [t for t in found.terms.chosen[0] if t in strengths]
    row |= {"chosen": float(len(chosen)), "true": sum(strengths[t] for t in chosen)}
    for posterior, mean, covered, band in (
        (now, "strength", "covered", "band"),
        (before, "before", "covered before", "band before"),
    ):
        measure = posterior.measures[0]
        sizes = posterior.sizes(0, None, measure)
        row[mean] = sum(float(sizes[t].strength.mean()) for t in chosen)
        limits = {t: np.quantile(sizes[t].strength, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL]) for t in chosen}
        row[covered] = float(sum(low <= strengths[t] <= high for t, (low, high) in limits.items()))
        row[band] = 0.0
        for t in set(chosen) & set(curves):
            low, high = posterior.curve(t, [POINTS], 0, None, measure).band(LEVEL)
            truth = strengths[t] * curves[t](POINTS)
            row[band] += float(np.mean((low <= truth) & (truth <= high)))
    return row


def tasks(seeds) -> list[Task]:
    """Three tables a seed: numbers of rows and of inputs, noise and the paper's functions take turns."""
    result = []
    for seed in seeds:
        turn = seed // 2
        n, p = ROWS[turn % len(ROWS)], INPUTS[seed % len(INPUTS)]
        result += [Task("weak", n, p, share, seed) for share in SHARES]
        if seed % 2:
            result.append(Task(PAPER[turn % len(PAPER)], PAPER_ROWS, 10, 0.0, seed))
        else:
            result.append(Task("noise", n, IDLE[turn % len(IDLE)], 0.0, seed))
    return result


def summary(rows: pd.DataFrame) -> dict[str, float]:
    """What was promised, measured."""
    rows = rows.astype(dict.fromkeys(COLUMNS, float))

    def summed(part: str, own: pd.DataFrame = rows) -> pd.Series:
        return pd.Series({name: own[f"{part} {name}"].sum() for name in NAMES})

    noise, over = rows[rows["family"] == "noise"], summed("stated") - summed("real")
    chosen, curves = (max(own["chosen"].sum(), 1.0) for own in (rows, rows[rows["family"] == "weak"]))
    true = max(rows["true"].sum(), 1e-300)
    return {
        "calibration error": over.abs().sum() / summed("terms").sum(),
        "overstated in 0.5-0.95": over["0.5-0.95"] / max(summed("terms")["0.5-0.95"], 1.0),
        "mean probability in noise": summed("stated", noise).sum() / max(summed("terms", noise).sum(), 1.0),
        "terms chosen": rows["chosen"].sum(),
        "strength ratio": rows["strength"].sum() / true,
        "strength ratio before": rows["before"].sum() / true,
        "covered": rows["covered"].sum() / chosen,
        "covered before": rows["covered before"].sum() / chosen,
        "band": rows["band"].sum() / curves,
        "band before": rows["band before"].sum() / curves,
    }


PROMISED = {
    "calibration error": "≤ 0.03",
    "overstated in 0.5-0.95": "within 0.1",
    "mean probability in noise": "near 0",
    "strength ratio": "0.9 to 1.15",
    "covered": "≥ 0.90",
    "band": "≥ 0.91",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", default=None, help="first:last, others than those that are reported")
    given = parser.parse_args()
    seeds = range(*map(int, given.seeds.split(":"))) if given.seeds else SEEDS[:2] if given.quick else SEEDS
    path = RESULTS / ("weak-quick.csv" if given.quick else "weak-dev.csv" if given.seeds else "weak.csv")
    run(path, tasks(seeds), one, columns=COLUMNS)
    for name, measured in summary(pd.DataFrame(read(path))).items():
        print(f"{name:28} promised {PROMISED.get(name, ''):12} measured {measured:.3f}")


if __name__ == "__main__":
    main()
