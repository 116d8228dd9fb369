"""How far a run has come: a bar on a terminal, a plain line per step elsewhere. On stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Each redraw takes a millisecond from the two cores that are being measured.
_REDRAWS_PER_S = 2


class Steps:
    """Enter it, say what begins and what was found, leave it."""

    def __init__(self, total: int) -> None:
        self._begin_s = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True, highlight=False),
                refresh_per_second=_REDRAWS_PER_S,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Steps:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=what)

    def end(self, what: str) -> None:
        """One step is done; the line stays."""
        line = f"{time.monotonic() - self._begin_s:6.0f} s  {what}"
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
            return
        self._bar.console.print(line, markup=False, soft_wrap=True)
        self._bar.advance(self._task)
