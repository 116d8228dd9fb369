"""Where commands and a running pipeline meet: a directory of small files in the project.

`lock` is held by the runner as long as it lives, and by its engine, which has it from there: there
is one of each for a project, and dead ones leave nothing that has to be cleaned up. `wanted` is
what people want of it, `start` where it begins after a reset. `runner.json` and `engine.json` are
what the two processes say of themselves, `queries.json` is what the engine's queries are made of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from ottla.spark.errors import SparkError
from ottla.spark.pipeline.notes import QueryNotes
from ottla.spark.pipeline.status import (
    DONE,
    FAILING,
    PAUSED,
    RUNNING,
    STARTING,
    STOPPED,
    Status,
    StatusFile,
)

WANTED = (RUNNING, PAUSED, STOPPED)
LOOKS_MAX, LOOK_S = 20, 0.01
LEFTOVER_LOOK_S = 0.2
RUNNER_STATUS, ENGINE_STATUS = "runner.json", "engine.json"


class AlreadyRunning(SparkError):
    """Another runner has the project."""


def _is_taken(lock: TextIO) -> bool:
    """Takes the lock for a runner. Who only looks has it for a moment, and is waited for."""
    for _ in range(LOOKS_MAX):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOOK_S)
        else:
            return True
    return False


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True


class Control:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runner = StatusFile(directory / RUNNER_STATUS)
        self.engine = StatusFile(directory / ENGINE_STATUS)
        self.engine_log = directory / "engine.log"
        self.queries = QueryNotes(directory / "queries.json")
        self._wanted = directory / "wanted"
        self._start = directory / "start"
        self._lock = directory / "lock"
        # For the engine: as long as it has this open, the project is taken.
        self.lock_held: TextIO | None = None

    @contextlib.contextmanager
    def held(self, tell: Callable[[str], None] | None = None) -> Iterator[None]:
        """As the one runner of the project; raises AlreadyRunning. With `tell`, what a dead runner
        has left is waited for, and that is told."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a+") as lock:
            if not _is_taken(lock):
                lock.seek(0)
                pid = lock.read().strip()
                if tell is None or _is_alive(pid):
                    raise AlreadyRunning(
                        f"the pipeline is running already (process {pid or '?'}): "
                        "`ottla pipeline stop` ends it"
                    )
                tell(
                    f"the runner before, process {pid}, is dead; waiting for its engine to finish "
                    "its batches"
                )
                while not _is_taken(lock):
                    time.sleep(LEFTOVER_LOOK_S)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self.lock_held = lock
            try:
                yield
            finally:
                self.lock_held = None

    def is_held(self) -> bool:
        if not self._lock.exists():
            return False
        with self._lock.open("a+") as lock:
            try:
                # Shared: two who look at the same moment must not take each other for a runner.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def want(self, state: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self._wanted.with_name(f"wanted.{os.getpid()}")
        draft.write_text(state)
        draft.replace(self._wanted)

    def wanted(self) -> str:
        try:
            found = self._wanted.read_text().strip()
        except FileNotFoundError:
            return RUNNING
        return found if found in WANTED else RUNNING

    def start_at(self, offsets: str) -> None:
        """Where queries begin that have no checkpoint; empty: where their options say."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._start.write_text(offsets)

    def starts_at(self) -> str:
        try:
            return self._start.read_text().strip()
        except FileNotFoundError:
            return ""

    def start_is_taken(self) -> None:
        """All queries have begun: one that comes later begins where its own options say."""
        self._start.unlink(missing_ok=True)

    def status(self, name: str) -> Status:
        """What is known of both: the runner's word on the state, the engine's on the flows."""
        engine = self.engine.read()
        runner = self.runner.read()
        if not self.is_held():
            found = engine or Status(name)
            # An engine that was killed has said nothing of its end; the runner has.
            last = runner or found
            found.state = last.state if last.state in (DONE, FAILING) else STOPPED
            found.error = last.error or found.error
            return found
        if runner is None:
            return engine or Status(name)
        if runner.state == RUNNING and (engine is None or engine.pid != runner.pid):
            runner.state = STARTING  # what is there to read is of the engine before
        elif engine is not None:
            runner.flows, runner.views = engine.flows, engine.views
            if runner.state == RUNNING:
                runner.state = engine.state
                runner.error = engine.error or runner.error
        return runner
