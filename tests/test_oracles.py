"""Vertebra against implementations that others wrote: GPyTorch, PyTorch and scikit-learn, in double precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from reference import covariance, random_features
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.linear_model import BayesianRidge
from test_theory import scattered

import vertebra as vb
from vertebra import InducingPointBlock, Layer, RandomFeatureBlock
from vertebra.distributions import Gaussian, Normal
from vertebra.inference.conjugate import closed_form
from vertebra.networks.stack import Noise

NOISE = 0.4
N_DRAWS = 20_000


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'vertebra[oracles]'")
    torch.manual_seed(0)
    return torch


@pytest.fixture
def gpytorch(torch):
    return pytest.importorskip("gpytorch", reason="gpytorch is not installed: pip install 'vertebra[oracles]'")


def table(n, p, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] + NOISE * rng.normal(size=n)


def assert_same_mean(ours, theirs, *, resolution):
    """The means over draws, the first axis, agree within 4 standard errors of their difference.

    One such comparison fails by chance with probability 6e-5; the seeds are fixed. Four standard errors must be less
    than `resolution` of the largest mean: fewer draws would show nothing.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    error = 4.0 * np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
    assert np.max(error) < resolution * np.max(np.abs(theirs.mean(axis=0)))
    np.testing.assert_array_less(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)), error)


def square(f):
    """(f − E f)², whose mean over draws is the variance; the error of E f itself is of second order."""
    f = np.asarray(f)
    return (f - f.mean(axis=0)) ** 2


def point_network(x, widths):
    """The layers of `vb.inducing_points`, but with q(V) at random and half as wide as the prior."""
    *below, top = widths
    blocks = [InducingPointBlock(6, residual="diagonal")]
    layers = [Layer(d, blocks, Gaussian(sd=0.5), mean="linear") for d in below]
    layers.append(Layer(top, blocks, Gaussian(sd=0.5), bias=True))
    skeleton = vb.chain(x.shape[1], len(widths), activation="identity")
    return scattered(vb.build(skeleton, layers, key=jr.key(0), x=x), seed=1)


def gp_layer(torch, gpytorch, stack, base, *sizes):
    """GPyTorch's layer with the Z, kernel, q(V), bias and skip of a stack of one node.

    Both whiten with the Cholesky factor of K(Z, Z) + jitter, so that q(V) is in the same coordinates. GPyTorch also
    adds the jitter, here the 1e-9 that is ours in float64, to K(x, x): nothing, against the tolerance of 1e-6.
    """
    tensor = lambda array: torch.tensor(np.asarray(array)[0])  # noqa: E731
    (block,), q = stack.features, stack.function.posterior
    z, variance = tensor(block.z), tensor(block.kernel.log_variance).exp()
    (r, p), d = z.shape, q.mean.shape[1]
    batch = torch.Size([d] if d > 1 else [])

    class Copy(base):
        def __init__(self):
            posterior = gpytorch.variational.CholeskyVariationalDistribution(r, batch)
            strategy = gpytorch.variational.VariationalStrategy(self, z, posterior, jitter_val=1e-9 * variance.item())
            super().__init__(strategy, *sizes)
            self.mean_module = gpytorch.means.LinearMean(p, batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=p))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    skip = np.zeros((1, d, p)) if stack.mean is None else stack.mean.value
    bias = np.zeros((1, d)) if stack.function.bias is None else stack.function.bias
    roots = np.linalg.cholesky([covariance(q.covariance, 0, j) for j in range(d)])
    copy = Copy().double()
    copy.initialize(
        **{
            "mean_module.weights": tensor(skip).reshape(*batch, p, 1),
            "mean_module.bias": tensor(bias).reshape(*batch, 1),
            "covar_module.outputscale": variance,
            "covar_module.base_kernel.lengthscale": tensor(block.kernel.log_lengthscale).exp(),
            "variational_strategy._variational_distribution.variational_mean": tensor(q.mean).reshape(*batch, r),
            "variational_strategy._variational_distribution.chol_variational_covar": tensor([roots]).reshape(
                *batch, r, r
            ),
        }
    )
    # Else the first call would put q at the prior.
    copy.variational_strategy.variational_params_initialized.fill_(1)
    return copy


