"""Terms that are sought in some rows and fitted to all, whatever the noise."""

import numpy as np
import pytest

from vertebra.likelihoods.working_responses import Classes, Counts, HeavyTails, MoreVaried, Plain, UnevenNoise
from vertebra.terms import additive
from vertebra.terms.additive import fit_additive

N, SEARCHED = 3000, 1000
KINDS = ["uneven", "tails", "counts", "varied", "three classes"]
LEARNED = {"uneven": ["log_scale"], "tails": ["log_scale", "log_excess"], "varied": ["log_dispersion"]}
# √n times the standard error of each, by Fisher's information at these truths: t of 3 degrees, α = 0.5.
ERROR = {"log_scale": 1.3, "log_excess": 10.0, "log_dispersion": 4.1}


def working_of(kind, rng):
    """Rows of f = sin 3x₀ with noise of a kind, and what is true of the noise."""
    x = rng.uniform(-1.0, 1.0, (N, 3))
    f, weight = np.sin(3.0 * x[:, 0]), np.ones(N)
    if kind == "uneven":
        y = f + 0.3 * np.exp(0.8 * x[:, 1]) * rng.normal(size=N)
        return x, UnevenNoise(y[:, None], weight)
    if kind == "tails":
        return x, HeavyTails((f + 0.3 * rng.standard_t(3.0, N))[:, None], weight)
    if kind == "counts":
        return x, Counts(rng.poisson(np.exp(f)).astype(float)[:, None], weight)
    if kind == "varied":
        rate = np.exp(f) * rng.gamma(2.0, 0.5, N)
        return x, MoreVaried(rng.poisson(rate).astype(float)[:, None], weight)
    logits = np.stack([f, -f, np.zeros(N)], axis=1)
    return x, Classes((logits + rng.gumbel(size=(N, 3))).argmax(axis=1), 3, weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.everyday("uneven", "tails")
def test_a_search_of_some_rows_ends_where_that_of_all_does(kind, monkeypatch):
    found = []
    for most in (SEARCHED, N):
        monkeypatch.setattr(additive, "ROWS_SEARCHED", most)
        x, working = working_of(kind, np.random.default_rng(0))
        found.append(fit_additive(x, working, np.ones(N), rng=np.random.default_rng(0), describes=False))
    some, whole = found
    assert (some.n_searched, whole.n_searched) == (SEARCHED, None)
    assert some.clusters == whole.clusters
    at = np.random.default_rng(1).uniform(-1.0, 1.0, (500, 3))
    (mean, variance), (mean_of_all, variance_of_all) = some.terms.moments(at), whole.terms.moments(at)
    # both are fitted to all rows: what they differ by is a part of what either is unsure of
    assert np.sqrt(np.mean((mean - mean_of_all) ** 2 / variance_of_all)) < 0.7
    # of a third of the rows it would be 3; a sample may take to rougher functions, of which less is known
    assert 0.65 < np.median(variance / variance_of_all) < 2.0
    for name in LEARNED.get(kind, ()):
        # what the rows that were searched have said, and these are among all: three standard errors of the difference
        one, other = (np.asarray(getattr(each.likelihood, name)) for each in found)
        away = 3.0 * ERROR[name] * np.sqrt(1.0 / SEARCHED - 1.0 / N)
        np.testing.assert_allclose(one, other, rtol=0.0, atol=away, err_msg=name)


@pytest.mark.parametrize("kind", [*KINDS, "plain"])
def test_some_rows_of_a_likelihood_know_nothing_of_the_others(kind):
    rng = np.random.default_rng(0)
    _, whole = (None, Plain(rng.normal(size=(N, 2)), np.ones(N))) if kind == "plain" else working_of(kind, rng)
    whole.responses(whole.start, np.zeros_like(whole.start))  # where it learns
    rows = np.arange(0, N, 3)
    part, other = whole.some(rows), whole.of(whole.targets[rows], whole.weight[rows])
    np.testing.assert_array_equal(part.targets, whole.targets[rows])
    np.testing.assert_array_equal(part.targets, other.targets)
    assert not getattr(part, "is_settled", False)
    assert getattr(other, "is_settled", True)
