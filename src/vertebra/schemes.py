"""The special cases of the paper as lists of layers: swap one for another, keep the skeleton.

Each takes the widths d¹, …, d^L, one per layer of the skeleton, and returns what `build` needs.

>>> skeleton = vb.chain(n_inputs=3, depth=2)
>>> for scheme in (vb.mc_dropout, vb.mean_field, vb.random_features):
...     network = vb.build(skeleton, scheme([8, 1]), key=jr.key(0))
...     print(scheme.__name__, network.weights()[0].shape)
mc_dropout (1, 8, 3)
mean_field (1, 8, 3)
random_features (1, 8, 100)
"""

from vertebra.networks.schemes import (
    deep_ensemble,
    deep_kernel_learning,
    deep_random_features,
    inducing_points,
    mc_dropout,
    mean_field,
    random_features,
    select_inputs,
    tabular,
)

__all__ = [
    "deep_ensemble",
    "deep_kernel_learning",
    "deep_random_features",
    "inducing_points",
    "mc_dropout",
    "mean_field",
    "random_features",
    "select_inputs",
    "tabular",
]
