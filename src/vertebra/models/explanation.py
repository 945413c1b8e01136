"""What an additive model knows: which terms are real, how strong, and what each adds, in the user's names and units."""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from vertebra.effects.effect import Sizes
from vertebra.effects.posterior import PosteriorOfTerms
from vertebra.machine.checks import check_count, check_level
from vertebra.models.model import Model
from vertebra.models.settings import InputLike, TermLike
from vertebra.tables.schema import TableLike, date
from vertebra.tables.values import Level
from vertebra.terms.joint import Measure
from vertebra.terms.structure import Substitute, discoveries, probabilities, q_values
from vertebra.terms.substitutes import choices
from vertebra.terms.term import MOST_NAMED, Term, term_label

# Values shown per numeric input, by the order of the term: as many points in all as a reader, or a page, can take.
N_SHOWN, N_SHOWN_BEYOND = {1: 50, 2: 20, 3: 8}, 5
# What `effects` says of each term.
EFFECTS = ["term", "order", "strength", "sd", "lower", "upper", "sobol", "probability"]
EFFECTS += [f"{share}{end}" for share in ("share", "share_own", "share_through") for end in ("", "_lower", "_upper")]
EFFECTS += ["group"]
# What stands between the inputs of a term: as it is printed, without blanks, in files, and as keyboards have it.
BETWEEN = (" × ", "×", ":", " x ", " * ")
# What stands between the terms of a set whose split is not determined.
BESIDE = " + "

# "data" or "product"; None is what is usual for the model.
MeasureLike = str | None


def effects(
    model: Model,
    order: int | None = None,
    level: float = 0.95,
    *,
    baseline: TableLike = None,
    output: int = 0,
    measure: MeasureLike = None,
) -> pd.DataFrame:
    """Every term found, strongest first: see `AdditiveRegressor.effects`."""
    check_count(order=1 if order is None else order)
    sizes = sizes_of(model, baseline, output, measure)
    check_level(level)
    unit, latent = model.target.unit(output), latent_of(model, output)
    real = probabilities(model.sought.structures[latent])
    # an interaction without a test, as with a category of many levels, may predict: nobody knows whether it is real
    untested = math.nan if real else 0.0
    if (remainder := model.posterior.remainder) is not None:
        real[remainder.everything] = float(remainder.probability[latent])
    tails = [50.0 * (1.0 - level), 50.0 * (1.0 + level)]
    rows, groups = [], _groups(model, baseline, output, measure)
    for term, (strength, share, own) in sizes.items():
        if order is None or len(term) == order:
            named, whole = groups.get(term, ("", None))
            # of a set whose split is not determined, what is known: that of its sum; the strongest of it comes first
            alone, strength = float(strength.mean()), strength if whole is None else whole.strength
            shares = _share_columns({"share": share, "share_own": own, "share_through": share - own}, tails)
            if whole is not None:
                shares |= {name: math.nan for name in shares if name.endswith(("_lower", "_upper"))}
            low, high = unit * np.percentile(strength, tails)
            rows.append(
                {
                    "term": model.named(term),
                    "order": len(term),
                    "strength": unit * float(strength.mean()),
                    "sd": unit * float(strength.std()),
                    "lower": float(low),
                    "upper": float(high),
                    "sobol": float(share.mean()),
                    "probability": real.get(term, untested if len(term) > 1 else 0.0),
                    **shares,
                    "group": named,
                    "alone": alone,
                }
            )
    table = pd.DataFrame(rows, columns=[*EFFECTS, "alone"])
    table = table.sort_values(["strength", "alone"], ascending=False, ignore_index=True).drop(columns="alone")
    if (error := unit * error_of(model, baseline, output, measure)) > 0.0:
        table.attrs["error"] = error  # what a network is off its components by, over the rows
    copies: dict[str, list[str]] = {}
    for pair in model.sought.structures[latent].substitutes:
        if pair.is_copy:
            copies.setdefault(model.names[pair.input], []).append(model.names[pair.other])
    if copies:
        table.attrs["copies"] = copies  # other names of inputs
    return _on_scale(table, model, output)


def _on_scale(table: pd.DataFrame, model: Model, output: int) -> pd.DataFrame:
    """The table, with the scale that it is on where that is not the target's: `attrs["scale"]`."""
    if not model.is_classifier and model.target.transform is not None:
        table.attrs["scale"] = model.target.scale_of(output)
    return table


