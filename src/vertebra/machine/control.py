"""One fit as its user sees it: progress, a time budget, and Ctrl-C that keeps what is there."""

import enum
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

# What `signal.signal` takes and gives back.
Handler = Callable[[int, FrameType | None], object] | int | None


class Ended(enum.StrEnum):
    """Why a fit was cut short."""

    BUDGET = enum.auto()
    INTERRUPTED = enum.auto()


class Share(float):
    """Seconds of a part of some work; words about them name the budget of the whole, which is what was given."""

    whole: float

    def __new__(cls, seconds: float, whole: float) -> "Share":
        own = super().__new__(cls, seconds)
        own.whole = whole
        return own


class Control:
    """Says what a fit is doing, and when it has had enough: the budget is spent, or the user pressed Ctrl-C once.

    A second Ctrl-C stops at once, as it always does. `ended` says why the fit was cut short, `why` in words.
    """

    def __init__(self, name: str, *, verbose: bool | int = False, time_budget: float | int | None = None):
        if time_budget is not None and not (isinstance(time_budget, int | float) and time_budget > 0):
            raise ValueError(f"`time_budget` must be a number of seconds above 0, got {time_budget!r}.")
        self.name, self.verbose, self.time_budget = name, bool(verbose), time_budget
        self.ended: Ended | None = None
        self._started = time.monotonic()
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._handler: Handler = None

    def __enter__(self) -> "Control":
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        # A bar for people who watch; lines for files.
        console = Console(stderr=True)
        if self.verbose and console.is_interactive:
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self._progress = Progress(*columns, console=console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._progress is not None:
            self._progress.stop()
        if kind is None and self.ended is not None:
            warnings.warn(f"{self.name}: {self.why}; what had been found by then is kept.", stacklevel=3)

    def report(self, words: str) -> None:
        """Shows what is being done."""
        if self._progress is not None:
            self._progress.update(self._task, description=f"{self.name}: {words}")
        elif self.verbose:
            print(f"[{self.name}] {time.monotonic() - self._started:6.1f} s  {words}", file=sys.stderr, flush=True)

    def enough(self) -> bool:
        """Whether to come to an end with what is there."""
        if self.time_budget is not None and self.ended is None and self.spent >= self.time_budget:
            self.ended = Ended.BUDGET
        return self.ended is not None

    @property
    def left(self) -> float:
        """Seconds that are left of the budget; none after the end."""
        if self.ended is not None:
            return 0.0
        return math.inf if self.time_budget is None else max(self.time_budget - self.spent, 0.0)

    @property
    def why(self) -> str:
        """The reason of `ended`, in words."""
        if self.ended is Ended.INTERRUPTED:
            return "interrupted"
        given = self.time_budget.whole if isinstance(self.time_budget, Share) else self.time_budget
        return f"the time budget of {given:g} s was spent"

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.ended is not None:
            signal.signal(signal.SIGINT, self._handler)
            raise KeyboardInterrupt
        self.ended = Ended.INTERRUPTED
        self.report("interrupted: coming to an end (press again to stop at once)")
