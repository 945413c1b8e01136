"""Working responses: p(y | f) under the current q(f) as Gaussian rows, for iterated reweighting.

Each latent function has rows of its own, z with precision weights w. With the expected score and information under
q(f_i) = N(m_i, v_i), w = E −∂² log p and w (z − m) = E ∂ log p, a weighted least-squares fit of z is a natural-gradient
step on the ELBO, and where it comes to rest q is the best Gaussian (Opper & Archambeau). Unlike Laplace's
approximation, which takes them at the mode, it holds up where classes can be told apart for certain. Latents of one
target are taken as independent.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import expit, gammaln, log_expit, log_softmax, softmax

from vertebra.likelihoods.densities import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
    normal_points,
)

# The furthest that a row may ask its latent function to move at once: one with p ≈ 0 and y = 1 would ask for anything.
STEP = 8.0
# Points for means over f: of one latent function by Gauss and Hermite, of several by pairs of levels.
N_NODES, N_POINTS = 20, 32
# Weights below this share of their largest value tell nothing but rounding.
LEAST_WEIGHT = 1e-6
# A row that alone decides f at its place tells nothing about how well it would be predicted.
MOST_LEVERAGE = 0.98
# The tails of Student's noise that are tried.
DEGREES = np.array([2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0])


class Response(NamedTuple):
    """Rows of one latent function; without a noise variance this is learned."""

    z: Float[np.ndarray, " n"]
    w: Float[np.ndarray, " n"]
    noise_variance: float | None


@functools.cache
def _nodes(n_latent: int):
    """Points and weights for means over N(0, I): Gauss–Hermite, or so many equally likely points."""
    if n_latent == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
        return nodes[:, None], weights / weights.sum()
    return normal_points(N_POINTS, n_latent), np.full(N_POINTS, 1.0 / N_POINTS)


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


@runtime_checkable
class Working(Protocol):
    """A likelihood as the loop sees it. `step`: the share of the way to a new response that a round goes at first."""

    step: float

    @property
    def start(self) -> Float[np.ndarray, "n latent"]: ...

    def responses(
        self, f: Float[np.ndarray, "n latent"], variance: Float[np.ndarray, "n latent"]
    ) -> list[Response]: ...

    def of(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> "Working":
        """The same of other rows, with what was learned from these."""
        ...

    def likelihood(self, noise: list[float]) -> Likelihood: ...


class Plain:
    """y = f + ε: the response is y itself, once and for all."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight

    @property
    def start(self):
        return np.zeros_like(self.y)

    def responses(self, f, variance):
        return [Response(target, self.weight, None) for target in self.y.T]

    def of(self, y, weight):
        return Plain(y, weight)

    def likelihood(self, noise):
        return Gaussian(np.sqrt(np.maximum(noise, 1e-12)))


class Classes:
    """Two classes: one logit of the second. More: a logit each."""

    def __init__(self, codes: np.ndarray, n_classes: int, weight: Float[np.ndarray, " n"]):
        # all logits move at once, each by its own curvature p(1 − p), and the joint one is up to twice as large
        self.step = 1.0 if n_classes == 2 else 0.5
        self.n_classes, self.weight = n_classes, weight
        self.hits = (codes[:, None] == (np.arange(n_classes) if n_classes > 2 else 1)).astype(float)

    @property
    def start(self):
        share = np.clip(self.weight @ self.hits / self.weight.sum(), 1e-3, 1.0 - 1e-3)
        return np.tile(np.log(share) - (np.log1p(-share) if self.n_classes == 2 else 0.0), (len(self.hits), 1))

    def responses(self, f, variance):
        p, information = 0.0, 0.0
        for node, share in zip(*_nodes(f.shape[1]), strict=True):
            at = f + np.sqrt(variance) * node
            each = expit(at) if self.n_classes == 2 else softmax(at, axis=1)
            p, information = p + share * each, information + share * each * (1.0 - each)
        z, w = bounded(f, self.hits - p, information)
        return [Response(z[:, k], w[:, k] * self.weight, 1.0) for k in range(z.shape[1])]

    def of(self, y, weight):
        return Classes(y[:, 0].astype(int), self.n_classes, weight)

    def expected_log_prob(self, f, variance) -> float:
        """Σ E log p(y | f) over the rows, under q(f)."""
        total = 0.0
        for node, share in zip(*_nodes(f.shape[1]), strict=True):
            at = f + np.sqrt(variance) * node
            log_p = (
                log_expit(np.where(self.hits > 0, at, -at))
                if self.n_classes == 2
                else log_softmax(at, axis=1) * self.hits
            )
            total += share * float(self.weight @ log_p.sum(axis=1))
        return total

    def likelihood(self, noise):
        return Bernoulli() if self.n_classes == 2 else Categorical(self.n_classes)


