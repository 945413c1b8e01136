"""A fitted sum of terms as an ONNX graph: the same numbers, in double precision, where there is no Python.

Rows go through what the model does to them: scaling, codes of levels, the functions of every input, their products, and
linear algebra. Every constant comes from the fitted model; nothing is fitted or approximated here.
"""

import functools
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np
import pandas as pd
from jaxtyping import ArrayLike, Float
from scipy.special import ndtri

from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, StudentT
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.file import put
from vertebra.models.model import Model
from vertebra.tables.column import BOOLEAN_WORDS, UNSEEN, Column
from vertebra.tables.encoding import Encoding
from vertebra.tables.schema import Schema
from vertebra.tables.values import MISSING_WORDS
from vertebra.terms.evidence import Basis
from vertebra.terms.functions import FARTHEST, System, rank_curve
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import term_label

# The operators' versions: of those needed, onnxruntime lacks Asinh alone in double precision.
OPSET, ML_OPSET = 18, 2
# The outputs beside those of terms.
_LIMITS = ("probabilities_lower", "probabilities_upper")
_OUTPUTS = ("mean", "sd", "probabilities", *_LIMITS, "intercept")
# That of the limits.
LEVEL = 0.95
# How text may write what is missing, and booleans: the schema says what it makes of each.
_WORDS = (*sorted(MISSING_WORDS), *BOOLEAN_WORDS)
_LARGEST = float(np.finfo(np.float64).max)
# Beyond, asinh a = log 2a to the last digit, and a² may overflow.
_LARGE = 1e8


