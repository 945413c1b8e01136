"""Where `AdditiveRegressor` goes wrong, and how far: ten cases, each made worse step by step.

    python experiments/limits.py            # everything: about an hour on one core; resumes where it stopped
    python experiments/limits.py --quick    # two seeds, the mildest and the worst of each: results/limits-quick.csv
    python experiments/limits.py --draw     # docs/images/limits-….png again from the recorded csv

Truths are those of f under the marginals of the sample, as in additive.py. A term is reported where its probability is
above 0.95 (one input) or `interactions(fdr=0.05)` holds it (two and more).
"""

import argparse
import csv
import functools
import importlib.metadata
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib as mpl
import numpy as np
from additive import bands
from scipy.special import expit, ndtr
from scipy.stats import binomtest
from scipy.stats import t as student
from stamps import recording

mpl.use("Agg")

import matplotlib.pyplot as plt

import vertebra as vb
from vertebra.datasets import FUNCTIONS, Part, SumOfParts, synthetic
from vertebra.metrics import coverage, rmse

HERE = pathlib.Path(__file__).parent
RESULTS, IMAGES = HERE / "results" / "limits.csv", HERE.parent / "docs" / "images"
SEEDS = range(20)
N_ROWS, N_INPUTS, N_TEST, NOISE = 500, 10, 2000, 2.0
ROWS_PER_GROUP, OF_GROUPS = 10, (0, 2, 5, 6, 7)
# What the diagnostics may say, by words that only this warning has.
WARNINGS = {
    "concurvity": "rise and fall together",
    "intervals": "the noise is not as assumed",
    "linear": "a linear model predicts",
    "uneven": "is uneven",
}
f1 = FUNCTIONS["f1"]


class Task(NamedTuple):
    """One fit. `fit` is "default", or what is done about the case."""

    case: str
    fit: str
    severity: float
    seed: int


class Sample(NamedTuple):
    """Rows to fit and, by name, the inputs of rows to look at; `real` holds the terms of f."""

    function: SumOfParts
    x: np.ndarray
    y: np.ndarray
    tests: dict[str, np.ndarray]
    noise: Callable[[np.random.Generator, int], np.ndarray]  # of new rows
    settings: dict[str, Any] = {}
    shows_bands: bool = True
    shared: tuple[int, ...] = ()  # the inputs that all rows of a group have in common


