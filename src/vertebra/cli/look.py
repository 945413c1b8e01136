"""`vertebra effects`, `vertebra report` and `vertebra info`: what a model knows."""

from typing import Any, cast

from vertebra.cli.folder import REPORT_NAME, check_report, model_file
from vertebra.cli.options import (
    CasesOption,
    CsvOption,
    DecimalOption,
    EncodingOption,
    FdrOption,
    ForceOption,
    InteractionsOption,
    JsonOption,
    LevelOption,
    MeasureOption,
    ModelPath,
    OrderOption,
    OutputOption,
    PageOption,
    RawTextOption,
    SepOption,
    SheetOption,
    TermOption,
    TotalsOption,
    check_share,
    format_of,
)
from vertebra.cli.tablefile import Refused, check_writable, encoded, read_table
from vertebra.cli.terminal import (
    console,
    print_bytes,
    print_json,
    say_about,
    say_effects,
    say_files,
    say_fit,
    say_frame,
    say_totals,
)


def effects(
    model: ModelPath,
    order: OrderOption = None,
    interactions: InteractionsOption = False,
    fdr: FdrOption = 0.05,
    totals: TotalsOption = False,
    level: LevelOption = 0.95,
    term: TermOption = None,
    output: OutputOption = None,
    measure: MeasureOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    raw_text: RawTextOption = False,
) -> None:
    """Print effects, strongest first, or one as a function.

    Strength is in the units of the target (of the logit for classes, of the log of the rate for counts), share is of
    the variance of f, probability is that the term is real.
    """
    check_share("--level", level)
    check_share("--fdr", fdr)
    if as_json and as_csv:
        raise Refused("--json and --csv do not go together.")
    if totals and (term or interactions or order is not None):
        raise Refused("--totals are of all terms: they do not go with --term, --interactions or --order.")
    file = model_file(model, "effects MODEL")
    from vertebra.cli import answers
    from vertebra.cli.loaded import load

    loaded = answers.as_additive(cast(Any, load(file)))
    k = answers.output_number(loaded, output)
    answers.check_measure(loaded, measure)
    if totals:
        found = loaded.totals(level, output=k, measure=measure)
    elif term:
        found = answers.function_of(loaded, term, level, k, gap=None if as_json else "missing", measure=measure)
    elif interactions:
        found = loaded.interactions(fdr, level=level, output=k, measure=measure)
    else:
        found = loaded.effects(level=level, output=k, measure=measure)
    if order is not None and not term:
        found = found.loc[found["order"] == order].reset_index(drop=True)
    if as_json:
        name = "totals" if totals else "effects"
        print_json({"term": term, "points": found} if term else {"level": level, name: found})
    elif as_csv:
        print_bytes(encoded(found if term or totals else answers.with_joined_terms(found), ".csv", is_raw=raw_text))
    elif term:
        from vertebra.pages.words import unit_of
        from vertebra.terms.term import term_label

        # in the order of the columns, which is that of the model
        names = [str(name).removeprefix("input ") for name in found.columns[:-4]]
        say_frame(console(), found, f"What {term_label(names)} adds, in {unit_of(loaded.model_, k)}:")
    elif totals:
        say_totals(console(), found, level)
    else:
        kind = "interaction" if interactions or (order or 0) > 1 else "effect"
        say_effects(console(), found, level=level, most=len(found), kind=kind)


def report(
    model: ModelPath,
    out: PageOption = None,
    cases: CasesOption = None,
    measure: MeasureOption = None,
    force: ForceOption = False,
    sep: SepOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    sheet: SheetOption = None,
) -> None:
    """Write the report of a model, one HTML page.

    A model's file holds no rows: those that the page takes apart are of the table given by --cases.
    """
    file = model_file(model, "report MODEL")
    path = file.with_name(REPORT_NAME) if out is None else out
    if path.suffix.lower() not in (".html", ".htm"):
        raise Refused(f"{path}: a report is a page, and must end in .html; print it from a browser for PDF.")
    check_writable(path, force=force)
    check_report()
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = answers.as_additive(estimators.load(file))
    answers.check_measure(loaded, measure)
    rows = None
    if cases is not None:
        taken = answers.with_target(loaded, read_table(cases, format_of(sep, encoding, decimal, sheet)), cases, None)
        rows = taken.x, taken.y
    loaded.report(path, cases=rows, measure=measure)
    say_files(console(), [path])


def info(model: ModelPath, as_json: JsonOption = False) -> None:
    """Say what a model is, how well it did, and what wrote it."""
    file = model_file(model, "info MODEL")
    from vertebra.cli import answers
    from vertebra.cli.loaded import load

    loaded = cast(Any, load(file))
    about = {"file": str(file), "bytes": file.stat().st_size, **answers.written(file), **answers.about(loaded)}
    if as_json:
        print_json(about)
        return
    say = console()
    say_about(say, about)
    say_fit(say, loaded)
