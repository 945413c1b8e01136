"""Schemes, each a list of layers; users find it as `vertebra.schemes`."""

import math
import numbers
from collections.abc import Sequence

from vertebra.networks.blocks import InducingPointBlock, RandomFeatureBlock
from vertebra.networks.embeddings import ByKind, PeriodicBlock, RobustScaling
from vertebra.networks.kernels import RBF, Kernel, Matern
from vertebra.networks.layer import Layer
from vertebra.networks.posteriors import Dropout, Gaussian, Members, PointMass, Posterior
from vertebra.networks.priors import GroupLasso, Normal


def mc_dropout(widths: Sequence[int], *, rate: float = 0.05) -> list[Layer]:
    """FB alone, q a mixture of two point masses: MC dropout (Gal & Ghahramani), Fig. 1(e).

    >>> first, last = vb.mc_dropout([8, 1], rate=0.1)
    >>> print(first.width, first.posterior.rate.value)
    8 0.1
    """
    return [Layer(d, posterior=Dropout(rate), prior=_plain(), bias=True) for d in _checked(widths)]


def mean_field(widths: Sequence[int]) -> list[Layer]:
    """FB alone, q a diagonal Gaussian: the plain Bayesian neural network.

    >>> [type(layer.posterior.covariance).__name__ for layer in vb.mean_field([8, 1])]
    ['Diagonal', 'Diagonal']
    """
    return [Layer(d, posterior=Gaussian("diagonal"), prior=_plain(), bias=True) for d in _checked(widths)]


def random_features(
    widths: Sequence[int],
    *,
    r: int = 100,
    kernel: RBF | Matern | None = None,
    activation: str = "relu",
    posterior: Posterior | None = None,
    orthogonal: bool = False,
) -> list[Layer]:
    """RB + FB in every layer: the random-feature deep GP (Cutajar et al.), Fig. 1(d).

    >>> [layer.features[0].r for layer in vb.random_features([8, 1], r=50, kernel=vb.RBF())]
    [50, 50]
    """
    block = RandomFeatureBlock(r, activation, kernel=kernel, orthogonal=orthogonal, bias=kernel is None)
    return [Layer(d, [block], posterior or Gaussian("diagonal"), Normal()) for d in _checked(widths)]


def deep_random_features(
    widths: Sequence[int], *, r: int = 100, n_blocks: int = 2, activation: str = "relu"
) -> list[Layer]:
    """Several RBs then FB (Daniely et al.), Fig. 1(f). Only the top function block is uncertain: f is linear in V.

    >>> [len(layer.features) for layer in vb.deep_random_features([8, 1], n_blocks=3)]
    [3, 3]
    """
    if n_blocks < 1:
        raise ValueError(f"`n_blocks` must be at least 1, got {n_blocks!r}.")
    amplitude = math.sqrt(2.0) if activation == "relu" else 1.0  # keeps the scale: E relu(z)² = ½ for z ~ N(0, 1)
    first = RandomFeatureBlock(r, activation, amplitude=amplitude, bias=True)
    blocks = [first, *[RandomFeatureBlock(r, activation, amplitude=amplitude, lengthscale=1.0)] * (n_blocks - 1)]
    *below, top = _checked(widths)
    return [
        *(Layer(d, blocks, PointMass(), Normal()) for d in below),
        Layer(top, blocks, Gaussian(spread=0.0), Normal()),
    ]


def deep_kernel_learning(widths: Sequence[int], *, r: int | None = None, kernel: Kernel | None = None) -> list[Layer]:
    """Point-mass layers under a Gaussian-process last layer (Wilson et al.), Fig. 1(g). f is linear in V.

    The last layer is FB alone, as the paper's text says, or with `r` inducing points FB + IPB, as its figure draws.

    >>> [type(layer.posterior).__name__ for layer in vb.deep_kernel_learning([8, 8, 1])]
    ['PointMass', 'PointMass', 'Gaussian']
    """
    if r is None and kernel is not None:
        raise ValueError("`kernel` is for inducing points: give their number `r` with it.")
    *below, top = _checked(widths)
    blocks = [] if r is None else [InducingPointBlock(r, kernel, residual="diagonal")]
    last = Layer(top, blocks, Gaussian(spread=0.0), Normal() if blocks else _plain(), bias=True)
    return [*(Layer(d, posterior=PointMass(), prior=_plain(), bias=True) for d in below), last]


