"""`vertebra demo`: embedded data, fitted, drawn and reported."""

import pathlib

from vertebra.cli.folder import EFFECTS_NAME, FIGURE_NAME, MODEL_NAME, REPORT_NAME, check_report, write_model
from vertebra.cli.options import DemoFolderOption, ExampleOption, ForceOption
from vertebra.cli.tablefile import new_files
from vertebra.cli.terminal import console, say_effects, say_files, say_fit

FOLDER = pathlib.Path("demo-output")


def demo(data: ExampleOption = "diabetes", out: DemoFolderOption = FOLDER, force: ForceOption = False) -> None:
    """Answer a question about embedded data: what goes with the progress of diabetes?

    Prints what was found, and writes the model, its effects as a table and as a figure, and the report. Takes less than
    half a minute. The default folder belongs to the demo: what it wrote there before is replaced.
    """
    check_report()
    names = [MODEL_NAME, EFFECTS_NAME, FIGURE_NAME, REPORT_NAME]
    with new_files(out, names, force=force or out == FOLDER) as files:
        from vertebra.cli import answers
        from vertebra.cli.embedded import example, figure_of
        from vertebra.cli.holdout import fit_and_evaluate
        from vertebra.cli.roles import About
        from vertebra.machine import file as storage

        x, y, words, exact = example(data)
        say = console()
        say.print(words, soft_wrap=True)
        model = fit_and_evaluate(say, x, y, About(), dict(random_state=0), share=0.2)
        found = answers.all_effects(model)
        model_file, effects_file, figure_file, report_file = files
        write_model(model, [model_file, effects_file, report_file], found)
        storage.put(figure_file, figure_of(model))
        say.print()
        say_effects(say, found, exact=exact)
        say_fit(say, model)
        say_files(say, files)
