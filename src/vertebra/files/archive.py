"""A fitted estimator as a header and arrays, and back: what goes into a file of `storage`.

Nothing of it is code: a network is built again from its scheme and skeleton, and its numbers are put in. A file may
come from anyone: `claims` holds each part to what it may be, sizes first, before anything of that size is built.
"""

import itertools
import math
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from vertebra.effects.posterior import N_DRAWS, EnsembleSurface, HybridSurface, NetworkSurface, TermSurface
from vertebra.estimators.diagnostics import Diagnostics
from vertebra.estimators.evaluation import WORDS, Evaluation, Linear
from vertebra.estimators.scikit import (
    AdditiveClassifier,
    AdditiveRegressor,
    SkeletonClassifier,
    SkeletonRegressor,
)
from vertebra.estimators.steps import SCHEMES
from vertebra.inference.conjugate import closed_form, has_closed_form, n_joint_features
from vertebra.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from vertebra.machine import claims
from vertebra.machine.claims import FINITE, LARGEST, Arrays
from vertebra.machine.file import BadFile, read, write
from vertebra.networks import schemes
from vertebra.networks.network import Network, build, least_size
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.column import UNSEEN
from vertebra.tables.encoding import FARTHEST, Encoding
from vertebra.tables.profile import Marginal, Profile
from vertebra.tables.schema import Schema
from vertebra.terms.evidence import Basis, Block
from vertebra.terms.functions import CONSTANT, SEEN, System, rank_curve
from vertebra.terms.functions import UNSEEN as UNSEEN_FUNCTION
from vertebra.terms.search import Score, Structure
from vertebra.terms.sum_of_terms import SumOfTerms

KINDS = {k.__name__: k for k in (AdditiveRegressor, AdditiveClassifier, SkeletonRegressor, SkeletonClassifier)}
LIKELIHOODS = {k.__name__: k for k in (Gaussian, HeteroscedasticGaussian, StudentT, Poisson, Bernoulli, Categorical)}
SYSTEM_ARRAYS = ("quantiles", "transform", "knots", "table", "missing", "unseen", "kind", "cost", "offset", "gram")
LINEAR_ARRAYS = ("gaps", "scale", "coefficients")
REMAINDER_ARRAYS = ("share", "sizes", "probability")
SYSTEM_NUMBERS = ("n_levels", "low", "width", "observed")
NEEDED = ("params", "schema", "targets", "is_ordered", "likelihood", "diagnostics", "profile", "linear", "surface")
OPTIONAL = ("evaluation", "classes", "single", "found", "structures")
TINY = float(np.finfo(np.float64).tiny)
# What y may be classes of; text besides, as wide as its longest class or this many characters.
CLASS_TYPES = {
    np.dtype(t).str: t for t in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "O")
}
WIDEST = 1000
# Layers of a network: more would take minutes to compile.
MOST_LAYERS = 200
# Weights of a network, which reads numbers of sd 1 and says such: products of a few of these do not overflow.
LARGEST_WEIGHT = 1e15
# Rows that a model is asked about when it is loaded.
N_PROBES = 16
# Logarithms of scales: e^80 is within single precision, which ends at e^88. Of degrees of freedom less 2: in double
# precision 2 + e^−30 is more than 2.
LARGEST_LOG, SMALLEST_LOG, LEAST_LOG_EXCESS = 80.0, -2000.0, -30.0


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
        header["classes"] = _classes_out(model.classes_)
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
        model = _restored(KINDS[kind], header, Arrays(arrays))
        with np.errstate(all="ignore"):
            _probe(model)
    except MemoryError:
        raise BadFile(f"{os.fspath(path)}: it does not fit in memory. Load it on a larger machine.") from None
    # what the checks above did not foresee must not leave as something else
    except Exception as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise BadFile(
            f"{os.fspath(path)}: its parts do not fit together ({kind}{str(error)[:500]}). "
            "Save the model again, or ask for a whole copy."
        ) from error
    return model