def _groups(model: Model, baseline: TableLike, output: int, measure: MeasureLike) -> dict[Term, tuple[str, Sizes]]:
    """Of the terms whose split is not determined: the set that each is in, by its name, and how large its sum is."""
    found = splits_of(model, baseline, output, measure)
    named = {group: BESIDE.join(term_label(model.named(term)) for term in group) for group in found}
    return {term: (named[group], own) for group, own in found.items() for term in group}


def _share_columns(draws: Mapping[str, Float[np.ndarray, " draws"]], tails: list[float]) -> dict[str, float]:
    found = {}
    for name, each in draws.items():
        low, high = np.percentile(each, tails)
        found |= {name: float(each.mean()), f"{name}_lower": float(low), f"{name}_upper": float(high)}
    return found


def totals(model: Model, level: float = 0.95, *, output: int = 0, measure: MeasureLike = None) -> pd.DataFrame:
    """What each input that acts has a part in: see `AdditiveRegressor.totals`."""
    sizes = sizes_of(model, None, output, measure)
    check_level(level)
    tails = [50.0 * (1.0 - level), 50.0 * (1.0 + level)]
    everything = None if model.posterior.remainder is None else model.posterior.remainder.everything
    named = {term: own for term, own in sizes.items() if term != everything}
    rows = []
    for i in sorted({i for term in named for i in term}):
        first = named[(i,)].share if (i,) in named else np.zeros(1)
        total = sum((own.share for term, own in named.items() if i in term), start=np.zeros(()))
        low, high = np.percentile(total, tails)
        rows.append(
            (model.names[i], float(first.mean()), float(total.mean()), float(total.std()), float(low), float(high))
        )
    table = pd.DataFrame(rows, columns=["input", "main", "total", "sd", "lower", "upper"])
    return table.sort_values("total", ascending=False, ignore_index=True)


def substitutes(model: Model, *, output: int = 0) -> pd.DataFrame:
    """Inputs that nearly copy one that acts: see `AdditiveRegressor.substitutes`."""
    names, rows = model.names, model.sought.structures[latent_of(model, output)].substitutes
    columns = ["input", "substitute", *Substitute._fields[2:]]
    table = pd.DataFrame([(names[row[0]], names[row[1]], *row[2:]) for row in rows], columns=columns)
    sets = {choice.inputs[0]: " or ".join(names[i] for i in choice.inputs) for choice in choices(rows)}
    table["group"] = [sets[row.input] for row in rows]
    return table.rename(columns={"other_alone": "substitute_alone"})


def candidates(model: Model, order: int | None = None, *, output: int = 0) -> pd.DataFrame:
    """Every term that was tested, found or not: see `AdditiveRegressor.candidates`."""
    check_count(order=1 if order is None else order)
    latent, unit = latent_of(model, output), model.target.unit(output)
    structure = model.sought.structures[latent]
    real, q, found = probabilities(structure), q_values(structure), set(structure.terms)
    strengths: dict[Term, float] = {}
    if found:
        strengths = {
            t: unit * float(np.quantile(own.strength, 0.95)) for t, own in sizes_of(model, None, output).items()
        }
    rows = []
    for term, test in structure.tests.items():
        if order is None or len(term) == order:
            beyond = math.nan if test.size is None else unit * test.size.upper
            upper = strengths.get(term, beyond) if term in found else beyond
            named = model.named(term), len(term), term in found
            rows.append((*named, test.p_value, q.get(term, math.nan), real[term], upper))
    table = pd.DataFrame(rows, columns=["term", "order", "found", "p_value", "q_value", "probability", "upper"])
    return _on_scale(table.sort_values(["p_value", "order"], ignore_index=True), model, output)


def interactions(
    model: Model,
    fdr: float = 0.05,
    *,
    level: float = 0.95,
    baseline: TableLike = None,
    output: int = 0,
    measure: MeasureLike = None,
) -> pd.DataFrame:
    """The rows of `effects` of order 2 and more that survive error control."""
    table = effects(model, level=level, baseline=baseline, output=output, measure=measure)
    if not isinstance(fdr, int | float) or not 0.0 < fdr < 1.0:
        raise ValueError(f"`fdr` must be between 0 and 1, got {fdr!r}.")
    structure = model.sought.structures[latent_of(model, output)]
    kept = discoveries(structure, fdr)
    names = {model.named(term) for term in kept}
    table = table.loc[np.array([term in names for term in table["term"]], dtype=bool)]
    beyond = [t for t in kept if model.named(t) not in set(table["term"]) and structure.tests[t].size is not None]
    if beyond:
        table = pd.concat([table, _beyond(model, beyond, output)]) if len(table) else _beyond(model, beyond, output)
    return _on_scale(table.sort_values("strength", ascending=False, ignore_index=True), model, output)


