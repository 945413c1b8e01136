import itertools
import pathlib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import multivariate_normal

import vertebra as vb
from vertebra.tables.profile import N_CELLS, plane
from vertebra.terms.components import Components
from vertebra.terms.copula import N_POINTS, Copula
from vertebra.terms.evidence import basis_of
from vertebra.terms.functions import system_of
from vertebra.terms.joint import LOG_SIZES, _regressed, _Shrinkage, below, gram_of, projected, raised, shrunk
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import subsets

OLD = pathlib.Path(__file__).parent / "files" / "0.1"


def correlated(n, rho, seed, n_inputs=3):
    """Rows of numbers that go together, the last of them levels where there are three."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 1))
    x = np.sqrt(rho) * common + np.sqrt(1.0 - rho) * rng.standard_normal((n, n_inputs))
    x[:, 1] = np.exp(0.5 * x[:, 1])
    if n_inputs > 2:
        x[:, 2] = np.digitize(x[:, 2], [-0.5, 0.7]).astype(float)
    return x, rng.uniform(0.5, 1.5, n)


def sum_on(x, weight, clusters, seed=0, degree=3, n_levels=None):
    """A sum of terms with random coefficients, on a basis of the rows."""
    n_levels = [0, 0, 3][: x.shape[1]] if n_levels is None else n_levels
    systems = [system_of(column, weight, n) for column, n in zip(x.T, n_levels, strict=True)]
    basis = basis_of(systems, subsets(clusters), {}, {1: degree, 2: degree, 3: degree + 1})
    rng = np.random.default_rng(seed)
    means = (rng.standard_normal(basis.n_columns + 1), rng.standard_normal(basis.n_columns + 1))
    roots = tuple(0.2 * rng.standard_normal((basis.n_columns + 1, basis.n_columns + 3)) for _ in means)
    return SumOfTerms(basis, means, roots)


def copula_of(x, weight, n_levels, n_rows=None):
    return Copula(x, weight, n_levels, weight.sum() if n_rows is None else n_rows)


def columns_of(f, term, x):
    place = f.basis.slices[f.basis.terms.index(term)]
    return f.features(x)[:, place.start + 1 : place.stop + 1]


def brute_force(f, x, weight, output):
    """Components at the rows: f in a basis of functions of each T that are orthogonal to all of S ⊊ T, by SVDs."""
    scale = np.sqrt(weight / weight.sum())[:, None]

    def orthonormal(matrix):
        left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
        return left[:, sizes > 1e-9 * sizes[0]]

    alone = {(): scale}
    for term in f.basis.terms:
        inside = [columns_of(f, s, x) for s in f.basis.terms if set(s) < set(term)]
        lower = orthonormal(scale * np.concatenate([np.ones((len(x), 1)), *inside], axis=1))
        own = scale * columns_of(f, term, x)
        alone[term] = orthonormal(own - lower @ (lower.T @ own))
    together = np.concatenate(list(alone.values()), axis=1)
    parts = np.linalg.lstsq(together, scale[:, 0] * (f.features(x) @ f.means[output]), rcond=None)[0]
    edges = np.cumsum([0, *(q.shape[1] for q in alone.values())])
    places = zip(alone.items(), itertools.pairwise(edges), strict=True)
    return {term: (q @ parts[a:b]) / scale[:, 0] for (term, q), (a, b) in places}


def component(view, term, x, output):
    return view.values(term, [x[:, i] for i in term], output).mean


@settings(max_examples=15, deadline=None)
@given(
    rho=st.floats(0.0, 0.85),
    seed=st.integers(0, 10_000),
    clusters=st.sampled_from([[(0, 1)], [(0, 1), (1, 2)], [(0, 1, 2)], [(0, 1), (2,)]]),
)
def test_components_are_those_of_least_squares_over_the_rows(rho, seed, clusters):
    x, weight = correlated(160, rho, seed)
    f = sum_on(x, weight, clusters, seed)
    view = Components(f, projected(f.basis, gram_of(f.basis, x, weight)))
    for output in range(2):
        sd = f.mean(x)[:, output].std()
        for term, wanted in brute_force(f, x, weight, output).items():
            found = np.broadcast_to(component(view, term, x, output), len(x))
            # two roads of least squares with columns that nearly go together: rounding times their condition
            np.testing.assert_allclose(found, wanted, atol=1e-8 * sd, err_msg=str(term))


def test_components_are_orthogonal_to_all_functions_of_fewer_inputs():
    x, weight = correlated(200, 0.6, 3)
    f = sum_on(x, weight, [(0, 1, 2)])
    view = Components(f, projected(f.basis, gram_of(f.basis, x, weight)))
    for term in f.basis.terms:
        own = component(view, term, x, 0)
        for lower in f.basis.terms:
            if set(lower) < set(term):
                covariance = (weight * own) @ columns_of(f, lower, x) / weight.sum()
                assert np.abs(covariance).max() < 1e-9 * own.std()  # rounding
        assert abs(weight @ own) / weight.sum() < 1e-10 * own.std()


@pytest.mark.parametrize("way", ["projected", "shrunk"])
def test_components_sum_to_f_anywhere(way):
    x, weight = correlated(150, 0.7, 5)
    f = sum_on(x, weight, [(0, 1, 2)])
    gram = gram_of(f.basis, x, weight)
    joint = projected(f.basis, gram)
    if way == "shrunk":
        joint = shrunk(f.basis, gram, 150.0, copula_of(x, weight, [0, 0, 3]), np.stack(f.means, axis=1))
    anywhere = np.array([[0.3, 1.0, 2.0], [-9.0, 40.0, -1.0], [np.nan, 0.7, 1.0], [0.1, np.nan, np.nan]])
    view = Components(f, joint)
    for output in range(2):
        total = sum(component(view, term, anywhere, output) for term in ((), *f.basis.terms))
        np.testing.assert_allclose(total, f.mean(anywhere)[:, output], rtol=1e-10, atol=1e-10)


def test_on_a_full_grid_components_are_those_of_the_product():
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 9), np.linspace(0, 3, 8), range(3)))).astype(float)
    weight = np.ones(len(grid))
    f = sum_on(grid, weight, [(0, 1), (1, 2)])
    gram = gram_of(f.basis, grid, weight)
    copula = copula_of(grid, weight, [0, 0, 3])
    for joint in (projected(f.basis, gram), shrunk(f.basis, gram, 216.0, copula, np.stack(f.means, axis=1))):
        view = Components(f, joint)
        draws = f.weights(0).draw(5, np.random.default_rng(0))
        sizes = view.squares(draws)
        for term in f.basis.terms:
            part = f.part(term)
            wanted = f.at(part, [grid[:, i] for i in term]) @ (part.lift @ f.means[0])
            np.testing.assert_allclose(component(view, term, grid, 0), wanted, atol=1e-10)
            np.testing.assert_allclose(np.sqrt(sizes[term][0]), f.strengths(part, draws), rtol=1e-10)
            np.testing.assert_allclose(sizes[term][0], sizes[term][1], rtol=1e-9)  # no share through others


def test_the_posterior_of_components_is_that_of_draws_of_f():
    x, weight = correlated(120, 0.6, 7)
    f = sum_on(x, weight, [(0, 1)])
    gram = gram_of(f.basis, x, weight)
    joint = shrunk(f.basis, gram, 120.0, copula_of(x, weight, [0, 0, 3]), np.stack(f.means, axis=1))
    joint = joint._replace(doubt=())  # f alone is uncertain here
    view, n_draws = Components(f, joint), 4000
    c = f.weights(0).draw(n_draws, np.random.default_rng(1))
    sizes = view.squares(c)
    drawn = {}
    for term in f.basis.terms:
        # each draw a fit of its own, taken apart by itself
        each = f._replace(means=tuple(c.T), roots=tuple(c[:, :1] for _ in c.T))
        parts = np.stack([component(view._replace(terms=each), term, x, k) for k in range(200)])
        np.testing.assert_allclose(np.sqrt(parts**2 @ weight / weight.sum()), np.sqrt(sizes[term][0][:200]), rtol=1e-8)
        drawn[term] = parts
        a = raised(f.basis, joint.lower, c)[view._own(term)]
        values = view.at(term, [x[:9, i] for i in term]) @ a
        exact = view.values(term, [x[:9, i] for i in term], 0)
        # Monte Carlo: 4 standard errors of a mean, and of an sd
        np.testing.assert_array_less(np.abs(values.mean(axis=1) - exact.mean), 4.0 * exact.sd / np.sqrt(n_draws))
        np.testing.assert_allclose(values.std(axis=1), exact.sd, rtol=4.0 / np.sqrt(2.0 * n_draws))
    f_at = (f.features(x) @ c[:, :200]).T
    f_at = f_at - (f_at @ weight / weight.sum())[:, None]
    for term, parts in drawn.items():
        np.testing.assert_allclose((parts * f_at) @ weight / weight.sum(), sizes[term][1][:200], rtol=1e-7, atol=1e-9)
    variance = f_at**2 @ weight / weight.sum()
    np.testing.assert_allclose(sum(both for _, both in sizes.values())[:200], variance, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_the_doubt_about_how_inputs_go_together_is_what_other_rows_would_say(rho):
    x, _ = correlated(400, rho, 15, n_inputs=2)
    weight = np.ones(400)
    f = sum_on(x, weight, [(0, 1)], degree=5)
    mean = np.zeros((f.basis.n_columns + 1, 1))
    mean[[1, 2, f.basis.slices[1].start + 1, f.basis.slices[2].start + 1], 0] = [1.0, -0.5, 0.7, 1.0]
    f = f._replace(means=(mean[:, 0],), roots=(np.zeros((len(mean), 1)),))

    def view_of(rows):
        return Components(
            f, shrunk(f.basis, gram_of(f.basis, rows, weight), 400.0, copula_of(rows, weight, [0, 0]), mean)
        )

    views = [view_of(correlated(400, rho, 100 + seed, n_inputs=2)[0]) for seed in range(30)]
    shown = x[:60]
    for term in f.basis.terms:
        each = [view.values(term, [shown[:, i] for i in term], 0) for view in views]
        said, drawn = np.array([v.sd for v in each]), np.array([v.mean for v in each]).std(axis=0)
        # of the same size: a Gaussian about one sample is not all that evidence may say of another
        assert 0.6 < np.sqrt(np.mean(said**2) / np.mean(drawn**2)) < 1.7, term


def test_with_very_many_rows_the_shrunk_projection_is_the_projection():
    x, weight = correlated(300, 0.5, 9)
    f = sum_on(x, weight, [(0, 1), (0, 2)])
    gram = gram_of(f.basis, x, weight)
    near = shrunk(f.basis, gram, 1e14, copula_of(x, weight, [0, 0, 3], 1e14), np.stack(f.means, axis=1))
    views = [Components(f, joint) for joint in (near, projected(f.basis, gram))]
    for term in f.basis.terms:
        one, other = (component(view, term, x, 0) for view in views)
        # noise of 1e-7 beside the signal, times the condition of the columns
        np.testing.assert_allclose(one, other, atol=1e-3 * other.std())


def test_where_inputs_are_independent_few_rows_do_not_make_main_effects_of_an_interaction():
    raw, near = [], []
    for seed in range(6):
        x, _ = correlated(300, 0.0, seed, n_inputs=2)
        f = sum_on(x, np.ones(300), [(0, 1)], degree=8)
        mean = np.zeros(f.basis.n_columns + 1)
        mean[f.basis.slices[2].start + 1] = 1.0  # φ₁φ₁ alone
        f = f._replace(means=(mean,), roots=(np.zeros((len(mean), 1)),))
        gram, draws = gram_of(f.basis, x, np.ones(300)), mean[:, None]
        for joint, found in (
            (projected(f.basis, gram), raw),
            (shrunk(f.basis, gram, 300.0, copula_of(x, np.ones(300), [0, 0]), draws), near),
        ):
            sizes = Components(f, joint).squares(draws)
            found.append(max(float(np.sqrt(sizes[term][0][0])) for term in ((0,), (1,))))
    assert np.mean(raw) > 0.2
    assert np.mean(near) < 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_draws_of_rough_functions_give_no_more_to_fewer_inputs_than_there_is_of_them(seed):
    """Not only what the posterior mean has: of any Ca, P_T takes out about as much as a regression, at most ‖Ca‖."""
    rng, n = np.random.default_rng(seed), 150
    tailed = np.round(np.exp(rng.standard_normal(n)), 1)  # few rows tell its twelve functions apart
    x, weight, levels = np.stack([tailed, rng.integers(0, 4, n), rng.integers(0, 3, n)], axis=1), np.ones(n), [0, 4, 3]
    f = sum_on(x, weight, [(0, 1, 2)], seed, 12, levels)
    joint = shrunk(
        f.basis, gram_of(f.basis, x, weight), float(n), copula_of(x, weight, levels), np.stack(f.means, axis=1)
    )
    phi = f.features(x)[:, 1:]
    phi = phi - phi.mean(axis=0)
    for k, place in enumerate(f.basis.slices):
        if len(f.basis.terms[k]) > 1:
            inside = below(f.basis, k)[1:] - 1
            _, sizes, right = np.linalg.svd(phi[:, place], full_matrices=False)
            there = sizes > 1e-6 * sizes[0]
            of_unit = phi[:, inside] @ joint.lower[k][1:] @ (right[there].T / sizes[there])
            assert np.linalg.norm(of_unit, 2) < 1.5  # 130 and more where draws were not thought of


def test_where_a_picture_has_next_to_no_points_it_says_nothing():
    """A function that is one spike, at a value of one row in six thousand that hardly any point of a picture has."""
    rng, n_points, n = np.random.default_rng(0), 4096, 6000
    one, noise = rng.standard_normal((2, n_points))
    spike = np.zeros(n_points)
    spike[7] = 0.01 * np.sqrt(n)  # the foot of it; its top, over the rows, is √n
    phi = np.stack([one, spike - spike.mean()], axis=1)
    own = (0.5 * one + noise)[:, None]
    found = _regressed(phi, own, np.eye(2))
    assert abs(found[1, 0]) < 1e-3  # next to nothing: the columns have a little in common
    assert found[0, 0] == pytest.approx(phi[:, 0] @ own[:, 0] / (phi[:, 0] @ phi[:, 0]), rel=1e-3)
    # least squares over the points alone: a residual of one of them, times hundreds over the rows
    alone = np.linalg.lstsq(phi, own, rcond=None)[0]
    assert abs(alone[1, 0]) > 0.3
    # what points have enough of is least squares, whatever the scale of the columns
    near = np.stack([one, one + 0.1 * rng.standard_normal(n_points)], axis=1)
    scale = np.linalg.inv(np.linalg.cholesky(near.T @ near / n_points)).T
    wanted = np.linalg.lstsq(near, own, rcond=None)[0]
    np.testing.assert_allclose(_regressed(near, own, scale), wanted, rtol=1e-9)


def test_the_picture_of_inputs_has_their_marginals_and_their_correlation():
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0, 0, 0], [[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]], 2000)
    x = np.stack([np.exp(z[:, 0]), np.where(rng.random(2000) < 0.25, np.nan, z[:, 1]), z[:, 2]], axis=1)
    copula = Copula(x, np.ones(2000), [0, 0, 0], 2000.0)
    assert copula.correlation(0, 1) == pytest.approx(0.8, abs=0.04)  # 4 standard errors
    assert copula.correlation(0, 2) == 0.0
    assert copula.is_dependent((0, 1))
    assert not copula.is_dependent((0, 2))
    points = copula.points((0, 1))
    assert points.shape == (N_POINTS, 2)
    for column, own in zip(points.T, x.T, strict=False):
        seen = own[~np.isnan(own)]
        assert np.isin(column[~np.isnan(column)], seen).all()
        np.testing.assert_allclose(
            np.nanquantile(column, [0.1, 0.5, 0.9]), np.quantile(seen, [0.1, 0.5, 0.9]), atol=0.1
        )
    assert np.isnan(points[:, 1]).mean() == pytest.approx(np.isnan(x[:, 1]).mean(), abs=0.01)
    both = ~np.isnan(points[:, 1])
    scores = Copula(points[both], np.ones(both.sum()), [0, 0], 4096.0)
    assert scores.correlation(0, 1) == pytest.approx(copula.correlation(0, 1), abs=0.02)


def test_a_weight_of_two_is_a_row_twice():
    x, _ = correlated(100, 0.6, 11)
    twice = np.concatenate([x, x[:40]])
    weight = np.append(np.full(40, 2.0), np.ones(60))
    one, other = (Copula(rows, w, [0, 0, 3], 140.0) for rows, w in ((x, weight), (twice, np.ones(140))))
    assert one.correlation(0, 1) == pytest.approx(other.correlation(0, 1), rel=1e-12)
    np.testing.assert_array_equal(one.points((0, 1)), other.points((0, 1)))


def test_the_scatter_of_strengths_and_shares_is_that_of_the_bootstrap():
    x, weight = correlated(400, 0.6, 13, n_inputs=2)
    weight = np.ones(400)
    f = sum_on(x, weight, [(0, 1)])
    gram = gram_of(f.basis, x, weight)
    view = Components(f, projected(f.basis, gram))
    view = view._replace(joint=view.joint._replace(scatter=view.scatter(x, weight, 400.0)))
    draws = np.repeat(f.means[0][:, None], 2000, axis=1)
    exact = view.squares(draws)
    found = view.scattered(exact, 0, np.random.default_rng(0))
    rng, parts = np.random.default_rng(1), {t: component(view, t, x, 0) for t in f.basis.terms}
    total = sum(parts.values())
    for term, own in parts.items():
        again = np.array([rng.multinomial(400, weight / 400.0) / 400.0 for _ in range(2000)])
        strengths, both = np.sqrt(again @ own**2), again @ (own * (total - total @ weight / 400.0))
        # the sd of 2000 draws is off by 1.6 %, on both sides; a root is not a straight line
        assert np.sqrt(found[term][0]).std() == pytest.approx(strengths.std(), rel=0.1)
        assert found[term][1].std() == pytest.approx(both.std(), rel=0.1)
        assert found[term][0].mean() == pytest.approx(exact[term][0][0], rel=0.02)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    x, _ = correlated(400, 0.8, 1, n_inputs=2)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": rng.standard_normal(400)})
    y = frame["a"] * frame["b"] + frame["c"] + 0.3 * rng.standard_normal(400)
    return vb.AdditiveRegressor(clusters=[("a", "b"), ("c",)], random_state=0).fit(frame, y), frame


def test_what_goes_to_each_input_is_shrunk_by_itself_as_in_a_dense_gaussian():
    rng = np.random.default_rng(3)
    root, other = rng.standard_normal((2, 5, 8))
    inner, noise, variances = root @ root.T / 8.0, 0.02 * other @ other.T, np.exp(-np.arange(5.0))
    score = inner @ (np.array([0.0, 0.0, 1.0, -0.5, 0.2])[:, None]) + 0.05 * rng.standard_normal((5, 1))
    found = _Shrinkage.of(inner, noise, variances, score, 2)
    firsts, sizes = np.append(0.0, np.exp(LOG_SIZES[::2])), np.append(0.0, np.exp(LOG_SIZES))
    each = []
    for a, b in itertools.product(firsts, sizes):
        prior = np.diag(variances * np.array([a, a, b, b, b]))
        whole = inner @ prior @ inner + noise
        gain = prior @ inner @ np.linalg.inv(whole)
        log_evidence = multivariate_normal.logpdf(score[:, 0], np.zeros(5), whole)
        each.append((log_evidence, gain @ score, prior - gain @ inner @ prior))
    best = max(each, key=lambda own: own[0])
    np.testing.assert_allclose(found(score), best[1], rtol=1e-6, atol=1e-9)
    share = softmax([own[0] for own in each])
    doubt = sum(s * own[2] for s, own in zip(share, each, strict=True))
    # the covariance is a difference: rounding of sizes up to e⁴ is left in it
    np.testing.assert_allclose(found.doubt(), doubt, rtol=1e-6, atol=1e-9)


def test_an_input_that_has_nothing_is_given_nothing_where_the_other_has_all():
    """x1 goes by the square of x0, and x0 · x1 is a cubic function of x0 and a rest: x1 itself does nothing."""
    rng = np.random.default_rng(2)
    one, other = rng.standard_normal((2, 600))
    x = np.stack([one, 0.8 * (one**2 - 1.0) / np.sqrt(2.0) + 0.6 * other], axis=1)
    y = x[:, 0] * x[:, 1] + 0.3 * rng.standard_normal(600)
    model = vb.AdditiveRegressor(clusters=[(0, 1)], random_state=0, evaluation="left_out").fit(x, y)
    strengths = model.effects().set_index("term")["strength"] / np.std(x[:, 0] * x[:, 1])
    # one size for both gave 0.16 and 0.81 here
    assert strengths[[("x1",)]].item() < 0.06
    assert strengths[[("x0",)]].item() > 0.85


def test_every_answer_has_both_measures_and_terms_sum_to_the_prediction(model):
    model, frame = model
    f = model.predict_f(frame)[0]
    for measure in (None, "data", "product"):
        terms = model.eval_terms(frame, measure=measure)
        np.testing.assert_allclose(terms.sum(axis=1), f, rtol=0.0, atol=1e-10 * f.std())
        row = model.explain(frame.iloc[[3]], measure=measure)
        by_row = dict(zip(row["term"], row["mean"], strict=True))
        for term in terms.columns[1:]:
            assert by_row[term] == pytest.approx(terms[term].iloc[3], rel=1e-9, abs=1e-12)
        table = model.effects(measure=measure)
        assert table["share"].sum() == pytest.approx(1.0, abs=1e-10)
        assert (table["share"] == table["sobol"]).all()
        assert (table["share_lower"] <= table["share"]).all()
        assert (table["share"] <= table["share_upper"]).all()
        # its own part and what it has through others, each with limits
        np.testing.assert_allclose(table["share_own"] + table["share_through"], table["share"], rtol=0.0, atol=1e-12)
        for part in ("share_own", "share_through"):
            assert (table[f"{part}_lower"] <= table[part]).all()
            assert (table[part] <= table[f"{part}_upper"]).all()
        assert (table["share_through"].abs().max() > 1e-3) == (measure != "product")
        curve = model.effect(("a", "b"), measure=measure, points=5)
        assert len(curve) == 25
    pd.testing.assert_frame_equal(model.effects(), model.effects(measure="data"))
    data, product = (model.effects(measure=m).set_index("term") for m in ("data", "product"))
    pair = ("a", "b")
    assert data["strength"][[pair]].item() < 0.8 * product["strength"][[pair]].item()
    assert model.interactions(measure="product")["term"].tolist() == model.interactions()["term"].tolist() == [pair]


def test_strengths_are_those_of_the_rows(model):
    model, frame = model
    terms, table = model.eval_terms(frame), model.effects().set_index("term")
    for term in terms.columns[1:]:
        found, interval = terms[term].std(ddof=0), table.loc[[term], ["lower", "upper"]].iloc[0]
        assert abs(terms[term].mean()) < 1e-9  # components have mean zero over the rows
        # the strength of the mean lies below the mean of strengths, by no more than the posterior is wide
        assert interval["lower"] - (interval["upper"] - interval["lower"]) <= found <= interval["upper"]


def test_totals_add_the_shares_of_the_terms_that_hold_an_input(model):
    model, _ = model
    effects, totals = model.effects(), model.totals(level=0.9).set_index("input")
    for name in totals.index:
        own = [name in term for term in effects["term"]]
        assert totals["total"][name] == pytest.approx(effects["share"][own].sum(), abs=1e-12)
        assert totals["lower"][name] <= totals["total"][name] <= totals["upper"][name]
        assert totals["main"][name] == pytest.approx(effects["share"][effects["term"] == (name,)].sum(), abs=1e-12)
    assert model.totals(measure="product")["total"].sum() > 1.0  # the interaction counts for both of its inputs


def test_a_saved_model_keeps_how_its_inputs_go_together(model, tmp_path):
    model, frame = model
    model.save(tmp_path / "model.vertebra")
    loaded = vb.load(tmp_path / "model.vertebra")
    pd.testing.assert_frame_equal(loaded.effects(), model.effects())
    pd.testing.assert_frame_equal(loaded.eval_terms(frame), model.eval_terms(frame))


def test_an_older_file_has_the_product_alone_and_says_so():
    old = vb.load(next(OLD.glob("*.vertebra")))
    assert len(old.effects()) == len(old.effects(measure="product"))
    with pytest.raises(ValueError, match=r'"product" for this model.*older version'):
        old.effects(measure="data")


def test_an_unknown_measure_is_refused(model):
    with pytest.raises(ValueError, match='`measure` must be "data" or "product", got \'marginal\''):
        model[0].effects(measure="marginal")


def test_classes_and_several_outputs_have_components_where_the_rows_are():
    x, _ = correlated(300, 0.8, 4, n_inputs=2)
    rng = np.random.default_rng(5)
    f = x[:, 0] * x[:, 1]
    both = np.stack([f + 0.3 * rng.standard_normal(300), x[:, 0] - x[:, 1] + 0.3 * rng.standard_normal(300)], axis=1)
    models = [
        vb.AdditiveRegressor(clusters=[("x0", "x1")]).fit(x, both),
        vb.AdditiveClassifier(clusters=[("x0", "x1")]).fit(x, np.digitize(f + rng.logistic(size=300), [0.0, 2.0])),
    ]
    for model in models:
        for k in range(2):
            terms, at = model.eval_terms(x, output=k), model.predict_f(x)[0][:, k]
            np.testing.assert_allclose(terms.sum(axis=1), at, rtol=0.0, atol=1e-10 * at.std())
            table = model.effects(output=k)
            assert table["share"].sum() == pytest.approx(1.0, abs=1e-10)
            assert (table["share_own"] + table["share_through"]).sum() == pytest.approx(1.0, abs=1e-10)
            assert table[["share_own_lower", "share_through_upper"]].notna().all(axis=None)
            assert terms.iloc[:, 1:].mean().abs().max() < 1e-9 * at.std()


# --- where the rows are -----------------------------------------------------------------------------------------------


def test_rows_near_a_place_are_those_of_its_cell_and_of_numbers_of_the_cells_beside_it():
    rng = np.random.default_rng(0)
    number, level, weight = rng.random(200) ** 2, rng.integers(0, 3, 200).astype(float), rng.uniform(0.5, 1.5, 200)
    number[:5], level[5:9] = np.nan, np.nan
    number[9], number[10] = 0.0, 1.0
    ranges = np.array([[0.0, 1.0], [0.0, 2.0]])
    found = plane(number, level, weight, (0, 4), ranges)
    assert found.counts.shape == (N_CELLS, 4)
    assert found.counts.sum() == pytest.approx(weight[9:].sum())
    cell = np.minimum(np.floor(number * N_CELLS), N_CELLS - 1)
    for value, code in itertools.product([0.0, 0.31, 0.9, 1.0], range(4)):
        own = min(int(value * N_CELLS), N_CELLS - 1)
        wanted = sum(w for c, k, w in zip(cell, level, weight, strict=True) if abs(c - own) <= 1 and k == code)
        assert found.near(np.array([value]), np.array([float(code)]))[0] == pytest.approx(wanted, abs=1e-9)
    nowhere = found.near(np.array([np.nan, 0.5, 7.0]), np.array([1.0, np.nan, 1.0]))
    assert nowhere.tolist() == [0.0, 0.0, 0.0]


def test_a_map_is_blank_where_no_rows_are_unless_it_is_asked_for(model, tmp_path):
    model, frame = model
    table = model.effect(("a", "b"))
    rows = table.attrs["rows"]
    assert len(rows) == len(table) == 400
    n_empty = sum(n == 0.0 for n in rows.values())
    assert 40 < n_empty < 360  # the two go together
    near = model.model_.profile.pairs[0, 1].near(*model.model_.schema.matrix(frame, "AdditiveRegressor").T[:2])
    assert (near >= 1.0).all()  # every row has one near it, itself
    for frame_of, wanted in ((table, n_empty), (table.sample(frac=1.0, random_state=0), n_empty)):
        axes = vb.plot.surface(frame_of)
        assert np.isnan(np.ma.filled(axes[0].collections[0].get_array(), np.nan)).sum() == wanted
        assert "blank: no rows" in axes[0].get_title(loc="right")
    whole = vb.plot.surface(table, everywhere=True)
    assert not np.isnan(np.ma.filled(whole[0].collections[0].get_array(), np.nan)).any()
    plt.close("all")
    model.save(tmp_path / "model.vertebra")
    assert vb.load(tmp_path / "model.vertebra").effect(("a", "b")).attrs["rows"] == rows
