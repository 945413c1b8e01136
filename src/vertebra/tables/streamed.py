"""All rows of a fit, read from files as the model reads them, of which a sample is in memory."""

from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine.threads import Sums
from vertebra.tables.encoding import N_FOLDS, CrossFitted, Tally, cross_fit, tally
from vertebra.tables.known import Known
from vertebra.tables.parquet import Batch, Files, Parquet, is_files
from vertebra.tables.partitions import DaskFrame, Partitions, is_dask
from vertebra.tables.passes import Training
from vertebra.tables.sample import Taken
from vertebra.tables.schema import Schema

Matrix = Float[np.ndarray, "n p"]
Targets = Float[np.ndarray, "n k"]
Vector = Float[np.ndarray, " n"]


def is_stream(X: object) -> TypeGuard[Parquet | Partitions | DaskFrame | Files]:
    """Whether a table is read some rows at a time: from files of Parquet, or the partitions of a Dask frame."""
    return is_files(X) or is_dask(X) or isinstance(X, Partitions)


class StreamedRows:
    """All rows of a fit, of which a sample is in memory: read as the model reads them, on the scale it works on.

    >>> training = vb.stream.Training(vb.stream.Parquet("flats.parquet"), ["rent"], None, is_class=False)
    >>> known = training.survey()
    >>> rows = vb.stream.StreamedRows(training, known, known.schema(), standard=lambda y: y)
    >>> matrix, y, weight = rows.taken(known.sample)
    >>> matrix.shape, y.shape
    ((100, 2), (100, 1))
    """

    def __init__(self, training: Training, known: Known, schema: Schema, standard: Callable[[Targets], Targets]):
        self.training, self.schema, self.standard = training, schema, standard
        self.n_rows, self.weight, self.numbers = known.n_rows, known.weight, known.sample.numbers
        self._encode: CrossFitted | None = None  # until it is fitted

    def taken(self, rows: Taken) -> tuple[Matrix, Targets, Vector]:
        """Rows in memory: the coded matrix, the targets as they are, and the weights."""
        batch = rows.batch()
        matrix = self.schema.matrix(batch.frame(self.training.inputs))
        return matrix, self.training.y(batch), self.training.weights(batch)

    def cross_fit(
        self,
        matrix: Matrix,
        direction: Callable[[Targets], Vector],
        n_levels: Sequence[int],
        is_ordered: Sequence[bool],
        *,
        most_levels: int,
        fill: bool,
    ) -> CrossFitted:
        """An encoding whose means of levels are over all rows; `matrix` is the sample's.

        `direction` is what stands for the target, from y on the model's scale.
        """
        encoded = [i for i, levels in enumerate(n_levels) if levels > most_levels]

        def work(batch: Batch, weight) -> Sums:
            x = self.schema.matrix(batch.frame(self.training.inputs))
            target = direction(self.standard(np.nan_to_num(self.training.y(batch))))
            folds = self.training.folds(batch.numbers, N_FOLDS)
            return [each for i in encoded for each in tally(x[:, i], target, weight, folds, n_levels[i])]

        sums = self.training.total(work) if encoded else []
        tallies = {i: Tally(*sums[3 * k : 3 * k + 3]) for k, i in enumerate(encoded)}
        seen = [column[~np.isnan(column)] for column in matrix.T]
        lows = np.array([np.nan if not fill else own.min() if len(own) else 1.0 for own in seen])
        self._encode = cross_fit(tallies, lows, n_levels, is_ordered)
        return self._encode

    def sample(self, matrix: Matrix) -> Matrix:
        """The sample as the model reads it."""
        return self._encoded(matrix, self.numbers)

    def _encoded(self, matrix: Matrix, numbers: Int[np.ndarray, " n"]) -> Matrix:
        if self._encode is None:
            raise RuntimeError("`cross_fit` must come before rows are read.")
        return self._encode(matrix, self.training.folds(numbers, N_FOLDS))

    def read(self, batch: Batch) -> tuple[Matrix, Targets]:
        """Rows as the model reads them, and targets on its scale; where there is none, a number that does not count."""
        matrix = self.schema.matrix(batch.frame(self.training.inputs))
        return self._encoded(matrix, batch.numbers), self.standard(np.nan_to_num(self.training.y(batch)))

    def begin(self, basis: str) -> None:
        self.training.begin(basis)

    def total(self, work: Callable[[Matrix, Targets, Vector], Sums]) -> Sums:
        return self.training.total(lambda batch, weight: work(*self.read(batch), weight))
