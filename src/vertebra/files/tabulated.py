"""An additive model as plain tables, for `serving`: where it is served, neither JAX nor this library is needed.

A pair of inputs is a matrix of coefficients over products of their functions, and a singular value decomposition makes
it a short sum of one function of the first times one of the second; a triple the same, twice. So f is a sum of products
of functions of one input each, and these are tabulated. A network that is linear in its uncertain weights is a sum of
functions of few inputs too: these are read off at nodes, with cubic splines between them.
"""

import io
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline

from vertebra.effects.grid import product
from vertebra.effects.pieces import NetworkSource, Pieces
from vertebra.likelihoods import Gaussian, HeteroscedasticGaussian, StudentT
from vertebra.machine.file import Record, put
from vertebra.models.model import Model
from vertebra.networks.parameters import in_double_precision
from vertebra.serving import FORMAT, LARGEST
from vertebra.tables.column import BOOLEAN_WORDS
from vertebra.tables.values import MISSING_WORDS, Level
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# What may be left out of a term, as a share of all coefficients; and of a column between two steps, as a share of it.
NEGLIGIBLE, BETWEEN = 1e-7, 2e-5
# Steps of a number: so many to begin with, doubled until lines between them are near enough, and at most.
FEWEST_STEPS, MOST_STEPS = 512, 65536
# Nodes of a number where a network is read off: a spline through them is off by some 1e-6 of a function that turns once
# in a tenth of the range.
N_NODES = 129


