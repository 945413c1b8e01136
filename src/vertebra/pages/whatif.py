"""A fitted additive model as small tables, so that a page can predict without Python.

A prediction is a sum of products of functions of one input each. Every function is tabulated: at nodes between which
lines are drawn, or at the levels of a category. Uncertainty is a root of the coefficients' covariance with only so many
columns as the variance of f needs, in small whole numbers, which are packed well. Networks that add to the terms stay
out: they count as noise.
"""

import base64
import gzip
from typing import NamedTuple, cast

import jax.random as jr
import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline
from scipy.special import ndtri

from vertebra.effects.decomposition import decompose
from vertebra.effects.network_posterior import NetworkPosterior
from vertebra.likelihoods import Gaussian, HeteroscedasticGaussian, NegativeBinomial, StudentT
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.quadrature import gauss_hermite
from vertebra.machine.file import Record
from vertebra.models.conformal import half_width
from vertebra.models.model import Model
from vertebra.terms.components import Components
from vertebra.terms.joint import Measure
from vertebra.terms.sum_of_terms import SumOfTerms

# Nodes over the noise of a target that was fitted on another scale: as Python takes.
N_NOISE_NODES = 40
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
# Nodes of a number: of a basis of functions, and of a network by the size of the largest cluster that reads it.
N_NODES, N_NETWORK_NODES = 400, {1: 41, 2: 21, 3: 13}
# The share of the predictive variance that leaving columns of the root out may move, at rows of any values; the median
# over such rows is a thirtieth of it.
LEAST_SHARE = 5e-3
# Steps from 0 to the largest number of the root, and of a tabulated function. With 4,096 the root of 40 terms takes
# 0.5 MB and moves the variance by no more than columns left out do; a function is off by 1.5e-5 of its largest value.
N_STEPS, N_STEPS_OF_FUNCTIONS = 4096, 32767
N_ROWS = 2000
# Of these rows, the share with a missing value of an input, and with a level never seen.
SPECIAL_SHARE = 0.08
# Levels that a page offers of one category: the most frequent.
MOST_LEVELS = 300


class Tabulated(NamedTuple):
    """Functions of every input at its nodes, terms as products of them, and the posterior of their coefficients."""

    codes: list[Float[np.ndarray, " nodes"]]  # coded values; of a category its levels
    functions: list[Float[np.ndarray, "nodes k"]]
    special: list[Float[np.ndarray, "2 k"]]  # at a missing value, at an unseen level
    terms: list[tuple[tuple[int, ...], np.ndarray]]  # the places of its functions, a row per product
    means: list[Float[np.ndarray, " m1"]]  # of every latent function, the constant first
    roots: list[Float[np.ndarray, "m1 r"]]


def tables(model: Model, measure: Measure = Measure.DATA) -> Record:
    """All that a page needs to predict and to take predictions apart, as JSON can hold it."""
    if (terms := model.posterior.terms) is None:
        found = _of_network(model, cast(NetworkPosterior, model.posterior))
    else:
        found = _of_terms(model, terms, measure)
    rng = np.random.default_rng(0)
    features = _features(found, rng)
    outputs = []
    for k, (mean, root) in enumerate(zip(found.means, found.roots, strict=True)):
        whole, scale = _in_steps(_shortened(root, features, _least_variance(model, k)), features)
        kept = np.sum((features @ (scale[:, None] * whole)) ** 2, axis=1)
        rest = max(float(np.mean(np.sum((features @ root) ** 2, axis=1) - kept)), 0.0)
        packed = {"mean": _packed(mean, "<f8"), "root": _packed(whole, "<i2"), "scale": _packed(scale, "<f4")}
        outputs.append(packed | {"n_columns": whole.shape[1], "rest": rest})
    return {
        "inputs": [_input(model, i, found) for i in range(len(found.codes))],
        "terms": [{"inputs": list(term), "index": index.tolist()} for term, index in found.terms],
        "outputs": outputs,
        "likelihood": _likelihood(model),
        "levels": list(LEVELS),
        "conformal": _conformal(model),
    }


def _with_rest(model: Model, scale: Float[np.ndarray, "*k"]) -> Float[np.ndarray, " k"]:
    """The scale of noise, with what the page leaves out."""
    scale, remainder = np.atleast_1d(scale), model.posterior.remainder
    return scale if remainder is None else np.hypot(scale, remainder.size[:: model.likelihood.latent_per_target])


