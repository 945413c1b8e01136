"""What a training run is asked for."""

import math
import numbers
from dataclasses import MISSING, dataclass, fields

import optax

from vertebra.inference.training import Schedule
from vertebra.machine.checks import check_count, check_positive


@dataclass(frozen=True)
class Settings:
    """Settings of `fit` and `fit_stream`, which take them by these names.

    - `n_steps`, `batch_size`, `n_draws`: steps in all, rows in each, and draws of f for each row.
    - `learning_rate`: the peak of a schedule that warms up over 2 % of the steps and falls to 0 along a cosine; or a
      schedule of your own, a function of the step t = 0, 1, … as Optax has them, `optax.constant_schedule(1e-2)` for
      none.
    - `optimiser`: any of Optax in the place of Adam. Its updates are scaled by the schedule, whose peak is then 1 and
      not `learning_rate`, or by one of your own. Those that search along a line, such as `optax.lbfgs()`, are told the
      loss at the same rows and draws; give them all rows (`batch_size`) and `optax.constant_schedule(1.0)`.
    - `kl_weight`: what KL(q ‖ p) counts in the ELBO, 1 unless given; or a function of the step. Scores, which tell the
      best round, count it as at the end. With another weight than 1 there is no closed form of the last layer.
    - `every_step`: whether `History.steps` has the minibatch ELBO of every step, and not of rounds alone.
    - `n_rounds`: a round of steps ends with a score, a `callback`, and maybe a checkpoint.
    - `validation`: the share of rows held out; their log predictive density is then the score that picks the best
      round, and that stops the fit after `patience` rounds without a better one.
    - `folds`: cuts the rows into so many parts; restart i does not see part i mod `folds`, which is its validation.
      What the ensemble says of a row without it is then known from the restarts that held it out (`Fitted.unseen`); so
      that it is not flattered, the last round is kept, not the one that these rows like best.
    - `last_layer`: whether to end with the exact posterior of the last layer, joint over all sub-networks, with the
      noise at its evidence maximum. None: where that exists (only the top layer random, all Gaussian) and has no more
      than 2000 features.
    """

    n_steps: int
    batch_size: int
    learning_rate: float | Schedule
    optimiser: optax.GradientTransformation | None
    n_draws: int
    folds: int
    n_rounds: int
    last_layer: bool | None
    validation: float = 0.0
    patience: int | None = None
    kl_weight: float | Schedule = 1.0
    every_step: bool = False

    @property
    def validates(self) -> bool:
        """Whether scores are of rows that were held out."""
        return self.validation > 0.0 or self.folds > 0

    @property
    def steps_per_round(self) -> int:
        return -(-self.n_steps // self.n_rounds)

    @property
    def record(self) -> dict[str, object]:
        """What was asked for, as JSON has it: functions by a word, and what came later only where it was asked."""
        told = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "optimiser"}
        later = {f.name: f.default for f in fields(self) if f.name in ("kl_weight", "every_step")}
        asked = {name: value for name, value in told.items() if value != later.get(name, MISSING)}
        return {"optimiser": None, **{name: "a function" if callable(v) else v for name, v in asked.items()}}

    def check(self, n_networks: int) -> None:
        """Refuses what cannot be done with so many restarts."""
        counts = dict(n_steps=self.n_steps, batch_size=self.batch_size, n_draws=self.n_draws, n_rounds=self.n_rounds)
        check_count(**counts, **({} if self.patience is None else {"patience": self.patience}))
        if not callable(self.learning_rate):
            check_positive(learning_rate=self.learning_rate)
        if not callable(self.kl_weight) and not 0.0 <= self.kl_weight < math.inf:
            raise ValueError(
                f"`kl_weight` must be a finite number of at least 0, or a function of the step, got {self.kl_weight!r}."
            )
        if not 0.0 <= self.validation < 1.0:
            raise ValueError(f"`validation` must be at least 0 and below 1, got {self.validation!r}.")
        is_count = isinstance(self.folds, numbers.Integral)
        if self.folds and not (is_count and 2 <= self.folds <= n_networks and self.validation == 0.0):
            raise ValueError(
                f"`folds` must be a whole number from 2 to the number of networks, {n_networks}, without `validation`, "
                f"got {self.folds!r}: each fold needs a restart that leaves it out."
            )
        if self.patience is not None and self.validation == 0.0:
            raise ValueError("`patience` needs `validation`: the ELBO of the training rows does not tell when to stop.")
