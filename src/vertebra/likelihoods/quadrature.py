"""Points and shares for means over f ~ N(0, I): Gauss and Hermite's rule, its products, and equally likely points."""

import math
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from vertebra.machine.later import later

qmc = later("scipy.stats.qmc")  # scipy.stats takes half a second

# Nodes per latent: exact for polynomials up to degree 39 in one or two latents, and 19 in three: at most a thousand
# evaluations of log p for each row. With more latents there is no rule.
N_NODES = {1: 20, 2: 20, 3: 10}


@cache
def gauss_hermite(n: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The nodes of Gauss and Hermite, and their shares, which sum to 1: exact up to degree 2n − 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


@cache
def product_rule(n_latent: int) -> tuple[Float[np.ndarray, "m latent"], Float[np.ndarray, " m"]]:
    """Nodes and shares for up to three latents: the tensor product of Gauss–Hermite rules."""
    nodes, shares = gauss_hermite(N_NODES[n_latent])
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * n_latent, indexing="ij")], axis=1)
    products = math.prod(np.meshgrid(*[shares] * n_latent, indexing="ij"), start=np.ones(()))
    return grid, np.ravel(products)


@cache
def normal_points(n: int, n_latent: int) -> Float[np.ndarray, "n latent"]:
    """n equally likely points of N(0, I), n a power of two: the same n levels of every latent, paired by Sobol' points.

    Paired at random, 100 points of three latents have correlations of up to 0.15.

    >>> points = vb.likelihoods.normal_points(128, 3)
    >>> bool(abs(np.corrcoef(points.T) - np.eye(3)).max() < 0.02)
    True
    """
    levels = ndtri((np.arange(n) + 0.5) / n)
    if n_latent == 1:
        return levels[:, None]
    # `seed` is called `rng` from SciPy 1.15 on, which takes the old name too
    sobol = qmc.Sobol(n_latent, scramble=True, seed=0)
    return levels[sobol.random(n).argsort(axis=0).argsort(axis=0)]
