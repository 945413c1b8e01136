"""A fit of a sample of rows, taken to all of them by passes over these."""

import math
from collections.abc import Sequence

import numpy as np

from vertebra.terms.evidence import TOTAL_DEGREE, Basis, basis_of
from vertebra.terms.latents import (
    LEAST_STEP,
    Data,
    Fit,
    at_rows,
    is_at_rest,
    means_at_rows,
    models_of,
    moments_at,
    settled,
)
from vertebra.terms.model import Model, most_columns
from vertebra.terms.sums import Everything, RowSums, Streamed, centred_on

# The most passes over all rows, where a step goes the whole way; of half steps twice as many. A round number: they end
# where f rests.
N_PASSES = 6
# A step is halved where it moves f by more than this share of the one before. A round number.
COMES_TO_REST = 0.7
# Smooth terms have higher degrees from so many rows on, by so much each time they are ten times as many: noise hides
# less of what polynomials of some degree leave out. With them bands hold with millions of rows.
MANY_ROWS, DEGREES_A_DECADE = 1e5, 2.5


def more_degrees(n_rows: int) -> int:
    """By how much the degree of smooth functions of so many rows is higher than usual."""
    return max(0, int(DEGREES_A_DECADE * math.log10(n_rows / MANY_ROWS)))


def taken_to_all(
    data: Data, fit: Fit, rows: list[RowSums], x: np.ndarray, everything: Everything
) -> tuple[Data, Fit, list[RowSums]]:
    """The data, the fit and its rows with means and sums over all rows instead of those of a sample, `x`.

    Components are then those under the marginals of all rows, and rough terms may grow once more.
    """
    basis = fit.basis
    everything.begin(repr([(block.term, block.index.tolist()) for block in basis.blocks]))
    if acting := sorted({i for term in basis.terms for i in term}):
        systems = centred_on(everything, data.systems, acting)
        data = data._replace(
            systems=systems,
            tested={},
            values=[system.at(column, grows=False) for system, column in zip(systems, x.T, strict=True)],
        )
        more = more_degrees(everything.n_rows)
        total = {order: degree + more for order, degree in TOTAL_DEGREE.items()}
        basis = basis_of(
            systems, basis.terms, data.chosen, total, sizes=basis.sizes, max_columns=most_columns(rows[0].n)
        )
    passes = _Passes(data, basis, [each.faint for each in rows], everything)
    if data.is_gaussian:
        rows = passes.rows(fit.models, data.working.start[0])
        basis, models = settled(basis, rows, fit.models)
    else:
        models, rows = passes.reweighted(fit.models)
    return data, fit._replace(basis=basis, models=models), rows


class _Passes:
    """Passes over all rows for the sums of one basis."""

    def __init__(self, data: Data, basis: Basis, faint: Sequence[bool], everything: Everything):
        self.data, self.basis, self.faint, self.everything = data, basis, faint, everything

    def rows(self, models: Sequence[Model | None], constants: np.ndarray) -> list[RowSums]:
        """The rows of every latent function near the models; `constants` are the latents without terms."""
        return [self._rows_of(k, models, constants) for k in range(len(models))]

    def _rows_of(self, k: int, models: Sequence[Model | None], constants: np.ndarray) -> RowSums:
        data, working, is_gaussian = self.data, self.data.working, self.data.is_gaussian
        # who works out sums elsewhere needs none of the rows here
        models = [None if is_gaussian or model is None else model._replace(rows=model.rows.alone()) for model in models]

        def respond(values, targets, weight):
            if is_gaussian:
                return targets[:, k], weight
            f, variance = moments_at(models, np.tile(constants, (len(targets), 1)), values)
            response = working.of(targets, weight).responses(f, variance)[k]
            return response.z, response.w

        known = None if is_gaussian else working.responses(*at_rows(data, models))[k].noise_variance
        source = Streamed(data.systems, self.everything, respond)
        return RowSums(data.systems, source, known, data.chosen, blocks=self.basis.blocks, faint=self.faint[k])

    def reweighted(self, models: list[Model | None]) -> tuple[list[Model | None], list[RowSums]]:
        """The models at the mode of all rows, and their rows: each round is a pass."""
        share, constants = self.data.working.step, self.data.working.start[0].copy()
        rows: list[RowSums] = []
        last, passes = math.inf, 0.0
        while passes < N_PASSES:
            new = self.rows(models, constants)
            if rows:
                pairs = zip(new, rows, strict=True)
                new = [one.between(other, share, self.basis.blocks) for one, other in pairs]
            rows, before = new, means_at_rows(self.data, models)
            models = models_of(self.basis, rows, models, n_rounds=2, is_last=False)
            constants = np.array([each.mean_y for each in rows])
            f = means_at_rows(self.data, models)
            moved = float(np.mean(np.abs(f - before)))
            if is_at_rest(moved, f, share):
                break
            # half of the way where a round moves f by nearly as much as the one before it: weights of rows that are
            # nearly certain go up and down with the variance of f there
            share = share if moved < COMES_TO_REST * last else max(0.5 * share, LEAST_STEP)
            last, passes = moved, passes + share
        return models, rows
