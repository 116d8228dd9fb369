"""`ottla group lag --watch`: a table that keeps itself up to date on a terminal, lines elsewhere.

A broker that does not answer for a while is told and asked again; whoever looks at lag wants to see
it come back. Ctrl-C is the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ottla.cli.failure import Failure
from ottla.cli.group_lag import Rows, Snapshot, add_rates, lag_table, rows_of
from ottla.cli.output import OutputFormat, note, until_nobody_reads
from ottla.cli.tables import console
from ottla.cli.words import printable

Show = Callable[[int, Rows], None]


class LagWatch:
    def __init__(
        self,
        take: Callable[[], Snapshot],
        *,
        interval_s: float,
        count: int | None,
        by_partition: bool,
        output: OutputFormat,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._take = take
        self._interval_s = interval_s
        self._count = count
        self._by_partition = by_partition
        self._output = output
        self._sleep = sleep
        self._before: Snapshot | None = None

    def run(self) -> None:
        with until_nobody_reads(), self._screen() as show:
            looks = 0
            while True:
                self._look(show)
                looks += 1
                if looks == self._count:
                    return
                self._sleep(self._interval_s)

    def _look(self, show: Show) -> None:
        try:
            snapshot = self._take()
        except Failure as failure:
            # At the first look it is a wrong name or address; later it is worth waiting.
            if self._before is None:
                raise
            note(f"ottla: {failure}")
            return
        rows = rows_of(snapshot, by_partition=self._by_partition)
        show(snapshot.timestamp_ms, add_rates(rows, self._before, snapshot))
        self._before = snapshot

    @contextmanager
    def _screen(self) -> Iterator[Show]:
        if self._output is OutputFormat.json:
            yield _show_json
        elif not sys.stdout.isatty():
            yield _show_lines
        else:
            with Live(console=console(), auto_refresh=False) as live:

                def show(timestamp_ms: int, rows: Rows) -> None:
                    live.update(self._table(timestamp_ms, rows), refresh=True)

                yield show

    def _table(self, timestamp_ms: int, rows: Rows) -> Group:
        table = lag_table(rows, by_partition=self._by_partition, with_rates=True)
        foot = f"{_time(timestamp_ms)}  every {self._interval_s:g} s, Ctrl-C ends"
        return Group(table, Text(foot, style="dim"))


def _show_json(timestamp_ms: int, rows: Rows) -> None:
    look = {"timestamp": timestamp_ms, "rows": rows}
    sys.stdout.write(json.dumps(look, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _show_lines(timestamp_ms: int, rows: Rows) -> None:
    for row in rows:
        sys.stdout.write(f"{_time(timestamp_ms)} {_line(row)}\n")
    if not rows:
        sys.stdout.write(f"{_time(timestamp_ms)} nothing committed\n")
    sys.stdout.flush()


def _line(row: dict[str, Any]) -> str:
    place = f"{row['topic']}-{row['partition']}" if "partition" in row else row["topic"]
    line = f"{row['group']} {place} lag {'-' if row['lag'] is None else row['lag']}"
    if row["change"] is not None:
        line += (
            f" ({row['change']}), read {row['read_per_second']}/s,"
            f" written {row['written_per_second']}/s"
        )
    return printable(line)


def _time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
