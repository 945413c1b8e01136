"""Naive references, written with loops, one node and one edge at a time. Slow, and meant to be read."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vertebra.distributions import Full, Gaussian, LowRank, Normal
from vertebra.networks.blocks import InducingPointBlock
from vertebra.networks.parameters import Fixed

ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "sin": np.sin,
}


def value(parameter):
    return np.asarray(parameter.value if isinstance(parameter, Fixed) else parameter)


def random_features(block, node, x):
    """φ_j = amplitude σ_K(xᵀw_j + b_j)/√r, feature by feature."""
    base, log_lengthscale = value(block.base)[node], value(block.log_lengthscale)[node]
    amplitude = np.exp(value(block.log_amplitude)[node])
    phi = []
    for j in range(len(base)):
        angle = sum(x[i] * base[j, i] / np.exp(log_lengthscale[i]) for i in range(len(x)))
        if block.offset is not None:
            angle += value(block.offset)[node][j]
        phi.append(angle)
    phi = np.array(phi)
    if block.degrees is None:
        phi = ACTIVATIONS[block.activation](phi)
    else:
        phi = np.sqrt(2.0) * np.concatenate([np.cos(phi), np.sin(phi)])
    return amplitude * phi / np.sqrt(block.r)


def rbf_kernel(block, node):
    """K(a, b) = variance · exp(−½ Σ_i ((a_i − b_i)/lengthscale_i)²) of an inducing-point block's node."""
    lengthscale = np.exp(np.asarray(block.kernel.log_lengthscale)[node])
    variance = np.exp(np.asarray(block.kernel.log_variance)[node])
    return lambda a, b: variance * np.exp(-0.5 * sum(((a[i] - b[i]) / lengthscale[i]) ** 2 for i in range(len(a))))


def gram(kernel, a, b):
    """K(a, b) for rows a and b, entry by entry."""
    return np.array([[kernel(row, other) for other in b] for row in a])


def inducing_points(block, node, x):
    """φ = L⁻¹ K(Z, x) for an RBF kernel, entry by entry."""
    z, kernel = np.asarray(block.z)[node], rbf_kernel(block, node)
    jitter = block.jitter * np.exp(np.asarray(block.kernel.log_variance)[node])
    root = np.linalg.cholesky(gram(kernel, z, z) + jitter * np.eye(len(z)))
    return np.linalg.solve(root, gram(kernel, z, [x])[:, 0])


def stack_of(level, place, n_before):
    """The stack that has the blocks of a node, and which of its nodes it is, from its place in the layer."""
    for part, places in zip(level.parts, getattr(level, "places", ()), strict=False):
        if place in places:
            return part, places.index(place)
    return level, n_before


def algorithm_1(network, weights, x):
    """N(S) at one row x for given weights, `weights[layer][node]` of shape (d, r): the loops of Algorithm 1."""
    skeleton = network.skeleton
    below = {name: np.array([x[i]]) for i, name in enumerate(skeleton.inputs)}
    sigma = dict.fromkeys(skeleton.inputs, "identity")
    for layer, level, drawn in zip(skeleton.layers, network.stacks, weights, strict=True):
        above = {}
        n_before = 0
        for place, node in enumerate(layer):
            reads = []
            for parent in node.parents:
                reads.extend(ACTIVATIONS[sigma[parent]](below[parent]))
            phi = np.array(reads)
            if node.activation == "copy":
                above[node.name] = phi
                continue
            stack, i = stack_of(level, place, n_before)
            b = i if stack.ties is None else stack.ties[i]
            if stack.mean is not None:
                skip = value(stack.mean)[b][:, : len(phi)] @ phi
            # Nodes with fewer parents are padded at the end: the naive node has only its own inputs.
            for block in stack.features:
                width = (np.asarray(block.z) if isinstance(block, InducingPointBlock) else value(block.base)).shape[-1]
                phi = np.concatenate([phi, np.zeros(width - len(phi))])
                phi = (inducing_points if isinstance(block, InducingPointBlock) else random_features)(block, b, phi)
            v = drawn[n_before]
            n_before += 1
            f = np.array([sum(phi[k] * v[j, k] for k in range(len(phi))) for j in range(len(v))])
            if stack.function.bias is not None:
                f = f + np.asarray(stack.function.bias)[b]
            if stack.mean is not None:
                f = f + skip
            above[node.name] = f
        below, sigma = above, {n.name: "identity" if n.activation == "copy" else n.activation for n in layer}
    return np.concatenate([sum(below[parent] for parent in output.parents) for output in skeleton.outputs])


def kl_normal(network):
    """KL of Gaussian posteriors against normal priors, node by node, from dense covariances, without padding."""
    total = 0.0
    for parents, stack, below in zip(
        network.skeleton.parents, network.stacks, [None, *network.stacks[:-1]], strict=True
    ):
        q, p = stack.function.posterior, stack.function.prior
        assert isinstance(q, Gaussian)
        assert isinstance(p, Normal)
        mean = np.asarray(q.mean, np.float64)
        width_below = 1 if below is None else below.function.posterior.mean.shape[1]
        for i in range(len(mean)):
            n_live = mean.shape[2] if stack.features else len(parents[i]) * width_below
            sd = value(p.scale)[i] / (np.sqrt(n_live) if p.fan_in else 1.0)
            for j in range(mean.shape[1]):
                sigma = covariance(q.covariance, i, j)[:n_live, :n_live]
                mu = mean[i, j, :n_live]
                total += 0.5 * (
                    np.trace(sigma) / sd**2
                    + mu @ mu / sd**2
                    - n_live
                    + n_live * np.log(sd**2)
                    - np.linalg.slogdet(sigma)[1]
                )
    return total