def gaussian_likelihood(torch, gpytorch):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(NOISE**2, dtype=torch.float64)  # a float would pass through float32
    return likelihood


@pytest.mark.slow
def test_one_layer_is_the_svgp_of_gpytorch(torch, gpytorch, x64):
    x, y = table(40, 2)
    network = point_network(x, [1])

    @eqx.filter_jit
    def ours(network, x, y):
        mean, variance = network.conditional(x.T, network.noise(jr.key(0)))
        elbo = vb.elbo(network, vb.Gaussian(NOISE), x, y, key=jr.key(0))
        return mean[0], variance[0], network.kl(key=jr.key(0)), elbo

    model = gp_layer(torch, gpytorch, network.stacks[0], gpytorch.models.ApproximateGP)
    bound = gpytorch.mlls.VariationalELBO(gaussian_likelihood(torch, gpytorch), model, len(x))
    with torch.no_grad():
        f = model(torch.tensor(x))
        kl = model.variational_strategy.kl_divergence()
        elbo = len(x) * bound(f, torch.tensor(y))  # theirs is per row
    for mine, theirs in zip(ours(network, x, y), (f.mean, f.variance, kl, elbo), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-6)  # as asked; the jitter in K(x, x) is 1e-9


@pytest.fixture
def deep_gp(torch, gpytorch, x64):
    """A network of two layers with the identity between them, GPyTorch's copy of it, and five rows."""
    x, y = table(40, 2)
    network = point_network(x, [2, 1])

    class Deep(gpytorch.models.deep_gps.DeepGP):
        def __init__(self):
            super().__init__()
            layer = gpytorch.models.deep_gps.DeepGPLayer
            self.first = gp_layer(torch, gpytorch, network.stacks[0], layer, 2, 2)
            self.last = gp_layer(torch, gpytorch, network.stacks[1], layer, 2, None)

        def forward(self, x):
            return self.last(self.first(x))

    return network, Deep(), x[:5], y[:5]


@pytest.mark.slow
def test_two_layers_given_their_noise_are_the_deep_gp_of_gpytorch(torch, gpytorch, deep_gp):
    network, model, x, _ = deep_gp
    normal = np.random.default_rng(2).normal(size=(3, 2, 5))  # (draws, d, rows)

    @eqx.filter_jit
    def ours(network, x, normal):
        draw = lambda normal: network.conditional(x.T, (Noise(normal[None], None), Noise(None, None)))  # noqa: E731
        mean, variance = jax.vmap(draw)(normal)
        return mean[:, 0], variance[:, 0], network.kl(key=jr.key(0))

    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(3):
        hidden = model.first(torch.tensor(x))
        f = model.last(hidden.mean + hidden.variance.sqrt() * torch.tensor(normal).mT, are_samples=True)
        kl = model.variational_strategy.kl_divergence()
    for mine, theirs in zip(ours(network, x, normal), (f.mean, f.variance, kl), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-6)  # the jitter in K(x, x) is 1e-9


