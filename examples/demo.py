"""Vertebra on Friedman's function: what acts, what interacts, how sure, and the paper's schemes beside each other.

    python examples/demo.py

prints the effects found with their exact values and writes demo-output/effects.png.
"""

import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

NAMES = [f"x{i}" for i in range(10)]
SCHEMES = ("auto", "mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features", "inducing_points")
OUTPUT = pathlib.Path("demo-output")


def main():
    train, test = vb.datasets.synthetic("f1", 3000, seed=0), vb.datasets.synthetic("f1", 3000, seed=1)
    print("f(x) = 10 sin(π x0 x1) + 20 (x2 − ½)² + 10 x3 + 5 x4; 3000 rows of 10 inputs, noise of sd 1.\n")
    model = vb.AdditiveRegressor(random_state=0).fit(pd.DataFrame(train.x, columns=NAMES), train.y)
    print(f"Sub-networks read: {', '.join(' '.join(cluster) for cluster in model.clusters_)}\n")
    effects = model.effects()
    exact = vb.datasets.f1.strengths()
    effects["exact"] = [exact.get(tuple(map(NAMES.index, term)), 0.0) for term in effects["term"]]
    effects["term"] = [" ".join(term) for term in effects["term"]]
    print(effects.round(3).to_string(index=False))
    real = [" ".join(term) for term in model.interactions(fdr=0.05)["term"]]
    print(f"\nInteractions at a false discovery rate of 5 %: {', '.join(real) or 'none'}\n")
    picture(model)

    print("The same clusters, other blocks:\n")
    print(f"{'scheme':22s} {'RMSE to f':>10s} {'coverage of f':>14s} {'log density':>12s} {'seconds':>8s}")
    for scheme in SCHEMES:
        start = time.perf_counter()
        other = vb.AdditiveRegressor(scheme, random_state=0, n_steps=2000).fit(train.x, train.y)
        seconds = time.perf_counter() - start
        mean, sd = other.predict_f(test.x)
        covered = vb.metrics.coverage(test.f, mean - 1.96 * sd, mean + 1.96 * sd)
        density = other.log_prob(test.x, test.y).mean()
        error = vb.metrics.rmse(test.f, mean)
        print(f"{scheme:22s} {error:10.3f} {covered:14.2f} {density:12.3f} {seconds:8.1f}", flush=True)
    best = np.mean(-0.5 * np.log(2 * np.pi) - 0.5 * (test.y - test.f) ** 2)
    print(f"\nThe true f has log density {best:.3f}; 95 % intervals should cover 0.95.")
    print(f"Picture: {OUTPUT / 'effects.png'}")


def picture(model):
    """Main effects with simultaneous bands, and the interaction's mean and standard deviation (the paper's Fig. 2)."""
    figure, axes = plt.subplots(2, 4, figsize=(14, 6.4), layout="constrained")
    truths = {
        "x2": lambda v: 20 * (v - 0.5) ** 2 - 20 / 12,
        "x3": lambda v: 10 * (v - 0.5),
        "x4": lambda v: 5 * (v - 0.5),
    }
    for name, axis in zip(["x0", "x1", "x2", "x3", "x4"], axes.flat, strict=False):
        curve = model.effect(name, simultaneous=True)
        axis.fill_between(
            curve[name], curve["lower"], curve["upper"], color="#56B4E9", alpha=0.5, lw=0, label="95 % band"
        )
        axis.plot(curve[name], curve["mean"], color="#0072B2", label="effect")
        if name in truths:
            axis.plot(curve[name], truths[name](curve[name]), color="black", ls="--", lw=1, label="truth")
        axis.set(title=f"Effect of {name}", xlabel=name, ylabel="units of y")
        axis.spines[["top", "right"]].set_visible(False)
    axes.flat[2].legend(frameon=False, fontsize=9)
    surface = model.effect(("x0", "x1"), points=40)
    for axis, column, colours in ((axes.flat[5], "mean", "RdBu_r"), (axes.flat[6], "sd", "viridis")):
        table = surface.pivot(index="x1", columns="x0", values=column)
        limit = np.abs(table.to_numpy()).max()
        low = -limit if column == "mean" else 0.0
        image = axis.pcolormesh(table.columns, table.index, table, cmap=colours, vmin=low, vmax=limit, rasterized=True)
        axis.set(title=f"Interaction of x0 and x1: {column}", xlabel="x0", ylabel="x1")
        figure.colorbar(image, ax=axis)
    strengths = model.effects().iloc[::-1]
    axis = axes.flat[7]
    places = np.arange(len(strengths))
    away = np.stack([strengths["strength"] - strengths["lower"], strengths["upper"] - strengths["strength"]])
    axis.errorbar(strengths["strength"], places, xerr=away, fmt="o", color="#0072B2", ms=4, capsize=3)
    axis.set_yticks(places, [" ".join(term) for term in strengths["term"]])
    axis.set(title="Strength with 95 % interval", xlabel="units of y", xlim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "effects.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main()
