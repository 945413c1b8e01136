"""The processes of one fit, on one machine or many, by JAX's own distributed runtime.

`connect` joins them; each then reads its own part of the rows, and what is summed over rows is summed over processes.

>>> vb.cluster.place()  # alone
(0, 1)
"""

import atexit
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# Seconds after which a process that is no longer heard of is given up.
HEARTBEAT, INITIAL, CONNECTING = 20, 300, 30
_FAILED: list[bool] = []


class Lost(RuntimeError):
    """Another process of the fit is gone.

    >>> try:
    ...     with vb.cluster.together("adding up"):
    ...         total = vb.cluster.summed([np.ones(3)])
    ... except vb.cluster.Lost:
    ...     print("start all of them again")
    """


def connect(
    coordinator: str | None = None,
    n_processes: int | None = None,
    process: int | None = None,
    *,
    local_devices: Sequence[int] | None = None,
) -> None:
    """Joins the processes of a fit; to be called before anything else makes JAX look for devices.

    `coordinator` is the address, host:port, of process 0. On a cluster that JAX knows (SLURM, Open MPI, Kubernetes, TPU
    pods) nothing need be given.

    >>> vb.cluster.connect("10.0.0.1:1234", n_processes=4, process=0)  # doctest: +SKIP
    """
    given = coordinator, n_processes, process
    if any(each is None for each in given) and not all(each is None for each in given):
        raise ValueError(
            "`coordinator`, `n_processes` and `process` go together, or are all found by JAX on a cluster; got "
            f"{coordinator!r}, {n_processes!r} and {process!r}."
        )
    if process is not None and n_processes is not None and not 0 <= process < n_processes:
        raise ValueError(f"`process` must be from 0 to {n_processes - 1}, got {process!r}.")
    if jax.config.jax_cpu_collectives_implementation in (None, "none"):  # type: ignore[attr-defined]
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            coordinator,
            n_processes,
            process,
            local_device_ids=local_devices,
            heartbeat_timeout_seconds=HEARTBEAT,
            initialization_timeout=INITIAL,
        )
    except ValueError as error:
        raise ValueError(
            f"No cluster was found here ({error}): give `coordinator`, `n_processes` and `process`."
        ) from None
    _watch_each_other(None if coordinator is None else coordinator.rpartition(":")[0].strip("[]"))


def _watch_each_other(host: str | None) -> None:
    """A line from the first process to every other, over which nothing is said but goodbye: if it breaks, one is gone.

    JAX notices a silent process after some seconds, and then aborts without a word that a user could act on.
    """
    index, count = place()
    if count == 1:
        return
    host = gathered_json(socket.gethostname())[0] if host is None else host
    listener = socket.create_server(("127.0.0.1" if host == "127.0.0.1" else "", 0), backlog=count)
    port = gathered_json(listener.getsockname()[1])[0]
    lines: dict[int, socket.socket] = {}
    with contextlib.suppress(OSError), listener:
        if index:
            lines[0] = socket.create_connection((host, port), timeout=CONNECTING)
            lines[0].sendall(index.to_bytes(4, "big"))
        while index == 0 and len(lines) < count - 1:
            listener.settimeout(CONNECTING)
            line, _ = listener.accept()
            lines[int.from_bytes(line.recv(4), "big")] = line
    if not all(gathered_json(len(lines) == (1 if index else count - 1))):
        for line in lines.values():  # no way through somewhere: the runtime's own heartbeat is left
            line.close()
        return
    show = sys.excepthook

    def fail(*error: Any) -> None:
        failed()
        show(*error)

    def goodbye() -> None:
        for line in lines.values():
            with contextlib.suppress(OSError):
                line.sendall(b"!" if _FAILED else b".")

    sys.excepthook = fail
    atexit.register(goodbye)
    for other, line in lines.items():
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        threading.Thread(target=_watch, args=(other, line, count), daemon=True).start()


def failed() -> None:
    """To be called before a process ends with an error that it has caught: the others do not wait for it then.

    >>> try:
    ...     total = vb.cluster.summed([np.ones(3)])
    ... except MemoryError:
    ...     vb.cluster.failed()
    """
    _FAILED.append(True)


