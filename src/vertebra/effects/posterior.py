"""The posterior of f behind an estimator: a sum of terms in closed form, a network, or networks that are averaged.

All read rows of numbers and say what f is there, with draws; a sum of terms and a network also what its terms are: how
strong, at points, at a row. What a sum of terms leaves out can be added by networks, its `remainder`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from vertebra.effects.decomposition import N_DRAWS, N_NETWORK_DRAWS, attribute, decompose
from vertebra.effects.effect import Effect, Local
from vertebra.effects.pieces import FittedEstimator, NetworkSource, Source, TermsSource
from vertebra.inference.draws import moments, sample
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_double_precision
from vertebra.tables.column import UNSEEN
from vertebra.tables.encoding import Encoding
from vertebra.terms.block import network_of
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# Rows that an ensemble works on at once: a round number that bounds memory.
CHUNK = 16384

Matrix = Float[np.ndarray, "n p"]
Outputs = Float[np.ndarray, "n outputs"]
Row = Float[np.ndarray, " p"]


@runtime_checkable
class Posterior(Protocol):
    """What every posterior of f answers, at rows as it reads them.

    What it is made of is there or not: `terms`, a sum of them in closed form; `networks`, with their `scheme`, `widths`
    and what else is kept of them, `arrays`; a `remainder`, which other networks add to the terms.
    """

    @property
    def n_outputs(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def terms(self) -> SumOfTerms | None: ...
    @property
    def networks(self) -> tuple[Network, ...]: ...
    @property
    def kind(self) -> str: ...
    @property
    def scheme(self) -> str: ...
    @property
    def widths(self) -> tuple[int, ...]: ...
    @property
    def options(self) -> Mapping[str, object]: ...
    @property
    def arrays(self) -> dict[str, np.ndarray]: ...
    @property
    def remainder(self) -> "Remainder | None": ...
    @property
    def source(self) -> Source | None:
        """What can be taken apart: all but the remainder, and of networks that are averaged nothing."""
        ...

    def mean(self, x: Matrix) -> Outputs: ...

    def moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        """Mean and variance of f."""
        ...

    def sample(self, x: Matrix, n_draws: int, seed: int) -> Float[np.ndarray, "draws n outputs"]:
        """Draws of f: each one function, at all rows."""
        ...


@runtime_checkable
class PosteriorOfTerms(Posterior, Protocol):
    """The posterior of an f that is taken apart, under the marginals of its fit, or as differences from a row."""

    def strengths(self, output: int, baseline: Row | None) -> dict[Term, Float[np.ndarray, " draws"]]:
        """Draws of ‖I_T‖₂, of every term that there is."""
        ...

    def curve(self, term: Term, points: Sequence[Float[np.ndarray, " n"]], output: int, baseline: Row | None) -> Effect:
        """I_T at points: a column of values per input of the term."""
        ...

    def local(self, x: Matrix, output: int, baseline: Row | None, *, with_sd: bool = False) -> dict[Term, Local]:
        """What each term adds at rows, () the constant; without `with_sd` its sd is not worked out, and NaN."""
        ...


class TermsPosterior(NamedTuple):
    """A sum of terms A, all of it linear algebra; with a remainder f = A + α(G − A).

    The terms are what they are without it, since they were estimated with the remainder as noise.
    """

    terms: SumOfTerms
    seed: int
    remainder: "Remainder | None" = None

    kind, scheme, widths, networks = "terms", "auto", (), ()
    options = MappingProxyType({})

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @property
    def source(self) -> TermsSource:
        return TermsSource(self.terms, self.seed)

    @property
    def n_outputs(self) -> int:
        return self.terms.n_outputs

    def mean(self, x: Matrix) -> Outputs:
        ours = self.terms.mean(x)
        return ours if self.remainder is None else self.remainder.mean(x, ours)

    def moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        ours = self.terms.moments(x)
        return ours if self.remainder is None else self.remainder.moments(x, *ours)

    def sample(self, x: Matrix, n_draws: int, seed: int) -> Float[np.ndarray, "draws n outputs"]:
        ours = self.terms.sample(x, n_draws, np.random.default_rng(seed))
        return ours if self.remainder is None else self.remainder.sample(x, ours, seed)

    def strengths(self, output: int, baseline: Row | None) -> dict[Term, Float[np.ndarray, " draws"]]:
        coefficients = self.terms.weights(output).draw(N_DRAWS, self._rng(output))
        parts = [self.terms.part(term, baseline) for term in self.terms.terms(baseline)]
        found = {part.term: self.terms.strengths(part, coefficients) for part in parts}
        if self.remainder is not None and self.remainder.share[output] > 0.0:
            found[self.remainder.everything] = self.remainder.sizes[:, output]
        return found

    def curve(self, term: Term, points: Sequence[Float[np.ndarray, " n"]], output: int, baseline: Row | None) -> Effect:
        part = self.terms.part(term, baseline)
        values = self.terms.weights(output).at(self.terms.at(part, points) @ part.lift)
        # the draws of `strengths`, at these points alone
        return Effect(term, (), values.mean, values.sd, values.draws(N_DRAWS, self._rng(output)))

    def local(self, x: Matrix, output: int, baseline: Row | None, *, with_sd: bool = False) -> dict[Term, Local]:
        weights = self.terms.weights(output)
        constant = weights.at(self.terms.part((), baseline).lift.sum(axis=0, keepdims=True))
        result: dict[Term, Local] = {(): Local((), np.full(len(x), constant.mean), np.full(len(x), constant.sd))}
        for term in self.terms.terms(baseline):
            part = self.terms.part(term, baseline)
            rows = self.terms.at(part, [x[:, i] for i in term])
            if with_sd:
                values = weights.through(part.lift).at(rows)
                result[term] = Local(term, values.mean, values.sd)
            else:
                result[term] = Local(term, rows @ (part.lift @ weights.mean), np.full(len(x), np.nan))
        if self.remainder is not None and self.remainder.share[output] > 0.0:
            self._add_remainder(self.remainder, result, x, output, baseline)
        return result

    def _add_remainder(
        self, remainder: "Remainder", result: dict[Term, Local], x: Matrix, output: int, baseline: Row | None
    ) -> None:
        mean, sd = remainder.part(x, *self.terms.moments(x), output)
        if baseline is not None:
            # a difference from the row too: what the remainder is there goes to the constant
            at = remainder.part(baseline[None], *self.terms.moments(baseline[None]), output)[0]
            mean, result[()] = mean - at, result[()]._replace(mean=result[()].mean + at)
        result[remainder.everything] = Local(remainder.everything, mean, sd)

    def _rng(self, output: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, output])


class NetworkPosterior(NamedTuple):
    """A network, with rows that stand for the marginals of its inputs."""

    network: Network
    rows: Float[np.ndarray, "m p"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L
    options: Mapping[str, object] = MappingProxyType({})  # of the scheme

    kind, terms, remainder = "network", None, None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"rows": self.rows}

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.network,)

    @property
    def source(self) -> NetworkSource:
        return NetworkSource(self.network, self.seed)

    @property
    def n_outputs(self) -> int:
        return self.network.n_outputs

    def mean(self, x: Matrix) -> Outputs:
        return self.moments(x)[0]

    def moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        """In double precision, so that a row's prediction does not depend on the rows beside it."""
        with jax.enable_x64(True):
            network = in_double_precision(self.network)
            if network.is_linear_in_v:
                mean, variance = moments(network, x, key=jr.key(self.seed))
                return np.asarray(mean), np.maximum(np.asarray(variance), 0.0)
            draws = np.asarray(sample(network, x, key=jr.key(self.seed), n_draws=N_NETWORK_DRAWS))
            return draws.mean(axis=0), draws.var(axis=0)

    def sample(self, x: Matrix, n_draws: int, seed: int) -> Float[np.ndarray, "draws n outputs"]:
        with jax.enable_x64(True):
            return np.asarray(sample(in_double_precision(self.network), x, key=jr.key(seed), n_draws=n_draws))

    def strengths(self, output: int, baseline: Row | None) -> dict[Term, Float[np.ndarray, " draws"]]:
        effects = decompose(self.network, self.rows, key=jr.key(self.seed), baseline=baseline, output=output)
        return {term: effect.strengths for term, effect in effects.items() if term}

    def curve(self, term: Term, points: Sequence[Float[np.ndarray, " n"]], output: int, baseline: Row | None) -> Effect:
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
        return Effect(term, (), effect.mean[index], effect.sd[index], effect.draws[(slice(None), *index)], effect.error)

    def local(self, x: Matrix, output: int, baseline: Row | None, *, with_sd: bool = False) -> dict[Term, Local]:
        with jax.enable_x64(True):
            return attribute(
                in_double_precision(self.network),
                x,
                self.rows,
                key=jr.key(self.seed),
                baseline=baseline,
                output=output,
                n_draws=N_NETWORK_DRAWS,
                with_sd=with_sd,
            )


