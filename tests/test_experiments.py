"""What experiments/posterior.py holds the schemes against: NUTS samples the model it says, and samples it right."""

import importlib.util
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm

import vertebra as vb

pytest.importorskip("blackjax", reason="NUTS is BlackJAX's: pip install 'vertebra[experiments]'")

PATH = pathlib.Path(__file__).parents[1] / "experiments/posterior.py"


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("posterior_experiment", PATH)
    module = importlib.util.module_from_spec(spec)
    # BlackJAX broadcasts between ranks.
    with jax.numpy_rank_promotion("allow"):
        spec.loader.exec_module(module)
        yield module


def test_the_target_of_nuts_is_the_likelihood_times_the_prior_weight_by_weight(experiment, rng):
    x, y, scale = rng.standard_normal((7, 3)), rng.standard_normal(7), 0.3
    clusters = (0, 1), (2,)  # the second is padded, and the padding is no weight
    network = vb.build(vb.additive(3, clusters=clusters, depth=2), vb.mean_field([2, 1]), key=jr.key(0))
    biases = [rng.standard_normal((2, 2)), rng.standard_normal((2, 1))]
    network = eqx.tree_at(
        lambda n: [stack.function.bias for stack in n.stacks], network, [jnp.asarray(b, jnp.float32) for b in biases]
    )
    target = experiment.target_of(network, vb.Gaussian(scale), x, y)

    def naive(z):
        """Nodes, inputs and weights one at a time: 2·(2 + 1) weights below, then 2 + 2 above."""
        weights = iter(np.asarray(target.weights(z), np.float64))
        layer = [[[next(weights) for _ in cluster] for _ in range(2)] for cluster in clusters]
        heads = [[next(weights) for _ in range(2)] for _ in clusters]
        assert next(weights, None) is None
        total = 0.0
        for row, value in zip(x, y, strict=True):
            f = 0.0
            for j, cluster in enumerate(clusters):
                f += biases[1][j, 0]
                for k in range(2):
                    inner = sum(w * row[i] for w, i in zip(layer[j][k], cluster, strict=True))
                    f += heads[j][k] * np.tanh(inner + biases[0][j, k])
            total += norm.logpdf(value, f, scale)
        for j, cluster in enumerate(clusters):
            total += sum(norm.logpdf(w, 0.0, len(cluster) ** -0.5) for unit in layer[j] for w in unit)
            total += sum(norm.logpdf(w, 0.0, 2**-0.5) for w in heads[j])
        return total

    assert len(target.places) == 10
    a, b = jr.normal(jr.key(2), (2, 10))
    # The target is known up to a constant, so differences are compared; float32 sums of some tens keep five digits.
    log_density = eqx.filter_jit(target.log_density)
    found = float(log_density(a) - log_density(b))
    np.testing.assert_allclose(found, naive(a) - naive(b), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_nuts_on_a_linear_network_gives_the_closed_form(experiment, rng):
    n, r, scale = 30, 3, 0.3
    x, test_x = rng.standard_normal((n, r)), rng.standard_normal((5, r))
    y = x @ [1.0, -0.5, 0.2] + scale * rng.standard_normal(n)
    network = vb.build(vb.chain(r, 1), vb.deep_kernel_learning([1]), key=jr.key(0))
    target = experiment.target_of(network, vb.Gaussian(scale), x, y)
    chains = experiment.nuts(target, jr.normal(jr.key(1), (4, r)), jr.key(2), n_warmup=200, n_draws=500)
    f = np.asarray(chains.v) @ test_x.T

    # Σ = (XᵀX/σ² + I/s²)⁻¹, μ = ΣXᵀy/σ², with s² = 1/r
    covariance = np.linalg.inv(x.T @ x / scale**2 + r * np.eye(r))
    mean = test_x @ covariance @ x.T @ y / scale**2
    sd = np.sqrt(np.sum(test_x @ covariance * test_x, axis=1))
    assert not np.any(chains.diverged)
    assert np.max(experiment.rhat(f)) < 1.02
    # 2000 draws, nearly independent: four standard errors are 0.09 sd for a mean and 0.063 for a relative sd.
    draws = f.reshape(-1, len(test_x))
    assert np.max(np.abs(draws.mean(axis=0) - mean) / sd) < 0.1
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.07)
