"""A fitted estimator as a header and arrays, and back: what goes into a file of `storage`.

Nothing of it is code: a network is built again from its scheme and skeleton, and its numbers are put in. A file may
come from anyone: `claims` holds each part to what it may be, sizes first, before anything of that size is built.
"""

import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np

from vertebra.files.params import params_from, params_state
from vertebra.files.parts import (
    classes_from,
    classes_state,
    diagnostics_from,
    diagnostics_state,
    encoding_state,
    evaluation_from,
    evaluation_state,
    likelihood_from,
    likelihood_state,
    linear_from,
    linear_state,
    profile_from,
    profile_state,
    structure_from,
    structure_state,
    term_from,
)
from vertebra.files.posteriors import posterior_from, posterior_state
from vertebra.likelihoods.kept import COUNTS as COUNTED
from vertebra.likelihoods.kept import Kept
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine import claims
from vertebra.machine.claims import FINITE, TINY, Arrays
from vertebra.machine.file import BadFile, Record, read, write
from vertebra.models.model import Found, Model
from vertebra.models.settings import COUNTS
from vertebra.models.target import Target
from vertebra.models.transform import Transform
from vertebra.tables.column import UNSEEN
from vertebra.tables.schema import Schema

KINDS = ("AdditiveRegressor", "AdditiveClassifier", "SkeletonRegressor", "SkeletonClassifier")
NEEDED = ("params", "schema", "targets", "is_ordered", "likelihood", "diagnostics", "profile", "linear", "surface")
OPTIONAL = ("evaluation", "classes", "single", "found", "structures", "power")
# Rows that a model is asked about when it is loaded.
N_PROBES = 16


