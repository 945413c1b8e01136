"""What a fit is asked for."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vertebra.machine.control import Control
from vertebra.machine.later import later
from vertebra.networks.skeleton import Skeleton
from vertebra.tables.schema import MissingLike
from vertebra.terms.term import Term

if TYPE_CHECKING:
    from vertebra import likelihoods
    from vertebra.likelihoods import Likelihood
else:
    likelihoods, Likelihood = later("vertebra.likelihoods"), object

# An input as users name it, by its name or its place; and a term, by its input or inputs.
InputLike = str | int | np.integer
TermLike = InputLike | Iterable[InputLike]
# "balanced", or weights by class.
ClassWeightLike = str | Mapping | None

LIKELIHOODS: dict[str, str] = {
    "gaussian": "Gaussian",
    "heteroscedastic": "HeteroscedasticGaussian",
    "student_t": "StudentT",
    "poisson": "Poisson",
    "negative_binomial": "NegativeBinomial",
}
# Those of counts, whose effects are of the logarithm of the rate; "counts": Poisson's law unless rows speak against it.
COUNTS = ("poisson", "negative_binomial", "counts")
# What may be asked for: "auto" begins with Gaussian noise.
NOISES: dict[str, str] = {"auto": "Gaussian", **LIKELIHOODS, "counts": "NegativeBinomial"}


def noise_named(asked: str) -> type[Likelihood]:
    """The likelihood of numbers that is asked for by this name."""
    return getattr(likelihoods, NOISES[asked])


@dataclass(frozen=True)
class Settings:
    """The arguments of an estimator, checked; a fit takes those that concern it."""

    name: str  # of the estimator, as errors and progress call it
    seed: int
    is_classifier: bool
    scheme: str = "auto"
    n_steps: int | None = None
    early_stopping: bool = False
    feature_types: Mapping | Sequence | None = None
    missing_values: MissingLike = None
    weights: str = "auto"
    class_weight: ClassWeightLike = None  # of classes
    time_budget: float | int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    verbose: bool | int = False
    # numbers
    likelihood: str = "auto"
    conformal: bool = False
    target_transform: str = (
        "none"  # the scale of positive targets; what has a `transform` is a transformer to scikit-learn
    )
    # additive
    structure: str = "tests"
    n_subnetworks: int = 10
    clusters: Sequence[Iterable[InputLike]] | None = None
    monotone: Mapping[InputLike, str | int] | None = None
    remainder: bool = False
    evaluation: str = "auto"
    start: Sequence[Term] | None = None  # the terms to fit again, of a warm start
    # any skeleton
    skeleton: Skeleton | None = None
    widths: Sequence[int] | None = None

    @property
    def is_count(self) -> bool:
        return self.likelihood in COUNTS

    def control(self) -> Control:
        return Control(self.name, verbose=self.verbose, time_budget=self.time_budget)
