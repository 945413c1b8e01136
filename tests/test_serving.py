"""Tables for serving: the numbers of the model, from NumPy alone."""

import io
import json
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra import serving
from vertebra.datasets import synthetic
from vertebra.files.tabulated import products_of


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


def test_a_single_row_is_predicted_as_one_of_many(served):
    """By a way of its own, which takes a tenth of the time: gaps, levels never seen, values far out, parts of times."""
    x, _ = table(200, 3)
    x.loc[0, "kind"], x.loc[1, "far"], x.loc[2, "far"] = "never", 1e12, -np.inf
    x.loc[3, "when"] = pd.NaT
    together = served.predict(x)
    alone = [served.predict(x.iloc[[k]]) for k in range(len(x))]
    assert {each.shape for each in alone} == {(1,)}
    # products of single precision, added in another order
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-6, atol=1e-6 * together.std())


def test_a_single_row_of_classes_has_every_output(tmp_path):
    data = synthetic("f1", 300, seed=0)
    model = vb.AdditiveClassifier(clusters=[("x3",), ("x0", "x1")], random_state=0)
    served = round_trip(model.fit(data.x, np.digitize(data.y, [12.0, 17.0])), tmp_path / "m.npz")
    np.testing.assert_allclose(served.predict_f(data.x[:1]), served.predict_f(data.x[:5])[:1], rtol=1e-6, atol=1e-6)


def test_a_tensor_is_the_sum_of_its_products(rng):
    for shape in ((4,), (4, 3), (4, 3, 5)):
        tensor = rng.standard_normal(shape)
        letters = "abc"[: len(shape)]
        found = sum(np.einsum(f"{','.join(letters)}->{letters}", *part) for part in products_of(tensor, 1e-12))
        np.testing.assert_allclose(found, tensor, atol=1e-12)
    assert products_of(np.zeros((3, 2)), 1e-12) == []
    # a product of two functions is one product
    assert len(products_of(np.outer([1.0, 2.0], [3.0, 4.0]), 1e-9)) == 1


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


def test_values_that_stand_for_gaps_do_so_where_it_is_served(tmp_path):
    x, y = table(700, 0)
    asked = {"size": -999, "kind": "c", "level": 3}
    settings = dict(feature_types={"level": "category"}, remainder=False, random_state=0)
    model = vb.AdditiveRegressor(missing_values=asked, **settings).fit(x.assign(size=x["size"].fillna(-999.0)), y)
    served = round_trip(model, tmp_path / "m.npz")
    new = table(60, 2)[0]
    marked = new.assign(size=new["size"].fillna(-999.0))
    near(served.predict(marked), model.predict(marked))
    gone = new.assign(kind=new["kind"].where(new["kind"] != "c"), level=new["level"].where(new["level"] != 3))
    np.testing.assert_array_equal(served.predict(marked), served.predict(gone))


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
    classes = vb.AdditiveClassifier(remainder=False, random_state=0).fit(x, y > np.median(y))
    counts = vb.AdditiveRegressor(likelihood="poisson", remainder=False, random_state=0).fit(
        x, np.round(np.exp(0.3 * y))
    )
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


@pytest.mark.parametrize("scheme", ["random_features", "deep_kernel_learning"])
def test_a_network_that_is_linear_in_its_weights_is_served(scheme, tmp_path):
    x, y = table(300, 4)
    clusters = [("size", "yes"), ("kind",), ("far", "level"), ("when (month)",)]
    model = vb.AdditiveRegressor(scheme, clusters=clusters, n_steps=20, random_state=0).fit(x, y)
    assert model.model_.posterior.terms is None
    served = round_trip(model, tmp_path / "m.npz")
    near(served.predict(x), model.predict(x))
    # what is missing, a level never seen
    strange = table(50, 5)[0].assign(kind="never", size=np.nan)
    inside = strange["far"].between(x["far"].min(), x["far"].max())
    near(served.predict(strange[inside]), model.predict(strange[inside]))


