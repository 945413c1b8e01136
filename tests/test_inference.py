"""Doubly stochastic inference: unbiased, fast to start again, robust, and equal to closed forms where these exist."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from own import Beta, Logarithms

import vertebra as vb
from vertebra.effects.ensemble import EnsemblePosterior
from vertebra.effects.network_posterior import NetworkPosterior
from vertebra.inference import Diverged, run, training
from vertebra.inference.objective import minibatch_elbo, step_noise
from vertebra.inference.rows import Data, arrange, minibatch_of
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine import file as storage
from vertebra.machine.devices import padded_size

SCHEMES = {
    "mc_dropout": vb.mc_dropout,
    "mean_field": vb.mean_field,
    "random_features": lambda widths: vb.random_features(widths, r=12),
    "deep_random_features": lambda widths: vb.deep_random_features(widths, r=12),
    "deep_kernel_learning": vb.deep_kernel_learning,
    "deep_ensemble": vb.deep_ensemble,
    "inducing_points": lambda widths: vb.inducing_points(widths, r=8),
}
TARGETS = {"one": 1, "two": 2, "classes": 3}
N = 200


def table(targets, n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    f = np.stack([np.sin(2 * x[:, 0]) + x[:, 1], x[:, 1] * x[:, 2]], axis=1)
    if targets == "classes":
        scores = np.stack([f[:, 0], f[:, 1], -f[:, 0]], axis=1) * 2
        return x, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    y = f + 0.2 * rng.normal(size=f.shape)
    return x, (y[:, 0] if targets == "one" else y)


def skeleton_and_widths(kind, n_outputs):
    if kind == "multitask":
        return vb.multitask(3, n_outputs), [4, 1]
    return (vb.chain(3, 2) if kind == "chain" else vb.additive(3, 3, 2)), [4, n_outputs]


# Both ways to read deep kernel learning: FB alone as the paper's text has it, IPB + FB as its figure.
POINTS = {"deep_kernel_learning_points": lambda widths: vb.deep_kernel_learning(widths, r=8)}
CASES = [
    *(
        (scheme, kind, targets)
        for scheme in SCHEMES
        for kind in ("chain", "additive", "multitask")
        for targets in TARGETS
    ),
    ("deep_kernel_learning_points", "additive", "one"),
    ("deep_kernel_learning_points", "multitask", "classes"),
]


# Every scheme, and every skeleton with all targets; all three together in the slow tier.
@pytest.mark.everyday(
    "mc_dropout-chain-one",
    "mean_field-additive-two",
    "random_features-multitask-one",
    "deep_random_features-chain-classes",
    "deep_kernel_learning-chain-two",
    "deep_ensemble-multitask-two",
    "inducing_points-additive-classes",
    "deep_kernel_learning_points-additive-one",
    "deep_kernel_learning_points-multitask-classes",
)
@pytest.mark.parametrize(("scheme", "kind", "targets"), CASES)
def test_every_scheme_trains_and_predicts_on_every_skeleton(scheme, kind, targets, key):
    skeleton, widths = skeleton_and_widths(kind, TARGETS[targets])
    x, y = table(targets)
    network = vb.build(skeleton, (SCHEMES | POINTS)[scheme](widths), key=key, x=x)
    likelihood = vb.Categorical(3) if targets == "classes" else vb.Gaussian()
    fitted = vb.fit(network, likelihood, x, y, key=key, n_steps=300, n_rounds=3, batch_size=64)
    assert np.isfinite(fitted.history.elbo).all()
    assert fitted.history.elbo[-1] > fitted.history.elbo[0]
    f = vb.sample(fitted.network, x, key=key, n_draws=20)
    assert f.shape == (20, N, TARGETS[targets])
    mean, variance = fitted.likelihood.mean(f), fitted.likelihood.variance(f)
    assert mean.shape == variance.shape == (N, TARGETS[targets])
    assert (np.asarray(variance) > 0).all()
    assert (np.asarray(f).std(axis=0) > 0).any()  # uncertainty of f itself
    baseline = np.log(np.bincount(y) / N)[y].mean() if targets == "classes" else None
    y = y[:, None] if y.ndim == 1 else y
    score = np.asarray(fitted.likelihood.log_predictive(f, jnp.asarray(y, jnp.float32))).sum(axis=1).mean()
    if baseline is None:
        baseline = np.sum(-np.log(y.std(axis=0)) - 0.5 - 0.5 * np.log(2 * np.pi))
    assert score > baseline  # better than the best constant law


@pytest.mark.everyday("mc_dropout", "random_features", "deep_kernel_learning", "inducing_points")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_minibatch_elbo_is_unbiased(scheme, key):
    x, y = table("one", n=60)
    network = vb.build(vb.additive(3, 2, 2), SCHEMES[scheme]([3, 1]), key=key, x=x)
    likelihood = vb.Gaussian(0.5).init(y[:, None])
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y[:, None], jnp.float32)

    @jax.jit
    def whole(key):
        return vb.elbo(network, likelihood, *data, key=key)

    @jax.jit
    def part(key):
        rows_key, key = jr.split(key)
        rows = jr.choice(rows_key, 60, (10,), replace=False)
        return vb.elbo(network, likelihood, data[0][rows], data[1][rows], key=key, n=60)

    n = 2000
    full = np.asarray(jax.lax.map(whole, jr.split(jr.key(1), n)), np.float64)
    mini = np.asarray(jax.lax.map(part, jr.split(jr.key(2), n)), np.float64)
    error = np.hypot(full.std(), mini.std()) / np.sqrt(n)
    assert abs(full.mean() - mini.mean()) < 3 * error + 1e-3 * abs(full.mean()) / np.sqrt(n)


@pytest.mark.everyday("mc_dropout", "inducing_points")
@pytest.mark.parametrize("scheme", ["mc_dropout", "mean_field", "inducing_points"])
def test_the_elbo_is_that_of_function_draws(scheme, key):
    """Row-wise draws and the exact expectation over the top layer change the variance of the estimate, not its mean."""
    x, y = table("one", n=20)
    network = vb.build(vb.chain(3, 2), SCHEMES[scheme]([3, 1]), key=key, x=x)
    likelihood = vb.Gaussian(0.5).init(y[:, None])
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y[:, None], jnp.float32)

    def naive(key):
        f = network(data[0].T, key=key).T
        return jnp.sum(likelihood.log_prob(f, data[1])) - network.kl(key=key)

    n = 4000
    ours = np.asarray(jax.lax.map(lambda k: vb.elbo(network, likelihood, *data, key=k), jr.split(jr.key(1), n)))
    plain = np.asarray(jax.lax.map(naive, jr.split(jr.key(2), n)))
    assert abs(ours.mean() - plain.mean()) < 3 * np.hypot(ours.std(), plain.std()) / np.sqrt(n)
    assert ours.std() < plain.std()


def test_more_draws_lower_the_variance_of_the_elbo(key):
    x, y = table("one", n=20)
    network = vb.build(vb.chain(3, 2), vb.mean_field([3, 1]), key=key)
    likelihood = vb.Gaussian(0.5).init(y[:, None])
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y[:, None], jnp.float32)
    spread = {}
    for n_draws in (1, 8):
        estimate = lambda k, d=n_draws: vb.elbo(network, likelihood, *data, key=k, n_draws=d)  # noqa: E731
        spread[n_draws] = np.std(jax.lax.map(estimate, jr.split(jr.key(1), 500)))
    assert spread[8] == pytest.approx(spread[1] / np.sqrt(8), rel=0.25)


@pytest.fixture(scope="module")
def problem():
    x, y = table("one")
    network = vb.build(vb.additive(3, 2, 2), vb.mean_field([3, 1]), key=jr.key(0))
    return network, x, y


def fit(problem, **options):
    network, x, y = problem
    settings = dict(key=jr.key(1), n_steps=60, n_rounds=3, batch_size=64)
    return vb.fit(network, vb.Gaussian(), x, y, **(settings | options))


def leaves(network):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_array))]


def test_the_same_key_gives_the_same_bits(problem):
    first, second = fit(problem), fit(problem)
    assert all((a == b).all() for a, b in zip(leaves(first.network), leaves(second.network), strict=True))
    assert (first.history.score == second.history.score).all()
    other = fit(problem, key=jr.key(2))
    assert not all((a == b).all() for a, b in zip(leaves(first.network), leaves(other.network), strict=True))


def test_a_second_fit_compiles_nothing(problem):
    compiled = []
    fit(problem)
    listen = lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        _, x, y = problem
        fit(problem, key=jr.key(7))
        fit(problem, n_steps=90, learning_rate=3e-3)
        fit(problem, callback=lambda _: None)
        fit((vb.build(vb.additive(3, 2, 2), vb.mean_field([3, 1]), key=jr.key(5)), x[:195], y[:195]))
        assert compiled == []
        fit(problem, batch_size=32)  # another shape: the listener does hear compilations
        assert compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_w_does_not_move_under_weight_decay(key):
    x, y = table("one")
    layers = vb.random_features([3, 1], r=8, kernel=vb.RBF())
    network = vb.build(vb.additive(3, 2, 2), layers, key=key)
    fitted = vb.fit(
        network, vb.Gaussian(), x, y, key=key, n_steps=40, n_rounds=2, optimiser=optax.adamw(1e-2, weight_decay=0.5)
    ).network
    for before, after in zip(network.stacks, fitted.stacks, strict=True):
        assert (before.features[0].base.value == after.features[0].base.value).all()
        assert (before.function.prior.scale.value == after.function.prior.scale.value).all()
        assert not (before.function.posterior.mean == after.function.posterior.mean).any()
        # The length scales move, and w with them, while the base draw stays.
        assert not (before.features[0].log_lengthscale == after.features[0].log_lengthscale).all()


def test_hyper_parameters_stay_when_they_are_not_to_be_learned(key):
    x, y = table("one")
    block = vb.RandomFeatureBlock(8, "tanh", learn=False)
    network = vb.build(vb.chain(3, 1), [vb.Layer(1, [block])], key=key)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=key, n_steps=20, n_rounds=2, last_layer=False).network
    before, after = network.stacks[0].features[0], fitted.stacks[0].features[0]
    assert (before.base.value == after.base.value).all()
    assert (before.log_lengthscale.value == after.log_lengthscale.value).all()
    assert before.log_amplitude.value == after.log_amplitude.value


def test_a_fold_left_out_is_not_seen_by_its_restarts(problem):
    _, x, y = problem
    networks = [vb.build(vb.chain(3, 2), vb.deep_ensemble([4, 1]), key=jr.key(i)) for i in range(4)]
    settings = dict(key=jr.key(0), folds=2, n_steps=40, n_rounds=2)
    fitted = vb.fit(networks, vb.Gaussian(), x, y, **settings)
    np.testing.assert_array_equal(fitted.unseen[0], fitted.unseen[2])
    np.testing.assert_array_equal(fitted.unseen[0], ~fitted.unseen[1])
    # other targets there change the restarts that saw them, and not those that did not; the noise to start from is of
    # the sd of all targets, which stays
    other = np.asarray(y).copy()
    other[fitted.unseen[0]] = other[fitted.unseen[0]][::-1]
    changed = vb.fit(networks, vb.Gaussian(), x, other, **settings)
    means = [[np.asarray(vb.moments(n, x, key=jr.key(0))[0]) for n in f.networks] for f in (fitted, changed)]
    for i, (one, other) in enumerate(zip(*means, strict=True)):
        assert np.allclose(one, other) == (i % 2 == 0)
    assert (np.isfinite(fitted.scores)).all()


def test_members_of_an_ensemble_may_differ_in_their_priors(problem):
    _, x, y = problem
    networks = [
        vb.build(vb.chain(3, 2), vb.deep_ensemble([4, 1], scale=s), key=jr.key(i)) for i, s in enumerate((0.01, 10.0))
    ]
    tight, loose = vb.fit(networks, vb.Gaussian(), x, y, key=jr.key(0), n_steps=200).networks
    spread = [float(np.std(vb.moments(n, x, key=jr.key(0))[0])) for n in (tight, loose)]
    assert spread[0] < 0.5 * spread[1]


def test_restarts_train_side_by_side_and_the_best_is_kept(problem):
    _, x, y = problem
    networks = [vb.build(vb.additive(3, 2, 2), vb.mean_field([3, 1]), key=jr.key(i)) for i in range(3)]
    fitted = fit((networks, x, y))
    assert len(fitted.networks) == len(fitted.scores) == 3
    assert fitted.score == max(fitted.scores)
    assert np.isfinite(fitted.scores).all()
    assert len(set(fitted.scores)) == 3  # each from its own start
    draws = vb.sample(fitted.networks, x[:5], key=jr.key(0), n_draws=10)
    assert draws.shape == (10, 5, 1)
    mean, variance = vb.moments(fitted.networks, x[:5], key=jr.key(0), n_draws=10)
    assert mean.shape == variance.shape == (5, 1)


def test_weights_of_two_are_rows_that_stand_twice(x64):
    # Full batches of a model without noise: the loss is the same function, so the fits agree but for rounding.
    x, y = table("one", n=60)
    weight = np.where(np.arange(60) < 20, 2.0, np.where(np.arange(60) < 40, 1.0, 0.0))
    network = vb.build(vb.chain(3, 2), [vb.Layer(3, posterior=vb.PointMass()), vb.Layer(1)], key=jr.key(0))
    settings = dict(key=jr.key(1), n_steps=50, n_rounds=2, batch_size=128)
    twice = np.concatenate([np.arange(20), np.arange(40)])
    weighted = vb.fit(network, vb.Gaussian(0.5), x, y, weight=weight, **settings)
    repeated = vb.fit(network, vb.Gaussian(0.5), x[twice], y[twice], **settings)
    ours, theirs = (vb.moments(f.network, x, key=jr.key(0)) for f in (weighted, repeated))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    # Per row of weight: 40 rows count 60, so the two scores are 60/40 apart.
    assert weighted.evidence * 40 == pytest.approx(repeated.evidence * 60, rel=1e-6)


def test_targets_may_be_weighted_apart(key):
    # A multi-task table where each row belongs to one task: the other task's target is left out, whatever it says.
    x, y = table("two")
    mine = np.arange(N) % 2
    weight = np.stack([mine == 0, mine == 1], axis=1).astype(float)
    garbage = np.where(weight > 0, y, 1e3)
    network = vb.build(vb.multitask(3, 2), vb.deep_kernel_learning([4, 1]), key=key)
    settings = dict(key=key, n_steps=100, n_rounds=2, weight=weight)
    clean, dirty = (
        vb.fit(network, vb.Gaussian(0.5), x, t, **settings) for t in (np.where(weight > 0, y, 0.0), garbage)
    )
    for a, b in zip(leaves(clean.network), leaves(dirty.network), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_validation_picks_the_best_round_and_stops_early(key):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=60)  # pure noise: every step past the first overfits
    plain = [vb.Layer(d, posterior=vb.PointMass(), prior=vb.Laplace(100.0), bias=True) for d in (20, 1)]
    network = vb.build(vb.chain(3, 2), plain, key=key)
    fitted = vb.fit(
        network, vb.Gaussian(), x, y, key=key, n_steps=2000, n_rounds=20, validation=0.3, patience=3, learning_rate=0.03
    )
    assert len(fitted.history.score) < 20
    assert fitted.score == pytest.approx(fitted.history.score.max())
    assert fitted.history.step[-1] == 100 * len(fitted.history.score)


def test_divergence_is_mended_at_a_lower_rate_or_reported(problem, monkeypatch):
    network, x, y = problem
    with pytest.raises(
        Diverged, match=r"Training ended in NaN or infinity in every restart\. Try a lower step size in the `opt"
    ):
        fit((network, x, y * 1e6), optimiser=optax.scale(-1e18), n_rounds=2)
    # Too large at first, fine after one or two cuts: no error, and a finite model.
    retries = []
    check = run._check_outcome
    monkeypatch.setattr(
        run, "_check_outcome", lambda s, o, r: (retries.extend(int(a.n_retries) for a in o), check(s, o, r))
    )
    fitted = fit((network, x, y), optimiser=optax.scale(-1e2), n_rounds=1, n_steps=20)
    assert 1 <= retries[0] <= 4
    assert np.isfinite(fitted.score)
    assert all(np.isfinite(leaf).all() for leaf in leaves(fitted.network))


def test_the_callback_hears_every_round_and_changes_nothing(problem):
    heard = []
    with_callback = fit(problem, callback=heard.append)
    assert [p.step for p in heard] == [20, 40, 60]
    assert heard[-1].n_steps == 60
    assert heard[-1].best_score == with_callback.score
    without = fit(problem)
    assert all((a == b).all() for a, b in zip(leaves(with_callback.network), leaves(without.network), strict=True))


def test_rows_are_visited_once_an_epoch_in_changing_order():
    x = np.arange(150, dtype=np.float32)[:, None]
    options = dict(validation=0.0, folds=0, batch_size=50, key=jr.key(0))
    data = Data(*arrange(x, np.zeros_like(x), np.ones_like(x), **options))
    assert data.scored.n_train == 150

    def batch(size, t):
        return minibatch_of(data, size, t, 0, None)

    epochs = [np.concatenate([batch(50, 3 * e + i).x[:, 0] for i in range(3)]) for e in range(3)]
    for rows in epochs:
        assert sorted(rows.tolist()) == list(range(150))
    assert not (epochs[0] == epochs[1]).all()
    assert float(batch(50, 0).scale) == 3.0
    assert float(batch(200, 0).weight.sum()) == 150.0
    assert float(batch(200, 0).scale) == 1.0


def test_padding_wastes_at_most_an_eighth_beyond_small_tables():
    for n in (2, 63, 64, 65, 200, 1000, 5000, 12_345, 10**6):
        size = padded_size(n)
        assert size >= n
        assert size <= max(64, 1.26 * n)
    assert len({padded_size(n) for n in range(1, 100_000)}) < 60


def test_the_last_layer_in_closed_form_is_exact_gp_regression(x64):
    x, y = table("two", n=80)
    network = vb.build(vb.additive(3, 2, 2), vb.deep_kernel_learning([4, 2]), key=jr.key(0))
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=100, n_rounds=2)
    network, scale = fitted.network, np.asarray(fitted.likelihood.scale)
    assert network.stacks[-1].joint
    phi, offset, _ = (np.asarray(a) for a in network.top_features(jnp.asarray(x.T)))
    prior = float(network.stacks[-1].function.prior.scale.value[0])
    gram = prior**2 * phi[0].T @ phi[0]  # K = s² Φ Φᵀ
    mean, variance = (np.asarray(a) for a in vb.moments(network, x, key=jr.key(0)))
    evidence = 0.0
    for j in range(2):
        noisy = gram + scale[j] ** 2 * np.eye(80)
        expected = offset[j] + gram @ np.linalg.solve(noisy, y[:, j] - offset[j])
        spread = np.diag(gram - gram @ np.linalg.solve(noisy, gram))
        # Double precision; the covariance goes through a QR and is stored on the log scale.
        np.testing.assert_allclose(mean[:, j], expected, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(variance[:, j], spread, rtol=1e-6)
        residual = y[:, j] - offset[j]
        evidence -= 0.5 * (
            80 * np.log(2 * np.pi) + np.linalg.slogdet(noisy)[1] + residual @ np.linalg.solve(noisy, residual)
        )
    assert fitted.evidence * 80 == pytest.approx(evidence, rel=1e-9)
    # Where the posterior is exact the bound is the evidence, less the penalty on the point masses below.
    bound = vb.elbo(network, fitted.likelihood, x, y, key=jr.key(0)) + network.stacks[0].kl(jr.key(0))
    assert float(bound) == pytest.approx(evidence, rel=1e-7)


def test_the_closed_form_is_the_best_elbo(key):
    x, y = table("one")
    network = vb.build(vb.additive(3, 2, 2), vb.deep_kernel_learning([4, 1], r=6), key=key, x=x)
    settings = dict(key=key, n_steps=200, n_rounds=2)
    trained = vb.fit(network, vb.Gaussian(), x, y, last_layer=False, **settings)
    closed = vb.fit(network, vb.Gaussian(), x, y, **settings)
    bounds = [
        float(vb.elbo(f.network, f.likelihood, x, y, key=key) + f.network.stacks[0].kl(key)) for f in (trained, closed)
    ]
    assert bounds[1] > bounds[0]
    # With inducing points and their residual the evidence is Titsias' bound, which is the ELBO of the top layer.
    assert closed.evidence * N == pytest.approx(bounds[1], rel=1e-3)  # float32
    assert trained.evidence is None


def test_whole_numbers_are_worked_with_as_real_ones(problem):
    network, _, y = problem
    x = np.random.default_rng(0).integers(0, 200, size=(N, 3)).astype(np.uint8)
    ours = vb.moments(network, x, key=jr.key(0))
    theirs = vb.moments(network, x.astype(float), key=jr.key(0))
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert fit((network, x, y), n_steps=3).score == fit((network, x.astype(float), y), n_steps=3).score


def test_the_elbo_takes_weights_and_traced_targets_as_fit_does(problem):
    network, x, y = problem
    likelihood = vb.Gaussian(0.5).init(y[:, None])
    plain = float(vb.elbo(network, likelihood, x, y, key=jr.key(0)))
    for weight in (np.ones(N), np.ones((N, 1))):
        assert float(vb.elbo(network, likelihood, x, y, key=jr.key(0), weight=weight)) == pytest.approx(plain, rel=1e-6)
    traced = jax.jit(lambda x, y: vb.elbo(network, likelihood, x, y, key=jr.key(0)))
    assert float(traced(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))) == pytest.approx(plain, rel=1e-5)
    with pytest.raises(ValueError, match="`n` must be a whole number of at least 1, got -5"):
        vb.elbo(network, likelihood, x, y, key=jr.key(0), n=-5)
    with pytest.raises(ValueError, match="`scale` is not set yet"):
        vb.elbo(network, vb.Gaussian(), x, y, key=jr.key(0))


def test_rounds_without_steps_are_left_out(problem):
    history = fit(problem, n_steps=26, n_rounds=25).history
    np.testing.assert_array_equal(history.step, np.arange(2, 27, 2))
    assert (history.elbo != 0.0).all()


def test_input_dependent_noise_is_found_task_by_task(key):
    # Two tasks, one noisy on the left and the other on the right: each head's noise must follow its own task.
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.5, 1.5, size=(600, 1))
    sd = np.concatenate([np.where(x < 0, 0.6, 0.1), np.where(x < 0, 0.1, 0.6)], axis=1)
    y = np.concatenate([x, -x], axis=1) + sd * rng.normal(size=(600, 2))
    network = vb.build(vb.multitask(1, 2), vb.mean_field([8, 2]), key=key)
    fitted = vb.fit(network, vb.HeteroscedasticGaussian(), x, y, key=key, n_steps=1500, n_rounds=3)
    f = vb.sample(fitted.network, np.array([[-1.0], [1.0]]), key=key, n_draws=50)
    found = np.sqrt(np.asarray(fitted.likelihood.conditional_variance(f)).mean(axis=0))
    np.testing.assert_allclose(found, [[0.6, 0.1], [0.1, 0.6]], rtol=0.5)
    np.testing.assert_allclose(fitted.likelihood.mean(f), [[-1.0, 1.0], [1.0, -1.0]], atol=0.3)


def test_the_score_is_that_of_the_network_that_is_returned(key):
    x, y = table("one")
    network = vb.build(vb.additive(3, 2, 2), vb.deep_kernel_learning([4, 1]), key=key)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=key, n_steps=50, n_rounds=2)
    bound = float(vb.elbo(fitted.network, fitted.likelihood, x, y, key=key)) / N
    assert fitted.score == pytest.approx(bound, rel=1e-4)


def test_moments_agree_with_draws(problem):
    fitted = fit(problem)
    _, x, _ = problem
    mean, variance = (np.asarray(a) for a in vb.moments(fitted.network, x[:10], key=jr.key(0), n_draws=2000))
    draws = np.asarray(vb.sample(fitted.network, x[:10], key=jr.key(1), n_draws=4000), np.float64)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * draws.std(axis=0) / np.sqrt(2000))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.15)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(n_steps=0), "`n_steps` must be a whole number of at least 1, got 0"),
        (dict(batch_size=0), "`batch_size` must be a whole number of at least 1, got 0"),
        (dict(n_draws=0), "`n_draws` must be a whole number of at least 1, got 0"),
        (dict(n_rounds=0), "`n_rounds` must be a whole number of at least 1, got 0"),
        (dict(learning_rate=-1.0), "`learning_rate` must be positive and finite, got -1.0"),
        (dict(validation=1.0), "`validation` must be at least 0 and below 1, got 1.0"),
        (dict(validation=0.001), "`validation` of 0.001 leaves 0 rows to score"),
        (dict(patience=0, validation=0.1), "`patience` must be a whole number of at least 1, got 0"),
        (dict(patience=3), "`patience` needs `validation`"),
        (dict(folds=2), "`folds` must be a whole number from 2 to the number of networks, 1"),
        (dict(weight=np.ones(3)), r"`weight` must have the shape \(200,\) or \(200, 1\), got \(3, 1\)"),
        (dict(weight=-np.ones(N)), "`weight` must be finite and not negative"),
        (dict(last_layer=True), "`last_layer=True` needs a top layer with a full Gaussian posterior"),
    ],
)
def test_bad_settings_are_refused(problem, options, words):
    with pytest.raises(ValueError, match=words):
        fit(problem, **options)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.ones((5, 2)), np.ones(5), r"`x` must have the shape \(n, 3\), got \(5, 2\)"),
        (np.ones(5), np.ones(5), r"`x` must have the shape \(n, 3\), got \(5,\)"),
        (np.ones((0, 3)), np.ones(0), "`x` must have at least one row, got none"),
        (np.ones((1, 3)), np.ones(1), "`x` must have at least 2 rows, got 1"),
        (np.full((5, 3), np.nan), np.ones(5), "`x` must be finite, got 15 missing or infinite values"),
        (np.full((5, 3), np.inf), np.ones(5), "`x` must be finite, got 15"),
        (np.ones((5, 3)), np.ones(4), "`y` must have one row per row of `x`, 5, got 4"),
        (np.ones((5, 3)), np.array([1, 2, np.nan, 4, np.inf]), "`y` must be finite, got 2 missing or infinite values"),
        (
            np.ones((5, 3)),
            np.ones((5, 2)),
            r"The network must have 2 outputs for Gaussian and 2 column\(s\) of `y`, got 1",
        ),
    ],
)
def test_bad_data_is_refused(problem, x, y, words):
    network = problem[0]
    with pytest.raises(ValueError, match=words):
        vb.fit(network, vb.Gaussian(), x, y, key=jr.key(0))
    with pytest.raises(ValueError, match=words):
        vb.elbo(network, vb.Gaussian(1.0), x, y, key=jr.key(0))


def test_class_labels_out_of_range_and_other_misfits_are_refused(problem):
    network, x, _ = problem
    classes = vb.build(vb.chain(3, 1), vb.mean_field([3]), key=jr.key(0))
    with pytest.raises(ValueError, match="`y` must hold classes from 0 to 2, got 3 in row 0"):
        vb.fit(classes, vb.Categorical(3), x, np.full(N, 3), key=jr.key(0))
    with pytest.raises(ValueError, match="The network must have 3 outputs for Categorical"):
        vb.fit(network, vb.Categorical(3), x, np.zeros(N), key=jr.key(0))
    with pytest.raises(ValueError, match="must be a network or a list of at least one"):
        vb.fit([], vb.Gaussian(), x, np.zeros(N), key=jr.key(0))
    with pytest.raises(ValueError, match="a list of networks built from one skeleton"):
        vb.fit([network, classes], vb.Gaussian(), x, np.zeros(N), key=jr.key(0))
    for verb in (vb.sample, vb.moments):
        with pytest.raises(ValueError, match="`n_draws` must be a whole number of at least 1, got 0"):
            verb(network, x, key=jr.key(0), n_draws=0)
        with pytest.raises(ValueError, match=r"`x` must have the shape \(n, 3\), got \(4, 2\)"):
            verb(network, np.ones((4, 2)), key=jr.key(0))


# --- rows that do not count -----------------------------------------------------------------------------------------


def shares(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, rng.beta(2.0 + 4.0 * (x[:, 0] > 0.0), 3.0)


# 200 rows are 224 on the device, the last of them padding; 256 are 256.
@pytest.mark.everyday("200-plain", "200-weights")
@pytest.mark.parametrize(
    ("n", "how"), [(200, "plain"), (256, "plain"), (200, "validation"), (200, "folds"), (200, "weights")]
)
def test_a_likelihood_with_a_support_of_its_own_trains_at_any_number_of_rows(n, how):
    x, y = shares(n)
    networks = [vb.build(vb.chain(2, 1), vb.mean_field([1]), key=jr.key(i)) for i in range(1 + (how == "folds"))]
    options = {"validation": {"validation": 0.1}, "folds": {"folds": 2}, "weights": {"weight": np.arange(n) % 5 > 0}}
    y = np.where(np.arange(n) % 5 > 0, y, 0.0) if how == "weights" else y  # p(0) = 0
    fitted = vb.fit(networks, Beta(), x, y, key=jr.key(1), n_steps=60, n_rounds=3, **options.get(how, {}))
    assert np.isfinite(fitted.scores).all()
    assert np.isfinite(fitted.history.elbo).all()
    assert float(fitted.likelihood.log_precision) > 0.1  # it learns: y is less spread than the uniform it starts at


@pytest.mark.everyday("targets apart")
@pytest.mark.parametrize("apart", [False, True], ids=["whole rows", "targets apart"])
def test_what_has_no_weight_is_as_if_it_were_not_there_in_the_elbo_and_its_gradient(apart, x64):
    rng = np.random.default_rng(0)
    x, y, weight = rng.normal(size=(40, 2)), rng.beta(2.0, 3.0, (40, 2)), rng.uniform(0.5, 2.0, (40, 2))
    if not apart:
        weight[:, 1] = weight[:, 0]
    dead = rng.random((40, 2)) < 0.3
    dead[:, 1] = dead[:, 1] if apart else dead[:, 0]
    dead[:3] = True
    assert dead.all(axis=1).any()
    assert not apart or (dead[:, 0] != dead[:, 1]).any()
    model = vb.build(vb.chain(2, 2), vb.deep_kernel_learning([3, 2]), key=jr.key(0)), Beta()
    given = np.where(dead, 0.0, weight)
    outside = np.where(dead, rng.choice([0.0, 1.0, -3.0], dead.shape), y)

    def whole(model, of):
        return vb.elbo(*model, x, of, key=jr.key(1), weight=given if apart else given[:, 0])

    def naive(model):
        """Σ weight E log p over the rows and targets that are there, one by one."""
        network, likelihood = model
        mean, variance = network.conditional(jnp.asarray(x.T), network.noise(jr.key(0), (40,)))
        total = -network.kl(key=jr.key(0))
        for t in range(2):
            rows = np.flatnonzero(~dead[:, t])
            m, v = mean[t, rows][:, None], variance[t, rows][:, None]
            each = likelihood.expected_log_prob(m, v, jnp.asarray(y[rows, t][:, None]), jnp.zeros_like(m))
            total = total + jnp.sum(jnp.asarray(weight[rows, t]) * each[:, 0])
        return total

    expected, slope = eqx.filter_jit(eqx.filter_value_and_grad(naive))(model)
    for of in (y, outside):
        value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(lambda model, of=of: whole(model, of)))(model)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        for a, b in zip(leaves(gradient), leaves(slope), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_a_minibatch_in_which_nothing_counts_has_the_gradient_of_the_kl_alone():
    x, y = shares(16)
    model = vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=jr.key(0)), Beta()
    noise = step_noise(model[0], 16, key=jr.key(1))
    columns, targets, nothing = jnp.asarray(x.T, jnp.float32), jnp.asarray(y[:, None], jnp.float32), jnp.zeros((16, 1))
    whole = lambda model: minibatch_elbo(*model, columns, targets, nothing, 1.0, noise)  # noqa: E731
    gradient = eqx.filter_jit(eqx.filter_grad(whole))(model)
    slope = eqx.filter_jit(eqx.filter_grad(lambda model: -model[0].kl(key=noise.kl_key)))(model)
    for a, b in zip(leaves(gradient), leaves(slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_network_is_not_asked_about_padding_nor_about_rows_of_no_weight():
    x, y = np.exp(shares(200)[0]), shares(200)[1]
    weight = np.arange(200) % 5 > 0
    x[~weight] = -1.0  # has no logarithm
    network = vb.build(vb.chain(2, 1), [vb.Layer(1, [Logarithms(2)], bias=True)], key=jr.key(0))
    fitted = vb.fit(network, vb.Gaussian(), x, y, weight=weight, key=jr.key(1), n_steps=30, n_rounds=2)
    assert np.isfinite(fitted.score)
    assert np.isfinite(fitted.evidence)
    assert np.isfinite(vb.elbo(network, vb.Gaussian(1.0), x, y, weight=weight, key=jr.key(1)))
    with jax.debug_nans(True):
        assert np.isfinite(vb.moments(network, x[weight], key=jr.key(1))[0]).all()


def test_a_likelihood_starts_from_the_rows_that_have_weight(problem):
    network, x, y = problem
    weight = np.arange(len(y)) > 0
    wild = np.where(weight, y, 1e6)
    first, second = (fit((network, x, of), weight=weight, n_steps=1, n_rounds=1) for of in (y, wild))
    np.testing.assert_array_equal(first.likelihood.scale, second.likelihood.scale)


# --- predictions of many sizes --------------------------------------------------------------------------------------


RANDOM_AND_LINEAR = vb.mean_field, vb.deep_kernel_learning


def predictions():
    """What a network says of rows, by all ways that lead to an estimator's predictions."""
    random, linear = (vb.build(vb.chain(2, 2), scheme([2, 1]), key=jr.key(0)) for scheme in RANDOM_AND_LINEAR)
    settings = dict(key=jr.key(1), n_draws=3)
    network = NetworkPosterior(random, shares(20)[0], 0, "mean_field", (2, 1))
    ensemble = EnsemblePosterior((linear, linear), np.ones(1), 0, "deep_ensemble", (2, 1))
    predictive = lambda likelihood, x: Predictive(likelihood, x[:, :1], x[:, 1:] ** 2)  # noqa: E731
    return {
        "sample": lambda x: np.moveaxis(np.asarray(vb.sample(random, x, **settings)), 1, 0),
        "moments": lambda x: vb.moments(random, x, **settings)[1],
        "moments of an ensemble": lambda x: vb.moments([linear, linear], x, **settings)[1],
        "sample_prior": lambda x: np.moveaxis(np.asarray(vb.sample_prior(random, x, **settings)), 1, 0),
        "network": lambda x: network.moments(x)[1],
        "draws of a network": lambda x: np.moveaxis(network.sample(x, 3, 0), 1, 0),
        "ensemble": lambda x: ensemble.moments(x)[1],
        "draws of an ensemble": lambda x: np.moveaxis(ensemble.sample(x, 3, 0), 1, 0),
        "noise of Student's t": lambda x: predictive(vb.StudentT(1.0), x).aleatoric(),
        "doubt about counts": lambda x: predictive(vb.Poisson(), x).epistemic(),
        "draws of counts": lambda x: (
            vb.Poisson().numpy_sample(x[None, :, :1], 0)[0, :, 0] * 0.0
        ),  # drawn anew each time
        "draws of Student's t": lambda x: vb.StudentT(1.0).numpy_sample(x[None, :, :1], 0)[0, :, 0] * 0.0,
    }


