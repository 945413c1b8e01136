"""Likelihoods p(y | f): densities, their means under q(f), and what they predict from draws of f.

f carries its latent values on the last axis, y its targets; any axes may stand before. Draws of f carry them on the
first: (draws, *rows, latent). A likelihood is a recipe until `init(y)` sets its parameters to the scale of y.

>>> f = jnp.array([[[0.0]], [[2.0]]])  # two draws of one row
>>> print(vb.Gaussian(scale=1.0).mean(f), vb.Gaussian(scale=1.0).variance(f))
[[1.]] [[2.]]
"""

from vertebra.likelihoods.continuous import Gaussian, HeteroscedasticGaussian, StudentT
from vertebra.likelihoods.discrete import Bernoulli, Categorical, NegativeBinomial, Ordinal, Poisson
from vertebra.likelihoods.likelihood import Likelihood
from vertebra.likelihoods.quadrature import normal_points
from vertebra.likelihoods.survival import Survival

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