def _restored(cls: Any, header: dict, arrays: Arrays) -> Any:
    claims.record(header, "the header", NEEDED, OPTIONAL)
    model = cls(**_params_in(cls, header["params"]))
    model.schema_ = Schema.from_json(header["schema"])
    columns = model.schema_.columns
    p = len(columns)
    is_ordered = [claims.flag(each, "is_ordered") for each in claims.listed(header["is_ordered"], "is_ordered", p)]
    claims.demand(is_ordered == [c.kind == "ordered" for c in columns], "is_ordered", "the schema's", is_ordered)
    model._ranges = claims.rising(arrays.take("ranges", p, 2).T, "ranges").T
    model.n_features_in_ = len(model.schema_.sources)
    model.target_names_ = claims.texts(header["targets"], "targets")
    if model.schema_.named:
        model.feature_names_in_ = np.array(model.schema_.sources, dtype=object)
    is_classifier = cls in (AdditiveClassifier, SkeletonClassifier)
    k = len(model.target_names_)
    claims.demand(k == 1 if is_classifier else k > 0, "targets", "the names of the targets", model.target_names_)
    claims.demand(("classes" in header) == is_classifier, "classes", "there for classifiers", "classes" in header)
    claims.demand(("single" in header) != is_classifier, "single", "there for regressors", "single" in header)
    if is_classifier:
        model.classes_ = _classes_in(header["classes"])
        n_classes = len(model.classes_)
        model._likelihood = _likelihood_in(header["likelihood"], arrays, k, n_classes)
        of_targets = n_classes if n_classes > 2 else 1
    else:
        model._single = claims.flag(header["single"], "single")
        claims.demand(k == 1 or not model._single, "targets", "one where single", model.target_names_)
        model._y_mean = arrays.take("y_mean", k, low=-0.5 * FINITE, high=0.5 * FINITE)
        # a million sds of y are still a number
        model._y_scale = arrays.take("y_scale", k, low=TINY, high=1e-6 * FINITE)
        model._likelihood = _likelihood_in(header["likelihood"], arrays, k)
        is_poisson = isinstance(model._likelihood, Poisson)
        claims.demand((model.likelihood == "poisson") == is_poisson, "the likelihood", "that of the params", is_poisson)
        model._conformal = None
        if "conformal" in arrays:
            model._conformal = claims.rising(arrays.take("conformal", None, k, low=0.0, high=FINITE), "conformal")
        claims.demand(
            model.conformal == (model._conformal is not None), "conformal", "as in the params", model.conformal
        )
        n_classes, of_targets = 0, k
    model.diagnostics_ = _diagnostics_in(header["diagnostics"])
    model._profile = _profile_in(header["profile"], arrays, model.schema_, k, n_classes)
    model._linear = _linear_in(header["linear"], arrays, [len(c.levels) for c in columns], of_targets)
    model.evaluation_ = _evaluation_in(header["evaluation"], k) if "evaluation" in header else None
    n_latent = model._likelihood.n_latent(k)
    names = [column.name for column in columns]
    is_additive = cls in (AdditiveRegressor, AdditiveClassifier)
    for part in ("found", "structures"):
        claims.demand((part in header) == is_additive, part, "there for additive models", part in header)
    if is_additive:
        structures = claims.listed(header["structures"], "structures")
        # of every output, whose latent functions lie side by side, the first
        least = n_latent - model._likelihood.latent_per_target + 1
        claims.demand(len(structures) >= least, "structures", f"at least {least}", len(structures))
        model._structures = tuple(_structure_in(each, p) for each in structures)
        model._found = tuple(_term(term, p) for term in claims.listed(header["found"], "found"))
        model.clusters_ = [tuple(names[i] for i in term) for term in model._found]
        model._known = {}
    categories = [len(c.levels) if c.kind in ("category", "boolean") else 0 for c in columns]
    kinds = ("terms", "network", "hybrid") if is_additive else ("network", "ensemble")
    model._surface, model._encoding = _surface_in(header["surface"], arrays, categories, is_ordered, n_latent, kinds)
    if not is_additive:
        first = model._surface.network if isinstance(model._surface, NetworkSurface) else model._surface.networks[0]
        model.skeleton_ = first.skeleton
    arrays.check_all_taken()
    return model