def to_onnx(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes an AdditiveRegressor or AdditiveClassifier, fitted with `scheme="auto"`, as an ONNX file.

    Needs the package onnx: `pip install vertebra[onnx]`. The file is replaced whole or not at all.

    The graph's inputs, each (N, 1), have the names of the columns; characters other than letters, digits, spaces and
    `_.-()` become `_`. Which input is which column, and all its levels, stand in the metadata `inputs`.

    - Numbers are doubles, a missing one NaN or one of its `missing_values`; lengths of time are in days.
    - Categories, booleans and ordered levels are text, each level as `str` writes it; "", "NaN" and the like, without
      spaces around them, are missing, and other text is an unseen level.
    - A datetime has one double per part that the model reads, named as in `schema_.columns`: `when (time)`, days since
      1970 in UTC; `when (month)`, 0 to 11; `when (weekday)`, 0 for Monday; `when (hour)`.

    Its outputs, each a double of N rows and a column per target (of a classifier: per logit):

    - `mean`: of y in its units; of a classifier, f on the logit scale.
    - `sd`: of y, the noise and the uncertainty of f together; of a classifier, that of f.
    - `probabilities`, of a classifier: a column per class, in the order of the metadata `classes`.
    - `probabilities_lower`, `probabilities_upper`, of two classes: 95 % limits, as `predict_proba_interval` has them.
    - `intercept`, and `term: a`, `term: a × b` as `eval_terms(measure="product")` has them: they sum to `mean`.
    """
    checked = _checked(model)
    try:
        import onnx
    except ImportError:
        raise ImportError("`to_onnx` needs the package onnx, which is not there: pip install vertebra[onnx].") from None
    columns, names = model.schema.columns, _names([column.name for column in model.schema.columns])
    graph = _Graph(onnx)
    terms = _write_terms(graph, model, checked, names)
    metadata = {"inputs": {name: column.to_json() for name, column in zip(names, columns, strict=True)}, "terms": terms}
    if model.target.classes is not None:
        metadata["classes"] = model.target.classes.tolist()
    inputs = {name: _is_text(column) for name, column in zip(names, columns, strict=True)}
    put(path, graph.serialised(inputs, metadata))


def _checked(model: Model) -> SumOfTerms:
    """The terms of a model; refuses what has no closed form to write down."""
    if model.found is None:
        raise ValueError(f"`model` must be an AdditiveRegressor or an AdditiveClassifier, got {model.kind}.")
    if model.posterior.remainder is not None:
        raise ValueError(
            "`model` must be a sum of terms to be written as ONNX, got one whose remainder is networks: fit again with "
            "`remainder=False`, or keep it with `save`."
        )
    if model.posterior.terms is None:
        raise ValueError(
            '`model` must be fitted with scheme="auto" to be written as ONNX, got '
            f"scheme={model.posterior.scheme!r}: a network is not a sum of terms in closed form. "
            "Fit again, or keep it with `save`."
        )
    if not isinstance(model.likelihood, Gaussian | StudentT | Bernoulli | Categorical):
        raise ValueError(
            '`model` must have likelihood="gaussian" or "student_t" to be written as ONNX, got '
            f"likelihood={model.noise!r}: the sd of its y takes many values of f. Fit again with one of them."
        )
    if model.target.transform is not None:
        raise ValueError(
            f"`model` must be fitted on the scale of y to be written as ONNX, got {model.target.scale_of(0)}: fit "
            'again with `target_transform="none"`, or keep it with `save`; `to_sql` and `to_tables` write its f.'
        )
    return model.posterior.terms


class _Graph:
    """Nodes and constants as they come; values are known by name, and what is an array becomes a constant."""

    def __init__(self, onnx: ModuleType):
        self.onnx = onnx
        self.nodes: list[object] = []
        self.constants: list[object] = []
        self.outputs: dict[str, object] = {}

    def __call__(
        self, op: str, *inputs: str | ArrayLike, output: tuple[str, int] | None = None, **attributes: object
    ) -> str:
        """The name of the node's value; an output of the graph has a name of its own and a number of columns."""
        # no column's name has a slash
        name = f"/{len(self.nodes)}" if output is None else output[0]
        if output is not None:
            self.outputs[name] = self._described(name, self.onnx.TensorProto.DOUBLE, output[1])
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        self.nodes.append(self.onnx.helper.make_node(op, names, [name], **attributes))
        return name

    def _constant(self, value: ArrayLike) -> str:
        name = f"/constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def _described(self, name: str, kind: int, width: int) -> object:
        return self.onnx.helper.make_tensor_value_info(name, kind, ["N", width])

    def serialised(self, inputs: Mapping[str, bool], metadata: Mapping[str, object]) -> bytes:
        """The checked model; of the inputs, whether they are text."""
        outputs = [self.outputs[name] for name in sorted(self.outputs, key=lambda name: [*_OUTPUTS, name].index(name))]
        helper, kinds = self.onnx.helper, (self.onnx.TensorProto.DOUBLE, self.onnx.TensorProto.STRING)
        described = [self._described(name, kinds[is_text], 1) for name, is_text in inputs.items()]
        graph = helper.make_graph(self.nodes, "vertebra", described, outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        settings = dict(opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        model = helper.make_model(graph, producer_name="vertebra", **settings)
        helper.set_model_props(model, {key: json.dumps(value, default=str) for key, value in metadata.items()})
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


def _names(wanted: Sequence[str]) -> list[str]:
    """Names of inputs that are safe, readable and unlike each other and the outputs; a safe one stays as it is."""
    safe = [re.sub(r"[^\w .()-]", "_", name).strip() or "column" for name in wanted]
    changed = [new != name or new in _OUTPUTS for new, name in zip(safe, wanted, strict=True)]
    taken: dict[str, int] = {}
    for i in sorted(range(len(safe)), key=changed.__getitem__):
        tries = itertools.chain([safe[i]], (f"{safe[i]}_{k}" for k in itertools.count(2)))
        taken[next(name for name in tries if name not in taken and name not in _OUTPUTS)] = i
    return sorted(taken, key=taken.__getitem__)


def _write_terms(graph: _Graph, model: Model, terms: SumOfTerms, names: Sequence[str]) -> dict[str, list[str]]:
    """All outputs; of those of terms, the inputs' names."""
    columns = model.schema.columns
    basis, k = terms.basis, terms.n_outputs
    values = _functions(graph, names, columns, model.encoding, basis)
    products = []
    for block in basis.blocks:
        # Π_{i∈T} φ_{k_i}(x_i)
        own = zip(block.term, block.index.T, strict=True)
        factors = [graph("Gather", values[i], places, axis=1) for i, places in own]
        products.append(functools.reduce(lambda product, factor: graph("Mul", product, factor), factors))
    unit, origin = (np.array([[of(output) for output in range(k)]]) for of in (model.target.unit, model.target.origin))
    weights = unit * np.stack(terms.means, axis=1)
    # [N, 1] is the shape of every input
    ones = graph("Expand", np.ones((1, 1)), graph("Shape", names[0]))
    graph("MatMul", ones, origin + weights[:1], output=("intercept", k))
    named: dict[str, list[str]] = {}
    for term in dict.fromkeys(terms.terms()):
        name = "term: " + term_label([names[i] for i in term], most=len(term))
        own = [b for b, block in enumerate(basis.blocks) if block.term == term]
        rows = np.concatenate([weights[1:][basis.slices[b]] for b in own])
        graph("MatMul", graph("Concat", *(products[b] for b in own), axis=1), rows, output=(name, k))
        named[name] = [columns[i].name for i in term]
    graph("Sum", "intercept", *named, output=("mean", k))
    # Var f = ‖φᵀR‖²
    phi = graph("Concat", ones, *products, axis=1)
    squares = [graph("ReduceSumSquare", graph("MatMul", phi, root), np.array([1])) for root in terms.roots]
    variance = graph("Concat", *squares, axis=1)
    at = np.zeros((1, k))
    if model.is_classifier:
        graph("Sqrt", variance, output=("sd", k))
        _write_probabilities(graph, Predictive(model.likelihood, at, at + model.doubt))
    else:
        noise = Predictive(model.likelihood, at, at).aleatoric()
        graph("Mul", graph("Sqrt", graph("Add", variance, noise)), unit, output=("sd", k))
    return named


def _write_probabilities(graph: _Graph, standard: Predictive) -> None:
    """`Predictive.probabilities` over its fixed points, those of f ~ N(0, 1): mean + sd · point, (N, points, k)."""
    points = standard.points(slice(None))[:, 0]
    k = points.shape[1]
    mean, sd = (graph("Unsqueeze", name, np.array([1])) for name in ("mean", "sd"))
    f = graph("Add", mean, graph("Mul", sd, points[None]))
    each = graph("Sigmoid", f) if k == 1 else graph("Softmax", f, axis=2)
    p = graph("ReduceMean", each, np.array([1]), keepdims=0)
    p = graph("Concat", graph("Sub", 1.0, p), p, axis=1) if k == 1 else p
    graph("Div", p, graph("ReduceSum", p, np.array([1])), output=("probabilities", max(k, 2)))
    if k == 1:
        _write_limits(graph)


def _write_limits(graph: _Graph) -> None:
    """Of two classes the probability rises with f: its limits are those of f, mean ± z · sd."""
    reach = graph("Mul", "sd", float(ndtri(0.5 + 0.5 * LEVEL)))
    low, high = (graph("Sigmoid", graph(op, "mean", reach)) for op in ("Sub", "Add"))
    for name, least, most in zip(_LIMITS, (low, high), (high, low), strict=True):
        graph("Concat", graph("Sub", 1.0, most), least, axis=1, output=(name, 2))


def _is_text(column: Column) -> bool:
    return bool(column.levels) and column.part is None


def _functions(graph: _Graph, names: Sequence[str], columns: Sequence[Column], encoding: Encoding, basis: Basis):
    """φ(x_i), (N, k), of every input that a term reads."""
    systems = basis.systems
    values: dict[int, str] = {}
    numbers: dict[int, str] = {}
    for i in sorted({i for term in basis.terms for i in term}):
        if not _is_text(columns[i]):
            numbers[i] = _with_gaps(graph, names[i], columns[i])
            continue
        codes = _codes(graph, names[i], columns[i])
        if systems[i].n_levels:
            table = np.concatenate([np.ones((len(systems[i].table), 1)), systems[i].table], axis=1)
            values[i] = graph("Gather", np.stack([*table, systems[i].missing, systems[i].unseen]), codes)
        else:
            # levels, missing and unseen as the encoding has them
            coded = np.full((len(columns[i].levels) + 2, len(columns)), np.nan)
            coded[:, i] = [*range(len(columns[i].levels)), np.nan, UNSEEN]
            numbers[i] = graph("Gather", encoding(coded)[:, [i]], codes)
    return values | (_of_numbers(graph, numbers, columns, systems, encoding.gaps) if numbers else {})


def _with_gaps(graph: _Graph, name: str, column: Column) -> str:
    """A number's values, NaN where they stand for gaps; the parts of a datetime have none."""
    own = [] if column.part else [value for value in column.missing_values if not isinstance(value, str)]
    for value in own:
        name = graph("Where", graph("Equal", name, np.float64(value)), np.float64(np.nan), name)
    return name


def codes_of_words(column: Column) -> dict[str, int]:
    """The place of the level that a word stands for; after the levels comes missing. Other words are unseen levels."""
    words = list(dict.fromkeys([*map(str, column.levels), *_WORDS]))
    table = pd.DataFrame({column.source: pd.Series(words, dtype=object)})
    read = Schema((column,), (column.source,), True).matrix(table)[:, 0]
    known = {word: code for word, code in zip(words, read, strict=True) if code != UNSEEN}
    known = {str(gap): np.nan for gap in column.missing_values} | known
    return {word: len(column.levels) if np.isnan(code) else int(code) for word, code in known.items()}


def _codes(graph: _Graph, name: str, column: Column) -> str:
    """The place of each row's level, (N,): after the levels come missing and unseen."""
    known, n = codes_of_words(column), len(column.levels)
    given = dict(keys_strings=list(known), values_int64s=list(known.values()), default_int64=n + 1)
    return graph("Reshape", graph("LabelEncoder", name, output=None, domain="ai.onnx.ml", **given), np.array([-1]))


def _of_numbers(graph: _Graph, numbers: dict[int, str], columns, systems: Sequence[System], gaps) -> dict[int, str]:
    """`Column.standard` and `System.__call__` of numbers, side by side where they are alike."""
    own, n = [systems[i] for i in numbers], len(numbers)
    # codes stay as they are
    scaled = [columns[i] if columns[i].kind == "number" else Column("", "", "number") for i in numbers]
    centre = np.array([[column.centre for column in scaled]])
    scale = np.array([[column.scale for column in scaled]])
    tail = np.array([[column.tail or np.inf for column in scaled]])
    gap = gaps[list(numbers)][None]
    low, width = np.array([[s.low for s in own]]), np.array([[s.width for s in own]])
    x = graph("Concat", *numbers.values(), axis=1)
    missing = graph("IsNaN", x)
    # u = (x − centre)/scale
    away = graph("Sub", graph("Mul", graph("Where", missing, centre, x), 0.5), 0.5 * centre)
    u = graph("Clip", graph("Div", away, 0.5 * scale), -_LARGEST, _LARGEST)
    if np.isfinite(tail).any():
        # sign(u)(min(|u|, tail) + asinh max(|u| − tail, 0))
        size = graph("Abs", u)
        beyond = graph("Max", graph("Sub", size, tail), 0.0)
        u = graph("Mul", graph("Sign", u), graph("Add", graph("Min", size, tail), _asinh(graph, beyond)))
    at = graph("Where", missing, np.where(np.isnan(gap), low, gap), u)
    missing = graph("And", missing, np.isnan(gap))
    unit = graph("Sub", graph("Div", graph("Mul", graph("Sub", at, low), 2.0), width), 1.0)
    unit = graph("Clip", unit, -1.0, 1.0)
    apart = [graph("Gather", at, np.array([j]), axis=1) for j in range(n)]
    if any(len(s.quantiles) for s in own):
        units = [graph("Gather", unit, np.array([j]), axis=1) for j in range(n)]
        bent = zip(units, apart, own, strict=True)
        unit = graph("Concat", *(_bent(graph, t, a, s) if len(s.quantiles) else t for t, a, s in bent), axis=1)
    # (k + 1) P_{k+1} = (2k + 1) t P_k − k P_{k−1}, of all inputs at once
    legendre = [graph("Add", graph("Mul", unit, 0.0), 1.0), unit]
    for k in range(1, max(len(s.transform) for s in own) - 1):
        rise = graph("Mul", graph("Mul", unit, legendre[k]), 2.0 * k + 1.0)
        legendre.append(graph("Div", graph("Sub", rise, graph("Mul", legendre[k - 1], float(k))), k + 1.0))
    polynomials = graph("Concat", *legendre, axis=1)
    least, most = (np.array([[system.range[end] for system in own]]) for end in (0, 1))
    over = graph("Max", graph("Sub", least, at), graph("Sub", at, most), np.zeros((1, 1)))
    beyond = graph("Min", graph("Div", over, np.maximum(most - least, 1e-30)), np.full((1, 1), FARTHEST))
    values = {}
    for j, (i, system) in enumerate(zip(numbers, own, strict=True)):
        (d, _), r, k = system.transform.shape, system.table.shape[1], len(system.kind)
        weights = np.zeros((d, k))
        weights[:, :d] = system.transform
        weights[0, d + r] = system.observed
        value = graph("MatMul", graph("Gather", polynomials, j + n * np.arange(d), axis=1), weights)
        if r:
            table = np.pad(system.table, ((0, 0), (d, k - d - r)))
            lines = np.stack([np.diff(table, axis=0), table[:-1]])
            value = graph("Add", value, _piecewise(graph, apart[j], system.knots, lines))
        if system.grows:
            growing = graph("Sqrt", _square(graph, graph("Gather", beyond, np.array([j]), axis=1), apart[j], system))
            value = graph("Add", value, graph("Mul", growing, np.eye(k)[-1:]))
        is_missing = graph("Gather", missing, np.array([j]), axis=1)
        values[i] = graph("Where", is_missing, system.missing[None], value)
    return values


def _square(graph: _Graph, beyond: str, x: str, system: System) -> str:
    """The square of the function of what no row has: beyond the range, or of a discrete number between two values."""
    if not system.is_discrete:
        return beyond
    # s(1 − s), s the share of the way from one value to the next
    n = len(system.knots) - 1
    share = _piecewise(graph, x, system.knots, np.stack([np.ones((n, 1)), np.zeros((n, 1))]))
    return graph("Add", beyond, graph("Mul", graph("Mul", share, graph("Sub", 1.0, share)), 1.0 / n))


def _asinh(graph: _Graph, a: str) -> str:
    """log(a + √(a² + 1)) for a ≥ 0."""
    root = graph("Sqrt", graph("Add", graph("Mul", a, a), 1.0))
    doubled = graph("Add", graph("Log", a), np.log(2.0))
    return graph("Where", graph("Greater", a, _LARGE), doubled, graph("Log", graph("Add", a, root)))


def _bent(graph: _Graph, unit: str, at: str, system: System) -> str:
    """The coordinate of a number with tails: half its value, half its rank, a PCHIP of the quantiles (`systems`)."""
    curve = rank_curve(system.quantiles)
    knots = curve.x
    powers = np.diff(knots) ** np.arange(3, -1, -1)[:, None]
    rank = _piecewise(graph, at, knots, (curve.c * powers)[..., None])
    bent = graph("Add", graph("Mul", unit, 0.5), graph("Sub", rank, 0.5))
    return graph("Clip", bent, -1.0, 1.0)


def _piecewise(graph: _Graph, x: str, knots, coefficients: Float[np.ndarray, "powers pieces r"]) -> str:
    """Polynomials in the share of the way from knot to knot, highest power first, (N, r); constant outside."""
    # the piece: how many inner knots lie at or below x
    below = graph("LessOrEqual", np.append(knots[1:-1], np.inf)[None], x)
    whole = graph("Cast", below, to=graph.onnx.TensorProto.INT64)
    piece = graph("ReduceSum", whole, np.array([1]), keepdims=0)
    clipped = graph("Clip", x, knots[0], knots[-1])
    from_left = graph("Sub", clipped, graph("Gather", knots[:-1, None], piece))
    share = graph("Div", from_left, graph("Gather", np.diff(knots)[:, None], piece))
    value = graph("Gather", coefficients[0], piece)
    for table in coefficients[1:]:
        value = graph("Add", graph("Mul", value, share), graph("Gather", table, piece))
    return value
