"""The rows of a training run on the device: which are trained on, in which order, and which scores are of."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from vertebra.machine.devices import by_rows, pad, padded_size, placed

# Rows that a score is of: a round number, so that scoring costs little beside a round of steps.
MAX_SCORE_ROWS = 1024
# Orders of visiting the rows, used in turn: a round number, more than the epochs of most fits.
N_ORDERS = 64


class Table(NamedTuple):
    """All rows on the device, padded to one of a few sizes with weight zero, and the order of visiting them."""

    x: Float[Array, "rows p"]
    y: Float[Array, "rows k"]
    weight: Float[Array, "rows j"]
    fold: Int[Array, " rows"]  # a restart neither trains on the fold that it holds out nor is scored on another
    order: Int[Array, " rows"]  # the rows to train on, shuffled, then padding
    strides: Int[Array, " epochs"]  # prime to n_train: each turns the order into another one …
    shifts: Int[Array, " epochs"]  # … that starts elsewhere


class Window(NamedTuple):
    """The minibatches of one round, made elsewhere: of rows that do not fit on the device."""

    x: Float[Array | np.ndarray, "steps batch p"]
    y: Float[Array | np.ndarray, "steps batch k"]
    weight: Float[Array | np.ndarray, "steps batch j"]
    fold: Int[Array | np.ndarray, "steps batch"]


class Scored(NamedTuple):
    """The rows that scores are of, fold by fold, and what all rows amount to."""

    x: Float[Array, "folds score p"]
    y: Float[Array, "folds score k"]
    weight: Float[Array, "folds score j"]
    n_train: Int[Array, ""]
    total: Float[Array, ""]  # of all weights


class Data(NamedTuple):
    """What a round trains on, and what it is scored on."""

    rows: Table | Window
    scored: Scored


class Minibatch(NamedTuple):
    """Rows, and what one of them stands for."""

    x: Float[Array, "batch p"]
    y: Float[Array, "batch k"]
    weight: Float[Array, "batch j"]
    fold: Int[Array, " batch"]
    scale: Float[Array, ""]


def minibatch_of(
    data: Data, batch_size: int, t: int | Int[Array, ""], i: int | Int[Array, ""], mesh: Mesh | None
) -> Minibatch:
    """The rows of step t, which is step i of its round.

    Epoch e visits order[(stride_e · position + shift_e) mod n]: every row once, in a new order each time, without a
    sort. With no more rows than fit into a batch, all of them.
    """
    rows, n = data.rows, data.scored.n_train
    if isinstance(rows, Window):
        return Minibatch(rows.x[i], rows.y[i], rows.weight[i], rows.fold[i], n / batch_size)
    is_whole = n <= batch_size
    steps_per_epoch = -(-n // batch_size)
    epoch, position = t // steps_per_epoch, (t % steps_per_epoch) * batch_size + jnp.arange(batch_size)
    e = epoch % len(rows.strides)
    elsewhere = ((position % n) * rows.strides[e] % n + rows.shifts[e]) % n
    chosen = by_rows(rows.order[jnp.where(is_whole, jnp.minimum(position, n - 1), elsewhere)], mesh)
    live = jnp.where(is_whole, position < n, True)
    weight = rows.weight[chosen] * live[:, None]
    return Minibatch(rows.x[chosen], rows.y[chosen], weight, rows.fold[chosen], n / jnp.minimum(n, batch_size))


def arrange(
    x: Shaped[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, "n j"],
    *,
    validation: float,
    folds: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> tuple[Table, Scored]:
    """Rows on the device, with the split, the order and the strides fixed by the key, on the host.

    Fold 0 is the share held out for `validation`; or there are `folds`, each held out by restarts of its own, which
    pass over its rows with weight zero.
    """
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel().tolist())
    size = padded_size(len(x))
    usable = rng.permutation(np.flatnonzero(weight.any(axis=1)).astype(np.int32))
    n_held = round(validation * len(usable))
    parts = [usable[:n_held]] if not folds else np.array_split(usable, folds)
    train = usable if folds else usable[n_held:]
    if len(train) < 1 or (validation > 0.0 and n_held < 1):
        raise ValueError(
            f"`validation` of {validation} leaves {n_held} rows to score and {len(train)} to train on, of the "
            f"{len(usable)} with weight: give more rows, or another share."
        )
    fold = np.full(size, -1)
    for k, part in enumerate(parts):
        fold[part] = k
    scored = [part[:MAX_SCORE_ROWS] for part in (parts if folds or n_held else [rng.permutation(train)])]
    # stride · position must fit into 32 bits; of 512 numbers, enough are prime to any n
    limit = min(len(train), (2**31 - 1) // (len(train) + batch_size))
    candidates = rng.integers(1, limit + 1, size=512)
    strides = np.resize(candidates[np.gcd(candidates, len(train)) == 1][:N_ORDERS].tolist() or [1], N_ORDERS)
    rows = Table(
        x=pad(x, size, repeat=True),
        y=pad(y, size, repeat=True),
        weight=pad(weight, size),
        fold=placed(fold, jnp.int32),
        order=pad(train, size, jnp.int32),
        strides=placed(strides, jnp.int32),
        shifts=placed(rng.integers(len(train), size=N_ORDERS), jnp.int32),
    )
    return rows, _scored(
        x, y, weight, scored, min(size, MAX_SCORE_ROWS), len(train), float(weight.sum(dtype=np.float64))
    )


def streamed(
    x: Shaped[np.ndarray, "n p"],
    y: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, "n j"],
    folds: Int[np.ndarray, " n"],
    *,
    n_train: int,
    total: float,
) -> Scored:
    """What rows that are trained on window by window are scored on: rows in memory, some of each fold."""
    parts = [np.flatnonzero(folds == k)[:MAX_SCORE_ROWS] for k in range(int(folds.max()) + 1)]
    return _scored(x, y, weight, parts, MAX_SCORE_ROWS, n_train, total)


def _scored(x, y, weight, parts: list[np.ndarray], size: int, n_train: int, total: float) -> Scored:
    def take(array: np.ndarray, repeat: bool) -> Array:
        each = np.zeros((len(parts), size, *array.shape[1:]), array.dtype)
        for own, part in zip(each, parts, strict=True):
            own[: len(part)] = array[part]
            own[len(part) :] = array[part[0]] if repeat and len(part) else 0
        return placed(each, jnp.result_type(float))

    return Scored(
        x=take(x, repeat=True),
        y=take(y, repeat=True),
        weight=take(weight, repeat=False),
        n_train=placed(n_train, jnp.int32),
        total=placed(total, jnp.result_type(float)),
    )


def stand_in(
    x: Shaped[np.ndarray, "n p"], y: Float[np.ndarray, "n k"], weight: Float[np.ndarray, "n j"]
) -> tuple[Shaped[np.ndarray, "n p"], Float[np.ndarray, "n k"]]:
    """x and y, those of no weight put in the place of others that have some: a network and p(y | f) are defined there.

    Rows of no weight are not visited, but a minibatch may hold them: of files, or of a fold that is left out.
    """
    live = weight > 0.0
    if live.all():
        return x, y
    rows = np.any(live, axis=1, keepdims=True)
    y = np.where(live, y, y[live.argmax(axis=0), np.arange(y.shape[1])])
    return np.where(rows, x, x[rows.argmax()]), y
