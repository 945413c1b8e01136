"""Runs the tasks that a csv does not hold yet, a core each, and adds what comes back as it comes.

A task is a named tuple of what it is called by, its fields the first columns of the csv. A run that was cut off goes on
where it stopped; a task that failed is not recorded, so the next run tries it again.
"""

import contextlib
import csv
import importlib.metadata
import inspect
import multiprocessing
import multiprocessing.util
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
from stamps import recording

try:
    import resource
except ImportError:  # not on Windows
    resource = None

# `make reproduce` in a tiny form, for a test, writes elsewhere.
RESULTS = pathlib.Path(os.environ.get("VERTEBRA_RESULTS") or pathlib.Path(__file__).parent / "results")
# What every task is measured by, and what it ran on.
MEASURED = ("seconds", "cpu_seconds", "peak_mb", "device")
VERSIONS = ("vertebra", "jax", "numpy")
# One core a process: libraries that would start threads for all of them are told so before they are imported.
QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def run(
    path: pathlib.Path,
    tasks: Sequence[NamedTuple],
    one: Callable[[Any], dict[str, Any]],
    *,
    columns: Sequence[str],
    n_processes: int | None = None,
    fresh: bool = False,
) -> int:
    """Runs `one` on every task that `path` does not hold; returns how many failed.

    `columns` are the keys of what `one` returns. With `fresh` each task has a process of its own, so that its peak
    memory is its own too.
    """
    fields = [*tasks[0]._fields, *columns, *MEASURED, "python", *VERSIONS]
    recorded = read(path)
    if recorded and list(recorded[0]) != fields:
        raise ValueError(f"{path} has other columns, {', '.join(recorded[0])}: move it away, or ask for another file.")
    done = {tuple(row[field] for field in tasks[0]._fields) for row in recorded}
    left = [task for task in tasks if tuple(map(str, task)) not in done]
    print(f"{path.name}: {len(tasks) - len(left)} of {len(tasks)} are there, {len(left)} to run.", flush=True)
    if not left:
        return 0
    context = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    n_processes = n_processes or int(os.environ.get("JOBS") or 0) or len(cores) or os.cpu_count() or 1
    free = context.SimpleQueue()
    for k in range(n_processes):
        free.put(cores[k % len(cores)] if cores else -1)
    failed = 0
    path.parent.mkdir(exist_ok=True)
    study = inspect.getfile(one if inspect.isfunction(one) else type(one))
    with _quiet(), recording(path, study), path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields)
        if file.tell() == 0:
            writer.writeheader()
        with ProcessPoolExecutor(
            n_processes,
            mp_context=context,
            initializer=_settle,
            initargs=(free,),
            max_tasks_per_child=1 if fresh else None,
        ) as pool:
            waiting = {pool.submit(_measured, one, task): task for task in left}
            for number, future in enumerate(as_completed(waiting), start=1):
                task = waiting[future]
                try:
                    row = future.result()
                except Exception as error:
                    failed += 1
                    print(f"{number}/{len(left)} {tuple(task)} failed: {type(error).__name__}: {error}", flush=True)
                    continue
                writer.writerow({**task._asdict(), **{key: _short(value) for key, value in row.items()}, **_versions()})
                file.flush()
                shown = ", ".join(f"{key} {_short(row[key])}" for key in (*columns, "seconds"))
                print(f"{number}/{len(left)} {' '.join(map(str, task))}: {shown}", flush=True)
    return failed


@contextlib.contextmanager
def _quiet():
    """The environment that processes are to start in."""
    before = dict(os.environ)
    os.environ |= QUIET
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def read(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _settle(free) -> None:
    """Takes a core for as long as the process lives."""
    core = free.get()
    multiprocessing.util.Finalize(None, free.put, args=(core,), exitpriority=100)
    if core >= 0:
        os.sched_setaffinity(0, {core})


def _measured(one, task):
    start, cpu = time.perf_counter(), time.process_time()
    row = one(task)
    return row | {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mb": _peak(),
        "device": jax.default_backend(),
    }


def _peak() -> float:
    """The most memory that this process had, in MB; unknown on Windows."""
    if resource is None:
        return float("nan")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 1024.0  # bytes on a Mac, kilobytes elsewhere


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: _version(name) for name in VERSIONS}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
