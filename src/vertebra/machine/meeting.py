"""How the processes of a fit find each other: one listens, the others join, and strangers are turned away.

Both sides prove that they know the key without saying it (HMAC-SHA256 of fresh random numbers). Every read is of a
known length and ends at a known time, and each caller is heard by a thread of its own: who says nothing, or anything
else, keeps nobody waiting. What is said afterwards is neither signed nor encrypted.
"""

import contextlib
import hmac
import secrets
import socket
import threading
import time

GREETING = b"vertebra line 1\n"
# Seconds for one caller to introduce itself: a round trip across the world takes one.
INTRODUCING = 10.0
# Seconds between two tries to reach the first process, which may start last.
AGAIN = 0.2
# Callers heard at once; one more is turned away, and a process of the fit comes again.
MOST_AT_ONCE = 256
# The answers to those who know the key.
WELCOME, OTHER_COUNT, TAKEN = b"+", b"n", b"k"
_NONCE, _DIGEST = 32, 32


def listen(host: str, port: int) -> socket.socket:
    """A listener at this address and no other; an empty host is every address."""
    if not host:
        return socket.create_server(("", port), backlog=MOST_AT_ONCE)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    is_both = address[0] == "::" and socket.has_dualstack_ipv6()  # all addresses, of the old kind too
    return socket.create_server(address, family=family, backlog=MOST_AT_ONCE, dualstack_ipv6=is_both)


def gather(listener: socket.socket, count: int, key: bytes, deadline: float) -> dict[int, socket.socket]:
    """Lines to processes 1, …, count − 1, or to those that were there by the deadline (of `time.monotonic`)."""
    lines: dict[int, socket.socket] = {}
    lock, places = threading.Lock(), threading.BoundedSemaphore(MOST_AT_ONCE)
    is_done = threading.Event()

    def hear(line: socket.socket) -> None:
        is_kept = False
        try:
            until = min(deadline, time.monotonic() + INTRODUCING)
            if (hello := _introduction(line, key, until)) is None:
                return
            index, theirs, proof = hello
            with lock:
                other = lines.get(index)
                is_free = 0 < index < count and (other is None or _is_closed(other)) and not is_done.is_set()
                answer = OTHER_COUNT if theirs != count else WELCOME if is_free else TAKEN
                line.sendall(answer + _digest(key, b"first" + answer + proof))
                if answer == WELCOME:
                    if other is not None:
                        other.close()
                    lines[index], is_kept = line, True
                    if len(lines) == count - 1:
                        is_done.set()
        except (OSError, EOFError):
            return
        finally:
            if not is_kept:
                line.close()
            places.release()

    # short waits, because the last process is welcomed by a thread
    listener.settimeout(AGAIN)
    while not is_done.is_set() and time.monotonic() < deadline:
        try:
            line, _ = listener.accept()
        except OSError:
            continue
        if not places.acquire(blocking=False):
            line.close()
            continue
        threading.Thread(target=hear, args=(line,), daemon=True).start()
    with lock:
        is_done.set()
        return dict(lines)


def join(host: str, port: int, index: int, count: int, key: bytes, deadline: float) -> socket.socket:
    """A line to the first process, which may start later than this one."""
    where = f"{host}:{port}"
    why = "nobody listens there"
    while (left := deadline - time.monotonic()) > 0.0:
        try:
            line = socket.create_connection((host, port), timeout=left)
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(min(AGAIN, left))
            continue
        try:
            theirs = _exactly(line, _NONCE, min(deadline, time.monotonic() + INTRODUCING))
        except (OSError, EOFError):  # too many callers at once, or another program
            line.close()
            why = "what listens there is no process of a fit"
            time.sleep(min(AGAIN, left))
            continue
        try:
            _introduce(line, theirs, index, count, key, min(deadline, time.monotonic() + INTRODUCING), where)
        except BaseException:
            line.close()
            raise
        return line
    raise TimeoutError(f"Process {index} could not reach process 0 at {where} ({why}): is it started, and reachable?")


def tell(line: socket.socket, port: int) -> None:
    """The last word of the first process: all are there, and JAX is at this port."""
    with contextlib.suppress(OSError):  # the line is watched from here on
        line.sendall(port.to_bytes(2, "big"))


def told(line: socket.socket, deadline: float) -> int:
    # the first process waits until its own deadline, which may be a little later than this one's
    return int.from_bytes(_exactly(line, 2, deadline + INTRODUCING), "big")


def _introduction(line: socket.socket, key: bytes, deadline: float) -> tuple[int, int, bytes] | None:
    """What a caller that knows the key says of itself, and the numbers that its proof is over; None for a stranger."""
    own = secrets.token_bytes(_NONCE)
    line.sendall(own)
    hello = _exactly(line, len(GREETING) + 8 + _NONCE, deadline)
    digest = _exactly(line, _DIGEST, deadline)
    proof = own + hello
    if not hmac.compare_digest(digest, _digest(key, b"other" + proof)) or not hello.startswith(GREETING):
        return None
    index, count = (int.from_bytes(hello[k : k + 4], "big") for k in (len(GREETING), len(GREETING) + 4))
    return index, count, proof


def _introduce(line: socket.socket, theirs: bytes, index: int, count: int, key: bytes, deadline: float, where: str):
    """The other side of it, and errors for what the first process answers."""
    hello = GREETING + index.to_bytes(4, "big") + count.to_bytes(4, "big") + secrets.token_bytes(_NONCE)
    proof = theirs + hello
    try:
        line.sendall(hello + _digest(key, b"other" + proof))
        answer, digest = _exactly(line, 1, deadline), _exactly(line, _DIGEST, deadline)
    except (OSError, EOFError):
        raise ConnectionError(
            f"Process 0 at {where} turned process {index} away: give all processes the same secret (VERTEBRA_SECRET)."
        ) from None
    if not hmac.compare_digest(digest, _digest(key, b"first" + answer + proof)):
        raise ConnectionError(
            f"What listens at {where} does not know the secret (VERTEBRA_SECRET): is it process 0 of this fit?"
        )
    if answer == OTHER_COUNT:
        raise ValueError(f"`n_processes` must be the same in all processes, got {count}, and process 0 has another.")
    if answer != WELCOME:
        raise ValueError(
            f"`process` must be another number in each process, from 1 but in the first, got {index} twice."
        )


def _exactly(line: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes, by the deadline, or an error: TimeoutError, EOFError."""
    data = b""
    while len(data) < size:
        if (left := deadline - time.monotonic()) <= 0.0:
            raise TimeoutError
        line.settimeout(left)
        if not (part := line.recv(size - len(data))):
            raise EOFError
        data += part
    return data


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _is_closed(line: socket.socket) -> bool:
    """Whether the other side is gone, which has nothing to say yet."""
    line.setblocking(False)
    try:
        return line.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
