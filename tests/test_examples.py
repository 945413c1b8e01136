"""The examples run, their pages say what the files say, and rendering shows what a cell prints, returns and draws."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pandas as pd
import pytest

ROOT = pathlib.Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("render", ROOT / "examples/render.py")
render = importlib.util.module_from_spec(spec)
spec.loader.exec_module(render)


@pytest.mark.parametrize("name", render.names())
def test_the_page_of_an_example_is_that_of_its_file(name):
    page, at = (ROOT / f"docs/examples/{name}.md").read_text(), 0
    cells = render.cells((ROOT / f"examples/{name}.py").read_text())
    assert cells[0].source.startswith("# ")
    for cell in cells:
        assert cell.markdown in page[at:], f"run `make examples`: the page lacks {cell.source[:60]!r}"
        at = page.index(cell.markdown, at) + len(cell.markdown)
    assert page.count("```python") == sum(not cell.is_text for cell in cells)
    assert f"]({name}.md)" in (ROOT / "docs/examples/index.md").read_text()


def test_every_page_has_an_example_and_its_figures():
    pages = {path.stem for path in (ROOT / "docs/examples").glob("*.md")} - {"index"}
    assert pages == set(render.names())
    shown = {line.split("](")[1][:-1] for p in pages for line in _figures(ROOT / f"docs/examples/{p}.md")}
    assert shown == {path.name for path in (ROOT / "docs/examples").glob("*.png")}


def _figures(page):
    return [line for line in page.read_text().splitlines() if line.startswith("![")]


@pytest.mark.everyday("f1")
@pytest.mark.parametrize("name", render.names())
def test_an_example_runs(name, tmp_path):
    path = ROOT / f"examples/{name}.py"
    data = pathlib.Path(os.environ.get("VERTEBRA_DATA", ROOT.parent / "shared/data"))
    if "datasets.table(" in path.read_text() and not data.is_dir():
        pytest.skip(f"it needs a table, and there is no folder {data}: set VERTEBRA_DATA")
    env = os.environ | {"VERTEBRA_DATA": str(data), "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", path]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


EXAMPLE = """\
# %% [markdown]
# # Title
#
# Two words.

# %%
import matplotlib.pyplot as plt
import pandas as pd

print("printed")
pd.DataFrame({"term": [("a", "b")], "strength": [-0.25], "n": [3]})

# %%
1 + 1

# %%
plt.figure(figsize=(2, 1))
plt.plot([0, 1])
plt.xlabel("x | y")
"""
PAGE = """\
# Title

Two words.

```python
import matplotlib.pyplot as plt
import pandas as pd

print("printed")
pd.DataFrame({"term": [("a", "b")], "strength": [-0.25], "n": [3]})
```

```text
printed
```

| term | strength | n |
| --- | ---: | ---: |
| ('a', 'b') | −0.2500 | 3 |

```python
1 + 1
```

```text
2
```

```python
plt.figure(figsize=(2, 1))
plt.plot([0, 1])
plt.xlabel("x | y")
```

![Title: x | y](tiny-1.png)

*This page is `examples/tiny.py`, run by `make examples`.*
"""


def test_a_page_shows_what_a_cell_prints_returns_and_draws(tmp_path):
    render.matplotlib.use("Agg")
    assert render.page("tiny", EXAMPLE, tmp_path) == PAGE
    assert (tmp_path / "tiny-1.png").read_bytes().startswith(b"\x89PNG")


def test_long_tables_are_cut_and_counted_rows_have_no_index():

    text = render.table(pd.DataFrame({"x": range(30)}, index=[f"row {i}" for i in range(30)]))
    assert text.startswith("|  | x |\n| --- | ---: |\n| row 0 | 0 |\n")
    assert text.endswith("| row 19 | 19 |\n\n… and 10 more rows")
    assert render.table(pd.DataFrame({"a|b": [1e6, float("nan")]})) == "| a\\|b |\n| ---: |\n| 1000000 |\n|  |"
