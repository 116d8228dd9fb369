"""How far long work has come: a bar on a terminal, a plain line every few seconds elsewhere.

Both on stderr, so that a pipe from stdout stays clean. Costs a clock reading per step at most.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

from ottla.cli.output import Size, note

LINE_EVERY_S = 5.0


class Meter(Protocol):
    """Enter it, tell it how far things are, leave it."""

    def __enter__(self) -> Meter: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def show(self, records: int, size_bytes: int) -> None: ...


def meter(what: str, total_bytes: int | None) -> Meter:
    """`total_bytes` None: nobody knows how much there will be, so there is no bar to fill."""
    if total_bytes is not None and sys.stderr.isatty():
        from ottla.cli.progress_bar import BarMeter  # noqa: PLC0415 (rich takes 60 ms to load)

        return BarMeter(what, total_bytes)
    return LineMeter(what)


class LineMeter:
    """Says nothing about work that is done in a few seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start_s = self._line_s = time.monotonic()

    def __enter__(self) -> LineMeter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, records: int, size_bytes: int) -> None:
        now_s = time.monotonic()
        if now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            speed = Size(int(size_bytes / (now_s - self._start_s)))
            note(f"{self._what}: {records:,} records, {Size(size_bytes)}, {speed}/s")
