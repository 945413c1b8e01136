"""What a fit says while it runs, and what it returns."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vertebra.likelihoods import Likelihood
from vertebra.networks.network import Network


class Progress(NamedTuple):
    """What a callback is told after each round.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> settings = dict(n_steps=50, callback=lambda progress: progress.step >= 20)
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), **settings)
    >>> int(fitted.history.step[-1])
    20
    """

    step: int
    n_steps: int
    elbo: float  # per row
    score: float
    best_score: float


class History(NamedTuple):
    """One entry per round, of the restart that was kept: steps done, mean minibatch ELBO per row, score.

    With `every_step=True`, `steps` has the minibatch ELBO per row of each step.
    """

    step: Int[np.ndarray, " rounds"]
    elbo: Float[np.ndarray, " rounds"]
    score: Float[np.ndarray, " rounds"]
    steps: Float[np.ndarray, " steps"] | None = None


class Fitted(NamedTuple):
    """What `fit` returns: the best restart, and all of them as an ensemble.

    `score` is the mean log predictive density of the validation rows, or without these the ELBO per row.
    `evidence` is log p(y | features, noise), per row, where the last layer is in closed form.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50)
    >>> len(fitted.networks), fitted.history.step[-1].item()
    (1, 50)
    """

    network: Network
    likelihood: Likelihood
    score: float
    history: History
    evidence: float | None
    networks: tuple[Network, ...]
    likelihoods: tuple[Likelihood, ...]
    scores: tuple[float, ...]
    unseen: tuple[Bool[np.ndarray, " n"], ...]  # of each restart, the rows that it held out


class Diverged(RuntimeError):
    """Training ended in NaN or infinity, at lower rates too.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=50, learning_rate=1e30)
    Traceback (most recent call last):
    ...
    vertebra.inference.outcome.Diverged: Training ended in NaN or infinity in every restart. ...
    """
