"""A page about a fitted additive model: one file, no network needed, with the answer first and a what-if panel.

Text is written here, so that it is there without scripts; charts and the panel are drawn in the browser from data in
the page. The page is a template in `assets`, which escapes whatever comes from the user's table.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup

from vertebra.effects.words import lines, probability_words
from vertebra.machine.file import Record, libraries, put
from vertebra.models.evaluation import Evaluation
from vertebra.models.explanation import MeasureLike, effects, measure_of, totals
from vertebra.models.model import Model
from vertebra.models.scores import ScoreName
from vertebra.pages import drawings, words
from vertebra.pages.cases import CasesLike, cases
from vertebra.pages.chartdata import MOST_CHARTS, charts, kinds
from vertebra.pages.whatif import packed, tables
from vertebra.tables.profile import Marginal
from vertebra.tables.schema import date
from vertebra.terms.term import term_label

# Targets or classes, each with charts of its own that the page has to hold; and sub-networks of a drawing.
MOST_OUTPUTS, MOST_BOXES = 10, 24
# Terms that stand open; the weaker ones are folded.
N_OPEN = 10

# The parts of the page's script, in the order in which they need each other.
SCRIPTS = ("text", "effects", "decisions", "drawing", "model", "panel", "look")

BASELINES = {
    "model": "this model",
    "linear": "linear model",
    "mean": "always the mean",
    "shares": "shares of the classes",
}


class Column(NamedTuple):
    """A line of the table of the data; `acts` of an input alone."""

    name: str
    kind: str
    values: str
    missing: str
    spread: list[drawings.Bar]
    acts: str


def write(
    model: Model,
    evaluation: Evaluation | None,
    asked: Mapping[str, object],
    path: str | os.PathLike[str],
    measure: MeasureLike = None,
    rows: CasesLike = None,
) -> None:
    """Writes the page; `asked` are the arguments of the estimator that are not the defaults."""
    if not os.fspath(path).lower().endswith((".html", ".htm")):
        raise ValueError(f"`path` must end in .html, got {os.fspath(path)!r}: print the page from a browser for PDF.")
    put(path, page(model, evaluation, asked, measure, rows).encode("utf-8"))


def page(
    model: Model,
    evaluation: Evaluation | None,
    asked: Mapping[str, object],
    measure: MeasureLike = None,
    rows: CasesLike = None,
) -> str:
    """The page as text; of `rows` a few are taken apart."""
    outputs = model.target.output_names[:MOST_OUTPUTS]
    drawn = [charts(model, k, measure) for k in range(len(outputs))]
    found = [effects(model, output=k, measure=measure) for k in range(len(outputs))]
    surest = _surest(found)
    given = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    return (
        _templates()
        .get_template("page.html")
        .render(
            css=_asset("page.css"),
            scripts=[_asset(f"scripts/{name}.js") for name in SCRIPTS],
            plotly=_plotly(),
            data=_data(model, evaluation, drawn, measure),
            target=", ".join(model.target.names),
            is_classifier=model.is_classifier,
            outputs=outputs,
            cases=cases(model, rows, measure),
            cases_words=words.CASES,
            cards={
                "How good?": words.how_good(model, evaluation),
                "What is real?": words.what_is_real(model, surest),
                "What is uncertain?": words.what_is_uncertain(model, surest),
            },
            rest_words=words.rest_words(model),
            effects=[list(table.itertuples()) for table in found],
            lines=[lines(table) for table in found],
            totals=[list(totals(model, output=k, measure=measure).itertuples()) for k in range(len(outputs))],
            chart_kinds=[kinds(own) for own in drawn],
            doubtful=words.DOUBTFUL,
            n_open=N_OPEN,
            most_charts=MOST_CHARTS,
            evaluation=evaluation,
            score_words=lambda key: ScoreName.read(key).words(model.target.names),
            baselines=BASELINES,
            structure=words.structure(model, MOST_BOXES),
            skeleton=drawings.skeleton(model.clusters[:MOST_BOXES]) if model.clusters else None,
            row_count=words.row_count(model.profile),
            n_columns=len(model.schema.sources),
            columns=_columns(model),
            diagnostics=model.diagnostics,
            limits=words.limits(model, evaluation, measure_of(model, measure), is_searched=not asked.get("clusters")),
            code=f"{model.kind}({given})",
            versions=", ".join(f"{name} {version}" for name, version in libraries().items()),
        )
    )


@functools.cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("vertebra.pages", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "number": words.number,
        "score": words.score,
        "signed": words.signed,
        "percent": words.percent,
        "short": words.short,
        "coded": words.coded,
        "term": term_label,
        "probability": probability_words,
    }
    return templates


def _asset(name: str) -> Markup:
    return Markup((files("vertebra.pages") / "assets" / name).read_text(encoding="utf-8"))


@functools.cache
def _plotly() -> str:
    """Plotly's script, compressed: 1.9 MB instead of 4.8."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError("A report needs Plotly: pip install 'vertebra[report]'.") from None
    return packed(get_plotlyjs().encode("utf-8"))


def _data(model: Model, evaluation: Evaluation | None, drawn: Sequence[Record], measure: MeasureLike) -> Markup:
    """What the scripts read."""
    data = {
        "is_classifier": model.is_classifier,
        "unit": words.unit(model),
        "calibration": evaluation.calibration if evaluation is not None else None,
        "decisions": evaluation.decisions if evaluation is not None else {},
        "classes": [] if model.target.classes is None else [str(each) for each in model.target.classes],
        "charts": packed(json.dumps(drawn, allow_nan=False, separators=(",", ":")).encode("utf-8")),
        "n_open": N_OPEN,
        "model": tables(model, measure_of(model, measure)),
    }
    # in a script element only "<" could end it early
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _surest(effects: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The terms of every output, each where it is surest and then strongest."""
    found = pd.concat(effects, ignore_index=True)
    found = found.sort_values(["probability", "sobol"], ascending=False).drop_duplicates("term")
    return found.sort_values("sobol", ascending=False, ignore_index=True)


def _columns(model: Model) -> list[Column]:
    """Inputs, then targets."""
    profile = model.profile
    acting = {name for cluster in model.clusters for name in cluster}
    found = []
    for column, marginal in zip(model.schema.columns, profile.inputs, strict=True):
        shown = date if column.part == "time" else words.written
        acts = "yes" if column.name in acting else "no"
        found.append(_column(column.name, column.kind, marginal, len(column.levels), shown)._replace(acts=acts))
    n_classes = 0 if model.target.classes is None else len(model.target.classes)
    kind = "target, classes" if n_classes else "target"
    for name, marginal in zip(model.target.names, profile.targets, strict=True):
        found.append(_column(name, kind, marginal, n_classes, words.written))
    return found


def _column(name: str, kind: str, marginal: Marginal, n_levels: int, shown: Callable[[float], str]) -> Column:
    values = f"{n_levels:,} level{'s' * (n_levels != 1)}"
    if marginal.missing == 1.0:
        values = "none"
    elif not n_levels:
        values = f"{shown(float(marginal.edges[0]))} to {shown(float(marginal.edges[-1]))}"
    missing = words.percent(marginal.missing) if marginal.missing else "–"
    return Column(name, kind, values, missing, drawings.spark(marginal.shares), "")
