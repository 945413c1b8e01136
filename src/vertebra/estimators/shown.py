"""Tables of effects as a prompt prints them: whole, terms in words, four digits."""

from collections.abc import Callable

import pandas as pd

from vertebra.effects.words import probability_words
from vertebra.terms.term import term_label

# What is printed of a table, in this order, and how many rows; the other columns are named below it.
PRINTED = ("term", "value", "strength", "mean", "sd", "lower", "upper", "share", "probability", "p_value", "found")
MOST_ROWS, MOST_LETTERS = 60, 40


class Terms(pd.DataFrame):
    """A table of terms, as any other but in print; what is made of it is a plain one."""

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        if not len(self):
            return "no terms"
        names = [name for name in PRINTED if name in self.columns]
        plain = pd.DataFrame({name: self[name] for name in names})
        plain["term"] = [term_label(term) if len(term) else "(intercept)" for term in self["term"]]
        for name in plain.columns.intersection(["term", "value"]):
            plain[name] = [_short(str(text)) for text in plain[name]]
        if "probability" in plain:
            plain["probability"] = [probability_words(p) for p in plain["probability"]]
        text = plain.to_string(float_format="{:.4g}".format, max_rows=MOST_ROWS, index=True)
        others = [str(name) for name in self.columns if name not in names]
        return f"{text}\nalso: {', '.join(others)}" if others else text

    __str__ = __repr__


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def terms_of(table: pd.DataFrame) -> Terms:
    """The table, printed as terms are."""
    shown = Terms(table)
    shown.attrs = table.attrs
    return shown
