"""Tables that the documents quote, from the recorded csv files, put between their marks.

    python experiments/quote.py

A document holds `<!-- table: name -->` and `<!-- /table: name -->`; what stands between them is a table of `TABLES`.
Before `<!-- recorded: names -->` stands at which commit the results of these names were recorded (`stamps`).
"""

import math
import pathlib
import re
import sys
from collections.abc import Callable
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).parents[1] / "benchmarks"))

import pandas as pd
from correlated import off, which
from networks import errors_of
from promises import FALSE, WARNS, Line, lines
from render import FUNCTIONS, name_of, table
from runner import RESULTS
from stamps import labelled, pages

ROOT = pathlib.Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks/results"
SCHEMES = ("additive", "additive random_features", "additive deep_kernel_learning", "additive mc_dropout")
BANDS = {"strength_covered": "its strength", "pointwise": "its band, point by point", "simultaneous": "its band, whole"}
ORDERS = ("main effects", "pairs", "triples")


def synthetic() -> list[str]:
    """RMSE to the noiseless f by every method, and by those recorded elsewhere."""
    rows = pd.read_csv(RESULTS / "synthetic.csv")
    rows = rows[rows["noise_variance"] == 1.0]
    body = []
    for method in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == method].groupby("function")["rmse_f"]
        mean = own.mean()
        cells = [f"{mean[f]:.3f}" if f in mean else "" for f in FUNCTIONS]
        body.append([name_of(method), str(int(own.size().max())), *cells])
    said = (ROOT / "experiments/RESULTS.md").read_text().split("RMSE to noisy y")[0]
    for name, seeds, cells in re.findall(r"(?m)^\| recorded elsewhere: (.*) \[(\d+)\] \| (.*) \|$", said):
        body.append([f"{name} †", seeds, *(cell.split(" ±")[0] for cell in cells.split(" | "))])
    return table(["RMSE to f", "seeds", *FUNCTIONS], sorted(body, key=lambda row: float(row[2])))


def uci() -> list[str]:
    rows = pd.read_csv(RESULTS / "uci.csv")
    sets = sorted(set(rows["set"]))
    body = []
    for method in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == method].groupby("set")["rmse"]
        mean, size = own.mean(), own.size()
        cells = [f"{mean[s]:.3g} [{size[s]}]" if s in mean else "" for s in sets]
        body.append([name_of(method), *cells])
    return table(["RMSE [splits]", *sets], body)


def paired() -> list[str]:
    """On how many sets ours had the lower RMSE, and the higher log density, over the splits that both were run on."""
    rows = pd.read_csv(RESULTS / "uci.csv")
    body = []
    for peer in ("ebm", "stochtree", "lightgbm"):
        for method in ("additive", "skeleton"):
            both = rows[rows["method"] == method].merge(
                rows[rows["method"] == peer], on=["set", "split"], suffixes=("", "_peer")
            )
            cells = []
            for quantity, sign in (("rmse", -1.0), ("log_density", 1.0)):
                difference = sign * (both[quantity] - both[f"{quantity}_peer"])
                each = difference.groupby(both["set"])
                mean, error = each.mean(), each.std() / each.size() ** 0.5
                better, worse = (mean > 2.0 * error).sum(), (mean < -2.0 * error).sum()
                cells.append(f"{better} : {worse} : {len(mean) - better - worse}")
            body.append([name_of(method), name_of(peer), *cells])
    return table(["ours", "beside", "RMSE, better : worse : even", "log density, better : worse : even"], body)


def tables() -> list[str]:
    rows = pd.read_csv(BENCHMARKS / "tables.csv").groupby(["table", "method"])
    mean = rows[["auc", "log_loss", "rmse", "seconds"]].mean()
    body = []
    for name, title in (
        ("adult", "adult, official split"),
        ("breast_cancer", "breast cancer, five splits"),
        ("california_housing", "California housing, five splits"),
    ):
        for quantity, words in (("auc", "AUC"), ("log_loss", "log loss"), ("rmse", "RMSE"), ("seconds", "seconds")):
            ours, ebm = (mean.loc[(name, who), quantity] for who in ("vertebra", "ebm"))
            if not math.isnan(ours):
                digits = 0 if quantity == "seconds" else 4
                body.append([f"{title}: {words}", f"{ours:.{digits}f}", f"{ebm:.{digits}f}"])
    return table(["", "`AdditiveRegressor()`, `AdditiveClassifier()`", "EBM"], body)


def schemes() -> list[str]:
    rows = pd.read_csv(RESULTS / "synthetic.csv")
    rows = rows[(rows["noise_variance"] == 1.0) & (rows["function"] == "f1")]
    body = []
    for method in SCHEMES:
        own = rows[rows["method"] == method]
        mean = own[["rmse_f", "coverage_f", "seconds"]].mean()
        name = '"auto"' if method == "additive" else f'"{method.split()[1]}"'
        cells = [f"{mean['rmse_f']:.3f}", f"{mean['coverage_f']:.2f}", f"{mean['seconds']:.0f}"]
        body.append([name, str(len(own)), *cells])
    return table(["scheme", "seeds", "RMSE to f", "95 % intervals of f cover", "seconds"], body)