@pytest.mark.slow
def test_two_layers_have_the_law_of_the_deep_gp_of_gpytorch(torch, gpytorch, deep_gp):
    network, model, x, y = deep_gp

    @eqx.filter_jit
    def ours(network, x, y, keys):
        mean, variance = jax.vmap(lambda key: network.conditional(x.T, network.noise(key, (5,))))(keys)
        elbos = jax.vmap(lambda key: vb.elbo(network, vb.Gaussian(NOISE), x, y, key=key))(keys)
        return mean[:, 0], variance[:, 0], elbos + network.kl(key=keys[0])

    bound = gpytorch.mlls.VariationalELBO(gaussian_likelihood(torch, gpytorch), model, 5)
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(N_DRAWS):
        f = model(torch.tensor(x))
        their_data_term = (5 * bound(f, torch.tensor(y)) + model.variational_strategy.kl_divergence()).numpy()
    their_mean, their_variance = f.mean.numpy(), f.variance.numpy()
    mean, variance, data_term = ours(network, x, y, jr.split(jr.key(3), N_DRAWS))
    assert_same_mean(mean, their_mean, resolution=0.02)
    # Var f = E Var[f | below] + Var E[f | below]
    assert_same_mean(variance + square(mean), their_variance + square(their_mean), resolution=0.05)
    assert_same_mean(data_term, their_data_term, resolution=0.02)


@pytest.fixture
def dropout(torch, x64):
    """MC dropout on a chain, the same network in plain PyTorch, and five rows."""
    rate, (x, _) = 0.2, table(5, 3)
    layers = vb.mc_dropout([8, 6, 1], rate=rate)
    network = scattered(vb.build(vb.chain(3, 3, activation="relu"), layers, key=jr.key(0)), seed=1)
    modules = []
    for stack in network.stacks:
        # Coins for all that enters a function block, in the first layer the inputs; the bias comes after them.
        weight, bias = (torch.tensor(np.asarray(a)[0]) for a in (stack.function.posterior.mean, stack.function.bias))
        linear = torch.nn.Linear(*reversed(weight.shape)).double()
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules += [torch.nn.Dropout(rate), linear, torch.nn.ReLU()]
    return network, torch.nn.Sequential(*modules[:-1]).train(), x


@pytest.mark.slow
def test_mc_dropout_given_the_coins_is_the_dropout_of_pytorch(torch, dropout):
    network, theirs, x = dropout
    coins = []
    for module in theirs:
        if isinstance(module, torch.nn.Dropout):
            # What went through: behind a ReLU that is 0 the coin does not matter.
            module.register_forward_hook(lambda module, inputs, output: coins.append((output != 0.0).numpy()))
    with torch.no_grad():
        expected = theirs(torch.tensor(x))[:, 0].numpy()
    assert all(0 < np.sum(each) < each.size for each in coins)
    noise = [Noise(None, jnp.asarray(each.T[None])) for each in coins]
    f, _ = eqx.filter_jit(lambda network, x, noise: network.conditional(x.T, noise))(network, x, noise)
    np.testing.assert_allclose(f[0], expected, rtol=1e-12)  # the same short sums, in another order


@pytest.mark.slow
def test_mc_dropout_has_the_law_of_the_dropout_of_pytorch(torch, dropout):
    network, theirs, x = dropout
    draws = vb.sample(network, x, key=jr.key(2), n_draws=N_DRAWS)[..., 0]
    with torch.no_grad():
        their_draws = theirs(torch.tensor(x).expand(N_DRAWS, -1, -1))[..., 0].numpy()
    assert_same_mean(draws, their_draws, resolution=0.05)
    assert_same_mean(square(draws), square(their_draws), resolution=0.05)


def linear_network(prior_sd):
    """f = vᵀφ(x) with six fixed features, v ~ N(0, prior_sd²): the Bayesian linear model on φ."""
    layer = Layer(1, [RandomFeatureBlock(6, "tanh", bias=True)], Gaussian(), Normal(prior_sd))
    return vb.build(vb.chain(3, 1), [layer], key=jr.key(0))


def in_closed_form(network, x, y):
    likelihood = vb.Gaussian(NOISE).init(y[:, None])
    network, likelihood, evidence = closed_form(network, likelihood, x, y[:, None], np.ones((len(x), 1)))
    return network, float(likelihood.scale[0]), evidence


def features(network, x):
    return np.array([random_features(network.stacks[0].features[0], 0, row) for row in x])


