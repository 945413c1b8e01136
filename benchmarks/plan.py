"""Seconds of work and memory of fits against rows and inputs, for the plan that `vertebra fit --plan` prints.

    python benchmarks/plan.py measure    # fits of several sizes, each in a process of its own: results/plan.csv
    python benchmarks/plan.py            # the formula, fitted to the sizes of FITTED, beside those of CHECKED

Work is processor seconds of all threads, which a busy machine changes little. The function is the same five of p inputs
in all tables: two curves, a line and a product, with noise of half their spread. Imports are not counted.
"""

import csv
import resource
import subprocess
import sys
import time

import numpy as np
from record import RESULTS, record

from vertebra.models import capacity

FITTED = [(1000, 5), (4000, 5), (16000, 5), (1000, 20), (4000, 20), (16000, 20), (1000, 60), (4000, 60)]
CHECKED = [(2000, 10), (8000, 10), (8000, 20), (2000, 40), (32000, 8)]


def child(n: int, p: int) -> None:
    import vertebra as vb

    def table(n):
        rng = np.random.default_rng(n + p)
        x = rng.uniform(-1.0, 1.0, (n, p))
        f = np.sin(3.0 * x[:, 0]) + x[:, 1] ** 2 + 0.5 * x[:, 2] + x[:, 3] * x[:, 4]
        return x, f + 0.5 * f.std() * rng.standard_normal(n)

    vb.AdditiveRegressor(random_state=0).fit(*table(200))  # imports, and what is compiled
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x, y = table(n)
    begun, clock = time.process_time(), time.perf_counter()
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    work, wall = time.process_time() - begun, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    columns = model.model_.posterior.terms.basis.n_columns
    print(work, wall, (peak - idle) / 2**20, len(model.clusters_), columns)


def measure() -> None:
    rows = []
    for n, p in [*FITTED, *CHECKED]:
        command = [sys.executable, __file__, str(n), str(p)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        work, wall, memory, terms, columns = map(float, text.split()[-5:])
        use = "checked" if (n, p) in CHECKED else "fitted"
        about = {"seconds_of_work": work, "seconds": wall, "GiB": memory, "terms": int(terms), "columns": int(columns)}
        rows.append({"rows": n, "inputs": p, "use": use, **about})
        record("plan", rows)


def check() -> None:
    with (RESULTS / "plan.csv").open() as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if row["use"] == "fitted"]
    n, p, work = (np.array([float(row[name]) for row in known]) for name in ("rows", "inputs", "seconds_of_work"))
    columns = np.column_stack([np.ones(len(n)), np.log(n / 1000.0), np.log(p / 10.0)])
    (constant, by_rows, by_inputs), *_ = np.linalg.lstsq(columns, np.log(work), rcond=None)
    print(f"SEARCH = {np.exp(constant):.3g}, {by_rows:.3g}, {by_inputs:.3g}")
    for row in rows:
        said = capacity.plan(int(row["rows"]), int(row["inputs"]))
        ratio = said.work / float(row["seconds_of_work"])
        gib = said.memory / 2**30
        print(f"{row['use']:8}{row['rows']:>7} × {row['inputs']:>3}  {float(row['seconds_of_work']):7.1f} s", end="  ")
        print(f"said {said.work:7.1f} s, × {ratio:.2f}  {float(row['GiB']):.2f} GiB, said {gib:.2f}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(int(sys.argv[1]), int(sys.argv[2]))
    elif sys.argv[1:] == ["measure"]:
        measure()
    else:
        check()
