"""Rows that are read from files: the same answers as from memory, whatever the files, and within bounds."""

import copy
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence

import jax
import jax.random as jr
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from own import Beta

import vertebra as vb
from vertebra import stream
from vertebra.inference import fit_stream
from vertebra.machine import file as storage
from vertebra.machine.checkpoint import Checkpoint
from vertebra.stream import Parquet, StreamedRows, Training, Windows
from vertebra.tables import parquet, passes, survey
from vertebra.tables.parquet import ahead, uniform
from vertebra.tables.schema import learn
from vertebra.tables.survey import Moments
from vertebra.terms.functions import SEEN

N = 3000


def messy(n: int, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps and tails, text, booleans, dates, many levels, weights, and gaps in the target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(50.0, 10.0, n),
            "pay": rng.lognormal(0.0, 2.0, n),
            "rooms": rng.integers(1, 7, n),
            "kind": rng.choice(["flat", "house", "boat"], n),
            "street": [f"s{k:03d}" for k in rng.integers(0, 100, n)],
            "lift": rng.random(n) < 0.3,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 800, n), unit="D"),
            "weight": rng.uniform(0.5, 2.0, n),
        }
    )
    frame["price"] = (
        0.1 * frame["size"]
        + (frame["kind"] == "boat")
        + np.sin(frame["rooms"]) * (frame["size"] - 50.0) / 10.0
        + (frame["street"].str[1:].astype(int) % 7) / 3.0
        + rng.normal(0.0, 0.5, n)
    )
    frame.loc[rng.random(n) < 0.05, "size"] = np.nan
    frame.loc[rng.random(n) < 0.05, "kind"] = None
    frame.loc[rng.random(n) < 0.02, "price"] = np.nan
    return frame


def written(folder, frame: pd.DataFrame, n_files: int = 3, rows: int = 300):
    folder.mkdir(exist_ok=True)
    for k, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        table = pa.Table.from_pandas(frame.iloc[part], preserve_index=False)
        pq.write_table(table, folder / f"part{k}.parquet", row_group_size=rows)
    return folder


@pytest.fixture(scope="module")
def frame():
    return messy(N)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, frame):
    return written(tmp_path_factory.mktemp("files") / "table", frame)


@pytest.fixture(scope="module")
def fitted(folder):
    return vb.AdditiveRegressor(random_state=0).fit(str(folder), "price", sample_weight="weight")


@pytest.fixture
def small(monkeypatch):
    """Samples and chunks of few rows, so that small files have many of them."""
    monkeypatch.setattr(passes, "FEWEST", 1000)
    monkeypatch.setattr(passes, "MOST_SEARCHED", 1000)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 250)
    monkeypatch.setattr(parquet, "CHUNK", 100)


def test_the_schema_of_files_is_that_of_the_frame(folder, frame):
    known = Training(Parquet(folder), ["price"], "weight", is_class=False).survey()
    kept = frame[frame["price"].notna()]
    wanted = learn(kept.drop(columns=["price", "weight"]), kept["weight"].to_numpy())
    found = known.schema()
    assert known.n_rows == len(kept)
    # weights that are no whole numbers count for Kish's number of rows
    assert known.weight == pytest.approx(kept["weight"].sum() ** 2 / (kept["weight"] ** 2).sum())
    assert [c.name for c in found.columns] == [c.name for c in wanted.columns]
    for one, other in zip(found.columns, wanted.columns, strict=True):
        assert (one.kind, one.levels, one.has_missing) == (other.kind, other.levels, other.has_missing)
        # far tails go by quartiles, of rows that all count the same here
        tolerance = 0.1 if other.tail else 1e-9
        assert (one.centre, one.scale) == pytest.approx((other.centre, other.scale), rel=tolerance)
    moments = known.targets[0].moments
    assert moments.mean == pytest.approx(np.average(kept["price"], weights=kept["weight"]))


def test_values_that_stand_for_gaps_do_so_in_files(folder, frame, small, tmp_path):
    asked = {"rooms": 6, "kind": "boat", "size": -999, "sold": "2020-01-01"}
    marked = frame.assign(size=frame["size"].fillna(-999.0).where(np.arange(len(frame)) % 50 > 0, -999.0))
    files = written(tmp_path / "files", marked)
    training = Training(Parquet(files), ["price"], "weight", is_class=False, missing_values=asked)
    known = training.survey()
    schema = known.schema()
    inputs = marked[training.inputs]
    wanted = learn(inputs.loc[frame["price"].notna()], missing_values=asked)
    for own, other in zip(schema.columns, wanted.columns, strict=True):
        assert own.missing_values == other.missing_values
        assert own.has_missing == other.has_missing
        assert own.levels == other.levels
    assert schema.columns[0].scale < 20.0  # that of sizes, without −999
    np.testing.assert_array_equal(np.isnan(schema.matrix(inputs)), np.isnan(wanted.matrix(inputs)))
    assert [survey.Facts.from_json(json.loads(json.dumps(each.to_json()))) for each in known.facts] == known.facts


