# %% [markdown]
# # Who earns more than 50,000 dollars
#
# A classification with text, categories and gaps: effects are read on the scale of the logit, probabilities are checked
# for calibration, and one person's probability is taken apart.
#
# The table is adult, of the US census of 1994. `vb.datasets.table` has scikit-learn fetch it once from OpenML, or reads
# it from the folder that the environment variable `VERTEBRA_DATA` names. Of its 48,842 rows a random 6000 are fitted
# and 6000 others kept for testing.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vertebra as vb

warnings.simplefilter("ignore", vb.OutsideRange)  # of 6000 rows some have larger gains than all that were fitted

x, y = vb.datasets.table("adult")
x = x.drop(columns=["fnlwgt", "education"])
rows = np.random.default_rng(0).permutation(len(x))
train, test = rows[:6000], rows[6000:12000]
x.iloc[train[:3]]

# %% [markdown]
# Two columns are left out: `fnlwgt` is the survey's weight, and `education` says in words what `education_num` says in
# numbers. The rest goes in as it is. Text becomes levels, gaps an effect of their own.

# %%
model = vb.AdditiveClassifier(random_state=0).fit(x.iloc[train], y.iloc[train])
print(model.diagnostics_)
print(model.evaluate(x.iloc[test], y.iloc[test]))

# %% [markdown]
# ## Effects on the logit
#
# The logit, log p/(1 − p), is a sum of the terms. One unit of it multiplies the odds by e ≈ 2.7. The strength of a term
# is the standard deviation of what it adds over the values of its inputs.

# %%
vb.plot.strengths(model.effects(), unit="logit")

# %%
fig, axes = plt.subplots(1, 2, figsize=(8.1, 3.6), layout="constrained")
for ax, name in zip(axes, ["age", "education_num"], strict=True):
    both = model.effect(name, simultaneous=True)
    vb.plot.effect(model.effect(name), ax, simultaneous=both, marginal=model.marginal(name), unit="logit")
axes[1].get_legend().remove()

# %%
vb.plot.effect(model.effect("occupation"), marginal=model.marginal("occupation"), unit="logit")

# %% [markdown]
# These are associations in one table, with the other columns held fixed; they are not what would happen if somebody
# changed occupation. Columns that go together share an effect between them, and how is partly the prior's choice:
# marital status and relationship both say whether somebody is married.

# %% [markdown]
# ## Are the probabilities honest?
#
# People kept for testing, in ten groups by the probability they were given: where 30 % is said, 30 % should be seen.
# The bars are 95 % intervals of what was seen, so about one in twenty may miss the diagonal.

# %%
vb.plot.calibration(model.evaluate(x.iloc[test], y.iloc[test]).curve())

# %% [markdown]
# ## One person
#
# Of the people kept for testing, the one whose probability is nearest to one half. The terms add up to the logit.

# %%
p = model.predict_proba(x.iloc[test])[:, 1]
person = x.iloc[test[np.argmin(np.abs(p - 0.5))]]
vb.plot.waterfall(model.explain(person), most=8, unit="logit")

# %% [markdown]
# The logit has an uncertainty too. The probability given is the average over it, and this is the interval behind it.

# %%
one = pd.DataFrame([person])
mean, sd = (float(part[0]) for part in model.predict_f(one))
low, high = (1 / (1 + np.exp(-(mean + z * sd))) for z in (-1.96, 1.96))
print(f"probability {model.predict_proba(one)[0, 1]:.2f}, 95 % interval from {low:.2f} to {high:.2f}")
