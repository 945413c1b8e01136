"""The additive fit: terms, sought and fitted in closed form; then a scheme's network, or a remainder, where wanted."""

from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from vertebra.effects.network_posterior import NetworkPosterior
from vertebra.effects.posterior import TermsPosterior
from vertebra.likelihoods import Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import Plain
from vertebra.machine.control import Control
from vertebra.machine.memory import check_memory
from vertebra.machine.threads import threads
from vertebra.models.beside import MOST_UNSEEN, Terms, Unseen, added, said_of, unseen_by, would_add
from vertebra.models.conclusion import Outcome, conclude
from vertebra.models.dependence import groups_seen
from vertebra.models.diagnostics import are_told, cut_short
from vertebra.models.evaluation import cross_fitted, folds_for, losses, losses_of_logits
from vertebra.models.findings import Finding, Kind, notes
from vertebra.models.given import clusters_given, shapes_given
from vertebra.models.inputs import on_inputs
from vertebra.models.model import Found, Model
from vertebra.models.networks import SCHEMES, Shape, train, training
from vertebra.models.noise_choice import (
    AT_GAPS,
    LEAST_GAIN,
    LIKELIER,
    MUCH_WORSE,
    Noise,
    is_off_centre,
    likely_noises,
    noise_of,
    noisier_at_gaps,
    of_classes,
)
from vertebra.models.reading import Encoded, Read, Targets, encoded
from vertebra.models.refits import EVALUATIONS, Refit, Refits, plan, plan_of_groups
from vertebra.models.remainder import Bumps, may_be_looked_at
from vertebra.models.rows import marginal_rows, rows_together
from vertebra.models.scores import Method
from vertebra.models.searched import Searched, some_of
from vertebra.models.settings import Settings
from vertebra.networks import schemes
from vertebra.networks.skeleton import additive
from vertebra.tables.encoding import MOST_LEVELS
from vertebra.tables.passes import MOST_SEARCHED, N_FUNCTIONS
from vertebra.terms.additive import Additive, Mains, fit_additive
from vertebra.terms.group_lasso import clusters_of, group_lasso_path
from vertebra.terms.latents import Known
from vertebra.terms.model import MOST_OF_ALL
from vertebra.terms.sums import HeldTable
from vertebra.terms.term import Term

# A loss this many times that of a linear model, on rows left out, is worth another fit: where the truth is linear, most
# fits should not take twice the time. experiments/separable.py was run with this value, and with no other.
BEHIND = 1.02


