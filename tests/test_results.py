"""The runner runs what is missing and no more; tables are those of the csv files, quoted figures the recorded ones."""

import argparse
import csv
import importlib
import os
import pathlib
import signal
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _experiments():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield
    sys.path.remove(str(ROOT / "experiments"))


class Task(NamedTuple):
    name: str
    seed: int


def square(task: Task) -> dict[str, float]:
    if task.name == "bad":
        raise ValueError("no")
    return {"value": float(task.seed**2)}


def test_the_runner_resumes_and_does_not_record_what_failed(tmp_path, capsys):
    runner = importlib.import_module("runner")
    tasks = [Task("a", 2), Task("bad", 0), Task("a", 3)]
    path = tmp_path / "out.csv"
    assert runner.run(path, tasks[:2], square, columns=["value"], n_processes=1) == 1
    assert [(row["name"], row["value"]) for row in runner.read(path)] == [("a", "4")]
    assert runner.run(path, tasks[::2], square, columns=["value"], n_processes=2, fresh=True) == 0
    assert [row["value"] for row in runner.read(path)] == ["4", "9"]
    assert runner.run(path, tasks[::2], square, columns=["value"], n_processes=1) == 0
    assert len(runner.read(path)) == 2
    assert {"seconds", "cpu_seconds", "peak_mb", "python", "vertebra", "jax"} <= set(runner.read(path)[0])
    assert "2 of 2 are there, 0 to run" in capsys.readouterr().out


def test_the_best_is_bold_and_so_is_what_is_within_a_standard_error():
    render = importlib.import_module("render")
    (a,), (b,), (c,), (d,) = render.with_best([[(1.0, 0.1), (1.05, 0.1), (1.2, 0.1), None]], [2], least=True)
    assert (a, b, c, d) == ("**1.00 ± 0.10**", "**1.05 ± 0.10**", "1.20 ± 0.10", "")
    (a,), (b,) = render.with_best([[(1.0, np.nan), (2.0, np.nan)]], [1], least=False)
    assert (a, b) == ("1.0", "**2.0**")


def test_differences_are_paired_split_by_split():
    render = importlib.import_module("render")
    ours = pd.DataFrame(
        {"set": "boston", "split": [1, 0], "method": "skeleton", "rmse": [2.0, 1.0], "log_density": [0.0, 0.0]}
    )
    other = pd.DataFrame(
        {"set": "boston", "split": [0, 1, 2], "rmse": [3.0, 5.0, 9.0], "log_density": [-1.0, -2.0, 0.0]}
    )
    lines = render.paired(ours, other, "another", ["boston"])
    assert any("Skeleton, default, RMSE | -2.50 ± 0.50 [2]" in line for line in lines)
    assert any("log density | 1.500 ± 0.500 [2]" in line for line in lines)


def test_the_committed_results_are_those_of_the_csv_files():
    """All but published figures, which need their folder."""
    render = importlib.import_module("render")
    said = set((ROOT / "experiments/RESULTS.md").read_text().splitlines())
    again = [line for line in render.render(ROOT / "experiments/results").splitlines() if "±" in line]
    assert len(again) > 5
    assert not [line for line in again if line not in said]


def test_quoted_figures_of_tables_are_the_recorded_ones():
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/how-well.md")]
    rows = pd.read_csv(ROOT / "benchmarks/results/tables.csv")
    mean = rows.groupby(["table", "method"])[["auc", "log_loss", "rmse", "seconds"]].mean()
    for table, title, quantities in (
        ("adult", "adult, official split: AUC, log loss", (("auc", 4), ("log_loss", 4))),
        ("breast_cancer", "breast cancer, five splits: AUC, log loss", (("auc", 4), ("log_loss", 3))),
        ("california_housing", "California housing, five splits: RMSE", (("rmse", 3),)),
    ):
        cells = [
            ", ".join(f"{mean.loc[(table, who), name]:.{digits}f}" for name, digits in quantities)
            for who in ("vertebra", "ebm")
        ]
        ratio = mean.loc[(table, "vertebra"), "seconds"] / mean.loc[(table, "ebm"), "seconds"]
        assert all(f"| {title} | {cells[0]} | {cells[1]} | {ratio:.2f} |" in page for page in pages)


def test_quoted_figures_of_unseen_tables_are_the_recorded_ones():
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/how-well.md")]
    rows = pd.read_csv(ROOT / "benchmarks/results/unseen.csv")
    errors = rows.pivot_table(index="table", columns="method", values="error")
    assert len(errors) == 30
    assert "Thirty real tables" in pages[0]
    for method, name in (
        ("ebm", "explainable boosting machine (EBM)"),
        ("trees", "boosted trees"),
        ("linear", "linear model"),
    ):
        ratio = (errors["terms"] / errors[method]).dropna()
        better, behind, mean = (ratio < 1.0).sum(), (ratio > 1.01).sum(), np.exp(np.log(ratio).mean())
        assert all(f"| {name} | {len(ratio)} | {better} | {behind} | {mean:.3f} |" in page for page in pages)
    seconds = rows.pivot_table(index="table", columns="method", values="seconds")[["terms", "ebm"]].dropna().sum()
    assert f"took {seconds['terms'] / seconds['ebm']:.2f} times as long as EBM's on the 27 tables" in pages[1]
    held = rows["coverage"].dropna()
    assert f"hold {held.mean():.3f} of the new rows, in the mean of {len(held)} tables" in pages[1]
    assert f"({held.min():.3f} to\n{held.max():.3f})" in pages[1]
    own = rows[rows["method"] == "terms"]
    (fewest, most), inputs = own["rows"].agg(["min", "max"]), own["inputs"]
    assert f"{fewest:,} to {most:,} rows to fit, {inputs.min()} to {inputs.max()} inputs" in pages[1]
    worst = (errors["terms"] / errors["ebm"]).dropna()
    assert worst.idxmax() == "ames-Sale_Price"
    assert f"`ames`, {worst.max():.2f} times EBM's error" in pages[1]


