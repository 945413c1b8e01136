"""Effects of correlated inputs: over the rows as they are (`measure="data"`), and over the product of the marginals.

    python experiments/correlated.py bias      # strengths at correlations 0 to 0.99, 300 and 2000 rows
    python experiments/correlated.py cover     # bands, strengths, shares and false terms at 0.5, 0.8, 0.95
    python experiments/correlated.py copies    # what stands for what at 0.9, 0.95, 0.99
    python experiments/correlated.py removed   # strengths with and without an input that goes with others
    python experiments/correlated.py halves    # strengths on five random halves: diamonds, and a table of our own
    python experiments/correlated.py ranking   # the inputs of diamonds beside EBM (pip install interpret)
    python experiments/correlated.py figures   # docs/images/effects-strengths.png and effects-where.png
    python experiments/correlated.py cost      # the time that it takes of a fit, 30 inputs, 50,000 rows

Each writes results/correlated-<study>.csv, goes on where it stopped, and prints a summary; `--processes 8` shares bias,
cover, copies and removed out, `--quick` takes two seeds of each. Truths under the joint
distribution are exact for Gaussian inputs, and else least squares over 200,000 rows on functions of single inputs.
"""

import argparse
import functools
import pathlib
import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from runner import RESULTS, read, run
from scipy.special import ndtr
from stamps import recording

import vertebra as vb
from vertebra.effects.words import lines
from vertebra.likelihoods.working_responses import Plain
from vertebra.models.findings import Kind
from vertebra.terms import additive as room
from vertebra.terms.components import Components
from vertebra.terms.joint import Measure, gram_of, projected

RHOS, SIZES, SEEDS = (0.0, 0.2, 0.5, 0.8, 0.95, 0.99), (300, 2000), range(600, 616)
COVER_RHOS, N_COVER, COVER_SEEDS = (0.5, 0.8, 0.95), 500, range(360, 380)
N_TRUTH, DEGREE = 200_000, 14
IMAGES = pathlib.Path(__file__).parents[1] / "docs/images"
# beside the checkout, or in it
PLACES = (pathlib.Path(__file__).parents[1] / place for place in ("../shared", "shared"))
DIAMONDS = next((place for place in PLACES if place.exists()), pathlib.Path("shared")) / "data/suite/diamonds"
N_HALF, N_HALVES, SPLIT, STRONGEST = 6000, 5, 3, 10
BIAS = ("main_0", "main_1", "pair", "true_main_0", "true_main_1", "true_pair", "sd_f", "told_as_one")
# Of near copies: how strong the curve is, and the probability from which a story is said to be possible.
CURVE, UNDECIDED, COPY_RHOS, COPY_SEEDS = 0.5, 0.05, (0.9, 0.95, 0.99), range(400, 480)
COPIES = (
    "curve_together",
    "curve_right",
    "curve_wrong",
    "product_together",
    "product",
    "product_listed",
    "product_said",
    "product_possible",
    "false_inputs",
)
# A story is stated to be so probable; and whether which of the two was right, of those bins.
STATED = (0.5, 0.75, 0.9, 0.99, 1.0)
COVER = ("band_main", "band_pair", "strength", "share", "total", "grouped", "found", "missed", "false_terms", "open")
REMOVED_SEEDS, REMOVED = range(500, 512), ("others", "pair_others", "largest")


class Bias(NamedTuple):
    kind: str
    rho: float
    n: int
    seed: int
    measure: str


class Cover(NamedTuple):
    function: str
    rho: float
    seed: int


class Removed(NamedTuple):
    rho: float
    seed: int


# --- bias -------------------------------------------------------------------------------------------------------------


def together(kind: str, rho: float, n: int, seed: int) -> np.ndarray:
    """Two inputs that go together: Gaussian ones; or the second, without a correlation, by the square of the first."""
    one, other = np.random.default_rng(seed).standard_normal((2, n))
    of_one = one if kind == "line" else (one**2 - 1.0) / np.sqrt(2.0)
    return np.stack([one, rho * of_one + np.sqrt(1.0 - rho**2) * other], axis=1)


