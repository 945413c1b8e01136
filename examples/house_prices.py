# %% [markdown]
# # What makes a house dear
#
# A table of Californian districts becomes a model that says what acts on the price of a house, what interacts, and how
# sure it is. Two habits are shown on the way: to look at effects where there are data, and to check intervals where
# they may fail.
#
# The table is California housing, of the census of 1990: one row per district, the target its median house value in
# 100,000 dollars. `vb.datasets.table` has scikit-learn fetch it once over the network, or reads it from the folder that
# the environment variable `VERTEBRA_DATA` names. Of its 20,640 rows 1500 are fitted, so that this page is soon made,
# and 5000 others kept for testing.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

warnings.simplefilter("ignore", vb.OutsideRange)  # tails are heavy: of 5000 rows some are always further out

x, y = vb.datasets.table("california_housing")
order = np.random.default_rng(0).permutation(len(x))
x_train, y_train = x.iloc[order[:1500]], y.iloc[order[:1500]]
x_test, y_test = x.iloc[order[1500:6500]], y.iloc[order[1500:6500]]

# %% [markdown]
# `remainder=False` stays with terms of up to three inputs, each of which can be looked at.

# %%
model = vb.AdditiveRegressor(remainder=False, random_state=0).fit(x_train, y_train)
print(model.diagnostics_)
print(model.evaluate(x_test, y_test))

# %% [markdown]
# ## What acts
#
# The strength says how much a term moves the price, the probability whether it is real. These are two things: a weak
# term may be certain, and how strong a certain one is may be known badly.

# %%
vb.plot.strengths(model.effects(), most=12, unit="100,000 $")

# %% [markdown]
# ## Income
#
# The bars beneath show where the districts are. The inner band is for each point by itself, the outer one for the whole
# curve.

# %%
both = model.effect("MedInc", simultaneous=True)
vb.plot.effect(model.effect("MedInc"), simultaneous=both, marginal=model.marginal("MedInc"), unit="100,000 $")

# %% [markdown]
# ## The place
#
# Effects are those of inputs drawn each by itself. Many pairs of a Californian latitude and a Californian longitude lie
# in the sea or in another state: there the model guesses, and the strengths above count these places too. So look where
# there are districts. `eval_terms` has what each term adds to each row; the terms of latitude and longitude and of
# nothing else, added up, are what the place adds.

# %%
terms = model.eval_terms(x_test)
place = [term for term in terms if term != "intercept" and set(term) <= {"Latitude", "Longitude"}]
added = terms[place].sum(axis=1)
added -= added.mean()

fig, ax = plt.subplots(figsize=(6, 5.2), layout="constrained")
most = added.abs().quantile(0.98)
dots = ax.scatter(x_test["Longitude"], x_test["Latitude"], 6, added, cmap="RdBu_r", vmin=-most, vmax=most)
fig.colorbar(dots, label="added by the place (100,000 $), over the average district")
ax.set(xlabel="Longitude", ylabel="Latitude", aspect=1.25)

# %% [markdown]
# ## One district
#
# The same sum for one row, the first of the test rows; the lines are bands for each term by itself.

# %%
vb.plot.waterfall(model.explain(x_test.iloc[0]), most=8, unit="100,000 $")

# %% [markdown]
# ## Do the intervals hold?
#
# Over all rows they do about as often as they say, and by that the fit calls itself sound. They may still be too wide
# for one kind of district and too narrow for another: so look at fifths of the test rows, by what was predicted of
# them. `likelihood="heteroscedastic"` lets the noise depend on the inputs.

# %%
uneven = vb.AdditiveRegressor(likelihood="heteroscedastic", remainder=False, random_state=0).fit(x_train, y_train)
fifth = pd.qcut(model.predict(x_test), 5, labels=["cheapest", "cheap", "middle", "dear", "dearest"])
held = {}
for name, each in (("same noise everywhere", model), ("noise by the inputs", uneven)):
    low, high = each.predict_interval(x_test).T
    inside = ((low <= y_test) & (y_test <= high)).groupby(fifth, observed=True).mean()
    held[name] = {**inside, "all": ((low <= y_test) & (y_test <= high)).mean()}
pd.DataFrame(held)

# %% [markdown]
# With the same noise everywhere, cheap districts get intervals that are too wide and dear ones intervals that are too
# narrow; noise that depends on the inputs takes most of that away. Dear districts stay the ones to doubt: the census
# wrote every value above 500,000 dollars as 500,001, which no noise here knows.
