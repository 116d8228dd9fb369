"""Who writes and who reads in a chaos test: writers as processes, readers as threads.

Each writer has a topic of one partition to itself; the number of the topic stands for the partition
in the history.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from ottla.client import Consumer
from tests.chaos.cluster_checker import Ack, Read
from tests.chaos.cluster_writers import KINDS
from tests.chaos.watched_consumer import WatchedConsumer
from tests.cluster.waiting import until
from tests.compat.nodes import REPOSITORY, kafka_jars
from tests.patience import HEAL_SECONDS_MAX, SECONDS_MAX

JAVA = "java"
JAVA_PER_S = 50
# The tool would try once only; like any other Java producer it is to try for two minutes.
JAVA_SETTINGS = "retries=2147483647\ndelivery.timeout.ms=300000\nenable.idempotence=true\n"


def topic_of(number: int) -> str:
    return f"chaos-{number}"


class WriterProcess:
    def __init__(
        self, kind: str, number: int, bootstrap: str, note: Callable[[Ack], None], directory: Path
    ) -> None:
        self.kind = kind
        self.acked = 0
        self.gave_up: list[str] = []
        self._number = number
        self._note = note
        self.log_path = directory / f"writer-{kind}.log"
        is_java = kind == JAVA
        command = self._java(bootstrap, directory) if is_java else self._python(bootstrap)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=REPOSITORY
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The Java tool takes numbers only."""
        return str(self._number)

    def _python(self, bootstrap: str) -> list[str]:
        module = ["-m", "tests.chaos.cluster_writers"]
        return [sys.executable, *module, self.kind, self.name, bootstrap, topic_of(self._number)]

    def _java(self, bootstrap: str, directory: Path) -> list[str]:
        settings = directory / "java.properties"
        settings.write_text(JAVA_SETTINGS)
        return [
            *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.VerifiableProducer"),
            *("--bootstrap-server", bootstrap, "--topic", topic_of(self._number)),
            *("--acks", "-1", "--throughput", str(JAVA_PER_S), "--value-prefix", self.name),
            *("--command-config", str(settings)),
        ]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._hear(line.decode().rstrip())

    def _hear(self, line: str) -> None:
        if line.startswith("ack "):
            _, number, offset = line.split(" ")
            self._is_told(int(number), int(offset))
        elif line.startswith("{"):
            told = json.loads(line)
            if told["name"] == "producer_send_success":
                self._is_told(int(told["value"].partition(".")[2]), int(told["offset"]))
            elif told["name"] == "producer_send_error":
                self.gave_up.append(line)
        else:
            self.gave_up.append(line)

    def _is_told(self, number: int, offset: int) -> None:
        self._note(Ack(self.name, number, self._number, offset))
        self.acked += 1

    def finish(self) -> None:
        """No more sends; returns when it is known what became of those there were."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.kind == JAVA:
            self._process.terminate()
        self._process.wait(HEAL_SECONDS_MAX)
        self._thread.join(HEAL_SECONDS_MAX)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._thread.join(SECONDS_MAX)

    def last_words(self) -> str:
        return f"{self.kind}: {self.gave_up[-1:]} {self.log_path.read_text()[-500:]}"


class Reader(threading.Thread):
    """Reads everything from the beginning, for as long as it may."""

    def __init__(self, name: str, bootstrap: str, count: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.topics = [topic_of(number) for number in range(count)]
        self.reads: list[Read] = []
        self.failed: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.read()
        except Exception as failure:  # a thread that dies tells nobody
            self.failed.append(repr(failure))
            raise

    def read(self) -> None:
        """Until it is to stop."""

    def take(self, topic: str, offset: int, value: bytes) -> None:
        writer, _, number = value.decode().partition(".")
        self.reads.append(Read(self.name, writer, int(number), self.topics.index(topic), offset))


class ConfluentReader(Reader):
    def read(self) -> None:
        settings: dict[str, str | int] = {"bootstrap.servers": self.bootstrap}
        places = {(topic, 0): 0 for topic in self.topics}
        consumer = WatchedConsumer(settings, places, self._take)
        self.failed = consumer.failed
        consumer.read(self.stopping)

    def _take(self, message: confluent_kafka.Message) -> None:
        self.take(message.topic() or "", message.offset() or 0, message.value() or b"")


class OttlaReader(Reader):
    def read(self) -> None:
        with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0) for topic in self.topics])
            while not self.stopping.is_set():
                for record in consumer.poll(0.2):
                    self.take(record.topic, record.offset, bytes(record.value))


def read_finally(bootstrap: str, count: int) -> list[Read]:
    """Everything up to the ends that the leaders tell now."""
    reader = Reader("final", bootstrap, count)
    places = [(topic, 0) for topic in reader.topics]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)

        def all_read() -> bool:
            for record in consumer.poll(0.2):
                reader.take(record.topic, record.offset, bytes(record.value))
            return len(reader.reads) >= sum(ends.values())

        until(all_read, "everything is read again", HEAL_SECONDS_MAX)
    return reader.reads


PYTHON_KINDS = tuple(KINDS)
