"""`vertebra predict`: the rows of a table, predicted."""

import math

from vertebra.cli.folder import model_file
from vertebra.cli.options import (
    FileOption,
    ForceOption,
    LevelOption,
    ModelPath,
    ProbaOption,
    QuantilesOption,
    RawTextOption,
    TablePath,
    TermsOption,
    check_share,
)
from vertebra.cli.tablefile import Frame, Refused, check_writable, encoded, ending_of, is_large, read_table
from vertebra.cli.terminal import print_bytes


def predict(
    model: ModelPath,
    table: TablePath,
    out: FileOption = None,
    level: LevelOption = 0.95,
    quantiles: QuantilesOption = None,
    proba: ProbaOption = False,
    terms: TermsOption = False,
    raw_text: RawTextOption = False,
    force: ForceOption = False,
) -> None:
    """Predict the rows of a table.

    Regression gives the columns prediction, sd, lower and upper (each with _TARGET behind it if there are several);
    classification gives prediction and probability_CLASS for every class. Rows keep their order. Columns are matched
    by name, and those to spare, as the target, do not matter.
    """
    check_share("--level", level)
    levels = _quantiles(quantiles)
    if out is not None:
        ending_of(str(out))
        check_writable(out, force=force)
    file = model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers
    from vertebra.files.outputs import predictions
    from vertebra.machine import file as storage

    loaded = estimators.load(file)
    is_class = loaded.model_.is_classifier
    if is_class and levels:
        raise Refused("--quantiles is for regression, and the model is of classes.")
    if proba and not is_class:
        raise Refused("--proba is for classes, and the model is of numbers.")
    if terms:
        answers.as_additive(loaded)

    def answer(frame: Frame) -> Frame:
        rows = answers.inputs_of(loaded, frame, table)
        return predictions(loaded.model_, rows, level, levels, proba=proba, terms=terms)

    if is_large(table):
        if out is None or ending_of(str(out)) not in (".parquet", ".pq"):
            raise Refused(f"{table} is read some rows at a time, to Parquet: give --out FILE.parquet.")
        from vertebra import stream

        stream.write(table, out, list(loaded.schema_.sources), answer)
    elif out is None:
        print_bytes(encoded(answer(read_table(table)), ".csv", is_raw=raw_text))
    else:
        storage.put(out, encoded(answer(read_table(table)), ending_of(str(out)), is_raw=raw_text))


def _quantiles(text: str | None) -> list[float]:
    try:
        levels = [float(each) for each in text.split(",")] if text is not None else []
    except ValueError:
        levels = [math.nan]
    if not all(0.0 < each < 1.0 for each in levels):
        raise Refused(f"--quantiles must be numbers between 0 and 1 with commas between them, got {text!r}.")
    return levels
