"""Save and load: one file, no pickle.

A file is a safetensors file: 8 bytes with the length of a JSON text, that text, and the bytes of the arrays. Its
metadata hold what it is (`kind`), what else there is to know (`header`), who wrote it (`libraries`) and a checksum of
it all. `write` replaces a file whole or not at all, and the same contents are the same bytes. `read` takes nothing in a
file on trust, for it may come from anyone: it parses, and runs nothing, and takes no more memory than a few times the
file's own size.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from io import BufferedReader
from typing import NamedTuple, TypeGuard

import numpy as np

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

FORMAT = 1

# An object of JSON: what is read is no more than an `object` until it was held to what it may be (`claims`).
Record = dict[str, object]

_DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ENTRY = {"dtype", "shape", "data_offsets"}
_SIGNED = ("vertebra_format", "kind", "header", "libraries")
_LONGEST = 64 * 2**20  # bytes of JSON
# What JSON costs is its values, of some hundred bytes each once parsed. Of arrays a model has about twelve an input; of
# other values the levels of its categories, of which a survey takes a million, and four for each term tested.
_MOST_ARRAYS, _MOST_VALUES, _MOST_KEYS = 100_000, 4_000_000, 2_000_000
_DEEPEST = 100  # levels of the header: far from where a parser's recursion ends
_MOST_AXES = 64  # NumPy's own bound
_DAMAGED = "The file is damaged or is not Vertebra's: take another copy of it, or save the model again."


class BadFile(ValueError):
    """The file cannot be loaded; the message says why, and what to do.

    >>> np.array([1.0, 2.0]).tofile("broken.vertebra")
    >>> vb.load("broken.vertebra")
    Traceback (most recent call last):
    ...
    vertebra.machine.file.BadFile: broken.vertebra: ...
    """


def write(path: str | os.PathLike[str], kind: str, header: Record, arrays: Mapping[str, np.ndarray]) -> None:
    """Save whole or not at all: whatever happens, `path` holds either what it held before or all that is given here.

    The header is what JSON can hold, NaN and infinity aside; its tuples come back as lists. A link is followed.
    """
    _target(path)
    _check_json(kind, "kind")
    _check_json(header, "header")
    arrays = {key: _checked(key, array) for key, array in arrays.items()}
    metadata = {
        "vertebra_format": str(FORMAT),
        "kind": kind,
        "header": json.dumps(header),
        "libraries": json.dumps(libraries()),
    }
    if len(arrays) > _MOST_ARRAYS:
        raise ValueError(f"`arrays` must be at most {_MOST_ARRAYS}, got {len(arrays)}: put some of them together.")
    text = _described(metadata | {"checksum": _checksum(metadata, arrays)}, arrays)
    if (length := len(text)) > _LONGEST:
        raise ValueError(f"`header` must fit in {_LONGEST} bytes with the names, got {length}: move data to `arrays`.")
    if wrong := _too_many(text):
        raise ValueError(f"`header` must not have {wrong} with the names: move data to `arrays`.")
    put(path, b"".join([len(text).to_bytes(8, "little"), text, *(_raw(arrays[name]) for name in _in_order(arrays))]))


def _in_order(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The names in the order of the bytes: large items first, so that each begins at a multiple of its size."""
    return sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))


