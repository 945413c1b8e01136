"""The paper's schemes beside each other, on the same clusters of Friedman's function.

python examples/schemes.py
"""

import time

import numpy as np

import vertebra as vb

SCHEMES = ("auto", "mc_dropout", "random_features", "deep_kernel_learning", "deep_random_features", "inducing_points")


def main():
    train, test = vb.datasets.synthetic("f1", 3000, seed=0), vb.datasets.synthetic("f1", 3000, seed=1)
    print(f"{'scheme':22s} {'RMSE to f':>10s} {'coverage of f':>14s} {'log density':>12s} {'seconds':>8s}")
    for scheme in SCHEMES:
        start = time.perf_counter()
        model = vb.AdditiveRegressor(scheme, random_state=0, n_steps=2000).fit(train.x, train.y)
        seconds = time.perf_counter() - start
        mean, sd = model.predict_f(test.x)
        covered = vb.metrics.coverage(test.f, mean - 1.96 * sd, mean + 1.96 * sd)
        density = model.log_prob(test.x, test.y).mean()
        error = vb.metrics.rmse(test.f, mean)
        print(f"{scheme:22s} {error:10.3f} {covered:14.2f} {density:12.3f} {seconds:8.1f}", flush=True)
    best = np.mean(-0.5 * np.log(2 * np.pi) - 0.5 * (test.y - test.f) ** 2)
    print(f"\nThe true f has log density {best:.3f}; 95 % intervals should cover 0.95.")


if __name__ == "__main__":
    main()
