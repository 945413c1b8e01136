"""The code in the documents runs, the figures they quote are those in the results, and the names they name exist."""

import ast
import csv
import functools
import importlib
import inspect
import pathlib
import re

import matplotlib
import pytest

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", ["README.md", "docs/build-a-network.md", "docs/looking.md"])
def test_the_code_in_the_document_runs(name, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})


def test_the_printed_skeleton_is_the_one_shown():
    import vertebra as vb

    text = (ROOT / "docs/build-a-network.md").read_text()
    assert f"```text\n{vb.additive(2, 2, depth=1)}\n```" in text


def test_quoted_benchmarks_are_the_recorded_ones():
    results = {
        p.stem: list(csv.DictReader(p.read_text().splitlines())) for p in (ROOT / "benchmarks/results").glob("*.csv")
    }
    readme = (ROOT / "README.md").read_text()
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
    """Dotted paths such as vertebra.network.build or vb.Layer."""
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
    for path in (ROOT / "src/vertebra").glob("[!_]*.py"):
        importlib.import_module(f"vertebra.{path.stem}")  # a module is an attribute of the package once it is imported
    assert [dotted for dotted in named_objects(document) if not exists(dotted)] == []


def test_a_name_that_leads_nowhere_is_seen():
    for dotted in ("vertebra.network.build", "vb.Layer.features", "vb.Effect.sd", "vertebra.kernels.RBF.ard"):
        assert exists(dotted)
    for dotted in ("vertebra.network.built", "vertebra.nowhere", "vb.Layer.features.first", "vb.Effect.se"):
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

    readme = (ROOT / "README.md").read_text()
    assert f"| RMSE to the true f | {cells('rmse_f', 3)} |" in readme
    assert f"| 95 % intervals of f cover | {cells('coverage_f', 2)} |" in readme
    assert f"| top-rank recall of interactions, noise variance 5 | {cells('recall', 2, '5')} |" in readme


def test_other_quoted_figures_are_the_recorded_ones():
    readme = (ROOT / "README.md").read_text()
    null = [
        float(r["value"])
        for r in recorded("experiments/results/additive.csv")
        if r["quantity"] == "n_reported" and r["function"] in ("smooth", "rough", "many")
        if (r["noise_variance"], r["n_inputs"], r["correlation"], r["scheme"]) == ("1.0", "10", "0.0", "auto")
    ]
    assert f"On {len(null)} tables without any interaction it reported one in {sum(v > 0 for v in null)}." in readme
    ratios = [(row["fit"], float(row["ratio"])) for row in recorded("benchmarks/results/ebm.csv")]
    first, later = ([r for fit, r in ratios if fit == kind] for kind in ("first", "later"))
    assert f"takes {first[0]:.2f} times as long" in readme
    assert f"ones {sum(later) / len(later):.2f} times" in readme
