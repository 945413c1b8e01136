"""A fit in print: what was fitted, how well, with which noise, every term with its interval, and the verdict."""

import math
from dataclasses import dataclass

import numpy as np

from vertebra.effects.words import lines as lines_of
from vertebra.effects.words import probability_words
from vertebra.models.explanation import effects
from vertebra.models.model import Model
from vertebra.models.scores import ScoreName
from vertebra.models.settings import COUNTS

# Characters of a line, as statsmodels and R print their summaries; terms that are printed, the strongest.
WIDTH, MOST_TERMS = 96, 40
SCALES = {**dict.fromkeys(COUNTS, "the log of the rate"), None: "the logit"}


@dataclass(frozen=True)
class Summary:
    """A fit in print: `print(model.summary())`; `text` is what is printed."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def summary(model: Model, level: float = 0.95) -> Summary:
    """What `AdditiveRegressor.summary` prints."""
    severe = [model.diagnostics.verdict, "-" * WIDTH] if model.diagnostics.severe else []
    lines = ["=" * WIDTH, *severe, *_facts(model), "-" * WIDTH, *_scores(model)]
    if model.found is not None:
        for k, name in enumerate(model.target.output_names):
            lines += ["-" * WIDTH, *_terms(model, k, name, level)]
    lines += ["=" * WIDTH, *str(model.diagnostics).split("\n")]
    return Summary("\n".join(lines))


def _facts(model: Model) -> list[str]:
    classes = [] if model.target.classes is None else [str(each) for each in model.target.classes]
    facts = {
        "model": model.kind,
        "target": ", ".join(model.target.names) + (f" ({', '.join(classes)})" if classes else ""),
        "rows": f"{model.profile.n_rows:,}",
        "inputs": f"{len(model.schema.columns)}, of {len(model.schema.sources)} columns",
        "noise": _noise(model),
    }
    return [f"{name + ':':<9}{fact}" for name, fact in facts.items() if fact]


def _noise(model: Model) -> str:
    """The noise by name, and where it is the same everywhere its sd in the units of the target."""
    if model.noise == "negative_binomial":
        shown = ", ".join(f"{a:.4g}" for a in np.ravel(np.asarray(model.likelihood.dispersion)))  # type: ignore[attr-defined]
        return f"{model.noise}, dispersion {shown}"
    if model.noise not in ("gaussian", "student_t"):
        return model.noise or ""
    sds = model.target.scale * np.exp(np.ravel(np.asarray(model.likelihood.log_scale)))  # type: ignore[attr-defined]
    shown = ", ".join(f"{sd:.4g}" for sd in np.broadcast_to(sds, model.target.scale.shape))
    return f"{model.noise}, {'sd' if model.noise == 'gaussian' else 'scale'} {shown}"


def _scores(model: Model) -> list[str]:
    seen = model.evaluation
    if seen is None:
        return ["no accuracy: rows were not left out; model.evaluate(X, y) takes others."]
    keys = list(dict.fromkeys(key for own in seen.scores.values() for key in own))
    heads = [ScoreName.read(key).words(model.target.names) for key in keys]
    # what is nothing but rounding is 0
    table = [
        ["" if math.isnan(value) else f"{round(value, 12) + 0.0:.4g}" for value in (own.get(k, math.nan) for k in keys)]
        for own in seen.scores.values()
    ]
    widths = [max(10, *(len(text) + 2 for text in column)) for column in zip(heads, *table, strict=True)]
    return [
        f"Accuracy on {seen.n:,} rows ({seen.method.words})",
        " " * 8 + _cells(heads, widths),
        *(f"{who:<8}" + _cells(cells, widths) for who, cells in zip(seen.scores, table, strict=True)),
    ]


def _terms(model: Model, k: int, name: str, level: float) -> list[str]:
    found = effects(model, None, level, output=k)
    scale = model.target.names[k] if not model.is_classifier and model.noise not in COUNTS else SCALES[model.noise]
    scale = model.target.scale_of(0 if model.is_classifier else k) or scale
    many = len(model.target.output_names) > 1
    lines = [f"Terms{f' of {name}' if many or model.is_classifier else ''}, on the scale of {scale}"]
    if not len(found):
        return [*lines, "none: no input was found to act."]
    tail = 50.0 * (1.0 - level)
    heads = ["strength", "sd", f"{tail:g} %", f"{100.0 - tail:g} %", "share", "P(real)"]
    shown = lines_of(found)
    labels = [line.label for line in shown[:MOST_TERMS]]
    widths, first = [10, 10, 10, 10, 8, 9], min(max(map(len, labels)) + 2, WIDTH - 57)
    lines.append(" " * first + _cells(heads, widths))
    for label, line in zip(labels, shown, strict=False):
        cells = [
            *(f"{value:.4g}" for value in line[2:6]),
            f"{round(line.share, 3) + 0.0:.1%}",
            probability_words(line.probability),
        ]
        lines.append(f"{label if len(label) < first else label[: first - 2] + '…':<{first}}" + _cells(cells, widths))
    if len(shown) > MOST_TERMS:
        lines.append(f"and {len(shown) - MOST_TERMS} more")
    return lines


def _cells(texts: list[str], widths: list[int]) -> str:
    return "".join(text.rjust(width) for text, width in zip(texts, widths, strict=True))
