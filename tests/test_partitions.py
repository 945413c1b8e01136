"""Tables in the partitions of a Dask frame: the answers of the same rows in files, wherever the work was done."""

import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.stream import Parquet, Partitions, Training
from vertebra.tables import passes

dd = pytest.importorskip("dask.dataframe")
dask = pytest.importorskip("dask")


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, text, weights, and a product."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(50.0, 10.0, n),
            "rooms": rng.integers(1, 7, n),
            "kind": rng.choice(["flat", "house", "boat"], n),
            "weight": rng.uniform(0.5, 2.0, n),
        }
    )
    signal = (frame["kind"] == "boat") + np.sin(frame["rooms"]) * (frame["size"] - 50.0) / 10.0
    frame["price"] = signal + rng.normal(0.0, 0.5, n)
    frame["dear"] = np.where(signal + rng.logistic(0.0, 0.5, n) > 0.2, "yes", "no")
    frame.loc[rng.random(n) < 0.05, "size"] = np.nan
    frame.loc[rng.random(n) < 0.02, "price"] = np.nan
    return frame


@pytest.fixture(scope="module")
def frame():
    return table(3000)


@pytest.fixture(scope="module")
def files(tmp_path_factory, frame):
    path = tmp_path_factory.mktemp("files") / "table.parquet"
    frame.to_parquet(path, row_group_size=400)
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A search in few of the rows: all of them are then another matter."""
    monkeypatch.setattr(passes, "FEWEST", 1000)
    monkeypatch.setattr(passes, "MOST_SEARCHED", 1000)


# uneven parts, one of them empty
def parts_of(frame):
    ends = [0, 100, 1200, 1200, 2900, len(frame)]
    pieces = [frame.iloc[start:end] for start, end in itertools.pairwise(ends)]
    return dd.from_delayed([dask.delayed(piece) for piece in pieces], meta=frame.iloc[:0])


def same(one, other, x):
    """Predictions to 1e-9 of the spread: sums of the same rows in another order."""
    for mean, again in zip(one.predict_f(x), other.predict_f(x), strict=True):
        np.testing.assert_allclose(mean, again, rtol=1e-9, atol=1e-9)
    assert one.clusters_ == other.clusters_


def test_a_frame_in_partitions_is_fitted_as_the_same_rows_in_files(frame, files):
    columns = ["size", "rooms", "kind", "weight", "price"]
    asked = dict(y="price", sample_weight="weight")
    by_files = vb.AdditiveRegressor(random_state=0).fit(Parquet(files, columns=columns), **asked)
    with dask.config.set(scheduler="sync"):
        by_parts = vb.AdditiveRegressor(random_state=0).fit(parts_of(frame)[columns], **asked)
    assert ("size", "rooms") in by_files.clusters_
    same(by_files, by_parts, frame)
    assert by_parts.evaluation_.scores["model"] == pytest.approx(by_files.evaluation_.scores["model"], rel=1e-9)
    assert by_parts.model_.profile.n_rows == by_files.model_.profile.n_rows


def test_predictions_of_partitions_are_those_of_the_frame(frame, files):
    known = frame[frame["price"].notna()]
    model = vb.AdditiveRegressor(random_state=0, likelihood="gaussian").fit(known[["size", "rooms", "price"]], "price")
    cut = parts_of(frame.set_index(10 * np.arange(len(frame))))
    with dask.config.set(scheduler="sync"):
        mean, sd = dask.compute(*model.predict(cut, return_std=True))
        limits, terms = dask.compute(model.predict_interval(cut), model.eval_terms(cut))
        assert model.predict(cut[["rooms", "size"]]).compute().equals(mean)
    assert list(mean.index) == [10 * k for k in range(len(frame))]
    for found, wanted in zip((mean, sd), model.predict(frame, return_std=True), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(limits, model.predict_interval(frame))
    np.testing.assert_allclose(terms.sum(axis=1), model.predict_f(frame)[0])
    assert terms.columns[0] == "intercept"


def test_classes_of_partitions(frame, files):
    columns = ["size", "rooms", "kind", "dear"]
    by_files = vb.AdditiveClassifier(random_state=0).fit(Parquet(files, columns=columns), "dear")
    with dask.config.set(scheduler="sync"):
        cut = parts_of(frame)[columns]
        by_parts = vb.AdditiveClassifier(random_state=0).fit(cut, "dear")
        probabilities, classes = dask.compute(by_parts.predict_proba(cut), by_parts.predict(cut))
    same(by_files, by_parts, frame)
    np.testing.assert_allclose(probabilities[["no", "yes"]], by_parts.predict_proba(frame), rtol=1e-12)
    assert classes.tolist() == by_parts.predict(frame).tolist()


def test_partitions_that_change_between_passes_are_refused(frame):
    counted = []

    def piece():
        counted.append(1)
        return frame.iloc[: 1000 + len(counted)]

    cut = dd.from_delayed([dask.delayed(piece)()], meta=frame.iloc[:0])
    with dask.config.set(scheduler="sync"), pytest.raises(RuntimeError, match=r"had 1,001 rows, and now has 1,002"):
        vb.AdditiveRegressor().fit(cut, "price")


def test_what_a_dask_frame_cannot_have_is_refused_before_any_work(frame):
    cut = dd.from_pandas(frame, npartitions=2)
    with dask.config.set(scheduler="sync"):
        with pytest.raises(ValueError, match="no column 'rent' for the target"):
            vb.AdditiveRegressor().fit(cut, "rent")
        with pytest.raises(ValueError, match=r"X\.to_parquet\(folder\)"):
            vb.AdditiveRegressor(scheme="deep_kernel_learning").fit(cut, "price")
        with pytest.raises(ValueError, match=r"X\.to_parquet\(folder\)"):
            vb.SkeletonRegressor().fit(cut, "price")
        with pytest.raises(ValueError, match="`y` must name the target"):
            vb.AdditiveRegressor().fit(cut, cut["price"])
        with pytest.raises(ValueError, match="`columns` must be of the table"):
            Partitions(cut, columns=["rent"])
        with pytest.raises(ValueError, match="`memory` must be a number of GiB above 0"):
            Partitions(cut, memory=0.0)


def test_a_pass_that_is_done_is_taken_from_the_checkpoint(frame, tmp_path, monkeypatch):
    columns = ["size", "rooms", "kind", "price"]
    cut, path = parts_of(frame)[columns], tmp_path / "fit.vertebra"
    with dask.config.set(scheduler="sync"):
        whole = vb.AdditiveRegressor(random_state=0).fit(cut, "price")
        total, n_passes = Training.total, []

        def killed(self, work):
            n_passes.append(1)
            if len(n_passes) == 2:
                raise KeyboardInterrupt
            return total(self, work)

        monkeypatch.setattr(Training, "total", killed)
        with pytest.raises(KeyboardInterrupt):
            vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(cut, "price")
        monkeypatch.undo()
        assert path.exists()
        again = vb.AdditiveRegressor(random_state=0, checkpoint=path).fit(cut, "price")
    assert not path.exists()
    np.testing.assert_array_equal(again.predict(frame), whole.predict(frame))


# in a process of its own: what checks shapes while tests run cannot travel to workers
WORKERS = """
import os, signal, threading, time
import cloudpickle, dask, distributed
import vertebra as vb
from vertebra.tables import partitions, passes
from test_partitions import parts_of, same, table