def probabilities() -> list[str]:
    rows = pd.read_csv(RESULTS / "probabilities.csv")
    rows = rows[rows["stated"].str.contains(" to ")]
    body = [[r["stated"], f"{int(r['n']):,}", f"{100 * r['share_real']:.1f} %"] for _, r in rows.iterrows()]
    return table(["probability stated", "terms", "were there"], body)


def bands() -> list[str]:
    """How often 95 % intervals held, by the order of the term."""
    rows = pd.read_csv(RESULTS / "additive.csv")
    rows = rows[(rows["noise_variance"] == 1.0) & (rows["n_inputs"] == 10) & (rows["correlation"] == 0.0)]
    rows = rows[rows["scheme"] == "auto"]
    body = []
    for order, words in enumerate(ORDERS, start=1):
        for function in ("f1", "f3"):
            cells = []
            for start in BANDS:
                own = rows[(rows["function"] == function) & rows["quantity"].str.startswith(f"{start} (")]
                inputs = own["quantity"].str.count(r"\d")
                cells.append(own[inputs == order]["value"].mean())
            if not math.isnan(cells[0]):
                body.append([f"{function}, {words}", *(f"{100 * cell:.1f} %" for cell in cells)])
    return table(["", *BANDS.values()], body)


def flights() -> list[str]:
    rows = pd.read_csv(BENCHMARKS / "flights.csv")
    names = {"vertebra": "`AdditiveRegressor()`", "lightgbm": "LightGBM", "ebm, 1 bags": "EBM, one bag"}
    body = [
        [f"{r['rows']:,}", names.get(r["method"], r["method"]), f"{r['cpu_seconds']:.0f}", f"{r['rmse']:.2f}"]
        for _, r in rows.iterrows()
    ]
    return table(["rows", "", "seconds of work", "RMSE, minutes"], body)


def correlated() -> list[str]:
    """By how much strengths are off in the mean, in sds of f: the worse of two main effects, and a pair."""
    mean = off(pd.read_csv(RESULTS / "correlated-bias.csv"))
    line, body = mean.loc["line"], []
    rhos = sorted(set(line.index.get_level_values("rho")))
    sizes = sorted(set(line.index.get_level_values("n")))
    for n in sizes:
        for measure in ("data", "product", "least squares"):
            cells = [line.loc[(n, rho, measure)] for rho in rhos] + [mean.loc[("square", n, 0.8, measure)]]
            body.append([f"{measure}, {n:,} rows", *(f"{each['main']:+.2f}, {each['pair']:+.2f}" for each in cells)])
    return table(["the worse main effect, pair", *(f"{rho:g}" for rho in rhos), "by the square, 0.8"], body)


def covered() -> list[str]:
    """How often bands, intervals of strengths and of shares hold what is true of the population."""
    rows = pd.read_csv(RESULTS / "correlated-cover.csv")
    names = {"band_main": "bands, main effects", "band_pair": "bands, pair", "strength": "strengths", "share": "shares"}
    names["total"] = "total shares"
    mean, body = rows.groupby(["function", "rho"])[[*names, "false_terms"]].mean(), []
    for (function, rho), own in mean.iterrows():
        cells = ["" if math.isnan(own[name]) else f"{100.0 * own[name]:.1f} %" for name in names]
        body.append([f"{function}, {rho:g}", *cells, f"{own['false_terms']:.2f}"])
    return table(["function, correlation", *names.values(), "false terms a fit"], body)


def copies() -> list[str]:
    """What evidence says of near copies: in the mean over fits, and in how many a product was listed, or possible."""
    rows = pd.read_csv(RESULTS / "correlated-copies.csv")
    names = {
        "curve_together": "one of x0, x1 acts",
        "curve_right": "x0 alone (true)",
        "curve_wrong": "x1 alone",
        "product_together": "one of x2, x3 acts",
        "product": "as a product (true)",
    }
    ends = ["product_listed", "product_said", "product_possible", "false_inputs"]
    mean, body = rows.groupby("rho")[[*names, *ends]].mean(), []
    for rho, own in mean.iterrows():
        shares = [f"{100.0 * own[name]:.0f} %" for name in ends[:3]]
        body.append([f"{rho:g}", *(f"{own[name]:.2f}" for name in names), *shares, f"{own['false_inputs']:.2f}"])
    heads = ["fits that list it", "that list it or warn of it", "so with 0.05 or more", "false inputs a fit"]
    return table(["correlation", *names.values(), *heads], body)


def which_of_two() -> list[str]:
    """How often the likelier of two near copies was the one that acts, by how likely it was said to be."""
    found = which(pd.read_csv(RESULTS / "correlated-copies.csv"))
    body = []
    for by in ("bin", "rho"):
        for place, own in found.groupby(by, observed=True):
            named = f"correlation {place:g}" if by == "rho" else f"{max(place.left, 0.5):g} to {place.right:g}"
            body.append([named, str(len(own)), f"{own['stated'].mean():.2f}", f"{own['right'].mean():.2f}"])
    body.append(["all", str(len(found)), f"{found['stated'].mean():.2f}", f"{found['right'].mean():.2f}"])
    return table(["the likelier of the two", "fits", "stated, in the mean", "right"], body)


