"""Size of a report of ten inputs and twenty terms, and the time until headless Chromium has it ready.

Needs `chromium` and playwright.
"""

import pathlib
import shutil
import statistics
import tempfile
import time

import numpy as np
from playwright.sync_api import sync_playwright
from record import record

import vertebra as vb

N_TIMES = 7


def model():
    rng = np.random.default_rng(0)
    x = rng.random((1500, 10))
    pairs = [(i, i + 1) for i in range(9)] + [(0, 5)]
    y = x @ np.arange(1.0, 11.0) + sum(8.0 * (x[:, i] - 0.5) * (x[:, j] - 0.5) for i, j in pairs)
    return vb.AdditiveRegressor(random_state=0).fit(x, y + 0.3 * rng.standard_normal(1500))


def main() -> None:
    fitted = model()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = pathlib.Path(folder) / "page.html"
        start = time.perf_counter()
        fitted.report(path)
        written = time.perf_counter() - start
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        seconds = []
        for _ in range(N_TIMES):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(path.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready=true]", state="attached")
            seconds.append(time.perf_counter() - start)
            tab.close()
        row = {
            "n_terms": len(fitted.effects()),
            "megabytes": path.stat().st_size / 1e6,
            "written_seconds": written,
            "ready_seconds": statistics.median(seconds),
            "ready_slowest": max(seconds),
        }
    record("page", [row])


if __name__ == "__main__":
    main()
