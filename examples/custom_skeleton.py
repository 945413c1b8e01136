# %% [markdown]
# # A skeleton of your own
#
# What is known of a system is drawn as a skeleton: who reads whom, and what adds up. The network built on it can be
# taken apart into main effects and interactions, and the skeleton says beforehand which of them there can be.
#
# The data are made up: the power that a house draws. Heating depends on how cold the wind makes it, and on the hour;
# lamps on the sun and the hour. A fifth column does nothing. Each part is a function of few inputs on (0, 1], so that
# `vb.datasets.SumOfParts` knows the exact decomposition.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

heating = vb.datasets.Part((0, 1, 2), lambda t, wind, hour: 2 * np.tanh(2 * (wind - 2 * t)) * (1.5 + np.sin(6 * hour)))
lamps = vb.datasets.Part((2, 3), lambda hour, sun: 3 * hour * np.exp(-3 * sun))
truth = vb.datasets.SumOfParts(5, (heating, lamps))

rng = np.random.default_rng(0)
x = 1.0 - rng.random((1000, 5))
y = truth(x) + 0.5 * rng.standard_normal(1000)

# %% [markdown]
# ## Drawn as text
#
# Every node reads nodes of the layer just below, and an output adds nodes of the top layer. `vb.Skeleton`, `vb.Node`
# and `vb.Output` say the same in Python, and `print(skeleton)` gives the text back.

# %%
skeleton = vb.Skeleton.from_text("""
inputs temperature wind hour sun humidity
layer chill = identity(temperature wind); clock = identity(hour); sky = identity(hour sun)
layer heating = identity(chill clock); lamps = identity(sky)
output power = heating + lamps
""")
layers = vb.inducing_points([2, 1], r=20)
vb.plot.skeleton(skeleton, layers=layers)

# %% [markdown]
# `clusters` are the inputs that each top node depends on. The wind and the sun are in none together: whatever is
# learned, they cannot interact. The humidity is a column that nobody reads.

# %%
for node, cluster in zip(skeleton.layers[-1], skeleton.clusters, strict=True):
    print(node.name, "reads", *(skeleton.inputs[i] for i in cluster))

# %% [markdown]
# ## Built and fitted
#
# Every node is replaced by blocks: here a Gaussian process by 20 inducing points, with two outputs in the first layer.
# The function blocks of `vb.mean_field` alone would add up what `heating` reads from `chill` and `clock`: an
# interaction needs a node whose blocks mix.

# %%
z = (x - 0.5) * np.sqrt(12.0)
network = vb.build(skeleton, layers, key=jr.key(0), x=z)
fitted = vb.fit(network, vb.Gaussian(), z, (y - y.mean()) / y.std(), key=jr.key(1), n_steps=2000)
vb.plot.training(fitted.history)

# %% [markdown]
# ## Taken apart
#
# `vb.decompose` gives every term as a function on a grid, with its posterior. Their strengths, in the units of y,
# beside the exact ones. Those are of inputs that are exactly uniform, the model's of the rows that there are: a per
# cent or two apart for that reason alone.

# %%
effects = vb.decompose(fitted.network, z, key=jr.key(2), points=16, n_draws=100)
exact = truth.strengths()
rows = []
for term, effect in effects.items():
    if term:
        low, high = effect.interval()
        name = " × ".join(skeleton.inputs[i] for i in term)
        rows.append((name, y.std() * effect.strength, y.std() * low, y.std() * high, exact.get(term, 0.0)))
pd.DataFrame(rows, columns=["term", "strength", "lower", "upper", "exact"])

# %% [markdown]
# An `Effect` has its points, mean and band; those of two inputs are grids.

# %%
fig, axes = plt.subplots(1, 3, figsize=(8.1, 3), layout="constrained")
for ax, i in zip(axes[:2], (0, 2), strict=True):
    effect = effects[i,]
    low, high = effect.band(simultaneous=True)
    at = 0.5 + effect.axes[0].points / np.sqrt(12.0)
    ax.fill_between(at, y.std() * low, y.std() * high, color=vb.plot.SKY, alpha=0.5, lw=0)
    ax.plot(at, y.std() * effect.mean, color=vb.plot.BLUE)
    ax.set(xlabel=skeleton.inputs[i], ylabel="effect")
pair = effects[0, 2]
at = [0.5 + axis.points / np.sqrt(12.0) for axis in pair.axes]
mesh = axes[2].pcolormesh(*at, y.std() * pair.mean.T, cmap="RdBu_r")
fig.colorbar(mesh, label="effect")
axes[2].set(xlabel="temperature", ylabel="hour")
