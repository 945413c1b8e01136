"""The additive network in closed form: structure found by tests, a basis of functions per term, the joint Gaussian
posterior of all coefficients, hyper-parameters by evidence and averaged over.

Where the noise is not Gaussian, the same on the working response of iterated reweighting, up to the best Gaussian q.
"""

import copy
import enum
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.gaussian_rows import Response, between, left_out
from vertebra.likelihoods.working_responses import Classes, Plain, Working
from vertebra.machine.threads import CHUNK
from vertebra.tables.folds import folds_of
from vertebra.tables.profile import copies_of
from vertebra.terms.evidence import TOTAL_DEGREE, Basis, averaged, basis_of, with_constant
from vertebra.terms.functions import DEGREE, System, columns, system_of
from vertebra.terms.search import (
    FALSE_PAIR,
    Model,
    Score,
    Structure,
    fit_basis,
    grown,
    model_of,
    most_columns,
    own_score_tests,
    score_tests,
    search,
    strongest,
)
from vertebra.terms.sum_of_terms import SumOfTerms, triangular
from vertebra.terms.sums import Everything, Rows, Streamed, centred_on
from vertebra.terms.term import Term, maximal, subsets

N_REWEIGHTINGS = 12
LEAST_STEP = 0.1
# Rows from which smooth terms of more of them have higher degrees, by so much each time they are ten times as many.
MANY_ROWS, DEGREES_A_DECADE = 1e5, 2.5
# Passes over all rows where terms were sought in a sample; the mean share of its spread that f moves by in the last.
N_PASSES, SAME = 6, 2e-3
# Models of more columns are fitted by rounds of MacKay's updates, and not averaged over hyper-parameters.
MAX_EXACT = 900
N_ROUNDS = 12
# All main effects are tried beside those found with so many rows for each, and kept for so much ELBO.
ROWS_PER_MAIN, LEAST_GAIN = 8, 3.0
# The most terms that are taken out again one by one; and how many times the rows' weight without a term must be that
# with it, for the term to be tested so. experiments/separable.py was run with these, and with no others.
MOST_TRIED, MUCH_HEAVIER = 8, 1.5
# The p-value up to which a term is in the model that terms are looked at again from.
SEEN_AGAIN = 1e-3
# A fit is checked on rows left out where their mean leverage is larger, fold by fold; of many rows one fold is enough.
MUCH_LEVERAGE, ROWS_TO_CHECK, N_FOLDS, ROWS_FOR_ONE_FOLD = 0.1, 60, 3, 3000
# By what share variances are usually too small, and at most.
USUAL_EXCESS, MOST_EXCESS = 0.2, 3.0
# Rough functions are tried with so many rows, on main effects and the strongest pairs.
ROWS_FOR_ROUGH, ROWS_PER_COLUMN, N_COMPARED = 200, 3, 4
# Noise of a smaller share of the variance of y is faint.
FAINT = 0.03


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


