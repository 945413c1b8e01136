"""`vertebra explain`, `vertebra evaluate` and `vertebra compare`: what models say of the rows of a table."""

from vertebra.cli.folder import model_file
from vertebra.cli.options import (
    CsvOption,
    DecimalOption,
    EncodingOption,
    JsonOption,
    LevelOption,
    MeasureOption,
    ModelPath,
    OtherModelPath,
    OutputOption,
    RawTextOption,
    RowsOption,
    SepOption,
    SheetOption,
    TablePath,
    WeightOption,
    check_share,
    format_of,
)
from vertebra.cli.tablefile import Refused, encoded, read_table
from vertebra.cli.terminal import (
    Estimator,
    console,
    print_bytes,
    print_json,
    say_comparison,
    say_evaluation,
    say_explanation,
)

# Rows that are explained unless some are named.
N_EXPLAINED = 3


def explain(
    model: ModelPath,
    table: TablePath,
    rows: RowsOption = None,
    level: LevelOption = 0.95,
    output: OutputOption = None,
    measure: MeasureOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    raw_text: RawTextOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
) -> None:
    """Take predictions apart: what each term adds, row by row.

    Parts are on the scale of f (the units of the target, the logit for classes, the log of the rate for counts), the
    largest first, each with an interval; they sum to f. Rows are counted from 1, the first below the header.
    """
    check_share("--level", level)
    if as_json and as_csv:
        raise Refused("--json and --csv do not go together.")
    file = model_file(model, "explain MODEL TABLE")
    frame = read_table(table, format_of(sep, encoding, decimal, sheet))
    from vertebra import estimators
    from vertebra.cli import answers
    from vertebra.pages.words import unit_of

    loaded = answers.as_additive(estimators.load(file))
    k = answers.output_number(loaded, output)
    answers.check_measure(loaded, measure)
    chosen = _rows(rows, len(frame))
    own = answers.inputs_of(loaded, frame.iloc[[row - 1 for row in chosen]], table)
    parts = {
        row: loaded.explain(own.iloc[[place]], level, output=k, measure=measure) for place, row in enumerate(chosen)
    }
    if as_json:
        print_json({"level": level, "rows": [{"row": row, "parts": each} for row, each in parts.items()]})
    elif as_csv:
        print_bytes(encoded(answers.stacked(parts), ".csv", is_raw=raw_text))
    else:
        say = console()
        said = answers.predicted(loaded, own, level)
        for words, (row, each) in zip(said, parts.items(), strict=True):
            say_explanation(say, f"Row {row}: {words}", each, level, unit_of(loaded.model_, k))
        if rows is None and len(frame) > N_EXPLAINED:
            say.print(f"The first {N_EXPLAINED} of {len(frame):,} rows; --rows 5,17 takes others.")


def evaluate(
    model: ModelPath,
    table: TablePath,
    weight: WeightOption = None,
    as_json: JsonOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
) -> None:
    """Measure a model on rows that it has not seen.

    The table needs the model's target and the columns that it reads. Scores stand beside a linear model, and beside
    what was stated when the model was fitted.
    """
    file = model_file(model, "evaluate MODEL TABLE")
    frame = read_table(table, format_of(sep, encoding, decimal, sheet))
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = estimators.load(file)
    taken = answers.with_target(loaded, frame, table, weight)
    seen = answers.evaluation(loaded, taken)
    if as_json:
        print_json({"model": str(file), "table": table, "n": seen.n, "scores": seen.scores, "at_fit": _at_fit(loaded)})
    else:
        say_evaluation(console(), loaded, seen)


def compare(
    model: ModelPath,
    other: OtherModelPath,
    table: TablePath,
    weight: WeightOption = None,
    as_json: JsonOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
) -> None:
    """Compare two models of one target on rows that neither has seen.

    Beside their scores stands the mean difference of the log density (of classes: of the log probability) of each row,
    with its standard error: above 0 the second model is better.
    """
    files = [model_file(each, "compare MODEL OTHER TABLE") for each in (model, other)]
    frame = read_table(table, format_of(sep, encoding, decimal, sheet))
    from vertebra import estimators
    from vertebra.cli import answers
    from vertebra.models.scores import Method

    loaded = [estimators.load(file) for file in files]
    first, second = loaded
    if first.target_names_ != second.target_names_ or first.model_.is_classifier != second.model_.is_classifier:
        raise Refused(f"the models predict {first.target_names_} and {second.target_names_}: they cannot be compared.")
    rows = [answers.with_target(each, frame, table, weight) for each in loaded]
    seen = [answers.evaluation(each, own) for each, own in zip(loaded, rows, strict=True)]
    may_know = [str(name) for name, each in zip((model, other), seen, strict=True) if each.method is Method.SEEN]
    gain = answers.gain(first, second, frame, table, weight)
    if as_json:
        scores = {str(file): each.scores["model"] for file, each in zip(files, seen, strict=True)}
        print_json({"table": table, "n": seen[0].n, "scores": scores, "gain": gain.mean, "sd": gain.sd})
    else:
        say_comparison(console(), [str(model), str(other)], seen, gain, first.target_names_, may_know)


def _rows(given: list[str] | None, n: int) -> list[int]:
    """Rows as people count them."""
    if not given:
        return list(range(1, min(n, N_EXPLAINED) + 1))
    parts = [part.strip() for each in given for part in each.split(",")]
    for part in parts:
        if not part.isdigit() or not 1 <= int(part) <= n:
            raise Refused(f"--rows must be numbers of rows from 1 to {n}, got {part!r}.")
    return [int(part) for part in parts]


def _at_fit(loaded: Estimator) -> dict[str, float] | None:
    return None if loaded.evaluation_ is None else loaded.evaluation_.scores["model"]