def test_quoted_coverage_is_the_recorded_one():
    readme = " ".join((ROOT / "docs/how-well.md").read_text().split())
    with (ROOT / "experiments/results/intervals.csv").open() as file:
        rows = list(csv.DictReader(file))
    means = {
        kind: [
            np.mean([float(r["coverage"]) for r in rows if (r["set"], r["conformal"]) == (name, kind)]) for name in sets
        ]
        for kind, sets in ((kind, sorted({r["set"] for r in rows})) for kind in ("False", "True"))
    }
    assert len(means["True"]) == 9
    low, high = 100 * min(means["False"]), 100 * max(means["False"])
    assert f"cover between {low:.1f} % and {high:.1f} % of test rows" in readme
    low, high = 100 * min(means["True"]), 100 * max(means["True"])
    assert f"with `conformal=True` between {low:.1f} % and {high:.1f} %" in readme


def test_quoted_figures_of_the_uci_sets_are_the_recorded_ones():
    readme = (ROOT / "docs/how-well.md").read_text()
    rows = pd.read_csv(ROOT / "experiments/results/uci.csv")
    sets = sorted(set(rows["set"]))
    assert f"| | {' | '.join(sets)} |" in readme
    for method, name in (("additive", "AdditiveRegressor"), ("skeleton", "SkeletonRegressor")):
        own = rows[rows["method"] == method].groupby("set")[["rmse", "log_density"]].mean()
        rmse = " | ".join(f"{own.loc[s, 'rmse']:.3g}" for s in sets)
        density = " | ".join(f"{own.loc[s, 'log_density']:.2f}" for s in sets)
        assert f"| `{name}()`, RMSE | {rmse} |" in readme
        assert f"| `{name}()`, log density | {density} |" in readme


@pytest.mark.slow
def test_everything_is_run_again_by_one_command_and_goes_on_after_a_kill(tmp_path):
    """A study in its small form: killed after the first of two fits, then to the end, then nothing is left."""
    command = [sys.executable, str(ROOT / "experiments/reproduce.py"), "--quick", "--jobs", "1"]
    command += ["--only", "experiments/schemes"]
    options = {
        "env": {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"VERTEBRA_RESULTS": str(tmp_path)},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    rows = tmp_path / "schemes-quick.csv"
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        for line in process.stdout:
            if line.startswith("1/2"):
                os.killpg(process.pid, signal.SIGKILL)
    (first,) = (line for line in rows.read_text().splitlines()[1:] if line)
    whole = subprocess.run(command, timeout=600, check=False, **options)
    assert whole.returncode == 0, whole.stdout
    assert "schemes-quick.csv: 1 of 2 are there, 1 to run." in whole.stdout
    assert "1 studies ended, 0 failed, 0 left out" in whole.stdout
    assert first in rows.read_text().splitlines()
    assert len(pd.read_csv(rows)) == 2
    stamps = importlib.import_module("stamps")
    # one state of the code, though it was resumed
    assert stamps.read(rows).code == stamps.digest_of(ROOT / "experiments/schemes.py")
    again = subprocess.run(command, timeout=60, check=True, **options).stdout
    assert "experiments/schemes: done, in " in again

    # what another state of the code left is put aside, and all of it is run anew
    stamps.write(rows, stamps.read(rows)._replace(code="of another"))
    reproduce = importlib.import_module("reproduce")
    study = reproduce.Study("experiments/schemes.py", is_quick=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "RESULTS", tmp_path)
        reproduce.prepared(study, "of today", is_quick=True)
    assert not rows.exists()
    assert first in (tmp_path / "schemes-quick.csv-before").read_text()


def test_every_study_of_a_results_file_is_run_again_by_the_one_command():
    reproduce, stamps = importlib.import_module("reproduce"), importlib.import_module("stamps")
    made = {path.resolve() for study in reproduce.STUDIES for path in study.files(is_quick=False)}
    assert [path.name for path in stamps.results() if path.resolve() not in made] == []
    names = [study.name for study in reproduce.STUDIES]
    assert len(set(names)) == len(names)
    for study in reproduce.STUDIES:
        said = (ROOT / study.script).read_text()
        assert "--quick" in said or not study.is_quick
        assert study.jobs in said or study.jobs == "env"
    asked = argparse.Namespace(gpu=False, data=None)
    lacking = {study.name: reproduce.lacking(study, asked) for study in reproduce.STUDIES}
    assert lacking["benchmarks/gpu-additive"] == "a GPU, and --gpu"
    assert lacking["experiments/intervals"] == "the tables: --data, or VERTEBRA_DATA"
    assert lacking["experiments/schemes"] == ""
