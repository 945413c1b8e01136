"""Likelihoods and blocks of a user's own, of public names alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import beta

import vertebra as vb


class Beta(vb.likelihoods.Likelihood):
    """y ~ Beta(μ s, (1 − μ) s) on (0, 1), μ = 1/(1 + e^{−f}): −∞ outside, with no gradient."""

    log_precision: jax.Array

    def __init__(self):
        self.log_precision = jnp.zeros(())

    def log_prob(self, f, y):
        mean, precision = jax.nn.sigmoid(f), jnp.exp(self.log_precision)
        return beta.logpdf(y, precision * mean, precision * (1.0 - mean))


class Logarithms(eqx.Module):
    """φ = log x: of inputs above 0."""

    r: int = eqx.field(static=True)
    residual = None

    def init(self, n_inputs, *, rng: np.random.Generator):
        return self

    def __call__(self, x):
        return jnp.log(x)
