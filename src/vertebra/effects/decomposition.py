"""The functional ANOVA of f: main effects and interactions of any order, each a function with its posterior.

I_T = Π_{i∈T}(Id − E_i) Π_{j∉T} E_j f, eq. (3) of the paper, under the product of the inputs' marginals. Where f is a
sum of sub-networks, each is evaluated on a grid of its own cluster only (Theorem 4), and means along axes are exact.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast, overload

import numpy as np
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from vertebra.effects.effect import N_DRAWS, N_NETWORK_DRAWS, Effect, Local
from vertebra.effects.grid import NODES, Axis, axes_of, components, outer, product, subsets
from vertebra.effects.members import EnsembleSource, LaplaceSource
from vertebra.effects.pieces import FittedEstimator, NetworkSource, Pieces, Source
from vertebra.inference.arguments import as_networks
from vertebra.inference.laplace import LinearisedLaplace
from vertebra.networks.network import Network
from vertebra.tables.schema import TableLike
from vertebra.terms.term import Term

# What can be taken apart.
Decomposed = Network | Sequence[Network] | LinearisedLaplace | FittedEstimator
# A cluster's grid larger than this is sampled instead: a round number, some seconds of a network's evaluations.
MAX_GRID = 200_000
# Points at rows, times nodes of the other inputs, that are made at once: a round number that bounds memory.
MOST_POINTS = 65536
# Rows of other inputs drawn for a sampled estimate (round: an error of 4 % of their spread), and the highest order it
# goes to unless asked: the number of terms of the third is out of reach where a grid is.
N_SAMPLED, SAMPLED_ORDER = 512, 2


@overload
def decompose(
    network: Decomposed,
    x: TableLike,
    *,
    key: PRNGKeyArray | None = None,
    order: int | None = None,
    terms: Iterable[Term] | None = None,
    weight: ArrayLike | None = None,
    baseline: TableLike = None,
    nodes: int | None = None,
    points: int | Mapping[int, np.ndarray] | None = None,
    output: int = 0,
    n_draws: int | None = None,
) -> dict[Term, Effect]: ...
@overload
def decompose(
    network: Decomposed,
    x: TableLike,
    *,
    key: PRNGKeyArray | None = None,
    order: int | None = None,
    terms: Iterable[Term] | None = None,
    weight: ArrayLike | None = None,
    baseline: TableLike = None,
    nodes: int | None = None,
    points: int | Mapping[int, np.ndarray] | None = None,
    output: None,
    n_draws: int | None = None,
) -> list[dict[Term, Effect]]: ...
def decompose(
    network: Decomposed,
    x: TableLike,
    *,
    key: PRNGKeyArray | None = None,
    order: int | None = None,
    terms: Iterable[Term] | None = None,
    weight: ArrayLike | None = None,
    baseline: TableLike = None,
    nodes: int | None = None,
    points: int | Mapping[int, np.ndarray] | None = None,
    output: int | None = 0,
    n_draws: int | None = None,
) -> dict[Term, Effect] | list[dict[Term, Effect]]:
    """Every component of f up to `order` (all there are unless given), strongest first; () is the constant.

    - `network`: any network, whose weights are drawn with `key`; several of one shape, an ensemble or draws of a
      sampler, which share the draws out evenly; what `vb.linearised_laplace` gives, by draws of f linearised; or a
      fitted estimator, which has a seed of its own.
    - `x` (n, p) gives the marginals, `weight` (n,) a weight per row, `baseline` (p,) the paper's δ(x⁰): components are
      then differences from that row.
    - `nodes`: points per input that carry the measure: Gauss nodes of the marginal, or all its values where these are
      no more. By default 40, 20, 12 or 8 as the largest cluster reading the input has 1, 2, 3 or 4 inputs.
    - `points`: so many further points between the extremes of each input, to look at; or those of some inputs.
    - `terms`: only these.
    - `output`: which of several outputs, or latent functions; None for a list of all of them, of the same draws.
    - `n_draws`: 1000 where f is linear in the uncertain weights and a draw costs nothing, else 200.

    An estimator takes `x` and `baseline` as tables; inputs are then places of its columns, and points and values those
    that it works with: numbers standardised, levels by their places, f in sds of the target. `model.effect` says the
    same in the user's units. The terms of the default model are components under the marginals of its own fit, so that
    `x` only says where to look and what strengths are averaged over. Its remainder, where it has one, stays out.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> effects = vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1))
    >>> sorted(effects)
    [(), (0,), (0, 1), (1,), (2,)]
    """
    source, table = _source(network)
    if n_draws is None:
        n_draws = N_DRAWS if source.is_linear else N_NETWORK_DRAWS
    anchor = None if baseline is None else table(baseline)
    given = _checked(source, table(x), weight, anchor, 0 if output is None else output, n_draws)
    wanted = None if terms is None else {tuple(sorted(term)) for term in terms}
    every = range(source.n_outputs) if output is None else [output]
    found = []
    for each in every:
        f = source.pieces(each, key, n_draws)
        axes = axes_of(f.clusters, *given, nodes, points, source.categories)
        found.append(_decomposed(f, axes, given, order, wanted))
    return found if output is None else found[0]


def attribute(
    network: Decomposed,
    rows: TableLike,
    x: TableLike,
    *,
    key: PRNGKeyArray | None = None,
    weight: ArrayLike | None = None,
    baseline: TableLike = None,
    nodes: int | None = None,
    output: int = 0,
    n_draws: int = 100,
    with_sd: bool = True,
) -> dict[Term, Local]:
    """The local decomposition: what each term adds at each of `rows`; the means sum to the prediction.

    Of a network or a fitted estimator, as `decompose` takes them. Without `with_sd` the sd is not worked out, and NaN.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> x = np.random.default_rng(0).random((50, 3))
    >>> local = vb.attribute(network, x[:2], x, key=jr.key(1))
    >>> np.allclose(sum(part.mean for part in local.values()), network.mean(jnp.asarray(x[:2].T)), atol=1e-4)
    True
    """
    source, table = _source(network)
    given = _checked(source, table(x), weight, None if baseline is None else table(baseline), output, n_draws)
    f = source.pieces(output, key, n_draws)
    axes = axes_of(f.clusters, *given, nodes, None, source.categories)
    at = table(rows)
    parts: dict[Term, list[tuple[int, np.ndarray]]] = {}
    for piece in f.pieces:
        cluster = f.clusters[piece]
        if f.is_pure and given.baseline is None:
            parts.setdefault(cluster, []).append((piece, f.values(piece, at[:, list(cluster)])))
            continue
        if len(cluster) > max(NODES):
            raise ValueError(
                f"The sub-network of the inputs {cluster} reads {len(cluster)}: a local decomposition of more than "
                f"{max(NODES)} inputs would take too many evaluations."
            )
        averages = {term: _average_at(f, piece, term, at, axes) for term in subsets(cluster)}
        for term in averages:
            # I_T = Σ_{S⊆T} (−1)^{|T|−|S|} E[f | x_S]
            lower = [(-1) ** (len(term) - len(s)) * averages[s] for s in subsets(term)]
            parts.setdefault(term, []).append((piece, sum(lower, start=np.zeros(()))))
    local = {}
    for term, own in parts.items():
        if with_sd:
            mean, sd, _ = f.posterior(own, with_draws=False)
        else:
            mean = sum((f.mean(*part) for part in own), start=np.zeros(len(at)))
            sd = np.full(len(at), np.nan)
        local[term] = Local(term, mean, sd)
    return local


def _source(network: Decomposed) -> tuple[Source, Callable[[TableLike], Float[np.ndarray, "..."]]]:
    """What is taken apart, and how tables become what it reads."""
    if isinstance(network, Network):
        return NetworkSource(network), lambda rows: np.asarray(rows, dtype=float)
    if isinstance(network, Sequence):
        return EnsembleSource(tuple(as_networks(network))), lambda rows: np.asarray(rows, dtype=float)
    if isinstance(network, LinearisedLaplace):
        return LaplaceSource(network), lambda rows: np.asarray(rows, dtype=float)
    source = network.model_.posterior.source if isinstance(network, FittedEstimator) else None
    if not isinstance(network, FittedEstimator) or source is None:
        raise ValueError(
            "`network` must be a network, several of one shape, or a fitted estimator whose f is a sum of terms or one "
            "network, got "
            f"{type(network).__name__}."
        )
    model = network.model_

    def table(rows: TableLike) -> Float[np.ndarray, "..."]:
        is_row = not hasattr(rows, "columns") and np.asarray(rows).ndim == 1
        return model.x(np.asarray(rows, dtype=object).reshape(1, -1))[0] if is_row else model.x(rows)

    return source, table


class _Measure(NamedTuple):
    """Rows whose marginals are averaged over, their weights, and the row that components are differences from."""

    rows: Float[np.ndarray, "n p"]
    weight: Float[np.ndarray, " n"]
    baseline: Float[np.ndarray, " p"] | None


class _Part(NamedTuple):
    """What a piece of f adds to a component: values on its grid, and their standard error where they were sampled."""

    piece: int
    values: Float[np.ndarray, "leading *grid"]
    error: float


def _decomposed(
    f: Pieces, axes: list[Axis], given: _Measure, order: int | None, wanted: Collection[Term] | None
) -> dict[Term, Effect]:
    """The components of one output, strongest first."""
    parts: dict[Term, list[_Part]] = {}
    for piece in f.pieces:
        cluster = f.clusters[piece]
        inside = None if wanted is None else [t for t in wanted if set(t) <= set(cluster)]
        if inside is None or inside:
            for term, part in _parts(f, piece, axes, given, order, inside).items():
                parts.setdefault(term, []).append(part)
    effects = [_effect(f, term, own, axes) for term, own in parts.items()]
    return {e.term: e for e in sorted(effects, key=lambda e: (bool(e.term), -e.strength))}


def _parts(
    f: Pieces, piece: int, axes: list[Axis], given: _Measure, order: int | None, inside: Collection[Term] | None
) -> dict[Term, _Part]:
    """A piece's components up to an order, or those inside: on the grid of its inputs, or sampled."""
    cluster = f.clusters[piece]
    grid = [axes[i] for i in cluster]
    shape = [len(axis.points) for axis in grid]
    is_pure = f.is_pure and given.baseline is None
    if is_pure and ((order is not None and len(cluster) > order) or (inside is not None and cluster not in inside)):
        return {}
    if math.prod(shape) > MAX_GRID and not is_pure:
        return _sampled(f, piece, axes, given, SAMPLED_ORDER if order is None else order, inside)
    values = f.values(piece, product([axis.points for axis in grid]))
    values = values.reshape(len(values), *shape)
    found = {cluster: values} if is_pure else components(values, grid, order, inside, cluster)
    return {term: _Part(piece, component, 0.0) for term, component in found.items()}


