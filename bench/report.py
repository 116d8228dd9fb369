"""The table of ratios: for a terminal, for a pipe, and as Markdown for the documentation.

A quick run gets no verdict: one round on a shared machine decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.results import Results, Row, rows_of
from bench.sizes import QUICK

WIDTH_OFF_TERMINAL = 200
HEADINGS = ("case", "figure", "Ottla", "Kafka", "ratio", "spread", "target", "reached")
TITLE = "# Ottla beside Apache Kafka"
_NUMBERS_FROM = 2


def print_report(results: Results) -> None:
    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else WIDTH_OFF_TERMINAL)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings(results)):
        table.add_column(heading, justify="right" if index >= _NUMBERS_FROM else "left")
    for cells in table_cells(results):
        table.add_row(*cells)
    console.print(table)
    for line in closing_lines(results):
        console.print(line, soft_wrap=True)


def headings(results: Results) -> Sequence[str]:
    return HEADINGS[:-1] if results.quick else HEADINGS


def table_cells(results: Results) -> list[list[str]]:
    lines: list[list[str]] = []
    last = ""
    for row in rows_of(results.outcomes):
        title = "" if row.case.name == last else row.case.title
        last = row.case.name
        cells = [title, row.figure.label, *_values(row), row.figure.target()]
        lines.append(cells if results.quick else [*cells, verdict(row)])
    return lines


def closing_lines(results: Results) -> list[str]:
    lines = [f"failed: {error}" for error in results.errors()]
    if left_out := results.left_out():
        lines.append(f"left out, the time was up: {', '.join(left_out)}")
    if results.quick:
        return [*lines, f"quick run, at reduced size ({_reduced()}): no verdict"]
    verdicts = [row.is_reached() for row in rows_of(results.outcomes)]
    judged = [reached for reached in verdicts if reached is not None]
    return [*lines, f"{sum(judged)} of {len(judged)} targets reached"]


def _reduced() -> str:
    """Titles speak of the full size."""
    return f"{QUICK.partitions:,} partitions, {QUICK.lag_groups:,} groups, ..."


def to_markdown(results: Results) -> str:
    columns = headings(results)
    marks = ["---" if index < _NUMBERS_FROM else "--:" for index in range(len(columns))]
    lines = [TITLE, "", _line(columns), "|" + "|".join(marks) + "|"]
    lines += [_line(cells) for cells in table_cells(results)]
    return "\n".join(lines) + "\n"


def verdict(row: Row) -> str:
    reached = row.is_reached()
    return "" if reached is None else "yes" if reached else "NO"


def short(value: float) -> str:
    """Three digits that count, no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _values(row: Row) -> tuple[str, str, str, str]:
    unit = row.figure.unit
    spread = f"{short(row.lowest)} to {short(row.highest)}" if row.rounds > 1 else ""
    return f"{short(row.ottla)} {unit}", f"{short(row.kafka)} {unit}", short(row.ratio), spread


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
