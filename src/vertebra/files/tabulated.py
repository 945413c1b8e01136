"""An additive model as plain tables, for `serving`: where it is served, neither JAX nor this library is needed.

A pair of inputs is a matrix of coefficients over products of their functions, and a singular value decomposition makes
it a short sum of one function of the first times one of the second; a triple the same, twice. So f is a sum of products
of functions of one input each, and these are tabulated.
"""

import io
import json
import os
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods import Gaussian, HeteroscedasticGaussian, StudentT
from vertebra.machine.file import put
from vertebra.models.model import Model
from vertebra.serving import FORMAT, LARGEST
from vertebra.tables.column import BOOLEAN_WORDS, MISSING_WORDS
from vertebra.terms.evidence import Basis
from vertebra.terms.functions import System
from vertebra.terms.sum_of_terms import SumOfTerms

# What may be left out of a term, as a share of all coefficients; and of a column between two steps, as a share of it.
NEGLIGIBLE, BETWEEN = 1e-7, 2e-5
# Steps of a number: so many to begin with, doubled until lines between them are near enough, and at most.
FEWEST_STEPS, MOST_STEPS = 512, 65536


def to_tables(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes an AdditiveRegressor or AdditiveClassifier, fitted with `scheme="auto"`, as tables for `serving.load`."""
    if model.found is None:
        raise ValueError(f"`model` must be an AdditiveRegressor or an AdditiveClassifier, got {model.kind}.")
    terms = model.posterior.terms
    if terms is None or model.posterior.remainder is not None:
        raise ValueError(
            "`model` must be a sum of terms in closed form to be written as tables: fit with "
            '`scheme="auto", remainder=False`, or keep it with `save`.'
        )
    pieces, records, constants = _terms(model, terms)
    inputs, arrays = _inputs(model, terms.basis, pieces)
    is_mean = isinstance(model.likelihood, Gaussian | StudentT | HeteroscedasticGaussian)
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
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    put(path, file.getvalue())


class _Records(NamedTuple):
    """The functions of every input that terms are products of, the terms, and the constant of every output."""

    pieces: list[list[Float[np.ndarray, "k n"]]]
    terms: list[dict[str, Any]]
    constants: list[float]


def _terms(model: Model, terms: SumOfTerms) -> _Records:
    """Every term as few products of functions of one input each."""
    basis, outputs = terms.basis, range(0, terms.n_outputs, model.likelihood.latent_per_target)
    pieces: list[list[Float[np.ndarray, "k n"]]] = [[] for _ in basis.systems]
    records, constants = [], []
    for output, latent in enumerate(outputs):
        unit, mean = model.target.unit(output), terms.means[latent]
        constants.append(model.target.origin(output) + unit * mean[0])
        least = NEGLIGIBLE * float(np.linalg.norm(mean[1:]))
        for block, place in zip(basis.blocks, basis.slices, strict=True):
            tensor = np.zeros([len(basis.systems[i].kind) for i in block.term])
            tensor[tuple(block.index.T)] = mean[1:][place]
            parts = _products(tensor, least)
            if not parts:
                continue
            at = []
            for axis, i in enumerate(block.term):
                at.append(sum(piece.shape[1] for piece in pieces[i]))
                pieces[i].append((unit if axis == 0 else 1.0) * np.stack([part[axis] for part in parts], axis=1))
            records.append({"output": output, "inputs": list(block.term), "at": at, "n": len(parts)})
    return _Records(pieces, records, constants)


def _inputs(
    model: Model, basis: Basis, pieces: list[list[Float[np.ndarray, "k n"]]]
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """What is said of every input, and its functions at steps or levels."""
    inputs, arrays = [], {}
    for i, column in enumerate(model.schema.columns):
        weights = np.concatenate([np.zeros((len(basis.systems[i].kind), 0)), *pieces[i]], axis=1)
        low, step, values = _table(model, basis.systems[i], i, weights)
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
        )
    return inputs, arrays


def _products(tensor: np.ndarray, least: float) -> list[tuple[Float[np.ndarray, " k"], ...]]:
    """Vectors whose outer products sum to the tensor, but for parts smaller than `least`."""
    if tensor.ndim == 1:
        return [(tensor,)] if float(np.linalg.norm(tensor)) > least else []
    left, sizes, right = np.linalg.svd(tensor.reshape(len(tensor), -1), full_matrices=False)
    found = []
    for vector, size, rest in zip(left.T, sizes, right, strict=True):
        if size > least:
            found += [(vector, *others) for others in _products(size * rest.reshape(tensor.shape[1:]), least)]
    return found


def _table(model: Model, system: System, i: int, weights: Float[np.ndarray, "k n"]) -> tuple[float, float, np.ndarray]:
    """The lowest value, the step, and the functions at every step or level, at a missing value and an unseen level."""
    column = model.schema.columns[i]

    def at(values) -> Float[np.ndarray, "m n"]:
        coded = np.full((len(values), len(model.schema.columns)), np.nan)
        coded[:, i] = values
        return system(model.encoding(coded)[:, i]) @ weights

    special = at([np.nan, -1.0 if column.levels else np.nan])
    if column.levels:
        return 0.0, 1.0, np.concatenate([at(np.arange(float(len(column.levels)))), special])
    low, n = system.low, FEWEST_STEPS
    while True:
        nodes = np.linspace(low, low + system.width, n + 1)
        values, middle = at(nodes), at(0.5 * (nodes[1:] + nodes[:-1]))
        away = np.abs(0.5 * (values[1:] + values[:-1]) - middle).max(axis=0)
        if n >= MOST_STEPS or (away <= BETWEEN * np.abs(values).max(axis=0, initial=1e-300)).all():
            return low, system.width / n, np.concatenate([values, special])
        n *= 2


def _plain(level: Any) -> Any:
    level = level.item() if isinstance(level, np.generic) else level
    return level if isinstance(level, str | bool | int | float) else str(level)
