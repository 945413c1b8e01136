"""A quick flexible model beside a fit: trees, boosted, on the same rows left out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from vertebra.models.rows import Rows

# Fewer rows say little about trees; of more so many are enough to see by how much they are better.
FEWEST_ROWS, MOST_ROWS = 200, 5000
# Of the folds so many are looked at: the error of the difference falls by a quarter with all five, the cost is 3/5.
N_LOOKED_AT = 3
# 60 rounds at rate 0.15 with 15 leaves: on f1 of 300 to 5,000 rows within 2 % of the RMSE of 100 rounds at 0.1 with 31
# leaves, in 0.2 s. One thread: with as many as cores, and others at work, a fit of 0.2 s took 78.
TREES = dict(max_iter=60, learning_rate=0.15, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False)
# Columns, targets and classes, each with trees of its own, that are still quick. Round numbers.
MOST_COLUMNS, MOST_OUTPUTS = 200, 5
# Categories of so many levels are split level by level, as scikit-learn allows; codes of others are numbers.
MOST_LEVELS = 255


class Flexible(NamedTuple):
    """Rows that were left out of a quick flexible model, and what it says of them: means, or probabilities."""

    rows: Int[np.ndarray, " m"]
    said: Float[np.ndarray, "m k"]


def flexible(
    rows: Rows, folds: Int[np.ndarray, " n"], n_levels: Sequence[int], *, classes: int = 0, seed: int = 0
) -> Flexible | None:
    """What boosted trees say of some folds, from the others; nothing where that would not be quick, or rows are few."""
    n, p = rows.matrix.shape
    if n < FEWEST_ROWS or p > MOST_COLUMNS or max(classes, rows.y.shape[1]) > MOST_OUTPUTS:
        return None
    some = np.arange(n) if n <= MOST_ROWS else np.sort(np.random.default_rng(seed).choice(n, MOST_ROWS, replace=False))
    rows, folds = rows.at(some), folds[some]
    is_category = np.array([0 < levels <= MOST_LEVELS for levels in n_levels])
    places, said = [], []
    with threadpool_limits(1, user_api="openmp"):
        for fold in range(N_LOOKED_AT):
            out = folds == fold
            if not out.any() or np.isnan(rows.matrix[~out]).all() or (classes and len(np.unique(rows.y[~out])) < 2):
                continue
            places.append(some[out])
            said.append(_said(rows, out, is_category, classes=classes))
    return Flexible(np.concatenate(places), np.concatenate(said)) if places else None


def _said(
    rows: Rows, out: Bool[np.ndarray, " n"], is_category: Bool[np.ndarray, " p"], *, classes: int
) -> Float[np.ndarray, "m k"]:
    """Means of some rows by trees of the others, or probabilities of all classes."""
    kept = rows.at(~out)
    # weights that are all alike say nothing, and quantiles with weights take most of the time
    weight = None if np.all(kept.weight == kept.weight[0]) else kept.weight
    # scikit-learn has no bins for a column that is missing in all rows
    is_seen = ~np.isnan(kept.matrix).all(axis=0)
    seen, new = kept.matrix[:, is_seen], rows.matrix[out][:, is_seen]
    is_category = is_category[is_seen]
    options: Any = dict(TREES, categorical_features=is_category if is_category.any() else None, random_state=0)
    if classes:
        model = HistGradientBoostingClassifier(**options).fit(seen, kept.y[:, 0].astype(int), weight)
        said = np.full((len(new), classes), 1e-6)
        said[:, model.classes_] = model.predict_proba(new)
        return said
    fitted = (HistGradientBoostingRegressor(**options).fit(seen, y, weight) for y in kept.y.T)
    return np.stack([model.predict(new) for model in fitted], axis=1)
