"""The memory that there is."""

import os


def check_memory(needed: float, what: str) -> None:
    """Refuses work that this machine has no memory for, before it starts."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if needed > 0.9 * there:
        raise MemoryError(
            f"{what} would take about {needed / 2**30:.1f} GiB, and this machine has {there / 2**30:.1f} GiB: "
            "fit on fewer rows or columns."
        )
