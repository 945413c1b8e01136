"""Runs every benchmark, one process each: `make bench`. The figures go to benchmarks/results."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

for name in ("additive", "deep_gp", "subnetworks", "memory", "ebm"):
    subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=True)
