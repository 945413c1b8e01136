"""Runs the examples cell by cell, and writes each as a page of docs/examples, with what it printed and drew.

python examples/render.py        # all of them
python examples/render.py f1     # one
"""

import ast
import contextlib
import io
import math
import pathlib
import re
import sys
import time
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

EXAMPLES = pathlib.Path(__file__).parent
PAGES = EXAMPLES.parent / "docs/examples"
DPI, WIDEST = 110, 900
MOST_ROWS = 20


class Cell(NamedTuple):
    """Text in Markdown, or code."""

    is_text: bool
    source: str

    @property
    def markdown(self) -> str:
        return self.source if self.is_text else f"```python\n{self.source}\n```"


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py") if path.name != "render.py")


def cells(text: str) -> list[Cell]:
    """A file in percent format, cut at its lines `# %%` and `# %% [markdown]`."""
    _, *parts = re.split(r"(?m)^# %%(.*)\n", text)
    result = []
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        is_text = kind.strip() == "[markdown]"
        result.append(Cell(is_text, (re.sub(r"(?m)^# ?", "", source) if is_text else source).strip()))
    return result


def run(source: str, namespace: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return re.sub(r"(?m) +$", "", printed.getvalue()).strip("\n"), value


def table(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; the index is left out where it only counts."""
    shown = frame.head(MOST_ROWS)
    shown = shown if isinstance(frame.index, pd.RangeIndex) else shown.reset_index(names=frame.index.name or "")
    columns = [_written(column) for _, column in shown.items()]
    marks = ["---:" if pd.api.types.is_numeric_dtype(dtype) else "---" for dtype in shown.dtypes]
    rows = [[str(name) for name in shown.columns], marks, *zip(*columns, strict=True)]
    more = f"\n\n… and {len(frame) - MOST_ROWS} more rows" if len(frame) > MOST_ROWS else ""
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + more


def _written(column: pd.Series) -> list[str]:
    """Floats to four digits of the largest, at most four after the point; blank where there is none."""
    if not pd.api.types.is_float_dtype(column):
        return [str(value) for value in column]
    largest = np.nanmax(np.abs(column), initial=1e-9)
    digits = min(max(3 - math.floor(math.log10(largest)), 0), 4)
    return ["" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−") for value in column]


def drawn(name: str, first: int, folder: pathlib.Path, about: str) -> list[str]:
    """Saves the open figures, closes them, and says how a page shows them."""
    links = []
    for i, number in enumerate(plt.get_fignums(), start=first):
        figure = plt.figure(number)
        figure.savefig(folder / f"{name}-{i}.png", dpi=min(DPI, WIDEST / figure.get_figwidth()))
        labels = [[ax.get_ylabel(), ax.get_xlabel()] for ax in figure.axes if ax.get_xlabel()]
        words = ", ".join(dict.fromkeys(" against ".join(filter(None, each)) for each in labels)).replace("\\", "")
        links.append(f"![{about}{': ' if words else ''}{words}]({name}-{i}.png)")
    plt.close("all")
    return links


def page(name: str, text: str, folder: pathlib.Path) -> str:
    """The page of one example; its figures are written to the folder."""
    parts, namespace, n_figures, heading = [], {}, 0, name
    for cell in cells(text):
        parts.append(cell.markdown)
        if cell.is_text:
            heading = (re.findall(r"(?m)^#+ (.+)$", cell.source) or [heading])[-1]
        else:
            printed, value = run(cell.source, namespace)
            figures = drawn(name, n_figures + 1, folder, heading)
            n_figures += len(figures)
            if isinstance(value, pd.Series | pd.DataFrame):
                figures.append(table(pd.DataFrame(value)))
            elif value is not None and not figures:
                printed = f"{printed}\n{value!r}".strip("\n")
            parts += [f"```text\n{printed}\n```"] if printed else []
            parts += figures
    return "\n\n".join([*parts, f"*This page is `examples/{name}.py`, run by `make examples`.*"]) + "\n"


def main() -> None:
    matplotlib.use("Agg")
    PAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or names():
        start = time.process_time()
        for old in PAGES.glob(f"{name}-*.png"):
            old.unlink()
        (PAGES / f"{name}.md").write_text(page(name, (EXAMPLES / f"{name}.py").read_text(), PAGES))
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
