"""A model of some terms, fitted to the rows of one response by evidence, and how many columns its terms have."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.terms.evidence import MAX_COLUMNS, Basis, Evidence, Posterior, basis_of
from vertebra.terms.functions import Values
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term, by_order

# While terms are sought, the highest total degree of a term by its order and the most columns of one: a little lower
# than in the end, which is many times faster. Models of many columns are then fitted by a few rounds of MacKay's
# updates. Round numbers.
MODEL_DEGREE, MODEL_COLUMNS, MANY_COLUMNS = {1: 9, 2: 7, 3: 6}, 60, 300
# The gain in log evidence, relative to its size, at which the fit of a model on the way ends; and of the last one.
ON_THE_WAY, AT_THE_END = 1e-6, 1e-9
# Of smooth functions there may be one for so many rows, if that is more than `MAX_COLUMNS`.
ROWS_PER_SMOOTH_COLUMN = 15
# The most columns of all: the products of 3,200 columns are 82 MB, and their Cholesky factor 10¹⁰ multiplications.
MOST_OF_ALL = 3200
# A term of rough functions that uses nearly all its columns gets as many as one may have while terms are sought, if its
# share of the variance is large; at the end one that uses half of them gets four times as many, if its share is worth
# it. A column needs so many rows. Round numbers.
NEARLY_ALL, LARGE_ENERGY, HALF, SMALL_ENERGY, GROWTH = 0.8, 0.03, 0.5, 0.002, 4
MOST_OF_ONE, ROWS_PER_COLUMN = 1000, 5
# In log τ²: a new term starts so far below the centre of its hyper-prior, and none so far that it could not come back.
NEW, LOWEST = 2.0, 8.0


class Model(NamedTuple):
    """Some terms, fitted to the rows."""

    rows: RowSums
    basis: Basis
    evidence: Evidence
    posterior: Posterior

    @property
    def known(self) -> Float[np.ndarray, " m"]:
        """The share of each coefficient that the data determine: γ_k = 1 − Σ_kk/s_k."""
        return 1.0 - np.sum(self.posterior.root**2, axis=1) / self.posterior.prior_sd**2

    @property
    def freedom(self) -> float:
        """Rows less what the fit used: the degrees of freedom of the noise."""
        return max(self.rows.count - 1.0 - float(self.known.sum()), 1.0)

    def at(self, values: Values) -> Float[np.ndarray, " n"]:
        """The fit at rows given by the values of their functions."""
        centre = self.rows.mean_y - self.evidence.products.mean_phi @ self.posterior.mean
        return centre + self.basis(values) @ self.posterior.mean

    def variance_at(self, values: Values) -> Float[np.ndarray, " n"]:
        """The variance of the fit there."""
        # of a sum of squares six digits are enough, in half the time
        phi = (self.basis(values) - self.evidence.products.mean_phi).astype(np.float32)
        spread = phi @ self.posterior.root.astype(np.float32)
        return np.einsum("nk,nk->n", spread, spread, dtype=np.float64) + self.posterior.noise_variance / self.rows.total


def model_of(
    rows: RowSums, terms: Iterable[Term], *, before: Model | None = None, sizes: Mapping[Term, int] | None = None
) -> Model:
    """The model of some terms while terms are sought, by evidence, begun where another one ended."""
    if sizes is None and before is not None:
        sizes = before.basis.sizes
    basis = basis_of(
        rows.systems, by_order(set(terms)), rows.chosen, MODEL_DEGREE, sizes, MODEL_COLUMNS, most_columns(rows.n)
    )
    return fit_basis(rows, basis, before=before, many=MANY_COLUMNS, n_rounds=2, tolerance=ON_THE_WAY)


def most_columns(n_rows: int) -> int:
    """How many columns smooth terms may have in all: more with many rows, and at most half of these, or 8.

    Beyond half the rows, columns could reproduce them.
    """
    many = min(max(MAX_COLUMNS, n_rows // ROWS_PER_SMOOTH_COLUMN), MOST_OF_ALL)
    return min(many, max(n_rows // 2, 8))


def fit_basis(
    rows: RowSums, basis: Basis, *, before: Model | None, many: int, n_rounds: int, tolerance: float = AT_THE_END
) -> Model:
    """Hyper-parameters of the highest evidence; with more than `many` columns, a few rounds towards them."""
    evidence = Evidence(basis, rows.products(basis))
    start = _start(evidence, basis, before)
    if basis.n_columns > many and before is not None:
        theta = evidence.fixed_point(start, n_rounds)
    else:
        theta = evidence.maximise(tolerance, start)
    return Model(rows, basis, evidence, evidence.posterior(theta))


def _start(evidence: Evidence, basis: Basis, before: Model | None) -> Float[np.ndarray, " h"]:
    """Hyper-parameters of an earlier model where it has them; what is new starts small where the rest is known."""
    theta = evidence.start()
    if before is None or not before.basis.blocks:
        return theta
    old, known = before.posterior.theta, {term: k for k, term in enumerate(before.basis.terms)}
    n_blocks = len(basis.blocks)
    for k, block in enumerate(basis.blocks):
        place = known.get(block.term)
        theta[k] = theta[k] - NEW if place is None else max(old[place], theta[k] - LOWEST)
    places = {i: k for k, i in enumerate(before.evidence.inputs)}
    for k, i in enumerate(evidence.inputs):
        if i in places:
            theta[n_blocks + k] = old[len(before.basis.blocks) + places[i]]
    theta[-1] = old[-1] if evidence.products.noise_variance is None else theta[-1]
    return theta


def with_room(model: Model) -> Model:
    """The model with more columns for the rough terms that need them most: what they cannot say looks like others."""
    sizes = grown([model], is_last=False)
    return model if sizes == model.basis.sizes else model_of(model.rows, model.basis.terms, before=model, sizes=sizes)


def grown(models: Sequence[Model | None], *, is_last: bool) -> dict[Term, int]:
    """The number of columns of every term: more of rough functions where they are used up, the largest terms first."""
    used: dict[Term, float] = {}
    energy: dict[Term, float] = {}
    sizes: dict[Term, int] = {}
    room = 0.0
    for model in models:
        if model is None:
            continue
        sizes, known = model.basis.sizes, model.known
        room = min(MOST_OF_ALL, model.rows.n / ROWS_PER_COLUMN) - model.basis.n_columns
        for block, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            if len(block.term) > 1 and model.basis.is_local(block):
                own = float(np.sum(model.posterior.mean[place] ** 2)) / model.evidence.scale
                used[block.term] = max(used.get(block.term, 0.0), float(known[place].mean()))
                energy[block.term] = max(energy.get(block.term, 0.0), own)
    for term in sorted(used, key=lambda t: -energy[t]):
        wanted = sizes[term]
        if used[term] > NEARLY_ALL and energy[term] > LARGE_ENERGY:
            wanted = MOST_OF_ONE
        elif is_last and used[term] > HALF and energy[term] > SMALL_ENERGY:
            wanted = GROWTH * wanted
        more = int(min(wanted - sizes[term], MOST_OF_ONE - sizes[term], room))
        if more > 0:
            sizes[term] += more
            room -= more
    return sizes
