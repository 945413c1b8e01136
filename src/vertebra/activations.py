"""Activations σ by name, and their duals: E σ(u) σ(v) for (u, v) jointly normal about zero.

The dual is what an activation does to a covariance in a network of infinite width (eq. 2 of the paper): in closed form
where one is known, by quadrature otherwise.

>>> round(float(vb.activations.dual("relu")(*jnp.array([1.0, 0.5, 1.0]))), 3)
0.304
"""

from vertebra.networks.activations import (
    ACTIVATIONS,
    DUALS,
    Activation,
    DualActivation,
    PolynomialActivation,
    arc_cosine_0,
    arc_cosine_1,
    as_activation,
    dual,
    hermite,
    monomial,
)

__all__ = [
    "ACTIVATIONS",
    "DUALS",
    "Activation",
    "DualActivation",
    "PolynomialActivation",
    "arc_cosine_0",
    "arc_cosine_1",
    "as_activation",
    "dual",
    "hermite",
    "monomial",
]
