"""Empirical Bayes for a sum of terms: f = c + Σ_T Σ_k v_{T,k} Π_{i∈T} φ_{k_i}(x_i), all in closed form.

The prior of a coefficient is N(0, τ_T² Π_{i∈T} d(α_i, k_i − 1)): one size τ per term, one smoothness α per input. The
decay d(α, k) = (1 − ε) exp(−αk) + ε exp(−αk/2) is that of a smooth function, with a share ε of a rougher one: without
it the bands of what evidence takes for smooth are too narrow. Levels of a category are exchangeable, rough functions
Brownian motion: their variances are fixed but for the size. As the basis is fixed, ΦᵀΦ is computed once, and the
evidence log N(y; 0, σ²I + ΦSΦᵀ) with its gradient in τ, α and σ is algebra of the size of the basis: no rows, no
minibatches. What the data leave open about τ, α, σ is averaged over.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine.later import later
from vertebra.terms.ascent import Near, highest
from vertebra.terms.columns import columns_of_each
from vertebra.terms.families import MOST_LOCAL, Family
from vertebra.terms.functions import Families, System, Values, products, usual_families
from vertebra.terms.term import Term

lapack = later("scipy.linalg.lapack")

# The highest total degree of a term by its order, the most columns of one term, and of all before these are lowered.
TOTAL_DEGREE = {1: 12, 2: 9, 3: 7}
HIGHER_TOTAL = 6
TERM_COLUMNS = 150
MAX_COLUMNS = 900
# The columns of a term of rough functions, by order: of one input all there are.
ROUGH_COLUMNS = {1: MOST_LOCAL, 2: 30, 3: 30}
# Hyper-priors on the scale of y of unit variance: log τ² ~ N(log 0.1, 4²), α ~ N(2, 2²). Wide: evidence decides.
LOG_VARIANCE = (math.log(0.1), 4.0)
# On a link scale, the noise known, sizes are about 1 whatever the data, and functions nearer to lines: where classes
# can be told apart for certain, the evidence of ever larger and rougher ones does not fall.
LINK_LOG_VARIANCE = {1: (math.log(0.3), 1.5), 2: (math.log(0.03), 2.0)}
LINK_SMOOTHNESS = (4.0, 2.0)
SMOOTHNESS = (2.0, 2.0)
# The largest log τ², beside the variance of y, of main effects and of the others. Chosen on splits 0 and 2 of diamonds,
# where x and y are all but copies: without, rows off their line are missed by 39,000.
LARGEST_SIZE = {1: 0.5, 2: -1.5}
# The same on a link scale: log odds with an sd of 7 and of 3 are near certainty. Without, a pair of inputs that tell a
# few rows of adult apart for certain had effects of ±4,000.
FARTHEST_SIZE = {1: 4.0, 2: 2.0}
# Rows from which the gain in evidence at which to stop no longer grows with them.
MANY_ROWS = 3000.0
# ε and the rougher share's decay
ROUGH_SHARE, ROUGH_DECAY = 0.05, 0.4


def decay(alpha: Float[np.ndarray, " i"] | float, steps: Float[np.ndarray, "m i"]) -> Float[np.ndarray, "m i"]:
    """log d(α, k) of so many degrees above the first."""
    return np.logaddexp(
        math.log(1.0 - ROUGH_SHARE) - steps * alpha, math.log(ROUGH_SHARE) - ROUGH_DECAY * steps * alpha
    )


class Block(NamedTuple):
    """The columns of one term: for each, the places of its functions in the inputs' systems."""

    term: Term
    index: Int[np.ndarray, "m order"]

    @property
    def name(self) -> tuple[Term, bytes]:
        """What tells blocks of one search apart: the same term may come with other columns."""
        return self.term, self.index.tobytes()


def columns_of(blocks: Sequence[Block], values: Values, dtype: type = np.float64) -> Float[np.ndarray, "n m"]:
    """The columns of all blocks, from the values of every input's functions."""
    return np.concatenate(columns_of_each(values, blocks, dtype), axis=1)


