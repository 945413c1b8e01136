"""A fitted estimator as a header and arrays, and back: what goes into a file of `storage`.

Nothing of it is code: a network is built again from its scheme and skeleton, and its numbers are put in.
"""

import math
import os
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra import schemes
from vertebra.conjugate import closed_form, has_closed_form
from vertebra.diagnostics import Diagnostics
from vertebra.encoding import Encoding
from vertebra.estimators import (
    AdditiveClassifier,
    AdditiveRegressor,
    SkeletonClassifier,
    SkeletonRegressor,
)
from vertebra.evaluation import WORDS, Evaluation, Linear
from vertebra.evidence import Basis, Block
from vertebra.fitting import SCHEMES
from vertebra.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from vertebra.network import Network, build
from vertebra.profile import Marginal, Profile
from vertebra.skeleton import Skeleton
from vertebra.storage import BadFile, read, write
from vertebra.structure import Score, Structure
from vertebra.surface import N_DRAWS, EnsembleSurface, HybridSurface, NetworkSurface, TermSurface
from vertebra.systems import System
from vertebra.table import Schema
from vertebra.terms import SumOfTerms

KINDS = {k.__name__: k for k in (AdditiveRegressor, AdditiveClassifier, SkeletonRegressor, SkeletonClassifier)}
LIKELIHOODS = {k.__name__: k for k in (Gaussian, HeteroscedasticGaussian, StudentT, Poisson, Bernoulli, Categorical)}
SYSTEM_ARRAYS = ("quantiles", "transform", "knots", "table", "missing", "unseen", "kind", "cost", "offset", "gram")
LINEAR_ARRAYS = ("gaps", "scale", "coefficients")
REMAINDER_ARRAYS = ("share", "sizes", "probability")
SYSTEM_NUMBERS = ("n_levels", "low", "width", "observed")


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a fitted estimator to one file."""
    model._check_fitted()
    arrays: dict[str, np.ndarray] = {"ranges": model._ranges}
    header: dict[str, Any] = {
        "params": _params(model),
        "schema": model.schema_.to_json(),
        "targets": model.target_names_,
        "is_ordered": _encoding_out(model._encoding, arrays),
        "likelihood": _likelihood_out(model._likelihood, arrays),
        "diagnostics": {
            "verdict": model.diagnostics_.verdict,
            "notes": list(model.diagnostics_.notes),
            "warnings": list(model.diagnostics_.warnings),
            "figures": {k: v for k, v in model.diagnostics_.figures.items() if math.isfinite(v)},
        },
    }
    header["profile"] = _profile_out(model._profile, arrays)
    header["linear"] = list(model._linear.n_levels)
    arrays |= {f"linear/{name}": getattr(model._linear, name) for name in LINEAR_ARRAYS}
    if (seen := model.evaluation_) is not None:
        header["evaluation"] = {
            "method": seen.method,
            "n": seen.n,
            "scores": {who: {k: _json_number(v) for k, v in own.items()} for who, own in seen.scores.items()},
            "calibration": seen.calibration,
        }
    if hasattr(model, "classes_"):
        values = model.classes_
        header["classes"] = {"dtype": values.dtype.str, "values": values.tolist()}
    else:
        header["single"] = model._single
        arrays |= {"y_mean": model._y_mean, "y_scale": model._y_scale}
        if model._conformal is not None:
            arrays["conformal"] = model._conformal
    if hasattr(model, "_structures"):
        header["found"] = [list(map(int, term)) for term in model._found]
        header["structures"] = [_structure_out(s) for s in model._structures]
    header["surface"] = _surface_out(model._surface, arrays)
    write(path, type(model).__name__, header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that `save` wrote; also from the folder that `vertebra fit` wrote.

    Runs no code of the file's: anything odd about it is refused with `BadFile`.

    >>> data = vb.datasets.synthetic("f1", n=100)
    >>> vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y).save("model.vertebra")
    >>> vb.load("model.vertebra").clusters_
    [('x3',), ('x0', 'x1')]
    """
    inside = pathlib.Path(path) / "model.vertebra"  # as the command line writes it
    kind, header, arrays = read(inside if inside.is_file() else path, kinds=tuple(KINDS))
    try:
        model = _restored(KINDS[kind], header, arrays)
        # a row of gaps goes through every part: sizes that do not fit together show here
        gaps = np.full((2, len(model.schema_.columns)), np.nan)
        model._surface.moments(model._encoding(gaps))
        model._linear(gaps)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, np.linalg.LinAlgError) as error:
        raise BadFile(
            f"{os.fspath(path)}: its parts do not fit together ({type(error).__name__}: {error}). "
            "Save the model again, or ask for a whole copy."
        ) from error
    return model


