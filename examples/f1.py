# %% [markdown]
# # The paper's f1, from rows to answers
#
# A function is known; a model sees noisy rows of it, and has to say which inputs act, which interact, and how sure it
# is. Every answer is then held against the exact decomposition.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

n = 1000
data = vb.datasets.synthetic("f1", n=n, seed=0)

# %% [markdown]
# f1(x) = 10 sin(π x0 x1) + 20 (x2 − ½)² + 10 x3 + 5 x4 has ten inputs, uniform on (0, 1], and here normal noise of
# standard deviation 1. Five inputs act, five do nothing, one pair interacts. The model is told none of this.

# %%
model = vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)
print(model.diagnostics_)

# %% [markdown]
# ## What acts
#
# `effects` lists the terms that were found, strongest first. The strength of a term is the standard deviation of what
# it adds over the rows, each input by itself; `vb.datasets.f1.components` has the exact terms under that same measure.
# About one interval in twenty may miss.

# %%
rows = {i: np.sort(data.x[:, i]) for i in range(10)}
exact = vb.datasets.f1.components(rows, dict.fromkeys(range(10), np.full(n, 1 / n)))
strength = {tuple(f"x{i}" for i in term): np.sqrt(np.mean(values**2)) for term, values in exact.items()}

effects = model.effects()
effects["exact"] = [strength.get(term, 0.0) for term in effects["term"]]
effects[["term", "strength", "lower", "upper", "exact", "probability"]]

# %% [markdown]
# ## What interacts
#
# `interactions` keeps the terms of two inputs and more at a false discovery rate. Recall walks down the ranking to the
# first false interaction, and says which share of the true ones it met: 1 is all of them.

# %%
truths = [tuple(f"x{i}" for i in term) for term in vb.datasets.f1.interactions]
print("true: ", *truths)
print("found:", *model.interactions(fdr=0.05)["term"])
print("recall:", vb.metrics.top_rank_recall(effects["term"], truths))

# %% [markdown]
# ## The terms as functions
#
# Two bands: the inner one is for each point by itself, the outer one for the whole curve at once.

# %%
fig, axes = plt.subplots(2, 3, figsize=(8, 5), layout="constrained")
for i, ax in zip(range(5), axes.flat, strict=False):
    vb.plot.effect(model.effect(f"x{i}"), ax, simultaneous=model.effect(f"x{i}", simultaneous=True))
    ax.plot(rows[i], exact[i,], color="black", lw=1, ls="--", label="exact")
    ax.get_legend().remove()
axes[1, 2].legend(*ax.get_legend_handles_labels(), loc="center", frameon=False)
axes[1, 2].set_axis_off()

# %% [markdown]
# The pair, exact at the left. `vb.plot.effect` draws contours, dashed below 0, and hatches where the band holds 0.

# %%
pair = model.effect(("x0", "x1"))
most = pair["mean"].abs().max()
fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", width_ratios=[1, 1.25])
axes[0].pcolormesh(rows[0], rows[1], exact[0, 1].T, cmap="RdBu_r", vmin=-most, vmax=most, rasterized=True)
axes[0].set(xlabel="x0", ylabel="x1", title="exact")
vb.plot.effect(pair, axes[1])

# %% [markdown]
# ## Do the bands hold?
#
# Of each curve: does its outer band hold the exact one everywhere? Of f as a whole: how many of 5000 new rows have the
# true value in the model's 95 % interval? A curve is one case, the rows are many, and all are of one fit: on average
# over data sets both should come to 95 %.

# %%
held = {}
for i in range(5):
    band = model.effect(f"x{i}", simultaneous=True)
    truth = np.interp(band[f"x{i}"], rows[i], exact[i,])
    held[f"x{i}"] = vb.metrics.coverage(truth, band["lower"], band["upper"]) == 1.0
new = vb.datasets.synthetic("f1", n=5000, seed=1)
mean, sd = model.predict_f(new.x)
held["f, share of new rows"] = vb.metrics.coverage(new.f, mean - 1.96 * sd, mean + 1.96 * sd)
pd.Series(held, name="held")
