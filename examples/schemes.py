# %% [markdown]
# # The paper's schemes beside each other
#
# The same clusters of the same rows, with different blocks on them: which scheme predicts well, and which is honest
# about its doubt? `scheme` is the only thing that changes.

# %%
import numpy as np
import pandas as pd

import vertebra as vb

SCHEMES = ["auto", "mc_dropout", "random_features", "deep_kernel_learning"]
train, test = vb.datasets.synthetic("f1", 1000, seed=0), vb.datasets.synthetic("f1", 3000, seed=1)

# %% [markdown]
# f1 has five inputs that act, one pair that interacts, and five inputs that do nothing. The first fit, "auto", finds
# the clusters by tests and is in closed form; the others are trained by the ELBO on the clusters it found.
#
# All are held against the true function on new rows: the error of the mean, the share of rows whose 95 % interval of f
# holds the truth, and the log density of noisy targets.

# %%
rows, clusters = [], None
for scheme in SCHEMES:
    model = vb.AdditiveRegressor(scheme, clusters=clusters, n_steps=1000, random_state=0).fit(train.x, train.y)
    clusters = model.clusters_
    mean, sd = model.predict_f(test.x)
    covered = vb.metrics.coverage(test.f, mean - 1.96 * sd, mean + 1.96 * sd)
    rows.append((scheme, vb.metrics.rmse(test.f, mean), covered, model.log_prob(test.x, test.y).mean()))
best = np.mean(-0.5 * np.log(2 * np.pi) - 0.5 * (test.y - test.f) ** 2)
rows.append(("the true f", 0.0, 1.0, best))
pd.DataFrame(rows, columns=["scheme", "RMSE to f", "coverage of f", "log density"])

# %% [markdown]
# The closed form is the most accurate, and its intervals hold. Deep kernel learning is too sure: it knows the doubt of
# its last layer alone, and takes the layers below for known. All this is with few steps on one set of rows: `n_steps`
# is 4000 unless asked, and `experiments/RESULTS.md` has the schemes on more rows.
