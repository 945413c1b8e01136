"""The additive network in closed form: structure found by tests, a basis of functions per term, the joint Gaussian
posterior of all coefficients, hyper-parameters by evidence and averaged over.

Where the noise is not Gaussian, the same on the working response of iterated reweighting, up to the best Gaussian q.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.evidence import TOTAL_DEGREE, Basis, averaged, basis_of, with_constant
from vertebra.likelihoods import Likelihood
from vertebra.polynomials import Term, maximal, subsets
from vertebra.structure import Model, Structure, fit_basis, grown, model_of, most_columns, search, strongest
from vertebra.sums import CHUNK, Everything, Rows, Streamed, centred_on
from vertebra.systems import DEGREE, System, system_of
from vertebra.terms import SumOfTerms, triangular
from vertebra.working import Classes, Plain, Response, Working, between, left_out

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
    enough: Callable[[], bool] = lambda: False,
    calibrate: bool = True,
    everything: Everything | None = None,
) -> Additive:
    """Finds the terms and fits them. Each latent function has its own tests, smoothness and noise; they share terms.

    `n_levels` says which inputs are categories. `clusters` are found unless given, `within` some sets of inputs where
    these are given; a constant target has none. Once `enough` says so, no more terms are sought. With `calibrate`, a
    fit with much freedom for its rows is widened by what it missed rows by that it had not seen. Where the rows are a
    sample, `everything` is all of them: terms are sought in the sample and fitted to all.
    """
    levels = [0] * x.shape[1] if n_levels is None else n_levels
    asked: dict[str, Any] = dict(clusters=clusters, within=within, enough=enough)
    more = 0 if everything is None else _more_degrees(everything.n_rows)
    data = _data(x, weight, levels, working, rough=False, degree=DEGREE + more)
    f = working.start
    variance, least, mains = np.zeros_like(f), -math.inf, ()
    if not isinstance(working, Plain):
        # Structure is sought where the weights are near the truth: at a first fit of main effects.
        report("fitting main effects")
        _, basis, models = _structure(data.rows(f, variance), max_order=1, **asked)
        first, mains = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS // 2), basis.terms
        if clusters is None and within is None and isinstance(working, Classes):
            first, asked["base"] = _all_mains_if_better(data, basis, first)
            least = _elbo(data, *first) - LEAST_GAIN
        f, variance, _ = first
    rows = data.rows(f, variance)
    if np.count_nonzero(weight) >= ROWS_FOR_ROUGH:
        report("comparing smooth and rough functions")
        rough = _data(x, weight, levels, working, rough=True)
        along_ranks = rough.rows(f, variance)
        if _is_rough(rows, along_ranks, clusters):
            data, rows = rough, along_ranks
    report("testing terms")
    structures, basis, models = _structure(rows, **asked)
    report(f"fitting {len(basis.terms)} terms")
    basis, models = _settle(basis, rows, models)
    if not isinstance(working, Plain):
        f, variance, models = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS // 2)
        if asked.get("base") == () and _elbo(data, f, variance, models) < least:
            # where classes can be told apart for certain, rows say little near the fit, and tests see nothing
            asked["base"] = mains
            structures, basis, models = _structure(rows, **asked)
            basis, models = _settle(basis, rows, models)
            f, variance, models = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS // 2)
        if clusters is None and basis.blocks:
            # Seen from a fit that lacks what they stood for, terms may have looked real that are not.
            rows = data.rows(f, variance)
            seen = {t for s in structures for t, test in s.tests.items() if test.p_value < SEEN_AGAIN}
            strong = tuple(t for t in basis.terms if len(t) == 1 or t in seen)
            structures, again, found = _structure(rows, start=strong, **asked)
            if set(again.terms) != set(basis.terms):
                basis, models = _settle(again, rows, found)
        f, variance, models = _reweight(data, basis, models, f, variance, N_REWEIGHTINGS)
        rows = data.rows(f, variance)
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
    without = left_out(mean, variance, conditional, working.responses(mean, variance), noise)
    is_checked = calibrate and clusters is None and _has_much_freedom(basis, variance, weight, variances)
    if is_checked and isinstance(working, Plain):
        report("checking intervals on rows left out")
        settings: dict[str, Any] = dict(n_levels=n_levels, within=within, enough=enough, calibrate=False)
        factors = _overconfidence(x, working.y, weight, rng, settings)
        terms = terms._replace(roots=tuple(f * root for f, root in zip(factors, roots, strict=True)))
        variances, without = factors**2 * variances, (without[0], factors**2 * without[1])
    likelihood, found = working.likelihood(list(variances)), maximal(basis.terms)
    return Additive(terms, likelihood, structures, found, tuple(float(v) for v in variances), without)


def _has_much_freedom(basis: Basis, variance, weight, noise) -> bool:
    """Whether the rows decide little more than a few times as many coefficients: their mean leverage, Var f w/σ²."""
    leverage = float(np.mean(weight[:, None] * variance / noise))
    return bool(basis.blocks) and len(variance) >= ROWS_TO_CHECK and leverage > MUCH_LEVERAGE


def _overconfidence(x, y, weight, rng, settings: dict[str, Any]) -> Float[np.ndarray, " k"]:
    """By what factor intervals were too narrow on rows that neither the search nor the fit had seen; at least 1.

    Evidence takes the terms as given, but they were chosen, among many, because they fit these rows.
    """
    folds = rng.permutation(np.arange(len(x)) % N_FOLDS)
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


def _data(x, weight, levels, working, *, rough: bool, degree: int = DEGREE) -> _Data:
    settings: dict[str, Any] = dict(rough=rough, degree=degree)
    systems = tuple(system_of(column, weight, n, **settings) for column, n in zip(x.T, levels, strict=True))
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
    """Of a fit to classes, with the hyper-prior of its sizes."""
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
