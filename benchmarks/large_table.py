"""A table of 24,000 rows × 15 inputs with gaps and uneven noise: the default fit beside one that searches all rows.

Ten numbers, a fifth of one of them not known where noise is twice as large, two categories, and three numbers of few
values; eight inputs act, alone, in pairs and as a category. Accuracy is of 20,000 other rows: the error of the mean of
y, the log density, and how often intervals of 95 % hold y.

    taskset -c 0 python benchmarks/large_table.py [--all]   # --all: beside the search of all rows, which takes minutes
"""

import argparse
import os
import time

import numpy as np
import pandas as pd
from record import record

import vertebra as vb
from vertebra.terms import additive

N, N_TEST = 24_000, 20_000


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Inputs, y and the mean of y."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 10)).clip(-2.5, 2.5)
    x[:, 1] = 0.6 * x[:, 0] + 0.8 * x[:, 1]
    few = rng.integers(0, 8, (n, 3)).astype(float)
    kinds = rng.integers(0, 6, n), rng.integers(0, 12, n)
    f = np.sin(2.0 * x[:, 0]) + 0.4 * x[:, 1] ** 2 + 0.5 * np.tanh(3.0 * x[:, 2]) + 0.6 * x[:, 3] * x[:, 4]
    f += 0.15 * few[:, 0] + np.array([0.0, 0.5, -0.5, 1.0, 0.2, -0.8])[kinds[0]] * (1.0 + 0.3 * x[:, 5])
    gone = rng.random(n) < 0.2
    f = np.where(gone, f - 0.5 * np.tanh(3.0 * x[:, 2]) + 0.3, f)
    y = f + 0.4 * np.exp(0.5 * x[:, 6]) * np.where(gone, 2.0, 1.0) * rng.standard_normal(n)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)]).assign(
        x2=np.where(gone, np.nan, x[:, 2]),
        **{f"few{i}": few[:, i] for i in range(3)},
        kind=np.array(list("abcdef"))[kinds[0]],
        other=np.array([f"level {k}" for k in range(12)])[kinds[1]],
    )
    return frame, y, f


def measured(search: str) -> dict:
    (x, y, _), (new, y_new, _) = table(N, 0), table(N_TEST, 1)
    model = vb.AdditiveRegressor(random_state=0, remainder=False)
    begun, clock = time.process_time(), time.perf_counter()
    model.fit(x, y)
    work, wall = time.process_time() - begun, time.perf_counter() - clock
    interval = model.predict_interval(new)
    seen = model.model_.log_prob(new, y_new)
    return {
        "search": search,
        "rows": N,
        "inputs": x.shape[1],
        "seconds_of_work": work,
        "seconds": wall,
        "load": os.getloadavg()[0],
        "noise": model.model_.noise,
        "terms": len(model.effects()),
        "rmse": float(np.sqrt(np.mean((model.predict(new) - y_new) ** 2))),
        "log_density": float(seen.mean()),
        "log_density_error": float(seen.std() / np.sqrt(len(seen))),
        "coverage_95": float(np.mean((interval[:, 0] <= y_new) & (y_new <= interval[:, 1]))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    vb.AdditiveRegressor(random_state=0, remainder=False).fit(*table(300, 2)[:2])  # imports, and what is compiled
    rows = [measured("15,000 rows")]
    record("large_table", rows)
    if parser.parse_args().all:
        additive.ROWS_SEARCHED = N
        rows.append(measured("all rows"))
        record("large_table", rows)


if __name__ == "__main__":
    main()
