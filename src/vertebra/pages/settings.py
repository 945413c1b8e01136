"""The settings of an estimator that its user gave."""

import inspect
from typing import Any


def given_settings(model: Any) -> dict[str, Any]:
    """The arguments that are not at their defaults."""
    defaults = inspect.signature(type(model).__init__).parameters
    settings = model.get_params(deep=False)
    return {name: value for name, value in settings.items() if not _is_default(value, defaults[name].default)}


def _is_default(value: Any, default: Any) -> bool:
    # what is no number and no text may have an == of its own
    return value is default or (isinstance(value, int | float | str) and value == default)
