"""The code in the documents runs, the figures they quote are those in the results, and the names they name exist."""

import ast
import contextlib
import csv
import functools
import importlib
import inspect
import io
import os
import pathlib
import re
import socket
import subprocess
import sys
import textwrap

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import vertebra as vb

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?ms)^```(\w+)[^\n]*\n(.*?)^```")


def blocks(document, language):
    return [text for kind, text in BLOCK.findall((ROOT / document).read_text()) if kind == language]


def sessions(document):
    """Commands of a document and what they print, in order, with the code that stands between them."""
    for kind, text in BLOCK.findall((ROOT / document).read_text()):
        if kind == "python":
            yield None, text
        elif text.startswith("$ "):
            for part in re.split(r"(?m)^\$ ", text)[1:]:
                command, _, printed = part.partition("\n")
                yield command, printed


def same_words(said, printed):
    """Equal but for blanks, and for numbers that differ by what another machine's arithmetic may."""
    assert len(said.split()) == len(printed.split()), printed
    for one, other in zip(said.split(), printed.split(), strict=True):
        if one != other:
            numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", f"{one} {other}")]
            assert re.sub(r"[\d.-]+", "", one) == re.sub(r"[\d.-]+", "", other)
            np.testing.assert_allclose(numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :], rtol=0.01)


@pytest.mark.everyday("docs/index.md", "docs/looking.md", "docs/reading-effects.md", "docs/tables.md")
@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if blocks(d, "python") and d not in ("docs/get-started.md", "docs/scale.md")]
)
def test_the_code_in_the_document_runs_and_prints_what_is_shown(document, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    namespace, printed = {}, ""
    for package in {"blackjax", "shap"} & set(re.findall(r"(?m)^import (\w+)", (ROOT / document).read_text())):
        pytest.importorskip(package, reason=f"{document} shows {package}: pip install 'vertebra[experiments,interop]'")
    for kind, text in BLOCK.findall((ROOT / document).read_text()):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(text, document, "exec"), namespace)
            printed = said.getvalue()
        elif kind == "text" and printed:
            same_words(text, printed)
            printed = ""
    plt.close("all")


