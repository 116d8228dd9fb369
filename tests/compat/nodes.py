"""Brokers as processes of their own, reached over TCP only: Ottla, or Apache Kafka as the judge.

A test that asks for a node gets the kind that OTTLA_COMPAT_NODE names (`ottla` or `kafka`), so the
same test shows what Kafka does. A node that logged a traceback or an error fails its test.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bench.kafka_properties import one_node
from tests.ports import free_port

START_SECONDS_MAX = 180
STOP_SECONDS_MAX = 120
OTTLA = Path(sys.executable).with_name("ottla")
REPOSITORY = Path(__file__).resolve().parents[2]
COMPLAINT = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|\bFATAL\b|Task exception was never")


def kafka_jars() -> Path:
    return Path(os.environ.get("OTTLA_KAFKA_JARS", REPOSITORY / ".cache" / "kafka"))


def java(*arguments: str, heap: str = "256m") -> list[str]:
    """A short-lived JVM: the first compiler tier only, which halves its start-up."""
    flags = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *flags, "-cp", f"{kafka_jars()}/*", *arguments]


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class Node(Protocol):
    data: Path
    port: int

    @property
    def bootstrap(self) -> str: ...
    def partition_directory(self, topic: str, partition: int = 0) -> Path: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class ProcessNode:
    """Start, stop and kill of one broker process on a data directory and a port that stay."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.overrides = dict(overrides or {})
        self.port = free_port()
        self.log_path = directory / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def partition_directory(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"

    def command(self) -> list[str]:
        raise AssertionError("each kind of node has its command")

    def ready_mark(self) -> str:
        raise AssertionError("each kind of node says in its own words that it serves")

    def start(self) -> None:
        assert self.process is None, "it runs already"
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        process, mark = self.process, self.ready_mark().encode()

        def answered() -> bool:
            text = self.log_path.read_bytes()[begin:]
            assert process.poll() is None, f"{self.command()[0]} ended:\n{text.decode()[-2000:]}"
            return mark in text

        wait_until(answered, START_SECONDS_MAX, f"{mark.decode()!r} in {self.log_path}")

    def stop(self) -> None:
        """SIGTERM; a clean stop ends with status 0."""
        status = self._end(signal.SIGTERM)
        assert status in self.clean_exit_statuses(), f"exit status {status}: {self.log_tail()}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def clean_exit_statuses(self) -> tuple[int, ...]:
        return (0,)

    def close(self) -> None:
        if self.process is not None:
            self.stop()
        complaints = [line for line in self.log_text().splitlines() if COMPLAINT.search(line)]
        assert complaints == [], f"the broker complained: {complaints[:5]}\n{self.log_tail()}"

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return self.log_text()[-3000:]

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None, "it does not run"
        process, self.process = self.process, None
        process.send_signal(how)
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"no end after {how.name}: {self.log_tail()}") from None


class OttlaNode(ProcessNode):
    def command(self) -> list[str]:
        settings = {"ottla.metrics.listener": "127.0.0.1:0", **self.overrides}
        options = [part for pair in settings.items() for part in ("--override", "=".join(pair))]
        # It would count for more than a list of log dirs.
        data = [] if "log.dirs" in settings else ["--data", str(self.data)]
        return [str(OTTLA), "serve", *data, "--listen", self.bootstrap, *options]

    def ready_mark(self) -> str:
        return f"listening on {self.bootstrap}"


def new_cluster_id() -> str:
    # A leading letter: Kafka's tool would take a leading hyphen for an option.
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


class KafkaNode(ProcessNode):
    """Apache Kafka, one node, broker and controller in one (KRaft)."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self.cluster_id = new_cluster_id()

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self._properties_path()), heap="512m")

    def ready_mark(self) -> str:
        return "Kafka Server started"

    def clean_exit_statuses(self) -> tuple[int, ...]:
        return (0, 128 + signal.SIGTERM)

    def close(self) -> None:
        """Its log is not ours to judge."""
        if self.process is not None:
            self.stop()

    def start(self) -> None:
        properties = self._properties_path()
        if not properties.exists():
            properties.write_text(self._properties())
            format_data = java(
                "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(properties)
            )
            subprocess.run(format_data, check=True, capture_output=True)
        super().start()

    def _properties_path(self) -> Path:
        return self.directory / "server.properties"

    def _properties(self) -> str:
        controller = f"127.0.0.1:{free_port()}"
        return one_node(self.bootstrap, controller, self.data, self.overrides)


def node_kind() -> type[ProcessNode]:
    return {"ottla": OttlaNode, "kafka": KafkaNode}[os.environ.get("OTTLA_COMPAT_NODE", "ottla")]