def test_what_cannot_be_written_or_read_says_so(served, tmp_path):
    data = synthetic("f1", 300, seed=0)
    wide = vb.AdditiveRegressor("random_features", clusters=[("x0", "x1", "x2")], n_steps=2).fit(data.x, data.y)
    with pytest.raises(ValueError, match="at most two inputs to be written as tables, got one of 3"):
        wide.to_tables(tmp_path / "m.npz")
    drawn = vb.AdditiveRegressor("mean_field", clusters=[("x0",)], n_steps=2).fit(data.x, data.y)
    with pytest.raises(ValueError, match='scheme="auto", remainder=False'):
        drawn.to_tables(tmp_path / "m.npz")
    with pytest.raises(ValueError, match="must have the column 'size'"):
        served.predict({"far": [0.0]})
    with pytest.raises(ValueError, match="must have 6 columns"):
        served.predict(np.zeros((3, 2)))


@pytest.fixture(scope="module")
def members(model, tmp_path_factory):
    """The members of a file of tables, by name."""
    path = tmp_path_factory.mktemp("members") / "m.npz"
    model.to_tables(path)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def written(path, members, save=np.savez, **changes):
    """A file of these members, with some entries of the header changed."""
    header = json.loads(members["header"].tobytes())
    for place, value in changes.items():
        at, (*keys, last) = header, place.split("__")
        for key in keys:
            at = at[int(key) if key.isdigit() else key]
        if value is KeyError:
            del at[last]
        else:
            at[int(last) if last.isdigit() else last] = value
    save(path, **members | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return path


def refusal(path):
    with pytest.raises(serving.BadTables) as caught:
        serving.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("format", 2, "it has the format 2, wanted 1"),
        ("format", KeyError, "its header has no format"),
        ("sources", KeyError, "its header must have constants, format"),
        ("sources", "size", "its sources are not a list of names"),
        ("sources__1", "size", "its sources are not distinct"),
        ("extra", 1, "its header must have"),
        ("inputs", {}, "its inputs or terms are no list"),
        ("inputs__0", None, "its input 0 must have centre"),
        ("inputs__0__step", 0.0, "a scale and a step above 0"),
        ("inputs__0__scale", -1.0, "a scale and a step above 0"),
        ("inputs__0__scale", True, "must have finite numbers"),
        ("inputs__0__tail", -1.0, "a tail of at least 0"),
        ("inputs__0__low", "0", "must have finite numbers"),
        ("inputs__0__centre", 10**400, "must have finite numbers"),
        ("inputs__0__centre", float("nan"), "its header holds NaN"),
        ("inputs__0__source", "nowhere", "its input 0 is of no source"),
        ("inputs__0__source", ["size"], "its input 0 is of no source"),
        ("inputs__0__part", "century", "the unknown part 'century'"),
        ("inputs__0__part", "hour", "other levels than its part of a time"),
        ("inputs__2__levels", ["a"], "a table of 5 rows, for 1 levels"),
        ("inputs__2__levels", [None, "b", "c"], "neither text nor numbers"),
        ("inputs__2__words", {"x": 3}, "words for other levels than its own"),
        ("inputs__2__words", {"x": -1}, "words for other levels than its own"),
        ("terms__0__inputs", [-1], "not of some of the inputs"),
        ("terms__0__inputs", [99], "not of some of the inputs"),
        ("terms__0__inputs", [], "not of some of the inputs"),
        ("terms__0__at", [-1], "reads columns that its inputs' tables do not have"),
        ("terms__0__at", [10_000], "reads columns that its inputs' tables do not have"),
        ("terms__0__n", 0, "its term 0 has 0 products"),
        ("terms__0__n", 1.0, "its term 0 has 1.0 products"),
        ("terms__0__output", 1, "is of the output 1"),
        ("terms__0__output", -1, "is of the output -1"),
        ("constants", [], "its constants are no numbers"),
        ("constants__0", None, "its constants are no numbers"),
        ("is_mean", "yes", "neither true nor false"),
        ("missing", "NA", "its words for missing values are not a list of text"),
    ],
)
def test_each_false_claim_of_a_header_is_refused(members, tmp_path, place, value, words):
    assert words in refusal(written(tmp_path / "m.npz", members, **{place: value}))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("table/0", lambda t: np.where(np.arange(len(t))[:, None] == 3, np.nan, t), "not finite"),
        ("table/0", lambda t: t + np.float32(np.inf), "not finite"),
        ("table/0", lambda t: t * 0 + np.float32(3e38), "larger than 1e+37"),
        ("table/0", lambda t: t.astype(np.float64), "must be <f4 of 2 axes, is float64"),
        ("table/0", lambda t: t[:, 0], "must be <f4 of 2 axes"),
        ("table/0", lambda t: t[:3], "a table of 3 rows"),
        ("table/0", lambda t: t[:, :-1], "reads columns that its inputs' tables do not have"),
        ("table/0", lambda t: None, "it lacks 'table/0'"),
        ("header", lambda h: None, "it lacks 'header'"),
        ("header", lambda h: h[:-1], "its header is not valid JSON"),
        ("header", lambda h: np.frombuffer(b'{"a": 1, "a": 2}', np.uint8), "stands there twice"),
        ("header", lambda h: np.frombuffer(b"[" * 100_000, np.uint8), "too large to be loaded here (RecursionError)"),
        ("header", lambda h: np.frombuffer(b"[" + b"0," * 5_000_000 + b"0]", np.uint8), "its header is too long"),
        ("table/99", lambda _: np.zeros(3), "the unknown member 'table/99.npy'"),
        ("unused", lambda _: np.zeros(3), "the unknown member 'unused.npy'"),
    ],
)
def test_each_wrong_array_is_refused(members, tmp_path, name, change, words):
    changed = members | {name: change(members.get(name))}
    np.savez(tmp_path / "m.npz", **{key: array for key, array in changed.items() if array is not None})
    assert words in refusal(tmp_path / "m.npz")