class AdditiveFit:
    """One fit, from rows to what is concluded of them; each step takes what the one before it made."""

    def __init__(self, settings: Settings, read: Read, targets: Targets):
        self.settings, self.read, self.targets = settings, read, targets
        self.seed, self.n_classes = settings.seed, read.target.n_classes
        if settings.evaluation not in EVALUATIONS:
            raise ValueError(f"`evaluation` must be one of {', '.join(EVALUATIONS)}, got {settings.evaluation!r}.")
        if settings.evaluation == "folds" and read.stream is not None:
            raise ValueError('`evaluation="folds"` is for tables in memory: of files each row is left out in turn.')
        self.shapes = shapes_given(settings, read)
        self.known: Known = {}  # functions of inputs at the rows
        self.fitted: dict[tuple[Any, Mains], Additive] = {}
        self.refitted: dict[tuple[Any, Mains, bytes], Refit] = {}
        self.left: tuple[Additive, bool, Bumps] | None = None  # whether rows say that terms leave something out
        self.said: tuple[Additive, Additive] | None = None  # terms, and the same described
        self.seconds = 0.0  # that terms took
        self.looks, self.is_noise_open = True, False  # whether another noise waits for what networks learn
        self.given = settings.start if settings.clusters is None else clusters_given(settings.clusters, read.names)

    def fit(self) -> Model:
        read, rows = self.read, self.read.rows
        with self.settings.control() as control, threads(len(rows.y)):
            if read.stream is not None:
                read.stream.training.report = control.report
            within, began = self._sets(control), control.spent
            coded = encoded(read, self.targets, self.seed, most_levels=MOST_LEVELS, fill=False)
            searched = self._searched(coded)
            found, linear, noise, mains = self._terms(searched, within, control)
            self.seconds, found = control.spent - began, self._described(found)
            outcome = self._outcome(found, coded, searched, linear, noise)
            if self.settings.scheme != "auto" and found.clusters:
                outcome = self._with_network(outcome, found, noise.likelihood, control)
            elif self.settings.clusters is None and not self.shapes and not control.enough():
                asked = dict(noise=noise, within=within, mains=mains)
                outcome = self._with_remainder(outcome, found, searched, control, asked)
                if self.is_noise_open and outcome.posterior.remainder is None and not control.enough():
                    # what seemed to be left was noise, which is not even
                    self.is_noise_open, self.looks = False, False
                    found, linear, noise, mains = self._terms(searched, within, control)
                    found = self._described(found)
                    outcome = self._outcome(found, coded, searched, linear, noise)
            refits = self._refits(outcome, found, searched, control, noise=noise, within=within, mains=mains)
            outcome = self._tested(outcome, refits)
        findings = [*outcome.findings, *self._findings(outcome, found, control)]
        return conclude(self.settings, read, outcome._replace(findings=findings, ended=control.ended))

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
        x, targets = some_of(self.seed, x, self.targets.seen(self.targets.y))
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
            x, y, places = some_of(self.seed, x, y, np.arange(len(y)))
            rows = rows.at(places)
        check_memory(8.0 * (2.0 * x.size * N_FUNCTIONS + 6.0 * MOST_OF_ALL**2), "This fit")
        return Searched(x, y, rows, coded.n_levels, everything)

    def _terms(
        self, searched: Searched, within: list[Term] | None, control: Control
    ) -> tuple[Additive, Float[np.ndarray, "n k"], Noise, Mains]:
        """The terms found, what linear models say of the same rows left out, the noise, and which main effects stay."""
        x, _, rows, _, everything = searched
        noise, mains = self._noise(searched), Mains.FOUND

        def terms_of(mains: Mains) -> Additive:
            if (noise.of, mains) not in self.fitted:
                how: Any = dict(enough=control.enough, report=control.report, everything=everything, known=self.known)
                self.fitted[noise.of, mains] = self._terms_of(searched, noise, within, mains, **how)
            return self.fitted[noise.of, mains]

        found = terms_of(mains)
        if self._may_choose_noise(searched, noise) and not control.enough():
            noise, found = self._likelier(searched, (noise, found), within, control)
        linear = cross_fitted(rows, folds_for(rows, self.seed), self.read.n_levels, classes=self.n_classes)
        if self.given is None and within is None and len(x) >= 2 * x.shape[1] and not control.enough():
            limit = BEHIND * self._linear_losses(linear, searched)
            found, mains = self._not_behind(limit, found, terms_of, searched, control)
        return found, linear, noise, mains

    def _terms_of(
        self, searched: Searched, noise: Noise, within: list[Term] | None, mains: Mains, **how: Any
    ) -> Additive:
        """Terms of rows; those that belong together, or follow each other, say less than others."""
        rows = searched.rows
        if rows.group is not None:
            how["groups"] = rows.group
        if rows.time is not None:
            how["order"] = rows.time
        return fit_additive(
            searched.x,
            noise.of(searched.y, rows.weight),
            rows.weight,
            n_levels=searched.n_levels,
            codes=searched.codes(self.read.n_categories),
            rng=np.random.default_rng(self.seed),
            clusters=self.given,
            within=within,
            mains=mains,
            shapes=self.shapes,
            describes=False,
            **how,
        )

    def _refits(
        self, outcome: Outcome, found: Additive, searched: Searched, control: Control, **asked: Any
    ) -> Refits | None:
        """Fits without some rows, for accuracy; none of rows in files, nor of networks."""
        rows = searched.rows
        if outcome.left_out is None or self.read.stream is not None:
            return None
        refit = lambda kept: self._refit(kept, searched, control, **asked)  # noqa: E731
        remainder = outcome.posterior.remainder
        own = 1.0 if remainder is None else 1.0 - remainder.share
        about = rows, self.read.n_levels, self.n_classes, outcome.left_out, found.left_out[0], own
        return Refits(*about, refit, searched.y, control, self.seconds)

    def _refit(self, kept: Bool[np.ndarray, " n"], searched: Searched, control: Control, **asked: Any) -> Refit:
        """Terms sought and fitted in some rows: f at the others. Kept, as two may ask for the same."""
        name = asked["noise"].of, asked["mains"], kept.tobytes()
        if (known := self.refitted.get(name)) is not None:
            return known
        rows = searched.rows
        some = rows.at(kept)
        targets = Targets(searched.y[kept], some.weight, self.targets.seen)
        coded = encoded(self.read._replace(rows=some), targets, self.seed, most_levels=MOST_LEVELS, fill=False)
        part = Searched(coded.x, targets.y, some, coded.n_levels, None)
        how: Any = dict(enough=lambda: control.ended is not None, calibrate=False)
        again = self._terms_of(part, **asked, **how)
        found = Refit(again.terms.mean(coded.encoding(rows.matrix[~kept])), _losses(again, part))
        if control.ended is None:
            self.refitted[name] = found
        return found

    def _tested(self, outcome: Outcome, refits: Refits | None) -> Outcome:
        """The outcome with what fits without some rows say of them, and without groups of rows where some were seen."""
        if refits is None:
            return outcome
        rows, evaluation = refits.rows, self.settings.evaluation
        tested = refits.tested(plan(rows, self.seed, evaluation, is_sought=self.given is None))
        seen = None
        if rows.group is None and rows.time is None and evaluation != "left_out":
            seen = groups_seen(rows.matrix)
        grouped = None if seen is None else refits.tested(plan_of_groups(rows, seen.code, self.seed))
        return outcome._replace(tested=tested, grouped=grouped)

    def _noise(self, searched: Searched) -> Noise:
        if self.n_classes:
            return of_classes(self.n_classes)
        likelihood = self.settings.likelihood
        if likelihood != "auto":
            return noise_of(likelihood)
        noisier = [self.read.names[i] for i in noisier_at_gaps(*searched[:4], seed=self.seed, known=self.known)]
        return noise_of("heteroscedastic", AT_GAPS.format(noisier[0])) if noisier else noise_of("gaussian")

    def _may_choose_noise(self, searched: Searched, noise: Noise) -> bool:
        """Whether rows left out are asked: rows that depend on each other are fitted with even noise alone."""
        rows = searched.rows
        is_free = self.settings.likelihood == "auto" and noise.of is Plain and searched.everything is None
        return is_free and rows.group is None and rows.time is None

    def _likely_noises(self, searched: Searched, found: Additive) -> list[str]:
        """The noises that rows left out speak for, by a quick look."""
        x, y, rows, n_levels, _ = searched
        is_bent = self.read.target.transform is not None
        if is_bent and self.shapes:  # the mean of y is to rise with f, whatever the noise
            return []
        looked = likely_noises(found, x, y, rows.weight, n_levels, has_mean=is_bent)
        if looked and self._may_remain and self.looks:
            # networks may learn what looks like noise
            self.is_noise_open, _ = self._is_left(self._for_networks(found, searched))
        return [] if self.is_noise_open else looked

    def _likelier(
        self, searched: Searched, old: tuple[Noise, Additive], within: list[Term] | None, control: Control
    ) -> tuple[Noise, Additive]:
        """Another noise with its fit, where rows left out speak for these; else those that there are."""
        noise, found = old
        y, rows = searched.y, searched.rows
        for looked in self._likely_noises(searched, found):
            if control.enough():
                break
            control.report("rows left out speak for another noise: fitting it")
            new = noise_of(looked, *noise.notes)
            how: Any = dict(enough=control.enough, report=control.report, everything=None, known=self.known)
            other = self._terms_of(searched, new, within, Mains.FOUND, checks=False, **how)
            before, after = _losses(found, searched), _losses(other, searched)
            is_mean = not is_off_centre(y, _left_out(other).mean(), rows.weight)
            if not is_mean or np.any(after > MUCH_WORSE[looked] * before):
                continue  # whatever its intervals are
            other = other.checked()
            gain = float(rows.weight @ (_left_out(other).log_prob(y) - _left_out(found).log_prob(y)).sum(axis=1))
            if gain >= LEAST_GAIN:
                words = LIKELIER[looked].format(gain / rows.weight.sum())
                return new._replace(notes=[*new.notes, words]), other
        return old

    def _not_behind(
        self,
        limit: Float[np.ndarray, " k"],
        found: Additive,
        terms_of: Callable[[Mains], Additive],
        searched: Searched,
        control: Control,
    ) -> tuple[Additive, Mains]:
        """The terms found, or lines or curves of all inputs where losses are beyond a limit and theirs are less.

        So few rows may show nothing but lines; or terms were missed that lines stand for.
        """
        chosen = Mains.FOUND
        for mains in (Mains.LINES, Mains.ALL):
            if np.all(_losses(found, searched) <= limit):
                break
            control.report(f"a linear model does better: trying {mains.value} of all inputs")
            other = terms_of(mains)
            if self._is_better(other, found, limit, searched):
                found, chosen = other, mains
        return found, chosen

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

    def _linear_losses(self, linear: Float[np.ndarray, "n m"], searched: Searched) -> Float[np.ndarray, " k"]:
        """Those of linear models, on the scale that is fitted."""
        rows, target = searched.rows, self.read.target
        if self.n_classes:
            return losses_of_logits(linear, searched.y, rows.weight)
        if target.transform is not None:
            folds = folds_for(rows, self.seed)
            linear = cross_fitted(rows._replace(y=searched.y), folds, self.read.n_levels)
            return rows.weight @ (searched.y - linear) ** 2 / rows.weight.sum()
        return rows.weight @ ((rows.y - linear) / target.scale) ** 2 / rows.weight.sum()

    def _outcome(
        self, found: Additive, coded: Encoded, searched: Searched, linear: Float[np.ndarray, "n k"], noise: Noise
    ) -> Outcome:
        """The terms as they are."""
        words = ["fitted in closed form: nothing was trained by steps of a gradient.", *noise.notes]
        if found.n_searched is not None:
            n_all = len(searched.x) if searched.everything is None else searched.everything.n_rows
            words.append(f"terms were sought in {found.n_searched:,} of the rows, and fitted to all {n_all:,}.")
        if self.shapes:
            ways = (f"{'rises' if s > 0 else 'falls'} with {self.read.names[i]}" for i, s in self.shapes.items())
            words.append(f"as asked, f {', '.join(ways)}; draws of it are the nearest functions that do.")
        if not found.clusters:
            words.append("no input was found to act: predictions are the mean.")
        return Outcome(
            posterior=TermsPosterior(found.terms, self.seed),
            likelihood=found.likelihood,
            encoding=coded.encoding,
            rows=searched.rows,
            findings=notes(Kind.FITTING, words),
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
        rows, near = marginal_rows(coded.x, read.rows.weight), rows_together(coded.x, read.rows.weight, self.seed)
        return outcome._replace(
            posterior=NetworkPosterior(fitted.network, rows, self.seed, name, widths, SCHEMES[name]["options"], near),
            likelihood=fitted.likelihood,
            encoding=coded.encoding,
            findings=training(fitted),
            left_out=None,
        )

    def _with_remainder(
        self, outcome: Outcome, found: Additive, searched: Searched, control: Control, asked: dict[str, Any]
    ) -> Outcome:
        """What the terms leave out besides, if networks can learn it; where it is not asked for, what it is worth."""
        if searched.rows.group is not None or not may_be_looked_at(searched.x):
            return outcome
        if self.n_classes and are_told(float(_losses(found, searched)[0]), searched.y[:, 0], searched.weight):
            return outcome  # nothing but the logs of certainty
        control.report("looking at what the terms leave")
        terms = self._for_networks(found, searched)
        terms = terms._replace(unseen=self._unseen(searched, control, asked))
        if control.enough():
            return outcome
        is_left, bumps = self._is_left(terms)
        if not is_left and not terms.is_something_unseen(self.seed, bumps):
            return outcome
        control.report("rows left out speak for networks over all inputs")
        is_plain = (
            asked["noise"].of is Plain and self.read.target.transform is None and self.settings.likelihood == "auto"
        )
        kinds = ("gaussian", "student_t") if is_plain else ("gaussian",)
        new = added(self.settings, terms, control, kinds=kinds, is_trial=not self._may_remain)
        if new is None:
            return outcome
        if not self._may_remain:
            return outcome._replace(findings=[*outcome.findings, *would_add(new, self.read.names)])
        return outcome._replace(
            posterior=TermsPosterior(found.terms, self.seed, new.remainder),
            likelihood=new.left_out.likelihood,
            left_out=new.left_out,
            method=Method.BOTH_LEFT_OUT,
            findings=[*outcome.findings, *said_of(new, self.read.names)],
        )

    def _unseen(self, searched: Searched, control: Control, asked: dict[str, Any]) -> Unseen | None:
        """What terms that were sought without some rows say of them: those chosen by the rows themselves flatter."""
        rows, is_streamed = searched.rows, self.read.stream is not None or searched.everything is not None
        # of few rows more folds are needed, and accuracy asks for the same fits; what is only to be said is worth none
        is_asked = plan(rows, self.seed, self.settings.evaluation, is_sought=True) is not None
        is_worth_it = (is_asked or self._may_remain) and len(rows.y) <= MOST_UNSEEN and control.left >= self.seconds
        if is_streamed or not is_worth_it:
            return None
        folds = folds_for(rows, self.seed)
        outs = [folds == fold for fold in range(2 if is_asked and rows.time is None else 1)]
        said = unseen_by(lambda kept: self._refit(kept, searched, control, **asked).f, rows, outs, self.n_classes)
        return None if control.ended is not None else said

    def _is_left(self, terms: Terms) -> tuple[bool, Bumps]:
        """Whether there is anything for networks in what rows are missed by: of the same terms looked at once."""
        if self.left is None or self.left[0].left_out is not terms.found.left_out:
            bumps = Bumps(terms.coded(self.seed).x, terms.searched.weight)
            self.left = terms.found, terms.is_something_left(self.seed, bumps), bumps
        return self.left[1:]

    def _described(self, found: Additive) -> Additive:
        if self.said is None or self.said[0] is not found:
            self.said = found, found.described()
        return self.said[1]

    def _for_networks(self, found: Additive, searched: Searched) -> Terms:
        return Terms(found, searched, self.targets, self.read.target, self.read.n_levels)

    def _findings(self, outcome: Outcome, found: Additive, control: Control) -> list[Finding]:
        """What there is to say about the inputs, and the end of the search."""
        return [
            *on_inputs(self.read, outcome.rows.matrix, found, is_sought=self.given is None),
            *cut_short(control, "some terms, or a remainder, may not have been looked for."),
        ]


def _left_out(found: Additive) -> Predictive:
    return Predictive(found.likelihood, *found.left_out)


def _losses(found: Additive, searched: Searched) -> Float[np.ndarray, " k"]:
    return losses(_left_out(found), searched.y, searched.weight)
