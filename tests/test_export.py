import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from vertebra.estimators import AdditiveClassifier, AdditiveRegressor, SkeletonRegressor
from vertebra.files.onnx import _names, to_onnx

onnx = pytest.importorskip("onnx", reason="the files are checked by onnx: pip install vertebra[onnx]")
runtime = pytest.importorskip("onnxruntime", reason="the files are run by onnxruntime: pip install onnxruntime")


def session(path):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def ask(path, X):
    """The outputs of the file by name, fed by what its metadata say about its inputs."""
    run = session(path)
    columns = json.loads(run.get_modelmeta().custom_metadata_map["inputs"])
    feed = {}
    for each in run.get_inputs():
        values = X[columns[each.name]["source"]].astype(object)
        if each.type == "tensor(string)":
            feed[each.name] = values.map(lambda v: "" if pd.isna(v) else str(v)).to_numpy(object)[:, None]
        else:
            feed[each.name] = values.to_numpy(float, na_value=np.nan)[:, None]
    names = [each.name for each in run.get_outputs()]
    return dict(zip(names, run.run(names, feed), strict=True))


def close(ours, theirs, size=1.0):
    # Sums of a few hundred products in another order: 1e-9 of the value, or where they cancel 1e-12 of the scale of y.
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * size)


def same_terms(model, X, outputs, size=1.0):
    """`eval_terms` over all combinations, output by output, and that all of it sums to the mean."""
    k = outputs["mean"].shape[1]
    parts = [name for name in outputs if name == "intercept" or name.startswith("term: ")]
    close(sum(outputs[part] for part in parts), outputs["mean"], size)
    for output in range(k):
        table = model.eval_terms(X, output=output, measure="product")
        named = {"intercept" if c == "intercept" else "term: " + " × ".join(c): table[c] for c in table.columns}
        assert set(named) == set(parts)
        for name, column in named.items():
            close(outputs[name][:, output], column.to_numpy(), size)


def same_regression(model, X, path):
    to_onnx(model.model_, path)
    outputs = ask(path, X)
    size = np.max(model.model_.target.scale)
    for ours, theirs in zip((outputs["mean"], outputs["sd"]), model.predict(X, return_std=True), strict=True):
        close(ours, theirs.reshape(ours.shape), size)
    assert "probabilities" not in outputs
    same_terms(model, X, outputs, size)
    return outputs


def same_classification(model, X, path):
    to_onnx(model.model_, path)
    outputs = ask(path, X)
    close(outputs["probabilities"], model.predict_proba(X))
    if len(model.classes_) == 2:
        limits = np.stack([outputs[f"probabilities_{end}"] for end in ("lower", "upper")], axis=1)
        close(limits, model.predict_proba_interval(X))
    for ours, theirs in zip((outputs["mean"], outputs["sd"]), model.predict_f(X), strict=True):
        close(ours, theirs.reshape(ours.shape))
    same_terms(model, X, outputs)
    return outputs


