"""Logits of many classes: sought and fitted together, by thinned rows and one basis."""

import numpy as np
import pytest
from scipy.stats import norm

import vertebra as vb
from vertebra.likelihoods.working_responses import Classes
from vertebra.terms.latents import MANY_LATENTS, data_of, thinned
from vertebra.terms.together import combined


def eight_classes(n, seed=0):
    """The class is told by two inputs alone and by the product of two others; the last input is noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    scores = np.stack([(k - 3.5) * 0.6 * x[:, 0] + np.cos(k) * 1.5 * x[:, 1] for k in range(8)], axis=1)
    scores[:, ::2] += 1.5 * (x[:, 2] * x[:, 3])[:, None]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return x, np.array([rng.choice(8, p=each) for each in p]), p


def test_eight_classes_find_their_terms_and_predict():
    x, y, _ = eight_classes(1500)
    model = vb.AdditiveClassifier(random_state=0).fit(x, y)
    terms = set(model.model_.posterior.terms.basis.terms)
    assert {(0,), (1,), (2, 3)} <= terms
    assert not any(4 in term for term in terms)
    new, _, truth = eight_classes(1000, seed=1)
    said = model.predict_proba(new)
    far = np.mean(np.sum(truth * np.log(truth / said), axis=1))
    shares = np.bincount(y, minlength=8) / len(y)
    blind = np.mean(np.sum(truth * np.log(truth / shares), axis=1))
    assert far < 0.08 * blind
    effects = model.effects(output=0)
    assert effects["term"].tolist()[0] in (("x0",), ("x1",))


def test_sums_of_thinned_rows_are_right_in_the_mean():
    rng = np.random.default_rng(0)
    weight, value = 10.0 ** rng.uniform(-5.0, -0.7, 40_000), rng.normal(size=40_000)
    kept, thin = thinned(weight, np.full(40_000, 0.02))
    assert len(kept) < 0.5 * len(weight)
    assert (thin[weight[kept] >= 0.02] == weight[kept][weight[kept] >= 0.02]).all()
    # a row of weight w is kept with the chance w/0.02: the sum has the variance Σ w (0.02 − w) v², less than that
    sd = np.sqrt(np.sum(np.maximum(weight * (0.02 - weight), 0.0) * value**2))
    assert abs(thin @ value[kept] - weight @ value) < 4.0 * sd
    assert abs(thin.sum() - weight.sum()) < 4.0 * np.sqrt(np.sum(np.maximum(weight * (0.02 - weight), 0.0)))


def test_rows_of_few_classes_are_not_thinned():
    x, y, _ = eight_classes(300)
    few = data_of(x, np.ones(300), [0] * 5, Classes(y % 3, 3, np.ones(300)))
    many = data_of(x, np.ones(300), [0] * 5, Classes(y, 8, np.ones(300)))
    assert 3 < MANY_LATENTS <= 8
    assert not few.are_many
    assert many.are_many
    f = np.tile(np.array([8.0, *[0.0] * 7]), (300, 1))
    assert all(rows.n == 300 for rows in few.rows(f[:, :3], np.zeros((300, 3))))
    assert all(rows.n < 150 for rows in many.rows(f, np.zeros((300, 8)))[1:])


@pytest.mark.parametrize("dependence", [0.0, 0.9])
def test_combined_p_values_hold_their_level(dependence):
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(1, 200_000))
    z = np.sqrt(dependence) * shared + np.sqrt(1.0 - dependence) * rng.normal(size=(10, 200_000))
    p = combined(norm.sf(z))
    for level in (0.01, 0.001):
        assert np.mean(p < level) < 1.25 * level
    assert combined(np.array([[1e-14], [0.5], [0.5]]))[0] == pytest.approx(3e-14, rel=0.01)
