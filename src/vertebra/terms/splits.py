"""Components of which only the sum is known: of inputs that go together, what one has the other may have instead.

With tr Cov the covariance of two components, averaged over the rows, a set S of them is one where the variance of the
sum is far below that of any part and of the rest, taken apart, tr Var(S) < ¼ (tr Var g + tr Var(S − g)) for all g in S,
and where this matters: no part is known beside its own size, and the sum is. Every part by itself, as a sum of many
that go together a little has a small variance beside theirs, though each of them is told apart from the others. A prior
that shares out evenly makes parts that look known; their bands would say nothing else.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.terms.components import Components
from vertebra.terms.term import Term

# The share of the variances of its parts that the variance of a sum is below: of two inputs that act by lines and are
# correlated at ρ it is 1 − ρ², so that it is ρ = 0.87 from which a split may not be determined.
FAR_BELOW = 0.25
# A function is not known if its variance is more than this share of its square: 95 % then reach from half to one and a
# half times its size, or further. A round number.
UNKNOWN = 1.0 / 16.0
# Parts that are looked at, those with the most variance first, and draws that covariances are of: off by a tenth.
MOST_PARTS, N_DRAWS = 40, 200


class _Parts(NamedTuple):
    """Of components that are not known: how their means and their errors go together over the rows."""

    terms: tuple[Term, ...]
    means: Float[np.ndarray, "t t"]
    errors: Float[np.ndarray, "t t"]

    def variance(self, group: Sequence[int]) -> float:
        """tr Var(Σ g)."""
        return float(self.errors[np.ix_(group, group)].sum())

    def ratio(self, group: Sequence[int]) -> float:
        """tr Var(Σ g) / Σ tr Var g."""
        return self.variance(group) / max(sum(self.errors[k, k] for k in group), 1e-300)

    def apart(self, k: int, group: Sequence[int]) -> float:
        """tr Var(Σ g) / (tr Var g_k + tr Var Σ of the others): from a quarter on, g_k is told apart from them."""
        others = [j for j in group if j != k]
        return self.variance(group) / max(self.errors[k, k] + self.variance(others), 1e-300)

    def is_known(self, group: Sequence[int]) -> bool:
        return self.variance(group) < UNKNOWN * float(self.means[np.ix_(group, group)].sum())

    def grown(self, group: tuple[int, ...], free: Sequence[int]) -> tuple[int, ...]:
        """A set with what lowers its ratio most, one after the other, as long as anything does."""
        while rest := [k for k in free if k not in group]:
            best = min(rest, key=lambda k: self.ratio([*group, k]))
            if self.ratio([*group, best]) >= self.ratio(group):
                break
            group = (*group, best)
        return group

    def pruned(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """A set without what is told apart from the rest of it, the clearest first; empty where no two are left."""
        while len(group) > 1:
            clearest = max(group, key=lambda k: self.apart(k, group))
            if self.apart(clearest, group) < FAR_BELOW:
                return group
            group = tuple(k for k in group if k != clearest)
        return ()


def undetermined(components: Components, coefficients: Float[np.ndarray, "m1 draws"]) -> list[tuple[Term, ...]]:
    """The sets of terms whose split is not determined, by draws of the coefficients of f; no term is in two."""
    parts = _unknown(components, coefficients[:, :N_DRAWS])
    free, found = list(range(len(parts.terms))), []
    pairs = [(i, j) for i in free for j in free if i < j]
    for pair in sorted(pairs, key=parts.ratio):
        if set(pair) <= set(free) and parts.errors[pair] < 0.0:
            group = parts.pruned(parts.grown(pair, free))
            if group and parts.is_known(group):
                found.append(tuple(sorted((parts.terms[k] for k in group), key=lambda t: (len(t), t))))
                free = [k for k in free if k not in group]
    return found


def sum_of_squares(
    components: Components, group: Sequence[Term], coefficients: Float[np.ndarray, "m1 draws"]
) -> Float[np.ndarray, " draws"]:
    """‖Σ g‖² over the rows of a set of components, draw by draw."""
    whole = np.zeros(coefficients.shape)
    for term in group:
        own, both, lift = components.made_of(term)
        # what f_T alone adds has no columns twice
        whole[both] += lift @ components.raised(coefficients, term)[own]
    used = np.flatnonzero(whole.any(axis=1))
    return np.maximum(np.sum(whole[used] * (components.joint.gram[np.ix_(used, used)] @ whole[used]), axis=0), 0.0)


def _unknown(components: Components, coefficients: Float[np.ndarray, "m1 draws"]) -> _Parts:
    gram, found = components.joint.gram, []
    raised = components.raised(coefficients)
    for term in components.terms.basis.terms:
        own, both, lift = components.made_of(term)
        parts = lift @ raised[own]
        mean = parts.mean(axis=1)
        away, inner = parts - mean[:, None], gram[np.ix_(both, both)]
        error = float(np.sum(away * (inner @ away))) / away.shape[1]
        if error > UNKNOWN * float(mean @ inner @ mean):
            found.append((error, term, both, mean, away))
    found = sorted(found, key=lambda each: -each[0])[:MOST_PARTS]
    means, errors = np.zeros((2, len(found), len(found)))
    for i, (_, _, rows, mean, away) in enumerate(found):
        for j, (_, _, others, other, moved) in enumerate(found[: i + 1]):
            across: Float[np.ndarray, "u v"] = gram[np.ix_(rows, others)]
            means[i, j] = means[j, i] = mean @ across @ other
            errors[i, j] = errors[j, i] = np.sum(away * (across @ moved)) / away.shape[1]
    return _Parts(tuple(term for _, term, *_ in found), means, errors)
