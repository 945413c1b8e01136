"""Kernels K(x, x') for inducing-point blocks, and the dual kernels that random features approach.

A kernel takes one vector x and one vector z; `kernel.columns(z, x)` takes rows z and columns x, as the blocks need.
Hyper-parameters are positive and trained on the log scale. Length scales left out become √p, the typical distance
between standardised rows, when the kernel meets its number of inputs in `init`.

>>> kernel = vb.RBF(lengthscale=1.0) + vb.Linear()
>>> round(float(kernel(jnp.array([1.0]), jnp.array([2.0]))), 2)  # exp(−½) + 2 + 1
3.61
"""

from vertebra.networks.kernels import (
    RBF,
    Dual,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Product,
    Scaled,
    Stationary,
    Sum,
    log_positive,
)

__all__ = [
    "RBF",
    "Dual",
    "Kernel",
    "Linear",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "Scaled",
    "Stationary",
    "Sum",
    "log_positive",
]
