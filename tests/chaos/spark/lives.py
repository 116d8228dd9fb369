"""Lives of a copier (see `copier`): started, killed with everything below it, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.session import PATIENT_ENVIRONMENT
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.sink_protocol import sink_prefix
from ottla.spark.worker_start import python_for_spark
from tests.spark.topics import Topics

SECONDS_MAX = 900.0
LIVES_MAX = 20


class Copier:
    def __init__(
        self,
        topics: Topics,
        directory: Path,
        *,
        master: str = "local[2,3]",
        settings: Mapping[str, str] | None = None,
        reading: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.topics = topics
        self.directory = directory
        self.target = topics("out")
        self.given = {
            "bootstrap": topics.bootstrap,
            "source": topics("in"),
            "target": self.target,
            "directory": str(directory),
            "master": master,
            "settings": dict(settings or {}),
            "reading": dict(reading or {}),
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            **PATIENT_ENVIRONMENT,
            "PYSPARK_PYTHON": python_for_spark(),
            "OTTLA_SPARK_CRASH": str(directory / "crash"),
            **(environment or {}),
        }
        (directory / "crash").mkdir()

    @contextmanager
    def life(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tests.chaos.spark.copier", json.dumps(self.given)]
        with (self.directory / "copier.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            kill_all(process.pid)
            process.wait(SECONDS_MAX)

    def end(self) -> None:
        """All that is left, over as many lives as it takes: a supervisor starts it again too."""
        (self.directory / "ended").touch()
        for _ in range(LIVES_MAX):
            with self.life() as process:
                if process.wait(SECONDS_MAX) == 0:
                    return
        raise AssertionError(f"it always fails: {self.said()}")

    def said(self) -> str:
        return (self.directory / "copier.log").read_text(errors="replace")[-3000:]

    def expect_once(self, rows: int) -> None:
        """Every row once, nothing open, the decision at the end of the checkpoint."""
        assert sorted(self.topics.values("out")) == list(range(rows))
        options = {"kafka.bootstrap.servers": self.topics.bootstrap, "topic": self.target}
        cluster = ClientSinkCluster(parse_sink_options(options, streaming=True))
        try:
            assert cluster.open_transactions(sink_prefix(self.target)) == []
            decided = cluster.decision(self.target)
        finally:
            cluster.wire.close()
        commits = (self.directory / "checkpoint" / "commits").iterdir()
        last = max(int(one.name) for one in commits if one.name.isdigit())
        assert decided is not None
        assert decided.batch == last


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.1)


def kill_all(root: int) -> None:
    """A process and everything below it, as when a machine goes: no one of them sees another end.

    All stand still before the first is killed, so that nobody starts anybody meanwhile."""
    found: list[int] = []
    while new := [pid for pid in below(root) if pid not in found]:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        found.extend(new)
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended by itself


def below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                text = (process / "stat").read_text()
            except OSError:
                continue  # it has ended in the meantime
            parent = int(text.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(process.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting.extend(children.get(pid, []))
    return found


def command_line(pid: int) -> bytes:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""  # it has ended
