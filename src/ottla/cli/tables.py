"""Aligned tables for people.

Colours only on a terminal, and never where NO_COLOR is set. Off a terminal a table is as wide as it
needs: a pipe has no edge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.output import Size
from ottla.cli.words import printable

WIDTH_OFF_TERMINAL = 10_000


def console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if terminal else WIDTH_OFF_TERMINAL)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print_rich(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Numbers stand to the right, under a heading to the right; None is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(row[index][1] for row in cells) and bool(cells) for index in range(len(columns))]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(columns):
        table.add_column(
            heading,
            justify="right" if numeric[index] else "left",
            overflow="fold",
            # The first column says what a row is about: people copy it, so it stays in one piece.
            no_wrap=index == 0,
        )
    for row in cells:
        table.add_row(*[Text(text) for text, _ in row])
    return table


def print_rich(renderable: Any) -> None:
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as capture:
        screen.print(renderable)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def _cell(value: object) -> tuple[str, bool]:
    """The text, and whether it is a figure."""
    if value is None:
        return "-", True
    return printable(str(value)), isinstance(value, (int, float, Size))