class _Data(NamedTuple):
    systems: tuple[System, ...]
    values: list[Float[np.ndarray, "n _"]]
    working: Working

    def rows(self, f, variance) -> list[Rows]:
        """Of every latent function, near f."""
        return self.rows_of(self.working.responses(f, variance))

    def rows_of(self, responses: list[Response]) -> list[Rows]:
        return [Rows.held(self.systems, self.values, *response) for response in responses]


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
    everything: Everything | None = None,
) -> Additive:
    """Finds the terms and fits them. Each latent function has its own tests, smoothness and noise; they share terms.

    `n_levels` says which inputs are categories. `clusters` are found unless given, `within` some sets of inputs where
    these are given; a constant target has none. `mains` says which inputs have a main effect. Once `enough` says so, no
    more terms are sought. With `calibrate`, a fit with much freedom for its rows is widened by what it missed rows by
    that it had not seen. Where the rows are a sample, `everything` is all of them: terms are sought in the sample and
    fitted to all.
    """
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    # what a copy says has been said, unless it is asked for
    idle = set(copies_of(x)) if clusters is None and within is None else set()
    if mains is Mains.LINES:
        clusters = [(i,) for i in range(x.shape[1]) if i not in idle]
    asked: dict[str, Any] = dict(clusters=clusters, within=within, enough=enough)
    more = 0 if everything is None else _more_degrees(everything.n_rows)
    degree = 1 if mains is Mains.LINES else DEGREE + more
    data = _data(x, weight, levels, working, rough=False, degree=degree, idle=idle)
    f, variance, start = working.start, np.zeros_like(working.start), ()
    stay = tuple((i,) for i, system in enumerate(data.systems) if system.is_alive) if mains is Mains.ALL else ()
    if not isinstance(working, Plain):
        # Structure is sought where the weights are near the truth: at a first fit of main effects.
        report("fitting main effects")
        _, basis, models = _structure(data.rows(f, variance), max_order=1, base=stay, **asked)
        first, start = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS // 2), basis.terms
        if clusters is None and within is None and isinstance(working, Classes) and not stay:
            first, stay = _all_mains_if_better(data, basis, first)
        f, variance, _ = first
    rows = data.rows(f, variance)
    if np.count_nonzero(weight) >= ROWS_FOR_ROUGH and mains is not Mains.LINES:
        report("comparing smooth and rough functions")
        rough = _data(x, weight, levels, working, rough=True, idle=idle)
        along_ranks = rough.rows(f, variance)
        if _is_rough(rows, along_ranks, clusters):
            data, rows = rough, along_ranks
    p = sum(system.is_alive for system in data.systems)
    report("testing terms" if clusters is not None else f"testing {p:,} inputs and their {math.comb(p, 2):,} pairs")
    structures, basis, models = _structure(rows, base=stay, start=start, **asked)
    report(f"fitting {len(basis.terms)} terms")
    basis, models = _settle(basis, rows, models)
    if not isinstance(working, Plain):
        fit = _Fit(basis, *_reweight(data, basis, models, f, variance, N_REWEIGHTINGS // 2))
        if clusters is None:
            fit = _with_what_evidence_wants(data, fit, start)
        if clusters is None and fit.basis.blocks:
            # Seen from a fit that lacks what they stood for, terms may have looked real that are not.
            structures, fit = _looked_at_again(data, structures, fit, dict(base=stay, **asked))
        basis = fit.basis
        f, variance, models = _reweight(data, basis, fit.models, fit.f, fit.variance, N_REWEIGHTINGS)
        rows = data.rows(f, variance)
    structures = _all_tested(data, structures, _Fit(basis, f, variance, models))
    if everything is not None:
        report(f"fitting {len(basis.terms)} terms to all {everything.n_rows:,} rows")
        everything.begin(repr([(block.term, block.index.tolist()) for block in basis.blocks]))
        if acting := sorted({i for term in basis.terms for i in term}):
            # components are those under the marginals of all rows, not of the sample
            systems = centred_on(everything, data.systems, acting)
            data = _Data(systems, [system(column) for system, column in zip(systems, x.T, strict=True)], working)
            total = {order: degree + more for order, degree in TOTAL_DEGREE.items()}
            basis = basis_of(systems, basis.terms, total, sizes=basis.sizes, max_columns=most_columns(rows[0].n))
        basis, models, rows = _to_all(data, basis, models, [each.faint for each in rows], everything)
    posteriors = [_posterior(basis, model, each, rng) for model, each in zip(models, rows, strict=True)]
    means, roots, noise = zip(*posteriors, strict=True)
    terms, variances = SumOfTerms(basis, means, roots), np.array(noise, dtype=float)
    mean, variance = terms.moments(x)
    conditional = variance if basis.n_columns > MAX_EXACT else _at_rows(data, models)[1]
    without = left_out(mean, variance, conditional, working.responses(mean, variance), noise, weight)
    is_checked = calibrate and clusters is None and _has_much_freedom(basis, variance, weight, variances)
    if is_checked and isinstance(working, Plain):
        report("checking intervals on rows left out")
        settings: dict[str, Any] = dict(n_levels=n_levels, within=within, mains=mains, enough=enough, calibrate=False)
        factors = _overconfidence(x, working.y, weight, rng, settings)
        terms = terms._replace(roots=tuple(f * root for f, root in zip(factors, roots, strict=True)))
        variances, without = factors**2 * variances, (without[0], factors**2 * without[1])
    likelihood, found = working.likelihood(list(variances)), maximal(basis.terms)
    return Additive(terms, likelihood, structures, found, tuple(float(v) for v in variances), without)


class _Fit(NamedTuple):
    """A model of every latent function on one basis, f and its variance at the rows."""

    basis: Basis
    f: Float[np.ndarray, "n latent"]
    variance: Float[np.ndarray, "n latent"]
    models: list[Model | None]

    def energies(self) -> dict[Term, float]:
        """The sum of the squared coefficients of each term, over all latent functions."""
        means = [model.posterior.mean for model in self.models if model is not None]
        places = zip(self.basis.terms, self.basis.slices, strict=True)
        return {term: float(sum(np.sum(mean[place] ** 2) for mean in means)) for term, place in places}


def _with_what_evidence_wants(data: _Data, fit: _Fit, earlier: Sequence[Term]) -> _Fit:
    """The fit with those terms of an earlier one that it lacks, as far as its ELBO, fitted again, is higher with them.

    Where classes can be told apart for certain, rows say little near the fit, and tests of its own terms see nothing
    (Hauck & Donner): no term goes on the word of a test alone.
    """
    lost = [t for t in earlier if t not in fit.basis.terms]
    if not lost:
        return fit

    def fitted(terms: set[Term], near: _Fit) -> tuple[_Fit, float]:
        ordered = sorted(terms, key=lambda t: (len(t), t))
        basis = basis_of(data.systems, ordered, sizes=fit.basis.sizes, max_columns=most_columns(len(fit.f)))
        found = _Fit(basis, *_reweight(data, basis, near.models, near.f, near.variance, N_REWEIGHTINGS // 2))
        return found, _elbo(data, found.f, found.variance, found.models)

    # before the others: what a likelihood learns of its noise goes with the last fit
    before = _elbo(data, fit.f, fit.variance, fit.models)
    best, elbo = fitted({*fit.basis.terms, *lost}, fit)
    if elbo <= before:
        return fit
    for _ in range(MOST_TRIED):
        sizes = best.energies()
        weakest = min((t for t in maximal(best.basis.terms) if t in lost), key=sizes.__getitem__, default=None)
        if weakest is None:
            break
        fewer, without = fitted(set(best.basis.terms) - {weakest}, best)
        if without < elbo:
            break
        best, elbo = fewer, without
    return best


def _looked_at_again(data: _Data, structures, fit: _Fit, asked: dict[str, Any]):
    """The structures and the fit after the terms of a fit were tested against it."""
    rows = data.rows(fit.f, fit.variance)
    seen = {t for s in structures for t, test in s.tests.items() if test.p_value < SEEN_AGAIN}
    strong = tuple(t for t in fit.basis.terms if len(t) == 1 or t in seen)
    structures, again, found = _structure(rows, start=strong, max_order=2, **asked)
    if set(again.terms) == set(fit.basis.terms):
        return structures, fit
    basis, models = _settle(again, rows, found)
    other = _Fit(basis, *_reweight(data, basis, models, fit.f, fit.variance, N_REWEIGHTINGS // 2))
    return structures, _with_what_evidence_wants(data, other, fit.basis.terms)


def _all_tested(data: _Data, structures: Sequence[Structure], fit: _Fit) -> tuple[Structure, ...]:
    """The structures with a test of every term of the model in every latent function, and those it finds there too.

    A term of the model is tested by the weights of the rows near the fit. Where these would be much larger without it,
    it is taken out and tested by those of the fit that lacks it, which is what a score test is.
    """
    result = []
    for k, (structure, model) in enumerate(zip(structures, fit.models, strict=True)):
        if model is not None:
            tests = structure.tests | own_score_tests(model, [t for t in fit.basis.terms if t not in structure.tests])
            if not isinstance(data.working, Plain):
                weak = [t for t in fit.basis.terms if tests[t].p_value > SEEN_AGAIN]
                tests |= _tests_without(data, k, fit, weak)
            level = {order: FALSE_PAIR / max(n, 1) for order, n in structure.n_candidates.items()}
            here = [t for t in fit.basis.terms if t in structure.terms or tests[t].p_value < level.get(len(t), 0.0)]
            structure = structure._replace(terms=tuple(here), tests=tests)
        result.append(structure)
    return tuple(result)


def _tests_without(data: _Data, latent: int, fit: _Fit, terms: Sequence[Term]) -> dict[Term, Score]:
    """Tests of some terms in one latent function, each against a fit without it, where that gives rows more weight."""
    found: dict[Term, Score] = {}
    # what a likelihood learns of its noise on the way is not to stay
    data = data._replace(working=copy.copy(data.working))
    before = data.working.responses(fit.f, fit.variance)[latent].w.sum()
    for block, place in zip(fit.basis.blocks, fit.basis.slices, strict=True):
        if block.term not in terms or len(found) == MOST_TRIED:
            continue
        own = columns(data.values, block.term, block.index)
        parts = [np.zeros(len(own)) if m is None else own @ m.posterior.mean[place] for m in fit.models]
        f = fit.f - np.stack(parts, axis=1)
        if data.working.responses(f, fit.variance)[latent].w.sum() < MUCH_HEAVIER * before:
            continue
        others = [t for t in fit.basis.terms if t != block.term]
        basis = basis_of(data.systems, others, sizes=fit.basis.sizes, max_columns=most_columns(len(f)))
        _, _, models = _reweight(data, basis, fit.models, f, fit.variance, N_REWEIGHTINGS // 2)
        model = models[latent]
        if model is None:  # no term is left: that of a constant
            model = model_of(data.rows(*_at_rows(data, models))[latent], ())
        found |= score_tests(model, [block.term])
    return found


def _has_much_freedom(basis: Basis, variance, weight, noise) -> bool:
    """Whether the rows decide little more than a few times as many coefficients: their mean leverage, Var f w/σ²."""
    leverage = float(np.mean(weight[:, None] * variance / noise))
    return bool(basis.blocks) and len(variance) >= ROWS_TO_CHECK and leverage > MUCH_LEVERAGE


def _overconfidence(x, y, weight, rng, settings: dict[str, Any]) -> Float[np.ndarray, " k"]:
    """By what factor intervals were too narrow on rows that neither the search nor the fit had seen; at least 1.

    Evidence takes the terms as given, but they were chosen, among many, because they fit these rows.
    """
    folds = folds_of(N_FOLDS, rng, x, y)
    squares, mass = np.zeros(y.shape[1]), 0.0
    for fold in range(N_FOLDS if len(x) < ROWS_FOR_ONE_FOLD else 1):
        out = folds == fold
        part = fit_additive(x[~out], Plain(y[~out], weight[~out]), weight[~out], rng=rng, **settings)
        mean, variance = part.terms.moments(x[out])
        squares += weight[out] @ ((y[out] - mean) ** 2 / (variance + np.array(part.noise)))
        mass += weight[out].sum()
    # the mean of m squares has the sd √(2/m): as far as that is large beside what is usual, it is not believed
    excess = np.clip(squares / mass - 1.0, 0.0, MOST_EXCESS)
    return np.sqrt(1.0 + excess * USUAL_EXCESS**2 / (USUAL_EXCESS**2 + 2.0 / mass))


def _more_degrees(n_rows: int) -> int:
    """Of smooth functions of very many rows: noise hides the less of what polynomials of some degree leave out."""
    return max(0, int(DEGREES_A_DECADE * math.log10(n_rows / MANY_ROWS)))


def _data(x, weight, levels, working, *, rough: bool, degree: int = DEGREE, idle: set[int]) -> _Data:
    """Rows with the functions of every input; one that is `idle` has none, as if it did not vary."""
    settings: dict[str, Any] = dict(rough=rough, degree=degree)
    systems = tuple(
        system_of(np.zeros(len(x)) if i in idle else column, weight, n, **settings)
        for i, (column, n) in enumerate(zip(x.T, levels, strict=True))
    )
    return _Data(systems, [system(column) for system, column in zip(systems, x.T, strict=True)], working)


def _all_mains_if_better(data: _Data, basis: Basis, first) -> tuple[Any, tuple[Term, ...]]:
    """The first fit with all main effects, if some were found and its ELBO is higher; and the terms that it makes stay.

    Inputs that go together can stand for each other. With few rows, to let one speak for all of them predicts worse
    than to let each have a say of the size that its own evidence gives it.
    """
    mains = [(i,) for i, system in enumerate(data.systems) if system.is_alive]
    n = len(first[0])
    if not basis.blocks or len(basis.terms) == len(mains) or len(mains) * ROWS_PER_MAIN > n:
        return first, ()
    whole = basis_of(data.systems, mains, max_columns=n // 2)
    f, variance, models = first
    other = _reweight(data, whole, [None] * len(models), f, variance, N_REWEIGHTINGS)
    again = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS)
    if _elbo(data, *other) > _elbo(data, *again) + LEAST_GAIN:
        return other, tuple(mains)
    return again, ()


def _elbo(data: _Data, f, variance, models) -> float:
    """Of a fit, with the hyper-prior of its sizes."""
    fit_of = data.working.expected_log_prob(f, variance)  # type: ignore[attr-defined]
    away = [m.evidence.distance(m.posterior.theta) for m in models if m is not None]
    return fit_of - sum(m.posterior.kl for m in models if m is not None) - 0.5 * sum(away)


def _is_rough(smooth: list[Rows], rough: list[Rows], clusters) -> bool:
    """Whether rough functions have the higher evidence, with the main effects and the strongest pairs."""
    gain = 0.0
    for one, other in zip(smooth, rough, strict=True):
        n_columns = sum(system.table.shape[1] for system in other.systems if system.is_rough)
        if one.is_constant or not 0 < n_columns < one.n / ROWS_PER_COLUMN:
            continue
        terms = strongest(one, N_COMPARED) if clusters is None else subsets(clusters)
        terms = [t for t in terms if all(system.is_alive for system in (one.systems[i] for i in t))]
        smoothly = _smoothly(one, terms).posterior
        other.faint = smoothly.noise_variance < FAINT * one.square / one.total
        gain += model_of(other, terms).posterior.log_evidence - smoothly.log_evidence
    return gain > 0.0


def _smoothly(rows: Rows, terms: Sequence[Term]) -> Model:
    """Of many rows with the degrees that the terms end with: what lower ones leave out would speak for rough ones."""
    if rows.n < MANY_ROWS / 2:
        return model_of(rows, terms)
    return fit_basis(rows, basis_of(rows.systems, terms), before=None, many=MAX_EXACT, n_rounds=2, tolerance=1e-6)


def _structure(
    rows: list[Rows],
    *,
    clusters,
    within,
    enough,
    base: tuple[Term, ...] = (),
    start: tuple[Term, ...] = (),
    max_order: int = 3,
):
    """What was found for every latent, the basis of all their terms with all subsets, and the models found with."""
    if clusters is None:
        asked: dict[str, Any] = dict(within=within, base=base, start=start, max_order=max_order, enough=enough)
        found = [search(r, n_families=len(rows), **asked) for r in rows]
    else:
        found = [search(r, terms=subsets(clusters)) for r in rows]
    structures, models = (tuple(part) for part in zip(*found, strict=True))
    systems = rows[0].systems
    terms = subsets(clusters) if clusters is not None else subsets(t for s in structures for t in s.terms)
    sizes: dict[Term, int] = {}
    for model in models:
        own = {} if model is None else model.basis.sizes
        sizes.update({t: max(n, sizes.get(t, 0)) for t, n in own.items()})
    alive = [t for t in terms if all(systems[i].is_alive for i in t)]
    return structures, basis_of(systems, alive, sizes=sizes, max_columns=most_columns(rows[0].n)), list(models)


def _models(basis: Basis, rows: list[Rows], before: Sequence[Model | None], *, n_rounds: int, is_last: bool = True):
    is_rough = any(system.is_rough for system in basis.systems)
    return [
        None
        if each.is_constant or not basis.blocks
        else fit_basis(
            each,
            basis,
            # smooth functions from the start: where evidence has two maxima, the search must not choose
            before=old if is_rough or not is_last or basis.n_columns > MAX_EXACT else None,
            many=MAX_EXACT // 3 if is_rough or not is_last else MAX_EXACT,
            n_rounds=n_rounds,
            tolerance=1e-9 if is_last else 1e-5,
        )
        for each, old in zip(rows, before, strict=True)
    ]


def _settle(basis: Basis, rows: list[Rows], before: Sequence[Model | None]) -> tuple[Basis, list[Model | None]]:
    """The models on a basis whose rough terms have grown to what they need."""
    models = _models(basis, rows, before, n_rounds=N_ROUNDS)
    sizes = grown(models, is_last=True)
    if sizes and sizes != basis.sizes:
        basis = basis_of(basis.systems, basis.terms, sizes=sizes, max_columns=most_columns(rows[0].n))
        models = _models(basis, rows, models, n_rounds=N_ROUNDS // 2)
    return basis, models


def _reweight(data: _Data, basis: Basis, models, f, variance, n_rounds: int):
    """f, its variance at the rows, and the models at the mode, by rounds of a working response and a fit of it.

    A round goes a share of the way from the last responses to the new ones, in w and wz, which are natural parameters:
    where it comes to rest does not depend on the share. It is halved where a round moves f by more than the one before.
    """
    share, last, old = data.working.step, math.inf, None
    for _ in range(math.ceil(n_rounds / share**2)):
        new = data.working.responses(f, variance)
        old = new if old is None else [between(one, other, share) for one, other in zip(old, new, strict=True)]
        models = _models(basis, data.rows_of(old), models, n_rounds=2, is_last=False)
        before = f
        f, variance = _at_rows(data, models)
        moved = float(np.mean(np.abs(f - before)))
        if moved < SAME * share * max(float(f.std()), 1e-3):
            break
        share = share if moved < last else max(0.5 * share, LEAST_STEP)
        last = moved
    return f, variance, models


def _to_all(data: _Data, basis: Basis, models, faint: list[bool], everything: Everything):
    """Of all rows, from those of a sample: the basis, which may grow once more, the models, and the rows."""
    systems, working = data.systems, data.working
    levels = working.start[0].copy()  # of latents without terms

    def rows_of(k: int) -> Rows:
        def respond(values, targets, weight):
            if isinstance(working, Plain):
                return targets[:, k], weight
            own = working.of(targets, weight)
            f, variance = _at(models, np.tile(levels, (len(targets), 1)), values)
            response = own.responses(f, variance)[k]
            return response.z, response.w

        known = None if isinstance(working, Plain) else working.responses(*_at_rows(data, models))[k].noise_variance
        return Rows(systems, Streamed(systems, everything, respond), known, blocks=basis.blocks, faint=faint[k])

    if isinstance(working, Plain):
        rows = [rows_of(k) for k in range(len(models))]
        return *_settle(basis, rows, models), rows
    share, rows = working.step, None
    for _ in range(math.ceil(N_PASSES / share)):
        new = [rows_of(k) for k in range(len(models))]
        if rows is not None:
            new = [one.between(other, share, basis.blocks) for one, other in zip(new, rows, strict=True)]
        rows, before = new, _at_rows(data, models)[0]
        models = _models(basis, rows, models, n_rounds=2, is_last=False)
        levels = np.array([each.mean_y for each in rows])
        f = _at_rows(data, models)[0]
        if float(np.mean(np.abs(f - before))) < SAME * share * max(float(f.std()), 1e-3):
            break
    return basis, models, rows


def _at(models, start, values):
    """f and its variance at rows given by the values of their functions."""
    means, variances = [], []
    for k, model in enumerate(models):
        means.append(start[:, k] if model is None else model.at(values))
        variances.append(np.zeros(len(start)) if model is None else model.variance_at(values))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def _at_rows(data: _Data, models):
    parts = range(0, len(data.working.start), CHUNK)
    start = data.working.start
    each = [_at(models, start[i : i + CHUNK], [v[i : i + CHUNK] for v in data.values]) for i in parts]
    means, variances = zip(*each, strict=True)
    return np.concatenate(means), np.concatenate(variances)


def _posterior(basis: Basis, model: Model | None, rows: Rows, rng):
    """Mean and root of (c, v), averaged over hyper-parameters where that is affordable, and the noise variance."""
    if model is None:
        return _constant(basis, rows)
    posterior = model.posterior
    if basis.n_columns <= MAX_EXACT:
        posterior = averaged(model.evidence, posterior, rng=rng)
    mean, root = with_constant(posterior, model.evidence.products, model.rows.total)
    return mean, triangular(root), posterior.noise_variance


def _constant(basis: Basis, rows: Rows):
    """A target that does not vary, or nothing to explain it by."""
    mean = np.append(rows.mean_y, np.zeros(basis.n_columns))
    noise = rows.noise_variance or rows.square / max(rows.total - 1.0, 1.0)
    noise = max(noise, 1e-12 * max(rows.mean_y**2, 1e-12))
    root = np.zeros((basis.n_columns + 1, 1))
    root[0] = np.sqrt(noise / rows.total)
    return mean, root, noise