def true_strengths(kind: str, rho: float) -> list[float]:
    """Of x0 x1: two main effects and the pair, the sum of the main effects, and the sd of all."""
    if kind == "line":
        # x0 x1 − E = ρ/(1 + ρ²) (x0² + x1² − 2) + what is orthogonal to all functions of one of them
        main, pair = np.sqrt(2.0) * rho / (1.0 + rho**2), (1.0 - rho**2) / np.sqrt(1.0 + rho**2)
        return [main, main, pair, 2.0 * rho / np.sqrt(1.0 + rho**2), np.sqrt(1.0 + rho**2)]
    x = together(kind, rho, N_TRUTH, 0)
    f = x[:, 0] * x[:, 1]
    mains = _mains(x, f)
    return [float(m.std()) for m in (*mains, f - sum(mains), sum(mains), f)]


def _mains(x: np.ndarray, f: np.ndarray) -> list[np.ndarray]:
    """The functions of two inputs that are nearest to f at the rows together."""
    columns = []
    for values in x.T:
        low, high = np.quantile(values, [1e-4, 1.0 - 1e-4])
        unit = np.clip(2.0 * (values - low) / (high - low) - 1.0, -1.0, 1.0)
        columns.append(np.polynomial.legendre.legvander(unit, DEGREE)[:, 1:])
    both = np.concatenate([np.ones((len(x), 1)), *columns], axis=1)
    found = np.linalg.lstsq(both, f, rcond=None)[0][1:]
    parts = [c @ v for c, v in zip(columns, np.split(found, 2), strict=True)]
    return [part - part.mean() for part in parts]


def _product_of(task: Bias) -> tuple[np.ndarray, np.ndarray]:
    x = together(task.kind, task.rho, task.n, task.seed)
    return x, x[:, 0] * x[:, 1] + 0.3 * np.random.default_rng([task.seed, 1]).standard_normal(task.n)


@functools.lru_cache(maxsize=1)
def _of_pair(task: Bias) -> vb.AdditiveRegressor:
    """The fit that both measures are of."""
    return vb.AdditiveRegressor(clusters=[(0, 1)], random_state=0).fit(*_product_of(task))


def bias(task: Bias) -> dict[str, float]:
    """Strengths that are told, and what is true of these: of main effects that are told as one, that of their sum."""
    true, told_as_one = true_strengths(task.kind, task.rho), False
    if task.measure == "least squares":
        found = _unpenalised(*_product_of(task))
    else:
        model = _of_pair(task._replace(measure=""))
        table = model.effects(measure=task.measure).set_index("term")
        found = [float(table["strength"][[term]].item()) for term in (("x0",), ("x1",), ("x0", "x1"))]
        groups = [table["group"][[term]].item() for term in (("x0",), ("x1",), ("x0", "x1"))]
        told_as_one = bool(groups[0]) and groups[0] == groups[1] and not groups[2]
        if any(groups) and not told_as_one:
            raise ValueError(f"what is true of {groups} is not known here.")
    *mains, pair, of_mains, sd = true
    mains = [of_mains] * 2 if told_as_one else mains
    return dict(zip(BIAS, [*found, *mains, pair, sd, float(told_as_one)], strict=True))


def _unpenalised(x: np.ndarray, y: np.ndarray) -> list[float]:
    weight, unit = np.ones(len(x)), y.std()
    working = Plain(((y - y.mean()) / unit)[:, None], weight)
    f = room.fit_additive(x, working, weight, rng=np.random.default_rng(0), clusters=[(0, 1)], calibrate=False).terms
    view = Components(f, projected(f.basis, gram_of(f.basis, x, weight)))
    squares = view.squares(f.weights(0).draw(500, np.random.default_rng(0)))
    return [float(unit * np.sqrt(squares[t][0]).mean()) for t in ((0,), (1,), (0, 1))]


def off(rows: pd.DataFrame) -> pd.DataFrame:
    """By how much strengths are off, in sds of f; of the two main effects, of which one may hide the other, the worse.

    In the mean over tables, by `kind`, `n`, `rho` and `measure`.
    """
    rows = rows.copy()
    for name in ("main_0", "main_1", "pair"):
        rows[name] = (rows[name] - rows[f"true_{name}"]) / rows["sd_f"]
    mean = rows.groupby(["kind", "n", "rho", "measure"])[["main_0", "main_1", "pair"]].mean()
    mains = mean[["main_0", "main_1"]]
    worse = np.abs(mains).to_numpy().argmax(axis=1)
    return mean.assign(main=mains.to_numpy()[np.arange(len(mains)), worse])


