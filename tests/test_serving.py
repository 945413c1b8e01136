"""Tables for serving: the numbers of the model, from NumPy alone."""

import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra import serving
from vertebra.compact import _products
from vertebra.datasets import synthetic


def table(n, seed):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(2.0, 3.0, n)),
            "far": rng.standard_t(1.5, n),
            "kind": rng.choice(["a", "b", "c", None], n),
            "level": rng.choice([1, 2, 3], n),
            "yes": rng.random(n) < 0.5,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.uniform(0, 700, n), unit="D"),
        }
    )
    f = np.log1p(x["size"].fillna(9.0)) * (1.0 + x["yes"]) + (x["kind"] == "b") + np.sin(x["when"].dt.month)
    return x, (f + 0.5 * x["level"] + np.arctan(x["far"]) + 0.1 * rng.standard_normal(n)).to_numpy()


@pytest.fixture(scope="module")
def model():
    return vb.AdditiveRegressor(random_state=0, feature_types={"level": "category"}).fit(*table(700, 0))


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    return round_trip(model, tmp_path_factory.mktemp("tables") / "m.npz")


def round_trip(model, path):
    model.to_tables(path)
    return serving.load(path)


def near(ours, theirs):
    # lines between steps, single precision, and parts of terms that are left out
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.std(theirs))


def test_a_tensor_is_the_sum_of_its_products(rng):
    for shape in ((4,), (4, 3), (4, 3, 5)):
        tensor = rng.standard_normal(shape)
        letters = "abc"[: len(shape)]
        found = sum(np.einsum(f"{','.join(letters)}->{letters}", *part) for part in _products(tensor, 1e-12))
        np.testing.assert_allclose(found, tensor, atol=1e-12)
    assert _products(np.zeros((3, 2)), 1e-12) == []
    # a product of two functions is one product
    assert len(_products(np.outer([1.0, 2.0], [3.0, 4.0]), 1e-9)) == 1


def test_everyday_tables_are_predicted_as_the_model_does(model, served):
    x, _ = table(9000, 1)
    near(served.predict(x), model.predict(x))
    near(served.predict(x, n_threads=2), model.predict(x))
    np.testing.assert_array_equal(served.predict(x, n_threads=2), served.predict(x, n_threads=1))
    near(served.predict({name: x[name].to_numpy() for name in x}), model.predict(x))


def test_values_never_seen(model, served):
    x, _ = table(60, 2)
    strange = x.assign(kind="never seen", size=1e9, far=-1e12, yes="TRUE", level=["7", "2", 2.0] * 20)
    near(served.predict(strange), model.predict(strange))
    gone = x.assign(kind=" N/A ", size=np.nan, level=None, when=pd.NaT)
    near(served.predict(gone), model.predict(gone))


def test_arrays_with_interactions_and_rows_of_any_number(tmp_path):
    data = synthetic("f3", 900, seed=0)
    model = vb.AdditiveRegressor(random_state=0).fit(data.x, np.stack([data.y, -2.0 * data.y], axis=1))
    assert any(len(cluster) > 1 for cluster in model.clusters_)
    for n in (0, 1, 5000):
        x = synthetic("f3", 5000, seed=1).x[:n]
        found = round_trip(model, tmp_path / "m.npz").predict(x)
        assert found.shape == (n, 2)
        if n:
            near(found, model.predict(x))


def test_classes_and_counts_have_f(tmp_path):
    x, y = table(400, 3)
    classes = vb.AdditiveClassifier(random_state=0).fit(x, y > np.median(y))
    counts = vb.AdditiveRegressor(likelihood="poisson", random_state=0).fit(x, np.round(np.exp(0.3 * y)))
    for model in (classes, counts):
        served = round_trip(model, tmp_path / "m.npz")
        near(served.predict_f(x), model.predict_f(x)[0])
        with pytest.raises(ValueError, match="predict_f"):
            served.predict(x)


def test_neither_jax_nor_vertebra_is_needed(served, model, tmp_path):
    """The file alone, where the import of anything but NumPy and the standard library fails."""
    model.to_tables(tmp_path / "m.npz")
    (tmp_path / "alone.py").write_bytes(pathlib.Path(serving.__file__).read_bytes())
    code = (
        "import sys\n"
        "for name in ('jax', 'scipy', 'pandas', 'sklearn', 'vertebra'): sys.modules[name] = None\n"
        "import numpy as np, alone\n"
        "served = alone.load('m.npz')\n"
        "row = {'size': [1.0], 'far': [0.5], 'kind': ['b'], 'level': [2], 'yes': [True], "
        "'when': np.array(['2024-05-06T07:08'], 'datetime64[s]')}\n"
        "print(repr(float(served.predict(row)[0])))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    row = pd.DataFrame({"size": [1.0], "far": [0.5], "kind": ["b"], "level": [2], "yes": [True]})
    row["when"] = pd.Timestamp("2024-05-06T07:08")
    assert float(said.stdout) == pytest.approx(model.predict(row)[0], abs=1e-4)


def test_what_cannot_be_written_or_read_says_so(served, tmp_path):
    network = vb.AdditiveRegressor("random_features", n_steps=20, random_state=0)
    data = synthetic("f1", 300, seed=0)
    with pytest.raises(ValueError, match='scheme="auto", remainder=False'):
        network.fit(data.x, data.y).to_tables(tmp_path / "m.npz")
    with pytest.raises(ValueError, match="must have the column 'size'"):
        served.predict({"far": [0.0]})
    with pytest.raises(ValueError, match="must have 6 columns"):
        served.predict(np.zeros((3, 2)))
