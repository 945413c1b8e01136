"""Priors p(V), posteriors q(V) and kl(q, p) for the weights V of a function block.

V has the shape (d, r): V[j] is the paper's v_j, the weights into output j, and V[:, i] is what leaves feature i.
A posterior is a recipe until `init` gives it its arrays. `phi` stands for features as columns,
(r,) for one row of data or (r, batch) for many.

Change 2 of the paper: q may be Gaussian, a point mass or a mixture of two (dropout) or of k (members).
Change 3 of the paper: p may be normal, Laplace (ℓ1) or group lasso.
Those of your own derive from `Posterior` and `Prior`.

>>> q = vb.distributions.Gaussian("diagonal").init(3, 2, prior=vb.Normal(), rng=np.random.default_rng(0))
>>> q.mean.shape
(2, 3)
>>> bool(vb.kl(q, vb.Normal()) > 0)
True
"""

from vertebra.networks.covariances import Diagonal, Full, LowRank
from vertebra.networks.divergence import kl, kl_is_exact, register_kl
from vertebra.networks.features import over_features, product
from vertebra.networks.posteriors import Dropout, Gaussian, Members, PointMass, Posterior, check_posterior
from vertebra.networks.priors import GroupLasso, Laplace, Normal, Prior, check_prior, initial_scale

__all__ = [
    "Diagonal",
    "Dropout",
    "Full",
    "Gaussian",
    "GroupLasso",
    "Laplace",
    "LowRank",
    "Members",
    "Normal",
    "PointMass",
    "Posterior",
    "Prior",
    "check_posterior",
    "check_prior",
    "initial_scale",
    "kl",
    "kl_is_exact",
    "over_features",
    "product",
    "register_kl",
]