def say_bias(rows: pd.DataFrame) -> None:
    mean = off(rows)
    as_one = rows.groupby(["kind", "n", "rho"])["told_as_one"].sum()
    print("fits whose main effects are told as one:", dict(as_one[as_one > 0.0]))
    print("bias of strengths, in sds of f:\n", mean.unstack("measure").round(3).to_string())
    ours = mean.xs("data", level="measure")
    for kind, own in ours.groupby("kind"):
        print(f"{kind}: the largest, over the rows: {np.abs(own).to_numpy().max():.3f}")


# --- coverage ---------------------------------------------------------------------------------------------------------


def uniform(rho: float, n: int, seed: int) -> np.ndarray:
    """Ten inputs, uniform on (0, 1), all correlated alike by a Gaussian copula."""
    rng = np.random.default_rng(seed)
    return ndtr(np.sqrt(rho) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - rho) * rng.standard_normal((n, 10)))


def curves(name: str) -> dict[int, object]:
    """Functions of single inputs that are added to 10 sin(πx0x1), or to nothing."""
    more = {2: lambda v: 20.0 * (v - 0.5) ** 2, 3: lambda v: 10.0 * v, 4: lambda v: 5.0 * v}
    return more if name == "f1" else {0: lambda v: 6.0 * np.sin(3.0 * v), 1: lambda v: 4.0 * v, **more}


def truth(name: str, x: np.ndarray) -> tuple[dict[tuple[int, ...], np.ndarray], np.ndarray]:
    """The components over these rows, at these rows, and f."""
    parts = {(i,): own(x[:, i]) for i, own in curves(name).items()}
    if name == "f1":
        pair = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1])
        mains = _mains(x[:, :2], pair)
        parts |= {(0,): mains[0], (1,): mains[1], (0, 1): pair - mains[0] - mains[1]}
    return {t: own - own.mean() for t, own in parts.items()}, sum(parts.values())


def cover(task: Cover) -> dict[str, float]:
    """One fit of 500 rows, noise of sd 1; bands at 200 rows of the same population."""
    big = uniform(task.rho, N_TRUTH, 7)
    parts, f = truth(task.function, big)
    x = uniform(task.rho, N_COVER, task.seed)
    own = sum(curves(task.function)[i](x[:, i]) for i in curves(task.function))
    y = own + (10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) if task.function == "f1" else 0.0)
    y = y + np.random.default_rng([task.seed, 1]).standard_normal(N_COVER)
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    table = model.effects()
    # interactions that are listed need not be in the model
    listed = list(model.interactions(0.05)["term"])
    places = {name: tuple(int(each[1:]) for each in name) for name in [*table["term"], *listed]}
    reported = {places[t] for t, p in zip(table["term"], table["probability"], strict=True) if p > 0.95 and len(t) == 1}
    reported |= {places[t] for t in listed}
    inside: dict[str, list[float]] = {name: [] for name in ("band_main", "band_pair", "strength", "share", "total")}
    rows, groups = np.random.default_rng(0).choice(N_TRUTH, 200, replace=False), {}
    variance = f.var()
    true_share = {t: float(np.mean(own * (f - f.mean())) / variance) for t, own in parts.items()}
    for row in table.itertuples():
        term = places[row.term]
        if row.group:  # the strength is that of a sum, and shares have no limits
            groups.setdefault(row.group, (row, []))[1].append(term)
            continue
        if term not in parts or term not in reported:
            continue
        component = parts[term]
        at = model.model_.x(big[rows])
        local = model.model_.posterior.curve(term, [at[:, i] for i in term], 0, None, Measure.DATA)
        unit = model.model_.target.unit(0)
        away = np.abs(unit * local.mean - component[rows]) <= 1.96 * unit * local.sd
        inside["band_main" if len(term) == 1 else "band_pair"].append(float(away.mean()))
        inside["strength"].append(float(row.lower <= component.std() <= row.upper))
        inside["share"].append(float(row.share_lower <= true_share[term] <= row.share_upper))
    for row, terms in groups.values():
        whole = sum((parts[t] for t in terms if t in parts), start=np.zeros(N_TRUTH))
        inside["strength"].append(float(row.lower <= whole.std() <= row.upper))
    for row in model.totals().itertuples():
        i = int(row.input[1:])
        if (i,) in reported and any(i in t for t in parts):
            true = sum(share for t, share in true_share.items() if i in t)
            inside["total"].append(float(row.lower <= true <= row.upper))
    means = {name: float(np.mean(values)) if values else np.nan for name, values in inside.items()}
    n_false = len(reported - set(parts))
    counts = {"found": len(reported & set(parts)), "missed": len(set(parts) - reported), "false_terms": n_false}
    # of sums of curves none acts as a product: where that is said it is wrong
    said = sum("act together" in words for words in model.diagnostics_.warnings)
    return means | counts | {"grouped": len(groups), "open": said}