def _beyond(model: Model, terms: Sequence[Term], output: int) -> pd.DataFrame:
    """Rows of `effects` of terms that are not in the model: how strong their tests say that they may be."""
    structure, unit = model.sought.structures[latent_of(model, output)], model.target.unit(output)
    real, rows = probabilities(structure), []
    for term in terms:
        if (size := structure.tests[term].size) is not None:
            sizes = [unit * each for each in size]
            about = (model.named(term), len(term), *sizes, math.nan, real[term])
            rows.append(dict(zip(EFFECTS, (*about, *[math.nan] * (len(EFFECTS) - len(about) - 1), ""), strict=True)))
    return pd.DataFrame(rows, columns=EFFECTS)


def effect(
    model: Model,
    term: TermLike,
    level: float = 0.95,
    *,
    simultaneous: bool = False,
    baseline: TableLike = None,
    output: int = 0,
    points: int | None = None,
    measure: MeasureLike = None,
) -> pd.DataFrame:
    """One term as a function of its inputs, in their units and levels: mean, sd and a band of f."""
    found = sizes_of(model, baseline, output, measure)
    check_level(level)
    wanted = term_of(model, term)
    if wanted not in found:
        raise ValueError(
            f"`term` {model.named(wanted)} is not in the model: its effect is 0. The terms are in `effects()`."
        )
    if model.posterior.remainder is not None and wanted == model.posterior.remainder.everything:
        raise ValueError(
            "`term` must be one of few inputs to be shown as a function of them, got the one of all inputs: "
            "`eval_terms` has what it adds to each row."
        )
    grids = np.meshgrid(*grid_of(model, wanted, points), indexing="ij")
    coded = np.full((grids[0].size, len(model.schema.columns)), np.nan)
    for i, grid in zip(wanted, grids, strict=True):
        coded[:, i] = grid.ravel()
    x = model.encoding(coded)
    latent, anchor = latent_of(model, output), _baseline(model, baseline)
    curve = _taken_apart(model).curve(wanted, [x[:, i] for i in wanted], latent, anchor, measure_of(model, measure))
    low, high = curve.band(level, simultaneous=simultaneous)
    unit, sd = model.target.unit(output), curve.sd
    group, _ = _groups(model, baseline, output, measure).get(wanted, ("", None))
    if group:  # a band of its own would say what the prior made of it
        low = high = sd = np.full(np.shape(curve.mean), np.nan)
    columns = [pd.Series(_shown(model, i, coded[:, i]), name=model.names[i]) for i in wanted]
    for name, values in (("mean", curve.mean), ("sd", sd), ("lower", low), ("upper", high)):
        columns.append(pd.Series(unit * values, name=name))
    # side by side and not by name: an input may be called "mean"
    table = pd.concat(columns, axis=1)
    if group:
        table.attrs["group"] = group  # the terms of which only the sum is known
    if discrete := [model.names[i] for i in wanted if model.values(i) is not None]:
        table.attrs["discrete"] = discrete  # no values lie between those of the table
    if dates := [model.names[i] for i in wanted if model.schema.columns[i].part == "time"]:
        table.attrs["dates"] = dates  # in days since 1970
    if len(wanted) == 2 and (plane := model.profile.pairs.get((wanted[0], wanted[1]))) is not None:
        near = plane.near(coded[:, wanted[0]], coded[:, wanted[1]])
        table.attrs["rows"] = dict(
            zip(zip(*(table.iloc[:, k] for k in (0, 1)), strict=True), near.tolist(), strict=True)
        )
    return _on_scale(table, model, output)