def test_moments_of_parts_add_up():
    rng = np.random.default_rng(1)
    x, w = 1e6 + rng.normal(size=1000), rng.uniform(0.1, 2.0, 1000)
    total = Moments()
    for part in np.array_split(np.arange(1000), 7):
        total = total + Moments.of(x[part], w[part])
    assert (total.low, total.high) == (x.min(), x.max())
    assert total.mean == pytest.approx(np.average(x, weights=w), rel=1e-14)
    # 1e6 beside a spread of 1: a sum of squares about 0 would keep four digits
    assert total.sd == pytest.approx(np.sqrt(np.cov(x, aweights=w, ddof=0)), rel=1e-9)


def test_small_files_are_fitted_as_the_frame_is(folder, frame):
    inputs = ["size", "rooms", "kind", "lift"]
    source = Parquet(folder, columns=[*inputs, "price", "weight"])
    # of rows in files no other noise is tried
    settings = dict(likelihood="gaussian", random_state=0)
    streamed = vb.AdditiveRegressor(**settings).fit(source, "price", sample_weight="weight")
    kept = frame[frame["price"].notna()].reset_index(drop=True)
    x, y, weight = kept[inputs], kept["price"], kept["weight"]
    whole = vb.AdditiveRegressor(**settings).fit(x, y, sample_weight=weight)
    assert set(streamed.clusters_) == set(whole.clusters_)
    mean, sd = streamed.predict(x, return_std=True)
    other, other_sd = whole.predict(x, return_std=True)
    # evidence is maximised from another start, and averaged over other draws
    assert np.sqrt(np.mean((mean - other) ** 2)) < 0.05 * sd.mean()
    np.testing.assert_allclose(sd, other_sd, rtol=0.02)
    assert streamed.model_.profile.n_rows == len(kept)
    assert streamed.target_names_ == ["price"]


def test_terms_are_sought_in_a_sample_and_fitted_to_all_rows(folder, frame, small):
    """The closed form from sums over chunks is that of all rows at once, on the basis that was found."""
    model = vb.AdditiveRegressor(random_state=0).fit(folder, "price", sample_weight="weight")
    assert any("fitted to all" in note for note in model.diagnostics_.notes)
    kept = frame[frame["price"].notna()]
    weight = kept["weight"].to_numpy()
    matrix = model.schema_.matrix(kept.drop(columns=["price", "weight"]))
    basis = model.model_.posterior.terms.basis
    for i in sorted({i for term in basis.terms for i in term}):
        if model.model_.encoding.tables[i] is not None:
            continue  # in training rows means over other folds stand for the levels
        values = basis.systems[i](model.model_.encoding(matrix)[:, i])
        # mean zero under the marginals of all rows, not of the sample: all functions that rows decide
        decided = values[:, basis.systems[i].of(SEEN)]
        np.testing.assert_allclose(weight @ decided / weight.sum(), 0.0, atol=1e-9)
    assert model.interactions()["term"].tolist() == [("size", "rooms")]
    whole = kept[kept["size"].notna() & kept["kind"].notna()]
    error = np.sqrt(np.mean((model.predict(whole) - whole["price"]) ** 2))
    assert error < 0.55  # the noise has 0.5; a gap in size or kind is noise besides


def test_a_large_frame_is_searched_in_a_sample_too(frame, monkeypatch):
    from vertebra.models import additive as estimators
    from vertebra.models import searched
    from vertebra.terms import additive

    def searches(most):
        for room in (estimators, searched):
            monkeypatch.setattr(room, "MOST_SEARCHED", most)

    searches(1000)
    kept = frame[frame["price"].notna()]
    x, y = kept[["size", "rooms", "kind"]], kept["price"]
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    assert any("1,000 of the rows" in note for note in model.diagnostics_.notes)
    assert model.model_.profile.n_rows > 1000
    # of these, fewer are searched, and that is what is said
    monkeypatch.setattr(additive, "ROWS_SEARCHED", 700)
    for most in (1000, 10**6):
        searches(most)
        model = vb.AdditiveRegressor(clusters=[("size", "rooms"), ("kind",)], remainder=False, likelihood="gaussian")
        (note,) = (each for each in model.fit(x, y).diagnostics_.notes if "sought" in each)
        assert note.startswith("terms were sought in 700 of the rows, and fitted to all ")
    assert {("size", "rooms"), ("kind",)} <= set(model.clusters_)


