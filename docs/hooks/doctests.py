"""Examples in docstrings, as code: each run of lines from `>>>` to the next empty line is fenced for Markdown."""

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    return re.sub(r"(?m)^>>> .*(?:\n.*\S.*)*", lambda example: f"```pycon\n{example[0]}\n```", text)


class Doctests(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
