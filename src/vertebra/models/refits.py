"""Accuracy of the whole way to a model: rows are left out, and terms sought and fitted without them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Control
from vertebra.models.evaluation import N_FOLDS, cross_fitted, folds_for, losses
from vertebra.models.rows import Rows
from vertebra.models.scores import Method

# Of more rows the choice of terms costs little accuracy, and refits much time: each row is left out with terms kept.
MOST_REFITTED = 2000
# Of more rows so many of the folds say enough: of 1,000 rows an RMSE to 3.5 %.
ROWS_FOR_ALL_FOLDS, FEWER_FOLDS = 1000, 2
# Of fewer rows a fifth says nothing. A round number.
FEWEST_REFITTED = 20
# The share of rows that are later than the others.
LATER_SHARE = 0.2
# Shares of the way that are tried. A round number: an R² that is off by 0.1 is then right to 0.005.
N_SHARES = 21
EVALUATIONS = ("auto", "folds", "left_out")


class Plan(NamedTuple):
    """Which rows are to be left out together: the fold of each, −1 of those that stay."""

    method: Method
    folds: Int[np.ndarray, " n"]


class Tested(NamedTuple):
    """Predictions of rows that had no part in them: those of the folds, in their order, and linear models' beside."""

    method: Method
    folds: Int[np.ndarray, " n"]  # −1 of rows that were not tested
    predictive: Predictive
    linear: Float[np.ndarray, "m k"]

    @property
    def places(self) -> Int[np.ndarray, " m"]:
        return np.flatnonzero(self.folds >= 0)


def plan(rows: Rows, seed: int, evaluation: str, *, is_sought: bool) -> Plan | None:
    """What to leave out: later rows, groups, or a fifth; nothing where each row is left out with terms kept.

    Where terms were given, nothing was chosen by the rows, and leaving them out one by one is as good.
    """
    n = len(rows.y)
    if n < FEWEST_REFITTED:
        return None
    if rows.time is not None:
        later = rows.time > np.quantile(rows.time, 1.0 - LATER_SHARE)
        return Plan(Method.LATER, np.where(later, 0, -1)) if later.any() else None
    if rows.group is None and (evaluation == "left_out" or (evaluation == "auto" and not is_sought)):
        return None
    if rows.group is None and evaluation == "auto" and n >= MOST_REFITTED:
        return None
    folds = folds_for(rows, seed)
    n_folds = N_FOLDS if n < ROWS_FOR_ALL_FOLDS else FEWER_FOLDS
    return Plan(Method.FOLDS if rows.group is None else Method.GROUPS, np.where(folds < n_folds, folds, -1))


class Refit(NamedTuple):
    """What a fit without some rows says: f at those, and the loss of its own rows, each left out with terms kept."""

    f: Float[np.ndarray, "m latent"]
    loss: Float[np.ndarray, " k"]


class Refits(NamedTuple):
    """Fits without some rows: `refit` seeks and fits terms in those that it is told to keep, and gives f at the others.

    What rows are missed by is then measured by the uncertainty that the model states of them without them, `left_out`:
    its `own` share of f is from the terms, which said `alone` of each row without it. A fit takes about `seconds`.
    """

    rows: Rows
    n_levels: Sequence[int]
    n_classes: int
    left_out: Predictive
    alone: Float[np.ndarray, "n latent"]
    own: Float[np.ndarray, " latent"] | float
    refit: Callable[[Bool[np.ndarray, " n"]], Refit]
    y: Float[np.ndarray, "n k"]  # the targets on the model's scale, or codes
    control: Control
    seconds: float

    def tested(self, planned: Plan | None) -> Tested | None:
        """Predictions of the rows of a plan, as far as there was time for them."""
        if planned is None:
            return None
        folds, f, losses_inside = self._said(planned)
        tested = folds >= 0
        if not tested.any():
            return None
        # f = A + α(G − A) with a remainder, A from fits that had not seen the row
        apart = (self.own * (f - self.alone))[tested]
        if planned.method is Method.FOLDS:
            apart = apart * self._way(tested, apart, np.mean(losses_inside, axis=0))
        mean = self.left_out.f_mean[tested] + apart
        linear = cross_fitted(self.rows, folds, self.n_levels, classes=self.n_classes)
        predictive = self.left_out._replace(f_mean=mean, f_variance=self.left_out.f_variance[tested])
        return Tested(planned.method, folds, predictive, linear[tested])

    def _way(
        self, tested: Bool[np.ndarray, " n"], apart: Float[np.ndarray, "m latent"], inside: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " latent"]:
        """How far predictions go from those with terms kept to those of fits without the rows.

        The former are too good, as the terms were chosen with the rows; the latter are of fits of fewer rows, and too
        bad. A fit without rows shows by how much terms kept are too good: the loss of these rows less that `inside`,
        of its own rows each without itself. So much is added to the loss of the whole fit with terms kept.
        """
        likelihood, y, weight = self.left_out.likelihood, self.y[tested], self.rows.weight[tested]
        at = self.left_out.f_mean[tested], self.left_out.f_variance[tested]
        shares = np.linspace(0.0, 1.0, N_SHARES)
        along = np.stack([losses(Predictive(likelihood, at[0] + s * apart, at[1]), y, weight) for s in shares])
        kept, refitted = along[0], along[-1]
        goal = np.clip(kept + refitted - inside, np.minimum(kept, refitted), refitted)
        # the last share at which the loss is no larger
        way = np.array([shares[own <= wanted + 1e-12][-1] for own, wanted in zip(along.T, goal, strict=True)])
        # logits go the same way, as they have one loss; so do a target's location and scale
        return np.repeat(way, apart.shape[1] // len(way))

    def _said(
        self, planned: Plan
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n latent"], list[Float[np.ndarray, " k"]]]:
        """The folds that were left out, −1 elsewhere, f with what was said of them, and the losses of the other rows.

        Folds that a time budget has no room for are not begun, nor those whose others lack a class.
        """
        f, folds, control = self.alone.copy(), np.full(len(self.alone), -1), self.control
        inside: list[Float[np.ndarray, " k"]] = []
        n_folds = int(planned.folds.max()) + 1
        for fold in range(n_folds):
            out = planned.folds == fold
            lacks = self.n_classes > 0 and len(np.unique(self.rows.y[~out])) < self.n_classes
            if not out.any() or lacks or (~out).sum() < FEWEST_REFITTED // 2 or control.left < self.seconds:
                continue
            control.report(f"measuring accuracy: fit {fold + 1} of {n_folds} without some rows")
            said = self.refit(~out)
            # what was interrupted is no fit
            if control.left > 0.0:
                f[out], folds[out] = said.f, fold
                inside.append(said.loss)
        return folds, f, inside


def plan_of_groups(rows: Rows, seen: Int[np.ndarray, " n"], seed: int) -> Plan:
    """Some of the groups that were seen, to be left out as a whole."""
    folds = folds_for(rows._replace(group=seen), seed)
    return Plan(Method.GROUPS, np.where(folds < FEWER_FOLDS, folds, -1))
