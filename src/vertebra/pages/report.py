"""A page about a fitted additive model: one file, no network needed, with the answer first and a what-if panel.

Text is written here, so that it is there without scripts; charts and the panel are drawn in the browser from data in
the page. Whatever comes from the user's table is escaped.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from vertebra.likelihoods import Poisson
from vertebra.machine.file import libraries, put
from vertebra.models.evaluation import Evaluation
from vertebra.models.explanation import effects
from vertebra.models.model import Model
from vertebra.models.scores import Method, ScoreName
from vertebra.pages.chartdata import MOST_CHARTS, charts
from vertebra.pages.whatif import tables
from vertebra.tables.profile import Marginal
from vertebra.tables.schema import date
from vertebra.terms.term import term_label

# A term is called real from this probability on; below the other it stands there for an interaction's sake.
REAL, DOUBTFUL = 0.95, 0.5
# Targets or classes, sub-networks, and bars of a histogram shown.
MOST_OUTPUTS, MOST_BOXES, MOST_BARS = 10, 24, 40

METHODS = {
    "model": "this model",
    "linear": "linear model",
    "mean": "always the mean",
    "shares": "shares of the classes",
}


def write(model: Model, evaluation: Evaluation | None, asked: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes the page; `asked` are the arguments of the estimator that are not the defaults."""
    put(path, page(model, evaluation, asked).encode("utf-8"))


def page(model: Model, evaluation: Evaluation | None, asked: Mapping[str, Any]) -> str:
    """The page as text."""
    outputs = model.target.output_names[:MOST_OUTPUTS]
    unit = _unit(model)
    data = {
        "is_classifier": model.is_classifier,
        "unit": unit,
        "calibration": evaluation.calibration if evaluation is not None else None,
        "outputs": [charts(model, k) for k in range(len(outputs))],
        "model": tables(model),
    }
    # in a script element only "<" could end it early
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    target = ", ".join(model.target.names)
    parts = {
        "title": escape(f"What acts on {target}"),
        "css": _asset("page.css"),
        "body": _body(model, evaluation, asked, outputs, unit),
        "data": text,
        "plotly": _plotly(),
        "js": _asset("page.js"),
    }
    result = _asset("page.html")
    for name in ("title", "css", "body", "data", "js", "plotly"):
        before, after = result.split(f"<!--{name}-->")
        result = before + parts[name] + after
    return result


def _asset(name: str) -> str:
    return (files("vertebra.pages") / "assets" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError("A report needs Plotly: pip install 'vertebra[report]'.") from None
    return get_plotlyjs().replace("</script", "<\\/script")


# Text


def _body(model: Model, evaluation: Evaluation | None, asked: Mapping[str, Any], outputs: list[str], unit: str) -> str:
    sections = [
        ("answer", "The answer", _answer(model, evaluation, outputs)),
        ("what-if", "What if?", _what_if(model, outputs)),
        ("effects", "What acts, and how", _effects(model, outputs)),
        ("accuracy", "How good it is", _accuracy(model, evaluation)),
        ("structure", "What reads what", _structure(model)),
        ("rows", "The data", _rows(model)),
        ("fit", "How the fit went", _diagnostics(model)),
        ("limits", "What this cannot tell", _limits(model, evaluation, asked)),
        ("again", "To do it again", _again(model, asked)),
    ]
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in sections)
    target = escape(", ".join(model.target.names))
    head = (
        f'<header class="top"><h1>What acts on {target}</h1>'
        '<button type="button" id="theme" aria-label="Light or dark">◐ Light / dark</button></header>'
    )
    blocks = [
        f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{escape(title)}</h2>{text}</section>'
        for name, title, text in sections
    ]
    contents = f'<nav class="contents" aria-label="Contents">{links}</nav>'
    foot = "<footer>Made by Vertebra. This file needs no network, and what is set in it stays in it.</footer>"
    return f'{head}<main id="content">{contents}{"".join(blocks)}</main>{foot}'


def _answer(model: Model, evaluation: Evaluation | None, outputs: list[str]) -> str:
    found = _effects_of_all(model, outputs)
    cards = [("How good?", _how_good(model, evaluation)), ("What is real?", _what_is_real(model, found))]
    cards.append(("What is uncertain?", _what_is_uncertain(model, found)))
    return (
        '<div class="answers">'
        + "".join(
            f'<div class="card"><h3>{title}</h3>{"".join(f"<p>{text}</p>" for text in texts)}</div>'
            for title, texts in cards
        )
        + "</div>"
    )