class EnsemblePosterior(NamedTuple):
    """Networks that are averaged; the doubt about f is their disagreement, times a factor."""

    networks: tuple[Network, ...]
    factor: Float[np.ndarray, " outputs"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L
    options: Mapping[str, object] = MappingProxyType({})  # of the scheme

    kind, terms, remainder, source = "ensemble", None, None, None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"factor": self.factor}

    @property
    def n_outputs(self) -> int:
        return self.networks[0].n_outputs

    def mean(self, x: Matrix) -> Outputs:
        return self.moments(x)[0]

    def moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        parts = [self._moments(x[start : start + CHUNK]) for start in range(0, max(len(x), 1), CHUNK)]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    def _moments(self, x: Matrix) -> tuple[Outputs, Outputs]:
        means, variances = self.members(x)
        return means.mean(axis=0), self.factor * (variances.mean(axis=0) + means.var(axis=0, ddof=1))

    def members(
        self, x: Matrix
    ) -> tuple[Float[np.ndarray, "members n outputs"], Float[np.ndarray, "members n outputs"]]:
        """What each says of f, mean and variance."""
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
        mean = self.mean(x)
        # the variance of M members about their own mean is short of its expectation by a share of 1/M
        stretch = np.sqrt(self.factor * len(order) / (len(order) - 1.0))
        return (mean + stretch * (draws - mean))[rng.permutation(n_draws)]


