"""The share of networks in f = A + α(G − A), for every likelihood, and the noise that is left with it.

Where noise is even and normal, or its scale is known row by row, α is least squares; else it is what makes rows left
out likeliest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from vertebra.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, NegativeBinomial, StudentT
from vertebra.likelihoods.densities import IN_NUMPY
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.calibration import LeftOut, noise
from vertebra.models.remainder import LEAST_SHARE, LEAST_Z, Blend, blend

# Shares that are tried, and rows that are asked, where there is no closed form: the best is within 0.05, and where the
# density is highest it is flat. Round numbers.
SHARES, MOST_ROWS = np.linspace(0.0, 1.0, 11), 5000
# What a parameter of the noise is multiplied by: with less left to explain it is smaller; steps of 8 %.
FACTORS = np.exp(np.linspace(-2.0, 0.4, 31))
# The step of second differences: of functions of size 1 off by its square, and by 10⁻¹⁶ over that.
STEP = 1e-3

Moments = tuple[Float[np.ndarray, "n latent"], Float[np.ndarray, "n latent"]]


class Shared(NamedTuple):
    """What is made of the terms and the networks, latent by latent, and the noise of it."""

    blend: Blend
    likelihood: Likelihood

    @property
    def left_out(self) -> Predictive:
        said = self.blend.said
        return Predictive(self.likelihood, said.mean, said.variance + said.fewer)

    def of(self, terms: Moments, networks: LeftOut) -> Predictive:
        """The same share of other rows."""
        share = self.blend.share
        theirs = (np.repeat(part, len(share) // part.shape[1], axis=1) for part in networks)
        mean, variance, fewer = theirs
        doubt = (1.0 - share) ** 2 * terms[1] + share**2 * (variance + fewer)
        return Predictive(self.likelihood, terms[0] + share * (mean - terms[0]), doubt)


def shared(
    terms: Moments,
    networks: LeftOut,
    likelihood: Likelihood,
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    n_draws: int,
    kinds: Sequence[str] = ("gaussian",),
) -> Shared | None:
    """From what each says of every row without it; nothing if the terms do as well by themselves.

    `kinds` are the tails that even noise may have.
    """
    if likelihood.normal_variance is not None:
        found = blend(terms, networks, y, weight, n_draws=n_draws)
        if found is None:
            return None
        new = noise(found.said, y, weight, kinds=kinds)
        if new.normal_variance is not None:
            # targets without a remainder keep what they had
            old, own = (np.sqrt(np.asarray(each.normal_variance)) for each in (likelihood, new))
            new = Gaussian(np.where(found.share > 0.0, own, old))
        return Shared(found, new)
    if isinstance(likelihood, HeteroscedasticGaussian):
        found = _at_known_scales(terms, networks, likelihood, y, weight, n_draws)
    else:
        found = _by_density(terms, networks, likelihood, y, weight, n_draws)
    return None if found is None else Shared(found, _renewed(likelihood, found.said, y, weight))


def _at_known_scales(
    terms: Moments, networks: LeftOut, likelihood: HeteroscedasticGaussian, y, weight, n_draws: int
) -> Blend | None:
    """Means, by rows in units of their noise; what terms say of its scale stays."""
    mean, variance = terms
    sd = np.exp(likelihood.split(mean, IN_NUMPY)[1]) * np.ones_like(y)
    sd = sd * np.sqrt(np.average(sd**-2.0, axis=0, weights=weight))  # on average precisions are 1, and units those of y
    own = mean[:, ::2], variance[:, ::2]
    said = LeftOut(networks.mean / sd, networks.variance / sd**2, networks.fewer / sd**2)
    found = blend((own[0] / sd, own[1] / sd**2), said, y / sd, weight, n_draws=n_draws)
    if found is None:
        return None
    # what is taken off the error of y itself
    away, apart = y - own[0], found.share * (networks.mean - own[0])
    gain = np.average(away**2 - (away - apart) ** 2, axis=0, weights=weight)
    usual = np.sqrt(np.mean(found.sizes**2, axis=0))
    sizes = found.sizes * np.sqrt(np.maximum(gain, 0.0)) / np.maximum(usual, 1e-300)
    # the scale is a latent function too, of which networks say nothing
    whole = [np.zeros((*part.shape[:-1], 2 * part.shape[-1])) for part in (found.share, sizes, found.probability)]
    for part, new in zip(whole, (found.share, sizes, found.probability), strict=True):
        part[..., ::2] = new
    moments = [mean.copy(), variance.copy(), np.zeros_like(mean)]
    for part, new, unit in zip(moments, found.said, (sd, sd**2, sd**2), strict=True):
        part[:, ::2] = new * unit
    return Blend(whole[0], LeftOut(*moments), whole[1], whole[2])


def _by_density(terms: Moments, networks: LeftOut, likelihood: Likelihood, y, weight, n_draws: int) -> Blend | None:
    """The share that makes rows left out likeliest; latents of one target, and all logits of classes, have one."""
    (mean, variance), apart = terms, networks.mean - terms[0]
    some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    own = weight[some]

    def said(share: Float[np.ndarray, " latent"] | float, rows: Any = slice(None)) -> LeftOut:
        fewer = share**2 * networks.fewer[rows]
        doubt = (1.0 - share) ** 2 * variance[rows] + share**2 * networks.variance[rows]
        return LeftOut(mean[rows] + share * apart[rows], doubt, fewer)

    def density(share: float) -> Float[np.ndarray, "m k"]:
        part = said(share, some)
        return Predictive(likelihood, part.mean, part.variance + part.fewer).log_prob(y[some])

    each = np.stack([density(float(share)) for share in SHARES])
    best = np.argmax(np.einsum("snk,n->sk", each, own), axis=0)
    gains = np.stack([each[b, :, k] - each[0, :, k] for k, b in enumerate(best)], axis=1)
    gain = np.average(gains, axis=0, weights=own)
    error = np.sqrt(np.average((gains - gain) ** 2, axis=0, weights=own) / own.sum())
    # a share of the log loss; of numbers, what that share of the error is worth where it is normal
    loss = -np.average(each[0], axis=0, weights=own) if likelihood.has_classes else np.full(len(gain), 0.5)
    clear = (gain > LEAST_SHARE * loss) & (gain > LEAST_Z * error)
    if not clear.any():
        return None
    n_each = mean.shape[1] // len(gain)
    share = np.repeat(np.where(clear, SHARES[best], 0.0), n_each)
    found = said(share)
    drawn = gain + error * np.random.default_rng(0).standard_normal((n_draws, len(gain)))
    drawn = np.repeat(np.where(clear, np.maximum(drawn, 0.0), 0.0), n_each, axis=1)
    # δ that is added to f, if it is there, takes ½ Σ_k w_k E δ_k² off the loss, with w the curvature
    squares = np.average((apart - np.average(apart, axis=0, weights=weight))[some] ** 2, axis=0, weights=own)
    weighed = _curvature(likelihood, found.mean[some], y[some], own) * squares
    whole = np.repeat(weighed.reshape(-1, n_each).sum(axis=1), n_each)
    sizes = np.sqrt(2.0 * drawn * squares / np.maximum(whole, 1e-300))
    sure = np.where(clear, expit(gain * weight.sum()), 0.0)
    return Blend(share, found, sizes, np.repeat(sure, n_each))


def _curvature(likelihood: Likelihood, f: Float[np.ndarray, "m latent"], y, weight) -> Float[np.ndarray, " latent"]:
    """−E ∂² log p/∂f_k² of every latent function, by differences."""
    steps = STEP * np.eye(f.shape[1])[:, None]
    above, at, below = (likelihood.numpy_log_prob(f + step, y).sum(axis=-1) for step in (steps, 0.0 * steps, -steps))
    return np.maximum(np.average((2.0 * at - above - below) / STEP**2, axis=1, weights=weight), 0.0)


def _renewed(likelihood: Likelihood, said: LeftOut, y, weight) -> Likelihood:
    """The likelihood with the noise that makes rows left out likeliest, with the remainder."""
    if isinstance(likelihood, StudentT):
        return noise(said, y, weight, kinds=("student_t",))
    if isinstance(likelihood, HeteroscedasticGaussian):
        usual = np.exp(np.asarray(likelihood.log_scale, np.float64))
    elif isinstance(likelihood, NegativeBinomial):
        usual = np.asarray(likelihood.dispersion, np.float64)
    else:  # nothing of the noise is learned
        return likelihood
    some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    moments = said.mean[some], (said.variance + said.fewer)[some]
    usual = np.broadcast_to(usual, y.shape[1:])
    each = [Predictive(type(likelihood)(factor * usual), *moments).log_prob(y[some]) for factor in FACTORS]
    best = np.argmax(np.einsum("snk,n->sk", np.stack(each), weight[some]), axis=0)
    return type(likelihood)(FACTORS[best] * usual)
