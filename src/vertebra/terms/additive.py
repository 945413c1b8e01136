"""The additive network in closed form: structure found by tests, a basis of functions per term, the joint Gaussian
posterior of all coefficients, hyper-parameters by evidence and averaged over.

Where the noise is not Gaussian, the same on the working response of iterated reweighting, up to the best Gaussian q.
"""

import enum
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.gaussian_rows import left_out
from vertebra.likelihoods.working_responses import Classes, HeavyTails, Plain, UnevenNoise, Working
from vertebra.tables.passes import ROWS_SEARCHED
from vertebra.tables.profile import copies_among, copies_of
from vertebra.terms.all_rows import more_degrees, taken_to_all
from vertebra.terms.components import Components
from vertebra.terms.copula import Copula
from vertebra.terms.dependence import mixings, numbered, stretches
from vertebra.terms.evidence import Basis
from vertebra.terms.families import DEGREE, Family
from vertebra.terms.functions import System, system_of
from vertebra.terms.joint import Joint, gram_of, shrunk
from vertebra.terms.latents import (
    MANY_LATENTS,
    MAX_EXACT,
    NO_LEVELS,
    Data,
    Fit,
    Known,
    at_rows,
    data_of,
    posterior_of,
    reweighted,
    searched,
    settled,
)
from vertebra.terms.model import model_of
from vertebra.terms.overconfidence import Refit, has_much_freedom, has_some_freedom, overconfidence, unsettled
from vertebra.terms.revision import (
    N_REWEIGHTINGS,
    all_chosen,
    all_tested,
    looked_at_again,
    with_all_mains,
    with_what_evidence_wants,
)
from vertebra.terms.roughness import with_families
from vertebra.terms.search import ROWS_PER_MAIN, Asked
from vertebra.terms.shaped_latents import is_location, near_shapes, with_shapes
from vertebra.terms.shapes import Shapes
from vertebra.terms.structure import Structure
from vertebra.terms.substitutes import substitutes
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.sums import Everything, HeldTable, RowSums
from vertebra.terms.term import Term, maximal, subsets
from vertebra.terms.together import fit_together

# Families are compared with so many rows. A round number.
ROWS_FOR_LOCAL = 200
# Where weights change from round to round, how columns go together is averaged over so many rows at most: off by 0.3 %.
MOST_FOR_GRAM = 100_000
# Rough terms of all rows grow so many times while they use what they have: on power (split 0) rows are missed by 3.55
# after one time, by 3.34 after two. No others were compared.
N_GROWN = 2
NO_SHAPES: Shapes = MappingProxyType({})


class Mains(enum.Enum):
    """Which inputs have a main effect: those found, all of them, or all, with straight lines and nothing else."""

    FOUND = "what tests find"
    ALL = "curves"
    LINES = "lines"


class Additive(NamedTuple):
    """A fitted sum of terms, its likelihood, and what was found out about its terms, latent by latent."""

    terms: SumOfTerms
    likelihood: Likelihood
    structures: tuple[Structure, ...]
    clusters: tuple[Term, ...]
    noise: tuple[float, ...]  # the variance of every latent function's response
    left_out: tuple[Float[np.ndarray, "n latent"], Float[np.ndarray, "n latent"]]  # f at each row without it
    check: Callable[["Additive"], "Additive"] | None = None  # of its intervals, on rows left out, if not yet made
    describe: Callable[["Additive"], "Additive"] | None = None  # what is still to be said of it
    n_searched: int | None = None  # the rows that terms were sought in, where there are more

    def checked(self) -> "Additive":
        """The same with intervals as rows left out speak for: means stay what they are."""
        return self if self.check is None else self.check(self._replace(check=None))

    def described(self) -> "Additive":
        """The same with tests of its terms, how its columns go together, and what could stand for what.

        Predictions need none of it.
        """
        return self if self.describe is None else self.describe(self._replace(describe=None))