def covariance(c, i, j):
    """Σ_j of node i as a matrix."""
    if isinstance(c, Full):
        raw = np.asarray(c.raw, np.float64)[i, j]
        upper = np.triu(raw, 1) + np.diag(np.exp(np.diag(raw)))
        return upper.T @ upper
    diagonal = np.diag(np.exp(2.0 * np.asarray(c.log_sd, np.float64)[i, j]))
    if isinstance(c, LowRank):
        u = np.asarray(c.directions, np.float64)[i, j]
        return diagonal + u @ u.T
    return diagonal


class GPLayer(NamedTuple):
    """One layer of a deep GP after Salimbeni & Deisenroth (2017), not whitened: d functions with one kernel.

    Function j has inducing outputs u_j ~ q = N(m_j, S_j) at the points Z, and the prior N(0, K(Z, Z)).
    """

    kernel: Callable  # K(a, b) of two vectors
    sigma: str  # what the layer does to its inputs first; Z lies among the results
    z: np.ndarray  # (r, p)
    m: np.ndarray  # (d, r)
    s: np.ndarray  # (d, r, r)
    jitter: float = 0.0  # added to the diagonal of K(Z, Z) wherever it stands
    exact: bool = True  # False drops K(x, x) − Q(x, x), Q = K(x, Z) K(Z, Z)⁻¹ K(Z, x): what Theorem 3 calls the offset

    @property
    def prior(self):
        """K(Z, Z)."""
        return gram(self.kernel, self.z, self.z) + self.jitter * np.eye(len(self.z))

    def offset(self, rows):
        """K(x, x') − Q(x, x') between all rows: what the points cannot tell of the prior."""
        x = ACTIVATIONS[self.sigma](rows)
        cross = gram(self.kernel, x, self.z)
        return gram(self.kernel, x, x) - cross @ np.linalg.solve(self.prior, cross.T)

    def posterior(self, rows):
        """Mean (d, n) and covariance (d, n, n) of q(F) at the rows of the layer below.

        K(x, Z) K(Z, Z)⁻¹ m_j and K(x, x) − K(x, Z) K(Z, Z)⁻¹ (K(Z, Z) − S_j) K(Z, Z)⁻¹ K(Z, x)
        """
        x = ACTIVATIONS[self.sigma](rows)
        cross, prior = gram(self.kernel, x, self.z), self.prior
        alpha = np.linalg.solve(prior, cross.T)
        means, covariances = [], []
        for m, s in zip(self.m, self.s, strict=True):
            means.append(alpha.T @ m)
            if self.exact:
                covariances.append(gram(self.kernel, x, x) - alpha.T @ (prior - s) @ alpha)
            else:
                covariances.append(alpha.T @ s @ alpha)
        return np.array(means), np.array(covariances)

    def kl(self):
        """Σ_j KL(N(m_j, S_j) ‖ N(0, K(Z, Z)))."""
        prior, total = self.prior, 0.0
        for m, s in zip(self.m, self.s, strict=True):
            total += 0.5 * (
                np.trace(np.linalg.solve(prior, s))
                + m @ np.linalg.solve(prior, m)
                - len(m)
                + np.linalg.slogdet(prior)[1]
                - np.linalg.slogdet(s)[1]
            )
        return total


def doubly_stochastic(layers, x, noise):
    """Mean and variance, (n, d), of the top layer's q(f) at each row, given ε, (d, n), for each layer below the top.

    Row i of a layer needs row i of the layer below alone: F_ij = mean_ij + √variance_ij ε_ji.
    """
    rows = x
    for layer, epsilon in zip(layers, [*noise, None], strict=True):
        mean, variance = np.zeros((2, len(rows), len(layer.m)))
        for i in range(len(rows)):
            centre, covariance = layer.posterior(rows[i : i + 1])
            mean[i], variance[i] = centre[:, 0], covariance[:, 0, 0]
        if epsilon is not None:
            rows = mean + np.sqrt(variance) * epsilon.T
    return mean, variance


def doubly_stochastic_elbo(layers, x, y, noise, scale):
    """Σ_ij E_q log N(y_ij; f_ij, scale_j²) − Σ_layers KL(q(U) ‖ p(U)), given the noise below the top layer."""
    mean, variance = doubly_stochastic(layers, x, noise)
    total = 0.0
    for i in range(len(y)):
        for j in range(len(y[i])):
            square = (y[i, j] - mean[i, j]) ** 2 + variance[i, j]  # E (y − f)²
            total += -0.5 * np.log(2.0 * np.pi * scale[j] ** 2) - 0.5 * square / scale[j] ** 2
    return total - sum(layer.kl() for layer in layers)


def anova(f, x):
    """Eq. (5) as it stands: every I_T on the grid of the n values of its inputs, from f at all n^p combinations."""
    n, p = x.shape
    values = [np.sort(x[:, i]) for i in range(p)]
    grid = np.stack([g.ravel() for g in np.meshgrid(*values, indexing="ij")], axis=1)
    whole = np.asarray(f(grid)).reshape((n,) * p)
    components = {}
    for size in range(p + 1):
        for term in itertools.combinations(range(p), size):
            part = whole
            for i in range(p):
                mean = part.mean(axis=i, keepdims=True)
                part = part - mean if i in term else mean
            components[term] = part.reshape((n,) * size)
    return components
