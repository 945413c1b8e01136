"""flights (551,220 rows): the default additive fit beside LightGBM's and EBM's defaults, time and RMSE in one run.

One after the other on the same rows and the same core (`taskset -c 0` makes it one; EBM's default leaves a core of two
alone). Each is recorded when it is done. EBM averages fourteen fits, and on all rows it takes more than hours: `--rows`
has all three compared on some of them, `--bags` asks EBM for fewer fits, which is faster and a little less accurate.

    taskset -c 0 python benchmarks/flights.py FOLDER [--rows N] [--bags N]   # of the benchmark tables
"""

import argparse
import itertools
import os
import pathlib
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from lightgbm import LGBMRegressor
from record import record

import vertebra as vb
from vertebra.datasets import Split, benchmark


def with_categories(x: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """As LightGBM wants text."""
    text = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
    return x.assign(**{name: pd.Categorical(x[name], categories=sorted(like[name].unique())) for name in text})


def compared(data: Split, n: int, bags: int) -> Iterator[dict]:
    """Every method fitted to n of the rows; without bags, no EBM."""
    chosen = np.random.default_rng(0).permutation(len(data.x_train))[:n]
    x, y = data.x_train.iloc[chosen], np.asarray(data.y_train)[chosen]
    methods = {
        "vertebra": (vb.AdditiveRegressor(random_state=0), lambda x: x),
        "lightgbm": (LGBMRegressor(verbose=-1), lambda x: with_categories(x, data.x_train)),
    }
    if bags:
        methods[f"ebm, {bags} bags"] = (ExplainableBoostingRegressor(outer_bags=bags, n_jobs=1), lambda x: x)
    for name, (model, read) in methods.items():
        train, test = read(x), read(data.x_test)
        begun, cpu = time.perf_counter(), time.process_time()
        model.fit(train, y)
        seconds = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
        error = float(np.sqrt(np.mean((model.predict(test) - data.y_test) ** 2)))
        yield {"method": name, "rows": n, "rmse": error, **seconds, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--bags", type=int, default=14)
    options = parser.parse_args()
    data = benchmark(options.folder / "flights", 0)
    n, rows = len(data.x_train), []
    plans = [(n, options.bags)] if options.rows is None else [(options.rows, options.bags), (n, 0)]
    for each in itertools.chain.from_iterable(compared(data, *plan) for plan in plans):
        rows.append(each)
        record("flights", rows)


if __name__ == "__main__":
    main()
