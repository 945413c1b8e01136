"""The processes of one fit, on one machine or many, by JAX's own distributed runtime.

`connect` joins them; each then reads its own part of the rows, and what is summed over rows is summed over processes.

>>> vb.cluster.place()  # alone
(0, 1)
"""

from vertebra.machine.cluster import (
    Lost,
    connect,
    failed,
    is_first,
    place,
)

__all__ = [
    "Lost",
    "connect",
    "failed",
    "is_first",
    "place",
]
