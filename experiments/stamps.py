"""What a results file was recorded by: a stamp beside it, results/<name>.json, which says when its figures are stale.

    python experiments/stamps.py             # `make stale`: each file, what it is of, and whether its code has changed
    python experiments/stamps.py --strict    # status 1 if a page quotes figures that are stale: before a release
    python experiments/stamps.py --adopt     # stamps of files that have none of their own, as of their last commit

A stamp has a digest of the code that the study exercised (`code_of`). Where that is not known, or where rows come from
several states of the code, it has none, and the file is stale.
"""

import argparse
import contextlib
import csv
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from code_of import ROOT, digest_of

LIBRARIES = ("equinox", "jax", "numpy", "optax", "pandas", "scikit-learn", "scipy")
FOLDERS = ("experiments/results", "benchmarks/results")


class Stamp(NamedTuple):
    """What there is to know of a results file: `code` is "" where it is not known, or not one."""

    study: str
    commit: str
    is_clean: bool  # whether the code was as in that commit
    code: str
    version: str
    python: str
    libraries: dict[str, str]
    machine: str
    seconds: float
    contents: str  # a digest of the results file


@contextlib.contextmanager
def recording(path: pathlib.Path, study: str, *, is_new: bool = False) -> Iterator[None]:
    """Stamps the file before and after a study writes to it; `is_new` where nothing of what is there stays.

    Rows that were there must be of the same code, or the file is of no one state of it. A run that is killed leaves
    the stamp of its beginning.
    """
    began, before = time.monotonic(), None if is_new else read(path)
    code = digest_of(pathlib.Path(study))
    if path.is_file() and not is_new and (before is None or before.code != code):
        code = ""
        print(
            f"{path.name}: rows are there that other code recorded. Move it away for figures of one state.", flush=True
        )
    spent = before.seconds if before else 0.0
    write(path, of_now(path, study, code, spent))
    yield
    write(path, of_now(path, study, code, spent + time.monotonic() - began))


def of_now(path: pathlib.Path, study: str, code: str, seconds: float) -> Stamp:
    """A stamp of this moment, these libraries and this machine."""
    place = pathlib.Path(study).resolve()
    name = place.relative_to(ROOT).as_posix() if place.is_relative_to(ROOT) else place.name
    changed = _git("status", "--porcelain", "--", "src", name)
    return Stamp(
        study=name,
        commit=_git("rev-parse", "--short=7", "HEAD"),
        is_clean=not changed,
        code=code,
        version=version(),
        python=platform.python_version(),
        libraries={each: importlib.metadata.version(each) for each in LIBRARIES if _is_there(each)},
        machine=machine(),
        seconds=round(seconds, 1),
        contents=contents_of(path),
    )


def adopted(path: pathlib.Path, study: str) -> Stamp:
    """The stamp of a file that was recorded without one: of its last commit, or before, by code that nobody noted."""
    commit = _git("log", "-1", "--format=%h", "--abbrev=7", "--", str(path))
    said = path.read_text(encoding="utf-8").splitlines()
    row = dict(zip(said[0].split(","), said[-1].split(","), strict=False))
    libraries = {name: row[name] for name in LIBRARIES if name in row}
    found, rows = row.get("vertebra", "0.1.0"), list(csv.DictReader(said))
    seconds = round(sum(float(row.get("seconds") or 0.0) for row in rows), 1)
    return Stamp(study, commit, True, "", found, row.get("python", ""), libraries, "", seconds, contents_of(path))


def read(path: pathlib.Path) -> Stamp | None:
    """The stamp of a results file, if it has one."""
    place = path.with_suffix(".json")
    return Stamp(**json.loads(place.read_text(encoding="utf-8"))) if place.is_file() else None


def write(path: pathlib.Path, stamp: Stamp) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(stamp._asdict(), indent=2) + "\n", encoding="utf-8")


def contents_of(path: pathlib.Path) -> str:
    """A digest of the rows; none of a file that is not there yet."""
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()[:16]


