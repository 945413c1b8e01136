"""Files of every kind, changed at random and sealed again: loaded, they are refused, or say finite numbers of rows.

    python experiments/fuzz_files.py [--quick] [--mutants N] [--only KIND …] [--seed S]

writes results/fuzz_files.csv, a row for each kind of file: how many mutants were refused with the library's own error,
how many loaded and predicted finite numbers, and how many did neither (faults: another error, a number that is not
finite, memory or time beyond the limits, a process that died). A mutant is told by its kind, seed and number, and
`--show KIND NUMBER` runs one alone. `--quick` makes 50 of each, and writes results/fuzz_files-quick.csv.

Mutants are loaded one after another by a process that may take 1 GiB more than it had before the first one.
"""

import argparse
import atexit
import copy
import functools
import importlib.util
import io
import json
import pathlib
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
import pandas as pd

import vertebra as vb
from vertebra import serving
from vertebra.machine import checkpoint
from vertebra.machine import file as storage

try:
    import resource
except ImportError:  # not on Windows
    resource = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments/results"
N_MUTANTS, N_QUICK = 5000, 50
STATM = pathlib.Path("/proc/self/statm")  # of Linux: elsewhere memory has no limit here
MEMORY = 2**30  # bytes that loading and predicting may take besides what the process has
SECONDS = 60.0  # for one mutant: the slowest that load take a few
N_A_PROCESS = 1250  # mutants; each new shape leaves a compiled program behind
KINDS = ("terms", "classes", "counts", "uneven noise", "network", "hybrid", "ensemble", "npz", "checkpoint")
SAVED = {"classes": "three_classes", "uneven noise": "uneven_noise"}  # what `tests/files/write.py` calls them
OWN_ERRORS = (vb.BadFile, serving.BadTables, vb.Diverged)
COLUMNS = ("refused", "loaded", "faults", "slowest_seconds")

# What stands in the place of a value: of no sense, of no size, of another type.
STRANGE: tuple[Any, ...] = (
    *(float("nan"), float("inf"), -1, 0, 1, 2, 7, 1e-320, 0.5, -0.5, 1e9, 1e20, 1e300, -1e300, 1.7e308),
    *(10**6, 400_000_000, 2**31, 2**63, 10**18, 10**400, -(10**9), True, False, None, "", "x", "nan", "0"),
    *("<U500000000", "<U3", "|O", "<f8", "<M8[s]", "V100000000", [], {}, [[]], [0], [-1, -1, 400_000_000], {"a": 1}),
    *([40_000, 40_000], [1, 1], "terms", "network", "Gaussian", "inputs a\nlayer h = tanh(a)\noutput h = h", "exp"),
)
# What stands in the place of a number of an array.
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 2.0, 1e9, 1e20, 1e30, 1e38, 1e300, -1e300, 1e-320, -1e-9, 2.0**62)


class Task(NamedTuple):
    kind: str
    mutants: int
    seed: int


class Contents(NamedTuple):
    """What a file holds, whatever its format: its kind, header and arrays."""

    kind: str
    header: Any
    arrays: dict[str, np.ndarray]


# --- mutants ----------------------------------------------------------------------------------------------------------


def mutant(contents: Contents, seed: int, number: int, seal: Callable) -> bytes:
    """The mutant of this number: one to three things about the file changed, and sealed again."""
    rng = np.random.default_rng([seed, number])
    contents = Contents(contents.kind, copy.deepcopy(contents.header), dict(contents.arrays))
    for _ in range(rng.choice([1, 2, 3], p=[0.7, 0.2, 0.1])):
        if rng.random() < 0.5:
            contents = contents._replace(header=_changed_header(rng, contents.header))
        else:
            _change_array(rng, contents.arrays)
    if rng.random() < 0.01:
        contents = contents._replace(kind=str(rng.choice(["AdditiveRegressor", "SkeletonClassifier", "checkpoint"])))
    return seal(contents, rng)


