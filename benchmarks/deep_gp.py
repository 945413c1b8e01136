"""Steps per second of a two-layer inducing-point deep GP: Vertebra against GPyTorch's DeepGP, both sides in one run.

The same model on both sides: 8 inputs, 4 hidden functions, 1 output; an RBF-ARD kernel and 128 points a layer, a full
variational covariance per function, a linear skip in the first layer, Gaussian noise; batch 256, 1 draw, Adam, float32.
Rows are shuffled on both sides. Each round times both, one after the other; the ratio is the median over rounds.
"""

import time

import gpytorch
import jax
import jax.random as jr
import numpy as np
import torch
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from record import record

import vertebra as vb

N, P, HIDDEN, POINTS, BATCH = 5000, 8, 4, 128, 256
OURS, THEIRS, ROUNDS = 1000, 60, 5


class Hidden(DeepGPLayer):
    def __init__(self, inputs, outputs, points, mean):
        batch = torch.Size([outputs]) if outputs else torch.Size()
        posterior = CholeskyVariationalDistribution(len(points), batch_shape=batch)
        super().__init__(VariationalStrategy(self, points, posterior), inputs, outputs)
        self.mean_module = mean
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=inputs))

    def forward(self, x):
        mean = self.mean_module(x)
        covariance = self.covar_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


class Skip(gpytorch.means.Mean):
    """m_j(x) = x_j: the identity skip of the first layer, one output per batch entry."""

    def forward(self, x):
        # GPyTorch hands each output its own copy of x: (…, outputs, rows, inputs).
        return torch.diagonal(x[..., :HIDDEN], dim1=-3, dim2=-1).transpose(-1, -2)


class Deep(DeepGP):
    def __init__(self, x):
        super().__init__()
        self.first = Hidden(P, HIDDEN, x[:POINTS].clone(), Skip())
        self.last = Hidden(HIDDEN, None, x[:POINTS, :HIDDEN].clone(), gpytorch.means.ConstantMean())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return self.last(self.first(x))


def theirs(x, y):
    model = Deep(x)
    bound = DeepApproximateMLL(VariationalELBO(model.likelihood, model, N))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)

    def run(steps):
        order = torch.randperm(N)
        for step in range(steps):
            rows = order[(step * BATCH) % (N - BATCH) :][:BATCH]
            optimiser.zero_grad()
            loss = -bound(model(x[rows]), y[rows])
            loss.backward()
            optimiser.step()

    return run


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, P)).astype(np.float32)
    y = (np.sin(x[:, 0] * x[:, 1]) + x[:, 2]).astype(np.float32)
    skeleton = vb.chain(P, 2, activation="identity")
    network = vb.build(skeleton, vb.inducing_points([HIDDEN, 1], r=POINTS), key=jr.key(0), x=x)

    def ours(steps):
        fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(0), n_steps=steps, batch_size=BATCH, n_rounds=2)
        return fitted.score

    ours(10)
    with gpytorch.settings.num_likelihood_samples(1):
        step = theirs(torch.tensor(x), torch.tensor(y))
        step(5)
        rates = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            ours(OURS)
            middle = time.perf_counter()
            step(THEIRS)
            end = time.perf_counter()
            rates.append((OURS / (middle - start), THEIRS / (end - middle)))
    rates = np.array(rates)
    record(
        "deep_gp",
        [
            {
                "vertebra_steps_per_s": np.median(rates[:, 0]),
                "gpytorch_steps_per_s": np.median(rates[:, 1]),
                "ratio": np.median(rates[:, 0] / rates[:, 1]),
                "ratio_min": np.min(rates[:, 0] / rates[:, 1]),
                "ratio_max": np.max(rates[:, 0] / rates[:, 1]),
                "torch_threads": torch.get_num_threads(),
                "device": jax.devices()[0].device_kind,
            }
        ],
    )


if __name__ == "__main__":
    main()
