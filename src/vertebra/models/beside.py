"""Networks over all inputs beside a sum of terms: whether there is anything for them, and what they add, or would add.

Whatever the likelihood: what is left is looked at in units of its own noise, and networks, in training, say what the
terms say: the mean of y, its log rate, or logits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.effects.decomposition import N_DRAWS
from vertebra.effects.ensemble import EnsemblePosterior, Remainder
from vertebra.effects.made_of import made_of
from vertebra.inference.outcome import Fitted
from vertebra.likelihoods import Gaussian
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Control
from vertebra.models.evaluation import folds_for, losses
from vertebra.models.findings import Finding, Kind, Severity, notes
from vertebra.models.flexible import flexible
from vertebra.models.networks import SCHEMES, TRIED, Shape, ensemble_of, train, training
from vertebra.models.reading import Encoded, Targets
from vertebra.models.remainder import is_clear, is_something_left
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
# From this share of the error on, what networks would add is to be looked at, and else good to know. A round number.
WORTH_A_WARNING = 0.05


class Terms(NamedTuple):
    """A fitted sum of terms, with the rows it was fitted to and what is needed to look at what it leaves."""

    found: Additive
    searched: Searched
    targets: Targets
    target: Target
    n_levels: Sequence[int]  # of the columns as they were read

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

    def is_something_left(self, seed: int) -> bool:
        """Whether bumps over all inputs, or boosted trees, predict of rows left out how far terms are off."""
        rows, away = self.searched.rows, self.away()
        if is_something_left(self.coded(seed).x, away, rows.weight):
            return True
        trees = flexible(rows._replace(y=away), folds_for(rows, seed), self.n_levels, seed=seed)
        if trees is None:
            return False
        before, weight = away[trees.rows], rows.weight[trees.rows]
        # trees of nothing but noise say too much: the share of it that is nearest
        along = np.average(before * trees.said, axis=0, weights=weight)
        share = np.clip(along / np.maximum(np.average(trees.said**2, axis=0, weights=weight), 1e-300), 0.0, 1.0)
        return bool(is_clear(before**2, (before - share * trees.said) ** 2, weight).any())


class Added(NamedTuple):
    """What networks add to terms, or would add."""

    remainder: Remainder
    shared: Shared
    fitted: Fitted
    worth: str  # in words: what is taken from where to where
    gain: float  # as a share of the error


def added(
    settings: Settings, terms: Terms, control: Control, *, kinds: Sequence[str] = ("gaussian",), is_trial: bool = False
) -> Added | None:
    """Networks over all inputs, trained with rows left out, blended with the terms; none if these do as well alone."""
    searched, usual = terms.searched, TRIED if is_trial else SCHEMES[SCHEME]
    coded, likelihood = terms.coded(settings.seed), terms.found.likelihood
    some = np.sort(
        np.random.default_rng(settings.seed).permutation(len(searched.y))[: MOST_TRIED if is_trial else None]
    )
    x, y, weight = coded.x[some], searched.y[some], searched.weight[some]
    # means are learned by their squared errors, whatever else is known of the noise
    learned = Gaussian() if likelihood.is_location else likelihood
    shape = shape_of(x.shape[1], learned.n_latent(y.shape[1]))
    given: Any = learned, x, y, weight, control
    fitted = train(settings, shape, *given, n_steps=None, usual=usual)
    if control.ended is not None:
        return None
    networks, said = ensemble_of(fitted, shape, settings.seed, x, y, weight, usual=usual)
    before = Predictive(likelihood, *(part[some] for part in terms.found.left_out))
    both = shared((before.f_mean, before.f_variance), said, likelihood, y, weight, n_draws=N_DRAWS, kinds=kinds)
    if both is None:
        return None
    worth, gain = _worth(before, both.left_out, y, weight, terms.target)
    return Added(_remainder(networks, coded, both, terms, settings.seed), both, fitted, worth, gain)


def _remainder(networks: EnsemblePosterior, coded: Encoded, both: Shared, terms: Terms, seed: int) -> Remainder:
    x, found = terms.searched.x, both.blend
    about = found.share, found.sizes, found.probability, np.isnan(x).any(axis=0)
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
