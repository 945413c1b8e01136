# %% [markdown]
# # Several targets that share what they read
#
# Three targets depend on the same two hidden quantities, and one of them was measured on few rows. A multi-task
# skeleton learns the shared layer from all rows, so that the scarce target borrows from the others.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

TASKS = ["strength", "weight", "cost"]


def truth(x):
    """Each target is a mixture of two functions of the inputs."""
    a, b = np.sin(1.5 * x[:, 0] + x[:, 1]), np.tanh(x[:, 2] - x[:, 3])
    return np.stack([a + b, a - 0.5 * b, 0.5 * a + b], axis=1)


rng = np.random.default_rng(0)
x, x_new = rng.standard_normal((600, 6)), rng.standard_normal((2000, 6))
y = truth(x) + 0.3 * rng.standard_normal((600, 3))
f_new = truth(x_new)

# %% [markdown]
# The data are made up, so that the truth is known. `weight` says what was measured: one column per target, 0 where it
# was not. The cost is known for the first 40 rows only.

# %%
weight = np.ones((600, 3))
weight[40:, 2] = 0.0

# %% [markdown]
# ## The skeleton
#
# One node that all targets read, then one node for each. `mean_field` puts sixteen units on the shared node and a
# Gaussian posterior on every weight.

# %%
skeleton = vb.multitask(n_inputs=6, n_tasks=3)
layers = vb.mean_field([16, 1])
print(skeleton)
vb.plot.skeleton(skeleton, layers=layers)

# %% [markdown]
# ## Together and alone
#
# The same layers on a chain, fitted to the 40 rows of the cost, are what one would have without the other targets.

# %%
together = vb.build(skeleton, layers, key=jr.key(0))
together = vb.fit(together, vb.Gaussian(), x, y, weight=weight, key=jr.key(1), n_steps=3000)
alone = vb.build(vb.chain(n_inputs=6, depth=2), layers, key=jr.key(0))
alone = vb.fit(alone, vb.Gaussian(), x[:40], y[:40, 2], key=jr.key(1), n_steps=3000)

# %% [markdown]
# On new rows, against the truth without noise: the error, the error over the spread of the truth, and how often the 95
# % interval of f holds it.

# %%
mean, variance = (np.asarray(part) for part in vb.moments(together.network, x_new, key=jr.key(2)))
mean_alone, variance_alone = (np.asarray(part)[:, 0] for part in vb.moments(alone.network, x_new, key=jr.key(2)))


def scores(f, mean, variance):
    error, sd = vb.metrics.rmse(f, mean), np.sqrt(variance)
    return error, error / f.std(), vb.metrics.coverage(f, mean - 1.96 * sd, mean + 1.96 * sd)


table = {task: scores(f_new[:, k], mean[:, k], variance[:, k]) for k, task in enumerate(TASKS)}
table["cost, alone"] = scores(f_new[:, 2], mean_alone, variance_alone)
pd.DataFrame.from_dict(table, orient="index", columns=["rmse", "relative", "coverage"])

# %%
fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharex=True, sharey=True)
for ax, said, sd, title in (
    (axes[0], mean_alone, np.sqrt(variance_alone), "cost, alone"),
    (axes[1], mean[:, 2], np.sqrt(variance[:, 2]), "cost, together"),
):
    ax.errorbar(f_new[:150, 2], said[:150], 1.96 * sd[:150], fmt="o", ms=3, lw=0.6, color=vb.plot.BLUE)
    ax.axline((0, 0), slope=1, color="black", lw=0.8, ls=":")
    ax.set(title=title, xlabel="true f", ylabel="predicted, 95 %")

# %% [markdown]
# The gain is there because the targets do share their hidden quantities. Where they do not, a shared layer has to serve
# several masters, and separate networks may do as well or better: compare both on rows left out.
