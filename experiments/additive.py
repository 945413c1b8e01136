"""Accuracy, coverage and error rates of `AdditiveRegressor` at its defaults, on functions whose ANOVA is known.

    python experiments/additive.py            # everything: about half an hour on two cores; resumes where it stopped
    python experiments/additive.py --fresh    # seeds that no default was chosen on: results/additive-fresh.csv
    python experiments/additive.py --quick    # two seeds of each: two minutes, to results/additive-quick.csv
    python experiments/additive.py --render   # ADDITIVE.md again from the recorded csv

Truths are those of f under the marginals that the model itself uses (its strengths are ‖I_T‖ under the sample), except
the bias of strengths, which is against the exact values for uniform inputs.
"""

import argparse
import csv
import importlib.metadata
import os
import pathlib
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from stamps import marked, recording

import vertebra as vb
from vertebra.datasets import FUNCTIONS, synthetic
from vertebra.metrics import coverage, rmse, top_rank_recall

N_TEST = 5000
# Quantiles of an input that stand for its marginal.
N_NODES = 64
SEEDS, COVERAGE_SEEDS, NULL_SEEDS = range(10), range(50), range(34)
HERE = pathlib.Path(__file__).parent


class Task(NamedTuple):
    """One fit."""

    function: str
    noise_variance: float = 1.0
    seed: int = 0
    n: int = 5000
    n_inputs: int = 10
    correlation: float = 0.0
    scheme: str = "auto"


def fresh_tasks() -> list[Task]:
    """What the defaults could have been fitted to by eye: accuracy, clusters, coverage and error rates, other seeds."""
    main = [Task(f, v, 100 + s) for f in ("f1", "f2", "f3", "f4") for v in (1.0, 5.0) for s in SEEDS]
    bands = [Task(f, 1.0, 100 + s) for f in ("f1", "f3") for s in COVERAGE_SEEDS]
    nulls = [Task(f, 1.0, 100 + s) for f in ("smooth", "rough", "many") for s in range(17)]
    return list(dict.fromkeys([*main, *nulls, *bands]))


def tasks(quick: bool) -> list[Task]:
    seeds, many, null = (range(2), range(2), range(2)) if quick else (SEEDS, COVERAGE_SEEDS, NULL_SEEDS)
    main = [Task(f, v, s) for f in ("f1", "f2", "f3", "f4") for v in (1.0, 3.0, 5.0) for s in seeds]
    bands = [Task(f, 1.0, s) for f in ("f1", "f3") for s in many]
    nulls = [Task(f, 1.0, s) for f in ("smooth", "rough", "many") for s in null]
    wide = [Task("f3", 1.0, s, n=10_000, n_inputs=100) for s in seeds]
    correlated = [Task(f, 1.0, s, correlation=0.7) for f in ("f1", "f3") for s in seeds]
    further = [Task(f, 1.0, s) for f in ("ishigami", "parity") for s in seeds]
    names = ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features")
    paper = [Task("f1", 1.0, s, scheme=name) for name in names for s in range(3 if not quick else 1)]
    return list(dict.fromkeys([*main, *bands, *nulls, *further, *correlated, *wide, *paper]))


def run(task: Task) -> dict[str, float]:
    function = FUNCTIONS[task.function]
    options = dict(noise=np.sqrt(task.noise_variance), n_inputs=task.n_inputs, correlation=task.correlation)
    train = synthetic(task.function, task.n, seed=task.seed, **options)
    test = synthetic(task.function, N_TEST, seed=1000 + task.seed, **options)
    start = time.perf_counter()
    model = vb.AdditiveRegressor(task.scheme, random_state=task.seed).fit(train.x, train.y)
    fitted = time.perf_counter()
    table = model.effects(measure="product")
    worked_out = time.perf_counter()
    names = {f"x{i}": i for i in range(task.n_inputs)}
    terms = [tuple(names[n] for n in term) for term in table["term"]]
    reported = [tuple(names[n] for n in term) for term in model.interactions(0.05)["term"]]

    mean, sd = model.predict_f(test.x)
    sigma = np.sqrt(task.noise_variance)
    best = -0.5 * np.log(2 * np.pi * sigma**2) - 0.5 * ((test.y - test.f) / sigma) ** 2
    real, identifiable = function.strengths(), function.identifiable
    ignored = function.undecidable
    clusters = sorted(tuple(names[n] for n in c) for c in model.clusters_)
    wanted = sorted(t for t in real if not any(set(t) < set(other) for other in real))
    false = [t for t in reported if t not in real]
    row = {
        "rmse": rmse(test.f, mean),
        "rmse_y": rmse(test.y, mean),
        "log_density_short": float(np.mean(best - model.log_prob(test.x, test.y))),
        "coverage_f": coverage(test.f, mean - 1.96 * sd, mean + 1.96 * sd),
        "recall": top_rank_recall(terms, identifiable, passed_over=ignored),
        "recall_paper": top_rank_recall(terms, function.interactions),
        "clusters_exact": float(clusters == wanted),
        "n_reported": float(len(reported)),
        "false_share": len(false) / max(len(reported), 1),
        "first_and_alone": float(terms and [t for t in terms if len(t) > 1] == list(identifiable)),
        "sum_error": float(
            np.abs(model.eval_terms(test.x[:200], measure="product").sum(axis=1) - mean[:200]).max() / test.f.std()
        ),
        "seconds_fit": fitted - start,
        "seconds_effects": worked_out - fitted,
    }
    for term, strength in zip(terms, table["strength"], strict=True):
        if real.get(term, 0.0) >= 0.25 and not task.correlation:
            row[f"strength {term}"] = strength
    row.update(bands(model, function, real, train.x))
    return row