class Remainder(NamedTuple):
    """α(G − A): a share of what networks G over all inputs say otherwise than the terms A.

    Of a row with a level or a gap that was not there at fit, networks know nothing, and say so less than terms do: it
    has no remainder.
    """

    networks: EnsemblePosterior
    encoding: Encoding  # from what the terms read to what the networks read
    share: Float[np.ndarray, " outputs"]  # α
    sizes: Float[np.ndarray, "draws outputs"]  # draws of its strength
    probability: Float[np.ndarray, " outputs"]  # that there is one
    had_gaps: Bool[np.ndarray, " p"]  # the inputs, at fit

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

    def mean(self, x: Matrix, ours: Outputs) -> Outputs:
        """A + α(G − A), from A."""
        return ours + self.shares(x) * (self.networks.mean(self.encoding(x)) - ours)

    def moments(self, x: Matrix, ours: Outputs, doubt: Outputs) -> tuple[Outputs, Outputs]:
        """Mean and variance of A + α(G − A), from those of A."""
        theirs, other = self.networks.moments(self.encoding(x))
        share = self.shares(x)
        return ours + share * (theirs - ours), (1.0 - share) ** 2 * doubt + share**2 * other

    def sample(
        self, x: Matrix, ours: Float[np.ndarray, "draws n outputs"], seed: int
    ) -> Float[np.ndarray, "draws n outputs"]:
        """Draws of A + α(G − A), from draws of A."""
        theirs = self.networks.sample(self.encoding(x), len(ours), seed)
        return ours + self.shares(x) * (theirs - ours)

    def part(
        self, x: Matrix, ours: Outputs, doubt: Outputs, output: int
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and sd of α(G − A), from the moments of A."""
        theirs, other = self.networks.moments(self.encoding(x))
        share = self.shares(x)[:, output]
        return share * (theirs - ours)[:, output], share * np.sqrt(doubt + other)[:, output]


def as_network(estimator: FittedEstimator) -> Network:
    """A fitted model as a network on its skeleton: the same f, as the paper builds it.

    The default model's terms are a `BasisBlock` per cluster, and the Gaussian posterior of the last layer that of their
    coefficients. It reads rows as the model does, standardised, with levels by their places, and gives f in sds of the
    target; in double precision where JAX has it switched on. Its prior is not that of the fit.

    >>> data = vb.datasets.synthetic("f1", n=100)
    >>> model = vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y)
    >>> vb.as_network(model).skeleton.clusters
    ((3,), (0, 1))
    """
    posterior = cast(Posterior, estimator.model_.posterior)
    if posterior.remainder is not None or posterior.networks[1:]:
        raise ValueError(
            "`estimator` must be one network or a sum of terms, got networks that are averaged: fit with "
            "`remainder=False`, or another scheme."
        )
    return posterior.networks[0] if posterior.terms is None else network_of(posterior.terms)