def _watch(other: int, line: socket.socket, count: int) -> None:
    try:
        word = line.recv(1)
    except OSError:
        word = b""
    if word == b".":
        return
    # the main thread may wait for the other one for ever, out of Python's reach
    what = "failed" if word else "is gone"
    print(
        f"vertebra: process {other} of this fit {what}. Start all {count} again with the same command: with a "
        "checkpoint the fit goes on where it was.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def place() -> tuple[int, int]:
    """Which process this is, and of how many.

    >>> index, count = vb.cluster.place()
    >>> [k for k in range(5) if k % count == index]  # the files that are this one's to read
    [0, 1, 2, 3, 4]
    """
    return jax.process_index(), jax.process_count()


@contextlib.contextmanager
def together(what: str) -> Iterator[None]:
    """Work that all processes do at once: if one of them is gone, the others say so.

    >>> with vb.cluster.together("adding up"):
    ...     (total,) = vb.cluster.summed([np.ones(3)])
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise Lost(
            f"Another process of this fit is gone, seen while {what}. Start all {jax.process_count()} again with the "
            f"same command: with a checkpoint the fit goes on where it was. ({str(error).splitlines()[0][:200]})"
        ) from error


def gathered(data: bytes) -> list[bytes]:
    """What every process gives, in their order.

    >>> vb.cluster.gathered(b"done")  # of one process
    [b'done']
    """
    if jax.process_count() == 1:
        return [data]
    with together("exchanging sums"):
        sizes = np.asarray(multihost_utils.process_allgather(np.array([len(data)], dtype=np.int32))).ravel()
        own = np.zeros(int(sizes.max()), dtype=np.uint8)
        own[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        everything = np.asarray(multihost_utils.process_allgather(own)).reshape(len(sizes), -1)
    return [row[:size].tobytes() for row, size in zip(everything, sizes, strict=True)]


def gathered_json(value: Any) -> list[Any]:
    """The same of what JSON can hold.

    >>> sum(found["rows"] for found in vb.cluster.gathered_json({"rows": 100}))
    100
    """
    return [json.loads(each) for each in gathered(json.dumps(value).encode())]


def summed(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Sums over the processes, in their order and in all digits: everywhere the same to the last bit.

    >>> vb.cluster.summed([np.ones(3)])
    [array([1., 1., 1.])]
    """
    if jax.process_count() == 1:
        return list(arrays)
    result = []
    for array in arrays:
        own = np.ascontiguousarray(array, dtype=np.float64)
        parts = [np.frombuffer(part, dtype=np.float64).reshape(own.shape) for part in gathered(own.tobytes())]
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        result.append(total)
    return result


def from_first(arrays: Sequence[np.ndarray], blank: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays of the first process, of the types and shapes of `blank`; nothing where it has none.

    >>> vb.cluster.from_first([np.arange(3.0)], blank=[np.zeros(3)])
    [array([0., 1., 2.])]
    """
    data = gathered(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays) if is_first() else b"")[0]
    if not data:
        return []
    result, start = [], 0
    for each in blank:
        part = np.frombuffer(data[start : start + each.nbytes], dtype=each.dtype)
        result.append(part.reshape(each.shape))
        start += each.nbytes
    return result


def agree(value: str, what: str) -> None:
    """Refuses to go on where processes have come to different ends.

    >>> vb.cluster.agree("x0, x1", "the terms")
    """
    if len(set(gathered(value.encode()))) > 1:
        raise RuntimeError(
            f"The processes of this fit disagree about {what}: give them the same files, settings and versions."
        )


def is_first() -> bool:
    """Whether this process writes what all of them have found.

    >>> if vb.cluster.is_first():
    ...     print("written once")
    written once
    """
    return jax.process_index() == 0


def own_path(path: str | os.PathLike[str]) -> str:
    """A file of this process beside those of the others.

    >>> vb.cluster.own_path("fit.checkpoint")  # of several processes fit.checkpoint.0, fit.checkpoint.1, …
    'fit.checkpoint'
    """
    index, count = place()
    return os.fspath(path) if count == 1 else f"{os.fspath(path)}.{index}"
