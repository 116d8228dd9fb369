"""How far moves of replicas have come: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from ottla.cli.output import Size, note, plural
from ottla.cli.reassign_run import Progress

LINE_EVERY_S = 5.0


def show(steps: Iterable[Progress]) -> Progress:
    """The last step."""
    return (_bar if sys.stderr.isatty() else _lines)(steps)


def _lines(steps: Iterable[Progress]) -> Progress:
    last = Progress(0, 0, 0)
    next_s = time.monotonic() + LINE_EVERY_S
    for last in steps:
        if time.monotonic() >= next_s and last.left:
            next_s = time.monotonic() + LINE_EVERY_S
            note(
                f"{Size(last.copied_bytes)} of {Size(last.total_bytes)} copied,"
                f" {plural(last.left, 'partition')} left"
            )
    return last


def _bar(steps: Iterable[Progress]) -> Progress:
    from rich.console import Console  # noqa: PLC0415 (rich takes 60 ms to load)
    from rich.progress import (  # noqa: PLC0415 (the same)
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress  # noqa: PLC0415 (the same)

    last = Progress(0, 0, 0)
    with RichProgress(
        TextColumn("{task.fields[left]} partitions left"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None, left="?")
        for last in steps:
            bar.update(
                task, completed=last.copied_bytes, total=last.total_bytes or None, left=last.left
            )
    return last