def say_cover(rows: pd.DataFrame) -> None:
    print(rows.groupby(["function", "rho"])[list(COVER)].mean().round(3).to_string())


# --- near copies ------------------------------------------------------------------------------------------------------


class Copies(NamedTuple):
    rho: float
    seed: int


def copies(task: Copies) -> dict[str, float]:
    """x1 nearly copies x0, one of which acts by a curve; x3 nearly copies x2, and they act as a product; six are idle.

    Which of the first two acts is drawn, so that it is not always the one that comes first.
    """
    rng = np.random.default_rng(task.seed)
    x = rng.standard_normal((N_COVER, 10))
    for one, other in ((0, 1), (2, 3)):
        x[:, other] = task.rho * x[:, one] + np.sqrt(1.0 - task.rho**2) * x[:, other]
    noise, acts = rng.standard_normal(N_COVER), int(rng.integers(2))
    y = CURVE * np.sin(1.5 * x[:, acts]) + x[:, 2] * x[:, 3] + noise
    model = vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out").fit(x, y)
    stories = {frozenset((row.input, row.substitute)): row for row in model.substitutes().itertuples()}
    curve, pair = stories.get(frozenset(("x0", "x1"))), stories.get(frozenset(("x2", "x3")))
    listed = set(model.interactions(0.05)["term"])
    is_listed = ("x2", "x3") in listed
    findings = [str(each) for each in model.diagnostics_.findings if each.kind is Kind.SUBSTITUTES]
    named = [words for words in findings if "x2" in words and "x3" in words]
    right = np.nan
    if curve is not None:
        right = curve.input_alone if curve.input == f"x{acts}" else curve.substitute_alone
    table = model.effects()
    real = {t for t, p in zip(table["term"], table["probability"], strict=True) if p > 0.95 and len(t) == 1}
    acting = {f"x{acts}", "x2", "x3"}
    false = {name for t in real | listed for name in t} - acting
    return {
        "curve_together": np.nan if curve is None else curve.together,
        "curve_right": right,
        "curve_wrong": np.nan if curve is None else curve.input_alone + curve.substitute_alone - right,
        "product_together": np.nan if pair is None else pair.together,
        "product": np.nan if pair is None else pair.product,
        "product_listed": float(is_listed),
        # what a reader is told without asking: that they act together, or that data hardly say what they do
        "product_said": float(is_listed or bool(named)),
        "product_possible": float(is_listed or (bool(named) and pair is not None and pair.product > UNDECIDED)),
        "false_inputs": len(false),
    }


def which(rows: pd.DataFrame) -> pd.DataFrame:
    """Which of two acts, one of them alone being true: how probable the likelier was said to be, and was right."""
    rows = rows.dropna(subset=["curve_right"])
    right = rows["curve_right"] / (rows["curve_right"] + rows["curve_wrong"])
    stated, is_right = np.maximum(right, 1.0 - right), (right > 0.5).astype(float)
    bins = pd.cut(stated, STATED, include_lowest=True)
    table = pd.DataFrame({"rho": rows["rho"], "bin": bins, "stated": stated, "right": is_right, "n": 1})
    return table


def say_copies(rows: pd.DataFrame) -> None:
    print(rows.groupby("rho")[list(COPIES)].mean().round(3).to_string())
    table = which(rows)
    for by in (["rho"], ["bin"], []):
        groups = table.groupby(by, observed=True) if by else table.groupby(lambda _: "all")
        print(groups[["stated", "right"]].mean().assign(n=groups["n"].sum()).round(3).to_string())


