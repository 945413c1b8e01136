"""The posterior of f behind an estimator, with what it says about terms: in closed form, or of a network.

Both read rows of numbers and answer the same questions: moments, draws, strengths, a term at points, a row's terms. An
ensemble of networks answers the first two; terms and an ensemble together all of them, with what the ensemble adds as a
term of all inputs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from vertebra.effects.anova import Local, attribute, band_of, decompose
from vertebra.inference.fitting import moments, sample
from vertebra.networks.network import Network
from vertebra.networks.parameters import double
from vertebra.tables.column import UNSEEN
from vertebra.tables.encoding import Encoding
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# Of the weights: for strengths and bands, and of a network that is not linear in them for all it says.
N_DRAWS, N_NETWORK_DRAWS = 1000, 200
# Rows that an ensemble works on at once.
CHUNK = 16384


class Curve(NamedTuple):
    """A term at points: mean, sd, and draws of the whole function."""

    mean: Float[np.ndarray, " n"]
    sd: Float[np.ndarray, " n"]
    draws: Float[np.ndarray, "draws n"]

    def band(self, level: float, *, simultaneous: bool = False):
        """A band for each point alone, or one that holds for the whole function."""
        return band_of(self.mean, self.sd, self.draws, level, simultaneous=simultaneous)


class TermSurface(NamedTuple):
    """A sum of terms: all of it linear algebra."""

    terms: SumOfTerms
    seed: int

    @property
    def n_outputs(self) -> int:
        return self.terms.n_outputs

    def mean(self, x):
        return self.terms.mean(x)

    def moments(self, x):
        return self.terms.moments(x)

    def sample(self, x, n_draws: int, seed: int):
        return self.terms.sample(x, n_draws, np.random.default_rng(seed))

    def strengths(self, output: int, baseline) -> dict[Term, Float[np.ndarray, " draws"]]:
        coefficients = self._draws(output)
        parts = [self.terms.part(term, baseline) for term in self.terms.terms(baseline)]
        return {part.term: self.terms.strengths(part, coefficients) for part in parts}

    def curve(self, term: Term, points: Sequence[Any], output: int, baseline) -> Curve:
        part = self.terms.part(term, baseline)
        rows = self.terms.at(part, points) @ part.lift
        mean = rows @ self.terms.means[output]
        spread = rows @ self.terms.roots[output]
        # the draws of `strengths`, at these rows alone
        noise = self._rng(output).standard_normal((spread.shape[1], N_DRAWS))
        return Curve(mean, np.linalg.norm(spread, axis=1), (mean[:, None] + spread @ noise).T)

    def local(self, x, output: int, baseline, *, with_sd: bool = False) -> dict[Term, Local]:
        """What each term adds at rows; without `with_sd` its sd is not worked out."""
        mean, root = self.terms.means[output], self.terms.roots[output]
        constant = self.terms.part((), baseline).lift.sum(axis=0)
        result = {(): Local((), np.full(len(x), constant @ mean), np.full(len(x), np.linalg.norm(constant @ root)))}
        for term in self.terms.terms(baseline):
            part = self.terms.part(term, baseline)
            rows = self.terms.at(part, [x[:, i] for i in term])
            sd = np.linalg.norm(rows @ (part.lift @ root), axis=1) if with_sd else np.full(len(x), np.nan)
            result[term] = Local(term, rows @ (part.lift @ mean), sd)
        return result

    def _draws(self, output: int):
        return self.terms.draw(output, N_DRAWS, self._rng(output))

    def _rng(self, output: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, output])


class NetworkSurface(NamedTuple):
    """A network, with rows that stand for the marginals of its inputs."""

    network: Network
    rows: Float[np.ndarray, "m p"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L

    @property
    def n_outputs(self) -> int:
        return self.network.n_outputs

    def mean(self, x):
        return self.moments(x)[0]

    def moments(self, x):
        """In double precision, so that a row's prediction does not depend on the rows beside it."""
        with jax.enable_x64(True):
            network = double(self.network)
            if network.is_linear_in_v:
                mean, variance = moments(network, x, key=jr.key(self.seed))
                return np.asarray(mean), np.maximum(np.asarray(variance), 0.0)
            draws = np.asarray(sample(network, x, key=jr.key(self.seed), n_draws=N_NETWORK_DRAWS))
            return draws.mean(axis=0), draws.var(axis=0)

    def sample(self, x, n_draws: int, seed: int):
        with jax.enable_x64(True):
            return np.asarray(sample(double(self.network), x, key=jr.key(seed), n_draws=n_draws))

    def strengths(self, output: int, baseline):
        effects = decompose(self.network, self.rows, key=jr.key(self.seed), baseline=baseline, output=output)
        return {term: effect.strengths for term, effect in effects.items() if term}

    def curve(self, term: Term, points: Sequence[Any], output: int, baseline) -> Curve:
        distinct, places = zip(*(np.unique(p, return_inverse=True) for p in points), strict=True)
        effect = decompose(
            self.network,
            self.rows,
            key=jr.key(self.seed),
            terms=[term],
            baseline=baseline,
            points=dict(zip(term, distinct, strict=True)),
            output=output,
        )[term]
        # the points to look at are those that carry no measure
        shown = [np.flatnonzero((axis.norm == 0) & (axis.average == 0)) for axis in effect.axes]
        index = tuple(own[place.ravel()] for own, place in zip(shown, places, strict=True))
        return Curve(effect.mean[index], effect.sd[index], effect.draws[(slice(None), *index)])

    def local(self, x, output: int, baseline, *, with_sd: bool = False) -> dict[Term, Local]:
        with jax.enable_x64(True):
            return attribute(
                double(self.network),
                x,
                self.rows,
                key=jr.key(self.seed),
                baseline=baseline,
                output=output,
                n_draws=N_NETWORK_DRAWS,
            )


