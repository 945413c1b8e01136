"""The predictive distribution of y at rows, from the Gaussian posterior of f there and the likelihood.

Exact where the noise is Gaussian; else over equally likely values of the latent functions: 100 of one, 128 of several.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp, ndtri

from vertebra.likelihoods.densities import IN_NUMPY, normal_log_prob, softmax_in_place
from vertebra.likelihoods.quadrature import normal_points
from vertebra.likelihoods.quantiles import quantile

if TYPE_CHECKING:
    from vertebra.likelihoods.likelihood import Likelihood
else:
    Likelihood = object  # it comes with JAX

# Points of one latent function, and of several together: a power of two, for Sobol' points.
N_POINTS, N_JOINT = 100, 128
# Rows worked on at once: with 128 points of three latents, 6 MB of doubles.
CHUNK = 2048


class Predictive(NamedTuple):
    """p(y | data) of each row, on the model's scale."""

    likelihood: Likelihood
    f_mean: Float[np.ndarray, "n latent"]
    f_variance: Float[np.ndarray, "n latent"]

    def mean(self) -> Float[np.ndarray, "n k"]:
        """E y; of classes their probabilities."""
        if self.likelihood.has_classes:
            return self.probabilities()
        exact = self.likelihood.exact_mean(self.f_mean, self.f_variance)
        return self._over_f(lambda f: self.likelihood.numpy_mean(f).mean(axis=0)) if exact is None else exact

    def epistemic(self) -> Float[np.ndarray, "n k"]:
        """Var E[y | f]: what more data would take away."""
        if self.likelihood.is_location:
            return self.f_variance[:, :: self.likelihood.latent_per_target]
        return self._over_f(lambda f: self.likelihood.numpy_mean(f).var(axis=0))

    def aleatoric(self) -> Float[np.ndarray, "n k"]:
        """E Var[y | f]: the noise."""
        if (noise := self.likelihood.normal_variance) is not None:
            return np.broadcast_to(noise, self.f_mean.shape)
        return self._over_f(lambda f: self.likelihood.numpy_variance(f).mean(axis=0))

    def away(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """How far y is from its mean, in its own sds."""
        return (y - self.mean()) / np.sqrt(self.epistemic() + self.aleatoric())

    def _normal_sd(self) -> Float[np.ndarray, "n k"] | None:
        """The sd of y where it is normal."""
        noise = self.likelihood.normal_variance
        return None if noise is None else np.sqrt(self.f_variance + noise)

    def quantiles(self, q: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "n levels k"]:
        if (sd := self._normal_sd()) is not None:
            return self.f_mean[:, None] + sd[:, None] * ndtri(q)[None, :, None]
        return np.concatenate([part._inverted(q) for part in self._chunks()])

    def _inverted(self, q):
        """Where the mean over f of the distribution functions crosses each level."""
        f, likelihood = self.points(), self.likelihood
        moments = self.mean(), np.sqrt(self.epistemic() + self.aleatoric())
        rank = lambda y: likelihood.numpy_cdf(f, y).mean(axis=0)  # noqa: E731
        is_discrete = likelihood.is_discrete
        return np.stack([quantile(rank, level, *moments, IN_NUMPY, is_discrete=is_discrete) for level in q], axis=1)

    def log_prob(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """log p(y) of each row and target."""
        if (sd := self._normal_sd()) is not None:
            return normal_log_prob((y - self.f_mean) / sd, np.log(sd), IN_NUMPY)
        each = []
        for part, own in zip(self._chunks(), _chunked(y), strict=True):
            f = part.points()
            each.append(logsumexp(self.likelihood.numpy_log_prob(f, own), axis=0) - np.log(len(f)))
        return np.concatenate(each)

    def inside(self, y: Float[np.ndarray, "n k"], levels: Sequence[float]) -> Float[np.ndarray, "levels n k"]:
        """Whether y lies in the central interval of each level; of a count, the share of its step that does.

        Means over rows are the levels where the model is right.
        """
        below, upto = self._ranks(y)
        half = 0.5 * np.asarray(levels)[:, None, None]
        covered = np.minimum(upto, 0.5 + half) - np.maximum(below, 0.5 - half)
        return np.where(upto > below, np.clip(covered / np.maximum(upto - below, 1e-300), 0.0, 1.0), covered >= 0.0)

    def _ranks(self, y):
        """P(Y < y) and P(Y ≤ y) of each row and target."""
        if (sd := self._normal_sd()) is not None:
            rank = IN_NUMPY.ndtr((y - self.f_mean) / sd)
            return rank, rank
        below, upto = [], []
        for part, own in zip(self._chunks(), _chunked(y), strict=True):
            f = part.points()
            upto.append(self.likelihood.numpy_cdf(f, own).mean(axis=0))
            if self.likelihood.is_discrete:
                below.append(self.likelihood.numpy_cdf(f, own - 1.0).mean(axis=0))
        return np.concatenate(below or upto), np.concatenate(upto)

    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        """P(class) of each row, the uncertainty of f averaged over."""
        # as many rows as three latents' points fit into the cache with
        size = max(3 * CHUNK // max(self.f_mean.shape[1], 3), 1)
        p = np.concatenate([part._shares() for part in self._chunks(size)])
        p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
        return p / p.sum(axis=1, keepdims=True)

    def _shares(self) -> Float[np.ndarray, "n latent"]:
        """Of every latent function, the mean over f of the sigmoid, or of softmax."""
        f = self.points()
        return expit(f).mean(axis=0) if f.shape[2] == 1 else softmax_in_place(f).mean(axis=0)

    def points(self, rows: slice = slice(None)) -> Float[np.ndarray, "points n latent"]:
        """Equally likely values of f, latent functions independent."""
        n_latent = self.f_mean.shape[1]
        standard = normal_points(N_POINTS if n_latent == 1 else N_JOINT, n_latent)
        f = self.f_mean[rows][None] + np.sqrt(self.f_variance[rows])[None] * standard[:, None, :]
        return self.likelihood.held(f)

    def _chunks(self, size: int = CHUNK) -> Iterator["Predictive"]:
        for mean, variance in zip(_chunked(self.f_mean, size), _chunked(self.f_variance, size), strict=True):
            yield Predictive(self.likelihood, mean, variance)

    def _over_f(self, ask: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, "n k"]:
        """What a likelihood says over the values of f, some rows at a time."""
        return np.concatenate([ask(part.points()) for part in self._chunks()])


def _chunked(rows: np.ndarray, size: int = CHUNK) -> Iterator[np.ndarray]:
    """So many rows at a time; of none one empty piece."""
    return (rows[start : start + size] for start in range(0, max(len(rows), 1), size))