class _Task(NamedTuple):
    """The rows in memory and what is asked for."""

    x: Float[np.ndarray, "n p"]
    weight: Float[np.ndarray, " n"]
    n_levels: Sequence[int]
    working: Working
    mains: Mains
    asked: Asked
    idle: set[int]  # inputs that are not read
    more: int  # by how much degrees are higher than usual
    shapes: Shapes
    report: Callable[[str], None]
    groups: Int[np.ndarray, " n"] | None  # of rows that may depend on each other
    order: Float[np.ndarray, " n"] | None  # in which they follow each other
    levels: Mapping[int, Int[np.ndarray, " n"]] = NO_LEVELS  # of categories that are read as numbers
    known: Known | None = None
    is_sample: bool = False  # whether there are more rows, to which what is found is fitted

    @property
    def degree(self) -> int:
        """The highest of polynomials."""
        return 1 if self.mains is Mains.LINES else DEGREE + self.more

    def data(self) -> Data:
        table: Any = dict(degree=self.degree, idle=self.idle, are_tabulated=bool(self.shapes), known=self.known)
        table |= {"groups": numbered(self.groups), "levels": self.levels}
        return data_of(self.x, self.weight, self.n_levels, self.working, **table)


def fit_additive(
    x: Float[np.ndarray, "n p"],
    working: Working,
    weight: Float[np.ndarray, " n"],
    *,
    n_levels: Sequence[int] | None = None,
    rng: np.random.Generator,
    report: Callable[[str], None] = lambda _: None,
    clusters: Sequence[Term] | None = None,
    within: Sequence[Term] | None = None,
    mains: Mains = Mains.FOUND,
    enough: Callable[[], bool] = lambda: False,
    calibrate: bool = True,
    checks: bool = True,
    describes: bool = True,
    everything: Everything | None = None,
    shapes: Shapes = NO_SHAPES,
    groups: Int[np.ndarray, " n"] | None = None,
    order: Float[np.ndarray, " n"] | None = None,
    codes: Mapping[int, Int[np.ndarray, " n"]] = NO_LEVELS,
    known: Known | None = None,
) -> Additive:
    """Finds the terms and fits them. Each latent function has its own tests, smoothness and noise; they share terms.

    `n_levels` says which inputs are categories. `clusters` are found unless given, `within` some sets of inputs where
    these are given; a constant target has none. `mains` says which inputs have a main effect. Once `enough` says so, no
    more terms are sought. With `calibrate`, a fit with much freedom for its rows is widened by what it missed rows by
    that it had not seen. Where the rows are a sample, `everything` is all of them: terms are sought in the sample and
    fitted to all. With `shapes`, f rises or falls with some inputs. Rows of one of the `groups` may depend on each
    other; so may rows that follow each other in `order`, a time. `codes` are the levels of categories whose columns are
    numbers that stand for these: they are tested by them. Unless it `checks` and `describes` itself, `checked` and
    `described` do so. What is `known` of these rows by other fits is not worked out again.
    """
    groups = stretches(order) if groups is None and order is not None else groups
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    # what a copy says has been said, unless it is asked for
    is_free = clusters is None and within is None
    copies = copies_of(x, levels, on_lines=mains is Mains.LINES) if is_free else {}
    if isinstance(everything, HeldTable):
        copies = copies_among(copies, everything.x, levels, on_lines=mains is Mains.LINES)
    idle = set(copies)
    if mains is Mains.LINES:
        clusters = [(i,) for i in range(x.shape[1]) if i not in idle]
    asked = Asked(None if clusters is None else subsets(clusters), within, enough=enough, sizes=calibrate)
    all_of_them = _Task(x, weight, levels, working, mains, asked, idle, 0, shapes, report, groups, order, codes, known)
    task, everything = _sampled(all_of_them, everything, rng)
    data = _with_dependence(task, task.data())
    data, structures, fit, rows = _searched_and_fitted(task, data)
    is_asked = calibrate and asked.terms is None and not data.are_many
    sought = _Sought(data, fit, copies if is_asked else None)
    if everything is not None:
        all_of_them, data, fit, rows = _to_all(task, all_of_them, data, fit, rows, everything)
    found, variance = _concluded(all_of_them, data, fit, rows, structures, rng)
    describe, n_searched = partial(_described, all_of_them, data, fit.basis, rows, sought), len(task.x)
    found = found._replace(describe=describe, n_searched=None if everything is None else n_searched)
    if calibrate and clusters is None and not shapes:
        found = found._replace(check=partial(_checked, all_of_them, fit.basis, variance, rng))
    found = found.checked() if checks else found
    return found.described() if describes else found


