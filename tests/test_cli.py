"""The command line as its users meet it: good input, bad input, and the words for both."""

import gzip
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vertebra as vb
from vertebra.cli import options
from vertebra.cli.app import app
from vertebra.cli.folder import folder_of
from vertebra.cli.tablefile import encoded, in_flags
from vertebra.machine.control import Control, Ended
from vertebra.models.networks import SCHEMES_OF_TERMS
from vertebra.models.settings import NOISES
from vertebra.tables import weighting

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs/command-line.md"
COMMANDS = ["fit", "predict", "explain", "evaluate", "compare", "effects", "report", "info", "demo"]
HOSTILE = ["[bold]x[/]", "<script>alert(1)</script>", "two\nlines", "\x1b[31mred", "mean", "intercept"]


def run(*arguments, stdin=None, **more):
    """In this process: what an import costs is paid once."""
    return CliRunner().invoke(app, [str(each) for each in arguments], input=stdin, **more)


def start(*arguments, stdin=None):
    """As a user starts it."""
    command = [sys.executable, "-m", "vertebra.cli", *map(str, arguments)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=300, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def succeed(*arguments, **more):
    done = run(*arguments, **more)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refusal(status, *arguments, **more):
    """The one line of an error."""
    done = run(*arguments, **more)
    assert done.exit_code == status, done.output
    assert done.stdout == ""
    assert re.fullmatch(r"vertebra: [^\n]+\n", done.stderr)
    return done.stderr


def flats(n=240, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.gamma(4.0, 20.0, n).round(1),
            "district": rng.choice(["north", "south", "harbour"], n),
            "built": pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 12000, n), "D"),
            "lift": rng.random(n) < 0.4,
        }
    )
    table.loc[rng.random(n) < 0.1, "size"] = np.nan
    noise = rng.normal(0, 20, n)
    table["rent"] = 400 + 6 * table["size"].fillna(60) + 150 * (table["district"] == "harbour") + noise
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables: flats.csv has five rows without rent, new.csv has no rent, kinds.csv has three classes."""
    folder = tmp_path_factory.mktemp("tables")
    table = flats()
    table.loc[:4, "rent"] = np.nan
    table.to_csv(folder / "flats.csv", index=False)
    table.to_parquet(folder / "flats.parquet")
    table.drop(columns="rent").head(30).to_csv(folder / "new.csv", index=False)
    dear = pd.cut(table["rent"].fillna(600), [-np.inf, 750, 950, np.inf], labels=["low", "[mid]", "high"])
    table.assign(kind=dear.astype(str)).drop(columns="rent").to_csv(folder / "kinds.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def rent(folder):
    """A folder that `fit` wrote, started as a user does, and what it said."""
    status, out, err = start("fit", folder / "flats.csv", "--target", "rent", "--out", folder / "rent", "--no-report")
    assert status == 0, err
    return folder / "rent", out, err


@pytest.fixture(scope="module")
def kinds(folder):
    out = folder / "kinds"
    succeed("fit", folder / "kinds.csv", "--target", "kind", "--out", out, "--no-report", "--quiet", "--holdout", 0)
    return out


# --- fit --------------------------------------------------------------------------------------------------------------


def test_fit_writes_its_files_and_says_what_it_did(rent):
    folder, out, err = rent
    assert sorted(path.name for path in folder.iterdir()) == ["effects.csv", "model.vertebra"]
    assert "240 rows, 4 inputs (1 number, 1 category, 1 date, 1 boolean)" in out
    assert "Left out 5 rows without a target." in out
    assert "Target rent: regression (numbers)." in out
    assert "Accuracy on 47 rows" in out
    assert re.search(r"size +\d+\.\d +\d+\.?\d* – ", out)
    for row in ("model", "linear", "mean"):
        assert re.search(rf"^{row} +\d", out, flags=re.MULTILINE)
    assert str(vb.load(folder / "model.vertebra").diagnostics_) in out
    assert str(folder / "model.vertebra") in out
    assert "AdditiveRegressor" in err
    assert "AdditiveRegressor" not in out


def test_values_that_stand_for_gaps_do_so_at_fit_and_in_predictions(folder, tmp_path):
    table = flats().iloc[5:].reset_index(drop=True).assign(built=lambda own: own["built"].astype(str))
    first = table["district"].iloc[0]
    marked = table.assign(size=table["size"].where(table.index % 9 > 0, -999.0), lift=0)
    marked.to_csv(tmp_path / "marked.csv", index=False)
    asked = ["--missing", "-999", "--missing", f"district={first}", "--holdout", 0, "--no-report", "--quiet"]
    succeed("fit", tmp_path / "marked.csv", "--target", "rent", "--out", tmp_path / "rent", *asked)
    model = vb.load(tmp_path / "rent")
    has_missing = {column.name: column.has_missing for column in model.schema_.columns}
    assert has_missing["size"]
    assert has_missing["district"]
    assert not has_missing["lift"]
    new = marked.head(4).assign(size=[-999.0, 50.0, 50.0, np.nan], district=[first, first, None, first])
    new.to_csv(tmp_path / "new.csv", index=False)
    found = pd.read_csv(io.StringIO(succeed("predict", tmp_path / "rent", tmp_path / "new.csv")))
    gone = new.assign(size=[np.nan, 50.0, 50.0, np.nan], district=None)
    np.testing.assert_allclose(found.iloc[:, 0], model.predict(gone), rtol=1e-9)
    refused = run("fit", tmp_path / "marked.csv", "--target", "rent", "--out", tmp_path / "no", "--missing", "sise=0")
    assert refused.exit_code == 2
    assert "--missing 'sise' is not a column" in refused.stderr
    assert "size" in refused.stderr


def test_codes_are_listed_in_full_and_at_their_values(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"code": rng.choice([10115, 20095, 80331], 200)})
    table.assign(y=(table["code"] == 20095) + 0.1 * rng.normal(size=200)).to_csv(tmp_path / "t.csv", index=False)
    asked = ["--task", "regression", "--holdout", 0, "--no-report", "--quiet"]
    succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *asked)
    head, *rows = succeed("effects", tmp_path / "m", "--term", "code").splitlines()
    assert head == "What code adds, in units of y:"
    assert [row.split()[0] for row in rows] == ["code", "10115", "20095", "80331"]


def test_the_model_is_of_all_rows_and_its_accuracy_of_rows_left_out(rent):
    model = vb.load(rent[0])
    table = flats().iloc[5:].reset_index(drop=True)
    whole = vb.AdditiveRegressor(feature_types={"built": "datetime"}, random_state=0)
    whole.fit(table.drop(columns="rent").assign(built=table["built"].astype(str)), table["rent"])
    np.testing.assert_array_equal(model.predict(table), whole.predict(table))
    assert model.evaluation_.n == 47
    assert model.target_names_ == ["rent"]


def test_effects_csv_holds_the_effects_to_the_last_digit(rent):
    table = pd.read_csv(rent[0] / "effects.csv")
    effects = vb.load(rent[0] / "model.vertebra").effects()
    assert table["term"].tolist() == [" & ".join(term) for term in effects["term"]]
    words = ["term", "group"]
    np.testing.assert_array_equal(table.drop(columns=words), effects.drop(columns=words).astype(float))
    assert table["group"].isna().tolist() == (effects["group"] == "").tolist()


def test_parquet_gives_what_csv_gives(folder, rent, tmp_path):
    succeed("fit", folder / "flats.parquet", "--target", "rent", "--out", tmp_path, "--no-report", "--holdout", 0)
    assert (tmp_path / "effects.csv").read_bytes() == (rent[0] / "effects.csv").read_bytes()


def test_fit_reads_a_pipe_and_prints_one_json_document(folder, tmp_path):
    table = (folder / "flats.csv").read_bytes()
    status, out, err = start(
        "fit", "-", "--target", "rent", "--out", tmp_path / "a", "--json", "--no-report", stdin=table
    )
    assert (status, err) == (0, "")
    document = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    model = vb.load(tmp_path / "a/model.vertebra")
    assert document["rows"] == 235
    assert document["rows_left_out"] == 5
    assert (document["task"], document["reason"]) == ("regression", "numbers")
    assert document["evaluation"]["scores"] == model.evaluation_.scores
    assert [tuple(row["term"]) for row in document["effects"]] == model.effects()["term"].tolist()
    assert [row["strength"] for row in document["effects"]] == model.effects()["strength"].tolist()
    assert document["files"]["model.vertebra"] == str(tmp_path / "a/model.vertebra")


def test_quiet_prints_nothing(folder, tmp_path):
    done = run("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--no-report", "--quiet")
    assert (done.exit_code, done.output) == (0, "")


def test_the_settings_reach_the_estimator(folder, tmp_path):
    succeed(
        *("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--no-report", "--holdout", 0),
        *("--likelihood", "student_t", "--conformal", "--seed", 3, "--time-budget", 60),
        *("--drop", "lift", "--type", "built=category", "--type", "size=number"),
    )
    model = vb.load(tmp_path / "model.vertebra")
    assert (model.likelihood, model.conformal, model.random_state, model.time_budget) == ("student_t", True, 3, 60)
    assert model.schema_.sources == ("size", "district", "built")
    assert [column.kind for column in model.schema_.columns] == ["number", "category", "category"]
    assert model.evaluation_ is None or "left out in turn" in model.evaluation_.method.words


def test_weights_are_those_of_the_rows(tmp_path):
    """A row of weight 2 is a row that stands there twice, and one of weight 0 is not there."""
    table = flats(80).assign(weight=np.tile([0, 1, 2, 1], 20))
    table.to_csv(tmp_path / "weighted.csv", index=False)
    twice = table.loc[table.index.repeat(table["weight"])].drop(columns="weight")
    twice.to_csv(tmp_path / "twice.csv", index=False)
    common = ("--target", "rent", "--no-report", "--holdout", 0)
    succeed("fit", tmp_path / "weighted.csv", "--weight", "weight", "--out", tmp_path / "a", *common)
    succeed("fit", tmp_path / "twice.csv", "--out", tmp_path / "b", *common)
    one, other = (vb.load(tmp_path / name / "model.vertebra") for name in "ab")
    np.testing.assert_array_equal(one.predict(table), other.predict(table))


def test_the_names_of_likelihoods_and_schemes_are_all_there():
    assert set(get_args(options.Likelihood)) == set(NOISES)
    assert get_args(options.Weights) == weighting.KINDS
    assert set(get_args(options.Scheme)) == {"auto", *SCHEMES_OF_TERMS}


def test_a_folder_that_was_made_for_nothing_is_taken_away(folder, tmp_path):
    refusal(2, "fit", folder / "flats.csv", "--target", "rant", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten_without_force(folder, rent, tmp_path):
    before = (rent[0] / "model.vertebra").read_bytes()
    # the table is not even looked for: refused before any work
    line = refusal(2, "fit", "nowhere.csv", "--target", "rent", "--out", rent[0])
    assert "model.vertebra is there already: give --force to overwrite it." in line
    assert (rent[0] / "model.vertebra").read_bytes() == before
    (tmp_path / "effects.csv").write_text("mine")
    more = ("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--no-report", "--holdout", 0)
    assert "effects.csv is there already" in refusal(2, *more)
    assert [path.name for path in tmp_path.iterdir()] == ["effects.csv"]
    succeed(*more, "--force")
    assert (tmp_path / "effects.csv").read_text().startswith("term,")


# --- predict ----------------------------------------------------------------------------------------------------------


def predicted(text, **more):
    return pd.read_csv(io.StringIO(text), **more)


def test_predictions_are_pythons_to_the_last_digit(folder, rent):
    status, out, err = start("predict", rent[0], folder / "new.csv")
    assert (status, err) == (0, "")
    model, new = vb.load(rent[0] / "model.vertebra"), pd.read_csv(folder / "new.csv")
    table = predicted(out)
    mean, sd = model.predict(new, return_std=True)
    limits = model.predict_interval(new)
    for name, values in zip(table.columns, (mean, sd, limits[:, 0], limits[:, 1]), strict=True):
        np.testing.assert_array_equal(table[name], values, err_msg=name)
    assert table.columns.tolist() == ["prediction", "sd", "lower", "upper"]


def test_predict_reads_a_pipe_and_a_model_file(folder, rent):
    new = (folder / "new.csv").read_bytes()
    status, out, err = start("predict", rent[0] / "model.vertebra", "-", stdin=new)
    assert (status, err) == (0, "")
    assert out == succeed("predict", rent[0], folder / "new.csv")


@pytest.mark.parametrize(
    ("ending", "read"),
    [
        ("csv", pd.read_csv),
        ("csv.gz", lambda path: pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))),
        ("tsv", lambda path: pd.read_csv(path, sep="\t")),
        ("parquet", pd.read_parquet),
        ("pq", pd.read_parquet),
    ],
)
def test_every_kind_of_table_is_read_and_written(ending, read, folder, rent, tmp_path):
    new = pd.read_csv(folder / "new.csv")
    (tmp_path / f"in.{ending}").write_bytes(encoded(new, f".{ending}"))
    assert succeed("predict", rent[0], tmp_path / f"in.{ending}", "--out", tmp_path / f"out.{ending}") == ""
    expected = predicted(succeed("predict", rent[0], folder / "new.csv"))
    pd.testing.assert_frame_equal(read(tmp_path / f"out.{ending}"), expected, check_exact=True)


def test_level_and_quantiles_are_pythons(folder, rent):
    table = predicted(succeed("predict", rent[0], folder / "new.csv", "--level", "0.5", "--quantiles", "0.25,0.75,0.9"))
    model, new = vb.load(rent[0] / "model.vertebra"), pd.read_csv(folder / "new.csv")
    np.testing.assert_array_equal(table[["lower", "upper"]], model.predict_interval(new, level=0.5))
    np.testing.assert_array_equal(table[["q0.25", "q0.75", "q0.9"]], model.predict_quantiles(new, [0.25, 0.75, 0.9]))


def test_terms_sum_to_the_prediction(folder, rent):
    table = predicted(succeed("predict", rent[0], folder / "flats.csv", "--terms"))  # the target is to spare
    assert {"intercept", "term:size", "term:district"} <= set(table.columns)
    # rounding error of a sum of few numbers below 10⁴
    np.testing.assert_allclose(table.iloc[:, 4:].sum(axis=1), table["prediction"], rtol=1e-10)


def test_classes_come_with_their_probabilities(folder, kinds):
    table = predicted(succeed("predict", kinds, folder / "new.csv"))
    model, new = vb.load(kinds / "model.vertebra"), pd.read_csv(folder / "new.csv")
    names = ["probability_[mid]", "probability_high", "probability_low"]
    limits = [f"{end}_{name.removeprefix('probability_')}" for end in ("lower", "upper") for name in names]
    assert table.columns.tolist() == ["prediction", *names, *limits]
    assert table["prediction"].tolist() == model.predict(new).tolist()
    np.testing.assert_array_equal(table[names], model.predict_proba(new))
    only = predicted(succeed("predict", kinds, folder / "new.csv", "--proba"))
    assert only.columns.tolist() == [*names, *limits]


def test_several_targets_have_columns_of_their_own(tmp_path):
    table = flats(120).assign(heating=lambda t: 3 * t["size"].fillna(60) + np.arange(120))
    table.to_csv(tmp_path / "flats.csv", index=False)
    common = ("--target", "rent", "--target", "heating", "--out", tmp_path, "--no-report")
    out = succeed("fit", tmp_path / "flats.csv", *common)
    assert "regression (several targets)" in out
    assert "Effects on heating:" in out
    assert "95 % prediction intervals of heating cover" in out
    predictions = predicted(succeed("predict", tmp_path, tmp_path / "flats.csv"))
    assert predictions.columns[:5].tolist() == [
        *("prediction_rent", "sd_rent", "lower_rent", "upper_rent", "prediction_heating")
    ]
    model = vb.load(tmp_path / "model.vertebra")
    x = pd.read_csv(tmp_path / "flats.csv")
    np.testing.assert_array_equal(predictions[["prediction_rent", "prediction_heating"]], model.predict(x))
    effects = predicted(succeed("effects", tmp_path, "--output", "heating", "--csv"))
    np.testing.assert_array_equal(effects["strength"], model.effects(output=1)["strength"])
    assert pd.read_csv(tmp_path / "effects.csv")["output"].unique().tolist() == ["rent", "heating"]


def test_a_model_of_an_array_takes_columns_by_name_or_by_place(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.random((60, 2))
    model = vb.AdditiveRegressor(random_state=0).fit(x, x[:, 0])
    model.save(tmp_path / "array.vertebra")
    for names in (["x0", "x1"], ["a", "b"]):
        pd.DataFrame(x, columns=names).to_csv(tmp_path / "x.csv", index=False)
        table = predicted(succeed("predict", tmp_path / "array.vertebra", tmp_path / "x.csv"))
        np.testing.assert_array_equal(table["prediction"], model.predict(x, return_std=True)[0])
    pd.DataFrame(x[:, ::-1], columns=["x1", "x0"]).assign(y=0).to_csv(tmp_path / "x.csv", index=False)
    table = predicted(succeed("predict", tmp_path / "array.vertebra", tmp_path / "x.csv"))
    np.testing.assert_array_equal(table["prediction"], model.predict(x, return_std=True)[0])


def test_columns_are_kept_and_those_that_no_term_reads_need_not_be_there(folder, rent, tmp_path):
    new = pd.read_csv(folder / "new.csv").assign(ID=lambda t: [f"f{k}" for k in t.index])
    new.to_csv(tmp_path / "ids.csv", index=False)
    kept = predicted(succeed("predict", rent[0], tmp_path / "ids.csv", "--keep", "ID,size"))
    assert kept.columns.tolist() == ["ID", "size", "prediction", "sd", "lower", "upper"]
    pd.testing.assert_frame_equal(kept[["ID", "size"]], new[["ID", "size"]])
    used = vb.load(rent[0]).model_.sources
    assert "lift" not in used
    new[used].to_csv(tmp_path / "used.csv", index=False)
    fewer = predicted(succeed("predict", rent[0], tmp_path / "used.csv"))
    pd.testing.assert_frame_equal(fewer, kept.iloc[:, 2:])
    new.rename(columns={"size": "prediction"}).assign(size=1.0).to_csv(tmp_path / "ids.csv", index=False)
    assert "rename it" in refusal(2, "predict", rent[0], tmp_path / "ids.csv", "--keep", "prediction")


def test_a_fit_writes_beside_no_table_and_lists_columns_before_it_looks_where(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flats").mkdir()
    (tmp_path / "flats/model.vertebra").write_text("an earlier one")
    assert "--target COLUMN says what to predict: there are size" in refusal(2, "fit", folder / "flats.csv")
    assert "flats/model.vertebra is there already" in refusal(2, "fit", folder / "flats.csv", "--target", "rent")
    assert folder_of("measurements/") == pathlib.Path("measurements")
    (tmp_path / "measurements").mkdir()
    names = {"measurements/": "measurements-model", "a/Flats.CSV.gz": "Flats", "-": "model", "x.tar.parquet": "x.tar"}
    assert {name: str(folder_of(name)) for name in names} == names


def test_hints_are_what_a_shell_takes():
    words = """`missing_values={"Total Charges": 'not yet'}`, `missing_values={"it's": -999}`"""
    assert shlex.split(in_flags(words)) == ["--missing", "Total Charges=not yet,", "--missing", "it's=-999"]


@pytest.mark.parametrize(
    ("command", "usage"),
    [("evaluate {t} {t}", "evaluate MODEL TABLE"), ("effects {t}", "effects MODEL"), ("info {t}", "info MODEL")],
)
def test_a_table_in_the_place_of_a_model_is_told_by_the_command_at_hand(folder, command, usage):
    table = folder / "flats.csv"
    line = refusal(2, *command.format(t=table).split())
    assert f"is a table, and MODEL comes first: vertebra {usage}." in line


@pytest.mark.filterwarnings("default")
def test_large_files_need_only_what_the_model_reads_and_new_levels_are_counted(folder, rent, tmp_path, monkeypatch):
    new = pd.read_csv(folder / "new.csv")[vb.load(rent[0]).model_.sources]
    assert "lift" not in new
    new.loc[[1, 2], "district"] = ["West", "east"]
    new.to_parquet(tmp_path / "new.parquet", row_group_size=2)
    monkeypatch.setattr("vertebra.cli.predict.is_large", lambda name: True)
    done = run("predict", rent[0], tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "vertebra: 2 rows with a new level of district, 'West' the first\n" in done.stderr
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == len(new)


@pytest.mark.filterwarnings("default")
def test_rows_that_the_fit_did_not_know_are_counted_on_standard_error(folder, rent, tmp_path):
    new = pd.read_csv(folder / "new.csv")
    new.loc[[1, 2], "district"] = ["West", "east"]
    new.loc[[3, 4, 5], "size"] = 5000.0
    new.to_csv(tmp_path / "odd.csv", index=False)
    done = run("predict", rent[0], tmp_path / "odd.csv")
    assert done.exit_code == 0
    assert "vertebra: 2 rows with a new level of district, 'West' the first\n" in done.stderr
    assert "never seen" not in done.stderr
    assert "vertebra: warning: 3 rows lie outside the range of the fit: size (3)." in done.stderr


def test_a_table_of_another_country_is_fitted_and_predicted_as_it_is(folder, rent, tmp_path):
    table = pd.read_csv(folder / "flats.csv")
    table.to_csv(tmp_path / "flats.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    written = ("--sep", ";", "--decimal", ",", "--encoding", "utf-16")
    asked = ("--target", "rent", "--out", tmp_path / "m", "--no-report", "--holdout", 0)
    succeed("fit", tmp_path / "flats.csv", *asked, *written)
    ours, theirs = (pd.read_csv(each / "effects.csv") for each in (tmp_path / "m", rent[0]))
    # pandas reads the last digit of a decimal comma otherwise: rows, ordered by a hash, are drawn again in another
    # order where bands hold how well they show their distribution, and sds of eight such draws move by a per cent
    pd.testing.assert_frame_equal(ours[["term", "order", "probability"]], theirs[["term", "order", "probability"]])
    np.testing.assert_allclose(ours["strength"], theirs["strength"], rtol=2e-3)
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.05)
    table.to_excel(tmp_path / "flats.xlsx", index=False, sheet_name="all")
    ours = succeed("predict", rent[0], folder / "flats.csv")
    assert succeed("predict", rent[0], tmp_path / "flats.xlsx", "--sheet", "all") == ours


# --- effects, info, report, demo --------------------------------------------------------------------------------------


def test_effects_are_pythons_as_a_table_as_csv_and_as_json(rent):
    effects = vb.load(rent[0] / "model.vertebra").effects(order=1, level=0.8)
    text = succeed("effects", rent[0], "--order", 1, "--level", 0.8)
    assert "80 % interval" in text
    table = predicted(succeed("effects", rent[0], "--order", 1, "--level", 0.8, "--csv"))
    rows = json.loads(succeed("effects", rent[0], "--order", 1, "--level", 0.8, "--json"))["effects"]
    for name in ("strength", "lower", "upper", "sobol", "probability"):
        np.testing.assert_array_equal(table[name], effects[name])
        assert [row[name] for row in rows] == effects[name].tolist()
    for term in effects["term"]:
        assert re.search(rf"^{re.escape(' × '.join(term))} ", text, flags=re.MULTILINE)


def test_totals_are_pythons_as_a_table_as_csv_and_as_json(rent):
    totals = vb.load(rent[0] / "model.vertebra").totals(0.8)
    text = succeed("effects", rent[0], "--totals", "--level", 0.8)
    assert "80 % interval" in text
    table = predicted(succeed("effects", rent[0], "--totals", "--level", 0.8, "--csv"))
    rows = json.loads(succeed("effects", rent[0], "--totals", "--level", 0.8, "--json"))["totals"]
    for name in totals:
        np.testing.assert_array_equal(table[name], totals[name])
        assert [row[name] for row in rows] == totals[name].tolist()
    for name, total in zip(totals["input"], totals["total"], strict=True):
        assert re.search(rf"^{re.escape(name)} .*{total:.1%}", text, flags=re.MULTILINE)


@pytest.mark.parametrize("other", [["--interactions"], ["--order", 2], ["--term", "size"]])
def test_totals_are_of_all_terms(rent, other):
    done = run("effects", rent[0], "--totals", *other)
    assert done.exit_code != 0
    assert "--totals are of all terms" in done.stderr


def test_effects_are_over_the_rows_or_over_all_combinations(rent):
    model = vb.load(rent[0] / "model.vertebra")
    for measure in ("data", "product"):
        table = predicted(succeed("effects", rent[0], "--measure", measure, "--csv"))
        np.testing.assert_array_equal(table["share"], model.effects(measure=measure)["share"])
        points = predicted(succeed("effects", rent[0], "--term", "district", "--measure", measure, "--csv"))
        pd.testing.assert_frame_equal(points, model.effect("district", measure=measure), check_dtype=False)


def test_interactions_that_are_not_there_are_said_to_be_missing(rent):
    assert succeed("effects", rent[0], "--interactions").strip() == "No interaction was found."
    assert succeed("effects", rent[0], "--order", "3").strip() == "No interaction was found."
    assert json.loads(succeed("effects", rent[0], "--interactions", "--json"))["effects"] == []


def test_a_term_is_shown_as_a_function(rent):
    effect = vb.load(rent[0] / "model.vertebra").effect("district")
    text = succeed("effects", rent[0], "--term", "district")
    head, *lines = text.splitlines()
    assert head == "What district adds, in units of rent:"
    assert [line.split()[0] for line in lines] == ["district", "harbour", "north", "south"]
    table = predicted(succeed("effects", rent[0], "--term", "district", "--csv"))
    pd.testing.assert_frame_equal(table, effect, check_dtype=False, check_exact=True)
    points = json.loads(succeed("effects", rent[0], "--term", "size", "--json"))["points"]
    assert points[-1]["size"] is None  # of missing sizes; NaN is no JSON
    assert points[-1]["mean"] == vb.load(rent[0] / "model.vertebra").effect("size")["mean"].iloc[-1]


def test_a_term_is_named_as_it_is_printed_with_dates_and_gaps_in_words(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"hour": rng.uniform(0, 24, 400), "open": rng.choice(["yes", "no"], 400)})
    table["day"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, 400), "D")).strftime("%Y-%m-%d")
    y = np.sin(table["hour"] / 4.0) * (table["open"] == "yes") + pd.to_datetime(table["day"]).dt.day_of_year / 300.0
    table.loc[:15, "hour"] = np.nan
    table.assign(y=y + rng.normal(0, 0.05, 400)).to_csv(tmp_path / "t.csv", index=False)
    succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path, "--no-report", "--holdout", 0, "--quiet")
    apart = succeed("effects", tmp_path, "--term", "hour", "--term", "open", "--csv")
    assert succeed("effects", tmp_path, "--term", "hour × open", "--csv") == apart
    model = vb.load(tmp_path)
    pd.testing.assert_frame_equal(model.effect("open × hour"), model.effect(("hour", "open")))
    pd.testing.assert_frame_equal(model.effect("hour:open"), model.effect(("hour", "open")))
    assert predicted(succeed("effects", tmp_path, "--term", "hour", "--csv"))["hour"].iloc[-1] == "missing"
    assert "\nmissing " in succeed("effects", tmp_path, "--term", "hour")
    days = predicted(succeed("effects", tmp_path, "--term", "day (time)", "--csv"))["day (time)"]
    assert days.iloc[0] == "2024-01-01"
    assert days.str.match(r"2024-\d\d-\d\d").all()


def test_effects_of_a_class_are_asked_for_by_its_name(kinds):
    model = vb.load(kinds / "model.vertebra")
    table = predicted(succeed("effects", kinds, "--output", "low", "--csv"))
    np.testing.assert_array_equal(table["strength"], model.effects(output=2)["strength"])


def test_info_says_what_a_model_is(rent):
    about = json.loads(succeed("info", rent[0], "--json"))
    assert about["kind"] == "AdditiveRegressor"
    assert about["targets"] == ["rent"]
    assert about["format"] == 1
    assert about["bytes"] == (rent[0] / "model.vertebra").stat().st_size
    assert about["rows_fitted"] == 235
    assert {"python", "jax", "numpy"} <= set(about["versions"])
    assert [each["kind"] for each in about["inputs"] if each["column"] == "district"] == ["category"]
    assert ["size"] in about["terms"]
    assert about["evaluation"]["n"] == 47
    text = succeed("info", rent[0])
    for words in ("AdditiveRegressor (regression)", "235", "size", "district", "RMSE", about["diagnostics"]["verdict"]):
        assert words in text


def test_report_is_written_beside_the_model_and_not_over_another(rent, tmp_path):
    model = tmp_path / "model.vertebra"
    model.write_bytes((rent[0] / "model.vertebra").read_bytes())
    assert str(tmp_path / "report.html") in succeed("report", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<html" in page
    assert "is there already" in refusal(2, "report", model)
    succeed("report", model, "--out", tmp_path / "other.html")
    succeed("report", model, "--out", tmp_path / "other.html", "--force")
    assert "<html" in (tmp_path / "other.html").read_text()


def test_a_report_that_cannot_be_made_is_refused_before_any_work(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = refusal(2, "fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path / "new")
    assert "pip install 'vertebra[report]', or leave the report out: --no-report." in line
    assert "a report needs plotly" in refusal(2, "demo", "--out", tmp_path / "new")


def test_fit_writes_a_report(folder, tmp_path):
    out = succeed("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--holdout", 0)
    assert str(tmp_path / "report.html") in out
    assert "<html" in (tmp_path / "report.html").read_text()


def test_demo_fits_prints_and_draws(tmp_path):
    out = succeed("demo", "--data", "f1", "--out", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("effects.csv", "effects.png", "model.vertebra", "report.html")
    ]
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")
    assert "Accuracy on 600 rows" in out
    row = re.search(r"^x3 +(\S+) .* (\S+)$", out, flags=re.MULTILINE)
    # 10 x3 has strength 10/√12 = 2.887; the spread of 3000 rows differs from that of the uniform law by some 1/√3000
    assert float(row[2]) == pytest.approx(2.887, abs=1e-3)
    assert float(row[1]) == pytest.approx(2.887, rel=0.05)
    assert "is there already" in refusal(2, "demo", "--out", tmp_path)


def test_the_default_folder_of_the_demo_is_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "demo-output/model.vertebra").write_text("of an earlier demo")
    out = succeed("demo")
    assert out.startswith("What goes with the progress of diabetes a year later? 442 patients, 10 measurements")
    assert "Wrote demo-output/effects.png" in out
    assert vb.load(tmp_path / "demo-output/model.vertebra").target_names_ == ["progress"]


def test_names_and_classes_that_spreadsheets_would_run_are_text_in_every_csv(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"=1+1": rng.choice(["@x", "-2+3", "c"], 120), "-1": rng.normal(size=120)})
    table["kind"] = np.where((table["=1+1"] == "@x") == (rng.random(120) < 0.9), "=cmd|' /C calc'!A0", "+b")
    table.to_csv(tmp_path / "a.csv", index=False)
    fit = (
        "fit",
        tmp_path / "a.csv",
        "--target",
        "kind",
        "--no-report",
        "--quiet",
        "--holdout",
        0,
        "--out",
        tmp_path / "m",
    )
    succeed(*fit)
    effects = (tmp_path / "m/effects.csv").read_text()
    assert "\n'=1+1," in effects
    assert "'=1+1,mean," in (shown := succeed("effects", tmp_path / "m", "--term", "=1+1", "--csv"))
    assert "\n'@x," in shown
    assert "\n'-2+3," in shown
    predicted = succeed("predict", tmp_path / "m", tmp_path / "a.csv")
    assert set(pd.read_csv(io.StringIO(predicted))["prediction"]) == {"'=cmd|' /C calc'!A0", "'+b"}
    succeed("predict", tmp_path / "m", tmp_path / "a.csv", "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == predicted
    # and as they are, where that is asked for
    raw = succeed("predict", tmp_path / "m", tmp_path / "a.csv", "--raw-text")
    assert set(pd.read_csv(io.StringIO(raw))["prediction"]) == {"=cmd|' /C calc'!A0", "+b"}
    assert "\n@x," in succeed("effects", tmp_path / "m", "--term", "=1+1", "--csv", "--raw-text")
    succeed(*fit, "--raw-text", "--force")
    assert (tmp_path / "m/effects.csv").read_text() == effects.replace("\n'", "\n")


def test_hints_are_flags_in_the_shell_and_arguments_in_python(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 600)
    table = pd.DataFrame({"x": x, "z": rng.uniform(5, 10, 600), "y": x + rng.normal(0, 0.02 + 0.4 * x)})
    table.loc[:9, "z"] = -999
    table["y"] += table["z"].where(table["z"] > 0, 7.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    asked = "--no-report", "--holdout", 0, "--likelihood", "gaussian"
    out = succeed("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path, *asked)
    assert "Try --likelihood heteroscedastic." in out
    assert "--missing 'z=-999' reads it as one" in out
    assert "`" not in out
    said = str(vb.load(tmp_path).diagnostics_)
    assert 'Try `likelihood="heteroscedastic"`.' in said


# --- what goes wrong --------------------------------------------------------------------------------------------------

FIT = "fit {flats} --target rent --out {new}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fit {tables}/flatz.csv --target rent --out {new}", "no such file; did you mean 'flats.csv'?"),
        ("fit {tables} --target rent --out {new}", "cannot be read as Parquet"),
        ("fit {tables}/flats.xls --target rent --out {new}", "Save it as .xlsx, or as CSV."),
        ("fit {flats} --target rant --out {new}", "--target 'rant' is not a column of {flats}; did you mean 'rent'?"),
        ("fit {flats} --target RENT --out {new}", "did you mean 'rent'?"),
        ("fit {flats} --target qqqq --out {new}", "there are size, district, built, lift, rent."),
        (FIT + " --drop lifd", "--drop 'lifd' is not a column of {flats}; did you mean 'lift'?"),
        (FIT + " --weight sise", "--weight 'sise' is not a column of {flats}; did you mean 'size'?"),
        (FIT + " --weight district", "--weight 'district' must hold finite numbers of at least 0, without gaps, got '"),
        (FIT + " --weight size", "--weight 'size' must hold finite numbers of at least 0, without gaps; row "),
        (FIT + " --type bilt=category", "--type 'bilt' is not a column of {flats}; did you mean 'built'?"),
        (FIT + " --type built=date", "'date' is not a kind; did you mean 'datetime'?"),
        (FIT + " --type built", "--type must be COLUMN=KIND, got 'built'."),
        (FIT + " --drop rent", "'rent' is asked for twice"),
        (FIT + " --drop size --drop district --drop built --drop lift", "has no column left to learn from."),
        (FIT + " --task foo", "'foo' is not one of 'auto', 'regression', 'classification'"),
        (FIT + " --likelihood foo", "'foo' is not one of 'auto', 'gaussian'"),
        (FIT + " --scheme foo", "'foo' is not one of 'auto'"),
        (FIT + " --holdout 1", "--holdout must be a share from 0 to 0.9, got 1."),
        (FIT + " --time-budget 0", "--time-budget must be a number of seconds above 0, got 0."),
        (FIT + " --seed -1", "--seed must be a whole number from 0"),
        (FIT + " --foo", "No such option: --foo"),
        (
            "fit {flats} --out {new}",
            "--target COLUMN says what to predict: there are size, district, built, lift, rent.",
        ),
        ("fit {flats} --target ric --out {new}", "did you mean 'district'?"),
        (FIT + " --drop lift,qqqq", "--drop 'qqqq' is not a column of {flats}: there are size, "),
        (FIT + " --decimal ;", "the decimal mark must be '.' or ',', got ';'."),
        (FIT + " --encoding utf-9", "'utf-9' is not the name of an encoding"),
        ("predict {flats} {rent}", "flats.csv is a table, and MODEL comes first: vertebra predict MODEL TABLE."),
        ("predict {rent} {flats} --keep sise", "--keep 'sise' is not a column of {flats}; did you mean 'size'?"),
        ("effects {rent} --term 'size × lift'", "the model has no term size × lift: its effect is 0."),
        ("fit {flats} --target built --out {new}", "the target 'built' holds dates"),
        ("fit {flats} --target district --task regression --out {new}", "must hold numbers for regression, got '"),
        ("fit {flats} --target district --conformal --out {new}", "--conformal is for regression"),
        ("fit {flats} --target lift --likelihood poisson --out {new}", "--likelihood poisson is for regression"),
        ("fit {flats} --target rent --target district --out {new}", "the target 'district' must hold numbers"),
        ("fit {flats} --target rent --target size --task classification --out {new}", "takes one --target"),
        ("fit {flats} --target rent --out {flats}", "this is a file, not a folder."),
        ("fit {flats} --target rent --out {flats}/new", "the folder cannot be made (Not a directory)."),
        ("predict {tables}/nowhere {flats}", "there is no such file."),
        ("predict {tables} {flats}", "holds no model.vertebra"),
        ("predict {rent} {tables}/qqq.csv", "there is no such file."),
        ("predict {rent} {flats} --out {new}/p.csv", "there is no folder"),
        ("predict {rent} {flats} --out {tables}", "a table must end in .csv"),
        ("predict {rent} {flats} --out {tables}/new.csv", "new.csv is there already: give --force to overwrite it."),
        ("predict {rent} {flats} --out p.xls", "a table must end in .csv"),
        ("predict {rent} {flats} --level 1", "--level must be between 0 and 1, got 1."),
        ("predict {rent} {flats} --quantiles 0.1;0.9", "--quantiles must be numbers between 0 and 1"),
        ("predict {rent} {flats} --quantiles 0,1", "--quantiles must be numbers between 0 and 1"),
        ("predict {rent} {flats} --proba", "--proba is for classes"),
        ("predict {kinds} {flats} --quantiles 0.5", "--quantiles is for regression"),
        ("effects {rent} --term sise", "--term 'sise' is not an input of the model; did you mean 'size'?"),
        ("effects {rent} --term size --term lift", "the model has no term size × lift: its effect is 0."),
        ("effects {rent} --json --csv", "--json and --csv do not go together."),
        ("effects {rent} --fdr 0", "--fdr must be between 0 and 1, got 0."),
        ("effects {rent} --order 0", "Invalid value for '--order'"),
        ("effects {kinds} --output lo", "--output 'lo' is not known: there is [mid], high, low."),
        ("report {rent} --out {new}/r.html", "there is no folder"),
        ("report {rent} --out r.pdf", "a report is a page, and must end in .html; print it from a browser for PDF."),
        ("info {tables}/nowhere", "there is no such file."),
        ("demo --data foo", "'foo' is not one of 'diabetes', 'breast_cancer', 'f1'"),
        ("fot {flats}", "No such command 'fot'. Did you mean 'fit'?"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(line, words, folder, rent, kinds, tmp_path):
    places = {"flats": folder / "flats.csv", "tables": folder, "rent": rent[0], "kinds": kinds, "new": tmp_path / "new"}
    assert words.format(**places) in refusal(2, *shlex.split(line.format(**places)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("empty.csv", b"", "is empty."),
        ("header.csv", b"x,rent\n", "has no rows."),
        ("wide.csv", b"x,rent\n1,2,3\n4,5,6\n", "line 2 has 3 fields, more than the 2 columns of the first line"),
        ("ragged.csv", b"x,rent\n1,2\n4,5,6\n", "cannot be read as CSV"),
        ("plain.csv.gz", b"x,rent\n1,2\n", "cannot be read as CSV"),
        ("text.parquet", b"x,rent\n1,2\n", "cannot be read as Parquet"),
        ("missing.csv", b"x,rent\n1,\n2,NA\n", "the target 'rent' has no value in any row."),
        (
            "infinite.csv",
            b"x,rent\n1,2\n2,\n3,-inf\n4,5\n",
            "the target 'rent' has 1 infinite value, the first in row 3",
        ),
        (
            "digits.csv",
            b"x,rent\n1,2\n2,3\n1" + 400 * b"0" + b",4\n",
            "the column 'x' has 1 infinite value, the first in",
        ),
        ("large.csv", b"x,rent\n1,2\n2,3\n4,-1.7e308\n", "the target 'rent' reaches -1.7e+308, in row 3 of "),
        ("small.csv", b"x,rent\n1,1e-310\n2,2e-310\n4,3e-310\n", "the target 'rent' differs by 2e-310 only"),
        ("denormal.csv", b"x,rent\n1e-320,1\n2e-320,2\n0,3\n", "the column 'x' differs by 2e-320 only"),
        ("nul.csv", b"x,rent\n1,2\n2,\x003\n", "line 3 holds a NUL byte"),
        (
            "short.csv",
            b"x,z,rent\n1,2\n2,3\n1,2,3\n",
            "2 of 3 rows have fewer fields than the 3 columns, the first in line 2",
        ),
        ("one.csv", b"rent\n1\n2\n3\n", "has no column left to learn from."),
        ("constant.csv", b"x,rent\n1,7\n2,7\n", "the target 'rent' has one value only, 7: nothing can be learned."),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line_and_status_2(name, contents, words, tmp_path):
    (tmp_path / name).write_bytes(contents)
    line = refusal(2, "fit", tmp_path / name, "--target", "rent", "--out", tmp_path / "new")
    assert words in line
    assert name in line or "target" in line or "the column 'x'" in line


def test_short_rows_and_repeated_names_are_said_on_standard_error(tmp_path):
    (tmp_path / "a.csv").write_text("x,x,rent\n1,2,3\n1,2\n3,4,5\n")
    status, out, err = start("fit", tmp_path / "a.csv", "--target", "rant", "--out", tmp_path / "new")
    assert (status, out) == (2, "")
    assert err.splitlines()[:2] == [
        f"vertebra: warning: {tmp_path}/a.csv has more than one column 'x': the other is read as 'x.1'.",
        f"vertebra: warning: {tmp_path}/a.csv: 1 of 3 rows has fewer fields than the 3 columns, the first in line 3: "
        "what they lack is read as gaps.",
    ]


@pytest.mark.filterwarnings("ignore:.* has more than one column 'rent'")
def test_a_target_that_is_there_twice_is_not_predicted_from_its_copy(tmp_path):
    (tmp_path / "a.csv").write_text("x,rent,rent\n1,2,2\n2,3,3\n3,5,5\n")
    line = refusal(2, "fit", tmp_path / "a.csv", "--target", "rent", "--out", tmp_path / "new")
    assert "--target 'rent' names 2 columns of" in line
    assert "read as 'rent', 'rent.1': drop all but one (--drop 'rent.1'), or rename them." in line


def test_text_of_many_values_is_not_taken_for_classes(tmp_path):
    for text, words in (("{} m", "text of 60 values, '0 m' among them"), ("{}", "numbers, but for 'sold'")):
        prices = [text.format(i) for i in range(60)]
        prices[7] = prices[7] if " " in text else "sold"
        pd.DataFrame({"x": range(60), "price": prices}).to_csv(tmp_path / "a.csv", index=False)
        line = refusal(2, "fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "new")
        assert f"the target 'price' is {words}: make it numbers, or ask for --task classification." in line


def test_the_nearest_name_is_offered_for_a_missing_column(folder, rent, tmp_path):
    new = pd.read_csv(folder / "new.csv").rename(columns={"district": "District", "lift": "elevator"})
    new.to_csv(tmp_path / "renamed.csv", index=False)
    line = refusal(2, "predict", rent[0], tmp_path / "renamed.csv")
    # no term reads the lift: it need not be there
    assert "renamed.csv has no column 'district', which the model reads; did you mean 'District'?" in line


def test_a_damaged_model_is_one_line_and_status_1(folder, rent, tmp_path):
    data = bytearray((rent[0] / "model.vertebra").read_bytes())
    data[3 * len(data) // 4] ^= 1  # among the arrays, which follow the header
    (tmp_path / "model.vertebra").write_bytes(data)
    assert "corrupted" in refusal(1, "predict", tmp_path, folder / "new.csv")
    (tmp_path / "flats").write_bytes((folder / "flats.csv").read_bytes())
    status, out, err = start("info", tmp_path / "flats")
    assert (status, out) == (1, "")
    assert re.fullmatch(r"vertebra: .*flats: [^\n]+\n", err)


def test_a_fit_that_is_impossible_is_one_line_and_status_1(tmp_path):
    pd.DataFrame({"x": ["1", "2", "many"], "y": [1.0, 2.0, 4.0]}).to_parquet(tmp_path / "a.parquet")
    arguments = ("--target", "y", "--out", tmp_path / "new", "--type", "x=number", "--quiet")
    assert "The column 'x' must hold numbers, got 'many'" in refusal(1, "fit", tmp_path / "a.parquet", *arguments)
    assert not (tmp_path / "new").exists()


def test_errors_have_no_traceback_unless_debug_asks_for_it(folder, tmp_path):
    line = ("fit", folder / "flats.csv", "--target", "rant", "--out", tmp_path / "new")
    status, out, err = start(*line)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"vertebra: --target 'rant' is not a column of [^\n]+; did you mean 'rent'\?\n", err)
    for arguments in (("--debug", *line), (*line, "--debug")):
        done = run(*arguments)
        assert done.exit_code == 2
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1] in err


def test_a_mistake_of_ours_is_one_line_too(folder, rent, monkeypatch):
    monkeypatch.setattr("vertebra.cli.predict.read_table", lambda name, asked: {}["no\nsuch key"])
    line = refusal(1, "predict", rent[0], folder / "new.csv")
    assert "KeyError" in line
    assert "--debug" in line


def test_ctrl_c_without_a_result_is_status_130(folder, rent, monkeypatch):
    def interrupted(name, asked):
        raise KeyboardInterrupt

    monkeypatch.setattr("vertebra.cli.predict.read_table", interrupted)
    done = run("predict", rent[0], folder / "new.csv")
    assert (done.exit_code, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


@pytest.mark.filterwarnings("default:AdditiveRegressor. interrupted")
def test_ctrl_c_in_the_first_fit_keeps_its_model(folder, tmp_path, monkeypatch):
    said = []

    def interrupt(self, words):
        said.append(words)
        if len(said) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Control, "report", interrupt)
    out = run("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--no-report")
    assert out.exit_code == 130, out.output
    assert "Interrupted: this is the first model, of 188 rows and not of all 235." in out.stdout
    assert "vertebra: warning: AdditiveRegressor: interrupted" in out.stderr
    model = vb.load(tmp_path / "model.vertebra")
    assert (model.evaluation_.n, model.evaluation_.method) == (47, "held_out")
    assert ("size",) in model.clusters_


@pytest.mark.filterwarnings("default:AdditiveRegressor. the time budget")
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_budget_too_small_for_two_fits_keeps_the_first_and_does_not_empty_it(likelihood, folder, tmp_path):
    flats().assign(rent=lambda t: t["rent"].round().clip(lower=0)).to_csv(tmp_path / "flats.csv", index=False)
    more = ("--target", "rent", "--out", tmp_path, "--no-report", "--time-budget", 0.001, "--likelihood", likelihood)
    done = run("fit", tmp_path / "flats.csv", *more)
    assert done.exit_code == 0, done.output
    assert "No time is left for a fit of all rows: this is the first model, of 192 rows and not of all" in done.stdout
    assert "vertebra: warning: AdditiveRegressor: the time budget of 0.001 s was spent" in done.stderr
    model = vb.load(tmp_path / "model.vertebra")
    assert {"size", "district"} <= {name for term in model.clusters_ for name in term}
    scores = model.evaluation_.scores
    assert model.evaluation_.method == "held_out"
    assert scores["model"]["rmse"] < 0.6 * scores["mean"]["rmse"]  # not a constant: the truth is nearly linear
    assert scores["model"]["coverage_95"] > 0.8


@pytest.mark.filterwarnings("default:AdditiveRegressor. the time budget")
def test_words_about_a_budget_name_the_one_that_was_given(folder, tmp_path, monkeypatch):
    # the second fit alone is told that its time is over
    monkeypatch.setattr(Control, "enough", lambda self: self._over())
    monkeypatch.setattr(Control, "_over", lambda self: setattr(self, "ended", Ended.BUDGET) or True, raising=False)
    done = run("fit", folder / "flats.csv", "--target", "rent", "--out", tmp_path, "--no-report", "--time-budget", 77)
    assert "the time budget of 77 s was spent" in done.stderr
    assert set(re.findall(r"budget of (\S+) s", done.output)) == {"77"}


def test_names_that_look_like_markup_print_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.random((150, len(HOSTILE))), columns=HOSTILE)
    table["y"] = table.sum(axis=1) + rng.normal(0, 0.02, 150)
    table.to_csv(tmp_path / "hostile.csv", index=False)
    out = succeed("fit", tmp_path / "hostile.csv", "--target", "y", "--out", tmp_path, "--no-report", "--holdout", 0)
    out += succeed("info", tmp_path) + succeed("effects", tmp_path, "--term", HOSTILE[3])
    for shown in ("[bold]x[/]", "<script>alert(1)</script>", r"two\nlines", r"\x1b[31mred"):
        assert shown in out
    assert "\x1b" not in out
    assert set(pd.read_csv(tmp_path / "effects.csv")["term"]) >= set(HOSTILE)
    terms = predicted(succeed("predict", tmp_path, tmp_path / "hostile.csv", "--terms"))
    assert set(terms.columns) >= {"intercept", *(f"term:{name}" for name in HOSTILE)}
    effect = predicted(succeed("effects", tmp_path, "--term", "mean", "--csv"))
    assert effect.columns.tolist() == ["input mean", "mean", "sd", "lower", "upper"]
    line = refusal(2, "fit", tmp_path / "hostile.csv", "--target", "two\nlime", "--out", tmp_path / "new")
    assert r"did you mean 'two\nlines'?" in line
    assert "\x1b" not in refusal(2, "effects", tmp_path, "--term", "\x1b[31mread")


@pytest.mark.skipif(os.name != "posix", reason="pipes of a shell")
@pytest.mark.everyday("predict {rent} {table}")
@pytest.mark.parametrize("line", ["predict {rent} {table}", "effects {rent} --json", "info {rent}", "fit --help"])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(line, folder, rent):
    words = shlex.split(line.format(rent=rent[0], table=folder / "flats.csv"))
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "vertebra.cli", *words]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=300, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(os.name != "posix", reason="pipes of a shell")
@pytest.mark.everyday("buffered")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_pipe_that_is_closed_after_a_line_ends_a_command_quietly(unbuffered, rent, tmp_path):
    pd.concat([flats(2000)] * 20).to_csv(tmp_path / "many.csv", index=False)  # more than a pipe holds
    command = [sys.executable, "-m", "vertebra.cli", "predict", str(rent[0]), str(tmp_path / "many.csv")]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"prediction,sd,lower,upper\n"
        process.stdout.close()
        assert (process.wait(300), process.stderr.read()) == (141, b"")


# --- help and document ------------------------------------------------------------------------------------------------


def help_of(*command):
    return succeed(*command, "--help", terminal_width=100)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command):
    text = help_of(command)
    assert text.startswith(f"Usage: vertebra {command} ")
    assert max(map(len, text.splitlines())) <= 100
    examples = text.split("Examples:")[1].strip().splitlines()
    assert 2 <= len(examples) <= 3
    assert all(f"vertebra {command}" in example for example in examples)


def test_without_a_command_help_is_shown_and_the_version_is_told():
    assert succeed() == succeed("--help")
    status, out, err = start("--version")
    assert (status, out, err) == (0, f"vertebra {vb.__version__}\n", "")


def block(command):
    """The help of a command as the document has it."""
    shown = " ".join(["$ vertebra", *command, "--help"])
    return f"```text\n{shown}\n{help_of(*command)}```"


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_the_document_holds_the_help_as_it_is(command):
    assert block(command) in DOCUMENT.read_text(), "write it anew: python tests/test_cli.py"


def test_the_commands_of_the_document_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = DOCUMENT.read_text().split("## ")[1]
    first, *lines = re.findall(r"^\$ (.*)$", session, flags=re.MULTILINE)
    assert len(lines) == 5
    exec(shlex.split(first)[2], {})  # python -c "…"
    for line in lines:
        program, *words = shlex.split(line.partition("|")[0])
        assert program == "vertebra"
        succeed(*words)


def write_help():
    """Puts the help as it is into the document."""
    text = DOCUMENT.read_text()
    for command in [(), *((name,) for name in COMMANDS)]:
        start = text.index(" ".join(["```text\n$ vertebra", *command, "--help\n"]))
        end = text.index("\n```", start) + len("\n```")
        text = text[:start] + block(command) + text[end:]
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    write_help()


def test_a_folder_of_parquet_files_is_read_some_rows_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (600, 2))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(
        y=np.sin(3.0 * x[:, 0]) + 0.1 * rng.normal(size=600), id=range(600)
    )
    frame.loc[:9, "y"] = np.nan
    (tmp_path / "big").mkdir()
    for k in range(3):
        frame.iloc[200 * k : 200 * (k + 1)].to_parquet(tmp_path / "big" / f"{k}.parquet", index=False)
    big, out, said = str(tmp_path / "big"), str(tmp_path / "out"), tmp_path / "said.parquet"
    text = succeed("fit", big, "--target", "y", "--drop", "id", "--out", out, "--no-report", "--json")
    answer = json.loads(text)
    assert (answer["rows"], answer["rows_left_out"], answer["terms"]) == (590, 10, [["a"]])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["effects.csv", "model.vertebra"]
    succeed("predict", out, big, "--out", str(said), "--terms")
    found = pd.read_parquet(said)
    assert len(found) == 600
    assert np.sqrt(np.mean((found["prediction"] - np.sin(3.0 * x[:, 0])) ** 2)) < 0.05
    np.testing.assert_allclose(found["intercept"] + found["term:a"], found["prediction"])
    assert start("predict", out, big)[0] == 2  # not to standard output
    assert start("fit", big, "--target", "y", "--out", out, "--process", "1")[0] == 2
