"""Intervals checked on rows left out: groups leave together, and sds of f that are too small are found out."""

import numpy as np
import pytest

import vertebra as vb
from vertebra.likelihoods.working_responses import Plain
from vertebra.terms import additive, latents
from vertebra.terms.overconfidence import overconfidence, unsettled


class Line:
    """The posterior of the coefficients of a linear model, prior N(0, 1), noise 1; its sds times a `share`."""

    def __init__(self, x, y, share=1.0):
        self.precision = np.eye(x.shape[1]) + x.T @ x
        self.mean, self.share = np.linalg.solve(self.precision, x.T @ y), share

    def moments(self, x):
        variance = np.sum(x * np.linalg.solve(self.precision, x.T).T, axis=1)
        return x @ self.mean, self.share**2 * variance[:, None]


@pytest.mark.parametrize(("share", "factor"), [(1.0, 1.0), (0.5, 2.0)])
def test_f_moves_as_its_posterior_says_or_is_widened(share, factor):
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((120, 12))
        y = (x @ rng.standard_normal(12) + rng.standard_normal(120))[:, None]
        fitted = lambda kept, x=x, y=y: (Line(x[kept], y[kept], share), [1.0])  # noqa: E731
        given = x, y, np.ones(120), rng, Line(x, y, share).moments(x)
        found.append(unsettled(*given, fitted)[0])
    # of 12 coefficients the mean square has an sd of √(2/12): 0.2 of its root, which is cut at 1 below
    assert np.mean(found) == pytest.approx(factor, abs=0.15)


@pytest.mark.parametrize("check", ["overconfidence", "unsettled"])
def test_rows_of_a_group_are_left_out_together(check, rng):
    x, y, groups, kept = rng.random((90, 2)), rng.random((90, 1)), np.arange(90) // 9, []

    def fitted(rows):
        kept.append(rows)
        return Line(x[rows], y[rows]), [1.0]

    given = x, y, np.ones(90), rng
    if check == "overconfidence":
        overconfidence(*given, fitted, groups)
    else:
        unsettled(*given, Line(x, y).moments(x), fitted, groups)
    assert len(kept) == 3
    for rows in kept:
        assert len(set(groups[rows]) & set(groups[~rows])) == 0
    assert np.all(sum(~rows for rows in kept) == 1)


def test_what_groups_miss_together_is_believed_less(rng):
    """The same squares: of ten rows that are off together there is one, and not ten."""
    x, groups = rng.random((200, 1)), np.arange(200) // 10
    y = 1.6 * rng.standard_normal(20)[groups][:, None]
    fitted = lambda kept: (Line(np.zeros((2, 1)), np.zeros((2, 1)), 0.0), [1.0])  # noqa: E731
    alone, together = (overconfidence(x, y, np.ones(200), rng, fitted, each) for each in (None, groups))
    assert 1.0 < together[0] < alone[0]


@pytest.mark.parametrize("told", ["groups", "time"])
def test_a_fit_that_knows_of_groups_or_time_is_checked_by_them(told, monkeypatch):
    rng, seen = np.random.default_rng(0), []

    def spy(*given):
        seen.append(given[-1])
        return np.ones(1)

    monkeypatch.setattr(additive, "overconfidence", spy)
    x = rng.random((100, 4))
    y = np.sin(9.0 * x[:, 0]) + x[:, 1] + np.cos(9.0 * x[:, 2]) + 0.3 * rng.standard_normal(100)
    model = vb.AdditiveRegressor(remainder=False, random_state=0, evaluation="left_out")
    model.fit(x, y, **{told: np.arange(100) // 5 if told == "groups" else np.arange(100)})
    # rows stand in an order of their own; of time stretches of √n rows
    sizes = np.bincount(seen[0])
    assert sizes.tolist() == ([5] * 20 if told == "groups" else [10] * 10)


@pytest.mark.slow
def test_intervals_of_f_hold_where_uneven_noise_was_chosen():
    """Lognormal noise is taken for uneven: f was covered 0.80 in such fits."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, new = rng.random((300, 8)), rng.random((500, 8))
        f = lambda x: 2.0 * np.sin(4.0 * x[:, 0]) + 2.0 * x[:, 1] + (x[:, 2] > 0.5)  # noqa: E731
        y = f(x) + (rng.lognormal(size=300) - np.exp(0.5)) / 2.16
        model = vb.AdditiveRegressor(
            likelihood="heteroscedastic", remainder=False, random_state=0, evaluation="left_out"
        ).fit(x, y)
        mean, sd = model.predict_f(new)
        inside.append(np.mean(np.abs(mean - f(new)) < 1.96 * sd))
    assert np.mean(inside) > 0.87


def test_intervals_are_checked_when_they_are_asked_for(rng, monkeypatch):
    """Means of a noise that is tried say whether it is worth the fits that check its intervals."""
    monkeypatch.setattr(additive, "has_much_freedom", lambda *_: True)
    monkeypatch.setattr(additive, "overconfidence", lambda *_: np.array([2.0]))
    x = rng.uniform(-1.0, 1.0, (200, 6))
    y = x[:, :1] * x[:, 1:2] + 0.5 * rng.standard_normal((200, 1))
    given = x, Plain(y, np.ones(200)), np.ones(200)
    whole = additive.fit_additive(*given, rng=np.random.default_rng(0))
    later = additive.fit_additive(*given, rng=np.random.default_rng(0), checks=False, describes=False)
    assert later.check is not None
    np.testing.assert_array_equal(later.left_out[0], whole.left_out[0])
    checked = later.checked()
    assert checked.check is None
    np.testing.assert_array_equal(checked.left_out[1], whole.left_out[1])
    np.testing.assert_array_equal(checked.left_out[1], 4.0 * later.left_out[1])


def test_functions_of_the_same_rows_are_worked_out_once(rng, monkeypatch):
    x, known, made = rng.uniform(-1.0, 1.0, (150, 3)), {}, []
    original = latents.system_of
    monkeypatch.setattr(latents, "system_of", lambda *given, **named: made.append(1) or original(*given, **named))
    fits = [
        additive.fit_additive(
            x, Plain(x[:, :1] + noise, np.ones(150)), np.ones(150), rng=rng, known=known, calibrate=False
        )
        for noise in rng.standard_normal((2, 150, 1))
    ]
    assert len(made) == 3
    assert fits[0].left_out[0][0, 0] != fits[1].left_out[0][0, 0]
    additive.fit_additive(x[1:], Plain(x[1:, :1], np.ones(149)), np.ones(149), rng=rng, known=known, calibrate=False)
    assert len(made) == 6  # of other rows