def deep_ensemble(widths: Sequence[int], *, scale: float = 10.0) -> list[Layer]:
    """Deep kernel learning under a loose prior, N(0, scale²/r), from small weights: a member of an ensemble.

    Alone such a network fits its rows too well and is too sure. Many of them, each without some of the rows, are to be
    averaged, and the noise taken from rows that they had not seen: `vertebra.fit(…, folds=…)` trains them so and says
    in `Fitted.unseen` which rows these were, and the estimators' `scheme="deep_ensemble"` does all of it.

    >>> first, last = vb.deep_ensemble([50, 1], scale=10.0)
    >>> print(first.prior.sd(100))
    1.0
    """
    *below, top = _checked(widths)
    prior, small = Normal(scale, fan_in=True), PointMass(spread=1.0 / scale)
    last = Layer(top, posterior=Gaussian(sd=0.1 / scale, spread=0.0), prior=prior, bias=True)
    return [*(Layer(d, posterior=small, prior=prior, bias=True) for d in below), last]


def tabular(
    widths: Sequence[int],
    *,
    scale: float = 3.0,
    r: int = 16,
    frequency: float = 0.2,
    levels: int = 25,
    members: int = 1,
) -> list[Layer]:
    """Embedded inputs under a deep ensemble's layers, for a skeleton with a node per input (`vertebra.embedded`).

    The first layer scales its input and gives it `r` periodic features of trained frequencies, or one for each of up to
    `levels` codes 0, 1, …, and a small dense layer (PBLD, Holzmüller et al. 2024); for it build with `x`. The others
    are those of `deep_ensemble`; with more `members` than one all of them share matrices (`Members`, as in TabM).

    >>> skeleton = vb.embedded(vb.chain(3, 2, activation="silu"))
    >>> layers = vb.tabular([8, 64, 1])
    >>> vb.build(skeleton, layers, key=jr.key(0), x=np.random.default_rng(0).normal(size=(50, 3))).n_outputs
    1
    """
    first, *above = _checked(widths)
    if not above:
        raise ValueError("`widths` must have at least two entries, that of the embeddings first, got one.")
    embedding = [RobustScaling(levels=levels), ByKind(PeriodicBlock(r, frequency=frequency), levels)]
    top, spread = deep_ensemble(above, scale=scale)[-1], 1.0 / scale
    q = PointMass(spread=spread) if members == 1 else Members(members, scale=spread)
    below = [Layer(d, posterior=q, prior=top.prior, bias=True) for d in above[:-1]]
    return [Layer(first, embedding, q, top.prior, bias=True), *below, top]


def inducing_points(
    widths: Sequence[int], *, r: int = 50, kernel: Kernel | None = None, residual: bool = True
) -> list[Layer]:
    """IPB + FB in every layer: the doubly stochastic deep GP (Salimbeni & Deisenroth), for any kernel.

    Layers below the top have a linear mean function and start nearly deterministic, as there. A skeleton with
    activation="identity" gives their model; others put σ between the layers, as the paper allows.

    >>> [layer.mean for layer in vb.inducing_points([3, 1], r=20, kernel=vb.Matern())]
    ['linear', None]
    """
    block = InducingPointBlock(r, kernel, residual="diagonal" if residual else None)
    *below, top = _checked(widths)
    inner = [Layer(d, [block], Gaussian(sd=1e-2, spread=0.0), Normal(), mean="linear") for d in below]
    return [*inner, Layer(top, [block], Gaussian(spread=0.0), Normal(), bias=True)]


def select_inputs(layers: Sequence[Layer], *, penalty: float = 1.0) -> list[Layer]:
    """The same layers behind AddNN's first layer: FB alone, a point mass, with a group lasso over the inputs.

    >>> first, last = vb.select_inputs(vb.mean_field([8, 1]), penalty=2.0)
    >>> type(first.prior).__name__
    'GroupLasso'
    """
    first, *rest = layers
    return [Layer(first.width, posterior=PointMass(), prior=GroupLasso(penalty), bias=True), *rest]


def _checked(widths: Sequence[int]) -> list[int]:
    if not widths or any(not isinstance(d, numbers.Integral) or d < 1 for d in widths):
        raise ValueError(f"`widths` must hold one whole width of at least 1 per layer, got {list(widths)}.")
    return list(widths)


def _plain() -> Normal:
    """N(0, 1/r), for weights on features that are not scaled by 1/√r themselves."""
    return Normal(fan_in=True)
