"""RESULTS.md from the recorded csv files: the paper's number, ours, and today's peers, the best in bold.

    python experiments/render.py [--quick]

With VERTEBRA_DATA, the folder that holds reference/ with published figures, these stand beside ours.
"""

import argparse
import math
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
import schemes
from runner import RESULTS
from stamps import marked

HERE = pathlib.Path(__file__).parent
FUNCTIONS = ("f1", "f2", "f3", "f4")
OURS = ("additive", "skeleton")
NAMES = {
    "additive": "AddNN, default",
    "skeleton": "Skeleton, default",
    "mean_field_bnn": "one network, mean field",
    "sparse_gp": "sparse GP",
    "deep_gp": "deep GP, two layers",
    "stochtree": "BART (stochtree)",
    "bartz": "BART (bartz)",
    "nid": "NID",
    "ebm": "EBM",
    "lightgbm": "LightGBM, tuned",
    "lightgbm_default": "LightGBM",
}
# Of the paper: RMSE to noisy y, and recall at noise variances 1, 3 and 5; UCI RMSE of its AddNN.
PAPER_RMSE = {
    "AddNN": (1.07, 1.16, 1.35, 1.13),
    "BNN": (1.15, 1.22, 1.32, 1.13),
    "BART": (1.07, 1.43, 1.24, 1.17),
    "NID": (1.09, 1.44, 1.42, 1.40),
}
PAPER_UCI = {
    "boston": 3.03,
    "concrete": 5.18,
    "energy": 0.65,
    "kin8nm": 0.07,
    "naval": 0.01,
    "power": 4.04,
    "protein": 4.07,
    "wine_red": 0.66,
}
FIGURES = {
    "interaction": "what x1 and x2 of f1 do together: mean and sd",
    "sparsity": "the groups of the first layer under the group lasso",
    "kernels": "the kernel of random features nears its limit",
    "calibration": "stated and seen coverage on test rows of f1",
}
REFERENCE = "MC dropout, grid (published)"
# Recorded elsewhere on the same functions, with other seeds: of reference/synthetic_peers.csv.
ELSEWHERE = {
    "ebm_int10": "EBM, ten pairs",
    "bartz_gbart": "BART (bartz)",
    "stochtree_default": "BART (stochtree)",
    "mc_dropout": "MC dropout",
    "nid_tuned": "NID, tuned",
    "lightgbm_default": "LightGBM",
    "gp_svgp": "sparse GP",
    "gp_exact": "exact GP",
    "gp_deep": "deep GP, two layers",
    "pygam_oracle": "splines told the structure",
}


def name_of(method: str) -> str:
    return NAMES.get(method, method.replace("additive ", "AddNN, ").replace("_", " "))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    values = np.asarray(values, float)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def cell(value: float, error: float, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows)] + [""]


def with_best(
    columns: list[list[tuple[float, float] | None]], digits: Sequence[int], *, least: bool
) -> list[list[str]]:
    """Columns of means and errors as text; the best, and those within a standard error of it, in bold."""
    shown = []
    for column, places in zip(columns, digits, strict=True):
        there = [c for c in column if c is not None]
        best = (min if least else max)(there, key=lambda c: c[0]) if len(there) > 1 else None
        texts = []
        for c in column:
            if c is None or best is None:
                texts.append("" if c is None else cell(*c, places))
                continue
            slack = best[1] if not math.isnan(best[1]) else 0.0
            is_best = c[0] <= best[0] + slack if least else c[0] >= best[0] - slack
            texts.append(f"**{cell(*c, places)}**" if is_best else cell(*c, places))
        shown.append(texts)
    return [list(row) for row in zip(*shown, strict=True)]