def _restored(cls: Any, header: dict, arrays: dict[str, np.ndarray]) -> Any:
    params = dict(header["params"])
    if params.get("skeleton") is not None:
        params["skeleton"] = Skeleton.from_text(params["skeleton"])
    if isinstance(params.get("feature_types"), dict):
        params["feature_types"] = dict(map(tuple, params["feature_types"]["pairs"]))
    model = cls(**params)
    model.schema_ = Schema.from_json(header["schema"])
    p = len(model.schema_.columns)
    n_levels = [len(column.levels) for column in model.schema_.columns]
    model._encoding = _encoding_in(header["is_ordered"], arrays, n_levels)
    model._ranges = _floats(arrays["ranges"], 2)
    if model._ranges.shape != (p, 2):
        raise ValueError("the ranges are of another number of inputs than the schema")
    model.n_features_in_ = len(model.schema_.sources)
    model.target_names_ = [str(name) for name in header["targets"]]
    if model.schema_.named:
        model.feature_names_in_ = np.array(model.schema_.sources, dtype=object)
    model._likelihood = _likelihood_in(header["likelihood"], arrays)
    notes = header["diagnostics"]
    model.diagnostics_ = Diagnostics(
        str(notes["verdict"]),
        tuple(map(str, notes["notes"])),
        tuple(map(str, notes["warnings"])),
        {str(k): float(v) for k, v in notes["figures"].items()},
    )
    model._profile = _profile_in(header["profile"], arrays, model.schema_)
    linear = [_floats(arrays[f"linear/{name}"], 2 if name == "coefficients" else 1) for name in LINEAR_ARRAYS]
    model._linear = Linear(tuple(int(n) for n in header["linear"]), *linear)
    model.evaluation_ = (
        _evaluation_in(header["evaluation"], len(model.target_names_)) if "evaluation" in header else None
    )
    if "classes" in header:
        model.classes_ = _classes_in(header["classes"])
    else:
        model._single = bool(header["single"])
        model._y_mean, model._y_scale = _floats(arrays["y_mean"], 1), _floats(arrays["y_scale"], 1)
        model._conformal = _floats(arrays["conformal"], 2) if "conformal" in arrays else None
    names = [column.name for column in model.schema_.columns]
    if "structures" in header:
        model._structures = tuple(_structure_in(s) for s in header["structures"])
        model._found = tuple(_term(term) for term in header["found"])
        model.clusters_ = [tuple(names[i] for i in term) for term in model._found]
        model._known = {}
    model._surface = _surface_in(header["surface"], arrays, n_levels)
    return model


# --- parts ------------------------------------------------------------------------------------------------------------


