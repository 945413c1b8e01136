"""Steps per second of the additive network: Vertebra against the same network in eager PyTorch, both sides in one run.

10 sub-networks, 10 inputs, tanh units 4 and 16, one output each, added; biases; 5000 rows, batch 100, Adam, float32.
Three posteriors: point masses, MC dropout (a coin per row and unit), mean-field Gaussian (one draw per row and unit by
the local reparameterisation). PyTorch runs the sub-networks as one batched product, with plain or fused Adam
and one or two threads, whichever is faster. The score of `fit` after each round is part of our time.
"""

import time

import jax.random as jr
import numpy as np
import torch
from record import record
from torch.nn.functional import dropout

import vertebra as vb

N, P, S, WIDTHS, BATCH, RATE = 5000, 10, 10, (4, 16, 1), 100, 0.05
OURS, THEIRS, ROUNDS = 10_000, 600, 5


class Additive(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        sizes = list(zip((P, *WIDTHS), WIDTHS, strict=False))
        self.weight = torch.nn.ParameterList(torch.randn(S, r, d) / r**0.5 for r, d in sizes)
        self.bias = torch.nn.ParameterList(torch.zeros(S, 1, d) for _, d in sizes)
        self.log_sd = torch.nn.ParameterList(torch.full((S, r, d), -2.3) for r, d in sizes if kind == "mean_field")
        self.log_noise = torch.nn.Parameter(torch.tensor(-0.7))

    def forward(self, x):
        h, variance = x.expand(S, *x.shape), None
        for layer, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            if layer:
                h = torch.tanh(h)
            if self.kind == "dropout":
                h = dropout(h, RATE)
            mean = torch.baddbmm(bias, h, weight)
            if self.kind == "mean_field":
                variance = torch.bmm(h**2, torch.exp(2 * self.log_sd[layer]))
                if layer < len(WIDTHS) - 1:
                    mean = mean + torch.sqrt(variance) * torch.randn_like(mean)
            h = mean
        return h.sum(0)[:, 0], 0.0 if variance is None else variance.sum(0)[:, 0]

    def loss(self, x, y):
        f, variance = self(x)
        precision = torch.exp(-2 * self.log_noise)
        fit = (0.5 * precision * ((y - f) ** 2 + variance)).mean() + self.log_noise
        if self.kind == "mean_field":
            kl = sum(
                0.5 * (w.shape[1] * (torch.exp(2 * s) + w**2) - 2 * s).sum()
                for w, s in zip(self.weight, self.log_sd, strict=True)
            )
        else:
            kl = sum(0.5 * w.shape[1] * (w**2).sum() for w in self.weight)
        return fit + kl / N


def theirs(kind, x, y, fused):
    network = Additive(kind)
    optimiser = torch.optim.Adam(network.parameters(), 1e-2, fused=fused)

    def run(steps):
        order = torch.randperm(N)
        for step in range(steps):
            if step % (N // BATCH) == 0:
                order = torch.randperm(N)
            start = (step % (N // BATCH)) * BATCH
            rows = order[start : start + BATCH]
            optimiser.zero_grad(set_to_none=True)
            network.loss(x[rows], y[rows]).backward()
            optimiser.step()

    return run


def seconds(run, steps):
    start = time.perf_counter()
    run(steps)
    return time.perf_counter() - start


def main():
    data = vb.datasets.synthetic("f1", N)
    x, y = ((a - a.mean(axis=0)) / a.std(axis=0) for a in (data.x, data.y))
    layers = {
        "point_mass": [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Normal(fan_in=True), bias=True) for d in WIDTHS],
        "dropout": vb.mc_dropout(WIDTHS, rate=RATE),
        "mean_field": vb.mean_field(WIDTHS),
    }
    rows = []
    for kind, scheme in layers.items():
        network = vb.build(vb.additive(P, S, len(WIDTHS)), scheme, key=jr.key(0))

        def ours(steps, network=network):
            vb.fit(network, vb.Gaussian(), x, y, key=jr.key(0), n_steps=steps, batch_size=BATCH)

        ours(100)
        xt, yt = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
        candidates = []
        for threads in (1, 2):
            for fused in (False, True):
                torch.set_num_threads(threads)
                run = theirs(kind, xt, yt, fused)
                run(50)
                candidates.append((seconds(run, 300), threads, run))
        _, threads, run = min(candidates, key=lambda c: c[0])
        torch.set_num_threads(threads)
        rates = np.array([(OURS / seconds(ours, OURS), THEIRS / seconds(run, THEIRS)) for _ in range(ROUNDS)])
        ratio = rates[:, 0] / rates[:, 1]
        rows.append(
            {
                "posterior": kind,
                "vertebra_steps_per_s": np.median(rates[:, 0]),
                "pytorch_steps_per_s": np.median(rates[:, 1]),
                "ratio": np.median(ratio),
                "ratio_min": ratio.min(),
                "ratio_max": ratio.max(),
            }
        )
    record("additive", rows)


if __name__ == "__main__":
    main()
