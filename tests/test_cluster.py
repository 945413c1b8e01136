"""Processes of a fit join at an address: real ones, each in an interpreter of its own, on loopback."""

import os
import socket
import subprocess
import sys
import time

import pytest

from vertebra.machine import cluster

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="who listens is looked up in /proc")

JOINED = """
import os, sys, time
from vertebra.machine import cluster
address, n, k, secret, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
cluster.connect(address, n, k, secret=secret or None, timeout=seconds)
import jax
jax.devices()
files = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
own = {os.readlink(each) for each in files if os.path.islink(each)}
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
            print("listens", fields[1])
print(sorted(cluster.gathered(str(k).encode())))
"""


def start(port, n, k, secret="", seconds=60.0, **environment):
    command = [sys.executable, "-c", JOINED, f"127.0.0.1:{port}", str(n), str(k), secret, str(seconds)]
    flags = {"JAX_PLATFORMS": "cpu", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | flags)


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def call(port):
    """A stranger, as soon as somebody listens."""
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=0.2)
        except OSError:
            time.sleep(0.1)
    raise AssertionError("nobody listened")


def test_strangers_at_the_port_neither_join_nor_stop_the_processes_and_none_listens_elsewhere(port):
    first = start(port, 2, 0, VERTEBRA_SECRET="of this fit")
    silent, garbage = call(port), call(port)
    garbage.sendall(b"\x00\x00\x00\x01" + bytes(1000))  # once the number of a process, and nothing else
    call(port).close()
    wrong = start(port, 2, 1, "another")
    _, words = wrong.communicate(timeout=60)
    assert wrong.returncode == 1
    assert "turned process 1 away: give all processes the same secret (VERTEBRA_SECRET)" in words
    second = start(port, 2, 1, "of this fit")
    for process in (first, second):
        out, words = process.communicate(timeout=60)
        assert process.returncode == 0, words
        *listening, said = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        assert said == "[b'0', b'1']"
        if process is first:
            hosts = [line.removeprefix("listens ").partition(":")[0] for line in listening]
            assert hosts
            assert all(set(host) != {"0"} for host in hosts), "it listens everywhere"
    silent.close()
    garbage.close()


def test_a_process_that_is_missing_ends_the_wait_with_its_number(port):
    first = start(port, 3, 0, seconds=2.0)
    with pytest.raises(cluster.Lost, match=f"Process 0 gave up at 127.0.0.1:{port} before all 3 processes were there"):
        cluster.connect(f"127.0.0.1:{port}", 3, 1, timeout=60.0)
    _, words = first.communicate(timeout=60)
    assert first.returncode == 1
    assert f"TimeoutError: Waited 2 s at 127.0.0.1:{port} for process 2 of 3: start all of them" in words


def test_a_first_process_that_is_missing_ends_the_wait_with_its_address(port):
    with pytest.raises(TimeoutError, match=f"Process 1 could not reach process 0 at 127.0.0.1:{port}"):
        cluster.connect(f"127.0.0.1:{port}", 2, 1, timeout=0.3)


def test_addresses_that_cannot_be_used_are_refused_with_words(port):
    for address in ("10.0.0.1", "host:", ":80", "host:port", "host:70000"):
        with pytest.raises(ValueError, match="`coordinator` must be host:port, such as"):
            cluster.connect(address, 2, 0)
    # 192.0.2.0/24 is for documents: no machine has it
    with pytest.raises(ValueError, match=r"Process 0 cannot listen at 192\.0\.2\.1:1234 \(.*\): .* give `bind` too"):
        cluster.connect("192.0.2.1:1234", 2, 0, timeout=0.3)
    with pytest.raises(TimeoutError, match=f"Waited 0.3 s at 127.0.0.1:{port} for process 1 of 2"):
        cluster.connect(f"192.0.2.1:{port}", 2, 0, bind="127.0.0.1", timeout=0.3)
    with pytest.raises(ValueError, match=r"`timeout` must be a number of seconds above 0, got 0\.0"):
        cluster.connect("127.0.0.1:1", 2, 0, timeout=0.0)


FOUND = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from vertebra.machine import cluster
cluster.CONNECTING = 3.0
lines = cluster._lines_by_runtime("", None)
cluster._say_goodbye_at_the_end(lines)
print(sorted(lines))
try:
    cluster._lines_by_runtime(f"another in each, {sys.argv[2]}", None)
except RuntimeError as error:
    print(error)
"""


def test_processes_that_jax_has_found_have_lines_too_unless_their_secrets_differ(port):
    flags = os.environ | {"JAX_PLATFORMS": "cpu"}
    commands = [[sys.executable, "-c", FOUND, f"127.0.0.1:{port}", str(k)] for k in range(2)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=flags)
    processes = [subprocess.Popen(command, **pipes) for command in commands]
    for process, others in zip(processes, ("[1]", "[0]"), strict=True):
        out, words = process.communicate(timeout=60)
        assert process.returncode == 0, words
        said = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        assert said[0] == others
        assert said[1].startswith("The processes of this fit do not know the same secret, or cannot reach each other")
