"""What was looked for and not found: every candidate, its q-value, and how strong it may be at most."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.terms.structure import BEYOND, Score, Size, Structure, discoveries, q_values


def table(n, seed, strengths):
    """Main effects and products of sd 1 under uniform inputs, times their strengths."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 8))
    f = 2.0 * np.sin(3.0 * x[:, 0]) + 2.0 * x[:, 1]
    for (i, j), strength in strengths.items():
        f = f + strength * 12.0 * (x[:, i] - 0.5) * (x[:, j] - 0.5)
    return x, f + rng.standard_normal(n)


@pytest.fixture(scope="module")
def fitted():
    x, y = table(400, 0, {(2, 3): 0.8, (4, 5): 0.12})
    return vb.AdditiveRegressor(remainder=False, random_state=0).fit(x, y)


def test_every_pair_is_there_with_what_is_known_of_it(fitted):
    pairs = fitted.candidates(order=2)
    assert len(pairs) == 28
    assert pairs["p_value"].is_monotonic_increasing
    assert pairs.loc[0, "term"] == ("x2", "x3")
    assert pairs.loc[0, "found"]
    assert pairs["upper"].notna().all()
    assert fitted.candidates()["order"].isin([1, 2, 3]).all()
    # what was found has the limit of its posterior
    assert pairs.loc[0, "upper"] == pytest.approx(0.8, abs=0.25)


def test_upper_limits_hold_and_are_of_use():
    holds, idle = [], []
    for seed in range(8):
        weak = {(2, 3): 0.05, (4, 5): 0.1, (6, 7): 0.15}
        x, y = table(400, 100 + seed, weak)
        pairs = vb.AdditiveRegressor(remainder=False, random_state=0).fit(x, y).candidates(order=2)
        pairs = pairs[~pairs["found"]].set_index("term")
        for (i, j), strength in weak.items():
            if (name := (f"x{i}", f"x{j}")) in pairs.index:
                holds.append(pairs.loc[[name], "upper"].item() >= strength)
        idle.append(pairs["upper"].median())
    # 24 of 95 %: 20 or fewer come in one of a hundred
    assert np.mean(holds) > 0.84
    # noise of sd 1 and 400 rows: an sd of some 0.05 for one coefficient
    assert np.median(idle) < 0.35


def test_a_larger_rate_of_false_discoveries_lists_more(fitted):
    few, many = fitted.interactions(fdr=0.01), fitted.interactions(fdr=0.9)
    assert len(many) > len(few)
    assert set(few["term"]) <= set(many["term"])
    beyond = many[many["share"].isna()]
    assert len(beyond)
    assert (beyond["lower"] <= beyond["strength"]).all()
    assert (beyond["strength"] <= beyond["upper"]).all()
    assert list(many) == list(fitted.effects())


def test_terms_beyond_the_model_are_listed_at_half_the_level():
    size = Size(1.0, 0.1, 0.8, 1.2)
    tests = {(0, 1): Score(1e-3, 2.0), (0, 2): Score(1.1e-3, 2.0, size), (1, 2): Score(1.2e-3, 2.0)}
    structure = Structure(((0, 1),), tests, {2: 3})
    q = q_values(structure)
    # Benjamini & Hochberg by hand: 3p/rank, the smallest from there on
    assert q == pytest.approx({(0, 1): 1.2e-3, (0, 2): 1.2e-3, (1, 2): 1.2e-3})
    assert discoveries(structure, 1.2e-3 / BEYOND + 1e-9) == [(0, 1), (0, 2)]
    assert discoveries(structure, 1.3e-3) == [(0, 1)]
    assert q_values(Structure((), {}, {2: 3})) == {}


def test_limits_are_kept_in_files_and_are_in_the_targets_unit(fitted, tmp_path):
    fitted.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    pd.testing.assert_frame_equal(again.candidates(), fitted.candidates())
    x, y = table(400, 0, {(2, 3): 0.8, (4, 5): 0.12})
    larger = vb.AdditiveRegressor(remainder=False, random_state=0).fit(x, 1000.0 * y).candidates(order=2)
    # rows of larger targets come in another order, and draws of posteriors with them
    np.testing.assert_allclose(larger["upper"], 1000.0 * fitted.candidates(order=2)["upper"], rtol=0.01)


