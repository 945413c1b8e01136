"""`fit` and `fit_stream`: doubly stochastic variational inference, of rows in memory and of rows in files."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import optax
from jaxtyping import ArrayLike, PRNGKeyArray

from vertebra.inference.arguments import as_networks, as_rows
from vertebra.inference.conjugate import closed_form, closed_form_of
from vertebra.inference.outcome import Fitted
from vertebra.inference.rows import Data, Window, arrange, streamed
from vertebra.inference.run import Callback, Run
from vertebra.inference.settings import Settings
from vertebra.inference.training import Schedule
from vertebra.likelihoods import Likelihood
from vertebra.machine.checkpoint import Checkpoint
from vertebra.machine.devices import everywhere
from vertebra.machine.programs import keep_programs
from vertebra.networks.keys import fast_split
from vertebra.networks.network import Network
from vertebra.tables.parquet import ahead
from vertebra.tables.windows import Windows


def fit(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    x: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
    weight: ArrayLike | None = None,
    n_steps: int = 5000,
    batch_size: int = 128,
    learning_rate: float | Schedule = 1e-2,
    optimiser: optax.GradientTransformation | None = None,
    n_draws: int = 1,
    validation: float = 0.0,
    folds: int = 0,
    patience: int | None = None,
    n_rounds: int = 25,
    last_layer: bool | None = None,
    kl_weight: float | Schedule = 1.0,
    every_step: bool = False,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Fitted:
    """Maximises the ELBO over q, the blocks' hyper-parameters and the likelihood's.

    `vertebra.inference.Settings` says what `n_steps` to `every_step` do. Several devices share the
    work: restarts where their number allows it, else the rows of large minibatches.

    - `network`: one, or a list of the same shape from different keys: restarts, trained side by side. The best by
      score is `Fitted.network`; all of them, `Fitted.networks`, are an ensemble.
    - `weight`: (n,), or (n, k) to leave single targets out; a weight of 2 is a row that stands there twice.
    - `callback`: called with a `Progress` after each of the `n_rounds` rounds; True ends the fit with the best so far
      (with `folds` the last).
    - `checkpoint`: a file that the whole state is written to every half minute; if it is there, of the same run, that
      is gone on with, and ends with the same result to the last bit. It is removed at the end.

    >>> x, network = np.linspace(-1.0, 1.0, 50)[:, None], vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit(network, vb.Gaussian(), x, x, key=jr.key(1), n_steps=500)
    >>> print(fitted.network.weights()[0].round(1))
    [[[1.]]]
    """
    run = n_steps, batch_size, learning_rate, optimiser, n_draws, folds, n_rounds, last_layer
    settings = Settings(*run, validation, patience, kl_weight, every_step)
    return _fit_rows(network, likelihood, (x, y, weight), key, settings, callback, checkpoint)


def _fit_rows(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    given: tuple[ArrayLike, ArrayLike, ArrayLike | None],
    key: PRNGKeyArray,
    settings: Settings,
    callback: Callback | None,
    checkpoint: str | os.PathLike[str] | None,
) -> Fitted:
    keep_programs()
    networks = as_networks(network)
    settings.check(len(networks))
    x, y, weight = (np.asarray(each) for each in as_rows(networks[0], likelihood, *given))
    keys = fast_split(key, 1 + len(networks))
    likelihood = likelihood.init(y[weight.any(axis=1)])
    folds, batch_size = settings.folds, settings.batch_size
    rows, scored = arrange(
        x, y, weight, validation=settings.validation, folds=folds, batch_size=batch_size, key=keys[0]
    )
    run = Run(networks, likelihood, keys, settings, batch_size=min(batch_size, len(rows.x)))
    kept = None if checkpoint is None else Checkpoint(checkpoint, run.about(x, y, weight))
    everything = everywhere(Data(rows, scored), run.plan.mesh)
    state = run.to_the_end(lambda turn: everything, callback, kept)
    fold = np.asarray(rows.fold)[: len(x)]

    def exactly(network, noise, held):
        # all rows, so that every fold has the same program
        seen = np.where((fold != held)[:, None], weight, 0.0)
        own, noise, evidence = closed_form(network, noise, x, y, seen)
        return own, noise, evidence / np.count_nonzero(seen.any(axis=1))

    fitted = run.outcome(state, scored, fold, exactly)
    if kept is not None:
        kept.remove()
    return fitted


def fit_stream(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    windows: Windows,
    *,
    key: PRNGKeyArray,
    n_steps: int = 5000,
    batch_size: int = 1024,
    learning_rate: float | Schedule = 1e-2,
    optimiser: optax.GradientTransformation | None = None,
    n_draws: int = 1,
    folds: int = 0,
    n_rounds: int = 25,
    last_layer: bool | None = None,
    kl_weight: float | Schedule = 1.0,
    every_step: bool = False,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """As `fit`, of rows that are read from files, shuffled, while the device computes: see `vertebra.stream`.

    A round is trained on a window of rows; with several processes each reads its own part of it, and the result does
    not depend on how many there are. `Fitted.unseen` is of the rows in memory, `windows.x`.

    >>> x = np.linspace(-1.0, 1.0, 1000)
    >>> pd.DataFrame({"x": x, "y": x}).to_parquet("line.parquet")
    >>> training = vb.stream.Training(vb.stream.Parquet("line.parquet"), ["y"], None, is_class=False)
    >>> known = training.survey()
    >>> rows = vb.stream.StreamedRows(training, known, known.schema(), standard=lambda y: y)
    >>> matrix, y, weight = rows.taken(known.sample)
    >>> encoding = rows.cross_fit(matrix, lambda y: y[:, 0], [0], [False], most_levels=0, fill=True)
    >>> windows = vb.stream.Windows(rows, rows.sample(matrix), y, weight)
    >>> network = vb.build(vb.chain(1, 1), vb.mean_field([1]), key=jr.key(0))
    >>> fitted = vb.fit_stream(network, vb.Gaussian(), windows, key=jr.key(1), n_steps=500, batch_size=128)
    >>> print(fitted.network.weights()[0].round(1))  # of x in units of its sd
    [[[0.6]]]
    """
    run = n_steps, batch_size, learning_rate, optimiser, n_draws, folds, n_rounds, last_layer
    settings = Settings(*run, kl_weight=kl_weight, every_step=every_step)
    return _fit_windows(network, likelihood, windows, key, settings, callback, checkpoint)


def _fit_windows(
    network: Network | Sequence[Network],
    likelihood: Likelihood,
    windows: Windows,
    key: PRNGKeyArray,
    settings: Settings,
    callback: Callback | None,
    checkpoint: Checkpoint | None,
) -> Fitted:
    keep_programs()
    networks = as_networks(network)
    settings.check(len(networks))
    given = as_rows(networks[0], likelihood, windows.x, windows.y, windows.weight)
    x, y, weight = (np.asarray(each) for each in given)
    likelihood = likelihood.init(y[weight.any(axis=1)])
    keys = fast_split(key, 1 + len(networks))
    folds, batch_size = settings.folds, settings.batch_size
    fold = windows.folds(folds) if folds else np.zeros(len(x), dtype=int)
    scored = streamed(x, y, weight, fold, n_train=windows.n_rows, total=windows.total)
    n_rounds = max(settings.n_rounds, windows.fewest_rounds(settings.n_steps, batch_size))
    settings = replace(settings, n_rounds=n_rounds)
    run = Run(networks, likelihood, keys, settings, batch_size=batch_size)
    mesh, everywhere_scored = run.plan.mesh, everywhere(scored, run.plan.mesh)
    first = run.resumed(checkpoint)
    read = ahead(windows.rounds(settings.steps_per_round, batch_size, folds, first, mesh))
    try:
        state = run.to_the_end(lambda turn: Data(Window(*next(read)), everywhere_scored), callback, checkpoint)
    finally:
        read.close()

    def exactly(network, noise, held):
        own, noise, evidence, n = closed_form_of(network, noise, lambda work: windows.sums(work, folds, held))
        return own, noise, evidence / n

    return run.outcome(state, scored, fold if folds else np.full(len(x), -1), exactly)