def _changed_header(rng: np.random.Generator, header: Any) -> Any:
    places = list(_places(header))
    # a list of many numbers is one place among others, not most of them
    shallow = [place for place in places if len(place) <= 3]
    place = _any(rng, shallow if rng.random() < 0.5 and shallow else places)
    if not place:
        return _any(rng, STRANGE)
    at = header
    for key in place[:-1]:
        at = at[key]
    key, old = place[-1], at[place[-1]]
    what = rng.choice(["strange", "scaled", "deleted", "twice", "swapped", "nested", "type", "longer", "many"], p=ODDS)
    if what == "scaled" and type(old) in (int, float):
        at[key] = _any(rng, [-old, old + 1, old - 1, old * 2, old * 1e6, old * 1e-6, old * 1e200, float(old)])
    elif what == "deleted":
        del at[key]
    elif what == "twice" and isinstance(at, list):
        at.insert(key, copy.deepcopy(old))
    elif what == "twice":
        at[f"{key} "] = copy.deepcopy(old)
    elif what == "swapped":
        other = _any(rng, list(at) if isinstance(at, dict) else range(len(at)))
        at[key], at[other] = at[other], at[key]
    elif what == "nested":
        for _ in range(_any(rng, [1, 2, 90, 200])):
            at[key] = [at[key]]
    elif what == "type":
        at[key] = _any(rng, [str(old), [old], {"a": old}, bool(old), None, repr(old)])
    elif what == "longer" and isinstance(old, list):
        at[key] = _any(rng, [old + old, old[::-1], old[:-1], [*old, None], old * 50])
    elif what == "longer" and isinstance(old, str):
        at[key] = _any(rng, [old + old, old[:-1], old[::-1], old * 2000, '"' + '\\"' * 5000])
    elif what == "many":
        at[key] = [0] * 900_000
    else:
        at[key] = _any(rng, STRANGE)
    return header


ODDS = np.array([30, 20, 10, 5, 10, 5, 10, 9.5, 0.5]) / 100.0


def _places(value: Any, *place: Any):
    """The way to every value inside."""
    yield place
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, *place, key)


def _change_array(rng: np.random.Generator, arrays: dict[str, np.ndarray]) -> None:
    name = _any(rng, sorted(arrays))
    array = arrays[name].copy()
    what = rng.choice(
        ["number", "numbers", "scaled", "cut", "longer", "axes", "type", "gone", "swapped", "new", "order"]
    )
    if what in ("number", "numbers") and array.size:
        flat = array.reshape(-1)
        n = 1 if what == "number" else int(rng.integers(1, array.size + 1))
        value = _any(rng, NUMBERS)
        with np.errstate(all="ignore"):
            if array.dtype.kind == "f":
                flat[rng.choice(array.size, n, replace=False)] = value
            else:
                limits = np.iinfo(array.dtype) if array.dtype.kind != "b" else None
                whole = _any(rng, [-1, 0, 1, 2, 10**6, 2**30, 2**62])
                flat[rng.choice(array.size, n, replace=False)] = (
                    bool(whole) if limits is None else min(max(whole, limits.min), limits.max)
                )
    elif what == "scaled" and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            array = (array * _any(rng, [-1.0, 0.0, 1e-9, 1e3, 1e9, 1e30, 1e200])).astype(array.dtype)
    elif what == "cut" and array.ndim:
        axis = int(rng.integers(array.ndim))
        array = np.take(array, range(int(rng.integers(0, array.shape[axis] + 1))), axis=axis)
    elif what == "longer" and array.ndim:
        array = np.concatenate([array, array], axis=int(rng.integers(array.ndim)))
    elif what == "axes":
        array = _any(
            rng,
            [
                array.T,
                array.reshape(-1),
                array[None],
                array[..., None],
                array.reshape(-1)[:1].reshape(()) if array.size else array[None],
            ],
        )
    elif what == "type":
        with np.errstate(all="ignore"):
            array = array.astype(_any(rng, ["f8", "f4", "i8", "i4", "u1", "?"]))
    elif what == "gone":
        del arrays[name]
        return
    elif what == "swapped":
        other = _any(rng, sorted(arrays))
        arrays[name], arrays[other] = arrays[other], array
        return
    elif what == "new":
        name = _any(rng, ["unknown", f"{name}0", "network/0/99", "conformal", "table/99", "pass 0/0"])
    elif what == "order" and array.ndim:
        array = rng.permutation(array)
    arrays[name] = np.ascontiguousarray(array)


def _any(rng: np.random.Generator, values: Any) -> Any:
    return copy.deepcopy(values[int(rng.integers(len(values)))])  # what is changed later is not the next mutant's


def sealed(contents: Contents, rng: np.random.Generator) -> bytes:
    """A file of `storage` whose checksum is right; now and then with a key twice."""
    text = json.dumps(contents.header)
    if rng.random() < 0.01:
        text = text.replace("{", '{"kind":1,"kind":2,', 1)
    metadata = {"vertebra_format": "1", "kind": contents.kind, "header": text, "libraries": "{}"}
    arrays = {name: array for name, array in contents.arrays.items() if array.dtype in storage._NAMES}
    described = storage._described(metadata | {"checksum": storage._checksum(metadata, arrays)}, arrays)
    parts = (arrays[name].tobytes() for name in storage._in_order(arrays))
    return b"".join([len(described).to_bytes(8, "little"), described, *parts])