def bands(model, function, real, x) -> dict[str, float]:
    """Coverage of strengths, of pointwise and of simultaneous bands, against f under the marginals of the sample."""
    steps = (np.arange(N_NODES) + 0.5) / N_NODES
    nodes, row = np.quantile(x, steps, axis=0), {}
    for name, low, high in model.effects(measure="product")[["term", "lower", "upper"]].itertuples(index=False):
        term = tuple(int(each[1:]) for each in name)
        if term not in real:
            continue
        shown = [model.effect(name, 0.95, simultaneous=whole, measure="product") for whole in (False, True)]
        seen = {i: np.unique(shown[0][each]) for i, each in zip(term, name, strict=True)}
        parts = tuple(part for part in function.parts if set(term) <= set(part.term))
        inputs = sorted({i for part in parts for i in part.term})
        # the points that are shown carry no measure, the quantiles carry it all
        points = {i: np.append(seen.get(i, []), nodes[:, i]) for i in inputs}
        measure = {i: np.append(np.zeros(len(seen.get(i, []))), np.full(N_NODES, 1.0 / N_NODES)) for i in inputs}
        truth = function._replace(parts=parts).components(points, measure)[term]
        at_nodes = truth[np.ix_(*(np.arange(len(seen[i]), len(points[i])) for i in term))]
        row[f"strength_covered {term}"] = float(low <= np.sqrt(np.mean(at_nodes**2)) <= high)
        places = [np.searchsorted(seen[i], shown[0][each]) for i, each in zip(term, name, strict=True)]
        exact = truth[tuple(places)]
        inside = [((t["lower"] <= exact) & (exact <= t["upper"])).to_numpy() for t in shown]
        row |= {f"pointwise {term}": float(inside[0].mean()), f"simultaneous {term}": float(inside[1].all())}
    return row


FIELDS = [*Task._fields, "quantity", "value"]


def record(path: pathlib.Path, todo: list[Task], n_processes: int) -> None:
    """Runs what is not in the file yet, and adds it, task by task."""
    done = set()
    if path.exists():
        with path.open() as file:
            done = {tuple(row[f] for f in Task._fields) for row in csv.DictReader(file)}
    left = [task for task in todo if tuple(map(str, task)) not in done]
    path.parent.mkdir(exist_ok=True)
    versions = " ".join(f"{name}-{importlib.metadata.version(name)}" for name in ("vertebra", "jax", "numpy"))
    if not left:
        return
    with recording(path, __file__), path.open("a") as file, ProcessPoolExecutor(n_processes) as pool:
        writer = csv.writer(file)
        if not done and file.tell() == 0:
            writer.writerow(FIELDS)
        for number, (task, row) in enumerate(zip(left, pool.map(run, left), strict=True), start=1):
            writer.writerows([*task, quantity, f"{value:.6g}"] for quantity, value in {**row}.items())
            file.flush()
            print(f"{number}/{len(left)} {task} rmse {row['rmse']:.4f} {row['seconds_fit']:.1f} s", flush=True)
    print(versions)


def load(path: pathlib.Path) -> list[dict]:
    with path.open() as file:
        return [
            {
                **row,
                "value": float(row["value"]),
                "noise_variance": float(row["noise_variance"]),
                "seed": int(row["seed"]),
            }
            for row in csv.DictReader(file)
        ]


