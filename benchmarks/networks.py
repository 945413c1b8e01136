"""Networks over all inputs: `Skeleton…`'s default and its schemes beside RealMLP and TabM, the same rows, in one run.

    python benchmarks/networks.py SUITE UCI                       # splits 3 and 4 of both, on which nothing is chosen
    python benchmarks/networks.py SUITE UCI --splits 0 1 --dev    # those to choose on: networks-dev.csv, not kept
    python benchmarks/networks.py SUITE UCI --jobs 4              # so many fits at once
    python benchmarks/networks.py SUITE UCI --report

SUITE holds the eleven tables with `index.json`, UCI the nine regression sets. `before` is what was the default before
embeddings: the ensemble for numbers, random features for classes. The peers are pytabkit's, at its defaults with folds
averaged, where it can be imported (`pip install --no-deps pytabkit tabm rtdl_num_embeddings` beside PyTorch); they
refuse gaps, which are filled for them. A run that was cut off goes on where it stopped. For a GPU, fits share its
memory: it is not taken beforehand.
"""

import argparse
import csv
import importlib.util
import json
import multiprocessing
import os
import pathlib
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

import numpy as np
import pandas as pd
from record import RESULTS, record

SCHEMES = {"default": "auto", "tabular": "tabular", "before": "before"}
PEERS = ("realmlp", "tabm")
# Folds that are averaged: as many as the default leaves out in turn for RealMLP, fewer for TabM with its 32 members.
FOLDS = {"realmlp": 8, "tabm": 5}
N_DRAWS = 500
SCORES = ("rmse", "log_density", "crps", "interval_score", "coverage", "log_loss", "auc", "accuracy", "seconds")
FIELDS = ("table", "split", "method", *SCORES)


class Task(NamedTuple):
    """One method on one split of a table."""

    folder: pathlib.Path
    is_regression: bool
    split: int
    method: str


def estimator(task: Task):
    if task.method in PEERS:
        import pytabkit

        kind = "Regressor" if task.is_regression else "Classifier"
        name = {"realmlp": "RealMLP_TD", "tabm": "TabM_D"}[task.method]
        return getattr(pytabkit, f"{name}_{kind}")(n_cv=FOLDS[task.method], n_refit=0, random_state=0)
    import vertebra as vb

    scheme = SCHEMES[task.method]
    if scheme == "before":
        scheme = "deep_ensemble" if task.is_regression else "random_features"
    return (vb.SkeletonRegressor if task.is_regression else vb.SkeletonClassifier)(scheme=scheme, random_state=0)


def filled(tables: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[pd.DataFrame, ...]:
    """Training and test rows with gaps as the median of the numbers trained on, or as a level."""
    train = tables[0]
    usual = {c: train[c].median() if pd.api.types.is_numeric_dtype(train[c]) else "missing" for c in train}
    return tuple(table.fillna(usual) for table in tables)


def scores(task: Task) -> dict:
    """A fit, and what it says of the test rows."""
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    from vertebra.datasets import benchmark
    from vertebra.metrics import crps, interval_score

    data, model = benchmark(task.folder, task.split), estimator(task)
    x_train, x = (filled if task.method in PEERS else tuple)((data.x_train, data.x_test))
    start = time.perf_counter()
    model.fit(x_train, data.y_train)
    y = data.y_test.to_numpy()
    said = model.predict(x) if task.is_regression else model.predict_proba(x)
    found = dict.fromkeys(SCORES, "") | {"seconds": time.perf_counter() - start}
    if task.is_regression:
        found["rmse"] = float(np.sqrt(np.mean((np.ravel(said) - y) ** 2)))
        if task.method not in PEERS:
            low, high = model.predict_interval(x).T
            found |= {
                "log_density": float(np.mean(model.log_prob(x, y))),
                "crps": float(np.mean(crps(y, model.sample_y(x, N_DRAWS, random_state=0)))),
                "interval_score": float(np.mean(interval_score(y, low, high))),
                "coverage": float(np.mean((low <= y) & (y <= high))),
            }
        return found
    found |= {
        "log_loss": float(log_loss(y, said, labels=model.classes_)),
        "accuracy": float(accuracy_score(y, model.classes_[said.argmax(axis=1)])),
    }
    return found | ({"auc": float(roc_auc_score(y, said[:, 1]))} if said.shape[1] == 2 else {})


def errors_of(rows: pd.DataFrame) -> pd.DataFrame:
    """RMSE or log loss by table and method, in the mean over the splits that all have."""
    error = rows["rmse"].fillna(rows["log_loss"])
    each = error.groupby([rows["table"], rows["split"], rows["method"]]).first().unstack("method")
    whole = each.dropna().groupby("table").mean()
    # of a table that no split of is whole, what there is
    return pd.concat([whole, each.groupby("table").mean().drop(index=whole.index)]).sort_index()


def report(rows: list[dict]) -> str:
    """RMSE or log loss by table, in the mean over splits, and beside the better of the peers."""
    table = pd.DataFrame(rows)
    table[list(SCORES)] = table[list(SCORES)].apply(pd.to_numeric)
    error = errors_of(table)
    lines = [error.round(4).to_string(), "", "mean rank", error.dropna().rank(axis=1).mean().round(2).to_string()]
    peers = [name for name in PEERS if name in error]
    if peers:
        ratio = error.drop(columns=peers).div(error[peers].min(axis=1), axis=0)
        lines += ["", "beside the better peer", ratio.round(3).to_string()]
    return "\n".join([*lines, "", "seconds", table.groupby("method")["seconds"].sum().round(0).to_string()])


def tasks(options: argparse.Namespace) -> list[Task]:
    kinds = json.loads((options.suite / "index.json").read_text())
    tables = [(options.suite / name, about["kind"] == "regression") for name, about in kinds.items()]
    tables += [(place, True) for place in sorted(options.uci.iterdir()) if (place / "splits.npz").is_file()]
    wanted = [each for each in tables if not options.only or each[0].name in options.only]
    return [Task(*each, split, method) for split in options.splits for each in wanted for method in options.methods]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("uci", type=pathlib.Path)
    parser.add_argument("--splits", nargs="*", type=int, default=[3, 4])
    usual = ["default", "before", *(PEERS if importlib.util.find_spec("pytabkit") else ())]
    parser.add_argument("--methods", nargs="*", default=usual, choices=[*SCHEMES, *PEERS])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--dev", action="store_true", help="figures to choose by, which are not kept")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    name = "networks-dev" if options.dev else "networks"
    rows: list[dict] = []
    if (RESULTS / f"{name}.csv").is_file():
        with (RESULTS / f"{name}.csv").open() as file:
            rows = [{key: row[key] for key in FIELDS} for row in csv.DictReader(file)]
    if options.report:
        print(report(rows))
        return
    there = {(row["table"], str(row["split"]), row["method"]) for row in rows}
    left = [t for t in tasks(options) if (t.folder.name, str(t.split), t.method) not in there]
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # a process of its own for each fit: what one compiles or leaves in memory is not the next one's
    fresh = dict(mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with ProcessPoolExecutor(options.jobs, **fresh) as pool:
        running = {pool.submit(scores, task): task for task in left}
        for done in as_completed(running):
            task = running[done]
            try:
                found = done.result()
            except Exception as error:  # one fit that fails must not cost the others
                print(f"{task.folder.name} {task.split} {task.method}: {error!r}", flush=True)
                continue
            rows.append({"table": task.folder.name, "split": str(task.split), "method": task.method, **found})
            record(name, rows)


if __name__ == "__main__":
    main()
