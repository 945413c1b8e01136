"""The additive fit: terms, sought and fitted in closed form; then a scheme's network, or a remainder, where wanted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from vertebra.effects.decomposition import N_DRAWS
from vertebra.effects.posterior import NetworkPosterior, Remainder, TermsPosterior
from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import Classes, Counts, HeavyTails, Plain, UnevenNoise, Working
from vertebra.machine.control import Control
from vertebra.machine.threads import cores
from vertebra.models.calibration import noise
from vertebra.models.conclusion import Outcome, conclude
from vertebra.models.diagnostics import check_memory, concurvity, copy_words, is_noisier, marked_gaps
from vertebra.models.evaluation import cross_fitted, losses, losses_of_logits
from vertebra.models.model import Found, Model, position_in
from vertebra.models.networks import SCHEMES, Shape, ensemble_of, network_words, train
from vertebra.models.reading import Encoded, Read, Targets, encoded, read_classes, read_numbers
from vertebra.models.remainder import blend, is_something_left
from vertebra.models.rows import Rows, marginal_rows
from vertebra.models.scores import Method
from vertebra.models.settings import LIKELIHOODS, Settings
from vertebra.networks import schemes
from vertebra.networks.skeleton import additive, chain
from vertebra.tables.encoding import MOST_LEVELS, encode
from vertebra.tables.passes import MOST_SEARCHED, N_FUNCTIONS
from vertebra.tables.profile import copies_of
from vertebra.terms.additive import Additive, Mains, fit_additive
from vertebra.terms.group_lasso import clusters_of, group_lasso_path
from vertebra.terms.model import MOST_OF_ALL
from vertebra.terms.sums import Everything, HeldTable
from vertebra.terms.term import Term

# A loss this many times that of a linear model, on rows left out, is worth another fit: where the truth is linear, most
# fits should not take twice the time. experiments/separable.py was run with this value, and with no other.
BEHIND = 1.02
# Rows with a gap, without one, and in all, from which on noise is compared.
FEWEST_GAPS, ROWS_FOR_NOISE = 20, 200
# Fits of fewer rows have matrices so small that threads of LAPACK's own cost more than they bring.
ROWS_FOR_THREADS = 3000
# What users write of an input that f rises or falls with.
SIGNS: dict[str | int, int] = {"+": 1, "-": -1, 1: 1, -1: -1}
WORKING: dict[str, Callable[..., Working]] = {
    "gaussian": Plain,
    "heteroscedastic": UnevenNoise,
    "student_t": HeavyTails,
    "poisson": Counts,
}


class Noise(NamedTuple):
    """What is fitted of the noise: as Gaussian rows, as a likelihood for networks, and words about the choice."""

    working: Working
    likelihood: Likelihood
    notes: list[str]


class Searched(NamedTuple):
    """The rows that are searched: all, or of very many a sample; `everything` is then all of them."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    rows: Rows
    n_levels: Sequence[int]
    everything: Everything | None

    @property
    def weight(self) -> Float[np.ndarray, " n"]:
        return self.rows.weight


def fit_numbers(settings: Settings, X: Any, y: Any, sample_weight: Any) -> Model:
    """A sum of terms for a target of numbers."""
    read = read_numbers(settings, X, y, sample_weight)
    seen = np.log1p if settings.likelihood == "poisson" else lambda z: z
    return _Additive(settings, read, Targets(read.z, read.rows.weight, seen)).fit()


def fit_classes(settings: Settings, X: Any, y: Any, sample_weight: Any) -> Model:
    """A sum of terms for the logits of classes."""
    read = read_classes(settings, X, y, sample_weight)
    return _Additive(settings, read, Targets.of_classes(read)).fit()


