"""The state of a long fit in one file: after a kill the same call goes on where it was, and ends with the same model.

A file holds entries, each some facts and arrays under a name. It is replaced whole or not at all (`storage`), so that
whenever the process dies there is a sound one.
"""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from vertebra.machine import file as storage

KIND = "checkpoint"
# Seconds between two writings, unless a fit says otherwise.
EVERY = 30.0


class Entry(NamedTuple):
    facts: storage.Record
    arrays: dict[str, np.ndarray]


class Checkpoint:
    """`about` says which fit it is of: settings, data, seeds. A file of another fit is refused, not overwritten."""

    def __init__(self, path: str | os.PathLike[str], about: Mapping[str, object], *, every: float | None = None):
        self.path, self.every = pathlib.Path(path), EVERY if every is None else every
        self.about = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()
        self._entries: dict[str, Entry] = {}
        self._written = time.monotonic()
        if self.path.exists():
            _, header, arrays = storage.read(self.path, [KIND])
            entries = header.get("entries")
            if header.keys() != {"about", "entries"} or not isinstance(entries, dict):
                raise self.bad("it must hold what it is about, and entries")
            if header["about"] != self.about:
                raise ValueError(
                    f"{self.path}: this is the checkpoint of another fit (other data, settings or seeds). Remove it, "
                    "or name another file."
                )
            for name, facts in entries.items():
                if not isinstance(facts, dict):
                    raise self.bad(f"the facts of {name[:100]!r} are not an object")
                self._entries[name] = Entry(facts, {})
            for full, array in arrays.items():
                name, _, key = full.rpartition("/")
                if name not in self._entries:
                    raise self.bad(f"the array {full[:100]!r} belongs to no entry")
                self._entries[name].arrays[key] = array

    def bad(self, what: str) -> storage.BadFile:
        """The error to raise where an entry is not what this fit would have kept."""
        return storage.BadFile(f"{self.path}: {what}. Remove the checkpoint: the fit then begins from the start.")

    def get(self, name: str) -> Entry | None:
        """What was kept under a name, by this process or by one before it."""
        return self._entries.get(name)

    def put(
        self, name: str, facts: Mapping[str, object], arrays: Mapping[str, np.ndarray], *, now: bool = True
    ) -> None:
        """Keeps an entry, and writes the file: now, or once `every` so many seconds."""
        self._entries[name] = Entry(dict(facts), dict(arrays))
        if now or self.is_due:
            self.write()

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self.every

    def write(self) -> None:
        arrays = {f"{name}/{key}": a for name, entry in self._entries.items() for key, a in entry.arrays.items()}
        entries = {name: entry.facts for name, entry in self._entries.items()}
        storage.write(self.path, KIND, {"about": self.about, "entries": entries}, arrays)
        self._written = time.monotonic()

    def remove(self) -> None:
        """The fit is done."""
        self._entries = {}
        self.path.unlink(missing_ok=True)
        storage.sweep(self.path)