def _probe(model: Any) -> None:
    """Asks the model about some rows, whose answers must be finite: gaps, levels never seen, and between all limits."""
    columns, ranges = model.schema_.columns, model._ranges
    share = np.random.default_rng(0).random((N_PROBES, len(columns)))
    share[:3] = [[0.0], [0.5], [1.0]]
    rows = ranges[:, 0] * (1.0 - share) + ranges[:, 1] * share
    for i, column in enumerate(columns):
        if column.levels:
            rows[:, i] = np.floor(share[:, i] * (len(column.levels) - 1e-9))
    rows[3] = np.nan
    rows[4] = [UNSEEN if column.levels else np.nan for column in columns]
    mean, variance = model._surface.moments(model._encoding(rows))
    answers = [mean, variance, model._linear(rows)]
    if not hasattr(model, "classes_"):
        each = model._likelihood.latent_per_target
        spread = np.sqrt(variance[:, ::each]) + np.exp(float(np.max(getattr(model._likelihood, "log_scale", 0.0))))
        answers.append(model._y_mean + model._y_scale * (np.abs(mean[:, ::each]) + spread))
    for part in answers:
        claims.demand(np.isfinite(part).all() and len(part) == N_PROBES, "what it says of rows", "finite", part)
    claims.demand((variance >= 0.0).all(), "the variance of f", "at least 0", variance)


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
    params = {k: _plain(v) for k, v in params.items()}
    return params | ({} if type(params["random_state"]) is int else {"random_state": None})


def _params_in(cls: Any, value: Any) -> dict[str, Any]:
    """The constructor's arguments: those that predictions depend on are checked, the others are what JSON holds."""
    params = dict(claims.record(value, "params", (), cls._get_param_names()))
    for name in ("conformal", "warm_start", "remainder", "early_stopping"):
        claims.flag(params.get(name, False), f"params.{name}")
    for name in ("scheme", "structure", "likelihood"):
        claims.text(params.get(name, ""), f"params.{name}")
    if "likelihood" in params:
        claims.one_of(params["likelihood"], "params.likelihood", cls._noises)
    if params.get("random_state") is not None:
        claims.whole(params["random_state"], "params.random_state")
    if params.get("skeleton") is not None:
        params["skeleton"] = Skeleton.from_text(claims.text(params["skeleton"], "params.skeleton"))
    for cluster in claims.listed(params.get("clusters") or [], "params.clusters"):
        for each in claims.listed(cluster, "params.clusters"):
            claims.demand(isinstance(each, str | int), "params.clusters", "names or places of inputs", each)
    for width in claims.listed(params.get("widths") or [], "params.widths"):
        claims.whole(width, "params.widths", 1)
    kinds = params.get("feature_types")
    if isinstance(kinds, dict):
        pairs = claims.listed(claims.record(kinds, "params.feature_types", ("pairs",))["pairs"], "params.feature_types")
        params["feature_types"] = dict(tuple(claims.listed(pair, "params.feature_types", 2)) for pair in pairs)
    elif kinds is not None:
        claims.listed(kinds, "params.feature_types")
    for name in ("n_steps", "n_subnetworks", "time_budget", "checkpoint", "verbose"):
        is_plain = params.get(name) is None or isinstance(params[name], str | bool | int | float)
        claims.demand(is_plain, f"params.{name}", "a number, text or nothing", params.get(name))
    return params


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def _encoding_out(encoding: Encoding, arrays: dict[str, np.ndarray], place: str = "") -> list[bool]:
    arrays[f"{place}gaps"] = encoding.gaps
    arrays |= {f"{place}encoding/{i}": table for i, table in enumerate(encoding.tables) if table is not None}
    return list(encoding.is_ordered)


def _encoding_in(
    arrays: Arrays,
    n_levels: Sequence[int],
    is_ordered: Sequence[bool],
    *,
    encoded: Sequence[bool],
    fill: bool,
    place: str,
) -> Encoding:
    """With tables for the categories that are `encoded`, and with `fill` a number for the gaps of all others."""
    for i, (n, wanted) in enumerate(zip(n_levels, encoded, strict=True)):
        name = f"{place}encoding/{i}"
        claims.demand((name in arrays) == wanted, name, "there" if wanted else "absent", n)
    tables = [
        arrays.take(f"{place}encoding/{i}", n + 2) if e else None
        for i, (n, e) in enumerate(zip(n_levels, encoded, strict=True))
    ]
    gaps = arrays.take(f"{place}gaps", len(n_levels), gaps=True)
    is_filled = np.array([fill and n == 0 for n in n_levels])
    claims.demand((np.isnan(gaps) != is_filled).all(), f"{place}gaps", "numbers where gaps are filled", gaps.tolist())
    return Encoding(tuple(tables), gaps, tuple(is_ordered))


