"""log p(V) p(y | V) as a function of one flat vector, for samplers and for expansions about a mode."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from vertebra.inference.arguments import as_rows
from vertebra.inference.curvature import hessian
from vertebra.inference.objective import Counted
from vertebra.likelihoods import Likelihood
from vertebra.networks.network import Network
from vertebra.networks.parameters import in_working_precision
from vertebra.networks.posteriors import PointMass
from vertebra.networks.priors import only
from vertebra.networks.stack import Stack

# Rows whose second derivatives are held at once: those of 100 units that read 100 features are 20 MB.
CHUNK = 512


class LogDensity(eqx.Module):
    """log p(V) p(y | V) of a network, of all its weights V as one vector: every entry of it acts on f.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 2), vb.mean_field([3, 1]), key=jr.key(0))
    >>> density = vb.log_density(network, vb.Gaussian(0.1), x, x)
    >>> import jax
    >>> density.start.shape, jax.hessian(density)(density.start).shape
    ((6,), (6, 6))
    """

    network: Network
    likelihood: Likelihood
    x: Float[Array, "p n"]
    y: Float[Array, "n k"]
    weight: Float[Array, "n j"]
    places: Int[Array, " weights"]  # among the numbers of all layers, those that are no padding
    start: Float[Array, " weights"]  # E V

    def __call__(self, vector: Float[Array, " weights"]) -> Float[Array, ""]:
        return self.log_prior(vector) + self.log_likelihood(vector)

    def log_likelihood(self, vector: Float[Array, " weights"]) -> Float[Array, ""]:
        """log p(y | V), rows by their weights."""
        counted = Counted(self.weight)
        f = counted.latents(self.unflatten(vector).mean(self.x).T)
        return counted.total(self.likelihood.log_prob(f, counted.targets(self.y)))

    def log_prior(self, vector: Float[Array, " weights"]) -> Float[Array, ""]:
        """log p(V)."""
        return sum(self.log_priors(vector), start=jnp.zeros(()))

    def log_priors(self, vector: Float[Array, " weights"]) -> list[Float[Array, ""]]:
        """log p(V) of each layer, or part of one."""

        def of_block(prior, v, live):
            return prior.log_prob(v, **only(None if live is None else live.value))

        blocks = [part.function for part in self.unflatten(vector).parts]
        return [jnp.sum(jax.vmap(of_block)(block.prior, block.posterior.mean, block.live)) for block in blocks]

    @eqx.filter_jit
    def hessian(self, vector: Float[Array, " weights"]) -> Float[Array, "weights weights"]:
        """∇² log p(V) p(y | V), as `jax.hessian` has it, and sooner: by way of the values of units, few beside weights.

        >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
        >>> network = vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
        >>> density = vb.log_density(network, vb.Gaussian(0.1), x, x)
        >>> print(density.hessian(density.start).round(-1))  # −Σ x²/0.01 − 1
        [[-1740.]]
        """
        network, n = self.unflatten(vector), len(self.y)
        n_chunks = -(-n // CHUNK)
        extra = -n % n_chunks  # copies of the last row, of weight 0
        x = jnp.pad(self.x, ((0, 0), (0, extra)), mode="edge")
        y = jnp.pad(self.y, ((0, extra), (0, 0)), mode="edge")
        weight = jnp.pad(self.weight, ((0, extra), (0, 0)))

        def of_rows(so_far, some):
            x, y, weight = some
            counted = Counted(weight)
            y = counted.targets(y)
            total = lambda f: counted.total(self.likelihood.log_prob(counted.latents(f.T), y))  # noqa: E731
            return so_far + hessian(network, x.T, total), None

        some = [rows.reshape(n_chunks, -1, rows.shape[1]) for rows in (x.T, y, weight)]
        size = sum(math.prod(part.shape) for part in network.parts)
        curved, _ = jax.lax.scan(of_rows, jnp.zeros((size, size), vector.dtype), some)
        if len(vector) < size:
            curved = curved[self.places[:, None], self.places]
        return curved + jax.hessian(self.log_prior)(vector)

    def of_rows(self, rows: Int[Array, " some"]) -> "LogDensity":
        """The density with some rows in the place of all, weighted so that it is unbiased: for minibatches.

        >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
        >>> network = vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
        >>> density = vb.log_density(network, vb.Gaussian(0.1), x, x)
        >>> halves = [density.of_rows(rows).log_likelihood(density.start) for rows in jnp.arange(50).reshape(2, 25)]
        >>> bool(jnp.allclose(sum(halves) / 2, density.log_likelihood(density.start)))
        True
        """
        scale = len(self.y) / len(rows)
        some = self.x[:, rows], self.y[rows], scale * self.weight[rows]
        return eqx.tree_at(lambda density: (density.x, density.y, density.weight), self, some)

    def unflatten(self, vector: Float[Array, " weights"]) -> Network:
        """The network with these weights, as point masses."""
        shapes = [part.shape for part in self.network.parts]
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        parts = jnp.split(jnp.zeros(ends[-1], vector.dtype).at[self.places].set(vector), ends[:-1])
        return eqx.tree_at(
            lambda network: [part.function.posterior for part in network.parts],
            self.network,
            [jax.vmap(PointMass)(part.reshape(shape)) for part, shape in zip(parts, shapes, strict=True)],
        )

    def networks(self, draws: Float[Array, "draws weights"]) -> tuple[Network, ...]:
        """The networks with these draws of the weights: an ensemble for `vb.sample`, `vb.moments`, `vb.decompose`."""
        # one scatter for all, on the host: a network after the other would be a thousand small programs
        shapes = [part.shape for part in self.network.parts]
        sizes = [math.prod(shape) for shape in shapes]
        everything = np.zeros((len(draws), sum(sizes)), np.asarray(draws).dtype)
        everything[:, np.asarray(self.places)] = draws
        parts = np.split(everything, np.cumsum(sizes)[:-1], axis=1)
        leaves, tree = jax.tree.flatten(self.unflatten(draws[0]))
        means = [part.function.posterior.mean for part in jax.tree.unflatten(tree, leaves).parts]
        places = [next(i for i, leaf in enumerate(leaves) if leaf is mean) for mean in means]
        networks = []
        for each in zip(*parts, strict=True):
            for place, part, shape in zip(places, each, shapes, strict=True):
                leaves[place] = jnp.asarray(part.reshape(shape))
            networks.append(jax.tree.unflatten(tree, leaves))
        return tuple(networks)


def log_density(
    network: Network, likelihood: Likelihood, x: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None
) -> LogDensity:
    """log p(V) p(y | V) as a function of one flat vector without padding; its `start` is E V, `unflatten` the way back.

    V are the weights of all function blocks. What else a network has, biases, the draws of random features, inducing
    points, hyper-parameters and the likelihood's noise, stays as it is; layers with noise of their own are refused.
    A bias is a parameter without a prior: the weight on a constant feature is one of V, as docs/extend.md has it.
    BlackJAX and other samplers take it as it is, and `jax.hessian` works.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> density = vb.log_density(network, vb.Gaussian(0.1), x, x)
    >>> bool(density(jnp.array([1.0])) > density(density.start))
    True
    """
    rows, targets, each = as_rows(network, likelihood, x, y, weight)
    for level, stack in enumerate(network.stacks, start=1):
        if stack.adds_variance:
            raise ValueError(
                f'Layer {level} has noise, or residual="diagonal", a variance beside that of its weights: leave it out '
                "for a density of the weights."
            )
    exists = np.concatenate([_exists(part) for part in network.parts])
    means = [jnp.ravel(jax.vmap(lambda q: q.mean)(part.function.posterior)) for part in network.parts]
    places = jnp.asarray(np.flatnonzero(exists))
    columns, targets, each = (in_working_precision(array) for array in (rows.T, targets, each))
    return LogDensity(network, likelihood, columns, targets, each, places, jnp.concatenate(means)[places])


def _exists(stack: Stack) -> np.ndarray:
    """Which numbers of a layer are weights, and not padding."""
    live = stack.function.live
    return np.broadcast_to(True if live is None else np.asarray(live.value)[:, None] > 0, stack.shape).ravel()
