"""Training on a GPU: rows per second of the additive network, steps of the deep GP, and what bounds them.

`additive`: the same fit of 10^7 rows on the GPU and on two cores of the CPU, in processes of their own. Rounds are
timed after the first, which compiles; the score that closes each is part of it. All batch sizes are shown, and the
ratio of each side's best. On the GPU one more round is traced: its kernels, and the time they run, per step.
`deep_gp`: the model of deep_gp.py on the GPU, ours against GPyTorch's DeepGP, with its rows on the GPU and nothing read
back; its Cholesky factors in float64, its default, or float32, whichever is faster.
`closed_form`: the exact last layer over all rows. `restarts`: networks trained side by side. `accuracy`: test error
with a step's products in TF32, as JAX has them on such a GPU unless told, and all in float32.

    python benchmarks/gpu.py additive deep_gp closed_form restarts accuracy
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import jax.random as jr
import numpy as np
from record import record

import vertebra as vb
from vertebra.inference import conjugate

N, P, CLUSTERS, WIDTHS = 10_000_000, 20, [(2 * j, 2 * j + 1) for j in range(10)], (16, 24, 1)
BATCHES = (128, 1024, 8192, 65536, 262144)
# Rows of a timed round, within limits on its steps; rounds go on for so many seconds.
ROUND_ROWS = {"gpu": 2**24, "cpu": 2**19}
FEWEST_STEPS, MOST_STEPS, N_ROUNDS, SECONDS = 2, 1000, 200, 2.0
DEEP_N, DEEP_P, HIDDEN, POINTS, DEEP_BATCHES = 100_000, 8, 4, 128, (256, 1024, 8192)
OURS, THEIRS, TURNS = 500, 30, 3
RESTARTS, RESTART_ROWS, RESTART_BATCHES = (1, 4, 16), 1_000_000, (128,)
TEST_ROWS, ACCURACY_STEPS = 10_000, 4000
# The H200 by its data sheet: HBM3e, and the tensor cores in TF32, dense.
BYTES_PER_S, FLOPS_PER_S = 4.8e12, 495e12


def rows_of(n):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, P), dtype=np.float32)
    y = sum(np.sin(x[:, i] * x[:, j]) + 0.5 * x[:, i] for i, j in CLUSTERS)
    return x, y + 0.3 * rng.standard_normal(n, dtype=np.float32)


def additive_network(seed=0):
    skeleton = vb.additive(P, len(CLUSTERS), len(WIDTHS), clusters=CLUSTERS)
    return vb.build(skeleton, vb.deep_kernel_learning(WIDTHS), key=jr.key(seed))


def deep_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(DEEP_N, DEEP_P)).astype(np.float32)
    return x, (np.sin(x[:, 0] * x[:, 1]) + x[:, 2]).astype(np.float32)


def deep_network(x):
    skeleton = vb.chain(DEEP_P, 2, activation="identity")
    return vb.build(skeleton, vb.inducing_points([HIDDEN, 1], r=POINTS), key=jr.key(0), x=x)


def additive_cost():
    """Bytes that the kernels of a step read and write for a row, and floating-point operations.

    Read off the compiled step: a kernel per product, with bias and activation in it, and one for each slope of these.
    """
    s, (first, second, _) = len(CLUSTERS), WIDTHS
    below, middle, upper, top = P, s * first, s * second, s * (second + 1)  # the top: Rφ and μᵀφ, one product
    forward = 2 * below + (below + middle) + (middle + upper) + (upper + top) + top
    backward = 2 * top + 2 * (top + upper) + 3 * upper + 2 * (upper + middle) + 3 * middle + (middle + below)
    products = s * (2 * first + first * second + second * (second + 1))
    return 4 * (forward + backward), 2 * (3 * products - 2 * s * first)


def deep_cost(batch):
    """Floating-point operations of a step: φ = L⁻¹K(Z, x), then μᵀφ and Rφ, in both layers, and their gradients."""
    rows = sum(POINTS * (POINTS + d * (POINTS + 1)) for d in (HIDDEN, 1))
    # per layer a factor and its inverse, r³/3 each, and three products of r × r for the gradient
    return 6 * batch * rows + 2 * (2 * POINTS**3 // 3 + 6 * POINTS**3)


def measure(network, x, y, batch, n_steps):
    """Per step: seconds, as the median over rounds; and of one round more, on a GPU, what its kernels did."""
    ends, traced = [], []

    def watch(progress):
        ends.append(time.perf_counter())
        if traced:
            jax.profiler.stop_trace()
            return True
        if ends[-1] - ends[0] < SECONDS:
            return False
        if jax.default_backend() == "cpu":
            return True
        traced.append(True)
        jax.profiler.start_trace(folder)
        return False

    with tempfile.TemporaryDirectory() as folder:
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
        found = kernels(folder, n_steps) if traced else {}
    seconds = float(np.median(np.diff(ends[:-1] if traced else ends))) / n_steps
    return {"step_us": 1e6 * seconds} | found


def kernels(folder, n_steps):
    """Kernels and copies of a step in a trace, the time they run, and how much of it factorises matrices."""
    (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
    events = [
        (event.name, event.duration_ns)
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    factors = sum(time for name, time in events if any(part in name for part in ("potrf", "getrf", "trsm")))
    return {
        "kernels": len(events) / n_steps,
        "kernels_us": sum(time for _, time in events) / n_steps / 1e3,
        "factor_us": factors / n_steps / 1e3,
    }


def additive_side(n):
    """One side of the comparison, as lines of JSON."""
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    x, y = rows_of(n)
    network = additive_network()
    for batch in BATCHES:
        n_steps = int(np.clip(ROUND_ROWS[platform] // batch, FEWEST_STEPS, MOST_STEPS))
        print(json.dumps({"batch": batch} | measure(network, x, y, batch, n_steps)), flush=True)


def two_cores():
    """Two CPUs that are not threads of one core."""
    first = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(siblings.read_text() if siblings.exists() else cpu, cpu)
    return set(list(first.values())[:2])


def side(platform, n):
    cores = two_cores() if platform == "cpu" else os.sched_getaffinity(0)
    with subprocess.Popen(
        [sys.executable, __file__, "additive_side", "--rows", str(n)],
        env=os.environ | ({"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    ) as process:
        lines = [line for line in process.stdout or [] if line.startswith("{")]
    return {found["batch"]: found for found in map(json.loads, lines)}


def additive(n):
    gpu, cpu = side("gpu", n), side("cpu", n)
    rate = {name: {b: 1e6 * b / of[b]["step_us"] for b in BATCHES} for name, of in (("gpu", gpu), ("cpu", cpu))}
    best = max(rate["gpu"].values()) / max(rate["cpu"].values())
    n_bytes, n_flops = additive_cost()
    record(
        "gpu_additive",
        [
            {
                "rows": n,
                "batch": b,
                "gpu_rows_per_s": rate["gpu"][b],
                "cpu_rows_per_s": rate["cpu"][b],
                "ratio": rate["gpu"][b] / rate["cpu"][b],
                "ratio_of_best": best,
                **{key: value for key, value in gpu[b].items() if key not in ("batch", "factor_us")},
                "kernels_share": gpu[b].get("kernels_us", np.nan) / gpu[b]["step_us"],
                "bandwidth_share": n_bytes * rate["gpu"][b] / BYTES_PER_S,
                "arithmetic_share": n_flops * rate["gpu"][b] / FLOPS_PER_S,
            }
            for b in BATCHES
        ],
    )


def gpytorch_steps(x, y, batch):
    """Steps of GPyTorch's DeepGP."""
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


