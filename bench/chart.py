"""The chart of a run: one bar per figure that has a target, drawn as SVG by hand.

Ratios stand on a logarithmic scale, so that twice and half are equally far from 1. A tick shows the
target, a thin line the spread over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from bench.report import short, verdict
from bench.results import Results, Row, rows_of

ROW_HEIGHT = 22
LABEL_WIDTH = 460
PLOT_WIDTH = 420
VALUE_WIDTH = 190
TOP = 58
BOTTOM = 34
LOWEST, HIGHEST = 1 / 64, 4.0
GRID = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
REACHED, MISSED, UNJUDGED, INK, FAINT = "#2a8f5b", "#c8452f", "#5b7fa6", "#222222", "#d5d5d5"


def to_svg(results: Results) -> str:
    rows = [row for row in rows_of(results.outcomes) if row.figure.target()]
    width = LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM
    body = [*_heading(results), *_grid(height)]
    for index, row in enumerate(rows):
        body += _bar(row, TOP + ROW_HEIGHT * index, results.quick)
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    )
    background = _rectangle(0, 0, width, height, "#ffffff")
    return "\n".join([start, background, *body, "</svg>"]) + "\n"


def _heading(results: Results) -> list[str]:
    facts = results.facts
    kind = "quick run, no verdict" if results.quick else f"{facts.get('rounds', '?')} rounds"
    second = (
        f"Kafka {facts.get('kafka', '?')}, {facts.get('cores', '?')} cores, "
        f"commit {facts.get('commit', '?')}, {kind}; tick: target, line: spread"
    )
    return [
        _text(10, 20, "Ottla relative to Apache Kafka in the same run", size=15),
        _text(10, 38, second),
    ]


def _grid(height: int) -> list[str]:
    parts = []
    for value in GRID:
        at = _x(value)
        stroke = INK if value == 1 else FAINT
        parts.append(_line(at, TOP - 6, at, height - BOTTOM + 4, stroke))
        label = f"1/{round(1 / value)}" if value < 1 else f"{value:g}"
        parts.append(_text(at, height - BOTTOM + 20, label, anchor="middle"))
    return parts


def _bar(row: Row, top: float, quick: bool) -> list[str]:
    middle = top + ROW_HEIGHT / 2
    begin, end = sorted((_x(1), _x(row.ratio)))
    colour = UNJUDGED if quick else REACHED if row.is_reached() else MISSED
    bound = row.figure.at_least if row.figure.at_least is not None else row.figure.at_most
    target = _x(bound) if bound is not None else _x(1)
    label = f"{row.case.title}: {row.figure.label}"
    said = f"{short(row.ratio)}  ({row.figure.target()}) {'' if quick else verdict(row)}"
    return [
        _text(LABEL_WIDTH - 12, middle + 4, label, anchor="end"),
        _rectangle(begin, top + 5, max(end - begin, 1), ROW_HEIGHT - 10, colour),
        _line(_x(row.lowest), middle, _x(row.highest), middle, INK),
        _line(target, top + 2, target, top + ROW_HEIGHT - 2, INK, 2),
        _text(LABEL_WIDTH + PLOT_WIDTH + 12, middle + 4, said),
    ]


def _x(ratio: float) -> float:
    """Where a ratio stands; what is off the scale stands at its edge."""
    kept = min(max(ratio, LOWEST), HIGHEST)
    share = math.log(kept / LOWEST) / math.log(HIGHEST / LOWEST)
    return LABEL_WIDTH + share * PLOT_WIDTH


def _element(name: str, attributes: Iterable[tuple[str, object]], text: str = "") -> str:
    written = " ".join(
        f'{key}="{value:.1f}"' if isinstance(value, float) else f'{key}="{value}"'
        for key, value in attributes
    )
    return f"<{name} {written}>{escape(text)}</{name}>" if text else f"<{name} {written}/>"


def _rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    places = zip(("x", "y", "width", "height"), (x, y, width, height), strict=True)
    return _element("rect", [*places, ("fill", fill)])


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: int = 1) -> str:
    places = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    return _element("line", [*places, ("stroke", stroke), ("stroke-width", width)])


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    attributes = [("x", x), ("y", y), ("fill", INK), ("text-anchor", anchor), ("font-size", size)]
    return _element("text", attributes, text)
