"""The estimators are scikit-learn's: all of its own checks, and the tools that people wrap around one."""

import pickle
from unittest import SkipTest

import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import vertebra as vb

ESTIMATORS = [
    vb.AdditiveRegressor(),
    vb.AdditiveClassifier(),
    vb.SkeletonRegressor(widths=(8,), n_steps=60),
    vb.SkeletonClassifier(widths=(8,), n_steps=60),
]
EACH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


@pytest.fixture
def any_setting():
    """As users run it: the checks of types by the tests' import hook would stop a bad setting in `__init__`."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.filterwarnings("default")  # the checks feed an estimator what it warns about
@parametrize_with_checks(ESTIMATORS[:1])
def test_every_check_of_scikit_learn_is_passed_and_none_is_skipped(estimator, check, monkeypatch, request):
    passes(estimator, check, monkeypatch, request)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@parametrize_with_checks(ESTIMATORS[1:])
def test_every_check_of_scikit_learn_is_passed_by_the_others_too(estimator, check, monkeypatch, request):
    passes(estimator, check, monkeypatch, request)


def passes(estimator, check, monkeypatch, request):
    # The check of array API input asks for this variable when it runs. SciPy itself read it long ago, when it was
    # imported, and stays as it is: the namespace checked is NumPy's, which needs nothing of it.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    if check.func.__name__ == "check_do_not_raise_errors_in_init_or_set_params":
        request.getfixturevalue("any_setting")
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


@EACH
def test_scikit_learn_has_all_its_checks_for_every_estimator(estimator):
    checks = [check.func.__name__ for _, check in estimator_checks_generator(estimator)]
    # 1.6 has 50 and more for an estimator with weights, and later versions add to them
    assert len(checks) >= 50
    assert set(checks) >= {
        "check_array_api_input",
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_estimators_pickle",
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_sample_weight_equivalence_on_dense_data",
    }
    assert is_regressor(estimator) != is_classifier(estimator)


def table(n, seed=0):
    """A number, a whole number, a boolean, text, a category with order, and gaps in two of them."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "size": rng.normal(50.0, 10.0, n),
            "rooms": rng.integers(1, 8, n),
            "garden": rng.random(n) < 0.5,
            "city": rng.choice(["Bergen", "Oslo", "Tromsø"], n),
            "grade": pd.Categorical(rng.choice(["poor", "fair", "good"], n), ["poor", "fair", "good"], ordered=True),
        }
    )
    y = 0.2 * x["size"] + 2.0 * x["garden"] + x["city"].map({"Bergen": 0.0, "Oslo": 3.0, "Tromsø": -3.0})
    x.loc[::10, "size"] = np.nan
    x.loc[5::10, "city"] = None
    return x, (y + 0.3 * rng.standard_normal(n)).to_numpy()


def target_of(estimator, y):
    return np.where(y > np.median(y), "high", "low") if is_classifier(estimator) else y


def said(model, x):
    return model.predict_proba(x) if is_classifier(model) else np.stack(model.predict(x, return_std=True), axis=1)


@EACH
def test_a_clone_has_the_settings_and_nothing_of_the_fit(estimator):
    x, y = table(60)
    model = (
        clone(estimator).set_params(random_state=3, feature_types={"rooms": "ordered"}).fit(x, target_of(estimator, y))
    )
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert [name for name in vars(copy) if name.endswith("_")] == []
    with pytest.raises(NotFittedError, match=f"This {type(model).__name__} instance is not fitted yet"):
        copy.predict(x)


@EACH
def test_parameters_are_read_and_set_by_name(estimator):
    model = clone(estimator)
    assert set(model.get_params()) == set(model._get_param_names())
    changed = dict(time_budget=2.5, random_state=7, verbose=1, n_steps=11)
    assert model.set_params(**changed) is model
    assert model.get_params() == estimator.get_params() | changed
    with pytest.raises(ValueError, match="Invalid parameter 'likelyhood' for estimator"):
        model.set_params(likelyhood="gaussian")