def eval_terms(
    model: Model, X: TableLike, *, baseline: TableLike = None, output: int = 0, measure: MeasureLike = None
) -> pd.DataFrame:
    """What each term adds to each prediction on the link scale; the columns, with `intercept`, sum to it."""
    under = latent_of(model, output), _baseline(model, baseline), measure_of(model, measure)
    local = _taken_apart(model).local(model.x(X), *under)
    unit = model.target.unit(output)
    intercept = model.target.origin(output) + unit * local.pop(()).mean
    table: dict[str | tuple[str, ...], np.ndarray] = {"intercept": intercept}
    for term in sorted(local, key=lambda t: (len(t), t)):
        table[model.named(term)] = unit * local[term].mean
    # A frame whose columns are tuples would take them for levels.
    columns = pd.Index(list(table), tupleize_cols=False)
    return _on_scale(pd.DataFrame(np.stack(list(table.values()), axis=1), columns=columns), model, output)


def explain(
    model: Model,
    row: TableLike,
    level: float = 0.95,
    *,
    baseline: TableLike = None,
    output: int = 0,
    measure: MeasureLike = None,
) -> pd.DataFrame:
    """One prediction taken apart on the link scale: the intercept, then what each term adds, largest first."""
    check_level(level)
    coded = model.schema.matrix(_one_row(row, "row", len(model.schema.sources)), model.kind)
    return parts_of(model, coded, level, baseline=baseline, output=output, measure=measure)


def parts_of(
    model: Model,
    coded: Float[np.ndarray, "1 p"],
    level: float = 0.95,
    *,
    baseline: TableLike = None,
    output: int = 0,
    measure: MeasureLike = None,
) -> pd.DataFrame:
    """`explain` of a row as the schema codes it."""
    under = latent_of(model, output), _baseline(model, baseline), measure_of(model, measure)
    local = _taken_apart(model).local(model.encoding(coded), *under, with_sd=True)
    unit, width = model.target.unit(output), float(ndtri(0.5 + 0.5 * level))
    rows = []
    for term in sorted(local, key=lambda t: (len(t) > 0, -abs(local[t].mean[0]))):
        mean, sd = unit * float(local[term].mean[0]), unit * float(local[term].sd[0])
        mean += 0.0 if term else model.target.origin(output)
        named = term if len(term) <= MOST_NAMED else ()
        shown = [f"{model.names[i]} = {_text(model, i, coded[0, i])}" for i in named]
        rows.append((model.named(term), ", ".join(shown), mean, sd, mean - width * sd, mean + width * sd))
    table = pd.DataFrame(rows, columns=["term", "value", "mean", "sd", "lower", "upper"])
    return _on_scale(table, model, output)


def sizes_of(model: Model, baseline: TableLike, output: int, measure: MeasureLike = None) -> dict[Term, Sizes]:
    """Draws of the strengths and shares of all terms, worked out once."""
    latent, anchor, under = latent_of(model, output), _baseline(model, baseline), measure_of(model, measure)
    place = (latent, under if anchor is None else tuple(anchor))
    if place not in model.sizes:
        model.sizes[place] = _taken_apart(model).sizes(latent, anchor, under)
    return model.sizes[place]


def splits_of(
    model: Model, baseline: TableLike, output: int, measure: MeasureLike = None
) -> dict[tuple[Term, ...], Sizes]:
    """The sets of terms whose split is not determined, with draws of how large their sums are, worked out once."""
    latent, anchor, under = latent_of(model, output), _baseline(model, baseline), measure_of(model, measure)
    place = (latent, under if anchor is None else tuple(anchor))
    if place not in model.splits:
        model.splits[place] = _taken_apart(model).splits(latent, anchor, under)
    return model.splits[place]


def error_of(model: Model, baseline: TableLike, output: int, measure: MeasureLike = None) -> float:
    """By how much components miss f over the rows: 0, but for those of a network over its rows, which are regressed."""
    under = latent_of(model, output), _baseline(model, baseline), measure_of(model, measure)
    return _taken_apart(model).error(*under)


def measure_of(model: Model, measure: MeasureLike) -> Measure:
    """What components are averages over: what was asked for, if the model has it, or what is usual for it."""
    there = _taken_apart(model).measures
    if measure is None:
        return there[0]
    if measure not in {each.value for each in Measure}:
        raise ValueError(f'`measure` must be "data" or "product", got {measure!r}.')
    if (wanted := Measure(measure)) not in there:
        why = (
            "its networks read more than three inputs together, or a file, which holds no rows, does not say"
            if model.posterior.terms is None
            else "it comes from a file of an older version, without saying"
        )
        raise ValueError(f'`measure` must be "product" for this model, got {measure!r}: {why} how inputs go together.')
    return wanted


