"""Vertebra on Friedman's function: six ways to put blocks on an additive skeleton, in about a minute.

    python examples/demo.py

prints how well each recovers f, and how often its 95 % intervals of f cover the truth, and draws demo-output/f1.png.
"""

import pathlib
import time

import jax.random as jr
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import vertebra as vb

DEEP, SHALLOW = vb.additive(10, 10, depth=3), vb.additive(10, 10, depth=2)
SCHEMES = {
    "mc_dropout": (DEEP, vb.mc_dropout([4, 16, 1])),
    "mean_field": (DEEP, vb.mean_field([4, 16, 1])),
    "random_features": (DEEP, vb.random_features([4, 16, 1], r=20)),
    "deep_random_features": (SHALLOW, vb.select_inputs(vb.deep_random_features([2, 1], r=50), penalty=0.1)),
    "deep_kernel_learning": (SHALLOW, vb.deep_kernel_learning([2, 1], r=20)),
    "inducing_points": (vb.additive(10, 5, depth=2, activation="identity"), vb.inducing_points([2, 1], r=20)),
}
OUTPUT = pathlib.Path("demo-output")


def main():
    train, test = vb.datasets.synthetic("f1", 2000, seed=0), vb.datasets.synthetic("f1", 2000, seed=1)
    centre, spread = train.y.mean(), train.y.std()
    standard = lambda x: (x - 0.5) * np.sqrt(12.0)  # noqa: E731
    print(f"f1(x) = {vb.datasets.f1.__doc__.split(':')[0]}, 2000 rows of 10 inputs, noise of sd 1.")
    print("Each network is a sum of 5 or 10 sub-networks that read all inputs.\n")
    print(f"{'scheme':22s} {'RMSE to f':>10s} {'noise':>7s} {'log density':>12s} {'coverage':>9s} {'seconds':>8s}")

    # A walk along x1, the other inputs at their centre.
    walk = np.full((100, 10), 0.5)
    walk[:, 0] = np.linspace(0.005, 1.0, 100)
    figure, axes = plt.subplots(1, 6, figsize=(17, 3.2), sharey=True, layout="constrained")
    for (name, (skeleton, layers)), axis in zip(SCHEMES.items(), axes, strict=True):
        start = time.perf_counter()
        network = vb.build(skeleton, layers, key=jr.key(0), x=standard(train.x))
        y = (train.y - centre) / spread
        fitted = vb.fit(network, vb.Gaussian(), standard(train.x), y, key=jr.key(1))
        seconds = time.perf_counter() - start

        f = np.asarray(vb.sample(fitted.network, standard(test.x), key=jr.key(2), n_draws=200))
        target = (test.y[:, None] - centre) / spread
        density = np.mean(fitted.likelihood.log_predictive(f, target.astype(np.float32))) - np.log(spread)
        f = f[..., 0] * spread + centre
        lower, upper = np.quantile(f, [0.025, 0.975], axis=0)
        print(
            f"{name:22s} {vb.metrics.rmse(test.f, f.mean(axis=0)):10.3f} "
            f"{float(fitted.likelihood.scale[0]) * spread:7.3f} {density:12.3f} "
            f"{vb.metrics.coverage(test.f, lower, upper):9.2f} {seconds:8.1f}",
            flush=True,
        )
        draws = np.asarray(vb.sample(fitted.network, standard(walk), key=jr.key(3), n_draws=200))[..., 0]
        lower, middle, upper = np.quantile(draws * spread + centre, [0.025, 0.5, 0.975], axis=0)
        axis.fill_between(walk[:, 0], lower, upper, color="#56B4E9", alpha=0.4, lw=0, label="95 % of f")
        axis.plot(walk[:, 0], middle, color="#0072B2", label="median of f")
        axis.plot(walk[:, 0], vb.datasets.f1(walk), color="black", ls="--", lw=1, label="truth")
        axis.set(title=name.replace("_", " "), xlabel="x1")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("f, other inputs at ½")
    axes[0].legend(frameon=False, fontsize=8)
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "f1.png", dpi=150)
    print(
        "\nThe truth has noise 1 and log density −1.419. Where layers are point masses (the two deep_…), the bands of f"
    )
    print("leave out that the features were learned too, and are too narrow: compare the coverage.")
    print(f"Picture: {OUTPUT / 'f1.png'}")


if __name__ == "__main__":
    main()