def places_of(blocks: Sequence[Block]) -> list[slice]:
    """Where the columns of each lie among those of all."""
    ends = itertools.accumulate((len(block.index) for block in blocks), initial=0)
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


NO_CHOICE: Mapping[Term, Families] = {}


class Basis(NamedTuple):
    """The columns of a model."""

    systems: tuple[System, ...]
    blocks: tuple[Block, ...]

    def __call__(self, values: Values) -> Float[np.ndarray, "n columns"]:
        """Φ without the constant, from the values of every input's functions."""
        return columns_of(self.blocks, values) if self.blocks else np.zeros((len(values[0].left), 0))

    @property
    def slices(self) -> list[slice]:
        """Where each block's columns lie."""
        return places_of(self.blocks)

    @property
    def n_columns(self) -> int:
        return sum(len(block.index) for block in self.blocks)

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(block.term for block in self.blocks)

    def is_local(self, block: Block) -> bool:
        """Whether functions of a block are local."""
        return any(
            Family(f).is_local
            for axis, i in enumerate(block.term)
            for f in np.unique(self.systems[i].family[block.index[:, axis]])
        )

    def pruned(self) -> "Basis":
        """The same columns, of systems without the functions that none of them is made of."""
        used: dict[int, list[np.ndarray]] = {i: [np.zeros(1, dtype=int)] for i in range(len(self.systems))}
        for block in self.blocks:
            for axis, i in enumerate(block.term):
                used[i].append(block.index[:, axis])
        systems, places = zip(*(s.only(np.concatenate(used[i])) for i, s in enumerate(self.systems)), strict=True)
        blocks = [
            Block(b.term, np.stack([places[i][b.index[:, axis]] for axis, i in enumerate(b.term)], axis=1))
            for b in self.blocks
        ]
        return Basis(systems, tuple(blocks))

    @property
    def sizes(self) -> dict[Term, int]:
        """Numbers of columns, by term."""
        return {block.term: len(block.index) for block in self.blocks}


def basis_of(
    systems: Sequence[System],
    terms: Iterable[Term],
    chosen: Mapping[Term, Families] = NO_CHOICE,
    total_degree: Mapping[int, int] = TOTAL_DEGREE,
    sizes: Mapping[Term, int] | None = None,
    term_columns: int = TERM_COLUMNS,
    max_columns: int = MAX_COLUMNS,
) -> Basis:
    """The basis of some terms up to a total degree by order, lower where there would be very many columns.

    Terms with local functions have a number of columns by order, or that given in `sizes`.
    """
    terms, sizes, blocks = tuple(terms), sizes or {}, ()
    families = {t: usual_families(systems, t, chosen) for t in terms}
    rough = {t for t, own in families.items() if any(family.is_local for family in own)}
    for lower in range(8):
        totals = {t: max(total_degree.get(len(t), HIGHER_TOTAL) - lower, len(t) + 1) for t in terms}
        limit = max(term_columns >> lower, 4)
        limits = {t: sizes.get(t, ROUGH_COLUMNS.get(len(t), 30)) if t in rough else limit for t in terms}
        blocks = tuple(Block(t, products(systems, t, families[t], totals[t], limits[t])) for t in terms)
        if sum(len(block.index) for block in blocks if block.term not in rough) <= max_columns:
            break
    return Basis(tuple(systems), blocks)


class Products(NamedTuple):
    """ΦᵀΦ, Φᵀy and yᵀy about the means (a constant of flat prior is integrated out): all the evidence needs of rows."""

    gram: Float[np.ndarray, "m m"]
    cross: Float[np.ndarray, " m"]
    square: float
    n: float
    mean_phi: Float[np.ndarray, " m"]
    mean_y: float
    noise_variance: float | None  # known, or to be learned


