"""`vertebra effects`, `vertebra report` and `vertebra info`: what a model knows."""

from vertebra.cli.folder import REPORT_NAME, check_report, model_file
from vertebra.cli.options import (
    CsvOption,
    FdrOption,
    ForceOption,
    InteractionsOption,
    JsonOption,
    LevelOption,
    ModelPath,
    OrderOption,
    OutputOption,
    PageOption,
    RawTextOption,
    TermOption,
    check_share,
)
from vertebra.cli.tablefile import Refused, check_writable, encoded
from vertebra.cli.terminal import (
    console,
    print_bytes,
    print_json,
    say_about,
    say_effects,
    say_files,
    say_fit,
    say_frame,
)


def effects(
    model: ModelPath,
    order: OrderOption = None,
    interactions: InteractionsOption = False,
    fdr: FdrOption = 0.05,
    level: LevelOption = 0.95,
    term: TermOption = None,
    output: OutputOption = None,
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
    file = model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = answers.as_additive(estimators.load(file))
    k = answers.output_number(loaded, output)
    if term:
        found = answers.function_of(loaded, term, level, k)
    elif interactions:
        found = loaded.interactions(fdr, level=level, output=k)
    else:
        found = loaded.effects(level=level, output=k)
    if order is not None and not term:
        found = found.loc[found["order"] == order].reset_index(drop=True)
    if as_json:
        print_json({"term": term, "points": found} if term else {"level": level, "effects": found})
    elif as_csv:
        print_bytes(encoded(found if term else answers.with_joined_terms(found), ".csv", is_raw=raw_text))
    elif term:
        say_frame(console(), found)
    else:
        say_effects(console(), found, level=level, most=len(found))


def report(model: ModelPath, out: PageOption = None, force: ForceOption = False) -> None:
    """Write the report of a model, one HTML page."""
    file = model_file(model)
    path = file.with_name(REPORT_NAME) if out is None else out
    check_writable(path, force=force)
    check_report()
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = answers.as_additive(estimators.load(file))
    loaded.report(path)
    say_files(console(), [path])


def info(model: ModelPath, as_json: JsonOption = False) -> None:
    """Say what a model is, how well it did, and what wrote it."""
    file = model_file(model)
    from vertebra import estimators
    from vertebra.cli import answers

    loaded = estimators.load(file)
    about = {"file": str(file), "bytes": file.stat().st_size, **answers.written(file), **answers.about(loaded)}
    if as_json:
        print_json(about)
        return
    say = console()
    say_about(say, about)
    say_fit(say, loaded)