def _how_good(model: Model, evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return ["Not measured: give <code>report</code> rows that were not fitted."]
    own = evaluation.scores["model"]
    where = f"{escape(evaluation.method.words)}, {evaluation.n:,} rows"
    if "log_loss" in own:
        other = evaluation.scores["linear"]
        said = f"{_percent(own['accuracy'])} of the rows get the right class"
        said += f", and AUC is {own['auc']:.3f}" if "auc" in own else ""
        versus = f"Log loss {own['log_loss']:.3f}; a linear model has {other['log_loss']:.3f}, the classes' shares "
        return [f"{said} ({where}).", versus + f"{evaluation.scores['shares']['log_loss']:.3f}."]
    texts = []
    names = model.target.names
    for k, name in enumerate(names):
        key = f" {k}" if len(names) > 1 else ""
        off, linear, mean = (_number(evaluation.scores[who]["rmse" + key]) for who in ("model", "linear", "mean"))
        whose = f"<b>{escape(name)}</b>: " if len(names) > 1 else ""
        texts.append(
            f"{whose}Predictions are off by <b>{off}</b> (RMSE){_explained(own['r2' + key])}. A linear model is off by "
            f"{linear}, the mean by {mean}."
        )
        texts.append(f"95 % intervals held {_percent(own['coverage_95' + key])} of the rows ({where}).")
    return texts


def _explained(r2: float) -> str:
    return f" and explain {_percent(r2)} of the variance" if r2 == r2 else ""


def _effects_of_all(model: Model, outputs: list[str]) -> pd.DataFrame:
    """The terms of every output, each where it is surest and then strongest."""
    found = pd.concat([effects(model, output=k) for k in range(len(outputs))], ignore_index=True)
    found = found.sort_values(["probability", "sobol"], ascending=False).drop_duplicates("term")
    return found.sort_values("sobol", ascending=False, ignore_index=True)


def _what_is_real(model: Model, table: pd.DataFrame) -> list[str]:
    real: Any = table[table["probability"] >= REAL]
    added = 0.0
    if model.posterior.remainder is not None:
        is_named = real["order"] < len(model.schema.columns)
        added, real = float(real["sobol"][~is_named].sum()), real[is_named]
    more = [f"Networks over all inputs add {_percent(added, 0)} that terms of few inputs leave out."] if added else []
    n_inputs = len({name for term in real["term"] for name in term})
    if not len(real):
        unsure = "No single input is sure to act, though together they predict." if len(table) else ""
        return [unsure or "No input was found to act.", *more]
    pairs = int((real["order"] >= 2).sum())
    texts = [
        f"{n_inputs} of {len(model.schema.columns)} inputs act, and {pairs or 'no'} interaction{'s' * (pairs != 1)}, "
        f"with a probability of at least {_percent(REAL, 0)} each."
    ]
    top = [f"<b>{escape(term_label(row.term))}</b> ({_percent(row.sobol, 0)})" for row in real.head(5).itertuples()]
    texts.append(f"Strongest, with their share of what varies: {', '.join(top)}.")
    return texts + more


def _what_is_uncertain(model: Model, table: pd.DataFrame) -> list[str]:
    doubtful: Any = table[(table["probability"] >= DOUBTFUL) & (table["probability"] < REAL)]
    texts = []
    if len(doubtful):
        names = ", ".join(escape(term_label(term)) for term in doubtful["term"].head(6))
        texts.append(f"Perhaps real, perhaps not: {names}.")
    vague: Any = table[(table["probability"] >= REAL) & (table["sd"] > 0.25 * table["strength"])]
    if len(vague):
        names = ", ".join(escape(term_label(term)) for term in vague["term"].head(6))
        texts.append(f"Real, but of a size known only roughly: {names}.")
    texts += [escape(warning) for warning in model.diagnostics.warnings[:3]]
    return texts or ["Nothing stands out: every effect found is clear, and the fit raised no warning."]


def _what_if(model: Model, outputs: list[str]) -> str:
    which = ""
    if len(outputs) > 1:
        what = "Class taken apart" if model.is_classifier else "Target"
        which = f'<label>{what} <select id="what-if-output">{_options(outputs)}</select></label>'
    level = "" if model.is_classifier else "<label>Interval "
    level += '<select id="level" aria-label="Level of the interval"></select>' + ("" if not level else "</label>")
    hidden = " hidden" if model.is_classifier else ""
    left_out = ""
    if (remainder := model.posterior.remainder) is not None:
        away = " or ".join(map(_number, remainder.size * model.target.scale))
        left_out = (
            " The term of all inputs stays out, since a page has no room for its networks: the model itself is "
            f"typically {away} away from this, with narrower intervals."
        )
    return (
        f"<p>Set the inputs: the prediction, its interval and its parts follow, worked out in this page.{left_out}</p>"
        f'<div class="tools">{which}<span{hidden}>{level}</span>'
        '<button type="button" id="reset">Back to the typical row</button></div>'
        '<div class="whatif"><div id="controls" class="card"></div><div class="card sticky">'
        '<div class="soft">Prediction</div><div aria-live="polite"><div class="says" id="says"></div>'
        '<div id="range" class="soft"></div></div>'
        '<h3>What each term adds</h3><div id="sum" class="soft"></div>'
        '<div id="waterfall" class="chart"></div></div></div>'
    )


def _effects(model: Model, outputs: list[str]) -> str:
    toggles = [
        ("pointwise", "band for each point", True),
        ("simultaneous", "band for the whole curve", True),
        ("data", "where the data are", True),
        ("sure", "of interactions only what differs from zero", False),
    ]
    boxes = "".join(
        f'<label><input type="checkbox" data-toggle="{name}"{" checked" if on else ""}>{escape(text)}</label>'
        for name, text, on in toggles
    )
    choose = ""
    if len(outputs) > 1:
        what = "Class" if model.is_classifier else "Target"
        choose = f'<label>{what} <select class="output">{_options(outputs)}</select></label>'
    parts = [
        f'<div class="output-part" data-output="{k}"{" hidden" if k else ""}>{_one_output(model, k)}</div>'
        for k in range(len(outputs))
    ]
    intro = (
        "<p>Each effect is what a term adds to the prediction, averaged over everything else. Its strength is the size "
        "of what it adds, typically; its probability says how sure it is that it is there at all. Bands are of the "
        "effect, at 95 %, not of single outcomes.</p>"
    )
    return f'{intro}<div class="tools">{choose}{boxes}</div>{"".join(parts)}'


def _one_output(model: Model, k: int) -> str:
    table = effects(model, output=k)
    if not len(table):
        return "<p>No term was found.</p>"
    largest = max(float(table["sobol"].max()), 1e-12)
    rows = []
    for row in table.itertuples():
        weak = ' class="weak"' if row.probability < DOUBTFUL else ""
        bar = f'<span class="bar" style="width:{max(0.1, 5.0 * row.sobol / largest):.2f}rem"></span>'
        rows.append(
            f"<tr{weak}><td>{escape(term_label(row.term))}</td><td>{_number(row.strength)}</td>"
            f"<td>{_number(row.lower)} to {_number(row.upper)}</td><td class='text'>{bar} {_percent(row.sobol)}</td>"
            f"<td>{_probability(row.probability)}</td></tr>"
        )
    titles = ["term", "strength", "95 % interval", "share of the variance of f", "probability"]
    head = "".join(f"<th{' class=text' if k == 3 else ''}>{title}</th>" for k, title in enumerate(titles))
    weak = (table["probability"] < DOUBTFUL).any()
    note = (
        "<p class='soft'>Grey: not seen by itself. It is in the model because an interaction that holds it is, or "
        "because all main effects together predict better than those alone that are sure.</p>"
        if weak
        else ""
    )
    charts = []
    for j, term in enumerate(table["term"].head(MOST_CHARTS)):
        wide = " two" if len(term) > 1 else ""
        body = (
            f'<div class="chart" data-chart="effect" data-output="{k}" data-term="{j}" role="img" '
            f'aria-label="{escape(term_label(term), quote=True)}"></div>'
            if len(term) <= 3
            else "<p>A term of more than three inputs: <code>model.eval_terms</code> has it row by row.</p>"
        )
        charts.append(f'<div class="card{wide}"><h3>{escape(term_label(term))}</h3>{body}</div>')
    more = len(table) - MOST_CHARTS
    rest = f"<p>And {more} weaker terms without a chart.</p>" if more > 0 else ""
    strengths = f'<div class="chart" data-chart="strengths" data-output="{k}" role="img" aria-label="Strengths"></div>'
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{note}'
        f'<h3>Strengths with 95 % intervals</h3>{strengths}<div class="effects">{"".join(charts)}</div>{rest}'
    )


