"""A likelihood as files keep it: its name and its numbers, which is all that most predictions ask for."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods.densities import scale_of
from vertebra.machine.later import later

if TYPE_CHECKING:
    from vertebra.likelihoods import continuous, discrete
    from vertebra.likelihoods.likelihood import Likelihood
else:
    continuous, discrete = later("vertebra.likelihoods.continuous"), later("vertebra.likelihoods.discrete")
    Likelihood = object

jax = later("jax")

# What is known of the shipped ones without making them.
COUNTS = ("Poisson", "NegativeBinomial")
LOCATIONS = ("Gaussian", "HeteroscedasticGaussian", "StudentT")
CLASSES = ("Bernoulli", "Categorical")


class Kept:
    """A shipped likelihood that is made, by JAX, when more is asked of it than its name and its numbers say.

    Normal noise and classes are never made for predictions. `made` is the likelihood itself.
    """

    def __init__(self, name: str, numbers: tuple[np.ndarray, ...] = (), n_classes: int = 0):
        self.name, self.numbers, self.n_classes = name, numbers, n_classes
        self.latent_per_target = 2 if name == "HeteroscedasticGaussian" else 1
        self.is_discrete, self.is_location = name in (*COUNTS, *CLASSES), name in LOCATIONS
        self.has_classes = name in CLASSES
        # of what has no scale: 1
        self.log_scale = numbers[0] if self.is_location else np.zeros(())

    def n_latent(self, n_targets: int) -> int:
        return self.n_classes if self.name == "Categorical" else self.latent_per_target * n_targets

    @property
    def normal_variance(self) -> Float[np.ndarray, " k"] | None:
        return scale_of(self.log_scale) ** 2 if self.name == "Gaussian" else None

    def exact_mean(self, mean: Float[np.ndarray, "n latent"], variance: Float[np.ndarray, "n latent"]):
        return mean[:, :: self.latent_per_target] if self.is_location else self.made.exact_mean(mean, variance)

    def held(self, f: Float[np.ndarray, "*rows latent"]) -> Float[np.ndarray, "*rows latent"]:
        return self.made.held(f) if self.name in COUNTS else f

    @cached_property
    def made(self) -> Likelihood:
        kind = getattr(continuous if self.is_location else discrete, self.name)
        if self.has_classes:
            return kind(self.n_classes) if self.n_classes else kind()
        if not self.numbers:
            return kind()
        like = kind(np.ones(len(self.numbers[0])))
        leaves = [jax.numpy.asarray(leaf) for leaf in self.numbers]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def __getattr__(self, part: str) -> Any:
        # what pickle and copy look for is nothing of a likelihood's
        if part.startswith("_") or part in vars(type(self)):
            raise AttributeError(part)
        return getattr(self.made, part)