@pytest.mark.parametrize("kind", ["file", "folder", "dataset"])
def test_a_source_may_be_a_file_a_folder_or_a_dataset(kind, folder, tmp_path, frame):
    if kind == "file":
        source = tmp_path / "one.parquet"
        frame.to_parquet(source, row_group_size=500)
    else:
        source = folder if kind == "folder" else ds.dataset(folder, format="parquet")
    assert parquet.is_files(source)
    table = parquet.as_parquet(source)
    assert table.n_rows == N
    read = [batch.frame(["size"])["size"].to_numpy() for batch in table.batches(["size"])]
    np.testing.assert_array_equal(np.concatenate(read), frame["size"])


def test_classes_counts_and_several_targets_are_streamed(tmp_path, small):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2500, 3))
    f = 1.5 * np.sin(2.0 * x[:, 0]) + x[:, 1]
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        answer=np.where(rng.random(2500) < 1.0 / (1.0 + np.exp(-f)), "yes", "no"),
        count=rng.poisson(np.exp(0.4 * f)),
        y=f + 0.3 * rng.normal(size=2500),
    )
    grid = pd.DataFrame(np.linspace(-1.5, 1.5, 21)[:, None] * [1.0, 0.5, 0.0], columns=["a", "b", "c"])
    truth = 1.5 * np.sin(2.0 * grid["a"]) + grid["b"]

    def source(*targets):
        return written(tmp_path / "-".join(targets), frame[["a", "b", "c", *targets]])

    classes = vb.AdditiveClassifier(random_state=0).fit(source("answer"), "answer")
    assert classes.classes_.tolist() == ["no", "yes"]
    p = classes.predict_proba(grid)[:, 1]
    assert np.abs(p - 1.0 / (1.0 + np.exp(-truth))).max() < 0.15
    whole = vb.AdditiveClassifier(random_state=0, clusters=classes.clusters_).fit(
        frame[["a", "b", "c"]], frame["answer"]
    )
    # iterated from the sample, all rows come to rest where they do in memory
    assert np.abs(p - whole.predict_proba(grid)[:, 1]).max() < 0.02
    counts = vb.AdditiveRegressor(likelihood="poisson", random_state=0).fit(source("count"), "count")
    np.testing.assert_allclose(np.log(counts.predict(grid)), 0.4 * truth, atol=0.25)
    both = vb.AdditiveRegressor(random_state=0).fit(source("y", "count"), ["y", "count"])
    assert both.predict(grid).shape == (21, 2)
    assert both.target_names_ == ["y", "count"]


@pytest.mark.parametrize("likelihood", ["student_t", "heteroscedastic"])
def test_other_noise_is_streamed(likelihood, tmp_path, small):
    rng = np.random.default_rng(4)
    x = rng.uniform(-1.0, 1.0, (2500, 2))
    noise = (
        0.2 * rng.standard_t(3.0, 2500) if likelihood == "student_t" else 0.4 * np.exp(x[:, 1]) * rng.normal(size=2500)
    )
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=np.sin(3.0 * x[:, 0]) + noise)
    model = vb.AdditiveRegressor(likelihood=likelihood, random_state=0).fit(written(tmp_path / "t", frame), "y")
    grid = pd.DataFrame({"a": np.linspace(-0.9, 0.9, 19), "b": 0.0})
    np.testing.assert_allclose(model.predict(grid), np.sin(3.0 * grid["a"]), atol=0.12)
    if likelihood == "heteroscedastic":
        sd = model.predict(pd.DataFrame({"a": [0.0, 0.0], "b": [-0.9, 0.9]}), return_std=True)[1]
        assert 3.0 < sd[1] / sd[0] < 10.0  # e^1.8 = 6


def test_conformal_intervals_of_files_are_calibrated_on_rows_that_were_not_fitted(tmp_path, small):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"a": rng.uniform(-1.0, 1.0, 4000)})
    frame["y"] = np.sin(3.0 * frame["a"]) + rng.standard_exponential(4000)
    path = written(tmp_path / "t", frame)
    model = vb.AdditiveRegressor(conformal=True, random_state=0).fit(path, "y")
    held = Training(Parquet(path), ["y"], None, is_class=False, conformal=True).survey().held
    assert len(model.model_.conformal) == len(held.numbers) == pytest.approx(800, abs=120)
    new = pd.DataFrame({"a": rng.uniform(-1.0, 1.0, 4000)})
    y = np.sin(3.0 * new["a"]) + rng.standard_exponential(4000)
    low, high = model.predict_interval(new, 0.9).T
    assert 0.88 < np.mean((low <= y) & (y <= high)) < 0.94


def test_predictions_and_terms_are_written_to_parquet_in_the_order_of_the_rows(folder, frame, fitted, tmp_path, small):
    x = frame.drop(columns=["price", "weight"])
    assert stream.predict(fitted, folder, tmp_path / "said.parquet", level=0.8, quantiles=[0.5]) == N
    said = pd.read_parquet(tmp_path / "said.parquet")
    mean, sd = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(said["prediction"], mean)
    np.testing.assert_allclose(said["sd"], sd)
    np.testing.assert_allclose(said[["lower", "upper"]], fitted.predict_interval(x, 0.8))
    stream.eval_terms(fitted, folder, tmp_path / "terms.parquet")
    terms = pd.read_parquet(tmp_path / "terms.parquet")
    np.testing.assert_allclose(terms.sum(axis=1), mean)
    assert "intercept" in terms
    assert {path.name for path in tmp_path.iterdir()} == {"said.parquet", "terms.parquet"}