# --- removing an input ------------------------------------------------------------------------------------------------


def removed(task: Removed) -> dict[str, float]:
    """By how much strengths of the other terms change where one of the inputs that go together is left out.

    The table is `own_table`: x0 to x3 go together; the one left out does nothing. In sds of f: in the mean over terms
    of the others without it in both fits, over pairs of them, and the largest.
    """
    x, y = own_table(1000, task.rho, task.seed)
    fits = [vb.AdditiveRegressor(random_state=0, remainder=False, evaluation="left_out") for _ in range(2)]
    for fit, table in zip(fits, (x, x.drop(columns="d")), strict=True):
        fit.fit(table, y)
    sd = float(np.std(fits[0].predict(x)))
    found = {}
    for measure in ("data", "product"):
        one, other = (
            {row.term: row.strength for row in fit.effects(measure=measure).itertuples() if "d" not in row.term}
            for fit in fits
        )
        # a term that is not there has none
        moved = {t: abs(one.get(t, 0.0) - other.get(t, 0.0)) / sd for t in {*one, *other}}
        pairs = [own for t, own in moved.items() if len(t) == 2]
        values = np.mean(list(moved.values())), np.mean(pairs) if pairs else 0.0, max(moved.values())
        found |= {f"{name}_{measure}": float(value) for name, value in zip(REMOVED, values, strict=True)}
    return found


def say_removed(rows: pd.DataFrame) -> None:
    print(rows.groupby("rho")[[name for name in rows if name.startswith(REMOVED)]].mean().round(3).to_string())


# --- halves -----------------------------------------------------------------------------------------------------------


