"""Likelihoods p(y | f): densities, their means under q(f), and what they predict from draws of f.

f carries its latent values on the last axis, y its targets; any axes may stand before. Draws of f carry them on the
first: (draws, *rows, latent). A likelihood is a recipe until `init(y)` sets its parameters to the scale of y.

>>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
>>> print(vb.Gaussian(scale=1.0).mean(f), vb.Gaussian(scale=1.0).variance(f))
[[1.]] [[2.]]
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vertebra.likelihoods.continuous import Gaussian, HeteroscedasticGaussian, StudentT
    from vertebra.likelihoods.discrete import Bernoulli, Categorical, NegativeBinomial, Ordinal, Poisson
    from vertebra.likelihoods.likelihood import Likelihood
    from vertebra.likelihoods.quadrature import normal_points
    from vertebra.likelihoods.survival import Survival

# Imported when first asked for, as the names of `vertebra` are: predictions need no JAX.
_NAMES = {
    "continuous": ("Gaussian", "HeteroscedasticGaussian", "StudentT"),
    "discrete": ("Bernoulli", "Categorical", "NegativeBinomial", "Ordinal", "Poisson"),
    "likelihood": ("Likelihood",),
    "quadrature": ("normal_points",),
    "survival": ("Survival",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "Survival",
    "normal_points",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"vertebra.likelihoods.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
