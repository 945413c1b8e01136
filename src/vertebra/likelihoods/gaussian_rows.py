"""Gaussian rows near f: y and p(y | f) as responses z with weights w, one for each latent function.

With the expected score and information under q(f_i) = N(m_i, v_i), w = E −∂² log p and w (z − m) = E ∂ log p, a
weighted least-squares fit of z is a natural-gradient step on the ELBO, and where it comes to rest q is the best
Gaussian (Opper & Archambeau). Unlike Laplace's approximation, which takes them at the mode, it holds up where classes
can be told apart for certain. Latents of one target are taken as independent.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# The furthest that a row may ask its latent function to move at once: one with p ≈ 0 and y = 1 would ask for anything.
# A logit of 8 is a probability of 0.9997: the step from either end of what classes say to the other.
STEP = 8.0
# Weights below this share of their largest value tell nothing but rounding.
LEAST_WEIGHT = 1e-6
# A row that alone decides f at its place tells nothing about how well it would be predicted: what it is away without
# itself is at most 50 times what it is away with itself.
MOST_LEVERAGE = 0.98


class Response(NamedTuple):
    """Rows of one latent function; without a noise variance this is learned."""

    z: Float[np.ndarray, " n"]
    w: Float[np.ndarray, " n"]
    noise_variance: float | None


def bounded(f, score, information):
    """z and w of a row with this score and information: w (z − f) is the score, so that the rest point stays.

    Where a Newton step would go far, w is raised until it does not.
    """
    w = np.maximum(information, np.abs(score) / STEP)
    w = np.maximum(w, LEAST_WEIGHT * w.max(axis=0))
    return f + score / w, w


def between(old: Response, new: Response, share: float) -> Response:
    """A share of the way from one response to another, in natural parameters."""
    w = old.w + share * (new.w - old.w)
    wz = old.w * old.z + share * (new.w * new.z - old.w * old.z)
    return Response(wz / np.where(w > 0.0, w, 1.0), w, new.noise_variance)


def left_out(
    mean: Float[np.ndarray, "n latent"],
    variance: Float[np.ndarray, "n latent"],
    conditional: Float[np.ndarray, "n latent"],
    responses: Sequence[Response],
    noise: Sequence[float],
    weight: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, "n latent"], Float[np.ndarray, "n latent"]]:
    """Mean and variance of f at each row without it: its response, of precision w/σ², taken off q(f_i).

    With the leverage h = Var f · w/σ², where the variance is `conditional` on the hyper-parameters: m₋ = m − (z − m)
    h/(1 − h), v₋ = v/(1 − h). Exact for Gaussian noise, terms and hyper-parameters kept. Of a row of weight above 1,
    which stands for several, one is left out and not all of them.
    """
    means, variances = [], []
    for k, (response, own) in enumerate(zip(responses, noise, strict=True)):
        one = response.w / np.maximum(weight, 1.0)
        precision = one / (own if response.noise_variance is None else response.noise_variance)
        h = np.clip(precision * conditional[:, k], 0.0, MOST_LEVERAGE)
        means.append(mean[:, k] - (response.z - mean[:, k]) * h / (1.0 - h))
        variances.append(variance[:, k] / (1.0 - h))
    return np.stack(means, axis=1), np.stack(variances, axis=1)
