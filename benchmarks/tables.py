"""Accuracy and wall time of the additive estimators at their defaults beside interpret's default EBM, on tables.

adult (the official split), california_housing and breast_cancer (five splits each): the same rows, the same run, one
after the other. Where the tables lie is the first argument. `--add` keeps the rows recorded before.
"""

import argparse
import csv
import pathlib
import time

import numpy as np
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
from record import RESULTS, record
from sklearn.metrics import log_loss, roc_auc_score

import vertebra as vb
from vertebra.datasets import benchmark

RUNS = [
    ("adult", ["official"]),
    ("breast_cancer", [0, 1, 2, 3, 4]),
    ("california_housing", [0, 1, 2, 3, 4]),
]


def scores(model, data, is_regression: bool) -> dict:
    start = time.perf_counter()
    model.fit(data.x_train, data.y_train)
    if is_regression:
        error = {"rmse": float(np.sqrt(np.mean((model.predict(data.x_test) - data.y_test) ** 2)))}
    else:
        p = model.predict_proba(data.x_test)[:, 1]
        error = {"auc": float(roc_auc_score(data.y_test, p)), "log_loss": float(log_loss(data.y_test, p))}
    return error | {"seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[name for name, _ in RUNS])
    parser.add_argument("--add", action="store_true")
    options = parser.parse_args()
    rows = []
    if options.add and (RESULTS / "tables.csv").is_file():
        with (RESULTS / "tables.csv").open() as file:
            fields = ("table", "split", "method", "auc", "log_loss", "rmse", "seconds")
            rows = [{key: row[key] for key in fields} for row in csv.DictReader(file)]
    for name, splits in RUNS:
        for split in splits if name in options.only else []:
            data = benchmark(options.folder / name, split)
            is_regression = name == "california_housing"
            methods = {
                "vertebra": vb.AdditiveRegressor() if is_regression else vb.AdditiveClassifier(),
                "ebm": ExplainableBoostingRegressor() if is_regression else ExplainableBoostingClassifier(),
            }
            for method, model in methods.items():
                found = {"auc": "", "log_loss": "", "rmse": ""} | scores(model, data, is_regression)
                rows.append({"table": name, "split": str(split), "method": method, **found})
            record("tables", rows)


if __name__ == "__main__":
    main()
