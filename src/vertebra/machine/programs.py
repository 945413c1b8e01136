"""Compiled programs that outlast the process: the next one reads them back instead of compiling them again."""

import functools
import hashlib
import os
import pathlib
import platform
import sys
import warnings

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

# Where they lie, if not in the user's own cache; OFF is for nowhere.
VARIABLE, OFF = "VERTEBRA_PROGRAMS", "off"
# A program is kept that took so long, in seconds: it is read back in some milliseconds.
LEAST_SECONDS = 0.05
# What all of them may take, in bytes; those that were used longest ago go first. One of training takes up to 2 MB.
MOST_BYTES = 512 * 2**20


@functools.cache
def keep_programs() -> pathlib.Path | None:
    """Has JAX keep the programs it compiles, and says where; None where it does not, or does as the user has set it.

    With several processes each would write what the others read: they compile for themselves.
    """
    wanted = os.environ.get(VARIABLE, "")
    values = jax.config.values
    is_users = values["jax_compilation_cache_dir"] is not None or not values["jax_enable_compilation_cache"]
    if wanted == OFF or is_users or jax.process_count() > 1:
        return None
    folder = (pathlib.Path(wanted) if wanted else _usual() / "vertebra") / f"programs-{_machine()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        # what is read is run: nobody else may have written it
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            return None
        _make_room(folder)
    except OSError:  # no home, or a full disk: it is compiled again
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    # two processes at once: what one has half written the other compiles for itself
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    reset_cache()  # JAX looks once, and may have looked before
    return folder


def _usual() -> pathlib.Path:
    """The user's folder for what can be made again."""
    home = pathlib.Path.home()
    if sys.platform == "win32":
        return pathlib.Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _machine() -> str:
    """What programs of one processor must not be run on another for; homes are shared among machines."""
    about = [platform.machine(), platform.processor()]
    place = pathlib.Path("/proc/cpuinfo")
    if place.is_file():
        about += [
            line for line in place.read_text(encoding="utf-8").splitlines() if line.startswith(("flags", "Features"))
        ][:1]
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]


def _make_room(folder: pathlib.Path) -> None:
    """Removes programs used longest ago, until the others are within their room."""
    found = sorted(((each.stat(), each) for each in folder.iterdir() if each.is_file()), key=lambda one: _used(one[0]))
    total = sum(about.st_size for about, _ in found)
    for about, each in found:
        if total <= MOST_BYTES:
            return
        each.unlink(missing_ok=True)
        total -= about.st_size


def _used(about: os.stat_result) -> float:
    return max(about.st_atime, about.st_mtime)
