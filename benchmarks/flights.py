"""flights (551,220 rows): the default additive fit beside LightGBM's and EBM's defaults, time and RMSE in one run.

One after the other on the same rows and the same core (`taskset -c 0` makes it one; EBM's default leaves a core of two
alone). Each is recorded when it is done. EBM averages fourteen fits, for hours: `--bags 1` asks it for one, which is
faster and a little less accurate than its default.

    taskset -c 0 python benchmarks/flights.py FOLDER [--bags N]   # of the benchmark tables
"""

import argparse
import os
import pathlib
import time

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from lightgbm import LGBMRegressor
from record import record

import vertebra as vb
from vertebra.datasets import benchmark


def with_categories(x: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """As LightGBM wants text."""
    text = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
    return x.assign(**{name: pd.Categorical(x[name], categories=sorted(like[name].unique())) for name in text})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bags", type=int, default=14)
    options = parser.parse_args()
    data = benchmark(options.folder / "flights", 0)
    bags = f"ebm, {options.bags} bags"
    methods = {
        "vertebra": (vb.AdditiveRegressor(random_state=0), lambda x: x),
        "lightgbm": (LGBMRegressor(verbose=-1), lambda x: with_categories(x, data.x_train)),
        bags: (ExplainableBoostingRegressor(outer_bags=options.bags), lambda x: x),
    }
    rows = []
    for name, (model, read) in methods.items():
        train, test = read(data.x_train), read(data.x_test)
        begun = time.perf_counter()
        model.fit(train, data.y_train)
        seconds = time.perf_counter() - begun
        error = float(np.sqrt(np.mean((model.predict(test) - data.y_test) ** 2)))
        rows.append({"method": name, "rows": len(train), "seconds": seconds, "rmse": error, "load": os.getloadavg()[0]})
        record("flights", rows)


if __name__ == "__main__":
    main()
