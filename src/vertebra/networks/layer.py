"""One layer of Algorithm 1 as its user writes it: feature blocks, posterior, prior."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import numpy as np

from vertebra.machine.checks import check_count
from vertebra.networks.blocks import FeatureBlock, InducingPointBlock
from vertebra.networks.divergence import check_pair
from vertebra.networks.embeddings import BlockOfRows
from vertebra.networks.parameters import is_traced
from vertebra.networks.posteriors import Gaussian, Posterior
from vertebra.networks.priors import Normal, Prior


class Layer(eqx.Module):
    """What Algorithm 1 puts in place of the edges into each node of one layer: (RB or IPB)* then FB.

    The paper's three changes are three fields: `features` (none, one or several blocks in a row), `posterior`, `prior`.

    - `width`: d, how often the function block replicates the node.
    - `bias`: a trained bias b in the function block.
    - `mean="linear"`: a fixed linear skip m(x) added to f: the identity where the sizes agree, else the leading
      principal directions of the data (`build(..., x=x)`) or padding with zeros, as in Salimbeni & Deisenroth.
    - `noise`: the initial sd of Gaussian noise added to f inside the layer, trained; None for none.
    - `joint`: in the top layer, one function block per output over the features of all the nodes it adds, instead of
      one per node, so that a full covariance spans the sub-networks.

    >>> layer = vb.Layer(8, [vb.RandomFeatureBlock(100)], vb.distributions.Gaussian("full"), vb.Normal())
    >>> network = vb.build(vb.chain(3, 1), [layer], key=jr.key(0))
    >>> network.n_outputs
    8
    """

    width: int = eqx.field(static=True)
    features: tuple[FeatureBlock, ...]
    posterior: Posterior
    prior: Prior
    bias: bool = eqx.field(static=True)
    mean: str | None = eqx.field(static=True)
    noise: float | None = eqx.field(static=True)
    joint: bool = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        features: Sequence[FeatureBlock] = (),
        posterior: Posterior | None = None,
        prior: Prior | None = None,
        *,
        bias: bool = False,
        mean: str | None = None,
        noise: float | None = None,
        joint: bool = False,
    ):
        check_count(width=width)
        if mean not in (None, "linear"):
            raise ValueError(f'`mean` must be None or "linear", got {mean!r}.')
        if noise is not None and not 0.0 < noise < np.inf:
            raise ValueError(f"`noise` must be positive and finite, or None for no noise, got {noise!r}.")
        self.width = width
        self.features = tuple(features)
        self.posterior = Gaussian() if posterior is None else posterior
        self.prior = Normal() if prior is None else prior
        check_pair(self.posterior, self.prior)
        self.bias = bias
        self.mean = mean
        self.noise = noise
        self.joint = joint

    @property
    def starts_from_data(self) -> bool:
        """Whether its mean function or its inducing points start where the rows are."""
        return self.mean is not None or any(starts_from_rows(block) for block in self.features)


# What stands on a layer of the skeleton: one Layer for all nodes, or one for each by name.
LayerOrLayers = Layer | Mapping[str, Layer]


def layers_of(layer: LayerOrLayers) -> tuple[Layer, ...]:
    """The layers that stand on a layer of the skeleton: one, or one for each node."""
    if not isinstance(layer, Mapping):
        return (layer,)
    for name, each in layer.items():
        if not isinstance(each, Layer):
            raise TypeError(f"A mapping must have a vb.Layer for each node, got {type(each).__name__} for {name!r}.")
    return tuple(layer.values())


def by_kind(layer: LayerOrLayers, nodes: Mapping[str, int]) -> list[tuple[Layer, tuple[int, ...]]]:
    """The layers that differ, each with the positions of its nodes; `nodes` are those that carry blocks."""
    if not isinstance(layer, Mapping):
        return [(layer, tuple(nodes.values()))]
    if layer.keys() != nodes.keys():
        raise ValueError(
            f"A layer that is a mapping must name the nodes that carry blocks, {', '.join(nodes)}, got "
            f"{', '.join(map(str, layer))}."
        )
    kinds: list[tuple[Layer, list[int]]] = []
    for name, i in nodes.items():
        own = next((places for other, places in kinds if _same(other, layer[name])), None)
        if own is None:
            kinds.append((layer[name], [i]))
        else:
            own.append(i)
    return [(kind, tuple(places)) for kind, places in kinds]


def _same(one: Layer, other: Layer) -> bool:
    """Whether two layers are written alike; of numbers that are traced nobody knows."""
    if one is other:
        return True
    if is_traced(*jax.tree.leaves((one, other))):
        return False
    with jax.ensure_compile_time_eval():  # numbers, while something else is traced
        return bool(eqx.tree_equal(one, other))


def starts_from_rows(block: FeatureBlock) -> bool:
    """Whether a block is built from the rows that it will read."""
    return isinstance(block, InducingPointBlock | BlockOfRows)
