"""Peak memory of a fit at 10⁵ and at 10⁶ rows, each in a process of its own, against what the data themselves grow by.

The data are float64 arrays of 10 inputs and a target, as NumPy makes them: 88 bytes a row. The peak is the median of
five runs: what the compiler takes varies by tens of megabytes.
"""

import resource
import statistics
import subprocess
import sys

from record import record

SIZES, RUNS = (100_000, 1_000_000), 5


def child(n: int) -> None:
    import jax.random as jr
    import numpy as np

    import vertebra as vb

    rng = np.random.default_rng(0)
    x = rng.random((n, 10))
    y = x @ np.arange(10.0) + rng.standard_normal(n)
    network = vb.build(vb.additive(10, 10, 3), vb.mc_dropout([4, 16, 1]), key=jr.key(0))
    vb.fit(network, vb.Gaussian(), x, y, key=jr.key(0), n_steps=500, batch_size=100)
    print(x.nbytes + y.nbytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main():
    rows = []
    for n in SIZES:
        command = [sys.executable, __file__, str(n)]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(RUNS)]
        data, peak = int(runs[0][0]), statistics.median(int(peak) for _, peak in runs)
        rows.append({"rows": n, "data_MB": data / 1e6, "peak_MB": peak / 1e6})
    growth = (rows[1]["peak_MB"] - rows[0]["peak_MB"]) / (rows[1]["data_MB"] - rows[0]["data_MB"])
    for row in rows:
        row["peak_growth_over_data_growth"] = growth
    record("memory", rows)


if __name__ == "__main__":
    child(int(sys.argv[1])) if len(sys.argv) > 1 else main()
