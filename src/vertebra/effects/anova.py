"""The functional ANOVA of a network: main effects and interactions of any order, each a function with its posterior.

I_T = Π_{i∈T}(Id − E_i) Π_{j∉T} E_j f, eq. (3) of the paper, under the product of the inputs' marginals. Where f is a
sum of sub-networks, each is evaluated on a grid of its own cluster only (Theorem 4), and means along axes are exact.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from vertebra.effects import notebook as display
from vertebra.networks.keys import fast
from vertebra.networks.network import Network
from vertebra.networks.parameters import working
from vertebra.terms.polynomials import gauss_rule
from vertebra.terms.term import Term

# Nodes per input, by the size of the largest cluster that reads it: polynomials to twice the degree are exact.
NODES = {1: 40, 2: 20, 3: 12, 4: 8}
# A cluster's grid larger than this is sampled instead.
MAX_GRID = 200_000
# Points evaluated at once.
CHUNK = 16384
# Rows of other inputs drawn for a sampled estimate, and the highest order it goes to unless asked.
N_SAMPLED, SAMPLED_ORDER = 512, 2


class Axis(NamedTuple):
    """Points of one input: `average` is the measure of E_i, `norm` that of the strength; points to look at: none."""

    points: Float[np.ndarray, " m"]
    average: Float[np.ndarray, " m"]
    norm: Float[np.ndarray, " m"]


class Effect(NamedTuple):
    """I_T on a grid, with its posterior: exact mean and sd where f is linear in the uncertain weights, and draws.

    `error` is the Monte Carlo standard error of the mean where the cluster was too large for a grid, else 0.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> effect = vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1))[0, 1]
    >>> effect.mean.shape, effect.draws.shape
    ((20, 20), (1000, 20, 20))
    >>> lower, upper = effect.band(simultaneous=True)
    """

    term: Term
    axes: tuple[Axis, ...]
    mean: Float[np.ndarray, "*grid"]
    sd: Float[np.ndarray, "*grid"]
    draws: Float[np.ndarray, "draws *grid"]
    error: float

    @property
    def weight(self) -> Float[np.ndarray, "*grid"]:
        """The product of the marginals on the grid."""
        return _outer([axis.norm for axis in self.axes])

    @property
    def strengths(self) -> Float[np.ndarray, " draws"]:
        """‖I_T‖₂ of each draw."""
        flat = self.draws.reshape(len(self.draws), -1)
        return np.sqrt(np.maximum(flat**2 @ self.weight.ravel(), 0.0))

    @property
    def strength(self) -> float:
        """The posterior mean of ‖I_T‖₂."""
        return float(self.strengths.mean())

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """An equal-tailed interval of the strength."""
        tail = 50.0 * (1.0 - level)
        low, high = np.percentile(self.strengths, [tail, 100.0 - tail])
        return float(low), float(high)

    def _repr_html_(self) -> str:
        label = " × ".join(f"x{i}" for i in self.term) or "the constant"
        return display.effect(
            label,
            self.strength,
            self.interval(),
            [axis.points for axis in self.axes],
            np.asarray(self.mean),
            np.asarray(self.sd),
        )

    def band(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[Float[np.ndarray, "*grid"], Float[np.ndarray, "*grid"]]:
        """mean ± c·sd: c for each point alone, or so that the whole function lies inside with that probability."""
        return band_of(self.mean, self.sd, self.draws, level, simultaneous=simultaneous)


def band_of(
    mean: Float[np.ndarray, "*grid"],
    sd: Float[np.ndarray, "*grid"],
    draws: Float[np.ndarray, "draws *grid"],
    level: float,
    *,
    simultaneous: bool = False,
) -> tuple[Float[np.ndarray, "*grid"], Float[np.ndarray, "*grid"]]:
    """mean ± c·sd, c from draws: for each point alone, or so that a whole draw lies inside with that probability."""
    away = np.abs(draws - mean) / np.maximum(sd, 1e-300)
    worst = away.reshape(len(away), -1).max(axis=1) if simultaneous else away.reshape(-1)
    factor = float(np.quantile(worst, level))
    return mean - factor * sd, mean + factor * sd


class Local(NamedTuple):
    """I_T at the given rows: what the term adds to each prediction."""

    term: Term
    mean: Float[np.ndarray, " n"]
    sd: Float[np.ndarray, " n"]


def decompose(
    network: Network,
    x: ArrayLike,
    *,
    key: PRNGKeyArray,
    order: int | None = None,
    terms: Iterable[Term] | None = None,
    weight: ArrayLike | None = None,
    baseline: ArrayLike | None = None,
    nodes: int | None = None,
    points: int | Mapping[int, np.ndarray] | None = None,
    output: int = 0,
    n_draws: int | None = None,
) -> dict[Term, Effect]:
    """Every component of f up to `order` (all there are unless given), strongest first; () is the constant.

    - `x` (n, p) gives the marginals, `weight` (n,) a weight per row, `baseline` (p,) the paper's δ(x⁰): components are
      then differences from that row.
    - `nodes`: points per input that carry the measure: Gauss nodes of the marginal, or all its values where these are
      no more. By default 40, 20, 12 or 8 as the largest cluster reading the input has 1, 2, 3 or 4 inputs.
    - `points`: so many further points between the extremes of each input, to look at; or those of some inputs.
    - `terms`: only these.
    - `output`: which of several outputs, or latent functions.
    - `n_draws`: 1000 where f is linear in the uncertain weights and a draw costs nothing, else 200.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> effects = vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1))
    >>> sorted(effects)
    [(), (0,), (0, 1), (1,), (2,)]
    """
    if n_draws is None:
        n_draws = 1000 if network.is_linear_in_v else 200
    rows, weights, anchor = _checked(network, x, weight, baseline, output, n_draws)
    axes = _axes(network, rows, weights, anchor, nodes, points)
    wanted = None if terms is None else {tuple(sorted(term)) for term in terms}
    parts: dict[Term, list] = {}
    source = _source(network, output, key, n_draws)
    for node in source.nodes:
        cluster = network.skeleton.clusters[node]
        inside = None if wanted is None else [t for t in wanted if set(t) <= set(cluster)]
        if inside is not None and not inside:
            continue
        grid = [axes[i] for i in cluster]
        if math.prod(len(axis.points) for axis in grid) <= MAX_GRID:
            values = source.values(node, _product([a.points for a in grid]))
            components = _components(
                values.reshape(len(values), *(len(a.points) for a in grid)), grid, order, inside, cluster
            )
            errors = dict.fromkeys(components, 0.0)
        else:
            components, errors = _sampled(source, node, cluster, axes, rows, weights, anchor, order, inside)
        for term, component in components.items():
            parts.setdefault(term, []).append((node, component, errors[term]))
    effects = [_effect(source, term, pieces, axes) for term, pieces in parts.items()]
    return {e.term: e for e in sorted(effects, key=lambda e: (bool(e.term), -e.strength))}


class Sobol(NamedTuple):
    """Shares of the variance of f, posterior means: of an input's main effect, and of all terms with it."""

    first: float
    total: float


