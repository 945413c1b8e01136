"""Networks over all inputs beside a sum of terms: whether there is anything for them, and what they add, or would add.

Whatever the likelihood: what is left is looked at in units of its own noise, and networks, in training, say what the
terms say: the mean of y, its log rate, or logits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.effects.effect import N_DRAWS
from vertebra.effects.ensemble import EnsemblePosterior, Remainder
from vertebra.effects.made_of import made_of
from vertebra.inference.outcome import Fitted
from vertebra.likelihoods import Gaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Control
from vertebra.models.calibration import LeftOut
from vertebra.models.evaluation import folds_for, losses
from vertebra.models.findings import Finding, Kind, Severity, notes
from vertebra.models.flexible import flexible
from vertebra.models.networks import SCHEMES, TRIED, Shape, ensemble_of, train, training
from vertebra.models.reading import Encoded, Targets
from vertebra.models.remainder import Bumps, is_better_with, is_something_left, may_be_looked_at
from vertebra.models.rows import Rows
from vertebra.models.searched import Searched
from vertebra.models.settings import Settings
from vertebra.models.shares import Shared, shared
from vertebra.models.target import Target
from vertebra.networks.embeddings import embedded
from vertebra.networks.skeleton import chain
from vertebra.terms.additive import Additive

# The networks that are added: what `Skeleton…` fits.
SCHEME = "tabular"
# Where noise is not normal, a row counts for no more than one so many sds away: a round number.
FARTHEST_AWAY = 5.0
# What is only to be said is tried with so many rows at most, for a few seconds' work.
MOST_TRIED = 3000
# Inputs that are named: as many as a line holds.
MOST_NAMED = 3
# Of more rows the choice of terms flatters little, and seeking them again takes long: each is left out with terms kept.
MOST_UNSEEN = 15_000
# From this share of the error on, what networks would add is to be looked at, and else good to know. A round number.
WORTH_A_WARNING = 0.05


class Unseen(NamedTuple):
    """What terms that were sought without some rows say of these."""

    places: Int[np.ndarray, " m"]
    f: Float[np.ndarray, "m latent"]


def unseen_by(
    refit: Callable[[Bool[np.ndarray, " n"]], Float[np.ndarray, "_ latent"]],
    rows: Rows,
    outs: Sequence[Bool[np.ndarray, " n"]],
    n_classes: int,
) -> Unseen | None:
    """By fits without some rows, `refit` with the others, as far as these have all classes."""
    found = [
        (np.flatnonzero(out), refit(~out))
        for out in outs
        if out.any() and (not n_classes or len(np.unique(rows.y[~out])) == n_classes)
    ]
    if not found:
        return None
    places, f = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(places)
    return Unseen(places[order], f[order])


class Terms(NamedTuple):
    """A fitted sum of terms, with the rows it was fitted to and what is needed to look at what it leaves."""

    found: Additive
    searched: Searched
    targets: Targets
    target: Target
    n_levels: Sequence[int]  # of the columns as they were read
    unseen: Unseen | None = None

    @property
    def left_out(self) -> Predictive:
        return Predictive(self.found.likelihood, *self.found.left_out)

    def coded(self, seed: int) -> Encoded:
        return self.searched.for_networks(self.targets, seed)

    def away(self) -> Float[np.ndarray, "n k"]:
        """How far rows are from what terms say of them without them, in sds; of classes ∂ log p/∂f."""
        y, said = self.searched.y, self.left_out
        if said.likelihood.normal_variance is not None:
            return y - said.f_mean
        if said.likelihood.has_classes:
            p = said.probabilities()
            first = 1 if p.shape[1] == 2 else 0
            # ∂ log p/∂f, which sure mistakes do not decide as they do where each is in its own sds
            return (y == np.arange(first, p.shape[1])) - p[:, first:]
        # at the likeliest f: where a log rate is hardly known, its exponential has no mean to speak of
        away = said._replace(f_variance=np.zeros_like(said.f_variance)).away(y)
        return np.clip(np.nan_to_num(away), -FARTHEST_AWAY, FARTHEST_AWAY)

    def is_something_left(self, seed: int, bumps: Bumps) -> bool:
        """Whether bumps over all inputs, or boosted trees, say of rows left out how far terms are off.

        That is nearest to what is looked for; but terms that were chosen by the rows seem to miss little.
        """
        rows, away = self.searched.rows, self.away()
        if is_something_left(bumps.x, away, rows.weight, bumps):
            return True
        folds = folds_for(rows, seed)
        trees = flexible(rows._replace(y=away), folds, self.n_levels, seed=seed)
        if trees is None:
            return False
        nothing, weight = np.zeros_like(trees.said), rows.weight[trees.rows]
        return is_better_with(nothing, trees.said, away[trees.rows], weight)

    def is_something_unseen(self, seed: int, bumps: Bumps) -> bool:
        """Whether quick models of y itself do better on rows that terms were sought without."""
        rows = self.searched.rows
        if self.unseen is None or not may_be_looked_at(bumps.x):
            return False
        folds = folds_for(rows, seed)
        places, ours = self.unseen.places, self._shown(self.unseen.f)
        y = self._responses()
        return any(
            is_better_with(ours[some], said, y[places[some]], rows.weight[places[some]])
            for some, said in self._others(places, bumps, y, folds, seed)
        )

    def _responses(self) -> Float[np.ndarray, "n k"]:
        """The targets, or of classes which row is of which: of two, the second."""
        y, likelihood = self.searched.y, self.found.likelihood
        if not likelihood.has_classes:
            return y
        n_classes = self.target.n_classes
        return (y == np.arange(n_classes == 2, n_classes)).astype(float)

    def _shown(self, f: Float[np.ndarray, "m latent"]) -> Float[np.ndarray, "m k"]:
        """Their means at f."""
        mean = Predictive(self.found.likelihood, f, np.zeros_like(f)).mean()
        return mean[:, 1:] if self.target.n_classes == 2 else mean

    def _others(self, places, bumps: Bumps, y, folds, seed) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """What quick models of y itself say of rows among `places` without them, and which of these it is."""
        rows = self.searched.rows
        where = np.full(len(y), -1)
        where[places] = np.arange(len(places))
        for seen, error in bumps.errors(y):
            own = where[seen] >= 0
            yield where[seen][own], (y[seen] - error)[own]
        trees = flexible(rows._replace(y=y), folds, self.n_levels, seed=seed)
        if trees is not None:
            own = where[trees.rows] >= 0
            yield where[trees.rows][own], trees.said[own]


class Added(NamedTuple):
    """What networks add to terms, or would add."""

    remainder: Remainder
    left_out: Predictive
    fitted: Fitted
    worth: str  # in words: what is taken from where to where
    gain: float  # as a share of the error


def added(
    settings: Settings, terms: Terms, control: Control, *, kinds: Sequence[str] = ("gaussian",), is_trial: bool = False
) -> Added | None:
    """Networks over all inputs, trained with rows left out, blended with the terms; none if these do as well alone."""
    searched, usual = terms.searched, TRIED if is_trial else SCHEMES[SCHEME]
    coded, likelihood = terms.coded(settings.seed), terms.found.likelihood
    some = _tried(terms, settings.seed) if is_trial else np.arange(len(searched.y))
    x, y, weight = coded.x[some], searched.y[some], searched.weight[some]
    # means are learned by their squared errors, whatever else is known of the noise
    learned = Gaussian() if likelihood.is_location else likelihood
    shape = shape_of(x.shape[1], learned.n_latent(y.shape[1]))
    given: Any = learned, x, y, weight, control
    fitted = train(settings, shape, *given, n_steps=None, usual=usual)
    if control.ended is not None:
        return None
    networks, said, _ = ensemble_of(fitted, shape, settings.seed, x, y, weight, usual=usual)
    mean, variance = (part[some] for part in terms.found.left_out)
    for judged, ours in _judged(terms, some):
        at = mean[judged] if ours is None else ours, variance[judged]
        theirs, targets, own = LeftOut(*(part[judged] for part in said)), y[judged], weight[judged]
        both = shared(at, theirs, likelihood, targets, own, n_draws=N_DRAWS, kinds=kinds)
        if both is not None:
            break
    else:
        return None
    worth, gain = _worth(Predictive(likelihood, *at), both.left_out, targets, own, terms.target)
    left_out = both.of((mean, variance), said)
    remainder = _remainder(networks, coded, both, terms, settings.seed)
    return Added(remainder, left_out, fitted, worth, gain)


def _judged(
    terms: Terms, some: Int[np.ndarray, " n"]
) -> Iterator[tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m latent"] | None]]:
    """Rows by which the networks are judged, places in `some`, and the f of terms there: as they are left out if None.

    First those that terms were sought without, who are no more sure of them than they are with terms kept. These may be
    too few; networks that are clearly better than terms which the rows themselves have chosen are so all the more.
    """
    if terms.unseen is not None:
        judged = np.flatnonzero(np.isin(some, terms.unseen.places))
        yield judged, terms.unseen.f[np.searchsorted(terms.unseen.places, some[judged])]
    yield np.arange(len(some)), None


def _tried(terms: Terms, seed: int) -> Int[np.ndarray, " m"]:
    """Some of the rows, in order; those that terms were sought without among them."""
    n, first = len(terms.searched.y), np.random.default_rng(seed)
    order = first.permutation(n)
    if terms.unseen is not None:
        order = order[np.argsort(~np.isin(order, terms.unseen.places), kind="stable")]
        # and as many others at least
        most = max(MOST_TRIED, 2 * len(terms.unseen.places))
        return np.sort(order[:most])
    return np.sort(order[:MOST_TRIED])


def _remainder(networks: EnsemblePosterior, coded: Encoded, both: Shared, terms: Terms, seed: int) -> Remainder:
    x, found = terms.searched.x, both.blend
    about = found.share, found.sizes, found.probability, np.asarray(np.isnan(x).any(axis=0))
    remainder = Remainder(networks, coded.encoding, *about)

    def added_to(rows: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "m latent"]:
        ours = terms.found.terms.mean(rows)
        return remainder.mean(rows, ours) - ours

    return remainder._replace(made_of=made_of(added_to, x, seed))


def shape_of(n_inputs: int, n_outputs: int) -> Shape:
    """Networks over embedded inputs, as `Skeleton…` builds them."""
    widths = (*SCHEMES[SCHEME]["widths"], n_outputs)
    skeleton = chain(n_inputs, len(widths) - 1, activation=SCHEMES[SCHEME]["activation"])
    return Shape(SCHEME, embedded(skeleton), widths)


def _worth(before: Predictive, after: Predictive, y, weight, target: Target) -> tuple[str, float]:
    """Of the target that gains most: the score of rows left out without networks and with them, and what they gain."""
    likelihood = before.likelihood
    if likelihood.is_discrete and not likelihood.has_classes:
        first, last = (np.average(each.log_prob(y), axis=0, weights=weight) for each in (before, after))
        k = int(np.argmax(last - first))
        return f"the log density of a row from {first[k]:.3f} to {last[k]:.3f}", float(last[k] - first[k])
    first, last = (losses(each, y, weight) for each in (before, after))
    k = int(np.argmin(last / np.maximum(first, 1e-300)))
    if likelihood.has_classes:
        return f"the log loss from {first[k]:.3f} to {last[k]:.3f}", 1.0 - float(last[k] / max(first[k], 1e-300))
    first, last = (float(np.sqrt(each[k]) * target.scale[k]) for each in (first, last))
    whose = f" of {target.names[k]}" if len(target.names) > 1 else ""
    scale = "" if target.transform is None else " on the scale of the fit"
    return f"the RMSE{whose}{scale} from {first:.4g} to {last:.4g}", 1.0 - last / max(first, 1e-300)


def said_of(found: Added, names: Sequence[str]) -> list[Finding]:
    """What there is to say of a remainder that was added."""
    words = (
        f"the terms leave something out: networks over all inputs take {found.worth} on rows left out, and are added "
        "as one more term; `remainder=False` does without."
    )
    words += _made_of_words(found.remainder, names)
    return [*notes(Kind.FITTING, [words]), *(e for e in training(found.fitted) if e.severity is not Severity.NOTE)]


def would_add(found: Added, names: Sequence[str]) -> list[Finding]:
    """What networks would be worth that were not asked for, by a quick trial."""
    words = f"the terms leave something out: networks over all inputs would take {found.worth} on rows left out."
    words += _made_of_words(found.remainder, names)
    severity = Severity.WARNING if found.gain > WORTH_A_WARNING else Severity.NOTE
    return [Finding(Kind.LEFT_OVER, severity, words, found.gain, "Let them be added (`remainder=True`).")]


def _made_of_words(remainder: Remainder, names: Sequence[str]) -> str:
    """A sentence on the inputs that have most part in what is added, and how many act together."""
    parts, output = remainder.made_of, int(np.argmax(remainder.size))
    if parts is None or parts.together[output] <= 0.0:
        return ""
    total = parts.total[output]
    most = ", ".join(f"{names[i]} ({min(total[i], 1.0):.0%})" for i in np.argsort(-total)[:MOST_NAMED])
    n = parts.together[output]
    return f" Most part in it have {most}; in the mean {n:.1f} input{'s act' if n >= 1.05 else ' acts'} together."
