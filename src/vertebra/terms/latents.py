"""The latent functions of a fit, which share one basis: searched, fitted and reweighted together."""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.likelihoods.gaussian_rows import Response, between
from vertebra.likelihoods.working_responses import Classes, Plain, Working
from vertebra.machine.threads import CHUNK
from vertebra.terms.dependence import Mixing, Together
from vertebra.terms.evidence import Basis, Block, averaged, basis_of, with_constant
from vertebra.terms.families import DEGREE
from vertebra.terms.functions import At, Families, System, Values, system_of
from vertebra.terms.model import AT_THE_END, MOST_OF_ALL, Model, fit_basis, grown, most_columns
from vertebra.terms.sandwich import doubt_of_groups
from vertebra.terms.search import Asked, search
from vertebra.terms.structure import Structure
from vertebra.terms.sum_of_terms import triangular
from vertebra.terms.sums import Held, RowSums
from vertebra.terms.term import Term, subsets

# Models of more columns are fitted by so many rounds of MacKay's updates, and not averaged over hyper-parameters, which
# takes 24 factors of a matrix that large; rough ones, and those on the way, from a third of it on. Round numbers.
MAX_EXACT, N_ROUNDS = 900, 12
# The gain in log evidence, relative to its size, at which the fits between two working responses end.
BETWEEN_RESPONSES = 1e-5
# Reweighting ends where a round moves f by less than this share of its spread, or of this where f hardly varies; the
# least share of the way that a round goes. Round numbers.
SAME, LEAST_SPREAD, LEAST_STEP = 2e-3, 1e-3, 0.1

# Logits of so many classes are sought and fitted together (`together`). A round number.
MANY_LATENTS = 6
# Rows of less weight in a logit, where 1/4 is the most, are thinned: what is left of them adds this share to the
# variance of a score.
THIN = 0.02
# Variances of many latent functions at the rows, and between two responses those of many columns, are of so many random
# combinations of a root's columns: 20 % off at a row, and right in the mean.
N_SKETCHED, MANY_COLUMNS = 48, 200

# Scores of a class of fewer rows are too far from Gaussian for p(1 − p) to say how large they may be: 6 of 40 tables of
# 300 rows with a rare class had a false interaction. With 100 rows it is as seldom as with the variance of the rows.
FEWEST_OF_CLASS = 100

# The most values of functions at rows that are kept: a quarter of a GiB. Of more, those asked for are worked out.
MOST_KEPT = 2**25

# Levels of no category.
NO_LEVELS: Mapping[int, Int[np.ndarray, " n"]] = MappingProxyType({})
# Systems and values of rows by what these are, for other fits of the same rows.
Known = dict[tuple, tuple[tuple[System, ...], list[At]]]
Moments = tuple[Float[np.ndarray, "n latent"], Float[np.ndarray, "n latent"]]


class Data(NamedTuple):
    """The rows of a fit in memory: the functions of every input there, and the likelihood as Gaussian rows."""

    systems: tuple[System, ...]
    values: list[At]
    working: Working
    chosen: dict[Term, Families]  # what functions terms are made of, as far as that was decided
    tested: dict[tuple[Term, Families], Block]  # what tests of terms look at, in these systems
    groups: Int[np.ndarray, " n"] | None = None  # of rows that may depend on each other, numbered from 0
    mixing: Mixing | None = None  # how they do, as far as it is known

    @property
    def is_gaussian(self) -> bool:
        """Whether the response is y itself, once and for all: nothing is to be reweighted."""
        return isinstance(self.working, Plain)

    @property
    def mains(self) -> list[Term]:
        """The main effects of all inputs that vary."""
        return [(i,) for i, system in enumerate(self.systems) if system.is_alive]

    def rows(self, f: Float[np.ndarray, "n latent"], variance: Float[np.ndarray, "n latent"]) -> list[RowSums]:
        """The rows of every latent function, near f."""
        return self.rows_of(self.working.responses(f, variance))

    def rows_of(self, responses: list[Response]) -> list[RowSums]:
        counts = self.working.weight
        together = Together(counts, self.groups, self.mixing, self._vary_as_said)
        if not self.are_many:
            about = self.chosen, together, self.tested
            return [RowSums.held(self.systems, self.values, *each, *about) for each in responses]
        result = []
        for response in responses:
            kept, weight = thinned(response.w, THIN * counts)
            values = [each.rows(kept) for each in self.values]
            some = together.of(kept, counts[kept] * weight / response.w[kept])
            known = response.noise_variance
            result.append(
                RowSums.held(self.systems, values, response.z[kept], weight, known, self.chosen, some, self.tested)
            )
        return result

    @property
    def _vary_as_said(self) -> bool:
        """Whether rows are of classes, none of them rare, and their weights are counts, which others need not be."""
        if not isinstance(self.working, Classes) or self.groups is not None:
            return False
        weight = self.working.weight
        hits = weight @ self.working.hits
        are_counts = np.all(weight == np.rint(weight))
        return bool(are_counts and min(hits.min(), weight.sum() - hits.max()) >= FEWEST_OF_CLASS)

    def having(self, systems: Mapping[int, System]) -> "Data":
        """The same with other functions of some inputs, those of numbers between their knots."""
        new, values = list(self.systems), list(self.values)
        for i, system in systems.items():
            new[i], values[i] = system, self.values[i]._replace(system=system, held=None, kept_at=None)
        if _are_few(new, len(self.working.start)):
            values = [each if each.held is not None else each.kept() for each in values]
        return self._replace(systems=tuple(new), values=values, tested={})

    @property
    def are_many(self) -> bool:
        """Whether there are so many latent functions, of classes, that they are sought and fitted together."""
        return isinstance(self.working, Classes) and self.working.hits.shape[1] >= MANY_LATENTS