def gpytorch_rate(x, y, batch):
    """Steps per second, the faster of both precisions."""
    import torch
    from gpytorch.settings import _linalg_dtype_cholesky, num_likelihood_samples

    rates = []
    for precision in (torch.float64, torch.float32):
        with num_likelihood_samples(1), _linalg_dtype_cholesky(precision):
            run = gpytorch_steps(x, y, batch)
            run(5)
            start = time.perf_counter()
            run(THEIRS)
            rates.append(THEIRS / (time.perf_counter() - start))
    return max(rates)


def deep_gp(_):
    x, y = deep_data()
    network, found = deep_network(x), []
    for batch in DEEP_BATCHES:
        turns = [(measure(network, x, y, batch, OURS), gpytorch_rate(x, y, batch)) for _ in range(TURNS)]
        ours, theirs = np.array([(1e6 / our["step_us"], their) for our, their in turns]).T
        found.append(
            {
                "batch": batch,
                "vertebra_steps_per_s": np.median(ours),
                "gpytorch_steps_per_s": np.median(theirs),
                "ratio": np.median(ours / theirs),
                "ratio_min": np.min(ours / theirs),
                "ratio_max": np.max(ours / theirs),
                **{key: float(np.median([our[key] for our, _ in turns])) for key in turns[0][0]},
                "kernels_share": np.median([our.get("kernels_us", np.nan) / our["step_us"] for our, _ in turns]),
                "arithmetic_share": deep_cost(batch) * np.median(ours) / FLOPS_PER_S,
                "device": jax.devices()[0].device_kind,
            }
        )
    record("gpu_deep_gp", found)


