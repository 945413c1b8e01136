"""Working responses of iterated reweighting: near f, every kind of noise gives Gaussian rows for those of a table.

What is not Gaussian is fitted by rounds of weighted least squares; `gaussian_rows` says why these come to rest at the
best Gaussian q. Noise that has a scale or tails of its own learns them on the way.
"""

from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import expit

from vertebra.likelihoods.continuous import Gaussian, HeteroscedasticGaussian, StudentT
from vertebra.likelihoods.densities import (
    IN_NUMPY,
    bernoulli_log_prob,
    categorical_log_prob,
    log_scale_link,
    negative_binomial_log_prob,
    poisson_log_prob,
    softmax_in_place,
    student_log_prob,
)
from vertebra.likelihoods.discrete import Bernoulli, Categorical, NegativeBinomial, Poisson
from vertebra.likelihoods.gaussian_rows import Response, bounded
from vertebra.likelihoods.likelihood import Likelihood
from vertebra.likelihoods.quadrature import N_NODES, gauss_hermite, normal_points

# Equally likely points for means over several latent functions: a power of two, and few, as every round goes over all.
N_POINTS = 32
# Shares of classes and mean counts at the start are at least this, so that their links are finite.
LEAST_SHARE = 1e-3
# Scales of noise are at least this, on a scale where targets have sd 1.
LEAST_SCALE = 1e-6
# The tails of Student's noise that are tried: from hardly a variance to nearly normal, and the one to start from.
DEGREES = np.array([2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0])
FIRST_DEGREES = 5.0
# Log rates of counts stay within this, and their variances: e^20 is more than is counted, and a round from further away
# would not come back.
MOST_LOG_RATE, MOST_VARIANCE = 20.0, 10.0
# Dispersions of counts lie between these: at the least counts of a thousand vary by a tenth more than Poisson's. They
# are found to a hundredth, of which no interval knows.
DISPERSIONS, CLOSE = (1e-4, 1e2), 0.01
# By how much the log density of all rows must be higher with a dispersion than without for counts that may be
# Poisson's: without one it is in 1 of 200 tables, half the chance of χ²₁ beyond twice this.
LEAST_GAIN = 3.3
# The slope of the link of a log variance is at least this, so that rows at its ends still move it.
LEAST_SLOPE = 0.1


@cache
def _rule(n_latent: int) -> tuple[Float[np.ndarray, "m latent"], Float[np.ndarray, " m"]]:
    """Points and shares for means over N(0, I): Gauss–Hermite of one latent, else equally likely points."""
    if n_latent == 1:
        nodes, shares = gauss_hermite(N_NODES[1])
        return nodes[:, None], shares
    return normal_points(N_POINTS, n_latent), np.full(N_POINTS, 1.0 / N_POINTS)


