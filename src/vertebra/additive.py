"""The additive network in closed form: structure found by tests, one sub-network of polynomial features per cluster,
the joint Gaussian posterior of all weights, hyper-parameters by evidence and averaged over.

For Bernoulli and categorical targets the same on the working response of iterated reweighting: Laplace's approximation.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax

from vertebra.blocks import PolynomialBlock
from vertebra.distributions import Full, Gaussian, Normal
from vertebra.evidence import Basis, Products, averaged, basis_of, products_of, root_of, with_constant
from vertebra.likelihoods import Bernoulli, Categorical, Likelihood
from vertebra.likelihoods import Gaussian as GaussianLikelihood
from vertebra.network import Layer, Network, build, pile
from vertebra.polynomials import Polynomials, Term, maximal, orthonormal, subsets
from vertebra.skeleton import additive
from vertebra.structure import Rows, Structure, search

# Weights of the working response below this share of their largest value tell nothing but rounding.
LEAST_WEIGHT = 1e-3
N_REWEIGHTINGS = 12


class Additive(NamedTuple):
    """A fitted additive network, its likelihood, and what was found out about its terms, output by output."""

    network: Network
    likelihood: Likelihood
    structures: tuple[Structure, ...]
    clusters: tuple[Term, ...]


class _Fitted(NamedTuple):
    """The coefficients of one output, with the constant first."""

    mean: Float[np.ndarray, " m1"]
    covariance: Float[np.ndarray, "m1 m1"]
    prior_sd: Float[np.ndarray, " m"]
    noise_variance: float


def fit_gaussian(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    *,
    rng: np.random.Generator,
    report: Callable[[str], None] = lambda _: None,
    clusters: Sequence[Term] | None = None,
    within: Sequence[Term] | None = None,
) -> Additive:
    """Gaussian noise. Each output has its own tests, smoothness and noise; they share the clusters.

    `clusters` are found unless given, `within` some sets of inputs where these are given; a constant target has none.
    """
    polynomials = orthonormal(x, weight)
    rows = [Rows(polynomials, polynomials(x), target, weight) for target in y.T]
    structures, basis = _structure(rows, clusters, within, report)
    report("averaging over the hyper-parameters")
    fitted = [_fit_rows(basis, each, rng) for each in rows]
    scales = np.sqrt([max(f.noise_variance, 1e-12) for f in fitted])
    likelihood = GaussianLikelihood(scales)
    return _assemble(basis, fitted, structures, likelihood, x.shape[1])


def fit_classes(
    x: Float[np.ndarray, "n p"],
    codes: np.ndarray,
    n_classes: int,
    weight: Float[np.ndarray, " n"],
    *,
    rng: np.random.Generator,
    report: Callable[[str], None] = lambda _: None,
    clusters: Sequence[Term] | None = None,
    within: Sequence[Term] | None = None,
) -> Additive:
    """Two classes: one logit of the second. More: a logit each, whose weights are taken as independent given η."""
    polynomials = orthonormal(x, weight)
    values = polynomials(x)
    n_outputs = 1 if n_classes == 2 else n_classes
    hits = codes[:, None] == (np.arange(n_classes) if n_outputs > 1 else 1)
    hits = hits.astype(float)
    share = np.clip(weight @ hits / weight.sum(), 1e-3, 1.0 - 1e-3)
    eta = np.tile(np.log(share / (1.0 - share)) if n_outputs == 1 else np.log(share), (len(x), 1))
    working = _working(polynomials, values, hits, eta, weight)
    # Structure at the constant, a fit of it, and structure again at that fit, whose weights are nearer the truth.
    structures, basis = _structure(working, clusters, within, report)
    posteriors = None
    for _ in range(2 if clusters is None else 1):
        for _ in range(N_REWEIGHTINGS):
            working = _working(polynomials, values, hits, eta, weight)
            posteriors = [_fit_rows(basis, each, rng, average=False) for each in working]
            before, eta = eta, _predict(basis, values, posteriors)
            if np.max(np.abs(eta - before)) < 1e-2:
                break
        if clusters is None:
            working = _working(polynomials, values, hits, eta, weight)
            structures, again = _structure(working, None, within, report)
            if again.terms == basis.terms:
                break
            basis = again
    report("averaging over the hyper-parameters")
    fitted = [_fit_rows(basis, each, rng) for each in _working(polynomials, values, hits, eta, weight)]
    likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
    return _assemble(basis, fitted, structures, likelihood, x.shape[1])


def _structure(rows: list[Rows], clusters, within, report) -> tuple[tuple[Structure, ...], Basis]:
    """The terms of all outputs together, with all their subsets."""
    if clusters is None:
        report("testing terms")
        structures = tuple(search(each, within=within, n_families=len(rows)) for each in rows)
        terms = {term for structure in structures for term in structure.terms}
    else:
        terms = subsets(clusters)
        structures = tuple(search(each, terms=terms) for each in rows)
    polynomials = rows[0].polynomials
    return structures, basis_of(polynomials, [t for t in subsets(terms) if all(polynomials.degree[i] > 0 for i in t)])


def _fit_rows(basis: Basis, rows: Rows, rng, *, average: bool = True) -> _Fitted:
    phi = basis(rows.values)
    products = products_of(phi, rows.y, rows.weight, rows.noise_variance)
    if products.square <= 1e-20 * max(products.mean_y**2, 1e-300) * products.n:
        return _constant(products)
    posterior = averaged(basis, products, rng=rng, n_draws=24 if average else 0)
    mean, covariance = with_constant(posterior, products, float(rows.weight.sum()))
    return _Fitted(mean, covariance, posterior.prior_sd, posterior.noise_variance)


def _constant(products: Products) -> _Fitted:
    """A target that does not vary: nothing to learn, and no noise to see."""
    m = len(products.cross)
    mean = np.append(products.mean_y, np.zeros(m))
    tiny = 1e-12 * max(products.mean_y**2, 1e-12)
    return _Fitted(mean, np.diag(np.full(m + 1, tiny)), np.ones(m), tiny)


def _working(polynomials, values, hits, eta, weight) -> list[Rows]:
    """z = η + (y − p)/w with weights w = p(1 − p), one per output."""
    p = expit(eta) if eta.shape[1] == 1 else softmax(eta, axis=1)
    w = p * (1.0 - p)
    w = np.maximum(w, LEAST_WEIGHT * w.max(axis=0))
    z = eta + (hits - p) / w
    return [Rows(polynomials, values, z[:, k], w[:, k] * weight, 1.0) for k in range(eta.shape[1])]


def _predict(basis: Basis, values, fitted: Sequence[_Fitted]) -> Float[np.ndarray, "n k"]:
    phi = basis(values)
    return np.stack([f.mean[0] + phi @ f.mean[1:] for f in fitted], axis=1)


def _assemble(basis: Basis, fitted: Sequence[_Fitted], structures, likelihood, n_inputs: int) -> Additive:
    """N(S) on the additive skeleton of the clusters, with the joint posterior on its top layer."""
    found = maximal(basis.terms)
    clusters = found or ((0,),)  # a constant needs a node to stand on
    home = {term: next(j for j, c in enumerate(clusters) if set(term) <= set(c)) for term in basis.terms}
    size = max(map(len, clusters))
    scale = np.sqrt(np.mean([f.prior_sd**2 for f in fitted], axis=0))
    constant_scale = max(float(np.sqrt(np.max([f.mean[0] ** 2 + f.covariance[0, 0] for f in fitted]))), 1e-12)
    # Where each coefficient goes: (node, place), the constant first.
    degrees = [[np.zeros(size, dtype=int)] if j == 0 else [] for j in range(len(clusters))]
    scales = [[constant_scale] if j == 0 else [] for j in range(len(clusters))]
    places = [(0, 0)]
    for term, block, rows in zip(basis.terms, basis.degrees, basis.slices, strict=True):
        node = home[term]
        for k, s in zip(block, scale[rows], strict=True):
            own = np.zeros(size, dtype=int)
            own[[clusters[node].index(i) for i in term]] = k
            places.append((node, len(degrees[node])))
            degrees[node].append(own)
            scales[node].append(s)
    r = max(map(len, degrees))
    blocks = [
        PolynomialBlock(
            _padded(basis.polynomials.only(cluster), size),
            np.array([*degrees[j], *[np.zeros(size, dtype=int)] * (r - len(degrees[j]))]),
            np.array([*scales[j], *[0.0] * (r - len(scales[j]))]),
        )
        for j, cluster in enumerate(clusters)
    ]
    index = np.array([node * r + place for node, place in places])
    all_scales = np.append(constant_scale, scale)
    means, factors = zip(*(_top(f, index, all_scales, len(clusters) * r) for f in fitted), strict=True)
    skeleton = additive(n_inputs, clusters=clusters, depth=1, activation="identity")
    plain = build(skeleton, [Layer(len(fitted), [blocks[0]], Gaussian(), Normal())], key=jr.key(0))
    network = eqx.tree_at(lambda n: n.stacks[0].features, plain, (pile(blocks),))
    dtype = jnp.result_type(float)
    mean, factor = jnp.asarray(np.stack(means)[None], dtype), jnp.asarray(np.stack(factors)[None], dtype)
    posterior = jax.vmap(lambda m, f: Gaussian(Full.of(f), mean=m))(mean, factor)
    return Additive(network.with_joint_top(posterior, Normal()), likelihood, structures, found)


def _top(fitted: _Fitted, index, scales, size):
    """μ and an upper-triangular R, Rᵀ R = Σ, of the weights v = coefficient/scale; empty places stay N(0, 1)."""
    mean = np.zeros(size)
    mean[index] = fitted.mean / scales
    root = np.eye(size)
    root[index] = 0.0
    root[np.ix_(index, index)] = root_of(fitted.covariance / np.outer(scales, scales))
    upper = np.asarray(np.linalg.qr(root.T, mode="r"))
    upper = upper * np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]
    # A direction without variance: a diagonal that a logarithm can hold.
    np.fill_diagonal(upper, np.maximum(np.diagonal(upper), 1e-12))
    return mean, upper


def _padded(polynomials: Polynomials, size: int) -> Polynomials:
    """With inputs that are not there, of which P_0 = 1 alone is used."""
    missing = size - polynomials.n_inputs
    k = polynomials.transform.shape[1]
    empty = np.zeros((missing, k, k))
    empty[:, 0, 0] = 1.0
    return Polynomials(
        np.append(polynomials.low, np.zeros(missing)),
        np.append(polynomials.width, np.ones(missing)),
        np.concatenate([polynomials.transform, empty]),
        np.append(polynomials.degree, np.zeros(missing, dtype=int)),
    )