def _classes_out(classes: np.ndarray) -> dict[str, Any]:
    values = classes.tolist()
    if classes.dtype.kind == "U":  # wider than its classes only as far as is read
        longest = max(len(value) for value in values)
        classes = classes.astype(f"<U{min(classes.dtype.itemsize // 4, max(longest, WIDEST))}")
    return {"dtype": classes.dtype.newbyteorder("<").str, "values": values}


def _classes_in(value: Any) -> np.ndarray:
    claims.record(value, "classes", ("dtype", "values"))
    name, values = claims.text(value["dtype"], "the type of classes"), claims.listed(value["values"], "classes")
    claims.demand(len(values) >= 2, "classes", "two at least", values)
    if re.fullmatch("<U[0-9]{1,9}", name):
        wanted: Any = str
        longest = max(len(each) if isinstance(each, str) else 0 for each in values)
        most = max(longest, WIDEST)
        claims.demand(longest <= int(name[2:]) <= most, "the type of classes", f"text of {longest} to {most}", name)
    else:
        claims.demand(name in CLASS_TYPES, "the type of classes", f"text, or one of {', '.join(CLASS_TYPES)}", name)
        wanted = {"b": bool, "i": int, "u": int, "f": (int, float), "O": (str, bool, int, float)}[np.dtype(name).kind]
    for each in values:
        is_one = isinstance(each, wanted) and (not isinstance(each, bool) or name in ("|b1", "|O"))
        claims.demand(is_one, "a class", f"of the type {name}", each)
    classes = np.array(values, dtype=name)
    claims.demand(classes.tolist() == values and len({*map(str, values)}) == len(values), "classes", "distinct", values)
    return classes


def _diagnostics_in(value: Any) -> Diagnostics:
    claims.record(value, "diagnostics", ("verdict", "notes", "warnings", "figures"))
    figures = value["figures"]
    claims.demand(isinstance(figures, dict), "the figures of the diagnostics", "an object", figures)
    return Diagnostics(
        claims.text(value["verdict"], "the verdict"),
        tuple(claims.texts(value["notes"], "the notes")),
        tuple(claims.texts(value["warnings"], "the warnings")),
        {k: claims.number(v, f"the figure {k[:100]}") for k, v in figures.items()},
    )


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


def _profile_in(value: Any, arrays: Arrays, schema: Schema, n_targets: int, n_classes: int) -> Profile:
    claims.record(value, "the profile", ("n_rows", "weight", "inputs", "targets"))

    def marginals(kind: str, n_levels: Sequence[int]) -> tuple[Marginal, ...]:
        found = []
        pairs = claims.listed(value[kind], f"the profile's {kind}", len(n_levels))
        for i, (pair, n) in enumerate(zip(pairs, n_levels, strict=True)):
            what = f"profile/{kind}/{i}"
            missing, middle = claims.listed(pair, what, 2)
            # shares of all rows; a sum of them may miss 1 by rounding
            shares = arrays.take(f"{what}/shares", n or None, low=0.0, high=1.0 + 1e-6)
            limits: Any = dict(low=-FINITE, high=FINITE)
            edges = claims.rising(arrays.take(f"{what}/edges", 0 if n else len(shares) + 1, **limits), f"{what}/edges")
            middle = claims.number(middle, what, *((0, n - 1) if n else ()))
            found.append(Marginal(edges, shares, claims.number(missing, what, 0, 1 + 1e-6), middle))
        return tuple(found)

    return Profile(
        claims.whole(value["n_rows"], "the number of rows"),
        claims.number(value["weight"], "the weight of all rows", 0),
        marginals("inputs", [len(column.levels) for column in schema.columns]),
        marginals("targets", [n_classes] * n_targets),
        arrays.take("profile/means", n_targets, low=-FINITE, high=FINITE),
    )


def _linear_in(value: Any, arrays: Arrays, n_levels: Sequence[int], n_outputs: int) -> Linear:
    """Of each input its levels, or −1 where they are too many for a linear model."""
    p = len(n_levels)
    own = [claims.whole(n, "the levels of the linear model", -1) for n in claims.listed(value, "linear", p)]
    for n, levels in zip(own, n_levels, strict=True):
        claims.demand(n == levels or (n == -1 and levels > 0), "the levels of the linear model", f"{levels} or -1", n)
    n_columns = 1 + sum(n + 1 if n > 0 else 2 for n in own if n >= 0)
    gaps = arrays.take("linear/gaps", p, low=-FARTHEST, high=FARTHEST)
    scale = arrays.take("linear/scale", p, low=TINY, high=FARTHEST)
    coefficients = arrays.take("linear/coefficients", n_columns, n_outputs, low=-FINITE, high=FINITE)
    return Linear(tuple(own), gaps, scale, coefficients)


