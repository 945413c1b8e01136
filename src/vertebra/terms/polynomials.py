"""Orthonormal polynomials of each input under the empirical marginals, and their products: a basis of the ANOVA.

P_0 = 1 and E^n P_k(x_i) P_l(x_i) = δ_kl for every input i. A product of P_k(x_i), k ≥ 1, over the inputs of a term T
has mean zero along each of them: under the product of the marginals it lies in the component I_T and in no other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Polynomials(NamedTuple):
    """P_0, …, P_K of each input: Legendre polynomials on its range, made orthonormal. Outside it x is clipped."""

    low: Float[np.ndarray, " p"]
    width: Float[np.ndarray, " p"]
    transform: Float[np.ndarray, "p k k"]  # Legendre values times this are P_0, …, P_K; zero beyond an input's degree
    degree: Int[np.ndarray, " p"]  # the highest degree that the distinct values of an input can carry

    @property
    def n_inputs(self) -> int:
        return len(self.low)

    def __call__(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "p n k"]:
        """P_k(x_i) of every row: [i, row, k]."""
        unit = np.clip(2.0 * (x - self.low) / self.width - 1.0, -1.0, 1.0)
        vander = np.polynomial.legendre.legvander(unit.T, self.transform.shape[1] - 1)
        return vander @ self.transform

    def only(self, inputs: Sequence[int]) -> "Polynomials":
        """Those of some inputs."""
        return Polynomials(*(part[list(inputs)] for part in self))


def orthonormal(
    x: Float[np.ndarray, "n p"],
    weight: Float[np.ndarray, " n"],
    degree: int = 12,
    *,
    low: float | None = None,
    width: float | None = None,
) -> Polynomials:
    """The polynomials up to `degree`, or up to what an input's distinct values carry, under the weighted marginals.

    They are written in Legendre polynomials on the range of the values, or on a given one.
    """
    x, weight = x[weight > 0], weight[weight > 0] / weight.sum()
    lows = x.min(axis=0) if low is None else np.full(x.shape[1], low)
    widths = np.ptp(x, axis=0) if width is None else np.full(x.shape[1], width)
    widths = np.where(widths > 0, widths, 1.0)
    transform = np.zeros((x.shape[1], degree + 1, degree + 1))
    degrees = np.zeros(x.shape[1], dtype=int)
    for i, column in enumerate(x.T):
        values, index = np.unique(column, return_inverse=True)
        shares = np.bincount(index, weight)
        k = min(degree, len(values) - 1)
        vander = np.polynomial.legendre.legvander(2.0 * (values - lows[i]) / widths[i] - 1.0, k)
        upper = np.asarray(np.linalg.qr(np.sqrt(shares)[:, None] * vander, mode="r"))
        # A degree that rounding cannot tell from the lower ones is left out.
        k = int(np.argmin(np.append(np.abs(np.diag(upper)) > 1e-6, False))) - 1
        upper = upper[: k + 1, : k + 1]
        transform[i, : k + 1, : k + 1] = np.linalg.inv(upper) * np.sign(np.diag(upper))
        degrees[i] = k
    return Polynomials(lows, widths, transform, degrees)


def gauss_rule(
    values: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"], n_nodes: int
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Nodes and weights that integrate polynomials up to degree 2m − 1 exactly under a weighted sample.

    The sample itself where it has no more than `n_nodes` distinct values. Golub & Welsch: the nodes are the eigenvalues
    of the Jacobi matrix of the sample's orthogonal polynomials, got here by the Lanczos process on its values.
    """
    values, index = np.unique(values[weight > 0], return_inverse=True)
    shares = np.bincount(index, weight[weight > 0] / weight.sum())
    if len(values) <= n_nodes:
        return values, shares
    centre, scale = values.mean(), np.ptp(values) / 2.0
    t = (values - centre) / scale
    alphas, betas, basis = [], [], [np.sqrt(shares)]
    for _ in range(n_nodes):
        v = t * basis[-1]
        alphas.append(basis[-1] @ v)
        for _ in range(2):  # twice: orthogonal to rounding error
            for earlier in basis:
                v = v - (earlier @ v) * earlier
        betas.append(np.linalg.norm(v))
        basis.append(v / betas[-1])
    jacobi = np.diag(alphas) + np.diag(betas[:-1], 1) + np.diag(betas[:-1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return centre + scale * nodes, vectors[0] ** 2