def closed_form(n):
    x, y = rows_of(n)
    network, weight = additive_network(), np.ones((n, 1), np.float32)
    likelihood = vb.Gaussian().init(y[:, None])

    def seconds():
        start = time.perf_counter()
        conjugate.closed_form(network, likelihood, x, y[:, None], weight)
        return time.perf_counter() - start

    features = conjugate.n_joint_features(network)
    record("gpu_closed_form", [{"rows": n, "features": features, "first_s": seconds(), "later_s": seconds()}])


def restarts(_):
    x, y = rows_of(RESTART_ROWS)
    found = []
    for n_restarts in RESTARTS:
        networks = [additive_network(seed) for seed in range(n_restarts)]
        for batch in RESTART_BATCHES:
            result = measure(networks, x, y, batch, MOST_STEPS)
            rate = 1e6 * n_restarts * batch / result["step_us"]
            found.append({"restarts": n_restarts, "batch": batch, "rows_per_s": rate} | result)
    record("gpu_restarts", found)


def accuracy(_):
    x, y = rows_of(RESTART_ROWS + TEST_ROWS)
    z, t = deep_data()
    cases = {"additive": (additive_network(), x, y, 8192), "deep_gp": (deep_network(z), z, t, 256)}
    found = []
    for precision in (None, "highest"):
        for name, (network, inputs, targets, batch) in cases.items():
            with jax.default_matmul_precision(precision) if precision else contextlib.nullcontext():
                fitted = vb.fit(
                    network,
                    vb.Gaussian(),
                    inputs[:-TEST_ROWS],
                    targets[:-TEST_ROWS],
                    key=jr.key(1),
                    n_steps=ACCURACY_STEPS,
                    batch_size=batch,
                    last_layer=False,
                )
            mean, _ = vb.moments(fitted.network, inputs[-TEST_ROWS:], key=jr.key(2), n_draws=20)
            rmse = float(np.sqrt(np.mean((np.asarray(mean)[:, 0] - targets[-TEST_ROWS:]) ** 2)))
            found.append({"model": name, "products": precision or "default", "rmse": rmse, "score": fitted.score})
    record("gpu_accuracy", found)


PARTS = {
    "additive": additive,
    "deep_gp": deep_gp,
    "closed_form": closed_form,
    "restarts": restarts,
    "accuracy": accuracy,
    "additive_side": additive_side,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--rows", type=int, default=N)
    arguments = parser.parse_args()
    for part in arguments.parts:
        PARTS[part](arguments.rows)


if __name__ == "__main__":
    main()
