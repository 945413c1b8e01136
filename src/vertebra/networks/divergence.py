"""KL(q ‖ p) of the posteriors and priors of weights: a rule by their classes, else an estimate from a draw."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PRNGKeyArray

from vertebra.networks.features import n_live, over_features
from vertebra.networks.parameters import overridden
from vertebra.networks.posteriors import Dropout, Gaussian, Members, PointMass, Posterior, check_posterior
from vertebra.networks.priors import GroupLasso, Laplace, Normal, Prior, check_prior, only

# KL(q ‖ p) from q, p, the features that exist (None for all) and a key (None where the rule is exact and has none).
Formula = Callable[..., Float[Array, ""]]
AnyFormula = TypeVar("AnyFormula", bound=Callable)


class _Rule(NamedTuple):
    of: Formula
    is_exact: bool


_RULES: dict[tuple[type[Posterior], type[Prior]], _Rule] = {}


def register_kl(q: type[Posterior], p: type[Prior], *, is_exact: bool = True) -> Callable[[AnyFormula], AnyFormula]:
    """Registers the decorated function, of q, p, `live` and a key, as KL(q ‖ p) of these two classes.

    It holds for their subclasses too, unless a rule of their own is nearer: that of q is looked for first. A rule that
    is not exact is unbiased, and draws with the key.

    >>> class Shifted(vb.distributions.Prior):
    ...     def sample(self, key, d, r, *, live=None):
    ...         return 1.0 + jr.normal(key, (d, r))
    >>> @vb.distributions.register_kl(vb.PointMass, Shifted)
    ... def _(q, p, live, key):
    ...     return 0.5 * jnp.sum(vb.distributions.over_features((q.mean - 1.0) ** 2, live))
    >>> print(vb.kl(vb.PointMass(jnp.zeros((1, 4))), Shifted()))
    2.0
    """

    def register(formula: AnyFormula) -> AnyFormula:
        _RULES[q, p] = _Rule(formula, is_exact)
        return formula

    return register


def kl(
    q: Posterior, p: Prior, *, live: Float[Array, " r"] | None = None, key: PRNGKeyArray | None = None
) -> Float[Array, ""]:
    """KL(q ‖ p), summed over V.

    Exact where an exact rule is registered for the two classes: a Gaussian against a normal or a Laplace prior, and
    rules of `vb.distributions.register_kl`. Else unbiased, from one draw, which needs `key`: log q(V) − log p(V), or
    −log p(V) less the entropy of q where q knows it. `vb.distributions.kl_is_exact` says which.

    A point mass has no density. There it is no divergence but the penalty that the prior stands for, `p.cost(V)`, which
    is −log p(V) up to a constant: + log p(0) of the shipped priors, none unless a prior of your own has a `cost`. For
    dropout it is the mean of that over the coins, exact against the shipped priors, else from a draw of them; their
    entropy depends on the rate alone, and is left out. For members it is the mean over them; their log k is left out.

    `live` marks with 1 the features that exist; the others, padding, do not count.

    >>> q = vb.distributions.Gaussian(vb.distributions.Diagonal(jnp.zeros((1, 2))), mean=jnp.array([[1.0, 2.0]]))
    >>> print(vb.kl(q, vb.Normal()))  # ½ ‖μ‖², as the variances are the prior's
    2.5
    """
    check_posterior(q)
    check_prior(p)
    rule = _rule(q, p)
    if key is None and not rule.is_exact:
        raise ValueError(
            f"`key` is needed: KL of a {type(q).__name__} against a {type(p).__name__} is estimated from a draw."
        )
    return rule.of(q, p, live, key)


def kl_is_exact(q: Posterior, p: Prior) -> bool:
    """Whether KL(q ‖ p) has a rule that is exact; else it is estimated from a draw.

    >>> q = vb.distributions.Gaussian("diagonal")
    >>> vb.distributions.kl_is_exact(q, vb.Normal()), vb.distributions.kl_is_exact(q, vb.GroupLasso())
    (True, False)
    """
    return _rule(q, p).is_exact


def check_pair(q: Posterior, p: Prior) -> None:
    """Refuses q and p of which KL(q ‖ p) is not known."""
    check_posterior(q)
    check_prior(p)
    if (rule := _rule(q, p)) in _COSTS and not overridden(p, Prior, ("log_prob", "cost")):
        raise TypeError(
            f"A {type(q).__name__} pays the `cost` of its prior, and {type(p).__name__} has none: give it a "
            "`log_prob`, of which −log p(V) is the cost, or a `cost`."
        )
    if rule is not _FROM_A_DRAW:
        return
    lacking = [type(p).__name__] if not overridden(p, Prior, ("log_prob",)) else []
    if not overridden(q, Posterior, ("log_prob", "entropy")):
        lacking.insert(0, type(q).__name__)
    if lacking:
        raise TypeError(
            f"KL(q ‖ p) of the posterior {type(q).__name__} and the prior {type(p).__name__} is not known: give "
            f"{' and '.join(lacking)} a `log_prob`, or register a rule with vb.distributions.register_kl."
        )


def _rule(q: Posterior, p: Prior) -> _Rule:
    """The nearest rule, by the class of q first."""
    pairs = ((own, other) for own in type(q).__mro__ for other in type(p).__mro__)
    return next((_RULES[pair] for pair in pairs if pair in _RULES), _FROM_A_DRAW)


def _from_a_draw(q: Posterior, p: Prior, live: Float[Array, " r"] | None, key: PRNGKeyArray) -> Float[Array, ""]:
    """log q(V) − log p(V) at a draw of V; the first without noise where the entropy is known."""
    v, entropy = q.sample(key), q.entropy(live)
    log_q = q.log_prob(v, **only(live)) if entropy is None else -entropy
    return log_q - p.log_prob(v, **only(live))


_FROM_A_DRAW = _Rule(_from_a_draw, is_exact=False)


@register_kl(Gaussian, Normal)
def _(q: Gaussian, p: Normal, live, key):
    # ½ Σ_j [ tr Σ_j/s² + ‖μ_j‖²/s² − r + r log s² − log|Σ_j| ]
    r = n_live(q.mean, live)
    sd = p.sd(r)
    second = over_features(q.covariance.variances() + q.mean**2, live) / sd**2
    return 0.5 * jnp.sum(second - r + 2.0 * r * jnp.log(sd) - q.covariance.log_det(live))


@register_kl(Gaussian, Laplace)
def _(q: Gaussian, p: Laplace, live, key):
    # E|v|/b + log 2b − entropy, with the folded normal's mean E|v| = σ√(2/π) e^{−μ²/2σ²} + μ(1 − 2Φ(−μ/σ))
    scale, sd = p.scale.value, jnp.sqrt(q.covariance.variances())
    z, n_weights = q.mean / sd, q.mean.shape[0] * n_live(q.mean, live)
    absolute = sd * math.sqrt(2.0 / math.pi) * jnp.exp(-0.5 * z**2) + q.mean * (1.0 - 2.0 * ndtr(-z))
    return jnp.sum(over_features(absolute, live)) / scale + n_weights * jnp.log(2.0 * scale) - q.entropy(live)


@register_kl(PointMass, Prior)
def _(q: PointMass, p: Prior, live, key):
    return p.cost(q.mean, **only(live))


@register_kl(Dropout, Prior, is_exact=False)
def _(q: Dropout, p: Prior, live, key):
    return p.cost(q.sample(key), **only(live))


@register_kl(Members, Prior)
def _(q: Members, p: Prior, live, key):
    # (1/k) Σ_m −log p(V_m), up to a constant
    members = jnp.arange(q.k)
    return jnp.mean(jax.vmap(lambda m: p.cost(q.member(m), **only(live)))(members))


# Rules for any prior, which ask for its cost.
_COSTS = (_RULES[PointMass, Prior], _RULES[Dropout, Prior], _RULES[Members, Prior])


@register_kl(Members, Normal)
def _(q: Members, p: Normal, live, key):
    # ½ Σ W²_ji (1/k) Σ_m F²_mji / s², where F² of rank one is a product of squares: no V_m is written down
    if q.rank > 1:
        return _COSTS[2].of(q, p, live, key)
    squares = jnp.einsum("kd,kr->dr", q.left[:, 0] ** 2, q.right[:, 0] ** 2) / q.k
    return p.cost(q.matrix * jnp.sqrt(squares), live=live)


@register_kl(Dropout, Normal)
@register_kl(Dropout, Laplace)
@register_kl(Dropout, GroupLasso)
def _(q: Dropout, p: Prior, live, key):
    # These costs are sums over features, and 0 of a feature that its coin turns off.
    keep = 1.0 - q.rate.value
    return keep * p.cost(q.mean / keep, live=live)
