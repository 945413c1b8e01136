"""What users hand to inference, checked: networks, x, y and weights. Of traced arrays only the shapes can be."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Shaped

from vertebra.inference.rows import stand_in
from vertebra.likelihoods import Likelihood
from vertebra.networks.network import Network
from vertebra.networks.posteriors import Posterior
from vertebra.networks.priors import Prior


def as_networks(network: Network | Sequence[Network]) -> list[Network]:
    """One network, or several of the same shape, as a list."""
    networks = [network] if isinstance(network, Network) else list(network)
    if not networks:
        raise ValueError("`network` must be a network or a list of at least one, got an empty list.")
    kinds = [(jax.tree.structure(n), [leaf.shape for leaf in jax.tree.leaves(n)]) for n in networks]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError("`network` must be a list of networks built from one skeleton and one list of layers.")
    return networks


def as_inputs(network: Network, x: ArrayLike) -> Shaped[np.ndarray, "n p"] | Shaped[Array, "n p"]:
    """x as (n, p), of finite numbers."""
    rows = x if isinstance(x, Tracer) else np.asarray(x)
    p = network.skeleton.n_inputs
    if rows.ndim != 2 or rows.shape[1] != p:
        raise ValueError(f"`x` must have the shape (n, {p}), got {rows.shape}.")
    if not len(rows):
        raise ValueError("`x` must have at least one row, got none.")
    if isinstance(rows, np.ndarray):
        if not (np.issubdtype(rows.dtype, np.number) or rows.dtype == bool):
            raise ValueError(f"`x` must be numbers, got values of type {rows.dtype}.")
        if not np.isfinite(rows).all():
            raise ValueError(f"`x` must be finite, got {int((~np.isfinite(rows)).sum())} missing or infinite values.")
    return rows


def as_rows(
    network: Network, likelihood: Likelihood, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None
) -> tuple[
    Shaped[np.ndarray, "n p"] | Shaped[Array, "n p"],
    Float[np.ndarray, "n k"] | Shaped[Array, "n k"],
    Float[np.ndarray, "n j"] | Shaped[Array, "n j"],
]:
    """x as (n, p), y as (n, k), weights as (n, 1), or (n, k) where targets are weighted apart.

    What has no weight is put in the place of what has.
    """
    check_likelihood(likelihood)
    rows = as_inputs(network, x)
    if len(rows) < 2:
        raise ValueError(f"`x` must have at least 2 rows, got {len(rows)}.")
    targets = (y[:, None] if y.ndim == 1 else y) if isinstance(y, Tracer) else likelihood.check(np.asarray(y))
    if len(targets) != len(rows):
        raise ValueError(f"`y` must have one row per row of `x`, {len(rows)}, got {len(targets)}.")
    wanted = likelihood.n_latent(targets.shape[1])
    if network.n_outputs != wanted:
        raise ValueError(
            f"The network must have {wanted} outputs for {type(likelihood).__name__} and {targets.shape[1]} column(s) "
            f"of `y`, got {network.n_outputs}: change the last width or the skeleton's outputs."
        )
    weights = _as_weights(weight, targets.shape)
    if isinstance(rows, np.ndarray) and isinstance(targets, np.ndarray) and isinstance(weights, np.ndarray):
        rows, targets = stand_in(rows, targets, weights)
    return rows, targets, weights


def check_likelihood(likelihood: object) -> None:
    """Refuses what is no likelihood, and tells the two that share a name apart."""
    own = type(likelihood).__name__
    if isinstance(likelihood, Posterior | Prior):
        kind = "posterior" if isinstance(likelihood, Posterior) else "prior"
        raise TypeError(
            f"`likelihood` must be a likelihood of y, got the {kind} of weights {own}: vb.distributions.Gaussian is a "
            "posterior, and the likelihood of that name is vb.Gaussian."
        )
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"`likelihood` must be one of vb.likelihoods, vb.Gaussian() for instance, or derived from "
            f"vb.likelihoods.Likelihood, got {own}."
        )


def _as_weights(weight: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray | Array:
    if weight is None:
        return np.ones((shape[0], 1), jnp.result_type(float))
    weights = weight if isinstance(weight, Tracer) else np.asarray(weight, dtype=jnp.result_type(float))
    weights = weights[:, None] if weights.ndim == 1 else weights
    if weights.shape not in ((shape[0], 1), shape):
        raise ValueError(f"`weight` must have the shape ({shape[0]},) or {shape}, got {weights.shape}.")
    if isinstance(weights, np.ndarray) and not (
        np.isfinite(weights).all() and (weights >= 0.0).all() and weights.any()
    ):
        raise ValueError("`weight` must be finite and not negative, with at least one weight above 0.")
    return weights