@EACH
def test_a_pickled_model_predicts_the_same_to_the_last_digit(estimator):
    x, y = table(60)
    model = clone(estimator).fit(x, target_of(estimator, y))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(said(again, x), said(model, x))
    assert again.get_params() == model.get_params()
    assert again.schema_ == model.schema_
    assert again.diagnostics_ == model.diagnostics_
    if hasattr(model, "effects"):
        pd.testing.assert_frame_equal(again.effects(), model.effects())


@EACH
def test_names_of_columns_are_kept_and_an_array_has_none(estimator):
    x, y = table(60)
    y = target_of(estimator, y)
    model = clone(estimator).fit(x, y)
    assert model.feature_names_in_.tolist() == list(x.columns)
    assert model.feature_names_in_.dtype == object
    assert model.n_features_in_ == 5
    numbers = np.random.default_rng(0).standard_normal((60, 5))
    model.fit(numbers, y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 5


@EACH
def test_a_polars_frame_gives_what_a_pandas_frame_gives(estimator):
    x, y = table(60)
    y = target_of(estimator, y)
    columns = {name: x[name].to_list() for name in ("rooms", "garden")}
    columns["size"] = [None if np.isnan(v) else v for v in x["size"]]
    columns["city"] = [v if isinstance(v, str) else None for v in x["city"]]
    schema = {
        "size": pl.Float64,
        "rooms": pl.Int64,
        "garden": pl.Boolean,
        "city": pl.String,
        "grade": pl.Enum(["poor", "fair", "good"]),
    }
    other = pl.DataFrame(columns | {"grade": x["grade"].astype(str).to_list()}, schema=schema)
    one, two = clone(estimator).fit(x, y), clone(estimator).fit(other, pl.Series(y))
    assert two.schema_ == one.schema_
    assert two.feature_names_in_.tolist() == list(x.columns)
    np.testing.assert_array_equal(said(two, other), said(one, x))
    np.testing.assert_array_equal(said(one, other), said(one, x))
    if hasattr(one, "effects"):
        pd.testing.assert_frame_equal(two.effects(), one.effects())


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=lambda e: type(e).__name__)
def test_a_pipeline_of_scaled_columns_ends_in_the_estimator(estimator):
    x, y = table(200)
    y = target_of(estimator, y)
    scaled = make_column_transformer(
        (StandardScaler(), ["size"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipeline = make_pipeline(scaled, clone(estimator)).fit(x, y)
    assert ("city",) in pipeline[-1].clusters_
    assert pipeline.score(x, y) > 0.8
    plain = clone(estimator).fit(x, y)
    # a scaled column is the same column but for rounding, which the search for the evidence's maximum enlarges
    np.testing.assert_allclose(said(pipeline[-1], scaled.transform(x)), said(plain, x), rtol=1e-3, atol=1e-3)


def test_a_grid_search_chooses_clusters_and_likelihood():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.random((150, 3)), columns=["a", "b", "c"])
    y = 4.0 * (x["a"] - 0.5) * (x["b"] - 0.5) * 4.0 + 0.1 * rng.standard_normal(150)
    grid = {"clusters": [[("c",)], [("a",), ("b",)], [("a", "b")]], "likelihood": ["gaussian", "student_t"]}
    search = GridSearchCV(vb.AdditiveRegressor(random_state=0), grid, cv=3, error_score="raise").fit(x, y)
    assert search.best_params_["clusters"] == [("a", "b")]
    # the sd of the product is 4·4/12 = 1.33, that of the noise 0.1: R² up to 0.99
    assert search.best_score_ > 0.9
    assert search.best_estimator_.clusters_ == [("a", "b")]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_scores_of_folds_do_not_depend_on_how_many_processes_work_them_out():
    x, y = table(120)
    model = vb.AdditiveRegressor(random_state=0)
    one = cross_val_score(model, x, y, cv=2, error_score="raise")
    two = cross_val_score(model, x, y, cv=2, n_jobs=2, error_score="raise")
    # the same sums; another process may have BLAS kernels round them in another order
    np.testing.assert_allclose(two, one, rtol=1e-6)
    assert (one > 0.7).all()
