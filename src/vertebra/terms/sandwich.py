"""The variance of a score, whatever the noise is: of uneven, heavy or dependent rows, and of what f leaves out.

u = Cᵀ V⁻¹ y is a sum over rows of c̃_i e_i/σ²: c̃_i is what the rest of the model leaves of the tested functions at row
i, e_i the row's residual. If all residuals have the variance σ², that of u is Λ = CᵀV⁻¹C. Nobody need believe it: taken
from the rows themselves it is Σ_i (c̃_i e_i)(c̃_i e_i)ᵀ/σ⁴ (White), with e_i/(1 − h_i) for e_i, h_i the leverage, so that
it is not too small where rows are few (HC3 of MacKinnon & White). Residuals are those of the model with the tested
columns, as far as evidence wants them: without them a strong effect of few rows would be its own noise. Rows of one
group may depend on each other: their sums take the place of rows (Liang & Zeger), and of residuals without the columns,
as few groups may be fitted by chance.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.machine.threads import Sums, added
from vertebra.terms.evidence import Block, columns_of
from vertebra.terms.functions import At
from vertebra.terms.model import Model
from vertebra.terms.sums import Held

# Leverages of models of more columns are those of so many random combinations of a root's: 20 % off at a row, and it is
# 1 − h that they enter by.
MANY_COLUMNS, N_SKETCHED = 300, 48
# Columns of tested blocks that are worked on together: of 8,192 rows they are 65 MB.
COLUMNS_AT_ONCE = 1000
# A row that decides f at its place alone has a residual that says nothing: at most so much is made of it.
MOST_LEVERAGE = 0.9


class Against(NamedTuple):
    """Columns seen against the rest of a model: u, its variance if noise is as assumed, and the slopes B of C̃ = C − ΦB,
    which is what the rest leaves of them."""

    u: Float[np.ndarray, " m"]
    information: Float[np.ndarray, "m m"]
    slopes: Float[np.ndarray, "columns m"]
    # (Λ + S⁻¹)⁻¹, with which Cᵀ's coefficients would be fitted: residuals are then those of the model with them
    shrunk: Float[np.ndarray, "m m"] | None = None


def sandwiches(
    model: Model, sets: Sequence[Sequence[Block]], seen: Sequence[Against]
) -> tuple[list[Float[np.ndarray, "m m"]], int]:
    """The variances of scores of some sets of blocks, from rows in memory; and of how many parts these are the sums.

    To that of the noise comes what is not known of the rest, as its prior has it: Λ − C̃ᵀC̃/σ².
    """
    held = model.rows.source
    if not isinstance(held, Held):
        raise TypeError(f"rows must be in memory, got {type(held).__name__}.")
    n_groups = 0 if held.groups is None else int(held.groups.max()) + 1
    root, batches = _root_of_leverages(model), list(_batches(sets, seen))
    n_columns = sum(len(each.u) for each in seen)
    dtype = model.rows.precision(n_columns * (model.basis.n_columns + 1) * held.n_rows, held.n_rows)

    def work(part: slice) -> Sums:
        rows = _rows_of(model, held, part, root, dtype)
        return [sums for some, theirs in batches for sums in _sums_of(model, held, part, rows, some, theirs, n_groups)]

    sums = added(work, held.parts(), held.n_threads)
    even, uneven = sums[::2], sums[1::2]
    if n_groups:
        # the means of few groups are nearer to them than to the truth
        uneven = [each.T @ each * (n_groups / max(n_groups - 1, 1)) for each in uneven]
    doubt = [each.information - own for each, own in zip(seen, even, strict=True)]
    return [_positive(one) + other for one, other in zip(doubt, uneven, strict=True)], n_groups or model.rows.n


def _batches(
    sets: Sequence[Sequence[Block]], seen: Sequence[Against]
) -> Iterator[tuple[Sequence[Sequence[Block]], Sequence[Against]]]:
    """Sets in their order, as many at once as have no more columns than are worked on together."""
    start, width = 0, 0
    for k, each in enumerate(seen):
        if width and width + len(each.u) > COLUMNS_AT_ONCE:
            yield sets[start:k], seen[start:k]
            start, width = k, 0
        width += len(each.u)
    if width:
        yield sets[start:], seen[start:]


def _sums_of(
    model: Model,
    held: Held,
    part: slice,
    rows: "_Rows",
    sets: Sequence[Sequence[Block]],
    seen: Sequence[Against],
    n_groups: int,
) -> Sums:
    """C̃ᵀC̃/σ² of some rows, and the squares of their scores or, where they are in groups, the sums; set by set."""
    blocks = [block for each in sets for block in each]
    variance, sums = model.posterior.noise_variance, []
    # what the rest leaves of all columns, C − ΦB, by one product; a column's rows lie together, as columns come
    dtype = rows.phi.dtype.type
    slopes = np.concatenate([each.slopes for each in seen], axis=1)
    slopes = np.concatenate([slopes, model.rows.mean(blocks)[None]]).astype(dtype, copy=False)
    every = np.ascontiguousarray(model.rows.scaled(columns_of(blocks, rows.values, dtype), held.weight[part]).T)
    every -= slopes.T @ rows.with_one
    per_row = np.sqrt(rows.counts)  # k rows have k scores, the squares of which are this in all
    ends = np.cumsum([0, *(len(each.u) for each in seen)]).tolist()
    for start, end, each in zip(ends, ends[1:], seen, strict=False):
        rest, left, taken = every[start:end], rows.away, rows.leverage
        if each.shrunk is not None and not n_groups:
            shrunk = each.shrunk.astype(dtype, copy=False)
            left = left - (each.shrunk @ each.u).astype(dtype, copy=False) @ rest
            taken = taken + np.einsum("ij,ij->j", shrunk @ rest, rest) / np.maximum(rows.counts, 1.0) / variance
        away = left / (1.0 - np.minimum(taken, MOST_LEVERAGE)) / variance
        if held.groups is None:
            scores = rest * (away / per_row).astype(dtype, copy=False)
            uneven = scores @ scores.T
        else:
            uneven = np.zeros((n_groups, len(rest)))
            np.add.at(uneven, held.groups[part], (rest * away.astype(dtype, copy=False)).T)
        sums += [rest @ rest.T / variance, uneven]
    return sums


def doubt_of_groups(model: Model) -> Float[np.ndarray, "m1 k"]:
    """Columns that a root of the covariance of (c, v) needs besides, as rows of a group are less than so many rows.

    The noise's part of that covariance, Σ(ΦᵀΦ/σ²)Σ, is to be ΣMΣ, M the variance of the scores of all columns from
    groups. Where it is larger, the difference is added; what the groups do not show is never taken for certainty.
    """
    held = model.rows.source
    if not isinstance(held, Held) or held.groups is None:
        raise TypeError("rows must be in memory, and in groups.")
    variance, centre = model.posterior.noise_variance, model.evidence.products.mean_phi
    n_groups, n_columns = int(held.groups.max()) + 1, len(centre)
    sums = np.zeros((n_groups, n_columns + 1))
    by_root = _root_of_leverages(model)
    for part in held.parts():
        rows = _rows_of(model, held, part, by_root)
        scores = np.column_stack([rows.one, rows.phi]) * (rows.away / variance)[:, None]
        np.add.at(sums, held.groups[part], scores)
    # a root of Σ, of the constant at the columns' means too, by which scores have the variance RᵀMR, I − … if assumed
    root = np.zeros((n_columns + 1, model.posterior.root.shape[1] + 1))
    root[0, 0], root[1:, 1:] = math.sqrt(variance / model.rows.total), model.posterior.root
    seen = sums @ root * math.sqrt(n_groups / max(n_groups - 1, 1))
    assumed = np.eye(root.shape[1])
    by_prior = model.posterior.root / model.posterior.prior_sd[:, None]
    # ΣΦᵀΦΣ/σ² = Σ − ΣS⁻¹Σ
    assumed[1:, 1:] -= by_prior.T @ by_prior
    values, vectors = np.linalg.eigh(seen.T @ seen - assumed)
    more = root @ (vectors[:, values > 0.0] * np.sqrt(values[values > 0.0]))
    more[0] -= centre @ more[1:]
    return more


class _Rows(NamedTuple):
    """Some rows, times the roots of their weights, mixed where they depend on each other."""

    values: Sequence[At]
    one: Float[np.ndarray, " n"]
    phi: Float[np.ndarray, "n m"]  # about their means
    away: Float[np.ndarray, " n"]  # y − f
    leverage: Float[np.ndarray, " n"]  # of a row that counts k times, that of one
    counts: Float[np.ndarray, " n"]  # one of weight 0 stands for none
    with_one: Float[np.ndarray, "m1 n"]  # phi and then one, of a column's rows together


def _root_of_leverages(model: Model) -> Float[np.ndarray, "m k"]:
    """A root of the coefficients' covariance, or a sketch of it."""
    root = model.posterior.root
    if root.shape[1] <= MANY_COLUMNS:
        return root
    return root @ np.random.default_rng(0).standard_normal((root.shape[1], N_SKETCHED)) / np.sqrt(N_SKETCHED)


def _rows_of(model: Model, held: Held, part: slice, root: Float[np.ndarray, "m k"], dtype: type = np.float64) -> _Rows:
    values, weight, posterior = [v.rows(part) for v in held.values], held.weight[part], model.posterior
    one, y = model.rows.scaled(np.column_stack([np.ones(len(weight)), held.y[part] - model.rows.mean_y]), weight).T
    phi = model.rows.scaled(model.basis(values), weight) - np.outer(one, model.evidence.products.mean_phi)
    counts, away = np.where(weight > 0.0, held.counts[part], 1.0), y - phi @ posterior.mean
    phi = phi.astype(dtype, copy=False)
    along = phi @ root.astype(dtype, copy=False)
    leverage = np.einsum("ij,ij->i", along, along) / posterior.noise_variance + one**2 / model.rows.total
    with_one = np.concatenate([phi.T, one[None].astype(dtype)])
    return _Rows(values, one, phi, away, leverage / np.maximum(counts, 1.0), counts, with_one)


def _positive(square: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """The nearest positive semi-definite matrix: rounding apart it is one."""
    values, vectors = np.linalg.eigh(0.5 * (square + square.T))
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