class EnsembleSurface(NamedTuple):
    """Networks that are averaged; the doubt about f is their disagreement, times a factor."""

    networks: tuple[Network, ...]
    factor: Float[np.ndarray, " outputs"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L

    @property
    def n_outputs(self) -> int:
        return self.networks[0].n_outputs

    def mean(self, x):
        return self.moments(x)[0]

    def moments(self, x):
        parts = [self._moments(x[start : start + CHUNK]) for start in range(0, max(len(x), 1), CHUNK)]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    def _moments(self, x):
        means, variances = self.members(x)
        return means.mean(axis=0), self.factor * (variances.mean(axis=0) + means.var(axis=0, ddof=1))

    def members(self, x) -> tuple[Float[np.ndarray, "members n outputs"], Float[np.ndarray, "members n outputs"]]:
        """What each says of f, mean and variance."""
        with jax.enable_x64(True):
            parts = [moments(double(member), x, key=jr.key(self.seed)) for member in self.networks]
            means, variances = (np.stack([np.asarray(each) for each in part]) for part in zip(*parts, strict=True))
        return means, np.maximum(variances, 0.0)

    def sample(self, x, n_draws: int, seed: int):
        """Draws of members in a random order, as far from the mean as the factor says."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.networks))
        with jax.enable_x64(True):
            networks = [double(self.networks[i]) for i in order]
            draws = np.asarray(sample(networks, x, key=jr.key(seed), n_draws=n_draws))
        mean = self.mean(x)
        # the variance of M members about their own mean is short of its expectation by a share of 1/M
        stretch = np.sqrt(self.factor * len(order) / (len(order) - 1.0))
        return (mean + stretch * (draws - mean))[rng.permutation(n_draws)]


class HybridSurface(NamedTuple):
    """Terms A, and a share of what networks G over all inputs say otherwise: f = A + α(G − A), the last the remainder.

    The terms are what they are without it, since they were estimated with the remainder as noise. Of a row with a level
    or a gap that was not there at fit, networks know nothing, and say so less than terms do: it has no remainder.
    """

    terms: TermSurface
    networks: EnsembleSurface
    encoding: Encoding  # from what the terms read to what the networks read
    share: Float[np.ndarray, " outputs"]  # α
    sizes: Float[np.ndarray, "draws outputs"]  # draws of the remainder's strength
    probability: Float[np.ndarray, " outputs"]  # that there is one
    had_gaps: Bool[np.ndarray, " p"]  # the inputs, at fit

    @property
    def n_outputs(self) -> int:
        return self.terms.n_outputs

    @property
    def seed(self) -> int:
        return self.terms.seed

    @property
    def everything(self) -> Term:
        """The remainder as a term: all inputs."""
        return tuple(range(len(self.encoding.gaps)))

    @property
    def size(self) -> Float[np.ndarray, " outputs"]:
        """Of the remainder, the root of its mean square."""
        return np.sqrt(np.mean(self.sizes**2, axis=0))

    def shares(self, x) -> Float[np.ndarray, "n outputs"]:
        """α, row by row."""
        is_category = np.array([table is not None for table in self.encoding.tables])
        strange = (np.isnan(x) & ~self.had_gaps) | ((x == UNSEEN) & is_category)
        return np.where(strange.any(axis=1)[:, None], 0.0, self.share)

    def mean(self, x):
        ours = self.terms.mean(x)
        return ours + self.shares(x) * (self.networks.mean(self.encoding(x)) - ours)

    def moments(self, x):
        (ours, doubt), (theirs, other) = self.terms.moments(x), self.networks.moments(self.encoding(x))
        share = self.shares(x)
        return ours + share * (theirs - ours), (1.0 - share) ** 2 * doubt + share**2 * other

    def sample(self, x, n_draws: int, seed: int):
        ours, theirs = self.terms.sample(x, n_draws, seed), self.networks.sample(self.encoding(x), n_draws, seed)
        return ours + self.shares(x) * (theirs - ours)

    def strengths(self, output: int, baseline) -> dict[Term, Float[np.ndarray, " draws"]]:
        found = self.terms.strengths(output, baseline)
        return found | ({self.everything: self.sizes[:, output]} if self.share[output] > 0.0 else {})

    def curve(self, term: Term, points: Sequence[Any], output: int, baseline) -> Curve:
        return self.terms.curve(term, points, output, baseline)

    def local(self, x, output: int, baseline, *, with_sd: bool = False) -> dict[Term, Local]:
        found = self.terms.local(x, output, baseline, with_sd=with_sd)
        if self.share[output] > 0.0:
            mean, sd = self._remainder(x, output)
            if baseline is not None:
                # a difference from the row too: what the remainder is there goes to the constant
                at = self._remainder(baseline[None], output)[0]
                mean, found[()] = mean - at, found[()]._replace(mean=found[()].mean + at)
            found[self.everything] = Local(self.everything, mean, sd)
        return found

    def _remainder(self, x, output: int):
        (ours, doubt), (theirs, other) = self.terms.moments(x), self.networks.moments(self.encoding(x))
        share = self.shares(x)[:, output]
        return share * (theirs - ours)[:, output], share * np.sqrt(doubt + other)[:, output]