def _params(model: Any) -> dict[str, Any]:
    """The constructor's arguments as JSON: groups as lists, a skeleton as its text, a generator as none."""
    params = model.get_params(deep=False)
    if params.get("skeleton") is not None:
        params["skeleton"] = str(params["skeleton"])
    if params.get("clusters") is not None:
        params["clusters"] = [[_plain(name) for name in cluster] for cluster in params["clusters"]]
    kinds = params.get("feature_types")
    if kinds is not None:
        is_map = hasattr(kinds, "items")
        params["feature_types"] = {"pairs": [[_plain(k), v] for k, v in kinds.items()]} if is_map else list(kinds)
    if params.get("widths") is not None:
        params["widths"] = [int(width) for width in params["widths"]]
    return {k: (None if k == "random_state" and not isinstance(v, int) else _plain(v)) for k, v in params.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _encoding_out(encoding: Encoding, arrays: dict[str, np.ndarray], place: str = "") -> list[bool]:
    arrays[f"{place}gaps"] = encoding.gaps
    arrays |= {f"{place}encoding/{i}": table for i, table in enumerate(encoding.tables) if table is not None}
    return list(encoding.is_ordered)


def _encoding_in(is_ordered: Any, arrays: dict[str, np.ndarray], n_levels: list[int], place: str = "") -> Encoding:
    n_inputs = len(n_levels)
    found = [arrays.get(f"{place}encoding/{i}") for i in range(n_inputs)]
    tables = tuple(None if table is None else _floats(table, 1) for table in found)
    gaps = _floats(arrays[f"{place}gaps"], 1)
    if len(gaps) != n_inputs or len(is_ordered) != n_inputs:
        raise ValueError("the encoding has another number of inputs than the schema")
    for i, (table, n) in enumerate(zip(tables, n_levels, strict=True)):
        if table is not None and (len(table) != n + 2 or not np.isfinite(table).all()):
            raise ValueError(f"the encoding of input {i} is not one of its {n} levels")
    return Encoding(tables, gaps, tuple(bool(o) for o in is_ordered))


def _classes_in(record: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(str(record["dtype"]))
    if dtype.kind not in "biufUO":
        raise ValueError(f"classes of the type {dtype}")
    return np.array(record["values"], dtype=dtype)


def _json_number(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else None


def _profile_out(profile: Profile, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    record: dict[str, Any] = {"n_rows": profile.n_rows, "weight": profile.weight}
    for kind in ("inputs", "targets"):
        marginals = getattr(profile, kind)
        for i, marginal in enumerate(marginals):
            arrays |= {f"profile/{kind}/{i}/edges": marginal.edges, f"profile/{kind}/{i}/shares": marginal.shares}
        record[kind] = [[m.missing, m.middle] for m in marginals]
    arrays["profile/means"] = profile.means
    return record


def _profile_in(record: dict[str, Any], arrays: dict[str, np.ndarray], schema: Schema) -> Profile:
    def marginals(kind: str) -> tuple[Marginal, ...]:
        found = []
        for i, (missing, middle) in enumerate(record[kind]):
            edges, shares = (_floats(arrays[f"profile/{kind}/{i}/{name}"], 1) for name in ("edges", "shares"))
            if len(edges) not in (0, len(shares) + 1):
                raise ValueError(f"the histogram {i} has another number of bins than of edges")
            found.append(Marginal(edges, shares, float(missing), float(middle)))
        return tuple(found)

    inputs = marginals("inputs")
    if [-1 if len(m.edges) else len(m.shares) for m in inputs] != [len(c.levels) or -1 for c in schema.columns]:
        raise ValueError("the histograms are not of the schema's inputs")
    means = _floats(arrays["profile/means"], 1)
    return Profile(int(record["n_rows"]), float(record["weight"]), inputs, marginals("targets"), means)


def _evaluation_in(record: dict[str, Any], n_targets: int) -> Evaluation:
    scores = {
        str(who): {str(k): float("nan") if v is None else float(v) for k, v in own.items()}
        for who, own in record["scores"].items()
    }
    calibration = {str(k): [float(v) for v in values] for k, values in record["calibration"].items()}
    if (
        list(calibration) != ["expected", "observed", "lower", "upper", "n"]
        or len({*map(len, calibration.values())}) != 1
    ):
        raise ValueError("the calibration is not one")
    error = {"log_loss"} if "shares" in scores else {name for name in scores["model"] if name.startswith("rmse")}
    for who in ("model", "linear", "shares" if "shares" in scores else "mean"):
        if not error or not error <= set(scores[who]):
            raise ValueError(f"the scores of {who!r} lack {sorted(error)}")
    for name in (name for own in scores.values() for name in own):
        score, _, target = name.partition(" ")
        if score not in {*WORDS, "accuracy"} or (target and not 0 <= int(target) < n_targets):
            raise ValueError(f"a score {name!r}")
    return Evaluation(str(record["method"]), int(record["n"]), scores, calibration)


def _structure_out(structure: Structure) -> dict[str, Any]:
    tests = [
        [list(map(int, t)), s.p_value, max(min(s.log_bayes_factor, 1e300), -1e300)] for t, s in structure.tests.items()
    ]
    return {
        "terms": [list(map(int, t)) for t in structure.terms],
        "tests": tests,
        "n_candidates": [[k, int(n)] for k, n in structure.n_candidates.items()],
    }


def _structure_in(record: dict[str, Any]) -> Structure:
    return Structure(
        tuple(_term(t) for t in record["terms"]),
        {_term(t): Score(float(p), float(b)) for t, p, b in record["tests"]},
        {int(k): int(n) for k, n in record["n_candidates"]},
    )


def _term(value: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in value)


def _likelihood_out(likelihood: Likelihood, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    leaves = jax.tree.leaves(eqx.filter(likelihood, eqx.is_array))
    arrays |= {f"likelihood/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return {"name": type(likelihood).__name__, "n_classes": getattr(likelihood, "n_classes", 0)}


def _likelihood_in(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Likelihood:
    kind: Any = LIKELIHOODS[record["name"]]
    if kind is Categorical:
        return Categorical(int(record["n_classes"]))
    if kind in (Gaussian, HeteroscedasticGaussian, StudentT):
        return _filled(kind(np.ones(arrays["likelihood/0"].shape)), arrays, "likelihood")
    return kind()


def _surface_out(surface: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if isinstance(surface, TermSurface):
        return _terms_out(surface, arrays)
    if isinstance(surface, HybridSurface):
        arrays |= {f"remainder/{name}": getattr(surface, name) for name in (*REMAINDER_ARRAYS, "had_gaps")}
        terms, networks = (_surface_out(part, arrays) for part in (surface.terms, surface.networks))
        encoding = _encoding_out(surface.encoding, arrays, "remainder/")
        return {"kind": "hybrid", "terms": terms, "networks": networks, "is_ordered": encoding}
    is_ensemble = isinstance(surface, EnsembleSurface)
    networks = surface.networks if is_ensemble else (surface.network,)
    for m, network in enumerate(networks):
        leaves = jax.tree.leaves(eqx.filter(network, eqx.is_array))
        arrays |= {f"network/{m}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {"factor": surface.factor} if is_ensemble else {"rows": surface.rows}
    return {
        "kind": "ensemble" if is_ensemble else "network",
        "n_networks": len(networks),
        "seed": surface.seed,
        "scheme": surface.scheme,
        "skeleton": str(networks[0].skeleton),
        "widths": list(surface.widths),
        "joint": bool(networks[0].stacks[-1].joint),
    }


def _terms_out(surface: TermSurface, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    basis = surface.terms.basis
    for i, system in enumerate(basis.systems):
        arrays |= {f"system/{i}/{name}": getattr(system, name) for name in SYSTEM_ARRAYS}
    arrays |= {f"block/{i}": block.index for i, block in enumerate(basis.blocks)}
    for k in range(surface.n_outputs):
        arrays |= {f"mean/{k}": surface.terms.means[k], f"root/{k}": surface.terms.roots[k]}
    return {
        "kind": "terms",
        "seed": surface.seed,
        "systems": [{name: _plain(getattr(s, name)) for name in SYSTEM_NUMBERS} for s in basis.systems],
        "terms": [list(map(int, block.term)) for block in basis.blocks],
        "n_outputs": surface.n_outputs,
    }


def _surface_in(record: dict[str, Any], arrays: dict[str, np.ndarray], n_levels: list[int]) -> Any:
    if record["kind"] == "terms":
        return _terms_in(record, arrays, len(n_levels))
    if record["kind"] == "hybrid":
        return _hybrid_in(record, arrays, n_levels)
    like, n_networks = _network_in(record), int(record["n_networks"])
    networks = tuple(_filled(like, arrays, f"network/{m}") for m in range(n_networks))
    about = int(record["seed"]), record["scheme"], tuple(int(width) for width in record["widths"])
    if record["kind"] == "network":
        return NetworkSurface(networks[0], _floats(arrays["rows"], 2), *about)
    factor = _floats(arrays["factor"], 1)
    if len(factor) != like.n_outputs or n_networks < 2 or not _are_sizes(factor):
        raise ValueError("an ensemble of one network, or of other outputs than its factors")
    return EnsembleSurface(networks, factor, *about)


def _hybrid_in(record: dict[str, Any], arrays: dict[str, np.ndarray], n_levels: list[int]) -> HybridSurface:
    terms, networks = (_surface_in(record[part], arrays, n_levels) for part in ("terms", "networks"))
    if not isinstance(terms, TermSurface) or not isinstance(networks, EnsembleSurface):
        raise ValueError("a remainder of other parts than terms and an ensemble")
    own = {name: _floats(arrays[f"remainder/{name}"], 2 if name == "sizes" else 1) for name in REMAINDER_ARRAYS}
    if any(array.shape[-1] != terms.n_outputs or not _are_sizes(array) for array in own.values()):
        raise ValueError("a remainder of other outputs than the terms")
    if networks.n_outputs != terms.n_outputs or (own["share"] > 1.0).any() or (own["probability"] > 1.0).any():
        raise ValueError("a remainder that does not go with its terms")
    had_gaps = arrays["remainder/had_gaps"]
    if len(own["sizes"]) != N_DRAWS or had_gaps.dtype != np.bool_ or had_gaps.shape != (len(n_levels),):
        raise ValueError("a remainder with other draws than the terms', or of other inputs")
    encoding = _encoding_in(record["is_ordered"], arrays, n_levels, "remainder/")
    return HybridSurface(terms, networks, encoding, **own, had_gaps=had_gaps)


def _are_sizes(array: np.ndarray) -> bool:
    return bool((np.isfinite(array) & (array >= 0.0)).all())


def _terms_in(record: dict[str, Any], arrays: dict[str, np.ndarray], n_inputs: int) -> TermSurface:
    systems = []
    for i, numbers in enumerate(record["systems"]):
        own = {name: arrays[f"system/{i}/{name}"] for name in SYSTEM_ARRAYS}
        k = len(own["kind"])
        if own["gram"].shape != (k, k) or any(len(own[n]) != k for n in ("missing", "unseen", "cost", "offset")):
            raise ValueError(f"the functions of input {i} differ in number")
        systems.append(
            System(
                **own,
                n_levels=int(numbers["n_levels"]),
                **{name: float(numbers[name]) for name in ("low", "width", "observed")},
            )
        )
    if len(systems) != n_inputs:
        raise ValueError("another number of inputs than the schema")
    blocks = []
    for i, term in enumerate(record["terms"]):
        index = arrays[f"block/{i}"]
        term = _term(term)
        sizes = [len(systems[j].kind) for j in term]
        if index.ndim != 2 or index.shape[1] != len(term) or (index < 0).any() or (index >= sizes).any():
            raise ValueError(f"the products of term {i} are not of its inputs' functions")
        blocks.append(Block(term, index))
    basis = Basis(tuple(systems), tuple(blocks))
    n_outputs = int(record["n_outputs"])
    means = tuple(_floats(arrays[f"mean/{k}"], 1) for k in range(n_outputs))
    roots = tuple(_floats(arrays[f"root/{k}"], 2) for k in range(n_outputs))
    if not means or any(len(part) != basis.n_columns + 1 for part in (*means, *roots)):
        raise ValueError("the posterior has another size than the basis")
    return TermSurface(SumOfTerms(basis, means, roots), int(record["seed"]))


def _network_in(record: dict[str, Any]) -> Network:
    """The network built again, for the file's numbers to take the place of its own."""
    skeleton = Skeleton.from_text(record["skeleton"])
    widths = [int(width) for width in record["widths"]]
    options = SCHEMES[record["scheme"]]["options"]
    layers = getattr(schemes, record["scheme"])(widths, **options)
    like = build(skeleton, layers, key=jr.key(0), x=np.zeros((2, skeleton.n_inputs)))
    return _with_joint_top(like) if record["joint"] else like


def _with_joint_top(network: Network) -> Network:
    """The same with a top layer of the closed form's shape, by way of it: the numbers do not matter."""
    x = np.random.default_rng(0).standard_normal((4, network.skeleton.n_inputs))
    y = np.zeros((4, network.n_outputs)) + np.arange(4.0)[:, None]
    likelihood = Gaussian().init(y)
    if not has_closed_form(network, likelihood):
        raise ValueError("a joint top layer on a network that has none")
    return closed_form(network, likelihood, x, y, np.ones((4, 1)))[0]


def _filled(like: Any, arrays: dict[str, np.ndarray], prefix: str) -> Any:
    """A tree with the file's arrays in the place of its own, which must have the same shapes and types."""
    own, rest = eqx.partition(like, eqx.is_array)
    leaves, tree = jax.tree.flatten(own)
    found = [arrays[f"{prefix}/{i}"] for i in range(len(leaves))]
    for i, (leaf, array) in enumerate(zip(leaves, found, strict=True)):
        if leaf.shape != array.shape or np.dtype(leaf.dtype).kind != array.dtype.kind:
            raise ValueError(f"{prefix}/{i} has the shape {array.shape} where {leaf.shape} belongs")
    return eqx.combine(jax.tree.unflatten(tree, [jnp.asarray(array) for array in found]), rest)


def _floats(array: np.ndarray, n_axes: int) -> np.ndarray:
    if array.dtype != np.float64 or array.ndim != n_axes:
        raise ValueError(f"an array of {array.dtype} with {array.ndim} axes where {n_axes} of float64 belong")
    return array