def _accuracy(model: Model, evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "<p>Not measured. <code>model.report(path, X, y)</code> measures it on rows that were not fitted.</p>"
    names = list(evaluation.scores["model"])
    head = "".join(f"<th>{escape(ScoreName.read(name).words(model.target.names))}</th>" for name in names)
    rows = []
    for who, scores in evaluation.scores.items():
        cells = "".join(f"<td>{_number(scores[name]) if name in scores else '–'}</td>" for name in names)
        rows.append(f"<tr><td>{METHODS.get(who, escape(who))}</td>{cells}</tr>")
    said = (
        "Of predicted probabilities in ten groups: how often it happened, beside what was said."
        if model.is_classifier
        else "Of intervals at every level: how many rows lay inside, beside what was said."
    )
    return (
        f"<p>On {evaluation.n:,} rows: {escape(evaluation.method.words)}.</p>"
        f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        f"<h3>Does it mean what it says?</h3>"
        f"<p>{said} Points on the dotted line mean yes; bars are 95 % limits of chance.</p>"
        '<div class="chart tall narrow" data-chart="calibration" role="img" aria-label="Calibration"></div>'
    )


def _structure(model: Model) -> str:
    clusters = [tuple(c) for c in model.clusters]
    added = model.posterior.remainder is not None
    if not clusters:
        alone = "The model is a constant and networks that read all inputs."
        return f"<p>{alone if added else 'No input was found to act: the model is a constant.'}</p>"
    groups = "; ".join(escape(term_label(c)) for c in clusters[:MOST_BOXES])
    more = f", and {len(clusters) - MOST_BOXES} more" if len(clusters) > MOST_BOXES else ""
    return (
        f"<p>The prediction is a sum of {len(clusters)} sub-network{'s' * (len(clusters) != 1)}, each of which reads "
        f"the inputs of one cluster and no other: {groups}{more}."
        f"{' Networks that read all inputs add to it.' * added}</p>{_skeleton(clusters[:MOST_BOXES])}"
    )


def _skeleton(clusters: Sequence[tuple[str, ...]]) -> str:
    """Inputs, the sub-networks that read them, and their sum, as a drawing."""
    names = list(dict.fromkeys(name for cluster in clusters for name in cluster))
    step, width = 34, 190
    height = step * max(len(names), len(clusters)) + 20
    left = {name: height * (i + 0.5) / len(names) for i, name in enumerate(names)}
    middle = [height * (j + 0.5) / len(clusters) for j in range(len(clusters))]
    shapes = []
    for y, cluster in zip(middle, clusters, strict=True):
        shapes += [_line(width + 10, left[name], width + 160, y) for name in cluster]
        shapes.append(_line(width + 250, y, width + 365, height / 2))
    shapes += [_box(10, y, width, _short(name, 24)) for name, y in left.items()]
    shapes += [_box(width + 160, y, 90, f"f{j + 1}") for j, y in enumerate(middle)]
    shapes.append(_box(width + 365, height / 2, 60, "⊕ f"))
    total = width + 440
    label = f"{len(names)} inputs, {len(clusters)} sub-networks, one sum"
    size = f'viewBox="0 0 {total} {height}" width="{total}" height="{height}"'
    drawing = f'<svg class="skeleton" {size} role="img" aria-label="{label}">{"".join(shapes)}</svg>'
    return f'<div class="wide">{drawing}</div>'


def _line(x0: float | int, y0: float, x1: float | int, y1: float) -> str:
    bend = 0.5 * (x1 - x0)
    return f'<path d="M{x0:.1f} {y0:.1f} c{bend:.1f} 0 {bend:.1f} {y1 - y0:.1f} {x1 - x0:.1f} {y1 - y0:.1f}"/>'


def _box(x: float | int, y: float, width: int, text: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y - 13:.1f}" width="{width:.1f}" height="26" rx="7"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(text)}</text>'
    )