class Posterior(NamedTuple):
    """q of the coefficients, given σ² at its best: mean, a root R with Σ = R Rᵀ, and the prior sds."""

    mean: Float[np.ndarray, " m"]
    root: Float[np.ndarray, "m k"]
    prior_sd: Float[np.ndarray, " m"]
    noise_variance: float
    theta: Float[np.ndarray, " h"]
    log_evidence: float

    @property
    def covariance(self) -> Float[np.ndarray, "m m"]:
        return self.root @ self.root.T

    @property
    def kl(self) -> float:
        """KL(q(v) ‖ p(v)) = ½ (Σ (m_k² + Σ_kk)/s_k − M − log det Σ/S)."""
        root = self.root / self.prior_sd[:, None]
        log_det = np.linalg.slogdet(root)[1] if len(root) else 0.0
        return 0.5 * float(np.sum((self.mean / self.prior_sd) ** 2) + np.sum(root**2) - len(root) - 2.0 * log_det)


class Evidence:
    """log p(y | θ) + log p(θ), θ = (log τ_T², α_i, log σ²)."""

    def __init__(self, basis: Basis, products: Products):
        self.products = products
        inputs = sorted({i for term in basis.terms for i in term})
        n_blocks = len(basis.blocks)
        # log s = sizes log τ² + offset + Σ_i log d(α_i, steps_i)
        self.sizes = np.zeros((len(products.cross), n_blocks))
        self.steps = np.zeros((len(products.cross), len(inputs)))
        self.offset = np.zeros(len(products.cross))
        for b, (block, rows) in enumerate(zip(basis.blocks, basis.slices, strict=True)):
            self.sizes[rows, b] = 1.0
            for axis, i in enumerate(block.term):
                system, own = basis.systems[i], block.index[:, axis]
                self.offset[rows] += system.offset[own]
                self.steps[rows, inputs.index(i)] = system.cost[own] - 1.0
        is_link = products.noise_variance is not None
        self.scale = 1.0 if is_link else max(products.square / max(products.n, 1.0), 1e-300)
        priors = [LINK_LOG_VARIANCE[min(len(t), 2)] if is_link else LOG_VARIANCE for t in basis.terms]
        smoothness = LINK_SMOOTHNESS if is_link else SMOOTHNESS
        centres = [centre + math.log(self.scale) for centre, _ in priors] + [smoothness[0]] * len(inputs)
        spreads = [spread for _, spread in priors] + [smoothness[1]] * len(inputs)
        self.prior_mean = np.array([*centres, math.log(self.scale)])
        self.prior_sd = np.array([*spreads, 10.0])
        self.inputs = inputs
        # no term may be larger than y varies: of inputs that go together two could else cancel each other
        limits = FARTHEST_SIZE if is_link else LARGEST_SIZE
        largest = [limits[min(len(t), 2)] for t in basis.terms]
        self.most = np.array([*(math.log(self.scale) + size for size in largest), *[np.inf] * (len(inputs) + 1)])

    def start(self) -> Float[np.ndarray, " h"]:
        theta = self.prior_mean.copy()
        known = self.products.noise_variance
        theta[-1] = theta[-1] + math.log(0.3) if known is None else math.log(known)
        return theta

    def _log_prior_variances(self, theta):
        """log s of every coefficient, and its first and second derivatives in α."""
        n_terms = self.sizes.shape[1]
        log_d = decay(theta[n_terms:-1], self.steps)
        smooth = math.log(1.0 - ROUGH_SHARE) - self.steps * theta[n_terms:-1]
        share = np.exp(smooth - log_d)
        slopes = -self.steps * (ROUGH_DECAY + (1.0 - ROUGH_DECAY) * share)
        bent = ((1.0 - ROUGH_DECAY) * self.steps) ** 2 * share * (1.0 - share)
        return self.sizes @ theta[:n_terms] + self.offset + log_d.sum(axis=1), slopes, bent

    def parts(self, theta):
        """s^{1/2}, σ², L and L⁻¹ of A = S^{1/2}ΦᵀΦS^{1/2}/σ² + I, L⁻¹S^{1/2}Φᵀy/σ², and the posterior mean."""
        s, variance = self._scales(theta)
        a = self.products.gram * (s[:, None] * s[None, :] / variance)
        a[np.diag_indices_from(a)] += 1.0
        lower = _cholesky(a)
        inverse = _inverse(lower)
        b = inverse @ (s * self.products.cross) / variance
        return s, variance, lower, inverse, b, s * (inverse.T @ b)

    def _value(self, theta, variance, lower, explained: float) -> float:
        """log p(y | θ) + log p(θ); one row less for the constant."""
        log_likelihood = -0.5 * (
            (self.products.n - 1.0) * math.log(2.0 * math.pi * variance)
            + 2.0 * np.sum(np.log(np.diag(lower)))
            + self.products.square / variance
            - explained
        )
        return float(log_likelihood) - 0.5 * self.distance(theta)

    def distance(self, theta: Float[np.ndarray, " h"]) -> float:
        """Of θ from the centre of its hyper-prior, in squares of sds."""
        return float(np.sum(self._away(theta) ** 2))

    def _away(self, theta):
        away = (theta - self.prior_mean) / self.prior_sd
        if self.products.noise_variance is not None:
            away[-1] = 0.0
        return away

    def __call__(self, theta: Float[np.ndarray, " h"]) -> Near:
        """log p(y | θ) + log p(θ) with its first and second derivatives, all by A⁻¹.

        With V_k = σ²φ̃_kφ̃_kᵀ, φ̃_k = s_k^{1/2}φ_k/σ the derivative of V in log s_k, M = I − A⁻¹ and u_k = m_k/s_k^{1/2},
        ½ tr(V⁻¹V_kV⁻¹V_l) = ½ M_kl² and ½ yᵀV⁻¹V_kV⁻¹V_lV⁻¹y = ½ u_k M_kl u_l.
        """
        log_s, in_alpha, bent = self._log_prior_variances(theta)
        s, variance = self._scales(theta, log_s)
        a = self.products.gram * (s[:, None] * s[None, :] / variance)
        a[np.diag_indices_from(a)] += 1.0
        lower = _cholesky(a)
        inverse = _inverse_of(lower)
        gram, cross, square, n = self.products[:4]
        scaled = s * cross / variance
        # ∂/∂log s_k = ½ (m_k²/s_k + Σ_kk/s_k − 1); ∂/∂log σ² = ½ (−n + ‖y − Φm‖²/σ² + tr(I − A⁻¹))
        u = inverse @ scaled
        mean, left = s * u, np.diag(inverse)
        slopes = 0.5 * (u**2 + left - 1.0)
        d = np.concatenate([self.sizes, in_alpha], axis=1)
        known = np.eye(len(s)) - inverse
        own = d * u[:, None]
        residual = (square - 2.0 * mean @ cross + mean @ gram @ mean) / variance
        gradient = np.append(d.T @ slopes, 0.5 * (1.0 - n + residual + len(s) - left.sum()))
        h = len(gradient)
        curvature = np.zeros((h, h))
        curvature[:-1, :-1] = own.T @ (known @ own) - 0.5 * d.T @ (known**2 @ d) - d.T @ (slopes[:, None] * d)
        alphas = np.arange(self.sizes.shape[1], h - 1)
        curvature[alphas, alphas] -= slopes @ bent
        # with log σ²: rᵀV⁻¹r = ‖r‖²/σ² − uᵀA⁻¹u of the residuals r = σ²V⁻¹y, and tr V⁻²σ⁴ = n − 2 tr M + ‖M‖²
        by_noise = inverse @ u
        curvature[-1, :-1] = d.T @ (u * by_noise - 0.5 * (left - np.einsum("kl,kl->k", inverse, inverse)))
        curvature[:-1, -1] = curvature[-1, :-1]
        trace = n - 1.0 - 2.0 * float(np.trace(known)) + float(np.sum(known**2))
        curvature[-1, -1] = residual - u @ by_noise - 0.5 * trace - gradient[-1]
        if self.products.noise_variance is not None:
            gradient[-1], curvature[-1], curvature[:, -1] = 0.0, 0.0, 0.0
        gradient = gradient - self._away(theta) / self.prior_sd
        curvature[np.diag_indices(h)] += 1.0 / self.prior_sd**2
        return Near(self._value(theta, variance, lower, u @ scaled), gradient, curvature)

    def maximise(self, tolerance: float = 1e-9, start: Float[np.ndarray, " h"] | None = None, n_most: int = 60):
        """θ of the highest evidence; `tolerance` is the gain at which to stop, relative up to so many rows.

        Evidence and its curvature along log σ² grow with n, those along the others do not: with very many rows they
        would count for nothing beside it.
        """
        few = min(1.0, MANY_ROWS / max(self.products.n, 1.0))
        begin = self.start() if start is None else start
        return highest(self, begin, self.most, tolerance=few * tolerance, n_most=n_most)

    def fixed_point(self, theta, n_rounds: int, tolerance: float = 0.02) -> Float[np.ndarray, " h"]:
        """Sizes and noise of higher evidence with α as it is, by MacKay's updates: a few rounds do for many columns.

        τ² is Σ m_k²/s_k′ over Σ γ_k of the term but for the hyper-prior, s_k′ its prior variances at τ = 1 and
        γ_k = 1 − Σ_kk/s_k the share of coefficient k that the data determine; σ² = ‖y − Φm‖²/(n − Σ γ_k).
        """
        theta = theta.copy()
        n_blocks = self.sizes.shape[1]
        gram, cross, square, n = self.products[:4]
        limits = math.log(self.scale) - 25.0, self.most[:n_blocks]
        for _ in range(n_rounds):
            s, variance = self._scales(theta)
            a = gram * (s[:, None] * s[None, :] / variance)
            a[np.diag_indices_from(a)] += 1.0
            lower = _cholesky(a)
            inverse = _inverse(lower)
            mean = s * (inverse.T @ (inverse @ (s * cross / variance)))
            known = 1.0 - np.einsum("jk,jk->k", inverse, inverse)
            energy = self.sizes.T @ (mean / s) ** 2 * np.exp(theta[:n_blocks])
            before = theta.copy()
            theta[:n_blocks] = np.clip(self._sizes(theta[:n_blocks], energy, self.sizes.T @ known), *limits)
            if self.products.noise_variance is None:
                residual = square - 2.0 * mean @ cross + mean @ gram @ mean
                theta[-1] = math.log(max(residual, 1e-12 * square) / max(n - 1.0 - known.sum(), 1.0))
            # what matters is the size of parts that are there
            used = np.append(self.sizes.T @ known > 0.5, np.zeros(len(theta) - n_blocks, dtype=bool))
            if np.max(np.abs(theta - before)[used], initial=0.0) < tolerance:
                break
        return theta

    def _sizes(self, t, energy, known):
        """log τ² where ½ (energy/τ² − known) − (log τ² − centre)/spread² = 0: MacKay's update with the hyper-prior."""
        centre, spread = self.prior_mean[: len(t)], self.prior_sd[: len(t)]
        for _ in range(30):
            pull = 0.5 * energy * np.exp(-t)
            slope = pull - 0.5 * known - (t - centre) / spread**2
            t = t + np.clip(slope / (pull + 1.0 / spread**2), -3.0, 3.0)
        return t

    def _scales(self, theta, log_s=None):
        """s^{1/2} and σ², within limits."""
        log_s = self._log_prior_variances(theta)[0] if log_s is None else log_s
        low, high = -40.0 + math.log(self.scale), 8.0 + math.log(self.scale)
        # a share of 10⁻⁶ of the variance is as good as none
        noise = theta[-1] if self.products.noise_variance is not None else max(theta[-1], math.log(1e-6 * self.scale))
        return np.exp(0.5 * np.clip(log_s, low, high)), math.exp(min(noise, high))

    def posterior(self, theta: Float[np.ndarray, " h"]) -> Posterior:
        s, variance, lower, inverse, b, mean = self.parts(theta)
        return Posterior(mean, s[:, None] * inverse.T, s, variance, theta, self._value(theta, variance, lower, b @ b))

    def around(self, theta, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draws h"]:
        """Draws of θ from N(θ̂, H⁻¹), H the curvature of the evidence at its maximum, in pairs about it."""
        values, vectors = np.linalg.eigh(self(theta).curvature)
        # Curvature below the hyper-prior's is rounding or a ridge: the prior's is used.
        values = np.maximum(values, 1.0 / self.prior_sd.max() ** 2)
        # the symmetric root: of directions that are alike rounding alone chooses the vectors, but not their sum
        away = rng.standard_normal((n_draws // 2, len(theta))) @ (vectors / np.sqrt(values)) @ vectors.T
        away = np.concatenate([away, -away])
        if self.products.noise_variance is not None:
            away[:, -1] = 0.0
        return theta + away


def _cholesky(a: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """The lower factor; where rounding has made a not positive definite, with as much on its diagonal as mends it."""
    if not len(a):
        return a
    jitter = 1e-13 * float(np.diag(a).max(initial=1.0))
    for _ in range(12):
        lower, failed = lapack.dpotrf(a.T, lower=1, clean=1)
        if not failed:
            return lower
        a = a + jitter * np.eye(len(a))
        jitter *= 10.0
    return np.linalg.cholesky(a)


def _inverse(lower: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    return lapack.dtrtri(lower, lower=1)[0] if len(lower) else lower


def _inverse_of(lower: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """(LLᵀ)⁻¹."""
    if not len(lower):
        return lower
    # the upper half stays what it was, which is 0
    inverse = lapack.dpotri(lower, lower=1)[0]
    diagonal = inverse.diagonal().copy()
    inverse += inverse.T
    inverse[np.diag_indices_from(inverse)] = diagonal
    return inverse


def averaged(evidence: Evidence, posterior: Posterior, *, rng: np.random.Generator, n_draws: int = 24) -> Posterior:
    """The posterior averaged over the hyper-parameters: a Gaussian with the mixture's mean and covariance."""
    if not len(posterior.mean):
        return posterior
    members = [evidence.posterior(theta) for theta in evidence.around(posterior.theta, n_draws, rng)]
    means = np.array([m.mean for m in members])
    mean = means.mean(axis=0)
    # Σ = E Σ_θ + Cov m_θ
    covariance = np.mean([m.covariance for m in members], axis=0) + (means - mean).T @ (means - mean) / len(means)
    prior_sd = np.sqrt(np.mean([m.prior_sd**2 for m in members], axis=0))
    return posterior._replace(mean=mean, root=root_of(covariance), prior_sd=prior_sd)


def root_of(covariance: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """R with R Rᵀ = Σ, for Σ that may be singular to rounding."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def with_constant(
    posterior: Posterior, products: Products, total: float
) -> tuple[Float[np.ndarray, " m1"], Float[np.ndarray, "m1 k1"]]:
    """Mean of (c, v) and a root of its covariance: c = ȳ − φ̄ᵀv + N(0, σ²/Σ weights)."""
    mean = np.append(products.mean_y - products.mean_phi @ posterior.mean, posterior.mean)
    root = np.zeros((len(mean), posterior.root.shape[1] + 1))
    root[0, 0] = math.sqrt(posterior.noise_variance / total)
    root[0, 1:] = -products.mean_phi @ posterior.root
    root[1:, 1:] = posterior.root
    return mean, root
