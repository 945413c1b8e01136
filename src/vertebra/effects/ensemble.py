"""Networks that are averaged, and what they add to a sum of terms."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from vertebra.effects.effect import Matrix, Outputs
from vertebra.effects.made_of import MadeOf
from vertebra.effects.scale_law import ScaleLaw, logged, side_by_side
from vertebra.inference.draws import moments, sample
from vertebra.machine.programs import keep_programs
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_double_precision
from vertebra.tables.column import UNSEEN
from vertebra.tables.encoding import Encoding
from vertebra.terms.term import Term

# Rows that an ensemble works on at once: a round number that bounds memory.
CHUNK = 16384


class EnsemblePosterior(NamedTuple):
    """Networks that are averaged; the doubt about f is their disagreement, times a factor."""

    networks: tuple[Network, ...]
    factor: Float[np.ndarray, " outputs"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L
    options: Mapping[str, object] = MappingProxyType({})  # of the scheme
    scale: ScaleLaw | None = None  # of uneven noise: f₂ stands beside f₁ of every target

    kind, terms, remainder, source = "ensemble", None, None, None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        law = {} if self.scale is None else {f"scale/{name}": part for name, part in self.scale._asdict().items()}
        return {"factor": self.factor, **law}

    @property
    def n_outputs(self) -> int:
        return self.networks[0].n_outputs * (1 if self.scale is None else 2)

    def mean(self, x: Matrix) -> Outputs:
        return self.moments(x)[0]

    def moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        parts = [self._moments(x[start : start + CHUNK]) for start in range(0, max(len(x), 1), CHUNK)]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    def _moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        means, variances = self.members(x)
        mean, apart = means.mean(axis=0), means.var(axis=0, ddof=1)
        variance = self.factor * (variances.mean(axis=0) + apart)
        if self.scale is None:
            return mean, variance
        return self.scale.latents(mean, variance, logged(apart))

    def members(
        self, x: Matrix
    ) -> tuple[Float[np.ndarray, "members n outputs"], Float[np.ndarray, "members n outputs"]]:
        """What each says of f, mean and variance."""
        keep_programs()
        with jax.enable_x64(True):
            parts = [moments(in_double_precision(member), x, key=jr.key(self.seed)) for member in self.networks]
            means, variances = (np.stack([np.asarray(each) for each in part]) for part in zip(*parts, strict=True))
        return means, np.maximum(variances, 0.0)

    def sample(self, x: Matrix, n_draws: int, seed: int) -> Float[np.ndarray, "draws n outputs"]:
        """Draws of members in a random order, as far from the mean as the factor says."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.networks))
        with jax.enable_x64(True):
            networks = [in_double_precision(self.networks[i]) for i in order]
            draws = np.asarray(sample(networks, x, key=jr.key(seed), n_draws=n_draws))
        mean, variance = self.moments(x)
        second = None if self.scale is None else (mean[:, 1::2], np.sqrt(variance[:, 1::2]))
        mean = mean if second is None else mean[:, ::2]
        # the variance of M members about their own mean is short of its expectation by a share of 1/M
        stretch = np.sqrt(self.factor * len(order) / (len(order) - 1.0))
        draws = (mean + stretch * (draws - mean))[rng.permutation(n_draws)]
        if second is None:
            return draws
        # of a scale that differs between rows alike, each row has its own
        return side_by_side(draws, second[0] + second[1] * rng.standard_normal(draws.shape))


class Remainder(NamedTuple):
    """α(G − A): a share of what networks G over all inputs say otherwise than the terms A.

    Of uneven noise networks say the means alone: α is 0 for the latent functions of its scale.
    Of a row with a level or a gap that was not there at fit, networks know nothing, and say so less than terms do: it
    has no remainder.
    """

    networks: EnsemblePosterior
    encoding: Encoding  # from what the terms read to what the networks read
    share: Float[np.ndarray, " outputs"]  # α
    sizes: Float[np.ndarray, "draws outputs"]  # draws of its strength
    probability: Float[np.ndarray, " outputs"]  # that there is one
    had_gaps: Bool[np.ndarray, " p"]  # the inputs, at fit
    made_of: MadeOf | None = None  # which inputs it uses; files of older versions do not say

    @property
    def everything(self) -> Term:
        """The remainder as a term: all inputs."""
        return tuple(range(len(self.encoding.gaps)))

    @property
    def size(self) -> Float[np.ndarray, " outputs"]:
        """The root of its mean square."""
        return np.sqrt(np.mean(self.sizes**2, axis=0))

    def shares(self, x: Matrix) -> Outputs:
        """α, row by row."""
        is_category = np.array([table is not None for table in self.encoding.tables])
        strange = (np.isnan(x) & ~self.had_gaps) | ((x == UNSEEN) & is_category)
        return np.where(strange.any(axis=1)[:, None], 0.0, self.share)

    def _per_latent(self, said: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... outputs"]:
        """What networks say of targets, once for each latent function of theirs."""
        return np.repeat(said, len(self.share) // self.networks.n_outputs, axis=-1)

    def _moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        mean, variance = map(self._per_latent, self.networks.moments(self.encoding(x)))
        return mean, variance

    def mean(self, x: Matrix, ours: Outputs) -> Outputs:
        """A + α(G − A), from A."""
        return ours + self.shares(x) * (self._moments(x)[0] - ours)

    def moments(self, x: Matrix, ours: Outputs, doubt: Outputs) -> tuple[Outputs, Outputs]:
        """Mean and variance of A + α(G − A), from those of A."""
        theirs, other = self._moments(x)
        share = self.shares(x)
        return ours + share * (theirs - ours), (1.0 - share) ** 2 * doubt + share**2 * other

    def sample(
        self, x: Matrix, ours: Float[np.ndarray, "draws n outputs"], seed: int
    ) -> Float[np.ndarray, "draws n outputs"]:
        """Draws of A + α(G − A), from draws of A."""
        theirs = self._per_latent(self.networks.sample(self.encoding(x), len(ours), seed))
        return ours + self.shares(x) * (theirs - ours)

    def part(
        self, x: Matrix, ours: Outputs, doubt: Outputs, output: int
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and sd of α(G − A), from the moments of A."""
        theirs, other = self._moments(x)
        share = self.shares(x)[:, output]
        return share * (theirs - ours)[:, output], share * np.sqrt(doubt + other)[:, output]