def _checked(
    task: _Task, basis: Basis, variance: Float[np.ndarray, "n latent"], rng: np.random.Generator, found: Additive
) -> Additive:
    """The fit, widened by what it missed rows by that it had not seen, if it had much freedom."""
    working, rows = task.working, (task.weight, rng)
    groups = numbered(task.groups)
    if isinstance(working, Plain) and has_much_freedom(basis, variance, task.weight, np.array(found.noise)):
        task.report("checking intervals on rows left out")
        factors = overconfidence(task.x, working.y, *rows, _refit(task, rng), groups)
        return _widened(found, factors, working)
    # h of v₋ = v/(1 − h)
    leverage = 1.0 - variance / np.maximum(found.left_out[1], 1e-300)
    if isinstance(working, UnevenNoise | HeavyTails) and has_some_freedom(basis, leverage):
        task.report("checking intervals on rows left out")
        mean = found.terms.mean(task.x)
        factors = unsettled(task.x, working.y, *rows, (mean, variance), _refit(task, rng), groups)
        # of f alone: nobody sees intervals of the log of the noise's variance
        return _widened_f(found, np.where([is_location(working, k) for k in range(len(factors))], factors, 1.0))
    return found


class _Sought(NamedTuple):
    """What a search ended with, and copies of inputs: none where nobody asks what could stand for what."""

    data: Data
    fit: Fit
    copies: dict[int, int] | None


def _described(
    task: _Task, data: Data, basis: Basis, rows: list[RowSums], sought: _Sought, found: Additive
) -> Additive:
    """What a fit has to say of itself: tests of its terms, what could stand for them, how its columns go together."""
    structures = found.structures
    if not data.are_many:
        structures = all_tested(sought.data, structures, sought.fit, task.asked.enough)
    if sought.copies is not None:
        task.report("looking for inputs that could stand for those found")
        stories = [substitutes(model, sought.copies, task.asked.enough) for model in sought.fit.models]
        structures = tuple(
            s._replace(substitutes=own, n_uncompared=n) for s, (own, n) in zip(structures, stories, strict=True)
        )
    terms = found.terms._replace(joint=_joint(task, data, found.terms, basis, rows))
    # what a sample chose is fitted to all rows; shapes are known, and so are terms that were given
    if data is sought.data and task.asked.terms is None and not task.shapes and not data.are_many:
        terms = terms._replace(chosen=all_chosen(structures, sought.fit))
    return found._replace(terms=terms, structures=structures)


def _refit(task: _Task, rng: np.random.Generator) -> Refit:
    """The search and the fit of some of the rows: terms and noise."""
    asked = task.asked
    settings: Any = dict(n_levels=task.n_levels, rng=rng, within=asked.within, mains=task.mains, enough=asked.enough)
    settings |= {"calibrate": False, "describes": False}

    def fitted(kept: Bool[np.ndarray, " n"]) -> tuple[SumOfTerms, Sequence[float]]:
        weight = task.weight[kept]
        rows = task.x[kept], task.working.of(task.working.y[kept], weight), weight  # type: ignore[attr-defined]
        depend = (("groups", task.groups), ("order", task.order))
        told: Any = {name: each[kept] for name, each in depend if each is not None}
        told["codes"] = {i: each[kept] for i, each in task.levels.items()}
        part = fit_additive(*rows, **settings, **told)
        return part.terms, part.noise

    return fitted


def _sampled(task: _Task, everything: Everything | None, rng: np.random.Generator) -> tuple[_Task, Everything | None]:
    """The task with no more rows than terms are sought in; and all rows, where these are fewer."""
    x, weight, working = task.x, task.weight, task.working
    # many classes share terms, and each has few rows of a sample
    is_many = isinstance(working, Classes) and working.hits.shape[1] >= MANY_LATENTS
    # rows that depend on each other are looked at together
    if len(x) > ROWS_SEARCHED and not is_many and task.groups is None:
        some = np.sort(rng.choice(len(x), ROWS_SEARCHED, replace=False))
        everything = HeldTable(x, working.targets, weight) if everything is None else everything
        task = task._replace(x=x[some], weight=weight[some], working=working.some(some))
        task = task._replace(levels={i: each[some] for i, each in task.levels.items()})
    more = 0 if everything is None else more_degrees(everything.n_rows)
    return task._replace(more=more, is_sample=everything is not None), everything


