"""KL(q ‖ p) of the posteriors and priors of weights, every pair on one screen."""

import math

import jax.numpy as jnp
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.networks.features import n_live, over_features
from vertebra.networks.posteriors import Dropout, Gaussian, PointMass, Posterior, check_posterior
from vertebra.networks.priors import GroupLasso, Laplace, Normal, Prior, check_prior


def kl(
    q: Posterior, p: Prior, *, live: Float[Array, " r"] | None = None, key: PRNGKeyArray | None = None
) -> Float[Array, ""]:
    """KL(q ‖ p), summed over V.

    Exact for a Gaussian against a normal or a Laplace prior. Unbiased, from one draw, against a group lasso, which
    needs `key`. A point mass has no density: there it is −log p(V) + log p(0), the penalty that the prior stands for,
    and for dropout the mean of that over the coins (their entropy depends on the rate alone, and is left out).

    `live` marks with 1 the features that exist; the others, padding, do not count.

    >>> q = vb.distributions.Gaussian(vb.distributions.Diagonal(jnp.zeros((1, 2))), mean=jnp.array([[1.0, 2.0]]))
    >>> print(vb.kl(q, vb.Normal()))  # ½ ‖μ‖², as the variances are the prior's
    2.5
    """
    check_posterior(q)
    check_prior(p)
    d, r = q.mean.shape[0], n_live(q.mean, live)
    match q, p:
        case Gaussian(), Normal():
            # ½ Σ_j [ tr Σ_j/s² + ‖μ_j‖²/s² − r + r log s² − log|Σ_j| ]
            sd = p.sd(r)
            second = over_features(q.covariance.variances() + q.mean**2, live) / sd**2
            return 0.5 * jnp.sum(second - r + 2.0 * r * jnp.log(sd) - q.covariance.log_det(live))
        case Gaussian(), Laplace():
            # E|v|/b + log 2b − entropy, with the folded normal's mean E|v| = σ√(2/π) e^{−μ²/2σ²} + μ(1 − 2Φ(−μ/σ))
            scale, sd = p.scale.value, jnp.sqrt(q.covariance.variances())
            z = q.mean / sd
            absolute = sd * math.sqrt(2.0 / math.pi) * jnp.exp(-0.5 * z**2) + q.mean * (1.0 - 2.0 * ndtr(-z))
            return jnp.sum(over_features(absolute, live)) / scale + d * r * jnp.log(2.0 * scale) - _entropy(q, live)
        case Gaussian(), GroupLasso():
            if key is None:
                raise ValueError("`key` is needed: KL of a Gaussian against a group lasso is estimated from a draw.")
            # ∫ exp(−λ‖v‖) dv over R^d = 2 π^{d/2} Γ(d) / (Γ(d/2) λ^d)
            log_volume = math.log(2.0) + 0.5 * d * math.log(math.pi) + gammaln(float(d)) - gammaln(0.5 * d)
            normaliser = r * (log_volume - d * jnp.log(p.penalty.value))
            return _penalty(p, q.sample(key), live) + normaliser - _entropy(q, live)
        case PointMass(), Normal() | Laplace() | GroupLasso():
            return _penalty(p, q.mean, live)
        case Dropout(), Normal() | Laplace() | GroupLasso():
            keep = 1.0 - q.rate.value
            return keep * _penalty(p, q.mean / keep, live)


def _penalty(p: Prior, v: Float[Array, "d r"], live: Float[Array, " r"] | None) -> Float[Array, ""]:
    """−log p(V) + log p(0)."""
    match p:
        case Normal():
            return 0.5 * jnp.sum(over_features(v**2, live)) / p.sd(n_live(v, live)) ** 2
        case Laplace():
            return jnp.sum(over_features(jnp.abs(v), live)) / p.scale.value
        case GroupLasso():
            squares = jnp.sum(v**2, axis=0)
            # ‖0‖ has no gradient: a group at zero stays there, which is the subgradient of least norm.
            norms = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
            return p.penalty.value * over_features(norms, live)


def _entropy(q: Gaussian, live: Float[Array, " r"] | None) -> Float[Array, ""]:
    d, r = q.mean.shape[0], n_live(q.mean, live)
    return 0.5 * (d * r * (1.0 + math.log(2.0 * math.pi)) + jnp.sum(q.covariance.log_det(live)))