def table(n, seed=0):
    """Every kind of column, with gaps."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "heavy": rng.standard_t(1.5, n),
            "step": rng.uniform(-1.0, 1.0, n),
            "smooth": rng.normal(size=n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "flag": rng.random(n) < 0.4,
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), categories=["S", "M", "L"], ordered=True),
            "town": [f"town {i}" for i in rng.integers(0, 90, n)],
        }
    )
    X.loc[rng.random(n) < 0.1, "smooth"] = np.nan
    X.loc[rng.random(n) < 0.1, "colour"] = None
    return X


def signal(X, seed=1):
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(X))
    town = X["town"].astype(str).str.removeprefix("town ").astype(float)
    level = X["size"].astype(object).map({"S": -1.0, "M": 0.3, "L": 1.0}).astype(float)
    rough = 2.0 * np.sign(X["step"]) * (1.0 + (X["colour"] == "red"))
    f = np.arctan(X["heavy"]) + rough + np.sin(X["smooth"].fillna(2.0)) + level + X["flag"] + np.sin(town)
    return (f + noise).to_numpy(float)


def fresh(n=200):
    """Rows never seen, with an unseen level in each category, a gap in each column, and numbers far away."""
    X = table(n, seed=7).astype({"colour": object, "flag": object, "size": object, "town": object})
    X.loc[:9, "colour"], X.loc[5:14, "town"], X.loc[12:15, "size"] = "violet", "nowhere", "XXL"
    X.loc[16:19, "flag"], X.loc[18:21, "size"], X.loc[20:23, "town"], X.loc[22:25, "heavy"] = None, None, None, np.nan
    X.loc[26:32, "heavy"] = [1e9, -1e9, 1e160, -1e300, 1.7e308, -1.7e308, 0.0]
    X.loc[33:36, "step"] = [-5.0, 5.0, 1e300, np.nan]
    return X


@pytest.fixture(scope="module")
def fitted():
    X = table(900)
    return AdditiveRegressor(likelihood="gaussian", random_state=0).fit(X, signal(X))


def test_every_kind_of_column_gives_the_models_own_numbers(fitted, tmp_path):
    columns, systems = fitted.schema_.columns, fitted.model_.posterior.terms.basis.systems
    acting = {i for term in fitted.model_.posterior.terms.basis.terms for i in term}
    assert acting == set(range(7)), "every column must act, or it is not tested"
    assert columns[0].tail > 0.0
    basis = fitted.model_.posterior.terms.basis
    assert any(map(basis.is_local, basis.blocks))
    assert systems[3].n_levels == 3
    assert fitted.model_.encoding.tables[6] is not None, "a category of 90 levels is encoded"
    assert any(len(term) > 1 for term in fitted.model_.posterior.terms.basis.terms)
    same_regression(fitted, fresh(), tmp_path / "model.onnx")


def test_inputs_are_columns_and_outputs_come_mean_first(fitted, tmp_path):
    to_onnx(fitted.model_, tmp_path / "model.onnx")
    run = session(tmp_path / "model.onnx")
    types = {each.name: each.type for each in run.get_inputs()}
    texts = dict.fromkeys(["colour", "flag", "size", "town"], "tensor(string)")
    assert types == dict.fromkeys(["heavy", "step", "smooth"], "tensor(double)") | texts
    assert all(each.shape == ["N", 1] for each in run.get_inputs())
    names = [each.name for each in run.get_outputs()]
    assert names[:3] == ["mean", "sd", "intercept"]
    assert all(each.type == "tensor(double)" and each.shape == ["N", 1] for each in run.get_outputs())
    terms = json.loads(run.get_modelmeta().custom_metadata_map["terms"])
    assert list(terms) == names[3:]
    assert terms["term: step × colour"] == ["step", "colour"]


def test_text_is_read_as_the_schema_reads_it(fitted, tmp_path):
    to_onnx(fitted.model_, tmp_path / "model.onnx")
    words = ["", "?", "NA", "N/A", "nan", "NaN", "null", "None", "0", "1", "false", "true", "FALSE", "TRUE", "False"]
    for column in ("colour", "flag", "size", "town"):
        X = pd.concat([table(1).astype(object)] * len(words), ignore_index=True)
        X[column] = words
        close(ask(tmp_path / "model.onnx", X)["mean"][:, 0], fitted.predict(X))


def test_smooth_functions_of_a_number_with_tails_bend_with_its_ranks(rng, tmp_path):
    X = pd.DataFrame({"x": rng.exponential(size=400), "z": rng.uniform(size=400)})
    y = np.sin(2.0 * X["x"]) * X["z"] + 0.05 * rng.normal(size=400)
    model = AdditiveRegressor(random_state=0).fit(X, y)
    systems = model.model_.posterior.terms.basis.systems
    assert len(systems[0].quantiles)
    assert len(systems[0].transform) > 2, "polynomials"
    grid = np.linspace(-1.0, 12.0, 301)
    at = np.concatenate([grid, model.schema_.columns[0].original(systems[0].quantiles), [np.nan]])
    new = pd.DataFrame({"x": at, "z": rng.uniform(-0.5, 1.5, len(at))})
    same_regression(model, new, tmp_path / "model.onnx")


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_two_targets_have_a_column_each(likelihood, rng, tmp_path):
    X = rng.normal(size=(250, 3))
    y = np.stack([np.sin(X[:, 0]) + X[:, 1], 1000.0 + 50.0 * X[:, 0] * X[:, 2]], axis=1)
    y += [0.1, 5.0] * (rng.standard_t(3.0, (250, 2)) if likelihood == "student_t" else rng.normal(size=(250, 2)))
    model = AdditiveRegressor(likelihood=likelihood, random_state=0).fit(X, y)
    new = pd.DataFrame(rng.normal(size=(60, 3)), columns=["x0", "x1", "x2"])
    outputs = same_regression(model, new, tmp_path / "model.onnx")
    assert outputs["mean"].shape == outputs["sd"].shape == outputs["intercept"].shape == (60, 2)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_average_over_f_as_the_classifier_does(n_classes, rng, tmp_path):
    X = table(400, seed=3)[["heavy", "step", "colour", "flag"]]
    f = 2.0 * np.arctan(X["heavy"]) + 3.0 * X["step"] * (X["colour"] == "red") + rng.logistic(size=400)
    y = np.array(["a", "b", "c"])[np.asarray(pd.qcut(f, n_classes, labels=False))]
    model = AdditiveClassifier(random_state=0).fit(X, y)
    assert model.clusters_
    new = fresh()[X.columns.tolist()]
    outputs = same_classification(model, new, tmp_path / "model.onnx")
    assert outputs["probabilities"].shape == (200, n_classes)
    assert outputs["mean"].shape == (200, 1 if n_classes == 2 else 3)
    metadata = session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == model.classes_.tolist()


def test_a_datetime_has_an_input_per_part(rng, tmp_path):
    when = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 20000, 500), unit="h"))
    y = when.dt.hour / 12.0 + (when.dt.day_of_week >= 5) + 0.1 * rng.normal(size=500)
    model = AdditiveRegressor(random_state=0).fit(pd.DataFrame({"when": when}), y)
    to_onnx(model.model_, tmp_path / "model.onnx")
    days = (when - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    parts = {"time": days, "month": when.dt.month - 1, "weekday": when.dt.day_of_week, "hour": when.dt.hour}
    feed = {f"when ({part})": values.to_numpy(float)[:, None] for part, values in parts.items()}
    feed = {name: np.concatenate([values, [[np.nan]]]) for name, values in feed.items()}
    mean = session(tmp_path / "model.onnx").run(["mean"], feed)[0]
    close(mean[:, 0], model.predict(pd.DataFrame({"when": [*when, pd.NaT]})))


def test_levels_that_are_numbers_are_given_as_their_text(rng, tmp_path):
    X = pd.DataFrame({"code": rng.choice([3, 10, 200], 200), "grade": rng.integers(1, 6, 200)})
    y = (X["code"] == 10) + 0.5 * X["grade"] ** 2 + 0.1 * rng.normal(size=200)
    model = AdditiveRegressor(feature_types={"code": "category", "grade": "ordered"}, random_state=0).fit(X, y)
    same_regression(model, pd.DataFrame({"code": [3, 10, 200, 7], "grade": [1, 5, 3, 9]}), tmp_path / "model.onnx")


def test_values_that_stand_for_gaps_do_so_in_the_graph(rng, tmp_path):
    X = pd.DataFrame(
        {"z": rng.normal(5.0, 1.0, 300), "code": rng.choice([3, 10, 99], 300), "t": rng.choice(list("ab?!"), 300)}
    )
    X.loc[:40, "z"] = 0.0
    y = X["z"].where(X["z"] > 0, 7.0) + (X["code"] == 10) + (X["t"] == "a") + 0.1 * rng.normal(size=300)
    asked = {"z": [0, -1], "code": 99, "t": ["?", "!"]}
    model = AdditiveRegressor(feature_types={"code": "category"}, missing_values=asked, random_state=0).fit(X, y)
    assert [column.has_missing for column in model.schema_.columns] == [True] * 3
    rows = pd.DataFrame({"z": [0.0, -1.0, np.nan, 5.0], "code": [99, 3, 7, 10], "t": ["!", "a", "z", "?"]})
    same_regression(model, rows, tmp_path / "model.onnx")
    gone = rows.assign(z=[np.nan, np.nan, np.nan, 5.0], code=[None, 3, 7, 10], t=[None, "a", "z", None])
    np.testing.assert_array_equal(model.predict(rows), model.predict(gone))


def test_a_model_without_terms_is_its_intercept(rng, tmp_path):
    X, y = pd.DataFrame({"x": rng.normal(size=40)}), rng.normal(size=40)
    model = AdditiveRegressor(clusters=[], random_state=0).fit(X, y)
    assert not model.clusters_
    outputs = same_regression(model, X, tmp_path / "model.onnx")
    assert set(outputs) == {"mean", "sd", "intercept"}


def test_no_row_and_one_row_are_answered(fitted, tmp_path):
    to_onnx(fitted.model_, tmp_path / "model.onnx")
    one = fresh(40).iloc[:1]
    close(ask(tmp_path / "model.onnx", one)["mean"][:, 0], fitted.predict(one))
    assert ask(tmp_path / "model.onnx", one.iloc[:0])["sd"].shape == (0, 1)


def test_the_graph_is_as_small_as_the_model(fitted, tmp_path):
    to_onnx(fitted.model_, tmp_path / "model.onnx")
    basis = fitted.model_.posterior.terms.basis
    # at most 25 nodes per input, 4 per factor of a block, and 100 that all share
    bound = 100 + 25 * len(basis.systems) + 4 * sum(len(term) for term in basis.terms)
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= bound


def test_names_are_safe_and_unlike_each_other():
    assert _names(["a", "größe (cm)", "when (month)", "a-b.c"]) == ["a", "größe (cm)", "when (month)", "a-b.c"]
    assert _names(["a/b", "a_b", "mean", "mean_2", ""]) == ["a_b_2", "a_b", "mean_3", "mean_2", "column"]


def test_columns_of_awkward_names_keep_their_meaning(rng, tmp_path):
    X = pd.DataFrame(rng.normal(size=(200, 5)), columns=["mean", "a/b", "a_b", "a × b", "sd"])
    y = X["mean"] + 2.0 * X["a/b"] - X["a_b"] + 0.5 * X["a × b"] + X["sd"] ** 2 + 0.1 * rng.normal(size=200)
    model = AdditiveRegressor(random_state=0).fit(X, y)
    to_onnx(model.model_, tmp_path / "model.onnx")
    outputs = ask(tmp_path / "model.onnx", X)
    close(outputs["mean"][:, 0], model.predict(X))
    close(outputs["term: a_b_2"][:, 0], model.eval_terms(X, measure="product")[("a/b",)])


def test_what_cannot_be_written_is_refused_in_words(rng, tmp_path):
    X, y = rng.normal(size=(60, 2)), rng.poisson(2.0, 60).astype(float)
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="an AdditiveRegressor or an AdditiveClassifier, got SkeletonRegressor"):
        to_onnx(SkeletonRegressor(widths=(2,), n_steps=2).fit(X[:10], y[:10]).model_, path)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        AdditiveRegressor().to_onnx(path)
    for likelihood in ("poisson", "negative_binomial", "heteroscedastic"):
        model = AdditiveRegressor(likelihood=likelihood, random_state=0).fit(X, y)
        with pytest.raises(ValueError, match=f'"gaussian" or "student_t".*got likelihood=.{likelihood}'):
            to_onnx(model.model_, path)
    model = AdditiveRegressor("random_features", clusters=[(0,)], n_steps=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r'scheme="auto" to be written as ONNX, got scheme=.random_features'):
        to_onnx(model.model_, path)
    assert not path.exists()


def test_without_the_package_the_error_says_how_to_get_it(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install vertebra\[onnx\]"):
        to_onnx(fitted.model_, tmp_path / "model.onnx")


def test_a_file_is_replaced_whole_or_not_at_all(fitted, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        with pytest.raises(OSError, match="disk full"):
            to_onnx(fitted.model_, path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    to_onnx(fitted.model_, path)
    assert path.read_bytes() != b"before"
    with pytest.raises(FileNotFoundError, match="`path` must lie in a folder that exists"):
        to_onnx(fitted.model_, tmp_path / "nowhere" / "model.onnx")