def zipped(contents: Contents, rng: np.random.Generator) -> bytes:
    """A file of tables; now and then packed, cut, or with bytes changed."""
    file = io.BytesIO()
    header = np.frombuffer(json.dumps(contents.header).encode(), np.uint8)
    save = np.savez_compressed if rng.random() < 0.02 else np.savez
    save(file, **contents.arrays, **({} if rng.random() < 0.01 else {"header": header}))
    data = bytearray(file.getvalue())
    if rng.random() < 0.05:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data[: int(rng.integers(len(data)))] if rng.random() < 0.01 else data)


# --- kinds of files ---------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A sound file and its contents, how a mutant is sealed, and what is asked of one."""

    sound: bytes
    contents: Contents
    seal: Callable[[Contents, np.random.Generator], bytes]
    ask: Callable[[pathlib.Path], list[np.ndarray]]


def of_model(path: pathlib.Path, rows: pd.DataFrame) -> Kind:
    """A model saved, and a table with gaps and levels never seen."""

    def ask(path: pathlib.Path) -> list[np.ndarray]:
        model = vb.load(path)
        if hasattr(model, "classes_"):
            return [model.predict_proba(rows), *model.predict_f(rows)]
        answers = [*model.predict(rows, return_std=True), *model.predict_f(rows)]
        # without enough rows set aside conformal limits are infinite, as they should be
        return answers if model.conformal else [*answers, model.predict_interval(rows, 0.8)]

    return Kind(path.read_bytes(), Contents(*storage.read(path)), sealed, ask)


def of_tables(path: pathlib.Path, rows: pd.DataFrame) -> Kind:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    ask = lambda path: [serving.load(path).predict_f(rows)]  # noqa: E731
    return Kind(path.read_bytes(), Contents("", header, arrays), zipped, ask)