def gaussian(scale: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: scale * rng.standard_normal(n)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return 1.0 - rng.random((n, N_INPUTS))


def correlated(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, all inputs correlated alike: rows from the same source, and rows of the product of the marginals."""
    options = dict(noise=NOISE, correlation=task.severity)
    train = synthetic("f1", n, seed=task.seed, **options)
    test = synthetic("f1", N_TEST, seed=1000 + task.seed, **options)
    return Sample(f1, train.x, train.y, {"": test.x, "product": uniform(rng, N_TEST)}, gaussian(NOISE))


# x1 nearly is x0, which acts alone; x3 nearly is x2, and they act together.
pairs = SumOfParts(
    N_INPUTS,
    (
        Part((0,), lambda a: 12 * (a - 0.5) ** 2),
        Part((2, 3), lambda a, b: 12 * (a - 0.5) * (b - 0.5)),
        Part((4,), lambda a: 3 * a),
        Part((5,), lambda a: np.sin(2 * np.pi * a)),
    ),
)


def copies(task: Task, rng: np.random.Generator, n: int) -> Sample:
    def draw(n):
        x = uniform(rng, n)
        for i in (0, 2):
            first, own = rng.standard_normal((2, n))
            x[:, i] = ndtr(first)
            x[:, i + 1] = ndtr(task.severity * first + np.sqrt(1.0 - task.severity**2) * own)
        return x

    x = draw(n)
    test = {"": draw(N_TEST), "product": uniform(rng, N_TEST)}
    return Sample(pairs, x, pairs(x) + rng.standard_normal(n), test, gaussian(1.0))


def rows(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, few rows; or with the terms given, every input alone, so that nothing is chosen."""
    x = uniform(rng, min(n, int(task.severity)))
    y = f1(x) + gaussian(NOISE)(rng, len(x))
    settings = {"clusters": [(i,) for i in range(N_INPUTS)]} if task.fit == "inputs alone" else {}
    return Sample(f1, x, y, {"": uniform(rng, N_TEST)}, gaussian(NOISE), settings)


def tails(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, noise of Student's t: the severity is its degrees of freedom."""

    def noise(rng, n):
        return NOISE * (rng.standard_normal(n) if np.isinf(task.severity) else rng.standard_t(task.severity, n))

    x = uniform(rng, n)
    settings = {"likelihood": "student_t"} if task.fit == "student_t" else {}
    return Sample(f1, x, f1(x) + noise(rng, n), {"": uniform(rng, N_TEST)}, noise, settings)


def outliers(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, a share of the cells of x wrong, N(0, 10²) where the range is (0, 1]; new rows are right."""
    x = uniform(rng, n)
    y = f1(x) + gaussian(NOISE)(rng, n)
    wrong = rng.random(x.shape) < task.severity
    x[wrong] = 10.0 * rng.standard_normal(wrong.sum())
    if task.fit == "blanked":
        x[(x <= 0.0) | (x > 1.0)] = np.nan
    return Sample(f1, x, y, {"": uniform(rng, N_TEST)}, gaussian(NOISE), shows_bands=False)


def product_of(order: int, strength: float) -> SumOfParts:
    """Main effects of x4 to x7, and s Π √3(2x − 1) over the first inputs: of sd s, and nothing of lower order."""

    def together(*x):
        return strength * np.prod([np.sqrt(3.0) * (2.0 * each - 1.0) for each in np.broadcast_arrays(*x)], axis=0)

    alone = (lambda a: 2 * a**2, lambda a: 2 * np.sqrt(a), lambda a: 2 * np.exp(a), lambda a: np.sin(2 * np.pi * a))
    parts = [Part((i,), g) for i, g in enumerate(alone, start=4)]
    return SumOfParts(N_INPUTS, (*parts, Part(tuple(range(order)), together)))


def together(task: Task, rng: np.random.Generator, n: int, *, order: int) -> Sample:
    function, x = product_of(order, task.severity), uniform(rng, n)
    return Sample(function, x, function(x) + rng.standard_normal(n), {"": uniform(rng, N_TEST)}, gaussian(1.0))


def step_of(width: float) -> SumOfParts:
    """Three steps and a line; a step rises from 12 % to 88 % of its height within `width`, a share of the range."""

    def step(place):
        return lambda a: 2.0 * (expit(4.0 * (a - place) / width) if width else (a > place))

    steps = [Part((i,), step(place)) for i, place in enumerate((0.3, 0.5, 0.7))]
    return SumOfParts(N_INPUTS, (*steps, Part((3,), lambda a: 3 * a)))


def steps(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """Near a step: x0 within 0.03 of it. With four times the rows, rough functions are tried."""
    function, near = step_of(task.severity), uniform(rng, N_TEST)
    n = 4 * n if task.fit == "more rows" else n
    x = uniform(rng, n)
    near[:, 0] = 0.3 + 0.03 * (2.0 * rng.random(N_TEST) - 1.0)
    tests = {"": uniform(rng, N_TEST), "near": near}
    return Sample(function, x, function(x) + rng.standard_normal(n), tests, gaussian(1.0))


def groups(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, rows in groups of ten that share five of the inputs and a share of the noise's variance."""
    between, within = NOISE * np.sqrt(task.severity), NOISE * np.sqrt(1.0 - task.severity)

    def draw(n):
        group = np.arange(n) // ROWS_PER_GROUP
        x, shared = uniform(rng, n), uniform(rng, group.max() + 1)
        x[:, list(OF_GROUPS)] = shared[group][:, list(OF_GROUPS)]
        return group, x

    group, x = draw(n)
    y = f1(x) + between * rng.standard_normal(group.max() + 1)[group] + within * rng.standard_normal(n)
    new, settings = draw(N_TEST)[1], {}
    if task.fit == "group":
        # a column of its own; new rows are of groups never seen
        x, new = np.column_stack([x, group]), np.column_stack([new, np.full(N_TEST, -1.0)])
        settings = {"feature_types": {f"x{N_INPUTS}": "category"}}
    return Sample(f1, x, y, {"": new}, gaussian(NOISE), settings, shared=OF_GROUPS)


def outside(task: Task, rng: np.random.Generator, n: int) -> Sample:
    """f1, one acting input of each new row beyond its range, by a share of it."""
    x, new = uniform(rng, n), uniform(rng, N_TEST)
    y = f1(x) + gaussian(NOISE)(rng, n)
    if task.severity:
        moved = np.arange(N_TEST), rng.integers(0, 5, N_TEST)
        new[moved] = np.where(rng.random(N_TEST) < 0.5, -task.severity, 1.0 + task.severity)
    return Sample(f1, x, y, {"": new}, gaussian(NOISE), {"conformal": task.fit == "conformal"})


class Case(NamedTuple):
    """How it is drawn, at which severities, and what else is fitted, at which of them; `axis` names the severity."""

    sample: Callable[..., Sample]
    axis: str
    severities: tuple[float, ...]
    others: dict[str, tuple[float, ...]] = {}

    @property
    def fits(self) -> dict[str, tuple[float, ...]]:
        return {"default": self.severities, **self.others}


DISTANCES = 0.0, 0.1, 0.25, 0.5, 1.0
CASES = {
    "correlated": Case(correlated, "correlation of all inputs", (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)),
    "copies": Case(copies, "correlation within two pairs", (0.0, 0.5, 0.8, 0.9, 0.99)),
    "rows": Case(rows, "rows", (1000.0, 500.0, 200.0, 100.0, 50.0), {"inputs alone": (200.0, 100.0, 50.0)}),
    "tails": Case(
        tails, "degrees of freedom of the noise", (np.inf, 5.0, 3.0, 2.0), {"student_t": (np.inf, 5.0, 3.0, 2.0)}
    ),
    "outliers": Case(outliers, "share of cells wrong", (0.0, 0.01, 0.03, 0.1), {"blanked": (0.01, 0.03, 0.1)}),
    "threefold": Case(functools.partial(together, order=3), "strength / noise sd", (0.1, 0.15, 0.2, 0.3, 0.5)),
    "fourfold": Case(functools.partial(together, order=4), "strength / noise sd", (0.2, 0.5, 1.0, 2.0)),
    "steps": Case(steps, "width of the steps / range", (0.5, 0.2, 0.1, 0.05, 0.0), {"more rows": (0.5, 0.0)}),
    "groups": Case(groups, "share of the noise that groups have", (0.0, 0.1, 0.3, 0.6), {"group": (0.3, 0.6)}),
    "outside": Case(outside, "distance outside / range", DISTANCES, {"conformal": DISTANCES}),
}


def tasks(quick: bool) -> list[Task]:
    """Seed by seed, so that a run that was cut off has as many of each."""
    seeds = range(2) if quick else SEEDS
    return [
        Task(name, fit, severity, seed)
        for seed in seeds
        for name, case in CASES.items()
        for fit, severities in case.fits.items()
        for severity in (severities[:: len(severities) - 1] if quick else severities)
    ]


@functools.lru_cache(maxsize=1)
def _outside_model(seed: int, n: int, conformal: bool) -> tuple[Any, float]:
    """One fit for all distances: the rows to fit are drawn first, and do not depend on them."""
    return _fit(outside(Task("outside", "conformal" if conformal else "default", 0.0, seed), _rng("outside", seed), n))


def _rng(case: str, seed: int) -> np.random.Generator:
    """The same rows whatever the fit; the same inputs and noise, as far as they can be, whatever the severity."""
    return np.random.default_rng([list(CASES).index(case), seed])


def _fit(sample: Sample) -> tuple[Any, float]:
    start = time.perf_counter()
    model = vb.AdditiveRegressor(random_state=0, **sample.settings).fit(sample.x, sample.y)
    return model, time.perf_counter() - start


def run(task: Task, n: int = N_ROWS) -> dict[str, float]:
    """Draws, fits and measures; for "rows" up to twice as many."""
    n = 2 * n if task.case == "rows" else n
    rng = _rng(task.case, task.seed)
    sample = CASES[task.case].sample(task, rng, n)
    if task.case == "outside":
        model, seconds = _outside_model(task.seed, n, sample.settings["conformal"])
    else:
        model, seconds = _fit(sample)
    return measure(model, sample, rng) | {"seconds": seconds}


def measure(model: Any, sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    real = _strengths(sample.function)
    row: dict[str, float] = {}
    for name, x in sample.tests.items():
        own, f = f" {name}" if name else "", sample.function(x[:, :N_INPUTS])
        mean, sd = model.predict_f(x)
        row[f"rmse{own}"] = rmse(f, mean)
        row[f"coverage f{own}"] = coverage(f, mean - 1.96 * sd, mean + 1.96 * sd)
    x = sample.tests[""]
    y = sample.function(x[:, :N_INPUTS]) + sample.noise(rng, len(x))
    row["coverage y"] = coverage(y, *model.predict_interval(x).T)
    row["rmse y"], row["rmse y stated"] = rmse(y, model.predict(x)), model.evaluation_.scores["model"]["rmse"]
    table, kept = model.effects(measure="product"), {_term(names) for names in model.interactions(0.05)["term"]}
    terms = {_term(names): p for names, p in zip(table["term"], table["probability"], strict=True)}
    row["remainder"] = float(any(len(term) == model.n_features_in_ for term in terms))
    terms = {term: p for term, p in terms.items() if len(term) <= 3 and N_INPUTS not in term}
    alone = {term for term, p in terms.items() if len(term) == 1 and p > 0.95}
    for name, reported, wanted in (
        ("inputs", alone, {term for term in real if len(term) == 1}),
        ("interactions", {t for t in kept if N_INPUTS not in t}, {term for term in real if len(term) > 1}),
    ):
        row |= {f"false {name}": float(len(reported - wanted)), f"missed {name}": float(len(wanted - reported))}
        row[f"false share {name}"] = len(reported - wanted) / max(len(reported), 1)
    if terms:
        row["overstated"] = float(np.mean([p - (term in real) for term, p in terms.items()]))
    if sample.shows_bands:
        held = bands(model, sample.function, real, sample.x)
        inside = {term: held[f"pointwise {term}"] for term in real if f"pointwise {term}" in held}
        shared = [share for term, share in inside.items() if set(term) <= set(sample.shared)]
        row |= {"coverage bands": float(np.mean(list(inside.values())))} if inside else {}
        row |= {"coverage bands shared": float(np.mean(shared))} if shared else {}
    words = model.diagnostics_.warnings
    row["warned"] = float(len(words) > 0)
    return row | {f"warned {name}": float(any(part in w for w in words)) for name, part in WARNINGS.items()}


@functools.lru_cache(maxsize=64)
def _strengths(function: SumOfParts) -> dict[tuple[int, ...], float]:
    """Of the four-fold product by hand, whose grid is large."""
    if max(len(part.term) for part in function.parts) < 4:
        return function.strengths()
    return {part.term: 1.0 for part in function.parts}


def _term(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(name[1:]) for name in names)


FIELDS = [*Task._fields, "quantity", "value"]


def _pinned() -> None:
    """A core for each process, in turn: many that all take every core wait for each other."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[multiprocessing.current_process()._identity[0] % len(cores)]})


def record(path: pathlib.Path, todo: list[Task], n: int = N_ROWS, jobs: int = 1) -> None:
    """Runs what is not in the file yet, and adds it, task by task."""
    done = {tuple(row[field] for field in Task._fields) for row in load(path)} if path.exists() else set()
    left = [task for task in todo if tuple(map(str, task)) not in done]
    path.parent.mkdir(exist_ok=True)
    if not left:
        return
    with recording(path, __file__), path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(FIELDS)
        for number, (task, row) in enumerate(_results(left, n, jobs), start=1):
            # in one write: a task is in the file or not
            file.write("".join(f"{','.join(map(str, task))},{name},{value:.5g}\n" for name, value in row.items()))
            file.flush()
            words = f"rmse {row['rmse']:.3f}, f {row['coverage f']:.2f}, {row['seconds']:.1f} s"
            print(f"{number}/{len(left)} {' '.join(map(str, task))}: {words}", flush=True)


def _results(todo: list[Task], n: int, jobs: int) -> Iterator[tuple[Task, dict[str, float]]]:
    """Tasks with what was measured, in the order in which they end."""
    if jobs == 1:
        yield from ((task, run(task, n)) for task in todo)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_pinned) as pool:
        running = {pool.submit(run, task, n): task for task in todo}
        for done in as_completed(running):
            yield running[done], done.result()


def load(path: pathlib.Path = RESULTS) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


# Colours that the colour-blind can tell apart (Okabe & Ito), a marker to each.
FIRST, SECOND, THIRD, FOURTH = ("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "v")


class Line(NamedTuple):
    """One line of a panel: the mean of a sum of quantities over seeds, by severity."""

    label: str
    style: tuple[str, str]
    quantities: tuple[str, ...]
    fit: str = "default"
    case: str = ""  # another than the figure's own


class Panel(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    legend: str = "best"


RMSE, HOLD, TERMS, SAID = "RMSE of f", "95 % intervals hold", "terms per fit", "what the model says"
MISSED, FALSE = ("missed inputs", "missed interactions"), ("false inputs", "false interactions")
IN_ALL = (
    Panel(TERMS, (Line("missed", FIRST, MISSED), Line("false", SECOND, FALSE))),
    Panel(
        SAID,
        (
            Line("share of fits that warn", FIRST, ("warned",)),
            Line("probabilities too high by", SECOND, ("overstated",)),
        ),
    ),
)
OF_DEPENDENCE = (
    Panel(RMSE, (Line("where rows are", FIRST, ("rmse",)), Line("inputs unrelated", SECOND, ("rmse product",)))),
    Panel(
        HOLD,
        (
            Line("f", FIRST, ("coverage f",)),
            Line("f, inputs unrelated", SECOND, ("coverage f product",)),
            Line("effects", THIRD, ("coverage bands",)),
        ),
    ),
    *IN_ALL,
)


def against(fit: str, label: str) -> tuple[Panel, ...]:
    """The default, and what is done about it."""
    return (
        Panel(RMSE, (Line("default", FIRST, ("rmse",)), Line(label, SECOND, ("rmse",), fit))),
        Panel(
            HOLD,
            (
                Line("f, default", FIRST, ("coverage f",)),
                Line(f"f, {label}", SECOND, ("coverage f",), fit),
                Line("new y, default", THIRD, ("coverage y",)),
            ),
        ),
        Panel(
            TERMS,
            (
                Line("missed, default", FIRST, MISSED),
                Line(f"missed, {label}", SECOND, MISSED, fit),
                Line("false, default", THIRD, FALSE),
                Line(f"false, {label}", FOURTH, FALSE, fit),
            ),
        ),
        IN_ALL[1],
    )


FIGURES = {
    "correlated": OF_DEPENDENCE,
    "copies": OF_DEPENDENCE,
    "rows": (
        Panel(RMSE, (Line("default", FIRST, ("rmse",)), Line("inputs alone", SECOND, ("rmse",), "inputs alone"))),
        Panel(
            HOLD,
            (
                Line("f", FIRST, ("coverage f",)),
                Line("f, inputs alone", SECOND, ("coverage f",), "inputs alone"),
                Line("effects", THIRD, ("coverage bands",)),
            ),
        ),
        *IN_ALL,
    ),
    "tails": against("student_t", "student_t"),
    "outliers": against("blanked", "made gaps"),
    "orders": (
        Panel(RMSE, (Line("3 inputs", FIRST, ("rmse",)), Line("4 inputs", SECOND, ("rmse",), case="fourfold"))),
        Panel(
            HOLD,
            (
                Line("f, 3 inputs", FIRST, ("coverage f",)),
                Line("f, 4 inputs", SECOND, ("coverage f",), case="fourfold"),
            ),
        ),
        Panel(
            TERMS,
            (
                Line("missed, 3 inputs", FIRST, MISSED),
                Line("missed, 4 inputs", SECOND, MISSED, case="fourfold"),
                Line("false, 4 inputs", THIRD, FALSE, case="fourfold"),
            ),
        ),
        Panel(
            f"{SAID}, 4 inputs",
            (
                Line("share of fits that warn", FIRST, ("warned",), case="fourfold"),
                Line("probabilities too high by", SECOND, ("overstated",), case="fourfold"),
            ),
        ),
    ),
    "steps": (
        Panel(
            RMSE,
            (
                Line("everywhere", FIRST, ("rmse",)),
                Line("near a step", SECOND, ("rmse near",)),
                Line("2000 rows", THIRD, ("rmse",), "more rows"),
            ),
        ),
        Panel(
            HOLD,
            (
                Line("f", FIRST, ("coverage f",)),
                Line("f, near a step", SECOND, ("coverage f near",)),
                Line("f, 2000 rows", THIRD, ("coverage f",), "more rows"),
            ),
        ),
        *IN_ALL,
    ),
    "groups": (
        Panel(
            "RMSE of y",
            (
                Line("in new groups", FIRST, ("rmse y",)),
                Line("stated", THIRD, ("rmse y stated",)),
                Line("in new, with the column", SECOND, ("rmse y",), "group"),
            ),
        ),
        Panel(
            HOLD,
            (
                Line("f", FIRST, ("coverage f",)),
                Line("shared effects", THIRD, ("coverage bands shared",)),
                Line("same, with the column", SECOND, ("coverage bands shared",), "group"),
            ),
        ),
        Panel(
            TERMS,
            (
                Line("missed", FIRST, MISSED),
                Line("false", THIRD, FALSE),
                Line("false, with the column", SECOND, FALSE, "group"),
            ),
        ),
        IN_ALL[1],
    ),
    "outside": (
        Panel(RMSE, (Line("f", FIRST, ("rmse",)),)),
        Panel(
            HOLD,
            (
                Line("f", FIRST, ("coverage f",)),
                Line("y, conformal", SECOND, ("coverage y",), "conformal"),
                Line("y", THIRD, ("coverage y",)),
            ),
            "upper right",
        ),
    ),
}


def summary(rows: list[dict[str, str]], line: Line, case: str) -> dict[float, tuple[float, float, float]]:
    """By severity: the mean over seeds and its 95 % limits, Student's t or, of a share of fits, Wilson's."""
    found: dict[float, dict[str, float]] = {}
    for row in rows:
        if (row["case"], row["fit"]) == (line.case or case, line.fit) and row["quantity"] in line.quantities:
            own = found.setdefault(float(row["severity"]), {})
            own[row["seed"]] = own.get(row["seed"], 0.0) + float(row["value"])
    result = {}
    for severity, own in found.items():
        values, n = np.array(list(own.values())), len(own)
        mean = float(values.mean())
        if line.quantities == ("warned",):
            low, high = binomtest(int(values.sum()), n).proportion_ci(method="wilson")
        else:
            error = values.std(ddof=1) / np.sqrt(n) * student.ppf(0.975, n - 1) if n > 1 else np.nan
            low, high = mean - error, mean + error
        result[severity] = mean, float(low), float(high)
    return result


def draw(rows: list[dict[str, str]], folder: pathlib.Path) -> None:
    """A figure per case; bars are 95 % intervals of the means over seeds."""
    for name, panels in FIGURES.items():
        own = "threefold" if name == "orders" else name
        severities = [*CASES[own].severities, *(CASES["fourfold"].severities[2:] if name == "orders" else ())]
        n = len(panels) // 2
        with plt.rc_context({"font.size": 15, "axes.spines.top": False, "axes.spines.right": False}):
            figure, axes = plt.subplots(n, 2, figsize=(9, 3.5 * n + 0.3), layout="constrained", squeeze=False)
            for panel, ax in zip(panels, axes.ravel(), strict=True):
                _panel(ax, panel, rows, own, severities)
            figure.supxlabel(CASES[own].axis, fontsize=16)
            figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
            figure.savefig(folder / f"limits-{name}.png", dpi=100)
            plt.close(figure)


def _panel(ax, panel: Panel, rows, case: str, severities: list[float]) -> None:
    if panel.title == HOLD:
        ax.axhline(0.95, color="0.5", linestyle="--", linewidth=1)
    for k, line in enumerate(panel.lines):
        found = summary(rows, line, case)
        places = [i for i, severity in enumerate(severities) if severity in found]
        mean, low, high = np.array([found[severities[i]] for i in places]).reshape(-1, 3).T
        at = np.array(places) + 0.08 * (k - 0.5 * (len(panel.lines) - 1))
        colour, marker = line.style
        ax.errorbar(
            at, mean, (mean - low, high - mean), color=colour, marker=marker, label=line.label, capsize=3, linewidth=1.8
        )
    ax.set_title(panel.title, fontsize=16, loc="left")
    ax.set_xticks(range(len(severities)), ["∞" if np.isinf(s) else f"{s:g}" for s in severities], fontsize=13)
    if panel.title == HOLD:
        ax.set_ylim(0.0, 1.04)
    elif panel.title.startswith(SAID):
        ax.set_ylim(-0.2, 1.04)
    else:
        ax.set_ylim(bottom=0.0, top=max(ax.get_ylim()[1], 0.5))
    ax.legend(frameon=False, fontsize=13, loc=panel.legend, handlelength=1.3, borderaxespad=0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    results = RESULTS.with_name("limits-quick.csv") if arguments.quick else RESULTS
    if not arguments.draw:
        record(results, tasks(arguments.quick), jobs=arguments.jobs)
        print(" ".join(f"{name}-{importlib.metadata.version(name)}" for name in ("vertebra", "jax", "numpy")))
    if not arguments.quick:
        draw(load(), IMAGES)
