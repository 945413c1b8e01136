"""Compile time and step time of the additive network from 10 to 1,000 sub-networks (MC dropout, widths 4, 16, 1)."""

import time

import jax
import jax.random as jr
import numpy as np
from record import record

import vertebra as vb

SIZES, STEPS, ROUNDS = (10, 100, 1000), {10: 5000, 100: 1000, 1000: 100}, 7


def main():
    data = vb.datasets.synthetic("f1", 5000)
    x, y = ((a - a.mean(axis=0)) / a.std(axis=0) for a in (data.x, data.y))
    networks, rows = {}, []
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(seconds) if "compile" in event else None
    )

    def fit(s, steps):
        start = time.perf_counter()
        vb.fit(networks[s], vb.Gaussian(), x, y, key=jr.key(0), n_steps=steps, batch_size=100, n_rounds=1)
        return time.perf_counter() - start

    for s in (2, *SIZES):  # two sub-networks first, to leave what is compiled once for all out of the comparison
        start = time.perf_counter()
        networks[s] = vb.build(vb.additive(10, s, 3), vb.mc_dropout([4, 16, 1]), key=jr.key(0))
        build = time.perf_counter() - start
        compiled.clear()
        fit(s, 1)
        rows.append({"subnetworks": s, "build_s": build, "compile_s": sum(compiled)})
    rows = rows[1:]
    # Steps alone: what a run of many steps takes beyond a run of one. Sizes take turns, so that all see the same load.
    times = np.array([[(fit(s, STEPS[s] + 1) - fit(s, 1)) / STEPS[s] for s in SIZES] for _ in range(ROUNDS)])
    for row, step, ratio in zip(rows, times.T, (times / times[:, :1]).T, strict=True):
        row["step_us"] = 1e6 * np.median(step)
        row["compile_ratio"] = row["compile_s"] / rows[0]["compile_s"]
        row["step_ratio"] = np.median(ratio)
        row["step_ratio_over_size_ratio"] = np.median(ratio) * SIZES[0] / row["subnetworks"]
    record("subnetworks", rows)


if __name__ == "__main__":
    main()