def _to_all(
    task: _Task, all_of_them: _Task, data: Data, fit: Fit, rows: list[RowSums], everything: Everything
) -> tuple[_Task, Data, Fit, list[RowSums]]:
    """The task of all rows that are in memory, with the terms of a sample fitted to everything."""
    task.report(f"fitting {len(fit.basis.terms)} terms to all {everything.n_rows:,} rows")
    data, fit, rows = taken_to_all(data, fit, rows, task.x, everything)
    working, x = all_of_them.working, all_of_them.x
    if len(task.x) < len(x):
        # with what the rows searched say of the noise
        working = data.working.of(working.targets, all_of_them.weight)
    values = [s.at(column, grows=False) for s, column in zip(data.systems, x.T, strict=True)]
    return all_of_them._replace(working=working), data._replace(values=values, working=working), fit, rows


def _with_dependence(task: _Task, data: Data) -> Data:
    """The data with how rows of a group, or that follow each other, depend: by evidence beside all main effects."""
    if data.groups is None or not data.is_gaussian:
        return data
    mains = data.mains if len(task.x) >= ROWS_PER_MAIN[0] * len(data.mains) else []
    best, highest = None, -math.inf
    for mixing in mixings(data.groups, task.order, task.weight):
        models = [
            model_of(each, mains)
            for each in data._replace(mixing=mixing).rows(data.working.start, data.working.start)
            if not each.is_constant
        ]
        log_evidence = sum(model.posterior.log_evidence for model in models)
        log_evidence -= 0.5 * len(models) * (0.0 if mixing is None else mixing.log_determinant)
        if log_evidence > highest:
            best, highest = mixing, log_evidence
    return data._replace(mixing=best)


class _Start(NamedTuple):
    """Where terms are sought from: f and its variance at the rows, terms of a first fit, main effects that stay."""

    f: Float[np.ndarray, "n latent"]
    variance: Float[np.ndarray, "n latent"]
    terms: tuple[Term, ...] = ()
    stay: tuple[Term, ...] = ()


def _started(task: _Task, data: Data) -> _Start:
    """Where weights are near the truth: at a first fit of main effects, unless noise is Gaussian."""
    f, variance = data.working.start, np.zeros_like(data.working.start)
    stay = tuple(data.mains) if task.mains is Mains.ALL else ()
    if data.is_gaussian:
        return _Start(f, variance, stay=stay)
    task.report("fitting main effects")
    _, basis, models = searched(data.rows(f, variance), task.asked._replace(max_order=1, base=stay, sizes=False))
    first = reweighted(data, Fit(basis, f, variance, models), N_REWEIGHTINGS)
    if task.asked.terms is None and task.asked.within is None and not stay:
        first, stay = with_all_mains(data, first)
    return _Start(first.f, first.variance, basis.terms, stay)


def _with_families(task: _Task, data: Data, start: _Start) -> tuple[Data, list[RowSums]]:
    """The data and their rows, with the functions that evidence is for where there are rows enough to tell."""
    if np.count_nonzero(task.weight) < ROWS_FOR_LOCAL or task.mains is Mains.LINES:
        return data, data.rows(start.f, start.variance)
    task.report("choosing the functions of every input")

    def rebuilt(i: int, many: Collection[Family], rate: Float[np.ndarray, " h"] | None) -> System:
        return system_of(task.x[:, i], task.weight, degree=task.degree, rate=rate, many=many)

    return with_families(data, (start.f, start.variance), task.asked.terms, None if task.shapes else rebuilt)


def _searched_and_fitted(task: _Task, data: Data) -> tuple[Data, tuple[Structure, ...], Fit, list[RowSums]]:
    """The data, what was found for every latent function, the fit of all their terms, and the rows that it is of."""
    if data.are_many:
        task.report("testing inputs and their pairs, for all classes together")
        structures, fit = fit_together(data, task.asked, tuple(data.mains) if task.mains is Mains.ALL else ())
        return data, structures, fit, data.rows(fit.f, fit.variance)
    start = _started(task, data)
    data, rows = _with_families(task, data, start)
    return data, *_searched_from(task, data, rows, start)


def _first_terms(data: Data, start: _Start) -> Sequence[Term]:
    """The terms that a search begins with: of rows in groups all main effects, where rows are enough.

    What the model lacks goes together in groups as noise does, and would hide what is there.
    """
    is_enough = len(start.f) >= ROWS_PER_MAIN[0] * len(data.mains)
    return start.terms if data.groups is None or not is_enough else tuple(data.mains)


