import io
import json
import math
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vertebra import load
from vertebra.machine import file as storage
from vertebra.machine.file import FORMAT, BadFile, read, write

fcntl = storage.fcntl  # not on Windows

DTYPES = ["bool", "uint8", "int32", "int64", "float32", "float64"]
HEADER = {"name": "Bjørn", "levels": ["a", 1, 2.5, True, None], "nested": {"x": {"y": [-0.0, 1e-300]}}, "empty": {}}


def example_arrays():
    payload = np.array([0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000001], np.uint64).view(np.float64)
    return {
        "weights": np.random.default_rng(0).normal(size=(5, 7)),
        "payloads": payload,
        "codes": np.arange(6, dtype=np.int32).reshape(2, 3),
        "mask": np.array([True, False, True]),
        "none": np.zeros((0, 3), np.float32),
        "zero-d": np.array(-0.0),
        'é\n"': np.array([255, 0], np.uint8),
    }


def same(a, b):
    """The same arrays to the bit."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.vertebra"
    write(path, "Thing", HEADER, example_arrays())
    return path


def parts(data):
    """The entries of the JSON and the bytes of the arrays."""
    n = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + n]), data[8 + n :]


def joined(entries, data):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def signed(kind="Thing", header="{}", arrays=None):
    """A file whose checksum is right, whatever it holds."""
    metadata = {"vertebra_format": "1", "kind": kind, "header": header, "libraries": "{}"}
    arrays = arrays or {}
    return safetensors.numpy.save(arrays, metadata | {"checksum": storage._checksum(metadata, arrays)})


def refusal(path, kinds=None):
    with pytest.raises(BadFile) as caught:
        read(path, kinds)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.count(". ") >= 1 or "upgrade" in message  # what is wrong, then what to do
    return message.removeprefix(f"{path}: ")


def alone(path, code):
    """The command of a process that runs the code with this module only: importing JAX takes seconds."""
    module = f"import runpy; globals().update(runpy.run_path({storage.__file__!r})); path = {str(path)!r}"
    return [sys.executable, "-c", f"{module}\n{code}"]


any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.text(max_size=8),
    header=st.dictionaries(st.text(), any_json, max_size=4),
    arrays=st.dictionaries(st.text(), any_array, max_size=4),
)
def test_what_is_written_is_read_and_safetensors_reads_it_too(tmp_path_factory, kind, header, arrays):
    path = tmp_path_factory.getbasetemp() / "round-trip.vertebra"
    write(path, kind, header, arrays)
    got_kind, got_header, got = read(path, [kind])
    assert got_kind == kind
    assert json.dumps(got_header) == json.dumps(header)  # order and the sign of zero too
    assert same(got, arrays)
    assert same(safetensors.numpy.load_file(path), arrays)


def test_nan_payloads_zero_size_and_zero_d_arrays_survive(path):
    kind, header, arrays = read(path)
    assert (kind, header) == ("Thing", HEADER)
    assert same(arrays, example_arrays())
    assert same(safetensors.numpy.load_file(path), example_arrays())
    assert all(array.flags.writeable and array.flags.owndata for array in arrays.values())


def test_any_order_of_memory_is_written_as_its_values(tmp_path):
    base = np.arange(24.0).reshape(2, 3, 4)
    views = {"fortran": np.asfortranarray(base), "strided": base[:, ::-1, ::2], "broadcast": np.broadcast_to(1.0, 3)}
    write(tmp_path / "a", "Thing", {}, views)
    _, _, got = read(tmp_path / "a")
    assert same(got, views)


def test_a_file_says_what_wrote_it(path):
    metadata = parts(path.read_bytes())[0]["__metadata__"]
    assert metadata["vertebra_format"] == str(FORMAT)
    assert json.loads(metadata["libraries"]).keys() == {"python", "vertebra", "jax", "numpy", "scikit-learn"}
    assert json.loads(metadata["libraries"])["numpy"] == np.__version__
    assert re.fullmatch("[0-9a-f]{64}", metadata["checksum"])


def test_another_process_reads_the_same_bits(path):
    code = "a = read(path)[2]\nfor k in sorted(a): print(ascii(k), a[k].dtype, a[k].shape, a[k].tobytes().hex())"
    out = subprocess.run(alone(path, code), capture_output=True, text=True, check=True).stdout
    a = example_arrays()
    assert out.splitlines() == [f"{k!a} {a[k].dtype} {a[k].shape} {a[k].tobytes().hex()}" for k in sorted(a)]


@pytest.mark.parametrize(
    ("header", "error", "words"),
    [
        ({"a": {"b": [1.0, math.nan]}}, ValueError, "`header['a']['b'][1]` must be a finite number, got nan"),
        ({"a": -math.inf}, ValueError, "`header['a']` must be a finite number, got -inf"),
        ({"a": 10**5000}, ValueError, "`header['a']` must be a finite number, got an integer of 16610 bits"),
        ({"a": {1: 2}}, TypeError, "`header['a']` must have keys of text, got 1"),
        ({"a": [np.int64(1)]}, TypeError, "`header['a'][0]` must be text, a number, a boolean, None, a list or a dict"),
        ({"a": "\ud800"}, ValueError, r"`header['a']` must be text that UTF-8 can hold, got '\ud800'"),
        ({"\ud800": 1}, ValueError, r"`header['\ud800']` must be text that UTF-8 can hold"),
    ],
)
def test_a_header_that_json_would_not_give_back_is_refused_by_place(tmp_path, header, error, words):
    with pytest.raises(error, match=re.escape(words)):
        write(tmp_path / "a", "Thing", header, {})
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_holds_itself_is_refused(tmp_path):
    header = {}
    header["self"] = header
    with pytest.raises(ValueError, match="must be nested at most 100 deep"):
        write(tmp_path / "a", "Thing", header, {})


def test_a_header_too_long_to_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_LONGEST", 1000)
    with pytest.raises(ValueError, match=r"`header` must fit in 1000 bytes with the names, got \d+: move data to"):
        write(tmp_path / "a", "Thing", {"a": "x" * 1000}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float16", "complex128", "uint32", "int8", "U3", "object", ">f8", "M8[s]", "i4,f8"])
def test_other_dtypes_are_refused_by_name(tmp_path, dtype):
    with pytest.raises(TypeError, match=re.escape("`arrays['theta']` must have one of the dtypes bool, float32")):
        write(tmp_path / "a", "Thing", {}, {"theta": np.zeros(2, dtype)})


def test_other_arrays_and_names_are_refused(tmp_path):
    for array in ([1.0], np.float64(1.0), np.ma.masked_array([1.0])):
        with pytest.raises(TypeError):
            write(tmp_path / "a", "Thing", {}, {"theta": array})
    with pytest.raises(ValueError, match="other than '__metadata__'"):
        write(tmp_path / "a", "Thing", {}, {"__metadata__": np.zeros(1)})
    with pytest.raises(ValueError, match=r"`arrays\['.ud800'\]` must be text"):
        write(tmp_path / "a", "Thing", {}, {"\ud800": np.zeros(1)})
    with pytest.raises(ValueError, match=r"`arrays\['m'\]` must hold true or false only"):
        write(tmp_path / "a", "Thing", {}, {"m": np.array([2], np.uint8).view(bool)})


def test_a_folder_a_missing_folder_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="`path` must name a file, got the folder"):
        write(tmp_path, "Thing", {}, {})
    with pytest.raises(FileNotFoundError, match=r"must lie in a folder that exists, got .*: make '.*nowhere' first"):
        write(tmp_path / "nowhere" / "a", "Thing", {}, {})
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        read(tmp_path)
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read(tmp_path / "nowhere" / "a")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="`path` must name a regular file"):
        write(tmp_path / "pipe", "Thing", {}, {})
    assert "this is a device, a pipe or a socket" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path, monkeypatch, step, error):
    def fail(*_):
        raise error

    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(type(error)):
            write(path, "Thing", {"new": 1}, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_new_file_keeps_the_permissions_of_the_old_and_follows_a_link(path):
    path.chmod(0o600)
    link = path.parent / "link"
    link.symlink_to(path.name)
    write(link, "Thing", {"new": 1}, {})
    assert link.is_symlink()
    assert read(path)[1] == {"new": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_long_name_can_be_written(tmp_path):
    path = tmp_path / ("é" * 127)  # 254 bytes of the 255 a name may have
    write(path, "Thing", {}, {})
    assert read(path) == ("Thing", {}, {})


@pytest.mark.skipif(fcntl is None, reason="locks and kills of POSIX")
def test_a_process_killed_while_it_writes_leaves_a_file_that_loads(tmp_path):
    path = tmp_path / "model.vertebra"
    write(path, "Thing", {"i": -1}, {"a": np.full(500_000, -1.0)})
    code = (
        "import itertools, numpy as np; print('ready', flush=True)\n"
        "for i in itertools.count(): write(path, 'Thing', {'i': i}, {'a': np.full(500_000, float(i))})"
    )
    rng = np.random.default_rng(0)
    for i in range(12):
        with subprocess.Popen(alone(path, code), stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout.readline() == b"ready\n"
                time.sleep(rng.uniform(0.0, 0.1))
                while i % 2 and not list(tmp_path.glob(f".*.{writer.pid}.*.part")):  # in the midst of the file
                    assert writer.poll() is None
                assert writer.poll() is None
            finally:
                writer.kill()
        assert writer.returncode == -signal.SIGKILL
        _, header, arrays = read(path)
        assert (arrays["a"] == header["i"]).all()
    write(path, "Thing", {"last": True}, {})
    assert read(path)[1] == {"last": True}
    assert list(tmp_path.iterdir()) == [path]  # what the killed left over is swept


def test_the_same_contents_are_the_same_bytes(path):
    first, other = path.read_bytes(), path.parent / "other"
    arrays = dict(reversed(example_arrays().items()))
    for _ in range(8):  # a hash map's order would be another each time
        write(other, "Thing", HEADER, arrays)
        assert other.read_bytes() == first


@pytest.mark.skipif(fcntl is None, reason="locks and kills of POSIX")
def test_what_killed_processes_left_is_swept_and_what_others_write_is_not(tmp_path):
    path = tmp_path / "model.vertebra"
    code = (
        "import os, signal, numpy as np\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write(path, 'Thing', {}, {})"
    )
    for _ in range(2):
        assert subprocess.run(alone(path, code), check=False).returncode == -signal.SIGKILL
    (dead,) = tmp_path.glob("*.part")  # the first one's is swept by the second
    other = tmp_path / ".another.vertebra.1.0123456789abcdef.part"
    ours = tmp_path / f".{path.name}.{os.getpid()}.0123456789abcdef.part"
    # of another machine, where the number belongs to a process that lives and holds a lock
    held = tmp_path / dead.name.replace(dead.name.split(".")[-2], "f" * 16)
    strange = tmp_path / f".{path.name}.part"
    for each in (other, ours, held, strange):
        each.touch()
    with open(held, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write(path, "Thing", {}, {})
        assert set(tmp_path.iterdir()) == {path, other, ours, held, strange}
    storage.sweep(path)
    assert set(tmp_path.iterdir()) == {path, other, ours, strange}


def test_a_kind_is_held_to(path):
    assert read(path, ["Other", "Thing"])[0] == "Thing"
    assert "this is 'Thing', wanted Another, Other. Load it as" in refusal(path, {"Other", "Another"})
    with pytest.raises(TypeError, match=r"must be a collection of kinds, got the text 'Thing': write \['Thing'\]"):
        read(path, "Thing")


def test_a_newer_format_asks_for_an_upgrade(path):
    entries, data = parts(path.read_bytes())
    entries["__metadata__"] |= {"vertebra_format": "7", "something": "new"}
    path.write_bytes(joined(entries, data))
    assert refusal(path).startswith("written by a newer Vertebra (format 7, this one reads up to 1): upgrade")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e, m: m.pop("vertebra_format"), "it is not a Vertebra file"),
        (lambda e, m: e.pop("__metadata__"), "it is not a Vertebra file"),
        (lambda e, m: e.update(__metadata__=[1]), "it is not a Vertebra file"),
        (lambda e, m: m.update(kind=3), "its metadata are not all text"),
        (lambda e, m: m.update(vertebra_format="0"), "its format is '0', not a version"),
        (lambda e, m: m.update(vertebra_format="1" * 5000), "not a version"),
        (lambda e, m: m.update(vertebra_format="１"), "not a version"),
        (lambda e, m: (m.pop("kind"), m.pop("checksum")), "its metadata lack checksum, kind"),
        (lambda e, m: m.update(extra=""), "its metadata hold the unknown extra"),
        (lambda e, m: m.update(kind="Other"), "corrupted"),
        (lambda e, m: m.update(header="{}"), "corrupted"),
        (lambda e, m: m.update(libraries="{}"), "corrupted"),
        (lambda e, m: m.update(checksum="0" * 64), "corrupted"),
        (lambda e, m: e.update(renamed=e.pop("codes")), "corrupted"),
        (lambda e, m: e["codes"].update(shape=[3, 2]), "corrupted"),
        (lambda e, m: e["weights"].update(dtype="I64"), "corrupted"),
        (lambda e, m: e["codes"].update(dtype="F16"), "the array 'codes' has the unknown dtype 'F16'"),
        (lambda e, m: e["codes"].update(dtype=["I32"]), "the array 'codes' has the unknown dtype ['I32']"),
        (lambda e, m: e["codes"].update(shape=[2, 4]), "the array 'codes' needs 32 bytes for its shape, and its off"),
        (lambda e, m: e["codes"].update(shape=[-2, -3]), "the array 'codes' has the shape [-2, -3]"),
        (lambda e, m: e["codes"].update(shape=[2, True]), "the array 'codes' has the shape [2, True]"),
        (lambda e, m: e["codes"].update(shape=[6.0]), "the array 'codes' has the shape [6.0]"),
        (lambda e, m: e["codes"].update(shape=6), "the array 'codes' has the shape 6"),
        (lambda e, m: e["codes"].update(shape=[1] * 65), "the array 'codes' has the shape [1, 1"),
        (lambda e, m: e["codes"].update(shape=[2**70]), "the array 'codes' has the shape [1180591620717411303424]"),
        (lambda e, m: e["codes"].update(shape=[2**33, 2**33]), "larger than any array"),
        (lambda e, m: e["none"].update(shape=[0, 2**62, 2**62]), "larger than any array"),
        (lambda e, m: e["codes"].update(shape=[2**40]), "needs 4398046511104 bytes for its shape"),
        (lambda e, m: e["codes"].update(data_offsets=[0]), "the array 'codes' has the offsets [0]"),
        (lambda e, m: e["codes"]["data_offsets"].reverse(), "its offsets give it -24"),
        (lambda e, m: e["codes"].update(extra=1), "the array 'codes' is not described by data_offsets, dtype, shape"),
        (lambda e, m: e.update(codes=None), "the array 'codes' is not described by"),
        (lambda e, m: e["codes"].update(data_offsets=[0, 24]), "begins at byte"),
        (lambda e, m: e.pop("codes"), "and the one before it ends at"),
        (lambda e, m: e.update(more={"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}), "begins at byte"),
        (lambda e, m: e.update({"\ud800": 1}), "must be text that UTF-8 can hold"),
    ],
)
def test_each_false_claim_of_a_file_is_refused(path, change, words):
    entries, data = parts(path.read_bytes())
    change(entries, entries.get("__metadata__"))
    path.write_bytes(joined(entries, data))
    assert words in refusal(path)


def test_files_that_are_no_safetensors_files_are_refused(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + n]
    cases = {
        b"": "it is empty",
        b"12345678": "it has 8 bytes, too few",
        data[: 8 + n // 2]: "it is not a safetensors file, or is cut short",
        data[:-1]: "it is cut short",
        data + b"\0\0": "2 bytes follow the last array",
        b"\xff" * 100: "it is not a safetensors file",
        b"<html>not found</html>" * 10: "it is not a safetensors file",
        joined(b"{" + head, b""): "its JSON is not valid JSON",
        joined(b"\xff" + head[1:], b""): "its JSON is not UTF-8",
        joined(b"\xef\xbb\xbf" + head, b""): "its JSON is not valid JSON",
        joined("{}".encode("utf-16"), b""): "its JSON is not UTF-8",
        joined(b"[]", b""): "its JSON is not a JSON object",
        joined(b"{}", b""): "it is not a Vertebra file",
        joined(b'{"a":1,"a":1}', b""): "a key stands there twice",
        joined(b'{"__metadata__":{},' + head[1:], b""): "a key stands there twice",
        joined(b'{"a":NaN}', b""): "must be a finite number",
        joined(b'{"a":1e999}', b""): "must be a finite number",
        joined(b'{"a":' + b"9" * 10_000 + b"}", b""): "its JSON is not valid JSON",
        joined(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", b""): "must be nested at most 100 deep",
        joined(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b""): "its JSON is nested too deep",
        joined(b"[" * 1_000_000, b""): "its JSON is nested too deep",
        safetensors.numpy.save({"a": np.zeros(3)}): "it is not a Vertebra file",
    }
    for content, words in cases.items():
        path.write_bytes(content)
        assert words in refusal(path), content[:50]


def test_a_right_checksum_excuses_nothing(path):
    cases = {
        signed(header='{"a":1,"a":2}'): "a key stands there twice",
        signed(header='{"a":[NaN]}'): "`JSON['a'][0]` must be a finite number",
        signed(header='{"a":-1e999}'): "must be a finite number",
        signed(header="[]"): "its header is not a JSON object",
        signed(header=""): "its header is not valid JSON",
        signed(header="[" * 1_000_000): "its header is nested too deep",
        signed(arrays={"m": np.array([2], np.uint8).view(bool)}): "neither true nor false",
        signed(kind="x" * 10_000): "this is 'xxx",
    }
    for content, words in cases.items():
        path.write_bytes(content)
        assert words in refusal(path, ["Thing"])
    path.write_bytes(signed(header='{"a": 1}'))
    assert read(path) == ("Thing", {"a": 1}, {})


def test_absurd_sizes_take_no_memory(path):
    """A sparse file of 1 TiB, which says that its JSON fills it."""
    with open(path, "r+b") as file:
        file.truncate(2**40)
    assert "bytes follow the last array" in refusal(path)
    with open(path, "r+b") as file:
        file.write((2**40 - 8).to_bytes(8, "little"))
    assert f"{2**40 - 8} bytes of JSON in {2**40} bytes" in refusal(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            lambda: ",".join(f'"{i}":{{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}' for i in range(900_000)),
            "values",
        ),
        (lambda: '"a":[' + ",".join(["[]"] * 20_000_000) + "]", "values, more than 4000000"),
        (lambda: ",".join(f'"{i}":0' for i in range(3_000_000)), "keys, more than 2000000"),
        (lambda: ",".join(f'"{i}":{{}}' for i in range(150_000)), "150000 arrays, where at most 100000 are read"),
    ],
    ids=["arrays", "lists", "keys", "empty arrays"],
)
def test_json_of_very_many_values_is_refused_before_it_is_parsed(path, content, words):
    pytest.importorskip("resource", reason="memory is not measured on Windows")
    metadata = parts(path.read_bytes())[0]["__metadata__"]
    path.write_bytes(joined(f'{{"__metadata__":{json.dumps(metadata)},{content()}}}'.encode(), b""))
    code = (
        "import resource, time\n"
        "before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()\n"
        "try: read(path)\n"
        "except BadFile as error: print(str(error))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, time.process_time() - start)"
    )
    said = subprocess.run(alone(path, code), capture_output=True, text=True, check=True).stdout.splitlines()
    assert words in said[0]
    megabytes, seconds = map(float, said[1].split())
    # the text itself has up to 60 MB; parsed it would be a gigabyte and take half a minute
    assert megabytes < 300
    assert seconds < 5.0


def test_what_would_not_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_ARRAYS", 2)
    with pytest.raises(ValueError, match="`arrays` must be at most 2, got 3: put some of them together"):
        write(tmp_path / "a", "Thing", {}, {name: np.zeros(1) for name in "abc"})
    monkeypatch.setattr(storage, "_MOST_VALUES", 100)
    with pytest.raises(
        ValueError, match=r"`header` must not have \d+ values, more than 100, with the names: move data"
    ):
        write(tmp_path / "a", "Thing", {"a": list(range(100))}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_larger_than_memory_is_refused(path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(np, "empty", fail)
    assert "it does not fit in memory" in refusal(path)


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_a_pickle_and_a_zip_are_refused_and_run_no_code(path):
    trace = path.parent / "trace"
    pickles = [pickle.dumps(Bomb(str(trace)), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("data.pkl", pickles[2])
    objects = io.BytesIO()
    np.save(objects, np.array([Bomb(str(trace))], dtype=object), allow_pickle=True)
    for content in [*pickles, archive.getvalue(), objects.getvalue(), joined(pickles[0], b""), joined(pickles[4], b"")]:
        path.write_bytes(content)
        refusal(path)
        assert not trace.exists()
    pickle.loads(pickles[4])
    assert trace.exists()  # the pickle was live


def corrupted(rng, data):
    """The file with one random harm done to it, and what was done."""
    n, size = int.from_bytes(data[:8], "little"), len(data)
    i, j = sorted(rng.integers(0, size, 2).tolist())
    noise = rng.bytes(rng.integers(1, 20))
    harm = rng.choice(
        ["flip", "flip head", "cut", "insert", "drop", "swap", "length", "digit", "mark", "sizes", "noise"]
    )
    if harm in ("flip", "flip head"):
        at = i if harm == "flip" else int(rng.integers(0, 8 + n))
        return harm, data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
    if harm == "cut":
        return harm, data[:i]
    if harm == "insert":
        return harm, data[:i] + noise + data[i:]
    if harm == "drop":
        return harm, data[:i] + data[i + len(noise) :]
    if harm == "swap":
        return harm, data[:i] + data[j:] + data[i:j]
    if harm == "length":
        return harm, (n + int(rng.choice([-8, -1, 1, 8, 2**20, 2**40]))).to_bytes(8, "little") + data[8:]
    if harm in ("digit", "mark"):
        wanted = b"0123456789" if harm == "digit" else b'{}[]",:\\ -.eE'
        at = int(rng.choice([k for k in range(8, 8 + n) if data[k] in wanted]))
        return harm, data[:at] + bytes([rng.choice(list(wanted))]) + data[at + 1 :]
    if harm == "sizes":
        entries, rest = parts(data)
        a, b = rng.choice([k for k in entries if k != "__metadata__"], 2, replace=False)
        field = rng.choice(["shape", "dtype", "data_offsets"])
        entries[a][field], entries[b][field] = entries[b][field], entries[a][field]
        return harm, joined(entries, rest)
    return harm, rng.bytes(size)


def test_corrupted_files_are_refused_or_load_as_they_were(path):
    data, arrays = path.read_bytes(), example_arrays()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        harm, content = corrupted(rng, data)
        path.write_bytes(content)
        try:
            kind, header, got = read(path)
        except BadFile:
            refused += 1
        else:  # a digit replaced by itself, say
            assert (kind, header) == ("Thing", HEADER), harm
            assert same(got, arrays), harm
    assert refused > 270


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "__metadata__"]),
        any_json
        | st.fixed_dictionaries(
            {
                "dtype": st.sampled_from([*storage._DTYPES, "F16"]) | any_json,
                "shape": st.lists(st.integers(-1, 3) | st.integers(), max_size=3) | any_json,
                "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2) | any_json,
            }
        ),
    ),
    st.binary(max_size=16),
)
def test_no_json_makes_another_error(tmp_path_factory, entries, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.vertebra"
    for metadata in [{}, {"__metadata__": dict.fromkeys(storage._SIGNED, "1") | {"checksum": ""}}]:
        path.write_bytes(joined(entries | metadata, data))
        refusal(path)
