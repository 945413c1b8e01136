import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.storage import read, write


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"a": rng.random(n), "b": rng.choice(["u", "v", "w"], n), "c": rng.random(n) < 0.5})
    x.loc[rng.random(n) < 0.1, "a"] = np.nan
    y = (
        np.sin(6 * x["a"].fillna(0))
        + x["b"].map({"u": 0, "v": 1, "w": -1}) * (1 + x["c"])
        + 0.2 * rng.standard_normal(n)
    )
    return x, y.to_numpy()


MODELS = {
    "closed form": lambda: vb.AdditiveRegressor(random_state=3),
    "conformal": lambda: vb.AdditiveRegressor(conformal=True, feature_types={"c": "category"}),
    "heavy tails": lambda: vb.AdditiveRegressor(likelihood="student_t", clusters=[("a",), ("b", "c")]),
    "uneven noise": lambda: vb.AdditiveRegressor(likelihood="heteroscedastic"),
    "a scheme": lambda: vb.AdditiveRegressor("deep_kernel_learning", n_steps=25, clusters=[(0,), (1, 2)]),
    "a skeleton": lambda: vb.SkeletonRegressor(vb.chain(3, 2), "mean_field", n_steps=25),
    "an ensemble": lambda: vb.SkeletonRegressor(widths=(4,), n_steps=25),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_regressor_predicts_the_same_to_the_last_bit(name, tmp_path):
    x, y = table()
    model = MODELS[name]().fit(x, y)
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    for ask in ("predict", "predict_f", "predict_interval"):
        np.testing.assert_array_equal(getattr(model, ask)(x), getattr(again, ask)(x))
    np.testing.assert_array_equal(model.sample_y(x, 3, random_state=1), again.sample_y(x, 3, random_state=1))
    assert set(again.get_params()) == set(model.get_params())
    assert again.scheme == model.scheme
    assert str(again.diagnostics_) == str(model.diagnostics_)
    if hasattr(model, "effects"):
        pd.testing.assert_frame_equal(model.effects(), again.effects())
        assert model.clusters_ == again.clusters_
        pd.testing.assert_frame_equal(model.effect(("b",)), again.effect(("b",)))


@pytest.mark.parametrize("classes", [("no", "yes"), (1, 2, 7)])
def test_a_loaded_classifier_predicts_the_same_to_the_last_bit(classes, tmp_path):
    x, y = table()
    y = np.array(classes)[np.digitize(y, np.quantile(y, [0.5] if len(classes) == 2 else [0.3, 0.6]))]
    model = vb.AdditiveClassifier(random_state=0).fit(x, y)
    model.save(tmp_path / "m.vertebra")
    again = vb.load(tmp_path / "m.vertebra")
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))
    assert again.classes_.dtype == model.classes_.dtype
    assert (again.predict(x) == model.predict(x)).all()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    x, y = table()
    path = tmp_path_factory.mktemp("files") / "m.vertebra"
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    model.save(path)
    return path, model.predict(x)


def test_another_process_loads_the_same_predictions(saved, tmp_path):
    path, predictions = saved
    x, _ = table()
    x.to_pickle(tmp_path / "x.pickle")
    script = (
        "import sys, numpy as np, pandas as pd, vertebra as vb\n"
        "from threadpoolctl import threadpool_limits\n"
        "with threadpool_limits(1, user_api='blas'):\n"
        "    np.save(sys.argv[3], vb.load(sys.argv[1]).predict(pd.read_pickle(sys.argv[2])))\n"
    )
    arguments = [str(path), str(tmp_path / "x.pickle"), str(tmp_path / "p.npy")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, timeout=300)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), predictions)


def test_two_hundred_damaged_files_are_refused(saved, tmp_path):
    path, _ = saved
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = tmp_path / "damaged.vertebra"
    for k in range(200):
        content = bytearray(whole)
        if k % 4 == 0:
            content = content[: rng.integers(0, len(whole))]
        elif k % 4 == 1:
            content[rng.integers(0, len(whole)) : 0] = rng.bytes(rng.integers(1, 50))
        else:
            for place in rng.integers(0, len(whole), 1 if k % 4 == 2 else 20):
                content[place] ^= int(rng.integers(1, 256))
        damaged.write_bytes(bytes(content))
        with pytest.raises(vb.BadFile):
            vb.load(damaged)


@pytest.mark.parametrize("what", ["mean/0", "root/0", "block/0", "system/0/gram", "gaps", "y_scale"])
def test_a_whole_file_whose_parts_do_not_fit_together_is_refused(what, saved, tmp_path):
    kind, header, arrays = read(saved[0])
    arrays[what] = arrays[what][:-1].copy() if arrays[what].ndim else arrays[what]
    if what == "y_scale":
        arrays[what] = arrays[what].astype(np.float32)
    write(tmp_path / "odd.vertebra", kind, header, arrays)
    with pytest.raises(vb.BadFile, match="do not fit together"):
        vb.load(tmp_path / "odd.vertebra")


def test_other_files_and_unfitted_models_are_refused(tmp_path):
    write(tmp_path / "other.vertebra", "Something", {}, {"a": np.zeros(2)})
    with pytest.raises(vb.BadFile, match="Something"):
        vb.load(tmp_path / "other.vertebra")
    with pytest.raises(FileNotFoundError):
        vb.load(tmp_path / "nothing.vertebra")
    with pytest.raises(ValueError, match="not fitted yet"):
        vb.AdditiveRegressor().save(tmp_path / "m.vertebra")
    assert not (tmp_path / "m.vertebra").exists()


FILES = pathlib.Path(__file__).parent / "files"


@pytest.fixture(scope="module")
def written():
    """The script that wrote the files of older versions."""
    spec = importlib.util.spec_from_file_location("written_files", FILES / "write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(FILES.glob("*/*.vertebra")), ids=lambda path: f"{path.parent.name} {path.stem}")
def test_files_of_older_versions_load_and_say_what_they_said(path, written):
    answers = json.loads((path.parent / "answers.json").read_text())[path.stem]
    rows = (written.together if path.stem == "hybrid" else written.table)(written.N_ROWS, 1)[0]
    for ask, found in written.said(vb.load(path), rows).items():
        if ask == "predict":
            assert found == answers[ask]
        else:
            # sums in another order, by another LAPACK or XLA: networks are in double precision too
            np.testing.assert_allclose(found, answers[ask], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("path", sorted(FILES.glob("*/*.npz")), ids=lambda path: f"{path.parent.name} {path.stem}")
def test_tables_of_older_versions_load_and_say_what_they_said(path, written):
    answers = json.loads((path.parent / "answers.json").read_text())[f"{path.stem} served"]
    rows = written.table(written.N_ROWS, 1)[0]
    np.testing.assert_allclose(vb.serving.load(path).predict_f(rows), answers["f"], rtol=1e-6, atol=1e-9)