def _described(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The JSON of a file, filled with spaces to a multiple of 8 bytes as safetensors does."""
    entries: Record = {"__metadata__": {key: metadata[key] for key in sorted(metadata)}}
    begin = 0
    for name in _in_order(arrays):
        array = arrays[name]
        end = begin + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _target(path: str | os.PathLike[str]) -> str:
    """Where a file may be written, links followed."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        raise IsADirectoryError(f"`path` must name a file, got the folder {str(path)!r}: add a file name to it.")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"`path` must lie in a folder that exists, got {str(path)!r}: make {folder!r} first.")
    if os.path.exists(target) and not os.path.isfile(target):
        raise ValueError(f"`path` must name a regular file, got {str(path)!r}, which is a device, a pipe or a socket.")
    return target


def put(path: str | os.PathLike[str], data: bytes) -> None:
    """The file's contents whole or not at all: written beside it, then put in its place.

    What processes that died left beside it is swept away.
    """
    target = _target(path)
    folder, name = os.path.split(target)
    sweep(target)
    with contextlib.ExitStack() as held:
        part = os.path.join(folder, f"{_part_of(name)}{os.getpid()}.{secrets.token_hex(8)}.part")
        try:
            with open(part, "xb") as file:
                held.enter_context(_locked(part))
                file.write(data)
                file.flush()
                if os.path.exists(target):
                    shutil.copymode(target, part)
                os.fsync(file.fileno())
            os.replace(part, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
    with contextlib.suppress(OSError):  # not every system lets a folder be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # the new name, too, is on disk
        finally:
            os.close(descriptor)


def sweep(path: str | os.PathLike[str]) -> None:
    """Removes the unfinished files that processes, killed while they wrote `path`, left beside it."""
    folder, name = os.path.split(os.path.realpath(path))
    left_over = re.compile(re.escape(_part_of(name)) + r"([0-9]{1,10})\.[0-9a-f]{16}\.part")
    with contextlib.suppress(OSError):  # it is a courtesy: a folder that cannot be listed may be written to
        for found in os.listdir(folder):
            if (match := left_over.fullmatch(found)) and not _is_alive(int(match[1])):
                part = os.path.join(folder, found)
                # a process of another machine or container may have the number of one that is dead here: it has a lock
                with contextlib.suppress(OSError), _locked(part, is_needed=True):
                    os.unlink(part)


def _part_of(name: str) -> str:
    """How the names begin of what is written in the place of a file."""
    return f".{name[:40]}."


@contextlib.contextmanager
def _locked(part: str, *, is_needed: bool = False) -> Iterator[None]:
    """The file is in use, as other processes can see; the lock ends with the process, however it ends.

    Where it `is_needed`, an OSError if there is none to be had.
    """
    if fcntl is None:
        if is_needed:
            raise OSError("no locks on this system")
        yield
        return
    descriptor = os.open(part, os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # taken, or a file system without locks
            if is_needed:
                raise
        yield
    finally:
        os.close(descriptor)


def _is_alive(pid: int) -> bool:
    """Whether a process of this number runs here; where it cannot be told, yes."""
    if fcntl is None:  # `os.kill(pid, 0)` asks on POSIX alone
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def read(
    path: str | os.PathLike[str], kinds: Collection[str] | None = None
) -> tuple[str, Record, dict[str, np.ndarray]]:
    """The kind, header and arrays that `write` was given, of one of the `kinds`; else `BadFile`."""
    if isinstance(kinds, str):
        raise TypeError(f"`kinds` must be a collection of kinds, got the text {kinds!r}: write [{kinds!r}].")
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: there is no such file. Check the path, or save a model there.") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path}: this is a folder. Give the path of a file in it.")
    try:
        _demand(stat.S_ISREG(mode), "this is a device, a pipe or a socket", "Give the path of a regular file.")
        with open(path, "rb") as file:
            metadata, arrays = _contents(file, os.fstat(file.fileno()).st_size)
        kind = metadata["kind"]
        is_wanted = kinds is None or kind in kinds
        _demand(is_wanted, f"this is {kind[:200]!r}, wanted {_list(kinds or ())}", "Load it as what it is.")
        header = _parsed(metadata["header"], "its header")
    except BadFile as error:
        raise BadFile(f"{path}: {error}") from None
    except MemoryError:
        raise BadFile(f"{path}: it does not fit in memory. Free some, or load it on a larger machine.") from None
    return kind, header, arrays


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """The kind that a file claims to be of, unchecked; None where it claims nothing that could be read."""
    # its JSON is looked through, not parsed: in the header, which is text inside it, quotes are escaped
    with contextlib.suppress(OSError), open(path, "rb") as file:
        text = file.read(min(int.from_bytes(file.read(8), "little"), _LONGEST))
        claim = re.search(rb'"kind"\s*:\s*"([^"\\]{1,100})"', text)
        return None if claim is None else claim[1].decode(errors="replace")


def _contents(file: BufferedReader, size: int) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The metadata and arrays of a file of this size, each claim held against the others before it is used."""
    _demand(size > 0, "it is empty")
    _demand(size > 8, f"it has {size} bytes, too few for a Vertebra file")
    length = int.from_bytes(file.read(8), "little")
    is_plausible = 2 <= length <= min(size - 8, _LONGEST)
    _demand(is_plausible, f"it is not a safetensors file, or is cut short: {length} bytes of JSON in {size} bytes")
    text = file.read(length)
    wrong = _too_many(text)
    _demand(not wrong, f"its JSON has {wrong}")
    try:
        entries = _parsed(text.decode(), "its JSON")
    except UnicodeDecodeError:
        raise BadFile(f"its JSON is not UTF-8. {_DAMAGED}") from None
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict) or "vertebra_format" not in metadata:
        raise BadFile("it is not a Vertebra file: its metadata name no vertebra_format. Load it with what wrote it.")
    _demand(all(isinstance(value, str) for value in metadata.values()), "its metadata are not all text")
    version = metadata["vertebra_format"]
    _demand(re.fullmatch("[1-9][0-9]{0,8}", version) is not None, f"its format is {version[:200]!r}, not a version")
    if int(version) > FORMAT:
        newer = f"written by a newer Vertebra (format {version}, this one reads up to {FORMAT})"
        raise BadFile(f"{newer}: upgrade Vertebra to load it.")
    wanted = {*_SIGNED, "checksum"}
    _demand(metadata.keys() >= wanted, f"its metadata lack {_list(wanted - metadata.keys())}")
    _demand(metadata.keys() <= wanted, f"its metadata hold the unknown {_list(metadata.keys() - wanted)}")
    n_arrays = len(entries)
    _demand(n_arrays <= _MOST_ARRAYS, f"it has {n_arrays} arrays, where at most {_MOST_ARRAYS} are read")
    places = _places(entries, size - 8 - length)
    arrays = {}
    for name, place in places.items():
        arrays[name] = np.empty(place.shape, place.dtype)
        raw = _raw(arrays[name])
        _demand(file.readinto(raw) == raw.nbytes, "it was cut short while it was read")
    _demand(metadata["checksum"] == _checksum(metadata, arrays), "corrupted: its contents do not match its checksum")
    for name, array in arrays.items():
        if not _is_valid(array):
            raise BadFile(f"the array {name[:200]!r} holds bytes that are neither true nor false. {_DAMAGED}")
    return metadata, arrays


def _too_many(text: bytes) -> str:
    """What there is too much of to parse, if anything. Commas and colons within text count too: they cost nothing."""
    for sign, most, what in ((b",", _MOST_VALUES, "values"), (b":", _MOST_KEYS, "keys")):
        if (n := text.count(sign)) > most:
            return f"{n} {what}, more than {most},"
    return ""


class _Place(NamedTuple):
    """Where the bytes of an array lie, and what they are."""

    begin: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def _places(entries: Mapping[str, object], size: int) -> dict[str, _Place]:
    """The place of each array in the order of their bytes, which fill `size` without gap or overlap."""
    found = {}
    for name, entry in entries.items():
        try:
            found[name] = _place(entry)
        except ValueError as wrong:
            raise BadFile(f"the array {name[:200]!r} {wrong}. {_DAMAGED}") from None
    end = 0
    places = dict(sorted(found.items(), key=lambda each: each[1][:2]))
    for name, place in places.items():
        if place.begin != end:
            where = f"begins at byte {place.begin}, and the one before it ends at {end}"
            raise BadFile(f"the array {name[:200]!r} {where}. {_DAMAGED}")
        end = place.end
    _demand(end <= size, f"it is cut short: {end} bytes of arrays announced, {size} found")
    _demand(end == size, f"{size - end} bytes follow the last array")
    return places


def _place(entry: object) -> _Place:
    """The place of an array as it is described, or a ValueError that says what is wrong with the description."""
    if not isinstance(entry, dict) or entry.keys() != _ENTRY:
        raise ValueError(f"is not described by {_list(_ENTRY)}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"has the unknown dtype {repr(dtype)[:200]}")
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
        raise ValueError(f"has the shape {repr(shape)[:200]}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"has the offsets {repr(offsets)[:200]}")
    itemsize = _DTYPES[dtype].itemsize
    # Axes of length 0 left out, as NumPy does: the others alone must not overflow.
    if math.prod(n for n in shape if n > 0) * itemsize > sys.maxsize:
        raise ValueError(f"has the shape {repr(shape)[:200]}, larger than any array")
    needed, given = math.prod(shape) * itemsize, offsets[1] - offsets[0]
    if needed != given:
        raise ValueError(f"needs {needed} bytes for its shape, and its offsets give it {given}")
    return _Place(offsets[0], offsets[1], _DTYPES[dtype], tuple(shape))


def _parsed(text: str, what: str) -> Record:
    """A JSON object, no key twice and nothing in it that `write` would refuse."""

    def unique(pairs: list) -> dict:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key stands there twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique)
        _check_json(value, "JSON")
    except RecursionError:
        raise BadFile(f"{what} is nested too deep. {_DAMAGED}") from None
    except ValueError as error:
        raise BadFile(f"{what} is not valid JSON ({error}). {_DAMAGED}") from None
    _demand(isinstance(value, dict), f"{what} is not a JSON object")
    return value


def _check_json(value: object, *place: str | int) -> None:
    """A ValueError or TypeError that names the place of what JSON would not give back as it is."""
    if len(place) > _DEEPEST:
        raise ValueError(f"`{_named(place)}` must be nested at most {_DEEPEST} deep.")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"`{_named(place)}` must be text that UTF-8 can hold, got {value[:200]!r}.") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"`{_named(place)}` must have keys of text, got {key!r}.")
            _check_json(key, *place, key)
            _check_json(item, *place, key)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check_json(item, *place, i)
    elif isinstance(value, int | float):
        if not abs(value) <= sys.float_info.max:
            got = value if isinstance(value, float) else f"an integer of {value.bit_length()} bits"
            raise ValueError(f"`{_named(place)}` must be a finite number, got {got}.")
    elif value is not None:
        wanted = "text, a number, a boolean, None, a list or a dict"
        raise TypeError(f"`{_named(place)}` must be {wanted}, got {type(value)}.")


def _named(place: tuple) -> str:
    return (place[0] + "".join(f"[{key!r}]" for key in place[1:]))[:500]


def _checked(name: str, array: np.ndarray) -> np.ndarray:
    """The array with its bytes in C order, if a file can hold it."""
    if not isinstance(name, str) or name == "__metadata__":
        raise ValueError(f"`arrays` must have names of text other than '__metadata__', got {name!r}.")
    _check_json(name, "arrays", name)
    place = _named(("arrays", name))
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"`{place}` must be a plain NumPy array, got {type(array)}.")
    if array.dtype not in _NAMES:
        raise TypeError(f"`{place}` must have one of the dtypes {_list(map(str, _NAMES))}, got {array.dtype}.")
    array = np.asarray(array, order="C")
    if not _is_valid(array):
        raise ValueError(f"`{place}` must hold true or false only, got other bytes.")
    return array


def _is_valid(array: np.ndarray) -> bool:
    """NumPy takes each byte of a boolean array to be 0 or 1, and counts wrongly where it is not."""
    return array.dtype != np.bool_ or bool((array.view(np.uint8) <= 1).all())


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= sys.maxsize for n in value)


def _raw(array: np.ndarray) -> memoryview:
    return array.ravel().view(np.uint8).data


def _checksum(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the metadata, the arrays' names, dtypes and shapes, and their bytes in the order of the names."""
    described = [(name, _NAMES[arrays[name].dtype], arrays[name].shape) for name in sorted(arrays)]
    digest = hashlib.sha256(json.dumps([[metadata[key] for key in _SIGNED], described]).encode())
    for name in sorted(arrays):
        digest.update(_raw(arrays[name]))
    return digest.hexdigest()


def libraries() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for library in ("vertebra", "jax", "numpy", "scikit-learn"):
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:  # run from its sources
            versions[library] = "unknown"
    return versions


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))[:200]


def _demand(holds: bool, wrong: str, remedy: str = _DAMAGED) -> None:
    if not holds:
        raise BadFile(f"{wrong}. {remedy}")
