"""The parts of a model as JSON and arrays, `…_state`, and back, `…_from`, each held to what it may be."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vertebra.likelihoods.kept import Kept
from vertebra.machine import claims
from vertebra.machine.claims import FINITE, TINY, Arrays
from vertebra.machine.control import Ended
from vertebra.machine.file import Record
from vertebra.machine.later import later
from vertebra.models.evaluation import DECISIONS, Evaluation, Linear
from vertebra.models.findings import Diagnostics, Finding, Kind, Severity, notes, warnings
from vertebra.models.scores import METHOD_WORDS, SCORE_WORDS, Method
from vertebra.tables.encoding import FARTHEST, Encoding
from vertebra.tables.profile import Marginal, Plane, Profile
from vertebra.tables.schema import Schema
from vertebra.terms.structure import SIZES, Score, Size, Structure, Substitute

if TYPE_CHECKING:
    from vertebra.likelihoods.likelihood import Likelihood
else:
    Likelihood = object  # it comes with JAX

jax = later("jax")

# Likelihoods of numbers that have scales, or a dispersion, of every target.
SCALED = ("Gaussian", "HeteroscedasticGaussian", "StudentT", "NegativeBinomial")
LINEAR_ARRAYS = ("gaps", "scale", "coefficients")
# What y may be classes of; text besides, as wide as its longest class or this many characters.
CLASS_TYPES = {
    np.dtype(t).str: t for t in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "O")
}
WIDEST = 1000
# Logarithms of scales: e^80 is within single precision, which ends at e^88. Of degrees of freedom less 2: in double
# precision 2 + e^−30 is more than 2.
LARGEST_LOG, SMALLEST_LOG, LEAST_LOG_EXCESS = 80.0, -2000.0, -30.0


def encoding_state(encoding: Encoding, arrays: dict[str, np.ndarray], place: str = "") -> list[bool]:
    arrays[f"{place}gaps"] = encoding.gaps
    arrays |= {f"{place}encoding/{i}": table for i, table in enumerate(encoding.tables) if table is not None}
    return list(encoding.is_ordered)


def encoding_from(
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


def classes_state(classes: np.ndarray) -> Record:
    values = classes.tolist()
    if classes.dtype.kind == "U":  # wider than its classes only as far as is read
        longest = max(len(value) for value in values)
        classes = classes.astype(f"<U{min(classes.dtype.itemsize // 4, max(longest, WIDEST))}")
    return {"dtype": classes.dtype.newbyteorder("<").str, "values": values}


def classes_from(value: object) -> np.ndarray:
    value = claims.record(value, "classes", ("dtype", "values"))
    name, values = claims.text(value["dtype"], "the type of classes"), claims.listed(value["values"], "classes")
    claims.demand(len(values) >= 2, "classes", "two at least", values)
    if re.fullmatch("<U[0-9]{1,9}", name):
        wanted: type | tuple[type, ...] = str
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


def diagnostics_state(found: Diagnostics) -> Record:
    return {
        "findings": [
            [each.kind.value, each.severity.value, each.words, _json_number(each.quantity), each.remedy]
            for each in found.findings
        ],
        "figures": {name: value for name, value in found.figures.items() if math.isfinite(value)},
        **({} if found.ended is None else {"ended": found.ended.value}),
    }


def diagnostics_from(value: object) -> Diagnostics:
    value = claims.record(value, "diagnostics", ("figures",), ("findings", "verdict", "notes", "warnings", "ended"))
    ended = value.get("ended")
    claims.demand(ended in (None, *Ended), "the end of the fit", f"one of {', '.join(Ended)}", ended)
    figures = value["figures"]
    if not isinstance(figures, dict):
        raise claims.unfit("the figures of the diagnostics", "an object", figures)
    return Diagnostics(
        tuple(_findings_from(value)),
        {k: claims.number(v, f"the figure {k[:100]}") for k, v in figures.items()},
        None if ended is None else Ended(ended),
    )


def _findings_from(value: Record) -> list[Finding]:
    """Findings; files of 0.1 have words alone, and a verdict that follows from how many they are."""
    if "findings" not in value:
        value = claims.record(value, "diagnostics", ("verdict", "notes", "warnings", "figures"), ("ended",))
        claims.text(value["verdict"], "the verdict")
        known = notes(Kind.OTHER, claims.texts(value["notes"], "the notes"))
        return known + warnings(Kind.OTHER, claims.texts(value["warnings"], "the warnings"))
    value, found = claims.record(value, "diagnostics", ("findings", "figures"), ("ended",)), []
    for each in claims.listed(value["findings"], "the findings"):
        kind, severity, words, quantity, remedy = claims.listed(each, "a finding", 5)
        found.append(
            Finding(
                Kind(claims.one_of(kind, "the kind of a finding", tuple(Kind))),
                Severity(claims.one_of(severity, "the severity of a finding", tuple(Severity))),
                claims.text(words, "the words of a finding"),
                None if quantity is None else claims.number(quantity, "the quantity of a finding"),
                claims.text(remedy, "the remedy of a finding"),
            )
        )
    return found


def profile_state(profile: Profile, arrays: dict[str, np.ndarray]) -> Record:
    record: Record = {"n_rows": profile.n_rows, "weight": profile.weight}
    for kind in ("inputs", "targets"):
        marginals = getattr(profile, kind)
        for i, marginal in enumerate(marginals):
            arrays |= {f"profile/{kind}/{i}/edges": marginal.edges, f"profile/{kind}/{i}/shares": marginal.shares}
        record[kind] = [[m.missing, m.middle] for m in marginals]
    arrays["profile/means"] = profile.means
    for (i, j), plane in profile.pairs.items():
        arrays |= {f"plane/{i}/{j}/ranges": plane.ranges, f"plane/{i}/{j}/counts": plane.counts}
    if profile.pairs:
        record["pairs"] = [[int(i), int(j)] for i, j in profile.pairs]
    return record


def profile_from(value: object, arrays: Arrays, schema: Schema, n_targets: int, n_classes: int) -> Profile:
    kept = claims.record(value, "the profile", ("n_rows", "weight", "inputs", "targets"), ("pairs",))

    def marginals(kind: str, n_levels: Sequence[int]) -> tuple[Marginal, ...]:
        found = []
        pairs = claims.listed(kept[kind], f"the profile's {kind}", len(n_levels))
        for i, (pair, n) in enumerate(zip(pairs, n_levels, strict=True)):
            what = f"profile/{kind}/{i}"
            missing, middle = claims.listed(pair, what, 2)
            # shares of all rows; a sum of them may miss 1 by rounding
            shares = arrays.take(f"{what}/shares", n or None, low=0.0, high=1.0 + 1e-6)
            edges = arrays.take(f"{what}/edges", 0 if n else len(shares) + 1, low=-FINITE, high=FINITE)
            middle = claims.number(middle, what, *((0, n - 1) if n else ()))
            found.append(
                Marginal(
                    claims.rising(edges, f"{what}/edges"), shares, claims.number(missing, what, 0, 1 + 1e-6), middle
                )
            )
        return tuple(found)

    return Profile(
        claims.whole(kept["n_rows"], "the number of rows"),
        claims.number(kept["weight"], "the weight of all rows", 0),
        marginals("inputs", [len(column.levels) for column in schema.columns]),
        marginals("targets", [n_classes] * n_targets),
        arrays.take("profile/means", n_targets, low=-FINITE, high=FINITE),
        dict(_plane_from(pair, arrays, schema) for pair in claims.listed(kept.get("pairs", []), "the pairs")),
    )


def _plane_from(value: object, arrays: Arrays, schema: Schema) -> tuple[tuple[int, int], Plane]:
    i, j = (claims.whole(k, "an input", 0, len(schema.columns) - 1) for k in claims.listed(value, "a pair", 2))
    n_levels = len(schema.columns[i].levels), len(schema.columns[j].levels)
    ranges = claims.rising(arrays.take(f"plane/{i}/{j}/ranges", 2, 2, low=-FARTHEST, high=FARTHEST).T, "a plane").T
    counts = arrays.take(f"plane/{i}/{j}/counts", n_levels[0] or None, n_levels[1] or None, low=0.0, high=FINITE)
    claims.demand(min(counts.shape) > 0, f"plane/{i}/{j}/counts", "not empty", counts.shape)
    return (i, j), Plane(ranges, (bool(n_levels[0]), bool(n_levels[1])), counts)


def linear_state(linear: Linear, arrays: dict[str, np.ndarray]) -> list[int]:
    arrays |= {f"linear/{name}": getattr(linear, name) for name in LINEAR_ARRAYS}
    return list(linear.n_levels)


def linear_from(value: object, arrays: Arrays, n_levels: Sequence[int], n_outputs: int) -> Linear:
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


def evaluation_state(seen: Evaluation) -> Record:
    return {
        "method": seen.method.value,
        "n": seen.n,
        "scores": {who: {k: _json_number(v) for k, v in own.items()} for who, own in seen.scores.items()},
        "calibration": seen.calibration,
        # files without any are as they were before there were any
        **({"decisions": seen.decisions} if seen.decisions else {}),
    }


def evaluation_from(value: object, n_targets: int) -> Evaluation:
    value = claims.record(value, "the evaluation", ("method", "n", "scores", "calibration"), ("decisions",))
    if not isinstance(value["scores"], dict):
        raise claims.unfit("the scores", "an object", value["scores"])
    scores: dict[str, dict[str, float]] = {}
    for who, own in value["scores"].items():
        if not isinstance(own, dict):
            raise claims.unfit("the scores", "an object", own)
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
        claims.demand(score in SCORE_WORDS and is_target, "a score", "known", name)
    seen = claims.number(value["n"], "the number of rows evaluated", 0)
    method = claims.text(value["method"], "the method")
    known = {each.value: each for each in Method} | {words: each for each, words in METHOD_WORDS.items()}
    claims.demand(method in known, "the method", f"one of {', '.join(Method)}", method)
    decided: dict[str, list[float]] = {}
    if "decisions" in value:
        kept = claims.record(value["decisions"], "the decisions", ("threshold", *DECISIONS))
        m = len(claims.listed(kept["threshold"], "the thresholds"))
        decided = {k: [claims.number(v, "a decision", 0) for v in claims.listed(kept[k], k, m)] for k in kept}
    return Evaluation(known[method], int(seen) if seen.is_integer() else seen, scores, calibration, decided)


# What a structure may have besides: files that were written before it was there have none.
OF_STRUCTURES = ("substitutes", "sizes", "n_uncompared")


def structure_state(structure: Structure) -> Record:
    tests = []
    for t, s in structure.tests.items():
        factors = [max(min(each, 1e300), -1e300) for each in (s.log_bayes_factor, *s.by_size)]
        tests.append([list(map(int, t)), s.p_value, *factors])
    state: Record = {
        "terms": [list(map(int, t)) for t in structure.terms],
        "tests": tests,
        "n_candidates": [[k, int(n)] for k, n in structure.n_candidates.items()],
    }
    sizes = [[list(map(int, t)), *s.size] for t, s in structure.tests.items() if s.size is not None]
    if sizes:
        state["sizes"] = sizes
    if structure.substitutes:
        state["substitutes"] = [list(each) for each in structure.substitutes]
    if structure.n_uncompared:
        state["n_uncompared"] = int(structure.n_uncompared)
    return state


def structure_from(value: object, n_inputs: int) -> Structure:
    value = claims.record(value, "a structure", ("terms", "tests", "n_candidates"), OF_STRUCTURES)
    tests = {}
    for test in claims.listed(value["tests"], "the tests"):
        term, p_value, *factors = claims.listed(test, "a test")
        # files of 0.1 have one, the mean over sizes
        claims.demand(
            len(factors) in (1, 1 + len(SIZES)), "a test's Bayes factors", "1, or one a size more", len(factors)
        )
        factor, *by_size = (claims.number(each, "a Bayes factor") for each in factors)
        # beside 0 and 1 rounding is what there is
        p_value = claims.number(p_value, "a p-value", 0, 1 + 1e-9)
        tests[term_from(term, n_inputs)] = Score(p_value, factor, by_size=tuple(by_size))
    for size in claims.listed(value.get("sizes", []), "the sizes"):
        term, *numbers = claims.listed(size, "a size", 1 + len(Size._fields))
        known = term_from(term, n_inputs)
        claims.demand(known in tests, "a size", "of a term that was tested", known)
        tests[known] = tests[known]._replace(size=Size(*(claims.number(each, "a size", 0) for each in numbers)))
    counts = claims.listed(value["n_candidates"], "the numbers of candidates")
    counts = [claims.listed(pair, "the numbers of candidates", 2) for pair in counts]
    return Structure(
        tuple(term_from(term, n_inputs) for term in claims.listed(value["terms"], "the terms found")),
        tests,
        {claims.whole(k, "an order"): claims.whole(n, "a number of candidates") for k, n in counts},
        tuple(_substitute_from(each, n_inputs) for each in claims.listed(value.get("substitutes", []), "substitutes")),
        claims.whole(value.get("n_uncompared", 0), "the number of pairs not compared", 0),
    )


def _substitute_from(value: object, n_inputs: int) -> Substitute:
    one, other, *shares = claims.listed(value, "a substitute", len(Substitute._fields))
    inputs = [claims.whole(i, "an input of a substitute", 0, n_inputs - 1) for i in (one, other)]
    return Substitute(*inputs, *(claims.number(each, "a probability of a substitute", 0, 1 + 1e-9) for each in shares))


def term_from(value: object, n_inputs: int) -> tuple[int, ...]:
    term = tuple(claims.whole(i, "an input of a term", 0, n_inputs - 1) for i in claims.listed(value, "a term"))
    claims.demand(term and all(a < b for a, b in itertools.pairwise(term)), "a term", "inputs in order", value)
    return term


def likelihood_state(likelihood: Likelihood, arrays: dict[str, np.ndarray]) -> Record:
    # what is no array, the number of classes, is static
    leaves = jax.tree.leaves(likelihood)
    arrays |= {f"likelihood/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return {"name": type(likelihood).__name__, "n_classes": getattr(likelihood, "n_classes", 0)}


def likelihood_from(value: object, arrays: Arrays, n_targets: int, n_classes: int = 0) -> Kept:
    value = claims.record(value, "the likelihood", ("name", "n_classes"))
    if n_classes:
        wanted = ("Bernoulli", 0) if n_classes == 2 else ("Categorical", n_classes)
        found = value["name"], value["n_classes"]
        claims.demand(found == wanted, "the likelihood", f"of {n_classes} classes", found)
        return Kept(wanted[0], n_classes=wanted[1])
    name = claims.one_of(value["name"], "the likelihood", (*SCALED, "Poisson"))
    claims.whole(value["n_classes"], "the classes of the likelihood", 0, 0)
    if name == "Poisson":
        return Kept(name)
    leaves = [arrays.take("likelihood/0", n_targets, kind="f", low=SMALLEST_LOG, high=LARGEST_LOG)]
    if name == "StudentT":
        leaves.append(arrays.take("likelihood/1", kind="f", low=LEAST_LOG_EXCESS, high=LARGEST_LOG))
    return Kept(name, tuple(leaves))


def _json_number(value: float | None) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None