def _rows(model: Model) -> str:
    profile = model.profile
    acting = {name for cluster in model.clusters for name in cluster}
    rows = []
    for column, marginal in zip(model.schema.columns, profile.inputs, strict=True):
        shown = date if column.part == "time" else _number
        rows.append(_data_row(column.name, column.kind, marginal, column.levels, column.name in acting, shown))
    for name, marginal in zip(model.target.names, profile.targets, strict=True):
        classes = [str(c) for c in (model.target.classes if model.is_classifier else ())]
        kind = "target, classes" if classes else "target"
        rows.append(_data_row(name, kind, marginal, classes, None, _number))
    count = f"{profile.n_rows:,} rows"
    if not np.isclose(profile.weight, profile.n_rows):
        count += f", which count as {_number(profile.weight)} by their weights"
    titles = {"column": "", "kind": "text", "values": "", "missing": "", "spread": "text", "read by the model": "text"}
    head = "".join(f'<th class="{look}">{title}</th>' for title, look in titles.items())
    return (
        f"<p>{count}, {len(model.schema.sources)} columns.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _data_row(
    name: str, kind: str, marginal: Marginal, levels: Sequence[Any], acts: bool | None, shown: Callable[[float], str]
) -> str:
    values = f"{len(levels)} levels"
    if not levels:
        values = f"{shown(float(marginal.edges[0]))} to {shown(float(marginal.edges[-1]))}"
    mark = "" if acts is None else "yes" if acts else "no"
    missing = _percent(marginal.missing) if marginal.missing else "–"
    cells = [f"<td class='text'>{escape(kind)}</td><td>{values}</td><td>{missing}</td>"]
    cells.append(f"<td class='text'>{_spark(marginal.shares)}</td><td class='text'>{mark}</td>")
    return f"<tr><td>{escape(_short(name, 60))}</td>{''.join(cells)}</tr>"