def _evaluation_in(value: Any, n_targets: int) -> Evaluation:
    claims.record(value, "the evaluation", ("method", "n", "scores", "calibration"))
    claims.demand(isinstance(value["scores"], dict), "the scores", "an object", value["scores"])
    scores: dict[str, dict[str, float]] = {}
    for who, own in value["scores"].items():
        claims.demand(isinstance(own, dict), "the scores", "an object", own)
        scores[who] = {k: math.nan if v is None else claims.number(v, f"the score {k[:100]}") for k, v in own.items()}
    names = ("expected", "observed", "lower", "upper", "n")
    curve = claims.record(value["calibration"], "the calibration", names)
    n = len(claims.listed(curve["expected"], "the calibration"))
    calibration = {k: [claims.number(v, "the calibration") for v in claims.listed(curve[k], k, n)] for k in names}
    claims.record(scores, "the scores", ("model", "linear"), ("shares", "mean"))
    error = {"log_loss"} if "shares" in scores else {name for name in scores["model"] if name.startswith("rmse")}
    for who in ("model", "linear", "shares" if "shares" in scores else "mean"):
        if not error or not error <= set(scores.get(who, ())):
            raise ValueError(f"the scores of {who!r} lack {sorted(error)}")
    for name in (name for own in scores.values() for name in own):
        score, _, target = name.partition(" ")
        is_target = not target or (target.isdecimal() and len(target) < 9 and int(target) < n_targets)
        claims.demand(score in {*WORDS, "accuracy"} and is_target, "a score", "known", name)
    seen = claims.number(value["n"], "the number of rows evaluated", 0)
    return Evaluation(
        claims.text(value["method"], "the method"), int(seen) if seen.is_integer() else seen, scores, calibration
    )


def _structure_out(structure: Structure) -> dict[str, Any]:
    tests = [
        [list(map(int, t)), s.p_value, max(min(s.log_bayes_factor, 1e300), -1e300)] for t, s in structure.tests.items()
    ]
    return {
        "terms": [list(map(int, t)) for t in structure.terms],
        "tests": tests,
        "n_candidates": [[k, int(n)] for k, n in structure.n_candidates.items()],
    }


def _structure_in(value: Any, n_inputs: int) -> Structure:
    claims.record(value, "a structure", ("terms", "tests", "n_candidates"))
    tests = {}
    for test in claims.listed(value["tests"], "the tests"):
        term, p_value, factor = claims.listed(test, "a test", 3)
        # beside 0 and 1 rounding is what there is
        tests[_term(term, n_inputs)] = Score(
            claims.number(p_value, "a p-value", 0, 1 + 1e-9), claims.number(factor, "a Bayes factor")
        )
    counts = claims.listed(value["n_candidates"], "the numbers of candidates")
    counts = [claims.listed(pair, "the numbers of candidates", 2) for pair in counts]
    return Structure(
        tuple(_term(term, n_inputs) for term in claims.listed(value["terms"], "the terms found")),
        tests,
        {claims.whole(k, "an order"): claims.whole(n, "a number of candidates") for k, n in counts},
    )


def _term(value: Any, n_inputs: int) -> tuple[int, ...]:
    term = tuple(claims.whole(i, "an input of a term", 0, n_inputs - 1) for i in claims.listed(value, "a term"))
    claims.demand(term and all(a < b for a, b in itertools.pairwise(term)), "a term", "inputs in order", value)
    return term


