"""The posterior of f that is a network's."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from vertebra.effects.decomposition import attribute, decompose
from vertebra.effects.effect import N_DRAWS, N_NETWORK_DRAWS, Effect, Local, Matrix, Outputs, Sizes, sizes_apart
from vertebra.effects.pieces import FittedEstimator, NetworkSource
from vertebra.effects.posterior import Points, Posterior, Row, TermsPosterior
from vertebra.effects.regression import Regressed, RowsTogether, can_be_regressed
from vertebra.inference.draws import moments, sample
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_double_precision
from vertebra.terms.block import network_of
from vertebra.terms.joint import Measure
from vertebra.terms.term import Term


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
