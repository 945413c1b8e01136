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
from jaxtyping import Float

from vertebra.effects.decomposition import N_DRAWS, N_NETWORK_DRAWS, attribute, decompose
from vertebra.effects.effect import Effect, Local, Sizes, sizes_apart
from vertebra.effects.ensemble import Matrix, Outputs, Remainder
from vertebra.effects.pieces import FittedEstimator, NetworkSource, Source, TermsSource
from vertebra.effects.regression import Regressed, RowsTogether, can_be_regressed
from vertebra.inference.draws import moments, sample
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_double_precision
from vertebra.terms.block import network_of
from vertebra.terms.components import Components
from vertebra.terms.joint import Measure
from vertebra.terms.splits import sum_of_squares, undetermined
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

Row = Float[np.ndarray, " p"]
Points = Sequence[Float[np.ndarray, " n"]]


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
    def remainder(self) -> Remainder | None: ...
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
    """The posterior of an f that is taken apart, under a measure that it has, or as differences from a row."""

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What its components can be averages over, the usual one first; with a baseline none counts."""
        ...

    def sizes(self, output: int, baseline: Row | None, measure: Measure) -> dict[Term, Sizes]:
        """Draws of ‖f_T‖₂ and of shares, of every term that there is."""
        ...

    def splits(self, output: int, baseline: Row | None, measure: Measure) -> dict[tuple[Term, ...], Sizes]:
        """The sets of terms of which only the sum is known, and how large that is."""
        ...

    def error(self, output: int, baseline: Row | None, measure: Measure) -> float:
        """How far the sum of components is off f over the rows, a root mean square: 0 but for networks regressed."""
        ...

    def curve(self, term: Term, points: Points, output: int, baseline: Row | None, measure: Measure) -> Effect:
        """f_T at points: a column of values per input of the term."""
        ...

    def local(
        self, x: Matrix, output: int, baseline: Row | None, measure: Measure, *, with_sd: bool = False
    ) -> dict[Term, Local]:
        """What each term adds at rows, () the constant; without `with_sd` its sd is not worked out, and NaN."""
        ...


class TermsPosterior(NamedTuple):
    """A sum of terms A, all of it linear algebra; with a remainder f = A + α(G − A).

    The terms are what they are without it, since they were estimated with the remainder as noise.
    """

    terms: SumOfTerms
    seed: int
    remainder: Remainder | None = None

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

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (Measure.PRODUCT,) if self.terms.joint is None else (Measure.DATA, Measure.PRODUCT)

    def _components(self, baseline: Row | None, measure: Measure) -> Components | None:
        """The components under the joint distribution of the rows, if these are what is asked for."""
        joint = self.terms.joint
        return (
            None
            if joint is None or baseline is not None or measure is not Measure.DATA
            else Components(self.terms, joint)
        )

    def _coefficients(self, output: int) -> Float[np.ndarray, "m1 draws"]:
        """Draws of (c, v), given which terms were chosen."""
        return self.terms.given_the_choice(self.terms.weights(output).draw(N_DRAWS, self._rng(output)), output)

    def sizes(self, output: int, baseline: Row | None, measure: Measure) -> dict[Term, Sizes]:
        coefficients = self._coefficients(output)
        remainder = self.remainder if self.remainder is not None and self.remainder.share[output] > 0.0 else None
        if (components := self._components(baseline, measure)) is None:
            parts = [self.terms.part(term, baseline) for term in self.terms.terms(baseline)]
            found = {part.term: self.terms.strengths(part, coefficients) for part in parts}
            if remainder is not None:
                found[remainder.everything] = remainder.sizes[:, output]
            return sizes_apart(found)
        squares = components.scattered(components.squares(coefficients), output, self._rng(output, 1))
        if remainder is not None:
            squares[remainder.everything] = remainder.sizes[:, output] ** 2, remainder.sizes[:, output] ** 2
        variance = np.maximum(sum((both for _, both in squares.values()), start=np.zeros(())), 1e-300)
        return {t: Sizes(np.sqrt(own), both / variance, own / variance) for t, (own, both) in squares.items()}

    def splits(self, output: int, baseline: Row | None, measure: Measure) -> dict[tuple[Term, ...], Sizes]:
        components = self._components(baseline, measure)
        # draws that have shapes are no Gaussian, and each of them holds
        if components is None or self.terms.weights(output).are_draws:
            return {}
        coefficients = self._coefficients(output)
        groups = undetermined(components, coefficients)
        if not groups:
            return {}
        each, known = self.sizes(output, baseline, measure), components.squares(coefficients)
        found = {}
        for group in groups:
            square = sum_of_squares(components, group, coefficients)
            # other rows change a sum as they change its parts
            parts = sum((known[t][0] for t in group), start=np.zeros(()))
            square = (
                square * sum((each[t].strength ** 2 for t in group), start=np.zeros(())) / np.maximum(parts, 1e-300)
            )
            first = group[0]
            variance = each[first].strength ** 2 / np.maximum(each[first].own, 1e-300)
            share = sum((each[t].share for t in group), start=np.zeros(()))
            found[group] = Sizes(np.sqrt(square), share, square / variance)
        return found

    def error(self, output: int, baseline: Row | None, measure: Measure) -> float:
        return 0.0

    def curve(self, term: Term, points: Points, output: int, baseline: Row | None, measure: Measure) -> Effect:
        if (components := self._components(baseline, measure)) is not None:
            values = components.values(term, points, output)
        else:
            part = self.terms.part(term, baseline)
            values = self.terms.weights(output).at(self.terms.at(part, points) @ part.lift)
        # the draws of `sizes`, at these points alone
        draws = values.draws(N_DRAWS, self._rng(output))
        if not self.terms.chosen or term not in self.terms.chosen[output]:
            return Effect(term, (), values.mean, values.sd, draws)
        factors = self.terms.factors(self.terms.weights(output).draw(N_DRAWS, self._rng(output)), output)
        draws = draws * factors[term][:, None]
        return Effect(term, (), draws.mean(axis=0), draws.std(axis=0), draws)

    def local(
        self, x: Matrix, output: int, baseline: Row | None, measure: Measure, *, with_sd: bool = False
    ) -> dict[Term, Local]:
        if (components := self._components(baseline, measure)) is not None:
            result = {t: self._local_component(components, t, x, output, with_sd) for t in ((), *self.terms.terms())}
        else:
            result = self._local_parts(x, output, baseline, with_sd)
        if self.remainder is not None and self.remainder.share[output] > 0.0:
            self._add_remainder(self.remainder, result, x, output, baseline)
        return result

    def _local_component(self, components: Components, term: Term, x: Matrix, output: int, with_sd: bool) -> Local:
        # of this prediction: the averages that its parts are differences from are those of the fit, and known
        weights, rows = components.weights(term, output), components.at(term, [x[:, i] for i in term])
        mean, sd = rows @ weights.mean, weights.at(rows).sd if with_sd else np.full(len(rows), np.nan)
        return Local(term, np.broadcast_to(mean, len(x)), np.broadcast_to(sd, len(x)))

    def _local_parts(self, x: Matrix, output: int, baseline: Row | None, with_sd: bool) -> dict[Term, Local]:
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
        return result

    def _add_remainder(
        self, remainder: Remainder, result: dict[Term, Local], x: Matrix, output: int, baseline: Row | None
    ) -> None:
        mean, sd = remainder.part(x, *self.terms.moments(x), output)
        if baseline is not None:
            # a difference from the row too: what the remainder is there goes to the constant
            at = remainder.part(baseline[None], *self.terms.moments(baseline[None]), output)[0]
            mean, result[()] = mean - at, result[()]._replace(mean=result[()].mean + at)
        result[remainder.everything] = Local(remainder.everything, mean, sd)

    def _rng(self, output: int, *more: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, output, *more])


class NetworkPosterior(NamedTuple):
    """A network, with rows that stand for the marginals of its inputs."""

    network: Network
    rows: Float[np.ndarray, "m p"]
    seed: int
    scheme: str
    widths: tuple[int, ...]  # d¹, …, d^L
    options: Mapping[str, object] = MappingProxyType({})  # of the scheme
    together: RowsTogether | None = None  # rows as they go together; files keep no rows, and have none

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

    @property
    def measures(self) -> tuple[Measure, ...]:
        over_rows = self.together is not None and can_be_regressed(self.network)
        return (Measure.PRODUCT, Measure.DATA) if over_rows else (Measure.PRODUCT,)

    def error(self, output: int, baseline: Row | None, measure: Measure) -> float:
        over_rows = self._over_rows(baseline, measure)
        return 0.0 if over_rows is None else float(over_rows.error[output])

    def _over_rows(self, baseline: Row | None, measure: Measure) -> Regressed | None:
        """The network as a sum of terms, if components over the rows are asked for."""
        if self.together is None or baseline is not None or measure is not Measure.DATA:
            return None
        with jax.enable_x64(True):
            n_draws = N_DRAWS if self.network.is_linear_in_v else N_NETWORK_DRAWS
            return self.together.regressed(in_double_precision(self.network), self.seed, n_draws)

    def sizes(self, output: int, baseline: Row | None, measure: Measure = Measure.PRODUCT) -> dict[Term, Sizes]:
        if (own := self._over_rows(baseline, measure)) is not None:
            return TermsPosterior(own.terms, self.seed).sizes(output, baseline, measure)
        effects = decompose(self.network, self.rows, key=jr.key(self.seed), baseline=baseline, output=output)
        return sizes_apart({term: effect.strengths for term, effect in effects.items() if term})

    def splits(
        self, output: int, baseline: Row | None, measure: Measure = Measure.PRODUCT
    ) -> dict[tuple[Term, ...], Sizes]:
        own = self._over_rows(baseline, measure)
        return {} if own is None else TermsPosterior(own.terms, self.seed).splits(output, baseline, measure)

    def curve(
        self, term: Term, points: Points, output: int, baseline: Row | None, measure: Measure = Measure.PRODUCT
    ) -> Effect:
        if (own := self._over_rows(baseline, measure)) is not None:
            return TermsPosterior(own.terms, self.seed).curve(term, points, output, baseline, measure)
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

    def local(
        self,
        x: Matrix,
        output: int,
        baseline: Row | None,
        measure: Measure = Measure.PRODUCT,
        *,
        with_sd: bool = False,
    ) -> dict[Term, Local]:
        if (own := self._over_rows(baseline, measure)) is not None:
            result = TermsPosterior(own.terms, self.seed).local(x, output, baseline, measure, with_sd=with_sd)
            # what the regression misses of a row goes to the constant, so that parts sum to the prediction
            missed = self.mean(x)[:, output] - sum((part.mean for part in result.values()), start=np.zeros(len(x)))
            result[()] = result[()]._replace(mean=result[()].mean + missed)
            return result
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
