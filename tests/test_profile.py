import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.tables.profile import profile
from vertebra.tables.schema import learn


def test_shares_count_weighted_rows_in_the_user_s_units():
    x = pd.DataFrame({"size": [0.0, 1.0, 2.0, 10.0, np.nan], "city": ["a", "b", "b", None, "a"]})
    schema = learn(x)
    weight = np.array([1.0, 1.0, 2.0, 1.0, 5.0])
    found = profile(schema.matrix(x), np.arange(5.0)[:, None], weight, schema.columns)
    size, city = found.inputs
    edges = size.edges
    by_hand, _ = np.histogram([0.0, 1.0, 2.0, 10.0], edges, weights=[1.0, 1.0, 2.0, 1.0])
    np.testing.assert_allclose(size.shares, by_hand / 10.0)
    np.testing.assert_allclose([edges[0], edges[-1], size.missing, size.middle], [0.0, 10.0, 0.5, 2.0])
    np.testing.assert_allclose(city.shares, [0.6, 0.3])
    assert city.table(schema.columns[1]).to_dict("list") == {"level": ["a", "b"], "share": pytest.approx([0.6, 0.3])}
    assert (found.n_rows, found.weight) == (5, 10.0)
    np.testing.assert_allclose(found.means, [weight @ np.arange(5.0) / 10.0])


def test_a_column_of_one_value_and_one_of_none_have_a_profile():
    x = pd.DataFrame({"one": np.ones(6), "none": [np.nan] * 6, "tails": [0.0, 1e-3, 1.0, 2.0, 1e9, -1e9]})
    schema = learn(x)
    found = profile(schema.matrix(x), np.zeros((6, 1)), np.ones(6), schema.columns)
    one, none, tails = found.inputs
    np.testing.assert_allclose(one.shares.sum(), 1.0)
    assert none.missing == 1.0
    np.testing.assert_allclose(tails.edges[[0, -1]], [-1e9, 1e9])
    assert (np.diff(tails.edges) > 0).all()


def test_an_estimator_tells_how_its_inputs_were_spread(rng):
    x = pd.DataFrame({"size": rng.random(100), "city": rng.choice(["a", "b"], 100)})
    model = vb.AdditiveRegressor(random_state=0).fit(x, x["size"])
    np.testing.assert_allclose(model.marginal("size")["share"].sum(), 1.0)
    assert list(model.marginal("city")["level"]) == ["a", "b"]
    assert list(model.marginal(0).columns) == ["lower", "upper", "share"]
    with pytest.raises(ValueError, match="'sise' is not an input of the model; did you mean 'size'"):
        model.marginal("sise")
