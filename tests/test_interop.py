"""Models in the hands of other libraries: shap, arviz, interpret, DuckDB, MLflow, and scikit-learn's own tools."""

import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.inspection import PartialDependenceDisplay, partial_dependence, permutation_importance
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import vertebra as vb

NEEDS = "models are handed to it: pip install 'vertebra[interop]'"


def frame(n=500, seed=0):
    """Numbers with tails and gaps, few whole numbers, text, booleans and times."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "size": rng.random(n),
            "income": rng.standard_t(2, n),
            "hour": rng.integers(0, 8, n),
            'city\'s "name"': rng.choice(["Bonn", "Kiel", "O'Neill"], n),
            "lift": rng.random(n) < 0.5,
            "listed": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500 * 24, n), "h"),
        }
    )
    city = x['city\'s "name"']
    y = np.sin(6 * x["size"]) * (1 + (city == "Bonn")) + np.tanh(x["income"]) + np.cos(x["hour"]) * x["lift"]
    y += x["listed"].dt.month.isin([6, 7, 8]) + 0.2 * rng.standard_normal(n)
    x.loc[::13, "income"] = np.nan
    x.loc[::17, 'city\'s "name"'] = None
    return x, y.to_numpy()


@pytest.fixture(scope="module")
def fitted():
    x, y = frame()
    return vb.AdditiveRegressor(remainder=False, evaluation="left_out", random_state=0).fit(x, y), x, y


@pytest.fixture(scope="module")
def classes():
    x, y = frame()
    model = vb.AdditiveClassifier(evaluation="left_out", random_state=0)
    return model.fit(x, np.digitize(y, [0.0, 1.0])), x


# --- shap -------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # shap's own, of matplotlib and NumPy
def test_shap_draws_what_terms_add_and_it_sums_to_f(fitted, classes):
    shap = pytest.importorskip("shap", reason=NEEDS)
    model, x, _ = fitted
    found = model.to_shap(x[:100])
    np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), model.predict_f(x[:100])[0], rtol=1e-10)
    # by hand: what a term adds, an equal part to each of its inputs
    parts = model.eval_terms(x[:100])
    assert any(len(term) == 2 for term in parts.columns[1:])
    for i, name in enumerate(found.feature_names):
        own = sum(parts[term] / len(term) for term in parts.columns[1:] if name in term)
        np.testing.assert_allclose(found.values[:, i], own, atol=1e-12)
    assert found.display_data[1, found.feature_names.index("lift")] in ("True", "False")
    for draw in (shap.plots.beeswarm, shap.plots.bar, shap.plots.heatmap):
        draw(found, show=False)
        plt.close("all")
    shap.plots.waterfall(found[0], show=False)
    shap.plots.scatter(found[:, "size"], show=False)
    plt.close("all")
    several, rows = classes[0], classes[1][:20]
    for k in range(3):
        own = several.to_shap(rows, output=k)
        np.testing.assert_allclose(
            own.base_values + own.values.sum(axis=1), several.predict_f(rows)[0][:, k], rtol=1e-9
        )


# --- arviz ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_arviz_summarises_draws_as_the_model_does(fitted):
    arviz = pytest.importorskip("arviz", reason=NEEDS)
    model, x, y = fitted
    draws = model.to_arviz(x[:40], y[:40], n_draws=2000, random_state=0)
    assert {"posterior", "predictions", "observed_data", "posterior_predictive"} <= set(draws.groups())
    mean, sd = model.predict_f(x[:40])
    f = draws.predictions["f"]
    # 2000 draws: means to sd/√2000, four of these apart; sds to 1/√4000 of them
    assert (np.abs(f.mean(("chain", "draw")) - mean) < 4.0 * sd / np.sqrt(2000)).all()
    np.testing.assert_allclose(f.std(("chain", "draw")), sd, rtol=0.1)
    effect = model.effect("income")
    own = draws.posterior["f(income)"]
    np.testing.assert_allclose(own["income"].to_numpy()[:-1], effect["income"][:-1])
    assert (np.abs(own.mean(("chain", "draw")) - effect["mean"]) < 5.0 * effect["sd"] / np.sqrt(1000) + 1e-12).all()
    table = arviz.summary(draws.predictions, var_names=["f"])
    assert len(table) == 40
    levels = draws.posterior['f(city\'s "name")'].coords['city\'s "name"']
    assert levels.to_numpy().tolist()[:3] == ["Bonn", "Kiel", "O'Neill"]


# --- interpret --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_interpret_draws_every_term(fitted):
    pytest.importorskip("interpret", reason=NEEDS)
    model = fitted[0]
    explanation = model.to_interpret()
    effects = model.effects()
    shown = effects.loc[effects["order"] <= 2]
    assert explanation.data()["scores"] == shown["strength"].tolist()
    assert explanation.visualize() is not None
    for key in range(len(shown)):
        assert explanation.visualize(key).data


# --- SQL --------------------------------------------------------------------------------------------------------------


def odd(x):
    """Rows with levels never seen, beyond the range, between whole numbers, and without anything."""
    new = x[:60].copy()
    new["hour"] = new["hour"].astype(float)
    new.iloc[0, 0], new.iloc[1, 1], new.iloc[2, 2], new.iloc[3, 3] = 7.0, -1e9, 2.5, "Nowhere"
    new.loc[5, ["size", "income", "hour", 'city\'s "name"', "listed"]] = None
    return new.assign(id=range(len(new)))


def asked(query, table):
    duckdb = pytest.importorskip("duckdb", reason=NEEDS)
    with duckdb.connect() as base:
        base.register("flats", table)
        return base.sql(query).df()


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_a_query_predicts_what_the_model_does(fitted, dialect):
    model, x, _ = fitted
    for rows in (x.assign(id=range(len(x))), odd(x)):
        found = asked(model.to_sql("flats", keep=["id"], dialect=dialect), rows).sort_values("id")
        # the very functions, in double precision
        np.testing.assert_allclose(found["f"], model.predict_f(rows)[0], rtol=1e-9, atol=1e-9)


def test_a_query_has_a_column_for_every_class(classes):
    model, x = classes
    rows = odd(x)
    found = asked(model.to_sql("(SELECT * FROM flats WHERE id < 50)", keep=["id"]), rows).sort_values("id")
    assert list(found) == ["id", "f_0", "f_1", "f_2"]
    np.testing.assert_allclose(found.iloc[:, 1:], model.predict_f(rows[:50])[0], rtol=1e-9, atol=1e-9)


def test_counts_levels_that_are_numbers_marked_gaps_and_no_terms_at_all(rng):
    x = pd.DataFrame({"zone": rng.choice([1.0, 2.0, 7.0], 300), "age": rng.integers(1, 90, 300), "many": "a"})
    x["many"] = [f"shop {k}" for k in rng.integers(0, 60, 300)]
    y = rng.poisson(np.exp(0.3 * (x["zone"] == 2.0) + x["age"] / 60))
    x.loc[::9, "age"] = -1
    kinds = dict(feature_types={"zone": "category"}, missing_values={"age": -1}, evaluation="left_out")
    model = vb.AdditiveRegressor(clusters=[("zone", "age"), ("many",)], likelihood="poisson", **kinds).fit(x, y)
    found = asked(model.to_sql("flats"), x)
    np.testing.assert_allclose(found["f"], model.predict_f(x)[0], rtol=1e-9, atol=1e-9)
    nothing = vb.AdditiveRegressor(random_state=0, remainder=False).fit(x[["age"]], rng.standard_normal(300))
    if not nothing.clusters_:
        np.testing.assert_allclose(asked(nothing.to_sql("flats"), x)["f"], nothing.predict_f(x)[0])


def test_what_is_no_arithmetics_is_refused(fitted):
    model = fitted[0]
    with pytest.raises(ValueError, match="`dialect` must be one of duckdb, postgres, got 'cobol'"):
        model.to_sql("flats", dialect="cobol")
    with pytest.raises(ValueError, match="`table` must name a table"):
        model.to_sql(" ")
    data = vb.datasets.synthetic("f1", n=100)
    network = vb.AdditiveRegressor("random_features", clusters=[("x0",)], n_steps=20).fit(data.x, data.y)
    with pytest.raises(ValueError, match="must be a sum of terms in closed form to be written as SQL"):
        network.to_sql("flats")


# --- scikit-learn -----------------------------------------------------------------------------------------------------


def test_inspection_finds_what_acts(fitted):
    model, x, y = fitted
    found = permutation_importance(model, x, y, n_repeats=2, random_state=0)
    assert x.columns[found.importances_mean.argmax()] in ("size", "income")
    dependence = partial_dependence(model, x[:100], ["size"], grid_resolution=9, kind="average")
    # E f with a number fixed, over rows: the main effect under the product, and a constant
    effect = model.effect("size", measure="product")
    ours = np.interp(dependence["grid_values"][0], effect["size"], effect["mean"])
    assert np.corrcoef(ours, dependence["average"][0])[0, 1] > 0.98
    display = PartialDependenceDisplay.from_estimator(
        model, x.dropna()[:60], ["size", 'city\'s "name"'], categorical_features=['city\'s "name"'], grid_resolution=5
    )
    assert display.axes_.size == 2
    plt.close("all")


def test_groups_and_weights_are_routed():
    x, y = frame(240)
    groups, weight = np.arange(240) // 4, np.linspace(0.5, 2.0, 240)
    with sklearn.config_context(enable_metadata_routing=True):
        model = vb.AdditiveRegressor(remainder=False, clusters=[("size",)], evaluation="left_out")
        model.set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(FunctionTransformer(), model)
        params = {"groups": groups, "sample_weight": weight}
        found = cross_validate(
            pipeline, x[["size"]], y, cv=GroupKFold(3), params=params, return_estimator=True, error_score="raise"
        )
        train = np.setdiff1d(np.arange(240), next(iter(GroupKFold(3).split(x, y, groups)))[1])
        by_hand = model.fit(x.loc[train, ["size"]], y[train], weight[train], groups=groups[train])
    ours = found["estimator"][0].predict(x[["size"]])
    np.testing.assert_allclose(ours, by_hand.predict(x[["size"]]), rtol=1e-10)


def test_a_pickle_says_the_same(fitted):
    model, x, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.filterwarnings("ignore")  # MLflow's own, and what it starts
def test_mlflow_keeps_and_serves_a_model(fitted, tmp_path):
    mlflow = pytest.importorskip("mlflow.sklearn", reason=NEEDS)
    pyfunc = pytest.importorskip("mlflow.pyfunc", reason=NEEDS)
    model, x, _ = fitted
    mlflow.save_model(model, tmp_path / "model", serialization_format="cloudpickle", pip_requirements=["vertebra"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again, served = mlflow.load_model(str(tmp_path / "model")), pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(served.predict(x), model.predict(x))