def _spark(shares: np.ndarray) -> str:
    shown = shares[:MOST_BARS]
    top = max(float(shown.max(initial=0.0)), 1e-12)
    step = 100.0 / max(len(shown), 1)
    bars = "".join(
        f'<rect x="{i * step:.2f}" y="{20 - 20 * s / top:.2f}" width="{step * 0.9:.2f}" height="{20 * s / top:.2f}"/>'
        for i, s in enumerate(shown)
    )
    return f'<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">{bars}</svg>'


def _diagnostics(model: Model) -> str:
    found = model.diagnostics
    items = [f'<li class="fine">{escape(note)}</li>' for note in found.notes]
    items += [f'<li class="warn">{escape(warning)}</li>' for warning in found.warnings]
    return f"<p>{escape(found.verdict)}</p><ul class='plain'>{''.join(items)}</ul>"


def _limits(model: Model, evaluation: Evaluation | None, asked: Mapping[str, Any]) -> str:
    texts = [
        "Effects say how predictions depend on the inputs. That an input acts here does not mean that changing it in "
        "the world would change the target.",
        "Where inputs go together, what one does and what the other does can be told apart only as far as rows differ "
        "in them. Effects are averages over all combinations of values, also those that the data hardly hold.",
        "A term that is not listed was not seen; a weak one can be there all the same."
        + ("" if asked.get("clusters") else " Terms of more than three inputs were not looked for."),
        "Beyond the values seen nothing is known: the panel stays at the edge of them.",
        "Bands around effects are of the effect. A single outcome varies more: that is the interval of a prediction.",
    ]
    if evaluation is not None and evaluation.method is Method.LEFT_OUT:
        texts.append(
            "Accuracy was measured on every row with that row left out, but the terms had been chosen with it: on new "
            "rows expect it a little worse, most of all with few rows and many inputs."
        )
    if model.conformal is not None:
        texts.append(
            "Intervals are calibrated: they hold for rows from the source of those fitted, whatever the noise."
        )
    return "<ul>" + "".join(f"<li>{text}</li>" for text in texts) + "</ul>"


def _again(model: Model, asked: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    versions = ", ".join(f"{name} {version}" for name, version in libraries().items())
    code = f'import vertebra as vb\n\nmodel = vb.{model.kind}({arguments}).fit(X, y)\nmodel.report("report.html")'
    return (
        f"<pre>{escape(code)}</pre><p>The same rows, weights, settings and versions give the same model, unless a fit "
        f"was cut short by time or by hand. This page was written with {escape(versions)}. "
        "A model saved with <code>model.save</code> gives this page again with <code>vertebra report</code>.</p>"
    )


def _unit(model: Model) -> str:
    if model.is_classifier:
        return f"log odds of {model.target.classes[1]}" if len(model.target.classes) == 2 else "logits of the class"
    if isinstance(model.likelihood, Poisson):
        return f"log of {model.target.names[0]}"
    return f"units of {model.target.names[0]}" if len(model.target.names) == 1 else "units of the target"


def _options(outputs: list[str]) -> str:
    return "".join(f'<option value="{k}">{escape(name)}</option>' for k, name in enumerate(outputs))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _number(value: float) -> str:
    if value == 0.0 or (1e4 <= abs(value) < 1e7):
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:#.4g}".rstrip(".").replace("-", "−")


def _percent(share: float, places: int = 1) -> str:
    return f"{100.0 * share:.{places}f}\u00a0%".replace("-", "−")


def _probability(value: float) -> str:
    return "&gt; 0.999" if value > 0.999 else "&lt; 0.001" if value < 0.001 else f"{value:.3f}"
