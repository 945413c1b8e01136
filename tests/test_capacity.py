"""What a fit will take, said before it begins."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from vertebra.cli.app import app
from vertebra.models import capacity
from vertebra.models.capacity import plan
from vertebra.tables.passes import ROWS_SEARCHED
from vertebra.terms import additive


def test_a_plan_grows_with_rows_inputs_and_terms_and_shrinks_with_workers():
    small = plan(10_000, 10)
    assert plan(20_000, 10).work > small.work
    assert plan(10_000, 20).work > small.work
    many = plan(10**8, 20, memory=1.5, workers=1)
    assert plan(10**8, 20, memory=1.5, terms=20).passes > many.passes
    # passes are shared; the search is not
    again = plan(10**8, 20, memory=1.5, workers=10)
    assert (again.search, again.passes) == (many.search, many.passes)
    saved = many.passes - many.passes / 10
    assert many.seconds(2) - again.seconds(2) == pytest.approx(saved)


def test_rows_read_some_at_a_time_take_no_memory_of_the_table():
    few, many = (plan(n, 20, memory=1.5) for n in (10**7, 10**9))
    assert many.memory < 1.2 * few.memory < 4 * 2**30
    assert plan(10**7, 20).memory > 8 * 20 * 10**7


@pytest.mark.parametrize("memory", [None, 2.0])
def test_a_plan_has_the_rows_that_are_searched(memory):
    assert plan(10_000, 20, memory=memory).searched == 10_000
    at_most, more, many = (plan(n, 20, memory=memory) for n in (ROWS_SEARCHED, 60_000, 10**8))
    assert at_most.searched == more.searched == many.searched == ROWS_SEARCHED == additive.ROWS_SEARCHED
    # what lies beyond is passed over
    assert at_most.search == more.search == many.search
    assert at_most.passes < more.passes < many.passes


@pytest.mark.parametrize(("inputs", "triples"), [(2, 0), (10, 120), (60, 34_220), (61, 0)])
def test_what_is_looked_at_is_counted(inputs, triples):
    found = plan(1000, inputs)
    assert (found.pairs, found.triples) == (inputs * (inputs - 1) // 2, triples)


def test_the_command_line_plans_and_fits_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(np.random.default_rng(0).random((50, 4)), columns=["a", "b", "c", "y"])
    table.to_csv("table.csv", index=False)
    done = CliRunner().invoke(app, ["fit", "table.csv", "--target", "y", "--drop", "c", "--plan"])
    assert done.exit_code == 0, done.output
    assert "50 rows × 2 inputs; to be looked at: 2 main effects, 1 pairs" in done.output
    assert not (tmp_path / "table").exists()
    done = CliRunner().invoke(app, ["fit", "table.csv", "--target", "y", "--plan", "--workers", "3", "--json"])
    said, wanted = json.loads(done.output), plan(50, 3, workers=3)
    assert (said["rows"], said["inputs"], said["workers"]) == (50, 3, 3)
    assert said["bytes"] == wanted.memory
    table.to_parquet("table.parquet")
    done = CliRunner().invoke(app, ["fit", "table.parquet", "--target", "y", "--plan", "--memory", "2", "--json"])
    assert json.loads(done.output)["passes"] == plan(50, 3, memory=2.0).passes > 0.0


@pytest.mark.parametrize(
    ("flags", "words"), [(["--plan", "--workers", "0"], "at least 1"), (["--workers", "2"], "goes with --plan")]
)
def test_workers_that_say_nothing_are_refused(flags, words, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,y\n1,2\n2,3\n")
    done = CliRunner().invoke(app, ["fit", str(path), "--target", "y", *flags])
    assert done.exit_code == 2
    assert words in done.output


def test_what_is_said_has_units():
    lines = "\n".join(capacity.described(plan(10**9, 1000, memory=1.5, workers=64), 2))
    assert "1,000,000,000 rows × 1,000 inputs" in lines
    assert " h of one core's work, which 64 share" in lines
    assert "GiB for each worker" in lines
