"""flights (551,220 rows): the default additive fit beside LightGBM's and EBM's defaults, time and RMSE in one run.

One after the other on the same rows and the same core (`taskset -c 0` makes it one; EBM's default leaves a core of two
alone). Each is recorded when it is done.

    taskset -c 0 python benchmarks/flights.py FOLDER   # of the benchmark tables
"""

import os
import pathlib
import sys
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
    data = benchmark(pathlib.Path(sys.argv[1]) / "flights", 0)
    methods = {
        "vertebra": (vb.AdditiveRegressor(random_state=0), lambda x: x),
        "lightgbm": (LGBMRegressor(verbose=-1), lambda x: with_categories(x, data.x_train)),
        "ebm": (ExplainableBoostingRegressor(), lambda x: x),
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