@pytest.mark.slow
def test_the_code_of_scale_runs(tmp_path):
    """What joins a cluster in a process of its own, and of one process where the document has four."""
    parts = blocks("docs/scale.md", "python")
    (joining,) = [part for part in parts if "cluster.connect" in part]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for said, here in (("10.0.0.1:12345", address), ("n_processes=4", "n_processes=1"), ("/shared/", "")):
        assert said in joining
        joining = joining.replace(said, here)
    for code in ("\n".join(part for part in parts if "cluster.connect" not in part), joining):
        file = tmp_path / "scale.py"
        file.write_text(f"def main():\n{textwrap.indent(code, '    ')}\n\nif __name__ == '__main__':\n    main()\n")
        command = [sys.executable, file]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_first_session_prints_what_the_document_shows(tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    paths = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    n_commands = 0
    for command, text in sessions("docs/get-started.md"):
        if command is None:
            exec(compile(text, "docs/get-started.md", "exec"), {})
            continue
        environment = {**os.environ, "PATH": paths, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        same_words(text, done.stdout)
        n_commands += 1
    assert n_commands >= 5
    assert (tmp_path / "flats/report.html").is_file()
    plt.close("all")


def test_the_readme_is_short_and_what_it_says_of_its_picture_holds():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 80
    assert "Of ten measurements of 442 patients" in text
    assert "four act" in text
    x, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    assert x.shape == (442, 10)
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    assert np.sum(model.effects()["probability"] > 0.95) == 4
    assert not len(model.interactions(fdr=0.05))


def test_words_that_differ_are_seen():
    same_words("size  288.4  78.2%", "size 288.5 78.3%")
    for other in ("size 300.0 78.2%", "seize 288.4 78.2%", "size 288.4 78.2% more", "size 288.4 78.2"):
        with pytest.raises(AssertionError):
            same_words("size  288.4  78.2%", other)


def test_the_tables_that_documents_quote_are_the_recorded_ones(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    quote = importlib.import_module("quote")
    found = set()
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        assert quote.quoted(text) == text, f"{document}: python experiments/quote.py"
        found |= set(re.findall(r"<!-- table: (\w+) -->", text))
    assert found == set(quote.TABLES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_page_takes_longer_than_ten_minutes_to_read(document):
    prose = BLOCK.sub("", (ROOT / document).read_text())
    prose = "\n".join(line for line in prose.splitlines() if not line.startswith("|"))
    assert len(prose.split()) < 2000  # 200 words a minute; tables and code are looked at


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text()):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_quoted_benchmarks_are_the_recorded_ones():
    results = {
        p.stem: list(csv.DictReader(p.read_text().splitlines())) for p in (ROOT / "benchmarks/results").glob("*.csv")
    }
    readme = (ROOT / "docs/how-well.md").read_text()
    for row in results["additive"]:
        assert f"| {row['posterior'].replace('_', ' ')} | {float(row['ratio']):.1f}× |" in readme
    assert f"| {float(results['deep_gp'][0]['ratio']):.1f}× |" in readme
    many = results["subnetworks"][-1]
    assert f"compile time × {float(many['compile_ratio']):.2f}" in readme
    assert f"step time × {float(many['step_ratio']):.0f}" in readme
    growth = float(results["memory"][0]["peak_growth_over_data_growth"])
    assert f"peak memory by {growth:.2f} times" in readme


def test_the_figures_of_scale_are_the_recorded_ones():
    text = (ROOT / "docs/scale.md").read_text()
    results = {name: recorded(f"benchmarks/results/{name}.csv") for name in ("stream", "kills", "serving")}
    results |= {name: recorded(f"benchmarks/results/gpu_{name}.csv") for name in ("additive", "deep_gp", "restarts")}
    for row in results["stream"]:
        figures = f"{float(row['rows_per_s']):,.0f} | {float(row['gib_above_idle']):.2f} | {float(row['rmse_f']):.4f}"
        start = f"| {row['rows_from']} | {int(row['rows']):,} |"
        assert f"{start} {figures} | {float(row['coverage_f']):.1%} |" in text
    for row in results["additive"]:
        shares = f"{float(row['kernels_share']):.0%} | {float(row['bandwidth_share']):.0%}"
        figures = f"{float(row['gpu_rows_per_s']) / 1e6:.1f} million | {float(row['ratio']):.0f}"
        assert f"| {int(row['batch']):,} | {figures} | {float(row['kernels']):.0f} | {shares} |" in text
    assert f"Best against best it is {float(results['additive'][0]['ratio_of_best']):.0f} times two cores" in text
    for row in results["deep_gp"]:
        steps = f"{float(row['vertebra_steps_per_s']):,.0f} | {float(row['gpytorch_steps_per_s']):.0f}"
        assert f"| {int(row['batch']):,} | {steps} | {float(row['ratio']):.0f}× |" in text
    assert (
        "{:.1f}, {:.1f} and {:.1f} million".format(*(float(r["rows_per_s"]) / 1e6 for r in results["restarts"])) in text
    )
    for row in results["serving"]:
        rates = [float(row[f"{name}_rows_per_s"]) for name in ("tables", "mean", "mean_and_sd")]
        assert f"| {row['model']} | {row['columns']} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |" in text
    assert all(row["is_identical"] == "True" and f"{row['kills']} SIGKILLs" in text for row in results["kills"])


def named(document, pattern):
    """What the inline code of a document names by the pattern, each once."""
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL)
    return sorted({name for span in re.findall(r"`([^`]+)`", text) for name in re.findall(pattern, span)})


def named_objects(document):
    """Dotted paths such as vertebra.networks.build.build or vb.Layer."""
    return named(document, r"(?<![\w.])(?:vertebra|vb)(?:\.[A-Za-z_]\w*)+")


def named_tests(document):
    """(file, function) of names such as tests/test_network.py::test_figure_1d_from_1a; a file alone has no function."""
    return named(document, r"(tests/\w+\.py)(?:::(\w*))?")


def exists(dotted):
    """Whether attributes lead all the way; a field that a class declares without a value counts as the last of them."""
    thing = importlib.import_module("vertebra")
    for name in dotted.split(".")[1:]:
        declared = [field for base in getattr(thing, "__mro__", ()) for field in inspect.get_annotations(base)]
        if not hasattr(thing, name) and name not in declared:
            return False
        thing = getattr(thing, name, None)
    return True


@functools.cache
def functions_in(file):
    return {node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_object_that_is_named_exists(document):
    for path in (ROOT / "src").rglob("[!_]*.py"):
        # a module is an attribute of its package once it is imported
        importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    assert [dotted for dotted in named_objects(document) if not exists(dotted)] == []


def test_a_name_that_leads_nowhere_is_seen():
    for dotted in ("vertebra.networks.build.build", "vb.Layer.features", "vb.Effect.sd", "vertebra.kernels.RBF.ard"):
        assert exists(dotted)
    for dotted in ("vertebra.networks.network.built", "vertebra.nowhere", "vb.Layer.features.first", "vb.Effect.se"):
        assert not exists(dotted)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document):
    missing = [(file, name) for file, name in named_tests(document) if name and name not in functions_in(file)]
    assert missing == []
    assert all((ROOT / file).exists() for file, _ in named_tests(document))


@pytest.mark.parametrize(
    ("document", "n_objects", "n_tests"), [("docs/notation.md", 60, 0), ("docs/paper-map.md", 80, 60)]
)
def test_the_pages_about_the_paper_name_objects_and_tests(document, n_objects, n_tests):
    """So that the tests above cannot pass on an empty page."""
    assert len(named_objects(document)) >= n_objects
    assert len([function for _, function in named_tests(document) if function]) >= n_tests


def recorded(path):
    with (ROOT / path).open() as file:
        return list(csv.DictReader(file))


def test_quoted_figures_of_the_synthetic_functions_are_the_recorded_ones():
    rows = [row for row in recorded("experiments/results/synthetic.csv") if row["method"] == "additive"]

    def cells(quantity, digits, noise_variance="1"):
        values = [
            [float(r[quantity]) for r in rows if (r["function"], r["noise_variance"]) == (f, f"{noise_variance}.0")]
            for f in ("f1", "f2", "f3", "f4")
        ]
        assert {len(each) for each in values} == {10}
        return " | ".join(f"{sum(each) / len(each):.{digits}f}" for each in values)

    readme = (ROOT / "docs/how-well.md").read_text()
    assert f"| RMSE to the true f | {cells('rmse_f', 3)} |" in readme
    assert f"| 95 % intervals of f cover | {cells('coverage_f', 2)} |" in readme
    assert f"| top-rank recall of interactions, noise variance 5 | {cells('recall', 2, '5')} |" in readme


def test_other_quoted_figures_are_the_recorded_ones():
    readme = (ROOT / "docs/how-well.md").read_text()
    null = [
        float(r["value"])
        for r in recorded("experiments/results/additive.csv")
        if r["quantity"] == "n_reported" and r["function"] in ("smooth", "rough", "many")
        if (r["noise_variance"], r["n_inputs"], r["correlation"], r["scheme"]) == ("1.0", "10", "0.0", "auto")
    ]
    reported = f"it reported an interaction in {sum(v > 0 for v in null)}."
    assert f"On {len(null)} tables without any interaction {reported}" in readme
    ratios = [(row["fit"], float(row["ratio"])) for row in recorded("benchmarks/results/ebm.csv")]
    first, later = ([r for fit, r in ratios if fit == kind] for kind in ("first", "later"))
    assert f"takes {first[0]:.2f} times as long" in readme
    assert f"ones {sum(later) / len(later):.2f} times" in readme