def _searched_from(
    task: _Task, data: Data, rows: list[RowSums], start: _Start
) -> tuple[tuple[Structure, ...], Fit, list[RowSums]]:
    """The same from a first fit."""
    asked, p = task.asked._replace(base=start.stay), len(data.mains)
    task.report(f"testing {p:,} inputs and their {math.comb(p, 2):,} pairs" if asked.terms is None else "testing terms")
    structures, basis, models = searched(rows, asked._replace(start=_first_terms(data, start)))
    task.report(f"fitting {len(basis.terms)} terms")
    # terms of a sample grow again with all rows; where weights change, each fit is many
    basis, models = settled(basis, rows, models, n_grown=N_GROWN if data.is_gaussian and not task.is_sample else 1)
    fit = Fit(basis, start.f, start.variance, models)
    if data.is_gaussian:
        return structures, fit, rows
    fit = reweighted(data, fit, N_REWEIGHTINGS)
    if asked.terms is None:
        fit = with_what_evidence_wants(data, fit, start.terms)
        if fit.basis.blocks:
            structures, fit = looked_at_again(data, structures, fit, asked)
    fit = reweighted(data, fit, 2 * N_REWEIGHTINGS)
    return structures, fit, data.rows(fit.f, fit.variance)


def _concluded(
    task: _Task,
    data: Data,
    fit: Fit,
    rows: list[RowSums],
    structures: tuple[Structure, ...],
    rng: np.random.Generator,
) -> tuple[Additive, Float[np.ndarray, "n latent"]]:
    """The posterior of all coefficients, what it says of each row without it, and the variance of f at the rows."""
    most = 0 if data.are_many else MAX_EXACT
    if task.shapes and not data.is_gaussian and len(task.x) == len(fit.f):
        task.report("going to where f has its shape")
        fit, rows = near_shapes(task.x, data, fit, rows, task.shapes, rng, N_REWEIGHTINGS)
    posteriors = [posterior_of(fit.basis, model, each, rng, most) for model, each in zip(fit.models, rows, strict=True)]
    means, roots, noise = zip(*posteriors, strict=True)
    terms = SumOfTerms(fit.basis.pruned(), means, roots)
    if task.shapes:
        task.report("drawing functions that have their shape")
        terms = with_shapes(task.working, terms, task.shapes, rng)
    # of rows of the fit, where six digits of a variance are enough
    mean, variance = terms.moments(task.x, np.float32)
    conditional = variance if task.shapes or fit.basis.n_columns > most else at_rows(data, fit.models)[1]
    without = left_out(mean, variance, conditional, task.working.responses(mean, variance), noise, task.weight)
    # that of a new row, of a group that nobody knows
    noise = tuple(float(v) * (1.0 if data.mixing is None else data.mixing.marginal) for v in noise)
    likelihood = task.working.likelihood(list(noise))
    return Additive(terms, likelihood, structures, maximal(fit.basis.terms), noise, without), variance


def _joint(task: _Task, data: Data, terms: SumOfTerms, basis: Basis, rows: list[RowSums]) -> Joint:
    """How the columns go together over all rows; where their weights are not those of the fit, over those in memory."""
    if data.is_gaussian and data.mixing is None:
        products = rows[0].products(basis)
        gram = products.gram / products.n + np.outer(products.mean_phi, products.mean_phi)
        gram = np.block([[np.ones((1, 1)), products.mean_phi[None]], [products.mean_phi[:, None], gram]])
        n_rows = products.n
    else:
        some = slice(None, None, -(-len(task.x) // MOST_FOR_GRAM))
        gram, n_rows = gram_of(terms.basis, task.x[some], task.weight[some]), float(task.weight.sum())
    copula = Copula(task.x, task.weight, [system.n_levels for system in terms.basis.systems], n_rows)
    joint = shrunk(terms.basis, gram, n_rows, copula, np.stack(terms.means, axis=1))
    return joint._replace(scatter=Components(terms, joint).scatter(task.x, task.weight, n_rows))


def _widened(found: Additive, factors: Float[np.ndarray, " k"], working: Working) -> Additive:
    """The fit with all sds, those of the noise too, times a factor for every target."""
    noise = factors**2 * np.array(found.noise)
    return _widened_f(found, factors)._replace(
        likelihood=working.likelihood(list(noise)), noise=tuple(float(v) for v in noise)
    )


def _widened_f(found: Additive, factors: Float[np.ndarray, " latent"]) -> Additive:
    """The fit with the sds of its latent functions times factors."""
    roots = tuple(f * root for f, root in zip(factors, found.terms.roots, strict=True))
    mean, variance = found.left_out
    return found._replace(terms=found.terms._replace(roots=roots), left_out=(mean, factors**2 * variance))
