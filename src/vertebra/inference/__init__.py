"""The ELBO, the compiled run, closed-form last layers, draws."""

from vertebra.inference.fitting import Diverged, Fitted, History, Progress, elbo, fit, fit_stream, moments, sample

__all__ = ["Diverged", "Fitted", "History", "Progress", "elbo", "fit", "fit_stream", "moments", "sample"]