@runtime_checkable
class Working(Protocol):
    """A likelihood as the loop sees it. `step`: the share of the way to a new response that a round goes at first;
    `weight`: how many rows each row stands for."""

    step: float
    weight: Float[np.ndarray, " n"]

    @property
    def start(self) -> Float[np.ndarray, "n latent"]: ...

    def responses(
        self, f: Float[np.ndarray, "n latent"], variance: Float[np.ndarray, "n latent"]
    ) -> list[Response]: ...

    def of(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> "Working":
        """The same of other rows, with what was learned from these."""
        ...

    @property
    def targets(self) -> Float[np.ndarray, "n k"]:
        """What the rows are of, as `of` takes it."""
        ...

    def some(self, rows: Int[np.ndarray, " m"]) -> "Working":
        """The same of some of these rows, with nothing learned yet."""
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

    @property
    def targets(self):
        return self.y

    def some(self, rows):
        return Plain(self.y[rows], self.weight[rows])

    def likelihood(self, noise):
        return Gaussian(np.sqrt(np.maximum(noise, 1e-12)))


class Classes:
    """Two classes: one logit of the second. More: a logit each."""

    def __init__(self, codes: np.ndarray, n_classes: int, weight: Float[np.ndarray, " n"]):
        # all logits move at once, each by its own curvature p(1 − p), and the joint one is up to twice as large
        self.step = 1.0 if n_classes == 2 else 0.5
        self.n_classes, self.weight = n_classes, weight
        self.codes = codes[:, None].astype(int)
        self.hits = (codes[:, None] == (np.arange(n_classes) if n_classes > 2 else 1)).astype(float)

    @property
    def start(self):
        share = np.clip(self.weight @ self.hits / self.weight.sum(), LEAST_SHARE, 1.0 - LEAST_SHARE)
        return np.tile(np.log(share) - (np.log1p(-share) if self.n_classes == 2 else 0.0), (len(self.hits), 1))

    def responses(self, f, variance):
        p, information = 0.0, 0.0
        for node, share in zip(*_rule(f.shape[1]), strict=True):
            at = f + np.sqrt(variance) * node
            each = expit(at) if self.n_classes == 2 else softmax_in_place(at)
            p, information = p + share * each, information + share * each * (1.0 - each)
        z, w = bounded(f, self.hits - p, information)
        return [Response(z[:, k], w[:, k] * self.weight, 1.0) for k in range(z.shape[1])]

    def of(self, y, weight):
        return Classes(y[:, 0].astype(int), self.n_classes, weight)

    @property
    def targets(self):
        return self.codes.astype(float)

    def some(self, rows):
        return Classes(self.codes[rows, 0], self.n_classes, self.weight[rows])

    def expected_log_prob(self, f, variance) -> float:
        """Σ E log p(y | f) over the rows, under q(f)."""
        total = 0.0
        for node, share in zip(*_rule(f.shape[1]), strict=True):
            at = f + np.sqrt(variance) * node
            log_prob = bernoulli_log_prob if self.n_classes == 2 else categorical_log_prob
            total += share * float(self.weight @ log_prob(at, self.codes, IN_NUMPY)[:, 0])
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
        return np.tile(np.log(np.maximum(mean, LEAST_SHARE)), (len(self.y), 1))

    def responses(self, f, variance):
        rate = self._rate(f, variance)
        z, w = bounded(f, self.y - rate, rate)
        return [Response(z[:, k], w[:, k] * self.weight, 1.0) for k in range(z.shape[1])]

    def expected_log_prob(self, f, variance):
        return float(np.sum(self.weight @ poisson_log_prob(self.y, f, self._rate(f, variance), IN_NUMPY)))

    @staticmethod
    def _rate(f, variance):
        # E e^f = e^{m + v/2}
        return np.exp(np.clip(f + 0.5 * np.minimum(variance, MOST_VARIANCE), -MOST_LOG_RATE, MOST_LOG_RATE))

    def of(self, y, weight):
        return Counts(y, weight)

    @property
    def targets(self):
        return self.y

    def some(self, rows):
        return Counts(self.y[rows], self.weight[rows])

    def likelihood(self, noise):
        return Poisson()


class MoreVaried:
    """Counts of mean e^f and variance e^f + α e^{2f}; the dispersion α follows the rows, by the mean of log p (EM)."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"], *, may_be_poisson: bool = False):
        self.y, self.weight, self.may_be_poisson = y, weight, may_be_poisson
        self.dispersion, self.is_settled = np.asarray(NegativeBinomial().init(y).dispersion, np.float64), False
        self.gain = np.full(y.shape[1], np.inf)  # in log density, over Poisson's

    @property
    def start(self):
        return Counts(self.y, self.weight).start

    def responses(self, f, variance):
        f, variance = np.clip(f, -MOST_LOG_RATE, MOST_LOG_RATE), np.minimum(variance, MOST_VARIANCE)
        if not self.is_settled:
            self.dispersion = np.array([self._likeliest(f[:, [k]], variance[:, [k]], k) for k in range(f.shape[1])])
            each = self._log_prob(f, variance, self.dispersion)
            without = self.weight @ poisson_log_prob(self.y, f, np.exp(f + 0.5 * variance), IN_NUMPY)
            self.gain = each - without
        score, information = 0.0, 0.0
        for node, share in zip(*_rule(1), strict=True):
            rate = np.exp(f + np.sqrt(variance) * node)
            spread = share / (1.0 + self.dispersion * rate)
            # Fisher's information: what is observed goes with y, and would make weights of noise
            score, information = score + spread * (self.y - rate), information + spread * rate
        z, w = bounded(f, score, information)
        return [Response(z[:, k], w[:, k] * self.weight, 1.0) for k in range(z.shape[1])]

    def expected_log_prob(self, f, variance):
        f, variance = np.clip(f, -MOST_LOG_RATE, MOST_LOG_RATE), np.minimum(variance, MOST_VARIANCE)
        return float(np.sum(self._log_prob(f, variance, self.dispersion)))

    def _log_prob(self, f, variance, dispersion):
        """Σ E log p of every target, under q(f)."""
        total = np.zeros(f.shape[1])
        for node, share in zip(*_rule(1), strict=True):
            at = f + np.sqrt(variance) * node
            total += share * (self.weight @ negative_binomial_log_prob(self.y, at, dispersion, IN_NUMPY))
        return total

    def _likeliest(self, f, variance, k: int) -> float:
        """The dispersion of one target whose mean log density is highest."""
        own = MoreVaried(self.y[:, [k]], self.weight)

        def loss(log_dispersion: float) -> float:
            return -float(own._log_prob(f, variance, np.exp(log_dispersion))[0])

        # bounded search compiles nothing and knows no slope: about 20 passes over the rows
        found = minimize_scalar(loss, bounds=np.log(DISPERSIONS), method="bounded", options={"xatol": CLOSE})
        return float(np.exp(found.x))  # type: ignore[attr-defined]

    def of(self, y, weight):
        other = MoreVaried(y, weight, may_be_poisson=self.may_be_poisson)
        other.dispersion, other.gain, other.is_settled = self.dispersion, self.gain, True
        return other

    @property
    def targets(self):
        return self.y

    def some(self, rows):
        return MoreVaried(self.y[rows], self.weight[rows], may_be_poisson=self.may_be_poisson)

    def likelihood(self, noise):
        is_poisson = self.may_be_poisson and np.all(self.gain < LEAST_GAIN)
        return Poisson() if is_poisson else NegativeBinomial(self.dispersion)


class HeavyTails:
    """y = f + s·t: what a row asks for falls with its residual, and s and the degrees follow the residuals (EM)."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight
        self.degrees, self.is_settled = FIRST_DEGREES, False
        away = np.abs(y - np.median(y, axis=0))
        # 1/0.73 if f were known, 0.73 the median of |t| at 5 degrees of freedom; 1.2 is a round number near it
        self.scale = np.maximum(np.median(away, axis=0) * 1.2, LEAST_SCALE)

    @property
    def start(self):
        return np.tile(np.median(self.y, axis=0), (len(self.y), 1))

    def responses(self, f, variance):
        square = (self.y - f) ** 2 + variance
        for _ in range(0 if self.is_settled else 3):
            each = (self.degrees + 1.0) / (self.degrees + square / self.scale**2)
            scale = np.sqrt(self.weight @ (each * square) / self.weight.sum())
            self.scale = np.maximum(scale, LEAST_SCALE)
        if not self.is_settled:
            self.degrees = float(DEGREES[np.argmax([self._log_prob(square, nu) for nu in DEGREES])])
        # Fisher scoring: EM's weights come to rest at the same f, and say that it is known better than it is
        information = (self.degrees + 1.0) / (self.degrees + 3.0)
        step = (self.degrees + 3.0) * (self.y - f) / (self.degrees + square / self.scale**2)
        return [
            Response(z, information * self.weight, float(s**2)) for z, s in zip((f + step).T, self.scale, strict=True)
        ]

    def expected_log_prob(self, f, variance):
        return self._log_prob((self.y - f) ** 2 + variance, self.degrees)

    def _log_prob(self, square, nu):
        """Σ log p of rows so far off; of squares in the mean, Jensen's bound of it, which EM raises."""
        each = student_log_prob(square / self.scale**2, np.log(self.scale), nu, IN_NUMPY)
        return float(np.sum(self.weight @ each))

    def of(self, y, weight):
        other = HeavyTails(y, weight)
        other.scale, other.degrees, other.is_settled = self.scale, self.degrees, True
        return other

    @property
    def targets(self):
        return self.y

    def some(self, rows):
        return HeavyTails(self.y[rows], self.weight[rows])

    def likelihood(self, noise):
        return StudentT(self.scale, self.degrees)


class UnevenNoise:
    """y = f₁ + ε with log-variance f₂: the squares of the residuals are the second function's response."""

    step = 1.0

    def __init__(self, y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]):
        self.y, self.weight = y, weight
        self.scale = np.maximum(np.sqrt(weight @ (y - weight @ y / weight.sum()) ** 2 / weight.sum()), LEAST_SCALE)

    @property
    def start(self):
        start = np.zeros((len(self.y), 2 * self.y.shape[1]))
        start[:, ::2] = self.weight @ self.y / self.weight.sum()
        return start

    def _rows(self, f, variance):
        """Of every target: y, the second function, the noise's variance, and the square of what is left."""
        for k, (y, scale) in enumerate(zip(self.y.T, self.scale, strict=True)):
            first, second = f[:, 2 * k], f[:, 2 * k + 1]
            noise = scale**2 * np.exp(2.0 * log_scale_link(second, IN_NUMPY))
            yield y, second, noise, (y - first) ** 2 + variance[:, 2 * k]

    def responses(self, f, variance):
        result = []
        for y, second, noise, square in self._rows(f, variance):
            # of 4 tanh(f/4): 1 − tanh²(f/4)
            slope = np.maximum(1.0 - (0.5 * log_scale_link(second, IN_NUMPY)) ** 2, LEAST_SLOPE)
            z, w = bounded(second, 0.5 * slope * (square / noise - 1.0), 0.5 * slope**2)
            result.append(Response(y, self.weight / noise, 1.0))
            result.append(Response(z, w * self.weight, 1.0))
        return result

    def expected_log_prob(self, f, variance):
        total = 0.0
        for node, share in zip(*_rule(1), strict=True):
            at = f.copy()
            at[:, 1::2] += np.sqrt(variance[:, 1::2]) * node
            total -= 0.5 * share * sum(self.weight @ (np.log(n) + s / n) for _, _, n, s in self._rows(at, variance))
        return float(total)

    def of(self, y, weight):
        other = UnevenNoise(y, weight)
        other.scale = self.scale
        return other

    @property
    def targets(self):
        return self.y

    def some(self, rows):
        return UnevenNoise(self.y[rows], self.weight[rows])

    def likelihood(self, noise):
        return HeteroscedasticGaussian(self.scale)
