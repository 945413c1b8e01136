"""Vertebra: Bayesian neural networks, block by block, on a computation skeleton."""

import importlib

__version__ = "0.2.0"

# Imported when first asked for, since JAX takes seconds and help needs none of it. `__init__.pyi` says the same to
# editors and type checkers.
_MODULES = (
    "activations",
    "cluster",
    "datasets",
    "distributions",
    "kernels",
    "likelihoods",
    "metrics",
    "plot",
    "schemes",
    "serving",
    "stream",
)
_NAMES = {
    "effects.decomposition": ("attribute", "decompose"),
    "effects.effect": ("Effect", "sobol"),
    "effects.network_posterior": ("as_network",),
    "estimators": ("AdditiveClassifier", "AdditiveRegressor", "SkeletonClassifier", "SkeletonRegressor", "load"),
    "files.built": ("save",),
    "inference": (
        "Diverged",
        "Fitted",
        "LinearisedLaplace",
        "LogDensity",
        "Progress",
        "elbo",
        "fit",
        "fit_stream",
        "linearised_laplace",
        "log_density",
        "moments",
        "sample",
    ),
    "likelihoods": (
        "Bernoulli",
        "Categorical",
        "Gaussian",
        "HeteroscedasticGaussian",
        "NegativeBinomial",
        "Ordinal",
        "Poisson",
        "StudentT",
        "Survival",
    ),
    "machine.file": ("BadFile",),
    "models.rows": ("NewLevels", "OutsideRange"),
    "networks.blocks": ("FunctionBlock", "InducingPointBlock", "RandomFeatureBlock"),
    "networks.build": ("build",),
    "networks.divergence": ("kl",),
    "networks.embeddings": (
        "ByKind",
        "LevelsBlock",
        "PeriodicBlock",
        "PiecewiseLinearBlock",
        "RobustScaling",
        "embedded",
    ),
    "networks.kernels": ("RBF", "Dual", "Linear", "Matern", "Periodic", "Polynomial"),
    "networks.layer": ("Layer",),
    "networks.network": ("Network",),
    "networks.parameters": ("Fixed", "trainable"),
    "networks.posteriors": ("Dropout", "PointMass"),
    "networks.prior_functions": ("draw_prior", "dual_kernel", "empirical_kernel", "sample_prior"),
    "networks.priors": ("GroupLasso", "Laplace", "Normal"),
    "networks.schemes": (
        "deep_ensemble",
        "deep_kernel_learning",
        "deep_random_features",
        "inducing_points",
        "mc_dropout",
        "mean_field",
        "random_features",
        "select_inputs",
        "tabular",
    ),
    "networks.skeleton": ("Node", "Output", "Skeleton", "additive", "chain", "multitask"),
    "tables.tablefile": ("read_table",),
    "terms.block": ("BasisBlock",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [*_MODULES, *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"vertebra.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"vertebra.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
