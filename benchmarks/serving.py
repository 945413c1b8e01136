"""Predictions per second on two cores: the additive mean through exported tables, mean and sd through the estimator.

The models are fits of f1 and f3 of the paper with 1000 rows. The best of some runs after a first one.

    python benchmarks/serving.py
"""

import pathlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
from record import record

import vertebra as vb
from vertebra import serving
from vertebra.datasets import synthetic

ROWS, RUNS, THREADS = 1_000_000, 5, 2


def best(work) -> float:
    seconds = []
    for _ in range(RUNS + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])


def measure(name: str, model, x: pd.DataFrame) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.npz"
        model.to_tables(path)
        tables = serving.load(path)
    array = x.to_numpy(np.float64)
    parts = np.array_split(array, THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        by_tables = best(lambda: list(pool.map(tables.predict, parts)))
        said = np.concatenate(list(pool.map(tables.predict, parts)))
    mean, sd = model.predict(x, return_std=True)
    return {
        "model": name,
        "terms": len(model.effects()),
        "columns": model._posterior.terms.basis.n_columns,
        "tables_rows_per_s": len(x) / by_tables,
        "tables_off_in_sds": float(np.max(np.abs(said - mean) / sd)),
        "mean_rows_per_s": len(x) / best(lambda: model.predict(x)),
        "mean_and_sd_rows_per_s": len(x) / best(lambda: model.predict(x, return_std=True)),
    }


def main() -> None:
    rows, rng = [], np.random.default_rng(0)
    for name in ("f1", "f3"):
        data = synthetic(name, 1000, seed=0)
        model = vb.AdditiveRegressor(random_state=0, remainder=False).fit(data.x, data.y)
        rows.append(
            measure(name, model, pd.DataFrame(rng.uniform(data.x.min(), data.x.max(), (ROWS, data.x.shape[1]))))
        )
    record("serving", rows)


if __name__ == "__main__":
    main()