def sobol(effects: dict[Term, Effect]) -> dict[int, Sobol]:
    """First-order and total shares of every input, from effects of all orders under the product of the marginals.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> shares = vb.sobol(vb.decompose(network, np.random.default_rng(0).random((50, 3)), key=jr.key(1)))
    >>> [i for i, share in shares.items() if share.total > share.first]  # x2 acts by itself
    [0, 1]
    """
    squares = {term: effect.strengths**2 for term, effect in effects.items() if term}
    if not squares:
        return {}
    variance = np.maximum(sum(squares.values(), start=np.zeros(())), 1e-300)
    shares = {}
    for i in sorted({i for term in squares for i in term}):
        first = squares.get((i,), np.zeros(()))
        total = sum((s for term, s in squares.items() if i in term), start=np.zeros(()))
        shares[i] = Sobol(float(np.mean(first / variance)), float(np.mean(total / variance)))
    return shares


def attribute(
    network: Network,
    rows: ArrayLike,
    x: ArrayLike,
    *,
    key: PRNGKeyArray,
    weight: ArrayLike | None = None,
    baseline: ArrayLike | None = None,
    nodes: int | None = None,
    output: int = 0,
    n_draws: int = 100,
) -> dict[Term, Local]:
    """The local decomposition: what each term adds at each of `rows`; the means sum to the prediction.

    >>> network = vb.build(vb.additive(3, clusters=[(0, 1), (2,)], depth=1), vb.random_features([1]), key=jr.key(0))
    >>> x = np.random.default_rng(0).random((50, 3))
    >>> local = vb.attribute(network, x[:2], x, key=jr.key(1))
    >>> np.allclose(sum(part.mean for part in local.values()), network.mean(jnp.asarray(x[:2].T)), atol=1e-4)
    True
    """
    data, weights, anchor = _checked(network, x, weight, baseline, output, n_draws)
    at = np.asarray(rows, dtype=float)
    axes = _axes(network, data, weights, anchor, nodes, None)
    source = _source(network, output, key, n_draws)
    parts: dict[Term, list] = {}
    for node in source.nodes:
        cluster = network.skeleton.clusters[node]
        if len(cluster) > max(NODES):
            raise ValueError(
                f"The sub-network of the inputs {cluster} reads {len(cluster)}: a local decomposition of more than "
                f"{max(NODES)} inputs would take too many evaluations."
            )
        averages = {}
        for term in _subsets(cluster, None):
            others = [axes[i] for i in cluster if i not in term]
            averages[term] = _average_at(source, node, cluster, term, at, others)
        for term in averages:
            # I_T = Σ_{S⊆T} (−1)^{|T|−|S|} E[f | x_S]
            lower = [(-1) ** (len(term) - len(s)) * averages[s] for s in _subsets(term, None)]
            parts.setdefault(term, []).append((node, sum(lower), 0.0))
    local = {}
    for term, pieces in parts.items():
        mean, sd, _ = source.posterior(pieces, with_draws=False)
        local[term] = Local(term, mean, sd)
    return local


