"""Processes meet at a port where anyone may call: threads stand for them here, on loopback."""

import socket
import threading
import time

import pytest

from vertebra.machine import meeting

KEY = b"a secret"


OPEN: list[socket.socket] = []


@pytest.fixture(autouse=True)
def closed():
    """Lines end with their test."""
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def listener():
    with meeting.listen("127.0.0.1", 0) as listener:
        yield listener


def call(listener):
    OPEN.append(socket.create_connection(listener.getsockname(), timeout=5.0))
    return OPEN[-1]


def join(address, index, count, key=KEY, seconds=5.0):
    OPEN.append(meeting.join(*address, index, count, key, time.monotonic() + seconds))
    return OPEN[-1]


def joining(listener, index, count, key=KEY, seconds=5.0):
    """A process that joins in a thread: its line, or its error."""
    found = []

    def run():
        try:
            found.append(join(listener.getsockname(), index, count, key, seconds))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(10.0)
        return found[0]

    return result


def gathered(listener, count, seconds=5.0, key=KEY):
    lines = meeting.gather(listener, count, key, time.monotonic() + seconds)
    OPEN.extend(lines.values())
    return lines


def silent(listener):
    for _ in range(20):
        call(listener)


def garbage(listener):
    line = call(listener)
    line.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n" + bytes(range(256)) * 100)


def closing(listener):
    call(listener).close()
    half = call(listener)
    half.sendall(meeting.GREETING)
    half.close()


def replaying(listener):
    """Says what a process may have said before, whose proof is of other random numbers."""
    hello = meeting.GREETING + (1).to_bytes(4, "big") + (3).to_bytes(4, "big") + bytes(32)
    call(listener).sendall(hello + meeting._digest(KEY, b"other" + bytes(32) + hello))


@pytest.mark.parametrize("strangers", [silent, garbage, closing, replaying])
def test_strangers_are_turned_away_and_the_processes_meet(strangers, listener):
    begun = time.monotonic()
    strangers(listener)
    processes = [joining(listener, index, 3) for index in (2, 1)]
    lines = gathered(listener, 3)
    assert sorted(lines) == [1, 2]
    assert time.monotonic() - begun < 3.0
    for index, line in lines.items():
        meeting.tell(line, 1000 + index)
    for index, process in zip((2, 1), processes, strict=True):
        assert meeting.told(process(), time.monotonic() + 5.0) == 1000 + index


def test_who_does_not_know_the_secret_is_told_so_and_counts_for_nobody(listener):
    wrong, right = joining(listener, 1, 3, b"another"), joining(listener, 2, 3)
    lines = gathered(listener, 3, seconds=1.0)
    assert sorted(lines) == [2]
    assert isinstance(right(), socket.socket)
    assert isinstance(wrong(), ConnectionError)
    assert "turned process 1 away: give all processes the same secret (VERTEBRA_SECRET)" in str(wrong())


def test_a_first_process_that_does_not_know_the_secret_is_not_believed(listener):
    def pretend():
        line, _ = listener.accept()
        line.sendall(bytes(32))
        line.recv(200)
        line.sendall(meeting.WELCOME + bytes(32))
        line.close()

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(ConnectionError, match="does not know the secret"):
        meeting.join(*listener.getsockname(), 1, 2, KEY, time.monotonic() + 5.0)


@pytest.mark.parametrize(
    ("index", "count", "words"),
    [(1, 4, "`n_processes` must be the same"), (5, 3, "`process` must be another number"), (0, 3, "`process` must be")],
)
def test_processes_that_disagree_are_told_so(index, count, words, listener):
    wrong, right = joining(listener, index, count), joining(listener, 1, 3)
    assert sorted(gathered(listener, 3, seconds=1.0)) == [1]
    assert isinstance(wrong(), ValueError)
    assert words in str(wrong())
    assert isinstance(right(), socket.socket)


def test_a_number_is_taken_once_and_free_again_where_its_process_is_gone(listener):
    first = joining(listener, 1, 3)
    thread = threading.Thread(target=lambda: result.update(gathered(listener, 3, seconds=10.0)), daemon=True)
    result: dict = {}
    thread.start()
    line = first()
    second = joining(listener, 1, 3)()
    assert isinstance(second, ValueError)
    line.close()
    again = joining(listener, 1, 3)()
    assert isinstance(again, socket.socket)
    joining(listener, 2, 3)()
    thread.join(10.0)
    assert sorted(result) == [1, 2]
    meeting.tell(result[1], 77)
    assert meeting.told(again, time.monotonic() + 5.0) == 77


def test_who_comes_before_the_first_process_waits_for_it():
    with meeting.listen("127.0.0.1", 0) as free:
        address = free.getsockname()
    found = []
    early = threading.Thread(target=lambda: found.append(join(address, 1, 2, seconds=8.0)), daemon=True)
    early.start()
    time.sleep(0.5)
    with meeting.listen(*address) as listener:
        assert sorted(gathered(listener, 2)) == [1]
    early.join(5.0)
    assert isinstance(found[0], socket.socket)


def test_waiting_ends_with_words(listener):
    begun = time.monotonic()
    assert gathered(listener, 2, seconds=0.3) == {}
    with meeting.listen("127.0.0.1", 0) as free:
        address = free.getsockname()
    with pytest.raises(TimeoutError, match=r"Process 3 could not reach process 0 at 127\.0\.0\.1:\d+ \(Connection ref"):
        meeting.join(*address, 3, 4, KEY, time.monotonic() + 0.3)
    with pytest.raises(TimeoutError, match="no process of a fit"):  # it never says a word
        meeting.join(*listener.getsockname(), 3, 4, KEY, time.monotonic() + 0.3)
    assert time.monotonic() - begun < 3.0


def test_a_caller_that_drips_bytes_is_not_waited_for(listener, monkeypatch):
    monkeypatch.setattr(meeting, "INTRODUCING", 0.5)
    slow = call(listener)
    stop = threading.Event()

    def drip():
        while not stop.wait(0.05):
            try:
                slow.sendall(b"v")
            except OSError:
                return stop.set()

    threading.Thread(target=drip, daemon=True).start()
    begun = time.monotonic()
    assert gathered(listener, 2, seconds=2.0) == {}
    assert stop.wait(2.0), "its line was not closed"
    assert time.monotonic() - begun < 4.0


def test_a_listener_is_at_its_host_alone():
    for host in ("127.0.0.1", "localhost"):
        with meeting.listen(host, 0) as listener:
            assert listener.getsockname()[0] in ("127.0.0.1", "::1")