def test_classes_that_nothing_tells_apart_have_their_shares_whatever_the_order_of_rows(tmp_path, small):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"a": rng.normal(size=4000), "answer": np.sort(rng.random(4000) < 0.3)})
    model = vb.AdditiveClassifier(random_state=0).fit(written(tmp_path / "t", frame), "answer")
    share = frame["answer"].mean()
    np.testing.assert_allclose(model.predict_proba(pd.DataFrame({"a": [0.0]}))[0, 1], share, atol=0.01)


def test_rows_without_a_target_may_have_levels_of_their_own(tmp_path, small):
    frame = messy(2000)[["size", "street", "price"]]
    frame.loc[::50, "price"] = np.nan
    frame.loc[::50, "street"] = [f"only here {k}" for k in range(40)]
    model = vb.AdditiveRegressor(random_state=0).fit(written(tmp_path / "t", frame), "price")
    assert model.model_.profile.n_rows == frame["price"].notna().sum()


def test_few_rows_with_a_target_are_all_in_the_sample(tmp_path, small):
    frame = messy(4000)[["size", "rooms", "price"]]
    frame.loc[frame.index % 100 != 0, "price"] = np.nan
    known = Training(Parquet(written(tmp_path / "t", frame)), ["price"], None, is_class=False).survey()
    assert len(known.sample.numbers) == known.n_rows == frame["price"].notna().sum()


def test_the_sample_is_as_large_as_asked_for_and_its_rows_are_those_of_their_numbers(folder, frame, small):
    known = Training(Parquet(folder), ["price"], None, is_class=False).survey()
    assert len(known.sample.numbers) == 1000
    taken = known.sample.rows["size"].to_numpy()
    np.testing.assert_array_equal(taken, frame["size"].to_numpy()[known.sample.numbers])


