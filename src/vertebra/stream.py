"""Rows that do not fit in memory: Parquet files, read some rows at a time by a thread of their own.

A fit makes one pass for what the columns hold (`survey`) and for a sample of rows, finds the terms in the sample, and
takes the sums that the closed form needs over all rows; networks are trained on shuffled minibatches (`windows`). Here
is what users need of it.

>>> rows = pd.DataFrame(np.random.default_rng(0).random((100, 2)), columns=["size", "age"])
>>> rows.assign(rent=3 * rows["size"] + np.sin(6 * rows["age"])).to_parquet("flats.parquet")
>>> model = vb.AdditiveRegressor().fit("flats.parquet", "rent")
>>> model.clusters_
[('size',), ('age',)]
"""

import os
import pathlib
from collections.abc import Callable, Sequence

import pandas as pd

from vertebra.estimators.estimator import Estimator
from vertebra.files.outputs import predictions, term_columns, with_unread
from vertebra.tables.parquet import Files, Parquet, ahead, as_parquet
from vertebra.tables.partitions import Partitions
from vertebra.tables.passes import Training
from vertebra.tables.streamed import StreamedRows
from vertebra.tables.windows import Windows

__all__ = ["Parquet", "Partitions", "StreamedRows", "Training", "Windows", "eval_terms", "predict", "write"]


def predict(
    model: Estimator,
    source: Parquet | Files,
    out: str | os.PathLike[str],
    *,
    level: float = 0.95,
    quantiles: Sequence[float] = (),
) -> int:
    """Writes what a model says of the rows of Parquet files to a Parquet file, row by row; returns how many.

    Of numbers prediction, sd, lower and upper, and quantiles that are asked for; of classes prediction and
    probability_CLASS. Columns that no term reads need not be there, and are not read.

    >>> vb.stream.predict(model, "flats.parquet", "predictions.parquet")
    100
    >>> list(pd.read_parquet("predictions.parquet"))
    ['prediction', 'sd', 'lower', 'upper']
    """
    fitted = model.model_
    return write(source, out, fitted.sources, lambda x: predictions(fitted, with_unread(fitted, x), level, quantiles))


def eval_terms(model: Estimator, source: Parquet | Files, out: str | os.PathLike[str], *, output: int = 0) -> int:
    """Writes what every term adds at the rows of Parquet files, and `intercept`, to a Parquet file.

    >>> vb.stream.eval_terms(model, "flats.parquet", "terms.parquet")
    100
    >>> list(pd.read_parquet("terms.parquet"))
    ['intercept', 'term:size', 'term:age']
    """
    fitted = model.model_
    return write(source, out, fitted.sources, lambda x: term_columns(fitted, with_unread(fitted, x), output))


def write(
    source: Parquet | Files,
    out: str | os.PathLike[str],
    columns: Sequence[str],
    answer: Callable[[pd.DataFrame], pd.DataFrame],
) -> int:
    """A Parquet file with a row for each of the source's, some at a time; whole or not at all.

    `answer` gets these columns; of none, the first there is, for the number of rows.

    >>> vb.stream.write("flats.parquet", "double.parquet", ["size"], lambda flats: 2 * flats)
    100
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, target = as_parquet(source), pathlib.Path(out)
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(f"The table has no column {missing[0]!r}, which the model reads.")
    columns = list(columns) or table.columns[:1]
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`out` must lie in a folder that exists, got {str(out)!r}.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    n, writer = 0, None
    try:
        for batch in ahead(table.batches(columns, range(len(table.pieces)))):
            if not len(batch.rows):
                continue
            found = pa.Table.from_pandas(answer(batch.frame(columns).to_pandas()), preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(part, found.schema)
            writer.write_table(found)
            n += len(found)
        if writer is not None:
            writer.close()
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return n