def data_of(
    x: Float[np.ndarray, "n p"],
    weight: Float[np.ndarray, " n"],
    n_levels: Sequence[int],
    working: Working,
    *,
    degree: int = DEGREE,
    idle: Collection[int] = (),
    are_tabulated: bool = False,
    groups: Int[np.ndarray, " n"] | None = None,
    levels: Mapping[int, Int[np.ndarray, " n"]] = NO_LEVELS,
    known: Known | None = None,
) -> Data:
    """Rows with the functions of every input; one that is `idle` has none, as if it did not vary.

    `levels` are those of categories that are read as numbers. What is `known` of these rows is not worked out again.
    """
    known = {} if known is None else known
    rows = hashlib.blake2b(np.ascontiguousarray(x).tobytes() + weight.tobytes()).digest()
    name = rows, tuple(n_levels), degree, frozenset(idle), are_tabulated
    if name not in known:
        systems = tuple(
            system_of(np.zeros(len(x)) if i in idle else column, weight, n, degree=degree, is_tabulated=are_tabulated)
            for i, (column, n) in enumerate(zip(x.T, n_levels, strict=True))
        )
        values = [system.at(column) for system, column in zip(systems, x.T, strict=True)]
        known[name] = systems, [each.kept() for each in values] if _are_few(systems, len(x)) else values
    systems, values = known[name]
    values = [each._replace(level=levels.get(i)) for i, each in enumerate(values)]
    return Data(systems, values, working, {}, {}, groups)


def _are_few(systems: Sequence[System], n_rows: int) -> bool:
    """Whether the values of all functions at the rows can be kept."""
    return sum(len(system.kind) for system in systems) * n_rows <= MOST_KEPT