def test_a_declared_order_of_levels_is_kept(tmp_path):
    rng = np.random.default_rng(10)
    grade = pd.Categorical(rng.choice(["high", "low", "mid"], 300), categories=["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"grade": grade, "y": rng.normal(size=300)})
    known = Training(Parquet(written(tmp_path / "t", frame)), ["y"], None, is_class=False).survey()
    column = known.schema().columns[0]
    assert (column.kind, column.levels) == (learn(frame[["grade"]]).columns[0].kind, ("low", "mid", "high"))


def test_wrong_use_is_refused_with_words(folder, tmp_path, frame):
    model = vb.AdditiveRegressor()
    with pytest.raises(ValueError, match="`y` must name the target"):
        model.fit(folder, frame["price"])
    with pytest.raises(ValueError, match="no column 'prise' for the target"):
        model.fit(folder, "prise")
    with pytest.raises(FileNotFoundError, match="is not there"):
        model.fit(tmp_path / "nothing", "price")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no Parquet files"):
        model.fit(tmp_path / "empty", "price")
    (tmp_path / "text.parquet").write_text("not Parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        model.fit(tmp_path / "text.parquet", "price")
    with pytest.raises(ValueError, match="`memory` must be a number of GiB above 0"):
        Parquet(folder, memory=0.0)
    with pytest.raises(ValueError, match="must name a column"):
        model.fit(folder, "price", sample_weight=frame["weight"])


@pytest.mark.parametrize(
    ("column", "unit", "words"),
    [
        ("y", 1e200, r"The target 'y' lies from .* whose squares cannot be summed: divide it by a constant first"),
        ("y", 1.7e308, r"The target 'y' reaches 1\.7e\+308; beyond ±1e\+300 .*: divide it by a constant first"),
        ("y", 1e-200, r"The target 'y' lies from .* whose squares cannot be summed: multiply it"),
        ("y", 1e-310, r"The target 'y' differs by .* only, too little for double precision: multiply it"),
        ("x", 1e-320, "The column 'x' differs by .* only, too little for double precision"),
        ("x", np.inf, r"column 'x' has 99 infinite value\(s\), the first at index 1:"),
    ],
)
def test_sizes_that_cannot_be_summed_are_refused_by_name(column, unit, words, tmp_path):
    x = np.linspace(0.0, 1.0, 300)
    frame = pd.DataFrame({"x": x, "y": x})
    with np.errstate(invalid="ignore"):
        frame[column] *= unit
    frame.loc[0] = 0.0
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    with pytest.raises(ValueError, match=words):
        vb.AdditiveRegressor().fit(str(tmp_path / "a.parquet"), "y")


def test_inputs_of_any_size_are_streamed(tmp_path):
    x = np.linspace(-1.0, 1.0, 300)
    frame = pd.DataFrame({"x": 1.7e308 * x, "y": x + 0.1 * np.sin(1e4 * x)})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    assert vb.AdditiveRegressor().fit(str(tmp_path / "a.parquet"), "y").clusters_ == [("x",)]


def test_an_id_in_every_row_is_refused_before_it_fills_the_memory(monkeypatch, folder):
    monkeypatch.setattr(survey, "MOST_LEVELS_KEPT", 50)
    with pytest.raises(ValueError, match="'street' has more than 50 levels"):
        vb.AdditiveRegressor().fit(folder, "price")


def test_what_is_read_ahead_comes_in_order_and_errors_come_through():
    assert list(ahead(iter(range(20)), 3)) == list(range(20))

    def broken():
        yield 1
        raise OSError("the disk is gone")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)


def test_rows_are_chosen_by_their_numbers_alone():
    numbers = np.arange(100_000)
    u = uniform(numbers, parquet.SAMPLED, 0)
    np.testing.assert_array_equal(u[500:600], uniform(numbers[500:600], parquet.SAMPLED, 0))
    # of 100,000 uniform numbers: means and correlations within 5 sds of 0
    assert abs(u.mean() - 0.5) < 5.0 * np.sqrt(1.0 / 12.0 / 1e5)
    for other in (uniform(numbers, parquet.FOLDED, 0), uniform(numbers, parquet.SAMPLED, 1), np.roll(u, 1)):
        assert abs(np.corrcoef(u, other)[0, 1]) < 5.0 / np.sqrt(1e5)


# --- training on windows --------------------------------------------------------------------------------------------


def windows_of(folder, **settings) -> Windows:
    training = Training(Parquet(folder), ["y"], None, is_class=False, **settings)
    known = training.survey()
    rows = StreamedRows(training, known, known.schema(), lambda y: y)
    matrix, y, weight = rows.taken(known.sample)
    p = matrix.shape[1]
    rows.cross_fit(matrix, lambda y: y[:, 0], [0] * p, [False] * p, most_levels=0, fill=True)
    return Windows(rows, rows.sample(matrix), y, weight)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    rng = np.random.default_rng(6)
    x = rng.uniform(-1.0, 1.0, (2400, 2))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=np.sin(3.0 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=2400))
    return written(tmp_path_factory.mktemp("plain") / "t", frame, n_files=2, rows=150), frame


def test_windows_have_every_row_once_an_epoch_and_a_share_of_every_shard(plain):
    folder, frame = plain
    windows = windows_of(folder)
    assert windows.n_shards == 8
    read = windows.rounds(n_steps=5, batch_size=240, folds=0, first=0, mesh=None)
    epochs = [np.concatenate([next(read)[1].ravel() for _ in range(2)]) for _ in range(2)]
    for epoch in epochs:
        np.testing.assert_allclose(np.sort(epoch), np.sort(frame["y"].to_numpy(np.float32)))
    assert not np.array_equal(*epochs)
    # gone on with from the third window, it is the same one
    later = next(windows.rounds(n_steps=5, batch_size=240, folds=0, first=2, mesh=None))
    np.testing.assert_array_equal(later[1].ravel(), epochs[1][:1200])


def test_minibatches_weigh_every_row_alike_whatever_the_sizes_of_row_groups(tmp_path):
    (tmp_path / "t").mkdir()
    for k, n in enumerate([1000, 400, 30]):
        frame = pd.DataFrame({"a": np.zeros(n), "y": np.full(n, float(k))})
        frame.to_parquet(tmp_path / "t" / f"{k}.parquet")
    read = windows_of(tmp_path / "t").rounds(n_steps=20, batch_size=64, folds=0, first=0, mesh=None)
    windows = [next(read) for _ in range(20)]
    y, weight = (np.concatenate([window[i].ravel() for window in windows]) for i in (1, 2))
    # one shard holds 1000 rows, the other 430, of which a window has some: 3 % is several sds
    assert np.average(y, weights=weight) == pytest.approx((400 + 60) / 1430, rel=0.03)


def test_rows_set_aside_for_conformal_intervals_are_not_trained_on(plain):
    folder, frame = plain
    windows = windows_of(folder, conformal=True)
    held = windows.stream.training.survey().held.numbers
    _, y, weight, _ = next(windows.rounds(n_steps=10, batch_size=240, folds=0, first=0, mesh=None))
    aside = np.isin(y.ravel(), frame["y"].to_numpy(np.float32)[held])
    assert aside.sum() == len(held) > 300
    np.testing.assert_array_equal(weight.ravel() == 0.0, aside)


def test_a_network_trained_on_windows_is_as_good_as_one_in_memory(plain):
    folder, _ = plain
    windows = windows_of(folder)
    network = vb.build(vb.additive(2, clusters=[(0,), (1,)], depth=2), vb.random_features([4, 1]), key=jr.key(0))
    settings = dict(key=jr.key(1), n_steps=400, batch_size=240, n_rounds=5)
    streamed = fit_stream(network, vb.Gaussian(), windows, **settings)
    held = vb.fit(network, vb.Gaussian(), windows.x, windows.y, **settings)
    assert streamed.score == pytest.approx(held.score, abs=0.05)


def test_rows_without_a_target_meet_no_likelihood_of_ones_own(plain, tmp_path):
    _, frame = plain
    target = 1.0 / (1.0 + np.exp(-frame["y"]))
    gaps = frame.assign(y=target.where(np.arange(len(frame)) % 7 > 0))
    windows = windows_of(written(tmp_path / "t", gaps, n_files=2, rows=150))
    for of in (1, 2):
        values = next(windows.rounds(n_steps=5, batch_size=240, folds=0, first=0, mesh=None))[of]
        assert (values.min() > 0.0) == (of == 1)  # a y for every row, and no weight for some
    network = vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=jr.key(0))
    fitted = fit_stream(network, Beta(), windows, key=jr.key(1), n_steps=20, batch_size=240, n_rounds=2)
    assert np.isfinite(fitted.score)