def test_terms_that_were_given_have_no_limits():
    x, y = table(200, 0, {})
    model = vb.AdditiveRegressor(clusters=[("x0",), ("x1",)], random_state=0).fit(pd.DataFrame(x).add_prefix("x"), y)
    assert model.candidates()["found"].all()


def test_classes_and_several_targets_have_candidates_too():
    x, y = table(300, 0, {(2, 3): 0.8})
    classes = vb.AdditiveClassifier(random_state=0).fit(x, y > np.median(y))
    assert {"upper", "q_value"} <= set(classes.candidates())
    both = vb.AdditiveRegressor(remainder=False, random_state=0).fit(x, np.stack([y, -y], axis=1))
    assert len(both.candidates(order=2, output=1)) == 28


def centred_product(x, *inputs):
    """Of sd 1 under uniform inputs."""
    return np.prod(np.sqrt(12.0) * (x[:, inputs] - 0.5), axis=1)


@pytest.mark.everyday("heteroscedastic")
@pytest.mark.parametrize("kind", ["counts", "heteroscedastic", "student_t", "classes"])
def test_triples_were_looked_for_whatever_the_noise_is(kind):
    """Where noise is not Gaussian terms are looked at again, without those of three inputs."""
    rng = np.random.default_rng(0)
    x = rng.random((300, 6))
    f = 1.5 * np.sin(3.0 * x[:, 0]) + 0.3 * centred_product(x, 1, 2, 3)
    settings = dict(remainder=False, random_state=0, evaluation="left_out")
    if kind == "classes":
        model = vb.AdditiveClassifier(**settings).fit(x, rng.random(300) < 1.0 / (1.0 + np.exp(2.0 - 2.0 * f)))
    elif kind == "counts":
        model = vb.AdditiveRegressor(likelihood=kind, **settings).fit(x, rng.poisson(np.exp(f)))
    else:
        model = vb.AdditiveRegressor(likelihood=kind, **settings).fit(x, f + 0.6 * rng.standard_normal(300))
    triples = model.candidates(order=3).set_index("term")
    assert len(triples) == 20
    assert triples["upper"].notna().all()
    # those of the model they ended with: real where it is, and no limit far above what was there
    assert triples.index[0] == ("x1", "x2", "x3")
    assert triples["upper"].iloc[0] > 0.3
    assert triples["upper"].median() < (1.0 if kind == "classes" else 0.4)


def test_of_a_term_of_which_the_rest_leaves_nothing_no_limit_is_stated():
    """A constant with gaps, numbers and times in few of the rows: what pairs do is what gaps do by themselves."""
    gap, rng = np.nan, np.random.default_rng(1)
    constant = [1.0, 1.0, *[gap] * 6, 1.0, 1.0, 1.0, *[gap] * 5, 1.0, 1.0, 1.0, *[gap] * 11, 1.0, 1.0, gap, gap]
    number = [gap, gap, 3, 3, 3, *[gap] * 10, -4, 1, 1, 1, *[gap] * 3, 2, 2, *[gap] * 3, -1, -1, -1, gap, gap, -2, gap]
    days = pd.to_datetime(["2002-03-05 10:26", "2001-07-04 10:31", "2001-12-19 21:08"])
    day = pd.Series(days).reindex([*[9] * 8, 0, 0, 0, 9, 1, 1, *[9] * 6, 2, 2, *[9] * 12]).to_numpy()
    x = pd.DataFrame({"constant": constant, "number": number, "day": day})
    found = vb.AdditiveRegressor(remainder=False).fit(x, rng.standard_normal(len(x))).candidates()
    assert (found["p_value"] > 0.05).all()
    assert found.loc[found["order"] == 3, "upper"].isna().all()
    assert (found["upper"].dropna() < 10.0).all()