def own_table(n: int, rho: float = 0.95, seed: int = 11) -> tuple[pd.DataFrame, np.ndarray]:
    """Six inputs, the first four correlated, two of them by a product; noise of a third of f's sd."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6))
    x[:, :4] = np.sqrt(rho) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - rho) * x[:, :4]
    f = x[:, 0] * x[:, 1] + np.tanh(x[:, 2]) + 0.5 * x[:, 4] * x[:, 5] + x[:, 4]
    frame = pd.DataFrame(x, columns=["a", "b", "c", "d", "e", "g"])
    return frame, f + f.std() / 3.0 * rng.standard_normal(n)


def table_of_ten(n: int, rho: float = 0.95, seed: int = 12) -> tuple[pd.DataFrame, np.ndarray]:
    """Two sets of four inputs that go together, and ten terms: all inputs act, and two products across the sets."""
    rng = np.random.default_rng(seed)
    x = np.sqrt(1.0 - rho) * rng.standard_normal((n, 8))
    x += np.sqrt(rho) * np.repeat(rng.standard_normal((n, 2)), 4, axis=1)
    a, b, c, d, e, g, h, k = x.T
    f = (
        a
        + 0.7 * b**2
        + np.sin(2.0 * c)
        + np.abs(d)
        + np.tanh(2.0 * e)
        + np.cos(2.0 * g)
        + h
        + 0.7 * k**2
        + a * e
        + c * h
    )
    return pd.DataFrame(x, columns=list("abcdeghk")), f + f.std() / 3.0 * rng.standard_normal(n)


def tables(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    if name == "own":
        return own_table(4000)
    if name == "ten":
        return table_of_ten(8000)
    frame = pd.read_csv(DIAMONDS / "data.csv.gz")
    rows = np.load(DIAMONDS / "splits.npz")["train"][SPLIT]
    some = np.random.default_rng(0).choice(rows, 2 * N_HALF, replace=False)
    target = frame.columns[-1]
    return frame.drop(columns=target).iloc[some].reset_index(drop=True), frame[target].to_numpy(float)[some]


def halves(name: str) -> list[dict[str, object]]:
    x, y = tables(name)
    found = []
    for half in range(N_HALVES):
        some = np.random.default_rng(half).permutation(len(x))[: len(x) // 2]
        model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x.iloc[some], y[some])
        sd = float(np.std(model.predict(x.iloc[some])))
        for measure in ("data", "product"):
            # terms that are told as one are one line, under the name of the first of them
            for line in lines(model.effects(measure=measure)):
                own = {"term": " × ".join(line.term), "strength": line.strength, "sd_f": sd}
                own |= {"probability": line.probability, "label": line.label}
                found.append({"table": name, "half": half, "measure": measure, **own})
        print(name, half, "done", flush=True)
    return found


def say_halves(rows: pd.DataFrame) -> None:
    for (name, measure), own in rows.groupby(["table", "measure"]):
        strengths = own.pivot(index="term", columns="half", values="strength").fillna(0.0)
        top = strengths.loc[strengths.mean(axis=1).sort_values(ascending=False).index[:STRONGEST]]
        varied = top.std(axis=1, ddof=1) / top.mean(axis=1)
        largest = (own["strength"] / own["sd_f"]).max()
        print(f"{name}, {measure}: largest strength {largest:.2f} sd of f; sd over halves, as a share of the mean:")
        print(pd.DataFrame({"mean": top.mean(axis=1), "varies": varied}).round(3).to_string())


# --- ranking ----------------------------------------------------------------------------------------------------------


def ranking() -> pd.DataFrame:
    """Main effects of diamonds: mean distance from zero at EBM, strength over the rows and over the product here."""
    from interpret.glassbox import ExplainableBoostingRegressor

    x, y = tables("diamonds")
    peer = ExplainableBoostingRegressor(random_state=0, n_jobs=1).fit(x, y)
    theirs = dict(zip(peer.term_names_, peer.term_importances(), strict=True))
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    found = {"input": list(x.columns), "ebm": [theirs[name] for name in x.columns]}
    for measure in ("data", "product"):
        strengths = {row.term: row.strength for row in model.effects(measure=measure).itertuples()}
        found[measure] = [strengths.get((name,), 0.0) for name in x.columns]
    # of the whole input too: its main effect and all pairs with it, by their shares
    totals = model.totals().set_index("input")["total"]
    found["total"] = [float(totals.get(name, 0.0)) for name in x.columns]
    return pd.DataFrame(found).sort_values("ebm", ascending=False, ignore_index=True)


def say_ranking(rows: pd.DataFrame) -> None:
    print(rows.round(3).to_string())
    for name in ("data", "product", "total"):
        first = rows.sort_values(name, ascending=False)["input"].head(3).tolist()
        print(f"{name}: Spearman {rows['ebm'].corr(rows[name], method='spearman'):.2f}, first three {first}")


# --- cost -------------------------------------------------------------------------------------------------------------


def cost() -> pd.DataFrame:
    """Thirty inputs, all correlated at 0.5, and three that act with a near copy each."""
    rng = np.random.default_rng(0)
    x = np.sqrt(0.5) * rng.standard_normal((50_000, 1)) + np.sqrt(0.5) * rng.standard_normal((50_000, 30))
    for one, other in ((2, 10), (5, 11), (6, 12)):
        x[:, other] = 0.95 * x[:, one] + np.sqrt(1.0 - 0.95**2) * x[:, other]
    f = x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + x[:, 3] * x[:, 4] + x[:, 5] ** 2 + x[:, 6]
    y = f + rng.standard_normal(len(x))
    spent = {"joint": 0.0, "substitutes": 0.0}
    before = {"joint": room._joint, "substitutes": room.substitutes}

    def timed(name: str):
        def work(*given):
            start = time.perf_counter()
            result = before[name](*given)
            spent[name] += time.perf_counter() - start
            return result

        return work

    room._joint, room.substitutes = timed("joint"), timed("substitutes")
    start = time.perf_counter()
    model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x, y)
    whole, start = time.perf_counter() - start, time.perf_counter()
    terms = model.effects()
    effects = time.perf_counter() - start
    room._joint, room.substitutes = before["joint"], before["substitutes"]
    counts = {"n_terms": len(terms), "n_pairs": len(model.substitutes())}
    return pd.DataFrame([{"fit": whole, **spent, "effects": effects, **counts}])


# --- figures ----------------------------------------------------------------------------------------------------------


def figures() -> None:
    """What the documents show: strengths, and the effect of two inputs that go together under both measures."""
    rows = pd.read_csv(RESULTS / "correlated-bias.csv")
    rows = rows[(rows["kind"] == "line") & (rows["n"] == min(SIZES)) & (rows["told_as_one"] == 0.0)]
    fig, axes = plt.subplots(1, 2, figsize=(8.8, 3.2), layout="constrained", sharex=True)
    for ax, name, title in zip(axes, ("main_0", "pair"), ("a main effect", "the pair"), strict=True):
        own = rows.groupby(["measure", "rho"])[name].mean()
        for measure, style in (("data", "-"), ("least squares", ":"), ("product", "--")):
            ax.plot(own[measure].index, own[measure], style, label=measure, lw=1.6)
        true = rows.groupby("rho")[f"true_{name}"].mean()
        ax.plot(true.index, true, "o", color="black", ms=4, label="true, over the population")
        ax.set(xlabel="correlation of x0 and x1", ylabel="strength", title=f"f = x0 x1: {title}")
    axes[0].legend(frameon=False, fontsize="small")
    fig.savefig(IMAGES / "effects-strengths.png", dpi=130)
    x = together("line", 0.95, 1000, 1)
    y = x[:, 0] * x[:, 1] + 0.3 * np.random.default_rng(2).standard_normal(len(x))
    model = vb.AdditiveRegressor(clusters=[(0, 1)], random_state=0).fit(x, y)
    fig, axes = plt.subplots(1, 2, figsize=(8.8, 3.4), layout="constrained")
    for ax, measure in zip(axes, ("product", "data"), strict=True):
        table = model.effect(("x0", "x1"), measure=measure)
        vb.plot.surface(table, ax, everywhere=measure == "product")
        ax.set_title(measure, loc="left", fontsize="medium")
    fig.savefig(IMAGES / "effects-where.png", dpi=130)


def numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """What a csv has as text, where it is numbers."""
    names = [
        name
        for name in rows
        if name not in ("kind", "measure", "function", "device", "python", "vertebra", "jax", "numpy")
    ]
    return rows.assign(**{name: rows[name].astype(float) for name in names})


def keep(path, rows: pd.DataFrame, digits: str = "%.6g") -> None:
    with recording(path, __file__, is_new=True):
        rows.to_csv(path, index=False, float_format=digits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["bias", "cover", "copies", "removed", "halves", "ranking", "cost", "figures"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two seeds of each, to results/correlated-STUDY-quick.csv")
    given = parser.parse_args()
    study = given.study
    path = RESULTS / f"correlated-{study}{'-quick' if given.quick else ''}.csv"
    seeds = lambda own: own[:2] if given.quick else own  # noqa: E731
    if study == "bias":
        kinds = [("line", rho) for rho in RHOS] + [("square", 0.8)]
        measures = ("data", "product", "least squares")
        tasks = [Bias(k, r, n, s, m) for (k, r) in kinds for n in SIZES for s in seeds(SEEDS) for m in measures]
        run(path, tasks, bias, columns=BIAS, n_processes=given.processes)
        say_bias(pd.DataFrame(read(path)).pipe(numbers))
    elif study == "cover":
        tasks = [Cover(f, r, s) for s in seeds(COVER_SEEDS) for f in ("f1", "additive") for r in COVER_RHOS]
        run(path, tasks, cover, columns=COVER, n_processes=given.processes)
        say_cover(pd.DataFrame(read(path)).pipe(numbers))
    elif study == "copies":
        tasks = [Copies(r, s) for s in seeds(COPY_SEEDS) for r in COPY_RHOS]
        run(path, tasks, copies, columns=COPIES, n_processes=given.processes)
        say_copies(pd.DataFrame(read(path)).pipe(numbers))
    elif study == "removed":
        tasks = [Removed(r, s) for s in seeds(REMOVED_SEEDS) for r in COPY_RHOS]
        columns = tuple(f"{name}_{measure}" for measure in ("data", "product") for name in REMOVED)
        run(path, tasks, removed, columns=columns, n_processes=given.processes)
        say_removed(pd.DataFrame(read(path)).pipe(numbers))
    elif study == "halves":
        rows = [row for name in ("own", "ten", "diamonds") for row in halves(name)]
        keep(path, pd.DataFrame(rows))
        say_halves(pd.DataFrame(rows))
    elif study == "ranking":
        rows = ranking()
        keep(path, rows)
        say_ranking(rows)
    elif study == "figures":
        figures()
    else:
        found = cost()
        keep(path, found, "%.4g")
        print(found.assign(share=(found["joint"] + found["substitutes"]) / found["fit"]).to_string())


if __name__ == "__main__":
    main()
