"""What a notebook shows."""

import xml.etree.ElementTree as ElementTree

import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import vertebra as vb


def parsed(html):
    """Well formed, so that nothing after it in a notebook is swallowed."""
    return ElementTree.fromstring(f"<all>{html}</all>")


def test_a_fitted_model_shows_its_verdict_terms_and_accuracy(rng):
    x = pd.DataFrame({"<b>size": rng.random(200), "idle": rng.random(200)})
    model = vb.AdditiveRegressor(random_state=0)
    before = model._repr_mimebundle_()["text/html"]
    model.fit(x, 3.0 * x["<b>size"] + rng.standard_normal(200))
    after = model._repr_mimebundle_()["text/html"]
    own = model._answer()
    assert own not in before
    assert after.endswith(own)
    assert model._repr_html_().endswith(own)
    assert "&lt;b&gt;size" in own
    assert "<b>size" not in own
    assert f"{model.effects()['strength'][0]:.4g}" in own
    assert f"{model.evaluation_.scores['linear']['rmse']:.4g}" in own
    assert "AdditiveRegressor</b>: Sound" in own
    first = next(parsed(own).iter("tbody")).find("tr")
    assert ["text-align:right" in cell.get("style", "") for cell in first] == [False, True, True, True, True]
    parsed(own)


def test_a_model_without_terms_says_what_it_can(rng):
    x = rng.random((60, 2))
    assert "No input was found to act" in vb.AdditiveRegressor(random_state=0).fit(x, rng.random(60))._answer()
    skeleton = vb.SkeletonRegressor(scheme="mean_field", widths=(4,), random_state=0, n_steps=50).fit(x, x[:, 0])
    assert "trained for" not in skeleton._answer()
    assert "SkeletonRegressor</b>" in skeleton._answer()


@pytest.mark.parametrize(("term", "shape"), [((0,), "polyline"), ((0, 1), "rect")])
def test_an_effect_shows_its_strength_and_its_curve_or_map(term, shape, rng):
    network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=2), vb.mean_field([4, 1]), key=jr.key(0))
    effects = vb.decompose(network, rng.random((50, 3)), key=jr.key(1))
    html = effects[term]._repr_html_()
    assert f"strength {effects[term].strength:.4g}" in html
    assert next(parsed(html).iter(shape)) is not None
    numbers = [float(v) for e in parsed(html).iter() for k, v in e.attrib.items() if k in ("x", "y", "width")]
    assert np.isfinite(numbers).all()
    assert "the constant" in effects[()]._repr_html_()