def results(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """The results files that are kept."""
    found = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.csv"))]
    return [path for path in found if not path.stem.endswith(("-quick", "-dev", "-before"))]


def trouble(path: pathlib.Path, root: pathlib.Path = ROOT) -> str:
    """Why a results file is stale; nothing where its code is the code of today."""
    stamp = read(path)
    if stamp is None:
        return "no stamp"
    if stamp.contents != contents_of(path):
        return "rows that the stamp does not know: go on with the study, or --adopt"
    if not stamp.code:
        return "recorded by code that is not known, or not one"
    study = root / stamp.study
    if not study.is_file():
        return f"{stamp.study} is gone"
    return "" if digest_of(study, root / "src/vertebra") == stamp.code else "the code has changed since"


def said(stamp: Stamp) -> str:
    """Which state of the code a file is of, in words."""
    return f"`{stamp.commit}`" if stamp.code and stamp.is_clean else f"`{stamp.commit}` or before"


def label(names: Sequence[str], root: pathlib.Path = ROOT) -> str:
    """A sentence on what the results files of these names, such as benchmarks/unseen, are of."""
    groups: dict[str, dict[str, list[str]]] = {}
    stems = [name.partition("/")[2] for name in names]
    for name in names:
        folder, _, stem = name.partition("/")
        stamp = read(root / folder / "results" / f"{stem}.csv")
        if stamp is None:
            raise ValueError(f"{name} has no stamp: python experiments/stamps.py --adopt")
        own = groups.setdefault(stamp.version, {}).setdefault(said(stamp), [])
        own.append(f"`{stem if stems.count(stem) == 1 else name}`")
    words = [
        f"Recorded with version {version}, at commit "
        + "; ".join(f"{at}: {', '.join(own)}" for at, own in each.items())
        for version, each in groups.items()
    ]
    return ". ".join(words) + "."


# In a page, a line of its own: the label <!-- recorded: benchmarks/unseen benchmarks/tables -->
MARK = re.compile(r"(?m)^(.*)<!-- recorded: ([^>]*?) -->$")


def marked(names: Sequence[str], root: pathlib.Path = ROOT) -> str:
    """The label before its mark, as it stands in a page."""
    return f"{label(names, root)} <!-- recorded: {' '.join(names)} -->"


def labelled(text: str, root: pathlib.Path = ROOT) -> str:
    """A page with its labels as the stamps have them."""
    return MARK.sub(lambda found: marked(found[2].split(), root), text)


def names_labelled(text: str) -> set[str]:
    return {name for _, names in MARK.findall(text) for name in names.split()}


# Says by which study each of the paper's tables is made, and no figure.
WITHOUT_FIGURES = {"docs/paper-map.md"}


def names_spoken_of(page: str, root: pathlib.Path = ROOT) -> set[str]:
    """The results files of the studies that a page names: whoever quotes a figure says how it was measured."""
    text = (root / page).read_text(encoding="utf-8")
    if page in WITHOUT_FIGURES:
        return set()
    spoken = set(re.findall(r"(?:experiments|benchmarks)/\w+\.py", text))
    stamps = {path: read(path) for path in results(root)}
    of_study = {path for path, stamp in stamps.items() if stamp and stamp.study in spoken}
    folder = "experiments/" if page.startswith("experiments/") else ""  # whose pages name files from where they are
    own = {path for path in stamps if path.relative_to(root).as_posix().removeprefix(folder) in text}
    return {f"{path.parent.parent.name}/{path.stem}" for path in of_study | own}


def pages(root: pathlib.Path = ROOT) -> list[str]:
    """What may quote figures."""
    found = [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "experiments").glob("*.md"))]
    return [path.relative_to(root).as_posix() for path in found if path.is_file() and "-quick" not in path.name]


def unlabelled(root: pathlib.Path = ROOT) -> list[str]:
    """Pages that speak of results without saying which state of the code these are of, or say another one."""
    faults = []
    for page in pages(root):
        text = (root / page).read_text(encoding="utf-8")
        if lacking := names_spoken_of(page, root) - names_labelled(text):
            faults.append(f"{page} quotes {', '.join(sorted(lacking))} without saying of which commit")
        elif labelled(text, root) != text:
            faults.append(f"{page} says another commit than the stamps: python experiments/quote.py")
    return faults


def quoted(root: pathlib.Path = ROOT) -> dict[str, list[str]]:
    """The pages that quote each results file."""
    found: dict[str, list[str]] = {}
    for page in pages(root):
        for name in names_labelled((root / page).read_text(encoding="utf-8")):
            found.setdefault(name, []).append(page)
    return found


@functools.cache
def version() -> str:
    front = (ROOT / "src/vertebra/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.*)"', front)[0]


@functools.cache
def machine() -> str:
    """Processor, cores and GPU."""
    processor, cores = platform.processor() or platform.machine(), os.cpu_count()
    with contextlib.suppress(OSError):
        names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        processor = names[0] if names else processor
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()
        return f"{platform.system()}, {processor}, {cores} cores, {', '.join(gpu)}"
    return f"{platform.system()}, {processor}, {cores} cores"


def _git(*arguments: str) -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _is_there(package: str) -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(package))
    return False


def adopt(root: pathlib.Path = ROOT) -> list[str]:
    """Stamps what has none, or rows that its stamp does not know; the study is the one that its old stamp names."""
    done = []
    for path in results(root):
        stamp = read(path)
        if stamp is None or stamp.contents != contents_of(path):
            study = stamp.study if stamp else _study_of(path, root)
            write(path, adopted(path, study))
            done.append(path.name)
    return done


def _study_of(path: pathlib.Path, root: pathlib.Path) -> str:
    """The script that a file is named after: correlated-bias and gpu_additive are of correlated and gpu."""
    folder = path.parent.parent
    names = [path.stem, re.split("[-_]", path.stem)[0]]
    found = [folder / f"{name}.py" for name in names if (folder / f"{name}.py").is_file()]
    return (found[0] if found else folder / "figures.py").relative_to(root).as_posix()


def main(arguments: Sequence[str] | None = None, root: pathlib.Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--adopt", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.adopt:
        print("Stamped:", ", ".join(adopt(root)) or "none; each has a stamp of its own")
        return 0
    pages_of, n_stale, n_quoted = quoted(root), 0, 0
    for path in results(root):
        why, stamp = trouble(path, root), read(path)
        name = f"{path.parent.parent.name}/{path.stem}"
        own = pages_of.get(name, [])
        n_stale, n_quoted = n_stale + bool(why), n_quoted + bool(why and own)
        print(
            f"{name:<34} {stamp.commit if stamp else '':<8} {why or 'as the code is now':<52} {' '.join(own)}".rstrip()
        )
    print(f"{n_stale} of {len(results(root))} results files are stale, {n_quoted} of them quoted.")
    faults = unlabelled(root)
    print("".join(f"{fault}\n" for fault in faults), end="")
    return 1 if faults or (asked.strict and n_quoted) else 0


if __name__ == "__main__":
    sys.exit(main())