def thinned(
    weight: Float[np.ndarray, " n"], least: Float[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Rows, and their weights: of those that weigh less than `least` a share, with as much weight in the mean."""
    share = np.minimum(weight / np.maximum(least, 1e-300), 1.0)
    # multiples of the golden ratio lie evenly, in any part of the rows
    kept = np.flatnonzero(np.arange(len(weight)) * (0.5 * (math.sqrt(5.0) - 1.0)) % 1.0 < share)
    return kept, weight[kept] / share[kept]


class Fit(NamedTuple):
    """A model of every latent function on one basis (None: a constant), f and its variance at the rows."""

    basis: Basis
    f: Float[np.ndarray, "n latent"]
    variance: Float[np.ndarray, "n latent"]
    models: list[Model | None]

    def energies(self) -> dict[Term, float]:
        """The sum of the squared coefficients of each term, over all latent functions."""
        means = [model.posterior.mean for model in self.models if model is not None]
        places = zip(self.basis.terms, self.basis.slices, strict=True)
        return {term: float(sum(np.sum(mean[place] ** 2) for mean in means)) for term, place in places}

    def elbo(self, data: Data) -> float:
        """The ELBO at the rows, with the hyper-prior of the terms' sizes."""
        models = [model for model in self.models if model is not None]
        fit_of = data.working.expected_log_prob(self.f, self.variance)  # type: ignore[attr-defined]
        away = [model.evidence.distance(model.posterior.theta) for model in models]
        return fit_of - sum(model.posterior.kl for model in models) - 0.5 * sum(away)


def searched(rows: list[RowSums], asked: Asked) -> tuple[tuple[Structure, ...], Basis, list[Model | None]]:
    """What was found for every latent, the basis of all their terms with all subsets, and the models found with."""
    found = [search(each, asked._replace(n_families=len(rows))) for each in rows]
    structures, models = tuple(each for each, _ in found), [model for _, model in found]
    systems = rows[0].systems
    terms = asked.terms if asked.terms is not None else subsets(t for s in structures for t in s.terms)
    sizes: dict[Term, int] = {}
    for model in models:
        own = {} if model is None else model.basis.sizes
        sizes.update({t: max(n, sizes.get(t, 0)) for t, n in own.items()})
    alive = [t for t in terms if all(systems[i].is_alive for i in t)]
    return (
        structures,
        basis_of(systems, alive, rows[0].chosen, sizes=sizes, max_columns=most_columns(rows[0].n)),
        models,
    )


def models_of(
    basis: Basis, rows: list[RowSums], before: Sequence[Model | None], *, n_rounds: int, is_last: bool = True
) -> list[Model | None]:
    """A model of every latent function on one basis, begun where others ended."""
    is_rough = any(basis.is_local(block) for block in basis.blocks)
    # smooth functions from the start: where evidence has two maxima, the search must not choose
    goes_on = is_rough or not is_last or basis.n_columns > MAX_EXACT
    many = MAX_EXACT // 3 if is_rough or not is_last else MAX_EXACT
    tolerance = AT_THE_END if is_last else BETWEEN_RESPONSES
    return [
        None
        if each.is_constant or not basis.blocks
        else fit_basis(each, basis, before=old if goes_on else None, many=many, n_rounds=n_rounds, tolerance=tolerance)
        for each, old in zip(rows, before, strict=True)
    ]


def settled(
    basis: Basis, rows: list[RowSums], before: Sequence[Model | None], *, n_grown: int = 1
) -> tuple[Basis, list[Model | None]]:
    """The models on a basis whose rough terms have grown to what they need, so many times at most."""
    models = models_of(basis, rows, before, n_rounds=N_ROUNDS)
    for _ in range(n_grown):
        sizes, n_columns = grown(models, is_last=True), basis.n_columns
        if not sizes or sizes == basis.sizes:
            break
        basis = basis_of(basis.systems, basis.terms, rows[0].chosen, sizes=sizes, max_columns=most_columns(rows[0].n))
        models = models_of(basis, rows, models, n_rounds=N_ROUNDS // 2)
        if basis.n_columns == n_columns:  # there are no more functions
            break
    return basis, models


def reweighted(data: Data, fit: Fit, n_rounds: int) -> Fit:
    """The fit at the mode, by rounds of a working response and a fit of it, from where another fit is.

    A round goes a share of the way from the last responses to the new ones, in w and wz, which are natural parameters:
    where it comes to rest does not depend on the share. It is halved where a round moves f by more than the one before.
    """
    basis, f, variance, models = fit
    share, last, old = data.working.step, math.inf, None
    is_sketched = data.are_many or basis.n_columns > MANY_COLUMNS
    for _ in range(math.ceil(n_rounds / share**2)):
        new = data.working.responses(f, variance)
        old = new if old is None else [between(one, other, share) for one, other in zip(old, new, strict=True)]
        models = models_of(basis, data.rows_of(old), models, n_rounds=2, is_last=False)
        before = f
        f, variance = at_rows(data, models, is_sketched=is_sketched)
        moved = float(np.mean(np.abs(f - before)))
        if is_at_rest(moved, f, share):
            break
        share = share if moved < last else max(0.5 * share, LEAST_STEP)
        last = moved
    if is_sketched and not data.are_many:
        f, variance = at_rows(data, models)
    return Fit(basis, f, variance, models)


def is_at_rest(moved: float, f: Float[np.ndarray, "n latent"], share: float) -> bool:
    """Whether a round that went a share of the way has moved f by so little that no other is needed."""
    return moved < SAME * share * max(float(f.std()), LEAST_SPREAD)


def moments_at(models: Sequence[Model | None], constants: Float[np.ndarray, "n latent"], values: Values) -> Moments:
    """f and its variance at rows given by the values of their functions; a latent without terms is a constant."""
    means, variances = [], []
    for k, model in enumerate(models):
        means.append(constants[:, k] if model is None else model.at(values))
        variances.append(np.zeros(len(constants)) if model is None else model.variance_at(values))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def means_at_rows(data: Data, models: Sequence[Model | None]) -> Float[np.ndarray, "n latent"]:
    """f at the rows of a fit, without its variance."""
    f = data.working.start.copy()
    for i in range(0, len(f), CHUNK):
        part = slice(i, i + CHUNK)
        values = [v.rows(part) for v in data.values]
        for k, model in enumerate(models):
            if model is not None:
                f[part, k] = model.at(values)
    return f


def at_rows(data: Data, models: Sequence[Model | None], *, is_sketched: bool = False) -> Moments:
    """f and its variance at the rows of a fit; of many latent functions, and where that will do, a sketch of it."""
    start = data.working.start
    here = _sketched_moments(models) if data.are_many or is_sketched else partial(moments_at, models)
    parts = [slice(i, i + CHUNK) for i in range(0, len(start), CHUNK)]
    each = [here(start[part], [v.rows(part) for v in data.values]) for part in parts]
    means, variances = zip(*each, strict=True)
    return np.concatenate(means), np.concatenate(variances)


def _sketched_moments(
    models: Sequence[Model | None],
) -> Callable[[Float[np.ndarray, "n latent"], Values], Moments]:
    """`moments_at` of latent functions on one basis: its columns once for all, variances by a sketch of roots."""
    fitted = [(k, model) for k, model in enumerate(models) if model is not None]
    if not fitted:
        return lambda constants, _: (constants, np.zeros_like(constants))
    basis = fitted[0][1].basis
    noise = np.random.default_rng(0).standard_normal((basis.n_columns, N_SKETCHED)) / math.sqrt(N_SKETCHED)
    places = np.array([k for k, _ in fitted])
    means = np.stack([model.posterior.mean for _, model in fitted], axis=1)
    centres = np.stack([model.evidence.products.mean_phi for _, model in fitted], axis=1)
    roots = [model.posterior.root @ noise for _, model in fitted]
    offsets = np.array([model.rows.mean_y for _, model in fitted]) - np.sum(centres * means, axis=0)
    shifts = np.concatenate([centres[:, k] @ root for k, root in enumerate(roots)]).astype(np.float32)
    own = np.array([model.posterior.noise_variance / model.rows.total for _, model in fitted])
    joined = np.concatenate(roots, axis=1).astype(np.float32)

    def moments(constants, values):
        phi, f, variance = basis(values), constants.copy(), np.zeros_like(constants)
        f[:, places] = phi @ means + offsets
        spread = phi.astype(np.float32) @ joined
        spread -= shifts
        spread = spread.reshape(len(phi), len(fitted), -1)
        variance[:, places] = np.einsum("nks,nks->nk", spread, spread) + own
        return f, variance

    return moments


def most_together(n_rows: int, n_latent: int) -> int:
    """How many columns each of many latent functions may have: all their roots take no more than one of the most."""
    return min(most_columns(n_rows), int(MOST_OF_ALL / math.sqrt(n_latent)))


def posterior_of(
    basis: Basis, model: Model | None, rows: RowSums, rng: np.random.Generator, most: int = MAX_EXACT
) -> tuple[Float[np.ndarray, " m1"], Float[np.ndarray, "m1 k"], float]:
    """Mean and root of (c, v), averaged over hyper-parameters with at most so many columns, and the noise."""
    if model is None:
        return _constant(basis, rows)
    posterior = model.posterior
    if basis.n_columns <= most:
        posterior = averaged(model.evidence, posterior, rng=rng)
    mean, root = with_constant(posterior, model.evidence.products, model.rows.total)
    if isinstance(rows.source, Held) and rows.source.groups is not None and rows.source.mixing is None:
        root = np.concatenate([root, doubt_of_groups(model)], axis=1)
    return mean, triangular(root), posterior.noise_variance


def _constant(basis: Basis, rows: RowSums):
    """The posterior of a target that does not vary, or with nothing to explain it by."""
    mean = np.append(rows.mean_y, np.zeros(basis.n_columns))
    noise = rows.noise_variance or rows.square / max(rows.count - 1.0, 1.0)
    # not 0: rounding in squares of the mean is as much
    noise = max(noise, 1e-12 * max(rows.mean_y**2, 1e-12))
    root = np.zeros((basis.n_columns + 1, 1))
    root[0] = np.sqrt(noise / rows.total)
    return mean, root, noise
