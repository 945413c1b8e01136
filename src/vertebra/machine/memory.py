"""The memory that there is."""

import os


def check_memory(needed: float, what: str) -> None:
    """Refuses work that this machine has no memory for, before it starts."""
    try:
        n_pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # as on Windows
        return
    there = n_pages * size
    if min(n_pages, size) > 0 and needed > 0.9 * there:  # -1: the system cannot tell
        raise MemoryError(
            f"{what} would take about {needed / 2**30:.1f} GiB, and this machine has {there / 2**30:.1f} GiB: "
            "fit on fewer rows or columns."
        )