class Counts:
    """y ~ Poisson(e^f)."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight

    @property
    def start(self):
        mean = self.weight @ self.y / self.weight.sum()
        return np.tile(np.log(np.maximum(mean, 1e-3)), (len(self.y), 1))

    def responses(self, f, variance):
        # E e^f = e^{m + v/2}
        mu = np.exp(np.clip(f + 0.5 * np.minimum(variance, 10.0), -20.0, 20.0))
        z, w = bounded(f, self.y - mu, mu)
        return [Response(z[:, k], w[:, k] * self.weight, 1.0) for k in range(z.shape[1])]

    def expected_log_prob(self, f, variance):
        mu = np.exp(np.clip(f + 0.5 * np.minimum(variance, 10.0), -20.0, 20.0))
        return float(np.sum(self.weight @ (self.y * f - mu - gammaln(self.y + 1.0))))

    def of(self, y, weight):
        return Counts(y, weight)

    def likelihood(self, noise):
        return Poisson()


class HeavyTails:
    """y = f + s·t: a row's weight falls with its residual (EM), and s and the degrees follow the residuals."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight
        self.degrees, self.is_settled = 5.0, False
        away = np.abs(y - np.median(y, axis=0))
        self.scale = np.maximum(np.median(away, axis=0) * 1.2, 1e-6)

    @property
    def start(self):
        return np.tile(np.median(self.y, axis=0), (len(self.y), 1))

    def responses(self, f, variance):
        square = (self.y - f) ** 2 + variance
        for _ in range(0 if self.is_settled else 3):
            each = (self.degrees + 1.0) / (self.degrees + square / self.scale**2)
            self.scale = np.sqrt(self.weight @ (each * square) / self.weight.sum())
            self.scale = np.maximum(self.scale, 1e-6)
        if not self.is_settled:
            self.degrees = float(DEGREES[np.argmax([self._log_prob(square, nu) for nu in DEGREES])])
        each = (self.degrees + 1.0) / (self.degrees + square / self.scale**2)
        return [Response(y, self.weight * w, float(s**2)) for y, w, s in zip(self.y.T, each.T, self.scale, strict=True)]

    def expected_log_prob(self, f, variance):
        return self._log_prob((self.y - f) ** 2 + variance, self.degrees)

    def _log_prob(self, square, nu):
        """Σ log p of rows so far off; of squares in the mean, Jensen's bound of it, which EM raises."""
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu)
        each = constant - np.log(self.scale) - 0.5 * (nu + 1.0) * np.log1p(square / self.scale**2 / nu)
        return float(np.sum(self.weight @ each))

    def of(self, y, weight):
        other = HeavyTails(y, weight)
        other.scale, other.degrees, other.is_settled = self.scale, self.degrees, True
        return other

    def likelihood(self, noise):
        return StudentT(self.scale, self.degrees)


class UnevenNoise:
    """y = f₁ + ε with log-variance f₂: the squares of the residuals are the second function's response."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight
        self.scale = np.maximum(np.sqrt(weight @ (y - weight @ y / weight.sum()) ** 2 / weight.sum()), 1e-6)

    @property
    def start(self):
        start = np.zeros((len(self.y), 2 * self.y.shape[1]))
        start[:, ::2] = self.weight @ self.y / self.weight.sum()
        return start

    def _rows(self, f, variance):
        """Of every target: y, the second function, the noise's variance, and the square of what is left."""
        for k, (y, scale) in enumerate(zip(self.y.T, self.scale, strict=True)):
            first, second = f[:, 2 * k], f[:, 2 * k + 1]
            noise = scale**2 * np.exp(4.0 * np.tanh(0.25 * second))
            yield y, second, noise, (y - first) ** 2 + variance[:, 2 * k]

    def responses(self, f, variance):
        result = []
        for y, second, noise, square in self._rows(f, variance):
            slope = np.maximum(1.0 - np.tanh(0.25 * second) ** 2, 0.1)
            z, w = bounded(second, 0.5 * slope * (square / noise - 1.0), 0.5 * slope**2)
            result.append(Response(y, self.weight / noise, 1.0))
            result.append(Response(z, w * self.weight, 1.0))
        return result

    def expected_log_prob(self, f, variance):
        total = 0.0
        for node, share in zip(*_nodes(1), strict=True):
            at = f.copy()
            at[:, 1::2] += np.sqrt(variance[:, 1::2]) * node
            total -= 0.5 * share * sum(self.weight @ (np.log(n) + s / n) for _, _, n, s in self._rows(at, variance))
        return float(total)

    def of(self, y, weight):
        other = UnevenNoise(y, weight)
        other.scale = self.scale
        return other

    def likelihood(self, noise):
        return HeteroscedasticGaussian(self.scale)
