"""Modules that take long to import, and are imported when something of them is first asked for.

`vertebra/__init__.py` does the same for the public names: the command line looks at a model without JAX, Optax,
scikit-learn and scipy.stats. Type checkers are told of the module itself:

    if TYPE_CHECKING:
        from vertebra.inference import draws
    else:
        draws = later("vertebra.inference.draws")
"""

import importlib
from typing import Any


class _Later:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, part: str) -> Any:
        return getattr(importlib.import_module(self._name), part)

    def __repr__(self) -> str:
        return f"<{self._name}, imported when it is asked for>"


def later(name: str) -> Any:
    """The module of this name, as an object that imports it at the first look at one of its parts.

    >>> from vertebra.machine.later import later
    >>> later("math").sqrt(4.0)
    2.0
    """
    return _Later(name)