def _of_terms(model: Model, sum_of_terms: SumOfTerms, measure: Measure) -> Tabulated:
    basis = sum_of_terms.basis
    codes, functions, special = [], [], []
    for i, (column, system) in enumerate(zip(model.schema.columns, basis.systems, strict=True)):
        own = _codes(model, i, _n_nodes(model))
        if not column.levels and system.is_alive and not system.is_discrete:
            # where functions may bend
            bends = np.concatenate([system.knots, system.quantiles, [system.low, system.low + system.width]])
            own = np.unique(np.concatenate([own, np.clip(bends, own[0], own[-1])]))
        coded = np.full((len(own) + 2, len(basis.systems)), np.nan)
        coded[:, i] = np.append(own, [np.nan, -1.0 if column.levels else np.nan])
        values = system(model.encoding(coded)[:, i])
        codes.append(own)
        functions.append(values[:-2])
        special.append(values[-2:])
    if measure is Measure.PRODUCT or sum_of_terms.joint is None:
        terms = [(block.term, block.index) for block in basis.blocks]
        return Tabulated(codes, functions, special, terms, list(sum_of_terms.means), list(sum_of_terms.roots))
    view, means, roots = Components(sum_of_terms, sum_of_terms.joint), [], []
    for k in range(sum_of_terms.n_outputs):
        each = [view.weights((), k), *(view.of_products(term, k) for term in basis.terms)]
        means.append(np.concatenate([weights.mean for weights in each]))
        roots.append(np.concatenate([weights.root for weights in each]))
    return Tabulated(codes, functions, special, [(t, view.products(t)) for t in basis.terms], means, roots)


def _of_network(model: Model, posterior: NetworkPosterior) -> Tabulated:
    """Values on the grid of every term, and functions that are 1 at one node and 0 at the others."""
    names = model.names
    size = {i: max((len(c) for c in model.clusters if names[i] in c), default=1) for i in range(len(names))}
    codes, places, functions, special = [], [], [], []
    for i, column in enumerate(model.schema.columns):
        codes.append(_codes(model, i, _n_nodes(model)))
        own, table = codes[i], np.eye(len(codes[i]))
        n_nodes = N_NETWORK_NODES.get(size[i], 9)
        if not column.levels and np.ptp(own) > 0.0 and len(own) > n_nodes:
            own = np.linspace(own[0], own[-1], n_nodes)
            # the cubic spline that is 1 at one node and 0 at the others
            table = CubicSpline(own, np.eye(len(own)))(codes[i])
        coded = np.full((len(own) + 2, len(names)), np.nan)
        coded[:, i] = np.append(own, [np.nan, -1.0 if column.levels else np.nan])
        places.append(model.encoding(coded)[:, i])
        functions.append(table)
        special.append(np.eye(len(own) + 2)[-2:])
    terms, means, roots = [], [], []
    found = [
        decompose(posterior.network, posterior.rows, key=jr.key(posterior.seed), output=k)
        for k in range(posterior.n_outputs)
    ]
    for term in sorted((t for t in found[0] if t), key=lambda t: (len(t), t)):
        sizes = [len(places[i]) for i in term]
        terms.append((term, np.stack([g.ravel() for g in np.indices(sizes)], axis=1)))
    for k in range(posterior.n_outputs):
        pieces, draws = [np.atleast_1d(found[k][()].mean).ravel()], [found[k][()].draws.reshape(-1, 1)]
        for term, index in terms:
            points = [places[i][index[:, axis]] for axis, i in enumerate(term)]
            curve = posterior.curve(term, points, k, None, Measure.PRODUCT)
            pieces.append(curve.mean)
            draws.append(curve.draws)
        means.append(np.concatenate(pieces))
        every = np.concatenate(draws, axis=1)
        roots.append(((every - every.mean(axis=0)) / np.sqrt(len(every) - 1.0)).T)
    return Tabulated(codes, functions, special, terms, means, roots)


