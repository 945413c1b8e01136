# %% [markdown]
# # A deep Gaussian process
#
# A Gaussian process by inducing points is one layer of a skeleton; two such layers are a deep Gaussian process. Both
# are built with the same lines, fitted alike, and compared on rows left out.
#
# The table is kin8nm: eight joint angles of a simulated robot arm, and how far its hand is from a target.
# `vb.datasets.table` has scikit-learn fetch it once from OpenML, or reads it from the folder that the environment
# variable `VERTEBRA_DATA` names. Of its 8192 rows 3000 are fitted and 2000 others kept for testing.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

x, y = vb.datasets.table("kin8nm")
rows = np.random.default_rng(0).permutation(len(x))
train, test = rows[:3000], rows[3000:5000]

# %% [markdown]
# `vb.fit` scales nothing: inputs and target are standardised by the rows that are fitted.

# %%
centre, spread = x.iloc[train].mean(), x.iloc[train].std()
y_centre, y_spread = y.iloc[train].mean(), y.iloc[train].std()
z, z_test = ((x.iloc[part] - centre).to_numpy() / spread.to_numpy() for part in (train, test))
target, target_test = ((y.iloc[part] - y_centre).to_numpy() / y_spread for part in (train, test))

# %% [markdown]
# ## One layer, and two
#
# A layer is an inducing-point block and a function block above it: 50 points, at which the function is held. The inner
# layer of the deep process has four outputs. `activation="identity"` puts nothing between the layers, as in the doubly
# stochastic deep GP; `x` tells `build` where the rows are, so that the points start among them.

# %%
networks = {}
for name, widths in (("GP", [1]), ("deep GP", [4, 1])):
    skeleton = vb.chain(n_inputs=8, depth=len(widths), activation="identity")
    layers = vb.inducing_points(widths, r=50)
    networks[name] = vb.build(skeleton, layers, key=jr.key(0), x=z)
vb.plot.skeleton(skeleton, layers=layers, names=list(x.columns))

# %% [markdown]
# ## Fitted
#
# Both by the ELBO, which is a bound on the log evidence: the higher it rises, the better the model with its prior
# explains the rows.

# %%
fitted = {
    name: vb.fit(network, vb.Gaussian(), z, target, key=jr.key(1), n_steps=2500) for name, network in networks.items()
}
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, each in fitted.items():
    ax.plot(each.history.step, each.history.elbo, label=name)
ax.set(xlabel="step", ylabel="ELBO per row")
ax.legend(frameon=False)

# %% [markdown]
# ## On rows left out
#
# `vb.sample` draws functions from the posterior, and the likelihood adds the noise: its quantiles are intervals for y,
# its `log_predictive` the log density of what was seen. In the units of the target, beside the standard deviation of
# the target itself:

# %%
scores, predicted = {}, {}
for name, each in fitted.items():
    f = vb.sample(each.network, z_test, key=jr.key(2), n_draws=50)
    predicted[name] = y_centre + y_spread * each.likelihood.mean(f)[:, 0]
    low, high = np.moveaxis(each.likelihood.quantiles(f, [0.025, 0.975]), 1, 0)
    scores[name] = {
        "rmse": vb.metrics.rmse(y.iloc[test], predicted[name]),
        "log density": float(each.likelihood.log_predictive(f, target_test[:, None]).mean()) - np.log(y_spread),
        "95 % coverage": vb.metrics.coverage(target_test[:, None], low, high),
    }
scores["mean of y"] = {"rmse": y.iloc[test].std()}
pd.DataFrame.from_dict(scores, orient="index")

# %%
fig, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True)
for ax, (name, mean) in zip(axes, predicted.items(), strict=True):
    ax.plot(y.iloc[test], mean, "o", ms=2, color=vb.plot.BLUE)
    ax.axline((0.7, 0.7), slope=1, color="black", lw=0.8, ls=":")
    ax.set(xlabel="y", ylabel="predicted", title=name)

# %% [markdown]
# The joints follow one another, so that what the hand does is a function of functions: that is what a second layer is
# for. It does not do everything: where y is smallest, the deep process predicts too much. One split and one key are
# shown; `vb.inducing_points([4, 4, 1])` on a chain of depth 3 is the next thing to try, and differences smaller than
# this one would need more splits.
