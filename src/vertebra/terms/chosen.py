"""How strong the terms of a model are that were chosen near the level of the choice, given that they were chosen.

A weak term is only in the model where noise helped it there: its estimate is then too large, and its interval lies too
high (the winner's curse). With u ~ N(Λβ, Λ) and β ~ N(0, τ²W) a term of size τ is chosen with the probability that
Q = uᵀWu, of eigenvalues λ(1 + τ²λ), is beyond the level. What is known of τ is the likelihood over that probability.
A term far beyond its level is chosen whatever the noise, and is as strong as it looks.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from vertebra.terms.chi_squares import TINY, chi_square_tails
from vertebra.terms.model import Model
from vertebra.terms.sandwich import sandwiches
from vertebra.terms.score_test import (
    Turned,
    block_tested,
    freedom_of_noise,
    given_the_rest,
    in_doubt,
    of_gaps,
    strengths_of,
    turned,
)
from vertebra.terms.sum_of_terms import LEVELS, Chosen
from vertebra.terms.term import Term

# A p-value this many times smaller than the level is far beyond it: to be chosen was then no matter of luck.
FAR_BEYOND = 1e-6
# A term that shares more than half of its information with others is judged together with them, and not here: of all
# that it could be, and of what it is. Where a curve may jump, most of what it could be is jumps, which no other has.
LEAST_OWN = 0.5
# Values of log Q beside its mean, among which the level of the choice is found.
LOG_Q = np.linspace(-3.0, 8.0, 300)


def chosen(model: Model, p_values: Mapping[Term, float], levels: Mapping[int, float]) -> Chosen:
    """Quantiles of the strengths of those terms of the model whose p-values are below their order's level, but near."""
    there = {t: levels[len(t)] for t in model.basis.terms if t in p_values}
    near = {t: level for t, level in there.items() if FAR_BEYOND * level < p_values[t] < level}
    blocks = [block_tested(model.rows, term) for term in near]
    blocks = [block for block in blocks if not np.all(of_gaps(model.rows.systems, block))]
    model.rows.learn_squares(blocks)
    model.rows.learn_products(blocks, model.basis.blocks)
    seen = [given_the_rest(model, block, without_own=True) for block in blocks]
    variances = [each.information for each in seen]
    if blocks and in_doubt(model) is not None:
        variances, _ = sandwiches(model, [[block] for block in blocks], seen)
    found = {}
    for block, each, variance in zip(blocks, seen, variances, strict=True):
        alone = model.rows.gram([block], [block]) / model.posterior.noise_variance
        if np.trace(each.information) >= LEAST_OWN * np.trace(alone):
            own, level = turned(model, block, each, variance), near[block.term]
            if _share_of_its_own(model, own) < LEAST_OWN:
                continue
            freedom = freedom_of_noise(model)
            strengths = strengths_of(own, lambda sizes: _chance(own.values, level, freedom, sizes))  # noqa: B023
            found[block.term] = np.quantile(strengths, LEVELS)
    return found


def _share_of_its_own(model: Model, own: Turned) -> float:
    """What rows say of a term as it is estimated, given the rest, of what they would say without: βᵀΛβ / βᵀΛ₀β."""
    # along what rows say little of, next to nothing, as where sizes are learned
    b = own.rotated / (own.values + 0.1 * max(float(own.values.max()), TINY))
    beta = own.back @ b
    alone = model.rows.count * float(beta @ own.gram @ beta) / model.posterior.noise_variance
    return own.inflation * float(own.values @ b**2) / max(alone, TINY)


def _chance(
    values: Float[np.ndarray, " m"], level: float, freedom: float, sizes: Float[np.ndarray, " s"]
) -> Float[np.ndarray, " s"]:
    """P(Q is beyond the level) of terms of some sizes τ: Q = Σ λ(1 + τ²λ) χ²."""
    q = values.sum() * np.exp(LOG_Q)
    tails = np.log(np.maximum(chi_square_tails(np.tile(values, (len(q), 1)), q, freedom), 1e-300))
    at = np.exp(np.interp(-np.log(level), -tails, np.log(q)))
    return chi_square_tails(values * (1.0 + sizes[:, None] ** 2 * values), np.full(len(sizes), at), freedom)