def save(model: Model, params: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Writes a fitted model, and the arguments of its estimator, to one file."""
    arrays: dict[str, np.ndarray] = {"ranges": model.ranges}
    header: Record = {
        "params": params_state(params),
        "schema": model.schema.to_json(),
        "targets": model.target.names,
        "is_ordered": encoding_state(model.encoding, arrays),
        "likelihood": likelihood_state(model.likelihood, arrays),
        "diagnostics": diagnostics_state(model.diagnostics),
    }
    header["profile"] = profile_state(model.profile, arrays)
    header["linear"] = linear_state(model.linear, arrays)
    if model.evaluation is not None:
        header["evaluation"] = evaluation_state(model.evaluation)
    if model.target.classes is not None:
        header["classes"] = classes_state(model.target.classes)
    else:
        header["single"] = model.target.is_single
        if model.target.transform is not None:
            header["power"] = model.target.transform.power
        arrays |= {"y_mean": model.target.centre, "y_scale": model.target.scale}
        if model.conformal is not None:
            arrays["conformal"] = model.conformal
    if model.found is not None:
        header["found"] = [list(map(int, term)) for term in model.found.clusters]
        header["structures"] = [structure_state(s) for s in model.found.structures]
    header["surface"] = posterior_state(model.posterior, arrays)
    write(path, model.kind, header, arrays)


def load(path: str | os.PathLike[str], arguments: Mapping[str, Collection[str]]) -> tuple[Model, Record]:
    """The model that `save` wrote, and the arguments of its estimator, each of which must have one of these names.

    Its likelihood is as it is kept: what JAX is needed for is made when it is asked for.
    """
    inside = pathlib.Path(path) / "model.vertebra"  # as the command line writes it
    kind, header, arrays = read(inside if inside.is_file() else path, kinds=KINDS)
    try:
        claims.record(header, "the header", NEEDED, OPTIONAL)
        params = params_from(arguments[kind], header["params"])
        model = _restored(kind, params, header, Arrays(arrays))
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
    return model, params


def _restored(kind: str, params: Mapping[str, object], header: Record, arrays: Arrays) -> Model:
    schema = Schema.from_json(header["schema"])
    columns = schema.columns
    p = len(columns)
    is_ordered = [claims.flag(each, "is_ordered") for each in claims.listed(header["is_ordered"], "is_ordered", p)]
    claims.demand(is_ordered == [c.kind == "ordered" for c in columns], "is_ordered", "the schema's", is_ordered)
    ranges = claims.rising(arrays.take("ranges", p, 2).T, "ranges").T
    target, likelihood, conformal = _target_in(kind, params, header, arrays)
    k, n_classes = len(target.names), target.n_classes
    n_latent = likelihood.n_latent(k)
    found = _found_in(kind, header, p, n_latent - likelihood.latent_per_target + 1)
    categories = [len(c.levels) if c.kind in ("category", "boolean") else 0 for c in columns]
    kinds = ("network", "ensemble") if found is None else ("terms", "network", "hybrid")
    given = header["surface"], arrays, categories, is_ordered, n_latent, kinds
    posterior, encoding = posterior_from(*given, per_target=likelihood.latent_per_target)
    model = Model(
        kind=kind,
        schema=schema,
        encoding=encoding,
        ranges=ranges,
        target=target,
        posterior=posterior,
        likelihood=cast(Any, likelihood),  # it answers as what it keeps
        profile=profile_from(header["profile"], arrays, schema, k, n_classes),
        linear=linear_from(
            header["linear"], arrays, [len(c.levels) for c in columns], n_classes if n_classes > 2 else k
        ),
        diagnostics=diagnostics_from(header["diagnostics"]),
        evaluation=evaluation_from(header["evaluation"], k) if "evaluation" in header else None,
        found=found,
        conformal=conformal,
    )
    arrays.check_all_taken()
    return model


def _target_in(
    kind: str, params: Mapping[str, object], header: Record, arrays: Arrays
) -> tuple[Target, Kept, np.ndarray | None]:
    """The target, its likelihood, and the scores of conformal intervals."""
    is_classifier, names = kind.endswith("Classifier"), claims.texts(header["targets"], "targets")
    k = len(names)
    claims.demand(k == 1 if is_classifier else k > 0, "targets", "the names of the targets", names)
    claims.demand(("classes" in header) == is_classifier, "classes", "there for classifiers", "classes" in header)
    claims.demand(("single" in header) != is_classifier, "single", "there for regressors", "single" in header)
    if is_classifier:
        target = Target.of_classes(names, classes_from(header["classes"]))
        return target, likelihood_from(header["likelihood"], arrays, k, target.n_classes), None
    is_single = claims.flag(header["single"], "single")
    claims.demand(k == 1 or not is_single, "targets", "one where single", names)
    centre = arrays.take("y_mean", k, low=-0.5 * FINITE, high=0.5 * FINITE)
    # a million sds of y are still a number
    scale = arrays.take("y_scale", k, low=TINY, high=1e-6 * FINITE)
    likelihood = likelihood_from(header["likelihood"], arrays, k)
    is_count, asked = likelihood.name in COUNTED, params.get("likelihood", "auto")
    # "auto" may have taken either
    claims.demand(asked == "auto" or (asked in COUNTS) == is_count, "the likelihood", "that of the params", is_count)
    conformal = None
    if "conformal" in arrays:
        conformal = claims.rising(arrays.take("conformal", None, k, low=0.0, high=FINITE), "conformal")
    asked = params.get("conformal", False)
    claims.demand(asked == (conformal is not None), "conformal", "as in the params", asked)
    transform = None
    if "power" in header:
        power = claims.number(header["power"], "power", 0.0, 1.0)
        claims.demand(
            likelihood.name in ("Gaussian", "HeteroscedasticGaussian"), "the likelihood", "normal", likelihood.name
        )
        transform = Transform(power)
    return Target(names, centre, scale, is_single, transform=transform), likelihood, conformal


def _found_in(kind: str, header: Record, p: int, least: int) -> Found | None:
    """What was found: of every output, whose latent functions lie side by side, at least the first."""
    is_additive = kind.startswith("Additive")
    for part in ("found", "structures"):
        claims.demand((part in header) == is_additive, part, "there for additive models", part in header)
    if not is_additive:
        return None
    structures = claims.listed(header["structures"], "structures")
    claims.demand(len(structures) >= least, "structures", f"at least {least}", len(structures))
    return Found(
        tuple(term_from(term, p) for term in claims.listed(header["found"], "found")),
        tuple(structure_from(each, p) for each in structures),
    )


def _probe(model: Model) -> None:
    """Asks the model about some rows, whose answers must be finite: gaps, levels never seen, and between all limits."""
    columns, ranges = model.schema.columns, model.ranges
    share = np.random.default_rng(0).random((N_PROBES, len(columns)))
    share[:3] = [[0.0], [0.5], [1.0]]
    rows = ranges[:, 0] * (1.0 - share) + ranges[:, 1] * share
    for i, column in enumerate(columns):
        if column.levels:
            rows[:, i] = np.floor(share[:, i] * (len(column.levels) - 1e-9))
    rows[3] = np.nan
    rows[4] = [UNSEEN if column.levels else np.nan for column in columns]
    mean, variance = model.posterior.moments(model.encoding(rows))
    answers = [mean, variance, model.linear(rows)]
    if not model.is_classifier:
        each = model.likelihood.latent_per_target
        spread = np.sqrt(variance[:, ::each]) + np.exp(float(np.max(getattr(model.likelihood, "log_scale", 0.0))))
        answers.append(model.target.centre + model.target.scale * (np.abs(mean[:, ::each]) + spread))
    if (
        seen := None if model.is_classifier else model.target.seen(Predictive(model.likelihood, mean, variance))
    ) is not None:
        answers += [seen.mean(), seen.aleatoric()]
    for part in answers:
        claims.demand(np.isfinite(part).all() and len(part) == N_PROBES, "what it says of rows", "finite", part)
    claims.demand((variance >= 0.0).all(), "the variance of f", "at least 0", variance)
