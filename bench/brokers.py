"""Broker processes under measurement: Ottla as `ottla serve`, Apache Kafka as one KRaft node.

Each on loopback, on ports of its own, with a fresh data directory and its default settings. What
differs from the defaults is the same on both sides (SHARED_SETTINGS). A process is started in a
session of its own, so that Ctrl-C reaches the harness alone, and is ended by its pid, always.
"""

from __future__ import annotations

import base64
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from bench.errors import BenchError
from bench.kafka_jars import jars_directory
from bench.kafka_properties import one_node
from bench.processes import cpu_seconds, resident_bytes
from bench.wire import AnswerError, Connection
from ottla.protocol.api_keys import METADATA

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
_POLL_S = 0.002
# A connection attempt that nobody answers must not eat the figure that it waits for.
_ATTEMPT_TIMEOUT_S = 1.0

# Deleted topics give their pages back at once, so that writing them out disturbs no later case.
# The rebalance cases of issue 4 ask for no initial delay and one heartbeat interval on both sides.
SHARED_SETTINGS: Mapping[str, str] = {
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


class BrokerFailed(BenchError):
    """The broker did not start, or ended by itself."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Broker:
    """One broker process on a directory and a port that stay over restarts."""

    kind = ""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.settings = settings
        self.data = directory / "data"
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.log_path = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def command(self) -> list[str]:
        raise AssertionError("each kind of broker has its command")

    def prepare(self) -> None:
        """What has to be done once before the first start, outside of any figure."""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed(f"{self.kind} does not run")
        return self._process.pid

    def start(self) -> float:
        """Seconds from the start of the process to its first answer that names a broker."""
        self.prepare()
        begin = self.launch()
        while not self._names_a_broker():
            self.expect_alive()
            if time.monotonic() - begin > START_SECONDS_MAX:
                raise BrokerFailed(f"{self.kind} gives no metadata after {START_SECONDS_MAX} s")
            time.sleep(_POLL_S)
        return time.monotonic() - begin

    def launch(self) -> float:
        """Starts the process and waits for nothing; the time of its start."""
        with self.log_path.open("ab") as log:
            begin = time.monotonic()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        return begin

    def ask_to_stop(self) -> None:
        """The first half of `stop`, for several that end together."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Asks for a clean end, and ends it by force when none comes. May be called twice."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def expect_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            tail = self.log_path.read_text(errors="replace")[-1500:]
            raise BrokerFailed(f"{self.kind} has ended:\n{tail}")

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def _names_a_broker(self) -> bool:
        try:
            with Connection(self.bootstrap, _ATTEMPT_TIMEOUT_S) as connection:
                fields = {"topics": [], "allow_auto_topic_creation": False}
                return len(connection.call(METADATA, 4, fields).brokers) > 0
        except (OSError, AnswerError):
            return False


class Ottla(Broker):
    """`ottla serve`; OTTLA_BENCH_COMMAND names another command that takes the same options."""

    kind = "ottla"

    def command(self) -> list[str]:
        settings = {"ottla.metrics.listener": "127.0.0.1:0", **self.settings}
        overrides = [word for pair in settings.items() for word in ("--override", "=".join(pair))]
        place = ["--data", str(self.data), "--listen", self.bootstrap]
        return [*ottla_command(), "serve", *place, *overrides]


class Kafka(Broker):
    """Apache Kafka, one node, broker and controller in one (KRaft)."""

    kind = "kafka"

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings)
        # A first letter that is none of chance: the tool takes a dash for an option.
        self.cluster_id = "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]

    def command(self) -> list[str]:
        return ["java", "-Xmx1g", "-cp", f"{jars_directory()}/*", "kafka.Kafka", str(self._file())]

    def prepare(self) -> None:
        if self._file().exists():
            return
        self._file().write_text(self.properties())
        tool = ["java", "-cp", f"{jars_directory()}/*", "kafka.tools.StorageTool", "format"]
        arguments = ["--cluster-id", self.cluster_id, "--config", str(self._file())]
        subprocess.run([*tool, *arguments], check=True, capture_output=True)

    def _file(self) -> Path:
        return self.directory / "server.properties"

    def properties(self) -> str:
        controller = f"127.0.0.1:{free_port()}"
        return one_node(self.bootstrap, controller, self.data, self.settings)


def ottla_command() -> list[str]:
    named = os.environ.get("OTTLA_BENCH_COMMAND")
    if named:
        return shlex.split(named)
    script = Path(sys.executable).with_name("ottla")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ottla.cli.main"]


KINDS: Mapping[str, type[Broker]] = {"ottla": Ottla, "kafka": Kafka}
