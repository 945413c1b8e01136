"""The figures: an interaction of f1 with its sd, the first layer's sparsity, kernels that converge, calibration.

python experiments/figures.py        # about two minutes; writes results/figure-….png and results/kernels.csv
"""

import csv

import jax.numpy as jnp
import jax.random as jr
import matplotlib as mpl
import numpy as np
from runner import RESULTS
from stamps import recording

mpl.use("Agg")

import matplotlib.pyplot as plt

import vertebra as vb
from vertebra.datasets import synthetic
from vertebra.terms.group_lasso import group_lasso_path

WIDTHS = (10, 30, 100, 300, 1000, 3000)
N_DRAWS = 100


def interaction(model: vb.AdditiveRegressor) -> None:
    """Mean and sd of what x1 and x2 do together, as the paper draws it."""
    table = model.effect(("x0", "x1"), measure="product")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    vb.plot.surface(table, axes)
    save(figure, "interaction")


def sparsity(x, y) -> None:
    """Which inputs each sub-network reads under the group lasso: exact zeros elsewhere."""
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    path = group_lasso_path(x, (y - y.mean()) / y.std(), key=jr.key(0), n_subnetworks=10)
    figure, ax = plt.subplots(figsize=(6, 4.5))
    vb.plot.sparsity(path.norms[path.chosen], ax, names=[f"x{i + 1}" for i in range(x.shape[1])])
    save(figure, "sparsity")


def kernels() -> None:
    """The kernel of one to three blocks of random features in a row nears its limit at the rate r^(-1/2)."""
    x, skeleton = np.random.default_rng(0).standard_normal((8, 5)), vb.chain(5, 1)
    rows = []
    for depth in (1, 2, 3):
        for r in WIDTHS:
            layers = vb.deep_random_features([1], r=r, n_blocks=depth)
            exact, errors = np.asarray(vb.dual_kernel(skeleton, layers, x))[0], []
            for draw in range(N_DRAWS):
                network = vb.build(skeleton, layers, key=jr.key(draw))
                phi = np.asarray(network.top_features(jnp.asarray(x, jnp.float32).T)[0])[0]
                errors.append(np.mean((phi.T @ phi - exact) ** 2))
            rows.append((depth, r, float(np.sqrt(np.mean(errors)))))
    path = RESULTS / "kernels.csv"
    with recording(path, __file__, is_new=True), path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["depth", "r", "error"])
        writer.writerows((d, r, f"{e:.4g}") for d, r, e in rows)
    figure, ax = plt.subplots(figsize=(5.5, 4.2))
    for depth in (1, 2, 3):
        ax.loglog(WIDTHS, [e for d, _, e in rows if d == depth], "o-", label=f"{depth} block{'s' * (depth > 1)}")
    first = rows[0][2]
    ax.loglog(WIDTHS, [first * (r / WIDTHS[0]) ** -0.5 for r in WIDTHS], "k:", label="r$^{-1/2}$")
    ax.set(xlabel="features r", ylabel="error of the kernel (root mean square)")
    ax.legend(frameon=False)
    save(figure, "kernels")


def calibration(model: vb.AdditiveRegressor) -> None:
    """How often rows lie inside the intervals that were stated for them."""
    test = synthetic("f1", 5000, noise=1.0, seed=1000)
    figure, ax = plt.subplots(figsize=(4.6, 4.4))
    vb.plot.calibration(model.evaluate(test.x, test.y).curve(), ax)
    save(figure, "calibration")


def save(figure, name: str) -> None:
    figure.savefig(RESULTS / f"figure-{name}.png", dpi=120, bbox_inches="tight")
    plt.close(figure)
    print(f"figure-{name}.png", flush=True)


if __name__ == "__main__":
    data = synthetic("f1", 5000, noise=1.0, seed=0)
    fitted = vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)
    interaction(fitted)
    calibration(fitted)
    kernels()
    sparsity(data.x, data.y)