def test_terms_whose_products_are_too_large_are_refused(members, tmp_path):
    """Each table is within single precision, their product is not."""
    header = json.loads(members["header"].tobytes())
    pair = next(term for term in header["terms"] if len(term["inputs"]) > 1)
    large = {f"table/{i}": np.full_like(members[f"table/{i}"], 1e30) for i in pair["inputs"]}
    np.savez(tmp_path / "m.npz", **members | large)
    assert "has terms larger than 1e+37" in refusal(tmp_path / "m.npz")


def test_a_small_archive_of_much_takes_no_memory(members, tmp_path):
    pytest.importorskip("resource", reason="memory is not measured on Windows")
    path = tmp_path / "m.npz"
    np.savez_compressed(path, **members, unused=np.zeros(2**25))  # 256 MB in 256 KB
    code = (
        "import resource, runpy, sys, types\n"
        "serving = types.SimpleNamespace(**runpy.run_path(sys.argv[2]))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: serving.load(sys.argv[1])\n"
        "except serving.BadTables as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    command = [sys.executable, "-c", code, str(path), serving.__file__]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "is packed or locked" in said[0]
    assert float(said[1]) < 50.0
    content = bytearray(written(path, members).read_bytes())
    sizes = content.index(b"PK\1\2") + 20  # of the first member in the list of them: packed, and unpacked
    content[sizes : sizes + 8] = 2 * (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(content)
    assert "its members are larger than the file" in refusal(path)


def test_what_is_no_archive_of_tables_is_refused(members, tmp_path):
    path = tmp_path / "m.npz"
    whole = written(path, members).read_bytes()
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    again = io.BytesIO()
    with zipfile.ZipFile(again, "w") as archive:
        archive.writestr("header.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("header.npy", b"")
    for content, words in {
        b"": "it is not an archive",
        b"PK": "it is not an archive",
        whole[:-1]: "it is not an archive",
        whole[: len(whole) // 2]: "it is not an archive",
        whole.replace(b"NUMPY", b"NAMPY", 1): "it cannot be read (Bad CRC-32",
        b"x" + whole[40:]: "it cannot be read",
        empty.getvalue(): "it is not an archive",  # 22 bytes
        b" " * 100 + empty.getvalue(): "it lacks 'header'",
        again.getvalue(): "stands there twice",
    }.items():
        path.write_bytes(content)
        assert words in refusal(path)
    with pytest.raises(FileNotFoundError):
        serving.load(tmp_path / "nowhere.npz")


def test_the_same_model_is_the_same_tables_whenever_they_are_written(model, tmp_path, monkeypatch):
    model.to_tables(tmp_path / "a.npz")
    # an archive holds times of day
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    model.to_tables(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_tables_beyond_single_precision_are_not_written(tmp_path):
    x, y = table(200, 4)
    model = vb.AdditiveRegressor(clusters=[("size",)], random_state=0).fit(x, 1e60 * y)
    with pytest.raises(ValueError, match=r"tables of 'size' must be within 1e\+37, the range of single precision: fit"):
        model.to_tables(tmp_path / "m.npz")
    assert not (tmp_path / "m.npz").exists()
