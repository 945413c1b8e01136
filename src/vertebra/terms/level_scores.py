"""The test of a category of many levels, by the levels themselves: do its rows go together more than chance has them?

Such a category enters a model as one number, the mean of the target in each level, which has y in it: a test of that
number finds y in y, cross-fitted or not, as every y_i y_j of a level enters twice. So the test is that of a random
effect, a sum over the pairs of different rows of each level,

    U = Σ_l g_l Σ_{i≠j ∈ l} s_i s_j,   s_i = w_i (y_i − f(x_i)),

f the rest of the model, without any term that reads the category. If it does nothing, s_i and s_j are independent given
the inputs, and U has the variance 2 Σ_l g_l² Σ_{i≠j ∈ l} s_i² s_j², whatever the noise is: uneven, or heavy. What f has
learned of the rows pulls their residuals together or apart, which shifts the mean of U as V⁻¹ says. Rows of a group may
depend on each other: pairs are then of different groups.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine.later import later
from vertebra.terms.chi_squares import TINY, centred_tail
from vertebra.terms.model import Model
from vertebra.terms.sizes import draws_of, evidences_of, log_bayes_factors, size_of
from vertebra.terms.structure import Score, Size
from vertebra.terms.sums import Held, RowSums

sparse = later("scipy.sparse")

# A level of n rows has the weight 1/(n + this): its pairs say less each where its mean is known already. The score is
# most powerful for effects of a tenth of the noise's variance. A round number.
USUAL_ROWS = 10.0
# Levels' variances are drawn to the common one as if by so many rows. A round number.
ROWS_OF_PRIOR = 4.0
# A level's pairs are those of one row, and rounding, if they vary by less beside its rows.
ROUNDING = 1e-9


class _Rest(NamedTuple):
    """What a model says of its rows without the terms that read one input."""

    score: Float[np.ndarray, " n"]  # s
    own: Float[np.ndarray, " n"]  # what f takes of each row's precision
    taken: Float[np.ndarray, " levels"]  # and of that of the sum of each level's rows


class _Tail(NamedTuple):
    """U under the hypothesis that the category does nothing: Σ a (χ²_d − d)."""

    a: Float[np.ndarray, " k"]
    d: Float[np.ndarray, " k"]


def has_levels(rows: RowSums, i: int) -> bool:
    """Whether an input is a category that is read as a number."""
    return isinstance(rows.source, Held) and rows.source.values[i].level is not None


def level_score(model: Model, i: int, *, has_size: bool = False) -> Score:
    """The test of a category of many levels against a model, without the terms that read it."""
    held = model.rows.source
    if not isinstance(held, Held) or (levels := held.values[i].level) is None:
        raise TypeError("rows must be in memory, with the levels of the category.")
    # a row that counts for k is k rows
    level, k = np.unique(levels, return_inverse=True)[1].ravel(), np.maximum(held.counts, 1.0)
    k = np.where(held.weight > 0.0, k, 0.0)
    rows, weight = np.bincount(level, k), np.bincount(level, held.weight)
    rest = _without(model, held, i, level, len(rows))
    k = np.maximum(k, 1.0)
    # σ² as the rows have it, with what f has taken of them
    noise = float(np.sum(rest.score**2 / k) / max(float(np.sum(held.weight - rest.own)), TINY))
    gain, total = 1.0 / (rows + USUAL_ROWS), np.bincount(level, rest.score, len(rows))
    group = _dependent(held, level, rest.score)
    if group is None:
        away = noise * (np.bincount(level, rest.own, len(rows)) - rest.taken)
        usual, tail = _of_rows(level, rest.score, k, gain)
    else:
        away = np.zeros(len(rows))
        usual, tail = _of_groups(level, group, rest.score, gain)
    p_value = centred_tail(*tail, float(gain @ (total**2 - usual - away)))
    p_value = min(p_value, 1.0) if p_value >= 0.0 else 1.0
    # the variance of a level's sum, drawn to what all rows say
    variance = (rows * usual + ROWS_OF_PRIOR * noise * weight) / (rows + ROWS_OF_PRIOR)
    left = np.maximum(1.0 - rest.taken / np.maximum(weight, TINY), 1e-6)
    seen = rows > 1.0
    u, information = total[seen] / noise, (variance * left)[seen] / noise**2
    size = _size(u, information, rows[seen] / rows.sum()) if has_size and seen.any() else None
    by_size = _by_size(u, information, p_value)
    return Score(p_value, float(log_bayes_factors(by_size[None])[0]), size, tuple(by_size.tolist()))


def _by_size(
    u: Float[np.ndarray, " l"], information: Float[np.ndarray, " l"], p_value: float
) -> Float[np.ndarray, " sizes"]:
    """The evidence of levels' sums for effects of theirs, by size, and no more of it than a p-value allows.

    No alternative is likelier than the hypothesis by more than 1/(−e p log p) (Sellke, Bayarri & Berger, 2001).
    """
    p = max(p_value, TINY)
    most = -1.0 - math.log(p) - math.log(-math.log(p)) if p < math.exp(-1.0) else 0.0
    return np.minimum(evidences_of(information[None], u[None])[1][0], most)


def _size(u: Float[np.ndarray, " l"], information: Float[np.ndarray, " l"], share: Float[np.ndarray, " l"]) -> Size:
    """How strong the category may be: effects of levels N(0, τ²), seen by moments up to a few standard errors of τ²."""
    square = max(float(np.sum(information**2)), TINY)
    variance = max(float(np.sum(u**2 - information)), 0.0) / square
    furthest = math.sqrt(4.0 * variance + 16.0 * math.sqrt(2.0 / square))
    return size_of(np.sqrt(draws_of(information, u, furthest) ** 2 @ share))


def _without(model: Model, held: Held, i: int, level: Int[np.ndarray, " n"], n_levels: int) -> _Rest:
    """The rest of a model: its posterior given that all coefficients of terms with input i are 0."""
    posterior, basis, centre = model.posterior, model.basis, model.evidence.products.mean_phi
    out, mean, root = np.zeros(basis.n_columns, dtype=bool), posterior.mean, posterior.root
    for block, place in zip(basis.blocks, basis.slices, strict=True):
        out[place] = i in block.term
    if out.any():
        scaled = root[out] / posterior.prior_sd[out, None]
        inverse = np.linalg.pinv(scaled @ scaled.T, hermitian=True)
        mean = mean - root @ (scaled.T @ (inverse @ (mean[out] / posterior.prior_sd[out])))
        root = root - (root @ scaled.T) @ (inverse @ scaled)
    mean, root = np.where(out, 0.0, mean), np.where(out[:, None], 0.0, root) / np.sqrt(posterior.noise_variance)
    parts, sums = [], np.zeros((n_levels, basis.n_columns))
    for part in held.parts():
        values, weight = [v.rows(part) for v in held.values], held.weight[part]
        phi = basis(values) - centre
        score = weight * (held.y[part] - model.rows.mean_y - phi @ mean)
        leverage = np.sum((phi @ root) ** 2, axis=1) + 1.0 / model.rows.total
        parts.append((score, weight**2 * leverage / np.maximum(held.counts[part], 1.0)))
        place = level[part], np.arange(len(weight))
        sums += sparse.csr_matrix((weight, place), (n_levels, len(weight))) @ phi
    score, own = (np.concatenate(each) for each in zip(*parts, strict=True))
    weight = np.bincount(level, held.weight, n_levels)
    return _Rest(score, own, np.sum((sums @ root) ** 2, axis=1) + weight**2 / model.rows.total)


def _dependent(
    held: Held, level: Int[np.ndarray, " n"], score: Float[np.ndarray, " n"]
) -> Int[np.ndarray, " n"] | None:
    """The groups of rows that may depend on each other: those given; of weights that are no counts, equal rows.

    One row of much weight is then some equal parts, whose products say nothing.
    """
    if held.groups is not None or np.all(held.counts == np.rint(held.counts)):
        return held.groups
    away = score / np.maximum(held.weight, TINY)
    each = np.stack([level, np.rint(1e9 * away / max(float(np.abs(away).max()), TINY))], axis=1)
    return np.unique(each, axis=0, return_inverse=True)[1].ravel()


def _of_rows(level, score, k, gain) -> tuple[Float[np.ndarray, " levels"], _Tail]:
    """Σ s_i² of each level, and for Σ_{i≠j} s_i s_j the χ² of its variance and skewness, were signs drawn by lot.

    Of k equal rows in one, each has the k-th part of the score.
    """
    square, fourth, sixth = (np.bincount(level, k * (score / k) ** m, len(gain)) for m in (2, 4, 6))
    # 2 Σ_{i≠j} s²s² and 8 Σ_{i≠j≠k} s²s²s²: of n signs only pairs and triples of different ones have a mean
    pairs = square**2 - fourth
    variance = 2.0 * gain**2 * pairs
    third = 8.0 * gain**3 * np.maximum(square**3 - 3.0 * square * fourth + 2.0 * sixth, 0.0)
    there = pairs > ROUNDING * square**2
    variance, third = variance[there], third[there]
    # two rows have no skewness: nearly a normal variable, a χ² of a thousandth of its sd
    a = np.maximum(0.25 * third / variance, 1e-3 * np.sqrt(variance))
    return square, _Tail(a, 0.5 * variance / a**2)


def _of_groups(level, group, score, gain) -> tuple[Float[np.ndarray, " levels"], _Tail]:
    """The same where rows of one group may depend on each other: their sums are squared, and the χ² is one for all."""
    sums = sparse.csr_matrix((score, (level, group)), (len(gain), int(group.max()) + 1))
    scaled = sparse.csr_matrix(sparse.diags(np.sqrt(gain)) @ sums)
    # T_gh = Σ_l g_l S_lg S_lh, pairs of groups: 2 Σ_{g≠h} T_gh²; and T has the eigenvalues of this
    across = sparse.csr_matrix(scaled @ scaled.T)
    own = np.asarray(scaled.multiply(scaled).sum(axis=0)).ravel()
    squares = float(own @ own)
    variance = 2.0 * (float(across.multiply(across).sum()) - squares)
    if variance <= ROUNDING * squares:
        variance = 0.0
    # as skewed as the largest eigenvalue allows, and at most as one χ²
    largest = float(abs(across).sum(axis=1).max())
    a = np.array([min(largest, np.sqrt(0.5 * variance))])
    usual = np.asarray(sums.multiply(sums).sum(axis=1)).ravel()
    return usual, _Tail(a, 0.5 * variance / a**2) if variance > 0.0 else _Tail(np.zeros(0), np.zeros(0))