def leaves_of(fitted) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((fitted.network, fitted.likelihood)) if hasattr(leaf, "dtype")]


class Killed(Exception):
    pass


def test_training_that_was_cut_off_goes_on_and_ends_the_same(plain, tmp_path):
    folder, _ = plain
    network = vb.build(vb.chain(2, 2), vb.mc_dropout([4, 1]), key=jr.key(0))
    settings = dict(key=jr.key(1), n_steps=60, batch_size=240, n_rounds=6)
    whole = fit_stream(network, vb.Gaussian(), windows_of(folder), **settings)
    path = tmp_path / "state.vertebra"
    heard = []

    def kill(progress):
        heard.append(progress.step)
        if len(heard) in (2, 3):
            raise Killed

    def run():
        kept = Checkpoint(path, {}, every=0.0)
        return fit_stream(network, vb.Gaussian(), windows_of(folder), callback=kill, checkpoint=kept, **settings)

    for _ in range(2):
        with pytest.raises(Killed):
            run()
    again = run()
    assert heard == [10, 20, 30, 40, 50, 60]
    for one, other in zip(leaves_of(whole), leaves_of(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_passes_over_files_that_were_cut_off_go_on_and_end_the_same(folder, tmp_path, small, monkeypatch):
    folder = Parquet(folder, columns=["size", "rooms", "kind", "price"])
    whole = vb.AdditiveRegressor(random_state=0).fit(folder, "price")
    path = tmp_path / "state.vertebra"
    monkeypatch.setattr("vertebra.machine.checkpoint.EVERY", 0.0)
    read = stream.StreamedRows.read
    monkeypatch.setattr(stream.StreamedRows, "read", _breaking(read, at=45))
    with pytest.raises(Killed):
        vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(folder, "price")
    assert path.exists()
    monkeypatch.setattr(stream.StreamedRows, "read", read)
    again = vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(folder, "price")
    assert not path.exists()
    x = pd.DataFrame({name: [None] for name in whole.schema_.sources})
    np.testing.assert_array_equal(again.predict(x), whole.predict(x))
    for one, other in zip(again.model_.posterior.terms.roots, whole.model_.posterior.terms.roots, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def cut_off(folder, tmp_path_factory):
    """The checkpoint of a fit that was killed in the midst of its passes."""
    path = tmp_path_factory.mktemp("cut") / "state.vertebra"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vertebra.tables.parquet.CHUNK", 64)
        patch.setattr("vertebra.machine.checkpoint.EVERY", 0.0)
        patch.setattr(stream.StreamedRows, "read", _breaking(stream.StreamedRows.read, at=20))
        with pytest.raises(Killed):
            vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(folder, "price")
    return storage.read(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h, a: h.pop("entries"), "it must hold what it is about, and entries"),
        (lambda h, a: h.update(entries=[1]), "it must hold what it is about, and entries"),
        (lambda h, a: h["entries"].update(survey=3), "the facts of 'survey' are not an object"),
        (lambda h, a: a.update({"nobody/0": np.zeros(1)}), "the array 'nobody/0' belongs to no entry"),
        (lambda h, a: h["entries"]["survey"].pop("facts"), "the survey lacks facts"),
        (lambda h, a: h["entries"]["survey"]["facts"].pop(), "facts must be a list of"),
        (lambda h, a: h["entries"]["survey"]["facts"][0].update(kind="x"), "the kind of a column must be known"),
        (lambda h, a: h["entries"]["survey"]["facts"][0].update(source="x"), "facts must be of the table's columns"),
        (lambda h, a: h["entries"]["survey"]["facts"][0]["moments"].update(square=-1.0), "those of numbers"),
        (lambda h, a: h["entries"]["survey"]["weights"].__setitem__(0, 10**9), "the number of rows must be a whole"),
        (lambda h, a: h["entries"]["survey"]["weights"].__setitem__(3, 1e6), "the weights must be those of rows"),
        (lambda h, a: h["entries"]["survey"]["weights"].pop(), "the weights must be a list of 6"),
        (lambda h, a: a["survey/sample numbers"].__setitem__(0, -1), "sample numbers must hold finite numbers from 0"),
        (lambda h, a: a.update({"survey/sample numbers": a["survey/sample numbers"][:-1]}), "rows must be"),
        (lambda h, a: a["survey/sample rows"].__setitem__(slice(0, 64), 7), "its survey is not one of these files"),
        (
            lambda h, a: a.update({"survey/sample rows": a["survey/sample rows"][:100]}),
            "its survey is not one of these",
        ),
        (lambda h, a: h["entries"]["pass 0"].update(position=-1), "its position must be a whole number of at least 0"),
        (lambda h, a: h["entries"]["pass 0"].update(is_done=1), "is_done must be true or false"),
        (lambda h, a: a.pop("pass 0/0"), "there is no array '0'"),
        (lambda h, a: a.update({"pass 0/0": np.zeros((1, 2, 3))}), "0 must be of the shape"),
        (lambda h, a: a["pass 0/0"].__setitem__(..., np.nan), "0 must hold finite numbers"),
    ],
)
def test_a_checkpoint_that_this_fit_would_not_have_kept_is_refused(
    folder, cut_off, tmp_path, monkeypatch, change, words
):
    monkeypatch.setattr("vertebra.tables.parquet.CHUNK", 64)
    kind, header, arrays = copy.deepcopy(cut_off)
    change(header, arrays)
    path = tmp_path / "state.vertebra"
    storage.write(path, kind, header, arrays)
    with pytest.raises(storage.BadFile, match=re.escape(words)) as caught:
        vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(folder, "price")
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith("Remove the checkpoint: the fit then begins from the start.")


def _breaking(read, at: int):
    calls = []

    def reading(self, batch):
        calls.append(1)
        if len(calls) == at:
            raise Killed
        return read(self, batch)

    return reading


def test_sums_that_were_kept_for_another_basis_are_not_taken_for_this_one(plain, tmp_path):
    folder, frame = plain

    def total(basis: str, column: str) -> float:
        kept = Checkpoint(tmp_path / "state", {}, every=0.0)
        training = Training(Parquet(folder), ["y"], None, is_class=False, checkpoint=kept)
        training.begin(basis)
        return float(
            training.total(lambda batch, _: [np.array([batch.frame([column])[column].to_numpy().sum()])])[0][0]
        )

    assert total("one", "a") == pytest.approx(frame["a"].sum())
    assert total("one", "b") == pytest.approx(frame["a"].sum())  # as if it were the same pass again
    assert total("other", "b") == pytest.approx(frame["b"].sum())


def test_the_checkpoint_of_another_fit_is_refused(folder, tmp_path):
    path = tmp_path / "state.vertebra"
    Checkpoint(path, {"another": 1}).write()
    with pytest.raises(ValueError, match="checkpoint of another fit"):
        vb.AdditiveRegressor(checkpoint=path).fit(folder, "price")


# --- processes and devices, each in an interpreter of its own ------------------------------------------------------

TRAINED = """
import json, os, sys, time
import numpy as np
from vertebra.machine import cluster
folder, n, k, port, tests, kept, dies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:8]
if n > 1:
    cluster.connect(f"127.0.0.1:{port}", n, k)
import jax, jax.random as jr
import vertebra as vb
sys.path.insert(0, tests)
from test_stream import leaves_of, windows_of
from vertebra.machine import devices
from vertebra.machine.checkpoint import Checkpoint
from vertebra.inference import fit_stream
from vertebra.terms.group_lasso import group_lasso_path

devices.ROWS_PER_DEVICE = 1

def watch(progress):
    if dies == str(k) and progress.step == 200:
        os.kill(os.getpid(), 9)

networks = [vb.build(vb.chain(2, 2), vb.deep_kernel_learning([4, 1]), key=jr.key(i)) for i in range(8)]
settings = dict(key=jr.key(1), n_steps=500, batch_size=240, n_rounds=5, last_layer=False)
checkpoint = None if kept == "-" else Checkpoint(cluster.own_path(kept), {}, every=0.0)
windows = windows_of(folder)
fitted = fit_stream(networks[0], vb.Gaussian(), windows, checkpoint=checkpoint, callback=watch, **settings)
floats = lambda fitted: np.concatenate([a.ravel() for a in leaves_of(fitted) if a.dtype.kind == "f"]).tolist()
said = {"devices": jax.device_count(), "shares": devices.mesh_for(1, 240)[1], "trained": floats(fitted)}
if kept == "-":
    model = vb.AdditiveRegressor(random_state=0).fit(folder, "y")
    said["mean"] = model.model_.posterior.terms.means[0].tolist()
if kept == "-" and n == 1:
    x, y = windows.x[:600], windows.y[:600]
    said["in memory"] = floats(vb.fit(networks[0], vb.Gaussian(), x, y, **settings))
    said["restarts"] = floats(vb.fit(networks, vb.Gaussian(), x, y, **settings | {"n_steps": 50}))
    settings |= {"n_steps": 50, "batch_size": 240}
    said["streamed restarts"] = floats(fit_stream(networks, vb.Gaussian(), windows, **settings))
    said["penalties"] = group_lasso_path(x, y[:, 0], key=jr.key(2), n_subnetworks=2, n_steps=50).norms.ravel().tolist()
print(json.dumps(said))
"""


# Nothing is trained in these: what two processes add up is tried every day.
SUMMED = """
import json, sys
from vertebra.machine import cluster
folder, n, k, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
cluster.connect(f"127.0.0.1:{port}", n, k)
import vertebra as vb
fitted = vb.AdditiveRegressor(random_state=0).fit(folder, "y").model_
print(json.dumps({"mean": fitted.posterior.terms.means[0].tolist()}))
"""


def start(
    folder, n: int, *, devices: int = 1, kept: str = "-", dies: str = "-", script: str = TRAINED
) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": own}
    rest = [str(port), str(pathlib.Path(__file__).parent), kept, dies]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | flags)
    return [
        subprocess.Popen([sys.executable, "-c", script, str(folder), str(n), str(k), *rest], **pipes) for k in range(n)
    ]