def to_tables(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes an AdditiveRegressor or AdditiveClassifier as tables for `serving.load`.

    Its f must be linear in what is uncertain, without a remainder: the terms of `scheme="auto"`, or a network whose
    sub-networks read one or two inputs each. Beyond the range of the fit a network's table stays at its ends.
    """
    if model.found is None:
        raise ValueError(f"`model` must be an AdditiveRegressor or an AdditiveClassifier, got {model.kind}.")
    posterior = model.posterior
    if posterior.remainder is not None or posterior.source is None or not posterior.source.is_linear:
        raise ValueError(
            "`model` must be linear in its uncertain weights, without a remainder, to be written as tables: fit with "
            '`scheme="auto", remainder=False`, or keep it with `save`.'
        )
    known = _of_network(model) if posterior.terms is None else of_terms(posterior.terms)
    pieces, records, constants = _terms(model, known)
    inputs, arrays = _inputs(model, known, pieces)
    is_location = isinstance(model.likelihood, Gaussian | StudentT | HeteroscedasticGaussian)
    is_mean = is_location and model.target.transform is None
    header = {
        "format": FORMAT,
        "sources": [str(source) for source in model.schema.sources],
        "inputs": inputs,
        "terms": records,
        "constants": constants,
        "is_mean": is_mean,
        "missing": sorted(MISSING_WORDS),
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    file = io.BytesIO()
    np.savez(file, **cast(dict[str, Any], arrays))
    put(path, file.getvalue())


class Known(NamedTuple):
    """E f as sums of products of known functions of one input: of every latent function, coefficients by term."""

    functions: list[Callable[[Float[np.ndarray, " m"]], Float[np.ndarray, "m k"]]]  # at values as the model reads them
    ranges: list[tuple[float, float]]  # of numbers: the lowest value, and how far the highest is from it
    constants: list[float]
    tensors: list[list[tuple[Term, np.ndarray]]]


def of_terms(terms: SumOfTerms) -> Known:
    """E f of a sum of terms, as products of its bases' functions."""
    basis = terms.basis
    tensors = []
    for mean in terms.means:
        own = [(block.term, np.zeros([len(basis.systems[i].kind) for i in block.term])) for block in basis.blocks]
        for (_, tensor), block, place in zip(own, basis.blocks, basis.slices, strict=True):
            tensor[tuple(block.index.T)] = mean[1:][place]
        tensors.append(own)
    ranges = [(low, (high - low) or 1.0) for low, high in (system.range for system in basis.systems)]
    return Known(list(basis.systems), ranges, [float(mean[0]) for mean in terms.means], tensors)


def _of_network(model: Model) -> Known:
    """Sub-networks at nodes: of a number evenly over its range, of levels all that stands for one."""
    columns, p = model.schema.columns, len(model.schema.columns)
    nodes, functions = [], []
    for i, column in enumerate(columns):
        # missing, unseen, and all levels, or the ends of the range
        codes = [np.nan, -1.0, *range(len(column.levels))] if column.levels else [np.nan, *model.ranges[i]]
        coded = np.full((len(codes), p), np.nan)
        coded[:, i] = codes
        own = np.unique(model.encoding(coded)[:, i])
        if column.levels or len(own) == 1:
            functions.append(lambda x, own=own: np.eye(len(own))[np.abs(x[:, None] - own).argmin(axis=1)])
        else:
            own = np.linspace(own[0], own[-1], N_NODES)
            functions.append(CubicSpline(own, np.eye(N_NODES)))
        nodes.append(own)
    tensors = []
    with jax.enable_x64(True):
        source = NetworkSource(in_double_precision(model.posterior.networks[0]), model.posterior.seed)
        for output in range(source.n_outputs):
            f = source.pieces(output, None, n_draws=2)
            tensors.append([(f.clusters[k], _at_nodes(f, k, nodes)) for k in f.pieces])
    return Known(functions, [(low, high - low) for low, high in model.ranges], [0.0] * source.n_outputs, tensors)


def _at_nodes(f: Pieces, piece: int, nodes: list[np.ndarray]) -> np.ndarray:
    own = [nodes[i] for i in f.clusters[piece]]
    if len(own) > 2:
        raise ValueError(
            f"`model` must have sub-networks of at most two inputs to be written as tables, got one of {len(own)}: fit "
            'with `scheme="auto", remainder=False`, or keep it with `save`.'
        )
    return f.mean(piece, f.values(piece, product(own))).reshape([len(each) for each in own])


class _Records(NamedTuple):
    """The functions of every input that terms are products of, the terms, and the constant of every output."""

    pieces: list[list[Float[np.ndarray, "_ _"]]]
    terms: list[Record]
    constants: list[float]


def _terms(model: Model, known: Known) -> _Records:
    """Every term as few products of functions of one input each."""
    pieces: list[list[Float[np.ndarray, "_ _"]]] = [[] for _ in known.functions]
    records, constants = [], []
    for output, latent in enumerate(range(0, len(known.constants), model.likelihood.latent_per_target)):
        unit, tensors = model.target.unit(output), known.tensors[latent]
        constants.append(model.target.origin(output) + unit * known.constants[latent])
        least = NEGLIGIBLE * float(np.sqrt(sum(np.sum(tensor**2) for _, tensor in tensors)))
        for term, tensor in tensors:
            parts = products_of(tensor, least)
            if not parts:
                continue
            at = []
            for axis, i in enumerate(term):
                at.append(sum(piece.shape[1] for piece in pieces[i]))
                pieces[i].append((unit if axis == 0 else 1.0) * np.stack([part[axis] for part in parts], axis=1))
            records.append({"output": output, "inputs": list(term), "at": at, "n": len(parts)})
    return _Records(pieces, records, constants)


def _inputs(
    model: Model, known: Known, pieces: list[list[Float[np.ndarray, "_ _"]]]
) -> tuple[list[Record], dict[str, np.ndarray]]:
    """What is said of every input, and its functions at steps or levels."""
    inputs, arrays = [], {}
    for i, column in enumerate(model.schema.columns):
        low, step, values = _table(model, known, i, pieces[i])
        if not (np.abs(values) <= LARGEST).all():
            raise ValueError(
                f"The tables of {column.name!r} must be within {LARGEST:g}, the range of single precision: fit `y` in "
                "larger units."
            )
        arrays[f"table/{i}"] = values.astype(np.float32)
        inputs.append(
            {
                "name": column.name,
                "source": column.source,
                "part": column.part,
                "levels": [_plain(level) for level in column.levels],
                "words": {w: int(v) for w, v in BOOLEAN_WORDS.items()} if column.kind == "boolean" else {},
                "centre": column.centre if column.kind == "number" else 0.0,
                "scale": column.scale if column.kind == "number" else 1.0,
                "tail": column.tail if column.kind == "number" else 0.0,
                "low": low,
                "step": step,
            }
            | ({"gaps": list(column.missing_values)} if column.missing_values else {})
        )
    return inputs, arrays


def products_of(tensor: np.ndarray, least: float) -> list[tuple[Float[np.ndarray, " k"], ...]]:
    """Vectors whose outer products sum to the tensor, but for parts smaller than `least`."""
    if tensor.ndim == 1:
        return [(tensor,)] if float(np.linalg.norm(tensor)) > least else []
    left, sizes, right = np.linalg.svd(tensor.reshape(len(tensor), -1), full_matrices=False)
    found = []
    for vector, size, rest in zip(left.T, sizes, right, strict=True):
        if size > least:
            found += [(vector, *others) for others in products_of(size * rest.reshape(tensor.shape[1:]), least)]
    return found


def _table(
    model: Model, known: Known, i: int, pieces: list[Float[np.ndarray, "_ _"]]
) -> tuple[float, float, np.ndarray]:
    """The lowest value, the step, and the functions at every step or level, at a missing value and an unseen level."""
    column, (low, width) = model.schema.columns[i], known.ranges[i]

    def at(values) -> Float[np.ndarray, "m n"]:
        coded = np.full((len(values), len(model.schema.columns)), np.nan)
        coded[:, i] = values
        functions = known.functions[i](model.encoding(coded)[:, i])
        return np.concatenate([np.zeros((len(values), 0)), *(functions @ piece for piece in pieces)], axis=1)

    special = at([np.nan, -1.0 if column.levels else np.nan])
    if column.levels:
        return 0.0, 1.0, np.concatenate([at(np.arange(float(len(column.levels)))), special])
    n = FEWEST_STEPS
    while True:
        nodes = np.linspace(low, low + width, n + 1)
        values, middle = at(nodes), at(0.5 * (nodes[1:] + nodes[:-1]))
        away = np.abs(0.5 * (values[1:] + values[:-1]) - middle).max(axis=0)
        if n >= MOST_STEPS or (away <= BETWEEN * np.abs(values).max(axis=0, initial=1e-300)).all():
            return low, width / n, np.concatenate([values, special])
        n *= 2


def _plain(level: object) -> Level:
    level = level.item() if isinstance(level, np.generic) else level
    return level if isinstance(level, str | bool | int | float) else str(level)