def without_one() -> list[str]:
    """By how much strengths of the others change where one of four inputs that go together is left out."""
    rows, body = pd.read_csv(RESULTS / "correlated-removed.csv"), []
    for rho, own in rows.groupby("rho"):
        cells = (own[f"{name}_{measure}"].mean() for measure in ("data", "product") for name in ("others", "largest"))
        body.append([f"{rho:g}", *(f"{each:.3f}" for each in cells)])
    heads = [f"{measure}, {name}" for measure in ("data", "product") for name in ("in the mean", "the largest")]
    return table(["correlation", *heads], body)


def networks() -> list[str]:
    """Errors of networks over all inputs beside RealMLP's and TabM's, and what our intervals of new y hold."""
    rows = pd.read_csv(BENCHMARKS / "networks.csv")
    names = {"default": "`Skeleton…`", "realmlp": "RealMLP", "tabm": "TabM"}
    found, body = errors_of(rows), []
    held = rows[rows["method"] == "default"].groupby("table")["coverage"].mean()
    for name, own in found.iterrows():
        best = own.min()
        cells = [
            "" if math.isnan(own[k]) else f"**{own[k]:.4g}**" if own[k] == best else f"{own[k]:.4g}" for k in names
        ]
        body.append([str(name), *cells, "" if math.isnan(held[name]) else f"{held[name]:.3f}"])
    rank = found.dropna().rank(axis=1).mean()
    body.append(["mean rank", *(f"{rank[k]:.2f}" for k in names), ""])
    return table(["RMSE or log loss", *names.values(), "our 95 % intervals hold"], body)


# What a line of the table of families shows of it, by the promise's name, and under which head.
SHOWN = {
    FALSE.name: "a false interaction",
    "intervals of f": "f",
    "intervals of y": "y",
    "pointwise bands": "bands",
    "strengths": "strengths",
    "upper limits of real terms not found": "upper limits",
    WARNS.name: "warns",
}


def promised() -> list[str]:
    """Every promise: what it is to be, what it is over all families, and which of them clearly miss it."""
    found = lines(pd.read_csv(RESULTS / "promises.csv", dtype=str).to_dict("records"))
    body = []
    for name in dict.fromkeys(line.promise.name for line in found if line.promise.name != WARNS.name):
        own = [line for line in found if line.promise.name == name]
        missed = dict.fromkeys(f"{_kind(line)} ({line.n})" for line in own if line.is_missed)
        mean = sum(line.rate for line in own) / len(own)
        body.append([name, own[0].promise.target, f"{mean:.3f}", str(len(own)), ", ".join(missed) or "none"])
    return table(["promise", "to be", "in the mean", "kinds", "clearly missed for (rows)"], body)


def by_family() -> list[str]:
    """Rates of every family and number of rows; those that clearly miss what is promised are bold."""
    found = lines(pd.read_csv(RESULTS / "promises.csv", dtype=str).to_dict("records"))
    body = []
    for name, n in dict.fromkeys((_kind(line), line.n) for line in found):
        own = {line.promise.name: line for line in found if (_kind(line), line.n) == (name, n)}
        cells = [f"{own[k].rate:.2f}" if k in own else "" for k in SHOWN]
        marked = [f"**{c}**" if k in own and own[k].is_missed else c for k, c in zip(SHOWN, cells, strict=True)]
        body.append([name, f"{n:,}", str(own[WARNS.name].n_fits), *marked])
    return table(["kind of table", "rows", "fits", *SHOWN.values()], body)


def _kind(line: Line) -> str:
    return line.family if line.fit == "default" else f"{line.family}, told"


TABLES: dict[str, Callable[[], list[str]]] = {
    each.__name__: each
    for each in (
        synthetic,
        uci,
        paired,
        tables,
        schemes,
        probabilities,
        bands,
        flights,
        correlated,
        covered,
        copies,
        which_of_two,
        without_one,
        promised,
        by_family,
        networks,
    )
}


def quoted(text: str) -> str:
    """The document with its tables, and what these are of, as they are recorded."""
    for name, made in TABLES.items():
        start, end = f"<!-- table: {name} -->\n", f"<!-- /table: {name} -->"
        if start in text:
            before, rest = text.split(start)
            text = f"{before}{start}\n" + "\n".join(made()).strip() + f"\n\n{end}" + rest.split(end)[1]
    return labelled(text)


def sources(text: str) -> set[str]:
    """The results files that the tables of a document are made of, such as experiments/uci."""
    read, found = pd.read_csv, set()

    def noted(path: pathlib.Path, *others: object, **options: object) -> pd.DataFrame:
        found.add(f"{path.parent.parent.name}/{path.stem}")
        return read(path, *others, **options)

    with mock.patch.object(pd, "read_csv", noted):
        for name, made in TABLES.items():
            if f"<!-- table: {name} -->" in text:
                made()
    return found


if __name__ == "__main__":
    for path in map(ROOT.joinpath, pages()):
        path.write_text(quoted(path.read_text(encoding="utf-8")), encoding="utf-8")
