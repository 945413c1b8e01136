"""Which latent functions have the shapes that are asked for, and how a fit comes to have them."""

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods.working_responses import UnevenNoise, Working
from vertebra.terms.latents import Data, Fit, at_rows, is_at_rest, models_of, posterior_of
from vertebra.terms.shapes import Shapes, shaped, shaped_mode
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.sums import RowSums


def is_location(working: Working, k: int) -> bool:
    """Whether a latent function is a location of y, and not the log of its noise's variance."""
    return not isinstance(working, UnevenNoise) or k % 2 == 0


def with_shapes(working: Working, terms: SumOfTerms, shapes: Shapes, rng: np.random.Generator) -> SumOfTerms:
    """The terms given the shapes: the functions of a location have them, those of a scale do not."""
    have = tuple(is_location(working, k) for k in range(terms.n_outputs))
    means, roots = list(terms.means), list(terms.roots)
    for k in np.flatnonzero(have):
        means[k], roots[k] = shaped(terms.basis, means[k], roots[k], shapes, rng)
    return SumOfTerms(terms.basis, tuple(means), tuple(roots), have)


def near_shapes(
    x: Float[np.ndarray, "n p"],
    data: Data,
    fit: Fit,
    rows: list[RowSums],
    shapes: Shapes,
    rng: np.random.Generator,
    n_rounds: int,
) -> tuple[Fit, list[RowSums]]:
    """The fit by responses near the likeliest f with the shapes: weights of rows are to be those of such functions."""
    f, variance, models = fit.f, fit.variance, fit.models
    for _ in range(n_rounds):
        modes = []
        for k, (model, each) in enumerate(zip(models, rows, strict=True)):
            mean, root, _ = posterior_of(fit.basis, model, each, rng, most=0)
            modes.append(shaped_mode(fit.basis, mean, root, shapes) if is_location(data.working, k) else mean)
        before, f = f, SumOfTerms(fit.basis, tuple(modes), ()).mean(x)
        variance = at_rows(data, models)[1]
        rows = data.rows(f, variance)
        models = models_of(fit.basis, rows, models, n_rounds=2, is_last=False)
        if is_at_rest(float(np.mean(np.abs(f - before))), f, 1.0):
            break
    return fit._replace(models=models, f=f, variance=variance), rows
