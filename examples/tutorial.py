# %% [markdown]
# # Tutorial
#
# From a table to a report that can be filed, on 442 patients with diabetes: ten measurements each, and how far the
# disease had gone a year later. The table comes with scikit-learn, so that everything here runs as it stands. What is
# asked: which measurements go with the progression, whether any act together, and how sure we can be with so few rows.
#
# ## Load, and look
#
# Columns are used as they are, in their own units: nothing need be scaled, and gaps, text or dates would be no trouble.
# Only `sex` is coded 1 and 2 in this table. It is a category, so we say so.

# %%
import pathlib
import tempfile

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import vertebra as vb

table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progress"})
table["sex"] = table["sex"].map({1.0: "one", 2.0: "two"})
x, y = table.drop(columns="progress"), table["progress"]
table.describe().T[["mean", "std", "min", "max"]]

# %% [markdown]
# A fifth of the rows is set aside, and not looked at until the end.

# %%
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=0)

# %% [markdown]
# ## Fit
#
# The defaults are meant for this. `verbose=True` would show what is being done; `random_state` makes the run
# repeatable. The first thing to read is what the fit says of itself.

# %%
model = vb.AdditiveRegressor(random_state=0).fit(x_train, y_train)
print(model.diagnostics_)

# %% [markdown]
# A line marked with `!` would ask to be looked at before anything is believed. None is marked here, which clears
# nobody: blood values go together, the warning begins where two of them are nearly one, and what is said of one may
# belong to the other.
#
# ## Is it any good?
#
# Before effects, accuracy: a model that predicts nothing has effects that mean nothing. A fifth of the rows is left out
# in turn, terms are sought without it, and predict it; a linear model and the mean stand beside it.

# %%
print(model.evaluation_)

# %% [markdown]
# Nearly half of the variance stays unexplained, whichever model is used: these measurements do not settle the matter
# for any one patient. A linear model does nearly as well, which is a finding: whatever curves there are, they are
# gentle. And the intervals hold about as often as they say.
#
# ## What acts?

# %%
model.effects().iloc[:, :8].round(3)

# %% [markdown]
# `strength` is how far a term typically moves the progression, in its units; `lower` and `upper` are a 95 % interval of
# it; `sobol` is the share of what the model explains; `probability` that the term is real. Terms of a small probability
# are in the model because inputs that go together share the say, which predicts better with few rows. They are no
# findings. Draw it:

# %%
vb.plot.strengths(model.effects(), unit="progress")

# %% [markdown]
# ## Which of them, where they go together?
#
# Blood values go together: `s1` and `s2`, cholesterol and its greater part, nearly copy each other. Effects are
# averages over the patients as they are, and what a term has of what the model explains is its `share`, Cov(part,
# f)/Var f: shares sum to 1. `share_own` is what it would have by itself, `share_through` what it has through others
# that it goes together with; below 0 it works against them.

# %%
model.effects()[["term", "share", "share_lower", "share_upper", "share_own", "share_through"]].head(6).round(2)

# %% [markdown]
# The two strongest owe a good part of their shares to each other and the rest; `sex` acts, and is hidden by what it
# goes with. `totals` adds up all terms with an input, interactions too.

# %%
model.totals().head(3).round(2)

# %% [markdown]
# `substitutes` takes the inputs of the model and all that nearly copy them, in the model or not: how probable it is
# that one of the two acts (`together`), and which story is likelier: one alone, the other alone, both each by itself,
# or both together.

# %%
model.substitutes().round(2)

# %% [markdown]
# That `s1` or `s2` acts at all is not likely, so nothing is said of it. Where one of two surely does, and data hardly
# say which, a warning names both: then say "one of these two".
#
# ## What may be reported?
#
# Measured against error control: which interactions may be reported, if one false one in twenty is allowed?

# %%
model.interactions(fdr=0.05)["term"].tolist()

# %% [markdown]
# An empty list is an answer: with this many patients no interaction can be told from chance. It does not say that there
# is none.
#
# ## One effect as a function
#
# The inner band holds at each point with 95 %, the outer one for the whole curve at once. The bars at the bottom show
# where the patients are: towards the ends there are few, and the bands say so.

# %%
strongest = model.effects()["term"][0][0]
vb.plot.effect(
    model.effect(strongest),
    simultaneous=model.effect(strongest, simultaneous=True),
    marginal=model.marginal(strongest),
    unit="progress",
)

# %% [markdown]
# ## One patient
#
# A prediction taken apart: from the average patient to this one, term by term. The parts sum to the prediction. They
# say how the model comes to the number, not what would happen if the patient changed.

# %%
vb.plot.waterfall(model.explain(x_test.iloc[0]), unit="progress")

# %%
mean, sd = model.predict(x_test.head(3), return_std=True)
low, high = model.predict_interval(x_test.head(3), level=0.8).T
for i in range(3):
    print(
        f"predicted {mean[i]:.0f} ± {sd[i]:.0f}, 80 % interval {low[i]:.0f} to {high[i]:.0f}; was {y_test.iloc[i]:.0f}"
    )

# %% [markdown]
# ## The rows set aside
#
# Now, once, the rows that nothing has seen.

# %%
final = model.evaluate(x_test, y_test)
print(final)

# %% [markdown]
# R² is lower than above, for us and for the linear model alike: chance, with so few rows.

# %%
fig, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
vb.plot.calibration(final.curve(), ax)

# %% [markdown]
# ## Keep it, and tell others
#
# One file holds the model; loading it runs no code. One page holds the answer, the figures and a panel to try inputs
# in, and opens without a network. Fit all rows for what is kept: the accuracy to quote is the one above.

# %%
folder = pathlib.Path(tempfile.mkdtemp())  # or wherever you keep such things
model = vb.AdditiveRegressor(random_state=0).fit(x, y)
model.save(folder / "diabetes.vertebra")
model.report(folder / "diabetes.html")
print(vb.load(folder / "diabetes.vertebra").clusters_)

# %% [markdown]
# Terms of small probability come and go with the rows, which is why they are no findings.
#
# ## What may be said
#
# - That the terms with a probability near 1 go with the progression, by about their strengths.
# - Not that changing them would change the progression: nobody was treated at random here.
# - Not that the others do nothing: with more patients more would be seen.
# - Where two measurements rise and fall together, rather "one of these two" than either.
#
# [Reading effects](../reading-effects.md) says more on each of these, [Limits](../limits.md) when not to trust them,
# [How to choose](../how-to-choose.md) what to change for other tables.