class _Additive:
    """One fit, from rows to what is concluded of them; each step takes what the one before it made."""

    def __init__(self, settings: Settings, read: Read, targets: Targets):
        self.settings, self.read, self.targets = settings, read, targets
        self.seed, self.n_classes = settings.seed, read.target.n_classes
        self.shapes = shapes_given(settings, read)
        self.given = settings.start if settings.clusters is None else clusters_given(settings.clusters, read.names)

    def fit(self) -> Model:
        read, rows = self.read, self.read.rows
        with self.settings.control() as control, threads(len(rows.y)):
            if read.stream is not None:
                read.stream.training.report = control.report
            within = self._sets(control)
            coded = encoded(read, self.targets, self.seed, most_levels=MOST_LEVELS, fill=False)
            searched = self._searched(coded)
            found, linear, noise = self._terms(searched, within, control)
            outcome = self._outcome(found, coded, searched, linear, noise)
            if self.settings.scheme != "auto" and found.clusters:
                outcome = self._with_network(outcome, found, noise.likelihood, control)
            elif self.settings.clusters is None and self._may_remain and not control.enough():
                outcome = self._with_remainder(outcome, found, searched, control)
        warnings = self._warnings(outcome, found, control)
        return conclude(self.settings, read, outcome._replace(warnings=warnings, ended=control.ended))

    @property
    def _may_remain(self) -> bool:
        """Whether networks may add what terms leave out: they know of no shapes."""
        return self.settings.remainder and not self.shapes

    def _sets(self, control: Control) -> list[Term] | None:
        """The sets of inputs that the sub-networks of a group lasso read, over all targets, where one is asked for."""
        if self.settings.structure != "group_lasso" or self.given is not None:
            return None
        control.report("fitting a path of group-lasso penalties")
        x = encoded(self.read, self.targets, self.seed, most_levels=0, fill=True).x
        x, targets = _some(self.seed, x, self.targets.seen(self.targets.y))
        sets: list[Term] = []
        key = jr.key(self.seed)
        for k, target in enumerate(targets.T):
            path = group_lasso_path(x, target, key=jr.fold_in(key, k), n_subnetworks=self.settings.n_subnetworks)
            sets += clusters_of(path, x)
        return sets

    def _searched(self, coded: Encoded) -> Searched:
        x, y, rows, everything = coded.x, self.targets.y, self.read.rows, self.read.stream
        if everything is None and len(x) > MOST_SEARCHED:
            everything = HeldTable(x, y, rows.weight)
            x, y, *parts = _some(self.seed, x, y, *rows)
            rows = Rows(*parts)
        check_memory(8.0 * (2.0 * x.size * N_FUNCTIONS + 6.0 * MOST_OF_ALL**2), "This fit")
        return Searched(x, y, rows, coded.n_levels, everything)

    def _terms(
        self, searched: Searched, within: list[Term] | None, control: Control
    ) -> tuple[Additive, Float[np.ndarray, "n k"], Noise]:
        """The terms found, what linear models say of the same rows left out, and the noise."""
        x, y, rows, n_levels, everything = searched
        noise = self._noise(searched)

        def terms_of(mains: Mains) -> Additive:
            return fit_additive(
                x,
                noise.working,
                rows.weight,
                n_levels=n_levels,
                rng=np.random.default_rng(self.seed),
                report=control.report,
                clusters=self.given,
                within=within,
                mains=mains,
                enough=control.enough,
                everything=everything,
                shapes=self.shapes,
            )

        found = terms_of(Mains.FOUND)
        linear = cross_fitted(*rows, self.read.n_levels, classes=self.n_classes, seed=self.seed)
        if self.given is None and within is None and len(x) >= 2 * x.shape[1] and not control.enough():
            limit = BEHIND * self._linear_losses(linear, y, rows)
            found = self._not_behind(limit, found, terms_of, searched, control)
        return found, linear, noise

    def _noise(self, searched: Searched) -> Noise:
        y, weight = searched.y, searched.weight
        if n_classes := self.n_classes:
            working = Classes(y[:, 0].astype(int), n_classes, weight)
            return Noise(working, Bernoulli() if n_classes == 2 else Categorical(n_classes), [])
        likelihood, notes = self.settings.likelihood, []
        if likelihood == "auto":
            noisier = self._noisier_at_gaps(searched)
            likelihood = "heteroscedastic" if noisier else "gaussian"
            notes = [
                f"rows without {name} are noisier than the rest: noise that depends on the inputs was fitted; "
                '`likelihood="gaussian"` does without.'
                for name in noisier[:1]
            ]
        return Noise(WORKING[likelihood](y, weight), LIKELIHOODS[likelihood](), notes)

    def _noisier_at_gaps(self, searched: Searched) -> list[str]:
        """Inputs whose gaps change the noise, by a fit of main effects: where what is missing acts, it is noise there.

        Taken for even noise, it would be explained by terms that are not.
        """
        x, y, rows, n_levels, _ = searched
        gaps = np.isnan(rows.matrix)
        there = [i for i, n in enumerate(gaps.sum(axis=0)) if FEWEST_GAPS <= n <= len(gaps) - FEWEST_GAPS]
        if not there or len(gaps) < ROWS_FOR_NOISE:
            return []
        settings: Any = dict(n_levels=n_levels, rng=np.random.default_rng(self.seed))
        mains = [(i,) for i in range(x.shape[1])]
        first = fit_additive(x, Plain(y, rows.weight), rows.weight, clusters=mains, **settings)
        away = Predictive(first.likelihood, *first.left_out).away(y)
        return [self.read.names[i] for i in there if is_noisier(away, gaps[:, i])]

    def _not_behind(
        self,
        limit: Float[np.ndarray, " k"],
        found: Additive,
        terms_of: Callable[[Mains], Additive],
        searched: Searched,
        control: Control,
    ) -> Additive:
        """The terms found, or lines or curves of all inputs where losses are beyond a limit and theirs are less.

        So few rows may show nothing but lines; or terms were missed that lines stand for.
        """
        for mains in (Mains.LINES, Mains.ALL):
            if np.all(_losses(found, searched) <= limit):
                break
            control.report(f"a linear model does better: trying {mains.value} of all inputs")
            other = terms_of(mains)
            found = other if self._is_better(other, found, limit, searched) else found
        return found

    def _is_better(self, one: Additive, other: Additive, limit: Float[np.ndarray, " k"], searched: Searched) -> bool:
        """Whether one model predicts rows left out better than another, by its density too, which outliers decide less.

        No target may fall behind a linear model for the sake of another.
        """
        after, before = _losses(one, searched), _losses(other, searched)
        varies = limit > 1e-12
        if not varies.any() or np.any((after > np.maximum(before, limit))[varies]):
            return False
        is_nearer = bool(np.mean(after[varies] / before[varies]) < 1.0)
        if self.n_classes:
            return is_nearer
        new, old = (
            float(searched.weight @ _left_out(each).log_prob(searched.y)[:, varies].sum(axis=1))
            for each in (one, other)
        )
        return is_nearer and new > old

    def _linear_losses(self, linear, y, rows: Rows) -> Float[np.ndarray, " k"]:
        if self.n_classes:
            return losses_of_logits(linear, y, rows.weight)
        return rows.weight @ ((rows.y - linear) / self.read.target.scale) ** 2 / rows.weight.sum()

    def _outcome(
        self, found: Additive, coded: Encoded, searched: Searched, linear: Float[np.ndarray, "n k"], noise: Noise
    ) -> Outcome:
        """The terms as they are."""
        notes = ["fitted in closed form: nothing was trained by steps of a gradient.", *noise.notes]
        if (everything := searched.everything) is not None:
            n, n_all = len(searched.x), everything.n_rows
            notes.append(f"terms were sought in {n:,} of the rows, and fitted to all {n_all:,}.")
        if self.shapes:
            rising = ", ".join(
                f"{'rises' if s > 0 else 'falls'} with {self.read.names[i]}" for i, s in self.shapes.items()
            )
            notes.append(f"as asked, f {rising}; draws of it are the nearest functions that do.")
        if not found.clusters:
            notes.append("no input was found to act: predictions are the mean.")
        return Outcome(
            posterior=TermsPosterior(found.terms, self.seed),
            likelihood=found.likelihood,
            encoding=coded.encoding,
            rows=searched.rows,
            notes=notes,
            warnings=[],
            left_out=_left_out(found),
            linear=linear,
            found=Found(found.clusters, found.structures),
        )

    def _with_network(self, outcome: Outcome, found: Additive, likelihood: Likelihood, control: Control) -> Outcome:
        """The scheme's network on the clusters found."""
        name, read, y = self.settings.scheme, self.read, self.targets.y
        control.report(f"fitting {name} on {len(found.clusters)} clusters")
        coded = encoded(read, self.targets, self.seed, most_levels=0, fill=True)
        widths = (*SCHEMES[name]["widths"], likelihood.n_latent(y.shape[1]))
        depth = len(getattr(schemes, name)(widths, **SCHEMES[name]["options"]))
        shape = Shape(name, additive(coded.x.shape[1], clusters=found.clusters, depth=depth), widths)
        given: Any = likelihood, coded.x, y, read.rows.weight, control
        fitted = train(self.settings, shape, *given, n_steps=self.settings.n_steps, stream=read.stream)
        rows = marginal_rows(coded.x, read.rows.weight)
        notes, warnings = network_words(fitted)
        return outcome._replace(
            posterior=NetworkPosterior(fitted.network, rows, self.seed, name, widths, SCHEMES[name]["options"]),
            likelihood=fitted.likelihood,
            encoding=coded.encoding,
            notes=notes,
            warnings=warnings,
            left_out=None,
        )

    def _with_remainder(self, outcome: Outcome, found: Additive, searched: Searched, control: Control) -> Outcome:
        """What the terms leave out besides, if there is anything that networks can learn."""
        if self.n_classes or type(outcome.likelihood) is not Gaussian:
            return outcome
        control.report("looking at what the terms leave")
        x, y, rows, n_levels, _ = searched
        direction = Targets(y, rows.weight).direction(y)
        settings: Any = dict(most_levels=0, fill=True, rng=np.random.default_rng(self.seed))
        encoding, inputs, _ = encode(x, direction, rows.weight, n_levels, [False] * len(n_levels), **settings)
        if not is_something_left(inputs, y - found.left_out[0], rows.weight):
            return outcome
        usual = SCHEMES["deep_ensemble"]
        widths = (*usual["widths"], y.shape[1])
        skeleton = chain(inputs.shape[1], len(widths), activation=usual["activation"])
        shape = Shape("deep_ensemble", skeleton, widths)
        given: Any = Gaussian(), inputs, y, rows.weight, control
        fitted = train(self.settings, shape, *given, n_steps=None)
        networks, said = ensemble_of(fitted, shape, self.seed, inputs, y, rows.weight)
        both = blend(found.left_out, said, y, rows.weight, n_draws=N_DRAWS)
        if both is None:
            return outcome
        new: Any = noise(both.said, y, rows.weight, kinds=("gaussian",))
        # targets without a remainder keep what they had
        likelihood = Gaussian(np.where(both.share > 0.0, new.scale, np.sqrt(found.noise)))
        about = both.share, both.sizes, both.probability, np.any(np.isnan(x), axis=0)
        return outcome._replace(
            posterior=TermsPosterior(found.terms, self.seed, Remainder(networks, encoding, *about)),
            likelihood=likelihood,
            left_out=Predictive(likelihood, both.said.mean, both.said.variance + both.said.fewer),
            method=Method.BOTH_LEFT_OUT,
            notes=[
                "the terms are fitted in closed form. They leave something out that networks over all inputs add, as "
                "one more term; `remainder=False` does without."
            ],
            warnings=network_words(fitted)[1],
        )

    def _warnings(self, outcome: Outcome, found: Additive, control: Control) -> list[str]:
        names, matrix = self.read.names, outcome.rows.matrix
        acting = sorted({i for cluster in found.clusters for i in cluster})
        warnings = outcome.warnings + concurvity(matrix, names, acting)
        columns = self.read.schema.columns
        for i in acting:
            if columns[i].kind == "number":
                warnings += marked_gaps(columns[i].original(matrix[:, i]), names[i])
        if self.given is None:
            warnings += copy_words({i: first for i, first in copies_of(matrix).items() if first in acting}, names)
        if control.ended:
            warnings.append(f"{control.why}: some terms, or a remainder, may not have been looked for.")
        return warnings


