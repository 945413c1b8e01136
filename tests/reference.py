"""Naive references, written with loops, one node and one edge at a time. Slow, and meant to be read."""

import numpy as np

from vertebra.blocks import InducingPointBlock
from vertebra.distributions import Full, Gaussian, LowRank, Normal
from vertebra.parameters import Fixed

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


def inducing_points(block, node, x):
    """φ = L⁻¹ K(Z, x) for an RBF kernel, entry by entry."""
    z = np.asarray(block.z)[node]
    lengthscale = np.exp(np.asarray(block.kernel.log_lengthscale)[node])
    variance = np.exp(np.asarray(block.kernel.log_variance)[node])

    def kernel(a, b):
        return variance * np.exp(-0.5 * sum(((a[i] - b[i]) / lengthscale[i]) ** 2 for i in range(len(a))))

    gram = np.array([[kernel(a, b) for b in z] for a in z]) + block.jitter * variance * np.eye(len(z))
    column = np.array([kernel(a, x) for a in z])
    return np.linalg.solve(np.linalg.cholesky(gram), column)


def algorithm_1(network, weights, x):
    """N(S) at one row x for given weights, `weights[layer][node]` of shape (d, r): the loops of Algorithm 1."""
    skeleton = network.skeleton
    below = {name: np.array([x[i]]) for i, name in enumerate(skeleton.inputs)}
    sigma = dict.fromkeys(skeleton.inputs, "identity")
    for layer, stack, drawn in zip(skeleton.layers, network.stacks, weights, strict=True):
        above = {}
        for i, node in enumerate(layer):
            reads = []
            for parent in node.parents:
                reads.extend(ACTIVATIONS[sigma[parent]](below[parent]))
            phi = np.array(reads)
            if stack.mean is not None:
                skip = value(stack.mean)[i][:, : len(phi)] @ phi
            # Nodes with fewer parents are padded at the end: the naive node has only its own inputs.
            for block in stack.features:
                width = (np.asarray(block.z) if isinstance(block, InducingPointBlock) else value(block.base)).shape[-1]
                phi = np.concatenate([phi, np.zeros(width - len(phi))])
                phi = (inducing_points if isinstance(block, InducingPointBlock) else random_features)(block, i, phi)
            v = drawn[i]
            f = np.array([sum(phi[k] * v[j, k] for k in range(len(phi))) for j in range(len(v))])
            if stack.function.bias is not None:
                f = f + np.asarray(stack.function.bias)[i]
            if stack.mean is not None:
                f = f + skip
            above[node.name] = f
        below, sigma = above, {node.name: node.activation for node in layer}
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
