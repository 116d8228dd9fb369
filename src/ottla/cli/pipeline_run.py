"""`ottla pipeline run`: the runner in the foreground, with a live view on a terminal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ottla.base.errors import OttlaError
from ottla.cli.failure import Failure
from ottla.cli.output import note
from ottla.cli.pipeline_view import FLOW_COLUMNS, flow_rows, heading, progress_line
from ottla.spark.java import java_environment
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.metrics import serve
from ottla.spark.pipeline.project import Project
from ottla.spark.pipeline.status import RUNNING, STOPPED
from ottla.spark.pipeline.supervisor import Supervisor

LINE_EVERY_SECONDS = 10.0


def run_in_foreground(project: Project, *, once: bool) -> int:
    control = Control(project.state)
    os.environ.update(java_environment())
    try:
        with control.held(note):
            control.want(RUNNING)
            return _supervise(project, control, once=once)
    except OttlaError as failure:
        raise Failure(str(failure)) from failure


def _supervise(project: Project, control: Control, *, once: bool) -> int:
    def on_signal(number: int, frame: FrameType | None) -> None:
        control.want(STOPPED)

    supervisor = Supervisor(project, control, once=once, tell=note)
    before = {one: signal.signal(one, on_signal) for one in (signal.SIGINT, signal.SIGTERM)}
    stop_metrics: Callable[[], None] | None = None
    try:
        if project.settings.metrics:
            stop_metrics = serve(project.settings.metrics, lambda: control.status(project.name))
            note(f"metrics at http://{project.settings.metrics}/metrics")
        note(f"{project.name}: starting Spark; its log is {control.engine_log}")
        with _view(project, control) as look:
            code = supervisor.run(look)
    finally:
        supervisor.shut_down()
        if stop_metrics is not None:
            stop_metrics()
        for one, handler in before.items():
            signal.signal(one, handler)
    if code:
        raise Failure(f"{project.name}: {supervisor.status.error}")
    note(progress_line(control.status(project.name)))
    return code


@contextmanager
def _view(project: Project, control: Control) -> Iterator[Callable[[], None]]:
    if not sys.stderr.isatty():
        yield _Lines(project, control).look
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table

    def picture() -> Any:
        status = control.status(project.name)
        table = Table(*FLOW_COLUMNS, box=None, header_style="bold")
        for row in flow_rows(status):
            table.add_row(*(str(cell) for cell in row))
        return Group(heading(status), table)

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=False) as live:
        yield lambda: live.update(picture())


class _Lines:
    """Where there is no terminal: a line when something changes, as often as people read."""

    def __init__(self, project: Project, control: Control) -> None:
        self._project = project
        self._control = control
        self._last = ""
        self._due = 0.0

    def look(self) -> None:
        if time.monotonic() < self._due:
            return
        line = progress_line(self._control.status(self._project.name))
        if line != self._last:
            note(line)
            self._last = line
            self._due = time.monotonic() + LINE_EVERY_SECONDS
