"""The posterior of f behind an estimator: a sum of terms in closed form, a network, or networks that are averaged.

All read rows of numbers and say what f is there, with draws; a sum of terms and a network also what its terms are: how
strong, at points, at a row. What a sum of terms leaves out can be added by networks, its `remainder`. A network's is in
`network_posterior`, averaged ones' in `ensemble`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from vertebra.effects.effect import N_DRAWS, Effect, Local, Matrix, Outputs, Sizes, sizes_apart
from vertebra.machine.later import later
from vertebra.terms.components import Components
from vertebra.terms.joint import Measure
from vertebra.terms.splits import sum_of_squares, undetermined
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

if TYPE_CHECKING:
    from vertebra.effects import pieces
    from vertebra.effects.ensemble import Remainder
    from vertebra.effects.pieces import Source, TermsSource
    from vertebra.networks.network import Network
else:
    Network = Remainder = Source = TermsSource = object  # they come with JAX, which terms do without
    pieces = later("vertebra.effects.pieces")

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
        return pieces.TermsSource(self.terms, self.seed)

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
