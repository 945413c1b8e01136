"""Training on a GPU: rows per second of the additive network of 10^7 rows, and steps of the deep GP, and what bounds them.

`additive` runs the same fit twice, in processes of their own: on the GPU, and on two cores of the CPU. Rounds are timed
from the end of the first, which compiles, to the last; the score that closes each is part of the time. Each side's best
batch size counts, and every size is shown. `deep_gp` is the model of deep_gp.py, ours against GPyTorch on the same GPU.
`profile` counts the kernels of a step and what they do, against the bounds of the chip. `closed_form` times the exact
last layer over all rows, and `order` counts how often an epoch visits each row.

    python benchmarks/gpu.py additive deep_gp profile closed_form order [--quick]
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from record import record

import vertebra as vb
from vertebra import conjugate, inference, training

N, P, CLUSTERS, WIDTHS = 10_000_000, 20, [(2 * j, 2 * j + 1) for j in range(10)], (16, 24, 1)
BATCHES = (128, 1024, 8192, 65536, 262144)
# Rows of one timed round, within limits on its steps; rounds go on for so many seconds.
ROUND_ROWS = {"gpu": 2**24, "cpu": 2**19}
FEWEST_STEPS, MOST_STEPS, N_ROUNDS, SECONDS = 2, 2000, 200, 3.0
# The deep GP of deep_gp.py, with more rows, so that the largest batch is one.
DEEP_N, DEEP_P, HIDDEN, POINTS, DEEP_BATCHES = 100_000, 8, 4, 128, (256, 1024, 8192)
OURS, THEIRS, TURNS = 2000, 50, 3
# H200, by its data sheet: HBM3e, and float32 without and with tensor cores (TF32, dense).
BYTES_PER_S, FLOPS, TF32_FLOPS = 4.8e12, 67e12, 495e12


def rows_of(n):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, P), dtype=np.float32)
    y = sum(np.sin(x[:, i] * x[:, j]) + 0.5 * x[:, i] for i, j in CLUSTERS)
    return x, y + 0.3 * rng.standard_normal(n, dtype=np.float32)


def additive_network():
    skeleton = vb.additive(P, len(CLUSTERS), len(WIDTHS), clusters=CLUSTERS)
    return vb.build(skeleton, vb.deep_kernel_learning(WIDTHS), key=jr.key(0))


def seconds_per_step(network, x, y, batch, n_steps):
    """The median over rounds of `n_steps` steps, after the first."""
    ends = []

    def watch(progress):
        ends.append(time.perf_counter())
        return ends[-1] - ends[0] > SECONDS

    vb.fit(
        network,
        vb.Gaussian(),
        x,
        y,
        key=jr.key(0),
        n_steps=N_ROUNDS * n_steps,
        batch_size=batch,
        n_rounds=N_ROUNDS,
        last_layer=False,
        callback=watch,
    )
    return float(np.median(np.diff(ends))) / n_steps


def steps_of(batch, platform):
    return int(np.clip(ROUND_ROWS[platform] // batch, FEWEST_STEPS, MOST_STEPS))


def additive_side(n):
    """One side of the comparison, as lines of JSON."""
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    x, y = rows_of(n)
    network = additive_network()
    for batch in BATCHES:
        seconds = seconds_per_step(network, x, y, batch, steps_of(batch, platform))
        print(json.dumps({"platform": platform, "batch": batch, "seconds": seconds}), flush=True)


def two_cores():
    """Two CPUs that are not threads of one core."""
    first = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(siblings.read_text() if siblings.exists() else cpu, cpu)
    return set(list(first.values())[:2])


def side(platform, n):
    command = [sys.executable, __file__, "additive_side", "--rows", str(n)]
    cores = two_cores() if platform == "cpu" else os.sched_getaffinity(0)
    environment = os.environ | {"JAX_PLATFORMS": "cpu" if platform == "cpu" else "cuda"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    ) as process:
        found = [json.loads(line) for line in process.stdout or [] if line.startswith("{")]
    return {row["batch"]: row["seconds"] for row in found}


def additive(n):
    times = {platform: side(platform, n) for platform in ("gpu", "cpu")}
    rates = {platform: {batch: batch / s for batch, s in found.items()} for platform, found in times.items()}
    best = {platform: max(found.values()) for platform, found in rates.items()}
    record(
        "gpu_additive",
        [
            {
                "rows": n,
                "batch": batch,
                "gpu_rows_per_s": rates["gpu"][batch],
                "cpu_rows_per_s": rates["cpu"][batch],
                "ratio": rates["gpu"][batch] / rates["cpu"][batch],
                "best_ratio": best["gpu"] / best["cpu"],
                "gpu_step_us": 1e6 * times["gpu"][batch],
            }
            for batch in BATCHES
        ],
    )


def deep_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(DEEP_N, DEEP_P)).astype(np.float32)
    return x, (np.sin(x[:, 0] * x[:, 1]) + x[:, 2]).astype(np.float32)


def deep_network(x):
    skeleton = vb.chain(DEEP_P, 2, activation="identity")
    return vb.build(skeleton, vb.inducing_points([HIDDEN, 1], r=POINTS), key=jr.key(0), x=x)


def gpytorch_steps(x, y, batch):
    """Steps of GPyTorch's DeepGP, with the rows and their order on the GPU and nothing read back."""
    import torch
    from deep_gp import Deep
    from gpytorch.mlls import DeepApproximateMLL, VariationalELBO

    x, y = torch.tensor(x, device="cuda"), torch.tensor(y, device="cuda")
    model = Deep(x).cuda()
    bound = DeepApproximateMLL(VariationalELBO(model.likelihood, model, len(x)))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2, fused=True)

    def run(steps):
        order = torch.randperm(len(x), device="cuda")
        for step in range(steps):
            rows = order[(step * batch) % (len(x) - batch) :][:batch]
            optimiser.zero_grad(set_to_none=True)
            (-bound(model(x[rows]), y[rows])).backward()
            optimiser.step()
        torch.cuda.synchronize()

    return run


def deep_gp(_):
    import gpytorch

    x, y = deep_data()
    network, found = deep_network(x), []
    for batch in DEEP_BATCHES:
        with gpytorch.settings.num_likelihood_samples(1):
            step, rates = gpytorch_steps(x, y, batch), []
            step(5)
            for _ in range(TURNS):
                start = time.perf_counter()
                step(THEIRS)
                theirs = THEIRS / (time.perf_counter() - start)
                rates.append((1.0 / seconds_per_step(network, x, y, batch, OURS), theirs))
        ours, theirs = np.array(rates).T
        found.append(
            {
                "batch": batch,
                "vertebra_steps_per_s": np.median(ours),
                "gpytorch_steps_per_s": np.median(theirs),
                "ratio": np.median(ours / theirs),
                "ratio_min": np.min(ours / theirs),
                "ratio_max": np.max(ours / theirs),
                "device": jax.devices()[0].device_kind,
            }
        )
    record("gpu_deep_gp", found)


PARTS = {"additive": additive, "deep_gp": deep_gp, "additive_side": additive_side}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--rows", type=int, default=N)
    arguments = parser.parse_args()
    for part in arguments.parts:
        PARTS[part](arguments.rows)


if __name__ == "__main__":
    main()