def clusters_given(clusters: Sequence[Any], names: list[str]) -> list[Term]:
    """Groups of inputs, by name or by place, as places."""
    found = []
    for cluster in clusters:
        if isinstance(cluster, str) or not len(tuple(cluster)):
            raise ValueError(f"`clusters` must hold groups of inputs, got {cluster!r}.")
        found.append(tuple(sorted({position_in(names, name) for name in cluster})))
    return found


def shapes_given(settings: Settings, read: Read) -> dict[int, int]:
    """Inputs that f rises (1) or falls (−1) with, by their places."""
    if not settings.monotone:
        return {}
    if settings.scheme != "auto":
        raise ValueError(f'`monotone` needs scheme="auto", got {settings.scheme!r}.')
    if read.target.n_classes > 2:
        raise ValueError(f"`monotone` is for numbers, counts and two classes, got {read.target.n_classes} classes.")
    shapes = {}
    for name, sign in settings.monotone.items():
        i = position_in(read.names, name)
        if (column := read.schema.columns[i]).kind not in ("number", "ordered"):
            raise ValueError(f"`monotone` is for numbers and ordered levels: {column.name} is a {column.kind}.")
        if sign not in SIGNS:
            raise ValueError(f'`monotone` must say "+" or "-" of {column.name}, got {sign!r}.')
        shapes[i] = SIGNS[sign]
    return shapes


def threads(n_rows: int) -> threadpool_limits:
    """Half the cores for LAPACK: its threads wait by spinning, and where others work beside them they thrash.

    Of the cores that the process may use: one that is held to a core of sixteen must not start eight threads on it.
    """
    n_threads = max(cores() // 2, 1) if n_rows >= ROWS_FOR_THREADS else 1
    return threadpool_limits(n_threads, user_api="blas")


def _left_out(found: Additive) -> Predictive:
    return Predictive(found.likelihood, *found.left_out)


def _losses(found: Additive, searched: Searched) -> Float[np.ndarray, " k"]:
    return losses(_left_out(found), searched.y, searched.weight)


def _some(seed: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """The same rows of all arrays, no more than are searched."""
    n = len(arrays[0])
    if n <= MOST_SEARCHED:
        return list(arrays)
    chosen = np.sort(np.random.default_rng(seed).choice(n, MOST_SEARCHED, replace=False))
    return [each[chosen] for each in arrays]