def outputs(processes: list[subprocess.Popen]) -> list[dict]:
    said = [process.communicate(timeout=400) for process in processes]
    for process, (_, words) in zip(processes, said, strict=True):
        assert process.returncode == 0, words[-2000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.fixture(scope="module")
def alone(plain):
    return outputs(start(plain[0], 1))[0]


def assert_near(one: dict, other: dict, names: Sequence[str]) -> None:
    for name in names:
        a, b = np.array(one[name]), np.array(other[name])
        # sums in another order, in single precision, 500 steps long
        assert np.linalg.norm(a - b) < 1e-4 * np.linalg.norm(a), name


def test_two_processes_sum_to_the_terms_of_one(plain):
    one, two = outputs(start(plain[0], 2, script=SUMMED))
    assert one == two
    here = vb.AdditiveRegressor(random_state=0).fit(plain[0], "y")
    assert_near({"mean": here.model_.posterior.terms.means[0]}, one, ["mean"])


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(plain, alone):
    two = outputs(start(plain[0], 2))
    assert [each["devices"] for each in two] == [2, 2]
    assert two[0] == two[1]
    assert_near(alone, two[0], ["trained", "mean"])


@pytest.mark.slow
def test_eight_devices_give_the_result_of_one(plain, alone):
    (eight,) = outputs(start(plain[0], 1, devices=8))
    assert (eight["devices"], eight["shares"], alone["shares"]) == (8, "rows", "")
    assert_near(alone, eight, ["trained", "mean", "in memory", "restarts", "streamed restarts", "penalties"])


@pytest.mark.slow
def test_a_process_that_dies_stops_the_others_with_words_and_the_run_goes_on(plain, alone, tmp_path):
    kept = str(tmp_path / "state")
    processes = start(plain[0], 2, kept=kept, dies="1")
    processes[1].communicate(timeout=300)
    begun = time.monotonic()
    _, words = processes[0].communicate(timeout=60)
    assert time.monotonic() - begun < 60.0
    assert processes[0].returncode == 1
    assert "process 1 of this fit is gone" in words
    assert "goes on where it was" in words
    again = outputs(start(plain[0], 2, kept=kept))
    assert_near(alone, again[0], ["trained"])


@pytest.mark.slow
def test_sigkill_loses_nothing(tmp_path):
    """A small version of benchmarks/kills.py."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "benchmarks"))
    import kills

    source = kills.table(tmp_path / "table", 60_000)
    found = kills.run("auto", source, tmp_path, 2)
    assert found["is_identical"]
    assert found["is_removed"]


@pytest.mark.slow
def test_dask_carries_a_search_over_settings():
    distributed = pytest.importorskip("distributed")
    import joblib
    from sklearn.model_selection import GridSearchCV

    rng = np.random.default_rng(8)
    x = rng.normal(size=(120, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=120)
    grid = {"clusters": [[[0]], [[1]]]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask's own
        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local,
            distributed.Client(local),
            joblib.parallel_config("dask"),
        ):
            search = GridSearchCV(vb.AdditiveRegressor(), grid, cv=2).fit(x, y)
    assert search.best_params_ == {"clusters": [[0]]}
