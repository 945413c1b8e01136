"""Eleven everyday tables: the additive estimators beside interpret's default EBM, the same rows, one after the other.

    python benchmarks/suite.py FOLDER                       # splits 3 and 4, on which nothing is chosen
    python benchmarks/suite.py FOLDER --splits 0 --dev      # those to choose on: results/suite-dev.csv, not kept

FOLDER holds a folder for every table, and `index.json`. `terms` is the default without networks (`remainder=False`),
`default` with them. A run that was cut off goes on where it stopped. `--report` prints ratios of errors and of times.
Where others use the machine too, only `cpu_seconds` says how long a fit takes; EBM's own processes are not in it.
"""

import argparse
import csv
import json
import pathlib
import time

import numpy as np
import pandas as pd
from record import RESULTS, record
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import vertebra as vb
from vertebra.datasets import benchmark

METHODS = ("terms", "default", "ebm")
SCORES = ("rmse", "worst", "log_density", "coverage", "log_loss", "auc", "accuracy", "seconds", "cpu_seconds")
FIELDS = ("table", "split", "method", *SCORES)


def estimator(method: str, is_regression: bool):
    if method == "ebm":
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

        return ExplainableBoostingRegressor() if is_regression else ExplainableBoostingClassifier()
    estimators = vb.AdditiveRegressor if is_regression else vb.AdditiveClassifier
    return estimators(remainder=method == "default", random_state=0)


def scores(method: str, data, is_regression: bool) -> dict:
    model = estimator(method, is_regression)
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(data.x_train, data.y_train)
    seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    found = dict.fromkeys(SCORES, "") | seconds
    x, y = data.x_test, data.y_test
    if is_regression:
        away = model.predict(x) - y
        found |= {"rmse": float(np.sqrt(np.mean(away**2))), "worst": float(np.abs(away).max())}
        if method != "ebm":
            low, high = model.predict_interval(x).T
            found |= {
                "log_density": float(np.mean(model.log_prob(x, y))),
                "coverage": float(np.mean((low <= y) & (y <= high))),
            }
        return found
    p = model.predict_proba(x)
    found |= {
        "log_loss": float(log_loss(y, p, labels=model.classes_)),
        "accuracy": float(accuracy_score(y, model.classes_[p.argmax(axis=1)])),
    }
    return found | ({"auc": float(roc_auc_score(y, p[:, 1]))} if p.shape[1] == 2 else {})


def report(rows: list[dict]) -> str:
    """Errors beside EBM's, in the mean over splits, and times."""
    table = pd.DataFrame(rows)
    numbers = table[list(SCORES)].apply(pd.to_numeric)
    table["error"] = numbers["rmse"].fillna(numbers["log_loss"])
    table["seconds"] = numbers["seconds"]
    both = table.groupby(["table", "split", "method"])[["error", "seconds"]].mean().unstack("method")
    lines = [f"{'table':16} {'method':8} {'error/EBM':>9} {'time/EBM':>9}"]
    for method in both["error"].columns.drop("ebm", errors="ignore"):
        ratio = (both["error"][method] / both["error"]["ebm"]).groupby("table").mean()
        seconds = both["seconds"][[method, "ebm"]].dropna().groupby("table").mean()
        for name in ratio.dropna().index:
            times = seconds.loc[name, method] / seconds.loc[name, "ebm"]
            lines.append(f"{name:16} {method:8} {ratio[name]:9.3f} {times:9.3f}")
        total = seconds.sum()
        better, close = int((ratio < 1.0).sum()), int((ratio <= 1.01).sum())
        said = f"better on {better}, within 1 % on {close} of {ratio.count()}"
        lines.append(f"{'all':16} {method:8} {said}; time {total[method] / total['ebm']:.3f} of EBM's")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--splits", nargs="*", type=int, default=[3, 4])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dev", action="store_true", help="figures to choose by, which are not kept")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    name = "suite-dev" if options.dev else "suite"
    rows: list[dict] = []
    if (RESULTS / f"{name}.csv").is_file():
        with (RESULTS / f"{name}.csv").open() as file:
            rows = [{key: row[key] for key in FIELDS} for row in csv.DictReader(file)]
    if options.report:
        print(report(rows))
        return
    kinds = {name: about["kind"] for name, about in json.loads((options.folder / "index.json").read_text()).items()}
    there = {(row["table"], str(row["split"]), row["method"]) for row in rows}
    for table in options.only or kinds:
        for split in options.splits:
            data = benchmark(options.folder / table, split)
            for method in options.methods:
                if (table, str(split), method) not in there:
                    found = scores(method, data, kinds[table] == "regression")
                    rows.append({"table": table, "split": str(split), "method": method, **found})
                    record(name, rows)


if __name__ == "__main__":
    main()