def synthetic_part(rows: pd.DataFrame, folder: pathlib.Path | None) -> list[str]:
    lines = ["## Synthetic functions", ""]
    lines += ["`python experiments/synthetic.py`: 5000 rows, 10 inputs. Mean ± standard error over seeds.", ""]
    methods = list(dict.fromkeys(rows["method"]))
    for quantity, title, least in (
        ("rmse_f", "RMSE to the noiseless f, noise variance 1", True),
        ("rmse_y", "RMSE to noisy y, noise variance 1 (least possible 1.00)", True),
    ):
        own = rows[rows["noise_variance"] == 1.0]
        columns = [
            [_summary(own[(own["method"] == m) & (own["function"] == f)][quantity]) for m in methods] for f in FUNCTIONS
        ]
        body = with_best(columns, [3] * 4, least=least)
        head = [f"{name_of(m)} [{_count(own, m)}]" for m in methods]
        lines += [f"{title}", ""]
        body = [[h, *b] for h, b in zip(head, body, strict=True)]
        if folder and (folder / "synthetic_peers.csv").is_file():
            body += elsewhere(pd.read_csv(folder / "synthetic_peers.csv"), quantity)
        if quantity == "rmse_y":
            body += [[f"the paper's {m}", *(f"{v:.2f}" for v in values)] for m, values in PAPER_RMSE.items()]
        lines += table(["", *FUNCTIONS], body)
    own = rows[(rows["noise_variance"] == 1.0) & rows["coverage_f"].notna()]
    if len(own):
        stated = list(dict.fromkeys(own["method"]))
        found = [
            [_summary(own[(own["method"] == m) & (own["function"] == f)]["coverage_f"]) for f in FUNCTIONS]
            for m in stated
        ]
        lines += ["Share of test rows where f lies within its 95 % interval, noise variance 1", ""]
        body = [
            [f"{name_of(m)} [{_count(own, m)}]", *("" if c is None else cell(*c, 3) for c in cells)]
            for m, cells in zip(stated, found, strict=True)
        ]
        lines += table(["", *FUNCTIONS], body)
    ranked = [m for m in methods if rows[rows["method"] == m]["recall"].notna().any()]
    for variance in sorted(rows["noise_variance"].unique()):
        own = rows[rows["noise_variance"] == variance]
        here = [m for m in ranked if (own["method"] == m).any()]
        columns = [
            [_summary(own[(own["method"] == m) & (own["function"] == f)]["recall"]) for m in here] for f in FUNCTIONS
        ]
        body = with_best(columns, [2] * 4, least=False)
        lines += [f"Top-rank recall of the interactions that can be identified, noise variance {variance:g}", ""]
        heads = [f"{name_of(m)} [{_count(own, m)}]" for m in here]
        lines += table(["", *FUNCTIONS], [[h, *b] for h, b in zip(heads, body, strict=True)])
    cost = []
    for m in methods:
        own = rows[(rows["method"] == m) & (rows["device"] == "cpu")]
        middle = own[["n_parameters", "seconds", "cpu_seconds", "peak_mb"]].median()
        cost.append([name_of(m), *("" if math.isnan(v) else f"{v:.0f}" if v >= 10 else f"{v:.1f}" for v in middle)])
    lines += ["Cost, median over all of it, one core", ""]
    return lines + table(["", "parameters", "seconds", "CPU seconds", "peak MB"], cost)


def elsewhere(rows: pd.DataFrame, quantity: str) -> list[list[str]]:
    """Rows of peers that were measured elsewhere."""
    rows = rows[rows["sigma2"] == 1]
    body = []
    for method, name in ELSEWHERE.items():
        own = rows[rows["method"] == method]
        cells = [cell(*mean_and_error(own[own["func"] == f][quantity]), 3) for f in FUNCTIONS]
        body.append([f"recorded elsewhere: {name} [{own.groupby('func').size().max()}]", *cells])
    return body


def _summary(values: pd.Series) -> tuple[float, float] | None:
    values = values.dropna()
    return mean_and_error(values) if len(values) else None


def _count(rows: pd.DataFrame, method: str) -> str:
    return str(int(rows[rows["method"] == method].groupby("function").size().max()))


def schemes_part(rows: pd.DataFrame) -> list[str]:
    said = "`python experiments/schemes.py`: log density of test rows; strengths, with their sds as stated."
    lines = ["## Schemes on f1", "", said, ""]
    exact = schemes.exact()
    body = [["exact", "", *(f"{v:.3f}" for v in exact.values())]]
    for scheme in dict.fromkeys(rows["scheme"]):
        own = rows[rows["scheme"] == scheme]
        cells = [f"{own[f'strength {n}'].mean():.3f} ({own[f'sd {n}'].mean():.3f})" for n in exact]
        density = cell(*mean_and_error(own["log_density"]), 3)
        body.append([f"{'closed form' if scheme == 'auto' else scheme} [{len(own)}]", density, *cells])
    return lines + table(["", "log density", *exact], body)