# --- values on grids --------------------------------------------------------------------------------------------------
# A sub-network's values have a leading axis: its features where f is linear in V (the offset last), else draws.


class _Source(NamedTuple):
    """Where values come from: a network, one of its outputs, and draws of the weights where f is not linear in them."""

    network: Network
    output: int
    drawn: list | None  # draws of every V, or None where the posterior is in closed form
    n_draws: int
    seed: list[int]

    @property
    def width(self) -> int:
        """Replicates per output node."""
        return self.network.n_outputs // len(self.network.skeleton.outputs)

    @property
    def column(self) -> int:
        return self.output % self.width

    @property
    def nodes(self) -> tuple[int, ...]:
        """The top nodes that the output adds."""
        return self.network.skeleton.output_parents[self.output // self.width]

    def values(self, node: int, points: np.ndarray, *, pad: bool = False) -> np.ndarray:
        """One sub-network at points (m, |T|) of its own inputs: (features + 1 or draws, m).

        `pad` evaluates a whole chunk each time, so that another number of points needs no other program.
        """
        sub = self.network.subnetwork(node)
        chunks = []
        for start in range(0, len(points), CHUNK):
            chunk = points[start : start + CHUNK]
            size = CHUNK if pad or len(points) > CHUNK else len(chunk)
            columns = working(np.concatenate([chunk, np.repeat(chunk[-1:], size - len(chunk), axis=0)]).T)
            if self.drawn is None:
                values = np.asarray(_features(sub, columns))
                n_features = len(values) - self.width
                values = np.concatenate([values[:n_features], values[n_features + self.column :][:1]])
            else:
                levels = self.network.skeleton.ancestors(node)[1:]
                values = _at_draws(sub, self.drawn, levels, columns, self.column)
            chunks.append(np.asarray(values, dtype=np.float64)[:, : len(chunk)])
        return np.concatenate(chunks, axis=1)

    def mean(self, node: int, values: np.ndarray) -> np.ndarray:
        """The posterior mean of a sub-network's values."""
        if self.drawn is not None:
            return values.mean(axis=0)
        v = np.asarray(self.network.stacks[-1].mean_weights(), np.float64)[node, self.column]
        return np.tensordot(v, values[:-1], axes=1) + values[-1]

    def posterior(self, pieces, *, with_draws: bool):
        """Mean, sd and draws of a sum over sub-networks of components, (node, values, error) each."""
        if self.drawn is not None:
            total = np.sum([values for _, values, _ in pieces], axis=0)
            return total.mean(axis=0), total.std(axis=0), total
        shape = pieces[0][1].shape[1:]
        psi = np.concatenate([values[:-1].reshape(len(values) - 1, -1) for _, values, _ in pieces])
        offset = sum(values[-1].reshape(-1) for _, values, _ in pieces)
        mean_v, root = _joint(self.network, tuple(node for node, *_ in pieces), self.output, self.width)
        mean, spread = psi.T @ mean_v + offset, psi.T @ root
        sd = np.sqrt(np.sum(spread**2, axis=1))
        draws = None
        if with_draws:
            noise = np.random.default_rng(self.seed).standard_normal((root.shape[1], self.n_draws))
            draws = (mean[:, None] + spread @ noise).T.reshape(self.n_draws, *shape)
        return mean.reshape(shape), sd.reshape(shape), draws


def _source(network, output, key, n_draws) -> _Source:
    linear = network.is_linear_in_v
    drawn = None if linear else _weights(network, jr.split(fast(key), n_draws))
    return _Source(network, output, drawn, n_draws, np.asarray(jr.key_data(key)).ravel().tolist())


@eqx.filter_jit
def _features(sub, x):
    phi, offset, _ = sub.top_features(x)
    return jnp.concatenate([phi[0], offset])


@eqx.filter_jit
def _weights(network, keys):
    return jax.vmap(network.stack_weights)(keys)


@eqx.filter_jit
def _at_draws(sub, drawn, levels, x, column):
    def at(weights):
        own = [w[jnp.asarray(nodes)] for w, nodes in zip(weights, levels, strict=True)]
        stacks = tuple(stack.at(v) for stack, v in zip(sub.stacks, own, strict=True))
        return Network(sub.skeleton, stacks).mean(x)[column]

    return jax.lax.map(at, drawn)


def _components(values, grid, order, inside, cluster):
    """Every I_T of the cluster's function by means along axes: values (leading, m_1, …, m_k) to arrays over T."""
    parts = {(): values}
    for i, axis in zip(cluster, grid, strict=True):
        split = {}
        for term, array in parts.items():
            # the axis of input i is the first after those kept
            place = 1 + len(term)
            average = np.tensordot(array, axis.average, axes=(place, 0))
            split[term] = average
            if (order is None or len(term) < order) and (inside is None or any({*term, i} <= set(t) for t in inside)):
                split[(*term, i)] = array - np.expand_dims(average, place)
        parts = split
    return parts if inside is None else {t: parts[t] for t in inside}


def _average_at(source, node, cluster, term, at, others):
    """E[g | x_T] at rows: the other inputs of the cluster averaged over their nodes."""
    n_rows = len(at) if term else 1
    inner = _product([axis.points for axis in others])
    measure = _outer([axis.average for axis in others]).ravel()
    parts = []
    step = max(1, 65536 // len(inner))
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
        values = source.values(node, points.reshape(-1, len(cluster)), pad=True)
        parts.append(values.reshape(len(values), len(rows), len(inner)) @ measure)
    values = np.concatenate(parts, axis=1)
    return values if term else np.broadcast_to(values, (len(values), len(at)))


def _sampled(source, node, cluster, axes, rows, weights, anchor, order, inside):
    """Components up to a low order where the grid is too large: the other inputs are drawn, not gridded.

    Rows of the other inputs come from the product of the marginals, the same for every point, so that differences are
    sharp. The error is the standard error over these rows of the component's value.
    """
    most = SAMPLED_ORDER if order is None else order
    rng = np.random.default_rng(0)
    if anchor is None:
        probabilities = weights / weights.sum()
        drawn = np.stack([rows[rng.choice(len(rows), N_SAMPLED, p=probabilities), i] for i in cluster], axis=1)
    else:
        drawn = anchor[None, list(cluster)]
    terms = _subsets(cluster, most) if inside is None else {s for t in inside for s in _subsets(t, None)}
    given, spread = {}, {}
    for term in terms:
        grid = [axes[i] for i in term]
        points = _product([axis.points for axis in grid])
        everywhere = np.repeat(drawn[None], len(points), axis=0)
        for position, i in enumerate(term):
            everywhere[:, :, cluster.index(i)] = points[:, None, position]
        values = source.values(node, everywhere.reshape(-1, len(cluster)))
        values = values.reshape(len(values), *(len(a.points) for a in grid), len(drawn))
        given[term], spread[term] = values.mean(axis=-1), values
    components, errors = {}, {}
    for term in terms:
        full = 0.0
        for lower in _subsets(term, None):
            part = given[lower]
            for position, i in enumerate(term):
                if i not in lower:
                    part = np.expand_dims(part, 1 + position)
            full = full + (-1) ** (len(term) - len(lower)) * part
        # the sampled means are not exactly centred under the axes' measure: make them so
        for position, i in enumerate(term):
            full = full - np.expand_dims(np.tensordot(full, axes[i].average, axes=(1 + position, 0)), 1 + position)
        components[term] = np.broadcast_to(full, (len(given[term]), *(len(axes[i].points) for i in term)))
        errors[term] = _standard_error(source.mean(node, spread[term]))
    wanted = terms if inside is None else inside
    return {t: components[t] for t in wanted}, {t: errors[t] for t in wanted}


def _standard_error(values):
    """The standard error, over the sampled rows, of the mean at a typical point."""
    return float(np.sqrt(np.mean(values.var(axis=-1)) / values.shape[-1]))


# --- posteriors -------------------------------------------------------------------------------------------------------


def _effect(source, term, pieces, axes) -> Effect:
    mean, sd, draws = source.posterior(pieces, with_draws=True)
    error = math.sqrt(sum(error**2 for *_, error in pieces))
    return Effect(term, tuple(axes[i] for i in term), mean, sd, draws, error)


def _joint(network, nodes, output, width):
    """Mean of the top weights of some nodes, and R with Σ = R Rᵀ, for one output."""
    top = network.stacks[-1]
    q = top.function.posterior
    column = output % width
    mean = np.concatenate([np.asarray(top.mean_weights(), np.float64)[node, column] for node in nodes])
    if top.joint:
        block = output // width
        share = top.n_nodes // q.mean.shape[0]
        r = q.mean.shape[2] // share
        factor = np.asarray(jax.vmap(lambda c: c.factor)(q.covariance)[block, column], np.float64)
        first = block * share
        chosen = np.concatenate([np.arange((node - first) * r, (node - first + 1) * r) for node in nodes])
        return mean, factor.T[chosen]
    roots = [np.asarray(_root(q, node, column), np.float64) for node in nodes]
    size = sum(root.shape[1] for root in roots)
    joined, row, place = np.zeros((len(mean), size)), 0, 0
    for root in roots:
        joined[row : row + root.shape[0], place : place + root.shape[1]] = root
        row, place = row + root.shape[0], place + root.shape[1]
    return mean, joined


def _root(q, node, column):
    """R with Σ = R Rᵀ of one node and output."""
    return jax.tree.map(lambda leaf: leaf[node, column][None], q.covariance).square_root()[0]


# --- measures ---------------------------------------------------------------------------------------------------------


def _axes(network, rows, weights, anchor, nodes, points) -> list[Axis]:
    clusters = network.skeleton.clusters
    axes = []
    for i in range(rows.shape[1]):
        size = max((len(c) for c in clusters if i in c), default=1)
        n_nodes = NODES.get(size, 8) if nodes is None else nodes
        values, measure = gauss_rule(rows[:, i], weights, n_nodes)
        average = measure
        if anchor is not None:
            values = np.append(values, anchor[i])
            average, measure = np.append(np.zeros(len(measure)), 1.0), np.append(measure, 0.0)
        if points:
            if isinstance(points, Mapping):
                shown = np.asarray(points.get(i, np.zeros(0)), dtype=float)
            else:
                shown = np.linspace(rows[weights > 0, i].min(), rows[weights > 0, i].max(), points)
            values = np.concatenate([values, shown])
            average, measure = (np.concatenate([m, np.zeros(len(shown))]) for m in (average, measure))
        places = np.argsort(values, kind="stable")
        axes.append(Axis(values[places], average[places], measure[places]))
    return axes


def _checked(network, x, weight, baseline, output, n_draws):
    rows = np.asarray(x, dtype=float)
    p = network.skeleton.n_inputs
    if rows.ndim != 2 or rows.shape[1] != p or not len(rows):
        raise ValueError(f"`x` must have the shape (n, {p}) with at least one row, got {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError("`x` must be finite, got missing or infinite values.")
    weights = np.ones(len(rows)) if weight is None else np.asarray(weight, dtype=float)
    if weights.shape != (len(rows),) or (weights < 0).any() or not weights.any():
        raise ValueError(f"`weight` must have one weight per row, {len(rows)}, none negative and not all 0.")
    anchor = None if baseline is None else np.asarray(baseline, dtype=float)
    if anchor is not None and anchor.shape != (p,):
        raise ValueError(f"`baseline` must be one row of {p} values, got the shape {anchor.shape}.")
    if not 0 <= output < network.n_outputs:
        raise ValueError(f"`output` must be from 0 to {network.n_outputs - 1}, got {output!r}.")
    if n_draws < 2:
        raise ValueError(f"`n_draws` must be at least 2, got {n_draws!r}.")
    return rows, weights, anchor


def _subsets(term: Sequence[int], most: int | None) -> list[Term]:
    top = len(term) if most is None else min(most, len(term))
    return [s for k in range(top + 1) for s in itertools.combinations(term, k)]


def _product(points: list[np.ndarray]) -> np.ndarray:
    """All combinations, one row each, the last axis fastest."""
    if not points:
        return np.zeros((1, 0))
    return np.stack([grid.ravel() for grid in np.meshgrid(*points, indexing="ij")], axis=1)


def _outer(weights: list[np.ndarray]) -> np.ndarray:
    total = np.ones(())
    for weight in weights:
        total = total[..., None] * weight
    return total
