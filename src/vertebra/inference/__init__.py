"""The ELBO, the compiled run, closed-form last layers, draws."""

from vertebra.inference.density import LogDensity, log_density
from vertebra.inference.draws import elbo, moments, sample
from vertebra.inference.fitting import fit, fit_stream
from vertebra.inference.laplace import LinearisedLaplace, linearised_laplace
from vertebra.inference.outcome import Diverged, Fitted, History, Progress
from vertebra.inference.settings import Settings

__all__ = [
    "Diverged",
    "Fitted",
    "History",
    "LinearisedLaplace",
    "LogDensity",
    "Progress",
    "Settings",
    "elbo",
    "fit",
    "fit_stream",
    "linearised_laplace",
    "log_density",
    "moments",
    "sample",
]
