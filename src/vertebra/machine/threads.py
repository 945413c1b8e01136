"""Work shared out among the cores by threads, its results in the order of the work."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

# Rows looked at together. A round number: a hundred columns of so many are 6.5 MB.
CHUNK = 8192

# Fits of fewer rows have matrices so small that threads of LAPACK's own cost more than they bring.
ROWS_FOR_BLAS = 3000

Sums = list[np.ndarray]
Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Those that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(n_rows: int) -> threadpool_limits:
    """Half the cores for LAPACK: its threads wait by spinning, and where others work beside them they thrash.

    Of the cores that the process may use: one that is held to a core of sixteen must not start eight threads on it.
    """
    n_threads = max(cores() // 2, 1) if n_rows >= ROWS_FOR_BLAS else 1
    return threadpool_limits(n_threads, user_api="blas")


def results(work: Callable[[Item], Result], items: Iterable[Item], n_threads: int) -> Iterator[Result]:
    """work(item) of every item, in their order; no more items than the threads need are in memory."""
    if n_threads == 1:
        yield from map(work, items)
        return
    # a thread of ours per core: threads of BLAS's own would only wait for each other beside them
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def added(
    work: Callable[[Item], Sums],
    chunks: Iterable[Item],
    n_threads: int,
    *,
    before: Sums | None = None,
    after: Callable[[Sums, int], None] = lambda total, n_done: None,
) -> Sums:
    """Σ work(chunk), in the order of the chunks, by threads; no more chunks than these need are in memory.

    `before` is where to begin; `after` is told what there is and of how many chunks, whenever one was added.
    """
    total: Sums = [each.copy() for each in before or []]
    for n_done, part in enumerate(results(work, chunks, n_threads), start=1):
        if not total:
            total.extend(np.array(each, dtype=np.float64) for each in part)
        else:
            for one, other in zip(total, part, strict=True):
                one += other
        after(total, n_done)
    return total