def _likelihood_out(likelihood: Likelihood, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    leaves = jax.tree.leaves(eqx.filter(likelihood, eqx.is_array))
    arrays |= {f"likelihood/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return {"name": type(likelihood).__name__, "n_classes": getattr(likelihood, "n_classes", 0)}


def _likelihood_in(value: Any, arrays: Arrays, n_targets: int, n_classes: int = 0) -> Likelihood:
    claims.record(value, "the likelihood", ("name", "n_classes"))
    if n_classes:
        wanted = (Bernoulli, 0) if n_classes == 2 else (Categorical, n_classes)
        found = value["name"], value["n_classes"]
        claims.demand(found == (wanted[0].__name__, wanted[1]), "the likelihood", f"of {n_classes} classes", found)
        return Bernoulli() if n_classes == 2 else Categorical(n_classes)
    known = ("Gaussian", "HeteroscedasticGaussian", "StudentT", "Poisson")
    kind: Any = LIKELIHOODS[claims.one_of(value["name"], "the likelihood", known)]
    claims.whole(value["n_classes"], "the classes of the likelihood", 0, 0)
    if kind is Poisson:
        return kind()
    limits: Any = dict(kind="f", high=LARGEST_LOG)
    leaves = [arrays.take("likelihood/0", n_targets, low=SMALLEST_LOG, **limits)]
    if kind is StudentT:
        leaves.append(arrays.take("likelihood/1", low=LEAST_LOG_EXCESS, **limits))
    like = kind(np.ones(n_targets))
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(leaf) for leaf in leaves])


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


def _surface_in(
    value: Any,
    arrays: Arrays,
    n_levels: Sequence[int],
    is_ordered: Sequence[bool],
    n_latent: int,
    kinds: Sequence[str],
) -> tuple[Any, Encoding]:
    """The surface, of as many outputs as the likelihood has latent functions, and how rows become what it reads."""
    claims.demand(isinstance(value, dict), "the surface", "an object", value)
    kind = claims.one_of(value.get("kind"), "the kind of the surface", kinds)
    if kind in ("network", "ensemble"):
        encoded = [n > 0 for n in n_levels]
        encoding = _encoding_in(arrays, n_levels, is_ordered, encoded=encoded, fill=True, place="")
        return _networks_in(value, arrays, len(n_levels), n_latent), encoding
    parts = claims.record(value, "the surface", ("kind", "terms", "networks", "is_ordered")) if kind == "hybrid" else {}
    terms = _terms_in(parts["terms"] if parts else value, arrays, n_levels, n_latent)
    left = [system.n_levels for system in terms.terms.basis.systems]
    encoded = [n > 0 and not own for n, own in zip(n_levels, left, strict=True)]
    encoding = _encoding_in(arrays, n_levels, is_ordered, encoded=encoded, fill=False, place="")
    return (_hybrid_in(parts, arrays, terms, left, n_latent) if parts else terms), encoding


def _hybrid_in(
    value: dict, arrays: Arrays, terms: TermSurface, n_levels: Sequence[int], n_outputs: int
) -> HybridSurface:
    p = len(n_levels)
    ordered = [claims.flag(each, "is_ordered") for each in claims.listed(value["is_ordered"], "is_ordered", p)]
    claims.demand(not any(ordered), "the remainder's is_ordered", "all false", ordered)
    networks = _networks_in(value["networks"], arrays, p, n_outputs)
    claims.demand(isinstance(networks, EnsembleSurface), "the remainder", "of an ensemble", value["networks"])
    encoded = [n > 0 for n in n_levels]
    encoding = _encoding_in(arrays, n_levels, ordered, encoded=encoded, fill=True, place="remainder/")
    return HybridSurface(
        terms,
        networks,
        encoding,
        share=arrays.take("remainder/share", n_outputs, low=0.0, high=1.0),
        sizes=arrays.take("remainder/sizes", N_DRAWS, n_outputs, low=0.0),
        probability=arrays.take("remainder/probability", n_outputs, low=0.0, high=1.0),
        had_gaps=arrays.take("remainder/had_gaps", p, kind="b", low=0, high=1),
    )


def _terms_in(value: Any, arrays: Arrays, n_levels: Sequence[int], n_outputs: int) -> TermSurface:
    claims.record(value, "the sum of terms", ("kind", "seed", "systems", "terms", "n_outputs"))
    claims.demand(value["kind"] == "terms", "the kind of the surface", "terms", value["kind"])
    claims.demand(value["n_outputs"] == n_outputs, "n_outputs", f"{n_outputs}", value["n_outputs"])
    records = claims.listed(value["systems"], "the systems", len(n_levels))
    systems = tuple(_system_in(each, arrays, i, n) for i, (each, n) in enumerate(zip(records, n_levels, strict=True)))
    blocks = []
    for i, record in enumerate(claims.listed(value["terms"], "the terms")):
        term = _term(record, len(systems))
        index = arrays.take(f"block/{i}", None, len(term), kind="i")
        sizes = np.array([len(systems[j].kind) for j in term])
        claims.demand(
            (index >= 0).all() and (index < sizes).all(), f"block/{i}", "places of functions", index[:3].tolist()
        )
        blocks.append(Block(term, index))
    basis = Basis(systems, tuple(blocks))
    claims.demand(len(set(basis.terms)) == len(blocks), "the terms", "distinct", basis.terms)
    m = basis.n_columns + 1
    means = tuple(arrays.take(f"mean/{k}", m) for k in range(n_outputs))
    roots = tuple(arrays.take(f"root/{k}", m, None) for k in range(n_outputs))
    _check_bounded(basis, means, roots)
    return TermSurface(SumOfTerms(basis, means, roots), claims.whole(value["seed"], "the seed"))


