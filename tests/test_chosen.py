"""Terms chosen near the level of the choice: how strong they are, given that noise may have helped them there."""

import importlib
import itertools
import pathlib
import sys

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.effects.posterior import TermsPosterior
from vertebra.likelihoods.working_responses import Plain
from vertebra.terms.additive import fit_additive
from vertebra.terms.chosen import LEAST_OWN, _chance, _share_of_its_own
from vertebra.terms.families import Family
from vertebra.terms.functions import system_of
from vertebra.terms.model import model_of
from vertebra.terms.score_test import block_tested, given_the_rest, turned
from vertebra.terms.structure import (
    LOG_SIZES,
    NOT_REAL,
    REAL,
    SHARES,
    SIZES,
    SPREADS,
    Score,
    Structure,
    learned,
    probabilities,
)
from vertebra.terms.sum_of_terms import LEVELS
from vertebra.terms.sums import RowSums

ROOT = pathlib.Path(__file__).parents[1]


def table(strength, seed, n=200):
    """A strong line, a line of some strength, and two inputs that do nothing."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 4))
    line = np.sqrt(12.0) * (x - 0.5)
    return x, 2.0 * line[:, 0] + strength * line[:, 1] + rng.standard_normal(n)


@pytest.fixture(scope="module")
def fitted():
    x, y = table(0.33, 1)
    return vb.AdditiveRegressor(remainder=False, evaluation="left_out", random_state=0).fit(x, y)


def test_the_chance_of_being_chosen_is_that_of_simulated_scores(rng):
    values, sizes, level = np.array([5.0, 2.0, 0.4]), np.array([0.01, 0.7, 2.0]), 0.01
    squares = rng.standard_normal((200_000, 3)) ** 2
    q = np.quantile(squares @ values, 1.0 - level)
    wanted = [np.mean(squares @ (values * (1.0 + size**2 * values)) > q) for size in sizes]
    # a quantile of 2,000 draws beyond it is off by 1 % of itself, and the saddlepoint's tail by as much
    np.testing.assert_allclose(_chance(values, level, np.inf, sizes), wanted, rtol=0.06)


def test_a_term_near_the_level_is_weaker_given_that_it_was_chosen_and_a_strong_one_is_as_it_was(fitted):
    posterior = fitted.model_.posterior
    assert set(posterior.terms.chosen[0]) == {(1,)}
    before = posterior._replace(terms=posterior.terms._replace(chosen=()))
    for measure in posterior.measures:
        now, then = (each.sizes(0, None, measure) for each in (posterior, before))
        np.testing.assert_array_equal(now[(0,)].strength, then[(0,)].strength)
        assert now[(1,)].strength.mean() < then[(1,)].strength.mean()
        assert np.quantile(now[(1,)].strength, 0.025) < np.quantile(then[(1,)].strength, 0.025)
        np.testing.assert_allclose(sum(own.share for own in now.values()), 1.0, atol=1e-12)
    weak, strong = (posterior.curve(t, [np.linspace(0.1, 0.9, 5)], 0, None, measure) for t in ((1,), (0,)))
    was = before.curve((1,), [np.linspace(0.1, 0.9, 5)], 0, None, measure)
    assert np.abs(weak.mean[[0, -1]]).max() < np.abs(was.mean[[0, -1]]).max()
    np.testing.assert_array_equal(strong.mean, before.curve((0,), [np.linspace(0.1, 0.9, 5)], 0, None, measure).mean)
    x = np.random.default_rng(0).random((5, 4))
    np.testing.assert_array_equal(posterior.mean(x), before.mean(x))


def test_what_a_term_shares_with_the_rest_is_measured_along_its_estimate():
    rng = np.random.default_rng(0)
    x = rng.random((400, 3))
    x[:, 1] = x[:, 0] + 0.03 * rng.standard_normal(400)
    y = 3.0 * x[:, 0] + 3.0 * x[:, 1] + 3.0 * x[:, 2] + rng.standard_normal(400)
    weight = np.ones(400)
    systems = [system_of(column, weight, 0) for column in x.T]
    values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
    rows = RowSums.held(systems, values, y, weight, None, {(i,): (Family.BROWNIAN,) for i in range(3)})
    model = model_of(rows, [(0,), (1,), (2,)])
    shares = []
    for term in ((0,), (1,), (2,)):
        block = block_tested(rows, term)
        rows.learn_squares([block])
        rows.learn_products([block], model.basis.blocks)
        seen = given_the_rest(model, block, without_own=True)
        # rows that vary by twice as much count for half: no matter of what is shared
        even, uneven = (turned(model, block, seen, times * seen.information) for times in (1.0, 2.0))
        assert uneven.inflation == pytest.approx(2.0)
        shares.append(_share_of_its_own(model, even))
        beta = even.back @ (even.rotated / (even.values + 0.1 * even.values.max()))
        alone = model.basis._replace(blocks=(block,))(rows.source.values) @ beta
        noise = model.posterior.noise_variance
        # the smallest eigenvalues are rounding, and 0 at least
        assert shares[-1] == pytest.approx(beta @ seen.information @ beta * noise / (alone @ alone), rel=1e-6)
    assert max(shares[:2]) < LEAST_OWN < 0.9 < shares[2] <= 1.0 + 1e-9


def test_draws_keep_their_order_and_have_the_quantiles_given_the_choice(fitted):
    terms = fitted.model_.posterior.terms
    draws = terms.weights(0).draw(4000, np.random.default_rng(0))
    before, now = (terms.strengths(terms.part((1,)), each) for each in (draws, terms.given_the_choice(draws, 0)))
    assert np.corrcoef(np.argsort(np.argsort(before)), np.argsort(np.argsort(now)))[0, 1] > 0.999
    # between quantiles that are kept there are straight lines: the quantiles are met but for one draw
    np.testing.assert_allclose(np.quantile(now, LEVELS[1:-1]), terms.chosen[0][(1,)][1:-1], rtol=0.01)


def test_strengths_given_the_choice_are_kept_in_files(fitted, tmp_path):
    fitted.save(tmp_path / "model.vertebra")
    again = vb.load(tmp_path / "model.vertebra")
    pd.testing.assert_frame_equal(again.effects(), fitted.effects())
    pd.testing.assert_frame_equal(again.effect("x1"), fitted.effect("x1"))
    pd.testing.assert_frame_equal(again.candidates(), fitted.candidates())


@pytest.mark.slow
def test_strengths_of_weak_terms_that_are_found_are_those_that_there_are():
    now, then, held = [], [], []
    for seed in range(40):
        x, y = table(0.22, 300 + seed, n=150)
        weight = np.ones(len(y))
        found = fit_additive(x, Plain(y[:, None], weight), weight, rng=np.random.default_rng(0), calibrate=False)
        if (1,) in found.terms.chosen[0]:
            for result, terms in ((now, found.terms), (then, found.terms._replace(chosen=()))):
                posterior = TermsPosterior(terms, 0)
                result.append(posterior.sizes(0, None, posterior.measures[0])[(1,)].strength)
            low, high = np.quantile(now[-1], [0.025, 0.975])
            held.append(low <= 0.22 <= high)
    assert len(held) >= 10
    # the strength of one of these has an sd of some 0.06, their mean of ten one of 0.02: a tenth of what there is
    assert np.mean(then) / 0.22 > 1.2
    assert 0.75 < np.mean(now) / 0.22 < 1.2
    assert np.mean(held) >= 0.8


def test_probabilities_are_those_of_a_sum_over_all_shares_and_laws():
    rng = np.random.default_rng(0)
    factors, n = 3.0 * rng.standard_normal((5, len(SIZES))), 9
    total, real = 0.0, np.zeros(5)
    for share, centre, spread in itertools.product(SHARES, LOG_SIZES, SPREADS):
        law = np.exp(-0.5 * ((np.log10(SIZES) - centre) / spread) ** 2)
        bayes = np.exp(factors) @ (law / law.sum())
        # the density of Beta in log odds
        likely = (
            share**REAL * (1.0 - share) ** NOT_REAL * np.prod(1.0 - share + share * bayes) * (1.0 - share) ** (n - 5)
        )
        total += likely
        real += likely * share * bayes / (1.0 - share + share * bayes)
    # laws that are not averaged over have a share of 1e-7 each
    np.testing.assert_allclose(learned(factors, n).real, real / total, atol=1e-5)


def test_a_weak_term_is_likelier_among_weak_terms_and_nothing_is_likely_in_noise():
    def by_size(z):
        """Log Bayes factors of one coefficient that is z standard errors from 0."""
        return tuple(0.5 * z**2 * SIZES / (1.0 + SIZES) - 0.5 * np.log1p(SIZES))

    def stated(zs):
        tests = {(i,): Score(1.0, 0.0, by_size=by_size(z)) for i, z in enumerate(zs)}
        return probabilities(Structure((), tests, {1: len(tests)}))

    quantiles = [0.1, 0.3, 0.5, 0.7, 0.9, 1.2, 1.6]
    assert max(stated(quantiles + quantiles + [2.3]).values()) < 0.3
    company = stated([*quantiles, 2.3, 2.5, 2.8, 3.0, 3.2, 3.5])
    assert company[(7,)] > 2.0 * stated([*quantiles, 2.3])[(7,)]
    # one that nobody can doubt, alone or not
    assert stated([*quantiles, 9.0])[(7,)] > 0.999


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield importlib.import_module("weak")
    sys.path.remove(str(ROOT / "experiments"))


def test_the_study_of_weak_terms_counts_what_was_stated_and_what_there_is(study):
    task = study.Task("weak", 300, 20, 0.3, 3)
    row = study.one(task)
    assert (
        sum(row[f"terms {name}"] for name in study.NAMES) == 20 + 190 + 60
    )  # of triples those with the largest scores
    assert sum(row[f"real {name}"] for name in study.NAMES) == 6
    assert 0 < row["chosen"] <= 6
    assert row["covered"] <= row["chosen"]
    assert row["strength"] < row["before"]
    rows = pd.DataFrame([task._asdict() | row, task._asdict() | row])
    measured = study.summary(rows)
    assert measured["terms chosen"] == 2.0 * row["chosen"]
    assert measured["strength ratio"] == pytest.approx(row["strength"] / row["true"])
    over = sum(abs(row[f"stated {name}"] - row[f"real {name}"]) for name in study.NAMES)
    assert measured["calibration error"] == pytest.approx(over / 270.0)
