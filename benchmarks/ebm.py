"""Wall time of `AdditiveRegressor` at its defaults over interpret's default EBM: the same rows, the same run.

The first fit of a process has everything in it: imports done, nothing compiled. Effects and error control are counted.
"""

import time

from interpret.glassbox import ExplainableBoostingRegressor
from record import record

import vertebra as vb


def ours(data) -> float:
    start = time.perf_counter()
    model = vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)
    model.effects()
    model.interactions(0.05)
    return time.perf_counter() - start


def theirs(data) -> float:
    start = time.perf_counter()
    ExplainableBoostingRegressor(random_state=0).fit(data.x, data.y)
    return time.perf_counter() - start


def main() -> None:
    rows = []
    for repeat, name in enumerate(("f3", "f1", "f2")):
        data = vb.datasets.synthetic(name, 5000, seed=repeat)
        mine, ebm = ours(data), theirs(data)
        rows.append(
            {
                "function": name,
                "fit": "first" if repeat == 0 else "later",
                "seconds": round(mine, 2),
                "ebm_seconds": round(ebm, 2),
                "ratio": round(mine / ebm, 3),
            }
        )
        print(rows[-1], flush=True)
    record("ebm", rows)


if __name__ == "__main__":
    main()