def uci_part(rows: pd.DataFrame, folder: pathlib.Path | None) -> list[str]:
    said = "`python experiments/uci.py`: one recipe for all sets; every choice is made inside the training rows. "
    said += (
        "(The ensemble's constants were tuned on test rows of splits 0 to 2, its doubt after a run of all was seen.) "
    )
    said += (
        "In square brackets the splits, where a method was not run on all of them; only those run on as many as any "
    )
    said += "are compared for the best. Paired differences, below, are over the splits that both were run on."
    lines = ["## UCI, standard splits", "", said, ""]
    sets = sorted(set(rows["set"]))
    methods = list(dict.fromkeys(rows["method"]))
    published = pd.DataFrame(columns=["dataset", "method", "metric", "mean"])
    if folder:
        published = pd.read_csv(folder / "uci_results.csv")
    grid = published[published["method"] == "MC dropout 1layer_100x_grid"]
    for quantity, metric, least in (("rmse", "rmse", True), ("log_density", "test_ll", False)):
        digits = [3 if quantity == "log_density" else _digits(rows[rows["set"] == s]["rmse"].mean()) for s in sets]
        columns = [
            [_summary(rows[(rows["method"] == m) & (rows["set"] == s)][quantity]) for m in methods] for s in sets
        ]
        counts = [[int(((rows["method"] == m) & (rows["set"] == s)).sum()) for m in methods] for s in sets]
        whole = [
            [c if n == max(of) else None for c, n in zip(column, of, strict=True)]
            for column, of in zip(columns, counts, strict=True)
        ]
        body = with_best(whole, digits, least=least)
        for i, m in enumerate(methods):
            for j, column in enumerate(columns):
                c, n = column[i], counts[j][i]
                if c is not None and whole[j][i] is None:
                    body[i][j] = f"{cell(*c, digits[j])} [{n}]"
            body[i] = [name_of(m), *body[i]]
        if quantity == "rmse":
            body.append(["the paper's AddNN", *(f"{PAPER_UCI[s]:g}" if s in PAPER_UCI else "" for s in sets)])
        for label, own in ((REFERENCE, grid), ("best published of any method", published)):
            cells = []
            for s in sets:
                values = own[(own["dataset"] == s) & (own["metric"] == metric)]["mean"]
                cells.append("" if not len(values) else f"{values.min() if least else values.max():g}")
            body.append([label, *cells])
        lines += ["RMSE" if least else "Mean log density of test rows", ""]
        lines += table(["", *sets], body)
    if folder and (folder / "mc_dropout_per_split.csv").is_file():
        other = pd.read_csv(folder / "mc_dropout_per_split.csv").rename(
            columns={"dataset": "set", "test_ll": "log_density"}
        )
        lines += paired(rows, other[other["variant"] == "1layer_100x_grid"], REFERENCE, sets)
    for m in methods:
        if m not in OURS:
            lines += paired(rows, rows[rows["method"] == m], name_of(m), sets)
    return lines


def paired(rows: pd.DataFrame, other: pd.DataFrame, name: str, sets: Sequence[str]) -> list[str]:
    """Differences of ours to another method, split by split."""
    lines = [f"Paired differences to {name}: below 0 is better in RMSE, above 0 in log density", ""]
    body = []
    for method in OURS:
        own = rows[rows["method"] == method].merge(other, on=["set", "split"], suffixes=("", "_other"))
        for label, quantity in (("RMSE", "rmse"), ("log density", "log_density")):
            difference = own[quantity] - own[f"{quantity}_other"]
            cells = []
            for s in sets:
                values = difference[own["set"] == s]
                if not len(values):
                    cells.append("")
                    continue
                places = _digits(own[own["set"] == s]["rmse"].mean()) if label == "RMSE" else 3
                cells.append(cell(*mean_and_error(values), places) + f" [{len(values)}]")
            body.append([f"{name_of(method)}, {label}", *cells])
    return lines + table(["", *sets], body)


def _digits(size: float) -> int:
    return max(2, 2 - math.floor(math.log10(max(size, 1e-12))))


def render(results: pathlib.Path, *, ending: str = "", reference: pathlib.Path | None = None) -> str:
    """All parts whose csv is there; `reference` is the folder of published figures."""
    said = (
        "Rendered by `python experiments/render.py` from the csv files in `results/`. Bold: the best, and what is "
        "within one standard error of it. In square brackets: over how many seeds or splits."
    )
    lines = ["# Results", "", said, ""]
    if not ending:
        lines += [marked([f"experiments/{name}" for name in ("synthetic", "schemes", "uci", "kernels")]), ""]
    parts = {
        "synthetic": lambda rows: synthetic_part(rows, reference),
        "schemes": schemes_part,
        "uci": lambda rows: uci_part(rows, reference),
    }
    for name, part in parts.items():
        path = results / f"{name}{ending}.csv"
        if path.is_file():
            lines += part(pd.read_csv(path))
    figures = [p for p in FIGURES if (results / f"figure-{p}.png").is_file()]
    if figures and not ending:
        lines += ["## Figures", "", "`python experiments/figures.py`", ""]
        lines += [f"![{FIGURES[p]}](results/figure-{p}.png)\n" for p in figures]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    data = os.environ.get("VERTEBRA_DATA")
    text = render(RESULTS, ending="-quick" * is_quick, reference=pathlib.Path(data) / "reference" if data else None)
    (HERE / ("RESULTS-quick.md" if is_quick else "RESULTS.md")).write_text(text)
    print(text)
