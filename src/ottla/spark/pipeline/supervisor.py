"""Keeps one pipeline running: starts its engine, starts it again when it fails, obeys commands.

A light process without Spark. Every failure is told with its reason and the time of the next
attempt; a pipeline that fails for good goes on failing in plain sight, once a minute. What an
engine did when it died needs no care here: queries go on from their checkpoints.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ottla.spark.defaults import STARTING_OFFSETS
from ottla.spark.pipeline.backoff import Backoff
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.project import Project
from ottla.spark.pipeline.status import (
    DONE,
    FAILING,
    PAUSED,
    RUNNING,
    STOPPED,
    Status,
    now_ms,
)

_LOOK_SECONDS = 0.2
# An engine lets batches finish before it stops.
STOP_SECONDS_MAX = 90.0
LOG_BYTES_MAX = 10 * 1024 * 1024


class EngineProcess(Protocol):
    pid: int

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """`tell` gets each thing that people should hear of, as a line."""

    def __init__(
        self,
        project: Project,
        control: Control,
        *,
        once: bool,
        launch: Callable[[], EngineProcess] | None = None,
        tell: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self._project = project
        self._control = control
        self._once = once or project.settings.trigger_ms is None
        self._launch = launch or (lambda: launch_engine(project, control, once=self._once))
        self._tell = tell
        self._backoff = backoff or Backoff()
        self._engine: EngineProcess | None = None
        self._engine_started_ms = 0
        self._stopping_since_ms = 0
        self._next_try_ms = 0
        self.status = Status(project.name, pid=os.getpid(), started_ms=now_ms())

    def step(self) -> bool:
        """Once around; False when it is over."""
        at = now_ms()
        keep_log_small(self._control.engine_log)
        wanted = self._control.wanted()
        code = self._engine.poll() if self._engine is not None else None
        if self._engine is not None and code is not None:
            # One that was told to end has neither failed nor done all, whatever is wanted by now.
            was_told = self._stopping_since_ms > 0
            self._engine = None
            self._stopping_since_ms = 0
            if not was_told and self._on_end(code, wanted, at):
                return False
        elif self._engine is not None and wanted != RUNNING:
            self._end_engine(at)
        elif self._engine is None and wanted == STOPPED:
            self._note(STOPPED)
            return False
        elif self._engine is None and wanted == PAUSED:
            self._note(PAUSED)
        elif self._engine is None and at >= self._next_try_ms:
            self._start(at)
        return True

    def run(self, look: Callable[[], None]) -> int:
        """Until it is over; `look` is called between the steps. The exit code."""
        while self.step():
            look()
            time.sleep(_LOOK_SECONDS)
        look()
        return 0 if self.status.state in (DONE, STOPPED) else 1

    def shut_down(self) -> None:
        """Whatever happens to this process, its engine does not outlive it."""
        if self._engine is not None and self._engine.poll() is None:
            self._engine.kill()

    def _start(self, at: int) -> None:
        if self.status.error:
            self.status.restarts += 1
        self._engine = self._launch()
        self._engine_started_ms = at
        self.status.pid = self._engine.pid
        self.status.next_try_ms = 0
        self._note(RUNNING)

    def _end_engine(self, at: int) -> None:
        assert self._engine is not None
        if not self._stopping_since_ms:
            self._stopping_since_ms = at
            self._engine.terminate()
        elif at - self._stopping_since_ms > STOP_SECONDS_MAX * 1000:
            self._tell("its batch has not finished in time and is interrupted")
            self._engine.kill()

    def _on_end(self, code: int, wanted: str, at: int) -> bool:
        """Whether all is over."""
        if code == 0 and wanted == RUNNING and self._once:
            self.status.error = ""
            self._note(DONE)
            return True
        if wanted != RUNNING:
            return False
        said = self._control.engine.read()
        reason = said.error if said is not None and said.error else _how(code)
        self.status.error = reason
        if self._once:
            self._note(FAILING)
            return True
        delay_ms = self._backoff.on_failure(at - self._engine_started_ms)
        self._next_try_ms = at + delay_ms
        self.status.next_try_ms = self._next_try_ms
        self._note(FAILING)
        self._tell(f"failed: {reason}")
        self._tell(f"starts again in {delay_ms / 1000:g} s (failure {self._backoff.failures})")
        return False

    def _note(self, state: str) -> None:
        if state != self.status.state or self.status.updated_ms == 0:
            self.status.state = state
            self._control.runner.write(self.status, now=True)


def _how(code: int) -> str:
    if code < 0:
        return f"the engine was killed by {signal.Signals(-code).name}"
    return f"the engine ended with {code}; see engine.log"


def keep_log_small(log: Path) -> None:
    """Two files of the size at most, however long an engine runs. It holds its log open for
    appending, and so does Spark's JVM: what is in there is copied, and the file is emptied."""
    try:
        if log.stat().st_size <= LOG_BYTES_MAX:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(log, log.with_suffix(".log.1"))
    os.truncate(log, 0)


def launch_engine(project: Project, control: Control, *, once: bool) -> EngineProcess:
    """In a process group of its own: a terminal's Ctrl-C is for the runner to pass on. It has the
    runner's lock as well: should it outlive the runner, nobody gets in its way until it ends."""
    environment = {**os.environ, "OTTLA_SUPERVISOR": str(os.getpid())}
    start = control.starts_at()
    if start:
        environment[STARTING_OFFSETS] = start
    command = [sys.executable, "-m", "ottla.spark.pipeline.engine", str(project.root)]
    held = control.lock_held
    with control.engine_log.open("ab") as log:
        return subprocess.Popen(
            command + (["--once"] if once else []),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=project.root,
            env=environment,
            start_new_session=True,
            pass_fds=() if held is None else (held.fileno(),),
        )
