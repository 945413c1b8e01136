# %% [markdown]
# # Several classes, each with its interactions
#
# With three classes and more, every class has a logit of its own, and effects and interactions are asked for by class.
# Because only differences between logits count, an interaction of one class shows in all of them, and this page says
# how to read that.
#
# The data are made up, so that the truth is known: pumps that run fine, overheat or leak. Load and temperature together
# overheat a pump; age and pressure together make it leak; the fifth column does nothing.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

rng = np.random.default_rng(0)
pumps = pd.DataFrame(rng.random((3000, 5)), columns=["load", "temperature", "age", "pressure", "humidity"])
logits = pd.DataFrame(
    {
        "fine": np.full(len(pumps), 1.0),
        "hot": 3 * pumps["load"] - 1.5 + 16 * (pumps["load"] - 0.5) * (pumps["temperature"] - 0.5),
        "leaks": 3 * pumps["age"] - 1.5 + 16 * (pumps["age"] - 0.5) * (pumps["pressure"] - 0.5),
    }
)
# noise of Gumbel's law added to logits: the largest is a draw from the softmax of them
state = (logits + rng.gumbel(size=logits.shape)).idxmax(axis=1)
state.value_counts()

# %%
model = vb.AdditiveClassifier(random_state=0).fit(pumps, state)
print(model.diagnostics_)
print(model.evaluation_)

# %% [markdown]
# ## Interactions by class
#
# `output` is the place of a class in `model.classes_`.

# %%
parts = []
for k, name in enumerate(model.classes_):
    found = model.interactions(fdr=0.05, output=k)
    parts.append(found.assign(state=name)[["state", "term", "strength", "lower", "upper", "probability"]])
pd.concat(parts, ignore_index=True)

# %% [markdown]
# ## How to read it
#
# Both true pairs are found. Each is strongest in the class that it belongs to, and shows in the others too, with the
# opposite sign: probabilities depend on differences of logits only, and the prior shares a difference out among all
# classes. What makes a pump hot makes it less likely to be fine.

# %%
effects = {name: model.effect(("load", "temperature"), output=k) for k, name in enumerate(model.classes_)}
most = max(effect["mean"].abs().max() for effect in effects.values())
fig, axes = plt.subplots(1, 3, figsize=(8.1, 2.9), layout="constrained", sharey=True)
for ax, (name, effect) in zip(axes, effects.items(), strict=True):
    grid = effect.pivot(index="temperature", columns="load", values="mean")
    mesh = ax.pcolormesh(grid.columns, grid.index, grid, cmap="RdBu_r", vmin=-most, vmax=most)
    ax.set(title=name, xlabel="load")
axes[0].set_ylabel("temperature")
fig.colorbar(mesh, ax=axes, label="mean effect (logit)")

# %% [markdown]
# So compare classes by a difference: the effect on the log odds of hot against fine does not depend on that choice. Its
# exact counterpart is known here: the pair belongs to hot alone.

# %%
hot, fine = effects["hot"], effects["fine"]
exact = 16 * (hot["load"] - pumps["load"].mean()) * (hot["temperature"] - pumps["temperature"].mean())

fig, ax = plt.subplots(figsize=(4.4, 4), layout="constrained")
ax.plot(exact, hot["mean"] - fine["mean"], "o", ms=3, color=vb.plot.BLUE)
ax.axline((0, 0), slope=1, color="black", lw=0.8, ls=":")
ax.set(xlabel="exact effect on log odds, hot against fine", ylabel="found, at each point of the grid")

# %% [markdown]
# ## Probabilities
#
# The terms of all classes together give the probabilities. Over the load, where it is warm and the rest in the middle:

# %%
line = pd.DataFrame({"load": np.linspace(0, 1, 50), "temperature": 0.9, "age": 0.5, "pressure": 0.5, "humidity": 0.5})
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, p, style in zip(model.classes_, model.predict_proba(line).T, ["-", "--", ":"], strict=True):
    ax.plot(line["load"], p, style, label=name)
ax.set(xlabel="load, at temperature 0.9", ylabel="probability", ylim=(0, 1))
ax.legend(frameon=False)
