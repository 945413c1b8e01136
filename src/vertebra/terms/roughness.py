"""How rough the functions of every input are: families chosen by evidence beside the rest, and where they jump."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vertebra.terms.choice import choose
from vertebra.terms.families import N_LOCAL, Family
from vertebra.terms.functions import SEEN, Families, System
from vertebra.terms.jumps import cells_of, rates_of
from vertebra.terms.latents import Data, Moments
from vertebra.terms.model import Model, model_of
from vertebra.terms.search import strongest
from vertebra.terms.sums import RowSums
from vertebra.terms.term import Term

# Families are compared so many times, beside main effects and so many of the strongest pairs. Round numbers.
N_CHOICES, N_COMPARED = 2, 4
# Rows for each column of local functions of all inputs at once, where these are a start for comparisons.
ROWS_PER_COLUMN = 3
# An input whose main effect uses more than this share of its local functions has more of them. A round number.
NEARLY_ALL = 0.6
# Noise of a smaller share of the variance of y is faint: single precision would show beside it.
FAINT = 0.03

# The system of an input with many functions of some families, and those that jump at a rate along its knots.
Rebuilt = Callable[[int, Collection[Family], Float[np.ndarray, " h"] | None], System]


def with_families(
    data: Data,
    moments: Moments,
    terms: Sequence[Term] | None,
    rebuilt: Rebuilt | None,
) -> tuple[Data, list[RowSums]]:
    """The data and their rows near f, with the functions that evidence is for: of every input, and the strongest pairs.

    They are compared beside some terms, or those that seem strongest. `rebuilt` gives the system of an input with more
    functions, and with jumps; without it there are neither.
    """
    rows = data.rows(*moments)
    for k in range(N_CHOICES):
        models = _models(rows, terms)
        models = _all_local_if_better(data, models) if k == 0 else models
        data.chosen.update(choose(models, data.mains))
    rough = [i for (i,) in data.mains if _may_jump(data, i)]
    if rebuilt is None or not rough:
        return data, rows
    models = _models(rows, terms)
    data, rows, rates = _with_jumps(data, moments, rows, models, rough, rebuilt)
    if rates:
        models = [model_of(each, models[0].basis.terms) for each in rows if not each.is_constant]
    if used_up := _used_up(models, rough):
        data, rows = _having(data, moments, rows, {i: rebuilt(i, data.chosen[(i,)], rates.get(i)) for i in used_up})
    return data, rows


def _used_up(models: Sequence[Model], rough: Sequence[int]) -> list[int]:
    """Inputs of which rows tell nearly all local functions apart that there are."""
    found: set[int] = set()
    for model in models:
        known = model.known
        for block, place in zip(model.basis.blocks, model.basis.slices, strict=True):
            (i, *others), n_columns = block.term, len(block.index)
            if not others and i in rough and n_columns >= N_LOCAL and known[place].mean() > NEARLY_ALL:
                found.add(i)
    return sorted(found)


def _having(
    data: Data, moments: Moments, rows: Sequence[RowSums], systems: Mapping[int, System]
) -> tuple[Data, list[RowSums]]:
    """The data and their rows with other functions of some inputs."""
    data, faint = data.having(systems), [each.faint for each in rows]
    new = data.rows(*moments)
    for each, is_faint in zip(new, faint, strict=True):
        each.faint = is_faint
    return data, new


def _models(rows: Sequence[RowSums], terms: Sequence[Term] | None) -> list[Model]:
    """A model of each response that varies."""
    models = []
    for each in rows:
        if each.is_constant:
            continue
        compared = strongest(each, N_COMPARED) if terms is None else terms
        model = model_of(each, [t for t in compared if all(each.systems[i].is_alive for i in t)])
        each.faint = model.posterior.noise_variance < FAINT * each.square / each.count
        models.append(model)
    return models


def _all_local_if_better(data: Data, smooth: list[Model]) -> list[Model]:
    """Models with local functions of all inputs at once, where evidence is for them, to compare families beside.

    Beside what smooth functions of the others leave as noise, those of one input may not be worth it by themselves.
    """
    local: dict[Term, Families] = {
        (i,): (Family.BROWNIAN,) for i, s in enumerate(data.systems) if Family.BROWNIAN in s.families
    }
    n_columns = sum(len(data.systems[i].of(SEEN, Family.BROWNIAN)) for (i,) in local)
    if not smooth or not 0 < n_columns < smooth[0].rows.n / ROWS_PER_COLUMN:
        return smooth
    data.chosen.update(local)
    rough = [model_of(model.rows, model.basis.terms) for model in smooth]
    if sum(b.posterior.log_evidence - a.posterior.log_evidence for a, b in zip(smooth, rough, strict=True)) > 0.0:
        return rough
    for term in local:
        del data.chosen[term]
    return smooth


def _may_jump(data: Data, i: int) -> bool:
    """Whether the functions of an input may have jumps: those of a number that is rough and not discrete."""
    own = data.chosen.get((i,), (Family.ANY,))[0]
    return own.is_local and not data.systems[i].is_discrete


def _with_jumps(
    data: Data,
    moments: Moments,
    rows: list[RowSums],
    models: Sequence[Model],
    rough: Sequence[int],
    rebuilt: Rebuilt,
) -> tuple[Data, list[RowSums], Mapping[int, Float[np.ndarray, " h"]]]:
    """The data with functions that jump, where evidence, less what the places of the jumps cost, is for them.

    And the rates of these inputs.
    """
    rates = {i: rates_of(data.systems[i], [cells_of(model, i) for model in models]) for i in rough}
    systems = {i: rebuilt(i, (), each.rate) for i, each in rates.items()}
    tried = [
        model_of(each, models[0].basis.terms) for each in data.having(systems).rows(*moments) if not each.is_constant
    ]
    costs: dict[Term, dict[Families, float]] = {(i,): {(Family.JUMPS,): each.cost} for i, each in rates.items()}
    found = choose(tried, [(i,) for i in rough], costs)
    kept = {i: system for i, system in systems.items() if found.get((i,)) == (Family.JUMPS,)}
    if not kept:
        return data, list(rows), {}
    data.chosen.update({(i,): (Family.JUMPS,) for i in kept})
    return *_having(data, moments, rows, kept), {i: rates[i].rate for i in kept}
