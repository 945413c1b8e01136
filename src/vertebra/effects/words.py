"""Numbers of effects in the words of every place that shows them: terminal, notebook, report, figures."""

import math


def probability_words(p: float, digits: int = 3) -> str:
    """The probability that a term is real: never 0 or 1, which no finite table can show; empty where it is unknown."""
    if math.isnan(p):
        return ""
    least = 10.0**-digits
    most = 1.0 - least
    return f"> {most:.{digits}f}" if p > most else f"< {least:.{digits}f}" if p < least else f"{p:.{digits}f}"
