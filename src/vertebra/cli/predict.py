"""`vertebra predict`: the rows of a table, predicted."""

import math
from typing import Any, cast

from vertebra.cli.folder import model_file
from vertebra.cli.options import (
    DecimalOption,
    EncodingOption,
    FileOption,
    ForceOption,
    KeepOption,
    LevelOption,
    ModelPath,
    ProbaOption,
    QuantilesOption,
    RawTextOption,
    SepOption,
    SheetOption,
    TablePath,
    TermsOption,
    check_share,
    format_of,
)
from vertebra.cli.tablefile import (
    Frame,
    Refused,
    check_writable,
    encoded,
    ending_of,
    is_large,
    listed,
    read_table,
)
from vertebra.cli.terminal import Estimator, complain_of, print_bytes
from vertebra.tables.endings import PARQUET, WRITTEN
from vertebra.tables.nearest import nearest


def predict(
    model: ModelPath,
    table: TablePath,
    out: FileOption = None,
    level: LevelOption = 0.95,
    quantiles: QuantilesOption = None,
    proba: ProbaOption = False,
    terms: TermsOption = False,
    keep: KeepOption = None,
    raw_text: RawTextOption = False,
    force: ForceOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
) -> None:
    """Predict the rows of a table.

    Regression gives the columns prediction, sd, lower and upper (each with _TARGET behind it if there are several);
    classification gives prediction, and probability_CLASS, lower_CLASS and upper_CLASS for every class. Rows keep their
    order. Columns are matched by name; those to spare, as the target, do not matter, and those that no term reads need
    not be there. Rows with levels that are new, or beyond the range of the fit, are counted on standard error.
    """
    check_share("--level", level)
    levels = _quantiles(quantiles)
    if out is not None:
        ending_of(str(out), WRITTEN)
        check_writable(out, force=force)
    file = model_file(model, "predict MODEL TABLE")
    from vertebra.cli import answers
    from vertebra.cli.loaded import load
    from vertebra.machine import file as storage

    loaded = cast(Any, load(file))
    _check_kind(loaded, quantiles=bool(levels), proba=proba)
    if terms:
        answers.as_additive(loaded)

    answer = answers.Answer(loaded, table, level=level, levels=levels, proba=proba, terms=terms)

    if is_large(table):
        if out is None or ending_of(str(out)) not in PARQUET:
            raise Refused(f"{table} is read some rows at a time, to Parquet: give --out FILE.parquet.")
        if keep:
            raise Refused(f"--keep is for tables that are read whole, and {table} is read some rows at a time.")
        from vertebra import stream

        stream.write(table, out, loaded.model_.sources, answer)
        complain_of(answer.new_levels())
        return
    frame = read_table(table, format_of(sep, encoding, decimal, sheet))
    found = answer(frame)
    complain_of(answer.new_levels())
    found = _kept(frame, listed(keep or [], list(frame.columns)), found, table)
    data = encoded(found, ".csv" if out is None else ending_of(str(out), WRITTEN), is_raw=raw_text)
    print_bytes(data) if out is None else storage.put(out, data)


def _check_kind(loaded: Estimator, *, quantiles: bool, proba: bool) -> None:
    """Refuses what a model of its kind does not have."""
    is_class = loaded.model_.is_classifier
    if is_class and quantiles:
        raise Refused("--quantiles is for regression, and the model is of classes.")
    if proba and not is_class:
        raise Refused("--proba is for classes, and the model is of numbers.")


def _kept(frame: Frame, names: list[str], found: Frame, table: str) -> Frame:
    """Predictions with columns of the table before them."""
    for name in names:
        if name not in frame.columns:
            raise Refused(f"--keep {name!r} is not a column of {table}{nearest(name, list(frame.columns))}")
        if name in found.columns:
            raise Refused(f"--keep {name!r} is what a column of predictions is called: rename it.")
    for k, name in enumerate(dict.fromkeys(names)):
        found.insert(k, name, frame[name].to_numpy())
    return found


def _quantiles(text: str | None) -> list[float]:
    try:
        levels = [float(each) for each in text.split(",")] if text is not None else []
    except ValueError:
        levels = [math.nan]
    if not all(0.0 < each < 1.0 for each in levels):
        raise Refused(f"--quantiles must be numbers between 0 and 1 with commas between them, got {text!r}.")
    return levels