def _average_at(
    f: Pieces, piece: int, term: Term, at: Float[np.ndarray, "n p"], axes: list[Axis]
) -> Float[np.ndarray, "leading n"]:
    """E[g | x_T] of a piece g at rows: its other inputs averaged over their nodes."""
    cluster = f.clusters[piece]
    others = [axes[i] for i in cluster if i not in term]
    n_rows = len(at) if term else 1
    carrying = [axis.average != 0.0 for axis in others]
    inner = product([axis.points[own] for axis, own in zip(others, carrying, strict=True)])
    measure = outer([axis.average[own] for axis, own in zip(others, carrying, strict=True)]).ravel()
    parts = []
    step = max(1, MOST_POINTS // len(inner))
    for start in range(0, n_rows, step):
        rows = at[start : start + step] if term else at[:1]
        points = np.empty((len(rows), len(inner), len(cluster)))
        free = 0
        for position, i in enumerate(cluster):
            if i in term:
                points[:, :, position] = rows[:, i, None]
            else:
                points[:, :, position] = inner[None, :, free]
                free += 1
        values = f.values(piece, points.reshape(len(rows) * len(inner), len(cluster)), pad=True)
        parts.append(values.reshape(len(values), len(rows), len(inner)) @ measure)
    values = np.concatenate(parts, axis=1)
    return values if term else np.broadcast_to(values, (len(values), len(at)))


def _sampled(
    f: Pieces, piece: int, axes: list[Axis], given: _Measure, most: int, inside: Collection[Term] | None
) -> dict[Term, _Part]:
    """Components up to a low order where the grid is too large: the other inputs are drawn, not gridded.

    Rows of the other inputs come from the product of the marginals, the same for every point, so that differences are
    sharp. The error is the standard error over these rows of the component's value.
    """
    cluster, (rows, weight, anchor) = f.clusters[piece], given
    rng = np.random.default_rng(0)
    if anchor is None:
        share = weight / weight.sum()
        drawn = np.stack([rows[rng.choice(len(rows), N_SAMPLED, p=share), i] for i in cluster], axis=1)
    else:
        drawn = anchor[None, list(cluster)]
    terms = subsets(cluster, most) if inside is None else {s for t in inside for s in subsets(t)}
    averages, errors = {}, {}
    for term in terms:
        grid = [axes[i] for i in term]
        points = product([axis.points for axis in grid])
        everywhere = np.repeat(drawn[None], len(points), axis=0)
        for position, i in enumerate(term):
            everywhere[:, :, cluster.index(i)] = points[:, None, position]
        values = f.values(piece, everywhere.reshape(-1, len(cluster)))
        values = values.reshape(len(values), *(len(a.points) for a in grid), len(drawn))
        averages[term], errors[term] = values.mean(axis=-1), _standard_error(f.mean(piece, values))
    wanted = terms if inside is None else inside
    return {term: _Part(piece, _difference(term, averages, axes), errors[term]) for term in wanted}


def _difference(
    term: Term, averages: Mapping[Term, Float[np.ndarray, "leading ..."]], axes: list[Axis]
) -> Float[np.ndarray, "leading *grid"]:
    """I_T from E[g | x_S] for S ⊆ T."""
    full = np.zeros(())
    for lower in subsets(term):
        part = averages[lower]
        for position, i in enumerate(term):
            if i not in lower:
                part = np.expand_dims(part, 1 + position)
        full = full + (-1) ** (len(term) - len(lower)) * part
    # the sampled means are not exactly centred under the axes' measure: make them so
    for position, i in enumerate(term):
        full = full - np.expand_dims(np.tensordot(full, axes[i].average, axes=(1 + position, 0)), 1 + position)
    return np.broadcast_to(full, (len(averages[term]), *(len(axes[i].points) for i in term)))


def _standard_error(values: Float[np.ndarray, "*grid n"]) -> float:
    """The standard error, over the sampled rows, of the mean at a typical point."""
    return float(np.sqrt(np.mean(values.var(axis=-1)) / values.shape[-1]))


def _effect(f: Pieces, term: Term, parts: Sequence[_Part], axes: list[Axis]) -> Effect:
    mean, sd, draws = f.posterior([(part.piece, part.values) for part in parts], with_draws=True)
    error = math.sqrt(sum(part.error**2 for part in parts))
    return Effect(term, tuple(axes[i] for i in term), mean, sd, cast(np.ndarray, draws), error)


def _checked(source: Source, rows: Float[np.ndarray, "..."], weight, anchor, output: int, n_draws: int) -> _Measure:
    p = source.n_inputs
    if rows.ndim != 2 or rows.shape[1] != p or not len(rows):
        raise ValueError(f"`x` must have the shape (n, {p}) with at least one row, got {rows.shape}.")
    if not (np.isfinite(rows) | (source.reads_gaps & np.isnan(rows))).all():
        raise ValueError("`x` must be finite, got missing or infinite values.")
    weights = np.ones(len(rows)) if weight is None else np.asarray(weight, dtype=float)
    if weights.shape != (len(rows),) or (weights < 0).any() or not weights.any():
        raise ValueError(f"`weight` must have one weight per row, {len(rows)}, none negative and not all 0.")
    if anchor is not None and anchor.shape != (p,):
        raise ValueError(f"`baseline` must be one row of {p} values, got the shape {anchor.shape}.")
    if not 0 <= output < source.n_outputs:
        raise ValueError(f"`output` must be from 0 to {source.n_outputs - 1}, got {output!r}.")
    if n_draws < 2:
        raise ValueError(f"`n_draws` must be at least 2, got {n_draws!r}.")
    return _Measure(rows, weights, anchor)
