"""What little takes: a small table in a new process, f1 of 5,000 rows at first and later, and commands on a model.

Each is a process of its own, so that imports and whatever is compiled count; `cpu_seconds` are those of all threads
(and on a busy machine what a free one would take on one core), `seconds` what went by. A table's fit goes to its
effects. Beside each command stands Python with NumPy and pandas imported, which no command on a table can do without.

    python benchmarks/small.py
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from record import record

N_LATER = 3
TABLE = """
import numpy as np, vertebra as vb
rng = np.random.default_rng(0)
x = rng.uniform(-1.0, 1.0, (1000, 10))
y = np.sin(3.0 * x[:, 0]) + x[:, 1] ** 2 + x[:, 2] * x[:, 3] + 0.3 * rng.standard_normal(1000)
vb.AdditiveRegressor(random_state=0).fit(x, y).effects()
"""
F1 = """
import vertebra as vb
for seed in range({n}):
    data = vb.datasets.synthetic("f1", 5000, seed=seed)
    vb.AdditiveRegressor(random_state=0).fit(data.x, data.y).effects()
"""
MODEL = """
import sys, numpy as np, pandas as pd, vertebra as vb
rng = np.random.default_rng(0)
table = pd.DataFrame(rng.uniform(-1.0, 1.0, (1000, 5)), columns=list("abcde"))
table.to_csv(sys.argv[1] + "/table.csv", index=False)
y = np.sin(3.0 * table["a"]) + table["b"] * table["c"] + 0.3 * rng.standard_normal(1000)
vb.AdditiveRegressor(random_state=0).fit(table, y).save(sys.argv[1] + "/model.vertebra")
"""


def timed(*command: str) -> dict[str, float]:
    """Processor seconds and seconds of a process."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": cpu, "seconds": time.perf_counter() - clock}


def main() -> None:
    rows = []

    def note(what: str, found: dict[str, float]) -> None:
        rows.append({"what": what, **found, "load": os.getloadavg()[0]})
        record("small", rows)

    timed("-c", "import vertebra; vertebra.AdditiveRegressor")  # files are then in memory
    note("imports of an estimator", timed("-c", "import vertebra; vertebra.AdditiveRegressor"))
    note("1,000 rows, 10 inputs, to its effects", timed("-c", TABLE))
    first = timed("-c", F1.format(n=1))
    note("f1, 5,000 rows, first", first)
    more = timed("-c", F1.format(n=1 + N_LATER))
    note("f1, 5,000 rows, later", {name: (more[name] - first[name]) / N_LATER for name in first})
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", MODEL, folder], check=True)
        model, table = (str(pathlib.Path(folder) / name) for name in ("model.vertebra", "table.csv"))
        note("import numpy, pandas", timed("-c", "import numpy, pandas"))
        note("vertebra info", timed("-m", "vertebra.cli", "info", model))
        note("vertebra effects", timed("-m", "vertebra.cli", "effects", model))
        note("vertebra predict, 1,000 rows", timed("-m", "vertebra.cli", "predict", model, table))


if __name__ == "__main__":
    main()
