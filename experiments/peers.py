"""Today's strongest methods for tables, behind one interface: x, y, x_test and a seed in, a `Prediction` out.

Each standardises by the training rows itself, and has any validation rows it needs from among them. Libraries are
imported where they are used: one that is missing takes only its own methods away (pip install 'vertebra[peers]', and
torch==2.13.0). The settings stand at the top.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

# One thread for every method. JAX takes the size of its pool from NPROC, once, when it first computes something.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float
from nid import detect
from scipy.special import logsumexp
from scipy.stats import norm

import vertebra as vb
from vertebra.metrics import rmse

EBM: dict[str, object] = {}  # beyond its defaults
EBM_HELD_OUT, EBM_NOISE_BAGS = 0.15, 2
LIGHTGBM_HELD_OUT, LIGHTGBM_SEARCHES, LIGHTGBM_ROUNDS, LIGHTGBM_PATIENCE = 0.2, 20, 5000, 50
BART_CHAINS, BART_BURN_IN, BART_DRAWS = 4, 500, 250  # of each chain; draws are those kept
GP_POINTS, GP_BATCH_SIZE, GP_STEPS, GP_ROWS_AT_ONCE = 128, 256, 3000, 512
SPARSE_GP_LEARNING_RATE = 0.1  # at 0.01 it is far from converged after these steps
DEEP_GP_LEARNING_RATE, DEEP_GP_WIDTH, DEEP_GP_DRAWS = 1e-2, 5, 50
BNN_WIDTHS, BNN_STEPS, BNN_DRAWS = (50, 50, 1), 20_000, 100


class Prediction(NamedTuple):
    """What a method says of test rows."""

    mean: Float[np.ndarray, " m"]
    # of y at the test rows, in the units of y
    log_density: Callable[[Float[np.ndarray, " m"]], Float[np.ndarray, " m"]] | None = None
    interactions: list[tuple[int, ...]] | None = None  # strongest first, where the method ranks them
    n_parameters: int | None = None
    sd_f: Float[np.ndarray, " m"] | None = None  # of f, where the method states it


Method = Callable[[Float[np.ndarray, "n p"], Float[np.ndarray, " n"], Float[np.ndarray, "m p"], int], Prediction]


def ebm(x, y, x_test, seed) -> Prediction:
    """Explainable boosting machine (interpret), at its defaults.

    The sd of the noise is the error of a second fit, with few bags and without some rows, on these rows.
    """
    from interpret.glassbox import ExplainableBoostingRegressor

    def fitted(x, y, **settings):
        return ExplainableBoostingRegressor(n_jobs=1, random_state=seed, **{**EBM, **settings}).fit(x, y)

    kept, held = _split(len(x), EBM_HELD_OUT, seed)
    without = fitted(x[kept], y[kept], outer_bags=EBM_NOISE_BAGS).predict(x[held])
    model = fitted(x, y)
    mean = model.predict(x_test)
    ranked = sorted(zip(model.term_features_, model.term_importances(), strict=True), key=lambda pair: -pair[1])
    return Prediction(
        mean,
        _normal(mean, rmse(y[held], without)),
        [tuple(int(i) for i in term) for term, _ in ranked if len(term) > 1],
        sum(scores.size for scores in model.term_scores_),
    )


def lightgbm(x, y, x_test, seed) -> Prediction:
    """Gradient-boosted trees (LightGBM), tuned by random search on an inner part, with early stopping.

    The best setting is fitted anew to all rows, with more rounds in proportion to the rows. The sd of the noise is the
    error on the inner part.
    """
    import lightgbm

    kept, held = _split(len(x), LIGHTGBM_HELD_OUT, seed)
    # Leaves of any size must be possible for a table that is binned once.
    any_leaf = {"feature_pre_filter": False, "verbosity": -1}
    binned = lightgbm.Dataset(x[kept], y[kept], params=any_leaf)
    watched = lightgbm.Dataset(x[held], y[held], reference=binned, params=any_leaf)
    rng, tried = np.random.default_rng(seed), []
    for _ in range(LIGHTGBM_SEARCHES):
        settings = {
            "num_leaves": int(np.exp(rng.uniform(np.log(4), np.log(128)))),
            "learning_rate": float(np.exp(rng.uniform(np.log(0.02), np.log(0.2)))),
            "min_child_samples": int(np.exp(rng.uniform(np.log(3), np.log(100)))),
            "feature_fraction": rng.uniform(0.4, 1.0),
            "bagging_fraction": rng.uniform(0.5, 1.0),
            "bagging_freq": 1,
            "lambda_l2": float(np.exp(rng.uniform(np.log(1e-3), np.log(10.0)))),
            **_lightgbm_settings(seed),
        }
        stop = lightgbm.early_stopping(LIGHTGBM_PATIENCE, verbose=False)
        model = lightgbm.train(settings, binned, LIGHTGBM_ROUNDS, valid_sets=[watched], callbacks=[stop])
        tried.append((model.best_score["valid_0"]["rmse"], model.best_iteration, settings))
    error, n_rounds, settings = min(tried, key=lambda t: t[0])
    n_rounds = round(n_rounds / (1.0 - LIGHTGBM_HELD_OUT))
    mean = lightgbm.train(settings, lightgbm.Dataset(x, y), n_rounds).predict(x_test)
    return Prediction(mean, _normal(mean, error))


def lightgbm_default(x, y, x_test, seed) -> Prediction:
    """LightGBM as it comes; the sd of the noise is the error of a fit without some rows on these."""
    import lightgbm

    kept, held = _split(len(x), LIGHTGBM_HELD_OUT, seed)
    without = lightgbm.train(_lightgbm_settings(seed), lightgbm.Dataset(x[kept], y[kept]))
    mean = lightgbm.train(_lightgbm_settings(seed), lightgbm.Dataset(x, y)).predict(x_test)
    return Prediction(mean, _normal(mean, rmse(y[held], without.predict(x[held]))))


def _lightgbm_settings(seed):
    fixed = {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    return {"objective": "regression", "metric": "rmse", "seed": seed, **fixed}


def stochtree(x, y, x_test, seed) -> Prediction:
    """Bayesian additive regression trees (stochtree): chains that start from its own grow-from-root forests."""
    from stochtree import BARTModel

    model = BARTModel()
    model.sample(
        x,
        y,
        X_test=x_test,
        num_gfr=2 * BART_CHAINS,
        num_burnin=BART_BURN_IN,
        num_mcmc=BART_DRAWS,
        general_params={
            "random_seed": seed,
            "num_chains": BART_CHAINS,
            "num_threads": 1,
        },
    )
    return _from_draws(model.y_hat_test.T, np.sqrt(model.global_var_samples)[:, None])


def bartz(x, y, x_test, seed) -> Prediction:
    """Bayesian additive regression trees (bartz): chains side by side."""
    from bartz import Bart

    # It computes in single precision.
    x, y, x_test, to_units = _standardised(x, y, x_test)
    model = Bart(
        np.float32(x.T),
        np.float32(y),
        num_chains=BART_CHAINS,
        num_chain_devices=None,
        n_burn=BART_BURN_IN,
        n_save=BART_DRAWS,
        printevery=None,
        seed=seed,
    )
    draws = model.predict(np.float32(x_test.T), kind="latent_samples")
    return _from_draws(*to_units(draws, model.get_error_sdev()[:, None]))


def sparse_gp(x, y, x_test, seed) -> Prediction:
    """Stochastic variational Gaussian process, ARD-RBF (GPyTorch)."""
    return _gp(x, y, x_test, seed, widths=(), n_draws=1, learning_rate=SPARSE_GP_LEARNING_RATE)


def deep_gp(x, y, x_test, seed) -> Prediction:
    """Doubly stochastic deep Gaussian process of two layers (Salimbeni & Deisenroth, 2017), ARD-RBF (GPyTorch)."""
    settings = dict(n_draws=DEEP_GP_DRAWS, learning_rate=DEEP_GP_LEARNING_RATE)
    return _gp(x, y, x_test, seed, widths=(DEEP_GP_WIDTH,), **settings)


def _gp(x, y, x_test, seed, widths, n_draws, learning_rate):
    """Layers of sparse GPs, those below the top of the widths given: none is the sparse GP itself.

    As in the deep GP's paper: below the top a linear mean function that begins as the principal components, and a
    posterior that begins nearly certain; one draw per step, and the top layer's expectation exact. The rate falls to 0
    along a cosine.
    """
    import gpytorch
    import torch
    from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
    from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
    from sklearn.cluster import KMeans

    class Layer(DeepGPLayer):
        def __init__(self, points, width, mean):
            (r, p), batch = points.shape, torch.Size([] if width is None else [width])
            posterior = CholeskyVariationalDistribution(r, batch)
            super().__init__(VariationalStrategy(self, points, posterior), p, width)
            if width is not None:
                posterior.chol_variational_covar.data.mul_(1e-2)
                self.variational_strategy.variational_params_initialized.fill_(1)
            self.mean_module = mean
            base = gpytorch.kernels.RBFKernel(ard_num_dims=p, batch_shape=batch)
            base.lengthscale = p**0.5
            self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    class Layers(DeepGP):
        def __init__(self, points):
            super().__init__()
            self.below = torch.nn.ModuleList()
            for width in widths:
                # Vᵀ of x = USVᵀ; outputs beyond the inputs begin at 0
                axes = torch.linalg.svd(points, full_matrices=False).Vh[:width]
                axes = torch.nn.functional.pad(axes, (0, 0, 0, width - len(axes)))
                mean = gpytorch.means.LinearMean(points.shape[1], torch.Size([width]))
                mean.initialize(weights=axes[:, :, None], bias=torch.zeros(width, 1))
                self.below.append(Layer(points, width, mean))
                points = points @ axes.T
            self.top = Layer(points, None, gpytorch.means.ConstantMean())
            # The library's own floor for the variance, 1e-4, is above the noise of some tables.
            floor = gpytorch.constraints.GreaterThan(1e-6)
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=floor)
            self.likelihood.noise = 0.1

        def forward(self, x):
            for layer in self.below:
                x = layer(x)
            return self.top(x)

    torch.set_num_threads(1)
    x, y, x_test, to_units = _standardised(x, y, x_test)
    points = KMeans(min(GP_POINTS, len(x)), n_init=1, random_state=seed).fit(x).cluster_centers_
    points, rows, targets, test = (torch.tensor(a, dtype=torch.float32) for a in (points, x, y, x_test))
    draws_per_step, draws_at_test = (gpytorch.settings.num_likelihood_samples(k) for k in (1, n_draws))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Layers(points)
        bound = DeepApproximateMLL(VariationalELBO(model.likelihood, model, len(x)))
        optimiser = torch.optim.Adam(model.parameters(), learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, GP_STEPS)
        with draws_per_step:
            for _ in range(GP_STEPS):
                batch = torch.randint(len(x), (min(GP_BATCH_SIZE, len(x)),))
                optimiser.zero_grad()
                loss = -bound(model(rows[batch]), targets[batch])
                loss.backward()
                optimiser.step()
                schedule.step()
        model.eval()
        with torch.no_grad(), draws_at_test:
            parts = [model.likelihood(model(some)) for some in test.split(GP_ROWS_AT_ONCE)]
            means = torch.cat([part.mean for part in parts], dim=1).numpy()
            variances = torch.cat([part.variance for part in parts], dim=1).numpy()
    count = sum(parameter.numel() for parameter in model.parameters())
    return _from_draws(*to_units(means, np.sqrt(variances)))._replace(n_parameters=count)


def mean_field_bnn(x, y, x_test, seed) -> Prediction:
    """One Bayesian network of tanh units on all inputs, its posterior a diagonal Gaussian: by Vertebra itself."""
    x, y, x_test, to_units = _standardised(x, y, x_test)
    init_key, fit_key, draw_key = jr.split(jr.key(seed), 3)
    network = vb.build(vb.chain(x.shape[1], len(BNN_WIDTHS)), vb.mean_field(BNN_WIDTHS), key=init_key)
    fitted = vb.fit(network, vb.Gaussian(), x, y, key=fit_key, n_steps=BNN_STEPS)
    draws = vb.sample(fitted.network, x_test, key=draw_key, n_draws=BNN_DRAWS)[:, :, 0]
    sd = np.broadcast_to(fitted.likelihood.scale, (BNN_DRAWS, 1))
    trained = jax.tree.leaves(eqx.filter(fitted.network, vb.trainable(fitted.network)))
    return _from_draws(*to_units(draws, sd))._replace(n_parameters=sum(leaf.size for leaf in trained))


def nid(x, y, x_test, seed) -> Prediction:
    """Neural Interaction Detection: see nid.py. The sd of the noise is the error on its validation rows."""
    found = detect(x, y, seed)
    mean = found.predict(x_test)
    return Prediction(mean, _normal(mean, found.validation_rmse), found.interactions, found.n_parameters)


METHODS: dict[str, Method] = {
    "ebm": ebm,
    "lightgbm": lightgbm,
    "lightgbm_default": lightgbm_default,
    "stochtree": stochtree,
    "bartz": bartz,
    "sparse_gp": sparse_gp,
    "deep_gp": deep_gp,
    "mean_field_bnn": mean_field_bnn,
    "nid": nid,
}


def _split(n, share, seed):
    """The rows kept, and that share of them held out."""
    order = np.random.default_rng(seed).permutation(n)
    held = round(share * n)
    return order[held:], order[:held]


def _standardised(x, y, x_test):
    """x, y and x_test by the means and sds of the training rows, and the way back for values and sds of y.

    An input that is constant over the training rows is only centred.
    """
    centre, scale = x.mean(axis=0), np.where(np.ptp(x, axis=0) > 0.0, x.std(axis=0), 1.0)
    y_mean, y_sd = y.mean(), y.std()

    def to_units(values, sds):
        return y_mean + y_sd * np.asarray(values, float), y_sd * np.asarray(sds, float)

    return (x - centre) / scale, (y - y_mean) / y_sd, (x_test - centre) / scale, to_units


def _normal(mean, sd):
    return lambda y: norm.logpdf(y, mean, sd)


def _from_draws(f, sd):
    """The mixture p(y) = 1/s Σ_s N(y; f_s, sd_s²); f is (draws, m), sd (draws, m) or (draws, 1)."""
    return Prediction(f.mean(axis=0), lambda y: logsumexp(norm.logpdf(y[None], f, sd), axis=0) - np.log(len(f)))