def _taken_apart(model: Model) -> PosteriorOfTerms:
    """The posterior of an f that is a sum of terms: what estimators that explain themselves fit."""
    return cast(PosteriorOfTerms, model.posterior)


def latent_of(model: Model, output: int) -> int:
    """The latent function of a target."""
    each = model.likelihood.latent_per_target
    n = model.posterior.n_outputs // each
    if not isinstance(output, numbers.Integral) or not 0 <= output < n:
        raise ValueError(f"`output` must be from 0 to {n - 1}, got {output!r}.")
    return int(output) * each


def inputs_named(given: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """The inputs of a term, named one by one or as effects print it, "hr × workingday" or "hr:workingday"."""
    found: list[str] = []
    for each in given:
        splits = [[*map(str.strip, each.split(mark))] for mark in BETWEEN]
        # the first whose parts are all known, else the most: an error then names the part that is not
        parts = max([[each], *splits], key=lambda own: len(set(own) & set(inputs)) / len(own))
        found += [each] if each in inputs else parts
    return found


def term_of(model: Model, term: TermLike) -> Term:
    """The places of a term's inputs, which are given by name or by place, or all in one as effects print them."""
    if isinstance(term, str):
        parts: tuple[InputLike, ...] = tuple(inputs_named([term], model.names))
    else:
        parts = tuple(term) if isinstance(term, Iterable) else (term,)
    return tuple(sorted({model.position(part) for part in parts}))


def grid_of(model: Model, term: Term, points: int | None = None) -> list[Float[np.ndarray, " _"]]:
    """Coded values of every input of a term, at which it is shown; of a single one a missing value too."""
    n_points = N_SHOWN.get(len(term), N_SHOWN_BEYOND) if points is None else points
    grid = [_values_of(model, i, n_points, has_room=len(term) <= 2) for i in term]
    if len(term) == 1 and model.schema.columns[term[0]].has_missing:
        grid = [np.append(grid[0], np.nan)]
    return grid


def _values_of(model: Model, i: int, n_points: int, *, has_room: bool) -> Float[np.ndarray, " m"]:
    """Codes of all levels of an input, the values of a discrete number, or numbers over the range.

    Without room for all of them, values of a discrete number are at equal steps of their order.
    """
    low, high = model.ranges[i]
    if model.schema.columns[i].levels:
        return np.arange(low, high + 1.0)
    values = model.values(i)
    if values is None:
        return np.linspace(low, high, n_points)
    n = len(values) if has_room else min(n_points, len(values))
    return values[np.linspace(0, len(values) - 1, n).round().astype(int)]


def _shown(model: Model, i: int, values: Float[np.ndarray, " m"]) -> list[Level] | Float[np.ndarray, " m"]:
    column = model.schema.columns[i]
    return [column.label(code) for code in values] if column.levels else model.in_units(i, values)


def _text(model: Model, i: int, value: float) -> str:
    """A coded value as the user wrote it."""
    column = model.schema.columns[i]
    if column.levels or np.isnan(value):
        return str(column.label(value))
    number = float(model.in_units(i, np.array([value]))[0])
    return date(number) if column.part == "time" else f"{number:.4g}" if model.values(i) is None else f"{number:.10g}"


def _baseline(model: Model, baseline: TableLike) -> np.ndarray | None:
    if baseline is None:
        return None
    return model.x(_one_row(baseline, "baseline", len(model.schema.sources)))[0]


def _one_row(row: TableLike, argument: str, n_columns: int) -> TableLike:
    """A table of one row."""
    if isinstance(row, pd.Series):
        row = row.to_frame().T.infer_objects()
    elif isinstance(row, dict):
        row = pd.DataFrame([row])
    elif not hasattr(row, "columns"):
        values = np.asarray(row, dtype=object)
        if values.shape not in ((n_columns,), (1, n_columns)):
            raise ValueError(f"`{argument}` must be one row of {n_columns} values, got {row!r}.")
        row = values.reshape(1, -1)
    if isinstance(row, Sized) and len(row) != 1:
        raise ValueError(f"`{argument}` must be one row, got {len(row)}.")
    return row