def _system_in(value: Any, arrays: Arrays, i: int, n_levels: int) -> System:
    """The functions of an input; of a category those of its levels, unless they are encoded as a number."""
    claims.record(value, f"the system {i}", SYSTEM_NUMBERS)
    at = f"system/{i}/"
    own = claims.whole(value["n_levels"], f"the levels of the system {i}")
    claims.demand(own in (0, n_levels), f"the levels of the system {i}", f"0 or {n_levels}", own)
    far: Any = dict(low=-2.0 * FARTHEST, high=2.0 * FARTHEST)
    kind = arrays.take(f"{at}kind", None, kind="i", low=CONSTANT, high=UNSEEN_FUNCTION)
    k = len(kind)
    claims.demand(k >= 2 and kind[0] == CONSTANT and kind[1:].min() >= SEEN, f"{at}kind", "a constant and others", kind)
    knots = claims.rising(arrays.take(f"{at}knots", own or None, **far), f"{at}knots", strictly=True)
    transform = arrays.take(f"{at}transform", *((1, 1) if own else (None, None)))
    table = arrays.take(f"{at}table", len(knots), k - 1 if own else None)
    d, r = len(transform), table.shape[1]
    claims.demand(transform.shape == (d, d) and d > 0, f"{at}transform", "square", transform.shape)
    claims.demand(bool(own) or (k == d + r + 1 and (len(knots) > 1 or not r)), f"{at}kind", f"{d + r + 1}", k)
    quantiles = claims.rising(arrays.take(f"{at}quantiles", 0 if own else None, **far), f"{at}quantiles")
    if len(quantiles):
        claims.demand(quantiles[0] < quantiles[-1], f"{at}quantiles", "more than one", quantiles[:3].tolist())
        slopes = rank_curve(quantiles).c
        claims.demand(np.isfinite(slopes).all(), f"{at}quantiles", "apart from each other", quantiles.tolist())
    return System(
        own,
        claims.number(value["low"], f"the lowest value of input {i}", -FARTHEST, FARTHEST),
        claims.number(value["width"], f"the width of input {i}", TINY, 2.0 * FARTHEST),
        quantiles,
        transform,
        knots,
        table,
        claims.number(value["observed"], f"the function at values of input {i}", -LARGEST, LARGEST),
        arrays.take(f"{at}missing", k),
        arrays.take(f"{at}unseen", k),
        kind,
        arrays.take(f"{at}cost", k, kind="i", low=0, high=1000),
        arrays.take(f"{at}offset", k),
        arrays.take(f"{at}gram", k, k),
    )


