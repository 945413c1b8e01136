"""The code in the documents runs, and the figures they quote are those in the results."""

import csv
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["README.md", "docs/build-a-network.md"])
def test_the_code_in_the_document_runs(name):
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
