"""What notebooks show: a fitted model's answer, and an effect as a small drawing. Text is escaped."""

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd
from jaxtyping import Float

from vertebra.effects.words import Line, lines, probability_words

N_TERMS = 8
TERM_COLUMNS = ("term", "strength", "lower", "upper", "sobol", "probability")
WIDTH, HEIGHT = 260, 120
# Numbers of a column under each other; digits of one width, so that they line up.
RIGHT = ' style="text-align:right;font-variant-numeric:tabular-nums"'
# Cells of a drawn surface along each input.
N_CELLS = 24


def answer(
    name: str,
    verdict: str,
    accuracy: pd.DataFrame | None,
    method: str,
    effects: pd.DataFrame | None,
    warnings: Sequence[str],
) -> str:
    """A fitted model in one box: what to think of it, how good it is, and its strongest terms."""
    parts = [f"<b>{escape(name)}</b>: {escape(verdict)}"]
    parts += [f"<div>! {escape(warning)}</div>" for warning in warnings]
    if effects is not None and len(effects):
        shown = lines(effects)
        largest = max(max(line.share for line in shown), 1e-12)
        rows = "".join(_term_row(line, largest) for line in shown[:N_TERMS])
        head = "".join(
            f"<th{'' if title == 'term' else RIGHT}>{title}</th>"
            for title in ("term", "strength", "95 %", "share of the variance of f", "probability")
        )
        more = f"<div>and {len(shown) - N_TERMS} more</div>" if len(shown) > N_TERMS else ""
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}")
    elif effects is not None:
        parts.append("<div>No input was found to act.</div>")
    if accuracy is not None:
        table = accuracy.map(lambda value: "" if pd.isna(value) else f"{value:.4g}").to_html(escape=True, border=0)
        parts.append(f"<div>Accuracy, {escape(method)}:</div>{table}")
    look = "margin:0.5em 0;padding:0.6em 0.9em;border:1px solid #8886;border-radius:8px"
    return f'<div style="{look}">{"".join(parts)}</div>'


def _term_row(line: Line, largest: float) -> str:
    width = f"{5.0 * line.share / largest:.2f}em"
    bar = f'<span style="display:inline-block;height:0.6em;width:{width};background:#0072B2"></span>'
    cells = [
        escape(line.label),
        f"{line.strength:.4g}",
        f"{line.lower:.4g} to {line.upper:.4g}",
        f"{bar} {100.0 * line.share:.1f} %",
        escape(probability_words(line.probability)),
    ]
    return f"<tr><td>{cells[0]}</td>{''.join(f'<td{RIGHT}>{cell}</td>' for cell in cells[1:])}</tr>"


def effect(
    label: str,
    strength: float,
    interval: tuple[float, float],
    points: Sequence[Float[np.ndarray, " _"]],
    mean: Float[np.ndarray, "*grid"],
    sd: Float[np.ndarray, "*grid"],
) -> str:
    """An effect on a grid: its strength, and of one input a curve with its 95 % band, of two a map."""
    words = f"<b>{escape(label)}</b>: strength {strength:.4g}, 95 % from {interval[0]:.4g} to {interval[1]:.4g}"
    drawing = ""
    if len(points) == 1 and len(points[0]) > 1:
        drawing = _curve(points[0], mean, sd)
    elif len(points) == 2 and min(map(len, points)) > 1:
        drawing = _map(points, mean)
    return f"<div>{words}</div>{drawing}"


def _svg(shapes: str) -> str:
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{shapes}</svg>'


def _curve(x, mean, sd) -> str:
    order = np.argsort(x)
    x, mean, sd = x[order], mean[order], sd[order]
    low, high = float((mean - 1.96 * sd).min()), float((mean + 1.96 * sd).max())
    across = WIDTH * (x - x[0]) / max(float(x[-1] - x[0]), 1e-300)
    up = lambda v: HEIGHT - HEIGHT * (v - low) / max(high - low, 1e-300)  # noqa: E731
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up(mean), strict=True))
    edge = [
        *zip(across, up(mean + 1.96 * sd), strict=True),
        *zip(across[::-1], up(mean - 1.96 * sd)[::-1], strict=True),
    ]
    band = " ".join(f"{a:.1f},{b:.1f}" for a, b in edge)
    zero = f'<line x1="0" x2="{WIDTH}" y1="{up(0.0):.1f}" y2="{up(0.0):.1f}" stroke="#888" stroke-dasharray="2 3"/>'
    return _svg(
        f'{zero}<polygon points="{band}" fill="#56B4E9" opacity="0.5"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    )


def _map(points, mean) -> str:
    """Blue below zero, red above, as deep as it is far from it."""
    chosen = [np.argsort(p)[np.linspace(0, len(p) - 1, min(len(p), N_CELLS)).astype(int)] for p in points]
    values = mean[np.ix_(*chosen)]
    limit = max(float(np.abs(values).max()), 1e-300)
    width, height = WIDTH / values.shape[0], HEIGHT / values.shape[1]
    size = f'width="{width:.2f}" height="{height:.2f}" shape-rendering="crispEdges"'
    cells = [
        f'<rect x="{i * width:.2f}" y="{HEIGHT - (j + 1) * height:.2f}" {size} '
        f'fill="{"#b2182b" if v > 0 else "#2166ac"}" opacity="{abs(v) / limit:.2f}"/>'
        for i, row in enumerate(values)
        for j, v in enumerate(row)
    ]
    return _svg("".join(cells))