def render(path: pathlib.Path) -> str:
    """The acceptance tables, from the csv."""
    rows = load(path)

    def pick(quantity, **where):
        return np.array(
            [
                r["value"]
                for r in rows
                if (r["quantity"] == quantity or (quantity.endswith("*") and r["quantity"].startswith(quantity[:-1])))
                and all(
                    str(r[k]) == str(v)
                    for k, v in {"n_inputs": 10, "correlation": 0.0, "scheme": "auto", **where}.items()
                )
            ]
        )

    lines = [
        "# AddNN at its defaults",
        "",
        "Rendered from `results/additive.csv` by `python experiments/additive.py`.",
        "" if path.stem.endswith("-quick") else f"\n{marked(['experiments/additive', 'experiments/additive-fresh'])}\n",
    ]
    lines += [
        "n = 5000, p = 10, noise variance 1, 10 seeds: mean (largest)",
        "",
        "| | f1 | f2 | f3 | f4 | mean |",
        "|---|---|---|---|---|---|",
    ]
    functions = ("f1", "f2", "f3", "f4")
    for label, quantity in (
        ("RMSE to f", "rmse"),
        ("log density short of the true f's", "log_density_short"),
        ("95 % intervals of f cover", "coverage_f"),
        ("exact clusters", "clusters_exact"),
        ("components' sum, error over sd of f", "sum_error"),
        ("seconds to fit", "seconds_fit"),
        ("seconds for all effects", "seconds_effects"),
    ):
        cells = [pick(quantity, function=f, noise_variance=1.0) for f in functions]
        cells = [c[:10] for c in cells]
        mean = np.mean([c.mean() for c in cells])
        lines.append(
            "| " + " | ".join([label, *(f"{c.mean():.3g} ({c.max():.3g})" for c in cells), f"{mean:.3g}"]) + " |"
        )
    lines += [
        "",
        "Top-rank recall over what can be identified (over the paper's list), 10 seeds",
        "",
        "| σ² | f1 | f2 | f3 | f4 |",
        "|---|---|---|---|---|",
    ]
    for v in (1.0, 3.0, 5.0):
        cells = []
        for f in functions:
            ours, paper = (pick(q, function=f, noise_variance=v)[:10].mean() for q in ("recall", "recall_paper"))
            cells.append(f"{ours:.3f} ({paper:.2f})")
        lines.append("| " + " | ".join([f"{v:g}", *cells]) + " |")
    lines += [
        "",
        "False discovery share of `interactions(fdr=0.05)`, 10 seeds",
        "",
        "| σ² | f1 | f2 | f3 | f4 |",
        "|---|---|---|---|---|",
    ]
    for v in (1.0, 5.0):
        cells = [f"{pick('false_share', function=f, noise_variance=v)[:10].mean():.3f}" for f in functions]
        lines.append("| " + " | ".join([f"{v:g}", *cells]) + " |")
    null = np.concatenate([pick("n_reported", function=f) for f in ("smooth", "rough", "many")])
    lines += [
        "",
        f"Purely additive functions: `interactions(0.05)` not empty in {int((null > 0).sum())} of {len(null)} seeds.",
        "",
    ]
    lines += ["Coverage of 95 % intervals and bands, 50 seeds", "", "| | f1 | f3 |", "|---|---|---|"]
    for label, quantity in (
        ("strengths", "strength_covered*"),
        ("pointwise bands", "pointwise*"),
        ("simultaneous bands", "simultaneous*"),
    ):
        cells = [pick(quantity, function=f, noise_variance=1.0) for f in ("f1", "f3")]
        lines.append(f"| {label} | " + " | ".join(f"{c.mean():.3f}" for c in cells) + " |")
    lines += [
        "",
        "Simultaneous bands on f1, term by term: "
        + ", ".join(
            f"{t} {pick(f'simultaneous {t}', function='f1', noise_variance=1.0).mean():.2f}"
            for t in ((0,), (1,), (2,), (3,), (4,), (0, 1))
        ),
        "",
        "Relative bias of strengths of at least 0.25, noise variance 1",
        "",
    ]
    for f in functions:
        biases = []
        for term, s in FUNCTIONS[f].strengths().items():
            values = pick(f"strength {term}", function=f, noise_variance=1.0)
            if s >= 0.25 and len(values):
                biases.append(f"{term} {100 * (values.mean() / s - 1):+.1f} %")
        lines.append(f"- {f}: " + ", ".join(biases))
    lines += ["", "| | recall | RMSE | seconds |", "|---|---|---|---|"]
    for label, where in (
        ("f3, 90 irrelevant inputs, n = 10,000", dict(function="f3", n_inputs=100)),
        ("f1, inputs correlated at 0.7", dict(function="f1", correlation=0.7)),
        ("f3, inputs correlated at 0.7", dict(function="f3", correlation=0.7)),
        ("ishigami", dict(function="ishigami")),
        ("parity of three inputs", dict(function="parity")),
    ):
        cells = [pick(q, **where).mean() for q in ("recall", "rmse", "seconds_fit")]
        lines.append(f"| {label} | " + " | ".join(f"{c:.3g}" for c in cells) + " |")
    lines += [
        "",
        "The paper's schemes on f1, 3 seeds",
        "",
        "| scheme | RMSE | {1,2} first and alone | largest relative error of a mean strength |",
        "|---|---|---|---|",
    ]
    for scheme in ("mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features"):
        where = dict(function="f1", scheme=scheme)
        worst = max(abs(pick(f"strength {t}", **where).mean() / s - 1) for t, s in FUNCTIONS["f1"].strengths().items())
        error, first = (pick(q, **where).mean() for q in ("rmse", "first_and_alone"))
        lines.append(f"| {scheme} | {error:.3f} | {first:.2f} | {100 * worst:.1f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.fresh:
        results = HERE / "results" / "additive-fresh.csv"
        record(results, fresh_tasks(), arguments.processes)
    elif not arguments.render:
        results = HERE / "results" / ("additive-quick.csv" if arguments.quick else "additive.csv")
        record(results, tasks(arguments.quick), arguments.processes)
    text = render(HERE / "results" / ("additive-quick.csv" if arguments.quick else "additive.csv"))
    print(text)
    if not arguments.quick:
        (HERE / "ADDITIVE.md").write_text(text)