def _codes(model: Model, i: int, n_nodes: int) -> Float[np.ndarray, " nodes"]:
    """Coded values of an input: all levels, all values of a discrete number, or of any other over its range.

    Half of these are evenly spread, half as the data are.
    """
    column = model.schema.columns[i]
    if column.levels:
        return np.arange(len(column.levels), dtype=float)
    if (values := model.values(i)) is not None:
        return values
    low, high = model.ranges[i]
    marginal = model.profile.inputs[i]
    edges = np.clip(column.standard(marginal.edges), low, high)
    upto = np.append(0.0, np.cumsum(marginal.shares + 1e-9))
    by_rank = np.interp(np.linspace(0.0, upto[-1], n_nodes // 2), upto, edges)
    return np.unique(np.concatenate([np.linspace(low, high, n_nodes - n_nodes // 2), by_rank]))


def _features(found: Tabulated, rng: np.random.Generator) -> Float[np.ndarray, "rows m1"]:
    """The products at rows whose inputs are drawn apart from each other, evenly over their nodes; some are missing."""
    values = []
    for table, special in zip(found.functions, found.special, strict=True):
        wide = np.zeros((len(table) + 2, special.shape[1]))
        wide[:-2, : table.shape[1]], wide[-2:] = table, special
        kind = rng.random(N_ROWS)
        place = np.where(
            kind < SPECIAL_SHARE, -1, np.where(kind < 2 * SPECIAL_SHARE, -2, rng.integers(0, len(table), N_ROWS))
        )
        values.append(wide[place])
    columns = [np.ones((N_ROWS, 1))]
    for term, index in found.terms:
        product = np.ones((N_ROWS, len(index)))
        for axis, i in enumerate(term):
            product = product * values[i][:, index[:, axis]]
        columns.append(product)
    return np.concatenate(columns, axis=1)


def _shortened(root, features, least: float) -> Float[np.ndarray, "m1 r"]:
    """The fewest columns with which the variance of f keeps its value at the rows, but for what all of them share."""
    at = features @ root
    total = np.sum(at**2, axis=1)
    squares, vectors = np.linalg.eigh(at @ at.T if len(at) < at.shape[1] else at.T @ at)
    directions = vectors[:, ::-1] if len(at) >= at.shape[1] else at.T @ vectors[:, ::-1]
    directions = directions[:, squares[::-1] > 1e-12 * max(float(squares[-1]), 1e-300)]
    directions = directions / np.linalg.norm(directions, axis=0)
    left = total[:, None] - np.cumsum((at @ directions) ** 2, axis=1)
    share = np.max(np.abs(left - left.mean(axis=0)) / (total + least)[:, None], axis=0, initial=0.0)
    enough = int(np.argmax(share < LEAST_SHARE)) if (share < LEAST_SHARE).any() else len(share) - 1
    return root @ directions[:, : enough + 1]


def _in_steps(root, features) -> tuple[np.ndarray, Float[np.ndarray, " m1"]]:
    """The root as whole numbers and the step of each of its rows: small where products are large, so that all round f
    alike.
    """
    size = np.abs(features).max(axis=0)
    size = np.maximum(size, 1e-6 * size.max())  # a product that no row has
    step = max(float(np.abs(size[:, None] * root).max(initial=0.0)), 1e-300) / N_STEPS / size
    return np.round(root / step[:, None]), step


def _n_nodes(model: Model) -> int:
    """Nodes of a number: conformal limits are several sds away, and so are off by as much more."""
    return N_NODES if model.conformal is None else 3 * N_NODES


def _least_variance(model: Model, k: int) -> float:
    """What the predictive variance holds besides that of f, on the model's scale."""
    if isinstance(model.likelihood, Gaussian):
        return float(_with_rest(model, np.asarray(model.likelihood.scale, np.float64))[k] ** 2)
    return 0.02


def _input(model: Model, i: int, found: Tabulated) -> Record:
    column, marginal = model.schema.columns[i], model.profile.inputs[i]
    if not any(i in term for term, _ in found.terms):
        # nothing of its values, which may be anybody's addresses, but the day that a date's control starts with
        day = {"middle": marginal.middle} if column.part == "time" else {}
        return {"name": column.name, "source": column.source, "part": column.part, "acts": False, **day}
    record: Record = {
        "name": column.name,
        "source": column.source,
        "part": column.part,
        "acts": True,
        "middle": marginal.middle,
        "has_missing": column.has_missing,
        "k": found.special[i].shape[1],
        "special": _packed(found.special[i], "<f4"),
    }
    if not column.levels:
        record |= {"centre": column.centre, "scale": column.scale, "tail": column.tail}
        record |= {"low": float(marginal.edges[0]), "high": float(marginal.edges[-1])}
        record |= {"nodes": _packed(found.codes[i], "<f4"), **_table(found.functions[i])}
        # a control goes from value to value
        if model.values(i) is not None:
            return record | {"values": model.in_units(i, found.codes[i]).tolist()}
        return record | {"is_whole": _is_whole(model, i)}
    shown = np.sort(np.argsort(-marginal.shares, kind="stable")[:MOST_LEVELS])
    if column.part:
        shown = np.arange(len(column.levels))
    labels = [str(column.levels[j]) for j in shown]
    return record | {
        "levels": labels,
        "middle": int(np.searchsorted(shown, int(marginal.middle))),
        "n_levels": len(column.levels),
        **_table(found.functions[i][shown]),
    }


def _is_whole(model: Model, i: int) -> bool:
    """Whether a number of many values seems to have whole ones alone: its least, its median and its largest are.

    So a control goes by 1; other values can be typed all the same.
    """
    column, marginal = model.schema.columns[i], model.profile.inputs[i]
    values = np.array([marginal.edges[0], marginal.middle, marginal.edges[-1]])
    return not column.part and bool(np.allclose(values, values.round(), rtol=1e-9, atol=1e-9) and np.ptp(values) > 2.0)


def _table(functions: Float[np.ndarray, "nodes k"]) -> Record:
    """Functions at their nodes as whole numbers, each less that of the node before it, and the step of each."""
    step = np.maximum(np.abs(functions).max(axis=0, initial=0.0), 1e-300) / N_STEPS_OF_FUNCTIONS
    # smooth functions differ little from node to node, and small numbers are packed well; 16 bits wrap round, also back
    whole = np.diff(np.round(functions / step).astype(np.int16), axis=0, prepend=np.int16(0))
    return {"table": _packed(whole, "<i2"), "steps": _packed(step, "<f4")}


def _likelihood(model: Model) -> Record:
    """What turns f into y; latent functions are paired as Python pairs them."""
    likelihood = model.likelihood
    record: Record = {"name": type(likelihood).__name__, "is_discrete": bool(likelihood.is_discrete)}
    record["power"] = None  # of the scale that was fitted, if it is not that of y
    if isinstance(likelihood, Gaussian):
        record["scale"] = _with_rest(model, np.asarray(likelihood.scale, np.float64)).tolist()
    elif isinstance(likelihood, StudentT | HeteroscedasticGaussian):
        record["scale"] = _with_rest(model, np.exp(np.asarray(likelihood.log_scale, np.float64))).tolist()
    if isinstance(likelihood, NegativeBinomial):
        # a log rate that is δ off adds about μ²δ² to the variance, as a dispersion of δ² does
        usual = np.sqrt(np.exp(np.asarray(likelihood.log_dispersion, np.float64)))
        record["dispersion"] = (_with_rest(model, usual) ** 2).tolist()
    if isinstance(likelihood, StudentT):
        record["degrees"] = float(likelihood.degrees)
    n = model.posterior.n_outputs
    points = Predictive(likelihood, np.zeros((1, n)), np.full((1, n), model.doubt)).points(slice(None))[:, 0]
    record |= {"points": points.tolist(), "per_target": likelihood.latent_per_target}
    if model.target.classes is not None:
        record["classes"] = [str(c) for c in model.target.classes]
    else:
        record |= {"y_mean": model.target.centre.tolist(), "y_scale": model.target.scale.tolist()}
        if (transform := model.target.transform) is not None:
            nodes, shares = gauss_hermite(N_NOISE_NODES)
            record |= {"power": transform.power, "nodes": nodes.tolist(), "shares": shares.tolist()}
    record["normal"] = [float(ndtri(0.5 + 0.5 * level)) for level in LEVELS]
    return record


def _conformal(model: Model) -> list[list[float | None]] | None:
    """Half-widths in sds, by level and target; none where nothing can be promised of what the page predicts."""
    scores = model.conformal
    if scores is None or model.posterior.remainder is not None:
        return None
    factors = [half_width(scores, level) for level in LEVELS]
    return [[float(v) if np.isfinite(v) else None for v in factor] for factor in factors]


def _packed(values: np.ndarray, kind: str) -> str:
    """Numbers as text that `unpack` of the page reads."""
    return packed(np.ascontiguousarray(values, dtype=kind).tobytes())


def packed(data: bytes) -> str:
    """Bytes as text, compressed; without the time of day, so that the same model gives the same page."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii")