def test_a_linear_model_in_closed_form_is_bayesian_ridge_regression(x64):
    x, y = table(30, 3)
    prior_sd = 1.7
    network, scale, _ = in_closed_form(linear_network(prior_sd), x, y)
    # BayesianRidge always updates its precisions. Gamma hyper-priors this sharp hold them where they are, to 1e-10.
    alpha, precision, sharp = scale**-2, prior_sd**-2, 1e12
    hold = dict(alpha_1=sharp * alpha, alpha_2=sharp, lambda_1=sharp * precision, lambda_2=sharp)
    ridge = BayesianRidge(max_iter=1, alpha_init=alpha, lambda_init=precision, fit_intercept=False, **hold)
    ridge.fit(features(network, x), y)
    np.testing.assert_allclose([ridge.alpha_, ridge.lambda_], [alpha, precision], rtol=1e-10)
    q = network.stacks[0].function.posterior
    # 1e-8 as asked, of the largest entry; both sides are float64.
    np.testing.assert_allclose(q.mean[0, 0], ridge.coef_, rtol=0.0, atol=1e-8 * np.max(np.abs(ridge.coef_)))
    np.testing.assert_allclose(covariance(q.covariance, 0, 0), ridge.sigma_, rtol=0.0, atol=1e-8 * np.max(ridge.sigma_))
    new, _ = table(4, 3, seed=1)
    mean, variance = vb.moments(network, new, key=jr.key(0))
    their_mean, their_sd = ridge.predict(features(network, new), return_std=True)
    np.testing.assert_allclose(mean[:, 0], their_mean, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.asarray(variance)[:, 0] + scale**2), their_sd, rtol=1e-8)


def test_the_noise_of_a_linear_model_is_the_evidence_maximum_of_bayesian_ridge_regression(x64):
    x, y = table(30, 3)
    flat = dict(alpha_1=0.0, alpha_2=0.0, lambda_1=0.0, lambda_2=0.0)
    ridge = BayesianRidge(max_iter=10_000, tol=1e-13, fit_intercept=False, compute_score=True, **flat)
    ridge.fit(features(linear_network(1.0), x), y)
    _, scale, evidence = in_closed_form(linear_network(float(ridge.lambda_**-0.5)), x, y)
    assert scale == pytest.approx(ridge.alpha_**-0.5, rel=3e-5)  # log scale is searched for to 1e-5
    assert evidence == pytest.approx(ridge.scores_[-1], rel=1e-8)  # flat there: an error of 1e-5 enters squared


def test_the_last_layer_in_closed_form_is_gaussian_process_regression_on_its_features(x64):
    x, y = table(30, 3)
    network = scattered(vb.build(vb.additive(3, 2, 2), vb.deep_kernel_learning([3, 1]), key=jr.key(0)), seed=1)
    network, scale, evidence = in_closed_form(network, x, y)
    new, _ = table(4, 3, seed=1)
    (phi, offset, _), (new_phi, new_offset, _) = (eqx.filter_jit(network.top_features)(a.T) for a in (x, new))
    # K = s²ΦΦᵀ over the features of both sub-networks
    prior_variance = float(network.stacks[-1].function.prior.scale.value[0]) ** 2
    kernel = ConstantKernel(prior_variance, "fixed") * DotProduct(0.0, "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=scale**2, optimizer=None).fit(phi[0].T, y - offset[0])
    their_mean, their_sd = exact.predict(new_phi[0].T, return_std=True)
    mean, variance = vb.moments(network, new, key=jr.key(0))
    # 1e-8 as asked; 2e-14 was measured, though theirs takes the variance as a difference of larger numbers.
    np.testing.assert_allclose(mean[:, 0], their_mean + new_offset[0], rtol=1e-8)
    np.testing.assert_allclose(variance[:, 0], their_sd**2, rtol=1e-8)
    assert evidence == pytest.approx(exact.log_marginal_likelihood_value_, rel=1e-8)