@pytest.mark.parametrize("name", predictions())
def test_predictions_of_many_sizes_compile_nothing_anew(name):
    of, (x, _) = predictions()[name], shares(96)
    compiled = []
    whole = np.asarray(of(x))
    listen = lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for n in range(81, 97):
            # float32 at the coarsest
            np.testing.assert_allclose(np.asarray(of(x[:n])), whole[:n], rtol=1e-5, atol=1e-6)
        assert compiled == []
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_a_hundred_sizes_are_a_few_programs():
    assert len({padded_size(n) for n in range(1, 101)}) == 4
    assert len({padded_size(n) for n in range(1, 10_001)}) == 30


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """A run of training that was stopped: how it is called, and its checkpoint."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(64)
    network = vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=jr.key(0))

    def stop(progress):
        if progress.step >= 30:
            raise InterruptedError

    def run(path, callback=lambda _: False):
        return vb.fit(
            network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=60, n_rounds=6, checkpoint=path, callback=callback
        )

    path = tmp_path_factory.mktemp("cut") / "fit.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vertebra.machine.checkpoint.EVERY", 0.0)
        with pytest.raises(InterruptedError):
            run(path, stop)
    return run, storage.read(path)


def places_of(arrays):
    """Where the fields of the state lie among its arrays: those of whole numbers and scores by their order."""
    # without the history of every step, which nobody asked for
    fields = [field.name for field in dataclasses.fields(training.State) if field.name != "steps"]
    n, first = len(arrays), fields.index("best")
    last = {name: n - len(fields) + k for k, name in enumerate(fields) if k > first}
    # params, optimiser and best come in several arrays; as many params as best
    scalars = fields[fields.index("held") : first]
    n_params = min(last.values()) - next(k for k in range(n) if arrays[f"training/{k}"].dtype == bool) - 1
    at = last | {"best": min(last.values()) - n_params}
    at |= {name: at["best"] - len(scalars) + k for k, name in enumerate(scalars)}
    return {name: f"training/{k}" for name, k in at.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, at: a.pop("training/0"), "the state must have"),
        (lambda a, at: a.update({"training/999": np.zeros(1)}), "the state must have"),
        (lambda a, at: a.update({"training/0": np.zeros((7, 7), np.float32)}), "the state's array 0 must be of"),
        (lambda a, at: a.update({"training/0": a["training/0"].astype(np.float64)}), "the state's array 0 must be of"),
        (lambda a, at: a["training/0"].__setitem__(..., np.nan), "the state's params cannot be those of a run of 6"),
        (lambda a, at: a[at["turn"]].__setitem__(..., -1), "the state's turn cannot be"),
        (lambda a, at: a[at["round"]].__setitem__(..., 10**6), "the state's round cannot be"),
        (lambda a, at: a[at["held"]].__setitem__(..., 5), "the state's held cannot be"),
        (lambda a, at: a[at["rate_factor"]].__setitem__(..., 0.0), "the state's rate_factor cannot be"),
        (lambda a, at: a[at["best_score"]].__setitem__(..., np.inf), "the state's best_score cannot be"),
        (
            # nothing is better than such a score, so that the state beside it is what the run would end with
            lambda a, at: (a[at["best_score"]].__setitem__(..., 1e30), a[at["best"]].__setitem__(..., 1e30)),
            "the state's best network says nothing finite",
        ),
    ],
)
def test_a_checkpoint_that_this_run_would_not_have_kept_is_refused(cut_off, tmp_path, change, words):
    run, (kind, header, arrays) = cut_off
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays, places_of(arrays))
    path = tmp_path / "fit.checkpoint"
    storage.write(path, kind, header, arrays)
    with pytest.raises(storage.BadFile, match=re.escape(words)) as caught:
        run(path)
    assert str(caught.value).startswith(f"{path}: ")
