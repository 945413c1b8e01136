"""Work shared out among processes, and what is said when one is lost; users find it as `vertebra.cluster`."""

import atexit
import contextlib
import functools
import hmac
import json
import math
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from vertebra.machine import meeting

# Seconds after which a process that is no longer heard of is given up.
HEARTBEAT, INITIAL, CONNECTING = 20, 300.0, 30.0
_FAILED: list[bool] = []

Value = TypeVar("Value")


class Lost(RuntimeError):
    """Another process of the fit is gone.

    >>> try:
    ...     model = vb.AdditiveRegressor().fit(np.arange(20.0)[:, None], np.arange(20.0))
    ... except vb.cluster.Lost:
    ...     print("start all of them again")
    """


def connect(
    coordinator: str | None = None,
    n_processes: int | None = None,
    process: int | None = None,
    *,
    local_devices: Sequence[int] | None = None,
    secret: str | None = None,
    bind: str | None = None,
    timeout: float = INITIAL,
) -> None:
    """Joins the processes of a fit; to be called before anything else makes JAX look for devices.

    `coordinator` is the address, host:port, of process 0. On a cluster that JAX knows (SLURM, Open MPI, Kubernetes, TPU
    pods) nothing need be given. Process 0 listens at that host only, or at `bind` where others reach it by another
    address (0.0.0.0: everywhere), until all are there, for `timeout` seconds. Whoever does not know the `secret`, by
    default VERTEBRA_SECRET from the environment, is turned away; JAX itself knows none (docs/scale.md says what must be
    trusted).

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
    if not timeout > 0.0:
        raise ValueError(f"`timeout` must be a number of seconds above 0, got {timeout!r}.")
    secret = os.environ.get("VERTEBRA_SECRET", "") if secret is None else secret
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", "").rpartition(":")[0] or None if bind is None else bind
    initialize = functools.partial(
        jax.distributed.initialize,
        local_device_ids=local_devices,
        heartbeat_timeout_seconds=HEARTBEAT,
        initialization_timeout=max(1, math.ceil(timeout)),
    )
    if coordinator is None or n_processes is None or process is None:
        _choose_collectives()
        try:
            initialize()
        except ValueError as error:
            raise ValueError(
                f"No cluster was found here ({error}): give `coordinator`, `n_processes` and `process`."
            ) from None
        lines = _lines_by_runtime(secret, bind)
    else:
        host, port = _host_and_port(coordinator)
        lines, port = _lines_by_address(host, port, n_processes, process, secret, bind, timeout)
        _watch_all(lines, n_processes)
        _choose_collectives()
        own = _written(host if bind is None else bind.strip("[]"), port)
        initialize(_written(host, port), n_processes, process, coordinator_bind_address=own)
    if lines:
        _say_goodbye_at_the_end(lines)


def _choose_collectives() -> None:
    if jax.config.jax_cpu_collectives_implementation in (None, "none"):  # type: ignore[attr-defined]
        jax.config.update("jax_cpu_collectives_implementation", "gloo")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"`coordinator` must be host:port, such as 10.0.0.1:1234, got {address!r}.")
    return host.strip("[]"), int(port)


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _lines_by_address(
    host: str, port: int, count: int, index: int, secret: str, bind: str | None, timeout: float
) -> tuple[dict[int, socket.socket], int]:
    """Lines between the first process and the others, at an address that all know; and the port that JAX may have.

    JAX aborts where a process is missing, and serves whoever reaches its port: so all meet here first, and only they
    are told that port.
    """
    if count == 1:
        return {}, port
    key, deadline = secret.encode(), time.monotonic() + timeout
    if index:
        line = meeting.join(host, port, index, count, key, deadline)
        try:
            return {0: line}, meeting.told(line, deadline)
        except (OSError, EOFError):
            line.close()
            raise Lost(
                f"Process 0 gave up at {_written(host, port)} before all {count} processes were there: its own message "
                "names those that were missing. Start all of them again."
            ) from None
    own = host if bind is None else bind.strip("[]")
    try:
        listener = meeting.listen(own, port)
    except OSError as error:
        raise ValueError(
            f"Process 0 cannot listen at {_written(own, port)} ({error.strerror or error}): `coordinator` must be an "
            "address of its machine and a free port; where others reach it by another address, give `bind` too."
        ) from None
    with listener:
        lines = meeting.gather(listener, count, key, deadline)
    if missing := [k for k in range(1, count) if k not in lines]:
        for line in lines.values():
            line.close()
        which = f"process {missing[0]}" if len(missing) == 1 else f"processes {', '.join(map(str, missing[:20]))}"
        raise TimeoutError(
            f"Waited {timeout:g} s at {_written(own, port)} for {which} of {count}: start all of them, with the same "
            "address, number of processes and VERTEBRA_SECRET, or wait longer (`timeout`)."
        )
    with meeting.listen(own, 0) as free:
        port = free.getsockname()[1]
    for line in lines.values():
        meeting.tell(line, port)
    return lines, port


def _lines_by_runtime(secret: str, bind: str | None) -> dict[int, socket.socket]:
    """The same where JAX has found the processes: it carries the address, and a key that others do not know."""
    index, count = place()
    if count == 1:
        return {}
    listener = meeting.listen(bind or "", 0) if index == 0 else None
    # what the first process says is read
    own = ("", 0, "") if listener is None else (socket.gethostname(), listener.getsockname()[1], secrets.token_hex(32))
    host, port, token = gathered_json(own)[0]
    key = hmac.digest(secret.encode(), bytes.fromhex(token), "sha256")
    deadline = time.monotonic() + CONNECTING
    lines: dict[int, socket.socket] = {}
    with contextlib.suppress(OSError, EOFError, RuntimeError, ValueError):
        if listener is not None:
            with listener:
                lines = meeting.gather(listener, count, key, deadline)
        else:
            lines[0] = meeting.join(host, port, index, count, key, deadline)
    found = gathered_json([len(lines) == (1 if index else count - 1), bool(secret)])
    if not all(is_there for is_there, _ in found):
        for line in lines.values():
            line.close()
        if any(has_secret for _, has_secret in found):
            raise RuntimeError(
                "The processes of this fit do not know the same secret, or cannot reach each other: give all of them "
                "the same VERTEBRA_SECRET, or none."
            )
        return {}  # no way through somewhere: the runtime's own heartbeat is left
    _watch_all(lines, count)
    return lines


def _watch_all(lines: Mapping[int, socket.socket], count: int) -> None:
    """Over a line nothing is said but goodbye: if it breaks, a process is gone.

    JAX notices a silent process after some seconds, and then aborts without a word that a user could act on.
    """
    for other, line in lines.items():
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        threading.Thread(target=_watch, args=(other, line, count), daemon=True).start()


def _say_goodbye_at_the_end(lines: Mapping[int, socket.socket]) -> None:
    """To be called after JAX has started: what is registered last is done first, before JAX waits for the others."""
    show = sys.excepthook

    def fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failed()
        show(kind, error, trace)

    def goodbye() -> None:
        for line in lines.values():
            with contextlib.suppress(OSError):
                line.sendall(b"!" if _FAILED else b".")

    sys.excepthook = fail
    atexit.register(goodbye)


def failed() -> None:
    """To be called before a process ends with an error that it has caught: the others do not wait for it then.

    >>> try:
    ...     model = vb.AdditiveRegressor().fit(np.arange(20.0)[:, None], np.arange(20.0))
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


def gathered_json(value: Value) -> list[Value]:
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
