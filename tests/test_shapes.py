"""Shapes that are asked for: f rises or falls with some inputs, in the mean, in every draw, beside all other values."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import vertebra as vb
from vertebra.likelihoods.working_responses import Plain
from vertebra.terms.additive import fit_additive
from vertebra.terms.evidence import basis_of
from vertebra.terms.functions import system_of
from vertebra.terms.shapes import Cone, shaped, shaped_mode


def people(n=300, seed=0):
    """Numbers, gaps, counts, levels and ordered levels; f rises with income and grade, and falls with age."""
    rng = np.random.default_rng(seed)
    grades = pd.Categorical(rng.choice(["low", "mid", "high"], n), ["low", "mid", "high"], ordered=True)
    x = pd.DataFrame(
        {
            "income": rng.gamma(3.0, 1.0, n).round(2),
            "age": rng.integers(18, 60, n),
            "city": rng.choice(["a", "b"], n),
            "grade": grades,
        }
    )
    x.loc[rng.random(n) < 0.05, "income"] = np.nan
    f = np.log(x["income"].fillna(2.0)) * (1.0 + (x["city"] == "a")) - x["age"] / 40.0 + (grades == "high")
    return x, f.to_numpy(), rng


SHAPES = {"income": "+", "age": "-", "grade": "+"}


def worst_step(predict, x, rng):
    """The largest step in the wrong direction, of predictions and beyond the range too."""
    worst = 0.0
    for _ in range(10):
        row = x.iloc[[int(rng.integers(len(x)))]]
        many = pd.concat([row] * 200, ignore_index=True)
        worst = min(worst, np.diff(predict(many.assign(income=np.linspace(-5.0, 25.0, 200)))).min())
        worst = min(worst, -np.diff(predict(many.iloc[:80].assign(age=np.arange(10, 90)))).max())
        grades = pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True)
        worst = min(worst, np.diff(predict(many.iloc[:3].assign(grade=grades))).min())
    return worst


@pytest.mark.filterwarnings("ignore::vertebra.OutsideRange")
def test_a_regression_keeps_its_shape_in_mean_and_draws(tmp_path):
    # Rows on which a fit that is free to do so bends the wrong way: else the shape would be no constraint.
    x, f, rng = people(seed=1)
    y = f + rng.normal(size=len(x))
    model = vb.AdditiveRegressor(monotone=SHAPES, random_state=0).fit(x, y)
    free = vb.AdditiveRegressor(random_state=0).fit(x, y)
    assert worst_step(free.predict, x, np.random.default_rng(1)) < -1e-3
    assert worst_step(model.predict, x, np.random.default_rng(1)) >= -1e-12
    many = pd.concat([x.iloc[[0]]] * 100, ignore_index=True).assign(income=np.linspace(0.0, 15.0, 100))
    draws = model.model_.posterior.sample(model.model_.x(many), 60, seed=3)[:, :, 0]
    assert np.diff(draws, axis=1).min() >= -1e-12
    assert len(np.unique(draws[:, 0])) > 40
    curve = model.effect("income")
    assert np.diff(curve["mean"][curve["income"].notna()]).min() >= -1e-12
    path = tmp_path / "model.vertebra"
    model.save(path)
    again = vb.load(path)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.get_params()["monotone"] == SHAPES
    assert again.model_.posterior.terms.are_draws == (True,)
    assert "as asked, f rises with income, falls with age" in str(model.diagnostics_)


@pytest.mark.filterwarnings("ignore::vertebra.OutsideRange")
@pytest.mark.parametrize("kind", ["classes", "counts"])
def test_probabilities_and_counts_keep_their_shape(kind):
    x, f, rng = people(400, seed=1)
    if kind == "classes":
        model = vb.AdditiveClassifier(monotone=SHAPES, random_state=0).fit(x, rng.random(len(x)) < 1 / (1 + np.exp(-f)))
        predict = lambda rows: model.predict_proba(rows)[:, 1]  # noqa: E731
    else:
        model = vb.AdditiveRegressor(likelihood="poisson", monotone=SHAPES, random_state=0)
        predict = model.fit(x, rng.poisson(np.exp(0.5 * f))).predict
    assert worst_step(predict, x, np.random.default_rng(1)) >= -1e-12


def small_cone(seed):
    """A basis in which one input has two partners, and a Gaussian of its coefficients that lies partly outside."""
    rng = np.random.default_rng(seed)
    systems = [system_of(x, np.ones(200), degree=3, is_tabulated=True) for x in rng.random((3, 200)).round(1)]
    basis = basis_of(systems, [(0,), (1,), (2,), (0, 1), (0, 2)], total_degree={1: 2, 2: 2})
    m = basis.n_columns + 1
    root = 0.3 * rng.normal(size=(m, m))
    # rows say nothing of what grows beyond the range
    beyond = Cone(basis, {0: 1}).level + 1
    root[beyond], root[:, beyond] = 0.0, 0.0
    root[beyond, beyond] = 1.0
    rows = np.array(list(itertools.product(*(system.knots for system in systems))))
    phi = basis([system.at(column) for system, column in zip(systems, rows.T, strict=True)])
    steps = np.diff(phi.reshape(*(len(system.knots) for system in systems), -1), axis=0)
    return basis, rng.normal(size=m), root, steps.reshape(-1, basis.n_columns), beyond


@pytest.mark.parametrize("seed", range(4))
def test_the_mode_is_the_nearest_point_of_all_that_step_up_everywhere(seed):
    """Against a general solver with the steps beside every two values of the partners, one by one."""
    basis, mean, root, steps, beyond = small_cone(seed)
    mode = shaped_mode(basis, mean, root, {0: 1})
    assert (steps @ mean[1:]).min() < -0.1
    assert (steps @ mode[1:]).min() >= -1e-12
    np.testing.assert_array_equal(mode[beyond], 0.0)
    precision = np.linalg.inv(root @ root.T)
    precision[beyond], precision[:, beyond] = 0.0, 0.0

    def away(v):
        return 0.5 * (v - mean) @ precision @ (v - mean), precision @ (v - mean)

    walls = {"type": "ineq", "fun": lambda v: steps @ v[1:], "jac": lambda v: np.insert(steps, 0, 0.0, axis=1)}
    found = minimize(away, mode, jac=True, method="SLSQP", constraints=[walls], options={"maxiter": 1000})
    assert away(mode)[0] == pytest.approx(away(found.x)[0], rel=1e-4)


def test_draws_are_inside_and_those_that_were_stay_as_they_were():
    basis, mean, root, steps, beyond = small_cone(0)
    found = shaped(basis, mean, root, {0: 1}, np.random.default_rng(0))
    draws = found.mean[:, None] + found.root * np.sqrt(found.root.shape[1])
    assert (steps @ draws[1:]).min() >= -1e-12
    # shapes that the Gaussian has for certain change nothing but what grows
    mean = shaped_mode(basis, mean, root, {0: 1})
    line = np.append(0.0, np.linalg.lstsq(steps, np.ones(len(steps)), rcond=None)[0])
    root = 1e-3 * root
    inside = mean + 10.0 * line
    found = shaped(basis, inside, root, {0: 1}, np.random.default_rng(0))
    noise = np.random.default_rng(0).standard_normal((root.shape[1], found.root.shape[1]))
    free = inside[:, None] + root @ noise
    free[beyond] = 0.0
    assert (steps @ free[1:]).min() > 0.0
    np.testing.assert_allclose(found.mean[:, None] + found.root * np.sqrt(found.root.shape[1]), free, atol=1e-12)


@pytest.mark.parametrize("rise", [0.0, 1.0])
def test_bands_hold_and_predictions_are_no_worse(rise):
    """Twelve fits of a function that is flat and then rises, beside one that turns."""
    errors, inside = [], []
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        x, new = rng.random((300, 2)), rng.random((500, 2))
        f, truth = (2.0 * np.maximum(z[:, 0] - 0.5, 0.0) + rise * z[:, 0] + np.sin(6.0 * z[:, 1]) for z in (x, new))
        y = (f + 0.5 * rng.normal(size=300))[:, None]
        fits = [
            fit_additive(x, Plain(y, np.ones(300)), np.ones(300), rng=rng, shapes=shapes, calibrate=False).terms
            for shapes in ({}, {0: 1})
        ]
        errors.append([np.sqrt(np.mean((fit.mean(new)[:, 0] - truth) ** 2)) for fit in fits])
        mean, variance = fits[1].moments(new)
        inside.append(np.abs(mean[:, 0] - truth) < 1.96 * np.sqrt(variance[:, 0]))
    free, kept = np.mean(errors, axis=0)
    assert kept <= free
    # 12 fits of some 8 degrees of freedom each: 0.02 is one sd of the mean
    assert np.mean(inside) > 0.91


def test_what_cannot_be_asked_for_is_said():
    x, f, _ = people(60)
    for given, words in (
        ({"monotone": {"city": "+"}}, "`monotone` is for numbers and ordered levels: city is a category"),
        ({"monotone": {"age": "up"}}, '`monotone` must say "\\+" or "-" of age, got \'up\''),
        ({"monotone": {"rent": "+"}}, "'rent' is not an input of the model: there are income, age, city, grade"),
        ({"monotone": {"age": "+"}, "scheme": "mean_field"}, '`monotone` needs scheme="auto"'),
    ):
        with pytest.raises(ValueError, match=words):
            vb.AdditiveRegressor(**given).fit(x, f)
    with pytest.raises(ValueError, match="got 3 classes"):
        vb.AdditiveClassifier(monotone={"age": "+"}).fit(x, x["grade"].astype(str))
    model = vb.AdditiveRegressor(monotone={"age": "-"}).fit(x, f)
    with pytest.raises(ValueError, match="Gaussian posterior"):
        vb.as_network(model)