def _check_bounded(basis: Basis, means: Sequence[np.ndarray], roots: Sequence[np.ndarray]) -> None:
    """f is far from overflow at any row: each function at its largest, all terms of one sign."""
    largest = []
    for system in basis.systems:
        values = np.maximum(np.abs(system.missing), np.abs(system.unseen))
        # Legendre polynomials are within ±1
        inner = np.abs(system.transform).sum(axis=0)
        table = np.abs(system.table).max(axis=0, initial=0.0)
        seen = np.append(1.0, table) if system.n_levels else np.concatenate([inner, table, [abs(system.observed)]])
        largest.append(np.maximum(values, seen))
    columns = [np.ones(1)]
    with np.errstate(over="ignore"):
        for block in basis.blocks:
            columns.append(np.prod([largest[i][block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0))
        phi = np.concatenate(columns)
        sizes = [float(phi @ np.abs(mean)) for mean in means]
        sizes += [float(np.max(phi @ np.abs(root), initial=0.0)) for root in roots]
    # no f on the scale of its targets' sds is so large; squares of it, and sums of many, are within double precision
    claims.demand(max(sizes) < 1e60, "what it can say", "far from overflow", max(sizes))


def _networks_in(value: Any, arrays: Arrays, n_inputs: int, n_outputs: int) -> "NetworkSurface | EnsembleSurface":
    """One network or several alike, built again for the file's numbers to take the place of their own."""
    names = ("kind", "n_networks", "seed", "scheme", "skeleton", "widths", "joint")
    claims.record(value, "the networks", names)
    kind = claims.one_of(value["kind"], "the kind of the networks", ("network", "ensemble"))
    n_networks = claims.whole(value["n_networks"], "n_networks", 1 if kind == "network" else 2)
    claims.demand(kind == "ensemble" or n_networks == 1, "n_networks", "1 of a network", n_networks)
    claims.demand(f"network/{n_networks - 1}/0" in arrays, "n_networks", "as many as there are arrays of", n_networks)
    widths = [claims.whole(width, "a width", 1) for width in claims.listed(value["widths"], "the widths")]
    joint = claims.flag(value["joint"], "joint")
    like = _network_in(value, widths, joint, n_inputs, arrays.size("network/0/"))
    claims.demand(like.n_outputs == n_outputs, "the outputs of the networks", f"{n_outputs}", like.n_outputs)
    networks = tuple(_filled(like, arrays, f"network/{m}") for m in range(n_networks))
    about = claims.whole(value["seed"], "the seed"), value["scheme"], tuple(widths)
    if kind == "network":
        return NetworkSurface(networks[0], arrays.take("rows", None, n_inputs), *about)
    return EnsembleSurface(networks, arrays.take("factor", n_outputs, low=0.0), *about)


def _network_in(value: dict, widths: list[int], joint: bool, n_inputs: int, n_numbers: int) -> Network:
    """The network built again, if it has no more numbers than the file has of it."""
    scheme = claims.one_of(value["scheme"], "the scheme", SCHEMES)
    claims.demand(len(widths) <= MOST_LAYERS, "the widths", f"of at most {MOST_LAYERS} layers", len(widths))
    skeleton = Skeleton.from_text(claims.text(value["skeleton"], "the skeleton"))
    claims.demand(skeleton.n_inputs == n_inputs, "the inputs of the skeleton", f"{n_inputs}", skeleton.n_inputs)
    claims.demand(skeleton.depth == len(widths), "the widths", f"one for each of {skeleton.depth} layers", widths)
    layers = getattr(schemes, scheme)(widths, **SCHEMES[scheme]["options"])
    least = least_size(skeleton, layers)
    claims.demand(least <= n_numbers, "the widths", f"those of a network of {n_numbers} numbers", widths)
    like = build(skeleton, layers, key=jr.key(0), x=np.zeros((2, skeleton.n_inputs)))
    if not joint:
        return like
    least = like.n_outputs * n_joint_features(like) ** 2
    claims.demand(least <= n_numbers, "the joint top", f"one of {n_numbers} numbers", least)
    return _with_joint_top(like)


def _with_joint_top(network: Network) -> Network:
    """The same with a top layer of the closed form's shape, by way of it: the numbers do not matter."""
    x = np.random.default_rng(0).standard_normal((4, network.skeleton.n_inputs))
    y = np.zeros((4, network.n_outputs)) + np.arange(4.0)[:, None]
    likelihood = Gaussian().init(y)
    if not has_closed_form(network, likelihood):
        raise ValueError("a joint top layer on a network that has none")
    return closed_form(network, likelihood, x, y, np.ones((4, 1)))[0]


def _filled(like: Network, arrays: Arrays, prefix: str) -> Network:
    """The network with the file's numbers, but for its wiring, which the skeleton tells."""
    own, rest = eqx.partition(like, eqx.is_array)
    leaves, tree = jax.tree.flatten(own)
    found = []
    for i, leaf in enumerate(leaves):
        limits: Any = dict(low=-LARGEST_WEIGHT, high=LARGEST_WEIGHT)
        found.append(jnp.asarray(arrays.take(f"{prefix}/{i}", *leaf.shape, kind=np.dtype(leaf.dtype).kind, **limits)))
    filled = eqx.combine(jax.tree.unflatten(tree, found), rest)
    pairs = zip(*(jax.tree.leaves([s.wiring for s in each.stacks]) for each in (like, filled)), strict=True)
    claims.demand(all(np.array_equal(a, b) for a, b in pairs), prefix, "wired as its skeleton", "another wiring")
    return filled
