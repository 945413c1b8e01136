"""The arguments of an estimator as JSON, and back."""

import os
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from vertebra.machine import claims
from vertebra.machine.file import Record
from vertebra.models.settings import NOISES
from vertebra.networks.skeleton import Skeleton

# Arguments that say something of some inputs.
BY_INPUT = ("feature_types", "monotone")
# What files of 0.1 do not know: they hold it where it is given, so that others stay as they were.
LATER = ("missing_values", "monotone", "evaluation", "class_weight", "target_transform")
# Those of them whose usual value is not nothing.
USUAL = {"evaluation": "auto", "target_transform": "none"}
# The arguments of every estimator with their usual values: a model is looked at without its estimator, and so without
# scikit-learn. A test holds them to the constructors.
_BOTH = {
    "scheme": "auto",
    "feature_types": None,
    "missing_values": None,
    "weights": "auto",
    "early_stopping": False,
    "time_budget": None,
    "checkpoint": None,
    "random_state": None,
    "verbose": False,
}
_NUMBERS = {"likelihood": "auto", "conformal": False}
_TERMS = {
    "structure": "tests",
    "n_subnetworks": 10,
    "clusters": None,
    "monotone": None,
    "remainder": True,
    "n_steps": 4000,
    "evaluation": "auto",
    "warm_start": False,
}
_SKELETON = {"skeleton": None, "widths": None, "n_steps": None}
ARGUMENTS: dict[str, dict[str, object]] = {
    "AdditiveRegressor": {**_BOTH, **_TERMS, **_NUMBERS, "target_transform": "none"},
    "AdditiveClassifier": {**_BOTH, **_TERMS, "class_weight": None},
    "SkeletonRegressor": {**_BOTH, **_SKELETON, **_NUMBERS},
    "SkeletonClassifier": {**_BOTH, **_SKELETON},
}


def params_state(params: Mapping[str, object]) -> Record:
    """The constructor's arguments as JSON: groups as lists, a skeleton as its text, a generator as none."""
    params = {
        name: value
        for name, value in params.items()
        if name not in LATER or (value is not None and not (name in USUAL and value == USUAL[name]))
    }
    if params.get("skeleton") is not None:
        params["skeleton"] = str(params["skeleton"])
    if isinstance(clusters := params.get("clusters"), Iterable):
        params["clusters"] = [[plain(name) for name in cluster] for cluster in clusters]
    for name in BY_INPUT:
        if (pairs := getattr(params.get(name), "items", None)) is not None:
            params[name] = {"pairs": [[plain(k), plain(v)] for k, v in pairs()]}
        elif isinstance(kinds := params.get(name), Iterable):
            params[name] = list(kinds)
    if params.get("missing_values") is not None:
        params["missing_values"] = _listed(params["missing_values"])
    if isinstance(by_class := params.get("class_weight"), Mapping):
        params["class_weight"] = {"pairs": [[plain(label), plain(weight)] for label, weight in by_class.items()]}
    if isinstance(widths := params.get("widths"), Iterable):
        params["widths"] = [int(width) for width in widths]
    params = {k: plain(v) for k, v in params.items()}
    return params | ({} if type(params["random_state"]) is int else {"random_state": None})


def params_from(names: Collection[str], value: object) -> Record:
    """The constructor's arguments: those that predictions depend on are checked, the others are what JSON holds."""
    params = dict(claims.record(value, "params", (), names))
    for name in ("conformal", "warm_start", "remainder", "early_stopping"):
        claims.flag(params.get(name, False), f"params.{name}")
    for name in ("scheme", "structure", "likelihood", "evaluation", "target_transform"):
        claims.text(params.get(name, ""), f"params.{name}")
    if "likelihood" in params:
        claims.one_of(params["likelihood"], "params.likelihood", NOISES)
    if params.get("random_state") is not None:
        claims.whole(params["random_state"], "params.random_state")
    if params.get("skeleton") is not None:
        params["skeleton"] = Skeleton.from_text(claims.text(params["skeleton"], "params.skeleton"))
    for cluster in claims.listed(params.get("clusters") or [], "params.clusters"):
        for each in claims.listed(cluster, "params.clusters"):
            claims.demand(isinstance(each, str | int), "params.clusters", "names or places of inputs", each)
    for width in claims.listed(params.get("widths") or [], "params.widths"):
        claims.whole(width, "params.widths", 1)
    for name in BY_INPUT:
        what, given = f"params.{name}", params.get(name)
        if isinstance(given, dict):
            pairs = claims.listed(claims.record(given, what, ("pairs",))["pairs"], what)
            pairs = (claims.listed(pair, what, 2) for pair in pairs)
            params[name] = {each[0]: each[1] for each in pairs}
        elif given is not None:
            claims.listed(given, what)
    if params.get("missing_values") is not None:
        params["missing_values"] = _gaps(params["missing_values"])
    if params.get("class_weight") is not None:
        params["class_weight"] = _by_class(params["class_weight"])
    for name in ("n_steps", "n_subnetworks", "time_budget"):
        is_number = params.get(name) is None or type(params[name]) in (int, float)
        claims.demand(is_number, f"params.{name}", "a number or nothing", params.get(name))
    claims.demand(
        isinstance(params.get("verbose", False), bool | int), "params.verbose", "a flag", params.get("verbose")
    )
    kept = params.get("checkpoint")
    claims.demand(kept is None or isinstance(kept, str), "params.checkpoint", "a path or nothing", kept)
    return params


def _listed(gaps: object) -> object:
    """Values that stand for gaps, as JSON: a value, a list, or pairs of a column and either."""
    if isinstance(gaps, Mapping):
        return {"pairs": [[plain(name), _listed(own)] for name, own in gaps.items()]}
    return [plain(each) for each in gaps] if isinstance(gaps, Iterable) and not isinstance(gaps, str) else plain(gaps)


def _gaps(value: object) -> object:
    """Values that stand for gaps, of what `_listed` wrote."""
    what = "params.missing_values"
    if not isinstance(value, dict):
        for each in value if isinstance(value, list) else [value]:
            claims.demand(each is None or isinstance(each, str | int | float), what, "numbers or texts", each)
        return value
    pairs = [
        claims.listed(pair, what, 2) for pair in claims.listed(claims.record(value, what, ("pairs",))["pairs"], what)
    ]
    for name, own in pairs:
        claims.demand(isinstance(name, str | int) and not isinstance(own, dict), what, "values by column", name)
    return {name: _gaps(own) for name, own in pairs}


def _by_class(value: object) -> object:
    """Weights of classes: a word, or pairs of a class and its weight."""
    what = "params.class_weight"
    if not isinstance(value, dict):
        return claims.text(value, what)
    pairs = claims.listed(claims.record(value, what, ("pairs",))["pairs"], what)
    found = {}
    for label, weight in (claims.listed(pair, what, 2) for pair in pairs):
        is_known = isinstance(label, str | int | float) and type(weight) in (int, float)
        claims.demand(is_known, what, "numbers by class", label)
        found[label] = weight
    return found


def unusual(params: Mapping[str, object], usual: Mapping[str, object]) -> Record:
    """The arguments that are not the defaults."""
    return {name: value for name, value in params.items() if not _is_same(value, usual[name])}


def _is_same(value: object, usual: object) -> bool:
    return value is usual or (isinstance(value, int | float | str) and value == usual)


def plain(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value