def of_checkpoint(path: pathlib.Path) -> Kind:
    """A training run that was stopped; a mutant's run goes on, and its network is asked."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(64)
    network = vb.build(vb.chain(2, 2), vb.mean_field([3, 1]), key=jr.key(0))
    asked: Any = dict(key=jr.key(1), n_steps=60, n_rounds=6)

    def stop(progress: Any) -> bool:
        if progress.step >= 30:
            raise InterruptedError
        return False

    every, checkpoint.EVERY = checkpoint.EVERY, 0.0
    try:
        vb.fit(network, vb.Gaussian(), x, y, checkpoint=path, callback=stop, **asked)
    except InterruptedError:
        pass
    finally:
        checkpoint.EVERY = every

    def ask(path: pathlib.Path) -> list[np.ndarray]:
        fitted = vb.fit(network, vb.Gaussian(), x, y, checkpoint=path, callback=lambda _: False, **asked)
        mean, variance = vb.moments(fitted.network, x[:4], key=jr.key(2))
        return [np.asarray(mean), np.asarray(variance), np.asarray(fitted.likelihood.scale)]

    return Kind(path.read_bytes(), Contents(*storage.read(path)), sealed, ask)


def kinds_of(folder: pathlib.Path, wanted: tuple[str, ...], rows_of: Callable[[str], pd.DataFrame]) -> dict[str, Kind]:
    """The kinds from a folder with files of each; a checkpoint is made there."""
    found = {}
    for kind in wanted:
        if kind == "npz":
            found[kind] = of_tables(folder / "terms.npz", rows_of(kind))
        elif kind == "checkpoint":
            with tempfile.TemporaryDirectory() as own:
                found[kind] = of_checkpoint(pathlib.Path(own) / "fit.checkpoint")
        else:
            found[kind] = of_model(folder / f"{SAVED.get(kind, kind)}.vertebra", rows_of(kind))
    return found


def rows(kind: str) -> pd.DataFrame:
    table = writer().together if kind == "hybrid" else writer().table
    x = table(6, 1)[0]
    x.loc[0, "a"] = np.nan
    if kind != "hybrid":
        x.loc[1, "b"] = "never seen"
    return x


def writer() -> Any:
    """`tests/files/write.py`, which makes small models of every kind."""
    spec: Any = importlib.util.spec_from_file_location("write_files", ROOT / "tests/files/write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- judging ----------------------------------------------------------------------------------------------------------


def judge(kind: Kind, content: bytes, path: pathlib.Path) -> tuple[str, str]:
    """refused, loaded or fault, and words about it."""
    path.write_bytes(content)
    try:
        with np.errstate(all="ignore"):
            answers = kind.ask(path)
    except OWN_ERRORS as error:
        return "refused", str(error)
    except Exception as error:
        words = f"{type(error).__name__}: {str(error)[:200]}"
        # rows that do not suit a changed schema are refused in the library's words, by its own code
        frame = traceback.extract_tb(error.__traceback__)[-1]
        is_own = type(error) is ValueError and "vertebra" in pathlib.Path(frame.filename).parts
        return ("refused" if is_own else "fault"), f"{words} ({pathlib.Path(frame.filename).name}:{frame.lineno})"
    if all(np.isfinite(np.asarray(answer, dtype=float)).all() for answer in answers):
        return "loaded", ""
    return "fault", "a prediction that is not finite"


def work(folder: pathlib.Path, name: str, seed: int, start: int, stop: int) -> None:
    """Judges mutants in this process, limited in memory, and prints a line for each."""
    kind = kinds_of(folder, (name,), rows)[name]
    with tempfile.TemporaryDirectory() as own:
        path = pathlib.Path(own) / "mutant"
        outcome, words = judge(kind, kind.sound, path)
        if outcome != "loaded":
            raise RuntimeError(f"The file itself is {outcome}: {words}")
        if resource is not None and STATM.is_file():
            had = int(STATM.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (had + MEMORY, had + MEMORY))
        print("ready", flush=True)
        for number in range(start, stop):
            content = mutant(kind.contents, seed, number, kind.seal)
            begun = time.perf_counter()
            outcome, words = judge(kind, content, path)
            print(json.dumps([number, outcome, time.perf_counter() - begun, words[:500]]), flush=True)


def one(task: Task) -> dict[str, Any]:
    """All mutants of a kind, by one process after another: one that dies or hangs is a fault, and the next goes on."""
    counts = {"refused": 0, "loaded": 0, "faults": 0, "slowest_seconds": 0.0}
    folder, done = files(), 0
    while done < task.mutants:
        stop = min(done + N_A_PROCESS, task.mutants)
        for number, outcome, seconds, words in _lines(folder, task, done, stop):
            done = number + 1
            counts["faults" if outcome == "fault" else outcome] += 1
            counts["slowest_seconds"] = max(counts["slowest_seconds"], seconds)
            if outcome == "fault":
                print(f"{task.kind} {number}: {words}", flush=True)
    return counts


def _lines(folder: pathlib.Path, task: Task, start: int, stop: int):
    """What a process says of its mutants; where it falls silent, that the next one is a fault."""
    command = [sys.executable, __file__, "--work", str(folder), task.kind, str(task.seed), str(start), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watched = selectors.DefaultSelector()
        watched.register(process.stdout, selectors.EVENT_READ)
        number, is_ready = start, False
        while number < stop:
            if not watched.select(SECONDS if is_ready else 600.0):
                process.kill()
                yield number, "fault", SECONDS, "it took too long"
                return
            line = process.stdout.readline()
            if line == "ready\n":
                is_ready = True
            elif line:
                yield json.loads(line)
                number += 1
            else:
                words = process.stderr.read()[-500:]
                if not is_ready:
                    raise RuntimeError(words)
                yield number, "fault", 0.0, f"the process died with {process.wait()}: {words}"
                return


@functools.cache
def files() -> pathlib.Path:
    """A folder with files of every kind, made once and removed at the end."""
    own = tempfile.TemporaryDirectory()
    atexit.register(own.cleanup)
    folder = pathlib.Path(own.name) / "files"
    subprocess.run([sys.executable, str(ROOT / "tests/files/write.py"), str(folder)], check=True, capture_output=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mutants", type=int)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", nargs=2, metavar=("KIND", "NUMBER"))
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        folder, name, *numbers = options.work
        work(pathlib.Path(folder), name, *map(int, numbers))
        return
    if options.show:
        number = int(options.show[1])
        work(files(), options.show[0], options.seed, number, number + 1)
        return
    from runner import run

    n = options.mutants or (N_QUICK if options.quick else N_MUTANTS)
    path = RESULTS / f"fuzz_files{'-quick' if options.quick else ''}.csv"
    tasks = [Task(kind, n, options.seed) for kind in options.only]
    sys.exit(run(path, tasks, one, columns=COLUMNS, n_processes=1))


if __name__ == "__main__":
    main()