def slowly(part):
    time.sleep(0.5)
    return part

def travelled(sizes, done=partitions._done):
    def through(task, *given):
        sizes.append(len(cloudpickle.dumps(task)))
        return done(cloudpickle.loads(cloudpickle.dumps(task)), *given)
    return through

def main(path):
    passes.FEWEST = passes.MOST_SEARCHED = 1000
    frame = table(3000)[["size", "rooms", "kind", "dear"]]
    frame.to_parquet(path)
    whole = vb.AdditiveClassifier(random_state=0).fit(path, "dear")
    # what travels holds neither the table nor the functions of three inputs at the rows searched, which are 1.3 MB each
    sizes, done = [], partitions._done
    partitions._done = travelled(sizes)
    with dask.config.set(scheduler="sync"):
        same(whole, vb.AdditiveClassifier(random_state=0).fit(parts_of(frame), "dear"), frame)
    partitions._done = done
    assert len(sizes) > 12 and max(sizes) < 2_000_000, sizes
    about = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with distributed.LocalCluster(**about) as cluster, distributed.Client(cluster) as client:
        before = set(client.run(os.getpid).values())
        killer = threading.Timer(2.0, os.kill, (min(before), signal.SIGKILL))
        killer.start()
        cut = parts_of(frame).map_partitions(slowly, meta=frame.iloc[:0])
        model = vb.AdditiveClassifier(random_state=0).fit(cut, "dear")
        assert killer.finished.is_set()
        assert min(before) not in client.run(os.getpid).values()
        again = model.predict_proba(cut).compute()
    same(whole, model, frame)
    assert (again["yes"].to_numpy() == model.predict_proba(frame)[:, 1]).all()
    print("equal", flush=True)

if __name__ == "__main__":
    import sys
    main(sys.argv[1])
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_costs_a_retry_and_no_error(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    here = pathlib.Path(__file__).parent
    path = os.pathsep.join([str(here), str(pathlib.Path(vb.__file__).parents[1])])
    command = [sys.executable, str(script), str(tmp_path / "table.parquet")]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("equal\n")
